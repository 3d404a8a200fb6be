r"""Things to read, and messages to start from: resources and prompts.

Tools are for the model; resources are for the application, which shows them or puts them into
the model's context; prompts are for the user, often as slash commands. `{+path}` in a template
stands for several segments of a URI, `{path}` for one; either is checked for `..` and the like.
A completion helps while somebody types. Answers come when they are ready, hence the `sort`:

    $ printf '{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}\n' \
        1 resources/read '"uri":"note:///ideas/boat"' \
        2 completion/complete '"ref":{"type":"ref/prompt","name":"shorten"},"argument":{"name":"path","value":"id"}' \
        3 prompts/get '"name":"shorten","arguments":{"path":"ideas/boat","words":"5"}' \
        | python3 examples/02_resources_and_prompts.py | sort
    {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[{"uri":"note:///ideas/boat","mimeType":"text/plain","text":"Paint the boat blue."}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"notes","version":"1.0"}}}}
    {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","completion":{"values":["ideas/boat","ideas/dog"],"total":2,"hasMore":false},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"notes","version":"1.0"}}}}
    {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","description":"Say what a note says, in fewer words.","messages":[{"role":"user","content":{"type":"text","text":"Shorten this note to 5 words."}},{"role":"user","content":{"type":"resource","resource":{"uri":"note:///ideas/boat","text":"Paint the boat blue."}}}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"notes","version":"1.0"}}}}
"""
from __future__ import annotations

import sys

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import NotFound, Server, embedded

server = Server("notes")
NOTES = {"todo": "Buy paint.", "ideas/boat": "Paint the boat blue.", "ideas/dog": "Get one."}


@server.resource("note:///", mime_type="text/plain")
def index() -> str:
    """The paths of all notes."""
    return "\n".join(NOTES)


@server.resource("note:///{+path}", mime_type="text/plain")
def note(path: str) -> str:
    """One note."""
    if path not in NOTES:
        raise NotFound
    return NOTES[path]


@server.prompt
def shorten(path: str, words: int = 20) -> list:
    """Say what a note says, in fewer words."""
    return [f"Shorten this note to {words} words.", embedded("note:///" + path, note(path))]


@server.completion("shorten", "path")
@server.completion("note:///{+path}", "path")
def paths(typed: str) -> list[str]:
    return [path for path in NOTES if path.startswith(typed)]


if __name__ == "__main__":
    server.run()
