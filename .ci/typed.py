"""A user's program with every decorator, which type checkers read and nothing runs.

`mypy --strict` and `pyright` must accept it. A line that ends in `type: ignore` is one
that they must refuse: both say so if the comment is not needed.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnusedFunction=false

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1])]
from mcp_ref import Context, NotFound, Server, text

server = Server("typed")


@server.tool
def count(to: int, word: str = "x") -> list[str]:
    return [word] * to


@server.tool(
    name="wait_for",
    title="Wait",
    description="Wait for something.",
    annotations={"readOnlyHint": True},
    input_schema={"type": "object"},
)
async def wait(ctx: Context, seconds: int = 1) -> str:
    ctx.progress(1, 2)
    return str(seconds)


@server.tool(run=None)
def double(x: float) -> float:
    return 2 * x


@server.prompt
def greet(name: str) -> str:
    return name


@server.prompt(name="bye", title="Bye")
def goodbye(name: str) -> list[dict[str, Any]]:
    return [text(name)]


@server.resource("a://{b}", title="B", annotations={"priority": 1})
def read(b: int) -> bytes:
    if b < 0:
        raise NotFound(str(b))
    return bytes(b)


@server.completion("greet", "name")
def names(typed: str, others: dict[str, str]) -> list[str]:
    return [typed, *others]


@server.method("example.org/echo")
def echo(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    return {**params, "method": ctx.method}


class Finder:
    def find(self, word: str) -> str:
        return word


def watch(uri: str, ctx: Context) -> None:
    print(uri, ctx.principal)


server.on_watch = watch
find = server.tool(Finder().find, name="find")


async def use(ctx: Context) -> None:
    results: tuple[list[str], float, str, list[dict[str, Any]], bytes, list[str]] = (
        count(3, "x"),
        double(x=2),
        greet("ann") + find("b") + await wait(ctx, seconds=2),
        goodbye("ann"),
        read(1),
        names("a", {}),
    )
    print(results, echo({}, ctx))

    count(3, "x", 5)  # type: ignore
    double("2")  # type: ignore
    greet(name=5)  # type: ignore
    read("1")  # type: ignore
    await wait(ctx, minutes=2)  # type: ignore
    server.tool(input_schema=5)  # type: ignore
