"""What the drivers of Python SDKs share: a task for each action, one for a client."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

running: dict[Any, Any] = {}  # the tasks of actions, by their ids


def plain(value: Any) -> Any:
    """Turn the models of an SDK into JSON."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


async def all_pages(ask: Callable[..., Any], member: str) -> list[Any]:
    """Read all pages of a list; `ask` takes a cursor."""
    page = await ask(None)
    items = list(getattr(page, member))
    while (cursor := plain(page).get("nextCursor")) is not None:
        page = await ask(cursor)
        items += getattr(page, member)
    return items


class Holder:
    """Open and close a client in one task, as anyio demands."""

    client: Any = None
    task: Any = None

    async def open(self, context: Any) -> None:
        """Enter a context; it is left when `close` is called."""
        self.closing = asyncio.Event()
        self.ready = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold(context))
        self.client = await self.ready

    async def _hold(self, context: Any) -> None:
        try:
            async with context as client:
                self.ready.set_result(client)
                await self.closing.wait()
        except BaseException as problem:
            if self.ready.done():
                raise
            self.ready.set_exception(problem)

    async def close(self) -> None:
        """Leave the context."""
        if self.task:
            self.closing.set()
            await asyncio.wait([self.task])
        self.client = self.task = None


holder = Holder()


async def cancel(target: int) -> None:
    """Cancel the task of an action: what these SDKs have for that."""
    running[target].cancel()


async def act(function: Any, action: dict[str, Any]) -> None:
    """Do one thing, and report what came of it."""
    report: dict[str, Any] = {"id": action.pop("id")}
    try:
        report["result"] = plain(await function(**action)) if function else None
        if not function:
            report["unsupported"] = True
    except BaseException as problem:
        while len(getattr(problem, "exceptions", ())) == 1:  # a group of one
            problem = problem.exceptions[0]  # type: ignore[attr-defined]
        code = getattr(getattr(problem, "error", None), "code", None)
        report["error"] = {"text": f"{type(problem).__name__}: {problem}", "code": code}
    print(json.dumps(report, default=str), flush=True)


async def serve(actions: dict[str, Any]) -> None:
    """Read actions; each is a task."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        action = json.loads(line)
        name, function = action["id"], actions.get(action.pop("do"))
        running[name] = asyncio.create_task(act(function, action))


def run(actions: dict[str, Any]) -> None:
    """Do what the lines of stdin say, until there are no more."""
    asyncio.run(serve({"cancel": cancel, "close": holder.close, **actions}))
