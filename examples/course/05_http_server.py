r"""A server over HTTP: who may call it, and what it opens and closes.

For servers that do not run on the machine of their clients. Read 04_ask_the_user.py
first. Lessons 15 to 17, 22 and 23 have the messages. Next: 06_client.py.

With `--http 8000`, a server that ends in `server.run()` serves HTTP, on this machine
only. This one requires a token and identifies its owner. In two terminals:

    python3 examples/course/05_http_server.py --http 8000
    python3 examples/mcp_cli.py call --header "Authorization: Bearer sesame" \
        http://127.0.0.1:8000/mcp count to=2

Each message is a POST of its own, and headers repeat for proxies what the body says.
With --demo this file sends the same request three times: without a token, with one, and
with a request for progress, which is answered by a stream of events, the result last:

    $ python3 examples/course/05_http_server.py --demo
    ...401 application/json
    {"jsonrpc":"2.0","error":{"code":-32600,"message":"..."}}
    200 application/json
    {"jsonrpc":"2.0","id":1,"result":{..."text":"ada counted to 2, in call 1."...}}
    200 text/event-stream
    data: {..."method":"notifications/progress","params":{...,"progress":1,"total":2}}
    data: {..."method":"notifications/progress","params":{...,"progress":2,"total":2}}
    data: {"jsonrpc":"2.0","id":1,"result":{..."text":"ada counted to 2, in call 2."...}}
    The database is closed.

run() returns when the client has left or a signal has come, so `with open_database() as
db` around it is all that cleaning up needs, on stdio too. Over HTTP, SIGTERM lets
running calls end first.

bearer() is for tokens that you hand out; extensions/oauth_server.py checks those of
authorization servers. For other machines, put a proxy with TLS in front:
`hosts=["mcp.example.org"]` names it.
"""

import contextlib
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
import mcp_ref

server = mcp_ref.Server("counter")
# token: whose it is; read yours from a safe place
known = mcp_ref.bearer({"sesame": "ada"})
lock = threading.Lock()  # handlers run on several threads


@contextlib.contextmanager
def open_database() -> Iterator[sqlite3.Connection]:
    """Open the database; close it, whatever happens."""
    with contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)) as db:
        db.execute("create table calls (caller)")
        yield db
    print("The database is closed.")


@server.tool
def count(to: int, ctx: mcp_ref.Context) -> str:
    """Count up to a number."""
    for number in range(1, to + 1):
        ctx.progress(number, to)
    with lock, db:
        call = db.execute("insert into calls values (?)", [ctx.principal]).lastrowid
    return f"{ctx.principal or 'someone'} counted to {to}, in call {call}."


def demo(port: int, token: str, **wishes: str) -> None:
    """Be a modern client: send one request, print the answer."""
    from mcp_client import fetch

    meta = mcp_ref.meta_for("2026-07-28", wishes)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "count", "arguments": {"to": 2}, "_meta": meta},
    }
    status, headers, body = fetch(
        "POST",
        f"http://127.0.0.1:{port}/mcp",
        {
            "Authorization": "Bearer " + token,
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "count",
        },
        mcp_ref.encode(message),
    )
    print(status, headers["content-type"])
    print(body.decode().replace("\n\n", "\n").strip())


if __name__ == "__main__":
    with open_database() as db:
        if sys.argv[1:] != ["--demo"]:
            server.run(authorize=known)  # or serve_http(server, "127.0.0.1", 8000, ...)
        else:  # on any free port
            httpd = mcp_ref.http_server(mcp_ref.Endpoint(server, authorize=known))
            threading.Thread(target=httpd.serve_forever).start()
            for token, wishes in (
                ("", {}),
                ("sesame", {}),
                ("sesame", {"progressToken": "p1"}),
            ):
                demo(httpd.server_port, token, **wishes)
            httpd.close()
