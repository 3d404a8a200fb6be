r"""The smallest server: two functions become two tools.

A type hint becomes the schema of an argument, the docstring what the model reads about the tool.
Since 2026-07-28 a request says in its own `_meta` all that the server has to know of the client:

    $ printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}' | python3 examples/01_hello_server.py
    {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"5"}],"structuredContent":{"result":5},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"hello","version":"1.0"}}}}

Before that a client had to open a session; then a notification, which is never answered, told
that it was ready:

    $ printf '%s\n' \
      '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"sh","version":"1"}}}' \
      '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}' \
      | python3 examples/01_hello_server.py
    {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true}},"serverInfo":{"name":"hello","version":"1.0"}}}
    {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Hello, Ada!"}]}}
"""
from __future__ import annotations

import sys

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Server

server = Server("hello")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def greet(name: str) -> str:
    """Greet somebody by name."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run()
