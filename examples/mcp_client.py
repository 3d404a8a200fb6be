#!/usr/bin/env python3
# mcp_client.py 0.3.0: an MCP client in one file, on mcp_ref.py. SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""A client for Model Context Protocol servers, and a command line for trying them out.

It starts a server from a command or connects to one at a URL, and speaks every published revision.
It imports mcp_ref.py, so copy both.

    from mcp_client import connect
    with connect(["python3", "server.py"]) as client:  # or a URL, or a Server object
        print([tool["name"] for tool in client.list_tools()])
        print(client.call_tool("add", {"a": 2, "b": 3})["content"][0]["text"])

    $ python3 mcp_client.py call server.py add a=2 b=3

Since 2026-07-28 (*modern*) each request carries version and capabilities in its `_meta`; up to
2025-11-25 (*legacy*) `initialize` opens a session. connect() detects which, once. A call goes
call_tool -> request (answers questions, retries) -> _exchange (one message, one response) ->
Transport.send; a response, Client.receive -> Request.settle. Methods of Client block the caller.
Threads: mcp-read, -write, -stderr and -watch for a stdio server; mcp-post for each POST; mcp-stream
for a legacy session's stream, mcp-answer for each question from its server; mcp-listen for a
subscription's callback; mcp-call for each message to a Server object.

Known limits: `on_log` and `on_notification` run on the reading thread, so they must not call the
client; results are not cached or checked against an outputSchema; a subscription is not renewed
when its connection is lost; a call whose response on stdio is not JSON fails only at its timeout;
proxies are not supported.
"""
from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urljoin, urlsplit

try:
    import mcp_ref
except ImportError:  # in the checkout, it is one folder up
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import mcp_ref
from mcp_ref import (  # noqa: I001
    MAX_MESSAGE_BYTES, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL, META_SERVER,
    META_SUBSCRIPTION, META_VERSION, METHODS, NOTIFICATIONS, AskError, HttpError, Peer, RpcError,
    Schema, Server, decode, encode, is_id, kind_of, mirror, rules, versions)

__version__ = "0.3.0"
__all__ = ["Client", "Disconnected", "HttpTransport", "Malformed", "MemoryTransport", "Request",
           "RequestCancelled", "ServerLacks", "StdioTransport", "Subscription", "Transport",
           "connect", "fetch"]

CALL_SECONDS = 60        # default timeout of a request
LONGEST_SECONDS = 3600   # default limit when progress extends the timeout
PROBE_SECONDS = 3        # timeout of the first message; then the server counts as legacy
MAX_ROUNDS = 10          # rounds of questions in one request
MAX_PAGES = 1000         # pages of one list
MAX_QUESTIONS = 64       # open questions of a legacy server; more are ignored
CLOSE_STEP_SECONDS = 2   # wait for a server to exit: after closing its stdin, after SIGTERM
MAX_LAST_LINES = 20      # lines of a server's stderr quoted when it exits
MAX_REDIRECTS = 3        # redirects and `authorize` calls, together, for one HTTP request
RETRY_SECONDS = 1        # wait before a stream is reopened, unless the server sets `retry`

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
HEADER_MISMATCH, MISSING_CAPABILITY = -32020, -32021
Message = dict[str, Any]


class Disconnected(ConnectionError):
    """The server cannot be reached, does not speak MCP, or has disconnected."""


class Malformed(Exception):
    """The server violated the protocol; its answer cannot be used."""


class ServerLacks(Exception):
    """The server did not declare the capability that this method needs."""


class RequestCancelled(Exception):
    """Someone called cancel() on this request."""


class _SessionLost(Disconnected):
    """[legacy] The server no longer knows our session: initialize again."""


# ==== 1. A request ============================================
# Progress, the response and exceptions all arrive in the request's inbox. Only the caller's thread
# waits on it, and only in next(), so every wait ends at the deadline.

class Request:
    """A request, from sending to response. Any thread may cancel() it. `tag`: see connect()."""
    def __init__(self, client: Client, method: str, timeout: Any = None, tag: Any = None,
                 on_progress: Any = None, extend: bool = False,
                 longest: float = LONGEST_SECONDS) -> None:
        self.id = next(client.ids)
        self.method, self.tag, self.on_progress, self.extend = method, tag, on_progress, extend
        self.timeout = client.timeout if timeout is None else timeout
        self.cancelled = self.settled = False  # settled: a response or an exception has arrived
        self.over = threading.Event()  # set when the caller stops waiting
        self.last_id, self.retry = "", float(RETRY_SECONDS)  # state of its event stream
        self.last = time.monotonic() + longest
        self.deadline = min(time.monotonic() + self.timeout, self.last)
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.wire: Any = None  # its connection, over HTTP

    def settle(self, outcome: Any) -> None:
        """Deliver the response, or an exception in its place."""
        self.settled = True
        self.inbox.put(outcome)

    def cancel(self) -> None:
        """Cancel: the caller gets RequestCancelled, and the server is notified."""
        self.cancelled = True
        self.inbox.put(None)

    def hang_up(self, **how: bool) -> None:
        """End the request's connection, if it has one."""
        if self.wire:
            self.wire.hang_up(**how)

    def next(self) -> Any:
        """Return the next message, or raise the exception in its place; TimeoutError if late."""
        while True:
            left = self.deadline - time.monotonic()
            if self.cancelled:
                raise RequestCancelled(f"{self.method} was cancelled")
            if left <= 0:
                raise TimeoutError(f"no answer to {self.method} within {self.timeout:g} s")
            with suppress(Empty):  # the deadline may have moved meanwhile
                item = self.inbox.get(timeout=min(left, 3600))
                if isinstance(item, BaseException):
                    raise item
                if item is not None:
                    return item

    def wait(self) -> Any:
        """Wait for the response and return it; report progress until then."""
        while True:
            item = self.next()
            if "method" not in item:
                return item
            if self.extend:  # basic/patterns/cancellation §Timeouts
                self.deadline = min(time.monotonic() + self.timeout, self.last)
            if self.on_progress and item["method"] == "notifications/progress":
                self.on_progress(*map(item["params"].get, ("progress", "total", "message")))


# ==== 2. The client ===========================================
# Nothing that a server sends is trusted: an invalid message fails only the call it belongs to.
# RpcError is the server's own error; all other exceptions are local and carry no code.

class Client(AbstractContextManager["Client"]):
    """A connection to one server, made by connect(). Any thread may use it; a context manager.

    `version` is the revision in use, `modern` whether it is a modern one; `server_info`,
    `capabilities` and `instructions` come from the server. Methods block, and raise RpcError (the
    server's error), TimeoutError, RequestCancelled, Disconnected, Malformed, ServerLacks, HttpError
    and AskError (one of your functions refused to answer). For extensions: `result_types[type] =
    function(method, result, tag)` turns a result of that resultType into a complete one;
    `mirrored[method]` names the param that HTTP repeats in Mcp-Name."""
    def __init__(self, transport: Any, *, revision: str = "", timeout: float = CALL_SECONDS,
                 probe: float = PROBE_SECONDS, elicit: Any = None, visit: Any = None,
                 sample: Any = None, roots: Any = None, on_log: Any = None,
                 on_notification: Any = None, info: Any = None, declare: Any = None,
                 log_level: str = "", trace: Any = None, record: Any = None) -> None:
        self.transport, self.timeout, self.closed = transport, timeout, False
        self.mirrored = {name: row.mirrored for name, row in METHODS.items()}
        self._pinned, self._probe, self._declare = revision, probe, declare or {}
        self._info = info or {"name": "mcp_ref", "version": __version__}
        self._modes = {mode: ask for mode, ask in (("form", elicit), ("url", visit)) if ask}
        self._sample, self._roots, self._on_log = sample, roots, on_log
        self._on_notification = on_notification
        self._trace, self._file = trace or (lambda *_: None), record
        self.log_level, self.ids = log_level or "info" * bool(on_log), itertools.count(1)
        self._opening, self._questions = threading.RLock(), threading.Semaphore(MAX_QUESTIONS)
        self.running, self.subscriptions = {}, []  # type: dict[Any, Request], list[Subscription]
        self.tools, self.result_types = {}, {}  # type: Message, Message
        self.capabilities, self.server_info, self.instructions = {}, {}, None  # type: Any, Any, Any
        transport.client = self
        if revision not in ("", *versions()):
            raise ValueError(f"unknown revision {revision!r}; expected one of {versions()}")
        self._speak(revision or versions()[0])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End subscriptions, pending calls, the connection and, on stdio, the server."""
        for subscription in list(self.subscriptions):
            subscription.close()
        self.closed = True
        self.lost(Disconnected("the client was closed"))
        with self._opening:  # a thread inside open() gets no more answers, so it leaves
            self.transport.stop()

    def open(self) -> None:
        """Connect, unless connected. A server that has exited is restarted."""
        with self._opening:
            if self.closed:
                raise Disconnected("the client is closed")
            if not self.transport.up:  # up: connected, or this thread is inside open() already
                try:
                    self.transport.start()
                    self._find_era()
                except BaseException:
                    self.transport.stop()
                    raise

    def _find_era(self) -> None:
        """Try server/discover, then initialize: the transports' §Backward Compatibility."""
        version, named = self.version, []  # type: str, Any
        if self.modern:
            try:
                named = self._discover(version)
            except (OSError, HttpError, Malformed) as problem:
                if getattr(problem, "status", 0) in (401, 403, 429, 503) \
                        or self._pinned and not isinstance(problem, Malformed):
                    raise
            if named is None:
                return
            if self._pinned or named and not any(one in versions("legacy") for one in named):
                raise Disconnected(f"the server does not support {version}; it supports {named}")
            version = versions("legacy")[0]
            if not self.transport.up:
                self.transport.start()  # it exited on server/discover
        try:
            self._initialize(version)
        except RpcError:  # it may be modern, and just slow to start
            with suppress(Malformed):
                if not self._pinned and self._discover(versions()[0]) is None:
                    return
            raise

    def _discover(self, version: str, again: bool = True) -> list[Any] | None:
        """Send server/discover. Returns None on success, else the versions that the server
        supports; Malformed if it is legacy. `again`: retry with a version that both support."""
        self._speak(version)
        timeout = None if self._pinned else min(self.timeout, self._probe)
        try:
            result = self._exchange(Request(self, "server/discover", timeout), {})
            named: Any = _member(result, "supportedVersions", list)
            if version in named:  # server/discover §Response
                self._take_over(result, _object(result.get("_meta")).get(META_SERVER))
                return None
        except RpcError as error:
            if error.code in (HEADER_MISMATCH, MISSING_CAPABILITY):  # it is modern
                raise
            named = _member(error.data, "supported", list)
        for other in versions("modern"):
            if again and other in named and self._pinned in ("", other):
                return self._discover(other, again=False)
        return list(named)

    def _initialize(self, version: str) -> None:
        """[legacy] Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        self._speak(version)
        result = self._exchange(Request(self, "initialize"), {
            "protocolVersion": version, "capabilities": self._offers, "clientInfo": self._info})
        agreed = _member(result, "protocolVersion", str)
        if agreed not in versions("legacy") or self._pinned not in ("", agreed):
            raise Disconnected(f"the server does not support {self.version}; it offers {agreed}")
        self._speak(agreed)
        self._take_over(result, result.get("serverInfo"))
        self._notify("notifications/initialized").wait()
        if self._offers or self._on_log or self._on_notification:
            self.transport.listen()
        if self.log_level and "logging" in self.capabilities:
            self.set_level(self.log_level)

    def _take_over(self, result: Message, info: Any) -> None:
        self.capabilities = _member(result, "capabilities", dict)
        self.server_info, self.instructions = _object(info), result.get("instructions")

    def _speak(self, version: str) -> None:
        """Set the revision to speak, and the capabilities to declare in it."""
        edition = rules(version)
        self.version, self.modern = version, edition.modern
        self._offers: Message = {**self._declare}
        if self._modes and "elicitation/create" in edition.methods:
            self._offers["elicitation"] = {
                mode: {} for mode in self._modes if "URL elicitation" in edition.features}
        if self._sample:
            self._offers.setdefault("sampling", {})
        if self._roots is not None:
            self._offers["roots"] = {}

    def request(self, method: str, params: Message | None = None, *, started: Any = None,
                **options: Any) -> Any:
        """Send a request, answer the server's questions, return the result.

        `started`: called with each Request before it is sent; you can cancel() it later.
        `timeout`: seconds for each response; `on_progress`: called with progress, total and
        message, on this thread; `extend`: progress resets the timeout, up to `longest` seconds."""
        more: Message = {}
        for attempt in range(MAX_ROUNDS + 1):
            self.open()
            request = Request(self, method, **options)
            if started:
                started(request)
            try:
                result = self._exchange(request, {**(params or {}), **more})
            except (_SessionLost, RpcError) as problem:
                # [2025-11-25] basic/transports §Session Management; streamable-http §Client ...
                if attempt or getattr(problem, "code", HEADER_MISMATCH) != HEADER_MISMATCH:
                    raise
                self.tools = {}
                continue
            kind = str(result.get("resultType", "complete")) if self.modern else "complete"
            if kind == "complete":
                return result
            if kind in self.result_types:
                return self.result_types[kind](method, result, request.tag)
            more = self._more_input(method, result, request.tag)
            if request.cancelled:  # while a question was being answered
                raise RequestCancelled(f"{method} was cancelled")
        raise Malformed(f"{method} asked for input more than {MAX_ROUNDS} times")

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification, unless the revision does not define it."""
        self.open()
        if method not in NOTIFICATIONS or method in rules(self.version).notifications:
            self._notify(method, params).wait()

    def _notify(self, method: str, params: Message | None = None) -> Request:
        """Send a notification; return a Request, settled once it is sent."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        return self._transmit(message, Request(self, method))

    def _exchange(self, request: Request, params: Message) -> Any:
        """Send one request, wait for its response, return the result."""
        try:
            return _result(self._begin(request, params).wait())
        finally:
            self._finish(request)

    def _begin(self, request: Request, params: Message) -> Request:
        """Send a request; its messages arrive in its inbox."""
        meta: Message = {}
        if self.modern:  # basic/index §_meta
            meta = {META_VERSION: self.version, META_CLIENT: self._info,
                    META_CAPABILITIES: self._offers}
            if self.log_level:
                meta[META_LOG_LEVEL] = self.log_level
        if request.on_progress or request.extend:
            meta["progressToken"] = request.id
        meta.update(params.get("_meta", {}))
        if meta:
            params = {**params, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": request.id, "method": request.method, "params": params}
        self.running[request.id] = request
        return request if request.cancelled else self._transmit(message, request)

    def _transmit(self, message: Message, request: Request) -> Request:
        self._trace(">", message)
        if not self.transport.mirrors:
            self.record(">", message=message)
        try:
            if self.closed:  # lost() may have missed this request
                raise Disconnected("the client is closed")
            self.transport.send(message, request)
        except Exception as problem:  # noqa: BLE001  raised in the waiting thread
            request.settle(problem)
        return request

    def _finish(self, request: Request) -> None:
        """Stop waiting; cancel the request if it has no response: basic/patterns/cancellation."""
        # Over HTTP, hang_up() cancels a modern request. It also settles it, so check first.
        waiting = not (request.settled or self.modern and self.transport.mirrors)
        request.over.set()
        self.running.pop(request.id, None)
        request.hang_up()
        if waiting and request.method not in ("initialize", "server/discover"):
            self._notify("notifications/cancelled", {"requestId": request.id})

    def receive(self, data: bytes, request: Request | None = None, wire: Any = None) -> None:
        """Handle what came, for `request` if known; Malformed if it is not JSON. Never blocks."""
        try:
            message = decode(data)
        except RpcError as problem:
            self.record("<", wire, text=data.decode("utf-8", "replace"))
            raise Malformed(f"expected a message, found {data!r:.200} ({problem})") from None
        # An array is a batch: [2025-03-26] basic/index §Batching
        for one in message if isinstance(message, list) else [message]:
            self._trace("<", one)
            self.record("<", wire, message=one)
            kind = ""
            with suppress(RpcError):  # other JSON is ignored
                kind = kind_of(one)
            if kind == "response":
                # An error without an id: our message was unreadable. HTTP tells which.
                found = self.running.get(one["id"]) if is_id(one.get("id")) \
                    else request if "error" in one else None
                if found:
                    found.settle(one)
            elif kind == "notification":
                self._take_notification(one, _object(one.get("params")))
            # A modern server may not ask: .../stdio §Receiving Messages
            elif kind and not self.modern and self._questions.acquire(blocking=False):
                _thread("mcp-answer", self._take_question, one, request)

    def record(self, way: str, wire: Any = None, **more: Any) -> None:
        """Record what was sent (">") or received ("<"), over HTTP on which `wire`."""
        if self._file:
            now = datetime.now(timezone.utc)  # noqa: UP017  for Python 3.9
            line = {"time": now.isoformat(timespec="milliseconds")[:-6] + "Z", "way": way,
                    **(wire.place if wire else {"on": "stdio"}), **more}
            with suppress(OSError, ValueError):  # the disk is full, or the line is too long
                self._file.write(encode({k: v for k, v in line.items() if v is not None}))

    def lost(self, problem: BaseException) -> None:
        """Fail all pending calls: the connection is lost."""
        for request in list(self.running.values()):
            request.settle(problem)

    def _take_notification(self, message: Message, params: Message) -> None:
        """Pass a notification to the request that it names, and to callbacks."""
        name, meta = message["method"], _object(params.get("_meta"))
        ident = params.get("progressToken", meta.get(META_SUBSCRIPTION, params.get("requestId")))
        found = [] if self.modern else list(self.subscriptions)  # type: list[Request]
        if is_id(ident) and ident in self.running:
            found.append(self.running[ident])
        for request in found:
            request.inbox.put({"method": name, "params": params})
        if self._on_log and name == "notifications/message":
            self._on_log(params)
        if self._on_notification:
            self._on_notification(message)

    def _more_input(self, method: str, result: Message, tag: Any) -> Message:
        """Answer the questions in a modern result; return the params to add to the retry:
        basic/patterns/mrtr §Client Requirements (Basic Workflow)."""
        more = {"requestState": result["requestState"]} if "requestState" in result else {}
        if "inputRequests" in result:
            more["inputResponses"] = {key: self.answer(question, tag) for key, question in _member(
                result, "inputRequests", dict).items()}
        if result["resultType"] != "input_required" or not more:
            raise Malformed(f"unexpected result of {method}: {result!r:.200}")
        return more

    def answer(self, question: Any, tag: Any = None) -> Message:
        """Answer a modern server's question, {"method", "params"}; AskError if it is refused."""
        try:
            return self._answer(_object(question), [tag])
        except RpcError as problem:  # a modern server cannot be sent an error
            raise (AskError if problem.code == -1 else Malformed)(
                f"the server's question was not answered: {problem}") from None

    def _answer(self, question: Message, tags: list[Any]) -> Message:
        """Return the result for a question; RpcError if there is none."""
        method, params = question.get("method"), _object(question.get("params"))
        if method == "elicitation/create" and self._modes:
            return self._answer_elicitation(params, tags)
        if method == "roots/list" and self._roots is not None:
            found = _called(self._roots, params, tags) if callable(self._roots) else self._roots
            return {"roots": [one if isinstance(one, dict) else {
                "uri": str(one) if "://" in str(one) else Path(one).absolute().as_uri()}
                for one in found]}
        if method != "sampling/createMessage" or not self._sample:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method!r:.80}")
        if "tools" in params and "tools" not in self._offers["sampling"]:
            raise RpcError(INVALID_PARAMS, "sampling.tools was not declared")
        answer = _called(self._sample, params, tags)
        if answer is None:  # [2025-11-25] client/sampling §Error Handling
            raise RpcError(-1, "User rejected sampling request")
        if isinstance(answer, str):  # shorthand for a text answer
            answer = {"content": {"type": "text", "text": answer}}
        return {"role": "assistant", "model": "unknown", **answer}

    def _answer_elicitation(self, params: Message, tags: list[Any]) -> Message:
        """Have the user fill in a form or visit a page: client/elicitation."""
        mode, form = str(params.get("mode", "form")), _object(params.get("requestedSchema"))
        fields: Any = {} if mode == "url" else form.get("properties")
        try:
            ask = self._modes[mode]
            known = json.loads(json.dumps(list(fields.values())), object_hook=_field)
            schema = Schema({"type": "object", "properties": dict(zip(fields, known)),
                             "required": list(map(str, form.get("required", [])))})
            if mode == "url" and not re.match("https?://", str(params.get("url"))):
                raise ValueError("url must be http or https")
        except Exception as problem:  # noqa: BLE001  a form can be wrong in many ways
            raise RpcError(INVALID_PARAMS, f"cannot elicit {params}: {problem}") from None
        answer = _called(ask, params, tags)
        if answer in ("cancel", "decline", None, False):
            return {"action": answer or "decline"}
        if mode == "url":
            return {"action": "accept"}
        content = {name: part["default"] for name, part in fields.items()
                   if "default" in _object(part)}
        content.update(answer)
        if schema.flaw(content):
            raise ValueError(f"the answer does not match the form: {schema.flaw(content)}")
        return {"action": "accept", "content": content}

    def _take_question(self, message: Message, request: Request | None) -> None:
        """[legacy] Answer a request from the server; runs on mcp-answer."""
        method = message["method"]
        tags = [one.tag for one in ([request] if request else list(self.running.values()))]
        try:
            answer: Message = {"result": {} if method == "ping" else self._answer(message, tags)}
            encode(answer)
        except Exception as problem:  # noqa: BLE001  a callback may raise anything
            self.transport.say(f"{method} failed: {type(problem).__name__}: {problem}")
            answer = {"error": {"message": f"{problem}", "code": problem.code if isinstance(
                problem, RpcError) else INTERNAL_ERROR}}
        reply = {"jsonrpc": "2.0", "id": message["id"], **answer}
        with suppress(Exception):  # until it is sent, the question counts as open
            self._transmit(reply, Request(self, method)).wait()
        self._questions.release()

    def _ask(self, method: str, params: Any, member: str, *needed: str, **options: Any) -> Message:
        """Send a request. Its result has a list `member` of objects with strings `needed`."""
        self.open()
        if METHODS[method].capability not in self.capabilities:
            raise ServerLacks(f"the server does not declare {METHODS[method].capability}")
        result: Message = self.request(method, params, **options)
        for item in _member(result, member, list):
            for name in needed:
                _member(item, name, str)
        return result

    def _list(self, method: str, member: str, *needed: str) -> list[Message]:
        """Fetch all pages of a list: server/utilities/pagination."""
        found, params = [], {}  # type: list[Message], Message
        for _ in range(MAX_PAGES):
            try:
                result = self._ask(method, params, member, "name", *needed)
            except ServerLacks:
                return found
            found += result[member]
            if result.get("nextCursor") is None:  # "" is a valid cursor
                return found
            params = {"cursor": _member(result, "nextCursor", str)}
        raise Malformed(f"{method} has more than {MAX_PAGES} pages")

    def list_tools(self) -> list[Message]:
        """Return all tools, over HTTP without those with invalid headers: server/tools §Tool."""
        tools = self._list("tools/list", "tools")
        self.tools = {tool["name"]: tool for tool in tools}
        for tool in list(tools) if self.transport.mirrors and self.modern else ():
            try:  # .../streamable-http §Schema Extension
                _mirrors(tool.get("inputSchema"), {})
            except (Malformed, RecursionError) as problem:
                self.transport.say(f"ignored the tool {tool['name']}: {problem}")
                tools.remove(tool)
        return tools

    def call_tool(self, name: str, arguments: Message | None = None, **options: Any) -> Message:
        """Call a tool. Returns {"content": [...]}, with "structuredContent" if it has any, and
        "isError" if the tool failed. Options: see request(). (server/tools §Calling Tools)"""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("tools/call", params, "content", "type", **options)

    def list_resources(self) -> list[Message]:
        """Return all resources: server/resources §Resource."""
        return self._list("resources/list", "resources", "uri")

    def list_resource_templates(self) -> list[Message]:
        """Return all resource templates: server/resources §Resource Templates."""
        return self._list("resources/templates/list", "resourceTemplates", "uriTemplate")

    def read_resource(self, uri: str, **options: Any) -> list[Message]:
        """Read a resource. Returns its contents: [{"uri", "text" or "blob" (base64), ...}]."""
        found = self._ask("resources/read", {"uri": uri}, "contents", "uri", **options)
        return list(found["contents"])

    def list_prompts(self) -> list[Message]:
        """Return all prompts: server/prompts §Prompt."""
        return self._list("prompts/list", "prompts")

    def get_prompt(self, name: str, arguments: Any = None, **options: Any) -> Message:
        """Get a prompt; its arguments are strings. Returns {"messages": [...], ...}."""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("prompts/get", params, "messages", "role", **options)

    def complete(self, reference: str, argument: str, value: str, known: Any = None) -> list[str]:
        """Return completions of `value`, typed so far for an argument of a prompt or template.
        `known`: the arguments already filled in. (server/utilities/completion)"""
        ref = {"type": "ref/prompt", "name": reference}  # a name may contain a colon
        if "://" in reference or "{" in reference:
            ref = {"type": "ref/resource", "uri": reference}
        context = {"context": {"arguments": known}} if known else {}
        result = self.request("completion/complete", {
            "ref": ref, "argument": {"name": argument, "value": value}, **context})
        values: list[str] = _member(_object(result.get("completion")), "values", list)
        if any(type(one) is not str for one in values):
            raise Malformed(f"completions must be strings: {values!r:.200}")
        return values

    def ping(self) -> None:
        """Check that the server answers: by ping or, in the modern era, server/discover."""
        self.request("server/discover" if self.modern else "ping")

    def set_level(self, level: str) -> None:
        """Ask for log messages of this level (mcp_ref.LOG_LEVELS) and above. [deprecated]"""
        self.open()
        if not self.modern:
            self.request("logging/setLevel", {"level": level})
        self.log_level = level  # modern: sent with each request

    def listen(self, wanted: Iterable[str], callback: Any = None,
               timeout: Any = None) -> Subscription:
        """Subscribe to changes of "tools", "prompts", "resources" or URIs. See Subscription."""
        self.open()
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        subscription = Subscription(self, names, timeout)
        if callback:
            def forward() -> None:
                with suppress(Disconnected):
                    for change in subscription:
                        callback(change)
            _thread("mcp-listen", forward)
        return subscription


# ==== 3. Subscriptions ========================================
# Modern: one request, subscriptions/listen, stays open; changes arrive in its inbox. Legacy: a
# session is told of all changed lists, and of URIs given to resources/subscribe, until it ends.
# ([2025-11-25] server/resources §Subscriptions)

class Subscription(Request, AbstractContextManager["Subscription"]):
    """A server's changes: iterate over it, or give listen() a callback; close() it at the end.

    Each change is "tools", "prompts", "resources" or a URI. `granted` lists what the server agreed
    to. Iteration stops when the subscription ends; Disconnected if the connection is lost."""
    def __init__(self, client: Client, wanted: list[str], timeout: Any) -> None:
        super().__init__(client, "subscriptions/listen", timeout)
        self.client, self.granted = client, []  # type: Client, list[str]
        client.subscriptions.append(self)
        try:
            (self._open_modern if client.modern else self._open_legacy)(wanted)
            if not self.granted:
                raise ServerLacks(f"the server does not announce changes of {wanted}")
        except BaseException:
            self.close()
            raise
        self.deadline = float("inf")

    def _open_modern(self, wanted: list[str]) -> None:
        asked: Message = {what + "ListChanged": True for what in wanted if ":" not in what}
        uris = [what for what in wanted if ":" in what]
        if uris:
            asked["resourceSubscriptions"] = uris
        first = self.client._begin(self, {"notifications": asked}).next()
        if "params" not in first and _object(first.get("error")).get("code") != METHOD_NOT_FOUND:
            _result(first)  # .../subscriptions §Acknowledgment
        agreed = {"resourceSubscriptions": [],
                  **_object(_object(first.get("params")).get("notifications"))}
        names = [*agreed, *_member(agreed, "resourceSubscriptions", list)]
        self.granted = [what for what in wanted if what in names or what + "ListChanged" in names]

    def _open_legacy(self, wanted: list[str]) -> None:
        self.client.transport.listen()
        self.client.running[self.id] = self
        for what in wanted:
            kind, needed = ("resources", "subscribe") if ":" in what else (what, "listChanged")
            if _object(self.client.capabilities.get(kind)).get(needed):
                if ":" in what:
                    self.client.request("resources/subscribe", {"uri": what})
                self.granted.append(what)
        if not self.inbox.empty():  # the refusal of our GET: the server has no stream
            self.next()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                message = self.next()
            except Exception as problem:
                if self.cancelled:  # by close()
                    return
                self.settle(problem)  # for the next iteration
                raise
            name = message.get("method", "/")
            what = name.split("/")[-2:][0]
            if name == "notifications/resources/updated":
                what = str(message["params"].get("uri"))  # may lie below a URI in `granted`
            if name in ("/", "notifications/cancelled"):
                self.close()
            elif any((what + "/").startswith(one.rstrip("/") + "/") for one in self.granted):
                yield what

    def close(self) -> None:
        """End the subscription; do nothing if it has ended."""
        with suppress(ValueError):
            self.client.subscriptions.remove(self)
            self.cancel()
            self.settled = self.settled or not self.client.modern  # nothing to cancel
            self.client._finish(self)


# ==== 4. Checks and other small functions =====================

def _result(response: Message) -> Any:
    """Return the result of a response; RpcError if it is an error, Malformed if neither."""
    error = response.get("error")
    if error is None:
        return _member(response, "result", dict)
    raise RpcError(_member(error, "code", int), str(error.get("message", "")), error.get("data"))


def _member(value: Any, name: str, kind: type) -> Any:
    """Return a member of an object; Malformed if it is missing or of another type."""
    if type(_object(value).get(name)) is not kind:  # true is not an int
        raise Malformed(f"the server sent no valid {name}: {value!r:.200}")
    return value[name]


def _object(value: Any) -> Message:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _thread(name: str, target: Callable[..., Any], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def _called(function: Any, *arguments: Any) -> Any:
    """Call an application's function; it may be async, or take only the first argument."""
    import asyncio
    import inspect
    needed = [one for one in inspect.signature(function).parameters.values()
              if one.kind < 2 and one.default is one.empty]  # positional, without default
    found = function(*arguments[:max(1, len(needed))])
    return asyncio.run(found) if inspect.iscoroutine(found) else found


# The keywords of a form's fields; others, such as `pattern`, are ignored.
_FIELD = "type minLength maxLength minimum maximum enum oneOf const items anyOf minItems maxItems"


def _field(part: Message) -> Message:
    """Return a part of a form: client/elicitation §Requested Schema."""
    return {name: part[name] for name in _FIELD.split() if name in part}


def _marked(schema: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield header, type and value of each argument with an x-mcp-header, at any depth."""
    for name, part in _object(_object(schema).get("properties")).items():
        inner = _object(value).get(name)
        if "x-mcp-header" in _object(part):
            yield part["x-mcp-header"], part.get("type"), inner
        yield from _marked(part, inner)


def _mirrors(schema: Any, arguments: Any) -> Message:
    """Return the headers that repeat arguments; Malformed if the schema has an invalid one.
    (basic/transports/streamable-http §Custom Headers from Tool Parameters)"""
    found = list(_marked(schema, arguments))
    names = {name.lower() for name, kind, _ in found if type(name) is str and kind in (
        "string", "integer", "boolean") and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)}
    if len(names) != json.dumps(schema).count('"x-mcp-header":'):
        raise Malformed("each x-mcp-header must be a unique name of a string, integer or boolean")
    return {f"Mcp-Param-{name}": mirror(value) for name, _, value in found if value is not None}


# ==== 5. Transports: in this process, and stdio ===============
# send() returns at once; responses come back through Client.receive(), exceptions through
# Request.settle(). What gets no response settles its request once it is sent.

class Transport:
    """The base of transports. Each has start(), to connect or raise Disconnected; stop(), which
    start() may follow; and send(message, request), which does not wait."""
    client: Client      # set by the client
    up = False          # started, and not lost since
    mirrors = False     # headers repeat parts of the body, and closing the connection cancels

    def listen(self) -> None:
        """[legacy] Let the server send messages that belong to no request."""

    def say(self, line: str) -> None:
        """Print a line for the user, on stderr."""
        print(line, file=sys.stderr)

    def _run(self, name: str, request: Request, work: Callable[[], Any]) -> None:
        """Do a request's work on a new thread; an exception settles the request."""
        def run() -> None:
            try:
                work()
                if request.id not in self.client.running:
                    request.settle({})
            except BaseException as problem:  # noqa: BLE001  raised in the waiting thread
                request.settle(problem)
            request.hang_up(close=True)
        _thread(name, run)


class MemoryTransport(Transport):
    """A Server in this process; each message has its own thread, so that calls can time out."""
    def __init__(self, server: Server) -> None:
        self.server = server

    def start(self) -> None:
        self.up, self.peer = True, Peer(self._deliver)

    def stop(self) -> None:
        if self.up:
            self.up = False
            self.peer.close()

    def _deliver(self, message: Any) -> None:
        self.client.receive(encode(message))  # a copy, as a real connection makes

    def send(self, message: Message, request: Request) -> None:
        self._run("mcp-call", request, lambda: self.server.handle(
            decode(encode(message)), self._deliver, peer=self.peer))


# The environment variables that a server inherits: no secrets. connect(env=...) adds others.
_INHERITED = """APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LC_CTYPE LOCALAPPDATA LOGNAME
    PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE SYSTEMROOT TEMP TERM TMP TMPDIR TZ USER USERNAME
    USERPROFILE WINDIR"""


class StdioTransport(Transport):
    """A server that we start: basic/transports/stdio. `stderr`: called with each line it writes to
    stderr; `env`: variables in addition to _INHERITED."""
    def __init__(self, command: Iterable[str], *, env: Any = None, cwd: str | None = None,
                 stderr: Any = None) -> None:
        self.command, self.cwd, self.process = list(command), cwd, None  # type: Any, Any, Any
        self.env = {**{name: value for name, value in os.environ.items()
                       if name in _INHERITED.split()}, **(env or {})}
        self.say = stderr or super().say  # type: ignore[method-assign]

    def start(self) -> None:
        import shutil
        from subprocess import PIPE, Popen
        self.stop()
        self.outgoing = SimpleQueue()  # type: SimpleQueue[bytes | None]  # None: close stdin
        self.exited, self.silent = threading.Event(), threading.Event()
        self.last_lines = []  # type: list[str]
        try:  # on Windows, which() finds npx.cmd
            program = shutil.which(self.command[0], path=self.env.get("PATH")) or self.command[0]
            process = self.process = Popen(
                [program, *self.command[1:]], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self.env,
                cwd=self.cwd, start_new_session=True)  # a process group
        except (OSError, ValueError, IndexError) as problem:
            raise Disconnected(f"cannot start {self.command}: {problem}") from None
        self.threads, self.up = [], True  # type: list[threading.Thread], bool
        for name, target in (("mcp-watch", self._watch), ("mcp-stderr", self._forward),
                             ("mcp-read", self._read), ("mcp-write", self._write)):
            self.threads.append(_thread(name, target, process))

    def send(self, message: Message, request: Request) -> None:
        self.outgoing.put(encode(message))
        if not self.up:  # if it dies after this, lost() finds the request
            raise Disconnected("the server is gone")
        if request.id not in self.client.running:
            request.settle({})

    def _write(self, process: Any) -> None:
        """Write lines; runs on mcp-write, the only thread that a slow server can block."""
        with suppress(OSError), process.stdin:
            for line in iter(self.outgoing.get, None):
                process.stdin.write(line)
                process.stdin.flush()
        self._lose(process)

    def _read(self, process: Any) -> None:
        """Read lines until the output ends; runs on mcp-read."""
        with process.stdout:
            # A line that is too long comes in pieces.
            for line in iter(lambda: process.stdout.readline(MAX_MESSAGE_BYTES + 1), b""):
                try:
                    if line.strip():
                        self.client.receive(line)
                except Exception as problem:  # noqa: BLE001  not a message, or a callback failed
                    self.say(f"{type(problem).__name__}: {problem}")
            self._lose(process)

    def _forward(self, process: Any) -> None:
        """Pass on what the server writes to stderr; runs on mcp-stderr."""
        with process.stderr:
            for line in iter(lambda: process.stderr.readline(MAX_MESSAGE_BYTES + 1), b""):
                text = line.decode("utf-8", "replace").rstrip()
                self.last_lines = [*self.last_lines[1 - MAX_LAST_LINES:], text]
                self.say(text)
        self.silent.set()

    def _watch(self, process: Any) -> None:
        """Wait for the server to exit; runs on mcp-watch."""
        process.wait()
        _kill(process, "SIGKILL")  # child processes that it left running
        self.exited.set()
        self._lose(process)

    def _lose(self, process: Any) -> None:
        """Mark the server as gone; fail pending calls, quoting the end of its stderr."""
        if self.exited.wait(0.2):
            self.silent.wait(0.2)
        if self.up and process is self.process:
            self.up = False
            said = [f"the server is gone (exit status {process.poll()})", *self.last_lines]
            self.client.lost(Disconnected("\n".join(said)))

    def stop(self) -> None:
        """Shut down the server: basic/transports/stdio §Shutdown."""
        process, self.process, self.up = self.process, None, False
        if process:
            self.outgoing.put(None)
            for step in ("SIGTERM", "SIGKILL"):
                if not self.exited.wait(CLOSE_STEP_SECONDS):
                    _kill(process, step)
            for thread in self.threads:
                if thread is not threading.current_thread():
                    thread.join(CLOSE_STEP_SECONDS)


def _kill(process: Any, name: str) -> None:
    """Send a signal to a server and its children; on Windows, end the server."""
    with suppress(OSError):  # no process is left
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


# ==== 6. HTTP =================================================
# Each message is a POST on its own thread, which may block; the caller waits in Request.next() and
# hangs up at the deadline. [legacy] A session has a stream, opened by GET; HTTP+SSE has no other.

class _Wire:
    """One HTTP connection, for one exchange. Any thread may hang up; all else is done by the thread
    that made it. `place`: what record() says about it."""
    def __init__(self, url: str, tls: Any, timeout: float) -> None:
        (scheme, self.host), self.session, self.read = _origin(url), "", b""
        with self.failing():
            self.connection: Any = HTTPConnection(self.host, timeout=timeout) if scheme == "http" \
                else HTTPSConnection(self.host, timeout=timeout, context=tls)
            self.connection.connect()
            self.socket = self.connection.sock
        self.place: Message = {"on": self.socket.getsockname()[1]}  # our port

    @contextmanager
    def failing(self, kind: Any = Disconnected) -> Iterator[None]:
        """Turn the exceptions of a broken connection or URL into `kind`."""
        try:
            yield
        except (OSError, HTTPException, ValueError) as problem:
            raise kind(f"{self.host}: {problem or type(problem).__name__}") from None

    def exchange(self, verb: str, url: str, headers: Message, body: bytes | None) -> None:
        """Send a request, and read the head of the response."""
        target = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl()
        with self.failing():
            self.connection.request(verb, "/" + target.lstrip("/"), body, {
                "User-Agent": "mcp_ref", **headers})
            self.response: Any = self.connection.getresponse()
        found = self.response.headers
        self.status, self.kind = self.response.status, found.get_content_type()
        self.place["status"] = self.status
        self.headers = {name.lower(): ", ".join(found.get_all(name)) for name in found}

    def events(self, request: Request) -> Iterator[tuple[str, str]]:
        """Yield (kind, data) of each event in a stream (HTML Standard, section 9.2); store its id
        and `retry` in the request. Malformed if an event is too large."""
        event, size = {}, 0  # type: dict[str, list[str]], int
        with self.failing():
            text = io.TextIOWrapper(self.response, "utf-8-sig", "replace")
            for line in iter(lambda: text.readline(MAX_MESSAGE_BYTES), ""):
                name, _, value = line.rstrip("\n").partition(":")
                event.setdefault(name, []).append(value.removeprefix(" "))
                size += len(line)
                if size > MAX_MESSAGE_BYTES + 1000:  # field names count, too
                    raise Malformed(f"the server sent an event of more than {size} characters")
                if line == "\n":
                    request.last_id = event.get("id", [request.last_id])[-1]
                    with suppress(ValueError, KeyError):
                        request.retry = int(event["retry"][-1][:9]) / 1000
                    data = "\n".join(event.get("data", ()))
                    if data:  # an event may have only an id
                        yield event.get("event", ["message"])[-1], data
                    event, size = {}, 0

    def body(self) -> bytes:
        """Return the body, the same one each time."""
        with self.failing():
            self.read += self.response.read(MAX_MESSAGE_BYTES + 1)  # enough for decode() to refuse
        return self.read

    def hang_up(self, close: bool = os.name == "nt") -> None:
        """End the exchange, from any thread: a read or write that blocks fails. `close`: free the
        socket, too, on its own thread (on Windows, on any: nothing else ends a read there)."""
        with suppress(OSError):  # it is closed
            if close:
                socket.close(self.socket.detach())
            else:  # an SSLSocket's own shutdown() would break its reader
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


def fetch(verb: str, url: str, headers: Message, body: bytes | None = None,
          timeout: float = 30) -> tuple[int, dict[str, str], bytes]:
    """Do one HTTP exchange, without redirects; return status, headers (names in lower case) and
    body. `timeout`: seconds for each socket operation. Raises Disconnected, also on timeout."""
    wire = _Wire(url, None, timeout)
    try:
        wire.exchange(verb, url, headers, body)
        return wire.status, wire.headers, wire.body()
    finally:
        wire.hang_up(close=True)


def _origin(url: str) -> tuple[str, str]:
    """Return scheme and host, with the port, of an http or https URL; ValueError for others."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError(f"expected a file, or an http(s) URL without a password; found {url:.200}")
    return parts.scheme, parts.netloc


class HttpTransport(Transport):
    """A server at a URL: Streamable HTTP or, if it supports nothing newer, HTTP+SSE [legacy].

    `headers`: a dict, or a function of (verb, url) that returns one, called for each HTTP request.
    `authorize`: called with the HttpError of a 401 or 403; returns `headers` for all requests from
    then on, or None to give up. `tls`: an ssl.SSLContext. Redirects must stay within the origin."""
    mirrors = True
    stream: Request | None = None  # [legacy] the session's stream, which belongs to no request

    def __init__(self, url: str, *, headers: Any = None, tls: Any = None,
                 authorize: Any = None) -> None:
        self.url, self.origin, self.tls, self.authorize = url, _origin(url), tls, authorize
        self.own, self.granted, self.lock = headers or {}, {}, threading.Lock()  # type: Any,Any,Any

    def start(self) -> None:
        self.up, self.session, self.sse, self.post_to = True, "", False, ""  # sse: tried or in use

    def stop(self) -> None:
        """Delete the session, and close its stream."""
        if self.up and self.session:
            deletion = Request(self.client, "DELETE", CLOSE_STEP_SECONDS)
            self._run("mcp-post", deletion, lambda: self._open("DELETE", {}, deletion))
            with suppress(Exception):  # the session expires anyway
                deletion.wait()
        self.up = False
        self._end_stream(Disconnected("the client was closed"))

    def send(self, message: Message, request: Request) -> None:
        self._run("mcp-post", request, lambda: self._post(message, request))

    def listen(self, seconds: float = 2 * RETRY_SECONDS) -> None:
        """[legacy] Open the session's stream; return when it is open, or the server has none.
        ([2025-11-25] basic/transports §Listening for Messages from the Server)"""
        if self.stream is None or self.stream.over.is_set():
            stream = self.stream = Request(self.client, "GET", seconds)
            self._run("mcp-stream", stream, lambda: self._hold_stream(stream))
            with suppress(Exception):  # 405: it has none
                stream.next()

    def _end_stream(self, problem: BaseException) -> None:
        if self.stream:
            self.stream.over.set()
            self.stream.hang_up()
            for subscription in self.client.subscriptions:
                subscription.settle(problem)

    def _hold_stream(self, stream: Request) -> None:
        """Read messages that belong to no request until the session ends; runs on mcp-stream."""
        try:
            self._follow(None, stream)
        except Exception as problem:
            self._end_stream(problem)
            if self.post_to:
                self.up = False  # the next request reconnects
                self.client.lost(problem)
            raise

    def _headers_of(self, message: Message) -> Message:
        """Return the headers that repeat the body: .../streamable-http §Request Metadata."""
        client, method, params = self.client, message.get("method", ""), message.get("params", {})
        found = {"Accept": "application/json, text/event-stream",
                 "Content-Type": "application/json"}
        if client.modern:
            found["Mcp-Method"] = method
            member = client.mirrored.get(method)
            if isinstance(params.get(member), str):
                found["Mcp-Name"] = mirror(params[member])
            if method == "tools/call":
                name = params.get("name")
                if name not in client.tools:
                    client.list_tools()  # its schema says which arguments become headers
                schema = client.tools.get(name, {}).get("inputSchema")
                found.update(_mirrors(schema, params.get("arguments")))
        return found

    def _post(self, message: Message, request: Request) -> None:
        """Post a message, and handle the response."""
        wire = self._open("POST", self._headers_of(message), request, message)
        status, opens = wire.status, request.method == "initialize"
        if self.post_to or request.id not in self.client.running:  # no response is due here
            if status >= 400:
                raise self._refusal(wire)
            return
        if status == 200 and opens:  # [2025-11-25] basic/transports §Session Management
            self.session = wire.headers.get("mcp-session-id", "")
        if status == 200 and wire.kind == "text/event-stream":
            self._follow(wire, request)
        elif opens and status in (400, 404, 405):  # .../streamable-http §HTTP+SSE Transport
            refusal = self._refusal(wire)
            self.sse = True
            self.listen(self.client.timeout)
            if not self.post_to:
                raise refusal
            self._post(message, request)
        elif status >= 400 and not (self.client.modern and b'"error"' in wire.body()):
            raise self._refusal(wire)
        else:
            self.client.receive(wire.body(), request, wire)
            if not request.settled:
                raise Malformed(f"no response to {request.method} in {wire.read!r:.200}")

    def _refusal(self, wire: _Wire) -> Exception:
        """Return the exception for an HTTP response that is not a message."""
        status, said = wire.status, wire.body().decode("utf-8", "replace")
        self.client.record("<", wire, text=said)
        # A lost session must be 404, but widely copied servers answer 400 and mention the session.
        if wire.session and (status == 404 or status == 400 and "session" in said.lower()
                             and str(INVALID_PARAMS) not in said):
            lost = _SessionLost("the server no longer knows the session")
            if wire.session == self.session:
                self.session, self.up = "", False  # the next request reconnects
                self._end_stream(lost)
            return lost
        return HttpError(status, f"{self.url} sent {status} {wire.response.reason}: {said:.500}",
                         wire.headers, self.url)

    def _follow(self, wire: _Wire | None, request: Request) -> None:
        """Receive a stream's messages. A POST's stream ends with its response, a session's never.
        A legacy stream that breaks is resumed: a session's, or one whose events have ids.
        ([2025-11-25] basic/transports §Resumability and Redelivery)"""
        while not request.over.is_set():
            if wire is None:
                headers: Message = {"Accept": "text/event-stream"}
                if request.last_id:
                    headers["Last-Event-ID"] = request.last_id.encode()
                wire = self._open("GET", headers, request)
                if wire.kind != "text/event-stream":
                    raise self._refusal(wire)
                if not self.sse:
                    request.inbox.put({"method": ""})  # listen() waits for it
            with suppress(Disconnected):  # broken or ended: the same
                for kind, data in wire.events(request):
                    if kind == "endpoint" and self.sse:  # [2024-11-05] §HTTP with SSE
                        with wire.failing(Malformed):
                            place = urljoin(self.url, data.strip())
                            self.post_to = place if _origin(place) == self.origin else ""
                        request.inbox.put({"method": ""})
                    elif kind == "message":
                        owner = None if request is self.stream else request
                        self.client.receive(data.encode(), owner, wire)
                    if request.settled:
                        return
            if self.client.modern or self.sse or not (request.last_id or request is self.stream):
                raise Disconnected(f"the stream ended without a response to {request.method}")
            wire.hang_up(close=True)
            request.over.wait(max(request.retry, 0.05))
            wire = None

    def _open(self, verb: str, headers: Message, request: Request, message: Any = None) -> _Wire:
        """Send an HTTP request and read the head of the response. Follows redirects, and asks
        `authorize` on 401 and 403. HttpError if that fails or, except for a POST, on 4xx or 5xx."""
        body = encode(message)[:-1] if message else None
        url, opens = body and self.post_to or self.url, request.method == "initialize"
        for left in range(MAX_REDIRECTS, -1, -1):
            granted, wire = self.granted, _Wire(self.url, self.tls, CALL_SECONDS)
            wire.socket.settimeout(None)  # the caller's deadline ends every wait
            request.wire = wire
            if request.over.is_set():
                raise Disconnected("the request has ended")
            wire.session, sent = self.session, {**headers}
            if wire.session:
                sent["Mcp-Session-Id"] = wire.session
            if not opens:
                sent["MCP-Protocol-Version"] = self.client.version
            for more in (self.own, granted):
                sent.update(more(verb, url) if callable(more) else more)
            self.client.record(">", wire, http=f"{verb} {urlsplit(url).path}", message=message,
                               headers={k: v for k, v in sent.items() if k.lower()[:4] == "mcp-"})
            wire.exchange(verb, url, sent, body)
            status = wire.status
            if status in (401, 403) and self.authorize and left:
                self._ask_for_grant(self._refusal(wire), granted, request)
            elif 300 <= status < 400 and left:
                with wire.failing(Malformed):
                    url = urljoin(url, wire.headers.get("location", ""))
                    if _origin(url) != self.origin:
                        raise HttpError(status, f"a redirect to another origin: {url:.200}")
            elif status < 300 or body and status >= 400 and status not in (401, 403):
                return wire
            else:
                break
            wire.hang_up(close=True)
        raise self._refusal(wire)

    def _ask_for_grant(self, refusal: Exception, granted: Any, request: Request) -> None:
        """Get headers from `authorize`, one thread at a time; raise the refusal if it has none."""
        request.deadline = float("inf")  # a user may have to log in
        with self.lock:  # threads that wait here use the same headers
            if self.granted is granted:  # else another thread has new ones
                found = _called(self.authorize, refusal)
                if found is None:
                    raise refusal
                self.granted = found
        request.deadline = time.monotonic() + request.timeout
        request.inbox.put(None)


def connect(target: Any, *, env: Any = None, cwd: str | None = None, stderr: Any = None,
            headers: Any = None, tls: Any = None, authorize: Any = None, **options: Any) -> Client:
    """Connect to a server and agree on a revision; return a Client, which is a context manager.

    `target`: a URL; a command, as a list; a Server, to be called in this process; a Transport.
    `env`, `cwd`, `stderr`: see StdioTransport; `headers`, `tls`, `authorize`: see HttpTransport.
    `revision`: speak this one or fail. `timeout`, `probe`: seconds for a response, and for the
    first one. `elicit(params)` fills in a form: returns a dict of values, None (declined) or
    "cancel". `visit(params)` shows params["url"] in full to the user and opens it if they agree:
    returns True or False. `sample(params)` asks a model: returns text or a whole result, None if
    the user declines. `roots`: folders or URIs, or a function that returns them. Each of these four
    declares its capability, may be async, and may take a second argument: the tags of the calls.
    `on_log(params)`, `on_notification(message)`: called on the reading thread. `info`: name and
    version of this client. `declare`: further capabilities, such as {"extensions": {...}}.
    `log_level`: the least severe level for `on_log`. `trace(way, message)`: called with each
    message sent (way ">") or received ("<"). `record`: a binary file for them, as MCP_TRACE."""
    transport: Any = target
    if isinstance(target, str):
        transport = HttpTransport(target, headers=headers, tls=tls, authorize=authorize)
    elif isinstance(target, Server):
        transport = MemoryTransport(target)
    elif not isinstance(target, Transport):
        transport = StdioTransport(target, env=env, cwd=cwd, stderr=stderr)
    client = Client(transport, **options)
    client.open()
    return client


# ==== 7. The command line =====================================
# The exit status is 0; 1 if the server or the tool reports an error; 2 for any other error.

_USAGE = """mcp_client.py list|call|read|prompt TARGET [NAME [KEY=VALUE ... | JSON]] [options]
TARGET is a URL, or a FILE.py to serve. For any other server, omit it and put the server's command
at the end: mcp_client.py list -- npx some-server. A tool's VALUE is JSON or, if it does not parse,
text. --json prints the result as JSON, --trace all messages (to stderr), --record FILE saves them
for 10_picture.py. Also: --header "NAME: VALUE".
"""


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    import argparse
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="mcp_client.py", usage=_USAGE)
    parser.add_argument("verb", choices=["list", "call", "read", "prompt"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--record", default=os.devnull)
    parser.add_argument("--revision", choices=versions(), default="")
    parser.add_argument("--timeout", type=float, default=CALL_SECONDS)
    parser.add_argument("--header", action="append", default=[])
    given = parser.parse_intermixed_args(arguments[:end])
    words, target = given.words, arguments[end + 1:]  # type: list[str], Any
    if not target and words:
        target = words.pop(0)
        if os.path.isfile(target):
            target = [sys.executable, mcp_ref.__file__, "serve", target]
    if not target or (given.verb == "list") == bool(words):
        parser.error(f"{given.verb}: expected TARGET and NAME (for list, only TARGET)")
    try:
        with open(given.record, "ab", 0) as file, connect(
                target, revision=given.revision, timeout=given.timeout, env=os.environ,
                headers=_pairs(given.header, ":"),
                on_log=_note, trace=given.trace and _note, record=file) as client:
            found = _run_verb(client, given.verb, words)
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore
        print(json.dumps(found, indent=2) if given.json else "\n".join(_printed(found)), flush=True)
    except KeyboardInterrupt:
        return 130  # the shell convention for SIGINT
    except BrokenPipeError:  # our reader has exited; now the flush at exit must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as problem:  # noqa: BLE001  no traceback
        _note(f"{type(problem).__name__}: {problem}")
        return 1 if isinstance(problem, RpcError) else 2
    return 1 if found.get("isError") else 0


def _note(*words: Any) -> None:
    print(*[json.dumps(w) if isinstance(w, dict) else w for w in words], file=sys.stderr)


def _pairs(words: list[str], mark: str) -> Message:
    """Return the names and values in words such as NAME=VALUE."""
    for word in words:
        if mark not in word:
            raise ValueError(f"expected NAME{mark}VALUE; found {word!r}")
    return dict(word.split(mark, 1) for word in words)


def _run_verb(client: Client, verb: str, words: list[str]) -> Any:
    """Run list, call, read or prompt; return the server's result."""
    if verb == "list":
        return {"tools": client.list_tools(), "prompts": client.list_prompts(),
                "resources": client.list_resources(),
                "resourceTemplates": client.list_resource_templates()}
    if verb == "read":
        return {"contents": client.read_resource(words[0])}
    if words[1:] and words[1].startswith("{"):
        values = json.loads(words[1])
    else:
        values = _pairs(words[1:], "=")
        for name, text in values.items() if verb == "call" else ():
            with suppress(ValueError):
                values[name] = json.loads(text)
    if verb == "prompt":
        return client.get_prompt(words[0], values)
    return client.call_tool(words[0], values, on_progress=_note)


def _printed(found: Message) -> Iterator[str]:
    """Yield a result as lines: names and text as they are, the rest as JSON."""
    for one in (one for name, items in found.items() if isinstance(items, list)
                for one in items if name != "structuredContent"):
        block = _object(one.get("content")) or one
        if "name" in one:
            yield f"{one.get('uri') or one.get('uriTemplate', '')} {one['name']}".strip()
            yield f"    {one.get('description', '')}"
        else:
            yield str(block.get("text") or json.dumps(one))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
