#!/usr/bin/env python3
"""The driver of the Python SDK 1.x: pip install 'mcp<2'."""
# mypy: disable-error-code="import-not-found, unused-ignore, misc"

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import common
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

changes: list[str] = []


def answer(answers: Any, kind: str) -> Any:
    async def sample(context: Any, params: Any) -> Any:
        if answers["sample"] is None:
            return types.ErrorData(code=-1, message="The user refused")
        return types.CreateMessageResult.model_validate(answers["sample"])

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult.model_validate(answers[params.mode])

    async def roots(context: Any) -> Any:
        found = [types.Root.model_validate({"uri": uri}) for uri in answers["roots"]]
        return types.ListRootsResult(roots=found)

    return {"sample": sample, "elicit": elicit, "roots": roots}[kind]


async def note(message: Any) -> None:
    """Keep the changes that a server tells."""
    method = getattr(getattr(message, "root", None), "method", "")
    if method == "notifications/resources/updated":
        changes.append(str(message.root.params.uri))
    elif method.endswith("/list_changed"):
        changes.append(method.split("/")[1])


@contextlib.asynccontextmanager
async def session(server: Any, timeout: Any, answers: Any) -> Any:
    """Open a session over stdio or HTTP."""
    if isinstance(server, str):
        transport: Any = streamablehttp_client(server)
    else:
        command, *args = server
        transport = stdio_client(StdioServerParameters(command=command, args=args))
    callbacks: dict[str, Any] = {"message_handler": note}
    for name, callback, kinds in (
        ("sample", "sampling_callback", {"sample"}),
        ("elicit", "elicitation_callback", {"form", "url"}),
        ("roots", "list_roots_callback", {"roots"}),
    ):
        if kinds & set(answers):
            callbacks[callback] = answer(answers, name)
    limit = timeout and timedelta(seconds=timeout)
    async with transport as (read, write, *_):
        async with ClientSession(read, write, limit, **callbacks) as client:
            await client.initialize()
            yield client


async def connect(server: Any, timeout: Any = None, answers: Any = None) -> None:
    changes.clear()
    await common.holder.open(session(server, timeout, answers or {}))


async def call_tool(
    name: str, arguments: Any = None, timeout: Any = None, progress: bool = False
) -> Any:
    values: list[Any] = []

    async def keep(value: float, total: Any, message: Any) -> None:
        values.append(value)

    limit = timeout and timedelta(seconds=timeout)
    client = common.holder.client
    result = await client.call_tool(name, arguments, limit, keep if progress else None)
    return {**common.plain(result), **({"progress": values} if values else {})}


def lister(method: str, member: str) -> Any:
    async def pages() -> Any:
        ask = getattr(common.holder.client, method)

        def page(cursor: Any) -> Any:
            return ask(params=types.PaginatedRequestParams(cursor=cursor))

        return await common.all_pages(page, member)

    return pages


async def read_resource(uri: str) -> Any:
    return (await common.holder.client.read_resource(uri)).contents


async def complete(prompt: str, argument: str, value: str) -> Any:
    ref = types.PromptReference(type="ref/prompt", name=prompt)
    pair = {"name": argument, "value": value}
    return (await common.holder.client.complete(ref, pair)).completion.values


async def listen(wanted: list[str]) -> Any:
    with contextlib.suppress(asyncio.CancelledError):
        for uri in set(wanted) - {"tools", "prompts", "resources"}:
            await common.holder.client.subscribe_resource(uri)
        await asyncio.Event().wait()
    return changes


common.run(
    {
        "connect": connect,
        "call_tool": call_tool,
        "list_tools": lister("list_tools", "tools"),
        "list_prompts": lister("list_prompts", "prompts"),
        "list_resources": lister("list_resources", "resources"),
        "get_prompt": lambda **given: common.holder.client.get_prompt(**given),
        "read_resource": read_resource,
        "complete": complete,
        "set_level": lambda level: common.holder.client.set_logging_level(level),
        "ping": lambda: common.holder.client.send_ping(),
        "listen": listen,
    }
)
