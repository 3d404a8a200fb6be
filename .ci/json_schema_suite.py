#!/usr/bin/env python3
"""Hold the schemas of mcp_ref.py against the official JSON-Schema-Test-Suite.

    python3 .ci/json_schema_suite.py            what .ci/run does
    python3 .ci/json_schema_suite.py FOLDER     another copy: FOLDER/tests/draft2020-12

Without FOLDER, pip fetches the pinned copy that the source distribution of jsonschema
contains, from the index that it is configured with. The status is 1 if a verdict is
wrong, if the figures are not those below, or if a planted bug is not found. With
FOLDER, only a wrong verdict counts.

A schema is refused if it has a keyword that Schema cannot check. Its tests have no
verdict, so they are counted apart. The folder `optional` is left out: most of it is
about `format`, which only annotates, and about regular expressions of ECMAScript.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcp_ref import Schema

PACKAGE = "jsonschema==4.23.0"  # it can be had for any Python from 3.8 on
SHA256 = "d71497fef26351a33265337fa77ffeb82423f3ea21283cd9467bb03999266bc4"
DRAFT = "tests/draft2020-12"

# The figures for that copy: tests with the right verdict, and tests of refused schemas
# by file. limits.md names what is refused.
RIGHT = 934
REFUSED = {
    "anchor": 8,  # a reference to an $anchor
    "defs": 2,  # a reference to the meta-schema
    "dynamicRef": 42,
    "not": 2,  # unevaluatedProperties
    "ref": 33,  # references that leave the schema, and an $id inside it
    "refRemote": 31,
    "unevaluatedItems": 66,
    "unevaluatedProperties": 122,
    "vocabulary": 5,  # another meta-schema
}

Groups = Iterator[tuple[str, Any]]  # the name of a file, and one of its groups


class Figures(NamedTuple):
    """What the tests of a suite have come to."""

    right: int
    wrong: list[str]
    refused: dict[str, int]

    def __str__(self) -> str:
        refused = sum(self.refused.values())
        return f"right {self.right}, wrong {len(self.wrong)}, refused {refused}"


def fetch(scratch: str) -> Path:
    """Let pip fetch the source distribution; it checks the hash."""
    subprocess.run([sys.executable, "-m", "venv", scratch + "/venv"], check=True)
    wanted = Path(scratch, "wanted")
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    command = f"{scratch}/venv/bin/pip download -q --no-deps --no-binary jsonschema"
    subprocess.run([*command.split(), "-d", scratch, "-r", wanted], check=True)
    (archive,) = Path(scratch).glob("jsonschema-*.tar.gz")
    return archive


def groups_of_archive(archive: Path) -> Groups:
    """Yield the groups of tests in the source distribution; nothing is unpacked."""
    with tarfile.open(archive) as tar:
        for name in sorted(tar.getnames()):
            path = Path(name)
            if path.suffix == ".json" and path.parent.match("json/" + DRAFT):
                member = tar.extractfile(name)
                assert member
                yield from ((path.stem, group) for group in json.load(member))


def groups_of_folder(folder: Path) -> Groups:
    """Yield the groups of tests of a checkout of the suite."""
    for path in sorted((folder / DRAFT).glob("*.json")):
        for group in json.loads(path.read_text("utf-8")):
            yield path.stem, group


def count(groups: Groups, make: Callable[[Any], Schema]) -> Figures:
    """Compare each verdict of the schemas that `make` makes."""
    right, wrong = 0, []
    refused: Counter[str] = Counter()
    for file, group in groups:
        try:
            schema = make(group["schema"])
        except ValueError:
            refused[file] += len(group["tests"])
            continue
        for test in group["tests"]:
            if (schema.flaw(test["data"]) is None) == test["valid"]:
                right += 1
            else:
                wrong.append(f"{file}: {group['description']}: {test}")
    return Figures(right, wrong, dict(refused))


# ---- planted bugs: what must not get through


def forgetful(schema: Any) -> Schema:
    """Check everything but maxLength."""
    if isinstance(schema, dict):
        schema = {key: schema[key] for key in schema if key != "maxLength"}
    return Schema(schema)


def timid(schema: Any) -> Schema:
    """Refuse what can be checked."""
    if isinstance(schema, dict) and "maxLength" in schema:
        raise ValueError("not supported: maxLength")
    return Schema(schema)


def credulous(schema: Any) -> Schema:
    """Accept schemas that must be refused, as if they allowed everything."""
    try:
        return Schema(schema)
    except ValueError:
        return Schema(True)


def judge(archive: Path) -> int:
    """Compare the figures with those above; then the same with each planted bug."""
    stated = Figures(RIGHT, [], REFUSED)
    found = count(groups_of_archive(archive), Schema)
    print(f"{PACKAGE}: {found}", *found.wrong, sep="\nwrong: ")
    if found != stated:
        print(f"stated: {stated}")
        for file in sorted(found.refused.keys() | REFUSED.keys()):
            pair = found.refused.get(file, 0), REFUSED.get(file, 0)
            if pair[0] != pair[1]:
                print(f"refused in {file}: {pair[0]}, stated: {pair[1]}")
        return 1
    for bug in (forgetful, timid, credulous):
        planted = count(groups_of_archive(archive), bug)
        print(f"with a planted bug, {bug.__name__}: {planted}")
        if planted == stated:
            print("it was not found")
            return 1
    return 0


def main(words: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    if len(words) > 1 or words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0 if len(words) == 1 else 2
    if not words:
        with tempfile.TemporaryDirectory() as scratch:
            return judge(fetch(scratch))
    found = count(groups_of_folder(Path(words[0])), Schema)
    print(found, *found.wrong, sep="\nwrong: ")
    return int(bool(found.wrong) or not found.right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
