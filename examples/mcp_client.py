#!/usr/bin/env python3
# mcp_client.py 0.2.0: an MCP client in one file, beside mcp_ref.py. SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""A client for every Model Context Protocol server, and a command line for trying servers out.

You need it to call MCP servers from a program: in a host, a script, or the tests of a server. It
starts a server from a command, or reaches one at a URL, and speaks every published revision. Copy
it together with mcp_ref.py, on which it is built; a server alone does not need it.

    from mcp_client import connect
    with connect(["python3", "server.py"]) as client:  # or a URL, or a Server object
        print([tool["name"] for tool in client.list_tools()])
        print(client.call_tool("add", {"a": 2, "b": 3})["content"][0]["text"])

    $ python3 mcp_client.py call server.py add a=2 b=3

Since 2026-07-28 (*modern*) each request carries version and capabilities in its `_meta`; up to
2025-11-25 (*legacy*) `initialize` opens a session. connect() finds out, once. The way of a call:
call_tool -> request (rounds of questions) -> _exchange (one message, one response) ->
Transport.send; and back: Client.receive -> Request.settle. A method of Client blocks its caller.
Other threads: mcp-read, -write, -stderr and -watch for a stdio server; mcp-post for each POST,
mcp-stream for the stream of a legacy session, mcp-answer for each question of a legacy server,
mcp-listen for a subscription's callback, mcp-call for each message to a Server in this process.

Known limits: `on_log` and `on_notification` run on the thread that reads, so they must not call the
client; results are not cached, nor checked against an outputSchema; a subscription that breaks off
is not renewed; a response on stdio that is not JSON leaves its call to the timeout; each HTTP
request has its own connection; proxies are not used.
"""
from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urljoin, urlsplit

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (0, 1)]   # where mcp_ref.py is
from mcp_ref import (  # noqa: I001
    MAX_MESSAGE_BYTES, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL, META_SERVER,
    META_SUBSCRIPTION, META_VERSION, METHODS, NOTIFICATIONS, AskError, HttpError, Peer, RpcError,
    Schema, Server, decode, encode, is_id, kind_of, mirror, rules, versions)

__version__ = "0.2.0"
__all__ = ["Client", "Disconnected", "HttpTransport", "Malformed", "MemoryTransport", "Request",
           "RequestCancelled", "ServerLacks", "StdioTransport", "Subscription", "Transport",
           "connect", "fetch"]

CALL_SECONDS = 60               # for a request to be answered, unless the call says otherwise
LONGEST_SECONDS = 3600          # ... however much progress the server reports
PROBE_SECONDS = 3               # for the very first message: after that a server counts as legacy
MAX_ROUNDS = 10                 # of questions, for one request
MAX_PAGES = 1000                # of one list
CLOSE_STEP_SECONDS = 2          # for a server to exit when its input ends, and when terminated
MAX_LAST_LINES = 20             # of a server's stderr, to be quoted when it dies
MAX_REDIRECTS = 3               # in a row; `authorize` is asked as many times
RETRY_SECONDS = 1               # before a stream is opened again, unless the server says otherwise

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
HEADER_MISMATCH, MISSING_CAPABILITY = -32020, -32021
Message = dict[str, Any]


class Disconnected(ConnectionError):
    """There is no server, it does not speak MCP, or it has gone away."""


class Malformed(Exception):
    """The server broke the protocol, so its answer is of no use."""


class ServerLacks(Exception):
    """The server did not declare what this method needs."""


class RequestCancelled(Exception):
    """Someone called cancel() on this request."""


class _SessionLost(Disconnected):
    """[legacy] The server has forgotten our session: initialize again."""


# ==== 1. A request ========================================================================
# Whatever comes for it goes into its inbox: progress, the response, or an exception. Only the
# caller's thread waits for that, in one place, so every wait ends in time.

class Request:
    """One request of ours, from being sent to its response. cancel() is for any thread. `tag` is
    what the caller gave to request(), for the functions that answer questions."""
    def __init__(self, client: Client, method: str, timeout: float | None = None, tag: Any = None,
                 on_progress: Any = None, extend: bool = False,
                 longest: float = LONGEST_SECONDS) -> None:
        self.id = next(client.ids)
        self.method, self.tag, self.on_progress, self.extend = method, tag, on_progress, extend
        self.timeout = client.timeout if timeout is None else timeout
        self.cancelled = self.settled = False  # settled: the response or an exception is there
        self.over = threading.Event()  # nobody waits any more
        self.last_id, self.retry = "", float(RETRY_SECONDS)  # of its event stream
        self.last = time.monotonic() + longest
        self.deadline = min(time.monotonic() + self.timeout, self.last)
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.wire: Any = None  # over HTTP: its connection

    def settle(self, outcome: Any) -> None:
        """Take the response, or the exception that came instead."""
        self.settled = True
        self.inbox.put(outcome)

    def cancel(self) -> None:
        """Give up: the caller gets RequestCancelled, and the server is told. A function that is
        answering a question on the way is not interrupted."""
        self.cancelled = True
        self.inbox.put(None)

    def hang_up(self) -> None:
        """Break off what is under way: nobody waits for it."""
        if self.wire:
            self.wire.hang_up()

    def next(self) -> Any:
        """Return the next message; raise what came instead, or TimeoutError at the deadline."""
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
        """Return the response, reporting progress meanwhile."""
        while True:
            item = self.next()
            if "method" not in item:
                return item
            if self.extend:  # basic/patterns/cancellation §Timeouts
                self.deadline = min(time.monotonic() + self.timeout, self.last)
            if self.on_progress and item["method"] == "notifications/progress":
                self.on_progress(*map(item["params"].get, ("progress", "total", "message")))


# ==== 2. The client =======================================================================
# What a server sends is foreign and may be wrong in any way: then one call fails, with an error
# that says so. An RpcError is what the server answered; other exceptions are ours, without a code.

class Client(AbstractContextManager["Client"]):
    """What connect() returns: one server, to be used by any thread; a context manager.

    `version` is the revision spoken, `modern` its era; `server_info`, `capabilities` and
    `instructions` are what the server says about itself. Methods block, and raise RpcError (the
    server's error), TimeoutError, RequestCancelled, Disconnected, Malformed, ServerLacks, HttpError
    and AskError (one of your functions refused to answer). For extensions: `result_types[type] =
    function(method, result, tag)` makes a whole result of one of that resultType;
    `mirrored[method]` names the param that HTTP repeats in Mcp-Name."""
    def __init__(self, transport: Transport, *, revision: str = "", timeout: float = CALL_SECONDS,
                 probe: float = PROBE_SECONDS, elicit: Any = None, visit: Any = None,
                 sample: Any = None, roots: Any = None, on_log: Any = None,
                 on_notification: Any = None, info: Any = None, declare: Any = None,
                 log_level: str = "", trace: Any = None) -> None:
        self.transport, self.timeout, self.closed = transport, timeout, False
        self.mirrored = {name: row.mirrored for name, row in METHODS.items()}
        self._pinned, self._probe, self._declare = revision, probe, declare or {}
        self._info = info or {"name": "mcp_ref", "version": __version__}
        self._modes = {mode: ask for mode, ask in (("form", elicit), ("url", visit)) if ask}
        self._sample, self._roots, self._on_log = sample, roots, on_log
        self._on_notification = on_notification
        self._trace = trace or (lambda way, message: None)
        self.log_level = log_level or "info" * bool(on_log)
        self._opening, self.ids = threading.RLock(), iter(range(1, sys.maxsize))
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
        """End subscriptions, waiting calls, the connection and, on stdio, the server."""
        for subscription in list(self.subscriptions):
            subscription.close()
        self.closed = True
        self.lost(Disconnected("the client was closed"))
        self.transport.stop()

    def open(self) -> None:
        """Connect, unless that is done. A server that has died is started again."""
        with self._opening:
            if self.closed:
                raise Disconnected("the client is closed")
            if not self.transport.up:  # else this very thread may be connecting
                try:
                    self.transport.start()
                    self._find_era()
                except BaseException:
                    self.transport.stop()
                    raise

    def _find_era(self) -> None:
        """Try the modern way, then the legacy one: the transports' §Backward Compatibility."""
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
                raise Disconnected(f"the server does not speak {version}, but {named}")
            version = versions("legacy")[0]
            if not self.transport.up:
                self.transport.say("the server exited on server/discover; trying initialize")
                self.transport.start()
        try:
            self._initialize(version)
        except RpcError:  # perhaps it was slow to start, but is modern
            with suppress(Malformed):
                if not self._pinned and self._discover(versions()[0]) is None:
                    return
            raise

    def _discover(self, version: str, again: bool = True) -> list[Any] | None:
        """Ask a modern server what it is. Returns None if that is known now, or the versions that
        it wants; Malformed if it is legacy. `again`: if it wants one of ours, try that."""
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
            raise Disconnected(f"the server does not speak {self.version}, but {agreed}")
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
        """Note the revision to speak, and what to offer in it."""
        edition = rules(version)
        self.version, self.modern = version, edition.modern
        self._offers: Message = {**self._declare}
        if self._modes and "elicitation/create" in edition.methods:
            self._offers["elicitation"] = {mode: {} for mode in self._modes
                                           if "URL elicitation" in edition.features}
        if self._sample:
            self._offers.setdefault("sampling", {})
        if self._roots is not None:
            self._offers["roots"] = {}

    def request(self, method: str, params: Message | None = None, *, started: Any = None,
                **options: Any) -> Any:
        """Send a request, answer what the server asks on the way, return the result.

        `started` gets the Request, which can be cancelled, each time that one is sent. `timeout`:
        seconds for the response to each message; `on_progress`: called with progress, total and
        message, on this thread; `extend`: progress sets the clock back, up to `longest` seconds."""
        more: Message = {}
        for attempt in range(MAX_ROUNDS + 1):
            self.open()
            request = Request(self, method, **options)
            if started:
                started(request)
            try:
                if method == "tools/call" and self.modern and self.transport.mirrors \
                        and (params or {}).get("name") not in self.tools:
                    self.list_tools()  # headers repeat arguments: the schema says which
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
        """Send a notification, unless the revision has none of that name."""
        self.open()
        if method not in NOTIFICATIONS or method in rules(self.version).notifications:
            self._notify(method, params).wait()

    def _notify(self, method: str, params: Message | None = None) -> Request:
        """Send a notification; return a Request that is settled once it is out."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        return self._transmit(message, Request(self, method))

    def _exchange(self, request: Request, params: Message) -> Any:
        """Send one request, wait for its response, return the result."""
        try:
            return _result(self._begin(request, params).wait())
        finally:
            self._finish(request)

    def _begin(self, request: Request, params: Message) -> Request:
        """Send a request; what comes for it goes into its inbox."""
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
        try:
            self.transport.send(message, request)
        except Exception as problem:  # noqa: BLE001  raised to the waiter
            request.settle(problem)
        return request

    def _finish(self, request: Request) -> None:
        """Stop waiting; tell the server if it may still be busy: basic/patterns/cancellation."""
        # Over HTTP a modern server sees us hang up. That settles the request, so look before.
        waiting = not (request.settled or self.modern and self.transport.mirrors)
        request.over.set()
        self.running.pop(request.id, None)
        request.hang_up()
        if waiting and request.method not in ("initialize", "server/discover"):
            self._notify("notifications/cancelled", {"requestId": request.id})

    def receive(self, data: bytes, request: Request | None = None) -> None:
        """Take what the server sent; `request`: the one that it came for, if that is known.
        Malformed if it is not JSON. Nothing here may block."""
        try:
            message = decode(data)
        except RpcError as problem:
            raise Malformed(f"the server sent no message ({problem}): {data!r:.200}") from None
        # An array is a batch: [2025-03-26] basic/index §Batching
        for one in message if isinstance(message, list) else [message]:
            self._trace("<", one)
            kind = ""
            with suppress(RpcError):  # what is not a message is passed over
                kind = kind_of(one)
            if kind == "response":
                # An error without an id: it could not read ours. Over HTTP it is clear whose it is.
                found = self.running.get(one["id"]) if is_id(one.get("id")) \
                    else request if "error" in one else None
                if found:
                    found.settle(one)
            elif kind == "notification":
                self._hear(one, _object(one.get("params")))
            elif kind and not self.modern:  # .../stdio §Receiving Messages: else it must not
                _thread("mcp-answer", self._take_question, one, request)

    def lost(self, problem: BaseException) -> None:
        """Fail all calls that wait: the server is gone."""
        for request in list(self.running.values()):
            request.settle(problem)

    def _hear(self, message: Message, params: Message) -> None:
        """Take a notification. It goes to the request that it names, by token or id."""
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
        """Answer all questions of a modern result; return the params to add to the retry:
        basic/patterns/mrtr §Client Requirements (Basic Workflow)."""
        more = {"requestState": result["requestState"]} if "requestState" in result else {}
        if "inputRequests" in result:
            more["inputResponses"] = {key: self.answer(question, tag) for key, question in _member(
                result, "inputRequests", dict).items()}
        if result["resultType"] != "input_required" or not more:
            raise Malformed(f"{method} must not have this result: {result!r:.200}")
        return more

    def answer(self, question: Any, tag: Any = None) -> Message:
        """Answer a modern server's question, {"method", "params"}; AskError."""
        try:
            return self._answer(_object(question), [tag])
        except RpcError as problem:  # there is no way to tell a modern server
            raise (AskError if problem.code == -1 else Malformed)(
                f"the server's question got no answer: {problem}") from None

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
        if isinstance(answer, str):  # a text stands for a whole answer
            answer = {"content": {"type": "text", "text": answer}}
        return {"role": "assistant", "model": "unknown", **answer}

    def _answer_elicitation(self, params: Message, tags: list[Any]) -> Message:
        """client/elicitation: a form for the user to fill in, or a page to visit."""
        mode, form = str(params.get("mode", "form")), _object(params.get("requestedSchema"))
        fields = {} if mode == "url" else form.get("properties")
        try:
            ask = self._modes[mode]
            schema = Schema({"type": "object", "properties": fields,
                             "required": form.get("required", [])})
            if mode == "url" and not re.match("https?://", str(params.get("url"))):
                raise ValueError("not a web page")
        except (KeyError, ValueError) as problem:
            raise RpcError(INVALID_PARAMS, f"{params} cannot be asked: {problem}") from None
        answer = _called(ask, params, tags)
        if answer in ("cancel", "decline", None, False):
            return {"action": answer or "decline"}
        if mode == "url":
            return {"action": "accept"}
        content = {name: part["default"] for name, part in _object(fields).items()
                   if "default" in _object(part)}
        content.update(answer)
        if schema.flaw(content):
            raise ValueError(f"the answer does not fit the form: {schema.flaw(content)}")
        return {"action": "accept", "content": content}

    def _take_question(self, message: Message, request: Request | None) -> None:
        """[legacy] Answer a request of the server's: the life of mcp-answer."""
        method = message["method"]
        tags = [one.tag for one in ([request] if request else list(self.running.values()))]
        try:
            answer: Message = {"result": {} if method == "ping" else self._answer(message, tags)}
            encode(answer)
        except Exception as problem:  # noqa: BLE001  whatever a callback raises
            self.transport.say(f"{method} failed: {type(problem).__name__}: {problem}")
            code = getattr(problem, "code", INTERNAL_ERROR)
            answer = {"error": {"code": code, "message": str(problem)}}
        self._transmit({"jsonrpc": "2.0", "id": message["id"], **answer}, Request(self, method))

    def _ask(self, method: str, params: Any, member: str, *needed: str, **options: Any) -> Message:
        """Send a request; `member` of its result must be a list of objects with these strings."""
        self.open()
        if METHODS[method].capability not in self.capabilities:
            raise ServerLacks(f"the server has no {METHODS[method].capability}")
        result: Message = self.request(method, params, **options)
        for item in _member(result, member, list):
            for name in needed:
                _member(item, name, str)
        return result

    def _list(self, method: str, member: str, *needed: str) -> list[Message]:
        """Fetch all pages of a list: server/utilities/pagination."""
        found, params = [], {}  # type: list[Message], Message
        self.open()
        if METHODS[method].capability not in self.capabilities:
            return found
        for _ in range(MAX_PAGES):
            result = self._ask(method, params, member, "name", *needed)
            found += result[member]
            if result.get("nextCursor") is None:  # "" is a cursor, too
                return found
            params = {"cursor": _member(result, "nextCursor", str)}
        raise Malformed(f"{method} has more than {MAX_PAGES} pages")

    def list_tools(self) -> list[Message]:
        """Return all tools: server/tools §Tool. Over HTTP those with bad headers are left out."""
        tools = self._list("tools/list", "tools")
        self.tools = {tool["name"]: tool for tool in tools}
        for tool in list(tools) if self.transport.mirrors and self.modern else ():
            try:  # .../streamable-http §Schema Extension
                _mirrors(tool.get("inputSchema"), {})
            except Malformed as problem:
                self.transport.say(f"the tool {tool['name']} is left out: {problem}")
                tools.remove(tool)
        return tools

    def call_tool(self, name: str, arguments: Message | None = None, **options: Any) -> Message:
        """Call a tool. Returns {"content": [...], maybe "structuredContent", "isError"}: if it
        fails, for the model to read. Options: see request(). (server/tools §Calling Tools)"""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("tools/call", params, "content", "type", **options)

    def list_resources(self) -> list[Message]:
        """Return all resources: server/resources §Resource."""
        return self._list("resources/list", "resources", "uri")

    def list_resource_templates(self) -> list[Message]:
        """Return all resource templates: server/resources §Resource Templates."""
        return self._list("resources/templates/list", "resourceTemplates", "uriTemplate")

    def read_resource(self, uri: str, **options: Any) -> list[Message]:
        """Read a resource. Returns contents: {"uri", "text" or "blob" (base64), ...}."""
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
        """Return completions of what was typed so far, for an argument of a prompt or template.
        `known`: arguments that have a value already. (server/utilities/completion)"""
        ref = {"type": "ref/prompt", "name": reference}  # it may be called git:commit
        if "://" in reference or "{" in reference:
            ref = {"type": "ref/resource", "uri": reference}
        context = {"context": {"arguments": known}} if known else {}
        result = self.request("completion/complete", {
            "ref": ref, "argument": {"name": argument, "value": value}, **context})
        values: list[str] = _member(_object(result.get("completion")), "values", list)
        if any(type(one) is not str for one in values):
            raise Malformed(f"the server sent completions that are not strings: {values!r:.200}")
        return values

    def ping(self) -> None:
        """Return if the server answers; modern servers have no ping, so discovery stands in."""
        self.request("server/discover" if self.modern else "ping")

    def set_level(self, level: str) -> None:
        """Ask for log messages of this level and above: mcp_ref.LOG_LEVELS. [deprecated]"""
        self.open()
        if not self.modern:
            self.request("logging/setLevel", {"level": level})
        self.log_level = level  # modern: each request says it

    def listen(self, wanted: Iterable[str], callback: Any = None,
               timeout: float | None = None) -> Subscription:
        """Have changes announced: "tools", "prompts", "resources", URIs. See Subscription."""
        self.open()
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        subscription = Subscription(self, names, timeout)
        if callback:
            def life() -> None:
                with suppress(Disconnected):
                    for change in subscription:
                        callback(change)
            _thread("mcp-listen", life)
        return subscription


# ==== 3. Subscriptions ====================================================================
# Modern: one request, subscriptions/listen, stays open; what it brings goes into its inbox. Legacy:
# a session hears of every change, and of the URIs that resources/subscribe names; the request is
# never sent, and the server not told of the end. ([2025-11-25] server/resources §Subscriptions)

class Subscription(Request, AbstractContextManager["Subscription"]):
    """Changes that a server announces: iterate over it, or give listen() a callback; close() it.

    Each change is "tools", "prompts", "resources" or a URI. `granted` says what the server agreed
    to. Iteration ends with the subscription, by Disconnected if the connection broke."""
    def __init__(self, client: Client, wanted: list[str], timeout: Any) -> None:
        super().__init__(client, "subscriptions/listen", timeout)
        self.client, self.granted = client, []  # type: Client, list[str]
        client.subscriptions.append(self)
        try:
            (self._open_modern if client.modern else self._open_legacy)(wanted)
            if not self.granted:
                raise ServerLacks(f"the server announces no changes of {wanted}")
        except BaseException:
            self.close()
            raise
        self.deadline = float("inf")

    def _open_modern(self, wanted: list[str]) -> None:
        asked: Message = {what + "ListChanged": True for what in wanted if ":" not in what}
        if len(asked) < len(wanted):
            asked["resourceSubscriptions"] = [what for what in wanted if ":" in what]
        first = self.client._begin(self, {"notifications": asked}).next()
        error = _object(first.get("error"))  # .../subscriptions §Acknowledgment
        if "params" not in first and error.get("code") != METHOD_NOT_FOUND:
            _result(first)
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
        if not self.inbox.empty():  # what the server answered to GET: it has no stream
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
                self.settle(problem)  # for whoever comes next
                raise
            name = message.get("method", "/")
            what = name.split("/")[-2:][0]
            if name == "notifications/resources/updated":
                what = str(message["params"].get("uri"))  # perhaps a part of what we named
            if name in ("/", "notifications/cancelled"):
                self.close()
            elif any((what + "/").startswith(one.rstrip("/") + "/") for one in self.granted):
                yield what

    def close(self) -> None:
        """End it; nothing happens if it has ended."""
        if self in self.client.subscriptions:
            self.client.subscriptions.remove(self)
            self.cancel()
            self.settled = self.settled or not self.client.modern  # nothing to cancel
            self.client._finish(self)


# ==== 4. What a server may send, and other small things ===================================

def _result(response: Message) -> Any:
    """Return the result of a response; RpcError for an error, Malformed for neither."""
    error = response.get("error")
    if error is None:
        return _member(response, "result", dict)
    raise RpcError(_member(error, "code", int), str(error.get("message", "")), error.get("data"))


def _member(value: Any, name: str, kind: type) -> Any:
    """Return a member of an object; Malformed if it is missing or of another type."""
    if not isinstance(_object(value).get(name), kind):
        raise Malformed(f"the server sent no proper {name}: {value!r:.200}")
    return value[name]


def _object(value: Any) -> Message:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _thread(name: str, life: Callable[..., Any], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=life, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def _called(function: Any, *arguments: Any) -> Any:
    """Call a function of the application's, which may want params alone, or be async."""
    import asyncio
    import inspect
    needed = [one for one in inspect.signature(function).parameters.values()
              if one.kind < 2 and one.default is one.empty]  # positional, and without a default
    found = function(*arguments[:max(1, len(needed))])
    return asyncio.run(found) if inspect.iscoroutine(found) else found


def _marked(schema: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each x-mcp-header that properties lead to, the type there, and the argument's value."""
    for name, part in _object(_object(schema).get("properties")).items():
        inner = _object(value).get(name)
        if "x-mcp-header" in _object(part):
            yield part["x-mcp-header"], part.get("type"), inner
        yield from _marked(part, inner)


def _mirrors(schema: Any, arguments: Any) -> Message:
    """Return the headers that repeat arguments; Malformed if the schema asks for an improper one.
    (basic/transports/streamable-http §Custom Headers from Tool Parameters)"""
    found = list(_marked(schema, arguments))
    names = {str(name).lower() for name, kind, _ in found if kind in (
        "string", "integer", "boolean") and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", str(name))}
    if len(names) != json.dumps(schema).count('"x-mcp-header":'):
        raise Malformed("an x-mcp-header is not unique, not a name, or not of a plain argument")
    return {"Mcp-Param-" + name: mirror(value) for name, _, value in found if value is not None}


def _events(lines: Iterable[str], request: Request) -> Iterator[tuple[str, str]]:
    """Yield (kind, data) of each event in a stream (HTML Standard, section 9.2); note its id and
    `retry` in the request."""
    event = {}  # type: dict[str, list[str]]
    for line in lines:
        name, _, value = line.rstrip("\n").partition(":")
        event.setdefault(name, []).append(value.removeprefix(" "))
        if line == "\n":
            request.last_id = event.get("id", [request.last_id])[-1]
            with suppress(ValueError, KeyError):
                request.retry = int(event["retry"][-1]) / 1000
            data = "\n".join(event.get("data", ()))
            if data:  # an event may carry just an id
                yield event.get("event", ["message"])[-1], data
            event = {}


# ==== 5. Transports: in this process, and stdio ===========================================
# send() returns at once; a response comes back through Client.receive(), and what goes wrong
# through Request.settle(). A message that gets no response settles its request once it is out.

class Transport:
    """What the transports have in common; the client sets `client`."""
    client: Client
    up = False              # it was started, and has not been lost since
    mirrors = False         # headers repeat parts of the body, and hanging up cancels
    start: Callable[[], None]                   # connect, or raise Disconnected
    stop: Callable[[], None]                    # disconnect; start() may follow
    send: Callable[[Message, Request], None]    # without waiting

    def listen(self) -> None:
        """[legacy] Make sure that the server can send what belongs to no request."""

    def say(self, line: str) -> None:
        """Tell the user something, on stderr."""
        print(line, file=sys.stderr)

    def _run(self, name: str, request: Request, work: Callable[[], Any]) -> None:
        """Do something for a request on a thread of its own; what goes wrong settles it."""
        def life() -> None:
            try:
                work()
                if request.id not in self.client.running:
                    request.settle({})
            except BaseException as problem:  # noqa: BLE001  raised to the waiter
                request.settle(problem)
            request.hang_up()
        _thread(name, life)


class MemoryTransport(Transport):
    """A Server in this very process. Each request has a thread, so that its call may time out."""
    def __init__(self, server: Server) -> None:
        self.server = server

    def start(self) -> None:
        self.up, self.peer = True, Peer(self._deliver)

    def stop(self) -> None:
        if self.up:
            self.up = False
            self.peer.close()

    def _deliver(self, message: Any) -> None:
        self.client.receive(encode(message))  # a copy, as the wire would make it

    def send(self, message: Message, request: Request) -> None:
        self._run("mcp-call", request, lambda: self.server.handle(
            decode(encode(message)), self._deliver, peer=self.peer))


# What a server inherits of the environment, unless connect(env=...) says otherwise: no secrets.
_INHERITED = """APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LC_CTYPE LOCALAPPDATA LOGNAME
    PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE SYSTEMROOT TEMP TERM TMP TMPDIR TZ USER USERNAME
    USERPROFILE WINDIR"""


class StdioTransport(Transport):
    """A server that we start, on its standard input and output: basic/transports/stdio. `stderr`:
    called with each line that it writes there; `env`: variables besides those of _INHERITED."""
    def __init__(self, command: Iterable[str], *, env: Any = None, cwd: str | None = None,
                 stderr: Any = None) -> None:
        self.command, self.cwd, self.process = list(command), cwd, None  # type: Any, Any, Any
        self.env = {**{name: os.environ[name] for name in _INHERITED.split() if name in os.environ},
                    **(env or {})}
        self.say = stderr or super().say  # type: ignore[method-assign]

    def start(self) -> None:
        import shutil
        from subprocess import PIPE, Popen
        self.stop()
        try:  # which() finds npx.cmd, on Windows
            program = shutil.which(self.command[0], path=self.env.get("PATH")) or self.command[0]
            process = self.process = Popen([program, *self.command[1:]], stdin=PIPE, stdout=PIPE,
                                           stderr=PIPE, env=self.env, cwd=self.cwd,
                                           start_new_session=True)  # a process group
        except (OSError, ValueError, IndexError) as problem:
            raise Disconnected(f"cannot start {self.command}: {problem}") from None
        self.outgoing: SimpleQueue[bytes | None] = SimpleQueue()  # None: close its input
        self.exited, self.last_lines, self.up = threading.Event(), [], True  # type: Any, Any, Any
        self.threads = [_thread("mcp-stderr", self._forward, process)]  # _lose() needs it
        self.threads += [_thread(name, life, process) for name, life in (
            ("mcp-read", self._read), ("mcp-write", self._write), ("mcp-watch", self._watch))]

    def send(self, message: Message, request: Request) -> None:
        self.outgoing.put(encode(message))
        if not self.up:  # if it dies after this, lost() finds the request
            raise Disconnected("the server is gone")
        if request.id not in self.client.running:
            request.settle({})

    def _write(self, process: Any) -> None:
        """Write lines: the life of mcp-write, the only thread that a slow reader can block."""
        with suppress(OSError), process.stdin:
            for line in iter(self.outgoing.get, None):
                process.stdin.write(line)
                process.stdin.flush()
        self._lose(process)

    def _read(self, process: Any) -> None:
        """Read lines until there are no more: the life of mcp-read."""
        with process.stdout:
            for line in process.stdout:
                try:
                    if line.strip():
                        self.client.receive(line)
                except Exception as problem:  # noqa: BLE001  no message, or a callback failed
                    self.say(f"{type(problem).__name__}: {problem}")
            self._lose(process)

    def _forward(self, process: Any) -> None:
        """Pass on what the server writes to stderr: the life of mcp-stderr."""
        with process.stderr:
            for line in process.stderr:
                text = line.decode("utf-8", "replace").rstrip()
                self.last_lines = [*self.last_lines[1 - MAX_LAST_LINES:], text]
                self.say(text)

    def _watch(self, process: Any) -> None:
        """Wait for the server's death: the life of mcp-watch."""
        process.wait()
        _kill(process, "SIGKILL")  # what it left behind
        self.exited.set()
        self._lose(process)

    def _lose(self, process: Any) -> None:
        """Note that the server is gone, and fail all calls that wait, with its last words."""
        if self.exited.wait(0.2):
            self.threads[0].join(0.2)
        if self.up and process is self.process:
            self.up = False
            said = [f"the server is gone (exit status {process.poll()})", *self.last_lines]
            self.client.lost(Disconnected("\n".join(said)))

    def stop(self) -> None:
        """End the server: basic/transports/stdio §Shutdown."""
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
    with suppress(OSError):  # nobody is left
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


# ==== 6. HTTP =============================================================================
# Each message is a POST on a thread of its own, which may block; the caller waits in
# Request.next() and hangs up in time. [legacy] A session has a stream by GET; in HTTP+SSE
# everything comes by it.

class _Wire:
    """One HTTP connection; it carries one exchange at a time."""
    def __init__(self, url: str, tls: Any, timeout: float) -> None:
        (scheme, self.host), self.session, self.read = _origin(url), "", b""
        self.connection: Any = HTTPConnection(self.host, timeout=timeout) if scheme == "http" \
            else HTTPSConnection(self.host, timeout=timeout, context=tls)
        self.response: Any = self.connection  # until there is one: something to close
        with self._failing():
            self.connection.connect()
            self.socket = self.connection.sock

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn whatever a broken connection raises into Disconnected."""
        try:
            yield
        except (OSError, HTTPException, ValueError, AttributeError) as problem:
            raise Disconnected(f"{self.host}: {problem or type(problem).__name__}") from None

    def exchange(self, verb: str, url: str, headers: Message, body: bytes | None) -> None:
        """Send a request, and read the head of the answer."""
        target = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl()
        with self._failing():
            self.connection.request(verb, "/" + target.lstrip("/"), body, {
                "User-Agent": "mcp_ref", **headers})
            self.response = self.connection.getresponse()
        found = self.response.headers
        self.status, self.kind = self.response.status, found.get_content_type()
        self.headers = {name.lower(): ", ".join(found.get_all(name)) for name in found}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the body as they come. CR, LF or both end one; a BOM is dropped."""
        with self._failing():
            yield from io.TextIOWrapper(self.response, "utf-8-sig", "replace")

    def body(self) -> bytes:
        """Return the body; again, if asked again."""
        with self._failing():
            self.read += self.response.read(MAX_MESSAGE_BYTES + 1)  # decode() refuses so much
        return self.read

    def hang_up(self) -> None:
        """Break the connection off, from any thread: whoever reads meets the end."""
        with suppress(OSError):
            self.socket.shutdown(2)
        self.connection.close()
        self.response.close()


def fetch(verb: str, url: str, headers: dict[str, str], body: bytes | None = None,
          timeout: float = 30) -> tuple[int, dict[str, str], bytes]:
    """Do one HTTP exchange, following no redirect; return status, headers (their names in lower
    case) and body. `timeout`: seconds for each step. Raises Disconnected, also if time is up."""
    wire = _Wire(url, None, timeout)
    try:
        wire.exchange(verb, url, headers, body)
        return wire.status, wire.headers, wire.body()
    finally:
        wire.hang_up()


def _origin(url: str) -> tuple[str, str]:
    """Return scheme and host; ValueError for what is not a URL of http or https."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError(f"not an http or https URL without a password, nor a list: {url:.200}")
    return parts.scheme, parts.netloc


class HttpTransport(Transport):
    """A server at a URL: Streamable HTTP, and HTTP+SSE [legacy] if it knows nothing newer.

    `headers`: a dict, or a callable that makes one for (verb, url), for each HTTP request.
    `authorize`: called with the HttpError of a 401 or 403; returns such headers for all requests
    from then on, or None to give up. `tls`: an ssl.SSLContext. Redirects stay in the origin."""
    mirrors = True
    stream: Request | None = None  # [legacy] the session's stream, which belongs to no request

    def __init__(self, url: str, *, headers: Any = None, tls: Any = None,
                 authorize: Any = None) -> None:
        self.url, self.origin, self.tls, self.authorize = url, _origin(url), tls, authorize
        self.own, self.granted, self.lock = headers or {}, {}, threading.Lock()  # type: Any,Any,Any

    def start(self) -> None:
        self.up, self.session, self.sse, self.post_to = True, "", False, ""  # sse: tried or spoken

    def stop(self) -> None:
        """Delete the session, and hang up on everything."""
        if self.up and self.session:
            farewell = Request(self.client, "DELETE", CLOSE_STEP_SECONDS)
            self._run("mcp-post", farewell, lambda: self._open("DELETE", {}, farewell))
            with suppress(Exception):  # the session will expire by itself
                farewell.wait()
        self.up = False
        self._end_stream(Disconnected("the client was closed"))

    def send(self, message: Message, request: Request) -> None:
        self._run("mcp-post", request, lambda: self._post(message, request))

    def listen(self, seconds: float = 2 * RETRY_SECONDS) -> None:
        """[legacy] Start the session's stream, and wait until it is known whether there is one.
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
        """Read what belongs to no request, as long as there is a session: life of mcp-stream."""
        try:
            self._follow(None, stream)
        except Exception as problem:
            self._end_stream(problem)
            if self.post_to:
                self.up = False  # the next request starts again
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
                tool = _object(client.tools.get(params.get("name")))
                found.update(_mirrors(tool.get("inputSchema"), params.get("arguments")))
        return found

    def _post(self, message: Message, request: Request) -> None:
        """Post a message, and take what comes of it."""
        body, opens = encode(message).rstrip(b"\n"), request.method == "initialize"
        wire = self._open("POST", self._headers_of(message), request, body)
        direct = wire.status == 200 and not self.post_to
        if direct and opens:  # [2025-11-25] basic/transports §Session Management
            self.session = wire.headers.get("mcp-session-id", "")
        if direct and wire.kind == "text/event-stream":
            self._follow(wire, request)
        elif opens and not self.post_to and wire.status in (400, 404, 405):
            refusal = self._refusal(wire)  # .../streamable-http §HTTP+SSE Transport
            self.sse = True
            self.listen(self.client.timeout)
            if not self.post_to:
                raise refusal
            self._post(message, request)
        else:
            self._take_answer(wire, request)

    def _take_answer(self, wire: _Wire, request: Request) -> None:
        """Take a JSON answer, whatever its status; HttpError if it is not a message."""
        elsewhere = self.post_to or request.id not in self.client.running  # the response, if any
        if wire.status < 400 and elsewhere:
            return
        body = wire.body()
        if wire.status >= 400 and (elsewhere or not self.client.modern or b'"error"' not in body):
            raise self._refusal(wire)
        self.client.receive(body, request)
        if not request.settled:
            raise Malformed(f"the answer to {request.method} holds no response: {body!r:.200}")

    def _refusal(self, wire: _Wire) -> Exception:
        """Make the exception for an answer that is not a message."""
        status, said = wire.status, wire.body().decode("utf-8", "replace")
        # A lost session has to be 404, but servers that were copied many times say 400, in words.
        if wire.session and (status == 404 or status == 400 and "session" in said.lower()):
            lost = _SessionLost("the server has forgotten the session")
            if wire.session == self.session:
                self.session, self.up = "", False  # the next request starts again
                self._end_stream(lost)
            return lost
        return HttpError(status, f"{self.url} answers {status} {wire.response.reason}: {said:.500}",
                         wire.headers, self.url)

    def _follow(self, wire: _Wire | None, request: Request) -> None:
        """Take the messages of a stream; if it breaks off, come back for the rest. That of a POST
        ends with its response, that of a session never. ([2025-11-25] basic/transports
        §Resumability and Redelivery: legacy, and if events have ids)"""
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
            with suppress(Disconnected):  # to break off is to end
                for kind, data in _events(wire.lines(), request):
                    if kind == "endpoint" and self.sse:  # [2024-11-05] §HTTP with SSE
                        place = urljoin(self.url, data.strip())
                        self.post_to = place if _origin(place) == self.origin else ""
                        request.inbox.put({"method": ""})
                    elif kind == "message":
                        owner = None if request is self.stream else request
                        self.client.receive(data.encode(), owner)
                    if request.settled:
                        return
            if self.client.modern or self.sse or not (request.last_id or request is self.stream):
                raise Disconnected(f"the stream ended without a response to {request.method}")
            request.hang_up()
            request.over.wait(max(request.retry, 0.05))
            wire = None

    def _open(self, verb: str, headers: Message, request: Request, body: Any = None) -> _Wire:
        """Send an HTTP request and read the head of the answer; HttpError for a refusal. Answers
        to POST have any status but 401, 403 and redirects; others 2xx."""
        url, opens = body and self.post_to or self.url, request.method == "initialize"
        for left in range(MAX_REDIRECTS, -1, -1):
            granted, wire = self.granted, _Wire(self.url, self.tls, CALL_SECONDS)
            wire.socket.settimeout(None)  # the caller's deadline ends every wait
            request.wire = wire
            if request.over.is_set():
                raise Disconnected("nobody waits any more")
            wire.session, sent = self.session * (not opens), {**headers}
            if wire.session:
                sent["Mcp-Session-Id"] = wire.session
            if not opens:
                sent["MCP-Protocol-Version"] = self.client.version
            for more in (self.own, granted):
                sent.update(more(verb, url) if callable(more) else more)
            wire.exchange(verb, url, sent, body)
            status = wire.status
            if status in (401, 403) and self.authorize and left:
                self._ask_for_grant(self._refusal(wire), granted, request)
            elif 300 <= status < 400 and left:
                url = urljoin(url, wire.headers.get("location", ""))
                if urlsplit(url)[:2] != self.origin:
                    raise HttpError(status, f"{self.url} redirects to another origin: {url:.200}")
            elif status < 300 or body and status >= 400 and status not in (401, 403):
                return wire
            else:
                break
            wire.hang_up()
        raise self._refusal(wire)

    def _ask_for_grant(self, refusal: Exception, granted: Any, request: Request) -> None:
        """Ask `authorize` for headers, one thread at a time; HttpError if it has none."""
        request.deadline = float("inf")  # a user who has to log in needs time
        with self.lock:  # the next to ask can use the answer
            if self.granted is granted:  # else another thread has got some meanwhile
                found = _called(self.authorize, refusal)
                if found is None:
                    raise refusal
                self.granted = found
        request.deadline = time.monotonic() + request.timeout
        request.inbox.put(None)


def connect(target: Any, *, env: Any = None, cwd: str | None = None, stderr: Any = None,
            headers: Any = None, tls: Any = None, authorize: Any = None, **options: Any) -> Client:
    """Connect to a server, and find out which revisions it speaks. Use it as a context manager.

    `target`: a URL; a command, as a list; a Server, to be called in this process; a Transport.
    `env`, `cwd`, `stderr`: see StdioTransport; `headers`, `tls`, `authorize`: see HttpTransport.
    `revision`: speak this one or fail. `timeout`, `probe`: seconds, for a response and for the very
    first one. `elicit(params)` fills in a form: returns a dict of values, None (declined) or
    "cancel". `visit(params)` shows params["url"] in full to the user and opens it if they agree:
    returns True or False. `sample(params)` asks a model: returns text or a whole result, None if
    the user said no. `roots`: folders or URIs, or a function that returns them. These four declare
    the capability, may be async, and get the tags of the calls as a second argument if they take
    one. `on_log(params)`, `on_notification(message)`: called on the thread that reads. `info`: name
    and version of this client. `declare`: further capabilities, such as {"extensions": {...}}.
    `log_level`: of the messages for `on_log`. `trace(way, message)`: called with each message, way
    being ">" (sent) or "<" (received)."""
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


# ==== 7. The command line =================================================================
# The exit status is 0, 1 if the server or the tool said no, 2 if nothing could be asked.

_USAGE = """mcp_client.py list|call|read|prompt TARGET [NAME [KEY=VALUE ... | JSON]] [options]
TARGET is a URL, or a FILE.py to serve. For any other server leave it out, and put the command that
starts it at the end: mcp_client.py list -- npx some-server. A tool's VALUE is JSON, or else a text.
--json prints the answer as it came, --trace all messages (on stderr); --header is "NAME: VALUE".
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
    parser.add_argument("--revision", choices=versions(), default="")
    parser.add_argument("--timeout", type=float, default=CALL_SECONDS)
    parser.add_argument("--header", action="append", default=[])
    given = parser.parse_intermixed_args(arguments[:end])
    words, target = given.words, arguments[end + 1:]  # type: list[str], Any
    if not target and words:
        target = words.pop(0)
        if os.path.isfile(target):
            target = [sys.executable, str(sys.modules["mcp_ref"].__file__), "serve", target]
    if not target or (given.verb == "list") == bool(words):
        parser.error(f"{given.verb}: TARGET or NAME is missing, or too much")
    for text, form in [(word, "{|.*=") for word in words[1:]] + [(h, ".*:") for h in given.header]:
        if not re.match(form, text):
            parser.error(f"{text!r} must be KEY=VALUE, a JSON object, or a header NAME: VALUE")
    try:
        with connect(target, revision=given.revision, timeout=given.timeout, env=os.environ,
                     headers=dict(re.split(": *", header, maxsplit=1) for header in given.header),
                     on_log=_note, trace=_note if given.trace else None) as client:
            found = _run_verb(client, given.verb, words)
        print(json.dumps(found, indent=2) if given.json else "\n".join(_printed(found)), flush=True)
    except KeyboardInterrupt:
        return 130  # as shells count it
    except BrokenPipeError:  # nobody reads our output: let the exit not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as problem:  # noqa: BLE001  none of them is worth a traceback
        _note(f"{type(problem).__name__}: {problem}")
        return 1 if isinstance(problem, RpcError) else 2
    return 1 if found.get("isError") else 0


def _note(*words: Any) -> None:
    print(*[json.dumps(w) if isinstance(w, dict) else w for w in words], file=sys.stderr)


def _run_verb(client: Client, verb: str, words: list[str]) -> Any:
    """Run list, call, read or prompt; return what the server answered."""
    if verb == "list":
        return {"tools": client.list_tools(), "prompts": client.list_prompts(),
                "resources": client.list_resources(),
                "resourceTemplates": client.list_resource_templates()}
    if verb == "read":
        return {"contents": client.read_resource(words[0])}
    values: Any = dict(word.split("=", 1) for word in words[1:] if word[0] != "{")
    for name, text in values.items() if verb == "call" else ():
        with suppress(ValueError):
            values[name] = json.loads(text)
    values = values or json.loads((words[1:] or ["{}"])[0])
    if verb == "prompt":
        return client.get_prompt(words[0], values)
    return client.call_tool(words[0], values, on_progress=_note)


def _printed(found: Message) -> Iterator[str]:
    """Yield the lines of an answer: names and texts as they are, the rest as JSON."""
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
