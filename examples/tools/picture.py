"""Draw a recorded conversation: a sequence diagram, as one page without a script.

    python3 examples/tools/picture.py FILE > picture.html

FILE is a *trace*, written by MCP_TRACE=FILE, tap.py or the client's --record, or it is
a lesson of the course. Each message is an arrow; a click on it shows all of it. The top
of the page lists what is wrong, with the lesson that explains it, and the calls that
took long.

    $ python3 examples/tools/picture.py examples/course/lessons/10_ask_the_user.md
    <!DOCTYPE html>
    ...

As a module: `draw(title, records)` returns the page for the records of a trace.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

MOST = 2000  # arrows on a page
LINKS = 10  # links in a line of the overview
TRACKS = 3  # brackets side by side
SLOW = SILENCE = 0.5  # seconds: an answer took long, nothing was said

# What can be wrong, and the lesson that explains it. To add a fault: a name, a row in
# LESSONS, and its condition in Conversation._faults().
UNREADABLE = "Line that is not JSON, or not a message"
UNANSWERED = "Request without an answer"
EARLY = "Request before the handshake"
TWICE = "Id used twice"
UNASKED = "Answer that nobody asked for"
ANSWERED = "Answer to a notification"
LATE = "Response after the cancellation"
LESSONS = {
    UNANSWERED: 5,
    EARLY: 18,
    TWICE: 26,
    UNASKED: 26,
    ANSWERED: 26,
    LATE: 5,
    UNREADABLE: 4,
}

LISTEN, CANCELLED = "subscriptions/listen", "notifications/cancelled"
BEFORE_READY = ("initialize", "server/discover", "ping")
ASKED = {"elicitation/create": "user", "sampling/createMessage": "model"}
META = "io.modelcontextprotocol/"
# The members that tell most about a message, in the order in which they are shown.
TELLING = (
    "name uri level progress total action code message text data protocolVersion reason"
    " content contents inputRequests params"
).split()
HIDDEN = (  # control characters, and those that hide or reorder text
    r"[\0-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ud800-\udfff]"
)
NAMES = Path(__file__).resolve().parents[1] / "course" / "lessons"
Record = dict[str, Any]


# ---- JSON of strangers: any member may be missing, or of any type
def parse(text: Any, read: Any = json.loads) -> Any:
    """Return what a text says, or None if it cannot be read."""
    try:
        return read(text)
    except (LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return None


def part(value: Any, *names: str) -> Any:
    """Return value[name][name]..., or None where a member is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def mark(value: Any) -> tuple[str, Any] | None:
    """Return an id or a token as a key, in which 1 and "1" differ; or None."""
    valid = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return (type(value).__name__, value) if valid else None


def gist(value: Any, depth: int = 5) -> str:
    """Return the words of some JSON that tell most, on one line."""
    if isinstance(value, list) and value and depth:
        return gist(value[0], depth - 1)
    if isinstance(value, dict) and depth:
        names = [name for name in TELLING if name in value]
        if not names and "resultType" not in value:
            names = [*value][:1]
        value = " ".join(filter(None, (gist(value[one], depth - 1) for one in names)))
    if type(value) not in (str, int, float):
        return ""

    words = " ".join(str(value)[:999].split())
    return words if len(words) <= 80 else words[:80] + "..."


# ---- reading: a trace or a lesson becomes records
def read_trace(text: str) -> Iterator[Record]:
    """Yield the records of a trace; for a line that is something else, a note."""
    for line in filter(str.strip, text.split("\n")):
        record = parse(line)
        known = part(record, "way") in ("<", ">")
        if known or part(record, "exit") is not None or part(record, "program"):
            yield record
        else:
            yield {"note": "Cut off, or not part of a trace: " + line[:99]}


def read_lesson(text: str) -> Iterator[Record]:
    """Yield the conversations of a lesson, one for each section, as records."""
    names = {
        name: re.sub(r"\n +", "", meaning)
        for path in NAMES.glob("[0-9]*.md")
        for name, meaning in re.findall(
            r"(?m)^<([a-z ]+)> +(.+(?:\n +.+)*)", path.read_text("utf-8")
        )
    }
    for section in re.split(r"(?m)^##? ", text):
        said = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", section))
        if said:
            yield {"program": "", "note": section.partition("\n")[0]}
        for on, way, step in re.findall(
            r"(?m)^(\d?)([<>]) (.*(?:\n(?!\d?[<>] ).*)*)\n", said
        ):
            place = {"way": way, "on": on if "HTTP/1.1" in said else "stdio"}
            yield {**place, **read_step(step, names)}


def read_step(step: str, names: dict[str, str]) -> Record:
    """Return what a step of a lesson says, as members of a record."""
    if step.startswith("("):
        leaves = step in ("(hangs up)", "(closes stdin)")
        return {"closed": True} if leaves else {"note": step}

    record: Record = {}
    head, _, body = step.partition("\n\n")
    if status := re.match(r"HTTP/1.1 (\d{3})", head):
        record["status"] = int(status[1])
    elif "HTTP/1.1" in head:
        record["http"] = head.partition(" HTTP/1.1")[0]
    else:
        head, body = "", step.rpartition("data: ")[2] if "data:" in step else step

    # A line that goes on is indented; a name stands for text or, unquoted, for JSON.
    body = re.sub(r"\n +", "", body.strip())
    body = re.sub("<([a-z ]+)>", lambda name: names.get(name[1], name[0]), body)
    message = parse(re.sub(r"(?<=[:,\[])(<[\w ]+>)", r'"\1"', body))
    if message is not None:
        record["message"] = message
    elif not head:
        record["note" if re.match("id: |event: ", step) else "text"] = step
    return record


# ---- understanding: what each message belongs to
class Arrow:
    """One message, or one event of the transport, and what it belongs to."""

    def __init__(self, number: int, record: Record, message: Any, rest: int) -> None:
        self.number, self.record, self.message = number, record, message
        self.rest = rest  # how many messages of its batch follow
        self.way = record.get("way")
        on = record.get("on")
        self.on = on if isinstance(on, (str, int)) else ""
        self.piped = self.on == "stdio"
        self.http = gist(record.get("status", record.get("http")))
        self.time: float | None = parse(
            record.get("time"),
            lambda sent: datetime.fromisoformat(sent[:23]).timestamp(),
        )

        own = message if isinstance(message, dict) else {}
        self.id, self.method = own.get("id"), gist(own.get("method"))
        self.params, self.result = own.get("params"), own.get("result")
        self.error = own.get("error")
        self.meta = part(self.params, "_meta")
        self.kind = self._kind(own)

        # These come from the rest of the conversation.
        self.to: Arrow | None = None  # what it answers, ends or goes on with
        self.end: Arrow | None = None  # its answer, or what ended it otherwise
        self.group = [self]  # of the first message of a call: all that belong to it
        self.root = self
        self.faults: list[str] = []

    def _kind(self, own: dict[str, Any]) -> str:
        if "closed" in self.record and self.way:
            return "closed"
        if self.record.keys() & {"note", "exit", "program"} or not self.way:
            return "note"
        if "message" not in self.record:
            return "text" if self.piped else "http"
        if isinstance(own.get("method"), str):
            if "id" not in own:
                return "notification"
            return "request" if mark(self.id) else "invalid"
        return "response" if own.keys() & {"result", "error"} else "invalid"

    @property
    def back(self) -> str:
        """The other direction."""
        return "<" if self.way == ">" else ">"

    @property
    def refused(self) -> bool:
        """Whether HTTP refused it."""
        return re.match("[45]", self.http) is not None

    @property
    def failure(self) -> str:
        """In one word, how a response failed."""
        if self.error is not None:
            return "error"
        return "isError" if part(self.result, "isError") is True else ""

    @property
    def name(self) -> str:
        """What the arrow is called."""
        if self.kind == "closed":
            return "closes its input" if self.piped else "hangs up"
        if self.kind == "note":
            note, program, process, status = map(
                self.record.get, ("note", "program", "process", "exit")
            )
            begins = program and f"{gist(program)} begins, process {gist(process)}"
            return gist(note or begins or f"exit status {gist(status)}")
        found = self.method or self.failure or gist(part(self.result, "resultType"))
        return found or (self.http if self.kind == "http" else self.kind)


class Conversation:
    """The arrows so far, and what is open: finds what each message belongs to."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.arrows: list[Arrow] = []
        self._forget()
        for record in records:
            message = record.get("message")
            batch = message if isinstance(message, list) and message else [message]
            for rest, one in zip(reversed(range(len(batch))), batch):
                self._add(Arrow(len(self.arrows), record, one, rest))

    def _forget(self) -> None:
        """Begin another run: nothing is open, and no id has been used."""
        self.ready = False  # a session is open
        # The requests by direction and id: all, and those of each connection.
        self.requests: dict[Any, Arrow] = {}
        self.local: dict[Any, dict[Any, Arrow]] = {}
        # What an answer has no id for, by direction and connection, oldest first:
        # notifications, and what the other side may have been unable to read.
        self.notices: dict[Any, dict[int, Arrow]] = {}
        self.unread: dict[Any, dict[int, Arrow]] = {}
        # The client's latest request or exchange on each connection.
        self.latest: dict[Any, Arrow] = {}
        self.tokens: dict[Any, Arrow] = {}
        self.states: dict[Any, Arrow] = {}

    def _add(self, arrow: Arrow) -> None:
        reopens = arrow.method == "initialize" and arrow.piped and self.ready
        if arrow.record.keys() & {"program", "exit"} or reopens:
            self._forget()

        arrow.to = next(filter(is_open, self._candidates(arrow)), None)
        arrow.faults = self._faults(arrow)
        self._connect(arrow)
        self._remember(arrow)
        self.arrows.append(arrow)

    def _candidates(self, arrow: Arrow) -> Iterator[Arrow | None]:
        """Yield what a message may belong to: the first that is open is it."""
        here = self.local.get(arrow.on, {})
        if arrow.kind == "response":
            if arrow.id is None:
                yield from self._unnamed(arrow)
            else:
                yield here.get((arrow.back, mark(arrow.id)))
                yield self.requests.get((arrow.back, mark(arrow.id)))
            return

        ended = mark(part(arrow.params, "requestId"))
        for way in arrow.way, arrow.back:
            yield here.get((way, ended))
            yield self.requests.get((way, ended))
        subscription = part(arrow.meta, META + "subscriptionId")
        yield here.get((">", mark(subscription)))
        yield self.tokens.get(mark(part(arrow.params, "progressToken")))
        yield self.states.get(mark(part(arrow.params, "requestState")))
        answers = arrow.way == "<" and arrow.kind not in ("text", "closed")
        leaves = arrow.way == ">" and arrow.kind == "closed" and not arrow.piped
        if answers or leaves:
            latest = self.latest.get(arrow.on)
            asked, said = (one and one.record.get("http") for one in (latest, arrow))
            # An answer may say to what, and that may not have been recorded.
            yield latest if not said or asked == said else None

    def _unnamed(self, error: Arrow) -> Iterator[Arrow | None]:
        """Yield what an error without an id may answer."""
        if not error.piped:
            yield self.latest.get(error.on)
            return

        # "Parse error" and "invalid request" are for what could not be read, others
        # for a notification; of several the oldest, because answers come in order.
        waiting = [self.notices, self.unread]
        if part(error.error, "code") in (-32700, -32600):
            waiting.reverse()
        for some in waiting:
            yield from some.get((error.back, error.on), {}).values()
        yield self.latest.get(error.on)

    def _connect(self, arrow: Arrow) -> None:
        """Add a message to the call that it belongs to."""
        to = arrow.to
        if to is None:
            return

        arrow.root = to.root
        to.root.group.append(arrow)
        ends = arrow.kind in ("response", "closed") or arrow.method == CANCELLED
        if ends or arrow.refused:
            self._end(to, arrow)
            # An error without an id refuses a whole batch.
            for one in self.arrows[to.number + 1 : to.number + 1 + to.rest]:
                if arrow.id is None and arrow.kind == "response":
                    self._end(one, arrow)

    def _end(self, arrow: Arrow, by: Arrow) -> None:
        """Note what ended a message: no other answer is due to it."""
        arrow.end = by
        for waiting in self.notices, self.unread:
            waiting.get((arrow.way, arrow.on), {}).pop(arrow.number, None)

    def _remember(self, arrow: Arrow) -> None:
        """Keep what later messages may belong to."""
        if arrow.kind == "request":
            key = (arrow.way, mark(arrow.id))
            self.requests[key] = self.local.setdefault(arrow.on, {})[key] = arrow
            self.tokens[mark(part(arrow.meta, "progressToken"))] = arrow
        elif arrow.kind == "response":
            self.states[mark(part(arrow.result, "requestState"))] = arrow
        elif arrow.kind == "closed" and not arrow.piped:
            self.local.pop(arrow.on, None)  # its number may be used again
            self.latest.pop(arrow.on, None)

        batch = isinstance(arrow.record.get("message"), list)
        if batch or arrow.kind in ("notification", "text", "invalid"):
            told = arrow.kind == "notification" and not batch
            kept = self.notices if told else self.unread
            kept.setdefault((arrow.way, arrow.on), {})[arrow.number] = arrow

        exchange = not arrow.piped and arrow.kind not in ("note", "closed")
        if arrow.way == ">" and (arrow.kind == "request" or exchange):
            self.latest[arrow.on] = arrow
        opened = arrow.kind == "note" and arrow.name.startswith("(a session")
        self.ready |= opened or arrow.method == "notifications/initialized"
        for known in self.tokens, self.states:
            known.pop(None, None)

    def _faults(self, arrow: Arrow) -> list[str]:
        """Return what is wrong as soon as a message comes."""
        found = []
        to, modern = arrow.to, part(arrow.meta, META + "protocolVersion") is not None
        if arrow.kind == "request":
            old = self.local.get(arrow.on, {}).get((arrow.way, mark(arrow.id)))
            if old and not (modern and old.end):
                found.append(TWICE)
            if arrow.piped and not (
                modern or self.ready or arrow.method in BEFORE_READY
            ):
                found.append(EARLY)
        elif arrow.kind == "response":
            # Over HTTP, an error without an id refuses the exchange itself.
            refuses = not arrow.piped and arrow.id is None
            if not to and not refuses:
                found.append(UNASKED)
            elif to and to.kind == "notification" and not refuses:
                found.append(ANSWERED)
            elif to and to.end and to.end.method == CANCELLED:
                found += [LATE] * (to.end.way == to.way)
        elif arrow.kind in ("text", "invalid"):
            found.append(UNREADABLE)
        return found

    def faults(self) -> dict[str, list[Arrow]]:
        """Return for each fault the messages that have it, now that all have come."""
        found: dict[str, list[Arrow]] = {what: [] for what in LESSONS}
        for arrow in self.arrows:
            for fault in arrow.faults:
                found[fault].append(arrow)
            if arrow.kind == "request" and not arrow.end and arrow.method != LISTEN:
                found[UNANSWERED].append(arrow)
        return found


def is_open(arrow: Arrow | None) -> bool:
    """Tell whether something can still belong to a message."""
    return arrow is not None and not (arrow.end and arrow.end.kind == "response")


def time_between(first: Arrow | None, last: Arrow | None) -> float | None:
    """Return the seconds from one message to another, if they are known."""
    if first is None or last is None or first.time is None or last.time is None:
        return None
    return last.time - first.time


# ---- drawing
STYLE = """
:root { color-scheme: light dark; overflow-wrap: anywhere; --edge: #8888 }
* { box-sizing: border-box }
body { font: 15px/1.4 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto;
  padding: 0 .7rem }
h1, h2 { font-size: 1.1rem }
a { color: inherit }
ol { list-style: none; padding: 0; margin: 0 }
li { --now: color-mix(in srgb, var(--hue, #889) 75%, CanvasText) }
b { color: var(--now) }
.row { display: flex; scroll-margin-top: 2rem }
.row > div { flex: 1; min-width: 0; border: solid var(--edge); border-width: 0 2px }
.head { position: sticky; top: 0; z-index: 1; background: Canvas; font-weight: bold;
  border-bottom: 1px solid var(--edge) }
.head > div { display: flex; justify-content: space-between; border: 0 }
.at, .user { width: 3rem; padding-top: .7rem }
.head .at, .head .user { padding-top: 0 }
.at, .user, .note, .closed, small, .legend { font-size: .8rem }
.at { text-decoration: none }
.user { border-left: 2px solid var(--edge) }
.head .user { border: 0 }
.user b { display: block; border-bottom: 2px dotted #b70 }
.left div { text-align: right }
.note div { text-align: center }
.gap > div { border: 0 }
i { width: .5rem; border: 0 solid #b70 }
i:not([class=""]) { border-left-width: 2px }
.first { border-top-width: 2px; margin-top: 1.2rem }
.last { border-bottom-width: 2px }
.request { --hue: #06f }
.response { --hue: #084 }
.notification { --hue: #83c }
[title$="/progress"] { --hue: #b70 }
[title$="/cancelled"], .closed { --hue: #889 }
.bad, .text, .invalid { --hue: #e00 }
summary { display: block; position: relative; padding: .6rem .7rem 0;
  border-bottom: 2px solid var(--now); text-wrap: pretty }
.response summary { border-bottom-style: dashed }
.notification summary, .closed summary { border-bottom-style: dotted }
summary::after { content: ""; position: absolute; bottom: -6px; right: -5px;
  border: 5px solid; border-color: #0000 #0000 #0000 var(--now) }
.left summary::after { right: auto; left: -5px; transform: rotate(180deg) }
.note summary, .note summary::after { border: 0 }
:target { background: #fd04 }
pre { margin: .5rem 1rem; font-size: .8rem; text-align: left; white-space: pre-wrap }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem }
.legend span { --now: color-mix(in srgb, var(--hue, #889) 75%, CanvasText);
  border-bottom: 2px solid var(--now) }
.legend .response { border-bottom-style: dashed }
.legend .notification, .legend .closed { border-bottom-style: dotted }
.legend .call { border: solid #b70; border-width: 0 0 0 2px; padding-left: .3rem }
@media (max-width: 30rem) { .at, .user { width: 2.4rem } }
@media print { .head { position: static } li { break-inside: avoid }
  .legend small { display: none } }
"""
LEGEND = """<p class="legend"><span class="request">request</span>
<span class="response">response</span><span class="notification">notification</span>
<span class="bad">failed or unreadable</span><span class="closed">hangs up</span>
<span class="call">messages of one call</span>
<small>Click on a message to see all of it.</small>"""
ITEM = """<li class="row {kind} {side} {bad}" id="m{number}" title="{name}">
<a class="at" href="#m{number}">{number}<br>{at}</a>{tracks}
<span class="user">{who}</span><div><details>
<summary><b>{label}</b> {words} <small>{more} {pair}</small></summary>
<pre>{body}</pre></details></div>"""
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'sha256-{hash}'">
<title>{title}</title><style>{style}</style>
<h1>{title}</h1>
<p>{count} messages. Client: {clientInfo}. Server: {serverInfo}. Revision: {revision}.
<h2>What is wrong</h2>{wrong}
<h2>What took long</h2><p>{slow}
{legend}
<div class="row head"><span class="at">No.</span>{tracks}<span class="user">User</span>
<div><span>Client</span><span>Server</span></div></div>
<ol>{items}</ol>"""


def breakable(text: str) -> str:
    """Return a name as HTML that breaks behind a slash, not in a word."""
    return html.escape(text).replace("/", "/<wbr>")


def link(arrow: Arrow, since: Arrow | None = None) -> str:
    """Return a link to an arrow, and the time since another one, if that is known."""
    name = breakable(f"{arrow.name} {gist(part(arrow.params, 'name'))}".strip())
    spent = time_between(since, arrow)
    took = "" if spent is None else f" {abs(spent):.3f} s"
    return f'<a href="#m{arrow.number}">{name}</a>{took}'


def words_of(arrow: Arrow) -> str:
    """Return what a message says, on one line."""
    if arrow.method == "notifications/progress":
        done, total = (gist(part(arrow.params, one)) for one in ("progress", "total"))
        done += f"/{total}" if total else ""
        return f"{done} {gist(part(arrow.params, 'message'))}"
    return gist(arrow.record.get("text") or arrow.params or arrow.error or arrow.result)


def body_of(arrow: Arrow) -> str:
    """Return all that a record has, laid out; long texts and long bodies are cut."""
    said = arrow.message if arrow.message is not None else arrow.record
    body = parse(said, lambda it: json.dumps(it, indent=2, ensure_ascii=False))
    long_text = r'("(?:[^"\\\n]|\\.){200})(?:[^"\\\n]|\\.){99,}"'
    return re.sub(long_text, r'\1..."', body or "...")[:9000]


def draw_arrow(arrow: Arrow, zero: Arrow, tracks: str) -> str:
    """Return an arrow as an item of the list."""
    more = []
    if arrow.id is not None:
        more.append(f"id {gist(arrow.id)}")
    if arrow.http and arrow.message is not None:
        more.append(arrow.http)
    connection = gist(arrow.on)  # a lesson with only one does not number it
    if connection and not arrow.piped and arrow.kind != "note":
        more.append(f"connection {connection}")
    bad = arrow.failure or arrow.kind == "http" and arrow.refused
    spent = time_between(zero, arrow)
    texts = {
        "kind": arrow.kind,
        "side": "left" if arrow.way == "<" else "right",
        "bad": "bad" if bad else "",
        "name": arrow.name,
        "words": words_of(arrow),
        "more": ", ".join(more),
        "body": body_of(arrow),
        "number": str(arrow.number),
        "at": "" if spent is None else f"{spent:.3f}",
    }

    pair = ""
    if arrow.to:
        pair = f"to {link(arrow.to, arrow)}"
    elif arrow.end:
        pair = f"→ {link(arrow.end, arrow)}"
    seen = texts["body"] + (body_of(arrow.to) if arrow.to else "")
    who = [f"<b>{ASKED[one]}</b>" for one in ASKED if f'"method": "{one}"' in seen]
    escaped = {name: html.escape(text) for name, text in texts.items()}
    own = {"tracks": tracks, "pair": pair, "who": "".join(who)}
    return ITEM.format(label=breakable(texts["name"]), **own, **escaped)


def cells(tracks: list[Arrow | None], arrow: Arrow | None = None) -> str:
    """Return the brackets beside an arrow: which begin, go on and end there."""
    drawn = ""
    for root in tracks:
        kind = "in" if root else ""
        if root and root is arrow:
            kind = "first"
        elif root and root.group[-1] is arrow:
            kind = "last"
        drawn += f'<i class="{kind}"></i>'
    return drawn


def draw_arrows(arrows: list[Arrow], chosen: set[int]) -> Iterator[str]:
    """Yield the items of the list: arrows, and where time or arrows were left out."""
    tracks: list[Arrow | None] = [None] * TRACKS
    last = arrows[0]
    for arrow in arrows:
        if arrow.root is arrow and len(arrow.group) > 2 and None in tracks:
            tracks[tracks.index(None)] = arrow
        if arrow.number in chosen:
            left, quiet = arrow.number - last.number - 1, time_between(last, arrow)
            gap = f"{left:,} are left out" if left > 0 else ""
            if not gap and quiet and quiet > SILENCE:
                gap = f"{quiet:.1f} s"
            if gap:
                yield f'<li class="row note gap"><div>{gap}</div>'
            yield draw_arrow(arrow, arrows[0], cells(tracks, arrow))
            last = arrow
        tracks = [None if root and root.group[-1] is arrow else root for root in tracks]


def slow_answers(arrows: list[Arrow]) -> list[Arrow]:
    """Return the answers that took long, the longest first."""
    spent = [
        (time_between(arrow.to, arrow) or 0, arrow)
        for arrow in arrows
        if arrow.kind == "response" and arrow.to and arrow.to.method != LISTEN
    ]
    slow = sorted(spent, key=lambda pair: -pair[0])[:LINKS]
    return [arrow for seconds, arrow in slow if seconds >= SLOW]


def names_of(arrows: list[Arrow], name: str) -> str:
    """Return what a side calls itself, or the revisions that both have spoken."""
    found = {}
    for arrow in arrows[:MOST]:
        said = re.match(r"\(a session of (\S+) is open", arrow.name)
        if said and name == "protocolVersion":
            found[said[1]] = True
        holders = [arrow.result, arrow.meta, part(arrow.result, "_meta")]
        if name == "clientInfo":  # elsewhere, params have what is only asked for
            holders.append(arrow.params)
        if arrow.end and part(arrow.end.error, "code") == -32022:
            holders = []
        for one in holders:
            value = part(one, name) or part(one, META + name)
            if text := f"{gist(value)} {gist(part(value, 'version'))}".strip():
                found[text] = True
    return html.escape(", ".join(found) or "unknown")


def draw(title: str, records: Iterable[Record]) -> str:
    """Return the page: the overview, and the arrows with their brackets and gaps."""
    talk = Conversation(records)
    arrows = talk.arrows or [Arrow(0, {"note": "There is nothing here."}, None, 0)]
    slow, wrong = slow_answers(arrows), talk.faults()

    chosen: set[int] = set()
    for some in (arrows[: MOST // 2], arrows[-MOST // 2 :], slow, *wrong.values()):
        for arrow in some[: MOST // 2]:
            chosen.update(one.number for one in (arrow, arrow.to, arrow.end) if one)

    lines = []
    for what, having in wrong.items():
        links = ", ".join(map(link, having[:LINKS]))
        if len(having) > LINKS:
            links += f" ... ({len(having):,} in all)"
        if having:
            lines.append(f"<li>{what} (lesson {LESSONS[what]}): {links}")

    timed = any(arrow.time is not None for arrow in arrows)
    calm = f"Every answer came within {SLOW} s." if timed else "No times were recorded."
    text = PAGE.format(
        title=html.escape(title),
        hash=base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode(),
        style=STYLE,
        legend=LEGEND,
        count=f"{sum(arrow.kind not in ('note', 'closed') for arrow in arrows):,}",
        clientInfo=names_of(arrows, "clientInfo"),
        serverInfo=names_of(arrows, "serverInfo"),
        revision=names_of(arrows, "protocolVersion"),
        wrong="<ul>" + "".join(lines) + "</ul>" if lines else "<p>Nothing.",
        slow=", ".join(link(one.to, one) for one in slow if one.to) or calm,
        tracks=cells([None] * TRACKS),
        items="\n".join(draw_arrows(arrows, chosen)),
    )
    return re.sub(HIDDEN, "\ufffd", text)


def page(path: str) -> str:
    """Return the page for a file: a lesson, if its name ends in .md, or a trace."""
    text = Path(path).read_text("utf-8-sig", "replace")
    read = read_lesson if path.endswith(".md") else read_trace
    return draw(Path(path).name, read(text))


def main(words: list[str]) -> int:
    """Print the page for the file that the command line names; return the status."""
    if words == ["--help"]:
        print(__doc__)
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        drawn = page(words[0])
    except OSError as problem:
        print(
            f"picture.py: cannot read {words[0]}: {problem.strerror}", file=sys.stderr
        )
        return 1
    sys.stdout.buffer.write(drawn.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
