#!/usr/bin/env python3
"""Name the vectors as the official conformance suite names checks.

    checks.py                        its checks, each with the vectors that correspond
    checks.py stdio                  a check for each vector that is played on stdio
    checks.py NUMBER DIR [PAGE...]   sep-NUMBER.yaml, in the form of src/seps there

A vector that corresponds to no check of the suite has its own id as a check, after
`stdio-` or `sep-NUMBER-`. The rows of a SEP are the vectors whose checks name it, and
all rules of each PAGE, such as basic/transports/stdio; a rule that no vector shows is
excluded. DIR is a checkout of the specification, from which the sentences come.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1])]

import report
import spec
from patterns import Json

FOLDER = Path(__file__).resolve().parents[1]
SITE = "https://modelcontextprotocol.io/specification"
UNSEEN = "no vector shows it: it cannot be seen on the wire, or is not covered yet"


def read_all() -> list[Json]:
    """Read the vectors for servers and for clients."""
    paths = [
        one for one in sorted(FOLDER.rglob("*.json")) if one.parent.name != "suite"
    ]
    files = [report.read_file(one) for one in paths if one.stem != "schema"]
    return [vector for vectors in files for vector in vectors]


def check_of(vector: Json, prefix: str) -> str:
    """Name the check of a vector: the suite's, or one in its form."""
    checks, name = vector.get("checks", []), str(vector["id"])
    if prefix.startswith("sep-"):
        checks = [one for one in checks if one.startswith(prefix)]
    own = name if name.startswith(prefix) else prefix + name
    return str([*checks, own][0])


def row(head: str, value: str, url: str, more: str = "") -> str:
    """Write a row as the suite's own generator does."""
    text = "'" + value.replace("'", "''") + "'"
    return f"  - {head}text: {text}\n    {more or f'url: {url}'}\n"


def make_sep(number: str, index: spec.Index, pages: list[str]) -> str:
    """Make the file of a SEP."""
    newest, shown = index.revisions[0], set()
    rows: dict[str, str] = {}

    def url_of(page: str, heading: str = "") -> str:
        words = "" if heading == "(intro)" else heading.lower()
        anchor = re.sub(r"[^\w -]|^_", "", words).replace(" ", "-")
        return f"{SITE}/{newest}/{page}" + (f"#{anchor}" if anchor else "")

    for vector in read_all():
        check = check_of(vector, f"sep-{number}-")
        place = index.find(vector, newest)
        if not place or newest not in vector["revisions"]:
            continue
        shown.add(place)
        page, (heading, sentence) = place
        if check in vector.get("checks", []) or page in pages:
            url = url_of(page, heading)
            rows.setdefault(check, row(f"check: {check}\n    ", sentence, url))
    excluded = "".join(
        row("", rule[1][1], "", f"excluded: '{UNSEEN}'")
        for rule in index.rules(newest)
        if rule[0] in pages and rule not in shown
    )
    first = url_of(pages[0] if pages else "basic/index")
    head = f"sep: {number}\nspec_url: {first}\nrequirements:\n"
    return head + "".join(rows.values()) + "\n" * bool(excluded) + excluded


def main() -> None:
    """Read the command line."""
    found: dict[str, list[str]] = {}
    if sys.argv[2:]:
        number, folder, *pages = sys.argv[1:]
        print(make_sep(number, spec.Index(Path(folder)), pages), end="")
    for vector in read_all() if not sys.argv[2:] else []:
        names = vector.get("checks", [])
        if sys.argv[1:] == ["stdio"]:
            names = (
                [check_of(vector, "stdio-")] if "stdio" in vector["carriers"] else []
            )
        for check in names:
            found.setdefault(check, []).append(vector["id"])
    for check in sorted(found):
        print(f"{check}:", *found[check])


if __name__ == "__main__":
    main()
