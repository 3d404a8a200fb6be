r"""A tool that takes its time: it reports progress, logs, and stops when it is told to.

For tools that run longer than users will wait without feedback. Read 01_hello_server.py
first. Lessons 5, 6, 14 and 19 have the messages. Next: 03_resources_and_prompts.py.

A client that sends a progress token gets progress, and one that names a log level gets
log messages. Others get neither, and the tool need not know. This client wants both. It
prints the log; progress is a line that moves, on a terminal only:

    $ python3 examples/mcp_cli.py call examples/course/02_long_work.py scan pages=3
    [info] scanner: {"pages": 3}
    Scanned 3 pages.

On the wire, both are notifications that precede the response:

    $ python3 examples/mcp_cli.py call --trace examples/course/02_long_work.py scan pages=1
    ...
    > {"jsonrpc": "2.0", ..., "method": "tools/call", ... "progressToken": ...}}}
    < {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", ...}}
    ...
    < {..., "method": "notifications/progress", "params": {..., "progress": 1, ...}}
    ...
    Scanned 1 pages.

Here the client loses patience after two seconds. It sends notifications/cancelled, and
the tool finds `ctx.cancelled` set. A request that the client cancelled is not answered.
Whatever a tool prints goes to stderr, which this client shows:

    $ python3 examples/mcp_cli.py call --timeout 2 examples/course/02_long_work.py scan pages=9999
    [info] scanner: {"pages": 9999}
    stopped before page ...
    TimeoutError: no answer to tools/call within 2 s

A slow tool delays no other request, because it gets a thread of its own. When the
client leaves, a running tool gets 1.8 seconds to finish, and server.run() returns. (Log
messages are deprecated since 2026-07-28; write to stderr instead.)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import Context, Server

server = Server("scanner")


@server.tool
def scan(pages: int, ctx: Context) -> str:
    """Scan the pages of a book."""
    ctx.log("info", {"pages": pages}, logger="scanner")
    for page in range(1, pages + 1):
        if ctx.cancelled:  # a thread cannot be stopped from outside
            print("stopped before page", page)
            return "stopped"  # nobody will read this
        time.sleep(0.01)  # stands for the work
        ctx.progress(page, pages, f"page {page}")
    return f"Scanned {pages} pages."


if __name__ == "__main__":
    server.run()
