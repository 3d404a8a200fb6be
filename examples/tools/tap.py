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
input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, BinaryIO


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


def main(path: str, *command: str) -> int:
    """Run the server with both of its streams in our hands; return its exit status."""
    try:
        log = 2
        if path != "-":
            log = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        server: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as problem:
        raise SystemExit(f"tap: cannot start: {problem}") from None
    record(log, program="tap", process=server.pid)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.send_signal(number))
    there = (sys.stdin.buffer, server.stdin, ">", log)
    threading.Thread(target=copy, args=there, daemon=True).start()

    copy(server.stdout, sys.stdout.buffer, "<", log)
    server.stdout.close()  # if the host has left, the server must notice
    status: int = server.wait()
    record(log, exit=status)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: tap.py LOGFILE|- COMMAND ...")
    os._exit(main(*sys.argv[1:]))  # a thread may still be waiting for input
