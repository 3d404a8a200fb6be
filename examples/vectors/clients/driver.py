#!/usr/bin/env python3
"""The driver of examples/mcp_client.py: it does what the lines of stdin say."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[2])]
import mcp_client

client: Any = None
writing = threading.Lock()
running: dict[Any, Any] = {}  # requests, subscriptions, by the ids of their actions


def fill(answer: Any) -> Any:
    """Turn an ElicitResult into what a function of our client returns."""
    if answer["action"] == "accept":
        return answer.get("content", {})
    return None if answer["action"] == "decline" else "cancel"


def connect(
    id: int, server: Any, answers: Any = None, probe: float = 30, **options: Any
) -> None:
    """Connect with functions that give the answers of the vector."""
    answers = answers or {}
    functions = {
        "elicit": ("form", lambda params: fill(answers["form"])),
        "visit": ("url", lambda params: answers["url"]["action"] == "accept"),
        "sample": ("sample", lambda params: answers["sample"]),
        "roots": ("roots", lambda *_: answers["roots"]),
    }
    for name, (kind, function) in functions.items():
        if kind in answers:
            options[name] = function
    global client
    client = mcp_client.connect(server, probe=probe, **options)


def call_tool(id: int, name: str, arguments: Any = None, **options: Any) -> Any:
    progress: list[Any] = []
    if options.pop("progress", False):
        options["on_progress"] = lambda *args: progress.append(args[0])
    started = running.__setitem__
    result = client.call_tool(
        name, arguments, started=lambda request: started(id, request), **options
    )
    return {**result, "progress": progress} if progress else result


def listen(id: int, wanted: list[str]) -> Any:
    subscription = running[id] = client.listen(wanted)
    return list(subscription)


def cancel(target: int, **_: Any) -> None:
    while target not in running:  # a subscription is not acknowledged yet
        time.sleep(0.01)
    request = running[target]
    if isinstance(request, mcp_client.Subscription):
        request.close()
    else:
        request.cancel()


ACTIONS: dict[str, Any] = {
    "connect": connect,
    "call_tool": call_tool,
    "cancel": cancel,
    "listen": listen,
    "list_tools": lambda **_: client.list_tools(),
    "list_prompts": lambda **_: client.list_prompts(),
    "list_resources": lambda **_: client.list_resources(),
    "get_prompt": lambda id, name, arguments=None: client.get_prompt(name, arguments),
    "read_resource": lambda id, uri: client.read_resource(uri),
    "complete": lambda id, prompt, argument, value: client.complete(
        prompt, argument, value
    ),
    "set_level": lambda id, level: client.set_level(level),
    "ping": lambda **_: client.ping(),
    "close": lambda **_: client and client.close(),
}


def say(report: dict[str, Any]) -> None:
    """Write one line; threads must not mix theirs."""
    with writing:
        print(json.dumps(report, default=str), flush=True)


def act(action: dict[str, Any]) -> None:
    """Do one thing, and report what came of it."""
    report: dict[str, Any] = {"id": action["id"]}
    function = ACTIONS.get(action.pop("do"))
    try:
        report["result"] = function(**action) if function else None
        if not function:
            report["unsupported"] = True
    except Exception as problem:
        error = {"kind": type(problem).__name__, "text": str(problem)}
        report["error"] = {**error, "code": getattr(problem, "code", None)}
    say(report)


for line in sys.stdin:
    threading.Thread(target=act, args=(json.loads(line),), daemon=True).start()
