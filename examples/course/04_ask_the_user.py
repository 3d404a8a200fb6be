r"""A tool that asks: the client's model (*sampling*), then the user (*elicitation*).

For tools that need a decision halfway. Read 03_resources_and_prompts.py first. Lessons
10 to 13 and 21 have the messages. Next: 05_http_server.py.

A modern server sends no requests. Its result says "input required", and the client
repeats its own request with the answers in it. Then the tool *runs again from its first
line*, and finds them:

    $ python3 examples/course/04_ask_the_user.py --demo 2026-07-28
    > server/discover
    < result
    > tools/call
    The tool begins.
    < input required: sampling/createMessage
    > tools/call with an answer
    The tool begins.
    < input required: elicitation/create
    > tools/call with an answer
    The tool begins.
    The tool opens a ticket.
    < result
    Ticket for database.

So ask first and act afterwards, and ask in the same words every time. To a legacy
client the same tool sends each question as a request, and waits for the response; it
runs once:

    $ python3 examples/course/04_ask_the_user.py --demo 2025-11-25
    > initialize
    < result
    > notifications/initialized
    > tools/call
    The tool begins.
    < sampling/createMessage
    > result
    < elicitation/create
    > result
    The tool opens a ticket.
    < result
    Ticket for database.

A client that cannot be asked gets an error that says what it lacks. (Sampling is
deprecated: new tools should call a model themselves.)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import Context, Server

server = Server("on-call")


@server.tool
def triage(line: str, ctx: Context) -> str:
    """Open a ticket for a line of a log, if it is worth one."""
    print("The tool begins.")
    kind = ctx.sample("Noise or incident? One word. " + line, max_tokens=5)
    if kind["content"]["text"] != "incident":
        return "Noise."
    form = ctx.elicit("Open a ticket?", team=Literal["web", "database"])
    if form["action"] != "accept":  # the user declined, or closed the form
        return "No ticket."
    print("The tool opens a ticket.")  # once, since no question follows
    return f"Ticket for {form['content']['team']}."


def show(way: str, message: dict[str, Any]) -> None:
    """Print what a message is."""
    what = message.get("method", "result")
    for question in message.get("result", {}).get("inputRequests", {}).values():
        what = "input required: " + question["method"]
    print(
        way, what + " with an answer" * ("inputResponses" in message.get("params", {}))
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--demo"]:
        sys.exit("usage: 04_ask_the_user.py --demo REVISION")
    elif sys.argv[1:2] != ["--demo"]:
        server.run()
    else:  # be your own client, in this process
        from mcp_client import connect

        with connect(
            server,
            revision=sys.argv[2],
            trace=show,
            sample=lambda question: "incident",
            elicit=lambda form: {"team": "database"},
        ) as client:
            result = client.call_tool("triage", {"line": "disk full"})
            print(result["content"][0]["text"])
