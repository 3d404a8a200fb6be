r"""The other side: connect to a server, use it, and answer its questions.

For hosts, scripts, and tests of servers. Read 05_http_server.py first. This program
uses the server of 04_ask_the_user.py. Lesson 25 has the messages.
Next: 07_main_thread.py.

connect() starts a stdio server from a command, or takes the URL of one that is running,
and finds out which revisions both sides speak. Nothing else in this file depends on the
revision: the same functions answer the server's questions, and the same calls return
the same results.

    $ python3 examples/course/06_client.py
    on-call 1.0, in 2026-07-28
    triage: Open a ticket for a line of a log, if it is worth one.
      asked to think: Noise or incident? One word. disk full
      asked to fill in: Open a ticket? ['team']
    Ticket for database.

If you name a revision, it speaks that one or fails:

    $ python3 examples/course/06_client.py 2025-06-18
    on-call 1.0, in 2025-06-18
    ...
    Ticket for database.

Failures raise exceptions: RpcError is the server's error, Disconnected says what the
server wrote last, and TimeoutError and Malformed are what their names say. But a tool
that fails is a result: `{"isError": True, "content": [...]}` is meant for the model to
read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_client import connect

SERVER = [sys.executable, str(Path(__file__).with_name("04_ask_the_user.py"))]


def think(question: dict[str, Any]) -> str:
    """Answer as the host's model, a small one."""
    print("  asked to think:", question["messages"][0]["content"]["text"])
    return "incident"


def fill_in(form: dict[str, Any]) -> dict[str, Any]:
    """Answer as the user, who could also decline (return None) or close the form
    ("cancel")."""
    print(
        "  asked to fill in:",
        form["message"],
        list(form["requestedSchema"]["properties"]),
    )
    return {"team": "database"}


def main(revision: str = "") -> None:
    """Call the tool of example 04."""
    with connect(
        SERVER,
        revision=revision,
        sample=think,
        elicit=fill_in,
        stderr=lambda line: None,
    ) as client:
        print(
            client.server_info["name"],
            client.server_info["version"] + ", in",
            client.version,
        )
        for tool in client.list_tools():
            print(tool["name"] + ":", tool["description"])
        result = client.call_tool("triage", {"line": "disk full"}, timeout=30)
        print(result["content"][0]["text"])


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main(*sys.argv[1:])
