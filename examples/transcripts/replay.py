"""Hold the conversations of transcripts again, and say where they went another way.

    $ python3 examples/transcripts/replay.py examples/transcripts/03_call_a_tool.md | tail -1
    all went as it is written

It sends the `>` lines to the library (server.py), on a pipe or over HTTP, and compares what comes
with the `<` lines; a difference is shown under the line, after `!`. Change a `>` line in a copy of
a transcript, and see. `--stderr` shows what the server writes there.
"""
from __future__ import annotations

import contextlib
import http.client
import importlib.util
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from mcp_ref import Endpoint, Server, http_server

PATIENCE = 10                   # seconds to wait for a line; then it does not come
FENCE = "```"


class Step(NamedTuple):
    """One line of a conversation, put together if it stands on several."""
    way: str                    # ">" the client sends it, "<" the server does
    said: str
    connection: str             # over HTTP: the digit before `way`, if there are several
    number: int                 # of the line in the file


class Lesson(NamedTuple):
    """A transcript, as it was read."""
    title: str
    conversations: list[list[Step]]     # one for each section; each has a server of its own
    question: str
    answer: str                         # some of the lines above
    source: str


# ---- reading

def read(path: Path) -> Lesson:
    """Read a transcript: the blocks that are fenced as `mcp`, the question, and its answer."""
    source = path.read_text(encoding="utf-8")
    conversations: list[list[Step]] = []
    inside = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith(("# ", "## ")):
            conversations.append([])
        elif line.startswith(FENCE):
            inside = line == FENCE + "mcp"
        elif inside:
            add_line(conversations[-1], line, number)
    question = re.search(r"^\*\*Question\*\*: (.*?)\n\n", source, re.MULTILINE | re.DOTALL)
    answer = re.search(r"<summary>Answer</summary>\n\n```text\n(.*?)```", source, re.DOTALL)
    return Lesson(source.partition("\n")[0].lstrip("# "), [one for one in conversations if one],
                  question[1] if question else "", answer[1] if answer else "", source)


def add_line(steps: list[Step], line: str, number: int) -> None:
    """Add a line: a step, or, if it is indented, more of the last one."""
    begun = re.fullmatch(r"(\d?)([<>])(?: (.*))?", line)
    if begun:
        steps.append(Step(begun[2], begun[3] or "", begun[1], number))
    elif line.startswith(" ") and steps:
        steps[-1] = steps[-1]._replace(said=steps[-1].said + line.strip())
    else:
        raise ValueError(f"line {number} is neither > nor < nor more of such: {line}")


def is_http(steps: list[Step]) -> bool:
    """Tell whether a conversation is held over HTTP."""
    return re.fullmatch(r"[A-Z]+ /\S* HTTP/1\.1", steps[0].said) is not None


# ---- what differs from run to run: <name> in a transcript

NAME = re.compile(r"<([a-z][a-z -]*)>")


def fill(said: str, known: dict[str, str]) -> str:
    """Put what is known in the place of names."""
    return NAME.sub(lambda found: known.get(found[1], found[0]), said)


def is_as_written(written: str, came: str, known: dict[str, str]) -> bool:
    """Compare a line; learn from it what the names in it stand for."""
    pattern, names = "", []
    for number, part in enumerate(NAME.split(written)):
        if number % 2 == 0 or part in known:
            pattern += re.escape(known[part] if number % 2 else part)
        else:
            pattern += r'([^"\s]+)'
            names.append(part)
    found = re.fullmatch(pattern, came)
    if found:
        known.update((name, value) for name, value in zip(names, found.groups())
                     if name != "length")           # of one body, not of the next
    return found is not None


# ---- holding a conversation

Tell = Callable[[Step, str, str], Any]      # a step, what it was, and what is wrong with that


def hold(steps: list[Step], carrier: Any, tell: Tell) -> list[str]:
    """Hold a conversation, and return all that went another way."""
    known: dict[str, str] = {}
    problems = []
    for step in steps:
        if step.way == ">":
            said, problem = fill(step.said, known), ""
            carrier.send(said, step.connection)
        elif step.said == SHUTS_DOWN and isinstance(carrier, Http):
            said, problem = step.said, ""
            carrier.endpoint.close()
        else:
            said, problem = carrier.receive(step.connection), ""
            if not is_as_written(step.said, said, known):
                problem = f"line {step.number} says: {fill(step.said, known)}"
                problems.append(f"{problem}\nbut there came: {said}")
        tell(step, said, problem)
    for said in carrier.close():
        problems.append(f"the transcript ends, but there came: {said}")
        tell(Step("<", said, "", 0), said, "the transcript says nothing of it")
    return problems


NOTHING = "(nothing)"
CLOSES, EXITS = "(closes standard input)", "(exits)"
HANGS_UP, LOST, ENDS = "(hangs up)", "(loses the connection)", "(ends the stream)"
SHUTS_DOWN = "(shuts down)"             # the server does; over HTTP alone we can make it do that


class Process:
    """The library as a program of its own, on standard input and output, as hosts start servers."""

    def __init__(self) -> None:
        self.heard: list[str] = []                      # on standard error
        self.inbox: queue.Queue[str] = queue.Queue()
        self.server = subprocess.Popen(
            [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", bufsize=1)
        self.threads = [threading.Thread(target=self.read_output, daemon=True),
                        threading.Thread(target=self.read_errors, daemon=True)]
        for thread in self.threads:
            thread.start()

    def read_output(self) -> None:
        """Take what the server says; a thread does this."""
        assert self.server.stdout
        for line in self.server.stdout:
            self.inbox.put(line.rstrip("\n"))
        self.inbox.put(EXITS)

    def read_errors(self) -> None:
        """Take what the server writes to standard error, which is no part of the conversation."""
        assert self.server.stderr
        self.heard.extend(line.rstrip("\n") for line in self.server.stderr)

    def send(self, said: str, _: str = "") -> None:
        """Send a line."""
        assert self.server.stdin
        if said == CLOSES:
            self.server.stdin.close()
        else:
            with contextlib.suppress(OSError):          # it is gone; then nothing will come
                self.server.stdin.write(said + "\n")

    def receive(self, _: str = "") -> str:
        """Return the next line that comes."""
        try:
            return self.inbox.get(timeout=PATIENCE)
        except queue.Empty:
            return NOTHING

    def close(self) -> list[str]:
        """End the server by closing its input; return what it still says."""
        assert self.server.stdin and self.server.stdout and self.server.stderr
        self.server.stdin.close()
        try:
            self.server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.server.kill()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.server.stdout.close()
        self.server.stderr.close()
        return [line for line in self.inbox.queue if line != EXITS]


def new_library() -> Server:
    """Return a library of its own in this process: nothing is lent but what always is."""
    spec = importlib.util.spec_from_file_location("library", HERE / "server.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Server = module.server
    return made


class Http:
    """The library at a free port of this machine, and connections to it, by their digit."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(new_library())
        self.httpd = http_server(self.endpoint)
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.005,), daemon=True)
        self.thread.start()
        self.connections: dict[str, Connection] = {}

    def send(self, said: str, connection: str) -> None:
        """Send a line of a request."""
        if connection not in self.connections:
            self.connections[connection] = Connection(self.httpd.server_port)
        self.connections[connection].send(said)

    def receive(self, connection: str) -> str:
        """Return the next line of an answer."""
        return next(self.connections[connection].lines, NOTHING)

    def close(self) -> list[str]:
        """Hang up, end the server, return what nobody has read."""
        rest = [line for connection in self.connections.values() for line in connection.close()]
        deadline = time.monotonic() + PATIENCE
        while not all(reply.gone for reply in list(self.endpoint.replies)) \
                and time.monotonic() < deadline:
            time.sleep(0.01)        # until it has noticed that nobody is there any more
        self.httpd.close()
        self.thread.join(PATIENCE)
        return rest


class Connection:
    """One connection to the HTTP server: requests go out, and come back as lines."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket: Any = None             # until there is something to send
        self.head: list[str] = []           # of the request that is not complete
        self.lines: Iterator[str] = iter(())
        self.response: Any = None
        self.rest: list[str] = []           # what had come when we hung up, and was not read

    def send(self, said: str) -> None:
        """Take a line of a request: with the empty one, or with a body after it, it goes out."""
        if said in (HANGS_UP, LOST):
            self.close()
            self.rest = self.rest if said == HANGS_UP else []
        elif self.head and self.head[-1] == "":
            self.send_request(said)
        else:
            self.head.append(said)
            if said == "" and not any(line.startswith("Content-Length") for line in self.head):
                self.send_request("")

    def send_request(self, body: str) -> None:
        """Send a whole request; its answer can be read then, line by line."""
        if self.socket is None or self.response.will_close:
            self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        encoded = body.encode()
        head = "\r\n".join([*self.head, ""]).replace("<length>", str(len(encoded)))
        self.socket.sendall(head.encode() + encoded)
        self.response = http.client.HTTPResponse(self.socket, method=self.head[0].split()[0])
        self.head = []
        self.lines = self.read_answer()

    def read_answer(self) -> Iterator[str]:
        """Yield the lines of an answer: its head, then its body, or a stream as it comes."""
        answer = self.response
        with contextlib.suppress(OSError):              # nothing more came in time
            answer.begin()
            yield f"HTTP/1.1 {answer.status} {answer.reason}"
            yield from (f"{name}: {value}" for name, value in answer.getheaders())
            yield ""
            if answer.getheader("Content-Type") != "text/event-stream":
                yield from answer.read().decode().splitlines()
                return
            for line in answer:
                yield line.decode().rstrip()
            yield ENDS

    def close(self) -> list[str]:
        """Hang up; return what has come and was not read."""
        if self.socket is not None:
            self.socket.settimeout(0.01)
            self.rest = list(self.lines)
            self.response.close()
            self.socket.close()
            self.socket, self.lines = None, iter(())
        return self.rest


# ---- the command

def show(step: Step, said: str, problem: str) -> None:
    """Print a step, and what is wrong with it."""
    print(f"{step.connection}{step.way} {said}".rstrip())
    if problem:
        print("! " + problem)


def main(arguments: list[str]) -> int:
    """Replay the files that are named; return how many conversations went another way."""
    paths = [Path(word) for word in arguments if not word.startswith("-")]
    if not paths or set(arguments) & {"-h", "--help"}:
        print(__doc__)
        return 0
    failed = 0
    for path in paths:
        lesson = read(path)
        print(f"{path.name}: {lesson.title}")
        for steps in lesson.conversations:
            carrier = Http() if is_http(steps) else Process()
            print()
            failed += bool(hold(steps, carrier, show))
            if "--stderr" in arguments and isinstance(carrier, Process):
                print("\n".join(["", "On standard error:", *carrier.heard]))
        print()
    print(f"{failed} went another way: see after !" if failed else "all went as it is written")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
