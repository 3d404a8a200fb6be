r"""Data to read, and messages to start from: resources and prompts.

For servers that have more to offer than functions. Tools are for the model. Resources
are for the application, which shows them or puts them into the model's context. Prompts
are for the user, often as slash commands. Read 02_long_work.py first. Lessons 7 to 9
and 20 have the messages. Next: 04_ask_the_user.py.

    $ python3 examples/mcp_cli.py list examples/course/03_resources_and_prompts.py
    Tools:
      write(path: str, text: str)  Write a note.
    Prompts:
      shorten(path, words?)  Say what a note says, in fewer words.
    Resources:
      note:///  index  The paths of all notes.
    Resource templates:
      note:///{+path}  note  One note.

A resource has a URI. A *template* stands for many: `{path}` matches one segment,
`{+path}` several. Its value becomes the argument of the function. Values that lead
elsewhere, such as `../secret`, are refused.

    $ python3 examples/mcp_cli.py read examples/course/03_resources_and_prompts.py note:///ideas/boat
    Paint the boat blue.
    $ python3 examples/mcp_cli.py read examples/course/03_resources_and_prompts.py note:///ideas/plane
    the server answered with error ...: Resource not found ...
    $ python3 examples/mcp_cli.py read examples/course/03_resources_and_prompts.py note:///../passwd
    the server answered with error ...

Clients may subscribe to a resource or to a list. Tell them what has changed, and they
read it again: `server.changed(uri)` for a resource, `server.changed("resources")` (or
"tools", or "prompts") for a list. The tool here does so when it writes a note.

A prompt returns messages. Its arguments arrive as text and are converted as the hints
say (try it with `words=5`):

    $ python3 examples/mcp_cli.py prompt examples/course/03_resources_and_prompts.py shorten path=todo
    user: Shorten this note to 20 words.
    user: Buy paint.

While the user types such an argument, a host can ask for completions: the last function
here returns them. In Python, `client.complete("shorten", "path", "id")` returns
["ideas/boat", "ideas/dog"].
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import NotFound, Server, embedded

server = Server("notes")
NOTES = {
    "todo": "Buy paint.",
    "ideas/boat": "Paint the boat blue.",
    "ideas/dog": "Get one.",
}


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


@server.tool
def write(path: str, text: str) -> str:
    """Write a note."""
    NOTES[path] = text
    server.changed("note:///" + path)
    server.changed("note:///")  # the index is a resource, too
    return f"There are {len(NOTES)} notes."


@server.prompt
def shorten(path: str, words: int = 20) -> list[Any]:
    """Say what a note says, in fewer words."""
    return [
        f"Shorten this note to {words} words.",
        embedded("note:///" + path, note(path)),
    ]


@server.completion("shorten", "path")
@server.completion("note:///{+path}", "path")
def paths(typed: str) -> list[str]:
    return [path for path in NOTES if path.startswith(typed)]


if __name__ == "__main__":
    server.run()
