"""Tests of mcp_ref.py: the wire, the core, schemas and hints, stdio, HTTP.

Most are scripts, in the language of examples/testing.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import errno
import functools
import gc
import hashlib
import http.client
import inspect
import io
import itertools
import json
import operator
import os
import pickle
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import typing
import uuid
import weakref
import zipfile
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union
from unittest import mock

import pytest
from testing import revisions
from testing.places import (
    CHUNKED,
    DEEP,
    INT,
    NULL,
    OPENING,
    POST,
    READY,
    STR,
    Point,
    ask,
    command,
    core_questions,
    draw,
    called,
    is_refused,
    listening,
    modern,
    overview,
    play_vectors,
    said,
    serve_tool,
    status_of,
    words_of,
)
from testing.scripts import (
    CODES,
    COVERAGE,
    EVERYTHING,
    HERE,
    LEGACY,
    MCP_CLIENT,
    MCP_REF,
    MODERN,
    NEWEST,
    NEWEST_LEGACY,
    OLDEST,
    ORDER,
    OTHER,
    PATIENCE,
    PYTHON,
    PNG,
    POSIX,
    TIME,
    WIRES,
    Context,
    Memory,
    Stage,
    Talk,
    begin,
    client,
    differences,
    each,
    event_of,
    exchange,
    exists,
    fixture,
    headers_of,
    http_serving,
    limits,
    load,
    mcp,
    needs_posix,
    next_of,
    parametrize,
    request_to,
    scripts,
    talk,
    wait_until,
)

# ======== Rules of the wire, in every revision


test_requests = scripts(
    r"""
== errors have their code in every revision; names that tutorials teach get a hint
tools/call {"name": "echo", "arguments": [1]} => error {INVALID_PARAMS} arguments
completion/complete {"ref": {"type": "ref/prompt", "name": "greet"},
    "argument": {"name": "nobody", "value": ""}} => error {INVALID_PARAMS} argument
[legacy] resources/read {"uri": "test://item/0/x"} => error {RESOURCE_NOT_FOUND} {"uri": "*"}
resources/read {"uri": "test://fails"} => error {INTERNAL_ERROR}
[!2025-03-26] > [{"jsonrpc": "2.0", "id": 1, "method": "nobody"}]
[!2025-03-26] < ? error {INVALID_REQUEST}
[legacy] tools/list {"_meta": 3} => error {INVALID_PARAMS}
[!2025-11-25] :tell {"method": "notifications/elicitation/complete"} => {}
resources/get {"uri": "x"} => error {METHOD_NOT_FOUND} resources/read
tools/execute => error {METHOD_NOT_FOUND} tools/call
prompts/read => error {METHOD_NOT_FOUND} prompts/get
== requests run at the same time; an id in flight is refused; 1 and "1" differ
> 1 :slow {"gate": "a"}
wait a
> "1" tools/list
< "1" {}
tools/list => error {INVALID_REQUEST} id
[legacy] ping => error {INVALID_REQUEST} id
quiet
open a
< 1 {"content": [{"text": "held"}]}
> "\ud800" tools/list
< ? error {INVALID_REQUEST} id
== params and `_meta` that are null are absent; nothing else that is empty is | on: 2025-11-25
>> {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": null}
< 7 {"tools": ["*", "..."]}
tools/call {"name": "add", "arguments": {"a": 1}, "_meta": null} => "3"
tools/call {"name": "add", "arguments": {"a": 1}, "_meta": 0} => error {INVALID_PARAMS}
tools/call {"name": "add", "arguments": {"a": 1}, "_meta": ""} => error {INVALID_PARAMS}
tools/call {"name": "add", "arguments": {"a": 1}, "_meta": []} => error {INVALID_PARAMS}
tools/call {"name": "add", "arguments": {"a": 1}, "_meta": false} => error {INVALID_PARAMS}
== without a session, params that are null name no revision | on: modern memory | bare
>> {"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": null}
< 8 error {INVALID_PARAMS}
== arguments that break the schema are a result since 2025-11-25, and an error before
[2025-11-25..] :add {"a": "x"} => {"isError": true, "content": [{"text": "*"}]}
[2025-11-25..] :add {"a": 1, "nobody": 2} => {"isError": true}
[..2025-06-18] :add {"a": "x"} => error {INVALID_PARAMS} {"field": "a", "reason": "*"}
[..2025-06-18] :add {"a": 1, "nobody": 2} => error {INVALID_PARAMS} {"field": "nobody"}
== a session that sets no level hears from "info" on | on: legacy memory
> 1 :talk
< - notifications/message {"level": "info"}
< - notifications/message {"level": "notice"}
< - notifications/message {"level": "warning"}
< - notifications/message {"level": "error"}
< - notifications/message {"level": "critical"}
< - notifications/message {"level": "alert"}
< - notifications/message {"level": "emergency"}
< 1 {}
== a tool that raises gives isError, also for NotFound; an RpcError is the error of the request
:fail {"how": "value"} => {"isError": true, "content": [{"text": "told you"}]}
:fail {"how": "silent"} => {"isError": true}
:fail {"how": "missing"} => {"isError": true}
:fail {"how": "own"} => error 7 seven [7]
:fail {"how": "reserved"} => error {INTERNAL_ERROR}
[legacy] :fail {"how": "old"} => error {RESOURCE_NOT_FOUND}
[modern] :fail {"how": "old"} => error {INTERNAL_ERROR}
== what a server lacks is not found, and not granted; logging is always declared | server: empty
tools/list => error {METHOD_NOT_FOUND}
resources/read {"uri": "x:y"} => error {METHOD_NOT_FOUND}
[legacy] logging/setLevel {"level": "info"} => {}
[modern] server/discover => {"capabilities": {"logging": {}, "tools": null, "extensions": null}}
[modern] > 2 subscriptions/listen {"notifications": {"toolsListChanged": true}}
[modern] < - notifications/subscriptions/acknowledged {"notifications": {"toolsListChanged": null}}
== template values with .., encoded slashes, drives or NUL are refused | on: 2025-11-25 modern
"""
    + "".join(
        f'resources/read {{"uri": "{uri}"}} => error {{INVALID_PARAMS}}\n'
        for uri in (
            "file:///../x",
            "file:///%2e%2e/b",
            "file:///a%2f..%2fb",
            "file:////etc",
            "file:///C:/x",
            "file:///..%5cx",
            "file:///a%00b",
            "file:///%ff",
            "test://item/1/..",
            "test://item/1/a%5Cb",
            "test://item/1/a%2Fb",
        )
    )
)


# Lines that are not messages, and the answer to each.
PYPY = hasattr(sys, "pypy_version_info")
JUNK = r"""
{                                                         | ? error {PARSE_ERROR}
[NaN]                                                     | ? error {PARSE_ERROR}
-Infinity                                                 | ? error {PARSE_ERROR}
{"id": 1, "x": "\xff"}                                    | ? error {PARSE_ERROR}
true                                                      | ? error {INVALID_REQUEST}
"x"                                                       | ? error {INVALID_REQUEST}
null                                                      | ? error {INVALID_REQUEST}
{}                                                        | ? error {INVALID_REQUEST}
[]                                                        | ? error {INVALID_REQUEST}
{"jsonrpc": "2.0", "id": null, "method": "ping"}          | ? error {INVALID_REQUEST} id
{"jsonrpc": "2.0", "id": true, "method": "ping"}          | ? error {INVALID_REQUEST} id
{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}           | ? error {INVALID_REQUEST} id
{"jsonrpc": "2.0", "id": {}, "method": "ping"}            | ? error {INVALID_REQUEST} id
{"id": "a", "method": "ping"}                             | "a" error {INVALID_REQUEST} jsonrpc
{"jsonrpc": "1.0", "id": "a", "method": "ping"}           | "a" error {INVALID_REQUEST} jsonrpc
{"jsonrpc": "2.0", "id": 1, "method": 7}                  | 1 error {INVALID_REQUEST} method
{"jsonrpc": "2.0", "id": 1, "x": 1}                       | 1 error {INVALID_REQUEST} method
{"jsonrpc": "2.0", "id": 1, "method": "x", "params": [1]} | 1 error {INVALID_REQUEST} method
"""
test_junk = scripts(
    "== junk, even blank lines or a BOM, stops no stream\n"
    + re.sub(r"(?m)^(.+?) +\| (.*)$", r">> \1\n< \2", JUNK)
    + f">> {'[' * 20000}\n< ? error {{PARSE_ERROR}}"
    + r"""
>> \xef\xbb\xbf{"jsonrpc": "2.0", "method": "notifications/x"}\x0d
[pipe] >> \x0d
[pipe] >> \x20\x09
>> {"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": ""}}
quiet
"""
)


test_batches = scripts(r"""
== in a batch, only responses share the array, and what cannot be sent fails alone | on: 2025-03-26
> [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "tell", "arguments": {"method": "x"}}}, {"jsonrpc": "2.0", "id": 2, "method":
    "tools/call", "params": {"name": "fail", "arguments": {"how": "unsent"}}}]
< - x
< [{"id": 1, "result": {}}, {"id": 2, "error": {"code": {INTERNAL_ERROR}}}]
== a batch of more members than the limit | on: 2025-03-26 | limits: {"MAX_BATCH": 3}
> [1, 2, 3, 4]
< ? error {INVALID_REQUEST}
> [1, 2, 3]
< ["*", "*", "*"]
""")


# ---- the era of a request, and the handshake


test_eras = scripts(r"""
== an unknown revision gets the newest legacy one; nothing waits | on: legacy | bare
ping => {}
[2025-11-25] initialize {"protocolVersion": "1999", "capabilities": {}, "clientInfo": {}} =>
    {"protocolVersion": "2025-11-25"}
initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}} =>
    {"protocolVersion": "{VERSION}", "instructions": "Use it gently."}
tools/list => {"tools": ["*", "..."]}
changed tools
quiet
[..2025-06-18] > - notifications/initialized
[2025-11-25] > - initialized
tools/list => {"tools": ["*", "..."], "resultType": null}
""")


@parametrize("name", ["METHODS", "NOTIFICATIONS", "ERRORS", "META", "members"])
def test_the_tables_are_those_of_the_specification(name):
    """The referee has rows of its own, in examples/testing/revisions.py."""
    flags = ("asks", "cacheable")
    if name == "members":
        theirs = {key: row[1:3] for key, row in revisions.MEMBERS.items()}
        ours = {
            member: (row.since, row.until)
            for row in mcp.FEATURES.values()
            for member in row.fields.split()
        }
    else:
        theirs = {
            key: (row.since, row.until, {*row.way}, {*row.flags.split(",")} - {""})
            for key, row in getattr(revisions, name).items()
        }
        ours = {}
        for key, row in getattr(mcp, name).items():
            marks = {flag for flag in flags if getattr(row, flag, False)}
            way = {*getattr(row, "way", "")}
            ours[str(key)] = row.since, row.until, way, marks
    for key in sorted({*ours, *theirs}):
        place = f"{key}: mcp_ref.py, then {name} of examples/testing/revisions.py"
        assert (place, ours.get(key)) == (place, theirs.get(key)), place


# ======== The core: what is offered, listed, called and read, in each revision


def session_that_is_asked(server, sent, peer=None):
    """Open a legacy session whose client fills in forms; what it hears is in `sent`.

    Returns a function that begins to serve a message from it, given by its members.
    """
    peer = peer or mcp.Peer()

    def serve(**message) -> Future:
        return begin(server.handle, {"jsonrpc": "2.0", **message}, sent.put, peer=peer)

    serve(**OPENING).result(PATIENCE)
    serve(**json.loads(READY)).result(PATIENCE)
    assert "result" in next_of(sent)
    return serve


def silent(stage: Stage):
    """Make a server whose tool sends nothing until a gate is open."""
    server = mcp.Server("silent")

    @server.tool
    def waits(gate: str, ctx: Context, asks: bool = False) -> str:
        stage.stop(gate)
        return str(ctx.list_roots()) if asks else "held"

    return server


def core(stage: Stage):
    """Make a server with rarer cases; its questions have keys, so that scripts know
    them."""
    server = mcp.Server("core", "2", title="Core", description="d")
    kept = []
    watched = []
    server.on_watch = lambda uri, ctx: watched.append(uri)
    core_questions(server)

    @server.resource("test://where")
    def where(ctx: Context) -> str:
        return ctx.list_roots(key="q")[0]["uri"]

    @server.tool
    def keeps(ctx: Context) -> dict:
        kept.append(ctx)
        if kept[1:]:  # this call has been answered
            kept[0].progress(9)
            kept[0].log("error", "late")
        who = ctx.client_info["name"], ctx.principal
        return {"a": [ctx.method, ctx.version, *who, *watched]}

    core_results(server)
    core_resources(server)
    return server


def core_results(server):
    """Add tools by what they return."""

    @server.tool
    def contents() -> list:
        notes = {"priority": 1, "lastModified": "2025-01-01T00:00:00Z"}
        return [
            mcp.text("t", annotations=notes),
            mcp.image(PNG, "image/png", annotations=None),
            mcp.audio(b"wav", "audio/wav"),
            mcp.embedded("x://z", b"\0", _meta={"m": 1}),
            mcp.link("x://y", "why", title="Y"),
        ]

    def gives(value):
        return lambda: value

    for name, value in {
        "none": None,
        "dict": {"a": (1, 2)},
        "bad": {"content": [3]},
        "big": "x" * 3_000_000,
        "whole": {"content": [mcp.text("w")], "isError": True, "_meta": {"z": 1}},
        "own": mcp.Result({"resultType": "example.org/own", "x": 1}),
        "vector": {"resultType": "vector", "result": []},
        "posing": {"content": [], "resultType": "input_required"},
        "nan": {"x": float("nan")},
        "shapeless": mcp.Result({"_meta": 7}),
    }.items():
        server.tool(name=name)(gives(value))

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def numbers(good: bool):
        return [1, 2] if good else ["x"]


def core_resources(server):
    """Add resources, templates and prompts by what they return."""
    server.resource("test://several", ttl_ms=7)(
        lambda: [
            {"text": "one"},
            {"uri": "test://other", "blob": b"two", "_meta": {"q": 1}},
        ]
    )
    server.resource("test://item/{number}/{part}")(
        lambda number, part: f"{part} of {number}"
    )
    server.completion("test://item/{number}/{part}", "part")(
        lambda typed, known: [f"{typed}{n}" for n in range(120)]
    )
    server.completion("test://item/{number}/{part}", "number")(lambda typed: ["1", "2"])
    server.prompt(name="chat")(
        lambda: [
            "one",
            {"role": "assistant", "content": "two"},
            mcp.image(PNG, "image/png"),
            mcp.audio(b"wav", "audio/wav"),
        ]
    )


def paged(stage: Stage):
    """Make a server with pages, whose handlers run where `run` decides."""
    left = []  # the exceptions that are not their callers'
    server = mcp.Server(
        "paged",
        page_size=2,
        run=lambda job: left.append(type(begin(job).exception()).__name__),
    )
    server.method("completion/complete")(
        lambda params: {"completion": {"values": list(params["argument"])}}
    )
    server.tool(name="a")(lambda: "a")

    @server.tool
    def b(what: str):
        raise {"exit": SystemExit, "key": KeyboardInterrupt, "error": ValueError}[what](
            "told you"
        )

    server.tool(name="c")(lambda: str(left))
    for name in "abcd":
        server.resource(f"test://{name}/{{x}}", name=name)(lambda x: "")
    return server


test_offers = scripts(r"""
== arguments of prompts and templates become Python values | on: memory
prompts/get {"name": "greet", "arguments": {"name": "5", "times": "2"}} => {"description": "*",
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hello, 5!Hello, 5!"}}]}
resources/read {"uri": "file:///a/b/c"} => {"contents": [{"text": "file a/b/c", "blob": null}]}
resources/read {"uri": "test://item/seven/x"} => error {INVALID_PARAMS} number
[modern] server/discover => {"capabilities": {"extensions": {"example.org/ext": {"level": 3}}}}
example.org/verb {"x": 5} => {"got": 5, "version": "{VERSION}"}
== run= decides where handlers run; an extension takes over a method | server: paged
:a => "a"
:b {"what": "exit"} => {"isError": true, "content": [{"text": "told you"}]}
:b {"what": "key"} => error {INTERNAL_ERROR}
:b {"what": "error"} => {"isError": true}
:c => "['NoneType', 'NoneType', 'KeyboardInterrupt', 'NoneType']"
completion/complete {"ref": {}, "argument": {"mine": 1}} => {"completion": {"values": ["mine"]}}
== a tool had a title among its annotations before it had one itself | on: memory
[2025-06-18..] tools/list => {"tools": ["*", {"title": "Echo!",
    "annotations": {"title": "Echoes", "readOnlyHint": true}}, "..."]}
[2025-03-26] tools/list => {"tools": ["*", {"title": null,
    "annotations": {"title": "Echoes", "readOnlyHint": true}}, "..."]}
[2024-11-05] tools/list => {"tools": ["*", {"title": null, "annotations": null}, "..."]}
== pages | on: 2025-11-25 modern memory | server: paged
resources/templates/list => {"resourceTemplates": [{"name": "a"}, {"name": "b"}],
    "nextCursor": "*"}
resources/templates/list {"cursor": "{CURSOR}"} =>
    {"resourceTemplates": [{"name": "c"}, {"name": "d"}], "nextCursor": null}
""")


test_core = scripts(
    r"""
== what a tool may return, and what it may not | on: memory
[legacy] :numbers {"good": true} => {"content": [{"text": "[1, 2]"}], "structuredContent": null}
[modern] :numbers {"good": true} => {"content": [{"text": "[1, 2]"}], "structuredContent": [1, 2]}
:numbers {"good": false} => {"isError": true, "structuredContent": null, "content": ["*"]}
[2025-06-18..] :dict => {"structuredContent": {"a": [1, 2]}, "content": ["*"]}
[..2025-03-26] :dict => "{\"a\": [1, 2]}"
:none => {"content": [], "structuredContent": null, "isError": null}
:whole => {"content": [{"text": "w"}], "isError": true, "_meta": {"z": 1}}
:bad => {"isError": true}
[modern] :own => {"resultType": "example.org/own", "x": 1, "content": null}
[modern] :vector => {"resultType": "complete", "structuredContent": {"resultType": "vector"}}
:posing => {"content": []}
[modern] :shapeless => error {INTERNAL_ERROR}
[2025-06-18..] :nan => {"isError": true}
[2025-06-18..] :contents => {"content": [{"annotations": {"priority": 1, "lastModified": "*"}},
    {}, {}, {"_meta": {"m": 1}}, {"type": "resource_link", "uri": "x://y", "title": "Y"}]}
[2025-03-26] :contents => {"content": ["*", "*", {"data": "d2F2"}, "*", {"type": "text"}]}
[2024-11-05] :contents => {"content": ["*", "*", {"resource": {"blob": "d2F2"}}, "..."]}
== contents, messages, completion and caching hints | on: memory | limits: {"MAX_COMPLETIONS": 2}
[2025-06-18..] resources/read {"uri": "test://several"} => {"contents": [
    {"uri": "test://several", "text": "one"}, {"uri": "test://other", "blob": "dHdv", "_meta": {}}]}
[modern] resources/read {"uri": "test://several"} => {"ttlMs": 7, "cacheScope": "private"}
resources/read {"uri": "test://item/7/a%20b%C3%A9"} => {"contents": [{"text": "a bé of 7"}]}
prompts/get {"name": "chat", "arguments": null} => {"messages": [{"role": "user"},
    {"role": "assistant", "content": {"text": "two"}}, {"content": {"type": "image"}}, "*"]}
[2025-03-26..] prompts/get {"name": "chat"} => {"messages": ["*", "*", "*",
    {"content": {"type": "audio", "data": "d2F2"}}]}
[2024-11-05] prompts/get {"name": "chat"} => {"messages": ["*", "*", "*",
    {"content": {"type": "resource", "resource": {"blob": "d2F2"}}}]}
completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/{number}/{part}"},
    "argument": {"name": "part", "value": "h"}} =>
    {"completion": {"values": ["h0", "h1"], "total": 120, "hasMore": true}}
completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/{number}/{part}"},
    "argument": {"name": "number", "value": ""}} =>
    {"completion": {"values": ["1", "2"], "total": 2, "hasMore": false}}
== nothing follows the response, and the context knows its request
tools/call {"name": "keeps", "_meta": {"progressToken": 1}} => {}
[2025-06-18..] :keeps => {"structuredContent": {"a": ["tools/call", "{VERSION}", "runner", null]}}
== resources ask, too; changes in a session, until it is opened again | on: legacy
resources/read {"uri": "test://where"} ? q roots/list {} -> {"roots": [{"uri": "x:"}]} =>
    {"contents": [{"text": "x:"}]}
resources/subscribe {"uri": "test://item/1/x"} => {}
resources/subscribe {"uri": "test://nothing"} => error {RESOURCE_NOT_FOUND}
changed test://several
changed test://item/1/x
< - notifications/resources/updated {"uri": "test://item/1/x"}
handshake 2025-11-25
changed test://item/1/x
[2025-06-18..] :keeps => {"structuredContent": {"a": ["*", "*", "*", "*", "test://item/1/x"]}}
== an unknown filter; the end of a subscription | on: modern | limits: {"LEAVE_SECONDS": 60}
> "" subscriptions/listen {"notifications": {"example.org/jobs": ["a", "no"]}}
< - notifications/subscriptions/acknowledged {"notifications": {"example.org/jobs": null},
    "_meta": {"{META}subscriptionId": ""}}
subscriptions/listen {"notifications": {"resourceSubscriptions": [3]}} => error {INVALID_PARAMS}
[pipe] eof
[pipe] < - notifications/cancelled {"requestId": ""}
[pipe] < "" {"resultType": "complete", "_meta": {"{META}subscriptionId": ""}}
== a notification that belongs to no request, to whom it may go | on: *
[modern] > 2 subscriptions/listen {"notifications": {"example.org/news": true,
    "notifications/tools/list_changed": true}}
[modern] < - notifications/subscriptions/acknowledged {"notifications": {}}
[modern] > 3 subscriptions/listen {"notifications": {"toolsListChanged": true}}
[modern] < - notifications/subscriptions/acknowledged
quiet
changed tools
[modern] < - notifications/tools/list_changed {"_meta": {"{META}subscriptionId": 3}}
[legacy] < - notifications/tools/list_changed
quiet
notify example.org/news {"x": 1}
[modern] < - example.org/news {"x": 1, "_meta": {"{META}subscriptionId": 2}}
[legacy] < - example.org/news {"x": 1}
notify notifications/elicitation/complete {"elicitationId": "e"}
[2025-11-25] < - notifications/elicitation/complete {"elicitationId": "e"}
quiet
== a session that is not ready hears nothing | bare | on: 2025-11-25
initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}} => {}
notify example.org/news {}
ping => {}
> - notifications/initialized
quiet
notify example.org/news {}
< - example.org/news {}
== a legacy handler that asks runs once; the same question twice | on: 2025-06-18..
[legacy] :rounds ? one elicitation/create {"message": "One?", "requestedSchema": {"type": "object",
    "properties": {"one": {"type": "integer"}}, "required": ["one"]}} ->
    {"action": "accept", "content": {"one": 1}} ? two elicitation/create {"message": "Two?"} ->
    {"action": "cancel"} => "accept cancel in 1"
:twice {"key": "b"} ? b elicitation/create {} -> {NO} => "refused"
[legacy] :twice ? a elicitation/create {} -> {NO} => "refused"
== several questions at once | on: 2025-06-18..2025-11-25
> 1 :together
< #a elicitation/create
< #b sampling/createMessage
< #c roots/list
> #c {"roots": []}
> #b {"role": "assistant", "content": {"type": "text", "text": "h"}, "model": "m"}
> #a {NO}
< 1 {"content": [{"text": "[\"model\", \"where\", \"who\"]"}]}
== one answer that is not valid ends the wait for all | on: 2025-06-18..2025-11-25 memory
> 1 :together
< #a elicitation/create
< #b sampling/createMessage
< #c roots/list
> #b {"role": "perhaps"}
< - notifications/cancelled
< - notifications/cancelled
< 1 {"isError": true}
== request state expires | on: modern memory | limits: {"STATE_SECONDS": -2}
tools/call {"name": "rounds"} => {"requestState": "*"}
tools/call {"name": "rounds", "requestState": "{STATE}"} => error {INVALID_PARAMS} requestState
== questions have the form of their revision | on: memory
[2025-06-18] :form ? q elicitation/create {"mode": null, "requestedSchema": {"properties": {
    "kind": {"type": "string", "enum": ["a"]}, "sure": {"type": "boolean", "default": true},
    "age": {"minimum": 0}}}} -> {NO} => {"isError": null}
[2025-11-25..] :form ? q elicitation/create {"mode": "form", "requestedSchema": {"properties": {
    "kind": {"enum": ["a"], "default": "a"}}}} -> {NO} => {"isError": null}
[2025-11-25] :page ? q elicitation/create {"mode": "url", "requestedSchema": null,
    "elicitationId": "*"} -> {"action": "accept"} => "answered"
[modern] :page ? q elicitation/create {"url": "https://example.org/in", "message": "Sign in",
    "elicitationId": null} -> {"action": "accept"} => {"isError": null}
[legacy] :think ? q sampling/createMessage {"maxTokens": 5, "messages": [{"role": "user",
    "content": {"type": "text", "text": "Hi"}}]} -> {} => {"isError": true}
[2025-11-25..] :tools ? q sampling/createMessage {"tools": [{"name": "t"}]} ->
    {"role": "assistant", "content": [], "model": "m"} => {"isError": null}
[legacy] :roots ? q roots/list {} -> {"roots": [{"name": "?"}]} => {"isError": true}
== a question is asked again if its answer is unusable | on: modern memory
tools/call {"name": "rounds", "inputResponses": {"one": 3}} => {"inputRequests": {"one": {}}}
"""
    + "".join(
        f"""tools/call {{"name": "rounds", "requestState": "{{STATE}}", "inputResponses":
    {given}}} => {{"inputRequests": {{"one": {{}}}}}}
"""
        for given in (
            '{"one": {}}',
            '{"one": 3}',
            '{"one": {"action": "maybe"}}',
            '{"one": {"action": "accept"}}',
            '{"one": {"action": "accept", "content": {"one": "x"}}}',
        )
    )
    + each(
        """
== the tool @2 cannot ask a client that declares @3 | on: @1 | declare: @3
[legacy] :@2 => {"isError": true}
[modern] :@2 => error {MISSING_REQUIRED_CLIENT_CAPABILITY} {"requiredCapabilities": @4}
""",
        """
2025-11-25.. memory | form | {"elicitation": {"url": {}}} | {"elicitation": {"form": {}}}
memory | page | {"elicitation": {}} | {"elicitation": {"url": {}}}
memory | tools | {"sampling": {}} | {"sampling": {"tools": {}}}
""",
    ),
    "server: core | declare: "
    '{"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}',
)


def questions(stage: Stage):
    """Make a server whose tools ask as authors do."""
    server = mcp.Server("questions")

    @server.tool
    def guests(ctx: Context) -> str:
        name = mcp.elicitation("Name?", name=str)
        answers = [ctx.ask({key: name})[key] for key in ("a", "b")]
        answers += ctx.ask({"c": name, "d": name}).values()
        return " ".join(one["content"]["name"] for one in answers)

    @server.tool
    def defaults(ctx: Context) -> str:
        how = Literal["trash", "forever"]
        answer = ctx.elicit(
            "Delete?", key="q", how=(how, "trash"), days=(Optional[int], None)
        )
        return "{how} {days}".format(**answer["content"])

    @server.tool
    def sure(ctx: Context) -> str:
        return ctx.elicit("Delete everything?", key="q")["action"]

    @server.tool
    def size(ctx: Context) -> str:
        return ctx.elicit("Which size?", key="q", size=["S", "M"])["content"]["size"]

    @server.tool
    def swallows(ctx: Context, how: str) -> str:
        try:
            ctx.elicit("Go on?", key="q")
        except BaseException:
            if how == "raises":
                raise ValueError("in `finally`") from None
        return "went on"

    @server.tool
    async def gathers(ctx: Context) -> str:
        asked = [ctx.elicit("Go on?", key=key) for key in ("q", "r")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return " ".join(one["action"] for one in found)

    return server


test_questions = scripts(
    r"""
== the same words under other keys are other questions
[modern] :guests ? a elicitation/create {} -> {"action": "accept", "content": {"name": "Ann"}}
    ? b elicitation/create {} -> {"action": "accept", "content": {"name": "Bob"}}
    => {"inputRequests": {"a": null, "b": null, "c": {}, "d": {}}}
[modern] tools/call {"name": "guests", "arguments": {}, "requestState": "{STATE}", "inputResponses": {
    "c": {"action": "accept", "content": {"name": "Cay"}},
    "d": {"action": "accept", "content": {"name": "Dan"}}}} => "Ann Bob Cay Dan"
[legacy] > 9 :guests
[legacy] < #a elicitation/create
[legacy] > #a {"action": "accept", "content": {"name": "Ann"}}
[legacy] < #b elicitation/create
[legacy] > #b {"action": "accept", "content": {"name": "Bob"}}
[legacy] < #c elicitation/create
[legacy] < #d elicitation/create
[legacy] > #d {"action": "accept", "content": {"name": "Dan"}}
[legacy] > #c {"action": "accept", "content": {"name": "Cay"}}
[legacy] < 9 {"content": [{"text": "Ann Bob Cay Dan"}]}
== a field that was left out has its default; no default is null
:defaults ? q elicitation/create {"requestedSchema": {"required": [], "properties": {
    "how": {"default": "trash"}, "days": {"type": "integer", "default": null}}}} ->
    {"action": "accept"} => "trash None"
:defaults ? q elicitation/create {} -> {"action": "accept", "content": {"days": 3}}
    => "trash 3"
== a question without fields needs no content
:sure ? q elicitation/create {} -> {"action": "accept"} => "accept"
== the choices of a field may be a list
:size ? q elicitation/create {"requestedSchema": {"properties": {"size": {"enum": ["S", "M"]}}}}
    -> {"action": "accept", "content": {"size": "S"}} => "S"
== a question that a handler swallowed is asked | on: modern
:swallows {"how": "goes on"} => {"inputRequests": {"q": {}}}
:swallows {"how": "raises"} => {"inputRequests": {"q": {}}}
:gathers => {"inputRequests": {"q": {}, "r": {}}}
""",
    'on: 2025-06-18.. memory pipe | server: questions | declare: {"elicitation": {}}',
)


def test_state_is_bound_to_the_principal_and_shared_by_the_key():
    one, two, other, named = (
        mcp.Server(name, state_key=key)
        for name, key in zip("ssst", ("k" * 16, b"k" * 16, None, "k" * 16))
    )
    for server in (one, two, other, named):
        core_questions(server)
    ann = ["ann", {"sub": 1, "of": 2}]
    state = ask(one, "tools/call", ann, name="rounds")["requestState"]
    for server, principal, good in (
        (one, ann, True),
        (two, ["ann", {"of": 2, "sub": 1}], True),
        (two, ["ann", {"sub": 1.0, "of": 2}], False),
        (two, ["ann", {"sub": True, "of": 2}], False),
        (two, "bob", False),
        (two, None, False),
        (other, ann, False),
        (named, ann, False),
    ):
        answer = ask(server, "tools/call", principal, name="rounds", requestState=state)
        assert answer.get("code") == (None if good else CODES["INVALID_PARAMS"]), answer
    one.prompt(name="rounds")(lambda: "another method")
    answer = ask(one, "prompts/get", ann, name="rounds", requestState=state)
    assert answer.get("code") == CODES["INVALID_PARAMS"], answer
    one.state_key, peer, sent = object(), mcp.Peer(), []  # it cannot sign
    for name in ("rounds", "twice"):
        one.handle(modern("tools/call", name=name), sent.append, peer=peer)
    assert [one["error"]["code"] for one in sent] == [CODES["INTERNAL_ERROR"]] * 2


def test_a_call_that_is_cancelled_or_whose_client_has_left_waits_for_no_answer():
    server, sent, ended = mcp.Server("s"), queue.Queue(), queue.Queue()

    @server.tool
    def asks(ctx: Context) -> None:
        try:
            ctx.elicit("?", x=int)
        except mcp.AskError as problem:
            ended.put(str(problem))

    peer = mcp.Peer()
    serve = session_that_is_asked(server, sent, peer)
    serve(id=2, method="tools/call", params={"name": "asks"})
    assert next_of(sent)["method"] == "elicitation/create"
    serve(method="notifications/cancelled", params={"requestId": 2})
    assert "cancelled" in next_of(ended)
    peer.close()
    # With an id of its own: that of the first call is in use until its handler returns.
    serve(id=3, method="tools/call", params={"name": "asks"})
    assert "closing" in next_of(ended)


# Without a state, the key alone has to do: the official suite sends answers before any
# question.
@parametrize("key, with_state", [("", True), ("", False), ("sure", True)])
def test_an_answer_serves_the_text_of_its_question_only(key, with_state):
    server, files = mcp.Server("s"), [1]

    @server.tool
    def delete(ctx: Context) -> str:
        return ctx.elicit(f"Delete {files[-1]}?", key=key, x=bool)["action"]

    def reply(asked: dict, state=True) -> dict:
        state = {"requestState": asked["requestState"]} if state else {}
        answers = dict.fromkeys(asked["inputRequests"], {"action": "decline"})
        given = {"name": "delete", "inputResponses": answers}
        return ask(server, "tools/call", **given, **state)

    first = ask(server, "tools/call", name="delete")
    files.append(1000)
    second = reply(first, with_state)
    assert second["inputRequests"] and reply(second)["content"][0]["text"] == "decline"
    assert key or not first["inputRequests"].keys() & second["inputRequests"].keys()
    files.pop()
    assert reply(first)["content"][0]["text"] == "decline"


def test_a_template_with_two_variables_has_one_way_to_match():
    server = mcp.Server("s")
    server.resource("img://{name}.{ext}")(lambda name, ext: f"{name} {ext}")
    server.resource("at:///{+path}/{day}-{no}?x={x}")(
        lambda path, day, no, x: f"{path} {day} {no} {x}"
    )
    server.resource("to:{a}/{b}?{+c}")(lambda a, b, c: f"{a} {b} {c}")
    server.resource("by:{a}.{+b}.{c}")(lambda a, b, c: "")
    for uri, shown in (
        ("img://a.b.png", "a.b png"),
        ("at:///a/b/2-1-3?x=4-5==", "a/b 2-1 3 4-5=="),
        ("to:a/b?c=/?d=/e", "a b c=/?d=/e"),
    ):
        answer = ask(server, "resources/read", uri=uri)
        assert answer["contents"][0]["text"] == shown, answer
    # With several ways to match, these would take hours.
    for uri in (
        "img://" + "." * 200_000 + "/",
        "at:///" + "a-/" * 70_000,
        "by:" + "x." * 90_000 + "/",
    ):
        answer = ask(server, "resources/read", uri=uri)
        assert answer["code"] == CODES["INVALID_PARAMS"]


def test_the_text_of_an_argument_may_be_as_deep_as_a_message():
    server = mcp.Server("s")

    @server.prompt
    def number(n: float) -> str:
        return str(n)

    for given in ("[" * 100_000, "NaN", "Infinity", ["5"]):
        answer = ask(server, "prompts/get", name="number", arguments={"n": given})
        assert answer["code"] == CODES["INVALID_PARAMS"], answer
    answer = ask(server, "prompts/get", name="number", arguments={"n": "5"})
    assert answer["messages"][0]["content"]["text"] == "5"


def test_an_answer_of_the_wrong_kind_is_no_answer_to_a_form_made_by_hand():
    server, sent = mcp.Server("s"), queue.Queue()

    @server.tool
    def asks(ctx: Context) -> str:
        return str(ctx.elicit("?", schema={"properties": {"a": {"type": "string"}}}))

    serve = session_that_is_asked(server, sent)
    serve(id=2, method="tools/call", params={"name": "asks"})
    ident = next_of(sent)["id"]
    serve(id=ident, result={"action": "accept", "content": [1]})
    assert "not valid" in words_of(next_of(sent)["result"])


def test_lists_are_whole_while_another_thread_unregisters():
    server = fixture(Stage())
    add = server.tools["add"]
    server.tools.update({str(number): add for number in range(20000)})
    listing = begin(lambda: [ask(server, "tools/list")["tools"] for _ in range(50)])
    while not listing.done():
        if not server.tools.pop("x", None):
            server.tools["x"] = add
    listing.result()


test_coroutines = scripts(
    r"""
== coroutines share one loop, run at the same time, and are cancelled
> 2 :coroutine {"what": "waits"}
wait waits
:coroutine => "1 mcp-loop"
:coroutine => "1 mcp-loop"
> - notifications/cancelled {"requestId": 2}
wait unwound
quiet
== a batch waits for its coroutines | on: 2025-03-26 memory pipe
> [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "coroutine"}}, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]
< [{"id": 1, "result": {"content": [{"text": "1 mcp-loop"}]}}, {"id": 2}]
== a waiting question does not hold up the end | on: 2025-11-25 pipe | declare: {"elicitation": {}}
> 1 :coroutine {"what": "asks"}
< #q elicitation/create
eof
< 1 {"isError": true}
== a coroutine asks from a thread | on: 2025-06-18.. | declare: {"elicitation": {}}
[legacy] :coroutine {"what": "asks"} ? q elicitation/create {} -> {NO} => "decline"
[modern] :coroutine {"what": "asks"} => {"inputRequests": "*"}
:coroutine {"what": "awaits"} ? q elicitation/create {} -> {NO} => "decline"
[modern] example.org/verb => error {INTERNAL_ERROR}
"""
    + (
        '[modern] :coroutine {"what": "asks in a group"} => {"inputRequests": {"q": {}}}'
        if hasattr(asyncio, "TaskGroup")
        else ""
    )
)


def test_coroutines_run_on_the_authors_loop():
    async def main():
        server = fixture(Stage(), loop=asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="loop"):
            server.run([])
        call = {"name": "coroutine", "arguments": {"what": "awaits"}}
        said = await asyncio.to_thread(ask, server, "tools/call", **call)
        assert list(said["inputRequests"]) == ["q"]
        stopped = asyncio.new_event_loop()
        said = fixture(Stage(), loop=stopped).call("coroutine")
        stopped.close()
        assert said["isError"] and "must run" in said["content"][0]["text"]
        return await asyncio.to_thread(server.call, "coroutine")

    assert asyncio.run(main())["content"][0]["text"] == "1 MainThread"


MEETING = """
import asyncio, faulthandler, os, mcp_ref
faulthandler.dump_traceback_later(%g, exit=True)
mcp_ref.LEAVE_SECONDS = 9999
server, here, ended = mcp_ref.Server("meeting"), [], []

@server.tool
async def meet(text: str) -> str:
    mine = asyncio.get_running_loop().create_future()
    here.append(mine)
    if len(here) == 60:
        here[0].set_result(None)
    await mine
    ended.append(None)
    if len(ended) < 60:
        here[len(ended)].set_result(None)
    else:
        os.write(2, b"all have met\\n")
    return text

server.run([])
"""


def start_meeting(text: str) -> tuple[Any, list[str]]:
    """Start a server, and 60 calls of a coroutine: once all run, they end in turn."""
    words = [*PYTHON, "-c", MEETING % (2 * PATIENCE)]
    server = subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1, cwd=HERE)
    calls = (
        modern("tools/call", n, name="meet", arguments={"text": text})
        for n in range(60)
    )
    return server, b"".join(map(mcp.encode, calls))


def test_the_end_waits_for_coroutines():
    server, calls = start_meeting("")
    with server:
        said, log = server.communicate(calls, 3 * PATIENCE)
    answered = [json.loads(line)["id"] for line in said.splitlines()]
    assert sorted(answered) == list(range(60)) and log == b"all have met\n"


def test_a_host_that_does_not_read_does_not_hold_up_the_loop_of_coroutines():
    server, calls = start_meeting("x" * 9000)
    with server:
        server.stdin.write(calls)
        server.stdin.flush()
        assert server.stderr.readline() == b"all have met\n"
        said, log = server.communicate(timeout=3 * PATIENCE)
    assert len(said.splitlines()) == 60 and not log


def test_a_server_that_overrides_call_handler_gets_what_a_coroutine_returns():
    class Counting(mcp.Server):
        def call_handler(self, *arguments):
            returned.append(super().call_handler(*arguments))
            return returned[-1]

    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    returned: list = []
    server = Counting("s")
    server.tool(seven)
    assert words_of(server.call("seven")) == "7" and returned == [7]


def test_what_a_copy_lacks_is_named_and_threads_may_run_out(monkeypatch):
    server, ran = mcp.Server("s"), []
    server.handle(
        {**OPENING, "params": {**OPENING["params"], "capabilities": {"x": DEEP}}},
        ran.append,
    )
    assert "result" in ran.pop()  # a member that is not kept is not checked
    monkeypatch.delattr(mcp, "serve_http")
    with pytest.raises(SystemExit, match="part II"):
        server.run(["--http", "0"])
    with exchanges(server="empty") as site:
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError):
            assert send_http(site, b"").startswith("HTTP/1.1 503 ")
        assert send_http(site, LAST).startswith("HTTP/1.1 200 ")
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
    mcp.run_aside("x", lambda: ran.append(1) or 1 / 0)
    assert ran


def test_a_step_that_is_not_in_the_table_is_named_as_a_bug():
    server, ran, sent = mcp.Server("s"), [], []
    server.tool(lambda: ran.append(1), name="t")

    def twice(work):
        work()
        with pytest.raises(RuntimeError, match="a bug .* cannot become running"):
            work()

    call = modern("tools/call", name="t", arguments={})
    server.handle(call, sent.append, start=twice)
    assert len(sent) == 1 and ran == [1]


def test_unexpected_errors_are_named_or_hidden():
    def fails(what: str) -> None:
        if what == "exit":
            sys.exit(2)
        raise mcp.ToolError("own") if what == "own" else ValueError(what)

    hidden = "the tool failed; see the server's log"
    for options, words in (
        ({}, ["SystemExit: 2", "ValueError: -7", "text", "own"]),
        ({"show_errors": False}, [hidden, hidden, hidden, "own"]),
    ):
        server = mcp.Server("s", **options)
        server.tool(fails)
        kinds = ("exit", "-7", "text", "own")
        results = [server.call("fails", what=what) for what in kinds]
        assert [words_of(result) for result in results] == words
        assert all(result["isError"] for result in results)


class Size(enum.Enum):
    SMALL = "s"


@parametrize(
    "field, value, wanted",
    [
        (datetime.date, "2026-01-31", datetime.date(2026, 1, 31)),
        (Optional[datetime.date], "2026-01-31", datetime.date(2026, 1, 31)),
        (Size, "s", Size.SMALL),
        ((Size, Size.SMALL), None, Size.SMALL),
        (list[Size], ["s"], [Size.SMALL]),
        (["a", "b"], "a", "a"),
        ({"type": "string", "format": "date"}, "2026-01-31", "2026-01-31"),
        (Optional[int], None, None),
    ],
)
@parametrize("revision", [NEWEST, NEWEST_LEGACY])
def test_an_answer_is_converted_as_arguments_are(revision, field, value, wanted):
    server, found = mcp.Server("s"), []

    @server.tool
    def asks(ctx: Context) -> None:
        found.append(ctx.elicit("?", key="k", x=field)["content"]["x"])
        ctx.elicit("And?", key="l")  # the first answer goes through request state

    def elicit(params: dict):
        return {"x": value} if params["message"] == "?" and value is not None else {}

    with client.connect(server, revision=revision, elicit=elicit) as one:
        assert not one.call_tool("asks").get("isError")
    assert found and all(one == wanted for one in found)


@parametrize(
    "option", [{"url": str}, {"key": str}, {"key": ["a", "b"]}, {"schema": "x"}]
)
def test_a_field_with_the_name_of_an_option_is_refused(option):
    server = mcp.Server("s")

    @server.tool
    def asks(ctx: Context) -> None:
        ctx.elicit("?", **option)

    sent: list = []
    call = modern("tools/call", name="asks", arguments={})
    server.handle(call, sent.append)
    (name,) = option
    assert f"{name}=" in words_of(sent[0]["result"]) and "schema=" in str(sent)


@parametrize("field", [datetime.date, Optional[datetime.date]])
def test_an_answer_that_does_not_fit_is_asked_again_with_the_reason(field):
    server, asked = mcp.Server("s"), []
    answers = [{"x": "31.1.2026"}, {"x": "2026-02-30"}, {"x": "2026-01-31"}]

    @server.tool
    def asks(ctx: Context) -> str:
        return str(ctx.elicit("When?", x=field)["content"]["x"])

    def elicit(params: dict):
        asked.append(params["message"])
        return answers[len(asked) - 1]

    with client.connect(server, revision=NEWEST, elicit=elicit) as one:
        assert words_of(one.call_tool("asks")) == "2026-01-31"
    assert asked[0] == "When?" and len(asked) == 3
    assert all("date" in one and one.endswith("\nWhen?") for one in asked[1:])


@parametrize("ordered", [True, False])
def test_a_subscription_ends_with_its_peer(ordered):
    server, sent = mcp.Server("s"), queue.Queue()
    peer, listen = (
        mcp.Peer(ordered=ordered),
        modern("subscriptions/listen", notifications={}),
    )
    end = begin(server.handle, listen, sent.put, peer=peer)
    assert "acknowledged" in next_of(sent)["method"]
    for _ in range(2):
        peer.close()
        end.result(PATIENCE)
        assert "result" in [*sent.queue][-1]
        end = begin(server.handle, listen, sent.put, peer=peer)


@parametrize("end", ["notifications/cancelled", "refused", "late"])
def test_a_coroutine_whose_question_fails_leaves_nothing_in_the_log(end, caplog):
    """What asyncio reports, it reports when a future is forgotten."""
    server, sent = mcp.Server("s"), queue.Queue()
    ended: queue.Queue = queue.Queue()

    @server.tool
    async def asks(ctx: Context) -> str:
        try:
            return str(await ctx.elicit("A?", x=int))
        finally:
            ended.put(None)

    serve = session_that_is_asked(server, sent)
    with limits(ASK_SECONDS=0.01 if end == "late" else 300):
        call = serve(id=2, method="tools/call", params={"name": "asks"})
        ident = next_of(sent)["id"]
        if end == "refused":
            serve(id=ident, error={"code": 1, "message": "no"}).result(PATIENCE)
        elif end != "late":
            serve(method=end, params={"requestId": 2}).result(PATIENCE)
        call.result(PATIENCE)
    next_of(ended)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_what_ends_a_test_passes_through_the_call_of_a_tool():
    server = mcp.Server("s")

    @server.tool
    def skips() -> None:
        pytest.skip("not here")

    @server.tool
    def is_interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.call("is_interrupted")
    with pytest.raises(pytest.skip.Exception):
        server.call("skips")


def test_a_change_right_after_the_acknowledgement_is_told():
    server, methods = mcp.Server("s"), []
    server.tool(name="any")(lambda: "")

    def send(message):
        methods.append(message["method"].rpartition("/")[2])
        if methods == ["acknowledged"]:
            server.changed("tools")

    wanted = {"toolsListChanged": True}
    server.handle(modern("subscriptions/listen", notifications=wanted), send)
    assert methods == ["acknowledged", "list_changed"]


def test_server_call_calls_a_tool():
    server = fixture(Stage())
    assert server.call("add", a=2, b=3)["structuredContent"] == {"result": 5}
    complete = server.completion("greet", "name")(lambda typed: [typed])
    assert complete("x") == ["x"]
    with pytest.raises(mcp.RpcError, match="seven"):
        server.call("fail", how="own")
    with pytest.raises(mcp.ClientLacks):
        core(Stage()).call("page")
    assert mcp.demo().call("echo", text="3")["content"] == [mcp.text("3")]


@parametrize(
    "word, mistake",
    [
        ("twice", lambda s: s.tool(name="twice")(s.tool(name="twice")(lambda: ""))),
        ("x://a", lambda s: s.resource("x://a")(s.resource("x://a")(lambda: ""))),
        ("no-scheme", lambda s: s.resource("no-scheme")(lambda: "")),
        ("{a}", lambda s: s.resource("x://{a}")(lambda: "")),
        ("noprefix", lambda s: s.method("noprefix")(lambda params: {})),
        ('"type"', lambda s: s.tool(input_schema={"type": "string"})(lambda: "")),
        ("endpoint", lambda s: mcp.serve_http(s, endpoint=mcp.Endpoint(s), cors=True)),
        ("name=", lambda s: s.tool("name")),
        ("name=", lambda s: s.prompt("name")),
        ("tool", lambda s: s.changed("tool")),
        ("roots", lambda s: s.changed("roots")),
        ("changed()", lambda s: s.notify("notifications/tools/list_changed")),
        ("clients", lambda s: s.notify("notifications/initialized")),
        ("JSON", lambda s: s.notify("example.org/x", {"x": ...})),
        ("titel", lambda s: s.tool(titel="x")(lambda: "")),
        ("resource(", lambda s: s.resource(lambda: "")),
        ("x://{a}/{a}", lambda s: s.resource("x://{a}/{a}")),
        ("x:{a}{b}", lambda s: s.resource("x:{a}{b}")(lambda a, b: "")),
        ("ftp", lambda s: client.connect("ftp://x")),
        ("1999", lambda s: client.connect(s, revision="1999-01-01")),
        # An unknown option is named with its function.
        ("tool() has no option tags=; it has", lambda s: s.tool(lambda: 1, tags=1)),
        ("prompt() has no option tags=", lambda s: s.prompt(tags=1)(lambda: "")),
        ("resource() has no option a=", lambda s: s.resource("a:b", a=1)(lambda: "")),
        ("resource() has no option", lambda s: s.resource("a:{b}", a=1)(lambda b: b)),
        ("Server() has no option tags=", lambda s: mcp.Server("s", tags=1)),
        ("type: expected str, int", lambda s: mcp.elicitation("?", type=dict)),
        ("the fields of a model, not", lambda s: mcp.elicitation("?", type=dict)),
        ("http='127.0.0.1:8000', authorize=", lambda s: s.run(auth=1)),
        ("autorize", lambda s: s.run([], autorize=print)),
        ("transport", lambda s: s.run([], transport="http")),
        ("autorize", lambda s: s.run(["--http", "0"], autorize=print)),
        ("list", lambda s: s.run("--http 0")),
    ],
)
def test_mistakes_are_refused_at_once(word, mistake):
    with pytest.raises((TypeError, ValueError), match=re.escape(word)):
        mistake(mcp.Server("s"))


def test_a_mistake_that_may_be_none_is_logged(capsys):
    server = mcp.Server("s")
    server.completion("greet", "nam")(lambda typed: [])
    server.completion("x://{a}", "b")(lambda typed: [])
    server.completion("later", "name")(lambda typed: [])
    server.tool(lambda: "")
    server.tool(lambda: "", name="two words")
    server.tool(lambda: "", name="x" * 129)
    server.tool(lambda: "", name="a.b-c_9")
    server.prompt(lambda name: name, name="greet")
    server.prompt(lambda name: name, name="later")
    server.resource("x://{a}")(lambda a: a)
    names = re.findall(r"tool '(.{1,9})", capsys.readouterr().err)
    assert names == ["<lambda>'", "two words", "xxxxxxxxx", "a.b-c_9':"]
    mcp.Endpoint(server)
    lines = capsys.readouterr().err.splitlines()
    assert re.findall(r"'(\S+)', '(\w+)'", " ".join(lines)) == [
        ("greet", "nam"),
        ("x://{a}", "b"),
    ]
    source = "import mcp_ref as m; s = m.Server('s'); s.completion('no', 'a')(lambda x: []); s.run()"
    assert "'no', 'a'" in command("-c", source).stderr


class Hiding(mcp.Server):
    """Offers everything to Ann only."""

    def offered(self, kind, ctx):
        assert ctx.version  # all of the context may be read
        return super().offered(kind, ctx) if ctx.principal == "ann" else {}


def test_a_hidden_tool_is_not_given_away_by_its_headers():
    server = Hiding("s")
    schema = {"type": "object", "properties": {"x": {**STR, "x-mcp-header": "X"}}}
    server.tool(lambda **given: "", name="t", input_schema=schema)
    keys = mcp.bearer({"of-ann": "ann", "of-bob": "bob"}, header="X-Key")
    with http_serving(server, authorize=keys) as httpd:
        with client.connect(httpd.url, headers={"X-Key": "of-bob"}) as bob:
            with pytest.raises(mcp.RpcError, match="Unknown tool"):
                bob.call_tool("t", {"x": "1"})


def test_the_log_may_be_replaced(monkeypatch, capsys):
    lines = []
    monkeypatch.setattr(mcp, "log", lines.append)
    server = mcp.Server("s")
    server.tool(lambda: 1 / 0, name="t")
    assert server.call("t")["isError"]
    assert len(lines) == 1 and "ZeroDivisionError" in lines[0]
    assert capsys.readouterr().err == ""


def test_a_log_that_raises_ends_nothing(monkeypatch):
    def broken(entry: str):
        raise BrokenPipeError("nobody reads")

    monkeypatch.setattr(mcp, "log", broken)
    source = (
        f"import sys; sys.path.insert(0, {str(MCP_REF.parent)!r})\n"
        "import mcp_ref as mcp\ndef log(entry): raise BrokenPipeError\n"
        "mcp.log = log\nmcp.Server('s').run()"
    )
    done = command(
        "-c", source, text='{\n{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    )
    refusal, answer = map(json.loads, done.stdout.splitlines())
    assert refusal["error"]["code"] == CODES["PARSE_ERROR"] and answer["result"] == {}
    with (
        exchanges(server="empty", limits={"MAX_CONNECTIONS": 1}) as site,
        socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link,
    ):
        link.sendall(LAST[:-9].replace(b"Host", b"Expect: 100-continue\r\nHost"))
        assert b"100" in link.recv(999)
        site("until POST - ping -> 200")  # soon its body is waited for


def test_what_a_caller_may_see_may_depend_on_its_capabilities():
    class Choosy(mcp.Server):
        def offered(self, kind, ctx):
            can_ask = "elicitation" in ctx.client_capabilities and ctx.client_info
            return super().offered(kind, ctx) if can_ask else {}

    server = Choosy("s")
    server.tool(lambda: "done", name="t")
    with http_serving(server) as httpd:
        with client.connect(httpd.url, elicit=lambda params: None) as one:
            assert one.modern and one.call_tool("t")["content"] == [mcp.text("done")]
        with client.connect(httpd.url) as one:
            with pytest.raises(mcp.RpcError, match="Unknown tool"):
                one.call_tool("t")


def test_each_package_may_have_its_own_copy(tmp_path):
    for name in ("one", "two"):
        package = tmp_path / name
        package.mkdir()
        shutil.copy(MCP_REF, package / "mcp_ref.py")
        package.joinpath("__init__.py").write_text("from .mcp_ref import Server\n")
    source = (
        "import one, two; assert one.Server is not two.Server; print(one.Server('s'))"
    )
    done = command("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {source}")
    assert "one.mcp_ref.Server" in done.stdout, done.stderr


PROMPT, TEMPLATE = (
    {"type": "ref/prompt", "name": "p"},
    {"type": "ref/resource", "uri": "x://{x}"},
)
TYPED = {"name": "x", "value": ""}


@parametrize(
    "method, params, refusal",
    [
        ("tools/list", {}, ""),
        ("prompts/list", {}, ""),
        ("resources/list", {}, ""),
        ("resources/templates/list", {}, ""),
        ("tools/call", {"name": "t", "arguments": {}}, "Unknown tool"),  # x is missing
        ("prompts/get", {"name": "p", "arguments": {"x": ""}}, "Unknown prompt"),
        ("resources/read", {"uri": "x://r"}, "Resource not found"),
        ("resources/read", {"uri": "x://y"}, "Resource not found"),
        ("completion/complete", {"ref": PROMPT, "argument": TYPED}, "Unknown prompt"),
        ("completion/complete", {"ref": TEMPLATE, "argument": TYPED}, "Resource not"),
    ],
)
def test_what_a_caller_may_not_use_is_unknown_to_them(method, params, refusal):
    server = Hiding("s")
    server.tool(name="t")(lambda x: "")
    server.prompt(name="p")(lambda x: "")
    server.resource("x://r")(lambda: "")
    server.resource("x://{x}")(lambda x: "")
    server.completion("p", "x")(lambda typed: [])
    known = ask(server, method, "ann", **params)
    unknown = ask(server, method, "bob", **params)
    assert "code" not in known, known
    if refusal:
        assert unknown["code"] == CODES["INVALID_PARAMS"]
        assert unknown["message"].startswith(refusal)
    else:
        assert [] in unknown.values()


def watched(stage: Stage):
    """Make a server that tells who watches what, and refuses some."""
    server = mcp.Server("watched")
    seen = []

    def watch(uri: str, ctx: Context) -> None:
        if uri.endswith("refused"):
            raise mcp.RpcError(7, "not for " + ctx.client_info["name"])
        seen.append(f"{ctx.client_info['name']} {ctx.method} {uri}")

    server.on_watch = watch
    server.resource("x://{name}")(lambda name: name)
    server.tool(lambda: " ".join(seen), name="seen")
    return server


test_watching = scripts(
    r"""
== who subscribes is known, and may be refused | on: modern memory pipe
> 1 subscriptions/listen {"notifications": {"resourceSubscriptions": ["x://a"]}}
< - notifications/subscriptions/acknowledged {}
> 2 subscriptions/listen {"notifications": {"resourceSubscriptions": ["x://refused"]}}
< 2 error 7 not for
changed x://refused
changed x://a
< - notifications/resources/updated {"uri": "x://a"}
> 3 tools/call {"name": "seen"}
< 3 {"content": [{"text": "runner subscriptions/listen x://a"}]}

== the same in a session | on: legacy
> 1 resources/subscribe {"uri": "x://a"}
< 1 {}
> 2 resources/subscribe {"uri": "x://refused"}
< 2 error 7 not for
quiet
changed x://refused
changed x://a
< - notifications/resources/updated {"uri": "x://a"}
> 3 tools/call {"name": "seen"}
< 3 {"content": [{"text": "runner resources/subscribe x://a"}]}
""",
    "server: watched",
)


# What no other test uses: public names, or the order of parameters.
PUBLIC = """Server(name,version,instructions,page_size,state_key,run,loop,ttl_ms,cache_scope)
    Server.resource(uri,name,mime_type,ttl_ms,cache_scope) Server.completion(reference,argument)
    Server.tool(function) Server.prompt(function) Server.offered(kind,ctx) AskError Context.sample(messages,key)
    META_LOG_LEVEL embedded(uri,value,mime_type) event(data,ident)
    serve_http(server,host,port,endpoint) http_server(endpoint,host,port)"""


@parametrize("entry", PUBLIC.split())
def test_public_names_and_parameters(entry):
    name, _, wanted = entry.rstrip(")").partition("(")
    value = functools.reduce(getattr, name.split("."), mcp)
    if wanted:
        given = [one for one in inspect.signature(value).parameters if one != "self"]
        assert given[: wanted.count(",") + 1] == wanted.split(",")


# ======== Schemas: type hints to JSON Schema and back, and what a schema lets through


Color = enum.Enum("Color", {"RED": "r", "BLUE": "b"})


@dataclasses.dataclass
class Order:
    """What is ordered; the class computes the total itself."""

    item: str
    color: Color = Color.RED
    points: list[Point] = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False, default=9.5)


@dataclasses.dataclass
class Nest:
    inside: Optional[Nest] = None


POINT = {
    "type": "object",
    "properties": {"x": INT, "y": {**INT, "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}


SOME = {"type": "object", "properties": {"a": INT, "b": INT}, "required": ["a"]}


def array(items, **more) -> dict:
    return {"type": "array", "items": items, **more}


def optional(schema: dict, **more) -> dict:
    return {"anyOf": [schema, NULL], **more}


HINTS: list[Any] = [
    (str, STR),
    (int, INT),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (Any, {}),
    (None, NULL),
    (dict, {"type": "object"}),
    *((x, array(STR)) for x in (list[str], tuple[str, ...])),
    # Some hosts drop a tool with an array that does not say what its items are.
    *((x, array({})) for x in (list, list[Any], tuple, typing.List, Collection)),
    (set, array({}, uniqueItems=True)),
    (dict[str, list], {"type": "object", "additionalProperties": array({})}),
    # For a validator of draft 7, which ignores prefixItems, `items` are all items.
    (tuple[int, str], array({}, prefixItems=[INT, STR], minItems=2, maxItems=2)),
    (set[str], array(STR, uniqueItems=True)),
    (dict[str, int], {"type": "object", "additionalProperties": INT}),
    (Union[int, str], {"anyOf": [INT, STR]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal["a"], {**STR, "enum": ["a"]}),
    (Color, {**STR, "enum": ["r", "b"]}),
    (Annotated[int, "y", {"minimum": 1}], {**INT, "description": "y", "minimum": 1}),
    (Annotated[int, Path()], INT),
    (Point, POINT),
    (list[Point], array(POINT)),
    *((x[int], array(INT)) for x in (Sequence, deque, Iterable, Collection)),
    (AbstractSet[str], array(STR, uniqueItems=True)),
    (Mapping[str, int], {"type": "object", "additionalProperties": INT}),
    (typing.NewType("Name", str), STR),
    (datetime.date, {**STR, "format": "date"}),
    (datetime.datetime, STR),
    (datetime.time, STR),
    (uuid.UUID, {**STR, "format": "uuid"}),
    (decimal.Decimal, {"anyOf": [{"type": "string"}, {"type": "number"}]}),
    *((kind, STR) for kind in (Path, PurePath, PurePosixPath)),
]
if sys.version_info >= (3, 10):
    HINTS.append((int | None, optional(INT)))
if hasattr(typing, "NotRequired"):
    some = TypedDict("some", {"a": "int", "b": "typing.NotRequired[int]"})
    few = TypedDict("few", {"a": "typing.Required[int]", "b": "int"}, total=False)
    HINTS += [(some, SOME), (few, SOME)]


@parametrize("hint, schema", HINTS, ids=str)
def test_a_hint_has_a_schema(hint, schema):
    assert mcp.schema_of(hint) == schema


def hinted(hint, result, function):
    def takes(x: Any = "") -> Any:
        return function(x)

    takes.__annotations__ = {"x": hint, "return": result}
    return takes


AN_ORDER = {"item": "i", "color": "r", "points": [{"x": 1, "y": 0}], "total": 9.5}
Article = TypedDict("Article", {"content": list[str]})


@parametrize(
    "hint, value, structured",
    [
        (Color, Color.RED, {"result": "r"}),
        (Optional[int], None, {"result": None}),
        (tuple[int, str], (1, "a"), {"result": [1, "a"]}),
        (set[int], {1}, {"result": [1]}),
        (Union[str, int], 1, {"result": 1}),
        (list[str], ["a"], {"result": ["a"]}),
        (Order, Order("i", points=[Point(1)]), AN_ORDER),
        (Article, {"content": ["a"]}, {"content": ["a"]}),
        (str, "text", None),
        (None, None, None),
        (list[dict[str, Any]], [], None),
    ],
)
def test_results_become_json(hint, value, structured):
    server, tool = serve_tool(hinted(Any, hint, lambda x: value))
    assert tool.get("outputSchema", {}).get("type") == (structured and "object")
    assert mcp.Schema(tool.get("outputSchema", {})).flaw(structured) is None
    assert ask(server, "tools/call", name="t").get("structuredContent") == structured


INFINITE = float("inf")
Hinted = Annotated[int, "hint"]


class Kinds:
    def method(
        self, a: int, b: Any = INFINITE, c: Hinted = 3, *, d: Any = Path, **rest: Any
    ) -> int:
        """Do something.

        Args:
            a: the first
            b (float): the second
            c: not this
        :param d: the last
        """
        return a

    decorated = functools.lru_cache(method)


@parametrize(
    "function",
    [Kinds().method, functools.lru_cache(Kinds().method), Kinds().decorated],
    ids=range(3),
)
def test_a_tool_may_be_a_method_and_is_described_by_its_docstring(function):
    server, tool = serve_tool(function)
    # What did not become the description of a parameter stays.
    assert tool["description"] == "Do something.\n\nArgs:\n    c: not this"
    # open, for **rest; JSON has neither infinity nor classes
    assert tool["inputSchema"].pop("properties") == {
        "a": {**INT, "description": "the first"},
        "b": {"description": "the second"},
        "c": {**INT, "description": "hint", "default": 3},
        "d": {"description": "the last"},
    }
    assert tool["inputSchema"] == {"type": "object", "required": ["a"]}
    answer = ask(server, "tools/call", name="t", arguments={"a": 5, "more": 1})
    assert answer["structuredContent"] == {"result": 5}


@parametrize(
    "signature, word",
    [
        ("(x: int, /)", ""),
        ("(*x: int)", ""),
        ("(x: 'Nowhere')", "Nowhere"),
        ("(x: bytearray)", "bytearray"),
        ("(ctx)", "ctx: Context"),
        ("(a: Context, b: Context)", "Context"),
        ("() -> bytes", "bytes"),
        ("(x: dict[int, str])", "int"),
        ("(x: Literal[b''])", "b''"),
        ("(x: Optional[bytes])", "bytes"),
        ("(here: bytes)", "here: .*str.*input_schema="),
        ("() -> list[bytes]", "result: .*str.*output_schema="),
        ("(self, x: int)", "self"),
        ("(*x: int)", "\\*args.*wraps"),
        ("(x: Nest)", "itself"),
    ],
)
def test_a_signature_that_cannot_be_served_is_refused_by_name(signature, word):
    scope = dict(globals())
    exec(f"def wrong{signature}: ...", scope)
    with pytest.raises(TypeError, match="wrong.*" + word):
        mcp.Server("s").tool(scope["wrong"])


class Finder:
    """Find notes."""

    def __init__(self, notes):
        self.notes = notes

    def __call__(self, word: str, limit: int = 9) -> list[str]:
        return [note for note in self.notes if word in note][:limit]

    def find(self, word: str, limit: int = 9) -> list[str]:
        """Find notes."""
        return self(word, limit)

    @classmethod
    def find_in(cls, notes, word: str, limit: int = 9) -> list[str]:
        """Find notes."""
        return cls(notes)(word, limit)


class CompiledCoroutine(Coroutine):
    """What an `async def` compiled by Cython returns: no types.CoroutineType."""

    def __init__(self, coroutine):
        self.coroutine = coroutine
        self.close, self.throw = coroutine.close, coroutine.throw

    def send(self, value):
        return self.coroutine.send(value)

    def throw(self, *problem):
        raise AssertionError

    def __await__(self):
        return self.coroutine.__await__()


@parametrize(
    "function, name",
    [
        (functools.partial(Finder.find_in, ["ab", "b"]), "find_in"),
        (functools.partial(Finder.find_in, notes=["ab", "b"]), "find_in"),
        (functools.partial(Finder.find, Finder(["ab", "b"])), "find"),
        (functools.partial(Finder(["ab", "b"])), "Finder"),
        (Finder(["ab", "b"]), "Finder"),
        (Finder(["ab", "b"]).find, "find"),
    ],
)
def test_whatever_can_be_called_may_be_a_tool(function, name):
    server = mcp.Server("s")
    server.tool(function)
    (tool,) = ask(server, "tools/list")["tools"]
    assert (tool["name"], tool["description"]) == (name, "Find notes.")
    assert list(tool["inputSchema"]["properties"]) == ["word", "limit"]
    assert server.call(name, word="b")["structuredContent"] == {"result": ["ab", "b"]}


@parametrize("schema", [None, {"type": "object"}])
def test_what_a_partial_passes_is_the_authors(schema):
    def query(table: str, readonly: bool = False, **others: Any) -> str:
        return f"{table} {readonly} {sorted(others)}"

    server = mcp.Server("s")
    safe = functools.partial(query, readonly=True)
    server.tool(safe, name="named", input_schema=schema)
    server.tool(functools.partial(safe, "notes"), name="both", input_schema=schema)
    assert server.call("named", table="a", x=1)["content"] == [mcp.text("a True ['x']")]
    for name, word in [("named", "readonly"), ("both", "readonly"), ("both", "table")]:
        result = server.call(
            name, **{"table": "a", word: False} if name == "named" else {word: False}
        )
        assert result["isError"]
        assert word in result["content"][0]["text"]
    for tool in ask(server, "tools/list")["tools"]:
        assert "readonly" not in str(tool["inputSchema"])


def test_a_schema_by_hand_may_name_what_a_partial_passes():
    server = mcp.Server("s")
    schema = {"type": "object", "properties": {"x": INT}}
    server.tool(functools.partial(lambda x: f"{x}", x=5), name="t", input_schema=schema)
    assert server.call("t")["content"] == [mcp.text("5")]
    assert server.call("t", x=6)["content"] == [mcp.text("6")]


def test_a_classmethod_is_registered_where_it_can_be_called():
    server = mcp.Server("s")
    with pytest.raises(TypeError, match="Class.method"):

        class Wrong:
            @server.tool
            @classmethod
            def made(cls) -> str:
                return ""

    class Right:
        @classmethod
        def made(cls) -> str:
            return cls.__name__

    server.tool(Right.made)
    assert server.call("made")["content"] == [mcp.text("Right")]


@parametrize("run", [None, lambda thunk: thunk()])
def test_a_compiled_coroutine_is_awaited(run):
    async def answer(x: int) -> str:
        await asyncio.sleep(0)
        return f"{x}!"

    server = mcp.Server("s", run=run)
    server.tool(name="t")(lambda x=5: CompiledCoroutine(answer(x)))
    assert server.call("t")["content"] == [mcp.text("5!")]


def test_with_an_input_schema_no_hint_is_looked_at():
    server = mcp.Server("s")
    schema = {"type": "object", "properties": {"path": STR}}

    @server.tool(input_schema=schema)
    def read(path: Nowhere, ctx: Context) -> Path:  # type: ignore # noqa: F821
        return f"{path} {ctx.method}"

    @server.tool(input_schema=schema)
    def write(path: Path, context: Context) -> Path:
        return f"{path} {context.method}"

    for tool in ask(server, "tools/list")["tools"]:
        assert tool["inputSchema"] == schema and "outputSchema" not in tool
        result = server.call(tool["name"], path="p")
        assert result["content"] == [mcp.text("p tools/call")]


def test_none_as_the_default_means_optional_in_every_python():
    def takes(a: int = None, b: Any = None, c=None) -> str:
        return repr((a, b, c))

    server, tool = serve_tool(takes)
    others = dict.fromkeys("bc", {"default": None})
    assert tool["inputSchema"]["properties"] == {
        "a": optional(INT, default=None),
        **others,
    }
    assert "required" not in tool["inputSchema"]
    assert server.call("t", a=None)["content"] == [mcp.text("(None, None, None)")]
    assert server.call("t", a="x")["isError"]


def a_row_of_a_database():
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as rows:
        rows.row_factory = sqlite3.Row
        return rows.execute("select 1 as a").fetchone()


@parametrize(
    "value, place, word",
    [
        ([{"price": 1.5}, {"price": float("nan")}], "/1/price", "None for NaN"),
        ({"rows": {"a/b": float("-inf")}}, "/rows/a~1b", "None for NaN"),
        ({"a": [threading.Lock()]}, "/a/0", "lock"),
        (b"raw", "/", "image()"),
        ({"x": (i for i in ())}, "/x", "make a list"),
        (datetime.timedelta(1), "/", ".total_seconds()"),
        ({"x": object()}, "/x", "use a dict"),
        (a_row_of_a_database(), "/", "dict()"),
    ],
)
def test_a_result_without_a_json_form_names_the_place_and_the_remedy(
    value, place, word
):
    server, _ = serve_tool(lambda: value)
    result = server.call("t")
    text = result["content"][0]["text"]
    assert result["isError"] and text.startswith(place + ": ")
    assert word in text
    server.resource("x://y")(lambda: value)
    server.prompt(lambda: value, name="p")
    for method, params in (
        ("resources/read", {"uri": "x://y"}),
        ("prompts/get", {"name": "p"}),
    ):
        if value != b"raw":  # which a resource may have
            assert ask(server, method, **params)["code"] == CODES["INTERNAL_ERROR"]


# ---- what people write: hints


DUE = datetime.datetime(1969, 7, 20, 20, 17, 40, tzinfo=datetime.timezone.utc)
SOME_ID = uuid.UUID(int=7)


class Trip(NamedTuple):
    """Where to go."""

    day: datetime.date
    home: Optional[Path] = None


@parametrize(
    "hint, value, structured",
    [
        (datetime.date, datetime.date(1969, 7, 20), "1969-07-20"),
        (datetime.datetime, DUE, "1969-07-20T20:17:40+00:00"),
        (uuid.UUID, SOME_ID, str(SOME_ID)),
        (decimal.Decimal, decimal.Decimal("1.10"), "1.10"),
        (Path, PurePosixPath("a/b"), "a/b"),
        (deque[int], deque([1]), [1]),
        (Trip, Trip(datetime.date(1969, 7, 20)), {"day": "1969-07-20", "home": None}),
        (Any, {Color.RED: {DUE.date(): frozenset((1,))}}, {"r": {"1969-07-20": [1]}}),
    ],
    ids=str,
)
def test_types_that_people_use_leave_as_json(hint, value, structured):
    server, tool = serve_tool(hinted(Any, hint, lambda x: value))
    answer = ask(server, "tools/call", name="t")
    text = answer["content"][0]["text"]
    assert (text if isinstance(structured, str) else json.loads(text)) == structured
    if "outputSchema" in tool:
        assert (
            mcp.Schema(tool["outputSchema"]).flaw(answer["structuredContent"]) is None
        )


ONE_TO_NINE = mcp.keywords(minimum=1, maximum=9)
LIMITED = {**INT, "minimum": 1, "maximum": 9}


@dataclasses.dataclass
class Limited:
    number: Optional[Annotated[int, ONE_TO_NINE]] = None


@parametrize(
    "hint, default, schema",
    [
        (Annotated[int, ONE_TO_NINE], ..., LIMITED),
        (Annotated[int, {"minimum": 1, "maximum": 9}], ..., LIMITED),
        (Annotated[int, {"minimum": 1, "maximum": 9}], None, optional(LIMITED)),
        (Annotated[int, ONE_TO_NINE], None, optional(LIMITED)),
        (Optional[Annotated[int, ONE_TO_NINE]], ..., optional(LIMITED)),
        (list[Annotated[int, ONE_TO_NINE]], ..., array(LIMITED)),
        (Annotated[Optional[str], "text"], None, optional(STR, description="text")),
        (Annotated[str, "text"], None, optional(STR, description="text")),
        (Optional[Annotated[str, "text"]], ..., optional(STR, description="text")),
        (Any, None, {}),
        (Optional[int], None, optional(INT)),
    ],
)
def test_options_of_a_parameter_work_everywhere(hint, default, schema):
    def takes(x): ...

    takes.__annotations__ = {"x": hint}
    if default is not ...:
        takes.__defaults__ = (default,)
        schema = {**schema, "default": default}
    _, tool = serve_tool(takes)
    assert tool["inputSchema"]["properties"] == {"x": schema}
    properties = mcp.schema_of(Limited)["properties"]
    assert properties["number"] == {"anyOf": [LIMITED, NULL], "default": None}
    form = mcp.elicitation("?", n=Annotated[int, ONE_TO_NINE])
    assert form["params"]["requestedSchema"]["properties"] == {"n": LIMITED}
    assert {ONE_TO_NINE: 1}[mcp.keywords(maximum=9, minimum=1)] == 1


def test_an_error_in_a_hint_names_the_remedy():
    scope = dict(globals())
    exec("def f(a: int, late: 'Optional[Annotated[int, [].x]]'): ...", scope)
    with pytest.raises(TypeError, match=r"f\(\): .*x.*keywords\(minimum=1\)"):
        mcp.Server("s").tool(scope["f"])


@dataclasses.dataclass
class Told:
    """A point.

    Args:
        x: across
    """

    x: int
    y: int = 5
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Untold:
    x: int


class Opened(TypedDict, total=False):
    """Some words."""

    word: str


def test_defaults_and_docstrings_of_classes_reach_the_schema():
    assert mcp.schema_of(Told) == {
        "type": "object",
        "description": "A point.",
        "required": ["x"],
        "properties": {
            "x": {**INT, "description": "across"},
            "y": {**INT, "default": 5},
            "tags": {"type": "array", "items": STR},
        },
        "additionalProperties": False,
    }
    assert "description" not in mcp.schema_of(Untold)
    assert "description" not in mcp.schema_of(Point)
    assert mcp.schema_of(Opened)["description"] == "Some words."
    assert mcp.schema_of(Trip)["description"] == "Where to go."
    assert mcp.schema_of(Optional[Told])["description"] == "A point."


# ---- pydantic


class FieldInfo:
    """What pydantic's Field() makes."""


def test_a_default_made_by_pydantics_field_is_refused():
    def takes(x: int): ...

    takes.__defaults__ = (FieldInfo(),)
    with pytest.raises(TypeError, match=r"x: .*Annotated"):
        mcp.Server("s").tool(takes)


def test_a_pydantic_model_may_be_returned_as_data_or_content():
    pydantic = pytest.importorskip("pydantic")

    class Content(pydantic.BaseModel):
        type: Literal["text"]
        text: str
        annotations: Optional[dict] = None
        meta: Optional[dict] = pydantic.Field(alias="_meta", default=None)

    class Page(pydantic.BaseModel):
        day: datetime.date
        rest: Optional[int] = None

    block = Content(type="text", text="hi")
    for value in (block, [block], {"content": [block]}):
        server, _ = serve_tool(
            lambda value=value: value, input_schema={"type": "object"}
        )
        assert server.call("t")["content"] == [mcp.text("hi")]
    server, _ = serve_tool(lambda: Page(day=DUE.date()))
    assert server.call("t")["structuredContent"] == {"day": "1969-07-20", "rest": None}


class Price:
    """A type with a schema of its own."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __repr__(self) -> str:
        return f"Price({self.cents})"

    @classmethod
    def model_json_schema(cls, mode: str) -> dict:
        if mode == "serialization":
            return {"type": "number"}
        return {"$ref": "#/$defs/p", "$defs": {"p": {"type": "string"}}}

    @classmethod
    def model_validate(cls, value: Any) -> Price:
        if not isinstance(value, str) or "." not in value:
            raise ValueError("expected euros.cents")
        return cls(int(value.replace(".", "")))

    def model_dump(self, **options: Any) -> float:
        return self.cents / 100


@dataclasses.dataclass
class Shelf:
    price: Price
    others: list[Price] = dataclasses.field(default_factory=list)


@parametrize("hint", [Price, Shelf, list[Price], Optional[Price]], ids=str)
def test_a_model_has_another_schema_for_results(hint):
    values = {Price: Price(150), Shelf: Shelf(Price(150)), list[Price]: [Price(150)]}
    server, tool = serve_tool(hinted(None, hint, lambda x: values.get(hint)))
    answer = server.call("t", x=None)
    schema = json.dumps(tool["outputSchema"])
    assert "number" in schema and "string" not in schema
    assert mcp.Schema(tool["outputSchema"]).errors(answer["structuredContent"]) == []


def test_models_of_pydantic_are_hints():
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):
        color: Color
        count: int = pydantic.Field(ge=1, alias="n")

        @pydantic.computed_field
        def twice(self) -> int:
            return 2 * self.count

    class Bag(pydantic.BaseModel):
        items: list[Item] = []

    class Chain(pydantic.BaseModel):
        next: "Optional[Chain]" = None

    Chain.model_rebuild(_types_namespace={"Chain": Chain, "Optional": Optional})
    server, tool = serve_tool(hinted(Bag, Bag, lambda x: x))
    assert "$" not in json.dumps([tool["inputSchema"], tool["outputSchema"]])
    shown = tool["inputSchema"]["properties"]["x"]["properties"]["items"]["items"]
    assert shown["properties"]["n"]["minimum"] == 1
    answer = server.call("t", x={"items": [{"color": "r", "n": "2"}]})
    item = {"color": "r", "n": 2, "twice": 4}
    assert answer["structuredContent"] == {"items": [item]}
    assert server.call("t", x='{"items": []}')["structuredContent"] == {"items": []}
    bad = server.call("t", x={"items": [{"color": "r", "n": 0}, {"color": "x"}]})
    lines = bad["content"][0]["text"].splitlines()
    places = ["/x/items/0/n", "/x/items/1/color", "/x/items/1/n"]
    assert [line.split(": ")[-2] for line in lines] == places
    with pytest.raises(TypeError, match="contains itself"):
        serve_tool(hinted(Chain, None, repr))
    with pytest.raises(TypeError, match="Chain'> contains itself"):
        mcp.schema_of(Chain)


def test_limits_of_pydantic_hold():
    pydantic = pytest.importorskip("pydantic")
    field = pydantic.Field
    upper = pydantic.AfterValidator(str.upper)
    for hint, good, bad, keyword in (
        (Annotated[int, field(ge=0, description="how many")], "5", -1, "minimum"),
        (pydantic.PositiveInt, 5, 0, "exclusiveMinimum"),
        (pydantic.conlist(int, min_length=1), [1], [], "minItems"),
        (Annotated[dict[str, int], field(min_length=1)], {"a": 1}, {}, "minProperties"),
        (Annotated[decimal.Decimal, field(gt=0)], "1.5", "-5", "anyOf"),
        (Annotated[str, upper, field(max_length=1)], "a", "ab", "maxLength"),
        (Annotated[int, "how many", field(strict=True)], 5, 5.0, "description"),
    ):
        server, tool = serve_tool(hinted(hint, None, repr))
        assert keyword in tool["inputSchema"]["properties"]["x"]
        assert "isError" not in server.call("t", x=good), hint
        assert server.call("t", x=bad)["isError"], hint


BLOCK, PICTURE = mcp.text("a"), mcp.image(b"1", "image/png")


@parametrize(
    "hint, value, blocks",
    [
        (Any, [PICTURE, {"width": 640}], [PICTURE, mcp.text('{"width": 640}')]),
        (Any, ["a", PICTURE, 640, None], [BLOCK, PICTURE, mcp.text("640")]),
        (Any, ("a", PICTURE), [BLOCK, PICTURE]),
        (Union[str, dict], PICTURE, [PICTURE]),
        (Optional[dict], PICTURE, [PICTURE]),
        (Optional[str], None, []),
        (list[Union[str, dict]], ["a", PICTURE], [BLOCK, PICTURE]),
        (Any, ["a", "b"], [mcp.text('["a", "b"]')]),
        (list, ["a"], [mcp.text('["a"]')]),
        (Any, [{"type": "text"}, 1], [mcp.text('[{"type": "text"}, 1]')]),
        (Any, [], [mcp.text("[]")]),
    ],
    ids=str,
)
def test_content_beside_data_becomes_blocks(hint, value, blocks):
    server, tool = serve_tool(hinted(Any, hint, lambda x: value))
    assert server.call("t")["content"] == blocks
    assert "outputSchema" not in tool and "structuredContent" not in server.call("t")


def test_content_of_the_official_sdk_is_content():
    # A stand-in for mcp_types.ImageContent: found by the name of its package.
    class Image:
        __module__ = "mcp_types._types"
        model_validate = model_json_schema = None

        def model_dump(self, mode, by_alias, exclude_none):
            assert exclude_none
            return PICTURE

    one = Image()
    for hint, value in ((Image, one), (list[Image], [one, "a"]), (Any, one)):
        server, tool = serve_tool(hinted(Any, hint, lambda x, value=value: value))
        assert server.call("t")["content"][0] == PICTURE
        assert "outputSchema" not in tool


@parametrize(
    "hint",
    [
        Annotated[datetime.date, {"minimum": 3}],
        Annotated[int, {"pattern": "^a"}],
        Annotated[Optional[float], {"maxItems": 3}],
        Annotated[Price, mcp.keywords(maxLength=3)],
    ],
    ids=str,
)
def test_a_limit_that_cannot_hold_is_refused(hint):
    with pytest.raises(TypeError, match="cannot limit"):
        mcp.schema_of(hint)


def test_a_hint_that_contains_itself_has_no_schema():
    with pytest.raises(TypeError, match="Nest'> contains itself"):
        mcp.schema_of(Nest)


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    items: list[T]
    first: Optional[T] = None


def test_generic_classes_and_aliases_of_members():
    shown = mcp.schema_of(Page[int])["properties"]
    assert shown["items"] == {"type": "array", "items": INT}
    assert shown["first"]["anyOf"] == [INT, NULL]
    assert mcp.schema_of(Page)["properties"]["items"] == {"type": "array", "items": {}}
    status = enum.Enum("Status", {"ON": "on", "ACTIVE": "on", "OFF": "off"})
    assert mcp.schema_of(status)["enum"] == ["on", "off"]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="typing.ReadOnly is new in 3.13")
def test_read_only_members_are_members():
    read_only, not_required = typing.ReadOnly, typing.NotRequired
    members = {"a": read_only[int], "b": not_required[read_only[int]]}
    schema = mcp.schema_of(TypedDict("members", members))
    assert schema["properties"] == {"a": INT, "b": INT} and schema["required"] == ["a"]


def test_a_signature_that_a_decorator_shows_hides_parameters():
    def with_database(function):
        @functools.wraps(function)
        def wrapper(**others):
            return function(database="db", **others)

        whole = inspect.signature(function)
        kept = [one for name, one in whole.parameters.items() if name != "database"]
        wrapper.__signature__ = whole.replace(parameters=kept)
        return wrapper

    @with_database
    def find(database: str, word: str) -> str:
        return database + word

    server, tool = serve_tool(find)
    assert list(tool["inputSchema"]["properties"]) == ["word"]
    assert server.call("t", word="a")["content"][0]["text"] == "dba"
    assert server.call("t", word="a", database="b")["isError"]


# ---- docstrings


@parametrize(
    "docstring, description, notes",
    [
        (
            """Look it up.

            Args:
                x (Optional[Tuple[int, (a)]]): the first,
                    and more
                  - y: not at this depth
                ctx: the context
            Returns:
                What was found.

            Never call this with an empty x.
            """,
            "Look it up.\n\nReturns:\n    What was found.\n\n"
            "Never call this with an empty x.",
            {"x": "the first, and more - y: not at this depth"},
        ),
        (
            """Do.

            Parameters:
              - x: one
              * `y` : two
              z: nobody
              Be careful.
            """,
            "Do.\n\nParameters:\n  z: nobody\n  Be careful.",
            {"x": "one", "y": "two"},
        ),
        (
            """Do.

            :param int x: one
              more
            :param y: two
            :returns: three
            :raises ValueError: never
            """,
            "Do.\n\n:returns: three\n:raises ValueError: never",
            {"x": "one more", "y": "two"},
        ),
        (
            """Do.

            Parameters
            ----------
            x : str
                The text.

            Example:
                x: this is not a parameter
            """,
            "Do.\n\nParameters\n----------\nx : str\n    The text.\n\n"
            "Example:\n    x: this is not a parameter",
            {},
        ),
        (
            """Do.

            Args:
                x:
                    on the next line
                y: one
                y: two
            """,
            "Do.\n\nArgs:\n    y: two",
            {"x": "on the next line", "y": "one"},
        ),
        ("Args: none.", "Args: none.", {}),
        ("", None, {}),
    ],
)
def test_no_sentence_of_a_docstring_vanishes(docstring, description, notes):
    def takes(ctx: Context, x: str = "", y: str = ""): ...

    takes.__doc__ = docstring
    _, tool = serve_tool(takes)
    assert tool.get("description") == description
    properties = tool["inputSchema"]["properties"]
    found = {name: properties[name].get("description") for name in properties}
    assert {name: note for name, note in found.items() if note} == notes
    # With a schema by hand, nothing describes a parameter. All of it stays but `ctx`.
    by_hand = {"type": "object"}
    _, tool = serve_tool(takes, input_schema=by_hand)
    words = " ".join(tool.get("description", "").split())
    for note in notes.values():
        assert note.split()[-1] in words
    assert "ctx" not in words


# ---- arguments


NUMBERS = {
    "type": "object",
    "required": ["b"],
    "properties": {"a": INT, "b": INT, "c": {"type": "array", "items": INT}},
}


@dataclasses.dataclass
class Cat:
    kind: Literal["cat"]
    lives: int


@dataclasses.dataclass
class Dog:
    kind: Literal["dog"]
    name: str


Weather = TypedDict("Weather", {"degrees": float, "sky": Color})


# A hint, an argument, and the value that the tool gets or the flaw.
ARGUMENTS = [
    (int, 1.0, 1),
    (Any, {"a": [1]}, {"a": [1]}),
    (Optional[Color], None, None),
    (Color, "b", Color.BLUE),
    (Union[int, Color], "r", Color.RED),
    (Union[int, Color], 9, 9),
    (Point, {"x": 1.0}, Point(1)),
    (set[int], [1], {1}),
    (tuple[int, Color], [5, "r"], (5, Color.RED)),
    (tuple[str, ...], ["a"], ("a",)),
    (dict[str, Point], {"k": {"x": 3}}, {"k": Point(3)}),
    (Weather, {"degrees": 1.5, "sky": "r"}, {"degrees": 1.5, "sky": Color.RED}),
    (Annotated[Color, ""], "r", Color.RED),
    (Order, {"item": "i", "points": [{"x": 1}]}, Order("i", points=[Point(1)])),
    (int, True, "/x: must be of type integer"),
    (Color, "g", "/x: must be one of"),
    (Point, {"x": 1, "z": 1}, "/x/z: "),
    (Order, {"item": "i", "points": [{"x": 1}, {}]}, "/x/points/1/x: is required"),
    # Types that people use.
    (datetime.date, "1969-07-20", DUE.date()),
    (datetime.datetime, "1969-07-20T20:17:40Z", DUE),
    (datetime.datetime, "1969-07-20 20:17:40.000+00:00", DUE),
    (datetime.time, "20:17", datetime.time(20, 17)),
    (uuid.UUID, str(SOME_ID), SOME_ID),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (decimal.Decimal, 1.5, decimal.Decimal("1.5")),
    (Path, "a/b.Z", Path("a/b.Z")),
    (PurePosixPath, "a", PurePosixPath("a")),
    (Sequence[datetime.date], ["1969-07-20"], [DUE.date()]),
    (deque[int], [1.0], deque([1])),
    (Mapping[str, Path], {"a": "b"}, {"a": Path("b")}),
    (AbstractSet[int], [1], {1}),
    (typing.NewType("Day", datetime.date), "1969-07-20", DUE.date()),
    # A union takes the first member that the value becomes one of.
    (Union[datetime.date, uuid.UUID, str], str(SOME_ID), SOME_ID),
    (Union[datetime.date, str], "soon", "soon"),
    (Optional[datetime.date], None, None),
    # One grammar in every Python: 3.11 knows further forms.
    (datetime.date, "19690720", "/x: must be a date, such as 1969-07-20"),
    (datetime.date, "1969-02-30", "/x: must be a date"),
    (datetime.datetime, "1969-07-20", "/x: must be a datetime"),
    (datetime.datetime, "1969-W29-7T20:17", "/x: must be a datetime"),
    (datetime.time, "2017", "/x: must be a time"),
    (datetime.time, "20:17:40.5", "/x: must be a time"),
    (uuid.UUID, "7", "/x: must be a UUID"),
    (decimal.Decimal, "NaN", "/x: must be a Decimal"),
    (decimal.Decimal, "1.2.3", "/x: must be a Decimal"),
    (datetime.date, 5, "/x: must be of type string"),
    (dict[str, list[datetime.date]], {"a": ["x"]}, "/x/a/0: must be a date"),
    (Optional[datetime.date], "x", "/x: must be a date"),
    # A class with the methods of a model.
    (Price, "1.50", Price(150)),
    (Price, "150", "/x: expected euros.cents"),
    (Price, 5, "/x: expected euros.cents"),
    (Optional[Price], None, None),
    (Optional[Price], "5", "/x: expected euros.cents"),
    (Union[int, Price], "1.50", Price(150)),
    (list[Price], ["1.50", "x", "y"], "/x/1: expected euros.cents\n/x/2: expected"),
    (dict[str, Price], {"a": "0.10"}, {"a": Price(10)}),
    (Shelf, {"price": "1.00", "others": ["x"]}, "/x/others/0: expected euros.cents"),
    (Shelf, {"price": "1.00"}, Shelf(Price(100))),
    (Annotated[Price, "in euros"], "0.01", Price(1)),
    # A limit holds for values that travel as text, too.
    (Annotated[decimal.Decimal, {"exclusiveMinimum": 0}], "1", decimal.Decimal(1)),
    (Annotated[decimal.Decimal, {"exclusiveMinimum": 0}], "-5", "/x: "),
    (Annotated[decimal.Decimal, {"minimum": 0.1}], "0.1", decimal.Decimal("0.1")),
    (Annotated[decimal.Decimal, {"minimum": 0.1}], "0.09", "/x: "),
    (Annotated[decimal.Decimal, {"maximum": 1}], 1, decimal.Decimal(1)),
    (Annotated[decimal.Decimal, {"maximum": 1}], "1." + "0" * 25 + "1", "/x: "),
    (Annotated[decimal.Decimal, {"multipleOf": 0.01}], "1e-2", decimal.Decimal("0.01")),
    (Annotated[decimal.Decimal, {"multipleOf": 0.01}], "1.255", "/x: "),
    (decimal.Decimal, "1e-999", decimal.Decimal("1e-999")),
    (decimal.Decimal, "1e-1000", "/x: "),
    (Annotated[decimal.Decimal, {"multipleOf": 0.01}], "1" * 5000, "/x: "),
    (Annotated[Optional[decimal.Decimal], {"maximum": 1}], None, None),
    (Annotated[Optional[decimal.Decimal], {"maximum": 1}], "2", "/x: "),
    (Annotated[uuid.UUID, {"pattern": "7$"}], str(SOME_ID), SOME_ID),
    (Annotated[uuid.UUID, {"pattern": "7$"}], str(uuid.UUID(int=8)), "/x: "),
    # The flaw of an optional argument is that of the member that was meant.
    (Optional[Cat], {"kind": "cat"}, "/x/lives: is required"),
    (Optional[Cat], {"kind": "cat", "lives": "9"}, "/x/lives: must be of type int"),
    (Optional[int], "5x", "/x: must be of type integer or null, found '5x'"),
    (Optional[int], " 5 ", "/x: must be of type integer or null, found"),
    (int, "1_000", "/x: must be of type integer, found"),
    (float, "NaN", "/x: must be of type number, found"),
    (Union[int, Cat], {"kind": "cat"}, "/x/lives: is required"),
    (Union[list[int], str], [1, "x"], "/x/1: must be of type integer"),
    (Union[Cat, Dog], {"kind": "cat", "lives": "9"}, "/x/lives: must be of type"),
    (Union[Cat, Dog, None], {"kind": "dog", "name": 5}, "/x/name: must be of type"),
    (Union[Cat, Dog], {"kind": "dog"}, "/x/name: is required"),
    (Union[Cat, Dog], {"kind": "dog", "nmae": "a"}, "/x/nmae: must not be there"),
    (Union[Cat, Dog], {"kind": "cow"}, "/x: must match at least one of"),
    (Union[int, str], [], "/x: must be of type integer or string, found []"),
    # A text is read as JSON where no text is allowed.
    (int, "5", 5),
    (int, "5.0", 5),
    (float, "-1e3", -1000.0),
    (bool, "true", True),
    (Optional[int], "null", None),
    (Optional[list[int]], "[1]\n", [1]),
    (Union[int, str], "5", "5"),
    (decimal.Decimal, "5", decimal.Decimal("5")),
]


@parametrize("kind", [set, frozenset])
def test_a_set_of_numbers_that_have_one_hash_is_refused(kind):
    """Python makes it in quadratic time: 450 kB would stop all threads for seconds."""

    def count(numbers):
        return len(numbers)

    count.__annotations__ = {"numbers": kind[int]}
    server = mcp.Server("s")
    server.tool(count)
    numbers = [number * (2**61 - 1) for number in range(101)]
    said = server.call("count", numbers=numbers)
    assert said["isError"] and "the same hash" in said["content"][0]["text"]
    assert server.call("count", numbers=numbers[1:])["content"][0]["text"] == "100"


@parametrize("hint, value, wanted", ARGUMENTS, ids=str)
def test_an_argument_becomes_a_python_value_or_is_refused(hint, value, wanted):
    server, tool = serve_tool(hinted(hint, str, repr))
    assert "$ref" not in json.dumps(tool["inputSchema"])
    result = server.call("t", x=value)
    text = result["content"][0]["text"].replace("Invalid arguments for t: ", "")
    if isinstance(wanted, str) and wanted.startswith("/x"):
        assert result["isError"] and wanted in text
    else:
        assert text == repr(wanted)


def test_all_errors_of_a_call_are_listed_up_to_ten():
    server, _ = serve_tool(lambda **others: "", input_schema=NUMBERS)
    text = server.call("t", a="x", c=[1, "y", "z"])["content"][0]["text"]
    places = [line.split(":")[-2].split()[-1] for line in text.splitlines()]
    assert places == ["/b", "/a", "/c/1", "/c/2"]
    assert len(server.call("t", c=["x"] * 99)["content"][0]["text"].splitlines()) == 10


def test_errors_are_short_whatever_a_client_calls_its_members():
    server, _ = serve_tool(hinted(dict[str, dict[str, int]], str, repr))
    text = server.call("t", x={"k" * 10**5: dict.fromkeys("abc", "?")})["content"][0]
    assert len(text["text"].splitlines()) == 3 and len(text["text"]) < 1000

    def refuse(value):
        raise ValueError(value)

    lines = mcp.TypedSchema({"type": "string"}, refuse)
    assert len(lines.errors([], "?\n" * 10**5)) == 10


def test_many_texts_are_read_in_few_passes():
    count = 0

    def convert(value):
        nonlocal count
        count += 1
        return value

    many = {f"n{i}": f"[{i}]" for i in range(200)}
    lists = mcp.TypedSchema({"type": "array"}, convert)
    server, _ = serve_tool(
        lambda **others: str(sum(isinstance(one, list) for one in others.values())),
        input_schema={"type": "object", "additionalProperties": lists},
    )
    assert "/n100: must be of type" in server.call("t", **many)["content"][0]["text"]
    assert count < 2000
    some = dict(list(many.items())[:100])
    assert server.call("t", **some)["content"][0]["text"] == "100"


def test_the_values_of_all_texts_of_a_call_are_counted(monkeypatch):
    monkeypatch.setattr(mcp, "MAX_VALUES", 1000)
    lists = {"type": "object", "additionalProperties": {"type": "array"}}
    server, _ = serve_tool(lambda **others: str(len(others)), input_schema=lists)
    text = "[" + "[]," * 150 + "1]"  # 301 values
    assert server.call("t", **dict.fromkeys("abc", text))["content"][0]["text"] == "3"
    told = server.call("t", **dict.fromkeys("abcde", text))["content"][0]["text"]
    assert "/e: must be of type array" in told and "/a" not in told


@parametrize("word", ["uniqueItems", "enum"])
def test_a_large_number_is_compared_without_its_digits(word):
    tracemalloc = pytest.importorskip("tracemalloc")  # PyPy has none

    values = [(number + 0.5) * 1e302 for number in range(2000)]
    schema = {"uniqueItems": True} if word == "uniqueItems" else {"enum": values}
    tracemalloc.start()
    try:
        mcp.Schema(schema).errors(values)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 250 * len(values)  # 300 digits each would be more


def test_titled_choices_are_one_look_up():
    choices = [{"const": f"c{i}", "title": "C"} for i in range(200)]
    schema = mcp.Schema({"items": {"oneOf": choices}})
    assert schema.errors(["c199"] * 9) == []
    assert schema.flaw(["c7", "x"]).startswith('/1: must be one of "c0", "c1"')
    twice = mcp.Schema({"oneOf": [{"const": 1}, {"const": 1.0}]})
    assert (
        twice.errors(1) and mcp.Schema({"anyOf": [{"const": 1}, INT]}).errors(2) == []
    )


def test_a_union_stops_at_the_first_branch_that_decides():
    node = {"type": "object", "properties": {"and": {"$ref": "#/$defs/filter"}}}
    branches = [node, {**node, "minProperties": 0}, {**node, "maxProperties": 9}]
    schema = {"$ref": "#/$defs/filter", "$defs": {"filter": {"anyOf": branches}}}
    value: dict = {}
    for _ in range(40):  # three branches at each level: 3 ** 40, if all were tried
        value = {"and": value}
    assert mcp.Schema(schema).flaw(value) is None
    one = {"oneOf": [{"type": "object"}, {}, schema["$defs"]["filter"]]}
    assert "exactly one" in mcp.Schema({**one, "$defs": schema["$defs"]}).flaw(value)


BY_HAND = {
    "type": "object",
    "properties": {
        "tags": {"$ref": "#/$defs/tags"},
        "text": STR,
        "either": {"anyOf": [STR, {"type": "array", "items": {}}]},
        "number": INT,
    },
    "$defs": {"tags": {"type": "array", "items": STR}},
}


@parametrize(
    "arguments, got",
    [
        ({"tags": '["a", "b"]'}, {"tags": ["a", "b"]}),
        ({"tags": ' ["a"]', "text": '["a"]'}, {"tags": ["a"], "text": '["a"]'}),
        ({"either": '["a"]'}, {"either": '["a"]'}),
        ({"tags": '["a", 5]'}, "/tags"),
        ({"tags": '{"a": 5}'}, "/tags"),
        ({"tags": "a"}, "/tags"),
        ({"tags": "[" * 99999}, "/tags"),
        ({"tags": ['["a"]', 5]}, "/tags/1"),
        ({"tags": "\ud800"}, "/tags"),
        ({"number": "5.5"}, "/number"),
    ],
    ids=lambda value: f"{value!s:.60}",
)
def test_a_list_that_arrives_as_a_string_of_json_is_taken(arguments, got):
    server, seen = mcp.Server("s"), []

    @server.tool(name="by_hand", input_schema=BY_HAND)
    def by_hand(**arguments):
        seen.append(arguments)

    @server.tool(name="hints")
    def hints(tags: Optional[list[str]] = None, text: str = "", number: int = 0, **o):
        seen.append({"tags": tags})

    for name in ("by_hand", "hints"):
        seen.clear()
        answer = ask(server, "tools/call", name=name, arguments=arguments)
        if isinstance(got, str):
            assert (
                answer["isError"] and got in answer["content"][0]["text"] and not seen
            )
        else:
            assert seen == [got if name == "by_hand" else {"tags": got.get("tags")}]


# ---- results


IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
A_LINK = mcp.link("x://y", "y", size=3, title="Y")


@parametrize(
    "value, data",
    [
        ({"title": "Home", "content": [], "total": 17}, True),
        ({"content": []}, True),
        ({"content": "text"}, True),
        ({"content": ["a"], "size": 1}, True),
        ([{"type": "text", "name": "email"}], True),
        ([{"type": "text", "text": "hi", "sender": "x"}], True),
        ([{"type": "text", "text": 5}], True),
        ([{"type": "link", "uri": "x://y"}], True),
        ({"type": "resource", "resource": {"uri": "x://y"}}, True),
        ({"type": ["text"], "text": "x"}, True),
        ({"type": "resource_link", "uri": "x://y"}, True),
        (["a", {"type": "text"}], True),
        ({"content": ["a"]}, ["a"]),
        ({"content": ["a"], "_meta": {"x": 1}}, ["a"]),
        ({"content": [], "structuredContent": {"x": 1}}, []),
        ({"content": [IMAGE, "b"], "isError": True}, [IMAGE, "b"]),
        ({"content": [{"type": "text", "name": "x"}]}, "its text|is required"),
        ({"content": [{"type": "text"}], "isError": True}, "is required"),
        ({"content": "oops", "isError": True}, "list"),
        ([IMAGE, "b"], [IMAGE, "b"]),
        ({"type": "text", "text": "x", "annotations": None}, ["x"]),
        (A_LINK, [A_LINK]),
        ("a", ["a"]),
        ([], True),
    ],
    ids=str,
)
def test_plain_data_is_data_and_content_is_whole(value, data):
    server, _ = serve_tool(lambda: value)
    result = server.call("t")
    if isinstance(data, str):
        assert result["isError"] and re.search(data, result["content"][0]["text"])
    elif data is True:
        assert json.loads(result["content"][0]["text"]) == value
        if isinstance(value, dict):
            assert result["structuredContent"] == value
    else:
        assert result["content"] == [
            mcp.text(one) if isinstance(one, str) else one for one in data
        ]
    if data is not True and not isinstance(data, str):  # it can be handed on
        again, _ = serve_tool(lambda: result)
        assert again.call("t")["content"] == result["content"]


@parametrize(
    "value",
    [
        {"role": "system", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": {"type": "text"}},
        {"role": "user", "content": "x", "name": "ann"},
        {"type": "text", "text": "x", "sender": "ann"},
        [5],
    ],
    ids=str,
)
def test_a_message_that_is_not_whole_fails(value, capsys):
    server = mcp.Server("s")
    server.prompt(lambda: value, name="p")
    assert ask(server, "prompts/get", name="p")["code"] == CODES["INTERNAL_ERROR"]
    assert "TypeError" in capsys.readouterr().err


@parametrize(
    "value, contents",
    [
        ([{"id": 7, "text": "x"}], [{"text": '[{"id": 7, "text": "x"}]'}]),
        ({"text": None}, [{"text": '{"text": null}'}]),
        ({"text": 5}, [{"text": '{"text": 5}', "mimeType": "application/json"}]),
        (["a"], [{"text": '["a"]', "mimeType": "application/json"}]),
        ([{"text": "a"}, {"blob": b"b"}], [{"text": "a"}, {"blob": "Yg=="}]),
        ({"text": "a", "uri": "x://z", "_meta": {}}, [{"text": "a", "uri": "x://z"}]),
        ({"text": "{}"}, [{"text": "{}", "mimeType": None}]),
        ("a", [{"text": "a", "mimeType": None}]),
        ([], [{"text": "[]"}]),
        (DUE, [{"text": "1969-07-20T20:17:40+00:00"}]),
    ],
    ids=str,
)
def test_contents_are_whole_or_data(value, contents):
    server = mcp.Server("s")
    server.resource("x://y")(lambda: value)
    assert not differences(
        contents, ask(server, "resources/read", uri="x://y")["contents"]
    )
    server.resource("x://yaml", mime_type="application/yaml")(lambda: {"a": 1})
    (yaml,) = ask(server, "resources/read", uri="x://yaml")["contents"]
    assert yaml["mimeType"] == "application/yaml"


def test_completions_are_strings(capsys):
    server = mcp.Server("s")
    server.prompt(lambda n: n, name="p")
    server.completion("p", "n")(lambda typed: [1, Color.RED, "x"])
    reference = {"type": "ref/prompt", "name": "p"}
    argument = {"name": "n", "value": ""}
    answer = ask(server, "completion/complete", ref=reference, argument=argument)
    assert answer["completion"]["values"] == ["1", "r", "x"]

    server.completion("p", "n")(lambda typed: typed)
    answer = ask(server, "completion/complete", ref=reference, argument=argument)
    assert answer["code"] == mcp.INTERNAL_ERROR
    assert "list of str" in capsys.readouterr().err
    params = {"ref": reference, "argument": argument, "context": {"arguments": [1]}}
    answer = ask(server, "completion/complete", **params)
    assert answer["code"] == CODES["INVALID_PARAMS"]


# ---- surrogates


def test_a_lone_surrogate_never_leaves():
    lone, face = "caf\udce9", "\U0001f600"  # as of os.fsdecode(b"caf\xe9")
    for value, sent in (
        (lone, "caf\ufffd"),
        ({lone: [face, lone]}, {"caf\ufffd": [face, "caf\ufffd"]}),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        (face + "\ud83d", face + "\ufffd"),
        ("\\ud83d " + face, "\\ud83d " + face),
        ("\\\ud83d", "\\\ufffd"),
    ):
        line = mcp.encode({"x": value})
        assert json.loads(line) == {"x": sent}
        line.decode("ascii")
    assert not mcp.is_id("\udce9") and mcp.is_id(face)


# ---- told where it is made


def test_a_question_that_is_not_awaited_is_an_error_of_the_call():
    server = mcp.Server("s")

    @server.tool
    async def forgets(ctx: Context) -> str:
        for question in (ctx.elicit("Which?", x=int), ctx.elicit("Sure?")):
            closing.append(question)
        return "done"

    @server.tool
    async def remembers(ctx: Context) -> str:
        return str(await ctx.elicit("Which?", x=int))

    closing: list = []
    with client.connect(server, elicit=lambda params: {"x": 1}) as one:
        result = one.call_tool("forgets")
        assert result["isError"] and "await" in result["content"][0]["text"]
        assert "'x': 1" in one.call_tool("remembers")["content"][0]["text"]
    for question in closing:
        question.close()


@parametrize(
    "where, options, word",
    [
        ("server", {"version": 1.2}, "version"),
        ("server", {"instructions": 5}, "instructions"),
        ("server", {"ttl_ms": -1}, "ttlMs"),
        ("server", {"cache_scope": "all"}, "cacheScope"),
        ("server", {"page_size": -1}, "pageSize"),
        ("server", {"websiteUrl": []}, "websiteUrl"),
        ("server tool prompt resource", {"title": 5}, "title"),
        ("server tool prompt resource", {"icons": ["a.png"]}, "icons/0"),
        ("server tool prompt resource", {"icons": [{"url": "a"}]}, "icons/0/src"),
        ("server tool prompt resource", {"desc": "x"}, "desc.*title"),
        ("tool resource", {"description": 5}, "description"),
        ("tool resource", {"annotations": {"readOnlyHint": "yes"}}, "/readOnlyHint"),
        ("tool resource", {"annotations": {"readonly": True}}, "/readonly"),
        ("tool resource", {"annotations": {"lastmodified": 1}}, "/lastmodified"),
        ("tool resource", {"annotations": {"priority": 2}}, "/priority"),
        ("tool resource", {"annotations": {"audience": ["me"]}}, "/audience/0"),
        ("tool resource", {"annotations": []}, "annotations"),
        ("tool resource", {"_meta": 5}, "_meta"),
        ("resource", {"size": -1}, "size"),
        ("resource", {"mime_type": 5}, "mimeType"),
        ("resource", {"ttl_ms": 1.5}, "ttlMs"),
        ("resource", {"cache_scope": ""}, "cacheScope"),
    ],
    ids=str,
)
def test_options_that_would_break_clients_are_refused(where, options, word):
    server = mcp.Server("s")
    functions = {
        "server": functools.partial(mcp.Server, "s"),
        "tool": server.tool,
        "prompt": server.prompt,
        "resource": functools.partial(server.resource, "x://y"),
    }
    for name in where.split():
        with pytest.raises((TypeError, ValueError), match=word):
            functions[name](**options)(lambda: "")
    assert not server.tools and not server.resources


@parametrize(
    "schema, words",
    [
        ({"anyOf": [{"required": ["a"]}, {}]}, ["anyOf at the root"]),
        ({"properties": {"n": {"enum": [1, 2]}}}, ["the choice 1", "the choice 2"]),
        ({"properties": {"n": {"items": {"enum": ["a", ""]}}}}, ["the choice ''"]),
        ({"properties": {"n": {"enum": ["a", None]}, "enum": True}}, []),
        ({"default": {"enum": 5}}, []),
    ],
    ids=str,
)
def test_schemas_that_hosts_refuse_are_logged_once(schema, words, capsys):
    server = mcp.Server("s")
    by_hand = {"type": "object", **schema}
    server.tool(lambda **others: "", name="t", input_schema=by_hand)
    log = capsys.readouterr().err
    assert log.count("some hosts refuse") == bool(words)
    assert all(word in log for word in words)
    assert server.call("t", n="a")["content"]
    server.tool(lambda: "", name="u", description="x" * 1025)
    assert "'u': some hosts refuse descriptions" in capsys.readouterr().err


@parametrize("version", mcp.versions("modern"))
def test_meta_has_the_order_of_its_table(version):
    sent = mcp.rules(version).meta
    assert [*sent] == [key for key in mcp.META if key in sent]


def test_names_that_hosts_refuse_are_logged_and_work(capsys):
    server = mcp.Server("s")
    server.tool(hinted(int, None, repr), name="fine-name_1")
    assert capsys.readouterr().err == ""
    server.tool(lambda: "", name="admin.tools")
    by_hand = {"type": "object", "properties": {"a b": {}}}
    server.tool(lambda **others: "", name="p", input_schema=by_hand)
    lines = capsys.readouterr().err.splitlines()
    for line, word in zip(lines, ("'admin.tools'", "'a b'")):
        assert f"refuse the name {word}" in line
    assert len(lines) == 2 and len(server.tools) == 3


def test_a_parameter_with_a_default_need_not_be_a_variable():
    server = mcp.Server("s")

    @server.resource("x://plain")
    def plain(limit: int = 5) -> str:
        return str(limit)

    @server.resource("x://{name}")
    def named(name: str, limit: int = 6) -> str:
        return f"{name} {limit}"

    assert list(server.resources) == ["x://plain"]
    for uri, text in (("x://plain", "5"), ("x://a", "a 6")):
        assert ask(server, "resources/read", uri=uri)["contents"][0]["text"] == text
    with pytest.raises(ValueError, match="variables"):
        server.resource("y://{name}")(lambda: "")


@parametrize("version", [OLDEST, NEWEST_LEGACY, NEWEST])
def test_a_handler_sees_the_headers_of_its_request(version):
    server = mcp.Server("s")

    @server.tool
    def tenant(ctx: Context) -> str:
        return str(ctx.headers.get("x-tenant"))

    with http_serving(server) as httpd:
        url = httpd.url.replace("/mcp", "/sse") if version == OLDEST else httpd.url
        for name in ("acme", "apex"):
            headers = {"X-Tenant": name}
            with client.connect(url, revision=version, headers=headers) as one:
                assert said(one, "tenant") == name
    with client.connect(server, revision=version) as one:
        assert said(one, "tenant") == "None"


def test_hostile_numbers_are_not_compared_with_each_other():
    compared = []

    class Hostile(int):
        __hash__ = int.__hash__  # of all of these: 1

        def __eq__(self, other):
            compared.append(other)
            return int(self) == int(other)

    values = [Hostile(1 + n * (2**61 - 1)) for n in range(100)]
    unique = mcp.Schema({"uniqueItems": True})
    for nested in (values, [[value] for value in values]):
        assert unique.flaw(nested) is None
        assert "twice" in unique.flaw(nested + nested[:1])
    assert len(compared) < 1000  # it would be 5,000 for each list


def test_forms_are_flat():
    asked = mcp.elicitation(
        "?",
        name=str,
        age=Annotated[int, "in years", {"minimum": 0}],
        note=Optional[str],
        kind=(Literal["a", "b"], "b"),
        many=list[Literal["a"]],
        mail={**STR, "format": "email"},
    )
    assert asked["params"]["requestedSchema"] == {
        "type": "object",
        "required": ["name", "age", "many"],
        "properties": {
            "name": STR,
            "age": {**INT, "description": "in years", "minimum": 0},
            "note": STR,
            "kind": {**STR, "enum": ["a", "b"], "default": "b"},
            "mail": {**STR, "format": "email"},
            "many": {"type": "array", "items": {**STR, "enum": ["a"]}},
        },
    }
    for hint in (dict, list[str], Point, bytes, Union[int, str]):
        with pytest.raises(TypeError, match="x: "):
            mcp.elicitation("?", x=hint)


# A schema, valid values, invalid ones with the place of the flaw and a word: as JSON.
SCHEMAS = r"""
{"type": ["integer", "null"]} | [1, 1.0, null] | [[1.5, "/: integer"], [true, "/: "]]
{"enum": [1, "a", null]} | [1, 1.0, "a", null] | [[true, "/: one of"]]
{"const": {"a": [1]}} | [{"a": [1.0]}] | [[{"a": [true]}, "/: "], [{}, "/: "]]
{"multipleOf": 0.0001} | [0.0075, 3] | [[0.00751, "/: multiple"]]
{"minimum": 1, "exclusiveMaximum": 3} | [1, 2.9, "x"] | [[0, "/: 1"], [3, "/: 3"]]
{"exclusiveMinimum": 0, "maximum": 2} | [1, 2] | [[0, "/: 0"], [3, "/: 2"]]
{"minLength": 2, "maxLength": 2} | ["a\ud83d\ude00", 5] | [["a", "/: 2"], ["abc", "/: 2"]]
{"pattern": "^a\\d$"} | ["a1", 5] | [["a1\n", "/: match"], ["a\u0664", "/: "]]
{"uniqueItems": true, "minItems": 1, "maxItems": 2} |
    [[1], [1, true]] | [[[], "/: 1"], [[1, 1.0], "/: "], [[1, 2, 3], "/: 2"]]
{"minProperties": 1, "maxProperties": 1} | [{"a": 1}] | [[{}, "/: 1"], [{"a": 1, "b": 1}, "/"]]
{"properties": {"a/b~c": {"items": {"minimum": 0}}}, "required": ["a/b~c"]} |
    [{"a/b~c": [0]}] | [[{"a/b~c": [0, -1]}, "/a~1b~0c/1: 0"], [{}, "/a~1b~0c: required"]]
{"patternProperties": {"^x": {"type": "integer"}, "_id$": {"type": "integer"}},
    "additionalProperties": {"type": "string"}} | [{"xa": 1, "b": "s", "an_id": 2}] |
    [[{"xa": "s"}, "/xa: integer"], [{"b": 1}, "/b: string"]]
{"prefixItems": [{"type": "integer"}], "items": false} |
    [[], [1]] | [[[""], "/0: "], [[1, 2], "/1: "]]
{"allOf": [{"minimum": 1}, {"maximum": 2}]} | [1] | [[3, "/: 2"], [0, "/: 1"]]
{"anyOf": [{"type": "integer"}, {"type": "string"}]} | [1, "a"] | [[[], "/: integer"]]
{"oneOf": [{"multipleOf": 2}, {"minimum": 6}]} | [2, 7] | [[6, "/: one"], [5, "/: "]]
{"not": {"type": "integer"}} | ["a"] | [[1, "/: match"]]
{"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string"}} |
    [5, ""] | [[4, "/: 5"], [[], "/: "]]
{"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": {"type": "integer"}}} | [1] | [["x", "/: integer"]]
{"$ref": "#/$defs/%C3%A9", "$defs": {"\u00e9": {"type": "integer"}}} | [1] | [["x", "/: integer"]]
{"properties": {"n": {"$ref": "#"}}, "additionalProperties": false} |
    [{"n": {"n": {}}}] | [[{"n": {"x": 1}}, "/n/x: "]]
{"contains": {"type": "integer"}, "maxContains": 2} |
    [[1], ["a", 1, 2], "x"] | [[[], "/: contain"], [["a"], "/: contain"], [[1, 2, 3], "/: 2"]]
{"contains": {"type": "integer"}, "minContains": 0} | [[], [""]] | []
{"minContains": 2, "maxContains": 0} | [[], [1]] | []
{"propertyNames": {"pattern": "^a", "maxLength": 2}} |
    [{"a": 1}, {}, ["b"]] | [[{"b": 1}, "/b: name"], [{"abc": 1}, "/abc: name"]]
{"dependentRequired": {"a": ["b/c"]}} |
    [{"b/c": 1}, {"a": 1, "b/c": 2}, ["a"]] | [[{"a": 1}, "/b~1c: required"]]
{"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}, "c": false}} |
    [{"b": ""}, {"a": 1, "b": 2}, ["a"]] | [[{"a": 1, "b": ""}, "/b: integer"], [{"c": 1}, "/: "]]
{"format": "email", "unknown": {"$ref": "http://x"}} | ["no mail", 1] | []
{"$ref": "#"} | [] | [[1, "/"]]
true | [1] | []
false | [] | [[1, "/: "]]
"""
VALIDATION = [
    tuple(map(json.loads, row.split(" | ")))
    for row in SCHEMAS.replace("\n    ", " ").strip().splitlines()
]
VALIDATION.append(({"items": {"$ref": "#"}}, [], [(DEEP, "/")]))


@parametrize("schema, valid, invalid", VALIDATION)
def test_what_a_schema_lets_through(schema, valid, invalid):
    checked = mcp.Schema(schema)
    assert [checked.flaw(value) for value in valid] == [None] * len(valid)
    for value, shown in invalid:
        place, colon, word = shown.partition(": ")
        flaw = checked.flaw(value)
        assert flaw and flaw.startswith(place + colon) and word in flaw, flaw


@parametrize(
    "schema",
    [
        3,
        None,
        {"type": "thing"},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "#/nowhere"},
        {"items": {"$ref": "http://example.org/s"}},
        {"$ref": "other.json#/a"},
        {"type": ["thing"]},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"items": {"unevaluatedProperties": {}}},
        {"items": {"unevaluatedItems": {}}},
        {"contains": 1},
        {"propertyNames": {"pattern": "("}},
        {"dependentSchemas": {"a": {"type": "thing"}}},
        {"dependentRequired": {"a": 1}},
        {"required": [[]]},
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_checked_is_refused(schema):
    with pytest.raises(ValueError):
        mcp.Schema(schema)


@pytest.mark.skipif(PYPY, reason="PyPy 7.3.11 compiles two gigabytes, and may abort")
def test_random_schemas_and_values_never_crash():
    dice = random.Random(1)
    keywords = [
        part
        for schema, _, _ in VALIDATION
        if schema not in (True, False)
        for part in schema.items()
    ]
    values = [value for _, valid, _ in VALIDATION for value in (*valid, valid)]
    for _ in range(100):  # the stage `fuzzing` has the many
        schema = {
            "items": dict(dice.sample(keywords, 2)),
            **dict(dice.sample(keywords, 3)),
        }
        with contextlib.suppress(ValueError):
            checked = mcp.Schema(schema)
            assert all((checked.flaw(value) or "/")[0] == "/" for value in values)


# ======== stdio and processes, and the command line


test_slow_tools = scripts(
    r"""
== slow tools delay neither ping nor each other | on: 2025-11-25 modern pipe
"""
    + "".join(f'> {n} :slow {{"gate": "g{n}"}}\n' for n in range(32))
    + "".join(f"wait g{n}\n" for n in range(32))
    + "quiet\n"
    + "".join(f"open g{n}\n< {n} {{}}\n" for n in reversed(range(32)))
    + r"""
== calls wait for a thread, but not for the end | on: 2025-11-25 pipe | limits: {"MAX_THREADS": 2}
> 1 :slow {"gate": "a"}
wait a
> 2 :slow {"gate": "b"}
open c
> 3 :slow {"gate": "c"}
> 4 nobody/knows
< 4 error {METHOD_NOT_FOUND}
quiet
eof
open b
< 2 {}
< 3 {}
open a
< 1 {}
== fast calls are answered in their order, beside a slow one, too
    | on: modern pipe | limits: {"BLINK_SECONDS": 0.5}
> 0 :slow {"gate": "a"}
wait a
"""
    + "".join(f'> {n} :add {{"a": {n}}}\n' for n in range(1, 40))
    + "".join(f"< {n} {{}}\n" for n in range(1, 40))
    + r"""open a
< 0 {}
== one slow handler at a time; the rest waits
    | on: modern pipe | limits: {"MAX_THREADS": 1}
> 1 :slow {"gate": "a"}
wait a
> 2 :slow {"gate": "b"}
> 3 server/discover
< 3 {}
quiet
open b
open a
< 1 {}
< 2 {}
:add {"a": 1} => "3"
== hundreds of slow calls need no thread each | on: modern pipe | limits: {"MAX_THREADS": 1}
> 1 :slow {"gate": "a"}
wait a
> 2 :threads
"""
    + "".join(f'> {n} :slow {{"gate": "a"}}\n' for n in range(3, 303))
    + """> 1000 server/discover
< 1000 {}
open a
< 1 {}
< 2 {"content": [{"text": "few"}]}
"""
    + "".join(f"< {n} {{}}\n" for n in range(3, 303))
    + r"""== subscriptions hold no slot of the tools | on: modern pipe
"""
    + "".join(
        f"""> {n} subscriptions/listen {{"notifications": {{"toolsListChanged": true}}}}
< - notifications/subscriptions/acknowledged
"""
        for n in range(2, 202)
    )
    + r"""> 0 :slow {"gate": "a"}
wait a
:add {"a": 1} => "3"
open a
< 0 {}
== what a handler does on_cancel is done once, on a thread of its own
> 12345678901234567890 :stops
wait stops
> - notifications/cancelled {"requestId": 12345678901234567890}
wait told
> - $/cancelRequest {"id": 12345678901234567890}
quiet
open told
wait told passed
once told
open stops
wait late
== too many requests in flight | on: 2025-11-25 modern pipe | limits: {"MAX_RUNNING": 1}
> 1 :slow {"gate": "a"}
wait a
> 2 tools/list
< 2 error {INTERNAL_ERROR}
open a
< 1 {}
tools/list => {}
== a question that is not answered fails | on: 2025-11-25 pipe memory
    | limits: {"ASK_SECONDS": 0.05} | declare: {"elicitation": {}}
> 1 :ask
< #q elicitation/create
< - notifications/cancelled {"requestId": {ID:#q}}
< 1 {"content": [{"text": "failed: AskError"}]}
> 2 :coroutine {"what": "awaits"}
< #r elicitation/create
< - notifications/cancelled {"requestId": {ID:#r}}
< 2 {"isError": true}
== what is too large fails alone | on: 2025-11-25 modern pipe | limits: {"MAX_MESSAGE_BYTES": 1200}
tools/list => error {INTERNAL_ERROR}
"""
    + f">> {'x' * 5000}\n"
    + """< ? error {PARSE_ERROR} larger
nobody/knows => error {METHOD_NOT_FOUND}
== so does `initialize` | on: 2025-11-25 pipe | bare | limits: {"MAX_MESSAGE_BYTES": 300}
initialize {"protocolVersion": "", "capabilities": {}, "clientInfo": {}} => error {INTERNAL_ERROR}
ping => {}
"""
)


# ---- a program, which is two functions alone, in a process of its own


def forked(generations: int, *opened: int) -> int:
    """Fork; tell whether each child finds its parent's descriptors open."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        [os.fstat(descriptor) for descriptor in opened]
        os._exit(generations and forked(generations - 1, *os.pipe()))
    finally:
        os._exit(99)


def a_program(seconds: float, say=print):
    """Serve tools that misbehave; what comes after run() is the author's."""
    import atexit

    say("printed at import")
    mcp.LEAVE_SECONDS = seconds
    server = mcp.Server("s")

    @server.tool
    def do(what: str) -> str:
        return str(
            {
                "print": lambda: print("dirt \u2603", flush=True),
                "read": lambda: sys.stdin.read(),
                "write": lambda: os.write(1, b"dirt\n"),
                "shell": lambda: os.system("echo dirt"),
                "child": lambda: subprocess.call(
                    [sys.executable, "-S", "-c", "print('dirt')"]
                ),
                "cat": lambda: subprocess.check_output(["cat"], text=True),
                "nap": lambda: threading.Event().wait(0.02),
                "forks": lambda: forked(1),
                "fork": lambda: os.fork() or os._exit(threading.Event().wait(3)),
            }[what]()
        )

    @server.tool
    def busy(what: str, ctx: mcp.Context):
        ctx.notify("example.org/started")
        while what == "computing":
            pass
        threading.Event().wait()

    atexit.register(say, "at exit")
    try:
        server.run()
        signalled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        say("after a signal" if signalled else "after")
        if signalled:
            # so soon after the first, it is ignored
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        threading.Event().wait(0.04)
        say("closed")
    sys.exit(7)


class Program(subprocess.Popen):
    """a_program(), started in "/" with next to nothing in its environment.

    If run() waits for these seconds, the test fails: end() has no such patience.
    """

    def __init__(
        self, seconds=9 * PATIENCE, before="", say="print", log=None, **env: str
    ):
        POSIX or pytest.skip(OTHER)
        source = (
            "import os, signal, subprocess, sys, threading\n"
            f"sys.path[:0] = [{str(MCP_REF.parent)!r}]\nimport mcp_ref as mcp\n"
            f"signal.alarm({3 * PATIENCE:g})\n{inspect.getsource(forked)}"
            f"{inspect.getsource(a_program)}\n"
            f"{before}\na_program({seconds}, {say})"
        )
        self.log = log or tempfile.TemporaryFile()
        strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]
        words = [*PYTHON, *strict, "-c", source]
        env = {"PATH": os.environ["PATH"], **COVERAGE, **env}
        super().__init__(words, 0, None, -1, -1, self.log, cwd="/", env=env)

    def __exit__(self, *_):
        self.kill()
        super().__exit__(None, None, None)
        self.log.close()

    def read(self):
        """Return the next message: nothing else may be on stdout."""
        line = self.stdout.readline()
        assert line.endswith(b"\n") and line.isascii(), (line, self.said())
        assert json.loads(line)["jsonrpc"] == "2.0", line
        return json.loads(line)

    def said(self) -> str:
        """Return what is on stderr, if that is a file."""
        if not self.log.seekable():
            return ""
        self.log.seek(0)
        return str(self.log.read().decode())

    def call(self, tool: str, ident=1, **arguments):
        self.stdin.write(
            mcp.encode(modern("tools/call", ident, name=tool, arguments=arguments))
        )
        return self.read()

    def end(self, how: str = "stdin") -> int:
        """Close a stream or send a signal; return the exit status."""
        if how in ("stdin", "stdout"):
            getattr(self, how).close()
        else:
            self.send_signal(getattr(signal, how))
        status = status_of(self, how)
        assert self.stdout.closed or not self.stdout.read()
        return status


def test_nothing_but_messages_is_on_stdout_and_a_trace_has_them_all(tmp_path):
    (tmp_path / "trace").write_text("before\n")
    with Program(MCP_TRACE=str(tmp_path / "trace")) as program:
        texts = {"print": "None", "write": "5", "shell": "0", "read": ""}
        texts.update({"child": "0", "cat": "", "forks": "0"})
        for what, text in texts.items():
            answer = program.call("do", what, what=what)
            assert answer["id"] == what and words_of(answer["result"]) == text
        program.stdin.write(b"junk\n")
        assert program.read()["error"] and program.end() == 7
        assert program.said().startswith("printed at import")
        assert program.said().count("dirt") == 4
    _, *lines = (tmp_path / "trace").read_bytes().decode().splitlines()
    begins, *lines, closed = [json.loads(line) for line in lines]
    version, digest = command(str(MCP_REF), "--version").stdout.split(" sha256:")
    assert begins["program"] == version
    assert begins["sha256"] == digest.strip() and begins["process"] == program.pid
    assert (closed["way"], closed["closed"]) == (">", True)
    assert [line["way"] + line["on"] for line in lines] == [">stdio", "<stdio"] * 8
    assert lines[-4]["message"]["id"] == "forks" and lines[-3]["message"] == answer
    assert lines[-2]["text"] == "junk" and re.fullmatch(TIME, lines[-2]["time"])


@parametrize("path", ["/dev/full"] * os.path.exists("/dev/full") + ["/nowhere/trace"])
def test_a_trace_that_cannot_be_written_is_said_once(path):
    with Program(MCP_TRACE=path) as program:
        assert program.call("do", what="write")["result"] and program.end() == 7
        assert (
            "Traceback" not in program.said() and program.said().count("MCP_TRACE") == 1
        )


@parametrize(
    "streams, answers",
    [
        ("<in", 1),
        ("<in >out", 1),
        ("<in >out 2>err", 1),
        ("<in 2>&-", 1),
        ("<in >out 2>&-", 1),
        ("</dev/null", 0),
        ("<&-", 0),
        ("<in >&-", 0),
        ("<&- >&- 2>&-", 0),
        ("0>x", 0),
        ("<in 1<in", 0),
    ],
)
def test_stdin_stdout_and_stderr_may_be_anything(streams, answers, tmp_path):
    call = modern("tools/call", name="do", arguments={"what": "write"})
    (tmp_path / "in").write_bytes(mcp.encode(call))
    (tmp_path / "out").touch()
    with Program() as program:
        words = program.args
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *words],
        cwd=tmp_path,
        env=COVERAGE,
        capture_output=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    out, said = done.stdout + (tmp_path / "out").read_bytes(), done.stderr.decode()
    assert (done.returncode, out.count(b"\n")) == (
        7,
        answers,
    ) and "Traceback" not in said, said
    assert answers == 0 or json.loads(out)["result"]["content"][0]["text"] == "5"


def test_a_host_that_drains_no_stderr_holds_up_nothing():
    source, out = os.pipe()
    with open(source, "rb"), open(out, "wb") as log:
        with Program(say="str", log=log) as program:
            for _ in range(1000):
                program.stdin.write(b"junk" * 50 + b"\n")
                assert program.read()["error"]
            assert program.end() == 7


@parametrize(
    "refused",
    [*(f"n > {count}" for count in range(5)), "n < 3", "n % 2", "n % 2 == 0"],
)
def test_without_threads_each_request_is_answered_once(refused):
    """Whichever threads cannot be started: all from the fifth on, the first two, ..."""
    before = textwrap.dedent(f"""
        n, start = 0, threading.Thread.start
        def refuse(thread):
            global n
            n += 1
            if {refused}:
                raise RuntimeError("can't start new thread")
            start(thread)
        threading.Thread.start = refuse""")
    with Program(before=before) as program:
        # After this, the thread that called run() may have been replaced as the reader.
        assert program.call("do", "first", what="nap")["result"]
        for ident in range(20):
            call = modern("tools/call", ident, name="do", arguments={"what": "nap"})
            program.stdin.write(mcp.encode(call))
        answers = [program.read() for _ in range(20)]
        done = sorted(one["id"] for one in answers if "result" in one)
        assert done == list(range(20))
        assert program.end() == 7 and "Traceback" not in program.said()


@parametrize("how", ["stdin", "stdout", "SIGINT", "SIGTERM"])
@parametrize(
    "tool, whats", [("do", ["write", "fork"]), ("busy", ["waiting", "computing"])]
)
def test_run_returns_quickly_and_the_program_goes_on(tool, whats, how):
    with Program(0.01 if how == "stdin" else 9 * PATIENCE) as program:
        for ident, what in enumerate(whats):
            program.call(tool, ident, what=what)
        assert program.end(how) == 7, program.said()
        said = program.said()
        after = "after a signal" if how.startswith("SIG") else "after"
        assert said.endswith(after + "\nclosed\nat exit\n"), said
        assert bool(re.search("abandoned.*busy.*busy", said)) == (tool == "busy")
        assert "Traceback" not in said and "Fatal" not in said, said


def test_end_of_input_does_not_prolong_the_end_by_a_signal():
    with Program() as program:  # some hosts do both at once
        program.call("busy", what="waiting")
        listen = modern("subscriptions/listen", 2, notifications={})
        program.stdin.write(mcp.encode(listen))
        assert "acknowledged" in program.read()["method"]
        program.send_signal(signal.SIGTERM)
        while "result" not in program.read():
            pass  # then it has seen the signal
        assert program.end() == 7, program.said()


@parametrize(
    "before, status",
    [
        ("", -signal.SIGTERM),  # a second one, later than LEAVE_SECONDS
        ("signal.raise_signal = sys.exit", signal.SIGTERM),  # so that coverage is saved
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(5))", 5),
    ],
)
def test_a_later_signal_ends_the_program(before, status):
    with Program(-1, before) as program:
        program.call("do", what="read")
        assert program.end("SIGINT") == status


@parametrize(
    "words, options, place",
    [
        ([], {}, None),
        (["--http", "1"], {}, 1),
        (["report", "--http=1", "--http", "2"], {}, 1),
        (["--http", "0"], {"http": "localhost:2"}, 2),
        ([], {"http": "2", "authorize": None, "stateless": True}, 2),
        # Another option's value, and words after `--`, are not ours.
        (["--note=--http", "1"], {}, None),
        (["--upstream=--http=1"], {}, None),
        (["--", "--http", "1"], {}, None),
        (["--note", "x --http 1"], {}, None),
        (["--note=x --http 1"], {}, None),
    ],
)
def test_run_finds_its_own_option_only(words, options, place, monkeypatch):
    found = []
    monkeypatch.setattr(mcp, "serve_stdio", lambda server: found.append(None))
    monkeypatch.setattr(
        mcp, "serve_http", lambda server, host, port, **more: found.append(port)
    )
    mcp.Server("s").run(words, **options)
    assert found == [place]


@parametrize("more", [{"authorize": None}, {"stateless": True}])
def test_options_are_checked_once(more, monkeypatch, capsys):
    monkeypatch.setattr(mcp, "serve_stdio", mcp.Server.check_completions)
    server = mcp.Server("s")
    server.completion("none", "x")(lambda typed: [])
    server.run([], **more)
    assert capsys.readouterr().err.count("no such argument") == 1


@parametrize(
    "words, status, said",
    [
        ("", None, "waiting"),
        ("--root /x --verbose", None, "waiting"),
        ("--help", 0, "--http"),
        ("-h", 0, "--http"),
        ("--port 8000", 2, "--port"),
        ("--host=x", 2, "--host"),
        ("--htpp 8000", 2, "--htpp"),
    ],
)
def test_a_terminal_is_told_what_a_host_is_not(
    words, status, said, monkeypatch, capsys
):
    served = []
    monkeypatch.setattr(mcp, "serve_stdio", served.append)
    mcp.Server("s").run(words.split())  # standard input is not a terminal
    assert served and capsys.readouterr() == ("", "")
    # This is how the null device looks on Windows.
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    mcp.Server("s").run(words.split())
    assert served.pop() and capsys.readouterr() == ("", "")
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    ended = None
    try:
        mcp.Server("s").run(words.split())
    except SystemExit as problem:
        ended = problem.code
    assert ended == status and len(served) == 1 + (status is None)
    assert said in "".join(capsys.readouterr())


@parametrize("name", ["run", "run_here"])
def test_a_server_does_not_run_inside_an_event_loop(name, monkeypatch):
    monkeypatch.setattr(mcp, "serve_stdio", lambda server: None)
    server = mcp.Server("s")

    async def main():
        getattr(server, name)([])

    with pytest.raises(RuntimeError, match="to_thread"):
        asyncio.run(main())
    getattr(server, name)([])


def test_run_here_keeps_context_variables(monkeypatch):
    seen, variable = [], contextvars.ContextVar("variable", default="unset")
    monkeypatch.setattr(mcp, "serve_stdio", lambda server: seen.append(variable.get()))

    def program():
        variable.set("set")
        mcp.Server("s").run_here([])

    contextvars.copy_context().run(program)
    assert seen == ["set"]


def test_a_call_whose_client_has_gone_leaves_the_queue_of_run():
    class Params(dict):
        """Can have a weak reference."""

    jobs, ran = [], []
    server, peer = mcp.Server("s", run=jobs.append), mcp.Peer()
    server.tool(lambda x: ran.append(x), name="t")
    message = modern("tools/call", name="t", arguments={"x": "a" * 1000})
    message["params"] = Params(message["params"])
    kept = weakref.ref(message["params"])
    thread = threading.Thread(
        target=server.handle, args=(message, lambda sent: None), kwargs={"peer": peer}
    )
    del message
    thread.start()
    while not jobs:
        time.sleep(0.001)
    peer.cancel_all()
    thread.join(PATIENCE)
    del thread
    gc.collect()
    assert kept() is None and len(jobs) == 1
    begin(server.handle, modern("tools/call", 2, name="t", arguments={"x": "b"}), print)
    while len(jobs) < 2:
        time.sleep(0.001)
    for job in jobs:  # the first one finds the second call
        job()
    assert ran == ["b"]


@parametrize("key", ["", b"", "fifteen letters", 7, object()])
def test_a_state_key_that_others_may_guess_is_refused(key):
    with pytest.raises(ValueError, match="16 bytes"):
        mcp.Server("s", state_key=key)


@parametrize("how", ["stdin", "SIGTERM"])
def test_what_is_done_on_cancel_is_done_at_the_end(how):
    before = textwrap.dedent("""
        served = mcp.Server.__init__
        def init(server, *words):
            served(server, *words)
            def cancelled():
                threading.Event().wait(0.02)
                os.write(2, b"cancelled\\n")
            @server.tool
            def waits(ctx: mcp.Context):
                ctx.on_cancel(cancelled)
                ctx.notify("example.org/started")
                threading.Event().wait()
        mcp.Server.__init__ = init""")
    with Program(0.01 if how == "stdin" else 9 * PATIENCE, before) as program:
        for ident in range(6):
            program.call("waits", ident)
        assert program.end(how) == 7
        assert program.said().count("cancelled\n") == 6


@parametrize(
    "ends",
    [
        "server.stop, server.stop",
        "server.stop, stop_the_drain",
        "lambda: signal.raise_signal(signal.SIGINT)",
    ],
    ids=["stop", "later", "SIGINT"],
)
def test_what_is_done_on_cancel_is_done_at_the_end_of_http(ends):
    source = f"""
        import re, signal, socket, sys, threading
        sys.path.insert(0, {str(MCP_REF.parent)!r})
        import mcp_ref
        server, log, ports = mcp_ref.Server("s"), mcp_ref.log, []
        mcp_ref.DRAIN_SECONDS = {3 * PATIENCE}

        def note_the_port(entry):
            ports.extend(re.findall("127.0.0.1:([0-9]+)/", entry))
            log(entry)

        mcp_ref.log = note_the_port

        def stop_the_drain():
            try:
                while True:  # as long as it accepts connections, it does not drain
                    socket.create_connection(("127.0.0.1", int(ports[0]))).close()
                    threading.Event().wait(0.01)
            except OSError:
                server.stop()

        def cancelled():
            threading.Event().wait(0.02)
            print("cancelled", flush=True)

        @server.tool
        def waits(ctx: mcp_ref.Context):
            ctx.on_cancel(cancelled)
            for number, end in enumerate([{ends}], 1):
                threading.Timer(number / 50, end).start()
            threading.Event().wait()

        server.run()"""
    with listening("-c", textwrap.dedent(source)) as (child, url):
        port = int(re.search(r"//127\.0\.0\.1:(\d+)/", url)[1])
        call = modern("tools/call", name="waits", arguments={})
        with contextlib.suppress(OSError, http.client.HTTPException):
            exchange(port, "POST", "/mcp", headers_of(call), mcp.encode(call))
        assert status_of(child, ends) == 0
        assert "cancelled" in child.stdout.read()


@needs_posix
def serve_file(path: Path, message: Any, log: Any) -> list[Any]:
    """Serve what a file has on stdio; return the answers. The tool `slow` returns when
    it is cancelled, or some time after the end of the file."""
    server, ended = mcp.Server("s"), threading.Event()

    class Watched(mcp.Pipe):
        def stop(self, patience: float = 0.05) -> None:
            super().stop(patience)
            ended.set()

    @server.tool
    def slow(ctx: Context) -> str:
        cancelled = threading.Event()
        ctx.on_cancel(cancelled.set)
        assert ended.wait(PATIENCE)
        return f"cancelled: {cancelled.wait(0.05)}"

    path.write_bytes(mcp.encode(message) if message else b"")
    out = path.with_suffix(".out")
    with open(path, "rb") as source, open(out, "wb") as answers:
        with mock.patch.object(mcp, "log", log):
            Watched(server, source.fileno(), answers.fileno()).serve()
    return [json.loads(line) for line in out.read_bytes().splitlines()]


@parametrize("seconds", [PATIENCE, 0])
def test_a_call_is_answered_after_the_end_of_a_file(seconds, tmp_path):
    call, log = modern("tools/call", name="slow"), []
    with limits(LEAVE_SECONDS=0, FILE_SECONDS=seconds):
        answers = serve_file(tmp_path / "calls", call, log.append)
    if seconds:
        assert "cancelled: False" in str(answers) and not log
    else:
        assert not answers and log == ["requests abandoned: tools/call slow"]


@parametrize("message, count", [(None, 1), (modern("tools/list"), 0)])
def test_input_that_is_closed_at_once_is_told(message, count, tmp_path):
    log: list[str] = []
    assert len(serve_file(tmp_path / "calls", message, log.append)) == 1 - count
    assert "".join(log).count("before any message") == len(log) == count


@needs_posix  # elsewhere, a socket is no descriptor
def test_the_end_of_one_client_does_not_wait_for_another():
    server, began, gate = mcp.Server("s"), threading.Event(), threading.Event()

    @server.tool
    def slow() -> bool:
        began.set()
        return gate.wait(3 * PATIENCE)

    (ann, here), (bob, there) = socket.socketpair(), socket.socketpair()
    with limits(LEAVE_SECONDS=9 * PATIENCE), ann, here, bob, there:
        first, second = (
            begin(mcp.Pipe(server, link.fileno(), link.fileno()).serve)
            for link in (here, there)
        )
        ann.sendall(mcp.encode(modern("tools/call", name="slow", arguments={})))
        assert began.wait(PATIENCE)
        bob.sendall(mcp.encode(modern("tools/list")))
        assert b"slow" in bob.makefile("rb").readline()
        bob.shutdown(socket.SHUT_WR)
        second.result(PATIENCE)
        gate.set()
        assert b"true" in ann.makefile("rb").readline()
        ann.shutdown(socket.SHUT_WR)
        first.result(PATIENCE)


def test_a_reader_without_memory_ends_the_program():
    before = textwrap.dedent("""
        open_file = os.fdopen
        class Source:
            fileno = staticmethod(lambda: 0)
            def readline(self, size):
                raise MemoryError
        def fdopen(descriptor, mode, *more, **options):
            if "r" in mode:
                return Source()
            return open_file(descriptor, mode, *more, **options)
        os.fdopen = fdopen""")
    with Program(0.01, before) as program:
        assert program.wait(PATIENCE) == 7


@needs_posix
@parametrize("words", [[], ["--http", "0"]])
def test_stop_ends_one_run(words):
    source = f"""
        import asyncio, os, signal, sys, threading, mcp_ref as mcp
        server, words = mcp.Server("s"), {words}
        server.tool(lambda: server.stop(), name="stops")
        signal.alarm({3 * PATIENCE:g})

        async def main():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, server.stop)
            loop.call_later(0.02, os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.to_thread(server.run, words)
            print("a signal of the loop", file=sys.stderr)

        server.stop()
        server.run(words)
        print("before", file=sys.stderr)
        threading.Timer(0.02, server.stop).start()
        server.run(words)
        print("a thread", file=sys.stderr)
        signal.signal(signal.SIGINT, lambda *_: server.stop())
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        server.run(words)
        print("a signal", file=sys.stderr)
        asyncio.run(main())"""
    source_end, end = os.pipe()
    with open(end, "wb"), open(source_end, "rb") as stdin:
        done = command("-c", textwrap.dedent(source), stdin=stdin)
    said = re.sub("mcp_ref: s listens on .*\n", "", done.stderr)
    steps = ["before", "a thread", "a signal", "a signal of the loop"]
    assert (done.returncode, said.splitlines()) == (0, steps)


class Quota(mcp.RpcError):
    pass


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("cannot be printed")


def errors(stage: Stage):
    """Make a server whose handlers fail in many ways."""
    server = mcp.Server("errors")

    def raises(problem):
        def handler():
            raise problem

        return handler

    for name, problem in {
        "expected": mcp.ToolError("no table 'zz'; try orders"),
        "silent": TimeoutError(),
        "key": KeyError("k"),
        "absent": mcp.NotFound("no note 7"),
        "quota": Quota(429, "slow down", {"after": 1}),
        "unprintable": Unprintable(),
    }.items():
        server.tool(raises(problem), name=name)
    server.prompt(raises(mcp.NotFound("no note 7")), name="absent")
    server.prompt(raises(mcp.NotFound()), name="nothing")
    server.resource("x:absent")(raises(mcp.NotFound("no note 7")))
    server.resource("x:nothing")(raises(mcp.NotFound()))

    return server


test_errors = scripts(
    r"""
== what a tool raises is told to the model | on: memory pipe
:expected => {"isError": true, "content": [{"text": "no table 'zz'; try orders"}]}
:silent => {"isError": true, "content": [{"text": "TimeoutError()"}]}
:key => {"isError": true, "content": [{"text": "KeyError('k')"}]}
:absent => {"isError": true, "content": [{"text": "no note 7"}]}
:quota => error 429 slow {"after": 1}
== NotFound keeps its text, and only a resource has a URI | on: memory
[modern] prompts/get {"name": "absent"} => error {INVALID_PARAMS} note
[modern] prompts/get {"name": "nothing"} => error {INVALID_PARAMS} found
[legacy] resources/read {"uri": "x:absent"} => error {RESOURCE_NOT_FOUND} note {"uri": "x:absent"}
[modern] resources/read {"uri": "x:nothing"} => error {INVALID_PARAMS} found {"uri": "x:nothing"}
== a cancelled request has ended when its handler has returned | on: memory | server: fixture
> 1 :slow {"gate": "a"}
wait a
> - notifications/cancelled {"requestId": 1}
open a
ended 1
once a passed
quiet

== whatever fails, the request is answered once and its id is free | on: memory pipe
> 5 :unprintable
< 5 error {INTERNAL_ERROR}
> 5 :expected
< 5 {"isError": true}
""",
    "server: errors",
)


@parametrize("error", [Quota(429, "slow down", {"after": 1}), mcp.ClientLacks(7)])
def test_an_error_survives_pickle_and_copy(error):
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error) and str(other) == str(error)
        assert (other.code, other.data) == (error.code, error.data)


def test_an_error_without_a_code_is_told_where_it_is_made():
    def forgets():
        raise mcp.RpcError("quota")

    server = mcp.Server("s")
    server.tool(forgets)
    assert "'quota' is not a code" in words_of(server.call("forgets"))


def test_an_expected_mistake_is_not_logged(capsys):
    server = errors(Stage())
    missing = ask(server, "prompts/get", name="absent")
    assert missing == {"code": CODES["INVALID_PARAMS"], "message": "no note 7"}
    assert server.call("expected")["isError"] and not capsys.readouterr().err
    assert server.call("silent")["isError"] and "Traceback" in capsys.readouterr().err


@parametrize("text", ["x", "\u2603"])
def test_a_long_line_of_the_log_keeps_both_ends(text, capsys):
    mcp.log(f"the beginning\n{text * 9000}\nthe end")
    said = capsys.readouterr().err
    assert said.startswith("mcp_ref: the beginning\n") and len(said.encode()) <= 4000
    assert "\nmcp_ref| ...\n" in said and said.endswith("\nmcp_ref| the end\n")


FORGED = "\nmcp_ref: 127.0.0.1 POST /mcp: 401\r\x1b[2J\x85\u2028\u202e\udc80"


@parametrize(
    "how, to",
    [
        ("tool", "stderr"),
        ("tool", "elsewhere"),
        ("path", "stderr"),
        ("path", "elsewhere"),
        ("author", "stderr"),
    ],
)
def test_a_client_cannot_write_its_own_entry_of_the_log(how, to, capsys, monkeypatch):
    if to == "elsewhere":
        monkeypatch.setattr(mcp, "log", lambda entry: print(entry, file=sys.stderr))
    server = mcp.Server("s")

    @server.tool
    def find(name: str) -> str:
        raise ValueError("no " + name)

    if how == "tool":
        server.call("find", name=FORGED + "x" * 9000)
    elif how == "path":  # as WSGI decodes it
        path = "/" + FORGED.encode("utf-8", "surrogateescape").decode("latin-1")
        one = mcp.Exchange("POST", path, [("Host", "evil")], io.BytesIO())
        mcp.Endpoint(server, hosts=["good"]).serve(one)
    else:
        mcp.log("asked for " + FORGED)
    *lines, last = capsys.readouterr().err.split("\n")
    assert all(map(str.isprintable, lines)) and not last
    assert max(map(len, lines)) < 4000
    if to == "stderr":
        begins = [line[:9] for line in lines]
        assert begins == ["mcp_ref: "] + ["mcp_ref| "] * (len(lines) - 1)
        assert any(r"\x1b[2J" in line for line in lines)


@parametrize("how", ["run", "loop", "group", "here", "prompt"])
def test_a_log_begins_with_the_authors_frame_wherever_it_ran(how, capsys):
    def on_a_thread(function):
        threading.Thread(target=function).start()

    def fails():
        return json.loads("{")

    async def in_a_loop():
        return json.loads("{")

    async def in_a_group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(in_a_loop())

    if how == "group" and not hasattr(asyncio, "TaskGroup"):
        pytest.skip("Python 3.11 has it")
    server = mcp.Server("s", run=None if how in ("here", "prompt") else on_a_thread)
    server.tool({"loop": in_a_loop, "group": in_a_group}.get(how, fails), name="fails")
    server.prompt(fails)
    # Not "unhandled errors in a TaskGroup": that is nothing a model can act on.
    words = "Key name" if PYPY else "Expecting property name"
    if how == "prompt":
        assert ask(server, "prompts/get", name="fails")["code"] == mcp.INTERNAL_ERROR
    else:
        assert words_of(server.call("fails")).startswith(words)
    log = capsys.readouterr().err
    assert "JSONDecodeError:" in log
    assert PYPY or re.search(r'File "([^"]+)", line', log)[1] == __file__


@parametrize(
    "principal, status, said",
    [
        (object(), 500, "authorize= must return a JSON"),
        *[(one, 401, "not authorized") for one in (None, False, "", [], {})],
        # 415: the next check
        *[(one, 415, "") for one in (0, 0.0, True, "a", [None], {"a": ""})],
    ],
)
def test_a_principal_is_a_json_value_that_names_somebody(
    principal, status, said, capsys
):
    site = mcp.Endpoint(mcp.Server("s"), authorize=lambda headers: principal)
    exchange = mcp.Exchange("POST", "/mcp", [], io.BytesIO())
    answers = []
    exchange.start = lambda *answer: answers.append(answer)
    site.serve(exchange)
    assert answers[0][0] == status
    assert said in capsys.readouterr().err


@parametrize("opening, closing", ["[]", ('{"a":', "}")])
@parametrize("depth, fits", [(mcp.MAX_DEPTH, True), (mcp.MAX_DEPTH + 1, False)])
def test_depth_is_bounded_before_a_message_is_decoded(depth, fits, opening, closing):
    # Brackets in strings do not count, and neither do arrays side by side.
    text = f'{opening * (depth - 1)}["{"[]]" * 999}\\"\\\\"]{closing * (depth - 1)}'
    flat = "[" + '["["],' * 999 + "0]"
    assert len(mcp.decode(flat.encode())) == 1000
    with (
        contextlib.nullcontext() if fits else pytest.raises(mcp.RpcError, match="deep")
    ):
        mcp.decode(text.encode())


# ---- the command line


def test_without_words_it_is_a_demonstration():
    done = command(str(MCP_REF), text=json.dumps(modern("tools/list")))
    (tool,) = json.loads(done.stdout)["result"]["tools"]
    assert (tool["name"], done.returncode) == ("echo", 0)


@parametrize(
    "words, keyword",
    [
        ("nonsense", "nonsense"),
        ("serve given.py", "mcp_cli.py serve"),
        ("--http", "PORT"),
        ("--http 127.0.0.1:99999", "PORT"),
        ("--http x", "PORT"),
        ("--http=x", "PORT"),
        ("--https 8000", "--https"),
    ],
)
def test_a_wrong_command_line_is_named(words, keyword):
    is_refused(called(mcp, *words.split()), keyword)


@parametrize("path", [MCP_REF, MCP_CLIENT], ids=["mcp_ref", "mcp_client"])
def test_the_changes_have_this_version(path):
    number = mcp.__version__.replace(".dev", "")
    changes = (HERE / ".github" / "CHANGELOG.md").read_text("utf-8")
    section = changes.partition(f"\n## {number} (")[2].partition("\n## ")[0]
    said = re.findall(
        r'(?m)^# mcp_\w+\.py (\S+):|^__version__ = "(.+)"$', path.read_text("utf-8")
    )
    assert ["".join(one) for one in said] == [mcp.__version__] * 2, (
        "the first lines and __version__ of both files must say the same version"
    )
    if number != mcp.__version__:
        assert section.startswith("unreleased)"), (
            f'CHANGELOG.md has no section "{number} (unreleased)"'
        )
    else:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in section, (
            f"{path.name} differs from that of release {number}, or CHANGELOG.md lacks "
            "its SHA-256. If you have changed it since: let __version__ be the next "
            'number with ".dev", as CONTRIBUTING.md says under "How a release is made".'
        )


def test_help_version_and_tables(tmp_path):
    assert "--http" in called(mcp, "--help").stdout
    ours = hashlib.sha256(MCP_REF.read_bytes()).hexdigest()
    shown = f"mcp_ref {mcp.__version__} sha256:{ours}\n"
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as archive:
        archive.write(MCP_REF, "__main__.py")
    for words in (["-m", "mcp_ref"], [str(tmp_path / "it.zip")]):
        assert command(*words, "--version").stdout == shown
    page = load("reference", HERE / "examples" / "tools" / "reference.py")
    lines = called(page, "--tables").stdout.splitlines()
    head = next(line for line in lines if all(date in line for date in ORDER))
    for table in (mcp.METHODS, mcp.NOTIFICATIONS, mcp.FEATURES, mcp.ERRORS):
        for key, row in table.items():
            start = re.compile(rf"\s*{re.escape(str(key))}(\s|$)")
            (line,) = filter(start.match, lines)
            old = getattr(row, "deprecated", "") or "9999"
            for date in ORDER:
                mark = "deprecated" if date >= old else "yes"
                shown = line[head.index(date) :][:10].strip()
                assert shown == (mark if exists(row, date) else ""), line


def test_the_import_is_lean():
    done = command("-S", "-c", "import sys, mcp_ref; print(*sorted(sys.modules))")
    heavy = "http.server socket subprocess asyncio logging dataclasses urllib inspect"
    assert "mcp_ref" in done.stdout
    assert not {*done.stdout.split()} & {*heavy.split()}, done
    assert all(hasattr(mcp, name) for name in mcp.__all__)
    for module in (mcp, client):  # a user's program may set the limits
        limits = re.findall(r"(?m)^([A-Z][A-Z_]*) = [\d.]", inspect.getsource(module))
        assert len(limits) > 10 and not set(limits) - set(module.__all__)


# ---- random bytes, and everything at once


PIECES = [b"", b"null", b'{"a":', b"[", b'"\\ud800"', b"1e999", b'"', b"}"]
PIECES += [b"\xe2\x80\xa8", b"\xff\0\x01\x80" * 5]


def test_random_bytes_never_silence_the_next_line():
    dice = random.Random(20261121)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    good = [
        modern("ping"),
        modern("tools/list", "1"),
        modern("tools/call", name="do", arguments={}),
        {**cancelled, "params": {"requestId": 1}},
    ]
    with Program() as program:
        for number in range(300):
            line = bytearray(mcp.encode(dice.choice(good)))
            place = dice.randrange(len(line))
            line[place : place + dice.choice([1, 1, 20, 500])] = dice.choice(PIECES)
            after = mcp.encode(modern("prompts/list", f"p{number}"))
            program.stdin.write(line.replace(b"\n", b" ") + b"\n" + after)
            assert any(program.read().get("id") == f"p{number}" for _ in range(2)), line
        program.stdin.write(mcp.encode(modern("prompts/list", "last")).rstrip())
        program.stdin.close()  # a last line needs no line end
        assert program.read()["id"] == "last" and program.end() == 7


def test_a_storm_leaves_nothing_behind():
    def counts() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/dev/fd")) if POSIX else 0

    def storm(seed: int):
        dice = random.Random(seed)
        for kind in [dice.random() for _ in range(5)]:
            text = "x" * dice.choice([1, 100, 100000])
            if kind < 0.2:
                with socket.create_connection(("127.0.0.1", httpd.server_port)) as link:
                    link.sendall(GOOD[: dice.randrange(len(GOOD))])
                continue
            target = httpd.url if kind < 0.95 else [*PYTHON, "-m", "mcp_ref"]
            with client.connect(
                target,
                timeout=PATIENCE,
                cwd=str(MCP_REF.parent),
                revision=dice.choice([*MODERN, *LEGACY[:-1]]),  # Streamable HTTP,
            ) as one:
                assert (
                    one.call_tool("echo", {"text": text})["content"][0]["text"] == text
                )
                if kind < 0.95:
                    with one.listen(["tools"]) as changes:
                        server.changed("tools")
                        assert next(iter(changes)) == "tools"
                if kind < 0.95 and one.modern:  # a session might be cancelled too soon
                    with contextlib.suppress(TimeoutError):
                        one.call_tool(
                            "slow", {"gate": str(dice.random())}, timeout=0.02
                        )

    server = fixture(Stage())
    with limits(MAX_SESSIONS=20), http_serving(server) as httpd:
        with client.connect(httpd.url) as one, one.listen(["tools"]):
            before = counts()  # with the watch, which the first stream starts
        for one in [begin(storm, seed) for seed in range(8)]:
            one.result()
        for _ in range(int(50 * PATIENCE)):
            if any(map(operator.gt, counts(), before)):
                threading.Event().wait(0.02)
        assert not any(map(operator.gt, counts(), before)), (counts(), before)


# ======== HTTP


def posted(message: dict, kind=mcp.Exchange, **headers: str):
    """Make the exchange of a POST of a message."""
    body = json.dumps(message).encode()
    headers = {**headers_of(message), "Content-Length": str(len(body)), **headers}
    return kind("POST", "/mcp", headers.items(), io.BytesIO(body))


@pytest.mark.skipif(PYPY, reason="PyPy does not count references")
def test_a_post_is_freed_as_soon_as_it_is_answered():
    server = mcp.Server("s")
    server.tool(lambda: "x", name="x")
    site = mcp.Endpoint(server)
    site.begin_checks = lambda: None  # its thread looks at what is served

    def post(message: dict, **session: str):
        """Serve a request; return its answer's headers, and what is left of it."""
        exchange = posted(message, **session)
        answers: list = []
        exchange.start = lambda *answer: answers.append(answer)
        site.serve(exchange)
        assert answers[0][0] == 200
        return answers[0][1], weakref.ref(exchange)

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}
    gc.disable()
    try:
        _, left = post(modern("tools/call", name="x"))
        assert left() is None
        opened, left = post(OPENING)
        assert left() is None
        _, left = post(call, **{"Mcp-Session-Id": opened["Mcp-Session-Id"]})
        assert left() is None
    finally:
        gc.enable()


class Exchanges(Memory):
    """Plays lines about single HTTP exchanges, which the scripts of the runner do not
    show:

        session s 2025-06-18                open a session; {s} is its id
        POST s ping -> 200 WORDS            a request of it, the status, the answer
        POST - Name=1|2 /path {raw} -> 400  of no session (`modern` for `-`), each value
        a = GET s / a < WORDS / a <* WORDS  open a stream; its next message / one later
        a event WORDS / a ends / a hangs up its next event, any / its end / its client
        until LINE / name X TEXT / close    repeat until true / define {X} / end all
    A verb, path, header or stream may be several, with `|` between them. WORDS are
    separated by `&` and looked for in headers and body, or in the JSON of an event; `!`
    stands before one that must be absent. `Name=~` takes a header away; %20 is a space
    in one. {a} is the id of the last event of a stream, {endpoint} the data of its
    `endpoint` event, {id} the id of the last message, {session} the last session,
    {INIT} the params of `initialize`. All have the progress token 0.
    """

    def __init__(self, talk: Talk):
        super().__init__(talk)
        options = dict(talk.options.get("endpoint", {}))
        if "keys" in talk.options:
            options["authorize"] = mcp.bearer(
                {"ann": "ann", "bob": "bob"}, header="X-Key"
            )
        self.httpd = talk.stack.enter_context(http_serving(self.server, **options))
        self.port = self.httpd.server_port
        self.sessions, self.streams = {"-": {}, "modern": {}}, {}
        self.names, self.act = talk.names, self.play
        opening = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "c"}}
        opening["capabilities"] = {"roots": {}, "elicitation": {}}
        self.names["INIT"] = json.dumps(opening)

    def play(self, verb: str, rest: str):
        several = next((word for word in [verb, *rest.split(" ")] if "|" in word), None)
        if several:
            name, values = re.fullmatch("([A-Z][A-Za-z-]+=)?(.*)", several).groups("")
            for value in values.split("|"):
                self.talk.play(f"{verb} {rest}".replace(several, name + value, 1))
        elif verb == "until":
            # By the clock, because an attempt that waits in vain takes its time.
            last = time.monotonic() + PATIENCE
            while time.monotonic() < last:
                with contextlib.suppress(AssertionError):
                    return self.talk.play(rest)
                threading.Event().wait(0.01)
            self.talk.play(rest)
        elif rest.startswith("= "):
            self.open_stream(verb, rest[2:])
        elif verb in self.streams:
            self.read_event(verb, *rest.partition(" ")[::2])
        elif " -> " in rest:
            request, _, wanted = rest.partition(" -> ")
            code, _, words = wanted.partition(" ")
            status, headers, body = exchange(self.port, *self.request(verb, request))
            last = self.names.get("session")
            self.names["session"] = headers.get("mcp-session-id", last)
            body = body.decode() if isinstance(body, bytes) else json.dumps(body)
            assert code == str(status), f"expected {code}, came {status}: {body:.900}"
            self.check(words, f"{json.dumps(headers)} {body}")
        elif verb == "session":
            name, version = rest.split(" ")
            initialize = self.names["INIT"].replace("2025-06-18", version)
            self.talk.play(
                f"POST - initialize {initialize} -> 200 mcp-session-id & {version}"
            )
            ident = self.names[name] = self.names["session"]
            assert re.fullmatch("[!-~]{32,}", ident)
            self.sessions[name] = {"Mcp-Session-Id": ident}
            self.talk.play(
                f"POST {name} notifications/initialized -> 202 !content-type"
            )
        elif verb == "name":
            label, text = rest.split(" ", 1)
            self.names[label] = text
        elif verb == "close":
            self.httpd.close()
        else:
            self.stage.act(self.server, verb, rest)

    def open_stream(self, label: str, line: str):
        method, path, headers, body = self.request(*line.split(" ", 1))
        headers["Connection"] = "keep-alive"  # so that a stream must end by itself
        connection = request_to(self.port, method, path, headers, body)
        self.talk.stack.callback(connection.close)
        answer = connection.getresponse()
        self.talk.stack.callback(answer.close)  # it may outlive its connection
        self.streams[label] = connection, answer
        kind = answer.getheader("Content-Type"), answer.getheader("X-Accel-Buffering")
        streams = 200, ("text/event-stream", "no")
        assert (answer.status, kind) == streams, answer.read()

    def check(self, words: str, text: str):
        for word in words.split(" & "):
            found = not word or word.lstrip("!") in text
            assert found is not word.startswith("!"), (
                f"{word} is not true of {text:.900}"
            )

    def request(self, verb: str, line: str):
        """Return verb, path, headers and body."""
        who, named, path, body = re.fullmatch(
            r"(\S+)((?: [A-Z][\w-]+=\S*)*)(?: (/\S*))?(?: (.*))?", line
        ).groups("")
        message = {}
        if body and body[0] not in "{[":
            method, _, params = body.partition(" ")
            params, meta = json.loads(params or "{}"), modern("")["params"]["_meta"]
            meta = {**(meta if who == "modern" else {}), "progressToken": 0}
            params["_meta"] = {**meta, **params.get("_meta", {})}
            ident = {} if method.startswith("notifications/") else {"id": 1}
            message = {"jsonrpc": "2.0", **ident, "method": method, "params": params}
            body = json.dumps(message)
        named = dict(word.replace("%20", " ").split("=", 1) for word in named.split())
        headers = {**headers_of(message), **self.sessions[who], **named}
        headers = {name: value for name, value in headers.items() if value != "~"}
        return verb, path or "/mcp", headers, body.encode() or None

    def read_event(self, label: str, verb: str, words: str):
        connection, answer = self.streams[label]
        if verb == "hangs":
            return connection.close()
        events = iter(lambda: event_of(answer), {})

        def is_wanted(event: dict) -> bool:
            data = event.get("data", "")
            return verb == "event" or bool(data) and (verb != "<*" or words in data)

        fields = next(filter(is_wanted, events), {})
        assert bool(fields) is (verb != "ends"), f"the stream has {fields or 'ended'}"
        data = fields.get("data", "")
        ident = re.search(r'"id": ?("\w*"|\d+)', data)
        self.names[label] = fields.get("id", self.names.get(label))
        self.names["id"] = ident and ident[1]
        self.names[fields.get("event", "")] = data
        return self.check(words, json.dumps(fields).replace('\\"', '"'))


WIRES["exchanges"] = Exchanges, None
EXCHANGES = "bare | line: exchanges"


def exchanges(**options):
    """Hold a conversation of such lines."""
    options.setdefault("module", __name__)
    return talk(NEWEST, "http", bare="", line="exchanges", **options)


test_http = scripts(
    r"""
== checks have an order: of several faults, the first one sets the status | keys
POST - Host=evil /none ping -> 403
POST - Origin=http://evil /none ping -> 403
PUT - /none ping -> 404
PUT - ping -> 405 "allow": "POST"
POST - Content-Length=99999999 ping -> 401
POST - X-Key=ann Content-Length=99999999 Content-Type=text/plain ping -> 413
POST - X-Key=ann Content-Type=text/plain { -> 415
POST - X-Key=ann { -> 400 {PARSE_ERROR}
POST modern X-Key=ann Mcp-Method=x no {"_meta": {"{META}clientCapabilities": null}}
    -> 400 {INVALID_PARAMS}
name old no {"_meta": {"{META}protocolVersion": "1999"}}
POST modern X-Key=ann Mcp-Method=x {old} -> 400 {HEADER_MISMATCH}
POST modern X-Key=ann {old} -> 400 {UNSUPPORTED_PROTOCOL_VERSION}
POST modern X-Key=ann no -> 404 {METHOD_NOT_FOUND} & "id": 1
POST modern X-Key=ann Mcp-Session-Id=ignored tools/list -> 200 "tools" & !mcp-session-id
== paths and verbs; outside the endpoint OAuth clients can read the 404
POST - /mcp|/mcp/|/mcp?x=1 ping -> 200 "result" & application/json
HEAD|OPTIONS|PATCH - /mcp|/mcp/ -> 405 "allow": "POST"
GET|POST - /|/mcp/x|/MCP|/.well-known/oauth-protected-resource|/.well-known/openid-configuration
    -> 404 application/json & {"error": "not_found"}
== which hosts, origins, types and bodies are accepted
POST - Host=evil.example|127.0.0.1.evil.example| ping -> 403 !access-control
POST - Host=localhost|LOCALHOST:99|[::1]:80 ping -> 200
POST - Origin=http://evil.example|null|http://localhost.evil.example|http://user@localhost ping
    -> 403 !access-control
POST - Origin=http://localhost:3000|https://127.0.0.1|~ ping -> 200 !access-control
POST - Accept=text/html|*/*|text/event-stream|application/json|~ ping -> 200
POST - Content-Type=text/plain|~ ping -> 415 "error"
POST - Content-Type=Application/JSON;%20charset=utf-8 ping -> 200
POST - Content-Encoding=gzip|identity ping -> 415 Content-Encoding
== headers must agree with the arguments, whatever their type; invalid base64 is no value
name all Mcp-Param-N=42 Mcp-Param-On=true Mcp-Param-Deep==?base64?w6k=?=
name large :place {"n": 9007199254740993}
POST modern Mcp-Param-N=9007199254740993 {large} -> 200
POST modern Mcp-Param-N=9007199254740992 {large} -> 400 {HEADER_MISMATCH}
name place :place {"n": 42, "on": true, "inner": {"deep": "é"}}
POST modern {all} Mcp-Param-N=42|42.0 {place} -> 200
POST modern Mcp-Param-N=42 :place {"n": 42.0} -> 200
POST modern {all} Mcp-Param-N=~|4_2|x {place} -> 400 {HEADER_MISMATCH}
POST modern {all} Mcp-Param-On=~|True|1 {place} -> 400 {HEADER_MISMATCH}
POST modern {all} Mcp-Param-Deep=~|e|é|=?base64?!?= {place} -> 400 {HEADER_MISMATCH}
POST modern resources/read {"uri": "test://fails"} -> 200 {INTERNAL_ERROR} & !division
== two subscriptions of the same id are kept alive | limits: {"KEEP_ALIVE_SECONDS": 0.01}
a = POST modern subscriptions/listen {"notifications": {"toolsListChanged": true}}
b = POST modern subscriptions/listen {"notifications": {"resourceSubscriptions": ["test://x"]}}
a|b < acknowledged & subscriptionId":1
changed tools
changed test://x
a < tools/list_changed & subscriptionId":1
b < resources/updated & test://x
# An event that is only a comment.
a event {"": "" & !data
c = POST modern :slow {"gate": "g"}
c <* "progress":1
c event {"": "" & !data
open g
c <* held
close
a|b <* "result"
== no host is allowed | endpoint: {"hosts": []}
POST - ping -> 403
== names of hosts | endpoint: {"hosts": ["Mcp.example"], "origins": ["https://app.example"]}
POST - Host=mcp.example Origin=~|https://mcp.example|https://app.example ping -> 200
POST - Host=mcp.example Origin=http://localhost|https://app.example.org ping -> 403
POST - Host=localhost ping -> 403
== browsers; metadata needs no authorization | keys | endpoint: {"cors": true, "metadata": {"r": 1}}
OPTIONS - Origin=http://localhost:3 Access-Control-Request-Headers=mcp-method
    -> 204 allow-origin": "http://localhost:3" & allow-headers": "mcp-method" & !content-length
POST - Origin=http://evil ping -> 403 !access-control
POST - Origin=http://localhost:3 ping
    -> 401 expose-headers": "*
GET - /.well-known/oauth-protected-resource|/.well-known/oauth-protected-resource/mcp
    -> 200 {"r": 1}
== streams without an end leave room for calls | limits: {"MAX_CONNECTIONS": 4}
a = POST modern subscriptions/listen {"notifications": {}}
b = POST modern subscriptions/listen {"notifications": {}}
until POST modern subscriptions/listen {"notifications": {}} -> 503 too many streams
until GET - /sse -> 503 too many streams
until POST - ping -> 200
a hangs up
until POST modern subscriptions/listen {} -> 400
== a body is small, and the metadata is told at two paths | endpoint: {"metadata": {"r": 1}} |
    limits: {"MAX_BODY_BYTES": 150}
POST modern :echo {"text": "x"} -> 413 150
POST - ping -> 200
GET|HEAD - /.well-known/oauth-protected-resource|/.well-known/oauth-protected-resource/mcp -> 200
GET - /.well-known/oauth-protected-resource/other -> 404
POST - /.well-known/oauth-protected-resource ping -> 404
== connections are limited | limits: {"MAX_CONNECTIONS": 1}
a = POST modern subscriptions/listen {"notifications": {}}
until POST - ping -> 503 "retry-after": "1"
a hangs up
until POST - ping -> 200
""",
    "on: http modern | " + EXCHANGES,
)


test_http_sessions = scripts(
    r"""
== statuses with and without a session; only the answer to `initialize` has an Mcp-Session-Id
session s 2025-06-18
POST - tools/list -> 400 {INVALID_PARAMS} & initialize & "id": 1 & !mcp-session-id
POST - [{INIT}] -> 400 {INVALID_REQUEST} & !mcp-session-id
POST s [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] -> 400 {INVALID_REQUEST}
POST s nobody -> 200 {METHOD_NOT_FOUND} & !mcp-session-id
POST s MCP-Protocol-Version=2026-07-28 ping -> 400 !mcp-session-id
POST - MCP-Protocol-Version=1999 initialize {INIT} -> 400
POST s { -> 400 {PARSE_ERROR} & !"id"
session t 2025-03-26
POST t [{"jsonrpc": "2.0", "id": 1, "result": {}}] -> 202 !content-type
PUT s -> 405 GET, POST, DELETE
POST s :tell {"method": "n/x"} -> 200 n/x & "2025-06-18"
== the longest unused session is forgotten | limits: {"MAX_SESSIONS": 2, "MAX_THREADS": -9999}
session a 2025-11-25
session b 2025-11-25
POST a ping -> 200
session c 2025-11-25
POST b ping -> 404
POST - initialize {"protocolVersion": 1} -> 400 {INVALID_PARAMS} & !mcp-session-id
POST a|c ping -> 200
POST a /mcp/messages ping -> 503
== a session in use stays; if all are in use, a newcomer waits | limits: {"MAX_SESSIONS": 2}
session a 2025-11-25
a = GET a
session b 2025-11-25
session c 2025-11-25
POST b ping -> 404
POST a|c ping -> 200
c = POST c :slow {"gate": "g"}
c <* "progress":1
POST - initialize {INIT} -> 503 "retry-after": "1"
open g
c <* held
until POST - initialize {INIT} -> 200 mcp-session-id
POST c ping -> 404
changed tools
a < tools
== nobody evicts a session of someone else | keys | limits: {"MAX_SESSIONS": 3}
POST - X-Key=ann initialize {INIT} -> 200
name ann {session}
POST - X-Key=bob initialize {INIT} -> 200
POST - X-Key=bob initialize {INIT} -> 200
name bob {session}
POST - X-Key=bob initialize {INIT} -> 200
POST - X-Key=ann Mcp-Session-Id={ann} ping -> 200
POST - X-Key=bob Mcp-Session-Id={bob} ping -> 200
== a response waits for its client, whatever its size | limits: {"REPLAY_BYTES": 1}
session s 2025-11-25
a = POST s :later {"gates": "g"}
a event "retry"
a ends
open g
b = GET s Last-Event-ID={a}
b <* "content"
b ends
GET s Last-Event-ID={b} -> 405
== a stream that has ended is kept for as long as a user may be asked | limits: {"ASK_SECONDS": 0.01}
session s 2025-11-25
a = POST s :later
a event "retry"
a ends
until GET s Last-Event-ID={a} -> 405
GET s Last-Event-ID=00{a} -> 405
POST s ping -> 200
== calls that ask their users leave room for others | limits: {"MAX_CONNECTIONS": 4}
session s 2025-11-25
session t 2025-11-25
a = POST s :ask
a <* elicitation
POST t :ask -> 200 failed
a hangs up
POST t :ask -> 200 failed
POST s {"jsonrpc": "2.0", "id": {id}, "result": {NO}} -> 202
until b = POST t :ask
b <* elicitation
== those of a batch, too | server: core | limits: {"MAX_CONNECTIONS": 4}
name asking [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "roots"}}]
session s 2025-03-26
session t 2025-03-26
a = POST s {asking}
a <* roots/list
POST t {asking} -> 200 too many questions
== idle sessions are forgotten | limits: {"SESSION_SECONDS": -1}
POST - initialize {INIT} -> 200
until POST - Mcp-Session-Id={session} ping -> 404
== someone else's session; who sent a request | keys | server: core
POST - X-Key=ann initialize {INIT} -> 200
POST|GET|DELETE - X-Key=bob Mcp-Session-Id={session} ping -> 404
POST - X-Key=ann Mcp-Session-Id={session} ping -> 200
POST modern X-Key=ann tools/call {"name": "keeps", "_meta": {"{META}clientInfo": {
    "name": "n", "version": "1"}}} -> 200 "ann"
a = GET - X-Key=ann /sse
a event endpoint
POST - X-Key=bob /{endpoint} initialize {INIT} -> 404
POST - X-Key=ann /{endpoint} initialize {INIT} -> 202
POST - X-Key=ann /{endpoint} :keeps -> 202
a <* "ann"
== a silent call becomes a stream | server: silent | limits: {"KEEP_ALIVE_SECONDS": 0.01,
    "CHECK_SECONDS": 0.01}
a = POST modern :waits {"gate": "a"}
a event {"": ""
open a
a <* held
a ends
b = POST modern :waits {"gate": "b", "asks": true}
open b
b <* {MISSING_REQUIRED_CLIENT_CAPABILITY}
session s 2025-06-18
c = POST s :waits {"gate": "c", "asks": true}
c event {"": ""
open c
c <* roots/list
session t 2025-11-25
d = POST t :waits {"gate": "d"}
# The priming event comes first, so that the client can come back for the response.
d event "data": "" & "retry"
d event {"": ""
d hangs up
e = GET t Last-Event-ID={d}
open d
e <* held
e ends
== a client that accepts only JSON gets nothing else, and cannot be asked
name json Accept=application/json
POST modern {json} :steps -> 200 application/json & done & !progress
POST modern Accept=|text/plain|*/json :steps -> 200 application/json & done
POST modern Accept=text/*|TEXT/Event-Stream|*/*;q=0.1|~ :steps -> 200 progress & done
a = POST modern {json} subscriptions/listen {"notifications": {"promptsListChanged": true}}
a <* acknowledged
session s 2025-11-25
POST s {json} :steps -> 200 application/json & done & !progress
POST s {json} :later -> 200 application/json & later & !notifications
POST s {json} :ask -> 200 application/json & failed: ClientLacks
b = GET s {json}
changed prompts
b < prompts
session t 2025-03-26
POST t {json} [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}}]
    -> 200 application/json & failed: ClientLacks
== without sessions | endpoint: {"stateless": true}
POST - initialize {INIT} -> 200 "tools": {} & !mcp-session-id & !listChanged & !subscribe
POST - notifications/initialized -> 202
POST - nobody -> 200 {METHOD_NOT_FOUND}
name tell :tell {"method": "x"}
POST - {tell} -> 200 "2025-03-26"
POST - MCP-Protocol-Version=2025-11-25 {tell} -> 200 "2025-11-25"
POST - MCP-Protocol-Version=2025-11-25 :quits {"asks": true} -> 200 stateless=True
POST - MCP-Protocol-Version=1999 tools/list -> 400
POST - MCP-Protocol-Version=2026-07-28 tools/list -> 400 {INVALID_PARAMS} & "id": 1
POST - MCP-Protocol-Version=2025-06-18 [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] -> 400
== each message goes to one stream; that of a cancelled request ends without one
session s 2025-06-18
changed prompts
a = GET s
a < prompts
b = GET s
a ends
changed tools
b < tools
e = GET s Last-Event-ID={a}
e < tools
d = POST s :quits
d ends
f = POST s :quits {"asks": true}
f <* elicitation
POST s {"jsonrpc": "2.0", "id": {id}, "result": {NO}} -> 202
f ends
close
b|e ends
== streams, running or ended, are resumed in their own session, without events of others
session t 2025-03-26
session s 2025-03-26
a = POST s :slow {"gate": "a"}
a < "progress":1
a hangs up
# Another session cannot resume it.
GET t Last-Event-ID={a} -> 405
POST s {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "steps",
    "_meta": {"progressToken": 1}}} -> 200 done
open a
b = GET s Last-Event-ID={a}
b < "progress":99
b < held
b ends
until GET s Last-Event-ID={b} -> 405
c = GET s Last-Event-ID={a}
c < "progress":99
c < held
== a handler lets its client come back for the rest | limits: {"RETRY_MS": 7}
session s 2025-11-25
a = POST s :later {"gates": "gh"}
a event "retry": "7" & "id": & "data": ""
a ends
b = GET s Last-Event-ID={a}
open g
b ends
c = GET s Last-Event-ID={a}
open h
# The ids of events are numbered.
c < notifications/later & -1"
c < "later" & -2"
session t 2025-06-18
POST t :later -> 200 notifications/later & "later" & !retry
== the oldest events are forgotten, and a client that missed changes is told so | limits: {"REPLAY_BYTES": 37}
session s 2025-11-25
a = POST s :steps
a event "data": ""
name first {a}
a <* done
a ends
GET s Last-Event-ID={first} -> 405
POST s :steps -> 200 done
POST s resources/subscribe {"uri": "test://text"} -> 200
b = GET s
changed tools
b < tools
c = GET s Last-Event-ID={b}
changed prompts
c < prompts
changed test://text
c < test://text
c hangs up
# The first of these events are not kept any longer: the client must fetch everything.
GET s Last-Event-ID={b} -> 404 initialize
POST s ping -> 404
== those of a batch that are too large are errors | limits: {"MAX_BATCH_BYTES": 300}
session s 2025-03-26
POST s [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method":
    "tools/list"}, {"jsonrpc": "2.0", "id": 3, "method": "ping"}] -> 200
    "id": 1, "result": {} & "id": 2, "error" & too large & "id": 3, "error"
== a session serves no modern request, whose subscription would outlive its connection
name one {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": {},
    "_meta": {"{META}protocolVersion": "{NEWEST}", "{META}clientCapabilities": {}}}}
session s 2025-03-26
POST s [{one}] -> 200 {INVALID_REQUEST} & !acknowledged
a = GET - /sse
a event "endpoint"
POST - /{endpoint} initialize {INIT} -> 202
a <* "serverInfo"
POST - /{endpoint} {one} -> 202
a < {INVALID_REQUEST}
== HTTP+SSE beside another path | endpoint: {"path": "/a/mcp"} | limits: {"REPLAY_BYTES": 25}
a = GET - /a/sse
a event "data": "mcp/messages?session_id=
GET - /sse -> 404
POST - /a/{endpoint} initialize {INIT} -> 202
POST - /a/{endpoint} :talk -> 202
a <* said
== calls over HTTP+SSE are bounded; answers and cancellations are not | limits: {"MAX_THREADS": 1}
a = GET - /sse
a event "endpoint"
POST - /{endpoint} initialize {INIT} -> 202
POST - /{endpoint} notifications/initialized -> 202
name one {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}}
name two {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask"}}
POST - /{endpoint} {one} -> 202
a <* elicitation
POST - /{endpoint} {two} -> 202
a <* elicitation
POST - /{endpoint} ping -> 503 "retry-after"
POST - /{endpoint} {"jsonrpc": "2.0", "id": 1, "result": {NO}} -> 202
a <* decline
POST - /{endpoint} ping -> 202
name three {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "ask"}}
until POST - /{endpoint} {three} -> 202
a <* elicitation
POST - /{endpoint} [] -> 503
POST - /{endpoint} notifications/cancelled {"requestId": 2} -> 202
until POST - /{endpoint} ping -> 202
== HTTP+SSE on the endpoint itself; large answers | server: core | endpoint: {"sse_on_get": true}
a = GET -
a event "event": "endpoint" & "mcp/messages?session_id=
POST - /{endpoint} initialize {INIT} -> 202 !content-type
a < serverInfo
POST - /{endpoint} :big -> 202
name other {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "big"}}
POST - /{endpoint} {other} -> 202
a|a < xxxx
POST - /{endpoint} notifications/initialized -> 202
changed tools
a <* list_changed
a hangs up
until POST - /{endpoint} ping -> 404
GET - MCP-Protocol-Version=2025-11-25 -> 405
""",
    "on: http 2025-11-25 | " + EXCHANGES,
)


HTTP_PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
GOOD = POST + b"Content-Length: 45\r\n\r\n" + HTTP_PING
LAST = GOOD.replace(b"Host", b"Connection: close\r\nHost")
TALK = GOOD.replace(b"45", b"79").replace(
    b'ping"', b'tools/call", "params": {"name": "talk"}'
)
LARGE = b"[" * mcp.MAX_MESSAGE_BYTES
CHUNK = b"2D\r\n" + HTTP_PING + b"\r\n0\r\n\r\n"


def send_http(site: Talk, data: bytes) -> str:
    """Send bytes; return what comes until the server closes."""
    with socket.create_connection(
        ("127.0.0.1", site.line.port), PATIENCE
    ) as connection:
        connection.sendall(data)
        with connection.makefile("r") as answers:
            return answers.read()


END, OLD = b"\r\n\r\n", GOOD.replace(b"1.1", b"1.0")
FRAMES = {  # the statuses of the answers to what is sent, and to LAST behind it
    "200 200 200": [GOOD + b"\r\n" + GOOD],
    "200 200": [
        CHUNKED + b"4;a=b\r\n    \r\n2D\r\n" + HTTP_PING + b"\r\n0\r\nX: y\r\n\r\n",
        GOOD.replace(b"/mcp", b"HTTP://LocalHost/mcp").replace(b"127.0.0.1", b"evil"),
    ],
    "200": [
        GOOD.replace(b"Host", b"Connection: Close\r\nHost"),
        TALK.replace(b"1.1", b"1.0"),
        OLD.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    ],
    "100 200 200": [GOOD.replace(b"Host", b"Expect: 100-Continue\r\nHost")],
    "405 200": [GOOD.replace(b"POST", b"GET").replace(b"45", b"0")[: -len(HTTP_PING)]],
    "403": [
        GOOD.replace(b"/mcp", b"http://evil/mcp"),
        OLD.replace(b"Host: 127.0.0.1\r\n", b""),
    ],
    "413": [
        CHUNKED + b"ffffffff\r\n",
        CHUNKED + (b"1;" + b"x" * 900 + b"\r\n \r\n") * 5000,
        CHUNKED + b"%x\r\n%s\r\n2\r\n" % (mcp.MAX_MESSAGE_BYTES, LARGE),
        # The answer arrives although the body is still being sent.
        POST + b"Expect: 100-continue\r\nContent-Length: 99999999" + END + LARGE,
    ],
    "431": [
        b"POST /" + b"m" * 70000 + b" HTTP/1.1\r\nHost: 127.0.0.1" + END,
        POST + b"X: y\r\n" * 200 + END,
        POST + b"X: " + b"y" * 70000 + END,
        POST + b"X: " + b"y" * 60000 + b"\r\nY: " + b"y" * 60000 + END,
    ],
    "400": [
        CHUNKED.replace(b"1.1", b"1.0") + CHUNK,
        CHUNKED.replace(b"chunked", b"gzip, chunked") + CHUNK,
        CHUNKED.replace(b"chunked", b"x") + CHUNK,
        CHUNKED.replace(END, b"\r\nTransfer-Encoding: chunked" + END) + CHUNK,
        CHUNKED.replace(END, b"\r\nContent-Length: 45" + END) + CHUNK,
        b"nonsense" + END,
        b"GET /mcp" + END,
        b"GET /mcp HTTP/9.9" + END,
        b"POST /mcp HTTP/1.1" + END,
        POST + b"Content-Length: 0\r\nContent-Length: 4" + END,
        POST + b"Content-Length: 4\r\nContent-Length: 4" + END,
        POST + b"Content-Length: -1" + END,
        POST + b"Content-Length: 5, 5" + END,
        POST + b"Content-Length: " + END,
        POST + b"Content-Length: 4_5" + END,
        POST + b"Content-Length : 45" + END,
        POST + b" Content-Length: 45" + END,
        POST + b"foo\r\nContent-Length: 45" + END,
        POST + b"Content-Length: +5" + END,
        POST + b"Host: evil" + END,
        POST + b"X\0: a" + END,
        POST + b"X\xe4: a" + END,
        POST + b"X: a\0b" + END,
        POST + b"X: a\rContent-Length: 45" + END,
        POST + b": a" + END,
        POST + b"Mcp-Method: a\r\nMcp-Method: b" + END,
        POST + b"Mcp-Session-Id: a\r\nMcp-Session-Id: a" + END,
        POST + b"Authorization: a\r\nAuthorization: b" + END,
        CHUNKED + b"xyz\r\n",
        CHUNKED + b"-5\r\nabc",
        CHUNKED + b"+2d\r\n",
        CHUNKED + b"0x2d\r\n",
        CHUNKED + b"3\r\nabcd\r\n0" + END,
        CHUNKED + b"5\nabcde\r\n0" + END,
        CHUNKED + b"0\r\n" + b"X" * 2000 + b":" + END,
    ],
}
EACH_FRAME = [(sent, statuses) for statuses in FRAMES for sent in FRAMES[statuses]]


@pytest.fixture(scope="module")
def stateless():
    with exchanges(endpoint={"stateless": True}) as site:
        yield site


@parametrize("sent, statuses", EACH_FRAME, ids=range(len(EACH_FRAME)))
def test_no_request_hides_in_another(capfd, stateless, sent, statuses):
    found = re.findall(r"HTTP/1.1 (\d{3}) ", send_http(stateless, sent + LAST))
    assert " ".join(found) == statuses, f"{sent[:300]} (the last answers LAST)"
    assert "Traceback" not in capfd.readouterr().err


def test_an_empty_line_may_come_alone_before_a_request():
    with exchanges(server="empty") as site:
        with socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link:
            link.sendall(GOOD + b"\r\n")
            assert b" 200 " in link.recv(9999)
            threading.Event().wait(0.02)
            link.sendall(LAST)
            assert b" 200 " in link.recv(9999)


def test_http_is_traced_without_tokens_and_a_refusal_is_logged(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("MCP_TRACE", str(tmp_path / "trace"))
    monkeypatch.setattr(time, "time", lambda: 5 + 1 / 128)
    heads = b"Authorization: secret\r\nClosed: secret\r\nMcp-Name: n\r\nHost"
    secret = TALK.replace(b"Host", heads)
    with exchanges(endpoint={"stateless": True}) as site:
        send_http(site, secret + LAST.replace(b"127.0.0.1", b"evil.example"))
    mode = (tmp_path / "trace").stat().st_mode
    assert os.name == "nt" or mode & 0o77 == 0, f"others may read it: {mode:o}"
    begins, sent, head, *events, refusal = map(
        json.loads, (tmp_path / "trace").read_text().splitlines()
    )
    assert begins["program"].startswith("mcp_ref ") and begins["process"] == os.getpid()
    assert begins["time"] == "1970-01-01T00:00:05.007Z"
    assert (sent["way"], sent["http"], sent["mcp-name"]) == (">", "POST /mcp", "n")
    assert (sent["message"]["id"], head["status"]) == (1, 200)
    assert "secret" not in str(sent)
    assert {one["on"] for one in events} == {sent["on"]} and "result" in str(events)
    assert refusal["status"] == 403 and " 403 {" in capfd.readouterr().err


def test_a_trace_has_no_ids_of_sessions_and_one_record_for_a_body(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("MCP_TRACE", str(tmp_path / "trace"))
    with exchanges() as site:
        port = site.line.port
        body = json.dumps(OPENING)
        headers = {"Content-Type": "application/json"}
        name = exchange(port, "POST", "/mcp", headers, body)[1]["mcp-session-id"]
        ping = '{"jsonrpc": "2.0", "id": 2, "method": "ping"}'
        exchange(port, "POST", "/mcp", {**headers, "Mcp-Session-Id": name}, ping)
        exchange(port, "POST", "/mcp", headers, "data: 1\ndata: 2\n")
        exchange(port, "POST", "/mcp", headers, ping.replace("}", ', "huge": 1e999}'))
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.settimeout(PATIENCE)
            link.sendall(b"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with link.makefile("rb") as answer:
                line = next(one for one in answer if b"session_id=" in one)
        other = line.decode().strip().rpartition("=")[2]
    text = (tmp_path / "trace").read_text()
    assert len(name) > 20 and name not in text
    assert len(other) > 20 and other not in text and "session_id=..." in text
    assert text.count("data: 1") == text.count("data: 2") == 1
    assert "1e999" in text


def test_a_call_that_is_cancelled_by_hanging_up_is_traced_so(
    tmp_path, monkeypatch, capfd
):
    path, server = tmp_path / "trace", mcp.Server("x")
    others = threading.enumerate()
    begun, gone = threading.Event(), threading.Event()
    monkeypatch.setenv("MCP_TRACE", str(path))

    @server.tool
    def slow(ctx: Context):
        ctx.on_cancel(gone.set)
        begun.set()
        gone.wait(PATIENCE)

    call = modern("tools/call", name="slow")
    with http_serving(server) as httpd:
        post = "POST", "/mcp", headers_of(call), mcp.encode(call)
        link = request_to(httpd.server_port, *post)
        assert begun.wait(PATIENCE)
        link.close()
        assert gone.wait(PATIENCE)
    _, sent, closed, *_ = map(json.loads, path.read_text().splitlines())
    assert (closed["way"], closed["on"], closed["closed"]) == (">", sent["on"], True)
    assert "What is wrong\nNothing." in overview(draw(path))
    for thread in set(threading.enumerate()).difference(others):
        thread.join(PATIENCE)
    assert "failed" not in capfd.readouterr().err  # the thread of the connection


def test_a_connection_that_waits_for_a_request_makes_room():
    with (
        exchanges(server="empty", limits={"MAX_CONNECTIONS": 1}) as site,
        socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link,
    ):
        ended = begin(link.recv, 1)
        while not ended.done():
            send_http(site, LAST)
        assert ended.result() == b""


@contextlib.contextmanager
def places(count: int):
    """Yield a server with few places, and functions: the first gives each of some
    links a place, and lets it take steps; the second returns those that have one."""
    with (
        limits(MAX_CONNECTIONS=count),
        contextlib.closing(mcp.http_server(mcp.Endpoint(mcp.Server("s")))) as httpd,
    ):

        def connect(link, *steps):
            assert httpd.admit(link)
            for name in steps:
                httpd.step(link, mcp.Step[name], mcp.SEND_SECONDS)

        yield httpd, connect


def test_a_connection_whose_caller_is_not_known_yet_makes_room():
    asked, over = threading.Event(), threading.Event()

    def authorize(headers):
        if headers["authorization"] == "wrong":
            asked.set()
            over.wait(PATIENCE)
            return None
        return "ann"

    with (
        limits(MAX_CONNECTIONS=1),
        http_serving(mcp.Server("s"), authorize=authorize) as httpd,
        socket.create_connection(("127.0.0.1", httpd.server_port), PATIENCE) as link,
    ):
        link.sendall(LAST.replace(b"Host", b"Authorization: wrong\r\nHost"))
        assert asked.wait(PATIENCE)
        right = {"Authorization": "right"}
        assert exchange(httpd.server_port, "GET", "/mcp", right)[0] == 405
        over.set()


def test_the_connection_that_waits_for_longest_makes_room():
    served, idle, new = (mock.Mock(name=name) for name in ("served", "idle", "new"))
    with places(2) as (httpd, connect):
        connect(served)
        connect(idle)
        for name in ("READS", "SERVES", "SENDS", "WAITS"):
            httpd.step(served, mcp.Step[name], mcp.MAX_IDLE_SECONDS)
        connect(new)
        assert list(httpd.steps) == [served, new]
        with pytest.raises(OSError):
            httpd.step(idle, mcp.Step.READS)


def test_a_request_that_arrives_slowly_makes_room_but_not_one_that_is_served():
    slow, served, new = (mock.Mock(name=name) for name in ("slow", "served", "new"))
    with places(2) as (httpd, connect):
        connect(served, "READS", "SERVES")
        connect(slow, "READS")
        connect(new, "READS")
        assert list(httpd.steps) == [served, new]
        httpd.step(new, mcp.Step.SERVES)
        assert not httpd.admit(slow)


def test_an_answer_that_is_not_read_makes_room_but_not_one_that_is():
    stuck, read, new = (mock.Mock(name=name) for name in ("stuck", "read", "new"))
    with places(2) as (httpd, connect):
        connect(stuck, "READS", "SERVES", "SENDS")
        connect(read, "READS", "SERVES", "SENDS")
        assert not httpd.admit(new)
        httpd.step(stuck, mcp.Step.SENDS, mcp.SEND_SECONDS - mcp.STALL_SECONDS)
        connect(new)
        assert list(httpd.steps) == [read, new]


def test_of_all_answers_on_their_way_the_slowest_is_cut(monkeypatch):
    monkeypatch.setattr(mcp, "MAX_SENDING_BYTES", 200_000)
    slow, small, new = (mock.Mock(name=name) for name in ("slow", "small", "new"))
    with places(3) as (httpd, connect):
        for link in (slow, small, new):
            connect(link, "READS", "SERVES")
        httpd.step(slow, mcp.Step.SENDS, 1, 150_000)
        httpd.step(small, mcp.Step.SENDS, 0.5, 100)
        httpd.step(new, mcp.Step.SENDS, 2, 150_000)
        assert list(httpd.steps) == [small, new] and slow.shutdown.called


@contextlib.contextmanager
def unread_sse(**given):
    """Yield a site, and the connection of an HTTP+SSE stream that nobody reads."""
    with exchanges(server="core", limits=given) as site, socket.socket() as late:
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.connect(("127.0.0.1", site.line.port))
        late.settimeout(PATIENCE)
        late.sendall(b"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        while b"session_id=" not in said or not said.endswith(b"\n\n\r\n"):
            said += late.recv(1000)
        site.line.names["sse"] = re.search(rb"data: (\S+)", said)[1].decode()
        site("POST - /{sse} initialize {INIT} -> 202")
        yield site, late


def test_a_post_of_http_sse_waits_for_no_reader():
    with unread_sse() as (site, _):
        for ident in range(4):  # too much for the buffers of a connection
            call = {"name": "big"}
            message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call"}
            body = json.dumps({**message, "params": call})
            begin(site, f"POST - /{{sse}} {body} -> 202").result(PATIENCE)
        begin(site, "POST - /{sse} ping -> 202").result(PATIENCE)


@parametrize("limit", ["AHEAD_BYTES", "MAX_KEPT_BYTES"])
def test_a_stream_that_nobody_reads_ends_when_too_much_waits(limit):
    with unread_sse(**{limit: 3 * 2**20}) as (site, late):
        for ident in range(4):
            call = {"name": "big"}
            message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call"}
            body = json.dumps({**message, "params": call})
            with contextlib.suppress(AssertionError):  # 404
                site(f"POST - /{{sse}} {body} -> 202")
        site("until POST - /{sse} ping -> 404")


def test_what_a_stream_keeps_is_bounded_in_bytes():
    outbox, reader = mcp.Outbox(keeps=1000), object()
    outbox.attach(reader)
    for number in range(900):
        outbox.add_note(
            "notifications/resources/updated", mcp.encode({"uri": f"x://{number:0500}"})
        )
        assert outbox.take(reader)
    assert sum(map(len, outbox.events)) == outbox.size <= 1000


def test_a_change_is_not_compared_with_all_that_wait():
    class Line(bytes):
        compared = 0

        def __eq__(self, other):
            Line.compared += 1
            return bytes.__eq__(self, other)

        __hash__ = bytes.__hash__

    outbox, reader = mcp.Outbox(), object()
    outbox.attach(reader)
    for number in (*range(100), *range(100)):
        outbox.add_note("notifications/resources/updated", Line(b"%04d" % number))
    assert Line.compared <= 200
    assert len(list(iter(lambda: outbox.take(reader), b""))) == 100
    outbox.add_note("notifications/resources/updated", b"0000")
    assert outbox.take(reader)
    for _ in range(2):  # it is news, not a change
        outbox.add_note("x/news", b"0000")
    assert outbox.take(reader) and outbox.take(reader)


def test_a_connection_takes_one_step_after_another():
    with places(1) as (httpd, connect):
        link = mock.Mock()
        connect(link)
        with pytest.raises(RuntimeError, match="SERVES.*WAITS"):
            httpd.step(link, mcp.Step.SERVES)


def test_an_idle_connection_is_not_closed_before_a_balancer_closes_it():
    with exchanges(server="empty") as site:
        httpd, port = site.line.httpd, site.line.port

        def seconds_left() -> list[float]:
            waits = [
                one for one in list(httpd.steps.values()) if one[0] == mcp.Step.WAITS
            ]
            return [due - time.monotonic() for _, due, _ in waits]

        with socket.create_connection(("127.0.0.1", port), PATIENCE) as link:
            wait_until(seconds_left)
            assert seconds_left()[0] > 60
            link.sendall(GOOD)
            assert b"200" in link.recv(9999)
            wait_until(seconds_left)
            assert seconds_left()[0] > 60


def test_accepting_waits_while_no_descriptor_is_left():
    """But not while nobody comes: the next one would have to wait, too."""
    problems = [OSError(errno.EMFILE, "Too many open files"), socket.timeout("none")]

    def accept():
        problem = problems.pop()
        httpd.stopped = not problems
        raise problem

    with (
        places(1) as (httpd, _),
        mock.patch.object(httpd, "socket") as listening,
        mock.patch("time.sleep") as sleep,
    ):
        listening.accept = accept
        httpd.serve_forever()
    assert sleep.call_count == 1  # without a wait, the loop takes a whole processor


def test_a_connection_may_end_while_another_is_accepted():
    gate = threading.Event()

    class Steps(dict):
        def __getitem__(self, link):
            gate.set()
            wait([ending], 0.02)
            return super().__getitem__(link)

    def end():
        gate.wait(PATIENCE)
        httpd.leave(link)

    link, others = mock.Mock(), [mock.Mock(), mock.Mock()]
    with places(2) as (httpd, connect):
        connect(link)
        connect(others[0])
        httpd.steps = Steps(httpd.steps)
        ending = begin(end)
        connect(others[1])
        ending.result(PATIENCE)
        assert set(httpd.steps) == set(others)


@parametrize(
    "sent",
    [
        b"\x16",  # TLS
        b"GET /mcp\r\n",  # HTTP/0.9
        b"PRI * HTTP/2.0\r\n",
        b"POST /mcp HTTP/1.1\nHost: 127.0.0.1\n",
    ],
)
def test_what_is_not_http_is_refused_at_once(sent, capfd):
    with (
        exchanges(server="empty", limits={"SEND_SECONDS": 3 * PATIENCE}) as site,
        socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link,
    ):
        link.sendall(sent)
        with link.makefile("r") as answers:
            assert answers.readline().startswith("HTTP/1.1 400 ")
    assert "mcp_ref: 127.0.0.1 ? /: 400 " in capfd.readouterr().err


def test_answers_have_a_date():
    before = int(time.time())
    with exchanges(server="empty") as site:
        dates = [
            exchange(site.line.port, *site.line.request(*line.split(" ", 1)))[1]["date"]
            for line in ("POST - ping", "GET - /none", "POST - notifications/x")
        ]
    times = [parsedate_to_datetime(date).timestamp() for date in dates]
    assert before <= times[0] <= times[1] <= times[2] <= time.time()
    assert all(
        re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", date) for date in dates
    )


@needs_posix
def test_a_connection_waits_where_it_inherits_that_its_listener_does_not(monkeypatch):
    accept = socket.socket._accept  # elsewhere than on Linux it works like this

    def inheriting(listener):
        descriptor, address = accept(listener)
        os.set_blocking(descriptor, listener.getblocking())
        return descriptor, address

    monkeypatch.setattr(socket.socket, "_accept", inheriting)
    head, body = GOOD[: -len(HTTP_PING)], HTTP_PING
    with exchanges(server="empty") as site:
        with socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link:
            link.sendall(head)
            threading.Event().wait(0.02)
            link.sendall(body)
            assert link.recv(12) == b"HTTP/1.1 200"


@parametrize(
    "limit, sent, more",
    [  # then `more`, again and again
        ("SEND_SECONDS", b"POST /mcp HTTP/1.1\r\nX: ", b"y"),
        ("BODY_SECONDS", POST + b"Content-Length: 9999\r\n\r\n", b" "),
        ("BODY_SECONDS", CHUNKED + b"fff\r\n", b" "),
        ("BODY_SECONDS", CHUNKED, b"1\r\n \r\n"),
    ],
)
def test_slow_requests_have_a_time_in_all_and_keep_nobody_out(limit, sent, more):
    limits = {limit: 0.2, "MAX_CONNECTIONS": 1}
    with (
        exchanges(server="empty", limits=limits) as site,
        socket.create_connection(("127.0.0.1", site.line.port)) as link,
    ):
        link.sendall(sent)
        with pytest.raises(OSError):  # it is hung up
            for _ in range(int(PATIENCE / 0.02)):
                link.sendall(more)
                threading.Event().wait(0.02)
        assert send_http(site, LAST).startswith("HTTP/1.1 200 ")


def test_an_answer_that_nobody_reads_has_a_time_for_each_mebibyte():
    limits = dict.fromkeys(["SEND_SECONDS", "BODY_SECONDS"], PATIENCE / 20)
    limits["KEEP_ALIVE_SECONDS"] = 0.01
    call = 'modern tools/call {"name": "big"}'
    with exchanges(server="core", limits=limits) as site, socket.socket() as late:
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.connect(("127.0.0.1", site.line.port))
        late.settimeout(PATIENCE)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = late
        verb, path, headers, body = site.line.request("POST", call)
        connection.request(verb, path, body, headers)
        assert late.recv(12) == b"HTTP/1.1 200"
        held, last = site.line.httpd.steps, time.monotonic() + PATIENCE
        while held and time.monotonic() < last:
            threading.Event().wait(0.02)
        assert not held, held


LONG = "test://" + "x" * 2000


LISTEN = (
    'POST modern subscriptions/listen {"notifications": {"promptsListChanged": true, '
    f'"resourceSubscriptions": ["{LONG}"]}}}}'
)


@parametrize(
    "line, first, what, fewest",
    [("GET s", b" 200 ", "tools", 1), (LISTEN, b"acknowledged", LONG, 1)],
    ids=["GET", "POST"],
)
def test_a_stream_that_is_read_late_holds_up_nobody_and_loses_nothing(
    line, first, what, fewest
):
    with exchanges(limits={"REPLAY_BYTES": 10**7}) as site, socket.socket() as late:
        site("session s 2025-06-18")
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.connect(("127.0.0.1", site.line.port))
        late.settimeout(PATIENCE)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = late
        verb, path, headers, body = site.line.request(*line.split(" ", 1))
        connection.request(verb, path, body, headers)
        change = site.line.server.changed
        with late.makefile("rb") as lines:
            assert any(first in line for line in lines)
            changes = [what] * 900 + ["prompts"]
            begin(list, map(change, changes)).result(PATIENCE)
            came = list(
                itertools.takewhile(
                    lambda line: b"prompts/" not in line and line != b"0\r\n", lines
                )
            )
            news = [one for one in came if b"_changed" in one or b"/updated" in one]
        assert len(news) >= fewest
        # The id of a session is a credential; the ids of events are recorded.
        assert site.line.names["s"].encode() not in b"".join(came)


def test_a_session_that_nobody_listens_to_keeps_few_changes():
    with exchanges(limits={"REPLAY_BYTES": 1000}) as site:
        site("session s 2025-11-25\nuntil POST s ping -> 200")
        for number in range(99):
            site.line.server.notify("x/news", {"number": number})
        (session,) = site.line.httpd.endpoint.sessions.all()
        assert session.own.size <= 1000
        site("POST s ping -> 200\na = GET s\na <* 98")


def test_a_stream_that_nobody_can_come_back_to_keeps_nothing():
    with exchanges(limits={"REPLAY_BYTES": 10**6}) as site:
        site("session s 2025-11-25\nuntil POST s ping -> 200")
        site.line.server.notify("x/news", {"text": "x" * 1000})
        (session,) = site.line.httpd.endpoint.sessions.all()
        assert session.own.size > 1000
        site("DELETE s -> 200")
        assert session.own.size == 0


def test_a_session_that_is_deleted_leaves_nothing():
    with exchanges() as site:
        for name in "ab":
            site(f"session {name} 2025-11-25")
            site(f'{name} = POST {name} :slow {{"gate": "{name}"}}')
            site(f'{name} <* "progress":1')
        site("open a\na <* held\na ends\nDELETE a|b -> 200")
        site("open b\nb <* held\nb ends")
        wait_until(site.line.httpd.endpoint.sessions.is_empty)


def test_of_the_streams_that_have_ended_the_oldest_go_first():
    with exchanges(limits={"MAX_KEPT_BYTES": 13000}) as site:
        site("session s 2025-11-25")
        link = http.client.HTTPConnection("127.0.0.1", site.line.port, timeout=PATIENCE)
        with contextlib.closing(link):
            for name in "abc":  # one after the other, on one connection
                line = 's tools/call {"name": "steps"}'
                verb, path, headers, body = site.line.request("POST", line)
                link.request(verb, path, body, headers)
                events = link.getresponse().read().decode()
                site.line.names[name] = re.search(r"(?m)^id: (\S+)", events)[1]
        site("until GET s Last-Event-ID={a} -> 405")
        site("GET s Last-Event-ID={b}|{c} -> 200 done")


def test_a_client_that_leaves_while_it_is_asked_holds_no_socket():
    with exchanges() as site:
        site("session s 2025-11-25")
        site("a = POST s :ask")
        site("a <* elicitation")
        assert all(
            one.daemon for one in threading.enumerate() if one.name.startswith("mcp-")
        )
        site.line.streams["a"][0].sock.shutdown(socket.SHUT_WR)
        with pytest.raises(http.client.IncompleteRead):
            site.line.streams["a"][1].read()


@needs_posix
def test_sigterm_lets_a_running_call_end_and_the_program_go_on():
    code = (
        f"import os, signal, sys, time; sys.path.insert(0, {str(MCP_REF.parent)!r})\n"
        "import mcp_ref as mcp\n"
        "def nap():\n    for _ in range(20):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(0.02)\n"
        "server = mcp.Server('s')\nserver.tool(nap)\nserver.run()\nsys.exit(7)"
    )
    with listening("-c", code) as (child, url):
        call, port = modern("tools/call", name="nap"), int(re.search(r":(\d+)", url)[1])
        headers = {**headers_of(call), "Connection": "keep-alive"}
        status, headers, _ = exchange(port, "POST", "/mcp", headers, mcp.encode(call))
        assert (status, headers.get("connection")) == (200, "close")
        assert status_of(child, "SIGTERM") == 7


def test_a_request_that_is_arriving_is_served_when_the_server_closes():
    with exchanges(server="empty") as site:
        httpd = site.line.httpd
        httpd.patience = 30
        with socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link:
            link.sendall(LAST[:-9].replace(b"Host", b"Expect: 100-continue\r\nHost"))
            assert b"100" in link.recv(999)  # it reads the body
            closed = begin(httpd.close)
            wait_until(lambda: httpd.endpoint.closed)
            threading.Event().wait(0.05)
            link.sendall(LAST[-9:])
            assert b" 200 " in link.recv(999)
            closed.result(PATIENCE)


@parametrize("how", ["session", "HTTP+SSE"])
def test_calls_of_sessions_end_before_the_server_closes(how):
    with exchanges() as site:
        httpd = site.line.httpd
        httpd.patience = 30
        if how == "session":
            site("session s 2025-06-18")
            site('a = POST s :slow {"gate": "g"}')
        else:
            site("a = GET - /sse")
            site("a event endpoint")
            site("POST - /{endpoint} initialize {INIT} -> 202")
            site("POST - /{endpoint} notifications/initialized -> 202")
            site('POST - /{endpoint} :slow {"gate": "g"} -> 202')
        site('a <* "progress":1')
        closed = begin(httpd.close)
        wait_until(lambda: httpd.endpoint.closed)
        threading.Event().wait(0.02)
        site("open g")
        site("a <* held")
        site("a ends")
        closed.result(PATIENCE)


def test_a_client_that_does_not_read_its_answer_does_not_hold_up_the_end():
    server, called = mcp.Server("s"), threading.Event()
    server.tool(lambda: called.set() or "x" * 2**23, name="large")
    call = modern("tools/call", name="large")
    with http_serving(server) as httpd:
        httpd.patience = 0.3
        post = "POST", "/mcp", headers_of(call), mcp.encode(call)
        with contextlib.closing(request_to(httpd.server_port, *post)):
            assert called.wait(PATIENCE)
            begin(httpd.close).result(PATIENCE)


@needs_posix
def test_a_second_signal_may_come_while_the_first_one_is_handled():
    code = (
        f"import signal, sys, threading; sys.path.insert(0, {str(MCP_REF.parent)!r})\n"
        "import mcp_ref as mcp\nkind = threading.Condition\nreal = kind.notify_all\n"
        "def notify_all(condition):\n"  # as Event.set() does, with its lock
        "    kind.notify_all = real\n    signal.raise_signal(signal.SIGTERM)\n"
        "    real(condition)\n"
        "def log(entry):\n    print(entry, flush=True)\n"
        "    kind.notify_all = notify_all\n"  # no thread starts any more
        "mcp.log = log\nmcp.Server('s').run()\nsys.exit(7)"
    )
    with listening("-c", code) as (child, _):
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 7


@parametrize("words", [["--http", "0", "--verbose"], ["--http=0", "x"]], ids=str)
def test_the_port_is_one_word_and_the_rest_is_the_programs(words):
    source = "import mcp_ref; mcp_ref.Server('s').run()"
    with listening("-c", source, *words) as (_, url):
        assert url


def test_a_level_that_does_not_exist_is_answered_with_those_that_do():
    server = mcp.Server("s")

    def tool(ctx: Context) -> None:
        ctx.log("warn", "x")

    tool.__annotations__ = {"ctx": Context}
    server.tool(tool, name="t")
    text = server.call("t")["content"][0]["text"]
    assert "'warn'" in text and "warning" in text


# ---- what is kept of strangers, and what it costs


@parametrize(
    "data, word",
    [
        (b"[" + b"[]," * mcp.MAX_VALUES + b"1]", "values"),
        (b"[" + b"1," * mcp.MAX_VALUES + b"1]", "values"),
        (b'{"a":{' + b'"k":{},' * (mcp.MAX_VALUES // 2) + b'"z":[]}}', "values"),
        (b"[" * (mcp.MAX_DEPTH + 1) + b" " * mcp.MAX_VALUES, "deep"),
        (b'["' + b"," * 2 * mcp.MAX_VALUES + b'"]', ""),
        (b'["' + b'\\",[' * mcp.MAX_VALUES + b'"]', ""),
        (b'["\\\\",' + b'"x\\\\","[",' * 150_000 + b"1]", ""),
        (b"[" + (b"[" + b"1.5," * 9 + b'"row"],') * 40_000 + b"0]", ""),
    ],
    ids=range(8),
)
def test_the_values_of_a_message_are_counted_before_it_is_decoded(data, word):
    if not word:
        assert mcp.decode(data)
        return
    with pytest.raises(mcp.RpcError, match=word) as found:
        mcp.decode(data)
    assert found.value.code == CODES["PARSE_ERROR"]


@parametrize("ident, fits", [("x" * 256, True), ("x" * 257, False), (10**256, False)])
def test_ids_and_tokens_are_short(ident, fits):
    server, sent = mcp.Server("s"), []

    @server.tool(name="t")
    def progresses(ctx: Context) -> str:
        ctx.progress(1)
        return ""

    message = modern("tools/call", name="t")
    server.handle({**message, "id": ident}, sent.append)
    if fits:
        assert sent[-1]["id"] == ident
    else:
        assert sent[-1]["error"]["code"] == CODES["INVALID_REQUEST"]
        assert "id" not in sent[-1]
    sent.clear()
    message["params"]["_meta"]["progressToken"] = ident
    server.handle(message, sent.append)
    assert len(sent) == 1 + fits and "result" in sent[-1]


def test_sessions_that_are_opened_at_once_leave_one_listener():
    server, peer = mcp.Server("s"), mcp.Peer(lambda message: None)
    server.tool(lambda: "", name="t")
    ready = threading.Barrier(8)

    def opens():
        ready.wait(PATIENCE)
        for _ in range(50):
            server.handle(OPENING, lambda message: None, peer=peer)

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert list(server.listeners) == [peer.session]
    peer.close()
    assert not server.listeners


def test_a_session_belongs_to_its_principal_in_any_order_of_members():
    of = {"a": {"x": 1, "y": 2}, "b": {"y": 2, "x": 1}, "c": {"x": 1, "y": True}}
    with exchanges(endpoint={"authorize": mcp.bearer(of, header="X-Key")}) as site:
        site("POST - X-Key=a initialize {INIT} -> 200")
        site("POST - X-Key=b Mcp-Session-Id={session} ping -> 200")
        site("POST - X-Key=c Mcp-Session-Id={session} ping -> 404")


WHO = contextvars.ContextVar("WHO", default="nobody")


def test_each_message_is_served_in_a_copy_of_the_context_of_run():
    """Over HTTP, on one connection; what authorize sets is seen by the tool only."""
    server = mcp.Server("s")

    @server.tool
    async def later() -> str:
        return WHO.get()

    @server.tool
    def now() -> str:
        seen = WHO.get()
        WHO.set("left behind")
        return seen

    def authorize(headers):
        if "x-who" in headers:
            WHO.set(headers["x-who"])
        return "ann"

    httpd = mcp.http_server(mcp.Endpoint(server, authorize=authorize))
    context = contextvars.copy_context()
    context.run(WHO.set, "the program")
    run = functools.partial(context.run, httpd.serve_forever)
    threading.Thread(target=run, daemon=True).start()
    link = http.client.HTTPConnection("127.0.0.1", httpd.server_port, timeout=PATIENCE)
    try:
        for name in ("now", "later"):
            for who in ("ann", "", "bob", ""):
                message = modern("tools/call", name=name, arguments={})
                headers = headers_of(message)
                headers.update({"X-Who": who} if who else {})
                link.request("POST", "/mcp", json.dumps(message), headers)
                text = json.loads(link.getresponse().read())["result"]["content"][0]
                assert text["text"] == (who or "the program")
    finally:
        link.close()
        httpd.close()


CONTEXTS = """
import contextvars, mcp_ref
who = contextvars.ContextVar("who", default="nobody")
who.set("the program")
server = mcp_ref.Server("s")
@server.tool
def now() -> str:
    seen = who.get()
    who.set("left behind")
    return seen
server.run()
"""


def test_a_message_on_stdio_sees_the_context_of_run_and_leaves_nothing():
    lines = [json.dumps(modern("tools/call", n, name="now")) for n in (1, 2, 3)]
    done = command("-c", CONTEXTS, text="\n".join(lines))
    texts = [json.loads(line)["result"]["content"] for line in done.stdout.splitlines()]
    assert [text[0]["text"] for text in texts] == ["the program"] * 3


def test_what_authorize_sets_is_seen_on_the_thread_of_run():
    jobs = queue.Queue()
    server = mcp.Server("s", run=jobs.put)

    @server.tool
    def now(ctx: Context) -> str:
        seen = WHO.get() + ctx.run(WHO.get)
        WHO.set("left behind")
        return seen

    def work():
        while job := jobs.get():
            job()

    threading.Thread(target=work, daemon=True).start()
    for who in ("ann", "bob"):
        context = contextvars.copy_context()
        context.run(WHO.set, who)
        result = context.run(server.call, "now")
        assert result["content"] == [mcp.text(2 * who)]
    jobs.put(None)


@needs_posix
def test_a_hang_up_of_the_terminal_ends_run_and_the_program_goes_on():
    source = "import mcp_ref; mcp_ref.Server('s').run(); print('cleaned', flush=True)"
    with subprocess.Popen(
        [*PYTHON, "-c", source], stdin=-1, stdout=-1, stderr=-1, cwd=HERE
    ) as process:
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        process.stdin.write(ping.encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and b"cleaned" in said  # print goes to stderr


FORKING = """
import multiprocessing, os, signal, sys, time
import mcp_ref
def nap():
    sys.stderr.write("napping\\n")
    time.sleep(60)
server = mcp_ref.Server("s")
@server.tool
def child(kind: str) -> int:
    if kind == "fork":
        here, there = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(there, b"x")  # Python forgets signals that come before
                time.sleep(60)
            finally:
                os._exit(7)
        os.read(here, 1)
        os.kill(pid, signal.SIGTERM)
        return os.waitpid(pid, 0)[1]
    process = multiprocessing.get_context(kind).Process(target=nap)
    process.start()
    process.terminate()
    process.join()
    return process.exitcode
@server.tool
def pool() -> list[int]:
    for _ in range(5):
        with multiprocessing.get_context("fork").Pool(2) as workers:
            numbers = workers.map(abs, [-1, -2])
    return numbers
@server.tool
def signals() -> str:
    here, there = os.pipe()
    if not os.fork():
        try:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            os.write(there, str(len(blocked)).encode())
        finally:
            os._exit(7)
    return os.read(here, 99).decode() + f" {len(signal.pthread_sigmask(1, []))}"
@server.tool
def waits_for_signals() -> str:
    ours = {signal.SIGTERM, signal.SIGUSR1}  # blocked, for sigwait()
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    seen = signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
    return seen
if __name__ == "__main__":
    server.run()
"""


@needs_posix
@parametrize("over", ["stdio", "http"])
def test_a_forked_child_is_ended_by_its_own_signals(over, tmp_path):
    """Python's own fork of a process with threads is deprecated, and still common."""
    (tmp_path / "forks.py").write_text(FORKING)
    words = ["-W", "ignore", str(tmp_path / "forks.py")]
    if over == "http":
        serving = listening(*words)
    else:
        serving = contextlib.nullcontext((None, [*PYTHON, *words]))
    environ = {"PYTHONPATH": str(HERE)}
    with mock.patch.dict(os.environ, environ), serving as (_, target):
        options = {"env": environ} if over == "stdio" else {}
        with client.connect(target, timeout=PATIENCE, **options) as one:
            for kind in ("fork", "forkserver"):
                result = one.call_tool("child", {"kind": kind})
                assert result["content"][0]["text"] in ("15", "-15"), result
            assert one.call_tool("pool")["structuredContent"] == {"result": [1, 2]}
            # Nothing is blocked any longer, here and there, but what was before.
            assert said(one, "signals") == "0 0"
            assert said(one, "waits_for_signals") == "2 2"


@needs_posix
@parametrize("words", [[], ["--http", "0"]])
def test_hooks_for_forks_are_registered_once(words):
    """They cannot be unregistered: a program that serves often must collect none."""
    source = f"""
        import os, mcp_ref
        hooks, register = [], os.register_at_fork

        def note(**functions):
            hooks.append(functions)
            register(**functions)

        os.register_at_fork = note
        server = mcp_ref.Server("s")
        for _ in range(3):
            server.stop()
            server.run({words})
            os.write(2, b"hooks: %d\\n" % len(hooks))"""
    done = command("-c", textwrap.dedent(source))
    counts = re.findall(r"hooks: (\d+)", done.stderr)
    assert len(counts) == 3 and len(set(counts)) == 1, done.stderr


def test_who_may_not_see_a_resource_may_not_watch_it():
    server = Hiding("s")
    server.resource("x://secret")(lambda: "")
    server.resource("y://{name}")(lambda name: "")
    for who, uri, good in (
        ("ann", "x://secret", True),
        ("bob", "x://secret", False),
        ("bob", "x://later", True),
        ("ann", "y://secret", True),
        ("bob", "y://secret", False),
        ("bob", "y://of/another/kind", True),
    ):
        sent = []
        wanted = {"resourceSubscriptions": [uri]}
        message = modern("subscriptions/listen", notifications=wanted)
        server.handle(message, sent.append, principal=who)
        assert ("error" not in sent[0]) == good


def test_who_is_too_far_behind_is_told_that_something_is_missing(monkeypatch):
    """No change is dropped in silence: a stream, or a session, ends."""
    monkeypatch.setattr(mcp, "AHEAD_BYTES", 20_000)
    server, gate, told = mcp.Server("s"), threading.Event(), []

    class Wire(mcp.Exchange):
        def write(self, data: bytes) -> None:
            told.append(data)
            gate.wait(PATIENCE)

    wanted = {"notifications": {"x/news": True}}
    message = modern("subscriptions/listen", **wanted)
    body = mcp.encode(message)
    headers = {**headers_of(message), "Content-Length": str(len(body))}
    wire = Wire("POST", "/mcp", headers.items(), io.BytesIO(body))
    with contextlib.closing(mcp.Endpoint(server)) as endpoint:
        serving = begin(endpoint.serve, wire)
        wait_until(lambda: told)
        for number in range(40):
            server.notify("x/news", {"number": number, "text": "x" * 1000})
        gate.set()
        serving.result(PATIENCE)  # though nobody has ended it

    with exchanges(server="empty") as site:
        site("session s 2025-11-25")
        site("POST s notifications/initialized -> 202")
        for number in range(40):
            site.line.server.notify("x/news", {"number": number, "text": "x" * 1000})
        site("POST s ping -> 404")


def test_a_resumed_stream_has_ended_before_its_connection_goes_on():
    """The thread of a call writes the end of a stream that a GET has resumed. Only then
    may the connection of the GET serve the next request."""
    server, gate, early = mcp.Server("s"), threading.Event(), []

    @server.tool
    def report(ctx: mcp.Context) -> str:
        ctx.progress(1)
        gate.wait(PATIENCE)
        return "x"

    class Wire(mcp.Exchange):
        text = ""

        def start(self, status, headers, body):
            self.session = headers.get("Mcp-Session-Id")

        def write(self, data: bytes) -> None:
            self.text += data.decode()

        def end(self, hang_up: bool = False) -> None:
            if self.method == "GET":
                wait([getting], 0.05)
                early.append(getting.done())

    def wire(verb: str, said: str = "", **named: str) -> Wire:
        headers = {name.replace("_", "-"): value for name, value in named.items()}
        sizes = {"Content-Type": "application/json", "Content-Length": str(len(said))}
        return Wire(
            verb, "/mcp", {**sizes, **headers}.items(), io.BytesIO(said.encode())
        )

    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    params = {"name": "report", "_meta": {"progressToken": 1}}
    calling = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with contextlib.closing(mcp.Endpoint(server)) as endpoint:
        first = wire("POST", json.dumps(opening))
        endpoint.serve(first)
        call = wire("POST", json.dumps(calling), Mcp_Session_Id=first.session)
        posting = begin(endpoint.serve, call)
        wait_until(lambda: "progress" in call.text)
        last = re.search("id: (.*)-1", call.text)[1] + "-0"
        resumed = wire("GET", Mcp_Session_Id=first.session, Last_Event_ID=last)
        getting = begin(endpoint.serve, resumed)
        wait_until(lambda: "progress" in resumed.text)
        gate.set()
        getting.result(PATIENCE)
        posting.result(PATIENCE)
    assert early == [False] and '"result"' in resumed.text


def test_a_page_of_another_site_opens_no_stream():
    """A GET may have no Origin; a browser says whose page it is for."""
    with exchanges(server="empty") as site:
        site("GET - Sec-Fetch-Site=cross-site /sse -> 403 Origin")
        site("POST - Sec-Fetch-Site=cross-site ping -> 403 Origin")
        site("a = GET - Sec-Fetch-Site=same-origin /sse")
        site("b = GET - Sec-Fetch-Site=none /sse")
        site("POST - Sec-Fetch-Site=cross-site Origin=http://localhost ping -> 200")
        site("POST - Sec-Fetch-Site=cross-site Origin=http://evil ping -> 403 Origin")
    with exchanges(server="empty", endpoint={"origins": ["*"]}) as site:
        site("POST - Sec-Fetch-Site=cross-site ping -> 200")


ASKING = """
import mcp_ref
mcp_ref.DRAIN_SECONDS = PATIENT
server = mcp_ref.Server("s")
@server.tool
def book(ctx: mcp_ref.Context) -> str:
    day = ctx.elicit("Which day?", day=str)["content"]["day"]
    return day + ctx.elicit("How many?", seats=int)["content"]["seats"] * "!"
server.run()
"""


@contextlib.contextmanager
def asked_over_http(seconds: float):
    """Have a tool ask, in a session, and then end the server; yield how the client
    answers, what the call's stream says next, and the process."""
    source = ASKING.replace("PATIENT", str(seconds))
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\n{source}"
    with contextlib.ExitStack() as stack:
        process, url = stack.enter_context(listening("-c", program))
        port = int(re.search(r":(\d+)/", url)[1])
        links = []
        for _ in range(2):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            links.append(stack.enter_context(contextlib.closing(link)))
        kept, calling = links
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

        def post(link, message):
            link.request("POST", "/mcp", json.dumps(message), headers)
            return link.getresponse()

        opened = post(kept, OPENING)
        headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
        opened.read()
        post(kept, json.loads(READY)).read()
        params = {"name": "book", "arguments": {}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        stream = post(calling, call)

        def next_event():
            for line in stream:
                if line.startswith(b"data: {"):
                    return json.loads(line[6:])
            return None

        def answer(ident, **content):
            result = {"action": "accept", "content": content}
            response = post(kept, {"jsonrpc": "2.0", "id": ident, "result": result})
            response.read()
            return response

        first = next_event()
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_open(port))
        yield first["id"], answer, next_event, process


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@needs_posix
def test_a_user_who_is_asked_may_answer_while_the_server_drains():
    with asked_over_http(PATIENCE) as (first, answer, next_event, process):
        response = answer(first, day="monday")
        assert response.status == 202 and "Connection" not in response.headers
        # The connection has been kept for the second answer.
        assert answer(next_event()["id"], seats=1).status == 202
        assert next_event()["result"]["content"] == [mcp.text("monday!")]
        assert process.wait(PATIENCE) == 0


@needs_posix
def test_a_question_that_is_open_at_the_end_says_so():
    with asked_over_http(2) as (_, _, next_event, process):
        ended = next_event()
        assert "closing" in json.dumps(ended["result"]) and ended["result"]["isError"]
        said = process.stdout.read()
        assert "closing" in said and "Traceback" not in said
        assert process.wait(PATIENCE) == 0


def test_what_a_server_abandons_when_it_closes_is_logged(capfd):
    with exchanges() as site:
        site('a = POST modern :slow {"gate": "g"}')
        site('a <* "progress":1')
        site("close")
        site("open g")
    assert "requests abandoned: tools/call" in capfd.readouterr().err


@needs_posix
def test_connections_follow_the_limit_of_descriptors(monkeypatch):
    import resource

    listen = 'POST modern subscriptions/listen {"notifications": {}}'
    monkeypatch.setattr(resource, "getrlimit", lambda which: (34, 34))
    with exchanges() as site:  # two connections, and one may last
        site(f"a = {listen}")
        site(f"until {listen} -> 503 too many streams")
        site("until POST - ping -> 200")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))
    with exchanges() as site:
        site(f"a = {listen}")
        site(f"b = {listen}")


def test_the_connection_of_a_client_that_has_left_ends_in_silence(monkeypatch):
    """Nothing has been sent before, so nothing tells that the client is gone."""
    server, cancelled, log = mcp.Server("s"), threading.Event(), []

    @server.tool
    def waits(ctx: Context) -> None:
        ctx.on_cancel(cancelled.set)
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert cancelled.wait(PATIENCE)

    monkeypatch.setattr(mcp, "log", log.append)
    call = modern("tools/call", name="waits")
    with http_serving(server) as httpd:
        connection = http.client.HTTPConnection("127.0.0.1", httpd.server_port)
        connection.request("POST", "/mcp", mcp.encode(call), headers_of(call))
        assert cancelled.wait(PATIENCE)
    connection.close()
    assert not [line for line in log if "failed" in line]


@parametrize(
    "accept, ready, form",
    [
        ("*/*", True, "text/event-stream"),
        ("application/json", True, "application/json"),
        ("*/*", False, "application/json"),
    ],
)
def test_a_silent_call_becomes_a_stream_if_that_is_accepted_and_can_be_written(
    accept, ready, form
):
    server, sent = mcp.Server("s"), []

    class Wire(mcp.Exchange):
        checks = 0

        def start(self, status, headers, body) -> None:
            sent.append(headers["Content-Type"])
            sent.append(body or b"")

        def write(self, data: bytes) -> None:
            sent.append(data)

        def ready(self) -> bool:
            return ready

        def gone(self) -> bool:
            self.checks += 1
            return False

    @server.tool
    def silent() -> str:
        wait_until(lambda: wire.checks > 1)
        return "held"

    call = modern("tools/call", name="silent")
    body = mcp.encode(call)
    headers = {**headers_of(call), "Content-Length": str(len(body)), "Accept": accept}
    wire = Wire("POST", "/mcp", headers.items(), io.BytesIO(body))
    with limits(KEEP_ALIVE_SECONDS=0, CHECK_SECONDS=0.001):
        with contextlib.closing(mcp.Endpoint(server)) as endpoint:
            endpoint.serve(wire)
    kind, first, *events = sent
    assert kind == form and b"held" in sent[-1]
    if form == "text/event-stream":
        assert first == b"" and {*events[:-1]} == {b": \n\n"}
    else:
        assert not events


def test_one_exception_does_not_end_the_checks(capfd):
    server, cancelled = mcp.Server("s"), threading.Event()

    class Wire(mcp.Exchange):
        looks = 0

        def gone(self) -> bool:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("no socket")
            return True

    @server.tool
    def waits(ctx: Context) -> None:
        ctx.on_cancel(cancelled.set)
        cancelled.wait(PATIENCE)

    call = posted(modern("tools/call", name="waits"), Wire)
    with contextlib.closing(mcp.Endpoint(server)) as endpoint:
        begin(endpoint.serve, call).result(2 * PATIENCE)
    assert cancelled.is_set() and "no socket" in capfd.readouterr().err


def test_a_client_that_has_left_does_not_keep_changes_from_others(capfd):
    server, told = mcp.Server("s"), []

    def fail(message):
        raise OSError("broken pipe")

    server.tool(lambda: None, name="new")
    peers = [mcp.Peer(fail), mcp.Peer(told.append)]
    hello = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": {}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for peer in peers:
        server.handle(first, lambda message: None, peer=peer)
        server.handle(ready, print, peer=peer)
    server.changed("tools")
    server.notify("example.org/news")
    methods = ["notifications/tools/list_changed", "example.org/news"]
    assert [one["method"] for one in told] == methods
    assert capfd.readouterr().err.count("broken pipe") == 2
    wanted = {"notifications": {"toolsListChanged": True}}
    for ident in (7, 8):  # their acknowledgements can be sent
        listen = modern("subscriptions/listen", ident, **wanted)
        server.handle(
            listen, mock.Mock(side_effect=[None, *[OSError] * 9]), peer=peers[0]
        )
    for peer in peers:
        peer.close()
    server.changed("tools")
    assert len(told) == 2 and not server.listeners


@parametrize("address, its_own", [("LocalHost", 403), ("127.0.0.2", 200)])
def test_the_rule_for_hosts_looks_at_the_address_and_not_at_its_spelling(
    address, its_own
):
    if address == "127.0.0.2" and sys.platform != "linux":
        pytest.skip("others do not have it")
    httpd = mcp.http_server(mcp.Endpoint(mcp.Server("s")), address)
    statuses = []
    with contextlib.closing(httpd):
        begin(httpd.serve_forever)
        for host in ("127.0.0.2", "localhost", "evil.example"):
            port = httpd.server_port
            link = http.client.HTTPConnection(address, port, timeout=PATIENCE)
            headers = {"Host": host, "Content-Type": "application/json"}
            link.request("POST", "/mcp", HTTP_PING, {**headers, "Connection": "close"})
            with link.getresponse() as answer:  # it outlives its connection
                statuses.append(answer.status)
    assert statuses == [its_own, 200, 403]


def test_headers_are_found_in_any_case():
    server, seen = mcp.Server("s"), []

    @server.tool
    def find(ctx: Context) -> str:
        found = ctx.headers
        seen.append(
            (found.get("X-Key"), found["x-KEY"], "X-Key" in found, found.get("Y", 5))
        )
        return "found"

    def authorize(headers: dict) -> str:
        seen.append((headers.get("x-key"), headers["X-Key"], "X-Other" in headers))
        return "ann"

    call = modern("tools/call", name="find")
    with http_serving(server, authorize=authorize) as httpd:
        headers = {**headers_of(call), "x-Key": "k"}
        exchange(httpd.server_port, "POST", "/mcp", headers, mcp.encode(call))
    assert seen == [("k", "k", False), ("k", "k", True, 5)]


@parametrize("kind", ["def", "partial", "method", "object"])
def test_authorize_must_not_be_a_coroutine(kind):
    async def check(headers: dict) -> str:
        return "ann"

    class Check:
        async def __call__(self, headers: dict) -> str:
            return "ann"

        check = __call__

    made = {
        "def": check,
        "partial": functools.partial(check),
        "method": Check().check,
        "object": Check(),
    }
    with pytest.raises(TypeError, match="async"):
        mcp.Endpoint(mcp.Server("s"), authorize=made[kind])


@parametrize(
    "given", [{}, {"www-authenticate": "Basic"}, {"WWW-Authenticate": "Basic"}]
)
def test_each_401_names_a_scheme(given):
    def authorize(headers: dict):
        raise mcp.HttpError(401, "no", given)

    with http_serving(mcp.Server("s"), authorize=authorize) as httpd:
        answer = request_to(httpd.server_port, "POST", "/mcp", {}, b"{}").getresponse()
        told = answer.headers.get_all("WWW-Authenticate")
        answer.read()
    assert (answer.status, told) == (401, [*given.values()] or ["Bearer"])


def test_bearer_tokens_and_principals(capfd):
    answers = {
        "object": object(),
        "none": None,
        "false": False,
        "zero": 0,
        "empty": "",
        "list": [1],
        "one": 1,
        "true": True,
    }

    def hook(headers: dict):
        if headers["x-who"] == "refused":
            raise mcp.HttpError(403, "no", {"X-Why": "a\r\nInjected: b"})
        return answers[headers["x-who"]]

    with exchanges(endpoint={"authorize": hook}) as site:
        site("POST - X-Who=none|false|empty ping -> 401")
        site("POST - X-Who=zero|list ping -> 200")
        site("POST - X-Who=one initialize {INIT} -> 200")
        site("POST - X-Who=true Mcp-Session-Id={session} ping -> 404")
        site('POST - X-Who=refused ping -> 403 x-why & !"injected"')
        site("POST - ping -> 500 {INTERNAL_ERROR} & !x-who")
        site("POST - X-Who=object ping -> 500")
    assert "JSON value" in capfd.readouterr().err
    bearer = mcp.bearer({"good": "ann"}, metadata_url="https://m")
    with exchanges(endpoint={"authorize": bearer}) as site:
        place = 'resource_metadata=\\"https://m\\"'
        site(f'POST - ping -> 401 www-authenticate": "Bearer {place} & !error=')
        site("POST - Authorization=Basic%20good|good|Bearer%20 ping -> 401 !error=")
        flaw = 'error=\\"invalid_token\\"'
        site(f"POST - Authorization=Bearer%20bad ping -> 401 Bearer {flaw}, {place}")
        site("POST - Authorization=Bearer%20good|bearer%20good ping -> 200")


def test_a_mounted_endpoint_says_when_to_hang_up():
    with exchanges(limits={"REPLAY_BYTES": 100}) as site:

        def serve(verb, line, body=None, write=None):
            verb, path, headers, data = site.line.request(verb, line)
            headers.update(
                {"Content-Length": str(len(data or "")), "Host": "localhost"}
            )
            one = mcp.Exchange(verb, path, headers.items(), body or io.BytesIO(data))
            one.start, one.write, one.end = (
                mock.Mock(),
                mock.Mock(side_effect=write),
                mock.Mock(),
            )
            site.line.httpd.endpoint.serve(one)
            return one

        site("session s 2025-11-25")
        one = serve("POST", 's tools/call {"name": "later"}')
        assert one.end.mock_calls == [mock.call(True)] and not one.gone()
        one = serve("POST", "s ping", mock.Mock(**{"read.side_effect": OSError}))
        assert one.start.call_args[0][0] == 408
        site("changed tools")
        one = serve("GET", "s", None, mock.Mock(side_effect=OSError))
        assert one.end.mock_calls == []  # it has hung up
        site("changed tools")
        # A GET that takes over ends the answer of the other one.
        one = serve("GET", "s", None, lambda _: site("b = GET s"))
        assert one.end.mock_calls == [mock.call(False)]
        site("close")
        serve(*LISTEN.split(" ", 1))  # ends at once


def serve_mounted(site, verb: str, line: str, write=lambda data: None):
    """Have the endpoint serve a request whose client takes events with `write`."""
    verb, path, headers, data = site.line.request(verb, line)
    headers.update({"Content-Length": str(len(data or "")), "Host": "localhost"})
    one = mcp.Exchange(verb, path, headers.items(), io.BytesIO(data))
    one.write = write
    site.line.httpd.endpoint.serve(one)


def test_a_change_is_told_before_its_subscription_ends():
    told = []
    with exchanges() as site:

        def write(data):
            told.extend(re.findall(rb'acknowledged|prompts/\w+|"result"', data))
            if told == [b"acknowledged"]:
                site("changed prompts")
                site.line.httpd.endpoint.close()

        serve_mounted(site, *LISTEN.split(" ", 1), write)
    assert told == [b"acknowledged", b"prompts/list_changed", b'"result"']


def test_a_subscription_whose_client_has_left_is_forgotten_without_a_check():
    with exchanges() as site:

        def write(data):
            site.line.server.changed("prompts")
            if b"list_changed" in data:
                raise OSError

        site.line.httpd.endpoint.begin_checks = lambda: None
        serve_mounted(site, *LISTEN.split(" ", 1), write)
        assert not site.line.server.listeners


def test_a_handler_does_not_wait_for_a_client_that_has_left():
    left = mock.Mock(side_effect=OSError)
    with exchanges() as site:
        site("session s 2025-06-18")
        call = 's tools/call {"name": "steps", "_meta": {"progressToken": 0}}'
        begin(serve_mounted, site, "POST", call, left).result(PATIENCE)
    assert left.call_count == 1


def test_http_sse_ends_with_its_last_call_when_the_endpoint_closes():
    with exchanges() as site:
        site("a = GET - /sse")
        site("a event endpoint")
        site("POST - /{endpoint} initialize {INIT} -> 202")
        site('POST - /{endpoint} :slow {"gate": "g"} -> 202')
        site('a <* "progress":1')
        site.line.httpd.endpoint.close()
        site("open g")
        site("a <* held")
        site("a ends")


def test_http_is_served_on_any_thread_and_at_its_own_addresses(capfd):
    endpoint = mcp.Endpoint(mcp.Server("s"))
    endpoint.close()
    begin(mcp.serve_http, endpoint.server, port=0, endpoint=endpoint).result(PATIENCE)
    digest = hashlib.sha256(MCP_REF.read_bytes()).hexdigest()[:12]
    said = (
        rf"mcp_ref: s listens on http://127.0.0.1:\d+/mcp \(mcp_ref {mcp.__version__}"
    )
    assert re.fullmatch(rf"{said} sha256:{digest}\)\n", capfd.readouterr().err)
    with pytest.raises(SystemExit, match="192.0.2.1"):
        endpoint.server.run(["--http", "192.0.2.1:0"])


def test_each_line_for_users_of_fastmcp_runs():
    text = (HERE / "examples" / "guide.md").read_text("utf-8")
    text = text.partition("\n## From FastMCP\n")[2]
    code = re.search(r"(?ms)^```python\n(.*?)^```", text)[1]
    assert sorted(map(int, re.findall(r"\b(\d+)\. ", code))) == [*range(1, 21)]
    calls = """
    for name, given in (("add", {"a": 2}), ("cheapest", {}), ("sea_weather", {}), ("sold", {})):
        assert "isError" not in server.call(name, **given), name
    with connect(server, elicit=lambda params: "decline", sample=lambda params: "") as client:
        assert client.call_tool("order")["isError"]
        assert "sprat" in str(client.get_prompt("recipe", {"fish": "sprat"}))"""
    start = f"import sys\nsys.path.append({str(HERE / 'examples')!r})\n"
    done = command("-c", start + code.replace("    server.run() ", calls), cwd=HERE)
    assert done.returncode == 0, done.stderr


A_FILE_OF_SCRIPTS = """from testing.scripts import each, scripts

test_it = scripts(
    r'''
== this works | on: newest memory
tools/list => {"tools": [{"name": "add"}, "..."]}
ping => error {METHOD_NOT_FOUND}
== the second line fails | on: newest memory
ping => error {METHOD_NOT_FOUND}
tools/list =>
    {"tools": []}
'''
    + each(
        r'''
== @1 is added | on: newest memory
:add {"a": @1}
    => "@2"
''',
        r'''
1 | 3
2 | 3
''',
    )
)
""".replace("'''", '"""')


def test_a_script_that_fails_names_its_lines(tmp_path):
    (tmp_path / "given.py").write_text(A_FILE_OF_SCRIPTS, "utf-8")
    test = load("given", tmp_path / "given.py").test_it
    said = {}
    for case in test.pytestmark[0].args[1]:
        try:
            said[case.id] = test(*case.values)
        except AssertionError as problem:
            said[case.id] = str(problem)
    works, fails, added, again = said
    assert works == f"this_works-{NEWEST}-memory" and fails.startswith("second_line")
    assert said[works] is None and said[added] is None
    place = re.escape(str(tmp_path / "given.py"))
    for failure, line, head, rule in (
        (fails, 10, 8, "/result/tools/0/: expected"),
        (again, 16, 21, "/result/content/0/text/: expected '3', came '4'"),
    ):
        first, second, *_ = said[failure].splitlines()
        assert re.match(f"{place}:{line}: {rule}", first)
        assert second.startswith(f"in the script at {tmp_path / 'given.py'}:{head}, ")
    assert f"[{fails}]\n" in said[fails] and f"[{again}]\n" in said[again]
    assert "tools/list =>\n" in said[fails] and ':add {"a": @1}\n' in said[again]


def test_no_revision_is_named_outside_the_tables():
    tree = ast.parse(MCP_REF.read_text("utf-8"))
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    dates = [
        date
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in docstrings
        for date in re.findall(r"20\d\d-\d\d-\d\d", str(node.value))
    ]
    assert dates == list(mcp.REVISIONS)


def test_each_feature_is_read_and_a_misspelt_one_raises():
    source = MCP_REF.read_text("utf-8")
    for row in mcp.FEATURES.values():
        assert row.fields or f'has("{row.name}")' in source, row.name
    for row in mcp.DIFFERENCES.values():
        assert f'"{row.name}"' not in source, row.name
    for version in ORDER:
        with pytest.raises(KeyError):
            mcp.rules(version).has("batch")


def test_each_revision_has_its_capabilities_and_meta():
    server = mcp.Server("s")
    server.prompt(lambda a: a, name="p")
    server.resource("x:y")(lambda: "")
    server.completion("p", "a")(lambda typed: [])
    change = {"listChanged": True}
    for version in ORDER:
        found = server.capabilities(version)
        assert found.pop("prompts") == change and found.pop("logging") == {}
        assert found.pop("resources") == {**change, "subscribe": True}
        completes = exists(revisions.METHODS["completion/complete"], version)
        named = exists(revisions.MEMBERS["capabilities.completions"], version)
        wanted = {"completions": {}} if completes and named else {}
        assert found == wanted, f"in {version}, says testing/revisions.py"
        told = server.capabilities(version, tells=False)
        assert told["prompts"] == told["resources"] == {}
        given = {mcp.META_CLIENT: {"name": "c"}, "traceparent": "t"}
        meta = mcp.meta_for(version, given)
        assert meta["traceparent"] == "t"
        if version in MODERN:
            assert meta[mcp.META_VERSION] == version
            assert meta[mcp.META_CAPABILITIES] == {}
            assert meta[mcp.META_CLIENT] == {"name": "c"}
        else:
            assert set(meta) == {"traceparent"}


# A revision after the newest one, which exists only here: a row or a word for each kind
# of difference, as CONTRIBUTING says. What each row stands before, and the row.
NEXT = f"{int(NEWEST[:4]) + 1}-03-15"


NEXT_ROWS = {
    f"{NEWEST}  modern": f"{NEXT}  modern",
    "tools/list +>": "things/list  >  R6  -  -  no  no  -  -",
    "notifications/message  ": "notifications/things/changed  <  R6  -  -  -  -",
    "caching hints  ": "fancy tools  R6  -  -  tool.fancy\n"
    "    old total  R1  R5  -  result.total\n    new sum  R6  -  -  result.sum",
    "text +R1": "video  R6  -  data mimeType  -",
    "io.modelcontextprotocol/protocolVersion ": "org.example/locale  >  R6  -  str",
    "-32600 +InvalidRequest": "-32030  TooBusy  R6  -  400  the server is busy",
}


# Their rows get an `until`.
RETIRED = "roots/list", "completion/complete"


def next_module():
    """Make a module that knows one revision more, in which two methods are gone."""
    source = MCP_REF.read_text("utf-8")
    older, newer = f"R{len(ORDER)}", f"R{len(ORDER) + 1}"
    for method in RETIRED:
        row = rf"(\n    {method} +[<>]+ +R\d +)-"
        source, count = re.subn(row, rf"\1{older}", source)
        assert count == 1, f"{method} has an `until`: name another one in RETIRED"
    # A row of META and one of ERRORS has a name below the table.
    source = source.replace("(\n    META_VERSION,", "(\n    _, META_VERSION,")
    source = source.replace(
        "    INVALID_REQUEST,\n", "    TOO_BUSY, INVALID_REQUEST,\n"
    )
    for place, row in NEXT_ROWS.items():
        row = row.replace("R6", newer).replace("R5", older)
        source, count = re.subn(f"\n    {place}", f"\n    {row}\\g<0>", source)
        assert count == 1, f"NEXT_ROWS: mcp_ref.py has {count} rows like {place!r}"
    module: Any = types.ModuleType("mcp_next")
    module.__file__ = str(MCP_REF)
    with mock.patch.dict(sys.modules, mcp_next=module):
        exec(compile(source, str(MCP_REF), "exec"), vars(module))
    return module


def next_server(module):
    server = module.Server("s")
    module.SERVED["things/list"] = lambda server, ctx: {"things": []}

    def where(ctx) -> list:
        ctx.notify("notifications/things/changed")
        return ctx.list_roots()

    where.__annotations__["ctx"] = module.Context
    server.tool(where)
    server.tools["where"].definition["fancy"] = {"x": 1}
    video = {"type": "video", "data": "AA==", "mimeType": "video/x"}
    server.tool(lambda: video, name="film")
    server.prompt(lambda a: a, name="p")
    server.completion("p", "a")(lambda typed: [])

    def busy() -> None:
        raise module.RpcError(module.TOO_BUSY)

    server.tool(busy)
    totals = {"total": 1, "sum": 1}
    serve_tools = module.SERVED["tools/list"]
    module.SERVED["tools/list"] = lambda *given: {**totals, **serve_tools(*given)}
    server.method("org.example/count")(lambda params: totals)
    return server


@parametrize(
    "version, code", [(NEXT, "INVALID_PARAMS"), ("2", "UNSUPPORTED_PROTOCOL_VERSION")]
)
def test_a_required_key_is_asked_of_no_other_revision(version, code):
    module, sent = next_module(), []
    assert module.meta_for(NEXT)["org.example/locale"] == ""
    assert "org.example/locale" not in module.meta_for(NEWEST)
    meta = {module.META_VERSION: version, module.META_CAPABILITIES: {}}
    request = {**modern("tools/list"), "params": {"_meta": meta}}
    next_server(module).handle(request, sent.append)
    assert sent[0]["error"]["code"] == CODES[code], sent
    assert ("org.example/locale" in sent[0]["error"]["message"]) is (version == NEXT)


def asking(module, server):
    """Make a function that sends a request in a revision and returns what came."""

    def said(version: str, method: str, **params) -> list:
        sent: list = []
        request = modern(method, **params)
        given = {module.META_CAPABILITIES: {"roots": {}}, "x/y": 1}
        request["params"]["_meta"] = module.meta_for(version, given)
        server.handle(request, sent.append)
        return sent

    return said


def test_two_modern_revisions_may_differ_and_each_difference_is_a_row():
    module = next_module()
    said, newest = asking(module, next_server(module)), NEWEST
    assert module.versions("modern") == [NEXT, *MODERN]
    (new,), (old,) = said(NEXT, "things/list"), said(newest, "things/list")
    assert new["result"]["things"] == []
    assert old["error"]["code"] == CODES["METHOD_NOT_FOUND"]

    (new,), (old,) = said(NEXT, "tools/list"), said(newest, "tools/list")
    assert new["result"]["tools"][0]["fancy"] == {"x": 1}
    assert "fancy" not in old["result"]["tools"][0]
    assert [key for key in ("total", "sum") if key in new["result"]] == ["sum"]
    assert [key for key in ("total", "sum") if key in old["result"]] == ["total"]
    for version in (NEXT, newest):  # an extension's result is its own
        (count,) = said(version, "org.example/count")
        assert count["result"]["total"] == count["result"]["sum"] == 1

    (new,), (old,) = (said(one, "tools/call", name="film") for one in (NEXT, newest))
    assert new["result"]["content"][0]["type"] == "video"
    assert old["result"]["content"][0]["type"] == "resource"
    (new,), (old,) = (said(one, "tools/call", name="busy") for one in (NEXT, newest))
    assert new["error"]["code"] == module.TOO_BUSY
    assert old["error"]["code"] == CODES["INTERNAL_ERROR"]
    (new,), (old,) = (said(one, "server/discover") for one in (NEXT, newest))
    assert "completions" in old["result"]["capabilities"]
    assert "completions" not in new["result"]["capabilities"]


def test_two_modern_revisions_may_differ_in_what_a_server_sends():
    module = next_module()
    server = next_server(module)
    said = asking(module, server)

    def listener(version: str) -> list:
        wanted = {"notifications/things/changed": True, "toolsListChanged": True}
        return said(version, "subscriptions/listen", notifications=wanted)

    new, old = (said(one, "tools/call", name="where") for one in (NEXT, NEWEST))
    assert [one.get("method") for one in new] == ["notifications/things/changed", None]
    assert new[-1]["error"]["code"] == CODES["MISSING_REQUIRED_CLIENT_CAPABILITY"]
    assert [one["result"]["resultType"] for one in old] == ["input_required"]

    hears, hears_not = listener(NEXT), listener(NEWEST)
    server.notify("notifications/things/changed")
    server.changed("tools")
    things, tools = "notifications/things/changed", "notifications/tools/list_changed"
    assert [one["method"] for one in hears[1:]] == [things, tools]
    assert [one["method"] for one in hears_not[1:]] == [tools]


def names_given(tree: ast.Module) -> set[str]:
    """Return the names that the statements of a module define, outside of blocks."""
    found = {getattr(statement, "name", "") for statement in tree.body}
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            nodes = [one for one in ast.walk(statement) if isinstance(one, ast.Name)]
            found |= {one.id for one in nodes if isinstance(one.ctx, ast.Store)}
    return found


def test_a_copy_without_part_ii_is_a_complete_server_on_stdio(tmp_path):
    """Of the names that part II gives, only run() reads one. So the vectors of a few
    pages are enough here; the stage `vectors` sets a variable, and all are played."""
    part_one, part_two = re.split("(?m)^# =+ Part II: ", MCP_REF.read_text("utf-8"))
    one, two = ast.parse(part_one), ast.parse("#" + part_two)
    read = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
    assert read & (names_given(two) - names_given(one)) == {"serve_http_at"}

    shutil.copytree(HERE / "examples", tmp_path / "examples")
    # The extensions tasks and skills need the client, and that needs part II.
    kept = re.sub(
        r"(?m)^.*\b([Tt]asks|serve_skills)\b.*\n", "", EVERYTHING.read_text("utf-8")
    )
    everything = tmp_path / "examples" / "everything_server.py"
    everything.write_text(kept, "utf-8")

    module = tmp_path / "mcp_ref.py"
    module.write_text("raise SystemExit('this copy')")  # the next lines run the copy
    assert "this copy" in command(str(everything), path=tmp_path).stderr
    module.write_text(part_one, "utf-8")
    run = "from mcp_ref import *; server = Server('s'); server.run"
    hello = mcp.encode(modern("server/discover")).decode()
    for options, status, word in (
        ("[]", 0, ""),
        ("[], authorize=None, stateless=True", 0, ""),
        ("['--http', '0']", 1, "part II"),
        ("http='127.0.0.1:0'", 1, "part II"),
    ):
        done = command("-c", f"{run}({options})", text=hello, path=tmp_path)
        assert (done.returncode, "result" in done.stdout) == (status, not status), done
        assert word in done.stderr, done
    pages, revisions = ["--only", "stdio", "--only", "tools"], [NEWEST, NEWEST_LEGACY]
    if "MCP_VECTORS" in os.environ:
        pages, revisions = [], ORDER
    play_vectors(*pages, *PYTHON, everything, revisions=revisions, path=tmp_path)
