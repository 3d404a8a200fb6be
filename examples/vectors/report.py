"""Reports: what both runners print and write. A row is a vector with its outcome."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable
from typing import Any

from patterns import BadVector, Json, check_pattern, show
from play import REVISIONS

# What a failure is called, by level; "text" is also for what is doubtful.
VERDICTS = {"MUST": "broken", "SHOULD": "unwise", "text": "remark"}
FAILED = [*VERDICTS.values(), "known"]  # known: the baseline has it
COLUMNS = ["passed", "skipped", *FAILED]
MEMBERS = set(
    "id clause places level rule doubtful carriers needs client own foreign server steps "
    "never every".split()
)
# The members that say in which revisions a vector holds, by the format of the file.
DATES = {2: {"revisions"}, 3: {"since", "until"}}


def say(*words: Any) -> None:
    """Print; if nobody reads any more (`| head`), the report is still written."""
    try:
        print(*words, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


# ---- the command line and the vectors


def new_file(path: str) -> str:
    """Refuse a file that cannot be written, before anything is played."""
    try:
        open(path, "a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def make_parser(text: str) -> argparse.ArgumentParser:
    """Make a parser with the options that both runners have."""
    parser = argparse.ArgumentParser(description=text.partition("\n")[0])
    add = parser.add_argument
    add("--revisions", help="DATE,DATE: play these, and insist on them")
    add("--only", action="append", default=[], help="a vector or a page")
    add("--baseline", help="a file that lists known failures, one on each line")
    text = "write all outcomes to this file, with what was said"
    add("--json", type=new_file, help=text)
    add("--junit", type=new_file, help="the same in JUnit's format")
    add("--tap", type=new_file, help="the same in TAP's format")
    add("--timeout", type=float, default=5, help="seconds for an answer")
    return parser


def verdict_of(vector: Json) -> str:
    """Say what it is if this vector fails."""
    return VERDICTS["text" if "doubtful" in vector else vector["level"]]


def read_vectors(
    folder: pathlib.Path,
    only: list[str],
    check_steps: Callable[[list[Json], str], None],
) -> list[Json]:
    """Read and check all vectors of a folder, or those with some ids or pages."""
    found: list[Json] = []
    for path in sorted(folder.glob("*.json")):
        if path.stem == "schema":
            continue
        for vector in read_file(path):
            check_steps(vector["steps"], vector["id"])
            if not only or {vector["id"], path.stem} & set(only):
                found.append(vector)
    return found


def read_file(path: pathlib.Path) -> list[Json]:
    """Read the vectors of a file; each gets its page and a list of its revisions."""
    file = json.loads(path.read_text("utf-8"))
    if not isinstance(file, dict) or file.get("format") not in DATES:
        raise BadVector(f"{path.name}: the format must be one of {[*DATES]}")
    if unknown := set(file) - {"format", "vectors"}:
        raise BadVector(f"{path.name}: unknown member {sorted(unknown)}")
    found = []
    for vector in file["vectors"]:
        check_vector(vector, file["format"])
        head = {"page": path.stem, "steps": [], "revisions": revisions_of(vector)}
        found.append({**head, **vector})
    return found


def check_vector(vector: Json, form: int) -> None:
    """Raise BadVector unless a vector is one that a runner knows how to play."""
    unknown = set(vector) - MEMBERS - DATES[form]
    if unknown:
        raise BadVector(f"{vector.get('id')}: unknown member {sorted(unknown)}")
    dates = {"since": REVISIONS[0], "until": REVISIONS[-1], **vector}
    for date in (dates["since"], dates["until"], *vector.get("revisions", [])):
        if date not in REVISIONS:
            raise BadVector(f"{vector['id']}: unknown revision {show(date)}")
    check_pattern(vector.get("every"))
    check_pattern(vector.get("never", []))


def revisions_of(vector: Json) -> list[str]:
    """List the revisions of a vector: from `since` to `until`, both included."""
    first = vector.get("since", REVISIONS[0])
    last = vector.get("until", REVISIONS[-1])
    return REVISIONS[REVISIONS.index(first) : REVISIONS.index(last) + 1]


# ---- the baseline: failures that are known


def where(row: Json) -> str:
    """Name a row as a line of a baseline does."""
    return f"{row['id']} {row['carrier']} {row['revision']}"


def apply_baseline(path: str, rows: list[Json]) -> list[str]:
    """Mark the failures that a file lists as known; return its lines that are stale.

    A line is the id of a vector, perhaps followed by carrier and revision; `#` begins
    a comment.
    """
    lines = {}
    for line in pathlib.Path(path).read_text("utf-8").splitlines():
        if text := line.partition("#")[0].strip():
            lines[" ".join(text.split())] = {"failed": False, "played": False}
    for row in rows:
        for name in {row["id"], where(row)} & set(lines):
            failed = row["verdict"] in FAILED
            lines[name]["failed"] |= failed
            lines[name]["played"] |= row["verdict"] != "skipped"
            if failed:
                row["verdict"] = "known"
    return [name for name, one in lines.items() if one["played"] > one["failed"]]


# ---- for people


def print_table(rows: list[Json]) -> None:
    """Print how many vectors of each page came out how, and the five worst pages."""
    count: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        for page in (row["page"], "all pages"):
            page_count = count.setdefault(page, {name: set() for name in COLUMNS})
            page_count[row["verdict"]].add(row["id"])
    say(f"\n{'vectors of':24}", *(f"{name:>8}" for name in COLUMNS))
    for page in [*sorted(set(count) - {"all pages"}), "all pages"]:
        if page in count:
            say(f"{page:24}", *(f"{len(count[page][name]):8}" for name in COLUMNS))

    def badness(page: str) -> tuple[int, ...]:
        return tuple(len(count[page][name]) for name in ("broken", "unwise"))

    worst = sorted(set(count) - {"all pages"}, key=badness, reverse=True)[:5]
    named = [
        f"{page} ({broken} broken, {unwise} unwise)"
        for page in worst
        for broken, unwise in [badness(page)]
        if broken + unwise
    ]
    if named:
        say("\nworst:", ", ".join(named))


TITLES = ["clause", "sentence", "level", "doubtful", "order", "sent", "why", "received"]


def print_failures(rows: list[Json], sentences: dict[str, str]) -> None:
    """Print each failure once, with all places where it happened."""
    failed = [row for row in rows if row["verdict"] in VERDICTS.values()]
    for name in dict.fromkeys(row["id"] for row in failed):
        alike = [row for row in failed if row["id"] == name]
        first = {"sentence": sentences.get(name, ""), **alike[0]}
        say(f"\n{first['verdict'].upper()} {name}: {first['rule']}")
        for title in TITLES:
            if first.get(title):
                say(f"  {title:<9} {show(first[title], 1000)}")
        places = (f"{row['carrier']} {row['revision']}" for row in alike)
        say("  where    ", ", ".join(places))


# ---- for machines


def plain(text: Any) -> str:
    """Write something in printable ASCII."""
    return re.sub("[^ -~]", "?", show(text))


def write_json(path: str, rows: list[Json]) -> None:
    """Write all outcomes, those of failures with what was sent and received."""
    pathlib.Path(path).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def write_junit(path: str, rows: list[Json]) -> None:
    """Write all outcomes as JUnit does: only a broken MUST is a failure.

    A SHOULD that is not kept, a remark and a known failure are skipped, and say why.
    """
    suite = xml.Element("testsuite", name="MCP vectors", tests=str(len(rows)))
    for row in rows:
        name = " ".join((row["page"], row["carrier"], row["revision"]))
        case = xml.SubElement(suite, "testcase", name=row["id"], classname=name)
        if row["verdict"] != "passed":
            tag = "failure" if row["verdict"] == "broken" else "skipped"
            text = f"{row['rule']}: {row['why']} {show(row.get('received', ''))}"
            kind = f"{row['verdict']} {row['level']}"
            xml.SubElement(case, tag, type=kind, message=plain(text))
    xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def write_tap(path: str, rows: list[Json]) -> None:
    """Write all outcomes as TAP 13: what is not broken but failed is a TODO."""
    lines = ["TAP version 13", f"1..{len(rows)}"]
    for number, row in enumerate(rows, 1):
        failed = row["verdict"] in FAILED
        line = f"{'not ' * failed}ok {number} - {where(row)}"
        if row["verdict"] == "skipped":
            line += f" # SKIP {plain(row['why'])}"
        elif failed and row["verdict"] != "broken":
            line += f" # TODO {row['verdict']}"
        lines.append(line)
        if failed:
            details = {"rule": row["rule"], "why": row["why"], "clause": row["clause"]}
            lines += ["  ---", f"  {plain(json.dumps(details))}", "  ..."]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def finish(
    options: argparse.Namespace,
    rows: list[Json],
    sentences: dict[str, str],
    began: float,
) -> bool:
    """Print and write all outcomes; say whether they are good."""
    stale = apply_baseline(options.baseline, rows) if options.baseline else []
    print_table(rows)
    print_failures(rows, sentences)
    for line in stale:
        say(f"\nSTALE {line}: the baseline lists it, and it passes")
    say(f"\n{len(rows)} outcomes in {time.monotonic() - began:.0f} s")
    write_files(options, rows)
    verdicts = {row["verdict"] for row in rows}
    return bool(verdicts - {"skipped"}) and "broken" not in verdicts and not stale


def write_files(options: argparse.Namespace, rows: list[Json]) -> None:
    """Write the files that the command line asks for."""
    for name, write in (
        (options.json, write_json),
        (options.junit, write_junit),
        (options.tap, write_tap),
    ):
        if name:
            write(name, rows)
