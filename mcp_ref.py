#!/usr/bin/env python3
# mcp_ref.py 0.1.0: the Model Context Protocol in one file. SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""The Model Context Protocol (MCP) in one file, standard library only.

MCP lets an AI application (the *host*, with a *client* inside it) use what a *server* offers.
The two exchange JSON objects, as JSON-RPC 2.0 defines them, and there are just three kinds:

    request       {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {...}}
    response      {"jsonrpc": "2.0", "id": 1, "result": {...}}  or  {..., "error": {...}}
    notification  {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}

A request has an `id` and is answered exactly once, with the same id; a notification has none and
is never answered. A server offers *tools* (functions: the model decides to call them), *resources*
(things to read, named by a URI: the application decides) and *prompts* (templates of messages: the
user decides). In return it may ask the client for *elicitation* (a form for the user), *sampling*
(an answer of the client's model) and *roots* (the folders that it may work on).

Quick start, a whole server:

    from mcp_ref import Server
    server = Server("hello")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()

and a client of it, which starts it:

    from mcp_ref import connect
    with connect(["python3", "server.py"]) as client:
        print(client.call_tool("add", {"a": 2, "b": 3}))

Two eras. Up to 2025-11-25 (*legacy*) a client opens a *session* by `initialize`, and what it said
then holds for the session. Since 2026-07-28 (*modern*) there is no session: each request carries
version and capabilities in its `_meta`. This file speaks both. The server decides for each request
which it is; wherever they differ, a handler's side says `session is None` for modern, a transport
looks for the version in `_meta`, and titles say [legacy] for what only the older revisions need.
The client finds out once, and says `modern`. A revision is named by its date, its *version*.

Map. Read from the top; each part can be read in one sitting, and you may stop after any.

    Part I, a whole MCP server      1   the tables: the protocol as data
                                    2   messages and framing
                                    3   one request: Session, Context, sealed request state
                                    4   the server: registering, dispatch, a function per method
                                    5   the peer: ids, waiting calls, running requests, cancellation
                                    6   server on stdio
                                    A   type hints to JSON Schema and back
                                    B   JSON Schema validation
    Part II, the same over HTTP     7   server on HTTP, without sockets
                                    8   [legacy] HTTP sessions, streams and resumption; HTTP+SSE
                                    9   serve_http: the `http.server` glue
    Part III, the other side        10  the client
                                    11  client transports: stdio, HTTP, memory
                                    12  the command line

Lines `# >8 name` and `# 8< name` enclose what a copy can do without: examples/cut.py takes it out.

Weak spots, known: a handler cannot be stopped from outside, only asked (`ctx.cancelled`); the
patterns in schemas are run by Python's `re`, so a careless `pattern` can be slow; text that a
handler prints goes to stderr, which a host may show or hide.

References such as `basic/patterns/mrtr §Error Handling` name a page and a heading of the
specification's newest revision; an older one stands in brackets in front.

The rest of this text can wait until section 6. Threads, and the locks that each may take, in
this order:

    thread                      started by                locks
    the caller of handle()      you                       Context._gate, then the transport's own
    mcp-turn-N                  serve_stdio, up to 64     Pipe._turn, ._pool; ._gate, ._writing
    mcp-watch, mcp-close        serve_stdio               Pipe._pool; ._gate, ._writing
    the caller of serve_stdio   you                       none: it waits for the end
    a connection's thread       serve_http, up to 512     ._gate, then Reply._lock, Stream._lock
    mcp-sse                     a POST of HTTP+SSE        likewise
    mcp-house, mcp-end          Endpoint, close()         Sessions._lock; Reply._lock, Stream._lock
    a thread of yours           you                       those of Context's methods, of changed()
    a caller of a Client        you                       Client._opening; then the transport's own
    mcp-read, mcp-stderr        StdioTransport            Client._telling
    mcp-stream, mcp-deadline    HttpTransport             HttpTransport._woken; Client._telling
    mcp-call                    MemoryTransport           those of the caller of handle()
    mcp-listen, mcp-answer      Subscription, Client      those of a caller of a Client
    mcp-hear                    Client, for callbacks     none

`Context._gate` keeps the messages of one request in order, so that nothing follows its response;
the lock that guards writing is a leaf under it. No lock is held while a handler runs or a line is
awaited, but for `Pipe._turn`, which is not about data: it says whose turn it is to read; and for
`Client._opening` and `HttpTransport._authorizing`: who comes next needs the outcome anyway.
"""
from __future__ import annotations

import functools
import json
import os
import re
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Union
from weakref import WeakSet

if sys.version_info < (3, 9):       # noqa: UP036  better than what would be said otherwise
    raise ImportError("mcp_ref.py needs Python 3.9 or newer")

__version__ = "0.1.0"
__all__ = [
    "ERRORS", "FEATURES", "LOG_LEVELS", "MAX_MESSAGE_BYTES", "META_CAPABILITIES", "META_VERSION",
    "METHODS", "MISNAMED", "NOTIFICATIONS", "RESULTS", "REVISIONS", "AskError", "Client",
    "ClientLacks", "Context", "Disconnected", "Endpoint", "Events", "Exchange", "HttpError",
    "HttpTransport", "Malformed", "MemoryTransport", "NotFound", "Peer", "Pipe", "Request",
    "RequestCancelled", "RpcError", "Schema", "Server", "ServerLacks", "StdioTransport",
    "Subscription", "Transport", "audio", "bearer", "connect", "decode", "elicitation", "embedded",
    "encode", "event", "http_server", "image", "is_id", "kind_of", "link", "mirror", "roots",
    "rules", "sampling", "schema_of", "serve_http", "serve_stdio", "text", "unmirror", "versions",
]

Message = dict[str, Any]        # a JSON object: messages stay dicts from the first byte to the last
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Send = Callable[[Any], None]    # takes one message (or a batch: a list), returns when it is sent


# ==========================================================================================
# 1. The tables: the protocol as data
#
# Everything that the specification lists is a row here, and the code below reads the rows. Dates
# stand nowhere else, and revisions are compared by their place in REVISIONS alone. `since` and
# `until` name the first and the last revision that have a row; an empty `until`: the newest still
# has it. `deprecated` names the revision that says "do not adopt this any more" (deprecated
# §Deprecated); such a row is served in full. `way` is drawn as in transcripts: ">" the client
# sends it, "<" the server does.
# ==========================================================================================


class Revision(NamedTuple):
    """One published revision of the specification, named by its date."""
    date: str
    era: str    # modern: every request carries its `_meta`; legacy: `initialize` opens a session


# To add a revision: a row on top, a name for it below, then `since` and `until` in the rows
# that it changes. Nothing else knows how many there are.
REVISIONS = {row.date: row for row in (
    Revision("2026-07-28", "modern"),
    Revision("2025-11-25", "legacy"),
    Revision("2025-06-18", "legacy"),
    Revision("2025-03-26", "legacy"),
    Revision("2024-11-05", "legacy"),
)}
R5, R4, R3, R2, R1 = REVISIONS      # short names, so that the rows below fit on a line


class Method(NamedTuple):
    """One request."""
    name: str
    way: str            # a modern server never sends "<": it asks inside a result (section 3)
    since: str
    until: str
    deprecated: str
    asks: bool          # may be answered "input required": basic/patterns/mrtr §Supported Requests
    cacheable: bool     # has ttlMs and cacheScope: server/utilities/caching §Cacheable Results
    mirrored: str       # the param that HTTP repeats in the header Mcp-Name
    capability: str     # what the receiver must have declared; "a.b" is the member b of a


# To add a method: a row; if a client sends it, a function in section 4, its line in
# Server._METHODS and its params below. (2024-11-05 has completion, but nothing to declare it by.)
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
    Method("resources/subscribe",      ">",  R1, R4, "",   no,  no,  "",     "resources.subscribe"),
    Method("resources/unsubscribe",    ">",  R1, R4, "",   no,  no,  "",     "resources.subscribe"),
    Method("elicitation/create",       "<",  R3, "", "",   no,  no,  "",     "elicitation"),
    Method("sampling/createMessage",   "<",  R1, "", R5,   no,  no,  "",     "sampling"),
    Method("roots/list",               "<",  R1, "", R5,   no,  no,  "",     "roots"),
)}

# The params that a request must have and, with "?", may have. Others are passed over.
PARAMS = {
    "initialize":               "protocolVersion:str capabilities:dict clientInfo:dict",
    "tools/call":               "name:str arguments:dict?",
    "resources/read":           "uri:str",
    "resources/subscribe":      "uri:str",
    "resources/unsubscribe":    "uri:str",
    "prompts/get":              "name:str arguments:dict?",
    "completion/complete":      "ref:dict argument:dict context:dict?",
    "logging/setLevel":         "level:str",
    "subscriptions/listen":     "notifications:dict",
}
# What a result must have, likewise.
RESULTS = {
    "initialize":               "protocolVersion:str capabilities:dict",
    "server/discover":          "supportedVersions:list capabilities:dict",
    "tools/list":               "tools:list nextCursor:str?",
    "tools/call":               "content:list isError:bool?",
    "resources/list":           "resources:list nextCursor:str?",
    "resources/templates/list": "resourceTemplates:list nextCursor:str?",
    "resources/read":           "contents:list",
    "prompts/list":             "prompts:list nextCursor:str?",
    "prompts/get":              "messages:list",
    "completion/complete":      "completion:dict",
}
_KINDS = {"str": (str, "a string"), "dict": (dict, "an object"), "list": (list, "an array"),
          "bool": (bool, "true or false")}
_PARAMS, _RESULTS = ({
    method: [(name, *_KINDS[kind.rstrip("?")], kind.endswith("?"))
             for name, kind in (word.split(":") for word in words.split())]
    for method, words in table.items()} for table in (PARAMS, RESULTS))


class Notification(NamedTuple):
    """One notification: a message that is never answered."""
    name: str           # after "notifications/"
    way: str
    since: str
    until: str
    deprecated: str
    capability: str     # what the sender must have declared
    filter: str         # the member of a subscription's filter that asks for it


# To add a notification: a row. A server sends it by Context.notify or Server.changed.
NOTIFICATIONS = {"notifications/" + row.name: row for row in (
    #            name                     way   since until depr. capability  filter
    Notification("cancelled",             "<>", R1, "", "",  "",            ""),
    Notification("progress",              "<>", R1, "", "",  "",            ""),
    Notification("message",               "<",  R1, "", R5,  "logging",     ""),
    Notification("tools/list_changed",    "<",  R1, "", "",  "tools",       "toolsListChanged"),
    Notification("prompts/list_changed",  "<",  R1, "", "",  "prompts",     "promptsListChanged"),
    Notification("resources/list_changed", "<", R1, "", "",  "resources",   "resourcesListChanged"),
    Notification("resources/updated",     "<",  R1, "", "",  "resources",  "resourceSubscriptions"),
    Notification("subscriptions/acknowledged", "<", R5, "", "", "",         ""),
    Notification("elicitation/complete",  "<",  R4, R4, "",  "",            ""),
    Notification("initialized",           ">",  R1, R4, "",  "",            ""),
    Notification("roots/list_changed",    ">",  R1, R4, "",  "roots",       ""),
)}


class Feature(NamedTuple):
    """Any other difference between revisions."""
    name: str
    since: str
    until: str
    deprecated: str
    fields: str         # members left out without it: "kind.member", or "*.member" for definitions


# To add a difference: a row, and `"its name" in rules.features` where it matters. If members come
# or go and that is all, the row's `fields` are enough.
FEATURES = {row.name: row for row in (
    #       name                           since until depr. fields
    Feature("any structured content",      R5, "", "",    ""),
    Feature("header mirroring",            R5, "", "",    ""),
    Feature("argument errors as results",  R4, "", "",    ""),
    Feature("URL elicitation",             R4, "", "",    ""),
    Feature("elicitation ids",             R4, R4, "",    ""),
    Feature("rich forms",                  R4, "", "",    ""),
    Feature("sampling tools",              R4, "", "",    ""),
    Feature("sampling context",            R4, "", R4,    ""),
    Feature("priming events",              R4, R4, "",    ""),
    Feature("icons",                       R4, "", "",    "*.icons"),
    Feature("server description",          R4, "", "",    "server.description server.websiteUrl"),
    Feature("titles",                      R3, "", "",    "*.title"),
    Feature("_meta everywhere",            R3, "", "",    "*._meta"),
    Feature("structured output",           R3, "", "",
            "tool.outputSchema result.structuredContent"),
    Feature("modification times",          R3, "", "",    "annotations.lastModified"),
    Feature("resource links",              R3, "", "",    ""),
    Feature("completion context",          R3, "", "",    ""),
    Feature("version header",              R3, "", "",    ""),
    Feature("audio",                       R2, "", "",    ""),
    Feature("tool annotations",            R2, "", "",    "tool.annotations"),
    Feature("progress messages",           R2, "", "",    "progress.message"),
    Feature("completions capability",      R2, "", "",    ""),
    Feature("batches",                     R2, R2, "",    ""),
    Feature("streamable sessions",         R2, R4, "",    ""),
    Feature("null id in errors",           R1, R3, "",    ""),
    Feature("HTTP+SSE",                    R1, R1, R2,    ""),
)}


class Error(NamedTuple):
    """One error code."""
    code: int
    name: str
    since: str
    until: str
    status: int         # HTTP, modern era: when it is found before a handler runs, ...
    raised: int         # ... and when a handler raises it
    sent: str           # who sends it, and when


# To add an error: a row, and its name below. A code is understood in any revision and sent only in
# its own (basic/index §Error Codes). The holes are meant: -32000 to -32019 were used before there
# was a policy, and are never sent; the rest of -32020 to -32099 is the specification's alone; codes
# of your own lie outside -32768 to -32000.
ERRORS = {row.code: row for row in (
    #     code    name                               since until HTTP, raised  sent
    Error(-32700, "ParseError",                      R1, "", 400, 200, "not JSON, or too much"),
    Error(-32600, "InvalidRequest",                  R1, "", 400, 200, "JSON, but no request"),
    Error(-32601, "MethodNotFound",                  R1, "", 404, 200, "no such method here"),
    Error(-32602, "InvalidParams",                   R1, "", 400, 200, "wrong params, or name"),
    Error(-32603, "InternalError",                   R1, "", 500, 200, "a handler failed"),
    Error(-32020, "HeaderMismatch",                  R5, "", 400, 400, "HTTP header against body"),
    Error(-32021, "MissingRequiredClientCapability", R5, "", 400, 400, "has to ask, and may not"),
    Error(-32022, "UnsupportedProtocolVersion",      R5, "", 400, 400, "`_meta` names another"),
    Error(-32002, "ResourceNotFound",                R1, R4, 400, 200, "now InvalidParams"),
    Error(-32042, "URLElicitationRequired",          R4, R4, 400, 200, "open these, then retry"),
)}
(PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, HEADER_MISMATCH,
 MISSING_CAPABILITY, UNSUPPORTED_VERSION, RESOURCE_NOT_FOUND, URL_REQUIRED) = ERRORS

# server/utilities/logging §Log Levels: the eight of RFC 5424, least urgent first.
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# basic/index §_meta: the reserved keys.
META_VERSION, META_CLIENT, META_CAPABILITIES, META_LOG_LEVEL, META_SUBSCRIPTION, META_SERVER = (
    "io.modelcontextprotocol/" + key for key in ("protocolVersion", "clientInfo",
    "clientCapabilities", "logLevel", "subscriptionId", "serverInfo"))

# Names that LSP and tutorials taught people: the notifications are understood, though never sent;
# a request is refused with the name that was probably meant.
ALIASES = {"$/cancelRequest": "notifications/cancelled", "$/progress": "notifications/progress",
           "initialized": "notifications/initialized"}
MISNAMED = {**ALIASES, "resources/get": "resources/read", "prompts/read": "prompts/get",
            "tools/execute": "tools/call", "tool/progress": "notifications/progress",
            "resources/updated": "notifications/resources/updated"}


class Rules:
    """The tables as one revision sees them; get one from rules(version)."""

    def __init__(self, version: str) -> None:
        order = list(REVISIONS)
        here = order.index(version)

        def has(row: Any) -> bool:
            return here <= order.index(row.since) and here >= order.index(row.until or order[0])
        self.version = version
        self.modern = REVISIONS[version].era == "modern"
        self.methods = frozenset(name for name, row in METHODS.items() if has(row))
        self.notifications = frozenset(name for name, row in NOTIFICATIONS.items() if has(row))
        self.features = frozenset(name for name, row in FEATURES.items() if has(row))
        self.errors = frozenset(code for code, row in ERRORS.items() if has(row))
        self.hidden = frozenset(field for row in FEATURES.values() if not has(row)
                                for field in row.fields.split())

    def fit(self, kind: str, members: Message) -> Message:
        """Return the members of a definition, content, ... without those this revision lacks."""
        if not self.hidden:
            return members
        star = "" if kind in ("result", "annotations") else "*."
        return {key: self.fit(key, value) if key == "annotations" else value
                for key, value in members.items()
                if kind + "." + key not in self.hidden and star + key not in self.hidden}


@functools.cache
def rules(version: str) -> Rules:
    """Return the rules of a revision; ValueError for a date that is none."""
    return Rules(version)


def versions(era: str = "") -> list[str]:
    """List the revisions, newest first: of an era, or all."""
    served = ["modern"]
    # >8 legacy
    served.append("legacy")
    # 8< legacy
    return [row.date for row in REVISIONS.values() if row.era in served and era in ("", row.era)]


# ==========================================================================================
# 2. Messages and framing
#
# Bytes become a message and a message becomes bytes, by pure functions. On stdio a message is a
# line (basic/transports/stdio): UTF-8, no newline inside, one at the end. What we write is ASCII,
# with \u escapes: no code page can touch it, and U+2028 splits no naive reader.
# ==========================================================================================

MAX_MESSAGE_BYTES = 16 * 2**20  # as large as a message may be; an image in base64 fits
MAX_DEPTH = 100                 # objects in objects; more has no use, and could exhaust the stack
MAX_BATCH = 100                 # members of a batch; more would only hide a flood
MAX_LOGGED = 200                # characters of foreign input that a log or an error repeats
MAX_LOG_LINE = 3000             # characters of a line of the log; beyond, its middle is left out
_EMPTY: Message = {}
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class RpcError(Exception):
    """An error that travels: raise it in a handler to answer the request with it.

    `code` is an integer, outside -32768 to -32000 if it is your own; `data` any JSON value. Of the
    reserved codes only those in ERRORS are sent, and only in their revisions: else -32603.
    """

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        if type(code) is not int:
            raise TypeError(f"an RpcError has a number, then a message; {code!r} is no number")
        super().__init__(message or (ERRORS[code].name if code in ERRORS else "error"))
        self.code = code
        self.data = data

    def to_json(self) -> Message:
        """Return the member `error` of a response."""
        return _present(code=self.code, message=str(self), data=self.data)


def _invalid(problem: str, data: Any = None) -> RpcError:
    return RpcError(INVALID_PARAMS, "Invalid params: " + problem, data)


def _nothing() -> None:
    """Do nothing."""


_NO_ERA = _invalid("neither a session nor a version. Send `initialize` first, or put "
                   f"{META_VERSION} and {META_CAPABILITIES} into each request's _meta")


def _present(**members: Any) -> Message:
    """Return the members that are not None: what is not there is not sent."""
    return {key: value for key, value in members.items() if value is not None}


def _not_json(what: str) -> Any:
    raise ValueError(f"{what} is not JSON")


def _finite(digits: str) -> float:
    # 1e999 is JSON, but what came in as infinity could never go out again.
    return float(digits) if abs(float(digits)) < float("inf") else _not_json(digits)


_decode_text = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite).decode
_encode_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(data: bytes) -> Any:
    """Return the JSON value in `data`, usually a message; RpcError with PARSE_ERROR if it is none.

    A byte order mark and white space around it are accepted; NaN, Infinity, what is not UTF-8,
    more than MAX_MESSAGE_BYTES and more than MAX_DEPTH levels are not.
    """
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"more than {MAX_MESSAGE_BYTES} bytes")
        source = str(data, "utf-8")
        value = _decode_text(source.removeprefix("\ufeff"))
        # Only a text with that many brackets can be that deep: then look.
        if len(source) > MAX_DEPTH < source.count("{") + source.count("[") \
                and depth_of(value) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        return value
    except (ValueError, RecursionError) as problem:
        said = f"nested deeper than {MAX_DEPTH} levels" if isinstance(problem, RecursionError) \
            else f"{problem.msg} at character {problem.pos}" \
            if isinstance(problem, json.JSONDecodeError) else str(problem)
        raise RpcError(PARSE_ERROR, "Parse error: " + said) from None


def depth_of(value: Any) -> int:
    """Count the levels of a JSON value without recursion: 0 for a scalar, 1 for `{}`."""
    depth, level = 0, [value]
    while True:
        level = [item for item in level if isinstance(item, (dict, list))]
        if not level:
            return depth
        depth += 1
        level = [member for item in level
                 for member in (item.values() if isinstance(item, dict) else item)]


def encode(message: Any) -> bytes:
    """Return a message, or a batch, as one line of ASCII. TypeError or ValueError: not JSON."""
    source = _encode_text(message)
    if "\\ud" in source:                        # half a character, as of an odd file name, is not
        source = _encode_text(_whole(message))  # UTF-8, and makes strict readers drop the line
    return (source + "\n").encode("ascii")


def _whole(value: Any) -> Any:
    """Return a JSON value with U+FFFD for halves of surrogate pairs; an id stays as it came."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): item if key == "id" else _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, (list, tuple)) else value


def _excess(line: bytes) -> str:
    """Say why the other side would not take a line, if so: it is too long, or too deep."""
    if len(line) > MAX_MESSAGE_BYTES + 1:
        return f"more than {MAX_MESSAGE_BYTES} bytes"
    brackets = line.translate(None, _NO_BRACKETS) if len(line) > 2 * MAX_DEPTH else b""
    before = len(brackets) + 1
    for _ in range(MAX_DEPTH):                  # each time the innermost pairs go, if there are any
        if not len(brackets) < before:
            break
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    # What is left may also stand in strings: then look.
    return f"nested deeper than {MAX_DEPTH} levels" \
        if brackets and depth_of(json.loads(line)) > MAX_DEPTH else ""


def is_id(value: Any) -> bool:
    """Tell whether a value may be an id, or a progress token: a string or integer; "" and 0 too."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def kind_of(message: Any) -> str:
    """Tell a message's kind: request, notification or response (basic/index §Messages).

    RpcError with INVALID_REQUEST if it is none. What has a method and no id is a notification,
    whatever else is wrong with it: answering one makes some hosts hang up. What has a result or an
    error, or nothing but an id, is a response: if it is a bad one, there is nobody to tell.
    """
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    method, problem = message.get("method"), ""
    if "id" not in message and isinstance(method, str):
        return "notification"
    if "method" not in message and ("result" in message or "error" in message
                                    or ("id" in message and "params" not in message)):
        return "response"
    if "id" in message and not is_id(message["id"]):
        problem = "the id has to be a string or an integer"
    elif message.get("jsonrpc") != "2.0":
        problem = '"jsonrpc" has to be "2.0"'
    elif not isinstance(method, str):
        problem = "the method has to be a string"
    elif not isinstance(message.get("params", {}), dict):
        problem = "params have to be an object"
    if problem:
        raise RpcError(INVALID_REQUEST, "Invalid request: " + problem)
    return "request"


def log(line: str) -> None:
    """Write a line to stderr, and never fail or wait: stderr may be closed, full, or not UTF-8."""
    if len(line) > MAX_LOG_LINE:
        line = line[:MAX_LOG_LINE // 4] + " [...] " + line[-MAX_LOG_LINE * 3 // 4:]
    try:
        plain = f"mcp_ref: {_tame(line).encode('ascii', 'backslashreplace').decode()}\n"
        if _is_writable(sys.stderr):
            sys.stderr.write(plain[:4096])      # as much as a pipe takes, if it takes anything
            sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def _is_writable(stream: Any) -> bool:
    """Tell whether a stream takes something now: a client need not read our stderr."""
    try:
        return _is_ready(stream, True)
    except (AttributeError, OSError, ValueError):   # what is no file, on Windows or in a test
        return True


def _is_ready(stream: Any, to_write: bool, seconds: float = 0) -> bool:
    """Tell whether a descriptor could be read from, or written to, now or in so many seconds."""
    import select
    if not hasattr(select, "poll"):                 # Windows, where it has to be a socket
        return any(select.select([] if to_write else [stream], [stream] if to_write else [], [],
                                 seconds))
    poll = select.poll()                            # select() cannot do more than 1024 of them
    poll.register(stream.fileno(), select.POLLOUT if to_write else select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def shown(value: Any) -> str:
    """Return foreign input, shortened, for a log or an error."""
    source = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return _tame(source if len(source) <= MAX_LOGGED else source[:MAX_LOGGED] + "...")


def _tame(source: str) -> str:
    """Return a text in which nothing commands a terminal."""
    return source if source.isprintable() else re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", source)


# ---- small things that both roles need

class AskError(Exception):
    """A question got no usable answer. `error` is the client's error object, if it has one."""

    def __init__(self, message: str, error: Message | None = None) -> None:
        super().__init__(message)
        self.error = error


def _failure(error: RpcError, ident: Any) -> Message:
    """Make an error response, without an id if none was readable: basic/index §Error Responses."""
    response = {"jsonrpc": "2.0", "id": ident, "error": error.to_json()}
    return response if ident is not None else {"jsonrpc": "2.0", "error": response["error"]}


def _said(problem: BaseException) -> str:
    """Return what an exception says, and what it is called if it says nothing, or only a key."""
    try:
        if isinstance(problem, KeyError) and problem.args:
            return f"KeyError: {problem}"
        return str(problem) or type(problem).__name__
    except Exception:                           # noqa: BLE001
        return type(problem).__name__


def _log_traceback(what: str, problem: BaseException) -> None:
    """Write what went wrong in a handler to stderr, and nowhere else."""
    if isinstance(problem, AskError):           # the client's doing: where we were tells nothing
        log(f"{shown(what)} failed: {_said(problem)}")
        return
    import traceback
    log("{} failed\n{}".format(shown(what), "".join(traceback.format_exception(
        type(problem), problem, problem.__traceback__)).rstrip()))


def _settled(function: Callable[..., Any], positional: Iterable[Any], named: Message) -> Any:
    """Call, and await what is to be awaited, on a loop of its own: it can hold up nobody else."""
    return _awaited(function(*positional, **named))


async def _kept(coroutine: Any) -> tuple[Any, BaseException | None]:
    """Await it, and keep what it raises: SystemExit would end the loop that is not ours."""
    try:
        return await coroutine, None
    except BaseException as problem:    # noqa: BLE001
        return None, problem


def _unkept(outcome: tuple[Any, BaseException | None]) -> Any:
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def _has_loop() -> bool:
    """Tell whether an asyncio loop runs on this thread."""
    import asyncio
    try:
        return bool(asyncio.get_running_loop())
    except RuntimeError:
        return False


def _awaited(value: Any) -> Any:
    if isinstance(value, types.CoroutineType):
        import asyncio
        return asyncio.run(value)
    return value


def _base64(data: bytes) -> str:
    import base64
    return base64.b64encode(data).decode()


# >8 server
# ==========================================================================================
# 3. One request: Session, Context, sealed request state
#
# Every request gets a Context. What it knows of the client comes from the request's `_meta`
# (modern) or from the Session (legacy); from then on both look alike to a handler. The great
# difference is how a handler asks the client something. A legacy server sends a request and
# waits. A modern one answers *its own* request "input required", with the questions inside; the
# client sends the request again with the answers; the handler runs again from its first line,
# and now finds them. So a handler that asks obeys some rules:
#
#     ask first, act afterwards   what stands before a question is done once in each round, and so
#                                 is what stands in a `finally`
#     ask the same every time     the very same words: a question with the time in it, or a random
#                                 number, is a new one in every run, and is asked for ever
#     give a `key`                to a question that is asked on some ways through the code only
#     trust the answer, no more   it is what the client says; nobody has to have been asked
#     expect it twice             the client may send the same answers again: a handler that must
#                                 not act twice remembers what it did
#
# Words that come up before their section: a *peer* is the other end of a pipe or session, with
# what runs for it (section 5), *ordered* if messages arrive as they were sent; the *principal* is
# who calls, if the transport knows; `rules`, also `edition`, are the tables as one revision sees
# them; a *flaw* is what a Schema finds: None, or "/place: reason" (section B).
# ==========================================================================================

STATE_SECONDS = 900         # how long a modern client may take to answer; then it starts over
ASK_SECONDS = 300           # how long a legacy handler waits for an answer; people need their time


# >8 legacy
class Session:
    """[legacy] What `initialize` said: a memo of what modern requests carry in `_meta`."""

    def __init__(self, edition: Rules, params: Message, methods: dict[str, Any]) -> None:
        self.rules = edition
        self.client_info: Message = params["clientInfo"]
        self.client_capabilities: Message = params["capabilities"]
        self.methods = methods              # what the answer to `initialize` offered: it binds
        self.log_level = "info"             # until logging/setLevel; this default is left to us
        self.subscribed: set[str] = set()   # URIs, by resources/subscribe
        self.ready = threading.Event()      # set by notifications/initialized
# 8< legacy


class NotFound(Exception):
    """Raise it in a resource's handler: there is no such resource."""


class ClientLacks(RpcError):
    """The client did not declare what a question needs, or its revision has no such thing.

    Modern: answered MISSING_CAPABILITY with `data.requiredCapabilities` (basic/index §_meta);
    legacy: a tool's result with `isError`.
    """


class _InputRequired(BaseException):
    """Unwinds a modern handler that needs answers. `except Exception` must not swallow it."""

    def __init__(self, questions: dict[str, Message]) -> None:
        self.questions = questions


class _Cancelled(BaseException):
    """Unwinds a handler whose request was cancelled while it waited."""


class Context:
    """One request, as its handler sees it: the parameter that is annotated `Context`.

    `id`, `method`, `params`, `meta` (params._meta) are the request's; `version` its revision,
    `rules` the tables for it; `client_info`, `client_capabilities` what the client says of itself,
    never to be trusted; `principal` who calls, as `authorize=` says, None on stdio; `cancelled`
    turns True when the client has cancelled (section 5 has a table): then stop soon. Any thread may
    use it.
    """

    __slots__ = ("_asked_before", "_closed", "_gate", "_keys", "_known", "_on_cancel", "_progress",
                 "_send", "cancelled", "client_capabilities", "client_info", "filter", "id", "meta",
                 "method", "params", "peer", "principal", "rules", "server", "session")

    def __init__(self, server: Server, peer: Peer, send: Send, message: Message, meta: Message,
                 session: Session | None, edition: Rules, principal: Any) -> None:
        self.server = server
        self.peer = peer
        self.session = session
        self.rules = edition
        self.id = message["id"]
        self.method: str = message["method"]
        self.params: Message = message.get("params") or {}
        self.meta = meta
        self.principal = principal
        self.client_info = meta.get(META_CLIENT, {}) if session is None else session.client_info
        self.client_capabilities: Message = \
            meta[META_CAPABILITIES] if session is None else session.client_capabilities
        self.cancelled = False
        self.filter: Message = {}           # of subscriptions/listen, as far as it was granted
        self._send = send
        self._gate = threading.Lock()       # keeps this request's messages in order; guards:
        self._closed = False                # the response has gone out, nothing may follow
        self._progress = float("-inf")      # the last one that was sent
        self._known: dict[str, Any] = {}    # modern: [digest of the question, answer], by key
        self._asked_before: dict[str, str] = {}     # modern: digests of the last round's questions
        self._keys: set[str] = set()        # of the questions of this run
        self._on_cancel: list[Callable[[], Any]] = []

    @property
    def version(self) -> str:
        """The revision of this request."""
        return self.rules.version

    # ---- telling the client something while the request runs

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification that belongs to this request; nothing where its revision has none.

        A legacy session gets it even after the response.
        """
        if method in NOTIFICATIONS and method not in self.rules.notifications:
            return
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not self._emit(message) and self.session is not None and not self.cancelled:
            self.peer.send(message)

    def progress(self, progress: float, total: float | None = None,
                 message: str | None = None) -> None:
        """Report progress, if the client gave a token for it (basic/patterns/progress).

        It must grow: what does not is not sent, nor is anything after the response.
        """
        if is_id(self.meta.get("progressToken")):
            params = _present(progressToken=self.meta["progressToken"], progress=progress,
                              total=total, message=message)
            self._emit({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": self.rules.fit("progress", params)}, progress)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message, `data` being any JSON value, if the client wants such (.../logging).

        Modern: if the request named that level or a lower one; legacy: the session did, or it is at
        least "info". ValueError: not one of LOG_LEVELS. [deprecated: write to stderr]
        """
        wanted = self.meta.get(META_LOG_LEVEL) if self.session is None else self.session.log_level
        if level not in LOG_LEVELS:
            raise ValueError("{!r} is not one of {}".format(level, ", ".join(LOG_LEVELS)))
        if wanted is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            self._emit({"jsonrpc": "2.0", "method": "notifications/message",
                        "params": _present(level=level, logger=logger, data=data)})

    def close_stream(self) -> None:
        """[legacy] Over HTTP, hang up and go on: the client comes back for the rest."""
        getattr(self._send, "close_stream", _nothing)()

    def _emit(self, message: Message, progress: float | None = None) -> bool:
        """Send a message of this request, unless its response has gone out or it was cancelled."""
        with self._gate:
            if self._closed or self.cancelled:
                return False
            if progress is not None:
                if not progress > self._progress:
                    return False
                self._progress = progress
            self._send(message)
            return True

    def _send_last(self, response: Message) -> None:
        """Send the response, the last message of this request; nothing if it was cancelled."""
        with self._gate:
            if not self._closed and not self.cancelled:
                try:
                    self._send(response)
                except Exception as problem:    # noqa: BLE001  the result is not JSON
                    log(f"{self.method} returned what is not JSON: {_said(problem)}")
                    self._send(_failure(RpcError(INTERNAL_ERROR, "Internal error"), self.id))
            self._closed = True

    def on_cancel(self, function: Callable[[], Any]) -> None:
        """Have a function called when the client cancels, on another thread: to wake what waits.

        At once, if it has cancelled already; then perhaps twice.
        """
        self._on_cancel.append(function)
        if self.cancelled:
            function()

    def _cancel(self) -> None:
        self.cancelled = True
        for function in list(self._on_cancel):
            function()

    # ---- asking the client

    def elicit(self, message: str, *, key: str = "", wait: bool = True, **form: Any) -> Message:
        """Ask the user to fill a form, or to visit a page; see elicitation() for `form`.

        Returns {"action": "accept" | "decline" | "cancel", "content": {...}}: content only with an
        accepted form, and valid by its schema. With `wait=False` a page is asked for in 2025-11-25
        by the error URL_REQUIRED: the client retries when the user has been there. Raises what
        ask() raises; like there, a `finally` around it runs in every round.
        """
        question = elicitation(message, **form)
        if not wait and "url" in form and "elicitation ids" in self.rules.features:
            self._require([question])
            raise RpcError(URL_REQUIRED, message, {"elicitations": [question["params"]]})
        return self._ask_one(key, question)

    def sample(self, messages: Any, *, key: str = "", **options: Any) -> Message:
        """Ask the client's model; see sampling(). Returns {"role", "content", "model", ...}."""
        return self._ask_one(key, sampling(messages, **options))

    def list_roots(self, *, key: str = "") -> list[Message]:
        """Ask which folders to work on. Returns [{"uri": "file://...", "name": ...}, ...]."""
        listed: list[Message] = self._ask_one(key, roots())["roots"]
        return listed

    def _ask_one(self, key: str, question: Message) -> Message:
        # Without a key a question is known by its number. If the handler takes another way when it
        # runs again, the digest tells that the number now means another question.
        key = key or f"{question['method'].split('/')[0]}-{len(self._keys) + 1}"
        return self.ask({key: question})[key]

    def ask(self, questions: dict[str, Message]) -> dict[str, Message]:
        """Ask several things at once: {key: elicitation(...) | sampling(...) | roots()}.

        Returns the answers by key. Raises ClientLacks, AskError. In the modern era the handler is
        unwound here, and runs again from its first line when the answers have come: mind the rules
        above (section 3). No key may be used twice in a run.
        """
        self._require(questions.values())
        if self._keys & questions.keys():
            raise ValueError(f"a key was used before, of these: {', '.join(questions)}")
        self._keys.update(questions)
        # >8 legacy
        if self.session is not None:
            return self._ask_by_request(questions)
        # 8< legacy
        return self._ask_by_result(questions)

    def _require(self, questions: Iterable[Message]) -> None:
        """Refuse to ask what the client did not declare, or what its revision does not have."""
        missing: Message = {}
        lack = "The client has no {} for this server"
        for question in questions:
            params, name = question.get("params", {}), METHODS[question["method"]].capability
            member = params.get("mode", "") or ("tools" if "tools" in params else "")
            declared = self.client_capabilities.get(name)
            known = question["method"] in self.rules.methods and (
                member != "url" or "URL elicitation" in self.rules.features) and (
                member != "tools" or "sampling tools" in self.rules.features)
            # client/elicitation §Capabilities: `elicitation: {}` means forms only.
            if not known or not isinstance(declared, dict) or not (
                    not member or member in declared or member == "form" and "url" not in declared):
                missing.setdefault(name, {}).update({member: {}} if member else {})
            if not known:
                lack = f"Revision {self.version} has no {{}} for it: the client cannot be asked"
        if missing:
            raise ClientLacks(MISSING_CAPABILITY, lack.format(" and no ".join(missing)),
                              {"requiredCapabilities": missing})

    def _ask_by_result(self, questions: dict[str, Message]) -> dict[str, Message]:
        """Modern: take the answers that came with the request; unwind for those that did not."""
        given = self.params.get("inputResponses", _EMPTY)
        fitted = {key: _fitted(self, question) for key, question in questions.items()}
        digests = {key: _digest(question) for key, question in fitted.items()}
        for key, question in questions.items():
            # basic/patterns/mrtr §Error Handling: what is missing, or no answer at all, is asked
            # for again. So is what the state says was an answer to another question; without a
            # state there is nothing to compare with, and the answer is taken.
            if key in given and self._asked_before.get(key, digests[key]) == digests[key] \
                    and _flaw(question, given[key]) is None:
                self._known[key] = [digests[key], given[key]]
        missing = {key: question for key, question in fitted.items()
                   if self._known.get(key, [None])[0] != digests[key]}
        if missing:
            self._asked_before = {key: digests[key] for key in missing}
            raise _InputRequired(missing)
        return {key: self._known[key][1] for key in questions}

    # >8 legacy
    def _ask_by_request(self, questions: dict[str, Message]) -> dict[str, Message]:
        """[legacy] Send the questions as requests, then wait for the responses."""
        deadline = time.monotonic() + ASK_SECONDS
        calls = {key: Call(self, _fitted(self, question)) for key, question in questions.items()}

        def wake() -> None:
            for call in calls.values():
                call.settle(_Cancelled())
        self.on_cancel(wake)
        try:
            for call in calls.values():
                call.start(deadline)
            answers = {key: call.wait(deadline) for key, call in calls.items()}
        finally:
            for call in calls.values():
                call.abandon()
        for key, question in questions.items():
            flaw = _flaw(question, answers[key])
            if flaw is not None:
                raise AskError("the client's answer to {} is malformed: {}".format(
                    question["method"], flaw))
        return answers
    # 8< legacy


# ---- the questions: plain requests without an id

def elicitation(message: str, *, url: str = "", schema: Message | None = None,
                elicitation_id: str = "", **fields: Any) -> Message:
    """Make a question to the user: a form with these fields, or a page to visit (`url`).

        elicitation("Which branch?", branch=str)
        elicitation("Deploy?", where=Literal["test", "live"], dry_run=(bool, True))

    A field is a hint (str, int, float, bool, Literal, an Enum of strings, whose names become
    titles, a List of one of the last two; Annotated describes it, Optional makes it optional), or
    a pair of hint and default, or a JSON Schema; `schema` gives the whole form instead. Forms are
    flat, and never for secrets: those are what `url` is for. (client/elicitation)
    """
    if not isinstance(url, str) or not isinstance(schema, (dict, type(None))):
        raise TypeError("fields that are called url, schema, ... have to come in `schema`")
    if url:
        ident = elicitation_id or os.urandom(16).hex()
        params: Message = {"mode": "url", "message": message, "url": url, "elicitationId": ident}
    else:
        params = {"mode": "form", "message": message, "requestedSchema": schema or _form(fields)}
    return {"method": "elicitation/create", "params": params}


def sampling(messages: Any, *, max_tokens: int = 1000, **options: Any) -> Message:
    """Make a question to the client's model. [deprecated: call a model yourself]

    `messages` is a text, or a list of {"role", "content"}; the options are spelled as in
    client/sampling: systemPrompt, temperature, stopSequences, modelPreferences, tools, toolChoice.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": text(messages)}]
    return {"method": "sampling/createMessage",
            "params": {"messages": messages, "maxTokens": max_tokens, **_known(options, (
                "modelPreferences systemPrompt includeContext temperature stopSequences metadata "
                "tools toolChoice"))}}


def roots() -> Message:
    """Make the question for the client's roots. [deprecated: use tool arguments]"""
    return {"method": "roots/list"}


_ANSWERS: dict[str, Message] = {    # what the result of a question looks like
    "elicitation/create": {"required": ["action"], "properties": {
        "action": {"enum": ["accept", "decline", "cancel"]}}},
    "sampling/createMessage": {"required": ["role", "content", "model"], "properties": {
        "role": {"enum": ["user", "assistant"]}, "content": {"type": ["object", "array"]},
        "model": {"type": "string"}}},
    "roots/list": {"required": ["roots"], "properties": {"roots": {"type": "array", "items": {
        "type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}}}}},
}


def _flaw(question: Message, answer: Any) -> str | None:
    """Say what is wrong with an answer, if anything."""
    flaw = Schema({"type": "object", **_ANSWERS[question["method"]]}).flaw(answer)
    form = question.get("params", {}).get("requestedSchema")
    if flaw is None and form is not None and answer["action"] == "accept":
        # client/elicitation §Form Mode Security: check it against what was asked for.
        flaw = Schema(form).flaw(answer.get("content"))
    return flaw


def _fitted(ctx: Context, question: Message) -> Message:
    """Return a question in the form of the request's revision."""
    params, features = dict(question.get("params", {})), ctx.rules.features
    if "elicitation ids" not in features:
        params.pop("elicitationId", None)
    if "URL elicitation" not in features:
        params.pop("mode", None)                    # forms are all there is
    if "requestedSchema" in params and "rich forms" not in features:
        params["requestedSchema"] = _plain_form(params["requestedSchema"])
    if "sampling context" in features and "context" not in \
            ctx.client_capabilities.get("sampling", {}):
        params.pop("includeContext", None)          # client/sampling §Capabilities
    if "messages" in params and "sampling tools" not in features:   # one block for each message
        params["messages"] = [
            {**message, "content": block} for message in params["messages"]
            for block in (message["content"] if isinstance(message["content"], list)
                          else [message["content"]])]
    return {"method": question["method"], **({"params": params} if params else {})}


def _plain_form(schema: Message) -> Message:
    """[legacy] Return a form as in 2025-06-18: enumNames for titles, no choice of several."""
    fields = {}
    for name, field in schema.get("properties", {}).items():
        field = {key: value for key, value in field.items()
                 if key != "default" or field.get("type") == "boolean"}
        if field.get("type") == "array":
            raise ClientLacks(MISSING_CAPABILITY, f"Revision {R3} has no choice of several")
        if "oneOf" in field:
            choices = field.pop("oneOf")
            field.update(enum=[choice["const"] for choice in choices],
                         enumNames=[choice.get("title", choice["const"]) for choice in choices])
        fields[name] = field
    return {**schema, "properties": fields}


# ---- sealed request state: what a modern server knew when it asked, carried by the client
#
# basic/patterns/mrtr §Server Requirements (Basic Workflow): the client can read it, and could
# change it, so it is signed; it is bound to the request and the principal, and it expires, so that
# it is of no use elsewhere or later. No two are alike (the nonce), but each can be used twice.

def _seal(ctx: Context) -> str:
    """Return the answers so far as `requestState`: base64(JSON) "." HMAC."""
    import base64
    payload = {"answers": ctx._known, "asked": ctx._asked_before, "for": _fingerprint(ctx),
               "until": int(time.time()) + STATE_SECONDS, "nonce": os.urandom(6).hex()}
    body = base64.urlsafe_b64encode(encode(payload)).decode()
    return body + "." + _signature(ctx.server, body)


def _unseal(ctx: Context) -> None:
    """Take over the answers in `requestState`, if there is one; RpcError if it is not sound."""
    import base64
    import hmac
    if not isinstance(ctx.params.get("inputResponses", _EMPTY), dict):
        raise _invalid("inputResponses are an object")
    state = ctx.params.get("requestState")
    if state is None:
        return
    body, _, signature = state.partition(".") if isinstance(state, str) else ("", "", "")
    payload: Message = {}
    expected = _signature(ctx.server, body)
    if hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
        payload = decode(base64.urlsafe_b64decode(body))
    if payload.get("until", 0) < time.time() or payload["for"] != _fingerprint(ctx):
        raise _invalid("requestState is not ours, is of another request, or has expired; "
                       "send the request again without it")
    ctx._known, ctx._asked_before = payload["answers"], payload["asked"]


def _signature(server: Server, body: str) -> str:
    import hmac
    return hmac.new(server.state_key, body.encode("utf-8", "replace"), "sha256").hexdigest()


def _fingerprint(ctx: Context) -> str:
    """Digest what request state is bound to: server, method, params and principal."""
    params = {key: value for key, value in ctx.params.items()
              if key not in ("_meta", "inputResponses", "requestState")}
    return _digest([ctx.server.info["name"], ctx.method, params, ctx.principal])


def _digest(value: Any) -> str:
    import hashlib
    try:
        plain = json.dumps(value, sort_keys=True, default=repr)
    except TypeError:                   # a principal with keys that cannot be sorted
        plain = repr(value)
    return hashlib.sha256(plain.encode()).hexdigest()


# ==========================================================================================
# 4. The server: registering, dispatch, one function per method
#
# The whole server is `handle(message, send)`: a message comes in, messages go out. It has no
# sockets, files or threads of its own, so every transport, test or Lambda can call it. Here alone
# exceptions become responses. Mind the two ways to fail (server/tools §Error Handling): a *result*
# with `isError` is for the model to read, an *error* for the program that sent the request.
#
#     what happens                                  in a tool              in any other handler
#     ------------                                  ---------              --------------------
#     RpcError is raised                            that error             that error
#       ... with a reserved code that this revision does not have: -32603 with the same message
#     ClientLacks: it may not be asked              -32021; legacy isError -32021; legacy -32603
#     NotFound is raised                            isError                no such resource
#     any other exception                           isError, with its text -32603, without it
#     arguments that break the schema               isError; until R3 -32602
#     a result that breaks the output schema        isError
#     no such tool, prompt; params of a wrong type  -32602                 -32602
#
# So the text of a tool's exception reaches the client, and a model: raise one that you would write
# to a stranger. Tracebacks, and what others raise, go to stderr and nowhere else.
# ==========================================================================================

MAX_RUNNING = 1000          # requests in flight with one peer; the next ones are refused
MAX_COMPLETIONS = 100       # values: server/utilities/completion §Completion Results
START_SECONDS = 30          # how long `run=` may take to start a handler: its loop may be dead
class Entry(NamedTuple):
    """What is registered: the definition, as it is listed, and the function behind it."""
    definition: Message
    function: Callable[..., Any]
    signature: Signature
    arguments: Schema                           # what a client may send
    output: Schema | None = None                # of a tool's structured content
    wraps: bool = False                         # a tool's value goes out as {"result": value}
    pattern: re.Pattern[str] | None = None      # of the URIs that a template stands for
    hints: Message = _EMPTY                     # a resource's own ttlMs and cacheScope


class Server:
    """An MCP server: register functions with its decorators, then run() it, or call handle().

    `instructions` tell a model how to use it. `page_size`: items on a page of a list (None: all).
    `state_key`: bytes that sign request state (default random; processes that serve the same
    clients share one). `run`: decides where handlers run: it is called with a callable without
    arguments, and has it called once, soon, on the right thread. `ttl_ms`, `cache_scope`: caching
    hints (server/utilities/caching). `info`: title, description, websiteUrl, icons.

    `tools`, `resources`, `templates` and `prompts` are dicts, by name or URI: to unregister, delete
    from them, then call changed(). All of it may be done while requests run. Set `on_watch` to a
    function, and it is called with each URI that a client wants to hear of. `filters`: what an
    extension adds to the filter of a subscription: a function for each member, that takes its value
    and the Context, and returns what is granted of it (see tell()).
    """

    def __init__(self, name: str, version: str = "1.0", instructions: str | None = None,
                 page_size: int | None = None, state_key: bytes | str | None = None,
                 run: Callable[[Callable[[], None]], Any] | None = None, *, ttl_ms: int = 0,
                 cache_scope: str = "private", **info: Any) -> None:
        self.info = {"name": name, "version": version,
                     **_known(info, "title description websiteUrl icons")}
        self.instructions = instructions
        self.page_size = page_size
        self.state_key = bytes(state_key.encode() if isinstance(state_key, str) else
                               state_key or os.urandom(32))
        if page_size is not None and page_size < 1:
            raise ValueError("page_size is at least 1")
        self._lock = threading.Lock()               # guards _peers
        self.hints = _hints(ttl_ms, cache_scope)
        self.tools: dict[str, Entry] = {}
        self.resources: dict[str, Entry] = {}
        self.templates: dict[str, Entry] = {}
        self.prompts: dict[str, Entry] = {}
        self.completions: dict[tuple[str, str], tuple[Callable[..., Any], Signature]] = {}
        self.methods: dict[str, tuple[Callable[..., Any], Signature]] = {}      # of extensions
        self.mirrored: dict[str, str] = {}          # their params that HTTP repeats in Mcp-Name
        self.extensions: dict[str, Message] = {}    # their settings, by identifier
        self.filters: dict[str, Callable[[Any, Context], Any]] = {}
        self.on_watch: Callable[[str], Any] = _drop     # called with each URI that is subscribed to
        self._run_on = run
        self._kinds: dict[str, None] = {}           # tools, resources, prompts: what ever was
        self._offers: dict[str, dict[str, Any]] = {}    # see _offered; emptied by registering
        self._peers: WeakSet[Peer] = WeakSet()      # those that have a session
        self._listening: dict[Context, None] = {}   # the open subscriptions

    # ---- registering: decorators, bare or with options

    def tool(self, function: Callable[..., Any] | None = None, *, name: str = "",
             input_schema: Message | None = None, output_schema: Message | None = None,
             **members: Any) -> Any:
        """Register a function as a tool: hints become the schemas, the docstring the description.

        What it raises is shown to the client, as text of a result with `isError`; see section 4. It
        returns text, content (see text(), image(), ...), a list of those, a whole result
        {"content": [...], ...}, or any other value, which goes out as structured content and as
        JSON text. `members`: title, description, annotations, icons, _meta. TypeError or ValueError
        for a function that cannot be expressed. (server/tools §Tool)
        """
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function)
            output, wraps = (output_schema, False) if output_schema else signature.output()
            given = input_schema or signature.schema
            if given.get("type") != "object":
                raise ValueError('an input schema is of "type": "object"')
            definition = {"name": _named(name or signature.name), **signature.described,
                          **_known(members, "title description annotations icons _meta"),
                          **_present(inputSchema=given, outputSchema=output)}
            return self._add("tools", self.tools, definition["name"], Entry(
                definition, function, signature, Schema(given),
                None if output is None else Schema(output), wraps))
        return _decorate(register, function)

    def resource(self, uri: str, *, name: str = "", mime_type: str | None = None,
                 ttl_ms: int | None = None, cache_scope: str | None = None,
                 **members: Any) -> Decorator:
        """Register a function as a resource; with {variables} in the URI, as a template for many.

        It returns text, bytes, contents ({"text" or "blob": ..., maybe uri, mimeType}) or a list of
        contents, or any other value, which goes out as JSON. `{id}` stands for one segment,
        `{+path}` for several; each is a parameter. `members`: title, description, size,
        annotations, icons, _meta. (server/resources, RFC 6570)
        """
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function)
            pattern, names = _uri_pattern(uri)
            if names != set(signature.parameters):
                raise ValueError(f"the variables of {uri} are not those of {signature.name}()")
            definition = {"uriTemplate" if names else "uri": uri, "name": name or signature.name,
                          **signature.described, **_present(mimeType=mime_type),
                          **_known(members, "title description size annotations icons _meta")}
            return self._add("resources", self.templates if names else self.resources, uri, Entry(
                definition, function, signature, Schema(signature.schema), pattern=pattern,
                hints=_hints(ttl_ms, cache_scope)))
        if not isinstance(uri, str):
            raise TypeError('a resource has a URI: @server.resource("config://app")')
        return register

    def prompt(self, function: Callable[..., Any] | None = None, *, name: str = "",
               **members: Any) -> Any:
        """Register a function as a prompt: its parameters become the arguments, which are strings.

        It returns text (a message of the user), content, a message {"role", "content"}, a list of
        those, or a whole result {"messages": [...]}. `members`: title, description, icons, _meta.
        """
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function)
            required = signature.schema.get("required", ())
            arguments = [_present(name=parameter, description=schema.get("description"),
                                  required=parameter in required or None)
                         for parameter, schema in signature.schema["properties"].items()]
            definition = {"name": _named(name or signature.name), **signature.described,
                          **_present(arguments=arguments or None),
                          **_known(members, "title description icons _meta")}
            return self._add("prompts", self.prompts, definition["name"], Entry(
                definition, function, signature, Schema(signature.schema)))
        return _decorate(register, function)

    def completion(self, reference: str, argument: str) -> Decorator:
        """Register a function that completes an argument of a prompt, or a variable of a template.

        It takes what was typed so far and, if it has a second parameter, a dict of the arguments
        that are known already; it returns all values that match, best first.
        """
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.completions[reference, argument] = function, Signature(function, False)
            self._offers.clear()
            return function
        return register

    def method(self, name: str, *, extension: str = "", settings: Message = _EMPTY,
               mirrored: str = "") -> Decorator:
        """Register a function for a method of an extension: it takes params, and returns a result.

        `extension`: the identifier that capabilities.extensions lists, with its `settings`; the
        method's name if there is none. (basic/versioning §Extension Negotiation) `mirrored`: the
        param that HTTP repeats in the header Mcp-Name. A method of the core, such as tools/list, is
        taken over altogether: a proxy has no other use for it.
        """
        if name.startswith("rpc.") or "/" not in (extension or name):
            raise ValueError(f"{name!r}: rpc.* and names without a prefix/ are taken")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.methods[name] = function, Signature(function, False)
            self.mirrored[name] = mirrored
            if name not in METHODS:
                self.extensions.setdefault(extension or name, {}).update(settings)
            elif METHODS[name].capability in ("tools", "resources", "prompts"):
                self._kinds[METHODS[name].capability] = None
            self._offers.clear()
            return function
        return register

    def _add(self, kind: str, table: dict[str, Entry], key: str,
             entry: Entry) -> Callable[..., Any]:
        if key in table:
            raise ValueError(f"{key!r} is registered already")
        table[key] = entry
        self._kinds[kind] = None
        self._offers.clear()
        return entry.function

    # ---- what is on offer in a revision

    def capabilities(self, version: str) -> Message:
        """Return the capabilities: derived from what is registered; logging is always there."""
        declared: Message = {"logging": {}}
        for kind in self._kinds:
            declared[kind] = {"listChanged": True}
        if "resources" in declared:
            declared["resources"]["subscribe"] = True
        if (self.completions or "completion/complete" in self.methods) \
                and "completions capability" in rules(version).features:
            declared["completions"] = {}
        if self.extensions:
            declared["extensions"] = dict(self.extensions)
        return declared

    def _offered(self, version: str) -> dict[str, Any]:
        """Return the functions of the methods on offer: what was not declared is not found."""
        offered = self._offers.get(version)
        if offered is None:
            edition, declared = rules(version), self.capabilities(version)
            if "completions capability" not in edition.features:
                declared["completions"] = {}        # 2024-11-05 has the method, not the capability
            offered = {name: function for name, function in self._METHODS.items()
                       if name in edition.methods
                       and METHODS[name].capability.split(".")[0] in ("", *declared)}
            offered.update((name, Server._extension) for name in self.methods
                           if name in edition.methods or name not in METHODS)
            self._offers[version] = offered
        return offered

    # ---- dispatch

    def handle(self, message: Any, send: Send, *, peer: Peer | None = None,
               principal: Any = None) -> None:
        """Serve one decoded message: call `send` with every message that comes of it, then return.

        `peer` holds what outlives the message; without one a fresh one is used, which is all that a
        modern client needs. `principal` is who calls. Runs on the calling thread, handler included;
        may be called from many.
        """
        work = self.accept(message, send, peer or Peer(), principal)
        if work is not None:
            work()

    def accept(self, message: Any, send: Send, peer: Peer,
               principal: Any = None) -> Callable[[], None] | None:
        """Do of handle() what has to happen in the order of arrival; return the rest, if any.

        The rest is running the handler, and may be called on any thread.
        """
        # >8 legacy
        if isinstance(message, list):
            return self._accept_batch(message, send, peer, principal)
        # 8< legacy
        try:
            kind = kind_of(message)
            if kind == "request":
                return self._accept_request(message, send, peer, principal)
            if kind == "response":
                peer.settle(message)
            else:
                self._hear(message, peer)
        except RpcError as error:
            self.refuse(error, message, send, peer)
        return None

    def refuse(self, error: RpcError, message: Any, send: Send, peer: Peer) -> None:
        """Answer what cannot be served: with its id, if it has a valid one."""
        ident = message.get("id") if isinstance(message, dict) else None
        session, response = peer.session, _failure(error, ident if is_id(ident) else None)
        if "id" not in response and session and "null id in errors" in session.rules.features:
            response["id"] = None
        send(response)

    def _accept_request(self, message: Message, send: Send, peer: Peer,
                        principal: Any) -> Callable[[], None] | None:
        """Decide the era, find the method, admit the request. `initialize` and ping end here.

        basic/versioning §Backward Compatibility with Initialization-Based Versions: the era is a
        matter of the request, not of the connection; real hosts mix both on one pipe.
        """
        method, session = message["method"], peer.session
        meta = message.get("params", _EMPTY).get("_meta", _EMPTY)
        if message["id"] in peer.running:
            raise RpcError(INVALID_REQUEST, "Invalid request: the id is in use")
        if not isinstance(meta, dict):
            raise _invalid("_meta is an object")
        if META_VERSION in meta:                                    # modern
            _check_meta(meta)
            session, edition = None, _served(meta)
            offered = self._offered(edition.version)
        # >8 legacy
        elif method == "initialize":                                # legacy: opens the session
            self._initialize(message, send, peer)
            return None
        # 8< legacy
        elif method == "ping":                                      # at any time, and at once
            send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            return None
        elif session is None:                                       # neither
            raise _NO_ERA
        # >8 legacy
        elif peer.ordered and not session.ready.is_set():           # legacy, but too early
            # [2025-11-25] basic/lifecycle §Initialization
            raise _invalid("the handshake is not complete: send notifications/initialized first")
        else:                                                       # legacy
            edition, offered = session.rules, session.methods
        # 8< legacy
        if method not in offered:
            self.not_found(method)
        _check_params(method, message.get("params", _EMPTY))
        ctx = Context(self, peer, send, message, meta, session, edition, principal)
        peer.admit(ctx)
        return functools.partial(self._run, ctx, offered[method])

    def not_found(self, method: str) -> None:
        """Raise the error for a method that is not on offer, and say what was perhaps meant."""
        meant = f"; did you mean {MISNAMED[method]}?" if method in MISNAMED else ""
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {shown(method)}{meant}")

    def _hear(self, message: Message, peer: Peer) -> None:
        """Take a notification. Most ask for nothing: roots, for one, are not kept but asked for."""
        name, params = ALIASES.get(message["method"], message["method"]), message.get("params")
        if name == "notifications/cancelled" and isinstance(params, dict):
            peer.cancel(params.get("requestId", params.get("id")))      # LSP says `id`
        elif name == "notifications/initialized" and peer.session is not None:
            peer.session.ready.set()

    # >8 legacy
    def _accept_batch(self, batch: list[Any], send: Send, peer: Peer,
                      principal: Any) -> Callable[[], None] | None:
        """[legacy] Serve an array of messages: [2025-03-26] basic/index §Batching."""
        allowed = peer.session is not None and "batches" in peer.session.rules.features
        if not allowed or not 0 < len(batch) <= MAX_BATCH:
            problem = f"a batch has 1 to {MAX_BATCH} members" if allowed else "no batches here"
            self.refuse(RpcError(INVALID_REQUEST, "Invalid request: " + problem), None, send, peer)
            return None
        answers: list[Message] = []
        done: list[bool] = []

        def collect(message: Message) -> None:
            if "method" in message or done:
                send(message)           # what a handler has to say, or says late, is on its own
            else:
                encode(message)         # what is not JSON shall fail now, not with the others
                answers.append(message)

        def admit(member: Any) -> Callable[[], None] | None:
            if isinstance(member, list) or isinstance(member, dict) \
                    and member.get("method") == "initialize":
                self.refuse(RpcError(INVALID_REQUEST, "Invalid request: not in a batch"), member,
                            collect, peer)
                return None
            return self.accept(member, collect, peer, principal)
        work = [admit(member) for member in batch]

        def rest() -> None:
            for part in filter(None, work):
                part()
            done.append(True)
            if answers:
                send(answers)
        if any(work):
            return rest
        rest()
        return None
    # 8< legacy

    def _run(self, ctx: Context, function: Callable[[Server, Context], Message | None]) -> None:
        """Run the function of a method, and send the response, whatever happens."""
        try:
            response = self._response(ctx, function)
        except BaseException as problem:        # noqa: BLE001  SystemExit too: the server goes on
            _log_traceback(ctx.method, problem)
            response = _failure(RpcError(INTERNAL_ERROR, "Internal error"), ctx.id)
        if response is not None:
            ctx.peer.running.pop(ctx.id, None)  # first: with the response the id is free again
            ctx._send_last(response)

    def _response(self, ctx: Context,
                  function: Callable[[Server, Context], Message | None]) -> Message | None:
        """Make the response; None if there is none yet: subscriptions/listen stays open."""
        asks = ctx.session is None and ctx.method in METHODS and METHODS[ctx.method].asks
        try:
            if asks and ctx.method not in self.methods \
                    and ctx.params.keys() & {"requestState", "inputResponses"}:
                _unseal(ctx)                    # before the handler, which may catch exceptions
            result = None if ctx.cancelled else self._in_era_form(ctx, function(self, ctx))
        except RpcError as problem:
            if -32768 <= problem.code <= -32000 and problem.code not in ctx.rules.errors:
                problem = RpcError(INTERNAL_ERROR, str(problem), problem.data)
            return _failure(problem, ctx.id)
        except NotFound:                        # server/resources §Error Handling
            code = RESOURCE_NOT_FOUND if RESOURCE_NOT_FOUND in ctx.rules.errors else INVALID_PARAMS
            return _failure(RpcError(code, "Resource not found", {"uri": ctx.params.get("uri")}),
                            ctx.id)
        except _InputRequired as unwound:       # basic/patterns/mrtr §InputRequiredResult
            if not asks:                        # ... §Supported Requests
                raise RuntimeError(f"{ctx.method} may not ask the client") from None
            result = {"resultType": "input_required", "inputRequests": unwound.questions,
                      "requestState": _seal(ctx), "_meta": {META_SERVER: self._brief}}
        except _Cancelled:
            result = None
        if result is None and not ctx.cancelled:
            return None
        return {"jsonrpc": "2.0", "id": ctx.id, "result": result}

    def _in_era_form(self, ctx: Context, result: Message | None) -> Message | None:
        """Give a result the form of its era: basic/index §ResultType, server/utilities/caching."""
        if result is None or ctx.session is not None:
            return result
        brief = self.info if ctx.method == "server/discover" else self._brief
        cacheable = ctx.method in METHODS and METHODS[ctx.method].cacheable \
            and result.get("resultType") != "input_required"
        return {"resultType": "complete", **(self.hints if cacheable else _EMPTY), **result,
                "_meta": {**result.get("_meta", _EMPTY), META_SERVER: brief}}

    @property
    def _brief(self) -> Message:
        return {"name": self.info["name"], "version": self.info["version"]}

    def _call(self, function: Callable[..., Any], positional: Iterable[Any], named: Message) -> Any:
        """Call a handler, `def` or `async def`, where it is to run; return what it returns."""
        if self._run_on is None:
            return _settled(function, positional, named)
        return _run_there(self._run_on, functools.partial(function, *positional, **named))

    # ---- changes

    def changed(self, what: str) -> None:
        """Tell the clients that a list changed ("tools", "prompts", "resources"), or a URI.

        It reaches the subscriptions that ask for it (basic/patterns/subscriptions) and the legacy
        sessions: for a list all of them, for a URI those that subscribed to it. From any thread.
        """
        name = "notifications/resources/updated" if ":" in what else \
            f"notifications/{what}/list_changed"
        if name not in NOTIFICATIONS:
            raise ValueError(f"{what!r} is neither tools, prompts or resources nor a URI")
        row, params = NOTIFICATIONS[name], {"uri": what} if ":" in what else {}
        self.tell(row.filter, what, name, params)
        # >8 legacy
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            session = peer.session
            if session is not None and session.ready.is_set() \
                    and row.capability + "/list" in session.methods \
                    and (not params or what in session.subscribed):
                peer.send({"jsonrpc": "2.0", "method": name, **_present(params=params or None)})
        # 8< legacy

    def tell(self, member: str, what: Any, method: str, params: Message) -> None:
        """Send a notification to each subscription whose filter has `member`: True, or a list with
        `what` in it. From any thread."""
        for ctx in list(self._listening):
            wanted = ctx.filter.get(member)
            if wanted is True or isinstance(wanted, list) and what in wanted:
                ctx._emit({"jsonrpc": "2.0", "method": method,
                           "params": {**params, "_meta": {META_SUBSCRIPTION: ctx.id}}})

    def end_subscription(self, ctx: Context) -> None:
        """End a subscription from this side, if it is one: .../subscriptions §Graceful Closure."""
        if ctx not in self._listening or not self._forget(ctx):
            return
        if ctx.peer.ordered:        # basic/patterns/cancellation: the one use of a modern server
            ctx._emit({"jsonrpc": "2.0", "method": "notifications/cancelled",
                       "params": {"requestId": ctx.id, "reason": "the server is closing"}})
        result = {"_meta": {META_SUBSCRIPTION: ctx.id}}
        ctx._send_last({"jsonrpc": "2.0", "id": ctx.id, "result": self._in_era_form(ctx, result)})

    def _forget(self, ctx: Context) -> bool:
        """Drop a subscription; tell whether it was there: of those who race to end it, one may."""
        self._listening.pop(ctx, None)
        return ctx.peer.running.pop(ctx.id, None) is not None

    # ---- one function per method: a Context comes in, a result goes out

    # >8 legacy
    def _initialize(self, message: Message, send: Send, peer: Peer) -> None:
        """[legacy] Open the session: [2025-11-25] basic/lifecycle §Initialization.

        Before the answer the client should send nothing but pings; then, on a pipe, only pings are
        served until notifications/initialized, while over HTTP, where messages overtake each other,
        all requests are. To initialize again opens a new session on the same pipe: what still runs
        in the old one is finished, what was subscribed to is forgotten.
        """
        params = message.get("params", _EMPTY)
        _check_params("initialize", params)
        known, version = versions("legacy"), params["protocolVersion"]
        version = version if version in known else known[0]
        peer.session = Session(rules(version), params, self._offered(version))
        if peer.send is _drop:
            peer.send = send
        with self._lock:
            self._peers.add(peer)
        send({"jsonrpc": "2.0", "id": message["id"], "result": _present(
            protocolVersion=version, capabilities=self.capabilities(version),
            serverInfo=rules(version).fit("server", self.info), instructions=self.instructions)})
    # 8< legacy

    def _discover(self, ctx: Context) -> Message:
        """server/discover §Response."""
        return _present(supportedVersions=versions(), capabilities=self.capabilities(ctx.version),
                        instructions=self.instructions)

    def _listen(self, ctx: Context) -> None:
        """basic/patterns/subscriptions: acknowledge what is granted, then stay open."""
        wanted, declared = ctx.params["notifications"], self.capabilities(ctx.version)
        for row in NOTIFICATIONS.values():
            value = wanted.get(row.filter) if row.filter else None
            valid = isinstance(value, list) and all(isinstance(uri, str) for uri in value) \
                if row.filter == "resourceSubscriptions" else isinstance(value, bool)
            if value is not None and not valid:
                raise _invalid(f"notifications.{row.filter} is no such value")
            if value and row.capability in declared:
                ctx.filter[row.filter] = value
        for member in wanted.keys() & self.filters.keys():
            ctx.filter.update(_present(**{member: self.filters[member](wanted[member], ctx)}))
        for uri in ctx.filter.get("resourceSubscriptions", ()):
            self.on_watch(uri)
        with ctx._gate:             # a change in this very moment waits, and follows
            self._listening[ctx] = None
            ctx._send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                       "params": {"_meta": {META_SUBSCRIPTION: ctx.id},
                                  "notifications": ctx.filter}})
        ctx.on_cancel(functools.partial(self._forget, ctx))
        if ctx.peer.closed:                     # in the meantime
            self.end_subscription(ctx)

    def _list(self, ctx: Context, kind: str, member: str, table: dict[str, Entry]) -> Message:
        """server/utilities/pagination: a page of definitions, in the order of registration."""
        entries, cursor = list(table.values()), ctx.params.get("cursor")
        start = 0 if cursor is None else _position(kind, cursor, len(entries))
        stop = len(entries) if self.page_size is None else start + self.page_size
        page = [_definition(ctx.rules, kind, entry.definition) for entry in entries[start:stop]]
        return {member: page, **_present(
            nextCursor=_cursor(kind, stop) if stop < len(entries) else None)}

    def _call_tool(self, ctx: Context) -> Message:
        """server/tools §Calling Tools, §Error Handling."""
        name, arguments = ctx.params["name"], ctx.params.get("arguments") or {}
        entry = self.tools.get(name)
        if entry is None:
            raise RpcError(INVALID_PARAMS, "Unknown tool: " + shown(name))
        flaw = entry.arguments.flaw(arguments)
        if flaw is not None:
            place, _, reason = flaw.partition(": ")
            if "argument errors as results" in ctx.rules.features:
                return _tool_error(f"Invalid arguments for {name}: {flaw}")
            raise _invalid(flaw, {"field": place[1:], "reason": reason})
        try:
            value = self._call(entry.function, (), entry.signature.bind(arguments, ctx))
            return _tool_result(ctx, entry, value)
        except (RpcError, _InputRequired, _Cancelled) as problem:
            if isinstance(problem, ClientLacks) and ctx.session is not None:
                return _tool_error(str(problem))
            raise
        except BaseException as problem:        # noqa: BLE001
            _log_traceback("tool " + name, problem)
            return _tool_error(_said(problem))

    def _read_resource(self, ctx: Context) -> Message:
        """server/resources §Reading Resources."""
        uri = ctx.params["uri"]
        entry, variables = self._find_resource(uri)
        value = self._call(entry.function, (), entry.signature.bind(variables, ctx))
        result = _read_result(ctx, uri, entry, value)
        return {**entry.hints, **result} if ctx.session is None else result

    def _find_resource(self, uri: str) -> tuple[Entry, Message]:
        """Return the entry behind a URI, and a template's variables; NotFound if there is none."""
        entry, variables = (self.resources[uri], {}) if uri in self.resources else self._match(uri)
        if entry is None:
            raise NotFound(uri)
        return entry, _from_strings(entry, _variables(entry, variables, uri)) if variables else {}

    def _match(self, uri: str) -> tuple[Entry | None, dict[str, str]]:
        """Return the template that a URI is of, and its variables as they stand in it."""
        for entry in list(self.templates.values()):
            match = entry.pattern and entry.pattern.fullmatch(uri)
            if match:
                return entry, match.groupdict()
        return None, {}

    def _get_prompt(self, ctx: Context) -> Message:
        """server/prompts §Getting a Prompt."""
        name, arguments = ctx.params["name"], ctx.params.get("arguments") or {}
        entry = self.prompts.get(name)
        if entry is None:
            raise RpcError(INVALID_PARAMS, "Unknown prompt: " + shown(name))
        if not all(isinstance(value, str) for value in arguments.values()):
            raise _invalid("the arguments of a prompt are strings")
        bound = entry.signature.bind(_from_strings(entry, arguments), ctx)
        value = self._call(entry.function, (), bound)
        return _prompt_result(ctx, entry, value)

    def _complete(self, ctx: Context) -> Message:
        """server/utilities/completion §Requesting Completions."""
        reference, argument = ctx.params["ref"], ctx.params["argument"]
        name, typed = argument.get("name"), argument.get("value")
        if reference.get("type") == "ref/prompt":
            key, entry = reference.get("name"), self.prompts.get(str(reference.get("name")))
        else:
            key = reference.get("uri")
            entry = self.templates.get(str(key)) or self._match(str(key))[0]
        if entry is None or name not in entry.signature.parameters or not isinstance(typed, str):
            raise _invalid("`ref` names no prompt or template, or `argument` none of its arguments")
        known = (ctx.params.get("context") or {}).get("arguments") or {} \
            if "completion context" in ctx.rules.features else {}
        values: list[str] = []
        found = self.completions.get((entry.definition.get("uriTemplate", key), name))
        if found is not None:
            function, signature = found
            positional = [typed, known][:len(signature.parameters)]
            values = list(self._call(function, positional, signature.bind({}, ctx)))
        return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values),
                               "hasMore": len(values) > MAX_COMPLETIONS}}

    # >8 legacy
    def _set_level(self, ctx: Context) -> Message:
        """[legacy] [2025-11-25] server/utilities/logging §Setting Log Level."""
        if ctx.params["level"] not in LOG_LEVELS:
            raise _invalid("level is one of " + ", ".join(LOG_LEVELS))
        if ctx.session is not None:
            ctx.session.log_level = ctx.params["level"]
        return {}

    def _subscribe(self, ctx: Context) -> Message:
        """[legacy] [2025-11-25] server/resources §Subscriptions."""
        if "resources/read" not in self.methods:
            self._find_resource(ctx.params["uri"])
        if ctx.session is not None:
            ctx.session.subscribed.add(ctx.params["uri"])
        self.on_watch(ctx.params["uri"])
        return {}

    def _unsubscribe(self, ctx: Context) -> Message:
        """[legacy] The reverse; of a URI that was not subscribed to it is no mistake."""
        if ctx.session is not None:
            ctx.session.subscribed.discard(ctx.params["uri"])
        return {}
    # 8< legacy

    def _extension(self, ctx: Context) -> Message:
        """Run a method that was registered with @server.method."""
        function, signature = self.methods[ctx.method]
        result = self._call(function, [ctx.params], signature.bind({}, ctx))
        if not isinstance(result, (dict, type(None))):
            raise TypeError("the result of a method is an object")
        return result or {}

    _loading = False        # while load() imports a file: then its run() has to wait

    # initialize and ping are missing: _accept_request answers them.
    _METHODS: typing.ClassVar[dict[str, Callable[[Server, Context], Message | None]]] = {
        "server/discover": _discover, "subscriptions/listen": _listen,
        "tools/list": lambda self, ctx: self._list(ctx, "tool", "tools", self.tools),
        "resources/list": lambda self, ctx: self._list(
            ctx, "resource", "resources", self.resources),
        "resources/templates/list": lambda self, ctx: self._list(
            ctx, "template", "resourceTemplates", self.templates),
        "prompts/list": lambda self, ctx: self._list(ctx, "prompt", "prompts", self.prompts),
        "tools/call": _call_tool, "resources/read": _read_resource, "prompts/get": _get_prompt,
        "completion/complete": _complete,
        # >8 legacy
        "logging/setLevel": _set_level,
        "resources/subscribe": _subscribe, "resources/unsubscribe": _unsubscribe,
        # 8< legacy
    }

    def run(self, arguments: list[str] | None = None, **options: Any) -> None:
        """Serve, as the last line of a program: on stdio, or by `--http [HOST:]PORT` over HTTP.

        `arguments` are those of the command line, if None; `options` are those of serve_http().
        """
        process: Any = sys.modules.get("multiprocessing.process")
        if process is not None and getattr(process.current_process(), "_inheriting", False):
            return                  # a worker that a tool started imports the program once more
        arguments = sys.argv[1:] if arguments is None else arguments
        arguments = [part for word in arguments for part in (
            word.split("=", 1) if word.startswith("--http=") else [word])]
        # >8 http
        if "--http" in arguments:
            host, _, port = "".join(arguments[arguments.index("--http") + 1:][:1]).rpartition(":")
            if not port.isdecimal() or int(port) > 65535:
                raise SystemExit("usage: --http [HOST:]PORT")
            try:
                serve_http(self, host.strip("[]") or "127.0.0.1", int(port), **options)
            except OSError as problem:
                raise SystemExit(f"mcp_ref: {host}:{port}: {problem}") from None
            return
        # 8< http
        if not Server._loading:
            sys.setswitchinterval(0.0005)       # a tool that computes shall not delay the reader
            if not serve_stdio(self):
                os._exit(0)                     # a handler still runs, and would spoil the exit
            leaving = threading.Timer(LEAVE_SECONDS, os._exit, (0,))
            leaving.daemon = True               # threads and processes of handlers may hold it up
            leaving.start()


# ---- small print of registering and dispatch

def _decorate(register: Callable[..., Any], function: Any) -> Any:
    """Let a decorator work bare and with options."""
    if function is not None and not callable(function):
        raise TypeError(f"options have names: @server.tool(name={function!r})")
    return register if function is None else register(function)


def _known(members: Message, names: str) -> Message:
    """Return optional members of a definition; TypeError for one that does not exist."""
    for name in members:
        if name not in names.split():
            raise TypeError(f"{name} is none of {names}")
    return _present(**members)


def _named(name: str) -> str:
    """Return a name, and warn if hosts may not like it: server/tools §Tool Names."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name):
        log(f"the name {name!r}: hosts expect 1 to 128 letters, digits, _, - and .")
    return name


def _hints(ttl_ms: int | None, cache_scope: str | None) -> Message:
    if (ttl_ms or 0) < 0 or cache_scope not in (None, "public", "private"):
        raise ValueError("ttl_ms is at least 0, cache_scope is public or private")
    return _present(ttlMs=ttl_ms, cacheScope=cache_scope)


def _check_meta(meta: Message) -> None:
    """Check what modern requests carry: basic/index §_meta."""
    if not isinstance(meta[META_VERSION], str) \
            or not isinstance(meta.get(META_CAPABILITIES), dict) \
            or not isinstance(meta.get(META_CLIENT, _EMPTY), dict):
        raise _invalid(f"_meta needs {META_VERSION}, a string, and {META_CAPABILITIES}, an object; "
                       f"{META_CLIENT} is an object")
    if meta.get(META_LOG_LEVEL, LOG_LEVELS[0]) not in LOG_LEVELS:
        raise _invalid("{} is one of {}".format(META_LOG_LEVEL, ", ".join(LOG_LEVELS)))


def _served(meta: Message) -> Rules:
    """Return the rules of the revision that a modern request names; RpcError for any other."""
    version = meta[META_VERSION]
    if version not in REVISIONS or not rules(version).modern:
        # The list has the legacy ones too: who knows no modern one may still initialize.
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version",
                       {"supported": versions(), "requested": version})
    return rules(version)


def _check_params(method: str, params: Message) -> None:
    """Check the params of a request against the table."""
    for name, kind, kind_name, optional in _PARAMS.get(method, ()):
        value = params.get(name)
        if not isinstance(value, kind) and not (optional and value is None):
            raise _invalid(f"{method} needs {name}, {kind_name}")


def _run_there(run: Callable[[Callable[[], None]], Any], call: Callable[[], Any]) -> Any:
    """Have `run` call it on a thread of its choice; wait; return or raise what came of it.

    A coroutine becomes a task of the loop that runs on that thread, if there is one.
    """
    outcome: list[Any] = []
    tasks: list[Any] = []               # a loop itself does not hold on to them
    turn = threading.Lock()             # taken by whoever is first: the call, or giving up on it
    begun, done = threading.Event(), threading.Event()

    def settle(produce: Callable[[], Any]) -> None:
        try:
            value = produce()
            if isinstance(value, types.CoroutineType) and _has_loop():
                import asyncio
                task = asyncio.ensure_future(_kept(value))
                tasks.append(task)
                task.add_done_callback(lambda task: settle(lambda: _unkept(task.result())))
                return
            outcome.extend([_awaited(value), None])
        except BaseException as problem:    # noqa: BLE001  raised again, where it belongs
            outcome.extend([None, problem])
        done.set()

    def thunk() -> None:
        if turn.acquire(blocking=False):
            begun.set()
            settle(call)
    run(thunk)
    if not begun.wait(START_SECONDS) and turn.acquire(blocking=False):
        raise RuntimeError(f"nobody started the handler within {START_SECONDS:g} s: "
                           "is the loop behind `run=` alive?")
    while not done.wait(1):
        if tasks and tasks[0].get_loop().is_closed():
            raise RuntimeError("the loop behind `run=` was closed")
    value, problem = outcome
    if problem is not None:
        raise problem
    return value


# ---- what handlers return becomes results

def text(value: str, **members: Any) -> Message:
    """Make text content; `members`, here and below: annotations, _meta."""
    return {"type": "text", "text": value, **members}


def image(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make image content."""
    return {"type": "image", "data": _base64(data), "mimeType": mime_type, **members}


def audio(data: bytes, mime_type: str, **members: Any) -> Message:
    """Make audio content; before 2025-03-26 it goes out as an embedded resource."""
    return {"type": "audio", "data": _base64(data), "mimeType": mime_type, **members}


def embedded(uri: str, value: str | bytes, mime_type: str | None = None,
             **members: Any) -> Message:
    """Make an embedded resource: contents that travel along."""
    return {"type": "resource", "resource": _contents(uri, mime_type, value), **members}


def link(uri: str, name: str, **members: Any) -> Message:
    """Make a link to a resource; before 2025-06-18 it goes out as text."""
    return {"type": "resource_link", "uri": uri, "name": name, **members}


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in (
        "text", "image", "audio", "resource", "resource_link")


def _definition(edition: Rules, kind: str, definition: Message) -> Message:
    """Return a definition in the form of a revision."""
    if definition.get("outputSchema", _EMPTY).get("type", "object") != "object" \
            and "any structured content" not in edition.features:
        definition = {key: value for key, value in definition.items() if key != "outputSchema"}
    return edition.fit(kind, definition)


def _content(edition: Rules, value: Any) -> Message:
    """Return content in the form of a revision; text may be given as a string."""
    if isinstance(value, str):
        return text(value)
    if not _is_content(value):
        raise TypeError("content is text, image(), audio(), embedded() or link()")
    if value["type"] == "audio" and "audio" not in edition.features:
        kind = value["mimeType"]
        return {"type": "resource", "resource": {
            "uri": "data:" + kind, "mimeType": kind, "blob": value["data"]}}
    if value["type"] == "resource_link" and "resource links" not in edition.features:
        return text("{name}: {uri}".format(**value))
    return edition.fit("content", value)


def _tool_error(message: str) -> Message:
    return {"content": [text(message)], "isError": True}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False,
                                                           allow_nan=False)


def _plainly(value: Any, entry: Entry) -> tuple[Any, Any] | None:
    """Return a tool's value as JSON, and as structured content, if that is valid by the schema."""
    if isinstance(value, dict) and "structuredContent" in value:
        return None
    try:
        plain = to_json(value)
    except TypeError:
        return None
    structured = {"result": plain} if entry.wraps else plain
    valid = entry.output is not None and entry.output.flaw(structured) is None
    return (plain, structured) if valid else None


def _tool_result(ctx: Context, entry: Entry, value: Any) -> Message:
    """Make a result of what a tool returned: server/tools §Tool Result, §Output Schema."""
    if isinstance(value, str) and entry.output is None:
        return {"content": [{"type": "text", "text": value}]}
    if isinstance(value, dict) and "resultType" in value and ctx.session is None:
        return value                            # of an extension: basic/index §ResultType
    plain = _plainly(value, entry) if entry.output is not None else None
    if plain is not None:                                       # valid by the schema
        result = {"content": [_as_text(plain[0])], "structuredContent": plain[1]}
    elif isinstance(value, dict) and (isinstance(value.get("content"), list)
                                      or "structuredContent" in value):
        result = {"content": [], **value}                       # a whole result
    elif _is_content(value):
        result = {"content": [value]}
    elif isinstance(value, list) and any(map(_is_content, value)):
        result = {"content": value}
    elif value is None:
        result = {"content": []}
    else:
        value = to_json(value)
        result = {"content": [_as_text(value)]}
        if entry.output is not None or isinstance(value, dict):
            result["structuredContent"] = {"result": value} if entry.wraps else value
    if entry.output is not None and not result.get("isError"):
        flaw = entry.output.flaw(result["structuredContent"]) if "structuredContent" in result \
            else "there is no structuredContent"
        if flaw is not None:
            log("tool {} breaks its output schema: {}".format(entry.definition["name"], flaw))
            return _tool_error("The result does not match the tool's output schema: " + flaw)
    if not isinstance(result.get("structuredContent", _EMPTY), dict) \
            and "any structured content" not in ctx.rules.features:
        del result["structuredContent"]
    result["content"] = [_content(ctx.rules, item) for item in result["content"]]
    return ctx.rules.fit("result", result)


def _contents(uri: str, mime_type: str | None, value: Any) -> Message:
    """Make contents of text, bytes, contents, or what JSON can say: §Resource Contents."""
    if isinstance(value, dict) and value.keys() & {"text", "blob"}:
        made = {**_present(uri=uri, mimeType=mime_type), **value}
        if isinstance(made.get("blob"), bytes):
            made["blob"] = _base64(made["blob"])
        return made
    if isinstance(value, bytes):
        return _present(uri=uri, mimeType=mime_type, blob=_base64(value))
    if isinstance(value, str):
        return _present(uri=uri, mimeType=mime_type, text=value)
    return {"uri": uri, "mimeType": mime_type or "application/json",
            "text": json.dumps(to_json(value), allow_nan=False)}


def _read_result(ctx: Context, uri: str, entry: Entry, value: Any) -> Message:
    """Make a result of what a resource returned: server/resources §Reading Resources."""
    if isinstance(value, dict) and isinstance(value.get("contents"), list):
        return value
    several = isinstance(value, list) and value and all(
        isinstance(item, dict) and item.keys() & {"text", "blob"} for item in value)
    mime_type = entry.definition.get("mimeType")
    return {"contents": [ctx.rules.fit("contents", _contents(uri, mime_type, item))
                         for item in (value if several else [value])]}


def _prompt_result(ctx: Context, entry: Entry, value: Any) -> Message:
    """Make a result of what a prompt returned: server/prompts §PromptMessage."""
    result = value if isinstance(value, dict) and "messages" in value else \
        {"messages": value if isinstance(value, list) else [value]}
    messages = []
    for item in result["messages"]:
        message = item if isinstance(item, dict) and "role" in item else \
            {"role": "user", "content": item}
        if message["role"] not in ("user", "assistant"):
            raise TypeError("the role is user or assistant")
        messages.append({**message, "content": _content(ctx.rules, message["content"])})
    return {**_present(description=entry.definition.get("description")), **result,
            "messages": messages}


# ---- cursors, and URI templates

def _cursor(kind: str, position: int) -> str:
    return _base64(b"%s:%d" % (kind.encode(), position))


def _position(kind: str, cursor: Any, size: int) -> int:
    """Return what a cursor of ours stands for; RpcError for any other."""
    for position in (int(digits) for digits in re.findall(r"\d{1,9}", _unbase64(cursor))):
        if position <= size and _cursor(kind, position) == cursor:
            return position
    raise _invalid("the cursor is not one of this list; start again without")


def _unbase64(value: Any) -> str:
    import base64
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (ValueError, TypeError):
        return ""


def _uri_pattern(template: str) -> tuple[re.Pattern[str], set[str]]:
    """Compile a URI template, and name its variables: RFC 6570 level 1, and {+name}."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", template) or re.search("[^!-~]", template):
        raise ValueError(f"{template!r} is no URI: it has a scheme, and is ASCII (%20, %C3%BC)")
    pattern = ""
    names: set[str] = set()
    for literal, plus, name in re.findall(r"([^{}]+)|\{(\+?)([A-Za-z_]\w*)\}", template):
        if name in names or plus and ".+" in pattern:   # the second would be slow to match, too
            raise ValueError(f"{template!r}: a variable comes once, and one {{+name}} is enough")
        pattern += re.escape(literal) or "(?P<{}>{})".format(name, ".+" if plus else "[^/?#]+")
        names.update([name] if name else [])
    rest = re.sub(r"\{\+?[A-Za-z_]\w*\}", "", template)
    if "{" in rest or "}" in rest:
        raise ValueError(f"{template!r}: a URI template has {{name}} and {{+name}}, no more")
    return re.compile(pattern, re.DOTALL), names


def _variables(entry: Entry, found: dict[str, str], uri: str) -> dict[str, str]:
    """Decode a template's variables; refuse those that would leave their place.

    server/resources §Security Considerations: sooner or later a value becomes part of a path.
    """
    from urllib.parse import unquote
    values = {name: unquote(value, errors="replace") for name, value in found.items()}
    for name, value in values.items():
        segments = re.split(r"[/\\]", value)
        one = f"{{+{name}}}" not in entry.definition["uriTemplate"]     # one segment
        if ".." in segments or not segments[0] or value == "." or re.search("[\0\ufffd]", value) \
                or len(segments) > 1 and (one or re.match("[A-Za-z]:", value)):
            raise _invalid(f"the value of {name} leaves its place", {"uri": uri})
    return values


def _from_strings(entry: Entry, strings: dict[str, str]) -> Message:
    """Return what strings stand for by the schema: "5" is 5 where an integer is wanted."""
    values: Message = dict(strings)
    while True:
        flaw = entry.arguments.flaw(values)
        if flaw is None:
            return values
        name = flaw.partition(":")[0][1:]
        if values.get(name) is not strings.get(name, ""):
            raise _invalid(flaw)                # not as it stands, and not as JSON
        try:
            values[name] = decode(strings[name].encode("utf-8", "replace"))
        except RpcError:
            raise _invalid(flaw) from None


# ==========================================================================================
# 5. The peer: ids, waiting calls, running requests, cancellation
#
# What outlives one message. On stdio there is one peer, the pipe; over HTTP each legacy session
# has one, and each modern request one of its own. Two kinds of ids live here and never meet: those
# of the requests that we run (the client chose them), and of those that we sent.
#
# What makes `ctx.cancelled` true, after which a request gets no response:
#
#                                  stdio     HTTP, modern           HTTP, legacy session
#     notifications/cancelled      yes       no: hang up instead    yes, by POST
#     the stream or connection     -         yes                    no: the rest can be fetched
#       of the request breaks                                       (basic/patterns/cancellation)
#     end of input, DELETE         no: what runs is finished, on stdio in LEAVE_SECONDS at most
# ==========================================================================================


# >8 legacy
class Call:
    """[legacy] One request of ours to the client, from being made until it is settled."""

    def __init__(self, ctx: Context, question: Message) -> None:
        self.ctx = ctx
        self.id = next(ctx.peer.ids)
        self.question = question
        self._sent = False
        self._settled = threading.Event()
        self._outcome: Any = None

    def start(self, deadline: float) -> None:
        """Send it, on the stream of the request that needs the answer, once the client is ready."""
        session, peer = self.ctx.session, self.ctx.peer
        if session and not session.ready.wait(max(0.0, deadline - time.monotonic())):
            raise AskError("the client never sent notifications/initialized")
        peer.calls[self.id] = self
        if self.ctx.cancelled or peer.closed:       # in the meantime
            self.settle(_Cancelled() if self.ctx.cancelled else AskError("the client is gone"))
        elif self.ctx._emit({"jsonrpc": "2.0", "id": self.id, **self.question}):
            self._sent = True
        else:
            self.settle(AskError("the request is over: nothing can be asked any more"))

    def wait(self, deadline: float) -> Any:
        """Return the result; AskError for an error, for nonsense, and when time is up."""
        self.ctx.peer.blocks()
        if not self._settled.wait(max(0.0, deadline - time.monotonic())):
            raise AskError("the client did not answer {} in time".format(self.question["method"]))
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def settle(self, outcome: Any) -> None:
        """Settle it: by a response, with either a result or an error in it; or by an exception."""
        if isinstance(outcome, dict):
            error = outcome.get("error")
            if "result" in outcome and "error" not in outcome:
                outcome = outcome["result"]
            elif "result" not in outcome and isinstance(error, dict) and is_id(error.get("code")):
                outcome = AskError("the client refused: " + shown(error.get("message")), error)
            else:
                outcome = AskError("the client's response has no proper result or error: "
                                   + shown(json.dumps(outcome)))
        self._outcome = outcome
        self._settled.set()

    def abandon(self) -> None:
        """Forget it. If the client is still busy with it, tell it not to bother any more."""
        pending = not self._settled.is_set() or isinstance(self._outcome, _Cancelled)
        if self.ctx.peer.calls.pop(self.id, None) is not None and pending and self._sent:
            self.ctx._send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                            "params": {"requestId": self.id}})
# 8< legacy


def _drop(message: Any) -> None:
    """Send to nobody."""


class Peer:
    """The other end of a pipe or a session. Give the same one to each handle() that belongs to it.

    `send` takes the messages that belong to no request. `ordered` says that messages arrive as they
    were sent, as on a pipe: then a request before notifications/initialized is a mistake.
    """

    def __init__(self, send: Send | None = None, *, ordered: bool = True) -> None:
        self.send: Send = send or _drop
        self.ordered = ordered
        self.session: Session | None = None      # [legacy] set by the thread that reads
        self.running: dict[Any, Context] = {}       # their requests by id: single operations only
        self.calls: dict[Any, Call] = {}            # our requests by id: likewise
        self.ids = iter(range(1, sys.maxsize))
        self.blocks: Callable[[], Any] = _nothing   # told when a handler starts to wait for them
        self.closed = False

    def admit(self, ctx: Context) -> None:
        """Note that a request runs; RpcError if its id is in use, or if there are too many."""
        if len(self.running) >= MAX_RUNNING:
            raise RpcError(INTERNAL_ERROR, f"{MAX_RUNNING} requests are in flight: wait for some")
        if self.running.setdefault(ctx.id, ctx) is not ctx:
            raise RpcError(INVALID_REQUEST, "Invalid request: the id is in use")

    def cancel(self, ident: Any) -> None:
        """Cancel a running request; what is unknown, done or no id at all is passed over."""
        ctx = self.running.get(ident) if is_id(ident) else None
        if ctx is not None:
            ctx._cancel()

    def settle(self, response: Message) -> None:
        """[legacy] Hand a response to the call that waits for it, if there is one."""
        ident = response.get("id")
        call = self.calls.get(ident) if is_id(ident) else None
        if call is not None:
            call.settle(response)

    def close(self) -> None:
        """The other end is gone, or going: fail what waits for it, and end its subscriptions."""
        self.closed = True
        for call in list(self.calls.values()):
            call.settle(AskError("the client is gone"))
        for ctx in list(self.running.values()):
            ctx.server.end_subscription(ctx)


# ==========================================================================================
# 6. Server on stdio
#
# Threads take turns at the pipe. Whoever has the turn reads a line and settles what has to happen
# in order, ping included. If there is a handler to run, and no other one is running, it runs it on
# the spot: no queue, no hand-off, the speed of a bare loop. If that takes longer than a blink, or
# if others are running, the turn goes to the next thread, so that a slow tool delays nobody.
# Only messages ever reach stdout: descriptors 0 and 1 are taken away from everybody else first.
# ==========================================================================================

MAX_THREADS = 64            # that take turns; at the cap requests wait, and somebody keeps reading
BLINK_SECONDS = 0.01        # how long a handler may keep the turn; people notice ten times that
LEAVE_SECONDS = 1.8         # for handlers that still run at the end of input; hosts kill after 2


class Pipe:
    """One stream of lines, served. `read` returns a line of at most so many bytes, b"" at the end;
    `write` writes all of its bytes; `ended` is called when either finds nobody at the other end."""

    def __init__(self, server: Server, read: Callable[[int], bytes], write: Callable[[bytes], Any],
                 ended: Callable[[], Any]) -> None:
        self.server = server
        self.peer = Peer(self.send)
        self.peer.blocks = self._hand_on
        self.threads: list[threading.Thread] = []
        self._read, self._write, self._ended = read, write, ended
        self._over = False                  # set once, by whoever sees the end
        self._turn = threading.Lock()       # whose turn it is; given up, or taken away by _hand_on
        self._mine: list[int] = []          # one number while the turn's holder runs a handler:
        self._count = 0                     # ... who takes it out decides what becomes of the turn
        self._watched = threading.Event()   # set while the watch is awake
        self._writing = threading.Lock()    # a leaf: guards one write
        self._pool = threading.Lock()       # a leaf: guards the three below, and starting threads
        self._idle = 0                      # threads that wait for their turn
        self._busy = 0                      # threads that run a handler, without the turn
        self._backlog: list[Callable[[], None]] = []    # at the cap: newest first

    def send(self, message: Any) -> None:
        """Write a message; nobody is left to be told if that fails."""
        line = encode(message)
        flaw = _excess(line) if len(line) > 2 * MAX_DEPTH else ""
        if flaw and "result" in message:
            log(f"a result is {flaw}")
            line = encode(_failure(RpcError(INTERNAL_ERROR, "The result is " + flaw),
                                   message["id"]))
        try:
            with self._writing:
                self._write(line)
        except OSError:
            self._ended()

    def start(self) -> None:
        """Start the watch and the first thread."""
        threading.Thread(target=self._watch, daemon=True, name="mcp-watch").start()
        self._add_thread()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._take_turns, daemon=True,
                                  name=f"mcp-turn-{len(self.threads)}")
        thread.start()
        self.threads.append(thread)

    def _take_turns(self) -> None:
        """Wait for the turn, use it, and run what came of it: the life of a thread."""
        while True:
            with self._pool:
                work = self._backlog.pop() if self._backlog else None
                if work is None:
                    self._idle += 1
                else:
                    self._busy += 1
            if work is None:
                self._turn.acquire()
                with self._pool:
                    self._idle -= 1
                work = self._use_turn()
            if work is None:
                return
            self._work(work)
            with self._pool:
                self._busy -= 1

    def _work(self, work: Callable[[], None]) -> None:
        """Run a handler; should it fail in a way that nobody foresaw, the pipe goes on."""
        try:
            work()
        except BaseException as problem:        # noqa: BLE001
            _log_traceback("a handler", problem)

    def _use_turn(self) -> Callable[[], None] | None:
        """Read and serve until the turn is lost; return what to run now, None at the end."""
        while not self._over:
            work = self._serve_line()
            if work is None:
                continue
            if self._busy:
                if self._somebody_waits():
                    self._give_turn()
                    return work
                with self._pool:
                    self._backlog.insert(0, work)
                continue
            self._count += 1
            self._mine.append(self._count)
            if not self._watched.is_set():
                self._watched.set()
            self._work(work)
            try:
                self._mine.pop()
            except IndexError:              # taken away meanwhile
                return _nothing
        self._turn.release()
        return None

    def _somebody_waits(self) -> bool:
        """Tell whether a thread waits for the turn; start one if there may be more."""
        with self._pool:
            if not self._idle and len(self.threads) < MAX_THREADS:
                try:
                    self._add_thread()
                except RuntimeError as problem:     # the system has no more threads for us
                    log(f"no more threads: {problem}")
                    return False
                return True
            return self._idle > 0

    def _give_turn(self) -> None:
        """Give the turn to a thread that waits for it."""
        with self._pool:
            self._busy += 1
        self._turn.release()

    def _hand_on(self) -> None:
        """Take the turn away from a thread that runs a handler: it takes too long, or waits."""
        if self._mine and self._somebody_waits():
            try:
                self._mine.pop()
            except IndexError:                  # it has just finished
                return
            self._give_turn()

    def _watch(self) -> None:
        """Hand on when a handler takes too long. Sleeps while nothing happens at all."""
        while not self._over:
            self._watched.wait()
            before = self._count
            time.sleep(BLINK_SECONDS)
            self._watched.clear()           # first: who starts a handler now will set it again
            if self._count != before:
                self._watched.set()
            else:                           # no other has started: it is the same one, or none
                self._hand_on()

    def _serve_line(self) -> Callable[[], None] | None:
        """Read a line and serve it, but for a handler: that is returned."""
        line, message = b"", None
        try:
            line = self._read(MAX_MESSAGE_BYTES + 2)
            if len(line) > MAX_MESSAGE_BYTES and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = self._read(MAX_MESSAGE_BYTES)        # the next line is good again
                raise RpcError(PARSE_ERROR, f"Parse error: more than {MAX_MESSAGE_BYTES} bytes")
            if line and not line.isspace():
                message = decode(line.rstrip(b"\r\n") if len(line) > MAX_MESSAGE_BYTES else line)
                return self.server.accept(message, self.send, self.peer)
        except RpcError as error:
            log(f"{error}, in: {shown(line)}")
            self.server.refuse(error, None, self.send, self.peer)
        except OSError:                         # a terminal or a socket that is gone: the end
            line = b""
        except Exception as problem:            # noqa: BLE001  whatever it is, the pipe goes on
            _log_traceback("a message", problem)
            self.server.refuse(RpcError(INTERNAL_ERROR, "Internal error"), message, self.send,
                               self.peer)
        if not line:
            self._over = True
            self._ended()
        return None

    def leave(self, seconds: float) -> bool:
        """End what waits for the client, give handlers `seconds`; tell whether all finished."""
        self._over = True
        self._watched.set()
        closing = threading.Thread(target=self.peer.close, daemon=True, name="mcp-close")
        closing.start()                         # which writes, and perhaps nobody reads
        deadline = time.monotonic() + seconds
        for thread in [closing, *self.threads]:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in [closing, *self.threads])


def serve_stdio(server: Server) -> bool:
    """Serve the client on stdin and stdout until it leaves. (basic/transports/stdio)

    Takes descriptors 0 and 1 for good: handlers and their children read nothing from 0, and what
    they print to 1 goes to stderr. Returns at the end of input, when the handlers have finished or
    LEAVE_SECONDS have passed, or at once when the client has closed our stdout: True if nothing is
    left running. SIGINT gets its default action back, unless you have given it one of your own:
    it ends the process at once, whatever a handler does, as SIGTERM does anyway.
    """
    import signal
    if sys.stdin is not None and sys.stdin.isatty():
        log(f"{server.info['name']} waits for MCP messages on standard input, one JSON object on a "
            "line; Ctrl-D ends it")
    if threading.current_thread() is threading.main_thread() \
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    source, out = _guard()
    bell, ring = os.pipe()                      # to close `ring` is to ring the bell: it is over
    rung = threading.Lock()

    def write(line: bytes) -> None:
        while line:
            line = line[os.write(out, line):]   # a pipe may take less than all

    def ended() -> None:
        if rung.acquire(blocking=False):
            os.close(ring)
    pipe = Pipe(server, source.readline, write, ended)
    pipe.start()
    finished = pipe.leave(LEAVE_SECONDS if _wait(bell, out) else 0)
    if finished:
        source.close()                          # nobody reads any more
    return finished


def _guard() -> tuple[Any, int]:
    """Move stdin and stdout to private descriptors that no child inherits; leave a stand-in."""
    try:
        os.fstat(0), os.fstat(1)
    except OSError:
        raise SystemExit("mcp_ref: there is no standard input or output to serve on") from None
    null = os.open(os.devnull, os.O_RDWR)
    if null == 2:                               # there is no stderr: let nothing else become it
        os.set_inheritable(2, True)
        null = os.dup(2)
    source, out = os.dup(0), os.dup(1)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    if hasattr(os, "register_at_fork"):         # a forked child must not hold the client's stream
        for descriptor in (source, out):
            os.register_at_fork(after_in_child=functools.partial(
                os.closerange, descriptor, descriptor + 1))     # which does not mind if it is gone
    if hasattr(sys.stdout, "reconfigure"):      # what was printed before, and waits, goes there too
        # A tool that prints what the code page lacks shall not fail of it.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    if os.name == "nt":
        import msvcrt
        for descriptor in (source, out):        # no \r\n
            msvcrt.setmode(descriptor, os.O_BINARY)     # type: ignore[attr-defined]
    else:
        os.set_blocking(source, True)
        os.set_blocking(out, True)
    return open(source, "rb", 2**16), out


def _wait(bell: int, out: int) -> bool:
    """Wait for the bell: True; or until the client closes our stdout: False."""
    import select
    if not hasattr(select, "poll"):             # Windows: the next write will tell
        return os.read(bell, 1) == b""
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    poll.register(out, 0)                       # errors and hang-ups come without being asked for
    return all(descriptor == bell for descriptor, _ in poll.poll())


# ==========================================================================================
# A. Type hints to JSON Schema and back
#
# A handler's hints say what a client has to send. They become a schema, once, and where Python has
# more types than JSON a converter: an Enum's value becomes its member again. Schemas come out as
# hosts survive them: an object at the root, types written out in place, `$defs` only for a type
# that contains itself.
# ==========================================================================================

Convert = Callable[[Any], Any]      # a JSON value, valid by the schema, to Python's; None: as it is


class Signature:
    """What the parameters of a handler say. TypeError for what cannot be expressed.

    `schema` is that of all arguments, `parameters` their names in order, `described` what the
    docstring says. With `typed` False only the names matter.
    """

    def __init__(self, function: Callable[..., Any], typed: bool = True) -> None:
        shown_as = function.func if isinstance(function, functools.partial) else function
        self.name: str = getattr(shown_as, "__name__", type(shown_as).__name__)
        doc = _doc_of(shown_as)
        prose = re.split(r"\n\s*(?:Args|Arguments|Parameters):|\n\s*:param ", doc)[0].strip()
        self.described = {"description": prose} if prose else {}
        self.context = ""                           # the name of the parameter annotated Context
        self._hints = _hints_of(function)
        self._converters: dict[str, Any] = {}
        schemas, properties, required, closed = _Schemas(), {}, [], True
        for name, kind, default in _parameters_of(function):
            hint = self._hints.get(name, Any)
            if Context in (hint, *typing.get_args(hint)):
                if self.context:
                    raise TypeError(f"{self.name}(): one Context is enough")
                self.context = name
            elif typed and name == "ctx" and name not in self._hints:
                raise TypeError(f"{self.name}(): write ctx: Context, or it is an argument")
            elif kind == "**":
                closed = False
            elif typed and kind:
                raise TypeError(f"{self.name}(): an argument has a name, so {name} cannot be one")
            else:
                try:
                    properties[name], convert = schemas.of(hint) if typed else ({}, None)
                except TypeError as problem:
                    raise TypeError(f"{self.name}(), {name}: {problem}") from None
                if convert is not None:
                    self._converters[name] = convert
                if default is _NO_DEFAULT:
                    required.append(name)
                properties[name] = {**_documented(doc, name), **properties[name],
                                    **_default(default)}
        self.parameters = list(properties)
        self.schema: Message = {"type": "object", "properties": properties, **_present(
            required=required or None, additionalProperties=False if closed else None),
            **schemas.defs_member()}

    def bind(self, arguments: Message, ctx: Context) -> Message:
        """Return the keyword arguments for a call, of arguments that match the schema."""
        if self._converters:
            arguments = {name: self._converters[name](value) if name in self._converters else value
                         for name, value in arguments.items()}
        return {**arguments, self.context: ctx} if self.context else arguments

    def output(self) -> tuple[Message | None, bool]:
        """Return the schema of what is returned, and whether it wraps the value: {"result": value}.

        None if the hint promises nothing: no hint, text, content, any object.
        """
        hint = self._hints.get("return", Any)
        if hint in (str, Any, type(None)):
            return None, False
        schemas = _Schemas(given=False)
        try:
            schema, _ = schemas.of(hint)
        except TypeError as problem:
            raise TypeError(f"{self.name}(), what it returns: {problem}") from None
        if schema.get("items", schema) in ({}, {"type": "object"}, {"type": "array"}):
            return None, False
        wraps = schema.get("type", "object") != "object" or "anyOf" in schema or "enum" in schema
        if wraps:
            schema = {"properties": {"result": schema}, "required": ["result"]}
        return {"type": "object", **schema, **schemas.defs_member()}, wraps


def _documented(doc: str, name: str) -> Message:
    """Find a parameter's line in a docstring: `name: text` or `:param name: text`."""
    found = re.search(rf"(?m)^\s*(?::param )?{re.escape(name)}(?: ?\([^)]*\))?: *(.+)$", doc)
    return {"description": found[1].strip()} if found else {}


def _default(value: Any) -> Message:
    try:
        encode(to_json(value))
        return {"default": to_json(value)}
    except (TypeError, ValueError):         # none, or none that JSON can say: then it is our secret
        return {}


def _doc_of(function: Any) -> str:
    """Return the docstring without its indentation."""
    first, *rest = (function.__doc__ or "").expandtabs().strip().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first, *(line[margin:] for line in rest)])


def _hints_of(thing: Any) -> dict[str, Any]:
    """Evaluate the annotations of a function, or of a class."""
    if not isinstance(thing, (type, types.FunctionType)) and hasattr(thing, "__wrapped__"):
        return _hints_of(thing.__wrapped__)     # as functools.lru_cache leaves them
    target = thing if isinstance(thing, (type, types.FunctionType, types.MethodType)) else \
        getattr(thing, "func", type(thing).__call__)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as problem:
        annotations = getattr(target, "__annotations__", {})
        union = [hint for hint in annotations.values() if "|" in str(hint)]
        raise TypeError("{}: {}".format(getattr(thing, "__name__", thing), (
            f"the hint `{union[0]}` needs Python 3.10; write Optional[...] or Union[...]"
            if union and sys.version_info < (3, 10) else problem))) from None


def schema_of(hint: Any) -> Message:
    """Return the JSON Schema of a type hint; TypeError if it has none.

    Known are str int float bool None Any, list dict tuple set, Optional Union Literal Enum,
    TypedDict NamedTuple dataclass, and Annotated: a string describes, a dict adds keywords.
    """
    schemas = _Schemas()
    return {**schemas.of(hint)[0], **schemas.defs_member()}


_SCALARS: dict[Any, tuple[str, Convert | None]] = {
    str: ("string", None), bool: ("boolean", None), float: ("number", None),
    type(None): ("null", None), int: ("integer", lambda value: int(value)),    # 1.0 is one in JSON
}


class _Schemas:
    """The schemas and converters of the hints of one document."""

    def __init__(self, given: bool = True) -> None:
        self._given = given                         # by a client; else it is what a tool returns
        self.defs: dict[str, Message] = {}          # the types that contain themselves, by name
        self._open: list[Any] = []                  # the classes that we are inside of
        self._names: dict[Any, str] = {}            # the classes that were seen, by a name each
        self._converters: dict[Any, Convert | None] = {}   # of the classes that contain themselves

    def defs_member(self) -> Message:
        """Return what the document's root needs besides."""
        return {"$defs": self.defs} if self.defs else {}

    def of(self, hint: Any) -> tuple[Message, Convert | None]:
        """Return the schema and the converter of a hint."""
        args, kind = typing.get_args(hint), typing.get_origin(hint) or hint
        if hasattr(hint, "__metadata__"):           # Annotated; not hashable with a dict in it
            schema, convert = self.of(args[0])
            return _noted(schema, hint), convert
        if hint in (Any, object):
            return {}, None
        if hasattr(hint, "__supertype__"):          # NewType
            return self.of(hint.__supertype__)
        if hint is None or not args and hint in _SCALARS:
            name, convert = _SCALARS[hint or type(None)]
            return {"type": name}, convert
        if kind is typing.Literal:
            return _choice(args), None
        if kind is Union or type(hint).__name__ == "UnionType":
            return self._union(args)
        if not isinstance(kind, type):
            raise TypeError(f"{hint} has no JSON form")
        if hasattr(kind, "__members__"):            # Enum
            return _choice([member.value for member in typing.cast("Any", kind)]), kind
        if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields") \
                or hasattr(kind, "__total__"):      # dataclass, NamedTuple, TypedDict
            return self._class(kind)
        if issubclass(kind, tuple) and args and args[-1] is not Ellipsis:
            return self._tuple(args)
        if issubclass(kind, dict) or kind.__name__ in ("Mapping", "MutableMapping"):
            return self._mapping(args)
        if issubclass(kind, (list, tuple, set, frozenset)) or kind.__name__ in (
                "Sequence", "Iterable", "Collection"):
            return self._array(kind, args)
        raise TypeError(f"{hint} has no JSON form; use str, int, float, bool, list, dict, Literal, "
                        "an Enum, a TypedDict, a NamedTuple or a dataclass")

    def _union(self, args: Iterable[Any]) -> tuple[Message, Convert | None]:
        members = [self.of(arg) for arg in args]
        checks: list[tuple[Schema, Convert | None]] = []

        def convert_first(value: Any) -> Any:
            if not checks:                          # made late, when all of `defs` is known
                checks[:] = [(Schema({**schema, "$defs": self.defs}), convert)
                             for schema, convert in members]
            return next((convert(value) if convert else value for check, convert in checks
                         if check.flaw(value) is None), value)
        return {"anyOf": [schema for schema, _ in members]}, \
            convert_first if any(convert for _, convert in members) else None

    def _tuple(self, args: tuple[Any, ...]) -> tuple[Message, Convert | None]:
        members = [self.of(arg) for arg in args]
        schema = {"type": "array", "prefixItems": [schema for schema, _ in members],
                  "minItems": len(members), "items": False}
        return schema, lambda value: tuple(
            convert(item) if convert else item for item, (_, convert) in zip(value, members))

    def _array(self, kind: type, args: tuple[Any, ...]) -> tuple[Message, Convert | None]:
        items, convert = self.of(args[0]) if args else ({}, None)
        schema = {"type": "array", **({"items": items} if items else {}),
                  **({"uniqueItems": True} if issubclass(kind, (set, frozenset)) else {})}
        make: Any = kind if kind in (set, frozenset, tuple) else list
        if make is list and convert is None:
            return schema, None
        return schema, lambda value: make(map(convert, value) if convert else value)

    def _mapping(self, args: tuple[Any, ...]) -> tuple[Message, Convert | None]:
        if args and args[0] not in (str, Any):
            raise TypeError(f"the keys of a JSON object are strings, not {args[0]}")
        values, convert = self.of(args[1]) if args else ({}, None)
        schema = {"type": "object", **({"additionalProperties": values} if values else {})}
        return schema, convert and (lambda value: {
            key: convert(item) for key, item in value.items()})

    def _class(self, kind: Any) -> tuple[Message, Convert | None]:
        """A dataclass, a NamedTuple or a TypedDict: an object with its fields."""
        taken = kind.__name__ in self._names.values()
        name = self._names.setdefault(kind, kind.__name__ + f"-{len(self._names)}" * taken)
        if kind in self._open:                      # inside itself: refer to it
            self._converters.setdefault(kind, None)
            return {"$ref": "#/$defs/" + name}, \
                lambda value: (self._converters[kind] or _unchanged)(value)
        self._open.append(kind)
        fields, required = _fields_of(kind, self._given)
        members = {name: self.of(hint) for name, hint in fields.items()}
        self._open.pop()
        converters = {name: convert for name, (_, convert) in members.items() if convert}
        is_dict = hasattr(kind, "__total__")

        def build(value: Message) -> Any:
            return (dict if is_dict else kind)(**{
                key: converters[key](item) if key in converters else item
                for key, item in value.items()})
        schema = {"type": "object",
                  "properties": {key: schema for key, (schema, _) in members.items()},
                  **_present(required=required or None,
                             additionalProperties=None if is_dict else False)}
        convert = build if converters or not is_dict else None
        if kind in self._converters:
            self._converters[kind], self.defs[name] = convert, schema
            schema = {"$ref": "#/$defs/" + name}
        return schema, convert


def _noted(schema: Message, annotated: Any) -> Message:
    """Add what Annotated says: a string describes, a dict adds keywords; the rest is not for us."""
    for note in annotated.__metadata__:
        schema = {**schema, **({"description": note} if isinstance(note, str) else
                               note if isinstance(note, dict) else _EMPTY)}
    return schema


def _unchanged(value: Any) -> Any:
    return value


def _fields_of(kind: Any, given: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the hints of a class's fields, and the names of those that are required."""
    hints = _hints_of(kind)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import MISSING, fields
        listed = [field for field in fields(kind) if field.init or not given]
        optional = {field.name for field in listed if field.default is not MISSING
                    or field.default_factory is not MISSING}
        hints = {field.name: hints[field.name] for field in listed}
    else:
        optional = set(getattr(kind, "_field_defaults", getattr(kind, "__optional_keys__", ())))
    for name, hint in hints.items():                # Required[...], NotRequired[...]
        wrapper = getattr(typing.get_origin(hint), "_name", "")
        while wrapper in ("Required", "NotRequired", "ReadOnly"):
            if wrapper == "NotRequired":            # it may not have been seen, as a mere string
                optional.add(name)
            hint = hints[name] = typing.get_args(hint)[0]
            wrapper = getattr(typing.get_origin(hint), "_name", "")
    return hints, [name for name in hints if name not in optional]


def _choice(values: Iterable[Any]) -> Message:
    """Make the schema of a choice; with the type, if the values have one in common."""
    listed = list(values)
    kinds = {type(value) for value in listed}
    if not kinds <= set(_SCALARS):
        raise TypeError(f"a choice is one of strings, numbers, booleans and None, not {listed!r}")
    return {"enum": listed, **({"type": _SCALARS[kinds.pop()][0]} if len(kinds) == 1 else {})}


def to_json(value: Any) -> Any:
    """Return a value as JSON has it, with dataclasses, NamedTuples, Enums, sets, tuples converted.

    TypeError for what has no JSON form.
    """
    if hasattr(value, "_value_"):                   # the member of an Enum
        return to_json(value.value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        from dataclasses import fields
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):                 # a NamedTuple
        value = value._asdict()
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form; for bytes there are image(), "
                    "audio() and embedded()")


def _form(fields: dict[str, Any]) -> Message:
    """Make the schema of a form: flat, as client/elicitation §Requested Schema wants it."""
    properties, required = {}, []
    for name, field in fields.items():
        hint, *default = field if isinstance(field, tuple) else (field,)
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        optional = len(inner) < len(typing.get_args(hint))
        properties[name] = {**_field(inner[0] if optional else hint),
                            **({"default": to_json(default[0])} if default else {})}
        if not default and not optional and not isinstance(field, dict):
            required.append(name)
    return {"type": "object", "properties": properties, **_present(required=required or None)}


def _field(hint: Any) -> Message:
    """Make the schema of a field: a scalar, a choice, or several of a choice."""
    if isinstance(hint, dict):
        return hint
    if hasattr(hint, "__metadata__"):
        return _noted(_field(typing.get_args(hint)[0]), hint)
    if hasattr(hint, "__members__"):                # an Enum: its names are the titles
        return {"type": "string", "oneOf": [{"const": member.value, "title": member.name}
                                            for member in hint]}
    schema = schema_of(hint)
    if schema.get("type") == "array" and typing.get_args(hint):
        items = _field(typing.get_args(hint)[0])
        if items.keys() & {"oneOf", "enum"}:
            return {"type": "array",
                    "items": {"anyOf": items["oneOf"]} if "oneOf" in items else items}
    if schema.get("type") not in ("string", "number", "integer", "boolean"):
        raise TypeError(f"{hint} cannot be a field of a form: forms are flat")
    return schema
# 8< server


_NO_DEFAULT = object()


def _parameters_of(function: Any) -> list[tuple[str, str, Any]]:
    """List the parameters as (name, "", "/", "*" or "**" for its kind, default).

    Plain functions are read here: to import `inspect` takes longer than to start the rest.
    """
    if type(function) is not types.FunctionType or hasattr(function, "__wrapped__"):
        from inspect import signature
        return [(name, {0: "/", 2: "*", 4: "**"}.get(one.kind, ""),
                 _NO_DEFAULT if one.default is one.empty else one.default)
                for name, one in signature(function).parameters.items()]
    code, defaults = function.__code__, function.__defaults__ or ()
    count, names = code.co_argcount, list(code.co_varnames)
    given = dict(zip(names[count - len(defaults):count], defaults))
    given.update(function.__kwdefaults__ or {})
    listed = [(name, "/" if index < code.co_posonlyargcount else "", given.get(name, _NO_DEFAULT))
              for index, name in enumerate(names[:count + code.co_kwonlyargcount])]
    rest = names[len(listed):]
    for flag, kind in ((4, "*"), (8, "**")):        # inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
        if code.co_flags & flag:
            listed.append((rest.pop(0), kind, _NO_DEFAULT))
    return listed


# ==========================================================================================
# B. JSON Schema validation
#
# Dialect 2020-12, all keywords; `format` and its like are notes. References stay inside the
# document: one that leads out, and another dialect, is refused when the schema is made; nothing
# is ever fetched (basic/index §Schema Dialect, §$ref Resolution). Work and depth are bounded; but
# what Python's `re` does with a pattern cannot be: so those in a foreign schema are not run.
# ==========================================================================================

MAX_STEPS = 1_000_000       # subschemas applied to one value: a second or two, then it is refused
MAX_NESTING = 200           # subschemas inside one another, with references followed
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value == value // 1,     # 1.0 is one
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is_multiple(value: Any, of: Any) -> bool:
    from fractions import Fraction
    # exact: 0.0075 is a multiple of 0.0001, whatever floats say
    return (Fraction(str(value)) / Fraction(str(of))).denominator == 1


def _plain(value: Any) -> Any:
    """Return something hashable, equal for equal JSON values: 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict):
        return "object", frozenset((key, _plain(item)) for key, item in value.items())
    if isinstance(value, list):
        return ("array", *map(_plain, value))
    return isinstance(value, bool), value


@functools.lru_cache(maxsize=1000)
def _regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with the meaning that ECMA-262 gives `$`, `\\d` and `\\w`."""
    return re.compile(re.sub(r"\\.|\[(?:\\.|[^\]])*\]|\$", lambda found: (
        r"\Z" if found[0] == "$" else found[0]), pattern, flags=re.DOTALL), re.ASCII)


def _are_unique(value: list[Any], wanted: bool) -> bool:
    return not wanted or len({_plain(item) for item in value}) == len(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# keyword: what it speaks of, the test of a value and the keyword's own value, the rule in words
_ASSERTIONS: dict[str, tuple[str, Callable[[Any, Any], Any], str]] = {
    "multipleOf":       ("number", _is_multiple,                     "must be a multiple of {}"),
    "maximum":          ("number", lambda v, k: v <= k,              "must be at most {}"),
    "exclusiveMaximum": ("number", lambda v, k: v < k,               "must be less than {}"),
    "minimum":          ("number", lambda v, k: v >= k,              "must be at least {}"),
    "exclusiveMinimum": ("number", lambda v, k: v > k,               "must be more than {}"),
    "maxLength":        ("string", lambda v, k: len(v) <= k,         "is longer than {}"),
    "minLength":        ("string", lambda v, k: len(v) >= k,         "is shorter than {}"),
    "pattern":          ("string", lambda v, k: _regex(k).search(v),     "must match {}"),
    "maxItems":         ("array",  lambda v, k: len(v) <= k,         "has more than {} items"),
    "minItems":         ("array",  lambda v, k: len(v) >= k,         "has less than {} items"),
    "uniqueItems":      ("array",  _are_unique,                      "must have no item twice"),
    "maxProperties":    ("object", lambda v, k: len(v) <= k,         "has more than {} members"),
    "minProperties":    ("object", lambda v, k: len(v) >= k,         "has less than {} members"),
}
# What the value of a keyword is: a subschema, a list or a map of them, or something else.
_SHAPES = {keyword: shape for shape, keywords in {
    "schema": "additionalProperties propertyNames items contains not if then else contentSchema "
              "unevaluatedItems unevaluatedProperties",
    "schemas": "allOf anyOf oneOf prefixItems",
    "map": "properties patternProperties dependentSchemas $defs",
    "number": "maximum exclusiveMaximum minimum exclusiveMinimum multipleOf",
    "count": "maxLength minLength maxItems minItems maxProperties minProperties maxContains "
             "minContains",
    "string": "$id $schema $ref $anchor $dynamicRef $dynamicAnchor pattern title description",
    "boolean": "uniqueItems", "names": "required", "array": "enum", "namesmap": "dependentRequired",
}.items() for keyword in keywords.split()}
_SHAPE_TESTS: dict[str, Callable[[Any], bool]] = {
    **_TYPES, "map": _TYPES["object"],
    "schema": lambda value: isinstance(value, (dict, bool)),
    "schemas": lambda value: isinstance(value, list) and value != [],
    "count": lambda value: _TYPES["integer"](value) and value >= 0,
    "names": _are_names,
    "namesmap": lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
}


class _Broken(Exception):
    """A value breaks a rule; `where` is a chain of keys, the innermost first."""

    def __init__(self, where: Any, rule: str) -> None:
        super().__init__(rule)
        self.where = where


class _Walk:
    """One validation: the steps left, the bases of the schemas that we are inside of."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.exhausted = False
        self.bases: list[str] = []


class Schema:
    """A JSON Schema, checked and ready to validate; ValueError if it is none. For any thread.

    `foreign`: it comes from the other end, so its patterns are taken for fulfilled.
    """

    def __init__(self, document: Any, foreign: bool = False) -> None:
        self._document = document
        self._foreign = foreign
        self._nodes: dict[int, tuple[Any, ...]] = {}        # by id: see the end of _index
        self._places: dict[tuple[str, str], Any] = {}       # (base URI, fragment): subschema
        self._dynamic: dict[tuple[str, str], Any] = {}      # of $dynamicAnchor only
        self._tracks = False                        # whether unevaluated* occurs at all
        self._index(document, "", "", 0)
        done = 0
        while done < len(self._nodes):              # a reference may bring in nodes of its own
            todo, done = list(self._nodes.values())[done:], len(self._nodes)
            for node, *_ in todo:
                for keyword in node.keys() & {"$ref", "$dynamicRef"}:
                    self._target(node, node[keyword])

    def flaw(self, value: Any) -> str | None:
        """Return None for a valid value, else why not: "/items/3/price: must be at least 0"."""
        try:
            self._apply(self._document, value, None, _Walk())
            return None
        except RecursionError:                      # the caller is deep down already
            return "/: takes too much work to validate"
        except _Broken as problem:
            keys, where = [], problem.where
            while where is not None:
                where, key = where
                keys.append(str(key).replace("~", "~0").replace("/", "~1"))
            return "/{}: {}".format("/".join(reversed(keys)), problem)

    # ---- making

    def _index(self, node: Any, base: str, place: str, depth: int) -> None:
        """Check a subschema and all below; note its base URI, its names, and what it has to run."""
        if isinstance(node, bool):
            return
        if not isinstance(node, dict) or depth > MAX_NESTING:
            raise ValueError(f"{place or '/'}: a schema is an object or a boolean, not too deep")
        _check_keywords(node, place)
        if "$id" in node:
            from urllib.parse import urldefrag, urljoin
            base = urldefrag(urljoin(base, node["$id"]))[0]
        if "$id" in node or not place:
            self._places[base, ""] = node
        for keyword in ("$anchor", "$dynamicAnchor"):
            if keyword in node:
                self._places[base, node[keyword]] = node
        self._tracks |= "unevaluatedItems" in node or "unevaluatedProperties" in node
        if "$dynamicAnchor" in node:
            self._dynamic[base, node["$dynamicAnchor"]] = node
        kinds = node.get("type", ())
        self._nodes[id(node)] = (
            node, base, [_TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)],
            [(_TYPES[row[0]], *row[1:], node[keyword]) for keyword, row in _ASSERTIONS.items()
             if keyword in node and not (self._foreign and keyword == "pattern")],
            [run for keywords, run in _STEPS if keywords & node.keys()],
            [(frozenset(map(_plain, choices)), choices) for choices in (
                *([node["enum"]] if "enum" in node else []),
                *([[node["const"]]] if "const" in node else []))])
        for keyword, value in node.items():
            shape = _SHAPES.get(keyword)
            children = {"": value} if shape == "schema" else dict(enumerate(value)) \
                if shape == "schemas" else value if shape == "map" else {}
            for key, child in children.items():
                self._index(child, base, f"{place}/{keyword}/{key}", depth + 1)

    def _target(self, node: Message, reference: str) -> Any:
        """Return the subschema that a reference means; ValueError if the document has none such."""
        here = self._nodes[id(node)][1]
        base, _, fragment = reference.partition("#")
        if base or here:
            from urllib.parse import urljoin
            base = urljoin(here, base)
        if (base, fragment) not in self._places:
            target = self._places.get((base, ""))
            if target is None or not fragment.startswith("/"):
                raise ValueError(f"the reference {reference} leads out; nothing is fetched")
            from urllib.parse import unquote
            for step in unquote(fragment)[1:].split("/"):
                step = step.replace("~1", "/").replace("~0", "~")
                try:
                    target = target[int(step) if isinstance(target, list) else step]
                except (KeyError, IndexError, ValueError, TypeError):
                    raise ValueError(f"the reference {reference} leads nowhere") from None
            if id(target) not in self._nodes:       # a place where no keyword expects a schema
                self._index(target, base, fragment, 0)
            self._places[base, fragment] = target
        return self._places[base, fragment]

    # ---- running: `where` is the place of the value, `seen` the members and items of it that some
    # subschema has looked at, for unevaluated*

    def _apply(self, node: Any, value: Any, where: Any, walk: _Walk) -> set[Any]:
        """Apply a subschema to a value: _Broken if it breaks a rule, else what was looked at."""
        seen: set[Any] = set()
        if node is True:
            return seen
        if node is False:
            raise _Broken(where, "must not be there")
        _, base, types, assertions, steps, _ = self._nodes[id(node)]
        walk.steps -= 1
        walk.bases.append(base)
        if walk.steps < 0 or len(walk.bases) > MAX_NESTING:
            walk.exhausted = True
            raise _Broken(where, "takes too much work to validate")
        for is_type in types:
            if is_type(value):
                break
        else:
            if types:
                raise _Broken(where, f"must be of type {_listed(node['type'])}")
        for is_type, test, rule, limit in assertions:
            if is_type(value) and not test(value, limit):
                raise _Broken(where, rule.format(limit))
        for step in steps:
            step(self, node, value, where, walk, seen)
        walk.bases.pop()
        return seen

    def _holds(self, node: Any, value: Any, where: Any, walk: _Walk, seen: set[Any]) -> bool:
        """Apply a subschema that may fail; what it looked at counts only if it does not."""
        depth = len(walk.bases)
        try:
            seen |= self._apply(node, value, where, walk)
            return True
        except _Broken:
            if walk.exhausted:                      # that is no verdict, which `not` could turn
                raise
            del walk.bases[depth:]
            return False

    def _values(self, node: Message, value: Any, where: Any, *_: Any) -> None:
        for known, choices in self._nodes[id(node)][5]:
            if _plain(value) not in known:
                raise _Broken(where, "must be one of " + shown(json.dumps(choices)))

    def _references(self, node: Message, value: Any, where: Any, walk: _Walk,
                    seen: set[Any]) -> None:
        if "$ref" in node:
            seen |= self._apply(self._target(node, node["$ref"]), value, where, walk)
        if "$dynamicRef" in node:
            anchor = node["$dynamicRef"].split("#")[-1]
            target = self._target(node, node["$dynamicRef"])
            if isinstance(target, dict) and target.get("$dynamicAnchor") == anchor:
                # the outermost schema that we came through, and that has such an anchor, wins
                target = next(self._dynamic[base, anchor] for base in [*walk.bases, *(
                    key[0] for key in self._dynamic)] if (base, anchor) in self._dynamic)
            seen |= self._apply(target, value, where, walk)

    def _logic(self, node: Message, value: Any, where: Any, walk: _Walk,
               seen: set[Any]) -> None:
        for part in node.get("allOf", ()):
            seen |= self._apply(part, value, where, walk)
        if "anyOf" in node:
            found = False
            for part in node["anyOf"]:
                found = self._holds(part, value, where, walk, seen) or found
                if found and not self._tracks:
                    break
            if not found:
                raise _Broken(where, "must match {}".format(_alternatives(node["anyOf"])))
        if "oneOf" in node:
            count = sum(self._holds(part, value, where, walk, seen) for part in node["oneOf"])
            if count != 1:
                raise _Broken(where, f"must match just one: {_alternatives(node['oneOf'])}")
        if "not" in node and self._holds(node["not"], value, where, walk, set()):
            raise _Broken(where, "must not match what the schema excludes")
        if "if" in node:
            branch = "then" if self._holds(node["if"], value, where, walk, seen) else "else"
            seen |= self._apply(node.get(branch, True), value, where, walk)
        for name, part in node.get("dependentSchemas", _EMPTY).items():
            if isinstance(value, dict) and name in value:
                seen |= self._apply(part, value, where, walk)

    def _names(self, node: Message, value: Any, where: Any, walk: _Walk,
               seen: set[Any]) -> None:
        if not isinstance(value, dict):
            return
        walk.steps -= len(node.get("required", ())) // 10   # ten of them take as long as a step
        for name in node.get("required", ()):
            if name not in value:
                raise _Broken((where, name), "is required")
        for name, others in node.get("dependentRequired", _EMPTY).items():
            for other in others if name in value else ():
                if other not in value:
                    raise _Broken((where, other), f"is required with {name}")
        for name in value if "propertyNames" in node else ():
            if not self._holds(node["propertyNames"], name, where, walk, set()):
                raise _Broken((where, name), "is no valid name here")

    def _members(self, node: Message, value: Any, where: Any, walk: _Walk,
                 seen: set[Any]) -> None:
        properties, patterns = node.get("properties", _EMPTY), node.get("patternProperties", _EMPTY)
        walk.steps -= len(patterns) * len(value) // 10 if isinstance(value, dict) else 0
        for name, item in value.items() if isinstance(value, dict) else ():
            known = name in properties
            if known:
                self._apply(properties[name], item, (where, name), walk)
            known = known or self._foreign and bool(patterns)
            for pattern, part in () if self._foreign else patterns.items():
                if _regex(pattern).search(name):
                    known = True
                    self._apply(part, item, (where, name), walk)
            if not known and "additionalProperties" in node:
                known = True
                if node["additionalProperties"] is False:
                    raise _Broken((where, name), "is not known here")
                self._apply(node["additionalProperties"], item, (where, name), walk)
            if known:
                seen.add(name)

    def _items(self, node: Message, value: Any, where: Any, walk: _Walk,
               seen: set[Any]) -> None:
        if not isinstance(value, list):
            return
        prefix = node.get("prefixItems", ())
        for index, item in enumerate(value):
            part = prefix[index] if index < len(prefix) else node.get("items")
            if part is not None:
                self._apply(part, item, (where, index), walk)
                seen.add(index)
        if "contains" in node:
            found = [index for index, item in enumerate(value)
                     if self._holds(node["contains"], item, where, walk, set())]
            seen.update(found)
            if not node.get("minContains", 1) <= len(found) <= node.get("maxContains", len(value)):
                raise _Broken(where, f"contains {len(found)} items of a kind: too few, or too many")

    def _unevaluated(self, node: Message, value: Any, where: Any, walk: _Walk,
                     seen: set[Any]) -> None:
        if "unevaluatedItems" in node and isinstance(value, list):
            part, items = node["unevaluatedItems"], list(enumerate(value))
        elif "unevaluatedProperties" in node and isinstance(value, dict):
            part, items = node["unevaluatedProperties"], list(value.items())
        else:
            return
        for key, item in items:
            if key not in seen:
                self._apply(part, item, (where, key), walk)
                seen.add(key)


# Which keywords each function runs, in this order.
_STEPS = [(frozenset(keywords.split()), function) for keywords, function in (
    ("enum const", Schema._values),
    ("$ref $dynamicRef", Schema._references),
    ("allOf anyOf oneOf not if then else dependentSchemas", Schema._logic),
    ("required dependentRequired propertyNames", Schema._names),
    ("properties patternProperties additionalProperties", Schema._members),
    ("prefixItems items contains minContains maxContains", Schema._items),
    ("unevaluatedItems unevaluatedProperties", Schema._unevaluated),    # what the others left
)]


def _check_keywords(node: Message, place: str) -> None:
    """Refuse keywords whose values are not valid: basic/index §Schema Validation."""
    for keyword, value in node.items():
        if keyword in _SHAPES and not _SHAPE_TESTS[_SHAPES[keyword]](value) \
                or keyword == "multipleOf" and value <= 0:
            raise ValueError(f"{place}/{keyword}: not a valid value")
    kinds = node.get("type", [])
    if not all(isinstance(kind, str) and kind in _TYPES
               for kind in (kinds if isinstance(kinds, list) else [kinds])):
        raise ValueError("{}/type: {} is not one of {}".format(place, kinds, ", ".join(_TYPES)))
    if node.get("$schema", DIALECT).rstrip("#") != DIALECT:
        raise ValueError("{} is an unknown dialect; this is {}".format(node["$schema"], DIALECT))
    for pattern in [node.get("pattern", ""), *node.get("patternProperties", ())]:
        try:
            _regex(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise ValueError(f"{place}: the pattern {pattern}: {problem}") from None


def _listed(kinds: Any) -> str:
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _alternatives(parts: list[Any]) -> str:
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts]
    return "one of the types " + ", ".join(map(_listed, kinds)) if all(kinds) else \
        f"one of {len(parts)} alternatives"


# ==========================================================================================
# You have now read a whole MCP server: protocol, schemas and stdio. You may stop here.
# ==========================================================================================


# ==========================================================================================
# 7. Server on HTTP, without sockets
#
# The rules of Streamable HTTP over an abstract exchange: a request comes in, an answer or a stream
# goes out, on the thread that carries it. Every message is a POST of its own. The answer is one
# JSON object; if the handler has something to say before, it becomes a stream of events. What the
# body says is true; headers repeat parts of it for those who route without reading bodies, and
# have to agree. Closing the stream is how a modern client cancels.
# ==========================================================================================

KEEP_ALIVE_SECONDS = 15     # of silence on a stream, before a comment says that we are still here
MAX_CONNECTIONS = 512       # at once; the next ones get 503
MAX_HEADERS = 100           # of a request; as http.server has it
MAX_LINE_BYTES = 65536      # of a header
CLOSE_SECONDS = 1           # for streams to end when the server does
SEND_SECONDS = 30           # for a client to send a request or to begin one, or to read 64 KiB
_SINGLE = frozenset(["host", "origin", "content-length", "content-type", "transfer-encoding",
                     "authorization", "last-event-id", "mcp-session-id", "mcp-protocol-version",
                     "mcp-method", "mcp-name"])     # headers that must not come twice
_REQUEST_LINE = re.compile(r"([!-~]+) ([!-~]+) (HTTP/1\.[0-9])\r?\n").fullmatch
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0\r\n]*)\r?\n").fullmatch
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])


class HttpError(Exception):
    """An answer that is no message: an `authorize` hook raises it too. `headers` go out with it.

    In a client, `url` is what answered.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None,
                 url: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.url = url


def _several(names: Iterable[str]) -> Iterable[str]:
    """Return names; one alone may come as it is."""
    return [names] if isinstance(names, str) else names


def _mirrored_arguments(schema: Any, arguments: Any, depth: int = 0) -> Message:
    """Return headers of arguments, with what they must say; None: they must not be there.

    basic/transports/streamable-http §Custom Headers from Tool Parameters
    """
    found: Message = {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, part in properties.items() if isinstance(properties, dict) and depth < MAX_DEPTH \
            else ():
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(part, dict):
            if isinstance(part.get("x-mcp-header"), str):
                found["Mcp-Param-" + part["x-mcp-header"]] = value
            found.update(_mirrored_arguments(part, value, depth + 1))
    return found


def mirror(value: Any) -> str:
    """Return a value as a header has it: .../streamable-http §Value Encoding."""
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"|[!-~]|[!-~][\t -~]*[!-~]", plain) \
            and not re.fullmatch(r"=\?base64\?.*\?=", plain):
        return plain
    return f"=?base64?{_base64(plain.encode('utf-8', 'surrogatepass'))}?="


def unmirror(value: str) -> str | None:
    """Return what a header stands for; None if it is not well encoded."""
    if value.isascii() and value.isprintable() and not value.startswith("=?base64?"):
        return value
    import base64
    found = re.fullmatch(r"=\?base64\?(.*)\?=", value)
    if not found:
        return value if re.fullmatch(r"[\t -~]*", value) else None
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except ValueError:
        return None


def _same_value(given: str | None, value: Any) -> bool:
    """Compare a header with the body's value; numbers as numbers."""
    if given is not None and _is_number(value):
        try:
            return bool(re.fullmatch("[-+.0-9eE]+", given) and json.loads(given) == value)
        except ValueError:
            return False
    return given == (value if isinstance(value, str) else str(value).lower())


def _shut(connection: Any, how: int) -> None:
    """Shut a connection down, one way or both, if it is still up."""
    try:
        connection.shutdown(how)
    except OSError:
        pass


# >8 http
class Exchange:
    """One HTTP request, and the way to answer it: what a skin (serve_http, WSGI, ...) provides.

    `stream` has read(size) and readline(size), for the body. A skin defines start(), write() and
    end(), which raise OSError when the client is gone, and what it can of the rest.
    """

    def __init__(self, method: str, target: str, headers: Iterable[tuple[str, str]],
                 stream: Any) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers: dict[str, str] = {}
        self.flaw = ""                      # what is wrong with the headers, if anything
        self.stream = stream
        self.size = -1                      # of the body, when it has been read to its end
        for name, value in headers:
            name, value = name.lower(), value.strip(" \t")
            if name in self.headers:
                if name in _SINGLE or name.startswith("mcp-"):
                    self.flaw = f"the header {name} comes twice"
                value = self.headers[name] + ", " + value
            self.headers[name] = value

    def length(self) -> int | None:
        """Return what Content-Length says, None if the body is chunked; HttpError if it is wrong.

        RFC 9112 section 6: two servers that disagree about where a request ends can be played off
        against each other, so nothing here is lenient.
        """
        length, coding = self.headers.get("content-length"), self.headers.get("transfer-encoding")
        if coding is not None:
            if length is not None or coding.lower() != "chunked":
                raise HttpError(400, "Transfer-Encoding is chunked, or not there")
            return None
        if not re.fullmatch("[0-9]{1,15}", "0" if length is None else length):
            raise HttpError(400, "Content-Length is no number")
        if int(length or 0) > MAX_MESSAGE_BYTES:
            raise HttpError(413, f"The body is larger than {MAX_MESSAGE_BYTES} bytes")
        return int(length or 0)

    def body(self) -> bytes:
        """Read the body; HttpError if it is too large, or framed in a dubious way."""
        length = self.length()
        self.proceed()
        data = b"".join(_chunks(self.stream)) if length is None else self.stream.read(length)
        if length is not None and len(data) < length:
            raise HttpError(400, "The body is shorter than announced")
        self.size = len(data)
        return data

    def proceed(self) -> None:
        """Tell a client that asked for it that it may send the body."""

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        """Send status and headers, with the body at once; or None: a stream follows."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send a part of a stream."""
        raise NotImplementedError

    def end(self, hang_up: bool = False) -> None:
        """End a stream; `hang_up`: and the connection, since this thread will be busy for long."""

    def gone(self) -> bool:
        """Tell whether the client has hung up; False if that cannot be known."""
        return False

    def ready(self) -> bool:
        """Tell whether a short write would go out at once; True if that cannot be known."""
        return True


def _chunks(stream: Any) -> Iterable[bytes]:
    """Read a chunked body: RFC 9112 section 7.1, without leniency."""
    total = 0
    while True:
        size = re.fullmatch(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]*)?\r\n", stream.readline(1000))
        if not size:
            raise HttpError(400, "A chunk has no proper size")
        count = int(size[1], 16)
        total += count
        if total > MAX_MESSAGE_BYTES:
            raise HttpError(413, f"The body is larger than {MAX_MESSAGE_BYTES} bytes")
        if not count:
            break
        chunk = stream.read(count + 2)
        if len(chunk) != count + 2 or not chunk.endswith(b"\r\n"):
            raise HttpError(400, "A chunk is not as long as it says")
        yield chunk[:-2]
    for _ in range(MAX_HEADERS):            # the trailers, which nobody needs
        line = stream.readline(1000)
        if line == b"\r\n":
            return
        if not line.endswith(b"\r\n"):
            raise HttpError(400, "A trailer is too long, or cut off")
    raise HttpError(400, "Too many trailers")


def event(data: bytes, ident: str = "", **fields: Any) -> bytes:
    """Make a server-sent event of a line of JSON."""
    named = {"id": ident, **fields} if ident else fields
    head = "".join(f"{name}: {value}\n" for name, value in named.items())
    return head.encode() + b"data: " + data.rstrip(b"\n") + b"\n\n"


class Reply:
    """Sends what comes of one POST: a JSON answer, or a stream as soon as something else is first.

    Called with each message, by any thread. `answered` is set when nothing follows.
    """

    def __init__(self, exchange: Exchange, headers: dict[str, str],
                 statuses: Callable[[Any], int], hung_up: Callable[[], Any],
                 unasked: bool = False) -> None:
        self.exchange = exchange
        self.headers = headers
        self.answered = threading.Event()
        self.streaming = False
        self.gone = False
        self.written = time.monotonic()     # when, last
        self.endpoint: Any = None           # the one that a subscription ends with
        self._status = statuses
        self._hung_up = hung_up
        self._unasked = unasked             # whoever sends must not have to wait for the client
        self._lock = threading.Lock()       # a leaf: guards writing to the exchange

    def __call__(self, message: Any) -> None:
        last = isinstance(message, list) or "method" not in message
        line = encode(message)
        with self._lock:
            if self.answered.is_set():
                return
            if last and not self.streaming:
                self._try(self.exchange.start, self._status(message),
                          {"Content-Type": "application/json", **self.headers}, line)
            else:
                self._event(line, last)
            if last:
                self.answered.set()

    def _begin(self) -> None:
        if not self.streaming:
            self.streaming = True
            self._try(self.exchange.start, 200, {**_STREAM_HEADERS, **self.headers}, None)

    def _event(self, line: bytes, last: bool) -> None:
        self._begin()
        if self._unasked and not self.exchange.ready():
            self.gone = True                # it reads nothing: the housekeeper lets go of it
        self._try(self.exchange.write, event(line))
        if last:
            self._try(self.exchange.end)

    def _try(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Do something to the exchange; the client may be gone, which is no mistake of ours."""
        if not self.gone:
            try:
                action(*arguments)
                self.written = time.monotonic()
            except OSError:
                self.gone = True

    def close(self) -> None:
        """End what will not be answered: a request that was cancelled gets a stream without it."""
        with self._lock:
            if not self.answered.is_set():
                self.answered.set()
                self._begin()
                self._try(self.exchange.end)

    def look_after(self, now: float) -> None:
        """Keep the stream alive, and notice that nobody reads it: called now and then."""
        if self.gone or self.exchange.gone():
            self.gone = True
        elif self.streaming and now - self.written > KEEP_ALIVE_SECONDS and self.exchange.ready() \
                and self._lock.acquire(blocking=False):     # who writes already keeps it alive
            try:
                if not self.answered.is_set():
                    self._try(self.exchange.write, b": \n\n")
            finally:
                self._lock.release()
        if self.gone:
            self._hung_up()


_STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
                   "X-Accel-Buffering": "no"}


class Endpoint:
    """The MCP endpoint of a server, to be mounted under any HTTP server: serve(exchange) answers.

    `hosts`: names that the Host header may have ("*": any; None: any too, but only loopback's if
    http_server() listens there); `origins`: what the Origin header may be ("*": anything), besides
    the host's own, if that is in `hosts` or a number, and loopback's on loopback. `authorize` takes
    the headers, a dict with lower-case names, and returns who calls, or raises HttpError.
    `metadata`: the document of RFC 9728. `cors`: answer browsers. `stateless`: serve legacy
    requests without a session. `sse_on_get`: open HTTP+SSE also on the endpoint itself, for a GET
    with neither session nor version. `calls_per_second`: refuse what is more, with 429 (0: nothing
    is refused).
    """

    def __init__(self, server: Server, path: str = "/mcp", *, hosts: Iterable[str] | None = None,
                 origins: Iterable[str] = (), metadata: Message | None = None,
                 authorize: Callable[[dict[str, str]], Any] | None = None, cors: bool = False,
                 stateless: bool = False, sse_on_get: bool = False,
                 calls_per_second: float = 0) -> None:
        self.server = server
        self.path = "/" + path.strip("/")
        if self.path in ("/sse", "/messages"):
            raise ValueError(f"{self.path} belongs to HTTP+SSE")
        self.hosts = None if hosts is None else {host.lower() for host in _several(hosts)}
        self.origins = frozenset(_several(origins))
        self.authorize = authorize
        self.metadata = metadata
        self.cors = cors
        self.stateless = stateless
        self.sse_on_get = sse_on_get
        self.calls_per_second = calls_per_second
        self._allowance = (float(calls_per_second), time.monotonic())   # calls left, and when
        # >8 legacy
        self.sessions = Sessions(self)
        # 8< legacy
        self.replies: dict[Any, None] = {}  # those under way, for the housekeeper
        self.closed = threading.Event()
        self._housekeeper: threading.Thread | None = None
        self._starting = threading.Lock()

    def serve(self, exchange: Exchange) -> None:
        """Answer one request. Raises nothing."""
        headers: dict[str, str] = {}
        try:
            self._check_host(exchange)
            headers.update(self._cors_headers(exchange) if self.cors else {})
            self._serve(exchange, headers)
        except HttpError as refusal:
            error = {"jsonrpc": "2.0", "error": {"code": INVALID_REQUEST, "message": str(refusal)}}
            self._answer(exchange, refusal.status, {**headers, **refusal.headers}, error)
        except OSError:
            pass                            # the client is gone
        except Exception as problem:        # noqa: BLE001
            _log_traceback(f"{exchange.method} {exchange.path}", problem)
            self._answer(exchange, ERRORS[INTERNAL_ERROR].status, headers, _failure(
                RpcError(INTERNAL_ERROR, "Internal error"), None))

    def _answer(self, exchange: Exchange, status: int, headers: dict[str, str],
                message: Message | None) -> None:
        try:
            kind = {"Content-Type": "application/json"} if message is not None else {}
            kind.update((name, _one_line(str(value))) for name, value in headers.items())
            exchange.start(status, kind, b"" if message is None else encode(message))
        except OSError:
            pass

    def _serve(self, exchange: Exchange, headers: dict[str, str]) -> None:
        """Climb the ladder: the first rung that breaks decides the answer."""
        path, method = exchange.path.rstrip("/") or "/", exchange.method
        if self.closed.is_set():
            raise HttpError(503, "The server is going down")
        if exchange.flaw:
            raise HttpError(400, exchange.flaw)
        well_known = "/.well-known/oauth-protected-resource"
        describes = self.metadata is not None and path in (well_known, well_known + self.path)
        verbs = "GET" if describes else "POST" if path == self.path else ""
        # >8 legacy
        in_session = "mcp-session-id" in exchange.headers
        opens_sse = self.sse_on_get and method == "GET" and not in_session \
            and "mcp-protocol-version" not in exchange.headers
        if path == self.path and (in_session or opens_sse):
            verbs = "GET, POST, DELETE"     # without a session there is nothing to get or delete
        elif not verbs:
            verbs = {"/sse": "GET", "/messages": "POST", self.path + "/messages": "POST"}.get(
                path, "")
        # 8< legacy
        if not verbs:
            raise HttpError(404, "Not found; the MCP endpoint is " + self.path)
        if method == "OPTIONS" and self.cors:
            self._answer(exchange, 204, headers, None)
            return
        if method not in verbs.split(", "):
            raise HttpError(405, "Method not allowed", {"Allow": verbs})
        if describes:
            self._answer(exchange, 200, headers, self.metadata)
            return
        principal = _settled(self.authorize, [exchange.headers], {}) if self.authorize else None
        self._count_call()
        if path == self.path and method == "POST":
            self._post(exchange, headers, principal)
        # >8 legacy
        elif path == "/sse" or path == self.path and opens_sse:
            self.sessions.open_sse(exchange, headers, principal)
        elif method == "POST":
            self.sessions.post_sse(exchange, headers, principal)
        elif method == "GET":
            self.sessions.get(exchange, headers, principal)
        else:
            self.sessions.delete(exchange, headers, principal)
        # 8< legacy

    def _count_call(self) -> None:
        """Refuse calls beyond calls_per_second: a bucket fills at that rate, up to a second's."""
        if self.calls_per_second:
            with self._starting:
                left, then = self._allowance
                now = time.monotonic()
                left = min(self.calls_per_second, left + (now - then) * self.calls_per_second) - 1
                self._allowance = max(left, -1.0), now
            if left < 0:
                raise HttpError(429, "Too many calls", {"Retry-After": "1"})

    def _check_host(self, exchange: Exchange) -> None:
        """Refuse what a rebound DNS name would send: .../streamable-http §Security & Endpoint."""
        host, origin = exchange.headers.get("host", ""), exchange.headers.get("origin")
        if self.hosts and not self.hosts.intersection((_name_of(host), "*")):
            raise HttpError(403, "This Host is not allowed")
        if origin is None or origin in self.origins or "*" in self.origins:
            return
        name, place = _name_of(host), origin.partition("://")[2].lower()
        if name in _LOOPBACK and _name_of(place) in _LOOPBACK:
            return
        # A rebound name is Host and Origin alike; so this name has to be one that we know.
        if place != host.lower() or not (name in (self.hosts or ())
                                         or re.fullmatch(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*", name)):
            raise HttpError(403, "This Origin is not allowed")

    def _cors_headers(self, exchange: Exchange) -> dict[str, str]:
        return {"Access-Control-Allow-Origin": _one_line(exchange.headers.get("origin", "*")),
                "Access-Control-Allow-Methods": "GET, POST, DELETE", "Vary": "Origin",
                "Access-Control-Allow-Headers": _one_line(exchange.headers.get(
                    "access-control-request-headers", "*")),
                "Access-Control-Expose-Headers":
                    "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"}

    def _post(self, exchange: Exchange, headers: dict[str, str], principal: Any) -> None:
        """Take a message. Whether it is modern or legacy, it says itself."""
        message = self.read_message(exchange, headers)
        if message is None:
            return
        meta = _modern_meta(message)
        if meta is not None:
            self._post_modern(exchange, headers, principal, message, meta)
        # >8 legacy
        elif "mcp-session-id" in exchange.headers or self.stateless or (
                isinstance(message, dict) and message.get("method") == "initialize"):
            self.sessions.post(exchange, headers, principal, message)
        # 8< legacy
        elif isinstance(message, list):
            self._refuse(exchange, headers, RpcError(
                INVALID_REQUEST, "Invalid request: no batches here"), None)
        elif kind_of(message) == "request":             # a bare ping, or an error
            self.server.accept(message, lambda answer: self._answer(
                exchange, 200 if "result" in answer else ERRORS[answer["error"]["code"]].status,
                headers, answer), Peer(ordered=False), principal)
        elif exchange.headers.get("mcp-protocol-version") in versions("modern"):
            self._answer(exchange, 202, headers, None)  # modern ones do nothing here, not even
                                                        # `cancelled`: that is to hang up
        else:
            raise HttpError(400, "Mcp-Session-Id is missing")

    def read_message(self, exchange: Exchange, headers: dict[str, str]) -> Any:
        """Return the message in the body; None if it was no message, and has been refused."""
        exchange.length()                   # a body that is too large is refused first
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, "Content-Type is application/json")
        message = None
        try:
            message = decode(exchange.body())
            if not isinstance(message, list):
                kind_of(message)
            return message
        except RpcError as error:
            self._refuse(exchange, headers, error, message)
            return None

    def _refuse(self, exchange: Exchange, headers: dict[str, str], error: RpcError,
                message: Any) -> None:
        """Answer with an error that was found before a handler ran."""
        peer = Peer(ordered=False)
        # >8 legacy
        peer = self.sessions.peer(exchange)
        # 8< legacy
        self.server.refuse(error, message, lambda answer: self._answer(
            exchange, ERRORS[error.code].status, headers, answer), peer)

    def _post_modern(self, exchange: Exchange, headers: dict[str, str], principal: Any,
                     message: Message, meta: Message) -> None:
        """basic/transports/streamable-http §Sending Messages, §Server Validation."""
        if "id" not in message:
            self._answer(exchange, 202, headers, None)
            return
        try:
            _check_meta(meta)
            self._check_mirrors(exchange, message, meta)
            edition = _served(meta)
            if message["method"] not in self.server._offered(edition.version):
                self.server.not_found(message["method"])
        except RpcError as error:
            self._refuse(exchange, headers, error, message)
            return
        peer = Peer(ordered=False)

        def status(answer: Message) -> int:
            row = ERRORS.get(answer.get("error", _EMPTY).get("code"))
            return row.raised if row is not None else 200
        reply = Reply(exchange, headers, status, lambda: peer.cancel(message["id"]),
                      unasked=message["method"] == "subscriptions/listen")
        reply.endpoint = self
        self.run(reply, self.server.accept(message, reply, peer, principal))
        if message["method"] == "subscriptions/listen" and not reply.gone:
            self.wait(reply)                    # until somebody ends it, and has said so
        if reply.gone:
            peer.cancel(message["id"])
        peer.close()                            # it may have been admitted while we closed
        reply.close()

    def _check_mirrors(self, exchange: Exchange, message: Message, meta: Message) -> None:
        """Compare headers and body: .../streamable-http §Request Metadata, §Server Validation."""
        params, row = message.get("params", _EMPTY), METHODS.get(message["method"])
        wanted = {"MCP-Protocol-Version": meta[META_VERSION], "Mcp-Method": message["method"]}
        member = row.mirrored if row is not None else self.server.mirrored.get(message["method"])
        if member and isinstance(params.get(member), str):
            wanted["Mcp-Name"] = params[member]
        entry = self.server.tools.get(str(params.get("name"))) \
            if message["method"] == "tools/call" else None
        if entry is not None:
            wanted.update(_mirrored_arguments(entry.definition["inputSchema"],
                                              params.get("arguments")))
        for name, value in wanted.items():
            given = exchange.headers.get(name.lower())
            if value is None and given is None:
                continue                        # an argument that was left out
            if given is None:
                raise RpcError(HEADER_MISMATCH, f"Header mismatch: {name} is missing")
            exact = name in ("MCP-Protocol-Version", "Mcp-Method")
            if value is None or not _same_value(given if exact else unmirror(given), value):
                raise RpcError(HEADER_MISMATCH, f"Header mismatch: {name} is {shown(given)!r}, "
                               f"the body says {shown(value)!r}")

    # ---- carrying on

    def run(self, reply: Any, work: Callable[[], None] | None) -> None:
        """Run a handler, with its reply under the housekeeper's eyes."""
        if work is not None:
            self.replies[reply] = None
            self._keep_house()
            try:
                work()
            finally:
                self.replies.pop(reply, None)

    def wait(self, reply: Any) -> None:
        """Hold a stream open until it is answered, or the client is gone, or we close."""
        def until_over() -> None:
            while not reply.answered.wait(1) and not reply.gone and not self.closed.is_set():
                pass
        self.run(reply, until_over)

    def _keep_house(self) -> None:
        """Start the housekeeper, once there is something to look after."""
        if self._housekeeper is None:
            with self._starting:
                if self._housekeeper is None:
                    self._housekeeper = threading.Thread(
                        target=self._look_after, name="mcp-house", daemon=True)
                    self._housekeeper.start()

    def _look_after(self) -> None:
        while not self.closed.wait(0.1):
            now = time.monotonic()
            try:
                for reply in list(self.replies):
                    reply.look_after(now)
                # >8 legacy
                self.sessions.expire(now)
                # 8< legacy
            except Exception as problem:        # noqa: BLE001 (nobody would keep house any more)
                _log_traceback("keeping house", problem)

    def close(self) -> None:
        """End subscriptions and sessions; the streams end with them. It cannot serve again."""
        for ctx in list(self.server._listening):
            if getattr(ctx._send, "endpoint", None) is self:    # the server may have others
                self.server.end_subscription(ctx)
        self.closed.set()
        # >8 legacy
        self.sessions.close()
        # 8< legacy


def _modern_meta(message: Any) -> Message | None:
    """Return the `_meta` of a message that says it is of the modern era; else None."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) and META_VERSION in meta else None


def bearer(tokens: dict[str, Any], header: str = "authorization",
           metadata_url: str = "") -> Callable[[dict[str, str]], Any]:
    """Make an `authorize` hook: a bearer token, or with `header="x-api-key"` a key, to who calls.

    Compared in constant time; never read from the URL. (basic/authorization/index)
    """
    import hmac
    header = header.lower()
    known = [(token.encode(), who) for token, who in tokens.items()]
    challenge = "Bearer" + (f' resource_metadata="{metadata_url}"' if metadata_url else "")

    def authorize(headers: dict[str, str]) -> Any:
        given = headers.get(header, "")
        if header == "authorization":
            scheme, _, given = given.partition(" ")
            given = given.strip() if scheme.lower() == "bearer" else ""
        same = [who for token, who in known     # a header's bytes come as Latin-1 (PEP 3333)
                if hmac.compare_digest(token, given.encode("latin-1", "replace"))]
        if not given or not same:
            raise HttpError(401, "A valid token is needed", {"WWW-Authenticate": challenge}
                            if header == "authorization" else None)
        return same[0]
    return authorize


def _name_of(host: str) -> str:
    """Return the host's name without the port: "[::1]:80" is "::1"."""
    found = re.fullmatch(r"\[([^\]]*)\](?::\d*)?|([^:]*)(?::\d*)?", host.strip().lower())
    return (found[1] or found[2] or "") if found else ""


def _one_line(value: str) -> str:
    """Return a value that may be a header: without line ends, nothing can be injected."""
    if value.isascii() and value.isprintable():
        return value
    return re.sub(r"[^\t -~]", "", value)


# >8 legacy
# ==========================================================================================
# 8. [legacy] HTTP sessions, streams and resumption; HTTP+SSE of 2024-11-05
#
# A session has an id, which `initialize` hands out, and lives until it is deleted or forgotten:
# then 404 tells the client to start again, and nothing else does. Its streams number their events;
# a client that lost its connection names the last one it saw, and gets the rest of that stream.
# ==========================================================================================

MAX_SESSIONS = 1000         # the one that was idle for the longest goes first
SESSION_SECONDS = 3600      # without a request, then a session is forgotten
MAX_STREAMS = 64            # of a session: requests under way, and streams that are kept
MAX_INITIALIZE_BYTES = 2**18    # of a body that opens a session: parts of it are kept
REPLAY_BYTES = 2**20        # of events that a session keeps; the oldest go first
RETRY_MS = 500              # after which a client that we hung up on shall come back


class Stream:
    """One stream of a session: numbered events, written to who is attached, kept for a while."""

    def __init__(self, session: HttpSession, name: str) -> None:
        self.session = session
        self.name = name                    # "p" or "g", by what opened it, and a number
        self.standing = name[0] == "g"      # no answer will end it
        self.events: list[tuple[int, bytes]] = []
        self.count = 0
        self.exchange: Exchange | None = None
        self.answered = threading.Event()   # nothing follows
        self.gone = True                    # nobody is attached
        self.written = 0.0
        self._lock = threading.RLock()      # guards all of it; events keep their order under it
        self._turned = threading.Condition(self._lock)      # it went elsewhere, or is over

    def add(self, line: bytes, last: bool) -> None:
        """Number an event, keep it, and write it if somebody is there."""
        with self._lock:
            self.count += 1
            data = event(line, f"{self.name}-{self.count}")
            self.events.append((self.count, data))
            self.session.keep(self, len(data))
            if self.standing and self.exchange is not None and not self.exchange.ready():
                self._let_go()              # it reads nothing, and others would have to wait
            self._write(data)
            if last:
                self.finish()

    def attach(self, exchange: Exchange, headers: dict[str, str], after: int = 0,
               prime: bool = False) -> None:
        """Write to this exchange from now on, and first what came after an event."""
        with self._lock:
            self._end()
            self.exchange, self.gone = exchange, False
            if self.standing:
                self.session.listen(self)   # before the client can know that it is heard
            self._do(lambda: exchange.start(200, {**_STREAM_HEADERS, **headers}, None))
            if prime:       # [2025-11-25] basic/transports §Sending Messages to the Server
                self._write(event(b"", f"{self.name}-{self.count}", retry=RETRY_MS))
            for count, data in list(self.events):
                if count > after:
                    self._write(data)
            while self.standing and self.session.waiting:
                self.add(self.session.waiting.pop(0), False)
            if self.answered.is_set():
                self._end()

    def is_over(self, count: int) -> bool:
        """Tell whether nothing comes after an event, now or later."""
        return self.answered.is_set() and (self.count <= count or not self.events)

    def hold(self, exchange: Exchange, closed: threading.Event) -> None:
        """Wait until it is over, or goes to another exchange, or the client is gone."""
        with self._turned:
            while self.exchange is exchange and not closed.is_set():
                self._turned.wait(1)

    def finish(self) -> None:
        """End it: nothing follows."""
        with self._lock:
            self._end()
            self.answered.set()

    def hang_up(self) -> None:
        """Close the connection but not the stream: the client comes back for the rest."""
        with self._lock:
            self._write(f"retry: {RETRY_MS}\n\n".encode())
            self._end(hang_up=True)

    def _end(self, hang_up: bool = False) -> None:
        if self.exchange is not None:
            exchange = self.exchange
            self._do(lambda: exchange.end(hang_up))
        self._let_go()

    def _let_go(self) -> None:
        self.exchange, self.gone = None, True
        self._turned.notify_all()

    def _write(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is not None:
            self._do(lambda: exchange.write(data))
            self.written = time.monotonic()

    def _do(self, action: Callable[[], Any]) -> None:
        try:
            if not self.gone:
                action()
        except OSError:
            self._let_go()                  # the request goes on: that is the legacy rule

    def look_after(self, now: float) -> None:
        """Keep it alive, notice that nobody reads: called now and then by the housekeeper."""
        if self._lock.acquire(blocking=False):      # who writes already keeps it alive
            try:
                exchange = self.exchange
                if exchange is not None and exchange.gone():
                    self._let_go()
                elif exchange is not None and now - self.written > KEEP_ALIVE_SECONDS \
                        and exchange.ready():
                    self._write(b": \n\n")
            finally:
                self._lock.release()


class HttpSession:
    """A legacy session over HTTP: its peer, its streams, who owns it."""

    def __init__(self, principal: Any, over_sse: bool = False) -> None:
        self.id = os.urandom(16).hex()
        self.over_sse = over_sse            # posted to /messages
        self.principal = principal
        self.peer = Peer(self.tell, ordered=False)
        self.streams: dict[str, Stream] = {}
        self.listening: list[Stream] = []   # opened by GET: the newest that is attached hears
        self.waiting: list[bytes] = []      # what nobody was there to hear
        self.used = time.monotonic()
        self.kept = 0                       # bytes of events
        self._numbers = iter(range(1, sys.maxsize))
        self._lock = threading.Lock()

    def stream(self, kind: str = "p") -> Stream:
        """Make a stream; forget the oldest of those that are over, if there are too many."""
        with self._lock:
            stream = Stream(self, kind + str(next(self._numbers)))
            over = [name for name, one in self.streams.items()
                    if one.gone and (one.answered.is_set() or one.standing)]
            if len(self.streams) >= MAX_STREAMS and over:
                self.kept -= sum(len(data) for _, data in self.streams.pop(over[0]).events)
            self.streams[stream.name] = stream
            return stream

    def check_room(self) -> None:
        """Refuse what might need one more stream, before anything happens for it."""
        attached = sum(not one.gone for one in self.listening)
        if len(self.peer.running) + attached >= MAX_STREAMS:
            raise HttpError(503, "Too many streams in this session", {"Retry-After": "1"})

    def primes(self) -> bool:
        """Tell whether a stream begins with an event that has an id and no message."""
        opened = self.peer.session
        return opened is not None and "priming events" in opened.rules.features

    def keep(self, stream: Stream, size: int) -> None:
        """Note that a stream has one more event; forget the oldest beyond REPLAY_BYTES."""
        with self._lock:
            self.kept += size
            for one in self.streams.values():
                while self.kept > REPLAY_BYTES and len(one.events) > (one is stream):
                    self.kept -= len(one.events.pop(0)[1])

    def listen(self, stream: Stream) -> None:
        """Let a stream hear what belongs to no request, from now on."""
        with self._lock:
            others = [one for one in self.listening if one is not stream and not one.gone]
            self.listening = [*others, stream]

    def tell(self, message: Any) -> None:
        """Send what belongs to no request: on one stream, never on two."""
        line = encode(message)
        for stream in reversed(self.listening):
            if not stream.gone:
                stream.add(line, False)
                return
        if len(self.waiting) < MAX_BATCH and sum(map(len, self.waiting)) < REPLAY_BYTES:
            self.waiting.append(line)


class LegacyReply(Reply):
    """The reply to a POST in a session: its stream can be resumed, and outlives the connection."""

    def __init__(self, exchange: Exchange, headers: dict[str, str], session: HttpSession,
                 resumable: bool) -> None:
        super().__init__(exchange, headers, lambda answer: 200, _nothing)
        self.session = session
        self.resumable = resumable
        self.stream: Stream | None = None

    def _event(self, line: bytes, last: bool) -> None:
        self._opened().add(line, last)

    def close(self) -> None:
        """End what will not be answered, on this exchange or wherever its stream is now."""
        if self.stream is None:
            super().close()
        elif not self.answered.is_set():
            self.stream.finish()

    def look_after(self, now: float) -> None:
        """Look after the stream, if it has become one."""
        if self.stream is not None:
            self.stream.look_after(now)

    def close_stream(self) -> None:
        """Hang up, if there is an event id to come back with."""
        with self._lock:
            if self.resumable and self.session.primes():
                self._opened().hang_up()

    def _opened(self) -> Stream:
        if self.stream is None:
            self.streaming = True
            self.stream = self.session.stream()
            self.stream.attach(self.exchange, self.headers,
                               prime=self.resumable and self.session.primes())
        return self.stream


class Sessions:
    """All legacy sessions of an endpoint, and what is done with them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._by_id: dict[str, HttpSession] = {}    # in the order of their last use
        self._lock = threading.Lock()

    def find(self, exchange: Exchange, principal: Any, over_sse: bool = False) -> HttpSession:
        """Return the session that a request names; 404 if it is gone, or somebody else's."""
        ident = exchange.query.partition("session_id=")[2] if over_sse \
            else exchange.headers.get("mcp-session-id", "")
        with self._lock:
            session = self._by_id.pop(ident, None)
            if session is not None:
                self._by_id[ident] = session        # now the last one used
        if session is None or session.principal != principal or session.over_sse != over_sse:
            raise HttpError(404, "The session is gone; send `initialize` to open another")
        version = exchange.headers.get("mcp-protocol-version")
        if version is not None and version not in versions("legacy"):
            raise HttpError(400, "MCP-Protocol-Version names no version of this session's kind")
        session.used = time.monotonic()
        return session

    def peer(self, exchange: Exchange) -> Peer:
        """Return the peer of the session that a request names, or a fresh one."""
        session = self._by_id.get(exchange.headers.get("mcp-session-id", ""))
        return Peer() if session is None else session.peer

    def add(self, session: HttpSession) -> None:
        """Keep a session; forget the one that was idle for the longest, if there are too many."""
        with self._lock:
            oldest = next(iter(self._by_id)) if len(self._by_id) >= MAX_SESSIONS else None
            forgotten = self._by_id.pop(oldest) if oldest is not None else None
            self._by_id[session.id] = session
        if forgotten is not None:
            self._end(forgotten)
        self.endpoint._keep_house()

    def _end(self, session: HttpSession) -> None:
        session.peer.close()
        session.peer.session = None
        for stream in list(session.streams.values()):
            stream.finish()

    def _drop(self, session: HttpSession) -> None:
        with self._lock:
            self._by_id.pop(session.id, None)
        self._end(session)

    def expire(self, now: float) -> None:
        """Forget the sessions that nobody has used for long."""
        with self._lock:
            old = [session for session in self._by_id.values()
                   if now - session.used > SESSION_SECONDS and all(
                       stream.gone for stream in list(session.streams.values()))]
            for session in old:
                del self._by_id[session.id]
        for session in old:
            self._end(session)

    def close(self) -> None:
        """End them all."""
        with self._lock:
            sessions, self._by_id = list(self._by_id.values()), {}
        for session in sessions:
            self._end(session)

    def post(self, exchange: Exchange, headers: dict[str, str], principal: Any,
             message: Any) -> None:
        """[2025-11-25] basic/transports §Sending Messages to the Server, §Session Management."""
        if isinstance(message, dict) and message.get("method") == "initialize":
            self._open(exchange, headers, principal, message)
            return
        if "mcp-session-id" in exchange.headers:
            session = self.find(exchange, principal)
        else:
            session = self._passing(exchange, principal)
        session.check_room()
        reply = LegacyReply(exchange, headers, session, resumable=session.id in self._by_id)
        work = self.endpoint.server.accept(message, reply, session.peer, principal)
        self.endpoint.run(reply, work)
        if work is not None:
            reply.close()
        elif not reply.answered.is_set():
            self.endpoint._answer(exchange, 202, headers, None)     # nothing was to be answered

    def _open(self, exchange: Exchange, headers: dict[str, str], principal: Any,
              message: Message) -> None:
        """Answer `initialize`; if that has opened a session, tell its id."""
        if exchange.size > MAX_INITIALIZE_BYTES:
            raise HttpError(413, f"`initialize` is larger than {MAX_INITIALIZE_BYTES} bytes")
        session, answers = HttpSession(principal), []   # type: HttpSession, list[Any]
        self.endpoint.server.accept(message, answers.append, session.peer, principal)
        if session.peer.session is not None and not self.endpoint.stateless:
            headers = {**headers, "Mcp-Session-Id": session.id}
            self.add(session)               # before the answer: the next request may be quick
        self.endpoint._answer(exchange, 200 if answers else 202, headers, *answers or [None])

    def _passing(self, exchange: Exchange, principal: Any) -> HttpSession:
        """Make a session for one request: the switch for stateless legacy service."""
        version = exchange.headers.get("mcp-protocol-version", R2)
        if version not in versions("legacy"):
            raise HttpError(400, "MCP-Protocol-Version is none that is served without a session")
        session = HttpSession(principal)
        session.peer.session = Session(
            rules(version), {"clientInfo": {}, "capabilities": {}},
            self.endpoint.server._offered(version))
        session.peer.session.ready.set()
        return session

    def get(self, exchange: Exchange, headers: dict[str, str], principal: Any) -> None:
        """[2025-11-25] basic/transports §Listening for Messages from the Server."""
        session = self.find(exchange, principal)
        found = re.fullmatch(r"([pg]\d{1,9})-(\d{1,9})", exchange.headers.get("last-event-id", ""))
        stream = session.streams.get(found[1]) if found else None
        if stream is not None and found is not None and not stream.is_over(int(found[2])):
            stream.attach(exchange, headers, int(found[2]))
        elif found is not None and found[1][0] == "p":      # it has nothing more, and never will
            raise HttpError(405, "This stream is over", {"Allow": "POST, DELETE"})
        else:
            session.check_room()
            stream = session.stream("g")
            stream.attach(exchange, headers, prime=session.primes())
        if not stream.gone:
            self._hold(stream, exchange)

    def _hold(self, stream: Stream, exchange: Exchange) -> None:
        """Stay as long as this exchange is where the stream is written to."""
        self.endpoint.replies[stream] = None
        self.endpoint._keep_house()
        stream.hold(exchange, self.endpoint.closed)
        if stream.exchange is None or stream.exchange is exchange:
            self.endpoint.replies.pop(stream, None)

    def delete(self, exchange: Exchange, headers: dict[str, str], principal: Any) -> None:
        """[2025-11-25] basic/transports §Session Management."""
        self._drop(self.find(exchange, principal))
        self.endpoint._answer(exchange, 200, headers, None)

    # ---- HTTP+SSE: two endpoints, one stream: [2024-11-05] basic/transports §HTTP with SSE

    def open_sse(self, exchange: Exchange, headers: dict[str, str], principal: Any) -> None:
        """Open the stream, and tell by its first event where to post."""
        session = HttpSession(principal, over_sse=True)
        stream = session.stream("g")
        session.peer.send = lambda message: stream.add(encode(message), False)
        self.add(session)
        stream.attach(exchange, headers)
        with stream._lock:
            place = "/messages" if exchange.path.rstrip("/") == "/sse" else \
                self.endpoint.path + "/messages"        # others may live under the same root
            stream._write(event(f"{place}?session_id={session.id}".encode(), event="endpoint"))
        self._hold(stream, exchange)
        self._drop(session)

    def post_sse(self, exchange: Exchange, headers: dict[str, str], principal: Any) -> None:
        """Take a message; what comes of it goes to the stream."""
        session = self.find(exchange, principal, over_sse=True)
        message = self.endpoint.read_message(exchange, headers)
        if message is not None:
            self.endpoint._answer(exchange, 202, headers, None)
            if _modern_meta(message) is not None:
                error = RpcError(METHOD_NOT_FOUND, "HTTP+SSE has no modern revisions; initialize")
                self.endpoint.server.refuse(error, message, session.peer.send, session.peer)
                return
            work = self.endpoint.server.accept(message, session.peer.send, session.peer, principal)
            if work is not None:    # not here: the next POST may come on this same connection
                threading.Thread(target=work, name="mcp-sse", daemon=True).start()
# 8< legacy


# ==========================================================================================
# 9. serve_http: the `http.server` glue
# ==========================================================================================

def serve_http(server: Server, host: str = "127.0.0.1", port: int = 8000, *,
               endpoint: Endpoint | None = None, **options: Any) -> None:
    """Serve over HTTP until interrupted; `options` are those of Endpoint, which they make."""
    if endpoint is not None and options:
        raise TypeError("options are given to the endpoint")
    httpd = http_server(endpoint or Endpoint(server, **options), host, port)
    place = f"[{host}]" if ":" in host else host
    log(f"{server.info['name']} listens on http://{place}:{httpd.server_port}{httpd.endpoint.path}")
    import signal
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)) if in_main else None
    try:
        httpd.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        httpd.close()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _head(status: int, headers: dict[str, str]) -> bytes:
    """Make the head of an answer, for one write with the body."""
    from http.client import responses
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}",
             *[f"{name}: {value}" for name, value in headers.items()], "\r\n"]
    return "\r\n".join(lines).encode("ascii")


class HttpExchange(Exchange):
    """An exchange on a connection of http.server."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler.command, handler.path, handler.fields, handler.rfile)
        self.handler = handler
        said, self._chunked = self.headers.get("connection", ""), handler.version == "HTTP/1.1"
        options = {option.strip().lower() for option in said.split(",")}
        handler.close_connection = "close" in options or not (
            self._chunked or "keep-alive" in options)
        self.started = False
        if self._chunked and "host" not in self.headers:
            self.flaw = "Host is missing"
        if not self._chunked and "transfer-encoding" in self.headers:
            self.flaw = "Transfer-Encoding belongs to HTTP/1.1"

    def body(self) -> bytes:
        try:
            return super().body()
        finally:
            self.handler.server.reading.pop(self.handler.connection, None)

    def proceed(self) -> None:
        if self._chunked and self.headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        if self.flaw or self.size < 0 and (self.headers.get("content-length", "0") != "0"
                                           or "transfer-encoding" in self.headers):
            self.handler.close_connection = self.handler.lingers = True     # a body is left
        self.started = True
        self.handler.server.reading.pop(self.handler.connection, None)
        headers = dict(headers)
        if body is None and self._chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif body is None:
            self.handler.close_connection = True
        elif status != 204:
            headers["Content-Length"] = str(len(body))
        if self.handler.close_connection:
            headers["Connection"] = "close"
        self._send(_head(status, headers) + (b"" if self.method == "HEAD" else body or b""))

    def _send(self, data: bytes) -> None:
        connection, sending = self.handler.connection, self.handler.server.sending
        try:
            for start in range(0, len(data), 2**16):    # each part in SEND_SECONDS
                sending[connection] = time.monotonic()
                connection.sendall(data[start:start + 2**16])
        except OSError:
            self.handler.close_connection = True        # perhaps half of it went out
            raise
        finally:
            sending.pop(connection, None)

    def write(self, data: bytes) -> None:
        self._send(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    def end(self, hang_up: bool = False) -> None:
        if self._chunked:
            self._send(b"0\r\n\r\n")
        if hang_up:
            import socket
            self.handler.close_connection = True
            self.handler.connection.shutdown(socket.SHUT_WR)

    def gone(self) -> bool:
        import socket
        try:
            return _is_ready(self.handler.connection, False) and self.handler.connection.recv(
                1, socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)) == b""
        except (OSError, ValueError):
            return True

    def ready(self) -> bool:
        try:
            return _is_ready(self.handler.connection, True)
        except (OSError, ValueError):
            return True                         # the write will tell what is wrong


def http_server(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> Any:
    """Make an http.server for an endpoint: serve_forever() runs it, close() ends it.

    On loopback, and if the endpoint does not know better, Host has to be a name of loopback.
    """
    if endpoint.closed.is_set():
        raise ValueError("this endpoint was closed: make another one")
    import socket
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from socketserver import TCPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 0
        server: Any
        raw_requestline: bytes
        version: str
        fields: list[tuple[str, str]]       # the headers, as they came
        lingers = False                     # the client may still be sending: it shall read first

        def handle_one_request(self) -> None:
            self.server.reading[self.connection] = time.monotonic()     # until the body is read
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True
            finally:
                self.server.reading.pop(self.connection, None)

        def parse_request(self) -> bool:
            """Read the head: RFC 9112, without leniency. http.server would parse it as mail, which
            takes longer than all the rest of a call, and lets more through.
            """
            self.command, self.close_connection = "", True
            first = _REQUEST_LINE(self.raw_requestline.decode("latin-1"))
            if first is None:
                self.send_error(400, "This is no HTTP/1 request")
                return False
            self.command, self.path, self.version = first.groups()
            self.fields = []
            line = self.rfile.readline(MAX_LINE_BYTES)
            while line not in (b"\r\n", b"\n"):
                header = _HEADER(line.decode("latin-1"))
                if len(line) == MAX_LINE_BYTES or len(self.fields) == MAX_HEADERS:
                    self.send_error(431, "The headers are too many, or too long")
                    return False
                if header is None:              # cut off, folded, without a name, a bad byte
                    self.send_error(400, "A header is not well formed")
                    return False
                self.fields.append((header[1], header[2]))
                line = self.rfile.readline(MAX_LINE_BYTES)
            return True

        def finish(self) -> None:
            super().finish()
            if self.lingers:                    # else what is unread resets the connection
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(1)
                until, left = time.monotonic() + 2, 2 * MAX_MESSAGE_BYTES
                while left > 0 and time.monotonic() < until:
                    left -= len(self.connection.recv(2**16)) or left

        def answer(self) -> None:
            exchange = HttpExchange(self)
            endpoint.serve(exchange)
            if not exchange.started or endpoint.closed.is_set():
                self.close_connection = True

        do_GET = do_POST = do_DELETE = do_OPTIONS = do_PUT = do_PATCH = do_HEAD = answer

        def send_error(self, code: int, message: str | None = None,
                       explain: str | None = None) -> None:
            body = encode(_failure(RpcError(INVALID_REQUEST, message or "Bad request"), None))
            self.close_connection = self.lingers = True
            self.connection.settimeout(SEND_SECONDS)
            self.wfile.write(_head(code, {"Content-Type": "application/json",
                                          "Content-Length": str(len(body)),
                                          "Connection": "close"}) + body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: what matters is logged where it is known."""

    class HttpServer(ThreadingHTTPServer):
        request_queue_size = 512            # with the default of 5, many at once wait for seconds
        daemon_threads = True

        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def __init__(self) -> None:
            self.endpoint = endpoint
            self.opened: set[Any] = set()           # the connections
            self.reading: dict[Any, float] = {}     # those that have to send, and since when
            self.sending: dict[Any, float] = {}     # those that have to read, and since when
            self.served = False
            super().__init__((host, port), Handler)

        def serve_forever(self, poll_interval: float = 0.5) -> None:
            if not endpoint.closed.is_set():
                self.served = True
                super().serve_forever(poll_interval)

        def process_request(self, request: Any, client_address: Any) -> None:
            """Start the thread of a connection, unless there are too many."""
            if len(self.opened) >= MAX_CONNECTIONS:
                request.setblocking(False)
                try:
                    request.send(_head(503, {"Retry-After": "1", "Content-Length": "0",
                                             "Connection": "close"}))
                except OSError:
                    pass
                self.shutdown_request(request)
                return
            self.opened.add(request)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            self.opened.discard(request)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            """Hang up on who is too slow to send a request: called twice a second."""
            late = time.monotonic() - SEND_SECONDS
            for waiting, how in (self.reading, socket.SHUT_RD), (self.sending, socket.SHUT_RDWR):
                for connection, since in list(waiting.items()):
                    if since < late:
                        waiting.pop(connection, None)
                        _shut(connection, how)              # its thread then meets the end

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Log what is not the client's doing; a reset connection is."""
            problem = sys.exc_info()[1]
            if problem is not None and not isinstance(problem, OSError):
                _log_traceback("a connection", problem)

        def server_bind(self) -> None:          # without asking the resolver for a name
            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

        def close(self) -> None:
            """Stop listening, end streams and sessions, and let nobody hold that up."""
            ending = threading.Thread(target=endpoint.close, name="mcp-end", daemon=True)
            ending.start()
            ending.join(CLOSE_SECONDS)
            if self.served:
                self.shutdown()
            self.server_close()
            for connection in list(self.opened):
                _shut(connection, socket.SHUT_RDWR if ending.is_alive() else socket.SHUT_RD)
    if endpoint.hosts is None and host in _LOOPBACK:
        endpoint.hosts = set(_LOOPBACK)
    return HttpServer()
# 8< http


# ==========================================================================================
# You have now read the same server over HTTP, for both eras.
# ==========================================================================================


# >8 client
# ==========================================================================================
# 10. The client
#
# connect() finds out what the server speaks, once; then every method is a call that blocks until
# its result is there, and may be made by any thread. A server may ask something in return: the
# functions given to connect() answer, in both eras alike. What the server sends is foreign: it may
# be wrong in any way, and then one call fails here, with an error that says so. An RpcError is what
# the server answered; other exceptions are ours, and carry no code.
#
#     call_tool() -> request(): the rounds of questions -> _send(): version, session, headers
#         -> _exchange(): one message, one response -> Transport.request()
# ==========================================================================================

CALL_SECONDS = 60           # for a request to be answered, unless the call says otherwise
LONGEST_SECONDS = 3600      # ... however much progress the server reports
CANCEL_SECONDS = 1          # to tell the server that nobody waits any more
PROBE_SECONDS = 3           # for the very first message: after that the server counts as legacy
MAX_ROUNDS = 10             # of input required, for one request
MAX_PAGES = 1000            # of one list
MAX_LIST_BYTES = 64 * 2**20     # of all its pages together
MAX_ANSWERING = 64          # [legacy] questions of a server that are being answered at once
MAX_UNHEARD = 1000          # notifications that wait for a slow callback; the next are dropped
MAX_CACHED = 256            # results that are kept, if caching is asked for
MAX_AUTHORIZE = 3           # times that `authorize` is asked for one request

# What each item of a list must have, all of it strings.
_ITEMS = {"tools": "name", "resources": "uri name", "resourceTemplates": "uriTemplate name",
          "prompts": "name", "contents": "uri", "messages": "role"}
# What it may have.
_MEMBERS = [("title", str), ("description", str), ("mimeType", str), ("text", str), ("blob", str),
            ("arguments", list), ("inputSchema", dict), ("outputSchema", dict)]
_INPUT = frozenset(["inputResponses", "requestState"])     # what a retry has more


class Disconnected(ConnectionError):
    """There is no server there, it does not speak MCP, or it has gone away."""


class Malformed(Exception):
    """The server broke the protocol, so its answer is of no use."""


class ServerLacks(Exception):
    """The server did not declare what this method needs."""


class RequestCancelled(Exception):
    """Somebody called cancel() on this request."""


class _SessionLost(Exception):
    """[legacy] The server has forgotten the session of this id: initialize again."""


class Request:
    """One request of ours, from being sent to its response. cancel() is for any thread.

    `tag` is what the caller gave to request(), for the functions that answer questions.
    """

    def __init__(self, ident: Any, method: str, timeout: float, longest: float, extend: bool,
                 on_progress: Callable[..., Any] | None, tag: Any) -> None:
        self.id = ident
        self.method = method
        self.tag = tag
        self.sent = False
        self.cancelled = False
        self._on_progress = on_progress
        self._timeout = timeout
        self._extend = extend
        self._last = time.monotonic() + longest
        self.deadline = min(time.monotonic() + timeout, self._last)
        self.hang_up: Callable[[], Any] = _nothing      # set by HTTP: closes the connection
        self._inbox: list[Any] = []         # from the thread that reads, to ours, oldest first
        self._bell = threading.Lock()       # free while there may be something in it
        self._bell.acquire()

    @property
    def wants_progress(self) -> bool:
        """Tell whether the request should carry a progress token."""
        return self._extend or self._on_progress is not None

    def take(self, message: Any) -> None:
        """Hand over the response, a notification of progress, or an exception to raise."""
        if isinstance(message, dict) and "method" in message:
            if self._extend:        # basic/patterns/cancellation §Timeouts: the clock starts anew
                self.deadline = min(time.monotonic() + self._timeout, self._last)
            if self._on_progress is None or len(self._inbox) >= MAX_UNHEARD:
                return
        self._inbox.append(message)
        try:
            self._bell.release()
        except RuntimeError:                # it was rung already
            pass

    def cancel(self) -> None:
        """Give up: who waits for the response gets RequestCancelled, and the server is told.

        A function that answers a question on the way is not interrupted; it is the last to run.
        """
        self.cancelled = True
        self.take(RequestCancelled(f"{self.method} was cancelled"))
        self.hang_up()

    def wait(self, block: bool = True) -> Any:
        """Return the response, reporting progress meanwhile; None if it is not there yet.

        Raises TimeoutError at the deadline, and what the reading thread has to report.
        """
        while True:
            while not self._inbox:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    raise self.late()
                if not block:
                    return None
                self._bell.acquire(timeout=min(left, 3600))     # progress may move the deadline
            item = self._inbox.pop(0)
            if isinstance(item, BaseException):
                raise item
            if "method" not in item:
                return item
            if time.monotonic() > self.deadline:        # a flood of progress must not hide it
                raise self.late()
            params = item["params"]
            if self._on_progress is not None:
                self._on_progress(params["progress"], params["total"], params["message"])

    def rest(self, seconds: float) -> None:
        """Wait for so long, but not past the deadline, nor once there is something to take."""
        if not self._inbox:
            self._bell.acquire(timeout=max(0.0, min(seconds, self.deadline - time.monotonic())))

    def late(self) -> TimeoutError:
        """Make the exception for a response that did not come."""
        return TimeoutError(f"no answer to {self.method} within {self._timeout:g} s")


class Subscription:
    """Changes that a server announces: iterate over it, or have a callback called; close() ends it.

    Each change is "tools", "prompts", "resources" or a URI, as in Server.changed(). `granted` says
    which of those the server agreed to. Iteration ends with the subscription. After a break in the
    connection everything granted is announced once, since a change may have been missed. What an
    extension's filter asked for comes as a whole notification; `filter` says what was granted.
    """

    def __init__(self, client: Client, wanted: Iterable[str],
                 callback: Callable[[Any], Any] | None, filters: Message) -> None:
        from queue import SimpleQueue
        self.client = client
        self.wanted = list(_several(wanted))
        self.granted: list[str] = []
        self.filters, self.filter = filters, _EMPTY     # modern: of extensions; what was granted
        self.over = threading.Event()
        self.id: Any = None                     # modern: of the request that keeps it open
        self._callback = callback
        self._changes: SimpleQueue[Any] = SimpleQueue()         # None: the end
        self._known = threading.Event()         # set when it is known what was granted, or failed
        self._problem: BaseException | None = None
        self._request: Request | None = None
        self._began = False                     # the request has gone out
        self._pause = 0.5                       # seconds, before trying again

    def __iter__(self) -> Iterator[Any]:
        yield from iter(self._changes.get, None)
        self._changes.put(None)                 # for those who come back

    def __enter__(self) -> Subscription:      # noqa: PYI034  typing.Self is too new
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, change: Any) -> None:
        """Note a change."""
        if self._callback is not None:
            self.client._tell(self._callback, change)
        elif self._changes.qsize() < MAX_UNHEARD:
            self._changes.put(change)

    def close(self) -> None:
        """End it; nothing happens if it is over."""
        if self.over.is_set():
            return
        self._end()
        self.client._subscriptions.pop(self, None)
        if self._request is not None:
            self._request.cancel()
        # >8 legacy
        elif not self.client.modern and self.client.transport.is_up():
            left = {uri for other in list(self.client._subscriptions) for uri in other.granted}
            for uri in self.granted:
                if ":" in uri and uri not in left and not self.client.closed:
                    self._unsubscribe(uri)
        # 8< legacy

    # >8 legacy
    def _unsubscribe(self, uri: str) -> None:
        try:
            self.client._call("resources/unsubscribe", {"uri": uri})
        except (OSError, RpcError, HttpError, Malformed) as problem:
            log(f"resources/unsubscribe: {problem}")
    # 8< legacy

    def _end(self, problem: BaseException | None = None) -> None:
        self._problem = self._problem or problem
        self.over.set()
        self._known.set()
        self._changes.put(None)

    def open(self, timeout: float) -> None:
        """Open it; raises what hinders that."""
        self.client._subscriptions[self] = None
        if self.client.modern:
            threading.Thread(target=self._run, name="mcp-listen", daemon=True).start()
            if not self._known.wait(timeout):
                self._problem = TimeoutError("the server did not acknowledge the subscription")
        # >8 legacy
        else:
            try:
                self.renew()
            except _SessionLost as lost:
                self.client.transport.forget_session(str(lost))
                self.client.open()              # which renews us, too
            except BaseException as trouble:    # noqa: BLE001  raised again below
                self._problem = trouble
        # 8< legacy
        if not self.granted and not self.filters.keys() & self.filter.keys() \
                and self._problem is None:
            self._problem = ServerLacks("the server tells of no changes of "
                                        + ", ".join([*self.wanted, *self.filters]))
        if self._problem is not None:
            self.close()
            raise self._problem

    # >8 legacy
    def renew(self) -> None:
        """[legacy] Subscribe, in a session that is new. [2025-11-25] server/resources"""
        kinds = self.client.capabilities
        again, granted = self.granted, []       # type: list[str], list[str]
        for what in self.wanted:
            if ":" not in what:
                if _declares(kinds, what + ".listChanged"):
                    granted.append(what)
            elif _declares(kinds, "resources.subscribe"):
                self.client._result_of("resources/subscribe", self.client._exchange(
                    self.client._new_request("resources/subscribe"), {"uri": what}))
                granted.append(what)
        self._grant(granted, bool(again))
    # 8< legacy

    def _grant(self, granted: list[str], again: bool) -> None:
        """Note what was granted; if it is not for the first time, some changes may be missed."""
        self.granted = granted
        for what in granted if again else ():
            self.take(what)

    def acknowledge(self, granted: Message) -> None:
        """Modern: take the first message of a subscription: .../subscriptions §Acknowledgment."""
        uris: Any = granted.get("resourceSubscriptions")
        uris, self.filter = uris if isinstance(uris, list) else [], granted
        self._grant([what for what in self.wanted if (
            what in uris if ":" in what else granted.get(what + "ListChanged") is True)],
            self._known.is_set())
        if self._request is not None:
            self._request.deadline = float("inf")
        self._pause = 0.5
        self._known.set()

    def _run(self) -> None:
        """Modern: keep the request open, and open it again should the connection break."""
        uris = [what for what in self.wanted if ":" in what]
        wanted = {**{what + "ListChanged": True for what in self.wanted if ":" not in what},
                  **_present(resourceSubscriptions=uris or None), **self.filters}
        while not self.over.is_set():
            try:
                self.client._call("subscriptions/listen", {"notifications": wanted}, self._started)
                self._end()
            except (OSError, HttpError, Malformed) as problem:      # TimeoutError is an OSError
                if not self._known.is_set() or not self._began:
                    self._end(problem)
                self._began = False
                self.over.wait(self._pause)
                self._pause = min(2 * self._pause, 30)
            except BaseException as problem:    # noqa: BLE001  raised by open(), if it waits
                self._end(None if isinstance(problem, RpcError)
                          and problem.code == METHOD_NOT_FOUND else problem)

    def _started(self, request: Request) -> None:
        self.id, self._request, self._began = request.id, request, True
        if self.over.is_set():
            request.cancel()


class Client:
    """What connect() returns: one server, to be used by any thread; a context manager.

    `version` is the revision spoken, `modern` its era; `server_info`, `capabilities` and
    `instructions` are what the server says of itself. Methods block, and raise RpcError (the
    server's error), TimeoutError, RequestCancelled, Disconnected, Malformed, ServerLacks, AskError
    (one of your functions refused to answer), HttpError.

    For extensions: `result_types` are functions, by resultType, that make a whole result of one of
    that type; they take method, result and tag. `mirrored` says which param of their methods HTTP
    repeats in Mcp-Name. `answer()` answers a question, `left` is set when the client is closed.
    """

    def __init__(self, transport: Transport, *, revision: str = "", timeout: float = CALL_SECONDS,
                 probe: float = PROBE_SECONDS, elicit: Callable[..., Any] | None = None,
                 visit: Callable[..., Any] | None = None,
                 sample: Callable[..., Any] | None = None, roots: Any = None,
                 on_log: Callable[[Message], Any] | None = None,
                 on_notification: Callable[[Message], Any] | None = None,
                 info: Message | None = None, declare: Message | None = None, cache: bool = False,
                 log_level: str = "", trace: Callable[[str, Any], Any] | None = None) -> None:
        if revision and revision not in REVISIONS:
            raise ValueError("revision is one of " + ", ".join(versions()))
        if log_level and log_level not in LOG_LEVELS:
            raise ValueError("log_level is one of " + ", ".join(LOG_LEVELS))
        self.transport, self.timeout = transport, min(timeout, 1e6)
        self.version = revision
        self.modern = bool(revision) and rules(revision).modern
        self._take_over({"capabilities": {}}, None)
        self.closed = False
        self.log_level = log_level
        self._pinned, self._probe = revision, probe
        self._info = info or {"name": "mcp_ref", "version": __version__}
        self._answers: dict[str, Any] = {
            "elicitation/create": self._answer_elicitation if elicit or visit else None,
            "sampling/createMessage": self._answer_sampling if sample else None,
            "roots/list": self._answer_roots if roots is not None else None}
        self._elicit, self._visit, self._sample, self._roots = elicit, visit, sample, roots
        self._on_log, self._on_notification, self._declare = on_log, on_notification, declare or {}
        self._capabilities: Message = {}            # in the form of the revision
        self._trace = trace
        self._ids = iter(range(1, sys.maxsize))
        self._opening = threading.RLock()           # held while finding the era; guards `version`
        self._ready = False                         # it has been found
        self._running: dict[Any, Request] = {}      # ours, by id: single operations only
        self._given_up: list[Any] = []              # ids; their responses may still come
        self._answering: dict[Any, threading.Event] = {}    # [legacy] theirs: set if cancelled
        self._visited: dict[str, threading.Event] = {}      # [legacy] pages, by elicitation id
        self._subscriptions: dict[Subscription, None] = {}
        self.mirrored: dict[str, str] = {}          # methods of extensions: what Mcp-Name repeats
        self.result_types: dict[str, Callable[[str, Message, Any], Message]] = {}
        self._tools: dict[str, Message] = {}        # as last listed, for headers and output
        self._listed = False
        self._unusable: Message = {}                # tools that were left out, and why
        self._foreign: Message = {}                 # output schemas of other dialects
        self._changes = 0                           # counts notifications of changes
        self._cache: dict[str, tuple[float, str]] | None = {} if cache else None
        self.left = threading.Event()               # set by close()
        self._reviving = False                      # [legacy] a thread is at it
        self._telling = threading.Lock()            # a leaf: guards starting the two threads
        self._unheard: Any = None                   # the queue of mcp-hear, and the thread
        self._hearer = threading.current_thread()
        transport.client = self

    def __enter__(self) -> Client:      # noqa: PYI034  typing.Self is too new
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End subscriptions, waiting calls, the connection and, on stdio, the server."""
        if not self.closed:
            for subscription in list(self._subscriptions):
                subscription._end()
            self.closed = True
            self.left.set()
            self.lost(Disconnected("the client was closed"))
            self.transport.close()
            if self._unheard is not None:
                self._unheard.put(None)
                if threading.current_thread() is not self._hearer:
                    self._hearer.join(CLOSE_SECONDS)    # what was said last shall be heard, too

    # ---- finding the era

    def open(self, timeout: float | None = None) -> None:
        """Connect, unless that is done. What is found out once holds for the server.

        `timeout`: seconds to wait for another thread that is connecting.
        """
        if self._ready and self.transport.is_up() and not self.closed:
            return
        timeout = self.timeout if timeout is None else max(0.0, min(timeout, 1e6))
        if not self._opening.acquire(timeout=timeout):
            raise TimeoutError("there is no connection yet: another thread is still at it")
        try:
            if not self.closed and self.transport.is_up():
                return                      # another thread was quicker, or we are on the way
            self._ready = False
            self._start()
            self._find_era(self.version or versions("modern")[0])
            if self.closed:
                raise Disconnected("the client is closed")
            self._ready = True
        except BaseException as problem:
            self.transport.stop()
            if isinstance(problem, _SessionLost):
                raise Disconnected("the server forgets its sessions at once") from None
            raise
        finally:
            self._opening.release()

    def _start(self) -> None:
        """Connect, or connect again: a stdio server that is left is ended first."""
        if self.transport.restarts:
            self.transport.stop()
        if self.closed:
            raise Disconnected("the client is closed")
        self.transport.start()

    def _find_era(self, version: str) -> None:
        """Try the modern way, then the legacy one: basic/transports/stdio §Backward Compatibility,
        basic/transports/streamable-http §Backward Compatibility."""
        late, why = False, ""
        # >8 legacy
        if not rules(version).modern:
            self._initialize(version)
            return
        # 8< legacy
        try:
            if self._discover(version):
                return
        except HttpError as refusal:
            if refusal.status in (401, 403, 429) or refusal.status >= 500 and self._pinned \
                    or refusal.status == 503:               # no matter of the era
                raise
            why = f": {refusal}"
        except (TimeoutError, Malformed) as problem:        # silence, or nonsense
            if self._pinned:
                raise
            late, why = isinstance(problem, TimeoutError), f": {problem}"
        except Disconnected as problem:
            if self._pinned or not self.transport.restarts or not versions("legacy"):
                raise
            why = f": {problem}"
            self._start()                                   # it could not bear the question
        if self._pinned or not versions("legacy"):
            raise Disconnected(f"the server does not speak {self._pinned or versions()[0]}{why}")
        # >8 legacy
        try:
            self._initialize(versions("legacy")[0])
        except Disconnected:                # it was not silent, but slow to start; then it died of
            if not late or not self.transport.restarts:     # the question ...
                raise
            self._start()
            self._initialize(versions("legacy")[0])
        except RpcError as error:           # ... or is a modern one
            if not late or error.code != UNSUPPORTED_VERSION or not self._choose(
                    _supported(error.to_json()), "", True):
                raise
        # 8< legacy

    def _discover(self, version: str, again: bool = True) -> bool:
        """Ask a modern server what it is; tell whether it is one. (server/discover §Response)"""
        self._speak(version)
        request = self._new_request("server/discover", self.timeout if self._pinned or not again
                                    else min(self.timeout, self._probe))
        response = self._exchange(request, _EMPTY)
        error, result = response.get("error"), response.get("result")
        if error is not None and error["code"] == UNSUPPORTED_VERSION:
            return self._choose(_supported(error), version, again)
        if error is not None:
            if _is_modern(error):
                raise self._raised(error)   # a modern server, which does not like the question
            return False
        if not isinstance(result, dict) or _flaw_of_result("server/discover", result) is not None \
                or result.get("resultType", "complete") != "complete":
            return False
        if version not in result["supportedVersions"]:
            return self._choose(result["supportedVersions"], version, again)
        meta = result.get("_meta")
        self._take_over(result, meta.get(META_SERVER) if isinstance(meta, dict) else None)
        return True

    def _take_over(self, result: Message, info: Any) -> None:
        """Note what the server says of itself."""
        self.capabilities: Message = result["capabilities"]
        said = result.get("instructions")
        self.instructions = said if isinstance(said, str) else None
        self.server_info: Message = info if isinstance(info, dict) else {}

    def _choose(self, supported: list[Any], refused: str, again: bool) -> bool:
        """Take the newest modern version of the server's that we speak; the same one only once."""
        if self._pinned:
            raise Disconnected("the server does not speak {}, but {}".format(
                self._pinned, shown(", ".join(map(str, supported)))))
        for version in versions("modern"):
            if version in supported and (version != refused or again):
                return self._discover(version, again=False)
        if supported and not any(version in supported for version in versions()):
            raise ServerLacks("the server speaks {}, we speak {}".format(
                shown(", ".join(map(str, supported))), ", ".join(versions())))
        return False

    # >8 legacy
    def _initialize(self, version: str) -> None:
        """[legacy] Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        self._speak(version)
        params = {"protocolVersion": version, "capabilities": self._capabilities,
                  "clientInfo": rules(version).fit("server", self._info)}
        result = self._result_of("initialize", self._exchange(
            self._new_request("initialize"), params))
        agreed = result["protocolVersion"]
        if agreed not in versions("legacy") or self._pinned not in ("", agreed):
            raise Disconnected("the server speaks {}, we speak {}".format(
                shown(agreed), self._pinned or ", ".join(versions("legacy"))))
        self._speak(agreed)
        self._take_over(result, result.get("serverInfo"))
        self._notify("notifications/initialized", None, self.timeout)
        if any([*self._answers.values(), self._on_log, self._on_notification,
                self._subscriptions, self._cache is not None]):
            self.transport.listen()
        if self.log_level and _declares(self.capabilities, "logging"):
            self._exchange(self._new_request("logging/setLevel"), {"level": self.log_level})
        for subscription in list(self._subscriptions):
            subscription.renew()
    # 8< legacy

    def _speak(self, version: str) -> None:
        """Note the revision to speak, and what we can be asked for in it."""
        self.version, self.modern = version, rules(version).modern
        self._capabilities = self._declared()

    def _declared(self) -> Message:
        edition, declared = rules(self.version), dict(self._declare)
        if self._answers["elicitation/create"] and "elicitation/create" in edition.methods:
            both = "URL elicitation" in edition.features    # else forms are all there is
            modes: Message = _present(form={} if self._elicit else None,
                                      url={} if self._visit and both else None)
            declared.update({"elicitation": modes if both else {}} if modes else {})
        if self._answers["sampling/createMessage"]:
            declared.setdefault("sampling", {})
        if self._answers["roots/list"]:
            declared["roots"] = {} if edition.modern else {"listChanged": True}
        return declared

    # ---- sending

    def request(self, method: str, params: Message | None = None, *, timeout: float | None = None,
                longest: float = LONGEST_SECONDS, extend: bool = False,
                on_progress: Callable[[float, float | None, str | None], Any] | None = None,
                tag: Any = None, started: Callable[[Request], Any] | None = None) -> Message:
        """Send a request, answer what the server asks on the way, return the result.

        `timeout`: seconds for the response to each message (None: the client's); with `extend`
        progress sets that clock back, up to `longest`. `on_progress` is called with progress, total
        and message, on this thread. `started` gets the Request, which can be cancelled, every time
        that one is sent.
        """
        row, asked = METHODS.get(method), dict(params or {})
        key = json.dumps([method, asked], sort_keys=True) if row and row.cacheable \
            and self._cache is not None and not asked.keys() & _INPUT else ""
        cached, changes = self._cached(key), self._changes
        if cached is not None:
            return cached
        make = functools.partial(self._new_request, method, timeout, longest, extend, on_progress,
                                 tag)
        sent: Request | None = None
        for _ in range(MAX_ROUNDS + 1):
            if sent is not None and sent.cancelled:     # while a question was being answered
                raise RequestCancelled(f"{method} was cancelled")
            sent, response = self._send(make, asked, started)
            error = response.get("error")
            # >8 legacy
            if error is not None and error["code"] == URL_REQUIRED \
                    and self._visit_all(error, tag, timeout):
                continue
            # 8< legacy
            result = self._result_of(method, response)
            kind = result.get("resultType", "complete") if self.modern else "complete"
            if isinstance(kind, str) and kind in self.result_types:
                result = self.result_types[kind](method, result, tag)
                return self._result_of(method, {"result": result})
            if kind == "complete":
                if not asked.keys() & _INPUT and changes == self._changes:
                    self._keep(key, result)             # server/utilities/caching §Cache Key
                return result
            asked = {**(params or {}), **self._more_input(method, result, tag)}
        raise Malformed(f"{method} asks for input again and again: {MAX_ROUNDS} rounds are enough")

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification; nothing where the revision has none of that name."""
        self.open()
        try:
            self._notify(method, params, self.timeout)
        except _SessionLost as lost:
            self.transport.forget_session(str(lost))
            raise Disconnected("the server has forgotten the session") from None

    def _notify(self, method: str, params: Message | None, timeout: float) -> None:
        if method not in NOTIFICATIONS or method in rules(self.version).notifications:
            message = {"jsonrpc": "2.0", "method": method, **_present(params=params)}
            self._show(">", message)
            self.transport.send(message, timeout=timeout)

    def _send(self, make: Callable[[], Request], params: Message,
              started: Callable[[Request], Any] | None = None) -> tuple[Request, Message]:
        """Send a request as often as it takes to find a version, a session and the headers."""
        response: Message | None = None
        for attempt in range(3):
            request = make()
            self.open(request.deadline - time.monotonic())
            version = self.version
            if started is not None:
                started(request)
            try:
                response = self._exchange(request, params)
            except _SessionLost as lost:    # [2025-11-25] basic/transports §Session Management
                self.transport.forget_session(str(lost))
                continue
            code = response.get("error", _EMPTY).get("code")
            if code == UNSUPPORTED_VERSION and rules(version).modern:
                self._change_version(response["error"], version)
            elif code == HEADER_MISMATCH and request.method == "tools/call" and attempt < 2:
                self._forget_results()
                self.list_tools()           # it has changed: .../streamable-http §Client Behavior
            else:
                return request, response
        if response is None:
            raise Disconnected("the server forgets its sessions at once")
        return request, response

    def _new_request(self, method: str, timeout: float | None = None,
                     longest: float = LONGEST_SECONDS, extend: bool = False,
                     on_progress: Any = None, tag: Any = None) -> Request:
        return Request(next(self._ids), method, self.timeout if timeout is None else timeout,
                       longest, extend, on_progress, tag)

    def _call(self, method: str, params: Message,
              started: Callable[[Request], Any] | None = None) -> Message:
        """Send a request for the client's own needs, and return its result."""
        result = self._result_of(method, self._send(
            functools.partial(self._new_request, method), params, started)[1])
        if self.modern and result.get("resultType", "complete") != "complete":
            raise Malformed(f"{method} has an odd resultType")
        return result

    def _change_version(self, error: Message, refused: str) -> None:
        """The server does not speak what it spoke before: take another, or initialize."""
        with self._opening:
            known = self.version != refused or self._choose(_supported(error), refused, True)
            # >8 legacy
            if not known:
                self._initialize(versions("legacy")[0])
            # 8< legacy

    def _exchange(self, request: Request, params: Message) -> Message:
        """Send one request and wait for its response. What takes too long is cancelled."""
        message = {"jsonrpc": "2.0", "id": request.id, "method": request.method}
        outgoing = self._with_meta(request, params)
        if outgoing:
            message["params"] = outgoing
        self._running[request.id] = request
        try:
            self._show(">", message)
            return self.transport.request(message, request)
        except BaseException as trouble:        # noqa: BLE001  raised again
            problem = trouble
            self._give_up(request.id)
            if request.cancelled:           # whatever it was that we saw of it first
                problem = RequestCancelled(f"{request.method} was cancelled")
            elif isinstance(problem, TimeoutError):
                problem = request.late()
            if request.sent and (isinstance(problem, TimeoutError) or not isinstance(
                    problem, (OSError, HttpError, Malformed, _SessionLost))):
                self._cancel(request, _said(problem))
            raise problem from None
        finally:
            self._running.pop(request.id, None)

    def _give_up(self, ident: Any) -> None:
        """Remember that nobody waits any more: the response may still come."""
        self._given_up = [*self._given_up[-99:], ident]

    def _with_meta(self, request: Request, params: Message) -> Message:
        """Return the params with what every request of this era carries: basic/index §_meta."""
        meta: Message = params.get("_meta", _EMPTY)
        if self.modern:
            meta = {META_VERSION: self.version, META_CLIENT: self._info,
                    META_CAPABILITIES: self._capabilities, **meta}
            if self.log_level or self._on_log:
                meta.setdefault(META_LOG_LEVEL, self.log_level or "info")
        if request.wants_progress:
            meta = {**meta, "progressToken": request.id}
        return {**params, "_meta": meta} if meta else params

    def _cancel(self, request: Request, reason: str) -> None:
        """Tell the server that nobody waits any more: basic/patterns/cancellation."""
        if request.method in ("initialize", "server/discover"):
            return                      # the one must not be cancelled, the other is but a question
        if not self.modern or self.transport.cancels:
            try:
                self._notify("notifications/cancelled", {
                    "requestId": request.id, "reason": reason}, CANCEL_SECONDS)
            except (OSError, HttpError, Malformed, _SessionLost):
                pass

    def _show(self, way: str, message: Any) -> None:
        if self._trace is not None:
            self._trace(way, message)

    # ---- receiving: on the thread that reads, so nothing here may block

    def receive(self, message: Any, request: Request | None = None) -> None:
        """Take what the server sent; `request`: the one that it came for, if that is known."""
        if isinstance(message, list):           # a batch, [2025-03-26] basic/index §Batching
            for member in message[:MAX_BATCH]:
                self.receive(member, request) if isinstance(member, dict) else None
            return
        self._show("<", message)
        try:
            kind = kind_of(message)
            if kind == "response":
                self._settle(message, request)
            elif kind == "notification":
                self._hear(message, request)
            elif self.modern:       # basic/transports/stdio §Receiving Messages: it must not
                self.report("a request, which a modern server must not send", message)
            # >8 legacy
            else:
                self._take_question(message, request)
            # 8< legacy
        except RpcError as problem:
            self.report(str(problem), message)

    def report(self, problem: str, message: Any) -> None:
        """Log what the server did wrong; a call is told of it, if that can be seen to be for it."""
        source = message if isinstance(message, bytes) else json.dumps(message)
        source = self.transport.mask(source if isinstance(source, str) else source.decode(
            "utf-8", "replace"))
        log(f"the server sent {problem}: {shown(source)}")
        found = re.match(rb'\s*{\s*"jsonrpc"\s*:\s*"2.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*,\s*"res',
                         message[:200]) if isinstance(message, bytes) else None
        request = self._running.pop(int(found[1]), None) if found else None
        if request is not None:
            request.take(Malformed(f"the response to {request.method} is {problem}"))

    def _settle(self, response: Message, request: Request | None) -> None:
        """Hand a response to the call that waits for it."""
        ident = response.get("id")
        found = self._running.pop(ident, None) if is_id(ident) else None
        if found is None and ident is None and "error" in response:
            found = request             # it could not read the id; over HTTP there is but one
        error = response.get("error")
        proper = isinstance(error, dict) and type(error.get("code")) is int
        if found is None:
            if ident not in self._given_up:     # basic/patterns/cancellation: those are ignored
                self.report("a response that nobody waits for", response)
        elif ("result" in response) == ("error" in response) or "error" in response and not proper:
            found.take(Malformed("the response has no proper result or error: "
                                 + shown(json.dumps(response))))
        else:
            found.take(response)

    def lost(self, problem: BaseException) -> None:
        """Fail all calls that wait: the server is gone."""
        for ident in list(self._running):
            request = self._running.pop(ident, None)
            if request is not None:
                self._give_up(ident)
                request.take(problem)
        for event in [*self._answering.values(), *self._visited.values()]:
            event.set()
        # >8 legacy
        self.revive()
        # 8< legacy

    # >8 legacy
    def revive(self) -> None:
        """[legacy] The connection broke: open it again, if somebody listens. (Else the next call
        does; and in the modern era each subscription takes care of itself.)"""
        with self._telling:
            if self.modern or self.closed or self._reviving or not self._subscriptions:
                return
            self._reviving = True
        threading.Thread(target=self._revive, name="mcp-listen", daemon=True).start()

    def _revive(self) -> None:
        pause = 0.5
        while self._subscriptions and not self.left.wait(pause):
            pause = min(2 * pause, 30)
            try:
                self.open()
                break
            except (OSError, RpcError, HttpError, Malformed) as problem:
                if self.transport.restarts:         # a server that cannot even start
                    for subscription in list(self._subscriptions):
                        subscription._end(problem)
                        self._subscriptions.pop(subscription, None)
        self._reviving = False
    # 8< legacy

    def _hear(self, message: Message, request: Request | None) -> None:
        """Take a notification."""
        name, params = message["method"], message.get("params", _EMPTY)
        if not isinstance(params, dict):
            self.report("params that are no object", message)
            return
        meta = params.get("_meta")
        about = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else None
        if name == "notifications/progress":
            token = params.get("progressToken")
            found = self._running.get(token) if is_id(token) else None
            if found is not None and _is_finite(params.get("progress")):
                total, said = params.get("total"), params.get("message")
                found.take({"method": name, "params": {
                    "progress": params["progress"], "total": total if _is_finite(total) else None,
                    "message": said if isinstance(said, str) else None}})
        elif name == "notifications/cancelled":
            ident = params.get("requestId") if is_id(params.get("requestId")) else None
            if ident in self._answering:
                self._answering[ident].set()
            ours = self._running.get(ident)     # basic/patterns/cancellation: the one use that a
            if self.modern and ours is not None and ours.method == "subscriptions/listen":
                self._give_up(ident)            # modern server has for it
                self._running.pop(ident, None)
                ours.take({"result": {}})
        elif name == "notifications/elicitation/complete":
            self._visited.get(str(params.get("elicitationId")), threading.Event()).set()
        elif name == "notifications/subscriptions/acknowledged" and self.modern:
            granted = params.get("notifications")
            for subscription in list(self._subscriptions):
                if subscription.id == about and isinstance(granted, dict):
                    subscription.acknowledge(granted)
        elif name == "notifications/message" and self._on_log is not None:
            self._tell(self._on_log, params)
        self._hear_change(name, params, about)
        if self._on_notification is not None:
            self._tell(self._on_notification, message)

    def _hear_change(self, name: str, params: Message, about: Any) -> None:
        """Drop what a change makes stale, and tell who listens: server/utilities/caching."""
        row = NOTIFICATIONS.get(name)
        if row is None:
            for subscription in list(self._subscriptions):
                if subscription.id == about and subscription.filters:
                    subscription.take({"method": name, "params": params})
        if row is None or not row.filter:
            return
        what = params.get("uri") if row.filter == "resourceSubscriptions" else row.capability
        self._changes += 1                      # a result that is on its way may be stale, too
        self._forget_results()                  # all of them: a list may depend on another
        if what == "tools":
            self._listed = False
        for subscription in list(self._subscriptions):
            if subscription.id == about if self.modern else any(
                    what == one or ":" in one and str(what).startswith(one.rstrip("/") + "/")
                    for one in subscription.granted):
                subscription.take(str(what))

    def _tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have a callback of the application called, in order, on a thread where it may block."""
        with self._telling:
            if self._unheard is None:
                from queue import SimpleQueue
                self._unheard = SimpleQueue()
                self._hearer = threading.Thread(target=self._tell_all, name="mcp-hear", daemon=True)
                self._hearer.start()
        if self._unheard.qsize() < MAX_UNHEARD:
            self._unheard.put((function, arguments))

    def _tell_all(self) -> None:
        for function, arguments in iter(self._unheard.get, None):
            try:
                function(*arguments)
            except Exception as problem:        # noqa: BLE001  the next ones shall be heard
                _log_traceback("a callback", problem)

    # ---- answering what the server asks

    def _more_input(self, method: str, result: Message, tag: Any) -> Message:
        """Modern: answer all questions of a result; return the params to add to the retry.

        basic/patterns/mrtr §Client Requirements (Basic Workflow): the state goes back as it came,
        and only if one came.
        """
        questions, state = result.get("inputRequests"), result.get("requestState")
        row = METHODS.get(method)
        if result["resultType"] != "input_required" or row is not None and not row.asks:
            raise Malformed("{} has the resultType {}".format(
                method, shown(json.dumps(result["resultType"]))))
        if not isinstance(questions, (dict, type(None))) or not isinstance(
                state, (str, type(None))) or questions is None and state is None:
            raise Malformed(f"{method} requires input, but says neither which nor a state")
        answers = {key: self.answer(question, tag)
                   for key, question in (questions or {}).items()}
        return _present(inputResponses=answers if questions is not None else None,
                        requestState=state)

    def answer(self, question: Any, tag: Any = None) -> Message:
        """Answer a modern server's question, {"method", "params"}; AskError, Malformed."""
        if not isinstance(question, dict) or not isinstance(question.get("method"), str) \
                or question["method"] not in self._answers \
                or not isinstance(question.get("params", {}), dict):
            raise Malformed("the server asks for " + shown(json.dumps(question)))
        answer = self._answers[question["method"]]
        if answer is None:              # it must not ask: we did not declare it
            if question["method"] == "elicitation/create":
                return {"action": "decline"}
            raise Malformed(f"the server asks for {question['method']}, which was not offered")
        try:
            found: Message = answer(question.get("params", {}), [tag])
            return found
        except RpcError as problem:     # there is no way to say it to a modern server
            if problem.code == INVALID_PARAMS:
                raise Malformed(f"the server asks what makes no sense: {problem}") from None
            raise AskError(f"the server's question got no answer: {problem}",
                           problem.to_json()) from None

    # >8 legacy
    def _take_question(self, message: Message, request: Request | None) -> None:
        """[legacy] Answer a request of the server's, on a thread of its own."""
        ident, params = message["id"], message.get("params", {})
        most = MAX_ANSWERING * (2 if message["method"] == "ping" else 1)    # room for it is left
        if ident in self._answering or len(self._answering) >= most:
            self.report("too many requests at once", message)   # to answer might block
            return
        cancelled = self._answering[ident] = threading.Event()
        tags = [one.tag for one in ([request] if request else list(self._running.values()))]

        def answer() -> None:
            response = self._response(message["method"], params, tags, ident)
            if not cancelled.is_set():
                self._respond(response)
            self._answering.pop(ident, None)    # last: it counts until it is out
        threading.Thread(target=answer, name="mcp-answer", daemon=True).start()

    def _respond(self, response: Message) -> None:
        self._show(">", response)
        try:
            self.transport.send(response)
        except Exception as problem:            # noqa: BLE001  there is nobody else to tell
            if not self.closed:
                log(f"an answer could not be sent: {_said(problem)}")

    def _response(self, method: str, params: Message, tags: list[Any], ident: Any) -> Message:
        """[legacy] Make the response to a request of the server's."""
        answer = self._answers.get(method)
        try:
            if method == "ping":
                return {"jsonrpc": "2.0", "id": ident, "result": {}}
            if answer is None:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {shown(method)}")
            return {"jsonrpc": "2.0", "id": ident, "result": answer(params, tags)}
        except RpcError as error:
            return _failure(error, ident)
        except Exception as problem:            # noqa: BLE001
            _log_traceback(method, problem)
            return _failure(RpcError(INTERNAL_ERROR, "Internal error"), ident)
    # 8< legacy

    def _answer_elicitation(self, params: Message, tags: list[Any]) -> Message:
        """client/elicitation: a form for the user to fill, or a page to visit."""
        by_page = params.get("mode", "form") != "form"
        ask = self._visit if by_page else self._elicit
        schema, url = params.get("requestedSchema"), params.get("url")
        if ask is None:                 # [2025-11-25] client/elicitation §Error Handling
            raise _invalid(f"no such mode: {shown(params.get('mode', 'form'))}")
        if not isinstance(params.get("message"), str) or not isinstance(
                url if by_page else schema, str if by_page else dict):
            raise _invalid("an elicitation has a message, and a requestedSchema or url")
        try:
            if by_page and not re.fullmatch(r"https?://[!-~]+", str(url)):
                raise ValueError("the url of a page is of http or https")
            form = Schema({} if by_page else schema, foreign=True)
        except ValueError as problem:
            raise _invalid(f"no such form can be filled: {_said(problem)}") from None
        answer = _asked(ask, params, tags)
        if answer in ("cancel", "decline", None, False):
            return {"action": answer or "decline"}
        if by_page:
            return {"action": "accept"}
        if not isinstance(answer, dict):
            raise TypeError(f'elicit returns a dict, None or "cancel", not {answer!r:.80}')
        content = {**_defaults(schema), **answer}
        flaw = form.flaw(content)               # client/elicitation §Form Mode Security
        if flaw is not None:
            raise ValueError(f"what `elicit` returned is not what the form asks for: {flaw}")
        return {"action": "accept", "content": content}

    def _answer_sampling(self, params: Message, tags: list[Any]) -> Message:
        """client/sampling: what a model says; a text stands for a whole answer."""
        if params.keys() & {"tools", "toolChoice"} \
                and not _declares(self._capabilities, "sampling.tools"):
            raise _invalid("sampling.tools was not declared")
        answer = _asked(self._sample, params, tags)
        if answer is None:              # [2025-11-25] client/sampling §Error Handling
            raise RpcError(-1, "User rejected sampling request")
        if isinstance(answer, str):
            answer = {"content": {"type": "text", "text": answer}}
        return {"role": "assistant", "model": "unknown", **answer}

    def _answer_roots(self, params: Message, tags: list[Any]) -> Message:
        """client/roots: the folders to work on, as paths, URIs or whole roots."""
        found: Any = self._roots
        if callable(found):
            found = _asked(found, params, tags)
        return {"roots": [root if isinstance(root, dict) else {"uri": _file_uri(root)} for root in (
            [found] if isinstance(found, (str, os.PathLike)) else found)]}

    # >8 legacy
    def _visit_all(self, error: Message, tag: Any, timeout: float | None) -> bool:
        """[legacy] Visit the pages of an error; tell whether to send the request again.

        [2025-11-25] client/elicitation §URL Elicitation Required Error. The server may tell when
        that is done, or may not: so after `timeout` we try again all the same.
        """
        data = error.get("data")
        pages = data.get("elicitations") if isinstance(data, dict) else None
        if self.modern or self._visit is None or not isinstance(pages, list) \
                or not 0 < len(pages) <= MAX_ROUNDS:
            return False
        for page in pages:
            ident = str(page.get("elicitationId")) if isinstance(page, dict) else ""
            done = self._visited.setdefault(ident, threading.Event())
            try:
                if not isinstance(page, dict) or self._answer_elicitation(
                        {"mode": "url", **page}, [tag])["action"] != "accept":
                    return False
                if not self.closed:
                    done.wait(self.timeout if timeout is None else timeout)
            finally:
                self._visited.pop(ident, None)
        return True
    # 8< legacy

    # ---- results

    def _result_of(self, method: str, response: Message) -> Message:
        """Return the result of a response; RpcError for an error, Malformed for nonsense."""
        if response.get("error") is not None:
            raise self._raised(response["error"])
        result = response["result"]
        if not isinstance(result, dict):
            raise Malformed(f"the result of {method} is no object: {shown(json.dumps(result))}")
        if self.modern and result.get("resultType", "complete") != "complete":
            return result
        flaw = _flaw_of_result(method, result)
        if flaw is not None:
            raise Malformed(f"the result of {method} is malformed: {flaw}")
        return result

    def _raised(self, error: Message) -> RpcError:
        """Make an exception of a member `error`."""
        return RpcError(int(error["code"]), self.transport.mask(str(error.get("message", ""))),
                        error.get("data"))

    def _cached(self, key: str) -> Message | None:
        until, source = (self._cache or {}).get(key, (0.0, ""))
        result: Message | None = json.loads(source) if time.monotonic() < until else None
        return result

    def _forget_results(self) -> None:
        if self._cache:
            self._cache.clear()

    def _keep(self, key: str, result: Message) -> None:
        """Keep a result while the server allows it: server/utilities/caching §Cacheable Model."""
        fresh = result.get("ttlMs", 0)
        if self.transport.varies and result.get("cacheScope") != "public":
            return                          # ... §Cache Scope Field: it may be another's next time
        if key and self._cache is not None and _is_finite(fresh) and fresh > 0:
            while len(self._cache) >= MAX_CACHED:
                self._cache.pop(next(iter(self._cache)), None)
            # As text: whoever changes what was returned does not change it for the next.
            self._cache[key] = time.monotonic() + min(fresh / 1000, 1e9), json.dumps(result)

    # ---- the methods

    def _list(self, method: str, member: str) -> list[Message]:
        """Fetch all pages of a list: server/utilities/pagination."""
        found: list[Message] = []
        params: Message = {}
        cursors: set[str] = set()
        size, stale = 0, bool(self._cache)
        self.open()
        if not _declares(self.capabilities, METHODS[method].capability):
            return found
        for _ in range(MAX_PAGES):
            try:
                result = self.request(method, params)
            except RpcError as error:       # .../caching §Interaction with Pagination
                if error.code != INVALID_PARAMS or not params or not stale:
                    raise
                stale = False
                self._forget_results()
                found, params, cursors = [], {}, set()
                continue
            found += result[member]
            if result.get("nextCursor") is None:        # "" is a cursor, too
                return found
            size += len(json.dumps(result))
            if result["nextCursor"] in cursors or size > MAX_LIST_BYTES:
                raise Malformed(f"{method} goes round in circles, or has more than "
                                f"{MAX_LIST_BYTES} bytes")
            cursors.add(result["nextCursor"])
            params = {"cursor": result["nextCursor"]}
        raise Malformed(f"{method} has more than {MAX_PAGES} pages")

    def list_tools(self) -> list[Message]:
        """Return all tools: server/tools §Tool. Over HTTP those with bad headers are left out."""
        changes = self._changes
        tools, unusable = self._list("tools/list", "tools"), {}      # type: list[Message], Message
        for tool in tools if self.transport.mirrors and self.modern else ():
            flaw = _flaw_of_mirrors(tool["inputSchema"])    # .../streamable-http §Schema Extension
            if flaw is not None:
                unusable[tool["name"]] = flaw
                if self._unusable.get(tool["name"]) != flaw:
                    log(f"the tool {shown(tool['name'])} is left out: {flaw}")
        tools = [tool for tool in tools if tool["name"] not in unusable]
        self._tools, self._unusable = {tool["name"]: tool for tool in tools}, unusable
        self._listed = changes == self._changes
        return tools

    def call_tool(self, name: str, arguments: Message | None = None, **options: Any) -> Message:
        """Call a tool. Returns {"content": [...], maybe "structuredContent", "isError"}.

        A tool that fails is a result with `isError`, for the model to read. Options are those of
        request(). (server/tools §Calling Tools)
        """
        self._require("tools")
        if self.transport.mirrors and self.modern and not self._listed:
            self.list_tools()               # its headers repeat arguments: the schema says which
        if name in self._unusable:
            raise Malformed(f"the tool {name} cannot be called: {self._unusable[name]}")
        result = self.request("tools/call", {"name": name, **_present(arguments=arguments)},
                              **options)
        self._check_output(name, result)
        return result

    def _check_output(self, name: str, result: Message) -> None:
        """Check structured content: server/tools §Output Schema."""
        schema = self._tools.get(name, _EMPTY).get("outputSchema")
        if not isinstance(schema, dict) or result.get("isError"):
            return
        if str(schema.get("$schema", DIALECT)).rstrip("#") != DIALECT:
            if schema is not self._foreign.get(name):       # basic/index §Schema Dialect
                log(f"what the tool {shown(name)} returns is not checked: its output schema is of "
                    f"the dialect {shown(schema['$schema'])}")
                self._foreign[name] = schema
            return
        try:
            flaw = Schema(schema, foreign=True).flaw(result["structuredContent"]) \
                if "structuredContent" in result else "there is no structuredContent"
        except ValueError as problem:
            flaw = f"the schema is of no use: {problem}"
        if flaw is not None:
            raise Malformed(f"the result of {name} does not match its output schema: {flaw}")

    def list_resources(self) -> list[Message]:
        """Return all resources: server/resources §Resource."""
        return self._list("resources/list", "resources")

    def list_resource_templates(self) -> list[Message]:
        """Return all resource templates: server/resources §Resource Templates."""
        return self._list("resources/templates/list", "resourceTemplates")

    def read_resource(self, uri: str, **options: Any) -> list[Message]:
        """Read a resource. Returns contents: {"uri", "text" or "blob" (base64), ...}."""
        self._require("resources")
        contents: list[Message] = self.request(
            "resources/read", {"uri": uri}, **options)["contents"]
        return contents

    def list_prompts(self) -> list[Message]:
        """Return all prompts: server/prompts §Prompt."""
        return self._list("prompts/list", "prompts")

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None,
                   **options: Any) -> Message:
        """Get a prompt, its arguments being strings. Returns {"messages": [...], ...}."""
        self._require("prompts")
        return self.request("prompts/get", {"name": name, **_present(arguments=arguments)},
                            **options)

    def complete(self, reference: str, argument: str, value: str,
                 known: dict[str, str] | None = None) -> list[str]:
        """Return completions of what was typed so far, for an argument of a prompt or template.

        `known`: arguments that have a value already. (server/utilities/completion)
        """
        if "completions capability" in rules(self.version).features:
            self._require("completions")
        by_uri = "://" in reference or "{" in reference     # a prompt may be called git:commit
        ref = {"type": "ref/resource", "uri": reference} if by_uri else \
            {"type": "ref/prompt", "name": reference}
        context = {"context": {"arguments": known}} \
            if known and "completion context" in rules(self.version).features else {}
        result = self.request("completion/complete", {
            "ref": ref, "argument": {"name": argument, "value": value}, **context})
        values = result["completion"].get("values")
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise Malformed("the values of a completion are no strings")
        return values

    def ping(self) -> None:
        """Return if the server answers; where there is no ping any more, a question stands in."""
        self._call("ping" if not self.modern else "server/discover", {})

    def set_level(self, level: str) -> None:
        """Ask for log messages of this level and above; see LOG_LEVELS. [deprecated]"""
        if level not in LOG_LEVELS:
            raise ValueError("{!r} is not one of {}".format(level, ", ".join(LOG_LEVELS)))
        if not self.modern:
            self._require("logging")
            self.request("logging/setLevel", {"level": level})
        self.log_level = level          # modern: each request says it

    def listen(self, wanted: Iterable[str], callback: Callable[[Any], Any] | None = None,
               timeout: float | None = None, filters: Message = _EMPTY) -> Subscription:
        """Have changes announced: "tools", "prompts", "resources", URIs. See Subscription.

        `filters`: members that an extension adds to the filter.
        basic/patterns/subscriptions; [2025-11-25] server/resources §Subscriptions
        """
        self.open()
        # >8 legacy
        if not self.modern:
            self.transport.listen()
        # 8< legacy
        subscription = Subscription(self, wanted, callback, filters)
        subscription.open(self.timeout if timeout is None else timeout)
        return subscription

    def _require(self, capability: str) -> None:
        self.open()
        if not _declares(self.capabilities, capability):
            raise ServerLacks(f"the server has no {capability}")


# ---- small print of the client

def _declares(capabilities: Any, path: str) -> bool:
    """Tell whether capabilities have a member: "resources.subscribe"."""
    for name in path.split(".") if path else ():
        if not isinstance(capabilities, dict) or capabilities.get(name) in (None, False):
            return False
        capabilities = capabilities[name]
    return True


def _is_finite(value: Any) -> bool:
    """Tell whether a number can be reckoned with."""
    return _is_number(value) and abs(value) < 1e300


def _is_modern(error: Any) -> bool:
    """Tell whether an error is one that only modern servers send."""
    row = ERRORS.get(int(error["code"])) if isinstance(error, dict) and _is_number(
        error.get("code")) else None
    return row is not None and row.since in versions("modern")


def _supported(error: Message) -> list[Any]:
    data = error.get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    return supported if isinstance(supported, list) else []


def _flaw_of_result(method: str, result: Any) -> str | None:
    """Say what is wrong with a result, if anything."""
    if not isinstance(result, dict):
        return "it is no object"
    for name, kind, _, optional in _RESULTS.get(method, ()):
        value = result.get(name)
        if not isinstance(value, kind) and not (optional and value is None):
            return f"{name} is {shown(json.dumps(value))}"
        for item in result[name] if name in _ITEMS else ():
            if not isinstance(item, dict) or not all(
                    isinstance(item.get(key), str) for key in _ITEMS[name].split()) or not all(
                    isinstance(item[key], kind) for key, kind in _MEMBERS if key in item):
                return f"{name} has an item {shown(json.dumps(item))}"
            if name == "tools" and "inputSchema" not in item:
                return f"the tool {shown(item['name'])} has no inputSchema"
            if name == "prompts" and not all(isinstance(one, dict) and isinstance(
                    one.get("name"), str) for one in item.get("arguments", ())):
                return f"the prompt {shown(item['name'])} has an argument without a name"
    return None


def _asked(function: Any, params: Message, tags: list[Any]) -> Any:
    """Call a function of the application's, which may want the tags of the calls, or be async."""
    wants_tags = sum(kind in ("", "/") and default is _NO_DEFAULT
                     for _, kind, default in _parameters_of(function)) > 1
    return _settled(function, [params, tags] if wants_tags else [params], {})


def _defaults(schema: Any) -> Message:
    """Return the defaults of a form: client/elicitation §Requested Schema."""
    fields = schema.get("properties", _EMPTY)
    return {name: field["default"] for name, field in fields.items()
            if isinstance(field, dict) and "default" in field} if isinstance(fields, dict) else {}


def _file_uri(place: Any) -> str:
    from pathlib import Path
    return str(place) if "://" in str(place) else Path(os.path.abspath(place)).as_uri()


def _flaw_of_mirrors(schema: Any) -> str | None:
    """Say what is wrong with the x-mcp-header in an input schema, if anything.

    basic/transports/streamable-http §Schema Extension: a name of a header, once; on a string,
    integer or boolean; reached from the root through `properties` alone.
    """
    names: set[str] = set()
    waiting: list[tuple[Any, bool]] = [(schema, True)]      # a part, and whether it may have one
    while waiting:
        part, reached = waiting.pop()
        if isinstance(part, list):
            waiting += [(item, False) for item in part]
        if not isinstance(part, dict):
            continue
        name = part.get("x-mcp-header")
        if name is not None or "x-mcp-header" in part:
            if not reached or part is schema:
                return "an x-mcp-header is not reached through properties alone"
            if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                return f"{shown(json.dumps(name))} is no name of a header"
            if name.lower() in names:
                return f"the header {shown(name)} comes twice"
            if part.get("type") not in ("string", "integer", "boolean"):
                return f"the header {shown(name)} is not of a string, an integer or a boolean"
            names.add(name.lower())
        for keyword, value in part.items():
            if keyword in ("properties", "patternProperties", "$defs", "definitions",
                           "dependentSchemas") and isinstance(value, dict):
                waiting += [(item, reached and keyword == "properties") for item in value.values()]
            elif keyword not in ("const", "enum", "default", "examples", "x-mcp-header"):
                waiting.append((value, False))
    return None


# ==========================================================================================
# 11. Client transports: stdio, HTTP, memory
#
# A transport has start(), stop() and is_up(); request(message, request), which returns the
# response; send(message), for what gets none; and close(). On stdio one thread reads all that
# comes. Over HTTP the thread that makes a call reads its answer; a stream that belongs to no call
# has a thread of its own. Whatever the other end does, every wait for a response has an end.
# ==========================================================================================

CLOSE_STEP_SECONDS = 2      # for a server to exit: when its input ends, and again when terminated
KEEP_CONNECTION_SECONDS = 4     # idle, then we close it: many servers do so after 5
MAX_KEPT = 8                # idle connections to a server
MAX_LAST_LINES = 20              # lines that a server wrote to stderr last, to be told when it dies
MAX_REDIRECTS = 5
STREAM_SECONDS = 2          # [legacy] for the head of a stream; then calls begin without it
RETRY_SECONDS = 1           # before a stream is opened again, unless the server says otherwise

# What a server inherits of the environment, unless connect(env=...) says otherwise: no secrets.
_INHERITED = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER", "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"]


class Transport:
    """What the transports have in common; the client sets `client`."""

    client: Client
    restarts = False        # start() gives a new server: a probe may have killed the last one
    cancels = True          # a modern request is cancelled by a message
    mirrors = False         # headers repeat parts of the body
    varies = False          # who we are may differ from one request to the next

    def start(self) -> None:
        """Connect; Disconnected if that cannot be."""

    def stop(self) -> None:
        """Disconnect; start() may follow."""

    def is_up(self) -> bool:
        """Tell whether it was started, and has not been lost since."""
        raise NotImplementedError

    def request(self, message: Message, request: Request) -> Message:
        """Send a request, wait, return the response."""
        self.send(message, request)
        response: Message = request.wait()
        return response

    def send(self, message: Message, request: Request | None = None,
             timeout: float = SEND_SECONDS) -> None:
        """Send a message: until the deadline of the request that it is, or in `timeout` seconds."""
        raise NotImplementedError

    def listen(self) -> None:
        """[legacy] Make sure that the server can send what belongs to no request."""

    def mask(self, text: str) -> str:
        """Return what the server said without the credentials that we sent."""
        return text

    def forget_session(self, ident: str) -> None:
        """[legacy] Forget a session, if it is still ours."""

    def close(self) -> None:
        """Disconnect for good."""
        self.stop()


# >8 server
class MemoryTransport(Transport):
    """A Server in this very process. Each request has a thread, so that its call may time out."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.peer: Peer | None = None

    def start(self) -> None:
        self.peer = Peer(self._deliver)

    def stop(self) -> None:
        if self.peer is not None:
            for ident in list(self.peer.running):
                self.peer.cancel(ident)
            self.peer.close()
        self.peer = None

    def is_up(self) -> bool:
        return self.peer is not None

    def _deliver(self, message: Any) -> None:
        self.client.receive(decode(encode(message)))    # a copy, and what the wire would make of it

    def send(self, message: Message, request: Request | None = None,
             timeout: float = SEND_SECONDS) -> None:
        if self.peer is None:
            raise Disconnected("the client is closed")
        if request is not None:
            request.sent = True
        work = self.server.accept(decode(encode(message)), self._deliver, self.peer)
        if work is not None:
            threading.Thread(target=work, name="mcp-call", daemon=True).start()
# 8< server


class StdioTransport(Transport):
    """A server that we start, on its standard input and output: basic/transports/stdio.

    `stderr`: called with each line that the server writes there, without its end; None: the line
    goes to our stderr. `env`: the variables that it gets besides _INHERITED.
    """

    restarts = True

    def __init__(self, command: Iterable[str], *, env: dict[str, str] | None = None,
                 cwd: str | None = None, stderr: Callable[[str], Any] | None = None) -> None:
        self.command = [str(part) for part in command]
        if not self.command:
            raise ValueError("a command has at least one word")
        self.process: Any = None
        self._env = {**{name: os.environ[name] for name in _INHERITED if name in os.environ},
                     **(env or {})}
        self._cwd = cwd
        self._stderr = stderr
        self._last_lines: list[str] = []             # last ones: by mcp-stderr
        self._said = threading.Event()          # all of them have been read
        self._threads: list[threading.Thread] = []
        self._gone: Disconnected | None = Disconnected("the server was not started")
        self._writing = threading.Lock()        # guards writing to stdin, and closing it

    def start(self) -> None:
        import subprocess
        path, pipe = self.command[0], subprocess.PIPE
        if os.name == "nt":                     # npx is npx.cmd there, which is not found by itself
            import shutil
            path = shutil.which(path, path=self._env.get("PATH")) or path
        try:
            process: Any = subprocess.Popen(    # leading a group of its own, where there are such
                [path, *self.command[1:]], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0,
                env=self._env, cwd=self._cwd, start_new_session=os.name == "posix")
        except (OSError, ValueError) as problem:
            raise Disconnected(f"cannot start {self.command[0]}: {problem}") from None
        if os.name == "posix":
            os.set_blocking(process.stdin.fileno(), False)
        self.process, self._last_lines, self._gone = process, [], None
        self._said.clear()
        self._threads = [
            threading.Thread(target=self._forward, args=(process,), name="mcp-stderr", daemon=True),
            threading.Thread(target=self._read, args=(process,), name="mcp-read", daemon=True)]
        for thread in reversed(self._threads):      # the first looks after the second
            thread.start()

    def is_up(self) -> bool:
        return self._gone is None

    def send(self, message: Message, request: Request | None = None,
             timeout: float = SEND_SECONDS) -> None:
        line = encode(message)
        flaw = _excess(line)
        if flaw:
            raise ValueError(f"the message is {flaw}: the server would not take it")
        deadline = time.monotonic() + timeout if request is None else request.deadline
        if not self._writing.acquire(timeout=max(0.0, min(deadline - time.monotonic(), 1e6))):
            raise TimeoutError("the server does not read its input")
        try:
            process = self.process
            if self._gone is None:              # under the lock: stop() closes stdin under it
                if request is not None:
                    request.sent = True
                self._write(process, line, deadline)
        except BrokenPipeError:
            self._lose(process)                 # say how it died
        finally:
            self._writing.release()
        if self._gone is not None:
            raise self._gone

    def _write(self, process: Any, line: bytes, deadline: float) -> None:
        """Write a line; TimeoutError if the server does not read, which is the end if it is half
        written: the next line could not be told from the rest."""
        left, descriptor = line, process.stdin.fileno()
        while left and self._gone is None:
            try:
                left = left[os.write(descriptor, left):]
            except BlockingIOError:
                _is_ready(process.stdin, True, 0.05)    # then look whether we are to stop
                if time.monotonic() > deadline:
                    if len(left) < len(line):
                        process.kill()
                    raise TimeoutError("the server does not read its input") from None

    def _read(self, process: Any) -> None:
        """Read lines until the server is gone: the life of mcp-read."""
        parts: list[bytes] = []                 # of a line that is not complete
        size = 0
        for chunk in _chunks_of(process.stdout):
            if process is not self.process:
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                if size + len(line) <= MAX_MESSAGE_BYTES:
                    self._take_line(b"".join([*parts, line]))
                elif size <= MAX_MESSAGE_BYTES:
                    self._report_long(parts, line)
                parts, size = [], 0
            if rest:
                if size <= MAX_MESSAGE_BYTES < size + len(rest):
                    self._report_long(parts, rest)
                    parts = []
                size += len(rest)
                if size <= MAX_MESSAGE_BYTES:
                    parts.append(rest)
        self._lose(process)

    def _report_long(self, parts: list[bytes], rest: bytes) -> None:
        self.client.report(f"a line of more than {MAX_MESSAGE_BYTES} bytes",
                           parts[0] if parts else rest)

    def _take_line(self, line: bytes) -> None:
        if not line or line.isspace():
            return
        try:
            message = decode(line)
        except RpcError as problem:             # what is printed by mistake is passed over
            self.client.report(f"what is no message ({problem})", line)
            return
        try:
            self.client.receive(message)
        except Exception as problem:            # noqa: BLE001  the next line is good again
            _log_traceback("a message", problem)

    def _forward(self, process: Any) -> None:
        """Pass on what the server writes to stderr, and see it die: the life of mcp-stderr."""
        rest = b""
        for chunk in _chunks_of(process.stderr, process):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LOG_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(line.decode("utf-8", "replace").rstrip("\r"))
        if rest:
            self._say(rest.decode("utf-8", "replace"))
        self._said.set()
        process.wait()
        self._threads[1].join(1)        # unless a child of the server holds its output open
        self._lose(process)

    def _say(self, line: str) -> None:
        self._last_lines = [*self._last_lines[1 - MAX_LAST_LINES:], line[:MAX_LOG_LINE]]
        try:
            if self._stderr is not None:
                self._stderr(line)
            elif _is_writable(sys.stderr):
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
        except Exception:                       # noqa: BLE001, S110  there is nobody to tell
            pass

    def _lose(self, process: Any) -> None:
        """Note that the server is gone, and fail all calls that wait, with its last words."""
        import signal
        import subprocess
        if self._gone is not None or process is not self.process:
            return
        try:
            status = f"exited with status {process.wait(0.2)}"
            if os.name == "posix":
                _signal_group(process, signal.SIGKILL)      # what it leaves behind
        except subprocess.TimeoutExpired:
            status = "closed its output"
        if threading.current_thread() is not self._threads[0]:
            self._said.wait(0.2)                # the last words may still have to be read
        words = "; it last wrote:\n" + "\n".join(self._last_lines) if self._last_lines else ""
        self._gone = Disconnected(f"the server {status}{words}")
        self.client.lost(self._gone)

    def stop(self) -> None:
        """End the server: basic/transports/stdio §Shutdown."""
        import signal
        process, self._gone = self.process, self._gone or Disconnected("the client was closed")
        if process is None:
            return
        self.process = None
        leads = os.name == "posix" and process.poll() is None   # a group, with all its children
        with self._writing:             # nobody writes: the number may soon mean another file
            process.stdin.close()
        steps: list[Callable[[], Any]] = [_nothing, process.terminate, process.kill]
        if leads:
            steps[1:] = [functools.partial(_signal_group, process, signal.SIGTERM),
                         functools.partial(_signal_group, process, signal.SIGKILL)]
        for step in steps:
            try:
                step()
            except OSError:
                pass
            until = time.monotonic() + CLOSE_STEP_SECONDS
            while process.poll() is None and time.monotonic() < until:
                self._join(time.monotonic() + 0.05)     # they end with it: quicker than to look
                time.sleep(0.001)
            if process.poll() is not None:
                break
        if leads:
            _signal_group(process, signal.SIGKILL)      # what it leaves behind
        self._join(time.monotonic() + CLOSE_STEP_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            process.stdout.close()
            process.stderr.close()

    def _join(self, until: float) -> None:
        for thread in self._threads:        # a signal may have come before they were started
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


def _signal_group(process: Any, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except OSError:                     # nobody is left
        pass


def _chunks_of(stream: Any, process: Any = None) -> Iterator[bytes]:
    """Yield what comes from a stream to its end; or until that process is dead, if one is given,
    since a child of it may hold the stream open for longer."""
    import select
    poll = select.poll() if process is not None and hasattr(select, "poll") else None
    if poll is not None:
        poll.register(stream, select.POLLIN)
    chunk, dead_since = b"...", 0.0
    while chunk:
        try:
            if poll is not None:
                ready = poll.poll(100 if dead_since else 1000)
                if process.poll() is not None:
                    dead_since = dead_since or time.monotonic()
                    if not ready or time.monotonic() > dead_since + 0.5:
                        return
                if not ready:
                    continue
            chunk = os.read(stream.fileno(), 2**16)
        except (OSError, ValueError):
            return
        yield chunk


class Events:
    """Reads an event stream: feed() takes bytes as they come, and returns the events in them.

    An event is (kind, data). `last_id` and `retry` (seconds) are what to come back with. Malformed:
    an event is too large. (HTML Standard, section 9.2)
    """

    def __init__(self) -> None:
        self.last_id = ""
        self.retry = float(RETRY_SECONDS)
        self.end()

    def end(self) -> None:
        """Forget what is not complete: the stream has ended, and another may follow."""
        self._parts: list[bytes] = []           # of a line that is not complete
        self._data: list[bytes] = []            # of an event that is not complete; its kind and id
        self._kind, self._id = "", self.last_id
        self._size = 0                          # of both
        self._first = True
        self._after_cr = False                  # a \n that comes now belongs to the \r before it

    def feed(self, chunk: bytes) -> list[tuple[str, bytes]]:
        """Return the events that are complete now."""
        found: list[tuple[str, bytes]] = []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            return found
        self._after_cr = chunk.endswith(b"\r")
        self._size += len(chunk)
        if self._size > MAX_MESSAGE_BYTES + 2**16:
            raise Malformed(f"an event has more than {MAX_MESSAGE_BYTES} bytes")
        self._parts.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return found
        source = b"".join(self._parts)
        if self._first:
            self._first = False
            source = source[3:] if source.startswith(b"\xef\xbb\xbf") else source
        *lines, rest = re.split(b"\r\n|\n|\r", source)
        self._parts = [rest]
        for line in lines:
            if not line:
                self.last_id = self._id
                if any(self._data):
                    found.append((self._kind or "message", b"\n".join(self._data)))
                self._data, self._kind, self._size = [], "", len(self._parts[0])
                continue
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                self._data.append(value)
            elif name == b"event":
                self._kind = value.decode("utf-8", "replace")
            elif name == b"id" and b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            elif name == b"retry" and value.isdigit():
                self.retry = int(value[:12]) / 1000
        return found


class HttpTransport(Transport):
    """A server at a URL: Streamable HTTP, and HTTP+SSE [legacy] if it knows nothing newer.

    `headers`: a dict, or a callable that makes one for (verb, url), once for each HTTP request.
    `authorize`: called with the HttpError of a 401 or 403; returns headers for this and the
    following requests, in one of these two forms, or None to give up. `tls`: an ssl.SSLContext
    (None: the platform's certificates). Redirects are followed within the origin only; proxies are
    not looked for.
    """

    cancels = False             # to hang up is to cancel: .../streamable-http §Cancellation
    mirrors = True

    def __init__(self, url: str, *, headers: Any = None, tls: Any = None,
                 authorize: Callable[[HttpError], Any] | None = None) -> None:
        from urllib.parse import urlsplit
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ValueError(f"{shown(url)} is no URL of http or https, without a password; "
                             "(a command is a list of words)")
        self.url = url.partition("#")[0]
        self.origin = (parts.scheme, parts.hostname, parts.port or (
            443 if parts.scheme == "https" else 80))
        self._headers = headers or {}
        self.varies = callable(headers)
        self._tls = tls
        self._authorize = authorize
        self._authorizing = threading.Lock()        # held while `authorize` is asked
        self._granted: Any = {}                     # what it returned last
        self._secrets: dict[str, None] = {}         # words of headers that were given to us
        self._up = False
        self._session = ""                          # [legacy] the id that `initialize` was given
        self._post_to = ""                          # [legacy] where HTTP+SSE wants messages
        self._kept: list[tuple[float, Any, Any]] = []   # idle connections, and since when
        self._wires: dict[_Wire, None] = {}         # HTTP requests under way: for mcp-deadline
        self._woken = threading.Condition()         # guards the two above
        self._watching = False
        self._nearest = float("inf")                # when mcp-deadline will look again
        self._stream: threading.Thread | None = None    # [legacy] mcp-stream, and what it reads
        self._stream_wire: _Wire | None = None
        self._stream_over = threading.Event()       # [legacy] set when its session is
        self._streaming = threading.Event()         # [legacy] it is known whether there is one
        self._over = threading.Event()

    # ---- what the client calls

    def start(self) -> None:
        self._up, self._session, self._post_to = True, "", ""

    def stop(self) -> None:
        self._up = False
        with self._woken:
            kept, self._kept = self._kept, []
        for wire in list(self._wires):
            wire.hang_up()
        for _, connection, response in kept:
            _discard(connection, response)

    def is_up(self) -> bool:
        return self._up

    def close(self) -> None:
        """Delete the session, hang up on everything, and wait for our threads."""
        try:
            if self._session and not self._post_to:
                with self._open("DELETE", self.url, self._headers_of(_EMPTY), None,
                                _in(CLOSE_SECONDS)):
                    pass
        except Exception:                           # noqa: BLE001, S110  it will forget it itself
            pass
        with self._woken:
            self._over.set()
            self._woken.notify_all()
        self._stream_over.set()
        self.stop()
        if self._stream is not None and self._stream is not threading.current_thread():
            self._stream.join(CLOSE_STEP_SECONDS)

    def forget_session(self, ident: str) -> None:
        if self._session == ident:
            self._session, self._up = "", False     # the next request starts again
            self._stream_over.set()
            if self._stream_wire is not None:
                self._stream_wire.hang_up()

    def request(self, message: Message, request: Request) -> Message:
        # >8 legacy
        if message["method"] == "initialize" and not self._post_to:
            self._session = ""
            try:
                return self._post(message, request)
            except HttpError as refusal:
                # .../streamable-http §HTTP+SSE Transport (2024-11-05)
                if refusal.status not in (400, 404, 405):
                    raise
                try:
                    self._open_sse()
                except (HttpError, Disconnected, TimeoutError):
                    raise refusal from None
        # 8< legacy
        return self._post(message, request)

    def send(self, message: Message, request: Request | None = None,
             timeout: float = SEND_SECONDS) -> None:
        self._post(message, None, timeout)

    # ---- posting a message, and reading what comes of it

    def _post(self, message: Message, request: Request | None,
              timeout: float = SEND_SECONDS) -> Message:
        """Post a message; return the response to a request."""
        deadline = (lambda: request.deadline) if request is not None else _in(timeout)
        accept = {"Accept": "application/json, text/event-stream",
                  "Content-Type": "application/json", **self._headers_of(message)}
        with self._open("POST", self._post_to or self.url, accept, encode(message).rstrip(b"\n"),
                        deadline, request) as wire:
            kind = wire.response.headers.get_content_type()
            if request is None or self._post_to:
                body = b"" if kind == "text/event-stream" else wire.body()  # that might never end
                if wire.response.status >= 400:
                    raise self._refusal(wire, body)
            elif kind == "text/event-stream" and wire.response.status == 200:
                return self._follow(wire, request)
            else:
                self._take_answer(wire, message, request)
        if request is None:
            return {}
        response: Message | None = request.wait(block=bool(self._post_to))
        if response is None:
            raise Malformed(f"the answer to {request.method} holds no response to it")
        return response

    def _headers_of(self, message: Message) -> Message:
        """Return the headers that repeat the body: .../streamable-http §Request Metadata."""
        params, method = message.get("params", _EMPTY), message.get("method", "")
        edition = rules(self.client.version)
        found: Message = {}
        if edition.modern:
            found["Mcp-Method"] = method
            row = METHODS.get(method)
            member = row.mirrored if row is not None else self.client.mirrored.get(method)
            if isinstance(params.get(member), str):
                found["Mcp-Name"] = mirror(params[member])
            if method == "tools/call":
                tool = self.client._tools.get(str(params.get("name")), _EMPTY)
                for name, value in _mirrored_arguments(
                        tool.get("inputSchema"), params.get("arguments")).items():
                    if value is not None:
                        if _is_number(value) and abs(value) >= 2**53:
                            raise ValueError(f"{value} is too large for a header")
                        found[name] = mirror(value)
        if method != "initialize" and (edition.modern or "version header" in edition.features):
            found["MCP-Protocol-Version"] = self.client.version
        return found

    def _take_answer(self, wire: _Wire, message: Message, request: Request) -> None:
        """Take a JSON answer, whatever its status; HttpError if it is none."""
        status, body = wire.response.status, wire.body()
        try:
            answer = decode(body)
        except RpcError as problem:
            if status == 200:
                raise Malformed("the answer is no JSON ({}): {}".format(
                    problem, shown(self.mask(body.decode("utf-8", "replace"))))) from None
            answer = None
        # It has to be 404, but servers that were copied many times say 400, in plain words.
        if "Mcp-Session-Id" in wire.headers and (
                status == 404 or status == 400 and b"session" in body.lower()):
            raise _SessionLost(wire.headers["Mcp-Session-Id"])
        is_message = isinstance(answer, list) and status < 400 or isinstance(answer, dict) and (
            "error" in answer or "result" in answer)
        if not is_message or status >= 400 and not (
                (self.client.modern or _is_modern(answer.get("error")))
                and answer.get("id") in (None, request.id)):
            raise self._refusal(wire, body)
        if message["method"] == "initialize":
            self._take_session(wire)
        self.client.receive(answer, request)

    def _take_session(self, wire: _Wire) -> None:
        """[legacy] Note the session id: [2025-11-25] basic/transports §Session Management."""
        ident = wire.response.headers.get("Mcp-Session-Id", "")
        if not re.fullmatch("[!-~]*", ident):
            raise Malformed("the session id has odd characters")
        self._session = ident

    def _refusal(self, wire: _Wire, body: bytes) -> HttpError:
        """Make the exception for an answer that is no message."""
        said = " ".join(self.mask(body.decode("utf-8", "replace"))[:4 * MAX_LOGGED].split())
        heads = wire.response.headers
        return HttpError(wire.response.status, "{} answers {} {}{}".format(
            self.url, wire.response.status, shown(self.mask(str(wire.response.reason))),
            ": " + shown(said) if said else ""),
            {name.lower(): ", ".join(heads.get_all(name)) for name in heads}, self.url)

    def _follow(self, wire: _Wire, request: Request) -> Message:
        """Read the stream of a request until its response; come back for the rest if it breaks.

        [2025-11-25] basic/transports §Resumability and Redelivery: only legacy streams, and only
        if their events have ids.
        """
        if request.method == "initialize":
            self._take_session(wire)
        events, seen, pause = Events(), "", 0.1         # a pause that grows, if nothing comes
        while True:
            response = self._read_stream(wire, events, request)
            if response is not None:
                return response
            if self.client.modern or not events.last_id:
                raise Disconnected(f"the stream ended without a response to {request.method}")
            wire.close()
            pause = max(events.retry, 0.02 if events.last_id != seen else 2 * pause)
            seen = events.last_id
            request.rest(pause)
            request.wait(block=False)
            try:
                wire = self._open("GET", self.url, {
                    "Accept": "text/event-stream", "Last-Event-ID": events.last_id,
                    **self._headers_of(_EMPTY)}, None, lambda: request.deadline, request)
            except _SessionLost as lost:        # the call may have run: it is not ours to repeat
                self.forget_session(str(lost))
                raise Disconnected("the server has forgotten the session") from None
            if wire.response.headers.get_content_type() != "text/event-stream":
                with wire:
                    raise self._refusal(wire, wire.body())

    def _read_stream(self, wire: _Wire, events: Events, request: Request) -> Message | None:
        """Read a stream; return the response if it came before the end."""
        with wire:
            for kind, data in wire.events(events):
                self._take_event(kind, data, request)
                response: Message | None = request.wait(block=False)
                if response is not None:
                    wire.answered = True
                    return response
        response = request.wait(block=False)
        return response

    def _take_event(self, kind: str, data: bytes, request: Request | None = None) -> None:
        if kind != "message":
            return
        try:
            message = decode(data)
        except RpcError as problem:
            self.client.report(f"an event that is no message ({problem})", data)
            return
        self.client.receive(message, request)

    # >8 legacy
    # ---- [legacy] the stream of a session

    def listen(self) -> None:
        """[2025-11-25] basic/transports §Listening for Messages from the Server."""
        if not self._post_to and (self._stream is None or not self._stream.is_alive()
                                  or self._stream_over.is_set()):
            self._streaming.clear()
            self._stream_over = threading.Event()
            self._stream = threading.Thread(target=self._hold_stream, args=(self._stream_over,),
                                            name="mcp-stream", daemon=True)
            self._stream.start()
            self._streaming.wait(min(self.client.timeout, STREAM_SECONDS))

    def _hold_stream(self, over: threading.Event) -> None:
        """Read what belongs to no request, as long as there is a session: life of mcp-stream."""
        events, pause = Events(), 1.0
        while not over.is_set():
            try:
                with self._open("GET", self.url, {
                        "Accept": "text/event-stream", **self._headers_of(_EMPTY),
                        **({"Last-Event-ID": events.last_id} if events.last_id else {})},
                        None, _in(float("inf"))) as wire:
                    if wire.response.headers.get_content_type() != "text/event-stream":
                        return                      # 405: it has none
                    self._stream_wire = wire
                    self._streaming.set()
                    for kind, data in wire.events(events):
                        pause = 1.0
                        self._take_event(kind, data)
            except _SessionLost as lost:
                self.forget_session(str(lost))
                self.client.revive()
                return
            except (OSError, HttpError, Malformed) as problem:
                if isinstance(problem, HttpError) and problem.status < 500:
                    return                          # 405: it has none
            finally:
                self._streaming.set()
            over.wait(min(max(events.retry, pause), 3600.0))
            pause = min(2 * pause, 30.0)

    def _open_sse(self) -> None:
        """HTTP+SSE: open the stream, whose first event says where to post.

        [2024-11-05] basic/transports §HTTP with SSE. That place has to be of the same origin.
        """
        from urllib.parse import urljoin
        wire = self._open("GET", self.url, {"Accept": "text/event-stream"}, None,
                          _in(self.client.timeout))
        try:
            if wire.response.headers.get_content_type() != "text/event-stream":
                raise self._refusal(wire, wire.body())
            data, reader = b"", wire.events(Events())
            kind, data = next(iter(reader), ("", b""))
            place = urljoin(self.url, data.decode("utf-8", "replace").strip())
            if kind != "endpoint" or HttpTransport(place).origin != self.origin:
                raise ValueError
        except ValueError:
            wire.close()
            raise Disconnected("this is no MCP server: its stream begins with "
                               + shown(data)) from None
        except BaseException:
            wire.close()
            raise
        wire.deadline = _in(float("inf"))
        self._post_to = place
        self._stream = threading.Thread(target=self._hold_sse, args=(wire, reader),
                                        name="mcp-stream", daemon=True)
        self._stream.start()

    def _hold_sse(self, wire: _Wire, reader: Iterable[tuple[str, bytes]]) -> None:
        """Read all that the server sends, to the end: life of mcp-stream."""
        problem: Exception = Disconnected("the stream of the server has ended")
        try:
            with wire:
                for kind, data in reader:
                    self._take_event(kind, data)
        except (OSError, Malformed) as trouble:
            problem = trouble
        if not self._over.is_set():
            self._up = False                        # the next request starts again
            self.client.lost(problem)
    # 8< legacy

    # ---- connections

    def _open(self, verb: str, url: str, headers: dict[str, str], body: bytes | None,
              deadline: Any, request: Request | None = None) -> _Wire:
        """Send an HTTP request and read the head of the answer; HttpError for a refusal.

        `deadline` says when to hang up: a function, since progress can move it. Answers to POST
        come back with any status but 401, 403 and redirects; GET and DELETE only with 2xx.
        """
        tries = redirects = 0
        while True:
            granted = self._granted
            own, more = (one(verb, url) if callable(one) else one
                         for one in (self._headers, granted))
            session = {"Mcp-Session-Id": self._session} if self._session else {}
            self._note_secrets({**own, **more})
            wire = _Wire(self, deadline, {"User-Agent": f"mcp_ref/{__version__}", **headers,
                                          **session, **own, **more})
            wire.send(verb, url, body, request)
            status = wire.response.status
            if status in (401, 403) and tries < MAX_AUTHORIZE and self._authorize is not None \
                    and verb != "DELETE":
                tries += 1
                with wire:
                    refusal = self._refusal(wire, wire.body())
                began = time.monotonic()
                self._ask_for_grant(refusal, granted)
                if request is not None:             # a user who has to log in takes his time
                    request.deadline += time.monotonic() - began
                else:
                    deadline = _in(deadline() - began)
            elif status in (301, 302, 307, 308) and redirects < MAX_REDIRECTS:
                redirects += 1
                with wire:
                    url = self._redirected(url, wire)
            elif status in (401, 403) or 300 <= status < 400 or verb != "POST" and status >= 300 \
                    or body is not None and request is None and status >= 400:
                with wire:
                    if status == 404 and "Mcp-Session-Id" in wire.headers:
                        raise _SessionLost(wire.headers["Mcp-Session-Id"])
                    raise self._refusal(wire, wire.body())
            else:
                return wire

    def _note_secrets(self, headers: dict[str, str]) -> None:
        """Note what we send besides, for mask(): a server may echo it, but it goes no further."""
        for value in headers.values():
            for word in str(value).split():
                if len(word) > 7 and word not in self._secrets:     # shorter ones hide too much
                    self._secrets = {**dict(list(self._secrets.items())[-49:]), word: None}

    def _ask_for_grant(self, refusal: HttpError, granted: Any) -> None:
        """Ask `authorize` for headers, one thread at a time; HttpError if it has none."""
        with self._authorizing:
            if self._granted is not granted:
                return                              # another thread has got some meanwhile
            authorize: Any = self._authorize
            found = _settled(authorize, [refusal], {})
            if found is None:
                raise refusal
            self._granted = found if callable(found) else dict(found)
            self.client._forget_results()           # server/utilities/caching §Cache Scope Field

    def mask(self, text: str) -> str:
        for secret in list(self._secrets):
            text = text.replace(secret, "***")
        return text

    def _redirected(self, url: str, wire: _Wire) -> str:
        from urllib.parse import urljoin
        target = wire.response.headers.get("Location", "")
        try:
            target = urljoin(url, target)
            if HttpTransport(target).origin == self.origin:
                return str(target)
        except ValueError:
            pass
        raise HttpError(wire.response.status, f"{url} redirects to another origin, "
                        f"{shown(self.mask(target))}: connect to that one, if you trust it")

    def take_kept(self) -> Any:
        """Return a connection that is still good, if one is kept."""
        while True:
            with self._woken:
                if not self._kept:
                    return None
                since, connection, response = self._kept.pop()
            if time.monotonic() - since < KEEP_CONNECTION_SECONDS \
                    and _is_finished(connection, response):
                return connection
            _discard(connection, response)

    def keep(self, connection: Any, response: Any) -> None:
        """Keep a connection for the next request; what ends the response may still have to come."""
        with self._woken:
            if self._up and len(self._kept) < MAX_KEPT:
                self._kept.append((time.monotonic(), connection, response))
                return
        _discard(connection, response)

    def watch(self, wire: _Wire) -> None:
        """Hang up on it at its deadline, whatever the server does until then."""
        with self._woken:
            if self._over.is_set():
                raise Disconnected("the client is closed")
            self._wires[wire] = None
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="mcp-deadline", daemon=True).start()
            if wire.deadline() < self._nearest:     # else it is awake in time
                self._woken.notify()

    def unwatch(self, wire: _Wire) -> None:
        with self._woken:
            self._wires.pop(wire, None)

    def _watch(self) -> None:
        with self._woken:
            while not self._over.is_set():
                now = time.monotonic()
                for wire in [wire for wire in self._wires if wire.deadline() <= now]:
                    self._wires.pop(wire)
                    wire.late = True
                    wire.hang_up()
                self._nearest = min([now + 3600, *(wire.deadline() for wire in self._wires)])
                self._woken.wait(self._nearest - now)
            self._watching = False


def _is_finished(connection: Any, response: Any) -> bool:
    """Tell whether a kept connection is ready for the next request: the last response has come to
    its end, or does so at once, and nothing came after it, such as the server hanging up."""
    from http.client import HTTPException
    try:
        connection.sock.settimeout(0.01)
        if not response.isclosed() and response.read1(1):
            return False
        response.close()
        connection.sock.settimeout(None)
        return not _is_ready(connection.sock, False)
    except (OSError, HTTPException, ValueError, AttributeError):
        return False


def _discard(connection: Any, response: Any) -> None:
    """Close a connection for good; its socket stays open for as long as a response reads it."""
    connection.close()
    if response is not None:
        response.close()


def _in(seconds: float) -> Callable[[], float]:
    """Return a deadline that does not move."""
    deadline = time.monotonic() + seconds
    return lambda: deadline


class _Wire:
    """One HTTP request under way on its connection: a context manager, that lets go of it."""

    def __init__(self, transport: HttpTransport, deadline: Any, headers: dict[str, str]) -> None:
        self.transport = transport
        self.deadline: Callable[[], float] = deadline
        self.headers = headers
        self.late = False                   # set by mcp-deadline, which then hangs up
        self.broken = False                 # we have hung up
        self.answered = False               # a stream has given all that we wait for
        self.connection: Any = None
        self.response: Any = None
        self._socket: Any = None

    def __enter__(self) -> _Wire:      # noqa: PYI034  typing.Self is too new
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, verb: str, url: str, body: bytes | None, request: Request | None) -> None:
        """Send the request, and read the head of the answer."""
        from http.client import HTTPException
        from urllib.parse import quote, urlsplit
        parts = urlsplit(url)
        target = quote((parts.path or "/") + ("?" + parts.query if parts.query else ""),
                       "!#$%&'()*+,/:;=?@[]~")
        if request is not None:
            request.hang_up = self.hang_up
        try:
            self.connection = self.transport.take_kept() or self._connect()
            self._socket = self.connection.sock
            self.transport.watch(self)
            if request is not None:
                request.wait(block=False)       # it may have been cancelled meanwhile
                request.sent = True
            self.connection.request(verb, target, body, self.headers)
            self.response = self.connection.getresponse()
            for _ in range(MAX_REDIRECTS):      # 103 and the like are no answers yet
                if 100 <= self.response.status < 200 and self.response.status != 101:
                    self.response.headers = self.response.msg = None
                    self.response.begin()
        except (OSError, HTTPException) as problem:
            self.close()
            raise self._failed(problem) from None
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        """Open a connection. TLS checks the certificate, and the name in it."""
        import socket
        from http.client import HTTPConnection
        scheme, host, port = self.transport.origin
        left = max(0.001, min(self.deadline() - time.monotonic(), SEND_SECONDS))
        connection = HTTPConnection(host, port)
        connection.auto_open = 0            # it would open another by itself, and without TLS
        self._socket = socket.create_connection((host, port), left)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            import ssl
            self.transport.watch(self)
            self._socket = (self.transport._tls or ssl.create_default_context()).wrap_socket(
                self._socket, server_hostname=host)
        self._socket.settimeout(None)       # from here on it is mcp-deadline that ends every wait
        connection.sock = self._socket
        return connection

    def _failed(self, problem: Exception) -> Exception:
        """Say what has gone wrong on the connection."""
        if self.late or self.deadline() <= time.monotonic():
            return TimeoutError("no answer in time")
        if isinstance(problem, (TimeoutError, Disconnected)):
            return problem
        scheme, host, port = self.transport.origin
        return Disconnected(f"{scheme}://{host}:{port}: {_said(problem)}")

    def _chunks(self) -> Iterable[bytes]:
        """Yield the body as it comes."""
        from http.client import HTTPException
        try:
            yield from iter(functools.partial(self.response.read1, 2**16), b"")
        except (OSError, HTTPException, ValueError, AttributeError) as problem:
            raise self._failed(problem) from None       # hung up on, or cut off
        if self.broken:                         # by us: what looks like the end is none
            raise self._failed(OSError("hung up"))

    def body(self) -> bytes:
        """Return the body; Malformed if it is too large."""
        parts, size = [], 0
        for chunk in self._chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise Malformed(f"the answer has more than {MAX_MESSAGE_BYTES} bytes")
        if self.response.length:                # of what was announced, so much is missing
            raise self._failed(OSError("the answer was cut off"))
        return b"".join(parts)

    def events(self, events: Events) -> Iterator[tuple[str, bytes]]:
        """Yield the events of a stream, until it ends or breaks off."""
        try:
            for chunk in self._chunks():
                yield from events.feed(chunk)
        except Disconnected:
            pass
        events.end()

    def hang_up(self) -> None:
        """Break the connection off, from any thread: whoever reads meets the end."""
        import socket
        self.broken, mine = True, self._socket
        if mine is not None:
            _shut(mine, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go: keep the connection if the answer was read to its end."""
        self.transport.unwatch(self)
        connection, self.connection = self.connection, None
        socket, self._socket = self._socket, None       # what is kept is not ours to hang up on
        if connection is None:
            if socket is not None:
                socket.close()
        else:
            response = self.response
            if response is not None and not self.broken and not response.will_close and (
                    response.isclosed() or response.length == 0 or self.answered):
                self.transport.keep(connection, response)
            else:
                _discard(connection, response)


def connect(target: Any, *, env: dict[str, str] | None = None, cwd: str | None = None,
            stderr: Callable[[str], Any] | None = None, headers: Any = None, tls: Any = None,
            authorize: Callable[[HttpError], Any] | None = None,
            **options: Any) -> Client:
    """Connect to a server, and find out which revisions it speaks. Use it as a context manager.

    `target`: a URL; a command, as a list; a Server, to be called in this process; a Transport.
    `env`, `cwd`, `stderr`: see StdioTransport; `headers`, `tls`, `authorize`: see HttpTransport.
    Other options, all of them optional:

    `revision`: speak this one or fail. `timeout`, `probe`: seconds, for a response and for the very
    first one. `elicit(params)` fills a form: returns a dict of values, None (declined) or "cancel".
    `visit(params)` shows params["url"] in full to the user and opens it if they agree: returns True
    or False. `sample(params)` asks a model: returns text or a whole result, None if the user said
    no. `roots`: a list of folders or URIs, or a function that returns one. These four declare the
    capability, too; they may be async, and get the tags of the calls (see request()) as a second
    argument if they take one. `on_log(params)`, `on_notification(message)`: called in order, on a
    thread of their own. `info`: name, version, ... of this client. `declare`: further capabilities,
    such as {"extensions": {...}}. `cache`: keep results as long as the server allows. `log_level`:
    of the messages for `on_log`. `trace(way, message)`: called with each message, way being ">"
    (sent) or "<".
    """
    transport: Any = target
    if isinstance(target, str):
        transport = HttpTransport(target, headers=headers, tls=tls, authorize=authorize)
    # >8 server
    elif isinstance(target, Server):
        transport = MemoryTransport(target)
    # 8< server
    elif not isinstance(target, Transport):
        transport = StdioTransport(target, env=env, cwd=cwd, stderr=stderr)
    client = Client(transport, **options)
    try:
        client.open()
    except BaseException:
        client.close()
        raise
    return client
# 8< client


# ==========================================================================================
# You have now read the other side as well: a client for every server of every revision.
# ==========================================================================================


# >8 cli
# ==========================================================================================
# 12. The command line
#
# As a server: the demo, or what a file holds. As a client: list, call, read, prompt. The exit
# status is 0, 1 if the server or the tool said no, 2 if nothing could be asked.
# ==========================================================================================

_USAGE = """\
usage: mcp_ref.py [--http [HOST:]PORT]                  serve the built-in demo server
       mcp_ref.py serve FILE.py [--http [HOST:]PORT]    serve FILE's `server`, or its functions
       mcp_ref.py list   TARGET                         what a server offers
       mcp_ref.py call   TARGET TOOL [KEY=VALUE ... | JSON]
       mcp_ref.py read   TARGET URI
       mcp_ref.py prompt TARGET NAME [KEY=VALUE ...]
       mcp_ref.py --help | --version
Without --http they serve on standard input and output. TARGET is a URL, a FILE.py to serve, or
left out, and a command stands at the end: mcp_ref.py list -- npx some-server
  --json                  print what the server answered, as JSON
  --trace                 show every message, both ways, on standard error
  --revision DATE         speak this revision, or fail
  --timeout SECONDS       for each answer (60)
  --header "NAME: VALUE"  send it with every HTTP request: --header "Authorization: Bearer ..."
"""


def demo() -> Server:
    """Make the demo server: two tools, a resource, a prompt."""
    server = Server("mcp_ref-demo", __version__, "A demonstration: echo, add, a note, a greeting.")

    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.resource("demo://note", mime_type="text/plain")
    def note() -> str:
        """A note to read."""
        return "This text comes from the demo server of mcp_ref.py."

    @server.prompt
    def greet(name: str) -> str:
        """Ask for a greeting."""
        return f"Write a short, friendly greeting for {name}."
    return server


def load(path: str) -> Server:
    """Return the server of a Python file: its `server`, or one made of its public functions."""
    import importlib.util
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise SystemExit(f"mcp_ref: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        stdout = os.dup(1)
        os.dup2(2, 1)                           # what it prints now is no message either
    except OSError:
        raise SystemExit("mcp_ref: there is no standard output, or no standard error") from None
    Server._loading = True
    try:
        spec.loader.exec_module(module)
    finally:
        Server._loading = False
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
    server = getattr(module, "server", None)
    if isinstance(server, Server):
        return server
    server = Server(name)
    for key, value in list(vars(module).items()):
        if type(value) is types.FunctionType and value.__module__ == name and key[0] != "_":
            server.tool(value)
    if not server.tools:
        raise SystemExit(f"mcp_ref: {path} has neither a `server` nor a public function")
    return server


# ---- the client's verbs

# Import this module from its cached bytecode: run as a file it would be compiled once more.
_LAUNCH = """import sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules["mcp_ref"] = __import__(sys.argv.pop(1))
sys.modules["mcp_ref"].main(sys.argv[1:])"""


class _Usage(Exception):
    """The command line makes no sense."""


def _read_words(words: list[str]) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Sort what stands on the command line: words, options by name, headers by name."""
    plain, options, headers = [], {"timeout": str(CALL_SECONDS)}, {}    # type: Any, Any, Any
    reading = iter(words)
    for word in reading:
        name, equals, value = word[2:].partition("=")
        if not word.startswith("--"):
            plain.append(word)
        elif name in ("json", "trace") and not equals:
            options[name] = "yes"
        elif name in ("revision", "timeout", "header"):
            options[name] = value = value if equals else next(reading, "")
            if name == "header" and not re.match(r"[^:\s]+:", value):
                raise _Usage('--header takes "NAME: VALUE"')
            if name == "header":
                headers[value.partition(":")[0]] = value.partition(":")[2].strip()
        else:
            raise _Usage(f"there is no option {word}")
    if options.get("revision", R1) not in REVISIONS:
        raise _Usage("--revision takes one of " + ", ".join(versions()))
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", options["timeout"]) or not float(options["timeout"]):
        raise _Usage("--timeout takes seconds, more than 0")
    return plain, options, headers


def run_client(arguments: list[str]) -> int:
    """Run list, call, read or prompt; return the exit status."""
    verb, rest, command = arguments[0], arguments[1:], []
    if "--" in rest:
        rest, command = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    words, options, headers = _read_words(rest)
    target: Any = command or _target(words.pop(0) if words else "")
    run, needed, may_have_more = _VERBS[verb]
    if len(words) < needed:
        raise _Usage(f"{verb} needs a name" + (", before the --" if command else ""))
    if len(words) > needed and not may_have_more:
        raise _Usage(f"one word too many: {words[-1]}" + (
            " (the server is the command after --)" if command else ""))
    asking = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    held: list[str] | None = []             # what a server says of our first question, and before

    client: Client

    def who() -> str:
        return f"{client.server_info.get('name', 'The server')} ({shown(target)})"

    def forward(line: str) -> None:
        held.append(line) if held is not None else _note(line)
    with connect(target, revision=options.get("revision", ""), timeout=float(options["timeout"]),
                 trace=_tracer() if "trace" in options else None, env=dict(os.environ),
                 headers=headers,
                 elicit=(lambda form: _fill_form(form, who())) if asking else None,
                 visit=(lambda page: _show_page(page, who())) if asking else None,
                 on_log=_show_log,
                 info={"name": "mcp_ref.py", "version": __version__}, stderr=forward) as client:
        said, held = held or [], None
        if client.modern:                   # a legacy one may have complained at length
            for line in said:
                _note(line)
        return run(client, words, "json" in options)


def _target(word: str) -> Any:
    """Return what connect() takes, of a word on the command line."""
    if word.startswith(("http://", "https://")):
        return word
    if word.endswith(".py") and not os.path.isfile(word):
        raise ValueError(f"there is no file {word}")
    if word.endswith(".py"):
        folder, name = os.path.split(os.path.abspath(__file__))
        return [sys.executable, "-c", _LAUNCH, folder, name[:-len(".py")], "serve", word]
    if not word:
        raise _Usage("which server? A URL, a FILE.py, or `-- COMMAND` at the end")
    raise _Usage(f"{word} is neither a URL nor a FILE.py; a command goes at the end: -- COMMAND")


def _list_all(client: Client, _: list[str], as_json: bool) -> int:
    lists = {"tools": client.list_tools(), "resources": client.list_resources(),
             "resourceTemplates": client.list_resource_templates(),
             "prompts": client.list_prompts()}
    if as_json:
        print(json.dumps({"version": client.version, "serverInfo": client.server_info,
                          "capabilities": client.capabilities,
                          **_present(instructions=client.instructions), **lists}, indent=2))
        return 0
    _print("{} {}, speaks {}".format(client.server_info.get("name", "a server"),
                                     client.server_info.get("version", ""), client.version))
    for line in (client.instructions or "").splitlines():
        _print("  " + line)
    for kind, items in lists.items():
        if items:
            print("\n" + {"resourceTemplates": "resource templates"}.get(kind, kind))
        for item in items:
            _print("  " + _headline(item))
            for line in (item.get("description") or "").strip().splitlines():
                _print("      " + line.strip())
    return 0


def _headline(item: Message) -> str:
    """Return a definition as one line: add(a: number, b: number = 1)."""
    if "inputSchema" in item:
        schema = item["inputSchema"]
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        given = [name + _kind_of_value(part) + (
            f" = {json.dumps(part['default'])}" if isinstance(part, dict) and "default" in part
            else "" if name in (schema.get("required") or ()) else " = ...")
            for name, part in properties.items()]
        return "{}({})".format(item["name"], ", ".join(given))
    place = item.get("uri") or item.get("uriTemplate")
    if place:
        return "  ".join(part for part in (place, item["name"], item.get("mimeType")) if part)
    given = [argument["name"] + ("" if argument.get("required") else " = ...")
             for argument in item.get("arguments") or ()]
    return "{}({})".format(item["name"], ", ".join(given))


def _kind_of_value(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
        return ": " + " | ".join(map(json.dumps, schema["enum"]))
    return f": {_listed(kind)}" if kind else ""


def _call_named(client: Client, words: list[str], as_json: bool) -> int:
    tools = {tool["name"]: tool for tool in client.list_tools()}
    if words[0] not in tools:
        _note("mcp_ref: there is no tool {}; there {}".format(
            words[0], "are " + ", ".join(tools) if tools else "is none"))
        return 1
    arguments = _arguments_of(words[1:], tools[words[0]]["inputSchema"])
    result = client.call_tool(words[0], arguments, on_progress=_show_progress)
    failed = bool(result.get("isError"))
    if as_json:
        print(json.dumps(result, indent=2))
    for block in () if as_json else result["content"]:
        _print(_shown_content(block), sys.stderr if failed else sys.stdout)
    if not as_json and not result["content"] and "structuredContent" in result:
        print(json.dumps(result["structuredContent"], indent=2))
    return 1 if failed else 0


def _arguments_of(words: list[str], schema: Any) -> Message:
    """Return arguments of KEY=VALUE, converted as the schema wants, or of one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            whole: Message = decode(words[0].encode())
            return whole
        except RpcError as problem:
            raise _Usage(f"the arguments are no JSON: {problem}") from None
    arguments: Message = {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    shared = {"$defs": schema["$defs"]} if properties and "$defs" in schema else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise _Usage(f"{word} is no KEY=VALUE")
        part = properties.get(name, {})
        arguments[name] = _converted(name, value, {**shared, **part} if isinstance(part, dict)
                                     else {})
    return arguments


def _converted(name: str, value: str, schema: Any) -> Any:
    """Return the value that a string stands for: itself where a string will do, else JSON."""
    try:
        check = Schema(schema, foreign=True)
        flaw = check.flaw(value)
        if flaw is None:
            return value
        found = decode(value.encode())
        flaw = check.flaw(found)
    except RpcError:
        pass                                # it is no JSON: what was wrong with the text?
    except (ValueError, TypeError, AttributeError):
        return value                        # the schema is of no use; the server will tell
    if flaw is not None:
        raise ValueError(f"{name}={value}: it {flaw.partition(': ')[2]}")
    return found


def _read_named(client: Client, words: list[str], as_json: bool) -> int:
    contents = client.read_resource(words[0])
    if as_json:
        print(json.dumps(contents, indent=2))
    for item in () if as_json else contents:
        if "text" in item:
            _print(item["text"].removesuffix("\n"))
        else:
            import base64
            sys.stdout.flush()
            sys.stdout.buffer.write(base64.b64decode(item.get("blob", "")))
    return 0


def _get_named(client: Client, words: list[str], as_json: bool) -> int:
    result = client.get_prompt(words[0], {name: str(value) for name, value in _arguments_of(
        words[1:], {}).items()})
    if as_json:
        print(json.dumps(result, indent=2))
    for message in () if as_json else result["messages"]:
        _print("{}: {}".format(message["role"], _shown_content(message.get("content"))))
    return 0


# What runs a verb, how many words it needs after the server's, and whether more may follow.
_VERBS: dict[str, tuple[Callable[[Client, list[str], bool], int], int, bool]] = {
    "list": (_list_all, 0, False), "call": (_call_named, 1, True),
    "read": (_read_named, 1, False), "prompt": (_get_named, 1, True)}


def _shown_content(block: Any) -> str:
    """Return content for people: text as it is, of the rest what it is."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return str(block.get("text"))
    if kind == "resource" and isinstance(block.get("resource"), dict):
        return str(block["resource"].get("text") or "[{} {}]".format(
            block["resource"].get("uri"), block["resource"].get("mimeType", "")))
    if kind == "resource_link":
        return "[{}]".format(block.get("uri"))
    if kind in ("image", "audio"):
        return "[{}, {}, {} bytes]".format(kind, block.get("mimeType"),
                                           len(str(block.get("data"))) * 3 // 4)
    return json.dumps(block)


def _print(line: str, stream: Any = None) -> None:
    """Print what came from a server. A terminal gets no control characters: they could make it
    show another text than the one that the user is asked to agree to."""
    stream = stream or sys.stdout
    if stream.isatty():
        line = re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]",
                      lambda found: ascii(found[0])[1:-1], line)
    print(line, file=stream, flush=True)


def _note(line: str) -> None:
    _print(line.encode("utf-8", "replace").decode(), sys.stderr)


def _show_progress(progress: float, total: float | None, message: str | None) -> None:
    _note("progress {:g}{} {}".format(
        progress, f" of {total:g}" if total else "", message or "").rstrip())


def _show_log(params: Message) -> None:
    said = params.get("data")
    _note("{}: {}".format(params.get("level"), said if isinstance(said, str) else json.dumps(said)))


def _tracer() -> Callable[[str, Any], None]:
    """Return a function that shows messages: the time in seconds, which way, what it is, all."""
    begun, methods = time.monotonic(), {}       # type: float, dict[Any, str]

    def trace(way: str, message: Any) -> None:
        ident = message.get("id") if isinstance(message, dict) else None
        if not isinstance(message, dict):
            kind = "no message"
        elif "method" in message:
            kind = ("request " if "id" in message else "notification ") + str(message["method"])
            methods[way, str(ident)] = str(message["method"])
        else:
            kind = "error to " if "error" in message else "result of "
            kind += methods.pop(("<" if way == ">" else ">", str(ident)), "nothing we know")
        _note(f"{time.monotonic() - begun:8.3f} {way} {kind}\n           {json.dumps(message)}")
    return trace


def _fill_form(params: Message, who: str = "The server") -> Any:
    """Ask the user on the terminal for each field of a form; they may leave, decline, or edit:
    client/elicitation §User Interaction Model."""
    schema, filled = params["requestedSchema"], {}      # type: Message, Message
    while True:
        _note(f"\n{who} asks: {params['message']}\n(Ctrl-D leaves the form)")
        for name, field in (schema.get("properties") or _EMPTY).items():
            known = {"default": filled[name]} if name in filled else {}
            needed = name in schema.get("required", ())
            if not _fill_field(name, {**field, **known}, needed, filled):
                return "cancel"
        _note(f"Send {json.dumps({**_defaults(schema), **filled})}? [y]es, [n]o, [e]dit")
        answer = _typed()
        if answer is None or answer[:1].lower() != "e":
            return "cancel" if answer is None else filled if answer[:1].lower() == "y" \
                else "decline"


def _fill_field(name: str, field: Message, required: bool, filled: Message) -> bool:
    """Ask for one field until the answer will do; False if the user leaves."""
    choices = field.get("oneOf") or (field.get("items") or _EMPTY).get("anyOf") or ()
    _note("  {}{}{}  {}".format(
        field.get("title", name), _kind_of_value(field),
        f" [{json.dumps(field['default'])}]" if "default" in field else "",
        field.get("description", "")))
    for choice in choices:
        _note("    {}  {}".format(json.dumps(choice.get("const")), choice.get("title", "")))
    while True:
        value = _typed()
        if value is None or not value and ("default" in field or not required):
            return value is not None
        try:
            filled[name] = _converted(name, value, field)
            return True
        except ValueError as problem:
            _note(f"  {problem}")


def _show_page(params: Message, who: str = "The server") -> bool:
    """Show a URL in full, and open it only if the user agrees: client/elicitation §Safe URL
    Handling."""
    import webbrowser
    from urllib.parse import urlsplit
    host = urlsplit(params["url"]).hostname or ""
    _note("\n{} asks: {}\nIt wants you to visit, at {}{}:\n  {}\nOpen it? [y/N]".format(
        who, params["message"], host, " (mind the name: it only looks like letters you know)"
        if "xn--" in host else "", params["url"]))
    return (_typed() or "").lower() in ("y", "yes") and webbrowser.open(params["url"])


def _typed() -> str | None:
    """Return a line that the user typed, None at the end of input."""
    try:
        return input().strip()
    except EOFError:
        return None


def main(arguments: list[str]) -> None:
    """Run the command line; SystemExit with a status other than 0 if something is wrong."""
    if not arguments or arguments[0] == "--http":
        demo().run(arguments)
    elif arguments[0] in ("-h", "--help") or arguments[0] in _VERBS and "--help" in arguments[1:2]:
        sys.stdout.write((__doc__ or "").split("\n\n")[0] + "\n\n" + _USAGE)
    elif arguments[0] == "--version":
        print("mcp_ref.py " + __version__, "speaks", ", ".join(versions()))
    elif arguments[0] == "serve" and len(arguments) == 2 + 2 * ("--http" in arguments[2:3]):
        load(arguments[1]).run(arguments[2:])
    elif arguments[0] in _VERBS:
        raise SystemExit(_outcome(arguments))
    else:
        sys.stderr.write(f"mcp_ref: this makes no sense: {' '.join(arguments)}\n" + _USAGE)
        raise SystemExit(2)


def _outcome(arguments: list[str]) -> int:
    """Run a verb of the client, and turn whatever goes wrong into a line and a status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")   # a code page may not have it all
    import signal
    if threading.current_thread() is threading.main_thread():   # then the server is ended, too
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run_client(arguments)
    except RpcError as error:
        _note(f"error {error.code}: {error}"
              + (f" {json.dumps(error.data)}" if error.data is not None else ""))
        return 1
    except _Usage as problem:
        _note(f"mcp_ref: {problem}\nTry: mcp_ref.py --help")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)        # nobody reads us any more
    except (OSError, HttpError, Malformed, ServerLacks, AskError, ValueError) as problem:
        _note(f"mcp_ref: {_said(problem)}")
    except KeyboardInterrupt:
        _note("mcp_ref: interrupted")
        return 130
    except Exception as problem:                # noqa: BLE001  what a server may still come up with
        _note(f"mcp_ref: the server's answer makes no sense: {type(problem).__name__}: {problem}")
    return 2


if __name__ == "__main__":
    # What a served file imports must be this module, not a second copy of it.
    sys.modules.setdefault("mcp_ref", sys.modules["__main__"])
    main(sys.argv[1:])
# 8< cli
