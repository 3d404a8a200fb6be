r"""Stand between a host and a stdio server, and show what they say. Nothing is changed.

For the day when a host and a server do not get along, whoever wrote them. It needs nothing from
this repository. (A server on mcp_ref.py needs no tap: set MCP_TRACE=FILE in its environment.) Read
00_by_hand.py first. Next: 09_socket.py.

In the host's configuration, put this program before the server's command:

    "command": "python3", "args": ["/path/08_tap.py", "/tmp/tap.log", "npx", "some-server"]

Every line goes on as it came, byte for byte. It also goes to the log file (`-`: stderr), after the
seconds since the start, and `>` if the host sent it or `<` if the server did. Here our client is
the host, and the demonstration of mcp_ref.py the server:

    $ python3 examples/mcp_client.py list -- python3 examples/08_tap.py - python3 mcp_ref.py
    ... > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{...}}
    ... < {"jsonrpc":"2.0","id":1,"result":{...}}
    ... > {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{...}}
    ... < {"jsonrpc":"2.0","id":2,"result":{..."tools":[{"name":"echo",...}]...}}
    ...

It ends when the server does, with its exit status, and passes on signals and the end of input.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

BEGUN = time.monotonic()


def copy(source: BinaryIO, target: BinaryIO, way: str, log: int) -> None:
    """Copy lines until the source ends or nobody reads the target; then close the target."""
    with suppress(OSError):
        for line in source:
            with suppress(OSError):         # the log comes first: no answer may overtake it
                head = f"{time.monotonic() - BEGUN:8.3f} {way} ".encode()
                os.write(log, head + line.rstrip(b"\n") + b"\n")
            target.write(line)
            target.flush()
    with suppress(OSError):
        target.close()


def main(path: str, *command: str) -> int:
    """Run the server with both of its streams in our hands; return its exit status."""
    log = 2 if path == "-" else os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as problem:
        raise SystemExit(f"08_tap: cannot start {command[0]}: {problem}") from None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.send_signal(number))
    there = (sys.stdin.buffer, server.stdin, ">", log)
    threading.Thread(target=copy, args=there, daemon=True).start()
    copy(server.stdout, sys.stdout.buffer, "<", log)
    server.stdout.close()                   # if the host has left, the server has to notice
    status = server.wait()
    with suppress(OSError):
        os.write(log, f"{time.monotonic() - BEGUN:8.3f} = exit status {status}\n".encode())
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: 08_tap.py LOGFILE|- COMMAND ...")
    os._exit(main(*sys.argv[1:]))           # a thread may still be waiting for input
