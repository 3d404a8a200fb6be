r"""The same server over HTTP, and who may call it.

Every server with `server.run()` goes over HTTP when it is started with `--http 8000`: on this
machine only, and for whoever asks. serve_http() takes options. With bearer() a caller needs a
token, and the tool learns whose it is. Start it, and call it:

    python3 examples/05_http_server.py --http 8000
    curl http://127.0.0.1:8000/mcp -H 'Authorization: Bearer sesame' \
        -H 'Content-Type: application/json' -H 'MCP-Protocol-Version: 2026-07-28' \
        -H 'Mcp-Method: tools/call' -H 'Mcp-Name: count' -d '{"jsonrpc":"2.0","id":1,
        "method":"tools/call","params":{"name":"count","arguments":{"to":2},"_meta":{
        "io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":{}}}}'

The last three headers repeat what the body says, for those who route requests without reading
bodies; the server makes sure that they agree. With --demo this file is its own client, and sends
that request three times: without a token, with one, and then with the wish to hear of progress.
Now something goes out before the result, and the answer is not one JSON object any more, but a
stream of events (printed without the empty line after each):

    $ python3 examples/05_http_server.py --demo
    401 application/json
    {"jsonrpc":"2.0","error":{"code":-32600,"message":"A valid token is needed"}}
    200 application/json
    {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"ada can count to 2."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"counter","version":"1.0"}}}}
    200 text/event-stream
    data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"total":2}}
    data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":2,"total":2}}
    data: {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[{"type":"text","text":"ada can count to 2."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"counter","version":"1.0"}}}}
"""
from __future__ import annotations

import http.client
import json
import sys
import threading

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Context, Endpoint, Server, bearer, http_server

server = Server("counter")
known = bearer({"sesame": "ada"})           # token: whose it is; in earnest, from a safe place


@server.tool
def count(to: int, ctx: Context) -> str:
    """Count up to a number."""
    for number in range(1, to + 1):
        ctx.progress(number, to)
    return f"{ctx.principal or 'Anybody'} can count to {to}."


def demo(port: int, ident: int, token: str, **wishes: str) -> None:
    """Be a modern client: send one request, print what comes."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}, **wishes}
    params = {"name": "count", "arguments": {"to": 2}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/mcp", json.dumps(body), {
        "Authorization": "Bearer " + token, "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "count"})
    answer = connection.getresponse()
    print(answer.status, answer.headers["Content-Type"])
    print(answer.read().decode().replace("\n\n", "\n"), end="")
    connection.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--demo"]:
        httpd = http_server(Endpoint(server, authorize=known))      # on a port that is free
        threading.Thread(target=httpd.serve_forever).start()
        demo(httpd.server_port, 1, "")
        demo(httpd.server_port, 2, "sesame")
        demo(httpd.server_port, 3, "sesame", progressToken="p1")
        httpd.close()
    else:
        server.run(authorize=known)         # or serve_http(server, "127.0.0.1", 8000, ...)
