"""Replay lessons: send their `>` lines to the library (server.py), compare what comes with `<`.

    $ python3 examples/transcripts/replay.py examples/transcripts/01_discover.md
    01_discover.md: as written

Differences are printed, and `--update` writes what came into the lesson. `--check N` checks an
attempt at exercise N: `replay.py --check 1 'YOUR MESSAGE'`.
"""
from __future__ import annotations

import contextlib
import io
import os
import queue
import re
import subprocess
import sys
import textwrap
import threading
from collections import namedtuple
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from runpy import run_path
from typing import Any

SERVER = Path(__file__).resolve().parent / "server.py"
sys.path.insert(0, str(SERVER.parents[2]))

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


# who: ">" the client, "<" the server, after a digit of the connection; start, stop: in the lesson
Step = namedtuple("Step", "who said start stop")


def read(lesson: str) -> list[list[Step]]:
    """Return the conversations of a lesson: one for each section."""
    sections: dict[int, list[Step]] = {}
    for block in re.finditer(r"(?ms)^```mcp\n(.*?)^```", lesson):
        steps = sections.setdefault(lesson.count("\n## ", 0, block.start()), [])
        lines = re.compile(r"(?m)^(\d?[<>]) (.*(?:\n(?!\d?[<>] ).*)*)\n")
        for found in lines.finditer(lesson, block.start(1), block.end(1)):
            said = re.sub(r'(?<!\n)\n +(?=["{[])', "", found[2])     # JSON that continues
            steps.append(Step(found[1], re.sub(r"\n +", "\n", said), found.start(), found.end()))
    return list(sections.values())


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
    for before, name in re.findall(r"(.{4,9})<([a-z ]+)>", written):
        found = re.search(re.escape(before) + r'([^"\s,}-]+)', came)
        if found:
            known.setdefault(name, found[1])
    written, came = fill(written, known), shown(came, written)
    start = len(os.path.commonprefix([written, came]))
    place = f"after ...{came[max(0, start - 30):start]} expected {written[start:start + 60]}"
    return "" if written == came else f"{place}... received {came[start:]}"


# ---- the library at the other end
class Pipe:
    """The library as a program, on standard input and output."""

    def __init__(self) -> None:
        self.server: Any = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1)
        self.timer = threading.Timer(PATIENCE, self.server.kill)
        self.timer.start()

    def send(self, said: str) -> None:
        with contextlib.suppress(OSError):      # it has exited, which the next line will tell
            if said == "(closes stdin)":
                self.server.stdin.close()
            else:
                self.server.stdin.write(said + "\n")

    def receive(self) -> str:
        return self.server.stdout.readline().strip() or "(exits)"

    def close(self) -> None:
        with self.server:
            self.server.stdin.close()
        self.timer.cancel()


class Request(mcp_ref.Exchange):
    """A request as text; the answer comes as texts: its head with the body, or then each event."""

    def __init__(self, said: str, endpoint: mcp_ref.Endpoint) -> None:
        head, _, body = said.partition("\n\n")
        start, *fields = head.split("\n")
        headers = {**HEADERS, **dict(field.partition(": ")[::2] for field in fields),
                   "Content-Length": str(len(body))}
        super().__init__(*f"{start} /".split()[:2], headers.items(), io.BytesIO(body.encode()))
        self.inbox: queue.Queue[str] = queue.Queue()
        threading.Thread(target=endpoint.serve, args=(self,), daemon=True).start()

    def receive(self) -> str:
        with contextlib.suppress(queue.Empty):
            return self.inbox.get(timeout=PATIENCE)
        return "(nothing)"

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *map(": ".join, headers.items())]
        self.inbox.put("\n".join([*head, "", (body or b"").decode()]).strip())

    def write(self, data: bytes) -> None:
        self.inbox.put(data.decode().strip())

    def end(self, hang_up: bool = False) -> None:
        self.inbox.put("(the stream ends)")


# ---- replaying, rewriting, checking
def replay(steps: list[Step]) -> Iterator[tuple[Step, str, str, dict[str, str]]]:
    """Hold a conversation; yield what comes for each "<", how it differs, and what names mean."""
    head = "POST /mcp HTTP/1.1\n" * any("HTTP/1.1" in step.said for step in steps)
    server: Any = mcp_ref.Endpoint(run_path(str(SERVER))["server"]) if head else Pipe()
    known, requests = dict(KNOWN), dict.fromkeys(["", "1", "2", "3"], server)
    def send(said: str, connection: str = "") -> None:
        if said == "(hangs up)":
            requests[connection].gone = lambda: True
        elif head:
            requests[connection] = Request(said, server)
        else:
            server.send(said)
    for step in steps:
        opens, connection = OPENED.fullmatch(step.said), step.who[:-1]
        if opens:
            send(head + "\n" * bool(head) + INITIALIZE % (opens[1], opens[2] or "{}"))
            difference("Mcp-Session-Id: <session>", requests[""].receive(), known)
            head += f"Mcp-Session-Id: {known.get('session')}\n" * bool(head)
            send(head + "\n" * bool(head) + INITIALIZED)
        elif step.who[-1] == ">":
            send(fill(step.said, known), connection)
        else:
            came = requests[connection].receive()
            yield step, came, difference(step.said, came, known), known
    server.close()


def lay_out(step: Step, came: str, known: dict[str, str]) -> str:
    """Return what came as lines of a lesson."""
    for name, value in sorted(known.items(), key=lambda item: f"<{item[0]}>" not in step.said):
        came = came.replace(value, f"<{name}>")
    came = re.sub(r'(?m)^(?=.{93,190}$)(.*?,)(?="(?:params|result|error)":)', "\\1\n", came)
    lines: list[str] = []
    for line in shown(came, step.said).split("\n"):
        line = re.sub(r'(?<=,)(?=["{[])', " ", line.replace(" ", "\0"))
        lines += textwrap.wrap(line, 96, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [line.replace(" ", "").replace("\0", " ") for line in lines]
    lines[1:] = ["    " * bool(line) + line for line in lines[1:]]
    return f"{step.who} " + "\n".join([*lines, ""])


def run(path: Path, update: bool) -> list[str]:
    """Replay a lesson, and rewrite it if that is wanted; return how it differs."""
    lesson, found, changes = path.read_text(encoding="utf-8"), [], []
    for steps in read(lesson):
        for step, came, problem, known in replay(steps):
            if problem:
                found.append(f"  line {lesson.count(chr(10), 0, step.start) + 1}: {problem}")
                changes.append((step, lay_out(step, came, known)))
    for step, lines in reversed(changes):
        lesson = lesson[:step.start] + lines + lesson[step.stop:]
    if update:
        path.write_text(lesson, encoding="utf-8")
    return found


def check(number: int, attempt: str) -> str:
    """Replay an exercise with an attempt in place of YOUR MESSAGE; return how it differs."""
    if '"jsonrpc":"2.0"' not in re.sub(r"\s", "", attempt):
        return 'every message is JSON with "jsonrpc": "2.0"'
    steps = read((SERVER.parents[1] / "exercises.md").read_text(encoding="utf-8"))[number - 1]
    steps = [step._replace(said=step.said.replace("YOUR MESSAGE", attempt)) for step in steps]
    return "\n".join(problem for _, _, problem, _ in replay(steps) if problem)


def main(words: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    if len(words) == 3 and words[0] == "--check":
        problem = check(int(words[1]), words[2].strip())
        print(problem or "right")
        return int(problem != "")
    if words in ([], ["--help"]) or words[0] == "--check":
        print(__doc__)
        return 2
    failed = 0
    for path in (Path(word) for word in words if word[0] != "-"):
        found = run(path, "--update" in words)
        failed += bool(found)
        print("\n".join([f"{path.name}:" + " as written" * (not found), *found]))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
