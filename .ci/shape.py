#!/usr/bin/env python3
"""Measure how long a file takes to read: `python3 .ci/shape.py [FILE ...]`.

    minutes   tokens / 75 + words / 200: what readers took for h11 and bottle, without
              the time for what stopped them
    first     ... without sections that say "skip on first reading"
    tokens    of the code, on every Python the same: no comments and layout, and an
              f-string is one
    words     of comments and docstrings
    longest   lines of the longest function
    if-else   conditional expressions, `a if b else c`
    double    assignments of several values to several names, `a, b = x, y`
    forward   pairs of a function and a name of the module that it uses more than 50
              lines before it is defined; annotations do not count
    early     attributes of other objects used more than 50 lines before the first class
              that has them
    what/who  these words and `whoever` in comments and docstrings, per 1,000 lines

Files without a name on the command line are mcp_ref.py and the client; then each
section of the module follows. CONTRIBUTING.md says what each figure is for.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "mcp_ref.py", ROOT / "examples" / "mcp_client.py"]
LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FAR = 50  # lines
# An attribute of one of these is not one of our classes.
MODULES = {"self", "sys", "os", "re", "time", "threading", "json", "typing"}


class Section(NamedTuple):
    """A part of a file, and what it costs to read."""

    title: str
    tokens: int
    words: int
    skip: bool

    @property
    def minutes(self) -> float:
        return self.tokens / 75 + self.words / 200


def tokens_of(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield all tokens; of an f-string only the first (3.12 has several for one)."""
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        depth -= name == "FSTRING_END"
        if not depth and name != "FSTRING_END":
            yield token
        depth += name == "FSTRING_START"


def prose_of(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings, each with the number of its first line."""
    for token in tokens_of(source):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#")
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def sections(source: str) -> list[Section]:
    """Return the sections of a file; without banners, it is one section."""
    lines = source.split("\n")
    tokens = [0] * (len(lines) + 1)
    words = [0] * (len(lines) + 1)
    for token in tokens_of(source):
        tokens[token.start[0]] += tokenize.tok_name[token.type] not in LAYOUT
    for number, text in prose_of(source, ast.parse(source)):
        words[number] += len(text.split())
    starts = [(1, "head")]
    for number, line in enumerate(lines, 1):
        if line.startswith("# ======== "):
            starts.append((number, line.strip("#= ")))
    found = []
    ends = [start for start, title in starts[1:]] + [len(lines) + 1]
    for (start, title), end in zip(starts, ends):
        opening = " ".join(lines[start : start + 14]).replace("# ", "").lower()
        found.append(
            Section(
                title,
                sum(tokens[start:end]),
                sum(words[start:end]),
                "skip on first reading" in opening,
            )
        )
    return found


def defined_in(tree: ast.Module) -> dict[str, int]:
    """Return where each name of the module is defined first."""
    where: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            where.setdefault(node.name, node.lineno)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    where.setdefault(part.id, node.lineno)
    return where


def without_notes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, but no annotations."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from without_notes(one)


def own_names(function: Any) -> set[str]:
    """Return the names that a function defines itself."""
    own = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node is not function:
            own.add(node.name)
    return own


def forward_references(tree: ast.Module) -> set[tuple[int, str]]:
    where = defined_in(tree)
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS):
            own = own_names(function)
            for node in without_notes(function):
                if isinstance(node, ast.Name) and node.id not in own:
                    if where.get(node.id, 0) - function.lineno > FAR:
                        found.add((function.lineno, node.id))
    return found


def of_self(node: Any) -> str:
    """Return the name of the attribute of `self` that is set here, or ""."""
    is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    if is_set and isinstance(node.value, ast.Name) and node.value.id == "self":
        return str(node.attr)
    return ""


def attributes_of(tree: ast.Module) -> dict[str, int]:
    """Return each attribute and method, and the line of the first class that has it."""
    where: dict[str, int] = {}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            names = {of_self(node) for node in ast.walk(owner)}
            for node in owner.body:
                if isinstance(node, FUNCTIONS):
                    names.add(node.name)
                elif isinstance(node, ast.AnnAssign):
                    names.add(getattr(node.target, "id", ""))
            for name in names:
                where.setdefault(name, owner.lineno)
    return where


def early_attributes(tree: ast.Module) -> int:
    where = attributes_of(tree)
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if getattr(node.value, "id", "") not in MODULES:
                found += where.get(node.attr, 0) - node.lineno > FAR
    return found


def is_double(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def measured(source: str) -> dict[str, Any]:
    """Return the measures of a file, by the names of the columns."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    parts = sections(source)
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, FUNCTIONS)
    ]
    prose = " ".join(text for _, text in prose_of(source, tree))
    asked = len(re.findall(r"(?i)\b(?:what|who|whoever)\b", prose))
    return {
        "minutes": round(sum(part.minutes for part in parts)),
        "first": round(sum(part.minutes for part in parts if not part.skip)),
        "tokens": sum(part.tokens for part in parts),
        "words": sum(part.words for part in parts),
        "longest": max(lengths, default=0),
        "if-else": sum(isinstance(node, ast.IfExp) for node in nodes),
        "double": sum(map(is_double, nodes)),
        "forward": len(forward_references(tree)),
        "early": early_attributes(tree),
        "what/who": round(1000 * asked / (source.count("\n") or 1), 1),
    }


def main(words: list[str]) -> None:
    """Print the table, and the sections of the module."""
    if {"-h", "--help"} & set(words):
        return print(__doc__)
    sources = {path: path.read_text("utf-8") for path in map(Path, words or FILES)}
    rows = {path: measured(source) for path, source in sources.items()}
    columns = next(iter(rows.values()))
    print(f"{'':14}" + "".join(f"{name:>9}" for name in columns))
    for path, row in rows.items():
        print(f"{path.name:14}" + "".join(f"{row[name]:>9}" for name in columns))
    if not words:
        print("\nminutes   tokens    words")
        for part in sections(sources[FILES[0]]):
            title = part.title + ", to be skipped on first reading" * part.skip
            print(f"{part.minutes:7.0f}{part.tokens:9}{part.words:9}   {title}")


if __name__ == "__main__":
    main(sys.argv[1:])
