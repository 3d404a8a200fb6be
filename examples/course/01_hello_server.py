r"""The smallest real server: two functions become two tools.

For anyone who wants to offer functions to a model. A type hint becomes the schema of an
argument, and the docstring is what the model reads about the tool. Read 00_by_hand.py
first, to see what happens underneath. Lessons 1 to 4 and 24 have the messages. Next:
02_long_work.py.

    $ python3 examples/mcp_cli.py list examples/course/01_hello_server.py
    Tools:
      add(a: int, b: int) -> int  Add two numbers.
      greet(name: str)  Greet someone by name.

In revision 2026-07-28, called *modern*, every request says in its own `_meta` what the
server has to know about the client, and no request depends on another:

    $ python3 examples/mcp_cli.py call --trace examples/course/01_hello_server.py add a=2 b=3
    > {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {...}}}
    < {"jsonrpc": "2.0", "id": 1, "result": {..., "supportedVersions": ["2026-07-28", ...], ...}}
    ...
    > {..., "params": {"name": "add", "arguments": {"a": 2, "b": 3}, "_meta": {...}}}
    < {..., "result": {"resultType": "complete", "content": [{"type": "text", "text": "5"}], ...}}
    5

In older revisions, called *legacy*, a client opens a session with `initialize`, then
sends a notification that it is ready. The agreement holds for the rest of the session.
The same server serves both, and the functions below need not know:

    $ python3 examples/mcp_cli.py list --trace --revision 2025-06-18 examples/course/01_hello_server.py
    > {..., "method": "initialize", "params": {"protocolVersion": "2025-06-18", ...}}
    < {..., "result": {"protocolVersion": "2025-06-18", "capabilities": {...}, "serverInfo": {...}}}
    > {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
    ...
    > {"jsonrpc": "2.0", "id": ..., "method": "tools/list", "params": {}}
    < {..., "result": {"tools": [{"name": "add", ..., "inputSchema": {...}}, ...]}}
    ...

A call with wrong arguments (here with none, as JSON) gets an answer that a model can
act on; the function does not run:

    $ python3 examples/mcp_cli.py call examples/course/01_hello_server.py add "{}"
    Invalid arguments for add: ...
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import Server

server = Server("hello")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run()
