r"""A tool that takes its time: it tells how far it is, logs, and stops when it is asked to.

It tells only what the client wants to hear. This one gives a token for progress, and wants the
log from "info" up. (Logging is deprecated since 2026-07-28; what a tool prints goes to stderr.)

    $ printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scan","arguments":{"pages":3},"_meta":{"progressToken":"p1","io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}' | python3 examples/03_long_work.py
    {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"total":3,"message":"page 1"}}
    {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":2,"total":3,"message":"page 2"}}
    {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":3,"total":3,"message":"page 3"}}
    {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"scanner","data":{"scanned":3}}}
    {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"Scanned 3 pages."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scanner","version":"1.0"}}}}

Now the client thinks better of a million pages. What it cancelled is never answered. And while
a tool works, another thread reads on: the second request would not have to wait for the first.

    $ printf '{"jsonrpc":"2.0",%s}\n' \
        '"id":1,"method":"tools/call","params":{"name":"scan","arguments":{"pages":1000000},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}' \
        '"method":"notifications/cancelled","params":{"requestId":1,"reason":"too long"}' \
        '"id":2,"method":"tools/call","params":{"name":"scan","arguments":{"pages":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}' \
        | python3 examples/03_long_work.py
    {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"Scanned 2 pages."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scanner","version":"1.0"}}}}
"""
from __future__ import annotations

import sys
import time

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Context, Server

server = Server("scanner")


@server.tool
def scan(pages: int, ctx: Context) -> str:
    """Scan the pages of a book."""
    for page in range(1, pages + 1):
        if ctx.cancelled:                   # nobody can stop a thread: look, and leave
            print("stopped before page", page)
            return "stopped"                # nobody will read it
        time.sleep(0.01)                    # stands for the work
        ctx.progress(page, pages, f"page {page}")
    ctx.log("info", {"scanned": pages}, logger="scanner")
    return f"Scanned {pages} pages."


if __name__ == "__main__":
    server.run()
