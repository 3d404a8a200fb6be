#!/usr/bin/env python3
"""Play the vectors of this folder against any MCP server, and say which rules it breaks.

    python3 examples/vectors.py python3 my_server.py        # a command that serves stdio
    python3 examples/vectors.py http://127.0.0.1:8000/mcp   # a server that is running

A vector is a short conversation that shows one rule of the specification; vectors/README.md tells
the rest: the options and the exit status, how vectors are written, how to write a runner.
"""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as xml
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
FOLDER = pathlib.Path(__file__).resolve().with_suffix("")
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN, META = "2026-07-28", "io.modelcontextprotocol/"        # the first without a handshake
CLIENT = {"name": "vectors", "version": "1.0"}
LIMIT, FLOOD = 16 << 20, 20_000         # bytes of a line or body, messages in a conversation
MIRRORED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


# ---- patterns: a plain value must be equal; in an object, names in $ are operators

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()
TYPES: Any = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
              "object": dict, "array": list, "null": type(None)}


def show(value: Any, width: int = 400) -> str:
    """Write a value for a person."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= width else text[:width] + "..."


def is_a(value: Any, kinds: str) -> bool:
    """Say whether a value has one of some JSON types; true is not a number."""
    return any(isinstance(value, TYPES[kind]) and isinstance(value, bool) <= (kind == "boolean")
               for kind in kinds.split("|"))


def inside(value: Any, path: str) -> Any:
    """Find the member a.b.c of a value."""
    for name in filter(None, path.split(".")):
        value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def fits(pattern: Any, value: Any, saved: Json) -> bool:
    """Say whether a value matches; what the pattern saves stays saved if it does."""
    trial = dict(saved)
    good = not mismatch(pattern, value, trial)
    saved.update(trial if good else {})
    return good


# To add an operator: its name, the types of its values ("": also nothing), and what it does.
OPERATORS: dict[str, tuple[str, Callable[[Any, Any, Json], bool]]] = {
    "$absent":   ("",       lambda o, v, s: v is ABSENT),
    "$optional": ("",       lambda o, v, s: v is ABSENT or fits(o, v, s)),
    "$any":      ("",       lambda o, v, s: any(fits(pattern, v, s) for pattern in o)),
    "$all":      ("",       lambda o, v, s: all(fits(pattern, v, s) for pattern in o)),
    "$not":      ("",       lambda o, v, s: not fits(o, v, dict(s))),
    "$type":     ("",       lambda o, v, s: is_a(v, o)),
    "$use":      ("",       lambda o, v, s: o in s and show(v, LIMIT) == show(s[o], LIMIT)),
    "$save":     ("",       lambda o, v, s: v is not ABSENT and s.update({o: v}) is None),
    "$match":    ("string", lambda o, v, s: bool(re.search(o, v))),
    "$range":    ("number", lambda o, v, s: (o[0] is None or o[0] <= v) and (
                  o[1] is None or v <= o[1])),
    "$size":     ("string|array|object", lambda o, v, s: fits({"$range": o}, len(v), s)),
    "$values":   ("object", lambda o, v, s: all(fits(o, item, s) for item in v.values())),
    "$each":     ("array",  lambda o, v, s: all(fits(o, item, dict(s)) for item in v)),
    "$some":     ("array",  lambda o, v, s: any(fits(o, item, s) for item in v)),
    "$first":    ("array",  lambda o, v, s: fits(o, v[0] if v else ABSENT, s)),
    "$where":    ("array",  lambda o, v, s: fits(
                  o[1], [item for item in v if fits(o[0], item, dict(s))], s)),
    "$after":    ("array",  lambda o, v, s: fits(o[1], list(itertools.dropwhile(
                  lambda item: not fits(o[0], item, dict(s)), v))[1:], s)),
    "$rising":   ("array",  lambda o, v, s: all(is_a(inside(item, o), "number") and (
                  n == 0 or inside(v[n - 1], o) < inside(item, o)) for n, item in enumerate(v))),
    "$unique":   ("array",  lambda o, v, s: len({show(inside(item, o), LIMIT) for item in v})
                  == len(v)),
}


def mismatch(pattern: Any, value: Any, saved: Json, at: str = "") -> str:
    """Say where and why a value does not match, or nothing if it does; may save values."""
    members: list[tuple[str, Any, Any]] = []
    if isinstance(pattern, dict) and any(name.startswith("$") for name in pattern):
        good = all((not kinds or is_a(value, kinds)) and rule(pattern[name], value, saved)
                   for name in pattern for kinds, rule in (OPERATORS[name],))
    elif isinstance(pattern, dict) and isinstance(value, dict):
        members = [(f"{at}.{name}".lstrip("."), wanted, value.get(name, ABSENT))
                   for name, wanted in pattern.items()]
        good = True
    elif isinstance(pattern, list) and isinstance(value, list):
        members = [(f"{at}[{n}]", *pair) for n, pair in enumerate(zip(pattern, value))]
        good = len(pattern) == len(value)
    else:
        good = pattern == value and isinstance(pattern, bool) == isinstance(value, bool)
    why = "" if good else f"{at or 'it'} should be {show(pattern)}, not {show(value)}"
    return next(filter(None, (mismatch(wanted, item, saved, place)
                              for place, wanted, item in members)), why)


def filled(value: Any, saved: Json) -> Any:
    """Put saved values where a vector uses them; leave out what is optional and not there."""
    if isinstance(value, dict):
        return saved[value["$use"]] if "$use" in value else {
            name: filled(item, saved) for name, item in value.items() if not isinstance(item, dict)
            or "$optional" not in item or item["$use"] in saved}
    return [filled(item, saved) for item in value] if isinstance(value, list) else value


# ---- carriers: a link is a way to the server; its inbox has (number of HTTP exchange, what, data)

def start(work: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Run a function on a thread of its own."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


class Link:
    """What all carriers have."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[int, str, Any]] = queue.Queue(FLOOD)
        self.numbers = itertools.count(1)
        self.exchanges: dict[int, Json] = collections.defaultdict(dict)
        self.waiting: set[str] = set()          # ids, as JSON, of requests without an answer
        self.session, self.patience = "", 4     # times as long, until the first message
        self.initialized: Json = {}             # the result of a handshake

    def put_json(self, number: int, text: bytes) -> None:
        """Deliver what should be a message."""
        try:
            data = json.loads(text.decode(), parse_constant=lambda name: 1 / 0)
        except (ValueError, RecursionError, ZeroDivisionError):
            data = text[:1000].decode(errors="replace")
        self.inbox.put((number, "message", data))


class Stdio(Link):
    """A process that serves stdio."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=os.name == "posix")
        self.outbox: queue.Queue[Any] = queue.Queue()
        start(self._write, self.process.stdin)
        start(self._read, self.process.stdout, self.process.stderr)

    def send(self, number: int, body: bytes, verb: str, headers: Json) -> None:
        self.outbox.put(body + b"\n")

    def _write(self, pipe: Any) -> None:
        with contextlib.suppress(OSError, ValueError), pipe:
            for body in iter(self.outbox.get, None):
                pipe.write(body)
                pipe.flush()

    def _read(self, pipe: Any, errors: Any) -> None:
        said: collections.deque[bytes] = collections.deque(maxlen=5)
        listener = start(said.extend, iter(lambda: errors.readline(1000), b""))
        for line in iter(lambda: pipe.readline(LIMIT), b""):
            self.put_json(0, line)
        listener.join(0.5)
        self.inbox.put((0, "left", b"".join(said).decode(errors="replace")))

    def close(self, seconds: float = 2) -> str:
        """Close stdin; say whether the process has left in time, or was killed."""
        self.outbox.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            return "left"
        with contextlib.suppress(OSError, AttributeError):      # Windows has no groups
            os.killpg(self.process.pid, signal.SIGKILL)         # its children, too
        self.process.kill()
        self.process.wait()
        return "killed"


class Http(Link):
    """Streamable HTTP; or HTTP+SSE (2024-11-05), which has one stream for all answers."""

    def __init__(self, url: str, sse: bool, credentials: Json) -> None:
        super().__init__()
        self.credentials = credentials          # headers that no report shows
        self.url, self.sse, self.ready = urllib.parse.urlsplit(url), sse, threading.Event()
        self.target = self.page = self.url._replace(scheme="", netloc="", fragment="").geturl()
        self.sockets: dict[int, Any] = {}
        if sse:
            self.send(0, b"", "GET", {"accept": "text/event-stream"})
            if not self.ready.wait(5):
                raise OSError(f"no endpoint event came from {url}")

    def send(self, number: int, body: bytes, verb: str, headers: Json) -> None:
        start(self._exchange, number, body, verb, {**self.credentials, **headers})

    def _exchange(self, number: int, body: bytes, verb: str, headers: Json) -> None:
        kind: Any = getattr(http.client, self.url.scheme.upper() + "Connection")
        connection = kind(self.url.hostname, self.url.port, timeout=30)
        text, what = b"", "http" if number else "left"
        try:
            target = self.target if verb == "POST" else self.page
            connection.request(verb, target or "/", body or None, headers)
            socket = self.sockets[number] = connection.sock
            answer = connection.getresponse()
            self.inbox.put((number, "http", {"status": answer.status, "headers": {
                name.lower(): value for name, value in answer.getheaders()}}))
            if answer.headers.get_content_type() == "text/event-stream":
                socket.settimeout(None)
                self._follow(number, answer)
            else:
                text = answer.read(LIMIT)
                if answer.headers.get_content_subtype() == "json" and text and not self.sse:
                    self.put_json(number, text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            text, what = repr(error).encode(), what if number in self.sockets else "left"
        connection.close()
        self.inbox.put((number, what, {"body": text.decode(errors="replace")}))

    def _follow(self, number: int, answer: http.client.HTTPResponse) -> None:
        """Deliver the events of a stream."""
        events: list[Json] = []
        event: Json = {}
        for line in iter(lambda: answer.readline(LIMIT), b""):
            name, _, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
            value = value[value.startswith(" "):]
            if name:
                event[name] = event["data"] + "\n" + value if name == "data" in event else value
            elif event and not line.strip():
                events = [*events, event]
                self.inbox.put((number, "http", {"events": events}))
                if event.get("event") == "endpoint" and not number:
                    self.target = urllib.parse.urljoin(self.target, event.get("data", ""))
                    self.ready.set()
                elif event.get("data") and event.get("event", "message") == "message":
                    self.put_json(0 if self.sse else number, event["data"].encode())
                event = {}

    def close(self, *numbers: int) -> None:
        """Close the streams of some exchanges, or of all."""
        for number in numbers or list(self.sockets):
            with contextlib.suppress(OSError, AttributeError, KeyError):
                self.sockets[number].shutdown(2)


# ---- a conversation: one vector, played to one server

class Failed(Exception):
    """The server did something else than the vector demands: why, what it said."""


class Talk:
    """Play the steps of a vector, and keep all that is said, also as `rubbish` or `unasked`."""

    def __init__(self, server: Server, link: Stdio | Http, vector: Json) -> None:
        self.server, self.link, self.vector = server, link, vector
        self.saved: Json = {"revision": server.revision, "session": link.session}
        self.heard: list[tuple[int, Json]] = []     # messages, and the exchanges they came in
        self.taken: set[int] = set()                # places of those that a step waited for
        self.labels: dict[str, int] = {}            # exchanges by the labels of their requests
        self.loose, self.sent, self.forbidden = 0, "", False    # loose: errors without an id

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """Take what comes until there is what we wait for."""
        deadline = time.monotonic() + self.server.seconds * self.link.patience
        while (value := found()) is None:
            left = deadline - time.monotonic()
            if left < 0 or len(self.heard) > FLOOD:
                raise TimeoutError(f"no {what} in time; what came last: {show(self.heard[-3:])}")
            with contextlib.suppress(queue.Empty):
                self._take(*self.link.inbox.get(timeout=left))
        return value

    def _take(self, number: int, what: str, data: Any) -> None:
        """Keep what came; fail at once if it must never come."""
        if what == "left":
            raise ConnectionError(f"the server has left: {show(data)}")
        if what == "http":
            return self.link.exchanges[number].update(data)
        self.link.patience = 1
        batch = isinstance(data, list) and self.server.revision == "2025-03-26"
        for message in data if batch else [data]:
            name = json.dumps(message.get("id")) if isinstance(message, dict) else ""
            if not name:
                message = {"rubbish": message}
            elif "method" not in message and name == "null" and (self.loose or number):
                self.loose -= 1             # over HTTP, it belongs to what it answers
            elif "method" not in message and name not in self.link.waiting:
                message = {"unasked": message}
            elif "method" not in message:
                self.link.waiting.remove(name)
            self.heard.append((number, message))
            for pattern in self.vector.get("never", ()):
                if fits(pattern, message, dict(self.saved)):
                    self.forbidden = True
                    raise Failed(f"this must never come: {show(pattern)}", message)

    def pick(self, wanted: Callable[[int, Json], bool]) -> Any:
        """Take the first message that no step has taken and that is wanted."""
        for place, (number, message) in enumerate(self.heard):
            if place not in self.taken and wanted(number, message):
                self.taken.add(place)
                return message
        return None

    def answer(self, ids: list[Any], number: int) -> Any:
        """Find an answer with one of these ids; an exchange that has ended without one will do."""
        exchange = self.link.exchanges[number] if number else {}
        over = "body" in exchange and (
            self.server.carrier == "http" or exchange.get("status", 500) >= 400)
        return self.pick(lambda source, message: source in (number, 0) and bool(
            {"result", "error"} & set(message)) and message.get("id") in ids) or (
                exchange if over else None)

    def headers(self, message: Any, step: Json) -> Json:
        """Make the headers of a message, changed as the step says; all names are lower case."""
        found = {"accept": "text/event-stream"} if step.get("verb") == "GET" else {
            "content-type": "application/json", "accept": "application/json, text/event-stream"}
        if not self.server.legacy or self.link.initialized and self.server.revision > REVISIONS[1]:
            found["mcp-protocol-version"] = self.server.revision
        if self.link.session:
            found["mcp-session-id"] = self.link.session
        if not self.server.legacy and is_a(inside(message, "method"), "string"):
            found["mcp-method"] = message["method"]
            name = inside(message, "params." + MIRRORED.get(message["method"], "?"))
            found.update({"mcp-name": name} if is_a(name, "string") else {})
        found.update(filled(step.get("headers", {}), self.saved))
        return {name: value for name, value in found.items() if value is not None}

    def message(self, step: Json) -> Any:
        """Make the message that a step sends."""
        if "send" in step:
            return filled(step["send"], self.saved)
        params = filled(step.get("params"), self.saved)
        meta = {} if self.server.legacy or "notify" in step else {
            META + "protocolVersion": self.server.revision, META + "clientInfo": CLIENT,
            META + "clientCapabilities": self.vector.get("client", {})}
        meta.update(filled(step.get("meta", {}), self.saved))
        meta = {name: value for name, value in meta.items() if value is not None}
        message = {"jsonrpc": "2.0", "method": step.get("request", step.get("notify"))}
        if "request" in step:
            message["id"] = filled(step.get("id", next(self.link.numbers)), self.saved)
            self.saved[step.get("label", "")] = message["id"]
        params = {**(params or {}), "_meta": meta} if meta else params
        return message if params is None else {**message, "params": params}

    def judge(self, pattern: Any, value: Any) -> None:
        """Fail if a value is not what the vector demands."""
        if why := mismatch(pattern, value, self.saved):
            raise Failed(why, value)

    def send(self, step: Json) -> Any:
        """Send something; if an answer is due or expected, wait for it."""
        message, body = {}, step.get("text", "").encode() or step.get("bytes", "").encode("latin-1")
        verbatim = not {"request", "notify", "reply"} & set(step)
        if not verbatim or "send" in step:
            message = step.get("reply") or self.message(step)
            body = json.dumps(message, ensure_ascii=False).encode()
        members = [member if isinstance(member, dict) else {} for member in (
            message if isinstance(message, list) and message else [message])]
        ids = [m["id"] for m in members if is_a(m.get("id"), "string|integer") and "method" in m]
        self.link.waiting |= {json.dumps(name) for name in ids}
        self.loose += sum("id" in m or "method" not in m for m in members) * verbatim
        number = 0 if self.server.carrier == "stdio" else next(self.link.numbers)
        self.labels[step.get("label", "")] = number
        headers = self.headers(message, step) if number else {}
        self.sent = f"{step.get('verb', '')} {headers or ''} {body.decode(errors='replace')}"
        self.link.send(number, body, step.get("verb", "POST"), headers)
        ids += [None] * bool(verbatim or number)
        answer = self.until(lambda: self.answer(ids, number), "answer") if (
            {"request", "expect"} & set(step) and "later" not in step) else {}
        self.judge(step.get("expect", {"jsonrpc": "2.0"}) if answer else {}, answer)
        if number and "later" not in step:          # the next message must not overtake this one
            self.until(lambda: self.link.exchanges[number] or None, "HTTP response")
        self.http(step, number)
        return answer

    def http(self, step: Json, number: int = 0) -> None:
        """Wait until an HTTP response is as the step says, or cannot be so any more."""
        number = self.labels[step["of"]] if "of" in step else number
        if number and "http" in step and (self.server.carrier == "http" or "of" in step):
            exchange, pattern = self.link.exchanges[number], step["http"]
            status = pattern.get("status", {"$type": "integer"})
            self.until(lambda: fits(pattern, exchange, dict(self.saved)) or "body" in exchange
                       or "status" in exchange and not fits(status, exchange["status"], {})
                       or None, f"HTTP response with {show(pattern)}")
            self.judge(pattern, exchange)

    def wait(self, step: Json) -> None:
        """Wait for a message, and reply to it; an answer to the request ends the waiting."""
        pattern, source = step["await"], self.labels.get(step.get("from", "?"), 0)
        instead = {"method": {"$absent": True}, **{n: pattern[n] for n in {"id"} & set(pattern)}}
        message = self.until(lambda: self.pick(
            lambda number, message: source in (0, number) and fits(
                {"$any": [pattern, instead]}, message, dict(self.saved))) or next((
                    self.link.exchanges[number] for number in self.labels.values()
                    if "body" in self.link.exchanges[number] and number not in dict(self.heard)
                    and self.link.exchanges[number].get("status", 500) >= 400), None),
            show(pattern, 200))
        self.judge(pattern, message)
        if "reply" in step:
            message["replied"] = True
            self.send({**step, "reply": {"jsonrpc": "2.0", "id": message.get("id"),
                                         **filled(step["reply"], self.saved)}})

    def play(self) -> bool:
        """Play all steps; say whether they leave nothing open."""
        for step in self.vector["steps"]:
            try:
                VERBS[next(filter(VERBS.get, step))](self, step)
            except (Failed, TimeoutError) as failure:       # was it a thing that we judge?
                given = "given" in step and not self.forbidden
                raise (KeyError(step["given"]) if given else failure) from None
        for label, number in list(self.labels.items()):
            if number == 0 and json.dumps(self.saved.get(label)) in self.link.waiting:
                self.link.waiting.remove(json.dumps(self.saved[label]))
                self.send({"notify": "notifications/cancelled",
                           "params": {"requestId": self.saved[label]}})
        return not self.link.waiting and all(
            "id" not in message or "method" not in message or "replied" in message
            for _, message in self.heard)


BARRIER = [{"request": "server/discover"}, {"request": "ping"}]     # harmless: modern, legacy
# To add a verb: the member of a step that names it, and a function of the talk and the step.
VERBS: dict[str, Callable[[Any, Json], Any]] = {
    "request": Talk.send, "notify": Talk.send, "send": Talk.send, "text": Talk.send,
    "bytes": Talk.send, "verb": Talk.send, "await": Talk.wait, "of": Talk.http,
    "barrier": lambda talk, step: talk.send(BARRIER[talk.server.legacy]),
    "heard":   lambda talk, step: talk.judge(step["heard"], [m for _, m in talk.heard]),
    "hang_up": lambda talk, step: talk.link.close(talk.labels[step["hang_up"]]),
    "exit":    lambda talk, step: talk.judge("left", talk.link.close(step["exit"]))}


# ---- what a server has, the runs, and the reports

LISTS = {"tool": ("tools/list", "tools", "name"), "prompt": ("prompts/list", "prompts", "name"),
         "resource": ("resources/list", "resources", "uri"),
         "template": ("resources/templates/list", "resourceTemplates", "uriTemplate")}
VERDICTS = {"MUST": "broken", "SHOULD": "unwise", "text": "remark"}     # of a failure, by level


class Server:
    """The server under test, in one revision over one carrier."""

    def __init__(self, options: argparse.Namespace, revision: str) -> None:
        self.command, self.url = [options.target, *options.arguments], options.target
        self.seconds, self.revision, self.legacy = options.timeout, revision, revision < MODERN
        self.carrier = "http" if re.match("https?://", self.url) else "stdio"
        if self.carrier == "http" and revision == REVISIONS[0]:
            self.carrier = "sse"
            self.url = options.sse or self.url.rpartition("/")[0] + "/sse"
        self.credentials = dict(line.partition(":")[::2] for line in options.header)
        self.has: Json = {}
        self.silences = 0

    def connect(self, vector: Json) -> Stdio | Http:
        """Open a link, with a session if the revision has them."""
        link = Stdio(self.command) if self.carrier == "stdio" else Http(
            self.url, self.carrier == "sse", self.credentials)
        if not self.legacy or vector.get("own") == "connection":
            return link
        talk = Talk(self, link, vector)
        try:
            link.initialized = talk.send({"request": "initialize", "label": "opening", "params": {
                "protocolVersion": self.revision, "capabilities": vector.get("client", {}),
                "clientInfo": CLIENT}, "expect": {
                    "result": {"protocolVersion": self.revision}}})["result"]
        except (Failed, OSError):
            link.close()
            raise
        opening = link.exchanges[talk.labels["opening"]].get("headers", {})
        link.session = opening.get("mcp-session-id", "")
        talk.send({"notify": "notifications/initialized", "http": {"status": {"$type": "integer"}}})
        if self.carrier == "http" and "own" not in vector:
            talk.send({"verb": "GET", "later": True})       # some servers ask on this stream
        return link

    def survey(self) -> str:
        """Find out what the server declares and lists; say why, if it does not speak this."""
        try:
            with contextlib.closing(self.connect({"steps": []})) as link:
                talk = Talk(self, link, {})
                result = link.initialized if self.legacy else talk.send(
                    {"request": "server/discover", "expect": {"result": {
                        "supportedVersions": {"$some": self.revision}}}})["result"]
                self.has = {"capabilities": result.get("capabilities", {})}
                for kind, (method, member, name) in LISTS.items():
                    self.has[kind], params = [], Json()
                    with contextlib.suppress(Failed, OSError, KeyError, TypeError):
                        for _ in range(50):             # to the last page
                            result = talk.send({"request": method, "params": params})["result"]
                            self.has[kind] += [inside(item, name) for item in result[member]]
                            params = {"cursor": result["nextCursor"]}
        except (Failed, OSError) as failure:
            return show(list(failure.args), 1000)
        return ""

    def lacks(self, needs: list[str]) -> str:
        """Say what of a vector's needs the server lacks."""
        for need in needs:
            kind, _, name = need.partition(" ")
            there = name in self.has[kind] if kind in LISTS else inside(
                self.has["capabilities"], name or kind) not in (ABSENT, False, None)
            if there == (kind == "not"):
                return f"needs {need}"
        return "the server does not answer any more" * (self.silences > 12)

    def play(self, vector: Json, links: dict[str, Stdio | Http]) -> tuple[Json, list[Json]]:
        """Play one vector, on a used link if one suits: the outcome, and all that was heard."""
        row = {"verdict": "passed", **vector, "carrier": self.carrier, "revision": self.revision}
        if why := self.lacks(vector.get("needs", [])):
            return {**row, "verdict": "skipped", "why": why}, []
        kind = vector.get("own") or json.dumps(self.legacy and vector.get("client", {}))
        link, talk, clean = links.pop(kind, None), None, False
        try:
            link = link or self.connect(vector)
            talk = Talk(self, link, vector)
            clean, self.silences = talk.play(), 0
        except KeyError as missing:             # a value that no step could save
            row.update(verdict="skipped", why=f"the server has no {missing}")
        except (Failed, OSError) as failure:
            self.silences += isinstance(failure, OSError)
            why, said = failure.args if isinstance(failure, Failed) else (str(failure), None)
            row.update(verdict=VERDICTS["text" if "doubtful" in vector else vector["level"]],
                       why=why, received=said, sent=talk and talk.sent)
        if link and clean and "own" not in vector:
            links[kind] = link
        elif link:
            link.close()
        return row, [message for _, message in talk.heard] if talk else []

    def play_all(self, vectors: list[Json], rules: list[Json], fresh: bool) -> list[Json]:
        """Play vectors one after the other, and charge the rules that hold for every message."""
        links: dict[str, Stdio | Http] = {}
        rows: dict[str, Json] = {}
        for vector in vectors:          # the rules come first; they have no steps
            used = bool(links)
            row, heard = self.play(vector, links)
            if used and row["verdict"] in VERDICTS.values():
                again = self.play(vector, {})[0]
                row = again if again["verdict"] != "passed" else {**row, "order": "passes alone"}
            rows.setdefault(vector["id"], row)
            for rule in rules:
                bad = [m for m in heard if not fits(rule["every"], m, {"revision": self.revision})]
                if bad and rows[rule["id"]]["verdict"] == "passed":
                    rows[rule["id"]].update(verdict=VERDICTS[rule["level"]],
                                            why=f"in {row['id']}", received=bad[0])
            while links and (fresh or vector is vectors[-1]):
                links.popitem()[1].close()
        return list(rows.values())


def report(rows: list[Json]) -> None:
    """Print a line for each page, and then each failure once, with where it happened."""
    columns = ["passed", "skipped", *VERDICTS.values()]
    print(f"\n{'vectors of':24}", *(f"{name:>8}" for name in columns))
    for page in [*sorted({row["page"] for row in rows}), "all pages"]:
        print(f"{page:24}", *(f"{len(ids):8}" for ids in (
            {row["id"] for row in rows if row["verdict"] == name and page in (
                row["page"], "all pages")} for name in columns)))
    failed = [row for row in rows if row["verdict"] in VERDICTS.values()]
    for name in dict.fromkeys(row["id"] for row in failed):
        same = [row for row in failed if row["id"] == name]
        print(f"\n{same[0]['verdict'].upper()} {name}: {same[0]['rule']}", *(
            f"  {title:<9} {show(same[0][title], 1000)}" for title in (
                "clause", "level", "doubtful", "order", "sent", "why", "received")
            if same[0].get(title)), sep="\n")
        print("  where    ", ", ".join(f"{row['carrier']} {row['revision']}" for row in same))


def write_junit(path: str, rows: list[Json]) -> None:
    """Write all outcomes as JUnit does: only a broken MUST is a failure."""
    suite = xml.Element("testsuite", name="MCP vectors", tests=str(len(rows)))
    for row in rows:
        case = xml.SubElement(suite, "testcase", name=row["id"], classname=" ".join(
            (row["page"], row["carrier"], row["revision"])))
        for tag in {"broken": ["failure"], "skipped": ["skipped"]}.get(row["verdict"], []):
            text = f"{row['rule']}: {row['why']} {show(row.get('received'))}"
            xml.SubElement(case, tag, message=re.sub("[^ -~]", "?", text))
    xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main() -> int:
    """Read the command line, play several revisions at once, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--revisions", help="DATE,DATE: play these, and insist on them")
    parser.add_argument("--only", action="append", default=[], help="a vector or a page")
    parser.add_argument("--sse", default="", help="URL of HTTP+SSE (default: sse beside URL)")
    parser.add_argument("--header", action="append", default=[], help="'NAME: VALUE', over HTTP")
    parser.add_argument("--json", help="write all outcomes to this file")
    parser.add_argument("--junit", help="the same in JUnit's format")
    parser.add_argument("--fresh", action="store_true", help="a new process for each vector")
    parser.add_argument("--timeout", type=float, default=5, help="seconds for an answer")
    parser.add_argument("target", help="URL or COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the COMMAND")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")        # type: ignore[union-attr]
    servers = [Server(options, date)
               for date in (options.revisions or ",".join(REVISIONS)).split(",")]
    vectors = [{"page": path.stem, "steps": [], **vector} for path in sorted(FOLDER.glob("*.json"))
               if path.stem != "schema" for vector in json.loads(path.read_text("utf-8"))
               if not options.only or {vector["id"], path.stem} & set(options.only)]
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for server, why in zip(servers, pool.map(Server.survey, servers)):
            print(f"{server.carrier} {server.revision}:", why or "spoken", flush=True)
            fit = [vector for vector in vectors if server.revision in vector["revisions"]
                   and server.carrier in vector["carriers"] and not why]
            rules = [vector for vector in fit if "every" in vector]
            jobs.append(pool.submit(server.play_all, rules + fit, rules, options.fresh))
    rows = [row for vector in vectors for job in jobs for row in job.result()
            if row["id"] == vector["id"]]           # in the order of the run
    report(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.junit:
        write_junit(options.junit, rows)
    verdicts = {row["verdict"] for row in rows}
    return int("broken" in verdicts or not verdicts - {"skipped"} or not all(
        server.has for server in servers if options.revisions))


if __name__ == "__main__":
    sys.exit(main())
