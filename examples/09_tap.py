r"""Stand between a host and a stdio server, and show what they say: it changes nothing.

In the host's configuration put this program and "--" before the server's command. Every line goes
on as it came, byte for byte, whatever it is; what it is goes to standard error, or into a file:

    "command": "python3", "args": ["/path/09_tap.py", "--log", "/tmp/tap.log", "--", "python3", ...]

It ends when the server does, with its exit status; signals and the end of input are passed on. Here
`sh` plays the host (and the times, which come first in each line, are cut off):

    $ printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"ping"}' oops | \
          python3 examples/09_tap.py -- sh -c 'python3 mcp_ref.py 2>/dev/null' 2>&1 >/dev/null | \
          cut -c 10-45 | sort
    < error: -32700 Parse error: Expecti
    < result of 1
    > no message: oops
    > request 1: ping
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any


def what_is(line: bytes) -> str:
    """Say in a word what a line is."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if isinstance(message, list):
        return f"batch of {len(message)}"
    if not isinstance(message, dict):
        return "no message: " + line.decode("utf-8", "replace").rstrip()
    if "method" in message:
        kind = f"request {message['id']}" if "id" in message else "notification"
        return f"{kind}: {message['method']}"
    if "error" in message:
        error = message["error"]
        return "error{}: {}".format(f" to {message['id']}" if "id" in message else "", " ".join(
            str(error.get(key)) for key in ("code", "message")) if isinstance(error, dict) else "?")
    return f"result of {message.get('id')}"


def pass_on(source: int, target: int, way: str, log: Any, begun: float) -> None:
    """Copy lines until the source ends, or nobody reads any more; then say so to the target."""
    parts: list[bytes] = []                 # of a line that is not complete
    try:
        for chunk in iter(lambda: os.read(source, 65536), b""):
            *lines, rest = chunk.split(b"\n")
            for line in lines:              # shown first, so that no answer is seen before it
                show(log, way, b"".join([*parts, line]), begun)
                parts = []
            parts.append(rest)
            while chunk:
                chunk = chunk[os.write(target, chunk):]
    except OSError:                         # nobody reads, or there is nothing to read from
        pass
    show(log, way, b"".join(parts), begun)
    os.close(target)


def show(log: Any, way: str, line: bytes, begun: float) -> None:
    """Write about a line; a log that cannot be written must not disturb the conversation."""
    if line.strip():
        try:
            log.write(f"{time.monotonic() - begun:8.3f} {way} {what_is(line)}\n")
            log.flush()
        except (OSError, ValueError):
            pass


def main(arguments: list[str]) -> int:
    """Run the server with both its streams through our hands."""
    if "--" not in arguments or arguments[:1] in (["-h"], ["--help"]):
        raise SystemExit(f"{__doc__}\nThere is no -- before a command.")
    options, command = (arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:])
    log = sys.stderr if options[:1] != ["--log"] else \
        open(options[1], "a", encoding="utf-8")     # noqa: SIM115  open to the end
    begun = time.monotonic()
    try:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    except OSError as problem:
        raise SystemExit(f"09_tap: cannot start {command[:1]}: {problem}") from None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.send_signal(number))
    assert server.stdin and server.stdout
    threading.Thread(target=pass_on, args=(0, os.dup(server.stdin.fileno()), ">", log, begun),
                     daemon=True).start()
    server.stdin.close()
    pass_on(server.stdout.fileno(), os.dup(1), "<", log, begun)
    server.stdout.close()                   # if it is the host that left, the server shall notice
    status = server.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)                        # a thread may still wait for input that never comes
