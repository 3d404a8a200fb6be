#!/usr/bin/env python3
"""Call the same functions here, in the official SDK and in FastMCP; compare the
answers.

    python3 .ci/same_functions.py        needs `pip install "mcp>=2" "fastmcp>=4"`

Each function is registered as it stands, with hints as users of FastMCP write them. An
answer is "error", or the JSON of its text. A difference needs a reason in REASONS; the
status is 1 if one has none, or if a reason is left over.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import importlib
import json
import logging
import pathlib
import sys
import typing
import uuid
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Optional, Union

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mcp_ref

# What is made at run time is Any for mypy.
pydantic: Any = importlib.import_module("pydantic")
Model: Any = pydantic.BaseModel
Field: Any = pydantic.Field


class Priority(str, enum.Enum):
    LOW = "low"
    HIGH = "high"


class Address(Model):
    street: str
    zip: str = Field(pattern=r"^\d{5}$")


class User(Model):
    model_config = {"extra": "forbid"}
    name: str = Field(min_length=1, description="Full name")
    age: Optional[int] = Field(None, ge=0)
    address: Optional[Address] = None
    tags: list[str] = []
    prio: Priority = Priority.LOW
    since: Optional[datetime.datetime] = None


class Circle(Model):
    kind: Literal["circle"]
    r: float


class Square(Model):
    kind: Literal["square"]
    side: float


class Found(Model):
    items: list[User]
    total: int
    next: Optional[str] = None


Shape = Annotated[Union[Circle, Square], Field(discriminator="kind")]


def search(
    query: Annotated[str, Field(description="what", min_length=1)],
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    tags: Optional[list[str]] = None,
) -> Found:
    return Found(items=[User(name=query, tags=tags or [])], total=limit)


def create(user: User, notify: bool = False) -> User:
    return user


def area(shape: Shape) -> float:
    found: float = shape.r if shape.kind == "circle" else shape.side
    return found


def rows(n: pydantic.PositiveInt = 1) -> list[dict[str, int]]:
    return [{"id": i} for i in range(n)]


def after(day: datetime.date, days: int = 1) -> datetime.date:
    return day + datetime.timedelta(days)


def price(amount: decimal.Decimal, prio: Priority = Priority.LOW) -> dict[str, Any]:
    return {"amount": amount, "prio": prio}


def fetch(url: pydantic.HttpUrl, ids: Annotated[list[int], Field(min_length=1)]) -> str:
    return f"{url} {ids}"


def optional(
    x: Optional[int] = None,
    y: Union[float, str] = 1.5,
    z: Optional[dict[str, list[int]]] = None,
) -> str:
    return f"{x!r} {y!r} {z!r}"


def pair(p: tuple[int, int], q: Literal["a", "b"] = "a") -> tuple[int, int]:
    return p


def nothing() -> None:
    pass


def path(p: pathlib.Path) -> str:
    return p.name


def uid(u: uuid.UUID) -> uuid.UUID:
    return u


def many(users: list[User]) -> dict[str, int]:
    return {user.name: len(user.tags) for user in users}


def anything(v: Any) -> Any:
    return v


def numbers(days: set[int]) -> list[int]:
    return sorted(days)


FUNCTIONS: list[Callable[..., Any]] = [
    *(search, create, area, rows, after, price, fetch, optional, pair, nothing),
    *(path, uid, many, anything, numbers),
]

# A call a line: the function, and its arguments.
CALLS = """
search {"query": "ann"}
search {"query": "ann", "limit": "5"}
search {"query": "ann", "tags": "[\\"a\\"]"}
search {"query": "", "limit": 0}
search {"limit": 101}
create {"user": {"name": "bob", "age": "3"}}
create {"user": {"name": "bob", "address": {"street": "x", "zip": "12345"}}}
create {"user": {"name": "", "zip": 1}}
create {"user": "{\\"name\\": \\"x\\"}"}
create {"user": {"name": "x"}, "notify": "true"}
create {"user": {"name": "x", "since": "2030-01-31T09:30:00Z"}}
create {}
area {"shape": {"kind": "circle", "r": 2}}
area {"shape": {"kind": "square"}}
area {"shape": {"kind": "cow"}}
rows {"n": 2}
rows {"n": "2"}
rows {"n": 0}
rows {"n": 2.0}
after {"day": "2030-01-31"}
after {"day": "2030-02-30"}
after {"day": "2030-01-31", "days": "2"}
price {"amount": "1.10"}
price {"amount": 1.5, "prio": "high"}
price {"amount": "x"}
price {"amount": "1", "prio": "no"}
fetch {"url": "http://a.b/c", "ids": [1]}
fetch {"url": "nope", "ids": [1]}
fetch {"url": "http://a.b/c", "ids": []}
optional {}
optional {"x": "5", "y": "2"}
optional {"x": 5.0}
optional {"x": "5.5"}
optional {"x": "null"}
optional {"x": "1_000"}
optional {"z": "{\\"a\\": [1]}"}
optional {"w": 1}
pair {"p": [1, 2]}
pair {"p": [1, 2, 3]}
pair {"p": [1, 2], "q": "c"}
nothing {}
path {"p": "a/b"}
uid {"u": "00000000-0000-0000-0000-000000000007"}
uid {"u": "x"}
many {"users": [{"name": "a"}, {"name": "b", "tags": ["x"]}]}
many {"users": [{"name": ""}, {}]}
anything {"v": [1, {"a": null}]}
anything {"v": "5"}
numbers {"days": [2, 1]}
numbers {"days": [1, 1]}
numbers {"days": ["2"]}
"""

TEXT = "clients send such text: it is JSON, and the parameter takes no text"
REASONS = {
    'search {"query": "ann", "tags": "[\\"a\\"]"}': TEXT,
    'create {"user": "{\\"name\\": \\"x\\"}"}': TEXT,
    'optional {"x": "null"}': TEXT,
    'optional {"z": "{\\"a\\": [1]}"}': TEXT,
    'optional {"x": "1_000"}': "text is read as JSON, not as Python",
    'optional {"w": 1}': "a misspelt name would pass in silence",
    'numbers {"days": [1, 1]}': "the schema says uniqueItems",
    'numbers {"days": ["2"]}': "only arguments are read, not the members of a list",
}


class Client(typing.Protocol):
    """What the clients of both packages have in common."""

    async def call_tool(self, name: str, arguments: Any, **options: Any) -> Any: ...


def calls() -> Iterator[tuple[str, str, Any]]:
    """Yield each call: the line, the function and the arguments."""
    for line in CALLS.strip().splitlines():
        name, _, arguments = line.partition(" ")
        yield line, name, json.loads(arguments)


def plain(is_error: bool, blocks: list[Any]) -> Any:
    """Return "error", or the JSON of an answer's text."""
    if is_error:
        return "error"
    found = []
    for block in blocks:
        text = block["text"] if isinstance(block, dict) else block.text
        try:
            found.append(json.loads(text))
        except ValueError:
            found.append(text)
    # The SDK makes a block of each item of a list.
    return found[0] if len(found) == 1 else found


def ours() -> list[Any]:
    """Return the answers of mcp_ref."""
    server = mcp_ref.Server("same")
    for function in FUNCTIONS:
        server.tool(function)
    answers = []
    for _, name, arguments in calls():
        result = server.call(name, **arguments)
        answers.append(plain(bool(result.get("isError")), result["content"]))
    return answers


async def theirs(client: Any, **options: Any) -> list[Any]:
    """Return the answers of another server."""
    answers = []
    async with client:
        for _, name, arguments in calls():
            try:
                result = await client.call_tool(name, arguments, **options)
                answers.append(plain(result.is_error, result.content))
            except Exception:
                answers.append("error")
    return answers


def main() -> int:
    """Compare; return the exit status."""
    logging.disable()
    sdk: Any = importlib.import_module("mcp.server")
    fastmcp: Any = importlib.import_module("fastmcp")
    official = sdk.MCPServer("same")
    fast = fastmcp.FastMCP("same")
    for function in FUNCTIONS:
        official.tool()(function)
        fast.tool(function)
    client: Any = importlib.import_module("mcp").Client
    found = zip(
        calls(),
        ours(),
        asyncio.run(theirs(client(official))),
        asyncio.run(theirs(fastmcp.Client(fast), raise_on_error=False)),
    )
    wrong = 0
    left = set(REASONS)
    count = 0
    for (line, _, _), mine, sdks, fasts in found:
        count += 1
        if mine == sdks == fasts:
            continue
        left.discard(line)
        reason = REASONS.get(line, "")
        wrong += not reason
        print(f"{line}\n    {reason or 'NO REASON'}")
        for name, answer in (("mcp_ref", mine), ("SDK", sdks), ("FastMCP", fasts)):
            print(f"    {name:8} {json.dumps(answer):.160}")
    for line in left:
        print(f"no difference any more: {line}")
    print(f"{count} calls, {wrong} differences without a reason")
    return int(wrong > 0 or bool(left))


if __name__ == "__main__":
    sys.exit(main())
