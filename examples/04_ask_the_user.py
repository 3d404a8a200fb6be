r"""A tool that asks back: the client's model (sampling), and then the user (elicitation).

The tool is written once. To a legacy client each question goes out as a request, and the tool
waits for the response. A modern server sends no requests: it answers "input required", and the
client repeats its own request, with the answers in it. Then the tool *runs again from its first
line*, and finds them. So ask first and act afterwards. With --demo this file is its own client:

    $ python3 examples/04_ask_the_user.py --demo
    The tool begins.
    {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"kind":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"Noise or incident? One word. disk full"}}],"maxTokens":5}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"on-call","version":"1.0"}}}}
    The tool begins.
    {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"ticket":{"method":"elicitation/create","params":{"mode":"form","message":"Open a ticket?","requestedSchema":{"type":"object","properties":{"team":{"enum":["web","database"],"type":"string"}},"required":["team"]}}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"on-call","version":"1.0"}}}}
    The tool begins.
    The tool acts.
    {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[{"type":"text","text":"Opened a ticket for database."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"on-call","version":"1.0"}}}}

(requestState, left out here, carries the answers of earlier rounds, sealed by the server.
Sampling is deprecated since 2026-07-28: a new tool should call a model by itself.)
"""
from __future__ import annotations

import sys
from typing import Literal

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Context, Server, encode, text

server = Server("on-call")


@server.tool
def triage(line: str, ctx: Context) -> str:
    """Open a ticket for a line of a log, if it is worth one."""
    print("The tool begins.")
    # `key` names a question in all rounds. Without it, it is known by its number in the run: if a
    # later run asked others, or in another order, it could get the answer to a different one.
    kind = ctx.sample("Noise or incident? One word. " + line, key="kind", max_tokens=5)
    if kind["content"]["text"] != "incident":
        return "Noise."
    form = ctx.elicit("Open a ticket?", key="ticket", team=Literal["web", "database"])
    if form["action"] != "accept":
        return "No ticket, says the user."
    print("The tool acts.")                 # once, as no question follows
    return "Opened a ticket for {team}.".format(**form["content"])


ANSWERS = {
    "kind": {"role": "assistant", "content": text("incident"), "model": "a-model"},
    "ticket": {"action": "accept", "content": {"team": "database"}},
}


def demo(ident: int, **answers: object) -> None:
    """Be a modern client, without a pipe: call the tool, and again as long as it asks."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}}}
    params = {"name": "triage", "arguments": {"line": "disk full"}, "_meta": meta, **answers}
    heard: list = []
    server.handle({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params},
                  heard.append)
    state = heard[0]["result"].pop("requestState", None)
    print(encode(heard[0]).decode(), end="")
    asked = heard[0]["result"].get("inputRequests")
    if asked:
        demo(ident + 1, requestState=state, inputResponses={key: ANSWERS[key] for key in asked})


if __name__ == "__main__":
    demo(1) if sys.argv[1:] == ["--demo"] else server.run()
