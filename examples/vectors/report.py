"""Reports: what both runners print and write. A row is a vector with its outcome."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterable
from typing import Any

from patterns import BadVector, Json, check_pattern, show
from play import REVISIONS

# What a failure is called, by level; "text" is also for what is doubtful.
VERDICTS = {"MUST": "broken", "SHOULD": "unwise", "text": "remark"}
FAILED = [*VERDICTS.values(), "known"]  # known: the baseline has it
NOT_SET_UP = "not set up"  # the connection or the handshake before it failed
COLUMNS = ["passed", "skipped", *FAILED]
FINDINGS = {"half-spoken", "no-answer", "server-ended"}  # ids of what no vector shows
WRITE_SECONDS, TELL_SECONDS, LIVE_SECONDS = 1.0, 5.0, 0.1
MEMBERS = set(
    "id clause places level rule says doubtful harms follows checks carriers needs client own "
    "alone foreign server steps never every since until".split()
)
SET = "4.0"  # the version of the vectors, servers' and clients'; CHANGES.md has it
FORMATS = [3, 4]  # versions of the format that are read


def say(*words: Any) -> None:
    """Print; control characters and invisible ones of a server become escapes.

    If nobody reads any more (`| head`), the report is still written.
    """
    text = " ".join(map(str, words))
    shown = [
        one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text
    ]
    try:
        print("".join(shown), flush=True)
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
    add("--write-baseline", metavar="FILE", help="write what fails now to this file")
    levels = ["broken", "harms", "unwise"]
    text = "what fails the run: a broken MUST, harm as well, or a SHOULD as well"
    add("--fail-on", choices=levels, default="broken", help=text)
    add("--limit", type=float, help="seconds for the whole run")
    text = "write all outcomes to this file, with what was said"
    add("--json", type=new_file, help=text)
    add("--junit", type=new_file, help="the same in JUnit's format")
    add("--tap", type=new_file, help="the same in TAP's format")
    add("--quiet", action="store_true", help="no progress on stderr")
    add("--timeout", type=float, default=5, help="seconds for an answer")
    return parser


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that nothing has this name, and what it may have been meant to be."""
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no vector or page is called {name}{hint}"


def check_options(options: argparse.Namespace, vectors: list[Json]) -> None:
    """Refuse what names nothing, before anything is played; read the baseline."""
    known = {vector["id"] for vector in vectors} | {one["page"] for one in vectors}
    for name in options.only:
        if name not in known:
            raise SystemExit(f"--only: {unknown_name(name, known)}")
    for date in (options.revisions or REVISIONS[0]).split(","):
        if date not in REVISIONS:
            listed = ", ".join(REVISIONS)
            raise SystemExit(f"--revisions: {date} is not one of {listed}")
    options.known = []
    if options.baseline:
        options.known = read_baseline(options.baseline, vectors)


def stop_on_signals() -> None:
    """Let SIGTERM, which ends a job in CI, do what Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def verdict_of(vector: Json) -> str:
    """Say what it is if this vector fails."""
    return VERDICTS["text" if "doubtful" in vector else vector["level"]]


def read_vectors(
    folder: pathlib.Path, check_steps: Callable[[list[Json], str], None]
) -> list[Json]:
    """Read and check all vectors of a folder."""
    found: list[Json] = []
    for path in sorted(folder.glob("*.json")):
        if path.stem == "schema":
            continue
        for vector in read_file(path):
            check_steps(vector["steps"], vector["id"])
            found.append(vector)
    return found


def choose(vectors: list[Json], only: list[str]) -> list[Json]:
    """Choose the vectors with some ids or pages; without any, all."""
    return [one for one in vectors if not only or {one["id"], one["page"]} & set(only)]


def read_file(path: pathlib.Path) -> list[Json]:
    """Read the vectors of a file; each gets its page and a list of its revisions."""
    file = json.loads(path.read_text("utf-8"))
    if not isinstance(file, dict) or file.get("format") not in FORMATS:
        raise BadVector(f"{path.name}: the format must be one of {FORMATS}")
    if unknown := set(file) - {"format", "vectors"}:
        raise BadVector(f"{path.name}: unknown member {sorted(unknown)}")
    found = []
    for vector in file["vectors"]:
        check_vector(vector)
        head = {"page": path.stem, "steps": [], "revisions": revisions_of(vector)}
        found.append({**head, **vector})
    return found


def check_vector(vector: Json) -> None:
    """Raise BadVector unless a vector is one that a runner knows how to play."""
    unknown = set(vector) - MEMBERS
    if unknown:
        raise BadVector(f"{vector.get('id')}: unknown member {sorted(unknown)}")
    dates = {"since": REVISIONS[0], "until": REVISIONS[-1], **vector}
    for date in (dates["since"], dates["until"]):
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


def read_baseline(path: str, vectors: list[Json]) -> list[str]:
    """Read the lines of a baseline: the id of a vector, perhaps followed by carrier and
    revision; `#` begins a comment. An id that no vector has is refused."""
    known = {vector["id"] for vector in vectors} | FINDINGS
    found = []
    try:
        text = pathlib.Path(path).read_text("utf-8")
    except OSError as problem:
        raise SystemExit(f"--baseline: {problem}") from None
    for line in text.splitlines():
        if words := line.partition("#")[0].split():
            if words[0] not in known:
                raise SystemExit(f"{path}: {unknown_name(words[0], known)}")
            found.append(" ".join(words))
    return found


def apply_baseline(lines: list[str], rows: list[Json]) -> list[str]:
    """Mark the failures that a baseline lists as known; return its stale lines: what
    they name was played, and has passed. What is doubtful is never stale."""
    failed: set[str] = set()
    played: set[str] = set()
    for row in rows:
        names = {row["id"], where(row)} & set(lines)
        if row["verdict"] in FAILED:
            failed |= names
            row["verdict"] = "known" if names else row["verdict"]
        elif row["verdict"] == "passed" and "doubtful" not in row:
            played |= names
    return [line for line in lines if line in played - failed]


def write_baseline(path: str, rows: list[Json]) -> None:
    """Write a baseline of what is broken or unwise now."""
    lines = [
        f"{where(row)}  # {row['verdict']}: {plain(row['rule'])}"
        for row in rows
        if row["verdict"] in ("broken", "unwise", "known")
    ]
    pathlib.Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def in_order(rows: list[Json], vectors: list[Json]) -> list[Json]:
    """Sort rows as the vectors are, and by revision."""
    order = {vector["id"]: n for n, vector in enumerate(vectors)}
    return sorted(
        rows, key=lambda row: (order.get(row["id"], len(order)), row["revision"])
    )


# ---- for people


def print_table(rows: list[Json]) -> None:
    """Print how many vectors of each page came out how; what was not set up does not
    count."""
    count: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        for page in (row["page"], "all pages"):
            page_count = count.setdefault(page, {name: set() for name in COLUMNS})
            if row["verdict"] in COLUMNS:
                page_count[row["verdict"]].add(row["id"])
    say(f"\n{'vectors of':24}", *(f"{name:>8}" for name in COLUMNS))
    for page in [*sorted(set(count) - {"all pages"}), "all pages"]:
        if page in count:
            say(f"{page:24}", *(f"{len(count[page][name]):8}" for name in COLUMNS))


TITLES = ["clause", "sentence", "level", "doubtful", "harms", "order", "after"]
TITLES += ["sent", "why", "received", "alike"]


def find_followers(rows: list[Json]) -> None:
    """Charge one fault once: what follows from the failure of another vector in the
    same place is a remark that names it."""
    failed = {where(row) for row in rows if row["verdict"] in FAILED}
    for row in rows:
        place = f"{row['carrier']} {row['revision']}"
        for name in row.get("follows", []):
            if row["verdict"] in VERDICTS.values() and f"{name} {place}" in failed:
                row.update(verdict="remark", after=f"follows from {name}")


def find_alike(rows: list[Json]) -> None:
    """Say in each failure which others fail for the same answer, whatever its id."""
    answers: dict[str, list[Json]] = {}
    for row in rows:
        received = row.get("received")
        if row["verdict"] in FAILED and isinstance(received, dict) and received:
            answer = {**received, "id": None}
            where_ = [row["carrier"], row["revision"]]
            key = json.dumps([*where_, answer], sort_keys=True, default=repr)
            answers.setdefault(key, []).append(row)
    for group in answers.values():
        names = {row["id"] for row in group}
        for row in group:
            if others := sorted(names - {row["id"]}):
                row["alike"] = " ".join(others)


def print_failures(rows: list[Json], sentences: dict[tuple[str, str], str]) -> None:
    """Print each failure once, with all places where it happened."""
    failed = [row for row in rows if row["verdict"] in VERDICTS.values()]
    for name in dict.fromkeys(row["id"] for row in failed):
        alike = [row for row in failed if row["id"] == name]
        sentence = sentences.get((name, alike[0]["revision"]), "")
        first = {"sentence": sentence, **alike[0]}
        say(f"\n{first['verdict'].upper()} {name}: {first['rule']}")
        for title in TITLES:
            if first.get(title):
                say(f"  {title:<9} {show(first[title], 1000)}")
        say("  where    ", places_of(alike))


def places_of(rows: list[Json]) -> str:
    """Name the carriers and revisions of some rows, each once."""
    return ", ".join(
        dict.fromkeys(f"{row['carrier']} {row['revision']}" for row in rows)
    )


def print_summary(rows: list[Json]) -> None:
    """Print what is broken by the clause of the rule, each in one line; then what is
    unwise, first that which does harm; then what was not set up."""
    kinds: dict[str, list[Json]] = {
        "BROKEN, by rule": [row for row in rows if row["verdict"] == "broken"],
        "NO MUST, BUT HARM": [
            row for row in rows if row["verdict"] != "broken" and is_harmful(row)
        ],
        "UNWISE": [
            row for row in rows if row["verdict"] == "unwise" and not is_harmful(row)
        ],
    }
    for title, some in kinds.items():
        clauses: dict[str, list[Json]] = {}
        for row in some:
            clauses.setdefault(row["clause"], []).append(row)
        if clauses:
            say(f"\n{title}:")
        for clause, group in clauses.items():
            names = list(dict.fromkeys(row["id"] for row in group))
            more = f" and {len(names) - 3} more" if len(names) > 4 else ""
            shown = ", ".join(names[: 3 if more else 4])
            harm = group[0]["harms"] + ": " if title.endswith("HARM") else ""
            say(f"  {clause}: {harm}{shown}{more} ({places_of(group)})")
    for why, group in group_by_why(rows).items():
        say(f"\nNOT SET UP, so not judged: {len(group)} outcomes ({places_of(group)})")
        say(f"  {why}")


def is_harmful(row: Json) -> bool:
    """Say whether a failure that breaks no MUST still harms every client."""
    charged = row["verdict"] in VERDICTS.values() and "after" not in row
    return charged and "harms" in row


def group_by_why(rows: list[Json]) -> dict[str, list[Json]]:
    """Group the rows that were not set up by the reason, each named once."""
    found: dict[str, list[Json]] = {}
    for row in rows:
        if row["verdict"] == NOT_SET_UP:
            found.setdefault(row["why"], []).append(row)
    return found


# ---- for machines


def plain(text: Any) -> str:
    """Write something in printable ASCII."""
    return re.sub("[^ -~]", "?", show(text))


def as_json(rows: list[Json], stopped: str, head: Json) -> str:
    """Write all outcomes, those of failures with what was sent and received."""
    return json.dumps({"set": SET, **head, "stopped": stopped, "rows": rows}, indent=1)


def as_junit(rows: list[Json], stopped: str, head: Json) -> str:
    """Write all outcomes as JUnit does: only a broken MUST is a failure.

    A SHOULD that is not kept, a remark and a known failure are skipped, and say why;
    what was not set up, and a run that was stopped, is an error.
    """
    suite = xml.Element("testsuite", name=f"MCP vectors {SET}")
    for row in rows:
        name = " ".join((row["page"], row["carrier"], row["revision"]))
        case = xml.SubElement(suite, "testcase", name=row["id"], classname=name)
        case.set("time", f"{row.get('seconds', 0):.3f}")
        if row["verdict"] != "passed":
            tag = {"broken": "failure", NOT_SET_UP: "error"}.get(
                row["verdict"], "skipped"
            )
            text = f"{row['rule']}: {row['why']} {show(row.get('received', ''))}"
            kind = f"{row['verdict']} {row['level']}"
            xml.SubElement(case, tag, type=kind, message=plain(text))
    if stopped:
        case = xml.SubElement(suite, "testcase", name="stopped", classname="run")
        xml.SubElement(case, "error", type="stopped", message=plain(stopped))
    counted = {"tests": "testcase", "failures": "failure", "errors": "error"}
    for name, tag in {**counted, "skipped": "skipped"}.items():
        suite.set(name, str(len(list(suite.iter(tag)))))
    suite.set("time", f"{sum(row.get('seconds', 0) for row in rows):.3f}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(suite, "unicode")


def as_tap(rows: list[Json], stopped: str, head: Json) -> str:
    """Write all outcomes as TAP 13: what is not broken but failed is a TODO."""
    lines = ["TAP version 13", f"1..{len(rows)}"]
    for number, row in enumerate(rows, 1):
        failed = row["verdict"] in [*FAILED, NOT_SET_UP]
        line = f"{'not ' * failed}ok {number} - {where(row)}"
        if row["verdict"] == "skipped":
            line += f" # SKIP {plain(row['why'])}"
        elif failed and row["verdict"] not in ("broken", NOT_SET_UP):
            line += f" # TODO {row['verdict']}"
        lines.append(line)
        if failed:
            details = {"rule": row["rule"], "why": row["why"], "clause": row["clause"]}
            lines += ["  ---", f"  {plain(json.dumps(details))}", "  ..."]
    if stopped:
        lines.append(f"Bail out! {plain(stopped)}")
    return "\n".join(lines) + "\n"


class Recorder:
    """Takes outcomes as they come: says how far the run is, and keeps the files that
    the command line asks for complete, so that they are valid whenever the run ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.files = {
            as_json: options.json,
            as_junit: options.junit,
            as_tap: options.tap,
        }
        # No report has the values of headers.
        secret = {"header", "other", "known", "json", "junit", "tap", "quiet"}
        given = {name: value for name, value in vars(options).items() if value}
        options_ = {name: given[name] for name in set(given) - secret}
        self.head: Json = {"server": {}, "options": options_}
        self.rows: list[Json] = []
        self.lock = threading.Lock()  # clients are played side by side
        self.quiet = options.quiet
        self.total = 0  # outcomes to come in all, once the servers are known
        self.began = self.written = self.told = time.monotonic()
        self.ends = self.began + (options.limit or threading.TIMEOUT_MAX / 2)

    def add(self, row: Json) -> None:
        """Take an outcome; once a second write, and say how far the run is."""
        with self.lock:
            self.rows.append(row)
            now = time.monotonic()
            if now > self.written + WRITE_SECONDS:
                self.write("the run has not ended")
                self.written = now
            live = sys.stderr.isatty()
            pause = LIVE_SECONDS if live else TELL_SECONDS
            if not self.quiet and now > self.told + pause:
                self.told = now
                self.tell(row, live)

    def tell(self, row: Json, live: bool) -> None:
        """Say which vector, how many, and how long it may still take."""
        done = len(self.rows)
        line = f"{done} of {self.total}: {where(row)}"
        if 10 <= done < self.total:
            left = (time.monotonic() - self.began) / done * (self.total - done)
            line += f"; about {left:.0f} s left"
        start, end = ("\r\x1b[K", "") if live else ("", "\n")
        with contextlib.suppress(OSError):  # nobody reads it any more
            print(start + line, end=end, file=sys.stderr, flush=True)

    def write(self, stopped: str = "") -> None:
        """Write all files anew; each is replaced as a whole."""
        for make, path in self.files.items():
            if path:
                new = pathlib.Path(f"{path}.new")
                new.write_text(make(self.rows, stopped, self.head), "utf-8")
                new.replace(path)

    def finish(
        self,
        options: argparse.Namespace,
        rows: list[Json],
        sentences: dict[tuple[str, str], str],
        stopped: str,
    ) -> bool:
        """Print and write all outcomes; say whether they are good."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self.rows = rows
        find_followers(rows)
        stale = apply_baseline(options.known, rows)
        find_alike(rows)
        print_table(rows)
        print_failures(rows, sentences)
        print_summary(rows)
        for line in stale:
            say(f"\nSTALE {line}: the baseline lists it, and it passes")
        say(f"\n{len(rows)} outcomes in {time.monotonic() - self.began:.0f} s")
        if stopped:
            say(f"STOPPED: {stopped}; {self.total - len(rows)} outcomes are missing")
        self.write(stopped)
        if options.write_baseline:
            write_baseline(options.write_baseline, rows)
            return not stopped
        verdicts = {row["verdict"] for row in rows}
        judged = verdicts - {"skipped", NOT_SET_UP}
        fatal = {"broken", NOT_SET_UP}
        if options.fail_on == "unwise":
            fatal.add("unwise")
        harmful = [row for row in rows if is_harmful(row) and "doubtful" not in row]
        harm = options.fail_on != "broken" and harmful
        bad = verdicts & fatal or harm or stale or stopped
        return bool(judged) and not bad
