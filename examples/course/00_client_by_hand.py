r"""A client without any library: forty lines that list tools and call one.

For anyone who wants to see the other side, too. Read 00_by_hand.py first. Lessons 1 to
3 have the messages, and lesson 5 those that this client skips. Next:
01_hello_server.py.

The client starts the server, writes requests to its standard input, and reads its
standard output until the response with the same id comes. Give it the name of a tool,
its arguments as JSON, and the server's command:

    $ python3 examples/course/00_client_by_hand.py add '{"a": 2, "b": 3}' python3 examples/course/00_by_hand.py
    It speaks 2026-07-28 and offers tools.
    add: Add two numbers.
    5

Any server of today's protocol will do:

    $ python3 examples/course/00_client_by_hand.py search '{"word": "u"}' python3 examples/course/lessons/server.py
    It speaks 2026-07-28, 2025-11-25, ... and offers tools, resources, ...
    search: List the titles that contain a word.
    ...
    ["Dune", "Ulysses"]

What is missing: an older server answers with an error, and waits for `initialize`
(lesson 25). A server that never answers hangs this client. Lists may have more pages
(lesson 2), results may be questions (lesson 10), and one connection may carry many
calls at once. 06_client.py shows a client that does it all.
"""

import json
import subprocess
import sys
from typing import Any

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "1.0"},
    "io.modelcontextprotocol/clientCapabilities": {},  # it cannot be asked anything
}


def show(text: str) -> None:
    """Print a server's text; characters that could command the terminal are escaped."""
    shown = [c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text]
    print("".join(shown))


def request(number: int, method: str, **params: Any) -> Any:
    """Send a request; return its result."""
    params["_meta"] = META
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    print(json.dumps(message), file=server.stdin, flush=True)
    for line in server.stdout:
        response = json.loads(line)
        if response.get("id") == number:  # anything else is a notification
            if "error" in response:
                show(f"{method}: {response['error']['message']}")
                sys.exit(1)
            return response["result"]
    raise SystemExit("The server has left.")


if len(sys.argv) < 4:
    print(__doc__)
    sys.exit(sys.argv[1:] != ["--help"])
name, arguments, *command = sys.argv[1:]
pipe = subprocess.PIPE
server: Any = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
with server:
    found = request(1, "server/discover")
    versions, features = found["supportedVersions"], found["capabilities"]
    show(f"It speaks {', '.join(versions)} and offers {', '.join(features)}.")
    for tool in request(2, "tools/list")["tools"]:
        show(f"{tool['name']}: {tool.get('description', '')}")
    result = request(3, "tools/call", name=name, arguments=json.loads(arguments))
    for block in result["content"]:
        show(block.get("text", block["type"]))
    server.stdin.close()  # that is how a server is told to leave
