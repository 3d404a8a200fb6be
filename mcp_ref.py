#!/usr/bin/env python3
# mcp_ref.py 2.0.0: the Model Context Protocol in one file.
# Changes, and the SHA-256 of each release: .github/CHANGELOG.md.
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
# For the linters of a project that contains this file.
# ruff: noqa: PGH004
# ruff: noqa
# flake8: noqa
# pylint: skip-file
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportOptionalMemberAccess=false, reportPossiblyUnboundVariable=false
# pyright: reportUnsupportedDunderAll=false
"""A Model Context Protocol (MCP) server in one file, standard library only.

With MCP, an AI application (the *host*, with a *client* inside it) uses the tools and
data of a *server*. They exchange JSON objects, as JSON-RPC 2.0 defines them:

    request      {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {...}}
    response     {"jsonrpc": "2.0", "id": 1, "result": {...}}  or  {..., "error": {...}}
    notification {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}

A request gets one response, with the same `id`, unless it is cancelled; a notification
is never answered. A server offers *tools* (functions that the model
calls), *resources* (data named by a URI, which the application reads) and *prompts*
(message templates that the user picks). It may ask the client *questions*: for
*elicitation* (a form for the user), *sampling* (a completion from the client's model)
and *roots* (the folders to work in). A complete server:

    from mcp_ref import Server
    server = Server("hello")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()  # on standard input and output; with `--http PORT`, over HTTP

A *capability* is an optional part of MCP; each side declares its own. A *revision* is a
version of the specification, named by its date. Up to 2025-11-25 (the *legacy* era), a
client opens a *session* with an `initialize` request, which names the revision and the
client's capabilities once. Since 2026-07-28 (the *modern* era) there are no sessions:
every request names them in `params._meta`.

This file serves both eras. Part I is a complete server on stdio, even if you delete
part II, which adds HTTP.

Read all of the file from the top (8½ hours), or only the protocol (5½): without the
bodies of sections 3, 4, 5, 15 and 16, whose first lines say all that the rest needs.
"How a message travels" is the map.

In docstrings, `NotFound: there is none` names an exception and its reason.

    I     1  the tables: the protocol as data
          2  messages and errors
          3  logging, threads, signals, command line
          4  JSON Schema validation
          5  type hints to JSON Schema and back
          6  content, results, and the registry
          7  requests: what a handler sees, and what becomes of its result
          8  the peer: running requests, cancellation
          9  the server
         10  one function per method
         11  sessions, questions as requests, batches
         12  stdio
    II   13  the endpoint: the rules of HTTP, without sockets
         14  sessions over HTTP, resumable streams, HTTP+SSE
         15  serve_http: the endpoint on sockets
         16  the command line

References such as `basic/patterns/mrtr §Error Handling` name a page and a heading of
the newest revision of the specification; a page of an older revision has its date in
brackets in front. The client is a separate file, examples/mcp_client.py.

In a package, put this file beside your modules: `from .mcp_ref import Server`.

Known limits: examples/limits.md.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from contextlib import closing, contextmanager, suppress
from enum import IntEnum
from functools import cache, lru_cache, partial
from math import inf
from operator import ge, gt, le, lt
from typing import Any, Union, get_args, get_origin, get_type_hints, overload

__version__ = "2.0.0"
__all__ = """
    ASK_SECONDS BLINK_SECONDS DIFFERENCES ERRORS FEATURES FILE_SECONDS HEADER_MISMATCH
    INTERNAL_ERROR INVALID_PARAMS INVALID_REQUEST LEAVE_SECONDS LISTS LOG_LEVELS
    MAX_BATCH MAX_BATCH_BYTES MAX_COMPLETIONS MAX_DEPTH MAX_ERRORS MAX_ID_LENGTH
    MAX_MESSAGE_BYTES MAX_RUNNING MAX_THREADS MAX_URIS MAX_URI_LENGTH MAX_VALUES META
    META_CAPABILITIES META_CLIENT META_LOG_LEVEL META_SERVER META_SUBSCRIPTION
    META_VERSION METHODS METHOD_NOT_FOUND MISSING_CAPABILITY NOTIFICATIONS
    ON_CANCEL_SECONDS PARSE_ERROR
    RESOURCE_NOT_FOUND REVISIONS RUN_SECONDS STATE_SECONDS UNSUPPORTED_VERSION
    URL_REQUIRED AskError ClientLacks Context NotFound Peer Pipe Result RpcError Schema
    Server ToolError audio decode elicitation embedded encode image is_id keywords
    kind_of link log meta_for printable roots rules sampling schema_of serve_stdio text
    versions
""".split()

Message = dict[str, Any]  # a JSON object, as a plain dict
Func = Callable[..., Any]
F = typing.TypeVar("F", bound=Func)  # a decorator returns it unchanged
Headers = dict[str, str]
Send = Callable[[Any], None]  # sends one message


# ======== How a message travels =======================================================
# On stdio, from the bytes of a request to the bytes of its response:
#
#     Pipe._read()             reads a line                                 section 12
#     decode()                 bytes to a message                           section 2
#     Server.handle()          which kind of message, which era             section 9
#       Context._admit()       checks the request                            section 7
#         _submit()            finds the method's function, checks params
#     Pipe._run()              calls _perform(), or leaves it to a queue    section 12
#       Context._perform()     runs the request; never fails                section 7
#         _result()            runs the method
#           serve_*()          one for each method                          section 10
#             Server.call_handler()    calls the author's function          section 9
#           _explain()         turns an exception into a result or an error
#           _shape()           fits the result to the revision
#         _finish()            ends the request
#     Pipe._write()            encode() and a line of bytes                 section 12
#
# Over HTTP, the beginning and the end differ:
#
#     HttpServer.serve()       reads the head                               section 15
#     Endpoint.serve()         the ladder of refusals                       section 13
#       Endpoint.post()        reads and decodes the body
#         Server.handle()      ... as above, until _finish() ...
#         Answer.__call__()    JSON, or events in an Outbox                 section 13
#     SocketExchange.start(), write(), end()     bytes                      section 15
#
# A request in a session goes the same way, as a LegacyContext (section 11).
#
# On the wire, a modern call and its answer (here folded):
#
#     {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
#         "name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {
#             "io.modelcontextprotocol/protocolVersion": "2026-07-28",
#             "io.modelcontextprotocol/clientCapabilities": {}}}}
#
#     {"jsonrpc": "2.0", "id": 1, "result": {
#         "resultType": "complete", "content": [{"type": "text", "text": "3"}],
#         "structuredContent": {"result": 3}, "_meta": {...}}}
#
# The thread that reads a request also runs its handler. If the handler is slow, another
# thread reads on (stdio); over HTTP each connection has its own thread. One thread at a
# time writes to a client, under a lock.


# ======== Part I: a server on stdio ===================================================

# ======== 1. The tables: the protocol as data =========================================
# Every difference between two revisions is a row of a table; other code names no date.
# These columns are in several tables:
#
#     since, until  the first and the last revision that have it
#     deprecated    the revision that advises against it
#     way           ">" if clients send it, "<" if servers send it
#     capability    the receiver of a request, or the sender of a notification, must
#                   declare it

# The revisions by their short names, from R1, the oldest.
_SHORT: dict[str, str] = {}


def read_table(source: str) -> dict[Any, Any]:
    """Return the rows of a table, each a namedtuple, by their first cells.

    Two or more spaces separate cells; `-` is an empty cell; R1, R2, ... become dates.
    """
    head, *lines = source.strip().splitlines()
    columns = head.split()
    empty = [""] * len(columns)
    make_row: Any = namedtuple("Row", columns, defaults=empty)  # type: ignore
    words: dict[str, Any] = {"-": "", "yes": True, "no": False, **_SHORT}
    table = {}
    for line in lines:
        cells: list[Any] = []
        for word in re.split("  +", line.strip()):
            is_number = word.lstrip("-").isdigit()
            cells.append(int(word) if is_number else words.get(word, word))
        table[cells[0]] = make_row(*cells)
    return table


# To add a revision: a row on top, then `since` and `until` in the rows that change.
REVISIONS = read_table("""
    date        era
    2026-07-28  modern
    2025-11-25  legacy
    2025-06-18  legacy
    2025-03-26  legacy
    2024-11-05  legacy
""")
for _number, _date in enumerate(reversed(REVISIONS), 1):
    _SHORT[f"R{_number}"] = _date
R2 = _SHORT["R2"]  # the only one with batches; HTTP without the header means it

# To add a method: a row, its params in PARAMS, and for ">" a function in SERVED
# (section 10). `asks`: its handler may ask the client (basic/patterns/mrtr §Supported
# Requests); `cacheable`: its result has caching hints (server/utilities/caching);
# `mirrored`: the param that HTTP repeats in Mcp-Name.
METHODS = read_table("""
    name                      way  since  until  deprecated  asks  cacheable  mirrored  capability
    server/discover           >    R5     -      -           no    yes        -         -
    tools/list                >    R1     -      -           no    yes        -         tools
    tools/call                >    R1     -      -           yes   no         name      tools
    resources/list            >    R1     -      -           no    yes        -         resources
    resources/templates/list  >    R1     -      -           no    yes        -         resources
    resources/read            >    R1     -      -           yes   yes        uri       resources
    prompts/list              >    R1     -      -           no    yes        -         prompts
    prompts/get               >    R1     -      -           yes   no         name      prompts
    completion/complete       >    R1     -      -           no    no         -         completions
    subscriptions/listen      >    R5     -      -           no    no         -         -
    initialize                >    R1     R4     -           no    no         -         -
    ping                      <>   R1     R4     -           no    no         -         -
    logging/setLevel          >    R1     R4     -           no    no         -         logging
    resources/subscribe       >    R1     R4     -           no    no         -         resources
    resources/unsubscribe     >    R1     R4     -           no    no         -         resources
    elicitation/create        <    R3     -      -           no    no         -         elicitation
    sampling/createMessage    <    R1     -      R5          no    no         -         sampling
    roots/list                <    R1     -      R5          no    no         -         roots
""")

# `member` of a list's result has the definitions; `item` is their kind in FEATURES.
LISTS = read_table("""
    name                      member             item
    tools/list                tools              tool
    resources/list            resources          resource
    resources/templates/list  resourceTemplates  template
    prompts/list              prompts            prompt
""")

# server/utilities/logging §Log Levels: the eight of RFC 5424, least urgent first.
LOG_LEVELS = "debug info notice warning error critical alert emergency".split()

# The types of params; `?`: may be null, or absent.
_PARAM_TYPES: Message = {
    "str": str,
    "dict": dict,
    "str?": (str, type(None)),
    "dict?": (dict, type(None)),
    "level": LOG_LEVELS,
    "level?": [None, *LOG_LEVELS],
}
_PARAMS = read_table("""
    name                   types
    initialize             protocolVersion:str capabilities:dict clientInfo:dict
    tools/call             name:str arguments:dict? inputResponses:dict? requestState:str?
    resources/read         uri:str inputResponses:dict? requestState:str?
    resources/subscribe    uri:str
    resources/unsubscribe  uri:str
    prompts/get            name:str arguments:dict? inputResponses:dict? requestState:str?
    completion/complete    ref:dict argument:dict context:dict?
    logging/setLevel       level:level
    subscriptions/listen   notifications:dict
""")
PARAMS: dict[str, Message] = {}
for _method, _row in _PARAMS.items():
    _pairs = re.findall(r"(\w+):(\S+)", _row.types)
    PARAMS[_method] = {name: _PARAM_TYPES[kind] for name, kind in _pairs}
RETRY = "inputResponses", "requestState"  # see section 7

# The reserved keys of `_meta`: basic/index §_meta. To add one: a row, and its name
# below.
META = read_table("""
    key                                         way  since  until  kind
    io.modelcontextprotocol/protocolVersion     >    R5     -      str
    io.modelcontextprotocol/clientCapabilities  >    R5     -      dict
    io.modelcontextprotocol/clientInfo          >    R5     -      dict?
    io.modelcontextprotocol/logLevel            >    R5     -      level?
    io.modelcontextprotocol/subscriptionId      <    R5     -      -
    io.modelcontextprotocol/serverInfo          <    R5     -      -
""")
(
    META_VERSION,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SUBSCRIPTION,
    META_SERVER,
) = META

# `filter` is the member of a subscription's filter that asks for a notification.
NOTIFICATIONS = read_table("""
    name                                      way  since  until  deprecated  capability  filter
    notifications/cancelled                   <>   R1     -      -           -           -
    notifications/progress                    <>   R1     -      -           -           -
    notifications/message                     <    R1     -      R5          logging     -
    notifications/tools/list_changed          <    R1     -      -           tools       toolsListChanged
    notifications/prompts/list_changed        <    R1     -      -           prompts     promptsListChanged
    notifications/resources/list_changed      <    R1     -      -           resources   resourcesListChanged
    notifications/resources/updated           <    R1     -      -           resources   resourceSubscriptions
    notifications/subscriptions/acknowledged  <    R5     -      -           -           -
    notifications/elicitation/complete        <    R4     R4     -           -           -
    notifications/initialized                 >    R1     R4     -           -           -
    notifications/roots/list_changed          >    R1     R4     -           roots       -
""")
UPDATED = "notifications/resources/updated"
# Those that Server.changed() sends.
CHANGES = [method for method, row in NOTIFICATIONS.items() if row.filter]

# To add a difference: a row, and `Rules.has("its name")` where it matters. If it only
# adds members, name them in `fields` (see downgrade() in section 6).
FEATURES = read_table("""
    name                    since  until  deprecated  fields
    caching hints           R5     -      -           result.ttlMs result.cacheScope
    result types            R5     -      -           result.resultType
    server info             R5
    any structured content  R5
    argument errors         R4
    URL elicitation         R4     -      -           elicitation.url elicitation.mode
    sampling tools          R4     -      -           sampling.tools
    priming events          R4     R4
    icons                   R4     -      -           *.icons
    server description      R4     -      -           server.description server.websiteUrl
    titles                  R3     -      -           *.title
    _meta everywhere        R3     -      -           *._meta
    structured output       R3     -      -           tool.outputSchema result.structuredContent
    modification times      R3     -      -           annotations.lastModified
    tool annotations        R2     -      -           tool.annotations
    completions capability  R2     -      -           capabilities.completions
    batches                 R2     R2
    null id in errors       R1     R3
""")
# More differences, for clients and tests.
DIFFERENCES = read_table("""
    name                    since  until  deprecated  fields
    header mirroring        R5
    elicitation ids         R4     R4
    rich forms              R4
    sampling context        R4     -      R4
    completion context      R3
    version header          R3
    progress messages       R2
    streamable sessions     R2     R4
    HTTP+SSE                R1     R1     R2
""")

# Types of content: server/tools §Tool Result. To add one: a row, and its members in
# _MEMBER_SCHEMAS.
BLOCKS = read_table("""
    type           since  until  required       optional
    text           R1     -      text           -
    image          R1     -      data mimeType  -
    audio          R2     -      data mimeType  -
    resource       R1     -      resource       -
    resource_link  R3     -      uri name       title description mimeType size icons
""")

# To add an error: a row, and its name below. A revision sends only its own codes
# (basic/index §Error Codes). Choose yours outside the reserved range, -32768 to -32000.
# `status` is the HTTP status, if no handler has started.
ERRORS = read_table("""
    code    name                             since  until  status  sent
    -32700  ParseError                       R1     -      400     by a transport: not JSON
    -32600  InvalidRequest                   R1     -      400     JSON, but not a request
    -32601  MethodNotFound                   R1     -      404     no such method here
    -32602  InvalidParams                    R1     -      400     wrong params or unknown name
    -32603  InternalError                    R1     -      500     a handler failed
    -32020  HeaderMismatch                   R5     -      400     headers contradict the body
    -32021  MissingRequiredClientCapability  R5     -      400     the client cannot be asked
    -32022  UnsupportedProtocolVersion       R5     -      400     `_meta` names another one
    -32002  ResourceNotFound                 R1     R4     400     no such resource (now -32602)
    -32042  URLElicitationRequired           R4     R4     400     visit these pages, then retry
""")
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

# Wrong names from LSP and tutorials, and the right ones.
_MISNAMED = """
    $/cancelRequest  notifications/cancelled
    $/progress       notifications/progress
    initialized      notifications/initialized
    resources/get    resources/read
    prompts/read     prompts/get
    tools/execute    tools/call
"""
MISNAMED = dict(re.findall(r"(\S+) +(\S+)", _MISNAMED))


class Rules:
    """The rows of one revision: its methods, notifications, features, errors."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.modern = REVISIONS[version].era == "modern"

        def served(table: dict[Any, Any]) -> dict[Any, Any]:
            return {
                key: row
                for key, row in table.items()
                if row.since <= version <= (row.until or version)
            }

        self.methods = served(METHODS)
        self.notifications = served(NOTIFICATIONS)
        self.features = served(FEATURES)
        self.errors = served(ERRORS)
        self.blocks = served(BLOCKS)
        self.meta: Message = {
            key: _PARAM_TYPES[row.kind]
            for key, row in served(META).items()
            if row.way == ">"
        }

        # The `fields` that this revision lacks.
        self.hidden: set[str] = set()
        for name in FEATURES.keys() - self.features.keys():
            self.hidden.update(FEATURES[name].fields.split())

    def has(self, feature: str) -> bool:
        """Tell whether this revision has a feature; KeyError: no revision has it."""
        return FEATURES[feature].name in self.features

    def has_notification(self, method: str) -> bool:
        """Tell whether this revision has a notification, or it is an extension's."""
        return method not in NOTIFICATIONS or method in self.notifications


rules = cache(Rules)


def versions(era: str = "") -> list[str]:
    """List the revisions of an era, or all, newest first."""
    return [row.date for row in REVISIONS.values() if era in ("", row.era)]


_MODERN = versions("modern")


def meta_for(version: str, given: Message | None = None) -> Message:
    """Make the `_meta` of a request: the required keys, and those of `given` that the
    revision has."""
    kinds = rules(version).meta
    # A type alone must not be null: such a key is required.
    meta = {key: kind() for key, kind in kinds.items() if isinstance(kind, type)}
    meta.update(given or {})
    meta[META_VERSION] = version
    return {key: meta[key] for key in meta if key in kinds or key not in META}


# ======== 2. Messages and errors ======================================================
# On stdio a message is one line (basic/transports/stdio). It is written in ASCII, with
# \u escapes: so no code page matters, and no reader takes U+2028 for a line end.
#
# Errors are exceptions. An RpcError is sent as it is; section 7 says what the others
# become.

MAX_MESSAGE_BYTES = 16 * 2**20  # of one message, in or out
MAX_BATCH = 100  # messages in a batch
MAX_BATCH_BYTES = 4 * 2**20  # of a batch's answers; those beyond are errors
MAX_VALUES = 500_000  # in one message; decoded, they take up to 85 MiB
MAX_ID_LENGTH = 256  # of an id or a progress token
MAX_DEPTH = 500  # nested arrays and objects: a thread's stack may be small


class RpcError(Exception):
    """An error response: raise it in a handler to send it.

    `code`: an integer outside -32768 to -32000, or one of ERRORS. `data`: JSON.
    """

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        if not isinstance(code, int):
            raise TypeError(f"RpcError(code, message): {code!r:.99} is not a code")
        name = ERRORS[code].name if code in ERRORS else "error"
        super().__init__(message or name)
        self.code = code
        self.data = data

    def __reduce__(self) -> Any:
        """Let pickle and copy rebuild it."""
        return type(self), (self.code, str(self), self.data)


class NotFound(Exception):
    """Raise this in the handler of a resource or prompt that does not exist."""


class ToolError(Exception):
    """Raise this in a tool for a failure that you expect; it is not logged.

    The model gets its text, as a result with `isError`.
    """


class ClientLacks(RpcError):
    """The client did not declare what a question needs: basic/index §_meta."""


class AskError(Exception):
    """A question got no usable answer; `error` is the client's error object, if any."""

    def __init__(self, message: str, error: Message | None = None) -> None:
        super().__init__(message)
        self.error = error


def invalid(problem: str, data: Any = None) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Invalid params: {problem}", data)


def without_none(**members: Any) -> Message:
    return {key: value for key, value in members.items() if value is not None}


def drop(message: Any) -> None:
    pass


# ---- bytes
def _refuse(found: Any) -> None:
    raise ValueError(f"this must be a JSON value: {found!r:.200}")


# Made once: json.loads() and json.dumps() with options make a new one per call.
_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(data: bytes) -> Any:
    """Decode JSON in UTF-8; RpcError with PARSE_ERROR: it is malformed or too large."""
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message is larger than {MAX_MESSAGE_BYTES} bytes")
        check_size(data)
        return _decode(str(data, "utf-8").lstrip("\ufeff"))
    except (ValueError, RecursionError) as problem:
        raise RpcError(PARSE_ERROR, f"Parse error: {problem}") from None


# In JSON: a backslash or a pair of surrogates, as group 1; otherwise a lone surrogate,
# which os.fsdecode() makes, and many readers refuse.
_SURROGATES = rb"(\\\\|\\ud[89ab]..\\ud[c-f]..)|\\ud[89a-f].."


def encode(message: Any) -> bytes:
    """Encode a message as a line; a lone surrogate in it becomes U+FFFD.

    TypeError, ValueError, RecursionError: the message has no JSON form, is too large,
    or is nested too deeply.
    """
    line = f"{_encode(message)}\n".encode()
    if rb"\ud" in line:
        line = re.sub(_SURROGATES, lambda found: found[1] or rb"\ufffd", line)
    if len(line) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message is larger than {MAX_MESSAGE_BYTES} bytes")
    return line


def to_base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def from_base64(source: str) -> bytes:
    """Decode base64; ValueError: it is malformed."""
    import base64

    return base64.b64decode(source, validate=True)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value; ValueError: not JSON."""
    import hashlib

    canonical = json.dumps(value, sort_keys=True, default=_refuse)
    return hashlib.sha256(canonical.encode()).hexdigest()


# ---- kinds of message
def is_id(value: Any) -> bool:
    """Tell whether a value may be an id or a progress token: `0` and "" may."""
    source = str(value)
    if type(value) not in (str, int) or len(source) > MAX_ID_LENGTH:  # no bool
        return False
    # encode() would change a lone surrogate.
    return source.isascii() or not re.search("[\ud800-\udfff]", source)


def kind_of(message: Any) -> str:
    """Return "request", "notification" or "response": basic/index §Messages.

    RpcError with INVALID_REQUEST: a request is malformed. The others are never
    answered, so not checked.
    """
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "Invalid request: it must be a JSON object")
    method = message.get("method")
    if "id" not in message and isinstance(method, str):
        return "notification"
    if "method" not in message and message.keys() & {"result", "error"}:
        return "response"

    if message.get("jsonrpc") != "2.0":
        reason = 'it must have "jsonrpc": "2.0"'
    elif not isinstance(method, str):
        reason = "its method must be a string"
    elif not is_id(message.get("id")):
        reason = f"its id must be a string or an integer, up to {MAX_ID_LENGTH} long"
    elif not isinstance(message.get("params", {}), dict):
        reason = "the params of a method must be an object"
    else:
        return "request"
    raise RpcError(INVALID_REQUEST, f"Invalid request: {reason}")


def is_request(message: Any) -> bool:
    """Tell whether a message must be answered."""
    return isinstance(message, dict) and {"id", "method"} <= message.keys()


def error_response(error: RpcError, message: Any, null_id: bool = False) -> Message:
    """Make an error response. If the message's id is not valid, the response has none
    (basic/index §Error Responses), or null if `null_id`."""
    response: Message = {"jsonrpc": "2.0"}
    if isinstance(message, dict) and is_id(message.get("id")):
        response["id"] = message["id"]
    elif null_id:
        response["id"] = None
    told = without_none(code=error.code, message=str(error), data=error.data)
    return {**response, "error": told}


# ======== 3. Logging, threads, signals, command line ==================================
# Skip on first reading. _log() writes to stderr; it never fails, and never waits.
# log_failure() logs an exception; attempt() calls a function, and logs what it raises.
# tracer() makes a function that records messages.
# spawn() starts a thread; run_aside() does the work here if no thread can be started.
# RunHook.call() calls a function on the thread of `run=`. greet() helps a person who
# starts a server on a terminal; find_place() returns the value of `--http`.
# `with signals(react)` has SIGINT and SIGTERM call react(). guard_stdio() returns the
# client's descriptors; nothing else can reach them.

RUN_SECONDS = 60  # within which `run=` must begin a function
BLINK_SECONDS = 0.01  # between two checks for slow handlers on stdio
ON_CANCEL_SECONDS = 0.1  # for all on_cancel() functions together, at the end
LEAVE_SECONDS = 1.8  # for running handlers at the end of input; hosts kill after 2 s


def is_ready(file: Any, to_write: bool = True) -> bool:
    """Tell whether a pipe or socket is ready; if unknown, True for writing only."""
    import selectors

    # A PollSelector needs no descriptor of its own. Windows lacks it.
    made = getattr(selectors, "PollSelector", selectors.SelectSelector)
    wanted = selectors.EVENT_WRITE if to_write else selectors.EVENT_READ
    try:
        with made() as selector:
            selector.register(file, wanted)
            return bool(selector.select(0))
    except (AttributeError, OSError, TypeError, ValueError):  # closed, or a file
        return to_write


def printable(source: str, kept: str = "") -> str:
    """Escape the control characters and line ends in a text, except those in `kept`."""
    if source.isprintable():  # nearly always
        return source
    return "".join(
        one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in source
    )


def log(entry: str) -> None:
    """Write an entry to stderr; cut a long one in the middle; drop it if nobody reads.

    Each further line begins with "mcp_ref| "; control characters are escaped, so that
    clients cannot forge an entry. To send entries elsewhere, replace this function:
    `mcp_ref.log = logger.warning`.
    """
    line = "mcp_ref: " + printable(entry, "\n").replace("\n", "\nmcp_ref| ")
    data = line.encode(errors="replace")
    if len(data) > 3900:  # bytes: a pipe that is ready takes 4,096
        data = data[:1000] + b"\nmcp_ref| ...\nmcp_ref| " + data[-2800:]
    # stderr is None under pythonw, and may be closed.
    with suppress(AttributeError, OSError, ValueError):
        if is_ready(sys.stderr):
            sys.stderr.write(data.decode(errors="ignore") + "\n")
            sys.stderr.flush()  # PyPy buffers it


def _log(entry: str) -> None:
    with suppress(Exception):  # an author's own log() may raise
        log(entry)


_log_once = cache(_log)


def fingerprint() -> str:
    """Return the SHA-256 of this file; "": no source."""
    import hashlib

    with suppress(Exception):
        source = globals()["__loader__"].get_data(__file__)
        return hashlib.sha256(source).hexdigest()
    return ""


def tracer() -> Func:
    """Return trace(way, data, on, headers, ...), which appends to the file MCP_TRACE.

    `way` is ">" from the client and "<" from the server; `on` is "stdio" or the
    client's port. The id of a session is a credential, and not recorded.
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
        for name in headers:
            if name.startswith("mcp-") and name != "mcp-session-id":
                more[name] = headers[name]
        events = re.findall(b"(?m)^data: (.*)", data) if way == "<" else []
        for line in events or [data]:
            said: Message = {}
            if line:
                try:
                    said = {"message": decode(line)}
                    encode(said)  # not if it has 1e999
                except (RpcError, ValueError):
                    text = line[: 10**6].decode("utf-8", "backslashreplace")
                    said = {"text": re.sub(r"(\bsession_id=)\w+", r"\1...", text)}
            write(way=way, on=on, **more, **said)

    write(program=f"mcp_ref {__version__}", process=os.getpid(), sha256=fingerprint())
    return trace


# Files whose frames log_failure() leaves out.
_OURS = rf"{re.escape(__file__)}|.*[/\\](asyncio|concurrent)[/\\].*"


def log_failure(what: str, problem: BaseException) -> None:
    """Log a handler's exception, from the author's first frame on."""
    import traceback

    frames = problem.__traceback__
    if isinstance(problem, AskError):  # the client caused it, or a signal
        frames = None
    while frames and frames.tb_next:
        if not re.fullmatch(_OURS, frames.tb_frame.f_code.co_filename):
            break
        frames = frames.tb_next
    lines = [f"{what} failed"]
    for line in traceback.format_exception(type(problem), problem, frames):
        lines.append(f"{line.rstrip():.2000}")  # a client's text may be large
    _log(printable("\n".join(lines), "\n"))


def attempt(work: Func) -> None:
    """Do work; log a failure."""
    try:
        work()
    except Exception as problem:
        log_failure("a request", problem)


# ---- threads: all are daemons, so that none delays the exit
def spawn(name: str, work: Func, owner: Any = None) -> bool:
    """Start a thread; False: none can be started."""
    thread: Any = threading.Thread(target=work, name=name, daemon=True)
    thread.owner = owner
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def run_aside(name: str, work: Func, owner: Any = None) -> None:
    if not spawn(name, work, owner):
        with suppress(BaseException):
            work()


def join_threads(owner: Any, seconds: float) -> None:
    """Wait for the threads of an owner, but no longer than this."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if getattr(thread, "owner", None) is owner:
            thread.join(deadline - time.monotonic())


class RunHook:
    """Runs functions on the thread of `run=`: usually an application's main thread.

    `run=` gets a function, which that thread must call: `jobs.put` of a queue,
    `loop.call_soon_threadsafe`, a timer of a user interface.

        put         the value of `run=`; None: functions are called at once, here
        _threads    the threads that run a function now
    """

    def __init__(self, put: Func | None) -> None:
        self.put = put
        self._threads: dict[int, None] = {}

    def call(self, ctx: Context, function: Func) -> Any:
        """Call a function there, wait for it, and return its result.

        RuntimeError: it did not begin in time. CancelledError: `ctx` was cancelled.
        """
        if not self.put or threading.get_ident() in self._threads:
            return function()
        from concurrent.futures import Future

        outcome: Future[Any] = Future()
        work: Func = partial(copy_context().run, function)

        def run() -> None:
            if outcome.done() or not outcome.set_running_or_notify_cancel():
                return
            self._threads[threading.get_ident()] = None
            try:
                outcome.set_result(work())
            except BaseException as problem:
                outcome.set_exception(problem)
                if isinstance(problem, KeyboardInterrupt):
                    raise  # it concerns this thread, too
            finally:
                del self._threads[threading.get_ident()]

        ctx._wake_with(outcome.cancel)
        try:
            self.put(run)
            while not outcome.done():
                with suppress(Exception):  # it is late, or cancelled
                    outcome.exception(RUN_SECONDS)
                # Another function may take as long as it likes.
                if not self._threads and outcome.cancel():
                    raise RuntimeError(
                        f"the application has not run this within {RUN_SECONDS} s:"
                        " does the thread of run= run?"
                    )
            return outcome.result()
        finally:
            work = drop  # a queue may keep run() for long


# ---- the command line of a server; unknown options are the program's own
def find_place(arguments: list[str]) -> str | None:
    """Return the value of the option `--http`; None: serve on stdio."""
    words = iter(arguments)
    for word in words:
        option, _, place = word.partition("=")
        if word == "--":
            break
        if option == "--http":
            return place or next(words, "")
    return None


def usage(problem: str = "") -> typing.NoReturn:
    """Show how to start the program, and exit; with a problem, with status 2."""
    print(
        f"{problem}\n"
        f"usage: {sys.argv[0]} [--http [HOST:]PORT]\n\n"
        "Serves MCP on standard input and output, or over HTTP. MCP_TRACE=FILE in the\n"
        "environment appends all messages to FILE, as JSON lines.",
        file=sys.stderr if problem else sys.stdout,
    )
    raise SystemExit(2 if problem else 0)


def greet(arguments: list[str]) -> None:
    """On a terminal, say what the program waits for; SystemExit: a wrong option."""
    if not (os.isatty(0) and os.isatty(2)):  # on Windows, the null device is one, too
        return
    for word in arguments:
        if word in ("-h", "--help"):
            usage()
        if re.match("--(ht|host|port)", word):
            usage(f"{word}: unknown option")
    _log(
        "waiting for a client on standard input (end with Ctrl-C). To call it, run"
        f" `python3 mcp_cli.py list {sys.argv[0]}`, or serve HTTP with `--http 8000`"
    )


def running_loop() -> Any:
    """Return the asyncio event loop that runs on this thread, if any."""
    asyncio = sys.modules.get("asyncio")
    return asyncio and asyncio._get_running_loop()


def refuse_loop() -> None:
    if running_loop():
        raise RuntimeError(
            "run() would block the event loop: await asyncio.to_thread(server.run)"
        )


# ---- signals, forks, and the descriptors 0 and 1
_replaced: dict[int, Any] = {}  # the author's signal handlers, by number
_guarded: list[int] = []  # the client's descriptors
_forking = threading.local()  # .mask: the signals that this thread had blocked


@contextmanager
def signals(react: Func) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP call `react`, unless the author has set handlers.

    react(number) must only set flags. A second signal within LEAVE_SECONDS is ignored:
    hosts send SIGINT, then SIGTERM, and the author's cleanup must survive that. A later
    signal ends the process, unless `react` returns True.
    """
    import signal

    last = -inf  # time of the last signal
    process = os.getpid()

    def handle(number: int, frame: Any) -> None:
        nonlocal last
        before = last
        now = time.monotonic()
        if now - before < LEAVE_SECONDS:
            return
        last = now  # now, because another signal may interrupt react()
        # A forked child may still have this: see put_back_handlers().
        if os.getpid() != process or (not react(number) and before > -inf):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    prepare_forks()
    is_main = threading.current_thread() is threading.main_thread()
    sets = is_main and not _replaced
    if sets:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, signal.SIGTERM)  # Windows has no SIGHUP
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                _replaced[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        if sets and last == -inf:  # a second signal may come
            put_back_handlers()


def put_back_handlers() -> None:
    import signal

    with suppress(ValueError):  # PyPy, in the child of another thread
        while _replaced:
            signal.signal(*_replaced.popitem())


@cache
def prepare_forks() -> None:
    """Have forked children use the author's signal handlers, and close the client's
    descriptors, or the client would see no end."""
    if os.name != "posix":
        return
    import signal

    def before() -> None:
        # Python forgets signals that reach a child before after_in_child() has run.
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _replaced)

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)

    def after_in_child() -> None:
        put_back_handlers()
        after()
        for descriptor in _guarded:
            os.dup2(0, descriptor, inheritable=False)
        _guarded.clear()

    os.register_at_fork(
        before=before, after_in_parent=after, after_in_child=after_in_child
    )


def guard_stdio() -> list[int]:
    """Move descriptors 0 and 1 away, for good; return the new ones.

    Only messages may reach stdout: print(), C libraries, child processes and, after
    serve_stdio(), abandoned threads find the null device and stderr instead.
    """
    if _guarded:
        return _guarded
    # Some hosts start programs with closed descriptors: the next open file, perhaps a
    # log, would get such a number, and print() would write into it.
    null = 0
    while null < 3:
        null = os.open(os.devnull, os.O_RDWR)
    _guarded[:] = os.dup(0), os.dup(1)  # no child process inherits these
    os.dup2(null, 0)
    os.dup2(2, 1)
    if sys.stdout and sys.stdout is sys.__stdout__:
        with suppress(OSError, ValueError):  # stdout was closed
            print(end="", flush=True)  # flush earlier output
        raw = io.FileIO(1, "w", closefd=False)  # without a lock that delays exit
        sys.stdout = io.TextIOWrapper(
            raw, "utf-8", "backslashreplace", line_buffering=True
        )
    if os.name == "posix":
        for descriptor in _guarded:
            os.set_blocking(descriptor, True)
    prepare_forks()
    return _guarded


# ======== 4. JSON Schema validation ===================================================
# `Schema(schema).errors(value)` lists up to MAX_ERRORS errors, such as "/items/3/price:
# must be at least 0"; a valid value has none. flaw() is these as one text, or None.
# check_size() checks JSON before it is decoded.
# The rest is not about MCP: skip on first reading.
#
# The dialect is 2020-12 (basic/index §Schema Dialect, §$ref Resolution). `format` and
# unknown keywords never make a value invalid. A schema that cannot be checked is
# refused: its dialect or a type is unknown, or a $ref leaves the schema.
#
# A schema is compiled once, into functions called *checks*. A check takes a value and
# returns its errors, each as ": reason"; the checks of members and items prepend the
# location.
#
# To add a keyword: a row in _LIMITS, if it compares a value with a limit; otherwise a
# row in _RULES, and a method of Schema that makes its check.

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_ERRORS = 10  # listed for one value
Errors = typing.Sequence[str]
Check = Callable[[Any], Errors]
_REFUSED = {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "dependencies"}


_NOT_MARKS = bytes(set(range(256)) - set(b'[]{},"'))


def check_size(data: bytes) -> None:
    """Check the depth of JSON and the number of its values, before decoding, which
    takes twenty times the memory; ValueError: too large."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= MAX_DEPTH and len(data) <= MAX_VALUES:
        return  # most messages; a value takes a byte
    # An escaped quote does not end a string.
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = unescaped.translate(None, _NOT_MARKS)
    outside = bytearray()  # the marks that are not in strings
    in_string = False
    for start in range(0, len(marks), 2**16):  # in pieces, to save memory
        parts = marks[start : start + 2**16].split(b'"')
        outside += b"".join(parts[in_string::2])  # every other part
        in_string ^= len(parts) % 2 == 0

    # Each comma and each opening bracket stands for a value.
    if len(outside.translate(None, b"]}")) > MAX_VALUES:
        raise ValueError(f"the message has more than {MAX_VALUES} values")
    depth = 0
    for bracket in outside.translate(None, b","):
        depth += 1 if bracket in b"[{" else -1
        if not 0 <= depth <= MAX_DEPTH:
            raise ValueError("the message is nested too deeply, or not JSON")


def _is_decimal(value: Any) -> bool:
    return type(value).__name__ == "Decimal"


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    return _is_decimal(value)


# fmt: off
_IS_TYPE: dict[str, Func] = {
    "null":    lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int or _is_number(value) and value % 1 == 0,
    "number":  _is_number,
    "string":  lambda value: isinstance(value, str),
    "array":   lambda value: isinstance(value, list),
    "object":  lambda value: isinstance(value, dict),
}
# fmt: on


def _key(value: Any) -> Any:
    """Return a hashable that is equal for equal JSON values: 1 and 1.0, not 1 and true.

    Numbers become bytes: a client could choose many with the same hash, which is slow.
    """
    if isinstance(value, dict):
        return frozenset((name, _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(map(_key, value))
    if not _is_number(value):
        return value
    with suppress(OverflowError):  # no float is equal
        if float(value) == value:
            value = float(value) + 0.0  # -0.0 becomes 0.0
    return repr(value).encode()


def _is_multiple(value: Any, of: Any) -> bool:
    # 0.0075 is a multiple of 0.0001, but not as a float.
    from fractions import Fraction

    return abs(value) < inf and Fraction(str(value)) % Fraction(str(of)) == 0


@lru_cache(1000)
def _regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of ECMA-262: \\d and \\w are ASCII, `$` is the very end."""
    # Escapes and [sets] stay as they are.
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
# A value of each type, on which a limit is tried.
_EMPTY: Message = {"number": 0, "string": "", "array": [], "object": {}}
# fmt: on


def _limit(keyword: str, limit: Any) -> Check:
    """Make the check of a keyword in _LIMITS; TypeError, re.error: a bad limit."""
    kind, test, reason = _LIMITS[keyword]
    errors = [f": {reason.format(limit)}"]
    applies = _IS_TYPE[kind]
    test(_EMPTY[kind], limit)  # a bad limit fails

    def check(value: Any) -> Errors:
        exact = limit
        if _is_decimal(value):  # 0.1 as a float is more than Decimal("0.1")
            exact = type(value)(str(limit))
        if applies(value) and not test(value, exact):
            return errors
        return ()

    return check


def _at(key: Any, error: str) -> str:
    """Prepend a location to an error, escaped as in a JSON pointer (RFC 6901).

    A key is cut: each error repeats it.
    """
    return "/" + f"{key!s:.200}".replace("~", "~0").replace("/", "~1") + error


class TypedSchema(dict[str, Any]):
    """A schema whose values must also convert: a ValueError of `convert` is an error.

    Limits hold for the converted value, too, such as a Decimal. The schema of a model
    has `for_results`, which returns its schema for results; `convert` alone checks it.
    """

    def __init__(
        self, schema: Message, convert: Func, for_results: Func | None = None
    ) -> None:
        super().__init__(schema)
        self.convert = convert
        self.for_results = for_results

    def errors(self, limits: list[Check], value: Any) -> Errors:
        try:
            made = self.convert(value)
        except ValueError as problem:
            return str(problem).split("\n", MAX_ERRORS)[:MAX_ERRORS]
        return [error for limit in limits for error in limit(made)]


_WRONG_TYPE = ": must be of type "
_WRONG_MEMBER = "/[^/]*: must be one of "


def _closest(branches: list[Errors]) -> Errors:
    """Return the errors of the branch of a union that is meant; (): it is not clear.

    It has the value's type, if any has; then its constants, such as {"kind": "cat"};
    then the fewest errors.
    """
    for sign in _WRONG_TYPE, _WRONG_MEMBER:
        fitting = [one for one in branches if not any(re.match(sign, e) for e in one)]
        branches = fitting or branches
    first, *others = sorted(branches, key=len)
    if not others or len(first) < len(others[0]):
        return first
    if not first[0].startswith(_WRONG_TYPE):
        return ()
    # None has the value's type, so all types are listed.
    types = [one[0][len(_WRONG_TYPE) :].split(", found ", 1) for one in branches]
    return [f"{_WRONG_TYPE}{' or '.join(dict(types))}, found {types[0][1]}"]


def _target(schema: Any, ref: str) -> Any:
    """Return the subschema that a $ref means; ValueError: it is not in the schema."""
    from urllib.parse import unquote

    target = {"#": schema}
    try:
        for step in unquote(ref).split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            target = target[int(step) if isinstance(target, list) else step]
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"$ref {ref}: no such place in this schema")
    return target


class Schema:
    """A compiled JSON Schema; ValueError if it cannot be checked."""

    def __init__(self, schema: Message | bool) -> None:
        self._root = schema
        self._targets: dict[str, Check] = {}  # by $ref
        try:
            self._check = self._compile(schema)
        except Exception as problem:
            raise ValueError(f"malformed schema: {problem}")

    def errors(self, value: Any) -> list[str]:
        """List up to MAX_ERRORS errors of a value."""
        try:
            found = self._check(value)
        except RecursionError:
            found = [": must not be nested so deeply"]
        return ["/" * error.startswith(":") + error for error in found[:MAX_ERRORS]]

    def flaw(self, value: Any) -> str | None:
        """Return the errors of a value, one a line; None: it is valid."""
        return "\n".join(self.errors(value)) or None

    def _compile(self, node: Any) -> Check:
        if isinstance(node, bool):
            return lambda value: () if node else [": must not be there"]
        if isinstance(node, TypedSchema) and node.for_results:
            return partial(node.errors, [])
        if node.get("$schema", DIALECT).rstrip("#") != DIALECT:
            raise ValueError(f"unknown dialect {node['$schema']}: expected {DIALECT}")
        for name in node:
            if name in _REFUSED or (name == "$id" and node is not self._root):
                raise ValueError(f"not supported: {name} in {json.dumps(node):.80}")

        limits = [_limit(name, node[name]) for name in _LIMITS if name in node]
        checks = limits[:]
        for keywords, make in _RULES.items():
            if node.keys() & keywords.split():
                checks.append(make(self, node))
        checks += map(self._compile, node.get("allOf", ()))
        if isinstance(node, TypedSchema):
            checks.append(partial(node.errors, limits))

        def check(value: Any) -> Errors:
            for one in checks:
                if errors := one(value):
                    return errors
            return ()

        return checks[0] if len(checks) == 1 else check

    def _ref(self, node: Message) -> Check:
        ref = node["$ref"]
        if ref not in self._targets:
            self._targets[ref] = self._compile(True)  # it may refer to itself
            self._targets[ref] = self._compile(_target(self._root, ref))
        return lambda value: self._targets[ref](value)

    def _type(self, node: Message) -> Check:
        kinds = node["type"]
        if isinstance(kinds, str):
            kinds = [kinds]
        if not _IS_TYPE.keys() >= set(kinds):
            raise ValueError(f"unknown type in {kinds}: expected {', '.join(_IS_TYPE)}")
        tests = [_IS_TYPE[kind] for kind in kinds]

        def check(value: Any) -> Errors:
            for test in tests:
                if test(value):
                    return ()
            found = reprlib.repr(value)
            return [f"{_WRONG_TYPE}{' or '.join(kinds)}, found {found:.40}"]

        return check

    def _choice(self, values: list[Any]) -> Check:
        known = {_key(value) for value in values}
        errors = [": must be one of " + json.dumps(values)[1:-1]]
        return lambda value: () if _key(value) in known else errors

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
        names = None
        if "propertyNames" in node:
            names = self._compile(node["propertyNames"])
        required = dict.fromkeys(node.get("required", ()))  # in their order

        def check(value: Any) -> Errors:
            if not isinstance(value, dict):
                return ()
            errors = []
            for name in required:
                if name not in value:
                    errors.append(_at(name, ": is required"))
            for name, item in value.items():
                if len(errors) >= MAX_ERRORS:
                    break
                checks = [known[name]] if name in known else []
                for pattern, one in patterns:
                    if pattern.search(name):
                        checks.append(one)
                # `additionalProperties` is for members that no other keyword names.
                for one in checks or [rest]:
                    for error in one(item):
                        errors.append(_at(name, error))
                if names:
                    for error in names(name):
                        errors.append(_at(name, f": its name{error[1:]}"))
            return errors

        return check

    def _items(self, node: Message) -> Check:
        first = [self._compile(part) for part in node.get("prefixItems", ())]
        rest = self._compile(node.get("items", True))

        def check(value: Any) -> Errors:
            errors: list[str] = []
            if not isinstance(value, list):
                return errors
            for index, item in enumerate(value):
                if len(errors) >= MAX_ERRORS:
                    break
                # `items` is for the items after those of `prefixItems`.
                one = first[index] if index < len(first) else rest
                for error in one(item):
                    errors.append(_at(index, error))
            return errors

        return check

    def _contains(self, node: Message) -> Check:
        one = self._compile(node["contains"])
        least = node.get("minContains", 1)
        most = node.get("maxContains", inf)
        wanted = json.dumps(node["contains"])
        errors = [f": must contain {least} to {most} items that match {wanted:.200}"]

        def check(value: Any) -> Errors:
            if not isinstance(value, list):
                return ()
            count = sum(not one(item) for item in value)
            return () if least <= count <= most else errors

        return check

    def _dependent(self, node: Message) -> Check:
        parts = [*node.get("dependentSchemas", {}).items()]
        for name, others in node.get("dependentRequired", {}).items():
            parts.append((name, {"required": others}))
        implied = [
            {"if": {"type": "object", "required": [name]}, "then": part}
            for name, part in parts
        ]
        return self._compile({"allOf": implied})

    def _some(self, parts: list[Any], wanted: int, enough: int, words: str) -> Check:
        """Check that `wanted` of these schemas match; `enough` matches end it."""
        checks = [self._compile(part) for part in parts]
        reason = [f": must match {words} {json.dumps(parts):.200}"]
        choices = [
            part["const"]
            for part in parts
            if isinstance(part, dict) and part.keys() - {"title"} == {"const"}
        ]
        if wanted and len({*map(_key, choices)}) == len(parts):
            return self._choice(choices)  # one look-up

        def check(value: Any) -> Errors:
            branches = []
            matches = 0
            for one in checks:
                branches.append(one(value))
                matches += not branches[-1]
                if matches == enough:
                    break
            if matches == wanted:
                return ()
            return reason if matches else _closest(branches) or reason

        return check

    def _if(self, node: Message) -> Check:
        test = self._compile(node["if"])
        yes = self._compile(node.get("then", True))
        no = self._compile(node.get("else", True))
        return lambda value: no(value) if test(value) else yes(value)


# keyword: the maker of its check. Keywords that depend on each other share one.
# fmt: off
_RULES: dict[str, Func] = {
    "type":  Schema._type,
    "enum":  lambda self, node: self._choice(node["enum"]),
    "const": lambda self, node: self._choice([node["const"]]),
    "$ref":  Schema._ref,
    "anyOf": lambda self, node: self._some(node["anyOf"], 1, 1, "at least one of"),
    "oneOf": lambda self, node: self._some(node["oneOf"], 1, 2, "exactly one of"),
    "not":   lambda self, node: self._some([node["not"]], 0, 1, "none of"),
    "if":    Schema._if,
    "required properties patternProperties additionalProperties propertyNames":
                         Schema._members,
    "prefixItems items": Schema._items,
    "contains":          Schema._contains,
    "dependentRequired dependentSchemas": Schema._dependent,
}
# fmt: on


# ======== 5. Type hints to JSON Schema and back =======================================
# Skip on first reading, except for the docstring of Entry, a function with its schemas:
# fit() checks arguments, parse() texts, invoke() converts and calls. schema_of(),
# form_of(), read_field(), to_json() are for hints, forms, results. log_refusals() logs
# the parts of a tool that some hosts refuse.
#
# Each hint is read into a schema and a *converter*, which turns a valid value into the
# type that the function expects. The hints of
#
#     def book(day: date, seats: Annotated[int, {"minimum": 1}] = 2): ...
#
# become the schema
#
#     {"type": "object", "required": ["day"], "properties": {
#         "day": {"type": "string", "format": "date"},
#         "seats": {"type": "integer", "minimum": 1, "default": 2}},
#      "additionalProperties": false}
#
# and a converter that turns {"day": "1969-07-20"} into {"day": date(1969, 7, 20)}.
#
# Many hosts refuse $ref. So a type that contains itself is refused.

Converter = Callable[[Any], Any]
Reader = tuple[Message, Converter]  # a hint's schema and converter
_SCALAR_NAMES: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    None: "null",
    type(None): "null",
}
# Types whose values travel as text, found by name, so that nothing is imported. A
# datetime or a time may lack a zone, so it has no format. A Decimal is short: int() of
# 1e999999999 does not end.
_DATE = r"[\d-]{10}"
_TIME = r"\d\d:[\d:]+(\.\d{3}|\.\d{6})?(Z|[-+]\d\d:\d\d)?"
_TEXT_TYPES = r"""
    name               schema                                grammar       example
    datetime.datetime  {"type": "string"}                    DATE[ T]TIME  1969-07-20T20:17:40Z
    datetime.date      {"type": "string", "format": "date"}  DATE          1969-07-20
    datetime.time      {"type": "string"}                    TIME          09:30:00
    uuid.UUID          {"type": "string", "format": "uuid"}  \S+           8-4-4-4-12 hex digits
    decimal.Decimal    {"anyOf": [{"type": "string"}, {"type": "number"}]}  [+-]?[\d.]{1,999}([eE][+-]?\d{1,3})?  12.50
    pathlib.PurePath   {"type": "string"}                    (?s).*       docs/a.txt
"""
TEXT_TYPES = read_table(_TEXT_TYPES.replace("DATE", _DATE).replace("TIME", _TIME))
# CO_VARARGS, CO_VARKEYWORDS and CO_COROUTINE of `inspect`.
_HAS_ARGS = 4
_HAS_KEYWORDS = 8
_IS_COROUTINE = 128


class Signature:
    """The parameters of a function, found without `inspect`, which is slow to import.

    names      the parameters that a caller may pass, in order
    bound      those that a partial, a method or a decorator passes
    defaults   default values, by name
    is_open    true if it takes `**others`
    is_async   true for an `async def`
    """

    def __init__(self, function: Any) -> None:
        places = 0  # parameters that are bound by position
        given: set[str] = set()  # ... and by name
        shown: Any = None  # the signature that a decorator shows
        while True:
            if isinstance(function, partial):
                places += len(function.args)
                given.update(function.keywords)
                function = function.func
            elif isinstance(function, types.MethodType):
                places += 1
                function = function.__func__
            elif hasattr(function, "__wrapped__"):
                shown = getattr(function, "__signature__", shown)
                function = function.__wrapped__
            elif hasattr(function, "__code__") or not isinstance(
                getattr(function, "__call__", None), types.MethodType
            ):
                break
            else:  # an object with a method __call__
                function = function.__call__

        self._function = function
        code = getattr(function, "__code__", None)
        if not code or code.co_posonlyargcount > places or code.co_flags & _HAS_ARGS:
            raise TypeError(
                "expected a function in Python whose parameters can all be passed by"
                " name: there is no *args, a decorator needs functools.wraps, a name is"
                " given as name=, a classmethod as Class.method"
            )
        self.is_open = bool(code.co_flags & _HAS_KEYWORDS)
        self.is_async = bool(code.co_flags & _IS_COROUTINE)
        count = code.co_argcount
        every = code.co_varnames[: count + code.co_kwonlyargcount]
        self.bound = given.union(every[:places])
        if shown:
            self.bound = {*self.bound, *every} - shown.parameters.keys()
        self.names = [name for name in every if name not in self.bound]
        last = function.__defaults__ or ()
        self.defaults: Message = dict(zip(every[count - len(last) : count], last))
        self.defaults.update(function.__kwdefaults__ or {})

    def hints(self, strict: bool) -> Message:
        """Return the hints by name. If one is invalid: TypeError if `strict`, else only
        that of ctx."""
        # For a function, Python before 3.11 makes the hint of `x: int = None` Optional;
        # not for this, whose `__wrapped__` has the function's names.
        hinted = types.SimpleNamespace(
            __annotations__=self._function.__annotations__, __wrapped__=self._function
        )
        try:
            return get_type_hints(hinted, include_extras=True)
        except Exception as problem:
            if strict:
                raise TypeError(
                    f"{problem}; every hint must be defined, and options in Optional"
                    " and the like hashable: keywords(minimum=1); or write"
                    " input_schema="
                ) from None
            return {"ctx": Context}


def _find_context(names: list[str], hints: Message) -> str:
    """Return the name of the parameter that takes the Context, or ""."""
    if "ctx" in names and "ctx" not in hints:
        raise TypeError("the Context needs a hint: ctx: Context")
    if names[:1] in (["self"], ["cls"]) and names[0] not in hints:
        raise TypeError(
            f"{names[0]} would be an argument; register instance.method, or"
            " Class.method of a classmethod, where there is one"
        )
    for name in names:
        hint = hints.get(name)
        if Context in (hint, *get_args(hint)):
            return name
    return ""


# A parameter in a docstring: its name, perhaps its type, and its text, with the lines
# that are indented more. Before it comes `( *)`: the groups are indent, name, text.
_NOTE = r"`?(\w+)`?(?: *\(.*?\))? *: *(.*(?:\n\1 +\S.*)*)\n?"
_SECTION = (
    r"(?m)^(( *)(?:Args|Arguments|Parameters|Attributes): *\n)((?:\2 .*\n| *\n)*)"
)


def _documentation(doc: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into a description and a note on each of these parameters.

    Notes are `name: text` under "Args:", and `:param name: text`.
    """
    doc = doc.expandtabs()
    margin = min(re.findall(r"\n( *)\S", doc), default="")
    doc = "\n" + doc.strip().replace("\n" + margin, "\n") + "\n"
    notes: dict[str, str] = {}

    def take(found: re.Match[str]) -> str:
        name = found[2]
        note = " ".join(found[3].split())
        if name in names and name not in notes and note:
            notes[name] = note
            return ""
        return found[0]

    def take_section(found: re.Match[str]) -> str:
        rest = re.sub("(?m)^( *)(?:[-*] )?" + _NOTE, take, found[3])
        if rest.strip():
            rest = found[1] + rest
        return rest

    doc = re.sub(_SECTION, take_section, doc)
    doc = re.sub(r"(?m)^( *):param (?:[^:\n]* )?" + _NOTE, take, doc)
    return re.sub(r"\n(?: *\n)+", "\n\n", doc).strip(), notes


# ---- one function for each kind of hint
class keywords(dict[str, Any]):
    """Make JSON Schema keywords for Annotated: Annotated[int, keywords(minimum=1)].

    A dict does the same, except in Optional[...] before Python 3.13.
    """

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


def schema_of(hint: Any) -> Message:
    """Return the JSON Schema of a type hint; TypeError if it has none.

    Hints are str int float bool None Any, list dict tuple set and their kin, date time
    datetime UUID Decimal Path, Optional Union Literal, an Enum, TypedDict, NamedTuple
    or dataclass, and classes with the methods model_json_schema(mode=) and
    model_validate(value), such as pydantic's models. In Annotated, a string describes,
    and a dict or pydantic's Field() adds keywords.
    """
    try:
        return _read_hint(hint)[0]
    except RecursionError:
        raise TypeError(f"{hint} contains itself") from None


def _keep(value: Any) -> Any:
    return value


def _read_choices(choices: Any) -> Message:
    names = {_SCALAR_NAMES.get(type(choice)) for choice in choices}
    if not names or None in names:
        raise TypeError(f"the choices {choices} have no JSON form")
    if len(names) == 1:
        return {"type": names.pop(), "enum": list(choices)}
    return {"enum": list(choices)}


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", "")).split(".")[0]


def _text_type(kind: Any) -> Any:
    for base in getattr(kind, "__mro__", ()):
        if row := TEXT_TYPES.get(f"{_package(base)}.{base.__name__}"):
            return row
    return None


def _read_text_type(kind: Any, row: Any) -> Reader:
    make = getattr(kind, "fromisoformat", kind)

    def convert(value: Any) -> Any:
        source = str(value)
        if make is not kind:  # before 3.11, it does not know Z
            source = source.replace("Z", "+00:00")
        with suppress(ValueError, ArithmeticError):
            if re.fullmatch(row.grammar, source):
                return make(source)
        raise ValueError(f": must be a {kind.__name__}, such as {row.example}")

    return TypedSchema(json.loads(row.schema), convert), convert


def _types_of(schema: Message) -> set[str]:
    """Return those types in _LIMITS that a schema takes."""
    if isinstance(schema, TypedSchema) and schema.for_results:
        return set()  # only a model checks its values
    flaw = Schema(schema).flaw
    return {kind for kind in _EMPTY if _WRONG_TYPE not in str(flaw(_EMPTY[kind]))}


_PYDANTIC = "pydantic", "annotated_types"
_SDK = "mcp", "mcp_types"  # its models are content or results


def _read_pydantic(hint: Any) -> Reader:
    try:  # the author's program has imported it
        adapter = sys.modules["pydantic"].TypeAdapter(hint)
    except Exception as problem:
        raise TypeError(f"pydantic cannot read {hint}: {problem!r:.300}") from None
    return _read_model(adapter.json_schema, adapter.validate_python)


def _read_model(schema_in: Func, validate: Func) -> Reader:
    """Read a type that has a schema of its own, and checks its values."""
    schema = schema_in(mode="validation")
    schema = _without_refs(schema, schema)

    def convert(value: Any) -> Any:
        try:
            return validate(value)
        except ValueError as problem:
            kind = schema.get("type", "string")
            if isinstance(value, str) and kind != "string":  # perhaps it is JSON
                raise ValueError(f"{_WRONG_TYPE}{kind}, found {value!r:.40}") from None
            errors: Any = [{"loc": (), "msg": str(problem)}]
            if hasattr(problem, "errors"):  # pydantic's
                errors = problem.errors()
            lines = []
            for error in errors[:MAX_ERRORS]:
                place = "".join(_at(step, "") for step in error["loc"])
                lines.append(f"{place}: " + " ".join(error["msg"].split()))
            raise ValueError("\n".join(lines)) from None

    for_results = partial(schema_in, mode="serialization")
    return TypedSchema(schema, convert, for_results), convert


def _without_refs(root: Any, part: Any) -> Any:
    """Return a part of a model's schema with each $ref written out in place."""

    def write_out(node: Message) -> Message:
        node.pop("$defs", None)
        if "$ref" not in node:
            return node
        target = _target(root, node.pop("$ref"))
        return {**_without_refs(root, target), **node}

    return json.loads(json.dumps(part), object_hook=write_out)


def _for_results(node: Any) -> Any:
    """Replace models in a schema by their schema for results."""
    if isinstance(node, TypedSchema) and node.for_results:
        schema = node.for_results()
        return _without_refs(schema, schema)
    if type(node) is dict:
        return {key: _for_results(part) for key, part in node.items()}
    if isinstance(node, list):
        return list(map(_for_results, node))
    return node


_TEXT = {"type": "string"}


def _may_be_content(schema: Message) -> bool:
    """Tell whether a schema only says text, object, null, or a list: see section 6."""
    if schema.keys() == {"anyOf"}:
        return all(map(_may_be_content, schema["anyOf"]))
    if schema.keys() == {"type", "items"}:
        return schema["items"] != _TEXT and _may_be_content(schema["items"])
    return schema in ({}, _TEXT, {"type": "null"}, {"type": "object"})


def _read_hint(hint: Any) -> Reader:
    args = get_args(hint)
    kind = get_origin(hint) or hint
    if hasattr(hint, "__metadata__"):
        return _read_annotated(hint)
    for inner in ("__supertype__", "__value__"):  # of a NewType; of `type X = ...`
        if hasattr(hint, inner):
            return _read_hint(getattr(hint, inner))
    if kind in (Any, object):
        return {}, _keep
    if kind is int:
        return {"type": "integer"}, int  # for JSON, 1.0 is an integer, too
    if kind in list(_SCALAR_NAMES):
        return {"type": _SCALAR_NAMES[kind]}, _keep
    if kind is Union or type(hint).__name__ == "UnionType":
        return _any_of([_read_hint(arg) for arg in args])
    if getattr(kind, "__module__", "") == "collections.abc":
        # A Sequence becomes a list, a Mapping a dict.
        fitting = [one for one in (list, dict, set) if issubclass(one, kind)]
        kind = [*fitting, kind][0]
    if kind is dict and args[:1] in ((), (str,), (Any,)):
        return _read_dict(*args[1:])
    if kind is tuple and args and args[-1] is not Ellipsis:
        return _read_tuple(args)
    if kind in (list, tuple, set, frozenset, deque):
        return _read_list(kind, *args[:1])
    if kind is typing.Literal:
        return _read_choices(args), _keep
    if hasattr(kind, "__members__"):
        return _read_choices([member.value for member in hint]), kind
    if hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate"):
        if _package(kind) in _SDK:
            return {"type": "object"}, _keep
        return _read_model(kind.model_json_schema, kind.model_validate)
    if _package(kind) in _PYDANTIC or hasattr(kind, "__pydantic_validator__"):
        return _read_pydantic(hint)
    if hasattr(kind, "__total__"):
        return _read_typed_dict(kind, args)
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields"):
        return _read_class(kind, args)
    if row := _text_type(kind):
        return _read_text_type(kind, row)
    raise TypeError(
        f"{hint} has no JSON form; use one that has (schema_of() lists them), such as"
        " str or float, and convert it; or write input_schema= or output_schema="
    )


def _read_annotated(hint: Any) -> Reader:
    inner = get_args(hint)[0]
    notes = hint.__metadata__
    if any(_package(type(note)) in _PYDANTIC for note in notes):
        schema, convert = _read_pydantic(hint)
    else:
        schema, convert = _read_hint(inner)
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, dict):
            kinds = _types_of(schema)
            for name in note.keys() & _LIMITS:
                if _LIMITS[name][0] not in kinds:
                    raise TypeError(f"{name} cannot limit {inner}")
            schema.update(note)
            if {"string", "number"} <= kinds:  # a Decimal, perhaps
                schema = TypedSchema(schema, convert)
    return schema, convert


def _any_of(branches: list[Reader]) -> Reader:
    """Read a union: the first branch that fits converts a value."""
    schemas = [schema for schema, _ in branches]
    checked = [(Schema(schema), convert) for schema, convert in branches]

    def convert_first(value: Any) -> Any:
        for schema, convert in checked:
            if not schema.errors(value):
                return convert(value)
        return value

    union: Message = {"anyOf": schemas}
    if schemas[1:] == [{"type": "null"}] and "description" in schemas[0]:
        union["description"] = schemas[0].pop("description")
    return union, convert_first


def _read_dict(hint: Any = Any) -> Reader:
    items, convert = _read_hint(hint)
    schema = without_none(type="object", additionalProperties=items or None)
    return schema, lambda value: {key: convert(item) for key, item in value.items()}


def _read_tuple(hints: Any) -> Reader:
    schemas, converters = zip(*map(_read_hint, hints))
    # Draft 7 ignores prefixItems, and applies `items` to all.
    schema = {
        "type": "array",
        "prefixItems": list(schemas),
        "minItems": len(schemas),
        "maxItems": len(schemas),
        "items": {},
    }
    return schema, lambda value: tuple(
        convert(item) for convert, item in zip(converters, value)
    )


def _read_list(kind: Any, hint: Any = Any) -> Reader:
    items, convert = _read_hint(hint)
    # Some hosts drop all tools for an array without `items`.
    schema: Message = {"type": "array", "items": items}
    if kind in (set, frozenset):
        schema["uniqueItems"] = True
        return schema, lambda value: _make_set(kind, list(map(convert, value)))
    return schema, lambda value: kind(map(convert, value))


def _make_set(kind: Any, items: list[Any]) -> Any:
    """Make a set. Multiples of 2**61 - 1 have one hash: 20,000 take seconds."""
    if max(Counter(map(hash, items)).values(), default=0) > 100:
        raise ToolError("more than 100 items have the same hash")
    return kind(items)


_WRAPPERS = "Required", "NotRequired", "ReadOnly"  # in a TypedDict


def _member_hints(kind: Any, args: Any) -> Message:
    """Return the hints of a class's members; in those of Page[int], T is int."""
    hints = get_type_hints(kind, include_extras=True)
    given = dict(zip(getattr(kind, "__parameters__", ()), args))
    for name, hint in hints.items():
        if isinstance(hint, typing.TypeVar):
            hints[name] = given.get(hint, Any)
        elif wanted := getattr(hint, "__parameters__", ()):
            hints[name] = hint[tuple(given.get(one, Any) for one in wanted)]
    return hints


def _read_typed_dict(kind: Any, args: Any) -> Reader:
    hints = _member_hints(kind, args)
    optional = set(kind.__optional_keys__)
    for name, hint in hints.items():
        # `from __future__ import annotations` hides these from Python.
        while (wrapper := getattr(get_origin(hint), "_name", "")) in _WRAPPERS:
            hint = hints[name] = get_args(hint)[0]
            if wrapper == "Required":
                optional.discard(name)
            elif wrapper == "NotRequired":
                optional.add(name)
    defaults = dict.fromkeys(optional, ...)  # not JSON, so not shown
    return _read_object(hints, defaults, True, kind.__doc__)


def _read_class(kind: Any, args: Any) -> Reader:
    hints = _member_hints(kind, args)
    maker = Signature(kind.__new__ if hasattr(kind, "_fields") else kind.__init__)
    fields = {name: hints.get(name, Any) for name in maker.names[1:]}  # no self
    # A result also has the fields that the class computes.
    declared = getattr(kind, "__dataclass_fields__", {}).values()
    is_open = not all(one.init for one in declared)
    doc = kind.__doc__ or ""
    if doc.startswith(kind.__name__ + "("):  # generated by Python
        doc = ""
    schema, convert = _read_object(fields, maker.defaults, is_open, doc)
    return schema, lambda value: kind(**convert(value))


def _read_object(
    hints: Message, defaults: Message, is_open: bool, doc: Any = "", hidden: Any = ()
) -> Reader:
    properties: Message = {}
    converters: dict[str, Converter] = {}
    undescribed = []
    for name, hint in hints.items():
        default = defaults.get(name, ...)
        try:
            if type(default).__name__ == "FieldInfo":  # pydantic's
                raise TypeError(
                    "for `= Field(5, ge=1)`, write Annotated[int, Field(ge=1)] = 5"
                )
            schema, convert = _read_hint(hint)
            # `x: int = None` may be None.
            if default is None and Schema(schema).errors(None):
                schema, convert = _any_of([(schema, convert), _read_hint(None)])
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from None
        properties[name] = schema
        converters[name] = convert
        if "description" not in schema:
            undescribed.append(name)
        with suppress(TypeError, ValueError):  # not JSON, such as `...`: not shown
            schema["default"] = to_json(default)
    description, notes = _documentation(doc or "", [*undescribed, *hidden])
    for name in notes.keys() & hints.keys():
        properties[name]["description"] = notes[name]
    schema = {"type": "object", "properties": properties}
    if required := [name for name in hints if name not in defaults]:
        schema["required"] = required
    if not is_open:
        schema["additionalProperties"] = False
    if description:
        schema["description"] = description

    def convert_members(value: Message) -> Message:
        return {name: converters.get(name, _keep)(item) for name, item in value.items()}

    return schema, convert_members


# The remedy for a value without a JSON form, by an attribute of the value.
_REMEDIES = {
    "__await__": "await it",
    "__next__": "make a list of it",
    "is_integer": "return None for NaN",
    "decode": "bytes are for image(), audio() or embedded()",
    "total_seconds": "use .total_seconds()",
    "iterrows": 'use .to_dict("records")',
    "tolist": "use .tolist()",
    "keys": "use dict() of it",
    "__class__": "use a dict, a list, text or a number",
}


def to_json(value: Any, place: tuple[Any, ...] = ()) -> Any:
    """Return a value as JSON; TypeError, with a location: it has no JSON form."""
    value = getattr(value, "_value_", value)  # of a member of an Enum
    kind = type(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float) and abs(value) < inf:
        return value
    if hasattr(kind, "model_dump"):
        is_sdk = _package(kind) in _SDK
        plain = value.model_dump(mode="json", by_alias=True, exclude_none=is_sdk)
        return to_json(plain, place)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields

        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(kind, "_asdict"):  # a NamedTuple
        value = value._asdict()
    elif _text_type(kind):
        return getattr(value, "isoformat", value.__str__)()
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(value[key], (*place, key)) for key in value}
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return [to_json(item, (*place, n)) for n, item in enumerate(value)]

    where = "".join(_at(step, "") for step in place) or "/"
    remedy = next(words for name, words in _REMEDIES.items() if hasattr(value, name))
    raise TypeError(f"{where}: {value!r:.80} has no JSON form; {remedy}")


def log_refusals(definition: Message) -> None:
    """Log what hosts refuse, although the specification allows it."""
    tool = definition["name"]
    schema = definition["inputSchema"]
    names = [tool, *(one.replace(".", "_") for one in schema.get("properties", ()))]
    refused = [
        f"the name {name!r:.200} (1 to 64 letters, digits, _, -)"
        for name in names
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name)
    ]
    for keyword in schema.keys() & {"anyOf", "oneOf", "allOf"}:
        refused.append(f"{keyword} at the root of a schema")
    nodes: list[Message] = []
    json.loads(json.dumps(schema), object_hook=nodes.append)
    for node in nodes:
        choices = node.get("enum")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, int) or choice == "":
                refused.append(f"the choice {choice!r} (a text, not empty)")
    if len(definition.get("description", "")) > 1024:
        refused.append("descriptions longer than 1,024 characters")
    if refused:
        _log(f"tool {tool!r:.200}: some hosts refuse {'; '.join(refused):.999}")


# ---- forms
def read_field(field: Any) -> tuple[Message, Converter, bool]:
    """Read a form's field: its schema, its converter, and whether it is required.

    A field is a hint, a list of choices, a pair of these and a default, or a schema.
    """
    if not isinstance(field, tuple):
        field = (field,)
    hint, *default = field
    convert: Converter = _keep
    is_required = False
    if isinstance(hint, dict):
        schema = dict(hint)
    else:
        if isinstance(hint, list):
            hint = typing.Literal.__getitem__(tuple(hint))
        schema, convert = _read_hint(hint)
        some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
        is_required = len(some) != 1 and not default
        if len(some) == 1:  # Optional
            del schema["anyOf"]
            some[0].update(schema)
            schema = some[0]
        is_simple = schema.get("type") in ("string", "number", "integer", "boolean")
        if not is_simple and "enum" not in schema.get("items", {}):
            raise TypeError(
                f"expected str, int, float, bool or a choice, found {hint}; a form has"
                " the fields of a model, not the model"
            )
    if default and default[0] is not None:  # which clients refuse
        schema["default"] = to_json(default[0])
    return schema, convert, is_required


def form_of(fields: Message) -> Message:
    """Return the schema of a form: client/elicitation §Requested Schema."""
    properties = {}
    required = []
    for name, field in fields.items():
        try:
            properties[name], _, is_required = read_field(field)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from None
        if is_required:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


# ---- registered functions
class Entry:
    """A registered function: its schemas, its description, and how to call it.

    With an `input_schema`, arguments stay plain JSON. An output schema of {} stands for
    none. Any thread may call an entry.

        parameters               the names that clients pass
        context                  the parameter that takes the Context, or ""
        input_schema, input      for the arguments, and compiled
        output_schema, output    the same for the result, or None
        wrapped                  the result goes into an object, under "result"
        stays                    it runs on the request's thread, in spite of `run=`
        definition               the object in lists
        pattern                  of the URIs of a resource
    """

    definition: Message
    pattern: re.Pattern[str]
    cache_hints: Message
    wrapped = False

    def __init__(
        self,
        function: Func,
        input_schema: Message | None = None,
        output_schema: Message | None = None,
    ) -> None:
        self.function = function
        named = function.func if isinstance(function, partial) else function
        self.name = getattr(named, "__name__", type(named).__name__)
        doc = named.__doc__ or ""
        try:
            signature = Signature(function)
            hints = signature.hints(strict=input_schema is None)
            self.context = _find_context(signature.names, hints)
            self.parameters = [one for one in signature.names if one != self.context]
            unseen = {self.context, *signature.bound}  # by callers
            if input_schema is None:
                fields = {name: hints.get(name, Any) for name in self.parameters}
                input_schema, self._convert = _read_object(
                    fields, signature.defaults, signature.is_open, doc, unseen
                )
                self.description = input_schema.pop("description", "")
                if output_schema is None:
                    output_schema = self._read_result(hints)
            else:
                self._convert = dict
                self.description, _ = _documentation(doc, unseen)
        except RecursionError:
            raise TypeError(
                f"{self.name}(): a type contains itself; write its schema by hand"
            ) from None
        except TypeError as problem:
            raise TypeError(f"{self.name}(): {problem}") from None
        self.stays = signature.is_async
        self.input_schema = input_schema
        # Bound parameters are refused, unless the schema has them.
        hidden = dict.fromkeys(signature.bound, False)
        properties = {**hidden, **input_schema.get("properties", {})}
        self.input = Schema({**input_schema, "properties": properties})
        self.output_schema = output_schema or None
        self.output = Schema(output_schema) if output_schema else None

    def _read_result(self, hints: Message) -> Any:
        """Return the schema of structured results, or None."""
        returned = {"result": hints.get("return", Any)}
        whole = _for_results(_read_object(returned, {}, is_open=True)[0])
        schema = whole["properties"]["result"]
        if _may_be_content(schema):
            return None
        # Until R4, structured content must be an object.
        self.wrapped = schema.get("type") != "object"
        return whole if self.wrapped else schema

    def fit(self, values: Message) -> tuple[Message, list[str]]:
        """Return the arguments, and their errors.

        A text of the wrong type is read as JSON: prompts and templates get only text,
        and some clients send lists, objects or numbers as text.
        """
        errors = self.input.errors(values)
        room = MAX_VALUES  # for all texts together
        for _ in range(10):  # times MAX_ERRORS texts
            decoded = {}
            for error in errors:  # such as "/n: must be of type integer, found '5'"
                name = error.split(_WRONG_TYPE)[0][1:]
                value = values.get(name)
                if isinstance(value, str) and room > 0:
                    room -= sum(map(value.count, ",[{"))
                    with suppress(RpcError, ValueError):  # then the error stays
                        found = decode(value.encode())
                        if isinstance(found, (list, dict)) or value == value.strip():
                            decoded[name] = found
            if not decoded:
                break
            values = {**values, **decoded}
            errors = self.input.errors(values)
        return values, errors

    def parse(self, texts: Message) -> Message:
        """Convert the strings for a prompt or template; RpcError: they do not fit."""
        values, errors = self.fit(texts)
        if errors:
            raise invalid("\n".join(errors))
        return values

    def invoke(self, arguments: Message, ctx: Any, *values: Any) -> Any:
        """Call the function with valid arguments; `values` come by position."""
        arguments = self._convert(arguments)
        arguments.update(zip(self.parameters, values))
        if self.context:
            arguments[self.context] = ctx
        return self.function(**arguments)


Entries = dict[str, Entry]  # by name or URI


# ======== 6. Content, results, and the registry =======================================
# *Content* is a block (text, an image, ...) in a tool's result or a prompt's message;
# *contents* are the text or the bytes of a resource. For a tool without an output
# schema:
#
#     value                               result
#     None                                no content
#     text, content                       this content
#     a list with content in it           a block for each item: text, or its JSON
#     {"content": [...], ...}             these members: it is a complete result
#     any other dict                      structuredContent, and its JSON as text
#     anything else                       its JSON as text
#
# With an output schema, the value is always structuredContent, and its JSON the text.
#
# A dict is content, or a complete result, only if it has all members that its type
# requires, and none that its type lacks:
#
#     {"type": "text", "text": "hi", "from": "ann"}   data: content has no `from`
#     {"content": [], "title": "Home", "total": 17}   data: a page of some site

MAX_URI_LENGTH = 2048  # of a URI that a client watches

# The schemas of members of options, content and contents.
_MEMBER_SCHEMAS = json.loads("""{
    "name": {"type": "string"},
    "version": {"type": "string"},
    "title": {"type": "string"},
    "description": {"type": "string"},
    "websiteUrl": {"type": "string"},
    "icons": {"type": "array", "items": {
        "type": "object", "required": ["src"], "properties": {"src": {"type": "string"}}
    }},
    "instructions": {"type": "string"},
    "pageSize": {"type": "integer", "minimum": 0},
    "ttlMs": {"type": "integer", "minimum": 0},
    "cacheScope": {"enum": ["public", "private"]},
    "annotations": {"type": "object", "additionalProperties": false, "properties": {
        "title": {"type": "string"},
        "readOnlyHint": {"type": "boolean"},
        "destructiveHint": {"type": "boolean"},
        "idempotentHint": {"type": "boolean"},
        "openWorldHint": {"type": "boolean"},
        "audience": {"type": "array", "items": {"enum": ["user", "assistant"]}},
        "priority": {"type": "number", "minimum": 0, "maximum": 1},
        "lastModified": {"type": "string"}
    }},
    "_meta": {"type": "object"},
    "uri": {"type": "string"},
    "mimeType": {"type": "string"},
    "size": {"type": "number", "minimum": 0},
    "type": {"type": "string"},
    "text": {"type": "string"},
    "data": {"type": "string"},
    "resource": {
        "type": "object",
        "required": ["uri"],
        "anyOf": [{"required": ["text"]}, {"required": ["blob"]}],
        "additionalProperties": false,
        "properties": {
            "uri": {"type": "string"},
            "mimeType": {"type": "string"},
            "text": {"type": "string"},
            "blob": {"type": "string"},
            "_meta": {"type": "object"}
        }
    },
    "role": {"enum": ["user", "assistant"]},
    "content": {},
    "structuredContent": {},
    "isError": {"type": "boolean"},
    "resultType": {"type": "string"}
}""")


@cache
def shape_of(names: str, required: str = "") -> Schema:
    """Return the Schema of an object with these members only."""
    return Schema(
        {
            "type": "object",
            "required": required.split(),
            "properties": {name: _MEMBER_SCHEMAS[name] for name in names.split()},
            "additionalProperties": False,
        }
    )


class Result(dict[str, Any]):
    """The result of a modern tool, as an extension defines it."""


def text(value: str, **members: Any) -> Message:
    """Make text content. `members`, here and below: annotations, _meta."""
    return {"type": "text", "text": value, **members}


def image(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make image content."""
    return {"type": "image", "data": to_base64(data), "mimeType": mime_type, **members}


def audio(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make audio content; 2024-11-05 gets it as an embedded resource."""
    return {"type": "audio", "data": to_base64(data), "mimeType": mime_type, **members}


_CONTENTS = {"uri", "mimeType", "text", "blob", "_meta"}


def is_contents(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _CONTENTS:
        return False
    return isinstance(value.get("text", value.get("blob")), (str, bytes))


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def contents(uri: str, mime_type: str | None, value: Any) -> Message:
    """Make the contents of a resource: server/resources §Resource Contents."""
    if isinstance(value, bytes):
        value = {"blob": value}
    if not is_contents(value):
        plain = to_json(value)
        value = {"text": as_text(plain)}
        if not isinstance(plain, str):
            mime_type = mime_type or "application/json"
    if isinstance(value.get("blob"), bytes):
        value = {**value, "blob": to_base64(value["blob"])}
    return {**without_none(uri=uri, mimeType=mime_type), **value}


def embedded(
    uri: str, value: str | bytes, mime_type: str | None = None, **members: Any
) -> Message:
    """Make an embedded resource: its contents are part of the result."""
    return {"type": "resource", "resource": contents(uri, mime_type, value), **members}


def link(uri: str, name: str, **members: Any) -> Message:
    """Make a link to a resource; before 2025-06-18 it is sent as text."""
    return {"type": "resource_link", "uri": uri, "name": name, **members}


def block_error(value: Any) -> str | None:
    """Return why a value is not a block of content; None: it is one."""
    row = BLOCKS.get(str(value.get("type"))) if isinstance(value, dict) else None
    if not row:
        return f": its type must be one of {', '.join(BLOCKS)}"
    required = f"type {row.required}"
    shape = shape_of(f"{required} {row.optional} annotations _meta", required)
    return shape.flaw(without_none(**value))


def content(value: Any) -> Message:
    """Return a block of content; a string becomes text. TypeError for anything else."""
    if isinstance(value, str):
        return text(value)
    if error := block_error(value):
        raise TypeError(f"expected text or content, e.g. image(); {value!r:.99}{error}")
    return without_none(**value)


# ---- results
def tool_error(message: str) -> Message:
    return {"content": [text(message)], "isError": True}


def is_result(value: Any) -> bool:
    """Tell whether a dict is a complete result; {"content": []} alone is data."""
    shape = shape_of("content structuredContent isError _meta resultType", "content")
    if not isinstance(value, dict) or shape.errors(value):
        return False
    blocks = value["content"]
    return len(value) > 1 or (isinstance(blocks, list) and blocks != [])


def tool_result(entry: Entry, value: Any) -> Message:
    """Make the result of a tool: server/tools §Tool Result, §Output Schema."""
    plain = to_json(value)
    items = plain if isinstance(plain, list) else [plain]
    if is_result(plain) and (
        not entry.output or "structuredContent" in plain or plain.get("isError")
    ):
        result = dict(plain)
    elif entry.output or (plain is not None and all(map(block_error, items))):
        result = {"content": [as_text(plain)]}  # data: no item is content
        if entry.wrapped:
            plain = {"result": plain}
        if entry.output or isinstance(plain, dict):
            result["structuredContent"] = plain
    else:
        some = [item for item in items if item is not None]
        result = {"content": [as_text(i) if block_error(i) else i for i in some]}

    if entry.output and not result.get("isError"):
        if error := entry.output.flaw(result.get("structuredContent")):
            raise TypeError(f"{entry.name}() broke its output schema: {error}")
    if not isinstance(result["content"], list):
        raise TypeError("the content of a result must be a list")
    blocks = [content(item) for item in result["content"]]
    return {**result, "resultType": "complete", "content": blocks}


# The kinds of objects behind members: see `fields` in FEATURES.
_KINDS = {row.member: row.item for row in LISTS.values()}
_KINDS.update(
    content="content",
    contents="contents",
    resource="contents",
    messages="message",
    annotations="annotations",
)


def downgrade(seen: Rules, kind: str, value: Any) -> Any:
    """Return an object of a kind, or a list of them, as a revision has it.

    A star in `fields` of FEATURES stands for all kinds except results and annotations.
    """
    if isinstance(value, list):
        return [downgrade(seen, kind, item) for item in value]
    if not isinstance(value, dict):
        return value
    if kind == "content" and value.get("type") in BLOCKS.keys() - seen.blocks:
        return older_block(value)

    has_common = kind not in ("result", "annotations")
    kept = {}
    for key, item in value.items():
        if f"{kind}.{key}" in seen.hidden or has_common and f"*.{key}" in seen.hidden:
            continue
        if key in _KINDS:
            item = downgrade(seen, _KINDS[key], item)
        kept[key] = item
    return kept


def older_block(block: Message) -> Message:
    if "data" in block:
        mime_type = block["mimeType"]
        return embedded(f"data:{mime_type}", from_base64(block["data"]), mime_type)
    if "uri" in block:
        return text("{name}: {uri}".format(**block))
    return text(as_text(block))


# ---- the registry
# The member of a definition that names the entry, if not "name".
_NAMING = {"templates": "uriTemplate", "resources": "uri"}


def checked(members: Message, names: str, function: str = "Server()") -> Message:
    """Return the given options; TypeError: one is unknown or malformed."""
    given = without_none(**members)
    for name in given.keys() - set(names.split()):
        known = names.replace(" ", ", ")
        raise TypeError(f"{function} has no option {name}=; it has {known}")
    if error := shape_of(names).flaw(given):
        raise TypeError(f"option {error}")
    return given


def compile_template(uri: str) -> re.Pattern[str]:
    """Return a pattern that matches the URIs of a template, or a plain URI.

    "notes://{id}" becomes notes://(?P<id>[^/?#]+); {+path} matches several segments.
    """

    def group(found: Any) -> str:
        before = found.string[: found.start()]
        _, earlier, between = before.rpartition("}")
        one = "." if found[1] else "[^/?#]"
        if earlier and ("{\\+" in before or not re.search("[/?#]", between)):
            # It lacks the text since the last variable: in "{name}.{ext}", ext has no
            # dot. ([^/]+)\.([^/]+) would be slow.
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


def uri_key(uri: Any) -> str:
    """Return the key of a watched URI; RpcError: it is not valid."""
    if not isinstance(uri, str) or len(uri) > MAX_URI_LENGTH:
        raise invalid(f"a URI must be a string of up to {MAX_URI_LENGTH}")
    return digest(uri)[:32]


class Registry:
    """The functions that a server offers. One thread at a time may change them.

    tools, resources, templates, prompts    by name or URI
    completions   by (prompt or template, argument)
    methods       of extensions, by name
    mirrored      their params that HTTP repeats in Mcp-Name
    extensions    their settings, by identifier
    declared      capabilities; those of deleted tools stay
    """

    def __init__(self) -> None:
        self.tools: Entries = {}
        self.resources: Entries = {}
        self.templates: Entries = {}
        self.prompts: Entries = {}
        self.completions: dict[Any, Entry] = {}
        self.methods: Entries = {}
        self.mirrored: dict[str, str] = {}
        self.extensions: dict[str, Message] = {}
        self.declared = {"", "logging"}  # "": of methods that need none

    def entries(self, kind: str) -> Entries:
        """Return a table: "tools", "resources", "templates" or "prompts"."""
        table: Entries = getattr(self, kind)
        return table

    # ---- registering. Decorators return the function unchanged. TypeError, ValueError:
    # the function cannot be used.
    @overload
    def tool(self, function: F, **options: Any) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str = "",
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
        `members`: title, description, annotations, icons, _meta (server/tools §Tool).
        The function returns text, content (see image()), a list with content in it, a
        complete result, or any other value, which is sent as JSON. `run=None` keeps it
        off the thread of the server's `run=`.

        The model gets the text of an exception; the log a traceback, except of a
        ToolError. The client gets an RpcError as it is.
        """
        if run not in (None, ...):
            raise TypeError("run= of a tool can only be None")

        def register(function: F) -> F:
            entry = Entry(function, input_schema, output_schema)
            if entry.input_schema.get("type") != "object":
                raise ValueError('an input schema must have "type": "object"')
            entry.stays = entry.stays or run is None
            self._add(
                "tools",
                name or entry.name,
                entry,
                members,
                "annotations",
                inputSchema=entry.input_schema,
                outputSchema=entry.output_schema,
            )
            log_refusals(entry.definition)
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
        **members: Any,
    ) -> Callable[[F], F]:
        """Register a function as a resource, or as a template: "notes://{id}".

        The function returns text, bytes, {"text" or "blob": ..., "uri", "mimeType"}, a
        list of such dicts, or any other value, which is sent as JSON. `{id}` stands for
        one path segment, `{+path}` for several. `members`: title, description,
        annotations, icons, _meta, size.

        The client gets the text of NotFound, and any RpcError as it is. Other
        exceptions are only logged.
        """
        pattern = compile_template(uri)
        members["mimeType"] = mime_type
        cache_hints = checked(
            {"ttlMs": ttl_ms, "cacheScope": cache_scope}, "ttlMs cacheScope"
        )

        def register(function: F) -> F:
            entry = Entry(function, output_schema={})
            entry.pattern = pattern
            entry.cache_hints = cache_hints
            variables = pattern.groupindex.keys()
            required = set(entry.input_schema.get("required", ()))
            if not required <= variables <= set(entry.parameters):
                raise ValueError(
                    f"{entry.name}() must have the variables of {uri} as parameters"
                )
            self._add(
                "templates" if variables else "resources",
                uri,
                entry,
                members,
                "annotations size mimeType",
                name=name or entry.name,
            )
            return function

        return register

    @overload
    def prompt(self, function: F, **options: Any) -> F: ...

    @overload
    def prompt(self, *, name: str = "", **members: Any) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, *, name: str = "", **members: Any) -> Any:
        """Register a function as a prompt; its parameters become its arguments.

        Clients send strings: "5" is converted for an int. The function returns text or
        content (from the user), {"role", "content"}, or a list of these. `members`:
        title, description, icons, _meta. Exceptions: see resource().
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
            ]
            self._add(
                "prompts",
                name or entry.name,
                entry,
                members,
                arguments=arguments or None,
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
        table = self.entries(kind)
        if name in table:
            raise ValueError(f"{name!r} is already registered")
        names = f"title description icons _meta {options}".strip()
        declared = "resources" if kind == "templates" else kind
        entry.definition = {
            _NAMING.get(kind, "name"): name,
            **without_none(description=entry.description or None, **derived),
            **checked(members, names, f"{declared[:-1]}()"),
        }
        table[name] = entry
        self.declared.add(declared)

    def completion(self, reference: str, argument: str) -> Callable[[F], F]:
        """Register a completer for an argument of a prompt or URI template.

        It gets the text so far and, if it takes two arguments, a dict of the others,
        and returns the values that fit. Exceptions: see resource().
        """

        def register(function: F) -> F:
            self.completions[reference, argument] = Entry(function, {})
            self.declared.add("completions")
            return function

        return register

    def check_completions(self) -> None:
        """Log completers for arguments that do not exist."""
        for reference, argument in self.completions:
            entry = self.prompts.get(reference) or self.templates.get(reference)
            if not entry or argument not in entry.parameters:
                _log(f"completion({reference!r}, {argument!r}): no such argument")

    def method(
        self,
        name: str,
        *,
        extension: str = "",
        settings: Message | None = None,
        mirrored: str = "",
    ) -> Callable[[F], F]:
        """Register a function for an extension's method: params in, a result out.

        capabilities.extensions lists the `settings` under `extension`, or else the
        method's name. `mirrored`: the param that HTTP repeats in Mcp-Name. A core
        method of this name is replaced. Exceptions: see resource().
        """
        if "/" not in (extension or name):
            raise ValueError(f"{name!r}: the method of an extension needs a prefix/")

        def register(function: F) -> F:
            self.methods[name] = Entry(function, {})
            self.mirrored[name] = mirrored
            if name in METHODS:
                self.declared.add(METHODS[name].capability)
            else:
                self.extensions.setdefault(extension or name, {}).update(settings or {})
            return function

        return register

    def capabilities(self, version: str, *, tells: bool = True) -> Message:
        """Return the capabilities (basic/versioning §Capability Negotiation).

        `tells`: the client can be told of changes.
        """
        seen = rules(version)
        declared: Message = {}
        for row in seen.methods.values():
            if row.capability in self.declared:
                declared[row.capability] = {}
        for name, row in seen.notifications.items():
            if row.capability in self.declared:
                parts = declared.setdefault(row.capability, {})
                if row.filter and tells:
                    parts["subscribe" if name == UPDATED else "listChanged"] = True
        declared.pop("", None)
        if self.extensions:
            declared["extensions"] = dict(self.extensions)
        declared = downgrade(seen, "capabilities", declared)
        return declared


# ======== 7. Requests: what a handler sees, and what becomes of its result ============
# A legacy handler waits for answers (section 11). A modern server cannot send requests:
# an exception stops the handler, and its questions are the result. The client sends the
# request again, with the answers; the handler runs again from its first line, and finds
# them. Hence the rules for handlers:
#
#     ask first, then act      code before a question (or in `finally`) runs every time
#     ask the same every time  a question that contains the time is new on every run
#     do not trust the answer  maybe no user has seen the question
#     expect repetition        a client may send the same answers twice
#
# The client keeps the answers so far, as *request state*, which expires, and is signed
# together with the request and the *principal*, the caller (basic/patterns/mrtr §Server
# Requirements). A tool that calls `ctx.elicit("Which branch?", branch=str)` has this
# conversation:
#
#     > 1  tools/call {"name": "deploy"}
#     < 1  {"resultType": "input_required", "requestState": "W3...", "inputRequests":
#              {"9c1f...": {"method": "elicitation/create", "params": {...}}}}
#     > 2  tools/call {"name": "deploy", "requestState": "W3...", "inputResponses":
#              {"9c1f...": {"action": "accept", "content": {"branch": "main"}}}}
#     < 2  {"resultType": "complete", "content": [...]}
#
# A *result* with `isError` is for the model, an *error* for the program that sent the
# request (server/tools §Error Handling):
#
#     event                          in a tool                   in any other handler
#     the handler asks (modern)      input required              input required
#     KeyboardInterrupt, ...         -32603                      -32603
#     ClientLacks: cannot be asked   -32021; in a session        -32021; in a session
#                                    isError                     -32603
#     RpcError is raised             that error                  that error
#     ToolError is raised            isError, not logged         -32603, no text
#     NotFound is raised             isError, with its text      no such resource
#     other exceptions, SystemExit   isError, with its text      -32603, no text
#
#     arguments break the schema     isError; until 2025-06-18   -32602
#                                    -32602
#     a result breaks output_schema  isError

MAX_RUNNING = 1000  # requests of one peer in flight
STATE_SECONDS = 900  # until request state expires
ASK_SECONDS = 300  # for answers to a legacy handler


# ---- questions: requests without an id
_RESERVED = "a field with the name of an option goes into schema="


def elicitation(
    message: str, /, *, url: str = "", schema: Message | None = None, **fields: Any
) -> Message:
    """Make a question to the user, a page or a form: client/elicitation.

    A field is a hint (str, int, float, bool, a Literal, an Enum, a list of choices, or
    Optional), a pair of hint and default, or a JSON Schema. Ask for secrets with `url`.
    """
    if not isinstance(url, str) or not isinstance(schema or {}, dict):
        raise TypeError(f"url= is text, schema= a JSON Schema; {_RESERVED}")
    form: Message = {"mode": "url", "url": url}
    if not url:
        form = {"mode": "form", "requestedSchema": schema or form_of(fields)}
    return {"method": "elicitation/create", "params": {"message": message, **form}}


def only(answers: Message) -> Any:
    (answer,) = answers.values()
    return answer


def read_form(fields: Message, answers: Message) -> Message:
    """Return the only answer, its values converted as the hints of the fields say."""
    answer = only(answers)
    content = dict(answer.get("content") or {})
    for name in fields.keys() & content.keys() - {"url"}:  # an option, not a field
        if content[name] is not None:
            _, convert, _ = read_field(fields[name])
            content[name] = convert(content[name])
    return {**answer, "content": content}


def sampling(messages: Any, *, max_tokens: int = 1000, **options: Any) -> Message:
    """Make a question to the client's model: client/sampling. [deprecated]"""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": text(messages)}]
    return {
        "method": "sampling/createMessage",
        "params": {"messages": messages, "maxTokens": max_tokens, **options},
    }


def roots() -> Message:
    """Make the question for the client's roots. [deprecated]"""
    return {"method": "roots/list"}


_ANSWER_SCHEMAS = json.loads("""{
    "elicitation/create": {
        "required": ["action"],
        "properties": {"action": {"enum": ["accept", "decline", "cancel"]}}
    },
    "sampling/createMessage": {"required": ["role", "content", "model"]},
    "roots/list": {
        "required": ["roots"],
        "properties": {
            "roots": {"type": "array", "items": {"type": "object", "required": ["uri"]}}
        }
    }
}""")


def usable_answer(question: Message, answer: Any) -> Message:
    """Return an answer, completed with a form's defaults; AskError: it is not valid
    (client/elicitation §Form Mode Security)."""
    schema = _ANSWER_SCHEMAS[question["method"]]
    form = question.get("params", {}).get("requestedSchema")
    fields = {}
    if form and isinstance(answer, dict) and answer.get("action") == "accept":
        answer = {**answer, "content": answer.get("content") or {}}
        schema = {"properties": {"content": {"type": "object", **form}}}
        fields = form.get("properties", {})
    if flaw := Schema({"type": "object", **schema}).flaw(answer):
        raise AskError(f"the client's answer is not valid: {flaw}")
    for name, field in fields.items():
        answer["content"].setdefault(name, field.get("default"))
    return dict(answer)


class InputRequired(BaseException):
    """Stops a handler that lacks answers, in spite of its `except Exception`."""


def as_asked(seen: Rules, question: Message) -> Message:
    if "params" not in question:
        return question
    kind = METHODS[question["method"]].capability
    return {**question, "params": downgrade(seen, kind, question["params"])}


def keep_objects(result: Message) -> None:
    """Drop structured content, and output schemas, that are not of objects."""
    if not isinstance(result.get("structuredContent", {}), dict):
        del result["structuredContent"]
    for tool in result.get("tools", ()):
        if tool.get("outputSchema", {}).get("type", "object") != "object":
            del tool["outputSchema"]


class Questions:
    """The questions of one run of a handler, and the answers so far.

    digests      of the questions, by key
    answers      by the digest of the question, or by key: see restore()
    missing      the questions without a usable answer, by key
    unawaited    number of questions that a coroutine has yet to await
    """

    def __init__(self) -> None:
        self.digests: Message = {}
        self.answers: Message = {}
        self.missing: Message = {}
        self.unawaited = 0

    def add(self, questions: Message) -> None:
        if self.digests.keys() & questions.keys():
            raise ValueError(
                "the same question was asked twice: give each its own key="
            )
        for key, question in questions.items():
            self.digests[key] = digest([key, question])

    def find(self, questions: Message) -> Message:
        """Return the answers by key; InputRequired: one is missing."""
        found = {}
        for key, question in questions.items():
            answer = self.answers.get(self.digests[key], self.answers.get(key))
            try:
                found[key] = usable_answer(question, answer)
            except AskError as problem:
                params = question.get("params", {})
                # Say why it is asked again.
                if answer is not None and "message" in params:
                    message = f"{problem}\n{params['message']}"
                    question = {**question, "params": {**params, "message": message}}
                self.missing[key] = question
        if len(found) < len(questions):
            raise InputRequired
        return found

    def restore(self, ctx: Context) -> None:
        """Take the answers from a request and its state; RpcError: it is not valid.

        An answer is kept by the digest of its question, which the state has, so that
        another question with the same key does not find it; without a state, by key.
        """
        digests: Message = {}
        state = ctx.params.get("requestState")
        if state is not None:
            import hmac

            expires = 0
            body = state.partition(".")[0]
            if state.isascii() and hmac.compare_digest(_signed(ctx, body), state):
                expires, digests, self.answers = decode(from_base64(body))
            if expires < time.time():
                raise invalid(
                    "requestState is not valid here, or has expired: retry without it"
                )
        for key, answer in (ctx.params.get("inputResponses") or {}).items():
            self.answers[digests.get(key, key)] = answer

    def input_required(self, ctx: Context) -> Message:
        """Make the result that asks: basic/patterns/mrtr §InputRequiredResult."""
        expires = time.time() + STATE_SECONDS
        state = to_base64(encode([expires, self.digests, self.answers]))
        questions = {
            key: as_asked(ctx._rules, question)
            for key, question in self.missing.items()
        }
        return {
            "resultType": "input_required",
            "inputRequests": questions,
            "requestState": _signed(ctx, state),
        }


def _signed(ctx: Context, body: str) -> str:
    import hmac

    params = dict(ctx.params)
    for name in ("_meta", *RETRY):
        params.pop(name, None)
    name = ctx.server.info["name"]
    bound = digest([body, name, ctx.method, params, ctx.principal])
    signature = hmac.new(ctx.server.state_key, bound.encode(), "sha256")
    return f"{body}.{signature.hexdigest()}"


def check_params(name: str, kinds: Message, params: Message) -> None:
    for key, kind in kinds.items():
        value = params.get(key)
        is_right = value in kind if isinstance(kind, list) else isinstance(value, kind)
        if not is_right:
            raise invalid(f"{name}: {key} is missing or has the wrong type")


# Those of the HTTP request that this thread serves: Endpoint.serve() sets them.
_headers: ContextVar[Headers] = ContextVar("_headers", default={})

# The states of a request, and those that may follow (`ping` never runs). False: another
# thread was first, and the state stays.
_NEXT = {
    "arrived": {"running": True, "answered": True, "cancelled": True},
    "running": {"answered": True, "cancelled": True},
    "answered": {"cancelled": False},
    "cancelled": {"running": False, "answered": False, "cancelled": False},
}


class Context:
    """One request, as its handler sees it: declare a parameter `ctx: Context`.

    `meta` is params._meta; `client_info` and `client_capabilities` are only claims;
    `principal` is the value that `authorize=` returned; `headers` are those of the HTTP
    request, by name in any case. Once `cancelled` is True, stop soon.

        _state         "arrived"    it is checked, or waits for its handler to be called
                       "running"    messages may be sent
                       "answered"   the response was the last one
                       "cancelled"  nothing more is sent
        _client        its `_meta`, or that of its session
        _row           its row of METHODS; None: only an extension has this method
        _function      one of section 10
        _wakes         functions for _cancel() to call

    `_sending` is held while a message is sent. `_ending` guards `_state` and `_wakes`;
    nothing waits under it. Any thread may call the methods for handlers, _emit(),
    _cancel() and _wake_with().
    """

    version: str
    client_info: Message
    client_capabilities: Message
    _row: Any
    _may_ask = False
    _in_tool = False
    _subscription: Subscription | None = None
    _progress = -inf
    _state = "arrived"

    def __init__(
        self,
        server: Server,
        peer: Peer,
        send: Send,
        message: Message,
        meta: Message,
        principal: Any,
    ) -> None:
        self.server = server
        self.peer = peer
        self.principal = principal
        self.headers = _headers.get()
        self.id = message["id"]
        self.method = message["method"]
        self.params: Message = message.get("params", {})
        self.meta = meta
        self._send = send
        self._sending = threading.RLock()
        self._ending = threading.Lock()
        self._wakes: list[Func] = []
        self._questions = Questions()

    @property
    def cancelled(self) -> bool:
        """True once the client has cancelled the request, or has left."""
        return self._state == "cancelled"

    # ---- notifications
    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to this request, if its revision has it."""
        if self._rules.has_notification(method):
            self._emit({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked: basic/patterns/progress."""
        token = self.meta.get("progressToken")
        with self._sending:
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
        """Send a JSON value, if the client asked for this level, one of LOG_LEVELS.
        [deprecated]"""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r}: expected one of {LOG_LEVELS}")
        wanted = LOG_LEVELS[: LOG_LEVELS.index(level) + 1]
        if self._client.get(META_LOG_LEVEL) in wanted:
            self.notify(
                "notifications/message",
                without_none(level=level, logger=logger, data=data),
            )

    def run(self, function: Func, /, *arguments: Any) -> Any:
        """Call a function where `run=` calls handlers, or else here; return its result.

        CancelledError: the request was cancelled first.
        """
        if self.server.is_on_loop():
            raise RuntimeError("a coroutine does `await asyncio.to_thread(ctx.run, f)`")
        return self.server.hook.call(self, partial(function, *arguments))

    def on_cancel(self, function: Func) -> None:
        """Call a function once, on its own thread, if the client cancels.

        When a program ends, all these functions have 0.1 s.
        """
        self._wake_with(partial(run_aside, "mcp-cancel", function, self.server))

    def close_stream(self) -> None:
        """[legacy] Over HTTP, disconnect; the client comes back for the rest."""

    # ---- questions. A coroutine awaits these.
    def elicit(self, message: str, /, *, key: str = "", **form: Any) -> Any:
        """Ask elicitation(); returns {"action": "accept" | "decline" | "cancel",
        "content": {...}}, converted as arguments are, with defaults filled in."""
        if not isinstance(key, str):
            raise TypeError(f"key= is text; {_RESERVED}")
        question = elicitation(message, **form)
        return self.ask({key: question}, take=partial(read_form, form))

    def sample(self, messages: Any, *, key: str = "", **options: Any) -> Any:
        """Ask sampling(); returns {"role", "content", "model", ...}."""
        return self.ask({key: sampling(messages, **options)}, take=only)

    def list_roots(self, *, key: str = "") -> Any:
        """Ask roots(); returns [{"uri": "file://...", "name": ...}, ...]."""
        return self.ask({key: roots()}, take=lambda answers: only(answers)["roots"])

    def ask(self, questions: Message, *, take: Func = dict) -> Any:
        """Ask several questions at once; returns the answers by key.

        `questions` are {key: elicitation(...) | sampling(...) | roots()}; a digest
        replaces the key "". `take` converts the answers. ClientLacks: the client lacks
        a capability. AskError: no usable answer; a modern client is asked again.
        """
        self.peer.check_questions()
        questions = {key or digest(one)[:16]: one for key, one in questions.items()}
        for question in questions.values():
            self._check_declared(question)
        self._questions.add(questions)

        async def later() -> Any:
            self._questions.unawaited -= 1
            return take(await self._obtain_later(questions))

        if self.server.is_on_loop():
            self._questions.unawaited += 1
            return later()
        return take(self._obtain(questions))

    def _check_declared(self, question: Message) -> None:
        method = question["method"]
        name = METHODS[method].capability
        params = question.get("params", {})
        part = params.get("mode", "tools" if "tools" in params else "")
        declared = self.client_capabilities.get(name)
        if isinstance(declared, dict) and method in self._rules.methods:
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
        """Return the answers by key; InputRequired: one is missing."""
        if not self._may_ask:
            raise RuntimeError(f"a handler of {self.method} must not ask the client")
        return self._questions.find(questions)

    async def _obtain_later(self, questions: Message) -> Message:
        """Do the same in a coroutine, which must not block."""
        return self._obtain(questions)

    # ---- admitting
    def _admit(self, start: Func) -> None:
        version = self.meta[META_VERSION]
        is_served = version in _MODERN
        # In the order of section 13. An unknown revision owes only what every modern
        # one requires.
        seen = rules(version if is_served else _MODERN[-1])
        check_params("_meta", seen.meta, self.meta)
        self._identify(self.meta)
        self.version = version
        self.peer.check(self)
        if not is_served:
            raise RpcError(
                UNSUPPORTED_VERSION,
                f"Unsupported protocol version: {version:.40}",
                {"supported": versions(), "requested": version},
            )
        self._submit(start)

    def _identify(self, client: Message) -> None:
        self._client = client
        self.client_info = client.get(META_CLIENT) or {}
        self.client_capabilities = client[META_CAPABILITIES]

    def _submit(self, start: Func) -> None:
        self._rules = rules(self.version)
        method = self.method
        self._row = METHODS.get(method)
        is_extended = method in self.server.methods
        function = SERVED.get(method)
        if is_extended:
            function = serve_extension
        is_hidden = self._row and (
            method not in self._rules.methods
            or self._row.capability not in self.server.declared
        )
        if function is None or is_hidden:
            meant = f"; did you mean {MISNAMED[method]}?" if method in MISNAMED else ""
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method:.200}{meant}")
        self._function = function
        self._may_ask = not is_extended and self._row.asks
        check_params(method, PARAMS.get(method, {}), self.params)
        if len(self.peer.running) >= MAX_RUNNING:
            raise RpcError(
                INTERNAL_ERROR, f"{MAX_RUNNING} requests are running: wait for some"
            )
        self.peer.running[self.id] = self
        if method == "server/discover":  # it must not wait for handlers
            self._perform()
        else:
            start(self._perform)

    # ---- running
    def _perform(self) -> None:
        """Run the handler and send the response. Raises only what `send` raises."""
        if not self._become("running"):
            self.peer.running.pop(self.id, None)
            return
        try:
            response = self._success(self._result())
        except BaseException as problem:
            response = self._failure(problem)
        if self._subscription is None:  # a subscription is answered when it ends
            self._finish(response)

    def _result(self) -> Message:
        """Return the method's result, or its questions; or raise the RpcError."""
        try:
            if self._may_ask:
                self._questions.restore(self)
            result: Message = self._function(self.server, self)
            if self._questions.unawaited:
                raise RuntimeError("write `await` before ctx.elicit() and the like")
            if self._questions.missing:
                raise InputRequired  # the handler has swallowed the first one
        except BaseException as problem:
            result = self._explain(problem)
        return self._shape(result)

    def _explain(self, problem: BaseException) -> Message:
        """Turn an exception into a result or an RpcError: see the table above."""
        if self._questions.missing:  # InputRequired, perhaps in a TaskGroup's group
            return self._questions.input_required(self)
        if not isinstance(problem, (Exception, SystemExit)):
            raise problem
        errors = self._rules.errors
        if isinstance(problem, ClientLacks) and self.method == "tools/call":
            if MISSING_CAPABILITY not in errors:
                return tool_error(str(problem))
        if isinstance(problem, RpcError):
            raise problem
        if isinstance(problem, ToolError) and self._in_tool:
            return tool_error(str(problem))
        if isinstance(problem, NotFound) and not self._in_tool:
            code = INVALID_PARAMS
            if RESOURCE_NOT_FOUND in errors:
                code = RESOURCE_NOT_FOUND
            raise RpcError(
                code,
                str(problem) or "Resource not found",
                without_none(uri=self.params.get("uri")) or None,
            )

        if not self.cancelled:
            name = f"tool {self.params['name']}" if self._in_tool else self.method
            log_failure(name, problem)
        if not self._in_tool:
            raise RpcError(INTERNAL_ERROR)
        while failures := getattr(problem, "exceptions", None):  # of a TaskGroup
            problem = failures[0]
        if not self.server.show_errors:
            return tool_error("the tool failed; see the server's log")
        text = str(problem)
        if not text or isinstance(problem, KeyError):
            text = repr(problem)
        elif re.fullmatch(r"-?\d+", text):  # of sys.exit(2), for example
            text = f"{type(problem).__name__}: {text}"
        return tool_error(text)

    # ---- the shape of results and errors
    def _success(self, result: Message) -> Message:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def _failure(self, problem: BaseException) -> Message:
        """Make an error response. A reserved code that the revision lacks is -32603."""
        with suppress(BaseException):  # in an author's exception, or in logging
            if isinstance(problem, RpcError):
                is_reserved = -32768 <= problem.code <= -32000
                if is_reserved and problem.code not in self._rules.errors:
                    problem = RpcError(INTERNAL_ERROR, str(problem), problem.data)
                return error_response(problem, {"id": self.id})
            log_failure(self.method, problem)
        return error_response(RpcError(INTERNAL_ERROR), {"id": self.id})

    def _shape(self, result: Message) -> Message:
        """Add the members that the revision requires, and drop those that it lacks:
        basic/index §ResultType."""
        seen = self._rules
        if seen.hidden and self._row:  # not the result of an extension's method
            result = downgrade(seen, "result", result)
            if not seen.has("any structured content"):
                keep_objects(result)

        shaped: Message = {}
        if seen.has("result types"):
            shaped["resultType"] = "complete"
        is_final = result.get("resultType") != "input_required"
        if self._row and self._row.cacheable and is_final and seen.has("caching hints"):
            shaped.update(self.server.cache_hints)
        shaped.update(result)
        if seen.has("server info"):
            shaped["_meta"] = {
                META_SERVER: self.server.brief,
                **result.get("_meta", {}),
            }
        return shaped

    # ---- sending and ending
    def _emit(self, message: Message) -> None:
        """Send a message of this request, unless it has ended; the caller must hold no
        other lock."""
        with self._sending:
            if self._state == "running":
                self._send(message)

    def _finish(self, response: Message) -> None:
        self.peer.running.pop(self.id, None)
        with self._sending:
            if not self._become("answered"):
                return
            try:
                self._send(response)
            except Exception as problem:  # it is not JSON, too large, ...
                _log(f"the result of {self.method} cannot be sent: {problem!r}")
                if self.method == "tools/call" and "result" in response:
                    result = tool_error(f"the result cannot be sent: {problem!s:.200}")
                    response = self._success(self._shape(result))
                else:
                    response = self._failure(RpcError(INTERNAL_ERROR))
                self._send(response)

    def _become(self, state: str) -> bool:
        with self._ending:
            steps = _NEXT[self._state]
            if state not in steps:
                raise RuntimeError(
                    f"a bug in mcp_ref or a transport: {self.method} {self.id!r}"
                    f" was {self._state}, and cannot become {state}"
                )
            if steps[state]:
                self._state = state
            return steps[state]

    def _cancel(self) -> None:
        """End the request without a response; does not block."""
        if self._become("cancelled"):
            for wake in self._wakes:
                wake()

    def _wake_with(self, wake: Func) -> None:
        """Have _cancel() call a function, which must not block; call it now if the
        request is cancelled."""
        with self._ending:
            if not self.cancelled:
                self._wakes.append(wake)
                return
        wake()


# ======== 8. The peer: running requests, cancellation =================================
# These events cancel a request (basic/patterns/cancellation §Transport-Specific
# Cancellation):
#
#                                      stdio   HTTP, modern   HTTP, legacy session
#     notifications/cancelled          yes     no             yes
#     the client hangs up              -       yes            no: it may resume a stream
#     end of input, DELETE             at end  -              no: handlers may finish
#
# A cancellation wakes coroutines, questions and subscriptions, and calls on_cancel()
# functions. Other handlers can only be asked to stop.


class Peer:
    """The other end of a pipe, of a legacy session, or of one modern POST.

        send        takes messages that belong to no request
        ordered     true on stdio: `cancelled` announces the end of a subscription
        running     requests that have not ended, by id
        closed      true once the client has left
        session     [legacy] the Session, once `initialize` has opened one
        null_ids    [legacy] true if errors without an id say `"id": null`
        questions   [legacy] our open questions to the client, by id: each a pair of
                    the question and the Future of its answer

    `running` and `questions` have no lock: use single operations, or a copy. Any thread
    may call any method.
    """

    def __init__(self, send: Send | None = None, *, ordered: bool = True) -> None:
        self.send: Send = send or drop
        self.ordered = ordered
        self.running: dict[Any, Context] = {}
        self.closed = False
        self.null_ids = False
        self.session: Session | None = None
        self.questions: dict[Any, Any] = {}
        self.question_ids = itertools.count(1)

    def check(self, ctx: Context) -> None:
        """Compare a modern request with its transport's headers."""

    def push(self, message: Message, send: Send) -> None:
        """Send a change, through `send`. A transport overrides this if `send` might
        wait for the client."""
        try:
            send(message)
        except Exception as problem:  # the other clients are still told
            _log(f"{message['method']} has not reached a client: {problem!r:.200}")

    def prepare(self, ctx: Context) -> None:
        """Prepare to send the messages of a subscription."""

    def register(self) -> None:
        """[legacy] Make a new session known to later requests."""

    def disconnect(self, send: Send) -> None:
        """[legacy] Have the client come back for the rest of an answer."""

    def check_questions(self) -> None:
        """[legacy] Check that a call may ask; AskError: too many do so. ClientLacks:
        there is no session."""

    def take_notification(self, message: Message) -> None:
        """Act on `cancelled` and `initialized`."""
        name = MISNAMED.get(message["method"], message["method"])
        params = message.get("params")
        if name == "notifications/cancelled" and isinstance(params, dict):
            ident = params.get("requestId", params.get("id"))  # LSP has `id`
            ctx = self.running.get(ident) if is_id(ident) else None
            if ctx:
                ctx._cancel()
        elif name == "notifications/initialized" and self.session:
            self.session.ready = True

    def cancel_all(self) -> None:
        """Cancel all requests that run."""
        for ctx in list(self.running.values()):
            ctx._cancel()

    def close(self) -> None:
        """End everything that waits for the client: subscriptions, questions."""
        self.closed = True
        if self.session:
            self.session.server.listeners.pop(self.session, None)
        for ctx in list(self.running.values()):
            if ctx._subscription:
                with suppress(Exception):  # cannot be sent; end the others
                    ctx._subscription.end()
        fail_questions(self, list(self.questions), "the session is closing")


# ======== 9. The server ===============================================================
# The whole server is `handle(message, send)`: a message comes in, messages go out. A
# `def` handler runs on the thread of the request, or that of `run=`; an `async def`
# handler on the event loop, while the thread of the request waits. Transports serve
# each message in a copy of the context (contextvars) of run()'s caller.


class Server(Registry):
    """An MCP server: register functions, then run() it. With a transport of your own,
    call handle() with each message.

    Handlers run on several threads at once. So guard shared data with a lock, or run
    handlers on one thread (`run`), or make them `async def`.

    `instructions` tell a model how to use the server. `page_size`: items per page of a
    list (None: all). `state_key` signs request state; processes that serve the same
    clients must share it. `run`: see RunHook. `loop`: the asyncio event loop of `async
    def` handlers; None: one on a thread of its own. `ttl_ms` and `cache_scope`
    ("private", "public") are caching hints. `show_errors`: the model gets the text of a
    tool's unexpected exception, too. `info`: title, description, websiteUrl, icons. To
    unregister, delete from the dicts `tools`, `resources`, `templates`, `prompts`, and
    call changed(). `on_watch` is called with the URI and the Context of each
    subscription to a resource; it raises an exception to refuse one.

        listeners      subscriptions, and sessions, that are told of changes
        _loop          the event loop; None: no coroutine has run
        _lock          guards the start of the loop, and of a session
    """

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
        show_errors: bool = True,
        **info: Any,
    ) -> None:
        super().__init__()
        self.brief = {"name": name, "version": version}
        names = "name version title description websiteUrl icons"
        self.info = checked({**self.brief, **info}, names)
        self.cache_hints = {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        checked(
            {"instructions": instructions, "pageSize": page_size, **self.cache_hints},
            "instructions pageSize ttlMs cacheScope",
        )
        self.instructions = instructions
        self.page_size = page_size
        if state_key is None:
            state_key = os.urandom(32)
        if isinstance(state_key, str):
            state_key = state_key.encode()
        if not isinstance(state_key, bytes) or len(state_key) < 16:
            raise ValueError("state_key must be str or bytes, of at least 16 bytes")
        self.state_key = state_key
        self.on_watch: Func = lambda uri, ctx: None
        self.listeners: dict[Any, None] = {}
        self.hook = RunHook(run)
        self.show_errors = show_errors
        self._given_loop = loop
        self._loop = loop
        self._lock = threading.Lock()
        self._endings: list[Func] = []
        self._stops = False

    def offered(self, kind: str, ctx: Context) -> Entries:
        """Return the entries that a caller may see; the kind as in entries().

        Override it to hide entries from `ctx.principal`.
        """
        return self.entries(kind)

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
        """Serve one decoded message, on any thread; `send` gets all that results.

        A modern client needs no `peer`. `start` gets the handler, and runs it once, on
        a thread of its choice.
        """
        peer = peer or Peer()
        if isinstance(message, dict) and message.get("params", "") is None:
            message = {**message, "params": {}}  # some clients send null
        if isinstance(message, list):
            return serve_batch(self, message, send, peer, principal, start)
        try:
            kind = kind_of(message)
            if kind == "request":
                meta = message.get("params", {}).get("_meta")
                if meta is None:
                    meta = {}
                if not isinstance(meta, dict):
                    raise invalid("_meta must be an object")
                if message["id"] in peer.running:
                    raise RpcError(INVALID_REQUEST, "Invalid request: the id is in use")
                # Some hosts mix both eras on one pipe.
                era = Context
                if META_VERSION not in meta:
                    era = LegacyContext
                era(self, peer, send, message, meta, principal)._admit(start)
            elif kind == "notification":
                peer.take_notification(message)
            elif is_id(message.get("id")):
                take_response(peer, message)
        except RpcError as error:
            send(error_response(error, message, peer.null_ids))

    def call_handler(
        self, entry: Entry, arguments: Message, ctx: Context, *values: Any
    ) -> Any:
        """Call a registered function on its proper thread, and return its result.

        Override it to count, limit or log calls with valid arguments.
        """
        invoke = partial(entry.invoke, arguments, ctx, *values)
        result = invoke() if entry.stays else self.hook.call(ctx, invoke)
        if hasattr(result, "__await__"):
            return self._await_coroutine(result, ctx)
        return result

    def _await_coroutine(self, coroutine: Any, ctx: Context) -> Any:
        import asyncio

        with self._lock:
            if not self._loop:
                loop = asyncio.new_event_loop()
                if not spawn("mcp-loop", partial(self._run_loop, loop)):
                    raise RuntimeError("no thread is left for the event loop")
                self._loop = loop
        if self.is_on_loop() or self._given_loop and not self._loop.is_running():
            coroutine.close()
            raise RuntimeError("loop= must run, and on another thread than the request")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        ctx._wake_with(future.cancel)
        return future.result()

    def _run_loop(self, loop: Any) -> None:
        while True:
            with suppress(SystemExit, KeyboardInterrupt):  # its request gets it
                loop.run_forever()

    def is_on_loop(self) -> bool:
        """Tell whether this is the loop's thread, which must not wait."""
        return bool(self._loop) and running_loop() is self._loop

    def call(self, name: str, /, **arguments: Any) -> Message:
        """Call a tool, for an author's own tests, and return its result.

        RpcError: the answer is an error. ClientLacks: the tool asks.
        """
        request = {
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        ctx = Context(self, Peer(), drop, request, meta_for(_MODERN[0]), None)
        ctx._admit(drop)  # checks it, but starts nothing
        return ctx._result()

    # ---- notifications to all listeners
    def changed(self, what: str) -> None:
        """Tell clients that "tools", "prompts", "resources" (their lists) or a URI
        changed, from any thread; over HTTP this does not wait."""
        if ":" in what:
            return self._tell(UPDATED, {"uri": what}, uri_key(what))
        method = f"notifications/{what}/list_changed"
        if method not in CHANGES:
            raise ValueError(f"{what!r}: expected tools, prompts, resources or a URI")
        self._tell(method, {})

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to no request, and is not a change, from any
        thread.

        A session gets it if its revision has it; a subscription, if its client asked
        for this name.
        """
        row = NOTIFICATIONS.get(method)
        if method in CHANGES or (row and "<" not in row.way):
            raise ValueError(
                f"{method}: for changes call changed(); clients send others"
            )
        encode(params)  # or it fails later, once for each listener
        self._tell(method, params or {})

    def _tell(self, method: str, params: Message, key: str = "") -> None:
        for listener in list(self.listeners):
            listener.tell(method, params, key)

    # ---- running
    def run(
        self, arguments: list[str] | None = None, *, http: str = "", **options: Any
    ) -> None:
        """Serve on stdio, or over HTTP if there is an argument `--http [HOST:]PORT`.

        `arguments` default to the command line's; `http="[HOST:]PORT"` does not read
        them. `options` are those of Endpoint. Returns when the client has left, after
        SIGINT or SIGTERM, or after stop().
        """
        refuse_loop()
        if isinstance(arguments, str):
            raise TypeError("arguments= is a list, as in run(['--http', '8000'])")
        # Without part II, no option has an effect.
        for name in options.keys() - globals().get("OPTIONS", options):
            raise TypeError(
                f"run() has no option {name}=: run() serves on stdio,"
                " run(http='127.0.0.1:8000', authorize=...) over HTTP"
            )
        if arguments is None:
            arguments = sys.argv[1:]
        place = http or find_place(arguments)
        if place is None:
            greet(arguments)
            serve_stdio(self)
        elif "serve_http" in globals():
            serve_http_at(self, place, options)
        else:
            raise SystemExit(
                "--http needs part II of mcp_ref.py, which this copy lacks"
            )

    def stop(self) -> None:
        """End run(), or the next one, as a signal does; any thread or signal handler
        may call this."""
        self._stops = True
        for end in list(self._endings):
            end()

    @contextmanager
    def stoppable(self, end: Func) -> Iterator[None]:
        """Have stop() call `end` while the body runs; `end` must take no lock."""
        self._endings.append(end)
        try:
            if self._stops:
                end()
            yield
        finally:
            self._stops = False  # first: a later stop() is for the next run()
            self._endings.remove(end)

    def run_here(self, arguments: list[str] | None = None, **options: Any) -> None:
        """Serve as run() does, on another thread, and call `def` handlers on this one,
        for an application whose data only one thread may touch."""
        refuse_loop()
        if self.hook.put:
            raise TypeError("run_here() calls handlers here: leave run= out")
        from concurrent.futures import ThreadPoolExecutor
        from queue import Empty, Queue

        waiting: Queue[Func] = Queue()
        self.hook.put = waiting.put
        try:
            with signals(lambda _: self.stop()), ThreadPoolExecutor(1) as pool:
                run: Any = copy_context().run
                serving = pool.submit(run, self.run, arguments, **options)
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
            self.hook.put = None


# ======== 10. One function per method =================================================
# The table in section 7 tells what becomes of an exception.

MAX_URIS = 1000  # that a session or a subscription watches
_MAX_NAMES = 100  # notifications of extensions that a subscription asks for
MAX_COMPLETIONS = 100  # values: server/utilities/completion §Completion Results


def serve_discover(server: Server, ctx: Context) -> Message:
    """Describe this server: server/discover §Response."""
    return without_none(
        supportedVersions=versions(),
        capabilities=server.capabilities(ctx.version),
        instructions=server.instructions,
        _meta={META_SERVER: server.info},
    )


def serve_list(server: Server, ctx: Context) -> Message:
    """Serve a page of definitions: server/utilities/pagination.

    result: {"tools": [...], "nextCursor": the index of the next item, as text}.
    """
    kind = ctx.method.split("/")[-2]  # "templates" of "resources/templates/list"
    entries = list(server.offered(kind, ctx).values())
    size = server.page_size or len(entries) or 1
    cursor = ctx.params.get("cursor") or "0"
    if cursor not in map(str, range(0, len(entries) + 1, size)):
        raise invalid("unknown cursor; list again without one")
    start = int(cursor)
    definitions = [entry.definition for entry in entries[start : start + size]]
    page: Message = {LISTS[ctx.method].member: definitions}
    if start + size < len(entries):
        page["nextCursor"] = str(start + size)
    return page


# ---- tools and prompts
def find_entry(ctx: Context, kind: str, name: str) -> Entry:
    table = ctx.server.offered(f"{kind}s", ctx)
    if name not in table:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name:.200}")
    return table[name]


def serve_call_tool(server: Server, ctx: Context) -> Message:
    """Call a tool: server/tools §Calling Tools, §Error Handling.

    params: {"name": ..., "arguments": {...}}; result: {"content": [...]}, and perhaps
    `structuredContent` or `isError`.
    """
    name = ctx.params["name"]
    entry = find_entry(ctx, "tool", name)
    arguments, errors = entry.fit(ctx.params.get("arguments") or {})
    if errors:
        listed = "\n".join(errors)
        if ctx._rules.has("argument errors"):
            return tool_error(f"Invalid arguments for {name}: {listed}")
        field, _, reason = errors[0].partition(": ")
        raise invalid(listed, {"field": field.lstrip("/"), "reason": reason})
    ctx._in_tool = True
    value = server.call_handler(entry, arguments, ctx)
    if isinstance(value, Result) and ctx._rules.modern:
        return value
    return tool_result(entry, value)


def serve_get_prompt(server: Server, ctx: Context) -> Message:
    """Fill in a prompt: server/prompts §Getting a Prompt, §PromptMessage.

    params: {"name": ..., "arguments": {name: text}}; result: {"messages": [{"role":
    "user" or "assistant", "content": {...}}]}.
    """
    entry = find_entry(ctx, "prompt", ctx.params["name"])
    arguments = entry.parse(ctx.params.get("arguments") or {})
    value = server.call_handler(entry, arguments, ctx)
    messages = []
    for item in value if isinstance(value, list) else [value]:
        if not (isinstance(item, dict) and "role" in item):
            item = {"role": "user", "content": item}
        if flaw := shape_of("role content", "role content").flaw(item):
            raise TypeError(f'a message has "role" and "content": {item!r:.200}{flaw}')
        messages.append({**item, "content": content(item["content"])})
    return without_none(
        description=entry.definition.get("description"), messages=messages
    )


# ---- resources
# A variable may become part of a path (server/resources §Security Considerations).
# Refused are an empty or absolute path, the folder itself, a drive, a segment "..", and
# invalid characters.
_ESCAPES = r"(?s)\.?([/\\]|$)|[A-Za-z]:|(.*[/\\])?\.\.([/\\]|$)|.*[\0\ufffd]"


def find_resource(ctx: Context, uri: str) -> tuple[Entry, Message]:
    """Return the entry behind a URI and the values of its variables; or NotFound.

    RpcError: a variable escapes its path segment, or does not fit its hint.
    """
    resources = ctx.server.offered("resources", ctx)
    if uri in resources:
        return resources[uri], {}
    for template, entry in list(ctx.server.offered("templates", ctx).items()):
        if match := entry.pattern.fullmatch(uri):
            from urllib.parse import unquote

            values = {name: unquote(value) for name, value in match.groupdict().items()}
            for name, value in values.items():
                is_one_segment = f"{{{name}}}" in template
                leaves = is_one_segment and re.search(r"[/\\]", value)
                if leaves or re.match(_ESCAPES, value):
                    raise invalid(f"the value of {name} escapes its path segment")
            return entry, entry.parse(values)
    raise NotFound


def serve_read(server: Server, ctx: Context) -> Message:
    """Read a resource: server/resources §Reading Resources.

    params: {"uri": ...}; result: {"contents": [{"uri", "mimeType", "text" or "blob"}]}.
    """
    uri = ctx.params["uri"]
    entry, variables = find_resource(ctx, uri)
    value = server.call_handler(entry, variables, ctx)
    if not (value and isinstance(value, list) and all(map(is_contents, value))):
        value = [value]
    mime_type = entry.definition.get("mimeType")
    found = [contents(uri, mime_type, part) for part in value]
    return {**entry.cache_hints, "contents": found}


class Subscription:
    """A client that listens for changes: basic/patterns/subscriptions.

        methods     the notifications that the client gets
        uris        uri_key() of each URI that it watches

    It is one of `server.listeners` from begin() to end(), which any thread may call.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.meta = {META_SUBSCRIPTION: ctx.id}
        self.methods: set[str] = set()
        self.uris: set[str] = set()
        self._granted: Message = {}
        server = ctx.server
        wanted = ctx.params["notifications"]
        uris = wanted.get("resourceSubscriptions", [])
        if not isinstance(uris, list) or len(uris) > MAX_URIS:
            raise invalid(f"resourceSubscriptions must be at most {MAX_URIS} strings")
        for method in CHANGES:
            row = NOTIFICATIONS[method]
            if row.capability in server.declared and wanted.get(row.filter) is True:
                self._granted[row.filter] = True
                self.methods.add(method)
        if uris and "resources" in server.declared:
            self._granted["resourceSubscriptions"] = uris
            self.uris = set(map(uri_key, uris))
            patterns = [entry.pattern for entry in server.templates.values()]
            for uri in uris:
                if uri in server.resources or any(
                    one.fullmatch(uri) for one in patterns
                ):
                    find_resource(ctx, uri)  # NotFound: hidden from this caller
                server.on_watch(uri, ctx)
        # Other names, with a slash, are for Server.notify().
        names = [name[:200] for name in wanted if "/" in name and wanted[name]]
        for name in names[:_MAX_NAMES]:
            if name not in CHANGES and ctx._rules.has_notification(name):
                self.methods.add(name)

    def begin(self) -> None:
        ctx = self.ctx
        # Listen first, or a change would be lost; `_sending` delays its message.
        with ctx._sending:
            ctx.server.listeners[self] = None
            try:
                ctx.notify(
                    "notifications/subscriptions/acknowledged",
                    {"notifications": self._granted, "_meta": self.meta},
                )
            except BaseException:
                del ctx.server.listeners[self]
                raise
            ctx._subscription = self
        # Free memory.
        self._granted = {}
        ctx.params = {}
        ctx.meta = {}
        ctx._identify({META_CAPABILITIES: {}})
        ctx._wake_with(self.end)
        if ctx.peer.closed:  # close() may not have seen it
            self.end()

    def tell(self, method: str, params: Message, key: str = "") -> None:
        """Send a notification, if the client wants it; `key`: uri_key() of its URI."""
        if method in self.methods or key in self.uris:
            params = {**params, "_meta": self.meta}
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            self.ctx.peer.push(message, self.ctx._emit)

    def end(self) -> None:
        ctx = self.ctx
        ctx.server.listeners.pop(self, None)
        if ctx.peer.running.pop(ctx.id, None) and not ctx.cancelled:
            if ctx.peer.ordered:
                ctx.notify(
                    "notifications/cancelled",
                    {"requestId": ctx.id, "reason": "closing", "_meta": self.meta},
                )
            ctx._finish(ctx._success(ctx._shape({"_meta": self.meta})))


def serve_listen(server: Server, ctx: Context) -> Message:
    """Begin a subscription, which is answered when it ends.

    params: {"notifications": {"toolsListChanged": true, "resourceSubscriptions":
    [uris], ...}}.
    """
    subscription = Subscription(ctx)
    ctx.peer.prepare(ctx)
    subscription.begin()
    return {}


# ---- completions, extensions
def serve_complete(server: Server, ctx: Context) -> Message:
    """Complete an argument: server/utilities/completion §Requesting Completions.

    params: {"ref": {"type": "ref/prompt", "name": ...} or {"type": "ref/resource",
    "uri": a template}, "argument": {"name", "value": the text so far}}; result:
    {"completion": {"values": [...]}}.
    """
    reference = ctx.params["ref"]
    argument = ctx.params["argument"]
    name = argument.get("name")
    typed = argument.get("value")
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
    if not isinstance(others, dict):
        raise invalid("`context.arguments` is no object")
    key = entry.definition.get("uriTemplate", entry.definition["name"])
    completer = server.completions.get((key, name))
    values = []
    if completer:
        values = server.call_handler(completer, {}, ctx, typed, others)
    if isinstance(values, str):
        raise TypeError("a completer must return a list of str, not a str")
    values = [as_text(to_json(value)) for value in values]
    return {
        "completion": {
            "values": values[:MAX_COMPLETIONS],
            "total": len(values),
            "hasMore": len(values) > MAX_COMPLETIONS,
        }
    }


# ---- [legacy] methods of a session
def set_level(server: Server, ctx: Any) -> Message:
    """[2025-11-25] server/utilities/logging §Setting Log Level."""
    ctx.peer.session.meta[META_LOG_LEVEL] = ctx.params["level"]
    return {}


def subscribe_resource(server: Server, ctx: Any) -> Message:
    """[2025-11-25] server/resources §Subscriptions."""
    uri = ctx.params["uri"]
    watched = ctx.peer.session.uris
    key = uri_key(uri)
    if "resources/read" not in server.methods:  # an extension has its own
        find_resource(ctx, uri)
    if len(watched) >= MAX_URIS and key not in watched:
        raise invalid(f"uri: a session watches at most {MAX_URIS}")
    server.on_watch(uri, ctx)
    watched.add(key)
    return {}


def unsubscribe_resource(server: Server, ctx: Any) -> Message:
    """[2025-11-25] server/resources §Subscriptions."""
    ctx.peer.session.uris.discard(uri_key(ctx.params["uri"]))
    return {}


# ---- extensions, and the table
def serve_extension(server: Server, ctx: Context) -> Message:
    return server.call_handler(server.methods[ctx.method], {}, ctx, ctx.params) or {}


SERVED: dict[str, Func] = {
    "server/discover": serve_discover,
    "subscriptions/listen": serve_listen,
    **dict.fromkeys(LISTS, serve_list),
    "tools/call": serve_call_tool,
    "resources/read": serve_read,
    "prompts/get": serve_get_prompt,
    "completion/complete": serve_complete,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe_resource,
    "resources/unsubscribe": unsubscribe_resource,
}


# ======== 11. Sessions, questions as requests, batches ================================
# A legacy client opens a session with `initialize`. A LegacyContext knows its client by
# the session (_admit), and asks it with requests (_obtain). A session on the wire:
#
#     > 0  initialize {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}},
#              "clientInfo": {"name": "host", "version": "1"}}
#     < 0  {"protocolVersion": "2025-11-25", "capabilities": {"tools": {...}},
#              "serverInfo": {"name": "hello", "version": "1.0"}}
#     >    notifications/initialized
#     > 1  tools/call {"name": "where"}
#     < 1  roots/list                            the server asks: an id of its own
#     > 1  {"roots": [{"uri": "file:///home"}]}  the answer to this request
#     < 1  {"content": [...]}

# The parts of capabilities, and the names of a client, that a session keeps.
_PARTS = ("form", "url", "tools", "context", "listChanged")
_NAMES = ("name", "title", "version")
MAX_NAME_LENGTH = 1000  # of each name


class Session:
    """The client's `initialize`, kept; it listens for all changes.

        meta       who the client is and what it can do, as in a modern `_meta`
        ready      true once notifications/initialized has come
        uris       uri_key() of each URI of which it gets UPDATED

    It is one of `server.listeners` while messages can be sent to its peer.
    """

    def __init__(
        self, server: Server, peer: Peer, version: str, params: Message
    ) -> None:
        self.server = server
        self.peer = peer
        self.rules = rules(version)
        info = params.get("clientInfo", {})
        named = {key: str(info[key])[:MAX_NAME_LENGTH] for key in _NAMES if key in info}
        declared = params.get("capabilities", {})
        usable = {}
        for row in METHODS.values():
            given = declared.get(row.capability)
            if isinstance(given, dict):
                parts: Message = {part: {} for part in _PARTS if part in given}
                usable[row.capability] = downgrade(self.rules, row.capability, parts)
        self.meta: Message = {
            META_CLIENT: named,
            META_CAPABILITIES: usable,
            META_LOG_LEVEL: "info",
        }
        self.ready = False
        self.methods = {
            method
            for method, row in self.rules.notifications.items()
            if row.capability in server.declared and method != UPDATED
        }
        self.uris: set[str] = set()

    def open(self) -> None:
        self.peer.session = self
        self.peer.null_ids = self.rules.has("null id in errors")

    def tell(self, method: str, params: Message, key: str = "") -> None:
        is_meant = method in self.methods or key in self.uris
        if self.ready and (is_meant or method not in NOTIFICATIONS):
            message = without_none(jsonrpc="2.0", method=method, params=params or None)
            self.peer.push(message, self.peer.send)


# ---- open questions: a thread that takes one out of peer.questions must set its Future
def take_response(peer: Peer, response: Message) -> None:
    """Pass a response to its question; ignore one that has none."""
    taken = peer.questions.pop(response["id"], None)
    if not taken:
        return
    question, future = taken
    error = response.get("error")
    try:
        if isinstance(error, dict):
            raise AskError(f"the client refused: {error.get('message')!s:.200}", error)
        future.set_result(usable_answer(question, response.get("result")))
    except AskError as problem:
        future.set_exception(problem)


def fail_questions(peer: Peer, idents: list[Any], reason: str) -> None:
    for ident in idents:
        if question := peer.questions.pop(ident, None):
            question[1].set_exception(AskError(reason))


def answers_in(futures: Message) -> Message:
    """Return the answers by key; AskError: one is missing, or not usable."""
    answers = {key: one.result() for key, one in futures.items() if one.done()}
    if len(answers) < len(futures):
        raise AskError(f"the client did not answer within {ASK_SECONDS:g} s")
    return answers


class LegacyContext(Context):
    """A request in a session; also `initialize` and `ping`, which need none."""

    def _admit(self, start: Func) -> None:
        if self.method == "initialize":
            return self._finish(self._success(self._initialize()))
        if self.method == "ping":
            return self._finish(self._success({}))
        session = self.peer.session
        if session is None:
            raise invalid("send initialize first, or use _meta")
        self._identify(session.meta)
        self.version = session.rules.version
        self._submit(start)

    def _initialize(self) -> Message:
        """Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        check_params(self.method, PARAMS[self.method], self.params)
        version = self.params["protocolVersion"]
        if version not in versions("legacy"):
            version = versions("legacy")[0]
        server = self.server
        peer = self.peer
        session = Session(server, peer, version, self.params)
        peer.register()
        is_told = peer.send is not drop  # false if the endpoint is stateless
        declared = server.capabilities(version, tells=is_told)
        with server._lock:  # another one may come at the same moment
            server.listeners.pop(peer.session, None)
            session.open()
            if is_told:
                server.listeners[session] = None
        if peer.closed:  # close() may not have seen the session
            server.listeners.pop(session, None)
        return without_none(
            protocolVersion=version,
            capabilities=declared,
            serverInfo=downgrade(session.rules, "server", server.info),
            instructions=server.instructions,
        )

    def close_stream(self) -> None:
        with self._sending:
            self.peer.disconnect(self._send)

    def _obtain(self, questions: Message) -> Message:
        from concurrent.futures import wait

        with self._asking(questions) as futures:
            wait(futures.values(), ASK_SECONDS, "FIRST_EXCEPTION")
            return answers_in(futures)

    async def _obtain_later(self, questions: Message) -> Message:
        from asyncio import wait, wrap_future

        with self._asking(questions) as futures:
            waiting = [wrap_future(future) for future in futures.values()]
            for one in waiting:  # asyncio logs an exception that nobody has asked for
                one.add_done_callback(lambda one: one.cancelled() or one.exception())
            if waiting:
                await wait(waiting, timeout=ASK_SECONDS, return_when="FIRST_EXCEPTION")
            return answers_in(futures)

    @contextmanager
    def _asking(self, questions: Message) -> Iterator[Message]:
        """Send questions as requests; yield the Futures of the answers, by key."""
        from concurrent.futures import Future

        peer = self.peer
        futures: Message = {key: Future() for key in questions}
        idents = []
        try:
            for key, question in questions.items():
                ident = next(peer.question_ids)
                idents.append(ident)
                peer.questions[ident] = question, futures[key]
                asked = as_asked(self._rules, question)
                request = {"jsonrpc": "2.0", "id": ident, **asked}
                # [2025-11-25] client/elicitation
                if "url" in request.get("params", {}):
                    request["params"].setdefault("elicitationId", os.urandom(16).hex())
                self._emit(request)
            self._wake_with(partial(fail_questions, peer, idents, "it was cancelled"))
            if peer.closed:  # close() may not have seen them
                fail_questions(peer, idents, "the session is closing")
            yield futures
        finally:
            for ident in idents:
                if peer.questions.pop(ident, None) and not peer.closed:
                    self.notify("notifications/cancelled", {"requestId": ident})


# ---- batches
def serve_batch(
    server: Server,
    batch: list[Any],
    send: Send,
    peer: Peer,
    principal: Any,
    start: Func,
) -> None:
    """Serve an array of messages: [2025-03-26] basic/index §Batching.

    The responses are sent in one array, other messages at once.
    """
    refusal = RpcError(
        INVALID_REQUEST,
        f"Invalid request: only {R2} has batches, of 1 to "
        f"{MAX_BATCH} messages, none of them `initialize`",
    )
    has_batches = peer.session and peer.session.rules.has("batches")
    if not has_batches or not 0 < len(batch) <= MAX_BATCH:
        return send(error_response(refusal, None, peer.null_ids))
    responses: list[Message] = []
    size = 0

    def collect(message: Message) -> None:
        nonlocal size
        line = encode(message)  # a message that cannot be sent fails alone
        if "method" in message:
            return send(message)
        size += len(line)
        if size > MAX_BATCH_BYTES:
            error = RpcError(INTERNAL_ERROR, "the batch's answers are too large")
            message = error_response(error, message)
        responses.append(message)

    def serve_all() -> None:
        for member in batch:
            if isinstance(member, dict) and member.get("method") != "initialize":
                server.handle(member, collect, peer=peer, principal=principal)
            else:
                collect(error_response(refusal, member, peer.null_ids))
        if responses:
            send(responses)

    # Without a request, the answer over HTTP is 202.
    if any(map(is_request, batch)):
        start(serve_all)
    else:
        serve_all()


# ======== 12. stdio ===================================================================
# One thread, the *reader*, reads a line, runs its handler, sends the response, and
# reads on. While a handler runs, a second thread stands by, the *deputy*. If the same
# handler still runs after 10 ms (1 ms while others are slow), the deputy becomes the
# reader. The old reader finishes its handler, then the handlers that wait in a queue,
# and ends. While MAX_THREADS handlers are slow, the reader puts others into the queue,
# and still serves messages that run no author's code, such as `ping` and cancellations.
#
# At the end of input, running handlers have LEAVE_SECONDS to finish (FILE_SECONDS, if a
# file has ended); after a signal, stop(), or a client that closes our stdout, 50 ms.
# Then they are cancelled. Subscriptions and open questions end at once.

MAX_THREADS = 64  # slow handlers at once; further calls wait
FILE_SECONDS = 600  # for running handlers, after the end of a file


class Pipe(Peer):
    """A client at two file descriptors: serve() serves it, stop() ends that.

    A socket is one descriptor twice. The caller closes them; a socket is shut down
    first, or a thread might still read.

        _deadline    until then, running handlers may finish; inf until stop()
        _writing     guards `_out`

    `_lock` guards these:

        _handler     the handler that the reader runs; None: it reads
        _has_deputy  true while a deputy stands by
        _slow        number of old readers
        _queue       handlers; empty while `_slow` is below MAX_THREADS
    """

    def __init__(self, server: Server, source: int, out: int) -> None:
        super().__init__(self._write)
        self.server = server
        # Files put their descriptors into binary mode: on Windows, \n would be \r\n.
        self._source = os.fdopen(source, "rb", 2**16, closefd=False)
        self._out = os.fdopen(out, "wb", 0, closefd=False)
        self._trace = tracer()
        self._deadline = inf
        self._serving = threading.Lock()
        self._serving.acquire()
        self._context = copy_context()
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._handler: Func | None = None
        self._has_deputy = False
        self._slow = 0
        self._queue: deque[Func] = deque()

    def _write(self, message: Any) -> None:
        line = encode(message)
        self._trace("<", line)
        try:
            with self._writing:
                while line:
                    # A pipe may take only a part.
                    line = line[self._out.write(line) :]
        except OSError:
            self.stop()  # nobody reads

    def stop(self, patience: float = 0.05) -> None:
        """End serve(). A signal handler may call this: unlike an Event's set(), it
        waits for no lock."""
        self._deadline = min(self._deadline, time.monotonic() + patience)
        with suppress(RuntimeError):  # released before
            self._serving.release()

    # ---- the reader and its deputy
    def _read(self, has_read: bool = False) -> None:
        """Be the reader; after that, if a deputy has become it, empty the queue."""
        is_reader = True
        while is_reader and self._deadline == inf:
            line = self._read_line()
            if not line:
                self._trace(">", b"", closed=True)
                if not has_read:
                    _log("input ended before any message; `--http 8000` needs no input")
                is_file = os.path.isfile(self._source.fileno())
                self.stop(FILE_SECONDS if is_file else LEAVE_SECONDS)
            elif self._deadline == inf and not line.isspace():
                has_read = True
                context = self._context.copy()
                handlers: list[Func] = []
                context.run(self._serve, line.rstrip(b"\r\n"), handlers.append)
                for handler in handlers:  # at most one
                    is_reader = self._run(partial(context.run, attempt, handler))
        if not is_reader:
            self._empty_queue()

    def _read_line(self) -> bytes:
        """Return the next line; if it is too long, enough for decode() to refuse it."""
        try:
            line = part = self._source.readline(MAX_MESSAGE_BYTES + 2)
            while len(part) >= MAX_MESSAGE_BYTES and not part.endswith(b"\n"):
                part = self._source.readline(MAX_MESSAGE_BYTES)
        except (OSError, MemoryError):
            return b""
        return line

    def _serve(self, line: bytes, start: Func) -> None:
        """Serve a line, but leave its handler to `start`."""
        message = None
        self._trace(">", line)
        try:
            message = decode(line)
            self.server.handle(message, self.send, peer=self, start=start)
        except RpcError as error:
            _log(f"{error}, in: {line!s:.200}")
            self.send(error_response(error, None, self.null_ids))
        except Exception as problem:
            log_failure("a message", problem)
            self.send(error_response(RpcError(INTERNAL_ERROR), message, self.null_ids))

    def _run(self, handler: Func) -> bool:
        """Run a handler, or queue it; tell whether this is still the reader."""
        with self._lock:
            if self._slow >= MAX_THREADS:
                self._queue.append(handler)
                return True
            self._handler = handler
            if not self._has_deputy:
                stand_by = partial(self._stand_by, handler)
                self._has_deputy = spawn("mcp-deputy", stand_by)
        handler()
        with self._lock:
            is_reader = self._handler is handler
            if is_reader:
                self._handler = None
        return is_reader

    def _stand_by(self, seen: Func | None) -> None:
        """Be the deputy, until the same handler, or none, runs at two checks."""
        while True:
            time.sleep(BLINK_SECONDS / 10 if self._slow else BLINK_SECONDS)
            with self._lock:
                handler = self._handler
                if handler is not seen:
                    seen = handler
                    continue
                self._has_deputy = False
                if handler is None:
                    return
                self._handler = None  # tells _run() that it is not the reader
                self._slow += 1
            return self._read(has_read=True)

    def _empty_queue(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._slow -= 1
                    return
                handler = self._queue.popleft()
            handler()

    # ---- the caller of serve_stdio()
    def serve(self) -> None:
        """Serve until the client leaves or a signal comes."""
        spawn("mcp-hang-up", self._await_hang_up)
        seconds = 0.1
        try:
            if not spawn("mcp-reader", self._read):
                self._read()
            while self._deadline == inf:
                # A signal that came just before does not interrupt this.
                self._serving.acquire(timeout=seconds)
                if os.name == "posix":
                    seconds *= 2
        finally:
            self._finish()

    def _await_hang_up(self) -> None:
        """Notice that the client has closed our stdout."""
        import select

        if hasattr(select, "poll"):  # on Windows, the next write notices it
            poll = select.poll()
            poll.register(self._out, 0)  # errors and hang-ups are always reported
            poll.poll()
            self.stop()

    def _finish(self) -> None:
        if self._deadline == inf:  # an author's signal handler has raised
            self.stop()
        run_aside("mcp-close", self.close, self)  # it may wait for the client
        while self._is_busy() and time.monotonic() < self._deadline:
            time.sleep(BLINK_SECONDS)
        join_threads(self, self._deadline - time.monotonic())
        abandon(self)
        join_threads(self.server, ON_CANCEL_SECONDS)

    def _is_busy(self) -> bool:
        with self._lock:
            return bool(self._slow or self._handler)


def abandon(peer: Peer) -> None:
    """Cancel all requests that run, and name them in the log."""
    left = list(peer.running.values())
    names = [f"{one.method} {one.params.get('name', '')}" for one in left]
    if names:
        _log(f"requests abandoned: {', '.join(names):.500}")
    peer.cancel_all()


def serve_stdio(server: Server) -> None:
    """Serve the client on stdin and stdout until it leaves; or a signal, or stop().

    It takes descriptors 0 and 1 for good. (basic/transports/stdio)
    """
    server.check_completions()
    pipe = Pipe(server, *guard_stdio())
    with signals(lambda _: pipe.stop()), server.stoppable(pipe.stop):
        pipe.serve()


# ======== Part II: the same over HTTP =================================================
# HTTP adds two problems: strangers, who may send anything as slowly as they like, and
# connections, which break while a handler runs.

# ======== 13. The endpoint: the rules of HTTP, without sockets ========================
# Streamable HTTP (basic/transports/streamable-http) over an abstract *exchange*: a
# request, and the means to answer it. Every message is a POST of its own. The answer is
# one JSON object, or a stream of events, if something must be sent before the response:
# a message, or a comment when a proxy might take silence for a failure. The first
# failing check determines the answer:
#
#     a header twice 400, Host and Origin 403, path 404, verb 405, authorization 401 or
#     403, Content-Length 413, type 415, JSON 400 (-32700), not a message 400 (-32600),
#     `_meta` 400 (-32602), headers 400 (-32020), version 400 (-32022), method 404
#     (-32601), params 400 (-32602)
#
# Events go through an *outbox*. The thread that adds one of this request also writes
# it, under the lock of the *answer*; others, such as changes, are left to the
# connection's thread. A call that reports progress has these events:
#
#     data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}
#
#     data: {"jsonrpc": "2.0", "id": 1, "result": {...}}
#
# While a handler runs, nothing reads from its connection. So one thread, `mcp-check`,
# looks for clients that have hung up, and for comments that are due.

__all__ += """
    AHEAD_BYTES BODY_SECONDS CHECK_SECONDS DRAIN_SECONDS KEEP_ALIVE_SECONDS
    MAX_BODY_BYTES MAX_CONNECTIONS MAX_HEADERS MAX_IDLE_SECONDS MAX_LINE_BYTES
    MAX_SENDING_BYTES SEND_SECONDS STALL_SECONDS Endpoint Exchange HttpError bearer
    event http_server mirror serve_http unmirror
""".split()

KEEP_ALIVE_SECONDS = 15  # of silence, until a stream gets a comment
CHECK_SECONDS = 0.2  # between two checks for clients that have hung up
MAX_BODY_BYTES = 4 * 2**20  # of a request
MAX_CONNECTIONS = 512  # at once, if there are descriptors; further ones get 503
AHEAD_BYTES = 2**24  # of events that wait for a client; then its stream ends
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
    """An HTTP answer that is not a message. In a client, `url` says where it came from.

    `authorize` raises it to refuse a caller with a status and headers of its choice.
    """

    def __init__(
        self, status: int, message: str, headers: Headers | None = None, url: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.url = url


def read_chunks(stream: Any) -> bytes:
    """Read a chunked body: RFC 9112 §7.1. Chunks may be tiny, so their heads count."""
    data = bytearray()
    left = MAX_BODY_BYTES
    size = -1  # of the chunk; 0 for the last one
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
        while not size and left > 0 and re.fullmatch(b"[^\r\n]+\r\n", line):
            left -= len(line)  # ignore trailers after the last chunk
            line = stream.readline(1000)
        if line != b"\r\n":
            raise HttpError(400, "a chunk or a trailer is malformed")
    return bytes(data)


class Exchange:
    """One HTTP request and the way to answer it.

    A subclass defines start(), write() and end(), for any thread, but one at a time;
    and, if it can, ready(), gone() and hang_up(), which must not wait. OSError: the
    client has hung up.

        headers      by lower-case name; they are given as (name, value) pairs
        stream       for the body; it has read(size) and readline(size)
        hosts        names that Host may have, if the endpoint has none; None: any
        address      the client's, for the log
        extra        headers to add to any answer
        flaw         the HttpError for malformed headers
        unread       true while there is a body that has not been read
        closing      true if the connection ends with this answer
    """

    closing = False
    hosts: set[str] | None = None
    address = ""

    def __init__(
        self, method: str, target: str, headers: Iterable[Any], stream: Any
    ) -> None:
        self.method = method
        self.stream = stream
        self.path, _, self.query = target.partition("?")
        self.name = printable(f"{method} {self.path:.200}")
        self.principal: Any = None
        self.extra: Headers = {}
        self.flaw: HttpError | None = None
        self.headers: Headers = {}
        for key, given in headers:
            name = key.lower()
            value = given.strip(" \t")
            if name in self.headers:
                value = f"{self.headers[name]}, {value}"
                if re.fullmatch(_UNIQUE, name):
                    self.flaw = HttpError(400, f"the header {name} is repeated")
            self.headers[name] = value
        has_length = self.headers.get("content-length", "0") != "0"
        self.unread = has_length or "transfer-encoding" in self.headers

    def length(self) -> int | None:
        """Return the Content-Length; None for a chunked body (RFC 9112 §6)."""
        length = self.headers.get("content-length", "0")
        coding = self.headers.get("transfer-encoding")
        if coding is None and re.fullmatch("[0-9]{1,15}", length):
            if int(length) > MAX_BODY_BYTES:
                raise HttpError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
            return int(length)
        is_chunked = coding is not None and coding.lower() == "chunked"
        if not is_chunked or "content-length" in self.headers:
            raise HttpError(
                400, "Content-Length must be a number, or Transfer-Encoding chunked"
            )
        return None

    def body(self) -> bytes:
        """Read the body."""
        length = self.length()
        if length is None:
            data = read_chunks(self.stream)
        else:
            data = self.stream.read(length)
            if len(data) < length:
                raise HttpError(400, "the body is shorter than its Content-Length")
        self.unread = False
        return data

    # ---- methods that a subclass overrides
    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        """Send the status, the headers and the body; None: a stream follows."""

    def write(self, data: bytes) -> None:
        """Send a part of a stream."""

    def end(self, hang_up: bool = False) -> None:
        """End a stream; `hang_up`: close the connection, too."""

    def ready(self) -> bool:
        """Tell whether a comment can be written without waiting for the client."""
        return False

    def gone(self) -> bool:
        """Tell whether the client has hung up."""
        return False

    def hang_up(self) -> None:
        """Close the connection of a client that has gone."""


def reply(exchange: Exchange, status: int, line: bytes = b"") -> None:
    """Send an answer that is not a stream. Log a refusal."""
    if status >= 400 and status not in (404, 405):
        _log(
            f"{exchange.address} {exchange.name}: {status} {line.decode():.500}".strip()
        )
    headers = dict(exchange.extra)
    if line:
        headers.setdefault("Content-Type", "application/json")
    with suppress(OSError):  # the client has hung up
        exchange.start(status, headers, line)


def event(data: bytes, ident: str = "", **fields: Any) -> bytes:
    """Make a server-sent event of a line of JSON."""
    head = ""
    for name, value in {"id": ident, **fields}.items():
        if value:
            head += f"{name}: {value}\n"
    return head.encode() + b"data: " + data.rstrip(b"\n") + b"\n\n"


# ---- a stream: an Outbox has the events, an Answer writes them to an exchange
class Outbox:
    """The events of a stream, in order, for one reader at a time.

        events     those that wait for the reader, and some before them, as JSON
        changes    those of CHANGES that wait
        first      the number of the first of `events`; the numbers begin with 1
        place      the number of the next event that the reader takes
        size       the bytes of `events`
        keeps      bytes of taken events to keep, for a client that comes back
        reader     the Answer that takes events, if any
        ended      true once nothing more is added
        expires    when its session forgets it, once its answer has ended

    `_moved` guards the fields before the last. Any thread may call any method; only
    wait() waits.
    """

    def __init__(self, reader: Answer | None = None, keeps: int = 0) -> None:
        self.keeps = keeps
        self.expires = inf
        self.name = os.urandom(16).hex()
        self.events: deque[bytes] = deque()
        self.changes: set[bytes] = set()
        self.first = 1
        self.place = 1
        self.size = 0
        self.reader = reader
        self.ended = False
        self._moved = threading.Condition()

    # ---- for writers
    def add(self, line: bytes, last: bool = False) -> None:
        with self._moved:
            if self.ended:
                return
            self.events.append(line)
            self.size += len(line)
            self.ended = last
            if self.size > AHEAD_BYTES + len(line):
                self.give_up()
            self._moved.notify_all()

    def give_up(self) -> None:
        """End, and drop everything: the client is too far behind."""
        with self._moved:
            self.events.clear()
            self.size = 0
            self.reader = None
            self.end()

    def add_note(self, method: str, line: bytes) -> None:
        """Add a notification; a change, only if the same one does not wait."""
        with self._moved:
            if line not in self.changes:
                self.add(line)
                if method in CHANGES:
                    self.changes.add(line)

    def end(self) -> None:
        """Add nothing more. The reader ends when it has taken the rest."""
        with self._moved:
            self.ended = True
            self._moved.notify_all()

    def drop_old(self) -> None:
        """Drop the oldest events beyond `keeps` bytes. Those that wait are dropped only
        if there is no reader; the response, never."""
        with self._moved:
            while self.size > self.keeps and self.events:
                is_response = self.ended and len(self.events) == 1
                if self.place == self.first:
                    if self.reader or is_response:
                        break
                    self.place += 1
                self.first += 1
                line = self.events.popleft()
                self.changes.discard(line)
                self.size -= len(line)

    # ---- for readers
    def attach(self, reader: Answer, after: int | None = None) -> bool:
        """Let a reader take the waiting events, or all after one that the client has
        seen. Any other reader must end. False: the outbox has ended, without such
        events."""
        with self._moved:
            if after is not None:
                following = self.first + len(self.events)
                place = max(self.first, min(after + 1, following))
                if self.ended and place == following:
                    return False
                self.place = place
            self.reader = reader
            self._moved.notify_all()
            return True

    def wait(self, reader: Answer) -> None:
        """Wait until there is an event for a reader, or it must end."""
        with self._moved:
            self._moved.wait_for(lambda: self._waiting() or self.is_done(reader))

    def take(self, reader: Answer) -> bytes:
        """Take the next event; b"": there is none."""
        with self._moved:
            if self.reader is not reader or not self._waiting():
                return b""
            line = self.events[self.place - self.first]
            self.changes.discard(line)
            ident = f"{self.name}-{self.place}" if self.keeps else ""
            self.place += 1
            self.drop_old()
            return event(line, ident)

    def detach(self, reader: Answer | None) -> None:
        with self._moved:
            if self.reader is reader:
                self.reader = None
                self._moved.notify_all()

    def is_done(self, reader: Answer) -> bool:
        with self._moved:
            return self.reader is not reader or (self.ended and not self._waiting())

    def _waiting(self) -> int:  # call it while holding the lock
        return self.first + len(self.events) - self.place


class Answer:
    """The answer to a POST, or to a GET that listens; it is called to send a message.

        state       outbox   ended    what the client has
        new         None     no       nothing
        in JSON     None     yes      the response
        a stream    there    no       events; others may follow
        complete    there    yes      events, and the end
        lost        any      yes      it has hung up

        listens     true for a subscription, and for a GET: only the connection's thread
                    writes
        greeting    the first event of the stream, which is not numbered
        is_early    true until a handler starts: an error may have its own status
        begun       true once the head of a stream has been sent
        written     when something was written last, or the request came

    `lock` guards the last two, `outbox` and `ended`, and is held while something is
    written. Any thread may call any method, except finish(), which is for the
    connection's thread.
    """

    def __init__(self, exchange: Exchange, peer: Any, listens: bool = False) -> None:
        self.exchange = exchange
        self.peer = peer
        self.listens = listens
        self.outbox: Outbox | None = None
        self.ended = False
        self.is_early = True
        self.greeting = b""
        self.begun = False
        self.written = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, message: Any) -> None:
        """Send a message, or the list of answers to a batch."""
        line = encode(message)
        is_last = "method" not in message
        if not is_last and not self.takes_events():
            if "id" in message:
                raise ClientLacks(MISSING_CAPABILITY, "the client accepts no events")
            return
        if is_last and self.outbox is None:
            with self.lock:
                if self.outbox is None:  # or mcp-check was first
                    reply(self.exchange, self._status(message), line)
                    self.ended = True
                    return
        outbox = self.stream()
        if self.listens and not is_last:
            outbox.add_note(message["method"], line)
        else:
            outbox.add(line, is_last)
        reader = outbox.reader  # this answer, or that of a GET that has resumed it
        if not reader:
            outbox.drop_old()
        elif not self.listens:
            reader.flush()

    def _status(self, message: Any) -> int:
        code = message["error"]["code"] if "error" in message else None
        # -32021 comes from a handler, but has a status of its own.
        if code == MISSING_CAPABILITY or (self.is_early and code in ERRORS):
            return int(ERRORS[code].status)
        return 200

    # ---- streams
    def takes_events(self) -> bool:
        """Tell whether the client accepts a stream; without Accept, it does."""
        accept = self.exchange.headers.get("accept", "*/*")
        names_them = re.search(r"(?i)text/(event-stream|\*)|\*/\*", accept)
        return self.listens or bool(names_them)

    def stream(self) -> Any:
        """Become a stream, if need be; return the outbox."""
        if self.outbox is None:
            with self.lock:
                self.outbox = self.outbox or self.peer.new_outbox(self)
                if self.ended:  # the client has left
                    self.outbox.detach(self)
        return self.outbox

    def flush(self) -> None:
        """Write the events that wait, and the end after the last one."""
        with self.lock:
            if self.ended:
                return
            try:
                return self._write()
            except (OSError, ValueError):  # ValueError: the socket is closed
                self.ended = True
        self._lose_client()

    def _begin(self) -> None:
        self.begun = True
        exchange = self.exchange
        exchange.start(200, {**STREAM_HEADERS, **exchange.extra}, None)
        if self.greeting:
            exchange.write(self.greeting)

    def _write(self) -> None:
        exchange = self.exchange
        outbox: Any = self.outbox
        if not self.begun:
            self._begin()
        while data := outbox.take(self):
            exchange.write(data)
        self.written = time.monotonic()
        if outbox.is_done(self):
            exchange.end(outbox.reader is None)  # then the client must come back
            self.ended = True  # not before, or finish() would return too early
            outbox.detach(self)

    def finish(self) -> None:
        """End the answer after its handler: as a stream, if there was no response."""
        if self.outbox is None and self.ended:
            return  # in JSON
        outbox = self.stream()
        if not self.listens:
            outbox.end()
        while not self.ended:
            self.flush()
            outbox.wait(self)

    # ---- clients that have hung up, and silent connections
    def check(self) -> None:
        if not self.lock.acquire(blocking=False):
            return  # another thread is writing, and notices it
        try:
            if not self.ended:
                self._keep_alive()
            return
        except (OSError, ValueError):
            self.ended = True
        finally:
            self.lock.release()
        self.exchange.hang_up()  # its thread may be busy
        self._lose_client()

    def _keep_alive(self) -> None:
        """Send a comment that is due; OSError: the client has left."""
        now = time.monotonic()
        exchange = self.exchange
        if self.written + KEEP_ALIVE_SECONDS < now and exchange.ready():
            self.written = now
            if self.outbox is None and self.takes_events():
                self.outbox = self.peer.new_outbox(self)
                self._begin()
            if self.begun:
                exchange.write(b": \n\n")
        if exchange.gone():
            raise OSError("the client has left")

    def _lose_client(self) -> None:
        """Modern: cancel the request. Legacy: the client may come back for the rest."""
        if self.outbox:
            self.outbox.detach(self)
        if isinstance(self.peer, PostPeer):
            self.peer.cancel_all()


# ---- headers that repeat a part of the body
def mirror(value: Any) -> str:
    """Encode a value for a header: .../streamable-http §Value Encoding."""
    plain = value if isinstance(value, str) else str(value).lower()
    # "=?" would mark it as encoded.
    if re.fullmatch(r"(?!=\?)([!-~]([\t -~]*[!-~])?)?", plain):
        return plain
    return f"=?base64?{to_base64(plain.encode())}?="


def unmirror(value: str) -> str | None:
    """Decode the value of a header; None: it is malformed."""
    found = re.fullmatch(r"=\?base64\?(.*)\?=", value)
    if not found:
        return value if re.fullmatch(r"[\t -~]*", value) else None
    try:
        return from_base64(found[1]).decode()
    except ValueError:
        return None


def same_value(sent: str | None, value: Any) -> bool:
    """Compare a header with the value in the body; numbers as numbers."""
    if sent is None or value is None:
        return sent is value
    plain = unmirror(sent)
    is_number = type(value) in (int, float)
    if is_number and plain and re.fullmatch(r"-?[0-9]{1,99}(\.[0-9]+)?", plain):
        number = float(plain) if "." in plain else int(plain)
        return bool(number == value)
    if isinstance(value, str):
        return plain == value
    return plain == str(value).lower()


def mirrored_arguments(schema: Any, arguments: Any) -> Message:
    """Return headers and their values: .../streamable-http §Schema Extension."""
    found = {}
    for name, part in (schema.get("properties") or {}).items():
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(part, dict):
            if "x-mcp-header" in part:
                found[f"Mcp-Param-{part['x-mcp-header']}"] = value
            found.update(mirrored_arguments(part, value))
    return found


class PostPeer(Peer):
    """The client behind one modern POST, which cancels its request by hanging up."""

    def __init__(self, headers: Headers) -> None:
        super().__init__(ordered=False)
        self.headers = headers

    def check(self, ctx: Context) -> None:
        """Compare headers and body: .../streamable-http §Request Metadata, §Server
        Validation."""
        server = ctx.server
        # These two are never encoded; the others may be.
        exact = {
            "MCP-Protocol-Version": ctx.meta[META_VERSION],
            "Mcp-Method": ctx.method,
        }
        row = METHODS.get(ctx.method)
        member = row.mirrored if row else server.mirrored.get(ctx.method)
        others = {"Mcp-Name": ctx.params.get(member)} if member else {}
        if ctx.method == "tools/call":
            tool = server.offered("tools", ctx).get(str(ctx.params.get("name")))
            if tool:
                given = ctx.params.get("arguments")
                others.update(mirrored_arguments(tool.input_schema, given))
        for name, value in {**exact, **others}.items():
            sent = self.headers.get(name.lower())
            is_same = sent == value if name in exact else same_value(sent, value)
            if not is_same:
                found = "missing" if sent is None else repr(sent)
                raise RpcError(
                    HEADER_MISMATCH,
                    f"Header mismatch: {name} is {found:.200},"
                    f" the body has {value!r:.200}",
                )

    def check_questions(self) -> None:
        if self.session:
            raise ClientLacks(
                MISSING_CAPABILITY, "stateless=True: a legacy client cannot be asked"
            )

    def prepare(self, ctx: Context) -> None:
        answer: Any = ctx._send
        ctx._wake_with(answer.stream().end)
        # post() still holds the message while the subscription runs.
        ctx.params.clear()
        ctx.meta.clear()

    def new_outbox(self, answer: Answer) -> Outbox:
        return Outbox(answer)

    def end_answer(self, answer: Answer) -> None:
        self.cancel_all()  # a subscription whose client has left


# ---- who may call
def name_of(host: str) -> str:
    """Return the name in a Host or Origin header: "::1" for "http://[::1]:80"."""
    return re.sub(r"^https?://|:\d*$", "", host.lower()).strip("[]")


def max_connections() -> int:
    with suppress(ImportError):  # on Windows
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most > 0:  # or it is infinity
            return max(1, min(MAX_CONNECTIONS, most - 32))
    return MAX_CONNECTIONS


class AnyCase(dict[str, str]):
    """Headers by lower-case name, which are found in any case."""

    # These two call __getitem__().
    get = typing.cast(Any, Mapping.get)
    __contains__ = typing.cast(Any, Mapping.__contains__)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


class Endpoint:
    """The MCP endpoint of a server, for any HTTP server: see serve().

    `hosts`: allowed names in the Host header ("*": any; None: loopback names if bound
    to loopback). `origins`: allowed values of the Origin header ("*": any), besides
    those of `hosts`. `authorize` takes the headers, by name in any case, and returns
    the principal, or raises HttpError. `metadata`: the document of RFC 9728. `cors`:
    answer browsers. `stateless`: serve legacy requests without a session. `sse_on_get`:
    also open HTTP+SSE on the endpoint itself.

        answers     those whose handlers run
        _checks     true while there is a thread mcp-check

    `lock` guards `answers` and `_checks`; nothing waits under it.
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
        if authorize:
            from inspect import iscoroutinefunction

            called = authorize, type(authorize).__call__  # of a function, of an object
            if any(map(iscoroutinefunction, called)):
                raise TypeError("authorize= must be a `def`, not an `async def`")
        server.check_completions()
        self.server = server
        self.path = f"/{path.strip('/')}"
        self.hosts = None if hosts is None else set(map(str.lower, hosts))
        self.origins = set(origins)
        self.metadata = metadata
        self.authorize = authorize
        self.cors = cors
        self.stateless = stateless
        self.sse_on_get = sse_on_get
        self.closed = False
        self.lock = threading.Lock()
        self.answers: dict[Answer, None] = {}
        self.sessions = Sessions(self)
        self._checks = False

    # ---- one request
    def serve(self, exchange: Exchange) -> None:
        """Answer one request, on this thread, to its end. Raises nothing.

        Other HTTP servers call this: see examples/mount.py for WSGI, CGI and Lambda.
        """
        _headers.set(AnyCase(exchange.headers))
        try:
            return self._route(exchange)
        except HttpError as refusal:
            status = refusal.status
            error = RpcError(INVALID_REQUEST, str(refusal))
            exchange.extra.update(refusal.headers)
            names = map(str.lower, exchange.extra)
            if status == 401 and "www-authenticate" not in names:  # RFC 9110 §15.5.2
                exchange.extra["WWW-Authenticate"] = "Bearer"
        except RpcError as flaw:  # the body is not JSON
            status = 400
            error = flaw
        except Exception as problem:
            log_failure(exchange.name, problem)
            status = 500
            error = RpcError(INTERNAL_ERROR)
        reply(exchange, status, encode(error_response(error, None)))

    def _route(self, exchange: Exchange) -> None:
        if exchange.flaw:
            raise exchange.flaw
        self._check_origin(exchange)
        path = exchange.path.rstrip("/") or "/"
        verbs = legacy_verbs(self, exchange, path)
        if path == self.path and not verbs:
            verbs = {"POST": Endpoint.post}
        # Its metadata: basic/authorization §Protected Resource Metadata Discovery.
        is_open = self.metadata and path in (_METADATA, _METADATA + self.path)
        if is_open and exchange.method in ("GET", "HEAD"):
            reply(exchange, 200, encode(self.metadata))
        elif not verbs:
            reply(exchange, 404, b'{"error": "not_found"}')
        elif exchange.method == "OPTIONS" and self.cors:
            reply(exchange, 204)
        elif exchange.method not in verbs:
            raise HttpError(405, "method not allowed", {"Allow": ", ".join(verbs)})
        else:
            if self.authorize:
                exchange.principal = self._identify(self.authorize(_headers.get()))
            verbs[exchange.method](self, exchange)

    def _identify(self, principal: Any) -> Any:
        """Check a principal; `0` may be one."""
        try:
            digest(principal)
        except ValueError:
            raise TypeError(
                f"authorize= must return a JSON value, not {principal!r:.200}"
            ) from None
        if not principal and type(principal) not in (int, float):
            raise HttpError(401, "not authorized")
        return principal

    def _check_origin(self, exchange: Exchange) -> None:
        """Check Host and Origin: .../streamable-http §Security & Endpoint.

        A web page may send requests to 127.0.0.1 and, after DNS rebinding, read the
        answers. Then both headers have the attacker's name.
        """
        headers = exchange.headers
        hosts = self.hosts
        if hosts is None:
            hosts = exchange.hosts
        if hosts is not None and not hosts & {name_of(headers.get("host", "")), "*"}:
            raise HttpError(
                403, f"the Host {headers.get('host')!r:.100} is not in hosts="
            )
        origin = headers.get("origin")
        if origin is None and headers.get("sec-fetch-site") == "cross-site":
            origin = "null"  # browsers send no Origin with a GET, as by <iframe>
        if origin is not None and not self.origins & {origin, "*"}:
            if name_of(origin) not in (hosts or _LOOPBACK):
                raise HttpError(403, f"the Origin {origin!r:.100} is not in origins=")
        if self.cors:
            asked = headers.get("access-control-request-headers", "*")[:1000]
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
        """Serve a message: .../streamable-http §Sending Messages."""
        message = self.read_message(exchange)
        listens = is_request(message) and message["method"] == "subscriptions/listen"
        answer = Answer(exchange, PostPeer(exchange.headers), listens)
        find_session(self, answer, message)
        self.server.handle(
            message,
            answer,
            peer=answer.peer,
            principal=exchange.principal,
            start=partial(self.run_handler, answer),
        )
        if not answer.ended and answer.outbox is None:  # it was not a request
            reply(exchange, 202)

    def read_message(self, exchange: Exchange) -> Any:
        """Read and decode the body."""
        exchange.length()  # refuse a body that is too large before anything else
        kind = exchange.headers.get("content-type", "")
        is_json = re.match(r"(?i)application/json\s*(;|$)", kind)
        if not is_json or "content-encoding" in exchange.headers:
            raise HttpError(
                415, "Content-Type must be application/json, without Content-Encoding"
            )
        try:
            return decode(exchange.body())
        except OSError:  # the client has hung up, or is too slow
            raise HttpError(408, "the body has not arrived") from None

    # ---- answers: their number, their clients, their end
    def run_handler(self, answer: Answer, work: Func) -> None:
        """Run a handler, and end its answer. HttpError: too many streams; half of the
        connections are left for calls."""
        answer.is_early = False
        with self.lock:
            if answer.listens:
                streams = [one for one in self.answers if one.listens]
                if len(streams) >= (max_connections() // 2 or 1):
                    raise HttpError(503, "too many streams", {"Retry-After": "1"})
            self.answers[answer] = None
        self.begin_checks()
        if self.closed and isinstance(answer.peer, PostPeer):
            answer.peer.close()  # close() may not have seen it
        try:
            work()
            answer.finish()
        finally:
            with self.lock:
                del self.answers[answer]
            answer.peer.end_answer(answer)

    def begin_checks(self) -> None:
        """Start the thread mcp-check, unless it runs, or no thread is left."""
        with self.lock:
            if not self._checks:
                self._checks = spawn("mcp-check", self._check)

    def _check(self) -> None:
        """Check clients and sessions, until there are none."""
        while True:
            time.sleep(CHECK_SECONDS)
            for answer in list(self.answers):
                attempt(answer.check)
            attempt(self.sessions.expire)
            with self.lock:  # an idle server must not wake the processor
                if not self.answers and (self.closed or self.sessions.is_empty()):
                    self._checks = False
                    return

    def close(self) -> None:
        """End all subscriptions and sessions. Running requests are still answered. A
        session whose user is being asked goes on until the second call."""
        is_second = self.closed
        self.closed = True
        peers = [answer.peer for answer in list(self.answers)]
        for peer in [*peers, *self.sessions.all()]:
            if is_second or not peer.questions:
                peer.close()


# ======== 14. Sessions over HTTP, resumable streams, HTTP+SSE =========================
# The answer to `initialize` has a session id, which the client repeats in a header; to
# a request with this header, 404 means that the session is gone. A GET gets messages
# that belong to no request; in HTTP+SSE, the transport of 2024-11-05, all messages. A
# GET that names an event gets the rest of that event's stream. An event's id is the
# name of its outbox and its number. The life of a call whose connection breaks:
#
#     POST tools/call               an Answer with an Outbox; events 1, 2 are written
#     the connection breaks         mcp-check detaches the Answer; the handler goes on,
#                                   and REPLAY_BYTES of its events are kept
#     GET, Last-Event-ID: ...-1     another Answer, attached after 1: it takes event 2
#                                   again, and then the rest
#     the response is written       the outbox has ended; it is kept for ASK_SECONDS

MAX_SESSIONS = 1000  # beyond that, the caller with most loses the idlest
SESSION_SECONDS = 3600  # without a request, until a session expires
REPLAY_BYTES = 2**17  # of events that a stream keeps, for clients that come back
MAX_KEPT_BYTES = 2**26  # of streams that have ended, in all sessions
RETRY_MS = 500  # until a client comes back after close_stream()
_GONE = "the session is gone; send `initialize` to open another"
__all__ += """
    MAX_KEPT_BYTES MAX_NAME_LENGTH MAX_SESSIONS REPLAY_BYTES RETRY_MS SESSION_SECONDS
""".split()


class HttpSession(Peer):
    """The client behind a session, whose messages come in many POSTs.

    id          in the header Mcp-Session-Id, or in a URL of HTTP+SSE
    principal   a digest of its opener
    used        when the last request came
    own         the outbox for messages that belong to no POST
    outboxes    this one and those of its POSTs, by name
    """

    def __init__(self, endpoint: Endpoint, exchange: Exchange) -> None:
        super().__init__(self.push, ordered=False)
        self.endpoint = endpoint
        self.principal = digest(exchange.principal)
        self._extra = exchange.extra
        self.used = time.monotonic()
        self.own = Outbox(keeps=REPLAY_BYTES)
        self.outboxes = {self.own.name: self.own}
        self.id = os.urandom(16).hex()

    def check(self, ctx: Context) -> None:
        # Its subscriptions would outlive their connections.
        raise RpcError(INVALID_REQUEST, "a session serves legacy requests")

    def push(self, message: Message, send: Send = drop) -> None:
        self.own.add_note(message["method"], encode(message))
        self.own.drop_old()
        self.settle()

    def register(self) -> None:
        self.endpoint.sessions.add(self)
        self._extra["Mcp-Session-Id"] = self.id
        if self.endpoint.closed:  # close() may not have seen it
            self.close()

    def new_outbox(self, answer: Answer) -> Outbox:
        """Make an outbox that outlives its connection."""
        outbox = Outbox(answer, REPLAY_BYTES)
        self.outboxes[outbox.name] = outbox
        if self.session and self.session.rules.has("priming events"):
            answer.greeting = event(b"", f"{outbox.name}-0", retry=RETRY_MS)
        return outbox

    def end_answer(self, answer: Answer) -> None:
        if answer.outbox and not answer.listens:
            answer.outbox.expires = time.monotonic() + ASK_SECONDS
        self.settle()

    def disconnect(self, send: Send) -> None:
        if not isinstance(send, Answer) or not send.takes_events():
            return
        outbox = send.stream()
        reader = outbox.reader
        if reader and send.greeting:  # a priming event tells how to come back
            outbox.detach(reader)
            reader.flush()

    def check_questions(self) -> None:
        sessions = self.endpoint.sessions.all()
        waiting = sum(len(session.questions) for session in sessions)
        if waiting >= (max_connections() // 4 or 1):
            raise AskError("too many questions wait")

    def settle(self) -> None:
        """End the session if its client has missed something: it then gets 404. End its
        own stream if the session has ended, and no answer can follow."""
        if self.own.ended and not self.closed:
            self.close()
        elif self.closed and not self.running:
            self.own.end()

    def close(self) -> None:
        """End the session; requests that are running are still answered."""
        self.endpoint.sessions.remove(self)
        self.outboxes.clear()
        super().close()
        self.settle()
        if not self.own.reader:
            self.own.give_up()


class Sessions:
    """The sessions of an endpoint. Any thread may call any method.

    `_lock` is held while `_open`, the sessions by id, is changed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._open: dict[str, HttpSession] = {}
        self._lock = threading.Lock()

    def all(self) -> list[HttpSession]:
        return list(self._open.values())

    def is_empty(self) -> bool:
        return not self._open

    def add(self, session: HttpSession) -> None:
        """Add a session, if need be in place of an idle one: the caller with most
        sessions loses one. HttpError: none is idle."""
        self.expire()
        with self._lock:
            evicted = None
            if len(self._open) >= MAX_SESSIONS:
                counts = Counter(one.principal for one in self.all())
                evicted = min(
                    self._idle(),
                    key=lambda one: (-counts[one.principal], one.used),
                    default=None,
                )
                if not evicted:
                    raise HttpError(503, "too many sessions", {"Retry-After": "1"})
                del self._open[evicted.id]
            self._open[session.id] = session
        if evicted:
            evicted.close()
        self._endpoint.begin_checks()

    def _idle(self) -> list[HttpSession]:
        busy = {answer.peer for answer in list(self._endpoint.answers)}
        return [one for one in self.all() if one not in busy]

    def find(self, exchange: Exchange) -> HttpSession:
        """Return the session that a request names; 404: it is gone, or another's."""
        named = exchange.query.partition("session_id=")[2]  # HTTP+SSE
        ident = exchange.headers.get("mcp-session-id", named)
        session = self._open.get(ident)
        if session is None or session.principal != digest(exchange.principal):
            raise HttpError(404, _GONE)
        if exchange.headers.get("mcp-protocol-version", R2) not in versions("legacy"):
            raise HttpError(400, "MCP-Protocol-Version must be legacy")
        session.used = time.monotonic()
        return session

    def remove(self, session: HttpSession) -> None:
        with self._lock:
            self._open.pop(session.id, None)

    def expire(self) -> None:
        """End sessions that have not been used for long. Forget outboxes whose answers
        have ended."""
        now = time.monotonic()
        for session in self._idle():
            if session.used + SESSION_SECONDS < now:
                session.close()
        ended = {}
        for session in self.all():
            for outbox in list(session.outboxes.values()):
                if outbox.expires < inf:
                    ended[outbox] = session
        size = 0
        for outbox in sorted(ended, key=lambda one: -one.expires):
            size += outbox.size + 2**12  # and the outbox itself
            if outbox.expires < now or size > MAX_KEPT_BYTES:
                ended[outbox].outboxes.pop(outbox.name, None)


# ---- the endpoint for legacy clients
def find_session(endpoint: Endpoint, answer: Answer, message: Any) -> None:
    """Give the answer to a legacy message its session."""
    with suppress(KeyError, TypeError):  # a message without these is legacy
        if META_VERSION in message["params"]["_meta"]:
            return
    # [2025-11-25] basic/transports §Session Management.
    exchange = answer.exchange
    version = exchange.headers.get("mcp-protocol-version", R2)
    if version not in REVISIONS:
        raise HttpError(400, "MCP-Protocol-Version is unknown")
    if endpoint.stateless:
        if version in versions("legacy"):
            Session(endpoint.server, answer.peer, version, {}).open()
    elif is_request(message) and message["method"] == "initialize":
        answer.peer = HttpSession(endpoint, exchange)
    elif "mcp-session-id" in exchange.headers:
        answer.peer = endpoint.sessions.find(exchange)
    # Answers in a session have status 200, except to a refused batch.
    if answer.peer.session and not isinstance(message, list):
        answer.is_early = False


def serve_session_get(endpoint: Endpoint, exchange: Exchange) -> None:
    """Listen, or resume a stream: [2025-11-25] basic/transports §Listening for Messages
    from the Server, §Resumability and Redelivery."""
    session = endpoint.sessions.find(exchange)
    seen = exchange.headers.get("last-event-id", "")
    last = re.fullmatch(r"(\w+)-(\d{1,9})", seen)
    outbox: Outbox | None = session.own
    after = None
    if last:
        after = int(last[2])
        outbox = session.outboxes.get(last[1])
    answer = Answer(exchange, session, listens=True)
    answer.outbox = outbox

    def listen() -> None:
        if not outbox or not outbox.attach(answer, after):
            raise HttpError(405, "this stream has ended", {"Allow": "POST, DELETE"})
        if outbox is session.own and after is not None and outbox.place > after + 1:
            session.close()  # changes are missing: the client must fetch everything
            raise HttpError(404, _GONE)

    endpoint.run_handler(answer, listen)


def serve_session_delete(endpoint: Endpoint, exchange: Exchange) -> None:
    """End a session: [2025-11-25] basic/transports §Session Management."""
    endpoint.sessions.find(exchange).close()
    reply(exchange, 200)


def serve_sse(endpoint: Endpoint, exchange: Exchange) -> None:
    """Open a session that ends with this connection: [2024-11-05] basic/transports
    §HTTP with SSE."""
    session = HttpSession(endpoint, exchange)
    # A relative reference: a proxy may have taken a prefix from the path.
    address = f"{endpoint.path.rpartition('/')[2]}/messages?session_id={session.id}"
    answer = Answer(exchange, session, listens=True)
    answer.greeting = event(address.encode(), event="endpoint")
    answer.outbox = session.own
    session.own.attach(answer)
    with closing(session):
        endpoint.run_handler(answer, session.register)


def serve_sse_post(endpoint: Endpoint, exchange: Exchange) -> None:
    """Serve a message; answers go to the session's stream. The POST is answered 202
    before its handlers run, on this thread: its client must open another connection."""
    session = endpoint.sessions.find(exchange)
    message = endpoint.read_message(exchange)
    # Answers and cancellations are always taken: they end calls.
    is_call = isinstance(message, list) or is_request(message)
    if is_call and len(session.running) > MAX_THREADS:
        raise HttpError(503, "too many calls wait", {"Retry-After": "1"})

    def send(message: Any) -> None:
        session.own.add(encode(message))
        streams = [one.own for one in endpoint.sessions.all()]
        if sum(one.size for one in streams) > MAX_KEPT_BYTES:
            max(streams, key=lambda one: one.size).give_up()
        session.settle()

    handlers: list[Func] = []
    endpoint.server.handle(
        message,
        send,
        peer=session,
        principal=exchange.principal,
        start=handlers.append,
    )
    if handlers:
        exchange.closing = True
    reply(exchange, 202)
    for run_handler in handlers:
        run_handler()
    session.settle()


def legacy_verbs(endpoint: Endpoint, exchange: Exchange, path: str) -> dict[str, Any]:
    """Return the functions for legacy clients on a path, by verb."""
    if path == endpoint.path and "mcp-session-id" in exchange.headers:
        return {
            "GET": serve_session_get,
            "POST": Endpoint.post,
            "DELETE": serve_session_delete,
        }
    if path == endpoint.path.rstrip("/") + "/messages":
        return {"POST": serve_sse_post}
    # Older gateways open HTTP+SSE on the endpoint itself.
    is_get = exchange.method == "GET" and "mcp-protocol-version" not in exchange.headers
    is_here = path == endpoint.path and endpoint.sse_on_get and is_get
    if is_here or path == endpoint.path.rpartition("/")[0] + "/sse":
        return {"GET": serve_sse}
    return {}


# ======== 15. serve_http: the endpoint on sockets =====================================
# Not MCP: skip on first reading. An HttpServer gives each connection a thread, which
# reads requests and calls Endpoint.serve() with a SocketExchange of each. A request is
# refused, and its connection closed, if it is malformed in any way: a proxy might take
# it for two (RFC 9112 §11.2).
#
# The end loses no call (SIGTERM in a rolling restart, for example):
#
#     at once           nothing new is accepted; answers say `Connection: close`
#     then              connections in the kernel's queue are still served
#     `patience` s      running handlers may end; streams end; new requests are served
#     then              running requests are abandoned, and all connections hung up

MAX_HEADERS = 100  # in a request
MAX_LINE_BYTES = 65536  # of the first line and all headers
MAX_IDLE_SECONDS = 75  # between two requests; balancers close after 60 s
SEND_SECONDS = 30  # for a client to send a head; to take 64 KiB of an answer
BODY_SECONDS = 120  # for a client to send a body
DRAIN_SECONDS = 10  # for running requests, after SIGTERM
STALL_SECONDS = 2  # without progress, until an answer may lose its connection
MAX_SENDING_BYTES = 2**27  # of all answers that are being sent; then the slowest is cut
_PART = 2**16  # bytes that are sent at once
_FIELD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r\n"
_HEAD = rf"([!-~]+) ([!-~]+) (HTTP/1\.[0-9])\r\n((?:{_FIELD})*)\r\n"


# What a connection does, and until when:
#
#     CLOSES    it gives its client time to read an answer     2 s have passed
#     WAITS     it waits for a request                         MAX_IDLE_SECONDS
#     READS     a head arrives, and authorize= looks at it     SEND_SECONDS
#               a body arrives                                 BODY_SECONDS
#     SENDS     64 KiB of an answer, or less, are sent         SEND_SECONDS
#     SERVES    a handler runs, or an event is awaited         no limit
#
# If all places are taken, a new connection takes that of another one, in this order;
# but never of one that serves, or that has sent 64 KiB in the last STALL_SECONDS.
Step = IntEnum("Step", "CLOSES WAITS READS SENDS SERVES", start=0)
CLOSES, WAITS, READS, SENDS, SERVES = Step
_NEXT_STEPS = (  # those that may follow each step
    (),
    (READS, CLOSES),
    (READS, SERVES, SENDS, CLOSES),
    (WAITS, SERVES, SENDS, READS, CLOSES),
    (SENDS, CLOSES),
)


def hang_up(sock: Any) -> None:
    """Shut a socket down; close() would wait for its users."""
    with suppress(OSError):  # it is closed
        sock.shutdown(2)  # SHUT_RDWR


@lru_cache(1)
def http_date(seconds: int) -> str:
    """Format a time for the Date header: RFC 9110 §6.6.1."""
    from email.utils import formatdate

    return formatdate(seconds, usegmt=True)


class HttpServer:
    """The connections of an endpoint on a port.

        steps        of each socket: what it does, until when, and the bytes left to
                     send
        patience     seconds that close() leaves running requests
        stopped      true once serve_forever() must return; a signal handler may set it

    `lock` guards `steps`; nothing waits under it. A connection that has lost its place
    gets an OSError at its next step().
    """

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        import socket

        self.endpoint = endpoint
        self.trace = tracer()
        self.steps: dict[Any, tuple[Step, float, int]] = {}
        self.lock = threading.Lock()
        self._accepting = threading.Lock()
        self.patience = 0.3
        self.stopped = False
        is_v6 = ":" in host
        self.socket = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=512,  # with a short queue, clients would wait for seconds
            dualstack_ipv6=is_v6 and socket.has_dualstack_ipv6(),
        )
        self.socket.settimeout(0.05)
        bound, self.server_port = self.socket.getsockname()[:2]
        self.hosts: set[str] | None = None
        if bound in _LOOPBACK or bound.startswith("127."):
            self.hosts = _LOOPBACK | {bound}

    # ---- accepting
    def serve_forever(self) -> None:
        """Accept connections. Handlers see the context of this call."""
        while not (self.stopped or self.endpoint.closed):
            self._accept()
            for sock, (_, due, _) in list(self.steps.items()):
                if due < time.monotonic():
                    hang_up(sock)  # its thread then ends

    def _accept(self) -> None:
        try:
            with self._accepting:
                sock, address = self.socket.accept()
        except OSError as problem:
            if problem.errno:  # no descriptor is left
                time.sleep(BLINK_SECONDS)
            return
        # On Windows, hang_up() does not end a send that waits.
        seconds = max(SEND_SECONDS, BODY_SECONDS)
        sock.settimeout(None if os.name == "posix" else seconds)
        serve = partial(copy_context().run, self.serve, sock, address)
        if self.admit(sock) and spawn("mcp-connection", partial(attempt, serve)):
            return
        self.leave(sock)
        _log(f"503 for {address[0]}: too many connections")
        with sock, suppress(OSError):  # it has left
            sock.sendall(
                b"HTTP/1.1 503 \r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
            )

    def admit(self, sock: Any) -> bool:
        """Give a connection a place; False: all others are busy."""
        now = time.monotonic()
        with self.lock:
            if len(self.steps) >= max_connections():
                lowest = min(self.steps, key=self.steps.__getitem__)
                step, due, _ = self.steps[lowest]
                has_stalled = due < now + SEND_SECONDS - STALL_SECONDS
                if step == SERVES or (step == SENDS and not has_stalled):
                    return False
                del self.steps[lowest]
                hang_up(lowest)
            self.steps[sock] = WAITS, now + MAX_IDLE_SECONDS, 0
        return True

    def step(self, sock: Any, step: Step, seconds: float = inf, left: int = 0) -> None:
        """Note what a connection does from now on."""
        with self.lock:
            if sock not in self.steps:
                raise OSError("another connection has taken the place")
            before = self.steps[sock][0]
            if step not in _NEXT_STEPS[before]:
                raise RuntimeError(f"{step!r} must not follow {before!r}")
            self.steps[sock] = step, time.monotonic() + seconds, left
            if left > _PART:
                large = [one for one in self.steps if self.steps[one][2] > _PART]
                total = sum(self.steps[one][2] for one in large)
                if total > MAX_SENDING_BYTES:
                    slowest = min(large, key=self.steps.__getitem__)
                    del self.steps[slowest]
                    hang_up(slowest)

    def leave(self, sock: Any) -> None:
        with self.lock:
            self.steps.pop(sock, None)

    # ---- a connection's own thread
    def serve(self, sock: Any, address: Any) -> None:
        try:
            with sock, sock.makefile("rb") as stream:
                with suppress(OSError):  # the client has left
                    sock.setsockopt(6, 1, 1)  # TCP_NODELAY: answers are not delayed
                    while True:
                        data = self._read_head(sock, stream)
                        exchange = SocketExchange(self, sock, address, stream, data)
                        copy_context().run(self.endpoint.serve, exchange)
                        if exchange.closing:
                            break
                        self.step(sock, WAITS, MAX_IDLE_SECONDS)
                self._linger(sock)
        finally:
            self.leave(sock)

    def _read_head(self, sock: Any, stream: Any) -> bytearray:
        """Wait for a request, and read its head; OSError: none comes."""
        begin = stream.peek(1)
        self.step(sock, READS, SEND_SECONDS)
        if not begin:
            raise OSError("the client has left")
        if begin[:1] == b"\r":  # RFC 9112 §2.2: skip an empty line before it
            stream.readline(2)
            begin = stream.peek(1)
        is_text = re.match(rb"[\r!-~]", begin)  # TLS is not, and has no lines
        line = stream.readline(MAX_LINE_BYTES) if is_text else b""
        data = bytearray(line)
        if b" HTTP/1." in line:
            while line.endswith(b"\r\n") and line != b"\r\n":
                line = stream.readline(MAX_LINE_BYTES - len(data))
                data += line
        return data

    def _linger(self, sock: Any) -> None:
        """Read on until the client ends: a reset could hide why it was refused."""
        with suppress(OSError):  # it is closed, or has lost its place
            self.step(sock, CLOSES, 2)
            sock.shutdown(1)  # SHUT_WR
            while sock in self.steps and sock.recv(2**16):
                pass

    # ---- the end
    def close(self) -> None:
        """End the endpoint, let requests finish within `patience` seconds, hang up."""
        self.stopped = True
        self.endpoint.close()
        end = time.monotonic() + 1
        with suppress(OSError):  # it is closed
            # Closing now would reset connections in the queue.
            self.socket.listen(0)
            while is_ready(self.socket, False) and time.monotonic() < end:
                self._accept()
        with self._accepting:  # while a thread accepts, the port stays open
            self.socket.close()

        began = time.monotonic()
        while self._is_busy() and time.monotonic() < began + self.patience:
            time.sleep(self.patience / 100)  # a signal may change `patience`
        self.endpoint.close()
        time.sleep(self.patience / 100)  # for calls that have asked: they fail now
        for peer in {answer.peer for answer in list(self.endpoint.answers)}:
            abandon(peer)
        for sock in list(self.steps):
            hang_up(sock)

    def _is_busy(self) -> bool:
        return any(
            step > WAITS or is_ready(sock, to_write=False)
            for sock, (step, _, _) in list(self.steps.items())
        )


class SocketExchange(Exchange):
    """A request on a connection: RFC 9112 §3, §5.

    chunked    true if a stream is sent in chunks, and the connection may go on
    """

    def __init__(
        self, server: HttpServer, sock: Any, address: Any, stream: Any, data: bytearray
    ) -> None:
        self.server = server
        self.sock = sock
        self.step = partial(server.step, sock)
        self.address, self.port = address[:2]
        self.hosts = server.hosts

        head = re.fullmatch(_HEAD, data.decode("latin-1"))
        method, target, version, lines = head.groups() if head else ("?", "/", "", "")
        lines = lines.split("\r\n", MAX_HEADERS + 1)[:-1]
        fields = [line.split(":", 1) for line in lines]
        absolute = re.match("(?i)https?://([^/?]*)", target)  # RFC 9112 §3.2.2
        if absolute:
            target = target[absolute.end() :]
        super().__init__(method, target, fields, stream)

        self.chunked = version not in ("", "HTTP/1.0")
        wants_close = "close" in self.headers.get("connection", "").lower()
        self.closing = wants_close or not self.chunked
        has_host = "host" in self.headers or not self.chunked
        has_chunks = "transfer-encoding" in self.headers
        if len(data) >= MAX_LINE_BYTES or len(fields) > MAX_HEADERS:
            self.flaw = HttpError(431, "the headers are too many, or too large")
        elif not head or not has_host or (has_chunks and not self.chunked):
            self.flaw = HttpError(400, "this is TLS, or the headers are malformed")
        elif absolute:
            self.headers["host"] = absolute[1]

    def body(self) -> bytes:
        if self.chunked and self.headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.step(READS, BODY_SECONDS)
        data = super().body()
        self.step(SERVES)
        self.server.trace(">", data, self.port, self.headers, http=self.name)
        return data

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        # While users are asked, their clients come back with the answers.
        ends = self.server.endpoint.closed and self.server.endpoint.sessions.is_empty()
        # After a flaw, or an unread body, the rest may look like another request.
        if self.unread or self.flaw or ends:
            self.closing = True
        framing = {"Date": http_date(int(time.time()))}
        if self.closing:
            framing["Connection"] = "close"
        if body is not None and status != 204:
            framing["Content-Length"] = str(len(body))
        elif body is None and self.chunked:
            framing["Transfer-Encoding"] = "chunked"
        head = f"HTTP/1.1 {status} \r\n"
        for name, value in {**headers, **framing}.items():
            # A line end in a value would start another header.
            head += printable(f"{name}: {value}") + "\r\n"
        data = body or b""
        self.server.trace("<", data, self.port, http=self.name, status=status)
        if self.method == "HEAD":
            data = b""
        self._send(data, head.encode("ascii", "backslashreplace") + b"\r\n")
        if body is None or self.closing:  # events follow; or a handler of HTTP+SSE
            self.step(SERVES)

    def _send(self, data: bytes, head: bytes = b"") -> None:
        try:
            for at in range(0, len(data) or 1, _PART):
                left = len(data) - at
                self.step(SENDS, SEND_SECONDS, left)
                self.sock.sendall(head + data[at : at + _PART])
                head = b""
        except OSError:
            self.closing = True  # a part may have been sent: nothing may follow
            raise

    def write(self, data: bytes) -> None:
        self.server.trace("<", data, self.port)
        if self.chunked:
            data = b"%x\r\n%s\r\n" % (len(data), data)
        self._send(data)
        self.step(SERVES)

    def end(self, hang_up: bool = False) -> None:
        if self.chunked:
            self._send(b"0\r\n\r\n")
        if hang_up:
            self.hang_up()

    def ready(self) -> bool:
        return is_ready(self.sock)

    def gone(self) -> bool:
        try:
            has_news = is_ready(self.sock, to_write=False)
            return has_news and not self.sock.recv(1, 2)  # MSG_PEEK
        except OSError:  # a reset
            return True

    def hang_up(self) -> None:
        self.closing = True
        self.server.trace(">", b"", self.port, closed=True)
        hang_up(self.sock)


def bearer(
    tokens: dict[str, Any], header: str = "authorization", metadata_url: str = ""
) -> Func:
    """Make an `authorize` function from {token: principal}; `header="x-api-key"` for
    API keys."""
    import hmac

    scheme = ""
    name = "ApiKey"  # RFC 9110 §11.6.1: a challenge needs a scheme
    if header.lower() == "authorization":
        scheme = "bearer"
        name = "Bearer"

    def authorize(headers: Headers) -> Any:
        told = []
        given, _, word = headers.get(header.lower(), "").rpartition(" ")
        if word and given.lower() == scheme:
            token = word.encode("latin-1", "replace")
            for key, who in tokens.items():
                # Compare in constant time, so that timing reveals nothing.
                if hmac.compare_digest(key.encode(), token):
                    return who
            told.append('error="invalid_token"')
        if metadata_url:
            told.append(f'resource_metadata="{metadata_url}"')
        challenge = f"{name} {', '.join(told)}".rstrip()
        raise HttpError(401, "no valid token", {"WWW-Authenticate": challenge})

    return authorize


def http_server(
    endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0
) -> HttpServer:
    """Return a server for an endpoint: serve_forever() runs it; close() ends it, on any
    thread, at any time.

    `port` 0 is any free port; `server_port` tells which. On loopback, Host must be a
    loopback name, unless the endpoint has `hosts`.
    """
    return HttpServer(endpoint, host, port)


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
    httpd = HttpServer(endpoint or Endpoint(server, **options), host, port)
    url = f"http://[{host}]" if ":" in host else f"http://{host}"

    def react(number: int) -> bool:
        """End serve_forever(); tell whether this has ended a drain."""
        before = httpd.patience
        httpd.patience = 0
        if number != signal.SIGINT and not httpd.stopped:
            httpd.patience = DRAIN_SECONDS
        httpd.stopped = True
        return bool(before)

    stop = partial(react, signal.SIGTERM)
    with signals(react), server.stoppable(stop), closing(httpd):
        _log(
            f"{server.info['name']} listens on {url}:{httpd.server_port}"
            f"{httpd.endpoint.path} (mcp_ref {__version__} sha256:{fingerprint():.12})"
        )
        httpd.serve_forever()
    join_threads(httpd.endpoint.server, ON_CANCEL_SECONDS)


# ======== 16. The command line ========================================================
# Not MCP: skip on first reading. `python3 mcp_ref.py` serves a demonstration.
# Server.run() calls serve_http_at() if there is an argument `--http`.

# The options that run() and serve_http() take.
OPTIONS = {"endpoint", *Endpoint.__init__.__annotations__} - {"server", "return"}


def serve_http_at(server: Server, place: str, options: Message) -> None:
    """Serve at [HOST:]PORT."""
    found = re.fullmatch(r"(?:(\S*):)?([0-9]{1,5})", place)
    if not found or int(found[2]) > 65535:
        usage(f"--http {place}: expected [HOST:]PORT")
    host = (found[1] or "127.0.0.1").strip("[]")
    try:
        serve_http(server, host, int(found[2]), **options)
    except OSError as problem:
        raise SystemExit(f"mcp_ref: {place}: {problem}")


def demo() -> Server:
    server = Server("mcp_ref-demo", __version__)

    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text

    return server


def main(words: list[str]) -> None:
    if words == ["--version"]:
        print(f"mcp_ref {__version__} sha256:{fingerprint()}")
    elif words and find_place(words[:2]) is None:
        is_help = words[0] in ("-h", "--help")
        usage("" if is_help else f"unknown: {words[0]}; or `mcp_cli.py serve FILE.py`?")
    else:
        demo().run(words)


if __name__ == "__main__":
    main(sys.argv[1:])
