r"""One endpoint under any HTTP server: WSGI, CGI, and a function in a cloud.

For servers that outgrow one process, or live where a web server runs already. Read 05 first.
Endpoint has all the rules of MCP over HTTP but no sockets. It answers an Exchange: one HTTP request
and the means to answer it. Here are two kinds of Exchange, used in three ways:

    WSGI     gunicorn --chdir examples --workers 4 --threads 64 mount:application
    CGI      copy this file and mcp_ref.py to cgi-bin/; the URL is .../cgi-bin/mount.py/mcp
    Lambda   mount.handler, behind a function URL, an API gateway or a load balancer

    $ python3 examples/mount.py
    {'statusCode': 200, 'headers': {...}, 'body': '{"jsonrpc":"2.0","id":1,"result":{}}\n'}
    $ GATEWAY_INTERFACE=CGI/1.1 REQUEST_METHOD=GET PATH_INFO=/mcp python3 examples/mount.py
    Status: 405 Method Not Allowed...Allow: POST...

The processes share nothing. Modern clients do not notice if MCP_STATE_KEY is the same everywhere:
each process can go on where another one asked the user. (But changed() reaches only subscribers of
its own process.) Legacy clients are served without sessions, so they cannot be asked. A body needs
a Content-Length; nothing may buffer a stream. This endpoint is open to anyone: pass `authorize=`.
"""
from __future__ import annotations

import base64
import os
import sys
import time
from http.client import responses
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]       # where mcp_ref.py is
from mcp_ref import Endpoint, Exchange, Server

server = Server("mounted", state_key=os.environ.get("MCP_STATE_KEY"))
endpoint = Endpoint(server, stateless=True)
LISTEN_SECONDS = 5      # until a Lambda ends a subscription: its answer goes out as a whole


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


class WsgiExchange(Exchange):
    """An HTTP request as WSGI has it (PEP 3333)."""

    def __init__(self, environ: dict, start_response) -> None:
        super().__init__(
            environ["REQUEST_METHOD"],
            environ.get("PATH_INFO", "") + "?" + environ.get("QUERY_STRING", ""),
            [(key.removeprefix("HTTP_").replace("_", "-"), environ[key]) for key in environ
             if key.startswith("HTTP_") or key.startswith("CONTENT_") and environ[key]],
            environ["wsgi.input"])
        self.start_response = start_response

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        if body is not None and status != 204:
            headers = {"Content-Type": "text/plain", **headers, "Content-Length": str(len(body))}
        self.send = self.start_response(f"{status} {responses[status]}", list(headers.items()))
        self.write(body or b"")             # even if that is empty: now the headers are sent

    def write(self, data: bytes) -> None:
        try:
            self.send(data)
        except Exception as problem:        # each engine has its own for a client that has gone
            raise ConnectionError from problem


def application(environ: dict, start_response) -> list:
    """Answer a request: all of it has been written when this returns."""
    endpoint.serve(WsgiExchange(environ, start_response))
    return []


def cgi() -> None:
    """Answer the request in the environment and on stdin; what tools print goes to stderr."""
    from wsgiref.handlers import BaseCGIHandler, read_environ
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        BaseCGIHandler(sys.stdin.buffer, out, sys.stderr, read_environ()).run(application)


class EventExchange(Exchange):
    """An HTTP request as AWS hands it over: payload format 1.0 or 2.0, or a load balancer's."""

    def __init__(self, event: dict) -> None:
        http = (event.get("requestContext") or {}).get("http") or {}
        super().__init__(
            http.get("method") or event["httpMethod"], event.get("rawPath") or event["path"],
            [(name, value) for name, value in (event.get("headers") or {}).items()
             if name.lower() not in ("content-length", "transfer-encoding")], None)
        self.event, self.until = event, time.monotonic() + LISTEN_SECONDS

    def body(self) -> bytes:
        body = (self.event.get("body") or "").encode()
        return base64.b64decode(body) if self.event.get("isBase64Encoded") else body

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        self.answer = {"statusCode": status, "headers": headers, "body": (body or b"").decode()}

    def write(self, data: bytes) -> None:
        self.answer["body"] += data.decode()

    def gone(self) -> bool:
        return self.headers.get("mcp-method") == "subscriptions/listen" \
            and time.monotonic() > self.until


def handler(event: dict, context: object = None) -> dict:
    """Answer an event."""
    exchange = EventExchange(event)
    endpoint.serve(exchange)
    return exchange.answer


if __name__ == "__main__" and "GATEWAY_INTERFACE" in os.environ:
    cgi()
elif __name__ == "__main__":
    ping = {"body": '{"jsonrpc":"2.0","id":1,"method":"ping"}', "path": "/mcp"}
    print(handler({**ping, "httpMethod": "POST", "headers": {"Content-Type": "application/json"}}))
