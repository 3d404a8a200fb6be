"""The server that all transcripts talk to: a small library. It forgets everything when it ends.

    $ echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | python3 examples/transcripts/server.py
    {"jsonrpc":"2.0","id":1,"result":{}}

With `--http 8000` it is at http://127.0.0.1:8000/mcp. Nothing here depends on the time or on
chance, so that a conversation with it can be written down, and held again.
"""
from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from mcp_ref import Context, NotFound, Server, elicitation

BOOKS = {"Dune": "Frank Herbert", "Emma": "Jane Austen", "Ulysses": "James Joyce"}
FINE = "https://library.example/fines/7"    # nobody is there: the library trusts whom it sends
lent = ["Ulysses"]
fines = ["Dune came back late"]
orders: list[str] = []

server = Server("library", instructions="Search first, then lend.", page_size=3)


# ---- tools: the model calls them

@server.tool
def search(word: str) -> list[str]:
    """List the titles with a word in them."""
    return [title for title in BOOKS if word.lower() in title.lower()]


@server.tool
def lend(title: str) -> str:
    """Lend a book for two weeks."""
    if title not in BOOKS:
        raise ValueError(f"There is no {title} here. Search for it first.")
    if title in lent:
        raise ValueError(f"{title} is lent out. Take another book.")
    lent.append(title)
    server.changed("library://loans")
    return f"{title} is yours for two weeks."


@server.tool
def check_shelves(ctx: Context) -> str:
    """Look whether every book is in its place."""
    for number, title in enumerate(BOOKS, 1):
        ctx.log("debug", f"looking for {title}", "shelves")
        ctx.progress(number, len(BOOKS), title)
        if title in lent:
            ctx.log("warning", {"missing": title}, "shelves")
    return f"{len(BOOKS) - len(lent)} of {len(BOOKS)} books are here."


@server.tool
def wait_for(title: str, ctx: Context) -> str:
    """Wait until a book comes back. Nobody brings any: cancel it."""
    over = threading.Event()
    ctx.on_cancel(over.set)
    ctx.progress(0, message=f"{title} is not back yet")
    over.wait()
    return f"{title} is back."


@server.tool
def hours(branch: Annotated[str, {"x-mcp-header": "Branch"}]) -> str:
    """Say when a branch is open. Over HTTP the branch stands in a header, too."""
    return f"{branch}: 9 to 18, Monday to Friday."


@server.tool
def open_reading_room() -> str:
    """Open the reading room, for everybody: there will be one more tool."""
    @server.tool
    def reserve_seat() -> str:
        """Reserve a seat in the reading room."""
        return "Seat 1 is yours."
    server.changed("tools")
    return "The reading room is open."


@server.tool
def suggest() -> str:
    """Suggest a book."""
    print("thinking about books")           # a mistake, for the lesson on it
    return "Read Emma."


# ---- tools that ask

@server.tool
def join(ctx: Context) -> str:
    """Become a member: the user fills in a form."""
    answer = ctx.elicit("Welcome! Who are you?", name=str, age=int)
    if answer["action"] != "accept":
        return "Not a member."
    return "{name}, {age}, is a member now.".format(**answer["content"])


@server.tool
def pay_fine(ctx: Context) -> str:
    """Pay a fine: the user visits a page, since a form is no place for a card number."""
    answer = ctx.elicit("You owe 2 euros.", url=FINE, elicitation_id="fine-7")
    ctx.notify("notifications/elicitation/complete", {"elicitationId": "fine-7"})
    return "Paid." if answer["action"] == "accept" else "Not paid."


@server.tool
def renew(title: str, ctx: Context) -> str:
    """Keep a book for longer. Who owes a fine has to pay first."""
    if fines:
        owed = fines.pop()
        ctx.elicit(f"{owed}: pay 2 euros first.", url=FINE, elicitation_id="fine-7", wait=False)
    return f"{title} is yours for two more weeks."


@server.tool
def summarize(title: str, ctx: Context) -> str:
    """Summarize a book: the client's model does it."""
    answer = ctx.sample(f"Summarize {title} by {BOOKS[title]} in a sentence.", max_tokens=60)
    return str(answer["content"]["text"])


@server.tool
def choose_folder(ctx: Context) -> str:
    """Choose where to save the catalogue, among the client's folders."""
    return "The catalogue belongs in {uri}".format(**ctx.list_roots()[0])


@server.tool
def order(title: str, ctx: Context) -> str:
    """Order a new book. Who is not of age needs a parent's yes."""
    ctx.log("debug", "order begins")
    try:
        answers = ctx.ask({
            "reader": elicitation("Who are you?", name=str, age=int),
            "desk": elicitation("Where will you fetch it?", desk=Literal["north", "south"])})
        if any(answer["action"] != "accept" for answer in answers.values()):
            return "Nothing was ordered."
        reader, desk = answers["reader"]["content"], answers["desk"]["content"]["desk"]
        if reader["age"] < 18:
            question = "May {name} order a book?".format(**reader)
            if ctx.elicit(question, key="parent", agreed=bool).get("content") != {"agreed": True}:
                return "Nothing was ordered."
        orders.append(title)                # not before the last question
        return f"Order {len(orders)}: {title}, to the {desk} desk, for {reader['name']}."
    finally:
        ctx.log("debug", "order ends")


# ---- resources: the application reads them

@server.resource("library://rules", mime_type="text/plain")
def rules() -> str:
    """The rules of the house."""
    return "Return what you lend. Eat elsewhere."


@server.resource("library://loans", mime_type="application/json")
def loans() -> list[str]:
    """The books that are lent out."""
    return lent


@server.resource("library://stamp", mime_type="image/gif")
def stamp() -> bytes:
    """The stamp that goes into every book."""
    return b"GIF89a\1\0\1\0\0\0\0;"


@server.resource("library://attic", mime_type="text/plain")
def attic() -> str:
    """What is in the attic."""
    raise OSError("/srv/library/attic: the key is lost")


@server.resource("library://books/{title}", name="book", mime_type="text/plain")
def book(title: str) -> str:
    """One book."""
    if title not in BOOKS:
        raise NotFound()
    return f"{title}, by {BOOKS[title]}"


# ---- prompts: the user picks them

@server.prompt
def book_report(title: str, tone: str = "plain") -> str:
    """Write a book report."""
    return f"Write a {tone} report about {title} by {BOOKS.get(title, 'somebody')}."


@server.completion("book_report", "tone")
def tones(typed: str) -> list[str]:
    """Complete what the user types as the tone of a report."""
    return [tone for tone in ("plain", "playful", "solemn") if tone.startswith(typed)]


@server.completion("library://books/{title}", "title")
def titles(typed: str) -> list[str]:
    """Complete what the user types as a title."""
    return [title for title in BOOKS if title.lower().startswith(typed.lower())]


if __name__ == "__main__":
    server.run()
