#!/usr/bin/env python3
"""Measure what makes a file slow to read: `python3 .ci/shape.py [FILE ...]`.

Each row is a file, mcp_ref.py and the client if none is named:

    tokens    what `tokenize` yields without comments and layout
    prose     lines of comments and docstrings, of all lines, in percent
    longest   lines of the longest function
    if-else   conditional expressions, `a if b else c`
    double    assignments of several values to several names, `a, b = x, y`
    suppress  `with suppress(...)`
    forward   pairs of a function and a name of the module that it uses more than 50
              lines before it is defined; annotations do not count
    fields    different attributes of `self`
    yields    places where a function is left and entered again

Of mcp_ref.py, the statements and functions that one `tools/call` passes follow.
None of these is a goal in itself: .github/CONTRIBUTING.md says what they are for.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FAR = 50  # lines


def tokens_of(source: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def prose_of(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that are only a comment, or in a docstring."""
    lines = source.split("\n")
    found = set()
    for token in tokens_of(source):
        row = token.start[0]
        if token.type == tokenize.COMMENT and lines[row - 1].lstrip().startswith("#"):
            found.add(row)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, False) is not None:
            first = node.body[0]
            found.update(range(first.lineno, (first.end_lineno or 0) + 1))
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


def is_double(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def is_suppress(node: ast.AST) -> bool:
    if not isinstance(node, ast.With):
        return False
    calls = [one.context_expr for one in node.items]
    return any(
        getattr(getattr(one, "func", None), "id", "") == "suppress" for one in calls
    )


def field_of(node: ast.AST) -> str:
    """Return the name of the attribute of `self` that is set here, or ""."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
    return ""


def measured(path: Path) -> dict[str, Any]:
    """Return the measures of a file, by the names of the columns."""
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    code = [
        one for one in tokens_of(source) if tokenize.tok_name[one.type] not in LAYOUT
    ]
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, FUNCTIONS)
    ]
    lines = source.count("\n")
    return {
        "lines": lines,
        "tokens": len(code),
        "prose": f"{100 * len(prose_of(source, tree)) / lines:.0f} %",
        "longest": max(lengths, default=0),
        "if-else": sum(isinstance(node, ast.IfExp) for node in nodes),
        "double": sum(map(is_double, nodes)),
        "suppress": sum(map(is_suppress, nodes)),
        "forward": len(forward_references(tree)),
        "fields": len({field_of(node) for node in nodes} - {""}),
        "yields": sum(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes),
    }


def walk_of_a_call() -> tuple[int, int]:
    """Return how many statements and functions of mcp_ref.py one call passes, from
    decode() to encode()."""
    sys.path.insert(0, str(ROOT))
    import mcp_ref

    server = mcp_ref.Server("s")
    server.tool(lambda: "x", name="x")
    meta = {mcp_ref.META_VERSION: mcp_ref.versions()[0], mcp_ref.META_CAPABILITIES: {}}
    params = {"name": "x", "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    line = json.dumps(call).encode()
    passed: set[tuple[str, int]] = set()
    functions: set[int] = set()

    def trace(frame: Any, kind: str, value: Any) -> Any:
        if frame.f_code.co_filename == mcp_ref.__file__:
            if kind == "line":
                passed.add((frame.f_code.co_name, frame.f_lineno))
            functions.add(id(frame.f_code))
        return trace

    def send(answer: Any) -> None:
        mcp_ref.encode(answer)

    for tracer in (None, trace):  # the first one fills caches
        sys.settrace(tracer)
        server.handle(mcp_ref.decode(line), send)
        sys.settrace(None)
    return len(passed), len(functions)


def main(words: list[str]) -> None:
    """Print the table."""
    if {"-h", "--help"} & set(words):
        return print(__doc__)
    paths = [ROOT / "mcp_ref.py", ROOT / "examples" / "mcp_client.py"]
    rows = {path: measured(path) for path in map(Path, words or paths)}
    columns = next(iter(rows.values()))
    print(f"{'':14}" + "".join(f"{name:>9}" for name in columns))
    for path, row in rows.items():
        print(f"{path.name:14}" + "".join(f"{row[name]:>9}" for name in columns))
    if not words:
        print("one tools/call: {} statements in {} functions".format(*walk_of_a_call()))


if __name__ == "__main__":
    main(sys.argv[1:])
