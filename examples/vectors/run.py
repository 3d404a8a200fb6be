#!/usr/bin/env python3
"""Play the vectors of this folder against any MCP server; say which rules it breaks.

    python3 examples/vectors/run.py python3 my_server.py        # a command: stdio
    python3 examples/vectors/run.py http://127.0.0.1:8000/mcp   # a running server

A vector is a short conversation that shows one rule of the specification; README.md
tells the rest: the options and the exit status, how vectors are written, how to write a
runner. The modules: patterns.py matches, links.py carries, play.py plays one vector,
this file plays all of them, report.py says how it went, and spec.py looks rules up in a
checkout of the specification.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import report
import spec
from links import Http, Link, Stdio, kill_all
from patterns import ABSENT, Json, Missing, fits, inside, show
from play import (
    CLIENT,
    LISTS,
    META,
    MODERN,
    PAGES,
    REVISIONS,
    Ended,
    Failed,
    NotAnswered,
    NotSetUp,
    Scene,
    Talk,
    check_steps,
)
from pool import Pool, Put, Stopped, Turns

FOLDER = pathlib.Path(__file__).resolve().parent
SILENCES = 4  # vectors in a row without an answer: then the server is asked if it lives
ORDER = "what other vectors sent before has changed the server"
GIVEN_UP = "the server does not answer any more"
GARBLED = "the server sends what is not UTF-8"
# What no vector shows, and the sentence that makes it a rule.
FINDINGS = {
    "no-answer": "a request is answered",
    "server-ended": "the server does not end while a request waits for its answer",
    "half-spoken": "a revision is spoken, or it is not",
}


class Server(Scene):
    """The server under test, in one revision over one carrier."""

    def __init__(self, options: argparse.Namespace, revision: str) -> None:
        super().__init__()
        self.command, self.url = [options.target, *options.arguments], options.target
        self.seconds, self.revision = options.timeout, revision
        self.legacy = revision < MODERN
        if is_url(self.url):
            self.carrier = "http"
        if self.carrier == "http" and revision == REVISIONS[0]:
            self.carrier = "sse"
            self.url = options.sse or self.url.rpartition("/")[0] + "/sse"
        self.credentials = read_headers(options.header)
        self.other = read_headers(options.other)
        self.turns = Turns()  # one object for all revisions of a run
        self.has: Json = {}
        self.info: Json = {}  # what the server says of itself
        self.offered: Any = None  # the version that answered an initialize, if another
        self.opened = False  # there was a connection; over HTTP+SSE, an endpoint
        self.supported: list[str] = []  # the versions that server/discover names
        self.silences = 0  # vectors in a row without an answer
        self.gone = ""  # why nothing more is played
        self.slow = False  # it was silent when it was asked what it speaks
        self.findings: dict[str, Json] = {}  # rows of what no vector shows, by id
        self.shown: list[Json] = []  # rows of the vectors that showed it
        self.lost: set[str] = set()  # ids of vectors charged with the server's end

    # ---- connections

    def open_link(self, client: str = "") -> Link:
        """Open a link of a client, without a handshake."""
        if self.carrier == "stdio":
            return Stdio(self.command)
        credentials = {"other": self.other, "nobody": {}}.get(client, self.credentials)
        return Http(self.url, self.carrier == "sse", credentials, self.seconds)

    def connect(self, vector: Json, client: str = "") -> Link:
        """Open a link, with a session if the revision has them."""
        try:
            link = self.open_link(client)
            self.opened = True
        except OSError as failure:
            raise NotSetUp(str(failure)) from failure
        if not self.legacy or vector.get("own") == "connection":
            return link
        try:
            self._shake_hands(link, vector)
        except (Failed, Missing, OSError) as failure:
            link.close()
            why = ": ".join(show(one) for one in failure.args)
            raise NotSetUp(f"no handshake: {why}") from failure
        return link

    def _shake_hands(self, link: Link, vector: Json) -> None:
        """Open a session, as the lifecycle page has it."""
        talk = Talk(self, link, vector)
        params = {
            "protocolVersion": self.revision,
            "capabilities": vector.get("client", {}),
            "clientInfo": CLIENT,
        }
        answer = talk.send(
            {"request": "initialize", "label": "opening", "params": params}
        )
        self.offered = inside(answer, "result.protocolVersion")
        talk.judge({"result": {"protocolVersion": self.revision}}, answer)
        link.initialized = answer["result"]
        opening = link.exchanges[talk.labels["opening"]].get("headers", {})
        link.session = opening.get("mcp-session-id", "")
        any_status = {"status": {"$type": "integer"}}
        talk.send({"notify": "notifications/initialized", "http": any_status})
        if self.carrier == "http" and "own" not in vector:
            talk.send({"verb": "GET", "later": True})  # some servers ask on this stream

    # ---- what the server has

    def survey(self) -> str:
        """Find out what the server declares and lists; say why, if it does not speak
        this."""
        try:
            with contextlib.closing(self.connect({"steps": []})) as link:
                talk = Talk(self, link, {})
                result = link.initialized
                if not self.legacy:
                    result = self._discover(talk)
                self.has = {"capabilities": result.get("capabilities", {})}
                meta = result.get("_meta") or {}
                self.info = result.get("serverInfo") or meta.get(
                    META + "serverInfo", {}
                )
                if not any([self._read_list(talk, method) for method in LISTS]):
                    raise TimeoutError("no list is answered")
        except (Failed, Missing, NotSetUp, OSError) as failure:
            self.slow = isinstance(failure.__cause__ or failure, TimeoutError)
            return ": ".join(show(one, 1000) for one in failure.args)
        return ""

    def _discover(self, talk: Talk) -> Json:
        """Ask a modern server what it has."""
        answer = talk.send({"request": "server/discover"})
        versions = inside(answer, "result.supportedVersions")
        if versions is ABSENT:
            versions = inside(answer, "error.data.supported")
        if isinstance(versions, list):
            self.supported = [one for one in versions if isinstance(one, str)]
        talk.judge({"result": {"supportedVersions": {"$some": self.revision}}}, answer)
        result: Json = answer["result"]
        return result

    def _read_list(self, talk: Talk, method: str) -> bool:
        """Read all pages of a list; say whether there was an answer, of any kind."""
        kind, member, name = LISTS[method]
        self.has[kind] = []
        params: Json = {}
        for _ in range(PAGES):
            try:
                answer = talk.send({"request": method, "params": params})
                for item in answer["result"][member]:
                    self.has[kind].append(inside(item, name))
                params = {"cursor": answer["result"]["nextCursor"]}
            except TimeoutError:
                return False  # a vector judges that
            except (Failed, Missing, KeyError, TypeError):
                return True
        return True

    def half_spoken(self) -> str:
        """Say how a server that has no server/discover shows that it speaks this."""
        if self.legacy:
            return ""
        try:
            with contextlib.closing(self.open_link()) as link:
                talk = Talk(self, link, {})
                for method in LISTS:
                    talk.send({"request": method, "later": True})
                modern = {"result": {"resultType": {"$type": "string"}}}
                talk.wait({"await": modern})
        except (Failed, Missing, OSError):
            return ""
        return "it serves requests of this revision, but not server/discover"

    def lacks(self, needs: list[str]) -> str:
        """Say what of a vector's needs the server lacks."""
        for need in needs:
            kind, _, name = need.partition(" ")
            if kind == "local":
                host = urllib.parse.urlsplit(self.url).hostname or ""
                there = bool(re.match(r"localhost$|127\.|::1$", host))
            elif kind == "other":
                there = self.carrier != "stdio" and bool(self.other)
            elif kind in [one.kind for one in LISTS.values()]:
                there = name in self.has[kind]
            else:
                value = inside(self.has["capabilities"], name or kind)
                there = value not in (ABSENT, False, None)
            if there == (kind == "not"):
                return f"needs {need}"
        return self.gone

    # ---- the run

    def row(self, vector: Json) -> Json:
        """Make the row of a vector that has not been played."""
        row = {"verdict": "passed", **vector}
        row.update(carrier=self.carrier, revision=self.revision)
        if why := self.lacks(vector.get("needs", [])):
            row.update(verdict="skipped", why=why)
        return row

    def play(self, vector: Json, links: dict[str, Link]) -> tuple[Json, list[Json]]:
        """Play one vector, on a used link if one suits: the outcome, and all that was
        heard."""
        began, row = time.monotonic(), self.row(vector)
        if row["verdict"] == "skipped":
            return row, []
        kind = vector.get("own") or json.dumps(self.legacy and vector.get("client", {}))
        link, talk, clean = take_link(links, kind, vector), None, False
        try:
            link = link or self.connect(vector)
            talk = Talk(self, link, vector)
            clean = talk.play()
            self.silences = 0
        except Missing as missing:
            row.update(verdict="skipped", why=f"the server has no {missing}")
            clean = talk is not None and talk.leaves_nothing()
        except (Ended, NotAnswered) as failure:
            ended = isinstance(failure, Ended)
            self.silences = 0 if ended else self.silences + 1
            row.update(verdict="skipped", why=str(failure.args[0]))
            row.update(finding="server-ended" if ended else "no-answer")
            if talk:
                row.update(sent=talk.sent, transcript=talk.transcript)
                sure = is_sure(talk.link, ended, "foreign" in vector)
                row["sure"] = sure or len(failure.args) > 1
        except NotSetUp as failure:
            self.silences += 1
            row.update(verdict=report.NOT_SET_UP, why=str(failure))
        except (Failed, OSError) as failure:
            self.silences = 0
            row.update(verdict=report.verdict_of(vector), why=str(failure.args[0]))
            row.update(received=failure.args[1] if len(failure.args) > 1 else None)
            if talk:
                row.update(sent=talk.sent, transcript=talk.transcript)
                row["lost"] = bool(talk.link.ended)
            if talk and talk.all_refused():
                row.update(refused=sorted(talk.all_refused()))
        if link and clean and "own" not in vector:
            links[kind] = link
        elif link:
            link.close()
        heard = talk.all_heard() if talk else []
        excused = row["verdict"] != "passed" and row.get("finding") != "server-ended"
        if excused and is_garbled(vector, heard):
            row = {**self.row(vector), "verdict": "skipped", "why": GARBLED}
        row["seconds"] = round(time.monotonic() - began, 3)
        return row, heard

    def play_twice(
        self, vector: Json, links: dict[str, Link]
    ) -> tuple[Json, list[Json]]:
        """Play a vector; if it fails on a used link, play it on a fresh one."""
        used = bool(links)
        with self.turns.take(vector.get("alone", False)):
            row, heard = self.play(vector, links)
        not_set_up = row["verdict"] == report.NOT_SET_UP
        failed = row["verdict"] in report.FAILED and "refused" not in row
        failed |= "finding" in row
        if ((used and failed) or not_set_up) and self.silences < 2:
            fresh: dict[str, Link] = {}
            with self.turns.take(vector.get("alone", False)):
                again, _ = self.play(vector, fresh)
            close_all(fresh)
            if again["verdict"] != "passed" or not_set_up or "finding" in row:
                if row.get("finding") == "server-ended" and "finding" not in again:
                    self.shown.append({**row, "sure": False})
                row = again
            else:
                harm = {"harms": ORDER} if row["verdict"] == "broken" else {}
                row.update(verdict="remark", order="passes alone", **harm)
        if "finding" in row:
            self.shown.append(row)
        return row, heard

    def note(self, row: Json) -> None:
        """Keep that the server has ended, or did not answer: once, with what was sent
        last, whatever the vector is about. A vector that is charged with an end is
        enough for those that follow from it."""
        name = row["finding"]
        found = self.findings.setdefault(
            name,
            {**self.finding(name, row["why"]), "verdict": "remark", "alike": ""},
        )
        found["alike"] = f"{found['alike']} {row['id']}".strip()
        if found["verdict"] == "remark":
            found.update({one: row.get(one) for one in ("why", "sent", "transcript")})
        if row.get("sure") and not self.lost & set(row.get("follows", [])):
            found["verdict"] = "broken"
        elif name == "server-ended" or "foreign" in row:
            found["harms"] = "a client that sends this loses its server"

    def play_all(
        self, vectors: list[Json], fresh: bool, tell: Callable[[Json], None]
    ) -> None:
        """Play vectors one after the other, and charge the rules that hold for every
        message; tell each outcome."""
        rules = [vector for vector in vectors if "every" in vector]
        links: dict[str, Link] = {}
        rows = {rule["id"]: self.row(rule) for rule in rules}
        refused: list[Json] = []  # rows that fail for a method that may be unknown
        for vector in vectors:
            if "every" in vector:
                continue
            row, heard = self.play_twice(vector, links)
            if row.pop("lost", False) and row["verdict"] == "broken":
                self.lost.add(row["id"])
            if "refused" in row:
                refused.append(row)
            else:
                tell(row)
            # One fault, one charge: what made a vector fail is not charged again.
            good = "foreign" not in vector and row["verdict"] == "passed"
            if good or is_garbled(vector, heard):
                self._charge(rules, rows, heard, row["id"])
            if self.silences >= SILENCES and not self.gone:
                self._check_alive()
            if fresh:
                close_all(links)
        close_all(links)
        for row in refused:
            lacks = sorted(set(row["refused"]) - self.served)
            if lacks:  # what is not offered is not demanded
                row.update(verdict="skipped", why=f"the server has no {lacks[0]}")
        for row in self.shown:
            self.note(row)
        if self.gone:
            self.findings["no-answer"] = self.finding("no-answer", self.gone)
        for row in [*refused, *rows.values(), *self.findings.values()]:
            tell(row)

    def _charge(
        self, rules: list[Json], rows: dict[str, Json], heard: list[Json], name: str
    ) -> None:
        """Charge rules with a message that breaks them; a rule once, and of a message
        that breaks a MUST nothing else."""
        known = {"revision": self.revision}
        strict_first = sorted(rules, key=lambda one: report.verdict_of(one) != "broken")
        for message in heard:
            for rule in strict_first:
                row = rows[rule["id"]]
                if row["verdict"] == "skipped" or fits(rule["every"], message, known):
                    continue
                verdict = report.verdict_of(rule)
                if row["verdict"] == "passed":
                    row.update(verdict=verdict, why=f"in {name}", received=message)
                if verdict == "broken":
                    break

    def _check_alive(self) -> None:
        """Find out whether a server that was silent several times answers at all."""
        self.silences = 0
        try:
            with contextlib.closing(self.connect({})) as link:
                Talk(self, link, {}).barrier({})
        except Missing:
            return  # it refuses, so it lives
        except (Failed, NotSetUp, OSError) as failure:
            self.gone = f"{GIVEN_UP}: {show(failure.args[0])}"

    def finding(self, name: str, why: str) -> Json:
        """Make the row of something that no vector shows."""
        return {
            "id": name,
            "page": "run",
            "clause": "[JSON-RPC 2.0] §Response object",
            "level": "MUST",
            "rule": FINDINGS[name],
            "verdict": "broken",
            "why": why,
            "carrier": self.carrier,
            "revision": self.revision,
        }


def is_sure(link: Link, ended: bool, strange: bool) -> bool:
    """Say whether a missing answer breaks a rule: no page limits the time of a tool,
    and a server may do one thing at a time. After what is `strange` it may be lost."""
    waiting = {link.methods.get(name) for name in link.waiting}
    if ended or strange:
        waiting.discard("")  # a barrier shows only that the server has ended
    if ended:
        return bool(waiting) and not strange
    return bool(waiting) and "tools/call" not in waiting


def is_garbled(vector: Json, heard: list[Json]) -> bool:
    """Say whether a message came in another encoding: what else fails, may fail for
    that."""
    return "foreign" not in vector and any("utf8" in message for message in heard)


def take_link(links: dict[str, Link], kind: str, vector: Json) -> Link | None:
    """Take a used link, unless an id of the vector was used on it, too: a session has
    each id once."""
    given = {json.dumps(step["id"]) for step in vector["steps"] if "id" in step}
    link = links.pop(kind, None)
    if link and given & link.used:
        link.close()
        return None
    return link


def close_all(links: dict[str, Link]) -> None:
    """Close all links."""
    while links:
        links.popitem()[1].close()


def read_headers(lines: list[str]) -> Json:
    """Read lines `NAME: VALUE`."""
    parts = [line.partition(":") for line in lines]
    return {name.strip(): value.strip() for name, _, value in parts}


def is_url(text: str) -> bool:
    """Say whether the target is a server that is running."""
    return bool(re.match("https?://", text))


def find_halves(servers: list[Server], why: dict[Server, str]) -> list[Json]:
    """Find revisions that a server says it speaks, and does not."""
    rows = []
    listed = {version for server in servers for version in server.supported}
    offered = {server.offered for server in servers if server.offered}
    for server in servers:
        claim = ""
        if not why[server]:
            continue
        if server.carrier == "sse":
            broken = server.opened and server.offered is None
            claim = "an endpoint is named, which does not answer" if broken else ""
        elif server.slow:
            claim = "" if server.has else server.half_spoken()
        elif server.revision in offered:
            claim = "initialize offers this version, but is not answered with it"
        elif server.revision in listed:
            claim = "server/discover names this version"
        else:
            claim = server.half_spoken()
        if claim:
            text = f"{claim}; {why[server]}"
            rows.append(server.finding("half-spoken", text))
    return rows


# ---- the command


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; after a URL options may follow."""
    parser = report.make_parser(__doc__ or "")
    add = parser.add_argument
    add("--sse", default="", help="URL of HTTP+SSE (default: sse beside URL)")
    add("--header", action="append", default=[], help="'NAME: VALUE', over HTTP")
    add("--other", action="append", default=[], help="such a line of another user")
    add("--spec", help="a checkout of the specification: look up rules in it")
    add("--fresh", action="store_true", help="a new process for each vector")
    add("target", nargs="?", help="URL or COMMAND")
    add("arguments", nargs=argparse.REMAINDER, help="of the COMMAND")
    options = parser.parse_args(arguments)
    if options.target and is_url(options.target) and options.arguments:
        before = arguments[: len(arguments) - len(options.arguments) - 1]
        return parse([*before, *options.arguments, options.target])
    if not options.target and not options.spec:
        parser.error("URL or COMMAND is missing")
    return options


class Run:
    """A run: several revisions side by side."""

    def __init__(self, options: argparse.Namespace, recorder: report.Recorder) -> None:
        wanted = (options.revisions or ",".join(REVISIONS)).split(",")
        self.options, self.recorder = options, recorder
        self.servers = [Server(options, date) for date in wanted]
        self.pool = Pool(len(wanted), recorder.ends)
        for server in self.servers:
            server.turns = self.servers[0].turns

    def survey(self) -> dict[Server, str]:
        """Find out why a server does not speak a revision, or nothing if it does."""

        why = dict(
            self.pool.each(self.servers, lambda one, put: put((one, one.survey())))
        )
        names = [server.info for server in self.servers if server.info]
        self.recorder.head["server"] = names[0] if names else {}
        for server in self.servers:
            report.say(f"{server.carrier} {server.revision}:", why[server] or "spoken")
        return why

    def play(self, vectors: list[Json]) -> list[Json]:
        """Play all vectors in the revisions that are spoken; return the rows."""
        why = self.survey()
        rows = find_halves(self.servers, why)
        fitting = {
            server: [
                vector
                for vector in vectors
                if server.revision in vector["revisions"]
                and server.carrier in vector["carriers"]
            ]
            for server in self.servers
            if not why[server]
        }
        self.recorder.total = len(rows) + sum(map(len, fitting.values()))
        for row in rows:
            self.recorder.add(row)
        total = f"{self.recorder.total} outcomes to come"
        report.say(f"vectors {report.SET}: {len(vectors)} vectors, {total}")

        def play(server: Server, put: Put) -> None:
            server.play_all(fitting[server], self.options.fresh, put)

        for row in self.pool.each(fitting, play):
            self.recorder.add(row)
        return report.in_order(self.recorder.rows, vectors)

    def is_complete(self) -> bool:
        """Say whether all revisions that were insisted on are spoken."""
        return all(server.has for server in self.servers if self.options.revisions)


def check_target(options: argparse.Namespace) -> None:
    """Refuse a target that cannot be reached or started, before anything is played."""
    if is_url(options.target):
        url = urllib.parse.urlsplit(options.target)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            socket.create_connection(
                (url.hostname or "", port), options.timeout
            ).close()
        except OSError as problem:
            raise SystemExit(f"{options.target} cannot be reached: {problem}") from None
    elif not shutil.which(options.target):
        raise SystemExit(f"{options.target}: there is no such command")


def main() -> int:
    """Read the command line, play, report."""
    options = parse(sys.argv[1:])
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    vectors = report.read_vectors(FOLDER, check_steps)
    report.check_options(options, vectors)
    vectors = report.choose(vectors, options.only)
    sentences: dict[tuple[str, str], str] = {}
    if options.spec:
        index = spec.Index(pathlib.Path(options.spec))
        sentences = index.sentences(vectors)
        if not options.target:
            for path in sorted((FOLDER / "clients").glob("*.json")):
                vectors += report.read_file(path) if path.stem != "schema" else []
            return index.report(vectors)
    check_target(options)
    report.stop_on_signals()
    recorder, stopped = report.Recorder(options), ""
    run = Run(options, recorder)
    try:
        rows = run.play(vectors)
    except (KeyboardInterrupt, Stopped) as reason:
        stopped = str(reason) or "interrupted"
        rows = report.in_order(recorder.rows, vectors)
        kill_all()
    good = recorder.finish(options, rows, sentences, stopped)
    return int(not (run.is_complete() and good))


if __name__ == "__main__":
    sys.exit(main())
