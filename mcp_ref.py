#!/usr/bin/env python3
# mcp_ref.py 0.3.0: the Model Context Protocol in one file. SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""A Model Context Protocol (MCP) server in one file, standard library only.

MCP lets an AI application (the *host*, with a *client* inside it) use what a *server* offers.
The two exchange JSON objects, as JSON-RPC 2.0 defines them. There are three kinds of message:

    request       {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {...}}
    response      {"jsonrpc": "2.0", "id": 1, "result": {...}}  or  {..., "error": {...}}
    notification  {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}

A request gets one response, with the same `id`, unless it is cancelled; a notification has no id
and is never answered. A server offers *tools* (functions that the model calls), *resources* (data
named by a URI, which the application reads) and *prompts* (message templates that the user picks).
It may ask the client for *elicitation* (a form for the user), *sampling* (a completion from the
client's model) and *roots* (the folders to work in). A complete server:

    from mcp_ref import Server
    server = Server("hello")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()            # on standard input and output; with `--http PORT`, over HTTP

A *capability* is an optional part of MCP: each side declares those that it has. A *revision* is a
version of the specification, named by its date. Up to 2025-11-25 (the *legacy* era), a client opens
a *session* with an `initialize` request, and what it says there holds for the session. Since
2026-07-28 (the *modern* era) there are no sessions: every request names its revision and the
client's capabilities in `params._meta`.

This file serves both eras. Part I is a server on stdio, part II adds HTTP, part III adds legacy
clients. Lines elsewhere that depend on part III end in `# [legacy]`. The rest works without part
III and these lines, or without these lines and everything from part II on.

    I     1  the tables: the protocol as data
          2  messages and framing
          3  one request: Context, asking the client
          4  the server: registering, dispatch, methods, results
          5  the peer: running requests, cancellation
          6  stdio
          A  type hints to JSON Schema and back
          B  JSON Schema validation
    II    7  the endpoint: the rules of HTTP, without sockets
          8  serve_http: the endpoint on sockets
          9  the command line
    III  10  sessions, questions as requests, batches
         11  sessions over HTTP, resumable streams, HTTP+SSE

References such as `basic/patterns/mrtr §Error Handling` name a page and a heading of the newest
revision of the specification; a page of an older revision has its date in brackets in front.
The client is a separate file, examples/mcp_client.py.

Known limits: a running handler can only be asked to stop. Patterns in schemas run on Python's
`re`, so a careless one can be slow. A program whose handlers use multiprocessing must call run()
under `if __name__ == "__main__":`.
"""
from __future__ import annotations

import functools
import io
import json
import os
import re
import sys
import threading
import time
import types
import typing
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, Union

__version__ = "0.3.0"
__all__ = ["ERRORS", "FEATURES", "LOG_LEVELS", "MAX_MESSAGE_BYTES", "META_CAPABILITIES",
    "META_CLIENT", "META_LOG_LEVEL", "META_SERVER", "META_SUBSCRIPTION", "META_VERSION", "METHODS",
    "NOTIFICATIONS", "REVISIONS", "AskError", "ClientLacks", "Context", "NotFound", "Peer",
    "RpcError", "Schema", "Server", "audio", "decode", "elicitation", "embedded", "encode", "image",
    "is_id", "kind_of", "link", "roots", "rules", "sampling", "schema_of", "serve_stdio", "text",
    "versions"]

Message = dict[str, Any]      # a JSON object, which stays a plain dict
Func = Callable[..., Any]     # any function
Headers = dict[str, str]      # of HTTP
Send = Callable[[Any], None]  # takes one message, and sends it


# ======== Part I: a server on stdio =======================================================
# ======== 1. The tables: the protocol as data =============================================
# What the specification lists is a row here, and the code reads the rows. No date appears anywhere
# else; revisions are compared by their position in REVISIONS. The columns of several tables:
#
#     since, until    the first and the last revision that have it; no `until`: the newest has it
#     deprecated      the revision that advises against it; it is still served (page `deprecated`)
#     way             ">" if clients send it, "<" if servers send it
#     capability      what the receiver of a request, or the sender of a notification, must declare

# To add a revision: a row on top, a short name below, then `since` and `until` where rows change.
Revision = namedtuple("Revision", "date era")
REVISIONS = {row.date: row for row in (
    Revision("2026-07-28", "modern"),
    Revision("2025-11-25", "legacy"),
    Revision("2025-06-18", "legacy"),
    Revision("2025-03-26", "legacy"),
    Revision("2024-11-05", "legacy"),
)}
R5, R4, R3, R2, R1 = REVISIONS  # short names, so that a row fits on a line

# To add a method: a row, its params in PARAMS, and for ">" a function in SERVED (section 4).
# `asks`: its handler may ask the client (basic/patterns/mrtr §Supported Requests); `cacheable`: its
# result has caching hints (server/utilities/caching); `mirrored`: HTTP repeats it in Mcp-Name.
Method = namedtuple("Method", "name way since until deprecated asks cacheable mirrored capability")
yes, no = True, False
METHODS = {row.name: row for row in (
    #      name                        way   since until depr. asks cache mirrored capability
    Method("server/discover",          ">",  R5, "", "",   no,  yes, "",     ""),
    Method("tools/list",               ">",  R1, "", "",   no,  yes, "",     "tools"),
    Method("tools/call",               ">",  R1, "", "",   yes, no,  "name", "tools"),
    Method("resources/list",           ">",  R1, "", "",   no,  yes, "",     "resources"),
    Method("resources/templates/list", ">",  R1, "", "",   no,  yes, "",     "resources"),
    Method("resources/read",           ">",  R1, "", "",   yes, yes, "uri",  "resources"),
    Method("prompts/list",             ">",  R1, "", "",   no,  yes, "",     "prompts"),
    Method("prompts/get",              ">",  R1, "", "",   yes, no,  "name", "prompts"),
    Method("completion/complete",      ">",  R1, "", "",   no,  no,  "",     "completions"),
    Method("subscriptions/listen",     ">",  R5, "", "",   no,  no,  "",     ""),
    Method("initialize",               ">",  R1, R4, "",   no,  no,  "",     ""),
    Method("ping",                     "<>", R1, R4, "",   no,  no,  "",     ""),
    Method("logging/setLevel",         ">",  R1, R4, "",   no,  no,  "",     "logging"),
    Method("resources/subscribe",      ">",  R1, R4, "",   no,  no,  "",     "resources"),
    Method("resources/unsubscribe",    ">",  R1, R4, "",   no,  no,  "",     "resources"),
    Method("elicitation/create",       "<",  R3, "", "",   no,  no,  "",     "elicitation"),
    Method("sampling/createMessage",   "<",  R1, "", R5,   no,  no,  "",     "sampling"),
    Method("roots/list",               "<",  R1, "", R5,   no,  no,  "",     "roots"),
)}

# basic/index §_meta: the reserved keys. The first three say who sends a modern request.
META_VERSION, META_CLIENT, META_CAPABILITIES, META_LOG_LEVEL, META_SUBSCRIPTION, META_SERVER = (
    "io.modelcontextprotocol/" + key for key in ("protocolVersion", "clientInfo",
    "clientCapabilities", "logLevel", "subscriptionId", "serverInfo"))

# The types of a request's params, and of its `_meta`. What may be None may also be left out.
maybe_str, maybe_dict = (str, type(None)), (dict, type(None))
RETRY = {"inputResponses": maybe_dict, "requestState": maybe_str}  # see section 3
PARAMS: dict[str, Message] = {
    "_meta":                 {META_VERSION: str, META_CAPABILITIES: dict, META_CLIENT: maybe_dict},
    "initialize":            {"protocolVersion": str, "capabilities": dict, "clientInfo": dict},
    "tools/call":            {"name": str, "arguments": maybe_dict, **RETRY},
    "resources/read":        {"uri": str, **RETRY},
    "resources/subscribe":   {"uri": str},
    "resources/unsubscribe": {"uri": str},
    "prompts/get":           {"name": str, "arguments": maybe_dict, **RETRY},
    "completion/complete":   {"ref": dict, "argument": dict, "context": maybe_dict},
    "logging/setLevel":      {"level": str},
    "subscriptions/listen":  {"notifications": dict},
}

# To add a notification: a row. A server sends it with Context.notify or Server.changed. `filter` is
# the member of a subscription's filter that asks for it.
Notification = namedtuple("Notification", "name way since until deprecated capability filter")
NOTIFICATIONS = {"notifications/" + row.name: row for row in (
    #            name                      way   since until depr. capability  filter
    Notification("cancelled",              "<>", R1, "", "",  "",          ""),
    Notification("progress",               "<>", R1, "", "",  "",          ""),
    Notification("message",                "<",  R1, "", R5,  "logging",   ""),
    Notification("tools/list_changed",     "<",  R1, "", "",  "tools",     "toolsListChanged"),
    Notification("prompts/list_changed",   "<",  R1, "", "",  "prompts",   "promptsListChanged"),
    Notification("resources/list_changed", "<",  R1, "", "",  "resources", "resourcesListChanged"),
    Notification("resources/updated",      "<",  R1, "", "",  "resources", "resourceSubscriptions"),
    Notification("subscriptions/acknowledged", "<", R5, "", "", "",        ""),
    Notification("elicitation/complete",   "<",  R4, R4, "",  "",          ""),
    Notification("initialized",            ">",  R1, R4, "",  "",          ""),
    Notification("roots/list_changed",     ">",  R1, R4, "",  "roots",     ""),
)}

# To add another difference: a row, and `"its name" in rules.features` where it matters. If the only
# difference is added or removed members, list them in `fields`: "kind.member", or "*.member".
Feature = namedtuple("Feature", "name since until fields deprecated", defaults=["", ""])
FEATURES = {row.name: row for row in (
    #       name                      since until fields
    Feature("caching hints",          R5, "", "result.ttlMs result.cacheScope"),
    Feature("result types",           R5, "", "result.resultType"),
    Feature("any structured content", R5, ""),
    Feature("header mirroring",       R5, ""),
    Feature("argument errors",        R4, ""),
    Feature("URL elicitation",        R4, "", "elicitation.url elicitation.mode"),
    Feature("elicitation ids",        R4, R4),
    Feature("rich forms",             R4, ""),
    Feature("sampling tools",         R4, "", "sampling.tools"),
    Feature("sampling context",       R4, "", "", R4),
    Feature("priming events",         R4, R4),
    Feature("icons",                  R4, "", "*.icons"),
    Feature("server description",     R4, "", "server.description server.websiteUrl"),
    Feature("titles",                 R3, "", "*.title"),
    Feature("_meta everywhere",       R3, "", "*._meta"),
    Feature("structured output",      R3, "", "tool.outputSchema result.structuredContent"),
    Feature("modification times",     R3, "", "annotations.lastModified"),
    Feature("resource links",         R3, ""),
    Feature("completion context",     R3, ""),
    Feature("version header",         R3, ""),
    Feature("audio",                  R2, ""),
    Feature("tool annotations",       R2, "", "tool.annotations"),
    Feature("progress messages",      R2, ""),
    Feature("completions capability", R2, ""),
    Feature("batches",                R2, R2),
    Feature("streamable sessions",    R2, R4),
    Feature("null id in errors",      R1, R3),
    Feature("HTTP+SSE",               R1, R1, "", R2),
)}

# To add an error: a row, and its name below. A code is understood in every revision and sent only
# in its own (basic/index §Error Codes). Choose your own codes outside the reserved range, which is
# -32768 to -32000. `status` is that of the HTTP answer, if no handler has started.
Error = namedtuple("Error", "code name since until status sent")
ERRORS = {row.code: row for row in (
    #     code    name                               since until HTTP sent
    Error(-32700, "ParseError",                      R1, "", 400, "by a transport: not JSON"),
    Error(-32600, "InvalidRequest",                  R1, "", 400, "JSON, but not a request"),
    Error(-32601, "MethodNotFound",                  R1, "", 404, "no such method here"),
    Error(-32602, "InvalidParams",                   R1, "", 400, "wrong params or unknown name"),
    Error(-32603, "InternalError",                   R1, "", 500, "a handler failed"),
    Error(-32020, "HeaderMismatch",                  R5, "", 400, "headers contradict the body"),
    Error(-32021, "MissingRequiredClientCapability", R5, "", 400, "the client cannot be asked"),
    Error(-32022, "UnsupportedProtocolVersion",      R5, "", 400, "`_meta` names another one"),
    Error(-32002, "ResourceNotFound",                R1, R4, 400, "no such resource (now -32602)"),
    Error(-32042, "URLElicitationRequired",          R4, R4, 400, "visit these pages, then retry"),
)}
(PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, HEADER_MISMATCH,
 MISSING_CAPABILITY, UNSUPPORTED_VERSION, RESOURCE_NOT_FOUND, URL_REQUIRED) = ERRORS

# server/utilities/logging §Log Levels: the eight of RFC 5424, least urgent first.
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# Names from LSP and from tutorials, and what is probably meant. A notification is understood; a
# request gets an error that mentions the right name.
MISNAMED = {
    "$/cancelRequest": "notifications/cancelled", "$/progress": "notifications/progress",
    "initialized": "notifications/initialized", "resources/get": "resources/read",
    "prompts/read": "prompts/get", "tools/execute": "tools/call"}


class Rules:
    """The tables as one revision sees them: sets of names, or of codes. See rules()."""
    def __init__(self, version: str) -> None:
        order = list(REVISIONS)
        here = order.index(version)
        def has(row: Any) -> bool:
            return order.index(row.until or order[0]) <= here <= order.index(row.since)
        self.version, self.modern = version, REVISIONS[version].era == "modern"
        tables: tuple[dict[Any, Any], ...] = (METHODS, NOTIFICATIONS, FEATURES, ERRORS)
        self.methods, self.notifications, self.features, self.errors = (
            frozenset(key for key, row in table.items() if has(row)) for table in tables)
        # The `fields` that this revision lacks:
        self.hidden = frozenset(field for row in FEATURES.values() if not has(row)
                                for field in row.fields.split())


rules = functools.cache(Rules)


def versions(era: str = "") -> list[str]:
    """List the revisions of an era, or all that are served, newest first."""
    served = ["modern"]
    served.append("legacy")  # [legacy]
    return [row.date for row in REVISIONS.values() if row.era in served and era in ("", row.era)]


# ======== 2. Messages and framing =========================================================
# From bytes to messages and back. On stdio a message is one line (basic/transports/stdio). It is
# written in ASCII, with \u escapes: safe under any code page, and no reader takes U+2028 for the
# end of a line.

MAX_MESSAGE_BYTES = 16 * 2**20  # of one message, in or out
MAX_BATCH = 100                 # messages in a batch


class RpcError(Exception):
    """An error for the other side: raise it in a handler to answer with it.

    `code`: an integer outside -32768 to -32000, or one of ERRORS. `data`: any JSON value.
    """
    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        super().__init__(message or (ERRORS[code].name if code in ERRORS else "error"))
        self.code, self.data = code, data


def invalid(problem: str, data: Any = None) -> RpcError:
    """Make the error for wrong params."""
    return RpcError(INVALID_PARAMS, "Invalid params: " + problem, data)


def without_none(**members: Any) -> Message:
    """Return the members that are not None; the others are not sent."""
    return {key: value for key, value in members.items() if value is not None}


def _refuse(found: Any) -> None:
    # NaN, Infinity, as Python reads them; an author's principal
    raise ValueError(f"this must be a JSON value: {found!r:.200}")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(data: bytes) -> Any:
    """Return the JSON value in UTF-8 `data`; RpcError with PARSE_ERROR if there is none."""
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message is larger than {MAX_MESSAGE_BYTES} bytes")
        return _decode(str(data, "utf-8").lstrip("\ufeff"))
    except (ValueError, RecursionError) as problem:
        raise RpcError(PARSE_ERROR, f"Parse error: {problem}") from None


def encode(message: Any) -> bytes:
    """Return a message as a line; TypeError, ValueError, RecursionError: it cannot be sent."""
    line = (_encode(message) + "\n").encode()
    if len(line) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message is larger than {MAX_MESSAGE_BYTES} bytes")
    return line


def to_base64(data: bytes) -> str:
    """Return bytes as base64."""
    import base64
    return base64.b64encode(data).decode()


def from_base64(source: str) -> bytes:
    """Return the bytes that base64 stands for; ValueError if it is malformed."""
    import base64
    return base64.b64decode(source, validate=True)


def unquote(text: str) -> str:
    """Decode percent escapes; `urllib` is slow to import."""
    return re.sub("(?:%[0-9A-Fa-f]{2})+", lambda escapes: bytes.fromhex(
        escapes[0].replace("%", "")).decode("utf-8", "replace"), text)


def is_id(value: Any) -> bool:
    """Tell whether a value may be an id or a progress token."""
    return type(value) in (str, int) and len(str(value)) < 2**16  # not bool


def kind_of(message: Any) -> str:
    """Tell the kind of a message: request, notification or response (basic/index §Messages).

    RpcError with INVALID_REQUEST if it is none of these. A malformed notification (a method, no
    id) or response (a result or error, no method) counts as one, because it must not be answered.
    """
    problem = "a message must be a JSON object"
    if isinstance(message, dict):
        method = message.get("method")
        if "id" not in message and isinstance(method, str):
            return "notification"
        if "method" not in message and message.keys() & {"result", "error"}:
            return "response"
        if message.get("jsonrpc") == "2.0" and isinstance(method, str) \
                and is_id(message.get("id")) and isinstance(message.get("params", {}), dict):
            return "request"
        problem = 'a request must have "jsonrpc": "2.0", an id (string or integer), a method ' \
            "(string), and params that are an object, if any"
    raise RpcError(INVALID_REQUEST, "Invalid request: " + problem)


def error_response(error: RpcError, message: Any, peer: Peer | None = None) -> Message:
    """Make the response to a message that cannot be served, with its id if valid."""
    ident = message.get("id") if isinstance(message, dict) else None
    response = {"jsonrpc": "2.0", "id": ident, "error": without_none(
        code=error.code, message=str(error), data=error.data)}
    if not is_id(ident):
        response.pop("id")  # basic/index §Error Responses
        if peer and peer.session and "null id in errors" in peer.session.rules.features:  # [legacy]
            response["id"] = None  # [legacy]
    return response


def is_ready(file: Any, to_write: bool = True) -> bool:
    """Tell whether a pipe or socket is ready; if unknown, only to write."""
    import selectors
    with suppress(AttributeError, OSError, TypeError, ValueError), getattr(
            selectors, "PollSelector", selectors.SelectSelector)() as selector:
        selector.register(file, selectors.EVENT_WRITE if to_write else selectors.EVENT_READ)
        return bool(selector.select(0))
    return to_write


def log(line: str) -> None:
    """Write a line to stderr; drop it if there is none, or if the host does not read it."""
    line = f"mcp_ref: {line[:4000 if line.isascii() else 650]}\n"
    with suppress(AttributeError, OSError, ValueError):
        if os.name == "nt" and sys.stderr is sys.__stderr__:  # pipes cannot be polled
            if str(threading.enumerate()).count("mcp-log") < MAX_THREADS:
                run_aside("mcp-log", lambda: os.write(2, line.encode(errors="replace")))
                time.sleep(0.001)  # keeps the order
        elif is_ready(sys.stderr):
            sys.stderr.write(line)
            sys.stderr.flush()  # PyPy buffers it


def tracer() -> Func:
    """Return trace(way, data, on, more), which appends to the file MCP_TRACE, if that is set.

    `way` is ">" from the client and "<" from the server; `on` is "stdio" or the client's port. What
    is not JSON becomes "text". Of `more`, no headers but Mcp-* are kept.
    """
    path, log_once = os.environ.get("MCP_TRACE", ""), functools.cache(log)
    def trace(way: str, data: bytes, on: Any = "stdio", more: Any = ()) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f"{now % 1:.3f}Z"[1:]
        kept = {name: value for name, value in dict(more).items()
                if name == "http" or name[:4] == "mcp-" or type(value) is int}
        for line in re.findall(b"(?m)^data: (.*)", data) or [data]:  # of events
            record = {"time": stamp, "way": way, "on": on, **kept}
            try:
                record.update({"message": decode(line)} if line else {})
            except RpcError:
                record["text"] = line.decode("utf-8", "backslashreplace")
            try:
                with open(path, "ab", opener=functools.partial(os.open, mode=0o600)) as file:
                    file.write(encode(record))
            except (OSError, ValueError, RecursionError) as problem:
                log_once(f"MCP_TRACE: {problem}")
    return trace if path else lambda *_: None


def run_aside(name: str, work: Func) -> None:
    """Run something on a thread of its own, or here if there is none."""
    with suppress(RuntimeError):
        return threading.Thread(target=work, name=name, daemon=True).start()
    with suppress(BaseException):  # it is not the caller's
        work()


def log_failure(what: str, problem: BaseException) -> None:
    """Log an exception of a handler, from the first frame outside this file on."""
    import traceback
    frames = problem.__traceback__
    while frames and frames.tb_next and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    log(f"{what} failed\n" + "".join(
        traceback.format_exception(type(problem), problem, frames)).rstrip())


# ======== 3. One request: Context, asking the client, signed request state ================
# Every request gets a Context: admit() checks whether it may be served, run() calls its function
# and sends the response. The function usually calls a *handler*, which an author registered. The
# handler uses the Context to report progress, and to ask the client.
#
# A modern server cannot send requests. So a handler that asks is stopped (by an exception), and the
# request is answered "input required", with the questions inside. The client sends it again, with
# the answers; the handler runs again from its first line, and now finds them. Hence its rules:
#
#     ask first, act afterwards  code before a question (or in `finally`) runs every time
#     ask the same every time    a question that contains the time of day is new on every run
#     do not trust the answer    the client sends it; maybe no user has seen the question
#     expect repetition          a client may send the same answers twice
#
# The *peer* is the other end of a pipe or a session (section 5); the *principal* is the caller, if
# the transport knows; a *flaw* is what a Schema finds wrong with a value: a text, or None. In a
# session, LegacyContext (section 10) takes the place of Context.
# A request ends once: answered, cancelled by the client, or abandoned because the client has left.
# Context._end() is the only place that decides which.

STATE_SECONDS = 900  # until request state expires
ASK_SECONDS = 300    # how long a legacy handler waits for an answer
MAX_RUNNING = 1000   # requests that one peer may have in flight


class NotFound(Exception):
    """Raise it in a resource's handler: there is no such resource."""


class AskError(Exception):
    """A question got no usable answer. `error` is the client's error object, if it sent one."""
    def __init__(self, message: str, error: Message | None = None) -> None:
        super().__init__(message)
        self.error = error


class ClientLacks(RpcError):
    """The client did not declare the capability that a question needs (basic/index §_meta)."""


class InputRequired(BaseException):
    """Stops a handler that lacks answers; not an Exception, which it might catch itself."""


class Context:
    """One request, as its handler sees it: declare a parameter `ctx: Context` to get it.

    `meta` is params._meta; `client_info` and `client_capabilities` may be made up; `principal` is
    what `authorize=` returned. When the client cancels, `cancelled` becomes True: stop soon.
    """
    cancelled = False
    filter: Message  # what a subscription asks for
    closing: Func | None = None  # ends a subscription
    _ended = False  # nothing more is sent
    _progress = float("-inf")  # the last that was sent

    def __init__(self, server: Server, peer: Peer, send: Send, message: Message, meta: Message,
                 principal: Any) -> None:
        self.server, self.peer, self.principal = server, peer, principal
        self.id, self.method = message["id"], message["method"]
        self.params: Message = message.get("params", {})
        self.meta, self.send = meta, send
        self.lock = threading.RLock()  # orders the messages; held while one is sent
        self._ending = threading.Lock()  # guards all below; held briefly
        self._wakes: list[Func] = []  # for cancel() to call
        self._asked: set[str] = set()  # keys of the questions in this run
        self._missing: Message = {}  # the questions that have no answer, by key
        self._names: dict[str, str] = {}  # digests of the questions so far, by key
        self._answers: Message = {}  # by such a digest

    # ---- being served
    def admit(self, start: Func) -> None:
        """Check that the request may be served, and start its handler; RpcError: it may not."""
        version: Any = self.meta.get(META_VERSION)
        if self.method == "initialize" and version is None:  # a copy without part III
            version = self.params.get("protocolVersion", "")
        else:
            check_params("_meta", self.meta)
            if self.meta.get(META_LOG_LEVEL, "info") not in LOG_LEVELS:
                raise invalid(f"{META_LOG_LEVEL} must be one of " + ", ".join(LOG_LEVELS))
            self.peer.check(self)
        if META_VERSION not in self.meta or version not in REVISIONS or not rules(version).modern:
            raise RpcError(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version!s:.40}",
                           {"supported": versions(), "requested": version})
        self._resolve(version, self.meta)
        self._submit(start)

    def _resolve(self, version: str, client: Message) -> None:
        """Find the method's function, check its params. `client` has the keys of a `_meta`."""
        self.version, self.rules, self.client = version, rules(version), client
        self.client_info: Message = client.get(META_CLIENT) or {}
        self.client_capabilities: Message = client[META_CAPABILITIES]
        method, server = self.method, self.server
        self.row = row = METHODS.get(method)  # None: an extension's
        self.function: Any = serve_extension if method in server.methods else SERVED.get(method)
        if not self.function or (row and not (
                method in self.rules.methods and row.capability in server.declared)):
            meant = f"; did you mean {MISNAMED[method]}?" if method in MISNAMED else ""
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method:.200}{meant}")
        self.may_ask = row and row.asks and method not in server.methods
        check_params(method, self.params)

    def _submit(self, start: Func) -> None:
        """Have the handler run."""
        if len(self.peer.running) >= MAX_RUNNING:
            raise RpcError(INTERNAL_ERROR, f"{MAX_RUNNING} requests are running: wait for some")
        self.peer.running[self.id] = self
        start(self.run)

    def run(self) -> None:
        """Run the handler and send the response, whatever happens."""
        response = {} if self.cancelled else self._outcome()
        if response is not None:
            self.finish(response)

    def _outcome(self) -> Message | None:
        """Run the handler and return the response; None: finish() will be called later."""
        try:
            self._restore()
            try:
                result = self.function(self.server, self)
            except BaseException:  # InputRequired, or the group of an asyncio.TaskGroup with it
                if not self._missing:
                    raise
                # basic/patterns/mrtr §InputRequiredResult
                state = encode([time.time() + STATE_SECONDS, self._names, self._answers])
                return self._respond({
                    "resultType": "input_required", "inputRequests": dict(self._missing),
                    "requestState": self._sign(to_base64(state)),
                    "_meta": {META_SERVER: self.server.brief}})
            return None if result is None else self._respond(self._shape(result))
        except RpcError as problem:
            error = problem
        except NotFound:  # server/resources §Error Handling
            code = RESOURCE_NOT_FOUND if RESOURCE_NOT_FOUND in self.rules.errors else INVALID_PARAMS
            error = RpcError(code, "Resource not found", {"uri": self.params.get("uri")})
        except BaseException as problem:  # noqa: BLE001  SystemExit too: the server goes on
            error = RpcError(INTERNAL_ERROR)
            if not self.cancelled:
                log_failure(self.method, problem)
        return self._failure(error)

    def finish(self, response: Message) -> None:
        """Send the response, unless the request has ended; its id may be used again."""
        self.peer.running.pop(self.id, None)
        with self.lock:
            if self._end():
                try:
                    self.send(response)
                except (TypeError, ValueError, RecursionError) as problem:
                    log(f"the result of {self.method} cannot be sent: {problem}")
                    self.send(self._failure(RpcError(INTERNAL_ERROR)))

    def _end(self, cancelled: bool = False) -> bool:
        """End the request; False if it had ended."""
        with self._ending:
            ended, self._ended = self._ended, True
            self.cancelled = self.cancelled or cancelled and not ended
            return not ended

    def _respond(self, result: Message) -> Message:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def _shape(self, result: Message) -> Message:
        """Complete a result: basic/index §ResultType, server/utilities/caching."""
        hints = self.server.cache_hints if self.row and self.row.cacheable else {}
        meta = {META_SERVER: self.server.brief, **result.get("_meta", {})}
        return {"resultType": "complete", **hints, **result, "_meta": meta}

    def _failure(self, error: RpcError) -> Message:
        """Make an error response; a reserved code that the revision lacks is -32603."""
        if -32768 <= error.code <= -32000 and error.code not in self.rules.errors:
            error = RpcError(INTERNAL_ERROR, str(error), error.data)
        return error_response(error, {"id": self.id})

    # ---- telling the client something while the request runs
    def _emit(self, message: Message) -> None:
        """Send a message of this request, unless it has ended."""
        with self.lock:
            if not self._ended:
                self.send(message)

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to this request, if its revision has it."""
        if method not in NOTIFICATIONS or method in self.rules.notifications:
            self._emit({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def progress(self, progress: float, total: float | None = None,
                 message: str | None = None) -> None:
        """Report progress, if requested, and only when it increases: basic/patterns/progress."""
        token = self.meta.get("progressToken")
        with self.lock:
            if is_id(token) and progress > self._progress:
                self._progress = progress
                self.notify("notifications/progress", without_none(
                    progressToken=token, progress=progress, total=total, message=message))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a JSON value, if the client asked for this level of LOG_LEVELS. [deprecated]"""
        if self.client.get(META_LOG_LEVEL) in LOG_LEVELS[:LOG_LEVELS.index(level) + 1]:
            self.notify("notifications/message", without_none(
                level=level, logger=logger, data=data))

    def tell(self, method: str, params: Message) -> None:
        """Send a notification of this subscription: basic/patterns/subscriptions."""
        if not self.peer.can_write():
            self.cancel()  # the client isn't reading; don't block the caller
        self.notify(method, {**params, "_meta": {META_SUBSCRIPTION: self.id}})

    def end_subscription(self) -> None:
        """Forget a subscription; unless the client has cancelled it, say so, and respond."""
        self.server.listeners.pop(self, None)
        if self.peer.running.pop(self.id, None) and not self.cancelled:
            self.tell("notifications/cancelled", {"requestId": self.id, "reason": "closing"})
            self.finish(self._respond(self._shape({"_meta": {META_SUBSCRIPTION: self.id}})))

    def close_stream(self) -> None:
        """[legacy] Over HTTP, disconnect and go on; the client comes back for the rest."""

    def on_cancel(self, function: Func) -> None:
        """Have a function called once, on its own thread, if the client cancels."""
        self.wake_with(functools.partial(run_aside, "mcp-cancel", function))

    def wake_with(self, wake: Func) -> None:
        """Have cancel() call a function that does not block, once."""
        with self._ending:
            if not self.cancelled:
                return self._wakes.append(wake)
        wake()

    def cancel(self) -> None:
        """End the request without a response. Does not block; may be called on any thread."""
        if self._end(cancelled=True):
            for wake in self._wakes:
                wake()

    # ---- asking for user input, model output, or folders
    def elicit(self, message: str, /, *, key: str = "", **form: Any) -> Message:
        """Ask elicitation(); returns {"action": "accept" | "decline" | "cancel", "content": {}}."""
        return self._ask_one(key, elicitation(message, **form))

    def sample(self, messages: Any, *, key: str = "", **options: Any) -> Message:
        """Ask sampling(); returns {"role", "content", "model", ...}."""
        return self._ask_one(key, sampling(messages, **options))

    def list_roots(self, *, key: str = "") -> Any:
        """Ask roots(); returns [{"uri": "file://...", "name": ...}, ...]."""
        return self._ask_one(key, roots())["roots"]

    def _ask_one(self, key: str, question: Message) -> Message:
        key = key or digest(question)[:16]
        return dict(self.ask({key: question})[key])

    def ask(self, questions: Message) -> Message:
        """Ask {key: elicitation(...) | sampling(...) | roots()} at once; return answers by key.

        ClientLacks: the client did not declare what is needed. AskError: it answers with an error,
        or not at all. ValueError: a key is used twice in a run. RuntimeError: a coroutine asks.
        """
        if self.server.is_on_loop():
            raise RuntimeError("a coroutine asks with `await asyncio.to_thread(ctx.elicit, ...)`")
        for question in questions.values():
            name, params = METHODS[question["method"]].capability, question.get("params", {})
            part = params.get("mode", "tools" if "tools" in params else "")
            declared = self.client_capabilities.get(name)
            # client/elicitation §Capabilities: `elicitation: {}` means forms.
            if not isinstance(declared, dict) or part and part not in declared \
                    and (part != "form" or "url" in declared):
                needed = f"`{name}.{part}`" if part else f"`{name}`"
                raise ClientLacks(MISSING_CAPABILITY, f"the client did not declare {needed}",
                                  {"requiredCapabilities": {name: {part: {}} if part else {}}})
        with self._ending:
            if self._asked & questions.keys():
                raise ValueError("the same question was asked twice: give each its own key=")
            self._asked.update(questions)
        return self._obtain(questions)

    def _obtain(self, questions: Message) -> Message:
        """Take the answers in the request; stop the handler if one is missing or unusable."""
        if not self.may_ask:
            raise RuntimeError(f"a handler of {self.method} must not ask the client")
        names = {key: digest(question)[:16] for key, question in questions.items()}
        by_key = "requestState" not in self.params  # nothing else says what was asked
        found = {key: self._answers[one] for key, name in names.items()
                 for one in ([name, key] if by_key else [name]) if one in self._answers}
        missing = {key: question for key, question in questions.items()
                   if key not in found or flaw_of_answer(question, found[key])}
        with self._ending:
            self._names.update(names)
            self._missing.update(missing)
        if missing:
            raise InputRequired
        return found

    # ---- request state: the answers so far, kept by the client between two runs. It can read but
    # not change them: they are signed, together with the request and the principal, and expire.
    # (basic/patterns/mrtr §Server Requirements) The same key with other words finds no answer.
    def _restore(self) -> None:
        """Take the answers from the request and its state; RpcError if that is invalid."""
        if not self.may_ask:
            return
        state = self.params.get("requestState")
        if state is not None:
            import hmac
            expires, body = 0, state.partition(".")[0]
            if state.isascii() and hmac.compare_digest(self._sign(body), state):
                expires, self._names, self._answers = decode(from_base64(body))
            if expires < time.time():
                raise invalid("requestState is not valid here, or has expired: retry without it")
        for key, answer in (self.params.get("inputResponses") or {}).items():
            self._answers[self._names.get(key, key)] = answer

    def _sign(self, body: str) -> str:
        """Return request state that is valid for this request and principal only."""
        import hmac
        params = {key: self.params[key] for key in self.params.keys() - RETRY.keys() - {"_meta"}}
        bound = digest([body, self.method, params, self.principal])
        return body + "." + hmac.new(self.server.state_key, bound.encode(), "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    import hashlib
    text = json.dumps(value, sort_keys=True, allow_nan=False, default=_refuse)
    return hashlib.sha256(text.encode()).hexdigest()


# ---- the questions: requests without an id
def elicitation(message: str, /, *, url: str = "", schema: Message | None = None,
                **fields: Any) -> Message:
    """Make a question to the user: a page to visit, or a form, elicitation("Sure?", yes=bool).

    A field is a hint (str, int, float, bool, a Literal, an Enum, a list of choices, or Optional), a
    pair of hint and default, or a JSON Schema. Ask for secrets with `url`. (client/elicitation)
    """
    form = {"mode": "url", "url": url} if url else {
        "mode": "form", "requestedSchema": schema or form_of(fields)}
    return {"method": "elicitation/create", "params": {"message": message, **form}}


def sampling(messages: Any, *, max_tokens: int = 1000, **options: Any) -> Message:
    """Make a question to the client's model; for options see client/sampling. [deprecated]"""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": text(messages)}]
    return {"method": "sampling/createMessage", "params": {
        "messages": messages, "maxTokens": max_tokens, **options}}


def roots() -> Message:
    """Make the question for the client's roots. [deprecated: use tool arguments]"""
    return {"method": "roots/list"}


_ANSWERS: dict[str, Message] = {  # what an answer must look like
    "elicitation/create": {"required": ["action"], "properties": {
        "action": {"enum": ["accept", "decline", "cancel"]}}},
    "sampling/createMessage": {"required": ["role", "content", "model"]},
    "roots/list": {"required": ["roots"], "properties": {"roots": {
        "type": "array", "items": {"type": "object", "required": ["uri"]}}}},
}


def flaw_of_answer(question: Message, answer: Any) -> str | None:
    """Say what is wrong with an answer, if anything (client/elicitation §Form Mode Security)."""
    schema = _ANSWERS[question["method"]]
    form = question.get("params", {}).get("requestedSchema")
    if form and isinstance(answer, dict) and answer.get("action") == "accept":
        schema = {"required": ["content"], "properties": {"content": form}}
    return Schema({"type": "object", **schema}).flaw(answer)


# ======== 4. The server: registering, dispatch, one function per method, results ==========
# The whole server is `handle(message, send)`: a message comes in, messages go out. There are two
# ways to fail (server/tools §Error Handling): a *result* with `isError` is for the model to read,
# an *error* is for the program that sent the request.
#
#     what happens                            in a tool                   in any other handler
#     RpcError is raised                      that error                  that error
#     ClientLacks: the client cannot be asked -32021 (legacy: isError)    -32021 (legacy: -32603)
#     NotFound is raised                      isError                     no such resource
#     any other exception                     isError, with its text      -32603, without its text
#     arguments that break the schema         isError (until R3: -32602)  -32602
#     a result that breaks the output schema  isError
#
# So a tool's exception is read by a model: word it accordingly. Tracebacks go to stderr only.
# An *Entry* (section A) is a registered function with its schemas; lists show its `definition`.

MAX_COMPLETIONS = 100  # values: server/utilities/completion §Completion Results
# basic/versioning §Capability Negotiation: what the server declares once a feature is registered.
CAPABILITIES: dict[str, Message] = {
    "tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True}, "completions": {}, "logging": {}}


class Server:
    """An MCP server: register functions with its decorators, then run() it, or call handle().

    `instructions` tell a model how to use it. `page_size`: items per page of a list (None: all).
    `state_key` signs request state; processes that serve the same clients must share it. `run`
    puts handlers on a thread: it is given a function without arguments, to be called once.
    `loop`: the asyncio event loop of `async def` handlers; None: one on a thread of its own.
    `ttl_ms` and `cache_scope` ("private", "public") are caching hints. `info`: title, description,
    websiteUrl, icons. To unregister, delete from the dicts `tools`, `resources`, `templates`,
    `prompts`, and call changed(). `on_watch` is called with each URI that clients subscribe to.
    """
    served = made = False  # whether any server of this process was served, or made

    def __init__(self, name: str, version: str = "1.0", instructions: str | None = None,
                 page_size: int | None = None, state_key: bytes | str | None = None,
                 run: Func | None = None, *, loop: Any = None, ttl_ms: int = 0,
                 cache_scope: str = "private", **info: Any) -> None:
        Server.made, self.brief = True, {"name": name, "version": version}  # in every result
        self.info = {**self.brief, **checked_options(info, "title description websiteUrl icons")}
        self.instructions, self.page_size = instructions, page_size
        key = state_key or os.urandom(32)
        self.state_key = key.encode() if isinstance(key, str) else key
        self.cache_hints = {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        self.tools: dict[str, Entry] = {}
        self.resources: dict[str, Entry] = {}
        self.templates: dict[str, Entry] = {}
        self.prompts: dict[str, Entry] = {}
        self.completions: dict[Any, Entry] = {}
        self.methods: dict[str, Entry] = {}  # extension methods
        self.mirrored: dict[str, str] = {}  # their params that HTTP repeats in Mcp-Name
        self.extensions: dict[str, Message] = {}  # settings, by identifier
        self.on_watch: Func = drop
        self.listeners: dict[Any, None] = {}  # what has a `filter` and tell()
        self._run_on, self._given_loop, self._loop = run, loop, loop  # type: Any, Any, Any
        self._lock = threading.Lock()  # guards its start
        self.declared = {"", "logging"}  # capabilities; those of deleted tools stay

    # ---- registering. `members` are title, description, icons and _meta; tools and resources also
    # have annotations, resources size. TypeError, ValueError: the function cannot be used.
    def tool(self, function: Func | None = None, *, name: str = "",
             input_schema: Message | None = None, output_schema: Message | None = None,
             **members: Any) -> Any:
        """Register a function as a tool: hints become its schemas, the docstring its description.

        It returns text, content (see text(), image(), ...), a list of these, a complete result
        {"content": [...]}, or any other value, sent as JSON. (server/tools §Tool)
        """
        def register(function: Func) -> Func:
            entry = Entry(function, input_schema, output_schema)
            if entry.input_schema.get("type") != "object":
                raise ValueError('an input schema must have "type": "object"')
            return self._add("tools", name or entry.name, entry, members, "annotations",
                             inputSchema=entry.input_schema, outputSchema=entry.output_schema)
        return register(function) if function else register

    def resource(self, uri: str, *, name: str = "", mime_type: str | None = None,
                 ttl_ms: int | None = None, cache_scope: str | None = None,
                 **members: Any) -> Func:
        """Register a function as a resource; with {variables} in the URI, as a resource template.

        It returns text, bytes, {"text" or "blob": ..., "uri", "mimeType"} or a list of such dicts,
        or any other value, sent as JSON. `{id}` stands for one path segment, `{+path}` for several.
        """
        pattern = re.sub(r"\\\{(\\\+)?([A-Za-z_]\w*)\\\}", lambda found: "(?P<{}>{})".format(
            found[2], ".+" if found[1] else "[^/?#]+"), re.escape(uri))
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*", uri) or re.search("[{}]", pattern):
            raise ValueError(f"{uri!r} must be an ASCII URI with a scheme, {{name}} or {{+name}}")
        def register(function: Func) -> Func:
            entry = Entry(function, output_schema={})
            entry.pattern = re.compile(pattern, re.DOTALL)
            entry.cache_hints = without_none(ttlMs=ttl_ms, cacheScope=cache_scope)
            if set(entry.pattern.groupindex) != set(entry.parameters):
                raise ValueError(f"{entry.name}() must have the variables of {uri} as parameters")
            return self._add("templates" if entry.parameters else "resources", uri, entry, members,
                             "annotations size", name=name or entry.name, mimeType=mime_type)
        return register

    def prompt(self, function: Func | None = None, *, name: str = "", **members: Any) -> Any:
        """Register a function as a prompt; its parameters become arguments, which are strings.

        It returns text or content (from the user), {"role", "content"}, or a list of these.
        """
        def register(function: Func) -> Func:
            entry = Entry(function, output_schema={})
            arguments = [without_none(name=parameter, description=schema.get("description"),
                                      required=parameter in entry.required or None)
                         for parameter, schema in entry.input_schema["properties"].items()] or None
            return self._add("prompts", name or entry.name, entry, members, arguments=arguments)
        return register(function) if function else register

    def _add(self, kind: str, name: str, entry: Entry, members: Message, options: str = "", /,
             **derived: Any) -> Func:
        table = getattr(self, kind)
        if name in table:
            raise ValueError(f"{name!r} is already registered")
        key = {"templates": "uriTemplate", "resources": "uri"}.get(kind, "name")
        entry.definition = {
            key: name, **without_none(description=entry.description or None, **derived),
            **checked_options(members, "title description icons _meta " + options)}
        table[name] = entry
        self.declared.add("resources" if kind == "templates" else kind)
        return entry.function

    def completion(self, reference: str, argument: str) -> Func:
        """Register a completer for an argument: (text so far, dict of the others) -> all values."""
        def register(function: Func) -> Func:
            self.completions[reference, argument] = Entry(function, {})
            self.declared.add("completions")
            return function
        return register

    def method(self, name: str, *, extension: str = "", settings: Message | None = None,
               mirrored: str = "") -> Func:
        """Register a function for a method of an extension: it takes params, returns a result.

        capabilities.extensions lists the `settings` under `extension`, or else the method's name.
        `mirrored`: the param that HTTP repeats in Mcp-Name. A method of the core is replaced.
        """
        if "/" not in (extension or name):
            raise ValueError(f"{name!r}: the method of an extension needs a prefix/")
        def register(function: Func) -> Func:
            self.methods[name], self.mirrored[name] = Entry(function, {}), mirrored
            if name in METHODS:
                self.declared.add(METHODS[name].capability)
            else:
                self.extensions.setdefault(extension or name, {}).update(settings or {})
            return function
        return register

    def capabilities(self, version: str) -> Message:
        """Return the server's capabilities, derived from what is registered."""
        declared = {name: CAPABILITIES[name] for name in CAPABILITIES if name in self.declared}
        return {**declared, **without_none(extensions=dict(self.extensions) or None)}

    # ---- dispatch
    def handle(self, message: Any, send: Send, *, peer: Peer | None = None, principal: Any = None,
               start: Func = lambda work: work()) -> None:
        """Serve one decoded message, on any thread: `send` gets what results from it.

        `peer` is what outlives the message; a modern client does not need one. `start` is given the
        handler, a function without arguments, and runs it on the thread of its choice.
        """
        peer = peer or Peer()
        if isinstance(message, list):  # [legacy]
            return serve_batch(self, message, send, peer, principal, start)  # [legacy]
        try:
            kind = kind_of(message)
            if kind == "request":
                meta = message.get("params", {}).get("_meta", {})
                if not isinstance(meta, dict):
                    raise invalid("_meta must be an object")
                if message["id"] in peer.running:
                    raise RpcError(INVALID_REQUEST, "Invalid request: the id is in use")
                # The era is decided for each request: some hosts mix both on one pipe.
                era = Context
                if META_VERSION not in meta:  # [legacy]
                    era = LegacyContext  # [legacy]
                era(self, peer, send, message, meta, principal).admit(start)
            elif kind == "notification":
                peer.take_notification(message)
            elif is_id(message.get("id")):  # [legacy]
                peer.questions.pop(message["id"], drop)(message)  # [legacy]
        except RpcError as error:
            send(error_response(error, message, peer))
        except RecursionError:
            send(error_response(invalid("nested too deeply"), message, peer))

    def call_handler(self, entry: Entry, arguments: Message, ctx: Context, *values: Any) -> Any:
        """Call a registered function on the thread where it is to run."""
        call = functools.partial(entry.call, arguments, ctx, *values)
        result = self._call_elsewhere(call) if self._run_on and not entry.is_async else call()
        return self._await(result, ctx) if isinstance(result, types.CoroutineType) else result

    def _call_elsewhere(self, call: Func) -> Any:
        """Have `run=` call a function, and wait for its result."""
        from concurrent.futures import Future
        outcome: Future[Any] = Future()
        def thunk() -> None:
            try:
                outcome.set_result(call())
            except BaseException as problem:  # raised again where it belongs
                outcome.set_exception(problem)
                if isinstance(problem, (KeyboardInterrupt, SystemExit)):
                    raise  # it concerns this thread, too
        self._run_on(thunk)
        return outcome.result()

    def _await(self, coroutine: Any, ctx: Context) -> Any:
        """Run a coroutine on the event loop, and wait for its result on this thread."""
        import asyncio
        def run_forever() -> None:
            while True:
                with suppress(SystemExit, KeyboardInterrupt):  # of a handler
                    loop.run_forever()
        with self._lock:
            if not self._loop:
                loop = asyncio.new_event_loop()
                threading.Thread(target=run_forever, name="mcp-loop", daemon=True).start()
                self._loop = loop
        if self.is_on_loop() or self._given_loop and not self._loop.is_running():
            coroutine.close()
            raise RuntimeError("loop= must run, and on another thread than the request")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        ctx.wake_with(future.cancel)
        return future.result()

    def is_on_loop(self) -> bool:
        """Tell whether this is the thread of `async def` handlers, which must not wait."""
        return bool(self._loop and sys.modules["asyncio"]._get_running_loop() is self._loop)

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Call a tool, for an author's own tests; ClientLacks if it asks, RpcError for an error."""
        request = {"id": 1, "method": "tools/call",
                   "params": {"name": name, "arguments": arguments}}
        meta = {META_VERSION: versions("modern")[0], META_CAPABILITIES: {}}
        ctx = Context(self, Peer(), drop, request, meta, None)
        ctx.admit(drop)
        return ctx._shape(ctx.function(self, ctx))

    def changed(self, what: str) -> None:
        """Tell clients that "tools", "prompts", "resources" (their lists) or a URI changed."""
        name = "notifications/" + ("resources/updated" if ":" in what else what + "/list_changed")
        if name not in NOTIFICATIONS:
            raise ValueError(f"{what!r}: expected tools, prompts, resources or a URI")
        for listener in list(self.listeners):
            granted = listener.filter.get(NOTIFICATIONS[name].filter, ())
            if what in granted if ":" in what else granted:
                listener.tell(name, {"uri": what} if ":" in what else {})

    def run(self, arguments: list[str] | None = None, **options: Any) -> None:
        """Serve on stdio, or with `--http [HOST:]PORT` over HTTP; `options`: see Endpoint.

        `arguments` are those of the command line, if not given. Returns when the client has left,
        or after SIGINT or SIGTERM. Cleaning up, and the exit status, are yours.
        """
        if self.is_on_loop():
            raise RuntimeError("run() would block loop=: await asyncio.to_thread(server.run)")
        words = " ".join(sys.argv[1:] if arguments is None else arguments).replace("=", " ").split()
        if "--http" not in words:
            serve_stdio(self)
        elif "serve_http" in globals():
            serve_http_at(self, words[words.index("--http") + 1:], options)
        else:
            raise SystemExit("--http needs part II of mcp_ref.py, which this copy lacks")


# ---- one function per method: a server and a Context come in, a result goes out
def serve_discover(server: Server, ctx: Context) -> Message:
    """server/discover §Response."""
    return {"supportedVersions": versions(), "capabilities": server.capabilities(ctx.version),
            **without_none(instructions=server.instructions), "_meta": {META_SERVER: server.info}}


def serve_listen(server: Server, ctx: Context) -> Message | None:
    """basic/patterns/subscriptions: acknowledge what is granted, then wait for the end."""
    wanted = ctx.params["notifications"]
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise invalid("resourceSubscriptions must be an array of strings")
    ctx.filter = {row.filter: wanted[row.filter] for row in NOTIFICATIONS.values()
                  if row.filter and row.capability in server.declared and wanted.get(row.filter)}
    for uri in ctx.filter.get("resourceSubscriptions", ()):
        server.on_watch(uri)
    # Listen before acknowledging, or a change in between would be lost; the lock orders the two.
    with ctx.lock:
        server.listeners[ctx] = None
        ctx.notify("notifications/subscriptions/acknowledged", {
            "notifications": ctx.filter, "_meta": {META_SUBSCRIPTION: ctx.id}})
    return ctx.peer.carry(ctx)


def serve_list(server: Server, ctx: Context) -> Message:
    """server/utilities/pagination: a page of definitions, in the order of registration."""
    kind = ctx.method.split("/")[-2]
    member = "resourceTemplates" if kind == "templates" else kind
    definitions = [entry.definition for entry in list(getattr(server, kind).values())]
    size = server.page_size or len(definitions) or 1
    cursor = ctx.params.get("cursor") or "0"
    if cursor not in map(str, range(0, len(definitions) + 1, size)):
        raise invalid("unknown cursor; list again without one")
    stop = int(cursor) + size
    return {member: definitions[stop - size:stop],
            **without_none(nextCursor=str(stop) if stop < len(definitions) else None)}


def serve_call_tool(server: Server, ctx: Context) -> Message:
    """server/tools §Calling Tools, §Error Handling."""
    name, arguments = ctx.params["name"], ctx.params.get("arguments") or {}
    entry = find_entry(server.tools, name, "tool")
    if flaw := entry.input.flaw(arguments):
        if "argument errors" in ctx.rules.features:
            return tool_error(f"Invalid arguments for {name}: {flaw}")
        field, _, reason = flaw.partition(": ")
        raise invalid(flaw, {"field": field.lstrip("/"), "reason": reason})
    try:
        return tool_result(ctx, entry, server.call_handler(entry, arguments, ctx))
    except RpcError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001
        if not ctx.cancelled:
            log_failure(f"tool {name}", problem)
        is_clear = problem.args and not isinstance(problem, KeyError)
        return tool_error(str(problem) if is_clear else repr(problem))


def find_entry(table: dict[str, Entry], name: str, kind: str) -> Entry:
    """Return the tool or prompt of this name, or RpcError."""
    if name not in table:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name:.200}")
    return table[name]


def serve_read(server: Server, ctx: Context) -> Message:
    """server/resources §Reading Resources."""
    uri = ctx.params["uri"]
    entry, variables = find_resource(server, uri)
    value = server.call_handler(entry, variables, ctx)
    parts = value if isinstance(value, list) and any(map(is_contents, value)) else [value]
    mime_type = entry.definition.get("mimeType")
    return {**entry.cache_hints, "contents": [contents(uri, mime_type, part) for part in parts]}


# server/resources §Security Considerations: a variable may become part of a path. An empty or
# absolute path, the folder itself, a drive, a segment "..", invalid characters:
_ESCAPES = re.compile(r"(?s)\.?([/\\]|$)|[A-Za-z]:|(.*[/\\])?\.\.([/\\]|$)|.*[\0\ufffd]").match


def find_resource(server: Server, uri: str) -> tuple[Entry, Message]:
    """Return the entry behind a URI and the values of its variables; or NotFound."""
    if uri in server.resources:
        return server.resources[uri], {}
    for template, entry in list(server.templates.items()):
        if match := entry.pattern.fullmatch(uri):
            values = {name: unquote(value) for name, value in match.groupdict().items()}
            for name, value in values.items():
                if _ESCAPES(value) or f"{{{name}}}" in template and re.search(r"[/\\]", value):
                    raise invalid(f"the value of {name} escapes its path segment")
            return entry, entry.parse(values)
    raise NotFound(uri)


def serve_get_prompt(server: Server, ctx: Context) -> Message:
    """server/prompts §Getting a Prompt, §PromptMessage."""
    entry = find_entry(server.prompts, ctx.params["name"], "prompt")
    value = server.call_handler(entry, entry.parse(ctx.params.get("arguments") or {}), ctx)
    messages = []
    for item in value if isinstance(value, list) else [value]:
        if not (isinstance(item, dict) and "role" in item):
            item = {"role": "user", "content": item}
        messages.append({**item, "content": content(item["content"])})
    return without_none(description=entry.definition.get("description"), messages=messages)


def serve_complete(server: Server, ctx: Context) -> Message:
    """server/utilities/completion §Requesting Completions."""
    reference, argument = ctx.params["ref"], ctx.params["argument"]
    name, typed = argument.get("name"), argument.get("value")
    if reference.get("type") == "ref/prompt":
        entry = find_entry(server.prompts, str(reference.get("name")), "prompt")
    else:
        uri = str(reference.get("uri"))
        entry = server.templates.get(uri) or find_resource(server, uri)[0]
    if name not in entry.parameters or not isinstance(typed, str):
        raise invalid("`argument` must have the name of an argument, and a string as its value")
    others = (ctx.params.get("context") or {}).get("arguments") or {}
    key = entry.definition.get("uriTemplate", entry.definition["name"])
    completer = server.completions.get((key, name))
    values = list(server.call_handler(completer, {}, ctx, typed, others)) if completer else []
    return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values),
                           "hasMore": len(values) > MAX_COMPLETIONS}}


def serve_extension(server: Server, ctx: Context) -> Message:
    """Serve a method that was registered with @server.method."""
    return server.call_handler(server.methods[ctx.method], {}, ctx, ctx.params) or {}


SERVED: dict[str, Func] = {
    "server/discover": serve_discover,
    "subscriptions/listen": serve_listen,
    **dict.fromkeys(("tools/list", "resources/list", "resources/templates/list", "prompts/list"),
                    serve_list),
    "tools/call": serve_call_tool,
    "resources/read": serve_read,
    "prompts/get": serve_get_prompt,
    "completion/complete": serve_complete,
}


def check_params(method: str, params: Message) -> None:
    """Check the types of a request's params, or of its `_meta`."""
    for name, expected in PARAMS.get(method, {}).items():
        if not isinstance(params.get(name), expected):
            raise invalid(f"{method}: {name} is missing or has the wrong type")


def checked_options(members: Message, names: str) -> Message:
    """Return the members that are given; TypeError for an unknown one."""
    for name in members.keys() - names.split():
        raise TypeError(f"unknown option {name!r}; expected one of: {names}")
    return without_none(**members)


# ---- content, and the results of tools
def text(value: str, **members: Any) -> Message:
    """Make text content. `members`, here and below: annotations, _meta."""
    return {"type": "text", "text": value, **members}


def image(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make image content."""
    return {"type": "image", "data": to_base64(data), "mimeType": mime_type, **members}


def audio(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make audio content; in 2024-11-05 it is sent as an embedded resource."""
    return {"type": "audio", "data": to_base64(data), "mimeType": mime_type, **members}


def embedded(uri: str, value: str | bytes, mime_type: str | None = None, **members: Any) -> Message:
    """Make an embedded resource: its contents are part of the result."""
    return {"type": "resource", "resource": contents(uri, mime_type, value), **members}


def link(uri: str, name: str, **members: Any) -> Message:
    """Make a link to a resource; before 2025-06-18 it is sent as text."""
    return {"type": "resource_link", "uri": uri, "name": name, **members}


def is_content(value: Any) -> bool:
    """Tell whether a value is text or content."""
    return isinstance(value, str) or isinstance(value, dict) and value.get("type") in (
        "text", "image", "audio", "resource", "resource_link")


def content(value: Any) -> Message:
    """Return content; text may be given as a string. TypeError for anything else."""
    if not is_content(value):
        raise TypeError(f"expected text or content, e.g. image(); found {type(value).__name__}")
    return text(value) if isinstance(value, str) else value


def is_contents(value: Any) -> bool:
    """Tell whether a value has the contents of a resource."""
    return isinstance(value, dict) and ("text" in value or "blob" in value)


def contents(uri: str, mime_type: str | None, value: Any) -> Message:
    """Make contents of what a resource returned: server/resources §Resource Contents."""
    if not is_contents(value):
        value = {"blob": value} if isinstance(value, bytes) else {"text": as_text(to_json(value))}
    if isinstance(value.get("blob"), bytes):
        value = {**value, "blob": to_base64(value["blob"])}
    return {**without_none(uri=uri, mimeType=mime_type), **value}


def as_text(value: Any) -> str:
    """Return a JSON value as text; a string as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tool_error(message: str) -> Message:
    """Make the result of a tool that failed."""
    return {"content": [text(message)], "isError": True}


def tool_result(ctx: Context, entry: Entry, value: Any) -> Message:
    """Make a result of what a tool returned: server/tools §Tool Result, §Output Schema."""
    if isinstance(value, dict) and "resultType" in value and ctx.rules.modern:
        return value  # of an extension
    blocks = value if isinstance(value, list) and value else [value]
    is_content_only = value is None or all(map(is_content, blocks))
    is_result = isinstance(value, dict) and isinstance(value.get("content"), list) and (
        not entry.output or "structuredContent" in value or value.get("isError"))
    if is_result:
        result = value
    elif is_content_only and not entry.output:
        result = {"content": [] if value is None else blocks}
    else:
        plain = to_json(value)
        result = {"content": [as_text(plain)]}
        if entry.output or isinstance(plain, dict):
            result["structuredContent"] = {"result": plain} if entry.wrapped else plain
    if entry.output and not result.get("isError"):
        flaw = entry.output.flaw(result.get("structuredContent"))
        if flaw:
            raise TypeError(f"{entry.name}() returned what its output schema forbids: {flaw}")
    return {**result, "content": [content(item) for item in result["content"]]}


# ======== 5. The peer: running requests, cancellation =====================================
# What outlives one message. On stdio there is one peer, the pipe. Over HTTP a legacy session has
# one, and so has every modern request. What sets `ctx.cancelled`, after which nothing more is sent
# for a request (basic/patterns/cancellation §Transport-Specific Cancellation):
#
#                                      stdio   HTTP, modern   HTTP, legacy session
#     notifications/cancelled          yes     no             yes
#     the client closes the stream     -       yes            no: it may fetch the rest
#     end of input, DELETE             later   -              no: what runs is finished


def drop(message: Any) -> None:
    """Discard a message."""


class Peer:
    """The other end of a pipe or a session: give the same one to every handle() that belongs to it.

    `send` takes messages that belong to no request. `ordered`: messages arrive in the order they
    were sent.
    """
    owner: Any = None  # the session of a stream  # [legacy]

    def __init__(self, send: Send | None = None, *, ordered: bool = True) -> None:
        self.send: Send = send or drop
        self.ordered, self.closed = ordered, False
        self.running: dict[Any, Context] = {}  # by id; single operations only, so no lock
        self.session: Session | None = None  # [legacy]
        self.questions: dict[Any, Send] = {}  # [legacy]
        self.question_ids = iter(range(1, sys.maxsize))  # [legacy]

    def check(self, ctx: Context) -> None:
        """Check what the transport knows of a modern request, before its version."""

    def can_write(self) -> bool:
        """Tell whether sending need not wait; True if unknown."""
        return True

    def carry(self, ctx: Context) -> Message | None:
        """Carry a subscription to its end; on a pipe, no thread has to wait for that."""
        closing = threading.Event()
        ctx.closing = ctx.end_subscription if self.ordered else closing.set
        ctx.wake_with(ctx.closing)
        if self.closed:
            ctx.closing()
        if not self.ordered:
            closing.wait()
            ctx.server.listeners.pop(ctx, None)
        return None if self.ordered else {"_meta": {META_SUBSCRIPTION: ctx.id}}

    def take_notification(self, message: Message) -> None:
        """Act on a notification; most need nothing."""
        name, params = MISNAMED.get(message["method"], message["method"]), message.get("params")
        if name == "notifications/cancelled" and isinstance(params, dict):
            ident = params.get("requestId", params.get("id"))  # LSP has `id`
            if ctx := self.running.get(ident) if is_id(ident) else None:
                ctx.cancel()
        elif name == "notifications/initialized" and self.session:  # [legacy]
            self.session.ready = True  # [legacy]

    def close(self) -> None:
        """End what waits for a client that has left: subscriptions, questions."""
        self.closed = True
        if self.session:  # [legacy]
            self.session.server.listeners.pop(self.session, None)  # [legacy]
        for ctx in list(self.running.values()):
            if ctx.closing:
                ctx.closing()
        for answer in list(self.questions.values()):  # [legacy]
            answer(None)  # [legacy]


# ======== 6. stdio ========================================================================
# One thread, the reader, reads a line and runs its handler on the spot, as fast as a plain loop.
# The main thread is a watchdog: if a handler takes longer than BLINK_SECONDS, it starts another
# reader, and the first one ends with its handler. While such slow handlers run, every further
# handler gets a thread of its own, so that no request waits for another. Where no thread can be
# started, the reader runs it: each request is still answered exactly once.
#
#     thread                       what it does
#     the caller of serve_stdio()  watches the reader, and waits for the end
#     mcp-reader                   reads, decodes, runs handlers that are fast
#     mcp-call, up to MAX_THREADS  runs a handler while slow ones are running
#     mcp-hang-up                  notices that the client has closed our stdout
#     mcp-cancel                   runs an on_cancel function
#     mcp-loop                     runs `async def` handlers
#
# Only messages may reach stdout. So descriptors 0 and 1 are moved away first, and print(), C
# libraries and child processes find the null device and stderr in their place.
#
# All threads are daemons: once serve_stdio() has returned, they hold nobody up.

MAX_THREADS = 64      # slow handlers at once; further ones wait
BLINK_SECONDS = 0.01  # until a handler counts as slow
LEAVE_SECONDS = 1.8   # for running handlers at the end of input; hosts kill after 2 s


class Turn:
    """A handler on the reader's thread. The thread that claims its turn reads on."""
    def __init__(self) -> None:
        lock = threading.Lock()
        self.claim = functools.partial(lock.acquire, False)  # takes it; False if it is taken
        self.taken = lock.locked


class Pipe(Peer):
    """The client at the other end of stdin and stdout."""
    def __init__(self, server: Server, source: int, out: int) -> None:
        super().__init__(self._write)
        self.server = server
        # A file puts its descriptor into binary mode; else \n is \r\n on Windows.
        self._source = os.fdopen(source, "rb", 2**16, closefd=False)
        self._out = os.fdopen(out, "wb", 0, closefd=False)
        self._trace = tracer()
        self._writing = threading.Lock()  # guards writing to stdout
        self._left = False  # the client has left, or a signal has come
        self._deadline = float("inf")  # until then, running handlers may finish
        self._threads: list[threading.Thread] = []  # one reads; if there are more, they are slow
        self._slots = threading.Semaphore(MAX_THREADS - 1)  # for all slow ones but the first
        self._turn = Turn()  # of the handler that a reader started last
        self._idle = False  # the watchdog sleeps until _wake is released
        self._wake = threading.Lock()
        self._wake.acquire()

    def _write(self, message: Any) -> None:
        line = encode(message)
        self._trace("<", line)
        try:
            with self._writing:
                while line:
                    line = line[self._out.write(line):]  # a pipe may take less than all
        except OSError:
            self.leave()  # nobody reads

    def leave(self, patience: float = 0.05) -> None:
        """Have serve() return. A signal handler may call this: it waits for no lock."""
        self._deadline = min(self._deadline, time.monotonic() + patience)
        self._left = True
        self._wake_up()

    def _wake_up(self) -> None:
        self._idle = False
        with suppress(RuntimeError):  # it is awake
            self._wake.release()

    def _spawn(self, name: str, target: Func, slots: Any = None) -> bool:
        """Start a thread, which first waits for a slot; False if there are none left."""
        def run() -> None:
            with slots or nullcontext():
                target()
            self._threads.remove(thread)
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        with suppress(RuntimeError):
            thread.start()
            return True
        self._threads.remove(thread)
        return False

    # ---- the reader: no queue and no other thread stands between a line and its handler
    def _read(self, mine: Turn) -> None:
        """Read and serve lines if it is our turn, until there are no more or another reads."""
        reading = mine.claim()
        def start(work: Func) -> None:
            nonlocal reading
            if len(self._threads) > 1 and self._spawn("mcp-call", work, self._slots):
                return
            self._turn = turn = Turn()
            if self._idle:
                self._wake_up()
            try:
                work()
            finally:
                reading = turn.claim()
        while reading and not self._left:
            try:
                line = part = self._source.readline(MAX_MESSAGE_BYTES + 2)
                while len(part) >= MAX_MESSAGE_BYTES and not part.endswith(b"\n"):
                    part = self._source.readline(MAX_MESSAGE_BYTES)  # the rest is skipped
            except OSError:
                line = b""
            if not line or self._left:
                self.leave(LEAVE_SECONDS)
            elif not line.isspace():
                self._serve(line.rstrip(b"\r\n"), start)

    def _serve(self, line: bytes, start: Func) -> None:
        """Serve one line. A bad line never stops the next."""
        message = None
        self._trace(">", line)
        try:
            message = decode(line)
            self.server.handle(message, self.send, peer=self, start=start)
        except RpcError as error:
            log(f"{error}, in: {line!s:.200}")
            self.send(error_response(error, None, self))
        except Exception as problem:  # noqa: BLE001  reading goes on
            log_failure("a message", problem)
            self.send(error_response(RpcError(INTERNAL_ERROR), message, self))

    # ---- the watchdog
    def serve(self) -> None:
        """Serve until the client leaves or a signal comes."""
        with suppress(RuntimeError):  # no threads left
            threading.Thread(target=self._await_hang_up, name="mcp-hang-up", daemon=True).start()
        try:
            if self._spawn("mcp-reader", functools.partial(self._read, self._turn)):
                self._watch()
            else:
                self._read(self._turn)  # without a watchdog
        finally:
            self._finish()

    def _watch(self) -> None:
        """Start another reader whenever two consecutive checks find the same handler unfinished.

        After a second without calls, checking stops until the next one: an idle server must not
        wake the CPU.
        """
        seen, checks = self._turn, 0
        while not self._left:
            if self._turn is not seen:
                seen, checks = self._turn, 0
            elif not seen.taken():  # if that fails, the next check tries again
                self._spawn("mcp-reader", functools.partial(self._read, seen))
            checks = checks + 1 if seen.taken() else 0
            self._idle = checks >= 100  # now a handler wakes us; check once more for an earlier one
            if checks > 100:
                self._wake.acquire(timeout=-1 if os.name == "posix" else 0.1)
            else:
                time.sleep(BLINK_SECONDS)

    def _await_hang_up(self) -> None:
        """Notice that the client has closed our stdout, even if nothing is written."""
        import select
        if hasattr(select, "poll"):  # on Windows, the next write notices it
            poll = select.poll()
            poll.register(self._out, 0)  # errors and hang-ups are always reported
            poll.poll()
            self.leave()

    def _finish(self) -> None:
        """Let running handlers finish, and abandon the others."""
        self.leave(LEAVE_SECONDS if self._left else 0.05)  # an author's signal handler may raise
        if not self._spawn("mcp-close", self.close):  # it may block
            self.close()
        while self._threads and time.monotonic() < self._deadline:
            time.sleep(BLINK_SECONDS)
        if self.running:
            log(f"the client has left; requests abandoned: {len(self.running)}")
        for ctx in list(self.running.values()):
            ctx.cancel()


@contextmanager
def signals(react: Func) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `react`, unless the author has set handlers.

    react(number) only sets flags. A second signal within LEAVE_SECONDS is ignored: hosts send
    SIGINT, then SIGTERM, and the author's cleanup must survive that. A later one ends the process,
    unless `react` returns True.
    """
    import signal
    last, found = 0.0, {}  # type: float, dict[Any, Any]
    def handle(number: int, frame: Any) -> None:
        nonlocal last
        if last and time.monotonic() - last < LEAVE_SECONDS:
            return
        if not react(number) and last:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        last = time.monotonic()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                found[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number in () if last else found:
            signal.signal(number, found[number])


_guarded: list[int] = []  # where the client's descriptors are, once guard_stdio() has moved them


def guard_stdio() -> list[int]:
    """Move descriptors 0 and 1 away, for good; return where they are now."""
    if _guarded:
        return _guarded
    null = 0
    while null < 3:  # what was closed now leads to the null device
        null = os.open(os.devnull, os.O_RDWR)
    _guarded[:] = os.dup(0), os.dup(1)  # which no child process inherits
    os.dup2(null, 0)
    os.dup2(2, 1)
    if sys.stdout and sys.stdout is sys.__stdout__:
        with suppress(OSError, ValueError):
            print(end="", flush=True)  # what was printed so far
        raw = io.FileIO(1, "w", closefd=False)  # whose lock could not hold up the exit
        sys.stdout = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)
    def forget() -> None:  # a forked child must not hold the client's pipe
        for descriptor in _guarded:
            os.dup2(null, descriptor, inheritable=False)
        _guarded.clear()
    if os.name == "posix":
        for descriptor in _guarded:
            os.set_blocking(descriptor, True)
        os.register_at_fork(after_in_child=forget)
    return _guarded


def serve_stdio(server: Server) -> None:
    """Serve the client on stdin and stdout until it leaves, or SIGINT or SIGTERM comes.

    Handlers that still run are abandoned after LEAVE_SECONDS, or at once after a signal. Takes
    descriptors 0 and 1 for good. (basic/transports/stdio)
    """
    Server.served = True
    pipe = Pipe(server, *guard_stdio())
    with signals(lambda _: pipe.leave()):
        pipe.serve()


# ======== A. Type hints to JSON Schema and back ===========================================
# A function's hints say what a client may send. One walk over a hint gives two things, once, when
# the function is registered: the JSON Schema that clients see, and a *converter*, which turns a
# value that fits it into what the function expects: an Enum's member, a dataclass, a tuple.
#
# Hosts are picky about schemas. What is generated is an object at the root, with each type written
# out in place: no $ref, no anyOf at the root. So a type that contains itself is refused, as is any
# hint without a JSON form; a schema written by hand (input_schema=) is the way out.

Converter = Callable[[Any], Any]
_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number",
                            None: "null", type(None): "null"}
# The schemas of results that are text, content blocks, or may be either. They are not announced.
_CONTENT: list[Message] = [
    {}, *({"type": name} for name in ("string", "null", "object", "array")),
    {"type": "array", "items": {"type": "object"}}]


class Entry:
    """A registered function: what its hints and docstring say, and how to call it.

    Schemas written by hand replace those made of the hints; {} allows everything. With an
    `input_schema`, no hint counts: the arguments stay plain JSON, the result has no schema.
    """
    definition: Message  # as it is listed
    pattern: re.Pattern[str]  # of the URIs that a template stands for
    cache_hints: Message  # of a resource

    def __init__(self, function: Func, input_schema: Message | None = None,
                 output_schema: Message | None = None) -> None:
        self.function = function
        self.name = getattr(function, "__name__", str(function))
        self.description, notes = _documentation(function.__doc__ or "")
        try:
            hints = typing.get_type_hints(function, include_extras=True)
            names, defaults, is_open = _signature(function)
            # As inspect.CO_COROUTINE:
            self.is_async = bool(getattr(getattr(function, "__code__", 0), "co_flags", 0) & 128)
            takers = [name for name in names
                      if Context in (hints.get(name), *typing.get_args(hints.get(name)))]
            if len(takers) > 1 or "ctx" in names and "ctx" not in hints:
                raise TypeError("the Context is passed to one parameter, annotated ctx: Context")
            self.context = "".join(takers)
            self.parameters = [name for name in names if name != self.context]
            hints = hints if input_schema is None else {}
            fields = {name: hints.get(name, Any) for name in self.parameters}
            schema, self._convert = _object(fields, defaults, is_open)
            result = schema_of(hints.get("return", Any)) if output_schema is None else {}
        except (NameError, TypeError, AttributeError, SyntaxError, RecursionError) as problem:
            raise TypeError(f"{self.name}(): {problem}; see schema_of() or input_schema=") from None
        for name, field in schema["properties"].items():
            if name in notes:
                field.setdefault("description", notes[name])
            with suppress(KeyError, TypeError, ValueError):  # none, or not in JSON
                field["default"] = decode(encode(to_json(defaults[name])))
        self.input_schema = schema if input_schema is None else input_schema
        self.required: list[str] = self.input_schema.get("required", [])
        self.input = Schema(self.input_schema)  # what the arguments must match
        # Until R4, structured content must be an object: anything else is put into one.
        self.wrapped = result not in _CONTENT and result.get("type") != "object"
        if self.wrapped:
            result = {"type": "object", "properties": {"result": result}, "required": ["result"]}
        self.output_schema = output_schema or (None if result in _CONTENT else result)
        self.output = Schema(self.output_schema) if self.output_schema else None

    def parse(self, texts: dict[str, str]) -> Message:
        """Return what strings stand for ("5" is 5 for int); or RpcError."""
        values: Message = dict(texts)
        for name, schema in self.input_schema["properties"].items():
            if name in texts and Schema(schema).flaw(texts[name]):
                with suppress(TypeError, ValueError):
                    values[name] = json.loads(texts[name])
        if flaw := self.input.flaw(values):
            raise invalid(flaw)
        return values

    def call(self, arguments: Message, ctx: Any, *values: Any) -> Any:
        """Call the function with arguments that match `input`; `values` are further ones."""
        arguments = self._convert(arguments)
        arguments.update(zip(self.parameters, values))
        if self.context:
            arguments[self.context] = ctx
        return self.function(**arguments)


def _signature(function: Any) -> tuple[list[str], Message, bool]:
    """Return the parameters' names, their defaults, and whether it takes **others."""
    # Not with `inspect`, which is slow to import. A decorator leaves the function itself in
    # `__wrapped__`; a method is called without its first parameter.
    bound = isinstance(function, types.MethodType)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
        bound = bound or isinstance(function, types.MethodType)
    code = getattr(function, "__code__", None)
    if not code or code.co_posonlyargcount or code.co_flags & 4:  # as inspect.CO_VARARGS
        raise TypeError("expected a function with parameters that can all be passed by name")
    count = code.co_argcount
    names = list(code.co_varnames[:count + code.co_kwonlyargcount])
    defaults = dict(zip(reversed(names[:count]), reversed(function.__defaults__ or ())))
    defaults.update(function.__kwdefaults__ or {})
    return names[1:] if bound else names, defaults, bool(code.co_flags & 8)  # CO_VARKEYWORDS


def _documentation(doc: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and what it says about each parameter.

    Recognizes `name: text` and `name (type): text` under "Args:", and `:param name: text`.
    """
    doc = doc.expandtabs()
    margin = min(re.findall(r"\n( *)\S", doc), default="")
    doc = "\n" + doc.strip().replace("\n" + margin, "\n")
    prose, *rest = re.split(r"\n *(?:Args|Arguments|Parameters):(?=\n)|(?=\n *:param )", doc)
    notes = re.findall(r"(?m)^( *)(?::param )?(\w+)(?: ?\([^)]*\))?: *(.+(?:\n\1 +.+)*)",
                       "".join(rest))
    return prose.strip(), {name: " ".join(text.split()) for _, name, text in reversed(notes)}


def schema_of(hint: Any) -> Message:
    """Return the JSON Schema of a type hint; TypeError if it has none.

    Hints are str int float bool None Any, list dict tuple set, Optional Union Literal, an Enum,
    TypedDict, NamedTuple or dataclass; in Annotated, a string describes and a dict adds keywords.
    """
    return _read(hint)[0]


def _read(hint: Any) -> tuple[Message, Converter]:
    """Return the schema and the converter of a hint."""
    args, kind = typing.get_args(hint), typing.get_origin(hint) or hint
    if hasattr(hint, "__metadata__"):  # Annotated
        schema, convert = _read(args[0])
        for note in hint.__metadata__:
            if isinstance(note, (str, dict)):
                schema.update({"description": note} if isinstance(note, str) else note)
        return schema, convert
    if hint in (Any, object):
        return {}, _keep
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}, int if kind is int else _keep  # 1.0 is an integer
    if kind is Union or type(hint).__name__ == "UnionType":
        schemas, converters = zip(*map(_read, args))
        branches = list(zip(map(Schema, schemas), converters))
        return {"anyOf": list(schemas)}, lambda value: next(
            (convert(value) for branch, convert in branches if branch.flaw(value) is None), value)
    if kind is dict and args[:1] in ((), (str,), (Any,)):
        items, convert = _read(args[1] if args else Any)
        schema = without_none(type="object", additionalProperties=items or None)
        return schema, lambda value: {key: convert(item) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return _read_list(kind, args)
    if any(hasattr(kind, mark) for mark in ("__dataclass_fields__", "_fields", "__total__")):
        return _read_class(kind)
    choices = list(args) if kind is typing.Literal else [
        member.value for member in getattr(kind, "__members__", {}).values()]
    names = {_SCALARS.get(type(choice)) for choice in choices}
    if not choices or None in names:
        raise TypeError(f"{hint} has no JSON form")
    schema = without_none(type=names.pop() if len(names) == 1 else None, enum=choices)
    return schema, _keep if kind is typing.Literal else kind


def _read_list(kind: Any, args: Any) -> tuple[Message, Converter]:
    if kind is tuple and args and args[-1] is not Ellipsis:
        schemas, converters = zip(*map(_read, args))
        return {"type": "array", "prefixItems": list(schemas), "minItems": len(args),
                "items": False}, lambda value: tuple(
                    convert(item) for convert, item in zip(converters, value))
    items, convert = _read(args[0] if args else Any)
    unique = kind in (set, frozenset)
    schema = without_none(type="array", items=items or None, uniqueItems=unique or None)
    return schema, lambda value: kind(map(convert, value))


def _keep(value: Any) -> Any:
    return value


def _read_class(kind: Any) -> tuple[Message, Converter]:
    """Read a dataclass, a NamedTuple, or a TypedDict, which may have more members than it names."""
    hints = typing.get_type_hints(kind, include_extras=True)
    is_open = hasattr(kind, "__total__")
    if is_open:
        optional = set(kind.__optional_keys__)
        for name, hint in hints.items():
            # `from __future__ import annotations` hides these from the class itself.
            wrapper = getattr(typing.get_origin(hint), "_name", "")
            if wrapper in ("Required", "NotRequired"):
                hints[name] = typing.get_args(hint)[0]
                optional = optional - {name} if wrapper == "Required" else optional | {name}
    else:
        names, defaults, _ = _signature(kind.__new__ if hasattr(kind, "_fields") else kind.__init__)
        hints, optional = {name: hints.get(name, Any) for name in names[1:]}, set(defaults)
        is_open = any(not one.init for one in getattr(kind, "__dataclass_fields__", {}).values())
    schema, convert = _object(hints, optional, is_open)
    return schema, lambda value: kind(**convert(value))


def _object(hints: Message, optional: Any, is_open: bool) -> tuple[Message, Converter]:
    """Return the schema and the converter of an object with these members."""
    read = {name: _read(hint) for name, hint in hints.items()}
    schema = without_none(
        type="object", properties={name: field for name, (field, _) in read.items()},
        required=[name for name in hints if name not in optional] or None,
        additionalProperties=None if is_open else False)
    converters = {name: convert for name, (_, convert) in read.items() if convert is not _keep}
    return schema, lambda value: {
        name: converters[name](item) if name in converters else item
        for name, item in value.items()}


def to_json(value: Any) -> Any:
    """Return a value as JSON: dataclasses, NamedTuples, Enums, sets, tuples converted."""
    value = getattr(value, "_value_", value)  # of a member of an Enum
    if value is None or isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        from dataclasses import fields
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):  # a NamedTuple
        value = value._asdict()
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form; use image() or embedded() for bytes")


def form_of(fields: dict[str, Any]) -> Message:
    """Return the schema of a form: client/elicitation §Requested Schema.

    A field is a hint, a pair of hint and default, or a schema; Optional ones may be left empty.
    """
    properties, required = {}, []
    for name, field in fields.items():
        hint, *default = field if isinstance(field, tuple) else (field,)
        schema = dict(hint) if isinstance(hint, dict) else schema_of(hint)
        some = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
        if len(some) == 1:  # Optional
            del schema["anyOf"]
            schema.update(some[0])
        if not isinstance(hint, dict) and "enum" not in schema.get("items", {}) \
                and schema.get("type") not in ("string", "number", "integer", "boolean"):
            raise TypeError(f"{name}: expected str, int, float, bool or a choice, found {hint}")
        if default:
            schema["default"] = to_json(default[0])
        elif not (some or isinstance(hint, dict)):
            required.append(name)
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}


# ======== B. JSON Schema validation =======================================================
# The dialect 2020-12 (basic/index §Schema Dialect, §$ref Resolution). `format` and unknown keywords
# never make a value invalid. Nothing is fetched. What cannot be checked is refused when the schema
# is made: another dialect, an unknown type, a bad pattern, an external reference, and what tool
# schemas hardly ever use (_REFUSED).
#
# A schema is compiled once, to functions called checks. They take a value and return None, or
# ": reason"; on the way out each level prepends its location: "/items/3/price: reason".
#
# To add a keyword that compares a value with a limit, add a row to _LIMITS; for any other keyword
# a row in _RULES, and the method of Schema that makes its check.

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Check = Callable[[Any], "str | None"]
_REFUSED = {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "contains",
            "dependencies", "dependentRequired", "dependentSchemas", "propertyNames"}

_TYPES: dict[str, Func] = {
    "null":    lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int or _TYPES["number"](value) and value % 1 == 0,
    "number":  lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string":  lambda value: isinstance(value, str),
    "array":   lambda value: isinstance(value, list),
    "object":  lambda value: isinstance(value, dict),
}


def _key(value: Any) -> Any:
    """Return a hashable that is equal for equal JSON values: 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict):
        return "object", frozenset((name, _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return ("array", *map(_key, value))
    return isinstance(value, bool), value


def _is_multiple(value: Any, of: Any) -> bool:
    # Fractions are exact: 0.0075 is a multiple of 0.0001, though floats say otherwise.
    from fractions import Fraction
    return abs(value) < float("inf") and Fraction(str(value)) % Fraction(str(of)) == 0


@functools.lru_cache(maxsize=1000)
def _regex(pattern: str) -> re.Pattern[str]:
    # ECMA-262 differs: \d and \w are ASCII; `$`, outside of escapes and [sets], is the very end.
    python = re.sub(r"(?s)(\\.|\[(?:\\.|[^\]])*\])|\$", lambda found: found[1] or r"\Z", pattern)
    return re.compile(python, re.ASCII)


# keyword: the type it applies to, the test, the reason when it fails
_LIMITS: dict[str, tuple[str, Func, str]] = {
    "multipleOf":       ("number", _is_multiple,             "must be a multiple of {}"),
    "maximum":          ("number", lambda v, n: v <= n,      "must be at most {}"),
    "exclusiveMaximum": ("number", lambda v, n: v < n,       "must be less than {}"),
    "minimum":          ("number", lambda v, n: v >= n,      "must be at least {}"),
    "exclusiveMinimum": ("number", lambda v, n: v > n,       "must be more than {}"),
    "maxLength":        ("string", lambda v, n: len(v) <= n, "must not be longer than {}"),
    "minLength":        ("string", lambda v, n: len(v) >= n, "must not be shorter than {}"),
    "pattern":          ("string", lambda v, n: _regex(n).search(v), "must match {}"),
    "maxItems":         ("array",  lambda v, n: len(v) <= n, "must have at most {} items"),
    "minItems":         ("array",  lambda v, n: len(v) >= n, "must have at least {} items"),
    "uniqueItems":      ("array",  lambda v, n: not n or len({*map(_key, v)}) == len(v),
                         "must not have the same item twice"),
    "maxProperties":    ("object", lambda v, n: len(v) <= n, "must have at most {} members"),
    "minProperties":    ("object", lambda v, n: len(v) >= n, "must have at least {} members"),
}


def _limit(keyword: str, limit: Any) -> Check:
    kind, test, reason = _LIMITS[keyword]
    applies, flaw = _TYPES[kind], ": " + reason.format(limit)
    test({"number": 0, "string": "", "array": [], "object": {}}[kind], limit)  # raises if wrong
    return lambda value: flaw if applies(value) and not test(value, limit) else None


def _at(key: Any, flaw: str) -> str:
    """Put a place in front of a flaw, escaped as in a JSON pointer (RFC 6901)."""
    return "/" + str(key).replace("~", "~0").replace("/", "~1") + flaw


def _each(kind: Any, known: dict[Any, Check], rest: Check, required: Iterable[str] = (),
          patterns: Iterable[Any] = ()) -> Check:
    """Make the check of an object's members or an array's items."""
    def check(value: Any) -> str | None:
        if not isinstance(value, kind):
            return None
        for name in required:
            if name not in value:
                return _at(name, ": is required")
        for key, item in enumerate(value) if kind is list else value.items():
            # `additionalProperties` and `items` are for what no other keyword names.
            checks = [known[key]] if key in known else []
            if patterns:
                checks += [one for pattern, one in patterns if pattern.search(key)]
            for one in checks or [rest]:
                if (flaw := one(item)) is not None:
                    return _at(key, flaw)
        return None
    return check


class Schema:
    """A JSON Schema, ready to check values; ValueError if it cannot be used."""
    def __init__(self, schema: Message | bool) -> None:
        self._targets: list[Any] = [schema]  # the schema, and what each $ref names
        self._checks: dict[int, Check] = {}  # of these, by id()
        try:
            for node in self._targets:  # _ref() adds to them
                if id(node) not in self._checks:
                    self._checks[id(node)] = self._compile(node)
            self._check = self._checks[id(schema)]
        except (TypeError, AttributeError, ArithmeticError, RecursionError, re.error) as problem:
            raise ValueError(f"malformed schema: {problem}") from problem

    def flaw(self, value: Any) -> str | None:
        """Return None for a valid value, else why not: "/items/3/price: must be at least 0"."""
        try:
            flaw = self._check(value)
        except RecursionError:
            flaw = ": must not be nested so deeply"
        return "/" + flaw if flaw and flaw[0] == ":" else flaw

    def _compile(self, node: Any) -> Check:
        """Return the check of a subschema."""
        if isinstance(node, bool):
            return lambda value: None if node else ": must not be there"
        if node.get("$schema", DIALECT).rstrip("#") != DIALECT:
            raise ValueError(f"unknown dialect {node['$schema']}: expected {DIALECT}")
        for name in node:
            if name in _REFUSED or name == "$id" and node is not self._targets[0]:
                raise ValueError(f"not supported: {name} in {json.dumps(node):.80}")
        checks = [_limit(name, node[name]) for name in _LIMITS if name in node]
        checks += [make(self, node) for keys, make in _RULES.items() if node.keys() & keys.split()]
        checks += map(self._compile, node.get("allOf", ()))
        def check(value: Any) -> str | None:
            for one in checks:
                if (flaw := one(value)) is not None:
                    return flaw
            return None
        return checks[0] if len(checks) == 1 else check

    def _ref(self, node: Message) -> Check:
        target: Any = {"#": self._targets[0]}
        try:
            for step in unquote(node["$ref"]).split("/"):
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step) if isinstance(target, list) else step]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"$ref {node['$ref']}: no such place in this schema") from None
        # It is compiled later, by __init__(), because a schema may refer to itself.
        self._targets.append(target)
        return lambda value: self._checks[id(target)](value)

    def _type(self, node: Message) -> Check:
        kinds = [node["type"]] if isinstance(node["type"], str) else node["type"]
        if not _TYPES.keys() >= set(kinds):
            raise ValueError(f"unknown type in {kinds}: expected {', '.join(_TYPES)}")
        tests, flaw = [_TYPES[kind] for kind in kinds], ": must be of type " + " or ".join(kinds)
        test = tests[0] if len(tests) == 1 else lambda value: any(one(value) for one in tests)
        return lambda value: None if test(value) else f"{flaw}, found {value!r:.40}"

    def _choice(self, values: list[Any]) -> Check:
        known, flaw = set(map(_key, values)), ": must be one of " + json.dumps(values)[1:-1]
        return lambda value: None if _key(value) in known else flaw

    def _members(self, node: Message) -> Check:
        named = {name: self._compile(part) for name, part in node.get("properties", {}).items()}
        patterns = [(_regex(pattern), self._compile(part))
                    for pattern, part in node.get("patternProperties", {}).items()]
        rest = self._compile(node.get("additionalProperties", True))
        return _each(dict, named, rest, dict.fromkeys(node.get("required", ())), patterns)

    def _items(self, node: Message) -> Check:
        first = map(self._compile, node.get("prefixItems", ()))
        return _each(list, dict(enumerate(first)), self._compile(node.get("items", True)))

    def _some(self, parts: list[Any], least: int, most: int, words: str) -> Check:
        checks = list(map(self._compile, parts))
        flaw = f": must match {words} {json.dumps(parts):.200}"
        return lambda value: (
            None if least <= [one(value) for one in checks].count(None) <= most else flaw)

    def _if(self, node: Message) -> Check:
        test, yes, no = (self._compile(node.get(name, True)) for name in ("if", "then", "else"))
        return lambda value: (no if test(value) else yes)(value)


# keyword: what makes its check. Keywords that depend on each other share one.
_RULES: dict[str, Func] = {
    "type":  Schema._type,
    "enum":  lambda self, node: self._choice(node["enum"]),
    "const": lambda self, node: self._choice([node["const"]]),
    "$ref":  Schema._ref,
    "anyOf": lambda self, node: self._some(node["anyOf"], 1, 2**31, "at least one of"),
    "oneOf": lambda self, node: self._some(node["oneOf"], 1, 1, "exactly one of"),
    "not":   lambda self, node: self._some([node["not"]], 0, 0, "none of"),
    "if":    Schema._if,
    "required properties patternProperties additionalProperties": Schema._members,
    "prefixItems items": Schema._items,
}
# ======== Part II: the same over HTTP =====================================================
# ======== 7. The endpoint: the rules of HTTP, without sockets =============================
# Streamable HTTP (basic/transports/streamable-http) over an abstract exchange: a request comes in,
# an answer goes out, on the thread that carries it. Every message is a POST of its own. Its answer
# is one JSON object, or a stream of events if something must be sent before the response. Headers
# repeat parts of the body for proxies, and must agree with it. To close a stream is to cancel its
# request. The first failing check determines the answer:
#
#     Host and Origin 403, path 404, verb 405, authorization 401 or 403, size 413, type 415,
#     JSON 400 (-32700), `_meta` 400 (-32602), headers 400 (-32020), version 400 (-32022),
#     method 404 (-32601)

__all__ += ["DRAIN_SECONDS", "KEEP_ALIVE_SECONDS", "MAX_CONNECTIONS", "MAX_HEADERS",
    "MAX_LINE_BYTES", "SEND_SECONDS", "Endpoint", "Exchange", "HttpError", "bearer", "event",
    "http_server", "mirror", "serve_http", "unmirror"]

KEEP_ALIVE_SECONDS = 15  # between two comments on a stream
STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
                  "X-Accel-Buffering": "no"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
# Headers that must not be repeated: two parsers might pick different values.
_UNIQUE = re.compile("host|origin|authorization|last-event-id|transfer-encoding|content-.*|mcp-.*")


class HttpError(Exception):
    """An HTTP answer that is not a message, with its headers. In a client, `url` answered."""
    def __init__(self, status: int, message: str, headers: Headers | None = None,
                 url: str = "") -> None:
        super().__init__(message)
        self.status, self.headers, self.url = status, headers or {}, url


class Exchange:
    """One HTTP request and the way to answer it, as serve_http, WSGI, ... provide it.

    `headers` are pairs of name and value; `stream` has read(size) and readline(size), for the body.
    A subclass defines start(), write(), end(), and gone() and ready() if it can. OSError: the
    client has hung up.
    """
    def __init__(self, method: str, target: str, headers: Iterable[Any], stream: Any) -> None:
        self.method, self.stream = method, stream
        self.path, _, self.query = target.partition("?")
        self.name = f"{method} {self.path:.200}"  # in logs and traces
        self.principal: Any = None  # who sent it
        self.extra: Headers = {}  # of the answer, whatever it will be
        self.flaw: HttpError | None = None  # what is wrong with the headers
        self.headers: Headers = {}  # by lower-case name
        for name, value in headers:
            name, value = name.lower(), value.strip(" \t")
            if name in self.headers:
                value = self.headers[name] + ", " + value
                if _UNIQUE.fullmatch(name):
                    self.flaw = HttpError(400, f"the header {name} is repeated")
            self.headers[name] = value
        # There is a body, and it has not been read.
        self.unread = "content-length" in self.headers or "transfer-encoding" in self.headers

    def length(self) -> int | None:
        """Return the Content-Length, None for a chunked body; HttpError if it is not valid."""
        # RFC 9112 §6: two servers that disagree on where a request ends can be tricked.
        length = self.headers.get("content-length", "0")
        coding = self.headers.get("transfer-encoding")
        if coding is None and re.fullmatch("[0-9]{1,15}", length):
            if int(length) > MAX_MESSAGE_BYTES:
                raise HttpError(413, "the body is too large")
            return int(length)
        if coding is None or coding.lower() != "chunked" or "content-length" in self.headers:
            raise HttpError(400, "Content-Length must be a number, or Transfer-Encoding chunked")
        return None

    def body(self) -> bytes:
        """Read the body; HttpError if it is too large or its framing is not valid."""
        length = self.length()
        data: bytes = read_chunks(self.stream) if length is None else self.stream.read(length)
        if len(data) < (length or 0):
            raise HttpError(400, "the body is shorter than its Content-Length")
        self.unread = False
        return data

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        """Send the status, the headers and the body; None: a stream follows."""

    def write(self, data: bytes) -> None:
        """Send a part of a stream."""

    def end(self, hang_up: bool = False) -> None:
        """End a stream; `hang_up`: close the connection, too."""

    def gone(self) -> bool:
        """Tell whether the client has hung up; False if unknown."""
        return False

    def ready(self) -> bool:
        """Tell whether a short write need not wait; True if unknown."""
        return True


def read_chunks(stream: Any) -> bytes:
    """Read a chunked body: RFC 9112 §7.1. What frames it counts, too: chunks may be tiny."""
    data, size, left = bytearray(), -1, MAX_MESSAGE_BYTES
    while size:
        head = re.fullmatch(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\r\n]*)?\r\n", stream.readline(1000))
        if not head:
            raise HttpError(400, "expected a chunk (was the body decoded on the way?)")
        size = int(head[1], 16)
        left -= len(head[0]) + size
        if left < 0:
            raise HttpError(413, "the body is too large")
        data += stream.read(size)
        line = stream.readline(1000)
        while not size and left > 0 and line.endswith(b"\r\n") and line != b"\r\n":
            left, line = left - len(line), stream.readline(1000)  # a trailer, which is ignored
        if line != b"\r\n":
            raise HttpError(400, "a chunk or a trailer is malformed")
    return bytes(data)


def event(data: bytes, ident: str = "", **fields: Any) -> bytes:
    """Make a server-sent event of a line of JSON."""
    head = "".join(f"{name}: {value}\n" for name, value in {"id": ident, **fields}.items() if value)
    return head.encode() + b"data: " + data.rstrip(b"\n") + b"\n\n"


class Stream(Peer):
    """The answer to a POST: JSON, or events. Also the peer of a modern request."""
    copying = False  # another thread sends the events

    def __init__(self, request: Any) -> None:
        super().__init__(ordered=False)
        self.request = self.exchange = request  # None: it has left, or has it all
        # A handler has started; events are sent; nothing more is sent.
        self.started = self.streaming = self.ended = False
        self.written = time.monotonic()  # when a comment was sent last
        self.lock = threading.RLock()  # guards all of these, and writing

    def post(self, message: Any) -> None:
        """Send a message, or the list of answers to a batch; a response is the last one."""
        line, last, status = encode(message), "method" not in message, 200
        code = message["error"]["code"] if "error" in message else None
        if code in ERRORS and (not self.started or code == MISSING_CAPABILITY):
            status = ERRORS[code].status  # not a handler's own
        with self.lock:
            if self.streaming or not last:
                self.add_event(line)
            if last:
                self.finish(status, line)

    def add_event(self, line: bytes) -> None:
        """Send a message as an event."""
        self.begin()
        self.do("write", event(line))

    def begin(self) -> None:
        """Become a stream of events."""
        if not self.streaming:
            self.do("start", 200, {**STREAM_HEADERS, **self.request.extra}, None)
            self.streaming = True

    def do(self, action: str, *arguments: Any) -> Any:
        """Call a method of the exchange; if that fails, the client has hung up."""
        exchange = self.exchange
        try:
            return exchange and getattr(exchange, action)(*arguments)
        except (OSError, ValueError):  # ValueError: the socket is closed
            self.leave()

    def finish(self, status: int = 202, line: bytes = b"") -> None:
        """End it, even without a response: nothing was asked, or it was cancelled."""
        with self.lock:
            if self.streaming:
                self.do("end")
            elif self.exchange:
                answer(self.exchange, status, line)
            self.ended = True
            self.leave()

    def leave(self) -> None:
        """Forget the exchange: the client has left, or has it all."""
        self.exchange = None

    def look_after(self, now: float) -> None:
        """Keep it alive, and notice a hang-up."""
        if self.lock.acquire(False):  # else its thread might take what gone() has seen
            if self.do("gone"):
                self.leave()
            elif self.streaming and now - self.written > KEEP_ALIVE_SECONDS and self.can_write():
                self.written = now
                if not self.copying:
                    self.do("write", b": \n\n")
            self.lock.release()
        if self.exchange is None:
            for ctx in list(self.running.values()):
                ctx.cancel()

    def can_write(self) -> bool:
        return bool(self.do("ready"))

    def check(self, ctx: Context) -> None:
        """Compare headers and body: .../streamable-http §Request Metadata, §Server Validation."""
        params, server, row = ctx.params, ctx.server, METHODS.get(ctx.method)
        # These two are never encoded; the others may be.
        plain = {"MCP-Protocol-Version": ctx.meta[META_VERSION], "Mcp-Method": ctx.method}
        member = row.mirrored if row else server.mirrored.get(ctx.method)
        others: Message = {"Mcp-Name": params.get(member)} if member else {}
        tool = server.tools.get(str(params.get("name")))
        if ctx.method == "tools/call" and tool:
            others.update(mirrored_arguments(tool.input_schema, params.get("arguments")))
        for name, value in {**plain, **others}.items():
            sent = self.request.headers.get(name.lower())
            if not (sent == value if name in plain else same_value(sent, value)):
                found = "missing" if sent is None else f"{sent!r:.200}"
                problem = f"Header mismatch: {name} is {found}, the body has {value!r:.200}"
                raise RpcError(HEADER_MISMATCH, problem)


def mirrored_arguments(schema: Any, arguments: Any) -> Message:
    """Return headers and what they must repeat: .../streamable-http §Schema Extension."""
    found: Message = {}
    for name, part in (schema.get("properties") or {}).items():
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(part, dict):
            if "x-mcp-header" in part:
                found[f"Mcp-Param-{part['x-mcp-header']}"] = value
            found.update(mirrored_arguments(part, value))
    return found


def same_value(sent: str | None, value: Any) -> bool:
    """Compare a header with the value in the body; numbers as numbers."""
    if sent is None or value is None:
        return sent is value
    plain = unmirror(sent)
    if type(value) in (int, float) and re.fullmatch(r"-?[0-9]{1,99}(\.[0-9]+)?", plain or ""):
        return bool(json.loads(re.sub("^(-?)0+(?=[0-9])", r"\1", plain or "")) == value)
    return plain == (value if isinstance(value, str) else str(value).lower())


def mirror(value: Any) -> str:
    """Return a value as a header has it: .../streamable-http §Value Encoding."""
    plain = value if isinstance(value, str) else str(value).lower()
    if re.fullmatch(r"(?!=\?)([!-~]([\t -~]*[!-~])?)?", plain):  # "=?" begins an encoded one
        return plain
    return f"=?base64?{to_base64(plain.encode())}?="


def unmirror(value: str) -> str | None:
    """Return what a header stands for; None: malformed."""
    found = re.fullmatch(r"=\?base64\?(.*)\?=", value)
    if not found:
        return value if re.fullmatch(r"[\t -~]*", value) else None
    with suppress(ValueError):
        return from_base64(found[1]).decode()
    return None


def bearer(tokens: dict[str, Any], header: str = "authorization",
           metadata_url: str = "") -> Func:
    """Make an `authorize` function from {token: principal}; `header="x-api-key"` for API keys."""
    import hmac
    scheme = "bearer" if header.lower() == "authorization" else ""
    challenge = "Bearer" + (f' resource_metadata="{metadata_url}"' if metadata_url else "")
    def authorize(headers: Headers) -> Any:
        given, _, word = headers.get(header.lower(), "").rpartition(" ")
        token = word.encode("latin-1", "replace")
        for key, who in tokens.items():
            # Compare in constant time, so that timing reveals nothing.
            if token and given.lower() == scheme and hmac.compare_digest(key.encode(), token):
                return who
        raise HttpError(401, "no valid token", {"WWW-Authenticate": challenge} if scheme else None)
    return authorize


class Endpoint:
    """The MCP endpoint of a server, to be mounted under any HTTP server: see serve().

    `hosts`: allowed names in the Host header ("*": any; None: loopback names if bound to loopback).
    `origins`: allowed values of the Origin header ("*": any), besides those of `hosts`. `authorize`
    takes the headers (a dict with lower-case names) and returns the principal, or raises HttpError.
    `metadata`: the document of RFC 9728. `cors`: answer browsers. `stateless`: serve legacy
    requests without a session. `sse_on_get`: also open HTTP+SSE on the endpoint itself.
    """
    def __init__(self, server: Server, path: str = "/mcp", *, hosts: Iterable[str] | None = None,
                 origins: Iterable[str] = (), metadata: Message | None = None,
                 authorize: Func | None = None, cors: bool = False,
                 stateless: bool = False, sse_on_get: bool = False) -> None:
        Server.served, self.server, self.metadata = True, server, metadata
        self.path = "/" + path.strip("/")
        self.hosts = None if hosts is None else set(map(str.lower, hosts))
        self.origins, self.authorize, self.cors = set(origins), authorize, cors
        self.stateless, self.sse_on_get = stateless, sse_on_get
        self.closed = threading.Event()
        self.streams: dict[Any, None] = {}  # what the reaper looks after
        self._reaper = threading.Thread(target=self._reap, name="mcp-reaper", daemon=True)
        self._starting = threading.Lock()
        self.sessions: dict[str, HttpSession] = {}  # by id  # [legacy]

    def serve(self, exchange: Exchange) -> None:
        """Answer one request. Raises nothing."""
        try:
            return self._route(exchange)
        except HttpError as refusal:
            exchange.extra.update(refusal.headers)
            status, error = refusal.status, RpcError(INVALID_REQUEST, str(refusal))
        except RpcError as flaw:  # the body is not JSON
            status, error = 400, flaw
        except Exception as problem:  # noqa: BLE001
            log_failure(exchange.name, problem)
            status, error = 500, RpcError(INTERNAL_ERROR)
        answer(exchange, status, encode(error_response(error, None)))

    def _route(self, exchange: Exchange) -> None:
        """Find out what is asked for, and whether the caller may have it."""
        headers, origin = exchange.headers, exchange.headers.get("origin")
        if exchange.flaw:
            raise exchange.flaw
        # DNS rebinding (.../streamable-http §Security & Endpoint): comparing Origin with Host is
        # not enough; after rebinding, both carry the attacker's name.
        if self.hosts is not None and not self.hosts & {name_of(headers.get("host", "")), "*"}:
            raise HttpError(403, f"the Host {headers.get('host')!r:.100} is not in hosts=")
        if origin is not None and not self.origins & {origin, "*"} \
                and name_of(origin) not in (_LOOPBACK if self.hosts is None else self.hosts):
            raise HttpError(403, f"the Origin {origin!r:.100} is not in origins=")
        if self.cors:
            exchange.extra.update({
                "Access-Control-Allow-Origin": origin or "*", "Vary": "Origin",
                "Access-Control-Allow-Methods": "GET, POST, DELETE",
                "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*"),
                "Access-Control-Expose-Headers": "*"})
        path = exchange.path.rstrip("/") or "/"
        verbs: dict[str, Any] = {"POST": Endpoint.post} if path == self.path else {}
        verbs = legacy_verbs(self, exchange, path) or verbs  # [legacy]
        if self.metadata and path.startswith("/.well-known/oauth-protected-resource"):
            answer(exchange, 200, encode(self.metadata))
        elif not verbs:
            answer(exchange, 404, b'{"error": "not_found"}')
        elif exchange.method == "OPTIONS" and self.cors:
            answer(exchange, 204)
        elif exchange.method not in verbs:
            raise HttpError(405, "method not allowed", {"Allow": ", ".join(verbs)})
        else:
            if self.authorize:
                exchange.principal = self.authorize(headers)
                if exchange.principal is None or exchange.principal is False:
                    raise HttpError(401, "not authorized", {"WWW-Authenticate": "Bearer"})
                digest(exchange.principal)
            verbs[exchange.method](self, exchange)

    def post(self, exchange: Exchange) -> None:
        """Serve a message: .../streamable-http §Sending Messages, §Receiving Messages."""
        stream = Stream(exchange)
        peer: Peer = stream
        message = self.read_message(exchange)
        stream, peer = legacy_stream(self, stream, message)  # [legacy]
        def start(work: Func) -> None:
            stream.started = True
            self.watch(stream)
            work()
            if not stream.ended:  # cancelled: 202 is for notifications
                stream.begin()
            self.streams.pop(stream, None)
        self.server.handle(message, stream.post, peer=peer,
                           principal=exchange.principal, start=start)
        stream.finish()

    def read_message(self, exchange: Exchange) -> Any:
        """Read and decode the body; HttpError or RpcError if that fails."""
        exchange.length()  # refuse a body that is too large before anything else
        if not re.match(r"(?i)application/json\s*(;|$)", exchange.headers.get("content-type", "")):
            raise HttpError(415, "Content-Type must be application/json")
        try:
            return decode(exchange.body())
        except OSError:  # it has hung up, or is too slow
            raise HttpError(408, "the body has not arrived") from None

    def watch(self, stream: Any) -> None:
        """Have the reaper look after a stream, or a session."""
        self.streams[stream] = None
        if self.closed.is_set():
            stream.close()
        with self._starting, suppress(RuntimeError):  # it runs, or no thread is left
            self._reaper.start()

    def _reap(self) -> None:
        """Send keep-alives, and notice clients that hung up: five times a second."""
        while not self.closed.wait(0.2):
            for stream in list(self.streams):
                stream.look_after(time.monotonic())

    def close(self) -> None:
        """End all subscriptions and sessions; it cannot serve again."""
        self.closed.set()
        for stream in list(self.streams):
            stream.close()


def answer(exchange: Exchange, status: int, line: bytes = b"") -> None:
    """Send an answer that is not a stream: a line of JSON, or no body. Log a refusal."""
    if status >= 400 and status not in (404, 405):
        log(f"{exchange.name}: {status} {line.decode():.500}".rstrip())
    kind = {"Content-Type": "application/json"} if line else {}
    with suppress(OSError):  # the client has hung up
        exchange.start(status, {**kind, **exchange.extra}, line)


def name_of(host: str) -> str:
    """Return the name in a Host or Origin header: that in "http://[::1]:80" is "::1"."""
    return re.sub(r"^https?://|:\d*$", "", host.lower()).strip("[]")


# ======== 8. serve_http: the endpoint on sockets ==========================================
# A ThreadingHTTPServer of the standard library: each connection has a thread, which reads requests
# and has the endpoint answer them one after the other. Only the head of a request is read by lines
# of our own: the library's parser takes half of the time of a call, and accepts too much. After a
# request that is not valid the connection is closed: there is no telling where the next begins.
# Each step of a connection has a total time limit, whatever a client does.

MAX_CONNECTIONS = 512   # at once; further ones get 503
MAX_HEADERS = 100       # in a request
MAX_LINE_BYTES = 65536  # of the first line and all headers
SEND_SECONDS = 30       # for a client to send a head; to send or read each MiB of a body
DRAIN_SECONDS = 10      # for running requests, after SIGTERM
_FIELD = r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0\r\n]*)\r\n"
_HEAD = re.compile(rf"(?:\r\n)?([!-~]+) ([!-~]+) (HTTP/1\.[0-9])\r\n((?:{_FIELD})*)\r\n")


def serve_http(server: Server, host: str = "127.0.0.1", port: int = 8000, *,
               endpoint: Endpoint | None = None, **options: Any) -> None:
    """Serve over HTTP until SIGINT or SIGTERM; `options` are those of Endpoint."""
    import signal
    if endpoint and options:
        raise TypeError("give the options to the endpoint")
    httpd = http_server(endpoint or Endpoint(server, **options), host, port)
    url = f"http://[{host}]" if ":" in host else f"http://{host}"
    def react(number: int) -> bool:  # after the first SIGTERM, running requests may end
        drains = number == signal.SIGTERM and not httpd.endpoint.closed.is_set()
        before, httpd.patience = httpd.patience, DRAIN_SECONDS if drains else 0
        httpd.endpoint.closed.set()
        return bool(before)
    with signals(react), closing(httpd):
        log(f"{server.info['name']} listens on {url}:{httpd.server_port}{httpd.endpoint.path}")
        httpd.serve_forever(0.05)


def serve_http_at(server: Server, words: list[str], options: Message) -> None:
    """Serve at [HOST:]PORT, as the command line has it."""
    place = re.fullmatch(r"(?:(\S*):)?([0-9]{1,5})", " ".join(words))
    if not place or int(place[2]) > 65535:
        usage_error("--http: expected [HOST:]PORT")
    try:
        serve_http(server, (place[1] or "127.0.0.1").strip("[]"), int(place[2]), **options)
    except OSError as problem:
        raise SystemExit(f"mcp_ref: {place[0]}: {problem}")


def http_server(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> Any:
    """Return a ThreadingHTTPServer for an endpoint: serve_forever() runs it, close() ends it.

    `port` 0 is any free port; `server_port` tells which. On loopback, Host must be a loopback name,
    unless the endpoint has `hosts`. close() works on any thread, at any time.
    """
    import http.server  # it takes 20 ms
    import socket
    import socketserver
    class Handler(http.server.BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # it costs 44 ms for each answer
        def handle_one_request(self) -> None:
            self.close_connection = True
            with suppress(OSError):  # it has left
                exchange = SocketExchange(self, httpd)
                endpoint.serve(exchange)
                self.close_connection = exchange.closing
    class Httpd(_Httpd, http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server_bind = socketserver.TCPServer.server_bind  # HTTPServer's asks the resolver, too
    if endpoint.hosts is None and host in _LOOPBACK:
        endpoint.hosts = set(_LOOPBACK)
    httpd: Any = Httpd((host, port), Handler)
    httpd.endpoint, httpd.due, httpd.idle, httpd.trace = endpoint, {}, {}, tracer()
    httpd.server_port = httpd.socket.getsockname()[1]
    httpd.socket.setblocking(False)  # two threads may accept
    return httpd


class _Httpd:
    """For ThreadingHTTPServer. `due`: deadlines; `idle`: who awaits a request, longest first."""
    request_queue_size = 512  # with the usual 5, clients would wait for seconds
    patience: float = 0.3  # seconds that close() leaves running requests

    def serve_forever(self: Any, poll_interval: float = 0.5) -> None:
        """Serve until close() or shutdown() is called."""
        with suppress(StopIteration):
            if not self.endpoint.closed.is_set():
                super().serve_forever(poll_interval)  # type: ignore[misc]

    def service_actions(self: Any) -> None:
        """End what takes too long. The library calls this twice a second."""
        if self.endpoint.closed.is_set():
            raise StopIteration
        for link, due in list(self.due.items()):
            if due < time.monotonic():
                hang_up(link)

    def verify_request(self: Any, link: Any, address: Any) -> bool:
        """Take a connection, in place of an idle one if need be, or ask to come back later."""
        if len(self.due) < MAX_CONNECTIONS:
            return True
        if waiting := list(self.idle)[:1]:
            self.idle.pop(waiting[0], None)
            hang_up(waiting[0], "SHUT_RD")  # a request that has come is answered
            return True
        log("503: too many connections")
        with suppress(OSError):
            link.sendall(b"HTTP/1.1 503 \r\nRetry-After: 1\r\nConnection: close\r\n\r\n")
        return False

    def shutdown_request(self: Any, link: Any) -> None:
        """Close a connection; first read what comes, or a reset could swallow the answer."""
        import socket
        with suppress(OSError):
            link.shutdown(socket.SHUT_WR)
            self.idle[link] = True
            if link in self.due:
                self.due[link] = time.monotonic() + 2
            while link in self.due and link.recv(2**16):
                pass
        self.due.pop(link, None)
        self.idle.pop(link, None)
        self.close_request(link)

    def close(self: Any) -> None:
        """Close the endpoint and all connections."""
        self.endpoint.close()
        # In a drain, 0.1 s:
        for _ in range(int(self.patience * 10)):
            self._handle_request_noblock()
            time.sleep(0.001)
        self.server_close()
        began = time.monotonic()
        while len(self.due) > len(self.idle) and time.monotonic() < began + self.patience:
            time.sleep(0.01)
        for stream in list(self.endpoint.streams):
            for ctx in list(stream.running.values()):
                ctx.cancel()
        for link in list(self.due):
            hang_up(link)


class SocketExchange(Exchange):
    """A request on a connection, whose head is read here: RFC 9112 §2.2, §3, §5."""
    def __init__(self, handler: Any, httpd: Any) -> None:
        self.link, self.httpd, stream = handler.connection, httpd, handler.rfile
        self.port = handler.client_address[1]
        httpd.idle[self.link] = True
        self.allow(0)
        data, line = bytearray(), b"\n"
        while line.endswith(b"\n") and not data.endswith(b"\r\n\r\n"):
            line = stream.readline(MAX_LINE_BYTES - len(data))
            data += line
        httpd.idle.pop(self.link, None)
        if not data:
            raise OSError("idle")
        head = _HEAD.fullmatch(data.decode("latin-1"))
        method, target, version, lines = head.groups()[:4] if head else ("?", "/", "HTTP/1.0", "")
        fields = re.findall(_FIELD, lines)
        absolute = re.match("(?i)https?://([^/?]*)", target)  # RFC 9112 §3.2.2
        super().__init__(method, target[absolute.end():] if absolute else target, fields, stream)
        self.chunked = version != "HTTP/1.0"
        self.closing = not self.chunked or "close" in self.headers.get("connection", "").lower()
        if len(data) >= MAX_LINE_BYTES or len(fields) > MAX_HEADERS:
            self.flaw = HttpError(431, "the headers are too many")
        elif "host" not in self.headers or "transfer-encoding" in self.headers and not self.chunked:
            self.flaw = HttpError(400, "the headers are malformed")
        elif absolute:
            self.headers["host"] = absolute[1]
        self.allow()

    def allow(self, size: float = float("inf")) -> None:
        """Limit the time for reading or sending so many bytes, from now on."""
        self.httpd.due[self.link] = time.monotonic() + SEND_SECONDS * (1 + size / 2**20)

    def body(self) -> bytes:
        if self.chunked and self.headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.allow(self.length() or 2**20)  # of chunks, the size is not known
        data = super().body()
        self.httpd.trace(">", data, self.port, {**self.headers, "http": self.name})
        self.allow()
        return data

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        # After a flaw or an unread body, what follows may look like another request.
        self.closing |= self.unread or bool(self.flaw) or self.httpd.socket.fileno() < 0
        framing = {"Connection": "close"} if self.closing else {}
        if body is not None and status != 204:
            framing["Content-Length"] = str(len(body))
        elif body is None and self.chunked:
            framing["Transfer-Encoding"] = "chunked"
        head = f"HTTP/1.1 {status} \r\n"  # a reason is optional
        for name, value in {**headers, **framing}.items():
            # A line end in a value would start another header.
            head += re.sub(r"[^\t -~]", "", f"{name}: {value}") + "\r\n"
        self.httpd.trace("<", body or b"", self.port, {"http": self.name, "status": status})
        self._send(head.encode() + b"\r\n" + (b"" if self.method == "HEAD" else body or b""))

    def _send(self, data: bytes) -> None:
        # If this fails, a part may have been sent: nothing may follow.
        closing, self.closing = self.closing, True
        self.allow(len(data))
        self.link.sendall(data)
        self.allow()
        self.closing = closing

    def write(self, data: bytes) -> None:
        self.httpd.trace("<", data, self.port)
        self._send(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    def end(self, close: bool = False) -> None:
        if self.chunked:
            self._send(b"0\r\n\r\n")
        if close:
            self.closing = True
            hang_up(self.link)

    def gone(self) -> bool:
        if not is_ready(self.link, to_write=False) or self.link.recv(1, 2):  # MSG_PEEK
            return False
        hang_up(self.link)  # the handler may run on for long
        return True

    def ready(self) -> bool:
        return is_ready(self.link)


def hang_up(link: Any, how: str = "SHUT_RDWR") -> None:
    """Shut a socket down, on any thread; close() would wait for those who use it."""
    import socket
    with suppress(OSError):
        link.shutdown(getattr(socket, how))


# ======== 9. The command line =============================================================

USAGE = """usage: mcp_ref.py [serve FILE.py] [--http [HOST:]PORT] | tables | --version | --help

Serves a small demonstration, or a program, or a file's public functions as tools, on stdio or HTTP.
`tables` lists what each revision has. MCP_TRACE=FILE in the environment appends all messages to
FILE, as JSON lines."""


def demo() -> Server:
    """Make the server of the demonstration."""
    server = Server("mcp_ref-demo", __version__)
    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text
    return server


def serve_file(path: str, words: list[str]) -> None:
    """Run a program that serves, or serve the public functions of any other file.

    A program runs as `__main__`. If it ends without having served, its server is served, but not
    if it has a run() that did not come: its options matter.
    """
    import ast
    name, suffix = os.path.splitext(os.path.basename(path))
    if suffix != ".py" or not os.path.isfile(path):
        usage_error(f"serve: {path} is not a Python file")
    if "--http" not in " ".join(words):
        guard_stdio()  # before its first line runs
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    calls = serving_calls(tree)
    module = types.ModuleType("__main__" if calls else name)
    module.__file__ = os.path.abspath(path)
    if calls:
        sys.modules["__main__"], sys.argv = module, [path, *words]
    sys.modules.setdefault(module.__name__, module)  # not in place of a library's
    exec(compile(tree, path, "exec", dont_inherit=True), vars(module))  # noqa: S102
    if Server.served:
        return
    found = [vars(module).get("server"), *vars(module).values()]  # `server` wins over mcp, app, ...
    server = next((value for value in found if calls and isinstance(value, Server)), None)
    if not calls and not (words and Server.made):  # its run() may authorize
        server = Server(name)
        for key, value in list(vars(module).items()):
            if type(value) is types.FunctionType and value.__module__ == name and key[0] != "_":
                server.tool(value)
    if not server or calls - {"Server"} or not (calls or server.tools):
        usage_error(f"serve: {path} has neither served, nor a server or a public function")
    server.run(words)


def serving_calls(tree: Any) -> set[str]:
    """Name the calls in a file that seem to make or run a server."""
    import ast
    nodes = list(ast.walk(tree))
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    modules = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import)
               for alias in node.names}
    calls -= {"run", *(name + ".run" for name in modules)}
    return {call.rpartition(".")[2] for call in calls} & {
        "Server", "Endpoint", "serve_stdio", "serve_http", "http_server", "run"}


def tables() -> str:
    """Return a line for each row: name, sender or HTTP status, and each revision."""
    order, senders = list(reversed(REVISIONS)), {">": "client", "<": "server", "<>": "both"}
    row_of = "  {:41} {:6} {:10} {:10} {:10} {:10} {}".format
    lines = [row_of("", "", *order)]
    for title in ("methods", "notifications", "features", "errors"):
        lines.append(title)
        for key, row in globals()[title.upper()].items():
            name = f"{key} {row.name}" if title == "errors" else key
            cells = [name, senders.get(getattr(row, "way", ""), getattr(row, "status", ""))]
            for place, version in enumerate(order, 1):
                old = getattr(row, "deprecated", "") in order[:place]
                served = key in getattr(rules(version), title)
                cells.append(("deprecated" if old else "yes") if served else "")
            lines.append(row_of(*cells).rstrip())
    return "\n".join(lines)


def usage_error(problem: str) -> typing.NoReturn:
    """Report a wrong command line; exit with status 2."""
    sys.stderr.write(f"mcp_ref.py: {problem}\n{USAGE}\n")
    raise SystemExit(2)


def main(words: list[str]) -> None:
    """Run the command line."""
    if not words or words[0].startswith("--http"):
        demo().run(words)
    elif words[0] in ("-h", "--help") or words[1:] in (["-h"], ["--help"]):
        print(USAGE)
    elif words == ["--version"]:
        import hashlib
        source = globals()["__loader__"].get_data(__file__)  # also from a zip archive
        print(f"mcp_ref {__version__} sha256:{hashlib.sha256(source).hexdigest()}")
    elif words == ["tables"]:
        print(tables())
    elif words[0] != "serve":
        usage_error(f"unknown command: {words[0]}")
    elif len(words) < 2 or words[1].startswith("-"):
        usage_error("serve: missing FILE.py")
    else:
        serve_file(words[1], words[2:])


# ======== Part III [legacy]: clients up to 2025-11-25 =====================================
# ======== 10. Sessions, questions as requests, batches ====================================
# A legacy client opens a session with `initialize`. What it says there is kept, under the keys that
# a modern request has in `_meta`, so that most of Context works on it unchanged. Four methods
# differ: how the client is known, how it is asked, what a result looks like, what an error is.


class Session:
    """What `initialize` said, and a listener for everything that changes."""
    def __init__(self, server: Server, peer: Peer, version: str, params: Message) -> None:
        self.rules, self.peer, self.server = rules(version), peer, server
        self.ready = False  # notifications/initialized has arrived
        usable = {name: value if name in _KINDS else downgrade(self.rules, name, value)
                  for name, value in params.get("capabilities", {}).items()
                  if name != "elicitation" or "elicitation/create" in self.rules.methods}
        self.meta = {META_CLIENT: params.get("clientInfo"), META_CAPABILITIES: usable,
                     META_LOG_LEVEL: "info"}
        self.filter: Message = {row.filter: True for row in NOTIFICATIONS.values()
                                if row.filter and row.capability in server.declared}
        self.filter["resourceSubscriptions"] = set()  # URIs

    def tell(self, method: str, params: Message) -> None:
        """Send a notification of a change."""
        if self.ready:
            self.peer.send(without_none(jsonrpc="2.0", method=method, params=params or None))


class LegacyContext(Context):
    """A request in a session; `initialize`, which opens one; `ping`, which needs none."""
    def admit(self, start: Func) -> None:
        """Answer `initialize` and `ping` at once; other requests need a session."""
        session = self.peer.session
        if self.method in ("initialize", "ping"):
            result = self._initialize() if self.method == "initialize" else {}
            return self.send(self._respond(result))
        # Over HTTP a request may overtake notifications/initialized; on a pipe it cannot.
        if session is None or self.peer.ordered and not session.ready:
            raise invalid("send initialize and notifications/initialized first, or use _meta")
        self._resolve(session.rules.version, session.meta)
        self._submit(start)

    def _initialize(self) -> Message:
        """Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        check_params(self.method, self.params)
        offered, version = versions("legacy"), self.params["protocolVersion"]
        version = version if version in offered else offered[0]
        session = Session(self.server, self.peer, version, self.params)
        self.server.listeners.pop(self.peer.session, None)
        if self.peer.send is not drop and not self.peer.closed:
            self.server.listeners[session] = None
        self.peer.session = session
        return without_none(protocolVersion=version, capabilities=self.server.capabilities(version),
                            serverInfo=downgrade(session.rules, "server", self.server.info),
                            instructions=self.server.instructions)

    def close_stream(self) -> None:
        stream = getattr(self.send, "__self__", None)
        if isinstance(stream, SessionStream) and stream.primes:
            with stream.lock:
                stream.begin()
                if not stream.copying:
                    stream.do("end", True)
                stream.leave()

    def _obtain(self, questions: dict[str, Message]) -> dict[str, Message]:
        """Send the questions as requests, and wait for all the answers."""
        import queue
        inbox = queue.SimpleQueue[Any]()
        self.wake_with(lambda: inbox.put(None))
        asked = {next(self.peer.question_ids): key for key in questions}
        answers: dict[str, Any] = {}
        try:
            for ident, key in asked.items():
                params = downgrade(self.rules, "elicitation", questions[key].get("params", {}))
                if "url" in params:  # [2025-11-25] client/elicitation §URL Mode
                    params.setdefault("elicitationId", os.urandom(16).hex())
                self.peer.questions[ident] = inbox.put
                self._emit({"jsonrpc": "2.0", "id": ident, "method": questions[key]["method"],
                            **without_none(params=params or None)})
            for _ in asked:
                response = None if self.peer.closed else inbox.get(timeout=ASK_SECONDS)
                if response is None:
                    raise AskError("it was cancelled" if self.cancelled else "the client left")
                key = asked[response["id"]]
                error, answers[key] = response.get("error"), response.get("result")
                if isinstance(error, dict):
                    raise AskError(f"the client refused: {error.get('message')!s:.200}", error)
                if flaw := flaw_of_answer(questions[key], answers[key]):
                    raise AskError(f"the client's answer is not valid: {flaw}")
        except queue.Empty:
            raise AskError(f"the client did not answer within {ASK_SECONDS:g} s") from None
        finally:
            for ident in asked:
                if self.peer.questions.pop(ident, None) and not self.peer.closed:
                    self.notify("notifications/cancelled", {"requestId": ident})
        return answers

    def _shape(self, result: Message) -> Message:
        """Return a result without what the revision lacks."""
        result = downgrade(self.rules, "result", result)
        if not isinstance(result.get("structuredContent", {}), dict):
            del result["structuredContent"]
        for tool in result.get("tools", ()):
            if tool.get("outputSchema", {}).get("type", "object") != "object":
                del tool["outputSchema"]
        return result

    def _failure(self, error: RpcError) -> Message:
        """A tool that cannot ask says so to the model."""
        if isinstance(error, ClientLacks) and self.method == "tools/call":
            return self._respond(tool_error(str(error)))
        return super()._failure(error)


# The kinds of objects behind these members, for `fields` in FEATURES.
_KINDS = {"tools": "tool", "resources": "resource", "resourceTemplates": "template",
          "prompts": "prompt", "contents": "contents", "content": "content", "resource": "contents",
          "messages": "message", "annotations": "annotations"}


def downgrade(rules: Rules, kind: str, value: Any) -> Any:
    """Return an object of this kind, or a list of them, without what the revision lacks."""
    if isinstance(value, list):
        return [downgrade(rules, kind, item) for item in value]
    if not isinstance(value, dict):
        return value
    block = value.get("type") if kind == "content" else ""
    if block == "audio" and "audio" not in rules.features:
        return embedded("data:" + value["mimeType"], from_base64(value["data"]), value["mimeType"])
    if block == "resource_link" and "resource links" not in rules.features:
        return text("{name}: {uri}".format(**value))
    star = "" if kind in ("result", "annotations") else "*"
    return {key: downgrade(rules, _KINDS[key], item) if key in _KINDS else item
            for key, item in value.items()
            if rules.hidden.isdisjoint((f"{kind}.{key}", f"{star}.{key}"))}


def serve_batch(server: Server, batch: list[Any], send: Send, peer: Peer, principal: Any,
                start: Func) -> None:
    """Serve an array of messages, one after the other: [2025-03-26] basic/index §Batching."""
    answers: list[Message] = []
    refusal = RpcError(INVALID_REQUEST, f"Invalid request: only {R2} has batches, of 1 to "
                       f"{MAX_BATCH} messages, none of them `initialize`")
    if not peer.session or "batches" not in peer.session.rules.features \
            or not 0 < len(batch) <= MAX_BATCH:
        return send(error_response(refusal, batch, peer))
    def collect(message: Message) -> None:
        encode(message)  # what is not JSON fails here, alone
        deliver = send if "method" in message else answers.append
        deliver(message)
    def serve_all() -> None:
        for member in batch:
            if isinstance(member, dict) and member.get("method") != "initialize":
                server.handle(member, collect, peer=peer, principal=principal)
            else:
                collect(error_response(refusal, member, peer))
        try:
            if answers:
                send(answers)
        except ValueError as problem:  # they are too large together
            send(error_response(RpcError(INTERNAL_ERROR, str(problem)), None, peer))
    # Without a request in it, nothing has to run: the answer over HTTP is 202.
    if any(isinstance(one, dict) and {"id", "method"} <= one.keys() for one in batch):
        start(serve_all)
    else:
        serve_all()


def set_level(server: Server, ctx: Any) -> Message:
    """[2025-11-25] server/utilities/logging §Setting Log Level."""
    if ctx.params["level"] not in LOG_LEVELS:
        raise invalid("level must be one of " + ", ".join(LOG_LEVELS))
    ctx.peer.session.meta[META_LOG_LEVEL] = ctx.params["level"]
    return {}


def subscribe(server: Server, ctx: Any) -> Message:
    """Subscribe or unsubscribe: [2025-11-25] server/resources §Subscriptions."""
    uri, watched = ctx.params["uri"], ctx.peer.session.filter["resourceSubscriptions"]
    if ctx.method == "resources/unsubscribe":
        watched.discard(uri)
        return {}
    if "resources/read" not in server.methods:
        find_resource(server, uri)
    watched.add(uri)
    server.on_watch(uri)
    return {}


SERVED.update({"logging/setLevel": set_level, "resources/subscribe": subscribe,
               "resources/unsubscribe": subscribe})


# ======== 11. Sessions over HTTP, resumable streams, HTTP+SSE =============================
# `initialize` hands out a session id, which the client repeats in a header; 404 says that this
# session is gone, and nothing else. Events are numbered and kept for a while: a client that lost
# its connection names the last one it saw, and a GET copies the rest of that stream to it. Another
# GET does so with what belongs to no request; in HTTP+SSE, the transport of 2024-11-05, with
# everything. Whoever has an event adds it, and waits for no other client.

MAX_SESSIONS = 1000     # beyond that, the longest-idle session is closed
SESSION_SECONDS = 3600  # without a request, until a session expires
REPLAY_BYTES = 2**20    # of events that a session keeps; the oldest are dropped
RETRY_MS = 500          # until a client comes back after close_stream()
__all__ += ["MAX_SESSIONS", "REPLAY_BYTES", "RETRY_MS", "SESSION_SECONDS"]


class SessionStream(Stream):
    """A stream of a session, which outlives its connection."""
    def __init__(self, exchange: Any, owner: HttpSession) -> None:
        super().__init__(exchange)
        self.owner, self.id = owner, os.urandom(16).hex()
        self.count = self.dropped = 0  # events so far, and those no longer kept
        self.sent = 0  # those that a GET got
        self.events: list[bytes] = []  # those that are kept
        session = owner.session  # whether it begins with an id and no message:
        self.primes = session is not None and "priming events" in session.rules.features

    def begin(self) -> None:
        """Become a stream of events."""
        if not self.streaming:
            super().begin()
            if self.primes:
                self.do("write", event(b"", f"{self.id}-0", retry=RETRY_MS))

    def add_event(self, line: bytes) -> None:
        """Number an event, keep it for clients that come back, and send it."""
        self.begin()
        data = self.owner.keep(self, line, patient=True)
        if not self.copying:
            self.do("write", data)

    def finish(self, status: int = 202, line: bytes = b"") -> None:
        with self.lock:
            if not self.copying:
                super().finish(status, line)
            with self.owner.keeping:
                self.ended = True
                self.owner.keeping.notify_all()

    def leave(self) -> None:
        """Send nothing more on the connection; who copies to it returns."""
        with self.owner.keeping:
            self.exchange, self.copying = None, False
            self.owner.keeping.notify_all()

    def attach(self, exchange: Exchange, after: int) -> None:
        """Copy what follows an event to an exchange, until either side ends the stream."""
        keeping = self.owner.keeping
        self.leave()
        with self.lock, keeping:
            self.exchange = exchange
            self.streaming, self.copying, self.sent = True, True, after
        with suppress(OSError, ValueError):  # the client has hung up
            exchange.start(200, {**STREAM_HEADERS, **exchange.extra}, None)
            while self.exchange is exchange:
                with keeping:
                    keeping.wait_for(lambda: self.sent < self.count or self.ended
                                     or self.exchange is not exchange, KEEP_ALIVE_SECONDS)
                    if self.exchange is not exchange or self.ended and self.sent == self.count:
                        break
                    events = self.events[max(0, self.sent - self.dropped):]
                    self.sent = self.count
                    self.owner.make_room()
                    keeping.notify_all()
                exchange.write(b"".join(events) or b": \n\n")
            exchange.end()
        if self.exchange is exchange:
            self.leave()


class HttpSession(Peer):
    """The client behind a session over HTTP, and the log of its events."""
    def __init__(self, endpoint: Endpoint, exchange: Exchange) -> None:
        super().__init__(self.push, ordered=False)
        self.endpoint, self.principal = endpoint, encode(exchange.principal)
        self.used = time.monotonic()  # when the last request came
        self.order: list[SessionStream] = []  # of each kept event, in order
        self.size = 0  # their bytes
        self.keeping = threading.Condition()  # guards both, and the events of all streams
        self.stream = SessionStream(None, self)  # what a GET opens
        self.id = self.stream.id
        if len(endpoint.sessions) >= MAX_SESSIONS:
            min(list(endpoint.sessions.values()), key=lambda one: one.used).close()
        endpoint.sessions[self.id] = self
        endpoint.watch(self)

    def make_room(self, size: int = 0) -> bool:
        """Drop old events, but none that a GET still has to get; tell whether there is room."""
        while self.order:
            first, data = self.order[0], self.order[0].events[0]
            awaited = first.copying and first.dropped >= first.sent
            room = REPLAY_BYTES - self.size - size
            if awaited or room >= 0:
                return room + len(data) * awaited >= 0  # however large, one is sent
            self.size -= len(data)
            first.dropped += 1
            del first.events[0], self.order[0]
        return True

    def keep(self, stream: SessionStream, line: bytes, patient: bool, **fields: Any) -> bytes:
        """Number and keep an event. If a reader is too slow, wait, or close its stream."""
        with self.keeping:
            while not self.make_room(len(line)):
                if patient:
                    self.keeping.wait()
                else:
                    self.order[0].leave()
            stream.count += 1
            data = event(line, f"{stream.id}-{stream.count}", **fields)
            stream.events.append(data)
            self.order.append(stream)
            self.size += len(data)
            self.make_room()
            self.keeping.notify_all()
            return data

    def can_write(self) -> bool:
        return self.stream.can_write()

    def push(self, message: Any, patient: bool = False) -> None:
        """Send a message that belongs to no POST."""
        self.keep(self.stream, encode(message), patient)

    def look_after(self, now: float) -> None:
        """Look after its stream; end it if it has not been used for long."""
        self.stream.look_after(now)
        if not self.stream.copying and now - self.used > SESSION_SECONDS:
            self.close()

    def close(self) -> None:
        """End the session; requests that are running are still answered."""
        self.endpoint.sessions.pop(self.id, None)
        self.endpoint.streams.pop(self, None)
        super().close()
        self.stream.finish()


def legacy_verbs(endpoint: Endpoint, exchange: Exchange, path: str) -> dict[str, Any]:
    """Return what legacy clients may do on a path: functions by verb."""
    if path == endpoint.path and "mcp-session-id" in exchange.headers:
        return {"GET": serve_session, "POST": Endpoint.post, "DELETE": serve_session}
    if path == endpoint.path.rpartition("/")[0] + "/sse" or path == endpoint.path \
            and endpoint.sse_on_get and exchange.method == "GET" \
            and "mcp-protocol-version" not in exchange.headers:
        return {"GET": serve_sse}
    return {"POST": serve_sse_post} if path == endpoint.path.rstrip("/") + "/messages" else {}


def find_session(endpoint: Endpoint, exchange: Exchange) -> HttpSession:
    """Return the session that a request names; 404 if it is gone, or someone else's."""
    named = exchange.query.partition("session_id=")[2]  # HTTP+SSE
    session = endpoint.sessions.get(exchange.headers.get("mcp-session-id", named))
    if session is None or session.principal != encode(exchange.principal):
        raise HttpError(404, "the session is gone; send `initialize` to open another")
    if exchange.headers.get("mcp-protocol-version", R2) not in versions("legacy"):
        raise HttpError(400, "MCP-Protocol-Version must be legacy")
    session.used = time.monotonic()
    return session


def legacy_stream(endpoint: Endpoint, stream: Stream, message: Any) -> tuple[Stream, Peer]:
    """Return the stream and the peer for a message; of a modern one, it is both."""
    with suppress(KeyError, TypeError):
        if META_VERSION in message["params"]["_meta"]:
            return stream, stream
    # [2025-11-25] basic/transports §Session Management.
    exchange, headers = stream.request, stream.request.headers
    version = headers.get("mcp-protocol-version", R2)
    if version not in REVISIONS:
        raise HttpError(400, "MCP-Protocol-Version is unknown")
    request: Message = message if isinstance(message, dict) else {"id": 0}
    if endpoint.stateless:
        if version in versions("legacy"):
            stream.session = Session(endpoint.server, stream, version, {})
    elif request.get("method") == "initialize" and "id" in request:
        with suppress(AttributeError, KeyError, RpcError):  # it is refused without a session
            check_params(kind_of(request) and "initialize", request["params"])
            stream = SessionStream(exchange, HttpSession(endpoint, exchange))
            exchange.extra["Mcp-Session-Id"] = stream.owner.id
    elif "mcp-session-id" in headers:
        stream = SessionStream(exchange, find_session(endpoint, exchange))
    # Answers in a session have status 200, but for a refused batch.
    stream.started = bool(stream.owner or stream.session) and not isinstance(message, list)
    return stream, stream.owner or stream


def serve_session(endpoint: Endpoint, exchange: Exchange) -> None:
    """Serve GET (listen, or resume a stream) and DELETE: [2025-11-25] basic/transports."""
    session = find_session(endpoint, exchange)
    if exchange.method == "DELETE":
        session.close()
        return answer(exchange, 200)
    last = re.fullmatch(r"(\w+)-(\d{1,9})", exchange.headers.get("last-event-id", ""))
    ident, after = (last[1], int(last[2])) if last else (session.id, session.stream.sent)
    streams = [*endpoint.streams, *session.order, session.stream]
    stream = {one.id: one for one in streams if one.owner is session}.get(ident)
    missing = stream and after < stream.dropped
    if stream is None or stream.ended and after >= stream.count \
            or missing and stream is not session.stream:
        raise HttpError(405, "this stream has ended", {"Allow": "POST, DELETE"})
    if missing and (memo := session.session):  # some changes were dropped
        after = stream.count
        for name, row in NOTIFICATIONS.items():
            if memo.filter.get(row.filter) is True:
                memo.tell(name, {})
        for uri in list(memo.filter["resourceSubscriptions"]):
            memo.tell("notifications/resources/updated", {"uri": uri})
    stream.attach(exchange, after)


def serve_sse(endpoint: Endpoint, exchange: Exchange) -> None:
    """[2024-11-05] basic/transports §HTTP with SSE: the first event says where to POST."""
    session = HttpSession(endpoint, exchange)
    # A relative reference: a proxy may have taken a prefix from the path.
    address = f"{endpoint.path.rpartition('/')[2]}/messages?session_id={session.id}"
    session.keep(session.stream, address.encode(), False, id="", event="endpoint")
    session.stream.attach(exchange, 0)
    session.close()


def serve_sse_post(endpoint: Endpoint, exchange: Exchange) -> None:
    """Serve a message; what results goes to the session's stream."""
    session = find_session(endpoint, exchange)
    message = endpoint.read_message(exchange)
    if threading.active_count() > MAX_CONNECTIONS + MAX_THREADS:
        raise HttpError(503, "too many calls wait", {"Retry-After": "1"})
    # On a thread of its own: the next POST may use this connection.
    endpoint.server.handle(
        message, functools.partial(session.push, patient=True), peer=session,
        principal=exchange.principal, start=functools.partial(run_aside, "mcp-call"))
    answer(exchange, 202)


# ======== The end of part III =============================================================


if __name__ == "__main__":
    sys.modules.setdefault("mcp_ref", sys.modules["__main__"])  # for what a served file imports
    main(sys.argv[1:])
