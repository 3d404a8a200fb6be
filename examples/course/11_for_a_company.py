r"""A server for a company: keys, permissions, limits, a log, an async session.

For servers that more than one person uses. Read 05_http_server.py first: with bearer()
it knows who calls. This one adds what most companies ask for next. Next: 12_app.py.

    API keys in a file         {"key": {"name": "ann", "may": ["balance"]}, ...}
    who may see and use what   offered(): what it hides from you is unknown to you
    a limit of calls           call_handler(): each call passes it, also in a batch
    a log of calls             call_handler(), with the time that each call took
    /health beside /mcp        serve() of the endpoint, before anything is checked
    an async session           opened before the server runs, and closed after it

Without a file of keys it serves on port 8000 for two people, whose keys are at the end
of this file. With --demo, where one call a minute is the limit, both of them call it:

    $ python3 examples/course/11_for_a_company.py --demo
    The ledger is open.
    The server is healthy.
    ann sees balance, transfer.
    mcp_ref: ann: tools/call transfer: ok, ... ms
    ann: {"ann": 60, "bob": 40}
    bob sees balance.
    bob: Unknown tool: transfer
    mcp_ref: bob: tools/call balance: ok, ... ms
    bob: 40
    mcp_ref: bob: tools/call balance: refused, 0 ms
    bob: calls allowed in 60 s: 1
    The ledger is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import (
    Context,
    Endpoint,
    Exchange,
    RpcError,
    Server,
    bearer,
    http_server,
    log,
    serve_http,
)

People = dict[str, dict[str, Any]]  # by key: "name", and what they "may" use
Ledger = dict[str, int]  # how much everyone has


class CompanyServer(Server):
    """Serves each person what they may use; counts and logs their calls."""

    def __init__(
        self, people: People, calls: int, seconds: int, **options: Any
    ) -> None:
        super().__init__("company", **options)
        self.may = {person["name"]: person["may"] for person in people.values()}
        self.calls, self.seconds = calls, seconds  # so many calls in so much time
        self.recent: dict[str, deque[float]] = {
            name: deque(maxlen=calls) for name in self.may
        }
        self.counting = threading.Lock()  # guards `recent`

    def offered(self, kind: str, ctx: Context) -> dict[str, Any]:
        may = self.may.get(ctx.principal, ())
        entries = super().offered(kind, ctx).items()
        return {name: entry for name, entry in entries if name in may}

    def call_handler(
        self, entry: Any, arguments: Any, ctx: Context, *values: Any
    ) -> Any:
        began, outcome = time.monotonic(), "refused"
        try:
            self.count(ctx.principal, began)
            outcome = "asks"  # what stops a tool that asks the user is no Exception
            result = super().call_handler(entry, arguments, ctx, *values)
            outcome = "ok"
            return result
        except Exception:
            outcome = "failed" if outcome == "asks" else outcome
            raise
        finally:
            if outcome == "asks":  # it runs again once it has the answer
                self.discount(ctx.principal, began)
            took = round(1000 * (time.monotonic() - began))
            name = ctx.params.get("name") or ctx.params.get("uri")
            log(f"{ctx.principal}: {ctx.method} {name}: {outcome}, {took} ms")

    def count(self, name: str, now: float) -> None:
        """Count a call; RpcError if there were too many."""
        with self.counting:
            recent = self.recent[name]
            if len(recent) == self.calls and now - recent[0] < self.seconds:
                limit = f"calls allowed in {self.seconds} s: {self.calls}"
                raise RpcError(429, limit)
            recent.append(now)

    def discount(self, name: str, then: float) -> None:
        """Do not count a call that is not finished."""
        with self.counting, contextlib.suppress(ValueError):
            self.recent[name].remove(then)


class CompanyEndpoint(Endpoint):
    """The endpoint, and /health for whatever watches over the server."""

    def serve(self, exchange: Exchange) -> None:
        if exchange.path == "/health":
            exchange.start(200, {"Content-Type": "text/plain"}, b"healthy")
        else:
            super().serve(exchange)


@contextlib.asynccontextmanager
async def open_ledger() -> AsyncIterator[Ledger]:
    """Open what stands for a pool of connections, or a session of an HTTP client."""
    print("The ledger is open.", flush=True)
    yield {"ann": 100, "bob": 0}
    print("The ledger is closed.", flush=True)


@contextlib.contextmanager
def on_a_loop(manager: Any) -> Iterator[Any]:
    """Enter and leave an async context manager on an event loop; yield both."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait_for(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        value = wait_for(manager.__aenter__())
        try:
            yield loop, value
        finally:
            wait_for(manager.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def make_server(
    people: People, ledger: Ledger, calls: int = 30, seconds: int = 60, **options: Any
) -> Server:
    server = CompanyServer(people, calls, seconds, **options)

    @server.tool
    async def balance(ctx: Context) -> int:
        """Return how much you have."""
        return ledger[ctx.principal]

    @server.tool
    async def transfer(to: str, amount: int, ctx: Context) -> dict[str, int]:
        """Transfer money to someone else."""
        # Check everything before you change anything: who calls may be confused.
        if to not in ledger or to == ctx.principal:
            raise ValueError(f"transfer to one of {', '.join(ledger)}, not to yourself")
        if not 0 < amount <= ledger[ctx.principal]:
            raise ValueError(f"amount: from 1 to {ledger[ctx.principal]}")
        ledger[ctx.principal] -= amount
        ledger[to] += amount
        return ledger

    return server


def endpoint_of(server: Server, people: People) -> CompanyEndpoint:
    names = {key: person["name"] for key, person in people.items()}
    return CompanyEndpoint(server, authorize=bearer(names, header="x-api-key"))


def demo(port: int, people: People) -> None:
    """Call the server as each person would."""
    from mcp_client import connect, fetch

    _, _, health = fetch("GET", f"http://127.0.0.1:{port}/health", {})
    print(f"The server is {health.decode()}.", flush=True)
    for key, person in people.items():
        with connect(f"http://127.0.0.1:{port}/mcp", headers={"X-API-Key": key}) as me:
            tools = ", ".join(tool["name"] for tool in me.list_tools())
            print(f"{person['name']} sees {tools}.", flush=True)
            for name, arguments in CALLS[person["name"]]:
                try:
                    answer = me.call_tool(name, arguments)["content"][0]["text"]
                except RpcError as refusal:
                    answer = str(refusal)
                print(f"{person['name']}: {answer}", flush=True)


PEOPLE = {
    "key-of-ann": {"name": "ann", "may": ["balance", "transfer"]},
    "key-of-bob": {"name": "bob", "may": ["balance"]},
}
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "ann": [("transfer", {"to": "bob", "amount": 40})],
    "bob": [("transfer", {"to": "bob"}), ("balance", {}), ("balance", {})],
}

if __name__ == "__main__":
    if "--help" in sys.argv:
        print("usage: 11_for_a_company.py [KEYS.json] [--demo]", __doc__, sep="\n\n")
        sys.exit()
    is_demo = "--demo" in sys.argv
    files = [word for word in sys.argv[1:] if word != "--demo"]
    people = json.loads(Path(files[0]).read_text("utf-8")) if files else PEOPLE
    with on_a_loop(open_ledger()) as (loop, ledger):
        server = make_server(people, ledger, 1 if is_demo else 30, loop=loop)
        endpoint = endpoint_of(server, people)
        if not is_demo:
            serve_http(server, "127.0.0.1", 8000, endpoint=endpoint)
        else:
            with contextlib.closing(http_server(endpoint)) as httpd:
                threading.Thread(target=httpd.serve_forever).start()
                demo(httpd.server_port, people)
