#!/usr/bin/env python3
# mcp_ref.py 1.0.0: the Model Context Protocol in one file.
# What has changed, and the SHA-256 of each release: .github/CHANGELOG.md.
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""A Model Context Protocol (MCP) server in one file, standard library only.

MCP lets an AI application (the *host*, with a *client* inside it) use what a *server*
offers. The two exchange JSON objects, as JSON-RPC 2.0 defines them. There are three
kinds of message:

    request      {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {...}}
    response     {"jsonrpc": "2.0", "id": 1, "result": {...}}  or  {..., "error": {...}}
    notification {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}

A request gets one response, with the same `id`, unless it is cancelled; a notification
has no id and is never answered. A server offers *tools* (functions that the model
calls), *resources* (data named by a URI, which the application reads) and *prompts*
(message templates that the user picks). It may ask the client for *elicitation* (a form
for the user), *sampling* (a completion from the client's model) and *roots* (the
folders to work in). A complete server:

    from mcp_ref import Server
    server = Server("hello")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()  # on standard input and output; with `--http PORT`, over HTTP

A *capability* is an optional part of MCP: each side declares those that it has. A
*revision* is a version of the specification, named by its date. Up to 2025-11-25 (the
*legacy* era), a client opens a *session* with an `initialize` request, and what it says
there holds for the session. Since 2026-07-28 (the *modern* era) there are no sessions:
every request names its revision and the client's capabilities in `params._meta`.

This file serves both eras. Part I is a server on stdio, part II adds HTTP, part III
adds legacy clients. Lines elsewhere that depend on part III end in `# [legacy]`. The
rest works without part III and these lines, or without these lines and everything from
part II on.

    I     1  the tables: the protocol as data
          2  messages and framing
          3  what happens to a request
          4  the server: registering, dispatch, methods, results
          5  what a handler sees: Context, questions to the client
          6  the peer: running requests, cancellation
          7  stdio
          A  type hints to JSON Schema and back
          B  JSON Schema validation
          C  logging and tracing
    II    8  the endpoint: the rules of HTTP, without sockets
          9  serve_http: the endpoint on sockets
         10  the command line
    III  11  sessions, questions as requests, batches
         12  sessions over HTTP, resumable streams, HTTP+SSE

References such as `basic/patterns/mrtr §Error Handling` name a page and a heading of
the newest revision of the specification; a page of an older revision has its date in
brackets in front. The client is a separate file, examples/mcp_client.py.

In a package, put this file beside your modules, and write `from .mcp_ref import
Server`: then each package has its own copy. Of two copies on sys.path that are imported
as `mcp_ref`, the first one serves both.

Known limits: a running handler can only be asked to stop. Patterns in schemas run on
Python's `re`, so a careless one can be slow. A program whose handlers use
multiprocessing must call run() under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import reprlib
import sys
import threading
import time
import types
import typing
from collections import Counter, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache, partial
from math import inf
from operator import ge, gt, le, lt
from typing import Any, Union, get_args, get_origin, get_type_hints, overload

__version__ = "1.0.0"
__all__ = """
    ASK_SECONDS BLINK_SECONDS ERRORS FEATURES HEADER_MISMATCH INTERNAL_ERROR
    INVALID_PARAMS INVALID_REQUEST LEAVE_SECONDS LOG_LEVELS MAX_BATCH
    MAX_COMPLETIONS MAX_DEPTH MAX_MESSAGE_BYTES MAX_RUNNING MAX_THREADS MAX_URIS
    MAX_URI_LENGTH META_CAPABILITIES META_CLIENT META_LOG_LEVEL META_SERVER
    META_SUBSCRIPTION META_VERSION METHODS METHOD_NOT_FOUND MISSING_CAPABILITY
    NOTIFICATIONS PARSE_ERROR RESOURCE_NOT_FOUND REVISIONS RUN_SECONDS STATE_SECONDS
    UNSUPPORTED_VERSION URL_REQUIRED AskError ClientLacks Context NotFound Peer
    Result RpcError Schema Server ToolError audio decode elicitation embedded encode
    image is_id kind_of link log roots rules sampling schema_of serve_stdio text
    versions
""".split()

Message = dict[str, Any]  # a JSON object, which stays a plain dict
# A function in steps: what comes after a `yield` may run later and on another thread,
# when the coroutine has ended whose Future it yields.
Steps = typing.Generator[Any, None, Any]
Func = Callable[..., Any]  # any function
F = typing.TypeVar("F", bound=Func)  # what a decorator returns as it is
Headers = dict[str, str]  # of HTTP
Send = Callable[[Any], None]  # takes one message, and sends it


# ======== Part I: a server on stdio ===================================================
# ======== 1. The tables: the protocol as data =========================================
# What the specification lists is a row here, and the code reads the rows. No date
# appears anywhere else; revisions are compared by their position in REVISIONS. The
# columns of several tables:
#
#     since, until  the first and the last revision that have it; no `until`: the newest
#     deprecated    the revision that advises against it; it is still served
#     way           ">" if clients send it, "<" if servers send it
#     capability    what the receiver of a request or sender of a notification must
#                   declare

# Short names of the revisions, of which R1 is the oldest: a row must fit on a line.
_SHORT: dict[str, str] = {}


def read_table(kind: Any, text: str, prefix: str = "") -> dict[Any, Any]:
    """Return the rows of a table by their first cells.

    The first line names the columns. Two spaces or more stand between two cells; `-`
    is an empty one.
    """
    words: dict[str, Any] = {"-": "", "yes": True, "no": False}
    words.update(_SHORT)

    def cell(word: str) -> Any:
        is_number = word.lstrip("-").isdigit()
        return int(word) if is_number else words.get(word, word)

    table = {}
    for line in text.strip().splitlines()[1:]:
        row = kind(*map(cell, re.split("  +", line.strip())))
        table[prefix + row[0] if prefix else row[0]] = row
    return table


# To add a revision: a row on top, then `since` and `until` where rows change.
Revision = namedtuple("Revision", "date era")
REVISIONS = read_table(
    Revision,
    """
    date        era
    2026-07-28  modern
    2025-11-25  legacy
    2025-06-18  legacy
    2025-03-26  legacy
    2024-11-05  legacy
""",
)
for _number, _date in enumerate(reversed(REVISIONS), 1):
    _SHORT[f"R{_number}"] = _date
R2 = _SHORT["R2"]

# To add a method: a row, its params in PARAMS, and for ">" a function in SERVED
# (section 4). `asks`: its handler may ask the client (basic/patterns/mrtr §Supported
# Requests); `cacheable`: its result has caching hints (server/utilities/caching);
# `mirrored`: HTTP repeats it in Mcp-Name.
Method = namedtuple(
    "Method", "name way since until deprecated asks cacheable mirrored capability"
)
METHODS = read_table(
    Method,
    """
    name                      way  since  until  depr.  asks  cache  mirrored  capability
    server/discover           >    R5     -      -      no    yes    -         -
    tools/list                >    R1     -      -      no    yes    -         tools
    tools/call                >    R1     -      -      yes   no     name      tools
    resources/list            >    R1     -      -      no    yes    -         resources
    resources/templates/list  >    R1     -      -      no    yes    -         resources
    resources/read            >    R1     -      -      yes   yes    uri       resources
    prompts/list              >    R1     -      -      no    yes    -         prompts
    prompts/get               >    R1     -      -      yes   no     name      prompts
    completion/complete       >    R1     -      -      no    no     -         completions
    subscriptions/listen      >    R5     -      -      no    no     -         -
    initialize                >    R1     R4     -      no    no     -         -
    ping                      <>   R1     R4     -      no    no     -         -
    logging/setLevel          >    R1     R4     -      no    no     -         logging
    resources/subscribe       >    R1     R4     -      no    no     -         resources
    resources/unsubscribe     >    R1     R4     -      no    no     -         resources
    elicitation/create        <    R3     -      -      no    no     -         elicitation
    sampling/createMessage    <    R1     -      R5     no    no     -         sampling
    roots/list                <    R1     -      R5     no    no     -         roots
""",
)

# basic/index §_meta: the reserved keys. The first three say who sends a modern request.
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META_SERVER = "io.modelcontextprotocol/serverInfo"

# server/utilities/logging §Log Levels: the eight of RFC 5424, least urgent first.
LOG_LEVELS = "debug info notice warning error critical alert emergency".split()

# To add what is checked of a request's params: a row, or a word. `?` marks what may be
# None, or left out.
TYPES: Message = {
    "str": str,
    "dict": dict,
    "str?": (str, type(None)),
    "dict?": (dict, type(None)),
    "level": LOG_LEVELS,  # one of these
}
Params = namedtuple("Params", "method words")
PARAMS = {
    method: {
        name: TYPES[kind] for name, kind in re.findall("(.+?):(.+?)(?: |$)", words)
    }
    for method, words in read_table(
        Params,
        """
    method                 words
    initialize             protocolVersion:str capabilities:dict clientInfo:dict
    tools/call             name:str arguments:dict? inputResponses:dict? requestState:str?
    resources/read         uri:str inputResponses:dict? requestState:str?
    resources/subscribe    uri:str
    resources/unsubscribe  uri:str
    prompts/get            name:str arguments:dict? inputResponses:dict? requestState:str?
    completion/complete    ref:dict argument:dict context:dict?
    logging/setLevel       level:level
    subscriptions/listen   notifications:dict
""",
    ).values()
}
PARAMS["_meta"] = {
    META_VERSION: str,
    META_CAPABILITIES: dict,
    META_CLIENT: TYPES["dict?"],
    META_LOG_LEVEL: [None, *LOG_LEVELS],
}
RETRY = "inputResponses", "requestState"  # see section 5

# To add a notification: a row. A server sends it with Context.notify or Server.changed.
# `filter` is the member of a subscription's filter that asks for it.
Notification = namedtuple(
    "Notification", "name way since until deprecated capability filter"
)
NOTIFICATIONS = read_table(
    Notification,
    """
    name                        way  since  until  depr.  capability  filter
    cancelled                   <>   R1     -      -      -           -
    progress                    <>   R1     -      -      -           -
    message                     <    R1     -      R5     logging     -
    tools/list_changed          <    R1     -      -      tools       toolsListChanged
    prompts/list_changed        <    R1     -      -      prompts     promptsListChanged
    resources/list_changed      <    R1     -      -      resources   resourcesListChanged
    resources/updated           <    R1     -      -      resources   resourceSubscriptions
    subscriptions/acknowledged  <    R5     -      -      -           -
    elicitation/complete        <    R4     R4     -      -           -
    initialized                 >    R1     R4     -      -           -
    roots/list_changed          >    R1     R4     -      roots       -
""",
    "notifications/",
)

# To add another difference: a row, and `"its name" in rules.features` where it matters.
# If the only difference is added or removed members, list them in `fields`:
# "kind.member", or "*.member".
Feature = namedtuple("Feature", "name since until deprecated fields", defaults=["", ""])
FEATURES = read_table(
    Feature,
    """
    name                    since  until  depr.  fields
    caching hints           R5     -      -      result.ttlMs result.cacheScope
    result types            R5     -      -      result.resultType
    any structured content  R5     -
    header mirroring        R5     -
    argument errors         R4     -
    URL elicitation         R4     -      -      elicitation.url elicitation.mode
    elicitation ids         R4     R4
    rich forms              R4     -
    sampling tools          R4     -      -      sampling.tools
    sampling context        R4     -      R4
    priming events          R4     R4
    icons                   R4     -      -      *.icons
    server description      R4     -      -      server.description server.websiteUrl
    titles                  R3     -      -      *.title
    _meta everywhere        R3     -      -      *._meta
    structured output       R3     -      -      tool.outputSchema result.structuredContent
    modification times      R3     -      -      annotations.lastModified
    resource links          R3     -
    completion context      R3     -
    version header          R3     -
    audio                   R2     -
    tool annotations        R2     -      -      tool.annotations
    progress messages       R2     -
    completions capability  R2     -
    batches                 R2     R2
    streamable sessions     R2     R4
    null id in errors       R1     R3
    HTTP+SSE                R1     R1     R2
""",
)

# To add an error: a row, and its name below. A code is understood in every revision and
# sent only in its own (basic/index §Error Codes). Choose your own codes outside the
# reserved range, which is -32768 to -32000. `status` is that of the HTTP answer, if no
# handler has started.
Error = namedtuple("Error", "code name since until status sent")
ERRORS = read_table(
    Error,
    """
    code    name                             since  until  HTTP  sent
    -32700  ParseError                       R1     -      400   by a transport: not JSON
    -32600  InvalidRequest                   R1     -      400   JSON, but not a request
    -32601  MethodNotFound                   R1     -      404   no such method here
    -32602  InvalidParams                    R1     -      400   wrong params or unknown name
    -32603  InternalError                    R1     -      500   a handler failed
    -32020  HeaderMismatch                   R5     -      400   headers contradict the body
    -32021  MissingRequiredClientCapability  R5     -      400   the client cannot be asked
    -32022  UnsupportedProtocolVersion       R5     -      400   `_meta` names another one
    -32002  ResourceNotFound                 R1     R4     400   no such resource (now -32602)
    -32042  URLElicitationRequired           R4     R4     400   visit these pages, then retry
""",
)
(
    PARSE_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    INTERNAL_ERROR,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    RESOURCE_NOT_FOUND,
    URL_REQUIRED,
) = ERRORS

# Names from LSP and from tutorials, and what is probably meant. A notification is
# understood; a request gets an error that mentions the right name.
# fmt: off
MISNAMED = {
    "$/cancelRequest": "notifications/cancelled", "$/progress": "notifications/progress",
    "initialized": "notifications/initialized", "resources/get": "resources/read",
    "prompts/read": "prompts/get", "tools/execute": "tools/call"}
# fmt: on


TABLES: dict[str, Any] = {
    "methods": METHODS,
    "notifications": NOTIFICATIONS,
    "features": FEATURES,
    "errors": ERRORS,
}


class Rules:
    """The tables as one revision sees them: sets of names, or of codes. See rules()."""

    def __init__(self, version: str) -> None:
        order = list(REVISIONS)
        here = order.index(version)

        def has(row: Any) -> bool:
            return order.index(row.until or order[0]) <= here <= order.index(row.since)

        self.version, self.modern = version, REVISIONS[version].era == "modern"

        self.served = {  # keys, by the title of the table
            title: frozenset(key for key, row in table.items() if has(row))
            for title, table in TABLES.items()
        }
        self.methods, self.notifications, self.features, self.errors = (
            self.served.values()
        )

        self.hidden: set[str] = set()  # the `fields` that this revision lacks
        for row in FEATURES.values():
            if not has(row):
                self.hidden.update(row.fields.split())


rules = cache(Rules)


def versions(era: str = "") -> list[str]:
    """List the revisions of an era, or all that are served, newest first."""
    served = ["modern"]
    served.append("legacy")  # [legacy]
    return [
        row.date
        for row in REVISIONS.values()
        if row.era in served and era in ("", row.era)
    ]


# ======== 2. Messages and framing =====================================================
# From bytes to messages and back. On stdio a message is one line
# (basic/transports/stdio). It is written in ASCII, with \u escapes: safe under any code
# page, and no reader takes U+2028 for the end of a line.

MAX_MESSAGE_BYTES = 16 * 2**20  # of one message, in or out
MAX_BATCH = 100  # messages in a batch
MAX_DEPTH = 500  # arrays and objects inside each other: a thread's stack may be small


class RpcError(Exception):
    """An error for the other side: raise it in a handler to answer with it.

    `code`: an integer outside -32768 to -32000, or one of ERRORS. `data`: any JSON
    value.
    """

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        if not isinstance(code, int):
            raise TypeError(f"RpcError(code, message): {code!r:.99} is not a code")
        super().__init__(message or (ERRORS[code].name if code in ERRORS else "error"))
        self.code, self.data = code, data

    def __reduce__(self) -> Any:  # for pickle and copy
        return type(self), (self.code, str(self), self.data)


def invalid(problem: str, data: Any = None) -> RpcError:
    """Make the error for wrong params."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {problem}", data)


def without_none(**members: Any) -> Message:
    """Return the members that are not None; the others are not sent."""
    return {key: value for key, value in members.items() if value is not None}


def _refuse(found: Any) -> None:
    """Refuse NaN and Infinity, as Python reads them, and what is not JSON."""
    raise ValueError(f"this must be a JSON value: {found!r:.200}")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(data: bytes) -> Any:
    """Return the JSON value in UTF-8 `data`, or RpcError with PARSE_ERROR."""
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message is larger than {MAX_MESSAGE_BYTES} bytes")
        if depth_of(data) > MAX_DEPTH:
            raise ValueError("the message is nested too deeply")
        return _decode(str(data, "utf-8").lstrip("\ufeff"))
    except (ValueError, RecursionError) as problem:
        raise RpcError(PARSE_ERROR, f"Parse error: {problem}") from None


def depth_of(data: bytes) -> int:
    """Return how deeply JSON is nested, without recursion; 0 if it cannot be deep."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return 0  # most messages
    # What is escaped must not count, nor what stands in strings.
    brackets = re.sub(rb'"[^"]*"|[^][{}"]+', b"", re.sub(rb"\\.", b"", data))
    steps = brackets.translate(bytes.maketrans(b"[]{}", b"\1\xff\1\xff"))
    return max(itertools.accumulate(memoryview(steps).cast("b")), default=0)


def encode(message: Any) -> bytes:
    """Return a message as a line.

    TypeError, ValueError, RecursionError: it cannot be sent.
    """
    line = f"{_encode(message)}\n".encode()
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


def is_id(value: Any) -> bool:
    """Tell whether a value may be an id or a progress token."""
    return type(value) in (str, int) and len(str(value)) < 2**16  # not bool


def kind_of(message: Any) -> str:
    """Return the kind of a message: basic/index §Messages.

    That is "request", "notification" or "response"; RpcError with INVALID_REQUEST if it
    is none of these. A malformed notification (a
    method, no id) or response (a result or error, no method) counts as one, because it
    must not be answered.
    """
    problem = "a message must be a JSON object"
    if isinstance(message, dict):
        method = message.get("method")
        if "id" not in message and isinstance(method, str):
            return "notification"
        if "method" not in message and message.keys() & {"result", "error"}:
            return "response"
        if (
            message.get("jsonrpc") == "2.0"
            and isinstance(method, str)
            and is_id(message.get("id"))
            and isinstance(message.get("params", {}), dict)
        ):
            return "request"
        problem = (
            'a request must have "jsonrpc": "2.0", an id (string or integer), a method '
            "(string), and params that are an object, if any"
        )
    raise RpcError(INVALID_REQUEST, f"Invalid request: {problem}")


def error_response(error: RpcError, message: Any, peer: Peer | None = None) -> Message:
    """Make the response to a message that cannot be served, with its id if valid."""
    ident = message.get("id") if isinstance(message, dict) else None
    response = {
        "jsonrpc": "2.0",
        "id": ident,
        "error": without_none(code=error.code, message=str(error), data=error.data),
    }
    if not is_id(ident):
        response.pop("id")  # basic/index §Error Responses
        if peer and has_null_ids(peer.session):  # [legacy]
            response["id"] = None  # [legacy]
    return response


# ======== 3. What happens to a request ================================================
# A Request is admitted, if it may be served; its method's function runs, which usually
# calls a *handler*, a function that an author registered; the result gets the shape
# that the revision wants; and the response is sent. Context (section 5) adds what the
# handler sees, and LegacyContext (section 11) what differs in a session.
#
# From Server.handle() to the author's function, and back:
#
#     _admit()     may it be served? The error, if not, is the response
#       _resolve() finds the method's function (section 4), and checks the params
#       _submit()  gives _perform() to the transport, which calls it on some thread
#     _perform()   runs the steps; after a coroutine, it is called again to go on
#       _run()     never raises; sends the response
#       _outcome() turns exceptions into errors
#       _call()    has the answers of the user, or asks (section 5)
#       serve_*()  one for each method; calls the author's function, shapes its result
#     _finish()    ends the request
#
# A request ends once: answered, cancelled by the client, or abandoned because the
# client has left. _end() is the only place that decides which.
#
# The *peer* is the other end of a pipe or a session (section 6); the *principal* is the
# caller, if the transport knows; a *flaw* is what a Schema finds wrong with a value: a
# text, or None.

MAX_RUNNING = 1000  # requests that one peer may have in flight


class NotFound(Exception):
    """Raise it in the handler of a resource or prompt: there is no such thing."""


class ToolError(Exception):
    """Raise it in a tool for a mistake that is expected: it is not logged.

    Its text becomes the result, with `isError`, for the model to read.
    """


class Result(dict[str, Any]):
    """What a modern tool returns if an extension defines the result; sent as it is."""


class ClientLacks(RpcError):
    """The client did not declare what a question needs: basic/index §_meta."""


class Request:
    """One request, from its arrival to its end.

    `_lock` orders its messages, and is held while one is sent. `_ending` guards
    `cancelled`, `_ended`, `_wakes` and what Context notes of questions; nothing waits
    while it is held. All but _cancel() and _wake_with(), which any thread may call,
    happens on one thread after the other.
    """

    cancelled = False
    _call: Func  # calls the method's function: see Context
    filter: Message  # what a subscription is told of
    granted: Message  # the same, as it is acknowledged
    _ended = False  # nothing more is sent

    def __init__(
        self,
        server: Server,
        peer: Peer,
        send: Send,
        message: Message,
        meta: Message,
        principal: Any,
    ) -> None:
        self.server, self.peer, self.principal = server, peer, principal
        self.id, self.method = message["id"], message["method"]
        self.params: Message = message.get("params", {})
        self.meta = meta
        self._send = send
        self._lock = threading.RLock()
        self._ending = threading.Lock()
        self._wakes: list[Func] = []  # for _cancel() to call

    # ---- admitting
    def _admit(self, start: Func) -> None:
        """Start the handler; RpcError if the request may not be served."""
        version: Any = self.meta.get(META_VERSION)
        if self.method == "initialize" and version is None:  # a copy without part III
            version = self.params.get("protocolVersion", "")
        else:
            check_params("_meta", self.meta)
            self._identify(self.meta)
            self.peer.check(self)

        is_known = META_VERSION in self.meta and version in REVISIONS
        if not (is_known and rules(version).modern):
            raise RpcError(
                UNSUPPORTED_VERSION,
                f"Unsupported protocol version: {version!s:.40}",
                {"supported": versions(), "requested": version},
            )
        self._resolve(version)
        self._submit(start)

    def _identify(self, client: Message) -> None:
        """Note who the client is, under the keys of a `_meta`."""
        self._client = client
        self.client_info: Message = client.get(META_CLIENT) or {}
        self.client_capabilities: Message = client[META_CAPABILITIES]

    def _resolve(self, version: str) -> None:
        """Find the method's function; check the params."""
        self.version, self._rules = version, rules(version)
        method, server = self.method, self.server
        self._row = METHODS.get(method)  # None: an extension's
        is_extended = method in server.methods
        self._function: Any = serve_extension if is_extended else SERVED.get(method)
        exists = self._row is None or (
            method in self._rules.methods and self._row.capability in server.declared
        )
        if not self._function or not exists:
            meant = f"; did you mean {MISNAMED[method]}?" if method in MISNAMED else ""
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method:.200}{meant}")
        self._may_ask = self._row and self._row.asks and not is_extended
        check_params(method, self.params)

    def _submit(self, start: Func) -> None:
        """Have the handler run."""
        if len(self.peer.running) >= MAX_RUNNING:
            raise RpcError(
                INTERNAL_ERROR, f"{MAX_RUNNING} requests are running: wait for some"
            )
        self.peer.running[self.id], self._steps = self, self._run()
        if self.method == "server/discover":  # which must not wait for handlers
            return self._perform()
        start(self._perform)

    # ---- running
    def _perform(self) -> None:
        """Run the handler and send the response, whatever happens.

        If the peer's `responders` take care of a coroutine, this returns; it runs again
        when that has ended.
        """
        for future in self._steps:
            crew = self.peer.responders
            if crew and self._send is self.peer.send:  # not in a batch
                future.add_done_callback(lambda _: crew.add(self._perform))
                return

    def _run(self) -> Steps:
        """Do the same in steps: one ends where a coroutine begins."""
        try:
            response = {} if self.cancelled else (yield from self._outcome())
        except BaseException:  # even to make or log the error has failed
            response = self._failure(RpcError(INTERNAL_ERROR))
        if response is not None:
            self._finish(response)

    def _outcome(self) -> Steps:
        """Run the handler and return the response; None: it is sent later."""
        try:
            result = yield from self._call()
            return None if result is None else self._respond(self._shape(result))
        except RpcError as problem:
            error = problem
        except NotFound as problem:  # server/resources §Error Handling
            has_code = RESOURCE_NOT_FOUND in self._rules.errors
            error = RpcError(
                RESOURCE_NOT_FOUND if has_code else INVALID_PARAMS,
                str(problem) or "Resource not found",
                without_none(uri=self.params.get("uri")) or None,
            )
        except BaseException as problem:  # SystemExit too: the server goes on
            error = RpcError(INTERNAL_ERROR)
            if not self.cancelled:
                log_failure(self.method, problem)
        return self._failure(error)

    # ---- the shape of results and errors
    def _respond(self, result: Message) -> Message:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def _shape(self, result: Message) -> Message:
        """Complete a result: basic/index §ResultType, server/utilities/caching."""
        is_question = result.get("resultType") == "input_required"
        is_cacheable = self._row and self._row.cacheable and not is_question
        hints = self.server.cache_hints if is_cacheable else {}
        meta = {META_SERVER: self.server.brief, **result.get("_meta", {})}
        return {"resultType": "complete", **hints, **result, "_meta": meta}

    def _failure(self, error: RpcError) -> Message:
        """Make an error response; a reserved code that the revision lacks is -32603."""
        is_reserved = -32768 <= error.code <= -32000
        if is_reserved and error.code not in self._rules.errors:
            error = RpcError(INTERNAL_ERROR, str(error), error.data)
        return error_response(error, {"id": self.id})

    # ---- ending
    def _finish(self, response: Message) -> None:
        """Send the response, unless the request has ended; its id may be used again."""
        self.peer.running.pop(self.id, None)
        with self._lock:
            if not self._end():
                return
            try:
                self._send(response)
            except Exception as problem:  # it is not JSON, too large, ...
                _log(f"the result of {self.method} cannot be sent: {problem!r}")
                if self.method == "tools/call" and "result" in response:
                    result = tool_error(f"the result cannot be sent: {problem!s:.200}")
                    response = self._respond(self._shape(result))
                else:
                    response = self._failure(RpcError(INTERNAL_ERROR))
                self._send(response)

    def _end(self, cancelled: bool = False) -> bool:
        """End the request; False if it had ended."""
        with self._ending:
            if self._ended:
                return False
            self._ended, self.cancelled = True, cancelled
            return True

    def _cancel(self) -> None:
        """End the request without a response; does not block."""
        if self._end(cancelled=True):
            for wake in self._wakes:
                wake()

    def _wake_with(self, wake: Func) -> None:
        """Have _cancel() call a function that does not block, once."""
        with self._ending:
            if not self.cancelled:
                return self._wakes.append(wake)
        wake()


# ======== 4. The server: registering, dispatch, one function per method, results ======
# The whole server is `handle(message, send)`: a message comes in, messages go out.
# There are two ways to fail (server/tools §Error Handling): a *result* with `isError`
# is for the model to read, an *error* is for the program that sent the request.
#
#     what happens                   in a tool                   in any other handler
#     RpcError is raised             that error                  that error
#     ToolError is raised            isError, not logged         -32603, without it
#     ClientLacks: cannot be asked   -32021 (legacy: isError)    -32021 (legacy: -32603)
#     NotFound is raised             isError                     no such resource
#     any other exception            isError, with its text      -32603, without it
#     arguments break the schema     isError (until R3: -32602)  -32602
#     a result breaks output_schema  isError
#
# So a tool's exception is read by a model: word it accordingly. Tracebacks go to stderr
# only. An *Entry* (section A) is a registered function with its schemas; lists show its
# `definition`.

RUN_SECONDS = 60  # until what `run=` was given must have begun
MAX_URIS = 1000  # that a session or a subscription watches
MAX_URI_LENGTH = 8192  # of each of these
MAX_COMPLETIONS = 100  # values: server/utilities/completion §Completion Results
# Of tools (server/tools §Tool), and of resources (server/resources §Annotations).
ANNOTATIONS = (
    "title readOnlyHint destructiveHint idempotentHint openWorldHint"
    " audience priority lastModified"
)
# basic/versioning §Capability Negotiation: what the server declares once a feature is
# registered.
CAPABILITIES: dict[str, Message] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


Entries = dict[str, "Entry"]  # what is registered, by name or URI


class Registry:
    """What a server offers: the functions that were registered."""

    def __init__(self) -> None:
        self.tools: Entries = {}
        self.resources: Entries = {}
        self.templates: Entries = {}
        self.prompts: Entries = {}
        self.completions: dict[Any, Entry] = {}
        self.methods: Entries = {}  # extension methods
        self.mirrored: dict[str, str] = {}  # their params that HTTP repeats in Mcp-Name
        self.extensions: dict[str, Message] = {}  # settings, by identifier
        self.declared = {"", "logging"}  # capabilities; those of deleted tools stay

    # ---- registering. `members` are icons and _meta; resources also have a size. Each
    # returns the function as it is. TypeError, ValueError: it cannot be used.
    @overload
    def tool(self, function: F, **options: Any) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str = "",
        title: str | None = None,
        description: str | None = None,
        annotations: Message | None = None,
        input_schema: Message | None = None,
        output_schema: Message | None = None,
        run: None = ...,
        **members: Any,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        *,
        name: str = "",
        input_schema: Message | None = None,
        output_schema: Message | None = None,
        run: Any = ...,
        **members: Any,
    ) -> Func:
        """Register a function as a tool.

        Its hints become schemas (see schema_of()), its docstring the description.
        `name`, `title`, `description`, `annotations` (server/tools §Tool) and `members`
        (icons, _meta) are what lists show.

        It returns text, content (see text(), image(), ...), a list of these, a complete
        result {"content": [...]}, or any other value, sent as JSON. `run=None` keeps it
        off the thread of the server's `run=`.

        What it raises is for the model: a result with `isError` and the text of the
        exception, and a traceback in the log, unless it is a ToolError. An RpcError is
        for the client: that error.
        """
        if run not in (None, ...):
            raise TypeError("run= of a tool can only be None")

        def register(function: F) -> F:
            entry = Entry(function, input_schema, output_schema)
            if entry.input_schema.get("type") != "object":
                raise ValueError('an input schema must have "type": "object"')
            entry.stays |= run is None
            called = name or entry.name
            if not re.fullmatch("[A-Za-z0-9_.-]{1,128}", called):
                _log(
                    f"tool {called!r:.200}: some hosts refuse names other than 1 to 128"
                    " letters, digits, _ - and . (server/tools §Tool Names); see name="
                )
            self._add(
                "tools",
                called,
                entry,
                members,
                "annotations",
                inputSchema=entry.input_schema,
                outputSchema=entry.output_schema,
            )
            return function

        return register(function) if function else register

    def resource(
        self,
        uri: str,
        *,
        name: str = "",
        mime_type: str | None = None,
        ttl_ms: int | None = None,
        cache_scope: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Message | None = None,
        **members: Any,
    ) -> Callable[[F], F]:
        """Register a function as a resource, or as a template: "notes://{id}".

        It returns text, bytes, {"text" or "blob": ..., "uri", "mimeType"} or a list of
        such dicts, or any other value, sent as JSON. `{id}` stands for one path
        segment, `{+path}` for several.

        NotFound: there is none, and its text says so. RpcError: that error. The client
        learns nothing about other exceptions, which are logged.
        """
        pattern = compile_template(uri)
        members.update(title=title, description=description, annotations=annotations)

        def register(function: F) -> F:
            entry = Entry(function, output_schema={})
            entry.pattern = pattern
            entry.cache_hints = without_none(ttlMs=ttl_ms, cacheScope=cache_scope)
            if set(pattern.groupindex) != set(entry.parameters):
                raise ValueError(
                    f"{entry.name}() must have the variables of {uri} as parameters"
                )
            self._add(
                "templates" if entry.parameters else "resources",
                uri,
                entry,
                members,
                "annotations size",
                name=name or entry.name,
                mimeType=mime_type,
            )
            return function

        return register

    @overload
    def prompt(self, function: F, **options: Any) -> F: ...

    @overload
    def prompt(
        self,
        *,
        name: str = "",
        title: str | None = None,
        description: str | None = None,
        **members: Any,
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, *, name: str = "", **members: Any) -> Any:
        """Register a function as a prompt; its parameters become its arguments.

        Clients send strings: "5" is converted for an int. It returns text or content
        (from the user), {"role", "content"}, or a list. Exceptions: as resource().
        """

        def register(function: F) -> F:
            entry = Entry(function, output_schema={})
            required = entry.input_schema.get("required", ())
            arguments = [
                without_none(
                    name=parameter,
                    description=schema.get("description"),
                    required=parameter in required or None,
                )
                for parameter, schema in entry.input_schema["properties"].items()
            ] or None
            self._add(
                "prompts", name or entry.name, entry, members, arguments=arguments
            )
            return function

        return register(function) if function else register

    def _add(
        self,
        kind: str,
        name: str,
        entry: Entry,
        members: Message,
        options: str = "",
        /,
        **derived: Any,
    ) -> None:
        """Put an entry into its table, with the definition that lists show."""
        table = getattr(self, kind)
        checked_options(members.get("annotations") or {}, ANNOTATIONS)
        if name in table:
            raise ValueError(f"{name!r} is already registered")
        key = {"templates": "uriTemplate", "resources": "uri"}.get(kind, "name")
        entry.definition = {
            key: name,
            **without_none(description=entry.description or None, **derived),
            **checked_options(members, "title description icons _meta " + options),
        }
        table[name] = entry
        self.declared.add("resources" if kind == "templates" else kind)

    def completion(self, reference: str, argument: str) -> Callable[[F], F]:
        """Register a completer for an argument of the prompt, or URI template.

        It gets the text so far and, if it takes two arguments, a dict of the others. It
        returns the values that fit: a completer filters. Exceptions: as resource().
        """

        def register(function: F) -> F:
            self.completions[reference, argument] = Entry(function, {})
            self.declared.add("completions")
            return function

        return register

    def method(
        self,
        name: str,
        *,
        extension: str = "",
        settings: Message | None = None,
        mirrored: str = "",
    ) -> Callable[[F], F]:
        """Register a function for a method of an extension: params to a result.

        capabilities.extensions lists the `settings` under `extension`, or else the
        method's name. `mirrored`: the param that HTTP repeats in Mcp-Name. A method of
        the core is replaced. Exceptions: as resource().
        """
        if "/" not in (extension or name):
            raise ValueError(f"{name!r}: the method of an extension needs a prefix/")

        def register(function: F) -> F:
            self.methods[name], self.mirrored[name] = Entry(function, {}), mirrored
            if name in METHODS:
                self.declared.add(METHODS[name].capability)
            else:
                self.extensions.setdefault(extension or name, {}).update(settings or {})
            return function

        return register

    def capabilities(self, version: str) -> Message:
        """Return the server's capabilities, derived from what is registered."""
        declared = {
            name: CAPABILITIES[name] for name in CAPABILITIES if name in self.declared
        }
        return {**declared, **without_none(extensions=dict(self.extensions) or None)}


class Server(Registry):
    """An MCP server: register functions, then run() it, or call handle().

    Handlers run on several threads at once, over stdio, too. So guard what they share
    with a lock; or have them run on one thread (`run`); or make them `async def`: these
    all run on one event loop (`loop`), where only an `await` lets another one go on.

    `instructions` tell a model how to use it. `page_size`: items per page of a list
    (None: all). `state_key` signs request state; processes that serve the same clients
    must share it. `run` puts handlers on a thread: it is given a function without
    arguments, to be called once. `loop`: the asyncio event loop of `async def`
    handlers; None: one on a thread of its own. `ttl_ms` and `cache_scope` ("private",
    "public") are caching hints. `info`: title, description, websiteUrl, icons. To
    unregister, delete from the dicts `tools`, `resources`, `templates`, `prompts`, and
    call changed(). `on_watch`: a function, called with the URI and the Context of each
    subscription to a resource; if it raises, that is refused.
    """

    served = made = False  # whether any server of this process was served, or made

    def __init__(
        self,
        name: str,
        version: str = "1.0",
        instructions: str | None = None,
        page_size: int | None = None,
        state_key: bytes | str | None = None,
        run: Func | None = None,
        *,
        loop: Any = None,
        ttl_ms: int = 0,
        cache_scope: str = "private",
        **info: Any,
    ) -> None:
        super().__init__()
        Server.made = True
        self.brief = {"name": name, "version": version}  # in every result
        self.info = {
            **self.brief,
            **checked_options(info, "title description websiteUrl icons"),
        }
        self.instructions, self.page_size = instructions, page_size
        key = os.urandom(32) if state_key is None else state_key
        self.state_key = key.encode() if isinstance(key, str) else key
        if not isinstance(self.state_key, bytes) or len(self.state_key) < 16:
            raise ValueError("state_key must be str or bytes, of at least 16 bytes")
        self.cache_hints = {"ttlMs": ttl_ms, "cacheScope": cache_scope}

        self.on_watch: Func = lambda uri, ctx: None
        self.listeners: dict[Any, None] = {}  # what has a `filter` and tell()
        self.elsewhere = Elsewhere(run)
        self._given_loop = self._loop = loop
        self._lock = threading.Lock()  # guards the start of the loop
        self._endings: list[Func] = []  # of each run() in progress
        self._stops = False  # the next run() is to end at once

    def offered(self, kind: str, ctx: Context) -> Entries:
        """Return what a caller may see: "tools", "resources", "templates" or "prompts".

        Override it to hide some from `ctx.principal`: they are not listed, and unknown.
        """
        return getattr(self, kind)  # type: ignore[no-any-return]

    # ---- dispatch
    def handle(
        self,
        message: Any,
        send: Send,
        *,
        peer: Peer | None = None,
        principal: Any = None,
        start: Func = lambda work: work(),
    ) -> None:
        """Serve one decoded message, on any thread: `send` gets what results from it.

        `peer` is what outlives the message; a modern client does not need one. `start`
        is given the handler, a function without arguments, and runs it on the thread of
        its choice.
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
                era(self, peer, send, message, meta, principal)._admit(start)
            elif kind == "notification":
                peer.take_notification(message)
            elif is_id(message.get("id")):  # [legacy]
                peer.questions.pop(message["id"], drop)(message)  # [legacy]
        except RpcError as error:
            send(error_response(error, message, peer))

    def call_handler(
        self, entry: Entry, arguments: Message, ctx: Context, *values: Any
    ) -> Any:
        """Call a registered function on the thread where it is to run.

        Override it to count, limit or log calls: all of them come here, those of a
        batch, too, once their arguments are valid. It returns what the function does:
        if it is overridden, a thread waits for each coroutine.
        """
        call = partial(entry.call, arguments, ctx, *values)
        result = call() if entry.stays else self.elsewhere.call(ctx, call)
        if not hasattr(result, "__await__"):
            return result
        future = self._schedule(result, ctx)
        is_overridden = type(self).call_handler is not Server.call_handler
        return future.result() if is_overridden else future

    def _schedule(self, coroutine: Any, ctx: Request) -> Any:
        """Have the event loop run a coroutine; return a Future."""
        import asyncio

        def run_forever() -> None:
            while True:
                with suppress(SystemExit, KeyboardInterrupt):  # of a handler
                    loop.run_forever()

        with self._lock:
            if not self._loop:
                loop = asyncio.new_event_loop()
                if not spawn("mcp-loop", run_forever):
                    raise RuntimeError("no thread is left for the event loop")
                self._loop = loop
        if self.is_on_loop() or self._given_loop and not self._loop.is_running():
            coroutine.close()
            raise RuntimeError("loop= must run, and on another thread than the request")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        ctx._wake_with(future.cancel)
        return future

    def is_on_loop(self) -> bool:
        """Tell whether this is the loop's thread, which must not wait."""
        return bool(
            self._loop and sys.modules["asyncio"]._get_running_loop() is self._loop
        )

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Call a tool, for an author's own tests, and return its result.

        RpcError: it is answered with an error. ClientLacks: it asks. For questions, and
        for resources and prompts, the client takes a Server, too: `connect(server,
        elicit=lambda params: {"size": "L"})`.
        """
        request = {
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        meta = {META_VERSION: versions("modern")[0], META_CAPABILITIES: {}}
        ctx = Context(self, Peer(), drop, request, meta, None)
        ctx._admit(drop)
        steps = ctx._call()
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return ctx._shape(end.value or {})

    def changed(self, what: str) -> None:
        """Tell clients that "tools", "prompts", "resources" (their lists) or a URI
        changed."""
        kind = "resources/updated" if ":" in what else what + "/list_changed"
        name = f"notifications/{kind}"
        if name not in NOTIFICATIONS:
            raise ValueError(f"{what!r}: expected tools, prompts, resources or a URI")
        params = {"uri": what} if ":" in what else {}
        key = uri_key(what) if params else ""
        for listener in list(self.listeners):
            granted = listener.filter.get(NOTIFICATIONS[name].filter, ())
            if key in granted if params else granted:
                listener.tell(name, params)

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to no request, and is no change.

        Sessions get it if their revision has it; a subscription, if its client asked
        for it by this name, as basic/patterns/subscriptions wants. From any thread.
        ValueError: changed() sends this one, or only clients do.
        """
        row = NOTIFICATIONS.get(method)
        if row and (row.filter or "<" not in row.way):
            raise ValueError(
                f"{method}: for changes call changed(); clients send others"
            )
        encode(params)  # raises if it cannot be sent
        for listener in list(self.listeners):
            if listener.hears(method):
                listener.tell(method, params or {})

    def run(self, arguments: list[str] | None = None, **options: Any) -> None:
        """Serve on stdio, or over HTTP if there is an argument `--http [HOST:]PORT`.

        `options` are those of Endpoint; `arguments` are those of the command line, if
        not given. Returns when the client has left, after SIGINT or SIGTERM, or when
        stop() is called. Cleaning up, and the exit status, are yours.
        """
        if self.is_on_loop():
            raise RuntimeError(
                "run() would block loop=: await asyncio.to_thread(server.run)"
            )
        given = sys.argv[1:] if arguments is None else arguments
        if isinstance(given, str):
            raise TypeError("arguments= is a list, as in run(['--http', '8000'])")
        words = " ".join(given).replace("=", " ").split()
        if "--http" not in words:
            if options and "endpoint" not in options:
                Endpoint(self, **options)  # TypeError: there is no such option
            serve_stdio(self)
        elif "serve_http" in globals():
            serve_http_at(self, words[words.index("--http") + 1 :], options)
        else:
            raise SystemExit(
                "--http needs part II of mcp_ref.py, which this copy lacks"
            )

    def stop(self) -> None:
        """End run() as a signal does; any thread or signal handler may call this.

        Called before run() has begun, it ends the next one: a stop() ends one run().
        """
        self._stops = True
        for end in list(self._endings):
            self._stops = False
            end()

    @contextmanager
    def stoppable(self, end: Func) -> Iterator[None]:
        """Have stop() call a function, which takes no lock, to end what runs here."""
        self._endings.append(end)
        try:
            # Only now: a stop() that came before the line above left its mark.
            if self._stops:
                self._stops = False
                end()
            yield
        finally:
            self._endings.remove(end)

    def run_here(self, arguments: list[str] | None = None, **options: Any) -> None:
        """Serve as run() does, on another thread, and call `def` handlers on this one.

        For an application whose data only one thread may touch. Returns when run()
        would, once no handler runs here. TypeError: there is a `run=`.
        """
        if self.elsewhere.post:
            raise TypeError("run_here() calls handlers here: leave run= out")
        from concurrent.futures import ThreadPoolExecutor
        from queue import Empty, Queue

        waiting: Queue[Func] = Queue()
        self.elsewhere.post = waiting.put
        try:
            with signals(lambda _: self.stop()), ThreadPoolExecutor(1) as pool:
                serving = pool.submit(self.run, arguments, **options)
                try:
                    while not serving.done():
                        # In some applications no signal interrupts a longer wait.
                        with suppress(Empty):
                            waiting.get(timeout=0.1)()
                except BaseException:
                    self.stop()
                    raise
            serving.result()
        finally:
            self.elsewhere.post = None


class Elsewhere:
    """Where `run=` has functions called: usually on an application's main thread.

    Without `run=` (`post` is None), functions are called where they are asked for.
    What is cancelled before it begins there, or given up, does nothing when it is
    called later.
    """

    def __init__(self, post: Func | None) -> None:
        self.post = post
        self._threads: dict[int, None] = {}  # those that run a function of ours now

    def call(self, ctx: Context, function: Func) -> Any:
        """Have a function called there, wait for it, and return its result."""
        if not self.post or threading.get_ident() in self._threads:
            return function()
        from concurrent.futures import Future

        outcome: Future[Any] = Future()

        def thunk() -> None:
            if ctx.cancelled:
                outcome.cancel()
            if not outcome.set_running_or_notify_cancel():
                return
            self._threads[threading.get_ident()] = None
            try:
                outcome.set_result(function())
            except BaseException as problem:  # raised again where it belongs
                outcome.set_exception(problem)
                if isinstance(problem, KeyboardInterrupt):
                    raise  # it concerns this thread, too
            finally:
                del self._threads[threading.get_ident()]

        self.post(thunk)
        self._await(ctx, outcome)
        return outcome.result()

    def _await(self, ctx: Context, outcome: Any) -> None:
        """Wait until a function has ended; RpcError if it does not even begin.

        It may wait behind others, and may take its time: only the time counts in which
        none of ours runs there.
        """
        from concurrent.futures import wait

        since = time.monotonic()
        while not outcome.done():
            wait([outcome], 0.1)
            if self._threads:
                since = time.monotonic()
            is_late = time.monotonic() - since > RUN_SECONDS
            if (is_late or ctx.cancelled) and outcome.cancel() and is_late:
                _log_once("run= did not call what it was given: does its thread run?")
                raise RpcError(
                    INTERNAL_ERROR,
                    f"the application has not run this within {RUN_SECONDS} s",
                )


def check_completions(server: Server) -> None:
    """Log completers for what does not exist; they may come before their prompts."""
    for reference, argument in server.completions:
        entry = server.prompts.get(reference) or server.templates.get(reference)
        if not entry or argument not in entry.parameters:
            _log(f"completion({reference!r}, {argument!r}): there is no such argument")


def compile_template(uri: str) -> re.Pattern[str]:
    """Return the pattern of what a URI template stands for; of a URI, too."""

    def group(found: Any) -> str:
        before = found.string[: found.start()]
        _, earlier, between = before.rpartition("}")
        one = "." if found[1] else "[^/?#]"
        if earlier and ("{\\+" in before or not re.search("[/?#]", between)):
            # Of "{name}.{ext}", ext has no dot: there is one way to match, not many,
            # and a stranger's URI of a million dots is refused at once.
            one = f"(?:(?!{between}){one})"
        return f"(?P<{found[2]}>{one}+)"

    pattern = re.sub(r"\\\{(\\\+)?([A-Za-z_]\w*)\\\}", group, re.escape(str(uri)))
    is_uri = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*", str(uri))
    if not is_uri or "}{" in uri or re.search("[{}]", pattern):
        raise ValueError(
            f"{uri!r} must be an ASCII URI with a scheme, and perhaps with {{name}} or"
            ' {+name}, as in @server.resource("notes://{id}")'
        )
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        raise ValueError(f"{uri!r} has a variable twice") from None


# ---- one function per method: a server and a Context come in, a result goes out
def serve_discover(server: Server, ctx: Context) -> Message:
    """server/discover §Response."""
    return {
        "supportedVersions": versions(),
        "capabilities": server.capabilities(ctx.version),
        **without_none(instructions=server.instructions),
        "_meta": {META_SERVER: server.info},
    }


def serve_listen(server: Server, ctx: Context) -> None:
    """Acknowledge what is granted, and wait: basic/patterns/subscriptions."""
    wanted = ctx.params["notifications"]
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or len(uris) > MAX_URIS:
        raise invalid(f"resourceSubscriptions must be at most {MAX_URIS} strings")
    keys = set(map(uri_key, uris))
    ctx.granted = {
        row.filter: True
        for row in NOTIFICATIONS.values()
        if row.capability in server.declared and wanted.get(row.filter) is True
    }
    if uris and "resources" in server.declared:
        ctx.granted["resourceSubscriptions"] = uris
        for uri in uris:
            server.on_watch(uri, ctx)
    # Other names, with a slash, are for Server.notify().
    names = [name[:200] for name in wanted if "/" in name and wanted[name]]
    keys.update(names[:100])
    ctx.filter = {**ctx.granted, "resourceSubscriptions": keys}
    ctx.peer.carry(ctx)


def uri_key(uri: Any) -> str:
    """Return what is kept of a URI that somebody watches; or RpcError."""
    if not isinstance(uri, str) or len(uri) > MAX_URI_LENGTH:
        raise invalid(f"a URI must be a string of up to {MAX_URI_LENGTH}")
    return digest(uri)[:32]


def serve_list(server: Server, ctx: Context) -> Message:
    """Serve a page of definitions: server/utilities/pagination."""
    kind = ctx.method.split("/")[-2]
    member = "resourceTemplates" if kind == "templates" else kind
    entries = list(server.offered(kind, ctx).values())
    size = server.page_size or len(entries) or 1
    cursor = ctx.params.get("cursor") or "0"
    if cursor not in map(str, range(0, len(entries) + 1, size)):
        raise invalid("unknown cursor; list again without one")
    stop = int(cursor) + size
    page: Message = {member: [one.definition for one in entries[stop - size : stop]]}
    if stop < len(entries):
        page["nextCursor"] = str(stop)
    return page


def serve_call_tool(server: Server, ctx: Context) -> Steps:
    """server/tools §Calling Tools, §Error Handling."""
    name, arguments = ctx.params["name"], ctx.params.get("arguments") or {}
    entry = find_entry(ctx, "tool", name)
    if flaw := entry.input.flaw(arguments):
        if "argument errors" in ctx._rules.features:
            return tool_error(f"Invalid arguments for {name}: {flaw}")
        field, _, reason = flaw.partition(": ")
        raise invalid(flaw, {"field": field.lstrip("/"), "reason": reason})
    try:
        value = yield from ctx._call_handler(entry, arguments)
        return tool_result(ctx, entry, value)
    except RpcError:
        raise
    except ToolError as problem:
        return tool_error(str(problem))
    except (Exception, SystemExit) as problem:
        if not ctx.cancelled:
            log_failure(f"tool {name}", problem)
        while failures := getattr(problem, "exceptions", None):  # of a TaskGroup
            problem = failures[0]
        is_clear = str(problem) and not isinstance(problem, KeyError)
        return tool_error(str(problem) if is_clear else repr(problem))


def find_entry(ctx: Context, kind: str, name: str) -> Entry:
    """Return the tool or prompt of this name, or RpcError."""
    table = ctx.server.offered(f"{kind}s", ctx)
    if name not in table:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name:.200}")
    return table[name]


def serve_read(server: Server, ctx: Context) -> Steps:
    """server/resources §Reading Resources."""
    uri = ctx.params["uri"]
    entry, variables = find_resource(ctx, uri)
    value = yield from ctx._call_handler(entry, variables)
    parts = (
        value if isinstance(value, list) and any(map(is_contents, value)) else [value]
    )
    mime_type = entry.definition.get("mimeType")
    return {
        **entry.cache_hints,
        "contents": [contents(uri, mime_type, part) for part in parts],
    }


# server/resources §Security Considerations: a variable may become part of a path. An
# empty or absolute path, the folder itself, a drive, a segment "..", invalid
# characters:
_ESCAPES = r"(?s)\.?([/\\]|$)|[A-Za-z]:|(.*[/\\])?\.\.([/\\]|$)|.*[\0\ufffd]"


def find_resource(ctx: Context, uri: str) -> tuple[Entry, Message]:
    """Return the entry behind a URI and the values of its variables; or NotFound."""
    resources = ctx.server.offered("resources", ctx)
    if uri in resources:
        return resources[uri], {}
    for template, entry in list(ctx.server.offered("templates", ctx).items()):
        if match := entry.pattern.fullmatch(uri):
            from urllib.parse import unquote  # it is slow to import

            values = {name: unquote(value) for name, value in match.groupdict().items()}
            for name, value in values.items():
                if (
                    re.match(_ESCAPES, value)
                    or f"{{{name}}}" in template
                    and re.search(r"[/\\]", value)
                ):
                    raise invalid(f"the value of {name} escapes its path segment")
            return entry, entry.parse(values)
    raise NotFound


def serve_get_prompt(server: Server, ctx: Context) -> Steps:
    """server/prompts §Getting a Prompt, §PromptMessage."""
    entry = find_entry(ctx, "prompt", ctx.params["name"])
    arguments = entry.parse(ctx.params.get("arguments") or {})
    value = yield from ctx._call_handler(entry, arguments)
    messages = []
    for item in value if isinstance(value, list) else [value]:
        if not (isinstance(item, dict) and "role" in item):
            item = {"role": "user", "content": item}
        messages.append({**item, "content": content(item["content"])})
    return without_none(
        description=entry.definition.get("description"), messages=messages
    )


def serve_complete(server: Server, ctx: Context) -> Steps:
    """server/utilities/completion §Requesting Completions."""
    reference, argument = ctx.params["ref"], ctx.params["argument"]
    name, typed = argument.get("name"), argument.get("value")
    if reference.get("type") == "ref/prompt":
        entry = find_entry(ctx, "prompt", str(reference.get("name")))
    else:
        uri = str(reference.get("uri"))
        templates = server.offered("templates", ctx)
        entry = templates.get(uri) or find_resource(ctx, uri)[0]
    if name not in entry.parameters or not isinstance(typed, str):
        raise invalid(
            "`argument` must have the name of an argument, and a string as its value"
        )
    others = (ctx.params.get("context") or {}).get("arguments") or {}
    key = entry.definition.get("uriTemplate", entry.definition["name"])
    completer = server.completions.get((key, name))
    values: Any = []
    if completer:
        values = yield from ctx._call_handler(completer, {}, typed, others)
    if isinstance(values, str):
        raise TypeError("a completer must return a list of str, not a str")
    values = list(values)
    return {
        "completion": {
            "values": values[:MAX_COMPLETIONS],
            "total": len(values),
            "hasMore": len(values) > MAX_COMPLETIONS,
        }
    }


def serve_extension(server: Server, ctx: Context) -> Steps:
    """Serve a method that was registered with @server.method."""
    entry = server.methods[ctx.method]
    return (yield from ctx._call_handler(entry, {}, ctx.params)) or {}


SERVED: dict[str, Func] = {
    "server/discover": serve_discover,
    "subscriptions/listen": serve_listen,
    "tools/list": serve_list,
    "resources/list": serve_list,
    "resources/templates/list": serve_list,
    "prompts/list": serve_list,
    "tools/call": serve_call_tool,
    "resources/read": serve_read,
    "prompts/get": serve_get_prompt,
    "completion/complete": serve_complete,
}


def check_params(method: str, params: Message) -> None:
    """Check the types of a request's params, or of its `_meta`."""
    for name, expected in PARAMS.get(method, {}).items():
        value, is_choice = params.get(name), isinstance(expected, list)
        if not (value in expected if is_choice else isinstance(value, expected)):
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


def embedded(
    uri: str, value: str | bytes, mime_type: str | None = None, **members: Any
) -> Message:
    """Make an embedded resource: its contents are part of the result."""
    return {"type": "resource", "resource": contents(uri, mime_type, value), **members}


def link(uri: str, name: str, **members: Any) -> Message:
    """Make a link to a resource; before 2025-06-18 it is sent as text."""
    return {"type": "resource_link", "uri": uri, "name": name, **members}


def is_content(value: Any) -> bool:
    """Tell whether a value is text or content."""
    return (
        isinstance(value, str)
        or isinstance(value, dict)
        and value.get("type") in ("text", "image", "audio", "resource", "resource_link")
    )


def content(value: Any) -> Message:
    """Return content; text may be given as a string. TypeError for anything else."""
    if not is_content(value):
        raise TypeError(
            f"expected text or content, e.g. image(); found {type(value).__name__}"
        )
    return text(value) if isinstance(value, str) else value


def is_contents(value: Any) -> bool:
    """Tell whether a value has the contents of a resource."""
    return isinstance(value, dict) and ("text" in value or "blob" in value)


def contents(uri: str, mime_type: str | None, value: Any) -> Message:
    """Make what a resource returned: server/resources §Resource Contents."""
    if not is_contents(value):
        value = (
            {"blob": value}
            if isinstance(value, bytes)
            else {"text": as_text(to_json(value))}
        )
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
    """Make a result of a tool's value: server/tools §Tool Result, §Output Schema."""
    if isinstance(value, Result) and ctx._rules.modern:
        return value
    blocks = value if isinstance(value, list) and value else [value]
    is_content_only = value is None or all(map(is_content, blocks))
    is_result = (
        isinstance(value, dict)
        and isinstance(value.get("content"), list)
        and (not entry.output or "structuredContent" in value or value.get("isError"))
    )
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
            raise TypeError(
                f"{entry.name}() returned what its output schema forbids: {flaw}"
            )
    blocks = [content(item) for item in result["content"]]
    return {**result, "resultType": "complete", "content": blocks}


# ======== 5. What a handler sees: Context, questions to the client ====================
# The handler uses its Context to report progress, and to ask the client.
#
# A modern server cannot send requests. So a handler that asks is stopped (by an
# exception), and the request is answered "input required", with the questions inside.
# The client sends it again, with the answers; the handler runs again from its first
# line, and now finds them. Hence its rules:
#
#     ask first, then act      code before a question (or in `finally`) runs every time
#     ask the same every time  a question that contains the time is new on every run
#     do not trust the answer  the client sends it; maybe no user has seen the question
#     expect repetition        a client may send the same answers twice
#
# The answers so far are kept by the client between two runs, as *request state*. The
# client can read but not change it: it is signed, together with the request and the
# principal, and expires (basic/patterns/mrtr §Server Requirements). It also names each
# question by its words: the same key with other words finds no answer.

STATE_SECONDS = 900  # until request state expires
ASK_SECONDS = 300  # how long a legacy handler waits for an answer


class AskError(Exception):
    """A question got no usable answer; `error` is the client's error object, if any."""

    def __init__(self, message: str, error: Message | None = None) -> None:
        super().__init__(message)
        self.error = error


class InputRequired(BaseException):
    """Stops a handler that lacks answers.

    It is not an Exception, which the handler might catch itself.
    """


class Context(Request):
    """One request, as its handler sees it: declare a parameter `ctx: Context`.

    `meta` is params._meta; `client_info` and `client_capabilities` may be made up;
    `principal` is what `authorize=` returned. When the client cancels, `cancelled`
    becomes True: stop soon.
    """

    _progress = -inf  # the last that was sent

    # ---- telling the client something while the request runs
    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to this request, if its revision has it."""
        if method not in NOTIFICATIONS or method in self._rules.notifications:
            self._emit({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def _emit(self, message: Message) -> None:
        """Send a message of this request, unless it has ended."""
        with self._lock:
            if not self._ended:
                self._send(message)

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if requested and increasing: basic/patterns/progress."""
        token = self.meta.get("progressToken")
        with self._lock:
            if is_id(token) and progress > self._progress:
                self._progress = progress
                self.notify(
                    "notifications/progress",
                    without_none(
                        progressToken=token,
                        progress=progress,
                        total=total,
                        message=message,
                    ),
                )

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a JSON value, if the client asked for this level. [deprecated]

        `level` is one of LOG_LEVELS.
        """
        wanted = LOG_LEVELS[: LOG_LEVELS.index(level) + 1]
        if self._client.get(META_LOG_LEVEL) in wanted:
            self.notify(
                "notifications/message",
                without_none(level=level, logger=logger, data=data),
            )

    def begin_subscription(self) -> None:
        """Listen for changes, and say so: basic/patterns/subscriptions."""
        # Listen before acknowledging, or a change in between would be lost; the lock
        # orders the two.
        with self._lock:
            self.server.listeners[self] = None
            meta = {META_SUBSCRIPTION: self.id}
            self.notify(
                "notifications/subscriptions/acknowledged",
                {"notifications": self.granted, "_meta": meta},
            )
        self.granted = {}  # this may be large

    def tell(self, method: str, params: Message) -> None:
        """Tell of a change in this subscription."""
        params = {**params, "_meta": {META_SUBSCRIPTION: self.id}}
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.peer.tell(message, self._emit)

    def hears(self, method: str) -> bool:
        """Tell whether this subscription asked for a notification by its name."""
        return method in self.filter["resourceSubscriptions"]

    def end_subscription(self) -> None:
        """Forget a subscription; unless the client has cancelled it, respond."""
        self.server.listeners.pop(self, None)
        if self.peer.running.pop(self.id, None) and not self.cancelled:
            meta = {META_SUBSCRIPTION: self.id}
            if self.peer.ordered:
                self.notify(
                    "notifications/cancelled",
                    {"requestId": self.id, "reason": "closing", "_meta": meta},
                )
            self._finish(self._respond(self._shape({"_meta": meta})))

    def run(self, function: Func, /, *arguments: Any) -> Any:
        """Call a function where `run=` calls handlers, and return its result.

        It runs here if there is no `run=`. CancelledError: the request was cancelled
        before that.
        """
        if self.server.is_on_loop():
            raise RuntimeError("a coroutine does `await asyncio.to_thread(ctx.run, f)`")
        call = partial(function, *arguments)
        return self.server.elsewhere.call(self, call)

    def on_cancel(self, function: Func) -> None:
        """Have a function called once, on its own thread, if the client cancels.

        When a program ends, such functions have 0.1 s together.
        """
        self._wake_with(partial(run_aside, "mcp-cancel", function))

    def close_stream(self) -> None:
        """[legacy] Over HTTP, disconnect; the client comes back for the rest."""

    # ---- asking for user input, model output, or folders. A coroutine awaits these.
    def elicit(self, message: str, /, *, key: str = "", **form: Any) -> Any:
        """Ask elicitation().

        Returns {"action": "accept" | "decline" | "cancel", "content": {}}; a field that
        was left out has its default.
        """
        return self._ask_one(key, elicitation(message, **form))

    def sample(self, messages: Any, *, key: str = "", **options: Any) -> Any:
        """Ask sampling(); returns {"role", "content", "model", ...}."""
        return self._ask_one(key, sampling(messages, **options))

    def list_roots(self, *, key: str = "") -> Any:
        """Ask roots(); returns [{"uri": "file://...", "name": ...}, ...]."""
        return self._ask_one(key, roots(), lambda answer: answer["roots"])

    def _ask_one(self, key: str, question: Message, take: Func = dict) -> Any:
        key = key or digest(question)[:16]
        return self._ask({key: question}, lambda answers: take(answers[key]))

    def ask(self, questions: Message) -> Any:
        """Ask several questions at once; returns the answers by key.

        `questions` are {key: elicitation(...) | sampling(...) | roots()}. ClientLacks:
        the client did not declare what is needed. AskError: it answers with an error,
        or not at all. ValueError: a key is used twice in a run.
        """
        return self._ask(questions, dict)

    def _ask(self, questions: Message, take: Func) -> Any:
        """Return what is to be taken from the answers, or a coroutine for it."""
        for question in questions.values():
            self._check_declared(question)
        with self._ending:
            if self._digests.keys() & questions.keys():
                raise ValueError(
                    "the same question was asked twice: give each its own key="
                )
            for key, question in questions.items():
                self._digests[key] = digest([key, question])[:16]

        async def later() -> Any:
            return take(await self._obtain_later(questions))

        return later() if self.server.is_on_loop() else take(self._obtain(questions))

    def _check_declared(self, question: Message) -> None:
        """Check that the client declared what a question needs: basic/index §_meta."""
        name = METHODS[question["method"]].capability
        params = question.get("params", {})
        part = params.get("mode", "tools" if "tools" in params else "")
        declared = self.client_capabilities.get(name)
        if isinstance(declared, dict):
            # client/elicitation §Capabilities: `elicitation: {}` means forms.
            means_forms = part == "form" and "url" not in declared
            if not part or part in declared or means_forms:
                return
        whole = f"{name}.{part}".rstrip(".")
        needed: Message = {name: {part: {}} if part else {}}
        raise ClientLacks(
            MISSING_CAPABILITY,
            f"the client did not declare `{whole}`",
            {"requiredCapabilities": needed},
        )

    def _obtain(self, questions: Message) -> Message:
        """Take the answers in the request; stop the handler if one is missing."""
        if not self._may_ask:
            raise RuntimeError(f"a handler of {self.method} must not ask the client")
        found, missing = {}, {}
        for key, question in questions.items():
            # Without a state nothing says what was asked under a key.
            name = self._digests[key] if "requestState" in self.params else key
            try:
                found[key] = usable_answer(question, self._answers.get(name))
            except AskError:
                missing[key] = question
        with self._ending:
            self._missing.update(missing)
        if missing:
            raise InputRequired
        return found

    async def _obtain_later(self, questions: Message) -> Message:
        """Do the same for a coroutine, which must not wait otherwise."""
        return self._obtain(questions)

    # ---- request state
    def _call(self) -> Steps:
        """Run the handler with the answers so far; or return its questions."""
        self._digests: Message = {}  # of the questions in this run, by key
        self._missing: Message = {}  # questions that have no answer, by key
        self._answers: Message = {}  # by digest, or by key
        if self._may_ask:
            self._restore()
        try:
            result = self._function(self.server, self)
            if isinstance(result, types.GeneratorType):
                result = yield from result
            if not self._missing:  # or it has caught InputRequired
                return result
        except BaseException:
            # InputRequired, or the group of an asyncio.TaskGroup with it.
            if not self._missing:
                raise
        # basic/patterns/mrtr §InputRequiredResult
        expires = time.time() + STATE_SECONDS
        state = to_base64(encode([expires, self._digests, self._answers]))
        return {
            "resultType": "input_required",
            "inputRequests": dict(self._missing),
            "requestState": self._sign(state),
        }

    def _call_handler(self, entry: Entry, arguments: Message, *values: Any) -> Steps:
        """Return what a handler returns; of a coroutine, its result."""
        value = self.server.call_handler(entry, arguments, self, *values)
        if hasattr(value, "add_done_callback"):
            yield value
            value = value.result()
        return value

    def _restore(self) -> None:
        """Take the answers from the request and its state; RpcError if invalid."""
        names: Message = {}  # of the questions that this answers, by key
        state = self.params.get("requestState")
        if state is not None:
            import hmac

            expires, body = 0, state.partition(".")[0]
            if state.isascii() and hmac.compare_digest(self._sign(body), state):
                expires, names, self._answers = decode(from_base64(body))
            if expires < time.time():
                raise invalid(
                    "requestState is not valid here, or has expired: retry without it"
                )
        for key, answer in (self.params.get("inputResponses") or {}).items():
            self._answers[names.get(key, key)] = answer

    def _sign(self, body: str) -> str:
        """Return request state that is valid for this request and principal only."""
        import hmac

        params = dict(self.params)
        for name in ("_meta", *RETRY):
            params.pop(name, None)
        bound = digest([body, self.method, params, self.principal])
        signature = hmac.new(self.server.state_key, bound.encode(), "sha256")
        return f"{body}.{signature.hexdigest()}"


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    import hashlib

    text = json.dumps(value, sort_keys=True, default=_refuse)
    return hashlib.sha256(text.encode()).hexdigest()


# ---- the questions: requests without an id
def elicitation(
    message: str, /, *, url: str = "", schema: Message | None = None, **fields: Any
) -> Message:
    """Make a question to the user: a page to visit, or a form.

    elicitation("Sure?", yes=bool) is a form. A field is a hint (str, int, float, bool,
    a Literal, an Enum, a list of choices, or Optional), a pair of hint and default, or
    a JSON Schema. Ask for secrets with `url`. (client/elicitation)
    """
    form: Message = {"mode": "url", "url": url}
    if not url:
        form = {"mode": "form", "requestedSchema": schema or form_of(fields)}
    return {"method": "elicitation/create", "params": {"message": message, **form}}


def sampling(messages: Any, *, max_tokens: int = 1000, **options: Any) -> Message:
    """Make a question to the client's model. [deprecated]

    For the options, see client/sampling.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": text(messages)}]
    return {
        "method": "sampling/createMessage",
        "params": {"messages": messages, "maxTokens": max_tokens, **options},
    }


def roots() -> Message:
    """Make the question for the client's roots. [deprecated]"""
    return {"method": "roots/list"}


_ANSWERS: dict[str, Message] = {  # what an answer must look like
    "elicitation/create": {
        "required": ["action"],
        "properties": {"action": {"enum": ["accept", "decline", "cancel"]}},
    },
    "sampling/createMessage": {"required": ["role", "content", "model"]},
    "roots/list": {
        "required": ["roots"],
        "properties": {
            "roots": {"type": "array", "items": {"type": "object", "required": ["uri"]}}
        },
    },
}


def usable_answer(question: Message, answer: Any) -> Message:
    """Return an answer, with the defaults of a form's fields that were left out.

    AskError: it is not valid (client/elicitation §Form Mode Security).
    """
    schema = _ANSWERS[question["method"]]
    form = question.get("params", {}).get("requestedSchema")
    fields: Message = {}
    if form and isinstance(answer, dict) and answer.get("action") == "accept":
        answer = {**answer, "content": answer.get("content") or {}}
        schema = {"properties": {"content": {"type": "object", **form}}}
        fields = form.get("properties", {})
    if flaw := Schema({"type": "object", **schema}).flaw(answer):
        raise AskError(f"the client's answer is not valid: {flaw}")
    for name, field in fields.items():
        answer["content"].setdefault(name, field.get("default"))
    return dict(answer)


# ======== 6. The peer: running requests, cancellation =================================
# What outlives one message. On stdio there is one peer, the pipe. Over HTTP a legacy
# session has one, and so has every modern request. What sets `ctx.cancelled`, after
# which nothing more is sent for a request (basic/patterns/cancellation
# §Transport-Specific Cancellation):
#
#                                      stdio   HTTP, modern   HTTP, legacy session
#     notifications/cancelled          yes     no             yes
#     the client closes the stream     -       yes            no: it may fetch the rest
#     end of input, DELETE             later   -              no: what runs is finished


def spawn(name: str, work: Func) -> bool:
    """Run something on a thread of its own; False if no thread is left."""
    with suppress(RuntimeError):
        threading.Thread(target=work, name=name, daemon=True).start()
        return True
    return False


def run_aside(name: str, work: Func) -> None:
    """Run something on a thread of its own, or here if there is none."""
    if not spawn(name, work):
        with suppress(BaseException):  # it is not the caller's
            work()


def join_all(names: str, deadline: float) -> None:
    """Wait until threads of these names have ended, or until a deadline."""
    for thread in threading.enumerate():
        if thread.name in names.split():
            thread.join(deadline - time.monotonic())


def await_cancelling() -> None:
    """At the end, let functions of on_cancel() work for 0.1 s together."""
    join_all("mcp-cancel", time.monotonic() + 0.1)


def drop(message: Any) -> None:
    """Discard a message."""


class Peer:
    """The other end of a pipe or a session: each of its handle() gets the same one.

    `send` takes messages that belong to no request. `ordered`: messages arrive in the
    order they were sent. No lock guards `running` and `questions`: any thread may use
    them, but for single operations only, on a copy if it loops.
    """

    def __init__(self, send: Send | None = None, *, ordered: bool = True) -> None:
        self.send: Send = send or drop
        self.ordered, self.closed = ordered, False
        self.responders: Crew | None = None  # for coroutines; None: a thread waits
        self.running: dict[Any, Any] = {}  # by id
        self.session: Session | None = None  # [legacy]
        self.questions: dict[Any, Send] = {}  # [legacy]
        self.question_ids = itertools.count(1)  # [legacy]

    def check(self, ctx: Any) -> None:
        """Check what the transport knows of a modern request, before its version."""

    def tell(self, message: Message, send: Send) -> None:
        """Tell the client of a change: with `send`, unless this might block."""
        try:
            send(message)
        except Exception as problem:  # others hear of it all the same
            _log(f"{message['method']} has not reached a client: {problem!r:.200}")

    def carry(self, ctx: Context) -> None:
        """Carry a subscription to its end; on a pipe, no thread waits for that."""
        ctx.begin_subscription()
        ctx._wake_with(ctx.end_subscription)
        if self.closed:
            ctx.end_subscription()

    def take_notification(self, message: Message) -> None:
        """Act on a notification; most need nothing."""
        name = MISNAMED.get(message["method"], message["method"])
        params = message.get("params")
        if name == "notifications/cancelled" and isinstance(params, dict):
            ident = params.get("requestId", params.get("id"))  # LSP has `id`
            if ctx := self.running.get(ident) if is_id(ident) else None:
                ctx._cancel()
        elif name == "notifications/initialized" and self.session:  # [legacy]
            self.session.ready = True  # [legacy]

    def cancel_all(self) -> None:
        """Cancel all requests that run."""
        for ctx in list(self.running.values()):
            ctx._cancel()

    def close(self) -> None:
        """End what waits for a client that has left: subscriptions, questions."""
        self.closed = True
        if self.session:  # [legacy]
            self.session.server.listeners.pop(self.session, None)  # [legacy]
        for ctx in list(self.running.values()):
            if ctx in ctx.server.listeners:
                with suppress(Exception):  # to end the others, too
                    ctx.end_subscription()
        for answer in list(self.questions.values()):  # [legacy]
            answer(None)  # [legacy]


# ======== 7. stdio ====================================================================
# The simplest correct server starts a thread for each request: the thread runs the
# handler, the reader reads on, and no request waits for another. But to start a thread
# and to switch to it takes 141 to 160 µs of processor time a call, where running the
# handler on the spot takes 23.
#
# So one thread, the reader, reads a line and runs its handler on the spot. The main
# thread is a watchdog: if a handler takes longer than BLINK_SECONDS, it starts another
# reader, and the old one ends with its handler. While such slow handlers run, every
# further one goes to a thread of its own, or waits in a queue until fewer than
# MAX_THREADS run; the reader still answers server/discover. Where no thread can
# be started, the reader runs it: each request is still answered exactly once.
#
# For an `async def` handler no thread waits. When it has ended, the rest of its request
# runs on a thread of its own, because the event loop must not wait for a host that does
# not read; one such thread answers for all.
#
#     thread                       what it does
#     the caller of serve_stdio()  is the watchdog, and waits for the end
#     mcp-reader                   reads, decodes, runs handlers that are fast
#     mcp-call, up to MAX_THREADS  runs a handler while slow ones are running
#     mcp-answer                   answers for coroutines that have ended
#     mcp-hang-up                  notices that the client has closed our stdout
#     mcp-cancel                   runs an on_cancel function
#     mcp-loop                     runs `async def` handlers
#
# Only messages may reach stdout. So descriptors 0 and 1 are moved away first, and
# print(), C libraries and child processes find the null device and stderr in their
# place.
#
# All threads are daemons: once serve_stdio() has returned, they hold nobody up.

MAX_THREADS = 64  # slow `def` handlers at once; further calls wait
BLINK_SECONDS = 0.01  # until a handler counts as slow
LEAVE_SECONDS = 1.8  # for running handlers at the end of input; hosts kill after 2 s


class Crew:
    """A few threads, and what waits for one of them. `lock` guards both."""

    def __init__(self, name: str, most: int, lock: Any) -> None:
        self.name, self.most, self.lock = name, most, lock
        self.busy = 0  # threads
        self.waiting: deque[Func] = deque()

    def add(self, work: Func) -> None:
        """Have work done on one of the threads; or here, if none can be started."""
        self.waiting.append(work)
        with self.lock:
            if self.busy >= self.most:
                return
            self.busy += 1
        run_aside(self.name, self.run)

    def run(self) -> None:
        """Do all that waits, as one of the threads."""
        while True:
            with self.lock:
                if not self.waiting:
                    self.busy -= 1
                    return
                work = self.waiting.popleft()
            with suppress(Exception):  # the thread has more to do
                work()


class Pipe(Peer):
    """The client at the other end of stdin and stdout.

    `_turn` guards who reads: `_reader` is the number of the thread that reads, and
    `_since` the time since which it runs a handler, or None. Only the watchdog changes
    `_reader`, and only while a handler runs: a reader that runs none keeps its turn.
    `_asleep` says that the watchdog waits for `_wake`, which is a lock because a signal
    handler may release it: leave() must not wait for any other lock. `_turn` is the
    lock of both crews, too. `_calls` run slow handlers: a reader that has lost its turn
    is one of them. `_writing` guards writing to stdout.
    """

    def __init__(self, server: Server, source: int, out: int) -> None:
        super().__init__(self._write)
        self.server = server
        # A file puts its descriptor into binary mode; else \n is \r\n on Windows.
        self._source = os.fdopen(source, "rb", 2**16, closefd=False)
        self._out = os.fdopen(out, "wb", 0, closefd=False)
        self._trace = tracer()
        self._writing = threading.Lock()

        self._left = False  # the client has left, or a signal has come
        self._deadline = inf  # until then, running handlers may finish

        self._turn = threading.Lock()
        self._reader = 0
        self._since: float | None = None
        self._asleep = False
        self._wake = threading.Lock()
        self._wake.acquire()

        self._calls = Crew("mcp-call", MAX_THREADS, self._turn)
        self.responders = Crew("mcp-answer", 1, self._turn)

    def _write(self, message: Any) -> None:
        line = encode(message)
        self._trace("<", line)
        try:
            with self._writing:
                while line:
                    # A pipe may take less than all.
                    line = line[self._out.write(line) :]
        except OSError:
            self.leave()  # nobody reads

    def leave(self, patience: float = 0.05) -> None:
        """Have serve() return. A signal handler may call this: it waits for no lock."""
        self._deadline = min(self._deadline, time.monotonic() + patience)
        self._left = True
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._wake.release()

    # ---- the reader: no queue and no other thread stands between a line and its
    # handler
    def _read(self, number: int) -> None:
        """Read and serve lines until there are no more, or another thread reads."""
        while self._reader == number and not self._left:
            line = self._read_line()
            if not line and not self._left:
                self._trace(">", b"", closed=True)
            if not line or self._left:
                self.leave(LEAVE_SECONDS)
            elif not line.isspace():
                self._serve(line.rstrip(b"\r\n"))
        if self._reader != number:
            self._calls.run()

    def _read_line(self) -> bytes:
        """Return the next line, or the beginning of one that is too long."""
        try:
            line = part = self._source.readline(MAX_MESSAGE_BYTES + 2)
            while len(part) >= MAX_MESSAGE_BYTES and not part.endswith(b"\n"):
                # The rest is skipped.
                part = self._source.readline(MAX_MESSAGE_BYTES)
        except (OSError, MemoryError):
            return b""
        return line

    def _start(self, work: Func) -> None:
        """Run a handler here, on the reader's thread, or aside while slow ones run."""
        if self._calls.busy:
            self._calls.add(work)
        else:
            self._run(work)

    def _run(self, work: Func) -> None:
        """Run something on the reader's thread, while the watchdog looks on."""
        with self._turn:
            number, self._since = self._reader, time.monotonic()
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._wake_up()
        try:
            work()
        finally:
            with self._turn:
                if self._reader == number:
                    self._since = None

    def _serve(self, line: bytes) -> None:
        """Serve one line. A bad line never stops the next."""
        message = None
        self._trace(">", line)
        try:
            message = decode(line)
            self.server.handle(message, self.send, peer=self, start=self._start)
        except RpcError as error:
            _log(f"{error}, in: {line!s:.200}")
            self.send(error_response(error, None, self))
        except Exception as problem:  # reading goes on
            log_failure("a message", problem)
            self.send(error_response(RpcError(INTERNAL_ERROR), message, self))

    # ---- the watchdog
    def serve(self) -> None:
        """Serve until the client leaves or a signal comes."""
        spawn("mcp-hang-up", self._await_hang_up)
        try:
            if spawn("mcp-reader", partial(self._read, 0)):
                self._watch()
            else:
                self._read(0)  # without a watchdog
        finally:
            self._finish()

    def _watch(self) -> None:
        """Have another thread read whenever a handler takes longer than BLINK_SECONDS.

        After a second in which no check has found one, checking stops until the next:
        an idle server must not wake the CPU.
        """
        quiet = 0  # checks in a row that found no handler
        while not self._left:
            with self._turn:
                self._take_over()
                quiet = 0 if self._since else quiet + 1
                self._asleep = asleep = quiet > 100
            if asleep:
                self._wake.acquire(timeout=-1 if os.name == "posix" else 0.1)
            else:
                time.sleep(BLINK_SECONDS)

    def _take_over(self) -> None:
        """Count the reader up if its handler is slow, and start the next one."""
        if self._since and time.monotonic() - self._since > BLINK_SECONDS:
            # First the numbers: the new thread looks at them as soon as it runs.
            self._reader += 1
            self._calls.busy += 1
            if spawn("mcp-reader", partial(self._read, self._reader)):
                self._since = None
            else:  # no thread is left; the next check tries again
                self._reader -= 1
                self._calls.busy -= 1

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
        if not self._left:  # an author's signal handler has raised
            self.leave()
        run_aside("mcp-close", self.close)  # it may block
        while self.running and time.monotonic() < self._deadline:
            time.sleep(BLINK_SECONDS)
        join_all("mcp-reader mcp-call mcp-answer mcp-close", self._deadline)
        if self.running:
            _log(f"the client has left; requests abandoned: {len(self.running)}")
        self.cancel_all()
        await_cancelling()


@contextmanager
def signals(react: Func) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `react`, unless the author has set handlers.

    react(number) only sets flags. A second signal within LEAVE_SECONDS is ignored:
    hosts send SIGINT, then SIGTERM, and the author's cleanup must survive that. A later
    one ends the process, unless `react` returns True.
    """
    import signal

    last = 0.0
    found: Any = {}

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


# where the client's descriptors are, once guard_stdio() has moved them
_guarded: list[int] = []


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
        sys.stdout = io.TextIOWrapper(
            raw, "utf-8", "backslashreplace", line_buffering=True
        )

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
    """Serve the client on stdin and stdout until it leaves; or a signal, or stop().

    Handlers that still run are abandoned after LEAVE_SECONDS, or at once after a
    signal. Takes descriptors 0 and 1 for good. (basic/transports/stdio)
    """
    Server.served = True
    check_completions(server)
    pipe = Pipe(server, *guard_stdio())
    with signals(lambda _: pipe.leave()), server.stoppable(pipe.leave):
        pipe.serve()


# ======== A. Type hints to JSON Schema and back =======================================
# A function's hints say what a client may send. One walk over a hint gives two things,
# once, when the function is registered: the JSON Schema that clients see, and a
# *converter*, which turns a value that fits it into what the function expects: an
# Enum's member, a dataclass, a tuple.
#
# Hosts are picky about schemas. What is generated is an object at the root, with each
# type written out in place: no $ref, no anyOf at the root. So a type that contains
# itself is refused, as is any hint without a JSON form; a schema written by hand
# (input_schema=) is the way out.

Converter = Callable[[Any], Any]
Reading = tuple[Message, Converter]  # what a hint means
_SCALARS: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    None: "null",
    type(None): "null",
}
# The schemas of results that are text, content blocks, or may be either. They are not
# announced.
_CONTENT: list[Message] = [
    {},
    *({"type": name} for name in ("string", "null", "object", "array")),
    {"type": "array", "items": {"type": "object"}},
]


class Entry:
    """A registered function: what its hints and docstring say, and how to call it.

    Schemas written by hand replace those made of the hints; {} allows everything. With
    an `input_schema`, hints only tell which parameter takes the Context: the arguments
    stay plain JSON, the result has no schema. Once registered, an entry never changes,
    so any thread may call it.
    """

    definition: Message  # as it is listed
    pattern: re.Pattern[str]  # of the URIs that a template stands for
    cache_hints: Message  # of a resource
    wrapped = False  # the result is put into an object, under "result"

    def __init__(
        self,
        function: Func,
        input_schema: Message | None = None,
        output_schema: Message | None = None,
    ) -> None:
        self.function = function
        # A partial has no name of its own, and an object that of its class.
        named = function.func if isinstance(function, partial) else function
        self.name = getattr(named, "__name__", type(named).__name__)
        self.description, notes = _documentation(named.__doc__ or "")
        try:
            signature = Signature(function)
            hints = signature.hints(strict=input_schema is None)
            self.context = _find_context(signature.names, hints)
            self.parameters = [one for one in signature.names if one != self.context]
            if input_schema is None:
                input_schema, self._convert = self._read_parameters(signature, hints)
                _describe(input_schema["properties"], notes, signature.defaults)
                if output_schema is None:
                    output_schema = self._read_result(hints)
            else:
                self._convert = dict
        except RecursionError:
            raise TypeError(
                f"{self.name}(): a type contains itself; write its schema by hand"
            ) from None
        except TypeError as problem:
            raise TypeError(f"{self.name}(): {problem}") from None
        # It runs where the request is served, in spite of `run=`.
        self.stays = signature.is_async
        self.input_schema = input_schema
        self.input = Schema(input_schema)  # what the arguments must match
        self.output_schema = output_schema or None
        self.output = Schema(output_schema) if output_schema else None

    def _read_parameters(self, signature: Signature, hints: Message) -> Reading:
        """Return the schema of the arguments, and what converts them."""
        fields = {name: hints.get(name, Any) for name in self.parameters}
        for name, default in signature.defaults.items():
            # `x: int = None` may be None; Python before 3.11 says so itself.
            if default is None and fields.get(name, Any) not in (Any, object):
                fields[name] = Union[fields[name], None]
        return _read_object(fields, signature.defaults, signature.is_open)

    def _read_result(self, hints: Message) -> Message | None:
        """Return the schema of structured results, if that is what the hint says."""
        whole, _ = _read_object({"result": hints.get("return", Any)}, (), is_open=True)
        schema: Message = whole["properties"]["result"]
        if schema in _CONTENT:
            return None
        # Until R4, structured content must be an object: anything else is put into one.
        self.wrapped = schema.get("type") != "object"
        return whole if self.wrapped else schema

    def parse(self, texts: dict[str, str]) -> Message:
        """Return what strings stand for ("5" is 5 for int); or RpcError."""
        values: Message = dict(texts)
        for name, schema in self.input_schema["properties"].items():
            if name in texts and Schema(schema).flaw(texts[name]):
                with suppress(AttributeError, RpcError, ValueError):
                    values[name] = decode(texts[name].encode())
        if flaw := self.input.flaw(values):
            raise invalid(flaw)
        return values

    def call(self, arguments: Message, ctx: Any, *values: Any) -> Any:
        """Call the function with valid arguments; `values` are further ones."""
        arguments = self._convert(arguments)
        arguments.update(zip(self.parameters, values))
        if self.context:
            arguments[self.context] = ctx
        return self.function(**arguments)


class Signature:
    """How a function is called; without `inspect`, which is slow to import.

    It is that of the innermost function: under decorators (`__wrapped__`), in methods,
    partial, and objects with a `__call__` method. `names` are the parameters
    that are left for a caller, in order; `defaults` are theirs; `is_open` tells whether
    there is a `**others`.
    """

    def __init__(self, function: Any) -> None:
        places = 0  # parameters that are passed already, by place
        given: set[str] = set()  # ... and by name
        while True:
            if isinstance(function, partial):
                places += len(function.args)
                given.update(function.keywords)
                function = function.func
            elif isinstance(function, types.MethodType):
                places += 1
                function = function.__func__
            elif hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            elif hasattr(function, "__code__"):  # in PyPy it has a method __call__, too
                break
            elif isinstance(getattr(function, "__call__", None), types.MethodType):
                function = function.__call__
            else:
                break

        code = getattr(function, "__code__", None)
        # The flags are those that `inspect` calls CO_VARARGS, ...
        if not code or code.co_posonlyargcount > places or code.co_flags & 4:
            raise TypeError(
                "expected a function in Python whose parameters can all be passed by"
                " name: there is no *args, a decorator needs functools.wraps, a name is"
                " given as name=, a classmethod as Class.method"
            )
        # ... CO_VARKEYWORDS and CO_COROUTINE.
        self.is_open = bool(code.co_flags & 8)
        self.is_async = bool(code.co_flags & 128)
        self._function = function
        count = code.co_argcount
        every = code.co_varnames[: count + code.co_kwonlyargcount]
        self.names = [name for name in every[places:] if name not in given]
        last = function.__defaults__ or ()
        self.defaults: Message = dict(zip(every[count - len(last) : count], last))
        self.defaults.update(function.__kwdefaults__ or {})

    def hints(self, strict: bool = True) -> Message:
        """Return the hints by name; TypeError if they make no sense and are needed."""
        try:
            return get_type_hints(self._function, include_extras=True)
        except Exception as problem:
            if strict:
                raise TypeError(
                    f"{problem}; every hint must be defined, or write input_schema="
                ) from None
            return {"ctx": Context}


def _find_context(names: list[str], hints: Message) -> str:
    """Return the name of the parameter that takes the Context, or ""."""
    takers = []
    for name in names:
        hint = hints.get(name)
        if hint is Context or Context in get_args(hint):
            takers.append(name)
    if len(takers) > 1 or ("ctx" in names and "ctx" not in hints):
        raise TypeError(
            "the Context is passed to one parameter, annotated ctx: Context"
        )
    if names[:1] in (["self"], ["cls"]) and names[0] not in hints:
        raise TypeError(
            f"{names[0]} would be an argument; register instance.method, or"
            " Class.method of a classmethod, where there is one"
        )
    return "".join(takers)


def _documentation(doc: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and what it says about each parameter.

    Recognizes `name: text` and `name (type): text` under "Args:", and `:param name:
    text`.
    """
    doc = doc.expandtabs()
    margin = min(re.findall(r"\n( *)\S", doc), default="")
    doc = "\n" + doc.strip().replace("\n" + margin, "\n")
    prose, *rest = re.split(
        r"\n *(?:Args|Arguments|Parameters):(?=\n)|(?=\n *:param )", doc
    )
    found = re.findall(
        r"(?m)^( *)(?::param )?(\w+)(?: ?\([^)]*\))?: *(.+(?:\n\1 +.+)*)", "".join(rest)
    )
    # Of two texts for the same parameter, the first one counts.
    notes = {name: " ".join(text.split()) for _, name, text in reversed(found)}
    return prose.strip(), notes


def _describe(properties: Message, notes: Message, defaults: Message) -> None:
    """Add what the docstring says, and the defaults, to the schemas of parameters."""
    for name, schema in properties.items():
        if name in notes:
            schema.setdefault("description", notes[name])
        if name in defaults:
            with suppress(TypeError, ValueError):  # it is not JSON
                schema["default"] = decode(encode(to_json(defaults[name])))


def schema_of(hint: Any) -> Message:
    """Return the JSON Schema of a type hint; TypeError if it has none.

    Hints are str int float bool None Any, list dict tuple set, Optional Union Literal,
    an Enum, TypedDict, NamedTuple or dataclass; in Annotated, a string describes and a
    dict adds keywords.
    """
    return _read_hint(hint)[0]


# Each of these functions returns the schema and the converter of a kind of hint.
def _keep(value: Any) -> Any:
    """Convert nothing."""
    return value


def _read_hint(hint: Any) -> Reading:
    args, kind = get_args(hint), get_origin(hint) or hint
    if hasattr(hint, "__metadata__"):
        return _read_annotated(args[0], hint.__metadata__)
    if kind in (Any, object) or hint == Union[Any, None]:  # 3.9 makes it of `= None`
        return {}, _keep
    if kind in list(_SCALARS):
        # For JSON, 1.0 is an integer, too.
        return {"type": _SCALARS[kind]}, int if kind is int else _keep
    if kind is Union or type(hint).__name__ == "UnionType":
        return _read_union(args)
    if kind is dict and args[:1] in ((), (str,), (Any,)):
        return _read_dict(args[1] if args else Any)
    if kind is tuple and args and args[-1] is not Ellipsis:
        return _read_tuple(args)
    if kind in (list, tuple, set, frozenset):
        return _read_list(kind, args[0] if args else Any)
    if kind is typing.Literal:
        return _read_choices(hint, args), _keep
    if hasattr(kind, "__members__"):  # an Enum
        choices = [member.value for member in kind.__members__.values()]
        return _read_choices(hint, choices), kind
    if hasattr(kind, "__total__"):
        return _read_typed_dict(kind)
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields"):
        return _read_class(kind)
    raise _no_json_form(hint)


def _no_json_form(hint: Any) -> TypeError:
    return TypeError(
        f"{hint} has no JSON form; use one that has (schema_of() lists them), such as"
        " str, and convert it; or write input_schema= or output_schema="
    )


def _read_annotated(hint: Any, notes: Any) -> Reading:
    schema, convert = _read_hint(hint)
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, dict):
            schema.update(note)
    return schema, convert


def _read_union(hints: Any) -> Reading:
    read = [_read_hint(hint) for hint in hints]
    branches = [(Schema(schema), convert) for schema, convert in read]

    def convert_first(value: Any) -> Any:
        for schema, convert in branches:
            if schema.flaw(value) is None:
                return convert(value)
        return value

    return {"anyOf": [schema for schema, _ in read]}, convert_first


def _read_dict(hint: Any) -> Reading:
    items, convert = _read_hint(hint)
    schema = without_none(type="object", additionalProperties=items or None)
    return schema, lambda value: {key: convert(item) for key, item in value.items()}


def _read_tuple(hints: Any) -> Reading:
    read = [_read_hint(hint) for hint in hints]
    schema = {
        "type": "array",
        "prefixItems": [schema for schema, _ in read],
        "minItems": len(read),
        "items": False,
    }
    return schema, lambda value: tuple(
        convert(item) for (_, convert), item in zip(read, value)
    )


def _read_list(kind: Any, hint: Any) -> Reading:
    items, convert = _read_hint(hint)
    schema = without_none(type="array", items=items or None)
    if kind in (set, frozenset):
        schema["uniqueItems"] = True
    return schema, lambda value: kind(map(convert, value))


def _read_choices(hint: Any, choices: Any) -> Message:
    names = {_SCALARS.get(type(choice)) for choice in choices}
    if not names or None in names:
        raise _no_json_form(hint)
    return without_none(
        type=names.pop() if len(names) == 1 else None, enum=list(choices)
    )


def _read_typed_dict(kind: Any) -> Reading:
    """A TypedDict may have more members than it names."""
    hints = get_type_hints(kind, include_extras=True)
    optional = set(kind.__optional_keys__)
    for name, hint in hints.items():
        # `from __future__ import annotations` hides these from the class itself.
        wrapper = getattr(get_origin(hint), "_name", "")
        if wrapper in ("Required", "NotRequired"):
            hints[name] = get_args(hint)[0]
            optional.discard(name)
        if wrapper == "NotRequired":
            optional.add(name)
    return _read_object(hints, optional, is_open=True)


def _read_class(kind: Any) -> Reading:
    """A dataclass or a NamedTuple."""
    hints = get_type_hints(kind, include_extras=True)
    maker = Signature(kind.__new__ if hasattr(kind, "_fields") else kind.__init__)
    # Its first parameter is the class or the instance.
    fields = {name: hints.get(name, Any) for name in maker.names[1:]}
    # Results also have the fields that the class computes itself.
    declared = getattr(kind, "__dataclass_fields__", {}).values()
    is_open = not all(one.init for one in declared)
    schema, convert = _read_object(fields, maker.defaults, is_open)
    return schema, lambda value: kind(**convert(value))


def _read_object(hints: Message, optional: Any, is_open: bool) -> Reading:
    """An object with these members. Its converter makes a new dict."""
    properties: Message = {}
    converters: dict[str, Converter] = {}
    for name, hint in hints.items():
        try:
            properties[name], convert = _read_hint(hint)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from None
        if convert is not _keep:
            converters[name] = convert
    schema = without_none(
        type="object",
        properties=properties,
        required=[name for name in hints if name not in optional] or None,
        additionalProperties=None if is_open else False,
    )

    def convert_members(value: Message) -> Message:
        members = dict(value)
        for name, convert in converters.items():
            if name in members:
                members[name] = convert(members[name])
        return members

    return schema, convert_members


def to_json(value: Any) -> Any:
    """Return a value as JSON: also dataclasses, NamedTuples, Enums, sets and tuples."""
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
    raise TypeError(
        f"{type(value).__name__} has no JSON form; return a str, for example;"
        " for bytes, image(), audio() or embedded()"
    )


def form_of(fields: dict[str, Any]) -> Message:
    """Return the schema of a form: client/elicitation §Requested Schema.

    A field is a hint, a pair of hint and default, or a schema; Optional ones may be
    left empty.
    """
    properties, required = {}, []
    for name, field in fields.items():
        hint, *default = field if isinstance(field, tuple) else (field,)
        try:
            schema, is_optional = _read_field(hint)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from None
        if default and default[0] is not None:  # which clients refuse
            schema["default"] = to_json(default[0])
        elif not (default or is_optional):
            required.append(name)
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}


def _read_field(hint: Any) -> tuple[Message, bool]:
    """Return the schema of a field, and whether it may be left empty."""
    if isinstance(hint, dict):
        return dict(hint), True
    if isinstance(hint, list):
        hint = typing.Literal.__getitem__(tuple(hint))
    schema = schema_of(hint)
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    is_optional = len(some) == 1
    if is_optional:
        del schema["anyOf"]
        schema.update(some[0])
    is_simple = schema.get("type") in ("string", "number", "integer", "boolean")
    if not is_simple and "enum" not in schema.get("items", {}):
        raise TypeError(f"expected str, int, float, bool or a choice, found {hint}")
    return schema, is_optional


# ======== B. JSON Schema validation ===================================================
# The dialect 2020-12 (basic/index §Schema Dialect, §$ref Resolution). `format` and
# unknown keywords never make a value invalid. Nothing is fetched. What cannot be
# checked is refused when the schema is made: another dialect, an unknown type, a bad
# pattern, an external reference, and what tool schemas hardly ever use (_REFUSED).
#
# A schema is compiled once, to functions called checks. They take a value and return
# None, or ": reason"; on the way out each level prepends its location: "/items/3/price:
# reason". A check keeps nothing between two values, so any thread may call it.
#
# To add a keyword that compares a value with a limit, add a row to _LIMITS; for any
# other keyword a row in _RULES, and the method of Schema that makes its check.

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Check = Callable[[Any], "str | None"]
_REFUSED = {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "dependencies"}

# fmt: off
_TYPES: dict[str, Func] = {
    "null":    lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int or _TYPES["number"](value) and value % 1 == 0,
    "number":  lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string":  lambda value: isinstance(value, str),
    "array":   lambda value: isinstance(value, list),
    "object":  lambda value: isinstance(value, dict),
}
# fmt: on


def _key(value: Any) -> Any:
    """Return a hashable that is equal for equal JSON values: 1 and 1.0, not 1 and true.

    Numbers become text: who sends them can choose their hashes, and a set of numbers
    with the same hash is slow.
    """
    if isinstance(value, dict):
        return "object", frozenset((name, _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return isinstance(value, str), str(value)


def _is_multiple(value: Any, of: Any) -> bool:
    # Fractions are exact: 0.0075 is a multiple of 0.0001, though floats say otherwise.
    from fractions import Fraction

    return abs(value) < inf and Fraction(str(value)) % Fraction(str(of)) == 0


@lru_cache(1000)
def _regex(pattern: str) -> re.Pattern[str]:
    # ECMA-262 differs: \d and \w are ASCII; `$`, outside of escapes and [sets], is the
    # very end.
    python = re.sub(
        r"(?s)(\\.|\[(?:\\.|[^\]])*\])|\$", lambda found: found[1] or r"\Z", pattern
    )
    return re.compile(python, re.ASCII)


def _is_short(value: Any, limit: Any) -> Any:
    return len(value) <= limit


def _is_long(value: Any, limit: Any) -> Any:
    return len(value) >= limit


# keyword: the type it applies to, the test, the reason when it fails
# fmt: off
_LIMITS: dict[str, tuple[str, Func, str]] = {
    "multipleOf":       ("number", _is_multiple, "must be a multiple of {}"),
    "maximum":          ("number", le,           "must be at most {}"),
    "exclusiveMaximum": ("number", lt,           "must be less than {}"),
    "minimum":          ("number", ge,           "must be at least {}"),
    "exclusiveMinimum": ("number", gt,           "must be more than {}"),
    "maxLength":        ("string", _is_short,    "must not be longer than {}"),
    "minLength":        ("string", _is_long,     "must not be shorter than {}"),
    "pattern":          ("string", lambda v, n: _regex(n).search(v), "must match {}"),
    "maxItems":         ("array",  _is_short,    "must have at most {} items"),
    "minItems":         ("array",  _is_long,     "must have at least {} items"),
    "uniqueItems":      ("array",  lambda v, n: not n or len({*map(_key, v)}) == len(v),
                         "must not have the same item twice"),
    "maxProperties":    ("object", _is_short,    "must have at most {} members"),
    "minProperties":    ("object", _is_long,     "must have at least {} members"),
}
# fmt: on


def _limit(keyword: str, limit: Any) -> Check:
    """Make the check of a keyword in _LIMITS."""
    kind, test, reason = _LIMITS[keyword]
    applies, flaw = _TYPES[kind], f": {reason.format(limit)}"
    # Trying it on an empty value raises an exception if the limit has the wrong type.
    test({"number": 0, "string": "", "array": [], "object": {}}[kind], limit)
    return lambda value: flaw if applies(value) and not test(value, limit) else None


def _at(key: Any, flaw: str) -> str:
    """Put a place in front of a flaw, escaped as in a JSON pointer (RFC 6901)."""
    return "/" + str(key).replace("~", "~0").replace("/", "~1") + flaw


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
        except Exception as problem:  # of many kinds
            raise ValueError(f"malformed schema: {problem}")

    def flaw(self, value: Any) -> str | None:
        """Return None for a valid value, else "/items/3/price: must be at least 0"."""
        try:
            flaw = self._check(value)
        except RecursionError:
            flaw = ": must not be nested so deeply"
        return f"/{flaw}" if flaw and flaw[0] == ":" else flaw

    def _compile(self, node: Any) -> Check:
        """Return the check of a subschema."""
        if isinstance(node, bool):
            return lambda value: None if node else ": must not be there"
        if node.get("$schema", DIALECT).rstrip("#") != DIALECT:
            raise ValueError(f"unknown dialect {node['$schema']}: expected {DIALECT}")
        for name in node:
            if name in _REFUSED or (name == "$id" and node is not self._targets[0]):
                raise ValueError(f"not supported: {name} in {json.dumps(node):.80}")

        checks = [_limit(name, node[name]) for name in _LIMITS if name in node]
        for keywords, make in _RULES.items():
            if node.keys() & keywords.split():
                checks.append(make(self, node))
        checks += map(self._compile, node.get("allOf", ()))

        def check(value: Any) -> str | None:
            for one in checks:
                if (flaw := one(value)) is not None:
                    return flaw
            return None

        return checks[0] if len(checks) == 1 else check

    def _ref(self, node: Message) -> Check:
        from urllib.parse import unquote  # it is slow to import

        target: Any = {"#": self._targets[0]}
        try:
            for step in unquote(node["$ref"]).split("/"):
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step) if isinstance(target, list) else step]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"$ref {node['$ref']}: no such place in this schema")
        # It is compiled later, by __init__(), because a schema may refer to itself.
        self._targets.append(target)
        return lambda value: self._checks[id(target)](value)

    def _type(self, node: Message) -> Check:
        kinds = [node["type"]] if isinstance(node["type"], str) else node["type"]
        if not _TYPES.keys() >= set(kinds):
            raise ValueError(f"unknown type in {kinds}: expected {', '.join(_TYPES)}")
        tests = [_TYPES[kind] for kind in kinds]
        flaw = ": must be of type " + " or ".join(kinds)

        def check(value: Any) -> str | None:
            for test in tests:
                if test(value):
                    return None
            return f"{flaw}, found {reprlib.repr(value):.40}"

        return check

    def _choice(self, values: list[Any]) -> Check:
        known = {_key(value) for value in values}
        flaw = ": must be one of " + json.dumps(values)[1:-1]
        return lambda value: None if _key(value) in known else flaw

    def _members(self, node: Message) -> Check:
        known = {
            name: self._compile(part)
            for name, part in node.get("properties", {}).items()
        }
        patterns = [
            (_regex(pattern), self._compile(part))
            for pattern, part in node.get("patternProperties", {}).items()
        ]
        rest = self._compile(node.get("additionalProperties", True))
        required = dict.fromkeys(node.get("required", ()))  # in their order

        def check(value: Any) -> str | None:
            if not isinstance(value, dict):
                return None
            for name in required:
                if name not in value:
                    return _at(name, ": is required")
            for name, item in value.items():
                checks = [known[name]] if name in known else []
                for pattern, one in patterns:
                    if pattern.search(name):
                        checks.append(one)
                # `additionalProperties` is for what no other keyword names.
                for one in checks or [rest]:
                    if (flaw := one(item)) is not None:
                        return _at(name, flaw)
            return None

        return check

    def _items(self, node: Message) -> Check:
        first = [self._compile(part) for part in node.get("prefixItems", ())]
        rest = self._compile(node.get("items", True))

        def check(value: Any) -> str | None:
            if not isinstance(value, list):
                return None
            for index, item in enumerate(value):
                # `items` is for what comes after `prefixItems`.
                one = first[index] if index < len(first) else rest
                if (flaw := one(item)) is not None:
                    return _at(index, flaw)
            return None

        return check

    def _contains(self, node: Message) -> Check:
        one = self._compile(node["contains"])
        least, most = node.get("minContains", 1), node.get("maxContains", inf)
        words = f"from {least} to {most} items that match"
        flaw = f": must contain {words} {json.dumps(node['contains']):.200}"

        def check(value: Any) -> str | None:
            if not isinstance(value, list):
                return None
            count = [one(item) for item in value].count(None)
            return None if least <= count <= most else flaw

        return check

    def _names(self, node: Message) -> Check:
        one = self._compile(node["propertyNames"])

        def check(value: Any) -> str | None:
            for name in value if isinstance(value, dict) else ():
                if (flaw := one(name)) is not None:
                    return _at(name, ": its name" + flaw[1:])
            return None

        return check

    def _dependent(self, node: Message) -> Check:
        """Make the check of what must hold where a certain member is there."""
        parts = list(node.get("dependentSchemas", {}).items())
        for name, others in node.get("dependentRequired", {}).items():
            parts.append((name, {"required": others}))
        rules = [
            {"if": {"type": "object", "required": [name]}, "then": part}
            for name, part in parts
        ]
        return self._compile({"allOf": rules})

    def _some(self, parts: list[Any], least: int, most: int, words: str) -> Check:
        checks = [self._compile(part) for part in parts]
        flaw = f": must match {words} {json.dumps(parts):.200}"

        def check(value: Any) -> str | None:
            count = [one(value) for one in checks].count(None)
            return None if least <= count <= most else flaw

        return check

    def _if(self, node: Message) -> Check:
        test, yes, no = (
            self._compile(node.get(name, True)) for name in ("if", "then", "else")
        )
        return lambda value: (no if test(value) else yes)(value)


# keyword: what makes its check. Keywords that depend on each other share one.
# fmt: off
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
    "contains":          Schema._contains,
    "propertyNames":     Schema._names,
    "dependentRequired dependentSchemas": Schema._dependent,
}
# fmt: on


# ======== C. Logging and tracing ======================================================
# What an operator reads: lines on stderr, or all messages in the file MCP_TRACE. What
# nobody reads is dropped, and nothing waits for it. An entry of the log begins with
# "mcp_ref: ", each further line of it with "mcp_ref| ". Clients cannot forge one:
# control characters are escaped.


def is_ready(file: Any, to_write: bool = True) -> bool:
    """Tell whether a pipe or socket is ready; if unknown, only to write."""
    import selectors

    with (
        suppress(AttributeError, OSError, TypeError, ValueError),
        getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector,
    ):
        selector.register(
            file, selectors.EVENT_WRITE if to_write else selectors.EVENT_READ
        )
        return bool(selector.select(0))
    return to_write


def printable(text: str, kept: str = "") -> str:
    """Return a text with escapes for its control characters and line ends."""
    if text.isprintable():
        return text
    return "".join(
        (
            one
            if one.isprintable() or one in kept
            else one.encode("unicode_escape").decode()
        )
        for one in text
    )


def log(entry: str) -> None:
    """Write an entry to stderr, shortened in its middle; drop it if nobody reads it.

    To send entries elsewhere, replace this: `mcp_ref.log = logger.warning`.
    """
    line = "mcp_ref: " + printable(entry, "\n").replace("\n", "\nmcp_ref| ")
    most = 3900 if line.isascii() else 650  # a pipe that is ready takes 4,096 bytes
    if len(line) > most:
        line = f"{line[: most // 4]}\nmcp_ref| ...\nmcp_ref| {line[-most // 2 :]}"
    line += "\n"

    def write() -> None:
        with suppress(OSError):
            os.write(2, line.encode(errors="replace"))
        _log_slots.release()

    with suppress(AttributeError, OSError, ValueError):
        if os.name == "nt" and sys.stderr is sys.__stderr__:
            # Pipes cannot be polled there: a thread writes, and may wait.
            if _log_slots.acquire(blocking=False):
                run_aside("mcp-log", write)
                time.sleep(0.001)  # keeps the order
        elif is_ready(sys.stderr):
            sys.stderr.write(line)
            sys.stderr.flush()  # PyPy buffers it


_log_slots = threading.Semaphore(64)  # threads that wait to write a line


def _log(entry: str) -> None:
    """Log an entry of ours: what an author put in the place of log() may raise."""
    with suppress(Exception):
        log(entry)


_log_once = cache(_log)


def fingerprint() -> str:
    """Return the SHA-256 of this file, also from a zip archive; "": it is compiled."""
    import hashlib

    with suppress(Exception):
        source = globals()["__loader__"].get_data(__file__)
        return hashlib.sha256(source).hexdigest()
    return ""


def tracer() -> Func:
    """Return trace(way, data, on, headers, ...), which appends to the file MCP_TRACE.

    `way` is ">" from the client and "<" from the server; `on` is "stdio" or the
    client's port. What is not JSON becomes "text". Of the headers, Mcp-* are kept;
    `http`, `status` and `closed` (it has hung up) are other members of the record. The
    first record is about this run. Without MCP_TRACE, nothing is written.
    """
    path = os.getenv("MCP_TRACE", "")
    if not path:
        return lambda *_, **__: None

    def write(**members: Any) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        stamp += f".{int(now % 1 * 1000):03}Z"
        opener = partial(os.open, mode=0o600)
        try:
            with open(path, "ab", opener=opener) as file:
                file.write(encode({"time": stamp, **members}))
        except Exception as problem:
            _log_once(f"MCP_TRACE: {problem}")

    def trace(
        way: str, data: bytes, on: Any = "stdio", headers: Any = (), **more: Any
    ) -> None:
        more.update((name, headers[name]) for name in headers if name[:4] == "mcp-")
        for line in re.findall(b"(?m)^data: (.*)", data) or [data]:  # of events
            try:
                said = {"message": decode(line)} if line else {}
            except RpcError:
                said = {"text": line.decode("utf-8", "backslashreplace")}
            write(way=way, on=on, **more, **said)

    program = f"mcp_ref {__version__}"
    write(program=program, process=os.getpid(), sha256=fingerprint())
    return trace


# This file, and what waits for other threads.
_OURS = rf"{re.escape(__file__)}|.*[/\\](asyncio|concurrent)[/\\].*"


def log_failure(what: str, problem: BaseException) -> None:
    """Log an exception of a handler, from the author's first frame on."""
    import traceback

    frames = problem.__traceback__
    while (
        frames
        and frames.tb_next
        and re.fullmatch(_OURS, frames.tb_frame.f_code.co_filename)
    ):
        frames = frames.tb_next
    lines = [f"{what} failed"]
    for line in traceback.format_exception(type(problem), problem, frames):
        lines.append(f"{line.rstrip():.2000}")  # a client's text may be large
    _log(printable("\n".join(lines), "\n"))


# ======== Part II: the same over HTTP =================================================
# ======== 8. The endpoint: the rules of HTTP, without sockets =========================
# Streamable HTTP (basic/transports/streamable-http) over an abstract exchange: a
# request comes in, an answer goes out, on the thread that carries it. Every message is
# a POST of its own. Its answer is one JSON object, or a stream of events if something
# must be sent before the response. Headers repeat parts of the body for proxies, and
# must agree with it. To close a stream is to cancel its request. The first failing
# check determines the answer:
#
#     Host and Origin 403, path 404, verb 405, authorization 401 or 403, size 413,
#     type 415, JSON 400 (-32700), `_meta` 400 (-32602), headers 400 (-32020),
#     version 400 (-32022), method 404 (-32601)
#
# One thread at a time writes to a connection: the one that *carries* it. It copies
# events from a *log*, and ends its own answer. Whoever has an event for the client
# appends it to the log, and waits for no other client.
#
#     the connection's thread    reads a request, runs its handler, answers in JSON;
#                                or carries a subscription
#     mcp-stream                 carries the answer of a call that became a stream:
#                                events and comments, whatever its handler does
#     whoever calls changed()    appends, and waits for nobody
#     mcp-reaper                 notices clients that hung up; writes nothing

__all__ += """
    AHEAD_BYTES BODY_SECONDS DRAIN_SECONDS KEEP_ALIVE_SECONDS MAX_BODY_BYTES
    MAX_CONNECTIONS MAX_HEADERS MAX_LINE_BYTES SEND_SECONDS Endpoint Exchange
    HttpError bearer event http_server mirror serve_http unmirror
""".split()

KEEP_ALIVE_SECONDS = 15  # between two comments on a stream
MAX_BODY_BYTES = 4 * 2**20  # of a request; decoding more would hold up everybody
AHEAD_BYTES = 2**16  # of events that a handler may be ahead of its client
STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_METADATA = "/.well-known/oauth-protected-resource"
# Headers that must not be repeated: two parsers might pick different values.
_UNIQUE = "host|origin|authorization|last-event-id|transfer-encoding|content-.*|mcp-.*"


class HttpError(Exception):
    """An HTTP answer that is not a message, with its headers. In a client, `url`
    answered."""

    def __init__(
        self, status: int, message: str, headers: Headers | None = None, url: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.headers, self.url = status, headers or {}, url


class Exchange:
    """One HTTP request and the way to answer it, as serve_http, WSGI, ... provide it.

    It has `method`, `path`, `query` (what follows "?") and `headers`, a dict by name in
    lower case. It is made of pairs of name and value, and of a `stream` for the body,
    which has read(size) and readline(size). A subclass defines start(), write() and
    end(), which one thread at a time calls, and gone() if it can, for any thread.
    OSError: the client has hung up.
    """

    hosts: set[str] | None = None  # names in Host, if the endpoint has none; None: any
    address = ""  # the client's, for the log

    def __init__(
        self, method: str, target: str, headers: Iterable[Any], stream: Any
    ) -> None:
        self.method, self.stream = method, stream
        self.path, _, self.query = target.partition("?")
        self.name = printable(f"{method} {self.path:.200}")  # in logs and traces
        self.principal: Any = None  # who sent it
        self.extra: Headers = {}  # of the answer, whatever it will be
        self.flaw: HttpError | None = None  # what is wrong with the headers
        self.headers: Headers = {}  # by lower-case name
        for name, value in headers:
            name, value = name.lower(), value.strip(" \t")
            if name in self.headers:
                value = f"{self.headers[name]}, {value}"
                if re.fullmatch(_UNIQUE, name):
                    self.flaw = HttpError(400, f"the header {name} is repeated")
            self.headers[name] = value
        # There is a body, and it has not been read.
        self.unread = (
            self.headers.get("content-length", "0") != "0"
            or "transfer-encoding" in self.headers
        )

    def length(self) -> int | None:
        """Return the Content-Length, None for a chunked body; HttpError if it is not
        valid."""
        # RFC 9112 §6: two servers that disagree on where a request ends can be tricked.
        length = self.headers.get("content-length", "0")
        coding = self.headers.get("transfer-encoding")
        if coding is None and re.fullmatch("[0-9]{1,15}", length):
            if int(length) > MAX_BODY_BYTES:
                raise HttpError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
            return int(length)
        if (
            coding is None
            or coding.lower() != "chunked"
            or "content-length" in self.headers
        ):
            raise HttpError(
                400, "Content-Length must be a number, or Transfer-Encoding chunked"
            )
        return None

    def body(self) -> bytes:
        """Read the body; HttpError if it is too large or its framing is not valid."""
        length = self.length()
        data: bytes = (
            read_chunks(self.stream) if length is None else self.stream.read(length)
        )
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


def read_chunks(stream: Any) -> bytes:
    """Read a chunked body: RFC 9112 §7.1. What frames it counts, too: chunks may be
    tiny."""
    data, size, left = bytearray(), -1, MAX_BODY_BYTES
    while size:
        head = re.fullmatch(
            rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\r\n]*)?\r\n", stream.readline(1000)
        )
        if not head:
            raise HttpError(400, "expected a chunk (was the body decoded on the way?)")
        size = int(head[1], 16)
        left -= len(head[0]) + size
        if left < 0:
            raise HttpError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        data += stream.read(size)
        line = stream.readline(1000)
        while not size and left > 0 and line.endswith(b"\r\n") and line != b"\r\n":
            # a trailer, which is ignored
            left, line = left - len(line), stream.readline(1000)
        if line != b"\r\n":
            raise HttpError(400, "a chunk or a trailer is malformed")
    return bytes(data)


def event(data: bytes, ident: str = "", **fields: Any) -> bytes:
    """Make a server-sent event of a line of JSON."""
    head = "".join(
        f"{name}: {value}\n" for name, value in {"id": ident, **fields}.items() if value
    )
    return head.encode() + b"data: " + data.rstrip(b"\n") + b"\n\n"


class Log:
    """The events of one stream, in order, and how far its reader has got.

    `_moved` guards every field, and tells of each change. Nobody writes to a
    connection, or runs a stranger's code, while holding it. Any thread may call any
    method; only add() waits, for the reader of this log, and copy(), which the carrier
    calls. The last `keeps` bytes are kept, with numbers, for clients that come back.

        1 ... dropped | kept, though copied ... `sent` | waiting ... `count`
                      |         `events` has all of these
    """

    def __init__(self, keeps: int = 0) -> None:
        self.keeps, self.name = keeps, os.urandom(16).hex()
        self.events: list[bytes] = []  # the last of them, as far as they are kept
        self.size = 0  # the bytes of these
        self.ahead = 0  # the bytes that wait for the reader
        self.count = self.sent = 0  # events so far, and those that were copied
        self.changes: dict[bytes, None] = {}  # these become events when copied
        self.told: dict[bytes, None] = {}  # those that did
        self.reader: Exchange | None = None  # whose carrier copies
        self.ended = False  # nothing is added
        self._moved = threading.Condition(threading.Lock())

    def open(self, reader: Exchange, after: int | None = None) -> bool:
        """Have a reader copy what nobody has copied, or what follows an event.

        False: nothing follows, or it is not kept. Another reader has to end.
        """
        with self._moved:
            if after is not None:
                dropped = self.count - len(self.events)
                nothing = after < dropped or after >= self.count
                if nothing and self.ended and self.sent == self.count:
                    return False
                if after < dropped:  # changes may be told twice, but are not missed
                    self.changes.update(self.told)
                self.sent = min(max(after, dropped), self.count)
            self.reader = reader
            self._moved.notify_all()
            return True

    def add(self, line: bytes, last: bool = False) -> None:
        """Append a message, when the reader is not too slow; the last one ends it."""
        with self._moved:
            while self.reader and self.ahead > AHEAD_BYTES and not last:
                self._moved.wait()
            if not self.ended:
                if last:
                    self._append_changes()
                self._append(line)
                self.ended = last
                self._forget()
                self._moved.notify_all()

    def tell(self, line: bytes) -> None:
        """Append a notification, unless the same one is waiting already."""
        with self._moved:
            if not self.ended and len(self.changes) < 2 * MAX_URIS:
                self.changes[line] = None
                self._moved.notify_all()

    def copy(self, reader: Exchange) -> list[bytes] | None:
        """Take what has not been copied; nothing: a comment is due; None: no more
        comes."""
        with self._moved:
            self._moved.wait_for(
                lambda: (
                    self.reader is not reader
                    or self.ended
                    or self.changes
                    or self.sent < self.count
                ),
                KEEP_ALIVE_SECONDS,
            )
            if self.reader is not reader:
                return None
            if not self.ended:
                self._append_changes()
            dropped = self.count - len(self.events)
            events = self.events[max(0, self.sent - dropped) :]
            if self.ended and not events:
                return None
            self.sent, self.ahead = self.count, 0
            self._forget()
            self._moved.notify_all()
            return events

    def release(self, reader: Exchange | None) -> None:
        """Forget a reader that has left, or has to come back."""
        with self._moved:
            if self.reader is reader:
                self.reader = None
                self._moved.notify_all()

    def end(self) -> None:
        """Add nothing more: the reader ends when it has copied all."""
        with self._moved:
            self.ended = True
            self._moved.notify_all()

    def _append_changes(self) -> None:
        for line in self.changes:
            self._append(line)
        if self.keeps and len(self.told) < 2 * MAX_URIS:
            self.told.update(self.changes)
        self.changes.clear()

    def _append(self, line: bytes) -> None:
        self.count += 1
        data = event(line, f"{self.name}-{self.count}" if self.keeps else "")
        self.events.append(data)
        self.size += len(data)
        self.ahead += len(data)

    def _forget(self) -> None:
        """Drop old events, but none that a reader has yet to get, and no response."""
        is_unfetched = self.ended and self.sent < self.count
        until = self.sent if self.reader else self.count - is_unfetched
        while self.size > self.keeps and self.count - len(self.events) < until:
            self.size -= len(self.events.pop(0))


class Stream:
    """The answer to a POST: JSON, or events; it is called to send a message.

    The messages of a request come one after the other (Request._lock). The first that
    is not the response makes it a stream of events, and starts the thread that carries
    them. All else happens on the connection's thread.

        nothing has been sent    `log` is _NO_LOG
        answered in JSON         `log` is _NO_LOG, `ended`
        a stream of events       `log` has them; `ended` with the response
    """

    greeting = b""  # the first event, which is not numbered
    started = False  # a handler has
    ended = False  # the response has been sent, or appended
    lasts = False  # it will last, as a subscription does: run_handler() counts it
    endless = False  # it is counted: it lasts, or its call asks the user
    is_always_ok = False  # the status of an error is 200, as in a session
    _carrier: threading.Thread | None = None

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.log = exchange, _NO_LOG

    def __call__(self, message: Any) -> None:
        """Send a message, or the list of answers to a batch; a response is the last
        one."""
        line, last, status = encode(message), "method" not in message, 200
        if last and self.log is _NO_LOG:
            code = message["error"]["code"] if "error" in message else None
            # Not an error of the handler, or in a session.
            is_early = not (self.started or self.is_always_ok)
            if code in ERRORS and (is_early or code == MISSING_CAPABILITY):
                status = ERRORS[code].status
            answer(self.exchange, status, line)
        else:
            self.begin()
            self.log.add(line, last)
        self.ended |= last

    def begin(self, here: bool = False) -> None:
        """Become a stream of events: carried here in the end, or elsewhere at once."""
        if self.log is _NO_LOG:
            log = self.new_log()
            log.open(self.exchange)
            if not here:
                carrier = threading.Thread(
                    target=self.carry, args=(log,), name="mcp-stream", daemon=True
                )
                carrier.start()  # RuntimeError: no thread is left
                self._carrier = carrier
            self.log = log

    def new_log(self) -> Log:
        """Make a log for the events."""
        return Log()

    def carry(self, log: Log) -> None:
        """Write what the log has for the client, until there is no more, or another
        carries on. Only the thread that runs this writes to the connection."""
        exchange = self.exchange
        try:
            exchange.start(200, {**STREAM_HEADERS, **exchange.extra}, None)
            if self.greeting:
                exchange.write(self.greeting)
            while (events := log.copy(exchange)) is not None:
                for data in events or [b": \n\n"]:
                    exchange.write(data)
                del events, data  # or they would be kept while the next is awaited
            must_come_back = log.reader is None
            log.release(exchange)
            exchange.end(must_come_back)
        except (OSError, ValueError):  # ValueError: the socket is closed
            log.release(exchange)

    def finish(self) -> None:
        """End the answer, with or without a response, when its handler has returned."""
        if not self.ended:
            self.begin(here=True)  # cancelled: it ends without a response
        if self.log is not _NO_LOG:
            if not self.endless:  # or it is a subscription, which goes on
                self.log.end()
            if self._carrier:
                self._carrier.join()
            else:
                self.carry(self.log)


_NO_LOG = Log()  # of a stream that has not begun


class PostPeer(Peer):
    """The client behind one modern POST: a peer that has a stream, and ends with it."""

    def __init__(self, endpoint: Endpoint, stream: Stream, message: Any) -> None:
        super().__init__(ordered=False)
        self.endpoint, self.stream, self.message = endpoint, stream, message

    def check(self, ctx: Any) -> None:
        """Compare headers and body: .../streamable-http §Request Metadata, §Server
        Validation."""
        params, server, row = ctx.params, ctx.server, METHODS.get(ctx.method)
        # These two are never encoded; the others may be.
        plain = {
            "MCP-Protocol-Version": ctx.meta[META_VERSION],
            "Mcp-Method": ctx.method,
        }
        member = row.mirrored if row else server.mirrored.get(ctx.method)
        others: Message = {"Mcp-Name": params.get(member)} if member else {}
        if ctx.method == "tools/call":
            tool = server.offered("tools", ctx).get(str(params.get("name")))
            schema = tool.input_schema if tool else {}
            others.update(mirrored_arguments(schema, params.get("arguments")))
        for name, value in {**plain, **others}.items():
            sent = self.stream.exchange.headers.get(name.lower())
            if not (sent == value if name in plain else same_value(sent, value)):
                raise RpcError(
                    HEADER_MISMATCH,
                    f"Header mismatch: {name} is "
                    f"{'missing' if sent is None else repr(sent):.200}, "
                    f"the body has {value!r:.200}",
                )
        self.stream.lasts = ctx.method == "subscriptions/listen"

    def tell(self, message: Message, send: Send) -> None:
        self.stream.log.tell(encode(message))

    def carry(self, ctx: Context) -> None:
        self.stream.begin(here=True)
        super().carry(ctx)
        ctx._wake_with(self.stream.log.end)
        # What the client said is not kept for as long as it listens.
        for said in (ctx.params, ctx.meta, self.message):
            said.clear()
        ctx.client_info = ctx.client_capabilities = {}


def mirrored_arguments(schema: Any, arguments: Any) -> Message:
    """Return headers and what they must repeat: .../streamable-http §Schema
    Extension."""
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
    is_number = type(value) in (int, float)
    if is_number and plain and re.fullmatch(r"-?[0-9]{1,99}(\.[0-9]+)?", plain):
        return bool((float if "." in plain else int)(plain) == value)
    return plain == (value if isinstance(value, str) else str(value).lower())


def mirror(value: Any) -> str:
    """Return a value as a header has it: .../streamable-http §Value Encoding."""
    plain = value if isinstance(value, str) else str(value).lower()
    # "=?" begins an encoded one
    if re.fullmatch(r"(?!=\?)([!-~]([\t -~]*[!-~])?)?", plain):
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


def bearer(
    tokens: dict[str, Any], header: str = "authorization", metadata_url: str = ""
) -> Func:
    """Make an `authorize` function from {token: principal}; `header="x-api-key"` for
    API keys."""
    import hmac

    scheme = "bearer" if header.lower() == "authorization" else ""
    place = f'resource_metadata="{metadata_url}"' if metadata_url else ""

    def authorize(headers: Headers) -> Any:
        given, _, word = headers.get(header.lower(), "").rpartition(" ")
        token = word.encode("latin-1", "replace") if given.lower() == scheme else b""
        for key, who in tokens.items():
            # Compare in constant time, so that timing reveals nothing.
            if token and hmac.compare_digest(key.encode(), token):
                return who
        # RFC 6750 §3.1: what is wrong is told only to those who sent a token.
        flaw = 'error="invalid_token"' if token else ""
        challenge = f"Bearer {', '.join(filter(None, (flaw, place)))}".rstrip()
        told = {"WWW-Authenticate": challenge} if scheme else None
        raise HttpError(401, "no valid token", told)

    return authorize


class Endpoint:
    """The MCP endpoint of a server, to be mounted under any HTTP server: see serve().

    `hosts`: allowed names in the Host header ("*": any; None: loopback names if bound
    to loopback). `origins`: allowed values of the Origin header ("*": any), besides
    those of `hosts`. `authorize` takes the headers (a dict with lower-case names) and
    returns the principal, or raises HttpError. `metadata`: the document of RFC 9728.
    `cors`: answer browsers. `stateless`: serve legacy requests without a session.
    `sse_on_get`: also open HTTP+SSE on the endpoint itself.
    """

    def __init__(
        self,
        server: Server,
        path: str = "/mcp",
        *,
        hosts: Iterable[str] | None = None,
        origins: Iterable[str] = (),
        metadata: Message | None = None,
        authorize: Func | None = None,
        cors: bool = False,
        stateless: bool = False,
        sse_on_get: bool = False,
    ) -> None:
        Server.served, self.server, self.metadata = True, server, metadata
        check_completions(server)
        self.path = f"/{path.strip('/')}"
        self.hosts = None if hosts is None else set(map(str.lower, hosts))
        self.origins, self.authorize, self.cors = set(origins), authorize, cors
        self.stateless, self.sse_on_get = stateless, sse_on_get
        self.closed = False
        # Guards streams and sessions, and that none is looked at once it has ended.
        self.lock = threading.Lock()
        self.streams: dict[Stream, Peer] = {}  # those whose clients may hang up
        self._reaps = False  # the reaper runs
        self.sessions: dict[str, HttpSession] = {}  # by id  # [legacy]
        self.kept: dict[Log, Any] = {}  # of streams that have ended  # [legacy]

    def serve(self, exchange: Exchange) -> None:
        """Answer one request. Raises nothing."""
        try:
            return self._route(exchange)
        except HttpError as refusal:
            exchange.extra.update(refusal.headers)
            status, error = refusal.status, RpcError(INVALID_REQUEST, str(refusal))
        except RpcError as flaw:  # the body is not JSON
            status, error = 400, flaw
        except Exception as problem:
            log_failure(exchange.name, problem)
            status, error = 500, RpcError(INTERNAL_ERROR)
        answer(exchange, status, encode(error_response(error, None)))

    def _route(self, exchange: Exchange) -> None:
        """Find out what is asked for, and whether the caller may have it."""
        if exchange.flaw:
            raise exchange.flaw
        self._check_origin(exchange)
        path = exchange.path.rstrip("/") or "/"
        verbs: dict[str, Any] = {"POST": Endpoint.post} if path == self.path else {}
        verbs = legacy_verbs(self, exchange, path) or verbs  # [legacy]
        # Its metadata: basic/authorization §Protected Resource Metadata Discovery.
        is_open = self.metadata and path in (_METADATA, _METADATA + self.path)
        if is_open and exchange.method in ("GET", "HEAD"):
            answer(exchange, 200, encode(self.metadata))
        elif not verbs:
            answer(exchange, 404, b'{"error": "not_found"}')
        elif exchange.method == "OPTIONS" and self.cors:
            answer(exchange, 204)
        elif exchange.method not in verbs:
            raise HttpError(405, "method not allowed", {"Allow": ", ".join(verbs)})
        else:
            if self.authorize:
                exchange.principal = who = self.authorize(exchange.headers)
                if who is None or who is False:
                    raise HttpError(
                        401, "not authorized", {"WWW-Authenticate": "Bearer"}
                    )
                digest(who)  # a principal must be a JSON value
            verbs[exchange.method](self, exchange)

    def _check_origin(self, exchange: Exchange) -> None:
        """Check Host and Origin: .../streamable-http §Security & Endpoint."""
        headers, origin = exchange.headers, exchange.headers.get("origin")
        # DNS rebinding: comparing Origin with Host is not enough; after rebinding, both
        # carry the attacker's name.
        hosts = exchange.hosts if self.hosts is None else self.hosts
        if hosts is not None and not hosts & {name_of(headers.get("host", "")), "*"}:
            raise HttpError(
                403, f"the Host {headers.get('host')!r:.100} is not in hosts="
            )
        if (
            origin is not None
            and not self.origins & {origin, "*"}
            and name_of(origin) not in (hosts or _LOOPBACK)
        ):
            raise HttpError(403, f"the Origin {origin!r:.100} is not in origins=")
        if self.cors:
            asked = headers.get("access-control-request-headers", "*")
            exchange.extra.update(
                {
                    "Access-Control-Allow-Origin": origin or "*",
                    "Vary": "Origin",
                    "Access-Control-Allow-Methods": "GET, POST, DELETE",
                    "Access-Control-Allow-Headers": asked,
                    "Access-Control-Expose-Headers": "*",
                }
            )

    def post(self, exchange: Exchange) -> None:
        """Serve a message: .../streamable-http §Sending Messages, §Receiving
        Messages."""
        message = self.read_message(exchange)
        stream = Stream(exchange)
        peer: Any = PostPeer(self, stream, message)
        stream, peer = legacy_stream(stream, peer, message)  # [legacy]

        start = partial(self.run_handler, stream, peer)
        self.server.handle(
            message, stream, peer=peer, principal=exchange.principal, start=start
        )
        if not (stream.started or stream.ended):  # nothing was asked
            answer(exchange, 202)

    def read_message(self, exchange: Exchange) -> Any:
        """Read and decode the body; HttpError or RpcError if that fails."""
        exchange.length()  # refuse a body that is too large before anything else
        kind = exchange.headers.get("content-type", "")
        is_json = re.match(r"(?i)application/json\s*(;|$)", kind)
        if not is_json or "content-encoding" in exchange.headers:
            raise HttpError(
                415, "Content-Type must be application/json, without Content-Encoding"
            )
        try:
            return decode(exchange.body())
        except OSError:  # it has hung up, or is too slow
            raise HttpError(408, "the body has not arrived") from None

    # ---- streams: their number, their clients, their end
    def hold(self, stream: Stream) -> None:
        """Count a stream that may last; HttpError if they leave no room for others.

        It is one of `streams` already: of two that come at once, none is overlooked.
        """
        with self.lock:
            held = sum(one.endless for one in self.streams)
            if held >= (max_connections() * 3 // 4 or 1):
                raise HttpError(503, "too many streams", {"Retry-After": "1"})
            stream.endless = True

    def run_handler(self, stream: Stream, peer: Peer, work: Func) -> None:
        """Run a handler and end its stream; the reaper notices if the client hangs
        up."""
        stream.started = True
        with self.lock:
            self.streams[stream] = peer
        self.start_reaper(peer)
        try:
            if stream.lasts:
                self.hold(stream)
            work()
            stream.finish()
        finally:
            with self.lock:
                del self.streams[stream]
            if isinstance(peer, PostPeer):
                peer.cancel_all()  # a subscription whose client has hung up

    def start_reaper(self, peer: Peer) -> None:
        """Start the thread that notices who has left, if it does not run; close a
        peer that comes too late."""
        if not self._reaps:
            with self.lock:
                self._reaps = self._reaps or spawn("mcp-reaper", self._reap)
        if self.closed:
            peer.close()

    def _reap(self) -> None:
        """Notice clients that hung up, five times a second."""
        while not self.closed:
            time.sleep(0.2)
            try:
                for stream, peer in list(self.streams.items()):
                    with self.lock:
                        gone = stream in self.streams and stream.exchange.gone()
                    if gone:
                        stream.log.release(stream.exchange)
                    if gone and isinstance(peer, PostPeer):
                        peer.cancel_all()
                expire_sessions(self)  # [legacy]
            except BaseException as problem:  # others are still looked after
                log_failure("the reaper", problem)

    def close(self) -> None:
        """End all subscriptions and sessions; it cannot serve again. What runs is
        answered."""
        self.closed = True
        peers = list(self.streams.values())
        peers += self.sessions.values()  # [legacy]
        for peer in peers:
            peer.close()


def answer(exchange: Exchange, status: int, line: bytes = b"") -> None:
    """Send an answer that is not a stream: a line of JSON, or no body. Log a
    refusal."""
    if status >= 400 and status not in (404, 405):
        who = f"{exchange.address} {exchange.name}".lstrip()
        _log(f"{who}: {status} {line.decode():.500}".rstrip())
    kind = {"Content-Type": "application/json"} if line else {}
    with suppress(OSError):  # the client has hung up
        exchange.start(status, {**kind, **exchange.extra}, line)


def name_of(host: str) -> str:
    """Return the name in a Host or Origin header: that in "http://[::1]:80" is
    "::1"."""
    return re.sub(r"^https?://|:\d*$", "", host.lower()).strip("[]")


# ======== 9. serve_http: the endpoint on sockets ======================================
# A ThreadingHTTPServer of the standard library: each connection has a thread, which
# reads requests and has the endpoint answer them one after the other. Only the head of
# a request is read by code of our own: the library's parser takes half of the time of
# a call, and accepts too much. After a request that is not valid the connection is
# closed: there is no telling where the next begins. Each step of a connection has a
# total time limit, whatever a client does.

MAX_CONNECTIONS = 512  # at once, if there are descriptors; further ones get 503
MAX_HEADERS = 100  # in a request
MAX_LINE_BYTES = 65536  # of the first line and all headers
SEND_SECONDS = 30  # for a client to send a head; to read each MiB of an answer
BODY_SECONDS = 120  # for a client to send a body, whatever its size
DRAIN_SECONDS = 10  # for running requests, after SIGTERM
_FIELD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r\n"
_HEAD = rf"([!-~]+) ([!-~]+) (HTTP/1\.[0-9])\r\n((?:{_FIELD})*)\r\n"


def serve_http(
    server: Server,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    endpoint: Endpoint | None = None,
    **options: Any,
) -> None:
    """Serve over HTTP until a signal or stop(); `options` are those of Endpoint."""
    import signal

    if endpoint and options:
        raise TypeError("give the options to the endpoint")
    httpd = http_server(endpoint or Endpoint(server, **options), host, port)
    url = f"http://[{host}]" if ":" in host else f"http://{host}"

    def react(number: int) -> bool:  # after the first SIGTERM, running requests may end
        drains = number == signal.SIGTERM and not httpd.endpoint.closed
        before, httpd.patience = httpd.patience, DRAIN_SECONDS if drains else 0
        httpd.endpoint.closed = True
        return bool(before)

    stop = partial(react, signal.SIGTERM)
    with signals(react), server.stoppable(stop), closing(httpd):
        _log(
            f"{server.info['name']} listens on {url}:{httpd.server_port}"
            f"{httpd.endpoint.path} (mcp_ref {__version__} sha256:{fingerprint():.12})"
        )
        httpd.serve_forever(0.05)
    await_cancelling()


def serve_http_at(server: Server, words: list[str], options: Message) -> None:
    """Serve at [HOST:]PORT, as the command line has it."""
    place = re.fullmatch(r"(?:(\S*):)?([0-9]{1,5})", " ".join(words))
    if not place or int(place[2]) > 65535:
        usage_error("--http: expected [HOST:]PORT")
    try:
        serve_http(
            server, (place[1] or "127.0.0.1").strip("[]"), int(place[2]), **options
        )
    except OSError as problem:
        raise SystemExit(f"mcp_ref: {place[0]}: {problem}")


def http_server(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> Any:
    """Return a ThreadingHTTPServer for an endpoint: serve_forever() runs it, close()
    ends it.

    `port` 0 is any free port; `server_port` tells which. On loopback, Host must be a
    loopback name, unless the endpoint has `hosts`. close() works on any thread, at any
    time.
    """
    import http.server  # it takes 20 ms
    import socket
    import socketserver

    class Handler(http.server.BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # it costs 44 ms for each answer

        def handle_one_request(self) -> None:
            self.close_connection = True
            try:
                exchange = httpd.next_request(self)
            except OSError:
                return  # it has left
            endpoint.serve(exchange)
            self.close_connection = exchange.closing

    class Httpd(_Httpd, http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # HTTPServer's asks the resolver, too
        server_bind = socketserver.TCPServer.server_bind

    httpd: Any = Httpd(endpoint, (host, port), Handler)
    return httpd


def max_connections() -> int:
    """Return how many connections are taken: no more than descriptors allow.

    A call that waits for its user may keep one longer than its connection counts.
    """
    with suppress(ImportError):  # on Windows
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most > 0:  # or it is infinity
            return max(1, min(MAX_CONNECTIONS, (most - 32) * 4 // 7))
    return MAX_CONNECTIONS


class _Closed(Exception):
    """Ends the loop of serve_forever()."""


_AnyServer: Any = object  # http_server() puts the library's behind it


class _Httpd(_AnyServer):  # type: ignore[misc]
    """For ThreadingHTTPServer: bounds for strangers, and an end that loses no call."""

    request_queue_size = 512  # with the usual 5, clients would wait for seconds
    patience = 0.3  # seconds that close() leaves running requests

    def __init__(self, endpoint: Endpoint, address: Any, handler: Any) -> None:
        self.endpoint = endpoint
        # What each connection does, and until when it may: it is "idle", "reads" a
        # request or "serves" one, and makes room for others in this order. The lock
        # guards this; nobody waits while holding it.
        self.steps: dict[Any, tuple[str, float]] = {}
        self.lock = threading.Lock()
        self.trace = tracer()
        self._accepting = threading.RLock()  # held by serve_forever()
        super().__init__(address, handler)
        host, self.server_port = self.server_address[:2]
        is_loopback = host in _LOOPBACK or host.startswith("127.")
        self.hosts = _LOOPBACK | {host} if is_loopback else None
        # Accepting must not block; with a timeout, what is accepted still may.
        self.socket.settimeout(1)

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serve until close() or shutdown() is called."""
        with self._accepting, suppress(_Closed):
            self.service_actions()
            super().serve_forever(min(poll_interval, 0.1))

    def service_actions(self) -> None:
        """End what takes too long, and the library's loop, which calls this."""
        for link, (_, due) in list(self.steps.items()):
            if due < time.monotonic():
                hang_up(link)
        if self.endpoint.closed:
            raise _Closed

    def verify_request(self, link: Any, address: Any) -> bool:
        """Take a connection, if need be in place of one that has long been idle."""
        with self.lock:
            streams = list(self.endpoint.streams)
            # Calls that wait for users whose clients have hung up hold no connection.
            left = sum(one.endless and one.log.reader is None for one in streams)
            is_full = len(self.steps) - left >= max_connections()
            if is_full:
                oldest = min(self.steps, key=self.steps.__getitem__)
                is_full = self.steps[oldest][0] == "serves"
                if not is_full:
                    del self.steps[oldest]
                    hang_up(oldest)
            if not is_full:
                self.steps[link] = "idle", time.monotonic() + SEND_SECONDS
                return True
        _log(f"503 for {address[0]}: too many connections")
        with suppress(OSError):
            link.sendall(
                b"HTTP/1.1 503 \r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
            )
        return False

    def handle_error(self, link: Any, address: Any) -> None:
        _log(f"a connection of {address[0]} failed: {sys.exc_info()[1]!r:.200}")
        with self.lock:
            self.steps.pop(link, None)  # or the thread that accepts would linger

    def next_request(self, handler: Any) -> SocketExchange:
        """Wait for a request, and read its head; OSError: none comes."""
        link, stream = handler.connection, handler.rfile
        self.step(link, "idle", SEND_SECONDS)
        begin = stream.peek(1)
        self.step(link, "reads", SEND_SECONDS)
        if not begin:
            raise OSError  # it has left
        if begin[:1] == b"\r":  # RFC 9112 §2.2: an empty line before is ignored
            stream.readline(2)
            begin = stream.peek(1)
        is_text = re.match(rb"[\r!-~]", begin)  # TLS is not, and has no lines
        line = stream.readline(MAX_LINE_BYTES) if is_text else b""
        data = bytearray(line)
        if b" HTTP/1." in line:
            # Usually the rest of the head has arrived, too, and is taken at once.
            size = begin.find(b"\r\n\r\n") - len(line) + 2
            data += stream.read(max(size, 0))
            while line.endswith(b"\r\n") and line != b"\r\n":
                line = stream.readline(MAX_LINE_BYTES - len(data))
                data += line
        self.step(link, "serves")
        return SocketExchange(self, handler, data)

    def step(self, link: Any, what: str, seconds: float = inf) -> None:
        """Note what a connection does now, on its own thread; OSError: it has no place
        any longer."""
        with self.lock:
            if link not in self.steps:
                raise OSError  # it was evicted
            self.steps[link] = what, time.monotonic() + seconds

    def shutdown_request(self, link: Any) -> None:
        """Close a connection; first read what comes, or a reset could swallow the
        answer."""
        with suppress(OSError):
            self.step(link, "idle", 2)
            link.shutdown(1)  # SHUT_WR
            while link in self.steps and link.recv(2**16):
                pass
        with self.lock:
            self.steps.pop(link, None)
        self.close_request(link)

    def close(self) -> None:
        """Close the endpoint and all connections; its port is free at once."""
        self.endpoint.close()
        began = time.monotonic()
        with self._accepting, suppress(OSError):  # serve_forever() has returned
            # Whoever is in the kernel's queue is still served, but nobody joins it.
            self.socket.listen(0)
            while is_ready(self.socket, False) and time.monotonic() < began + 1:
                self.handle_request()
        self.server_close()
        quiet = now = began  # since then, no handler runs
        while now < began + self.patience:
            time.sleep(self.patience / 100)
            now, steps = time.monotonic(), dict(self.steps)
            peers = list(self.endpoint.streams.values())
            # A request that is served, of which nothing has been sent, has no limit.
            if any(one.running for one in peers) or ("serves", inf) in steps.values():
                quiet = now
            # What is arriving is served, too, and answers are sent, if that is soon.
            elif now > quiet + self.patience / 5 or not any(
                what != "idle" or is_ready(link, False)
                for link, (what, _) in steps.items()
            ):
                break
        for peer in set(self.endpoint.streams.values()):
            if peer.running:
                _log(f"requests abandoned: {len(peer.running)}")
            peer.cancel_all()
        for link in list(self.steps):
            hang_up(link)


class SocketExchange(Exchange):
    """A request on a connection: RFC 9112 §2.2, §3, §5."""

    def __init__(self, httpd: Any, handler: Any, data: bytearray) -> None:
        self.link, self.httpd, stream = handler.connection, httpd, handler.rfile
        self.address, self.port = handler.client_address[:2]
        self.hosts = httpd.hosts
        head = re.fullmatch(_HEAD, data.decode("latin-1"))
        method, target, version, lines = (
            head.groups() if head else ("?", "/", "HTTP/1.0", "")
        )
        fields = [
            line.split(":", 1) for line in lines.split("\r\n", MAX_HEADERS + 1)[:-1]
        ]
        absolute = re.match("(?i)https?://([^/?]*)", target)  # RFC 9112 §3.2.2
        super().__init__(
            method, target[absolute.end() :] if absolute else target, fields, stream
        )
        self.chunked = version != "HTTP/1.0"
        self.closing = (
            not self.chunked or "close" in self.headers.get("connection", "").lower()
        )
        if len(data) >= MAX_LINE_BYTES or len(fields) > MAX_HEADERS:
            self.flaw = HttpError(431, "the headers are too many, or too large")
        elif (
            not head
            or (self.chunked and "host" not in self.headers)
            or ("transfer-encoding" in self.headers and not self.chunked)
        ):
            self.flaw = HttpError(400, "this is TLS, or the headers are malformed")
        elif absolute:
            self.headers["host"] = absolute[1]

    def body(self) -> bytes:
        if self.chunked and self.headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.httpd.step(self.link, "reads", BODY_SECONDS)
        data = super().body()
        self.httpd.step(self.link, "serves")
        self.httpd.trace(">", data, self.port, self.headers, http=self.name)
        return data

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        # After a flaw or an unread body, what follows may look like another request.
        self.closing |= self.unread or bool(self.flaw) or self.httpd.endpoint.closed
        framing = {"Connection": "close"} if self.closing else {}
        if body is not None and status != 204:
            framing["Content-Length"] = str(len(body))
        elif body is None and self.chunked:
            framing["Transfer-Encoding"] = "chunked"
        date = http_date(int(time.time()))
        head = f"HTTP/1.1 {status} \r\nDate: {date}\r\n"  # a reason is optional
        for name, value in {**headers, **framing}.items():
            # A line end in a value would start another header.
            head += printable(f"{name}: {value}") + "\r\n"
        data = body or b""
        self.httpd.trace("<", data, self.port, http=self.name, status=status)
        if self.method == "HEAD":
            data = b""
        self._send(head.encode("ascii", "backslashreplace") + b"\r\n" + data)

    def _send(self, data: bytes) -> None:
        # If this fails, a part may have been sent: nothing may follow.
        closing, self.closing = self.closing, True
        # Before this time has passed, the next comment is sent.
        seconds = KEEP_ALIVE_SECONDS + SEND_SECONDS * (1 + len(data) / 2**20)
        self.httpd.step(self.link, "serves", seconds)
        self.link.sendall(data)
        self.closing = closing

    def write(self, data: bytes) -> None:
        self.httpd.trace("<", data, self.port)
        self._send(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    def end(self, close: bool = False) -> None:
        if self.chunked:
            self._send(b"0\r\n\r\n")
        if close:
            hang_up(self.link)

    def gone(self) -> bool:
        with suppress(OSError):  # a reset
            if not is_ready(self.link, to_write=False) or self.link.recv(1, 2):
                return False  # 2: MSG_PEEK
        self.httpd.trace(">", b"", self.port, closed=True)
        hang_up(self.link)  # the handler may run on for long
        return True


@lru_cache(1)
def http_date(seconds: int) -> str:
    """Return a time as a Date header has it: RFC 9110 §6.6.1."""
    from email.utils import formatdate

    return formatdate(seconds, usegmt=True)


def hang_up(link: Any) -> None:
    """Shut a socket down, on any thread; close() would wait for those who use it."""
    with suppress(OSError):
        link.shutdown(2)  # SHUT_RDWR


# ======== 10. The command line ========================================================

USAGE = """usage: mcp_ref.py [serve FILE.py] [--http [HOST:]PORT] | tables | --version | --help

Serves a small demonstration, or a file's public functions as tools, on stdio or HTTP.
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
    """Import a file, and serve its public functions as tools.

    A file that makes a server of its own is a program. If it has served while it was
    imported, all is done; else it is refused: what it would give to its run(), such as
    `authorize`, is not known here.
    """
    import importlib.util

    name, suffix = os.path.splitext(os.path.basename(path))
    if suffix != ".py" or not os.path.isfile(path):
        usage_error(f"serve: {path} is not a Python file")
    if "--http" not in " ".join(words):
        guard_stdio()  # before its first line runs

    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path, *words]
    name = name if name != "__main__" else "main"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # not in place of a library's
    spec.loader.exec_module(module)
    if Server.served:
        return
    tools = []
    for key, value in vars(module).items():
        is_public = key != "main" and key[0] != "_"
        is_own = type(value) is types.FunctionType and value.__module__ == name
        if is_public and is_own:
            tools.append(value)
    if Server.made or not tools:
        usage_error(f"{path} makes its own server: run it with `python3 {path}`")
    server = Server(name)
    for function in tools:
        server.tool(function)
    server.run(words)


def tables() -> str:
    """Return a line for each row: name, sender or HTTP status, and each revision."""
    order = list(reversed(REVISIONS))
    senders = {">": "client", "<": "server", "<>": "both"}
    row_of = ("  {:41} {:6}" + " {:10}" * len(order)).format
    lines = [row_of("", "", *order).rstrip()]

    for title, table in TABLES.items():
        lines.append(title)
        for key, row in table.items():
            name = f"{key} {row.name}" if title == "errors" else key
            who = getattr(row, "way", getattr(row, "status", ""))
            cells = []
            for place, version in enumerate(order, 1):
                is_old = getattr(row, "deprecated", "") in order[:place]
                word = "deprecated" if is_old else "yes"
                cells.append(word if key in rules(version).served[title] else "")
            lines.append(row_of(name, senders.get(who, who), *cells).rstrip())
    return "\n".join(lines)


def usage_error(problem: str) -> typing.NoReturn:
    """Report a wrong command line; exit with status 2."""
    sys.stderr.write(f"mcp_ref.py: {problem}\n{USAGE}\n")
    raise SystemExit(2)


def main(words: list[str]) -> None:
    """Run the command line."""
    if not words or words[0].startswith("--http"):
        demo().run(words)
    elif {"-h", "--help"} & set(words[:2]):  # further words are FILE's
        print(USAGE)
    elif words == ["--version"]:
        print(f"mcp_ref {__version__} sha256:{fingerprint()}")
    elif words == ["tables"]:
        print(tables())
    elif words[0] != "serve":
        usage_error(f"unknown command: {words[0]}")
    elif len(words) < 2 or words[1].startswith("-"):
        usage_error("serve: missing FILE.py")
    else:
        serve_file(words[1], words[2:])


# ======== Part III [legacy]: clients up to 2025-11-25 =================================
# ======== 11. Sessions, questions as requests, batches ================================
# A legacy client opens a session with `initialize`. What it says there is kept, under
# the keys that a modern request has in `_meta`, so that most of Context works on it
# unchanged. Four methods differ: how the client is known, how it is asked, what a
# result looks like, what an error is.


# What is kept of a client that opens a session, beside the capabilities themselves.
_PARTS = ("form", "url", "tools", "context", "listChanged")
_NAMES = ("name", "title", "version")
MAX_NAME_LENGTH = 1000  # of each name


class Session:
    """What `initialize` said, and a listener for everything that changes."""

    def __init__(
        self, server: Server, peer: Peer, version: str, params: Message
    ) -> None:
        self.rules, self.peer, self.server = rules(version), peer, server
        self.ready = False  # notifications/initialized has arrived
        info, declared = params.get("clientInfo", {}), params.get("capabilities", {})
        usable = {}
        for row in METHODS.values():
            parts = declared.get(row.capability)
            is_known = row.way == "<" and row.name in self.rules.methods
            if is_known and isinstance(parts, dict):
                parts = {part: {} for part in _PARTS if part in parts}
                usable[row.capability] = downgrade(self.rules, row.capability, parts)
        self.meta = {
            META_CLIENT: {
                key: str(info[key])[:MAX_NAME_LENGTH] for key in _NAMES if key in info
            },
            META_CAPABILITIES: usable,
            META_LOG_LEVEL: "info",
        }
        self.filter: Message = {
            row.filter: True
            for row in NOTIFICATIONS.values()
            if row.filter and row.capability in server.declared
        }
        self.filter["resourceSubscriptions"] = set()  # of their uri_key()

    def hears(self, method: str) -> bool:
        """Tell whether this session's revision has a notification."""
        return method not in NOTIFICATIONS or method in self.rules.notifications

    def tell(self, method: str, params: Message) -> None:
        """Send a notification that belongs to no request."""
        if self.ready:
            message = without_none(jsonrpc="2.0", method=method, params=params or None)
            self.peer.tell(message, self.peer.send)


def has_null_ids(session: Session | None) -> bool:
    """Tell whether an error without an id has `"id": null` in this session."""
    return session is not None and "null id in errors" in session.rules.features


class LegacyContext(Context):
    """A request in a session.

    Also `initialize`, which opens a session, and `ping`, which needs none.
    """

    def _admit(self, start: Func) -> None:
        """Answer `initialize` and `ping` at once; other requests need a session."""
        session = self.peer.session
        if self.method in ("initialize", "ping"):
            result = self._initialize() if self.method == "initialize" else {}
            self._send(self._respond(result))
            return
        # Over HTTP a request may overtake notifications/initialized; on a pipe it
        # cannot.
        if session is None or self.peer.ordered and not session.ready:
            raise invalid(
                "send initialize and notifications/initialized first, or use _meta"
            )
        self._identify(session.meta)
        self._resolve(session.rules.version)
        self._submit(start)

    def _initialize(self) -> Message:
        """Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        check_params(self.method, self.params)
        offered, version = versions("legacy"), self.params["protocolVersion"]
        version = version if version in offered else offered[0]
        peer = self.peer
        session = Session(self.server, peer, version, self.params)
        self.server.listeners.pop(peer.session, None)
        peer.session = session
        if isinstance(peer, HttpSession):
            peer.register()
        declared = self.server.capabilities(version)
        if peer.send is drop:  # it hears of no change
            declared.update({name: {} for name in CAPABILITIES if name in declared})
        else:
            self.server.listeners[session] = None
        if peer.closed:  # close() may not have seen the session
            self.server.listeners.pop(session, None)
        return without_none(
            protocolVersion=version,
            capabilities=declared,
            serverInfo=downgrade(session.rules, "server", self.server.info),
            instructions=self.server.instructions,
        )

    def close_stream(self) -> None:
        if isinstance(self._send, SessionStream):
            with self._lock:
                self._send.disconnect()

    def _obtain(self, questions: Message) -> Message:
        with self._asking(questions) as outcome:
            return dict(outcome.result(ASK_SECONDS))

    async def _obtain_later(self, questions: Message) -> Message:
        import asyncio

        with self._asking(questions) as outcome:
            return await asyncio.wait_for(asyncio.wrap_future(outcome), ASK_SECONDS)

    @contextmanager
    def _asking(self, questions: Message) -> Iterator[Any]:
        """Send the questions as requests; yield a Future of the answers by key.

        In the end, what is not answered is taken back. AskError: see ask().
        """
        from concurrent.futures import Future, InvalidStateError

        outcome = Future[Message]()
        answers: Message = {}

        def take(key: str, response: Any) -> None:
            with suppress(InvalidStateError):  # it has failed already
                try:
                    answers[key] = self._answer_in(response, questions.get(key))
                except AskError as problem:
                    outcome.set_exception(problem)
                if len(answers) == len(questions):
                    outcome.set_result({key: answers[key] for key in questions})

        asked = {next(self.peer.question_ids): key for key in questions}
        stream = getattr(self._send, "stream", self._send)  # of a batch
        if isinstance(stream, SessionStream):
            stream.owner.endpoint.hold(stream)
        self._wake_with(partial(take, "", None))
        try:
            for ident, key in asked.items():
                self.peer.questions[ident] = partial(take, key)
                self._emit(self._as_request(ident, questions[key]))
            if self.peer.closed:
                take("", None)
            elif not asked:
                outcome.set_result(answers)
            yield outcome
        except AskError:
            raise
        except Exception:  # a TimeoutError: of two kinds, until Python 3.11
            raise AskError(
                f"the client did not answer within {ASK_SECONDS:g} s"
            ) from None
        finally:
            if isinstance(stream, SessionStream):
                stream.endless = False
            for ident in asked:
                if self.peer.questions.pop(ident, None) and not self.peer.closed:
                    self.notify("notifications/cancelled", {"requestId": ident})

    def _as_request(self, ident: int, question: Message) -> Message:
        params = downgrade(self._rules, "elicitation", question.get("params", {}))
        if "url" in params:  # [2025-11-25] client/elicitation §URL Mode
            params.setdefault("elicitationId", os.urandom(16).hex())
        request = {"jsonrpc": "2.0", "id": ident, "method": question["method"]}
        return {**request, **without_none(params=params or None)}

    def _answer_in(self, response: Message | None, question: Any) -> Any:
        if response is None:
            raise AskError("it was cancelled" if self.cancelled else "the client left")
        error = response.get("error")
        if isinstance(error, dict):
            raise AskError(f"the client refused: {error.get('message')!s:.200}", error)
        return usable_answer(question, response.get("result"))

    def _shape(self, result: Message) -> Message:
        """Return a result without what the revision lacks."""
        result = downgrade(self._rules, "result", result)
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
_MEMBERS = """
    tools:tool resources:resource resourceTemplates:template prompts:prompt
    contents:contents content:content resource:contents messages:message
    annotations:annotations
"""
_KINDS = dict(pair.split(":") for pair in _MEMBERS.split())


def downgrade(rules: Rules, kind: str, value: Any) -> Any:
    """Return an object of this kind, or a list, without what the revision lacks."""
    if isinstance(value, list):
        return [downgrade(rules, kind, item) for item in value]
    if not isinstance(value, dict):
        return value
    block = value.get("type") if kind == "content" else ""
    if block == "audio" and "audio" not in rules.features:
        return embedded(
            f"data:{value['mimeType']}", from_base64(value["data"]), value["mimeType"]
        )
    if block == "resource_link" and "resource links" not in rules.features:
        return text("{name}: {uri}".format(**value))
    star = "" if kind in ("result", "annotations") else "*"
    return {
        key: downgrade(rules, _KINDS[key], item) if key in _KINDS else item
        for key, item in value.items()
        if rules.hidden.isdisjoint((f"{kind}.{key}", f"{star}.{key}"))
    }


def serve_batch(
    server: Server,
    batch: list[Any],
    send: Send,
    peer: Peer,
    principal: Any,
    start: Func,
) -> None:
    """Serve an array of messages in order: [2025-03-26] basic/index §Batching."""
    answers: list[Message] = []
    refusal = RpcError(
        INVALID_REQUEST,
        f"Invalid request: only {R2} has batches, of 1 to "
        f"{MAX_BATCH} messages, none of them `initialize`",
    )
    if (
        not peer.session
        or "batches" not in peer.session.rules.features
        or not 0 < len(batch) <= MAX_BATCH
    ):
        return send(error_response(refusal, batch, peer))

    def collect(message: Message) -> None:
        encode(message)  # raises if it cannot be sent: it fails alone
        deliver = send if "method" in message else answers.append
        deliver(message)

    setattr(collect, "stream", send)  # what holds the connection

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

    # Without a request, nothing has to run: the answer over HTTP is 202.
    if any(isinstance(one, dict) and {"id", "method"} <= one.keys() for one in batch):
        start(serve_all)
    else:
        serve_all()


def set_level(server: Server, ctx: Any) -> Message:
    """[2025-11-25] server/utilities/logging §Setting Log Level."""
    ctx.peer.session.meta[META_LOG_LEVEL] = ctx.params["level"]
    return {}


def subscribe(server: Server, ctx: Any) -> Message:
    """Subscribe or unsubscribe: [2025-11-25] server/resources §Subscriptions."""
    uri, watched = ctx.params["uri"], ctx.peer.session.filter["resourceSubscriptions"]
    key = uri_key(uri)
    if ctx.method == "resources/unsubscribe":
        watched.discard(key)
        return {}
    if "resources/read" not in server.methods:
        find_resource(ctx, uri)
    if len(watched) >= MAX_URIS and key not in watched:
        raise invalid(f"uri: a session watches at most {MAX_URIS}")
    server.on_watch(uri, ctx)
    watched.add(key)
    return {}


SERVED.update(
    {
        "logging/setLevel": set_level,
        "resources/subscribe": subscribe,
        "resources/unsubscribe": subscribe,
    }
)


# ======== 12. Sessions over HTTP, resumable streams, HTTP+SSE =========================
# `initialize` hands out a session id, which the client repeats in a header; 404 says
# that this session is gone, and nothing else. Events are numbered and kept for a while:
# a client that lost its connection names the last one it saw, and a GET carries the
# rest of that stream. Another GET carries what belongs to no request; in HTTP+SSE, the
# transport of 2024-11-05, everything.
#
# An event's id is the name of its log and its number. A session's own log has the
# session's id for a name; that of a POST begins like it, and ends with the JSON of the
# request's id in hexadecimal. So the answer to a client that comes back too late can
# name the request, although nothing is kept of it:
#
#     24f59b27 5d0c36e1c2a94f7bb0a1d2e3 370a-3    event 3 of request 7 (in one word)

MAX_SESSIONS = 1000  # beyond that, the longest unused one is closed
SESSION_SECONDS = 3600  # without a request, until a session expires
REPLAY_BYTES = 2**17  # of events that a stream keeps, for clients that come back
MAX_KEPT_BYTES = 2**26  # of streams that have ended, in all sessions
RETRY_MS = 500  # until a client comes back after close_stream()
__all__ += """
    MAX_KEPT_BYTES MAX_NAME_LENGTH MAX_SESSIONS REPLAY_BYTES RETRY_MS SESSION_SECONDS
""".split()


class SessionStream(Stream):
    """The answer to a POST in a session: it outlives its connection."""

    def __init__(self, exchange: Exchange, owner: HttpSession, ident: Any) -> None:
        super().__init__(exchange)
        self.owner, self.ident = owner, ident

    def new_log(self) -> Log:
        """Make a log in the session; some begin with an id and no message."""
        log, session = Log(REPLAY_BYTES), self.owner.session
        # Once the log is forgotten, its name still says whose response is missing: the
        # session it begins with, the request it ends with.
        log.name = f"{self.owner.id[:8]}{log.name[8:]}{encode(self.ident).hex():.998}"
        self.owner.logs[log.name] = log
        if session and "priming events" in session.rules.features:
            self.greeting = event(b"", f"{log.name}-0", retry=RETRY_MS)
        return log

    def disconnect(self) -> None:
        """Have the client come back for the rest, if its revision knows of that."""
        self.begin()
        if self.greeting:
            self.log.release(self.log.reader)

    def finish(self) -> None:
        super().finish()
        if self.log is not _NO_LOG:
            until = time.monotonic() + ASK_SECONDS
            self.owner.endpoint.kept[self.log] = until, self.owner.logs
        self.owner.settle()


class HttpSession(Peer):
    """The client behind a session over HTTP; `headers` are those that open it."""

    def __init__(self, endpoint: Endpoint, principal: Any, headers: Headers) -> None:
        super().__init__(self.tell, ordered=False)
        self.endpoint, self.principal = endpoint, encode(principal)
        self._headers = headers
        self.used = time.monotonic()  # when the last request came
        self.own = Log(REPLAY_BYTES)  # what belongs to no POST
        self.id = self.own.name
        self.logs = {self.id: self.own}  # by name, the oldest first

    def tell(self, message: Message, send: Send = drop) -> None:
        """Send a message that belongs to no POST."""
        self.own.tell(encode(message))

    def register(self) -> None:
        """Let requests find the session, if need be in place of one that is not in
        use."""
        endpoint, sessions = self.endpoint, self.endpoint.sessions
        with endpoint.lock:
            if len(sessions) >= MAX_SESSIONS:
                count = Counter(one.principal for one in sessions.values())
                idle = set(sessions.values()).difference(endpoint.streams.values())
                if not idle:
                    raise HttpError(503, "too many sessions", {"Retry-After": "1"})
                # Who holds most gives one up, so that nobody evicts another's.
                min(idle, key=lambda one: (-count[one.principal], one.used)).close()
            sessions[self.id] = self
        self._headers["Mcp-Session-Id"] = self.id
        endpoint.start_reaper(self)

    def settle(self) -> None:
        """End the session's own stream once the session has ended, and nothing runs."""
        if self.closed and not self.running:
            self.own.end()

    def close(self) -> None:
        """End the session; requests that are running are still answered."""
        self.endpoint.sessions.pop(self.id, None)
        super().close()
        self.settle()


def expire_sessions(endpoint: Endpoint) -> None:
    """End sessions that have not been used for long, and forget streams that have
    ended, the oldest first."""
    now, size = time.monotonic(), 0
    with endpoint.lock:
        sessions = set(endpoint.sessions.values())
        idle = sessions.difference(endpoint.streams.values())
    for session in idle:
        if session.used + SESSION_SECONDS < now:
            session.close()
    for log, (until, logs) in reversed(list(endpoint.kept.items())):
        size += log.size + 2**12  # and what it takes itself
        if size > MAX_KEPT_BYTES or until < now:
            del endpoint.kept[log], logs[log.name]


def legacy_verbs(endpoint: Endpoint, exchange: Exchange, path: str) -> dict[str, Any]:
    """Return what legacy clients may do on a path: functions by verb."""
    if path == endpoint.path and "mcp-session-id" in exchange.headers:
        return {"GET": serve_session, "POST": Endpoint.post, "DELETE": serve_session}
    if path == endpoint.path.rstrip("/") + "/messages":
        return {"POST": serve_sse_post}
    opens_here = (
        path == endpoint.path
        and endpoint.sse_on_get
        and exchange.method == "GET"
        and "mcp-protocol-version" not in exchange.headers
    )
    if opens_here or path == endpoint.path.rpartition("/")[0] + "/sse":
        return {"GET": serve_sse}
    return {}


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


def legacy_stream(
    stream: Stream, peer: PostPeer, message: Any
) -> tuple[Stream, PostPeer | HttpSession]:
    """Return the stream and the peer for a message; a modern one keeps its own."""
    with suppress(KeyError, TypeError):
        if META_VERSION in message["params"]["_meta"]:
            return stream, peer
    # [2025-11-25] basic/transports §Session Management.
    endpoint, exchange = peer.endpoint, stream.exchange
    version = exchange.headers.get("mcp-protocol-version", R2)
    if version not in REVISIONS:
        raise HttpError(400, "MCP-Protocol-Version is unknown")
    owner: PostPeer | HttpSession = peer
    request: Message = message if isinstance(message, dict) else {}
    if endpoint.stateless:
        if version in versions("legacy"):
            peer.session = Session(endpoint.server, peer, version, {})
    elif request.get("method") == "initialize" and "id" in request:
        owner = HttpSession(endpoint, exchange.principal, exchange.extra)
    elif "mcp-session-id" in exchange.headers:
        owner = find_session(endpoint, exchange)
    if isinstance(owner, HttpSession):
        stream = SessionStream(exchange, owner, request.get("id"))
    # Answers in a session have status 200, but for a refused batch.
    is_session = owner.session is not None
    stream.is_always_ok = is_session and not isinstance(message, list)
    return stream, owner


def serve_session(endpoint: Endpoint, exchange: Exchange) -> None:
    """Serve GET (listen, or resume a stream) and DELETE: [2025-11-25]
    basic/transports."""
    session = find_session(endpoint, exchange)
    if exchange.method == "DELETE":
        session.close()
        return answer(exchange, 200)
    last = re.fullmatch(
        r"(\w{32}((?:[0-9a-f]{2})*))-(\d{1,9})",
        exchange.headers.get("last-event-id", ""),
    )
    name, after = (last[1], int(last[3])) if last else (session.id, None)
    stream, log = Stream(exchange), session.logs.get(name)

    def resume() -> None:
        if last and not log and name.startswith(session.id[:8]):
            lost = RpcError(INTERNAL_ERROR, "the response is no longer kept")
            stream.begin(here=True)
            stream(error_response(lost, {"id": decode(bytes.fromhex(last[2]))}))
        elif log and log.open(exchange, after):
            stream.log = log
        else:
            raise HttpError(405, "this stream has ended", {"Allow": "POST, DELETE"})

    stream.lasts = True
    endpoint.run_handler(stream, session, resume)


def serve_sse(endpoint: Endpoint, exchange: Exchange) -> None:
    """[2024-11-05] basic/transports §HTTP with SSE: the first event says where to
    POST."""
    session = HttpSession(endpoint, exchange.principal, {})
    # A relative reference: a proxy may have taken a prefix from the path.
    address = f"{endpoint.path.rpartition('/')[2]}/messages?session_id={session.id}"
    stream = Stream(exchange)
    stream.lasts = True
    stream.greeting = event(address.encode(), event="endpoint")
    stream.log = session.own
    stream.log.open(exchange)
    with closing(session):
        endpoint.run_handler(stream, session, session.register)


def serve_sse_post(endpoint: Endpoint, exchange: Exchange) -> None:
    """Serve a message; what results goes to the session's stream."""
    session = find_session(endpoint, exchange)
    message = endpoint.read_message(exchange)
    names = [thread.name for thread in threading.enumerate()]
    # Answers and cancellations are always taken: they end calls.
    is_call = not isinstance(message, dict) or {"id", "method"} <= message.keys()
    if is_call and (
        len(session.running) > MAX_THREADS or names.count("mcp-call") > MAX_CONNECTIONS
    ):
        raise HttpError(503, "too many calls wait", {"Retry-After": "1"})

    def send(message: Any) -> None:
        session.own.add(encode(message))

    def start(work: Func) -> None:
        def run() -> None:
            work()
            session.settle()

        # On a thread of its own: the next POST may use this connection.
        run_aside("mcp-call", run)

    endpoint.server.handle(
        message, send, peer=session, principal=exchange.principal, start=start
    )
    answer(exchange, 202)


# ======== The end of part III =========================================================


if __name__ == "__main__":
    # for what a served file imports
    sys.modules.setdefault("mcp_ref", sys.modules["__main__"])
    main(sys.argv[1:])
