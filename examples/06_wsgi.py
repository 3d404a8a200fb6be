r"""The same endpoint under any WSGI server, and so in as many processes as you like.

serve_http() is one process. But the rules of MCP over HTTP are all in Endpoint, which knows no
sockets: it answers an Exchange, that is, one HTTP request and the means to answer it. Here is one
for WSGI, and with it an application that serves the server of the last example:

    MCP_STATE_KEY=$(openssl rand -hex 32) \
        gunicorn --chdir examples --workers 4 --threads 64 06_wsgi:application

The processes share nothing. Modern clients do not notice, if all servers have the same `state_key`:
then any process can go on with what another one has asked the user. (But changed() reaches only
the subscribers of its own process.) A legacy session lives in one process: let a balancer send each
Mcp-Session-Id to the process that it came from; or do without sessions, which `stateless=True` does
for all revisions but the first, 2024-11-05.

A request takes up a thread until it is answered, and an open stream for as long as it is open. That
a client has hung up shows when something is written to it, not before; and nothing may collect
what is written, neither the engine nor a proxy. The demo runs on wsgiref, out of Python's library:

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
from wsgiref.simple_server import make_server

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import MAX_MESSAGE_BYTES, Endpoint, Exchange, HttpError

example = importlib.import_module("05_http_server")
example.server.state_key = os.environ.get("MCP_STATE_KEY", "").encode() or os.urandom(32)
endpoint = Endpoint(example.server, authorize=example.known, stateless=True)


class WsgiExchange(Exchange):
    """An HTTP request as WSGI has it (PEP 3333)."""

    def __init__(self, environ: dict, start_response) -> None:
        script, path, query = (environ.get(key, "") for key in (    # empty ones may be missing
            "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING"))
        super().__init__(environ["REQUEST_METHOD"], script + path + "?" + query, [
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
        return data

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        if body is not None and status != 204:
            headers = {**headers, "Content-Length": str(len(body))}
        self._write = self.start_response(f"{status} {responses.get(status)}", [*headers.items()])
        self.write(body or b"")             # even if it is nothing: now the headers are sent

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
    with make_server("127.0.0.1", 0, application) as httpd:
        threading.Thread(target=httpd.serve_forever).start()
        example.demo(httpd.server_port, 1, "sesame", progressToken="p1")
        httpd.shutdown()
