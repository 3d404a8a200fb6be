r"""A tool with a user interface: the host shows a page beside the tool's answer.

For servers whose results are better seen than read. Read 11_for_a_company.py first. The
specification calls this MCP Apps (the extension io.modelcontextprotocol/ui); the module
needs no code for it. picture.py draws the page. Next: 13_the_loop.py.

A tool names a resource in `_meta.ui.resourceUri`. A host that knows the extension reads
that resource, a page of HTML, and shows it in a sandbox when the model calls the tool.
Page and host then exchange JSON-RPC messages by postMessage():

    > ui/initialize                      the page says what it is
    < result                             ... and learns about the host
    > ui/notifications/initialized
    < ui/notifications/tool-result       what the tool has returned
    > tools/call                         the page calls a tool of its server
    < result
    > ui/notifications/size-changed      so that the host makes room

Here the tool `conversation` tells the model what has been said so far. The page then
calls `picture`, which the model does not see ("visibility": ["app"]), and shows the
drawing. Other hosts show the text of `conversation`, and that is all they need:

    $ python3 examples/mcp_cli.py call examples/course/12_app.py conversation
    server/discover ...
    ...
    tools/call conversation
    {
      "count": ...
    }

The server keeps what all clients say, and shows it to any of them: use it on stdio,
where there is only one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
sys.path += [str(Path(__file__).resolve().parents[1] / "tools")]
import picture
from mcp_ref import Context, Server

UI = "io.modelcontextprotocol/ui"
HTML = "text/html;profile=mcp-app"
PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8">
<style>:root { color-scheme: light dark }</style>
<button id="again">Draw again</button> <span id="text"></span><div id="drawing"></div>
<script>
let last = 0, waiting = {}
const send = message => parent.postMessage({jsonrpc: "2.0", ...message}, "*")
const request = (method, params) => new Promise((resolve, reject) => {
  waiting[++last] = {resolve, reject}
  send({id: last, method, params})
})
const draw = async () => {
  const result = await request("tools/call", {name: "picture", arguments: {}})
  document.getElementById("drawing").innerHTML = result._meta.page  // it has no scripts
  const height = document.documentElement.scrollHeight
  send({method: "ui/notifications/size-changed", params: {height}})
}
addEventListener("message", ({source, data}) => {
  if (source !== parent) return
  const {id, method, params, result, error} = data
  if (method === "ui/notifications/tool-result") {
    document.getElementById("text").textContent = params.structuredContent.count + " messages"
    draw()
  } else if (method && id !== undefined) send({id, result: {}})  // ping, or the end
  else if (waiting[id]) error ? waiting[id].reject(error) : waiting[id].resolve(result)
})
document.getElementById("again").onclick = draw
request("ui/initialize", {protocolVersion: "2026-01-26", appCapabilities: {},
  appInfo: {name: "conversation", version: "1.0"}})
  .then(() => send({method: "ui/notifications/initialized"}))
</script>"""


class Listener(Server):
    """A server that keeps what is said, as records of a trace."""

    def handle(self, message: Any, send: Any, **options: Any) -> Any:
        def answer(said: Any) -> None:
            records.append({"way": "<", "on": "stdio", "message": said})
            send(said)

        records.append({"way": ">", "on": "stdio", "message": message})
        return super().handle(message, answer, **options)


records: list[dict[str, Any]] = []
server = Listener("conversation")


@server.resource("ui://conversation/page", mime_type=HTML)
def page() -> str:
    """The page that a host shows."""
    return PAGE


@server.tool(_meta={"ui": {"resourceUri": "ui://conversation/page"}})
def conversation(ctx: Context) -> dict[str, Any]:
    """Tell what client and server have said so far; the user sees a picture of it."""
    arrows = picture.Conversation(list(records)).arrows
    lines = [f"{one.name} {picture.words_of(one)}".strip() for one in arrows]
    shown = ctx.client_capabilities.get("extensions", {}).get(UI, {})
    if HTML in shown.get("mimeTypes", []):
        lines = [f"The user sees a picture of {len(arrows)} messages."]
    return {
        "content": [{"type": "text", "text": "\n".join(lines)}],
        "structuredContent": {"count": len(arrows)},
    }


@server.tool(name="picture", _meta={"ui": {"visibility": ["app"]}})
def draw() -> dict[str, Any]:
    """Draw the conversation so far, without this call, which has no answer yet."""
    drawn = picture.draw("The conversation so far", records[:-1])
    return {"content": [], "_meta": {"page": drawn}}


if __name__ == "__main__":
    server.run()
