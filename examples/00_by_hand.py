r"""A server without any library: forty lines of Python that almost speak MCP.

For anyone who has not seen the protocol yet: what goes over the wire, and why a real server is
longer than this. transcripts/README.md explains MCP in ten minutes; lesson 18 has the messages of
this page, and lesson 26 its mistakes. Next: 01_hello_server.py.

A message is a line of JSON. A request has an id and gets one response with the same id; a
notification has no id and gets none. This server has one tool and knows three methods:

    $ echo '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}' | python3 examples/00_by_hand.py
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "add", ...}]}}

The client of this repository starts the server and calls the tool. With --trace it shows every
message: `>` is what the client sends, `<` what it receives. (In this course, `...` stands for a
part left out.) It tries the newest revision first. When that fails, it opens a session:

    $ python3 examples/mcp_client.py call add a=2 b=3 --trace -- python3 examples/00_by_hand.py
    > {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {...}}
    < {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}
    > {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {...}}
    < {"jsonrpc": "2.0", "id": 2, "result": {..., "serverInfo": {"name": "by-hand", ...}}}
    > {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
    ...
    < {"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "5"}]}}
    5

The last `...` hides the call (its id is 4: ids may be any, as long as they are new) and a mistake.
A notification must never be answered, but this server answers it:

    $ echo '{"jsonrpc":"2.0","method":"notifications/initialized"}' | python3 examples/00_by_hand.py
    {"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "Method not found"}}

The end of this file lists more mistakes.
"""
import json
import sys

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def add(a, b):
    return a + b


def answer(method, params):
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

# What these lines get wrong and mcp_ref.py gets right (check.py finds many of these):
# - Notifications are answered, with an error. Some hosts hang up over that.
# - A line that is not JSON ends the server with a traceback; it should be answered with the error
#   -32700. A request without a method, or an array (a batch, in 2025-03-26), ends it as well.
# - So do wrong arguments, though models send them every day, and any exception in a tool. Nothing
#   checks the schema: "2" and "3" make 23, true and 1 make 2.
# - Any revision is accepted, even one that does not exist, and so is any id: null, true, {}.
# - There is no ping. If there were, it would wait until the running tool had finished.
# - print() in a tool, or a child process that prints, corrupts the stream.
# - SIGINT, which some hosts send to stop a server, causes a traceback; so does a closed stdout.
# - Text is decoded as the environment says, not as UTF-8; on Windows, lines end in \r\n.
