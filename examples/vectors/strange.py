#!/usr/bin/env python3
"""Make a server strange, but still conforming: a proxy that uses every freedom.

    strange.py FLAG,FLAG python3 my_server.py                       # on stdio
    strange.py FLAG,FLAG --http 8001 http://127.0.0.1:8000/mcp      # in front of a URL
    strange.py list                                                 # the flags

The specification leaves a server many choices. Each flag makes one that few servers
make: another order of members, an empty list instead of an error, one item on a page,
pings, refusals that a page allows. No vector may call the result broken. Behind your
client, it shows what the client takes for granted. .ci/mutants.py uses the same proxy
for changes that no page allows, which the vectors must find.
"""

from __future__ import annotations

import copy
import http.client
import http.server
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from play import LISTS, META, OPTIONAL, REVISIONS, VERSION, encode

Json = dict[str, Any]
# A modern server that declares tools, prompts or resources must answer its list.
DEMANDED = {"tools/list", "prompts/list", "resources/list"}
MEMBERS = {method: one.member for method, one in LISTS.items()}


def error(code: int, message: str, **data: Any) -> Json:
    """Make the error of a response."""
    return {"code": code, "message": message, **({"data": data} if data else {})}


def answer(request: Json, **content: Any) -> Json:
    """Make a response to a request."""
    return {"jsonrpc": "2.0", "id": request.get("id"), **content}


def params_of(message: Json) -> Json:
    """Return the params of a message, or an empty object if they are none."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


class Change:
    """What a proxy does differently; subclasses override what they change."""

    def __init__(self) -> None:
        self.http = False  # over HTTP, or on stdio
        self.revision = ""  # of the session on stdio, once there is one

    def text(self, line: bytes) -> bytes | None:
        """Change what a client sends, as bytes; None drops it."""
        return line

    def request(self, message: Json, headers: Json) -> Json | None:
        """Change what a client sends; None drops it.

        A message with `result` or `error` and the id of the request is the answer: it
        does not reach the server. Over HTTP its status is `_status`, if it has one.
        {} stands for GET and DELETE, and for a body that is not one message; what is
        returned for it does not matter.
        """
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        """Change what the server sends; {} stands for no known request."""
        return [message]

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        """Change status and headers of an HTTP response."""
        return status, headers

    def body(self, text: bytes, stream: bool) -> bytes:
        """Change a line, a body or an event as it goes out."""
        return text

    def verb(self, verb: str) -> int:
        """Refuse GET or DELETE with a status, or 0."""
        return 0

    def method(self, verb: str, request: Json) -> str:
        """Change the method of an HTTP request."""
        return verb

    def begin(self, exchange: Handler) -> None:
        """See a stream that begins."""

    def event(self, lines: list[bytes], exchange: Handler) -> list[bytes]:
        """Change an event of a stream, before its message is read."""
        return lines

    def finish(self, exchange: Handler) -> None:
        """See a stream whose last event has been sent."""

    def lines(self, source: Iterable[bytes]) -> Iterable[bytes]:
        """Change how lines are read, on stdio."""
        return source

    def leave(self, child: subprocess.Popen[bytes]) -> None:
        """End the server, once the client has closed our stdin."""
        assert child.stdin
        child.stdin.close()

    def end(self) -> None:
        """Do something before the process exits."""


# ---- the freedoms


class Reorder(Change):
    """members of objects come in reverse order"""

    def message(self, message: Json, request: Json) -> list[Any]:
        def turn(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: turn(value[name]) for name in reversed(value)}
            return [turn(item) for item in value] if isinstance(value, list) else value

        return [turn(message)]


class ListOrder(Change):
    """prompts and resources are listed in another order each time"""

    count = 0

    def message(self, message: Json, request: Json) -> list[Any]:
        name = MEMBERS.get(request.get("method", ""), "tools")
        items = message.get("result", {}).get(name)
        if name != "tools" and isinstance(items, list):
            self.count += 1
            message["result"][name] = items[:: -1 if self.count % 2 else 1]
        return [message]


class RefuseVersion(Change):
    """initialize with an unknown version is the error of §Error Handling"""

    def request(self, message: Json, headers: Json) -> Json | None:
        version = params_of(message).get("protocolVersion")
        if message.get("method") != "initialize" or version in REVISIONS:
            return message
        if not isinstance(version, str):
            return message
        data = {"supported": REVISIONS[:4], "requested": version}
        return answer(message, error=error(-32602, "Unsupported version", **data))


class Bare(Change):
    """no features at all: their methods are unknown"""

    empty = False

    def request(self, message: Json, headers: Json) -> Json | None:
        method = message.get("method")
        kind = method.partition("/")[0] if isinstance(method, str) else ""
        if kind not in {"tools", "prompts", "resources", "completion", "logging"}:
            return message
        if "id" not in message or message["id"] is None:
            return message
        if self.empty and method in LISTS:
            content: Json = {MEMBERS[str(method)]: []}
            if VERSION in str(message.get("params")):
                content.update(resultType="complete", ttlMs=0, cacheScope="private")
            return answer(message, result=content)
        reply = answer(message, error=error(-32601, "Method not found"))
        return {**reply, "_status": 404} if VERSION in str(message) else reply

    def message(self, message: Json, request: Json) -> list[Any]:
        if "capabilities" in message.get("result", {}):
            message["result"]["capabilities"] = {}
        return [message]


class BareEmpty(Bare):
    """no features at all: lists of them are empty"""

    empty = True


class Pages(Change):
    """lists come with one item on a page, and cursors are odd strings"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") in LISTS and self.place(message):
            return {**message, "params": {**message["params"], "cursor": None}}
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        name = MEMBERS.get(request.get("method", ""), "")
        result = message.get("result", {})
        if not isinstance(result.get(name), list) or "nextCursor" in result:
            return [message]
        place, items = self.place(request), result[name]
        result[name] = items[place : place + 1]
        if place + 1 < len(items):
            result["nextCursor"] = f"Ünïque cursor {place + 1}"
        return [message]

    def place(self, request: Json) -> int:
        """Find the place in the list that the cursor of a request names."""
        cursor = params_of(request).get("cursor")
        name, _, place = str(cursor).rpartition(" ")
        return int(place) if name == "Ünïque cursor" and place.isdigit() else 0


class Extra(Change):
    """results have members and _meta that nobody knows"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result")
        if isinstance(result, dict) and request.get("method") != "ping":
            result["com.example"] = {"a": [1]}
            result.setdefault("_meta", {})["com.example/strange-1"] = None
        return [message]


class NoServerInfo(Change):
    """results do not say which server they are from (SHOULD)"""

    def message(self, message: Json, request: Json) -> list[Any]:
        meta = (message.get("result") or {}).get("_meta")
        if isinstance(meta, dict):
            meta.pop("io.modelcontextprotocol/serverInfo", None)
        return [message]


class OldCodes(Change):
    """internal errors have a code of the legacy range (SHOULD)"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("error", {}).get("code") == -32603:
            message["error"]["code"] = -32011
        return [message]


class Private(Change):
    """results may not be shared, and are stale at once"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result")
        if isinstance(result, dict) and "cacheScope" in result:
            result.update(cacheScope="private", ttlMs=0)
        return [message]


class MoreVersions(Change):
    """the server supports versions that nobody knows"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result, data = message.get("result", {}), message.get("error", {}).get("data")
        for found in (result.get("supportedVersions"), (data or {}).get("supported")):
            if isinstance(found, list):
                found.insert(0, "2099-01-01")
        return [message]


class NoParseErrors(Change):
    """what is no message is not answered on stdio"""

    def message(self, message: Json, request: Json) -> list[Any]:
        lost = "error" in message and message.get("id") is None
        return [] if lost and not self.http else [message]


class NoNullIds(Change):
    """an error for what has no readable id has no id"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "error" in message and message.get("id") is None:
            message.pop("id", None)
        return [message]


class EitherEra(Change):
    """on stdio a request without _meta is served as of an older revision"""

    def request(self, message: Json, headers: Json) -> Json | None:
        method = message.get("method")
        if self.http or "id" not in message or self.revision or method == "initialize":
            return message
        if message["id"] is None or not isinstance(message["id"], (str, int)):
            return message
        params = message.get("params")
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return message
        if params is not None and not isinstance(params, dict):
            return message
        if VERSION in ((params or {}).get("_meta") or {}):
            return message
        return answer(message, result={"old": True})


class OneEra(Change):
    """on stdio the first request decides for which era the process serves"""

    def __init__(self) -> None:
        super().__init__()
        self.era = ""  # `modern` or `legacy`, once there was a request of one

    def request(self, message: Json, headers: Json) -> Json | None:
        meta = params_of(message).get("_meta")
        if self.http or "id" not in message:
            return message
        if message.get("method") == "initialize":
            self.era = self.era or "legacy"
            if self.era == "modern":
                refused = error(-32022, "Modern only", supported=REVISIONS[-1:])
                return answer(message, error=refused)
        elif isinstance(meta, dict) and VERSION in meta:
            self.era = self.era or "modern"
            if self.era == "legacy":
                for name in [one for one in meta if one.startswith(META)]:
                    del meta[name]
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result")
        if self.era == "modern" and isinstance(result, dict):
            if "supportedVersions" in result:
                result["supportedVersions"] = REVISIONS[-1:]
        return [message]


class Unread(Change):
    """on stdio a request that is too long, or not Unicode, is refused without its id"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if self.http or "id" not in message or "method" not in message:
            return message
        text = json.dumps(message, ensure_ascii=False)
        if len(text) < 90_000 and text.encode(errors="replace").decode() == text:
            return message
        refused = error(-32700, "This cannot be read")
        return {"jsonrpc": "2.0", "id": None, "error": refused}


class HeaderFirst(Change):
    """over HTTP a request without the version in _meta does not match its header"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if self.http and message.get("error", {}).get("code") == -32602:
            meta = params_of(request).get("_meta") or {}
            if VERSION not in meta and "jsonrpc" in request:
                if request.get("method") in ("server/discover", "tools/list"):
                    message["error"]["code"] = -32020
        return [message]


class RefuseBatches(Change):
    """over HTTP a batch of notifications is refused with 400"""

    def text(self, line: bytes) -> bytes | None:
        if self.http and line.startswith(b"["):
            members = json.loads(line)
            if all(isinstance(one, dict) and "id" not in one for one in members):
                return b""
        return line


class RefuseNotifications(Change):
    """over HTTP notifications that mean nothing to the server are refused with 400"""

    def request(self, message: Json, headers: Json) -> Json | None:
        unknown = message.get("method") == "notifications/no_such_thing"
        unknown |= params_of(message).get("requestId") == "none"
        if self.http and unknown:
            refused = error(-32600, "Unknown notification")
            return {"jsonrpc": "2.0", "error": refused, "_status": 400}
        return message


class RefuseHard(RefuseNotifications):
    """over HTTP a refusal whose status no page names is 500, not 400"""

    def request(self, message: Json, headers: Json) -> Json | None:
        older = headers.get("mcp-protocol-version", "") < REVISIONS[3]
        if self.http and older and "evil" in headers.get("origin", ""):
            refused = error(-32600, "Foreign Origin")
            return {"jsonrpc": "2.0", "error": refused, "_status": 500}
        changed = super().request(message, headers)
        if changed is not message and changed:
            changed["_status"] = 500
        return changed


class IgnoreCancel(Change):
    """calls cannot be cancelled"""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[str] = set()

    def request(self, message: Json, headers: Json) -> Json | None:
        name = json.dumps(message.get("id"))
        if message.get("method") == "tools/call":
            self.calls.add(name)
        if message.get("method") == "notifications/cancelled":
            target = params_of(message).get("requestId")
            if json.dumps(target) in self.calls:
                params = {"requestId": "nobody"}
                return {**message, "params": params}
        return message


class NoProgress(Change):
    """no progress is reported"""

    def message(self, message: Json, request: Json) -> list[Any]:
        return [] if message.get("method") == "notifications/progress" else [message]


class FloatProgress(Change):
    """progress is a fraction, with no total"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("method") == "notifications/progress":
            params = message["params"]
            params["progress"] = params["progress"] / 1000 - 0.5
            params.pop("total", None)
        return [message]


class Newlines(Change):
    """prompts make one kind of newline of all"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for one in (message.get("result") or {}).get("messages", []):
            if "text" in one["content"]:
                one["content"]["text"] = one["content"]["text"].replace("\r\n", "\n")
        return [message]


class Batches(Change):
    """on stdio in 2024-11-05 and 2025-03-26 answers come as batches of one"""

    def message(self, message: Json, request: Json) -> list[Any]:
        opening = request.get("method") == "initialize"
        batches = self.revision in REVISIONS[:2] and not self.http
        if batches and "id" in message and not opening:
            return [[message]]
        return [message]


class Pings(Change):
    """a legacy server pings its client now and then"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if not self.http and self.revision and "result" in message:
            question = {
                "jsonrpc": "2.0",
                "id": f"p{time.monotonic()}",
                "method": "ping",
            }
            return [question, message]
        return [message]

    def request(self, message: Json, headers: Json) -> Json | None:
        ping = str(message.get("id", "")).startswith("p") and "result" in message
        return None if ping else message


class Escapes(Change):
    """JSON is written with escapes and spaces; over HTTP on several lines"""

    def body(self, text: bytes, stream: bool) -> bytes:
        try:
            value = json.loads(text)
        except ValueError:
            return text
        indent = 3 if self.http and not stream else None
        return json.dumps(value, indent=indent, separators=(" ,", " : ")).encode()


class Events(Change):
    """each answer over HTTP is an event stream with comments, ids and retry"""

    always = True

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        plain = headers.get("content-type") == "application/json"
        if plain and status == 200 and "id" in request:
            headers = {**headers, "content-type": "text/event-stream; charset=utf-8"}
            headers["x-accel-buffering"] = "no"
        return status, headers


class Late(Change):
    """answers take a moment, and come in another order than the requests"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "id" in message:
            time.sleep(0.02)
        return [message]


class SlowExit(Change):
    """the process takes a second and a half to exit"""

    def end(self) -> None:
        time.sleep(1.5)


class Noise(Change):
    """on stdio the server writes to stderr"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if not self.http:
            print("error: nothing has happened \N{GRINNING FACE}", file=sys.stderr)
        return [message]


class NoStreams(Change):
    """GET is 405: the server does not offer a stream (its questions need none), and
    nobody can subscribe to a resource in a session"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if self.http and request.get("method") == "initialize":
            capabilities = message.get("result", {}).get("capabilities", {})
            capabilities.get("resources", {}).pop("subscribe", None)
        return [message]

    def verb(self, verb: str) -> int:
        return 405 if verb == "GET" else 0


class NoDelete(Change):
    """DELETE is 405: clients cannot end sessions"""

    def verb(self, verb: str) -> int:
        return 405 if verb == "DELETE" else 0


class NoSessions(Change):
    """over HTTP there are no session ids: all clients of a revision have one state"""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, str] = {}  # the server's, by revision

    def request(self, message: Json, headers: Json) -> Json | None:
        if "session_id=" in headers.get(":path", ""):
            return message  # HTTP+SSE has its sessions in its URLs
        headers.pop("mcp-session-id", None)
        modern = VERSION in str(message.get("params"))
        if message.get("method") != "initialize" and not modern:
            version = headers.get("mcp-protocol-version", "2025-03-26")
            if version in self.sessions:
                headers["mcp-session-id"] = self.sessions[version]
        return message

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        headers = dict(headers)
        if name := headers.pop("mcp-session-id", ""):
            params = params_of(request)
            self.sessions.setdefault(str(params.get("protocolVersion")), name)
        return status, headers

    def verb(self, verb: str) -> int:
        return 405 if verb == "DELETE" else 0


class ProgressElsewhere(Change):
    """in a session over HTTP, progress comes on the stream of a GET (SHOULD)"""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, Handler] = {}  # of GET, by session

    def begin(self, exchange: Handler) -> None:
        session = exchange.headers.get("mcp-session-id", "")
        if exchange.command == "GET" and session:
            self.streams[session] = exchange
        # A stream that begins later would make the order of what comes uncertain.
        exchange.other = self.streams.get(session)

    def event(self, lines: list[bytes], exchange: Handler) -> list[bytes]:
        moves = any(b"notifications/progress" in line for line in lines)
        if not (moves and exchange.other and exchange.command == "POST"):
            return lines
        # An event's id belongs to its stream.
        plain = [line for line in lines if not line.startswith(b"id:")]
        try:
            exchange.other.write(plain)
        except (OSError, ValueError):  # that client has gone
            return lines
        return []


class AsksNothing(Change):
    """tools that could ask the client do without, or end with isError"""

    failed = False

    def request(self, message: Json, headers: Json) -> Json | None:
        params = message.get("params")
        name = str(params.get("name")) if isinstance(params, dict) else ""
        asks = "input_required" in name or "elicitation" in name or "sampling" in name
        arguments = params.get("arguments") if isinstance(params, dict) else None
        sound = isinstance(arguments, dict) and all(
            isinstance(one, str) for one in arguments.values()
        )
        needs = "prompt" not in arguments if isinstance(arguments, dict) else True
        if message.get("method") != "tools/call" or "id" not in message or not asks:
            if name != "test_missing_capability":
                return message
        if not sound or (name == "test_sampling" and needs):
            return message
        result: Json = {"content": [{"type": "text", "text": "done without you"}]}
        if self.failed:
            result["isError"] = True
        if VERSION in str(params):
            result["resultType"] = "complete"
        return answer(message, result=result)


class CannotAsk(AsksNothing):
    """tools that would ask the client end with isError"""

    failed = True


class IdleTriggers(Change):
    """nothing changes, whatever the tools are for; one says so"""

    def request(self, message: Json, headers: Json) -> Json | None:
        params = params_of(message)
        called = message.get("method") == "tools/call" and "id" in message
        if not called or params.get("name") != "test_trigger_resource_update":
            return message
        content = [{"type": "text", "text": "Nothing changes here"}]
        result: Json = {"content": content, "isError": True}
        if VERSION in str(params):
            result["resultType"] = "complete"
        return answer(message, result=result)

    def message(self, message: Json, request: Json) -> list[Any]:
        changes = str(message.get("method")).endswith(("/list_changed", "/updated"))
        return [] if changes else [message]


class AnyHost(Change):
    """over HTTP any name in Host is served, but no foreign Origin"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "evil" in headers.get("host", ""):
            headers["host"] = "localhost"
        return message


class AnyOrigin(Change):
    """a public server serves pages of any origin"""

    def request(self, message: Json, headers: Json) -> Json | None:
        headers.pop("origin", None)
        return message


class Without(Change):
    """a method is unknown, though its capability is declared"""

    lacks = ""

    def request(self, message: Json, headers: Json) -> Json | None:
        asked = is_request(message) and message["method"] == self.lacks
        modern = VERSION in str(message)
        if not asked or not isinstance(message.get("params", {}), dict):
            return message
        if modern and self.lacks in DEMANDED:
            return message
        reply = answer(message, error=error(-32601, "Method not found"))
        return {**reply, "_status": 404} if modern else reply


class Plain(Change):
    """what is optional is left out: titles, descriptions, totals, data of errors"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result") or {}
        for items in [result.get(name, []) for name in MEMBERS.values()]:
            for item in items:
                for name in (
                    "title",
                    "description",
                    "annotations",
                    "mimeType",
                    "icons",
                ):
                    item.pop(name, None)
        for name in ("instructions", "description"):
            result.pop(name, None)
        for name in ("total", "hasMore"):
            result.get("completion", {}).pop(name, None)
        if str(message.get("method")).startswith("notifications/"):
            for name in ("total", "message", "logger"):
                params_of(message).pop(name, None)
        failure = message.get("error", {})
        if failure.get("code") not in (-32021, -32022):
            failure.pop("data", None)
        return [message]


class NoChanges(Change):
    """nothing that changes is announced, and nobody can subscribe"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for one in (message.get("result") or {}).get("capabilities", {}).values():
            for name in ("listChanged", "subscribe"):
                one.pop(name, None)
        changes = str(message.get("method")).endswith(("/list_changed", "/updated"))
        return [] if changes else [message]


class OpenStreams(Events):
    """the stream of a POST stays open behind its answer (SHOULD)"""

    def finish(self, exchange: Handler) -> None:
        if exchange.command == "POST":
            exchange.connection.settimeout(60)
            try:
                exchange.connection.recv(1)
            except OSError:
                pass


class SlowBySeconds(Change):
    """each answer takes seconds: as many as STRANGE_SECONDS says"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request:
            time.sleep(float(os.environ.get("STRANGE_SECONDS", "3")))
        return [message]


class SlowCalls(SlowBySeconds):
    """each call of a tool takes seconds: as many as STRANGE_SECONDS says"""

    def message(self, message: Json, request: Json) -> list[Any]:
        return super().message(message, request if is_call(request) else {})


class Limits(Change):
    """every seventh request is too much: over HTTP 429, and an error that says so"""

    count = 0

    def request(self, message: Json, headers: Json) -> Json | None:
        opening = message.get("method") in (None, "initialize", "server/discover")
        self.count += "id" in message and not opening
        if self.count % 7 or "id" not in message or opening:
            return message
        too_many = error(-42900, "rate limit exceeded")
        return answer(message, error=too_many, _status=429)


class Serial(Change):
    """a request waits until the one before it is answered, unless it is a ping"""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.busy = ""  # the id of the request that is served
        self.backlog: list[bytes] = []
        self.ended = False

    def waits(self, line: bytes) -> bool:
        """Say whether a line must wait: only responses and pings pass a request."""
        try:
            message = json.loads(line)
        except ValueError:
            return bool(self.busy)
        free = {"ping", "subscriptions/listen"}
        passes = isinstance(message, dict) and message.get("method", "ping") in free
        return bool(self.busy) and not passes

    def take(self) -> bytes | None:
        """Take the first line that need not wait; None: there is none yet."""
        for line in self.backlog:
            if not self.waits(line):
                self.backlog.remove(line)
                return line
        return b"" if self.ended and not self.backlog else None

    def read(self, source: Iterable[bytes]) -> None:
        for line in source:
            with self.changed:
                self.backlog.append(line)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def lines(self, source: Iterable[bytes]) -> Iterable[bytes]:
        threading.Thread(target=self.read, args=[source], daemon=True).start()
        while True:
            with self.changed:
                line = self.changed.wait_for(self.take, 3)
            if not line:
                return
            yield line

    def request(self, message: Json, headers: Json) -> Json | None:
        free = ("ping", "subscriptions/listen", "initialize")
        if is_request(message) and message["method"] not in free:
            with self.changed:
                if self.http:
                    self.changed.wait_for(lambda: not self.busy, 3)
                self.busy = json.dumps(message["id"])
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        with self.changed:
            if "method" not in message and json.dumps(message.get("id")) == self.busy:
                self.busy = ""
                self.changed.notify_all()
        return [message]


def is_request(message: Json) -> bool:
    """Say whether a message is a request that must be answered."""
    name = message.get("id")
    sound = isinstance(name, (str, int)) and not isinstance(name, bool)
    method = isinstance(message.get("method"), str)
    return sound and method and message.get("jsonrpc") == "2.0"


def is_call(message: Json) -> bool:
    """Say whether a message is a call of a tool."""
    return is_request(message) and message["method"] == "tools/call"


def flag_of(name: str) -> str:
    """Name the flag of a class: `AnyHost` is any-host."""
    return re.sub("(?<!^)([A-Z])", r"-\1", name).lower()


# Every class of a freedom is a flag, and so is the lack of each method but ping, which
# every server must answer.
FLAGS: dict[str, type[Change]] = {
    flag_of(name): kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Change)
    if kind not in (Change, Without)
}
for one in sorted(OPTIONAL - {"ping"}):
    short = "templates" if "templates" in one else one.replace("/", "-").lower()
    FLAGS[f"no-{short}"] = type(
        "Without", (Without,), {"lacks": one, "__doc__": f"{one} is unknown"}
    )


# ---- the proxy


class Proxy:
    """A row of changes, applied one after the other."""

    def __init__(self, changes: list[Change]) -> None:
        self.changes = changes
        self.asked: dict[str, Json] = {}  # requests without an answer, by their ids
        self.lock = threading.Lock()

    def up(self, line: bytes, headers: Json) -> tuple[bytes | None, Json]:
        """Change what a client sends; return it, and its message or the answer."""
        for change in self.changes:
            if not line:
                break
            changed = change.text(line)
            if changed is None:
                return None, {}
            line = changed
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return line, {}
        if not isinstance(message, dict):
            for one in message if isinstance(message, list) else []:
                if isinstance(one, dict):
                    self.asked[json.dumps(one.get("id"))] = one
            return line, {}
        original = copy.deepcopy(message)
        if "method" in message and "id" in message:
            self.asked[json.dumps(message["id"])] = original
        for change in self.changes:
            changed_message = change.request(message, headers)
            if changed_message is None:
                return None, original
            if changed_message is not message and "method" not in changed_message:
                return b"", changed_message
            message = changed_message
        if message == original:
            return line, original
        return encode(message), original

    def down(self, message: Any, asked: Json | None = None) -> list[bytes]:
        """Change what the server sends; `asked` is the request of its HTTP exchange."""
        if not isinstance(message, dict):
            return [encode(message)]
        request: Json = {}
        if "method" not in message:
            request = self.asked.get(json.dumps(message.get("id")), {})
            # Requests of several sessions may have the same id.
            if asked and asked.get("id") == message.get("id"):
                request = asked
        if request.get("method") == "initialize":
            version = message.get("result", {}).get("protocolVersion", "")
            for change in self.changes:
                change.revision = version
        found: list[Any] = [message]
        for change in self.changes:
            passed = []
            for one in found:
                passed += (
                    change.message(one, request) if isinstance(one, dict) else [one]
                )
            found = passed
        return [encode(one) for one in found]

    def out(self, text: bytes, stream: bool) -> bytes:
        """Change a text as it goes out."""
        for change in self.changes:
            text = change.body(text, stream)
        return text


def serve_stdio(changes: list[Change], command: list[str]) -> None:
    """Stand between our stdin and stdout and those of a server."""
    proxy = Proxy(changes)
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)
    assert child.stdin and child.stdout
    source = child.stdout

    def write(texts: list[bytes]) -> None:
        with proxy.lock:
            for text in texts:
                sys.stdout.buffer.write(proxy.out(text, False).rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()

    def pump() -> None:
        buffered = os.fdopen(os.dup(source.fileno()), "rb")
        for line in buffered:
            write(proxy.down(json.loads(line)))

    reader = threading.Thread(target=pump, daemon=True)
    reader.start()
    lines: Iterable[bytes] = sys.stdin.buffer
    for change in changes:
        lines = change.lines(lines)
    for line in lines:
        sent, message = proxy.up(line.rstrip(b"\n"), {})
        if sent:
            child.stdin.write(sent + b"\n")
        elif sent == b"" and message:
            message.pop("_status", None)
            write(proxy.down(message))
    for change in changes:
        change.leave(child)
    child.wait()
    reader.join(1)
    for change in changes:
        change.end()


class Handler(http.server.BaseHTTPRequestHandler):
    """One HTTP exchange, passed on."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for an ACK
    url = urllib.parse.urlsplit("")
    proxy = Proxy([])
    asked: Json = {}  # the request of this exchange
    other: Handler | None = None  # the stream that takes some of its messages
    # The streams of HTTP+SSE, by the path of their POSTs, whose answers they take.
    streams: dict[str, Handler] = {}

    def setup(self) -> None:
        super().setup()
        self.writing = threading.Lock()  # others may write to this stream, too

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.pass_on(b"", {})

    def do_DELETE(self) -> None:
        self.pass_on(b"", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = self.head()
        sent, message = self.proxy.up(body, headers)
        if not sent:
            status = message.pop("_status", 200 if message else 400)
            texts = self.proxy.down(message) if message else [b""]
            stream = self.streams.get(self.path)
            if stream and status == 200:  # a refusal stays one
                data = b"data: " + self.proxy.out(texts[0], True)
                stream.write([b"event: message\r\n", data, b"\r\n\r\n"])
                status, texts = 202, [b""]
            self.reply(status, {"content-type": "application/json"}, texts[0])
            return
        self.pass_on(sent, message, headers)

    def head(self) -> Json:
        """Return the request's headers, and its path under the name of HTTP/2."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        return {**headers, ":path": self.path}

    def reply(self, status: int, headers: Json, body: bytes) -> None:
        """Send a whole response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pass_on(self, body: bytes, request: Json, headers: Json | None = None) -> None:
        """Pass a request on, and its response back."""
        for change in self.proxy.changes:
            if self.command != "POST" and (refused := change.verb(self.command)):
                page = {"content-type": "application/json"}
                return self.reply(refused, page, b'{"detail": "Method Not Allowed"}')
        if headers is None:
            headers = self.head()
        if not request:
            for change in self.proxy.changes:
                change.request({}, headers)
        ours = self.connection.getsockname()[1]
        if headers.get("host", "").endswith(f":{ours}"):
            headers = {**headers, "host": self.url.netloc}
        headers.pop("content-length", None)
        headers.pop(":path", None)
        # Paths beside that of the endpoint (HTTP+SSE) stay as they are.
        target = self.path if body or self.command == "GET" else self.url.path
        upstream = http.client.HTTPConnection(self.url.netloc, timeout=60)
        verb = self.command
        for change in self.proxy.changes:
            verb = change.method(verb, request)
        upstream.request(verb, target, body or None, headers)
        response = upstream.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        for name in ("content-length", "transfer-encoding", "connection"):
            found.pop(name, None)
        status = response.status
        before = found.get("content-type", "")
        self.asked = request
        for change in self.proxy.changes:
            status, found = change.response(status, found, request)
        if before.startswith("text/event-stream"):
            self.stream(status, found, response, upstream)
        elif found.get("content-type", "").startswith("text/event-stream"):
            self.wrap(status, found, response.read())
        else:
            self.whole(status, found, response.read())

    def whole(self, status: int, headers: Json, text: bytes) -> None:
        """Pass a response back that is not a stream."""
        try:
            texts = self.proxy.down(json.loads(text), self.asked)
        except ValueError:
            texts = [text]
        self.reply(status, headers, self.proxy.out(texts[-1] if texts else b"", False))

    def begin(self, status: int, headers: Json) -> None:
        """Begin a stream; it ends with the connection."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for change in self.proxy.changes:
            change.begin(self)

    def write(self, lines: list[bytes]) -> None:
        """Write an event to a stream."""
        with self.writing:
            self.wfile.write(b"".join(lines))

    def wrap(self, status: int, headers: Json, text: bytes) -> None:
        """Make a stream of a response that is none."""
        self.begin(status, headers)
        lines = b": a comment\r\nretry: 50\r\n\r\n"
        for one in self.proxy.down(json.loads(text), self.asked):
            one = self.proxy.out(one, True)
            # Data of several lines is joined by newlines; within a string none may be.
            half = one.find(b'", "') + 2 if b'", "' in one else 0
            lines += b"event: message\r\ndata:" + one[:half] + b"\r\n" if half else b""
            lines += b"data: " + one[half:] + b"\r\n\r\n"
        self.wfile.write(lines)
        for change in self.proxy.changes:
            change.finish(self)

    def stream(
        self,
        status: int,
        headers: Json,
        response: http.client.HTTPResponse,
        upstream: http.client.HTTPConnection,
    ) -> None:
        """Pass a stream back, event by event."""
        self.begin(status, headers)
        try:
            event: list[bytes] = []
            while line := response.readline():
                event.append(line)
                if line.strip():
                    continue
                self.note_endpoint(event)
                self.write(self.change_event(event))
                event = []
            for change in self.proxy.changes:
                change.finish(self)
        except OSError:
            pass
        finally:
            upstream.close()
            for path in [one for one in self.streams if self.streams[one] is self]:
                del self.streams[path]

    def note_endpoint(self, event: list[bytes]) -> None:
        """Keep this stream, if it says where the POSTs of HTTP+SSE go."""
        texts = [line.decode().strip() for line in event]
        paths = [text[5:].strip() for text in texts if text.startswith("data:")]
        if "event: endpoint" in texts and paths:
            self.streams[urllib.parse.urljoin(self.path, paths[0])] = self

    def change_event(self, event: list[bytes]) -> list[bytes]:
        """Change the message of an event, if it has one."""
        for change in self.proxy.changes:
            event = change.event(event, self)
        data = [line for line in event if line.startswith(b"data:")]
        text = b"\n".join(line[5:].strip() for line in data)
        try:
            messages = self.proxy.down(json.loads(text), self.asked)
        except ValueError:
            return event
        rest = [line for line in event if not line.startswith(b"data:")][:-1]
        parts = []
        for one in messages:
            parts += [*rest, b"data: " + self.proxy.out(one, True) + b"\r\n", b"\r\n"]
        return parts


class HttpServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 64
    failed = False  # a change has raised

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the client has only left."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            self.failed = True
            super().handle_error(request, client_address)


def listen(changes: list[Change], port: int, url: str) -> HttpServer:
    """Make a server that stands in front of a URL."""
    for change in changes:
        change.http = True
    parts = {"url": urllib.parse.urlsplit(url), "proxy": Proxy(changes), "streams": {}}
    handler: Callable[..., Any] = type("Handler", (Handler,), parts)
    return HttpServer(("127.0.0.1", port), handler)


def main() -> None:
    """Read the command line and serve."""
    flags, *command = sys.argv[1:] or ["list"]
    if flags == "list" or not command:
        for name, change in FLAGS.items():
            print(f"{name:28}{change.__doc__}")
        return
    changes = [FLAGS[name]() for name in flags.split(",") if name]
    if command[0] == "--http":
        server = listen(changes, int(command[1]), command[2])
        print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
        server.serve_forever()
    else:
        serve_stdio(changes, command)


if __name__ == "__main__":
    main()
