r"""A server without the module: MCP in forty lines of Python, and they almost work.

A message is a line of JSON. A request has an id, and gets one response with the same id; a
notification has no id, and gets none. This server has one tool, and knows three methods.

    $ printf '%s\n' \
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"sh","version":"1"}}}' \
        '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
        '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' \
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}' \
        | python3 examples/00_by_hand.py
    {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "by-hand", "version": "1.0"}}}
    {"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "Method not found"}}
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "add", "description": "Add two numbers.", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}]}}
    {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "5"}]}}

The second of these lines is a mistake, and not the only one: see the end.
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

# What these lines get wrong, and mcp_ref.py does not:
#
# - They answer notifications, with an error. Some hosts hang up over that.
# - A line that is not JSON ends the server, with a traceback; right would be the error -32700,
#   and on with the next line. So do an empty line, a byte order mark, an array (a batch, in
#   2025-03-26), and a request without a method.
# - A call with a missing or an unknown argument, or without arguments, ends it too: models make
#   such mistakes every day. So does any exception in a tool.
# - Arguments are not checked against the schema: "2" and "3" make 23, true and 1 make 2.
# - Every revision is agreed to, even one that does not exist. A modern request (2026-07-28, with
#   its `_meta`) is answered as if it were an old one: no resultType. server/discover is unknown.
# - Requests are served before `initialize`. "jsonrpc" is not looked at, nor whether an id may be
#   one: null, true and {} may not.
# - There is no ping. If there were, it would wait for the tool that runs, as all other requests
#   do; and a cancellation is read when there is nothing left to cancel.
# - An unknown tool gets the error of an unknown method.
# - print() in a tool, or a child process that prints, puts junk into the stream; a child that
#   reads its standard input may take the next requests away.
# - SIGINT, by which some hosts stop a server, makes a traceback. So does a client that closes our
#   stdout before we answer.
# - Text is decoded as the environment says, not as UTF-8; on Windows lines end in \r\n.
# - Nothing limits the length of a line; a deep one ends the server by exhausting the stack.
