#!/usr/bin/env python3
"""Print mcp_ref.py without the parts that you do not need: `cut.py PART ... > my/mcp_ref.py`.

In the module, lines `# >8 PART` and `# 8< PART` enclose what can be left out; this takes it out, and
says so in the first lines of the copy. The parts:

    server      a server, of any kind; `http` and `cli` go with it
    http        a server over HTTP
    client      connect(), and all that belongs to it; `cli` goes with it
    cli         the command line
    legacy      all revisions before the newest era

So a server on stdio and nothing else has less than half of the lines:

    $ python3 examples/cut.py http client | sed -n 3p
    # A copy without: cli, client, http.
"""
from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

PARTS = {"server": ["http", "cli"], "http": [], "client": ["cli"], "cli": [], "legacy": []}
SOURCE = Path(__file__).resolve().parent.parent / "mcp_ref.py"


def cut(source: str, parts: list[str]) -> str:
    """Return the source without these parts."""
    for part in parts:
        source = re.sub(rf"(?ms)^ *# >8 {part}\n.*?^ *# 8< {part}\n", "", source)
    source = re.sub(r"(?m)^ *# (>8|8<) \w+\n", "", source)
    left = {getattr(node, "name", "") for node in ast.parse(source).body} | {
        word for word in re.findall(r"(?m)^(\w+)(?::.*)? = ", source)}
    listed = re.search(r"(?s)__all__ = \[(.*?)\n\]", source)[1]
    names = [name for name in re.findall(r'"(\w+)"', listed) if name in left]
    source = source.replace(listed, "\n    " + ",\n    ".join(f'"{name}"' for name in names) + ",")
    return source.replace("# Copyright", f"# A copy without: {', '.join(parts)}.\n# Copyright", 1)


def main(words: list[str]) -> None:
    parts = sorted({part for word in words for part in (word, *PARTS.get(word, ()))})
    if not parts or not PARTS.keys() >= set(parts):
        raise SystemExit(__doc__)
    print(cut(SOURCE.read_text(encoding="utf-8"), parts), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
