r"""A server over HTTP, and who may call it.

For servers that do not run on the machine of their clients. Read 01_hello_server.py first. Next:
06_client.py; mount.py shows the same under another HTTP server.

With `--http 8000`, a server that ends in `server.run()` goes over HTTP, on this machine only. This
one wants a token, and learns whose it is. In two terminals:

    python3 examples/05_http_server.py --http 8000
    python3 examples/mcp_client.py call http://127.0.0.1:8000/mcp count to=2 \
        --header "Authorization: Bearer sesame"

Each message is a POST of its own. Three headers repeat what the body says, for proxies that route
requests without reading bodies; the server checks that they agree. With --demo this file sends the
same request three times: without a token, with one, and with a request for progress. Since progress
is sent before the result, the last answer is not one object but a stream of events:

    $ python3 examples/05_http_server.py --demo
    401 application/json
    {"jsonrpc":"2.0","error":{"code":-32600,"message":"..."}}
    200 application/json
    {"jsonrpc":"2.0","id":1,"result":{..."text":"ada can count to 2."...}}
    200 text/event-stream
    data: {..."method":"notifications/progress","params":{...,"progress":1,"total":2}}
    data: {..."method":"notifications/progress","params":{...,"progress":2,"total":2}}
    data: {"jsonrpc":"2.0","id":1,"result":{..."text":"ada can count to 2."...}}

bearer() is for tokens that you hand out yourself; extensions/oauth_server.py checks those that an
authorization server issues. To serve other machines, put a proxy with TLS in front, and name it:
`hosts=["mcp.example.org"]`.
"""
from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]       # where mcp_ref.py is
from mcp_ref import (
    META_CAPABILITIES,
    META_VERSION,
    Context,
    Endpoint,
    Server,
    bearer,
    encode,
    http_server,
)

server = Server("counter")
known = bearer({"sesame": "ada"})           # token: whose it is; read yours from a safe place


@server.tool
def count(to: int, ctx: Context) -> str:
    """Count up to a number."""
    for number in range(1, to + 1):
        ctx.progress(number, to)
    return f"{ctx.principal} can count to {to}."


def demo(port: int, token: str, **wishes: str) -> None:
    """Be a modern client: send one request, print the answer."""
    from mcp_client import fetch
    meta = {META_VERSION: "2026-07-28", META_CAPABILITIES: {}, **wishes}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "count", "arguments": {"to": 2}, "_meta": meta}}
    status, headers, body = fetch("POST", f"http://127.0.0.1:{port}/mcp", {
        "Authorization": "Bearer " + token, "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "count",
    }, encode(message))
    print(status, headers["content-type"])
    print(body.decode().replace("\n\n", "\n").strip())


if __name__ == "__main__":
    if sys.argv[1:] != ["--demo"]:
        server.run(authorize=known)         # or serve_http(server, "127.0.0.1", 8000, ...)
    else:
        httpd = http_server(Endpoint(server, authorize=known))      # on a free port
        threading.Thread(target=httpd.serve_forever).start()
        demo(httpd.server_port, "")
        demo(httpd.server_port, "sesame")
        demo(httpd.server_port, "sesame", progressToken="p1")
        httpd.close()
