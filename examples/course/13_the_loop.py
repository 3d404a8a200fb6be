r"""The loop that makes it useful: a host, its model, and a user who is asked first.

For authors of hosts, and for everyone who wonders where the model is. Read
12_app.py first. This is the last file of the course.

A model cannot call anything: it writes text. The host lists the tools for it. When the
model answers with a call instead of an answer, the host makes the call, adds the result
to the conversation, and asks the model again, until it answers the user:

    the user asks -> the model reads: the conversation, the tools
                     the model writes a call -> consent -> tools/call -> result --+
                     ^------------------------------------------------------------+
                     the model writes an answer -> the user

The model here is a function that knows three sentences, so that the program runs
without one. A real one is called where `model` is, with the same two arguments: its
service wants each tool's name, description and inputSchema, and texts and images as
parts of a message.

    $ python3 examples/course/13_the_loop.py
    User: Is Dune here? If so, throw it away, and show me the shelf.
      call find {'title': 'Dune'}
        Dune is on shelf 2.
      call throw_away {'title': 'Dune'}
      May library do this? It may destroy something. (no)
        The user said no.
      call photo {'shelf': 2}
        image/png, 69 bytes
    Model: Dune is on shelf 2. You kept it. Here is a picture.

*Consent*: what a tool says of itself in `annotations` are hints. `readOnlyHint` says
that it changes nothing, `destructiveHint` that it may destroy something. A host uses
them to decide whom to ask, and asks all the same if it does not trust the server: a
server may lie. So the user decides, not the model, and not the server.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_client import Client, connect

from mcp_ref import Server, image

Message = dict[str, Any]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAA"
    "AElFTkSuQmCC"
)
server = Server("library")


@server.tool(annotations={"readOnlyHint": True})
def find(title: str) -> str:
    """Say where a book is."""
    return f"{title} is on shelf 2."


@server.tool(annotations={"destructiveHint": True})
def throw_away(title: str) -> str:
    """Throw a book away, for good."""
    return f"{title} is gone."


@server.tool(annotations={"readOnlyHint": True})
def photo(shelf: int) -> list[Message]:
    """Take a picture of a shelf."""
    return [image(PIXEL, "image/png")]


def model(conversation: list[Message], tools: list[Message]) -> Message:
    """Return a call, or an answer. It looks at how far the conversation has come."""
    calls = [
        ("find", {"title": "Dune"}),
        ("throw_away", {"title": "Dune"}),
        ("photo", {"shelf": 2}),
    ]
    results = [one for one in conversation if one["role"] == "tool"]
    known = {tool["name"] for tool in tools}
    for name, arguments in calls[len(results) :]:
        if name in known:
            return {"role": "model", "call": name, "arguments": arguments}
    text = f"{results[0]['content'][0]['text']} You kept it. Here is a picture."
    return {"role": "model", "text": text}


def consent(server_name: str, tool: Message) -> bool:
    """Ask the user, unless the tool says that it changes nothing."""
    hints = tool.get("annotations", {})
    if hints.get("readOnlyHint"):
        return True
    harm = "It may destroy something." * hints.get("destructiveHint", True)
    print(f"  May {server_name} do this? {harm} (no)")
    return False  # a real host waits for a click


def run(
    client: Client,
    question: str,
    model: Callable[[list[Message], list[Message]], Message],
) -> str:
    """Let a model answer a question with the tools of a server."""
    tools = list(client.list_tools())
    conversation: list[Message] = [{"role": "user", "text": question}]
    while "call" in (said := model(conversation, tools)):
        conversation.append(said)
        name, arguments = said["call"], said["arguments"]
        print(f"  call {name} {arguments}")
        tool = next(one for one in tools if one["name"] == name)
        if consent(client.server_info["name"], tool):
            result = client.call_tool(name, arguments)
        else:  # the model must learn of it, or it tries again
            refusal = {"type": "text", "text": "The user said no."}
            result = {"isError": True, "content": [refusal]}
        conversation.append({"role": "tool", **result})
        for part in result["content"]:
            size = len(base64.b64decode(part.get("data", "")))
            print("   ", part.get("text") or f"{part['mimeType']}, {size} bytes")
    return str(said["text"])


if __name__ == "__main__":
    if "--help" in sys.argv:
        raise SystemExit(print(__doc__))
    QUESTION = "Is Dune here? If so, throw it away, and show me the shelf."
    print("User:", QUESTION)
    with connect(server) as host:
        print("Model:", run(host, QUESTION, model))
