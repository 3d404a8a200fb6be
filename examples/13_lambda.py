r"""A function in somebody's cloud: an event comes in, a dict goes out, and nothing is kept.

The whole server is `server.handle(message, send)`: where messages come from a queue, say, that is
all there is to it (the second function). Over HTTP the headers have rules, too, so the first one
hands the event to an Endpoint, as 06_wsgi.py does. An answer goes out as a whole when it is
complete, a stream included; who listens for changes is sent away after `gone()` seconds.

    $ python3 examples/13_lambda.py
    200 {"jsonrpc":"2.0","id":1,"result":{}}
    404 {"jsonrpc":"2.0","error":{"code":-32600,"message":"Not found; the MCP endpoint is /mcp"}}
    [{'jsonrpc': '2.0', 'id': 1, 'result': {}}]
"""
from __future__ import annotations

import base64
import io
import os
import sys
import time

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Endpoint, Exchange, Server, decode

server = Server("function", state_key=os.environ.get("MCP_STATE_KEY"))


@server.tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


class EventExchange(Exchange):
    """An HTTP request as AWS hands it over: payload format 2.0 of API Gateway and function URLs."""

    def __init__(self, event: dict) -> None:
        body = event.get("body") or ""
        plain = base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
        headers = {**event["headers"], "content-length": str(len(plain))}
        super().__init__(event["requestContext"]["http"]["method"], event["rawPath"],
                         headers.items(), io.BytesIO(plain))
        self.until = time.monotonic() + 5
        self.answer: dict = {}

    def start(self, status: int, headers: dict, body: bytes | None) -> None:
        self.answer = {"statusCode": status, "headers": headers, "body": (body or b"").decode()}

    def write(self, data: bytes) -> None:
        self.answer["body"] += data.decode()

    def gone(self) -> bool:
        return time.monotonic() > self.until


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
