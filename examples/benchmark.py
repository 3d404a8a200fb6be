#!/usr/bin/env python3
"""Measure a server made with mcp_ref against a bare loop, side by side, and check every answer.

    python3 examples/benchmark.py             all rounds, under two minutes
    python3 examples/benchmark.py --quick     few rounds, about 20 seconds

The *bare loop* is the least that a Python program can do: read a line, `json.loads`, call the
function, `json.dumps`, write, flush. It knows no protocol and checks nothing. For HTTP it is the
least that a handler of `http.server` can do, with sound settings: connections are kept, an answer
is one write, nothing is logged, many may connect at once. What this program prints is how many
times that our server costs. Times alone say more of the machine than of the server; a ratio,
measured in one run, can be compared from one machine to the next.

How it is measured. A round measures the one program and then the other, the next round the other
way round, so that a machine that grows slower or busier meanwhile is unjust to both alike. `base`
and `ours` are the medians of the rounds; each round has a ratio of its own, and `ratio` is the
median of those, `rounds` the smallest and the largest. An answer is checked, id and result, when
the clock has stopped; a wrong one, a missing one and one too many make a row MISSED, as being slow
does.

The exit status is 0 if every target is met, 1 otherwise. A target with a unit is one for `ours`,
one without is for the ratio. The targets stand in the table ROWS; the
columns behind them say what the best other Python implementation of MCP needs, and the official
SDK for Python; those were measured on another day, against a loop like this one (and clients at
once were 16, not 64).
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, NoReturn

MODULE = Path(__file__).resolve().parent.parent / "mcp_ref.py"
WARM_UP = 300               # calls before the clock starts: caches, specialised bytecode
LOOK_SECONDS = 0.0005       # how long the client of `pipelined` sleeps between two looks
LIMIT_SECONDS = 30.0        # a child that lives longer is killed, so nothing here waits for ever
CLIENTS = 64                # of the row "clients at once"
STREAMS = 200               # of the rows about idle streams
TOOL_SECONDS = 0.2          # that the slow tool sleeps

# The same flags for every child, so that the base is fair. -E: no PYTHON... variables, since
# PYTHONDONTWRITEBYTECODE and PYTHONUNBUFFERED would measure something that real hosts do not have.
# -S: no site-packages. What is installed there, .pth files above all, can cost more than all the
# rest of a start; it would be added to both sides, and make our ratio look better than it is.
FLAGS = ("-E", "-S")


class WrongAnswer(Exception):
    """A server said something else than it should have, or nothing."""


class NotMeasured(Exception):
    """This machine has no means to measure it."""


# ==========================================================================================
# The programs that are measured
#
# They are written to a temporary directory, beside a copy of mcp_ref.py: Python keeps the bytecode
# of what it imports in a directory next to it, and nothing is to be written to the repository.
# ==========================================================================================

# `INITIALIZED` is put in front of it: our server's own answer, so that both send the same.
BARE = """
import json
import sys

def echo(text):
    return text

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = INITIALIZED
    else:
        text = echo(**message["params"]["arguments"])
        result = {"content": [{"type": "text", "text": text}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""

OURS = """
from mcp_ref import Server
server = Server("bench")

@server.tool
def echo(text: str) -> str:
    return text

server.run()
"""

MANY_TOOLS = """
from mcp_ref import Server
server = Server("bench")

def echo(text: str) -> str:
    return text

for name in NAMES:
    server.tool(echo, name=name)

server.run()
"""


# The two servers for HTTP: they print their port, and end when their standard input does. The bare
# one sends by hand what the client reads, since `send_response` and its friends would cost it more.
# `META` and `ACKNOWLEDGED`, which both have to send, are put in front of the bare one.
BARE_HTTP = """
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

def echo(text):
    return text

def slow(text):
    time.sleep(TOOL_SECONDS)
    return text

TOOLS = {"echo": echo, "slow": slow}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message["method"] == "subscriptions/listen":
            self.listen(message)
        params = message["params"]
        text = TOOLS[params["name"]](**params["arguments"])
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}],
                  "_meta": META}
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\n"
                         b"Content-Length: %d\\r\\n\\r\\n%s" % (len(answer), answer))

    def listen(self, message):
        event = ACKNOWLEDGED.replace("ID", str(message["id"])).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n"
                         b"Transfer-Encoding: chunked\\r\\n\\r\\n"
                         b"%x\\r\\n%s\\r\\n" % (len(event), event))
        threading.Event().wait()

    def log_message(self, *_):
        pass

class HttpServer(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def server_bind(self):
        TCPServer.server_bind(self)
        self.server_port = self.server_address[1]

httpd = HttpServer(("127.0.0.1", 0), Handler)
"""

OURS_HTTP = """
import sys
import threading
import time
from mcp_ref import Endpoint, Server, http_server
server = Server("bench")

@server.tool
def echo(text: str) -> str:
    return text

@server.tool
def slow(text: str) -> str:
    time.sleep(TOOL_SECONDS)
    return text

# The hosts that serve_http() allows by default, too.
httpd = http_server(Endpoint(server, hosts=["localhost", "127.0.0.1", "::1"]))
"""

RUN_HTTP = """
threading.Thread(target=httpd.serve_forever, daemon=True).start()
print(httpd.server_port, flush=True)
sys.stdin.read()
"""


class Program(NamedTuple):
    """One server, as a file that can be started."""
    path: Path
    tools: list[str]        # names of those that are called, in turn
    initialized: Any        # the result of `initialize` that it has to give; None for HTTP
    streams: int = 0        # that are open while it is measured
    client: bool = False    # it is our own client that calls


def write_programs(folder: Path) -> dict[str, Program]:
    """Write all programs to a directory, and return them by the names that ROWS uses."""
    shutil.copyfile(MODULE, folder / "mcp_ref.py")
    ours = write_program(folder, "ours", OURS, ["echo"], None)
    initialized = learn(ours)
    prefix = f"INITIALIZED = {initialized!r}\n"
    slow = f"TOOL_SECONDS = {TOOL_SECONDS}\n"
    told = slow + f"META = {META_OF_RESULT!r}\nACKNOWLEDGED = {ACKNOWLEDGED!r}\n"
    http = write_program(folder, "ours_http", slow + OURS_HTTP + RUN_HTTP, ["echo"], None)
    return {
        "bare": write_program(folder, "bare", prefix + BARE, ["echo"], initialized),
        "ours": ours._replace(initialized=initialized),
        "10 tools": write_many(folder, 10, initialized),
        "10,000 tools": write_many(folder, 10_000, initialized),
        "bare HTTP": write_program(folder, "bare_http", told + BARE_HTTP + RUN_HTTP, ["echo"],
                                   None),
        "HTTP": http,
        "HTTP, idle streams": http._replace(streams=STREAMS),
        "our client": ours._replace(client=True),
    }


def write_program(folder: Path, name: str, source: str, tools: list[str],
                  initialized: Any) -> Program:
    """Write one program to `folder`."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return Program(path, tools, initialized)


def write_many(folder: Path, count: int, initialized: Any) -> Program:
    """Write our server with `count` tools, ten of which are called, whatever `count` is.

    The row is about tools that are registered, and a model uses few of them. To call all of them
    in turn would measure something else: how far the processor's caches reach.
    """
    names = [f"echo_{number:05}" for number in range(count)]    # equally long for every count
    source = f"NAMES = [f'echo_{{number:05}}' for number in range({count})]\n" + MANY_TOOLS
    return write_program(folder, f"tools_{count}", source, names[::count // 10], initialized)


def learn(ours: Program) -> Any:
    """Ask our server what it answers to `initialize`; this start also fills the bytecode cache."""
    with Child(ours) as child:
        child.write(INITIALIZE)
        result = parse(child.output.readline()).get("result")
        child.finish()
    if not isinstance(result, dict) or result.get("protocolVersion") != VERSION \
            or result.get("serverInfo", {}).get("name") != "bench" \
            or "tools" not in result.get("capabilities", {}):
        raise WrongAnswer(f"our server answers `initialize` by {result}")
    if not list(ours.path.parent.glob("__pycache__/mcp_ref.*.pyc")):
        raise WrongAnswer("there is no bytecode cache: starts would be measured with compiling")
    return result


# ==========================================================================================
# Messages
# ==========================================================================================

VERSION = "2025-11-25"      # a revision that still has `initialize`


def line_of(**members: Any) -> bytes:
    """Return a message as the line that goes over the pipe."""
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode() + b"\n"


INITIALIZE = line_of(id=0, method="initialize", params={
    "protocolVersion": VERSION, "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"}})
READY = line_of(method="notifications/initialized")


def call(program: Program, number: int) -> bytes:
    """Return call `number`: no two have the same text, so that none can answer for another."""
    return line_of(id=number, method="tools/call", params={
        "name": program.tools[number % len(program.tools)],
        "arguments": {"text": f"text {number}"}})


def parse(line: bytes) -> dict[str, Any]:
    """Return the response in a line, if it is one to us: our ids are integers."""
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    # type(), since True == 1 and 1.0 == 1, and neither is the id that was sent.
    if not isinstance(answer, dict) or type(answer.get("id")) is not int:
        wrong(line or b"nothing at all")
    return answer


def check(answer: dict[str, Any], number: int, result: Any = None) -> None:
    """Raise WrongAnswer unless `answer` is what request `number` has to get, and no more."""
    if result is None:
        result = {"content": [{"type": "text", "text": f"text {number}"}]}
    if answer != {"jsonrpc": "2.0", "id": number, "result": result}:
        wrong(answer, f" to request {number}")


def check_any_order(lines: Iterable[bytes], numbers: range) -> None:
    """Check answers that may come in any order: one to each request, and nothing else."""
    pending = set(numbers)
    for answer in map(parse, lines):
        number = answer["id"]
        if number not in pending:
            wrong(answer, ", which is to no open request")
        pending.remove(number)
        check(answer, number)
    if pending:
        wrong(b"nothing", f" to {len(pending)} requests")


def wrong(what: Any, why: str = "") -> NoReturn:
    """Raise WrongAnswer, with the answer in it as far as it fits."""
    shown = what.decode("utf-8", "replace") if isinstance(what, bytes) else json.dumps(what)
    raise WrongAnswer(f"{shown.strip()[:300]}{why}")


# ---- over HTTP

MODERN = "2026-07-28"       # has no `initialize`, and no sessions
META_OF_RESULT = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1.0"}}
ACKNOWLEDGED = ('data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",'
                '"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID},'
                '"notifications":{"toolsListChanged":true}}}\n\n')


def post(number: int, method: str, params: dict[str, Any]) -> bytes:
    """Return a request as the bytes that go over the connection.

    The headers are those that the official SDK for Python sends, neither more nor fewer: reading
    them is a third of the bare handler's time.
    """
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {}}
    body = line_of(id=number, method=method, params={**params, "_meta": meta}).rstrip()
    head = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Accept: application/json, text/event-stream",
            "Accept-Encoding: gzip, deflate", "Connection: keep-alive", "User-Agent: benchmark/1",
            f"Content-Length: {len(body)}", "Content-Type: application/json",
            f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}",
            *([f"Mcp-Name: {params['name']}"] if "name" in params else []), "", ""]
    return "\r\n".join(head).encode() + body


def post_call(number: int, tool: str = "echo") -> bytes:
    """Return call `number` as a POST."""
    return post(number, "tools/call", {"name": tool, "arguments": {"text": f"text {number}"}})


def check_http(answer: bytes, number: int) -> None:
    """Raise WrongAnswer unless `answer`, head and body, is what call `number` has to get."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    if lines[0] != b"http/1.1 200 ok" or b"content-type: application/json" not in lines:
        wrong(answer, f" to call {number}")
    check(parse(body), number, {
        "resultType": "complete", "content": [{"type": "text", "text": f"text {number}"}],
        "_meta": META_OF_RESULT})


def check_stream(answer: bytes, number: int) -> None:
    """Raise WrongAnswer unless `answer` opens stream `number`, and says no more than it has to."""
    head, _, body = answer.partition(b"\r\n\r\n")
    size, _, event = body.partition(b"\r\n")
    expected = ACKNOWLEDGED.replace("ID", str(number)).encode()
    if not head.startswith(b"HTTP/1.1 200 OK\r\n") or event != expected + b"\r\n" \
            or int(size, 16) != len(expected) \
            or b"content-type: text/event-stream" not in head.lower().split(b"\r\n"):
        wrong(answer, f" to request {number}")


# ==========================================================================================
# A child: a program that runs, and the two pipes to it
# ==========================================================================================


class Child:
    """One running server. Use it in a `with` statement: the process is ended whatever happens."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process = subprocess.Popen(
            [sys.executable, *FLAGS, str(program.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Writing is not buffered, as a client's is not; reading is: one system call, many answers.
        self.input: Any = self.process.stdin
        self.output: Any = self.process.stdout
        self.writer: threading.Thread | None = None
        self.watchdog = threading.Timer(LIMIT_SECONDS, self.process.kill)
        self.watchdog.daemon = True

    def __enter__(self) -> Child:  # noqa: PYI034  Self is younger than Python 3.9
        self.watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()        # does nothing if it has ended and was waited for
        self.process.wait()             # the watchdog ends it if nothing else does
        self.watchdog.cancel()
        if self.writer is not None:
            self.writer.join()          # nobody reads what it writes any more, so it ends
        self.input.close()
        self.output.close()

    def write(self, data: bytes) -> None:
        """Write all of `data`: a pipe may take less than all at once."""
        while data:
            data = data[os.write(self.input.fileno(), data):]

    def write_in_background(self, data: bytes) -> None:
        """Write on a thread, since the pipe is full before the first answer is read."""
        def write() -> None:
            try:
                self.write(data)
            except OSError:             # the child has ended; whoever reads its answers sees it
                pass
        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def read_lines(self, count: int) -> bytes:
        """Read `count` lines, and what came along with them; they are not looked at here.

        A reader that waited in read() would be woken by every single answer, and that takes time
        from the one who writes: up to 3 microseconds, where the bare loop needs 6 for the whole
        call. It would make our ratio look better than it is. So this reader sleeps, and looks.
        """
        chunks, missing = [], count
        while missing > 0:
            time.sleep(LOOK_SECONDS)
            chunk = self.output.read1(2**16)
            if not chunk:
                wrong(b"the end", f" where {missing} more answers belong")
            chunks.append(chunk)
            missing -= chunk.count(b"\n")
        return b"".join(chunks)

    def initialize(self) -> None:
        """Do the handshake, so that the server takes calls."""
        self.write(INITIALIZE)
        check(parse(self.output.readline()), 0, self.program.initialized)
        self.write(READY)

    def trips(self, numbers: range) -> list[float]:
        """Make calls one after the other; return the seconds of each."""
        write, pipe = os.write, self.input.fileno()
        readline, clock = self.output.readline, time.perf_counter
        answers, seconds = [], []
        for line in [call(self.program, number) for number in numbers]:
            begin = clock()
            write(pipe, line)
            answer = readline()
            seconds.append(clock() - begin)
            answers.append(answer)
            if not answer:
                wrong(b"the end", " where an answer belongs, to " + line.decode().strip())
        for answer, number in zip(answers, numbers):
            check(parse(answer), number)
        return seconds

    def finish(self) -> None:
        """Close the pipe: the server ends by itself, and has nothing more to say."""
        self.input.close()
        rest = self.output.read()
        if rest:
            wrong(rest, ", which nobody asked for")
        status = self.process.wait()
        if status != 0:
            raise WrongAnswer(f"{self.program.path.name} ended with status {status}")


class HttpChild(Child):
    """One running server for HTTP. It ends when its standard input does: finish() works as well."""

    def __enter__(self) -> HttpChild:  # noqa: PYI034
        super().__enter__()
        line = self.output.readline()
        if not line.strip().isdigit():
            self.__exit__()
            wrong(line or b"nothing at all", " where the port belongs")
        self.port = int(line)
        return self


class Connection:
    """One client's connection to a server. Use it in a `with` statement.

    It is a socket, and reads by Content-Length; a client library would cost more than the server.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send = self.socket.sendall
        self.pending = b""              # what came of an answer that is not complete

    def __enter__(self) -> Connection:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def take(self) -> bytes:
        """Read what is there; return the answer if it is complete, else b""."""
        chunk = self.socket.recv(2**16)
        if not chunk:
            wrong(self.pending or b"the end", " where a whole answer belongs")
        answer = self.pending + chunk
        length = LENGTH(answer)
        if length is None or len(answer) < length.end() + int(length[1]):
            self.pending = answer
            return b""
        self.pending = b""
        return answer                   # with what is too much, which the check then finds

    def answer(self) -> bytes:
        """Wait for an answer, and return it whole: head and body."""
        answer = self.take()
        while not answer:
            answer = self.take()
        return answer

    def trips(self, numbers: range) -> list[float]:
        """Make calls one after the other; return the seconds of each."""
        send, receive, clock = self.send, self.answer, time.perf_counter
        answers, seconds = [], []
        for request in [post_call(number) for number in numbers]:
            begin = clock()
            send(request)
            answer = receive()
            seconds.append(clock() - begin)
            answers.append(answer)
        for answer, number in zip(answers, numbers):
            check_http(answer, number)
        return seconds

    def listen(self, number: int) -> None:
        """Open a stream, and read what it starts with."""
        self.send(post(number, "subscriptions/listen",
                       {"notifications": {"toolsListChanged": True}}))
        answer = b""
        while not answer.endswith(b"\n\n\r\n"):
            chunk = self.socket.recv(2**16)
            if not chunk:
                break
            answer += chunk
        check_stream(answer, number)

    def check_open(self) -> None:
        """Raise WrongAnswer if anything came, or the end."""
        self.socket.setblocking(False)
        try:
            wrong(self.socket.recv(2**16) or b"the end", ", which nobody asked for")
        except BlockingIOError:
            pass


# Group 1: the length of the body; the match ends where the head does.
LENGTH = re.compile(rb"(?is)\r\ncontent-length: *(\d+)\r\n(?:.*?\r\n)??\r\n").search


def crowd(port: int, calls: list[list[tuple[int, bytes]]]) -> float:
    """Make calls as many clients at once, each sending the next when it has its answer.

    `calls` are number and bytes of each call of each client. Return the seconds from the first
    connection to the last answer. All clients share this thread: it needs a fifth of the server's
    time, so it is no bottleneck; threads would fight for the interpreter.
    """
    answers: list[tuple[int, bytes]] = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        begin = time.perf_counter()
        for own in calls:
            client = stack.enter_context(Connection(port))
            waiting = iter(own)
            number, request = next(waiting)
            client.send(request)
            selector.register(client.socket, selectors.EVENT_READ, [client, number, waiting])
        left = len(calls)
        while left:
            ready = selector.select(LIMIT_SECONDS)
            if not ready:
                wrong(b"nothing", f" to {left} clients")
            for key, _ in ready:
                client, number, waiting = key.data
                answer = client.take()
                if answer:
                    answers.append((number, answer))
                    following = next(waiting, None)
                    if following is None:
                        selector.unregister(client.socket)
                        left -= 1
                    else:
                        key.data[1] = following[0]
                        client.send(following[1])
        seconds = time.perf_counter() - begin
    for number, answer in answers:
        check_http(answer, number)
    if len(answers) != sum(map(len, calls)):
        wrong(b"nothing", " to some calls")
    return seconds


# ==========================================================================================
# What is measured: each function measures one program once
# ==========================================================================================


def start(program: Program, count: int) -> float:
    """Return the seconds from starting the process to its first answer: the median of `count`."""
    return median(start_once(program) for _ in range(count))


def start_once(program: Program) -> float:
    """Start a program, ask it to initialize, end it; return the seconds to the answer."""
    begin = time.perf_counter()
    with Child(program) as child:
        child.write(INITIALIZE)
        answer = child.output.readline()
        seconds = time.perf_counter() - begin
        check(parse(answer), 0, program.initialized)
        child.finish()
    return seconds


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Keep this thread, and the children it starts, on one processor, if the system can do that.

    Client and server never run at the same time here: each waits for the other. A call takes 10 to
    15 microseconds if both share a processor and 55 if they do not, whatever the server is, and
    which of the two happens is a whim of the scheduler. So it gets no choice: they share one, since
    the wait for another would hide what we cost.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def round_trip(program: Program, count: int) -> float:
    """Return the seconds of one call, the next being sent after its answer: the median."""
    with one_processor(), Child(program) as child:
        child.initialize()
        child.trips(range(1, WARM_UP))
        seconds = child.trips(range(WARM_UP, WARM_UP + count))
        child.finish()
    return median(seconds)


def client_round_trip(program: Program, count: int) -> float:
    """Return the seconds of one call, made by our own client if the program asks for that."""
    if not program.client:
        return round_trip(program, count)
    mcp_ref = import_module(program.path.parent)
    seconds = []
    with one_processor(), mcp_ref.connect([sys.executable, *FLAGS, str(program.path)],
                                          revision=VERSION) as client:
        for number in range(WARM_UP + count):
            begin = time.perf_counter()
            result = client.call_tool("echo", {"text": f"text {number}"})
            seconds.append(time.perf_counter() - begin)
            if result["content"] != [{"type": "text", "text": f"text {number}"}]:
                wrong(result, f" to call {number}")
    return median(seconds[WARM_UP:])


def import_module(folder: Path) -> Any:
    """Import the copy of mcp_ref that the programs use."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    import mcp_ref
    return mcp_ref


def command_line(program: Program, count: int) -> float:
    """Return the seconds of `call` on the command line, from launch to exit: the median.

    For the base it is what cannot be avoided: the bare interpreter's start and exit, and the
    server's own start. The module is run by `-m`, which uses its cached bytecode: as a file it
    would be compiled at every start.
    """
    def once() -> float:
        if not program.client:
            begin = time.perf_counter()
            subprocess.run([sys.executable, *FLAGS, "-c", "pass"], check=True)
            return time.perf_counter() - begin + start_once(program)
        command = [sys.executable, *FLAGS]
        begin = time.perf_counter()
        done = subprocess.run(
            [*command, "-m", "mcp_ref", "call", "echo", "text=some text", "--", *command,
             str(program.path)], stdout=subprocess.PIPE, cwd=program.path.parent, check=False)
        seconds = time.perf_counter() - begin
        if done.stdout != b"some text\n" or done.returncode:
            wrong(done.stdout or b"nothing at all")
        return seconds
    return median(once() for _ in range(count))


def pipelined(program: Program, count: int) -> float:
    """Return the calls per second when the client waits for no answer."""
    numbers = range(WARM_UP, WARM_UP + count)
    calls = b"".join(call(program, number) for number in numbers)
    with Child(program) as child:
        child.initialize()
        child.trips(range(1, WARM_UP))
        begin = time.perf_counter()
        child.write_in_background(calls)
        answers = child.read_lines(count)
        seconds = time.perf_counter() - begin
        child.finish()
    check_any_order(answers.splitlines(), numbers)
    return count / seconds


def memory(program: Program, count: int) -> float:
    """Return the resident bytes after `count` calls."""
    with Child(program) as child:
        child.initialize()
        child.trips(range(1, 1 + count))
        size = resident(child.process.pid)
        child.finish()
    return size


def resident(pid: int) -> int:
    """Return the bytes of memory that a process occupies right now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise NotMeasured("resident memory is read from /proc/<pid>/status, which only Linux has")


# ---- over HTTP
#
# The calls are modern. In a legacy session one takes a tenth less time, measured by hand: it
# repeats less of the body in headers that have to be compared. So it has no rows of its own.


@contextlib.contextmanager
def idle_streams(child: HttpChild, count: int) -> Iterator[None]:
    """Keep `count` streams open, and make sure that they were till the end."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Connection(child.port)) for _ in range(count)]
        for number, stream in enumerate(streams, 1):
            stream.listen(number)
        yield
        for stream in streams:
            stream.check_open()


def http_call(program: Program, count: int) -> float:
    """Return the seconds of one call on a connection that is kept: the median."""
    with one_processor(), HttpChild(program) as child:
        with idle_streams(child, program.streams), Connection(child.port) as client:
            client.trips(range(1, WARM_UP))
            seconds = client.trips(range(WARM_UP, WARM_UP + count))
        child.finish()
    return median(seconds)


def processor_time(program: Program, count: int) -> float:
    """Return the seconds of processor time that the server needs for one call: the mean."""
    with one_processor(), HttpChild(program) as child:
        with Connection(child.port) as client:
            client.trips(range(1, WARM_UP))
            begin = processor_seconds(child.process.pid)
            client.trips(range(WARM_UP, WARM_UP + count))
            seconds = processor_seconds(child.process.pid) - begin
        child.finish()
    return seconds / count


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in user and in system mode."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        raise NotMeasured("processor time is read from /proc/<pid>/stat, which only Linux has") \
            from None
    fields = stat.rpartition(")")[2].split()        # those behind the name, from the third on
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def clients_at_once(program: Program, count: int) -> float:
    """Return the calls per second that CLIENTS clients get answered, each on a connection."""
    numbers = range(WARM_UP, WARM_UP + count)
    calls = [(number, post_call(number)) for number in numbers]
    with HttpChild(program) as child:
        with Connection(child.port) as client:
            client.trips(range(1, WARM_UP))
        seconds = crowd(child.port, [calls[first::CLIENTS] for first in range(CLIENTS)])
        child.finish()
    return count / seconds


def slow_calls(program: Program, count: int) -> float:
    """Return the seconds that `count` calls of a slow tool take, if all come at once."""
    calls = [[(number, post_call(number, "slow"))] for number in range(WARM_UP, WARM_UP + count)]
    with HttpChild(program) as child:
        with Connection(child.port) as client:
            client.trips(range(1, WARM_UP))
        seconds = crowd(child.port, calls)
        child.finish()
    return seconds


def stream_memory(program: Program, count: int) -> float:
    """Return the bytes of resident memory that each of `count` idle streams takes."""
    with HttpChild(program) as child:
        with Connection(child.port) as client:
            client.trips(range(1, WARM_UP))
        size = resident(child.process.pid)
        with idle_streams(child, count):
            size = resident(child.process.pid) - size
        child.finish()
    return size / count


def new_connections(program: Program, count: int) -> float:
    """Return the seconds of one call with its own connection, closing included: the median."""
    def call_once(number: int) -> float:
        request = post_call(number)
        begin = time.perf_counter()
        with Connection(child.port) as client:
            client.send(request)
            answer = client.answer()
        seconds = time.perf_counter() - begin
        check_http(answer, number)
        return seconds
    with one_processor(), HttpChild(program) as child:
        for number in range(1, WARM_UP):
            call_once(number)
        seconds = [call_once(number) for number in range(WARM_UP, WARM_UP + count)]
        child.finish()
    return median(seconds)


# ==========================================================================================
# The rows
# ==========================================================================================


def milliseconds(seconds: float) -> str:
    """Show a duration of the length of a start."""
    return f"{seconds * 1e3:.1f} ms"


def microseconds(seconds: float) -> str:
    """Show a duration of the length of a call."""
    return f"{seconds * 1e6:.1f} us"


def per_second(rate: float) -> str:
    """Show a rate."""
    return f"{rate:,.0f}/s"


def megabytes(size: float) -> str:
    """Show an amount of memory."""
    return f"{size / 1e6:.1f} MB"


def kilobytes(size: float) -> str:
    """Show a small amount of memory."""
    return f"{size / 1e3:.1f} kB"


class Row(NamedTuple):
    """One thing that is measured on two programs."""
    title: str
    base: str               # a key of write_programs(): the program that counts as 1.0
    ours: str               # the one that is compared with it
    measure: Callable[[Program, int], float]
    size: int               # starts or calls in one round
    rounds: int
    bound: str              # "<=" or ">="
    target: float           # for the ratio
    others: tuple[str, str]     # ratios of the best other Python implementation, and official SDK
    show: Callable[[float], str]
    absolute: bool = False  # the target is one for the value of `ours`, in its unit

    def goal(self) -> str:
        """Show the target."""
        return f"{self.bound} {self.show(self.target) if self.absolute else self.target}"

    def met(self, ours: float, ratio: float) -> bool:
        """Tell whether the target is met."""
        value = ours if self.absolute else ratio
        return value <= self.target if self.bound == "<=" else value >= self.target


# To add a row: a program in write_programs(), a function that measures it once, a line here.
ROWS = (
    #   title                               base    ours    measure     size rounds target others
    Row("start to `initialize` answered",   "bare", "ours", start,         3, 25, "<=", 2.0,
        ("3.5", "28"), milliseconds),
    Row("one `tools/call` round trip",      "bare", "ours", round_trip, 2000, 25, "<=", 2.5,
        ("3.3", "37"), microseconds),
    Row("pipelined calls",                  "bare", "ours", pipelined, 10000, 25, ">=", 0.5,
        ("0.26", "0.02"), per_second),
    Row("one call by our client",           "bare", "our client", client_round_trip, 2000, 15,
        "<=", 4.0, ("-", "-"), microseconds),
    Row("`call` on the command line",       "ours", "our client", command_line, 3, 9, "<=", 3.0,
        ("-", "-"), milliseconds),
    Row("resident memory after one call",   "bare", "ours", memory,        1, 7, "<=", 1.6,
        ("2.1", "6.3"), megabytes),
    Row("a call with 10,000 tools, not 10", "10 tools", "10,000 tools", round_trip, 2000, 15,
        "<=", 1.1, ("-", "-"), microseconds),
    Row("HTTP: a call, connection kept",    "bare HTTP", "HTTP", http_call, 1000, 15, "<=", 1.4,
        ("2.6", "17"), microseconds),
    Row("HTTP: processor time of a call",   "bare HTTP", "HTTP", processor_time, 4000, 9,
        "<=", 1.5, ("-", "-"), microseconds),
    Row("HTTP: 64 clients at once",         "bare HTTP", "HTTP", clients_at_once, 1920, 15,
        ">=", 0.7, ("0.37", "0.07"), per_second),
    Row("HTTP: a connection for each call", "bare HTTP", "HTTP", new_connections, 200, 15,
        "<=", 1.3, ("-", "-"), microseconds),
    Row("HTTP: 32 calls of 0.2 s at once",  "bare HTTP", "HTTP", slow_calls,  32, 5, "<=", 0.3,
        ("-", "-"), milliseconds, absolute=True),
    Row("HTTP: memory of an idle stream",   "bare HTTP", "HTTP", stream_memory, STREAMS, 5,
        "<=", 60e3, ("-", "-"), kilobytes, absolute=True),
    Row("HTTP: a call, 200 idle streams",   "HTTP", "HTTP, idle streams", http_call, 1000, 11,
        "<=", 1.15, ("-", "-"), microseconds),
)
QUICK_SHARE, QUICK_LEAST = 5, 3     # --quick: a fifth of the rounds, but three of them


def compare(row: Row, programs: dict[str, Program], rounds: int) -> list[tuple[float, float]]:
    """Measure both programs of a row in turn; return the pairs (base, ours) of all rounds."""
    pairs = []
    for number in range(rounds):
        order = (row.base, row.ours) if number % 2 == 0 else (row.ours, row.base)
        value = {name: row.measure(programs[name], row.size) for name in order}
        pairs.append((value[row.base], value[row.ours]))
    return pairs


def print_line(title: str, *columns: str) -> None:
    """Print one line of the table: `columns` are its eight columns behind the title."""
    form = "{:32} {:>10} {:>10} {:>6} {:>12} {:>11} {:>5} {:>5}  {}"
    print(form.format(title, *columns).rstrip(), flush=True)


def print_row(row: Row, pairs: list[tuple[float, float]]) -> bool:
    """Print what came out for a row; tell whether its target is met."""
    base, ours = (median(values) for values in zip(*pairs))
    ratios = [second / first for first, second in pairs]
    ratio = median(ratios)
    met = row.met(ours, ratio)
    print_line(row.title, row.show(base), row.show(ours), f"{ratio:.3f}",
               f"{min(ratios):.2f}..{max(ratios):.2f}", row.goal(), *row.others,
               "ok" if met else "MISSED")
    return met


def run_row(row: Row, programs: dict[str, Program], rounds: int) -> bool:
    """Measure and print a row; tell whether all is well with it."""
    blank = ("-", "-", "-", "-", row.goal(), *row.others)
    try:
        return print_row(row, compare(row, programs, rounds))
    except NotMeasured as reason:
        print_line(row.title, *blank, "not measured")
        print(f"    {reason}")
        return True
    except (WrongAnswer, OSError) as problem:
        print_line(row.title, *blank, "MISSED")
        print(f"    {type(problem).__name__}: {problem}")
        return False


def run_all(rows: Iterable[Row], quick: bool) -> bool:
    """Measure and print all rows; tell whether all is well."""
    print(f"{platform.python_implementation()} {platform.python_version()}, "
          f"{platform.platform()}, {os.cpu_count()} CPUs")
    print_line("", "base", "ours", "ratio", "rounds", "target", "best", "SDK", "")
    with tempfile.TemporaryDirectory(prefix="mcp_ref_benchmark_") as folder:
        try:
            programs = write_programs(Path(folder))
        except (WrongAnswer, OSError) as problem:
            print(f"MISSED, all of it: {problem}")
            return False
        met = [run_row(row, programs, max(QUICK_LEAST, row.rounds // QUICK_SHARE) if quick
                       else row.rounds) for row in rows]
    return all(met)


def main() -> int:
    """Read the command line, measure, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds: about 20 seconds")
    options = parser.parse_args()
    # A polite kill unwinds the `with` statements, and so ends the children and the directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return 0 if run_all(ROWS, options.quick) else 1


if __name__ == "__main__":
    sys.exit(main())
