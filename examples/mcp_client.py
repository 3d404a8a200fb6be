# mcp_client.py 1.1.0.dev: an MCP client in one file, on mcp_ref.py.
# What has changed, and the SHA-256 of each release: .github/CHANGELOG.md.
# SPDX-License-Identifier: MIT Copyright (c) 2026 the mcp_ref authors
"""A client for Model Context Protocol servers.

It starts a server from a command or connects to one at a URL, and speaks every
published revision. It imports mcp_ref.py, so copy both; mcp_cli.py is a command for it.

    from mcp_client import connect
    with connect(["python3", "server.py"]) as client:  # or a URL, or a Server object
        print([tool["name"] for tool in client.list_tools()])
        print(client.call_tool("add", {"a": 2, "b": 3})["content"][0]["text"])

Since 2026-07-28 (*modern*) each request carries version and capabilities in its
`_meta`; up to 2025-11-25 (*legacy*) `initialize` opens a session. connect() detects
which, once. A call goes call_tool -> request (answers questions, retries) -> _exchange
(one message, one response) -> Transport.send; a response, Client.receive ->
Request.settle. Methods of Client block the caller. Threads: mcp-read, -write, -stderr
and -watch for a stdio server; mcp-post for each POST; mcp-stream for a legacy session's
stream, mcp-answer for each question from its server; mcp-listen for a subscription's
callback; mcp-call for each message to a Server object.

Known limits: `on_log` and `on_notification` run on the reading thread, so they must not
call the client; results are not cached or checked against an outputSchema; a
subscription is not renewed when its connection is lost; the timeout of a call to a
legacy server runs on while its question is answered; a tools/call that was
sent on a kept connection which ends at that moment is Disconnected, because the server
may have run it; proxies are not supported.

In an asyncio program, await asyncio.to_thread(client.call_tool, ...); README has the
recipe that also cancels. A callback may be a coroutine function: each call runs in a
loop of its own.
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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import inf
from pathlib import Path
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from threading import Event, Lock, RLock, Semaphore, Thread, Timer
from time import monotonic
from typing import Any, NamedTuple, Optional
from urllib.parse import unquote, urljoin, urlsplit

try:
    import mcp_ref  # noqa: F401
except ImportError:  # in the checkout, it is one folder up
    sys.path.append(str(Path(__file__).resolve().parents[1]))
from mcp_ref import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MAX_MESSAGE_BYTES,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_SUBSCRIPTION,
    META_VERSION,
    METHOD_NOT_FOUND,
    METHODS,
    MISSING_CAPABILITY,
    NOTIFICATIONS,
    UNSUPPORTED_VERSION,
    AskError,
    HttpError,
    Peer,
    RpcError,
    Schema,
    Server,
    decode,
    encode,
    is_id,
    kind_of,
    mirror,
    rules,
    versions,
)

__version__ = "1.1.0.dev"
__all__ = """
    CALL_SECONDS CLOSE_STEP_SECONDS IDLE_SECONDS LOGIN_SECONDS LONGEST_SECONDS
    MAX_CHANGE MAX_IDLE MAX_LAST_LINES MAX_LINE_TEXT MAX_LIST_BYTES MAX_PAGES MAX_QUESTIONS
    MAX_REDIRECTS MAX_ROUNDS MAX_UNREAD PROBE_SECONDS RETRY_SECONDS Client
    Disconnected HttpTransport Malformed MemoryTransport Request RequestCancelled
    ServerLacks StdioTransport Subscription Transport connect fetch url_warnings
""".split()

CALL_SECONDS = 60  # default timeout of a request
LONGEST_SECONDS = 3600  # default limit when progress extends the timeout
# how long a server on stdio may take to start (npx and uvx install it first); a silent
# one counts as legacy
PROBE_SECONDS = 10
MAX_ROUNDS = 10  # rounds of questions in one request
MAX_PAGES = 1000  # pages of one list
MAX_LIST_BYTES = 4 * MAX_MESSAGE_BYTES  # of one list, all pages together
MAX_UNREAD = 1000  # changes that a subscription keeps for its reader
MAX_CHANGE = 2**14  # characters of each, unless no other waits
# in one result; of a legacy server, open at a time: more are ignored
MAX_QUESTIONS = 64
# wait for a server to exit: after closing its stdin, after SIGTERM
CLOSE_STEP_SECONDS = 2.0
MAX_LAST_LINES = 20  # lines of a server's stderr quoted when it exits
MAX_LINE_TEXT = 500  # characters of each
MAX_REDIRECTS = 3  # of one HTTP request; as many calls of `authorize`
LOGIN_SECONDS = 300  # for a person who logs in, beyond the timeout
MAX_IDLE = 4  # HTTP connections kept
IDLE_SECONDS = 4  # ... this long: many servers close them after 5 s
RETRY_SECONDS = 1.0  # wait before a stream is reopened, unless the server sets `retry`

Message = dict[str, Any]
Hook = Optional[Callable[..., Any]]


class Disconnected(ConnectionError):
    """The server cannot be reached, does not speak MCP, or has disconnected.
    `exit_status`: of a process that has ended, if it is known. `session_lost`: [legacy]
    the server no longer knows our session, and the next request opens another."""

    exit_status: Any = None
    session_lost = False


class Malformed(Exception):
    """The server violated the protocol; its answer cannot be used."""


class ServerLacks(Exception):
    """The server did not declare the capability that this method needs."""


class RequestCancelled(Exception):
    """Someone called cancel() on this request."""


# ==== 1. A request ============================================
# Progress, the response and exceptions all arrive in the request's inbox. Only the
# caller's thread waits on it, and only in next(), so every wait ends at the deadline.
# It waits for a lock that is used as a flag: a signal handler may release that, but
# could wait for itself in put() of a Queue; and after one that took long, get() of a
# SimpleQueue may wait for ever (CPython 3.9 to 3.13).


class Request:
    """A request, from sending to response. Any thread may cancel() it.

    `tag`: see connect(). A notification, or an answer to the server's question, is one
    without a `response`: it is settled when it is sent."""

    def __init__(
        self,
        client: Client,
        method: str,
        timeout: Any = None,
        tag: Any = None,
        on_progress: Any = None,
        extend: bool = False,
        longest: float = LONGEST_SECONDS,
        response: bool = True,
    ) -> None:
        self.client, self.id = client, next(client.ids)
        self.method, self.tag, self.response = method, tag, response
        self.on_progress, self.extend = on_progress, extend
        self.timeout = client.timeout if timeout is None else timeout
        self.last = monotonic() + longest
        self.deadline = min(monotonic() + self.timeout, self.last)
        # settled: a response or an exception has arrived
        self.cancelled = self.settled = False
        self.over = Event()  # set when the caller stops waiting
        self.inbox: Any = deque()
        self._came = Lock()  # not taken: look into the inbox
        self.wire: Any = None  # its connection, over HTTP
        # the state of its event stream
        self.last_id, self.retry = "", RETRY_SECONDS

    def put(self, *items: Any) -> None:
        """Deliver messages, and have next() look up; a signal handler may, too."""
        self.inbox.extend(items)
        with suppress(RuntimeError):  # it is not taken
            self._came.release()

    def settle(self, outcome: Any) -> None:
        """Deliver the response, or an exception in its place."""
        self.settled = True
        if not self.response:
            self.client.running.pop(self.id, None)
        self.put(outcome)

    def cancel(self) -> None:
        """Cancel: the caller gets RequestCancelled, and the server is notified."""
        self.cancelled = True
        self.put()

    def hang_up(self) -> None:
        """End the request's exchange over HTTP, if it is still its own."""
        wire = self.wire
        if wire:
            wire.hang_up(self)

    def next(self) -> Any:
        """Return the next message, or raise the exception in its place."""
        while True:
            left = self.deadline - monotonic()
            if self.cancelled:
                raise RequestCancelled(f"{self.method} was cancelled")
            if left <= 0:
                raise TimeoutError(
                    f"no answer to {self.method} within {self.timeout:g} s"
                )
            if self.inbox:
                item = self.inbox.popleft()
                if isinstance(item, BaseException):
                    raise item
                return item
            # The deadline may move meanwhile; and a signal that comes just before this
            # wait does not end it (seen with Python 3.9).
            self._came.acquire(timeout=min(left, 1))

    def wait(self) -> Any:
        """Wait for the response and return it; report progress until then."""
        while True:
            item = self.next()
            if "method" not in item:
                return item
            if self.extend:  # basic/patterns/cancellation §Timeouts
                self.deadline = min(monotonic() + self.timeout, self.last)
            if self.on_progress and item["method"] == "notifications/progress":
                self.on_progress(
                    *map(item["params"].get, ("progress", "total", "message"))
                )


# ==== 2. The client ===========================================
# Nothing that a server sends is trusted: an invalid message fails only the call it
# belongs to. RpcError is the server's own error; all other exceptions are local and
# carry no code.


class Client(AbstractContextManager["Client"]):
    """A connection to one server; a context manager. connect() is another name for it.

    `target`: a URL; a command, as a list; a Server, to be called in this process; a
    Transport. `env`, `cwd`: see StdioTransport; `stderr`: called with each line for the
    user, such as those that a server on stdio writes to stderr; `headers`, `tls`,
    `authorize`: see HttpTransport. `revision`: speak this one or fail. `timeout`:
    seconds for a response, and for connecting; `probe`: how long a server on stdio may
    be silent before it counts as legacy.

    `elicit(params)` fills in a form: returns a dict of values, None (declined) or
    "cancel"; or the protocol's {"action": ..., "content": ...}. `visit(params)` shows
    params["url"] in full to the user, with its url_warnings(), and opens it if they
    agree: returns True or False. `sample(params)` asks a model: returns text or a whole
    result, None if the user declines. `roots`: a folder or a list, also as file: URIs,
    or a function that returns them. Each of these four declares its capability, may be
    async, and may take a second argument: the tags of the calls.

    `on_log(params)`, `on_notification(message)`: called on the reading thread. `info`:
    name and version of this client. `declare`: further capabilities, such as
    {"extensions": {...}}. `log_level`: the least severe level for `on_log`.
    `trace(way, message)`: called with each message sent (way ">") or received ("<").
    `record`: a binary file for them, as MCP_TRACE.

    Any thread may use it. `version` is the revision in use, `modern` whether it is a
    modern one; `server_info`, `capabilities` and `instructions` come from the server.
    Methods block, and raise RpcError (the server's error), TimeoutError,
    RequestCancelled, Disconnected, Malformed, ServerLacks, HttpError and AskError (one
    of your functions refused to answer). For extensions: `result_types[type] =
    function(method, result, tag)` turns a result of that resultType into a complete
    one; `mirrored[method]` names the param that HTTP repeats in Mcp-Name."""

    def __init__(
        self,
        target: str | Iterable[str] | Server | Transport,
        *,
        env: Any = None,
        cwd: Any = None,
        stderr: Hook = None,
        headers: Any = None,
        tls: Any = None,
        authorize: Hook = None,
        revision: str = "",
        timeout: float = CALL_SECONDS,
        probe: float = PROBE_SECONDS,
        elicit: Hook = None,
        visit: Hook = None,
        sample: Hook = None,
        roots: Any = None,
        on_log: Hook = None,
        on_notification: Hook = None,
        info: Any = None,
        declare: Any = None,
        log_level: str = "",
        trace: Hook = None,
        record: Any = None,
    ) -> None:
        self.timeout, self._pinned, self._probe = timeout, revision, probe
        self._info = info or {"name": "mcp_ref", "version": __version__}
        modes = {"form": elicit, "url": visit}
        self._modes = {mode: ask for mode, ask in modes.items() if ask}
        self._declare = declare or {}
        self._sample, self._roots, self._on_log = sample, roots, on_log
        self._on_notification = on_notification
        self._trace, self._file = trace or (lambda *_: None), record
        self.log_level = log_level or ("info" if on_log else "")

        if isinstance(target, str):
            self.transport: Any = HttpTransport(target, headers, tls, authorize)
        elif isinstance(target, Server):
            self.transport = MemoryTransport(target)
        elif isinstance(target, Transport):
            self.transport = target
        else:
            self.transport = StdioTransport(target, env, cwd)
        if stderr:
            self.transport.say = stderr
        self._prepare()
        self.open()

    def _prepare(self) -> None:
        if self._pinned not in ("", *versions()):
            raise ValueError(
                f"unknown revision {self._pinned!r}; expected one of {versions()}"
            )
        if not callable(self._roots):
            _roots(self._roots)  # ValueError, if they are wrong
        self.transport.client = self
        self.closed = False
        self.ids = itertools.count(1)
        # _opening guards connecting and _open_until, the end of the time for it
        self._opening, self._open_until = RLock(), 0.0
        self._questions = Semaphore(MAX_QUESTIONS)
        # requests without a response, and messages that are not sent yet, by id
        self.running: Any = {}
        self.subscriptions: Any = []
        self.mirrored = {name: row.mirrored for name, row in METHODS.items()}
        self.tools: Message = {}
        self.result_types: Message = {}
        self._speak(self._pinned or versions()[0])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End subscriptions, pending calls, the connection and, on stdio, the
        server."""
        for subscription in list(self.subscriptions):
            subscription.close()
        self.closed = True
        self.lost(Disconnected("the client was closed"))
        with self._opening:  # a thread inside open() gets no more answers, so it leaves
            self.transport.stop()

    def open(self, timeout: Any = None) -> None:
        """Connect, unless connected. A server that has exited is restarted."""
        seconds = self.timeout if timeout is None else min(timeout, self.timeout)
        end = monotonic() + seconds
        if not self._opening.acquire(timeout=min(seconds, LONGEST_SECONDS)):
            raise TimeoutError(f"not connected within {seconds:g} s")
        try:
            if self.closed:
                raise Disconnected("the client is closed")
            # up: connected, or this thread is inside open() already
            if not self.transport.up:
                before, self._open_until = self.version, end
                try:
                    self.transport.start()
                    self._find_era()
                except BaseException:
                    self.transport.stop()
                    self._speak(before)
                    raise
        finally:
            self._opening.release()

    # A modern server answers server/discover, or with an error that only modern servers
    # know. Anything else may come from a legacy one, which is then asked to initialize:
    # the transports' §Backward Compatibility.

    def _find_era(self) -> None:
        """Agree on a revision with the server."""
        wanted = self.version  # ours, or that of the connection before
        if not self.modern:
            return self._initialize(wanted)

        try:
            return self._discover(wanted)
        except RpcError as refusal:
            if refusal.code == UNSUPPORTED_VERSION:
                return self._choose(refusal)
            if refusal.code in (HEADER_MISMATCH, MISSING_CAPABILITY):
                raise
        except HttpError as refusal:
            if refusal.status // 100 != 4 or refusal.status in (401, 403, 429):
                raise
        except OSError:  # TimeoutError or Disconnected
            # A process that does not know the method may also be silent, or exit, but
            # not before it has read anything. Over HTTP, neither says anything.
            if self._pinned or self.transport.mirrors or self.transport.unread:
                raise
        except Malformed:
            pass

        if self._pinned:
            raise Disconnected(f"the server does not support {wanted}")
        if not self.transport.up:
            self.transport.start()  # it exited on server/discover
        try:
            self._initialize(versions("legacy")[0])
        except RpcError as refusal:  # it is modern, and was slow
            if refusal.code != UNSUPPORTED_VERSION:
                raise
            self._choose(refusal)

    def _discover(self, version: str) -> None:
        """Send server/discover, and agree on this version. RpcError with
        UNSUPPORTED_VERSION if the server supports others."""
        self._speak(version)
        timeout = self._open_until - monotonic()
        if not (self._pinned or self.transport.mirrors):
            timeout = min(timeout / 2, self._probe)
        result = self._exchange(Request(self, "server/discover", timeout), {})

        named = _member(result, "supportedVersions", list)
        if version not in named:  # server/discover §Response
            raise RpcError(UNSUPPORTED_VERSION, "", {"supported": named})
        self._take_over(result, _object(result, "_meta").get(META_SERVER))

    def _choose(self, refusal: Any) -> None:
        """Take one of the versions that a modern server named when it refused ours."""
        named = _member(refusal.data, "supported", list)
        usable = [one for one in versions() if one in named]
        if self._pinned or not usable:
            raise Disconnected(
                f"the server does not support {self.version}; it supports {named}"
            )
        if rules(usable[0]).modern:
            self._discover(usable[0])
        else:
            self._initialize(usable[0])

    def _initialize(self, version: str) -> None:
        """[legacy] Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        self._speak(version)
        params = {
            "protocolVersion": version,
            "capabilities": self._offers,
            "clientInfo": self._info,
        }
        result = self._exchange(
            Request(self, "initialize", self._open_until - monotonic()), params
        )

        agreed = _member(result, "protocolVersion", str)
        if agreed not in versions("legacy") or self._pinned not in ("", agreed):
            raise Disconnected(
                f"the server does not support {self.version}; it offers {agreed}"
            )
        self._speak(agreed)
        self._take_over(result, result.get("serverInfo"))
        self._notify(
            "notifications/initialized", timeout=self._open_until - monotonic()
        ).wait()
        if self._offers or self._on_log or self._on_notification:
            with suppress(Exception):  # 405: there is no such stream
                self.transport.listen()
        if self.log_level and "logging" in self.capabilities:
            self.request(
                "logging/setLevel",
                {"level": self.log_level},
                timeout=self._open_until - monotonic(),
            )

    def _take_over(self, result: Message, info: Any) -> None:
        self.capabilities = _member(result, "capabilities", dict)
        self.server_info, self.instructions = _object(info), result.get("instructions")

    def _speak(self, version: str) -> None:
        """Set the revision to speak, and the capabilities to declare in it."""
        edition = rules(version)
        self.version, self.modern = version, edition.modern
        self._offers: Message = {**self._declare}
        if self._modes and "elicitation/create" in edition.methods:
            named = self._modes if "URL elicitation" in edition.features else []
            self._offers["elicitation"] = {mode: {} for mode in named}
        if self._sample:
            self._offers.setdefault("sampling", {})
        if self._roots is not None:
            self._offers["roots"] = {}

    def request(
        self,
        method: str,
        params: Message | None = None,
        *,
        started: Any = None,
        **options: Any,
    ) -> Any:
        """Send a request, answer the server's questions, return the result.

        `started`: called with each Request before it is sent; you can cancel() it
        later. `timeout`: seconds for each response; `on_progress`: called with
        progress, total and message, on this thread; `extend`: progress resets the
        timeout, up to `longest` seconds."""
        more: Message = {}
        for attempt in range(MAX_ROUNDS + 1):
            request = Request(self, method, **options)
            if started:
                started(request)
            self.open(request.timeout)
            try:
                result = self._exchange(request, {**(params or {}), **more})
            except Disconnected as problem:
                # [2025-11-25] basic/transports §Session Management
                if attempt or not problem.session_lost:
                    raise
                continue
            except RpcError as problem:
                # streamable-http §Client Behavior: list the tools again
                if attempt or problem.code != HEADER_MISMATCH:
                    raise
                self.tools = {}
                continue

            kind = str(result.get("resultType", "complete"))
            if kind == "complete" or not self.modern:
                return result
            if kind in self.result_types:
                return self.result_types[kind](method, result, request.tag)
            if kind != "input_required":
                raise Malformed(f"unknown result of {method}: {result!r:.200}")
            more = self._more_input(method, result, request.tag)
            if request.cancelled:  # while a question was being answered
                raise RequestCancelled(f"{method} was cancelled")
        raise Malformed(f"{method} asked for input more than {MAX_ROUNDS} times")

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification, unless the revision does not define it."""
        self.open()
        if method not in NOTIFICATIONS or method in rules(self.version).notifications:
            self._notify(method, params).wait()

    def _notify(self, method: str, params: Any = None, timeout: Any = None) -> Request:
        """Send a notification; return a Request, settled once it is sent."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        return self._transmit(message, Request(self, method, timeout, response=False))

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
            meta = {
                META_VERSION: self.version,
                META_CLIENT: self._info,
                META_CAPABILITIES: self._offers,
            }
            if self.log_level:
                meta[META_LOG_LEVEL] = self.log_level
        if request.on_progress or request.extend:
            meta["progressToken"] = request.id
        meta.update(params.get("_meta", {}))
        if meta:
            params = {**params, "_meta": meta}
        message = {
            "jsonrpc": "2.0",
            "id": request.id,
            "method": request.method,
            "params": params,
        }
        if request.cancelled:
            return request
        return self._transmit(message, request)

    def _transmit(self, message: Message, request: Request) -> Request:
        self.running[request.id] = request
        self._trace(">", message)
        if not self.transport.mirrors:
            self.record(">", message=message)
        try:
            if self.closed:  # lost() may have missed this request
                raise Disconnected("the client is closed")
            self.transport.send(message, request)
        except Exception as problem:  # raised in the waiting thread
            request.settle(problem)
        return request

    def _finish(self, request: Request) -> None:
        """Stop waiting; cancel the request if it has no response:
        basic/patterns/cancellation."""
        # Over HTTP, hang_up() cancels a modern request. It also settles it, so check
        # first.
        waiting = not (request.settled or self.modern and self.transport.mirrors)
        request.over.set()
        self.running.pop(request.id, None)
        if not request.settled:  # else its connection may serve another request
            wire = request.wire
            if wire:
                self.record(">", wire.place, closed=True)
            request.hang_up()
        if waiting and request.method not in ("initialize", "server/discover"):
            self._notify("notifications/cancelled", {"requestId": request.id})

    def receive(self, data: bytes, request: Any = None, place: Any = None) -> None:
        """Handle what came, for `request` if known; Malformed if it is not JSON. Never
        blocks."""
        try:
            message = decode(data)
        except RpcError as problem:
            self.record("<", place, text=data.decode("utf-8", "replace"))
            text = f"expected a message, found {data[:200]!r} ({problem})"
            ident = None
            with suppress(ValueError, RecursionError):  # NaN, for instance, is not JSON
                ident = _object(json.loads(data.decode("utf-8", "replace"))).get("id")
            if not is_id(ident) or ident not in self.running:
                raise Malformed(text)
            self.running[ident].settle(Malformed(text))
            return

        # An array is a batch: [2025-03-26] basic/index §Batching
        for one in message if isinstance(message, list) else [message]:
            self._trace("<", one)
            self.record("<", place, message=one)
            kind = ""
            with suppress(RpcError):  # other JSON is ignored
                kind = kind_of(one)
            if kind == "response":
                # An error without an id: our message was unreadable. HTTP tells which.
                found = request if "error" in one else None
                if is_id(one.get("id")):
                    found = self.running.get(one["id"])
                if found:
                    found.settle(one)
            elif kind == "notification":
                self._take_notification(one, _object(one, "params"))
            # A modern server may not ask: .../stdio §Receiving Messages
            elif kind and not self.modern and self._questions.acquire(blocking=False):
                _thread("mcp-answer", self._take_question, one, request)

    def record(self, way: str, place: Any = None, **more: Any) -> None:
        """Record what was sent (">") or received ("<"); `place`: the exchange, over
        HTTP."""
        if self._file:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            line = {
                "time": f"{now[:-6]}Z",
                "way": way,
                **(place or {"on": "stdio"}),
                **more,
            }
            # the disk is full, or the line is too long
            with suppress(OSError, ValueError):
                self._file.write(encode(line))

    def lost(self, problem: BaseException) -> None:
        """Fail all pending calls: the connection is lost."""
        for request in list(self.running.values()):
            request.settle(problem)
            request.hang_up()

    def _take_notification(self, message: Message, params: Message) -> None:
        """Pass a notification to the request that it names, and to callbacks."""
        name, meta = message["method"], _object(params, "_meta")
        ident = params.get(
            "progressToken", meta.get(META_SUBSCRIPTION, params.get("requestId"))
        )
        found: Any = [] if self.modern else list(self.subscriptions)
        if is_id(ident) and ident in self.running:
            found.append(self.running[ident])
        for request in found:
            waiting = len(request.inbox)
            fits = waiting < MAX_UNREAD and len(str(params)) < MAX_CHANGE
            if fits or not waiting:
                request.put({"method": name, "params": params})
            elif isinstance(request, Subscription) and waiting <= MAX_UNREAD:
                # Its reader must know that it missed something.
                request.put(Malformed("changes were not read, or too large"))
        if self._on_log and name == "notifications/message":
            self._on_log(params)
        if self._on_notification:
            self._on_notification(message)

    def _more_input(self, method: str, result: Message, tag: Any) -> Message:
        """Answer the questions in a modern result; return the params to add to the
        retry: basic/patterns/mrtr §Client Requirements (Basic Workflow)."""
        more = {}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        if "inputRequests" in result:
            questions = _member(result, "inputRequests", dict)
            if len(questions) > MAX_QUESTIONS:
                raise Malformed(f"{method} asked {len(questions)} questions at once")
            more["inputResponses"] = {
                key: self.answer(question, tag) for key, question in questions.items()
            }
        if not more:
            raise Malformed(f"{method} asked for no input: {result!r:.200}")
        return more

    def answer(self, question: Any, tag: Any = None) -> Message:
        """Answer a modern server's question, {"method", "params"}; AskError if it is
        refused."""
        try:
            return self._answer(_object(question), [tag])
        except RpcError as problem:  # a modern server cannot be sent an error
            raise (AskError if problem.code == -1 else Malformed)(
                f"the server's question was not answered: {problem}"
            ) from None

    def _answer(self, question: Message, tags: list[Any]) -> Message:
        """Return the result for a question; RpcError if there is none."""
        method, params = question.get("method"), _object(question, "params")
        if method == "ping":
            return {}
        if method == "elicitation/create" and self._modes:
            return self._answer_elicitation(params, tags)
        if method == "roots/list" and self._roots is not None:
            roots = self._roots
            return _roots(_called(roots, params, tags) if callable(roots) else roots)
        if method == "sampling/createMessage" and self._sample:
            return self._answer_sampling(params, tags)
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method!r:.80}")

    def _answer_sampling(self, params: Message, tags: list[Any]) -> Message:
        """Have a model answer: client/sampling."""
        needed = {"tools", "toolChoice"} & params.keys()
        if needed and "tools" not in self._offers["sampling"]:
            raise RpcError(INVALID_PARAMS, "sampling.tools was not declared")
        answer = _called(self._sample, params, tags)
        if answer is None:  # [2025-11-25] client/sampling §Error Handling
            raise RpcError(-1, "User rejected sampling request")
        if isinstance(answer, str):  # shorthand for a text answer
            answer = {"content": {"type": "text", "text": answer}}
        return {"role": "assistant", "model": "unknown", **answer}

    def _answer_elicitation(self, params: Message, tags: list[Any]) -> Message:
        """Have the user fill in a form or visit a page: client/elicitation."""
        mode = str(params.get("mode", "form"))
        fields: Message = {}
        schema = Schema({})
        try:
            ask = self._modes[mode]
            if mode == "url":
                _check_url(params.get("url"))
            else:
                fields, schema = _form(_object(params, "requestedSchema"))
        except Exception as problem:  # a form can be wrong in many ways
            raise RpcError(
                INVALID_PARAMS, f"cannot elicit {params!r:.200}: {problem}"
            ) from None

        answer = _called(ask, params, tags)
        action = _object(answer).get("action")
        if action in ("accept", "decline", "cancel") and "action" not in fields:
            if mode == "url" or action != "accept":
                return {"action": action}
            answer = answer.get("content", {})
        elif mode == "url":
            return {"action": "accept" if answer is True else "decline"}
        elif answer in (None, False, "decline", "cancel"):
            return {"action": answer or "decline"}

        content = {
            name: part["default"]
            for name, part in fields.items()
            if "default" in _object(part)
        }
        content.update(answer)
        if schema.flaw(content):
            raise ValueError(
                f"the answer does not match the form: {schema.flaw(content)}"
            )
        return {"action": "accept", "content": content}

    def _take_question(self, message: Message, request: Any) -> None:
        """[legacy] Answer a request from the server; runs on mcp-answer."""
        method = message["method"]
        asking = [request] if request else list(self.running.values())
        try:
            tags = [one.tag for one in asking if one.response]
            answer: Message = {"result": self._answer(message, tags)}
            encode(answer)
        except Exception as problem:  # a callback may raise anything
            self.transport.say(f"{method!r:.200} failed: {problem!r}")
            code = problem.code if isinstance(problem, RpcError) else INTERNAL_ERROR
            answer = {"error": {"message": f"{problem}", "code": code}}

        reply = {"jsonrpc": "2.0", "id": message["id"], **answer}
        with suppress(Exception):  # until it is sent, the question counts as open
            self._transmit(reply, Request(self, method, response=False)).wait()
        self._questions.release()

    def _ask(
        self, method: str, params: Any, member: str, *needed: str, **options: Any
    ) -> Message:
        """Send a request whose result has a list `member` of objects with strings
        `needed`."""
        self.open(options.get("timeout"))
        capability = METHODS[method].capability
        if capability not in self.capabilities:
            raise ServerLacks(f"the server does not declare {capability}")
        result: Message = self.request(method, params, **options)
        for item in _member(result, member, list):
            for name in needed:
                _member(item, name, str)
        return result

    def _list(self, method: str, member: str, *needed: str) -> list[Message]:
        """Fetch all pages of a list: server/utilities/pagination."""
        found: list[Message] = []
        params: Message = {}
        size = 0
        for _ in range(MAX_PAGES):
            try:
                result = self._ask(method, params, member, "name", *needed)
            except ServerLacks:
                return found
            size += len(encode(result))
            if size > MAX_LIST_BYTES:
                break
            found += result[member]
            if result.get("nextCursor") is None:  # "" is a valid cursor
                return found
            params = {"cursor": _member(result, "nextCursor", str)}
        raise Malformed(f"{method} has more than {MAX_PAGES} pages, or is too large")

    def list_tools(self) -> list[Message]:
        """Return all tools, over HTTP without those with invalid headers: server/tools
        §Tool."""
        tools = self._list("tools/list", "tools")
        self.tools = {tool["name"]: tool for tool in tools}
        for tool in list(tools) if self.transport.mirrors and self.modern else ():
            try:  # .../streamable-http §Schema Extension
                _mirrors(tool.get("inputSchema"), {})
            except (Malformed, RecursionError) as problem:
                self.transport.say(f"ignored the tool {tool['name']!r}: {problem}")
                tools.remove(tool)
        return tools

    def call_tool(
        self, name: str, arguments: Message | None = None, **options: Any
    ) -> Message:
        """Call a tool. Returns {"content": [...]}, with "structuredContent" if it has
        any, and "isError" if the tool failed. Options: see request(). (server/tools
        §Calling Tools)"""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("tools/call", params, "content", "type", **options)

    def list_resources(self) -> list[Message]:
        """Return all resources: server/resources §Resource."""
        return self._list("resources/list", "resources", "uri")

    def list_resource_templates(self) -> list[Message]:
        """Return all resource templates: server/resources §Resource Templates."""
        return self._list(
            "resources/templates/list", "resourceTemplates", "uriTemplate"
        )

    def read_resource(self, uri: str, **options: Any) -> list[Message]:
        """Read a resource. Returns its contents: [{"uri", "text" or "blob" (base64),
        ...}]."""
        found = self._ask("resources/read", {"uri": uri}, "contents", "uri", **options)
        return list(found["contents"])

    def list_prompts(self) -> list[Message]:
        """Return all prompts: server/prompts §Prompt."""
        return self._list("prompts/list", "prompts")

    def get_prompt(self, name: str, arguments: Any = None, **options: Any) -> Message:
        """Get a prompt; its arguments are strings. Returns {"messages": [...], ...}."""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("prompts/get", params, "messages", "role", **options)

    def complete(
        self, reference: str, argument: str, value: str, known: Any = None
    ) -> list[str]:
        """Return completions of `value`, typed so far for an argument of a prompt or
        template. `known`: the arguments already filled in.
        (server/utilities/completion)"""
        params: Message = {"argument": {"name": argument, "value": value}}
        params["ref"] = {"type": "ref/prompt", "name": reference}
        if "://" in reference or "{" in reference:  # a name may contain a colon
            params["ref"] = {"type": "ref/resource", "uri": reference}
        if known:
            params["context"] = {"arguments": known}
        result = self.request("completion/complete", params)
        values: list[str] = _member(_object(result, "completion"), "values", list)
        if any(type(one) is not str for one in values):
            raise Malformed(f"completions must be strings: {values!r:.200}")
        return values

    def ping(self) -> None:
        """Check that the server answers: by ping or, in the modern era,
        server/discover."""
        self.request("server/discover" if self.modern else "ping")

    def set_level(self, level: str) -> None:
        """Ask for log messages of this level (mcp_ref.LOG_LEVELS) and above.
        [deprecated]"""
        self.open()
        if not self.modern:
            self.request("logging/setLevel", {"level": level})
        self.log_level = level  # modern: sent with each request

    def listen(
        self, wanted: Iterable[str], callback: Any = None, timeout: Any = None
    ) -> Subscription:
        """Subscribe to changes of "tools", "prompts", "resources" or URIs. See
        Subscription."""
        self.open()
        if isinstance(wanted, str):
            wanted = [wanted]
        subscription = Subscription(self, list(wanted), timeout)
        if callback:

            def forward() -> None:
                with suppress(Disconnected):
                    for change in subscription:
                        callback(change)

            _thread("mcp-listen", forward)
        return subscription


# ==== 3. Subscriptions ========================================
# Modern: one request, subscriptions/listen, stays open; changes arrive in its inbox.
# Legacy: a session is told of all changed lists, and of URIs given to
# resources/subscribe, until it ends. ([2025-11-25] server/resources §Subscriptions)


class Subscription(Request, AbstractContextManager["Subscription"]):
    """A server's changes: iterate over it, or give listen() a callback; close() it at
    the end.

    Each change is "tools", "prompts", "resources" or a URI. `granted` lists what the
    server agreed to. Iteration stops when the subscription ends; Disconnected if the
    connection is lost."""

    def __init__(self, client: Client, wanted: list[str], timeout: Any) -> None:
        super().__init__(client, "subscriptions/listen", timeout)
        self.granted: list[str] = []
        client.subscriptions.append(self)
        try:
            (self._open_modern if client.modern else self._open_legacy)(wanted)
            if not self.granted:
                raise ServerLacks(f"the server does not announce changes of {wanted}")
        except BaseException:
            self.close()
            raise
        self.deadline = inf

    def _open_modern(self, wanted: list[str]) -> None:
        asked: Message = {
            what + "ListChanged": True for what in wanted if ":" not in what
        }
        uris = [what for what in wanted if ":" in what]
        if uris:
            asked["resourceSubscriptions"] = uris
        first = self.client._begin(self, {"notifications": asked}).next()
        if (
            "params" not in first
            and _object(first, "error").get("code") != METHOD_NOT_FOUND
        ):
            _result(first)  # .../subscriptions §Acknowledgment
        agreed = {
            "resourceSubscriptions": [],
            **_object(first, "params", "notifications"),
        }
        uris = _member(agreed, "resourceSubscriptions", list)
        self.granted = [
            what for what in wanted if what in uris or agreed.get(what + "ListChanged")
        ]

    def _open_legacy(self, wanted: list[str]) -> None:
        with suppress(TimeoutError):  # it may open with its first event
            self.client.transport.listen()
        self.client.running[self.id] = self
        for what in wanted:
            kind, needed = (
                ("resources", "subscribe") if ":" in what else (what, "listChanged")
            )
            if _object(self.client.capabilities, kind).get(needed):
                if ":" in what:
                    self.client.request("resources/subscribe", {"uri": what})
                self.granted.append(what)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                message = self.next()
            except Exception as problem:
                if self.cancelled:  # by close()
                    return
                self.put(problem)  # for the next iteration
                raise
            name = message.get("method", "/")
            what = name.split("/")[-2:][0]
            if name == "notifications/resources/updated":
                # may lie below a URI in `granted`
                what = str(message["params"].get("uri"))
            if name in ("/", "notifications/cancelled"):
                self.close()
            elif any(
                (what + "/").startswith(one.rstrip("/") + "/") for one in self.granted
            ):
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
    """Return the result of a response; RpcError if it is an error, Malformed if
    neither."""
    error = response.get("error")
    if error is None:
        return _member(response, "result", dict)
    code = _member(error, "code", int)
    raise RpcError(code, f"{error.get('message', '')!s:.10000}", error.get("data"))


def _member(value: Any, name: str, kind: type) -> Any:
    """Return a member of an object; Malformed if it is missing or of another type."""
    if type(_object(value).get(name)) is not kind:  # true is not an int
        raise Malformed(f"the server sent no valid {name}: {value!r:.200}")
    return value[name]


def _object(value: Any, *names: str) -> Message:
    """Return a value, or a member at any depth, if it is an object, else an empty
    one."""
    for name in names:
        value = _object(value).get(name)
    return value if isinstance(value, dict) else {}


def _thread(name: str, target: Callable[..., Any], *arguments: Any) -> None:
    Thread(target=target, args=arguments, name=name, daemon=True).start()


def _called(function: Any, *arguments: Any) -> Any:
    """Call an application's function; it may be async, or take only the first
    argument."""
    import asyncio
    import inspect

    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        # positional, without default
        if one.kind < 2 and one.default is one.empty
    ]
    found = function(*arguments[: max(1, len(needed))])
    return asyncio.run(found) if inspect.iscoroutine(found) else found


# The keywords of a form's fields; others, such as `pattern`, are ignored.
_FIELD = """type minLength maxLength minimum maximum enum oneOf const items anyOf minItems
    maxItems"""


def _field(part: Message) -> Message:
    """Return a part of a form: client/elicitation §Requested Schema."""
    return {name: part[name] for name in _FIELD.split() if name in part}


def _form(form: Message) -> tuple[Message, Schema]:
    """Return the fields of a form, and the schema of its content."""
    fields = form["properties"]
    known = json.loads(json.dumps(list(fields.values())), object_hook=_field)
    return fields, Schema(
        {
            "type": "object",
            "properties": dict(zip(fields, known)),
            "additionalProperties": False,
            "required": list(map(str, form.get("required", []))),
        }
    )


def _roots(found: Any) -> Message:
    """Return the result of roots/list; ValueError if a root is wrong (client/roots)."""
    roots = []
    for root in [found] if isinstance(found, (str, Path, dict)) else found or []:
        if not isinstance(root, dict):
            uri = str(root)
            if "://" not in uri:
                uri = Path(os.path.abspath(uri)).as_uri()
            root = {"uri": uri}
        uri = str(root["uri"])
        if not uri.startswith("file://") or ".." in unquote(uri).split("/"):
            raise ValueError(
                f"a root must be a folder, or a file: URI without ..: {uri}"
            )
        roots.append(root)
    return {"roots": roots}


def _marked(schema: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield header, type and value of each argument with an x-mcp-header, at any
    depth."""
    for name, part in _object(schema, "properties").items():
        inner = _object(value).get(name)
        if "x-mcp-header" in _object(part):
            yield part["x-mcp-header"], part.get("type"), inner
        yield from _marked(part, inner)


def _mirrors(schema: Any, arguments: Any) -> Message:
    """Return the headers that repeat arguments; Malformed if the schema has an invalid
    one. (basic/transports/streamable-http §Custom Headers from Tool Parameters)"""
    found = list(_marked(schema, arguments))
    names = {
        name.lower()
        for name, kind, _ in found
        if type(name) is str
        and kind in ("string", "integer", "boolean")
        and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
    }
    if len(names) != json.dumps(schema).count('"x-mcp-header":'):
        raise Malformed(
            "each x-mcp-header must be a unique name of a string, integer or boolean"
        )
    return {
        f"Mcp-Param-{name}": mirror(value)
        for name, _, value in found
        if value is not None
    }


# ==== 5. Transports: in this process, and stdio ===============
# send() returns at once; responses come back through Client.receive(), exceptions
# through Request.settle(). What gets no response settles its request once it is sent.


class Transport:
    """The base of transports. Each has start(), to connect or raise Disconnected;
    stop(), which start() may follow; and send(message, request), which does not
    wait."""

    client: Client  # set by the client
    up = False  # started, and not lost since
    unread = False  # it was lost before it had read anything
    # headers repeat parts of the body, and closing the connection cancels
    mirrors = False

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
                if not request.response:
                    request.settle({})
            except BaseException as problem:  # raised in the waiting thread
                request.settle(problem)
            self._release(request)

        _thread(name, run)

    def _release(self, request: Request) -> None:
        """Give up what a request used."""


class MemoryTransport(Transport):
    """A Server in this process; each message has its own thread, so that calls can time
    out."""

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
        self._run(
            "mcp-call",
            request,
            lambda: self.server.handle(
                decode(encode(message)), self._deliver, peer=self.peer
            ),
        )


# The environment variables that a server inherits: no secrets. connect(env=...) adds
# others.
_INHERITED = """
    APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LC_CTYPE LOCALAPPDATA LOGNAME
    PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE SYSTEMROOT TEMP TERM TMP TMPDIR TZ
    USER USERNAME USERPROFILE WINDIR
""".split()


class StdioTransport(Transport):
    """A server that we start: basic/transports/stdio. `env`: variables in addition to
    _INHERITED. `stderr`: called with each line that it writes there."""

    def __init__(
        self,
        command: Iterable[str],
        env: Any = None,
        cwd: Any = None,
        stderr: Hook = None,
    ) -> None:
        if stderr:
            self.say = stderr  # type: ignore[method-assign]
        self.command = list(command)
        self.cwd = cwd
        self.process: Any = None
        self.env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self.env.update(env or {})

    def start(self) -> None:
        import shutil
        from subprocess import PIPE, Popen

        self.stop()
        self.heard = self.unread = False  # heard: it has said something
        self.loss = Disconnected("the server is gone")
        self.outgoing: Any = SimpleQueue()
        self.exited, self.silent = Event(), Event()
        self.last_lines: Any = []
        try:  # on Windows, which() finds npx.cmd
            program = (
                shutil.which(self.command[0], path=self.env.get("PATH"))
                or self.command[0]
            )
            process = self.process = Popen(
                [program, *self.command[1:]],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )  # a process group
        except (OSError, ValueError, IndexError) as problem:
            raise Disconnected(f"cannot start {self.command}: {problem}") from None
        self.up = True
        _thread("mcp-watch", self._watch, process)
        _thread("mcp-stderr", self._forward, process)
        _thread("mcp-read", self._read, process)
        _thread("mcp-write", self._write, process)

    def send(self, message: Message, request: Request) -> None:
        self.outgoing.put((encode(message), request))
        if not self.up:  # if it dies after this, lost() finds the request
            raise self.loss

    def _write(self, process: Any) -> None:
        """Write lines; runs on mcp-write, the only thread that a slow server can
        block."""
        with suppress(OSError), process.stdin:
            for line, request in iter(self.outgoing.get, None):
                process.stdin.write(line)
                process.stdin.flush()
                if not request.response:
                    request.settle({})
        self._lose(process)

    def _read(self, process: Any) -> None:
        """Read lines until the output ends; runs on mcp-read."""
        with process.stdout:
            for line in _lines(process.stdout):
                self.heard = True
                try:
                    if line.strip():
                        self.client.receive(line)
                except Exception as problem:  # not a message, or a callback failed
                    self.say(repr(problem))
            self._lose(process)

    def _forward(self, process: Any) -> None:
        """Pass on what the server writes to stderr; runs on mcp-stderr."""
        with process.stderr:
            for line in _lines(process.stderr):
                text = line.decode("utf-8", "replace").rstrip()
                lines = [*self.last_lines, text[:MAX_LINE_TEXT]]
                self.last_lines = lines[-MAX_LAST_LINES:]
                self.say(text)
        self.silent.set()

    def _watch(self, process: Any) -> None:
        """Wait for the server to exit; runs on mcp-watch."""
        process.wait()
        _kill(process, "SIGKILL")  # child processes that it left running
        self.exited.set()
        self._lose(process)

    def _lose(self, process: Any) -> None:
        """Mark the server as gone; fail pending calls, quoting the end of its
        stderr."""
        if self.exited.wait(1):
            self.silent.wait(0.2)
        if self.up and process is self.process:
            self.unread = _left_unread(process)
            said = "\n".join(self.last_lines)
            self.loss = problem = Disconnected(
                f"the server is gone (exit status {process.poll()})\n{said}"
            )
            problem.exit_status = process.returncode
            self.up = False
            self.client.lost(problem)

    def stop(self) -> None:
        """Shut down the server: basic/transports/stdio §Shutdown."""
        process, self.up = self.process, False
        if process:
            self.outgoing.put(None)
            # A server that never said a word has nothing to finish.
            patience = CLOSE_STEP_SECONDS if self.heard else 0.2
            try:
                for step in ("SIGTERM", "SIGKILL"):
                    if not self.exited.wait(patience):
                        _kill(process, step)
            except BaseException:  # a second Ctrl-C leaves no process behind
                _kill(process, "SIGKILL")
                raise

            self.process = None
            self.exited.wait(patience)
            self.silent.wait(patience)


def _left_unread(process: Any) -> bool:
    """Tell whether a process left what we sent (on Linux; elsewhere rarely)."""
    try:
        import fcntl
        import termios

        return any(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))
    except ValueError:  # it is closed: writing to it failed
        return True
    except (ImportError, OSError):
        return False


def _lines(file: Any) -> Iterator[bytes]:
    """Return the lines of a file; one that is too long comes in pieces."""
    return iter(lambda: file.readline(MAX_MESSAGE_BYTES + 1), b"")


def _kill(process: Any, name: str) -> None:
    """Send a signal to a server and its children; on Windows, end the server."""
    with suppress(OSError):  # no process is left
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


# ==== 6. HTTP =================================================
# Each message is a POST on its own thread, which may block; the caller waits in
# Request.next() and hangs up at the deadline. [legacy] A session has a stream, opened
# by GET; HTTP+SSE has no other.


class _Call(NamedTuple):
    """What is sent in an HTTP exchange; `headers` are those of the protocol."""

    verb: str
    headers: Message
    request: Request
    message: Any = None


class _Wire:
    """An HTTP connection, for one exchange after another.

    It belongs to one request at a time, its `owner`: all is done by that request's
    thread, but any thread may hang up for it. `lock` guards `owner`. `place`: what
    record() says about the exchange. `since`: when it was last kept, 0 if never;
    `sent`: all of a request has been sent since."""

    def __init__(self, url: str, tls: Any, timeout: float) -> None:
        scheme, self.host, port = _origin(url)
        self.lock = Lock()
        self.owner: Any = None
        self.since, self.sent = 0.0, False
        self.session, self.place = "", {"on": 0}
        self.response: Any = None
        with self.failing():
            self.connection: Any = (
                HTTPConnection(self.host, port, timeout=timeout)
                if scheme == "http"
                else HTTPSConnection(self.host, port, timeout=timeout, context=tls)
            )
            self.connection.connect()
            self.socket = self.connection.sock

    @contextmanager
    def failing(self, kind: Any = Disconnected) -> Iterator[None]:
        """Turn the exceptions of a broken connection or URL into `kind`."""
        try:
            yield
        except (OSError, HTTPException, ValueError) as problem:
            # http.client quotes the value of an invalid header, which may be a secret.
            raise kind(
                f"{self.host}: {str(problem).partition(' value b')[0] or type(problem).__name__}"
            ) from None

    def exchange(
        self, verb: str, url: str, headers: Message, body: Any, stream: bool = True
    ) -> None:
        """Send a request, and read the response. The body of a stream is left, if it
        may be a `stream`."""
        target = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl()
        self.response = None
        with self.failing():
            self.connection.request(verb, f"/{target.lstrip('/')}", body, headers)
            self.sent = True
            self.response = self.connection.getresponse()
            found = self.response.headers
            self.status = self.response.status
            kind = found.get_content_type()
            self.is_stream = (
                stream and self.status == 200 and kind == "text/event-stream"
            )
            self.body = b""
            if not self.is_stream:
                # enough for decode() to refuse
                self.body = self.response.read(MAX_MESSAGE_BYTES + 1)
                if self.response.length and len(self.body) <= MAX_MESSAGE_BYTES:
                    raise ValueError("the body was cut off")
        self.place["status"] = self.status
        self.headers = {name.lower(): ", ".join(found.get_all(name)) for name in found}

    def events(self, request: Request) -> Iterator[tuple[str, str]]:
        """Yield (kind, data) of each event in a stream (HTML Standard, section 9.2);
        store its id and `retry` in the request. Malformed if an event is too large."""
        event: Any = {}
        size = 0
        with self.failing():
            text = io.TextIOWrapper(self.response, "utf-8-sig", "replace")
            try:
                for line in iter(lambda: text.readline(MAX_MESSAGE_BYTES), ""):
                    name, _, value = line.rstrip("\n").partition(":")
                    event.setdefault(name, []).append(value.removeprefix(" "))
                    size += len(line)
                    if size > MAX_MESSAGE_BYTES + 1000:  # field names count, too
                        raise Malformed(
                            f"the server sent an event of more than {size} characters"
                        )
                    if line == "\n":
                        request.last_id = event.get("id", [request.last_id])[-1]
                        with suppress(ValueError, KeyError):
                            request.retry = max(50, int(event["retry"][-1][:9])) / 1000
                        data = "\n".join(event.get("data", ()))
                        if data:  # an event may have only an id
                            yield event.get("event", ["message"])[-1], data
                        event, size = {}, 0
            finally:
                text.detach()  # else it would close the response

    def hang_up(self, owner: Any, close: bool = os.name == "nt") -> None:
        """End the owner's exchange, from any thread: a read or write that blocks fails.
        `close`: free the socket, too, on its own thread (on Windows, on any: nothing
        else ends a read there)."""
        with self.lock, suppress(OSError):  # it is closed
            if self.owner is not owner:
                return
            if close:
                socket.close(self.socket.detach())
            else:  # an SSLSocket's own shutdown() would break its reader
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def free(self) -> bool:
        """Leave the owner; tell whether another request may use the connection."""
        with self.lock:
            self.owner, self.since, self.sent = None, monotonic(), False
        return self.response and not self.response.will_close

    def is_fresh(self) -> bool:
        """Tell whether a kept connection looks usable: its last answer has ended, and
        it has not."""
        with suppress(OSError, HTTPException, ValueError, TypeError):
            self.socket.settimeout(0)
            self.response.read(65536)  # the end of a stream, if it has come
            with DefaultSelector() as selector:
                selector.register(self.socket, EVENT_READ)
                return (
                    self.response.isclosed()
                    and not selector.select(0)
                    and monotonic() - self.since < IDLE_SECONDS
                )
        return False


def fetch(
    verb: str,
    url: str,
    headers: Message,
    body: bytes | None = None,
    timeout: float = 30,
) -> tuple[int, dict[str, str], bytes]:
    """Do one HTTP exchange, without redirects; return status, headers (names in lower
    case) and body. `timeout`: seconds to connect to each address of the host, and as
    many for the rest. Raises Disconnected, also on timeout."""
    wire = _Wire(url, None, timeout)
    timer = Timer(timeout, wire.hang_up, [None])
    timer.daemon = True
    timer.start()
    try:
        wire.exchange(verb, url, headers, body, False)
        if not timer.is_alive():
            raise Disconnected(f"{wire.host}: no answer within {timeout:g} s")
        return wire.status, wire.headers, wire.body
    finally:
        timer.cancel()
        wire.hang_up(None, close=True)


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an http or https URL; ValueError for others."""
    parts = urlsplit(url)
    ports = {"http": 80, "https": 443}
    if parts.scheme not in ports or not parts.hostname or "@" in parts.netloc:
        raise ValueError(
            "expected an http(s) URL without a password (for a program, a list: "
            f"[sys.executable, 'server.py']); found {_shown(url)}"
        )
    return parts.scheme, parts.hostname, parts.port or ports[parts.scheme]


def _shown(url: str) -> str:
    """Return a URL for a message: without user, password and query."""
    return re.sub("//[^/]*@", "//", re.split("[?#]", url)[0])[:200]


def _check_url(url: Any) -> None:
    """Check a URL that a server wants a user to open: ValueError if it is not plain."""
    if not re.fullmatch(r"https?://[!-\[\]-~]{1,4000}", str(url)):
        raise ValueError("url must be http(s), printable ASCII, without a backslash")
    _origin(url)


def url_warnings(url: str, server_url: str = "") -> list[str]:
    """Return what a user should know before a URL from a server is opened."""
    scheme, host, _ = _origin(url)
    found = []
    if server_url and host != _origin(server_url)[1]:
        found.append(f"it leads to {host}, not to the server's host")
    if "xn--" in host:
        found.append(f"{host} has letters that may look like others")
    if scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        found.append("what you enter there is not encrypted")
    return found


class HttpTransport(Transport):
    """A server at a URL: Streamable HTTP or, if it supports nothing newer, HTTP+SSE
    [legacy].

    `headers`: a dict, or a function of (verb, url) that returns one, called for each
    HTTP request. `authorize`: called with the HttpError of a 401 or 403, whose
    `seconds` say how long it may take, not counting a person; returns `headers` for all
    requests from then on, or None to give up. `tls`: an ssl.SSLContext. Redirects must
    stay within the origin. `lock` guards asking for authorization."""

    mirrors = True
    stream: Any = None  # [legacy] of the session; belongs to no request

    def __init__(
        self, url: str, headers: Any = None, tls: Any = None, authorize: Any = None
    ) -> None:
        self.url, self.tls, self.authorize = url, tls, authorize
        self.origin = _origin(url)
        self.own = headers or {}
        self.granted: Any = {}
        self.lock = Lock()
        self.idle: Any = []  # kept connections

    def start(self) -> None:
        # sse: tried or in use
        self.up, self.session, self.sse, self.post_to = True, "", False, ""

    def stop(self) -> None:
        """Delete the session, and close its stream."""
        if self.up and self.session:
            deletion = Request(
                self.client, "DELETE", CLOSE_STEP_SECONDS, response=False
            )
            self._run(
                "mcp-post", deletion, lambda: self._open(_Call("DELETE", {}, deletion))
            )
            with suppress(Exception):  # the session expires anyway
                deletion.wait()
        self.up = False
        self._end_stream(Disconnected("the client was closed"))
        while self.idle:
            self.idle.pop().hang_up(None, close=True)

    def send(self, message: Message, request: Request) -> None:
        self._run("mcp-post", request, lambda: self._post(message, request))

    # ---- a POST, and its answer

    def _headers_of(self, message: Message) -> Message:
        """Return the headers that repeat the body: .../streamable-http §Request
        Metadata."""
        client, method = self.client, message.get("method", "")
        params = message.get("params", {})
        found = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        if client.modern:
            found["Mcp-Method"] = method
            member = client.mirrored.get(method)
            if isinstance(params.get(member), str):
                found["Mcp-Name"] = mirror(params[member])
            if method == "tools/call":
                name = params.get("name")
                if name not in client.tools:
                    # its schema says which arguments become headers
                    client.list_tools()
                schema = client.tools.get(name, {}).get("inputSchema")
                found.update(_mirrors(schema, params.get("arguments")))
        return found

    def _post(self, message: Message, request: Request) -> None:
        """Post a message, and handle the response."""
        wire = self._open(_Call("POST", self._headers_of(message), request, message))
        status, opens = wire.status, request.method == "initialize"
        if self.post_to or not request.response:  # no response is due here
            if status >= 400:
                raise self._refusal(wire)
            return

        if opens and status == 200:  # [2025-11-25] basic/transports §Session Management
            self.session = wire.headers.get("mcp-session-id", "")
        # The body of a refusal may be a message that says more.
        error = '"error"' if self.client.modern else str(UNSUPPORTED_VERSION)
        if wire.is_stream:
            self._read_answer(wire, request)
        elif status < 400 or error.encode() in wire.body:
            body, place = wire.body, wire.place
            self._release(request)  # so that the next request can use it
            self.client.receive(body, request, place)
            if not request.settled:
                raise Malformed(f"no response to {request.method} in {body!r:.200}")
        elif opens and status in (400, 404, 405):
            # HTTP+SSE is the oldest transport.
            self.sse = True
            with suppress(HttpError, OSError):
                self.listen(request.deadline - monotonic())
            if not self.post_to:
                raise self._refusal(wire)
            self._post(message, request)
        else:
            raise self._refusal(wire)

    def _read_answer(self, wire: _Wire, request: Request) -> None:
        """Read the stream that has the response. A legacy one that breaks is resumed,
        if its events have ids: [2025-11-25] basic/transports §Resumability and
        Redelivery."""
        while True:
            self._read_stream(wire, request, request)
            if request.settled:
                return
            if self.client.modern or not request.last_id or request.over.is_set():
                raise Disconnected(
                    f"the stream ended without a response to {request.method}"
                )
            request.over.wait(request.retry)
            wire = self._get(request)

    def _read_stream(self, wire: _Wire, request: Request, owner: Any) -> None:
        """Receive a stream's messages until it ends or breaks, which is the same, or
        until its owner has the response."""
        with suppress(Disconnected):
            for kind, data in wire.events(request):
                if kind == "message":
                    self.client.receive(data.encode(), owner, wire.place)
                elif kind == "endpoint" and self.sse:
                    self._take_endpoint(wire, data.strip())
                if owner and owner.settled:
                    return

    def _refusal(self, wire: _Wire) -> Any:
        """Return the exception for an HTTP response that is not a message."""
        status, said = wire.status, wire.body.decode("utf-8", "replace")
        self.client.record("<", wire.place, text=said)
        # A lost session must be 404, but widely copied servers answer 400 and mention
        # the session.
        is_lost = status == 404 or (
            status == 400
            and "session" in said.lower()
            and str(INVALID_PARAMS) not in said
        )
        if wire.session and is_lost:
            lost = Disconnected("the server no longer knows the session")
            lost.session_lost = True
            if wire.session == self.session:
                self.session, self.up = "", False  # the next request reconnects
                self._end_stream(lost)
            return lost
        return HttpError(
            status,
            f"{_shown(self.url)} sent {status} {wire.response.reason}: {said:.500}",
            wire.headers,
            self.url,
        )

    # ---- [legacy] the session's stream

    def listen(self, seconds: float = 2 * RETRY_SECONDS) -> None:
        """[legacy] Open the session's stream, or raise what keeps it from being opened.
        ([2025-11-25] basic/transports §Listening for Messages from the Server)"""
        if self.stream is None or self.stream.over.is_set():
            stream = self.stream = Request(self.client, "GET", seconds)
            self._run("mcp-stream", stream, lambda: self._hold_stream(stream))
            stream.next()

    def _end_stream(self, problem: BaseException) -> None:
        if self.stream:
            self.stream.over.set()
            self.stream.hang_up()
            for subscription in self.client.subscriptions:
                subscription.settle(problem)

    def _hold_stream(self, stream: Request) -> None:
        """Read messages that belong to no request until the session ends; runs on
        mcp-stream."""
        try:
            while not stream.over.is_set():
                wire = self._get(stream)
                if not (self.sse or stream.settled):
                    stream.settle({})  # it is open
                stream.deadline = inf
                self._read_stream(wire, stream, None)
                if self.sse:
                    raise Disconnected("the server ended its stream")
                stream.over.wait(stream.retry)
        except Exception as problem:
            self._end_stream(problem)
            if self.post_to:
                self.up = False  # the next request reconnects
                self.client.lost(problem)
            raise

    def _take_endpoint(self, wire: _Wire, place: str) -> None:
        """Take the URL that messages are posted to: [2024-11-05] basic/transports §HTTP
        with SSE."""
        with wire.failing(Malformed):
            url = urljoin(self.url, place)
            if _origin(url) != self.origin:
                raise ValueError(f"its endpoint is on another origin: {_shown(url)}")
        self.post_to = url
        self.stream.settle({})  # it is open

    def _get(self, request: Request) -> _Wire:
        """Open a stream by GET, or resume it."""
        headers: Message = {"Accept": "text/event-stream"}
        if request.last_id:
            headers["Last-Event-ID"] = request.last_id.encode()
        wire = self._open(_Call("GET", headers, request))
        if not wire.is_stream:
            raise self._refusal(wire)
        return wire

    # ---- an exchange: redirects, then authorization, then the connection

    def _open(self, call: _Call) -> _Wire:
        """Send an HTTP request, follow redirects, and read the head of the response.
        HttpError on 401, 403 and too many redirects."""
        url = self.post_to if call.message and self.post_to else self.url
        for _ in range(MAX_REDIRECTS + 1):
            wire = self._send_authorized(call, url)
            if not 300 <= wire.status < 400:
                return wire
            with wire.failing(Malformed):
                url = urljoin(url, wire.headers.get("location", ""))
                if _origin(url) != self.origin:
                    raise HttpError(
                        wire.status, f"a redirect to another origin: {_shown(url)}"
                    )
        raise self._refusal(wire)

    def _send_authorized(self, call: _Call, url: str) -> _Wire:
        """Send an HTTP request; while it is refused, ask `authorize` for headers."""
        for _ in range(MAX_REDIRECTS + 1):
            granted = self.granted
            wire = self._send(call, url, granted)
            if wire.status not in (401, 403):
                return wire
            if not self.authorize or call.verb == "DELETE":  # leaving begins no login
                break
            self._ask_for_grant(self._refusal(wire), granted, call.request)
        raise self._refusal(wire)

    def _ask_for_grant(self, refusal: Any, granted: Any, request: Request) -> None:
        """Get headers from `authorize`, one thread at a time; raise the refusal if it
        has none."""
        seconds = refusal.seconds = request.deadline - monotonic()
        # A user may have to log in.
        request.deadline += LOGIN_SECONDS
        with self.lock:  # threads that wait here use the same headers
            if self.granted is granted:  # else another thread has new ones
                found = _called(self.authorize, refusal)
                if found is None:
                    raise refusal
                self.granted = found
        request.deadline = monotonic() + seconds
        request.put()

    def _send(self, call: _Call, url: str, granted: Any) -> _Wire:
        """Send an HTTP request, and read the head of the response."""
        verb, message, session = call.verb, call.message, self.session
        shown: Message = {"http": f"{verb} {urlsplit(url).path}"}
        body = None
        if message:
            shown["message"], body = message, encode(message)[:-1]
        sent = {"User-Agent": "mcp_ref", **call.headers}
        if session:
            sent["Mcp-Session-Id"] = session
        if call.request.method != "initialize":
            sent["MCP-Protocol-Version"] = self.client.version
        shown["headers"] = {**sent}  # what is added next may be secret
        for more in (self.own, granted):
            sent.update(more(verb, url) if callable(more) else more)

        wire = self._take_wire(call.request)
        wire.session = session
        self.client.record(">", wire.place, **shown)
        try:
            wire.exchange(verb, url, sent, body)
            return wire
        except Disconnected:
            # A kept connection may end at any time. The message may go out again if not
            # all of it was sent, or if it only reads (RFC 9110, section 9.2.2).
            row = METHODS.get(call.request.method)
            may_repeat = not wire.sent or verb != "POST" or (row and row.cacheable)
            is_over = self.client.closed or call.request.over.is_set()
            if not wire.since or not may_repeat or is_over:
                raise
        return self._send(call, url, granted)

    # ---- connections

    def _take_wire(self, request: Request) -> _Wire:
        """Take a connection that is kept, or open one, for a request."""
        self._release(request)
        wire = None
        with suppress(IndexError):
            wire = self.idle.pop()
        if wire and not wire.is_fresh():
            wire.hang_up(None, close=True)
            wire = None
        wire = wire or _Wire(self.url, self.tls, CALL_SECONDS)

        # The caller's deadline ends every wait for a response.
        wire.socket.settimeout(None if request.response else request.timeout)
        wire.place = {"on": wire.socket.getsockname()[1]}  # our port
        with wire.lock:
            wire.owner = request
        request.wire = wire
        if request.over.is_set():
            raise Disconnected("the request has ended")
        return wire

    def _release(self, request: Request) -> None:
        """Keep a request's connection for others, if it can serve them."""
        wire, request.wire = request.wire, None
        if wire and wire.free() and self.up and len(self.idle) < MAX_IDLE:
            self.idle.append(wire)
        elif wire:
            wire.hang_up(None, close=True)


connect = Client
