r"""A server without any library: forty-five lines of Python that almost speak MCP.

For anyone who has not seen the protocol yet: what goes over the wire, and why a real
server is longer than this. Read MCP in ten minutes first (lessons/README.md). Lessons 1
to 4 have the messages of this page, and lesson 26 its mistakes. Next:
00_client_by_hand.py.

A message is a line of JSON. A request has an id and gets one response with the same id;
a notification has no id and gets none. Each request says in its `_meta` which revision
of the protocol it is written in. This server knows one revision and three methods:

    $ echo '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {' \
        '"io.modelcontextprotocol/protocolVersion": "2026-07-28",' \
        '"io.modelcontextprotocol/clientCapabilities": {}}}}' \
        | python3 examples/course/00_by_hand.py
    {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", ..."name": "add", ...}}

Three members look superfluous, but clients reject a result without them: `resultType`
in every result, and `ttlMs` and `cacheScope` in those of server/discover, of the four
lists and of resources/read.

The client of this repository starts the server and calls the tool. With --trace it
shows every message: `>` is what the client sends, `<` what it receives. (In this
course, `...` stands for a part left out.)

    $ python3 examples/mcp_cli.py call --trace add '{"a": 2, "b": 3}' -- python3 examples/course/00_by_hand.py
    > {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {...}}
    < {"jsonrpc": "2.0", "id": 1, "result": {..., "supportedVersions": ["2026-07-28"], ...}}
    > {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", ...}}
    < {"jsonrpc": "2.0", "id": 2, "result": {..."content": [{"type": "text", "text": "5"}]...}}
    5

Older clients open with `initialize`. This server cannot serve them, but it names the
revision it speaks, which may be all their users ever see. (lessons/18_by_hand.py is a
server by hand for older clients.)

    $ echo '{"jsonrpc": "2.0", "id": 1, "method": "initialize"}' | python3 examples/course/00_by_hand.py
    {..."error": {"code": -32022, ..."data": {"supported": ["2026-07-28"], ...}}}

The end of this file lists what is still wrong with it.
"""

import json
import sys
from typing import Any

VERSION = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
FRESH = {"ttlMs": 0, "cacheScope": "private"}  # may not be reused, nor shared
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": NUMBERS, "required": ["a", "b"]},
}


def add(a: int, b: int) -> int:
    return a + b


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request, or an error."""
    version = params.get("_meta", {}).get(META_VERSION, "none")
    if version != VERSION:
        data = {"supported": [VERSION], "requested": version}
        return {"code": -32022, "message": f"I speak {VERSION} only", "data": data}
    if method == "server/discover":
        return {**FRESH, "supportedVersions": [VERSION], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {**FRESH, "tools": [ADD]}
    if method != "tools/call":
        return {"code": -32601, "message": f"Method not found: {method}"}
    if params["name"] != "add":
        return {"code": -32602, "message": f"Unknown tool: {params['name']}"}
    try:
        text, failed = str(add(**params["arguments"])), False
    except Exception as problem:  # the model reads it, and tries again
        text, failed = str(problem), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        found = answer(message["method"], message.get("params", {}))
        if "code" in found:
            outcome = {"error": found}
        else:
            outcome = {"result": {"resultType": "complete", **found}}
        print(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True
        )

# What these lines get wrong, and mcp_ref.py gets right (examples/vectors/run.py finds
# much of it):
#
# - A line that is not JSON ends the server with a traceback; the answer should be the
#   error -32700. So does an array, a number, or a line of 100,000 times `[`.
# - Nothing checks the arguments: "2" and "3" make 23, true and 1 make 2.
# - Nothing checks the request: its id may be null, true or {}, its `_meta` may lack the
#   client's capabilities, its params may be a list, which ends the server.
# - While a tool runs, the server reads nothing: no other call is served, and no
#   cancellation is noticed.
# - print() in a tool corrupts the stream; so does a child process or a C library that
#   prints. mcp_ref.py moves the stream to a private descriptor before a tool can run.
# - SIGINT, which some hosts send to stop a server, causes a traceback; so does a client
#   that closes our stdout.
# - Text is decoded as the environment says, not as UTF-8; on Windows, lines end in
#   \r\n.
# - Older clients, most of those in use, are turned away.
