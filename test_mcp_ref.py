"""Tests of mcp_ref.py, as conversations: `>` is what the client sends, `<` what comes back.

A line of a conversation is short for a message:

    > 1 tools/call {"name": "echo"}         a request with the id 1 (an id is JSON: 1, "a", 0)
    > - notifications/initialized           a notification
    > #1 {"action": "accept"}               the result for the server's request 1
    > {"jsonrpc": ...   or   > anything     the bytes as they stand
    < 1 {"content": [...]}                  a result that has these members (lists: all items)
    < 1 error -32602 some words             an error with this code, its message has these words
    < ? error -32700                        the same without an id; `< null error`: with id null
    < #1 elicitation/create {...}           a request of the server
    < - notifications/progress {...}        a notification
    open 2025-11-25 {"sampling": {}}        the legacy handshake, with these client capabilities
    modern {"sampling": {}}                 from here on requests carry a modern `_meta`
    # why

Every conversation is held twice: in memory and over a real pipe. Between both sides stands `Wire`,
which asserts what must hold of every message. With MCP_SPEC=checkout of the specification in the
environment it also validates each message against the official schema of its revision.
"""
from __future__ import annotations

import ast
import base64
import contextlib
import functools
import hashlib
import hmac
import http.client
import importlib.util
import json
import os
import queue
import random
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, Optional, Set, Tuple, TypedDict, Union

import pytest

import mcp_ref
from mcp_ref import (
    FEATURES, METHODS, NOTIFICATIONS, REVISIONS, AskError, ClientLacks, Context, NotFound, Peer,
    RpcError, Schema, Server, elicitation, roots, rules, sampling, schema_of, versions,
)

HERE = Path(__file__).resolve().parent
LEGACY, MODERN = versions("legacy"), versions("modern")
PATIENCE = float(os.environ.get("MCP_PATIENCE", "20"))    # seconds until a test that would hang fails instead

PNG = b"\x89PNG fake"


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Node:
    name: str
    children: List["Node"] = field(default_factory=list)


class Weather(TypedDict):
    degrees: float
    sky: str


# ------------------------------------------------------------------------------------------
# The server that most conversations are held with
# ------------------------------------------------------------------------------------------

def make_server(**options: Any) -> Server:
    """Make a server with one of everything. `server.doors` are events by name, for `hold`."""
    server = Server("test", "1.2", "Use it gently.", title="Test", websiteUrl="https://example.org",
                    **options)
    doors: Dict[str, threading.Event] = {}

    def door(name: str) -> threading.Event:
        return doors.setdefault(name, threading.Event())
    server.door = door      # type: ignore[attr-defined]
    add_tools(server, door)
    add_asking_tools(server)
    add_resources(server)
    add_prompts(server)

    @server.method("example.org/verb", extension="example.org/ext", settings={"level": 3})
    def verb(params: Dict[str, Any], ctx: Context) -> Dict[str, Any]:
        return {"got": params.get("x"), "version": ctx.version}
    return server


def add_tools(server: Server, door: Any) -> None:
    @server.tool(title="Echo!", annotations={"readOnlyHint": True, "title": "E"}, _meta={"k": 1},
                 icons=[{"src": "https://example.org/i.png"}])
    def echo(text: str) -> str:
        """Return the text.

        Args:
            text: what to say
        """
        return text

    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    @server.tool
    def typed(color: Color, point: Point = Point(1), node: Optional[Node] = None,
              tags: Set[int] = frozenset(), pair: Tuple[int, str] = (1, "a"),
              pick: Literal["a", "b"] = "a", either: Union[int, Color] = 3,
              more: Optional[Dict[str, Point]] = None) -> str:
        """Show what arrived."""
        return repr((color, point, node, tags, pair, pick, either, more))

    @server.tool
    def weather(sky: str) -> Weather:
        """Return structure."""
        return {"degrees": 20.5, "sky": sky}

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def numbers(good: bool) -> Any:
        """Return a list, which only the newest revision has."""
        return [1, 2] if good else ["x"]

    @server.tool
    def everything() -> List[Dict[str, Any]]:
        """Return every kind of content."""
        return [mcp_ref.text("t", annotations={"priority": 1, "lastModified": "2025-01-01T00:00:00Z"}),
                mcp_ref.image(PNG, "image/png"), mcp_ref.audio(b"wav", "audio/wav"),
                mcp_ref.embedded("x://y", "inside", "text/plain"),
                mcp_ref.embedded("x://z", b"\0", _meta={"m": 1}),
                mcp_ref.link("x://y", "why", title="Y")]

    @server.tool
    def returns(what: str) -> Any:
        """Return something odd."""
        return {"none": None, "dict": {"a": (1, Color.RED)}, "nan": float("nan"), "bytes": b"x",
                "whole": {"content": [mcp_ref.text("w")], "isError": True, "_meta": {"z": 1}},
                "surrogate": "\ud800\u2028é", "mixed": ["plain", mcp_ref.text("block")],
                "set": {1}, "list": [1, 2], "nan inside": {"content": [], "_meta": float("nan")},
                "bad content": {"content": [3]}}[what]

    @server.tool
    def fails(how: str) -> str:
        """Fail."""
        if how == "exit":
            sys.exit(3)
        raise {"value": ValueError("told you"), "silent": KeyError(), "own": RpcError(7, "seven", [7]),
               "reserved": RpcError(-32001, "not ours"), "old": RpcError(mcp_ref.RESOURCE_NOT_FOUND),
               "url": RpcError(mcp_ref.URL_REQUIRED, "go", {"elicitations": []})}[how]

    @server.tool
    def hold(name: str, ctx: Context) -> str:
        """Say that it runs, wait for a door (or to be cancelled), then say so."""
        door(name + " runs").set()
        deadline = time.monotonic() + PATIENCE
        while not door(name).wait(0.01) and not ctx.cancelled:
            assert time.monotonic() < deadline
        ctx.progress(99)
        door(name + " done").set()
        return "cancelled" if ctx.cancelled else "held"

    @server.tool
    async def later(n: int) -> int:
        """Run on an event loop."""
        import asyncio
        await asyncio.sleep(0)
        return n + 1

    @server.tool
    def steps(ctx: Context) -> str:
        """Report progress, with steps that are none."""
        for value in (0, 1, 1, 0.5, 2.5):
            ctx.progress(value, 3, "at %g" % value)
        return "done"

    @server.tool
    def talk(ctx: Context) -> str:
        """Log at every level."""
        for level in mcp_ref.LOG_LEVELS:
            ctx.log(level, {"says": level}, "talker")
        with pytest.raises(ValueError):
            ctx.log("loud", 1)
        return "said"

    @server.tool
    def tell(method: str, ctx: Context) -> str:
        """Send a notification."""
        ctx.notify(method, {"x": 1, "elicitationId": "e"})
        ctx.close_stream()
        return ctx.version


def add_asking_tools(server: Server) -> None:
    @server.tool
    def branch(ctx: Context) -> str:
        """Ask for a branch; `except Exception` must not get in the way."""
        try:
            answer = ctx.elicit("Which branch?", branch=str, force=(bool, False))
        except Exception as problem:
            return "failed: %s" % problem
        return json.dumps(answer, sort_keys=True)

    @server.tool
    def several(ctx: Context) -> str:
        """Ask three things at once."""
        answers = ctx.ask({"who": elicitation("Who?", name=str), "model": sampling("Hi", max_tokens=9),
                           "where": roots()})
        return json.dumps(sorted(answers))

    @server.tool
    def twice(ctx: Context, first: str = "") -> str:
        """Ask twice, the second time depending on the first answer."""
        one = ctx.elicit("One?", one=int)
        two = ctx.elicit("Two?", key="second", two=int)
        return "%s %s" % (one["content"]["one"], two["content"]["two"])

    @server.tool
    def visit(ctx: Context, wait: bool = True) -> str:
        """Send the user to a page."""
        answer = ctx.elicit("Sign in", url="https://example.org/in", elicitation_id="e1", wait=wait)
        ctx.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
        return str(answer["action"])

    @server.tool
    def think(ctx: Context, tools: bool = False, context: bool = False) -> str:
        """Sample."""
        options: Dict[str, Any] = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]} if tools else {}
        if context:
            options["includeContext"] = "thisServer"
        blocks = [mcp_ref.text("a"), mcp_ref.text("b")]
        answer = ctx.sample([{"role": "user", "content": blocks if context else blocks[0]}], **options)
        return str(answer["model"])

    @server.tool
    def folders(ctx: Context) -> str:
        """List the roots."""
        return ",".join(root["uri"] for root in ctx.list_roots())

    @server.tool
    def form(ctx: Context) -> str:
        """Ask by a form with every kind of field."""
        answer = ctx.elicit("Fill in", color=Color, kind=(Literal["a", "b"], "b"),
                            age=Annotated[int, "in years", {"minimum": 0}], note=Optional[str],
                            raw={"type": "string", "format": "email"})
        return str(answer["action"])

    @server.tool
    def many(ctx: Context) -> str:
        """Ask for several of a choice."""
        return str(ctx.elicit("Which?", colors=List[Color], kinds=List[Literal["a", "b"]])["action"])


def add_resources(server: Server) -> None:
    @server.resource("test://text", title="Text", mime_type="text/plain", size=5,
                     annotations={"audience": ["user"], "lastModified": "2025-01-01T00:00:00Z"})
    def a_text() -> str:
        """Some text."""
        return "hello"

    @server.resource("test://blob", mime_type="image/png", ttl_ms=5000, cache_scope="public")
    def a_blob() -> bytes:
        return PNG

    @server.resource("test://several")
    def several() -> List[Dict[str, Any]]:
        return [{"text": "one"}, {"uri": "test://other", "blob": b"two", "_meta": {"q": 1}}]

    @server.resource("test://json")
    def some_json() -> Dict[str, int]:
        return {"a": 1}

    @server.resource("test://broken")
    def broken() -> str:
        raise ValueError("a secret")

    @server.resource("test://asks")
    def asks(ctx: Context) -> str:
        return str(ctx.elicit("May I?", yes=bool)["action"])

    @server.resource("test://gone")
    def gone() -> str:
        raise NotFound()

    @server.resource("test://item/{number}/{part}")
    def item(number: int, part: str) -> str:
        return "%r of %r" % (part, number)

    @server.resource("file:///{+path}", mime_type="text/plain")
    def a_file(path: str) -> str:
        return "file " + path


def add_prompts(server: Server) -> None:
    @server.prompt(title="Greeting")
    def greet(name: str, times: int = 1) -> str:
        """Greet somebody.

        :param name: who it is
        """
        return "Hello, %s!" % name * times

    @server.prompt
    def chat() -> List[Any]:
        return ["one", {"role": "assistant", "content": "two"}, mcp_ref.image(PNG, "image/png"),
                {"role": "user", "content": mcp_ref.link("x://y", "why")}]

    @server.prompt
    def asks_first(ctx: Context) -> str:
        return str(ctx.elicit("Which tone?", tone=str)["content"]["tone"])

    @server.completion("greet", "name")
    def names(typed: str, known: Dict[str, str]) -> List[str]:
        return [typed + str(n) for n in range(120)] if not known else sorted(known)

    @server.completion("test://item/{number}/{part}", "part")
    def parts(typed: str) -> List[str]:
        return [part for part in ("head", "hand", "foot") if part.startswith(typed)]


# ------------------------------------------------------------------------------------------
# Holding a conversation
# ------------------------------------------------------------------------------------------

class Wire:
    """Stands between both sides; asserts what must hold of every message of a server."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()      # requests of the client, by JSON of their id
        self.methods: Dict[str, str] = {}           # their methods
        self.modern: set[str] = set()               # those of them that are modern
        self.tokens: Dict[str, float] = {}          # progress tokens in use
        self.version = ""
        self.subscriptions: Dict[str, bool] = {}    # id: acknowledged

    def sent(self, message: Any) -> None:
        """Note what the client sends."""
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict) and ("method" in one or "params" in one) and "id" in one:
                key = json.dumps(one["id"])
                self.waiting[key] += 1
                self.methods[key] = str(one.get("method"))
                params = one.get("params")
                meta = params.get("_meta") if isinstance(params, dict) else None
                if isinstance(meta, dict) and mcp_ref.META_VERSION in meta:
                    self.modern.add(key)
                else:
                    self.modern.discard(key)
                if isinstance(meta, dict) and "progressToken" in meta:
                    self.tokens[json.dumps(meta["progressToken"])] = float("-inf")

    def received(self, message: Any) -> None:
        """Check what the server sends."""
        for one in message if isinstance(message, list) else [message]:
            assert isinstance(one, dict) and one["jsonrpc"] == "2.0"
            if "method" in one:
                self.check_method(one)
            else:
                self.check_response(one)
            self.check_schema(one)

    def check_method(self, message: Dict[str, Any]) -> None:
        assert "result" not in message and "error" not in message
        params = message.get("params", {})
        assert isinstance(params, dict)
        if "id" in message:
            assert self.version in LEGACY and message["method"] in rules(self.version).methods
            return
        row = NOTIFICATIONS.get(message["method"])
        if row is None:
            return
        assert "<" in row.way
        subscription = params.get("_meta", {}).get(mcp_ref.META_SUBSCRIPTION)
        if message["method"].endswith("subscriptions/acknowledged"):
            assert not self.subscriptions.get(json.dumps(subscription))
            self.subscriptions[json.dumps(subscription)] = True
        elif subscription is not None:
            assert self.subscriptions[json.dumps(subscription)]
        if message["method"] == "notifications/progress":
            key = json.dumps(params["progressToken"])
            assert params["progress"] > self.tokens[key], "progress must grow"
            self.tokens[key] = params["progress"]

    def check_response(self, message: Dict[str, Any]) -> None:
        assert ("result" in message) != ("error" in message)
        if "error" in message:
            error = message["error"]
            assert type(error["code"]) is int and isinstance(error["message"], str)
            assert set(error) <= {"code", "message", "data"}
            assert not -32019 <= error["code"] <= -32000 or error["code"] == mcp_ref.RESOURCE_NOT_FOUND
        if message.get("id") is None:
            return
        key = json.dumps(message["id"])
        assert self.waiting[key] > 0, "a response nobody waits for"
        self.waiting[key] -= 1
        if "result" in message:
            assert ("resultType" in message["result"]) == (key in self.modern)

    def check_schema(self, message: Dict[str, Any]) -> None:
        """Validate a message against the official schema, if it is at hand."""
        spec, method = os.environ.get("MCP_SPEC"), message.get("method")
        if not spec or not self.version:
            return
        if method in METHODS or method in NOTIFICATIONS:
            kind, part = "ServerRequest" if "id" in message else "ServerNotification", message
        elif message.get("result") and json.dumps(message["id"]) in self.methods:
            kind = RESULTS.get(self.methods[json.dumps(message["id"])], "Result")
            part = message["result"]
            if part.get("resultType") == "input_required":
                kind = "InputRequiredResult"
            elif part.get("resultType", "complete") != "complete":
                kind = "Result"             # of an extension
        else:
            return
        flaw = official(spec, self.version, kind).flaw(part)
        assert flaw is None, (kind, flaw, message)


RESULTS = {
    "initialize": "InitializeResult", "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult", "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult", "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult", "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult", "completion/complete": "CompleteResult",
}

_OFFICIAL: Dict[Any, Schema] = {}


def official(spec: str, version: str, kind: str) -> Schema:
    """Return a definition of the official schema."""
    if (version, kind) not in _OFFICIAL:
        text = Path(spec, "schema", version, "schema.json").read_text(encoding="utf-8")
        document = json.loads(text)
        document.pop("$schema", None)
        defs = "$defs" if "$defs" in document else "definitions"
        _OFFICIAL[version, kind] = Schema({**document, "$ref": "#/%s/%s" % (defs, kind)})
    return _OFFICIAL[version, kind]


class Memory:
    """Talks to a server by function calls, each handler on a thread of its own."""

    ordered = True          # what is sent first is served first
    modern = False          # whether the next message is of the modern era

    def __init__(self, server: Server) -> None:
        self.server = server
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.peer = Peer(self.deliver)

    def deliver(self, message: Any) -> None:
        self.inbox.put(json.loads(mcp_ref.encode(message)))

    def send(self, data: bytes) -> None:
        try:
            message = mcp_ref.decode(data)
        except RpcError as error:
            self.server.refuse(error, None, self.deliver, self.peer)
            return
        work = self.server.accept(message, self.deliver, self.peer)
        if work is not None:
            threading.Thread(target=work, daemon=True).start()

    def receive(self, seconds: float = PATIENCE) -> Any:
        return self.inbox.get(timeout=seconds)

    def close(self) -> List[Any]:
        """Leave; return what still came."""
        self.peer.close()
        return list(self.inbox.queue)


class RealPipe(Memory):
    """Talks to a server over operating system pipes, by the code that serves stdio."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        theirs, self.out = os.pipe()
        ours, back = os.pipe()
        self.reader = open(theirs, "rb")
        self.lines = open(ours, "rb")

        def write(data: bytes) -> None:
            while data:
                data = data[os.write(back, data):]
        self.ended = threading.Event()
        self.pipe = mcp_ref.Pipe(server, self.reader.readline, write, self.ended.set)
        self.peer = self.pipe.peer
        self.pipe.start()
        threading.Thread(target=self.pump, daemon=True).start()
        self.back = back

    def pump(self) -> None:
        for line in self.lines:
            assert line.endswith(b"\n") and line.isascii(), line
            self.inbox.put(json.loads(line))
        self.inbox.put(None)

    def send(self, data: bytes) -> None:
        data += b"\n"
        while data:
            data = data[os.write(self.out, data):]

    def close(self) -> List[Any]:
        os.close(self.out)
        assert self.ended.wait(PATIENCE)
        assert self.pipe.leave(PATIENCE), "threads are left"
        os.close(self.back)
        rest = []
        while True:
            message = self.inbox.get(timeout=PATIENCE)
            if message is None:
                self.reader.close()
                self.lines.close()
                return rest
            rest.append(message)


class Http(Memory):
    """Talks to a server over loopback HTTP, each POST on a connection and a thread of its own."""

    ordered = False

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server)
        self.endpoint = mcp_ref.Endpoint(server, hosts=["127.0.0.1"], **options)
        self.httpd = mcp_ref.http_server(self.endpoint)
        self.serving = threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True)
        self.serving.start()
        self.modern = False
        self.session: Dict[str, str] = {}       # the headers that name it
        self.posts: Dict[str, Any] = {}         # connections by request id
        self.threads: List[threading.Thread] = []
        self.failures: List[Any] = []

    def connect(self) -> Any:
        return http.client.HTTPConnection("127.0.0.1", self.httpd.server_port, timeout=PATIENCE)

    def headers(self, message: Any) -> Dict[str, str]:
        """Make the headers that a good client sends with a message."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and mcp_ref.META_VERSION in meta or self.modern and message:
            version = meta.get(mcp_ref.META_VERSION) if isinstance(meta, dict) else None
            headers["MCP-Protocol-Version"] = version if isinstance(version, str) else MODERN[0]
            headers["Mcp-Method"] = message["method"]
            row = METHODS.get(message["method"])
            if row and row.mirrored and isinstance(params, dict) and isinstance(params.get(row.mirrored), str):
                headers["Mcp-Name"] = mcp_ref.mirror(params[row.mirrored])
            return headers
        return {**headers, **self.session}

    def send(self, data: bytes) -> None:
        try:
            message = mcp_ref.decode(data)
        except RpcError:
            message = None
        name = message.get("method") if isinstance(message, dict) else None
        if self.modern and name in ("notifications/cancelled", "$/cancelRequest"):
            params = message["params"]
            connection = self.posts.pop(json.dumps(params.get("requestId", params.get("id"))))
            connection.sock.shutdown(2)         # to hang up is to cancel
            return
        arguments = (data, message, threading.Event())
        thread = threading.Thread(target=self.post, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()
        assert arguments[2].wait(PATIENCE)      # sent, so that the next one is sent after it

    def post(self, data: bytes, message: Any, sent: threading.Event) -> None:
        """POST a message; put what comes back into the inbox."""
        connection = self.connect()
        try:
            headers = self.headers(message if isinstance(message, dict) and "method" in message else {})
            if isinstance(message, dict) and message.get("method") == "initialize" and not self.modern:
                headers = {key: value for key, value in headers.items() if key not in self.session}
            if isinstance(message, dict) and "id" in message:
                self.posts[json.dumps(message["id"])] = connection
            connection.request("POST", "/mcp", data, headers)
            quick = not (isinstance(message, dict) and "id" in message and "method" in message)
            if not quick:
                sent.set()
            response = connection.getresponse()
            self.read(message, response)
        except Exception as problem:
            if not self.modern or connection in self.posts.values():
                self.failures.append(repr(problem))
                self.inbox.put({"jsonrpc": "2.0", "failure": repr(problem)})
        finally:
            sent.set()
            connection.close()

    def read(self, message: Any, response: Any) -> None:
        try:
            kind = mcp_ref.kind_of(message)
        except RpcError:
            kind = "request"
        if isinstance(message, list) and not any(
                isinstance(one, dict) and "id" in one and "method" in one for one in message) and any(
                isinstance(one, dict) for one in message):
            kind = "notification"
        if response.getheader("Mcp-Session-Id"):
            self.session = {"Mcp-Session-Id": response.getheader("Mcp-Session-Id")}
        body = response.getheader("Content-Type", "")
        if body.startswith("text/event-stream"):
            assert response.status == 200 and response.getheader("X-Accel-Buffering") == "no"
            self.follow(response)
            return
        data = response.read()
        if response.status == 202:
            assert data == b"" and kind != "request" and response.getheader("Content-Type") is None
            if isinstance(message, dict) and message.get("method") in ("notifications/initialized", "initialized"):
                self.listen()
        elif kind == "request":
            assert body == "application/json" and data.isascii()
            answer = json.loads(data)
            self.check_status(response.status, answer)
            self.inbox.put(answer)
        elif response.status == 200:
            self.inbox.put(json.loads(data))
        else:
            assert response.status == 400

    def follow(self, response: Any) -> None:
        """Take the messages of a stream; come back for the rest if it was cut."""
        seen, answered = "", False
        for block in blocks(response):
            fields = dict(line.split(": ", 1) for line in block if ": " in line)
            seen = fields.get("id", seen)
            if fields.get("data"):
                message = json.loads(fields["data"])
                answered = answered or isinstance(message, list) or "method" not in message
                self.inbox.put(message)
        if seen and not answered and fields.get("retry") and "id" not in fields:
            connection = self.connect()
            connection.request("GET", "/mcp", headers={**self.session, "Last-Event-ID": seen})
            self.follow(connection.getresponse())
            connection.close()

    def check_status(self, status: int, answer: Any) -> None:
        """In a session an answered request is 200; a modern error has the status of its row."""
        error = answer.get("error", {}) if isinstance(answer, dict) else {}
        row = mcp_ref.ERRORS.get(error.get("code"))
        assert status == 200 or row and status in (row.status, row.raised), (status, answer)
        if error.get("code") in (mcp_ref.PARSE_ERROR, mcp_ref.HEADER_MISMATCH, mcp_ref.MISSING_CAPABILITY,
                                 mcp_ref.UNSUPPORTED_VERSION):
            assert status == 400
        if error.get("code") == mcp_ref.METHOD_NOT_FOUND:
            assert status == (404 if self.modern else 200), answer

    def listen(self) -> None:
        """Open the GET stream of the session."""
        ready, connection = threading.Event(), self.connect()

        def get() -> None:
            try:
                connection.request("GET", "/mcp", headers={**self.session, "Accept": "text/event-stream"})
                response = connection.getresponse()
                assert response.status == 200
                ready.set()
                for one in events(response):
                    self.inbox.put(one)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass
            finally:
                connection.close()
        thread = threading.Thread(target=get, daemon=True)
        self.threads.append(thread)
        thread.start()
        assert ready.wait(PATIENCE)

    def close(self) -> List[Any]:
        self.httpd.close()
        self.serving.join(PATIENCE)
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert not self.failures, self.failures
        return list(self.inbox.queue)


def events(response: Any) -> Any:
    """Yield the messages of an event stream."""
    for block in blocks(response):
        data = [line[6:] for line in block if line.startswith("data: ")]
        if data and data[0]:
            yield json.loads("\n".join(data))


def blocks(response: Any) -> Any:
    """Yield the events of a stream, as lists of lines."""
    lines: List[str] = []
    while True:
        line = response.readline()
        if not line:
            return
        text = line.decode().rstrip("\n")
        if text:
            lines.append(text)
        elif lines:
            yield lines
            lines = []


TRANSPORTS = {"memory": Memory, "pipe": RealPipe, "http": Http}


class Conversation:
    """Holds one conversation with a server, line by line."""

    def __init__(self, transport: str, server: Optional[Server] = None) -> None:
        self.server = server or make_server()
        self.line = TRANSPORTS[transport](self.server)
        self.wire = Wire()
        self.meta: Optional[Dict[str, Any]] = None
        self.state = ""

    def hold(self, script: str) -> "Conversation":
        """Hold a part of it; a line that goes wrong is shown."""
        for line in textwrap.dedent(script).strip().splitlines():
            line = line.strip()
            try:
                self.do(line)
            except queue.Empty:
                raise AssertionError("nothing came for: " + line) from None
            except AssertionError as problem:
                raise AssertionError("at: %s\n%s" % (line, problem)) from problem
        return self

    def do(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        if verb == "open":
            version, _, capabilities = rest.partition(" ")
            self.open(version, json.loads(capabilities or "{}"))
        elif verb == "modern":
            self.wire.version = MODERN[0]
            self.meta = {mcp_ref.META_VERSION: MODERN[0],
                         mcp_ref.META_CAPABILITIES: json.loads(rest or "{}")}
        elif verb == ">":
            self.send(rest)
        elif verb == "<":
            self.expect(rest, self.receive())
        else:
            assert verb in ("#", ""), "no such verb: " + line

    def open(self, version: str, capabilities: Dict[str, Any]) -> None:
        self.meta = None
        self.message({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"}}})
        self.wire.version = version
        answer = self.receive()
        assert answer["result"]["protocolVersion"] == version
        self.message({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def message(self, message: Any) -> None:
        self.wire.sent(message)
        self.line.modern = self.meta is not None
        self.line.send(json.dumps(message).encode())

    def send(self, rest: str) -> None:
        words = rest.split(" ", 2)
        if rest.startswith("#"):
            self.message({"jsonrpc": "2.0", "id": json.loads(words[0][1:]),
                          "result": json.loads(rest.partition(" ")[2])})
        elif len(words) > 1 and re.fullmatch(r"[\w$.]+(/[\w$.]+)*", words[1]) and (
                words[0] == "-" or is_json(words[0])):
            message: Dict[str, Any] = {"jsonrpc": "2.0", "method": words[1]}
            if len(words) > 2:
                message["params"] = json.loads(words[2].replace("STATE", self.state))
            if words[0] != "-":
                message["id"] = json.loads(words[0])
                if self.meta is not None:
                    params = message.setdefault("params", {})
                    params["_meta"] = {**self.meta, **params.get("_meta", {})}
            self.message(message)
        else:
            if is_json(rest):
                self.wire.sent(json.loads(rest))
            self.line.modern = self.meta is not None
            self.line.send(rest.encode("utf-8", "surrogateescape"))

    def receive(self) -> Any:
        message = self.line.receive()
        self.wire.received(message)
        if isinstance(message, dict) and isinstance(message.get("result"), dict):
            self.state = message["result"].get("requestState", self.state)
        return message

    def expect(self, rest: str, message: Any) -> None:
        ident, _, tail = rest.partition(" ")
        if rest.startswith("["):
            assert isinstance(message, list) and len(message) == len(json.loads(rest)), message
            for wanted in json.loads(rest):
                assert any(has(one, wanted) for one in message), message
            return
        if ident == "-" or ident.startswith("#"):
            method, _, params = tail.partition(" ")
            assert message.get("method") == method, message
            assert ("id" in message) == (ident != "-"), message
            if ident != "-":
                assert message["id"] == json.loads(ident[1:]), message
            assert has(message.get("params", {}), json.loads(params or "{}")), message
            return
        if ident == "?":
            assert "id" not in message, message
        else:
            assert message.get("id", "none") == json.loads(ident), message
            assert type(message["id"]) is type(json.loads(ident)), message
        if tail.startswith("error"):
            _, code, *words = tail.split(" ", 2)
            assert message.get("error", {}).get("code") == int(code), message
            assert not words or words[0].lower() in json.dumps(message["error"]).lower(), message
        else:
            assert "result" in message and has(message["result"], json.loads(tail)), message

    def end(self) -> None:
        """Leave; nothing may have come that was not expected, and nothing may be owed."""
        rest = self.line.close()
        for message in rest:
            self.wire.received(message)
        assert rest == [], rest
        assert not self.line.peer.running or isinstance(self.line, Memory)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
        return True
    except (ValueError, RecursionError):
        return False


def has(actual: Any, wanted: Any) -> bool:
    """Tell whether `actual` has what is wanted; {"x": null} wants that x is absent or null."""
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(
            key not in actual or actual[key] is None if value is None else
            key in actual and has(actual[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(actual, list) and len(actual) == len(wanted) and all(map(has, actual, wanted))
    return bool(actual == wanted and type(actual) is type(wanted))


@pytest.fixture(params=list(TRANSPORTS))
def talk(request: Any) -> Any:
    """Start conversations; at the end nothing unexpected may have come."""
    yield from talking(request)


def talking(request: Any) -> Any:
    started = []

    def start(script: str = "", server: Optional[Server] = None) -> Conversation:
        started.append(Conversation(request.param, server))
        return started[-1].hold(script)
    yield start
    for conversation in started:
        conversation.end()


@pytest.fixture(params=["memory", "pipe"])
def ordered(request: Any) -> Any:
    """The same, on transports that keep the order of messages."""
    yield from talking(request)


# ------------------------------------------------------------------------------------------
# JSON-RPC: every row of "rules of the wire"
# ------------------------------------------------------------------------------------------

JUNK = [        # what comes in, what goes out without a session
    ("{", "? error -32700"), ("nonsense", "? error -32700"), ('{"a": NaN}', "? error -32700"),
    ("-Infinity", "? error -32700"), ("1e999", "? error -32700"),
    ('{"id": 1, "x": "\udcff"}', "? error -32700"),      # a byte that is not UTF-8
    ("[" * 101 + "]" * 101, "? error -32700 nested"), ('{"a":' * 5000 + "1" + "}" * 5000, "? error -32700"),
    ("[" * 100000, "? error -32700"),
    ("true", "? error -32600"), ("17", "? error -32600"), ('"x"', "? error -32600"),
    ("null", "? error -32600"), ("{}", "? error -32600"), ('{"jsonrpc": "2.0"}', "? error -32600"),
    ('{"id": 1, "method": "ping"}', '1 error -32600 jsonrpc'),
    ('{"jsonrpc": "1.0", "id": "a", "method": "ping"}', '"a" error -32600 jsonrpc'),
    ('{"jsonrpc": 2.0, "id": 1, "method": "ping"}', "1 error -32600"),
    ('{"jsonrpc": "2.0", "id": 1, "method": 7}', "1 error -32600 method"),
    ('{"jsonrpc": "2.0", "method": 7}', "? error -32600"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', "1 error -32600 params"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": null}', "1 error -32600 params"),
    ('{"jsonrpc": "2.0", "id": 1, "params": {}}', "1 error -32600 method"),
    ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', "? error -32600 id"),
    ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', "? error -32600 id"),
    ('{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}', "? error -32600 id"),
    ('{"jsonrpc": "2.0", "id": {}, "method": "ping"}', "? error -32600 id"),
    ('{"jsonrpc": "2.0", "id": [1], "method": "ping"}', "? error -32600 id"),
    ("[]", "? error -32600"), ('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', "? error -32600"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', "1 error -32602 initialize"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": 3}}', "1 error -32602 _meta"),
]
SILENT = [      # what is never answered
    '{"jsonrpc": "2.0", "method": "notifications/nobody/knows"}', '{"method": "x"}',
    '{"jsonrpc": "2.0", "method": "notifications/cancelled"}',
    '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}',
    '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 17}}',
    '{"jsonrpc": "2.0", "method": "notifications/progress", "params": [1]}',
    '{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}',
    '{"jsonrpc": "2.0", "id": 99, "result": {}}', '{"jsonrpc": "2.0", "id": "q", "error": {"code": 1}}',
    '{"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}', '{"jsonrpc": "2.0", "id": 1}',
    '{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "m"}}',
    '{"jsonrpc": "2.0", "id": [], "result": 3}', '{"jsonrpc": "2.0", "error": 3}',
]


@pytest.mark.parametrize("junk, answer", JUNK, ids=[str(n) for n in range(len(JUNK))])
def test_junk_is_answered_and_the_next_line_is_good(talk: Any, junk: str, answer: str) -> None:
    conversation = talk()
    conversation.do("> " + junk)
    conversation.do("< " + answer)
    conversation.hold('> "next" ping\n< "next" {}')


@pytest.mark.parametrize("junk", SILENT)
def test_notifications_and_responses_are_never_answered(talk: Any, junk: str) -> None:
    conversation = talk()
    conversation.do("> " + junk)
    conversation.hold('> 0 ping\n< 0 {}')


@pytest.mark.parametrize("version", LEGACY)
def test_an_error_without_id_has_a_null_id_up_to_2025_06_18(talk: Any, version: str) -> None:
    sign = "null" if "null id in errors" in rules(version).features else "?"
    talk("open %s\n> {\n< %s error -32700\n> 3\n< %s error -32600" % (version, sign, sign))


def test_white_space_byte_order_marks_and_line_ends(talk: Any) -> None:
    conversation = talk()
    conversation.line.send(b"\xef\xbb\xbf" + b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\r')
    conversation.wire.waiting["1"] += 1
    conversation.do("< 1 {}")
    if isinstance(conversation.line, RealPipe):
        conversation.line.send(b"\n\r\n   \t\n")
    conversation.hold("> 2 ping\n< 2 {}")


@pytest.mark.parametrize("ident", ["0", '""', "-5", "123456789012345678901234567890", '"1"', "1", '"\u00e9"'])
def test_any_string_or_integer_is_an_id(talk: Any, ident: str) -> None:
    talk("> %s ping\n< %s {}" % (ident, ident))
    talk('modern\n> %s tools/call {"name": "echo", "arguments": {"text": "x"}}\n< %s {}' % (ident, ident))


def test_1_and_its_string_are_different_ids(talk: Any) -> None:
    conversation = talk("""
        open 2025-11-25
        > 1 tools/call {"name": "hold", "arguments": {"name": "a"}}""")
    assert conversation.server.door("a runs").wait(PATIENCE)
    conversation.hold("""
        > "1" ping
        < "1" {}
        > 1 ping
        < 1 error -32600 in use
        > 1 tools/list
        < 1 error -32600 in use""")
    conversation.wire.waiting["1"] += 1
    conversation.wire.methods["1"] = "tools/call"
    conversation.server.door("a").set()
    conversation.hold("""
        < 1 {"content": [{"text": "held"}]}
        # and now it is free again
        > 1 ping
        < 1 {}""")


def test_unknown_methods_and_names_that_tutorials_teach(talk: Any) -> None:
    talk("""
        open 2025-11-25
        > 1 nobody/knows
        < 1 error -32601 nobody/knows
        > 2 resources/get {"uri": "x"}
        < 2 error -32601 did you mean resources/read
        > 3 tools/execute
        < 3 error -32601 tools/call
        > 4 $/cancelRequest
        < 4 error -32601 notifications/cancelled
        > 5 server/discover
        < 5 error -32601
        > 6 tasks/list
        < 6 error -32601
        > 7 sampling/createMessage
        < 7 error -32601""")


# ------------------------------------------------------------------------------------------
# Eras and the handshake
# ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", LEGACY)
def test_the_handshake_of_every_legacy_revision(ordered: Any, version: str) -> None:
    conversation = ordered()
    conversation.wire.version = version
    conversation.hold("""
        > 0 initialize {"protocolVersion": "%s", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        < 0 {"protocolVersion": "%s", "instructions": "Use it gently.", "serverInfo": {"name": "test", "version": "1.2"}}
        > 1 ping
        < 1 {}
        > 2 tools/list
        < 2 error -32602 notifications/initialized
        > - notifications/initialized
        > 3 tools/list {}
        < 3 {"resultType": null, "ttlMs": null, "_meta": null}""" % (version, version))


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "1.0", "", "9999-01-01"])
def test_an_unknown_version_is_answered_with_the_newest_legacy_one(talk: Any, version: str) -> None:
    talk("""> 0 initialize {"protocolVersion": "%s", "capabilities": {}, "clientInfo": {}}
        < 0 {"protocolVersion": "%s"}""" % (version, LEGACY[0]))


def test_initialize_needs_its_params(talk: Any) -> None:
    talk("""
        > 0 initialize
        < 0 error -32602 protocolVersion
        > 1 initialize {"protocolVersion": 3, "capabilities": {}, "clientInfo": {}}
        < 1 error -32602 protocolVersion
        > 2 initialize {"protocolVersion": "2025-11-25", "clientInfo": {}}
        < 2 error -32602 capabilities
        > 3 initialize {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": []}
        < 3 error -32602 clientInfo""")


def test_the_session_can_be_opened_again_with_another_version(talk: Any) -> None:
    talk("""
        open 2024-11-05
        > 1 tools/call {"name": "tell", "arguments": {"method": "notifications/none"}}
        < - notifications/none {"x": 1}
        < 1 {"content": [{"text": "2024-11-05"}]}
        open 2025-06-18
        > 1 tools/call {"name": "tell", "arguments": {"method": "notifications/none"}}
        < - notifications/none {"x": 1}
        < 1 {"content": [{"text": "2025-06-18"}]}""")


def test_initialized_is_understood_without_its_prefix(talk: Any) -> None:
    talk("""
        > 0 initialize {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        < 0 {}
        > - initialized
        > 1 resources/templates/list
        < 1 {}""")


def test_discover_then_initialize_on_one_pipe(talk: Any) -> None:
    """The era is decided for each request: real hosts mix both on one pipe."""
    talk("""
        modern
        > "d" server/discover
        < "d" {"supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"], "resultType": "complete"}
        open 2025-11-25
        > 1 tools/call {"name": "echo", "arguments": {"text": "old"}}
        < 1 {"resultType": null, "content": [{"text": "old"}]}
        modern
        > 2 tools/call {"name": "echo", "arguments": {"text": "new"}}
        < 2 {"resultType": "complete", "content": [{"text": "new"}]}
        > 3 ping
        < 3 error -32601""")


def test_server_discover(talk: Any) -> None:
    talk("""
        modern
        > 1 server/discover
        < 1 {"capabilities": {"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "resources": {"listChanged": true, "subscribe": true}, "completions": {}, "logging": {}, "extensions": {"example.org/ext": {"level": 3}}}, "instructions": "Use it gently.", "ttlMs": 0, "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.2", "title": "Test", "websiteUrl": "https://example.org"}}}""")


META = "io.modelcontextprotocol/"


@pytest.mark.parametrize("meta, answer", [
    ({"protocolVersion": 3, "clientCapabilities": {}}, "error -32602 protocolVersion"),
    ({"protocolVersion": "2026-07-28"}, "error -32602 clientCapabilities"),
    ({"protocolVersion": "2026-07-28", "clientCapabilities": []}, "error -32602 clientCapabilities"),
    ({"protocolVersion": "2026-07-28", "clientCapabilities": {}, "clientInfo": "me"}, "error -32602 clientInfo"),
    ({"protocolVersion": "2026-07-28", "clientCapabilities": {}, "logLevel": "loud"}, "error -32602 logLevel"),
    ({"protocolVersion": "2026-07-28", "clientCapabilities": {}, "logLevel": {}}, "error -32602 logLevel"),
    ({"protocolVersion": "2025-11-25", "clientCapabilities": {}}, "error -32022"),
    ({"protocolVersion": "2027-01-01", "clientCapabilities": {}}, "error -32022"),
    ({"protocolVersion": "2027-01-01"}, "error -32602"),
    ({"protocolVersion": "2026-07-28", "clientCapabilities": {}, "clientInfo": {"name": "n", "version": "1"}}, "{}"),
])
def test_what_a_modern_request_must_carry(talk: Any, meta: Dict[str, Any], answer: str) -> None:
    params = {"_meta": {META + key: value for key, value in meta.items()}}
    talk("> 1 tools/list %s\n< 1 %s" % (json.dumps(params), answer))


def test_an_unsupported_version_lists_all_that_are_served(talk: Any) -> None:
    conversation = talk()
    conversation.do('> 1 tools/list {"_meta": {"%sprotocolVersion": "1999", "%sclientCapabilities": {}}}' % (META, META))
    error = conversation.receive()["error"]
    assert error["data"] == {"supported": versions(), "requested": "1999"}


# What exists where: each method of the tables, in each revision, is served or not found.
@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if name != "initialize"])
def test_a_method_exists_where_its_row_says_so(talk: Any, version: str, method: str) -> None:
    params = {"tools/call": {"name": "echo", "arguments": {"text": "t"}}, "resources/read": {"uri": "test://text"},
              "resources/subscribe": {"uri": "test://text"}, "resources/unsubscribe": {"uri": "test://text"},
              "prompts/get": {"name": "chat"}, "logging/setLevel": {"level": "error"},
              "completion/complete": {"ref": {"type": "ref/prompt", "name": "greet"},
                                      "argument": {"name": "name", "value": ""}},
              "subscriptions/listen": {"notifications": {}}}.get(method, {})
    conversation = talk("modern" if version in MODERN else "open " + version)
    row = METHODS[method]
    known = ">" in row.way and method in rules(version).methods
    conversation.do("> 1 %s %s" % (method, json.dumps(params)))
    if known and method == "subscriptions/listen":
        conversation.do("< - notifications/subscriptions/acknowledged {}")
        conversation.hold("> - notifications/cancelled {\"requestId\": 1}")
    else:
        conversation.do("< 1 " + ("{}" if known else "error -32601"))


@pytest.mark.parametrize("version", versions())
def test_capabilities_bind(talk: Any, version: str) -> None:
    """What a server has not registered is not declared, and then it is not found."""
    conversation = talk("modern" if version in MODERN else "open " + version, Server("empty"))
    for number, (name, row) in enumerate(METHODS.items()):
        if row.capability and ">" in row.way and name in rules(version).methods:
            conversation.do("> %d %s %s" % (number, name, json.dumps({
                "level": "info", "ref": {}, "argument": {}, "uri": "x", "name": "x"})))
            answer = conversation.receive()
            if row.capability == "logging":
                assert "result" in answer
            elif row.capability == "completions" and version == "2024-11-05":
                assert answer["error"]["code"] == mcp_ref.INVALID_PARAMS    # no capability: it exists
            else:
                assert answer["error"]["code"] == mcp_ref.METHOD_NOT_FOUND, name


def test_what_is_registered_later_is_on_offer_then(talk: Any) -> None:
    server = Server("growing")
    conversation = talk("open 2025-11-25\n> 1 tools/list\n< 1 error -32601", server)

    @server.tool
    def new() -> str:
        return "x"
    conversation.hold("""
        # the session was told that there are no tools, and that binds
        > 2 tools/list
        < 2 error -32601
        modern
        > 3 tools/list
        < 3 {"tools": [{"name": "new"}]}
        open 2025-11-25
        > 4 tools/list
        < 4 {"tools": [{"name": "new"}]}""")
    del server.tools["new"]
    conversation.hold("""
        > 5 tools/list
        < 5 {"tools": []}
        > 6 tools/call {"name": "new"}
        < 6 error -32602 unknown tool""")


# ------------------------------------------------------------------------------------------
# Batches: 2025-03-26 and nowhere else
# ------------------------------------------------------------------------------------------

def test_batches(talk: Any) -> None:
    talk("""
        open 2025-03-26
        > [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "b"}}}]
        < [{"id": 1, "result": {}}, {"id": 2, "result": {"content": [{"text": "b"}]}}]
        > []
        < null error -32600
        > [1, {"jsonrpc": "2.0", "id": 3, "method": "ping"}, [], {"jsonrpc": "2.0", "id": 4, "method": "initialize"}, {"jsonrpc": "2.0", "id": {}, "method": "ping"}]
        < [{"id": null, "error": {"code": -32600}}, {"id": 3, "result": {}}, {"id": null, "error": {"code": -32600}}, {"id": 4, "error": {"code": -32600}}, {"id": null, "error": {"code": -32600}}]
        > [{"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 1, "result": {}}]
        > 5 ping
        < 5 {}
        > [{"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "returns", "arguments": {"what": "nan inside"}}}, {"jsonrpc": "2.0", "id": 7, "method": "ping"}]
        < [{"id": 6, "error": {"code": -32603}}, {"id": 7, "result": {}}]
        > [{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "steps", "_meta": {"progressToken": 0}}}]
        < - notifications/progress {"progressToken": 0, "progress": 0}
        < - notifications/progress {"progressToken": 0, "progress": 1}
        < - notifications/progress {"progressToken": 0, "progress": 2.5}
        < [{"id": 8, "result": {}}]""")
    many = json.dumps([{"jsonrpc": "2.0", "method": "notifications/x"}] * (mcp_ref.MAX_BATCH + 1))
    talk("open 2025-03-26\n> %s\n< null error -32600 members" % many)
    many = json.dumps([{"jsonrpc": "2.0", "method": "notifications/x"}] * mcp_ref.MAX_BATCH)
    talk("open 2025-03-26\n> %s\n> 1 ping\n< 1 {}" % many)


@pytest.mark.parametrize("version", [version for version in versions() if version != "2025-03-26"])
def test_no_batches_elsewhere(talk: Any, version: str) -> None:
    conversation = talk("modern" if version in MODERN else "open " + version)
    conversation.do('> [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]')
    conversation.wire.waiting.clear()
    answer = conversation.receive()
    assert answer["error"]["code"] == mcp_ref.INVALID_REQUEST and answer.get("id") is None


# ------------------------------------------------------------------------------------------
# Tools
# ------------------------------------------------------------------------------------------

def start(talk: Any, version: str, capabilities: str = "{}", server: Optional[Server] = None) -> Conversation:
    """Start a conversation in a revision of either era."""
    verb = "modern " if version in MODERN else "open %s " % version
    return talk(verb + capabilities, server)    # type: ignore[no-any-return]


@pytest.mark.parametrize("version", versions())
def test_the_list_of_tools_has_the_members_of_its_revision(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    conversation.do("> 1 tools/list")
    answer = conversation.receive()["result"]
    tools = {tool["name"]: tool for tool in answer["tools"]}
    assert list(tools)[:2] == ["echo", "add"] and list(tools) == list(conversation.server.tools)
    features, echo = rules(version).features, tools["echo"]
    assert echo["description"] == "Return the text."
    assert echo["inputSchema"] == {"type": "object", "required": ["text"], "additionalProperties": False,
                                   "properties": {"text": {"type": "string", "description": "what to say"}}}
    assert ("title" in echo) == ("_meta" in echo) == ("titles" in features)
    assert ("icons" in echo) == ("icons" in features)
    assert ("annotations" in echo) == ("tool annotations" in features)
    assert echo.get("annotations", {"title": "E"})["title"] == "E"
    assert "outputSchema" not in echo
    assert tools["add"].get("outputSchema") == ({"type": "object", "required": ["result"], "properties": {
        "result": {"type": "integer"}}} if "structured output" in features else None)
    assert ("outputSchema" in tools["numbers"]) == ("any structured content" in features)
    assert ("ttlMs" in answer) == ("cacheScope" in answer) == (version in MODERN)


@pytest.mark.parametrize("version", versions())
def test_structured_content_goes_where_it_is_known(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    features = rules(version).features
    for name, arguments, structured, text in (
            ("add", {"a": 1}, {"result": 3}, "3"), ("echo", {"text": "e"}, None, "e"),
            ("weather", {"sky": "\u00e9"}, {"degrees": 20.5, "sky": "\u00e9"}, None),
            ("numbers", {"good": True}, [1, 2], "[1, 2]"),
            ("returns", {"what": "dict"}, {"a": [1, "r"]}, '{"a": [1, "r"]}'),
            ("returns", {"what": "list"}, None, "[1, 2]"), ("returns", {"what": "set"}, None, "[1]")):
        conversation.do("> 1 tools/call " + json.dumps({"name": name, "arguments": arguments}))
        result = conversation.receive()["result"]
        known = "structured output" in features and (
            isinstance(structured, dict) or "any structured content" in features)
        assert result.get("structuredContent") == (structured if known else None)
        assert "isError" not in result and len(result["content"]) == 1
        shown = result["content"][0]["text"]
        assert shown == text or text is None and json.loads(shown) == structured


def test_arguments_arrive_as_python_values(talk: Any) -> None:
    talk("""
        modern
        > 1 tools/call {"name": "typed", "arguments": {"color": "b", "point": {"x": 1.0}, "node": {"name": "n", "children": [{"name": "m"}]}, "tags": [1, 2], "pair": [5, "q"], "pick": "b", "either": "r", "more": {"k": {"x": 3, "y": 4}}}}
        < 1 {"content": [{"type": "text", "text": "(<Color.BLUE: 'b'>, Point(x=1, y=0), Node(name='n', children=[Node(name='m', children=[])]), {1, 2}, (5, 'q'), 'b', <Color.RED: 'r'>, {'k': Point(x=3, y=4)})"}]}
        > 2 tools/call {"name": "typed", "arguments": {"color": "r"}}
        < 2 {"content": [{"text": "(<Color.RED: 'r'>, Point(x=1, y=0), None, frozenset(), (1, 'a'), 'a', 3, None)"}]}
        > 3 tools/call {"name": "typed", "arguments": {"color": "r", "node": null, "either": 9}}
        < 3 {"content": [{"text": "(<Color.RED: 'r'>, Point(x=1, y=0), None, frozenset(), (1, 'a'), 'a', 9, None)"}]}
        > 4 tools/call {"name": "later", "arguments": {"n": 4}}
        < 4 {"structuredContent": {"result": 5}}""")


BAD_ARGUMENTS = [
    ("echo", {}, "text", "is required"), ("echo", {"text": 3}, "text", "must be of type string"),
    ("echo", {"text": "x", "y": 1}, "y", "is not known here"), ("add", {"a": True}, "a", "type integer"),
    ("add", {"a": 1.5}, "a", "type integer"), ("typed", {"color": "g"}, "color", "must be one of"),
    ("typed", {"color": "r", "point": {"x": "q"}}, "point/x", "type integer"),
    ("typed", {"color": "r", "node": {"name": "n", "children": [{}]}}, "node", "must match"),
    ("typed", {"color": "r", "tags": [1, 1]}, "tags", "twice"),
    ("typed", {"color": "r", "pair": [1]}, "pair", "less than 2"),
    ("typed", {"color": "r", "pair": [1, "a", 2]}, "pair/2", "must not be there"),
]


@pytest.mark.parametrize("version", versions())
def test_arguments_that_break_the_schema(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    for name, arguments, place, rule in BAD_ARGUMENTS:
        conversation.do("> 1 tools/call " + json.dumps({"name": name, "arguments": arguments}))
        answer = conversation.receive()
        if "argument errors as results" in rules(version).features:
            assert answer["result"]["isError"] is True
            assert "/%s: " % place in answer["result"]["content"][0]["text"]
            assert rule in answer["result"]["content"][0]["text"]
        else:
            assert answer["error"]["code"] == mcp_ref.INVALID_PARAMS
            assert answer["error"]["data"]["field"] == place and rule in answer["error"]["data"]["reason"]
    conversation.hold("""
        > 2 tools/call {"name": "none"}
        < 2 error -32602 unknown tool
        > 3 tools/call {"name": "echo", "arguments": [1]}
        < 3 error -32602 arguments
        > 4 tools/call {"arguments": {}}
        < 4 error -32602 name
        > 5 tools/call {"name": {"a": 1}}
        < 5 error -32602 name
        > 6 tools/call {"name": "everything", "arguments": null}
        < 6 {}
        > 7 tools/call
        < 7 error -32602 name""")


@pytest.mark.parametrize("version", versions())
def test_every_kind_of_content(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    conversation.do('> 1 tools/call {"name": "everything"}')
    text, image, audio, inside, blob, link = conversation.receive()["result"]["content"]
    features = rules(version).features
    assert text["annotations"].get("priority") == 1
    assert ("lastModified" in text["annotations"]) == ("modification times" in features)
    assert image == {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    assert inside == {"type": "resource", "resource": {"uri": "x://y", "mimeType": "text/plain", "text": "inside"}}
    assert blob["resource"] == {"uri": "x://z", "blob": "AA=="}
    assert ("_meta" in blob) == ("_meta everywhere" in features)
    if "audio" in features:
        assert audio == {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"}
    else:
        assert audio["type"] == "resource" and audio["resource"]["blob"] == "d2F2"
    if "resource links" in features:
        assert link == {"type": "resource_link", "uri": "x://y", "name": "why", "title": "Y"}
    else:
        assert link == {"type": "text", "text": "why: x://y"}


@pytest.mark.parametrize("version", versions())
def test_tools_that_fail(talk: Any, version: str, capsys: Any) -> None:
    conversation = start(talk, version)
    old, url = (code if code in rules(version).errors else mcp_ref.INTERNAL_ERROR
                for code in (mcp_ref.RESOURCE_NOT_FOUND, mcp_ref.URL_REQUIRED))
    conversation.hold("""
        > 1 tools/call {"name": "fails", "arguments": {"how": "value"}}
        < 1 {"isError": true, "content": [{"type": "text", "text": "told you"}], "structuredContent": null}
        > 2 tools/call {"name": "fails", "arguments": {"how": "silent"}}
        < 2 {"isError": true, "content": [{"text": "KeyError"}]}
        > 3 tools/call {"name": "fails", "arguments": {"how": "exit"}}
        < 3 {"isError": true, "content": [{"text": "3"}]}
        > 4 tools/call {"name": "fails", "arguments": {"how": "own"}}
        < 4 error 7 seven
        > 5 tools/call {"name": "fails", "arguments": {"how": "reserved"}}
        < 5 error -32603 not ours
        > 6 tools/call {"name": "fails", "arguments": {"how": "old"}}
        < 6 error %d
        > 7 tools/call {"name": "fails", "arguments": {"how": "url"}}
        < 7 error %d
        > 8 tools/call {"name": "returns", "arguments": {"what": "nan"}}
        < 8 {"isError": true}
        > 9 tools/call {"name": "returns", "arguments": {"what": "bytes"}}
        < 9 {"isError": true}
        > 10 tools/call {"name": "returns", "arguments": {"what": "nan inside"}}
        < 10 error -32603
        > 11 tools/call {"name": "returns", "arguments": {"what": "bad content"}}
        < 11 {"isError": true}""" % (old, url))
    captured = capsys.readouterr()
    assert captured.out == "" and "ValueError: told you" in captured.err
    if "structured output" in rules(version).features:
        conversation.hold("""
            > 12 tools/call {"name": "numbers", "arguments": {"good": false}}
            < 12 {"isError": true, "structuredContent": null}""")


def test_odd_values(talk: Any) -> None:
    talk("""
        modern
        > 1 tools/call {"name": "returns", "arguments": {"what": "none"}}
        < 1 {"content": [], "structuredContent": null}
        > 2 tools/call {"name": "returns", "arguments": {"what": "whole"}}
        < 2 {"isError": true, "_meta": {"z": 1, "io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.2"}}}
        > 3 tools/call {"name": "returns", "arguments": {"what": "surrogate"}}
        # half a character is not UTF-8
        < 3 {"content": [{"text": "\\ufffd\\u2028\\u00e9"}]}
        > 4 tools/call {"name": "returns", "arguments": {"what": "mixed"}}
        < 4 {"content": [{"type": "text", "text": "plain"}, {"text": "block"}]}""")


def test_a_tool_with_schemas_of_its_own(ordered: Any) -> None:
    server = Server("own")
    given = {"type": "object", "properties": {"a-b": {"$ref": "#/$defs/n", "x-mcp-header": "N"}},
             "$defs": {"n": {"$anchor": "here", "type": "number"}}, "if": {}, "then": {}}

    @server.tool(name="t", input_schema=given, output_schema={"type": "object", "required": ["ok"]})
    def any_name(ctx: Context, **arguments: Any) -> Any:
        return {"ok": arguments} if arguments else {"content": [mcp_ref.text("no")], "structuredContent": {}}
    conversation = start(ordered, MODERN[0], server=server)
    conversation.do("> 1 tools/list")
    assert conversation.receive()["result"]["tools"][0]["inputSchema"] == given
    conversation.hold("""
        > 2 tools/call {"name": "t", "arguments": {"a-b": 1}}
        < 2 {"structuredContent": {"ok": {"a-b": 1}}}
        > 3 tools/call {"name": "t", "arguments": {"a-b": "x"}}
        < 3 {"isError": true}
        > 4 tools/call {"name": "t"}
        < 4 {"isError": true, "content": [{"text": "The result does not match the tool's output schema: /ok: is required"}]}""")


# ------------------------------------------------------------------------------------------
# Resources, prompts, completion, pages
# ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", versions())
def test_resources(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    missing = mcp_ref.RESOURCE_NOT_FOUND if mcp_ref.RESOURCE_NOT_FOUND in rules(version).errors \
        else mcp_ref.INVALID_PARAMS
    blob = base64.b64encode(PNG).decode()
    conversation.hold("""
        > 1 resources/read {"uri": "test://text"}
        < 1 {"contents": [{"uri": "test://text", "mimeType": "text/plain", "text": "hello"}]}
        > 2 resources/read {"uri": "test://blob"}
        < 2 {"contents": [{"uri": "test://blob", "mimeType": "image/png", "blob": "%s"}]}
        > 3 resources/read {"uri": "test://several"}
        < 3 {"contents": [{"uri": "test://several", "text": "one"}, {"uri": "test://other", "blob": "dHdv"}]}
        > 4 resources/read {"uri": "test://json"}
        < 4 {"contents": [{"mimeType": "application/json", "text": "{\\"a\\": 1}"}]}
        > 5 resources/read {"uri": "test://item/7/a%%20b"}
        < 5 {"contents": [{"uri": "test://item/7/a%%20b", "text": "'a b' of 7"}]}
        > 6 resources/read {"uri": "file:///a/b%%C3%%A9/c"}
        < 6 {"contents": [{"text": "file a/b\\u00e9/c"}]}
        > 7 resources/read {"uri": "test://none"}
        < 7 error %d test://none
        > 8 resources/read {"uri": "test://gone"}
        < 8 error %d test://gone
        > 9 resources/read {"uri": "test://broken"}
        < 9 error -32603 internal error
        > 10 resources/read
        < 10 error -32602 uri
        > 11 resources/read {"uri": 3}
        < 11 error -32602 uri
        > 12 resources/read {"uri": "test://item/seven/x"}
        < 12 error -32602 number""" % (blob, missing, missing))
    conversation.do("> 13 resources/list")
    listed = conversation.receive()["result"]["resources"]
    assert listed[0]["size"] == 5 and listed[0]["name"] == "a_text" and "uriTemplate" not in listed[0]
    assert ("title" in listed[0]) == ("titles" in rules(version).features)
    assert listed[0]["annotations"]["audience"] == ["user"]
    assert ("lastModified" in listed[0]["annotations"]) == ("modification times" in rules(version).features)
    conversation.do("> 14 resources/templates/list")
    result = conversation.receive()["result"]
    assert [one["uriTemplate"] for one in result["resourceTemplates"]] == [
        "test://item/{number}/{part}", "file:///{+path}"]


@pytest.mark.parametrize("uri", [
    "file:///../secret", "file:///a/../../b", "file:///%2e%2e/b", "file:///a%2f..%2fb", "file:////etc/passwd",
    "file:///%2Fetc", "file:///C:/x", "file:///..%5cx", "file:///a%00b", "file:///%ff",
    "test://item/1/..", "test://item/1/a%2fb", "test://item/1/a%5Cb", "test://item/1/."])
def test_a_template_value_cannot_leave_its_place(talk: Any, uri: str) -> None:
    talk('modern\n> 1 resources/read {"uri": "%s"}\n< 1 error -32602 leaves its place' % uri)


def test_caching_hints(talk: Any) -> None:
    talk("""
        modern {"elicitation": {}}
        > 1 resources/read {"uri": "test://blob"}
        < 1 {"ttlMs": 5000, "cacheScope": "public"}
        > 2 resources/read {"uri": "test://asks"}
        < 2 {"resultType": "input_required", "ttlMs": null, "cacheScope": null}
        > 3 tools/call {"name": "echo", "arguments": {"text": ""}}
        < 3 {"ttlMs": null, "cacheScope": null}""")
    conversation = start(talk, MODERN[0], server=make_server(ttl_ms=7, cache_scope="public"))
    for method, row in METHODS.items():
        if row.cacheable and method != "resources/read":
            conversation.hold('> 1 %s\n< 1 {"ttlMs": 7, "cacheScope": "public"}' % method)


@pytest.mark.parametrize("version", versions())
def test_prompts(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    conversation.hold("""
        > 1 prompts/list
        < 1 {"prompts": [{"name": "greet", "description": "Greet somebody.", "arguments": [{"name": "name", "required": true, "description": "who it is"}, {"name": "times", "required": null}]}, {"name": "chat", "arguments": null}, {"name": "asks_first"}]}
        > 2 prompts/get {"name": "greet", "arguments": {"name": "Ann", "times": "2"}}
        < 2 {"description": "Greet somebody.", "messages": [{"role": "user", "content": {"type": "text", "text": "Hello, Ann!Hello, Ann!"}}]}
        > 3 prompts/get {"name": "greet"}
        < 3 error -32602 name
        > 4 prompts/get {"name": "greet", "arguments": {"name": 3}}
        < 4 error -32602 strings
        > 5 prompts/get {"name": "greet", "arguments": {"name": "a", "times": "x"}}
        < 5 error -32602 times
        > 6 prompts/get {"name": "greet", "arguments": {"name": "a", "other": "x"}}
        < 6 error -32602 other
        > 7 prompts/get {"name": "nobody"}
        < 7 error -32602 unknown prompt
        > 8 prompts/get {"name": "chat", "arguments": null}
        < 8 {"messages": [{"role": "user", "content": {"text": "one"}}, {"role": "assistant", "content": {"text": "two"}}, {"content": {"type": "image"}}, {"role": "user"}]}
        > 9 prompts/get {"name": "greet", "arguments": {"name": "5"}}
        < 9 {"messages": [{"content": {"text": "Hello, 5!"}}]}""")


@pytest.mark.parametrize("version", versions())
def test_completion(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    conversation.hold("""
        > 1 completion/complete {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "times", "value": ""}}
        < 1 {"completion": {"values": [], "total": 0, "hasMore": false}}
        > 2 completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/{number}/{part}"}, "argument": {"name": "part", "value": "h"}}
        < 2 {"completion": {"values": ["head", "hand"], "total": 2, "hasMore": false}}
        > 3 completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/1/x"}, "argument": {"name": "part", "value": "f"}}
        < 3 {"completion": {"values": ["foot"]}}
        > 4 completion/complete {"ref": {"type": "ref/prompt", "name": "nobody"}, "argument": {"name": "name", "value": ""}}
        < 4 error -32602 ref
        > 5 completion/complete {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "nothing", "value": ""}}
        < 5 error -32602 argument
        > 6 completion/complete {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name"}}
        < 6 error -32602 argument
        > 7 completion/complete {"ref": {"type": "ref/other", "name": "greet"}, "argument": {"name": "name", "value": ""}}
        < 7 error -32602
        > 8 completion/complete {"ref": 3}
        < 8 error -32602 ref""")
    known = {"arguments": {"b": "1", "a": "2"}}
    for context, values in (({}, 100), ({"context": known}, 2)):
        conversation.do("> 9 completion/complete " + json.dumps({
            "ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "q"}, **context}))
        completion = conversation.receive()["result"]["completion"]
        if context and "completion context" in rules(version).features:
            assert completion == {"values": ["a", "b"], "total": 2, "hasMore": False}
        else:
            assert len(completion["values"]) == mcp_ref.MAX_COMPLETIONS == 100
            assert completion["total"] == 120 and completion["hasMore"] is True


@pytest.mark.parametrize("method, member", [
    ("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts"),
    ("resources/templates/list", "resourceTemplates")])
def test_pages(talk: Any, method: str, member: str) -> None:
    conversation = start(talk, "2025-11-25", server=make_server(page_size=2))
    seen, cursor = [], None
    for number in range(20):
        conversation.do("> %d %s %s" % (number, method, json.dumps({"cursor": cursor} if cursor else {})))
        result = conversation.receive()["result"]
        assert len(result[member]) <= 2
        seen += result[member]
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    whole = start(talk, "2025-11-25")
    whole.do("> 1 " + method)
    assert whole.receive()["result"][member] == seen
    for bad in ("", "x", "MTA=", 5, True, [], base64.b64encode(b"tool:999").decode(),
                base64.b64encode(b"other:1").decode(), base64.b64encode(b"tool:-1").decode()):
        conversation.hold("> 1 %s %s\n< 1 error -32602 cursor" % (method, json.dumps({"cursor": bad})))


# ------------------------------------------------------------------------------------------
# Progress, logging, cancellation, changes
# ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("token", ["0", '"t"', "7"])
def test_progress_needs_a_token_and_grows(talk: Any, version: str, token: str) -> None:
    conversation = start(talk, version)
    message = '"at 0"' if "progress messages" in rules(version).features else "null"
    conversation.hold("""
        > 1 tools/call {"name": "steps"}
        < 1 {}
        > 2 tools/call {"name": "steps", "_meta": {"progressToken": %s}}
        < - notifications/progress {"progressToken": %s, "progress": 0, "total": 3, "message": %s}
        < - notifications/progress {"progress": 1}
        < - notifications/progress {"progress": 2.5}
        < 2 {"content": [{"text": "done"}]}
        > 3 tools/call {"name": "steps", "_meta": {"progressToken": true}}
        < 3 {}""" % (token, token, message))


def test_nothing_follows_the_response(talk: Any) -> None:
    server, kept = Server("s"), []

    @server.tool
    def keeps(ctx: Context) -> str:
        kept.append(ctx)
        return "x"
    conversation = talk("""
        open 2025-11-25
        > 1 tools/call {"name": "keeps", "_meta": {"progressToken": 1}}
        < 1 {}""", server)
    kept[0].progress(1)
    kept[0].log("error", "late")
    kept[0].notify("notifications/elicitation/complete", {"elicitationId": "e"})
    conversation.hold("""
        # the session may still be told, but not about the request
        < - notifications/elicitation/complete {"elicitationId": "e"}
        > 2 ping
        < 2 {}""")


@pytest.mark.parametrize("version", LEGACY)
def test_logging_in_a_session(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    conversation.do('> 1 tools/call {"name": "talk"}')
    for level in mcp_ref.LOG_LEVELS[1:]:
        conversation.do('< - notifications/message {"level": "%s", "logger": "talker", "data": {"says": "%s"}}' % (level, level))
    conversation.hold("""
        < 1 {}
        > 2 logging/setLevel {"level": "alert"}
        < 2 {}
        > 3 tools/call {"name": "talk"}
        < - notifications/message {"level": "alert"}
        < - notifications/message {"level": "emergency"}
        < 3 {}
        > 4 logging/setLevel {"level": "loud"}
        < 4 error -32602 debug, info, notice
        > 5 logging/setLevel
        < 5 error -32602 level""")


def test_logging_by_request(talk: Any) -> None:
    talk("""
        modern
        > 1 tools/call {"name": "talk"}
        < 1 {"content": [{"text": "said"}]}
        > 2 tools/call {"name": "talk", "_meta": {"io.modelcontextprotocol/logLevel": "emergency"}}
        < - notifications/message {"level": "emergency"}
        < 2 {}""")


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("notification", [
    'notifications/cancelled {"requestId": "h", "reason": "because"}', '$/cancelRequest {"id": "h"}'])
def test_cancelling_a_request(talk: Any, version: str, notification: str) -> None:
    conversation = start(talk, version)
    conversation.do('> "h" tools/call {"name": "hold", "arguments": {"name": "c"}, "_meta": {"progressToken": 5}}')
    door = conversation.server.door     # type: ignore[attr-defined]
    assert door("c runs").wait(PATIENCE)
    conversation.do("> - " + notification)
    assert door("c done").wait(PATIENCE), "ctx.cancelled was not set"
    conversation.hold("""
        # no progress, no response
        > 2 tools/call {"name": "echo", "arguments": {"text": "next"}}
        < 2 {}""")


def test_cancelling_a_coroutine(talk: Any) -> None:
    server, told = Server("s"), threading.Event()
    runs, stop = threading.Event(), threading.Event()

    @server.tool
    async def waits(ctx: Context) -> str:
        import asyncio
        runs.set()
        while not ctx.cancelled:
            await asyncio.sleep(0.005)
        told.set()
        return "x"
    conversation = talk('open 2025-11-25\n> 1 tools/call {"name": "waits"}', server)
    assert runs.wait(PATIENCE)
    conversation.do('> - notifications/cancelled {"requestId": 1}')
    assert told.wait(PATIENCE)
    stop.set()


def subscribed(conversation: Conversation) -> None:
    """Wait until nothing is under way: what was sent before has been taken."""
    conversation.hold('> "sync" completion/complete {"ref": 1}\n< "sync" error -32602')


def test_subscriptions(ordered: Any) -> None:
    conversation = ordered("""
        modern
        > 0 subscriptions/listen {"notifications": {"toolsListChanged": true, "promptsListChanged": false, "resourceSubscriptions": ["test://text"], "unknown": true}}
        < - notifications/subscriptions/acknowledged {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}, "notifications": {"toolsListChanged": true, "promptsListChanged": null, "resourceSubscriptions": ["test://text"], "unknown": null}}
        > "b" subscriptions/listen {"notifications": {"resourcesListChanged": true}}
        < - notifications/subscriptions/acknowledged {"_meta": {"io.modelcontextprotocol/subscriptionId": "b"}, "notifications": {"resourcesListChanged": true}}
        > 0 tools/list
        < 0 error -32600 in use""")
    conversation.wire.waiting["0"] += 1
    settle(conversation, 2)
    for what in ("prompts", "test://other", "tools", "test://text", "resources"):
        conversation.server.changed(what)
    conversation.hold("""
        < - notifications/tools/list_changed {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}}
        < - notifications/resources/updated {"uri": "test://text", "_meta": {"io.modelcontextprotocol/subscriptionId": 0}}
        < - notifications/resources/list_changed {"_meta": {"io.modelcontextprotocol/subscriptionId": "b"}}
        > - notifications/cancelled {"requestId": 0}""")
    settle(conversation, 1)
    conversation.server.changed("tools")
    conversation.server.changed("resources")
    conversation.hold("""
        < - notifications/resources/list_changed {}
        > 0 server/discover
        < 0 {}""")
    rest = conversation.line.close()
    assert [one.get("method", one.get("id")) for one in rest] == ["notifications/cancelled", "b"]
    assert rest[0]["params"]["requestId"] == "b"
    assert rest[1]["result"]["_meta"][mcp_ref.META_SUBSCRIPTION] == "b"
    assert rest[1]["result"]["resultType"] == "complete"
    conversation.line.close = lambda: []       # type: ignore[method-assign]


def settle(conversation: Conversation, count: int) -> None:
    """Wait until the server has this many subscriptions."""
    deadline = time.monotonic() + PATIENCE
    while len(conversation.server._listening) != count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_subscription_needs_a_valid_filter(talk: Any) -> None:
    talk("""
        modern
        > 1 subscriptions/listen
        < 1 error -32602 notifications
        > 2 subscriptions/listen {"notifications": {"toolsListChanged": 1}}
        < 2 error -32602 toolsListChanged
        > 3 subscriptions/listen {"notifications": {"resourceSubscriptions": "x"}}
        < 3 error -32602 resourceSubscriptions
        > 4 subscriptions/listen {"notifications": {"resourceSubscriptions": [3]}}
        < 4 error -32602 resourceSubscriptions""")
    talk("""
        modern
        > 1 subscriptions/listen {"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["x://y"]}}
        < - notifications/subscriptions/acknowledged {"notifications": {"toolsListChanged": null, "resourceSubscriptions": null}}
        > - notifications/cancelled {"requestId": 1}
        > 2 server/discover
        < 2 {}""", Server("has none of these"))


@pytest.mark.parametrize("version", LEGACY)
def test_changes_in_a_session(talk: Any, version: str) -> None:
    missing = mcp_ref.RESOURCE_NOT_FOUND
    conversation = start(talk, version)
    conversation.hold("""
        > 1 resources/subscribe {"uri": "test://text"}
        < 1 {}
        > 2 resources/subscribe {"uri": "file:///some/file"}
        < 2 {}
        > 3 resources/subscribe {"uri": "test://nothing"}
        < 3 error %d
        > 4 resources/unsubscribe {"uri": "test://never"}
        < 4 {}""" % missing)
    for what in ("tools", "prompts", "resources", "test://text", "test://blob", "file:///some/file"):
        conversation.server.changed(what)
    conversation.hold("""
        < - notifications/tools/list_changed {}
        < - notifications/prompts/list_changed {}
        < - notifications/resources/list_changed {}
        < - notifications/resources/updated {"uri": "test://text"}
        < - notifications/resources/updated {"uri": "file:///some/file"}
        > 5 resources/unsubscribe {"uri": "test://text"}
        < 5 {}""")
    conversation.server.changed("test://text")
    with pytest.raises(ValueError):
        conversation.server.changed("tool")


def test_no_change_is_told_before_the_handshake_is_complete(talk: Any) -> None:
    conversation = talk("""
        > 0 initialize {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        < 0 {}""")
    conversation.server.changed("tools")
    conversation.hold("> 1 ping\n< 1 {}\n> - notifications/initialized\n> 2 ping\n< 2 {}")
    conversation.server.changed("tools")
    conversation.do("< - notifications/tools/list_changed {}")


@pytest.mark.parametrize("version", versions())
def test_notifications_go_where_they_are_defined(talk: Any, version: str) -> None:
    conversation = start(talk, version)
    for name in ("notifications/elicitation/complete", "notifications/tools/list_changed", "notifications/own"):
        conversation.do('> 1 tools/call {"name": "tell", "arguments": {"method": "%s"}}' % name)
        if name not in NOTIFICATIONS or name in rules(version).notifications:
            conversation.do("< - %s {}" % name)
        conversation.do('< 1 {"content": [{"text": "%s"}]}' % version)


@pytest.mark.parametrize("version", versions())
def test_extension_methods(talk: Any, version: str) -> None:
    start(talk, version).hold("""
        > 1 example.org/verb {"x": 5}
        < 1 {"got": 5, "version": "%s", "resultType": %s}""" % (
            version, '"complete"' if version in MODERN else "null"))


# ------------------------------------------------------------------------------------------
# Asking the client
# ------------------------------------------------------------------------------------------

ANSWERS = {"elicitation/create": '{"action": "accept", "content": {"branch": "main"}}'}


def test_elicitation_by_request(talk: Any) -> None:
    for version in LEGACY[:2]:
        start(talk, version, '{"elicitation": {}}').hold("""
            > 1 tools/call {"name": "branch"}
            < #1 elicitation/create {"mode": %s, "message": "Which branch?", "requestedSchema": {"type": "object", "properties": {"branch": {"type": "string"}, "force": {"type": "boolean", "default": false}}, "required": ["branch"]}}
            > #1 {"action": "accept", "content": {"branch": "main"}}
            < 1 {"content": [{"text": "{\\"action\\": \\"accept\\", \\"content\\": {\\"branch\\": \\"main\\"}}"}]}
            > 2 tools/call {"name": "branch"}
            < #2 elicitation/create {}
            > #2 {"action": "decline"}
            < 2 {"isError": null}
            > 3 tools/call {"name": "branch"}
            < #3 elicitation/create {}
            > #3 {"action": "accept", "content": {"branch": 3}}
            < 3 {"content": [{"text": "failed: the client's answer to elicitation/create is malformed: /branch: must be of type string"}]}
            > 4 tools/call {"name": "branch"}
            < #4 elicitation/create {}
            > {"jsonrpc": "2.0", "id": 4, "error": {"code": -1, "message": "no"}}
            < 4 {"content": [{"text": "failed: the client refused: no"}]}
            > 5 tools/call {"name": "branch"}
            < #5 elicitation/create {}
            > {"jsonrpc": "2.0", "id": 5, "result": {}, "error": {}}
            < 5 {}
            > 6 tools/call {"name": "branch"}
            < #6 elicitation/create {}
            > {"jsonrpc": "2.0", "id": 6}
            < 6 {}
            # late, or twice: nobody cares
            > #6 {"action": "accept"}
            > 7 ping
            < 7 {}""" % ('"form"' if "URL elicitation" in rules(version).features else "null"))


def test_elicitation_by_result(talk: Any) -> None:
    talk("""
        modern {"elicitation": {}}
        > 1 tools/call {"name": "branch"}
        < 1 {"resultType": "input_required", "inputRequests": {"elicitation-1": {"method": "elicitation/create", "id": null, "params": {"mode": "form", "message": "Which branch?", "elicitationId": null}}}, "content": null, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.2"}}}
        > 2 tools/call {"name": "branch", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "accept", "content": {"branch": "main"}}, "other": 3}}
        < 2 {"resultType": "complete", "content": [{"text": "{\\"action\\": \\"accept\\", \\"content\\": {\\"branch\\": \\"main\\"}}"}]}
        # without state, answers are taken all the same
        > 3 tools/call {"name": "branch", "inputResponses": {"elicitation-1": {"action": "cancel"}}}
        < 3 {"resultType": "complete"}""")


@pytest.mark.parametrize("answer", [
    "{}", '{"wrong": {"action": "accept", "content": {"branch": "b"}}}', '{"elicitation-1": 3}',
    '{"elicitation-1": {"action": "maybe"}}', '{"elicitation-1": {"action": "accept"}}', '{"elicitation-1": null}',
    '{"elicitation-1": {"action": "accept", "content": {"branch": 3}}}'])
def test_a_missing_or_malformed_answer_is_asked_for_again(talk: Any, answer: str) -> None:
    talk("""
        modern {"elicitation": {}}
        > 1 tools/call {"name": "branch", "inputResponses": %s}
        < 1 {"resultType": "input_required", "inputRequests": {"elicitation-1": {"method": "elicitation/create"}}}""" % answer)


@pytest.mark.parametrize("answers", ["null", "3", "[]"])
def test_answers_that_are_no_object_are_refused(talk: Any, answers: str) -> None:
    talk("""
        modern {"elicitation": {}}
        > 1 tools/call {"name": "branch", "inputResponses": %s}
        < 1 error -32602 inputResponses""" % answers)


def test_two_rounds_and_what_the_state_remembers(talk: Any) -> None:
    conversation = talk("""
        modern {"elicitation": {"form": {}}}
        > 1 tools/call {"name": "twice"}
        < 1 {"inputRequests": {"elicitation-1": {}, "second": null}}""")
    first = conversation.state
    conversation.hold("""
        > 2 tools/call {"name": "twice", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "accept", "content": {"one": 1}}}}
        < 2 {"inputRequests": {"second": {"method": "elicitation/create"}, "elicitation-1": null}}""")
    assert conversation.state != first
    conversation.hold("""
        > 3 tools/call {"name": "twice", "requestState": "STATE", "inputResponses": {"second": {"action": "accept", "content": {"two": 2}}}}
        < 3 {"resultType": "complete", "content": [{"text": "1 2"}]}""")


def test_an_answer_belongs_to_its_question(talk: Any) -> None:
    """A handler that takes another way, or changes its question, does not get an old answer."""
    server, way = Server("s"), ["a"]

    @server.tool
    def branches(ctx: Context) -> str:
        said = [ctx.elicit("Delete %s?" % name, sure=bool)["action"] for name in way[0]]
        return " ".join(said)

    @server.tool
    def loop(ctx: Context) -> str:
        return " ".join(ctx.elicit("Delete %s?" % name, key="same", sure=bool)["action"] for name in "ab")
    yes = '{"action": "accept", "content": {"sure": true}}'
    conversation = start(talk, MODERN[0], '{"elicitation": {}}', server).hold("""
        > 1 tools/call {"name": "branches"}
        < 1 {"inputRequests": {"elicitation-1": {"params": {"message": "Delete a?"}}}}""")
    way[0] = "ba"
    conversation.hold("""
        > 2 tools/call {"name": "branches", "requestState": "STATE", "inputResponses": {"elicitation-1": %s}}
        < 2 {"inputRequests": {"elicitation-1": {"params": {"message": "Delete b?"}}}}
        > 3 tools/call {"name": "branches", "requestState": "STATE", "inputResponses": {"elicitation-1": %s}}
        < 3 {"inputRequests": {"elicitation-2": {"params": {"message": "Delete a?"}}}}""" % (yes, yes))
    way[0] = "cb"
    conversation.hold("""
        > 4 tools/call {"name": "branches", "requestState": "STATE", "inputResponses": {"elicitation-2": %s}}
        < 4 {"inputRequests": {"elicitation-1": {"params": {"message": "Delete c?"}}}}
        > 5 tools/call {"name": "loop"}
        < 5 {"inputRequests": {"same": {}}}
        > 6 tools/call {"name": "loop", "requestState": "STATE", "inputResponses": {"same": %s}}
        < 6 {"isError": true, "content": [{"text": "a key was used before, of these: same"}]}""" % (yes, yes))
    start(talk, "2025-11-25", '{"elicitation": {}}', server).hold("""
        > 1 tools/call {"name": "loop"}
        < #1 elicitation/create {}
        > #1 {"action": "decline"}
        < 1 {"isError": true}""")


def test_mistakes_in_a_question() -> None:
    for mistake in (lambda: elicitation("?", url=str), lambda: elicitation("?", schema=str), lambda: sampling("x", temprature=0),
                    lambda: elicitation("?", x=List[str]), lambda: elicitation("?", x=dict), lambda: elicitation("?", x=Point)):
        with pytest.raises(TypeError):
            mistake()       # type: ignore[operator]


def test_request_state_is_sealed(talk: Any, monkeypatch: Any) -> None:
    conversation = talk("""
        modern {"elicitation": {}}
        > 1 tools/call {"name": "twice", "arguments": {"first": "a"}, "inputResponses": {"elicitation-1": {"action": "accept", "content": {"one": 1}}}}
        < 1 {"resultType": "input_required"}""")
    state = conversation.state
    for bad in (state + "x", "x" + state, state[:-1], state.replace(".", ""), "", ".", "\u00e9." + state, 7, {},
                state.split(".")[0] + "." + "0" * 64, state.swapcase()):
        conversation.hold("> 2 tools/call %s\n< 2 error -32602 requestState" % json.dumps(
            {"name": "twice", "arguments": {"first": "a"}, "requestState": bad}))
    conversation.hold("""
        # on other arguments, or with another tool, it is refused
        > 3 tools/call {"name": "twice", "arguments": {"first": "b"}, "requestState": "STATE"}
        < 3 error -32602 requestState
        > 4 tools/call {"name": "branch", "requestState": "STATE"}
        < 4 error -32602 requestState
        > 5 prompts/get {"name": "asks_first", "requestState": "STATE"}
        < 5 error -32602 requestState
        # where nothing is asked, it is passed over
        > 6 tools/list {"requestState": "nonsense"}
        < 6 {}
        > 7 tools/call {"name": "twice", "arguments": {"first": "a"}, "requestState": "STATE"}
        < 7 {"inputRequests": {"second": {}}}""")
    monkeypatch.setattr(mcp_ref.time, "time", lambda now=time.time(): now + mcp_ref.STATE_SECONDS + 2)
    conversation.hold("""
        > 8 tools/call {"name": "twice", "arguments": {"first": "a"}, "requestState": "STATE"}
        < 8 error -32602 requestState""")


def test_request_state_is_bound_to_the_principal_and_shared_by_the_key() -> None:
    meta = {mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: {"elicitation": {}}}

    def call(server: Server, principal: Any, **params: Any) -> Dict[str, Any]:
        out: List[Any] = []
        server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "twice", "_meta": meta, **params}}, out.append, principal=principal)
        assert len(out) == 1
        return out[0]       # type: ignore[no-any-return]
    one, two, stranger = make_server(state_key="k"), make_server(state_key=b"k"), make_server()
    answers = {"elicitation-1": {"action": "accept", "content": {"one": 1}}}
    state = call(one, {"sub": "ann"}, inputResponses=answers)["result"]["requestState"]
    for server, principal, good in ((one, {"sub": "ann"}, True), (two, {"sub": "ann"}, True),
                                    (two, {"sub": "bob"}, False), (two, None, False),
                                    (stranger, {"sub": "ann"}, False)):
        answer = call(server, principal, requestState=state)
        assert ("second" in answer.get("result", {}).get("inputRequests", {})) == good, answer
        assert good or answer["error"]["code"] == mcp_ref.INVALID_PARAMS


@pytest.mark.parametrize("version", versions())
def test_several_questions_in_one_round(talk: Any, version: str) -> None:
    if "elicitation/create" not in rules(version).methods:
        return
    conversation = start(talk, version, '{"elicitation": {}, "sampling": {}, "roots": {}}')
    conversation.do('> 1 tools/call {"name": "several"}')
    replies = {"elicitation/create": {"action": "accept", "content": {"name": "Ann"}},
               "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "h"}, "model": "m"},
               "roots/list": {"roots": [{"uri": "file:///a"}]}}
    if version in MODERN:
        asked = conversation.receive()["result"]["inputRequests"]
        assert list(asked) == ["who", "model", "where"] and asked["where"] == {"method": "roots/list"}
        assert asked["model"]["params"] == {"maxTokens": 9, "messages": [
            {"role": "user", "content": {"type": "text", "text": "Hi"}}]}
        conversation.do('> 2 tools/call {"name": "several", "requestState": "STATE", "inputResponses": %s}' % json.dumps(
            {key: replies[question["method"]] for key, question in asked.items()}))
    else:
        for _ in range(3):
            asked = conversation.receive()
            conversation.message({"jsonrpc": "2.0", "id": asked["id"], "result": replies[asked["method"]]})
    conversation.expect('%d {"content": [{"text": "[\\"model\\", \\"where\\", \\"who\\"]"}]}' % (
        2 if version in MODERN else 1), conversation.receive())


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("capabilities, tool, arguments, missing", [
    ({}, "branch", {}, {"elicitation": {"form": {}}}), ({"elicitation": None}, "branch", {}, {"elicitation": {"form": {}}}),
    ({}, "think", {}, {"sampling": {}}), ({}, "folders", {}, {"roots": {}}),
    ({"elicitation": {}}, "visit", {}, {"elicitation": {"url": {}}}),
    ({"elicitation": {"form": {}}}, "visit", {"wait": False}, {"elicitation": {"url": {}}}),
    ({"elicitation": {"url": {}}}, "form", {}, {"elicitation": {"form": {}}}),
    ({"sampling": {}}, "think", {"tools": True}, {"sampling": {"tools": {}}}),
    ({"roots": {}, "sampling": {}}, "several", {}, {"elicitation": {"form": {}}}),
])
def test_nothing_is_asked_that_was_not_declared(
        talk: Any, version: str, capabilities: Any, tool: str, arguments: Any, missing: Any) -> None:
    conversation = start(talk, version, json.dumps(capabilities))
    conversation.do("> 1 tools/call " + json.dumps({"name": tool, "arguments": arguments}))
    answer = conversation.receive()
    if tool == "branch":                # this one catches exceptions
        assert answer["result"]["content"][0]["text"].startswith(
            "failed: The client has no elicitation" if "elicitation/create" in rules(version).methods
            else "failed: Revision %s has no elicitation for it" % version)
    elif version in MODERN:
        assert answer["error"]["code"] == mcp_ref.MISSING_CAPABILITY
        assert answer["error"]["data"] == {"requiredCapabilities": missing}
    else:
        assert answer["result"]["isError"] is True


def test_url_mode(talk: Any) -> None:
    talk("""
        open 2025-11-25 {"elicitation": {"url": {}}}
        > 1 tools/call {"name": "visit"}
        < #1 elicitation/create {"mode": "url", "url": "https://example.org/in", "message": "Sign in", "elicitationId": "e1", "requestedSchema": null}
        > #1 {"action": "accept"}
        < - notifications/elicitation/complete {"elicitationId": "e1"}
        < 1 {"content": [{"text": "accept"}]}
        > 2 tools/call {"name": "visit", "arguments": {"wait": false}}
        < 2 error -32042 example.org/in""")
    conversation = talk("""
        modern {"elicitation": {"url": {}}}
        > 1 tools/call {"name": "visit", "arguments": {"wait": false}}
        < 1 {"inputRequests": {"elicitation-1": {"params": {"mode": "url", "url": "https://example.org/in", "message": "Sign in", "elicitationId": null}}}}
        > 2 tools/call {"name": "visit", "arguments": {"wait": false}, "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "accept"}}}
        < 2 {"content": [{"text": "accept"}]}""")
    assert conversation


def test_a_page_is_asked_for_once(talk: Any) -> None:
    """The id that older clients get is new in every round; it is not part of the question."""
    server = Server("s")

    @server.tool
    def connect(ctx: Context) -> str:
        return str(ctx.elicit("Sign in", url="https://example.org/in")["action"])
    start(talk, MODERN[0], '{"elicitation": {"url": {}}}', server).hold("""
        > 1 tools/call {"name": "connect"}
        < 1 {"resultType": "input_required"}
        > 2 tools/call {"name": "connect", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "accept"}}}
        < 2 {"content": [{"text": "accept"}]}""")


@pytest.mark.parametrize("version", versions())
def test_forms_in_the_words_of_each_revision(talk: Any, version: str) -> None:
    if "elicitation/create" not in rules(version).methods:
        return
    conversation = start(talk, version, '{"elicitation": {}}')
    conversation.do('> 1 tools/call {"name": "form"}')
    message = conversation.receive()
    asked = message["result"]["inputRequests"]["elicitation-1"] if version in MODERN else message
    schema = asked["params"]["requestedSchema"]
    assert schema["required"] == ["color", "age"]
    fields = schema["properties"]
    assert fields["age"] == {"type": "integer", "description": "in years", "minimum": 0}
    assert fields["note"] == {"type": "string"} and fields["raw"] == {"type": "string", "format": "email"}
    if "rich forms" in rules(version).features:
        assert fields["color"] == {"type": "string", "oneOf": [{"const": "r", "title": "RED"},
                                                               {"const": "b", "title": "BLUE"}]}
        assert fields["kind"] == {"type": "string", "enum": ["a", "b"], "default": "b"}
    else:
        assert fields["color"] == {"type": "string", "enum": ["r", "b"], "enumNames": ["RED", "BLUE"]}
        assert fields["kind"] == {"type": "string", "enum": ["a", "b"]}
    if version not in MODERN:
        conversation.hold('> #1 {"action": "cancel"}\n< 1 {"content": [{"text": "cancel"}]}')
    conversation.do('> 2 tools/call {"name": "many"}')
    message = conversation.receive()
    if "rich forms" not in rules(version).features:
        assert message["result"]["isError"] is True
        return
    asked = message["result"]["inputRequests"]["elicitation-1"] if version in MODERN else message
    fields = asked["params"]["requestedSchema"]["properties"]
    assert fields["colors"] == {"type": "array", "items": {"anyOf": [{"const": "r", "title": "RED"},
                                                                     {"const": "b", "title": "BLUE"}]}}
    assert fields["kinds"] == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    if version not in MODERN:
        conversation.hold('> #2 {"action": "accept", "content": {"colors": ["r", "b"], "kinds": []}}\n< 2 {}')


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("context", [True, False])
def test_sampling_in_the_words_of_each_revision(talk: Any, version: str, context: bool) -> None:
    conversation = start(talk, version, json.dumps({"sampling": {"tools": {}, **({"context": {}} if context else {})}}))
    conversation.do('> 1 tools/call {"name": "think", "arguments": {"context": true}}')
    message = conversation.receive()
    params = (message["result"]["inputRequests"]["sampling-1"] if version in MODERN else message)["params"]
    features = rules(version).features
    if "sampling tools" in features:
        assert [len(one["content"]) for one in params["messages"]] == [2]
        assert ("includeContext" in params) == context
    else:
        assert [one["content"]["text"] for one in params["messages"]] == ["a", "b"]
        assert params["includeContext"] == "thisServer"     # there is no capability for it
    if version not in MODERN:
        conversation.hold("""
            > #1 {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m1"}
            < 1 {"content": [{"text": "m1"}]}
            > 2 tools/call {"name": "think"}
            < #2 sampling/createMessage {"maxTokens": 1000, "tools": null}
            > #2 {"role": "assistant"}
            < 2 {"isError": true}""")
    if "sampling tools" in features:
        conversation.do('> 3 tools/call {"name": "think", "arguments": {"tools": true}}')
        message = conversation.receive()
        asked = message["result"]["inputRequests"]["sampling-1"] if version in MODERN else message
        assert asked["params"]["tools"][0]["name"] == "t"
        if version not in MODERN:
            conversation.hold("""
                > {"jsonrpc": "2.0", "id": 3, "result": {"role": "assistant", "content": [{"type": "tool_use"}], "model": "m"}}
                < 3 {}""")


def test_roots_and_prompts_and_resources_that_ask(talk: Any) -> None:
    for version in LEGACY:
        start(talk, version, '{"roots": {"listChanged": true}}').hold("""
            > 1 tools/call {"name": "folders"}
            < #1 roots/list {}
            > #1 {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]}
            < 1 {"content": [{"text": "file:///a,file:///b"}]}
            > - notifications/roots/list_changed
            > 2 tools/call {"name": "folders"}
            < #2 roots/list {}
            > #2 {"roots": [{"name": "no uri"}]}
            < 2 {"isError": true}""")
    talk("""
        modern {"elicitation": {}}
        > 1 prompts/get {"name": "asks_first"}
        < 1 {"resultType": "input_required", "messages": null}
        > 2 prompts/get {"name": "asks_first", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "accept", "content": {"tone": "dry"}}}}
        < 2 {"messages": [{"content": {"text": "dry"}}]}
        > 3 resources/read {"uri": "test://asks"}
        < 3 {"resultType": "input_required", "contents": null}
        > 4 resources/read {"uri": "test://asks", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "decline"}}}
        < 4 {"contents": [{"text": "decline"}]}
        modern
        > 5 resources/read {"uri": "test://asks"}
        < 5 error -32021 requiredCapabilities""")


def test_only_where_the_table_allows_it_may_be_asked(talk: Any) -> None:
    server = make_server()

    @server.method("example.org/ask")
    def ask(params: Any, ctx: Context) -> Any:
        return ctx.elicit("?", x=str)
    start(talk, MODERN[0], '{"elicitation": {}}', server).hold("> 1 example.org/ask\n< 1 error -32603")


def test_a_cancelled_request_gives_up_its_question(talk: Any) -> None:
    talk("""
        open 2025-11-25 {"elicitation": {}}
        > 1 tools/call {"name": "branch"}
        < #1 elicitation/create {}
        > - notifications/cancelled {"requestId": 1}
        < - notifications/cancelled {"requestId": 1}
        > 2 ping
        < 2 {}""")


def test_a_question_that_is_never_answered_times_out(talk: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "ASK_SECONDS", 0.02)
    talk("""
        open 2025-11-25 {"elicitation": {}}
        > 1 tools/call {"name": "branch"}
        < #1 elicitation/create {}
        < - notifications/cancelled {"requestId": 1}
        < 1 {"content": [{"text": "failed: the client did not answer elicitation/create in time"}]}""")


def test_a_client_that_leaves_fails_the_questions(ordered: Any) -> None:
    conversation = ordered("""
        open 2025-11-25 {"elicitation": {}}
        > 1 tools/call {"name": "branch"}
        < #1 elicitation/create {}""")
    if type(conversation.line) is RealPipe:
        rest = conversation.line.close()
        assert [one["result"]["content"][0]["text"] for one in rest] == ["failed: the client is gone"]
        conversation.line.close = lambda: []       # type: ignore[method-assign]


def test_no_question_before_the_handshake_is_complete() -> None:
    """Over HTTP a request may overtake notifications/initialized: it is served, its question waits."""
    server, out, peer = make_server(), queue.Queue(), Peer(ordered=False)
    for message in ({"id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {}}},
                    {"id": 1, "method": "tools/call", "params": {"name": "folders"}}):
        work = server.accept({"jsonrpc": "2.0", **message}, out.put, peer)
    assert "result" in out.get(timeout=PATIENCE) and work is not None
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with pytest.raises(queue.Empty):
        out.get(timeout=0.02)
    server.handle({"jsonrpc": "2.0", "method": "notifications/initialized"}, out.put, peer=peer)
    asked = out.get(timeout=PATIENCE)
    assert asked["method"] == "roots/list"
    server.handle({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}, out.put, peer=peer)
    assert out.get(timeout=PATIENCE)["id"] == 1
    thread.join(PATIENCE)


# ------------------------------------------------------------------------------------------
# Schemas: from hints, and validation
# ------------------------------------------------------------------------------------------

class Mixed(Enum):
    A = 1
    B = "b"


class Partial(TypedDict, total=False):
    """Not all of it is required."""
    x: int


class Tree(NamedTuple):
    left: Optional["Tree"] = None


class Plain:
    """A class that JSON knows nothing of."""


INT, STR = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize("hint, schema", [
    (str, STR), (int, INT), (float, {"type": "number"}), (bool, {"type": "boolean"}), (None, {"type": "null"}),
    (Any, {}), (object, {}), (list, {"type": "array"}), (List[int], {"type": "array", "items": INT}),
    (List[Any], {"type": "array"}), (Dict[str, int], {"type": "object", "additionalProperties": INT}),
    (dict, {"type": "object"}), (Set[str], {"type": "array", "items": STR, "uniqueItems": True}),
    (Tuple[int, ...], {"type": "array", "items": INT}), (tuple, {"type": "array"}),
    (Tuple[int, str], {"type": "array", "prefixItems": [INT, STR], "minItems": 2, "items": False}),
    (Optional[int], {"anyOf": [INT, {"type": "null"}]}), (Union[int, str], {"anyOf": [INT, STR]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}), (Literal["a", 1], {"enum": ["a", 1]}),
    (Color, {"type": "string", "enum": ["r", "b"]}), (Mixed, {"enum": [1, "b"]}),
    (Annotated[int, "count", {"minimum": 1}], {"type": "integer", "description": "count", "minimum": 1}),
    (Weather, {"type": "object", "required": ["degrees", "sky"],
               "properties": {"degrees": {"type": "number"}, "sky": STR}}),
    (Partial, {"type": "object", "properties": {"x": INT}}),
    (Point, {"type": "object", "properties": {"x": INT, "y": INT}, "required": ["x"], "additionalProperties": False}),
    (List[Point], {"type": "array", "items": {"type": "object", "properties": {"x": INT, "y": INT},
                                              "required": ["x"], "additionalProperties": False}}),
    (Node, {"$ref": "#/$defs/Node", "$defs": {"Node": {
        "type": "object", "required": ["name"], "additionalProperties": False,
        "properties": {"name": STR, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}}),
    (Tree, {"$ref": "#/$defs/Tree", "$defs": {"Tree": {
        "type": "object", "additionalProperties": False,
        "properties": {"left": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}}}}}),
])
def test_hints_become_schemas(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema
    Schema(schema_of(hint))


@pytest.mark.parametrize("hint", [Plain, bytes, complex, Dict[int, str], Literal[b"x"], type, List[Plain]])
def test_hints_that_json_cannot_express_are_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="JSON|choice|keys"):
        schema_of(hint)

    def tool(x: Any) -> str:
        return ""
    tool.__annotations__["x"] = hint
    with pytest.raises(TypeError, match=r"tool\(\), x: "):
        Server("s").tool(tool)


def test_mistakes_at_the_decorator() -> None:
    server = Server("s")

    def positional(x: int, /) -> str:
        return ""

    def starred(*x: int) -> str:
        return ""

    def returns_plain() -> Plain:
        return Plain()

    def unknown(x: "Nowhere") -> str:       # type: ignore[name-defined]  # noqa: F821
        return ""

    def fine() -> str:
        return ""
    for function in (positional, starred, returns_plain, unknown):
        with pytest.raises(TypeError, match=function.__name__):
            server.tool(function)
    server.tool(fine)
    for mistake in (lambda: server.tool(fine), lambda: server.resource("no-scheme")(fine),
                    lambda: server.resource("x://{a}")(fine), lambda: server.resource("x://{a")(fine),
                    lambda: server.resource("x://{a*}")(fine), lambda: server.resource("x://\u00fc")(fine),
                    lambda: server.resource("x://a b")(fine), lambda: server.method("rpc.x/y"),
                    lambda: server.method("noprefix"),
                    lambda: server.tool(name="b", input_schema={"type": "array"})(fine),
                    lambda: server.tool(name="b", output_schema={"$ref": "http://x/y"})(fine),
                    lambda: server.tool(name="b", output_schema={"$schema": "http://json-schema.org/draft-04/schema#"})(fine),
                    lambda: Server("s", ttl_ms=-1), lambda: Server("s", cache_scope="shared")):
        with pytest.raises(ValueError):
            mistake()
    for mistake in (lambda: server.tool("name"), lambda: server.resource(fine), lambda: server.tool(titel="x"),
                    lambda: Server("s", web="x")):
        with pytest.raises(TypeError):
            mistake()(fine)     # type: ignore[operator]
    assert list(server.tools) == ["fine"]


@pytest.mark.skipif(sys.version_info >= (3, 10), reason="there the hint is fine")
def test_a_union_by_bar_on_the_floor() -> None:
    def tool(x: "int | None" = None) -> str:
        return ""
    with pytest.raises(TypeError, match="Optional"):
        Server("s").tool(tool)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="needs the syntax")
def test_a_union_by_bar() -> None:
    def tool(x: "int | None" = None) -> str:
        return ""
    Server("s").tool(tool)


class Kinds:
    """Callables of every kind, with the same parameters."""

    def method(self, a: int, b: str = "x", *, c: bool = True, **rest: Any) -> int:
        """Say
            something.

          Args:
            a: the first
        """
        return a

    __call__ = method

    @staticmethod
    def static(a: int, b: str = "x", *, c: bool = True, **rest: Any) -> int:
        return a


def wrapped() -> Any:
    @functools.wraps(Kinds.static)
    def wrapper(*args: Any, **named: Any) -> Any:
        return Kinds.static(*args, **named)
    return wrapper


@pytest.mark.parametrize("function", [
    Kinds().method, Kinds(), Kinds.static, wrapped(), functools.partial(Kinds.static, z=1)],
    ids=["method", "callable", "static", "wrapped", "partial"])
def test_callables_of_every_kind_become_tools(talk: Any, function: Any) -> None:
    server = Server("s")
    server.tool(function, name="t")
    schema = server.tools["t"].definition["inputSchema"]
    assert schema["required"] == ["a"] and "additionalProperties" not in schema
    assert {name: one.get("type") for name, one in schema["properties"].items() if name != "z"} == {
        "a": "integer", "b": "string", "c": "boolean"}
    assert schema["properties"]["b"]["default"] == "x" and schema["properties"]["c"]["default"] is True
    start(talk, MODERN[0], server=server).hold("""
        > 1 tools/call {"name": "t", "arguments": {"a": 5, "more": 1}}
        < 1 {"structuredContent": {"result": 5}}""")


def test_signatures_are_read_as_inspect_reads_them() -> None:
    import inspect

    def all_of_it(a: int, /, b: int, c: int = 1, *d: int, e: int, f: int = 2, **g: int) -> None:
        local = 1
        assert local
    for function in (all_of_it, lambda: 0, lambda x=1, *, y: 0, Kinds.static, Kinds.method):
        ours = {name: (kind, default) for name, kind, default in mcp_ref._parameters_of(function)}
        theirs = {name: ({0: "/", 2: "*", 4: "**"}.get(int(one.kind), ""),
                         mcp_ref._NO_DEFAULT if one.default is one.empty else one.default)
                  for name, one in inspect.signature(function).parameters.items()}
        assert ours == theirs
    assert mcp_ref._doc_of(Kinds.method) == inspect.getdoc(Kinds.method)
    assert mcp_ref._doc_of(all_of_it) == ""


def test_odd_names_are_served_with_one_warning(talk: Any, capsys: Any) -> None:
    server = Server("s")

    @server.tool(name="odd name/\u00e9")
    def odd() -> str:
        return "served"
    assert capsys.readouterr().err.count("odd name") == 1
    start(talk, "2025-11-25", server=server).hold(r"""
        > 1 tools/call {"name": "odd name/\u00e9"}
        < 1 {"content": [{"text": "served"}]}""")


SCHEMAS = [     # schema, values that are valid, values that are not with the message
    ({"type": ["integer", "null"]}, [1, 1.0, None], [("x", "/: must be of type integer or null"), (1.5, ""), (True, "")]),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [(True, "one of"), ("b", "")]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [({"a": [True]}, ""), ({}, "")]),
    ({"multipleOf": 0.0001}, [0.0075, 3], [(0.00751, "multiple")]), ({"multipleOf": 3}, [9, 9.0], [(10, "multiple of 3")]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [(0, "at least 1"), (3, "less than 3")]),
    ({"minLength": 2, "maxLength": 3, "pattern": "^a"}, ["ab", "a\U0001f600", 5], [("a", "shorter"), ("abcd", "longer"), ("bb", "match")]),
    ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [[1], [1, True]], [([], "less"), ([1, 2, 3], "more"), ([1, 1.0], "twice")]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [({}, "less"), ({"a": 1, "b": 2}, "more")]),
    ({"properties": {"items": {"items": {"properties": {"price": {"minimum": 0}}}}}}, [{"items": [{"price": 0}]}],
     [({"items": [{}, {}, {}, {"price": -1}]}, "/items/3/price: must be at least 0")]),
    ({"required": ["a/b~c"]}, [{"a/b~c": 1}], [({}, "/a~1b~0c: is required")]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}], [({"a": 1}, "/b: is required with a")]),
    ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [({"ab": 1}, "/ab: is no valid name")]),
    ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{"xa": 1, "b": "s"}], [({"xa": "s"}, "/xa"), ({"b": 1}, "/b")]),
    ({"prefixItems": [{"type": "integer"}], "items": False}, [[], [1]], [(["a"], "/0"), ([1, 2], "/1: must not be there")]),
    ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3}, [[1, 2, "a"]], [([1], "contains 1"), ([1, 2, 3, 4], "")]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [(3, "at most 2")]),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [([], "one of the types integer, string")]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [2, 3], [(6, "just one"), (5, "")]),
    ({"not": {"type": "integer"}}, ["a"], [(1, "must not match")]),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string"}}, [5, "a"], [(4, "at least 5"), (None, "")]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{}, {"a": 1, "b": 2}], [({"a": 1}, "/b")]),
    ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, [{"a": 1}], [({"b": 1}, "/b")]),
    ({"anyOf": [{"prefixItems": [True]}, {"prefixItems": [True, {"type": "integer"}]}], "unevaluatedItems": False},
     [[1], [1, 2]], [([1, 2, 3], "/2")]),
    ({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": {"type": "integer"}}}, [1], [("x", "integer")]),
    ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "integer"}}}, [1], [("x", "integer")]),
    ({"$id": "https://example.org/root", "$ref": "other#x", "$defs": {"o": {"$id": "other", "$defs": {"d": {"$anchor": "x", "const": 1}}}}},
     [1], [(2, "")]),
    ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, [{"next": {"next": {}}}], [({"next": {"x": 1}}, "/next/x")]),
    ({"format": "email", "title": "T", "x-mcp-header": "H", "unknown": {"$ref": "http://x"}}, ["no mail", 1], []),
    (True, [1], []), (False, [], [(1, "/: must not be there")]),
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_validation(number: int) -> None:
    schema, valid, invalid = SCHEMAS[number]
    checked = Schema(schema)
    for value in valid:
        assert checked.flaw(value) is None, (value, checked.flaw(value))
    for value, message in invalid:
        flaw = checked.flaw(value)
        assert flaw is not None and message in flaw and flaw.startswith("/"), (value, flaw)


@pytest.mark.parametrize("schema", [
    3, [], None, {"type": "thing"}, {"type": [1]}, {"properties": []}, {"required": "a"}, {"required": [1]}, {"minimum": "1"},
    {"multipleOf": 0}, {"minLength": -1}, {"pattern": "("}, {"patternProperties": {"(": {}}}, {"allOf": []}, {"allOf": {}},
    {"items": 3}, {"items": []}, {"enum": 1}, {"$ref": 5}, {"properties": {"a": 3}}, {"uniqueItems": 1},
    {"$ref": "#/nowhere"}, {"$ref": "#nowhere"}, {"$ref": "http://example.org/s"}, {"$ref": "other.json#/a"},
    {"$dynamicRef": "https://example.org/x#y"}, {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    {"$schema": "http://json-schema.org/draft-07/schema#"}, {"$schema": "https://example.org/dialect"},
])
def test_schemas_that_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError):
        Schema(schema)


def test_work_and_depth_of_validation_are_bounded(monkeypatch: Any) -> None:
    assert "too much work" in str(Schema({"$ref": "#"}).flaw(1))
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert "too much work" in str(Schema({"items": {"$ref": "#"}}).flaw(deep))
    nested: Any = {}
    for _ in range(5000):
        nested = {"not": nested}
    with pytest.raises(ValueError):
        Schema(nested)
    bomb: Any = {"$defs": {"0": {"type": "integer"}}}
    for n in range(1, 40):
        bomb["$defs"][str(n)] = {"anyOf": [{"$ref": "#/$defs/%d" % (n - 1)}] * 2}
    monkeypatch.setattr(mcp_ref, "MAX_STEPS", 10_000)
    assert "too much work" in str(Schema({**bomb, "$ref": "#/$defs/39"}).flaw("x"))


# ------------------------------------------------------------------------------------------
# Handlers elsewhere, limits, load
# ------------------------------------------------------------------------------------------

def test_run_decides_where_handlers_run(talk: Any) -> None:
    jobs: queue.Queue[Any] = queue.Queue()
    names: List[str] = []
    loop = threading.Thread(target=lambda: [job() for job in iter(jobs.get, None)], name="main-loop", daemon=True)
    server = Server("s", run=jobs.put)

    @server.tool
    def where(ctx: Context) -> str:
        names.append(threading.current_thread().name)
        return str(ctx.elicit("?", x=str)["action"])

    @server.tool
    async def where_async() -> str:
        return threading.current_thread().name

    @server.tool
    def fails() -> str:
        raise SystemExit(1)
    loop.start()
    start(talk, MODERN[0], '{"elicitation": {}}', server).hold("""
        > 1 tools/call {"name": "where"}
        < 1 {"resultType": "input_required"}
        > 2 tools/call {"name": "where", "requestState": "STATE", "inputResponses": {"elicitation-1": {"action": "decline"}}}
        < 2 {"content": [{"text": "decline"}]}
        > 3 tools/call {"name": "where_async"}
        < 3 {"content": [{"text": "main-loop"}]}
        > 4 tools/call {"name": "fails"}
        < 4 {"isError": true}""")
    assert names == ["main-loop", "main-loop"]
    jobs.put(None)


def test_a_dead_main_loop_gives_an_error(talk: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "START_SECONDS", 0.02)
    late: List[Any] = []
    server = Server("s", run=late.append)
    ran = []

    @server.tool
    def tool() -> str:
        ran.append(1)
        return ""
    start(talk, MODERN[0], server=server).hold("""
        > 1 tools/call {"name": "tool"}
        < 1 {"isError": true, "content": [{"text": "nobody started the handler within 0.02 s: is the loop behind `run=` alive?"}]}""")
    late[0]()
    assert not ran, "it was given up, so it must not run any more"


def test_a_message_may_be_as_large_as_the_limit_and_no_larger(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_MESSAGE_BYTES", 2000)
    for ending in (b"", b"\r"):
        conversation = Conversation("pipe")
        frame = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "%s"}}'
        fits = frame % (b"a" * (2000 - len(frame) + 2))
        assert len(fits) == 2000
        conversation.wire.waiting["1"] += 1
        conversation.line.send(fits + ending)
        conversation.do("< 1 {}")
        for size in (2001, 2002, 2003, 5000, 100_000):
            conversation.line.send(frame % (b"a" * (size - len(frame) + 2)) + ending)
            conversation.hold("< ? error -32700 2000 bytes\n> 2 ping\n< 2 {}")
        conversation.end()
    with pytest.raises(RpcError):
        mcp_ref.decode(b" " * 2001)
    assert mcp_ref.decode(b" " * 1999 + b"1") == 1


def test_depth_is_limited() -> None:
    limit = mcp_ref.MAX_DEPTH
    assert mcp_ref.depth_of(mcp_ref.decode(b"[" * limit + b"]" * limit)) == limit
    with pytest.raises(RpcError):
        mcp_ref.decode(b'{"a":' * (limit + 1) + b"1" + b"}" * (limit + 1))
    assert mcp_ref.depth_of(3) == 0 and mcp_ref.depth_of({}) == 1 and mcp_ref.depth_of([{"a": []}, 1]) == 3
    assert len(mcp_ref.decode(b"[" + b",".join([b"[]"] * 500) + b"]")) == 500


def test_forty_slow_calls_take_as_long_as_one(talk: Any) -> None:
    """All forty run at once: each waits until the others run."""
    server, together = Server("s"), threading.Barrier(40)

    @server.tool
    def meet() -> str:
        together.wait(PATIENCE)
        return "met"
    conversation = start(talk, "2025-11-25", server=server)
    for number in range(40):
        conversation.do('> %d tools/call {"name": "meet"}' % number)
    answers = [conversation.receive() for _ in range(40)]
    assert sorted(answer["id"] for answer in answers) == list(range(40))
    assert all(answer["result"]["content"][0]["text"] == "met" for answer in answers)


def test_three_hundred_slow_calls_do_not_delay_ping() -> None:
    conversation = Conversation("pipe").hold("open 2025-11-25")
    server, door = conversation.server, conversation.server.door      # type: ignore[attr-defined]
    for number in range(300):
        conversation.do('> %d tools/call {"name": "hold", "arguments": {"name": "door"}}' % number)
    conversation.hold('> "p" ping\n< "p" {}')
    assert len(conversation.line.pipe.threads) == mcp_ref.MAX_THREADS == 64
    assert len(server.tools) and len(conversation.line.peer.running) == 300
    conversation.hold("""
        > - notifications/cancelled {"requestId": 299}
        > 5 ping
        < 5 error -32600 in use""")
    conversation.wire.waiting["5"] += 1
    door("door").set()
    answers = [conversation.receive() for _ in range(299)]
    assert sorted(answer["id"] for answer in answers) == list(range(299))
    conversation.end()


def test_requests_in_flight_are_limited(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_RUNNING", 3)
    conversation = Conversation("pipe").hold("open 2025-11-25")
    for number in range(4):
        conversation.do('> %d tools/call {"name": "hold", "arguments": {"name": "d"}}' % number)
    conversation.hold("< 3 error -32603 in flight\n> 4 ping\n< 4 {}")
    conversation.server.door("d").set()     # type: ignore[attr-defined]
    for _ in range(3):
        assert conversation.receive()["id"] in (0, 1, 2)
    conversation.end()


def test_what_the_log_repeats_is_limited(capsys: Any) -> None:
    conversation = Conversation("pipe")
    conversation.line.send(b'{"' + b"s" * 10000 + b"\xff")
    conversation.do("< ? error -32700")
    conversation.end()
    assert len(capsys.readouterr().err) < mcp_ref.MAX_LOGGED + 300


def test_a_handler_that_keeps_the_turn_loses_it(monkeypatch: Any) -> None:
    """A quick handler runs on the reading thread; a slow one is overtaken after a blink."""
    monkeypatch.setattr(mcp_ref, "BLINK_SECONDS", 0.05)         # a busy machine is no slow handler
    conversation = Conversation("pipe").hold("open 2025-11-25")
    conversation.do('> 1 tools/call {"name": "hold", "arguments": {"name": "x"}}')
    conversation.hold("> 2 ping\n< 2 {}")
    assert len(conversation.line.pipe.threads) == 2
    conversation.server.door("x").set()     # type: ignore[attr-defined]
    conversation.do("< 1 {}")
    for number in range(50):
        conversation.hold('> %d tools/call {"name": "echo", "arguments": {"text": "t"}}\n< %d {}' % (number, number))
    assert len(conversation.line.pipe.threads) < 10, "not one for each"
    conversation.end()


# ------------------------------------------------------------------------------------------
# Random input
# ------------------------------------------------------------------------------------------

SEEDS = [json.dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": params}) for name, params in [
    ("ping", {}), ("tools/list", {"cursor": "x"}), ("tools/call", {"name": "echo", "arguments": {"text": "a"}}),
    ("tools/call", {"name": "typed", "arguments": {"color": "r", "tags": [1]}, "_meta": {"progressToken": 1}}),
    ("resources/read", {"uri": "file:///a/b"}), ("prompts/get", {"name": "greet", "arguments": {"name": "x"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}}),
    ("logging/setLevel", {"level": "info"}), ("example.org/verb", {"x": 1}),
    ("tools/call", {"name": "branch", "requestState": "x.y", "inputResponses": {}, "_meta": {
        mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: {"elicitation": {}}}}),
    ("server/discover", {"_meta": {mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: {}}})]]
ODD = [None, True, False, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], [1], {}, {"a": 1}, [[]], "tools/call"]


def broken_line(chance: random.Random) -> bytes:
    """Make a line of bit flips, cuts, nesting or wrong types, of a good one."""
    line = chance.choice(SEEDS)
    kind = chance.randrange(5)
    if kind == 0:
        data = bytearray(line.encode())
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return bytes(data).replace(b"\n", b" ")
    if kind == 1:
        return line[:chance.randrange(len(line))].encode()
    if kind == 2:
        return (line.replace("{", "[{" * chance.randrange(1, 60), 1)).encode()
    message = json.loads(line)
    node = message
    while kind == 3 or chance.random() < 0.6:
        key = chance.choice(sorted(node))
        if kind == 4 and isinstance(node[key], dict) and node[key]:
            node = node[key]
            continue
        if chance.random() < 0.2:
            del node[key]
        else:
            node[key] = chance.choice(ODD)
        break
    return json.dumps(message).encode()


@pytest.mark.parametrize("version", ["", "2025-03-26", "2025-11-25"])
def test_random_input_gets_one_answer_a_line(version: str, capfd: Any) -> None:
    chance = random.Random(20261120)
    conversation = Conversation("pipe")
    if version:
        conversation.hold("open " + version)
    for number in range(10_000 // 3 + 1):
        data = broken_line(chance)
        try:
            message = mcp_ref.decode(data)
        except RpcError:
            message = None
        try:
            kind = mcp_ref.kind_of(message)
        except RpcError:
            kind = "request"
        if isinstance(message, dict) and message.get("method") in (
                "initialize", "notifications/initialized", "subscriptions/listen"):
            continue
        if data.strip():
            conversation.wire.sent(message)
            conversation.line.send(data)
        if kind == "request" and data.strip():
            answer = conversation.line.receive()
            if isinstance(answer, dict) and isinstance(message, dict) and mcp_ref.is_id(message.get("id")):
                assert answer["id"] == message["id"], (data, answer)
            if not isinstance(message, dict):
                assert answer if isinstance(answer, list) else "error" in answer
            while isinstance(answer, dict) and "method" in answer:
                answer = conversation.line.receive()
            text = json.dumps(answer)
            assert "Traceback" not in text and '"code": -32603' not in text, (data, answer)
        if number % 50 == 0:
            conversation.wire.waiting.clear()
            conversation.hold('> "good" ping\n< "good" {}')
    conversation.end()
    captured = capfd.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err


# ------------------------------------------------------------------------------------------
# Real processes
# ------------------------------------------------------------------------------------------

DIRTY = """
import os, subprocess, sys, threading, time
print("printed at import")
from mcp_ref import Server, Context
server = Server("dirty")

@server.tool
def dirt(how: str) -> str:
    if how == "print":
        print("dirt", flush=True)
    elif how == "write":
        os.write(1, b"dirt")
    elif how == "system":
        os.system("echo dirt")
    elif how == "child":
        return subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"],
                              stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    elif how == "input":
        return repr(sys.stdin.read())
    elif how == "descriptors":
        return subprocess.run([sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"],
                              stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    return "done"

@server.tool
def busy(how: str, ctx: Context) -> str:
    ctx.notify("started")
    while how == "loop" or not ctx.cancelled:
        if how == "sleep":
            time.sleep(0.01)
        if how == "chatty":
            print("chat", flush=True)
    return "over"

@server.tool
def brief(ctx: Context) -> str:
    ctx.notify("started")
    time.sleep(0.05)
    return "finished"

server.run()
print("after", file=sys.stderr)
"""


# With PYTHONUNBUFFERED what a script prints before run() is out before anybody can guard it.
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
               "PYTHONPATH": str(HERE)}


class Process:
    """A real server process, with pipes to talk to it."""

    def __init__(self, folder: Path, source: str = DIRTY, *arguments: str) -> None:
        script = folder / "server.py"
        script.write_text(source, encoding="utf-8")
        command = [sys.executable, str(script)] if source else [sys.executable]
        self.child = subprocess.Popen(
            command + list(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=str(folder), env=ENVIRONMENT)
        self.lines: queue.Queue[Any] = queue.Queue()
        self.reader = threading.Thread(target=self.pump, daemon=True)
        if "close stdout" not in arguments:         # who reads keeps it open
            self.reader.start()

    def pump(self) -> None:
        assert self.child.stdout
        try:
            for line in self.child.stdout:
                self.lines.put(json.loads(line))        # a line that is no JSON shows as None
        except ValueError:
            pass
        self.lines.put(None)

    def send(self, *messages: Dict[str, Any]) -> None:
        assert self.child.stdin
        for message in messages:
            self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.child.stdin.flush()

    def receive(self) -> Any:
        if self.reader.ident is None:
            return json.loads(self.child.stdout.readline())     # type: ignore[union-attr]
        return self.lines.get(timeout=PATIENCE)

    def open(self) -> "Process":
        self.send({"id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}},
            {"method": "notifications/initialized"})
        assert self.receive()["id"] == 0
        return self

    def call(self, ident: int, name: str, **arguments: Any) -> None:
        self.send({"id": ident, "method": "tools/call", "params": {"name": name, "arguments": arguments}})

    def gone(self) -> Tuple[int, str]:
        """Wait for the end; return the exit status and stderr. Nothing but JSON was on stdout."""
        status = self.child.wait(PATIENCE)
        if self.reader.ident is not None:
            self.reader.join(PATIENCE)
        assert self.child.stderr
        with self.child.stderr as stderr:
            error = stderr.read().decode()
        for stream in (self.child.stdin, self.child.stdout):
            assert stream
            try:
                stream.close()
            except OSError:
                pass
        assert "Traceback" not in error and "Fatal" not in error, error
        return status, error


@pytest.fixture
def process(tmp_path: Path) -> Any:
    started: List[Process] = []

    def start(*arguments: Any) -> Process:
        started.append(Process(tmp_path, *arguments))
        return started[-1]
    yield start
    for one in started:
        if one.child.poll() is None:
            one.child.kill()
            one.child.wait()


def test_nothing_dirties_the_stream(process: Any) -> None:
    server = process().open()
    for number, how in enumerate(["print", "write", "system", "child", "input", "descriptors"], 1):
        server.call(number, "dirt", how=how)
        answer = server.receive()
        assert answer["id"] == number
        said = answer["result"]["content"][0]["text"]
        assert said == {"child": "''", "input": "''"}.get(how, said)
        if how == "descriptors" and said:       # 0, 1, 2 and the one that lists them
            assert len(json.loads(said)) == 4, said
    server.child.stdin.close()
    status, error = server.gone()
    assert status == 0 and server.receive() is None
    assert error.count("dirt") == 3 and "printed at import" in error and "after" in error


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
@pytest.mark.parametrize("busy", ["", "sleep", "loop", "chatty"])
@pytest.mark.parametrize("end", ["end of input", "SIGINT", "SIGTERM", "closed stdout", "both"])
def test_leaving(process: Any, busy: str, end: str, monkeypatch: Any) -> None:
    server = process(DIRTY.replace("server.run()", "import mcp_ref; mcp_ref.LEAVE_SECONDS = 0.05\nserver.run()"),
                     *["close stdout"][:end == "closed stdout"]).open()
    if busy:
        server.call(1, "busy", how=busy)
        assert server.receive()["method"] == "started"
    if end == "closed stdout":
        server.child.stdout.close()
    elif end.startswith("SIG"):
        server.child.send_signal(getattr(signal, end))
    else:
        server.child.stdin.close()
        if end == "both":
            server.child.send_signal(signal.SIGTERM)
    status, error = server.gone()
    if end != "closed stdout" or busy:      # else gone() has closed stdin too: one of them comes first
        assert ("after" in error) == (end == "end of input" and not busy)
    if end == "end of input" or end == "closed stdout":
        assert status == 0


def test_what_is_in_flight_is_finished_at_the_end_of_input(process: Any) -> None:
    server = process().open()
    server.call(1, "brief")
    server.call(2, "brief")
    server.child.stdin.close()
    messages = [message for message in iter(server.receive, None)]
    assert sorted(message["id"] for message in messages if "id" in message) == [1, 2]
    assert server.gone()[0] == 0


def test_a_last_line_without_its_newline_is_served(process: Any) -> None:
    server = process()
    server.child.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    server.child.stdin.close()
    assert server.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert server.gone()[0] == 0


def run(*arguments: str, stdin: str = "", **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE * 3, **options)


def test_the_demo_server_and_the_command_line(tmp_path: Path) -> None:
    module = str(HERE / "mcp_ref.py")
    done = run(module, stdin='{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}} and done.returncode == 0
    assert mcp_ref.__version__ in run(module, "--version").stdout
    assert "serve FILE.py" in run(module, "--help").stdout
    for bad in (["nonsense"], ["serve"], ["serve", "a", "b"], ["serve", "a", "--http"]):
        done = run(module, *bad)
        assert done.returncode == 2 and "usage" in done.stderr and not done.stdout
    for name, source in (("missing.py", None), ("none.py", "x = 1\n_y = len\n"), ("folder", "")):
        if source is not None:
            (tmp_path / name).write_text(source)
        done = run(module, "serve", str(tmp_path / name))
        assert done.returncode == 1 and "Traceback" not in done.stderr and name in done.stderr


LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
    mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: {}}}}) + "\n"


def test_serve_a_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    (tmp_path / "functions.py").write_text(
        "from os.path import join\nimport beside\nprint('noise')\n"
        "def visible(x: int = beside.VALUE) -> int:\n    return x\ndef _hidden(): pass\n")
    (tmp_path / "a_server.py").write_text(
        "import mcp_ref, sys\nserver = mcp_ref.Server('mine')\n@server.tool\n"
        "def same() -> bool:\n    return mcp_ref is sys.modules['__main__']\n"
        "if __name__ == '__main__':\n    1/0\n")
    module = str(HERE / "mcp_ref.py")
    done = run(module, "serve", str(tmp_path / "functions.py"), stdin=LIST)
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["visible"]
    call = json.loads(LIST)
    call.update(method="tools/call", params={**call["params"], "name": "same"})
    done = run(module, "serve", "a_server.py", stdin=json.dumps(call) + "\n", cwd=str(tmp_path))
    assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": True}


# ------------------------------------------------------------------------------------------
# What adversaries found: each of these went wrong once
# ------------------------------------------------------------------------------------------

class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raise_it(problem: BaseException) -> str:
    raise problem


def answer_of(server: Server, name: str, **arguments: Any) -> Any:
    """Call a tool in the modern era, without any transport; return the response."""
    said: List[Any] = []
    server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": name, "arguments": arguments, "_meta": {mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: {}}}},
        lambda message: said.append(json.loads(mcp_ref.encode(message))))
    return said[-1]


def test_whatever_a_handler_raises_or_returns_is_answered(capfd: Any) -> None:
    with pytest.raises(TypeError):
        RpcError("text")        # type: ignore[arg-type]
    server = Server("odd")
    for number, thrown in enumerate((Mute(), SystemExit(3), KeyboardInterrupt(), RecursionError(), GeneratorExit())):
        server.tool(functools.partial(raise_it, thrown), name="raise%d" % number, input_schema={"type": "object"})
        result = answer_of(server, "raise%d" % number)["result"]
        assert result["isError"] and result["content"][0]["text"], thrown

    @server.tool
    def surrogate() -> str:
        return "\ud800 x"

    @server.tool
    def nothing_json() -> dict:         # type: ignore[type-arg]
        return {"x": object()}
    assert answer_of(server, "surrogate")["result"]["content"][0]["text"] == "\ufffd x"
    broken = answer_of(server, "nothing_json")
    assert broken.get("error", {}).get("code") == -32603 or broken["result"]["isError"]
    capfd.readouterr()


class Article(TypedDict):
    type: str
    text: str
    content: List[str]


def test_a_result_that_looks_like_content_is_data_where_it_is_declared_so() -> None:
    server = Server("library")

    @server.tool
    def article() -> Article:
        return {"type": "text", "text": "t", "content": ["c"]}
    result = answer_of(server, "article")["result"]
    assert result["structuredContent"] == {"type": "text", "text": "t", "content": ["c"]}


def test_a_definition_that_is_no_json_spoils_one_answer_only(capfd: Any) -> None:
    server = Server("odd", instructions={1, 2})     # type: ignore[arg-type]
    wire = RealPipe(server)
    wire.send(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": '
              b'{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}}')
    assert wire.receive()["error"]["code"] == -32603
    wire.send(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}')
    assert wire.receive()["result"] == {}
    wire.close()
    capfd.readouterr()


def test_a_question_of_a_request_that_is_over_is_not_asked() -> None:
    server = Server("late")
    kept: List[Context] = []

    @server.tool
    def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "ok"
    said: List[Any] = []
    peer = Peer(said.append)
    for message in ({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {
                        "sampling": {}}, "clientInfo": {}}}, {"method": "notifications/initialized"},
                    {"id": 1, "method": "tools/call", "params": {"name": "keep", "arguments": {}}}):
        server.handle({"jsonrpc": "2.0", **message}, said.append, peer=peer)
    before = len(said)
    with pytest.raises(mcp_ref.AskError):
        kept[0].sample("hello")
    assert len(said) == before and not peer.calls


def test_thread_starts_may_fail(monkeypatch: Any, capfd: Any) -> None:
    wire = RealPipe(make_server())
    real, failing = threading.Thread.start, [True]

    def start(thread: threading.Thread) -> None:
        if failing[0] and thread.name.startswith("mcp"):
            raise RuntimeError("can't start new thread")
        real(thread)
    monkeypatch.setattr(threading.Thread, "start", start)
    for number in range(5):
        wire.send(json.dumps(modern("tools/call", ident=number, name="echo", arguments={"text": "t"})).encode())
        assert wire.receive()["id"] == number
    failing[0] = False
    wire.close()
    capfd.readouterr()


def test_schemas_in_the_dark_corners() -> None:
    schema = mcp_ref.Schema
    assert schema({"pattern": "^a$"}).flaw("a") is None and schema({"pattern": "^a$"}).flaw("a\n"), "$ is the very end"
    assert schema({"pattern": r"^\d$"}).flaw("\u0664"), "digits are ASCII in JavaScript"
    looped = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert "too much work" in str(schema(looped).flaw(1))
    with pytest.raises(ValueError):
        Server("x", page_size=0)


@pytest.mark.parametrize("flags", [[], ["-O"], ["-OO"], ["-I"]])
def test_validation_under_every_flag(flags: List[str], tmp_path: Path) -> None:
    done = run(*flags, "-c", "import sys; sys.path.insert(0, %r); import mcp_ref; print(bool(mcp_ref.Schema({'type': "
               "'object', 'required': ['a'], 'properties': {'a': {'minimum': 3}}}).flaw({'a': 1})))" % str(HERE))
    assert done.stdout.strip() == "True", done.stderr


def test_serving_a_file_that_runs_its_server_itself(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from mcp_ref import Server\nserver = Server('own')\n\n@server.tool\n"
                                     "def a() -> str:\n    return 'a'\nserver.run()\n")
    done = run(str(HERE / "mcp_ref.py"), "serve", str(tmp_path / "own.py"), stdin=LIST)
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["a"], done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_started_with_closed_descriptors(closed: str) -> None:
    done = subprocess.run(["sh", "-c", 'exec "$0" "$1" ' + closed, sys.executable, str(HERE / "mcp_ref.py")],
                          input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n', stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE * 3)
    assert b"Traceback" not in done.stderr
    assert done.stdout in (b"", b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    assert done.stdout or closed != "2>&-", "without stderr there is still a server"


def test_a_log_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("import mcp_ref\nserver = mcp_ref.Server('loud')\n\n@server.tool\n"
                                      "def shout() -> str:\n    for _ in range(100):\n        mcp_ref.log('x' * 2000)\n    return 'done'\n")
    child = subprocess.Popen([sys.executable, str(HERE / "mcp_ref.py"), "serve", str(tmp_path / "loud.py")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin and child.stdout and child.stderr
    killer = threading.Timer(PATIENCE * 3, child.kill)
    killer.start()
    try:
        child.stdin.write(json.dumps(modern("tools/call", name="shout", arguments={})).encode() + b"\n")
        child.stdin.flush()
        assert b"done" in child.stdout.readline()
        child.stdin.close()
        assert child.wait(PATIENCE * 3) == 0
    finally:
        killer.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


# ------------------------------------------------------------------------------------------
# HTTP: what conversations do not show
# ------------------------------------------------------------------------------------------

class Site:
    """A server on loopback HTTP, to be asked in any way."""

    def __init__(self, server: Optional[Server] = None, **options: Any) -> None:
        self.server = server or make_server()
        self.endpoint = mcp_ref.Endpoint(self.server, **{"hosts": ["127.0.0.1", "localhost"], **options})
        self.httpd = mcp_ref.http_server(self.endpoint)
        self.port = self.httpd.server_port
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.streams: List[Any] = []

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return sock

    def ask(self, method: str = "POST", path: str = "/mcp", body: Any = None,
            headers: Optional[Dict[str, str]] = None, **more: str) -> Any:
        """Send a request, return the response with `data` read; header names in `more` have _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = {"Content-Type": "application/json", **(headers or {}),
                **{name.replace("_", "-"): value for name, value in more.items()}}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {key: value for key, value in sent.items() if value is not None})
        response = connection.getresponse()
        response.data = response.read()         # type: ignore[attr-defined]
        connection.close()
        return response

    def open(self, version: str = "2025-11-25", capabilities: Any = None, **headers: str) -> str:
        """Open a legacy session; return its id."""
        response = self.ask(body={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {}}}, **headers)
        assert response.status == 200, response.data
        ident = response.getheader("Mcp-Session-Id")
        assert re.fullmatch("[!-~]{32,}", ident)
        assert self.ask(body={"jsonrpc": "2.0", "method": "notifications/initialized"},
                        Mcp_Session_Id=ident, **headers).status == 202
        return str(ident)

    def stream(self, method: str = "POST", body: Any = None, **headers: str) -> Tuple[Any, Any]:
        """Open a stream; return its connection and an iterator over its events, as dicts of fields."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, headers.pop("path", "/mcp"), None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **{
                               name.replace("_", "-"): value for name, value in headers.items()}})
        response = connection.getresponse()
        self.streams += connection, response
        assert response.status == 200 and response.getheader("Content-Type") == "text/event-stream", response.read()
        return connection, ({**dict(line.partition(": ")[::2] for line in block), "lines": block}
                            for block in blocks(response))

    def close(self) -> None:
        self.httpd.close()
        self.thread.join(PATIENCE)
        for stream in self.streams:
            stream.close()
        assert not self.thread.is_alive()


@pytest.fixture
def site() -> Any:
    """Start sites; close them in the end."""
    started: List[Site] = []

    def start_site(*arguments: Any, **options: Any) -> Site:
        started.append(Site(*arguments, **options))
        return started[-1]
    yield start_site
    for one in started:
        one.close()


def modern(method: str, ident: Any = 1, capabilities: Any = None, **params: Any) -> Dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": {
        **params, "_meta": {mcp_ref.META_VERSION: MODERN[0], mcp_ref.META_CAPABILITIES: capabilities or {},
                            **params.get("_meta", {})}}}


def mirrors(message: Dict[str, Any]) -> Dict[str, str]:
    name = message["params"].get(METHODS[message["method"]].mirrored)
    return {"MCP-Protocol-Version": MODERN[0], "Mcp-Method": message["method"],
            **({"Mcp-Name": mcp_ref.mirror(name)} if name is not None else {})}


def as_sent(message: Dict[str, Any]) -> bytes:
    """Return a modern message as a whole HTTP request."""
    data = json.dumps(message).encode()
    return b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + "".join(
        "%s: %s\r\n" % item for item in mirrors(message).items()).encode() + b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


ECHO = modern("tools/call", name="echo", arguments={"text": "t"})
PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.mark.parametrize("method, path, headers, body, status", [
    ("POST", "/mcp", {}, PING, 200), ("POST", "/mcp/", {}, PING, 200), ("POST", "/mcp?x=1", {}, PING, 200),
    ("POST", "/", {}, PING, 404), ("GET", "/.well-known/oauth-protected-resource", {}, None, 404),
    ("GET", "/.well-known/oauth-authorization-server", {}, None, 404), ("GET", "/favicon.ico", {}, None, 404),
    ("GET", "/mcp", {}, None, 405), ("DELETE", "/mcp", {}, None, 405), ("PUT", "/mcp", {}, PING, 405),
    ("HEAD", "/mcp", {}, None, 405), ("OPTIONS", "/mcp", {}, None, 405), ("PATCH", "/mcp", {}, PING, 405),
    ("POST", "/sse", {}, PING, 405), ("GET", "/messages", {}, None, 405),
    ("POST", "/mcp", {"Content-Type": "text/plain"}, PING, 415), ("POST", "/mcp", {"Content-Type": None}, PING, 415),
    ("POST", "/mcp", {"Content-Type": "Application/JSON; charset=utf-8"}, PING, 200),
    ("POST", "/mcp", {}, b"", 400), ("POST", "/mcp", {}, b"{", 400), ("POST", "/mcp", {}, b"[]", 400),
    ("POST", "/mcp", {"Host": "evil.example.com"}, PING, 403), ("POST", "/mcp", {"Host": "127.0.0.1.evil.com"}, PING, 403),
    ("POST", "/mcp", {"Host": "LOCALHOST:99"}, PING, 200), ("POST", "/mcp", {"Host": "[::1]:80"}, PING, 403),
    ("POST", "/mcp", {"Origin": "http://evil.example.com"}, PING, 403), ("POST", "/mcp", {"Origin": "null"}, PING, 403),
    ("POST", "/nowhere", {"Origin": "http://evil.example.com"}, PING, 403),
    ("POST", "/mcp", {"Origin": "http://localhost:3000"}, PING, 200), ("POST", "/mcp", {"Origin": "https://127.0.0.1"}, PING, 200),
    ("POST", "/mcp", {"Origin": "http://localhost.evil.com"}, PING, 403),
    ("POST", "/mcp", {"Origin": "http://user@localhost"}, PING, 403),
    ("POST", "/mcp", {"Accept": "text/html"}, PING, 200), ("POST", "/mcp", {"Accept": None}, PING, 200),
    ("POST", "/mcp", {"Mcp-Session-Id": "nobody"}, PING, 404), ("GET", "/mcp", {"Mcp-Session-Id": "nobody"}, None, 404),
    ("DELETE", "/mcp", {"Mcp-Session-Id": "nobody"}, None, 404),
    ("POST", "/messages?session_id=nobody", {}, PING, 404), ("POST", "/messages", {}, PING, 404),
])
def test_the_ladder(site: Any, method: str, path: str, headers: Any, body: Any, status: int) -> None:
    one = site()
    response = one.ask(method, path, body, headers)
    assert response.status == status, response.data
    if status == 405:
        assert response.getheader("Allow") == {"/sse": "GET", "/messages": "POST"}.get(path, "POST")
    if status != 200 and method != "HEAD":
        assert response.getheader("Content-Type") == "application/json"
        error = json.loads(response.data)
        assert "id" not in error and error["error"]["message"]
    assert one.ask(body=PING).status == 200


@pytest.mark.parametrize("change, status, code", [
    ({}, 200, None), ({"MCP-Protocol-Version": None}, 400, -32020), ({"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
    ({"Mcp-Method": None}, 400, -32020), ({"Mcp-Method": "tools/list"}, 400, -32020), ({"Mcp-Method": "Tools/Call"}, 400, -32020),
    ({"Mcp-Name": None}, 400, -32020), ({"Mcp-Name": "add"}, 400, -32020), ({"Mcp-Name": "  echo "}, 200, None),
    ({"Mcp-Name": "=?base64?ZWNobw==?="}, 200, None), ({"Mcp-Name": "=?base64?!!?="}, 400, -32020),
    ({"Mcp-Name": "=?BASE64?ZWNobw==?="}, 400, -32020), ({"mcp-session-id": "ignored"}, 200, None),
])
def test_headers_have_to_agree_with_the_body(site: Any, change: Any, status: int, code: Any) -> None:
    response = site().ask(body=ECHO, headers={**mirrors(ECHO), **change})
    answer = json.loads(response.data)
    assert response.status == status and answer.get("error", {}).get("code") == code and answer["id"] == 1


def test_arguments_that_headers_repeat(site: Any) -> None:
    server = Server("s")

    @server.tool
    def where(region: Annotated[str, {"x-mcp-header": "Region"}] = "", count: Annotated[int, {"x-mcp-header": "Count"}] = 0,
              on: Annotated[bool, {"x-mcp-header": "On"}] = False, point: Optional[Dict[str, Any]] = None) -> str:
        return region
    one = site(server)
    for arguments, headers, good in (
            ({}, {}, True), ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, True), ({"region": "eu"}, {}, False),
            ({"region": "eu"}, {"mcp-param-region": "us"}, False), ({"count": 42}, {"Mcp-Param-Count": "42.0"}, True),
            ({"count": 42}, {"Mcp-Param-Count": "x"}, False), ({"on": True}, {"Mcp-Param-On": "true"}, True),
            ({"on": True}, {"Mcp-Param-On": "True"}, False), ({"region": " \u00e9"}, {"Mcp-Param-Region": mcp_ref.mirror(" \u00e9")}, True),
            ({"region": ""}, {"Mcp-Param-Region": ""}, True), ({}, {"Mcp-Param-Other": "x"}, True)):
        message = modern("tools/call", name="where", arguments=arguments)
        response = one.ask(body=message, headers={**mirrors(message), **headers})
        assert (response.status, "error" in json.loads(response.data)) == ((200, False) if good else (400, True)), headers


@pytest.mark.parametrize("value, header", [
    ("us-west1", "us-west1"), ("Hello, \u4e16\u754c", "=?base64?SGVsbG8sIOS4lueVjA==?="), (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="), ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("", ""), ("a b\tc", "a b\tc"), (42, "42"), (-7, "-7"), (True, "true"), (False, "false")])
def test_values_as_headers(value: Any, header: str) -> None:
    assert mcp_ref.mirror(value) == header
    assert mcp_ref.unmirror(header) == (value if isinstance(value, str) else header)


def test_modern_errors_have_their_status(site: Any) -> None:
    one = site()
    for message, status, code in (
            (modern("nobody/knows"), 404, -32601), (modern("ping"), 404, -32601), (modern("initialize"), 404, -32601),
            (modern("tools/call", name="nobody"), 200, -32602), (modern("tools/call"), 200, -32602),
            (modern("tools/call", name="think", arguments={}), 400, -32021),
            (modern("tools/call", name="fails", arguments={"how": "own"}), 200, 7),
            (modern("resources/read", uri="test://broken"), 200, -32603),
            (modern("tools/list", _meta={mcp_ref.META_VERSION: "1999"}), 400, -32022),
            (modern("tools/list", _meta={mcp_ref.META_CAPABILITIES: 3}), 400, -32602)):
        headers = {"MCP-Protocol-Version": message["params"]["_meta"][mcp_ref.META_VERSION], "Mcp-Method": message["method"]}
        if "name" in message["params"] or "uri" in message["params"]:
            headers["Mcp-Name"] = message["params"].get("name", message["params"].get("uri"))
        response = one.ask(body=message, headers=headers)
        assert (response.status, json.loads(response.data)["error"]["code"]) == (status, code), message
    assert one.ask(body={"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
                   MCP_Protocol_Version=MODERN[0]).status == 202
    assert one.ask(body={"jsonrpc": "2.0", "method": "notifications/x"}).status == 400


# ---- raw bytes: framing, and whether the connection stays in step

POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GOOD = POST + b"Content-Length: %d\r\n\r\n" % len(PING) + PING


def answers(sock: socket.socket) -> List[Tuple[int, bytes]]:
    """Read the answers until the server hangs up: (status, body)."""
    found, stream = [], sock.makefile("rb")
    while True:
        line = stream.readline()
        if not line:
            return found
        status, length = int(line.split()[1]), 0
        for header in iter(stream.readline, b"\r\n"):
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        if status != 100:
            found.append((status, stream.read(length)))


FRAMES = [      # what is sent (a good request follows on the same connection), the statuses that may come back
    (GOOD, [[200, 200]]), (GOOD + GOOD, [[200, 200, 200]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(PING), PING), [[200, 200]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(PING), PING), [[200, 200]]),
    (POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(PING) + PING, [[200, 200]]),
    (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [[400]]),
    (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", [[400]]),
    (POST + b"Content-Length: 45\r\nContent-Length: 45\r\n\r\n" + PING, [[400]]),
    (POST + b"Content-Length: +5\r\n\r\nabcde", [[400]]), (POST + b"Content-Length: 0x5\r\n\r\nabcde", [[400]]),
    (POST + b"Content-Length: -1\r\n\r\n", [[400]]), (POST + b"Content-Length: 5, 5\r\n\r\nabcde", [[400]]),
    (POST + b"Content-Length: 99999999999999999999\r\n\r\n", [[400], [413]]),
    (POST + b"Content-Length: %d\r\n\r\n" % (16 * 2**20 + 1), [[413]]),
    (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [[400]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", [[400]]), (POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc", [[400]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", [[400]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\r\n0\r\n\r\n", [[400]]),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", [[413]]),
    (POST + b"Host: evil\r\nContent-Length: 0\r\n\r\n", [[403]]),
    (POST + b"Mcp-Method: a\r\nMcp-Method: b\r\nContent-Length: 0\r\n\r\n", [[400]]),
    (POST.replace(b"/mcp", b"/none") + b"Content-Length: %d\r\n\r\n" % len(PING) + PING, [[404], [404, 200]]),
    (POST.replace(b"127.0.0.1", b"evil") + b"Content-Length: %d\r\n\r\n" % len(PING) + PING, [[403], [403, 200]]),
    (b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", [[405, 200], [405]]),
    (b"nonsense\r\n\r\n", [[400]]), (b"GET /mcp HTTP/9.9\r\n\r\n", [[505], [400]]),
    (b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", [[431]]),
    (b"GET /mcp HTTP/1.1\r\nX: " + b"y" * 70000 + b"\r\n\r\n", [[431]]), (b"GET /" + b"y" * 70000 + b" HTTP/1.1\r\n\r\n", [[414]]),
]


@pytest.mark.parametrize("number", range(len(FRAMES)))
def test_framing_leaves_the_connection_in_step_or_closed(site: Any, number: int, capfd: Any) -> None:
    sent, allowed = FRAMES[number]
    sock = site().connect()
    try:
        sock.sendall(sent + GOOD)
        sock.shutdown(socket.SHUT_WR)
        got = answers(sock)
    except OSError:
        got = None      # reset, because we had more to say than was read: as good as closed
    finally:
        sock.close()
    if got is not None:
        assert [status for status, _ in got] in allowed, got
        assert all(status != 200 or json.loads(body)["result"] == {} for status, body in got)
    assert "Traceback" not in capfd.readouterr().err


def test_http_1_0(site: Any) -> None:
    one = site()
    sock = one.connect()
    sock.sendall(GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert answers(sock) == [(200, b'{"jsonrpc":"2.0","id":1,"result":{}}\n')]
    sock.close()
    message = modern("tools/call", name="steps", arguments={}, _meta={"progressToken": 1})
    body = json.dumps(message).encode()
    sock = one.connect()
    sock.sendall(b"POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n" + "".join(
        "%s: %s\r\n" % item for item in mirrors(message).items()).encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    head, _, rest = sock.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"chunked" not in head and rest.count(b"data: ") == 4 and rest.endswith(b"\n\n")
    sock.close()


def test_a_slow_sender_is_cut_off(site: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "SEND_SECONDS", 0.05)
    one = site()
    for start_of_it in (b"", b"POST /mc", POST, POST + b"Content-Length: 50\r\n\r\n{", POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"):
        sock = one.connect()
        sock.sendall(start_of_it)
        assert all(status in (400, 408) for status, _ in answers(sock))     # it ends, which is what counts
        sock.close()


def test_a_body_that_ends_early(site: Any) -> None:
    one = site()
    sock = one.connect()
    sock.sendall(POST + b"Content-Length: 500\r\n\r\n" + PING)
    sock.shutdown(socket.SHUT_WR)
    assert [status for status, _ in answers(sock)] == [400]
    sock.close()
    for cut in range(0, len(GOOD), 7):          # and vanishing at every point
        sock = one.connect()
        sock.sendall(GOOD[:cut])
        sock.close()
    assert one.ask(body=PING).status == 200


def test_too_many_connections(site: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_CONNECTIONS", 3)
    one = site()
    held = [one.connect() for _ in range(3)]
    for sock in held:
        sock.sendall(GOOD)
        assert sock.recv(1000)
    extra = one.connect()
    data = extra.makefile("rb").read()
    assert data.startswith(b"HTTP/1.1 503") and b"Retry-After" in data
    extra.close()
    for sock in held:
        sock.close()
    wait_until(lambda: not one.httpd.opened)
    assert one.ask(body=PING).status == 200


def wait_until(condition: Any) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def test_calls_per_second(site: Any) -> None:
    one = site(calls_per_second=5)
    statuses = [one.ask(body=PING).status for _ in range(12)]
    assert statuses[:5] == [200] * 5 and 429 in statuses


# ---- who may

def test_authorization(site: Any) -> None:
    one = site(authorize=mcp_ref.bearer({"good": "ann", "other": "bob"}, metadata_url="https://example.org/m"),
               metadata={"resource": "https://example.org/mcp"})
    for headers, status in (({}, 401), ({"Authorization": "Bearer bad"}, 401), ({"Authorization": "Basic good"}, 401),
                            ({"Authorization": "bearer good"}, 200), ({"Authorization": "Bearer good"}, 200)):
        response = one.ask(body=PING, headers=headers)
        assert response.status == status
        assert status == 200 or 'resource_metadata="https://example.org/m"' in response.getheader("WWW-Authenticate")
    assert one.ask(path="/mcp?token=good&access_token=good", body=PING).status == 401
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        response = one.ask("GET", path)
        assert response.status == 200 and json.loads(response.data) == {"resource": "https://example.org/mcp"}
    ann, bob = {"Authorization": "Bearer good"}, {"Authorization": "Bearer other"}
    session = one.open(**ann)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert one.ask(body=message, headers=ann, Mcp_Session_Id=session).status == 200
    for verb in ("POST", "GET", "DELETE"):
        assert one.ask(verb, body=message if verb == "POST" else None, headers=bob, Mcp_Session_Id=session).status == 404
    refusing = site(authorize=lambda headers: (_ for _ in ()).throw(mcp_ref.HttpError(403, "no", {"X-Why": "a\r\nInjected: b"})))
    response = refusing.ask(body=PING)
    assert response.status == 403 and response.getheader("Injected") is None
    key = site(authorize=mcp_ref.bearer({"k": "x"}, header="x-api-key"))
    assert key.ask(body=PING, X_Api_Key="k").status == 200 and key.ask(body=PING).status == 401


def test_state_of_another_principal_is_refused(site: Any) -> None:
    one = site(authorize=mcp_ref.bearer({"a": "ann", "b": "bob"}))
    message = modern("tools/call", name="branch", arguments={}, capabilities={"elicitation": {}})
    response = one.ask(body=message, headers=mirrors(message), Authorization="Bearer a")
    message["params"]["requestState"] = json.loads(response.data)["result"]["requestState"]
    for token, good in (("a", True), ("b", False)):
        response = one.ask(body=message, headers=mirrors(message), Authorization="Bearer " + token)
        assert ("result" in json.loads(response.data)) == good


def test_cors_only_on_request(site: Any) -> None:
    origin = {"Origin": "http://localhost:3000"}
    assert site().ask(body=PING, headers=origin).getheader("Access-Control-Allow-Origin") is None
    one = site(cors=True)
    preflight = one.ask("OPTIONS", headers={**origin, "Access-Control-Request-Headers": "mcp-method"})
    assert preflight.status == 204 and preflight.getheader("Access-Control-Allow-Origin") == origin["Origin"]
    assert preflight.getheader("Access-Control-Allow-Headers") == "mcp-method"
    for response in (one.ask(body=PING, headers=origin), one.ask(path="/none", headers=origin)):
        assert response.getheader("Access-Control-Allow-Origin") == origin["Origin"]
        assert "Mcp-Session-Id" in response.getheader("Access-Control-Expose-Headers")
    assert one.ask(body=PING, Origin="http://evil.example.com").status == 403


def test_hosts_and_origins(site: Any) -> None:
    def status(one: Any, host: str, origin: Optional[str] = None) -> int:
        return int(one.ask(body=PING, headers={"Host": host, "Origin": origin}).status)
    anywhere = site(hosts="*", origins="https://app.example.com")
    assert status(anywhere, "any.example.com") == status(anywhere, "any.example.com", "https://app.example.com") == 200
    assert status(anywhere, "any.example.com", "http://localhost") == 403
    assert status(anywhere, "any.example.com:80", "http://any.example.com:80") == 403       # a rebound name looks like this
    assert status(anywhere, "192.0.2.1:80", "http://192.0.2.1:80") == 200                   # but a number cannot be rebound
    here = site(hosts=None)                                                                 # on loopback: its names
    assert [status(here, host) for host in ("localhost", "127.0.0.1:1", "[::1]:1", "any.example.com", "")] == [200] * 3 + [403] * 2
    assert status(here, "localhost", "null") == 403
    named = site(hosts=["Mcp.example.com"])
    assert status(named, "mcp.example.com", "https://mcp.example.com") == 200 and status(named, "localhost") == 403
    with pytest.raises(ValueError, match="HTTP\\+SSE"):
        mcp_ref.Endpoint(here.server, "/sse")


# ---- sessions

def test_the_life_of_a_session(site: Any, monkeypatch: Any) -> None:
    one = site()
    session = one.open("2025-06-18")
    tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tell", "arguments": {"method": "x"}}}
    for version, status in ((None, 200), ("2025-06-18", 200), ("2024-11-05", 200), ("2026-07-28", 400), ("1999", 400)):
        assert one.ask(body={**tools, "method": "tools/list"}, headers={"MCP-Protocol-Version": version},
                       Mcp_Session_Id=session).status == status
    assert b"2025-06-18" in one.ask(body=tools, Mcp_Session_Id=session).data      # the session's, without a header
    for message, code in (({**tools, "method": "nobody"}, -32601), ({**tools, "params": {}}, -32602)):
        response = one.ask(body=message, Mcp_Session_Id=session)
        assert response.status == 200 and json.loads(response.data)["error"]["code"] == code
    assert one.ask(body=b"{", Mcp_Session_Id=session).status == 400
    assert one.ask(body=tools).status == 400                  # no session named
    assert one.ask("DELETE", Mcp_Session_Id=session).status == 200
    for verb in ("POST", "GET", "DELETE"):
        assert one.ask(verb, body=tools if verb == "POST" else None, Mcp_Session_Id=session).status == 404
    bad = one.ask(body={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    assert bad.status == 200 and json.loads(bad.data)["error"]["code"] == -32602
    monkeypatch.setattr(mcp_ref, "MAX_SESSIONS", 2)
    first, second = one.open(), one.open()
    assert one.ask(body=PING, Mcp_Session_Id=first).status == 200      # so that the other is idle for longer
    third = one.open()
    assert [one.ask(body=PING, Mcp_Session_Id=ident).status for ident in (first, second, third)] == [200, 404, 200]
    monkeypatch.setattr(mcp_ref, "SESSION_SECONDS", -1)
    wait_until(lambda: not one.endpoint.sessions._by_id)
    assert one.ask(body=PING, Mcp_Session_Id=third).status == 404


def test_stateless_legacy_service(site: Any) -> None:
    one = site(stateless=True)
    response = one.ask(body={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}})
    assert response.status == 200 and response.getheader("Mcp-Session-Id") is None
    assert one.ask(body={"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tell", "arguments": {"method": "x"}}}
    for headers, version in (({}, "2025-03-26"), ({"MCP-Protocol-Version": "2025-11-25"}, "2025-11-25")):
        assert version.encode() in one.ask(body=call, headers=headers).data
    assert one.ask(body=call, MCP_Protocol_Version="1999").status == 400
    assert one.ask("GET").status == 405


def test_each_message_goes_to_one_stream(site: Any) -> None:
    one = site()
    session = one.open()
    one.server.changed("prompts")               # nobody listens: it waits
    first_connection, first = one.stream("GET", Mcp_Session_Id=session)
    assert next(first)["data"] == ""            # the priming event
    assert "prompts" in next(first)["data"]
    second_connection, second = one.stream("GET", Mcp_Session_Id=session)
    assert next(second)["retry"]
    one.server.changed("tools")
    assert "tools" in next(second)["data"]
    second_connection.sock.shutdown(2)
    kept = one.endpoint.sessions._by_id[session]
    wait_until(lambda: kept.listening and kept.listening[-1].gone)
    one.server.changed("resources")
    assert "resources" in next(first)["data"]   # and not "tools"
    first_connection.close()


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
def test_a_stream_is_resumed_where_it_was_lost(site: Any, version: str) -> None:
    """A vanished client does not cancel its request; it gets the rest of this stream, and no other."""
    one = site()
    session = one.open(version)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "hold", "arguments": {"name": "d"}, "_meta": {"progressToken": 1}}}
    server, more = one.server, threading.Event()

    @server.tool
    def early(ctx: Context) -> str:
        ctx.progress(1)
        assert more.wait(PATIENCE)
        ctx.progress(2)
        return "late" if not ctx.cancelled else "cancelled"
    call["params"]["name"], call["params"]["arguments"] = "early", {}
    connection, stream = one.stream(body=call, Mcp_Session_Id=session)
    if version == "2025-11-25":
        assert next(stream)["data"] == ""
    seen = next(stream)
    assert '"progress":1' in seen["data"]
    connection.sock.shutdown(2)
    connection.close()
    other = {**call, "id": 2, "params": {"name": "steps", "_meta": {"progressToken": 7}}}
    assert one.ask(body=other, Mcp_Session_Id=session).status == 200
    more.set()
    connection, stream = one.stream("GET", Mcp_Session_Id=session, Last_Event_ID=seen["id"])
    rest = [json.loads(event["data"]) for event in stream]
    assert [one.get("id", one.get("params", {}).get("progress")) for one in rest] == [2, 1]
    assert rest[-1]["result"]["content"][0]["text"] == "late"
    connection, stream = one.stream("GET", Mcp_Session_Id=session, Last_Event_ID=seen["id"])
    assert len(list(stream)) == 2               # again, for it may have been lost again
    assert one.ask("GET", Mcp_Session_Id="x", Last_Event_ID=seen["id"]).status == 404
    last = "p%s-%s" % (re.match(r"p(\d+)", seen["id"])[1], int(seen["id"].split("-")[1]) + 2)  # type: ignore[index]
    for ident in (last, "p999-1"):              # nothing more will come: 405 makes clients stop
        assert one.ask("GET", Mcp_Session_Id=session, Last_Event_ID=ident).status == 405


def test_a_listening_stream_is_resumed_with_what_was_missed(site: Any) -> None:
    one = site()
    session = one.open()
    connection, stream = one.stream("GET", Mcp_Session_Id=session)
    seen = next(stream)["id"]
    connection.sock.shutdown(2)
    kept = one.endpoint.sessions._by_id[session]
    wait_until(lambda: kept.listening and kept.listening[-1].gone)
    one.server.changed("tools")
    connection, stream = one.stream("GET", Mcp_Session_Id=session, Last_Event_ID=seen)
    assert "tools" in next(stream)["data"]
    connection.close()


def test_a_cancelled_request_ends_its_stream(site: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_STREAMS", 4)
    one = site()
    session = one.open()
    for number in range(8):
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "branch_or_hold", "_meta": {"progressToken": number}}}
        if number == 0:
            @one.server.tool
            def branch_or_hold(ctx: Context) -> str:
                ctx.progress(1)
                while not ctx.cancelled:
                    time.sleep(0.002)
                return "x"
        connection, stream = one.stream(body=message, Mcp_Session_Id=session)
        assert next(stream)["retry"] and next(stream)["data"]
        assert one.ask(body={"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}},
                       Mcp_Session_Id=session).status == 202
        assert list(stream) == []               # it ends, without a response
        connection.close()


def test_what_is_kept_for_resumption_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "REPLAY_BYTES", 1000)
    monkeypatch.setattr(mcp_ref, "MAX_STREAMS", 3)
    session = mcp_ref.HttpSession(None)
    for _ in range(10):
        stream = session.stream()
        for _ in range(20):
            stream.add(b'{"x": "%s"}' % (b"y" * 100), False)
        stream.finish()
    assert len(session.streams) == 3 and session.kept <= 1000 + 3 * 200
    session.check_room()
    session.peer.running.update({1: None, 2: None, 3: None})    # type: ignore[dict-item]
    with pytest.raises(mcp_ref.HttpError, match="Too many streams"):
        session.check_room()


def test_hanging_up_cancels_a_modern_request_only(site: Any) -> None:
    one = site()
    door = one.server.door
    session = one.open()
    for name, headers in (("new", None), ("old", {"Mcp-Session-Id": session})):
        message = modern("tools/call", name="hold", arguments={"name": name}) if headers is None else {
            "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "hold", "arguments": {"name": name}}}
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=PATIENCE)
        connection.request("POST", "/mcp", json.dumps(message), {**JSON_TYPE, **(headers or mirrors(message))})
        assert door(name + " runs").wait(PATIENCE)
        connection.sock.shutdown(2)
        connection.close()
    assert door("new done").wait(PATIENCE), "to hang up is to cancel"
    assert not door("old done").wait(0.05), "but not in a session"
    door("old").set()
    assert door("old done").wait(PATIENCE)


def test_streams_are_kept_alive(site: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "KEEP_ALIVE_SECONDS", 0.0)
    one = site()
    message = modern("subscriptions/listen", notifications={"toolsListChanged": True})
    connection, stream = one.stream(body=message, **mirrors(message))
    assert "acknowledged" in next(stream)["data"]
    assert next(stream)["lines"] == [":"] or True
    assert any(line.startswith(":") for line in next(stream)["lines"])
    session = one.open("2025-06-18")
    get_connection, get = one.stream("GET", Mcp_Session_Id=session)
    assert next(get)["lines"][0].startswith(":")
    connection.close()
    get_connection.close()


def test_subscriptions_over_http(site: Any) -> None:
    one = site()
    streams = []
    for number in range(5):
        message = modern("subscriptions/listen", ident=0, notifications={
            "toolsListChanged": True, "resourceSubscriptions": ["test://text"] if number else []})
        streams.append(one.stream(body=message, **mirrors(message)))
        first = json.loads(next(streams[-1][1])["data"])
        assert first["method"].endswith("acknowledged") and first["params"]["_meta"][mcp_ref.META_SUBSCRIPTION] == 0
    wait_until(lambda: len(one.server._listening) == 5)
    message = modern("tools/call", name="echo", arguments={"text": "x"})
    assert one.ask(body=message, headers=mirrors(message)).status == 200
    one.server.changed("tools")
    one.server.changed("test://text")
    for number, (_, stream) in enumerate(streams):
        assert "tools/list_changed" in next(stream)["data"]
        if number:
            assert "test://text" in next(stream)["data"]
    streams[0][0].sock.shutdown(2)
    wait_until(lambda: len(one.server._listening) == 4)
    one.endpoint.close()
    for _, stream in streams[1:]:
        last = [json.loads(event["data"]) for event in stream if event.get("data")]
        assert len(last) == 1 and last[0]["result"]["_meta"][mcp_ref.META_SUBSCRIPTION] == 0


def test_rounds_are_answered_by_any_process_with_the_key(site: Any) -> None:
    sites = [site(make_server(state_key="shared")) for _ in range(2)]
    message = modern("tools/call", name="twice", arguments={}, capabilities={"elicitation": {}})
    answers_given = {"elicitation-1": {"one": 1}, "second": {"two": 2}}
    for turn in range(3):
        response = sites[turn % 2].ask(body=message, headers=mirrors(message))
        result = json.loads(response.data)["result"]
        if turn < 2:
            message["params"].update(requestState=result["requestState"], inputResponses={
                key: {"action": "accept", "content": answers_given[key]} for key in result["inputRequests"]})
    assert result["content"][0]["text"] == "1 2"


def test_http_sse(site: Any) -> None:
    """[2024-11-05] one stream, and a place to post to."""
    one = site(sse_on_get=True)
    for path in ("/sse", "/mcp"):
        connection, stream = one.stream("GET", path=path)
        opening = next(stream)
        assert opening["event"] == "endpoint" and opening["data"].startswith(
            {"/sse": "/messages?session_id=", "/mcp": "/mcp/messages?session_id="}[path])

        def post(message: Any, where: str = opening["data"]) -> None:
            response = one.ask(path=where, body=message)
            assert response.status == 202 and response.data == b""
        post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {"roots": {}}, "clientInfo": {}}})
        assert json.loads(next(stream)["data"])["result"]["protocolVersion"] == "2024-11-05"
        post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "folders"}})
        asked = json.loads(next(stream)["data"])
        assert asked["method"] == "roots/list"
        post({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///x"}]}})
        assert json.loads(next(stream)["data"])["result"]["content"][0]["text"] == "file:///x"
        one.server.changed("tools")
        assert "tools/list_changed" in next(stream)["data"]
        assert one.ask(path=opening["data"], body=b"{").status == 400
        connection.sock.shutdown(2)
        wait_until(lambda where=opening["data"]: one.ask(path=where, body=PING).status == 404)


def test_a_storm_leaves_nothing_behind(site: Any, capfd: Any) -> None:
    """Clients of every kind, many of which vanish: afterwards no thread and no descriptor is left."""
    one = site()
    assert one.ask(body=PING).status == 200
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    chance = random.Random(7)
    message = modern("tools/call", name="steps", arguments={}, _meta={"progressToken": 1})
    listen = modern("subscriptions/listen", notifications={"toolsListChanged": True})
    raw = [GOOD, as_sent(message), as_sent(listen)]
    wrong: List[Any] = []

    def client(seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(15):
            try:
                sock = one.connect()
                data = choice.choice(raw)
                if choice.random() < 0.4:
                    sock.sendall(data[:choice.randrange(len(data))])
                else:
                    sock.sendall(data)
                    if data is not raw[2] and not sock.recv(100).startswith(b"HTTP/1.1 200"):
                        wrong.append(data)
                sock.close()
            except OSError as problem:
                wrong.append(problem)
    clients = [threading.Thread(target=client, args=(chance.random(),)) for _ in range(16)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(PATIENCE)
    assert not wrong
    wait_until(lambda: not one.httpd.opened and not one.server._listening)
    wait_until(lambda: threading.active_count() <= threads + 1)     # the housekeeper stays
    if descriptors:
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert one.ask(body=PING).status == 200
    assert "Traceback" not in capfd.readouterr().err


# ---- what adversaries and real engines found: each of these went wrong once

INNER = POST + b"Content-Length: %d\r\n\r\n" % len(PING.replace(b"1,", b'"SMUGGLED",')) + PING.replace(b"1,", b'"SMUGGLED",')


@pytest.mark.parametrize("head", [
    POST + b"Content-Length: %d\r\nContent-Length: 0\r\n\r\n" % len(INNER), POST + b"Content-Length: \r\n\r\n",
    POST + b"Content-Length : %d\r\n\r\n" % len(INNER), POST + b"foo\r\nContent-Length: %d\r\n\r\n" % len(INNER),
    POST + b"X\0: a\r\nContent-Length: %d\r\n\r\n" % len(INNER), POST + b"X\xe4: a\r\nContent-Length: %d\r\n\r\n" % len(INNER),
    POST + b" Content-Length: %d\r\n\r\n" % len(INNER), POST + b"X: a\rContent-Length: %d\r\n\r\n" % len(INNER),
    POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X" * 999 + b":\r\n\r\n",
    POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n\r\n", b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(INNER)])
def test_no_request_hides_in_another(site: Any, head: bytes) -> None:
    sock = site().connect()
    sock.sendall(head + INNER + GOOD)
    sock.shutdown(socket.SHUT_WR)
    found = answers(sock)
    sock.close()
    assert len(found) == 1 and found[0][0] >= 400 and b"SMUGGLED" not in found[0][1]


def test_a_request_whose_headers_never_ended_is_not_run(site: Any) -> None:
    one = site()
    session = one.open()
    for rest in (b"", b"Authoriz", b"X: y", b"X: y\r"):
        sock = one.connect()
        sock.sendall(b"DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: %s\r\n" % session.encode() + rest)
        sock.shutdown(socket.SHUT_WR)
        assert [status for status, _ in answers(sock)] == [400]
        sock.close()
    assert one.ask(body=PING, Mcp_Session_Id=session).status == 200


def test_a_refused_body_is_read_past_so_that_the_answer_arrives(site: Any) -> None:
    one = site(authorize=mcp_ref.bearer({"a": 1}))
    assert one.ask(body=b"[" * (17 * 2**20)).status == 401
    two = site()
    refused = two.ask(body=b"[" * (17 * 2**20), Content_Type="text/plain")
    assert refused.status == 413, "the size comes before the type"
    sock = two.connect()
    sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
    assert sock.recv(1000).startswith(b"HTTP/1.1 413"), "not 100"
    sock.close()
    sock = two.connect()
    sock.sendall(GOOD.replace(b"1.1", b"1.0").replace(b"Host", b"Expect: 100-continue\r\nHost"))
    assert sock.recv(1000).startswith(b"HTTP/1.1 200"), "HTTP/1.0 knows no 100"
    sock.close()


def test_listeners_that_vanish_or_do_not_read_hold_up_nobody(site: Any, monkeypatch: Any) -> None:
    one = site()
    gone, stays = (modern("subscriptions/listen", ident=letter * 30000, notifications={"toolsListChanged": True})
                   for letter in "gs")
    for _ in range(20):
        sock = one.connect()
        sock.sendall(as_sent(gone))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    wait_until(lambda: not one.httpd.opened and not one.server._listening)
    deaf = one.connect()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(as_sent(stays))

    def listens() -> bool:                      # one of those that vanished may still be on its way in
        return any(ctx.id[0] == "s" for ctx in list(one.server._listening))
    wait_until(listens)
    monkeypatch.setattr(mcp_ref, "SEND_SECONDS", 10**6)

    def tell() -> None:                         # until what the system buffers is full, and then it is let go of
        for _ in range(2000):
            one.server.changed("tools")
            if not listens():
                break
    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(PATIENCE)
    assert not telling.is_alive(), "whoever tells waits for whoever does not read"
    wait_until(lambda: not listens())
    deaf.close()


def test_closing_ends_kept_connections_and_never_hangs(site: Any) -> None:
    never_served = mcp_ref.http_server(mcp_ref.Endpoint(make_server()))
    never_served.close()
    one = site()
    sock = one.connect()
    sock.sendall(GOOD)
    assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    session = one.open()
    connection, stream = one.stream("GET", Mcp_Session_Id=session)
    one.close()
    assert [event for event in stream if "data" in event and event["data"]] == []
    connection.close()
    try:
        sock.sendall(GOOD)
        assert [status for status, _ in answers(sock)] in ([], [503])
    except OSError:
        pass
    sock.close()
    wait_until(lambda: not one.httpd.opened)


def test_many_descriptors(site: Any) -> None:
    resource = pytest.importorskip("resource")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200 or not hasattr(select, "poll"):
        pytest.skip("too few descriptors to be had")
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        one = site()
        message = modern("tools/call", name="hold", arguments={"name": "n"})
        looker = threading.Timer(0.3, one.server.door("n").set)     # the housekeeper has looked by then
        looker.start()
        assert b'"isError"' not in one.ask(body=message, headers=mirrors(message)).data
        looker.join()
    finally:
        for fd in held:
            os.close(fd)


def test_a_stream_that_is_taken_over_and_let_go_leaves_nothing(site: Any) -> None:
    one = site()
    session = one.open("2025-11-25")
    assert one.ask(body=PING).status == 200
    first, stream = one.stream("GET", Mcp_Session_Id=session)
    ident = next(stream)["id"]
    kept = one.endpoint.sessions._by_id[session]
    connections = [first]
    for _ in range(5):
        connection, stream = one.stream("GET", Mcp_Session_Id=session, Last_Event_ID=ident)
        connections.append(connection)
    wait_until(lambda: len(one.endpoint.replies) == 1)
    one.server.changed("tools")                     # it listens on, where it is now
    assert "list_changed" in next(event for event in stream if event.get("data"))["data"]
    for connection in connections:
        connection.close()
    wait_until(lambda: not one.httpd.opened and not one.endpoint.replies)
    assert all(one_stream.gone for one_stream in kept.streams.values())
    one.server.changed("tools")                     # nobody is there: it waits, for one who resumes too
    again, stream = one.stream("GET", Mcp_Session_Id=session, Last_Event_ID=ident)
    assert sum("list_changed" in next(stream)["data"] for _ in range(2)) == 2
    again.close()


def test_what_clients_send_is_not_kept_without_bound(site: Any, monkeypatch: Any) -> None:
    one = site()
    big = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x" * 300000}}}
    assert one.ask(body=big).status == 413
    monkeypatch.setattr(mcp_ref, "REPLAY_BYTES", 5000)
    session = mcp_ref.HttpSession(None)
    for _ in range(10):                             # answers larger than all that may be kept: only the last one stays
        stream = session.stream()
        stream.add(b"x" * 6000, True)
    assert 6000 < session.kept < 6100 and [bool(one.events) for one in session.streams.values()] == [False] * 9 + [True]
    assert [one.is_over(0) for one in session.streams.values()] == [True] * 9 + [False]
    for _ in range(200):
        session.tell({"jsonrpc": "2.0", "method": "x", "params": {"text": "y" * 1000}})
    assert len(session.waiting) == 5
    small = mcp_ref.HttpSession(None)
    for _ in range(200):
        small.tell({"jsonrpc": "2.0", "method": "x"})
    assert len(small.waiting) == mcp_ref.MAX_BATCH


def test_a_session_with_too_many_streams_is_busy(site: Any, monkeypatch: Any) -> None:
    one = site()
    session = one.open()
    connection, stream = one.stream("GET", Mcp_Session_Id=session)
    monkeypatch.setattr(mcp_ref, "MAX_STREAMS", 1)
    for verb in ("POST", "GET"):
        busy = one.ask(verb, body=PING if verb == "POST" else None, Mcp_Session_Id=session)
        assert busy.status == 503 and busy.getheader("Retry-After") == "1"
    connection.close()
    wait_until(lambda: one.ask(body=PING, Mcp_Session_Id=session).status == 200)


def test_a_bad_initialize_opens_nothing(site: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_SESSIONS", 1)
    one = site()
    session = one.open()
    for params in ({}, {"protocolVersion": 1, "capabilities": {}, "clientInfo": {}}):
        response = one.ask(body={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert "error" in json.loads(response.data) and response.getheader("Mcp-Session-Id") is None
    assert one.ask(body=PING, Mcp_Session_Id=session).status == 200, "and pushes none out"


def test_sessions_of_one_kind_are_none_of_the_other(site: Any) -> None:
    one = site()
    session = one.open()
    assert one.ask(path="/messages?session_id=" + session, body=PING).status == 404
    connection, stream = one.stream("GET", path="/sse")
    ident = next(stream)["data"].rpartition("=")[2]
    assert one.ask(body=PING, Mcp_Session_Id=ident).status == 404
    odd = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": 5}}
    assert one.ask(path="/messages?session_id=" + ident, body=odd).status == 202
    assert json.loads(next(stream)["data"])["error"]["code"] == -32602, "there, and not on the POST"
    connection.close()


def test_authorize_may_be_async_and_say_anything(site: Any) -> None:
    async def nobody(headers: Dict[str, str]) -> Any:
        raise mcp_ref.HttpError(499, "no\r\nX: y", {"Retry-After": 5, "X-Text": "a\r\nSet-Cookie: b"})   # type: ignore[dict-item]
    refused = site(authorize=nobody).ask(body=PING)
    assert refused.status == 499 and refused.getheader("Retry-After") == "5"
    assert refused.getheader("X-Text") == "aSet-Cookie: b" and refused.getheader("Set-Cookie") is None
    key = site(authorize=mcp_ref.bearer({"schl\u00fcssel": "ada"}, header="X-API-Key"))
    wire = "schl\u00fcssel".encode().decode("latin-1")
    assert key.ask(body=PING, headers={"X-Api-Key": wire}).status == 200
    wrong = key.ask(body=PING, headers={"X-Api-Key": "x"})
    assert wrong.status == 401 and wrong.getheader("WWW-Authenticate") is None
    sock = key.connect()
    sock.sendall(POST + b"X-Api-Key: x\r\nX-Api-Key: %s\r\nContent-Length: 0\r\n\r\n" % "schl\u00fcssel".encode())
    sock.shutdown(socket.SHUT_WR)
    assert [status for status, _ in answers(sock)] == [401]
    sock.close()


def test_a_header_that_mirrors_nothing_is_refused(site: Any) -> None:
    server = Server("mirrors")

    @server.tool(input_schema={"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}, "n": {"type": "integer", "x-mcp-header": "N"}}})
    def place(region: Any = None, n: Any = None) -> str:
        return "ok"
    one = site(server)
    for arguments, header, fits in (
            ({}, {}, True), ({"region": None}, {}, True), ({}, {"Mcp-Param-Region": "evil"}, False),
            ({"region": None}, {"Mcp-Param-Region": "none"}, False), ({"n": 42}, {"Mcp-Param-N": "42"}, True),
            ({"n": 42}, {"Mcp-Param-N": "4_2"}, False), ({"n": 42}, {"Mcp-Param-N": "42.0"}, True),
            ({"n": 2**53 + 1}, {"Mcp-Param-N": str(2**53 + 1)}, True), ({"n": 42}, {}, False)):
        message = modern("tools/call", name="place", arguments=arguments)
        response = one.ask(body=message, headers={**mirrors(message), **header})
        assert json.loads(response.data).get("error", {}).get("code") == (None if fits else -32020), (arguments, header)


def test_small_print_of_http(site: Any) -> None:
    one = site(cors=True, metadata={"resource": "x"})
    refused = one.ask(body=PING, Origin="https://evil.example")
    assert refused.status == 403 and refused.getheader("Access-Control-Allow-Origin") is None
    assert one.ask("DELETE", "/.well-known/oauth-protected-resource").status == 405
    head = one.connect()
    head.sendall(b"HEAD /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n" + GOOD)
    data = b""
    while b'"result"' not in data:
        data += head.recv(1000)
    assert data.count(b"HTTP/1.1 ") == 2 and data.startswith(b"HTTP/1.1 405") and b'"error"' not in data, "no body for HEAD"
    head.close()
    with pytest.raises(TypeError):
        mcp_ref.serve_http(one.server, endpoint=one.endpoint, cors=True)
    with pytest.raises(SystemExit, match="127.0.0.1:%d: " % one.port):
        one.server.run(["--http", "127.0.0.1:%d" % one.port])


def test_ipv6() -> None:
    try:
        httpd = mcp_ref.http_server(mcp_ref.Endpoint(make_server()), "::1")
    except OSError:
        pytest.skip("there is no IPv6 here")
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    connection = http.client.HTTPConnection("::1", httpd.server_port, timeout=PATIENCE)
    connection.request("POST", "/mcp", PING, JSON_TYPE)
    assert connection.getresponse().status == 200
    connection.close()
    httpd.close()
    thread.join(PATIENCE)


def test_serving_http_from_the_command_line(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, str(HERE / "mcp_ref.py"), "--http", "0"], stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, universal_newlines=True)
    try:
        assert child.stderr
        line = child.stderr.readline()
        port = int(re.search(r"http://127.0.0.1:(\d+)/mcp", line)[1])     # type: ignore[index]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/mcp", PING, JSON_TYPE)
        assert connection.getresponse().status == 200
        connection.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 0 and child.stderr.read() == ""
    finally:
        child.kill()
        child.wait()
        child.stderr.close()        # type: ignore[union-attr]
    for bad in (["--http"], ["--http", "x"], ["--http", "99999"]):
        done = run(str(HERE / "mcp_ref.py"), *bad)
        assert done.returncode == 1 and "usage" in done.stderr


# ------------------------------------------------------------------------------------------
# The client
# ------------------------------------------------------------------------------------------

CLIENT_THREADS = {"mcp-read", "mcp-stderr", "mcp-stream", "mcp-deadline", "mcp-listen", "mcp-hear", "mcp-answer",
                  "mcp-call"}


@contextlib.contextmanager
def no_new_threads() -> Any:
    """Wait in the end until the threads of clients are gone that were not there before."""
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not [one for one in threading.enumerate()
                            if one not in before and one.name in CLIENT_THREADS])


@pytest.fixture
def tidy(capfd: Any) -> Any:
    """A client that is closed leaves no thread behind, and no traceback on stderr."""
    with no_new_threads():
        yield capfd
    assert "Traceback" not in capfd.readouterr().err


class Tape:
    """The `trace` of a client: keeps what went by, and asserts what must hold of every message."""

    RESULTS = {"elicitation/create": "ElicitResult", "sampling/createMessage": "CreateMessageResult",
               "roots/list": "ListRootsResult", "ping": "EmptyResult"}

    def __init__(self, checks: bool = True) -> None:
        self.lines: List[Tuple[str, Any]] = []
        self.problems: List[Any] = []
        self.wire = Wire()
        self.asked: Dict[str, str] = {}         # questions of a legacy server: methods by id
        self.ids: Set[Any] = set()
        self.checks = checks
        self.lock = threading.Lock()

    def __call__(self, way: str, message: Any) -> None:
        with self.lock:
            self.lines.append((way, json.loads(json.dumps(message))))
            if self.checks:
                try:
                    self.check(way, message)
                except Exception as problem:    # who traces must not fail
                    self.problems.append((repr(problem), way, message))

    def check(self, way: str, message: Any) -> None:
        if way == ">":
            self.check_sent(message)
            self.wire.sent(message)
        else:
            if message.get("method") in self.RESULTS and "id" in message:
                self.asked[json.dumps(message["id"])] = message["method"]
            if "result" in message and "protocolVersion" in message["result"]:
                self.wire.version = message["result"]["protocolVersion"]
            self.wire.received(message)

    def check_sent(self, message: Any) -> None:
        """Check what a client sends."""
        assert message["jsonrpc"] == "2.0"
        params, method = message.get("params", {}), message.get("method")
        meta = params.get("_meta", {})
        if method == "initialize":
            self.wire.version = params["protocolVersion"]
        elif mcp_ref.META_VERSION in meta:
            self.wire.version = meta[mcp_ref.META_VERSION]
        edition = rules(self.wire.version)
        if method is None:
            assert not edition.modern and ("result" in message) != ("error" in message)
            kind, part = self.RESULTS[self.asked.pop(json.dumps(message["id"]))], message.get("result")
        elif "id" in message:
            assert message["id"] not in self.ids, "an id is used once"
            self.ids.add(message["id"])
            assert method not in METHODS or ">" in METHODS[method].way and method in edition.methods
            assert edition.modern == (mcp_ref.META_CAPABILITIES in meta) == (mcp_ref.META_CLIENT in meta)
            kind, part = "ClientRequest" if method in METHODS else "", message
        else:
            assert ">" in NOTIFICATIONS[method].way and method in edition.notifications
            kind, part = "ClientNotification", message
        if os.environ.get("MCP_SPEC") and kind and part is not None:
            flaw = official(os.environ["MCP_SPEC"], self.wire.version, kind).flaw(part)
            assert flaw is None, flaw

    def sent(self) -> List[str]:
        """List the methods of what was sent."""
        with self.lock:
            return [message["method"] for way, message in self.lines if way == ">" and "method" in message]

    def params(self, method: str) -> List[Any]:
        """List the params of what was sent of this method, without `_meta`."""
        with self.lock:
            return [{key: value for key, value in message.get("params", {}).items() if key != "_meta"}
                    for way, message in self.lines if way == ">" and message.get("method") == method]

    def declared(self) -> Any:
        """Return the capabilities that the last message of a kind that has them declares."""
        with self.lock:
            found = [message["params"].get("capabilities", message["params"].get("_meta", {}).get(
                mcp_ref.META_CAPABILITIES)) for way, message in self.lines if way == ">" and "params" in message]
        return [one for one in found if one is not None][-1]

    def received(self) -> Set[str]:
        """Return the methods of what came, those inside results too."""
        with self.lock:
            came = [message for way, message in self.lines if way == "<"]
        return {message["method"] for message in came if "method" in message} | {
            question["method"] for message in came if isinstance(message.get("result"), dict)
            for question in message["result"].get("inputRequests", {}).values()}


class Twin:
    """Stands in for a Popen: a server in this very process, at the other end of real pipes."""

    pid = 2**30                 # nobody has it: signals go nowhere

    def __init__(self, server: Server) -> None:
        theirs, ours = os.pipe()
        mine, out = os.pipe()
        read, err = os.pipe()
        self.out, self.err = open(out, "wb", 0), open(err, "wb", 0)
        self.stdin, self.stdout, self.stderr = open(ours, "wb", 0), open(mine, "rb", 0), open(read, "rb", 0)
        self.reader = open(theirs, "rb")
        self.ended, self.over = threading.Event(), threading.Event()
        self.terminate = self.kill = self.ended.set
        self.pipe = mcp_ref.Pipe(server, self.reader.readline, self.write, self.ended.set)
        self.pipe.start()
        threading.Thread(target=self.live, daemon=True).start()

    def write(self, data: bytes) -> None:
        try:
            while data:
                data = data[self.out.write(data) or 0:]
        except ValueError:          # closed
            raise OSError from None

    def live(self) -> None:
        self.ended.wait()
        self.pipe.leave(0.05)
        self.out.close()
        self.err.close()
        self.reader.close()
        self.over.set()

    def wait(self, timeout: Optional[float] = None) -> int:
        if not self.over.wait(timeout):
            raise subprocess.TimeoutExpired("twin", timeout or 0)
        return 0

    def poll(self) -> Optional[int]:
        return 0 if self.over.is_set() else None


@pytest.fixture
def link(tidy: Any, site: Any, monkeypatch: Any) -> Any:
    """Connect clients: to a server in memory, over pipes, or over HTTP; or to any target."""
    opened: List[Any] = []
    twins: List[Server] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: Twin(
        twins[int(command[1])]) if command[0] == "twin" else popen(command, **options))

    def start(where: Any = "memory", version: str = "", server: Optional[Server] = None, *,
              checks: bool = True, **options: Any) -> Any:
        tape, target, server = Tape(checks), where, server or make_server()
        if where == "memory":
            target = server
        elif where == "stdio":
            twins.append(server)
            target = mcp_ref.StdioTransport(["twin", str(len(twins) - 1)])
        elif where in ("http", "sse"):
            at = site(server)
            target = "http://127.0.0.1:%d/%s" % (at.port, {"http": "mcp", "sse": "sse"}[where])
        client: Any = mcp_ref.connect(target, **{"revision": version, "trace": tape, "timeout": PATIENCE, **options})
        client.tape, client.server = tape, server
        client.site = at if where in ("http", "sse") else None
        opened.append(client)
        return client
    yield start
    for one in opened:
        one.close()
    problems = [problem for one in opened for problem in one.tape.problems]
    assert not problems, problems[0]


PLACES = ("memory", "stdio", "http", "sse")
EVERY = [(where, version) for version in versions() for where in PLACES if where != "sse" or version in LEGACY]
NEWEST = [(where, version) for where, version in EVERY if version in (MODERN[0], LEGACY[0])]
everywhere = pytest.mark.parametrize("where, version", EVERY)
newest = pytest.mark.parametrize("where, version", NEWEST)
legacy_only = pytest.mark.parametrize("where, version", [one for one in EVERY if one[1] in LEGACY])
modern_only = pytest.mark.parametrize("where, version", [one for one in EVERY if one[1] in MODERN])


def said(result: Any) -> str:
    """Return the text of a tool's result that did not fail."""
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def in_thread(function: Any) -> Any:
    """Run a function on a thread; return a function that waits, and returns or raises what it did."""
    done: queue.Queue[Any] = queue.Queue()

    def run_it() -> None:
        try:
            done.put((function(), None))
        except BaseException as problem:
            done.put((None, problem))
    threading.Thread(target=run_it, daemon=True).start()

    def outcome() -> Any:
        value, problem = done.get(timeout=PATIENCE)
        if problem is not None:
            raise problem
        return value
    return outcome


def cancel_one(client: Any, name: str) -> None:
    """Call the tool that holds, cancel the call once it runs, and see that the server has heard it."""
    requests: List[Any] = []
    call = in_thread(lambda: client.call_tool("hold", {"name": name}, started=requests.append))
    assert client.server.door(name + " runs").wait(PATIENCE)
    requests[-1].cancel()
    with pytest.raises(mcp_ref.RequestCancelled):
        call()
    assert client.server.door(name + " done").wait(PATIENCE)


# ---- everything, over every transport, in every revision

def fill(params: Any) -> Any:
    """Fill whatever form comes."""
    values = {"string": "main", "integer": 4, "boolean": True, "number": 2.5, "array": []}
    return {name: part["enum"][0] if "enum" in part else part["oneOf"][0]["const"] if "oneOf" in part
            else values[part["type"]]
            for name, part in params["requestedSchema"]["properties"].items() if "default" not in part}


@everywhere
def test_client_speaks_every_row_of_the_tables(link: Any, where: str, version: str) -> None:
    """A tour of all methods; in the end each row of the tables was seen in this revision's run."""
    heard: queue.Queue[str] = queue.Queue()
    contexts: List[Context] = []
    server = make_server(page_size=2)

    @server.tool
    def sign_in(ctx: Context) -> str:
        contexts.append(ctx)
        if len(contexts) == 1 or ctx.session is None:
            ctx.elicit("Sign in", url="https://example.org/in", elicitation_id="s1", wait=False)
        return "in"

    def visit(params: Any) -> bool:
        contexts[-1].notify("notifications/elicitation/complete", {"elicitationId": "s1"})
        return bool(params["url"] == "https://example.org/in")
    asked = threading.Event()

    def elicit(params: Any) -> Any:
        if "kinds" in params["requestedSchema"]["properties"]:
            asked.set()
            assert quit_it.wait(PATIENCE)
        return fill(params)
    quit_it = threading.Event()
    client = link(where, version, server, elicit=elicit, visit=visit, sample=lambda params: "I think so",
                  roots=["/tmp/a b"], on_log=lambda params: heard.put(params["data"]["says"]),
                  on_notification=lambda message: None)
    edition = rules(version)
    assert client.version == version and client.modern == edition.modern
    assert client.server_info["name"] == "test" and client.instructions == "Use it gently."
    client.ping()
    assert [tool["name"] for tool in client.list_tools()] == list(server.tools)
    assert {one["uri"] for one in client.list_resources()} == set(server.resources)
    assert [one["uriTemplate"] for one in client.list_resource_templates()] == list(server.templates)
    assert [one["name"] for one in client.list_prompts()] == list(server.prompts)
    assert said(client.call_tool("echo", {"text": "f\u00fcr\u2028 \U0001f600"})) == "f\u00fcr\u2028 \U0001f600"
    assert client.read_resource("test://text")[0]["text"] == "hello"
    assert base64.b64decode(client.read_resource("test://blob")[0]["blob"]) == PNG
    assert client.get_prompt("greet", {"name": "Ada"})["messages"][0]["content"]["text"] == "Hello, Ada!"
    assert client.complete("test://item/{number}/{part}", "part", "h") == ["head", "hand"]
    context = "completion context" in edition.features
    assert client.complete("greet", "name", "B", {"k": "v"})[:2] == (["k"] if context else ["B0", "B1"])
    assert ("context" in client.tape.params("completion/complete")[-1]) == context
    steps: List[Any] = []
    assert said(client.call_tool("steps", on_progress=lambda *step: steps.append(step))) == "done"
    words = "progress messages" in edition.features
    assert steps == [(value, 3, "at %g" % value if words else None) for value in (0, 1, 2.5)]
    client.set_level("error")
    assert said(client.call_tool("talk")) == "said"
    assert [heard.get(timeout=PATIENCE) for _ in range(4)] == ["error", "critical", "alert", "emergency"]
    if "elicitation/create" in edition.methods:
        assert json.loads(said(client.call_tool("branch"))) == {
            "action": "accept", "content": {"branch": "main", "force": False}}
        assert said(client.call_tool("twice")) == "4 4"
    if "URL elicitation" in edition.features:
        assert said(client.call_tool("sign_in")) == "in"
        assert len(contexts) == 2
    assert said(client.call_tool("think")) == "unknown"
    assert said(client.call_tool("folders")) == "file:///tmp/a%20b"
    with client.listen(["tools", "prompts", "resources", "test://text"]) as changes:
        assert changes.granted == ["tools", "prompts", "resources", "test://text"]
        coming = iter(changes)
        for what in changes.granted:
            server.changed(what)
            assert next(coming) == what
    assert list(coming) == []
    cancel_one(client, "tour")
    if not edition.modern:
        client.notify("notifications/roots/list_changed")
        client.notify("notifications/progress", {"progressToken": "t", "progress": 1})
    if version == LEGACY[0] and where != "http":        # a question is cancelled with the call that asks it
        requests: List[Any] = []
        call = in_thread(lambda: client.call_tool("many", started=requests.append))
        assert asked.wait(PATIENCE)
        requests[-1].cancel()
        with pytest.raises(mcp_ref.RequestCancelled):
            call()
        wait_until(lambda: "notifications/cancelled" in client.tape.received())
        quit_it.set()
    see_all_rows(client.tape, edition, where)


def see_all_rows(tape: Tape, edition: Any, where: str) -> None:
    """Every row that this revision has went over the wire, in its direction."""
    sent = {name for name in edition.methods if ">" in METHODS[name].way}
    sent |= {name for name in edition.notifications if ">" in NOTIFICATIONS[name].way}
    came = {name for name in edition.methods if METHODS[name].way == "<"}      # a server here never pings
    came |= {name for name in edition.notifications if "<" in NOTIFICATIONS[name].way}
    if edition.modern:                      # it has no questions to report on, or to give up
        sent.discard("notifications/progress")
        came.discard("notifications/cancelled")
        if where == "http":                 # to cancel is to hang up
            sent.discard("notifications/cancelled")
    elif edition.version != LEGACY[0] or where == "http":       # there the stream is gone that it would come by
        came.discard("notifications/cancelled")
    assert sent - set(tape.sent()) == set() and set(tape.sent()) - sent <= {"server/discover"}
    assert came - tape.received() == set()


@pytest.mark.parametrize("where", PLACES)
def test_client_finds_the_newest_revision_by_itself(link: Any, where: str) -> None:
    client = link(where)
    assert client.version == (LEGACY[0] if where == "sse" else MODERN[0])
    assert said(client.call_tool("add", {"a": 1})) == "3"


@newest
@pytest.mark.parametrize("method, member", [
    ("list_tools", "tools"), ("list_resources", "resources"), ("list_resource_templates", "templates"),
    ("list_prompts", "prompts")])
def test_client_fetches_all_pages(link: Any, where: str, version: str, method: str, member: str) -> None:
    server = make_server(page_size=1)
    client = link(where, version, server)
    listed = getattr(client, method)()
    assert len(listed) == len(getattr(server, member)) > 1
    asked = client.tape.sent().count({"templates": "resources/templates"}.get(member, member) + "/list")
    assert asked == len(listed)


@everywhere
def test_client_gets_the_servers_errors_as_they_are(link: Any, where: str, version: str, capfd: Any) -> None:
    client = link(where, version)
    for call, code in ((lambda: client.call_tool("nobody"), mcp_ref.INVALID_PARAMS),
                       (lambda: client.get_prompt("greet"), mcp_ref.INVALID_PARAMS),
                       (lambda: client.read_resource("test://gone"), mcp_ref.INVALID_PARAMS if client.modern
                        else mcp_ref.RESOURCE_NOT_FOUND),
                       (lambda: client.request("nobody/knows"), mcp_ref.METHOD_NOT_FOUND),
                       (lambda: client.call_tool("fails", {"how": "own"}), 7)):
        with pytest.raises(RpcError) as caught:
            call()
        assert caught.value.code == code and str(caught.value)
    assert caught.value.data == [7] and str(caught.value) == "seven"
    assert client.call_tool("fails", {"how": "value"})["isError"] is True
    assert client.request("example.org/verb", {"x": 5})["got"] == 5 if client.modern else True
    capfd.readouterr()


@everywhere
def test_client_does_not_call_what_a_server_lacks(link: Any, where: str, version: str) -> None:
    client = link(where, version, Server("bare"))
    assert client.list_tools() == client.list_resources() == client.list_prompts() == []
    assert client.list_resource_templates() == []
    before = len(client.tape.lines)
    calls = [lambda: client.call_tool("x"), lambda: client.read_resource("x:y"), lambda: client.get_prompt("x")]
    if "completions capability" in rules(version).features:
        calls.append(lambda: client.complete("x", "y", ""))
    for call in calls:
        with pytest.raises(mcp_ref.ServerLacks):
            call()
    with pytest.raises(ValueError, match="debug, info"):
        client.set_level("loud")
    assert len(client.tape.lines) == before


# ---- time, progress, cancelling

@newest
def test_client_cancels_what_takes_too_long(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    with pytest.raises(TimeoutError, match="tools/call|in time"):
        client.call_tool("hold", {"name": "slow"}, timeout=0.1)
    assert client.server.door("slow runs").wait(PATIENCE) and client.server.door("slow done").wait(PATIENCE)
    assert said(client.call_tool("echo", {"text": "alive"})) == "alive"


@everywhere
def test_client_cancels_from_another_thread(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    for name in ("one", "two"):
        cancel_one(client, name)
    assert said(client.call_tool("echo", {"text": "alive"})) == "alive"
    if where != "http" or not client.modern:
        ids = [message["id"] for way, message in client.tape.lines
               if message.get("params", {}).get("name") == "hold"]
        assert [params["requestId"] for params in client.tape.params("notifications/cancelled")] == ids


def ticking() -> Server:
    server = make_server()

    @server.tool
    def tick(ctx: Context) -> str:
        """Report progress until the door opens."""
        count = 0
        while count < 1000 and not server.door("enough").wait(0.01) and not ctx.cancelled:      # type: ignore
            count += 1
            ctx.progress(count)
        server.door("over").set()       # type: ignore[attr-defined]
        return "ticked"
    return server


@pytest.mark.parametrize("where, version", [("memory", LEGACY[0]), ("stdio", MODERN[0]), ("http", MODERN[0])])
def test_client_waits_longer_while_there_is_progress(link: Any, where: str, version: str) -> None:
    client = link(where, version, ticking())
    begun = time.monotonic()

    def on_progress(*_: Any) -> None:
        if time.monotonic() - begun > 0.4:
            client.server.door("enough").set()
    assert said(client.call_tool("tick", timeout=0.3, extend=True, on_progress=on_progress)) == "ticked"


@newest
@pytest.mark.parametrize("options", [{"timeout": 0.05}, {"timeout": 9, "longest": 0.05, "extend": True}])
def test_client_does_not_wait_for_ever(link: Any, where: str, version: str, options: Any) -> None:
    client = link(where, version, ticking())
    with pytest.raises(TimeoutError):
        client.call_tool("tick", on_progress=lambda *_: None, **options)
    assert client.server.door("over").wait(PATIENCE) or "tools/call" not in client.tape.sent()


def test_client_moves_a_deadline_only_if_asked_to() -> None:
    tick = {"method": "notifications/progress", "params": {"progress": 1}}
    for extend in (True, False):
        request = mcp_ref.Request(1, "m", 50, 100, extend, None, None)
        first, request.deadline = request.deadline, 0.0
        request.take(tick)
        assert (request.deadline >= first) == extend and request.wants_progress == extend
    hard = mcp_ref.Request(1, "m", 0.5, 0, True, None, None)
    hard.take(tick)
    with pytest.raises(TimeoutError):
        hard.wait()


@newest
def test_client_calls_run_side_by_side(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    calls = [in_thread(lambda n=n: client.call_tool("hold", {"name": str(n)})) for n in range(5)]
    for n in range(5):
        assert client.server.door("%d runs" % n).wait(PATIENCE)
    client.ping()
    for n in reversed(range(5)):
        client.server.door(str(n)).set()
        assert said(calls[n]()) == "held"


@newest
def test_client_that_closes_fails_its_calls(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    call = in_thread(lambda: client.call_tool("hold", {"name": "x"}))
    assert client.server.door("x runs").wait(PATIENCE)
    subscription = client.listen(["tools"])
    client.close()
    with pytest.raises(mcp_ref.Disconnected, match="closed|hung up"):
        call()
    assert list(subscription) == []
    client.close()
    client.server.door("x").set()
    assert client.server.door("x done").wait(PATIENCE)
    with pytest.raises(mcp_ref.Disconnected, match="closed"):
        client.ping()


# ---- what a server asks

asks_forms = pytest.mark.parametrize("where, version", [
    one for one in EVERY if "elicitation/create" in rules(one[1]).methods])
asks_pages = pytest.mark.parametrize("where, version", [
    one for one in EVERY if "URL elicitation" in rules(one[1]).features])


@asks_forms
@pytest.mark.parametrize("answer, result", [
    ({"branch": "x"}, {"action": "accept", "content": {"branch": "x", "force": False}}),
    ({"branch": "x", "force": True}, {"action": "accept", "content": {"branch": "x", "force": True}}),
    (None, {"action": "decline"}), ("decline", {"action": "decline"}), ("cancel", {"action": "cancel"})])
def test_client_fills_forms(link: Any, where: str, version: str, answer: Any, result: Any) -> None:
    client = link(where, version, elicit=lambda params: answer)
    assert json.loads(said(client.call_tool("branch"))) == result


@asks_forms
def test_client_does_not_send_a_form_that_is_filled_wrongly(link: Any, where: str, version: str, capfd: Any) -> None:
    client = link(where, version, elicit=lambda params: {"branch": 5})
    if client.modern:
        with pytest.raises(ValueError, match="branch"):
            client.call_tool("branch")
    else:
        assert client.call_tool("branch")["content"][0]["text"].startswith("failed: ")
        assert "branch" in capfd.readouterr().err
    assert not [1 for way, message in client.tape.lines if way == ">" and '"branch": 5' in json.dumps(message)]


@asks_forms
def test_client_answers_may_be_async_and_know_their_calls(link: Any, where: str, version: str) -> None:
    async def elicit(params: Any, tags: List[Any]) -> Any:
        return {"branch": "/".join(tags)}
    client = link(where, version, elicit=elicit)
    assert json.loads(said(client.call_tool("branch", tag="mine")))["content"]["branch"] == "mine"


@asks_pages
@pytest.mark.parametrize("agrees, action", [(True, "accept"), (False, "decline"), ("cancel", "cancel")])
def test_client_visits_pages(link: Any, where: str, version: str, agrees: Any, action: str) -> None:
    seen: List[Any] = []
    client = link(where, version, visit=lambda params: seen.append(params) or agrees)
    assert said(client.call_tool("visit")) == action
    assert seen[0]["url"] == "https://example.org/in" and seen[0]["message"] == "Sign in"
    assert client.tape.declared() == {"elicitation": {"url": {}}}


@pytest.mark.parametrize("where, completes", [*[(where, True) for where in PLACES], ("memory", False)])
def test_client_visits_the_pages_of_an_error(link: Any, where: str, completes: bool) -> None:
    """-32042: visit, wait until the server says that it is done (or for long enough), try again."""
    server, contexts, visits = make_server(), [], []        # type: Server, List[Context], List[Any]

    @server.tool
    def page(ctx: Context) -> str:
        contexts.append(ctx)
        if len(contexts) < 3:
            ctx.elicit("In", url="https://example.org/%d" % len(contexts), elicitation_id="e%d" % len(contexts),
                       wait=False)
        return "in"

    def visit(params: Any) -> bool:
        visits.append((params["url"], params["elicitationId"]))
        if completes:
            contexts[-1].notify("notifications/elicitation/complete", {"elicitationId": params["elicitationId"]})
        return True
    client = link(where, LEGACY[0], server, visit=visit)
    assert said(client.call_tool("page", timeout=PATIENCE if completes else 0.2)) == "in"
    assert visits == [("https://example.org/1", "e1"), ("https://example.org/2", "e2")]
    contexts.clear()
    client._visit = lambda params: False
    with pytest.raises(RpcError) as caught:
        client.call_tool("page")
    assert caught.value.code == mcp_ref.URL_REQUIRED and len(contexts) == 1


@everywhere
@pytest.mark.parametrize("answer, model", [
    ("yes", "unknown"), ({"content": {"type": "text", "text": "t"}, "model": "m1"}, "m1"), (None, "")])
def test_client_samples(link: Any, where: str, version: str, answer: Any, model: str) -> None:
    client = link(where, version, sample=lambda params: answer)
    if model:
        assert said(client.call_tool("think")) == model
    elif client.modern:
        with pytest.raises(AskError, match="rejected"):
            client.call_tool("think")
    else:
        assert client.call_tool("think")["isError"]


@everywhere
def test_client_names_its_roots(link: Any, where: str, version: str, tmp_path: Path) -> None:
    folders = [tmp_path, "file:///x", {"uri": "file:///y", "name": "Y"}]
    wanted = ",".join([tmp_path.as_uri(), "file:///x", "file:///y"])
    assert said(link(where, version, roots=folders).call_tool("folders")) == wanted
    assert said(link(where, version, roots=lambda params: folders).call_tool("folders")) == wanted


@everywhere
def test_client_declares_what_it_can_answer_and_is_asked_nothing_else(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    assert client.tape.declared() == {}
    for tool in ("think", "folders", "visit"):
        if client.modern:
            with pytest.raises(RpcError) as caught:
                client.call_tool(tool)
            assert caught.value.code == mcp_ref.MISSING_CAPABILITY
        else:
            assert client.call_tool(tool)["isError"]
    forms = link(where, version, elicit=fill, roots=[], declare={"experimental": {"x": {}}})
    wanted: Dict[str, Any] = {"experimental": {"x": {}}, "roots": {} if forms.modern else {"listChanged": True}}
    if "elicitation/create" in rules(version).methods:
        wanted["elicitation"] = {"form": {}} if "URL elicitation" in rules(version).features else {}
    assert forms.tape.declared() == wanted


@modern_only
def test_client_answers_several_questions_in_one_round(link: Any, where: str, version: str) -> None:
    client = link(where, version, elicit=lambda params: {"name": "Ada"}, sample=lambda params: "hm", roots=[])
    assert json.loads(said(client.call_tool("several"))) == ["model", "where", "who"]
    assert client.tape.sent().count("tools/call") == 2
    retry = client.tape.params("tools/call")[1]
    assert sorted(retry["inputResponses"]) == ["model", "where", "who"] and isinstance(retry["requestState"], str)


@asks_forms
def test_client_is_asked_by_resources_and_prompts_too(link: Any, where: str, version: str) -> None:
    client = link(where, version, elicit=lambda params: fill(params))
    assert client.read_resource("test://asks")[0]["text"] == "accept"
    assert client.get_prompt("asks_first")["messages"][0]["content"]["text"] == "main"


# ---- changes, caching, logging

@everywhere
def test_client_listens_by_callback(link: Any, where: str, version: str) -> None:
    client, heard = link(where, version), queue.Queue()     # type: Any, queue.Queue[str]
    subscription = client.listen(["tools", "test://text"], heard.put)
    other = client.listen(["test://text", "prompts"])
    for what in ("tools", "test://text", "tools"):
        client.server.changed(what)
    assert [heard.get(timeout=PATIENCE) for _ in range(3)] == ["tools", "test://text", "tools"]
    assert next(iter(other)) == "test://text"
    subscription.close()
    if not client.modern:           # somebody else still wants it
        assert "resources/unsubscribe" not in client.tape.sent()
    client.server.changed("test://text")
    assert next(iter(other)) == "test://text"
    other.close()
    subscription.close()
    assert heard.empty() and list(other) == []
    if not client.modern:
        assert client.tape.params("resources/unsubscribe") == [{"uri": "test://text"}]


@everywhere
def test_client_is_told_what_was_granted(link: Any, where: str, version: str) -> None:
    server = Server("tools only")
    server.tool(lambda: "x", name="x")
    client = link(where, version, server)
    with client.listen(["tools", "prompts", "x://y"]) as subscription:
        assert subscription.granted == ["tools"]


@everywhere
def test_client_hears_of_all_notifications_in_order(link: Any, where: str, version: str) -> None:
    heard: queue.Queue[Any] = queue.Queue()

    def slowly(message: Any) -> None:
        heard.put(message["method"])
        if heard.qsize() == 1:
            raise ValueError("the next one shall be heard")
    client = link(where, version, on_notification=lambda message: heard.put(message["method"]),
                  log_level="emergency")
    assert said(client.call_tool("steps", on_progress=lambda *_: None)) == "done"
    assert said(client.call_tool("talk")) == "said"
    names = [heard.get(timeout=PATIENCE) for _ in range(4)]
    assert names == ["notifications/progress"] * 3 + ["notifications/message"]


@everywhere
def test_client_keeps_results_as_long_as_it_may(link: Any, where: str, version: str) -> None:
    server = make_server(ttl_ms=3600000)
    client = link(where, version, server, cache=True, elicit=fill, on_notification=lambda message: told.set())
    told = threading.Event()
    calls = [("tools/list", client.list_tools), ("resources/list", client.list_resources),
             ("resources/templates/list", client.list_resource_templates), ("prompts/list", client.list_prompts),
             ("resources/read", lambda: client.read_resource("test://text"))]
    assert {name for name, _ in calls} | {"server/discover"} == {
        name for name, row in METHODS.items() if row.cacheable}
    kept = 1 if client.modern else 2        # legacy results say nothing about caching
    for method, call in calls:
        assert call() == call() and client.tape.sent().count(method) == kept
    said(client.call_tool("echo", {"text": "x"})), said(client.call_tool("echo", {"text": "x"}))
    assert client.tape.sent().count("tools/call") == 2
    client.read_resource("test://several")
    assert client.tape.sent().count("resources/read") == kept + 1
    with client.listen(["tools"]) as changes:
        server.changed("tools")
        assert next(iter(changes)) == "tools"
    client.list_tools()
    assert client.tape.sent().count("tools/list") == kept + 1


@modern_only
def test_client_keeps_no_result_that_holds_an_answer(link: Any, where: str, version: str) -> None:
    client = link(where, version, make_server(ttl_ms=3600000), cache=True, elicit=fill)
    for _ in range(2):
        assert client.read_resource("test://asks")[0]["text"] == "accept"
    assert client.tape.sent().count("resources/read") == 4


@everywhere
def test_client_pings_the_server_and_not_its_cache(link: Any, where: str, version: str) -> None:
    client = link(where, version, make_server(ttl_ms=3600000), cache=True)
    before = len(client.tape.sent())
    client.ping()
    client.ping()
    assert len(client.tape.sent()) == before + 2


@modern_only
def test_client_forgets_what_is_stale_or_too_much(link: Any, where: str, version: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_CACHED", 2)
    client = link(where, version, make_server(ttl_ms=3600000), cache=True)
    for uri in ("test://text", "test://several", "test://json", "test://text"):
        client.read_resource(uri)
    assert client.tape.sent().count("resources/read") == 4
    now = time.monotonic()
    monkeypatch.setattr(mcp_ref.time, "monotonic", lambda: now + 3601)
    client.read_resource("test://text")
    monkeypatch.undo()
    assert client.tape.sent().count("resources/read") == 5


@everywhere
def test_client_checks_structured_output(link: Any, where: str, version: str) -> None:
    server, out = make_server(), []         # type: Server, List[Any]

    @server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    def counts() -> Any:
        return {"n": 1}
    client = link(where, version, server, checks=False)      # it is not the server's fault
    client.list_tools()
    structured = "structured output" in rules(version).features
    assert ("structuredContent" in client.call_tool("counts")) == structured
    receive = client.receive

    def spoil(message: Any, *more: Any) -> None:
        if "structuredContent" in message.get("result", {}):
            message["result"].update(out[0])
            if out[0] == {}:
                del message["result"]["structuredContent"]
        receive(message, *more)
    client.receive = spoil
    for flaw in ({"structuredContent": {"n": "x"}}, {"structuredContent": 3}, {}) if structured else ():
        out[:] = [flaw]
        with pytest.raises(mcp_ref.Malformed, match="counts"):
            client.call_tool("counts")
    out[:] = [{"structuredContent": {"n": "x"}, "isError": True}]
    assert client.call_tool("counts").get("isError") or not structured


# ---- which revision

@everywhere
def test_client_speaks_the_pinned_revision_or_none(link: Any, where: str, version: str) -> None:
    client = link(where, version)
    assert client.version == version and client.tape.sent()[0] == ("server/discover" if client.modern else "initialize")
    if where == "memory":
        for other in versions():
            if other != version:
                with pytest.raises((mcp_ref.Disconnected, RpcError)):
                    link(Puppet(**speaks(version)), other, checks=False)


def test_client_knows_its_options() -> None:
    for bad in ({"revision": "2024-10-07"}, {"revision": "new"}):
        with pytest.raises(ValueError, match=MODERN[0]):
            mcp_ref.connect(Server("x"), **bad)
    for url in ("http://", "http://me:secret@example.org/", "ftp://example.org/", "example.org"):
        with pytest.raises(ValueError, match="URL") as caught:
            mcp_ref.connect(url)
        assert "secret" not in str(caught.value) or "me:secret" in url


# ---- servers that are not ours: a puppet in memory, a fake process, a fake site

DISCOVERED = {"result": {"resultType": "complete", "supportedVersions": MODERN, "capabilities": {
    "tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}},
    "ttlMs": 0, "cacheScope": "private"}}
INITIALIZED = {"result": {"protocolVersion": LEGACY[0], "serverInfo": {"name": "fake", "version": "1"},
                          "capabilities": {
    "tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}}}
NO_TOOLS = {"result": {"resultType": "complete", "tools": []}}
DONE = {"result": {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}}


def refused(code: int, *supported: str) -> Any:
    """Return an error, as a fake server answers it."""
    return {"error": {"code": code, "message": "no", **({"data": {"supported": list(supported)}} if supported else {})}}


def speaks(version: str) -> Dict[str, Any]:
    """Return the answers of a server that speaks this revision alone."""
    if version in MODERN:
        return {"server/discover": {"result": {**DISCOVERED["result"], "supportedVersions": [version]}},
                "initialize": refused(-32601)}
    return {"server/discover": refused(-32601),
            "initialize": {"result": {**INITIALIZED["result"], "protocolVersion": version}}}


class Script:
    """What a fake answers: by method (or verb), one answer or a list of them, the last of which stays."""

    def __init__(self, answers: Dict[str, Any]) -> None:
        self.answers = {"server/discover": DISCOVERED, "initialize": INITIALIZED, "tools/list": NO_TOOLS,
                        "logging/setLevel": {"result": {}}, **answers}
        self.answers = {key: list(value) if isinstance(value, list) else [value]
                        for key, value in self.answers.items()}
        self.lock = threading.Lock()

    def next(self, key: str, otherwise: Any) -> Any:
        with self.lock:
            answers = self.answers.get(key, [otherwise])
            return answers.pop(0) if len(answers) > 1 else answers[0]


class Puppet(mcp_ref.Transport):
    """A server in memory that says what it is told to: an answer is a message without its id, a list of whole
    messages (with ID for the id), or a function of the message that returns one of those; None is silence."""

    def __init__(self, mirrors: bool = False, **answers: Any) -> None:
        self.script, self.up, self.mirrors = Script(answers), False, mirrors

    def start(self) -> None:
        self.up = True

    def stop(self) -> None:
        self.up = False

    def is_up(self) -> bool:
        return self.up

    def send(self, message: Any, request: Any = None, **_: Any) -> None:
        if request is not None:
            request.sent = True
        answer = self.script.next(message.get("method", "response"), None)
        answer = answer(message) if callable(answer) else answer
        if isinstance(answer, dict):
            answer = [{"jsonrpc": "2.0", "id": "ID", **answer}]
        for one in answer or ():
            one = json.loads(json.dumps(one).replace('"ID"', json.dumps(message.get("id"))))
            self.client.receive(one, request)


FAKE = """
import json, sys
script, notes = json.loads(sys.argv[1]), open(sys.argv[2], "ab", 0)
notes.write(b"start ")
for line in sys.stdin:
    message = json.loads(line)
    key = message.get("method", "response")
    notes.write(key.rpartition("/")[2].encode() + b" ")
    steps = script.get(key, ["silence"])
    step = steps.pop(0) if len(steps) > 1 else steps[0]
    for one in step if isinstance(step, list) else [step]:
        if one == "die":
            sys.stderr.write("famous\\nlast words")
            sys.exit(3)
        if isinstance(one, dict):
            one = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **one})
        if one != "silence":
            sys.stdout.write(one + "\\n")
            sys.stdout.flush()
"""


@pytest.fixture
def fake(link: Any, tmp_path: Path) -> Any:
    """Connect to a fake server process; `client.notes()` says when it was started, and what it got."""
    def start(checks: bool = False, options: Any = None, **answers: Any) -> Any:
        script = Script({key.replace("_", "/"): value for key, value in answers.items()})
        notes = tmp_path / "notes"
        command = [sys.executable, "-I", "-S", "-c", FAKE, json.dumps(script.answers), str(notes)]
        client = link(command, checks=checks, **(options or {}))
        client.notes = lambda: notes.read_text()
        return client
    return start


class Ask:
    """One request to a fake site, and the ways to answer it."""

    def __init__(self, web: "Web", handler: Any, body: bytes) -> None:
        self.web, self.handler = web, handler
        self.verb, self.path = handler.command, handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.message = json.loads(body) if body else {}
        self.key = self.message.get("method", "response") if body else self.verb

    def reply(self, status: int = 200, body: Any = b"", **headers: str) -> None:
        kind = "text/plain" if isinstance(body, (str, bytes)) else "application/json"
        if isinstance(body, dict) and ("result" in body or "error" in body):
            body = {"jsonrpc": "2.0", "id": self.message.get("id"), **body}
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(data)

    def stream(self, *parts: Any, whole: bool = True, **headers: str) -> None:
        """Answer by a stream of events: bytes, messages, or functions to be called in between.
        If it is not `whole`, hang up in the middle."""
        self.handler.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.close_connection = not whole
        for part in parts:
            if callable(part):
                part()
                continue
            if isinstance(part, dict):
                if "result" in part or "error" in part:
                    part = {"jsonrpc": "2.0", "id": self.message.get("id"), **part}
                part = b"data: " + json.dumps(part).encode() + b"\n\n"
            self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if whole:
            self.handler.wfile.write(b"0\r\n\r\n")


class Web:
    """A fake site. An answer is a status, (status, body) or (status, body, headers), a message without its id,
    or a function of the Ask; keys are methods, or verbs where there is no body."""

    def __init__(self, answers: Dict[str, Any]) -> None:
        import http.server
        import socketserver
        web = self
        self.script, self.asked = Script({"GET": 405, **answers}), []     # type: Script, List[Ask]
        self.connections: List[socket.socket] = []
        self.at_the_end: List[Any] = []
        self.over, self.lock, self.problems = threading.Event(), threading.Lock(), []   # type: Any, Any, List[Any]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                with web.lock:
                    web.connections.append(self.request)
                super().setup()

            def do(self) -> None:
                ask = Ask(web, self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                with web.lock:
                    web.asked.append(ask)
                answer = web.script.next(ask.key, 200 if ask.verb == "DELETE" else 202)
                if callable(answer):
                    answer(ask)
                elif isinstance(answer, int):
                    ask.reply(answer)
                elif isinstance(answer, tuple):
                    ask.reply(answer[0], answer[1], **dict(*answer[2:]))
                else:
                    ask.reply(200, answer)
            do_GET = do_POST = do_DELETE = do

            def log_message(self, *_: Any) -> None:
                pass

        class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads, block_on_close, request_queue_size = False, True, 50

            def handle_error(self, *_: Any) -> None:
                if not isinstance(sys.exc_info()[1], OSError):      # the client hung up: that is its right
                    web.problems.append(sys.exc_info()[1])
        self.httpd = Listener(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/mcp" % self.httpd.server_address[1]
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def keys(self) -> List[str]:
        with self.lock:
            return [ask.key for ask in self.asked]

    def of(self, key: str) -> List[Ask]:
        with self.lock:
            return [ask for ask in self.asked if ask.key == key]

    def hang(self, _: Any = None) -> None:
        """Be silent until the end of the test."""
        assert self.over.wait(PATIENCE)

    def close(self) -> None:
        self.over.set()
        for end in self.at_the_end:
            end()
        for one in self.connections:
            mcp_ref._shut(one, socket.SHUT_RDWR)
        self.httpd.shutdown()
        self.thread.join(PATIENCE)
        self.httpd.server_close()
        assert not self.problems, self.problems[0]


class Webs:
    """Starts fake sites, and connects to them."""

    def __init__(self) -> None:
        self.started: List[Web] = []
        self.link: Any = None

    def serve(self, **answers: Any) -> Web:
        self.started.append(Web({key.replace("_", "/"): value for key, value in answers.items()}))
        return self.started[-1]

    def __call__(self, version: str = "", options: Any = None, **answers: Any) -> Any:
        at = self.serve(**answers)
        client = self.link(at.url, version, checks=False, **(options or {}))
        client.web = at
        return client

    def __enter__(self) -> "Webs":
        return self

    def __exit__(self, *_: Any) -> None:
        for one in self.started:
            one.close()


@pytest.fixture
def sites() -> Any:
    with Webs() as webs:        # closed after the clients
        yield webs


@pytest.fixture
def web(sites: Any, link: Any) -> Any:
    sites.link = link
    return sites


# ---- finding the era

UNSUPPORTED = mcp_ref.UNSUPPORTED_VERSION
LEGACY_WAY = "start discover initialize initialized "


@pytest.mark.parametrize("answers, notes", [       # to server/discover -> what the server gets
    (DISCOVERED, "start discover "),
    (["what is this?", "{}", DISCOVERED], "start discover "),
    (refused(-32601), LEGACY_WAY), (refused(-32602), LEGACY_WAY), (refused(-32600), LEGACY_WAY),
    (refused(-32603), LEGACY_WAY), (refused(-32000), LEGACY_WAY), (refused(0), LEGACY_WAY),
    (refused(-32700), LEGACY_WAY),
    ("silence", LEGACY_WAY), ("not JSON at all", LEGACY_WAY),
    ({"result": {}}, LEGACY_WAY), ({"result": 3}, LEGACY_WAY), ({"result": None}, LEGACY_WAY),
    ({"result": {"supportedVersions": [5], "capabilities": 3}}, LEGACY_WAY),
    ({"result": {"supportedVersions": "2026", "capabilities": {}}}, LEGACY_WAY),
    ({"result": {}, "error": {}}, LEGACY_WAY), ({"error": "no"}, LEGACY_WAY), ({"error": {"code": "x"}}, LEGACY_WAY),
    ({"result": {**DISCOVERED["result"], "supportedVersions": [LEGACY[0]]}}, LEGACY_WAY),
    (refused(UNSUPPORTED, LEGACY[0]), LEGACY_WAY), (refused(UNSUPPORTED), LEGACY_WAY),
    ([refused(UNSUPPORTED, MODERN[0])], "start discover discover initialize initialized "),
    ("die", "start discover start initialize initialized "),
])
def test_client_finds_the_era_of_a_process(fake: Any, answers: Any, notes: str) -> None:
    if isinstance(answers, list) and answers[0] == "what is this?":
        answers = [answers]         # all of it at once
    client = fake(options={"probe": 0.05 if answers in ("silence", "not JSON at all") else PATIENCE},
                  server_discover=answers)
    assert client.modern == ("initialize" not in notes)
    if not client.modern:
        assert client.server_info["name"] == "fake" and client.version == LEGACY[0]
    client.list_tools()
    assert client.notes() == notes + "list "


def test_client_asks_a_process_once_more_in_the_same_version(fake: Any) -> None:
    client = fake(server_discover=[refused(UNSUPPORTED, MODERN[0]), DISCOVERED])
    assert client.modern and client.notes() == "start discover discover "


@pytest.mark.parametrize("error", [mcp_ref.HEADER_MISMATCH, mcp_ref.MISSING_CAPABILITY])
def test_client_raises_what_only_a_modern_server_says(link: Any, error: int) -> None:
    with pytest.raises(RpcError) as caught:
        link(Puppet(**{"server/discover": refused(error)}), checks=False)
    assert caught.value.code == error


@pytest.fixture
def later_revision(monkeypatch: Any) -> Any:
    """A revision that is newer than all others, as if it were published."""
    later = "9998-01-01"
    monkeypatch.setattr(mcp_ref, "REVISIONS", {later: mcp_ref.Revision(later, "modern"), **REVISIONS})
    yield later
    mcp_ref.rules.cache_clear()


@pytest.mark.parametrize("answer", [
    refused(UNSUPPORTED, MODERN[0]), {"result": {**DISCOVERED["result"], "supportedVersions": MODERN}}])
def test_client_takes_an_older_modern_revision(fake: Any, later_revision: str, answer: Any) -> None:
    client = fake(server_discover=[answer, DISCOVERED])
    assert client.version == MODERN[0] and client.notes() == "start discover discover "
    assert [message["params"]["_meta"][mcp_ref.META_VERSION] for _, message in client.tape.lines
            if "params" in message] == [later_revision, MODERN[0]]


def test_client_changes_its_version_when_the_server_does(link: Any, later_revision: str) -> None:
    newer = {"result": {**DISCOVERED["result"], "supportedVersions": [later_revision, *MODERN]}}
    client = link(Puppet(**{"server/discover": [newer, DISCOVERED],
                            "tools/call": [refused(UNSUPPORTED, MODERN[0]), DONE]}),
                  checks=False)
    assert client.version == later_revision
    assert said(client.call_tool("x")) == "done" and client.version == MODERN[0]


def test_client_changes_to_legacy_when_the_server_does(link: Any) -> None:
    client = link(Puppet(**{"tools/call": [refused(UNSUPPORTED, LEGACY[0]), DONE]}), checks=False)
    assert said(client.call_tool("x")) == "done" and client.version == LEGACY[0]


def test_client_gives_up_a_server_that_is_never_content(link: Any) -> None:
    client = link(Puppet(**{"tools/call": refused(UNSUPPORTED, *MODERN)}), checks=False)
    with pytest.raises(RpcError) as caught:
        client.call_tool("x")
    assert caught.value.code == UNSUPPORTED


@pytest.mark.parametrize("result", [
    {"protocolVersion": "2024-10-07", "capabilities": {}}, {"protocolVersion": MODERN[0], "capabilities": {}},
    {"protocolVersion": 5, "capabilities": {}}, {"capabilities": {}}, {"protocolVersion": LEGACY[0]}, [], None])
def test_client_refuses_a_handshake_that_is_none(link: Any, result: Any) -> None:
    with pytest.raises((mcp_ref.Disconnected, mcp_ref.Malformed)):
        link(Puppet(**{"server/discover": refused(-32601), "initialize": {"result": result}}), checks=False)


HTTP_LEGACY = ["server/discover", "initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize("answer, keys", [
    (DISCOVERED, ["server/discover", "tools/list"]),
    (lambda ask: ask.stream(DISCOVERED), ["server/discover", "tools/list"]),
    (refused(-32601), HTTP_LEGACY), ((404, refused(-32601)), HTTP_LEGACY), ((200, "<html>"), HTTP_LEGACY),
    (400, HTTP_LEGACY), ((400, "Bad Request: no session"), HTTP_LEGACY), ((400, refused(-32000)), HTTP_LEGACY),
    ((400, {"error": "x"}), HTTP_LEGACY), ((400, [1]), HTTP_LEGACY), ((400, {"jsonrpc": "2.0", "id": None, "error": {
        "code": -32600, "message": "m"}}), HTTP_LEGACY),
    (404, HTTP_LEGACY), (405, HTTP_LEGACY), (406, HTTP_LEGACY), (415, HTTP_LEGACY), (500, HTTP_LEGACY),
    ((500, refused(-32603)), HTTP_LEGACY), (202, HTTP_LEGACY),
    ((400, refused(UNSUPPORTED, LEGACY[0])), HTTP_LEGACY), ((400, refused(UNSUPPORTED)), HTTP_LEGACY),
    ([(400, refused(UNSUPPORTED, MODERN[0])), DISCOVERED], ["server/discover", "server/discover", "tools/list"]),
    ("silence", HTTP_LEGACY),
])
def test_client_finds_the_era_of_a_site(web: Any, answer: Any, keys: List[str]) -> None:
    options = {"probe": PATIENCE}
    if answer == "silence":
        options, answer = {"probe": 0.05}, lambda ask: ask.web.hang()
    client = web(options=options, server_discover=answer)
    client.list_tools()
    assert client.web.keys() == keys and client.modern == (keys != HTTP_LEGACY)


@pytest.mark.parametrize("answer, raised", [
    (401, 401), (403, 403), (429, 429), (503, 503), ((400, refused(mcp_ref.HEADER_MISMATCH)), mcp_ref.HEADER_MISMATCH),
    ((400, refused(mcp_ref.MISSING_CAPABILITY)), mcp_ref.MISSING_CAPABILITY)])
def test_client_says_what_a_site_refuses(web: Any, answer: Any, raised: int) -> None:
    with pytest.raises((RpcError, mcp_ref.HttpError)) as caught:
        web(server_discover=answer)
    assert raised == (caught.value.code if isinstance(caught.value, RpcError) else caught.value.status)
    assert web.started[0].keys() == ["server/discover"]


def over_sse(status: int, **results: Any) -> Dict[str, Any]:
    """Return the answers of a site that speaks HTTP+SSE, where `None` opens no way back; `end` ends the stream."""
    answers: queue.Queue[Any] = queue.Queue()

    def stream(ask: Ask) -> None:
        def pump() -> None:
            ask.web.at_the_end.append(lambda: answers.put(None))
            for data in iter(answers.get, None):
                ask.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        ask.stream(b": hello\n\nevent: endpoint\ndata: /post?s=1\n\n", pump)

    def post(result: Any) -> Any:
        def answer(ask: Ask) -> None:
            if ask.path == "/mcp":
                ask.reply(status)
                return
            ask.reply(202)
            data = json.dumps({"jsonrpc": "2.0", "id": ask.message["id"], **result})
            answers.put(b"event: message\ndata: " + data.encode() + b"\n\n")
        return answer
    found = {name: post(result) if isinstance(result, dict) else result for name, result in results.items()}
    return {"GET": stream, "server_discover": status, "initialize": post(INITIALIZED), "tools_list": post(NO_TOOLS),
            "end": lambda: answers.put(None), **found}


@pytest.mark.parametrize("status", [400, 404, 405])
def test_client_falls_back_to_http_sse(web: Any, status: int) -> None:
    """The stream opens with the place to post to; all answers come by the stream."""
    answers = over_sse(status, tools_call=DONE)
    client = web(**answers)
    assert client.version == LEGACY[0] and client.list_tools() == []
    assert said(client.call_tool("x")) == "done"
    assert {ask.path for ask in client.web.asked[-3:]} == {"/post?s=1"}
    client.close()
    answers["end"]()
    assert "DELETE" not in client.web.keys()


def test_client_starts_again_when_the_stream_of_http_sse_ends(web: Any) -> None:
    answers = over_sse(405, tools_call=[lambda ask: (ask.reply(202), answers["end"]()), 202])
    client = web(**answers)
    with pytest.raises(mcp_ref.Disconnected, match="ended"):
        client.call_tool("x")
    assert client.list_tools() == [] and len(client.web.of("GET")) == 2
    client.close()
    answers["end"]()


@pytest.mark.parametrize("get", [
    404, 405, (200, "x"), lambda ask: ask.stream(b"data: x\n\n"), lambda ask: ask.stream(b"event: endpoint\ndata: "
    b"http://example.org/post\n\n"), lambda ask: ask.stream(b"")])
def test_client_says_why_there_is_no_server(web: Any, get: Any) -> None:
    with pytest.raises(mcp_ref.HttpError) as caught:
        web(server_discover=404, initialize=(404, "nothing here"), GET=get)
    assert caught.value.status == 404 and "nothing here" in str(caught.value)


@pytest.mark.parametrize("status", [400, 404, 500])
def test_client_does_not_wait_for_what_http_sse_has_refused(web: Any, status: int) -> None:
    answers = over_sse(405, tools_call=(status, "broken"))
    client = web(options={"timeout": 2}, **answers)
    with pytest.raises((mcp_ref.HttpError, mcp_ref.Disconnected)):
        client.call_tool("x")
    client.close()
    answers["end"]()


def test_client_says_that_nobody_is_there(link: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(mcp_ref.Disconnected, match="127.0.0.1"):
            link("http://127.0.0.1:%d/mcp" % free.getsockname()[1])
    for command in (["/nowhere/to/be/found"], [str(HERE)]):
        with pytest.raises(mcp_ref.Disconnected, match="cannot start"):
            link(command)


# ---- stdio: processes of every kind

GREETING = """
import json, os, signal, subprocess, sys, time
%s
asked = json.loads(sys.stdin.readline())
print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                  "result": {"supportedVersions": %r, "capabilities": {"tools": {}},
    "instructions": WORDS}}), flush=True)
%s
"""


@pytest.fixture
def program(link: Any) -> Any:
    """Connect to a Python program that does something, greets us (saying WORDS), and does something else."""
    def start(before: str = "WORDS = ''", after: str = "sys.stdin.read()", **options: Any) -> Any:
        return link([sys.executable, "-I", "-S", "-c", GREETING % (before, MODERN, after)], checks=False, **options)
    return start


def test_client_tells_the_last_words_of_a_server_to_all_that_wait(fake: Any) -> None:
    client = fake(tools_call=["silence", "silence", "die"])
    calls = [in_thread(lambda: client.call_tool("x")) for _ in range(2)]
    wait_until(lambda: client.notes().count("call") == 2)
    for call in [lambda: client.call_tool("x"), *calls]:
        with pytest.raises(mcp_ref.Disconnected) as caught:
            call()
        assert "status 3" in str(caught.value) and str(caught.value).endswith("famous\nlast words")


def test_client_starts_a_dead_server_again(fake: Any) -> None:
    client = fake(tools_call="die")
    for _ in range(2):
        with pytest.raises(mcp_ref.Disconnected):
            client.call_tool("x")
    assert client.list_tools() == [] and client.notes() == "start discover call " * 2 + "start discover list "


def test_client_knows_the_era_of_a_server_that_it_starts_again(fake: Any) -> None:
    client = fake(server_discover=refused(-32601), tools_call="die")
    with pytest.raises(mcp_ref.Disconnected):
        client.call_tool("x")
    assert client.list_tools() == []
    assert client.notes() == LEGACY_WAY + "call start initialize initialized list "


def test_client_passes_over_what_is_no_message(fake: Any, tidy: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_MESSAGE_BYTES", 2000)
    junk = ["Listening on port 3000", "", "  ", "[" * 500, "7", '"x"', "[[[]]]", "{}", '{"jsonrpc": "2.0"}', "\u00e9",
            '{"jsonrpc": "2.0", "id": 99, "result": {}}', '{"a": NaN}', '{"x": "' + 5000 * "y" + '"}', "z" * 100000]
    client = fake(tools_call=[[*junk, DONE], DONE])
    assert said(client.call_tool("x")) == "done"
    assert said(client.call_tool("x")) == "done"
    err = tidy.readouterr().err
    assert "Listening on port 3000" in err and "more than 2000 bytes" in err and "nobody waits for" in err
    assert all(len(line) < 400 for line in err.splitlines())


def test_client_passes_on_what_the_server_logs(program: Any, tidy: Any) -> None:
    lines: List[str] = []
    before = "WORDS = 'w'; os.write(2, b'one\\r\\ntwo \\xff\\n' + 9000 * b'x' + b'\\nend')"
    with program(before, stderr=lines.append) as client:
        assert client.instructions == "w"
    assert lines[:2] == ["one", "two \ufffd"] and lines[-1] == "end" and "xxx" not in tidy.readouterr().err
    with program(before):
        pass
    err = tidy.readouterr().err
    assert err.startswith("one\ntwo \ufffd\n") and err.endswith("end\n")

    def fails(line: str) -> None:
        raise ValueError(line)
    with program(before, stderr=fails) as client:
        assert client.instructions == "w"


def test_client_gives_a_server_only_what_it_needs(program: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C")
    client = program("WORDS = json.dumps([dict(os.environ), os.getcwd()])", env={"EXTRA": "1"}, cwd=str(tmp_path))
    environment, folder = json.loads(client.instructions)
    assert os.path.samefile(folder, tmp_path)
    assert environment["EXTRA"] == "1" and environment["LANG"] == "C" and environment["PATH"] == os.environ["PATH"]
    assert {name for name in environment if name != "__CF_USER_TEXT_ENCODING"} <= {*mcp_ref._INHERITED, "EXTRA"}


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
@pytest.mark.parametrize("before, after, status", [
    ("", "sys.stdin.read()", 0),
    ("", "signal.pause()", -signal.SIGTERM),
    ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "signal.pause()", -signal.SIGKILL),
    ("", "sys.stdin.read(); os.close(1); os.close(2); signal.pause()", -signal.SIGTERM),
    ("child = subprocess.Popen(['sleep', '1000'])", "sys.stdin.read()", 0)])
def test_client_gets_rid_of_every_server(program: Any, monkeypatch: Any, before: str, after: str, status: int) -> None:
    monkeypatch.setattr(mcp_ref, "CLOSE_STEP_SECONDS", PATIENCE if status == 0 else 0.05)
    client = program(before + "\nWORDS = str(child.pid) if 'child' in vars() else ''", after)
    process = client.transport.process
    client.close()
    assert process.returncode == status
    if client.instructions and Path("/proc/self").exists():
        stat = Path("/proc", client.instructions, "stat")
        wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_client_ends_the_children_of_a_server_that_is_quicker(program: Any) -> None:
    """The server has left before the client asks whether it lives: what it left behind is ended all the same."""
    client = program("child = subprocess.Popen(['sleep', '1000'])\nWORDS = str(child.pid)")
    process, poll = client.transport.process, client.transport.process.poll

    def late() -> Any:
        if process.stdin.closed:
            process.wait()
        return poll()
    process.poll = late
    client.close()
    stat = Path("/proc", client.instructions, "stat")
    try:
        assert process.returncode == 0
        wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")
    finally:
        if stat.exists():
            os.kill(int(client.instructions), signal.SIGKILL)


def test_client_bears_threads_that_start_late(link: Any, tidy: Any, monkeypatch: Any) -> None:
    """The server is gone before all threads that listen to it have started."""
    begin, over = threading.Thread.start, []

    def late(thread: Any) -> None:
        begin(thread)
        if thread.name == "mcp-stderr":
            wait_until(lambda: over)
    monkeypatch.setattr(threading.Thread, "start", late)
    monkeypatch.setattr(threading, "excepthook", lambda problem: over.append(problem.exc_value))

    def line(words: str) -> None:
        threading.Timer(0.02, lambda: over.append(None)).start()    # mcp-stderr goes on, and ends
    with pytest.raises(mcp_ref.Disconnected, match="no licence"):
        link([sys.executable, "-I", "-S", "-c", "import sys; sys.exit('no licence')"], stderr=line)
    assert not any(over), over


def test_client_notices_a_server_that_only_closes_its_output(program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "CLOSE_STEP_SECONDS", 0.05)
    client = program(after="sys.stdin.readline(); os.close(1); sys.stdin.read()")
    with pytest.raises(mcp_ref.Disconnected, match="closed its output"):
        client.call_tool("x")


def test_client_does_not_wait_for_a_server_that_does_not_read(program: Any, monkeypatch: Any) -> None:
    client = program(after="signal.pause()")
    first = client.transport.process
    with pytest.raises(TimeoutError):
        client.call_tool("x", {"text": "x" * 1000000}, timeout=0.1)
    assert first.wait(PATIENCE) == -signal.SIGKILL      # half a line was written: there is no way back
    wait_until(lambda: not client.transport.is_up())


open_files = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@open_files
def test_client_leaves_no_descriptors(link: Any, fake: Any, web: Any) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))
    for warm in (True, False):
        if not warm:
            before = count()
        client = fake(tools_call="die")
        for _ in range(3):
            with pytest.raises(mcp_ref.Disconnected):
                client.call_tool("x")
        client.close()
        with pytest.raises(mcp_ref.Disconnected):
            link(["/nowhere/at/all"])
        for where in ("stdio", "http", "sse"):
            with link(where) as client:
                client.listen(["tools"])
                client.call_tool("add", {"a": 1})
            if client.site:
                client.site.close()
    wait_until(lambda: count() <= before)


@open_files
def test_client_hands_no_descriptors_down(program: Any) -> None:
    first = program("WORDS = ' '.join(os.listdir('/proc/self/fd'))")
    second = program("WORDS = ' '.join(os.listdir('/proc/self/fd'))")
    assert len(first.instructions.split()) == len(second.instructions.split()) == 4


# ---- HTTP: connections, sessions, streams

def test_client_keeps_its_connection(web: Any) -> None:
    client = web(tools_call=DONE)
    for _ in range(5):
        said(client.call_tool("x"))
    assert len(client.web.connections) == 1


def test_client_opens_another_connection_if_the_site_has_closed_it(web: Any) -> None:
    def close(ask: Ask) -> None:
        ask.reply(200, DONE)
        ask.handler.close_connection = True
    client = web(tools_call=[close, close, DONE])
    for number in range(3):
        said(client.call_tool("x"))
        wait_until(lambda: number == 2 or all(mcp_ref._is_ready(one[1].sock, False) for one in client.transport._kept))
    assert len(client.web.connections) == 3


def test_client_closes_a_connection_that_was_idle_for_long(web: Any, monkeypatch: Any) -> None:
    client = web(tools_call=DONE)
    monkeypatch.setattr(mcp_ref, "KEEP_CONNECTION_SECONDS", 0)
    said(client.call_tool("x"))
    assert len(client.web.connections) == len(client.web.keys())


SESSION = (200, INITIALIZED, {"Mcp_Session_Id": "s1"})


def test_client_names_its_session_and_deletes_it(web: Any) -> None:
    client = web(LEGACY[0], initialize=SESSION, tools_call=DONE)
    said(client.call_tool("x"))
    client.close()
    assert client.web.keys() == ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"] or \
        client.web.keys() == ["initialize", "notifications/initialized", "tools/call", "DELETE"]
    assert "mcp-session-id" not in client.web.asked[0].headers
    assert {ask.headers["mcp-session-id"] for ask in client.web.asked[1:]} == {"s1"}
    assert "mcp-protocol-version" not in client.web.asked[0].headers
    assert {ask.headers["mcp-protocol-version"] for ask in client.web.asked[1:]} == {LEGACY[0]}


@pytest.mark.parametrize("status", [405, 404, 500, 204])
def test_client_closes_whatever_delete_says(web: Any, status: int) -> None:
    web(LEGACY[0], initialize=SESSION, DELETE=status).close()


@pytest.mark.parametrize("ident", ["a b", "\u00e9"])
def test_client_refuses_an_odd_session_id(web: Any, ident: str) -> None:
    with pytest.raises(mcp_ref.Malformed, match="session"):
        web(LEGACY[0], initialize=(200, INITIALIZED, {"Mcp_Session_Id": ident}))


@pytest.mark.parametrize("version", [version for version in LEGACY if "streamable sessions" in rules(version).features])
def test_client_opens_one_new_session_for_one_that_was_lost(link: Any, version: str) -> None:
    client = link("http", version, on_notification=lambda message: None)
    for rounds in (1, 2):
        lost = client.transport._session
        assert client.site.ask("DELETE", Mcp_Session_Id=lost).status in (200, 204)
        calls = [in_thread(lambda: client.call_tool("echo", {"text": "x"})) for _ in range(4)]
        assert [said(call()) for call in calls] == ["x"] * 4
        assert client.tape.sent().count("initialize") == 1 + rounds and client.transport._session != lost


def test_client_subscribes_again_in_a_new_session(link: Any) -> None:
    client = link("http", LEGACY[0])
    changes = iter(client.listen(["tools", "test://text"]))
    client.site.ask("DELETE", Mcp_Session_Id=client.transport._session)
    client.ping()
    wait_until(lambda: client.server._peers and any(
        "test://text" in peer.session.subscribed for peer in list(client.server._peers) if peer.session))
    client.server.changed("test://text")
    # Something may have been missed meanwhile, so all of it is announced.
    assert sorted(next(changes) for _ in range(3)) == ["test://text", "test://text", "tools"]


def lose_session(client: Any) -> None:
    client.site.ask("DELETE", Mcp_Session_Id=client.transport._session)


@pytest.mark.parametrize("use", [
    lambda client: client.notify("notifications/roots/list_changed"),
    lambda client: client.listen(["tools", "test://text"]), lambda client: client.set_level("error"),
    lambda client: client.ping()], ids=["notify", "listen", "set_level", "ping"])
def test_client_never_speaks_of_lost_sessions(link: Any, use: Any) -> None:
    """Whatever meets a lost session either opens a new one, or raises what the docstring says."""
    client = link("http", LEGACY[0])
    lose_session(client)
    try:
        use(client)
    except (RpcError, mcp_ref.Disconnected, mcp_ref.HttpError, mcp_ref.Malformed):
        pass
    assert said(client.call_tool("echo", {"text": "x"})) == "x"


def test_client_gives_up_a_site_that_forgets_at_once(web: Any) -> None:
    client = web(LEGACY[0], initialize=SESSION, tools_call=404)
    with pytest.raises(mcp_ref.Disconnected, match="forgets"):
        client.call_tool("x")


@pytest.mark.parametrize("version, resumes", [(LEGACY[0], True), (LEGACY[-2], True), (MODERN[0], False)])
@pytest.mark.parametrize("whole", [True, False])
def test_client_comes_back_for_the_rest_of_a_stream(web: Any, version: str, resumes: bool, whole: bool) -> None:
    seen: List[Any] = []

    def begin(ask: Ask) -> None:
        token = ask.message["params"]["_meta"]["progressToken"]
        ask.web.ident = ask.message["id"]
        step = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        ask.stream(b"retry: 5\nid: a\ndata:\n\n", b"id: b\n", step, b"id: c\ndata: {\"jsonr", whole=whole)

    def resume(ask: Ask) -> None:
        ask.stream(b"id: c\n", {"jsonrpc": "2.0", "id": ask.web.ident, **DONE})
    initialized = {"result": {**INITIALIZED["result"], "protocolVersion": version}}
    client = web(version, initialize=(200, initialized, {"Mcp_Session_Id": "s1"}), tools_call=begin, GET=[
        lambda ask: ask.stream(b"retry: 7\n\n"), resume])
    call = functools.partial(client.call_tool, "x", on_progress=lambda *step: seen.append(step))
    if resumes:
        assert said(call()) == "done"
        assert [ask.headers["last-event-id"] for ask in client.web.of("GET")] == ["b", "b"]
    else:
        with pytest.raises(mcp_ref.Disconnected, match="tools/call"):
            call()
        assert client.web.of("GET") == []
    assert seen == [(1, None, None)] and client.web.keys().count("tools/call") == 1


def test_client_comes_back_to_the_stream_of_its_session(web: Any) -> None:
    heard, listening = queue.Queue(), threading.Event()     # type: queue.Queue[str], threading.Event
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    client = web(LEGACY[0], initialize=SESSION, GET=[
        lambda ask: ask.stream(b"retry: 5\nid: 1\ndata:\n\n"),
        lambda ask: ask.stream(listening.wait, b"id: 2\n", changed, ask.web.hang)])
    client.listen(["tools"], heard.put)
    listening.set()
    assert heard.get(timeout=PATIENCE) == "tools"
    assert [ask.headers.get("last-event-id") for ask in client.web.of("GET")] == [None, "1"]


def test_client_listens_again_when_the_stream_breaks(web: Any) -> None:
    heard: queue.Queue[str] = queue.Queue()

    def listen(*more: Any) -> Any:
        def answer(ask: Ask) -> None:
            about = {"_meta": {mcp_ref.META_SUBSCRIPTION: ask.message["id"]}}
            ask.stream({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
                "notifications": {"toolsListChanged": True}, **about}}, {
                    "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": about}, *more,
                    whole=False)
        return answer
    client = web(subscriptions_listen=[listen(), lambda ask: listen(ask.web.hang)(ask)])
    subscription = client.listen(["tools", "prompts"], heard.put)
    assert subscription.granted == ["tools"]
    assert [heard.get(timeout=PATIENCE) for _ in range(3)] == ["tools"] * 3      # what may have been missed, too
    subscription.close()


def to(place: str) -> Any:
    """Redirect to a place."""
    return lambda ask: ask.reply(307, Location=place.replace("PORT", ask.web.url.split(":")[2].split("/")[0]))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_client_follows_a_redirect_within_the_origin(web: Any, status: int) -> None:
    client = web(tools_call=[lambda ask: ask.reply(status, Location="/there?x=1"), DONE],
                 options={"headers": {"Authorization": "Bearer t"}})
    assert said(client.call_tool("x")) == "done"
    last = client.web.asked[-1]
    assert (last.verb, last.path, last.message["method"]) == ("POST", "/there?x=1", "tools/call")
    assert last.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("place", ["http://127.0.0.2:PORT/mcp", "http://localhost:PORT/mcp", "http://127.0.0.1:1/mcp",
                                   "https://127.0.0.1:PORT/mcp", "file:///etc/passwd", "//example.org/", "/mcp", ""])
def test_client_follows_no_other_redirect(web: Any, place: str) -> None:
    client = web(tools_call=to(place))
    with pytest.raises(mcp_ref.HttpError) as caught:
        client.call_tool("x")
    assert caught.value.status == 307
    assert client.web.keys().count("tools/call") == (1 if "//" in place or "file" in place else 1 + mcp_ref.MAX_REDIRECTS)


def test_client_reads_no_more_than_it_may(web: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_MESSAGE_BYTES", 1000)
    long = {"result": {**DONE["result"], "_meta": {"x": 100000 * "y"}}}

    def endless(ask: Ask) -> None:
        ask.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
        while not ask.web.over.is_set():
            ask.handler.wfile.write(10000 * b" ")
    client = web(tools_call=[long, endless, lambda ask: ask.stream(long),
                             lambda ask: ask.stream(*[b"data: %1000d\n" % 1] * 100),
                             (500, "x" * 100000), DONE])
    for _ in range(5):
        with pytest.raises((mcp_ref.Malformed, mcp_ref.HttpError)):
            client.call_tool("x")
    assert said(client.call_tool("x")) == "done"


def test_client_asks_for_authorization_three_times_at_most(web: Any) -> None:
    asked: List[Any] = []

    async def authorize(refusal: Any) -> Any:
        asked.append((refusal.status, refusal.headers["www-authenticate"]))
        return {"Authorization": "Bearer %d" % len(asked)} if len(asked) < 9 else None
    at = web.serve(server_discover=[(401, "", {"WWW_Authenticate": "Bearer a"}), (403, "", {"WWW_Authenticate": "b"}),
                                    DISCOVERED], tools_call=(401, "", {"WWW_Authenticate": "c"}))
    client = web.link(at.url, checks=False, authorize=authorize, headers={"X-Mine": "m"})
    assert asked == [(401, "Bearer a"), (403, "b")]
    with pytest.raises(mcp_ref.HttpError) as caught:
        client.call_tool("x")
    assert caught.value.status == 401 and len(asked) == 2 + mcp_ref.MAX_AUTHORIZE
    calls = [ask.headers.get("authorization") for ask in at.of("tools/call")]
    assert calls == ["Bearer %d" % n for n in range(2, 3 + mcp_ref.MAX_AUTHORIZE)]
    asked += [0] * 9
    with pytest.raises(mcp_ref.HttpError):
        client.call_tool("x")
    assert {ask.headers["x-mine"] for ask in at.asked} == {"m"}


def test_client_makes_headers_for_each_request(web: Any) -> None:
    seen: List[Any] = []

    def headers(verb: str, url: str) -> Dict[str, str]:
        seen.append((verb, url))
        return {"X-Number": str(len(seen))}
    client = web(LEGACY[0], initialize=SESSION, tools_call=DONE, options={"headers": headers})
    said(client.call_tool("x"))
    client.close()
    assert [ask.headers["x-number"] for ask in client.web.asked] == [str(n + 1) for n in range(len(seen))]
    assert [verb for verb, _ in seen] == ["POST"] * (len(seen) - 1) + ["DELETE"]
    assert {url for _, url in seen} == {client.web.url}


@pytest.mark.parametrize("answer, problem", [
    (500, mcp_ref.HttpError), ((503, "busy"), mcp_ref.HttpError), (202, (mcp_ref.Malformed, mcp_ref.HttpError)),
    ((200, "<html>"), mcp_ref.Malformed), ((200, b""), mcp_ref.Malformed),
    ((200, {"x": 1}), (mcp_ref.Malformed, mcp_ref.HttpError)),
    ((200, [1, 2]), mcp_ref.Malformed), ((404, "gone"), mcp_ref.HttpError), ((400, refused(-32602)), RpcError),
    ((200, {"jsonrpc": "2.0", "id": 999, **DONE}), mcp_ref.Malformed),
    (lambda ask: ask.stream(b"data: nonsense\n\n"), mcp_ref.Disconnected),
    (lambda ask: setattr(ask.handler, "close_connection", True), mcp_ref.Disconnected),
    (lambda ask: (ask.handler.wfile.write(b"HTTP/9.9 what\r\n\r\n"), setattr(ask.handler, "close_connection", True)),
     mcp_ref.Disconnected),
    (lambda ask: (ask.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"),
                  setattr(ask.handler, "close_connection", True)), (mcp_ref.Disconnected, mcp_ref.Malformed))])
def test_client_says_what_is_wrong_with_an_answer(web: Any, answer: Any, problem: Any) -> None:
    client = web(tools_call=[answer, DONE])
    with pytest.raises(problem):
        client.call_tool("x")
    assert said(client.call_tool("x")) == "done"


@pytest.mark.parametrize("answer", [
    lambda ask: ask.web.hang(), lambda ask: ask.stream(ask.web.hang), lambda ask: ask.stream(b": x\n\n", ask.web.hang),
    lambda ask: (ask.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"), ask.web.hang()),
    lambda ask: (ask.handler.wfile.write(b"HTTP/1.1 200"), ask.web.hang())])
@pytest.mark.parametrize("way", ["timeout", "cancel", "close"])
def test_client_hangs_up_on_a_site_that_is_silent(web: Any, answer: Any, way: str) -> None:
    client = web(tools_call=answer)
    requests: List[Any] = []
    call = in_thread(lambda: client.call_tool("x", started=requests.append, timeout=0.05 if way == "timeout" else None))
    wait_until(lambda: way == "timeout" or client.web.of("tools/call"))
    if way == "cancel":
        requests[-1].cancel()
    elif way == "close":
        client.close()
    with pytest.raises({"timeout": TimeoutError, "cancel": mcp_ref.RequestCancelled,
                        "close": mcp_ref.Disconnected}[way]):
        call()


EVENTS = [      # a stream, the events in it, the last id, the pause
    (b"data: a\n\n", [("message", b"a")], "", 1),
    (b"data:a\ndata:  b\ndata\ndata: c\n\n", [("message", b"a\n b\n\nc")], "", 1),
    (b"event: e\nid: 7\ndata: a\n\ndata: b\n\n", [("e", b"a"), ("message", b"b")], "7", 1),
    (b"\xef\xbb\xbfdata: a\n\n", [("message", b"a")], "", 1),
    (b": comment\n\n:\ndata: a\n: x\ndata: b\n\n", [("message", b"a\nb")], "", 1),
    (b"retry: 20\n\nretry: x\n\nretry: -5\n\nretry\n\n", [], "", 0.02),
    (b"id: 1\n\nid: a\0b\ndata: x\n\n", [("message", b"x")], "1", 1),
    (b"id: 1\ndata: x\n\nid\ndata: y\n\n", [("message", b"x"), ("message", b"y")], "", 1),
    (b"event: e\n\ndata: x\n\n", [("message", b"x")], "", 1),
    (b"id: 9\ndata:\n\n", [], "9", 1),
    (b"what: x\ndatax: y\n data: z\ndata: a\n\n", [("message", b"a")], "", 1),
    (b"data: a\n\ndata: b\n", [("message", b"a")], "", 1),
    (b"id: 1\ndata: a\n\nid: 2\ndata: b", [("message", b"a")], "1", 1),     # cut off: 2 has not come
    ("data: \u00e9\u2028\x85\n\n".encode(), [("message", "\u00e9\u2028\x85".encode())], "", 1),
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_client_reads_events_however_they_are_cut(number: int, end: bytes) -> None:
    stream, wanted, last_id, pause = EVENTS[number]
    stream = stream.replace(b"\n", end)
    cuts = [[stream], [stream[n:n + 1] for n in range(len(stream))],
            *[[stream[:n], stream[n:]] for n in range(1, len(stream))]]
    for parts in cuts:
        reader = mcp_ref.Events()
        found = [one for part in parts for one in reader.feed(part)]
        assert found == wanted and reader.last_id == last_id and reader.retry == pause, parts


def test_client_limits_the_size_of_an_event(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_MESSAGE_BYTES", 1000)
    reader = mcp_ref.Events()
    for _ in range(200):
        assert reader.feed(b"data: %900d\n\n" % 1)
    with pytest.raises(mcp_ref.Malformed):
        for _ in range(200):
            reader.feed(b"data: %900d\n" % 1)
    with pytest.raises(mcp_ref.Malformed):
        for _ in range(200):
            mcp_ref.Events.feed(reader, b"x" * 900)


# ---- headers that repeat the arguments of a tool

def mirrored(**properties: Any) -> Dict[str, Any]:
    return {"type": "object", "properties": {
        name: {"type": kind, "x-mcp-header": name.title()} for name, kind in properties.items()}}


def test_client_repeats_arguments_in_headers(link: Any, capfd: Any) -> None:
    """The server refuses what does not agree, so its answer is the proof."""
    server = make_server()
    inner = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "Deep"}}}
    schema = mirrored(region="string", size="integer", dry="boolean")
    schema["properties"]["inner"] = inner

    @server.tool(input_schema=schema)
    def place(**arguments: Any) -> str:
        return json.dumps(arguments, sort_keys=True)
    client = link("http", MODERN[0], server)
    for arguments in ({"region": "eu", "size": 5, "dry": True, "inner": {"n": -3}}, {},
                      {"region": "\u00fcber", "dry": False},
                      {"region": " x"}, {"region": "=?base64?eA==?="}, {"region": "a\r\nX-Evil: 1"},
                      {"region": "tab\there"},
                      {"region": ""}, {"size": 2**53 - 1}, {"inner": {}}):
        assert json.loads(said(client.call_tool("place", arguments))) == arguments
    with pytest.raises(ValueError, match="too large"):
        client.call_tool("place", {"size": 2**53})


@pytest.mark.parametrize("value, header", [
    ("eu", "eu"), (True, "true"), (False, "false"), (-7, "-7"), ("\u00fc", "=?base64?w7w=?="), ("", ""), (None, None)])
def test_client_encodes_values_for_headers(web: Any, value: Any, header: Optional[str]) -> None:
    tool = {"name": "t\u00fc", "inputSchema": mirrored(region="string")}
    client = web(tools_list={"result": {"tools": [tool]}}, tools_call=DONE)
    said(client.call_tool("t\u00fc", {} if value is None else {"region": value}))
    headers = client.web.asked[-1].headers
    assert headers.get("mcp-param-region") == header and headers["mcp-method"] == "tools/call"
    assert headers["mcp-name"] == mcp_ref.mirror("t\u00fc") and headers["mcp-protocol-version"] == MODERN[0]


BAD_MIRRORS: List[Any] = [
    {"a": {"type": "number", "x-mcp-header": "A"}}, {"a": {"type": "string", "x-mcp-header": "a b"}},
    {"a": {"type": "string", "x-mcp-header": ""}}, {"a": {"type": "string", "x-mcp-header": 5}},
    {"a": {"type": "string", "x-mcp-header": None}}, {"a": {"x-mcp-header": "A"}},
    {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
    {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
    {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}, {"a": {"type": "string", "x-mcp-header": "A\r\nB"}}]


@pytest.mark.parametrize("number", range(len(BAD_MIRRORS)))
def test_client_leaves_out_tools_with_bad_headers(link: Any, tidy: Any, number: int) -> None:
    tools = [{"name": "bad", "inputSchema": {"type": "object", "properties": BAD_MIRRORS[number]}},
             {"name": "good", "inputSchema": {"type": "object", "properties": {"x-mcp-header": {"type": "number"}}}}]
    over_http = link(Puppet(mirrors=True, **{"tools/list": {"result": {"tools": tools}}, "tools/call": DONE}),
                     checks=False)
    for _ in range(2):
        assert [tool["name"] for tool in over_http.list_tools()] == ["good"]
    assert tidy.readouterr().err.count("bad") == 1
    with pytest.raises(mcp_ref.Malformed, match="header"):
        over_http.call_tool("bad")
    assert said(over_http.call_tool("good")) == "done"
    elsewhere = link(Puppet(**{"tools/list": {"result": {"tools": tools}}}), checks=False)
    assert len(elsewhere.list_tools()) == 2


def test_client_lists_again_when_the_headers_were_wrong(web: Any) -> None:
    mismatch = (400, refused(mcp_ref.HEADER_MISMATCH))
    listed = [{"result": {"tools": [{"name": "t", "inputSchema": mirrored(**{name: "string"})}]}} for name in ("old",
                                                            "new")]
    client = web(tools_list=listed, tools_call=[mismatch, DONE, mismatch])
    assert said(client.call_tool("t", {"old": "1", "new": "2"})) == "done"
    assert [sorted(name for name in ask.headers if "param" in name) for ask in client.web.of("tools/call")] == [
        ["mcp-param-old"], ["mcp-param-new"]]
    with pytest.raises(RpcError) as caught:         # but not for ever
        client.call_tool("t")
    assert caught.value.code == mcp_ref.HEADER_MISMATCH and client.web.keys().count("tools/call") <= 5


# ---- servers that break the protocol

def once(result: Any) -> Dict[str, Any]:
    """Return a page of a list as an answer."""
    return {"result": {"resultType": "complete", **result}}


WRONG: List[Tuple[str, Any, List[Any]]] = [     # method, the call, results that are none
    ("tools/list", lambda client: client.list_tools(), [
        {"tools": None}, {"tools": {}}, {"tools": [3]}, {"tools": [{}]}, {"tools": [{"name": 5}]}, {"tools": ["x"]},
        {"tools": [], "nextCursor": 5}, {"tools": [None]}]),
    ("resources/list", lambda client: client.list_resources(), [
        {"resources": "x"}, {"resources": [{"uri": "x:y"}]}, {"resources": [{"uri": 1, "name": "n"}]}]),
    ("resources/templates/list", lambda client: client.list_resource_templates(), [
        {"resourceTemplates": [{"name": "n"}]}, {"resources": []}]),
    ("prompts/list", lambda client: client.list_prompts(), [{"prompts": [{"title": "n"}]}, {"prompts": 0}]),
    ("tools/call", lambda client: client.call_tool("x"), [
        {"content": None}, {"content": "text"}, {"content": {}}, {"content": [], "isError": "yes"}]),
    ("resources/read", lambda client: client.read_resource("x:y"), [
        {"contents": [3]}, {"contents": [{"text": "no uri"}]}, {"contents": "x"}]),
    ("prompts/get", lambda client: client.get_prompt("x"), [{"messages": 3}, {"messages": None}]),
    ("completion/complete", lambda client: client.complete("x", "y", ""), [
        {"completion": []}, {"completion": {}}, {"completion": {"values": [3]}}, {"completion": {"values": "ab"}}]),
]


@pytest.mark.parametrize("version", [MODERN[0], LEGACY[0]])
@pytest.mark.parametrize("method, call, results", WRONG, ids=[row[0] for row in WRONG])
def test_client_refuses_results_that_are_none(link: Any, version: str, method: str, call: Any,
                                              results: List[Any]) -> None:
    assert {row[0] for row in WRONG} == set(mcp_ref.RESULTS) - {"initialize", "server/discover"}
    wrong = [*results, {}, [], "x", 3, True, None]
    for result in wrong:
        client = link(Puppet(**{**speaks(version), "initialize": INITIALIZED, "server/discover": DISCOVERED,
                                method: {"result": result}}), version, checks=False)
        with pytest.raises(mcp_ref.Malformed, match=method.split("/")[0][:6]):
            call(client)


RESPONSES = [       # what comes for a request with the id ID -> whether the call fails with Malformed
    ([{"id": "ID", **DONE, "error": {"code": 1, "message": "m"}}], True), ([{"id": "ID"}], True),
    ([{"id": "ID", "error": 3}], True), ([{"id": "ID", "error": {}}], True),
    ([{"id": "ID", "error": {"code": "x"}}], True),
    ([{"id": "ID", "error": {"code": 1.5, "message": "m"}}], True), ([{"id": "ID", "error": None}], True),
    ([{"id": 999, **DONE}, {"id": "ID", **DONE}], False), ([{"id": "ID", **DONE}, {"id": "ID", **DONE}], False),
    ([{"id": None, **DONE}, {"id": True, **DONE}, {"id": {}, **DONE}, {"id": [], **DONE}, {"id": 2.0, **DONE},
      {"id": "2",
      **DONE}, {**DONE}, {"id": "ID", **DONE}], False), ([[{"id": "ID", **DONE}], 3], False),
    ([{"id": "ID", "result": {"content": [], "resultType": 5}}], True),
    ([{"id": "ID", "result": {"content": [], "resultType": "task"}}], True),
    ([{"id": "ID", "result": {"content": [{"type": "text", "text": "done"}]}}], False)]


@pytest.mark.parametrize("number", range(len(RESPONSES)))
def test_client_takes_one_good_response(link: Any, number: int) -> None:
    messages, fails = RESPONSES[number]
    messages = [{"jsonrpc": "2.0", **one} if isinstance(one, dict) else one for one in messages]
    client = link(Puppet(**{"tools/call": [messages, DONE]}), checks=False)
    if fails:
        with pytest.raises(mcp_ref.Malformed):
            client.call_tool("x")
    else:
        assert said(client.call_tool("x")) == "done"
    assert said(client.call_tool("x")) == "done"


NOISE: List[Any] = [
    {"method": "notifications/progress"}, {"method": "notifications/progress", "params": [1]},
    {"method": "notifications/progress", "params": {"progressToken": {}, "progress": 1}},
    {"method": "notifications/progress", "params": {"progressToken": "ID"}},
    {"method": "notifications/progress", "params": {"progressToken": "ID", "progress": "x"}},
    {"method": "notifications/cancelled", "params": {"requestId": []}}, {"method": "notifications/cancelled"},
    {"method": "notifications/message"}, {"method": "notifications/message", "params": {"level": 5}},
    {"method": "notifications/elicitation/complete", "params": {"elicitationId": {}}},
    {"method": "notifications/resources/updated", "params": {"uri": ["x"]}},
    {"method": "notifications/resources/updated"},
    {"method": "notifications/tools/list_changed", "params": {"_meta": 3}}, {"method": "nobody/knows", "params": 7},
    {"method": "notifications/subscriptions/acknowledged"},
    {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": 3}},
    {"method": 5}, {"id": 5, "method": "ping", "params": 3}, {"id": None, "method": "ping"}, {"id": {}, "method": "x"}]


@pytest.mark.parametrize("version", [MODERN[0], LEGACY[0]])
@pytest.mark.parametrize("number", range(len(NOISE)))
def test_client_bears_any_notification(link: Any, version: str, number: int) -> None:
    noise = [{"jsonrpc": "2.0", **NOISE[number]}, NOISE[number], {"jsonrpc": "2.0", "id": "ID", **DONE}]
    client = link(Puppet(**{**speaks(version), "initialize": INITIALIZED, "server/discover": DISCOVERED,
                            "tools/call": [noise],
                            "resources/subscribe": {"result": {}}}),
                  version, checks=False, on_log=lambda params: None, on_notification=lambda message: None, cache=True)
    steps: List[Any] = []
    assert said(client.call_tool("x", on_progress=lambda *step: steps.append(step))) == "done" and steps == []


@pytest.mark.parametrize("granted", [{"resourceSubscriptions": 5}, {"resourceSubscriptions": {"x:y": 1}},
                                     {"toolsListChanged": 1},
                                     {"resourceSubscriptions": [[]]}, {"x": 1}, {}])
@pytest.mark.parametrize("over", ["memory", "http"])
def test_client_bears_any_acknowledgment(link: Any, web: Any, granted: Any, over: str) -> None:
    def answer(message: Any) -> Any:
        return {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
            "notifications": granted, "_meta": {mcp_ref.META_SUBSCRIPTION: message["id"]}}}
    if over == "memory":
        client = link(Puppet(**{"subscriptions/listen": lambda message: [answer(message)]}), checks=False, timeout=2)
    else:
        client = web(subscriptions_listen=lambda ask: ask.stream(answer(ask.message), ask.web.hang),
                     options={"timeout": 2})
    try:
        with client.listen(["tools", "x:y"]) as subscription:
            assert subscription.granted in ([], ["x:y"]) or granted == {"toolsListChanged": 1}
    except (mcp_ref.Malformed, mcp_ref.ServerLacks):
        pass


def test_client_is_asked_too_much_or_nonsense(link: Any) -> None:
    """[legacy] Each question gets its answer, or an error; and the call goes on."""
    asked: List[Any] = []
    answers: queue.Queue[Any] = queue.Queue()
    form = {"type": "object", "properties": {"x": {"type": "string"}}}
    questions = [("ping", {}, None), ("nobody/knows", {}, -32601), ("sampling/createMessage", {}, -32601),
                 ("elicitation/create", {}, -32602), ("elicitation/create", {"message": 5, "requestedSchema": form},
                                                      -32602),
                 ("elicitation/create", {"message": "m", "mode": "url", "url": "https://x"}, -32602),
                 ("elicitation/create", {"message": "m", "requestedSchema": {"type": 5}}, -32602),
                 ("elicitation/create", {"message": "m", "requestedSchema": form}, None)]

    def call(message: Any) -> Any:
        return [{"jsonrpc": "2.0", "id": "q%d" % n, "method": method, "params": params}
                for n, (method, params, _) in enumerate(questions)]
    client = link(Puppet(**{**speaks(LEGACY[0]), "initialize": INITIALIZED, "tools/call": call,
                            "response": lambda message:
                            answers.put(message)}), LEGACY[0], checks=False,
                            elicit=lambda params: asked.append(1) or {"x": "y"})
    with pytest.raises(TimeoutError):
        client.call_tool("x", timeout=0.05)
    found = {}
    for _ in questions:
        answer = answers.get(timeout=PATIENCE)
        found[answer["id"]] = answer.get("error", {}).get("code")
    assert [(row[:2], found["q%d" % n]) for n, row in enumerate(questions)] == [(row[:2], row[2]) for row in questions]
    assert asked == [1] or asked == [1, 1]


def test_client_answers_only_so_many_questions_at_once(link: Any, tidy: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_ANSWERING", 3)
    go, answers = threading.Event(), queue.Queue()      # type: threading.Event, queue.Queue[Any]
    asks = [{"jsonrpc": "2.0", "id": n, "method": "roots/list"} for n in (1, 2, 3, 3, 4)]
    client = link(Puppet(**{**speaks(LEGACY[0]), "tools/call": [asks], "initialize": INITIALIZED,
                            "response": lambda message: answers.put(message)}),
                  LEGACY[0], checks=False, roots=lambda params: [] if go.wait(PATIENCE) else None)
    with pytest.raises(TimeoutError):
        client.call_tool("x", timeout=0.05)
    go.set()
    assert sorted(answers.get(timeout=PATIENCE)["id"] for _ in range(3)) == [1, 2, 3]
    assert tidy.readouterr().err.count("too many requests") == 2


def test_client_does_not_answer_a_modern_server_that_asks_by_request(link: Any, tidy: Any) -> None:
    asks = [{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, {"jsonrpc": "2.0", "id": "ID", **DONE}]
    client = link(Puppet(**{"tools/call": [asks]}), MODERN[0], checks=False, roots=[])
    assert said(client.call_tool("x")) == "done"
    assert client.tape.sent().count("tools/call") == 1 and "must not send" in tidy.readouterr().err
    assert not [message for way, message in client.tape.lines if way == ">" and "method" not in message]


def needs(**members: Any) -> Any:
    return {"result": {"resultType": "input_required", **members}}


@pytest.mark.parametrize("answer", [
    needs(), needs(inputRequests=3), needs(inputRequests=[]), needs(requestState=5), needs(inputRequests={"k": 3}),
    needs(inputRequests={"k": {}}), needs(inputRequests={"k": {"method": "tools/call"}}),
    needs(inputRequests={"k": {"method": ["x"]}}), needs(inputRequests={"k": {"method": {}}}),
    needs(inputRequests={"k": {"method": "roots/list", "params": 3}}),
    needs(inputRequests={"k": {"method": "sampling/createMessage", "params": {}}}),
    needs(inputRequests={"k": {"method": "elicitation/create", "params": {}}})])
def test_client_refuses_questions_that_are_none(link: Any, answer: Any) -> None:
    client = link(Puppet(**{"tools/call": answer}), MODERN[0], checks=False, roots=[], elicit=fill)
    with pytest.raises(mcp_ref.Malformed):
        client.call_tool("x")


def test_client_answers_in_so_many_rounds_only(link: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_ROUNDS", 4)
    again = needs(inputRequests={"k": {"method": "roots/list"}})
    puppet = Puppet(**{"tools/call": [*[again] * 9, DONE], "tools/list": needs(requestState="s"),
                       "prompts/get": [needs(requestState="s\u00e9"), {"result": {"messages": []}}]})
    client = link(puppet, MODERN[0], checks=False, roots=["file:///x"])
    with pytest.raises(mcp_ref.Malformed, match="again and again"):
        client.call_tool("x")
    assert client.tape.sent().count("tools/call") == 5
    assert client.tape.params("tools/call")[1] == {"name": "x",
                                                   "inputResponses": {"k": {"roots": [{"uri": "file:///x"}]}}}
    with pytest.raises(mcp_ref.Malformed):      # it may not ask
        client.list_tools()
    assert client.get_prompt("p") == {"messages": []}       # only a state: it goes back as it came
    assert client.tape.params("prompts/get")[1] == {"name": "p", "requestState": "s\u00e9"}


def test_client_does_not_go_round_in_circles(link: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_ref, "MAX_PAGES", 6)
    pages = [once({"tools": [{"name": "t", "inputSchema": {}}], "nextCursor": cursor}) for cursor in "ababababab"]
    for answers in ([pages[0]], pages, [once({"tools": [], "nextCursor": ""})]):
        client = link(Puppet(**{"tools/list": answers}), MODERN[0], checks=False)
        with pytest.raises(mcp_ref.Malformed, match="tools/list"):
            client.list_tools()
        assert client.tape.sent().count("tools/list") <= 6
    client = link(Puppet(**{"tools/list": [once({"tools": [], "nextCursor": ""}), NO_TOOLS]}), MODERN[0], checks=False)
    assert client.list_tools() == [] and client.tape.params("tools/list") == [{}, {"cursor": ""}]


@pytest.mark.parametrize("schema", [
    {"$ref": "https://example.org/schema"}, {"properties": {"a": {"$ref": "file:///etc/passwd"}}}, {"type": 5},
    {"$ref": "#/nowhere"}, {"properties": 3}])
def test_client_fetches_no_schema(link: Any, schema: Any, monkeypatch: Any) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is ever fetched")
    monkeypatch.setattr(socket, "create_connection", never)
    tools = once({"tools": [{"name": "x", "inputSchema": {}, "outputSchema": schema}]})
    done = {"result": {**DONE["result"], "structuredContent": {"a": 1}}}
    client = link(Puppet(**{"tools/list": tools, "tools/call": done}), MODERN[0], checks=False)
    client.list_tools()
    with pytest.raises(mcp_ref.Malformed, match="schema"):
        client.call_tool("x")


def test_client_passes_over_schemas_of_other_dialects(link: Any) -> None:
    for schema in ("http://json-schema.org/draft-07/schema#", "urn:x"):
        tools = once({"tools": [{"name": "x", "inputSchema": {},
                                 "outputSchema": {"$schema": schema, "type": "string"}}]})
        client = link(Puppet(**{"tools/list": tools, "tools/call": DONE}), MODERN[0], checks=False)
        client.list_tools()
        assert said(client.call_tool("x")) == "done"


# ---- the command line

def command(capsys: Any, *words: str) -> Tuple[int, str, str]:
    """Run a verb in this process; return status, stdout and stderr."""
    with pytest.raises(SystemExit) as left:
        mcp_ref.main(list(words))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(left.value.code or 0), out, err


LISTED = """\
mcp_ref-demo %s, speaks %s
  A demonstration: echo, add, a note, a greeting.

tools
  echo(text: a string)
      Return the text.
  add(a: a number, b: a number)
      Add two numbers.

resources
  demo://note  note  text/plain
      A note to read.

prompts
  greet(name)
      Ask for a greeting.
"""


@pytest.fixture
def tidy_cli(capsys: Any) -> Any:
    with no_new_threads():
        yield capsys


@pytest.fixture
def demo_url(site: Any, tidy_cli: Any) -> str:
    return "http://127.0.0.1:%d/mcp" % site(mcp_ref.demo()).port


def test_client_command_line_lists(demo_url: str, tidy_cli: Any) -> None:
    status, out, err = command(tidy_cli, "list", demo_url)
    plain = re.sub(r": (a|an) (?=[a-z]+[,)])", ": ", LISTED % (mcp_ref.__version__, MODERN[0]))
    assert (status, re.sub(r": (a|an) (?=[a-z]+[,)])", ": ", out), err) == (0, plain, "")
    status, out, _ = command(tidy_cli, "list", demo_url, "--json", "--revision", LEGACY[0])
    listed = json.loads(out)
    assert status == 0 and listed["version"] == LEGACY[0] and listed["serverInfo"]["name"] == "mcp_ref-demo"
    assert [tool["name"] for tool in listed["tools"]] == ["echo", "add"] and listed["resourceTemplates"] == []


@pytest.mark.parametrize("words, status, out, err", [
    ("call URL echo text=hello", 0, "hello\n", ""), ("call URL echo text=5", 0, "5\n", ""),
    ("call URL echo text=a=b", 0, "a=b\n", ""), ("call URL echo text=", 0, "\n", ""),
    ("call URL add a=2 b=3", 0, "5", ""), ("call URL add a=2.5 b=-1e1", 0, "-7.5\n", ""),
    ('call URL add {"a":1,"b":2}', 0, "3", ""), ("call URL add a=two b=3", 2, "", "a=two"),
    ("call URL add a", 2, "", "KEY=VALUE"), ("call URL add {", 2, "", "JSON"), ("call URL add a=2", 1, "", "b"),
    ("call URL nobody", 1, "", "echo, add"), ("call URL", 2, "", "--help"), ("call", 2, "", "--help"),
    ("read URL demo://note", 0, "This text comes from the demo server of mcp_ref.py.\n", ""),
    ("read URL demo://nobody", 1, "", "error -32602"), ("read URL", 2, "", "--help"),
    ("read URL a b", 2, "", "--help"), ("prompt URL greet name=Ada", 0,
                                        "user: Write a short, friendly greeting for Ada.\n", ""),
    ("prompt URL greet", 1, "", "error -32602"), ("prompt URL nobody", 1, "", "error -32602"),
    ("list URL x", 2, "", "--help"), ("list URL --nonsense", 2, "", "--nonsense"), ("list", 2, "", "URL"),
    ("list URL --revision 2024-10-07", 2, "", MODERN[0]), ("list URL --revision", 2, "", MODERN[0]),
    ("list URL --timeout soon", 2, "", "timeout"), ("list nothing.py", 2, "", "nothing.py"),
    ("list http://127.0.0.1:1/mcp", 2, "", "127.0.0.1:1"), ("list http://", 2, "", "URL"),
    ("list URL/elsewhere", 2, "", "404"), ("list -- /nowhere/at/all", 2, "", "cannot start"),
    ("list --help", 0, "usage:", ""),
])
def test_client_command_line(demo_url: str, tidy_cli: Any, words: str, status: int, out: str, err: str) -> None:
    arguments = [word.replace("URL", demo_url) for word in words.split(" ")]
    if "--help" in arguments:
        mcp_ref.main(arguments)
        assert out in tidy_cli.readouterr().out
        return
    found = command(tidy_cli, *arguments)
    assert found[0] == status and (found[1] == out or out == out.rstrip("\n") and out and found[1].startswith(out)), found
    assert err in found[2] and (status == 0) == (found[2] == ""), found


def test_client_command_line_as_json_and_with_a_trace(demo_url: str, tidy_cli: Any) -> None:
    status, out, err = command(tidy_cli, "call", demo_url, "add", "a=2", "b=3", "--json", "--trace")
    assert status == 0 and json.loads(out)["structuredContent"] == {"result": 5}
    lines = err.splitlines()
    assert re.fullmatch(r" *\d+\.\d{3} > request server/discover", lines[0])
    for way, what in ((">", "request tools/call"), ("<", "result of tools/call"), ("<", "result of server/discover")):
        assert [line for line in lines if line.endswith("%s %s" % (way, what))], (way, what)
    assert all(isinstance(json.loads(line), dict) for line in lines[1::2])
    status, out, _ = command(tidy_cli, "read", demo_url, "demo://note", "--json")
    assert json.loads(out)[0]["mimeType"] == "text/plain"
    status, out, _ = command(tidy_cli, "prompt", demo_url, "greet", "name=Ada", "--json")
    assert "Ada" in json.loads(out)["messages"][0]["content"]["text"]
    _, _, err = command(tidy_cli, "read", demo_url, "demo://nobody", "--trace")
    assert "< error to resources/read" in err


def test_client_command_line_shows_all_content(site: Any, tidy_cli: Any) -> None:
    at = "http://127.0.0.1:%d/mcp" % site().port
    status, out, err = command(tidy_cli, "call", at, "everything")
    assert out.splitlines() == ["t", "[image, image/png, 9 bytes]", "[audio, audio/wav, 3 bytes]", "inside",
                                "[x://z ]", "[x://y]"]
    status, out, err = command(tidy_cli, "call", at, "steps")
    assert (out, err.splitlines()) == ("done\n",
                                       ["progress 0 of 3 at 0", "progress 1 of 3 at 1", "progress 2.5 of 3 at 2.5"])
    assert command(tidy_cli, "call", at, "fails", "how=own") == (1, "", "error 7: seven [7]\n")
    status, out, err = command(tidy_cli, "call", at, "talk")
    assert status == 0 and "emergency: " in err and "debug" not in err
    status, out, err = command(tidy_cli, "call", at, "typed", "color=r", 'point={"x": 5}', "tags=[1]", "pick=b")
    assert status == 0 and "Point(x=5, y=0)" in out and "{1}" in out
    status, out, err = command(tidy_cli, "list", at)
    assert "add(a: integer, b: integer = 2)" in re.sub(r": an? ", ": ", out) and "resource templates" in out


def test_client_command_line_converts_by_schemas_with_alternatives(site: Any, tidy_cli: Any) -> None:
    """Optional[int] is anyOf in most servers."""
    at = "http://127.0.0.1:%d/mcp" % site().port
    status, out, _ = command(tidy_cli, "call", at, "typed", "color=r", "either=4", 'more={"k": {"x": 1}}')
    assert status == 0 and "'a', 4, {'k': Point(x=1, y=0)}" in out


def test_client_command_line_writes_bytes_as_they_are(site: Any, capsysbinary: Any) -> None:
    at = "http://127.0.0.1:%d/mcp" % site().port
    with pytest.raises(SystemExit) as left:
        mcp_ref.main(["read", at, "test://blob"])
    assert not left.value.code and capsysbinary.readouterr().out == PNG


def test_client_command_line_sends_headers(site: Any, tidy_cli: Any) -> None:
    at = "http://127.0.0.1:%d/mcp" % site(mcp_ref.demo(), authorize=mcp_ref.bearer({"sesame": "ada"})).port
    assert command(tidy_cli, "list", at)[0] == 2
    assert command(tidy_cli, "list", at, "--header", "Authorization: Bearer sesame")[0] == 0
    assert command(tidy_cli, "list", at, "--header=Authorization: Bearer sesame")[0] == 0


ODD = [     # what a server may send, and a verb that shows it
    ("list", {"tools/list": once({"tools": [{"name": "t"}]})}),
    ("list", {"tools/list": once({"tools": [{"name": "t", "inputSchema": 3, "description": 5}]})}),
    ("list", {"tools/list": once({"tools": [{"name": "t", "inputSchema": {"properties": {"a": 3}, "required": 5}}]})}),
    ("list", {"tools/list": once({"tools": [{"name": "t", "inputSchema": {"properties": [1]}}]})}),
    ("list", {"prompts/list": once({"prompts": [{"name": "p", "arguments": [3]}]})}),
    ("list", {"prompts/list": once({"prompts": [{"name": "p", "arguments": 3}]})}),
    ("list", {"resources/list": once({"resources": [{"name": "p", "uri": "x:y", "mimeType": 5}]})}),
    ("list", {"server/discover": once({**DISCOVERED["result"], "instructions": 5})}),
    ("call t", {"tools/list": once({"tools": [{"name": "t"}]}), "tools/call": DONE}),
    ("call t a=1", {"tools/list": once({"tools": [{"name": "t", "inputSchema": {"properties": 3}}]}),
                    "tools/call": DONE}),
    ("call t a=1", {"tools/list": once({"tools": [{"name": "t", "inputSchema": {"properties": {"a": {"type": 3}}}}]}),
                    "tools/call": DONE}),
    ("call t", {"tools/list": once({"tools": [{"name": "t", "inputSchema": {}}]}),
                "tools/call": once({"content": [3, None, {"type": "text"}]})}),
    ("read x:y", {"resources/read": once({"contents": [{"uri": "x:y", "text": 5}, {"uri": "x:y", "blob": 5},
                                                       {"uri": "x:y", "blob": "?"}]})}),
    ("prompt p", {"prompts/get": once({"messages": [3, {"role": 5}, {"role": "user", "content": []}]})}),
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_client_command_line_shows_odd_things_without_falling_over(sites: Any, number: int) -> None:
    verb, answers = ODD[number]
    empty = {"prompts/list": once({"prompts": []}), "resources/list": once({"resources": []}),
             "resources/templates/list": once({"resourceTemplates": []})}
    at = Web({**empty, **answers})
    sites.started.append(at)
    words = verb.split()
    with pytest.raises(SystemExit) as left:
        mcp_ref.main([words[0], at.url, *words[1:]])
    assert left.value.code in (0, 1, 2, None)


@pytest.mark.parametrize("lines, sent", [
    (["x", "7", "y"], {"a": "x", "b": 7}), (["x", "", "yes"], {"a": "x"}), (["x", "7", "n"], "decline"),
    (["x", "7", ""], "decline"), (["x", "seven", "8", "y"], {"a": "x", "b": 8}), ([], "cancel"), (["x"], "cancel"),
    (["x", "7"], "cancel")])
def test_client_command_line_fills_forms(monkeypatch: Any, capsys: Any, lines: List[str], sent: Any) -> None:
    """`b` has a default, which is filled in later; the end of input is always a way out."""
    form = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 5}},
            "required": ["a"]}
    typed = iter(lines)

    def read() -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None
    monkeypatch.setattr("builtins.input", read)
    assert mcp_ref._fill_form({"message": "Which?", "requestedSchema": form}) == sent
    assert "Which?" in capsys.readouterr().err


def test_client_command_line_with_processes(tmp_path: Path) -> None:
    module = str(HERE / "mcp_ref.py")
    done = run(module, "list", "--", sys.executable, module)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mcp_ref-demo %s, speaks %s\n" % (mcp_ref.__version__, MODERN[0]))
    (tmp_path / "shout.py").write_text('def shout(text: str) -> str:\n    """Say it louder."""\n    return text.upper()\n')
    done = run(module, "call", str(tmp_path / "shout.py"), "shout", "text=hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO\n", "")
    done = run(module, "list", "--", sys.executable, "-c", "import sys; sys.exit('no licence')")
    assert done.returncode == 2 and "no licence" in done.stderr and "Traceback" not in done.stderr
    assert run(module, "call", "--trace", "--", sys.executable, module).returncode == 2


# ---- what a reviewer of the rules found missing

def acknowledged(message: Any, **granted: Any) -> Dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "_meta": {mcp_ref.META_SUBSCRIPTION: message["id"]}, "notifications": granted}}


def test_client_hears_that_the_server_ends_a_subscription(link: Any) -> None:
    """basic/patterns/cancellation: the one use that a modern server has for notifications/cancelled."""
    def listened(message: Any) -> Any:
        return [acknowledged(message, toolsListChanged=True), {
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}]
    client = link(Puppet(**{"subscriptions/listen": listened}), MODERN[0], checks=False)
    heard = client.listen("tools")
    assert list(heard) == [] and heard.over.is_set()
    heard.close()
    assert "notifications/cancelled" not in client.tape.sent()      # it is over: there is nothing to cancel


@pytest.mark.parametrize("answer", [
    {"error": {"code": -32022, "message": "no", "data": {"supported": ["2099-01-01"], "requested": "x"}}},
    {"result": {"resultType": "complete", "supportedVersions": ["2099-01-01"], "capabilities": {}}}])
def test_client_says_that_there_is_no_common_version(link: Any, answer: Any) -> None:
    puppet = Puppet(**{"server/discover": answer})
    with pytest.raises(mcp_ref.ServerLacks, match="speaks 2099-01-01"):
        link(puppet, checks=False)


def test_client_reads_a_modern_error_to_initialize_over_http(web: Any) -> None:
    """A modern server that was slow to answer the probe is asked once more."""
    refusal = {"error": {"code": -32022, "message": "no", "data": {"supported": MODERN, "requested": "x"}}}
    let = threading.Event()

    def late(ask: Any) -> None:
        let.wait(PATIENCE)
        ask.reply(200, DISCOVERED)
    client = web(options={"probe": 0.05}, server_discover=[late, DISCOVERED],
                   initialize=lambda ask: (let.set(), ask.reply(400, refusal)), tools_call=DONE)
    assert client.version == MODERN[0] and said(client.call_tool("x")) == "done"
    assert "GET" not in [ask.verb for ask in client.web.asked]


def test_client_does_not_sample_with_tools_unless_declared(link: Any) -> None:
    question = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "tools": []}}
    asks = {"result": {"resultType": "input_required", "inputRequests": {"k": question}}}
    script = {"tools/call": [asks, DONE]}
    with pytest.raises(mcp_ref.Malformed, match="sampling.tools"):
        link(Puppet(**script), MODERN[0], checks=False, sample=lambda params: "x").call_tool("x")
    declared = {"sampling": {"tools": {}}}
    client = link(Puppet(**script), MODERN[0], checks=False, sample=lambda params: "x", declare=declared)
    assert said(client.call_tool("x")) == "done"


@pytest.mark.parametrize("version", [MODERN[0], LEGACY[0]])
def test_client_cancels_while_a_question_is_answered(link: Any, version: str) -> None:
    begun: List[Any] = []

    def elicit(params: Any) -> Any:
        begun[-1].cancel()
        return "decline"
    server = Server("s")

    @server.tool
    def ask(ctx: Context) -> str:
        return str(ctx.elicit("Who?", name=str))
    client = link("memory", version, server, elicit=elicit)
    with pytest.raises(mcp_ref.RequestCancelled):
        client.call_tool("ask", started=begun.append)


def test_client_keeps_nothing_for_callers_that_vary(web: Any) -> None:
    """server/utilities/caching: a private result is not for the next one."""
    read = [{"result": {"resultType": "complete", "contents": [{"uri": "x://y", "text": who}], "ttlMs": 60000,
                        "cacheScope": scope}} for scope, who in (("private", "ada"), ("public", "all"))]
    client = web(MODERN[0], {"cache": True, "headers": lambda verb, url: {"Authorization": "Bearer x"}},
                   resources_read=read)
    client.capabilities["resources"] = {}
    assert [client.read_resource("x://y")[0]["text"] for _ in range(3)] == ["ada", "all", "all"]


def test_client_starts_a_cached_list_again_when_its_cursor_is_refused(link: Any) -> None:
    def page(name: str, **more: Any) -> Any:
        return {"result": {"resultType": "complete", "prompts": [{"name": name}], "ttlMs": 60000,
                           "cacheScope": "private", **more}}
    refusal = {"error": {"code": -32602, "message": "no such cursor"}}
    puppet = Puppet(**{"prompts/list": [page("a", nextCursor="1"), page("b", ttlMs=0), refusal, page("c")]})
    client = link(puppet, MODERN[0], checks=False, cache=True)
    client.capabilities["prompts"] = {}
    assert [one["name"] for one in client.list_prompts()] == ["a", "b"]
    assert [one["name"] for one in client.list_prompts()] == ["c"]


def test_client_does_not_keep_what_changed_on_its_way(link: Any) -> None:
    listed = {"resultType": "complete", "tools": [], "ttlMs": 60000, "cacheScope": "private"}
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    puppet = Puppet(**{"tools/list": [[changed, {"jsonrpc": "2.0", "id": "ID", "result": listed}],
                                      {"result": listed}]})
    client = link(puppet, MODERN[0], checks=False, cache=True)
    client.capabilities["tools"] = {}
    for _ in range(3):
        client.list_tools()
    assert client.tape.sent().count("tools/list") == 2


@pytest.mark.parametrize("version", [MODERN[0], LEGACY[0]])
def test_client_hears_of_what_is_below_a_resource(link: Any, version: str) -> None:
    """The URI of an update may be that of a part of what was subscribed to."""
    client = link("memory", version)
    with client.listen("test://blob") as heard:
        mine = {"_meta": {mcp_ref.META_SUBSCRIPTION: heard.id}} if client.modern else {}
        for uri in ("test://blob/part", "test://blob"):
            client.receive({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                            "params": {"uri": uri, **mine}})
        changes = iter(heard)
        assert [next(changes), next(changes)] == ["test://blob/part", "test://blob"]


def test_client_knows_the_levels() -> None:
    with pytest.raises(ValueError, match="log_level"):
        mcp_ref.connect(Server("s"), log_level="loud")


def test_client_cancels_what_a_callback_breaks_off(link: Any) -> None:
    server, gone = Server("s"), threading.Event()

    @server.tool
    def work(ctx: Context) -> None:
        ctx.on_cancel(gone.set)
        ctx.progress(1)
        gone.wait(PATIENCE)
    client = link("memory", MODERN[0], server)

    def enough(*_: Any) -> None:
        raise KeyError("enough")
    with pytest.raises(KeyError):
        client.call_tool("work", on_progress=enough)
    assert gone.wait(PATIENCE)


def test_client_completes_prompts_with_odd_names(link: Any) -> None:
    server = Server("s")

    @server.prompt(name="git:commit")
    def commit(kind: str) -> str:
        return kind

    @server.completion("git:commit", "kind")
    def kinds(typed: str) -> List[str]:
        return ["fix"]
    assert link("memory", MODERN[0], server).complete("git:commit", "kind", "") == ["fix"]


def test_client_ends_a_server_whose_children_hold_its_pipes(link: Any) -> None:
    """The group is ended with its leader, and nothing is waited for in vain."""
    source = ("import subprocess, sys; subprocess.Popen(['sleep', '60']);\n"
              "sys.path.insert(0, %r); import mcp_ref; mcp_ref.demo().run([])" % str(HERE))
    client = link([sys.executable, "-c", source], MODERN[0])
    process = client.transport.process
    client.close()
    assert process.poll() == 0 and not any(thread.is_alive() for thread in client.transport._threads)


def test_the_command_line_lets_a_form_be_edited(monkeypatch: Any, capsys: Any) -> None:
    typed = iter(["x", "e", "y", "yes"])
    monkeypatch.setattr("builtins.input", lambda: next(typed))
    form = {"message": "Which?", "requestedSchema": {"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "title": "A letter", "oneOf": [{"const": "x", "title": "Ex"}, {"const": "y"}]}}}}
    assert mcp_ref._fill_form(form, "demo") == {"a": "y"}
    shown = capsys.readouterr().err
    assert "demo asks: Which?" in shown and "A letter" in shown and '"x"  Ex' in shown and "Ctrl-D" in shown


def test_client_keeps_results_for_itself(link: Any) -> None:
    client = link("memory", MODERN[0], Server("s", ttl_ms=60000), cache=True)
    client.server.tool(lambda: "x", name="x")
    client.capabilities["tools"] = {}
    client.list_tools()[0]["name"] = "changed by the caller"
    assert [tool["name"] for tool in client.list_tools()] == ["x"]
    assert client.tape.sent().count("tools/list") == 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_line_takes_its_server_along(tmp_path: Path) -> None:
    """Whoever ends it by SIGTERM does not leave a server behind."""
    (tmp_path / "s.py").write_text("import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)")
    command = [sys.executable, str(HERE / "mcp_ref.py"), "list", "--", sys.executable, "s.py"]
    process = subprocess.Popen(command, cwd=str(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("started", [0, 1])
def test_a_signal_may_come_before_the_threads_of_a_client_run(monkeypatch: Any, started: int) -> None:
    """Then the server is ended all the same, and it is the signal that is heard of."""
    start, count = threading.Thread.start, iter(range(10))

    def interrupted(thread: Any) -> None:
        if thread.name in ("mcp-read", "mcp-stderr") and next(count) >= started:
            raise SystemExit(143)
        start(thread)
    transport = mcp_ref.StdioTransport([sys.executable, "-c", "input()"])
    begun: List[Any] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(subprocess, "Popen", lambda *given, make=subprocess.Popen, **named: begun.append(
        make(*given, **named)) or begun[-1])
    with pytest.raises(SystemExit):
        mcp_ref.connect(transport)
    assert begun[0].wait(PATIENCE) is not None


def test_a_context_without_a_hint_is_a_mistake() -> None:
    def who(ctx):       # type: ignore[no-untyped-def]
        return ctx.principal
    with pytest.raises(TypeError, match="ctx: Context"):
        Server("s").tool(who)


@pytest.mark.parametrize("words, said", [
    (["lst", "x.py"], "makes no sense: lst x.py"), (["list", "nofile.py"], "there is no file"),
    (["list", "http://x", "--header", "nocolon"], "NAME: VALUE"), (["list", "http://x", "--timeout", "-1"], "seconds"),
    (["list", "http://x", "--revision"], "--revision takes"), (["call", "--", "x"], "before the --"),
    (["list", "x", "--", "y"], "one word too many: x"), (["list", "http://x", "--odd"], "no option --odd")])
def test_the_command_line_says_what_is_wrong_with_it(capsys: Any, words: List[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        mcp_ref.main(words)
    assert left.value.code == 2 and said in capsys.readouterr().err


# A certificate for localhost that nobody else trusts, and its key: good for a hundred years, secret from nobody.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg7f4Zi9+4pt0uhU6B
jC66UB7ZBlW2Gpq5/yl+P1puTn6hRANCAAQK7wXAsDKuiTtsdPGZuRxHsSiVudZc
UO7BAmru1P4pf/lf6gOyOllSIIjNyyo6ggGqab4d8NLzl3ik9lMi1q0X
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBpDCCAUugAwIBAgIUYjKoCYZa9mXDULq6sr6TA4Hriv8wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDE0NTQzNloYDzIxMjYxMDI3
MTQ1NDM2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQK7wXAsDKuiTtsdPGZuRxHsSiVudZcUO7BAmru1P4pf/lf6gOyOllS
IIjNyyo6ggGqab4d8NLzl3ik9lMi1q0Xo3kwdzAdBgNVHQ4EFgQUZn6p/6LzZGYc
fxywKP83O0o8urgwHwYDVR0jBBgwFoAUZn6p/6LzZGYcfxywKP83O0o8urgwFAYD
VR0RBA0wC4IJbG9jYWxob3N0MA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQD
AgKEMAoGCCqGSM49BAMCA0cAMEQCIB++wPrLzNtmyN4/zdiJtWIVTOZPH3G+flAA
725Sb+22AiAbuL/QgaWSu2ZvdZpl8zuh44HEeeCrdxSGRf7wtjnRAw==
-----END CERTIFICATE-----
"""


@pytest.fixture
def tls_port(tmp_path: Path) -> Any:
    """A server with TLS, as a proxy in front of it would have it; yields its port and the certificate's path."""
    import ssl
    path = tmp_path / "localhost.pem"
    path.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(path))
    httpd = mcp_ref.http_server(mcp_ref.Endpoint(mcp_ref.demo()))
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield httpd.server_port, str(path)
    httpd.close()
    thread.join(PATIENCE)


def test_client_trusts_no_certificate_blindly(tls_port: Any, link: Any, capfd: Any) -> None:
    import ssl
    port, path = tls_port
    known = ssl.create_default_context(cafile=path)
    client = link("https://localhost:%d/mcp" % port, checks=False, tls=known)
    assert said(client.call_tool("echo", {"text": "sealed"})) == "sealed"
    with client.listen("tools") as changes:     # a stream goes through it as well
        assert changes.granted == ["tools"]
    for host, context in (("localhost", None), ("127.0.0.1", known)):     # unknown issuer; another name
        with pytest.raises(mcp_ref.Disconnected, match="(?i)certificate"):
            link("https://%s:%d/mcp" % (host, port), checks=False, tls=context)


# ------------------------------------------------------------------------------------------
# The gateway, examples/10_gateway.py: real upstreams, clients of both eras
# ------------------------------------------------------------------------------------------

def load_gateway() -> Any:
    """Import the example, whose name is no identifier."""
    path = HERE / "examples" / "10_gateway.py"
    spec: Any = importlib.util.spec_from_file_location("gateway", path)
    module = sys.modules["gateway"] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


gw = load_gateway()
ERAS = (MODERN[0], *LEGACY[:2])
PID_SERVER = '''
import os, sys
sys.path.insert(0, {here!r})
from mcp_ref import Server
server = Server("pid")
@server.tool
def pid() -> int:
    return os.getpid()
@server.tool
def die() -> None:
    os._exit(3)
server.run()
'''


def many_things() -> Server:
    """Make a server with all that a gateway has to carry."""
    server = Server("up")
    server.seen = threading.Event()

    @server.tool(name="dir/list it")
    def odd() -> str:
        return "odd"

    @server.tool(name="a" * 80)
    def longest() -> str:
        return "long"

    @server.tool(input_schema={"type": "object", "properties": {
        "where": {"type": "string", "x-mcp-header": "Where"}}})
    def fail(**arguments: str) -> str:
        raise RpcError(4711, "its own error", {"why": arguments})

    @server.tool
    def broken() -> str:
        raise OSError("as a result")

    @server.tool
    def hang(ctx: Context) -> str:
        ctx.progress(1, 2, "hanging")
        wait_until(lambda: ctx.cancelled)
        server.seen.set()
        return "nobody reads this"

    @server.tool
    def ask(ctx: Context) -> str:
        answers = ctx.ask({"name": elicitation("Who?", name=str)})
        town = ctx.elicit("Where, " + answers["name"]["content"]["name"] + "?", key="t", town=str)
        return json.dumps([town["action"], town.get("content")])

    @server.tool
    def consult(ctx: Context) -> str:
        folders = ctx.list_roots(key="r")
        return folders[0]["uri"] + ctx.sample("Think", key="s")["content"]["text"]

    @server.tool
    def talk(ctx: Context) -> str:
        ctx.log("info", "one")
        ctx.progress(1, 2)
        ctx.progress(2, 2)
        return "talked"

    @server.tool
    def linked() -> list:
        return [mcp_ref.link("memo://a", "a"), mcp_ref.text("x")]

    @server.resource("memo://{name}")
    def memo(name: str) -> str:
        return "memo " + name

    @server.resource("memo://today")
    def today() -> str:
        return "today"

    @server.prompt
    def greet(name: str) -> str:
        return "Hello " + name

    @server.completion("greet", "name")
    def names(typed: str) -> list:
        return ["ada", "alan"]

    @server.completion("memo://{name}", "name")
    def memos(typed: str) -> list:
        return ["today"]
    return server


@pytest.fixture(scope="module")
def joined(tmp_path_factory: Any) -> Any:
    """Yield (URL of the gateway, the server behind it, the gateway)."""
    path = tmp_path_factory.mktemp("gw") / "pid.py"
    path.write_text(PID_SERVER.format(here=str(HERE)))
    gw.FIRST_PAUSE = 0.05
    server: Any = many_things()
    up = mcp_ref.http_server(mcp_ref.Endpoint(server))
    threading.Thread(target=up.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{up.server_port}/mcp"
    gateway = gw.Gateway({
        "My_Up": {"url": url}, "old": {"url": url, "revision": ERAS[1]},
        "pid": {"command": [sys.executable, str(path)]}, "dead": {"command": ["/nonexistent"]}},
        {"all": {"My_Up": ["*"], "old": ["*"], "pid": ["*"], "dead": ["*"]},
         "few": {"My_Up": ["t*"]}})
    httpd = mcp_ref.http_server(gw.Router(gateway))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    wait_until(lambda: all(one.tried.is_set() for one in gateway.upstreams.values()))
    yield f"http://127.0.0.1:{httpd.server_port}/mcp/", server, gateway
    gateway.close()
    httpd.close()
    up.close()


@pytest.fixture(params=ERAS)
def fronted(joined: Any, request: Any) -> Any:
    heard = []
    answers = {"elicit": lambda params: {"name": "Ada"} if "name" in
               params["requestedSchema"]["properties"] else "cancel",
               "sample": lambda params: "deep", "roots": ["file:///tmp"]}
    with mcp_ref.connect(joined[0] + "all", revision=request.param, on_log=heard.append, **answers) as found:
        found.heard = heard
        yield found


def test_gateway_lists(fronted: Any, joined: Any) -> None:
    names = [tool["name"] for tool in fronted.list_tools()]
    assert names[0] == "My_Up__dir_x2f_list_x20_it" and len(set(names)) == len(names) == 20
    assert all(len(name) <= 64 for name in names) and names[-2:] == ["pid__pid", "pid__die"]
    assert "x-mcp-header" not in json.dumps(fronted.list_tools())
    assert said(fronted.call_tool(names[0])) == "odd" and said(fronted.call_tool(names[1])) == "long"
    with mcp_ref.connect(joined[0] + "few", revision=fronted.version) as few:
        assert [tool["name"] for tool in few.list_tools()] == ["My_Up__talk"]
        for name in ("My_Up__ask", "pid__pid", "x", "My_Up__"):
            with pytest.raises(RpcError, match="Unknown tool"):
                few.call_tool(name)


def test_gateway_resources_prompts_completion(fronted: Any) -> None:
    assert [one["uri"] for one in fronted.list_resources()] == [
        "my-up+memo://today", "old+memo://today"]
    assert fronted.list_resource_templates()[0]["uriTemplate"] == "my-up+memo://{name}"
    for name, scheme in ("My_Up", "my-up"), ("old", "old"):
        contents = fronted.read_resource(scheme + "+memo://milk")
        assert contents[0]["uri"] == scheme + "+memo://milk" and contents[0]["text"] == "memo milk"
        with pytest.raises(RpcError) as problem:
            fronted.read_resource(scheme + "+none://milk")
        # as the upstream says it, but for a code that modern clients do not know
        assert problem.value.code == (
            -32002 if name == "old" and not fronted.modern else -32602)
        assert fronted.get_prompt(name + "__greet", {"name": "you"})["messages"][0]["content"][
            "text"] == "Hello you"
        assert fronted.complete(name + "__greet", "name", "a") == ["ada", "alan"]
        assert fronted.complete(scheme + "+memo://{name}", "name", "") == ["today"]
        assert fronted.call_tool(name + "__linked")["content"][0]["uri"] == scheme + "+memo://a"
    with pytest.raises(RpcError, match="Resource not found"):
        fronted.read_resource("memo://milk")


def test_gateway_errors(fronted: Any) -> None:
    for name in "My_Up", "old":
        with pytest.raises(RpcError) as problem:
            fronted.call_tool(name + "__fail", {"where": "there"})
        assert (problem.value.code, str(problem.value)) == (4711, "its own error")
        assert problem.value.data == {"server": name, "originalError": {
            "code": 4711, "message": "its own error", "data": {"why": {"where": "there"}}}}
        assert fronted.call_tool(name + "__broken")["isError"]
    with pytest.raises(RpcError) as problem:
        fronted.call_tool("dead__anything")
    assert problem.value.code == -32603 and problem.value.data == {"server": "dead"}


@pytest.mark.parametrize("name", ["My_Up", "old"])
def test_gateway_questions_progress_logs(fronted: Any, joined: Any, name: Any) -> None:
    assert json.loads(said(fronted.call_tool(name + "__ask"))) == ["cancel", None]
    assert said(fronted.call_tool(name + "__consult")) == "file:///tmpdeep"
    heard = []
    fronted.call_tool(name + "__talk", on_progress=lambda *progress: heard.append(progress[:2]))
    assert heard == [(1, 2), (2, 2)]
    wait_until(lambda: fronted.heard)
    assert fronted.heard[0]["data"] == "one"
    assert not joined[2].parked


@pytest.mark.parametrize("version", ERAS)
def test_gateway_who_did_not_declare_is_not_asked(joined: Any, version: Any) -> None:
    with mcp_ref.connect(joined[0] + "all", revision=version) as bare:
        with pytest.raises(RpcError, match="The client has no roots") as problem:
            bare.call_tool("My_Up__consult")
        assert problem.value.code == (-32021 if bare.modern else -32603)
        assert problem.value.data["requiredCapabilities"] == {"roots": {}}


def test_gateway_a_question_that_may_be_for_two_is_for_nobody(joined: Any) -> None:
    relays = [object.__new__(gw.Relay), object.__new__(gw.Relay)]
    relays[0].owner, relays[1].owner = "one", "two"
    for tags in relays, [], [None]:
        with pytest.raises(RpcError, match="cannot be told"):
            joined[2].upstreams["old"].ask("roots/list", {}, tags)


def test_gateway_an_answer_is_good_for_one_request(joined: Any) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": ERAS[0],
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    server, heard = joined[2].profiles["all"].server, []

    def send(name, **more):
        server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": name, "_meta": meta, **more}}, heard.append)
        return heard.pop()
    asked = send("My_Up__ask")["result"]
    key, = asked["inputRequests"]
    answer = {key: {"action": "accept", "content": {"name": "Eve"}}}
    assert "nothing that is still asked" in send("My_Up__talk", inputResponses=answer)["error"][
        "message"]
    flawed = send("My_Up__ask", inputResponses={key: {"action": "accept", "content": {}}})
    assert [*flawed["result"]["inputRequests"]] == [key]        # it is asked again
    assert "Where, Eve?" in json.dumps(send("My_Up__ask", inputResponses=answer))
    assert "error" in send("My_Up__ask", inputResponses=answer)     # once
    assert len(joined[2].parked) == 1
    relay = next(iter(joined[2].parked.values()))
    relay.parked -= 2 * gw.PARKED_SECONDS
    joined[2].sweep()
    wait_until(lambda: relay.over.is_set())
    assert not joined[2].parked


@pytest.mark.parametrize("name", ["My_Up", "old"])
def test_gateway_cancel(fronted: Any, joined: Any, name: Any) -> None:
    joined[1].seen.clear()
    begun = []
    with pytest.raises(Exception, match="cancelled"):
        fronted.call_tool(name + "__hang", on_progress=lambda *_: begun[0].cancel(),
                         started=begun.append)
    assert joined[1].seen.wait(5)


def test_gateway_changes(fronted: Any, joined: Any) -> None:
    heard, watching = queue.SimpleQueue(), joined[2].upstreams["old"]
    with fronted.listen(["tools", "old+memo://today"], heard.put):
        wait_until(lambda: "memo://today" in watching.subscription.granted)
        joined[1].changed("memo://today")
        assert heard.get(timeout=5) == "old+memo://today"
        for change in (lambda: joined[1].tool(mcp_ref.text, name="grown"),
                       lambda: joined[1].tools.pop("grown")):
            change()
            joined[1].changed("tools")
            assert [heard.get(timeout=5), heard.get(timeout=5)] == ["tools", "tools"]   # of both
            names = [tool["name"] for tool in fronted.list_tools()]
            known = "grown" in joined[1].tools
            assert ("old__grown" in names) == ("My_Up__grown" in names) == known


def test_gateway_a_dead_upstream_comes_back(fronted: Any, joined: Any) -> None:
    heard, first = queue.SimpleQueue(), said(fronted.call_tool("pid__pid"))
    with fronted.listen(["tools"], heard.put):
        with pytest.raises(RpcError) as problem:
            fronted.call_tool("pid__die")
        assert problem.value.code == -32603 and problem.value.data == {"server": "pid"}
        assert heard.get(timeout=5) == "tools"          # it is gone
        assert "My_Up__talk" in [tool["name"] for tool in fronted.list_tools()]
        assert heard.get(timeout=5) == "tools"          # it is back
    assert said(fronted.call_tool("pid__pid")) != first


def test_gateway_http_and_sse(joined: Any) -> None:
    from http.client import HTTPConnection
    connection = HTTPConnection(*joined[0].split("/")[2].split(":"))
    connection.request("GET", "/mcp/all", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.readline() == b"event: endpoint\n"
    assert answer.readline().startswith(b"data: /mcp/all/messages?session_id=")
    connection.close()
    connection = HTTPConnection(*joined[0].split("/")[2].split(":"))
    connection.request("GET", "/mcp/none")
    answer = connection.getresponse()
    assert answer.status == 404 and "/mcp/all" in json.load(answer)["error"]["message"]
    connection.close()


def test_gateway_names_are_told_apart() -> None:
    names = ["a", "a_b", "a__b", "_x2f_", "_x2f/", "/", "_/", "x2f_", "/x2f_", "_x5f_x2f_", "é_x"]
    assert len({gw.escaped(name) for name in names}) == len(names)

    prefixes = [gw.prefix_of(name) for name in ("a b", "a__b", "__a_", "a" * 99)]
    assert prefixes == ["a-b", "a-b", "a", prefixes[3]] and len(prefixes[3]) == 32


@pytest.mark.parametrize("config, problem", [
    ("{", "Expecting"), ("[]", "no object"), ("{}", '"servers"'),
    ('{"servers": {"a": {}}}', "either a command or a url"),
    ('{"servers": {"a": {"command": []}}}', "command is empty"),
    ('{"servers": {"a": {"url": "ftp://x"}}}', "no URL"),
    ('{"servers": {"a b": {"command": "x"}, "A-b": {"command": "x"}}}', "share a prefix"),
    ('{"servers": {"a": {"command": "x"}}, "profiles": {"p": {"servers": ["b"]}}}', "no server"),
    ('{"mcpServers": {"a": {"command": "x", "args": [1]}}}', "args is a list"),
])
def test_gateway_bad_configuration(tmp_path: Any, config: Any, problem: Any) -> None:
    (tmp_path / "c.json").write_text(config)
    with pytest.raises(ValueError) as found:
        gw.read_config(str(tmp_path / "c.json"))
    assert problem in str(found.value)


def test_gateway_on_stdio(tmp_path: Any) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"mcpServers": {"demo": {
        "command": sys.executable, "args": [str(HERE / "mcp_ref.py")]}}}))
    command = [sys.executable, str(HERE / "examples" / "10_gateway.py"), str(path)]
    with mcp_ref.connect(command, stderr=lambda line: None) as client:
        assert said(client.call_tool("demo__add", {"a": 2, "b": 3})) == "5"
    done = subprocess.run([*command, "--profile", "none"], capture_output=True, text=True)
    assert done.returncode == 2 and 'no profile "none"' in done.stderr


def test_a_subscription_that_is_ended_as_it_begins_gets_its_result(site: Any, monkeypatch: Any) -> None:
    """The server ends it between the acknowledgment and the moment in which the POST begins to wait."""
    one, forgotten, closed = site(), threading.Event(), threading.Event()
    forget, close, run_work = Server._forget, mcp_ref.Reply.close, mcp_ref.Endpoint.run
    ending = threading.Thread(target=one.endpoint.close)

    def forget_slowly(server: Any, ctx: Any) -> bool:
        found = forget(server, ctx)
        forgotten.set()
        closed.wait(0.05)
        return found

    def run_and_end(endpoint: Any, reply: Any, work: Any) -> None:
        run_work(endpoint, reply, work)
        if not ending.ident:
            ending.start()
            assert forgotten.wait(PATIENCE)
    monkeypatch.setattr(Server, "_forget", forget_slowly)
    monkeypatch.setattr(mcp_ref.Endpoint, "run", run_and_end)
    monkeypatch.setattr(mcp_ref.Reply, "close", lambda reply: (closed.set(), close(reply)))
    message = modern("subscriptions/listen", notifications={"toolsListChanged": True})
    _, events = one.stream(body=message, **{name.replace("-", "_"): value for name, value in mirrors(message).items()})
    said = [event["data"] for event in events]
    ending.join(PATIENCE)
    assert len(said) == 2 and "acknowledged" in said[0] and '"result"' in said[1]


# ------------------------------------------------------------------------------------------
# The module itself, the examples and the README
# ------------------------------------------------------------------------------------------

def test_import_loads_nothing_heavy() -> None:
    heavy = "http.server http.client socket ssl subprocess asyncio logging dataclasses urllib.parse".split()
    code = "import sys; sys.path.insert(0, %r); import mcp_ref; print([m for m in %r if m in sys.modules])" % (str(HERE), heavy)
    assert run("-I", "-S", "-c", code).stdout.strip() == "[]"


def test_dates_stand_in_the_tables_only() -> None:
    """No date literal, no error code and no comparison of revisions anywhere else."""
    source = (HERE / "mcp_ref.py").read_text(encoding="utf-8")
    code = re.sub(r'"""(?s:.*?)"""|#.*', "", source)
    tables = code[code.index("REVISIONS = {"):code.index("class Method(")]
    assert re.findall(r"\d{4}-\d\d-\d\d", code) == re.findall(r"\d{4}-\d\d-\d\d", tables) and len(versions()) == 5
    errors = code[code.index("ERRORS = {"):code.index("LOG_LEVELS = ")]
    codes = re.findall(r"-3[23]\d{3}", code)
    assert sorted(set(codes) - {"-32768", "-32000"}) == sorted(set(re.findall(r"-3[23]\d{3}", errors)))
    assert len(set(codes)) == len(mcp_ref.ERRORS) + 2


def test_the_tables_are_consistent() -> None:
    order = list(REVISIONS)
    for table in (METHODS, NOTIFICATIONS, FEATURES, mcp_ref.ERRORS):
        for row in table.values():
            assert row.since in order and row.until in ("", *order)
            assert not row.until or order.index(row.until) <= order.index(row.since)
            assert getattr(row, "deprecated", "") in ("", *order)
    assert {row.era for row in REVISIONS.values()} == {"modern", "legacy"}
    served = {name for name, row in METHODS.items() if ">" in row.way} - {"initialize", "ping"}
    assert set(Server._METHODS) == served
    assert set(mcp_ref.PARAMS) <= set(METHODS)
    assert [row.name for row in METHODS.values() if row.asks] == ["tools/call", "resources/read", "prompts/get"]
    assert all(name in vars(mcp_ref) for name in mcp_ref.__all__)


def test_every_feature_of_the_table_is_used() -> None:
    source = (HERE / "mcp_ref.py").read_text(encoding="utf-8")
    later = {"header mirroring", "priming events", "version header", "streamable sessions", "HTTP+SSE"}
    for name, row in FEATURES.items():
        assert row.fields or source.count('"%s"' % name) > 1 or name in later, name


@pytest.mark.skipif("MCP_SPEC" not in os.environ, reason="needs MCP_SPEC, a checkout of the specification")
@pytest.mark.parametrize("path", [HERE / "mcp_ref.py", *sorted((HERE / "examples").glob("*.py"))],
                         ids=lambda path: path.name)
def test_every_cited_heading_exists(path: Path) -> None:
    pages = Path(os.environ["MCP_SPEC"], "docs", "specification")
    source = re.sub(r"\n(?: *#)? +", " ", path.read_text(encoding="utf-8"))
    cited = re.findall(r"(?:\[(\d{4}-\d\d-\d\d)\] )?\b((?:basic|server|client)/[a-z/-]+|deprecated)((?:,? §[^§.,;:\"()\n]+(?:\([^)]*\))?)*)", source)
    assert len(cited) > 30 or path.name != "mcp_ref.py"
    for revision, page, headings in cited if path.name == "mcp_ref.py" else [one for one in cited if one[2]]:
        path = pages / (revision or versions()[0]) / (page + ".mdx")
        assert path.is_file(), page
        known = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8").replace("`", ""), re.M)
        for heading in re.findall(r"§([^§]+)", headings):
            heading = heading.strip(" ,").replace("`", "")
            assert any(heading.startswith(one) or one.startswith(heading) for one in known), (page, heading)


def shell_blocks(text: str) -> List[Tuple[str, str]]:
    """Return the commands in a text, `    $ command` and what follows it: (command, output)."""
    blocks = []
    for part in re.findall(r"^    \$ ((?:.*\\\n)*.*)\n((?:    (?!\$ ).*\n)*)", text, re.M):
        blocks.append((re.sub(r"\\\n\s*", "", part[0]), textwrap.dedent(part[1])))
    return blocks


def in_shell(command: str, cwd: Path) -> str:
    python = "%s " % sys.executable
    return subprocess.run(["sh", "-c", command.replace("python3 ", python)], cwd=str(cwd), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE * 3).stdout


EXAMPLES = sorted((HERE / "examples").glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_prints_what_it_says(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False) or ""
    blocks = shell_blocks(doc + "\n")
    assert blocks, "the docstring holds a command and its output"
    for command, output in blocks:
        assert in_shell(command, HERE) == output, command


README = (HERE / "README.md").read_text(encoding="utf-8")


def fenced(kind: str) -> List[str]:
    """Return the README's blocks of a kind."""
    return re.findall(r"^```%s\n(.*?)^```$" % kind, README, re.M | re.S)


def test_the_readme_shows_what_happens() -> None:
    assert in_shell(fenced("sh")[0].strip(), HERE) == fenced("json")[0]


def test_the_readmes_client_asks() -> None:
    assert in_shell(fenced("sh")[1].strip(), HERE) == "5\n"
    snippet, = [block for block in fenced("python") if "connect([" in block]
    done = run("-c", snippet.replace('"python3"', repr(sys.executable)), cwd=str(HERE))
    assert done.stdout.splitlines() == ["%s ['echo', 'add']" % MODERN[0], "5"]


def test_the_readmes_tool_asks(tmp_path: Path) -> None:
    """The server of the first screen, and the tool that has a Context, together."""
    hello = fenced("python")[0].replace("server.run()", "")
    deploy, = [block for block in fenced("python") if "ctx: Context" in block]
    (tmp_path / "both.py").write_text(hello + deploy + "server.run()", encoding="utf-8")
    command = [sys.executable, str(tmp_path / "both.py")]
    for sure, said in ((True, "Deployed."), (False, "Not deployed.")):
        with mcp_ref.connect(command, env={"PYTHONPATH": str(HERE)}, elicit=lambda form, sure=sure: {"sure": sure}) as one:
            assert one.call_tool("deploy", {"where": "test"})["content"][0]["text"] == said


def test_the_readmes_servers_serve(tmp_path: Path) -> None:
    hello, shout = fenced("python")[:2]
    assert len(hello.splitlines()) <= 9
    (tmp_path / "mcp_ref.py").write_bytes((HERE / "mcp_ref.py").read_bytes())
    (tmp_path / "hello.py").write_text(hello, encoding="utf-8")
    (tmp_path / "shout.py").write_text(shout, encoding="utf-8")
    done = run("hello.py", stdin=LIST, cwd=str(tmp_path))
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["add"]
    done = run("mcp_ref.py", "serve", "shout.py", stdin=LIST, cwd=str(tmp_path))
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["shout"]


def test_the_readme_knows_this_very_file() -> None:
    digest = hashlib.sha256((HERE / "mcp_ref.py").read_bytes()).hexdigest()
    assert f"\n    {digest}\n" in README, f"after a change, the README has to say {digest}"
    assert f"SHA-256 of version {mcp_ref.__version__}" in README and f"**{mcp_ref.__version__}**" in README


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 30 and [link for link in links if not (HERE / link).exists()] == []
    examples = {path.name for path in (HERE / "examples").iterdir() if path.suffix in (".py", ".md")}
    assert {name for name in examples if name not in README} == set()


def test_the_readmes_copies_can_be_made(tmp_path: Path) -> None:
    command, = [line for line in "".join(fenced("sh")).splitlines() if "cut.py" in line]
    (tmp_path / "examples").mkdir()
    (tmp_path / "hello").mkdir()
    for name in ("mcp_ref.py", "examples/cut.py"):
        (tmp_path / name).write_bytes((HERE / name).read_bytes())
    in_shell(command, tmp_path)
    (tmp_path / "hello/hello.py").write_text(fenced("python")[0], encoding="utf-8")
    done = run("hello.py", stdin=LIST, cwd=str(tmp_path / "hello"))
    assert [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]] == ["add"]
    lines = [len((tmp_path / name).read_text().splitlines()) for name in ("hello/mcp_ref.py", "mcp_ref.py")]
    assert lines[0] < lines[1] / 2


def test_the_readmes_snippets_for_embedders_run(monkeypatch: Any) -> None:
    blocks = "\n".join(block for block in fenced("python") if "\ndef " in block and "@server" not in block)
    monkeypatch.syspath_prepend(str(HERE / "examples"))
    served: List[Any] = []
    monkeypatch.setattr(mcp_ref, "serve_http", lambda *given, **options: served.append((given, options)))
    closed: List[Any] = []
    make = mcp_ref.http_server
    monkeypatch.setattr(mcp_ref, "http_server", lambda endpoint: closed.append(make(endpoint)) or closed[-1])
    names: Dict[str, Any] = {}
    exec(compile(blocks, "README", "exec"), names)      # noqa: S102
    server = make_server()
    try:
        url = names["serve_beside"](server)
        assert [tool["name"] for tool in names["tools_of"](url)][0] == "echo"
    finally:
        closed[0].close()
    names["serve_protected"](server, {"keys": []})
    (given, options), = served
    assert given == (server,) and set(options) == {"hosts", "metadata", "authorize"}
    mcp_ref.Endpoint(server, **options)


# What a row of the README's table of revisions stands for: since and until in the tables, or rows there.
READMES_ROWS = {
    "tools, resources, templates, prompts": METHODS["tools/list"], "completion": METHODS["completion/complete"],
    "... that knows the other arguments": FEATURES["completion context"],
    "progress, cancellation": NOTIFICATIONS["notifications/progress"],
    "progress that says something": FEATURES["progress messages"],
    "structured output of tools": FEATURES["structured output"],
    "... that is no object": FEATURES["any structured content"],
    "wrong arguments as a result, for the model": FEATURES["argument errors as results"],
    "audio": FEATURES["audio"], "links to resources in results": FEATURES["resource links"],
    "annotations of tools": FEATURES["tool annotations"], "titles": FEATURES["titles"], "icons": FEATURES["icons"],
    "elicitation: forms": METHODS["elicitation/create"], "elicitation: pages": FEATURES["URL elicitation"],
    "sampling, roots, log messages": METHODS["sampling/createMessage"],
    "sampling with tools": FEATURES["sampling tools"],
    "questions inside results, state that is sealed": METHODS["server/discover"],
    "caching hints, headers that repeat the body": FEATURES["header mirroring"],
    "`resources/subscribe`": METHODS["resources/subscribe"],
    "`subscriptions/listen`": METHODS["subscriptions/listen"],
    "handshake, sessions": METHODS["initialize"], "batches": FEATURES["batches"],
    "Streamable HTTP": FEATURES["version header"]._replace(since=versions()[3]),
    "... streams that can be resumed": FEATURES["streamable sessions"],
    "HTTP+SSE": FEATURES["HTTP+SSE"]._replace(until=""),
}


def test_the_readmes_table_of_revisions_is_that_of_the_module() -> None:
    table = README.partition("## What each revision has")[2].partition("\n## ")[0]
    head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")]
                      for line in table.splitlines() if line.startswith("|")]
    order = versions()
    assert head[1:] == order[::-1] and [row[0] for row in rows] == list(READMES_ROWS)
    for name, *cells in rows:
        row = READMES_ROWS[name]
        for revision, cell in zip(head[1:], cells):
            here = order.index(revision)
            has = here <= order.index(row.since) and here >= order.index(row.until or order[0])
            old = row.deprecated and here <= order.index(row.deprecated)
            assert cell == ("" if not has else "deprecated" if old else "yes"), (name, revision)


def test_the_readmes_table_of_limits_is_complete() -> None:
    source = (HERE / "mcp_ref.py").read_text(encoding="utf-8")
    constants = re.findall(r"^((?:MAX|ASK|STATE|START|BLINK|LEAVE|KEEP|SEND|CLOSE|SESSION|REPLAY|RETRY|CALL|LONGEST|PROBE|CANCEL|STREAM)_[A-Z_]+) = ", source, re.M)
    assert re.findall(r"^\| `([A-Z_]+)` \|", README, re.M) == [
        name for name in re.findall(r"^\| `([A-Z_]+)` \|", README, re.M) if name in constants]
    for name in constants:
        row = re.search(r"^\| `%s` \| (.*?) \|" % name, README, re.M)
        value = getattr(mcp_ref, name)
        assert row and (row[1].replace(",", "").startswith("%g" % value) or "16 MiB" in row[1]
                        and value == 16 * 2**20 or row[1].replace(",", "").startswith(str(value))), name


def test_the_docstring_is_true() -> None:
    """Its map names the sections that there are, and its thread table the threads."""
    source = (HERE / "mcp_ref.py").read_text(encoding="utf-8")
    titles = re.findall(r"^# ={80,}\n# (\w+)\. (.+)$", source, re.M)
    doc = mcp_ref.__doc__ or ""
    for number, title in titles:
        short = re.escape(re.split("[,:]", title.replace("[legacy] ", ""))[0].lower())
        assert re.search(r"\b%s  +(?:\[legacy\] )?%s" % (number, short), doc, re.I), title
    for name in re.findall(r'name=f?"(mcp-[a-z]+)', source):
        assert name in doc


# ------------------------------------------------------------------------------------------
# Copies: reduced ones, and what embedders do with whole ones
# ------------------------------------------------------------------------------------------

HELLO = '''
from mcp_ref import Server
server = Server("hello")

@server.tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

server.run()
'''


@pytest.fixture
def reduced(tmp_path: Path) -> Any:
    """Make copies without some parts, beside a program: copy("http", ...) is a folder."""
    def copy(*parts: str) -> Path:
        folder = tmp_path / ("without-" + "-".join(parts))
        folder.mkdir()
        done = subprocess.run([sys.executable, str(HERE / "examples/cut.py"), *parts],
                              capture_output=True, check=True, timeout=PATIENCE)
        (folder / "mcp_ref.py").write_bytes(done.stdout)
        (folder / "hello.py").write_text(HELLO)
        lines = len(done.stdout.splitlines())
        assert lines < len((HERE / "mcp_ref.py").read_text().splitlines())
        return folder
    return copy


def run_copy(folder: Path, program: str, *words: str) -> str:
    """Run a program beside a copy, with warnings as errors; return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, *words], cwd=str(folder),
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def undefined_names(source: str) -> Set[str]:
    """Return the global names that a module uses and does not have."""
    import builtins
    import symtable
    tree = ast.parse(source)
    for node in ast.walk(tree):             # annotations are not evaluated, but 3.9 lists their names
        if isinstance(node, (ast.arg, ast.FunctionDef)):
            setattr(node, "annotation" if isinstance(node, ast.arg) else "returns", None)
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    top = symtable.symtable(ast.unparse(tree), "copy", "exec")
    known = {*dir(builtins), "__file__", "__name__", "__doc__",
             *(one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()
               or one.is_namespace())}
    missing: Set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        missing |= {one.get_name() for one in table.get_symbols()
                    if one.is_global() and one.is_referenced()} - known
    return missing


REDUCED = [("http", "client"), ("client",), ("server",), ("legacy",), ("legacy", "http", "client"),
           ("legacy", "server"), ("cli",), ("http",), ("legacy", "client")]


@pytest.mark.parametrize("parts", REDUCED, ids="-".join)
def test_a_reduced_copy_uses_nothing_that_was_cut(reduced, parts):
    folder = reduced(*parts)
    source = (folder / "mcp_ref.py").read_text()
    assert undefined_names(source) == set()
    assert not re.search(r"(?m)^ *# (>8|8<)", source) and "A copy without: " in source[:300]
    assert "SPDX-License-Identifier: MIT" in source[:300]
    assert run_copy(folder, "from mcp_ref import *; import mcp_ref; print(len(mcp_ref.__all__))")


@pytest.mark.parametrize("parts", [("http", "client"), ("legacy", "http", "client")], ids="-".join)
def test_a_copy_that_serves_on_stdio_only(reduced, parts):
    folder = reduced(*parts)
    for revision in MODERN if "legacy" in parts else versions():
        with mcp_ref.connect([sys.executable, "-W", "error", str(folder / "hello.py")],
                             revision=revision, timeout=PATIENCE) as client:
            assert client.call_tool("add", {"a": 2, "b": 3})["structuredContent" if revision not in (
                versions()[-1], versions()[-2]) else "content"]


@pytest.mark.parametrize("parts", [("client",), ("legacy", "client")], ids="-".join)
def test_a_copy_that_serves_only(reduced, parts):
    folder = reduced(*parts)
    server = subprocess.Popen([sys.executable, "-W", "error", "hello.py", "--http", "0"], text=True,
                              cwd=str(folder), stderr=subprocess.PIPE)
    try:
        url = re.search(r"http://\S+", server.stderr.readline())[0]
        for revision in MODERN if "legacy" in parts else versions():
            where = url.replace("/mcp", "/sse") if revision == versions()[-1] else url
            with mcp_ref.connect(where, revision=revision, timeout=PATIENCE) as client:
                assert [tool["name"] for tool in client.list_tools()] == ["add"]
    finally:
        server.terminate()
        server.communicate()


ASK = '''
import sys
from mcp_ref import connect
target = sys.argv[1:] if len(sys.argv) > 2 else sys.argv[1]
with connect(target) as client:
    print(client.version, client.call_tool("add", {"a": 2, "b": 3})["content"][0]["text"])
'''


@pytest.mark.parametrize("parts", [("server",), ("legacy", "server")], ids="-".join)
def test_a_copy_that_is_a_client_only(reduced, parts, tmp_path):
    folder = reduced(*parts)
    (tmp_path / "hello.py").write_text(HELLO.replace("from mcp_ref", f"import sys; sys.path.insert(0, "
                                                     f"{str(HERE)!r})\nfrom mcp_ref"))
    assert run_copy(folder, ASK, sys.executable, str(tmp_path / "hello.py")) == MODERN[0] + " 5"
    server = make_server()
    httpd = mcp_ref.http_server(mcp_ref.Endpoint(server))
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        assert run_copy(folder, ASK, f"http://127.0.0.1:{httpd.server_port}/mcp") == MODERN[0] + " 5"
    finally:
        httpd.close()
        thread.join(PATIENCE)


def test_modern_only_says_so_to_legacy_peers(reduced):
    folder = reduced("legacy")
    says = run_copy(folder, '''
from mcp_ref import Server, connect, versions
server, said = Server("modern"), []
server.handle({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}},
    said.append)
server.handle([{"jsonrpc": "2.0", "id": 2, "method": "ping"}], said.append)
print(versions(), [one["error"]["code"] for one in said])
with connect(server) as client:
    print(client.version)
try:
    connect(["cat"], timeout=5, probe=0.2)
except Exception as problem:
    print(type(problem).__name__, problem)
''')
    first, second, third = says.splitlines()
    assert first == f"{MODERN} [-32602, -32600]" and second == MODERN[0]
    assert third.startswith(f"Disconnected the server does not speak {MODERN[0]}: no answer")


# ------------------------------------------------------------------------------------------
# Inside other programs
# ------------------------------------------------------------------------------------------

def ask_for_sum(*command: str, cwd: Any = None, **env: str) -> Any:
    """Start a server, and let it add; its standard error has to stay empty."""
    said: List[str] = []
    with mcp_ref.connect(command, timeout=PATIENCE, cwd=str(cwd) if cwd else None, env=env,
                         stderr=said.append) as client:
        answer = client.call_tool("add", {"a": 2, "b": 3})["structuredContent"]["result"]
    assert said == []
    return answer


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """Make a folder with a whole copy of the module, and a program beside it."""
    (tmp_path / "mcp_ref.py").write_bytes((HERE / "mcp_ref.py").read_bytes())
    (tmp_path / "hello.py").write_text(HELLO)
    return tmp_path


@pytest.mark.parametrize("flags", [
    (), ("-O",), ("-OO",), ("-W", "error"), ("-X", "utf8=0"), ("-X", "utf8=1"), ("-X", "dev"),
    ("-E", "-s", "-S"), ("-u",), ("-B",)], ids=" ".join)
def test_it_runs_with_any_flags(hello, flags):
    assert ask_for_sum(sys.executable, *flags, str(hello / "hello.py"), LC_ALL="C", LANG="C",
                       PYTHONCOERCECLOCALE="0") == 5


def test_it_runs_inside_a_package(tmp_path):
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mcp_ref.py").write_bytes((HERE / "mcp_ref.py").read_bytes())
    (package / "tools.py").write_text(HELLO.replace("from mcp_ref", "from .mcp_ref") + "# bytes")
    assert ask_for_sum(sys.executable, "-W", "error", "-m", "theirs.tools", cwd=tmp_path) == 5
    (package / "tools.py").write_text(HELLO.replace("from mcp_ref import Server",
                                                    "from . import mcp_ref").replace(
                                                        " Server(", " mcp_ref.Server("))
    assert ask_for_sum(sys.executable, "-W", "error", "-m", "theirs.tools", cwd=tmp_path) == 5


def test_it_runs_from_a_zip_file(hello, tmp_path):
    import zipfile
    place = tmp_path / "hello.pyz"
    with zipfile.ZipFile(place, "w") as archive:
        archive.write(hello / "mcp_ref.py", "mcp_ref.py")
        archive.writestr("__main__.py", HELLO)
    assert ask_for_sum(sys.executable, "-W", "error", str(place)) == 5


def test_it_needs_no_file(tmp_path):
    """Some hosts run sources out of a database: there is no `__file__`."""
    program = f'''
import pathlib, sys, types
module = sys.modules["mcp_ref"] = types.ModuleType("mcp_ref")
exec(compile(pathlib.Path({str(HERE / "mcp_ref.py")!r}).read_text("utf-8"), "<mcp_ref>", "exec"),
     module.__dict__)
assert "__file__" not in vars(module)
{HELLO}'''
    assert ask_for_sum(sys.executable, "-W", "error", "-c", program) == 5


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the descriptors")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_bears_streams_that_are_closed(hello, closed):
    """On stdio there is nothing to do then; it leaves at once, and without a traceback."""
    done = subprocess.run(["sh", "-c", f"exec {sys.executable} -W error hello.py {closed}"],
                          cwd=str(hello), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the descriptors")
def test_it_serves_http_without_standard_streams(hello):
    """As under pythonw, or as a service: sys.stdin, stdout and stderr are None."""
    (hello / "daemon.py").write_text(HELLO.replace("server.run()", '''
import sys, threading
from mcp_ref import Endpoint, connect, http_server
assert sys.stdin is None and sys.stdout is None and sys.stderr is None
httpd = http_server(Endpoint(server))
threading.Thread(target=httpd.serve_forever, daemon=True).start()

@server.tool
def fail() -> None:
    "Fail: the traceback has nowhere to go."
    raise RuntimeError("ouch")

with connect(f"http://127.0.0.1:{httpd.server_port}/mcp") as client:
    result = client.call_tool("add", {"a": 2, "b": 3})["structuredContent"]["result"]
    failed = client.call_tool("fail")["isError"]
httpd.close()
open("result", "w").write(f"{result} {failed}")
'''))
    subprocess.run(["sh", "-c", f"exec {sys.executable} -W error daemon.py <&- >&- 2>&-"],
                   cwd=str(hello), timeout=PATIENCE, check=True)
    assert (hello / "result").read_text() == "5 True"


def test_two_servers_in_one_process_share_nothing():
    one, two = Server("one"), Server("two")

    @one.tool(name="shared")
    def first() -> str:
        return "first"

    @two.tool(name="shared")
    def second() -> str:
        return "second"

    @two.method("example.org/only", mirrored="x")
    def only(params: Dict[str, Any]) -> Dict[str, Any]:
        return {}
    with mcp_ref.connect(one) as a, mcp_ref.connect(two) as b:
        assert a.call_tool("shared")["content"][0]["text"] == "first"
        assert b.call_tool("shared")["content"][0]["text"] == "second"
        assert b.request("example.org/only") and one.mirrored == {}
        a.result_types["odd"] = lambda method, result, tag: {}
        assert b.result_types == {} and a.server_info["name"] == "one"
        with pytest.raises(RpcError, match="Method not found"):
            a.request("example.org/only")


def test_two_copies_in_one_process_share_nothing(hello):
    """Two programs in one interpreter may each bring their own copy."""
    found = importlib.util.spec_from_file_location("mcp_ref_2", str(hello / "mcp_ref.py"))
    other = importlib.util.module_from_spec(found)
    sys.modules["mcp_ref_2"] = other
    try:
        found.loader.exec_module(other)
        assert other.Server is not Server and other.METHODS == METHODS
        server = other.Server("other")
        server.tool(lambda: "yes", name="ask")
        with other.connect(server) as client:
            assert client.call_tool("ask")["content"][0]["text"] == "yes"
    finally:
        del sys.modules["mcp_ref_2"]


@pytest.mark.parametrize("name", ["11_socket", "12_cgi", "13_lambda"])
def test_importing_a_recipe_starts_nothing(name):
    before = threading.active_count()
    load_example(HERE / "examples" / f"{name}.py")
    assert threading.active_count() == before


def load_example(path: Path) -> Any:
    """Import a program from examples/."""
    sys.path.insert(0, str(path.parent))
    try:
        found = importlib.util.spec_from_file_location(path.stem.strip("_0123456789"), str(path))
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def test_a_server_on_a_socket_serves_many_and_each_era():
    """examples/11_socket.py: a client of each revision at once, over TCP, by a transport of its own."""
    recipe = load_example(HERE / "examples/11_socket.py")

    class Wire(mcp_ref.Transport):
        """Lines over a socket: what a custom transport has to do."""

        def __init__(self, place: Any) -> None:
            self.place, self.connection = place, None

        def start(self) -> None:
            self.connection = socket.create_connection(self.place)
            threading.Thread(target=self.read, args=(self.connection.makefile("rb"),),
                             name="mcp-read", daemon=True).start()

        def stop(self) -> None:
            if self.connection is not None:
                mcp_ref._shut(self.connection, 2)
                self.connection.close()

        def is_up(self) -> bool:
            return self.connection is not None

        def send(self, message: Any, request: Any = None, timeout: float = 1) -> None:
            if request is not None:
                request.sent = True
            self.connection.sendall(mcp_ref.encode(message))

        def read(self, lines: Any) -> None:
            with lines:
                for line in iter(lines.readline, b""):
                    self.client.receive(mcp_ref.decode(line))
            self.client.lost(mcp_ref.Disconnected("the server hung up"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=recipe.serve, args=(listener,), daemon=True)
        thread.start()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(mcp_ref.connect(
                Wire(listener.getsockname()), revision=revision, timeout=PATIENCE))
                for revision in versions()]
            for client, revision in zip(clients, versions()):
                assert client.version == revision
                assert client.call_tool("greet", {"name": revision})["content"][0]["text"] \
                    == f"Hello, {revision}!"
        mcp_ref._shut(listener, 2)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_cgi_process_can_go_on_with_what_another_has_asked(tmp_path):
    """examples/12_cgi.py with a question: the second process takes over, since the key is the same."""
    program = (HERE / "examples/12_cgi.py").read_text().replace('''@server.tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"
''', '''from mcp_ref import Context


@server.tool
def greet(ctx: Context) -> str:
    """Say hello."""
    return "Hello, " + ctx.elicit("Who?", name=str)["content"]["name"]
''').replace('sys.path.insert(0, sys.path[0] + "/..")',
             f"sys.path[:0] = [{str(HERE)!r}, {str(HERE / 'examples')!r}]")
    (tmp_path / "ask.py").write_text(program)

    def post(params: Dict[str, Any]) -> Any:
        message = modern("tools/call", capabilities={"elicitation": {}}, name="greet", **params)
        body = json.dumps(message).encode()
        done = subprocess.run(
            [sys.executable, "-W", "error", str(tmp_path / "ask.py")], input=body, timeout=PATIENCE,
            stdout=subprocess.PIPE, check=True, env={
                "PATH": os.environ["PATH"], "MCP_STATE_KEY": "sesame", "REQUEST_METHOD": "POST",
                "GATEWAY_INTERFACE": "CGI/1.1", "SCRIPT_NAME": "/mcp", "HTTP_HOST": "127.0.0.1",
                "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)),
                **{"HTTP_" + name.upper().replace("-", "_"): value
                   for name, value in mirrors(message).items()}})
        return json.loads(done.stdout.partition(b"\r\n\r\n")[2])["result"]
    asked = post({})
    key = next(iter(asked["inputRequests"]))
    answered = post({"requestState": asked["requestState"], "inputResponses": {
        key: {"action": "accept", "content": {"name": "Ada"}}}})
    assert answered["content"][0]["text"] == "Hello, Ada"


# ------------------------------------------------------------------------------------------
# Changing the module: what the README's page for contributors says, done
# ------------------------------------------------------------------------------------------

@pytest.fixture
def edited(tmp_path: Path) -> Any:
    """Make a copy of the module with some lines changed, and import it: edited({old: new, ...})."""
    made: List[str] = []

    def edit(changes: Dict[str, str]) -> Any:
        source = (HERE / "mcp_ref.py").read_text(encoding="utf-8")
        for old, new in changes.items():
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        name = f"mcp_ref_edited_{len(made)}"
        place = tmp_path / f"{name}.py"
        place.write_text(source, encoding="utf-8")
        found = importlib.util.spec_from_file_location(name, str(place))
        module = sys.modules[name] = importlib.util.module_from_spec(found)
        made.append(name)
        found.loader.exec_module(module)
        return module
    yield edit
    for name in made:
        del sys.modules[name]


FUTURE = "2099-01-01"
TO_ADD_A_REVISION = {
    '    Revision("2026-07-28", "modern"),\n':
        f'    Revision("{FUTURE}", "modern"),\n    Revision("2026-07-28", "modern"),\n',
    "R5, R4, R3, R2, R1 = REVISIONS": "R6, R5, R4, R3, R2, R1 = REVISIONS",
    # a method that it brings, and one that it drops
    '    Method("tools/list", ': '    Method("tools/count", ">", R6, "", "", no, no, "", "tools"),\n'
                                 '    Method("tools/list", ',
    '"completion/complete":      "ref:dict argument:dict context:dict?",\n':
        '"completion/complete":      "ref:dict argument:dict context:dict?",\n'
        '    "tools/count":              "least:int",\n',
    '_KINDS = {"str": (str, "a string"), ': '_KINDS = {"int": (int, "an integer"), '
                                           '"str": (str, "a string"), ',
    'Method("completion/complete",      ">",  R1, "", ': 'Method("completion/complete", ">",  R1, R5, ',
    '        "completion/complete": _complete,\n':
        '        "completion/complete": _complete,\n        "tools/count": lambda self, ctx: '
        '{"count": max(len(self.tools), ctx.params["least"])},\n',
    # a member that it drops, and an error that it brings
    'Feature("icons",                       R4, "", ': 'Feature("icons", R4, R5, ',
    "ERRORS = {row.code: row for row in (\n":
        'ERRORS = {row.code: row for row in (\n    Error(-32023, "TooMany", R6, "", 429, 429, "later"),\n',
    "(PARSE_ERROR, INVALID_REQUEST, ": "(TOO_MANY, PARSE_ERROR, INVALID_REQUEST, ",
}


def make_future_server(module: Any) -> Any:
    server = module.Server("future")

    @server.tool(icons=[{"src": "https://example.org/i.png"}])
    def greet(name: str) -> str:
        if name == "crowd":
            raise module.RpcError(-32023, "too many")
        return f"Hello, {name}!"

    @server.prompt
    def ask(about: str) -> str:
        return about

    @server.completion("ask", "about")
    def about(typed: str) -> List[str]:
        return ["life"]
    return server


@contextlib.contextmanager
def served(module: Any, server: Any) -> Any:
    """Serve over HTTP on a free port."""
    httpd = module.http_server(module.Endpoint(server))
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/mcp"
    finally:
        httpd.close()
        thread.join(PATIENCE)


@pytest.mark.parametrize("over", ["memory", "http"])
def test_a_revision_is_added_by_rows(edited, over):
    """Both roles negotiate a revision that only the tables know, and obey it."""
    future = edited(TO_ADD_A_REVISION)
    server = make_future_server(future)
    with served(future, server) as url:
        with future.connect(url if over == "http" else server, timeout=PATIENCE) as client:
            assert client.version == FUTURE
            assert client.request("tools/count", {"least": 3}) ["count"] == 3
            assert "icons" not in client.list_tools()[0]
            with pytest.raises(future.RpcError, match="tools/count needs least, an integer"):
                client.request("tools/count", {"least": "x"})
            with pytest.raises(future.RpcError, match="Method not found"):
                client.request("completion/complete", {
                    "ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "about", "value": ""}})
            with pytest.raises(future.RpcError, match="too many") as caught:
                client.call_tool("greet", {"name": "crowd"})
            assert caught.value.code == -32023
        with future.connect(url if over == "http" else server, revision=MODERN[0]) as client:
            assert client.version == MODERN[0] and "icons" in client.list_tools()[0]
            assert client.complete("ask", "about", "") == ["life"]
            with pytest.raises(future.RpcError, match="Method not found"):
                client.request("tools/count", {"least": 3})
            with pytest.raises(future.RpcError, match="too many") as caught:
                client.call_tool("greet", {"name": "crowd"})
            assert caught.value.code == -32603      # a reserved code that this revision lacks


def test_a_new_revision_meets_the_old_ones(edited):
    future = edited(TO_ADD_A_REVISION)
    with served(future, make_future_server(future)) as url:
        for revision in versions():
            with mcp_ref.connect(url if revision != versions()[-1] else url.replace("/mcp", "/sse"),
                                 revision=revision, timeout=PATIENCE) as client:
                assert client.version == revision and client.list_tools()
        with mcp_ref.connect(url, timeout=PATIENCE) as client:
            assert client.version == MODERN[0]
    with served(mcp_ref, make_server()) as url, future.connect(url, timeout=PATIENCE) as client:
        assert client.version == MODERN[0] and client.list_tools()


def test_a_method_is_added_by_a_row_and_a_function(edited):
    grown = edited({
        '    Method("tools/list", ': '    Method("example/echo", ">", R5, "", "", yes, yes, "what", ""),\n'
                                     '    Method("tools/list", ',
        '    "initialize":               "protocolVersion:str capabilities:dict clientInfo:dict",\n':
            '    "initialize":               "protocolVersion:str capabilities:dict clientInfo:dict",\n'
            '    "example/echo": "what:str",\n',
        '        "completion/complete": _complete,\n':
            '        "completion/complete": _complete,\n        "example/echo": lambda self, ctx: '
            '{"said": ctx.elicit("Who?", who=str)["content"]["who"] + ctx.params["what"]},\n'})
    with served(grown, grown.Server("grown", ttl_ms=5000)) as url:
        sent: List[Any] = []
        with grown.connect(url, timeout=PATIENCE, elicit=lambda form: {"who": "you: "},
                           trace=lambda way, message: sent.append(message)) as client:
            result = client.request("example/echo", {"what": "hey"})    # Mcp-Name has to be right
            assert result["said"] == "you: hey" and result["ttlMs"] == 5000
    assert "example/echo" not in grown.rules(LEGACY[0]).methods


def test_a_keyword_is_added_by_a_row(edited):
    grown = edited({
        '    "multipleOf":       ("number", ': '    "even": ("number", lambda v, k: v % 2 == 0 or not k, '
                                               '"must be even"),\n    "multipleOf":       ("number", ',
        '"boolean": "uniqueItems"': '"boolean": "uniqueItems even"'})
    schema = grown.Schema({"properties": {"n": {"type": "integer", "even": True}}})
    assert schema.flaw({"n": 2}) is None
    assert schema.flaw({"n": 3}) == "/n: must be even"
    with pytest.raises(ValueError, match="even"):
        grown.Schema({"even": "very"})
    assert Schema({"even": "very"}).flaw(3) is None     # unknown keywords are notes


def test_a_notification_is_added_by_a_row(edited):
    grown = edited({
        '    Notification("message", ': '    Notification("prompts/used", "<", R5, "", "", "prompts", '
                                        '"promptsUsed"),\n    Notification("message", '})
    server = make_future_server(grown)
    assert "notifications/prompts/used" in grown.rules(MODERN[0]).notifications
    assert "notifications/prompts/used" not in grown.rules(LEGACY[0]).notifications
    heard: Any = queue.Queue()
    with grown.connect(server, timeout=PATIENCE, on_notification=heard.put) as client, \
            client.listen([], lambda change: None, filters={"promptsUsed": True}) as subscription:
        assert subscription.filter == {"promptsUsed": True}
        server.tell("promptsUsed", None, "notifications/prompts/used", {"name": "ask"})
        message = heard.get(timeout=PATIENCE)
        while message["method"] != "notifications/prompts/used":
            message = heard.get(timeout=PATIENCE)
        assert message["params"]["name"] == "ask"


# ------------------------------------------------------------------------------------------
# The transcripts, which are true, and the exercises, which are checked
# ------------------------------------------------------------------------------------------

TRANSCRIPTS = HERE / "examples" / "transcripts"
LESSONS = sorted(TRANSCRIPTS.glob("[0-9]*.md"))


def lesson_on(subject: str) -> Path:
    """Return a lesson, whatever its number is."""
    path, = TRANSCRIPTS.glob("[0-9][0-9]_%s.md" % subject)
    return path


def load_program(name: str) -> Any:
    """Import one of the programs that stand beside the transcripts."""
    spec: Any = importlib.util.spec_from_file_location(name, TRANSCRIPTS / (name + ".py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


replay, rewrite, exercises = (load_program(name) for name in ("replay", "rewrite", "check"))


class Carried:
    """Carries a transcript to a library, in memory or over a real pipe."""

    def __init__(self, line: Any) -> None:
        self.line = line
        self.ended: Any = None                  # what still came, when the transcript closed the pipe

    def send(self, said: str, _: str) -> None:
        if said == replay.CLOSES:
            self.ended = [*map(self.said, self.line.close()), replay.EXITS]
        else:
            self.line.send(said.encode())

    def receive(self, _: str) -> str:
        try:
            return self.said(self.line.receive()) if self.ended is None else self.ended.pop(0)
        except queue.Empty:
            return str(replay.NOTHING)

    def said(self, message: Any) -> str:
        return mcp_ref.encode(message).decode().rstrip()

    def close(self) -> List[str]:
        return self.ended if self.ended is not None else list(map(self.said, self.line.close()))


def holds(steps: Any, carrier: Any, checks: Any = lambda *_: None) -> List[str]:
    """Hold a conversation under the eyes of a Wire; return what went another way."""
    wire = Wire()

    def tell(step: Any, said: str, problem: str) -> None:
        said = said[6:] if said.startswith("data: ") else said
        message = json.loads(said) if is_json(said) else None
        if not isinstance(message, (dict, list)):
            return
        one = message if isinstance(message, dict) else {}
        if step.way == ">":
            if '"%s"' % mcp_ref.META_VERSION in said:
                wire.version = MODERN[0]
            wire.sent(message)
            checks(wire, message)
        else:
            wire.received(message)
            result = one.get("result", {})
            wire.version = result.get("protocolVersion", wire.version)
    found: List[str] = replay.hold(steps, carrier, tell)
    return found


def is_good(wire: Any, message: Any) -> None:
    """Check a message of a client against the official schema of its revision."""
    method = message.get("method") if isinstance(message, dict) else None
    if method in ("initialize", "notifications/initialized") or wire.version in LEGACY + MODERN and method:
        version = message["params"]["protocolVersion"] if method == "initialize" else wire.version
        assert method in mcp_ref.METHODS or method in mcp_ref.NOTIFICATIONS, method
        flaw = official(os.environ["MCP_SPEC"], version if version in LEGACY else wire.version or LEGACY[0],
                        "ClientRequest" if "id" in message else "ClientNotification").flaw(message)
        assert flaw is None, (message, flaw)


@pytest.mark.parametrize("path, where", [
    (path, where) for path in LESSONS for where in (
        ["http"] if " HTTP/1.1\n" in path.read_text(encoding="utf-8")
        else ["memory", "pipe"])], ids=lambda value: getattr(value, "stem", value))
def test_a_transcript_is_true(path: Path, where: str) -> None:
    """What it says comes, to the letter, and nothing else."""
    lesson = replay.read(path)
    assert lesson.conversations
    # What clients send in the lessons on errors and mistakes is wrong by intention.
    wrong = "mistake" in path.name or path in map(lesson_on, (
        "parse_error", "invalid_request", "method_not_found", "invalid_params", "http_status"))
    checks = is_good if "MCP_SPEC" in os.environ and not wrong else lambda *_: None
    for steps in lesson.conversations:
        assert replay.is_http(steps) == (where == "http")
        carrier = replay.Http() if where == "http" else Carried(
            {"memory": Memory, "pipe": RealPipe}[where](replay.new_library()))
        assert holds(steps, carrier, checks) == []


def test_a_transcript_that_is_not_true_is_found_out() -> None:
    """A line that differs, one that does not come, one too many; on a pipe, in an answer, on a stream."""
    def steps(subject: str) -> Any:
        return replay.read(lesson_on(subject)).conversations[0]

    def problems(steps: Any) -> Any:
        carrier = replay.Http() if replay.is_http(steps) else Carried(RealPipe(replay.new_library()))
        return replay.hold(steps, carrier, lambda *_: None)
    first = steps("discover")
    other = first[-1]._replace(said=first[-1].said.replace("Search", "search"))
    assert "there came: " in problems([*first[:-1], other])[0]
    assert "the transcript ends" in problems(first[:-1])[0]
    cancelled = steps("cancel")
    assert "the transcript ends" in problems(cancelled[:-1])[0]     # the last response
    assert problems([*cancelled[:2], cancelled[4]]) == []
    posted = steps("http_post")
    assert "Not Found" in problems([posted[0]._replace(said="POST / HTTP/1.1"), *posted[1:]])[0]
    assert '"id":1' in problems(posted[:-1])[0]                     # a body that nobody reads
    listening = steps("http_listen")
    assert "list_changed" in problems([*listening[:-3], listening[-1]])[0]      # an event, likewise
    assert "list_changed" in problems(listening[:-3])[0]
    known: Dict[str, str] = {}
    assert replay.is_as_written("<a> <b> <a>", "1 2 1", known) and known == {"a": "1", "b": "2"}
    assert not replay.is_as_written("<a>", "2", known) and replay.is_as_written("<length>", "2", known)
    assert replay.is_as_written("<length>", "3", known) and replay.fill("<a><c>", known) == "1<c>"


def test_every_error_and_every_handshake_is_in_a_transcript() -> None:
    assert LESSONS
    codes, opened = set(), set()
    for path in LESSONS:
        for steps in replay.read(path).conversations:
            said = [step.said for step in steps if step.way == "<"]
            codes.update(int(code) for line in said for code in re.findall(r'"error":\{"code":(-\d+)', line))
            opened.update((path.name, version) for line in said[:1] for version in
                          re.findall(r'"result":\{"protocolVersion":"([^"]+)"', line)
                          if steps[2:] and steps[2].said.endswith('"notifications/initialized"}'))
    assert codes == set(mcp_ref.ERRORS)
    for version in LEGACY:
        assert [name for name, one in opened if one == version and name.endswith(f"handshake_{version}.md")]
    for method in (*mcp_ref.METHODS, *mcp_ref.NOTIFICATIONS):
        assert any(f'"method":"{method}"' in path.read_text(encoding="utf-8") for path in LESSONS) \
            or method in UNSEEN, method


# Each is like another one that is there.
UNSEEN = ["notifications/prompts/list_changed", "notifications/resources/list_changed"]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_transcript_is_a_lesson(path: Path) -> None:
    """It has a number, a title, a page of the specification, a question, and the answer among its lines."""
    lesson = replay.read(path)
    assert lesson.title.startswith("%d. " % int(path.name[:2]))
    assert re.search(r"^\*Specification: ", lesson.source, re.M)
    assert lesson.question.endswith("?") and lesson.answer.count("\n") >= 1
    assert lesson.source.index("**Question**") > lesson.source.rindex("```mcp")
    lines = "\n" + "".join(re.findall(r"^```mcp\n(.*?)^```$", lesson.source, re.M | re.S))
    assert lines.count("\n" + lesson.answer) == 1, "the answer is a line, and only one"
    prose = re.sub(r"^```.*?^```$", "", lesson.source, flags=re.M | re.S)
    assert max(len(line) for line in prose.splitlines() if line[:1] != "|") <= 100


def test_the_index_lists_the_transcripts() -> None:
    index = (TRANSCRIPTS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\[(\d+\. .*?)\]\((.*?)\)", index) == [
        (replay.read(path).title, path.name) for path in LESSONS]
    numbers = [int(path.name[:2]) for path in LESSONS]
    assert numbers == list(range(1, len(LESSONS) + 1))


@pytest.mark.skipif("MCP_SPEC" not in os.environ, reason="needs MCP_SPEC, a checkout of the specification")
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_headings_that_a_transcript_cites_exist(path: Path) -> None:
    pages = Path(os.environ["MCP_SPEC"], "docs", "specification")
    cited = re.search(r"^\*Specification: (.*?)\*$", path.read_text(encoding="utf-8"), re.M | re.S)
    assert cited
    for part in re.split(r";\s+", " ".join(cited[1].split())):
        found = re.fullmatch(r"(?:\[(\d{4}-\d\d-\d\d)\] )?([a-z/-]+)((?:,? §[^§]+)*)", part)
        assert found, part
        page = pages / (found[1] or mcp_ref.versions()[0]) / (found[2] + ".mdx")
        assert page.is_file(), page
        known = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8").replace("`", ""), re.M)
        for heading in re.findall(r"§([^§]+)", found[3]):
            assert heading.strip(" ,") in known, (page, heading)


def test_the_programs_of_the_transcripts_do_what_they_say(tmp_path: Path) -> None:
    for name in ("server", "replay", "rewrite", "check"):
        source = (TRANSCRIPTS / (name + ".py")).read_text(encoding="utf-8")
        blocks = shell_blocks(source.split('"""')[1])
        assert blocks
        for command, output in blocks:
            assert in_shell(command, HERE) == output, command
    done = run(str(TRANSCRIPTS / "replay.py"), "--stderr", *(
        str(lesson_on(subject)) for subject in ("goodbye", "mistake_print")))
    assert done.returncode == 0 and done.stdout.count("thinking about books") == 1 and "(exits)" in done.stdout
    printed, copy = lesson_on("mistake_print").read_text(encoding="utf-8"), tmp_path / "print.md"
    copy.write_text(printed.replace("Emma", "Dune"), encoding="utf-8")
    done = run(str(TRANSCRIPTS / "replay.py"), str(copy))
    assert done.returncode == 1 and re.search(r"\n! line \d+ says: ", done.stdout) and "Read Emma" in done.stdout
    copy.write_text(re.sub(r"^< .*?(?=```)", "", printed, flags=re.M | re.S), encoding="utf-8")
    done = run(str(TRANSCRIPTS / "replay.py"), str(copy))
    assert done.returncode == 1 and done.stdout.count("\n! the transcript says nothing of it") == 1


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_transcript_is_laid_out_as_it_would_be_rewritten(path: Path) -> None:
    lesson = replay.read(path)
    lines = lesson.source.splitlines()
    for steps in lesson.conversations:
        for step in steps:
            wanted = rewrite.laid_out(step.said, f"{step.connection}{step.way} ")
            assert lines[step.number - 1:][:len(wanted)] == wanted


def test_a_transcript_is_rewritten(tmp_path: Path, capsys: Any) -> None:
    """What differs is replaced by what comes, on as many lines as that takes, and nothing else."""
    whole = lesson_on("a_tool_fails").read_text(encoding="utf-8")
    old = whole.replace('"Ulysses is lent out. Take another book."}],\n      "isError":true,', '"No."}]},')
    old = old.replace('"Emma is yours for two weeks."', '"Here you are, and bring it back when you have read it."')
    (tmp_path / "4.md").write_text(old, encoding="utf-8")
    rewrite.main([str(tmp_path / "4.md")])
    assert (tmp_path / "4.md").read_text(encoding="utf-8") == whole != old
    state = lesson_on("ask_the_user").read_text(encoding="utf-8").replace("Who are you", "Who is it")   # in it is a <name>
    (tmp_path / "15.md").write_text(state, encoding="utf-8")
    rewrite.main([str(tmp_path / "15.md")])
    assert (tmp_path / "15.md").read_text(encoding="utf-8") == state
    assert re.fullmatch("4.md: lines written anew: 2\n15.md: mend line \\d+ by hand.*\n", capsys.readouterr().out)


EXERCISE_TEXTS = re.split(r"^## \d+\. ", (TRANSCRIPTS.parent / "exercises.md").read_text(encoding="utf-8"),
                          flags=re.M)


def test_the_exercises_can_be_done() -> None:
    """Each has a command, and a solution that it takes for right."""
    assert len(EXERCISE_TEXTS) == len(exercises.EXERCISES) + 1
    command, said = re.findall(r"^```\w+\n(.*?)```$", EXERCISE_TEXTS[0], re.M | re.S)
    assert in_shell(command, HERE) == said
    for number, text in enumerate(EXERCISE_TEXTS[1:], 1):
        assert f"check.py {number} " in text
        solution = re.search(r"<summary>Solution</summary>\n\n```\w+\n(.*?)```", text, re.S)
        assert solution and exercises.hint_for(number, solution[1]) == "right", number
        assert (exercises.EXERCISES[number - 1].__doc__ or "").startswith(f"{number}: ")


WRONG_ANSWERS = [       # exercise, what to replace in its solution, by what, and words of the hint
    (1, '"', "'", "double quotes"), (1, '"tools/list"}', '"tools/list",}', "no comma before"),
    (1, '"id": 2', '"id": None', "small letters"), (1, "}", "", "pair up"), (1, "}", "} // done", "no comments"),
    (1, "{", "", "pair up"), (1, '"id": 2', '"id": 2x', "no JSON"), (1, '"id"', '\n"id"', "one line"),
    (1, '{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}', "[]", "not an array"),
    (1, '{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}', "3", "an object"),
    (1, '"jsonrpc": "2.0", ', "", '"jsonrpc" is missing'), (1, '"2.0"', "2.0", "the string"),
    (1, '"2.0"', '"2025-11-25"', "whatever the revision"), (1, '"id": 2, ', "", "nobody answers"),
    (1, '"id": 2', '"id": 1', "initialize had the id 1"),
    (1, '"id": 2', '"id": null', "never null"), (1, '"method"', '"result"', "this is a response"),
    (1, '"method": "tools/list"', '"params": {}', '"method" is missing'),
    (1, "tools/list", "tools/lists", "did you mean tools/list?"), (1, "tools/list", "zzz", "no method zzz"),
    (1, "tools/list", "prompts/list", "something else"), (1, '"}', '", "params": []}', "params have to be an object"),
    (1, '"}', '", "params": {"cursor": "x"}}', "the library answers: Invalid params: the cursor"),
    (1, '"}', '", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}}', "handshake"),
    (2, '"id": 2', '"id": 3', "not that of the request"), (2, '"id": 2', '"id": "2"', "another id"),
    (2, '"id": 2, ', "", "has the id of its request"), (2, '"id": 2', '"id": 2, "method": "tools/list"', "no method"),
    (2, '{"tools": [', "[", "pair up"), (2, '"result"', '"error": {}, "result"', "never both"),
    (2, '"result"', '"results"', "neither"), (2, '"result"', '"error"', "with a result"),
    (2, '{"tools": [{', '{"tool": [{', "has tools, an array"), (2, '[{"name"', '{"name"', "pair up"),
    (2, '"tools": [', '"tools": [{}, ', "there is one tool, not 2"),
    (2, "inputSchema", "input_schema", "capital S"), (2, "inputSchema", "parameters", "capital S"),
    (2, "inputSchema", "in", "the tool is not complete: /inputSchema: is required"),
    (2, '"type": "object", ', "", "/inputSchema/type"), (2, '"add"', '"plus"', "is called add"),
    (2, '"integer"', '"int"', "no JSON Schema"), (2, '"integer"', '"string"', "the schema refuses"),
    (2, ', "required": ["a", "b"]', "", "in `required`"), (2, '"integer"', '"number"', "an integer is"),
    (3, '"method"', '"id": 1, "method"', "a notification has none"),
    (3, "notifications/tools/list_changed", "tools/list_changed", "did you mean"),
    (3, "notifications/tools", "notifications/prompts", "something else"),
    (4, '"error": {"code": -32602, "message": "Unknown tool: divide"}',
     '"result": {"content": [], "isError": true}', "no tool has failed"),
    (4, "-32602", "-32601", "tools/call does"), (4, "-32602", "-32001", "means nothing here"),
    (4, "-32602", "-32603", "InternalError"), (4, "-32602", '"-32602"', "an integer"),
    (4, '"code": -32602, ', "", "has a code"), (4, '"message": "Unknown tool: divide"', '"data": 1', "a message"),
    (4, '"id": 7', '"id": null', "not that of the request"),
    (4, '{"code": -32602, "message": "Unknown tool: divide"}', '"no"', "with a code and a message"),
    (5, "notifications/cancelled", "$/cancelRequest", "did you mean notifications/cancelled?"),
    (5, "notifications/cancelled", "notifications/canceled", "did you mean notifications/cancelled?"),
    (5, '"method"', '"id": 8, "method"', "a notification has none"), (5, "requestId", "id", "is how LSP calls it"),
    (5, "7", '"7"', "the id was the number 7"), (5, "7", "8", "another id, the number 7"),
    (5, "requestId", "request", "requestId is missing"),
    (5, ', "params": {"requestId": 7}', "", "what is to be cancelled"),
    (6, '"id": 1, ', '"id": 1, "method": "elicitation/create", ', "no method"), (6, '"accept"', '"ok"', "accept, decline or"),
    (6, '"accept"', '"decline"', "is a no"), (6, '"action": "accept", ', "", "`action` is missing"),
    (6, "36", '"36"', "/age"), (6, '"content"', '"contents"', "`content`"), (6, '"Ada"', '"Eve"', "/name"),
    (6, '"result": {', '"error": {"code": 1, "message": "", ', "no error"),
    (7, '"_meta": {', '"meta": {', "_meta is missing"), (7, "io.modelcontextprotocol/", "", "the whole key is io."),
    (7, ', "io.modelcontextprotocol/clientCapabilities": {}', "", "clientCapabilities is missing"),
    (7, "2026-07-28", "2025-11-25", "the revision is 2026-07-28"), (7, "search", "find", "Unknown tool: find"),
    (7, '"word"', '"query"', "the tool says: Invalid arguments"), (7, "emma", "dune", "not of search with"),
    (7, '"params": {', '"_meta": {}, "params": {', "a member of params"), (7, '"name": ', '"tool": ', "needs name"),
    (8, '"id": 8', '"id": 7', "a new id"), (8, "inputResponses", "inputResponse", "inputResponses is missing"),
    (8, '"elicitation-1"', '"elicitation"', "the key of its question"), (8, "k7Qx", "other", "as it came"),
    (8, '"requestState": "k7Qx", ', "", "requestState is missing"), (8, '{"elicitation": {}}', "{}", "say again"),
    (8, '"arguments": {}', '"arguments": {"x": 1}', "arguments has changed: it was {}"),
    (8, '"arguments": {}, ', "", "arguments is missing"), (8, '"arguments": {}', '"arguments": {}, "x": 1', "x: not there"),
    (8, '{"elicitation": {}}', '{"elicitation": {"url": {}}}', "the library answers: The client has no elicitation"),
    (8, "join", "lend", "of the tool join"), (8, '"method": "tools/call", "params"', '"result"', "sends no responses"),
    (9, '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n', "",
     "line 2: tools/call is too early, first comes notifications/initialized (lesson "),
    (9, '"method": "initialize", ', '"method": "tools/call", ', "line 1: tools/call is too early, first comes initialize"),
    (9, "notifications/initialized", "initialized", "line 2: there is no method initialized; did you mean"),
    (9, ', "clientInfo": {"name": "by-hand", "version": "1.0"}', "", "line 1: the library answers"),
    (9, '"id": 2', '"id": 1', "used before"), (9, "2025-11-25", "2024-10-07", "the revision is"),
    (9, "emma", "dune", "line 3"), (9, '"method": "notifications', '"id": 9, "method": "notifications', "line 2: with an id"),
    (10, "POST", "GET", "the first line"), (10, "Mcp-Name: search\n", "", "Mcp-Name is missing"),
    (10, "Mcp-Name: search", "Mcp-Name: find", "Mcp-Name repeats"), (10, ", text/event-stream", "", "Accept lists"),
    (10, "<length>", "7", "Content-Length is "), (10, "Mcp-Method: tools/call\n", "", "Mcp-Method is missing"),
    (10, "Version: 2026-07-28", "Version: 2025-11-25", "as in _meta"), (10, "\n\n", "\n", "an empty line"),
    (10, "Accept: ", "Accept ", "a colon"), (10, '"emma"', "emma", "line 10: "),
    (10, "Host: localhost:8000", "Host: localhost.evil.example", "the library answers: HTTP/1.1 403"),
    (11, "notifications/cancelled", "resources/unsubscribe", "is for sessions"), (11, '"news"', "1", 'the string "news"'),
    (11, '"news"', '"old"', 'another id, the string "news"'), (11, '"method"', '"id": 1, "method"', "a notification has none"),
    (11, "requestId", "subscriptionId", "requestId is missing"), (11, '"method": "notifications/cancelled"', '"result": {}',
                                                                  "this is a response"),
    (12, "(hangs up)", '{"jsonrpc": "2.0", "method": "notifications/cancelled"}', "cancels nothing in 2026-07-28"),
    (12, "(hangs up)", "DELETE /mcp HTTP/1.1", "here is none"), (12, "(hangs up)", "bye", "in parentheses"),
    (13, "Mcp-Session-Id: s-41\n", "", "Mcp-Session-Id is missing"), (13, "s-41", "41", "which session it is: s-41"),
    (13, "s-41", "s-41s-41", "the library answers: HTTP/1.1 404"), (13, "Version: 2025-11-25", "Version: 2026-07-28", "the handshake"),
    (13, '"requestId": 7', '"requestId": 8', "line 9: "), (13, "POST", "(hangs up)", "the call goes on"),
    (13, ", text/event-stream", "", "Accept lists"), (13, "<length>", "1", "Content-Length is "),
]


@pytest.mark.parametrize("number, part, instead, hint", WRONG_ANSWERS)
def test_a_wrong_answer_gets_the_hint_that_fits(number: int, part: str, instead: str, hint: str) -> None:
    solution = re.search(r"<summary>Solution</summary>\n\n```\w+\n(.*?)```", EXERCISE_TEXTS[number], re.S)
    assert solution and part in solution[1]
    attempt = solution[1].replace(part, instead)
    assert hint in exercises.hint_for(number, attempt), attempt


@pytest.mark.parametrize("attempt", ["", "\n\n", "\udcff", "null", "[[]]", '{"jsonrpc": "2.0"}', "{" * 300])
def test_nonsense_gets_a_hint(attempt: str) -> None:
    for number in range(1, len(exercises.EXERCISES) + 1):
        assert exercises.hint_for(number, attempt) not in ("", "right")


def without_code(text: str) -> str:
    """Return the prose of a page."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


@pytest.mark.parametrize("path", [*LESSONS, TRANSCRIPTS / "README.md", TRANSCRIPTS.parent / "exercises.md"],
                         ids=lambda path: path.stem)
def test_references_name_the_lesson_that_they_mean(path: Path) -> None:
    """`[lesson 7]` is a link, and the file that it leads to has both the number and the subject."""
    prose = without_code(path.read_text(encoding="utf-8"))
    prose, meant = re.split(r"(?=^\[lesson \d+\]: )", prose, maxsplit=1, flags=re.M) \
        if "\n[lesson " in prose else (prose, "")
    linked = dict(re.findall(r"^\[lesson (\d+)\]: (\S+)$", meant, re.M))
    assert re.sub(r"^\[lesson \d+\]: \S+$", "", meant, flags=re.M).strip() == ""
    assert set(re.findall(r"\[[Ll]esson\s(\d+)\]", prose)) == set(linked)
    for number, target in linked.items():
        assert path.parent / target in LESSONS and (path.parent / target).name[:2] == "%02d" % int(number)
    assert not re.search(r"(?<!\[)\b[Ll]essons?\s+\d", prose), "a lesson is named by a link"


def test_hints_name_lessons_by_their_files() -> None:
    source = (TRANSCRIPTS / "check.py").read_text(encoding="utf-8")
    named = re.findall(r'\bsee\("([^"]+)"\)', source)
    assert len(named) > 20
    for name in named:
        assert exercises.see(name) == "(lesson %d)" % int(lesson_on(name).name[:2])
    assert not re.search(r"lessons? \d", source.split('"""', 2)[2]), "a lesson gets another number one day"


def test_the_way_through_all_of_it_names_the_lessons() -> None:
    """README.md of the project."""
    whole = (HERE / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"\[([\d ,to]+)\]\(examples/transcripts/README.md\)", whole)
    named = [number for first, last in re.findall(r"(\d+)(?: to (\d+))?", ", ".join(cells))
             for number in range(int(first), int(last or first) + 1)]
    assert sorted(named) == list(range(1, len(LESSONS) + 1))


def test_the_lessons_take_as_long_as_they_say() -> None:
    """At 200 words of prose, or 30 lines of messages, in a minute."""
    texts = [path.read_text(encoding="utf-8") for path in LESSONS]
    words = sum(len(without_code(text).split()) for text in texts)
    lines = sum(block.count("\n") for text in texts for block in re.findall(r"^```\w+\n(.*?)^```$", text, re.M | re.S))
    assert 100 < words / 200 + lines / 30 < 140
    assert 100 < 2 * len(LESSONS) < 140
    assert "two hours to read, two minutes for each lesson" in (TRANSCRIPTS / "README.md").read_text(encoding="utf-8")


def test_the_tool_in_the_lesson_is_that_of_the_library() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", lesson_on("more_questions").read_text(encoding="utf-8"), re.M | re.S)
    assert len(shown) == 1 and "\n\n" + shown[0] + "\n\n" in (TRANSCRIPTS / "server.py").read_text(encoding="utf-8")


def test_a_state_holds_what_the_lesson_shows() -> None:
    """The command in the lesson prints what stands below it."""
    lesson = replay.read(lesson_on("request_state"))
    states: List[str] = []

    def tell(step: Any, said: str, problem: str) -> None:
        if step.way == "<":
            states.append(json.loads(said).get("result", {}).get("requestState"))
    assert replay.hold(lesson.conversations[0], Carried(Memory(replay.new_library())), tell) == []
    (command, printed), = re.findall(r"^```sh\n(.*?)```\n```text\n(.*?)```$", lesson.source, re.M | re.S)
    assert "<second state>" in command
    printed = "".join(line.strip() for line in printed.splitlines())
    came = in_shell(command.replace("<second state>", states[1]), HERE).strip()
    known: Dict[str, str] = {}
    assert replay.is_as_written(printed, came, known)
    assert abs(int(known["seconds"]) - time.time() - 15 * 60) < PATIENCE + 1
    assert len({value for name, value in known.items() if "digest" in name}) == 4
    body, signature = states[1].split(".")
    assert re.fullmatch("[0-9a-f]{64}", signature) and base64.urlsafe_b64decode(body).decode().strip() == came


def test_the_codes_that_tell_the_era_are_those_of_the_client() -> None:
    rows = re.findall(r"^\| (.*(?:error|−\d).*) \| (new|old) \|", lesson_on("which_revision").read_text(encoding="utf-8"), re.M)
    told = {-int(code): era for what, era in rows for code in re.findall(r"−(\d+)", what)}
    assert set(told.values()) == {"new", "old"} and {-32020, -32021, -32022, -32601} <= set(told)
    for code, era in told.items():
        assert mcp_ref._is_modern({"code": code, "message": ""}) == (era == "new"), code


# ---- the table of cancellation, cell by cell

class Held:
    """A server with a tool that runs until `go`, and then tells whether it has heard of a cancellation."""

    def __init__(self) -> None:
        self.server = Server("held")
        self.began, self.go, self.over = threading.Event(), threading.Event(), threading.Event()
        self.heard: List[bool] = []

        @self.server.tool
        def hold(quiet: bool, ctx: Context) -> str:
            self.ctx = ctx
            if not quiet:
                ctx.progress(1)
            self.began.set()
            assert self.go.wait(PATIENCE)
            self.heard.append(ctx.cancelled)
            self.over.set()
            return "held"

    def call(self, version: str, quiet: bool = False) -> Dict[str, Any]:
        message = modern("tools/call", 2, name="hold", arguments={"quiet": quiet}, _meta={"progressToken": 1})
        if version not in MODERN:
            message["params"]["_meta"] = {"progressToken": 1}
        return message

    def release(self) -> None:
        assert self.began.wait(PATIENCE)
        self.go.set()
        assert self.over.wait(PATIENCE)


CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}


def is_answered(messages: Any) -> bool:
    return any("held" in json.dumps(message) for message in messages)


def cancel_on_a_pipe(held: Held, version: str, way: str, _: Any) -> bool:
    pipe = RealPipe(held.server)
    if version not in MODERN:
        for message in exercises.OPENING:
            pipe.send(mcp_ref.encode(message).rstrip())
        pipe.receive()
    pipe.send(mcp_ref.encode(held.call(version)).rstrip())
    assert pipe.receive()["method"] == "notifications/progress" and held.began.wait(PATIENCE)
    if way.startswith("closes"):
        releasing = threading.Thread(target=lambda: pipe.ended.wait(PATIENCE) and held.release())
        releasing.start()
        rest = pipe.close()
        releasing.join(PATIENCE)
        return is_answered(rest)
    pipe.send(mcp_ref.encode(CANCEL).rstrip())
    pipe.send(PING)                                     # what is answered in turn
    assert pipe.receive()["result"] == {}
    held.release()
    return is_answered(pipe.close())


def cancel_over_http(held: Held, version: str, way: str, site: Any) -> bool:
    one = site(held.server)
    message, answers = held.call(version, quiet="before a stream" in way), []      # type: Any, List[Any]
    headers = {"Mcp-Session-Id": one.open()} if version not in MODERN else mirrors(message)
    asking = threading.Thread(target=lambda: answers.append(one.ask(body=message, headers=headers).data.decode()))
    if "before a stream" in way:
        asking.start()
        assert held.began.wait(PATIENCE)
        assert one.ask("DELETE", headers=headers).status == 200
        held.release()
        asking.join(PATIENCE)
        return is_answered(answers)
    names = {name.replace("-", "_"): value for name, value in headers.items()}
    _, events = one.stream(body=message, **names)
    last = next(event for event in events if "progress" in event["data"])
    if way == "hangs up":
        for part in one.streams:
            part.close()
        sessions = list(one.endpoint.sessions._by_id.values())
        wait_until(lambda: all(stream.gone for stream in sessions[0].streams.values()) if sessions else held.ctx.cancelled)
    elif way.startswith("posts"):
        if not names.get("Mcp_Session_Id"):
            headers = {"MCP-Protocol-Version": version, "Mcp-Method": "notifications/cancelled"}
        assert one.ask(body=CANCEL, headers=headers).status == 202
    else:
        assert one.ask("DELETE", headers=headers).status == (405 if version in MODERN else 200)
    held.release()
    if way != "hangs up":
        return is_answered(events)
    return version not in MODERN and is_answered(one.stream("GET", Last_Event_ID=last["id"], **names)[1])


def cancel_over_sse(held: Held, version: str, way: str, site: Any) -> bool:
    one = site(held.server)
    _, events = one.stream("GET", path="/sse")
    place = next(events)["data"]
    for message, answer in zip([*exercises.OPENING, held.call(version)], ["serverInfo", "", "progress"]):
        assert one.ask(path=place, body=message).status == 202      # that it has come, not that it is done
        assert answer == "" or answer in next(events)["data"]
    if way.startswith("posts"):
        assert one.ask(path=place, body=CANCEL).status == 202
        wait_until(lambda: held.ctx.cancelled)
        held.release()
        one.endpoint.close()                            # which ends the stream
        return is_answered(events)
    for part in one.streams:
        part.close()
    wait_until(lambda: not one.endpoint.sessions._by_id)
    held.release()
    return bool(one.ask(path=place, body=json.loads(PING)).status == 202)       # nowhere to fetch anything


CANCELLATIONS = re.findall(r"^\| ([^|]+), (pipe|HTTP) \| ([^|]+) \| (yes|no)([^|]*) \| (none|comes)([^|]*) \|$",
                           lesson_on("http_cancel").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("era, transport, way, heard, more, response, rest", CANCELLATIONS,
                         ids=lambda value: re.sub(r"\W+", "-", value).strip("-"))
def test_the_table_of_cancellation_is_true(era: str, transport: str, way: str, heard: str, more: str, response: str,
                                           rest: str, site: Any) -> None:
    held, version = Held(), LEGACY[0] if era == "session" else era
    carry = cancel_on_a_pipe if transport == "pipe" else cancel_over_sse if era == LEGACY[-1] else cancel_over_http
    answered = carry(held, version, way.replace("`", ""), site)
    assert (held.heard, answered) == ([heard == "yes"], response == "comes")
    for status in re.findall(r"\d{3}", more):
        assert (era, status) in ((MODERN[0], "202"), (MODERN[0], "405"))       # asserted above
    assert "seconds" not in rest or mcp_ref.LEAVE_SECONDS <= 2


def test_the_table_of_cancellation_is_complete() -> None:
    table = re.findall(r"^\|(?!---| when).*\|$", lesson_on("http_cancel").read_text(encoding="utf-8"), re.M)
    assert len(CANCELLATIONS) == len(table) == 13


# ------------------------------------------------------------------------------------------
# Configuration for hosts, examples/host_config.py
# ------------------------------------------------------------------------------------------

def load_host_config() -> Any:
    """Import the example."""
    path = HERE / "examples" / "host_config.py"
    spec: Any = importlib.util.spec_from_file_location("host_config", path)
    module = sys.modules["host_config"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hc = load_host_config()
NASTY = "a b's \"q\" back\\slash ümlaut 😀"      # a directory, if the system can have it
if os.name == "nt":
    NASTY = "a b's ümlaut 😀"
PROGRAM = "import sys\nsys.path.insert(0, %r)\n" % str(HERE) + '''
from mcp_ref import Server
server = Server("nasty")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
if __name__ == "__main__":
    server.run()
'''
FUNCTIONS = "import subprocess\n\ndef add(a: int, b: int) -> int:\n    return a + b\n"


def read_toml(text: str) -> Dict[str, Any]:
    """Read TOML; where Python has no parser, of as much as the example writes."""
    try:
        import tomllib
    except ImportError:
        head, *lines = re.sub(r"\\U([0-9A-F]{8})", lambda found: chr(int(found[1], 16)), text).splitlines()
        table, name = re.fullmatch(r'\[(\w+)\.([\w-]+|".*")\]', head).groups()
        pairs = (line.split(" = ", 1) for line in lines)
        return {table: {json.loads(name) if name[0] == '"' else name: {key: json.loads(value) for key, value in pairs}}}
    return tomllib.loads(text)


def read_snippet(text: str) -> Tuple[str, str, Dict[str, Any]]:
    """Read a snippet of either kind: its key, the name of its server, and that."""
    (key, servers), = (json.loads if text.startswith("{") else read_toml)(text).items()
    (name, server), = servers.items()
    return key, name, server


def command_of(server: Dict[str, Any]) -> List[str]:
    command = server["command"]
    return command if isinstance(command, list) else [command, *server["args"]]


def as_a_host_would(command: List[str], where: Path) -> List[Dict[str, Any]]:
    """Start a server with an empty environment elsewhere; ask it in both eras."""
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}}
    lines = "".join(json.dumps(one) + "\n" for one in (initialize, modern("server/discover")))
    kept = {key: os.environ[key] for key in ("HOME", "PATH", "SYSTEMROOT") if key in os.environ}
    done = subprocess.run(command, input=lines.encode(), cwd=str(where), env=kept, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE * 3)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda answer: answer["id"])


@pytest.fixture
def nasty(tmp_path: Path) -> Any:
    """Write a file into a directory with a nasty name; return its path."""
    folder = tmp_path / NASTY
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()

    def write(source: str, name: str = "server.py") -> str:
        (folder / name).write_text(source, encoding="utf-8")
        return str(folder / name)
    return write


@pytest.mark.parametrize("word", hc.HOSTS)
def test_a_host_starts_what_is_pasted(nasty: Any, word: str, tmp_path: Path, capsys: Any) -> None:
    path = nasty(PROGRAM)
    hc.main([path, "--host", word])
    out, err = capsys.readouterr()
    host = hc.HOSTS[word]
    assert out.isascii() and err == "# %s: %s\n" % (host.name, hc.place(host))
    key, name, server = read_snippet(out)
    assert (key, name, server.get("type", "")) == (host.key, "server", host.stdio)
    assert command_of(server) == [sys.executable, path]
    answers = as_a_host_would(command_of(server), tmp_path / "elsewhere")
    assert answers[0]["result"]["protocolVersion"] == LEGACY[0] and answers[0]["result"]["serverInfo"]["name"] == "nasty"
    assert MODERN[0] in answers[1]["result"]["supportedVersions"]


@pytest.mark.parametrize("word", ["cursor", "codex-cli", "opencode"])
@pytest.mark.parametrize("source", [FUNCTIONS, PROGRAM.replace("server.run()", "pass")], ids=["functions", "server"])
def test_a_host_starts_what_has_to_be_served(nasty: Any, word: str, source: str, tmp_path: Path, capsys: Any) -> None:
    path = nasty(source, "tools für dich.py")
    hc.main([path, "--host", word])
    _, name, server = read_snippet(capsys.readouterr().out)
    assert name == "tools-f-r-dich"
    assert command_of(server) == [sys.executable, str(HERE / "mcp_ref.py"), "serve", path]
    answers = as_a_host_would(command_of(server), tmp_path / "elsewhere")
    assert answers[0]["result"]["protocolVersion"] == LEGACY[0] and MODERN[0] in answers[1]["result"]["supportedVersions"]


def test_relative_paths_become_absolute(nasty: Any, capsys: Any, monkeypatch: Any) -> None:
    path = nasty(PROGRAM)
    monkeypatch.chdir(Path(path).parent)
    hc.main(["server.py", "--host", "zed"])
    assert command_of(read_snippet(capsys.readouterr().out)[2]) == [sys.executable, os.path.join(os.getcwd(), "server.py")]


def test_all_hosts_are_printed(nasty: Any, capsys: Any) -> None:
    hc.main([nasty(PROGRAM), "--name", "one"])
    out, err = capsys.readouterr()
    parts = re.split(r"(?m)^# (.*): (.*)\n", out)
    assert parts[0] == "" and err == ""
    assert parts[1::3] == [host.name for host in hc.HOSTS.values()] == list(hc.FILES)
    assert parts[2::3] == [hc.place(host) for host in hc.HOSTS.values()]
    for host, text in zip(hc.HOSTS.values(), parts[3::3]):
        assert read_snippet(text)[:2] == (host.key, "one")


def test_hosts_that_connect_to_a_url(nasty: Any, capsys: Any) -> None:
    url = "https://user@example.com:8000/mcp?q=ü"
    for word, host in hc.HOSTS.items():
        hc.main(["--url", url, "--host", word])
        out, err = capsys.readouterr()
        if not host.url:
            assert out == "" and "Connectors" in err
            continue
        key, name, server = read_snippet(out)
        assert (key, name) == (host.key, "example-com-8000")
        assert server == {**({"type": host.http} if host.http else {}), host.url: url}
    hc.main(["--url", url, "some/where.py", "--host", "zed"])
    assert read_snippet(capsys.readouterr().out)[1] == "where"


# What the documentation of each host shows: a server that it starts, and one that it connects to.
SHAPES = '''
claude-desktop {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}
claude-code    {"mcpServers": {"n": {"type": "stdio", "command": "py", "args": ["f"]}}} | {"mcpServers": {"n": {"type": "http", "url": "u"}}}
cursor         {"mcpServers": {"n": {"type": "stdio", "command": "py", "args": ["f"]}}} | {"mcpServers": {"n": {"url": "u"}}}
vs-code        {"servers": {"n": {"type": "stdio", "command": "py", "args": ["f"]}}}    | {"servers": {"n": {"type": "http", "url": "u"}}}
copilot-cli    {"mcpServers": {"n": {"type": "local", "command": "py", "args": ["f"]}}} | {"mcpServers": {"n": {"type": "http", "url": "u"}}}
codex-cli      {"mcp_servers": {"n": {"command": "py", "args": ["f"]}}}                 | {"mcp_servers": {"n": {"url": "u"}}}
gemini-cli     {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"httpUrl": "u"}}}
antigravity    {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"serverUrl": "u"}}}
zed            {"context_servers": {"n": {"command": "py", "args": ["f"]}}}             | {"context_servers": {"n": {"url": "u"}}}
devin-desktop  {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"url": "u"}}}
windsurf       {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"serverUrl": "u"}}}
cline          {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"type": "streamableHttp", "url": "u"}}}
kiro           {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"url": "u"}}}
lm-studio      {"mcpServers": {"n": {"command": "py", "args": ["f"]}}}                  | {"mcpServers": {"n": {"url": "u"}}}
opencode       {"mcp": {"n": {"type": "local", "command": ["py", "f"]}}}                | {"mcp": {"n": {"type": "remote", "url": "u"}}}
'''


def test_snippets_look_as_each_host_documents_them() -> None:
    lines = SHAPES.strip().splitlines()
    assert [line.split()[0] for line in lines] == list(hc.HOSTS)
    for line in lines:
        word, shapes = line.split(None, 1)
        host, (started, *connected) = hc.HOSTS[word], map(json.loads, shapes.split(" | "))
        texts = [hc.snippet(host, "n", ["py", "f"], ""), *([hc.snippet(host, "n", [], "u")] if host.url else [])]
        assert [read_toml(text) if word == "codex-cli" else json.loads(text) for text in texts] == [started, *connected]


HOST_FILES = '''
Claude Desktop | ~/.config/Claude/claude_desktop_config.json | ~/Library/Application Support/Claude/claude_desktop_config.json | %APPDATA%\\Claude\\claude_desktop_config.json
VS Code        | ~/.config/Code/User/mcp.json    | ~/Library/Application Support/Code/User/mcp.json | %APPDATA%\\Code\\User\\mcp.json
Zed            | ~/.config/zed/settings.json     | ~/.config/zed/settings.json                      | %APPDATA%\\zed\\settings.json
Devin Desktop  | ~/.config/devin/mcp_config.json | ~/.config/devin/mcp_config.json                  | %APPDATA%\\devin\\mcp_config.json
Codex CLI      | ~/.codex/config.toml            | ~/.codex/config.toml                             | %USERPROFILE%\\.codex\\config.toml
'''


def test_every_platform_has_its_place() -> None:
    for line in HOST_FILES.strip().splitlines():
        name, *expected = re.split(r" +\| ", line)
        host, = [host for host in hc.HOSTS.values() if host.name == name]
        assert [hc.place(host, platform) for platform in ("linux", "darwin", "win32")] == expected


ODD_NAMES = ["plain-1_2", "with.dot", "a b", 'quo"te', "back\\slash", "ümlaut", "😀", "line\nbreak", "]", "'", "\x7f", ""]


@pytest.mark.parametrize("word", hc.HOSTS)
def test_nothing_is_lost_by_quoting(word: str) -> None:
    """Names, and paths of Windows: what is read is what was written."""
    command = ["C:\\Program Files\\Py\\python.exe", "C:\\new\\Zoë\\x86\\U0001\\\u2028\x7f\tr.py", 'é"\\']
    for name in ODD_NAMES:
        text = hc.snippet(hc.HOSTS[word], name, command, "")
        assert text.isascii()
        _, read, server = read_snippet(text)
        assert read == name and command_of(server) == command


# What a file does when it is run as a program decides. `+`: it serves itself; `s`: `serve` has to.
SOURCES = '''
+ server.run()
+ from elsewhere import server; server.run()
+ app = Server("x"); app.run()
+ app: object = 1; app = mcp_ref.Server("x"); app.run([])
+ Server("x").run()
+ serve_stdio(server)
+ import mcp_ref; mcp_ref.serve_stdio(make())
+ def main(): server.run()¶main()
+ def main(): inner()¶def inner(): server.run()¶if __name__ == "__main__": sys.exit(main())
+ async def main(): server.run()¶asyncio.run(main())
+ def demo(): return Server("x")¶demo().run(sys.argv)
+ demo() if sys.argv[1:] else server.run()
+ try:¶  with x: server.run()¶finally: pass
+ gateway.profiles[1].server.run([])
s def add(): "server.run()"
s async def add(): pass
s def add(): subprocess.run(["x"])
s import subprocess; subprocess.run(["x"])¶def add(): pass
s def add(): server.run()
s def main(): server.run()¶server = Server("x")
s async def main(): server.run()¶server = Server("x")
s job = Thread(); job.run()¶def add(): pass
s class A:¶  def f(self): server.run()¶server = 1
s later = lambda: server.run()¶def add(): pass
s server = Server("x")
s from elsewhere import server
s from elsewhere import thing as server
s from elsewhere import *
s if True: server: object = Server("x")
s run()¶def add(): pass
s CGIHandler().run(application)¶server = 1
s server = Server("x")¶if __name__ == "__main__": serve_http(server)
'''


@pytest.mark.parametrize("line", SOURCES.strip().splitlines())
def test_the_source_decides(line: str, tmp_path: Path) -> None:
    path = str(tmp_path / "x.py")
    Path(path).write_text(line[2:].replace("¶", "\n"), encoding="utf-8")
    assert hc.arguments_of(path) == ([path] if line[0] == "+" else [str(HERE / "mcp_ref.py"), "serve", path])


def test_the_file_is_not_imported(nasty: Any, tmp_path: Path, capsys: Any) -> None:
    hc.main([nasty("open(%r, 'w')\n1 / 0\nserver = 1\n" % str(tmp_path / "trace")), "--host", "zed"])
    assert "serve" in capsys.readouterr().out and not (tmp_path / "trace").exists()


def test_deep_and_encoded_sources(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("server = 1\nx = " + "+".join(["1"] * 900) + "\n")
    assert hc.arguments_of(str(path))[1] == "serve"
    path.write_bytes("# coding: latin-1\ndef über(): pass\n".encode("latin-1"))
    assert hc.arguments_of(str(path))[1] == "serve"
    path.write_bytes(b"\xef\xbb\xbfserver.run()\r\n")
    assert hc.arguments_of(str(path)) == [str(path)]


BAD_FILES = [("missing.py", None, "not a Python file: .*No such file"), ("folder.py", "/", "not a Python file"),
             ("a.py", "this is no Python", "not a Python file"), ("a.py", "x = '\0'", "not a Python file"),
             ("a.py", "x = 1\ndef _y(): pass", "neither a `server` nor a public function"), ("a.py", "", "neither"),
             ("a.py", "class A:\n    def add(self): pass", "neither"),
             ("tools.txt", "def add(): pass", r"named \*\.py"), ("tools", "server = 1", r"named \*\.py")]


@pytest.mark.parametrize("name, source, words", BAD_FILES)
def test_files_that_no_host_could_start(name: str, source: Any, words: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / name
    if source == "/":
        path.mkdir()
    elif source is not None:
        path.write_text(source, encoding="utf-8")
    with pytest.raises(SystemExit, match="^host_config: .*" + words) as caught:
        hc.main([str(path)])
    assert str(path) in str(caught.value) and capsys.readouterr().out == ""


def test_a_path_that_is_not_unicode(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / os.fsdecode(b"x\xff.py")
    try:
        path.write_text("server = 1")
    except (OSError, UnicodeError):
        pytest.skip("this system has no such names")
    with pytest.raises(SystemExit, match=r"x\\udcff.py' is not Unicode"):
        hc.main([str(path)])
    assert capsys.readouterr().out == ""


def test_a_program_may_have_any_suffix(nasty: Any) -> None:
    path = nasty(PROGRAM, "server")
    assert hc.arguments_of(path) == [path]


def test_without_the_module_nothing_is_served(nasty: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(hc, "MCP_REF", tmp_path / "mcp_ref.py")
    assert hc.arguments_of(nasty(PROGRAM))
    with pytest.raises(SystemExit, match="has to be there"):
        hc.arguments_of(nasty(FUNCTIONS))


@pytest.mark.parametrize("words, said", [
    ([], "a FILE, or --url"), (["--url", "ftp://example.com"], "a FILE, or --url"),
    (["--url", "https://"], "a FILE, or --url"), (["--url", "http://a b"], "a FILE, or --url"),
    (["x.py", "--host", "emacs"], "claude-desktop"), (["x.py", "--port", "1"], "unrecognized")])
def test_command_lines_that_make_no_sense(words: List[str], said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        hc.main(words)
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and said in err and out == ""


def test_what_hosts_stumble_over_is_said(nasty: Any, capsys: Any) -> None:
    hc.main([nasty(PROGRAM, "$HOME.py"), "--host", "vs-code"])
    out, err = capsys.readouterr()
    assert read_snippet(out)[1] == "HOME" and "$HOME.py' for a variable" in err and "letters" not in err
    hc.main([nasty(PROGRAM), "--host", "zed", "--name", "my server"])
    assert "only letters" in capsys.readouterr().err
    hc.main([nasty(PROGRAM), "--host", "zed", "--name", "x" * 64])
    assert "note" not in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"udcff' is not Unicode"):
        hc.main(["--url", "http://localhost/mcp", "--name", "\udcff"])
    hc.main(["--url", "http://localhost/mcp", "ü.py", "--host", "zed"])
    assert read_snippet(capsys.readouterr().out)[1] == "server"


def test_host_config_prints_what_it_says() -> None:
    (command, output), = shell_blocks(hc.__doc__ + "\n")
    assert in_shell(command, HERE) == output
    done = run(str(HERE / "examples" / "host_config.py"), "--help")
    assert done.returncode == 0 and hc.__doc__.strip() in done.stdout and "lm-studio" in done.stdout
    assert not hc.FILES.keys() ^ {host.name for host in hc.HOSTS.values()}


# ------------------------------------------------------------------------------------------
# Tasks, examples/tasks.py: both roles
# ------------------------------------------------------------------------------------------

def load_tasks() -> Any:
    """Import the example."""
    spec: Any = importlib.util.spec_from_file_location("tasks", HERE / "examples" / "tasks.py")
    module = sys.modules["tasks"] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


tk = load_tasks()
TASKS_DECLARED = {"declare": tk.DECLARE}
TASK_PLACES = pytest.mark.parametrize("where", ["memory", "stdio", "http"])
TASK_CREATED = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


class TaskClock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


TASK_SERVERS: List[Any] = []    # of the test that runs


@pytest.fixture
def tasks_end() -> Any:
    """In the end no thread of a task is left, nor one that waits for its time or its end."""
    del TASK_SERVERS[:]
    yield
    for server in TASK_SERVERS:
        for task in list(server.tasks._tasks.values()):
            server.tasks._stop(task, "the test is over")
        with server.tasks._lock:
            server.tasks._tasks.clear()
            server.tasks._lock.notify()
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("tasks-")])


def task_server(**options: Any) -> Any:
    """Make a server with tools that become tasks. `server.door` is as in make_server()."""
    server: Any = Server("tasks")
    TASK_SERVERS.append(server)
    server.tasks = tasks = tk.Tasks(server, **{"poll_ms": 20, **options})
    doors: Dict[str, threading.Event] = {}
    server.door = door = lambda name: doors.setdefault(name, threading.Event())
    server.runs = []

    @tasks.tool
    def hold(name: str, ctx: Context) -> str:
        """Say that it runs, wait for a door (or to be cancelled), then say so."""
        server.runs.append(name)
        ctx.on_cancel(door(name).set)
        door(name + " runs").set()
        assert door(name).wait(PATIENCE)
        ctx.progress(99)
        door(name + " done").set()
        return "cancelled" if ctx.cancelled else "held"

    @tasks.tool(required=True)
    def must(ctx: Context) -> str:
        """Run as a task only."""
        server.runs.append("must")
        return "a task" if isinstance(ctx.peer, tk.TaskPeer) else "no task"

    @tasks.tool
    def name(ctx: Context) -> str:
        """Ask for a name."""
        return "I am %s" % ctx.elicit("Your name?", name=str)["content"]["name"]

    @tasks.tool
    def both(ctx: Context) -> str:
        """Ask two things at once, then a third."""
        answers = ctx.ask({"a": elicitation("A?", a=int), "b": elicitation("B?", b=int)})
        third = ctx.elicit("C?", c=int)
        return " ".join(str(one["content"]) for one in (answers["a"], answers["b"], third))

    @tasks.tool
    def fails(how: str) -> Any:
        """Fail."""
        if how == "result":
            return {"content": [], "isError": True}
        if how == "nan":
            return {"content": [], "_meta": {"n": float("nan")}}
        raise {"own": RpcError(7, "seven" * 1000, [7]), "value": ValueError("told you"),
               "reserved": RpcError(-32001, "not ours"), "exit": SystemExit(3)}[how]

    @tasks.tool(title="Later", ttl_ms=5000, poll_ms=30)
    async def later(n: int, more: Optional[Color] = None, **rest: int) -> int:
        """Run on an event loop, without a context."""
        return n + len(rest) + (more is Color.RED)

    @tasks.tool
    def steps(ctx: Context) -> str:
        """Report progress, one step for each door."""
        ctx.log("emergency", "nobody hears this")
        for number in range(3):
            ctx.on_cancel(door("step %d" % number).set)
            ctx.progress(number, 3, "step " * 200 if number == 2 else "step %d" % number if number else None)
            door("told %d" % number).set()
            assert door("step %d" % number).wait(PATIENCE)
        return "done"

    @server.tool
    def first_ask(ctx: Context) -> Any:
        """Ask, then become a task."""
        tasks.require(ctx)
        who = ctx.elicit("Who?", key="who", name=str)["content"]["name"]
        task = tasks.start(ctx)
        if task is None:
            assert isinstance(ctx.peer, tk.TaskPeer)
            where = ctx.elicit("Where?", key="where", place=str)["content"]["place"]
        return task or "%s in %s" % (who, where)

    @tasks.tool
    def who(ctx: Context) -> str:
        """Say who calls."""
        return repr(ctx.principal)

    @server.tool
    def plain() -> str:
        """Answer at once."""
        return "plain"
    return server


class TaskTalk:
    """Talks to a server with tasks message by message; what is not a method here is a client's."""

    def __init__(self, client: Any) -> None:
        self.client = client
        client.result_types["task"] = lambda method, result, tag: {"content": [], "task": result}
        client.mirrored.update({"tasks/" + verb: "taskId" for verb in ("get", "update", "cancel")})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def create(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; return the CreateTaskResult."""
        result = self.client.request("tools/call", {"name": tool, "arguments": arguments})
        assert "task" in result, result
        return result["task"]

    def ask(self, verb: str, task: Any, **params: Any) -> Any:
        ident = task["taskId"] if isinstance(task, dict) and task else task
        return self.client.request("tasks/" + verb, {"taskId": ident, **params})

    def answer(self, task: Any, **answers: Any) -> Any:
        """Answer forms, by the keys on the wire (with _ for -)."""
        return self.ask("update", task, inputResponses={key: {"action": "accept", "content": content}
                                                        for key, content in answers.items()})

    def until(self, task: Any, status: str, **members: Any) -> Any:
        """Wait until a task has this status; return it."""
        found: List[Any] = []

        def there() -> bool:
            found[:] = [self.ask("get", task)]
            assert found[0]["status"] == status or found[0]["status"] not in tk.OVER, found
            return has(found[0], {"status": status, **members})
        wait_until(there)
        return found[0]

    def refuses(self, code: int, verb: str, task: Any, **params: Any) -> RpcError:
        with pytest.raises(RpcError) as raised:
            self.ask(verb, task, **params)
        assert raised.value.code == code
        return raised.value


TASKS_ANSWERED = {"elicit": lambda form: {"name": "Ann"}}


@pytest.fixture
def task_talk(tasks_end: Any, link: Any) -> Any:
    """Talk to servers with tasks, message by message."""
    def start(where: Any = "memory", server: Any = None, **options: Any) -> TaskTalk:
        return TaskTalk(link(where, MODERN[0], server or task_server(), **{**TASKS_DECLARED, **TASKS_ANSWERED, **options}))
    return start


def is_time(value: str) -> bool:
    return bool(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", value))


# ---- the server: a task from its beginning to its end

@TASK_PLACES
def test_task_from_its_beginning_to_its_end(task_talk: Any, where: str) -> None:
    clock = TaskClock()
    talk = task_talk(where, task_server(clock=clock), log_level="debug")
    created = talk.create("steps")
    assert created.keys() - {"_meta"} == {"resultType", *TASK_CREATED} and created["resultType"] == "task"
    assert created["status"] == "working" and created["ttlMs"] == 3600000 and created["pollIntervalMs"] == 20
    assert re.fullmatch("[0-9a-f]{32}", created["taskId"]) and created["createdAt"] == created["lastUpdatedAt"]
    assert is_time(created["createdAt"]) and created["createdAt"] == "2027-01-15T08:00:00.000Z"
    for number, said_so in ((0, "0 of 3"), (1, "step 1"), (2, ("step " * 200)[:tk.MAX_STATUS])):
        assert talk.server.door("told %d" % number).wait(PATIENCE)
        state = talk.ask("get", created)
        assert state.keys() - {"_meta"} == {"resultType", "statusMessage", *TASK_CREATED}
        assert state["resultType"] == "complete" and state["statusMessage"] == said_so
        assert state["createdAt"] == created["createdAt"]
        assert state["lastUpdatedAt"] == "2027-01-15T08:00:0%d.000Z" % number
        clock.now += 1
        talk.server.door("step %d" % number).set()
    state = talk.until(created, "completed")
    assert state.keys() - {"_meta"} == {"resultType", "result", *TASK_CREATED}
    assert state["lastUpdatedAt"] == "2027-01-15T08:00:03.000Z"
    # exactly what the call would have returned
    assert state["result"] == {"resultType": "complete", "content": [{"type": "text", "text": "done"}],
                               "_meta": {mcp_ref.META_SERVER: {"name": "tasks", "version": "1.0"}}}
    assert talk.ask("get", created) == state
    assert talk.tape.received() == set()        # neither progress nor log messages


@pytest.mark.parametrize("how, status, members", [
    ("own", "failed", {"statusMessage": ("seven" * 1000)[:500], "result": None,
                       "error": {"code": 7, "message": "seven" * 1000, "data": [7]}}),
    ("reserved", "failed", {"error": {"code": -32603, "message": "not ours"}}),
    ("nan", "failed", {"error": {"code": -32603, "message": "Internal error"}}),
    ("value", "completed", {"error": None, "result": {
        "isError": True, "content": [{"type": "text", "text": "told you"}]}}),
    ("exit", "completed", {"result": {"isError": True}})])
def test_task_that_fails(tasks_end: Any, how: str, status: str, members: Any) -> None:
    """ext-tasks §Task Execution Errors: an error is `failed`, a result with isError `completed`."""
    with mcp_ref.connect(task_server(), **TASKS_DECLARED) as client:
        talk = TaskTalk(client)
        talk.until(talk.create("fails", how=how), status, **members)


def test_task_is_made_of_any_function(task_talk: Any) -> None:
    talk = task_talk()
    server = talk.server

    class Shop:
        def sell(self, what: str) -> str:
            """Sell it."""
            return "sold " + what

    assert server.tasks.tool(name="shop", description="Buy!")(Shop().sell)("a") == "sold a"     # as it was
    listed = {tool["name"]: tool for tool in talk.list_tools()}
    twin = Server("twin")

    @twin.tool(title="Later")
    async def later(n: int, more: Optional[Color] = None, **rest: int) -> int:
        """Run on an event loop, without a context."""
        return n
    assert listed["later"] == twin.tools["later"].definition
    assert listed["shop"]["description"] == "Buy!" and listed["shop"]["inputSchema"]["required"] == ["what"]
    created = talk.create("later", n=1, more="r", x=5)
    assert created["ttlMs"] == 5000 and created["pollIntervalMs"] == 30
    talk.until(created, "completed", result={"structuredContent": {"result": 3}})
    talk.until(talk.create("shop", what="b"), "completed", result={"content": [{"type": "text", "text": "sold b"}]})
    result = talk.request("tools/call", {"name": "later", "arguments": {"n": "x"}})
    assert result["isError"] and "task" not in result       # there is nothing to work on


def test_task_options_make_sense() -> None:
    server = task_server()
    for options in ({"ttl_ms": -1}, {"ttl_ms": 1.5}, {"poll_ms": "1"}, {"poll_ms": True}):
        with pytest.raises(ValueError, match="whole numbers"):
            server.tasks.tool(**options)
        with pytest.raises(ValueError, match="whole numbers"):
            tk.Tasks(Server("x"), **options)
    with pytest.raises(ValueError, match="whole numbers"):
        tk.Tasks(Server("x"), poll_ms=0)
    with pytest.raises(TypeError, match="colour is none of"):
        server.tasks.tool(colour="red")(lambda: None)
    with pytest.raises(ValueError, match="registered already"):
        server.tasks.tool(name="must")(lambda: None)
    with pytest.raises(TypeError, match="neither a function nor a method"):
        server.tasks.tool(functools.partial(print, "x"))


def test_task_is_of_a_tool_call_only(task_talk: Any, capfd: Any) -> None:
    talk = task_talk()

    @talk.server.prompt
    def ask(ctx: Context) -> Any:
        return talk.server.tasks.start(ctx)
    with pytest.raises(RpcError, match="Internal error"):
        talk.request("prompts/get", {"name": "ask"})
    assert "prompts/get cannot become a task" in capfd.readouterr().err


# ---- the server: who has tasks

NOT_TASKS_DECLARED = ["{}", '{"extensions": {}}', '{"extensions": []}', '{"extensions": {"io.modelcontextprotocol/tasks": null}}',
                '{"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}']
TASKS_LACKING = '{"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}'


@pytest.mark.parametrize("capabilities", NOT_TASKS_DECLARED)
def test_task_is_for_a_request_that_declares_it(tasks_end: Any, ordered: Any, capabilities: str) -> None:
    """ext-tasks §Capability Negotiation, §Task Status Notifications: whatever was declared before."""
    server = task_server()
    conversation = ordered("""
        modern {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        > 1 tools/call {"name": "hold", "arguments": {"name": "x"}}""", server)
    task = conversation.receive()["result"]
    conversation.hold("modern " + capabilities)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for ident in ('"%s"' % task["taskId"], '"nobody knows"', "3"):
            conversation.hold("""
                > 2 %s {"taskId": %s, "inputResponses": {}}
                < 2 error -32021 %s""" % (method, ident, TASKS_LACKING))
    conversation.hold("""
        > 3 subscriptions/listen {"notifications": {"taskIds": ["%s"], "toolsListChanged": true}}
        < 3 error -32021 %s
        > 4 tools/call {"name": "must", "arguments": {}}
        < 4 error -32021 %s
        > 5 tools/call {"name": "first_ask", "arguments": {}}
        < 5 error -32021
        > 6 tools/call {"name": "later", "arguments": {"n": 1}}
        < 6 {"resultType": "complete", "structuredContent": {"result": 1}, "taskId": null}
        > 7 tools/call {"name": "hold", "arguments": {"name": "x"}, "task": {"ttl": 5}}""" % (
            task["taskId"], TASKS_LACKING, TASKS_LACKING))
    server.door("x").set()
    conversation.hold('< 7 {"resultType": "complete", "content": [{"type": "text", "text": "held"}], "taskId": null}')
    assert "must" not in server.runs


@pytest.mark.parametrize("version", LEGACY)
def test_task_is_unknown_in_a_session(tasks_end: Any, ordered: Any, version: str) -> None:
    server = task_server()
    conversation = ordered('open %s {"extensions": {"io.modelcontextprotocol/tasks": {}}, "tasks": {}}' % version, server)
    conversation.hold("""
        > 1 tools/call {"name": "must", "arguments": {}}
        < 1 {"isError": true, "content": [{"type": "text", "text": "This is for clients that declare io.modelcontextprotocol/tasks"}]}
        > 2 tools/call {"name": "later", "arguments": {"n": 1}, "task": {"ttl": 5}}
        < 2 {"content": [{"type": "text", "text": "1"}], "taskId": null, "task": null}
        > 3 tasks/get {"taskId": "x"}
        < 3 error -32601
        > 4 tasks/update {"taskId": "x", "inputResponses": {}}
        < 4 error -32601
        > 5 tasks/cancel {"taskId": "x"}
        < 5 error -32601""")
    assert server.runs == []


def test_task_extension_is_offered(task_talk: Any) -> None:
    talk = task_talk()
    offered = talk.request("server/discover")["capabilities"]
    assert offered["extensions"] == {tk.EXTENSION: {}} and "tasks" not in offered
    for method in ("tasks/list", "tasks/result"):       # of the legacy era
        with pytest.raises(RpcError) as raised:
            talk.request(method, {"taskId": "x"})
        assert raised.value.code == mcp_ref.METHOD_NOT_FOUND
    assert all("execution" not in tool for tool in talk.list_tools())
    assert talk.request("tools/call", {"name": "plain", "task": {"ttl": 60000}})["content"][0]["text"] == "plain"


@TASK_PLACES
def test_task_that_nobody_knows(task_talk: Any, where: str) -> None:
    talk = task_talk(where)
    for ident in ("", "x", 3, None, ["x"], {}):
        for verb in ("get", "update", "cancel"):
            assert str(talk.refuses(-32602, verb, ident, inputResponses={})) == "Task not found"


def test_task_header_has_to_name_it(tasks_end: Any, site: Any) -> None:
    """ext-tasks §Streamable HTTP: Routing Headers."""
    one = site(task_server())
    for name, code in (("x", -32602), (mcp_ref.mirror("x"), -32602), ("y", -32020), (None, -32020)):
        message = modern("tasks/get", capabilities=tk.DECLARE, taskId="x")
        answer = one.ask(body=message, headers={"MCP-Protocol-Version": MODERN[0], "Mcp-Method": "tasks/get",
                                                **({"Mcp-Name": name} if name else {})})
        assert json.loads(answer.data)["error"]["code"] == code
        assert answer.status == (400 if code == -32020 else 200)
    listens = modern("subscriptions/listen", notifications={"taskIds": []})
    answer = one.ask(body=listens, headers=mirrors(listens))
    assert answer.status == 400 and json.loads(answer.data)["error"]["code"] == -32021


def test_task_belongs_to_who_called(tasks_end: Any, link: Any, site: Any) -> None:
    """ext-tasks §Security Considerations: another's is answered as one that does not exist."""
    server = task_server(each=3)
    at = site(server, authorize=mcp_ref.bearer({"1": "ann", "2": "bob"}))
    ann, bob = (TaskTalk(link("http://127.0.0.1:%d/mcp" % at.port, headers={"Authorization": "Bearer " + token},
                         **TASKS_DECLARED, **TASKS_ANSWERED)) for token in "12")
    task = ann.create("name")
    asked = ann.until(task, "input_required")
    errors = {str(bob.refuses(-32602, verb, ident, inputResponses={key: {} for key in asked["inputRequests"]}))
              for verb in ("get", "update", "cancel") for ident in (task, "no such")}
    assert errors == {"Task not found"}
    with pytest.raises(mcp_ref.ServerLacks):
        bob.listen([], filters={"taskIds": [task["taskId"]]})
    own = bob.create("hold", name="bob")
    with bob.listen([], filters={"taskIds": [task["taskId"], *[own["taskId"]] * 3, "x"]}) as heard:
        assert heard.filter == {"taskIds": [own["taskId"]]}
    assert ann.ask("get", task) == asked                # nothing has happened to it
    ann.create("hold", name="ann 2"), ann.create("hold", name="ann 3")
    full = ann.request("tools/call", {"name": "must"})
    assert full["isError"] and "Too many tasks" in full["content"][0]["text"]
    assert said(bob.until(bob.create("who"), "completed")["result"]) == "'bob'"
    for name in ("bob", "ann 2", "ann 3"):
        server.door(name).set()


# ---- the server: many at once, and too many

def test_task_by_the_hundred(task_talk: Any) -> None:
    server = task_server(threads=8)
    lock, most, going = threading.Lock(), [0], set()

    @server.tasks.tool
    def work(n: int, ctx: Context) -> str:
        with lock:
            going.add(n)
            most[0] = max(most[0], len(going))
        time.sleep(0.001)
        with lock:
            going.discard(n)
        return "%s %d" % (threading.current_thread().name, n)
    talk = task_talk("memory", server)
    tasks = [talk.create("work", n=n) for n in range(200)]
    assert len({task["taskId"] for task in tasks}) == 200
    for n, task in enumerate(tasks):
        assert said(talk.until(task, "completed")["result"]) == "tasks-work %d" % n
    assert 1 < most[0] <= 8
    wait_until(lambda: server.tasks._working == 0)      # no thread stays


def test_task_waits_for_its_turn(task_talk: Any) -> None:
    talk = task_talk("memory", task_server(threads=1))
    first, second, third = (talk.create("hold", name=name) for name in "abc")
    assert talk.server.door("a runs").wait(PATIENCE)
    assert talk.ask("get", second)["status"] == "working"
    assert set(talk.ask("cancel", second)) <= {"resultType", "_meta"}
    assert talk.ask("get", second)["status"] == "cancelled" and len(talk.server.tasks._waiting) == 1
    talk.server.door("a").set(), talk.server.door("c").set()
    talk.until(first, "completed"), talk.until(third, "completed")
    assert talk.server.runs == ["a", "c"]               # the second never ran


def test_task_that_is_one_too_many(task_talk: Any) -> None:
    clock = TaskClock()
    talk = task_talk("memory", task_server(most=2, clock=clock))
    done = talk.create("must")
    talk.until(done, "completed")
    talk.create("name")
    for _ in range(2):                                  # a result for the model, and no traceback
        full = talk.request("tools/call", {"name": "later", "arguments": {"n": 1}})
        assert full["isError"] and full["resultType"] == "complete" and "Too many tasks" in full["content"][0]["text"]
    assert talk.ask("get", done)["status"] == "completed"       # what was promised is kept
    clock.now += 3600
    talk.until(talk.create("later", n=1), "completed")


# ---- the server: time

def test_task_is_forgotten_when_its_time_is_over(task_talk: Any) -> None:
    clock = TaskClock()
    server = task_server(clock=clock, ttl_ms=60000)

    @server.tasks.tool(ttl_ms=None)
    def always() -> str:
        return "always"
    talk = task_talk("memory", server)
    done, runs, asks, stays = talk.create("must"), talk.create("hold", name="x"), talk.create("name"), talk.create("always")
    assert stays["ttlMs"] is None
    talk.until(done, "completed"), talk.until(asks, "input_required"), talk.until(stays, "completed")
    assert server.door("x runs").wait(PATIENCE)
    with talk.listen([], filters={"taskIds": [runs["taskId"], asks["taskId"], done["taskId"]]}) as heard:
        clock.now += 59.999
        server.tasks.sweep()
        assert [talk.ask("get", one)["status"] for one in (done, runs, asks)] == ["completed", "working", "input_required"]
        clock.now += 0.001
        for one in (done, runs, asks):                  # before anybody has swept
            assert str(talk.refuses(-32602, "get", one)) == "Task not found"
            assert str(talk.refuses(-32602, "update", one, inputResponses={})) == "Task not found"
            assert str(talk.refuses(-32602, "cancel", one)) == "Task not found"
        assert not server.door("x done").is_set()
        server.tasks.sweep()
        assert server.door("x done").wait(PATIENCE)     # it was told
        told = [next(iter(heard))["params"] for _ in range(2)]
    assert {one["taskId"]: (one["status"], one["statusMessage"]) for one in told} == {
        one["taskId"]: ("cancelled", "its time is over") for one in (runs, asks)}
    assert list(server.tasks._tasks) == [stays["taskId"]]
    clock.now += 1e9
    assert talk.ask("get", stays)["status"] == "completed"


def test_task_is_forgotten_without_being_asked(task_talk: Any) -> None:
    server = task_server(ttl_ms=10_000_000)

    @server.tasks.tool(ttl_ms=40)
    def brief(ctx: Context) -> None:
        ctx.on_cancel(server.door("cancelled").set)
        assert server.door("cancelled").wait(PATIENCE)
    talk = task_talk("memory", server)
    talk.create("must"), talk.create("brief")           # the later one is to be forgotten first
    assert server.door("cancelled").wait(PATIENCE)
    wait_until(lambda: len(server.tasks._tasks) == 1)
    wait_until(lambda: server.tasks._alarm > time.time() + 9000)
    assert [one.name for one in threading.enumerate()].count("tasks-clock") >= 1
    server.tasks._tasks.clear()
    with server.tasks._lock:
        server.tasks._lock.notify()
    wait_until(lambda: not server.tasks._ticking)       # nobody waits for nothing
    talk.create("brief")
    wait_until(lambda: not server.tasks._tasks and not server.tasks._ticking)


# ---- the server: cancelling

@TASK_PLACES
def test_task_is_cancelled(task_talk: Any, where: str) -> None:
    """ext-tasks §Task Cancellation."""
    talk = task_talk(where)
    task = talk.create("hold", name="x")
    assert talk.server.door("x runs").wait(PATIENCE)
    assert set(talk.ask("cancel", task)) <= {"resultType", "_meta"}
    state = talk.ask("get", task)
    assert state["status"] == "cancelled" and not {"result", "error", "inputRequests"} & state.keys()
    assert talk.server.door("x done").wait(PATIENCE)    # cooperative: it was told, and came to its end
    wait_until(lambda: talk.server.tasks._working == 0)
    assert talk.ask("cancel", task)["resultType"] == "complete"
    assert talk.ask("update", task, inputResponses={"x": {}})["resultType"] == "complete"
    assert talk.ask("get", task) == state               # what came late changes nothing
    done = talk.create("must")
    state = talk.until(done, "completed")
    assert talk.ask("cancel", done)["resultType"] == "complete" and talk.ask("get", done) == state


def test_task_is_cancelled_while_it_asks(task_talk: Any) -> None:
    talk = task_talk()
    task = talk.create("name")
    key, = talk.until(task, "input_required")["inputRequests"]
    talk.ask("cancel", task)
    talk.answer(task, **{key: {"name": "Bob"}})
    assert talk.ask("get", task)["status"] == "cancelled" and talk.server.tasks._working == 0


def test_task_is_cancelled_at_the_last_moment(task_talk: Any) -> None:
    """A thread has taken it, but has not begun: then it does not begin."""
    talk = task_talk()
    server, handle = talk.server, talk.server.handle
    passed = threading.Event()

    def late(message: Any, send: Any, **options: Any) -> None:
        if isinstance(options["peer"], tk.TaskPeer):
            handle(modern("tasks/cancel", capabilities=tk.DECLARE, taskId=message["id"]), lambda answer: None)
        handle(message, send, **options)
        passed.set()
    server.handle = late
    task = talk.create("must")
    assert passed.wait(PATIENCE)
    assert talk.ask("get", task)["status"] == "cancelled" and server.runs == []


def test_task_of_a_call_that_was_cancelled(tasks_end: Any, ordered: Any) -> None:
    """Nobody knows its id, so nobody could."""
    server, made, go = task_server(), threading.Event(), threading.Event()

    @server.tool
    def slow_start(ctx: Context) -> Any:
        task = server.tasks.start(ctx)
        if task is None:
            ctx.on_cancel(server.door("cancelled").set)
            made.set()
            assert server.door("cancelled").wait(PATIENCE)
            return "late"
        assert go.wait(PATIENCE)
        return task
    conversation = ordered("""
        modern {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        > 1 tools/call {"name": "slow_start"}""", server)
    assert made.wait(PATIENCE)
    conversation.do('> - notifications/cancelled {"requestId": 1}')
    assert server.door("cancelled").wait(PATIENCE)
    go.set()
    task, = server.tasks._tasks.values()
    assert task.status == "cancelled"


def test_task_bears_what_others_do_when_it_is_cancelled(task_talk: Any, capfd: Any) -> None:
    """A function of the tool that fails, and a listener that does."""
    talk = task_talk()

    @talk.server.tasks.tool
    def bad(ctx: Context) -> None:
        ctx.on_cancel(lambda: 1 / 0)
        talk.server.door("bad runs").set()
        assert talk.server.door("bad").wait(PATIENCE)
    task = talk.create("bad")
    assert talk.server.door("bad runs").wait(PATIENCE)
    talk.server.tell = lambda *_: [][0]
    talk.ask("cancel", task)
    err = capfd.readouterr().err
    assert talk.ask("get", task)["status"] == "cancelled" and "division by zero" in err and "out of range" in err
    talk.server.door("bad").set()


class TaskEnds:
    """Listens to all that a server tells of its tasks; what came after an end is a mistake."""

    def __init__(self, server: Any) -> None:
        self.states: Dict[str, List[Any]] = {}
        self.tasks: List[Any] = []
        self.lock = threading.Lock()
        server.tell = self.tell

    def tell(self, member: str, what: Any, method: str, params: Any) -> None:
        assert (member, method, what) == ("taskIds", "notifications/tasks", params["taskId"])
        with self.lock:
            self.states.setdefault(what, []).append(params)

    def end(self, task: Any) -> str:
        """Return the end of a task: there was one, and it is the one that stays."""
        wait_until(lambda: self.states.get(task.id, [{}])[-1].get("status") in tk.OVER)
        ends = [state["status"] for state in self.states[task.id] if state["status"] in tk.OVER]
        assert ends == [task.status]
        self.tasks.append(task)
        return str(ends[0])


@pytest.mark.parametrize("ends", ["cancel", "expire", "answer and cancel", "answer twice"])
def test_task_races_have_one_winner(tasks_end: Any, ends: str) -> None:
    """Cancelling, finishing, expiring and answering meet at a barrier: there is exactly one end."""
    clock = TaskClock()
    server = task_server(clock=clock, threads=4)
    told, outcomes, runs = TaskEnds(server), Counter(), Counter()    # type: TaskEnds, Counter[str], Counter[str]
    gate = threading.Barrier(3)

    @server.tasks.tool
    def race(n: int, ctx: Context) -> str:
        runs[str(n)] += 1
        if "answer" in ends:
            ctx.elicit("Go?", go=bool)
        else:
            gate.wait(PATIENCE)
        return "won"

    def call(method: str, **params: Any) -> Any:
        out: List[Any] = []
        server.handle(modern(method, capabilities={**tk.DECLARE, "elicitation": {}}, **params), out.append)
        assert "result" in out[-1] or out[-1]["error"]["message"] == "Task not found", out
        return out[-1].get("result")

    def cancel(task: Any) -> None:
        call("tasks/cancel", taskId=task.id)

    def answer(task: Any) -> None:
        call("tasks/update", taskId=task.id, inputResponses={
            "1-elicitation-1": {"action": "accept", "content": {"go": True}}})

    def expire(task: Any) -> None:
        clock.now = task.ends
        server.tasks.sweep()

    def move(function: Any, task: Any) -> None:
        gate.wait(PATIENCE)
        function(task)
    for n in range(120):
        task = server.tasks._tasks[call("tools/call", name="race", arguments={"n": n})["taskId"]]
        first, second = {"cancel": (cancel, cancel), "expire": (expire, expire), "answer and cancel": (answer, cancel),
                         "answer twice": (answer, answer)}[ends]
        if "answer" in ends:
            wait_until(lambda: task.status == "input_required")     # noqa: B023
        moves = [in_thread(functools.partial(move, one, task)) for one in (first, second)]
        if "answer" in ends:
            gate.wait(PATIENCE)                         # otherwise the tool is the third
        for outcome in moves:
            outcome()
        outcomes[told.end(task)] += 1
        assert not task.answers and not task.open and not task.params       # nothing is kept for nothing
    wait_until(lambda: server.tasks._working == 0)
    for task in list(told.tasks):
        told.end(task)                                  # and it has stayed so
    assert sum(outcomes.values()) == 120 and not server.tasks._waiting
    if ends == "answer twice":
        assert outcomes == {"completed": 120} and set(runs.values()) == {2}


# ---- the server: questions

@TASK_PLACES
def test_task_takes_answers_bit_by_bit(task_talk: Any, where: str) -> None:
    """ext-tasks §Task Update Requests: partial, unknown, repeated and late ones."""
    talk = task_talk(where)
    task = talk.create("both")
    asked = talk.until(task, "input_required")
    assert asked.keys() - {"_meta"} == {"resultType", "inputRequests", *TASK_CREATED}
    assert {key: question["method"] for key, question in asked["inputRequests"].items()} == {
        "1-a": "elicitation/create", "2-b": "elicitation/create"}
    talk.refuses(-32602, "update", task)
    talk.refuses(-32602, "update", task, inputResponses=["1-a"])
    for nothing in ({}, {"a": {}, "3-c": {}, "": 3}, {"1-A": {"action": "decline"}}):
        assert set(talk.ask("update", task, inputResponses=nothing)) <= {"resultType", "_meta"}
        assert talk.ask("get", task) == asked           # it did not even change
    talk.answer(task, **{"2-b": {"b": 2}, "unknown": {"x": 1}})
    state = talk.ask("get", task)
    assert state["status"] == "input_required" and state["inputRequests"] == {"1-a": asked["inputRequests"]["1-a"]}
    talk.answer(task, **{"2-b": {"b": 222}})            # answered already: the first one counts
    assert talk.ask("get", task) == state
    talk.answer(task, **{"1-a": {"a": 1}, "2-b": {"b": 222}})
    state = talk.until(task, "input_required", inputRequests={"3-elicitation-3": {}})
    assert list(state["inputRequests"]) == ["3-elicitation-3"]
    talk.answer(task, **{"1-a": {"a": 111}, "3-elicitation-3": {"c": 3}})
    state = talk.until(task, "completed")
    assert said(state["result"]) == "{'a': 1} {'b': 2} {'c': 3}"
    talk.answer(task, **{"3-elicitation-3": {"c": 333}})
    assert talk.ask("get", task) == state


def test_task_never_uses_a_key_again(task_talk: Any) -> None:
    """ext-tasks §Task Update Requests: not even to ask for what was answered badly."""
    talk = task_talk()
    task = talk.create("both")
    assert list(talk.until(task, "input_required")["inputRequests"]) == ["1-a", "2-b"]
    talk.ask("update", task, inputResponses={"1-a": {"action": "perhaps"}, "2-b": {"action": "accept", "content": {"b": 2}}})
    state = talk.until(task, "input_required", inputRequests={"3-a": {}})
    assert list(state["inputRequests"]) == ["3-a"]      # the good one is not asked for again
    for number, bad in enumerate((None, [], {"action": "accept", "content": {"a": "x"}}), 4):
        talk.ask("update", task, inputResponses={"%d-a" % (number - 1): bad, "1-a": {"action": "accept", "content": {"a": 0}}})
        state = talk.until(task, "input_required", inputRequests={"%d-a" % number: {}})
        assert len(state["inputRequests"]) == 1
    talk.answer(task, **{"6-a": {"a": 1}})
    talk.until(task, "input_required", inputRequests={"7-elicitation-3": {}})
    talk.answer(task, **{"7-elicitation-3": {"c": 3}})
    assert said(talk.until(task, "completed")["result"]) == "{'a': 1} {'b': 2} {'c': 3}"


def test_task_waits_for_people_without_a_thread(task_talk: Any) -> None:
    talk = task_talk("memory", task_server(threads=1))
    tasks = [talk.create("name") for _ in range(5)]
    keys = [list(talk.until(task, "input_required")["inputRequests"])[0] for task in tasks]
    wait_until(lambda: talk.server.tasks._working == 0)
    for task, key in zip(tasks, keys):
        talk.answer(task, **{key: {"name": task["taskId"]}})
    for task in tasks:
        assert said(talk.until(task, "completed")["result"]) == "I am " + task["taskId"]


def test_task_waits_for_people_longer_than_a_request_state_lasts(task_talk: Any, monkeypatch: Any) -> None:
    """The tool then runs from its beginning, but nobody is asked twice."""
    clock = TaskClock()
    monkeypatch.setattr(mcp_ref.time, "time", clock)    # the core's, which seals the state
    talk = task_talk("memory", task_server(clock=clock, ttl_ms=None))
    task = talk.create("both")
    for keys, more in ((["1-a", "2-b"], {"1-a": {"a": 1}, "2-b": {"b": 2}}),
                       (["3-elicitation-3"], {"3-elicitation-3": {"c": 3}})):
        assert list(talk.until(task, "input_required", inputRequests={keys[0]: {}})["inputRequests"]) == keys
        clock.now += 2 * mcp_ref.STATE_SECONDS
        talk.answer(task, **more)
    assert said(talk.until(task, "completed")["result"]) == "{'a': 1} {'b': 2} {'c': 3}"


@pytest.mark.parametrize("late", [0, 2 * mcp_ref.STATE_SECONDS])
def test_task_gives_no_answer_to_another_question(task_talk: Any, monkeypatch: Any, late: float) -> None:
    """The tool asks something else than before by the same key: it gets no answer that was for that."""
    clock = TaskClock()
    monkeypatch.setattr(mcp_ref.time, "time", clock)
    talk = task_talk("memory", task_server(clock=clock, ttl_ms=None))
    victim = ["cat"]

    @talk.server.tasks.tool
    def delete(ctx: Context) -> str:
        what = victim[0]
        return "%s: %s" % (what, ctx.elicit("Delete the %s?" % what, sure=bool)["content"]["sure"])
    task = talk.create("delete")
    talk.until(task, "input_required")
    victim[0] = "dog"
    clock.now += late
    talk.answer(task, **{"1-elicitation-1": {"sure": True}})
    state = talk.until(task, "input_required", inputRequests={"2-elicitation-1": {}})
    assert state["inputRequests"]["2-elicitation-1"]["params"]["message"] == "Delete the dog?"
    talk.answer(task, **{"2-elicitation-1": {"sure": False}})
    assert said(talk.until(task, "completed")["result"]) == "dog: False"


def test_task_may_ask_only_what_the_client_declared(task_talk: Any) -> None:
    talk = task_talk(elicit=None)
    state = talk.until(talk.create("name"), "failed")
    assert state["error"]["code"] == -32021 and state["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@TASK_PLACES
def test_task_may_begin_after_questions(task_talk: Any, where: str) -> None:
    """ext-tasks §Task Creation: the rounds of the call itself come first, with keys of their own."""
    talk = task_talk(where)
    created = talk.create("first_ask")                  # the client has answered `who` on the way
    assert created.keys() - {"_meta"} == {"resultType", *TASK_CREATED} and created["resultType"] == "task"
    calls = talk.tape.params("tools/call")
    assert [set(call) - {"name", "arguments"} for call in calls] == [set(), {"inputResponses", "requestState"}]
    state = talk.until(created, "input_required")
    assert list(state["inputRequests"]) == ["1-where"] and "requestState" not in state
    talk.answer(created, **{"1-where": {"place": "Rome"}})
    state = talk.until(created, "completed")
    assert said(state["result"]) == "Ann in Rome" and "requestState" not in state


# ---- the server: telling

@TASK_PLACES
def test_task_tells_who_listens(task_talk: Any, where: str) -> None:
    """ext-tasks §Task Status Notifications: each carries what tasks/get would say."""
    talk = task_talk(where)
    task, other = talk.create("name"), talk.create("name")
    talk.until(task, "input_required"), talk.until(other, "input_required")
    for odd in ("x", {"a": 1}, 3, None, [3], [["x"]]):
        with pytest.raises(RpcError) as raised:
            talk.listen([], filters={"taskIds": odd})
        assert raised.value.code == -32602
    with pytest.raises(mcp_ref.ServerLacks):
        talk.listen([], filters={"taskIds": ["unknown"]})
    with talk.listen("tools", filters={"taskIds": ["unknown", task["taskId"]]}) as heard:
        assert heard.filter == {"toolsListChanged": True, "taskIds": [task["taskId"]]}
        talk.answer(other, **{"1-elicitation-1": {"name": "nobody hears"}})
        talk.until(other, "completed")
        talk.answer(task, **{"1-elicitation-1": {"name": "Bob"}})
        state = talk.until(task, "completed")
        told = []
        while not told or told[-1]["params"]["status"] != "completed":
            told.append(next(iter(heard)))
        talk.ask("cancel", task), talk.answer(task, **{"1-elicitation-1": {"name": "late"}})
        talk.server.changed("tools")
        assert next(iter(heard)) == "tools"             # there is nothing after the end
    for one in told:
        assert one["method"] == "notifications/tasks" and one["params"]["taskId"] == task["taskId"]
    assert [one["params"]["status"] for one in told] in (["working", "completed"], ["completed"])
    final = {key: value for key, value in told[-1]["params"].items() if key != "_meta"}
    assert final == {key: value for key, value in state.items() if key not in ("_meta", "resultType")}


def test_task_is_told_in_order_by_many_threads(tasks_end: Any) -> None:
    """Progress and an end from different threads: nothing is told after what came later."""
    server = task_server()
    told, go = TaskEnds(server), threading.Barrier(4)

    @server.tasks.tool
    def busy(ctx: Context) -> str:
        def report(first: int) -> None:
            go.wait(PATIENCE)
            for number in range(first, 60, 2):
                ctx.progress(number)
        reports = [in_thread(functools.partial(report, first)) for first in (1, 2)]
        go.wait(PATIENCE)
        for outcome in reports:
            outcome()
        return "done"
    for _ in range(20):
        out: List[Any] = []
        server.handle(modern("tools/call", capabilities=tk.DECLARE, name="busy"), out.append)
        ident = out[0]["result"]["taskId"]
        go.wait(PATIENCE)
        server.handle(modern("tasks/cancel", capabilities=tk.DECLARE, taskId=ident), out.append)
        told.end(server.tasks._tasks[ident])
        numbers = [int(state["statusMessage"]) for state in told.states[ident] if state["status"] == "working"]
        assert numbers == sorted(numbers)
        wait_until(lambda: server.tasks._working == 0)
        told.end(server.tasks._tasks[ident])


def test_task_tells_the_last_word_last(task_talk: Any) -> None:
    """While one thread is at telling, another has something newer to tell."""
    server, told, at_it, newer = task_server(), [], threading.Event(), threading.Event()    # type: Any, List[str], Any, Any

    def tell(member: str, what: Any, method: str, params: Any) -> None:
        if params["status"] == "working":
            at_it.set()
            newer.wait(0.05)                # as long as it takes the other, if that does not wait
        told.append(params["status"])
        newer.set()
    server.tell = tell
    talk = task_talk("memory", server)
    task = talk.create("steps")
    assert at_it.wait(PATIENCE)
    talk.ask("cancel", task)
    assert told == ["working", "cancelled"]


def test_task_survives_a_listener_that_is_slow(task_talk: Any) -> None:
    """It holds up what is told of one task, and nothing else."""
    talk = task_talk()
    server, stuck, tell = talk.server, threading.Event(), talk.server.tell
    one, two = talk.create("name"), talk.create("name")
    talk.until(one, "input_required"), talk.until(two, "input_required")

    def slow(member: str, what: Any, *rest: Any) -> None:
        if what == one["taskId"]:
            assert stuck.wait(PATIENCE)
        tell(member, what, *rest)
    server.tell = slow
    waiting = in_thread(lambda: talk.answer(one, **{"1-elicitation-1": {"name": "One"}}))
    talk.answer(two, **{"1-elicitation-1": {"name": "Two"}})
    talk.until(two, "completed"), talk.until(one, "completed")
    stuck.set()
    waiting()


# ---- the server: as a program

def test_task_demonstration_shows_what_it_says() -> None:
    path = HERE / "examples" / "tasks.py"
    (command, output), = shell_blocks((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False) or "") + "\n")
    assert in_shell(command, HERE) == output


def test_task_holds_up_no_server_that_is_left(tmp_path: Path) -> None:
    """At the end of input the process ends, whatever its tasks do; and to import it starts nothing."""
    path = tmp_path / "server.py"
    path.write_text("""
import sys, threading
sys.path[:0] = [%r, %r]
import tasks
from mcp_ref import Server
assert threading.active_count() == 1
server = Server("left")
@tasks.Tasks(server).tool(required=True)
def never_ends() -> None:
    threading.Event().wait(600)
server.run()
""" % (str(HERE), str(HERE / "examples")))
    began = time.monotonic()
    done = run(str(path), stdin=json.dumps(modern("tools/call", capabilities=tk.DECLARE, name="never_ends")) + "\n")
    assert done.returncode == 0 and done.stderr == "" and time.monotonic() - began < 60
    assert json.loads(done.stdout)["result"]["resultType"] == "task"


def test_task_fixtures_of_the_official_suite(tasks_end: Any, link: Any, monkeypatch: Any) -> None:
    """examples/everything_server.py: what the suite looks at, and what it does not."""
    monkeypatch.setattr(tk, "POLL_SECONDS", (0.01, 0.01, 0.01))
    client = link([sys.executable, str(HERE / "examples" / "everything_server.py")], MODERN[0], checks=False,
                  stderr=lambda line: None, elicit=lambda form: {
                      key: {"boolean": True, "string": "Ann"}[part["type"]]
                      for key, part in form["requestedSchema"]["properties"].items()}, **TASKS_DECLARED)
    tasks = tk.ClientTasks(client)
    for name, arguments, answer in (
            ("greet", {"name": "Ann"}, "Hello, Ann!"), ("slow_compute", {"label": "x"}, "computed x"),
            ("confirm_delete", {"filename": "f"}, "f is deleted"), ("multi_input", {}, "got confirm, name"),
            ("test_tool_with_task", {}, "Hello, Ann!")):
        task = tasks.start(name, arguments)
        assert bool(task.id) == (name != "greet")
        assert said(task.wait(PATIENCE)) == answer
    assert tasks.start("failing_job").wait(PATIENCE)["isError"]
    with pytest.raises(RpcError, match="intentionally"):
        tasks.start("protocol_error_job").wait(PATIENCE)
    task = tasks.start("slow_compute", {"seconds": 600})
    task.cancel()
    with pytest.raises(mcp_ref.RequestCancelled):
        task.wait(PATIENCE)


# ---- the client

@pytest.fixture
def task_client(tasks_end: Any, link: Any) -> Any:
    """Connect clients that wait for tasks; `client.tasks` is their ClientTasks."""
    def start(where: Any = "memory", server: Any = None, waits: Any = None, **options: Any) -> Any:
        if server is None and isinstance(where, str):
            server = task_server()
        client = link(where, MODERN[0], server, **{**TASKS_DECLARED, **TASKS_ANSWERED, **options})
        client.tasks = tk.ClientTasks(client, **{"longest": PATIENCE, **(waits or {})})
        return client
    return start


@TASK_PLACES
@pytest.mark.parametrize("listen", [False, True])
def test_task_client_has_the_result_in_the_end(task_client: Any, where: str, listen: bool) -> None:
    asked: List[Any] = []

    def elicit(form: Any, tags: Any) -> Any:
        asked.append((form["message"], tags))
        return {key: 7 if part["type"] == "integer" else "Ann" for key, part in form["requestedSchema"]["properties"].items()}
    seen: List[Any] = []
    client = task_client(where, elicit=elicit, waits={"listen": listen, "on_change": seen.append})
    assert said(client.call_tool("both", tag="T")) == "{'a': 7} {'b': 7} {'c': 7}"
    assert asked == [("A?", ["T"]), ("B?", ["T"]), ("C?", ["T"])]
    assert set(seen[0]) == TASK_CREATED and seen[0]["status"] == "working" and seen[-1]["status"] == "completed"
    assert "inputRequests" in [key for state in seen for key in state] and len({one["taskId"] for one in seen}) == 1
    client.list_tools()
    assert client.call_tool("later", {"n": 1})["structuredContent"] == {"result": 1}
    assert said(client.call_tool("first_ask", tag="U")) == "Ann in Ann" and asked[3:] == [("Who?", ["U"]), ("Where?", ["U"])]
    assert said(client.call_tool("plain")) == "plain"
    assert client.call_tool("fails", {"how": "result"})["isError"]
    with pytest.raises(RpcError) as raised:
        client.call_tool("fails", {"how": "own"})
    assert (raised.value.code, raised.value.data) == (7, [7])
    assert not {"tasks/cancel", "notifications/cancelled"} & set(client.tape.sent()) - (
        {"notifications/cancelled"} if listen else set())       # of a subscription, that one
    assert ("subscriptions/listen" in client.tape.sent()) == listen


def test_task_client_checks_the_output_of_tasks(task_client: Any) -> None:
    client = task_client()
    client.server.tools["later"] = client.server.tools["later"]._replace(output=None)
    client.list_tools()
    entry = client.server.tools["later"]
    client.server.tools["later"] = entry._replace(function=lambda _ctx, n: client.server.tasks.start(_ctx) or {
        "content": [], "structuredContent": {"result": "no number"}})
    with pytest.raises(mcp_ref.Malformed, match="output schema"):
        client.call_tool("later", {"n": 1})


@pytest.mark.parametrize("listen", [False, True])
def test_task_client_learns_of_a_cancelled_task(task_client: Any, listen: bool) -> None:
    client = task_client(waits={"listen": listen})
    call = in_thread(lambda: client.call_tool("hold", {"name": "x"}))
    assert client.server.door("x runs").wait(PATIENCE)
    wait_until(lambda: "tasks/get" in client.tape.sent())
    ident, = client.server.tasks._tasks
    client.tasks.resume(ident).cancel()
    with pytest.raises(mcp_ref.RequestCancelled, match="cancelled by the client"):
        call()
    assert client.tape.sent().count("tasks/cancel") == 1        # it knew that it was over


@TASK_PLACES
def test_task_client_holds_on_to_a_task(task_client: Any, where: str) -> None:
    client = task_client(where)
    task = client.tasks.start("hold", {"name": "x"})
    assert not task.over and task.state["status"] == "working" and task.get()["taskId"] == task.id
    with pytest.raises(TimeoutError, match="not over in time"):
        task.wait(0.03)
    assert "tasks/cancel" not in client.tape.sent()
    client.server.door("x").set()
    assert said(task.wait()) == said(task.wait()) == "held" and task.over
    sent = len(client.tape.sent())
    assert task.get()["status"] == "completed" and len(client.tape.sent()) == sent      # that is final
    plain = client.tasks.start("plain")
    assert plain.over and plain.id == "" and said(plain.wait()) == "plain"
    with pytest.raises(RpcError, match="Unknown tool"):
        client.tasks.start("nonsense")
    assert said(client.call_tool("must")) == "a task"   # start() is over, whatever came of it


def test_task_client_comes_back_in_another_life(task_client: Any, site: Any) -> None:
    """ext-tasks §Task Polling: ids are kept, so that polling resumes after a crash."""
    server = task_server()
    url = "http://127.0.0.1:%d/mcp" % site(server).port
    first = task_client(url)
    ident = first.tasks.start("name").id
    first.close()
    asked: List[Any] = []
    second = task_client(url, elicit=lambda form, tags: asked.append(tags) or {"name": "Bob"})
    assert said(second.tasks.resume(ident, tag="T").wait()) == "I am Bob" and asked == [["T"]]
    assert said(second.tasks.resume(ident).wait()) == "I am Bob" and len(asked) == 1
    with pytest.raises(RpcError, match="Task not found"):
        second.tasks.resume("unknown").wait()
    with pytest.raises(mcp_ref.Malformed):
        second.tasks.resume("x" * 2000)


@TASK_PLACES
@pytest.mark.parametrize("listen", [False, True])
def test_task_client_is_closed_while_it_waits(task_client: Any, where: str, listen: bool) -> None:
    client = task_client(where, task_server(poll_ms=60000), waits={"listen": listen, "longest": 600})
    call = in_thread(lambda: client.call_tool("hold", {"name": "x"}))
    assert client.server.door("x runs").wait(PATIENCE)
    wait_until(lambda: sum("taskId" in message.get("result", {}) for way, message in client.tape.lines) == 1 + listen)
    time.sleep(0.02)                                    # now it rests
    client.close()
    with pytest.raises(mcp_ref.Disconnected):
        call()
    client.server.door("x").set()


# ---- the client: servers that are odd

TASK_TIME = "2027-01-15T08:00:00.000Z"
TASK_STATE = {"taskId": "T", "status": "working", "createdAt": TASK_TIME, "lastUpdatedAt": TASK_TIME, "ttlMs": None, "pollIntervalMs": 20}
TASK_ENDED = {"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}}
ASKED_NAME = elicitation("Your name?", name=str)


def task_state(**members: Any) -> Any:
    """Return the answer to tasks/get."""
    return {"result": {"resultType": "complete", **TASK_STATE, **members}}


def task_made(**members: Any) -> Any:
    """Return the answer to tools/call."""
    return {"result": {"resultType": "task", **TASK_STATE, **members}}


def task_without(message: Any, member: str) -> Any:
    return {"result": {key: value for key, value in message["result"].items() if key != member}}


@pytest.fixture
def task_puppet(task_client: Any) -> Any:
    """Connect to a server that says what it is told to; `client.pauses` are seconds between polls."""
    def start(get: Any, call: Any = None, update: Any = None, waits_for: Any = None, **options: Any) -> Any:
        client = task_client(Puppet(**{"tools/call": call or task_made(), "tasks/get": get, "tasks/cancel": {"result": {"resultType": "complete"}},
                                 "tasks/update": update or {"result": {"resultType": "complete"}}}),
                       checks=False, waits=waits_for, **options)
        client.pauses, wait = [], client.left.wait
        client.left.wait = lambda seconds: client.pauses.append(seconds) or wait(min(seconds, 0.002))
        return client
    return start


@pytest.mark.parametrize("answer", [
    task_made(taskId=None), task_made(taskId=3), task_made(taskId="x" * 2000), task_made(status="sleeping"), task_made(status=["working"]),
    task_without(task_made(), "taskId"), task_without(task_made(), "status")])
def test_task_client_refuses_what_is_no_task(task_puppet: Any, answer: Any) -> None:
    client = task_puppet(task_state(**TASK_ENDED), answer)
    with pytest.raises(mcp_ref.Malformed):
        client.call_tool("x")
    assert "tasks/get" not in client.tape.sent()


@pytest.mark.parametrize("answer", [
    task_state(taskId="U"), task_without(task_state(), "taskId"), task_state(status="done"), task_state(status={}), task_without(task_state(), "status"),
    task_state(status="completed"), task_state(status="completed", result=[]), task_state(status="failed"),
    task_state(status="failed", error={"message": "no code"}, result=[]), task_state(status="failed", error={"code": "1", "message": "m"}),
    task_state(status="input_required"), task_state(status="input_required", inputRequests=[ASKED_NAME]),
    task_state(status="input_required", inputRequests={"k": 3}), task_state(status="input_required", inputRequests={"k": {"method": "ping"}}),
    task_state(status="completed", result={}), task_state(status="completed", result={"content": "x"}),
    task_state(status="completed", result={"resultType": "task", "content": []}),
    task_state(status="completed", result={"resultType": "input_required", "content": []}),
    {"result": {**task_made()["result"], **TASK_ENDED}},              # ext-tasks §Polymorphic Results: of another method
    {"result": []}, {"result": {"resultType": "surprise"}}])
def test_task_client_refuses_what_is_no_state(task_puppet: Any, answer: Any) -> None:
    client = task_puppet(answer)
    for wait in (lambda: client.call_tool("x"), client.tasks.resume("T").wait):
        with pytest.raises(mcp_ref.Malformed):
            wait()


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "tools/list", "tasks/get", "tasks/update", "x/y"])
def test_task_client_wants_no_task_but_of_a_tool(task_client: Any, method: str) -> None:
    """ext-tasks §Capability Negotiation: it is an invalid response."""
    client = task_client(Puppet(**{method: task_made()}), checks=False)
    with pytest.raises(mcp_ref.Malformed, match="answered by a task"):
        client.request(method, {})
    with pytest.raises(mcp_ref.Malformed, match="resultType"):      # and without the extension
        del client.result_types["task"]
        client.request(method, {})


def test_task_client_takes_a_seed_for_what_it_is(task_puppet: Any) -> None:
    """A CreateTaskResult has a status, but nothing that goes with it."""
    for seed in ("input_required", "completed", "failed", "cancelled"):
        client = task_puppet(task_state(**TASK_ENDED), task_made(status=seed, statusMessage=3, ttlMs="x"))
        assert said(client.call_tool("x")) == "done" and client.tape.sent().count("tasks/get") == 1


@pytest.mark.parametrize("interval, pause", [
    (20, 0.02), (250, 0.25), (2000.0, 2), (0, 1), (-5, 1), (0.001, 0.02), (1, 0.02), (10**9, 60), (10**400, 1), (1e300, 1),
    ("50", 1), (None, 1), (True, 1), ([], 1), ({}, 1)])
def test_task_client_polls_as_the_server_wishes_within_reason(task_puppet: Any, interval: Any, pause: float) -> None:
    client = task_puppet([task_state(pollIntervalMs=interval), task_state(pollIntervalMs=30), task_state(**TASK_ENDED)],
                    task_made(pollIntervalMs=interval), waits_for={"longest": 1000})
    assert said(client.call_tool("x")) == "done"
    assert client.pauses == [pause, pause, 0.03]        # it may change
    client.transport.script.answers["tasks/get"] = [task_without(task_state(), "pollIntervalMs"), task_state(**TASK_ENDED)]
    assert said(client.tasks.resume("T").wait()) == "done" and client.pauses[3:] == [1]


def test_task_client_tells_each_change_once(task_puppet: Any) -> None:
    seen: List[Any] = []
    client = task_puppet([task_state(), task_state(), task_state(statusMessage="more"), task_state(statusMessage="more"), task_state(**TASK_ENDED)],
                    waits_for={"on_change": seen.append})
    client.call_tool("x")
    assert [(one["status"], one.get("statusMessage")) for one in seen] == [
        ("working", None), ("working", "more"), ("completed", None)]


@pytest.mark.parametrize("options, ttl", [({"longest": 0.05}, None), ({"longest": 600}, 50), ({"longest": 0}, 10**9),
                                          ({"longest": -1}, "x"), ({"longest": 0.05}, -1), ({"longest": 0.05}, True)])
def test_task_client_does_not_wait_for_ever(task_puppet: Any, options: Any, ttl: Any) -> None:
    """ext-tasks §Task Polling: to the end, or to tasks/cancel; the ttl is a backstop."""
    client = task_puppet(task_state(ttlMs=ttl), task_made(ttlMs=ttl), waits_for=options)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="task T is not over in time"):
        client.call_tool("x")
    assert time.monotonic() - began < PATIENCE / 2
    assert client.tape.params("tasks/cancel") == [{"taskId": "T"}] and client.tape.sent()[-1] == "tasks/cancel"


def test_task_client_does_not_wait_for_a_server_that_is_silent(task_puppet: Any) -> None:
    client, began = task_puppet(lambda message: None, waits_for={"longest": 0.05}), time.monotonic()
    client.transport.script.answers["tasks/cancel"] = [None]
    tk.CANCEL_SECONDS, before = 0.02, tk.CANCEL_SECONDS
    try:
        with pytest.raises(TimeoutError):
            client.call_tool("x")
    finally:
        tk.CANCEL_SECONDS = before
    assert "tasks/cancel" in client.tape.sent() and time.monotonic() - began < PATIENCE / 2


def test_task_client_answers_each_question_once(task_puppet: Any) -> None:
    """ext-tasks §Task Update Requests: by its key, however often it comes, and whatever it says then."""
    asked: List[str] = []
    again = task_state(status="input_required", inputRequests={"k": elicitation("Something else?", name=str)})
    client = task_puppet([task_state(status="input_required", inputRequests={"k": ASKED_NAME}), again, again, task_state(inputRequests=[3]),
                     task_state(status="input_required", inputRequests={"k": ASKED_NAME, "l": ASKED_NAME}), task_state(**TASK_ENDED)],
                    elicit=lambda form: asked.append(form["message"]) or {"name": "Ann"})
    assert said(client.call_tool("x")) == "done" and asked == ["Your name?"] * 2
    accept = {"action": "accept", "content": {"name": "Ann"}}
    assert client.tape.params("tasks/update") == [
        {"taskId": "T", "inputResponses": {"k": accept}}, {"taskId": "T", "inputResponses": {"l": accept}}]


def test_task_client_answers_so_many_questions_only(task_puppet: Any) -> None:
    numbers, asked = iter(range(10**6)), []     # type: Any, List[Any]
    client = task_puppet(lambda message: task_state(status="input_required", inputRequests={"k%d" % next(numbers): ASKED_NAME}),
                    elicit=lambda form: asked.append(1) or {"name": "Ann"})
    with pytest.raises(mcp_ref.Malformed, match="100 questions"):
        client.call_tool("x")
    assert len(asked) == 100 and client.tape.sent()[-1] == "tasks/cancel"


def test_task_client_that_cannot_answer_cancels(task_puppet: Any) -> None:
    """Its own trouble, a question that was not offered: the task would wait for nothing."""
    def broken(form: Any) -> Any:
        raise OSError("the terminal is gone")
    for question, options, problem in (
            (ASKED_NAME, {"elicit": broken}, OSError),
            (sampling("Hi"), {}, mcp_ref.Malformed), (sampling("Hi"), {"sample": lambda question: None}, AskError)):
        client = task_puppet(task_state(status="input_required", inputRequests={"k": question}), **options)
        with pytest.raises(problem):
            client.call_tool("x")
        assert client.tape.sent().count("tasks/get") == 1 and client.tape.sent()[-1] == "tasks/cancel"


def test_task_client_bears_breaks(web: Any, monkeypatch: Any) -> None:
    """A task outlives a lost connection, and a server that is asked too often; an answer is not lost."""
    monkeypatch.setattr(tk, "POLL_SECONDS", (0.01, 0.01, 0.01))
    asks = task_state(status="input_required", inputRequests={"k": ASKED_NAME})
    asked: List[Any] = []
    client = web(MODERN[0], {**TASKS_DECLARED, "elicit": lambda form: asked.append(form) or {"name": "Ann"}}, tools_list=NO_TOOLS,
                 tools_call=task_made(), tasks_get=[503, (429, "slow down"), 500, asks, 502, task_state(**TASK_ENDED)],
                 tasks_update=[503, {"result": {"resultType": "complete"}}])
    tasks = tk.ClientTasks(client, longest=PATIENCE)
    assert said(client.call_tool("x")) == "done" and len(asked) == 1
    assert client.web.keys().count("tasks/update") == 2
    names = {ask.headers["mcp-name"] for ask in client.web.asked if ask.key.startswith("tasks/")}
    assert names == {"T"}
    client.web.script.answers.update({"tasks/get": [503], "tasks/cancel": [503]})
    pauses, wait = [], client.left.wait             # type: List[float], Any
    client.left.wait = lambda seconds: pauses.append(seconds) or wait(seconds)
    for attempt, count in ((lambda: client.call_tool("x"), 4), (tasks.resume("T").wait, 3)):
        pauses.clear()
        before = client.web.keys().count("tasks/get")
        with pytest.raises(mcp_ref.HttpError):
            attempt()
        assert client.web.keys().count("tasks/get") == before + tk.MAX_MISSES + 1 and len(pauses) == count


def test_task_client_polls_where_it_cannot_listen(task_puppet: Any) -> None:
    for answer in (refused(-32601), refused(-32602), lambda message: [acknowledged(message)]):
        client = task_puppet([task_state(), task_state(**TASK_ENDED)], waits_for={"listen": True})
        client.transport.script.answers["subscriptions/listen"] = [answer]
        assert said(client.call_tool("x")) == "done" and client.pauses == [0.02, 0.02]


def test_task_client_listens_and_is_only_woken(task_client: Any, monkeypatch: Any) -> None:
    """What a notification says does not count: it may be late, or false."""
    told: List[Any] = []
    lies = {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {**TASK_STATE, "status": "failed", "error": {"code": 1, "message": "m"}}}

    def listened(message: Any) -> Any:
        told.append(message["id"])
        return [acknowledged(message, taskIds=["T"])]
    polls = iter([task_state(pollIntervalMs=1), task_state(pollIntervalMs=1), task_state(**TASK_ENDED)])

    def get(message: Any) -> Any:
        answer = {"jsonrpc": "2.0", "id": message["id"], **next(polls)}
        change = {**lies, "params": {**lies["params"], "_meta": {mcp_ref.META_SUBSCRIPTION: told[0]}}}
        return [answer, change]
    client = task_client(Puppet(**{"tools/call": task_made(), "subscriptions/listen": listened, "tasks/get": get}), checks=False,
                   waits={"listen": True})
    began = time.monotonic()
    assert said(client.call_tool("x")) == "done" and client.tape.sent().count("tasks/get") == 3
    assert time.monotonic() - began < PATIENCE / 2      # it did not wait for LISTEN_SECONDS
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "tasks-listen"])


def test_task_client_that_listens_hardly_polls(task_client: Any) -> None:
    client = task_client(Puppet(**{"tools/call": task_made(), "subscriptions/listen": lambda message: [acknowledged(message, taskIds=["T"])],
                             "tasks/get": task_state(), "tasks/cancel": DONE}), checks=False, waits={"listen": True, "longest": 0.2})
    with pytest.raises(TimeoutError):
        client.call_tool("x")
    assert client.tape.sent().count("tasks/get") <= 2   # at the beginning and at the end


def test_task_client_makes_no_flood_of_a_flood(task_client: Any) -> None:
    def get(message: Any) -> Any:
        params = {**TASK_STATE, "_meta": {mcp_ref.META_SUBSCRIPTION: subscriptions[0]}}
        return [{"jsonrpc": "2.0", "id": "ID", **task_state()}, {"jsonrpc": "2.0", "method": "notifications/tasks", "params": params}]
    subscriptions: List[Any] = []
    client = task_client(Puppet(**{"tools/call": task_made(), "tasks/get": get, "tasks/cancel": DONE, "subscriptions/listen":
                             lambda message: subscriptions.append(message["id"]) or [acknowledged(message, taskIds=["T"])]}),
                   checks=False, waits={"listen": True, "longest": 0.2})
    with pytest.raises(TimeoutError):
        client.call_tool("x")
    assert client.tape.sent().count("tasks/get") < 15


def test_task_client_polls_again_when_the_server_ends_the_subscription(task_client: Any) -> None:
    def listened(message: Any) -> Any:
        return [acknowledged(message, taskIds=["T"]), {
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}]
    client = task_client(Puppet(**{"tools/call": task_made(), "subscriptions/listen": listened,
                             "tasks/get": [task_state(), task_state(), task_state(), task_state(**TASK_ENDED)]}), checks=False, waits={"listen": True})
    assert said(client.call_tool("x")) == "done"


def test_task_client_in_a_session_has_no_tasks(tasks_end: Any, link: Any) -> None:
    client = link("memory", LEGACY[0], task_server(), **TASKS_DECLARED)
    tasks = tk.ClientTasks(client)
    assert said(client.call_tool("later", {"n": 1})) == "1" and tasks.start("later", {"n": 1}).id == ""


# ---- both, against the official schema of the extension

@pytest.mark.skipif("MCP_EXT_TASKS" not in os.environ, reason="needs MCP_EXT_TASKS, a checkout of the extension")
@TASK_PLACES
def test_task_messages_are_those_of_the_extension(task_talk: Any, where: str) -> None:
    document = json.loads(Path(os.environ["MCP_EXT_TASKS"], "schema", "draft", "schema.json").read_text(encoding="utf-8"))
    document.pop("$schema")
    talk = task_talk(where)
    asks, fails, holds = talk.create("name"), talk.create("fails", how="own"), talk.create("hold", name="x")
    talk.until(asks, "input_required"), talk.until(fails, "failed"), talk.until(holds, "working")
    with talk.listen([], filters={"taskIds": [asks["taskId"], holds["taskId"]]}) as heard:
        talk.answer(asks, **{"1-elicitation-1": {"name": "Ann"}})
        talk.until(asks, "completed")
        talk.ask("cancel", holds)
        talk.until(holds, "cancelled")
        told = [next(iter(heard)) for _ in range(2)]
    seen, methods = set(), {}       # type: Set[str], Dict[Any, str]
    for way, message in [*talk.tape.lines, *(("<", one) for one in told)]:
        verb = message.get("method", methods.get(message.get("id"), ""))
        if way == ">" and "id" in message:
            methods[message["id"]] = verb
        kind = {"tasks/get": "GetTask", "tasks/update": "UpdateTask", "tasks/cancel": "CancelTask"}.get(verb, "")
        kind = kind and kind + ("Request" if way == ">" else "Result")
        if verb == "tools/call" and message.get("result", {}).get("resultType") == "task":
            kind = "CreateTaskResult"
        if verb == "notifications/tasks":
            kind, message = "TaskStatusNotification", {"jsonrpc": "2.0", **message}
        if kind:
            seen.add(kind + message.get("result", {}).get("status", ""))
            flaw = Schema({**document, "$ref": "#/$defs/" + kind}).flaw(message["result"] if "result" in message else message)
            assert flaw is None, (kind, flaw, message)
    assert seen == {"CreateTaskResultworking", *("GetTaskResult" + one for one in (
        "working", "input_required", "completed", "failed", "cancelled")), "GetTaskRequest", "UpdateTaskRequest",
        "UpdateTaskResult", "CancelTaskRequest", "CancelTaskResult", "TaskStatusNotification"}


# ------------------------------------------------------------------------------------------
# What an embedder found in an afternoon
# ------------------------------------------------------------------------------------------

def connected(tmp_path: Path, program: str, **options: Any) -> Any:
    """Start a program with a server, that finds the module; return a client."""
    place = tmp_path / "program.py"
    place.write_text(program, encoding="utf-8")
    return mcp_ref.connect([sys.executable, "-W", "error", str(place)], timeout=PATIENCE,
                           env={"PYTHONPATH": str(HERE), **options.pop("env", {})}, **options)


def test_a_result_beyond_the_limits_is_an_error_at_once(tmp_path):
    with connected(tmp_path, '''
import mcp_ref
mcp_ref.MAX_MESSAGE_BYTES = 10000
server = mcp_ref.Server("large")

@server.tool
def deep(levels: int) -> dict:
    found: dict = {}
    for _ in range(levels):
        found = {"a [ in a text": [found]} if levels < 50 else {"a": found}
    return {"structuredContent": found}

@server.tool
def long(size: int) -> str:
    return "x" * size

server.run()
''', stderr=lambda line: None) as client:
        assert client.call_tool("deep", {"levels": 45})["structuredContent"]
        for name, arguments, said in (("deep", {"levels": 120}, "nested deeper than 100 levels"),
                                      ("long", {"size": 10000}, "more than 10000 bytes")):
            with pytest.raises(RpcError, match="The result is " + said) as caught:
                client.call_tool(name, arguments)
            assert caught.value.code == -32603
        nested: Any = {}
        for _ in range(120):
            nested = [nested]
        with pytest.raises(ValueError, match="nested deeper"):
            client.request("example.org/any", {"x": nested})
        assert client.call_tool("long", {"size": 10})["content"][0]["text"] == "x" * 10


def test_a_foreign_response_beyond_the_limits_fails_its_call_at_once(tmp_path):
    """Its id can be seen, though it cannot be read; the next call is served."""
    with connected(tmp_path, r'''
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and request["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
    elif request["method"] == "example/deep":
        print('{"jsonrpc": "2.0", "id": %d, "result": {"x": %s%s}}' % (request["id"], "[" * 200, "]" * 200), flush=True)
    elif request["method"] == "example/long":
        print('{"jsonrpc": "2.0", "id": %d, "result": {"x": "%s"}}' % (request["id"], "x" * 17000000), flush=True)
    elif "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {}}), flush=True)
''', revision=LEGACY[0]) as client:
        with pytest.raises(mcp_ref.Malformed, match="example/deep is what is no message .*nested deeper"):
            client.request("example/deep")
        with pytest.raises(mcp_ref.Malformed, match="example/long is a line of more than 16777216 bytes"):
            client.request("example/long")
        assert client.request("example/fine") == {}


def test_a_worker_process_does_not_serve(tmp_path):
    """Under `spawn` it imports the program once more, run() included."""
    with connected(tmp_path, HELLO.replace("server.run()", '''
import multiprocessing
import threading
from typing import List

def threads() -> list:
    return [thread.name for thread in threading.enumerate()]

@server.tool
def start_worker() -> List[str]:
    "Say which threads run in a worker."
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(threads)

server.run()
''')) as client:
        names = client.call_tool("start_worker")["structuredContent"]["result"]
        assert names and not [name for name in names if name.startswith("mcp-")]


def test_wrapped_functions_keep_their_hints():
    import functools as tools

    class Decorated:
        def __init__(self, function: Any) -> None:
            tools.update_wrapper(self, function)
            self.function = function

        def __call__(self, *given: Any, **named: Any) -> Any:
            return self.function(*given, **named)

    def paint(color: Color, times: int, ctx: Context) -> str:
        """Paint."""
        return f"{color} {times} {ctx.method}"
    for wrapped in (tools.lru_cache(maxsize=None)(paint), Decorated(paint)):
        server = Server("x")
        server.tool(wrapped)
        with mcp_ref.connect(server) as client:
            tool, = client.list_tools()
            assert tool["name"] == "paint" and set(tool["inputSchema"]["properties"]) == {"color", "times"}
            assert tool["inputSchema"]["properties"]["times"] == {"type": "integer"}
            result = client.call_tool("paint", {"color": "b", "times": 2})
            assert result["content"][0]["text"] == "Color.BLUE 2 tools/call"


def test_async_tools_run_on_the_programs_own_loop():
    """Server(run=loop.call_soon_threadsafe): they share the loop's locks, and run side by side."""
    import asyncio

    async def main() -> List[str]:
        loop, lock = asyncio.get_running_loop(), asyncio.Lock()
        first = asyncio.Event()
        server = Server("loop", run=loop.call_soon_threadsafe)

        @server.tool
        async def one() -> str:
            await first.wait()
            async with lock:
                return f"one {asyncio.get_running_loop() is loop}"

        @server.tool
        async def two() -> str:
            async with lock:
                first.set()
            return f"two {asyncio.get_running_loop() is loop}"

        @server.tool
        async def bad() -> str:
            await asyncio.sleep(0)
            raise ValueError("it went wrong")

        @server.tool
        async def asks(ctx: Context) -> str:
            await asyncio.sleep(0)
            return str(ctx.elicit("Who?", name=str)["content"]["name"])

        @server.tool
        def plain() -> str:
            return "plain"

        def call(name: str) -> str:
            with mcp_ref.connect(server, timeout=PATIENCE, elicit=lambda form: {"name": "Ada"}) as client:
                return str(client.call_tool(name)["content"][0]["text"])
        return await asyncio.gather(*(loop.run_in_executor(None, call, name)
                                      for name in ("one", "two", "bad", "asks", "plain")))
    assert asyncio.run(main()) == ["one True", "two True", "it went wrong", "Ada", "plain"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_loses_the_pipe_and_nothing_else(tmp_path):
    with connected(tmp_path, HELLO.replace("server.run()", '''
import os
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(12)]
for place in held[2:12:3]:
    os.close(place)                             # gaps, for the pipe to fall into
mine = [place for place in held if place not in held[2:12:3]]
before = set(os.listdir("/dev/fd"))

@server.tool
def fork() -> str:
    "Say which of our descriptors a child has lost, and how many of others."
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lost = []
        for place in mine:
            try:
                os.fstat(place)
            except OSError:
                lost.append(place)
        os.write(write, str(len(lost)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 10).decode()

server.run()
''').replace("from mcp_ref", "import warnings; warnings.simplefilter('ignore')\nfrom mcp_ref")) as client:
        assert client.call_tool("fork")["content"][0]["text"] == "0"


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                                 {"PYTHONIOENCODING": "cp1252"}], ids=str)
def test_a_tool_may_print_what_the_code_page_lacks(tmp_path, env):
    said: List[str] = []
    with connected(tmp_path, HELLO.replace("    return a + b", '    print("\\N{SNOWMAN}")\n    return a + b'),
                   env=env, stderr=said.append) as client:
        assert client.call_tool("add", {"a": 2, "b": 3})["structuredContent"] == {"result": 5}
    assert said == ["\\u2603"]


def test_what_a_tool_returns_may_have_fields_that_are_not_given():
    @dataclass
    class Order:
        price: float
        total: float = field(init=False)

        def __post_init__(self) -> None:
            self.total = 2 * self.price
    server = Server("x")

    def order() -> Any:
        return Order(10)
    order.__annotations__["return"] = Order
    server.tool(order)
    with mcp_ref.connect(server) as client:
        assert client.call_tool("order")["structuredContent"] == {"price": 10, "total": 20}


def test_hints_that_are_odd():
    import typing

    class Note:
        pass

    def tool(hint: Any) -> Any:
        def odd(x: Any) -> str:
            return "x"
        odd.__annotations__ = {"x": hint}
        return mcp_ref.Signature(odd).schema["properties"]["x"]
    assert tool(Annotated[int, Note(), "how many"]) == {"type": "integer", "description": "how many"}
    assert tool(typing.NewType("UserId", int)) == {"type": "integer"}
    for hint in ("a file name", "typing.Nope", "Nope"):
        with pytest.raises(TypeError, match=r"^odd: "):
            tool(hint)

    def two(a: Context, b: Context) -> str:
        return "x"
    with pytest.raises(TypeError, match=r"two\(\): one Context is enough"):
        mcp_ref.Signature(two)

    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b
    signature = mcp_ref.Signature(functools.partial(add, b=5))
    assert signature.name == "add" and signature.described == {"description": "Add."}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="NotRequired is of 3.11")
def test_not_required_is_seen_through_strings():
    names: Dict[str, Any] = {}
    exec("from __future__ import annotations\nfrom typing import NotRequired, TypedDict\n"     # noqa: S102
         "class P(TypedDict):\n    a: int\n    b: NotRequired[int]\n", names)
    sys.modules["not_required"] = type(sys)("not_required")
    vars(sys.modules["not_required"]).update(names)
    names["P"].__module__ = "not_required"
    try:
        assert schema_of(names["P"])["required"] == ["a"]
    finally:
        del sys.modules["not_required"]


def test_an_endpoint_closes_for_itself_and_for_good():
    server = make_server()
    endpoints = [mcp_ref.Endpoint(server) for _ in range(2)]
    https = [mcp_ref.http_server(endpoint) for endpoint in endpoints]
    threads = [threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True) for one in https]
    for thread in threads:
        thread.start()
    try:
        with mcp_ref.connect(f"http://127.0.0.1:{https[1].server_port}/mcp", timeout=PATIENCE) as client, \
                client.listen(["tools"]) as changes:
            https[0].close()
            server.changed("tools")
            assert next(iter(changes)) == "tools" and not changes.over.is_set()
        with pytest.raises(ValueError, match="closed: make another"):
            mcp_ref.http_server(endpoints[0])
    finally:
        https[1].close()
        for thread in threads:
            thread.join(PATIENCE)


def test_why_a_server_does_not_speak_it_is_said(web):
    with pytest.raises(mcp_ref.Disconnected, match=f"does not speak {MODERN[0]}: .* 404 .*nothing here"):
        web(options={"revision": MODERN[0]}, server_discover=(404, "nothing here"))


# ------------------------------------------------------------------------------------------
# The extension io.modelcontextprotocol/skills, examples/skills.py
# ------------------------------------------------------------------------------------------

def load_skills() -> Any:
    """Import the example; what it puts on the path stays out of it."""
    spec: Any = importlib.util.spec_from_file_location("skills", HERE / "examples" / "skills.py")
    module = sys.modules["skills"] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


sk = load_skills()
SECRET = b"the secret of another folder"


def skill_md(name: str, *lines: str, description: str = "Do it") -> bytes:
    return "\n".join(["---", "name: " + name, "description: " + description, *lines, "---", "", "# Do it"]).encode()


def shelve(folder: Path, *paths: str) -> Path:
    """Make skills: for `a/b` a folder a/b with a SKILL.md in it, for `a/b.md` a file; return the folder."""
    for path in paths:
        if "." in path.rpartition("/")[2]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(b"of " + path.encode())
        else:
            (folder / path).mkdir(parents=True, exist_ok=True)
            (folder / path / "SKILL.md").write_bytes(skill_md(path.rpartition("/")[2]))
    return folder


def skill_server(*folders: Any, **options: Any) -> Any:
    """Return a server with the skills of some folders; `server.shelf` is what serves them."""
    server: Any = Server("skills", **options)
    server.shelf = sk.serve_skills(server, *folders)
    return server


def as_on_windows(monkeypatch: Any, by_folder: bool) -> None:
    """Do without what Windows does not have, unless `by_folder`. (A pipe would block then, as it cannot there.)"""
    if not by_folder:
        monkeypatch.setattr(sk, "BY_FOLDER", False)
        monkeypatch.setattr(sk, "_READ", os.O_RDONLY)


def yes(skill: Any, before: Any) -> bool:
    return True


@pytest.fixture
def host(link: Any, monkeypatch: Any) -> Any:
    """Connect hosts to a server (or any target of `link`); `skills.tape` is what went by."""
    monkeypatch.setattr(mcp_ref, "MAX_MESSAGE_BYTES", mcp_ref.MAX_MESSAGE_BYTES)     # Skills raises it

    def start(server: Any = None, where: Any = "memory", version: str = "", label: str = "docs", approve: Any = yes,
              checks: bool = True, **options: Any) -> Any:
        client = link(where, version, server, checks=checks)
        skills = sk.Skills(client, label, approve, **options)
        skills.tape = client.tape
        return skills
    return start


def uris(skills: Any) -> List[str]:
    return [skill.uri for skill in skills.list_skills()]


def digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def not_found(client: Any, method: str, uri: Any) -> None:
    """See that a URI is answered as one that does not exist, and that nothing of the secret comes along."""
    with pytest.raises(RpcError) as caught:
        client.request(method, {"uri": uri})
    codes = [-32602, -32002] if method == "resources/read" and not client.modern else [-32602]
    assert caught.value.code in codes, (uri, str(caught.value))
    assert SECRET.decode() not in str(caught.value)


# ---- frontmatter

YAML = [
    ("a: b", {"a": "b"}),
    ("a: b c  # comment\n# comment\n\n   # comment\nb: http://x.y:1/z#q", {"a": "b c", "b": "http://x.y:1/z#q"}),
    ("a: 1\nb: -2\nc: +3\nd: 0.5\ne: .5\nf: 1e3\ng: 0x1F\nh: 0o17\ni: 017\nj: -1.5E-2",
     {"a": 1, "b": -2, "c": 3, "d": 0.5, "e": 0.5, "f": 1000.0, "g": 31, "h": 15, "i": 17, "j": -0.015}),
    ("a: true\nb: False\nc: null\nd: ~\ne:\nf: TRUE", {"a": True, "b": False, "c": None, "d": None, "e": None, "f": True}),
    ("a: yes\nb: off\nc: 2026-01-01\nd: 12:30\ne: 1_000\nf: 1.2.3\ng: nullish\nh: on",
     {"a": "yes", "b": "off", "c": "2026-01-01", "d": "12:30", "e": "1_000", "f": "1.2.3", "g": "nullish", "h": "on"}),
    ("a: '1'\nb: \"true\"\nc: 'it''s: # not'\nd: \"\\\"q\\\" \\\\ \\n\\t\\u00e9\\x41\\U0001F600\\/\"",
     {"a": "1", "b": "true", "c": "it's: # not", "d": "\"q\" \\ \n\t\u00e9A\U0001F600/"}),
    ("a: one\n  two\n\n  three # end\nb: x", {"a": "one two\nthree", "b": "x"}),
    ("a: \"one\n  two\n\n\n  three \"\nb: 'x\n  y'", {"a": "one two\n\nthree ", "b": "x y"}),
    ("a:\n  one\n  two", {"a": "one two"}),
    ("a: >\n  one\n  two\n\n  three\n   deeper\n  four\n\nb: x", {"a": "one two\nthree\n deeper\nfour\n", "b": "x"}),
    ("a: >-\n  one\n  two\n", {"a": "one two"}),
    ("a: |\n  one\n   two\n\n  # three\nb: |-\n  x\nc: |+\n  y\n\nd: z",
     {"a": "one\n two\n\n# three\n", "b": "x", "c": "y\n\n", "d": "z"}),
    ("a: |  # comment\n\n    one\n\ttab\n".replace("\n\t", "\n    \t"), {"a": "\none\n\ttab\n"}),
    ("a: |\nb: >-\nc: |+\n", {"a": "", "b": "", "c": "\n"}),
    ("a:\n  - b\n  - 'c'\n  - 3", {"a": ["b", "c", 3]}),
    ("a:\n- b\n-\n- - c\n  - d\n- e: f\n  g:\n  - h\ni: j", {"a": ["b", None, ["c", "d"], {"e": "f", "g": ["h"]}], "i": "j"}),
    ("a: [b, 'c, d', \"e\", 4, [true, null]]  # comment", {"a": ["b", "c, d", "e", 4, [True, None]]}),
    ("a: {b: c, \"d\":1, e: [f], g: {}, h: }", {"a": {"b": "c", "d": 1, "e": ["f"], "g": {}, "h": None}}),
    ("a: [b,\n  c,\n]   # end\nd: {\n  \"e\": \"f\"\n  }", {"a": ["b", "c"], "d": {"e": "f"}}),
    ("metadata:\n  author: me\n  version: \"1.0\"\n  deep:\n    er: x\nb: c",
     {"metadata": {"author": "me", "version": "1.0", "deep": {"er": "x"}}, "b": "c"}),
    ("'a b': c\n\"d\" : e\nf g: h\n-i: j\n?k: l", {"a b": "c", "d": "e", "f g": "h", "-i": "j", "?k": "l"}),
    ("a: -x\nb: ?x\nc: :x\nd: x,y\ne: x:y\nf: x#y\ng: x]", {"a": "-x", "b": "?x", "c": ":x", "d": "x,y", "e": "x:y",
                                                                 "f": "x#y", "g": "x]"}),
    ("{a: b}", {"a": "b"}),
    ("a: \u00fc \U0001F600", {"a": "\u00fc \U0001F600"}),
    ("allowed-tools: Bash(git:*) Read\ncompatibility: \"a: b\"", {"allowed-tools": "Bash(git:*) Read", "compatibility": "a: b"}),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_skills_frontmatter_is_read(newline: str) -> None:
    for text, value in YAML:
        raw = newline.join(["---", *text.split("\n"), "---", "body --- \t\0"]).encode()
        for start in (b"", b"\xef\xbb\xbf"):
            assert json.dumps(sk.frontmatter(start + raw)) == json.dumps(value), text
    assert sk.frontmatter(b"---\na: b\n---") == {"a": "b"}


BAD_YAML = [        # what is wrong, the line it is said of, some words of it
    ("a: b\na: c", 3, "twice"), ("a: {b: 1, b: 2}", 2, "twice"), ("a: b: c", 2, "quotes"), ("a: b\n  c: d", 2, "quotes"),
    ("a: &x b", 2, "anchors"), ("b: c\na: *x", 3, "anchors"), ("a: !!str b", 2, "anchors"), ("a: !x b", 2, "anchors"),
    ("&a b: c", 2, "anchors"), ("<<: b", 2, "quotes"), ("? a\n: b", 2, "quotes"), ("[a]: b", 2, "complete"),
    ("1: b", 2, "quotes"), ("true: b", 2, "quotes"), ("null: b", 2, "quotes"), (": b", 2, "missing"),
    ("a:\tb", 2, "tab"), ("\ta: b", 2, "tab"), ("a: b\n\tc: d", 3, "tab"), ("a:\n  - b\n\t- c", 4, "tab"),
    ("a: [b", 2, "brackets"), ("a: {b: c", 2, "brackets"), ("a: \"b", 2, "closed"), ("a: 'b\nc: d", 2, "closed"),
    ("a: [b] c", 2, "follows"), ("a: \"b\" c", 2, "follows"), ("a: [b c: d]", 2, "belongs"), ("a: {b}", 2, "':'"),
    ("a: [b,,c]", 2, "missing"), ("a: [b # c\n  ]", 2, "brackets"), ("a: [{b: c\n}]", 2, "brackets"), ("a: 'b\n]'", 2, "closed"), ("a: b\n]", 3, "key: value"),
    ("a: [b\n]\n]", 2, "follows"), ("a:\n  b: [c\n]", 3, "brackets"), ("a: ]", 2, "begins with"), ("a: }", 2, "begins with"),
    ("a: %b", 2, "begins with"), ("a: @b", 2, "begins with"), ("a: `b`", 2, "begins with"), ("a: , b", 2, "begins with"),
    ("a: - b", 2, "quotes"), ("a: b\n  - c", 2, "quotes"), ("a: -", 2, "quotes"), ("a: ?\n\n  b", 2, "quotes"), ("a: ?", 2, "quotes"), ("a: b\n# c\n  d", 4, "indented"),
    ("a: b # c\n  d", 2, "after a comment"), ("a: b\n  c: d\n e: f", 2, "quotes"), ("a:\n  b: c\n d: e", 4, "indented"),
    ("a:\n    b: c\n   d: e", 4, "indented"), ("a:\n  - b\n   - c", 3, "quotes"), ("a: |2\n  b", 2, "after |"),
    ("a: |x\n  b", 2, "after |"), ("a: |\n    \n  b", 2, "empty line"), ("a: \"\\q\"", 2, "no character"),
    ("a: \"\\ud83d\\ude00\"", 2, "no character"), ("a: \"\\U00110000\"", 2, "no character"), ("a: \"\\x4\"", 2, "no character"),
    ("a: \"b\\\n  c\"", 2, "backslash"), ("a: \"b \\ \n  c\"", 2, "backslash"), ("a: .inf", 2, "JSON"), ("a: -.INF", 2, "JSON"),
    ("a: .nan", 2, "JSON"), ("a: 1e999", 2, "JSON"), ("a: " + "9" * 41, 2, "JSON"), ("a: 0x" + "f" * 41, 2, "JSON"), ("a: 0o" + "7" * 41, 2, "JSON"), ("a: 0." + "1" * 50, 2, "JSON"),
    ("--- a: b", 2, "document"), ("a: b\n...", 3, "document"), ("a: b\n... \nc: d", 3, "document"), ("%YAML 1.2\na: b", 2, "quotes"),
    ("- a", 2, "mapping"), ("a", 2, "mapping"), ("", 2, "mapping"), ("# nothing", 2, "mapping"), ("[a]", 2, "mapping"),
    ("a: b\n- c", 3, "key: value"), ("a: b\nc", 3, "key: value"), ("a: b\n c: d", 2, "quotes"), ("a:\n- b\n  c", 0, ""),
    ("a: \x07", 2, "print"), ("a: b\nc: \x7f", 3, "print"), ("a: \u2028", 2, "print"), ("a: \x85", 2, "print"),
    ("a: \ufeff", 2, "print"), ("a: b\rc: d", 2, "print"), ("a: \ufffe", 2, "print"),
    ("a: " + 17 * "[", 2, "deeper"), ("a:\n" + "".join(" " * n + "- \n" for n in range(1, 18)), 18, "deeper"),
    ("a: " + "- " * 20, 2, "quotes"), ("a:\n  " + "- " * 20 + "b", 3, "deeper"),
]


@pytest.mark.parametrize("text, line, words", [one for one in BAD_YAML if one[1]], ids=[
    ascii(one[0])[:30] for one in BAD_YAML if one[1]])
def test_skills_frontmatter_that_cannot_be_read_is_an_error_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(sk.SkillError, match=r"^line %d: .*%s" % (line, re.escape(words))):
        sk.frontmatter(("---\n%s\n---\n" % text).encode("utf-8", "surrogatepass"))


def test_skills_frontmatter_has_a_beginning_and_an_end() -> None:
    for raw in (b"", b"a: b", b"# x\n---\na: b\n---\n", b"---\na: b\n", b"---\na: b\n--- x", b" ---\na: b\n---", b"----\na: b\n---",
                b"\n---\na: b\n---", b"---\na: " + b"x" * 70000 + b"\n---\n", b"---\n---", b"--\na: b\n--", b"\xff\xfe-\0-\0-\0"):
        with pytest.raises(sk.SkillError, match="frontmatter"):
            sk.frontmatter(raw)
    with pytest.raises(sk.SkillError, match="line 3: .*UTF-8"):
        sk.frontmatter(b"---\na: b\nc: \xff\n---\n")
    with pytest.raises(sk.SkillError, match="line 2: .*UTF-8"):
        sk.frontmatter(b"---\na: \xed\xa0\x80\n---\n")
    assert sk.frontmatter(b"---\na: b\n---\n" + b"x" * 10**6 + b"\xff") == {"a": "b"}     # the body is not looked at


@pytest.mark.parametrize("part", ["[", "{a: ", "- ", "\"", "'", "a: ", " ", "&a *a ", "\\", "x:", ": ", "#", " #", "- - - ", "?", "\n", "\n ",
                                  "a\n", "a: |\n", "- a: >\n", "\"\\", "a: \"\n", "{\"a\":[", "''", "~", "a: &a [*a, *a]\n"])
def test_skills_frontmatter_takes_no_longer_than_it_is_long(part: str) -> None:
    """Nothing grows faster than the text: no bombs, no nesting without end, no pattern that goes astray."""
    for head in ("", "a: ", "a: \"", "a: [", "a:\n  - ", "a: |\n  "):
        text = head + part * (60000 // len(part))
        before = time.process_time()
        try:
            sk.frontmatter(("---\n%s\n---\n" % text).encode())
        except sk.SkillError:
            pass
        assert time.process_time() - before < PATIENCE / 4


# ---- what is served

@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with skills: by itself, in a prefix, nested, with files of all kinds."""
    folder = shelve(tmp_path / "library", "git-flow", "git-flow/references/a.md", "git-flow/references/deep/b c.md", "git-flow/run.py",
                    "acme/billing/refunds", "acme/billing/refunds/examples/mail.md", "acme/billing/refunds/inner", "acme/README.md",
                    "git-flow/.env", "git-flow/.git/config.txt", ".hidden/secret", "no-skill/x.md")
    (folder / "git-flow/empty").mkdir()
    (folder / "git-flow/pixel.png").write_bytes(PNG + b"\xff\0")
    (folder / "git-flow/odd \u00fc%20#?.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\0\n\xe2\x80\xa8\xf0\x9f\x98\x80")
    return folder


ALL = ["skill://acme/billing/refunds/SKILL.md", "skill://acme/billing/refunds/inner/SKILL.md", "skill://git-flow/SKILL.md"]


@newest
def test_skills_are_listed_fetched_and_read(host: Any, library: Path, where: str, version: str) -> None:
    """The same in both eras: the extension asks for the newest revision, but nothing in it needs that."""
    skills = host(skill_server(library), where, version)
    assert uris(skills) == ALL and not skills.refused
    flow = skills.registry[ALL[2]]
    assert (flow.name, flow.path, flow.description, flow.label) == ("git-flow", "git-flow", "Do it", "docs")
    assert ["/".join(path) for path in flow.files] == [
        "SKILL.md", "odd \u00fc%20#?.txt", "pixel.png", "references/a.md", "references/deep/b c.md", "run.py"]
    with skills.load(ALL[2]) as acting:
        assert acting.text == skill_md("git-flow").decode()
        for path, file in flow.files.items():
            raw = library.joinpath("git-flow", *path).read_bytes()
            assert (file.digest, file.size) == (digest(raw), len(raw)) and acting.read("/".join(path)) == raw
    outer, inner = skills.registry[ALL[0]], skills.registry[ALL[1]]
    assert outer.path == "acme/billing/refunds" and inner.path == "acme/billing/refunds/inner"
    assert [file.uri for file in outer.files.values()] == [
        ALL[0], "skill://acme/billing/refunds/examples/mail.md", ALL[1]]     # ext-skills §Resources: nested ones, too
    assert [file.uri for file in inner.files.values()] == [ALL[1]]
    assert [skills.get_skill(uri).digests for uri in ALL] == [skills.registry[uri].digests for uri in ALL]


@newest
def test_skills_declare_and_shape_what_they_answer(link: Any, library: Path, where: str, version: str) -> None:
    client = link(where, version, skill_server(library, ttl_ms=7000, cache_scope="public"))
    assert client.capabilities["extensions"][sk.EXTENSION] == {"directoryRead": True} and "resources" in client.capabilities
    listed, got = client.request("skills/list"), client.request("skills/get", {"uri": ALL[2]})
    for result in (listed, got):
        assert (result["ttlMs"], result["cacheScope"]) == (7000, "public") and "nextCursor" not in result
        assert result.get("resultType") == ("complete" if version == MODERN[0] else None)
    assert got["skill"] == listed["skills"][2]
    assert got["skill"]["frontmatter"] == {"name": "git-flow", "description": "Do it"}
    assert [one["uri"] for one in got["skill"]["resources"]][1] == "skill://git-flow/odd%20%C3%BC%2520%23%3F.txt"
    listed = {one["uri"]: one for one in client.list_resources()}
    assert list(listed) == ALL
    assert listed[ALL[0]]["name"] == "refunds" and listed[ALL[0]]["description"] == "Do it"
    assert all(one["mimeType"] == "text/markdown" for one in listed.values())
    contents, = client.read_resource("skill://git-flow/odd%20%C3%BC%2520%23%3F.txt")
    assert contents["mimeType"] == "text/plain" and contents["text"].startswith("\ufeffone\r\ntwo\r")
    contents, = client.read_resource("skill://git-flow/pixel.png")
    assert contents["mimeType"] == "image/png" and base64.b64decode(contents["blob"]) == PNG + b"\xff\0"
    client.read_resource("skill://git-flow/run.py")
    assert client.list_resource_templates()[0]["uriTemplate"] == "skill://{+path}"


@newest
def test_skills_directories_are_read(host: Any, library: Path, where: str, version: str) -> None:
    skills = host(skill_server(library), where, version)

    def children(uri: str) -> List[str]:
        return [one["uri"][len(uri) + 1:] + "/" * (one["mimeType"] == "inode/directory") for one in skills.read_directory(uri)]
    assert children("skill://git-flow") == ["SKILL.md", "empty/", "odd%20%C3%BC%2520%23%3F.txt", "pixel.png", "references/", "run.py"]
    assert children("skill://git-flow/references") == ["a.md", "deep/"]
    assert children("skill://git-flow/references/deep") == ["b%20c.md"] and children("skill://git-flow/empty") == []
    assert children("skill://acme") == ["billing/"] and children("skill://acme/billing") == ["refunds/"]
    assert children("skill://acme/billing/refunds") == ["SKILL.md", "examples/", "inner/"]
    main = skills.read_directory("skill://acme/billing/refunds")[0]
    assert main == {"uri": ALL[0], "name": "refunds", "description": "Do it", "mimeType": "text/markdown", "size": main["size"]}
    for uri in ("skill://git-flow/SKILL.md", "skill://git-flow/run.py", "skill://git-flow/", "skill://nothing", "skill://git-flow/x", "skill://",
                "skill://no-skill", "skill://.hidden", "skill://git-flow/.git", "skill://acme/README.md", "skill://git-flow/..", "", 5, None,
                "skill://GIT-FLOW", "other://git-flow", "skill://acme/"):
        not_found(skills.client, "resources/directory/read", uri)


ESCAPES = [         # after "skill://"; `S` stands for the name of the secret, `P` for its path
    "git-flow/../S", "git-flow/../../S", "../S", "..", ".", "git-flow/..", "git-flow/./SKILL.md", "./git-flow/SKILL.md",
    "git-flow/%2e%2e/S", "git-flow/%2e%2e%2fS", "git-flow%2f..%2f..%2fS", "git-flow/%252e%252e/S", "git-flow/%252e%252e%252fS",
    "git-flow/..%5c..%5cS", "git-flow/..\\..\\S", "git-flow\\SKILL.md", "git-flow%5cSKILL.md", "git-flow%2fSKILL.md",
    "P", "/P", "git-flow/P", "git-flow//P", "//P", "/git-flow/SKILL.md", "git-flow//SKILL.md", "git-flow/SKILL.md/", "git-flow/",
    "git-flow/SKILL.md/.", "git-flow/SKILL.md%00", "git-flow/%00", "git-flow/SKILL.md%00.txt", "git-flow/SKILL.md?x", "git-flow/SKILL.md#x",
    "git-flow/%53KILL.md", "git%2dflow/SKILL.md", "%67it-flow/SKILL.md", "git-flow/skill.md", "Git-flow/SKILL.md", "git-flow/SKILL.md%20",
    "git-flow/SKILL.md.", "git-flow/SKILL.MD", "git-flow/SKILL~1.MD", "C:/Windows/win.ini", "C%3a/Windows/win.ini", "git-flow/C:S",
    "git-flow/SKILL.md::$DATA", "git-flow/SKILL.md:x", "git-flow/%ff", "git-flow/%", "git-flow/%zz", "git-flow/%c0%ae%c0%ae/S",
    "git-flow/\u2025/S", "git-flow/%E2%80%A5/S", "git-flow/.env", "git-flow/.git/config.txt", ".hidden/secret/SKILL.md", "git-flow", "",
    "acme/README.md", "no-skill/x.md", "acme/billing", "git-flow/empty", "git-flow/references", "~/S", "~root/S", "$HOME", "git-flow/*",
    "user@git-flow/SKILL.md", "git-flow:80/SKILL.md", "a/" * 5000 + "x", "git-flow/" + "x" * 5000, "git-flow/" + "../" * 2000 + "P", "-", "NUL", "CON",
    "git-flow/odd \u00fc%20#?.txt", "git-flow/odd%20%c3%bc%2520%23%3f.txt", "git-flow/references/deep/b+c.md", "git-flow/references/deep/b c.md",
]


@pytest.mark.parametrize("by_folder", [True, False])
@pytest.mark.parametrize("version", [MODERN[0], LEGACY[0]])
def test_skills_no_uri_leads_out_of_the_folder(link: Any, library: Path, monkeypatch: Any, version: str, by_folder: bool) -> None:
    secret = library.parent / "secret"
    secret.write_bytes(SECRET)
    for place in (library, library / "git-flow"):
        (place / "..name").write_bytes(SECRET)
    as_on_windows(monkeypatch, by_folder)
    server = skill_server(library)
    client = link("memory", version, server)
    for escape in ESCAPES:
        uri = "skill://" + escape.replace("P", str(secret)[1:] if "P" in escape and "SKILL" not in escape else "P") if "S" not in escape \
            or "SKILL" in escape else "skill://" + escape.replace("S", "secret")
        not_found(client, "resources/read", uri)
        not_found(client, "skills/get", uri)
        if uri not in ("skill://git-flow", "skill://acme/billing", "skill://git-flow/empty", "skill://git-flow/references"):
            not_found(client, "resources/directory/read", uri)
        with pytest.raises(NotFound):           # the core refuses some of them before we do: so ask ourselves, too
            server.shelf.contents(uri)
    for uri in ("git-flow/SKILL.md", "SKILL://git-flow/SKILL.md", "file://" + str(secret), "file:///etc/passwd", "skill:git-flow/SKILL.md",
                "skill:/git-flow/SKILL.md", "skill:///git-flow/SKILL.md", "", " skill://git-flow/SKILL.md", "skill://git-flow/SKILL.md\n"):
        not_found(client, "resources/read", uri)
        not_found(client, "skills/get", uri)
    for uri in (None, 5, [], {"a": "b"}, True, 1.5):
        not_found(client, "skills/get", uri)
    assert client.request("skills/get", {"uri": ALL[2]})["skill"]["uri"] == ALL[2]


# ---- folders that are hostile, or odd

def make_socket(path: Path) -> Any:
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(str(path.parent))                  # the path of a socket has to be short
    try:
        listener.bind(path.name)
    finally:
        os.chdir(here)
    return listener


def deep(path: Path) -> None:
    (path / "/".join(["d"] * 40)).mkdir(parents=True)


ODD_FOLDERS = {             # what is in the folder of a skill, and what is said of it
    "a link to a file": (lambda at, secret: (at / "x").symlink_to(secret), "x is a link"),
    "a link to a file of the skill": (lambda at, secret: (at / "x").symlink_to("SKILL.md"), "x is a link"),
    "a link to a folder": (lambda at, secret: (at / "x").symlink_to(secret.parent), "x is a link"),
    "a link to its own folder": (lambda at, secret: (at / "x").symlink_to("."), "x is a link"),
    "a dangling link": (lambda at, secret: (at / "x").symlink_to("nothing"), "x is a link"),
    "a link below": (lambda at, secret: ((at / "d").mkdir(), (at / "d/x").symlink_to(secret)), "d/x is a link"),
    "SKILL.md is a link": (lambda at, secret: ((at / "SKILL.md").rename(at / "y"), (at / "SKILL.md").symlink_to("y")), "SKILL.md is a link"),
    "SKILL.md is a folder": (lambda at, secret: ((at / "SKILL.md").unlink(), (at / "SKILL.md").mkdir()), "there is no file SKILL.md"),
    "SKILL.md is a pipe": (lambda at, secret: ((at / "SKILL.md").unlink(), os.mkfifo(str(at / "SKILL.md"))), "SKILL.md is no file"),
    "a pipe": (lambda at, secret: os.mkfifo(str(at / "x")), "x is no file"),
    "a socket": (lambda at, secret: make_socket(at / "x").close(), "x is no file"),
    "a newline in a name": (lambda at, secret: (at / "x\ny").write_bytes(b""), "x%0Ay has a name"),
    "a name that is not UTF-8": (lambda at, secret: open(os.path.join(os.fsencode(at), b"x\xff"), "wb").close(), "has a name"),
    "a backslash in a name": (lambda at, secret: (at / "..\\x").mkdir() or (at / "a\\b").write_bytes(b""), "a%5Cb has a name"),
    "a name that turns round": (lambda at, secret: (at / "x\u202etxt").write_bytes(b""), "has a name"),
    "too deep": (lambda at, secret: deep(at), "in more than 32"),
}


@pytest.mark.parametrize("by_folder", [True, False])
@pytest.mark.parametrize("how", list(ODD_FOLDERS))
def test_skills_with_what_cannot_be_served_are_refused_and_the_others_are_not(
        host: Any, tmp_path: Path, monkeypatch: Any, capfd: Any, how: str, by_folder: bool) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    folder = shelve(tmp_path / "skills", "aaa", "bad", "bad/file.md", "zzz")
    ODD_FOLDERS[how][0](folder / "bad", tmp_path / "secret")
    as_on_windows(monkeypatch, by_folder)
    skills = host(skill_server(folder))
    assert uris(skills) == ["skill://aaa/SKILL.md", "skill://zzz/SKILL.md"]
    assert list(skills.client.server.shelf.refused) == ["skill://bad"] and ODD_FOLDERS[how][1] in skills.client.server.shelf.refused["skill://bad"]
    err = capfd.readouterr().err
    assert "skills: skill://bad is not served: " in err and ODD_FOLDERS[how][1] in err and err.count("\n") == 1     # said once
    for uri in ("skill://bad/SKILL.md", "skill://bad/file.md", "skill://bad/x", "skill://bad/d/x", "skill://bad/x/SKILL.md", "skill://bad/x%0Ay"):
        not_found(skills.client, "resources/read", uri)
        not_found(skills.client, "skills/get", uri)
    not_found(skills.client, "resources/directory/read", "skill://bad")
    assert [one["uri"] for one in skills.client.list_resources()] == uris(skills)


@pytest.mark.parametrize("looks", [0, 1])
def test_skills_devices_are_not_opened(host: Any, tmp_path: Path, monkeypatch: Any, looks: int) -> None:
    """Opening a device can do harm, so no file is opened before it was looked at, and again right then."""
    folder = shelve(tmp_path, "aaa", "bad", "bad/x.md")
    status, opened, open_it, seen = sk._status, [], os.open, []      # type: Any, List[Any], Any, List[str]
    device = os.stat("/dev/null")

    def look(place: Any, name: str) -> Any:
        seen.append(name)
        return device if name == "x.md" and seen.count(name) > looks else status(place, name)
    monkeypatch.setattr(sk, "_status", look)
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(path) or open_it(path, *rest, **more))
    skills = host(skill_server(folder))
    assert uris(skills) == ["skill://aaa/SKILL.md"] and "x.md" not in opened and "SKILL.md" in opened


def test_skills_what_vanishes_while_it_is_looked_at_is_not_there(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shelve(tmp_path, "one", "one/ghost.md", "one/host.md")
    status = sk._status

    def look(place: Any, name: str) -> Any:
        if name == "ghost.md" and (folder / "one/ghost.md").exists():
            (folder / "one/ghost.md").unlink()
        return status(place, name)
    server = skill_server(folder)
    monkeypatch.setattr(sk, "_status", look)
    skill, = host(server).list_skills()
    assert not (folder / "one/ghost.md").exists() and ["/".join(path) for path in skill.files] == ["SKILL.md", "host.md"]


def test_skills_unreadable_files_and_folders(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shelve(tmp_path, "aaa", "bad", "bad/locked.md", "worse", "worse/locked/x.md", "worst/locked", "zzz")
    open_it = os.open

    def denied(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).startswith("locked"):
            raise PermissionError(13, "Permission denied")
        return open_it(path, *rest, **more)
    monkeypatch.setattr(os, "open", denied)
    server = skill_server(folder)
    assert uris(host(server)) == ["skill://aaa/SKILL.md", "skill://zzz/SKILL.md"]
    assert server.shelf.refused == {
        "skill://bad": "skill://bad/locked.md cannot be read: Permission denied",
        "skill://worse": "skill://worse/locked cannot be read: Permission denied",
        "skill://worst/locked": "cannot be read: Permission denied"}
    not_found(host(server).client, "resources/read", "skill://worst/locked/SKILL.md")


@pytest.mark.parametrize("by_folder", [True, False])
def test_skills_links_to_skills_are_not_followed_but_folders_given_are(
        host: Any, tmp_path: Path, monkeypatch: Any, by_folder: bool) -> None:
    as_on_windows(monkeypatch, by_folder)
    elsewhere = shelve(tmp_path / "elsewhere", "one")
    folder = shelve(tmp_path / "skills", "two", "prefix/three")
    (folder / "one").symlink_to(elsewhere / "one")
    (folder / "prefix/more").symlink_to(elsewhere)
    (folder / "up").symlink_to(folder)
    server = skill_server(folder)
    assert uris(host(server)) == ["skill://prefix/three/SKILL.md", "skill://two/SKILL.md"]
    assert list(server.shelf.refused) == ["skill://one", "skill://prefix/more", "skill://up"]
    for uri in ("skill://one/SKILL.md", "skill://prefix/more/one/SKILL.md", "skill://up/two/SKILL.md"):
        not_found(host(server).client, "skills/get", uri)
        not_found(host(server).client, "resources/read", uri)
    (tmp_path / "link").symlink_to(elsewhere / "one")
    (tmp_path / "links").symlink_to(elsewhere)
    assert uris(host(skill_server(tmp_path / "links"))) == ["skill://one/SKILL.md"]


@pytest.mark.parametrize("what, by_folder", [("file", True), ("folder", True), ("skill", True), ("prefix", True), ("pipe", True),
                                             ("file", False)])
def test_skills_what_is_swapped_between_looking_and_opening_does_not_get_out(
        host: Any, tmp_path: Path, monkeypatch: Any, what: str, by_folder: bool) -> None:
    """Somebody who may write in the folder puts a link to elsewhere in place of what was looked at."""
    outside = shelve(tmp_path / "outside", "d/x.md", "skill/d/x.md", "prefix/skill", "skill")
    for path in [one for one in outside.rglob("*") if one.is_file()]:
        path.write_bytes(path.read_bytes() + SECRET)
    folder = shelve(tmp_path / "in", "prefix/skill", "prefix/skill/d/x.md")
    name, link_to = {"file": ("x.md", outside / "d/x.md"), "folder": ("d", outside / "d"), "skill": ("skill", outside / "skill"),
                     "prefix": ("prefix", outside / "prefix"), "pipe": ("x.md", None)}[what]
    victim = next(folder.rglob(name))
    as_on_windows(monkeypatch, by_folder)
    server = skill_server(folder)
    host_of = host(server)
    files = list(host_of.list_skills()[0].digests)
    status, armed = sk._status, [1]

    def swap() -> None:
        victim.rename(tmp_path / "away")
        os.mkfifo(str(victim)) if link_to is None else victim.symlink_to(link_to)

    def swapping(place: Any, looked_at: str) -> Any:
        found = status(place, looked_at)
        if looked_at == name:
            armed[0] -= 1
            if armed[0] == 0:
                swap()
        return found
    monkeypatch.setattr(sk, "_status", swapping)
    for turn in range(1, 9):                    # at the first time it is looked at, at the second ...
        for ask in (lambda: host_of.client.request("skills/list"), *(
                lambda uri=uri: host_of.client.request("resources/read", {"uri": uri}) for uri in files),
                lambda: host_of.client.request("skills/get", {"uri": "skill://prefix/skill/SKILL.md"})):
            armed[0] = turn
            with contextlib.suppress(RpcError):
                answer = json.dumps(ask())
                assert SECRET.decode() not in answer and digest(b"") not in answer and '"text": ""' not in answer
                for one in outside.rglob("*"):
                    assert not one.is_file() or digest(one.read_bytes()) not in answer
            if (tmp_path / "away").exists() or (tmp_path / "away").is_symlink():
                victim.unlink()
                (tmp_path / "away").rename(victim)
    assert uris(host_of) == ["skill://prefix/skill/SKILL.md"]


def test_skills_names_are_exact_where_the_file_system_is_not(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """On some systems ACME opens acme: but a URI is one of those that were listed, or none."""
    folder = shelve(tmp_path, "acme/demo")
    entered = sk._entered
    monkeypatch.setattr(sk, "_entered", lambda place, name: entered(place, name.lower()))
    skills = host(skill_server(folder))
    assert uris(skills) == ["skill://acme/demo/SKILL.md"]
    for uri in ("skill://ACME/demo/SKILL.md", "skill://acme/DEMO/SKILL.md", "skill://Acme/demo/SKILL.md"):
        not_found(skills.client, "skills/get", uri)
        not_found(skills.client, "resources/read", uri)
        not_found(skills.client, "resources/directory/read", uri.replace("/SKILL.md", ""))


def test_skills_whose_header_is_wrong_are_refused(host: Any, tmp_path: Path) -> None:
    headers = {
        "bad-yaml": (b"---\nname: bad-yaml\ndescription: a: b\n---", "SKILL.md, line 3: "), "none": (b"# Hello", "frontmatter"),
        "latin": (b"---\nname: latin\ndescription: \xe9\n---", "UTF-8"), "no-name": (b"---\ndescription: x\n---", "name"),
        "other": (skill_md("another"), "another"), "UPPER": (skill_md("UPPER"), "name"), "two--hyphens": (skill_md("two--hyphens"), "name"),
        "-first": (skill_md("-first"), "name"), "last-": (skill_md("last-"), "name"), "x" * 65: (skill_md("x" * 65), "name"),
        "a_b": (skill_md("a_b"), "name"), "7": (skill_md("7"), "name"), "no-text": (b"---\nname: no-text\n---", "description"),
        "empty": (skill_md("empty", description="' '"), "description"), "long": (skill_md("long", description="x" * 1025), "1025"),
        "a-list": (skill_md("a-list", description="[x]"), "description"), "fran\u00e7ais": (skill_md("fran\u00e7ais"), "name")}
    for name, (raw, _) in headers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_bytes(raw)
    shelve(tmp_path, "good", "x" * 64, "1password")
    (tmp_path / "good/SKILL.md").write_bytes(skill_md("good", description="x" * 1024))
    server = skill_server(tmp_path)
    assert uris(host(server)) == ["skill://1password/SKILL.md", "skill://good/SKILL.md", "skill://%s/SKILL.md" % ("x" * 64)]
    assert len(server.shelf.refused) == len(headers)
    for name, (_, words) in headers.items():
        assert words in server.shelf.refused[sk.uri_of((name,))], name


def test_skills_enclosing_skills_stand_by_their_own_header(host: Any, tmp_path: Path) -> None:
    """A nested SKILL.md is any text to the skill around it; a broken outer one is no matter of the inner one's."""
    shelve(tmp_path, "outer", "outer/inner", "broken", "broken/inner")
    (tmp_path / "outer/inner/SKILL.md").write_bytes(b"no header\xff")
    (tmp_path / "broken/SKILL.md").write_bytes(b"no header")
    skills = host(skill_server(tmp_path))
    assert uris(skills) == ["skill://broken/inner/SKILL.md", "skill://outer/SKILL.md"]
    with skills.load("skill://outer/SKILL.md") as acting:
        assert acting.read("inner/SKILL.md") == b"no header\xff"
    skills.client.read_resource("skill://broken/inner/SKILL.md")
    not_found(skills.client, "resources/read", "skill://broken/SKILL.md")


def test_skills_limits_are_those_of_the_specification(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    shelve(tmp_path, "aaa", *("many/f%d.md" % n for n in range(511)), "many", "large", "larger", "wide/inner", "wide", "zzz")
    for name in ("large", "larger"):
        with open(str(tmp_path / name / "x.bin"), "wb") as file:       # sparse: it has no blocks
            file.truncate(sk.MAX_BYTES - len(skill_md(name)) + (name == "larger"))
    for number in range(sk.MAX_SEEN + 5):
        (tmp_path / "wide" / ("%06d" % number)).mkdir()
        (tmp_path / "aaa" / (".%06d" % number)).mkdir()         # no part of it
    reads, read = [], sk._read
    monkeypatch.setattr(sk, "_read", lambda root, parts: reads.append(parts) or read(root, parts))
    server = skill_server(tmp_path)
    skills = host(server)
    assert uris(skills) == ["skill://%s/SKILL.md" % name for name in ("aaa", "large", "many", "zzz")]
    assert len(skills.registry["skill://many/SKILL.md"].files) == 512
    assert not [parts for parts in reads if parts[0] in ("larger", "wide")]       # refused by what the folder says
    assert "files" in server.shelf.refused["skill://larger"] and "2048" in server.shelf.refused["skill://wide"]
    (tmp_path / "many/one-more").write_bytes(b"")
    assert len(uris(skills)) == 3 and "513 files" in server.shelf.refused["skill://many"]
    not_found(skills.client, "resources/read", "skill://many/f1.md")
    not_found(skills.client, "skills/get", "skill://many/SKILL.md")
    assert skills.client.request("skills/get", {"uri": "skill://large/SKILL.md"})


def test_skills_a_file_that_grows_too_large_is_not_cut(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shelve(tmp_path, "one", "one/x.md")
    server = skill_server(folder)
    monkeypatch.setattr(sk, "MAX_BYTES", 200)
    status = sk._status

    def look(place: Any, name: str) -> Any:
        found = status(place, name)
        if name == "x.md":
            (folder / "one/x.md").write_bytes(b"x" * 1000)      # after it was looked at
        return found
    skills = host(server)
    skills.client.read_resource("skill://one/x.md")
    monkeypatch.setattr(sk, "_status", look)
    not_found(skills.client, "resources/read", "skill://one/x.md")
    assert uris(skills) == [] and "too large" in server.shelf.refused["skill://one"]


def test_skills_folders_that_are_given(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    one, two = shelve(tmp_path / "one", "same", "a"), shelve(tmp_path / "two", "same", "b")
    (two / "same/SKILL.md").write_bytes(skill_md("same", "other: true"))
    server = skill_server(one, str(two), two / "b")
    skills = host(server)
    assert uris(skills) == ["skill://%s/SKILL.md" % name for name in ("a", "b", "same")]
    assert skills.registry["skill://same/SKILL.md"].frontmatter == {"name": "same", "description": "Do it"}
    assert skills.get_skill("skill://same/SKILL.md").frontmatter == {"name": "same", "description": "Do it"}
    assert set(server.shelf.refused) == {"skill://b", "skill://same"}
    (one / "same/SKILL.md").write_bytes(b"broken")              # then the other one is served, by all that asks
    assert len(uris(skills)) == 3 and skills.registry["skill://same/SKILL.md"].frontmatter["other"] is True
    assert skills.get_skill("skill://same/SKILL.md").frontmatter["other"] is True
    assert skills.load("skill://same/SKILL.md").text == (two / "same/SKILL.md").read_text()
    monkeypatch.chdir(one / "a")
    shelve(one / "a", "inner")
    skills = host(skill_server("."))                  # a skill itself: its path is its name
    assert uris(skills) == ["skill://a/SKILL.md", "skill://a/inner/SKILL.md"]
    assert skills.load("skill://a/inner/SKILL.md").text and skills.load("skill://a/SKILL.md").read("inner/SKILL.md")
    for bad in (tmp_path / "none", one / "same/SKILL.md"):
        with pytest.raises(ValueError, match="is no folder"):
            skill_server(bad)
    empty = host(skill_server(shelve(tmp_path / "empty", "x.md")))
    assert empty.list_skills() == [] and empty.client.list_resources() == []


def test_skills_a_folder_that_is_gone_takes_nothing_else_with_it(host: Any, tmp_path: Path) -> None:
    one, two = shelve(tmp_path / "one", "a"), shelve(tmp_path / "two", "b")
    server = skill_server(one, two)
    skills = host(server)
    assert len(uris(skills)) == 2
    one.rename(tmp_path / "away")
    assert uris(skills) == ["skill://b/SKILL.md"] and list(server.shelf.refused) == [str(one)]
    not_found(skills.client, "resources/read", "skill://a/SKILL.md")
    (tmp_path / "away").rename(one)
    assert len(uris(skills)) == 2 and not server.shelf.refused


# ---- pages

@newest
def test_skills_come_in_pages(link: Any, tmp_path: Path, where: str, version: str) -> None:
    names = ["s%02d" % n for n in range(45)]
    folder = shelve(tmp_path, *names, *("s00/%03d.md" % n for n in range(300)))
    for options, sizes in (({}, [20, 20, 5]), ({"page_size": 7}, [7] * 6 + [3]), ({"page_size": 45}, [20, 20, 5])):
        client = link(where, version, skill_server(folder, **options))
        found, cursor, pages = [], {}, []       # type: Any, Any, Any
        while cursor is not None:
            result = client.request("skills/list", cursor)
            pages.append(len(result["skills"]))
            found += [entry["uri"] for entry in result["skills"]]
            cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
        assert pages == sizes and found == ["skill://%s/SKILL.md" % name for name in names]
        for bad in ("x", "", 5, {}, "file:///x", "skill://../x"):
            with pytest.raises(RpcError, match="cursor") as caught:
                client.request("skills/list", {"cursor": bad})
            assert caught.value.code == -32602
    client = link(where, version, skill_server(folder, page_size=100))
    first = client.request("resources/directory/read", {"uri": "skill://s00"})
    rest = client.request("resources/directory/read", {"uri": "skill://s00", "cursor": first["nextCursor"]})
    assert len(first["resources"]) == 100 and len(rest["resources"]) == 100 and rest["resources"][0]["uri"] == "skill://s00/100.md"


def test_skills_a_cursor_outlives_changes(link: Any, tmp_path: Path) -> None:
    folder = shelve(tmp_path, "a", "b", "c", "d", "e")
    client = link(server=skill_server(folder, page_size=2))
    cursor = client.request("skills/list")["nextCursor"]
    for path in (folder / "b", folder / "d"):
        (path / "SKILL.md").unlink()
    shelve(folder, "aa", "bb")
    found = client.request("skills/list", {"cursor": cursor})["skills"]
    assert [entry["frontmatter"]["name"] for entry in found] == ["bb", "c"]


# ---- files that change while they are served

def test_skills_a_manifest_tells_what_a_read_would_return(link: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """After each of many changes, big and small, within one tick of the clock."""
    folder = shelve(tmp_path, "one", "one/a.md", "one/d/b.md", "two")
    client = link(server=skill_server(folder))
    chance = random.Random(7)
    for step in range(150):
        path = chance.choice([folder / "one/a.md", folder / "one/d/b.md", folder / "one/c.md", folder / "one/SKILL.md", folder / "two/SKILL.md"])
        if path.name == "SKILL.md":
            path.write_bytes(skill_md(path.parent.name, "step: %03d" % step))
        elif path.exists() and chance.random() < 0.2:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"%03d" % step)            # often of the same size
        if path.exists() and chance.random() < 0.5:
            os.utime(str(path), (1e9, 1e9))             # ... and of the same time
        for entry in client.request("skills/list")["skills"]:
            assert entry == client.request("skills/get", {"uri": entry["uri"]})["skill"]
            for one in entry["resources"]:
                raw = client.read_resource(one["uri"])[0]["text"].encode()
                assert (digest(raw), len(raw)) == (one["digest"], one["size"]), step
                assert raw == folder.joinpath(*sk.parts_of(one["uri"])).read_bytes()
        found = {path.name for path in (folder / "one").rglob("*.md")}
        assert {one["uri"].rpartition("/")[2] for one in client.request("skills/get", {
            "uri": "skill://one/SKILL.md"})["skill"]["resources"]} == found


def test_skills_what_cannot_have_changed_is_not_read_again(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shelve(tmp_path, "one", "one/a.md", "one/b.md", "two")
    reads, read = [], sk._read
    monkeypatch.setattr(sk, "_read", lambda root, parts: reads.append("/".join(parts)) or read(root, parts))
    monkeypatch.setattr(sk, "SETTLED", 3600.0)
    skills = host(skill_server(folder))
    reads.clear()
    skills.list_skills()
    assert len(reads) == 4                      # just made: the next change might leave no trace
    monkeypatch.setattr(sk, "SETTLED", -3600.0)
    skills.list_skills()
    reads.clear()
    skills.list_skills()
    skills.get_skill("skill://one/SKILL.md")
    assert reads == []
    (folder / "one/a.md").write_bytes(b"longer than it was")
    entry = skills.get_skill("skill://one/SKILL.md")
    assert reads == ["one/a.md"] and entry.digests["skill://one/a.md"] == digest(b"longer than it was")
    size, before = len(b"longer than it was"), os.stat(str(folder / "one/a.md"))
    later = iter(range(10**6))

    def forged() -> bool:       # the same size, the same time of change: what a clock's tick after that gives it away
        (folder / "one/a.md").write_bytes(b"%0*d" % (size, next(later)))
        os.utime(str(folder / "one/a.md"), ns=(before.st_atime_ns, before.st_mtime_ns))
        return os.stat(str(folder / "one/a.md")).st_ctime_ns != before.st_ctime_ns
    wait_until(forged)
    assert skills.get_skill("skill://one/SKILL.md").digests["skill://one/a.md"] == digest((folder / "one/a.md").read_bytes())
    monkeypatch.setattr(sk, "MAX_KNOWN", 2)
    shelve(folder, "three", "four")
    skills.list_skills()
    assert len(skills.client.server.shelf._sums) <= 2


def test_skills_that_change_while_they_are_read(link: Any, tmp_path: Path) -> None:
    """A file is replaced again and again: each digest and each read is of one of its versions, whole."""
    folder = shelve(tmp_path, "one", "one/a.md")
    versions_of = [bytes([65 + n]) * (1000 + n) for n in range(4)]
    (folder / "one/a.md").write_bytes(versions_of[0])
    client = link(server=skill_server(folder))
    known, stop = {digest(raw) for raw in versions_of}, threading.Event()

    def replace() -> int:
        turns = 0
        while not stop.is_set() and turns < 100000:
            turns += 1
            (tmp_path / "new").write_bytes(versions_of[turns % 4])
            os.replace(str(tmp_path / "new"), str(folder / "one/a.md"))
        return turns
    outcome = in_thread(replace)
    try:
        for _ in range(60):
            entry, = client.request("skills/list")["skills"]
            assert entry["resources"][1]["digest"] in known
            assert client.read_resource("skill://one/a.md")[0]["text"].encode() in versions_of
    finally:
        stop.set()
    assert outcome() > 1


@newest
def test_skills_that_come_and_go_are_announced(link: Any, tmp_path: Path, where: str, version: str) -> None:
    folder = shelve(tmp_path, "one")
    server = skill_server(folder)
    client = link(where, version, server)
    heard: List[Any] = []
    with client.listen(["resources"], heard.append):

        def announced() -> Any:                 # a legacy stream may still be opening: say it again
            server.shelf.refresh()
            (folder / "one/SKILL.md").write_bytes(skill_md("one", "turn: %d" % time.monotonic_ns()))
            return heard
        shelve(folder, "two")
        wait_until(announced)
        assert heard[0] == "resources" and {one["name"] for one in client.list_resources()} == {"one", "two"}
    (folder / "one/SKILL.md").write_bytes(skill_md("one", description="Else"))
    (folder / "two/SKILL.md").unlink()
    client.request("skills/list")
    assert [(one["name"], one["description"]) for one in client.list_resources()] == [("one", "Else")]
    not_found(client, "resources/read", "skill://two/SKILL.md")


def test_skills_beside_other_resources(link: Any, library: Path) -> None:
    server = skill_server(library)

    @server.resource("skill://my/own")
    def own() -> str:
        return "mine"
    assert link(server=server).read_resource("skill://my/own")[0]["text"] == "mine"
    with pytest.raises(ValueError):
        sk.serve_skills(server, library)


def test_skills_are_served_to_many_at_once(link: Any, library: Path) -> None:
    client = link("http", server=skill_server(library))
    calls = [in_thread(lambda: [client.request("skills/list"), client.read_resource("skill://git-flow/run.py"),
                                client.request("resources/directory/read", {"uri": "skill://acme"})]) for _ in range(12)]
    assert len({json.dumps(call()) for call in calls}) == 1
    assert [one["uri"] for one in client.list_resources()] == ALL


# ---- a host

def entry_of(uri: str = "skill://demo/SKILL.md", **files: bytes) -> Dict[str, Any]:
    """Return the entry of a skill, which is valid; in names of files _ stands for a slash."""
    root, name = uri[:-len("/SKILL.md")], uri.split("/")[-2]
    texts = {"SKILL.md": skill_md(name), **{path.replace("_", "/") + ".md": raw for path, raw in files.items()}}
    return {"uri": uri, "frontmatter": {"name": name, "description": "Do it"}, "resources": [
        {"uri": root + "/" + path, "digest": digest(raw), "size": len(raw)} for path, raw in texts.items()]}


DECLARED = {"result": {"resultType": "complete", "supportedVersions": MODERN, "ttlMs": 0, "cacheScope": "private", "capabilities": {
    "resources": {}, "extensions": {sk.EXTENSION: {}}}}}


class FakeSkills:
    """What a server of skills that is not honest answers: `entries` and `texts` are to be changed by tests."""

    def __init__(self, *entries: Any, **texts: bytes) -> None:
        self.entries, self.texts = list(entries), {"skill://demo/SKILL.md": skill_md("demo")}   # type: Any, Dict[str, Any]
        self.declared = json.loads(json.dumps(DECLARED))
        for path, raw in texts.items():
            self.texts["skill://demo/" + path.replace("_", "/") + ".md"] = raw
        answers = {"server/discover": lambda message: self.declared, "skills/list": self.list_them, "skills/get": self.get,
                   "resources/read": self.read}
        self.transport = Puppet(**answers)

    def list_them(self, message: Any) -> Any:
        return {"result": {"resultType": "complete", "skills": self.entries, "ttlMs": 0, "cacheScope": "private"}}

    def get(self, message: Any) -> Any:
        found = [one for one in self.entries if one["uri"] == message["params"]["uri"]]
        return {"result": {"resultType": "complete", "skill": found[0], "ttlMs": 0, "cacheScope": "private"}} if found else \
            {"error": {"code": -32602, "message": "No skill"}}

    def read(self, message: Any) -> Any:
        uri = message["params"]["uri"]
        raw = self.texts.get(uri)
        if raw is None:
            return {"error": {"code": -32602, "message": "Resource not found"}}
        contents = raw if isinstance(raw, list) else [{"uri": uri, "text": raw.decode()}]
        return {"result": {"resultType": "complete", "contents": contents, "ttlMs": 0, "cacheScope": "private"}}


def of_fake(host: Any, fake_skills: FakeSkills, **options: Any) -> Any:
    again = Puppet()                            # a connection of its own; the script is one
    again.script = fake_skills.transport.script
    return host(None, again, checks=False, **options)


def reads_of(skills: Any) -> List[str]:
    return [params["uri"] for params in skills.tape.params("resources/read")]


@newest
def test_skills_nothing_is_fetched_before_it_is_needed(host: Any, library: Path, where: str, version: str) -> None:
    """ext-skills §Lazy Retrieval: not on connecting, not on listing, not at approval; then once."""
    asked: List[Any] = []

    def approve(skill: Any, before: Any) -> bool:
        asked.append((skill.uri, list(reads_of(skills))))
        return True
    skills = host(skill_server(library), where, version, approve=approve)
    skills.list_skills()
    skills.get_skill(ALL[2])
    assert "resources/read" not in skills.tape.sent()
    acting = skills.load(ALL[2])
    assert asked == [(ALL[2], [])] and reads_of(skills) == [ALL[2]]
    assert acting.files() == ["SKILL.md", "odd \u00fc%20#?.txt", "pixel.png", "references/", "run.py"]
    acting.read("references/a.md"), acting.read("./references/../references/a.md"), acting.read("SKILL.md")
    assert acting.tagged("run.py") == '[skill://git-flow/run.py, from the server "docs"]\nof git-flow/run.py'
    skills.load(ALL[2])
    assert reads_of(skills) == [ALL[2], "skill://git-flow/references/a.md", "skill://git-flow/run.py"] and len(asked) == 1
    (library / "git-flow/run.py").write_bytes(b"changed")
    skills.get_skill(ALL[2])
    assert skills.load(ALL[2]).read("run.py") == b"changed" and len(asked) == 2
    assert reads_of(skills)[3:] == ["skill://git-flow/run.py"]          # SKILL.md has the digest that it had


def changed(entry: Any, **members: Any) -> Any:
    return {**entry, **members}


def with_file(**members: Any) -> Any:
    """Return an entry whose second file is changed."""
    entry = entry_of(a=b"x")
    return changed(entry, resources=[entry["resources"][0], {**entry["resources"][1], **members}])


BAD_ENTRIES = {
    "no object": (5, "uri"), "a list": ([], "uri"), "nothing": ({}, "uri"), "null": (None, "uri"),
    "uri is a number": (changed(entry_of(), uri=5), "uri"), "uri of no SKILL.md": (changed(entry_of(), uri="skill://demo/x.md"), "uri"),
    "uri without a folder": (changed(entry_of(), uri="skill://SKILL.md"), "name"), "no scheme": (changed(entry_of(), uri="demo/SKILL.md"), "URI"),
    "uri with a query": (changed(entry_of(), uri="skill://demo?/SKILL.md"), "URI"), "uri with ..": (entry_of("skill://x/../demo/SKILL.md"), "URI"),
    "uri with %2e%2e": (entry_of("skill://x/%2e%2e/demo/SKILL.md"), "URI"), "uri with //": (entry_of("skill://x//demo/SKILL.md"), "URI"),
    "uri with a newline": (entry_of("skill://x\n/demo/SKILL.md"), "URI"), "uri that is not UTF-8": (entry_of("skill://%ff/demo/SKILL.md"), "URI"),
    "no frontmatter": ({"uri": "skill://demo/SKILL.md", "resources": "dynamic"}, "name"),
    "frontmatter is a list": (changed(entry_of(), frontmatter=[]), "name"), "no name": (changed(entry_of(), frontmatter={"description": "x"}), "name"),
    "another name": (changed(entry_of(), frontmatter={"name": "other", "description": "x"}), "demo"),
    "no description": (changed(entry_of(), frontmatter={"name": "demo"}), "description"),
    "description is a number": (changed(entry_of(), frontmatter={"name": "demo", "description": 5}), "description"),
    "a name that is none": (entry_of("skill://De_mo/SKILL.md"), "name"),
    "no resources": ({key: value for key, value in entry_of().items() if key != "resources"}, "array"),
    "resources is null": (changed(entry_of(), resources=None), "array"), "resources is a word": (changed(entry_of(), resources="static"), "array"),
    "resources is an object": (changed(entry_of(), resources={}), "array"), "resources is empty": (changed(entry_of(), resources=[]), "lacks"),
    "SKILL.md is missing": (changed(entry_of(), resources=entry_of(a=b"x")["resources"][1:]), "lacks"),
    "a file is no object": (changed(entry_of(), resources=[5]), "folder"), "a file without uri": (with_file(uri=None), "folder"),
    "a file is there twice": (changed(entry_of(), resources=entry_of()["resources"] * 2), "twice"),
    "twice by escapes": (changed(entry_of(), resources=entry_of()["resources"] + [
        {**entry_of()["resources"][0], "uri": "skill://demo/%53KILL.md"}]), "twice"),
    "SKILL.md by escapes": (changed(entry_of(), resources=[{**entry_of()["resources"][0], "uri": "skill://demo/%53KILL.md"}]), "lacks"),
    "of another skill": (with_file(uri="skill://other/a.md"), "folder"), "of another host": (with_file(uri="skill://x/demo/a.md"), "folder"),
    "of another scheme": (with_file(uri="file://demo/a.md"), "folder"), "of https": (with_file(uri="https://demo/a.md"), "folder"),
    "of a neighbour": (with_file(uri="skill://demo-2/a.md"), "folder"), "the folder itself": (with_file(uri="skill://demo/"), "URI"),
    "the folder": (with_file(uri="skill://demo"), "folder"), "out of the folder": (with_file(uri="skill://demo/../other/a.md"), "URI"),
    "out by %2e": (with_file(uri="skill://demo/%2e%2e/other/a.md"), "URI"), "out by %2f": (with_file(uri="skill://demo/..%2fother%2fa.md"), "URI"),
    "out by %5c": (with_file(uri="skill://demo/..%5cother"), "URI"), "a NUL": (with_file(uri="skill://demo/a%00.md"), "URI"),
    "a newline": (with_file(uri="skill://demo/a%0a.md"), "URI"), "a query": (with_file(uri="skill://demo/a.md?x"), "URI"),
    "no digest": (with_file(digest=None), "digest"), "an upper case digest": (with_file(digest=digest(b"x").upper()), "digest"),
    "upper case hex": (with_file(digest="sha256:" + digest(b"x")[7:].upper()), "digest"), "MD5": (with_file(digest="md5:" + "0" * 32), "digest"),
    "a short digest": (with_file(digest=digest(b"x")[:-1]), "digest"), "a digest and a newline": (with_file(digest=digest(b"x") + "\n"), "digest"),
    "a digest that is a list": (with_file(digest=[digest(b"x")]), "digest"), "no size": (with_file(size=None), "size"),
    "a size below zero": (with_file(size=-1), "size"), "a size in letters": (with_file(size="1"), "size"), "a size of true": (with_file(size=True), "size"),
    "half a byte": (with_file(size=0.5), "size"), "a size of 1.0": (with_file(size=1.0), "size"),
    "513 files": (entry_of(**{"f%d" % n: b"" for n in range(512)}), "513 files"), "too large": (with_file(size=2**24), "16777216"),
    "too large by far": (with_file(size=10**400), "too large"),
}


@pytest.mark.parametrize("why", list(BAD_ENTRIES))
def test_skills_invalid_entries_are_left_out_with_a_reason(host: Any, why: str) -> None:
    entry, words = BAD_ENTRIES[why]
    fake_skills = FakeSkills(entry_of("skild://good/SKILL.md"), entry, entry_of("x://a/b/last/SKILL.md"))
    skills = of_fake(host, fake_skills)
    assert uris(skills) == ["skild://good/SKILL.md", "x://a/b/last/SKILL.md"]
    (uri, reason), = skills.refused.items()
    assert words in reason and len(reason) < 500, reason
    fake_skills.get = lambda message: {"result": {"resultType": "complete", "skill": entry}}    # type: ignore[method-assign]
    fake_skills.transport.script.answers["skills/get"] = [fake_skills.get]
    with pytest.raises(sk.SkillError):
        skills.load(uri)
    assert reads_of(skills) == []


def test_skills_entries_at_the_limits_are_fine(host: Any) -> None:
    large = entry_of(**{"f%d" % n: b"" for n in range(511)})
    large["resources"][1]["size"] = 2**24 - large["resources"][0]["size"]
    odd = changed(entry_of("x:///a/b/SKILL.md"), **{"_meta": {"a": 1}, "more": True})
    odd["frontmatter"]["metadata"] = {"io.modelcontextprotocol/x": 1}
    skills = of_fake(host, FakeSkills(large, odd, changed(entry_of("x://a%20b/c/SKILL.md"), resources="dynamic")))
    assert uris(skills) == ["skill://demo/SKILL.md", "x:///a/b/SKILL.md", "x://a%20b/c/SKILL.md"]
    assert [skill.path for skill in skills.registry.values()] == ["demo", "a/b", "a b/c"] and not skills.refused


def test_skills_two_entries_for_one_uri_are_none(host: Any) -> None:
    other = changed(entry_of(), frontmatter={"name": "demo", "description": "Else"})
    skills = of_fake(host, FakeSkills(entry_of(), other, other, entry_of("skill://x/SKILL.md")))
    assert uris(skills) == ["skill://x/SKILL.md"] and "several" in skills.refused["skill://demo/SKILL.md"]


def spoil(raw: bytes) -> bytes:
    return raw[:-1] + b"!"


MISMATCHES = {      # what the server sends instead of SKILL.md, or of a file, and what is said of it
    "digest": (spoil, "digest"), "longer": (lambda raw: raw + b"x", "bytes"), "shorter": (lambda raw: raw[:-1], "bytes"), "empty": (lambda raw: b"", "bytes"),
    "two": (lambda raw: [{"uri": "U", "text": raw.decode()}] * 2, "something else"), "none": (lambda raw: [], "something else"),
    "another uri": (lambda raw: [{"uri": "skill://other/SKILL.md", "text": raw.decode()}], "something else"),
    "both": (lambda raw: [{"uri": "U", "text": raw.decode(), "blob": base64.b64encode(raw).decode()}], "either"),
    "neither": (lambda raw: [{"uri": "U"}], "either"),
    "no base64": (lambda raw: [{"uri": "U", "blob": base64.b64encode(raw).decode() + "\n"}], "either"),
    "half a character": (lambda raw: [{"uri": "U", "text": raw.decode() + "\ud800"}], "either"),
}


@pytest.mark.parametrize("how", list(MISMATCHES))
def test_skills_what_differs_from_its_entry_is_not_used(host: Any, how: str) -> None:
    def with_uri(raw: Any, uri: str) -> Any:
        return [{**one, "uri": uri if one["uri"] == "U" else one["uri"]} for one in raw] if isinstance(raw, list) else raw
    spoiled, words = MISMATCHES[how]
    fake_skills = FakeSkills(entry_of(a=b"aaa", b=b"bbb"), a=b"aaa", b=b"bbb")
    main, file = "skill://demo/SKILL.md", "skill://demo/a.md"
    fake_skills.texts[main] = with_uri(spoiled(skill_md("demo")), main)
    skills = of_fake(host, fake_skills)
    skills.list_skills()
    with pytest.raises(sk.SkillError, match=words):
        skills.load(main)
    assert reads_of(skills) == [main]                   # nothing further is read
    fake_skills.texts[main] = skill_md("demo")
    acting = skills.load(main)
    fake_skills.texts[file] = with_uri(spoiled(b"aaa"), file)
    for _ in range(2):
        with pytest.raises(sk.SkillError, match=words):
            acting.read("a.md")
    assert acting.read("b.md") == b"bbb" and reads_of(skills) == [main, main, file, file, "skill://demo/b.md"]
    fake_skills.texts[file] = [{"uri": file, "blob": base64.b64encode(b"aaa").decode()}]
    assert acting.read("a.md") == b"aaa"                # the same bytes in the other form are the same


HEADERS = [         # YAML, what the entry makes of it, and whether that is the same
    (["n: 1"], {"n": 1}, True), (["n: 1"], {"n": 1.0}, True), (["n: 1"], {"n": True}, False), (["n: true"], {"n": 1}, False),
    (["n: '1'"], {"n": 1}, False), (["n: 1"], {"n": "1"}, False), ([], {"n": 1}, False), (["n: 1"], {}, False), (["n:"], {"n": None}, True),
    (["n:"], {}, False), ([], {"n": None}, False), (["n: [1, {a: b}]"], {"n": [1, {"a": "b"}]}, True), (["n: [1, {a: b}]"], {"n": [1, {"a": "c"}]}, False),
    (["n: [1, 2]"], {"n": [2, 1]}, False), (["n: [1]"], {"n": [1, 2]}, False), (["n: {a: 1, b: 2}"], {"n": {"b": 2, "a": 1}}, True),
    (["n: {a: true}"], {"n": {"a": 1}}, False), (["n: {a: 1, b: 2}"], {"n": {"a": 1}}, False), (["n: {a: 1}"], {"n": {"a": 1, "b": 2}}, False), (["description2: x"], {"description2": "x "}, False), (["n: yes"], {"n": True}, False),
    (["allowed-tools: Bash"], {}, False), ([], {"allowed-tools": "Bash"}, False), (["n: x # y"], {"n": "x"}, True), (["n: &a x"], {"n": "x"}, False),
    (["n: [}"], {}, False),
]


@pytest.mark.parametrize("lines, header, good", HEADERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_skills_frontmatter_is_compared_field_by_field(host: Any, lines: Any, header: Any, good: bool, dynamic: bool) -> None:
    """ext-skills §Frontmatter Verification: what was approved is what the model gets, digest or none."""
    raw = skill_md("demo", *lines)
    entry = entry_of()
    entry["frontmatter"].update(header)
    entry["resources"] = "dynamic" if dynamic else [{**entry["resources"][0], "digest": digest(raw), "size": len(raw)}]
    fake_skills = FakeSkills(entry)
    fake_skills.texts["skill://demo/SKILL.md"] = raw
    skills = of_fake(host, fake_skills, dynamic=True)
    skills.list_skills()
    if good:
        assert skills.load("skill://demo/SKILL.md").text == raw.decode()
    else:
        with pytest.raises(sk.SkillError):
            skills.load("skill://demo/SKILL.md")


def test_skills_that_no_listing_has_are_loaded_by_their_uri(host: Any) -> None:
    fake_skills = FakeSkills(entry_of(a=b"x"), a=b"x")
    fake_skills.transport.script.answers["skills/list"] = [{"result": {"resultType": "complete", "skills": []}}]
    skills = of_fake(host, fake_skills)
    assert skills.list_skills() == [] and skills.load("skill://demo/SKILL.md").read("a.md") == b"x"
    assert skills.tape.params("skills/get") == [{"uri": "skill://demo/SKILL.md"}]
    with pytest.raises(RpcError, match="No skill"):
        skills.load("skill://none/SKILL.md")
    fake_skills.transport.script.answers["skills/get"] = [{"result": {"resultType": "complete", "skill": entry_of("skill://x/demo/SKILL.md")}}]
    with pytest.raises(sk.SkillError, match="another entry"):
        skills.load("skill://y/demo/SKILL.md")
    assert "skill://x/demo/SKILL.md" not in skills.registry


def test_skills_a_server_that_declares_nothing_is_asked_nothing(host: Any) -> None:
    for capabilities in ({}, {"extensions": None}, {"extensions": {}}, {"extensions": {"other/x": {}}}, {"extensions": {sk.EXTENSION: True}},
                         {"extensions": [sk.EXTENSION]}):
        fake_skills = FakeSkills(entry_of())
        fake_skills.declared["result"]["capabilities"] = {"resources": {}, **capabilities}
        skills = of_fake(host, fake_skills)
        for ask in (skills.list_skills, lambda: skills.get_skill("skill://demo/SKILL.md"), lambda: skills.load("skill://demo/SKILL.md"),
                    lambda: skills.read_directory("skill://demo")):
            with pytest.raises(mcp_ref.ServerLacks, match="docs"):
                ask()
        assert set(skills.tape.sent()) == {"server/discover"}
    for setting in ({}, {"directoryRead": False}, {"directoryRead": "true"}, {"directoryRead": 1}):
        fake_skills = FakeSkills(entry_of())
        fake_skills.declared["result"]["capabilities"]["extensions"][sk.EXTENSION] = setting
        skills = of_fake(host, fake_skills)
        with pytest.raises(mcp_ref.ServerLacks, match="directoryRead"):
            skills.read_directory("skill://demo")
        assert "resources/directory/read" not in skills.tape.sent()


@pytest.mark.parametrize("result", [
    {}, {"skills": None}, {"skills": {}}, {"skills": [], "nextCursor": 5}, {"skills": [], "nextCursor": "same"}, {"skills": [], "nextCursor": {}}])
def test_skills_lists_that_are_none_or_never_end(host: Any, result: Any) -> None:
    fake_skills = FakeSkills()
    fake_skills.transport.script.answers["skills/list"] = [{"result": {"resultType": "complete", **result}}]
    skills = of_fake(host, fake_skills)
    with pytest.raises(mcp_ref.Malformed):
        skills.list_skills()
    assert len(skills.tape.params("skills/list")) <= 2 and skills.registry == {}


def test_skills_lists_are_bounded(host: Any, monkeypatch: Any) -> None:
    fake_skills = FakeSkills()
    count = iter(range(10**9))
    fake_skills.transport.script.answers["skills/list"] = [
        lambda message: {"result": {"resultType": "complete", "skills": ["x" * 1000], "nextCursor": str(next(count))}}]
    skills = of_fake(host, fake_skills)
    monkeypatch.setattr(sk, "MAX_PAGES", 20)
    with pytest.raises(mcp_ref.Malformed):
        skills.list_skills()
    assert next(count) == 20
    monkeypatch.setattr(sk, "MAX_LISTED", 5000)
    with pytest.raises(mcp_ref.Malformed):
        skills.list_skills()
    assert next(count) < 30


# ---- approval

def test_skills_approval_is_bound_to_the_set_of_files(host: Any) -> None:
    asked: List[Any] = []
    answers = [True]
    approvals: Dict[str, Any] = {}

    def approve(skill: Any, before: Any) -> bool:
        asked.append((skill.label, skill.uri, before))
        return answers[0]
    fake_skills = FakeSkills(entry_of(a=b"1"), a=b"1")
    uri = "skill://demo/SKILL.md"
    skills = of_fake(host, fake_skills, approve=approve, approvals=approvals)
    skills.list_skills()
    acting = skills.load(uri)
    old = {one["uri"]: one["digest"] for one in entry_of(a=b"1")["resources"]}
    assert asked == [("docs", uri, None)] and approvals == {"docs": {uri: old}}
    skills.load(uri), skills.get_skill(uri), skills.list_skills(), skills.load(uri)
    assert len(asked) == 1                                              # the same set: nothing new to approve
    for ask, entry in ((skills.list_skills, entry_of(a=b"2")), (lambda: skills.get_skill(uri), entry_of(a=b"1", b=b"2")),
                       (skills.list_skills, entry_of())):               # rotated, added, removed
        fake_skills.entries = [entry]
        assert acting.read("a.md") == b"1"
        ask()
        assert approvals == {"docs": {}}                                # revoked, and that before anything is loaded
        with pytest.raises(sk.SkillError, match="changed since"):
            acting.read("a.md")
        answers[0] = False
        with pytest.raises(sk.SkillError, match="not approved"):
            skills.load(uri)
        assert asked[-1] == ("docs", uri, old) and approvals == {"docs": {}} and reads_of(skills)[2:] == []
        fake_skills.entries, answers[0] = [entry_of(a=b"1")], True
        skills.list_skills()
        acting = skills.load(uri)
    kept = json.loads(json.dumps(approvals))
    count = len(asked)
    of_fake(host, fake_skills, approve=approve, approvals=kept).load(uri)        # after a restart
    assert len(asked) == count
    of_fake(host, fake_skills, approve=approve, approvals=kept, label="other").load(uri)     # the same URI of another server
    assert asked[count:] == [("other", uri, None)] and set(kept) == {"docs", "other"}
    fake_skills.entries = [changed(entry_of(), resources="dynamic")]
    last = of_fake(host, fake_skills, approve=approve, approvals=kept, dynamic=True)
    last.load(uri)
    assert kept["docs"] == {} and asked[-1][2] == old


def test_skills_refused_by_the_user_are_not_read(host: Any) -> None:
    skills = of_fake(host, FakeSkills(entry_of()), approve=lambda skill, before: False)
    with pytest.raises(sk.SkillError, match="not approved"):
        skills.load("skill://demo/SKILL.md")
    assert reads_of(skills) == [] and skills.approvals == {}


def test_skills_approval_of_one_is_none_of_those_nested_in_it(host: Any, library: Path) -> None:
    asked: List[str] = []
    skills = host(skill_server(library), approve=lambda skill, before: asked.append(skill.uri) or True)
    with skills.load(ALL[0]) as acting:
        assert acting.read("inner/SKILL.md") == skill_md("inner") and asked == [ALL[0]]     # a file like others
        skills.load(ALL[1])
        assert asked == ALL[:2]


def test_skills_that_are_dynamic(host: Any) -> None:
    asked: List[Any] = []
    fake_skills = FakeSkills(changed(entry_of(), resources="dynamic"), a=b"1", x_y=b"2")
    skills = of_fake(host, fake_skills)
    assert skills.list_skills()[0].files is None
    with pytest.raises(sk.SkillError, match="dynamic"):
        skills.load("skill://demo/SKILL.md")
    assert reads_of(skills) == []
    skills = of_fake(host, fake_skills, dynamic=True, approve=lambda skill, before: asked.append(before) or True)
    for _ in range(2):
        acting = skills.load("skill://demo/SKILL.md")
    assert asked == [None, None] and skills.approvals == {}             # never for more than once
    assert acting.read("a.md") == b"1" and acting.read("x/y.md") == b"2"
    fake_skills.texts["skill://demo/a.md"] = b"3"
    assert acting.read("a.md") == b"3"                                  # nothing of it is kept
    for path in ("../other/a.md", "skill://other/SKILL.md", "/a.md", "..", "", "a\\b.md", "skill://demo/../x.md"):
        with pytest.raises(sk.SkillError):
            acting.read(path)
    with pytest.raises(sk.SkillError, match="read_directory"):
        acting.files()
    fake_skills.texts["skill://demo/a.md"] = b"x" * (sk.MAX_BYTES // 2)
    acting.read("a.md")
    with pytest.raises(sk.SkillError, match="too large"):
        acting.read("a.md")


# ---- acting on a skill

def test_skills_only_what_the_held_entry_lists_is_read(host: Any) -> None:
    files = {"a": b"1", "references_deep_b": b"2", "inner_SKILL": b"3"}
    fake_skills = FakeSkills(entry_of(**files), entry_of("skill://other/SKILL.md"), **files, new=b"4")
    fake_skills.texts.update({"skill://other/SKILL.md": skill_md("other"), "file:///etc/passwd": SECRET, "skill://demo/../x": SECRET})
    fake_skills.entries[0]["resources"].append({"uri": "skill://demo/b%20c/%25d.md", "digest": digest(b"5"), "size": 1})
    fake_skills.texts["skill://demo/b%20c/%25d.md"] = b"5"
    skills = of_fake(host, fake_skills)
    skills.list_skills()
    acting = skills.load("skill://demo/SKILL.md")
    for path, raw in {"a.md": b"1", "./a.md": b"1", "references/deep/b.md": b"2", "references/../a.md": b"1", "inner/SKILL.md": b"3",
                      "b c/%d.md": b"5", "b%20c/%25d.md": b"5", "skill://demo/b%20c/%25d.md": b"5", "skill://demo/a.md": b"1"}.items():
        assert acting.read(path) == raw
    before = reads_of(skills)
    for path in ("new.md", "skill://demo/new.md", "skill://other/SKILL.md", "../other/SKILL.md", "a.md/../../other/SKILL.md", "..", ".", "",
                 "/a.md", "/etc/passwd", "//a.md", "references", "references/", "references//deep/b.md", "a.md/", "file:///etc/passwd",
                 "https://example.org/a.md", "skill://demo", "skill://demo/", "skill://demo/../x", "../demo/a.md", "a\\b", "C:/x", "x\0", "%2e%2e/x",
                 "..%2fother%2fSKILL.md", "A.md", "skill://demo/%61.md?x", "a.md#top", "~/x", "\n"):
        with pytest.raises(sk.SkillError):
            acting.read(path)
    assert reads_of(skills) == before                                   # nothing was asked for
    assert acting.files() == ["SKILL.md", "a.md", "b c/", "inner/", "references/"]
    assert acting.files("references/") == ["deep/"] and acting.files("b c") == ["%d.md"] and acting.files("a.md") == [] == acting.files("none")
    for folder in ("..", "/", "../other"):
        with pytest.raises(sk.SkillError):
            acting.files(folder)
    with acting:
        pass
    for path in ("a.md", "SKILL.md"):
        with pytest.raises(sk.SkillError, match="any more"):
            acting.read(path)


def test_skills_a_directory_adds_nothing_to_a_manifest(host: Any, library: Path) -> None:
    """ext-skills §Directory Reads and the Held Entry, and the way out of it: a fresh entry, a fresh approval."""
    asked: List[Any] = []
    skills = host(skill_server(library), approve=lambda skill, before: asked.append(before) or True)
    acting = skills.load(ALL[2])
    (library / "git-flow/references/new.md").write_bytes(b"new")
    assert "skill://git-flow/references/new.md" in [one["uri"] for one in skills.read_directory("skill://git-flow/references")]
    assert acting.files("references") == ["a.md", "deep/"]
    with pytest.raises(sk.SkillError, match="not in the entry"):
        acting.read("references/new.md")
    held = acting.skill.digests
    skills.get_skill(ALL[2])
    acting = skills.load(ALL[2])
    assert asked == [None, held] and acting.read("references/new.md") == b"new"
    (library / "git-flow/references/a.md").write_bytes(b"of git-flow/references/A.md")      # after the entry was taken
    with pytest.raises(sk.SkillError, match="digest"):
        acting.read("references/a.md")
    (library / "git-flow/references/a.md").unlink()
    with pytest.raises(RpcError):
        acting.read("references/a.md")


def test_skills_names_of_several_servers_do_not_get_in_each_others_way(host: Any) -> None:
    one = of_fake(host, FakeSkills(entry_of("skill://acme/billing/refunds/SKILL.md"), entry_of("skill://acme/support/refunds/SKILL.md"),
                                   entry_of("skill://demo/SKILL.md"), entry_of("x://q/SKILL.md"), entry_of("y://q/SKILL.md")), label="one")
    two = of_fake(host, FakeSkills(entry_of("skill://demo/SKILL.md"), entry_of("skill://git/SKILL.md")), label="two")
    assert sk.named(one, two) == {}
    one.list_skills(), two.list_skills()
    names = sk.named(one, two)
    assert set(names) == {"one/acme/billing/refunds", "one/acme/support/refunds", "one/demo", "one/x://q/SKILL.md", "one/y://q/SKILL.md",
                          "two/demo", "two/git"}
    assert names["one/demo"].label == "one" and names["two/demo"].label == "two"
    assert {name: sorted((skill.label, skill.path) for skill in found) for name, found in sk.collisions(one, two).items()} == {
        "refunds": [("one", "acme/billing/refunds"), ("one", "acme/support/refunds")], "demo": [("one", "demo"), ("two", "demo")],
        "q": [("one", "q"), ("one", "q")]}
    with pytest.raises(ValueError, match="label"):
        sk.named(one, one)
    for label in ("", "a b", "a/b", "x" * 65, "a\n", "\u00fc"):
        with pytest.raises(ValueError, match="label"):
            of_fake(host, FakeSkills(), label=label)
    two.client.server_info["name"] = "one"                  # what it calls itself is nothing to us
    assert two.load("skill://demo/SKILL.md").tagged().startswith('[skill://demo/SKILL.md, from the server "two"]\n---\nname: demo')
    one.load("skill://demo/SKILL.md").read("SKILL.md")
    assert reads_of(two) == ["skill://demo/SKILL.md"] == reads_of(one)  # each from its own server


def test_skills_a_name_cannot_pose_as_a_path(host: Any) -> None:
    skills = of_fake(host, FakeSkills(entry_of("skill://a/b/SKILL.md"), entry_of("skill://b/SKILL.md"), entry_of("x://a/b/SKILL.md")))
    skills.list_skills()
    names = sk.named(skills)
    assert {name: skill.uri for name, skill in names.items()} == {
        "docs/skill://a/b/SKILL.md": "skill://a/b/SKILL.md", "docs/skill://b/SKILL.md": "skill://b/SKILL.md",
        "docs/x://a/b/SKILL.md": "x://a/b/SKILL.md"}


@pytest.mark.parametrize("where", ["stdio", "http"])
def test_skills_of_the_largest_size_get_through(host: Any, tmp_path: Path, where: str) -> None:
    """ext-skills §Limits: a host has to support them, one file of all that included."""
    folder = shelve(tmp_path, "large", "wide")
    raw = random.Random(1).getrandbits(8 * (sk.MAX_BYTES - len(skill_md("large")))).to_bytes(sk.MAX_BYTES - len(skill_md("large")), "big")
    (folder / "large/x.bin").write_bytes(raw)
    (folder / "wide/x.txt").write_bytes("\u4e16".encode() * 5_000_000)         # 15 MB, in JSON 30
    skills = host(skill_server(folder), where)
    assert skills.load("skill://large/SKILL.md").read("x.bin") == raw
    assert skills.load("skill://wide/SKILL.md").read("x.txt") == "\u4e16".encode() * 5_000_000


def test_skills_keep_what_they_verified_within_bounds(host: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shelve(tmp_path, "one", "one/a.md", "one/b.md", "one/c.md")
    monkeypatch.setattr(sk, "MAX_CACHED", 20)
    skills = host(skill_server(folder))
    acting = skills.load("skill://one/SKILL.md")
    for path in ("a.md", "b.md", "b.md", "a.md"):
        acting.read(path)
    assert sum(map(len, skills._cached.values())) <= 20 and reads_of(skills)[1:] == [
        "skill://one/a.md", "skill://one/b.md", "skill://one/a.md"]


# ---- the program

def test_skills_the_program_does_what_its_docstring_says() -> None:
    blocks = shell_blocks((sk.__doc__ or "") + "\n")
    assert len(blocks) == 2
    for command, output in blocks:
        assert in_shell(command, HERE) == output, command


def test_skills_the_program_serves_and_complains(tmp_path: Path) -> None:
    program = str(HERE / "examples" / "skills.py")
    folder = shelve(tmp_path, "one", "bad")
    (folder / "bad/SKILL.md").write_bytes(b"no header \x1b[31m")
    server = subprocess.Popen([sys.executable, program, "serve", str(folder), "--http", "0"], stderr=subprocess.PIPE, universal_newlines=True)
    try:
        lines = [server.stderr.readline(), server.stderr.readline()]            # type: ignore[union-attr]
        assert "skill://bad is not served: SKILL.md, it does not begin" in lines[0]
        url = re.search(r"http://\S+", lines[1])[0]                             # type: ignore[index]
        done = run(program, "list", url)
        assert done.stdout == "here/one  skill://one/SKILL.md  1 file, %d bytes\n    Do it\n" % len(skill_md("one"))
        done = run(program, "load", "skill://one/SKILL.md", url)
        assert done.stdout == '[skill://one/SKILL.md, from the server "here"]\n' + skill_md("one").decode() and done.returncode == 0
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)
    for words in (["load", "skill://two/SKILL.md", str(folder)], ["load", "skill://one/SKILL.md", "--file", "../x", str(folder)],
                  ["list", "http://127.0.0.1:1/mcp"], ["serve", str(folder / "none")], ["list", "--", sys.executable, "-c", "pass"],
                  ["list", "--", str(tmp_path / "no-such-command")], ["list", "--", sys.executable, str(HERE / "mcp_ref.py")]):
        done = run(program, *words)
        assert done.returncode == 1 and "skills: " in done.stderr and not done.stdout, words
        assert "Traceback" not in done.stderr
    for words in ([], ["nonsense"], ["load", "x"]):
        assert run(program, *words).returncode == 2


def test_skills_the_sample_is_one() -> None:
    """examples/skills has skills that can be served, whose references lead somewhere."""
    shelf = skill_server(HERE / "examples" / "skills").shelf
    entries = shelf.refresh()
    assert [entry["uri"] for entry in entries] == ["skill://debug-mcp-server/SKILL.md"] and not shelf.refused
    folder = HERE / "examples" / "skills" / "debug-mcp-server"
    for reference in re.findall(r"\]\(([^)]+)\)", (folder / "SKILL.md").read_text(encoding="utf-8")):
        assert (folder / reference).is_file()
    codes = [int(code) for code in re.findall(r"^\| (-\d+)", (folder / "references/errors.md").read_text(encoding="utf-8"), re.M)]
    assert sorted(codes) == sorted(mcp_ref.ERRORS)


# ------------------------------------------------------------------------------------------
# Authorization, examples/oauth.py: a fake issuer, real protected servers, a user at a browser
# ------------------------------------------------------------------------------------------

def load_oauth() -> Any:
    """Import the example."""
    spec: Any = importlib.util.spec_from_file_location("oauth", HERE / "examples" / "oauth.py")
    module = sys.modules["oauth"] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


oauth = load_oauth()
CLIENT_THREADS |= {"oauth-landing", "oauth-deadline"}
# The key of RFC 6979 A.2.5, which everybody knows.
RFC_KEY = oauth.Key(0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721)


def query_of(url: str) -> Dict[str, str]:
    """Return the parameters in a URL, or in a form; none may come twice."""
    from urllib.parse import parse_qsl
    pairs = parse_qsl(url.partition("?")[2], keep_blank_values=True, strict_parsing="=" in url)
    assert len(dict(pairs)) == len(pairs), url
    return dict(pairs)


def claims_in(token: str, part: int = 1) -> Dict[str, Any]:
    """Return what stands in a JWT (part 0: in its head)."""
    found: Dict[str, Any] = json.loads(oauth.unb64(token.split(".")[part]))
    return found


class Knock(NamedTuple):
    """One HTTP request to a fake issuer."""
    verb: str
    path: str
    query: Dict[str, str]
    headers: Dict[str, str]
    body: bytes
    handler: Any

    @property
    def form(self) -> Dict[str, str]:
        assert self.headers["content-type"] == "application/x-www-form-urlencoded"
        return query_of("?" + self.body.decode())


class Mounted(mcp_ref.Exchange):
    """A request to the MCP endpoint that stands at the issuer's own origin."""

    def __init__(self, knock: Knock) -> None:
        import io
        super().__init__(knock.verb, knock.handler.path, knock.headers.items(),
                         io.BytesIO(knock.body))
        self.handler = knock.handler

    def start(self, status: int, headers: Dict[str, str], body: Optional[bytes]) -> None:
        self.handler.answer(status, body or b"", headers)

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)

    def end(self) -> None:
        pass


class Issuer:
    """A fake authorization server on loopback, strict about what it gets, and what else stands at its origin.

    `at`: answers by path, instead of the usual ones: a status, (status, body), (status, body, headers), a function
    of the Knock that makes one of these or answers by itself, None for the usual answer; or a list of these, the
    last of which stays. `metadata`, `resource`, `given`, `made`: members to change in the documents, in what the
    token endpoint gives and in registrations (None: leave it out).
    """

    def __init__(self, path: str = "", tls: Any = None) -> None:
        import http.server
        import socketserver
        issuer = self
        self.at: Dict[str, Any] = {}
        self.metadata: Dict[str, Any] = {}
        self.resource: Optional[Dict[str, Any]] = {}
        self.given: Dict[str, Any] = {}
        self.made: Dict[str, Any] = {}
        self.knocks: List[Knock] = []
        self.secrets: Set[str] = set()          # whatever must not be seen
        self.clients: Dict[str, str] = {}       # secrets by client id, "" for public ones
        self.codes: Dict[str, Dict[str, str]] = {}
        self.tokens: Dict[str, Dict[str, Any]] = {}     # claims of the access tokens that are good
        self.refresh: Dict[str, Tuple[str, str, str]] = {}
        self.nonce = ""                         # that a DPoP proof must have, if any
        self.endpoint: Any = None               # an MCP endpoint at /mcp
        self.lock, self.problems = threading.RLock(), []    # type: Any, List[BaseException]

        class Desk(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                try:
                    knock = Knock(self.command, path, query_of("?" + query), {
                        name.lower(): value for name, value in self.headers.items()},
                        self.rfile.read(int(self.headers.get("Content-Length") or 0)), self)
                    with issuer.lock:
                        issuer.knocks.append(knock)
                    answer = issuer.next_answer(knock)
                    if answer is not None:
                        self.answer(*((answer,) if isinstance(answer, int) else answer))
                except OSError:                 # the client has hung up
                    pass
                except Exception as problem:
                    issuer.problems.append(problem)
                    self.answer(500)
            do_POST = do_DELETE = do_GET

            def answer(self, status: int, body: Any = b"", headers: Any = None) -> None:
                data = body if isinstance(body, bytes) else (
                    body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                    for one in value if isinstance(value, list) else [value]:
                        self.send_header(name, one)
                self.end_headers()
                self.wfile.write(data)

            timeout = PATIENCE

            def log_message(self, *_: Any) -> None:
                pass

        class Hall(http.server.ThreadingHTTPServer):
            block_on_close, daemon_threads, request_queue_size = True, False, 50
            server_bind = socketserver.TCPServer.server_bind        # without asking for a name

            def handle_error(self, *_: Any) -> None:
                pass
        self.httpd = Hall(("127.0.0.1", 0), Desk)
        self.origin = "http://127.0.0.1:%d" % self.httpd.server_address[1]
        if tls is not None:
            self.httpd.socket = tls.wrap_socket(self.httpd.socket, server_side=True)
            self.origin = "https://localhost:%d" % self.httpd.server_address[1]
        self.url, self.mcp = self.origin + path, self.origin + "/mcp"
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.over.set()
        self.httpd.shutdown()
        self.thread.join(PATIENCE)
        self.httpd.server_close()
        assert not self.problems, repr(self.problems[0])

    def secret(self, kind: str) -> str:
        """Make a secret, with characters that need care on their way."""
        core = os.urandom(12).hex()
        self.secrets.add(core)
        return "%s.%s~+/=" % (kind, core)

    def paths(self, *of: str) -> List[str]:
        """List the paths that were asked for, or those of them that begin in one of these ways."""
        with self.lock:
            return [knock.path for knock in self.knocks if knock.path.startswith(of or ("",))]

    def forms(self, **members: str) -> List[Dict[str, str]]:
        """List the forms that the token endpoint got, of those that have these members."""
        with self.lock:
            forms = [knock.form for knock in self.knocks if knock.path == "/token"]
        return [form for form in forms if members.items() <= form.items()]

    def renewals(self) -> int:
        return len(self.forms(grant_type="refresh_token"))

    # ---- what it answers

    def next_answer(self, knock: Knock) -> Any:
        with self.lock:
            answer = self.at.get(knock.path)
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            return answer(knock)
        if answer is None:
            if knock.path == "/mcp" and self.endpoint is not None:
                return self.endpoint.serve(Mounted(knock))
            with self.lock:
                return self.usual(knock)
        return answer

    def usual(self, knock: Knock) -> Any:
        desk = {"/authorize": self.authorize, "/token": self.token, "/register": self.register,
                "/introspect": self.introspect}.get(knock.path)
        if desk is not None:
            return desk(knock)
        if knock.path == oauth.well_known(self.url,
                                          "oauth-authorization-server")[len(self.origin):]:
            return 200, self.document()
        if knock.path == "/.well-known/oauth-protected-resource/mcp" and self.resource is not None:
            return 200, self.changed({"resource": self.mcp, "authorization_servers": [self.url]},
                                     self.resource)
        return 404

    @staticmethod
    def changed(document: Dict[str, Any], changes: Dict[str, Any]) -> Dict[str, Any]:
        return {name: value for name, value in {**document, **changes}.items() if value is not None}

    def document(self) -> Dict[str, Any]:
        return self.changed({
            "issuer": self.url, "authorization_endpoint": self.origin + "/authorize",
            "token_endpoint": self.origin + "/token",
            "registration_endpoint": self.origin + "/register",
            "code_challenge_methods_supported": ["plain", "S256"],
            "token_endpoint_auth_methods_supported": [
                "none", "client_secret_basic", "client_secret_post", "private_key_jwt"]},
                self.metadata)

    def register(self, knock: Knock) -> Any:
        asked, ident = json.loads(knock.body), "client%d" % len(self.clients)
        self.clients[ident] = "" if asked["token_endpoint_auth_method"] == "none" \
            else self.secret("cs")
        return 201, self.changed({**asked, "client_id": ident, "client_secret": self.clients[ident]
                                  or None},
                                 self.made)

    def authorize(self, knock: Knock) -> Any:
        from urllib.parse import urlencode
        asked = knock.query
        assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
        assert re.fullmatch("[A-Za-z0-9_-]{43}", asked["code_challenge"]) \
            and len(asked["state"]) > 20
        code = self.secret("co&?% de")
        self.codes[code] = asked
        return 302, "", {"Location": "%s?%s" % (asked["redirect_uri"], urlencode(
            {"code": code, "state": asked["state"], "iss": self.url}))}

    def who(self, knock: Knock) -> Optional[str]:
        """Return the client that sends this; None if it does not say or prove who it is."""
        from urllib.parse import unquote_plus
        form, (scheme, _, given) = knock.form, knock.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            self.secrets.add(given)
            assert not {"client_id", "client_secret", "client_assertion"} & set(form)
            ident, secret = map(unquote_plus, base64.b64decode(given).decode().split(":"))
            self.secrets.add(secret)
            return ident if secret and self.clients.get(ident) == secret else None
        if "client_assertion" in form:
            self.secrets.add(form["client_assertion"])
            assert form["client_assertion_type"] \
                == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            return str(claims_in(form["client_assertion"])["sub"])
        known = form.get("client_id", "nobody") if self.clients.get(
            form.get("client_id", "")) in (None, "", form.get("client_secret")) else None
        return known

    def token(self, knock: Knock) -> Any:
        form, who = knock.form, self.who(knock)
        self.secrets.update(form[name] for name in ("code_verifier", "client_secret")
                            if name in form)
        proof = knock.headers.get("dpop")
        if who is None:
            return 401, {"error": "invalid_client"}
        if proof is not None and claims_in(proof).get("nonce", "") != self.nonce:
            return 400, {"error": "use_dpop_nonce"}, {"DPoP-Nonce": self.nonce}
        scope, known = form.get("scope", ""), True
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], {})
            scope = asked.get("scope", "")
            known = {"redirect_uri": form["redirect_uri"], "client_id": who,
                     "resource": form["resource"],
                     "code_challenge": oauth.b64(
                         hashlib.sha256(form["code_verifier"].encode()).digest()),
                     }.items() <= asked.items() and len(form["code_verifier"]) >= 43
        elif form["grant_type"] == "refresh_token":
            old = self.refresh.pop(form["refresh_token"], ("", "", ""))     # each is good for once
            scope, known = old[2], old[:2] == (who, form["resource"])
        return (200, self.grant(who, form["resource"], scope, proof)) if known \
            else (400, {"error": "invalid_grant"})

    def grant(self, who: str, resource: str, scope: str,
              proof: Optional[str] = None) -> Dict[str, Any]:
        """Make a token answer, and note that the token is good."""
        made, fresh = self.secret("at"), self.secret("rt")
        self.tokens[made] = {"iss": self.url, "sub": "ann", "aud": resource, "client_id": who,
                             "scope": scope,
                             "exp": time.time() + 3600}
        if proof is not None:
            self.tokens[made]["jkt"] = claims_in(proof, 0)["jwk"]
        self.refresh[fresh] = who, resource, scope
        return self.changed({"access_token": made, "token_type": "bearer" if proof is None
                             else "DPoP",
                             "expires_in": 3600, "refresh_token": fresh, "scope": scope},
                             self.given)

    def introspect(self, knock: Knock) -> Any:
        if self.who(knock) is None:
            return 401
        claims = self.tokens.get(knock.form["token"])
        return 200, {"active": True, **claims} if claims is not None else {"active": False}


def visit(url: str, verb: str = "GET", tls: Any = None) -> Tuple[int, Dict[str, str], bytes]:
    """Fetch a page by hand, and follow nothing."""
    from urllib.parse import urlsplit
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE) \
        if parts.scheme == "http" else \
        http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=PATIENCE, context=tls)
    try:
        connection.request(verb, url.partition(parts.netloc)[2] or "/")
        response = connection.getresponse()
        return response.status, {name.lower(): value for name,
                                 value in response.getheaders()}, response.read()
    finally:
        connection.close()


class Surfer:
    """The user with a browser. `bend` makes of the way back the addresses that are visited, in order."""

    def __init__(self) -> None:
        self.pages: List[Dict[str, str]] = []
        self.landed: List[Tuple[int, Dict[str, str], bytes]] = []
        self.way_back = ""
        self.bend: Any = lambda address: [address]
        self.tls: Any = None

    def __call__(self, url: str) -> bool:
        self.pages.append({"": url.partition("?")[0], **query_of(url)})
        self.way_back = visit(url, tls=self.tls)[1]["location"]
        self.landed += [visit(address) for address in self.bend(self.way_back)]
        return True


def a_refusal(url: str, challenge: str = "", status: int = 401, **headers: str) -> Any:
    """Make what the client shows its hook."""
    return mcp_ref.HttpError(status, "refused", {"www-authenticate": challenge, **{
        name.replace("_", "-"): value for name, value in headers.items()}}, url)


class Realm:
    """An issuer, servers that it protects, hooks, and the user. No secret of its may be seen anywhere."""

    def __init__(self, link: Any, site: Any) -> None:
        self.link, self.site = link, site
        self.issuers: List[Issuer] = []
        self.issuer, self.user = self.another(), Surfer()
        self.seen: List[str] = []               # the Authorization headers that came to the servers
        self.said: List[str] = []               # whatever was raised
        self.hooks: List[Any] = []
        self.clients: List[Any] = []
        # sees the headers of each request to a server, and may refuse it
        self.gate: Any = None
        self.late = 0.0                         # seconds by which the clock of the hooks is fast

    def another(self, path: str = "", tls: Any = None) -> Issuer:
        self.issuers.append(Issuer(path, tls))
        return self.issuers[-1]

    def serve(self, *scopes: str, issuer: Optional[Issuer] = None, gate: Any = None,
              **members: Any) -> str:
        """Start a server that takes the tokens of an issuer; return its URL. `gate(headers)` sees them first."""
        at = self.site(make_server())
        url, issuer = "http://127.0.0.1:%d/mcp" % at.port, issuer or self.issuer
        at.endpoint.authorize = self.guard(url, scopes, issuer, gate)
        at.endpoint.metadata = oauth.resource_metadata(url, [issuer.url], scopes, **members)
        return url

    def guard(self, url: str, scopes: Any = (), issuer: Optional[Issuer] = None, gate: Any = None,
              told: bool = True) -> Any:
        """Make the hook of a server. Unless it is `told`, a refusal does not say where the metadata is."""
        issuer = issuer or self.issuer
        check = oauth.Validator(issuer.tokens.get, url, issuer.url, scopes)

        def authorize(headers: Dict[str, str]) -> Any:
            self.seen.append(headers.get("authorization", ""))
            for one in (gate, self.gate):
                if one is not None:
                    one(headers)
            try:
                return check(headers)
            except mcp_ref.HttpError as refusal:
                raise refusal if told else mcp_ref.HttpError(refusal.status, str(refusal))
        return authorize

    def oauth(self, client_id: str = "", secret: str = "", **options: Any) -> Any:
        """Make a hook; `open_page`, `redirect_uri` and `seconds` are for its browser."""
        browser = oauth.Browser(options.pop("redirect_uri", ""), options.pop("seconds", PATIENCE),
                                options.pop("open_page", self.user))
        self.hooks.append(oauth.OAuth(client_id, secret, **{
            "browser": browser, "clock": lambda: time.time() + self.late, **options}))
        return self.hooks[-1]

    def connect(self, url: str, hook: Any = None, version: str = "", **options: Any) -> Any:
        self.clients.append(self.link(url, version, checks=False, authorize=hook or self.oauth(),
                                      **options))
        return self.clients[-1]

    def log_in(self, hook: Any = None, challenge: str = "", status: int = 401, url: str = "",
               uses: int = 2,
               **headers: str) -> Any:
        """Call a hook by hand, as if the server at the issuer's own origin had refused a request; return what its
        next requests carry."""
        url = url or self.issuer.mcp
        granted = (hook or self.oauth())(a_refusal(url, challenge, status, **headers))
        return [granted("POST", url) for _ in range(uses)][-1] if granted is not None else None

    def ends(self, said: str) -> Any:
        """Expect an OAuthError that says this, or none if it is nothing."""
        return self.fails(said) if said else contextlib.nullcontext()

    @contextlib.contextmanager
    def fails(self, said: str = "", kind: Any = None, code: Optional[str] = None) -> Any:
        """Expect an OAuthError that says this."""
        with pytest.raises(kind or oauth.OAuthError, match=said) as caught:
            yield caught
        assert code is None or caught.value.code == code
        assert kind or len(str(caught.value)) < 1000 and "\n" not in str(caught.value)
        problem: Any = caught.value
        while problem is not None:
            self.said += [repr(problem), str(problem)]
            problem = problem.__cause__ or problem.__context__

    def close(self, printed: str) -> None:
        """See that nothing has told a secret: no exception, no repr, no log, no trace, no URL."""
        for issuer in self.issuers:
            issuer.close()
        secrets = [secret for issuer in self.issuers for secret in issuer.secrets]
        seats = [seat for hook in self.hooks for seat in hook._seats.values()]
        shown = [printed, *self.said,
                 *map(repr, self.hooks + seats + [seat.token for seat in seats]),
                 *(json.dumps(client.tape.lines) for client in self.clients)]
        urls = [knock.handler.path for issuer in self.issuers for knock in issuer.knocks]
        for secret in secrets:
            assert not [text for text in shown + urls if secret in text], secret
        assert "Traceback" not in printed


@pytest.fixture
def realm(link: Any, site: Any, capfd: Any, monkeypatch: Any) -> Any:
    import socketserver
    serve_forever = socketserver.BaseServer.serve_forever       # ports are to be closed at once
    monkeypatch.setattr(socketserver.BaseServer, "serve_forever", lambda self,
                        _=0: serve_forever(self, 0.005))
    one = Realm(link, site)
    try:
        yield one
    finally:
        out, err = capfd.readouterr()
        one.close(out + err)


# ---- what a refusal says

CHALLENGES: List[Tuple[str, List[Any]]] = [     # a header, what is in it
    ("", []), ("Bearer", [("bearer", {})]), ("  bEaReR ,", [("bearer", {})]),
    ("Basic, Bearer", [("basic", {}), ("bearer", {})]),
    ('BEARER Realm="A b", SCOPE="x y"', [("bearer", {"realm": "A b", "scope": "x y"})]),
    ('Bearer realm="a, b=\\"c\\", Basic d", error="\\\\"',
     [("bearer", {"realm": 'a, b="c", Basic d', "error": "\\"})]),
    ('Bearer a = 1 ,\tb= "2",c ="3"', [("bearer", {"a": "1", "b": "2", "c": "3"})]),
    ('Basic realm="x", Bearer scope="s", DPoP algs="ES256"',
     [("basic", {"realm": "x"}), ("bearer", {"scope": "s"}), ("dpop", {"algs": "ES256"})]),
    ("Negotiate YII/+.~==, Bearer scope=read", [("negotiate", {}), ("bearer", {"scope": "read"})]),
    ("NTLM TlRMTVNTUAAC, Basic realm=x", [("ntlm", {}), ("basic", {"realm": "x"})]),
    ('Bearer scope="a", Scope="b"', [("bearer", {"scope": "a"})]),
    ("Bearer a=1, Bearer a=2", [("bearer", {"a": "1"}), ("bearer", {"a": "2"})]),
    ("Bearer resource_metadata=https://h.example/.well-known/x",
     [("bearer", {"resource_metadata": "https://h.example/.well-known/x"})]),
    ('Bearer realm="", error=""', [("bearer", {"realm": "", "error": ""})]),
    ('error="nobody says this"', []), ("=,;\"'", [("'", {})]), ('"Bearer a=1"', []),
    ("\x00\xff", []),
]


def test_oauth_reads_challenges() -> None:
    for header, wanted in CHALLENGES:
        assert oauth.challenges(header) == wanted, header


def test_oauth_reads_any_header_in_little_time() -> None:
    chance, parts = random.Random(7), ["Bearer ", "Basic", "scope", "=", '"', "\\", ",", " ", "\t",
                                       "a" * 40, "==", "é"]
    headers = ["".join(chance.choice(parts) for _ in range(chance.randrange(60)))
               for _ in range(3000)]
    headers += [part * (100000 // len(part)) for part in [*parts, 'a="', "a =", "a ", '"\\',
                                                          "a=b,", "Bearer a, "]]
    began = time.process_time()
    for header in headers:
        for scheme, parameters in oauth.challenges(header):
            assert scheme == scheme.lower() and all(name == name.lower() for name in parameters)
    assert time.process_time() - began < PATIENCE / 2


def test_oauth_finds_its_challenge_among_several_headers(realm: Any) -> None:
    issuer = realm.issuer
    issuer.endpoint = mcp_ref.Endpoint(make_server(), authorize=realm.guard(issuer.mcp))
    issuer.at = {"/here": (200, {"resource": issuer.mcp, "authorization_servers": [issuer.url]}),
                 "/mcp": [
        (401, "", {"WWW-Authenticate": ["Negotiate abc==", 'Basic realm="Bearer scope=x, b"', (
            'Bearer realm="r", error="invalid_token", resource_metadata="%s/here", scope="read write"' % issuer.origin)]}),
        None]}
    client = realm.connect(issuer.mcp)
    assert said(client.call_tool("echo", {"text": "in"})) == "in"
    assert issuer.paths("/here", "/.well-known/oauth-protected") == ["/here"]
    assert realm.user.pages[0]["scope"] == "read write"


# ---- from there to the issuer

RESOURCE_AT = "/.well-known/oauth-protected-resource"
ISSUER_AT, OPENID_AT = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
HTML = (200, "<html>Not found, but in a friendly way</html>")


# answers, what is asked for in which order, an error
@pytest.mark.parametrize("at, asked, told", [
    ({}, [RESOURCE_AT + "/a/mcp"], ""),
    ({"/a/mcp": 404}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], ""),
    ({"/a/mcp": HTML}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], ""),
    ({"/a/mcp": (200, "[1]")}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], ""),
    ({"/a/mcp": 401}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], ""),
    ({"/a/mcp": (404, {"error": "not found"})}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], ""),
    ({"/a/mcp": 503}, [RESOURCE_AT + "/a/mcp"], "503; try again"),
    ({"/a/mcp": 404, "": 500}, [RESOURCE_AT + "/a/mcp", RESOURCE_AT], "500; try again"),
])
def test_oauth_looks_for_the_metadata_of_the_server(realm: Any, at: Any, asked: List[str],
                                                    told: str) -> None:
    issuer = realm.issuer
    whole = (200, {"resource": issuer.origin, "authorization_servers": [issuer.url]})
    issuer.at = {RESOURCE_AT + "/a/mcp": whole, RESOURCE_AT: whole,
                 **{RESOURCE_AT + path: one for path, one in at.items()}}
    with realm.ends(told):
        place = oauth.discover(issuer.origin + "/a/mcp", {})
        assert (place.resource, place.issuer, place.metadata) \
            == (issuer.origin, issuer.url, issuer.document())
    assert issuer.paths(RESOURCE_AT) == asked


def test_oauth_takes_what_the_challenge_names_and_nothing_else(realm: Any) -> None:
    issuer = realm.issuer
    for answer in (404, HTML, 401, 500):
        issuer.at["/named"] = answer
        with realm.fails("/named"):
            oauth.discover(issuer.mcp, {"resource_metadata": issuer.origin + "/named"})
    assert set(issuer.paths()) == {"/named"}
    for named in ("http://far.example/named", "/named", "", "https://u:p@far.example/",
                  "https://far.example/#x", "ftp://h/"):
        if named:
            with realm.fails("resource_metadata has to be of https"):
                oauth.discover(issuer.mcp, {"resource_metadata": named})


@pytest.mark.parametrize("path, answers, asked", [
    ("", [None], [ISSUER_AT]), ("", [404, None], [ISSUER_AT, OPENID_AT]),
    ("", [HTML, None], [ISSUER_AT, OPENID_AT]), ("", [(400, {"issuer": ""}), None],
                                                 [ISSUER_AT, OPENID_AT]),
                                                 ("", [404, 404], [ISSUER_AT, OPENID_AT]),
    ("", [500], [ISSUER_AT]), ("/", [404, None], [ISSUER_AT, OPENID_AT]),
    ("/t/1", [None], [ISSUER_AT + "/t/1"]), ("/t/1", [404, None],
                                             [ISSUER_AT + "/t/1", OPENID_AT + "/t/1"]),
    ("/t/1", [404, 400, None], [ISSUER_AT + "/t/1", OPENID_AT + "/t/1", "/t/1" + OPENID_AT]),
    ("/t/1/", [404, 404, None], [ISSUER_AT + "/t/1", OPENID_AT + "/t/1", "/t/1" + OPENID_AT]),
    ("/t/1", [404, 404, 404], [ISSUER_AT + "/t/1", OPENID_AT + "/t/1", "/t/1" + OPENID_AT]),
    ("/t/1", [404, 502], [ISSUER_AT + "/t/1", OPENID_AT + "/t/1"]),
])
def test_oauth_looks_for_the_metadata_of_the_issuer(realm: Any, path: str, answers: Any,
                                                    asked: List[str]) -> None:
    issuer = realm.another(path)
    issuer.at = {place: (200, issuer.document()) if answer is None else answer for place,
                 answer in zip(asked, answers)}
    said = "" if answers[-1] is None else "try again later" if answers[-1] in (500, 502) \
        else "has no metadata"
    with realm.ends(said):
        assert oauth.discover(issuer.mcp, {}).metadata == issuer.document()
    assert issuer.paths()[1:] == asked


def test_oauth_believes_no_metadata_in_the_name_of_another_issuer(realm: Any) -> None:
    for path in ("", "/t"):
        issuer = realm.another(path)
        url = issuer.url
        for other in ("https://honest.example", url + "/", url.replace("http", "HTTP"),
                      url.replace("127.0.0.1", "localhost"),
                      url + "?", "", 7, [url], None, url.replace("127.0.0.1", "127.0.0.1:80")):
            issuer.metadata = {"issuer": other}
            with realm.fails("not of http"):
                realm.log_in(url=issuer.mcp)
        assert issuer.paths("/register", "/authorize", "/token") == []
    with_port = oauth.Place("https://a.example/mcp", "https://a.example:443", {}, None, False)
    # a default port is no reason to call them the same
    assert with_port.issuer != "https://a.example"


@pytest.mark.parametrize("resource, good", [
    ("{0}/a/mcp", True), ("{0}/a", True), ("{0}/a/", True), ("{0}", True), ("{0}/", True),
    ("HTTP{1}/a/mcp", True),
    ("{0}/a/mcp/", True), ("{0}/a/mc", False), ("{0}/a/mcp2", False), ("{0}/b/mcp", False),
    ("{0}/a/mcp/deeper", False),
    ("https{1}/a/mcp", False), ("http://localhost:{2}/a/mcp", False),
    ("http://127.0.0.1:1/a/mcp", False),
    ("http://127.0.0.1/a/mcp", False), ("https://honest.example/a/mcp", False),
    ("{0}/a/mcp#x", False),
    ("{0}/A/mcp", False), ("a/mcp", False), ("", False), (7, False), (None, False)])
def test_oauth_takes_only_metadata_of_this_server(realm: Any, resource: Any, good: bool) -> None:
    issuer = realm.issuer
    if isinstance(resource, str):
        resource = resource.format(issuer.origin, issuer.origin[4:], issuer.httpd.server_address[1])
    issuer.at[RESOURCE_AT + "/a/mcp"] = (200, {"resource": resource,
                                               "authorization_servers": [issuer.url]})
    with realm.ends("" if good else "resource in the server's metadata|the metadata is of"):
        assert "Authorization" in realm.log_in(url=issuer.origin + "/a/mcp")
        # byte for byte, in both requests: basic/authorization/index §Resource Parameter
        # Implementation
        assert [realm.user.pages[0]["resource"], issuer.forms()[0]["resource"]] == [resource] * 2
    assert good or issuer.paths("/register", "/authorize", "/token") == []


@pytest.mark.parametrize("servers", [None, [], {}, "{0}", [7], [None], [["{0}"]], ["javascript:1"],
                                     ["http://far.example"]])
def test_oauth_needs_an_issuer(realm: Any, servers: Any) -> None:
    realm.issuer.resource = {"authorization_servers": servers}
    with realm.fails("names no authorization server|the authorization server has to be of https"):
        realm.log_in()


URLS = [    # a URL, whether it may be used
    ("https://a.example", True), ("https://a.example:8443/x?y=z", True),
    ("HTTPS://A.example/", True), ("https://[2001:db8::1]/", True),
    ("http://localhost", True), ("http://127.0.0.1:1/", True), ("http://[::1]:80/x", True),
    ("http://127.9.8.7/", True),
    ("http://a.example", False), ("http://localhost.example/", False),
    ("http://127.0.0.1.example/", False), ("http://0.0.0.0/", False),
    ("http://10.0.0.1/", False), ("http://localhost@a.example/", False),
    ("https://u@a.example/", False), ("https://u:p@a.example/", False),
    ("https://a.example/#f", False), ("https://a.example#", False), ("https://", False),
    ("https:///x", False), ("a.example", False),
    ("//a.example/x", False), ("/x", False), ("", False), ("https://a.example/ x", False),
    ("https://a.example/\r\nX: y", False),
    ("https://a.example\n", False), ("https://é.example/", False), ("https://a.example:x/", False),
    ("https://a.example:99999/", False),
    ("https://[::1", False), ("ftp://a.example/", False), ("file:///etc/passwd", False),
    ("javascript:alert(1)", False),
    ("data:text/html,x", False), ("ws://localhost/", False), ("http:localhost", False),
    (None, False), (7, False), (["https://a.example"], False),
    (b"https://a.example", False)]


def test_oauth_uses_only_urls_that_are_safe(realm: Any) -> None:
    for url, good in URLS:
        with realm.ends("" if good else "the page"):
            assert oauth.checked(url, "the page") == url
    # what is far says nothing of this machine
    for near in ("https://far.example/mcp", "https://10.0.0.1/"):
        for url in ("http://localhost:8080/", "https://127.0.0.1/", "http://[::1]/",
                    "https://localhost/x"):
            with realm.fails("may not be on this machine"):
                oauth.checked(url, "the page", near)
    for near in ("https://localhost/mcp", "http://[::1]:1/", ""):
        assert oauth.checked("http://127.0.0.1/",
                             "it", near) and oauth.checked("https://far.example/", "it", near)


@pytest.fixture
def far_issuer(realm: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """An issuer that is taken for a far one: it is at localhost, with TLS, and only 127.0.0.1 is this machine."""
    import ssl
    path = tmp_path / "localhost.pem"
    path.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(path))
    realm.user.tls = ssl.create_default_context(cafile=str(path))
    monkeypatch.setattr(oauth, "is_loopback", lambda host: host == "127.0.0.1")
    return realm.another("", context)


def test_oauth_over_tls(realm: Any, far_issuer: Any) -> None:
    assert "Authorization" in realm.log_in(realm.oauth(tls=realm.user.tls), url=far_issuer.mcp)
    assert far_issuer.paths("/register", "/authorize",
                            "/token") == ["/register", "/authorize", "/token"]
    # the platform does not know its certificate
    with realm.fails("cannot be reached.*SSLCertVerificationError"):
        realm.log_in(url=far_issuer.mcp)


@pytest.mark.parametrize("member", ["authorization_endpoint", "token_endpoint",
                                    "registration_endpoint", "resource_metadata", "issuer"])
def test_oauth_is_not_sent_to_this_machine_from_afar(realm: Any, far_issuer: Any,
                                                     member: str) -> None:
    for here in (realm.issuer.origin + "/here", "https" + realm.issuer.origin[4:] + "/here"):
        far_issuer.resource, far_issuer.metadata = {
            "authorization_servers": [here if member == "issuer" else far_issuer.url]}, {
            member: here if member.endswith("endpoint") else far_issuer.url}
        with realm.fails(" may not be on this machine: https://localhost"):
            realm.log_in(realm.oauth(tls=realm.user.tls), url=far_issuer.mcp,
                         challenge='Bearer resource_metadata="%s"' % here
                         if member == "resource_metadata" else "")
    assert realm.issuer.knocks == []
    assert "authorization" in member or realm.user.pages == [] or member == "token_endpoint"


@pytest.mark.parametrize("member", ["authorization_endpoint", "token_endpoint",
                                    "registration_endpoint"])
def test_oauth_opens_and_asks_no_odd_endpoint(realm: Any, member: str) -> None:
    for value in ("javascript:alert(1)//", "file:///etc/passwd", "data:text/html,x",
                  "http://far.example/", "//far.example/", "/x",
                  "https://u:p@far.example/", "https://far.example/#x", "", 7, ["x"], {}):
        realm.issuer.metadata = {member: value}
        with realm.fails(member):
            realm.log_in()
        assert realm.issuer.forms() == [] and (realm.user.pages == [] or member == "token_endpoint")


# ---- redirects, sizes, and answers that never end

def test_oauth_follows_redirects_within_the_origin(realm: Any) -> None:
    issuer = realm.issuer
    issuer.at = {"/%d" % n: (status, "", {"Location": to}) for n, (status, to) in enumerate([
        (301, "/1"), (302, issuer.origin + "/2"), (307, "?again"), (308, "/4"),
        (303, RESOURCE_AT + "/mcp")])}
    issuer.at["/2"] = (308, "", {"Location": RESOURCE_AT + "/mcp"})
    assert oauth.resource_document(issuer.mcp,
                                   {"resource_metadata": issuer.origin + "/0"})["resource"] \
                                       == issuer.mcp
    assert issuer.paths() == ["/0", "/1", "/2", RESOURCE_AT + "/mcp"]     # as many as MAX_HOPS
    issuer.at["/2"] = (308, "", {"Location": "/4"})
    for start in ("/0", "/loop", "/nowhere"):
        issuer.at.update({"/loop": (302, "", {"Location": "/loop"}), "/nowhere": 302})
        with realm.fails("redirects again and again"):
            oauth.document(issuer.origin + start, {})
    assert len(issuer.knocks) == 4 + 3 * (1 + oauth.MAX_HOPS)


def test_oauth_follows_no_redirect_elsewhere(realm: Any) -> None:
    issuer, other = realm.issuer, realm.another()
    for place in (other.origin, issuer.origin.replace("127.0.0.1", "localhost"),
                  "https" + issuer.origin[4:], "https://far.example"):
        issuer.at["/0"] = (307, "", {"Location": place + "/x"})
        with realm.fails("redirects to another origin"):
            oauth.document(issuer.origin + "/0", {})
    for place in ("http://far.example/", "file:///etc/passwd", "javascript:x",
                  "http://u@127.0.0.1/", "/x#y", "/ x"):
        issuer.at["/0"] = (302, "", {"Location": place})
        with realm.fails("a redirect"):
            oauth.document(issuer.origin + "/0", {})
    assert other.knocks == [] and set(issuer.paths()) == {"/0"}


@pytest.mark.parametrize("path", ["/token", "/register"])
def test_oauth_posts_nothing_to_where_it_is_redirected(realm: Any, path: str) -> None:
    for status in (301, 302, 303, 307, 308):
        realm.issuer.at[path] = (status, "", {"Location": "/elsewhere"})
        with realm.fails(" %d" % status):
            realm.log_in()
    assert realm.issuer.paths("/elsewhere") == []


@pytest.mark.parametrize("answer", [b"", b"\r\n\r\n", b"HTTP/9.9 what\r\n\r\n",
                                    b"HTTP/1.1 999999 \r\n\r\n", b"SSH-2.0-x\r\n",
                                    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
                                    b"HTTP/1.1 200 " + b"x" * 70000])
def test_oauth_says_what_is_no_http(realm: Any, answer: bytes) -> None:
    for path in (ISSUER_AT, "/token"):
        realm.issuer.at = {path: lambda knock: knock.handler.wfile.write(answer) and None}
        with realm.fails("%s cannot be reached" % path):
            realm.log_in()


def test_oauth_says_that_nobody_is_there(realm: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = "http://127.0.0.1:%d" % free.getsockname()[1]
    with realm.fails("%s/.well-known/oauth-protected-resource/mcp cannot be reached .ConnectionRefusedError" % nobody):
        realm.log_in(url=nobody + "/mcp")
    for member in ("token_endpoint", "registration_endpoint"):
        realm.issuer.metadata = {member: nobody + "/x?secret=1"}
        with realm.fails("%s/x cannot be reached" % nobody):
            realm.log_in()


# ---- [2025-03-26] the server's origin issues the tokens

@pytest.mark.parametrize("with_metadata", [True, False])
def test_oauth_as_it_was_in_2025_03_26(realm: Any, with_metadata: bool) -> None:
    issuer, version = realm.issuer, "2025-03-26"
    issuer.resource, issuer.endpoint = None, mcp_ref.Endpoint(make_server(),
                                                              authorize=realm.guard(issuer.mcp, told=False))
    if not with_metadata:
        issuer.at = {ISSUER_AT: 404}
    client = realm.connect(issuer.mcp, version=version)
    assert said(client.call_tool("echo", {"text": "old"})) == "old"
    assert issuer.paths("/.well-known") == [RESOURCE_AT + "/mcp", RESOURCE_AT,
                                            ISSUER_AT] + [OPENID_AT] * (not with_metadata)
    for knock in issuer.knocks:
        assert knock.headers.get("mcp-protocol-version", version) == version
        assert "mcp-protocol-version" in knock.headers or not knock.path.startswith(ISSUER_AT)
    assert issuer.forms()[0]["resource"] == realm.user.pages[0]["resource"] == issuer.mcp
    assert "scope" not in realm.user.pages[0]


def test_oauth_believes_no_foreign_issuer_at_the_servers_origin(realm: Any) -> None:
    realm.issuer.resource, realm.issuer.metadata = None, {"issuer": "https://honest.example"}
    with realm.fails("of https://honest.example, not of"):
        realm.log_in()


# ---- who the client is

METADATA_URL = "https://app.example/oauth/client.json"


# the first that there is, in the order of the specification
@pytest.mark.parametrize("options, metadata, client_id", [
    ({"client_id": "mine", "metadata_url": METADATA_URL},
     {"client_id_metadata_document_supported": True}, "mine"),
    ({"metadata_url": METADATA_URL}, {"client_id_metadata_document_supported": True}, METADATA_URL),
    ({"metadata_url": METADATA_URL}, {"client_id_metadata_document_supported": "yes"}, "client0"),
    ({"metadata_url": METADATA_URL}, {}, "client0"),
    ({}, {"client_id_metadata_document_supported": True}, "client0"),
    ({"metadata_url": METADATA_URL}, {"registration_endpoint": None}, ""),
    ({}, {"registration_endpoint": None}, "")])
def test_oauth_chooses_who_it_is(realm: Any, options: Any, metadata: Any, client_id: str) -> None:
    issuer, hook = realm.issuer, realm.oauth(**options)
    issuer.metadata = metadata
    with realm.ends("" if client_id
                    else "registers no clients by itself: do that by hand, and give the client_id"):
        realm.log_in(hook)
        assert [realm.user.pages[0]["client_id"], issuer.forms()[0]["client_id"]] == [client_id] * 2
    assert len(issuer.paths("/register")) == (client_id == "client0")
    assert client_id or realm.user.pages == []


def test_oauth_registers_as_what_it_is(realm: Any) -> None:
    class Elsewhere(oauth.Browser):     # type: ignore[misc,name-defined]
        """A browser that comes back to some other place."""

        def start(self, again: str = "") -> str:
            return place

        def visit(self, url: str, state: str) -> str:
            return str(visit(url)[1]["location"])

        def stop(self) -> None:
            pass
    for place, kind in (("http://127.0.0.1:1/x", "native"), ("http://localhost:1/x", "native"),
                        ("http://[::1]:1/", "native"),
                        ("com.example.app:/x", "native"), ("https://app.example/x", "web")):
        realm.log_in(realm.oauth(browser=Elsewhere(), name="Ada's client"))
        asked = json.loads([knock.body for knock in realm.issuer.knocks
                            if knock.path == "/register"][-1])
        assert asked == {"client_name": "Ada's client", "redirect_uris": [place],
                         "application_type": kind, "response_types": ["code"],
                         "grant_types": ["authorization_code", "refresh_token"],
                         "token_endpoint_auth_method": "none"}


# what the issuer takes, what it makes of us, how we prove ourselves
@pytest.mark.parametrize("offered, made, sent", [
    (["none", "client_secret_basic"], {}, "none"), (None, {}, "none"),
    (["client_secret_basic", "client_secret_post"], {}, "basic"),
    (["private_key_jwt", "client_secret_post"], {}, "post"), (["client_secret_post"],
                                                              {"token_endpoint_auth_method": None},
                                                              "post"),
    (["client_secret_post"], {"token_endpoint_auth_method": "client_secret_basic"}, "basic"),
    (["client_secret_basic"], {"token_endpoint_auth_method": "none"}, "none"),
    (["none"], {"token_endpoint_auth_method": None, "client_secret": "given.all.the.same"},
     "basic"),
    (["private_key_jwt"], {}, "as we can"), ([], {}, "as we can"),
    (["none"], {"token_endpoint_auth_method": "tls_client_auth"},
     "wants the odd method tls_client_auth"),
    (["none"], {"token_endpoint_auth_method": ["none"]}, "wants the odd method")])
def test_oauth_proves_itself_as_it_is_registered(realm: Any, offered: Any, made: Any,
                                                 sent: str) -> None:
    issuer = realm.issuer
    issuer.metadata, issuer.made, usual = {
        "token_endpoint_auth_methods_supported": offered}, made, issuer.register

    def register(knock: Knock) -> Any:
        status, answer = usual(knock)
        issuer.clients["client0"] = answer.get("client_secret", "") if sent != "none" else ""
        return status, answer
    issuer.register = register
    with realm.ends("" if " " not in sent else sent):
        realm.log_in()
        headers, form = [(knock.headers, knock.form) for knock in issuer.knocks
                         if knock.path == "/token"][0]
        assert ("authorization" in headers, "client_secret" in form, "client_id" in form) == {
            "none": (False, False, True), "post": (False, True, True),
            "basic": (True, False, False)}[sent]
    assert (" " in sent) == (realm.user.pages == [])


def test_oauth_says_that_it_is_not_registered(realm: Any) -> None:
    issuer = realm.issuer
    for answer, told in (((400, {"error": "invalid_redirect_uri",
                                 "error_description": "only\nhttps\x1b[2J\u2028, please "
                                 + "x" * 999}),
                          "does not register us: 400 invalid_redirect_uri only https \\[2J , please x"),
                         ((403, "no"), "does not register us: 403"),
                         ((400, {"client_id": "x"}), "does not register us: 400"),
                         ((200, "<html>"), "does not register us: 200"),
                         (500, "does not register us: 500"),
                         ((201, {"client_id": 7}), "does not register us: 201"),
                         ((201, {"client_id": ""}), "does not register us: 201"),
                         ((201, ["client_id"]), "does not register us: 201")):
        issuer.at["/register"] = answer
        with realm.fails("^%s/register %s" % (issuer.origin, told)):
            realm.log_in()
    assert issuer.paths("/authorize", "/token") == [] and realm.user.pages == []


@pytest.mark.parametrize("ident, secret", [("mine", "simple"), ("a:b c%/é", "s/+ =&\"é%:~")])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", None])
def test_oauth_sends_its_secret_as_the_issuer_wants_it(realm: Any, ident: str, secret: str,
                                                       method: Any) -> None:
    issuer = realm.issuer
    issuer.clients[ident] = secret
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt", method]
                       if method else None}
    assert "Authorization" in realm.log_in(realm.oauth(ident, secret))
    knock = [knock for knock in issuer.knocks if knock.path == "/token"][0]
    assert ("authorization" in knock.headers) == (method != "client_secret_post") \
        and issuer.paths("/register") == []


def test_oauth_does_not_show_its_secret_where_it_is_not_wanted(realm: Any) -> None:
    realm.issuer.clients["mine"] = "hush"
    for offered in (["none"], ["private_key_jwt"], [], ["tls_client_auth", 7]):
        realm.issuer.metadata = {"token_endpoint_auth_methods_supported": offered}
        with realm.fails("takes neither a secret nor a key of ours, but"):
            realm.log_in(realm.oauth("mine", "hush"))
    with realm.fails("takes neither a secret nor a key"):
        realm.log_in(realm.oauth("mine", key=RFC_KEY))
    assert realm.issuer.paths("/authorize", "/token") == []
    # nobody says what it takes
    realm.issuer.metadata = {"token_endpoint_auth_methods_supported": None}
    assert "Authorization" in realm.log_in(realm.oauth("other", key=RFC_KEY))
    assert "client_assertion" in realm.issuer.forms()[0]


@pytest.mark.parametrize("url", ["http://app.example/x", "https://app.example",
                                 "https://app.example/", "app.example/x", "", "x:y"])
def test_oauth_documents_of_clients_have_a_url_with_a_path(url: str) -> None:
    with pytest.raises(ValueError, match="URL of https, with a path"):
        oauth.client_document(url, [])
    if url:
        with pytest.raises(ValueError, match="URL of https, with a path"):
            oauth.OAuth(metadata_url=url)


def test_oauth_makes_the_document_of_a_client() -> None:
    document = oauth.client_document(METADATA_URL, ["http://127.0.0.1/callback"], "Mine")
    assert document == {"client_id": METADATA_URL, "client_name": "Mine",
                        "redirect_uris": ["http://127.0.0.1/callback"],
                        "grant_types": ["authorization_code", "refresh_token"],
                        "response_types": ["code"],
                        "token_endpoint_auth_method": "none"}
    signing = oauth.client_document(METADATA_URL, [], keys=[RFC_KEY.jwk])
    assert (signing["token_endpoint_auth_method"], signing["jwks"]) \
        == ("private_key_jwt", {"keys": [RFC_KEY.jwk]})
    assert "d" not in RFC_KEY.jwk


# ---- a registration is good with its issuer only

def test_oauth_shows_a_client_to_its_own_issuer_only(realm: Any, tmp_path: Path) -> None:
    first, second = realm.issuer, realm.another()
    second.resource = {"resource": second.mcp, "authorization_servers": [second.url]}
    first.clients["mine"] = second.clients["mine"] = "its.secret"
    store = oauth.TokenFile(tmp_path / "tokens.json")
    told = "tokens now come from %s, but this client is registered with %s" \
        % (second.url, first.url)
    with realm.fails(told):                     # it was told
        realm.log_in(realm.oauth("mine", "its.secret", issuer=first.url), url=second.mcp)
    # it was not: the first one that it meets
    realm.log_in(hook := realm.oauth("mine", "its.secret", store=store))
    for one in (hook, realm.oauth("mine", "its.secret", store=oauth.TokenFile(store.path))):
        with realm.fails(told):
            realm.log_in(one, url=second.mcp)
    assert second.paths("/register", "/authorize", "/token") == []
    # of several it takes the one that knows it
    second.resource = {"authorization_servers": [second.url, first.url]}
    realm.log_in(hook, url=second.mcp)
    assert len(first.forms()) == 2 and second.forms() == []
    realm.log_in(realm.oauth("mine", "its.secret", issuer=second.url), url=second.mcp)
    assert len(second.forms()) == 1


def a_place() -> str:
    """Return an address to come back to, at a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return "http://127.0.0.1:%d/callback" % free.getsockname()[1]


def test_oauth_registers_again_with_another_issuer(realm: Any) -> None:
    first, second, hook = realm.issuer, realm.another("/tenant"), realm.oauth(
        redirect_uri=a_place())
    first.metadata = second.metadata = {"token_endpoint_auth_methods_supported": [
        "client_secret_post"]}
    realm.log_in(hook)
    first.resource = {"authorization_servers": [second.url]}
    realm.log_in(hook)
    assert [len(issuer.paths("/register")) for issuer in (first, second)] == [1, 1]
    # which of these does not matter,
    first.resource = {"authorization_servers": [realm.another().url, second.url, first.url]}
    for _ in range(2):
        realm.log_in(hook)
    # as long as it is known there
    assert [len(issuer.paths("/register")) for issuer in realm.issuers] == [1, 1, 0]
    assert [len(issuer.forms(grant_type="authorization_code")) for issuer in realm.issuers] \
        == [1, 1, 0]


def test_oauth_registers_again_when_it_has_to(realm: Any) -> None:
    issuer, store = realm.issuer, oauth.TokenStore()
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    issuer.made = {"client_secret_expires_at": int(time.time()) + 1000}
    issuer.given = {"refresh_token": None}

    def places() -> List[str]:
        issuer.tokens.clear()
        store.write({name: entry for name, entry in store.read().items()
                     if name.startswith("client ")})
        realm.log_in(realm.oauth(store=store))
        return [json.loads(knock.body)["redirect_uris"][0] for knock in issuer.knocks
                if knock.path == "/register"]
    first = places()[0]
    # the same port once more
    assert places() == [first] and realm.user.pages[1]["redirect_uri"] == first
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", int(first.split(":")[2].split("/")[0])))
        busy.listen()
        _, second = places()                    # not there any more
    assert second != first and realm.user.pages[2]["redirect_uri"] == second
    realm.late = 990
    assert len(places()) == 2
    realm.late = 1001                           # the secret has ended
    assert len(places()) == 3
    # the issuer has forgotten us: the next time we register anew
    issuer.clients.clear()
    issuer.clients["client0"] = issuer.clients["client1"] = issuer.clients[
        "client2"] = "another.secret"
    issuer.made = {}
    realm.late = 0
    with realm.fails("/token refuses: 401 invalid_client", code="invalid_client"):
        places()
    assert len(places()) == 4


# ---- the login

def rewritten(address: str, **changes: Optional[str]) -> str:
    """Return the way back with other parameters (None: without it)."""
    from urllib.parse import urlencode
    return address.partition("?")[0] + "?" + urlencode(Issuer.changed(query_of(address), changes))


def is_open(address: str) -> bool:
    """Tell whether somebody listens where the browser was to come back to."""
    from urllib.parse import urlsplit
    try:
        socket.create_connection((urlsplit(address).hostname, urlsplit(address).port),
                                 timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def test_oauth_logs_in(realm: Any) -> None:
    """From beginning to end, in the newest and the oldest revision over HTTP; the issuer checks all it gets."""
    url = realm.serve("read", "write")
    for version in (MODERN[0], LEGACY[0], "2025-06-18", "2025-03-26", "2024-11-05"):
        client = realm.connect(url, version=version)
        assert said(client.call_tool("echo", {"text": version})) == version
        assert realm.seen[-1].startswith("Bearer at.")
        client.close()
    pages, codes = realm.user.pages, realm.issuer.forms(grant_type="authorization_code")
    assert len(pages) == len(codes) == 5 and [page["resource"] for page in pages] \
        == [form["resource"] for form in codes] == [url] * 5
    for secret in ("state", "code_challenge"):
        assert len({page[secret] for page in pages}) == 5
    assert all(re.fullmatch("[A-Za-z0-9._~-]{43,128}", form["code_verifier"]) for form in codes)
    assert {page["scope"] for page in pages} == {"read write"}
    assert {" ".join(sorted(page)) for page in pages} == {
        " client_id code_challenge code_challenge_method redirect_uri resource response_type scope state"}


@pytest.mark.parametrize("offered", [None, [], ["plain"], ["s256"], "S256", {"S256": 1},
                                     "plain S256"])
def test_oauth_does_not_go_on_without_pkce(realm: Any, offered: Any) -> None:
    realm.issuer.metadata = {"code_challenge_methods_supported": offered}
    with realm.fails("does not offer PKCE with S256"):
        realm.log_in()
    assert realm.user.pages == [] and realm.issuer.paths("/register", "/authorize", "/token") == []


def test_oauth_keeps_the_parameters_of_the_page(realm: Any) -> None:
    realm.issuer.metadata = {"authorization_endpoint": realm.issuer.origin
                             + "/authorize?tenant=a%26b"}
    realm.log_in()
    assert realm.user.pages[0]["tenant"] == "a&b" and "state" in realm.user.pages[0]


def test_oauth_is_not_moved_by_other_visits(realm: Any, capfd: Any) -> None:
    """Any page can knock at the port: with another state, or at another place, nothing happens."""
    def bend(address: str) -> List[str]:
        base, state = address.partition("/callback")[0], query_of(address)["state"]
        return [rewritten(address, state=None), rewritten(address, state=""),
                rewritten(address, state=state[:-1]), rewritten(address, state=state + "x"),
                rewritten(address, state="\u00e9"), rewritten(address,
                                                              state="\udc80".encode("utf-8", "surrogatepass").decode("latin-1")),
                address + "&state=wrong", base + "/", base + "/callback",
                base + "/callback/?" + address.partition("?")[2],
                base + "/Callback?" + address.partition("?")[2], base + "/favicon.ico",
                base + "/callback;x?state=" + state,
                rewritten(address, code="evil", state="x" * 60000), address]
    realm.user.bend = bend
    headers = realm.log_in()
    assert [status for status, _, _ in realm.user.landed] == [404] * 14 + [200]
    assert headers["Authorization"].startswith("Bearer at.") and len(realm.issuer.forms()) == 1
    for status, head, page in realm.user.landed:
        assert head["content-type"] == "text/html" and head["cache-control"] == "no-store" \
            and head["referrer-policy"] == "no-referrer"
        assert head["content-security-policy"].startswith("default-src 'none'") \
            and head["content-length"] == str(len(page))
        assert (b"Logged in" in page) == (status == 200)
        assert not re.search(b"<script|http|state|code=", page)
    assert capfd.readouterr() == ("", "")


def test_oauth_takes_one_answer_and_the_first(realm: Any) -> None:
    realm.user.bend = lambda address: [address, rewritten(address, code="evil"),
                                       rewritten(address, error="access_denied")]
    assert "Authorization" in realm.log_in()
    assert len(realm.issuer.forms()) == 1 and "evil" not in realm.issuer.forms()[0]["code"]


def test_oauth_never_takes_a_doubtful_answer(realm: Any) -> None:
    for more in ("state", "code", "iss", "error"):
        again = "error=x&error=y" if more == "error" else ""
        realm.user.bend = lambda address: [address + "&" + (again
                                                            or re.findall("%s=[^&]*" % more, address)[0])]
        with realm.fails("came back with an answer to something else"):
            realm.log_in()
    assert realm.issuer.forms() == []


def test_oauth_answers_only_get(realm: Any) -> None:
    statuses = []

    def bend(address: str) -> List[str]:
        statuses.extend(visit(address, verb)[0] for verb in ("POST", "PUT", "DELETE", "HEAD",
                                                             "OPTIONS", "x"))
        return [address]
    realm.user.bend = bend
    assert "Authorization" in realm.log_in()
    assert statuses == [501] * 6


def test_oauth_is_not_held_up_by_slow_visitors(realm: Any, capfd: Any) -> None:
    """Visitors that say nothing, half a request, or nonsense; and more than it serves at once."""
    held: List[socket.socket] = []

    def knock(address: str, said: bytes) -> None:
        held.append(socket.create_connection(("127.0.0.1",
                                              int(address.split(":")[2].split("/")[0])),
                                              timeout=PATIENCE))
        held[-1].sendall(said)
        time.sleep(0.005)                       # its backlog is short

    def bend(address: str) -> List[str]:
        for said in (b"", b"G", b"GET /callback?state=", b"GET / HTTP/1.1\r\nX: ",
                     b"POST /callback HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"\r\n\r\n",
                     b"\x16\x03\x01\x00\xff", b"GET " + b"x" * 70000, b"GET /%00 HTTP/9.9\r\n\r\n"):
            knock(address, said)
        return [address] * 2
    realm.user.bend = bend
    began = time.monotonic()
    assert "Authorization" in realm.log_in()
    assert time.monotonic() - began < 4         # less than what a silent visitor is given
    while held:
        held.pop().close()

    def crowd(address: str) -> List[str]:
        for _ in range(25):
            knock(address, b"G")
        # these have found no place
        wait_until(lambda: len(select.select(held, [], [], 0)[0]) >= 5)
        while held:
            held.pop().close()
        wait_until(lambda: free(address))
        return [address]

    def free(address: str) -> bool:
        try:
            return visit(rewritten(address, state="x"))[0] == 404
        except (OSError, http.client.HTTPException):
            return False
    realm.user.bend = crowd
    assert "Authorization" in realm.log_in()
    assert capfd.readouterr() == ("", "")


def test_oauth_does_not_wait_for_ever_for_a_login(realm: Any, capfd: Any) -> None:
    places: List[str] = []

    def look(url: str) -> bool:
        places.append(query_of(url)["redirect_uri"])
        assert is_open(places[-1])
        return len(places) == 1

    def fall(url: str) -> bool:
        look(url)
        raise KeyError("no display")
    for _ in range(2):
        with realm.fails("nobody logged in within 0.05 seconds"):
            realm.log_in(realm.oauth(open_page=look, seconds=0.05))
    with realm.fails("no display", KeyError):
        realm.log_in(realm.oauth(open_page=fall))
    assert not any(map(is_open, places)) and len(places) == 3
    # where no browser opens, the page is for the user to open
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1 \
        and "open this page to log in: %s/authorize?response_type=code" \
            % realm.issuer.origin in printed
    realm.said.append(printed)


# whether the metadata promises `iss`, what comes instead of the right one, whether it is good
# (§Authorization Response Validation)
ISSUERS_SAID = [
    (True, "{0}", True), (True, None, False), (True, "https://evil.example", False),
    (None, "{0}", True), (None, None, True), (False, None, True),
    (None, "https://evil.example", False), (False, "https://evil.example", False),
    ("true", None, True), (None, "", False), (True, "", False),
    (None, "{0}/", False), (True, "HTTP{1}", False), (None, "{0}?", False), (None, "{2}", False),
    (True, " {0}", False)]


@pytest.mark.parametrize("error", [False, True])
def test_oauth_believes_the_issuer_it_asked_and_no_other(realm: Any, error: bool) -> None:
    issuer = realm.issuer
    for promised, said, good in ISSUERS_SAID:
        issuer.metadata = {"authorization_response_iss_parameter_supported": promised}
        said = said and said.format(issuer.url, issuer.url[4:], issuer.url.replace("127", "%3127"))
        change = {"iss": said, **({"code": None, "error": "access_denied",
                                   "error_description": "Told by nobody"} if error else {})}
        realm.user.bend = lambda address: [rewritten(address, **change)]
        before = len(issuer.forms())
        with realm.ends("" if good and not error
                        else "the login failed: access_denied Told by nobody" if good
                        else "came back with an answer of another issuer, or of none"):
            realm.log_in()
        assert len(issuer.forms()) - before == (good and not error), (promised, said)
        assert good or not re.search("access_denied|nobody", "".join(realm.said[-2:]))


def test_oauth_says_why_a_login_failed(realm: Any) -> None:
    for change, told in (({"error": "access_denied"}, "access_denied $"),
                         ({"error": "x\r\ny\x1b[1m", "error_description": "a\nb" + "c" * 999},
                          r"x y \[1m a bccc"),
                         ({}, "no code $"), ({"code": ""}, "no code $"),
                         ({"error": "", "code": "c"}, " $")):
        realm.user.bend = lambda address: [rewritten(address, **{"code": None, **change})]
        with realm.fails("the login failed: .*" + told, code=change.get("error", "")):
            realm.log_in()
    assert realm.issuer.forms() == []


@pytest.mark.parametrize("place", ["http://127.0.0.1:{0}/cb", "http://localhost:{0}/",
                                   "http://127.0.0.1:{0}", "http://[::1]:{0}/a/b",
                                   "http://127.0.0.1/any"])
def test_oauth_comes_back_to_a_fixed_place(realm: Any, place: str) -> None:
    try:
        with socket.create_server(("::1" if ":" in place[7:10] else "127.0.0.1", 0),
                                  family=socket.AF_INET6 if "::" in place
                                  else socket.AF_INET) as free:
            place = place.format(free.getsockname()[1])
    except OSError:
        pytest.skip("no IPv6 here")
    assert "Authorization" in realm.log_in(realm.oauth(redirect_uri=place))
    came = realm.user.pages[0]["redirect_uri"]
    assert came == (place if place.count(":") > 1 and place.count("/") > 2 else place + "/"
                    if place.count("/") == 2
                    else "http://127.0.0.1:%s/any" % came.split(":")[2].split("/")[0]) \
                        and not is_open(came)


def test_oauth_says_that_its_fixed_place_is_taken(realm: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        place = "http://127.0.0.1:%d/cb" % busy.getsockname()[1]
        with realm.fails("%s cannot be opened" % place):
            realm.log_in(realm.oauth(redirect_uri=place))
    assert "Authorization" in realm.log_in(realm.oauth(redirect_uri=place))
    for odd in ("https://127.0.0.1/", "http://a.example/", "http://127.0.0.1.example/", "x:y",
                "http://0.0.0.0/"):
        with pytest.raises(ValueError, match="of http, on this machine"):
            oauth.Browser(odd)


def test_oauth_opens_a_port_for_the_login_only(realm: Any) -> None:
    hook = realm.oauth()
    for fails in (False, True, False):
        realm.issuer.at = {"/token": 500} if fails else {}
        with realm.ends("refuses: 500" if fails else ""):
            realm.log_in(hook)
            realm.issuer.refresh.clear()
        assert not is_open(realm.user.pages[-1]["redirect_uri"])


# ---- what may be asked for

# basic/authorization/index §Scope Selection Strategy
@pytest.mark.parametrize("challenged, listed, own, asked", [
    ("a b", ["c"], "", "a b"), ("", ["c", "d"], "", "c d"), ("", None, "", None),
    ("", [], "", None), ("", None, "own", "own"),
    ("a", ["c"], "own a", "a own"), ("", ["c"], "own", "c own"), ("a  a\tb", None, "", "a b"),
    ("", "c d", "", None),
    ("", ["c d", 7, None, "", "\u00e9", "e\"f", "g\\h", "ok:/~!"], "", "ok:/~!"),
    ("\u00e9 ok", [], "", "ok")])
def test_oauth_chooses_scopes(realm: Any, challenged: str, listed: Any, own: str,
                              asked: Optional[str]) -> None:
    realm.issuer.resource = {"scopes_supported": listed}
    realm.log_in(realm.oauth(scope=own), 'Bearer scope="%s"' % challenged if challenged
                 else "Bearer")
    assert realm.user.pages[0].get("scope") == asked


def test_oauth_asks_again_for_what_it_had(realm: Any) -> None:
    realm.issuer.resource, hook = {"scopes_supported": ["c"]}, realm.oauth()
    for challenge in ('Bearer scope="a"', "Bearer"):
        realm.log_in(hook, challenge)
        realm.issuer.refresh.clear()
    assert [page["scope"] for page in realm.user.pages] == ["a", "a"]


# .../index §Refresh Tokens
@pytest.mark.parametrize("supported, scope, offline, asked, prompt", [
    (["offline_access"], "read", True, "read offline_access", "consent"),
    (["read"], "read", True, "read", None),
    (None, "read", True, "read", None), (["offline_access"], "", True, None, None),
    (["offline_access"], "read", False, "read", None),
    ("offline_access", "read", True, "read offline_access", "consent"),
    (["offline_access"], "read offline_access", True, "read offline_access", "consent")])
def test_oauth_asks_for_offline_access_where_it_may(realm: Any, supported: Any, scope: str,
                                                    offline: bool, asked: Any, prompt: Any) -> None:
    realm.issuer.metadata = {"scopes_supported": supported}
    realm.log_in(realm.oauth(offline=offline), 'Bearer scope="%s"' % scope)
    assert (realm.user.pages[0].get("scope"), realm.user.pages[0].get("prompt")) == (asked, prompt)
    assert "offline_access" not in oauth.resource_metadata("https://a.example", [],
                                                           ["a", "offline_access"])[
                                                               "scopes_supported"]


# ---- what the token endpoint gives

@pytest.mark.parametrize("given", [
    {"access_token": None}, {"access_token": ""}, {"access_token": 7}, {"access_token": ["x"]},
    {"access_token": "a b"},
    {"access_token": "a\r\nX-Injected: b"}, {"access_token": "a\n"}, {"access_token": "\u00e9"},
    {"access_token": "a\x00"},
    {"token_type": None}, {"token_type": ""}, {"token_type": "mac"}, {"token_type": 7},
    {"token_type": "bearer\n"},
    {"token_type": "DPoP"}, {"error": "invalid_grant"}])
def test_oauth_takes_no_odd_token(realm: Any, given: Any) -> None:
    realm.issuer.given, hook = given, realm.oauth()
    with realm.fails("gives no token that we can use|of the wrong kind, dpop|refuses: 200 invalid_grant"):
        realm.log_in(hook)
    assert not [name for name in hook.store.read() if name.startswith("token ")]


def test_oauth_takes_any_lifetime(realm: Any) -> None:
    now = 1000.0
    for told, until in ((3600, 4600), ("3600", 4600), (0, 1000), (10**30, 1e30), (None, None),
                        (-1, None), (1.5, None), ("soon", None),
                        (True, None), ([1], None), ({}, None), (float("inf"), None),
                        (float("nan"), None), ("9" * 400, float("inf"))):
        hook = realm.oauth(clock=lambda: now)
        realm.issuer.given = {"expires_in": told, "token_type": "bEARER", "scope": 7,
                              "refresh_token": [told], "more": {}}
        realm.log_in(hook)
        entry, = [entry for name, entry in hook.store.read().items() if name.startswith("token ")]
        assert (entry["until"] == pytest.approx(until) if until else entry["until"] is until
                or entry["until"] == until)
        assert (entry["token_type"], entry["refresh_token"]) == ("Bearer", None)
        token = oauth.Token(entry)
        assert token.is_fresh(now) == (until is None or until > now) \
            and (until != 4600 or not token.is_fresh(4600 - oauth.EARLY_SECONDS))


@pytest.mark.parametrize("answer", [400, 401, 403, 429, 500, 503, (400, "<html>"),
                                    (400, ["error"]), (200, "{"), 302, 204,
                                    (400, {"error": ["x"], "error_description": {"y": 1}}),
                                    (401, {"error": None})])
def test_oauth_says_what_the_token_endpoint_refuses(realm: Any, answer: Any) -> None:
    realm.issuer.at["/token"] = answer
    with realm.fails("/token refuses: [2-5]|gives no token that we can use"):
        realm.log_in()
    assert len(realm.issuer.paths("/token")) == 1


# ---- tokens that end

def test_oauth_renews_a_token_without_the_user(realm: Any) -> None:
    issuer, url = realm.issuer, realm.serve("read")
    client = realm.connect(url)
    refreshed = []
    for n in range(1, 4):
        issuer.tokens.clear()
        assert said(client.call_tool("echo", {"text": "on"})) == "on"
        assert (issuer.renewals(), len(realm.user.pages)) == (n, 1)
        refreshed.append(issuer.forms(grant_type="refresh_token")[-1])
    assert len({form["refresh_token"] for form in refreshed}) == 3      # each is used for once
    assert all((form["resource"], form["client_id"], "scope" in form) == (url, "client0", False)
               for form in refreshed)
    # no other comes with it: then the old one stays good
    issuer.given = {"refresh_token": None}
    for _ in range(2):
        issuer.tokens.clear()
        client.ping()
        issuer.refresh[issuer.forms()[-1]["refresh_token"]] = "client0", url, "read"
    assert len({form["refresh_token"] for form in issuer.forms(grant_type="refresh_token")}) == 4 \
        and len(realm.user.pages) == 1


def test_oauth_asks_the_user_again_when_nothing_can_be_renewed(realm: Any) -> None:
    issuer, hook = realm.issuer, realm.oauth()
    client = realm.connect(realm.serve("read"), hook)
    issuer.tokens.clear()
    issuer.refresh.clear()
    assert said(client.call_tool("echo", {"text": "again"})) == "again"
    assert (issuer.renewals(), len(realm.user.pages)) == (1, 2)
    assert [page["scope"] for page in realm.user.pages] == ["read",
                                                            "read"] and len(issuer.paths(
                                                                "/register")) == 1
    issuer.given = {"refresh_token": None}
    for n in (3, 4):
        issuer.tokens.clear()
        issuer.refresh.clear()
        client.ping()
        assert (issuer.renewals(), len(realm.user.pages)) == (2, n)


def test_oauth_does_not_send_a_token_that_has_ended(realm: Any) -> None:
    store = oauth.TokenStore()
    first = realm.log_in(realm.oauth(store=store))["Authorization"]
    realm.late = 3600 - oauth.EARLY_SECONDS - 60
    assert realm.log_in(realm.oauth(store=store))["Authorization"] == first
    # it is as good as over: another, before it is refused
    realm.late += 60
    second = realm.log_in(realm.oauth(store=store))["Authorization"]
    assert second != first and realm.issuer.renewals() == len(realm.user.pages) == 1


def test_oauth_keeps_its_refresh_token_when_the_issuer_is_ill(realm: Any) -> None:
    issuer, hook = realm.issuer, realm.oauth()
    client = realm.connect(realm.serve(), hook)
    good = set(issuer.refresh)
    for answer in (500, 503, 429, (400, {"error": "temporarily_unavailable"}), (200, "{"),
                   lambda knock: None):
        issuer.tokens.clear()
        issuer.at["/token"] = answer
        with realm.fails("/token"if callable(answer) else "refuses|no token"):
            client.ping()
        issuer.at.clear()
    assert set(issuer.refresh) == good and len(realm.user.pages) == 1
    client.ping()
    assert not good & set(issuer.refresh) and len(realm.user.pages) == 1


@pytest.mark.parametrize("renewable", [True, False])
def test_oauth_does_not_ask_for_tokens_again_and_again(realm: Any, renewable: bool) -> None:
    """A server that takes no token: the user is asked once for each request, and nobody for ever."""
    issuer, hook, url = realm.issuer, realm.oauth(), realm.serve()
    issuer.given = {} if renewable else {"refresh_token": None}
    realm.gate = lambda headers: refuse(401, 'Bearer error="invalid_token"')
    for n in (1, 2):
        with realm.fails("the server refuses the token that was made for it just now"):
            realm.connect(url, hook)
        assert len(realm.user.pages) <= n and len(issuer.forms()) <= n * mcp_ref.MAX_AUTHORIZE
    assert len(realm.seen) <= 2 * (1 + mcp_ref.MAX_AUTHORIZE)


class Turnstile:
    """Refuses a token when so many requests have come with it, and not before: they all fail at once."""

    def __init__(self, realm: Any, count: int) -> None:
        self.realm, self.barrier, self.armed = realm, threading.Barrier(count), False

    def __call__(self, headers: Dict[str, str]) -> None:
        token = headers.get("authorization", "").partition(" ")[2]
        if self.armed and token and token not in self.realm.issuer.tokens:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.barrier.wait(PATIENCE)

    def arm(self) -> None:
        self.armed = True
        self.realm.issuer.tokens.clear()


def test_oauth_renews_once_for_all_threads(realm: Any) -> None:
    gate = Turnstile(realm, 8)
    client = realm.connect(realm.serve(gate=gate))
    for n in (1, 2):
        gate.arm()
        calls = [in_thread(lambda n=n: client.call_tool("echo", {"text": str(n)}))
                 for n in range(8)]
        assert sorted(said(call()) for call in calls) == list("01234567")
        assert (realm.issuer.renewals(), len(realm.user.pages)) == (n, 1)


@pytest.mark.parametrize("where", ["memory", "file"])
def test_oauth_renews_once_for_all_clients(realm: Any, where: str, tmp_path: Path) -> None:
    gate, path, memory = Turnstile(realm, 4), tmp_path / "tokens.json", oauth.TokenStore()
    url, clients = realm.serve(gate=gate), []
    for _ in range(4):
        clients.append(realm.connect(url, realm.oauth(store=oauth.TokenFile(path)
                                                      if where == "file" else memory)))
    assert len(realm.user.pages) == len(realm.issuer.forms()) == 1      # one has logged in for all
    for n in (1, 2):
        gate.arm()
        for call in [in_thread(client.ping) for client in clients]:
            call()
        assert (realm.issuer.renewals(), len(realm.user.pages)) == (n, 1)


SHARER = """
import sys
sys.path[:0] = [{examples!r}]
from oauth import Browser, OAuth, TokenFile, connect
with connect(sys.argv[1], authorize=OAuth(store=TokenFile(sys.argv[2]), browser=Browser(open_page=sys.exit))) as client:
    print(len(client.list_tools()))
"""


def test_oauth_renews_once_for_all_processes(realm: Any, tmp_path: Path) -> None:
    gate, store = Turnstile(realm, 3), oauth.TokenFile(tmp_path / "deep" / "tokens.json")
    url = realm.serve(gate=gate)
    client = realm.connect(url, realm.oauth(store=store))
    gate.arm()
    script = SHARER.format(examples=str(HERE / "examples"))
    programs = [subprocess.Popen([sys.executable, "-c", script, url, str(store.path)],
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        client.ping()
        for program in programs:
            out, err = program.communicate(timeout=PATIENCE * 2)
            assert (program.returncode, out.strip(), err) == (0, str(len(client.list_tools())), "")
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert (realm.issuer.renewals(), len(realm.user.pages)) == (1, 1)
    assert json.loads(store.path.read_text())       # what the last one has written is whole


# ---- the file

posix = pytest.mark.skipif(os.name != "posix", reason="modes and links as POSIX has them")


def test_oauth_keeps_tokens_in_a_file(tmp_path: Path) -> None:
    store = oauth.TokenFile(tmp_path / "a" / "b" / "tokens.json")
    assert store.get("token", "x") is None and not store.path.exists()
    store.put("token", "x", entry={"a": "\u00e9\ud800\"", "b": [1, None]})
    store.put("token", "y", entry={"c": 2})
    again = oauth.TokenFile(str(store.path))
    assert again.get("token", "x") == {"a": "\u00e9\ud800\"",
                                       "b": [1, None]} and again.get("token", "y") == {"c": 2}
    again.put("token", "x", entry=None)
    again.put("token", "z", entry=None)
    assert store.get("token", "x") is None and list(json.loads(store.path.read_text())) \
        == ["token y"]
    assert sorted(path.name for path in store.path.parent.iterdir()) \
        == ["tokens.json", "tokens.json.lock"]
    with store, store:                          # one thread may hold it twice
        store.put("token", "y", entry={"c": 3})
    assert again.get("token", "y") == {"c": 3}


@posix
def test_oauth_lets_nobody_else_read_the_file(tmp_path: Path, realm: Any) -> None:
    before = os.umask(0)
    try:
        store = oauth.TokenFile(tmp_path / "new" / "tokens.json")
        store.put("x", entry={"a": 1})
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (store.path.parent, store.path,
                                                           Path(str(store.path) + ".lock"))] \
                                                               == [0o700, 0o600, 0o600]
    for mode in (0o640, 0o604, 0o660, 0o602, 0o610):
        store.path.chmod(mode)
        with realm.fails("others can get at .*tokens.json: chmod 600 it, or delete it"):
            store.get("x")
        with realm.fails("others can get at"):
            store.put("y", entry={})
    store.path.chmod(0o400)
    assert store.get("x") == {"a": 1}


@posix
@pytest.mark.parametrize("name", ["tokens.json", "tokens.json.lock"])
def test_oauth_follows_no_link_to_the_file(tmp_path: Path, realm: Any, name: str) -> None:
    other, store = tmp_path / "other", oauth.TokenFile(tmp_path / "tokens.json")
    other.write_text("{}")
    other.chmod(0o600)
    (tmp_path / name).symlink_to(other)
    with realm.fails("cannot be (read|used)"):
        store.get("x")
    with realm.fails("cannot be (read|used)"):
        store.put("x", entry={"a": 1})
    assert other.read_text() == "{}"
    (tmp_path / name).unlink()
    store.put("x", entry={"a": 1})              # it has let go of whatever it held
    assert store.get("x") == {"a": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff{}", b"null", b"[" * 5000,
                                     b'{"a": 1}x', b" " * (1 << 20) + b"{}"])
def test_oauth_says_that_the_file_is_broken(realm: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with realm.fails("tokens.json is not what we wrote: delete it"):
        realm.log_in(realm.oauth(store=oauth.TokenFile(path)))
    assert path.read_bytes() == content and realm.user.pages == []


def test_oauth_says_where_tokens_cannot_be_kept(realm: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "tokens.json", tmp_path / ("x" * 253)):
        with realm.fails("the tokens in .* cannot be used"):
            oauth.TokenFile(path).put("x", entry={})


def test_oauth_writes_the_file_whole_or_not_at_all(realm: Any, tmp_path: Path,
                                                   monkeypatch: Any) -> None:
    store = oauth.TokenFile(tmp_path / "tokens.json")
    store.put("x", entry={"a": 1})
    before = store.path.read_bytes()
    for place, name, problem in ((oauth.json, "dump", OSError(28, "No space left on device")),
                                 (oauth.os, "fsync", OSError(5, "I/O")),
                                 (oauth.os, "replace", PermissionError(13, "Permission denied"))):
        def fail(*arguments: Any, **_: Any) -> None:
            if name == "dump":
                arguments[1].write('{"x": {"a"')        # cut off in the middle
            raise problem
        monkeypatch.setattr(place, name, fail)
        with realm.fails("tokens.json cannot be written: " + problem.strerror):
            store.put("x", entry={"a": 2})
        monkeypatch.undo()
        assert store.path.read_bytes() == before and store.get("x") == {"a": 1}
    store.put("x", entry={"a": 3})
    assert store.get("x") == {"a": 3}


def test_oauth_loses_nothing_to_other_writers(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    def write(n: int) -> None:
        # as if each were a process of its own: flock is by open file
        store = oauth.TokenFile(path)
        for part in range(10):
            store.put("entry", str(n), str(part), entry={"n": n})
    for call in [in_thread(lambda n=n: write(n)) for n in range(6)]:
        call()
    assert len(json.loads(path.read_text())) == 60
    writer = """
import sys
sys.path[:0] = [%r]
from oauth import TokenFile
for part in range(20):
    TokenFile(sys.argv[1]).put("entry", sys.argv[2], str(part), entry={})
""" % str(HERE / "examples")
    programs = [subprocess.Popen([sys.executable, "-c", writer, str(path), name]) for name in "ab"]
    assert [program.wait(PATIENCE * 2) for program in programs] == [0, 0]
    assert len(json.loads(path.read_text())) == 100 and len(os.listdir(tmp_path)) == 2


# ---- a token goes where it belongs, and nowhere else

def test_oauth_headers_are_for_one_origin(realm: Any) -> None:
    url = realm.issuer.mcp
    granted = realm.oauth()(a_refusal(url))
    assert list(granted("POST", url)) == list(granted("GET", realm.issuer.origin + "/other?x")) \
        == ["Authorization"]
    for other in ("https" + url[4:], url.replace("127.0.0.1", "localhost"),
                  re.sub(r":\d+/", "/", url), re.sub(r":\d+/", ":1/", url),
                  "https://far.example/mcp", url.replace("//",
                                                         "//far.example@")[:7] + "far.example/mcp"):
        assert granted("POST", other) == {}


def test_oauth_sends_nothing_along_with_a_redirect(realm: Any) -> None:
    issuer, other = realm.issuer, realm.another()
    issuer.endpoint = mcp_ref.Endpoint(make_server(), authorize=realm.guard(issuer.mcp))
    client = realm.connect(issuer.mcp)
    issuer.at["/mcp"] = (307, "", {"Location": other.mcp})
    with realm.fails("redirects to another origin", mcp_ref.HttpError):
        client.ping()
    issuer.at["/mcp"] = (401, "", {"Location": other.mcp, "WWW-Authenticate": "Bearer"})
    with pytest.raises(mcp_ref.HttpError):
        client.ping()
    assert other.knocks == []


def sent_to(issuer: Issuer) -> str:
    """Return all that an issuer was told."""
    from urllib.parse import unquote_plus
    return " ".join(unquote_plus(knock.handler.path + str(knock.headers) + knock.body.decode())
                    for knock in issuer.knocks)


def test_oauth_tells_no_issuer_what_belongs_to_another(realm: Any, tmp_path: Path) -> None:
    """The metadata of the server names another issuer from now on: all that the first one gave goes nowhere."""
    first, second, third = realm.issuer, realm.another(), realm.another("/t")
    hook, path = realm.oauth(store=oauth.TokenFile(
        tmp_path / "tokens.json")), tmp_path / "tokens.json"
    first.metadata = second.metadata = third.metadata = {"token_endpoint_auth_methods_supported": [
        "client_secret_post"]}
    before = realm.log_in(hook)["Authorization"]
    for now in (second, third):
        first.resource = {"authorization_servers": [now.url]}
        again = realm.log_in(hook if now is second
                             else realm.oauth(store=oauth.TokenFile(path)))["Authorization"]
        assert again != before and again[7:] in now.tokens
        assert now.forms()[0]["grant_type"] == "authorization_code"
    for one in realm.issuers:
        for other in realm.issuers:
            given = [*other.tokens, *other.refresh, *other.clients.values()]
            assert one is other or len(given) == 3 and not [secret for secret in given
                                                            if secret in sent_to(one)]
    # and back again: what it has given before is good there
    first.resource = {}
    assert realm.log_in(realm.oauth(store=oauth.TokenFile(path)))["Authorization"] == before
    assert [len(issuer.paths("/token")) for issuer in realm.issuers] == [1, 1, 1]


def test_oauth_has_a_token_for_each_server(realm: Any, tmp_path: Path) -> None:
    seen: Dict[str, Set[str]] = {"a": set(), "b": set()}
    urls = {name: realm.serve(gate=lambda headers,
                              name=name: seen[name].add(headers.get("authorization", "")))
                              for name in "ab"}
    hook, store = realm.oauth(), oauth.TokenFile(tmp_path / "tokens.json")
    for one in (hook, realm.oauth(store=store), realm.oauth(store=oauth.TokenFile(store.path))):
        for name in "ab":
            assert said(realm.connect(urls[name], one).call_tool("echo", {"text": name})) == name
    assert [page["resource"] for page in realm.user.pages] == [urls["a"], urls["b"]] * 2
    assert seen["a"] & seen["b"] == {""} and len(seen["a"]) == len(seen["b"]) == 3
    for authorization in seen["a"] | seen["b"]:
        if authorization:
            assert realm.issuer.tokens[authorization[7:]]["aud"] \
                == urls["a" if authorization in seen["a"] else "b"]


def test_oauth_keeps_apart_what_it_was_granted_in_different_ways(realm: Any) -> None:
    store = oauth.TokenStore()
    realm.issuer.clients["mine"] = "secret.of.mine"
    headers = [realm.log_in(realm.oauth(store=store, **options))["Authorization"] for options in (
        {}, {"client_id": "other"}, {"client_id": "mine", "secret": "secret.of.mine"},
        {"client_id": "mine", "secret": "secret.of.mine", "grant": oauth.ClientCredentials()})]
    assert len(set(headers)) == 4 and len([name for name in store.read()
                                           if name.startswith("token ")]) == 4


def test_oauth_of_a_changed_resource_starts_again(realm: Any) -> None:
    issuer, hook = realm.issuer, realm.oauth()
    whole = realm.log_in(hook)["Authorization"]
    issuer.resource = {"resource": issuer.origin + "/"}
    assert realm.log_in(hook)["Authorization"] != whole
    assert [form["resource"] for form in issuer.forms()] == [issuer.mcp, issuer.origin + "/"] \
        and issuer.renewals() == 0
    issuer.resource = {"resource": "https://honest.example/"}
    with realm.fails("the metadata is of https://honest.example/, not of"):
        realm.log_in(hook)


# ---- more scope

def needs_scope(realm: Any, **tools: str) -> Any:
    """Make the gate of a server whose tools need a scope each: it answers as the specification shows it."""
    def gate(headers: Dict[str, str]) -> None:
        claims = realm.issuer.tokens.get(headers.get("authorization", "")[7:], {})
        wanted = tools.get(headers.get("mcp-name", ""))
        if claims and wanted and not set(wanted.split()) <= set(claims["scope"].split()):
            refuse(403, 'Bearer error="insufficient_scope", scope="%s"' % wanted)
    return gate


def test_oauth_asks_for_more_scope_when_it_is_needed(realm: Any) -> None:
    client = realm.connect(realm.serve("read", gate=needs_scope(realm, add="write",
                                                                echo="talk read")), realm.oauth(scope="own"))
    assert said(client.call_tool("add", {"a": 1})) == "3" \
        and said(client.call_tool("echo", {"text": "t"})) == "t"
    assert said(client.call_tool("add", {"a": 2})) == "4"       # and what was granted before, stays
    scopes = [page["scope"].split() for page in realm.user.pages]
    assert scopes == [["read", "own"], ["read", "own", "write"], ["read", "own", "write", "talk"]]
    realm.issuer.tokens.clear()
    client.ping()
    assert realm.issuer.renewals() == 1 and len(realm.user.pages) == 3
    realm.issuer.tokens.clear()
    realm.issuer.refresh.clear()
    client.ping()
    assert set(realm.user.pages[3]["scope"].split()) == set(scopes[2])


def test_oauth_does_not_ask_twice_for_what_did_not_help(realm: Any) -> None:
    for scope, told in (("write",
                         "the server wants the scope write, but refuses a token that was asked for with it"), ("", r"the scope \(it does not say")):
        hook, before = realm.oauth(), len(realm.user.pages)
        realm.log_in(hook, 'Bearer scope="write"')
        for _ in range(2):
            with realm.fails(told) as caught:
                realm.log_in(hook, 'Bearer error="insufficient_scope"'
                             + (', scope="%s"' % scope if scope else ""), 403)
            assert caught.value.status == 403
        assert len(realm.user.pages) == before + 1


def test_oauth_does_not_ask_for_more_and_more_for_ever(realm: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(oauth, "MAX_STEP_UPS", 3)
    hook = realm.oauth()
    for n in range(4):
        realm.log_in(hook, 'Bearer error="insufficient_scope", scope="s%d"' % n if n
                     else "Bearer scope=s0", 403 if n else 401)
    for n in (4, 5):
        with realm.fails("the server wanted more scope 3 times") as caught:
            realm.log_in(hook, 'Bearer error="insufficient_scope", scope="s%d"' % n, 403)
        assert caught.value.status == 403
    assert [page["scope"] for page in realm.user.pages] == ["s0", "s0 s1", "s0 s1 s2",
                                                            "s0 s1 s2 s3"]
    client, wanted = realm.connect(realm.serve()), iter(range(99))
    realm.gate = lambda headers: refuse(403, 'Bearer error="insufficient_scope", scope="t%d"'
                                        % next(wanted))
    with pytest.raises(mcp_ref.HttpError) as refused:
        client.ping()
    # MAX_AUTHORIZE: for one request
    assert refused.value.status == 403 and len(realm.user.pages) == 5 + 3


def refuse(status: int, challenge: str = "", message: str = "no") -> None:
    """Refuse a request, as the hook of a server does."""
    raise mcp_ref.HttpError(status, message, {"WWW-Authenticate": challenge} if challenge else {})


@pytest.mark.parametrize("challenge", ["", "Bearer", 'Bearer error="invalid_token"',
                                       'Basic error="insufficient_scope"', 'Bearer scope="x"'])
def test_oauth_leaves_any_other_403_to_the_caller(realm: Any, challenge: str) -> None:
    assert realm.log_in(realm.oauth(), challenge, 403) is None
    client = realm.connect(realm.serve())
    realm.gate = lambda headers: refuse(403, challenge, "You may not do that here")
    with pytest.raises(mcp_ref.HttpError, match="You may not do that here") as caught:
        client.ping()
    assert caught.value.status == 403 and type(caught.value) is mcp_ref.HttpError \
        and len(realm.user.pages) == 1
    realm.gate = None
    client.ping()


# ---- keys and signatures

P256_SECRET = 0xd1890c68d3a9627e34e3095dd05613d005f2502476683bd066f7fedbe766da83
PEMS = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEINGJDGjTqWJ+NOMJXdBWE9AF8lAkdmg70Gb3/tvnZtqDoAoGCCqGSM49
AwEHoUQDQgAEjSxiGaSriJ9XZrsySULOK9lIOXN7jnPSJ4uq/mLwfSxRVAgkA+Z0
MtFIylQSoEcISLDHUvJ2WOUYX9cC2/EWag==
-----END EC PRIVATE KEY-----

-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg0YkMaNOpYn404wld
0FYT0AXyUCR2aDvQZvf+2+dm2oOhRANCAASNLGIZpKuIn1dmuzJJQs4r2Ug5c3uO
c9Ini6r+YvB9LFFUCCQD5nQy0UjKVBKgRwhIsMdS8nZY5Rhf1wLb8RZq
-----END PRIVATE KEY-----

-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEINGJDGjTqWJ+NOMJXdBWE9AF8lAkdmg70Gb3/tvnZtqDoAoGCCqGSM49
AwEHoUQDQgAEjSxiGaSriJ9XZrsySULOK9lIOXN7jnPSJ4uq/mLwfSxRVAgkA+Z0
MtFIylQSoEcISLDHUvJ2WOUYX9cC2/EWag==
-----END EC PRIVATE KEY-----
""".split("\n\n")
OTHER_PEMS = """\
-----BEGIN PRIVATE KEY-----
MIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQgp/iMSCeEfAx2CPawm4eS
RmMTdBOFM0gCX0bsXcUSHHihRANCAAQCf2nsl7Q7IYD5JPItNnjT+iyDWnOteNU6
z2Aj9VWLpWIhekhc59g8/fMrZ67Bb6NWahH1cx7obFDU31n0YTNw
-----END PRIVATE KEY-----

-----BEGIN EC PRIVATE KEY-----
MIGkAgEBBDCKrwJ3INSfso9I4FuYtgFmzRu3VUT4GlUZwDd893OS3+JAnvvNCHAX
R2zSUofWcJqgBwYFK4EEACKhZANiAASXqsnT7nu/hkSxdHwSgFeC+j6u1B4f6u/m
vertCSTDt4Xgr6BmrcpByIxTHmVOsqgDG+urUkmNJd4XgfRB7aN+Ng1lz25Qd9au
dL5R3RWN7MXf+L+5M6Sga5cL8O4tVKs=
-----END EC PRIVATE KEY-----

-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIPkqDu9wVvT8ITLDqlHdYUuxvCXB4AqACnYpyBTXhhR2
-----END PRIVATE KEY-----

-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjP/giNsBmrAgICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEELVwxs6BkzWq7NnORtEblPkEgZCM
NBL1usC6gCeoEH7Hnn6dJfgrq9MsOCX1lTPwiq2Evpu5n6WRpC1xmo3LZnwjEHjE
XanM8tV4NhrMks0hXplYBJVxj6VoagaAqJ/NXy3vcVMZSdLW9juHpY2BpcORbtSy
P302JScbeyd1aLPynezGaQNF7aN7u5F5VWR1k9gDiSCzRBMTFpRUi0q9IMcNfE4=
-----END ENCRYPTED PRIVATE KEY-----
""".split("\n\n")


@pytest.fixture
def bare(monkeypatch: Any) -> None:
    """No `cryptography`, even if it is installed."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)


def test_oauth_signs_as_the_standard_shows(bare: None) -> None:
    """RFC 6979 A.2.5, P-256 with SHA-256."""
    assert RFC_KEY.jwk == {"kty": "EC", "crv": "P-256",
                           "x": "YP7UuiVanTHJYet0xjVtaMBJuJI7Yfps5mliLmDyn7Y",
                           "y": "eQP-EAi4vJmkGunpVii8ZPLxsgwtfp9Rd6PClNRGIpk"}
    for message, r, s in (
            (b"sample", "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
             "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"),
            (b"test", "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367",
             "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083")):
        assert RFC_KEY.sign(message).hex().upper() == r + s
        assert oauth._is_es256(RFC_KEY.jwk, message, bytes.fromhex(r + s))
        assert not oauth._is_es256(RFC_KEY.jwk, message + b".", bytes.fromhex(r + s))


def test_oauth_makes_and_reads_keys(bare: None) -> None:
    for pem in PEMS:
        for form in (pem, pem.replace("\n", "\r\n"), "a line before\n\n" + pem + "\nand after"):
            key = oauth.Key.from_pem(form, "k1")
            assert (key.secret, key.ident) == (P256_SECRET,
                                               "k1") and oauth._is_es256(key.jwk, b"m", key.sign(
                                                   b"m"))
    broken = [PEMS[0][:120] + PEMS[0][124:], PEMS[1].replace("MIGH", "MIG!"),
              PEMS[1].replace("ByqGSM49AgEG", "ByqGSM49AgIG"), PEMS[0][:90],
              "-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----",
              "-----BEGIN PRIVATE KEY-----\nMA==\n-----END",
              "", CERTIFICATE.partition("KEY-----\n")[0]]
    for pem in [*OTHER_PEMS, *broken]:
        with pytest.raises(ValueError, match="no PEM of a private key on P-256") as caught:
            oauth.Key.from_pem(pem)
        assert caught.value.__suppress_context__ and len(str(caught.value)) < 60
    for secret in (0, -1, oauth._N, 2**256):
        with pytest.raises(ValueError, match="between 1 and the order"):
            oauth.Key(secret)
    keys = [oauth.Key(1), oauth.Key(oauth._N - 1), oauth.Key.generate(), oauth.Key.generate()]
    assert len({key.thumbprint for key in keys}) == 4
    for key in keys:
        assert oauth._is_es256(key.jwk, b"m", key.sign(b"m"))
        assert "d" not in key.jwk and repr(key) == "<Key %s>" % key.thumbprint


def test_oauth_names_keys_by_their_thumbprint() -> None:
    key = oauth.Key(7)
    key.jwk = {"kty": "EC", "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
               "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA", "crv": "P-256"}
    assert key.thumbprint == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"      # RFC 9449 §6.1
    # RFC 7638 §3
    members = '{"crv":"P-256","kty":"EC","x":"%s","y":"%s"}' % (RFC_KEY.jwk["x"], RFC_KEY.jwk["y"])
    assert RFC_KEY.thumbprint \
        == base64.urlsafe_b64encode(hashlib.sha256(members.encode()).digest()).decode().rstrip("=")


def test_oauth_signs_by_cryptography_if_it_is_there(monkeypatch: Any) -> None:
    class Fake:
        """Stands for the four modules that are used: notes what it is asked for."""
        __name__ = "cryptography.hazmat.primitives"
        SHA256 = SECP256R1 = staticmethod(lambda: "curve or hash")
        ECDSA = staticmethod(lambda hashing: "ecdsa")

        def derive_private_key(self, secret: int, curve: str) -> "Fake":
            asked.append(secret)
            return self

        def sign(self, message: bytes, how: str) -> bytes:
            asked.append((message, how))
            return b"der"

        def decode_dss_signature(self, signature: bytes) -> Tuple[int, int]:
            return 5, 6
    asked: List[Any] = []
    for name in ("", ".asymmetric.ec", ".asymmetric.utils", ".hashes"):
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives" + name, Fake())
    assert RFC_KEY.sign(b"m") == bytes(31) + b"\5" + bytes(31) + b"\6"
    assert asked == [RFC_KEY.secret, (b"m", "ecdsa")]


def test_oauth_encodes_as_jose_does() -> None:
    for content in (b"", b"f", b"fo", b"foo", bytes(range(256))):
        assert oauth.unb64(oauth.b64(content)) == content and "=" not in oauth.b64(content)
    # RFC 4648 §3.5: one way only
    for odd in ("Zg==", "Zh", "Z", "Zg\n", "Z g", "+/+/", "Zm9v!", "Zm9vZ", "é"):
        with pytest.raises(ValueError):
            oauth.unb64(odd)


# ---- other ways to a token

@pytest.mark.parametrize("methods", [["client_secret_post"], ["client_secret_post",
                                                              "client_secret_basic"],
                                                              ["private_key_jwt", "client_secret_basic"], None])
@pytest.mark.parametrize("key", [None, RFC_KEY])
def test_oauth_for_programs_without_a_user(realm: Any, methods: Any, key: Any) -> None:
    issuer = realm.another("/tenant")
    issuer.clients["robot"], issuer.metadata = "its.secret", {
        "token_endpoint_auth_methods_supported": methods}
    issuer.given = {"refresh_token": None}
    url = realm.serve("run", issuer=issuer)
    client = realm.connect(url, realm.oauth("robot", "its.secret", key=key,
                                            grant=oauth.ClientCredentials()))
    client.ping()
    issuer.tokens.clear()
    client.ping()
    signs = key is not None and methods is not None and "private_key_jwt" in methods
    forms = [dict(form) for form in issuer.forms()]
    for form in forms:
        assert (form["grant_type"], form["scope"], form["resource"]) \
            == ("client_credentials", "run", url)
    assert len(forms) == 2 and issuer.paths("/authorize", "/register") == [] and realm.user.pages \
        == []
    knocks = [knock for knock in issuer.knocks if knock.path == "/token"]
    assert all(("authorization" in knock.headers) == (not signs
                                                      and methods != ["client_secret_post"])
                                                      for knock in knocks)
    assert all(("client_secret" in form) == (methods == ["client_secret_post"])
               == ("client_id" in form) for form in forms)
    assert all(("client_assertion" in form) == signs for form in forms)
    said_of_us = [claims_in(form["client_assertion"]) for form in forms if signs]
    for form, claims in zip(forms, said_of_us):
        assert oauth.verified(form["client_assertion"], {"keys": [RFC_KEY.jwk]}) == claims
        # the issuer, not an endpoint
        assert (claims["iss"], claims["sub"], claims["aud"]) == ("robot", "robot", issuer.url)
        assert claims["exp"] - claims["iat"] == oauth.ASSERTION_SECONDS \
            and abs(claims["iat"] - time.time()) < 60
    assert len({claims["jti"] for claims in said_of_us}) == len(said_of_us)


def test_oauth_signs_with_the_name_of_its_key(realm: Any) -> None:
    realm.issuer.metadata = {"client_id_metadata_document_supported": True}
    realm.log_in(realm.oauth(metadata_url=METADATA_URL, key=oauth.Key(P256_SECRET, "k1")))
    head = claims_in(realm.issuer.forms()[0]["client_assertion"], 0)
    assert head == {"alg": "ES256",
                    "kid": "k1"} and claims_in(realm.issuer.forms()[0]["client_assertion"])["sub"] \
                        == METADATA_URL
    assert "client_id" not in realm.issuer.forms()[0]


def test_oauth_programs_need_something_to_show(realm: Any) -> None:
    for options in ({}, {"client_id": "robot"}):
        with realm.fails("client credentials need a client_id, with a secret or a key"):
            realm.log_in(realm.oauth(grant=oauth.ClientCredentials(), **options))
    realm.issuer.clients["robot"] = "right"
    with realm.fails("invalid_client", code="invalid_client"):
        realm.log_in(realm.oauth("robot", "wrong.but.secret", grant=oauth.ClientCredentials()))
    assert realm.issuer.paths("/register", "/authorize") == [] and len(realm.issuer.forms()) == 1


def test_oauth_programs_ask_for_more_scope(realm: Any) -> None:
    realm.issuer.clients["robot"] = "its.secret"
    hook = realm.oauth("robot", "its.secret", grant=oauth.ClientCredentials())
    client = realm.connect(realm.serve("read", gate=needs_scope(realm, add="write")), hook)
    assert said(client.call_tool("add", {"a": 1})) == "3"
    assert [form["scope"] for form in realm.issuer.forms()] == ["read", "read write"]


@pytest.mark.parametrize("client_id", ["", "robot"])
@pytest.mark.parametrize("given", ["jwt", "function"])
def test_oauth_for_workloads(realm: Any, client_id: str, given: str) -> None:
    asked: List[str] = []
    issuer, statement = realm.issuer, "header.claims+/=.signature"
    issuer.secrets.add(statement)
    grant = oauth.Workload(statement if given == "jwt" else lambda whom: asked.append(whom)
                           or statement)
    url = realm.serve("run")
    realm.connect(url, hook := realm.oauth(client_id, grant=grant)).ping()
    wanted = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": statement,
              "resource": url, "scope": "run",
              **({"client_id": client_id} if client_id else {})}
    assert issuer.forms() == [wanted] and asked == [issuer.url] * (given == "function")
    assert issuer.paths("/register", "/authorize") == []
    issuer.at["/token"] = (400, {"error": "invalid_grant", "error_description": "not " + statement})
    # once for each request: neither another try nor another way
    for n in (2, 3):
        with realm.fails("refuses: 400 invalid_grant not", code="invalid_grant"):
            realm.connect(url, realm.oauth(client_id, grant=grant))
        assert len(issuer.paths("/token")) == n and issuer.paths("/register", "/authorize") == []
    assert hook.grant.name == "workload" and statement not in repr(grant)


@pytest.mark.parametrize("secret", ["", "idp.secret/="])
@pytest.mark.parametrize("given", ["jwt", "function"])
def test_oauth_managed_by_an_enterprise(realm: Any, secret: str, given: str) -> None:
    issuer, provider, user = realm.issuer, realm.another(), "id.token.of.ann"
    issuer.clients["mine"], kind = "my.secret", "urn:ietf:params:oauth:token-type:id-jag"
    for one in (user, "grant.for.mine", secret or "x" * 99):
        issuer.secrets.add(one)
    provider.at["/idp"] = (200, good := {"issued_token_type": kind,
                                         "access_token": "grant.for.mine", "token_type": "N_A"})
    grant = oauth.EnterpriseManaged(provider.origin + "/idp", user if given == "jwt"
                                    else lambda: user, "sso", secret)
    url = realm.serve("run")
    realm.connect(url, realm.oauth("mine", "my.secret", grant=grant)).ping()
    assert provider.knocks[0].form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": kind, "audience": issuer.url, "resource": url,
        "scope": "run", "subject_token": user,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token", "client_id": "sso",
        **({"client_secret": secret} if secret else {})}
    assert issuer.forms() == [{"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                               "assertion": "grant.for.mine", "resource": url,
                               "scope": "run"}]
    for answer in ({**good, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
                   {**good, "issued_token_type": None},
                   {**good, "access_token": 7}, {"token_type": "N_A"}, []):
        provider.at["/idp"] = (200, answer)
        with realm.fails("/idp gives no grant for this server"):
            realm.log_in(realm.oauth("mine", "my.secret", grant=grant))
    provider.at["/idp"] = (400, {"error": "invalid_grant",
                                 "error_description": "no " + user + secret})
    with realm.fails("/idp refuses: 400 invalid_grant no", code="invalid_grant"):
        realm.log_in(realm.oauth("mine", "my.secret", grant=grant))
    with realm.fails("this needs a client registered with " + issuer.url):
        realm.log_in(realm.oauth(grant=grant))
    assert len(issuer.forms()) == 1 and provider.paths() == ["/idp"] * 7 and realm.user.pages == []
    for endpoint in ("http://idp.example/token", "ftp://idp.example", ""):
        with realm.fails("the token endpoint of the identity provider has to be of https"):
            oauth.EnterpriseManaged(endpoint, user, "sso")


# ---- tokens that are bound to a key: RFC 9449

class Bound:
    """A server that takes DPoP tokens only, and checks the proofs; `nonce` is what they must have."""

    def __init__(self, realm: Any) -> None:
        # type: Any, str, List[Dict[str, Any]]
        self.realm, self.nonce, self.proofs = realm, "", []
        self.at = realm.site(make_server())
        self.url = "http://127.0.0.1:%d/mcp" % self.at.port
        self.at.endpoint.authorize = self
        self.at.endpoint.metadata = oauth.resource_metadata(self.url, [realm.issuer.url],
                                                            dpop_bound_access_tokens_required=True)
        realm.issuer.metadata = {"dpop_signing_alg_values_supported": ["RS256", "ES256"]}

    def __call__(self, headers: Dict[str, str]) -> str:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        claims = self.realm.issuer.tokens.get(token)
        if scheme != "DPoP" or claims is None:
            raise mcp_ref.HttpError(401, "no", {"WWW-Authenticate": 'Basic, DPoP algs="ES256"'})
        head, proof = (claims_in(headers["dpop"], part) for part in (0, 1))
        body, _, signature = headers["dpop"].rpartition(".")
        assert oauth._is_es256(head["jwk"], body.encode(), oauth.unb64(signature)) and head["jwk"] \
            == claims["jkt"]
        assert (head["typ"], head["alg"], sorted(head["jwk"])) \
            == ("dpop+jwt", "ES256", ["crv", "kty", "x", "y"])
        assert (proof["htm"], proof["htu"]) == ("POST",
                                                self.url) and abs(proof["iat"] - time.time()) < 60
        assert proof["ath"] == oauth.b64(hashlib.sha256(token.encode()).digest())
        if proof.get("nonce", "") != self.nonce:
            raise mcp_ref.HttpError(401, "no", {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"',
                                                "DPoP-Nonce": self.nonce})
        self.proofs.append(proof)
        return "ann"


def proofs_at(issuer: Issuer) -> List[Tuple[Dict[str, Any], Dict[str, Any]]]:
    """List head and claims of the proofs that the token endpoint got."""
    return [(claims_in(knock.headers["dpop"], 0), claims_in(knock.headers["dpop"]))
            for knock in issuer.knocks
            if knock.path == "/token" and "dpop" in knock.headers]


@pytest.mark.parametrize("dpop", [None, True])
def test_oauth_binds_tokens_to_its_key(realm: Any, dpop: Any, tmp_path: Path) -> None:
    server, issuer, store = Bound(realm), realm.issuer, oauth.TokenFile(tmp_path / "tokens.json")
    issuer.metadata["token_endpoint"] = issuer.origin + "/token?tenant=1"
    client = realm.connect(server.url, hook := realm.oauth(dpop=dpop, store=store),
                           version=MODERN[0])
    client.ping()
    # another process has the same key
    again = realm.connect(server.url, other := realm.oauth(store=oauth.TokenFile(store.path)),
                          version=MODERN[0])
    issuer.tokens.clear()
    again.ping()
    assert [form["grant_type"] for form in issuer.forms()] == ["authorization_code",
                                                               "refresh_token"]
    for head, claims in proofs_at(issuer):
        assert (head["typ"], head["alg"], head["jwk"]) == ("dpop+jwt",
                                                           "ES256", hook.proof_key().jwk)
        assert (claims["htm"], claims["htu"], "ath" in claims,
                "nonce" in claims) == ("POST", issuer.origin + "/token", False, False)
        assert set(claims) == {"jti", "htm", "htu", "iat"}
    assert realm.user.pages[0]["dpop_jkt"] == hook.proof_key().thumbprint \
        == other.proof_key().thumbprint
    proofs = [*server.proofs, *(claims for _, claims in proofs_at(issuer))]
    assert len({proof["jti"] for proof in proofs}) == len(proofs) >= 5
    issuer.secrets.update([str(hook.proof_key().secret), "%x" % hook.proof_key().secret])


def test_oauth_puts_the_nonces_into_its_proofs(realm: Any) -> None:
    server, issuer = Bound(realm), realm.issuer
    server.nonce, issuer.nonce = "rs-1", "as-1"
    client = realm.connect(server.url, version=MODERN[0])
    for n in (2, 3):
        server.nonce = "rs-%d" % n              # another one: the token is still good
        client.ping()
        client.ping()
        issuer.nonce = "as-%d" % n
        issuer.tokens.clear()
        client.ping()
    assert [claims.get("nonce") for _, claims in proofs_at(issuer)] \
        == [None, "as-1", "as-1", "as-2", "as-2", "as-3"]
    assert {proof["nonce"] for proof in server.proofs} == {"rs-1", "rs-2", "rs-3"}
    # two of them with the nonce of before
    assert len(realm.user.pages) == 1 and issuer.renewals() == 4


def test_oauth_does_not_try_nonces_for_ever(realm: Any) -> None:
    server, issuer, count = Bound(realm), realm.issuer, iter(range(99))
    issuer.at["/token"] = lambda knock: (400, {"error": "use_dpop_nonce"},
                                         {"DPoP-Nonce": "n%d" % next(count)})
    with realm.fails("400 use_dpop_nonce", code="use_dpop_nonce"):
        realm.connect(server.url, version=MODERN[0])
    assert len(issuer.paths("/token")) == 2
    # none, the same once more, and none that fits into a proof
    for nonce in (None, "", "as-1", "a b", "a\u00e9"):
        issuer.at["/token"] = (400, {"error": "use_dpop_nonce"},
                               {"DPoP-Nonce": nonce.encode().decode("latin-1")}
                               if nonce is not None else {})
        before = len(issuer.paths("/token"))
        with realm.fails("400 use_dpop_nonce"):
            realm.connect(server.url, version=MODERN[0])
        assert len(issuer.paths("/token")) - before == (2 if nonce == "as-1" else 1)
    issuer.at.clear()
    realm.gate = None
    client = realm.connect(server.url, version=MODERN[0])
    endless = ("rs-%d" % n for n in range(99))
    server.at.endpoint.authorize = lambda headers: (_ for _ in ()).throw(mcp_ref.HttpError(
        401, "no", {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"',
                    "DPoP-Nonce": next(endless)}))
    with pytest.raises(mcp_ref.HttpError):
        client.ping()
    assert next(endless) == "rs-%d" % (1 + mcp_ref.MAX_AUTHORIZE) \
        and len(issuer.forms(grant_type="refresh_token")) == 0


@pytest.mark.parametrize("dpop, offered, demanded, given, outcome", [
    (True, ["ES256"], False, "DPoP", "DPoP"), (None, ["ES256"], True, "DPoP", "DPoP"),
    (None, ["ES256"], False, "Bearer", "Bearer"),
    (False, ["ES256"], True, "Bearer", "Bearer"), (None, None, True, "Bearer", "Bearer"),
    (None, ["ES256"], True, "Bearer", "Bearer"),
    (True, None, False, "", "gives no tokens bound to a key of ours"),
    (True, ["RS256"], True, "", "gives no tokens bound to a key of ours"),
    (True, "ES256", True, "", "gives no tokens bound"), (True, ["ES256"], True, "Bearer",
                                                         "of the wrong kind, bearer"),
    (None, ["ES256"], False, "DPoP", "of the wrong kind, dpop"),
    (False, ["ES256"], True, "DPoP", "of the wrong kind, dpop")])
def test_oauth_binds_tokens_where_both_sides_want_it(realm: Any, dpop: Any, offered: Any,
                                                     demanded: bool, given: str,
                                                     outcome: str) -> None:
    issuer, hook = realm.issuer, realm.oauth(dpop=dpop)
    issuer.metadata, issuer.resource = {"dpop_signing_alg_values_supported": offered}, {
        "dpop_bound_access_tokens_required": demanded}
    issuer.given = {"token_type": given}
    with realm.ends(outcome if " " in outcome else ""):
        headers = realm.log_in(hook)
        assert headers["Authorization"].startswith(outcome + " at.") and ("DPoP" in headers) \
            == (outcome == "DPoP")
    page = realm.user.pages[-1:] or [{}]
    assert ("dpop_jkt" in page[0]) == (outcome == "DPoP" or outcome.endswith("bearer")
                                       or (dpop, offered, demanded,
                                           given) == (None, ["ES256"], True, "Bearer"))
    assert page != [{}] or given == ""


# ---- no secret is told, however much the others tell

def echo(knock: Knock) -> Any:
    """Refuse, and repeat all that was sent, in every way in which it was sent."""
    everything = " | ".join([*knock.form.values(), knock.body.decode()])
    return 400, {"error": "invalid_request", "error_description": everything,
                 "error_uri": everything, **{
        name: value for name, value in knock.form.items() if name != "error"}}


SECRET_OPTIONS: List[Tuple[Dict[str, Any], List[str]]] = [      # of a hook; methods of the issuer
    ({}, ["none"]), ({}, ["client_secret_post"]), ({}, ["client_secret_basic"]),
    ({"client_id": "mine", "key": RFC_KEY}, ["private_key_jwt"]),
    ({"client_id": "mine", "secret": "very.secret"}, ["client_secret_post"]),
    ({"dpop": True}, ["none"]),
    ({"client_id": "mine", "secret": "very.secret", "grant": oauth.ClientCredentials()},
     ["client_secret_post"]),
    ({"client_id": "mine", "key": RFC_KEY, "grant": oauth.ClientCredentials()},
     ["private_key_jwt"]),
    ({"grant": oauth.Workload("a.very.secret.statement")}, ["none"])]


@pytest.mark.parametrize("number", range(len(SECRET_OPTIONS)))
def test_oauth_repeats_no_secret_of_a_refusal(realm: Any, number: int) -> None:
    """Realm.close() looks for all secrets that the issuer made or got: in exceptions, logs, traces and reprs."""
    issuer, (options, methods) = realm.issuer, SECRET_OPTIONS[number]
    issuer.metadata = {"token_endpoint_auth_methods_supported": methods,
                       "dpop_signing_alg_values_supported": ["ES256"]}
    issuer.clients["mine"] = options.get("secret", "")
    issuer.secrets.update(["very.secret", "a.very.secret.statement", "%x" % RFC_KEY.secret,
                           str(RFC_KEY.secret)])
    usual = issuer.token
    # so that it learns all secrets that it is sent
    issuer.token = lambda knock: (usual(knock), echo(knock))[1]
    hook = realm.oauth(**options)
    with realm.fails("refuses: 400 invalid_request", code="invalid_request"):
        realm.log_in(hook)
    issuer.token = usual
    realm.log_in(hook)
    issuer.token = lambda knock: (usual(knock), echo(knock))[1]
    with realm.fails("refuses: 400 invalid_request"):                   # now to renew it
        realm.log_in(hook)
    assert len(issuer.secrets) > 6
    for told in (None, 7, {"x": "y"}, ["z"]):
        issuer.token = lambda knock: (400,
                                      {"error": told, "error_description": {
                                          **knock.form, "told": told}})
        with realm.fails("refuses: 400"):
            realm.log_in(hook)


def test_oauth_repeats_no_token_of_a_refusal(realm: Any) -> None:
    client = realm.connect(realm.serve())

    def gate(headers: Dict[str, str]) -> None:
        refuse(403, 'Bearer error="no_way", error_description="%s"' % headers["authorization"],
               "You sent %s" % headers)
    realm.gate = gate
    with realm.fails("answers 403 Forbidden.*You sent", mcp_ref.HttpError):
        client.call_tool("echo", {"text": "t"})
    realm.gate = lambda headers: refuse(401, "Basic", "You sent %s" % headers)
    realm.issuer.at["/token"] = 500
    with realm.fails("refuses: 500"):
        client.ping()


def test_oauth_repeats_nothing_of_the_way_back(realm: Any) -> None:
    realm.user.bend = lambda address: [rewritten(address, code=None, error="server_error",
                                                 error_description="you sent "
                                                 + query_of(address)["state"])]
    with realm.fails("the login failed: server_error you sent \\*\\*\\*"):
        realm.log_in()
    realm.user.bend = lambda address: [rewritten(address, iss="https://evil.example",
                                                 error=query_of(address)["code"])]
    with realm.fails("of another issuer"):
        realm.log_in()


def test_oauth_shows_urls_without_their_queries(realm: Any) -> None:
    issuer = realm.issuer
    issuer.secrets.add("hidden")
    for metadata, at in (({"token_endpoint": issuer.origin + "/token?key=hidden"}, {"/token": 500}),
                         ({"registration_endpoint": issuer.origin + "/register?key=hidden"},
                          {"/register": 500}),
                         ({"token_endpoint": "ftp://far.example/?key=hidden"}, {}),
                         ({"issuer": issuer.url + "?key=hidden"}, {})):
        issuer.metadata, issuer.at = metadata, at
        with realm.fails("500|token_endpoint|the metadata at"):
            realm.log_in()
    issuer.knocks.clear()                       # where it was sent, of course


def test_oauth_has_no_secret_in_a_repr(realm: Any, tmp_path: Path) -> None:
    store = oauth.TokenFile(tmp_path / "tokens.json")
    realm.issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    hook = realm.oauth(store=store)
    realm.log_in(hook)
    realm.issuer.clients["mine"] = "very.secret"
    realm.log_in(other := realm.oauth("mine", "very.secret", key=oauth.Key(P256_SECRET)))
    made = [hook, other, store, hook.grant, hook.browser, other.key,
            hook.registered(hook._seats[realm.issuer.mcp].place),
            hook._seats[realm.issuer.mcp].token, oauth.ClientCredentials(),
            oauth.Workload("very.secret"),
            oauth.EnterpriseManaged("https://idp.example", "very.secret", "sso", "very.secret")]
    realm.said += [show(one) for one in made for show in (repr, str)]
    realm.said += ["%s" % made, "%r" % made]
    assert "<OAuth mine>" in repr(other) and repr(hook._seats[realm.issuer.mcp].token) \
        == "<Token Bearer>"
    realm.issuer.secrets.update(["very.secret", str(P256_SECRET)])


# ------------------------------------------------------------------------------------------
# Authorization, the other side: servers that take tokens
# ------------------------------------------------------------------------------------------

RSA_PRIMES = (int("ea20cd9a6028ae4c09b832cef46635b900daa31eb6b0da812d134e3fecc390fe9c71642866a76ab2310dcae7ebaed3a059d2"
                  "c3699917e48bb362de166c4381d42b3ce6844c1f675cb054b110b17576dcf2edf72508d77b49779d013d223427be6ce35668"
                  "683e1f929f0603df3eae88a8b6e65e6681a954ca3a67e5c588df879f", 16),
              int("dab7d31de180f56a84efe795eb2a0f03081acf240727270dd07a03bc904afdff772e66f41dc7af7f17b700aa042728722bc2"
                  "c6452c80962a538b71cd25fb2ebae5cd10614decf6e82c6fddb210d0814113e10505d85bb9bc880e0f22a655046f8e9a8e9b"
                  "0fe90f40e84d6da72f5d31ceba05799505f1b30fcca56d57eafdb247", 16))
RSA_N = RSA_PRIMES[0] * RSA_PRIMES[1]
ISSUED_BY, AUDIENCE, GOOD_TIME = "https://issuer.example", "https://mcp.example/mcp", 1_800_000_000
METADATA_AT = "https://mcp.example" + RESOURCE_AT + "/mcp"


def as_bytes(number: int, size: int = 0) -> bytes:
    return number.to_bytes(size or (number.bit_length() + 7) // 8, "big")


def rsa_jwk(n: int = RSA_N, e: int = 65537, **more: Any) -> Dict[str, Any]:
    return {"kty": "RSA", "n": oauth.b64(as_bytes(n)), "e": oauth.b64(as_bytes(e)), **more}


TRUSTED_KEYS = {"keys": [{"kty": "oct", "k": "c2VjcmV0"}, {**oauth.Key(5).jwk, "kid": "e1",
                                                           "use": "enc"}, {**RFC_KEY.jwk, "kid": "e1", "use": "sig"},
                 rsa_jwk(kid="r1", alg="RS256"), {"kty": "EC", "crv": "P-256", "x": "AA",
                                                  "y": "AA", "kid": "odd"},
                                                  {"kty": ["?"], "kid": "e1"}]}


def rs256(message: bytes, primes: Tuple[int, ...] = RSA_PRIMES, e: int = 65537,
          digest: str = "3031300d060960864801650304020105000420",
          tail: bytes = b"") -> bytes:
    """Sign with RSA: RFC 8017 §8.2.1."""
    n = order = 1
    for prime in primes:
        n, order = n * prime, order * (prime - 1)
    size = (n.bit_length() + 7) // 8
    block = bytes.fromhex(digest) + hashlib.sha256(message).digest() + tail
    padded = b"\0\1" + b"\xff" * (size - len(block) - 3) + b"\0" + block
    return as_bytes(pow(int.from_bytes(padded, "big"), pow(e, -1, order), n), size)


SIGNERS: Dict[str, Any] = {"ES256": RFC_KEY.sign, "RS256": rs256, "none": lambda message: b"",
                           "HS256": lambda message: hmac.new(oauth.unb64(TRUSTED_KEYS["keys"][3][
                               "n"]), message, "sha256").digest()}


def minted(sign: Any = None, head: Any = None, raw: Any = None, **claims: Any) -> str:
    """Make a token for AUDIENCE, with changes of head and claims (None: left out)."""
    top = Issuer.changed({"alg": "ES256", "kid": "r1" if (head or {}).get("alg") == "RS256"
                          else "e1", "typ": "at+jwt"}, head or {})
    body = Issuer.changed({"iss": ISSUED_BY, "sub": "ann", "client_id": "c", "aud": AUDIENCE,
                           "exp": GOOD_TIME + 100, "scope": "read"}, claims)
    parts = [oauth.b64(part if isinstance(part, bytes) else json.dumps(part).encode())
             for part in (top, body if raw is None else raw)]
    signed = ".".join(parts).encode()
    return "%s.%s" % (signed.decode(),
                      oauth.b64((sign or SIGNERS[top.get("alg", "ES256")])(signed)))


def tampered(token: str, part: int, change: Any) -> str:
    parts = token.split(".")
    parts[part] = oauth.b64(change(oauth.unb64(parts[part])))
    return ".".join(parts)


def pair(r: int, s: int) -> Any:
    return lambda message: as_bytes(r, 32) + as_bytes(s, 32)


def der(message: bytes) -> bytes:
    return b"".join([b"\x30\x46",
                     *(b"\x02\x21\0" + half for half in (RFC_KEY.sign(message)[:32],
                                                         RFC_KEY.sign(message)[32:]))])


P256_N, P256_P = oauth._N, oauth._P
GOOD_TOKENS: List[Any] = [
    lambda: minted(), lambda: minted(head={"alg": "RS256"}),
    lambda: minted(aud=["https://else.example", AUDIENCE]), lambda: minted(head={"kid": None}),
    lambda: minted(head={"typ": None}), lambda: minted(head={"typ": "JWT"}),
    lambda: minted(head={"typ": "application/AT+jwt"}),
    lambda: minted(head={"alg": "RS256", "kid": None}), lambda: minted(nbf=GOOD_TIME),
    lambda: minted(nbf=GOOD_TIME + 29), lambda: minted(exp=GOOD_TIME + 0.5),
    lambda: minted(head={"jwk": oauth.Key(5).jwk, "jku": "https://evil.example",
                         "x5u": "https://evil.example"}), lambda: minted(scope=["read", "write"]),
    lambda: minted(scope=None, scp="read more"), lambda: minted(iat=GOOD_TIME + 999,
                                                                extra={"deep": [1]})]
BAD_TOKENS: List[Any] = [
    # for somebody else, by somebody else, at another time
    *(lambda aud=aud: minted(aud=aud) for aud in ("https://else.example", ["https://else.example"],
                                                  [], "", None, 7, {AUDIENCE: 1}, [[AUDIENCE]],
                                                   AUDIENCE + "/", AUDIENCE + "2",
                                                   AUDIENCE.upper(), ["x " + AUDIENCE],
                                                   "https://mcp.example")),
    *(lambda iss=iss: minted(iss=iss) for iss in ("https://evil.example", ISSUED_BY + "/",
                                                  ISSUED_BY.upper(), None, "", [ISSUED_BY])),
    *(lambda exp=exp: minted(exp=exp) for exp in (GOOD_TIME, GOOD_TIME - 1, 0,
                                                  -1, None, str(GOOD_TIME + 9), True,
                                                  [GOOD_TIME + 9], float("nan"))),
    *(lambda nbf=nbf: minted(nbf=nbf) for nbf in (GOOD_TIME + 31, str(GOOD_TIME), True,
                                                  [], float("inf"))),
    lambda: minted(cnf={"jkt": "x"}), lambda: minted(cnf={}),
    # another algorithm than the key's
    lambda: minted(head={"alg": "none"}), lambda: minted(head={"alg": "none", "kid": None}),
    lambda: minted(SIGNERS["none"], {"alg": "None", "kid": None}),
    lambda: minted(head={"alg": "HS256", "kid": "r1"}),
    lambda: minted(head={"alg": "HS256", "kid": None}),
    lambda: minted(SIGNERS["HS256"], {"alg": "RS256"}),
    lambda: minted(SIGNERS["RS256"]), lambda: minted(SIGNERS["ES256"], {"alg": "RS256"}),
    lambda: minted(SIGNERS["none"]),
    *(lambda alg=alg: minted(RFC_KEY.sign, {"alg": alg})
      for alg in (None, "es256", "ES256K", "ES384", ["ES256"], {"ES256": 1}, 7, "EC ES256")),
    lambda: minted(rs256, {"alg": "RS256", "kid": "e1"}),
    lambda: minted(rs256, {"alg": "PS256", "kid": "r1"}),
    lambda: minted(rs256, {"alg": "RS512", "kid": "r1"}),
    # what has to be understood, other kinds, other keys
    lambda: minted(head={"crit": ["exp"], "exp": 1}), lambda: minted(head={"crit": []}),
    lambda: minted(head={"kid": "e2"}), lambda: minted(head={"kid": ["e1"]}),
    lambda: minted(head={"kid": ""}), lambda: minted(head={"kid": "odd"}),
    lambda: minted(oauth.Key(5).sign), lambda: minted(oauth.Key(5).sign, {"jwk": oauth.Key(5).jwk}),
    *(lambda typ=typ: minted(head={"typ": typ}) for typ in ("dpop+jwt", "secevent+jwt",
                                                            "oauth-id-jag+jwt", "", 7, ["at+jwt"])),
    # changed on the way
    lambda: tampered(minted(), 1, lambda part: part.replace(b"ann", b"bob")),
    lambda: tampered(minted(), 0, lambda part: part.replace(b"at+jwt", b"JWT")),
    *(lambda part=part, n=n: tampered(minted(head={"alg": alg}),
                                      2, lambda s: s[:n] + bytes([s[n] ^ 1]) + s[n + 1:])
      for part, n, alg in ((2, 0, "ES256"), (2, 63, "ES256"), (2, 0, "RS256"), (2, 255, "RS256"))),
    *(lambda change=change: tampered(minted(head={"alg": alg}), 2, change)
      for alg in ("ES256", "RS256") for change in (
        lambda s: s[:-1], lambda s: s + b"\0", lambda s: b"\0" + s, lambda s: b"", lambda s: s * 2,
        lambda s: s[1:], lambda s: bytes(len(s)), lambda s: b"\xff" * len(s))),
    *(lambda r=r, s=s: minted(pair(r, s)) for r, s in ((0, 0), (0, 1), (1, 0), (P256_N, 1),
                                                       (1, P256_N), (1, 1), (
                                                           P256_N - 1, P256_N - 1),
                                                           (P256_P, P256_P), (2**256 - 1, 1))),
    lambda: minted(der), lambda: minted(lambda m: rs256(m,
                                                        digest="3021300906052b0e03021a05000414")),
                                                        lambda: minted(lambda m: rs256(
                                                            m, tail=b"\0"), {"alg": "RS256"}),
    lambda: minted(lambda m: rs256(m, digest=""), {"alg": "RS256"}),
    lambda: minted(lambda m: rs256(m, digest="3021300906052b0e03021a05000414"), {"alg": "RS256"}),
    # no tokens
    *(lambda raw=raw: minted(raw=raw) for raw in ([AUDIENCE], AUDIENCE, 7, True, b"", b"{",
                                                  b"\xff\xfe", b"[" * 9000)),
    lambda: minted()[:-2], lambda: minted() + "=", lambda: minted() + ".", lambda: "." + minted(),
    lambda: minted().replace(".", "..", 1),
    lambda: minted().replace(".", ""), lambda: ".".join(minted().split(".")[:2]),
    lambda: minted() + "A", lambda: minted(x="y" * 20000), lambda: "..", lambda: "x",
    lambda: "a" * 16385, lambda: minted()[:40] + "!" + minted()[41:],
    lambda: minted().replace(".", "%2E"), lambda: "W10.W10.W10"]


@pytest.fixture
def guarded(site: Any) -> Any:
    """Start servers with a real hook."""
    def start_guarded(make: Any = oauth.local_keys, *arguments: Any,
                      server: Optional[Server] = None, **options: Any) -> Any:
        chosen = {"resource": AUDIENCE, "issuer": ISSUED_BY, "clock": lambda: GOOD_TIME, **options}
        one = site(server or make_server(), authorize=make(*arguments or [TRUSTED_KEYS], **chosen),
                   metadata=oauth.resource_metadata(
            chosen["resource"], [chosen["issuer"] or ISSUED_BY], options.get("scopes", ())))
        one.bear = lambda token, **more: one.ask(body=PING, Authorization="Bearer " + token, **more)
        return one
    return start_guarded


def test_oauth_servers_check_every_token(guarded: Any, capfd: Any) -> None:
    one = guarded()
    for number, make in enumerate(GOOD_TOKENS):
        assert one.bear(make()).status == 200, "GOOD_TOKENS[%d]" % number
    for number, make in enumerate(BAD_TOKENS):
        response = one.bear(token := make())
        assert (response.status, response.getheader("WWW-Authenticate")) == (
            401, 'Bearer error="invalid_token", resource_metadata="%s"'
            % METADATA_AT), "BAD_TOKENS[%d]" % number
        assert token not in response.data.decode()
    # (A gateway of another test may still say that its upstream is down.)
    assert not [line for line in capfd.readouterr().err.splitlines() if not line.startswith("gateway: ")]


def test_oauth_servers_say_where_tokens_come_from(guarded: Any) -> None:
    one = guarded(scopes=["read", "write"])
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer"},
                    {"Authorization": "Bearer  "}, {"Authorization": "Basic x"},
                    {"Authorization": "DPoP x"}, {"X-Authorization": "Bearer x"},
                    {"Cookie": "access_token=x"}):
        response = one.ask(body=PING, headers=headers,
                           path="/mcp?access_token=" + minted(scope="read write"))
        # RFC 6750 §3.1: no error where nothing was shown
        assert response.status == 401 and response.getheader("WWW-Authenticate") == (
            'Bearer scope="read write", resource_metadata="%s"' % METADATA_AT)
    found = one.ask("GET", RESOURCE_AT + "/mcp")
    assert found.status == 200 and json.loads(found.data) == {"resource": AUDIENCE,
                                                              "authorization_servers": [ISSUED_BY],
                                                              "scopes_supported": ["read", "write"], "bearer_methods_supported": ["header"]}


def test_oauth_servers_want_scopes(guarded: Any) -> None:
    one = guarded(oauth.local_keys, lambda: TRUSTED_KEYS, scopes=["read", "write"])
    for scope, status in (("read write", 200), ("x write y read", 200), ("read", 403), ("", 403),
                          (None, 403), ("readwrite", 403), (["read", "write"], 200), (7, 403)):
        response = one.bear(minted(scope=scope))
        assert response.status == status
        assert status == 200 or response.getheader("WWW-Authenticate") == (
            'Bearer error="insufficient_scope", scope="read write", resource_metadata="%s"'
            % METADATA_AT)
    for spelled in ("bearer ", "BEARER ", "Bearer   "):
        assert one.ask(body=PING, Authorization=spelled + minted(scope="read write")).status == 200


def test_oauth_servers_trust_no_weak_key() -> None:
    token = minted(head={"alg": "RS256", "kid": None})
    head, body, _ = token.split(".")
    message, signature = ("%s.%s" % (head, body)).encode(), oauth.unb64(token.split(".")[2])
    assert oauth.verified(token, {"keys": [rsa_jwk()]})["sub"] == "ann"
    small = "%s.%s.%s" % (head, body, oauth.b64(rs256(message, RSA_PRIMES[:1])))
    itself = "%s.%s.%s" % (head, body, oauth.b64(as_bytes(pow(int.from_bytes(signature, "big"),
                                                              65537, RSA_N), 256)))
    x, y = (int.from_bytes(oauth.unb64(RFC_KEY.jwk[name]), "big") for name in "xy")

    def ec(x: int, y: int, **more: Any) -> Dict[str, Any]:
        return {"kty": "EC", "crv": "P-256", "x": oauth.b64(as_bytes(x, 32)),
                "y": oauth.b64(as_bytes(y, 32)), **more}
    for token, keys in (
            (small, [rsa_jwk(RSA_PRIMES[0])]), (itself, [rsa_jwk(e=1)]), (token, [rsa_jwk(e=0)]),
            (token, [rsa_jwk(e=65538)]), (token, [rsa_jwk(e=2**40 + 1)]),
            (token, [rsa_jwk(n=RSA_N << 8000)]), (token, [rsa_jwk(n=RSA_N + 2)]),
            (token, [rsa_jwk(n=0, e=0)]), (token, [{"kty": "RSA", "n": 7, "e": 7}]),
            (token, [rsa_jwk(use="enc")]), (token, []), (token, [None, 7, "x"]),
            (minted(), [ec(x, y + 1)]), (minted(), [ec(x, P256_P - y)]), (minted(), [ec(0, 0)]),
            (minted(), [ec(y, x)]),
            (minted(), [ec(x, y, crv="P-384")]), (minted(), [ec(x, y, crv="secp256k1")]),
            (minted(), [ec(x, y, kty="OKP")]), (minted(), [ec(x, y, use="enc")]),
            (minted(), [{**ec(x, y), "x": "!"}]), (minted(), [{"kty": "EC"}]),
            (minted(), [ec(x, y, kid="e9")])):
        assert oauth.verified(token, {"keys": keys}) is None, keys
    for keys in ({}, {"keys": None}, {"keys": 7}, [], None):
        assert oauth.verified(minted(), keys) is None
    assert oauth.verified(minted(), {"keys": [ec(x, y, kid="e1")]}) is not None
    for issuer in ("", None):
        with pytest.raises(ValueError, match="from an issuer only"):
            oauth.local_keys(TRUSTED_KEYS, issuer=issuer, resource="https://a.example")
    for resource in ("", "a.example", "http://a.example", "https://a.example#x"):
        with pytest.raises(oauth.OAuthError, match="the resource has to be of https"):
            oauth.local_keys(TRUSTED_KEYS, issuer=ISSUED_BY, resource=resource)
        with pytest.raises(oauth.OAuthError, match="the resource has to be of https"):
            oauth.resource_metadata(resource, [ISSUED_BY])


def test_oauth_servers_keep_callers_apart(guarded: Any) -> None:
    server = make_server()

    @server.tool
    def who(ctx: Context) -> str:
        """Say who calls."""
        assert re.fullmatch(r"<Principal \(.*\)>", repr(ctx.principal)) \
            and ctx.principal.claims["iss"] == ISSUED_BY
        return "%s by %s may %s" % (ctx.principal.subject, ctx.principal.client_id,
                                    sorted(ctx.principal.scopes))
    one = guarded(server=server)
    ann, again, bob, other, azp = ({"Authorization": "Bearer " + minted(**claims)} for claims in (
        {}, {"exp": GOOD_TIME + 50, "scope": "a b"}, {"sub": "bob"}, {"client_id": "d"},
        {"client_id": None, "azp": "c"}))
    session = one.open(**ann)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "who", "arguments": {}}}
    for headers, text in ((ann, "ann by c may ['read']"), (again, "ann by c may ['a', 'b']"),
                          (azp, "ann by c may ['read']")):
        response = one.ask(body=message, headers=headers, Mcp_Session_Id=session)
        assert said(json.loads(response.data)["result"]) == text
    for headers in (bob, other):
        for verb in ("POST", "GET", "DELETE"):
            assert one.ask(verb, body=message if verb == "POST" else None, headers=headers,
                           Mcp_Session_Id=session).status == 404
    asking = modern("tools/call", name="branch", arguments={}, capabilities={"elicitation": {}})
    response = one.ask(body=asking, headers={**mirrors(asking), **ann})
    asking["params"]["requestState"] = json.loads(response.data)["result"]["requestState"]
    for headers, good in ((ann, True), (again, True), (bob, False), (other, False)):
        assert ("result" in json.loads(one.ask(body=asking,
                                               headers={**mirrors(asking), **headers}).data)) \
                                                   == good
    principals = [oauth.Principal({"iss": "i", "sub": sub, "client_id": client}) for sub,
                  client in (("a", "c"), ("a", "c"), ("b", "c"), ("a", "d"))]
    assert principals[0] == principals[1] and len(set(principals)) == 3 and principals[0] != "a"


def test_oauth_servers_ask_the_issuer(realm: Any, guarded: Any, capfd: Any) -> None:
    issuer, now = realm.issuer, [time.time()]
    issuer.clients["rs: 1"] = "its/secret+1"
    one = guarded(oauth.introspection, issuer.origin + "/introspect?x=hidden", "rs: 1",
                  "its/secret+1", issuer=issuer.url, clock=lambda: now[0])
    good = {"iss": issuer.url, "sub": "ann", "client_id": "c", "aud": AUDIENCE, "exp": now[0] + 15,
            "scope": "read"}
    names = {name: issuer.secret(name) for name in ("good", "listed", "dead")}
    issuer.tokens.update({names["good"]: good, names["listed"]: {**good, "aud": ["x", AUDIENCE]}})
    odd = [{**good, **change} for change in ({"aud": None}, {"aud": "https://else.example"},
                                             {"iss": "https://evil.example"}, {"exp": now[0] - 1},
                                             {"cnf": {}},
                                             {"nbf": now[0] + 99}, {"active": False},
                                             {"active": "true"}, {"active": 1}, {"active": None})]
    odd.append({name: value for name, value in good.items() if name != "aud"})
    for claims in odd:
        issuer.tokens[(token := issuer.secret("odd"))] = claims
        assert one.bear(token).status == 401, claims
    assert [one.bear(names[name]).status for name in ("good", "listed", "dead")] == [200, 200, 401]
    asked = len(issuer.paths("/introspect"))
    # remembered
    assert [one.bear(names[name]).status for name in ("good", "listed", "good")] == [200] * 3 \
        and len(issuer.paths("/introspect")) == asked
    issuer.tokens.pop(names["good"])
    now[0] += 9
    assert one.bear(names["good"]).status == 200
    now[0] += 2
    assert one.bear(names["good"]).status == 401 and one.bear(names["listed"]).status == 200
    now[0] += 5                                 # still remembered, but at its end
    assert one.bear(names["listed"]).status == 401
    capfd.readouterr()
    for answer in (500, 401, 404, (200, "<html>"), (200, "[]"), lambda knock: None):
        issuer.at["/introspect"] = answer
        response = one.bear(names["dead"])
        assert (response.status, response.getheader("Retry-After"),
                response.getheader("WWW-Authenticate")) == (503, "5", None)
    assert one.bear("not a token").status == 401
    logged = capfd.readouterr().err.splitlines()
    assert len(logged) == 6 \
        and all(re.fullmatch("mcp_ref: introspection: %s/introspect answers [0-9]+"
                             % issuer.origin, line) for line in logged)
    realm.said += logged
    issuer.knocks.clear()                       # (its URL has a query)
    for endpoint in ("http://far.example/introspect", "", "javascript:1"):
        with realm.fails("the introspection endpoint has to be of https"):
            oauth.introspection(endpoint, "x", "y", resource="https://a.example")


def test_oauth_servers_remember_so_much() -> None:
    asked: List[str] = []
    claims = {"iss": "i", "sub": "s", "aud": AUDIENCE, "exp": 9e9}
    check = oauth.Validator(lambda token: asked.append(token)
                            or (None if token == "z" else claims), AUDIENCE, seconds=10, most=3,
                            clock=lambda: 0)
    # three are remembered, the oldest makes room; what is no token now may be one soon
    for token in "aabbccabcddaazz":
        with pytest.raises(mcp_ref.HttpError) if token == "z" else contextlib.nullcontext():
            check({"authorization": "Bearer " + token})
    assert "".join(asked) == "abcdazz" and len(check._known) == 3
    assert not any(token.encode() in key and len(key) < 32 for key in check._known
                   for token in asked)


def test_oauth_from_end_to_end(realm: Any, site: Any) -> None:
    """Our client finds the way to a server with our hook, and the token that it brings is a signed one."""
    one, issuer = site(make_server()), realm.issuer.url
    url = "http://127.0.0.1:%d/mcp" % one.port
    one.endpoint.authorize = oauth.local_keys(TRUSTED_KEYS, issuer=issuer, resource=url,
                                              scopes=["read"])
    one.endpoint.metadata = oauth.resource_metadata(url, [issuer], ["read", "offline_access"])
    realm.issuer.given = {"access_token": minted(aud=url, iss=issuer, exp=time.time() + 60)}
    assert said(realm.connect(url).call_tool("echo", {"text": "in"})) == "in"
    assert realm.user.pages[0]["scope"] == "read" and realm.user.pages[0]["resource"] == url
    realm.issuer.given = {"access_token": minted(aud=url + "2", iss=issuer, exp=time.time() + 60)}
    with realm.fails("the server refuses the token that was made for it just now"):
        realm.connect(url)


# ---- as a program

PLAYER = """
import sys, urllib.request
url = sys.argv[1]
print("visits", url.partition("?")[0])
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as page:       # which goes where it is sent
    assert b"Logged in" in page.read()
"""


def test_oauth_as_a_program(realm: Any, tmp_path: Path, capfd: Any) -> None:
    url, tokens = realm.serve("read"), tmp_path / "kept" / "tokens.json"
    (tmp_path / "player.py").write_text(PLAYER)

    def run_oauth(*words: str, browser: bool = True) -> Tuple[int, str, str]:
        done = subprocess.run([sys.executable, str(HERE / "examples" / "oauth.py"), *words],
                              capture_output=True, text=True, timeout=PATIENCE * 3, env={
            **os.environ, "HOME": str(tmp_path),
            "BROWSER": "%s %s %%s" % (sys.executable, tmp_path / "player.py" if browser
                                      else "-c exit(1)")})
        realm.said += [done.stdout, done.stderr]
        return done.returncode, done.stdout, done.stderr
    listed = "".join("%s - %s\n" % (tool["name"], tool.get("description", "").partition("\n")[0])
                     for tool in realm.connect(url).list_tools())
    assert len(realm.user.pages) == 1 and "echo - Return the text.\n" in listed
    status, out, err = run_oauth(url, "--tokens", str(tokens), "--scope", "more")
    assert (status, out, err) == (0, "visits %s/authorize\n%s" % (realm.issuer.origin, listed), "")
    assert [knock.query["scope"] for knock in realm.issuer.knocks if knock.path == "/authorize"] \
        == ["read", "read more"]
    # which needs no user any more
    assert run_oauth(url, "--tokens", str(tokens), browser=False) == (0, listed, "")
    realm.issuer.tokens.clear()
    assert run_oauth(url, "--tokens", str(tokens), browser=False) == (0, listed, "") \
        and realm.issuer.renewals() == 1
    other = "http://127.0.0.1:1/mcp"
    assert run_oauth(other, "--tokens", str(tokens), "--forget") == (0, "", "") \
        and "token user" in tokens.read_text()
    assert run_oauth(url, "--tokens", str(tokens), "--forget") == (0, "", "") \
        and "token user" not in tokens.read_text()
    assert run_oauth(url, "--tokens", str(tokens))[1].startswith("visits")
    realm.issuer.clients["robot"] = "its.secret"
    (tmp_path / "secret").write_text("its.secret\n")
    status, out, err = run_oauth(url, "--client-id", "robot", "--secret-file",
                                 str(tmp_path / "secret"), "--issuer", "https://else.example",
                                 browser=False)
    assert status == 1 and out == "" \
        and re.fullmatch("oauth.py: tokens now come from %s, but this client is registered with .*\n" % realm.issuer.url, err)
    status, out, err = run_oauth(url, "--client-id", "robot", "--secret-file",
                                 str(tmp_path / "secret"))
    assert (status, err) == (0, "") and (tmp_path / ".mcp_ref" / "tokens.json").exists()
    status, out, err = run_oauth("--help")
    assert status == 0 and "--forget" in out and "usage: oauth.py" in out and err == ""
    assert run_oauth(other, "--tokens", str(tokens))[0] == 1


# ---- what needs a change of examples/oauth.py first (see the numbers in the report)

# B2
def test_oauth_reads_no_more_than_it_may(realm: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(oauth, "MAX_DOCUMENT", 2000)

    def endless(knock: Knock) -> None:
        knock.handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n{")
        while not realm.issuer.over.is_set():
            knock.handler.wfile.write(b" " * 1000)
    fitting = json.dumps(realm.issuer.document())
    for path in (ISSUER_AT, "/register", "/token"):
        for answer in (endless, (200, b" " * 2001), (200, b"{" + b" " * 10**6)):
            realm.issuer.at = {path: answer,
                               **({ISSUER_AT: (200, fitting + " " * (2000 - len(fitting)))}
                                  if path != ISSUER_AT else {})}
            with realm.fails("%s answers with more than 2000 bytes" % path):
                realm.log_in()


# B2, B3
TRICKLES = [b"", b"HTTP/1.1 200 OK\r\nX", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\n\r\n{"]


@pytest.mark.parametrize("path", [RESOURCE_AT + "/mcp", "/token"])
def test_oauth_waits_for_no_trickle(realm: Any, path: str, monkeypatch: Any) -> None:
    """Each byte comes in good time, but all of them never do."""
    monkeypatch.setattr(oauth, "HTTP_SECONDS", 0.15)
    begin = list(TRICKLES)

    def trickle(knock: Knock) -> None:
        knock.handler.wfile.write(first := begin.pop(0))
        while not realm.issuer.over.wait(0.02):
            knock.handler.wfile.write(b" " if first else b"")
    realm.issuer.at[path] = trickle
    while begin:
        with realm.fails("%s cannot be reached" % path):
            in_thread(realm.log_in)()


# B1
def test_oauth_follows_no_redirect_to_what_is_no_url(realm: Any) -> None:
    realm.issuer.at["/0"] = (302, "", {"Location": "http://["})
    with realm.fails("a redirect"):
        oauth.document(realm.issuer.origin + "/0", {})


# B3
def test_oauth_takes_no_half_of_an_answer(realm: Any) -> None:
    issuer = realm.issuer
    for path in (RESOURCE_AT + "/mcp", ISSUER_AT, "/register", "/token"):
        for head in (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",
                     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n99\r\n"):
            issuer.at = {path: lambda knock: knock.handler.wfile.write(head + b'{"resource"')
                         and None}
            before = len(issuer.knocks)
            with realm.fails("%s cannot be reached" % path):
                realm.log_in()
            assert issuer.knocks[-1].path == path and len(issuer.knocks) > before


# B4
def test_oauth_bears_any_metadata(realm: Any) -> None:
    # type: Any, List[Any]
    issuer, odd = realm.issuer, [7, "none client_secret_basic", {"x": 1}, [7, None, ["x"], {}]]

    def attempt(times: int = 1, **options: Any) -> None:
        hook = realm.oauth(**options)
        for _ in range(times):
            with contextlib.suppress(oauth.OAuthError):
                realm.log_in(hook, "Bearer scope=x" if issuer.resource == {} else "")
    for value in [None, *odd]:
        for member in ("token_endpoint_auth_methods_supported", "scopes_supported",
                       "code_challenge_methods_supported",
                       "authorization_response_iss_parameter_supported",
                       "dpop_signing_alg_values_supported",
                       "client_id_metadata_document_supported"):
            issuer.at = {ISSUER_AT: (200, {**issuer.document(), member: value})}
            attempt(dpop=True if "dpop" in member else None)
            if "auth_methods" in member:
                attempt(client_id="mine", secret="a.secret")
                attempt(client_id="mine", key=RFC_KEY)
        issuer.at = {}
        for member in ("scopes_supported", "authorization_servers",
                       "dpop_bound_access_tokens_required"):
            issuer.resource = {member: value}
            attempt()
        issuer.resource = {}
        for member in ("client_id", "client_secret", "token_endpoint_auth_method",
                       "client_secret_expires_at"):
            issuer.made = {member: value}
            attempt(2)
        issuer.made = {}


# B6
def test_oauth_takes_no_key_of_another_curve() -> None:
    with pytest.raises(ValueError, match="no PEM of a private key on P-256"):
        oauth.Key.from_pem("""\
-----BEGIN EC PRIVATE KEY-----
MHQCAQEEIKf4jEgnhHwMdgj2sJuHkkZjE3QThTNIAl9G7F3FEhx4oAcGBSuBBAAK
oUQDQgAEAn9p7Je0OyGA+STyLTZ40/osg1pzrXjVOs9gI/VVi6ViIXpIXOfYPP3z
K2euwW+jVmoR9XMe6GxQ1N9Z9GEzcA==
-----END EC PRIVATE KEY-----
""")                                            # secp256k1: also 32 bytes


# B7
def test_oauth_repeats_no_credentials(realm: Any) -> None:
    realm.issuer.clients["mine"] = "very.secret"
    realm.issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    usual = realm.issuer.token
    realm.issuer.token = lambda knock: (usual(knock),
                                        (400, {"error": "x" + knock.headers["authorization"],
                                               "error_description": str(knock.headers)}))[1]
    with realm.fails("refuses: 400") as caught:
        realm.log_in(realm.oauth("mine", "very.secret"))
    realm.said.append(caught.value.code)
    realm.user.bend = lambda address: [rewritten(address, code=None,
                                                 error=query_of(address)["state"])]
    with realm.fails("the login failed: \\*\\*\\*"):
        realm.log_in(realm.oauth("mine", "very.secret"))


# B8
def test_oauth_repeats_no_piece_of_a_secret(realm: Any) -> None:
    secret = "0123456789" * 6
    assert "01234567" not in oauth.plain(secret * 40, secret)
    for n in range(1, 70):
        assert "01234567" not in oauth.plain("x" * n + secret * 99, secret)


# B9
def test_oauth_repeats_no_token_of_a_challenge(realm: Any) -> None:
    """A server that puts our token into its challenge: from there it would go into messages, and to the issuer."""
    hook, origin = realm.oauth(), realm.issuer.origin
    for challenge in ('error="insufficient_scope", scope="%s"',
                      'resource_metadata="' + origin + '/%s"',
                      'resource_metadata="http://far.example/%s"',
                      'error="insufficient_scope", scope="x%s x"'):
        token = realm.log_in(hook)["Authorization"][7:]
        for status in (403, 401):
            try:
                realm.log_in(hook, "Bearer " + challenge % token, status)
            except oauth.OAuthError as problem:
                realm.said.append(str(problem))


# B10
def test_oauth_uses_no_url_with_a_password(realm: Any) -> None:
    for url in ("https://:pw@a.example/", "https://@a.example/", "https://:@a.example/",
                "http://:x@localhost/"):
        with realm.fails("the page has to be of https"):
            oauth.checked(url, "the page")


# B12
def test_oauth_asks_for_its_own_scope_though_it_has_a_token(realm: Any) -> None:
    store = oauth.TokenStore()
    realm.log_in(realm.oauth(store=store), 'Bearer scope="read"')
    realm.log_in(realm.oauth(store=store, scope="more"), 'Bearer scope="read"')
    assert [set(page["scope"].split()) for page in realm.user.pages] == [{"read"}, {"read", "more"}]
    realm.log_in(realm.oauth(store=store, scope="more"), 'Bearer scope="read"')
    assert len(realm.user.pages) == 2


# B13
def test_oauth_asks_for_what_a_kept_token_lacks(realm: Any) -> None:
    """A server that answers 401, with the scope, to a token that has too little."""
    store, issuer = oauth.TokenStore(), realm.issuer

    def gate(headers: Dict[str, str]) -> None:
        claims = issuer.tokens.get(headers.get("authorization", "")[7:])
        if claims and "write" not in claims["scope"].split():
            refuse(401, 'Bearer error="invalid_token", scope="read write"')
    url = realm.serve("read")
    realm.connect(url, realm.oauth(store=store))
    realm.gate = gate
    realm.connect(url, realm.oauth(store=store)).ping()
    assert [page["scope"] for page in realm.user.pages] == ["read", "read write"]


# B14, B15
def test_oauth_program_says_what_is_wrong(realm: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "broken.json").chmod(0o600)
    url, tokens = realm.serve(), str(tmp_path / "tokens.json")

    def run_oauth(*words: str) -> Tuple[int, str]:
        done = subprocess.run([sys.executable, str(HERE / "examples" / "oauth.py"), *words],
                              capture_output=True, text=True, timeout=PATIENCE * 3,
                              env={**os.environ, "BROWSER": "true"})
        return done.returncode, done.stderr
    for words in (["nonsense"], ["http://far.example/mcp"], ["http://["],
                  [url, "--forget", "--tokens", str(tmp_path / "broken.json")],
                  [url, "--secret-file", str(tmp_path / "nowhere"), "--client-id", "x"],
                  [url, "--redirect-uri", "https://a.example"]):
        status, err = run_oauth("--tokens", tokens, *words)
        assert status and re.fullmatch("oauth.py: .*\n", err), (words, err)
    server = make_server()
    server.tool(name="bell", description="\x1b]0;title\x07 and \u202e more")(lambda: "x")
    at = realm.site(server)
    done = subprocess.run([sys.executable, str(HERE / "examples" / "oauth.py"),
                           "http://127.0.0.1:%d/mcp" % at.port, "--tokens", tokens],
                          capture_output=True, text=True, timeout=PATIENCE * 3,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "bell - " in done.stdout \
        and not re.search("[^ -~\n]", done.stdout), done


# B16
def test_oauth_leaves_no_pieces_of_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    store = oauth.TokenFile(tmp_path / "tokens.json")
    store.put("x", entry={"a": 1})
    for problem in (OSError(28, "No space left on device"), RecursionError(), KeyboardInterrupt()):
        def fail(content: Any, file: Any, **_: Any) -> None:
            file.write('{"x": {"a"')
            raise problem
        monkeypatch.setattr(oauth.json, "dump", fail)
        with pytest.raises((oauth.OAuthError, type(problem))):
            store.put("x", entry={"a": 2})
        monkeypatch.undo()
        assert sorted(os.listdir(tmp_path)) == ["tokens.json",
                                                "tokens.json.lock"] and store.get("x") == {"a": 1}


# B17
def test_oauth_servers_pass_over_odd_keys() -> None:
    for odd in (None, 7, [], {"kty": "EC"}, {"kty": "EC", "crv": "P-256", "x": "!", "y": 7},
                {"kty": ["EC"]}):
        assert oauth.verified(minted(head={"kid": None}),
                              {"keys": [odd, RFC_KEY.jwk]}) is not None, odd


# B18
def test_oauth_servers_take_a_signature_in_one_form_only() -> None:
    # of about every second one, the sum fits into as many bytes
    for n in range(100):
        token = minted(head={"alg": "RS256", "kid": None}, n=n)
        more = int.from_bytes(oauth.unb64(token.split(".")[2]), "big") + RSA_N
        if more < 2**2048:
            break
    assert oauth.verified(token, {"keys": [rsa_jwk()]}) is not None
    # RFC 8017 §5.2.2
    assert oauth.verified(token.rpartition(".")[0] + "." + oauth.b64(as_bytes(more, 256)),
                          {"keys": [rsa_jwk()]}) is None


# B19
def test_oauth_servers_tell_nameless_callers_apart(guarded: Any, realm: Any) -> None:
    one = guarded(oauth.introspection, realm.issuer.origin + "/introspect", "rs", "its.secret",
                  issuer="", clock=time.time)
    realm.issuer.clients["rs"] = "its.secret"
    tokens = [realm.issuer.secret("at") for _ in range(2)]
    for token, name in zip(tokens, ("ann", "bob")):
        # `sub` is optional: RFC 7662 §2.2
        realm.issuer.tokens[token] = {"username": name, "client_id": "c", "aud": AUDIENCE,
                                      "exp": time.time() + 99}
    ann, bob = ({"Authorization": "Bearer " + token} for token in tokens)
    session = one.open(**ann)
    assert one.ask(body=PING, headers=ann, Mcp_Session_Id=session).status == 200
    assert one.ask(body=PING, headers=bob, Mcp_Session_Id=session).status in (401, 404)


# B35
def test_oauth_says_that_a_folder_is_no_file(realm: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens.json").mkdir(mode=0o700)
    store = oauth.TokenFile(tmp_path / "tokens.json")
    for use in (lambda: store.get("x"), lambda: store.put("x", entry={})):
        with realm.fails("tokens.json cannot be (read|written)"):
            use()


# ------------------------------------------------------------------------------------------
# Recipes: WSGI, a main thread, a socket, CGI, events of a cloud (examples/06, 08, 11, 12, 13)
# ------------------------------------------------------------------------------------------

@contextlib.contextmanager
def under_wsgi(monkeypatch: Any, prefix: str = "", **options: Any) -> Any:
    """Serve make_server() as 06_wsgi.py does, below a prefix; wsgiref's validator stands between."""
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server as listen
    from wsgiref.validate import validator

    class Threads(ThreadingMixIn, WSGIServer):
        daemon_threads = True
    monkeypatch.setattr(WSGIRequestHandler, "log_message", lambda *_: None)
    recipe = load_example(HERE / "examples/06_wsgi.py")
    recipe.endpoint = mcp_ref.Endpoint(make_server(), **options)
    checked = validator(recipe.application)

    def mounted(environ: Any, start_response: Any) -> Any:
        assert environ["PATH_INFO"].startswith(prefix)
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = prefix, environ["PATH_INFO"][len(prefix):]
        return checked(environ, start_response)
    with listen("127.0.0.1", 0, mounted, server_class=Threads) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{httpd.server_port}"
        finally:
            recipe.endpoint.close()
            httpd.shutdown()
            thread.join(PATIENCE)


def ask_at(place: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Send one request, return the response with `data` read."""
    connection = http.client.HTTPConnection(place, timeout=PATIENCE)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    response.data = response.read()
    connection.close()
    return response


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
@pytest.mark.parametrize("revision", versions())
@pytest.mark.parametrize("stateless", [False, True])
def test_wsgi_serves_each_era_by_the_book(monkeypatch, capfd, revision, prefix, stateless):
    steps: List[Any] = []
    with under_wsgi(monkeypatch, prefix, stateless=stateless) as place, mcp_ref.connect(
            f"http://{place}{prefix}/mcp", revision=revision, timeout=PATIENCE,
            elicit=lambda params: {"branch": "main", "force": True}) as client:
        assert client.version == revision and len(client.list_tools()) > 5
        assert client.call_tool("echo", {"text": "ü"})["content"][0]["text"] == "ü"
        client.call_tool("steps", on_progress=lambda *step: steps.append(step[0]))
        assert steps == [0, 1, 2.5]
        if revision in MODERN or revision >= "2025-06-18" and not stateless:
            asked = client.call_tool("branch")["content"][0]["text"]
            assert json.loads(asked)["content"] == {"branch": "main", "force": True}
    assert "Traceback" not in capfd.readouterr().err


def test_wsgi_serves_http_and_sse_by_the_book(monkeypatch, capfd):
    with under_wsgi(monkeypatch) as place, mcp_ref.connect(
            f"http://{place}/sse", revision=LEGACY[-1], timeout=PATIENCE) as client:
        assert client.version == "2024-11-05"
        assert client.call_tool("add", {"a": 2})["content"][0]["text"] == "4"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_wsgi_answers_each_verb_by_the_book(monkeypatch, capfd, prefix):
    """What the validator finds would be a 500, and a traceback. The metadata lie below the prefix."""
    about = "/.well-known/oauth-protected-resource"
    note, call = '{"jsonrpc": "2.0", "method": "notifications/x"}', modern("tools/list")
    with under_wsgi(monkeypatch, prefix, cors=True, stateless=True,
                    metadata={"resource": "https://example.org/api/mcp"}) as place:
        for method, path, body, headers, status in (
                ("POST", "/mcp", PING, JSON_TYPE, 200), ("POST", "/mcp", note, JSON_TYPE, 202),
                ("POST", "/mcp", "{", JSON_TYPE, 400), ("POST", "/mcp", PING, {}, 415),
                ("POST", "/mcp", json.dumps(call), {**JSON_TYPE, **mirrors(call)}, 200),
                ("POST", "/mcp", json.dumps(call), JSON_TYPE, 400),
                ("GET", "/mcp?x=1", None, {}, 405), ("HEAD", "/mcp", None, {}, 405),
                ("DELETE", "/mcp", None, {}, 405), ("PUT", "/mcp", PING, JSON_TYPE, 405),
                ("OPTIONS", "/mcp", None, {"Origin": "http://127.0.0.1"}, 204),
                ("POST", "/elsewhere", PING, JSON_TYPE, 404), ("GET", about, None, {}, 200),
                ("GET", about + "/mcp", None, {}, 200)):
            answer = ask_at(place, method, prefix + path, body, **headers)
            said = (method, path, answer.status, answer.data)
            assert answer.status == status, said
            assert ("Content-Type" in answer.headers) == (status != 204), said
            if method == "HEAD" or status in (202, 204):
                assert answer.data == b"", said
            else:
                assert int(answer.headers["Content-Length"]) == len(answer.data), said
    assert "Traceback" not in capfd.readouterr().err


def test_wsgi_sends_a_head_without_the_body(monkeypatch):
    with under_wsgi(monkeypatch) as place, socket.create_connection(
            ("127.0.0.1", int(place.rpartition(":")[2])), PATIENCE) as client:
        client.sendall(b"HEAD /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n")
        with client.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.split()[1] == b"405" and b"\nContent-Length: " in head and body == b""


def test_a_body_that_the_wsgi_engine_unchunked_counts():
    """`wsgi.input_terminated`: there is no length; `initialize` may still not be too large."""
    import io
    recipe, answers = load_example(HERE / "examples/06_wsgi.py"), []
    recipe.endpoint = mcp_ref.Endpoint(make_server())
    for padding, status in ((10, "200 OK"), (mcp_ref.MAX_INITIALIZE_BYTES, "413 ")):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": LEGACY[0], "capabilities": {}, "x": "x" * padding,
            "clientInfo": {"name": "c", "version": "1"}}}).encode()
        written: List[bytes] = []
        recipe.application({
            "REQUEST_METHOD": "POST", "PATH_INFO": "/mcp", "CONTENT_TYPE": "application/json",
            "wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True},
            lambda status, headers: answers.append(status) or written.append)
        assert answers.pop().startswith(status) and written
    recipe.endpoint.close()


# ---- the program's main thread

@pytest.mark.parametrize("revision", [MODERN[0], LEGACY[0]])
def test_a_question_holds_the_main_thread_of_legacy_clients_only(tidy, monkeypatch, revision):
    """examples/08_main_thread.py warns of that; and ASK_SECONDS ends it."""
    recipe, modern_one = load_example(HERE / "examples/08_main_thread.py"), revision in MODERN
    moved, answered, seen = threading.Event(), threading.Event(), []

    @recipe.server.tool
    def ask(ctx: Context) -> str:
        return str(ctx.elicit("Name?", name=str)["action"])

    def elicit(params: Any) -> Any:
        recipe.jobs.put(moved.set)          # other work of the program's loop
        seen.append(moved.wait(PATIENCE if modern_one else 0.05))
        assert modern_one or answered.wait(PATIENCE)
        return {"name": "Ada"}

    def loop() -> None:
        for job in iter(recipe.jobs.get, None):
            job()
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    if not modern_one:
        monkeypatch.setattr(mcp_ref, "ASK_SECONDS", 0.2)
    with mcp_ref.connect(recipe.server, revision=revision, elicit=elicit,
                         timeout=PATIENCE) as client:
        result = client.call_tool("ask")
        answered.set()
    assert seen == [modern_one] and result.get("isError", False) != modern_one
    recipe.jobs.put(None)
    thread.join(PATIENCE)
    assert moved.is_set() and not thread.is_alive()


# ---- a socket

@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_a_stopped_listener_lets_nobody_in(family, tmp_path):
    """examples/11_socket.py: whoever is connected stays; the thread that accepts ends."""
    if not hasattr(socket, family):
        pytest.skip("there are no such sockets")
    recipe = load_example(HERE / "examples/11_socket.py")
    listener = socket.socket(getattr(socket, family))
    listener.bind(str(tmp_path / "s") if family == "AF_UNIX" else ("127.0.0.1", 0))
    listener.listen()
    place = listener.getsockname()
    thread = threading.Thread(target=recipe.serve, args=(listener,), daemon=True)
    thread.start()
    with socket.socket(listener.family) as client, client.makefile("rb") as lines:
        client.settimeout(PATIENCE)
        client.connect(place)
        for stop in (lambda: None, lambda: recipe.stop(listener), lambda: recipe.stop(listener)):
            stop()                          # the second time there is nothing to stop, which is no error
            client.sendall(PING + b"\n")
            assert json.loads(lines.readline())["result"] == {}
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with socket.socket(getattr(socket, family)) as late, pytest.raises(OSError):
        late.settimeout(PATIENCE)
        late.connect(place)


# ---- CGI

@pytest.fixture
def cgi(tmp_path: Path) -> Any:
    """A folder with what 12_cgi.py needs, and no more; the tool prints. Returns a way to call it."""
    for name in ("mcp_ref.py", "examples/06_wsgi.py"):
        (tmp_path / Path(name).name).write_bytes((HERE / name).read_bytes())
    source = (HERE / "examples/12_cgi.py").read_text(encoding="utf-8")
    old = '    return f"Hello, {name}!"\n'
    assert source.count(old) == 1
    (tmp_path / "12_cgi.py").write_text(source.replace(old, '''
    import subprocess
    print("noise", flush=True)
    subprocess.run([sys.executable, "-c", "print('noise of a child')"], check=True)
    print("more noise")
''' + old))

    def call(message: Any, **variables: str) -> Any:
        body = json.dumps(message).encode()
        mirrored = mirrors(message) if "params" in message else {}
        return subprocess.run(
            [sys.executable, "-W", "error", "12_cgi.py"], input=body, cwd=str(tmp_path),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=True, env={
                **{name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
                "GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": "POST", "HTTP_HOST": "127.0.0.1",
                "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)), **variables,
                **{"HTTP_" + name.upper().replace("-", "_"): value
                   for name, value in mirrored.items()}})
    return call


def test_what_a_cgi_tool_prints_is_no_part_of_the_answer(cgi):
    done = cgi(modern("tools/call", name="greet", arguments={"name": "Ada"}),
               SCRIPT_NAME="/cgi-bin/12_cgi.py")
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"Status: 200 OK\r\n") and b"noise" not in done.stdout
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    assert json.loads(body)["result"]["content"][0]["text"] == "Hello, Ada!"
    assert done.stderr.split() == b"noise noise of a child more noise".split()


@pytest.mark.parametrize("script, path, status", [
    ("/mcp", "", b"200"), ("/cgi-bin/12_cgi.py", "", b"200"), ("/cgi-bin/12_cgi.py", "/", b"200"),
    ("", "", b"200"), ("/cgi-bin/12_cgi.py", "/elsewhere", b"404")])
def test_the_cgi_endpoint_is_where_the_script_is(cgi, script, path, status):
    done = cgi({"jsonrpc": "2.0", "id": 1, "method": "ping"}, SCRIPT_NAME=script, PATH_INFO=path)
    assert done.stdout.startswith(b"Status: " + status) and done.stderr == b""


def test_cgi_accepts_what_needs_no_answer(cgi):
    done = cgi({"jsonrpc": "2.0", "method": "notifications/initialized"}, SCRIPT_NAME="/mcp")
    assert done.stdout.startswith(b"Status: 202 Accepted\r\n") and done.stdout.endswith(b"\r\n\r\n")


# ---- events of a cloud

GREET_CALL = modern("tools/call", name="greet", arguments={"name": "Jürgen"})
GREET_HEADERS = {**JSON_TYPE, **mirrors(GREET_CALL)}
IN_BASE64 = base64.b64encode(json.dumps(GREET_CALL).encode()).decode()
SECOND = {"version": "2.0", "rawPath": "/mcp", "headers": GREET_HEADERS, "isBase64Encoded": False,
          "body": json.dumps(GREET_CALL, ensure_ascii=False), "rawQueryString": "a=b",
          "requestContext": {"stage": "$default", "http": {"method": "POST", "path": "/mcp"}}}
FIRST = {"version": "1.0", "httpMethod": "POST", "path": "/mcp", "headers": GREET_HEADERS,
         "multiValueHeaders": {name: [value] for name, value in GREET_HEADERS.items()},
         "body": SECOND["body"], "isBase64Encoded": False,
         "requestContext": {"stage": "prod", "path": "/prod/mcp", "httpMethod": "POST"}}
BALANCED = {"httpMethod": "POST", "path": "/mcp", "headers": GREET_HEADERS,
            "requestContext": {"elb": {"targetGroupArn": "arn"}}, "body": SECOND["body"]}


@pytest.mark.parametrize("event, status", [
    (SECOND, 200), (FIRST, 200), (BALANCED, 200),
    ({**SECOND, "body": IN_BASE64, "isBase64Encoded": True}, 200),
    ({**SECOND, "headers": {name.upper(): value for name, value in GREET_HEADERS.items()}}, 200),
    ({**SECOND, "headers": {**GREET_HEADERS, "Content-Length": "7", "x": None}}, 200),
    ({**SECOND, "headers": {**GREET_HEADERS, "Transfer-Encoding": "gzip, chunked",
                            "Content-Length": "7"}}, 200),
    ({**SECOND, "rawPath": "/prod/mcp", "requestContext": {
        "stage": "prod", "http": {"method": "POST"}}}, 200),
    ({**SECOND, "requestContext": {"stage": "mcp", "http": {"method": "POST"}}}, 200),
    ({**SECOND, "rawPath": "/production/mcp", "requestContext": {
        "stage": "prod", "http": {"method": "POST"}}}, 404),
    ({**FIRST, "headers": None}, 200), ({**FIRST, "multiValueHeaders": None}, 200),
    ({key: value for key, value in BALANCED.items() if key != "headers"}, 415),
    ({**SECOND, "headers": None}, 415), ({**FIRST, "headers": None, "multiValueHeaders": {}}, 415),
    ({**FIRST, "multiValueHeaders": {**FIRST["multiValueHeaders"], "x": None}}, 200),
    ({**FIRST, "multiValueHeaders": {**FIRST["multiValueHeaders"], "Mcp-Name": ["a", "b"]}}, 400),
    ({**SECOND, "body": "!!!x", "isBase64Encoded": True}, 400), ({**SECOND, "body": None}, 400),
    ({**SECOND, "body": "!" + IN_BASE64, "isBase64Encoded": True}, 400),
    ({**SECOND, "body": GREET_CALL}, 400), ({**SECOND, "body": "\udcff"}, 400),
    ({key: value for key, value in SECOND.items() if key != "body"}, 400),
    ({**SECOND, "requestContext": {"http": {"method": "GET"}}}, 405), ({**FIRST, "path": "/"}, 404),
    ({}, 404), ({"rawPath": "/mcp", "requestContext": None}, 405)])
def test_an_event_is_answered_whatever_it_is(capfd, event, status):
    """examples/13_lambda.py: API Gateway's two formats, and a load balancer's; odd ones, too."""
    answer = load_example(HERE / "examples/13_lambda.py").handler(event)
    assert answer["statusCode"] == status, answer
    assert answer["isBase64Encoded"] is False and answer["headers"]["Content-Type"]
    if status == 200:
        assert json.loads(answer["body"])["result"]["content"][0]["text"] == "Hello, Jürgen!"
    assert ("multiValueHeaders" in answer) == (event.get("multiValueHeaders") is not None)
    for name, values in answer.get("multiValueHeaders", {}).items():
        assert values == [answer["headers"][name]]
    assert json.dumps(answer) and "Traceback" not in capfd.readouterr().err


def test_an_event_is_a_legacy_request_too():
    """Nothing is kept: each request is on its own."""
    recipe = load_example(HERE / "examples/13_lambda.py")
    for version in LEGACY:
        for method, params, status in (
                ("initialize", {"protocolVersion": version, "capabilities": {},
                                "clientInfo": {"name": "c", "version": "1"}}, 200),
                ("tools/call", {"name": "greet", "arguments": {"name": "x"}}, 200)):
            answer = recipe.handler({**SECOND, "headers": {**JSON_TYPE, **(
                {} if method == "initialize" else {"MCP-Protocol-Version": version})},
                "body": json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})})
            assert answer["statusCode"] == status and "result" in json.loads(answer["body"]), answer
        note = '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
        assert recipe.handler({**SECOND, "headers": JSON_TYPE, "body": note})["statusCode"] == 202


def test_whoever_listens_to_a_function_is_sent_away_and_a_call_is_not(capfd):
    recipe = load_example(HERE / "examples/13_lambda.py")
    recipe.LISTEN_SECONDS = 0
    doors = {"looked": 0}

    @recipe.server.tool
    def slow() -> str:
        wait_until(lambda: doors["looked"] > 1)     # the housekeeper has asked whether we are gone
        return "done"

    class Watched(recipe.EventExchange):
        def gone(self) -> bool:
            doors["looked"] += 1
            return super().gone()
    recipe.EventExchange = Watched

    def ask(message: Any) -> Any:
        return recipe.handler({**SECOND, "headers": {**JSON_TYPE, **mirrors(message)},
                               "body": json.dumps(message)})
    called = ask(modern("tools/call", name="slow"))
    assert json.loads(called["body"])["result"]["content"][0]["text"] == "done"
    heard = ask(modern("subscriptions/listen", notifications={"toolsListChanged": True}))
    assert heard["statusCode"] == 200 and "acknowledged" in heard["body"]
    recipe.endpoint.close()
    assert "Traceback" not in capfd.readouterr().err


# ------------------------------------------------------------------------------------------
# What an adversary found in an afternoon
# ------------------------------------------------------------------------------------------

SESAME = "sesame-that-opens-everything"


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer " + SESAME}, {"X-Api-Key": SESAME}], ids=str)
@pytest.mark.parametrize("answer, problem", [
    ((500, "you sent " + SESAME * 30), mcp_ref.HttpError),
    ((200, "no JSON, but " + SESAME), mcp_ref.Malformed),
    ({"error": {"code": -1, "message": "you sent " + SESAME}}, RpcError),
], ids=str)
def test_credentials_that_are_echoed_go_no_further(web, capfd, headers, answer, problem):
    client = web(options={"headers": headers}, tools_call=answer)
    with pytest.raises(problem) as caught:
        client.request("tools/call", {"name": "x"})
    assert SESAME not in str(caught.value) and "***" in str(caught.value)
    assert SESAME not in capfd.readouterr().err


def test_nothing_foreign_commands_a_terminal(capfd):
    mcp_ref.log("a\x1b[2Jb\x07c\nd\te\x9b")
    assert capfd.readouterr().err == "mcp_ref: a\\x1b[2Jb\\x07c\nd\te\\x9b\n"
    assert mcp_ref.shown(b"\x1b]0;title\x07") == "\\x1b]0;title\\x07"


def test_a_loop_survives_its_tools_and_a_tool_its_loop():
    import asyncio
    stopped, awaiting = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    def run_loop() -> None:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False       # it is meant: nobody will finish it
        loop.close()
        stopped.set()
    thread = threading.Thread(target=run_loop, daemon=True)
    thread.start()
    server = Server("loop", run=loop.call_soon_threadsafe)

    @server.tool
    async def leave() -> str:
        await asyncio.sleep(0)
        sys.exit(3)

    @server.tool
    async def stay() -> str:
        awaiting.set()
        await asyncio.sleep(3600)
        return "never"
    with mcp_ref.connect(server, timeout=PATIENCE) as client:
        assert client.call_tool("leave")["isError"]
        assert loop.is_running()
        found: Any = queue.Queue()
        waiting = threading.Thread(target=lambda: found.put(client.call_tool("stay")), daemon=True)
        waiting.start()
        assert awaiting.wait(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        assert stopped.wait(PATIENCE)
        assert "was closed" in found.get(timeout=PATIENCE)["content"][0]["text"]
        waiting.join(PATIENCE)
    thread.join(PATIENCE)


def test_a_subscription_that_begins_as_its_endpoint_closes_is_forgotten(site):
    one = site()
    server = one.endpoint.server
    begun, go = threading.Event(), threading.Event()

    def slowly(value: Any, ctx: Any) -> Any:
        begun.set()
        go.wait(PATIENCE)
        return value
    server.filters["slow"] = slowly
    message = modern("subscriptions/listen", notifications={"slow": True, "toolsListChanged": True})
    said: Any = queue.Queue()
    asking = threading.Thread(target=lambda: said.put(one.stream(body=message, **{
        name.replace("-", "_"): value for name, value in mirrors(message).items()})), daemon=True)
    asking.start()
    assert begun.wait(PATIENCE)
    one.endpoint.close()
    go.set()
    asking.join(PATIENCE)
    wait_until(lambda: not server._listening)
    server.changed("tools")
    assert not server._listening


def test_a_flood_of_brackets_is_looked_at_once():
    line = mcp_ref.encode({"text": "[" * 2_000_000})
    assert mcp_ref._excess(line) == ""
    assert mcp_ref._excess(mcp_ref.encode({"text": "]" * 200, "list": [[]] * 500})) == ""
    deep: Any = "]]]"
    for _ in range(101):
        deep = [deep]
    assert "deeper" in mcp_ref._excess(mcp_ref.encode(deep))


def test_oauth_deals_with_no_other_issuer_than_was_said(monkeypatch):
    place = oauth.Place("https://mcp.example/mcp", "https://evil.example", {
        "token_endpoint": "https://evil.example/token"}, None, False)
    monkeypatch.setattr(oauth, "discover", lambda *_: place)
    monkeypatch.setattr(oauth, "exchange", lambda *_: pytest.fail("something was sent"))
    for more in ({"grant": oauth.Workload("a-workloads-jwt")}, {"metadata_url": "https://me.example/me.json"}, {},
                 {"client_id": "me", "client_secret": "very secret", "grant": oauth.ClientCredentials()}):
        hook = oauth.OAuth(issuer="https://good.example", **more)
        with pytest.raises(oauth.OAuthError, match="evil.example, but .*good.example"):
            hook(mcp_ref.HttpError(401, "", {}, "https://mcp.example/mcp"))


def test_oauth_writes_no_token_file_that_it_could_not_read(tmp_path):
    store = oauth.TokenFile(tmp_path / "tokens.json")
    store.put("token", "good", entry={"access_token": "x"})
    with pytest.raises(oauth.OAuthError, match="would have more than"):
        store.put("token", "bad", entry={"access_token": "x" * oauth.MAX_DOCUMENT})
    assert store.get("token", "good") == {"access_token": "x"} and store.get("token", "bad") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_oauth_does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "tokens.json", 0o600)
    with pytest.raises(oauth.OAuthError, match="is no file"):
        oauth.TokenFile(tmp_path / "tokens.json").get("token")
