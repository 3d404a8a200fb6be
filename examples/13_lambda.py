r"""A function in somebody's cloud: an event comes in, a dict goes out, and nothing is kept.

The whole server is `server.handle(message, send)`: where messages come from a queue, say, that is
all there is to it (the second function). Over HTTP the headers have rules, too, so the first one
hands the event to an Endpoint, as 06_wsgi.py does. An event is what AWS makes of a request: API
Gateway (payload format 1.0 or 2.0), a function URL, a load balancer. An answer goes out as a whole
when it is complete, a stream included; who listens for changes is sent away after LISTEN_SECONDS.

    $ python3 examples/13_lambda.py
    200 {"jsonrpc":"2.0","id":1,"result":{}}
    404 {"jsonrpc":"2.0","error":{"code":-32600,"message":"Not found; the MCP endpoint is /mcp"}}
    [{'jsonrpc': '2.0', 'id': 1, 'result': {}}]
"""
from __future__ import annotations

import base64
import os
import sys
import time

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Endpoint, Exchange, HttpError, Server, decode

LISTEN_SECONDS = 5
server = Server("function", state_key=os.environ.get("MCP_STATE_KEY"))


@server.tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


class EventExchange(Exchange):
    """An HTTP request as AWS hands it over. What has no value may be null, or missing."""

    def __init__(self, event: dict) -> None:
        context = event.get("requestContext") or {}
        method = (context.get("http") or {}).get("method") or event.get("httpMethod") or ""
        path = event.get("rawPath") or event.get("path") or "/"
        stage = context.get("stage")
        if stage and path.startswith(f"/{stage}/"):
            path = path[len(stage) + 1:]        # /prod/mcp: a part of the address, not of ours
        self.several = event.get("multiValueHeaders")       # each is a list; so are those we send
        headers = self.several or {name: [value] for name, value in (
            event.get("headers") or {}).items()}
        super().__init__(method, path, [
            (name, value) for name, values in headers.items() for value in values or ()
            if value is not None and name.lower() not in ("content-length", "transfer-encoding")
        ], None)                                # no stream, and so no framing: the body is all here
        self.event = event
        self.until = time.monotonic() + LISTEN_SECONDS
        self.answer: dict = {"statusCode": 500, "isBase64Encoded": False}

    def body(self) -> bytes:
        text = self.event.get("body") or ""
        try:
            body = base64.b64decode(text, validate=True) if self.event.get("isBase64Encoded") \
                else text.encode()
        except (AttributeError, TypeError, ValueError):
            raise HttpError(400, "The event's body is no text, or not in Base64") from None
        self.size = len(body)
        return body

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        self.answer.update(statusCode=status, headers=headers, body=(body or b"").decode())
        if self.several is not None:
            self.answer["multiValueHeaders"] = {name: [headers[name]] for name in headers}

    def write(self, data: bytes) -> None:
        self.answer["body"] += data.decode()

    def gone(self) -> bool:
        lingers = self.method == "GET" or self.headers.get("mcp-method") == "subscriptions/listen"
        return lingers and time.monotonic() > self.until    # calls may take what the cloud allows


endpoint = Endpoint(server, stateless=True)


def handler(event: dict, context: object = None) -> dict:
    """Answer an HTTP request."""
    exchange = EventExchange(event)
    endpoint.serve(exchange)
    return exchange.answer


def consume(line: bytes) -> list:
    """Answer one message, wherever it comes from."""
    answers: list = []
    server.handle(decode(line), answers.append)
    return answers


if __name__ == "__main__":
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for path in ("/mcp", "/elsewhere"):
        answer = handler({"rawPath": path, "requestContext": {"http": {"method": "POST"}},
                          "headers": {"content-type": "application/json"}, "body": ping})
        print(answer["statusCode"], answer["body"].strip())
    print(consume(ping.encode()))
