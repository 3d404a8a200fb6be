r"""Data to read, and messages to start from: resources and prompts.

For servers that have more to offer than functions. Tools are for the model. Resources are for the
application, which shows them or puts them into the model's context. Prompts are for the user, often
as slash commands. Read 01_hello_server.py first. Lessons 7 and 9 have the messages. Next:
03_long_work.py.

    $ python3 examples/mcp_client.py list examples/02_resources_and_prompts.py
    shorten
        Say what a note says, in fewer words.
    note:/// index
        The paths of all notes.
    note:///{+path} note
        One note.

A resource has a URI. A *template* stands for many: `{path}` matches one segment, `{+path}` several.
Its value becomes the argument of the function. Values that lead elsewhere, such as `../secret`, are
refused.

    $ python3 examples/mcp_client.py read examples/02_resources_and_prompts.py note:///ideas/boat
    Paint the boat blue.
    $ python3 examples/mcp_client.py read examples/02_resources_and_prompts.py note:///ideas/plane
    RpcError: Resource not found
    $ python3 examples/mcp_client.py read examples/02_resources_and_prompts.py note:///../passwd
    RpcError: ...

A prompt returns messages. Its arguments arrive as text and are converted as the hints say (try it
with `words=5`):

    $ python3 examples/mcp_client.py prompt examples/02_resources_and_prompts.py shorten path=todo
    Shorten this note to 20 words.
    {"role": "user", "content": {"type": "resource", ... "text": "Buy paint."}}}

While the user types such an argument, a host can ask for completions: the last function here
returns them. In Python, `client.complete("shorten", "path", "id")` returns ["ideas/boat",
"ideas/dog"].
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]       # where mcp_ref.py is
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
