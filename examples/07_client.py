r"""The other side: connect to a server, see what it offers, and use it.

A client starts a stdio server itself, from a command; over HTTP it takes a URL. connect() finds out
which revision they both speak, and from then on no line of this program depends on that: the same
functions answer the server's questions, and the same calls return the same results.

    $ python3 examples/07_client.py
    on-call 1.0, in 2026-07-28
    triage: Open a ticket for a line of a log, if it is worth one.
      asked to think: Noise or incident? One word. disk full
      asked to fill in: Open a ticket? ['team']
    Opened a ticket for database.

With a revision it speaks that one, or fails:

    $ python3 examples/07_client.py 2025-06-18
    on-call 1.0, in 2025-06-18
    triage: Open a ticket for a line of a log, if it is worth one.
      asked to think: Noise or incident? One word. disk full
      asked to fill in: Open a ticket? ['team']
    Opened a ticket for database.
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import connect

SERVER = [sys.executable, str(Path(__file__).with_name("04_ask_the_user.py"))]


def think(question: dict[str, Any]) -> str:
    """Answer as the model that this client has: it is a small one."""
    print("  asked to think:", question["messages"][0]["content"]["text"])
    return "incident"


def fill_in(form: dict[str, Any]) -> dict[str, Any]:
    """Answer as the user would, who may also decline (return None) or leave ("cancel")."""
    print("  asked to fill in:", form["message"], list(form["requestedSchema"]["properties"]))
    return {"team": "database"}


def main(revision: str = "") -> None:
    """Call the tool of example 04."""
    with connect(SERVER, revision=revision, sample=think, elicit=fill_in,
                 stderr=lambda line: None) as client:
        print(client.server_info["name"], client.server_info["version"] + ", in", client.version)
        for tool in client.list_tools():
            print(tool["name"] + ":", tool["description"])
        result = client.call_tool("triage", {"line": "disk full"}, timeout=30)
        print(result["content"][0]["text"])


if __name__ == "__main__":
    main(*sys.argv[1:])
