#!/usr/bin/env python3
"""The driver of the Python SDK 2.x (pip install mcp), and of FastMCP 4 (fastmcp).

python_sdk_2.py --fastmcp drives the client of FastMCP.
"""
# mypy: disable-error-code="import-not-found, unused-ignore, misc"

import asyncio
import contextlib
import sys
from typing import Any

import common
import mcp_types as types

FAST = "--fastmcp" in sys.argv
KINDS = ("tools", "prompts", "resources")
changes: list[str] = []


def answer(answers: Any) -> Any:
    """Make the functions that answer questions, as FastMCP and as the SDK call them."""

    async def sample(*_: Any) -> Any:
        if answers["sample"] is None:
            return types.ErrorData(code=-1, message="The user refused")
        return types.CreateMessageResult.model_validate(answers["sample"])

    async def elicit(*given: Any) -> Any:
        params = given[2] if FAST else given[1]
        return types.ElicitResult.model_validate(answers[params.mode or "form"])

    async def roots(*_: Any) -> Any:
        found = [types.Root.model_validate({"uri": uri}) for uri in answers["roots"]]
        return found if FAST else types.ListRootsResult(roots=found)

    names = (
        {
            "sample": "sampling_handler",
            "elicit": "elicitation_handler",
            "roots": "roots",
        }
        if FAST
        else {
            "sample": "sampling_callback",
            "elicit": "elicitation_callback",
            "roots": "list_roots_callback",
        }
    )
    functions = {}
    if "sample" in answers:
        functions[names["sample"]] = sample
    if {"form", "url"} & set(answers):
        functions[names["elicit"]] = elicit
    if "roots" in answers:
        functions[names["roots"]] = roots
    return functions


async def note(message: Any) -> None:
    """Keep the changes that a server tells."""
    method = getattr(message, "method", "")
    if method == "notifications/resources/updated":
        changes.append(str(message.params.uri))
    elif method.endswith("/list_changed"):
        changes.append(method.split("/")[1])


async def connect(server: Any, timeout: Any = None, answers: Any = None) -> None:
    changes.clear()
    options = {"message_handler": note, **answer(answers or {})}
    if FAST:
        from fastmcp import Client as FastClient
        from fastmcp.client.transports import StdioTransport

        if isinstance(server, list):
            server = StdioTransport(server[0], server[1:], keep_alive=False)
        client: Any = FastClient(server, timeout=timeout, **options)
    else:
        from mcp import Client, StdioServerParameters

        if isinstance(server, list):
            server = StdioServerParameters(command=server[0], args=server[1:])
        client = Client(server, read_timeout_seconds=timeout, **options)
    await common.holder.open(client)


async def call_tool(
    name: str, arguments: Any = None, timeout: Any = None, progress: bool = False
) -> Any:
    values: list[Any] = []

    async def keep(value: float, total: Any, message: Any) -> None:
        values.append(value)

    client = common.holder.client
    handler = keep if progress else None
    if FAST:
        result = await client.call_tool_mcp(
            name, arguments or {}, timeout=timeout, progress_handler=handler
        )
    else:
        result = await client.call_tool(name, arguments, timeout, handler)
    return {**common.plain(result), **({"progress": values} if values else {})}


def lister(kind: str) -> Any:
    async def pages() -> Any:
        ask = getattr(common.holder.client, f"list_{kind}")
        if FAST:  # reads all pages by itself
            return await ask()
        return await common.all_pages(lambda cursor: ask(cursor=cursor), kind)

    return pages


async def read_resource(uri: str) -> Any:
    result = await common.holder.client.read_resource(uri)
    return result if FAST else result.contents


async def complete(prompt: str, argument: str, value: str) -> Any:
    ref = types.PromptReference(type="ref/prompt", name=prompt)
    pair = {"name": argument, "value": value}
    result = await common.holder.client.complete(ref, pair)
    return (result if FAST else result.completion).values


async def listen(wanted: list[str]) -> Any:
    client = common.holder.client
    uris = [one for one in wanted if one not in KINDS]
    told: list[str] = []
    with contextlib.suppress(asyncio.CancelledError):
        if client.session.protocol_version < "2026":
            for uri in uris:
                await client.session.subscribe_resource(uri)
            told = changes
            await asyncio.Event().wait()
        async with open_subscription(client, uris, wanted) as subscription:
            async for event in subscription:
                told.append(name_of(event))
    return told


def open_subscription(client: Any, uris: list[str], wanted: list[str]) -> Any:
    """Open a subscription as the SDK does; FastMCP has no function of its own."""
    from mcp.client.subscriptions import listen as listen_on

    kinds = {f"{one}_list_changed": one in wanted for one in KINDS}
    return listen_on(client.session, resource_subscriptions=uris, **kinds)


def name_of(event: Any) -> str:
    """Name what an event says has changed."""
    kind = type(event).__name__  # ToolsListChanged, ResourceUpdated
    return (
        str(event.uri) if kind == "ResourceUpdated" else kind.split("List")[0].lower()
    )


async def set_level(level: Any) -> Any:
    return await common.holder.client.set_logging_level(level)


async def ping() -> Any:
    client = common.holder.client
    return await (client.ping() if FAST else client.send_ping())


async def get_prompt(name: str, arguments: Any = None) -> Any:
    return await common.holder.client.get_prompt(name, arguments)


common.run(
    {
        "connect": connect,
        "call_tool": call_tool,
        "list_tools": lister("tools"),
        "list_prompts": lister("prompts"),
        "list_resources": lister("resources"),
        "get_prompt": get_prompt,
        "read_resource": read_resource,
        "complete": complete,
        "set_level": set_level,
        "ping": ping,
        "listen": listen,
    }
)
