"""Replay lessons: send their `>` lines to the library (server.py), compare what comes with `<`.

    $ python3 examples/transcripts/replay.py examples/transcripts/01_discover.md
    01_discover.md: as written

Differences are printed, and `--update` writes what came into the lesson. `--check N` checks an
attempt at exercise N: `replay.py --check 1 'YOUR MESSAGE'`.
"""
from __future__ import annotations

import contextlib
import http
import io
import os
import queue
import re
import runpy
import subprocess
import sys
import textwrap
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import mcp_ref

PATIENCE = 5                    # seconds to wait for an answer
NAME = re.compile(r"<([a-z][a-z ]*)>")
META = ('{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        '"io.modelcontextprotocol/clientCapabilities":{%s}}')
KNOWN = {                       # names that stand for the same text in all lessons
    "meta": META % "", "meta with forms": META % '"elicitation":{}',
    "server": '{"io.modelcontextprotocol/serverInfo":{"name":"library","version":"1.0"}}'}
HEADERS = {"Host": "localhost:8000", "Content-Type": "application/json",
           "Accept": "application/json, text/event-stream"}
OPENED = re.compile(r"\(a session of (\S+) is open(?:: (.*))?\)")
INITIALIZE = ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s",'
              '"capabilities":%s,"clientInfo":{"name":"reader","version":"1.0"}}}')
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


# who: ">" the client, "<" the server, after a digit of the connection; lines: of the lesson
Step = namedtuple("Step", "who said lines")


def read(lesson: str) -> list[list[Step]]:
    """Return the conversations of a lesson: one for each section."""
    sections: list[list[Step]] = [[]]
    inside = False
    for number, line in enumerate(lesson.splitlines()):
        marked = re.fullmatch(r"(\d?[<>]) (.*)", line)
        if line.startswith("## "):
            sections.append([])
        elif line.startswith("```"):
            inside = line == "```mcp"
        elif inside and marked:
            sections[-1].append(Step(marked[1], marked[2], range(number, number + 1)))
        elif inside:
            who, said, lines = sections[-1].pop()
            is_json = line.strip().startswith(('"', "{", "[")) and not said.endswith("\n")
            said += ("" if is_json else "\n") + line.strip()
            sections[-1].append(Step(who, said, range(lines.start, number + 1)))
    return [steps for steps in sections if steps]


# ---- comparing

def fill(said: str, known: dict[str, str]) -> str:
    """Replace the names that are known."""
    return NAME.sub(lambda found: known.get(found[1], found[0]), said)


def shown(came: str, written: str) -> str:
    """Leave out HTTP headers that a lesson does not show."""
    return "\n".join(line for line in came.split("\n") if not re.match(r"[A-Z][\w-]+: ", line)
                     or f"\n{line.split(':')[0]}:" in written)


def difference(written: str, came: str, known: dict[str, str]) -> str:
    """Show where two texts differ; learn what the names in the first one stand for."""
    for before, name in re.findall(r"(.{5,9})<([a-z ]+)>", written):
        found = re.search(re.escape(before) + r'([^"\s,}]+)', came)
        if found:
            known.setdefault(name, found[1])
    written, came = fill(written, known), shown(came, written)
    start = len(os.path.commonprefix([written, came]))
    return "" if written == came else f"after ...{came[max(0, start - 30):start]} the lesson has " \
        f"{written[start:start + 60]}... but {came[start:]} came"


# ---- the library at the other end

class Pipe:
    """The library as a program, on standard input and output."""

    def __init__(self) -> None:
        self.server: Any = subprocess.Popen(
            [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1)
        self.timer = threading.Timer(PATIENCE, self.server.kill)
        self.timer.start()

    def send(self, said: str, connection: str) -> None:
        if said == "(closes stdin)":
            self.server.stdin.close()
            return
        with contextlib.suppress(OSError):      # it has exited, which the next line will tell
            self.server.stdin.write(said + "\n")

    def receive(self, connection: str) -> str:
        return self.server.stdout.readline().strip() or "(exits)"

    def close(self) -> None:
        with self.server:
            self.server.stdin.close()
        self.timer.cancel()


class Http:
    """The library's HTTP endpoint, and requests to it by the digit of their connection."""

    def __init__(self) -> None:
        self.endpoint = mcp_ref.Endpoint(runpy.run_path(str(HERE / "server.py"))["server"])
        self.close = self.endpoint.close
        self.requests: dict[str, HttpRequest] = {}
        self.streams: list[str] = []        # their ids; a lesson calls them s1, s2, ...

    def send(self, said: str, connection: str) -> None:
        if said == "(hangs up)":
            self.requests[connection].hung_up = True
            return
        said = re.sub(r"(?<=Last-Event-ID: )s(\d)", lambda found: self.streams[
            int(found[1]) - 1], said)
        request = self.requests[connection] = HttpRequest(said)
        threading.Thread(target=self.endpoint.serve, args=(request,), daemon=True).start()

    def receive(self, connection: str) -> str:
        with contextlib.suppress(queue.Empty):
            came = self.requests[connection].inbox.get(timeout=PATIENCE)
            return re.sub(r"(?m)(?<=^id: )\w{32}", self.shorten, came)
        return "(nothing)"

    def shorten(self, ident: re.Match[str]) -> str:
        if ident[0] not in self.streams:
            self.streams.append(ident[0])
        return f"s{self.streams.index(ident[0]) + 1}"


class HttpRequest(mcp_ref.Exchange):
    """A request as text; the answer comes as texts: its head with the body, or then each event."""
    hung_up = False

    def __init__(self, said: str) -> None:
        head, _, body = said.partition("\n\n")
        start, *fields = head.split("\n")
        headers = {**HEADERS, **dict(field.partition(": ")[::2] for field in fields),
                   "Content-Length": str(len(body))}
        super().__init__(*f"{start} /".split()[:2], headers.items(), io.BytesIO(body.encode()))
        self.inbox: queue.Queue[str] = queue.Queue()

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        start = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"
        head = "\n".join([start, *map(": ".join, headers.items())])
        self.inbox.put(f"{head}\n\n{(body or b'').decode()}".strip())

    def write(self, data: bytes) -> None:
        for event in data.decode().strip().split("\n\n"):
            self.inbox.put(event)

    def end(self, hang_up: bool = False) -> None:
        self.inbox.put("(the stream ends)")

    def gone(self) -> bool:
        return self.hung_up


# ---- replaying, rewriting, checking

def replay(steps: list[Step]) -> Iterator[tuple[Step, str, str, dict[str, str]]]:
    """Hold a conversation; yield what comes for each "<", how it differs, and what names mean."""
    head = "POST /mcp HTTP/1.1\n" * any("HTTP/1.1" in step.said for step in steps)
    carrier = Http() if head else Pipe()
    known = dict(KNOWN)
    for step in steps:
        opens = OPENED.fullmatch(step.said)
        if opens:
            blank = "\n" * bool(head)
            carrier.send(head + blank + INITIALIZE % (opens[1], opens[2] or "{}"), "")
            difference("\nMcp-Session-Id: <session>", carrier.receive(""), known)
            if head:
                head += f"Mcp-Session-Id: {known['session']}\n"
            carrier.send(head + blank + INITIALIZED, "")
        elif step.who[-1] == ">":
            carrier.send(fill(step.said, known), step.who[:-1])
        else:
            came = carrier.receive(step.who[:-1])
            yield step, came, difference(step.said, came, known), known
    carrier.close()


def lay_out(step: Step, came: str, known: dict[str, str]) -> list[str]:
    """Return what came as lines of a lesson."""
    for name, value in sorted(known.items(), key=lambda item: f"<{item[0]}>" not in step.said):
        came = came.replace(value, f"<{name}>")
    came = re.sub(r'(?m)^(?=.{93,190}$)(.*?,)(?="(?:params|result|error)":)', "\\1\n", came)
    lines: list[str] = []
    for line in shown(came, step.said).split("\n"):
        line = re.sub(r'(?<=,)(?=["{[])', " ", line.replace(" ", "\0"))
        lines += textwrap.wrap(line, 96, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [line.replace(" ", "").replace("\0", " ") for line in lines]
    return [f"{step.who} {lines[0]}", *("    " * bool(line) + line for line in lines[1:])]


def run(path: Path, update: bool) -> list[str]:
    """Replay a lesson, and rewrite it if that is wanted; return how it differs."""
    lines = [[line] for line in path.read_text(encoding="utf-8").split("\n")]
    found = []
    for steps in read("\n".join(line for line, in lines)):
        for step, came, problem, known in replay(steps):
            if problem:
                found.append(f"  line {step.lines.start + 1}: {problem}")
                lines[step.lines.start] = lay_out(step, came, known)
                lines[step.lines.start + 1:step.lines.stop] = [[] for _ in step.lines[1:]]
    if update and found:
        path.write_text("\n".join(line for group in lines for line in group), encoding="utf-8")
    return found


def check(number: int, attempt: str) -> str:
    """Replay an exercise with an attempt in place of YOUR MESSAGE; return how it differs."""
    if '"jsonrpc":"2.0"' not in re.sub(r"\s", "", attempt):
        return 'every message has "jsonrpc": "2.0"'
    steps = read((HERE.parent / "exercises.md").read_text(encoding="utf-8"))[number - 1]
    steps = [step._replace(said=step.said.replace("YOUR MESSAGE", attempt)) for step in steps]
    return "\n".join(problem for _, _, problem, _ in replay(steps) if problem)


def main(words: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    if len(words) == 3 and words[0] == "--check":
        problem = check(int(words[1]), words[2].strip())
        print(problem or "right")
        return int(problem != "")
    if words in ([], ["--help"]):
        print(__doc__)
    failed = 0
    for path in (Path(word) for word in words if word[0] != "-"):
        found = run(path, "--update" in words)
        failed += bool(found)
        print("\n".join([f"{path.name}:" + " as written" * (not found), *found]))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
