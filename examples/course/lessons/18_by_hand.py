r"""A session-era server without any library: thirty-five lines that almost speak MCP.

For anyone who must support older clients, and to see how the two eras differ: compare
it with ../00_by_hand.py. Lesson 18 has the messages of this page, lesson 25 how a
client finds out, and lesson 26 the mistakes.

A request needs no `_meta`, because `initialize` has said who the client is; and no
result needs `resultType`, `ttlMs` or `cacheScope`:

    $ echo '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}' | python3 examples/course/lessons/18_by_hand.py
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "add", ...}]}}

The client of this repository tries the newest revision first. When that fails, it opens
a session:

    $ python3 examples/mcp_cli.py call --trace add '{"a": 2, "b": 3}' -- python3 examples/course/lessons/18_by_hand.py
    > {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {...}}
    < {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}
    > {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {...}}
    < {"jsonrpc": "2.0", "id": 2, "result": {..., "serverInfo": {"name": "by-hand", ...}}}
    > {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
    ...
    < {"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "5"}]}}
    5

The last `...` hides the call (its id is 4: any id will do, as long as it is new) and a
mistake. A notification must never be answered, but this server answers it:

    $ echo '{"jsonrpc":"2.0","method":"notifications/initialized"}' | python3 examples/course/lessons/18_by_hand.py
    {"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "Method not found"}}

The end of this file lists more mistakes.
"""

import json
import sys
from typing import Any

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def add(a: int, b: int) -> int:
    return a + b


def answer(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "by-hand", "version": "1.0"},
        }
    if method == "tools/list":
        return {"tools": [ADD]}
    if method == "tools/call" and params["name"] == "add":
        return {"content": [{"type": "text", "text": str(add(**params["arguments"]))}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    response = {"jsonrpc": "2.0", "id": message.get("id")}
    result = answer(message["method"], message.get("params"))
    if result is None:
        response["error"] = {"code": -32601, "message": "Method not found"}
    else:
        response["result"] = result
    print(json.dumps(response), flush=True)

# What these lines get wrong and mcp_ref.py gets right, besides the mistakes of
# 00_by_hand.py:
#
# - Notifications are answered, with an error. Some hosts hang up over that.
# - Wrong arguments end the server with a traceback, and so does an exception in a tool,
#   though models send wrong arguments every day.
# - Any revision is accepted, even one that does not exist, and `initialize` need not
#   come first.
# - There is no ping. If there were, it would wait until the running tool had finished.
