"""The server of all lessons: a library with three books, which forgets everything.

    $ echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | python3 examples/course/lessons/server.py
    {"jsonrpc":"2.0","id":1,"result":{}}

With `--http 8000` it serves http://127.0.0.1:8000/mcp, with `--token --http 8000` only
to those who have a token. Nothing in it depends on time or chance.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from mcp_ref import Context, NotFound, Server, bearer, elicitation, roots, sampling

BOOKS = {"Dune": "Frank Herbert", "Emma": "Jane Austen", "Ulysses": "James Joyce"}
lent = ["Ulysses"]
members: list[str] = []

server = Server("library", instructions="Search first, then lend.", page_size=3)


@server.tool
def search(word: str) -> list[str]:
    """List the titles that contain a word."""
    return [title for title in BOOKS if word.lower() in title.lower()]


@server.tool
def lend(title: str) -> str:
    """Lend a book for two weeks."""
    if title in lent:
        raise ValueError(f"{title} is on loan. Choose another book.")
    lent.append(title)
    server.changed("library://loans")
    return f"{title} is yours for two weeks."


@server.tool
def check_shelves(ctx: Context) -> str:
    """Check that every book is in its place."""
    for number, title in enumerate(BOOKS, 1):
        print("checking", title)  # it must not reach the client: see lesson 26
        ctx.progress(number, len(BOOKS), title)
        if title in lent:
            ctx.log("warning", {"missing": title}, "shelves")
    return f"{len(BOOKS) - len(lent)} of {len(BOOKS)} books are here."


@server.tool
def wait_for(title: str, ctx: Context) -> str:
    """Wait until a book is returned. Nobody returns one: cancel the call."""
    ctx.progress(0, message=f"{title} is still on loan")
    while not ctx.cancelled:
        time.sleep(0.01)
    return f"{title} is back."


@server.tool
def close_desk() -> str:
    """Close the desk: there will be no tool to lend books."""
    del server.tools["lend"]
    server.changed("tools")
    return "The desk is closed."


@server.tool
def join(ctx: Context) -> str:
    """Become a member: the user fills in a form, and for children a parent agrees."""
    who = ctx.elicit("Who are you?", key="who", name=str, age=int)
    if who["action"] != "accept":
        return "Not a member."
    if who["content"]["age"] < 18:
        question = "May {name} join?".format(**who["content"])
        if ctx.elicit(question, key="parent", agreed=bool).get("content") != {
            "agreed": True
        }:
            return "Not a member."
    members.append(who["content"]["name"])  # after the last question
    return f"{members[-1]} is member number {len(members)}."


@server.tool
def pay_fine(ctx: Context) -> str:
    """Pay a fine on a page, because a form must not ask for a card number."""
    question = elicitation("You owe 2 euros.", url="https://library.example/fines/7")
    if ctx.version == "2025-11-25":
        question["params"]["elicitationId"] = "fine-7"
    answer = ctx.ask({"pay": question})["pay"]

    # It is sent where the revision has it. (This page knows at once that it was paid.)
    ctx.notify("notifications/elicitation/complete", {"elicitationId": "fine-7"})
    return "Thank you." if answer["action"] == "accept" else "Not paid."


@server.tool
def summarize(title: str, ctx: Context) -> str:
    """Summarize a book: the client's model writes, its folders say where to."""
    question = f"Summarize {title} in one sentence."
    answers = ctx.ask({"model": sampling(question, max_tokens=60), "folders": roots()})
    return "{uri}: {text}".format(
        **answers["folders"]["roots"][0], **answers["model"]["content"]
    )


@server.tool
def open_reading_room() -> str:
    """Open the reading room: it has a newspaper, and a quiz about it."""
    server.resource("library://newspaper")(lambda: "Nothing happened today.")
    server.prompt(lambda: "Ask me about the newspaper.", name="quiz")
    server.changed("resources")
    server.changed("prompts")
    return "The reading room is open."


@server.tool
def reserve(title: Annotated[str, {"x-mcp-header": "Title"}]) -> str:
    """Reserve a book. Proxies see which one: see lesson 16."""
    return f"{title} is reserved."


@server.resource("library://loans", mime_type="application/json")
def loans() -> list[str]:
    """The books on loan."""
    return lent


@server.resource("library://books/{title}", name="book", mime_type="text/plain")
def book(title: str) -> str:
    """One book."""
    if title not in BOOKS:
        raise NotFound()
    return f"{title}, by {BOOKS[title]}"


@server.prompt
def book_report(title: str, tone: str = "plain") -> str:
    """Write a book report."""
    # KeyError: see lesson 9
    return f"Write a {tone} report about {title} by {BOOKS[title]}."


@server.completion("book_report", "tone")
def tones(typed: str) -> list[str]:
    """Complete the tone of a report."""
    return [tone for tone in ("plain", "playful", "solemn") if tone.startswith(typed)]


# For run(), or for an endpoint: who may call, and where to get a token. See lesson 28.
protected: dict[str, Any] = {
    "authorize": bearer(
        {"sesame": "ada"},
        metadata_url="http://localhost:8000/.well-known/oauth-protected-resource/mcp",
    ),
    "metadata": {
        "resource": "http://localhost:8000/mcp",
        "authorization_servers": ["https://login.example"],
    },
}

if __name__ == "__main__":
    server.run(**protected if "--token" in sys.argv else {})
