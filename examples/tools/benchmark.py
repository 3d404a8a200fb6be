#!/usr/bin/env python3
"""Measure a server made with mcp_ref.py against a bare loop, and check every answer.

The *bare loop* reads a line, calls `json.loads`, the function and `json.dumps`, writes
and flushes; over HTTP, a tuned handler of `http.server` does the same, and another
process keeps one call in flight on each connection. Each ratio is the median of those
of all rounds; half of the rounds lie within the spread, which is printed after it.
Compare ratios, not figures; those of many clients only if the machine does nothing
else. The floor is the figure of the best peer (zeromcp 1.10); below it, the exit
status is 1. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mcp_ref import meta_for, versions

NEWEST = versions("modern")[0]
META = meta_for(NEWEST)
ANSWER = """
import json, sys
def answer(message):
    text = (lambda text: text)(**message["params"].get("arguments", {"text": ""}))
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
"""
PROGRAMS = {
    "bare.py": ANSWER
    + """
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        sys.stdout.buffer.write(answer(message) + b"\\n")
        sys.stdout.buffer.flush()
""",
    "bare_http.py": ANSWER
    + """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        body = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\n"
                         b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
ThreadingHTTPServer.request_queue_size = 512
httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(httpd.server_port, flush=True)
httpd.serve_forever()
""",
    "ours.py": """
import time
from mcp_ref import Server
server = Server("bench")
@server.tool
def echo(text: str) -> str:
    return text
server.tool(lambda text: time.sleep(0.2) or text, name="slow")
if __name__ == "__main__":
    server.run()
""",
    "ours_http.py": """
from mcp_ref import Endpoint, http_server
from ours import server
httpd = http_server(Endpoint(server))
print(httpd.server_port, flush=True)
httpd.serve_forever()
""",
}

# Messages are legacy on stdio, and modern over HTTP, with the headers of the official
# Python SDK.
INITIALIZE = (
    b'{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": '
    b'"2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}}\n'
    b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
)


def call(number: int, tool: str = "echo", **meta: Any) -> bytes:
    """Return call `number` as a line; each has a text of its own."""
    params = {"name": tool, "arguments": {"text": f"text {number}"}, **meta}
    return (
        json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        ).encode()
        + b"\n"
    )


def post(number: int) -> bytes:
    """Return call `number` as a POST."""
    body = call(number, _meta=META)
    return (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream"
        b"\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nUser-Agent: bench/1"
        b"\r\nContent-Type: application/json\r\nMCP-Protocol-Version: %s\r\nMcp-Method:"
        b" tools/call\r\nMcp-Name: echo\r\nContent-Length: %d\r\n\r\n%s"
        % (NEWEST.encode(), len(body), body)
    )


def checked(seconds: float, answers: list[bytes], count: int) -> float:
    """Return the seconds per call; ValueError unless each has one answer, with its
    text."""
    found = sorted(
        (answer["id"], answer["result"]["content"][0]["text"])
        for answer in map(json.loads, answers)
    )
    if found != [(number, f"text {number}") for number in range(count)]:
        raise ValueError(f"wrong answers, such as {answers[:1]}")
    return seconds / count


def receive(connection: socket.socket) -> bytes:
    """Return the body of the next HTTP answer."""
    data = head = body = b""
    while not head or len(body) < int(
        re.findall(rb"(?i)\ncontent-length: *(\d+)", head)[0]
    ):
        data += connection.recv(2**16) or b"\n\r\n\r\n"  # at the end: an IndexError
        head, _, body = data.partition(b"\r\n\r\n")
    return body


def load(port: int, clients: int, count: int = 4000) -> float:
    """Keep one call in flight on each connection; return the seconds per call. `--load`
    runs it."""
    waiting = iter([post(number) for number in range(count)])
    answers: list[bytes] = []
    answered: Any = selectors.DefaultSelector()
    for _ in range(clients):
        answered.register(
            socket.create_connection(("127.0.0.1", port)), selectors.EVENT_READ
        )
    begin = time.perf_counter()
    for key in answered.get_map().values():
        key.fileobj.sendall(next(waiting))
    while len(answers) < count:
        for key, _ in answered.select():
            answers.append(receive(key.fileobj))
            key.fileobj.sendall(next(waiting, b""))
    return checked(time.perf_counter() - begin, answers, count)


@contextlib.contextmanager
def started(program: Path) -> Iterator[Any]:
    """Run a program, without site-packages, and end it."""
    with subprocess.Popen(
        [sys.executable, "-E", "-S", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: Any, request: bytes) -> bytes:
    """Send a line, and return the next line."""
    process.stdin.raw.write(request)
    return bytes(process.stdout.readline())


def start(program: Path) -> float:
    """Return the seconds from starting the program to the answer to its first call."""
    begin = time.perf_counter()
    with started(program) as process:
        ask(process, INITIALIZE)
        ask(process, call(0))
        return time.perf_counter() - begin


def round_trip(program: Path, count: int = 2000) -> float:
    """Return the seconds of a call on stdio."""
    requests = [call(number) for number in range(count)]
    with started(program) as process:
        ask(process, INITIALIZE)
        begin = time.perf_counter()
        answers = [ask(process, request) for request in requests]
        return checked(time.perf_counter() - begin, answers, count)


def at_once(program: Path, tool: str = "echo", count: int = 10_000) -> float:
    """Return the seconds of a call on stdio if no call waits for an answer."""
    data = b"".join(call(number, tool) for number in range(count))
    with started(program) as process:
        ask(process, INITIALIZE)
        begin, chunks, missing = time.perf_counter(), [], count
        threading.Thread(target=process.stdin.raw.write, args=(data,)).start()
        while missing > 0:
            # to be woken by every answer would slow the bare loop down
            time.sleep(0.0005)
            chunks.append(os.read(process.stdout.fileno(), 2**16) or b"\n" * missing)
            missing -= chunks[-1].count(b"\n")
        return checked(
            time.perf_counter() - begin, b"".join(chunks).splitlines(), count
        )


def memory(program: Path) -> float:
    """Return the resident bytes after a call on stdio."""
    with started(program) as process:
        ask(process, INITIALIZE)
        ask(process, call(0))
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


def uncached(program: Path) -> float:
    """Return the seconds that compiling and running the module takes."""
    begin = time.perf_counter()
    runpy.run_path(str(program.with_name("mcp_ref.py")))
    return time.perf_counter() - begin


def http_call(program: Path, clients: int) -> float:
    """Return the seconds of a call over HTTP, on kept connections."""
    if clients > 1:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with started(program) as process:
        port = process.stdout.readline().strip()
        return float(
            subprocess.check_output(
                [sys.executable, "-E", "-S", __file__, "--load", port, str(clients)]
            )
        )


# Target and floor are ratios to the bare loop; without one, figures in the row's unit.
Row = namedtuple("Row", "title programs measure unit target floor")
SCALES = {"ms": 1e3, "us": 1e6, "MB": 1e-6, "k/s": 1e-3}
PIPE, HTTP = ["bare.py", "ours.py"], ["bare_http.py", "ours_http.py"]
ROWS = (
    Row("start to a call answered", PIPE, start, "ms", 1.5, 3.8),
    Row("stdio: round trip", PIPE, round_trip, "us", 2.0, 3.3),
    Row("stdio: pipelined calls", PIPE, lambda one: 1 / at_once(one), "k/s", 0.4, 0.2),
    Row("stdio: memory after a call", PIPE, memory, "MB", 1.25, 2.2),
    Row(
        "32 calls of 0.2 s",
        PIPE[1:],
        lambda one: 32 * at_once(one, "slow", 32),
        "ms",
        250,
        6400,
    ),
    Row(
        "HTTP: call, one connection",
        HTTP,
        lambda one: http_call(one, 1),
        "us",
        1.2,
        2.6,
    ),
    Row(
        "HTTP: 16 clients", HTTP, lambda one: 1 / http_call(one, 16), "k/s", 0.75, 0.32
    ),
    Row("HTTP: 64 clients", HTTP, lambda one: 1 / http_call(one, 64), "k/s", 0.8, 0.33),
    Row("import without cached bytecode", PIPE[1:], uncached, "ms", 37, 999),
)


def main() -> int:
    """Measure and print all rows; return the exit status."""
    if sys.argv[1:2] == ["--load"]:
        print(load(*map(int, sys.argv[2:])))
        return 0
    if sys.argv[1:] not in ([], ["--quick"]):
        print(f"usage: benchmark.py [--quick]\n\n{__doc__}")
        return 0 if "--help" in sys.argv else 2
    for reason in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(reason, lambda *_: sys.exit(1))  # what was started ends, too
    signal.alarm(600)
    # by row and round: bare, ours
    figures: list[list[list[float]]] = [[] for _ in ROWS]
    with tempfile.TemporaryDirectory() as name:
        folder, module = Path(name), Path(__file__).resolve().parents[2] / "mcp_ref.py"
        (folder / "mcp_ref.py").write_bytes(module.read_bytes())
        for name, source in PROGRAMS.items():
            (folder / name).write_text(source, encoding="utf-8")
        start(folder / "ours.py")  # caches the bytecode of the module
        for number in range(4 if sys.argv[1:] else 15):
            step = 1 if number % 2 else -1  # the other one is first in the next round
            for row, found in zip(ROWS, figures):
                # To wake another processor takes longer than a call.
                os.sched_setaffinity(0, [0])
                found.append(
                    [row.measure(folder / one) for one in row.programs[::step]][::step]
                )
    print(
        f"Python {sys.version.split()[0]:25} figure    bare  ratio  spread     "
        "target  floor"
    )
    status = 0
    for row, found in zip(ROWS, figures):
        *bare, ours = (median(column) * SCALES[row.unit] for column in zip(*found))
        figure, compared = ours, f"{'-':>6}  {'-':>5}  {'':10}"
        if bare:
            low, figure, high = quantiles(
                (pair[1] / pair[0] for pair in found), n=4, method="inclusive"
            )
            compared = f"{bare[0]:6.1f}  {figure:5.2f}  {low:.2f}-{high:.2f} "
        missed = [
            (figure < limit) == (row.unit == "k/s") for limit in (row.target, row.floor)
        ]
        print(
            f"{row.title:31} {ours:7.1f} {row.unit:3} {compared} {row.target:6} "
            f"{row.floor:6} ",
            ("ok", "off target", "BELOW THE FLOOR")[sum(missed)],
        )
        status |= missed[1]
    return status


if __name__ == "__main__":
    sys.exit(main())
