#!/usr/bin/env python3
r"""Skills over MCP: the extension io.modelcontextprotocol/skills (SEP-2640), both roles.

A skill is a folder with a SKILL.md in it: instructions for a model, under a header of YAML that
says what it is called and when to use it. A server serves each file as a resource, and for each
skill an *entry*: the header, and every file with its size and digest. A host shows and approves
entries, fetches a file when it is needed and not before, and uses nothing that differs from its
entry. That makes both sides tell the same story; it does not make the story true: a skill is what
some server wants a model to do, so a host shows where it comes from, and asks its user.

    python3 examples/skills.py serve FOLDER... [--http [HOST:]PORT]    all skills below the folders
    python3 examples/skills.py list TARGET                             what there is, and what not
    python3 examples/skills.py load URI [--file PATH] TARGET           SKILL.md, or one file of it

TARGET is a folder, a URL, or a command that starts a server, at the end and after `--`:

    $ python3 examples/skills.py list examples/skills
    here/debug-mcp-server  skill://debug-mcp-server/SKILL.md  2 files, 2447 bytes
        Find out why an MCP server does not start, is not connected to, or answers with errors. Use it when a host shows a server as failed, or when a tool is missing or fails.
    $ python3 examples/skills.py load skill://debug-mcp-server/SKILL.md --file references/errors.md \
          -- python3 examples/skills.py serve examples/skills | grep -e from -e 32700
    [skill://debug-mcp-server/references/errors.md, from the server "here"]
    | -32700 | a message is no JSON, or too large | what else writes to standard output |

In a server of yours it is one line, serve_skills(server, "folder"); in a host it is Skills(client,
"a label for that server", approve), one for each server.

No way out of the folders. The URI that a client sends is compared with those of the files that are
there, and never made into a path. Links are not followed, not even to a place inside: who writes a
skill must not choose which other files the server gives away. (A hard link is a file like any
other: it cannot be told from one.) Folders are opened one below the
other, and the file in the last, so nothing can be swapped for a link in between (on Windows, which
cannot do that, only checks just before stand in the way). A folder given to serve_skills() may be a
link: that is the operator's word. What begins with a dot (.git, .env) is no part of a skill. With
anything else that cannot be served (a link, a pipe, an unreadable file, a name with a newline) the
whole skill is refused, and `list` says why: a manifest is complete, or it is none.

YAML is not in the standard library, so there is a reader for the part that skills use, by the rules
of YAML 1.2 (`yes` and 2026-01-01 are text): mappings and lists, indented or in braces and brackets;
text plain, quoted, or after | and >, over one or more lines; numbers, true, false, null; comments.
Anchors, aliases, tags, several documents, "? " keys, keys that are no text, keys that come twice,
tabs, and indents given by a digit are errors, and such a skill is neither served nor loaded.

References such as `ext-skills §Limits` name a heading of the extension's page, specification/
stable/skills.mdx of modelcontextprotocol/ext-skills; `agentskills §Frontmatter` one of
agentskills.io/specification.
Both eras of MCP are served alike: the page asks for 2026-07-28, and nothing in it needs that.
"""
from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import errno
import hashlib
import itertools
import json
import mimetypes
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import mcp_ref  # noqa: I001
from mcp_ref import (
    Client, Context, Malformed, NotFound, RpcError, Server, ServerLacks, connect)

EXTENSION = "io.modelcontextprotocol/skills"
SKILL = "SKILL.md"
INVALID_PARAMS = -32602
MAX_FILES = 512             # of one skill, and ...
MAX_BYTES = 16 * 2**20      # ... of all of them together: ext-skills §Limits
MAX_MESSAGE = 24 * 2**20    # bytes: a file of 16 MiB in base64, and what is around it
MAX_HEADER = 2**16          # bytes of frontmatter
MAX_NESTED = 16             # lists and mappings in each other
MAX_DEPTH = 32              # folders in folders
MAX_SEEN = 4 * MAX_FILES    # files and folders that are looked at in one skill
MAX_KNOWN = 100_000         # files whose digests are kept
MAX_CACHED = 64 * 2**20     # bytes of verified files that a host keeps, of one server
MAX_LISTED = 64 * 2**20     # bytes of JSON in all pages of a list
MAX_PAGES = 1000            # of one list
SETTLED = 2.0               # seconds without a change, until a time of change can be relied on

Message = dict[str, Any]
Parts = tuple[str, ...]     # what a URI has between its slashes, decoded: ("git", "SKILL.md")


class SkillError(Exception):
    """A skill that cannot be served, or must not be used. The message says which, and why."""


def shown(value: Any) -> str:
    """Return foreign input for a message: nothing that a terminal acts on, and not at length."""
    text = ascii(value)
    return text if len(text) <= 200 else text[:200] + "..."


# ---- URIs

def uri_of(parts: Parts) -> str:
    """Make the one URI that a file or folder has here: whatever is not plain is escaped."""
    return "skill://" + "/".join(map(_quoted, parts))


def _quoted(part: str) -> str:
    return quote(part.encode("utf-8", "surrogatepass"), safe="")


def parts_of(uri: str) -> Parts:
    """Return what stands between the slashes of a URI of any scheme; SkillError if it is unsafe.

    Whatever a host makes of it, a path included, it stays below the skill: no part is empty, . or
    .., or has a slash of either kind, plain or escaped, or what does not print.
    """
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):///?([^?#]+)", uri)
    try:
        parts = tuple(unquote(part, errors="strict") for part in found[2].split("/")) if found \
            else ()
    except UnicodeDecodeError:
        parts = ()
    if not parts or not all(map(_is_plain, parts)):
        raise SkillError(f"{shown(uri)} is no URI of a file in a skill")
    return parts


def _is_plain(name: str) -> bool:
    """Tell whether a name is one on every system. What is not UTF-8 does not print, either."""
    return name.isprintable() and name not in ("", ".", "..") and not re.search(r"[/\\]", name)


# ---- frontmatter: the part of YAML that skills use

_NAMED = {"null": None, "Null": None, "NULL": None, "~": None, "true": True, "True": True,
          "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = (("[-+]?[0-9]+", 10), ("0o[0-7]+", 8), ("0x[0-9a-fA-F]+", 16))
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|0[ox][0-9a-fA-F]{39,}")
_QUOTED = {'"': re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL), "'": re.compile(r"'(?:[^']|'')*'")}
_ESCAPED = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPES = dict(zip('0abtnvfre"/\\ N_LP', '\0\a\b\t\n\v\f\r\x1b"/\\ \x85\xa0\u2028\u2029'))
_IN_FLOW = re.compile(r"(?:[^,\[\]{}:#\n]|:(?![\s,\[\]{}]|$)|(?<!\s)#)*")     # text in [ ] and { }
_NOTHING = re.compile(r"(?: +#[^\n]*| *)(?:\n *(?:#[^\n]*)?)*")     # after a value: comments
_ODD = re.compile("[^\t\n -~\xa0-\ud7ff\ue000-\U0010ffff]|[\u2028\u2029\ufeff\ufffe\uffff]")


def frontmatter(raw: bytes) -> Message:
    """Return the frontmatter of a SKILL.md; SkillError, with the line, for what cannot be read."""
    text = raw[:MAX_HEADER].decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    found = re.match(r"--- *\n(.*?)^--- *$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SkillError(f"it does not begin with frontmatter: a line ---, at most {MAX_HEADER} "
                         "bytes of YAML, a line ---")
    odd = _ODD.search(found[1].replace("\ufffd", "\uffff"))
    if odd:
        line = found[1].count("\n", 0, odd.start()) + 2
        raise SkillError(f"line {line}: a character that does not print, or is not UTF-8")
    return _Yaml(found[1]).read()


class _Yaml:
    """Reads a text from its first line to its last: a method for each way to write a value.

    `lines`: what there is to read; `at`: the next of them; `row`: the one that errors are about.
    `parent` is always the indent of the mapping or list that a value belongs to: the lines of the
    value are indented deeper, and that is how its end is found.
    """

    def __init__(self, text: str) -> None:
        self.lines, self.at, self.row, self.level = text.split("\n")[:-1], 0, 0, 0

    def read(self) -> Message:
        """Return the mapping that it all is."""
        value = self._block(-1)
        if self._peek()[0] >= 0:
            raise self._error("this belongs to nothing above it")
        if not isinstance(value, dict):
            raise self._error("frontmatter is a mapping, lines of 'key: value'")
        return value

    def _error(self, problem: str) -> SkillError:
        return SkillError(f"line {self.row + 2}: {problem}")

    def _indent(self, row: int) -> int:
        """Return the indent of a line; -1 for one with nothing but spaces."""
        line = self.lines[row]
        if "\t" in line or re.match(r"(?:---|\.\.\.)(?: |$)", line):
            self.row = row
            raise self._error("a tab; write spaces" if "\t" in line else "only one document")
        content = line.lstrip(" ")
        return len(line) - len(content) if content else -1

    def _peek(self) -> tuple[int, str]:
        """Go to the next line that says something; return its indent, and the rest. -1: the end."""
        while self.at < len(self.lines):
            self.row = self.at
            content = self.lines[self.at].strip(" ")
            if content and content[0] != "#":
                return self._indent(self.at), content
            self.at += 1
        return -1, ""

    def _descend(self) -> None:
        self.level += 1
        if self.level > MAX_NESTED:
            raise self._error(f"nested deeper than {MAX_NESTED} levels")

    def _block(self, parent: int) -> Any:
        """Read the value that stands on lines of its own; None if there is none."""
        indent, content = self._peek()
        if indent <= parent:
            return None
        self._descend()
        value = self._list(indent) if _is_item(content) else \
            self._mapping(indent) if self._key(content) else self._value(indent, parent)
        self.level -= 1
        return value

    def _list(self, indent: int) -> list[Any]:
        """- one
           - two: what follows a dash is read as if a space stood there instead"""
        items: list[Any] = []
        while True:
            at, content = self._peek()
            if at < indent or at == indent and not _is_item(content):
                return items
            if at > indent:
                raise self._error("not indented like its neighbours")
            self.lines[self.at] = " " * (indent + 1) + content[1:]
            items.append(self._block(indent))

    def _mapping(self, indent: int) -> Message:
        """one: value
           two: value"""
        found: Message = {}
        while True:
            at, content = self._peek()
            if at < indent:
                return found
            key = self._key(content) if at == indent else None
            if key is None:
                raise self._error("no 'key: value'" if at == indent else
                                  "not indented like its neighbours")
            name, column = key
            self._add(found, name)
            found[name] = self._value(indent + column, indent, True)

    def _add(self, found: Message, key: Any) -> None:
        if not isinstance(key, str) or key in ("", "<<"):
            raise self._error(f"the key {shown(key)} is no text; put it in quotes")
        if key in found:
            raise self._error(f"the key {shown(key)} comes twice")
        found[key] = None

    def _key(self, content: str) -> tuple[Any, int] | None:
        """Split 'key: value': return the key, and the column of the rest; None if it is no such."""
        if content[0] in _QUOTED:
            quoted = _QUOTED[content[0]].match(content)
            colon = quoted and re.compile(" *:(?= |$)").match(content, quoted.end())
            return (self._unquoted(quoted[0]), colon.end()) if quoted and colon else None
        colon = re.search(":(?= |$)", content)
        if colon is None or content[0] in "[{" or " #" in content[:colon.start()]:
            return None
        return self._scalar(content[:colon.start()].rstrip(" ")), colon.end()

    def _value(self, column: int, parent: int, of_key: bool = False) -> Any:
        """Read a value that begins in this line, and take all lines that are its own; or else one
        that stands below."""
        rows = [self.lines[self.at][column:].strip(" ")]
        mark = rows[0][:1]
        if mark in ("|", ">"):
            return self._literal(rows[0], parent)
        self.at += 1
        if mark in ("", "#"):
            indent, content = self._peek()
            same = of_key and indent == parent and _is_item(content)    # there it may stand, too
            return self._list(indent) if same else self._block(parent)
        first = self.row
        while self.at < len(self.lines):
            indent, row = self._indent(self.at), self.lines[self.at].strip(" ")
            closes = indent == parent and re.fullmatch(r"[\]}](?: +#.*)?", row)     # often seen
            if 0 <= indent <= parent and not (closes and mark in ("[", "{")):
                break
            rows.append(row)
            self.at += 1
        self.row = first
        if mark not in ("'", '"', "[", "{"):
            return self._plain(rows)
        text = "\n".join(rows)
        value, end = self._flow(text, 0)
        if not _NOTHING.fullmatch(text, end):
            raise self._error("something follows a value that is complete")
        return value

    def _plain(self, rows: list[str]) -> Any:
        """Read text without quotes, as far as the first comment."""
        pieces: list[str] = []
        for row in rows:
            piece, comment, _ = (" " * bool(pieces) + row).partition(" #")
            pieces.append(piece.strip(" "))
            if re.search(":( |$)", pieces[-1]) or _is_item(pieces[-1]):
                raise self._error("': ' or '- ' within text; put the text in quotes")
            if comment:
                break
        if any(row[:1] not in ("", "#") for row in rows[len(pieces):]):
            raise self._error("text goes on after a comment")
        while not pieces[-1]:
            pieces.pop()
        return self._scalar(_folded(pieces))

    def _scalar(self, text: str, unsafe: str = " ") -> Any:
        """Return what plain text stands for. YAML 1.2 §10.3.2 Tag Resolution, the core schema."""
        if not text or text[0] in ",[]{}#&*!|>'\"%@`" or \
                text[0] in "-?:" and text[1:2] in ("", "\n", *unsafe):
            raise self._error(f"no text begins with {text[0]!r} (there are no anchors, aliases and "
                              "tags); put it in quotes" if text else "a key or value is missing")
        if text in _NAMED:
            return _NAMED[text]
        for pattern, base in _WHOLE if len(text) <= 40 else ():
            if re.fullmatch(pattern, text):
                return int(text, base)
        if not _FLOAT.fullmatch(text) and not _NO_JSON.fullmatch(text):
            return text
        if len(text) > 40 or _NO_JSON.fullmatch(text) or abs(float(text)) == float("inf"):
            raise self._error(f"{shown(text)} is no number for JSON; put it in quotes")
        return float(text)

    def _literal(self, header: str, parent: int) -> str:
        """Read the lines below | (as they are) or > (as one). + keeps all newlines at the end, -
        none; else it is one."""
        style = re.fullmatch(r"([|>])([+-]?)(?: +#.*)?", header)
        if style is None:
            raise self._error("after | or > comes + or -, or a comment, or nothing")
        self.at += 1
        deep, first = 0, self.at        # deep: the indent of the first line with text on it
        while self.at < len(self.lines):
            line = self.lines[self.at]
            text = line.strip(" ")
            if text and not deep:
                deep = len(line) - len(line.lstrip(" "))
                if deep > parent and any(len(blank) > deep for blank in self.lines[first:self.at]):
                    raise self._error("an empty line has more spaces than the text below it")
            if text and (deep <= parent or line[:deep].strip(" ")):
                break
            self.at += 1
        deep = deep if deep > parent else sys.maxsize       # then there are empty lines only
        body = [line[deep:] for line in self.lines[first:self.at]]
        end = len(body)
        while end and not body[end - 1]:
            end -= 1
        text = "\n".join(body[:end]) if style[1] == "|" else _joined(body[:end])
        return text + {"-": "", "": "\n"[:end], "+": "\n" * (len(body) - end + (end > 0))}[style[2]]

    def _flow(self, text: str, at: int) -> tuple[Any, int]:
        """Read what is in quotes, brackets or braces, or text within; return where it ends, too."""
        mark = text[at:at + 1]
        if mark in _QUOTED:
            found = _QUOTED[mark].match(text, at)
            if found is None:
                raise self._error("a quote is not closed")
            return self._unquoted(found[0]), found.end()
        if mark not in ("[", "{"):
            found = _IN_FLOW.match(text, at)
            plain = found[0].strip(" ") if found else ""
            return self._scalar(plain, " ,[]{}"), at + len(found[0] if found else "")
        self._descend()
        items: list[Any] = []
        pairs: Message = {}
        at = _skip(text, at + 1)
        while text[at:at + 1] != ("]" if mark == "[" else "}"):
            item, at = self._flow(text, at)
            at = _skip(text, at)
            if mark == "{":
                self._add(pairs, item)
                if text[at:at + 1] != ":":
                    raise self._error("':' belongs after each key in { }")
                at = _skip(text, at + 1)
                if text[at:at + 1] not in (",", "}"):
                    pairs[item], at = self._flow(text, at)
                    at = _skip(text, at)
            items.append(item)
            if text[at:at + 1] not in (",", "]" if mark == "[" else "}"):
                raise self._error("',' belongs between what is in brackets, and one closes them")
            at = _skip(text, at + 1) if text[at] == "," else at
        self.level -= 1
        return items if mark == "[" else pairs, at + 1

    def _unquoted(self, quoted: str) -> str:
        """Return what a text in quotes stands for."""
        pieces = quoted[1:-1].split("\n")
        for row in range(len(pieces) - 1):              # spaces around a line break do not count
            pieces[row], pieces[row + 1] = pieces[row].rstrip(" "), pieces[row + 1].lstrip(" ")
        if quoted[0] == "'":
            return _folded(pieces).replace("''", "'")
        if any(re.search(r"(?<!\\)(?:\\\\)*\\$", piece) for piece in pieces):
            raise self._error("a line within quotes ends in a backslash")
        return _ESCAPED.sub(self._unescaped, _folded(pieces))

    def _unescaped(self, found: re.Match[str]) -> str:
        number = int(found[1][1:] or "0", 16)
        if len(found[1]) > 1 and number < 0x110000 and not 0xd800 <= number < 0xe000:
            return chr(number)
        if found[1] not in _ESCAPES:
            raise self._error(f"{found[0]} is no character")
        return _ESCAPES[found[1]]


def _is_item(content: str) -> bool:
    return content[:2] in ("-", "- ")


def _skip(text: str, at: int) -> int:
    while text[at:at + 1] in (" ", "\n"):
        at += 1
    return at


def _folded(pieces: list[str]) -> str:
    """Join the lines of a text: one newline is a space, each empty line a newline."""
    text, empty = pieces[0], 0
    for row, piece in enumerate(pieces[1:], 2):
        if piece or row == len(pieces):
            text, empty = text + ("\n" * empty or " ") + piece, 0
        else:
            empty += 1
    return text


def _joined(body: list[str]) -> str:
    """Join lines as > does: those that are indented deeper keep their newlines."""
    text, before, empty = "", "", 0
    for line in body:
        if not line:
            empty += 1
            continue
        loose = before != "" and (line[0] in " \t" or before[0] in " \t")
        text += "\n" * (empty + loose) or " " * (before != "")
        text, before, empty = text + line, line, 0
    return text


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal: 1 and 1.0 are one number, true is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def check_limits(files: int, size: int) -> None:
    """Raise SkillError for a skill that is too large: ext-skills §Limits."""
    if files > MAX_FILES or size > MAX_BYTES:
        raise SkillError(f"it is too large: {files} files, {size} bytes, where a skill has at most "
                         f"{MAX_FILES} and {MAX_BYTES}")


def check_header(header: Any, folder: str) -> None:
    """Raise SkillError unless name and description are what agentskills §Frontmatter wants."""
    name, text = (header.get("name"), header.get("description")) if isinstance(header, dict) \
        else (None, None)
    if not isinstance(name, str) or not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) \
            or len(name) > 64:
        raise SkillError(f"the name is 1 to 64 of a-z, 0-9 and single hyphens, not {shown(name)}")
    if name != folder:                  # ext-skills §Resource Mapping, §Frontmatter
        raise SkillError(f"the name is {name!r}, and the folder's {shown(folder)}")
    if not isinstance(text, str) or not text.strip() or len(text) > 1024:
        raise SkillError("the description is a text of 1 to 1024 characters"
                         + (f", and not of {len(text)}" if isinstance(text, str) else ""))


# ---- the server: folders

_READ = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"):      # a pipe must not block
    _READ |= getattr(os, _flag, 0)
BY_FOLDER = {os.open, os.stat} <= os.supports_dir_fd and os.scandir in os.supports_fd


class Root(NamedTuple):
    """A folder given to serve_skills(). `top`: (its name,) if it is a skill itself, else ()."""
    path: str
    top: Parts


class Seen:
    """What lay in the folder of a skill when it was looked at; `fault`: why it cannot be served."""

    def __init__(self, root: Root, at: Parts, fault: str = "") -> None:
        self.root, self.at, self.fault = root, at, fault
        self.files: dict[Parts, os.stat_result] = {}
        self.folders: list[Parts] = []


def _status(place: int | str, name: str) -> os.stat_result:
    """Return the status of a name in an open folder; of a link its own."""
    return os.lstat(os.path.join(place, name)) if isinstance(place, str) else \
        os.stat(name, dir_fd=place, follow_symlinks=False)


def _is(kind: Callable[[int], bool], status: os.stat_result) -> bool:
    """Tell whether it is a file, or a folder. (Junctions of Windows look like folders.)"""
    return kind(status.st_mode) and not getattr(status, "st_reparse_tag", 0) & 0x20000000


@contextlib.contextmanager
def _entered(place: int | str, name: str) -> Iterator[int | str]:
    """Open a folder in an open folder. Where folders cannot be opened, its path stands for it."""
    if isinstance(place, str):
        if not _is(stat.S_ISDIR, _status(place, name)):
            raise OSError(errno.ENOTDIR, "it is no folder")
        yield os.path.join(place, name)
        return
    inner = os.open(name, _READ | os.O_DIRECTORY, dir_fd=place)
    try:
        yield inner
    finally:
        os.close(inner)


@contextlib.contextmanager
def _opened(root: Root, parts: Parts, exactly: bool = False) -> Iterator[int | str]:
    """Open a folder below a root. `exactly`: a client named it, so see that it is so called.

    Some file systems find "skill" by the name "SKILL", and "abcdefgh" by "ABCDEF~1".
    """
    with contextlib.ExitStack() as folders:
        place: int | str = root.path
        if BY_FOLDER:
            place = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
            folders.callback(os.close, place)
        for name in parts[len(root.top):]:
            if exactly and (name[0] == "." or name not in os.listdir(place)):
                raise OSError(errno.ENOENT, "it is not there")
            place = folders.enter_context(_entered(place, name))
        yield place


def _walk(root: Root, place: int | str, here: Parts,
          inside: tuple[Seen, ...] = ()) -> Iterator[Seen]:
    """Look at an open folder and at those below; yield each skill, when all of it was seen.

    `inside`: the skills that this folder is in, outermost first: what is in a nested skill is in
    the enclosing one, too. (ext-skills §Nested Skills, §Resources)
    """
    found = [Seen(root, here)] if here and _is_skill(place) else []
    inside = (*inside, *found)
    with os.scandir(place) as items:
        visible = (one.name for one in items if one.name[0] != ".")
        names = sorted(itertools.islice(visible, MAX_SEEN if inside else None))
    for name in names:
        parts, fault = (*here, name), ""
        try:
            status = _status(place, name)
            if not _is_plain(name):
                fault = "has a name that is not safe in a URI"
            elif inside and len(inside[0].files) + len(inside[0].folders) >= MAX_SEEN - 1:
                fault = f"is one of {MAX_SEEN} files and folders or more"
            elif _is(stat.S_ISREG, status):
                for one in inside:
                    one.files[parts] = status
            elif _is(stat.S_ISDIR, status) and len(parts) <= MAX_DEPTH:
                for one in inside:
                    one.folders.append(parts)
                with _entered(place, name) as inner:
                    yield from _walk(root, inner, parts, inside)
            else:
                fault = "is a link; links are not followed" if stat.S_ISLNK(status.st_mode) else \
                    f"is no file and no folder, or in more than {MAX_DEPTH} others"
        except FileNotFoundError:           # it was there a moment ago
            continue
        except OSError as problem:
            fault = f"cannot be read: {problem.strerror}"
        for one in inside if fault else ():
            one.fault = one.fault or f"{uri_of(parts)} {fault}"
        if fault and not inside:
            yield Seen(root, parts, fault)
    yield from found


def _is_skill(place: int | str) -> bool:
    try:
        return bool(_status(place, SKILL))
    except OSError:
        return False


def _read(root: Root, parts: Parts) -> tuple[bytes, os.stat_result]:
    """Read a plain file: its bytes, and its status just before."""
    with _opened(root, parts[:-1]) as place:
        seen = _status(place, parts[-1])        # looked at first: opening a device can do harm
        if not _is(stat.S_ISREG, seen):
            raise OSError(errno.EINVAL, "it is no plain file")
        number = os.open(os.path.join(place, parts[-1]), _READ) if isinstance(place, str) else \
            os.open(parts[-1], _READ, dir_fd=place)
        try:
            before = os.fstat(number)
            if not _is(stat.S_ISREG, before) or \
                    isinstance(place, str) and not os.path.samestat(seen, before):
                raise OSError(errno.EINVAL, "it was replaced")
            with open(number, "rb", closefd=False) as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:            # rather nothing than a part
                raise OSError(errno.EFBIG, "it is too large")
            return raw, before
        finally:
            os.close(number)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# ---- the server: entries and methods

TYPES = mimetypes.MimeTypes()       # Python's own, so that all machines say the same ...
TYPES.add_type("text/markdown", ".md")      # ... and this, which it has not had from the start


class Sum(NamedTuple):
    """What a file was when it was read, and how to see whether it still is."""
    stamp: tuple[int, ...]
    digest: str
    size: int
    header: Any         # of a SKILL.md: its frontmatter, or the SkillError


class Shelf:
    """The skills that a server serves: what serve_skills() returns. For any thread.

    `refused`: why skills that are there are not served, by the URI of the folder. Every answer is
    about the files as they are when it is made. Call refresh() after changes, or now and then, and
    the clients that subscribed hear of it; nobody watches the folders.
    """

    def __init__(self, server: Server, folders: tuple[Any, ...]) -> None:
        self.server = server
        self.refused: dict[str, str] = {}
        self.roots = []
        for path in map(os.path.abspath, folders):
            if not os.path.isdir(path):
                raise ValueError(f"{path} is no folder")
            is_skill = os.path.lexists(os.path.join(path, SKILL))
            self.roots.append(Root(path, (os.path.basename(path),) if is_skill else ()))
        self._sums: dict[tuple[str, Parts], Sum] = {}
        self._listed: dict[str, Message] = {}   # entries by URI, as of the last refresh()
        self._lock = threading.Lock()           # guards _listed, and what resources/list has of it

    def refresh(self) -> list[Message]:
        """Look at all folders; return the entries, by URI; bring resources/list up to date."""
        entries: dict[str, Message] = {}
        refused: dict[str, str] = {}
        for root in self.roots:
            try:
                with _opened(root, root.top) as place:
                    for seen in _walk(root, place, root.top):
                        self._take(seen, entries, refused)
            except OSError as problem:
                refused[root.path] = f"the folder cannot be read: {problem.strerror}"
        with self._lock:
            before, self._listed = self._listed, entries
            news = [uri for uri in refused if refused[uri] != self.refused.get(uri)]
            self.refused = refused
            changed = [uri for uri in sorted({**before, **entries}) if before.get(uri, {}).get(
                "frontmatter") != entries.get(uri, {}).get("frontmatter")]
            for uri in changed:
                self.server.resources.pop(uri, None)
                if uri in entries:
                    self._register(uri, entries[uri]["frontmatter"])
        for uri in news:
            note(f"{uri} is not served: {refused[uri]}")
        if changed:
            self.server.changed("resources")
        return [entries[uri] for uri in sorted(entries)]

    def _take(self, seen: Seen, entries: dict[str, Message], refused: dict[str, str]) -> None:
        try:
            entry = self._entry(seen)
            if entry["uri"] in entries:
                raise SkillError(f"another folder has it, too: not the one in {seen.root.path}")
            entries[entry["uri"]] = entry
        except SkillError as problem:
            refused[uri_of(seen.at)] = str(problem)

    def _register(self, uri: str, header: Message) -> None:
        """Have resources/list list a SKILL.md: ext-skills §Resource Metadata."""
        self.server.resource(uri, name=header["name"], description=header["description"],
                             mime_type="text/markdown")(lambda: self.contents(uri))

    def _entry(self, seen: Seen) -> Message:
        """Make the entry of a skill: ext-skills §Skill Entries. SkillError: it is not served."""
        main = (*seen.at, SKILL)
        if seen.fault or main not in seen.files:
            raise SkillError(seen.fault or f"there is no file {SKILL}")
        check_limits(len(seen.files), sum(status.st_size for status in seen.files.values()))
        sums = {parts: self._sum(seen.root, parts, seen.files[parts])
                for parts in sorted(seen.files, key=lambda parts: (parts != main, parts))}
        check_limits(len(sums), sum(one.size for one in sums.values()))
        header = sums[main].header
        if isinstance(header, SkillError):
            raise SkillError(f"{SKILL}, {header}")
        check_header(header, seen.at[-1])
        return {"uri": uri_of(main), "frontmatter": header, "resources": [
            {"uri": uri_of(parts), "digest": one.digest, "size": one.size}
            for parts, one in sums.items()]}

    def _sum(self, root: Root, parts: Parts, status: os.stat_result) -> Sum:
        """Return the digest of a file's bytes, read now unless it cannot have changed since."""
        known = self._sums.get((root.path, parts))
        if known is not None and known.stamp == _stamp(status):
            return known
        try:
            raw, status = _read(root, parts)
        except OSError as problem:
            raise SkillError(f"{uri_of(parts)} cannot be read: {problem.strerror}") from None
        header: Any = None
        if parts[-1] == SKILL:
            try:
                header = frontmatter(raw)
            except SkillError as problem:
                header = problem
        known = Sum(_stamp(status), "sha256:" + hashlib.sha256(raw).hexdigest(), len(raw), header)
        # Clocks of file systems are coarse: a second change within the same tick leaves no trace.
        if time.time() - max(status.st_mtime, status.st_ctime) > SETTLED:
            if len(self._sums) >= MAX_KNOWN:
                self._sums.clear()
            self._sums[root.path, parts] = known
        return known

    def _look(self, at: Parts) -> tuple[Seen, Message]:
        """Look at the skill in one folder: what is there, and its entry. SkillError: none."""
        for root in self.roots:
            if at[:len(root.top)] == root.top:
                with contextlib.suppress(OSError, SkillError), _opened(root, at, True) as place:
                    for seen in _walk(root, place, at) if _is_skill(place) else ():
                        if seen.at == at:
                            return seen, self._entry(seen)
        raise SkillError("there is none")

    def _enclosing(self, parts: Parts) -> Iterator[Seen]:
        """Look at the skills that a place is in, outermost first, as far as they are served."""
        for end in range(1, min(len(parts), MAX_DEPTH) + 1):
            with contextlib.suppress(SkillError):
                yield self._look(parts[:end])[0]

    def list_skills(self, params: Message) -> Message:
        """skills/list: ext-skills §Listing Skills."""
        return {**self._page("skills", self.refresh(), params, 20), **self.server.hints}

    def get_skill(self, params: Message) -> Message:
        """skills/get: ext-skills §Getting a Skill."""
        parts = _asked(params.get("uri"))
        if parts[1:] and parts[-1] == SKILL:
            with contextlib.suppress(SkillError):
                return {"skill": self._look(parts[:-1])[1], **self.server.hints}
        raise RpcError(INVALID_PARAMS, f"No skill is served at {shown(params.get('uri'))}")

    def contents(self, uri: str) -> Message:
        """resources/read: ext-skills §Reading Skill Content. What no manifest has is not found."""
        parts = _asked(uri)
        for seen in self._enclosing(parts[:-1]):
            if parts in seen.files:
                with contextlib.suppress(OSError):
                    return _contents(uri, parts, _read(seen.root, parts)[0])
        raise NotFound

    def read_directory(self, params: Message) -> Message:
        """resources/directory/read: ext-skills §Reading Directories."""
        parts = _asked(params.get("uri"))
        children = self._children(parts) if parts else None
        if children is None:
            raise RpcError(INVALID_PARAMS, f"{shown(params.get('uri'))} is no directory resource")
        return self._page("resources", children, params, 500)

    def _children(self, parts: Parts) -> list[Message] | None:
        for seen in self._enclosing(parts):
            if parts == seen.at or parts in seen.folders:
                found = [self._resource(one, status.st_size) for one, status in seen.files.items()
                         if one[:-1] == parts]
                found += [_folder(one) for one in seen.folders if one[:-1] == parts]
                return sorted(found, key=lambda child: str(child["uri"]))
        below = uri_of(parts) + "/"                 # a folder that has skills in it, and is none
        names = {entry["uri"][len(below):].split("/")[0] for entry in self.refresh()
                 if entry["uri"].startswith(below)}
        return [_folder((*parts, unquote(name))) for name in sorted(names)] or None

    def _resource(self, parts: Parts, size: int) -> Message:
        """Describe a file as resources/list does, if it does."""
        entry = self.server.resources.get(uri_of(parts))
        return {"uri": uri_of(parts), "name": parts[-1], **_type_of(parts), "size": size,
                **(entry.definition if entry else {})}

    def _page(self, member: str, items: list[Message], params: Message, size: int) -> Message:
        """Cut a page of what is sorted by URI. The cursor is the last URI: it survives changes."""
        cursor = params.get("cursor")
        if cursor is not None and not _asked(cursor):
            raise RpcError(INVALID_PARAMS, "The cursor is not one of this list; start again")
        rest = [item for item in items if cursor is None or item["uri"] > cursor]
        size = min(self.server.page_size or size, size)
        return {member: rest[:size],
                **({"nextCursor": rest[size - 1]["uri"]} if rest[size:] else {})}


def _asked(uri: Any) -> Parts:
    """Return the parts of a URI from a client, () unless we write it just so: a file has one URI,
    and no trick of escaping leads to another."""
    with contextlib.suppress(SkillError):
        parts = parts_of(uri) if isinstance(uri, str) else ()
        return parts if parts and uri_of(parts) == uri else ()
    return ()


def _folder(parts: Parts) -> Message:
    return {"uri": uri_of(parts), "name": parts[-1], "mimeType": "inode/directory"}


def _type_of(parts: Parts) -> Message:
    kind, coding = TYPES.guess_type(parts[-1])
    return {"mimeType": kind} if kind and not coding else {}


def _contents(uri: str, parts: Parts, raw: bytes) -> Message:
    """Make contents: text if it is UTF-8, for then the same bytes come out at the other end."""
    with contextlib.suppress(UnicodeDecodeError):
        text = raw.decode("utf-8")
        if 6 * len(raw) < MAX_MESSAGE or len(json.dumps(text)) < MAX_MESSAGE - 2**16:
            return {"uri": uri, **_type_of(parts), "text": text}
    return {"uri": uri, **_type_of(parts), "blob": raw}


def serve_skills(server: Server, *folders: Any) -> Shelf:
    """Serve each skill that is in a folder, or below: declare the extension, register the rest.

    A skill's path is that of its folder from there on: acme/billing/refunds. A folder that has a
    SKILL.md itself is one skill, and its path its name. ValueError for what is no folder.
    """
    shelf = Shelf(server, folders)
    settings = {"directoryRead": True}      # ext-skills §Capability Negotiation
    server.method("skills/list", extension=EXTENSION, settings=settings)(shelf.list_skills)
    server.method("skills/get", extension=EXTENSION)(shelf.get_skill)
    server.method("resources/directory/read", extension=EXTENSION)(shelf.read_directory)

    @server.resource("skill://{+path}", name="skill-file")
    def skill_file(path: str, ctx: Context) -> Message:
        """A file of a skill."""
        return shelf.contents(ctx.params["uri"])
    shelf.refresh()
    return shelf


# ---- the host

class File(NamedTuple):
    """A line of a manifest."""
    uri: str
    digest: str
    size: int


class Skill:
    """What an entry says of a skill of one server: nothing was fetched. SkillError: it is invalid.

    Its identity is `label` and `uri`, never one alone (ext-skills §Skill URIs). `path`: the URI
    without scheme and SKILL.md; `files`, by path in the folder; None: the skill is dynamic.
    `frontmatter` is what a server wrote and no more: fields that ask for rights, allowed-tools for
    one, are the user's to grant, and nothing here does (ext-skills §Security Considerations).
    """

    def __init__(self, label: str, entry: Any) -> None:
        entry = entry if isinstance(entry, dict) else {}
        uri, header, resources = (entry.get(key) for key in ("uri", "frontmatter", "resources"))
        if not isinstance(uri, str) or not uri.endswith("/" + SKILL):
            raise SkillError(f"the uri of an entry ends in /{SKILL}")
        at = parts_of(uri)[:-1]
        check_header(header, at[-1] if at else "")
        self.label, self.uri, self.path = label, uri, "/".join(at)
        self.root = uri[:-len("/" + SKILL)]
        self.frontmatter: Message = header
        self.name, self.description = header["name"], header["description"]
        self.files = None if resources == "dynamic" else self._files(resources, len(at))
        self.digests = None if self.files is None else {    # what an approval is bound to
            file.uri: file.digest for file in self.files.values()}

    def _files(self, resources: Any, depth: int) -> dict[Parts, File]:
        """Check a manifest: ext-skills §Resources."""
        if not isinstance(resources, list):
            raise SkillError('resources is neither an array nor "dynamic"')
        check_limits(len(resources), 0)
        files: dict[Parts, File] = {}
        for one in resources:
            one = one if isinstance(one, dict) else {}
            file = File(one.get("uri", ""), one.get("digest", ""), one.get("size", -1))
            where = shown(file.uri)
            if not isinstance(file.uri, str) or not file.uri.startswith(self.root + "/"):
                raise SkillError(f"{where} is not in the skill's folder")
            if not re.fullmatch("sha256:[0-9a-f]{64}", str(file.digest)):
                raise SkillError(f"{where} has no digest: sha256: and 64 hexadecimal digits")
            if type(file.size) is not int or file.size < 0:
                raise SkillError(f"{where} has no size")
            parts = parts_of(file.uri)[depth:]
            if parts in files:
                raise SkillError(f"{where} is there twice")
            files[parts] = file
        if (SKILL,) not in files or files[SKILL,].uri != self.uri:
            raise SkillError(f"resources lacks {SKILL}")
        check_limits(len(files), sum(file.size for file in files.values()))
        return files


class Skills:
    """The skills of one server, as a host uses them. From one thread at a time.

    `label` is the host's own name for the server; what the server calls itself proves nothing.
    `approve(skill, before)` asks the user, and returns True or False: called when a skill is to be
    loaded whose set of files is not approved; `before`: the set that was, by URI, or None.
    `approvals`, to be kept as JSON if they shall last: {label: {uri: {uri of a file: digest}}}.
    `dynamic`: load skills, too, that cannot be verified, or approved for more than once.

    `registry` has the skills by URI, `refused` says why entries were left out. Verified files are
    kept, in memory alone.
    """

    def __init__(self, client: Client, label: str, approve: Callable[[Skill, Any], bool], *,
                 approvals: dict[str, dict[str, dict[str, str]]] | None = None,
                 dynamic: bool = False) -> None:
        if not re.fullmatch("[A-Za-z0-9_.-]{1,64}", label):
            raise ValueError(f"{label!r}: a label is 1 to 64 letters, digits, _, - and .")
        # ext-skills §Limits: a host supports them, so a message may be as large as such a file.
        mcp_ref.MAX_MESSAGE_BYTES = max(mcp_ref.MAX_MESSAGE_BYTES, MAX_MESSAGE)
        self.client, self.label, self.approve, self.dynamic = client, label, approve, dynamic
        self.approvals = {} if approvals is None else approvals
        self.registry: dict[str, Skill] = {}
        self.refused: dict[str, str] = {}
        self._before: dict[str, dict[str, str]] = {}        # sets that are approved no more
        self._cached: dict[tuple[str, str], bytes] = {}     # by URI and digest

    # ---- what there is

    def settings(self) -> Message:
        """Return what the server declared of the extension; ServerLacks if it did not."""
        self.client.open()
        declared = self.client.capabilities.get("extensions")
        settings = declared.get(EXTENSION) if isinstance(declared, dict) else None
        if not isinstance(settings, dict):
            raise ServerLacks(f"{self.label} has no skills: it does not declare {EXTENSION}")
        return settings

    def list_skills(self) -> list[Skill]:
        """Ask for all entries, and for nothing else: ext-skills §Lazy Retrieval.

        A skill that is not among them may be there all the same: see get_skill() and load().
        """
        self.settings()
        found: dict[str, Skill] = {}
        refused: dict[str, str] = {}
        for number, entry in enumerate(self._pages("skills/list", "skills", {})):
            uri = str(entry.get("uri")) if isinstance(entry, dict) else f"entry {number}"
            try:
                skill = Skill(self.label, entry)
                if uri in found or uri in refused:
                    raise SkillError("there are several entries for it")
                found[uri] = skill
            except SkillError as problem:
                refused[uri] = str(problem)
                found.pop(uri, None)            # of two that contradict each other, neither
        self.registry, self.refused = {}, refused
        for skill in found.values():
            self._take(skill)
        return list(found.values())

    def get_skill(self, uri: str) -> Skill:
        """Ask for the entry of one skill, as it is now; RpcError if the server has none such."""
        self.settings()
        skill = Skill(self.label, self.client.request("skills/get", {"uri": uri}).get("skill"))
        if skill.uri != uri:
            raise SkillError(f"asked for {shown(uri)}, {self.label} sent another entry")
        self._take(skill)
        return skill

    def _take(self, skill: Skill) -> None:
        """Note an entry. If its set of files is another, what was approved is approved no more."""
        approved = self.approvals.get(self.label, {})
        if skill.uri in approved and approved[skill.uri] != skill.digests:
            self._before[skill.uri] = approved.pop(skill.uri)
        self.registry[skill.uri] = skill

    def read_directory(self, uri: str) -> list[Message]:
        """Ask what is in a folder now. It adds nothing to what may be read: a manifest does that.

        ext-skills §Directory Reads and the Held Entry
        """
        if self.settings().get("directoryRead") is not True:
            raise ServerLacks(f"{self.label} does not declare directoryRead")
        return list(self._pages("resources/directory/read", "resources", {"uri": uri}))

    def _pages(self, method: str, member: str, params: Message) -> Iterator[Any]:
        size, cursors = 0, set()    # type: int, set[Any]
        for _ in range(MAX_PAGES):
            result = self.client.request(method, params)
            items, cursor = result.get(member), result.get("nextCursor")
            size += len(json.dumps(result))
            if not isinstance(items, list) or not isinstance(cursor, (str, type(None))) \
                    or cursor in cursors or size > MAX_LISTED:
                break
            yield from items
            if cursor is None:
                return
            cursors.add(cursor)
            params = {**params, "cursor": cursor}
        raise Malformed(f"{method}: no {member}, or the pages go round in circles or on for ever")

    # ---- using one

    def load(self, uri: str) -> Acting:
        """Approve, fetch and verify a SKILL.md: there is no other way to act on a skill.

        SkillError: it must not be used. (ext-skills §Reading Skill Content)
        """
        skill = self.registry.get(uri) or self.get_skill(uri)
        if skill.files is None and not self.dynamic:
            raise SkillError(f"{uri} is dynamic: its content cannot be verified")
        if not self.is_approved(skill):
            if not self.approve(skill, self._before.get(uri)):
                raise SkillError(f"{uri} of {self.label} was not approved")
            if skill.digests is not None:
                self.approvals.setdefault(self.label, {})[uri] = skill.digests
                self._before.pop(uri, None)
        return Acting(self, skill)

    def is_approved(self, skill: Skill) -> bool:
        """Tell whether these very files are approved; those of a dynamic skill never are."""
        return skill.digests is not None and \
            self.approvals.get(self.label, {}).get(skill.uri) == skill.digests

    def fetch(self, uri: str, file: File | None) -> bytes:
        """Read a file from the server that the skill is of, and from no other; verify it.

        ext-skills §Verification on Read; a digest says that entry and file agree, and no more.
        """
        if file is not None and (uri, file.digest) in self._cached:
            return self._cached[uri, file.digest]
        contents = self.client.read_resource(uri)
        if len(contents) != 1 or contents[0].get("uri") != uri:
            raise SkillError(f"{uri}: the server sent something else")
        raw = _raw(contents[0])
        if file is not None:
            if len(raw) != file.size:
                raise SkillError(f"{uri} has {len(raw)} bytes, and not {file.size} as its entry "
                                 "says. Has it changed? Ask for the entry again")
            if "sha256:" + hashlib.sha256(raw).hexdigest() != file.digest:
                raise SkillError(f"{uri} has another digest than its entry says. "
                                 "Has it changed? Ask for the entry again")
            self._cached[uri, file.digest] = raw
            while sum(map(len, self._cached.values())) > MAX_CACHED:
                self._cached.pop(next(iter(self._cached)))
        return raw


class Acting:
    """A skill that was loaded: from here to close() the host acts on it, by the entry it holds.

    `text` is SKILL.md. Close it when that has left the model's context, not sooner. Meanwhile calls
    that execute code need the user's approval for this skill: that is for the host to see to.
    (ext-skills §The Acting Window and the Held Entry, §Security Considerations)
    """

    def __init__(self, skills: Skills, skill: Skill) -> None:
        self.skills, self.skill = skills, skill
        self._open, self._fetched = True, 0
        raw = self._fetch((SKILL,))
        try:
            header, entry = frontmatter(raw), skill.frontmatter
            self.text = raw.decode("utf-8")
        except (SkillError, UnicodeDecodeError) as problem:
            raise SkillError(f"{skill.uri}, {problem}") from None
        for key in {**entry, **header}:                 # ext-skills §Frontmatter Verification
            if key not in entry or key not in header or not same(entry[key], header[key]):
                raise SkillError(f"{skill.uri}: entry and file differ in {shown(key)}")

    def read(self, path: str) -> bytes:
        """Return a file of the skill, by its path from the skill's folder, or by its URI."""
        return self._fetch(self._resolve(path))

    def files(self, folder: str = "") -> list[str]:
        """List what the entry has in a folder of the skill; subfolders end in a slash."""
        if self.skill.files is None:
            raise SkillError(f"{self.skill.uri} is dynamic: see read_directory()")
        at = self._resolve(folder.rstrip("/")) if folder else ()
        return sorted({parts[len(at)] + "/" * (len(parts) > len(at) + 1)
                       for parts in self.skill.files if parts[:len(at)] == at != parts})

    def tagged(self, path: str = SKILL) -> str:
        """Return a file for the model, with where it is from. Hosts never leave that out."""
        return '[{}, from the server "{}"]\n{}'.format(
            self._uri(self._resolve(path)), self.skill.label,
            self.read(path).decode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """The text has left the model's context."""
        self._open = False

    def __enter__(self) -> Acting:      # noqa: PYI034  typing.Self is too new
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resolve(self, path: str) -> Parts:
        """Resolve a reference, from the folder of SKILL.md on: ext-skills §Relative References."""
        known, parts = self.skill.files or {}, []   # type: dict[Parts, File], list[str]
        if path.startswith(self.skill.root + "/"):
            return parts_of(path)[len(parts_of(self.skill.uri)) - 1:]
        for name in path.split("/"):
            if name == ".." and parts:
                parts.pop()
            elif name != ".":
                parts.append(name)
        plain, decoded = tuple(parts), tuple(map(unquote, parts))   # as Markdown writes its links
        found = plain if plain in known else decoded
        if not found or not all(map(_is_plain, found)):
            raise SkillError(f"{shown(path)} is no path in {self.skill.uri}")
        return found

    def _uri(self, parts: Parts) -> str:
        file = (self.skill.files or {}).get(parts)
        return file.uri if file else "/".join((self.skill.root, *map(_quoted, parts)))

    def _fetch(self, parts: Parts) -> bytes:
        skill, uri = self.skill, self._uri(parts)
        if not self._open:
            raise SkillError(f"{skill.uri} is not acted on any more")
        if skill.files is not None:
            if not self.skills.is_approved(skill):
                raise SkillError(f"{skill.uri} has changed since it was approved: load it again")
            if parts not in skill.files:
                raise SkillError(f"{uri} is not in the entry of the skill. Has it changed?")
            return self.skills.fetch(uri, skill.files[parts])
        raw = self.skills.fetch(uri, None)
        self._fetched += len(raw)
        check_limits(0, self._fetched)
        return raw


def _raw(contents: Message) -> bytes:
    """Return the bytes that contents stand for: size and digest are about those."""
    text, blob = contents.get("text"), contents.get("blob")
    with contextlib.suppress(ValueError):               # half a character, or no base64
        if isinstance(text, str) and blob is None:
            return text.encode("utf-8")
        if isinstance(blob, str) and text is None:
            return base64.b64decode(blob, validate=True)
    raise SkillError(f"{shown(contents.get('uri'))}: contents are either text or base64")


def named(*servers: Skills) -> dict[str, Skill]:
    """Give each skill of some servers a name of its own: label/name, label/path, or label/URI.

    What two could be meant by is neither's: no skill gets in the way of another, and no server's
    in that of another server's. (ext-skills §Names)
    """
    if len({one.label for one in servers}) < len(servers):
        raise ValueError("each server has a label of its own")
    skills = [skill for one in servers for skill in one.registry.values()]
    names = [[f"{one.label}/{name}" for name in (one.name, one.path, one.uri)] for one in skills]
    taken = collections.Counter(name for some in names for name in set(some))
    return {next(name for name in some if taken[name] == 1): skill
            for some, skill in zip(names, skills)}


def collisions(*servers: Skills) -> dict[str, list[Skill]]:
    """Return the skills that share a name, to be shown: one may pose as the other."""
    found: dict[str, list[Skill]] = {}
    for skill in named(*servers).values():
        found.setdefault(skill.name, []).append(skill)
    return {name: skills for name, skills in found.items() if len(skills) > 1}


# ---- the program

def note(line: str) -> None:
    """Write a line to stderr, with nothing in it that a terminal would act on."""
    with contextlib.suppress(AttributeError, OSError, ValueError):      # there may be none
        sys.stderr.write(f"skills: {ascii(line)[1:-1]}\n")
        sys.stderr.flush()


def _target(words: list[str]) -> Any:
    """Return what connect() takes: a server of a folder's skills, a URL, a command."""
    if len(words) > 1 or not os.path.isdir(words[0]):
        return words[0] if words[0].startswith(("http://", "https://")) else words
    server = Server("skills")
    serve_skills(server, words[0])
    return server


def _show(skills: Skills) -> None:
    """Print what a server offers; what was left out, and why, goes to stderr."""
    skills.list_skills()
    for name, skill in named(skills).items():
        files = (skill.files or {}).values()
        size = f"{len(files)} file{'s' * (len(files) > 1)}, {sum(one.size for one in files)} bytes"
        print(f"{name}  {skill.uri}  {size if files else 'dynamic'}")
        print("    " + " ".join("".join(one if one.isprintable() else " " for one in
                                        skill.description).split()))
    for uri, why in skills.refused.items():
        note(f"{uri} is left out: {why}")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Agent Skills over MCP.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="serve the skills below folders")
    serve.add_argument("folders", nargs="+", metavar="FOLDER")
    serve.add_argument("--http", metavar="[HOST:]PORT", help="over HTTP (default: on stdio)")
    show, load = (verbs.add_parser(verb) for verb in ("list", "load"))
    load.add_argument("uri", metavar="URI")
    load.add_argument("--file", default=SKILL, metavar="PATH", help="a file of the skill")
    for verb in (show, load):
        verb.add_argument("target", nargs="+", metavar="TARGET", help="folder, URL, or -- COMMAND")
    options = parser.parse_args()
    try:
        if options.verb == "serve":
            server = Server("skills", "1.0", "This server has skills: see skills/list.")
            serve_skills(server, *options.folders)
            server.run(["--http", options.http] if options.http else [])
            return
        with connect(_target(options.target)) as client:
            # Whoever types the command approves of what it names.
            skills = Skills(client, "here", lambda skill, before: True, dynamic=True)
            if options.verb == "list":
                _show(skills)
            else:
                print(skills.load(options.uri).tagged(options.file), end="")
    except (SkillError, RpcError, ServerLacks, Malformed, ValueError, OSError) as problem:
        parser.exit(1, f"skills: {problem}\n")


if __name__ == "__main__":
    main()
