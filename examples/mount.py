#!/usr/bin/env python3
r"""One endpoint under any HTTP server: WSGI, CGI, and a function in a cloud.

For servers that outgrow one process, or live behind a web server; read 05 first. An
Endpoint has no sockets. It answers an Exchange: one HTTP request and the means to
answer it. Here is one for WSGI; `wsgi(endpoint)` is an application for yours:

    WSGI     cd examples; gunicorn --workers 4 --threads 64 \
                   --config python:mount mount:application     (post_worker_init below)
             uwsgi --http-socket :8000 --chdir examples --module mount --threads 64 \
                   --add-header "Connection: close"     (it closes without saying so)
    CGI      copy this file and mcp_ref.py to cgi-bin/; URL: .../cgi-bin/mount.py/mcp
    Lambda   mount.handler, behind a function URL, an API gateway or a load balancer

    $ python3 examples/mount.py
    {'statusCode': 200, 'headers': {...}, 'body': '{"jsonrpc":"2.0","id":1,"result":{}}\n'}
    $ GATEWAY_INTERFACE=CGI/1.1 REQUEST_METHOD=GET PATH_INFO=/mcp python3 examples/mount.py
    Status: 405 Method Not Allowed...Allow: POST...

`application` has sessions for legacy clients if there is only one process. Several
processes have none, so legacy clients cannot be asked; there, an endpoint of yours
needs `stateless=True`. Processes share nothing. With the same MCP_STATE_KEY, one can
continue where another one asked the user. changed() reaches the subscribers of its own
process only. Each subscriber and each GET occupies a thread; together they may take
half of MCP_THREADS, the number of an engine's threads. Bodies need a Content-Length,
and proxies must not buffer streams. This endpoint is open to anyone: pass `authorize=`.
"""

from __future__ import annotations

import base64
import io
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import responses
from pathlib import Path
from typing import Any

# where mcp_ref.py is in a checkout
sys.path += [str(Path(__file__).resolve().parents[1])]
import mcp_ref
from mcp_ref import Endpoint, Exchange, Server

# Requests at once, in one process; streams without an end leave half of them free.
mcp_ref.MAX_CONNECTIONS = int(os.environ.get("MCP_THREADS", "64"))
server = Server("mounted", state_key=os.environ.get("MCP_STATE_KEY"))
endpoint = Endpoint(server)
served: dict[Any, None] = {}  # all endpoints that are mounted
# until CGI or a Lambda ends a subscription, which occupies a process
LISTEN_SECONDS = 5


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


class WsgiExchange(Exchange):
    """An HTTP request as WSGI has it (PEP 3333).

    Under uWSGI, an event written by another thread than the request's can reach the
    wrong client. So the endpoint runs elsewhere, where any thread may write, and queues
    what it needs for the request's thread.
    """

    def __init__(self, environ: dict[str, Any]) -> None:
        headers = {
            key.removeprefix("HTTP_").replace("_", "-"): environ[key]
            # CONTENT_* replace HTTP_CONTENT_*
            for key in sorted(environ, reverse=True)
            if key.startswith("HTTP_") or key.startswith("CONTENT_") and environ[key]
        }
        target = environ.get("PATH_INFO", "") + "?" + environ.get("QUERY_STRING", "")
        super().__init__(environ["REQUEST_METHOD"], target, headers.items(), None)
        named = headers.get("MCP-METHOD")
        endless = self.method == "GET" or named == "subscriptions/listen"
        limit = LISTEN_SECONDS if endless and environ["wsgi.run_once"] else float("inf")
        self.address = environ.get("REMOTE_ADDR", "")
        self.closed, self.until = False, time.monotonic() + limit
        self.todo: queue.Queue[Any] = queue.Queue(
            16
        )  # a handler waits while it is full
        self.came: queue.Queue[bytes] = queue.Queue()  # the body

    def serve(self, endpoint: Any) -> None:
        try:
            endpoint.serve(self)
        finally:
            self.end()

    def body(self) -> bytes:
        self.todo.put(self.length() or 0)
        self.stream = io.BytesIO(self.came.get())
        return super().body()

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        if body is not None and status != 204:
            headers = {
                "Content-Type": "text/plain",
                **headers,
                "Content-Length": str(len(body)),
            }
        self.todo.put((f"{status} {responses.get(status, '')}", list(headers.items())))
        self.todo.put(body or b"")

    def write(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionError("the client has hung up")
        self.todo.put(data)

    def end(self, hang_up: bool = False) -> None:
        self.todo.put(None)

    def ready(self) -> bool:
        return self.todo.empty()

    def gone(self) -> bool:
        return self.closed or time.monotonic() > self.until


def wsgi(endpoint: Any) -> Callable[..., Iterator[bytes]]:
    """Make a WSGI application of an endpoint."""
    if not hasattr(endpoint, "serve"):
        raise TypeError("expected an endpoint, as in wsgi(Endpoint(server))")
    served[endpoint] = None

    def answer(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterator[bytes]:
        """Answer a request; the engine iterates, and calls close() at a hang-up."""
        exchange = WsgiExchange(environ)
        threading.Thread(target=exchange.serve, args=[endpoint], daemon=True).start()
        try:
            for item in iter(exchange.todo.get, None):
                if isinstance(item, int):
                    exchange.came.put(environ["wsgi.input"].read(item))
                elif isinstance(item, tuple):
                    start_response(*item)
                else:
                    yield item
        finally:
            exchange.closed = True
            exchange.came.put(b"")
            while not exchange.todo.empty():  # write() may be waiting for room
                exchange.todo.get()

    return answer


def application(
    environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterator[bytes]:
    """Serve the endpoint of this file."""
    if environ["wsgi.multiprocess"] or environ["wsgi.run_once"]:
        endpoint.stateless = True  # the next request may reach another process
    return wsgi(endpoint)(environ, start_response)


def post_worker_init(worker: Any) -> None:
    """Set up a worker of gunicorn, which calls this: --config python:mount.

    After SIGTERM, a worker waits for its requests, and a subscription has no end. So
    end them first: their clients get a result, and subscribe to another worker.
    """
    mcp_ref.MAX_CONNECTIONS = worker.cfg.threads
    leave: Any = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: Any) -> None:
        leave(number, frame)
        for one in served:
            # Not here: the thread that was interrupted may hold a lock.
            threading.Thread(target=one.close, daemon=True).start()

    signal.signal(signal.SIGTERM, end)


def path_of(event: dict[str, Any], stage: Any) -> str:
    """Return the path of an event, without what comes before the endpoint's: the stage,
    or the base path of a custom domain."""
    path = str(event.get("rawPath") or event.get("path") or "/")
    path = path[len(f"/{stage}") :] if path.startswith(f"/{stage}/") else path
    parts = path.split("/")
    for start in range(1, len(parts)):
        rest = "/" + "/".join(parts[start:])
        below = f"{rest}/".startswith((f"{endpoint.path}/", "/sse/", "/.well-known/"))
        if below:
            return rest
    return path


def refused(said: str) -> dict[str, Any]:
    headers = {"Content-Type": "text/plain"}
    return {"statusCode": 400, "headers": headers, "body": said}


def handler(event: dict[str, Any], context: object = None) -> dict[str, Any]:
    """Answer an event of AWS: payload format 1.0 or 2.0, or a load balancer's."""
    origin = event.get("requestContext") or {}
    verb = event.get("httpMethod") or (origin.get("http") or {}).get("method")
    if not verb:  # as the test event of the console has it
        return refused(
            "expected an HTTP request, with httpMethod or requestContext.http"
        )
    several = event.get("multiValueHeaders")
    body = (event.get("body") or "").encode()
    body = base64.b64decode(body) if event.get("isBase64Encoded") else body
    environ = {
        "REQUEST_METHOD": verb,
        "PATH_INFO": path_of(event, origin.get("stage")),
        "wsgi.input": io.BytesIO(body),
        "wsgi.multiprocess": True,
        "wsgi.run_once": True,
        "CONTENT_LENGTH": str(len(body)),
    }
    for name, value in (several or event.get("headers") or {}).items():
        if name.lower() != "transfer-encoding":
            text = ", ".join(value) if several else value
            key = "HTTP_" + name.upper().replace("-", "_")
            if key in environ:  # by another spelling
                return refused(f"the header {name} is repeated")
            environ[key] = text
    answer: dict[str, Any] = {}

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        answer.update(statusCode=int(status[:3]), headers=dict(headers))
        if several:  # a load balancer expects its own form
            answer["multiValueHeaders"] = {name: [value] for name, value in headers}

    answer["body"] = b"".join(application(environ, start_response)).decode()
    return answer


if __name__ == "__main__" and "GATEWAY_INTERFACE" in os.environ:
    from wsgiref.handlers import BaseCGIHandler, read_environ

    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what tools print goes to stderr
        BaseCGIHandler.wsgi_run_once = True
        BaseCGIHandler(sys.stdin.buffer, out, sys.stderr, read_environ()).run(
            application
        )
elif __name__ == "__main__":
    ping = {"body": '{"jsonrpc":"2.0","id":1,"method":"ping"}', "path": "/mcp"}
    print(
        handler(
            {
                **ping,
                "httpMethod": "POST",
                "headers": {"Content-Type": "application/json"},
            }
        )
    )
