r"""The same endpoint under any WSGI server, and so in as many processes as you like.

serve_http() is one process. But the rules of MCP over HTTP are all in Endpoint, which knows no
sockets: it answers an Exchange, that is, one HTTP request and the means to answer it. Here is one
for WSGI, and with it an application that serves what the last example served:

    MCP_STATE_KEY=$(openssl rand -hex 32) \
        gunicorn --chdir examples --workers 4 --threads 64 06_wsgi:application

The processes share nothing. Modern clients do not notice, if all servers have the same `state_key`:
then any process can go on with what another one has asked the user. (But changed() reaches only
the subscribers of its own process.) A legacy session lives in one process: let a balancer send each
Mcp-Session-Id to the process that it came from; or do without sessions, which `stateless=True` does
for all revisions but the first, 2024-11-05.

A request takes up a thread until it is answered, and an open stream for as long as it is open. That
a client has hung up shows when something is written to it, not before; and nothing may collect
what is written, neither the engine nor a proxy.

The path of an Endpoint is what follows the place where the application is mounted: below /api, this
one is at /api/mcp. Its metadata (RFC 9728) is below /api then, too, where nobody would guess: tell
it with bearer()'s `metadata_url`. HTTP+SSE, of 2024-11-05, works only where there is no prefix. The
demo runs on wsgiref, out of Python's library:

    $ python3 examples/06_wsgi.py --demo
    200 text/event-stream
    data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"total":2}}
    data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":2,"total":2}}
    data: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"ada can count to 2."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"counter","version":"1.0"}}}}
"""
from __future__ import annotations

import importlib
import os
import sys
import threading
from http.client import responses

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import (
    MAX_MESSAGE_BYTES,
    Context,
    Endpoint,
    Exchange,
    HttpError,
    Server,
    bearer,
)

server = Server("counter", state_key=os.environ.get("MCP_STATE_KEY"))


@server.tool
def count(to: int, ctx: Context) -> str:
    """Count up to a number."""
    for number in range(1, to + 1):
        ctx.progress(number, to)
    return f"{ctx.principal or 'Anybody'} can count to {to}."


endpoint = Endpoint(server, authorize=bearer({"sesame": "ada"}), stateless=True)


class WsgiExchange(Exchange):
    """An HTTP request as WSGI has it (PEP 3333)."""

    def __init__(self, environ: dict, start_response) -> None:
        path, query = environ.get("PATH_INFO", ""), environ.get("QUERY_STRING", "")
        super().__init__(environ["REQUEST_METHOD"], path.replace("?", "%3F") + "?" + query, [
            (key.removeprefix("HTTP_").replace("_", "-"), value) for key, value in environ.items()
            if key.startswith("HTTP_") or key.startswith("CONTENT_") and value],
            environ["wsgi.input"])
        self.environ, self.start_response = environ, start_response

    def body(self) -> bytes:
        if not self.environ.get("wsgi.input_terminated"):
            return super().body()           # by the length: to read on could take for ever
        data = self.stream.read(MAX_MESSAGE_BYTES + 1)      # the engine has undone the chunks
        if len(data) > MAX_MESSAGE_BYTES:
            raise HttpError(413, "The body is too large")
        self.size = len(data)
        return data

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        # All but a 204 have a length and, if only for wsgiref.validate, a type: also an empty 202.
        if body is not None and status != 204:
            headers = {"Content-Type": "text/plain", **headers, "Content-Length": str(len(body))}
        phrase = responses.get(status, "")
        self._write = self.start_response(f"{status} {phrase}", [*headers.items()])
        self.write(b"" if self.method == "HEAD" else body or b"")   # now the headers are sent, too

    def write(self, data: bytes) -> None:
        try:
            self._write(data)
        except Exception as problem:        # the client is gone: each engine has its own for that
            raise ConnectionError from problem


def application(environ: dict, start_response) -> list:
    """Answer a request: all of it has been written when this returns."""
    endpoint.serve(WsgiExchange(environ, start_response))
    return []


if __name__ == "__main__":
    from wsgiref.simple_server import make_server
    with make_server("127.0.0.1", 0, application) as httpd:
        threading.Thread(target=httpd.serve_forever).start()
        importlib.import_module("05_http_server").demo(
            httpd.server_port, 1, "sesame", progressToken="p1")
        httpd.shutdown()
