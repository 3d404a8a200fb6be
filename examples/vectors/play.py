"""Play one vector: send what its steps say, keep what comes, and judge it."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from links import FLOOD, Link, rubbish
from patterns import (
    BadVector,
    Json,
    Missing,
    check_pattern,
    check_sent,
    filled,
    fits,
    inside,
    is_a,
    is_answer,
    mismatch,
    patterns_of,
    same,
    show,
)

# All revisions, the oldest first. To add one: a line here. No vector names it: one that
# says nothing else holds in the newest revision, too.
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = "2026-07-28"  # the first without a handshake
BATCHES = REVISIONS[:2]  # an array is a batch there; JSON-RPC 2.0 has them
NAMED = REVISIONS[2:]  # over HTTP a header names the revision
META = "io.modelcontextprotocol/"
VERSION = META + "protocolVersion"
CLIENT = {"name": "vectors", "version": "1.0"}
REST = 1.0  # seconds for what comes behind an answer, on the same HTTP response
PAGES = 50  # of a list
NO_METHOD = -32601
MIRRORED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class List(NamedTuple):
    """A list of a server: the kind of its items, its member, the name of an item."""

    kind: str
    member: str
    name: str


LISTS = {
    "tools/list": List("tool", "tools", "name"),
    "prompts/list": List("prompt", "prompts", "name"),
    "resources/list": List("resource", "resources", "uri"),
    "resources/templates/list": List("template", "resourceTemplates", "uriTemplate"),
}
# Methods that no page demands of every server: -32601 says that it does not offer one.
# A server without ping is charged by the vectors about ping, and by no other.
OPTIONAL = {
    "ping",
    *LISTS,
    *MIRRORED,
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
}


def meta_for(version: str, capabilities: Json) -> Json:
    """Make the `_meta` of a request in a modern revision."""
    return {
        VERSION: version,
        META + "clientInfo": CLIENT,
        META + "clientCapabilities": capabilities,
    }


# A request that must be answered, whatever else is wrong with it.
SOUND = {"jsonrpc": "2.0", "method": {"$type": "string"}}
# ... and an answer that says of it that it is not JSON.
UNREAD = {"id": {"$any": [{"$absent": True}, None]}, "error": {"code": -32700}}
# A server that limits the rate of requests (over HTTP with 429) can refuse any.
LIMITED = {"error": {"message": {"$match": "[Rr]ate.?limit|[Tt]oo many requests"}}}
BUSY = "time for it: it limits the rate of requests"


def encode(message: Any) -> bytes:
    """Write a message as UTF-8; only half of a surrogate pair is escaped."""
    try:
        return json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(message).encode()


class Failed(Exception):
    """The server did something else than the vector demands: why, what it said."""


class Silent(TimeoutError):
    """Something did not come in time: what; a function that finds it later; `due` is
    true if it is the answer to a request."""

    def __init__(self, what: str, found: Callable[[], Any], due: bool) -> None:
        super().__init__(what)
        self.found, self.due = found, due


class NotAnswered(Failed):
    """A request has no answer, though the runner waited four times as long: why."""


class Ended(ConnectionError):
    """The server has ended: its last words."""


class NotSetUp(Exception):
    """The connection or the handshake before a vector failed: why."""


class Scene:
    """What a conversation has to know: who speaks what, and how long to wait."""

    revision = MODERN
    carrier = "stdio"
    seconds = 5.0  # for an answer; four times as long until a process has started
    legacy = False

    def __init__(self) -> None:
        self.served: set[str] = set()  # methods with an answer other than -32601

    def connect(self, vector: Json, client: str = "") -> Link:
        """Open a link of a client; shake hands, if the vector does not do it itself."""
        raise NotImplementedError


def is_due(pattern: Json) -> bool:
    """Say whether a pattern is for the answer to a request."""
    return "id" in pattern and not is_a(pattern.get("method"), "string")


class Talk:
    """Play the steps of a vector on one connection, and keep all that is said.

    A step `as` a second client is played by a Talk of its own, which has a connection
    and messages of its own; what is saved, and what is reported, is one for both.
    """

    def __init__(self, scene: Scene, link: Link, vector: Json) -> None:
        self.scene, self.link, self.vector = scene, link, vector
        self.saved: Json = {"revision": scene.revision}
        if link.session:
            self.saved["session"] = link.session
        self.heard: list[tuple[int, Json]] = []  # messages, and their exchanges
        self.taken: set[int] = set()  # places of those that a step waited for
        self.replied: set[int] = set()  # places of requests that we have answered
        self.labels: dict[str, int] = {}  # exchanges by the labels of their requests
        self.loose = 0  # errors without an id that may come
        self.sent = ""  # the last thing that was sent, as text
        self.sound = True  # false: it is no request that must be answered
        self.forbidden = False  # something came that must never come
        self.refused: set[str] = set()  # methods that were answered with -32601
        self.grace = 1  # how many times as long as usual an answer may take
        self.transcript: list[Json] = []
        self.others: dict[str, Talk] = {}  # of other clients, by their names

    # ---- what comes

    def patience(self) -> float:
        """Return how many seconds an answer may take."""
        return self.scene.seconds * (self.grace if self.link.spoke else 4)

    def until(
        self,
        found: Callable[[], Any],
        what: str,
        seconds: float = 0,
        due: bool = False,
    ) -> Any:
        """Take what comes until there is what we wait for."""
        deadline = time.monotonic() + (seconds or self.patience())
        while (value := found()) is None:
            left = deadline - time.monotonic()
            if left < 0 or len(self.heard) > FLOOD:
                why = f"no {what} in time; {self._last_words()}"
                raise Silent(why, found, due)
            if self.link.ended and self.link.inbox.empty():
                raise Ended(self.link.ended)
            with contextlib.suppress(queue.Empty):
                self._take(*self.link.inbox.get(timeout=left))
        return value

    def _last_words(self) -> str:
        """Say what came last: messages, and the heads of HTTP responses."""
        said = f"what came last: {show([message for _, message in self.heard[-3:]])}"
        exchanges = list(self.link.exchanges.values())
        for exchange in exchanges[-1:] if self.scene.carrier != "stdio" else []:
            kind = exchange.get("headers", {}).get("content-type", "no content-type")
            said += f", HTTP status {exchange.get('status', 'missing')}, {kind}"
        return said

    def _take(self, number: int, what: str, data: Any) -> None:
        """Keep what came; fail at once if it must never come."""
        if what == "left":
            self.link.ended = f"the other end has left: {show(data)}"
            raise Ended(self.link.ended)
        if what == "http":
            self.link.exchanges[number].update(data)
            if data.get("status") == 429:
                raise Missing(BUSY)
            return
        self.link.spoke = True
        batch = isinstance(data, list) and self.scene.revision in BATCHES
        for item in data if batch else [data]:
            message = self._classify(item, number)
            if message is None:
                continue
            self.heard.append((number, message))
            self.transcript.append({"received": message})
            self._answer_ping(message, number)
            if fits(LIMITED, message, {}):
                raise Missing(BUSY)
            for pattern in self.vector.get("never", ()):
                if fits(pattern, message, dict(self.saved)):
                    self.forbidden = True
                    raise Failed(f"this must never come: {show(pattern)}", message)

    def _answer_ping(self, message: Json, number: int) -> None:
        """Answer a ping: a legacy server may send one at any time."""
        if message.get("method") == "ping" and "id" in message and self.scene.legacy:
            self.replied.add(id(message))
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            exchange = number and next(self.link.numbers)
            headers = self._headers(reply, {}) if self.scene.carrier != "stdio" else {}
            self.link.send(exchange, json.dumps(reply).encode(), "POST", headers)

    def _classify(self, item: Any, number: int) -> Json | None:
        """Say what a message is; an answer is taken off the list of those that wait.

        None: it answers what we have cancelled ourselves, behind another vector.
        """
        if not isinstance(item, dict):
            return rubbish(item)
        if not is_answer(item):
            return item
        name = json.dumps(item.get("id"))
        unknown = inside(item, "error.code") == NO_METHOD
        methods = self.refused if unknown else self.scene.served
        methods.add(self.link.methods.get(name, ""))
        if name in self.link.dropped:
            self.link.dropped.remove(name)
            return None
        if name in self.link.used and self.link.exchanges[number].get("resumes"):
            self.link.waiting.discard(name)  # a stream that is resumed may repeat it
        elif name in self.link.waiting:
            self.link.waiting.remove(name)
        elif self._is_refusal(item, number):
            pass
        elif name != "null" or "error" not in item:
            return {"unasked": item}
        elif self.link.exchanges[number].get("status", 200) < 400:
            if not self.loose:
                return {"unasked": item}
            self.loose -= 1
        return item

    def _is_refusal(self, item: Json, number: int) -> bool:
        """Say whether an answer refuses, by its id, what its HTTP exchange has sent."""
        refused = number and self.link.exchanges[number].get("status", 200) >= 400
        name = json.dumps(item.get("id"))
        return bool(refused and "error" in item and name in self.link.named[number])

    def pick(self, wanted: Callable[[int, Json], bool]) -> Any:
        """Take the first message that no step has taken and that is wanted."""
        for place, (number, message) in enumerate(self.heard):
            if place not in self.taken and wanted(number, message):
                self.taken.add(place)
                return message
        return None

    def _answer(self, ids: list[Any], number: int) -> Any:
        """Find an answer with one of these ids; fail if its exchange has ended."""

        def wanted(source: int, message: Json) -> bool:
            if number and source == number:  # an answer, even if it lacks the id
                message = message.get("unasked", message)
            known = any(same(message.get("id"), name) for name in ids)
            return source in (number, 0) and known and is_answer(message)

        if answer := self.pick(wanted):
            return answer.get("unasked", answer)
        exchange = self.link.exchanges[number] if number else {}
        refused = exchange.get("status", 500) >= 400
        if "body" in exchange and (self.scene.carrier == "http" or refused):
            wish = "" if None in ids[:1] else f" with the id {show(ids[0])}"
            raise Failed(f"the HTTP response brings no answer{wish}", exchange)
        return None

    # ---- what is sent

    def _headers(self, message: Any, step: Json) -> Json:
        """Make the headers of a message, changed as the step says."""
        found = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if step.get("verb") == "GET":
            found = {"accept": "text/event-stream"}
        knows = self.link.initialized and self.scene.revision in NAMED
        if not self.scene.legacy or knows:
            found["mcp-protocol-version"] = self.scene.revision
        if self.link.session:
            found["mcp-session-id"] = self.link.session
        method = inside(message, "method")
        if not self.scene.legacy and is_a(method, "string"):
            found["mcp-method"] = method
            name = inside(message, "params." + MIRRORED.get(method, "?"))
            if is_a(name, "string"):
                found["mcp-name"] = name
        found.update(filled(step.get("headers", {}), self.saved))
        return {name: value for name, value in found.items() if value is not None}

    def message(self, step: Json) -> Any:
        """Make the message that a step sends."""
        if "send" in step:
            return filled(step["send"], self.saved)
        params = filled(step.get("params"), self.saved)
        meta: Json = {}
        if not self.scene.legacy and "request" in step:
            meta = meta_for(self.scene.revision, self.vector.get("client", {}))
        meta.update(filled(step.get("meta", {}), self.saved))
        meta = {name: value for name, value in meta.items() if value is not None}

        message = {"jsonrpc": "2.0", "method": step.get("request", step.get("notify"))}
        if "request" in step:
            message["id"] = filled(step.get("id", next(self.link.numbers)), self.saved)
            self.saved[step.get("label", "")] = message["id"]
        params = {**(params or {}), "_meta": meta} if meta else params
        return message if params is None else {**message, "params": params}

    def _expecting(self, message: Any, verbatim: bool) -> list[Any]:
        """Note which answers may come to a message; return their ids."""
        batch = isinstance(message, list) and message
        ids = []
        for member in message if batch else [message]:
            member = member if isinstance(member, dict) else {}
            if "method" in member and is_a(member.get("id"), "string|integer"):
                ids.append(member["id"])
                sound = fits(SOUND, member, {}) and is_a(
                    member.get("params", {}), "object"
                )
                method = member["method"] if sound else ""
                self.link.methods[json.dumps(member["id"])] = method
            if verbatim and ("id" in member or "method" not in member):
                self.loose += 1
        self.link.waiting |= {json.dumps(name) for name in ids}
        self.link.used |= self.link.waiting
        return ids

    def send(self, step: Json) -> Any:
        """Send something; if an answer is due or expected, wait for it."""
        message: Any = {}
        body = step.get("text", "").encode() or step.get("bytes", "").encode("latin-1")
        verbatim = not {"request", "notify", "reply"} & set(step)
        if not verbatim or "send" in step:
            message = step.get("reply") or self.message(step)
            body = encode(message)
        ids = self._expecting(message, verbatim and "verb" not in step)
        self.sound = not verbatim or (bool(ids) and fits(SOUND, message, {}))

        number = 0 if self.scene.carrier == "stdio" else next(self.link.numbers)
        self.labels[step.get("label", "")] = number
        headers = self._headers(message, step) if number else {}
        text = body.decode(errors="replace")
        self.sent = f"{step.get('verb', '')} {headers or ''} {text}"
        self.transcript.append(
            {"sent": text, **({"headers": headers} if number else {})}
        )
        if "last-event-id" in headers:
            self.link.exchanges[number]["resumes"] = True
        if number:
            members = message if isinstance(message, list) else [message]
            ids_sent = [
                one["id"] for one in members if is_a(one, "object") and "id" in one
            ]
            self.link.named[number] = {json.dumps(name) for name in ids_sent}
        verb, pieces = step.get("verb", "POST"), step.get("pieces", 1)
        self.link.send(number, body, verb, headers, pieces)

        answer: Any = {}
        if {"request", "expect"} & set(step) and "later" not in step:
            ids += [None] * (verbatim or self.scene.carrier == "http")
            answer = self.until(
                lambda: self._answer(ids, number), "answer", due=self.sound
            )
            if self.sound and fits(UNREAD, answer, {}):
                raise NotAnswered(f"it was not read: {show(answer)}", answer)
            self.judge(step.get("expect", {}), answer)
        if number and "later" not in step:  # the next message must not overtake it
            exchange = self.link.exchanges[number]
            begun = {"status", "body"}  # a body without a status: it was not sent
            self.until(
                lambda: begun & set(exchange) or None, "HTTP response", due=self.sound
            )
        if number and self.scene.carrier == "http":
            self._check_http(step, number)
        return answer

    # ---- what is judged

    def judge(self, pattern: Any, value: Any) -> None:
        """Fail if a value is not what the vector demands."""
        if why := mismatch(pattern, value, self.saved):
            raise Failed(why, value)

    def check_of(self, step: Json) -> None:
        """Look at the HTTP response to an earlier step."""
        if number := self.labels[step["of"]]:
            self._check_http(step, number)

    def _check_http(self, step: Json, number: int) -> None:
        """Wait until an HTTP response is as the step says, or cannot be so any more."""
        if "http" not in step:
            return
        exchange, pattern = self.link.exchanges[number], step["http"]
        status = pattern.get("status", {"$type": "integer"})

        def settled() -> bool | None:
            if fits(pattern, exchange, dict(self.saved)) or "body" in exchange:
                return True
            wrong = "status" in exchange and not fits(status, exchange["status"], {})
            return wrong or None

        try:
            self.until(settled, f"HTTP response with {show(pattern)}")
        except Silent as silence:
            silence.due = self.sound and "status" not in exchange
            # A stream that stays open is wrong only if its end cannot make it right.
            begun = {name: part for name, part in pattern.items() if name != "events"}
            if "status" not in exchange or fits(
                begun, {**exchange, "body": ""}, dict(self.saved)
            ):
                raise
        self.judge(pattern, exchange)

    def _check_refused(self) -> None:
        """Fail if an HTTP response is an error that answers no request."""
        answered = {
            number
            for number, message in self.heard
            if is_answer(message) and message.get("id") is not None
        }
        for number in set(self.labels.values()) - answered:
            exchange = self.link.exchanges[number]
            if "body" in exchange and exchange.get("status", 500) >= 400:
                raise Failed("an HTTP error comes instead", exchange)

    def wait(self, step: Json) -> None:
        """Wait for a message, and reply to it; an answer to the request ends the
        waiting."""
        pattern, source = step["await"], self.labels.get(step.get("from", "?"), 0)
        instead = {"id": pattern["id"]} if "id" in pattern else {}

        def wanted(number: int, message: Json) -> bool:
            if source not in (0, number):
                return False
            either = [pattern, instead] if is_answer(message) else [pattern]
            return fits({"$any": either}, message, dict(self.saved))

        def found() -> Any:
            message = self.pick(wanted)
            if message is None:
                self._check_refused()
            return message

        message = self.until(found, show(pattern, 200), due=is_due(pattern))
        self.judge(pattern, message)
        if "reply" in step:
            self.replied.add(id(message))
            head = {"jsonrpc": "2.0", "id": message.get("id")}
            reply = {**head, **filled(step["reply"], self.saved)}
            self.send({**step, "reply": reply})

    def barrier(self, step: Json) -> Any:
        """Ask something harmless and wait for the answer."""
        before, known = self.sent, set(self.link.methods)
        method = "ping" if self.scene.legacy else "server/discover"
        try:
            return self.send({**step, "request": method})
        finally:  # a report shows what was sent before
            for name in set(self.link.methods) - known:
                self.link.methods[name] = ""
            self.sent = before or self.sent

    def read_pages(self, step: Json) -> None:
        """Read all pages of a list; match the array of all items with `expect`."""
        items: list[Any] = []
        cursors: list[Any] = []
        params: Json = {}
        for _ in range(PAGES):
            answer = self.send({"request": step["pages"], "params": params})
            self.judge({"result": {}}, answer)
            result = answer["result"]
            items += next((one for one in result.values() if is_a(one, "array")), [])
            cursor = result.get("nextCursor")
            if cursor is None:
                return self.judge(step.get("expect", []), items)
            if any(same(cursor, one) for one in cursors):
                raise Failed(f"the cursor {show(cursor)} leads back to itself", answer)
            cursors.append(cursor)
            params = {"cursor": cursor}
        distinct = {json.dumps(item, sort_keys=True) for item in items}
        if len(distinct) < len(items):
            raise Failed("pages do not end, and their items come again", answer)
        raise Missing(f"end within {PAGES} pages")

    def leave(self, step: Json) -> None:
        """Close stdin, and take what still comes; the process must exit within some
        times the limit."""
        outcome = self.link.close(step["exit"] * self.patience())
        with contextlib.suppress(Ended, Silent):
            self.until(lambda: None, "end of the output", REST)
        self.judge("left", outcome)

    def play(self) -> bool:
        """Play all steps; say whether they leave nothing open."""
        try:
            for step in self.vector["steps"]:
                self._play_step(step)
            for talk in [self, *self.others.values()]:
                if "never" in self.vector:
                    talk._read_rest()
                talk._cancel_open_requests()
        finally:
            for talk in self.others.values():
                talk.link.close()
        return self.leaves_nothing()

    def leaves_nothing(self) -> bool:
        """Say whether another vector can go on with this connection."""
        with contextlib.suppress(OSError):
            self._cancel_open_requests()
        return not (self.link.waiting or self.link.ended or self._questions_left())

    def _play_step(self, step: Json) -> None:
        """Play one step; if it fails, find out what that shows."""
        talk = self.client(step["as"]) if "as" in step else self
        try:
            VERBS[next(filter(VERBS.get, step))](talk, step)
        except (Failed, Silent, Ended) as problem:
            ended = isinstance(problem, Ended)
            if ended and "waits" not in step:
                raise
            given = "given" in step and not talk.forbidden
            if given and self._is_excused(step):
                raise Missing(step["given"]) from None
            if isinstance(problem, Silent):
                talk.explain(problem, step)
            if {"waits", "request"} <= set(step):
                talk.refused.clear()  # -32601 is no excuse where its answer is the rule
            if "barrier" not in step and step.get("request") != "ping":
                talk.refused.discard("ping")  # nor where another step has failed
            if ended:
                raise Failed(str(problem)) from None
            raise

    def explain(self, silence: Silent, step: Json) -> None:
        """Find out what a silence shows: the server is slow, it does not answer, or
        the vector says why it may wait."""
        self.grace = 2
        with contextlib.suppress(Failed, Silent):
            self.barrier({})  # a server that does one thing at a time has done it then
        self.grace = 1
        longer = 4 * self.scene.seconds if silence.due else 0.0
        try:
            with contextlib.suppress(Failed):
                self.until(silence.found, "late answer", longer)
            raise Missing("answer in time: it came later")
        except Silent:
            pass
        odd = not silence.due and {"send", "text", "bytes"} & set(step)
        if "waits" in step or odd:  # what is not a request asks for an error
            raise Failed(str(silence))
        if not silence.due:
            raise Missing(str(silence))
        raise NotAnswered(str(silence))

    def _is_excused(self, step: Json) -> bool:
        """Play the excuse of a step that failed; without one it is always excused."""
        sent = self.sent
        try:
            for one in step.get("excuse", []):
                self._play_step(one)
        except (Failed, Silent, Missing, Ended):
            return False
        finally:  # a report shows what was sent before
            self.sent = sent
        return True

    def client(self, name: str) -> Talk:
        """Find the conversation of another client; connect it, if it is new."""
        if name not in self.others:
            talk = Talk(self.scene, self.scene.connect(self.vector, name), self.vector)
            talk.saved, talk.transcript = self.saved, self.transcript
            self.others[name] = talk
        return self.others[name]

    def all_refused(self) -> set[str]:
        """Return the methods that no page demands, and that were unknown."""
        talks = [self, *self.others.values()]
        return set().union(*(talk.refused for talk in talks)) & OPTIONAL

    def all_heard(self) -> list[Json]:
        """Return what all clients of this vector have heard."""
        talks = [self, *self.others.values()]
        return [message for talk in talks for _, message in talk.heard]

    def _read_rest(self) -> None:
        """Take what comes behind an answer, on the same HTTP response."""
        for number in {number for number, one in self.heard if is_answer(one)} - {0}:
            exchange = self.link.exchanges[number]
            with contextlib.suppress(TimeoutError):
                self.until(lambda: "body" in exchange or None, "end", REST)

    def _cancel_open_requests(self) -> None:
        """Cancel what has no answer, so that the next vector is not disturbed."""
        for label, number in list(self.labels.items()):
            name = json.dumps(self.saved.get(label))
            if number == 0 and name in self.link.waiting:
                self.link.waiting.remove(name)
                self.link.dropped.add(name)
                params = {"requestId": self.saved[label]}
                self.send({"notify": "notifications/cancelled", "params": params})

    def _questions_left(self) -> bool:
        """Say whether the server has asked something that nobody answered."""
        return any(
            "id" in message and "method" in message and id(message) not in self.replied
            for _, message in self.heard
        )


# To add a verb: the member of a step that names it, and a function of the talk and the
# step.
VERBS: dict[str, Callable[[Any, Json], Any]] = {
    "request": Talk.send,
    "notify": Talk.send,
    "send": Talk.send,
    "text": Talk.send,
    "bytes": Talk.send,
    "verb": Talk.send,
    "await": Talk.wait,
    "of": Talk.check_of,
    "barrier": Talk.barrier,
    "heard": lambda talk, step: talk.judge(step["heard"], [m for _, m in talk.heard]),
    "hang_up": lambda talk, step: talk.link.hang_up(talk.labels[step["hang_up"]]),
    "exit": Talk.leave,
    "pages": Talk.read_pages,
}
PATTERNS = {"expect", "http", "await", "heard"}
SENT = {"params", "meta", "send", "headers", "reply", "id"}
OTHERS = {"later", "label", "from", "given", "waits", "excuse", "as", "pieces"}


def check_steps(steps: Iterable[Json], name: str) -> None:
    """Raise BadVector unless each step is one that a runner knows."""
    for step in steps:
        unknown = set(step) - set(VERBS) - PATTERNS - SENT - OTHERS
        if unknown or len(set(step) & set(VERBS)) != 1:
            raise BadVector(f"{name}: a step has {sorted(unknown) or 'not one verb'}")
        for pattern in patterns_of([step], PATTERNS):
            check_pattern(pattern)
        for value in patterns_of([step], SENT):
            check_sent(value)
        check_steps(step.get("excuse", []), name)
