r"""One process for each request: as CGI, where a web host allows nothing else.

Python's library runs a WSGI application as CGI, and 06_wsgi.py, which has to lie beside this file,
has what makes one. The endpoint is wherever the web server has put the script. In the modern era
nothing has to be remembered between two requests, so modern clients are served in full; older ones
too, `stateless`, but for questions to their user. What a tool asks a modern client is sealed in a
state that comes back: all processes need one key for it, here from the environment.

What the process writes to standard output is the answer. What tools print is not part of it: it
goes where standard error goes, which is the web server's log. A request as the web server would
pass it on, in the environment and on standard input:

    $ BODY='{"jsonrpc":"2.0","id":1,"method":"ping"}'; printf %s "$BODY" | GATEWAY_INTERFACE=CGI/1.1 REQUEST_METHOD=POST SCRIPT_NAME=/cgi-bin/12_cgi.py CONTENT_TYPE=application/json CONTENT_LENGTH=${#BODY} HTTP_HOST=127.0.0.1 python3 examples/12_cgi.py | tr -d '\r' | grep -v '^$'
    Status: 200 OK
    Content-Type: application/json
    Content-Length: 37
    {"jsonrpc":"2.0","id":1,"result":{}}
"""
from __future__ import annotations

import importlib
import os
import sys
from wsgiref.handlers import BaseCGIHandler, read_environ

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Endpoint, Server

server = Server("cgi", state_key=os.environ.get("MCP_STATE_KEY"))


@server.tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


endpoint = Endpoint(server, "/", stateless=True)     # which is where the script is: SCRIPT_NAME
exchange = importlib.import_module("06_wsgi").WsgiExchange


def application(environ: dict, start_response) -> list:
    """Answer a request: all of it has been written when this returns."""
    endpoint.serve(exchange(environ, start_response))
    return []


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)                       # for what is printed, also by programs that a tool runs
        BaseCGIHandler(sys.stdin.buffer, answer, sys.stderr, read_environ(),
                       multithread=False, multiprocess=True).run(application)
