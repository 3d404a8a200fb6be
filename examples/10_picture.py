"""Draw a recorded conversation: a sequence diagram, as one page without a script.

It takes a *trace*, which MCP_TRACE=FILE, 08_tap.py or `mcp_client.py --record FILE` wrote, or a
lesson. Each message is an arrow that unfolds; above it stand the slow calls and what is wrong.

    $ python3 examples/10_picture.py examples/transcripts/10_ask_the_user.md > /tmp/ask.html
"""
import html
import json
import re
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace as Arrow
from typing import Any

MODERN = ("io.modelcontextprotocol/protocolVersion", "<revision and capabilities>")
LISTEN, META, CELL = "subscriptions/listen", "io.modelcontextprotocol/", '<i class="{}"></i>'
# what may be wrong: the lesson that explains it (examples/transcripts/NN_*.md), and how to see it
WRONG: dict[str, tuple[int, Any]] = {
    "Request without an answer": (5, lambda row: row.asks and not row.end and row.method != LISTEN),
    "Request before the handshake": (18, lambda row: row.asks and row.early),
    "Id used twice": (26, lambda row: row.asks and row.old and not (row.modern and row.old.end)),
    "Answer that nobody asked for": (26, lambda row: row.kind == "response" and not row.to),
    "Answer to a notification": (26, lambda row: row.answers and row.to.kind == "notification"),
    "Response after the cancellation": (5, lambda row: row.answers and row.late),
    "Line that is not JSON, or not a message": (4, lambda row: row.kind in ("text", "invalid"))}
MOST, LINKS, TRACKS, SILENCE = 2000, 10, 3, 1   # arrows, links in a line, brackets, seconds
ASKED = {"elicitation/create": "user", "sampling/createMessage": "model"}
TELLING = ("name", "uri", "level", "progress", "total", "action", "code", "message", "text", "data",
           "protocolVersion", "reason", "content", "contents", "inputRequests", "params")
HIDDEN = r"[\0-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
STYLE = """
:root { color-scheme: light dark; overflow-wrap: anywhere } * { box-sizing: border-box }
body { font: 15px/1.4 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 .7rem }
h1, h2 { font-size: 1.1rem } a { color: inherit } ol { list-style: none; padding: 0 }
li { --now: color-mix(in srgb, var(--hue, #889) 75%, CanvasText) } ol li { display: flex }
li > div { flex: 1; border: solid #8888; border-width: 0 2px; min-width: 0 } b { color: var(--now) }
.at, .user { padding-top: .7rem; width: 3rem } .left div { text-align: right } u { float: right }
.at, .user, .note, small { font-size: .8rem } .at, u { text-decoration: none }
.user { border-left: 2px solid #8888 } .user b { display: block; border-bottom: 2px dotted #b70 }
i { width: .5rem; border: 0 solid #b70 } i:not([class=""]) { border-left-width: 2px }
.first { border-top-width: 2px; margin-top: 1.2rem } .last { border-bottom-width: 2px }
.request { --hue: #06f } .response { --hue: #084 } .notification { --hue: #83c }
[title$="/progress"] { --hue: #b70 } [title$="/cancelled"] { --hue: #889 } .bad, .text, .invalid,
.http[title^="4"], .http[title^="5"] { --hue: #e00 } pre { font-size: .8rem; white-space: pre-wrap }
summary { border-bottom: 2px solid var(--now); padding: .6rem .7rem 0; position: relative }
.response summary { border-bottom-style: dashed } .note div { text-align: center }
.notification summary { border-bottom-style: dotted } .gap div { border: 0 }
summary::after { content: ""; position: absolute; bottom: -6px; right: -5px; border: 5px solid;
border-color: #0000 #0000 #0000 var(--now) } .note summary, .note summary::after { border: 0 }
.left summary::after { right: auto; left: -5px; transform: rotate(180deg) } summary { display: block
} :target { background: #fd04 } .left pre, pre { margin: .5rem 1rem; text-align: left }
"""
ITEM = """<li class="{kind} {side} {bad}" id="m{number}" title="{name}"><a class="at"
href="#m{number}">{number}<br>{at}</a>{tracks}<span class="user">{who}</span><div><details><summary>
<b>{name}</b> {words} <small>{more} {pair}</small></summary><pre>{body}</pre></details></div>"""
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta
http-equiv="Content-Security-Policy" content="default-src 'none'; style-src
'sha256-MmeOmdeMuLgxh/kZOOf8C6zAc3UzTiJf9yG72IAbh7w='"><title>{title}</title><style>{style}</style>
<h1>{title}</h1><p>{count} messages. Client: {clientInfo}. Server: {serverInfo}. Revision:
{protocolVersion}.<h2>What is wrong</h2><ul>{wrong}</ul><h2>What took long</h2>{slow}<ol><li><span
class="at"></span>{tracks}<span class="user">User</span><div><u>Server</u>Client</div>{items}"""


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


def gist(value: Any, depth: int = 5) -> str:
    """Return the words of some JSON that tell most, on one line."""
    value = dict(enumerate(value[:1])) if isinstance(value, list) else value
    if isinstance(value, dict):
        names = [one for one in TELLING if one in value] or [*value][:"resultType" not in value]
        value = " ".join(gist(value[one], depth - 1) for one in names if depth)
    words = " ".join(str(value)[:999].split()) if type(value) in (str, int, float) else ""
    return words if len(words) <= 80 else words[:80] + "..."


def read_trace(text: str) -> Any:
    """Yield the records of a trace; instead of a line that is something else, a note."""
    for line in filter(str.strip, text.split("\n")):
        record = parse(line)
        good = part(record, "way") in ("<", ">") or part(record, "exit") is not None
        yield record if good else {"note": "Cut off, or not part of a trace: " + line[:99]}


def read_lesson(text: str) -> Any:
    """Yield the conversations of a lesson, one for each section, as records of a trace."""
    for section in re.split(r"(?m)^##? ", text):
        said = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", section))
        yield from [{"exit": "", "note": section.partition("\n")[0]}] * bool(said)
        for on, way, step in re.findall(r"(?m)^(\d?)([<>]) (.*(?:\n(?!\d?[<>] ).*)*)\n", said):
            lines = re.sub(r'(?<!\n)\n +(?=["{[])', "", step).split("\n")
            last = re.sub(r"(?<=[,{])(<[\w ]+>)", r'"\1": 1', lines[-1].replace("data: {", "{"))
            message, http = parse(re.sub(":(<.+?>)", r':"\1"', last)), "HTTP/1.1" in lines[0]
            kind = "note" if re.match(r"\(|id: |event: ", step) else "text"
            yield {"way": way, "on": on if "HTTP/1.1" in said else "stdio",
                   "http": lines[0].replace("HTTP/1.1", "").strip() * http,
                   **({"message": message} if message else {kind: step} if not http else {})}


def arrow(record: dict[str, Any], message: Any, number: int, known: dict[str, Arrow]) -> Arrow:
    """Return an arrow, connected with the one that it answers, cancels or goes on with."""
    way, on, http = record.get("way"), record.get("on"), record.get("status", record.get("http"))
    note = gist(record.get("note", f"Exit status {record.get('exit')}" * ("exit" in record)))
    back, own = "<" if way == ">" else ">", message if isinstance(message, dict) else {}
    id_, method, params, result, error = map(own.get, ("id", "method", "params", "result", "error"))
    meta, mark = part(params, "_meta"), ("id", way, id_, on)
    kind = "note" if note or not way else "text" if on == "stdio" else "http"
    if isinstance(method, str) and ("id" not in own or isinstance(id_, (str, int, float))):
        kind = "request" if "id" in own else "notification"
    elif "message" in record:
        kind = "response" if own.keys() & {"result", "error"} else "invalid"
    if "exit" in record or method == "initialize" and on == "stdio" and "('ready',)" in known:
        known.clear()                           # another process begins
    stops, watch = part(params, "requestId"), part(meta, META + "subscriptionId")
    names: list[Any] = [("id", way, stops), ("id", back, stops), ("id", ">", watch, on), (
        "token", part(params, "progressToken")), ("state", part(params, "requestState"))]
    if kind == "response":
        names = [("last", back, on)] if id_ is None else [("id", back, id_, on), ("id", back, id_)]
    elif way == "<" and kind != "text":
        names.append(("open", on))
    asks, found = kind == "request", [known[name] for name in map(repr, names) if name in known]
    to = next((one for one in found if not (one.end and one.end.answers)), None)
    answers, late = kind == "response" and to, to and to.end and to.end.way == to.way
    modern = isinstance(meta, str) or any(part(meta, name) for name in MODERN)
    early = not (modern or on != "stdio" or "('ready',)" in known
                 or re.match("initialize|server/discover|ping", gist(method)))
    time = parse(record.get("time"), lambda sent: datetime.fromisoformat(sent[:23]).timestamp())
    row = Arrow(**locals(), old=known.get(repr(mark)), end=None, group=[],
                name=gist(method or note or (http if kind == "http" else kind)))
    row.root = to.root if to else row
    row.root.group.append(row)
    if to and (answers or method == "notifications/cancelled" or re.match("[45]", gist(http))):
        to.end = row
    mine: list[Any] = [mark, mark[:3], ("token", part(meta, "progressToken"))] * asks
    mine += [("last", way, on), ("state", part(result, "requestState"))]
    mine += [("open", on)] * (way == ">" and (asks or on != "stdio"))
    mine += [("ready",)] * (method == "notifications/initialized" or note[:10] == "(a session")
    known.update({repr(name): row for name in mine if name[-1] is not None})
    return row


def link(row: Arrow, since: Any = None) -> str:
    """Return a link to an arrow, and the time since another one, if that is known."""
    name = html.escape(f"{row.name} {gist(part(row.params, 'name'))}".strip())
    spent = f" {abs(row.time - since.time):.3f} s" if since and row.time and since.time else ""
    return f'<a href="#m{row.number}">{name}</a>{spent}'


def draw(row: Arrow, zero: Arrow, tracks: str) -> str:
    """Return an arrow as an item of the list."""
    bad = "error" if row.error is not None else "isError" * (part(row.result, "isError") is True)
    body, before = (parse(one, lambda one: json.dumps(one, indent=2, ensure_ascii=False)) or "..."
                    for one in (row.message or row.record, row.to and row.to.message))
    texts = {
        "kind": row.kind, "side": "left" if row.way == "<" else "right", "bad": bad and "bad",
        "name": gist(row.method or bad or part(row.result, "resultType") or row.name),
        "words": gist(row.record.get("text") or row.params or row.error or row.result),
        "more": f"id {gist(row.id_)} " * (row.id_ is not None) + gist(row.http) * bool(row.own)
                + f" connection {gist(row.on)}" * (row.on != "stdio" and row.kind != "note"),
        "body": re.sub(r'("(?:[^"\\\n]|\\.){200})(?:[^"\\\n]|\\.){99,}"', r'\1..."', body)[:9000],
        "number": row.number, "at": f"{row.time - zero.time:.3f}" if row.time and zero.time else ""}
    pair = f"to {link(row.to, row)}" if row.to else link(row.end, row) if row.end else ""
    who = [f"<b>{ASKED[one]}</b>" for one in ASKED if f'"method": "{one}"' in body + before]
    return ITEM.format(tracks=tracks, pair=pair, who="".join(who), **{
        name: html.escape(str(text)) for name, text in texts.items()})


def page(path: str) -> str:
    """Read a file; return its overview, and the arrows, with brackets and gaps, as one page."""
    text, rows, known = Path(path).read_text("utf-8-sig", "replace"), list[Any](), dict[str, Any]()
    for record in [*(read_lesson if path.endswith(".md") else read_trace)(text)] or [{}]:
        batch = record.get("message")
        for message in batch if isinstance(batch, list) and batch else [batch]:
            rows.append(arrow(record, message, len(rows), known))
    wrong = {what: [row for row in rows if is_so(row)] for what, (_, is_so) in WRONG.items()}
    slow = sorted((row for row in rows if row.answers and row.time and row.to.time),
                  key=lambda row: row.to.time - row.time)[:LINKS]
    drawn = {one.number for some in (rows[:MOST // 2], rows[-MOST // 2:], slow, *wrong.values())
             for row in some[:MOST // 2] for one in (row, row.to, row.end) if one}
    last, items, tracks = rows[0], list[str](), list[Any]([None]) * TRACKS
    for row in rows:
        if row.root is row and len(row.group) > 2 and None in tracks:
            tracks[tracks.index(None)] = row
        cells = "".join(CELL.format("first" if one is row else "" if not one else
                                    "last" if one.group[-1] is row else "in") for one in tracks)
        tracks = [one if one and one.group[-1] is not row else None for one in tracks]
        if row.number in drawn:
            left, quiet = row.number - last.number - 1, (row.time or 0) - (last.time or 0)
            gap = f"{left:,} are left out" if left > 0 else f"{quiet:.1f} s" * (quiet > SILENCE)
            items += [gap and f'<li class="note gap"><div>{gap}</div>', draw(row, rows[0], cells)]
            last = row
    who = {name: html.escape(", ".join({gist(one): 0 for row in rows[:MOST] for one in (
        part(row.params, name), part(row.meta, META + name), part(row.result, name), part(
            row.result, "_meta", META + name)) if one}) or "unknown")
        for name in ("clientInfo", "serverInfo", "protocolVersion")}
    faults = [f"<li>{what} (lesson {WRONG[what][0]}): {', '.join(map(link, few[:LINKS]))}" + (
        f" ... ({len(few):,} in all)" * (len(few) > LINKS)) for what, few in wrong.items() if few]
    return PAGE.format(
        title=html.escape(Path(path).name), style=STYLE, wrong="".join(faults) or "Nothing.",
        count=f"{sum(row.kind != 'note' for row in rows):,}", tracks=CELL.format("") * TRACKS,
        slow=", ".join(link(row.to, row) for row in slow), items="\n".join(items), **who)


if __name__ == "__main__":
    sys.stdout.buffer.write(re.sub(HIDDEN, "\ufffd", page(sys.argv[1])).encode())
