#!/usr/bin/env python3
"""Play the vectors of this folder against an MCP client; say which rules it breaks.

    python3 examples/vectors/clients/run_client.py python3 driver.py     # DRIVER

Here the runner is the server. The driver reads actions from stdin, one JSON object on
each line, does them with its client, and writes what its caller saw to stdout.
README.md has the format and the actions; driver.py is the driver of our client.
"""

from __future__ import annotations

import collections
import contextlib
import http.server
import itertools
import json
import os
import pathlib
import queue
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

sys.path += [str(pathlib.Path(__file__).resolve().parents[1])]
import report
from links import (
    RUNNING,
    STDERR_LINES,
    cause_of,
    kill,
    kill_all,
    launch,
    listen,
    read_json,
    rubbish,
    start,
)
from patterns import (
    BadVector,
    Json,
    Missing,
    check_pattern,
    check_sent,
    filled,
    fits,
    inside,
    is_answer,
    mismatch,
    patterns_of,
    show,
)
from play import LISTS, META, MODERN, REVISIONS, VERSION, Ended, Failed
from pool import Pool, Put, Stopped

FOLDER = pathlib.Path(__file__).resolve().parent
SILENCE = 0.15  # seconds in which what must not come would have come
# The other end of the driver's pipes: its client starts this as the server.
SHIM = """
import os, socket, sys, threading
print(*sys.argv[2:], file=sys.stderr, flush=True)
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def pump():
    for line in link.makefile("rb"):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    os._exit(0)
threading.Thread(target=pump, daemon=True).start()
for line in sys.stdin.buffer:
    link.sendall(line)
link.sendall(b"\\0\\n")
link.shutdown(socket.SHUT_WR)
link.recv(1)
"""


END_OF_INPUT = (
    b"\0\n"  # what the shim says if its stdin was closed, and it was not killed
)


class Exchange:
    """A message of the client, or a GET or DELETE, and the way to answer it."""

    def __init__(
        self, message: Any, headers: Json | None, verb: str = "", link: Any = None
    ) -> None:
        self.message, self.link = message, link  # the connection, on stdio
        self.seen = message if isinstance(message, dict) else rubbish(message)
        if headers is not None:
            self.seen = {**self.seen, "http": {"verb": verb, "headers": headers}}
        self.verb, self.headers = verb, headers
        self.parts: queue.Queue[bytes | None] = queue.Queue()  # of the HTTP response
        self.status, self.answer_headers = 0, Json()
        self.ready = threading.Event()
        self.closed = threading.Event()  # the client has closed the response
        self.stream = False

    def begin(self, status: int, headers: Json) -> None:
        """Begin the HTTP response."""
        if not self.ready.is_set():
            self.status, self.answer_headers = status, headers
            self.ready.set()

    def event(self, message: Any, **fields: str) -> None:
        """Send an event."""
        kind = {"content-type": "text/event-stream", "cache-control": "no-cache"}
        self.stream = True
        self.begin(200, kind)
        text = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        # Without a data field, an event is none, and its id is lost.
        data = "" if message is None else json.dumps(message, ensure_ascii=False)
        self.parts.put(f"{text}data: {data}\r\n\r\n".encode())

    def end(self) -> None:
        """End the HTTP response."""
        self.parts.put(None)


class StdioServer:
    """The server that a driver starts: a shim, whose lines come to a socket of ours."""

    def __init__(self, inbox: queue.Queue[Exchange | None], says: list[str]) -> None:
        self.says = says  # on stderr
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.inbox = inbox
        self.ended = threading.Event()  # the client has closed stdin
        self.connections: list[socket.socket] = []
        start(self._accept)

    def target(self) -> list[str]:
        """Name the server for the driver."""
        port = str(self.listener.getsockname()[1])
        return [sys.executable, "-ISc", SHIM, port, *self.says]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                self.ended.clear()
                start(self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                if line != END_OF_INPUT:
                    self.inbox.put(Exchange(read_json(line), None, link=connection))
                elif connection is self.connections[-1]:
                    self.ended.set()
                    self.inbox.put(None)
        self.inbox.put(None)

    def send(self, message: Any, exchange: Exchange | None) -> None:
        """Send a line to the client, on the newest connection or as an answer.

        A client may start a second process, to find out what it speaks.
        """
        text = (
            message.encode()
            if isinstance(message, str)
            else json.dumps(message).encode()
        )
        with contextlib.suppress(OSError, IndexError):
            link = exchange.link if exchange else self.connections[-1]
            link.sendall(text + b"\n")

    def close(self) -> None:
        """Close everything."""
        for connection in [*self.connections, self.listener]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class Handler(http.server.BaseHTTPRequestHandler):
    """One HTTP exchange of the client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for an ACK
    inbox: queue.Queue[Exchange | None]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.serve("POST", read_json(body))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.serve("PUT", read_json(body))

    def do_GET(self) -> None:
        self.serve("GET", {})

    def do_DELETE(self) -> None:
        self.serve("DELETE", {})

    def serve(self, verb: str, message: Any) -> None:
        """Hand an exchange to the runner, and send what it answers."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        exchange = Exchange(message, headers, verb)
        self.inbox.put(exchange)
        exchange.ready.wait(60)
        self.send_response(exchange.status or 500)
        for name, value in exchange.answer_headers.items():
            self.send_header(name, value)
        if exchange.stream:
            self.send_header("connection", "close")
            self.close_connection = True
            self.end_headers()
            self._follow(exchange)
            return
        body = exchange.parts.get() or b""
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _follow(self, exchange: Exchange) -> None:
        """Send the events of a stream; notice when the client has closed it."""
        try:
            self.wfile.flush()
            while True:
                try:
                    part = exchange.parts.get(timeout=0.05)
                except queue.Empty:
                    part = b""
                if part is None:
                    return
                self.wfile.write(part)
                self.wfile.flush()
                self.connection.settimeout(0.001)
                with contextlib.suppress(socket.timeout, BlockingIOError):
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        raise ConnectionError("closed")
                self.connection.settimeout(None)
        except OSError:
            exchange.closed.set()
            self.inbox.put(None)


class ThreadingServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes a connection is no error of ours."""


class HttpServer:
    """The server that a driver connects to by its URL."""

    def __init__(self, inbox: queue.Queue[Exchange | None], says: list[str]) -> None:
        handler: Callable[..., Any] = type("Handler", (Handler,), {"inbox": inbox})
        self.server = ThreadingServer(("127.0.0.1", 0), handler)
        self.ended = threading.Event()
        start(self.server.serve_forever, 0.05)

    def target(self) -> str:
        """Name the server for the driver."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/mcp"

    def send(self, message: Any, exchange: Exchange | None) -> None:
        """Send a message on the stream of an exchange."""
        if exchange:
            exchange.event(message)

    def close(self) -> None:
        """Close everything."""
        self.server.shutdown()
        self.server.server_close()


class Driver:
    """The process that drives the client under test."""

    def __init__(self, command: list[str]) -> None:
        self.process = launch(command, subprocess.PIPE)
        RUNNING.add(self.process)
        self.reports: queue.Queue[Json] = queue.Queue()
        # Of the vector that is played: None says to look at what else has come.
        self.inbox: queue.Queue[Exchange | None] = queue.Queue()
        self.spoke = False  # a first line has come: the process has started
        self.names = itertools.count(1)  # ids of actions
        self.ended = ""  # why there is no driver any more
        start(self._read)

    def do(self, action: Json) -> None:
        """Tell the driver what to do."""
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(action).encode() + b"\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout and self.process.stderr
        said: collections.deque[bytes] = collections.deque(maxlen=STDERR_LINES)
        listener = start(listen, self.process.stderr, said)
        with self.process.stdout as lines:
            for line in lines:
                told = read_json(line)
                self.spoke = True
                self.reports.put(told if isinstance(told, dict) else rubbish(told))
                self.inbox.put(None)
        listener.join(0.5)
        self.ended = f"the driver has ended: {cause_of(list(said))}"
        self.inbox.put(None)

    def end_client(self) -> bool:
        """Have the client closed; say whether it was, so that it can be used again."""
        name = next(self.names)
        self.do({"do": "close", "id": name})
        with contextlib.suppress(queue.Empty):
            while self.reports.get(timeout=1).get("id") != name:
                pass
            return True
        return False


class Place(NamedTuple):
    """Where a vector is played: carrier, revision, and seconds for an answer."""

    carrier: str
    revision: str
    seconds: float


class Talk:
    """Play one vector with one driver."""

    def __init__(self, driver: Driver, vector: Json, place: Place) -> None:
        self.driver, self.vector = driver, vector
        self.carrier, self.revision, self.seconds = place
        self.modern = self.revision >= MODERN
        self.inbox = driver.inbox = queue.Queue()
        server: Any = StdioServer if self.carrier == "stdio" else HttpServer
        self.server = server(self.inbox, self.scene("stderr", []))
        self.saved: Json = {"revision": self.revision}
        self.heard: list[Exchange] = []
        self.taken: set[int] = set()
        self.labels: dict[str, Exchange] = {}
        self.told: list[Json] = []
        self.actions: dict[str, int] = {}
        self.asked: set[str] = set()  # ids, as JSON, of our requests without an answer
        self.transcript: list[Json] = []
        self.place = 0  # of the step that is played
        self.stream: Exchange | None = None  # of a GET
        self.forbidden = False

    # ---- what comes

    def until(self, found: Callable[[], Any], what: str, seconds: float = 0) -> Any:
        """Take what comes until there is what we wait for."""
        began = time.monotonic()
        while (value := found()) is None:
            patience = (seconds or self.seconds) * (1 if self.driver.spoke else 4)
            left = began + patience - time.monotonic()
            if left < 0:
                last = show([one.seen for one in self.heard[-3:]])
                raise TimeoutError(f"no {what} in time; what came last: {last}")
            if self.driver.ended:
                raise Ended(self.driver.ended)
            self.take(left)
        return value

    def take(self, seconds: float) -> None:
        """Take a message, if one comes in time, and all reports."""
        with contextlib.suppress(queue.Empty):
            exchange = self.inbox.get(timeout=seconds)
            if exchange:
                self._keep(exchange)
        with contextlib.suppress(queue.Empty):
            while True:
                told = self.driver.reports.get_nowait()
                self.told.append(told)
                self.transcript.append({"told": told})
                if "unsupported" in told:  # also if no step waits for this action
                    raise Missing(f"action {told['unsupported']}")

    def _keep(self, exchange: Exchange) -> None:
        """Keep a message; answer it, unless a step will."""
        seen = exchange.seen
        if is_answer(seen) and json.dumps(seen.get("id")) not in self.asked:
            exchange.seen = seen = {"unasked": seen}
        self.asked.discard(json.dumps(seen.get("id")))
        self.heard.append(exchange)
        self.transcript.append({"received": seen})
        for pattern in self.vector.get("never", ()):
            if fits(pattern, seen, dict(self.saved)):
                self.forbidden = True
                raise Failed(f"this must never come: {show(pattern)}", seen)
        later = [
            step["await"]
            for step in self.vector["steps"][self.place :]
            if "await" in step
        ]
        if not any(fits(pattern, seen, dict(self.saved)) for pattern in later):
            self.answer_by_itself(exchange)

    # ---- what the server does by itself

    def answer_by_itself(self, exchange: Exchange) -> None:
        """Answer as a plain server of this revision does."""
        message = exchange.message
        if exchange.verb == "GET":
            self._open_stream(exchange)
        elif exchange.verb == "DELETE":
            self.reply_http(exchange, 200, {}, b"")
        elif (
            not isinstance(message, dict)
            or "method" not in message
            or "id" not in message
        ):
            self.reply_http(exchange, 202, {}, b"")
        else:
            self.reply(exchange, self._content(message), {})

    def _open_stream(self, exchange: Exchange) -> None:
        """Answer GET: with a stream, if the vector has one, else with 405."""
        if self.scene("stream") and not self.modern:
            self.stream = exchange
            exchange.event(None, id="get-1", retry="20")
        else:
            self.reply_http(exchange, 405, {}, b"")

    def scene(self, name: str, other: Any = None) -> Any:
        """Find out what the vector says of its server."""
        return self.vector.get("server", {}).get(name, other)

    def _content(self, message: Json) -> Json:
        """Find the result or the error of a request."""
        method = message["method"]
        params = message.get("params")
        version = inside(params, "protocolVersion")
        info = {"name": "vectors", "version": "1"}
        capabilities = self.scene("capabilities", CAPABILITIES)
        if method == "initialize" and not self.modern:
            found = {"protocolVersion": self.revision, "capabilities": capabilities}
            return {"result": {**found, "serverInfo": info}}
        if self.modern:
            meta = inside(params, "_meta")
            version = meta.get(VERSION) if isinstance(meta, dict) else None
            if version != self.revision and version is not None:
                data = {"supported": [self.revision], "requested": version}
                return {"error": {"code": -32022, "message": "version", "data": data}}
            if method == "server/discover":
                found = {"supportedVersions": [self.revision]}
                result = {**found, "capabilities": capabilities, **CACHE}
                return {"result": {**result, "_meta": {META + "serverInfo": info}}}
        answer = self._lists(method) or ANSWERS.get(method)
        if answer is None or (self.modern and method == "ping"):
            return {"error": {"code": -32601, "message": "Method not found"}}
        return {"result": answer}

    def _lists(self, method: str) -> Json:
        """Find the result of a list."""
        if method not in LISTS:
            return {}
        member = LISTS[method].member
        cursor = self.scene("cursor")
        return {
            member: self.scene(member, FEATURES[member]),
            **({"nextCursor": cursor} if cursor else {}),
            **(CACHE if self.modern else {}),
        }

    # ---- what is sent

    def reply(self, exchange: Exchange, content: Json, step: Json) -> None:
        """Answer a request, on stdio or as the step says."""
        content = filled(content, self.saved)
        result = content.get("result")
        if self.modern and isinstance(result, dict) and "resultType" not in result:
            content = {"result": {"resultType": "complete", **result}}
        if isinstance(result, dict) and result.get("resultType", "") is None:
            content = {"result": {k: v for k, v in result.items() if k != "resultType"}}
        name = (
            exchange.message.get("id") if isinstance(exchange.message, dict) else None
        )
        message = {"jsonrpc": "2.0", "id": name, **content}
        self.transcript.append({"sent": message})
        if self.carrier == "stdio":
            self.server.send(message, exchange)
            return
        if exchange.stream or step.get("stream"):
            exchange.event(message)
            exchange.end()
            return
        headers = {"content-type": "application/json"}
        opening = exchange.message.get("method") == "initialize"
        opened = opening and "result" in content and not self.modern
        if opened and self.scene("session", True):
            headers["mcp-session-id"] = "session-1"
        status = step.get("status") or self._status(content)
        headers.update(step.get("headers", {}))
        text = json.dumps(message, ensure_ascii=False)
        self.reply_http(exchange, status, headers, text.encode())

    def _status(self, content: Json) -> int:
        """Find the status of an answer: modern errors have their own."""
        code = content.get("error", {}).get("code")
        if not self.modern:
            return 400 if code == -32601 else 200
        return {-32601: 404, -32022: 400, -32020: 400, -32021: 400}.get(code, 200)

    def reply_http(
        self, exchange: Exchange, status: int, headers: Json, body: bytes
    ) -> None:
        """Answer an HTTP request as a whole."""
        if exchange.headers is not None:
            exchange.parts.put(body)
            exchange.begin(status, headers)

    def emit(self, step: Json) -> None:
        """Send what nobody has asked for, or what belongs to an open request."""
        message = filled(step["send"], self.saved)
        if isinstance(message, dict) and "method" in message and "id" in message:
            self.asked.add(json.dumps(message["id"]))
        self.transcript.append({"sent": message})
        on = self.labels[step["on"]] if "on" in step else self.stream
        self.server.send(message, on)

    # ---- steps

    def act(self, step: Json) -> None:
        """Tell the driver what to do."""
        name = next(self.driver.names)
        self.actions[step.get("label", "")] = name
        wanted = filled(step.get("with", {}), self.saved)
        if step["do"] == "connect":
            options = self.vector.get("client", {})
            wanted = {"server": self.server.target(), **options, **wanted}
        action = {"do": step["do"], "id": name, **wanted}
        if "cancels" in step:
            action["target"] = self.actions[step["cancels"]]
        self.transcript.append({"do": action})
        self.driver.do(action)
        if "told" in step:
            self.check_told({**step, "of": step.get("label", "")})

    def check_told(self, step: Json) -> None:
        """Wait for what the caller of the client saw."""
        name = self.actions[step["of"]]

        def found() -> Any:
            return next((one for one in self.told if one.get("id") == name), None)

        told = self.until(
            found, "report of the driver", step.get("within", 0) * self.seconds
        )
        self.judge(step["told"], told)

    def wait(self, step: Json) -> None:
        """Wait for a message of the client, and reply to it."""
        pattern = step["await"]

        def found() -> Exchange | None:
            for place, exchange in enumerate(self.heard):
                if place not in self.taken and fits(
                    pattern, exchange.seen, dict(self.saved)
                ):
                    self.taken.add(place)
                    return exchange
            return None

        exchange = self.until(
            found, show(pattern, 200), step.get("within", 0) * self.seconds
        )
        self.judge(pattern, exchange.seen)  # saves
        self.labels[step.get("label", "")] = exchange
        self.judge(step.get("expect", {}), exchange.seen)
        if "reply" in step:
            self.reply(exchange, step["reply"], step)
        elif "status" in step:
            text = step.get("body", "").encode()
            self.reply_http(exchange, step["status"], step.get("headers", {}), text)
        elif "stream" in step:
            if self.carrier == "http":
                exchange.event(None, **step["stream"])
        elif "open" not in step:
            self.answer_by_itself(exchange)

    def answer_open(self, step: Json) -> None:
        """Answer a request that was left open."""
        self.reply(self.labels[step["answer"]], step["reply"], step)

    def silence(self, step: Json) -> None:
        """Give what must not come some time to come; look at all that was heard."""
        deadline = time.monotonic() + SILENCE
        while (left := deadline - time.monotonic()) > 0:
            self.take(left)
        self.judge(step["heard"], [one.seen for one in self.heard])

    def gone(self, step: Json) -> None:
        """Wait until the client has closed: stdin of the server, or a response."""
        if self.carrier == "http":
            closed = self.labels[step["closed"]].closed
        else:
            closed = self.server.ended
        self.until(lambda: closed.is_set() or None, "end of the connection")

    def cut(self, step: Json) -> None:
        """Close a response in the middle, or the output of a stdio server."""
        if self.carrier == "http":
            self.labels[step["cut"]].end()
        else:
            self.server.close()

    def judge(self, pattern: Any, value: Any) -> None:
        """Fail if a value is not what the vector demands."""
        if why := mismatch(pattern, value, self.saved):
            raise Failed(why, value)

    def play(self) -> None:
        """Play all steps; connect first, unless the vector does it itself."""
        steps = self.vector["steps"]
        if steps[0].get("do") != "connect":
            client = self.vector.get("client", {})
            steps = [{"do": "connect", "with": client, "told": CONNECTED}, *steps]
        self.vector = {**self.vector, "steps": steps}
        for self.place, step in enumerate(steps):
            try:
                VERBS[next(filter(VERBS.get, step))](self, step)
            except (Failed, TimeoutError):
                if "given" in step and not self.forbidden:
                    raise Missing(step["given"]) from None
                raise

    def close(self) -> None:
        """End the server."""
        for exchange in self.heard:
            exchange.end()
            exchange.begin(500, {})
        self.server.close()


CONNECTED = {"error": {"$absent": True}}
CACHE = {"ttlMs": 0, "cacheScope": "private"}
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
ECHO = {
    "name": "echo",
    "description": "Say it again",
    "inputSchema": {"type": "object"},
}
FEATURES: Json = {
    "tools": [ECHO],
    "prompts": [{"name": "greet", "arguments": [{"name": "who"}]}],
    "resources": [{"uri": "test://a", "name": "a"}],
    "resourceTemplates": [],
}
ANSWERS: Json = {
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "prompts/get": {"messages": []},
    "resources/read": {"contents": [{"uri": "test://a", "text": "a"}], **CACHE},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "completion/complete": {"completion": {"values": ["a"]}},
    "logging/setLevel": {},
    "ping": {},
}
# To add a verb: the member of a step that names it, and a function of the talk and the
# step.
VERBS: dict[str, Callable[[Talk, Json], Any]] = {
    "do": Talk.act,
    "await": Talk.wait,
    "answer": Talk.answer_open,
    "send": Talk.emit,
    "of": Talk.check_told,
    "heard": Talk.silence,
    "closed": Talk.gone,
    "cut": Talk.cut,
}


# ---- the run

JOBS = 2 * (os.cpu_count() or 4)  # clients side by side; most of the time they wait


class Client:
    """The client under test: a driver, which plays one vector after the other."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.driver: Driver | None = None

    def play(self, vector: Json, place: Place) -> tuple[Json, list[Json]]:
        """Play a vector: its row, and all that was heard."""
        self.driver = self.driver or Driver(self.command)
        row = make_row(vector, place)
        talk = Talk(self.driver, vector, place)
        try:
            talk.play()
        except Missing as missing:
            row.update(verdict="skipped", why=f"the client has no {missing}")
        except Ended as ended:
            row.update(verdict=report.NOT_SET_UP, why=str(ended))
            row.update(transcript=talk.transcript)
        except (Failed, OSError) as failure:
            row.update(verdict=report.verdict_of(vector), why=str(failure.args[0]))
            row.update(received=failure.args[1] if len(failure.args) > 1 else None)
            row.update(transcript=talk.transcript)
        talk.close()
        # A client that has passed can be used again; its driver starts fast or slowly.
        if row["verdict"] != "passed" or not self.driver.end_client():
            self.end()
        return row, [one.seen for one in talk.heard]

    def speaks(self, place: Place) -> str:
        """Say why the client does not speak this, or nothing."""
        told = {"result": {"$type": "array"}}
        steps = [{"do": "list_tools", "label": "list", "told": told}]
        row, _ = self.play({"id": "survey", "level": "MUST", "steps": steps}, place)
        return "" if row["verdict"] == "passed" else str(row["why"])

    def end(self) -> None:
        """End the driver."""
        if self.driver:
            RUNNING.discard(self.driver.process)
            kill(self.driver.process)
            assert self.driver.process.stdin
            with contextlib.suppress(OSError):
                self.driver.process.stdin.close()
        self.driver = None


def make_row(vector: Json, place: Place) -> Json:
    """Make the row of a vector that has not failed yet."""
    row = {"verdict": "passed", **vector}
    return {**row, "carrier": place.carrier, "revision": place.revision}


class Run:
    """Play vectors, at several places, with several clients side by side."""

    def __init__(
        self, command: list[str], jobs: int, recorder: report.Recorder | None = None
    ) -> None:
        self.jobs, self.command, self.recorder = jobs, command, recorder
        self.idle: queue.Queue[Client] = queue.Queue()
        for _ in range(jobs):
            self.idle.put(Client(command))

    def with_client(self, work: Callable[[Client], Any]) -> Any:
        """Do something with a client that is idle."""
        client = self.idle.get()
        try:
            return work(client)
        finally:
            self.idle.put(client)

    def second(self) -> Run:
        """Make a run for what has failed, with half as many clients."""
        return Run(self.command, max(1, self.jobs // 2), self.recorder)

    def pool(self) -> Pool:
        """Make threads for all clients, which end with the time of the whole run."""
        if self.recorder:
            return Pool(self.jobs, self.recorder.ends)
        return Pool(self.jobs)

    def each(self, work: Callable[[Client, Any], Any], tasks: list[Any]) -> list[Any]:
        """Do something for each task, with an idle client; keep the order."""

        def one(numbered: tuple[int, Any], put: Put) -> None:
            number, task = numbered
            put((number, self.with_client(lambda client: work(client, task))))

        found = dict(self.pool().each(enumerate(tasks), one))
        self.close()
        return [found[number] for number in range(len(tasks))]

    def play(self, places: list[Place], vectors: list[Json]) -> list[Json]:
        """Play all vectors at the places where they apply.

        What fails is played again later, with half as many clients: a busy machine is
        no fault of the client. Rules that hold for every message are charged with both.
        """
        tasks = [
            (vector, place)
            for place in places
            for vector in vectors
            if place.revision in vector["revisions"]
            and place.carrier in vector["carriers"]
        ]
        rules = [(make_row(*task), task[1]) for task in tasks if "every" in task[0]]
        others = [task for task in tasks if "every" not in task[0]]

        again_if = [*report.FAILED, report.NOT_SET_UP]

        def attempt(client: Client, task: tuple[Json, Place]) -> Json:
            row, heard = client.play(*task)
            for rule, place in rules:
                if place == task[1]:
                    charge(rule, heard, row["id"])
            if self.recorder and row["verdict"] not in again_if:
                self.recorder.add(row)
            return row

        if self.recorder:
            self.recorder.total = len(tasks)
        rows = self.each(attempt, others)
        failed = [n for n, row in enumerate(rows) if row["verdict"] in again_if]
        again = self.second().each(attempt, [others[n] for n in failed])
        for number, row in zip(failed, again):
            rows[number] = row
            if row["verdict"] in again_if and self.recorder:
                self.recorder.add(row)
            if row["verdict"] not in again_if:
                report.say(f"{report.where(row)}: failed at first, passed later")
        return rows + [rule for rule, _ in rules]

    def spoken(self, places: list[Place]) -> list[Place]:
        """Find the places where the client speaks."""
        reasons = self.each(Client.speaks, places)
        silent = [place for place, why in zip(places, reasons) if why]
        again = iter(self.second().each(Client.speaks, silent))
        reasons = [why and next(again) for why in reasons]
        for place, why in zip(places, reasons):
            report.say(f"{place.carrier} {place.revision}: {why or 'spoken'}")
        return [place for place, why in zip(places, reasons) if not why]

    def close(self) -> None:
        """End the drivers of all clients."""
        for client in list(self.idle.queue):
            client.end()


def charge(rule: Json, heard: list[Json], name: str) -> None:
    """Charge a rule that holds for every message, with the first that breaks it."""
    known = {"revision": rule["revision"]}
    bad = [one for one in heard if not fits(rule["every"], one, dict(known))]
    if bad and rule["verdict"] == "passed":
        rule.update(verdict=report.verdict_of(rule), why=f"in {name}", received=bad[0])


def main() -> int:
    """Read the command line, play, report."""
    parser = report.make_parser(__doc__ or "")
    add = parser.add_argument
    add("--carriers", default="stdio,http", help="stdio, http, or both")
    add("--jobs", type=int, default=JOBS, help="how many clients at once")
    add("driver", nargs="...", help="DRIVER: a command")
    options = parser.parse_args()
    vectors = report.read_vectors(FOLDER, check_steps)
    report.check_options(options, vectors)
    vectors = report.choose(vectors, options.only)
    check_driver(options.driver)
    report.stop_on_signals()
    dates = (options.revisions or ",".join(REVISIONS)).split(",")
    # Streamable HTTP came with 2025-03-26.
    places = [
        Place(carrier, date, options.timeout)
        for date in dates
        for carrier in options.carriers.split(",")
        if (carrier, date) != ("http", REVISIONS[0])
    ]
    recorder, stopped = report.Recorder(options), ""
    run = Run(options.driver, options.jobs, recorder)
    spoken: list[Place] = []
    try:
        spoken = run.spoken(places)
        rows = run.play(spoken, vectors)
    except (KeyboardInterrupt, Stopped) as reason:
        stopped, rows = str(reason) or "interrupted", list(recorder.rows)
        kill_all()
    rows = report.in_order(rows, vectors)
    complete = spoken == places or not options.revisions
    good = recorder.finish(options, rows, {}, stopped)
    return int(not (complete and good))


def check_driver(command: list[str]) -> None:
    """Refuse a driver that cannot be started."""
    if not command or not shutil.which(command[0]):
        name = command[0] if command else "DRIVER"
        raise SystemExit(f"{name}: there is no such command")


MEMBERS = set(
    "with label told cancels within reply status headers body stream open on expect "
    "given".split()
)


def check_steps(steps: Iterable[Json], name: str) -> None:
    """Raise BadVector unless each step is one that this runner knows."""
    for step in steps:
        if set(step) - set(VERBS) - MEMBERS or not set(step) & set(VERBS):
            raise BadVector(f"{name}: unknown members in {show(step)}")
        for pattern in patterns_of([step], {"await", "told", "expect", "heard"}):
            check_pattern(pattern)
        for value in patterns_of([step], {"reply", "with", "send"}):
            check_sent(value)


if __name__ == "__main__":
    sys.exit(main())
