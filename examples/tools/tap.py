r"""Stand between a host and a stdio server, and record what they say.

For the day a host and a server do not get along, whoever wrote them. It changes nothing
they say, and needs nothing else from the repository. (A server on mcp_ref.py needs no
tap: set MCP_TRACE=FILE in its environment.) Lesson 26 lists mistakes to look for, and
picture.py draws what was recorded.

In the host's configuration, put this program before the server's command:

    "command": "python3",
    "args": ["/path/tap.py", "/tmp/tap.jsonl", "npx", "some-server"]

Every line goes on as it came, byte for byte. It also goes to the log file (`-`: stderr)
as a line of JSON: `way` is `>` if the host sent it, `<` if the server did; a line that
is not JSON is a `text`, and `closed` says who hung up. Here our client is the host, and
the demonstration of mcp_ref.py the server:

    $ python3 examples/mcp_cli.py list -- \
        python3 examples/tools/tap.py - python3 mcp_ref.py >/dev/null
    {"time": "20...Z", "program": "tap", "process": ...}
    {"time": "20...Z", "way": ">", "on": "stdio", "message": {..."method": "server/discover"...}}
    {"time": "20...Z", "way": "<", "on": "stdio", "message": {..."result": {...}}}
    {"time": "20...Z", "way": ">", "on": "stdio", "message": {..."method": "tools/list"...}}
    {"time": "20...Z", "way": "<", "on": "stdio", "message": {..."result": {...}}}
    {"time": "20...Z", "way": ">", "on": "stdio", "closed": true}
    {"time": "20...Z", "way": "<", "on": "stdio", "closed": true}
    {"time": "20...Z", "exit": 0}

It ends when the server does, with its exit status, and passes on signals and the end of
input. With --stderr, what the server writes there is recorded, too (`"way": "!"`).

A server at a URL gets a tap of its own, between any client and any server; give the
client the address that it prints (port 0: any that is free):

    python3 examples/tools/tap.py /tmp/tap.jsonl --http 8080 https://mcp.example.com/mcp

Streams pass as they come. Of the headers only those of the protocol are recorded, never
a token. It listens on this machine only. Known limits: a login by OAuth does not work
through it, because what the server says of itself names another address (a header with
a token does); WebSockets are not passed on.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO
from urllib.parse import urlsplit

MOST_KEPT = 2**24  # bytes of one event that are kept to record it
LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
EVENT_END = re.compile(LINE_END * 2)
SECONDS = 30.0  # to connect, and for a request to arrive


def record(log: int, **members: Any) -> None:
    """Append a line to the log, if that is possible: the conversation goes on."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    stamp += f".{int(now % 1 * 1000):03}Z"
    with suppress(OSError):
        os.write(log, json.dumps({"time": stamp, **members}).encode() + b"\n")


def read(line: bytes) -> dict[str, Any]:
    """Return the JSON of a line as `message`; a line that is not JSON as `text`."""
    try:
        # NaN and Infinity are not JSON: int("NaN") raises a ValueError.
        return {"message": json.loads(line, parse_constant=int)}
    except (ValueError, RecursionError):
        return {"text": line.decode(errors="replace").rstrip("\r\n")}


def copy(source: BinaryIO, target: BinaryIO, way: str, log: int) -> None:
    """Copy lines until the source ends or nobody reads the target; then close it."""
    with suppress(OSError):
        for line in source:
            # Recorded first, so that no answer stands before it.
            record(log, way=way, on="stdio", **read(line))
            target.write(line)
            target.flush()
        record(log, way=way, on="stdio", closed=True)
    with suppress(OSError):
        target.close()


def listen_to(source: BinaryIO, log: int) -> None:
    """Pass the server's stderr on, and record it."""
    with suppress(OSError):
        for line in source:
            record(
                log, way="!", on="stdio", text=line.decode(errors="replace").rstrip()
            )
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()


def tap_process(log: int, command: list[str], with_stderr: bool) -> int:
    """Run the server with its streams in our hands; return its exit status."""
    pipe = subprocess.PIPE
    try:
        server: Any = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe if with_stderr else None
        )
    except OSError as problem:
        # its arguments may be secret
        raise SystemExit(
            f"tap: cannot start {command[0]}: {problem.strerror}"
        ) from None
    record(log, program="tap", process=server.pid)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.send_signal(number))
    there = (sys.stdin.buffer, server.stdin, ">", log)
    threading.Thread(target=copy, args=there, daemon=True).start()
    listener = threading.Thread(
        target=listen_to, args=(server.stderr, log), daemon=True
    )
    if with_stderr:
        listener.start()

    copy(server.stdout, sys.stdout.buffer, "<", log)
    server.stdout.close()  # if the host has left, the server must notice
    status: int = server.wait()
    if with_stderr:
        listener.join(1)  # a child of the server may hold it open
    record(log, exit=status)
    return status if status >= 0 else 128 - status


# ==== Over HTTP ===============================================
# A connection of the client has a thread, and one connection to the server. A second
# thread watches for a client that hangs up, which cancels a call.

# They belong to one connection (RFC 9110, section 7.6.1), or would hide what passes.
NOT_PASSED = set(
    """accept-encoding connection content-length expect host keep-alive proxy-authenticate
    proxy-authorization proxy-connection te trailer transfer-encoding upgrade""".split()
)
LOCAL = ("127.0.0.1", "localhost", "[::1]")


def is_local(host: str) -> bool:
    """Tell whether a Host or Origin header names this machine."""
    return re.sub(r"^https?://|:\d*$", "", host.lower()) in LOCAL


class Events:
    """Finds the messages in a body while it passes: in a stream, one in each event.
    Any other body is one; it has `size` bytes, if that is known."""

    def __init__(self, is_stream: bool, size: Any) -> None:
        self.is_stream, self.size = is_stream, size
        self.kept = bytearray()  # what has not been found yet
        self.searched = 0  # bytes of it in which no event ends
        self.is_cut = False  # more came than is kept

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield what is complete."""
        self.kept += data
        if self.is_stream:
            # An end has four bytes at most, of which three may have come before.
            end = 0
            found = EVENT_END.search(self.kept, max(0, self.searched - 3))
            while found:
                yield from self.found(bytes(self.kept[end : found.start()]))
                end = found.end()
                found = EVENT_END.search(self.kept, end)
            del self.kept[:end]
            self.searched = len(self.kept)
        elif str(len(self.kept)) == self.size:
            yield from self.end()
        if len(self.kept) > MOST_KEPT:
            del self.kept[:-3]
            self.searched = len(self.kept)
            self.is_cut = True

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield what is left."""
        data, self.kept = bytes(self.kept), bytearray()
        yield from self.found(data)

    def found(self, data: bytes) -> Iterator[dict[str, Any]]:
        if self.is_stream:
            lines = re.split(LINE_END, data)
            if b"endpoint" in (line[6:].strip() for line in lines):
                # of HTTP+SSE: a URL that names the session
                lines = [b"data: (where to post)"]
            lines = [line for line in lines if line.startswith(b"data:")]
            data = b"\n".join(line[5:] for line in lines)
        if self.is_cut:
            self.is_cut = False
            yield {"text": "(longer than what is kept to record it)"}
        elif data.strip():
            yield read(data)


class Handler(BaseHTTPRequestHandler):
    """Passes one client's requests on. http.server calls do_POST() and its like."""

    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    server: Tap

    def log_message(self, *_: Any) -> None:
        """Say nothing: all is in the log."""

    def do_POST(self) -> None:
        try:
            self.pass_on()
        except (OSError, ValueError, http.client.HTTPException) as problem:
            text = f"tap: {type(problem).__name__}"
            if isinstance(problem, OSError):  # others may quote the URL
                text += f": {problem}"
            self.record(way="<", text=text)
            self.close_connection = True
            with suppress(OSError, ValueError):
                self.send_error(502, explain=text)

    do_GET = do_DELETE = do_OPTIONS = do_PUT = do_HEAD = do_PATCH = do_POST

    def record(self, **members: Any) -> None:
        record(self.server.log, on=self.client_address[1], **members)

    def pass_on(self) -> None:
        """Pass a request on, and its answer back."""
        # A page in a browser must not get to the server through us: the server may
        # trust this machine, and we may know its URL's secret query.
        names = [self.headers.get("Host", "")]
        if "Origin" in self.headers:
            names.append(self.headers["Origin"])
        elif self.headers.get("Sec-Fetch-Site") == "cross-site":
            names.append("null")
        if not all(map(is_local, names)):
            self.send_error(403, explain=f"tap: Host, Origin: expected one of {LOCAL}")
            return
        body = self.read_body()
        # Another path may name the session: that of HTTP+SSE's messages.
        path = urlsplit(self.path).path
        is_known = path == self.server.url.path or path.startswith("/.well-known/")
        name = f"{self.command} {path if is_known else '...'}"
        shown = {
            key.lower(): value
            for key, value in self.headers.items()
            if key.lower().startswith("mcp-") and key.lower() != "mcp-session-id"
        }
        self.record(way=">", http=name, **shown, **(read(body) if body else {}))

        upstream = self.server.connect()
        link = upstream.sock  # http.client forgets it if the answer ends the connection
        try:
            self.ask(upstream, body)
            with self.watching(link):
                self.answer(upstream.getresponse(), name)
        finally:
            upstream.close()

    def read_body(self) -> bytes:
        """Read the body of the request."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            size = max(0, int(self.headers.get("Content-Length") or 0))
            return self.rfile.read(size)
        parts = []
        while size := int(self.rfile.readline(100).partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline(100)
        while self.rfile.readline(10_000).strip():
            pass
        return b"".join(parts)

    def ask(self, upstream: Any, body: bytes) -> None:
        """Send the request to the server, as it came."""
        origin = f"http://{self.headers['Host']}"
        upstream.putrequest(
            self.command, self.server.place(self.path), skip_accept_encoding=True
        )
        for key, value in self.headers.items():
            if key.lower() not in NOT_PASSED:
                is_ours = key.lower() == "origin" and value == origin
                upstream.putheader(key, self.server.origin if is_ours else value)
        if body or self.command in ("POST", "PUT", "PATCH"):
            upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body)

    def answer(self, response: Any, name: str) -> None:
        """Pass the answer back, each piece as it comes."""
        kind, size = map(response.headers.get, ("Content-Type", "Content-Length"))
        has_body = self.command != "HEAD" and response.status not in (204, 304)
        is_chunked = has_body and size is None and self.request_version != "HTTP/1.0"
        self.send_response_only(response.status, response.reason)
        for key, value in response.headers.items():
            if key.lower() not in NOT_PASSED:
                self.send_header(key, self.here(value) if key == "Location" else value)
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif has_body and size is None:
            self.close_connection = True
        else:
            self.send_header("Content-Length", size or "0")

        self.record(way="<", http=name, status=response.status)
        self.end_headers()
        events = Events((kind or "").lower().startswith("text/event-stream"), size)
        while has_body and (data := response.read1(2**16)):
            # recorded first, so that no answer stands before it
            for message in events.feed(data):
                self.record(way="<", **message)
            self.wfile.write(
                b"%x\r\n%s\r\n" % (len(data), data) if is_chunked else data
            )
        for message in events.end():
            self.record(way="<", **message)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def here(self, url: str) -> str:
        """Return a URL of the server as one of ours, so that a redirect leads to us."""
        ours = f"http://{self.headers['Host']}/"
        return re.sub("^" + re.escape(self.server.origin) + "/", lambda _: ours, url)

    @contextmanager
    def watching(self, link: Any) -> Iterator[None]:
        """Hang up on the server as soon as the client does."""
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                if not select.select([self.connection], [], [], 0.2)[0]:
                    continue
                with suppress(OSError):
                    if self.connection.recv(1, socket.MSG_PEEK):
                        return  # it sends its next request
                self.record(way=">", closed=True)
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


class Tap(ThreadingHTTPServer):
    """Listens on this machine, and knows where the server is."""

    daemon_threads = True

    def __init__(self, log: int, port: int, url: str) -> None:
        self.log, self.url = log, urlsplit(url)
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            raise SystemExit("tap: expected an http(s) URL")
        self.origin = f"{self.url.scheme}://{self.url.netloc.rpartition('@')[2]}"
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that has left."""

    def connect(self) -> Any:
        """Connect to the server; it may be silent for as long as it likes."""
        kinds: Any = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        upstream = kinds[self.url.scheme](
            self.url.hostname, self.url.port, timeout=SECONDS
        )
        upstream.connect()
        upstream.sock.settimeout(None)
        return upstream

    def place(self, path: str) -> str:
        """Return the path to ask the server for: the URL's query is its own."""
        if path == self.url.path and self.url.query:
            return f"{path}?{self.url.query}"
        return path


def tap_http(log: int, port: int, url: str) -> int:
    """Pass requests on until Ctrl-C."""
    try:
        tap = Tap(log, port, url)
    except OSError as problem:
        raise SystemExit(
            f"tap: cannot listen on port {port}: {problem.strerror}"
        ) from None
    record(log, program="tap", process=os.getpid())
    port = tap.server_address[1]
    print(
        f"tap: http://127.0.0.1:{port}{tap.url.path or '/'}",
        file=sys.stderr,
        flush=True,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), tap:
        tap.serve_forever(0.1)
    return 0


def main(words: list[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        usage="tap.py [--stderr] LOGFILE|- COMMAND ...\n"
        "       tap.py LOGFILE|- --http PORT URL",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stderr", action="store_true")
    parser.add_argument("path", metavar="LOGFILE")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    path, command = options.path, options.command
    is_http = command[:1] == ["--http"]
    if not command or (is_http and (len(command) != 3 or not command[1].isdigit())):
        parser.error("expected COMMAND ..., or --http PORT URL")

    log = 2
    try:
        if path != "-":
            log = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    except OSError as problem:
        raise SystemExit(f"tap: cannot write {path}: {problem.strerror}") from None
    if is_http:
        return tap_http(log, int(command[1]), command[2])
    return tap_process(log, command, options.stderr)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a thread may still be waiting for input
