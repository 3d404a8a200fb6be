"""Tests of mcp_client.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import hashlib
import http.client
import inspect
import io
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import types
import weakref
from pathlib import Path

import pytest
from testing.places import (
    HOST,
    JSON,
    answering,
    make_certificate,
    program_of,
    said,
    unused_port,
)
from testing.scripts import (
    HERE,
    MCP_REF,
    MODERN,
    NEWEST,
    NEWEST_LEGACY,
    OLDEST,
    PATIENCE,
    PYTHON,
    TIME,
    Context,
    Fickle,
    Site,
    Stage,
    begin,
    cli,
    client,
    differences,
    each,
    exists,
    fixture,
    http_answer,
    http_serving,
    limits,
    mcp,
    needs_posix,
    next_of,
    parametrize,
    scripts,
    select,
    talk,
    wait_until,
)

# ---- the same rules for a client


test_client_messages = scripts(
    r"""
== all pages (an empty cursor is one) and errors | on: * !http-2024-11-05
call list_prompts
prompts/list {"cursor": null} => {"prompts": [{"name": "a"}], "nextCursor": ""}
prompts/list {"cursor": ""} => {"prompts": [{"name": "b"}]}
returns [{"name": "a"}, {"name": "b"}]
call read_resource test://x
resources/read {"uri": "test://x"} => error {INVALID_PARAMS} gone {"uri": "test://x"}
raises RpcError {INVALID_PARAMS} gone
== notify() sends only what the revision has
call notify notifications/roots/list_changed
[legacy] > - notifications/roots/list_changed
returns null
call notify notifications/example.org/x {"y": 1}
> - notifications/example.org/x {"y": 1}
returns null
== a server without features | on: memory | declare: {"experimental": {}}
call list_tools
returns []
call call_tool x
raises ServerLacks tools
== pages and questions without end | on: memory modern | limits: {"MAX_PAGES": 2, "MAX_ROUNDS": 1}
call list_prompts
prompts/list => {"prompts": [], "nextCursor": "2"}
prompts/list => {"prompts": [], "nextCursor": "2"}
raises Malformed pages
call call_tool x
tools/call => {"resultType": "input_required", "requestState": "1"}
tools/call {"requestState": "1"} => {"resultType": "input_required", "requestState": "2"}
raises Malformed asked for input
== answers in any order and in batches; a server that dies | on: pipe | connect: {"roots": []}
call list_tools
> 1 tools/list
call list_prompts
> 2 prompts/list
[modern] < #a roots/list
< 2 {"prompts": []}
[!2025-03-26] < 1 {"tools": []}
[2025-03-26] << [{"jsonrpc": "2.0", "method": "notifications/x"},
    {"jsonrpc": "2.0", "id": {ID:1}, "result": {"tools": []}}]
returns []
returns []
call list_tools
> tools/list
exit out of memory
raises Disconnected out of memory
""",
    "client",
)


# ======== The client. First: which era the server speaks


SESSION = """> initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}}
< {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}, "serverInfo": {"name": "s"}}
> - notifications/initialized
returns {"modern": false, "version": "{VERSION}", "server_info": {"name": "s"}}"""


test_client_finds_the_era = scripts(
    (
        each(
            r"""
== the probe gets @2 | bare | on: @1 2025-11-25
call connect
> server/discover
@2
@3
""",
            r"""
memory | < {"supportedVersions": "2026", "capabilities": {}} | @SESSION
memory | < {"supportedVersions": ["2025-11-25"], "capabilities": {}} | @SESSION
memory | < error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["2025-11-25"]} | @SESSION
memory | < error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["2099"]} | raises Exception 2099
memory http | < error {HEADER_MISMATCH} | raises RpcError {HEADER_MISMATCH}
memory | < error {MISSING_REQUIRED_CLIENT_CAPABILITY} | raises RpcError -32021
http | << 400 {} Bad Request: no session | @SESSION
http | << 405 {} {"error": "not_found"} | @SESSION
http | << 404 {} {"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": ""}} | @SESSION
http | << 401 {} who | raises HttpError 401
http | << 403 {} not you | raises HttpError 403
""",
        )
        + each(
            r"""
== revision @1 is wanted, @3 raises @4 | bare | on: memory 2025-11-25
call connect {"revision": "@1"}
@2 => @3
raises @4
""",
            r"""
2026-07-28 | server/discover | error {METHOD_NOT_FOUND} | Disconnected 2026-07-28
2025-11-25 | initialize | {"protocolVersion": "2025-06-18", "capabilities": {}} | Disconnected 2025
2025-11-25 | initialize | {"protocolVersion": 5, "capabilities": {}} | Malformed protocolVersion
2025-11-25 | initialize | error {INTERNAL_ERROR} broken | RpcError broken
""",
        )
        + r"""
== a site that knows nothing of MCP | bare | on: http 2025-11-25
call connect {"revision": "{VERSION}"}
> initialize
<< 404 {} no
raises HttpError 404
== `initialize` has a timeout | bare | on: http 2025-11-25 | connect: {"timeout": 0.05}
call connect {"revision": "{VERSION}"}
> initialize
raises TimeoutError initialize
== a modern server that refuses its version is asked once more | bare | on: memory http newest
call connect
> server/discover {"_meta": {"{META}protocolVersion": "{VERSION}",
    "{META}clientCapabilities": {}, "{META}clientInfo": {"name": "*", "version": "*"}}}
< error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["{VERSION}"], "requested": "x"}
server/discover => {"supportedVersions": ["1999-01-01", "{VERSION}"],
    "capabilities": {"tools": {}}, "instructions": "Gently.",
    "_meta": {"{META}serverInfo": {"name": "s", "version": "1"}}}
returns {"modern": true, "version": "{VERSION}", "server_info": {"name": "s"},
    "instructions": "Gently.", "capabilities": {"tools": {}}, "closed": false}
== a modern server may say so first to `initialize` | bare | on: http 2025-11-25
call connect
> server/discover
<< 404 {} not yet
> initialize
<< 400 {} {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32022, "message": "old",
    "data": {"supported": ["{NEWEST}"]}}}
server/discover => {"supportedVersions": ["{NEWEST}"], "capabilities": {}}
returns {"modern": true}
== a server that exits on the probe is started again | bare | on: pipe 2025-11-25
call connect
> server/discover
exit 1
@SESSION
== silence means legacy | bare | on: pipe 2025-11-25 | connect: {"probe": 0.05}
call connect
> 1 server/discover
<< Listening on port 3000
> initialize
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {}}
< {"protocolVersion": "{VERSION}", "capabilities": {}}
> - notifications/initialized
returns {"modern": false}
"""
        + each(
            r"""
== after @1 @2, a lost session is opened anew | on: http 2025-11-25
call list_prompts
> prompts/list
<< @1 {} @2
initialize => {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}}
> - notifications/initialized
prompts/list => {"prompts": []}
returns []
""",
            "404 | gone\n400 | no session",
        )
        + r"""
== an error of status 400 is no lost session, whatever it says | on: http 2025-11-25
call list_prompts
> prompts/list
<< 400 {} {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32602, "message": "session"}}
raises RpcError session
"""
    ).replace("@SESSION", SESSION),
    "client",
)


# ---- methods: what is sent, and what becomes of the result


test_client_methods = scripts(
    each(
        r"""
== call @1 | on: @5
call @1
@2 => @3
returns @4
""",
        r"""
complete git:commit name a | completion/complete {"argument": {"name": "name", "value": "a"},
    "ref": {"type": "ref/prompt", "name": "git:commit"}, "context": null} |
    {"completion": {"values": ["ada"]}} | ["ada"] | memory http
complete a://{b} b c {"k": "v"} | completion/complete {"context": {"arguments": {"k": "v"}},
    "ref": {"type": "ref/resource", "uri": "a://{b}"}} | {"completion": {"values": []}} | [] |
    memory 2025-06-18..
ping | ping | {} | null | memory http legacy
ping | server/discover | {"supportedVersions": [], "capabilities": {}} | null | memory http modern
""",
    )
    + each(
        r"""
== @2 fails its call only | on: @1 modern | connect: {"elicit": {}, "sample": null}
call get_prompt p
> prompts/get
@2
raises @3
call list_prompts
prompts/list => {"prompts": []}
returns []
""",
        r"""
memory | < {"resultType": "input_required", "inputRequests": null} | Malformed
memory | < {"resultType": "input_required", "inputRequests": {"k": 3}} | Malformed
memory | < {"resultType": "input_required", "inputRequests": {"k": {"method":
    "elicitation/create", "params": {"requestedSchema": {"required": ["x"], "properties": {}}}}}} |
    ValueError x
memory | < {"resultType": "input_required", "inputRequests": {"k": {"method":
    "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}}} | AskError
http | << 200 {} {"jsonrpc": "2.0", "id": {ID}, "result": {}, "error": {"code": 7}} | RpcError 7
http | << 200 {} {"jsonrpc": "2.0", "id": {ID}, "error": {"code": true, "message": ""}} | Malformed
http | << 302 {"Location": "http://["} | Malformed
http | << 500 {} broken | HttpError 500
http | << 200 {} <html> | Malformed
http | << 200 {} [1, 2] | Malformed
http | << 200 {"Content-Length": "9999"} {} | Disconnected cut off
http | << 200 {"Content-Encoding": "gzip"} {} | Disconnected gzip
http | << 302 {"Location": "http://localhost:1/mcp"} | HttpError another origin
""",
    ),
    "client",
)


WRONG = r"""
list_tools | tools/list | {"tools": {}} | {"tools": [], "nextCursor": 5}
list_resources | resources/list | {"resources": "x"}
list_resource_templates | resources/templates/list | {"resourceTemplates": 1}
call_tool x | tools/call | {"content": "text"} | {"content": {}}
read_resource x:y | resources/read | {"contents": [3]} | {"contents": [{"text": "no uri"}]}
get_prompt x | prompts/get | {"messages": 3}
complete x y z | completion/complete | {"completion": []} | {"completion": {"values": [3]}}
"""


test_client_malformed = scripts(
    "".join(
        f"== a wrong result of {method} | on: memory 2025-11-25 modern\n"
        + "".join(
            f"call {call}\n> 1 {method}\n< 1 {result}\nraises Malformed\n"
            for result in [*results, "{}", "[]", '"x"', "3", "null"]
        )
        for call, method, *results in (
            row.split(" | ") for row in WRONG.strip().splitlines()
        )
    )
    + each(
        r"""
== in @1, an item without its texts costs that item | on: memory 2025-11-25 modern
call @1
@2 => {"@3": [@4, {"@5": "ok", "name": "ok"}, {}, 3, null]}
returns [{"@5": "ok"}]
""",
        """
list_tools | tools/list | tools | {"name": 3} | name
list_prompts | prompts/list | prompts | [] | name
list_resources | resources/list | resources | {"uri": "x:y"} | uri
list_resource_templates | resources/templates/list | resourceTemplates | {"name": "n"} | uriTemplate
""",
    )
    + r"""
== messages that are late, malformed or unsolicited change nothing | on: pipe 2025-11-25 modern
call read_resource x:y timeout=0.05
> 1 resources/read
> - notifications/cancelled {"requestId": {ID:1}}
raises TimeoutError resources/read
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {"contents": []}}
call read_resource x:y extend=true longest=0.05
> 2 resources/read {"_meta": {"progressToken": "*"}}
< - notifications/progress {"progressToken": {ID:2}, "progress": 1}
> - notifications/cancelled {"requestId": {ID:2}}
raises TimeoutError
call list_tools
> 3 tools/list
< - notifications/progress {"progressToken": {}, "progress": 1}
< - notifications/progress {"progressToken": {ID:3}, "progress": "x"}
< - notifications/cancelled {"requestId": []}
< - notifications/resources/updated {"uri": ["x"]}
< - notifications/subscriptions/acknowledged {"notifications": 3}
<< {"jsonrpc": "2.0", "method": "nobody/knows", "params": 7}
<< {"jsonrpc": "2.0", "id": {}, "method": "x"}
<< [[], 3, "x"]
<< {"jsonrpc": "2.0", "id": 999, "result": {"tools": []}}
<< {"jsonrpc": "2.0", "id": "{ID:3}x", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "id": {ID:3}, "result": {"tools": [{"name": "a", "inputSchema": {}}]}}
<< {"jsonrpc": "2.0", "id": {ID:3}, "result": {"tools": 3}}
returns [{"name": "a"}]
""",
    "client",
)


# ---- what a server asks, and what it announces


FORM = (
    '{"message": "m", "requestedSchema": {"type": "object", "properties": {'
    '"x": {"type": "string"}, "y": {"type": "integer", "default": 5}}}}'
)


PAGE = '{"mode": "url", "message": "m", "url": "https://example.org/", "elicitationId": "e"}'


test_client_answers = scripts(
    (
        r"""
== questions of one round are answered together | on: memory http modern
    | connect: {"elicit": {"x": "v"}, "visit": true, "sample": "hi", "declare": {"x": {}},
    "roots": ["/a/c/..", "file:///b", {"uri": "file:///d", "name": "d"}]}
call get_prompt p
> prompts/get {"_meta": {"{META}clientCapabilities": {
    "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}, "x": {}}}}
< {"resultType": "input_required", "requestState": "s\u00e9", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM}, "b": {"method": "roots/list"},
    "c": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    "d": {"method": "elicitation/create", "params": @PAGE}}}
> prompts/get {"name": "p", "requestState": "s\u00e9", "inputResponses": {
    "a": {"action": "accept", "content": {"x": "v", "y": 5}},
    "b": {"roots": [{"uri": "@A"}, {"uri": "file:///b"}, {"uri": "file:///d", "name": "d"}]},
    "c": {"role": "assistant", "content": {"text": "hi"}}, "d": {"action": "accept"}}}
< {"resultType": "input_required", "requestState": "2"}
prompts/get {"requestState": "2", "inputResponses": null} => {"messages": []}
returns {"messages": []}
== no resultType, an unknown one, no state | on: pipe modern
call get_prompt p
prompts/get => {"resultType": "example.org/x", "requestState": "a"}
raises Malformed
call get_prompt p
prompts/get => {"resultType": "input_required", "requestState": "a"}
prompts/get {"requestState": "a"} => {"resultType": "input_required", "inputRequests": {}}
> 1 prompts/get {"requestState": null}
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {"messages": []}}
returns {"messages": []}
== a result of an unknown type asks nobody | on: memory modern | connect: {"elicit": {"x": 5}}
call get_prompt p
prompts/get => {"resultType": "example.org/x", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM}}}
raises Malformed unknown
== what is acknowledged as false is not granted | on: memory modern
call listen tools
> subscriptions/listen
< - notifications/subscriptions/acknowledged {"notifications": {"toolsListChanged": false},
    "_meta": {"{META}subscriptionId": {ID}}}
> - notifications/cancelled
raises ServerLacks tools
== who subscribes to nothing that the server has is told so | on: modern
call listen notifications/x/y
subscriptions/listen => error {METHOD_NOT_FOUND}
raises ServerLacks notifications/x/y
call listen prompts
subscriptions/listen => error {METHOD_NOT_FOUND}
raises ServerLacks prompts
call listen prompts
subscriptions/listen => error {INTERNAL_ERROR} broken
raises RpcError broken
== listen() raises HttpError 405 if a legacy server has no GET stream | on: http 2025-11-25
call listen tools
raises HttpError 405
== a call whose answer is already a stream is cancelled | on: http 2025-03-26..2025-11-25
call call_tool x timeout=0.5
> tools/call
< - notifications/message {"level": "info", "data": ""}
> - notifications/cancelled {"requestId": {ID}}
raises TimeoutError
"""
        + each(
            r"""
== in a session, the callbacks @1 give @3 | on: memory pipe 2025-11-25 | connect: @1
call list_prompts
prompts/list ? a @2 -> @3 => {"prompts": []}
returns []
""",
            r"""
{"elicit": null} | elicitation/create @FORM | {"action": "decline", "content": null}
{"elicit": "cancel"} | elicitation/create @FORM | {"action": "cancel", "content": null}
{"elicit": {"x": 5}} | elicitation/create @FORM | error {INTERNAL_ERROR}
{"elicit": {"x": 5}} | elicitation/create {} | error {INVALID_PARAMS}
{"elicit": {"x": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}} | elicitation/create {"message": "m",
    "requestedSchema": {"properties": {"x": {"type": "string", "pattern": "^(a|aa)+$"}}}} |
    {"action": "accept", "content": {"x": "*"}}
{"elicit": {"x": ["a"]}} | elicitation/create {"requestedSchema": {"properties": {"x": {"type":
    "array", "items": {"$ref": "#/no", "enum": ["b"]}}}}} | error {INTERNAL_ERROR}
{"elicit": {"x": 5}} | elicitation/create @PAGE | error {INVALID_PARAMS}
{"visit": true} | elicitation/create {"mode": "url", "url": "file:///x"} | error {INVALID_PARAMS}
{"visit": false} | elicitation/create @PAGE | {"action": "decline"}
{"sample": null} | sampling/createMessage {"messages": [], "maxTokens": 1} | error -1
{"sample": "hi"} | sampling/createMessage {"messages": [], "tools": []} | error {INVALID_PARAMS}
{"sample": "hi"} | sampling/createMessage {"messages": [], "toolChoice": {}} | error {INVALID_PARAMS}
{} | sampling/createMessage {"messages": [], "maxTokens": 1} | error {METHOD_NOT_FOUND}
{} | ping {} | {}
""",
        )
    )
    .replace("@FORM", FORM)
    .replace("@PAGE", PAGE)
    .replace("@A", Path("/a").absolute().as_uri()),
    "client",
)


def well(text: str, **headers: str) -> bytes:
    """Answer a request with its result, and anything else with 202."""
    return http_answer(200 if text else 202, {**JSON, **headers}, text)


def plain(verb: str, headers: dict, method: str, text: str):
    yield well(text)


def heads(site, name: str) -> list:
    """Return what each request to a site had in a header."""
    return [headers.get(name) for _, headers, _ in site.asked]


def methods_of(site) -> list[str]:
    return [message["method"] for _, _, message in site.asked]


def recorded(path: Path) -> list[dict]:
    """Return the messages in a recording, without the line of its program."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [line for line in lines if "way" in line]


# ---- against a real server: callbacks, threads, cancellation, changes


played = functools.partial(parametrize, "version, carrier")


@contextlib.contextmanager
def connected(version: str, carrier: str, server, **options):
    """Connect to a server in this process."""
    with contextlib.ExitStack() as stack:
        if carrier == "http":
            server = stack.enter_context(http_serving(server)).url
            if version == OLDEST:
                server = server.replace("mcp", "sse")
        yield stack.enter_context(
            client.connect(server, revision=version, timeout=PATIENCE, **options)
        )


@played(select("* memory http"))
def test_client_calls_back(version, carrier):
    server, steps, logs, heard = fixture(Stage()), [], queue.Queue(), queue.Queue()

    async def elicit(params, tag):
        return {"branch": str(tag)}

    options = {"elicit": elicit, "log_level": "emergency"}
    options.update(on_log=logs.put, on_notification=heard.put)
    with connected(version, carrier, server, **options) as one:
        one.call_tool("steps", on_progress=lambda *step: steps.append(step))
        assert [step[:2] for step in steps] == [(0, 3), (1, 3), (2.5, 3)]
        assert steps[0][2] == "at 0"
        for level in ("emergency", "error"):
            one.call_tool("talk")
            assert next_of(logs)["data"] == {"says": level}
            one.set_level("error")
        one.call_tool("tell", {"method": "notifications/x"})
        while next_of(heard)["method"] != "notifications/x":
            pass
        server.changed("tools")
        assert one.modern or next_of(heard)["method"].endswith("list_changed")
        asks = exists(mcp.METHODS["elicitation/create"], version)
        assert ("main" if asks else "failed") in said(one, "ask", tag="main")


@played(select("memory http 2025-11-25 modern"))
@parametrize("way", ["cancel", "close"])
def test_client_gives_up_a_call(version, carrier, way):
    reached, sent = queue.Queue(), []
    with connected(version, carrier, fixture(Stage(reached.put))) as one:
        call = begin(one.call_tool, "slow", {"gate": "a"}, started=sent.append)
        assert next_of(reached) == "a"
        (sent[0].cancel if way == "cancel" else one.close)()
        wanted = client.RequestCancelled if way == "cancel" else client.Disconnected
        assert isinstance(call.exception(PATIENCE), wanted)
        assert way == "close" or next_of(reached) == "a passed"


@needs_posix
@parametrize("handler", ["slow", "cancels"])
def test_client_and_a_signal_while_a_call_waits(handler):
    """SimpleQueue.get() waits for ever if its time ends while a signal is handled."""
    begun, handled, sent = threading.Event(), threading.Event(), []

    def interrupt():
        begun.wait(PATIENCE)
        while not handled.wait(0.01):  # one that comes just before a wait is not seen
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def handle(*_):
        if handler == "cancels":
            sent[0].cancel()
        while handler == "slow" and time.monotonic() <= sent[0].deadline:
            time.sleep(0.001)
        handled.set()

    def give_up(*_):
        raise AssertionError("the call still waits")

    server = mcp.Server("waits")
    server.tool(lambda: begun.set() or handled.wait(PATIENCE), name="wait")
    wanted = TimeoutError if handler == "slow" else client.RequestCancelled
    timeout = 0.03 if handler == "slow" else PATIENCE
    with contextlib.ExitStack() as stack:
        for number, function in (("SIGUSR1", handle), ("SIGALRM", give_up)):
            number = getattr(signal, number)
            stack.callback(signal.signal, number, signal.signal(number, function))
        one = stack.enter_context(client.connect(server))
        one.list_tools()
        stack.callback(begin(interrupt).result, PATIENCE)
        stack.callback(handled.set)
        stack.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE / 2)
        with pytest.raises(wanted):
            one.call_tool("wait", started=sent.append, timeout=timeout)


@played(select("* memory http"))
def test_client_hears_of_changes(version, carrier):
    server, heard = fixture(Stage()), queue.Queue()
    with connected(version, carrier, server) as one:
        with one.listen(["tools", "test://text"]) as subscription:
            assert sorted(subscription.granted) == ["test://text", "tools"]
            one.listen("prompts", heard.put)
            for what in ("resources", "test://blob", "test://text", "prompts", "tools"):
                server.changed(what)
            changes = iter(subscription)
            came = [begin(next, changes).result(PATIENCE) for _ in "12"]
            assert came == ["test://text", "tools"]
            assert next_of(heard) == "prompts"
            rest = begin(list, changes)
        assert rest.result(PATIENCE) == []  # its end ends the loop
        # The server may hear of it a moment later.
        wait_until(lambda: carrier == "http" or len(server.listeners) == 1)


@needs_posix
def test_a_keyword_is_not_an_argument_of_a_tool():
    server = mcp.Server("s")
    server.tool(lambda a: a, name="t")
    with client.connect(server) as one:
        for call in (one.call_tool, one.get_prompt):
            with pytest.raises(TypeError, match=r"no option a=.* call_tool\('add', {"):
                call("t", a=1)


@needs_posix
def test_client_answers_no_more_questions_than_a_server_reads():
    """A question is open until its answer is written."""
    code = """if True:
        import json, os, signal, sys, time
        def read():
            return json.loads(sys.stdin.readline())
        def write(**members):
            print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        write(id=read()["id"], result={"protocolVersion": "2025-11-25", "capabilities": {}})
        for _ in range(100):
            write(id="x" * 60_000, method="ping")
            time.sleep(0.002)
        write(method="notifications/x")
        signal.sigwait([signal.SIGUSR1])
        found = [read()]
        while found[-1].get("method") != "count":
            found.append(read())
        write(id=found[-1]["id"], result={"read": len(found)})
        sys.stdin.read()
    """

    sent = threading.Event()
    started = client.StdioTransport([*PYTHON, "-c", code])
    options = {"revision": "2025-11-25", "timeout": PATIENCE}
    options["on_notification"] = lambda message: sent.set()
    with limits(MAX_QUESTIONS=2), client.connect(started, **options) as one:
        assert sent.wait(PATIENCE)
        found = begin(one.request, "count")
        os.kill(started.process.pid, signal.SIGUSR1)
        assert found.result(PATIENCE)["read"] < 9


@parametrize("few", [{"MAX_QUESTIONS": 1}, {"MAX_LIST_BYTES": 3000}])
def test_client_answers_no_more_questions_than_its_limit(few):
    gate, heard, before = threading.Event(), threading.Event(), threading.enumerate()
    options = {"roots": lambda tag: gate.wait(PATIENCE) and []}
    options["on_notification"] = lambda message: heard.set()
    with talk("2025-11-25", "http", client="yes", limits=few, connect=options) as t:
        t(
            """
            call list_prompts
            > 1 prompts/list
            < #a roots/list {"x": "@"}
            < #b roots/list {"x": "@"}
            < - notifications/x
            """.replace("@", 1000 * "x")
        )
        assert heard.wait(PATIENCE)
        new = set(threading.enumerate()) - set(before)
        assert [one.name for one in new].count("mcp-answer") == 1
        gate.set()
        t('> #a {"roots": []}\n< 1 {"prompts": []}\nreturns []')


# ---- HTTP


BAD_HEADERS = [
    '{"name": "bad", "inputSchema": {"properties": {' + one + "}}},"
    for one in (
        '"a": {"type": "string", "x-mcp-header": ""}',
        '"a": {"type": "string", "x-mcp-header": "A B"}',
        '"a": {"type": "string", "x-mcp-header": "A\\r\\n"}',
        '"a": {"type": "number", "x-mcp-header": "A"}',
        '"a": {"items": {"type": "string", "x-mcp-header": "A"}}',
        '"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}',
    )
]


def test_client_repeats_arguments_in_headers():
    with talk(NEWEST, "http", client="yes") as t:
        t(
            """
        call list_tools
        tools/list => {"tools": ["""
            + "".join(BAD_HEADERS)
            + """{"name": "t", "inputSchema": {}}]}
        returns [{"name": "t"}]
        call call_tool bad
        raises Malformed
        call call_tool t {"a": "\u00fc", "b": true, "c": null}
        tools/call => error {HEADER_MISMATCH} mirror
        tools/list => {"tools": [{"name": "t", "inputSchema": {"properties": {
            "a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "boolean",
            "x-mcp-header": "B"}, "c": {"type": "integer", "x-mcp-header": "C"}}}}]}
        tools/call => {"content": []}
        returns {}
        """
        )
        _, headers, message = t.line.asked[-1]
        wanted = {"mcp-param-a": "=?base64?w7w=?=", "mcp-param-b": "true"}
        wanted.update({"mcp-param-c": None, "mcp-method": "tools/call"})
        wanted.update({"mcp-name": "t", "mcp-protocol-version": NEWEST})
        wanted["content-length"] = str(len(mcp.encode(message)) - 1)
        assert not differences(wanted, headers)


STREAM = http_answer(200, {**JSON, "Content-Type": "text/event-stream"}, None)


@parametrize("end", ["\n", "\r\n", "\r"])
@parametrize(
    "form",
    [
        "data: @\n\n",
        "data:@\n\n",
        "event: message\nid: 7\ndata: @\n\n",
        "\ufeffdata: @\n\n",
        ": comment\n\n:\nretry: 5\n\nretry: x\ndata: @\n\n",
        "what: x\ndatax: y\ndata: @\n\n",
        "event: other\ndata: {}\n\ndata: @\n\n",
        "data: {\ndata\ndata: @1\n\n",
    ],
)
def test_client_reads_events_cut_anywhere(form, end):
    dice, whole = random.Random(form + end), [True]

    def answer(verb: str, headers: dict, method: str, text: str):
        filled = form.replace("@1", text[1:]).replace("@", text)
        data = filled.replace("\n", end).encode()
        pieces = 1 if method == "prompts/list" else len(data)
        data = data if whole else data[: dice.randrange(len(data) - 1)]
        yield STREAM
        yield from (data[n : n + pieces] for n in range(0, len(data), pieces))

    with answering(answer) as site, client.connect(site.url) as one:
        assert one.list_prompts() == [] and one.modern
        whole.clear()
        for _ in range(8):  # the end of its stream ends the call
            with pytest.raises(client.Disconnected):
                one.list_prompts()


@parametrize("status", [301, 302, 307, 308])
def test_client_follows_redirects_and_resumes_in_time(status):
    later, broke, record = [], [], io.BytesIO()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "GET":
            assert 0.05 <= time.monotonic() - broke[0]
            yield STREAM + b"id: 2\ndata: " + later[0].encode() + b"\n\n"
        elif headers[":path"] == "/end":
            yield http_answer(status, {"Location": "/end"})
        elif method == "prompts/list" and headers[":path"] == "/mcp":
            yield http_answer(status, {"Location": "/there?x"})
        elif method == "prompts/list":
            later.append(text)
            broke.append(time.monotonic())
            yield STREAM + b"retry: 99999999999999999\n\nretry: 50\nid: 1\ndata:\n\n"
        else:
            yield well(text)

    options = {"revision": NEWEST_LEGACY, "timeout": PATIENCE, "record": record}
    with limits(RETRY_SECONDS=9 * PATIENCE), answering(answer) as site:
        with client.connect(site.url, **options) as one:
            assert one.list_prompts() == []
        assert [verb for verb, _, _ in site.asked] == ["POST"] * 4 + ["GET", "DELETE"]
        assert site.asked[4][1]["last-event-id"] == "1"
        assert b'"Last-Event-ID":"1"' in record.getvalue()
        assert {*heads(site, "mcp-protocol-version")[1:]} == {NEWEST_LEGACY}
        assert {*heads(site, "mcp-session-id")[1:]} == {"s1"}
        posts = [one["accept"] for verb, one, _ in site.asked if verb == "POST"]
        assert all("json" in one and "text/event-stream" in one for one in posts)
        with pytest.raises(mcp.HttpError, match=str(status)):
            client.connect(site.url.replace("mcp", "end"))
    assert len(site.asked) == 6 + 4 + 4  # server/discover, then initialize


@parametrize(
    "granted, status",
    [
        ({"Authorization": "t"}, 401),
        (lambda *_: {"Authorization": "t"}, 403),
        (None, 401),
    ],
)
def test_client_asks_authorize(granted, status):
    def answer(verb: str, headers: dict, method: str, text: str):
        known = headers.get("authorization") == "t"
        refused = http_answer(status, {"WWW-Authenticate": "Bearer"})
        yield well(text) if known else refused

    def authorize(refusal):
        assert refusal.status == status
        assert refusal.headers["www-authenticate"] == "Bearer"
        return granted

    refused = pytest.raises(mcp.HttpError, match="401")
    with answering(answer) as site, contextlib.nullcontext() if granted else refused:
        with client.connect(site.url, authorize=authorize) as one:
            assert one.list_prompts() == [] and len(site.asked) == 3


def test_client_falls_back_to_http_sse():
    with (
        http_serving(fixture(Stage())) as httpd,
        client.connect(httpd.url.replace("mcp", "sse"), timeout=PATIENCE) as one,
    ):
        assert one.version == "2025-11-25" and one.call_tool("add", {"a": 1})
        full = limits(MAX_THREADS=-9999, RETRY_SECONDS=2 * PATIENCE)
        with full, pytest.raises(mcp.HttpError, match="503"):
            one.ping()


def test_client_leaves_no_thread_to_a_server_that_does_not_answer():
    """What needs no response waits no longer than the caller does."""
    over = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "DELETE":
            assert over.wait(3 * PATIENCE)
        yield well(text, **{"Mcp-Session-Id": "s"})

    with answering(answer) as site, limits(CLOSE_STEP_SECONDS=0.05):
        client.connect(site.url, revision="2025-11-25").close()
        wait_until(no_post_waits)
        over.set()
        assert site.asked[-1][0] == "DELETE"


def no_post_waits() -> bool:
    return "mcp-post" not in [thread.name for thread in threading.enumerate()]


# ---- processes, and the command line


def program(before: str, after: str, **options):
    return client.connect(program_of(before, after), **options)


@pytest.fixture(name="held")
def held_by_processes(tmp_path):
    """What opens a pipe that ends when no process has it open, and its end."""
    path = tmp_path / "held"
    os.mkfifo(path)
    opens = f"held = os.open({str(path)!r}, os.O_WRONLY)"
    return types.SimpleNamespace(
        path=path, opens=opens, end=lambda: begin(path.read_bytes)
    )


@needs_posix
@parametrize(
    "before, after, last",
    [
        (
            "subprocess.Popen(['sleep', '99'], pass_fds=[held])",
            "sys.stdin.read(); os.write(2, b'end\\n')",
            "end",
        ),
        (
            "signal.signal(signal.SIGTERM, lambda *_: os.write(2, b'term\\n'))",
            "while True: signal.pause()",
            "term",
        ),
    ],
)
def test_client_ends_a_server_and_its_children(before, after, last, held):
    end, lines = held.end(), []
    with limits(CLOSE_STEP_SECONDS=PATIENCE if last == "end" else 0.3):
        program(f"{held.opens}; {before}", after, stderr=lines.append).close()
    assert end.result(PATIENCE) == b"" and lines[-1] == last


@needs_posix
def test_client_ends_a_server_although_its_closing_is_interrupted(held):
    """By a second Ctrl-C, while the server takes its time."""
    main, end = threading.main_thread().ident, held.end()
    one = program(
        held.opens + "; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "sys.stdin.read(); os.write(2, b'end'); os.close(2); signal.pause()",
        stderr=lambda line: signal.pthread_kill(main, signal.SIGINT),
    )
    with limits(CLOSE_STEP_SECONDS=PATIENCE), pytest.raises(KeyboardInterrupt):
        one.close()
    assert end.result(PATIENCE) == b""


@needs_posix
def test_client_and_processes_of_every_kind(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    with limits(CLOSE_STEP_SECONDS=0.05):
        with program("", "signal.pause()") as one, pytest.raises(TimeoutError):
            one.call_tool("x", {"text": "x" * 500000}, timeout=0.05)
        with program(
            "WORDS = json.dumps([dict(os.environ), os.listdir('/dev/fd')])",
            "sys.stdin.readline(); os.close(1); sys.stdin.read()",
            env={"A": "b"},
        ) as one:
            environment, descriptors = json.loads(one.instructions)
            assert environment["PATH"] == os.environ["PATH"] and len(descriptors) == 4
            assert "SOME_TOKEN" not in environment and environment["A"] == "b"
            with pytest.raises(client.Disconnected):
                one.call_tool("x", timeout=PATIENCE)


@parametrize("carrier", ["pipe", "http"])
def test_client_keeps_no_more_than_a_message_may_have(carrier):
    tracemalloc = pytest.importorskip("tracemalloc")  # which PyPy lacks

    def answer(verb: str, headers: dict, method: str, text: str):
        yield STREAM + (
            b"" if method == "ping" else b"data: " + text.encode() + b"\n\n"
        )
        yield from [b"data: " + b"x" * 50_000 + b"\n"] * 400

    after = "sys.stdin.readline(); [os.write(out, b'x' * 20_000_000) for out in (2, 1)]"
    with (
        limits(MAX_MESSAGE_BYTES=100_000),
        answering(answer) as site,
        client.connect(site.url) if carrier == "http" else program("", after) as one,
    ):
        tracemalloc.start()
        with pytest.raises((client.Disconnected, client.Malformed)):
            one.request("ping")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()


@needs_posix
def test_client_closed_while_its_server_restarts_ends_it(held):
    gate = threading.Event()

    class Slow(client.StdioTransport):
        def start(self):
            gate.wait(PATIENCE)
            super().start()

    gate.set()
    end = held.end()
    one = client.connect(Slow(program_of(held.opens, "sys.stdin.readline()")))
    with pytest.raises(client.Disconnected):  # its first call ends the server
        one.call_tool("x")
    end.result(PATIENCE)
    gate.clear()
    end, call = held.end(), begin(one.call_tool, "x")
    closing = begin(one.close)
    wait_until(lambda: one.closed)
    gate.set()
    assert isinstance(call.exception(PATIENCE), client.Disconnected)
    closing.result(PATIENCE)
    with contextlib.suppress(OSError):  # it may have ended before it opened it
        os.close(os.open(held.path, os.O_WRONLY | os.O_NONBLOCK))
    assert end.result(PATIENCE) == b""


def test_client_records_what_passes(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, answering(plain) as site:
        client.connect(site.url, record=file).close()
    sent, came = recorded(tmp_path / "t")
    request = {"way": ">", "http": "POST /mcp", "status": None}
    request["headers"] = {"Mcp-Method": "server/discover"}
    request["message"] = {"method": "server/discover"}
    assert not differences(request, sent)
    assert not differences({"way": "<", "status": 200, "message": {"id": 1}}, came)
    assert sent["on"] == came["on"] and re.fullmatch(TIME, sent["time"])


def test_client_does_not_record_its_session(tmp_path):
    def answer(verb: str, headers: dict, method: str, text: str):
        yield well(text, **{"Mcp-Session-Id": "s3cret"})

    with open(tmp_path / "t", "ab", 0) as file, answering(answer) as site:
        with client.connect(site.url, revision=NEWEST_LEGACY, record=file) as one:
            one.list_prompts()
    assert site.asked[-1][1]["mcp-session-id"] == "s3cret"
    assert "s3cret" not in (tmp_path / "t").read_text()


def test_client_does_not_record_its_session_of_http_sse(tmp_path):
    done = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "GET":
            yield STREAM + b"event: endpoint\ndata: /m/s3cret?id=s3cret\n\n"
            assert done.wait(PATIENCE)
        else:
            yield http_answer(500, {})

    with open(tmp_path / "t", "ab", 0) as file, answering(answer) as site:
        with pytest.raises(mcp.HttpError):
            client.connect(site.url, sse=True, record=file)
        done.set()
    sent = [line["http"] for line in recorded(tmp_path / "t") if "http" in line]
    assert sent[:2] == ["GET /mcp", "POST ..."]
    assert "s3cret" not in (tmp_path / "t").read_text()


def test_client_records_that_it_hangs_up(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, http_serving(fixture(Stage())) as httpd:
        with client.connect(httpd.url, record=file) as one:
            with one.listen("tools"):
                pass
    lines = recorded(tmp_path / "t")
    (closed,) = [line for line in lines if line.get("closed")]
    (sent,) = [line for line in lines if "subscriptions/listen" in str(line)]
    assert (closed["way"], closed["on"]) == (">", sent["on"])


def test_a_recording_begins_with_its_program(tmp_path):
    with http_serving(fixture(Stage())) as httpd:
        for _ in range(2):
            cli.main(["ping", "--record", str(tmp_path / "t"), httpd.url])
    lines = (tmp_path / "t").read_text("utf-8").splitlines()
    runs = [one for one in map(json.loads, lines) if "way" not in one]
    assert len(runs) == 2 and json.loads(lines[0]) == runs[0]
    source = Path(client.__file__).read_text("utf-8")
    assert runs[0] == {
        "time": runs[0]["time"],
        "program": f"mcp_client {client.__version__}",
        "process": os.getpid(),
        "sha256": hashlib.sha256(source.encode()).hexdigest(),
    }
    assert re.fullmatch(TIME, runs[0]["time"])
    mode = (tmp_path / "t").stat().st_mode
    assert os.name == "nt" or mode & 0o77 == 0  # it may hold secrets


# ---- slow, broken and hostile servers


test_client_and_hostile_servers = scripts(
    (
        each(
            r"""
== after @2, `initialize` is tried once: @3 | bare | on: http 2025-11-25 | connect: {"timeout": @1}
    | limits: {"MAX_RETRIES": 0}
call connect
> server/discover
@2
> initialize
@3
raises @4
""",
            r"""
1 |  |  | TimeoutError s (tried server/discover, then initialize; if
9 | << 502 {} starting | << 503 {} still | HttpError sent 503 -: still
9 | << 429 {} slowly | << 429 {"Retry-After": "soon"} x | HttpError sent 429 -: x
9 | << 429 {"Retry-After": "999"} x | << 404 {} none | HttpError sent 404 -: none
9 | << 200 {} <html> | << 200 {} <html> | Malformed '<html>'
9 | << 500 {} x | < error {INTERNAL_ERROR} broken | RpcError broken (tried server/discover
""",
        )
        + each(
            r"""
== after @1, the session is opened all the same | bare | on: http 2025-11-25
    | limits: {"MAX_RETRIES": 0}
call connect
> server/discover
@1
@SESSION
""",
            r"""
<< 500 {} x
<< 502 {} <html>
<< 503 {} starting
<< 429 {} slowly
<< 200 {} <html>
<< 200 {} []
""",
        )
        + r"""
== a body of status 400 that is the response to its request is its error | on: http 2025-11-25
call read_resource x:y
> resources/read
<< 400 {} {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32602, "message": "no session"}}
raises RpcError {INVALID_PARAMS} no session
call read_resource x:y
> resources/read
<< 500 {} {"error": {"code": -32603, "message": "broken"}, "id":{ID}}
raises RpcError {INTERNAL_ERROR} broken
call read_resource x:y
> resources/read
<< 400 {} {"jsonrpc": "2.0", "id": {ID}9, "error": {"code": -32602, "message": "x"}}
initialize => {"protocolVersion": "{VERSION}", "capabilities": {"resources": {}}}
> - notifications/initialized
> resources/read
<< 400 {} {"jsonrpc": "2.0", "id": {ID}9, "error": {"code": -32602, "message": "x"}}
raises HttpError sent 400 -: {"jsonrpc
call read_resource x:y
resources/read => {"contents": []}
returns []
== pages that bring nothing new end a list | on: memory 2025-11-25 modern
call list_prompts
prompts/list => {"prompts": [{"name": "a"}], "nextCursor": "x"}
prompts/list => {"prompts": [], "nextCursor": "x"}
prompts/list => {"prompts": [{"name": "a"}], "nextCursor": ""}
prompts/list => {"prompts": [{"name": "b"}, {"name": "a"}], "nextCursor": "x"}
prompts/list => {"prompts": [{"name": "b"}], "nextCursor": "y"}
prompts/list => {"prompts": [{"name": "a"}], "nextCursor": "z"}
prompts/list => {"prompts": [{"name": "a"}], "nextCursor": "x"}
returns [{"name": "a"}, {"name": "b"}, {"name": "a"}]
== resources are told apart by their URIs | on: memory 2025-11-25 modern | limits: {"MAX_STUCK_PAGES": 1}
call list_resources
resources/list => {"resources": [{"name": "a", "uri": "x:1"}], "nextCursor": "x"}
resources/list => {"resources": [{"name": "a", "uri": "x:2"}], "nextCursor": "x"}
resources/list => {"resources": [{"name": "b", "uri": "x:2"}], "nextCursor": "x"}
returns [{"uri": "x:1"}, {"uri": "x:2"}]
== who names a prompt asks for it, declared or not | on: memory | declare: {"experimental": {}}
call list_prompts
returns []
call get_prompt p
prompts/get => {"messages": []}
returns {"messages": []}
call get_prompt q
prompts/get => error {METHOD_NOT_FOUND} no prompts
raises RpcError {METHOD_NOT_FOUND}
== a call that waits in vain says what came instead | on: pipe 2025-11-25 modern
call list_prompts
> prompts/list
< {"prompts": []}
returns []
call read_resource x:y timeout=0.3
> 1 resources/read
<< {"jsonrpc": "2.0", "id": "{ID:1}x", "result": {"contents": []}}
> - notifications/cancelled {"requestId": {ID:1}}
raises TimeoutError unknown id: {'jsonrpc': '2.0', 'id': '
call read_resource x:y timeout=0.3
> 1 resources/read
<< Listening on port 3000
> - notifications/cancelled {"requestId": {ID:1}}
raises TimeoutError Listening on port 3000
"""
        + r"""
== an answer that is not JSON fails its call at once | on: pipe 2025-11-25 modern
call list_prompts
> prompts/list
<< {"jsonrpc": "2.0", "id": {ID}, "result": {"prompts": [], "x": NaN}}
raises Malformed NaN
call list_prompts
> prompts/list
<< {"jsonrpc": "2.0", "id": {ID}, "result": {"prompts": [], "x": "\xff"}}
raises Malformed
== a question that is not JSON fails no call, even if it has its id | on: pipe 2025-11-25
call list_prompts
> 1 prompts/list
<< {"jsonrpc": "2.0", "id": {ID:1}, "method": "ping", "params": NaN}
<< {"method": "ping", "params": NaN, "jsonrpc": "2.0", "id": {ID:1}}
< 1 {"prompts": []}
returns []
== a session that is lost twice is opened once | on: http 2025-11-25
call list_prompts
> prompts/list
<< 404 {} gone
initialize => {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}}
> - notifications/initialized
> prompts/list
<< 404 {} gone
raises HttpError gone
== an error that is no refusal of our headers runs no tool twice | on: http 2025-11-25 memory
call call_tool t
> tools/call
< error {HEADER_MISMATCH} mine
raises RpcError mine
== an error in an answer with status 200 runs no tool twice | on: http modern
call list_tools
tools/list => {"tools": [{"name": "t"}]}
returns [{"name": "t"}]
call call_tool t
> tools/call
<< 200 {} {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32020, "message": "mine"}}
raises RpcError mine
== too many questions are not answered | on: memory modern | limits: {"MAX_QUESTIONS": 1}
    | connect: {"elicit": {"x": "v"}}
call get_prompt p
prompts/get => {"resultType": "input_required", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM},
    "b": {"method": "elicitation/create", "params": @FORM}}}
raises Malformed 2 questions
== a form has an end | on: memory modern 2025-11-25 | limits: {"MAX_FIELDS": 1}
    | connect: {"elicit": {"x": "v"}}
call get_prompt p
[legacy] prompts/get ? a elicitation/create @FORM -> error {INVALID_PARAMS} fields => {"messages": []}
[legacy] returns {}
[modern] prompts/get => {"resultType": "input_required", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM}}}
[modern] raises Malformed fields
== a list may have numbers that we would not send | on: pipe modern 2025-11-25
call list_prompts
> prompts/list
<< {"jsonrpc": "2.0", "id": {ID}, "result": {"prompts": [{"name": "a", "x": 1e999}]}}
returns [{"name": "a"}]
== a list has an end, in bytes | on: memory 2025-11-25 | limits: {"MAX_LIST_BYTES": 1300}
call list_prompts
prompts/list => {"prompts": [{"name": "xxxxxxxxxxxxxxxxxxxxxxxxxxx"}], "nextCursor": "2"}
prompts/list => {"prompts": [{"name": "y"}], "nextCursor": "3"}
raises Malformed too large
== a list has an end, in values | on: memory 2025-11-25 | limits: {"MAX_LIST_BYTES": 1300}
call list_prompts
prompts/list => {"prompts": [{"name": "x", "more": [{}, {}, {}]}], "nextCursor": "2"}
raises Malformed too large
"""
        + each(
            r"""
== in a session, the callbacks @1 give @3 | on: memory 2025-11-25 | connect: @1
call list_prompts
prompts/list ? a elicitation/create @2 -> @3 => {"prompts": []}
returns []
""",
            r"""
{"elicit": {"action": "decline"}} | @FORM | {"action": "decline", "content": null}
{"elicit": {"action": "cancel"}} | @FORM | {"action": "cancel", "content": null}
{"elicit": {"action": "accept", "content": {"x": "v"}}} | @FORM | {"action": "accept",
    "content": {"x": "v", "y": 5}}
{"elicit": {"action": "decline"}} | {"requestedSchema": {"properties": {"action": {"type":
    "string"}}}} | {"action": "accept", "content": {"action": "decline"}}
{"elicit": {"x": "v", "z": "?"}} | @FORM | error {INTERNAL_ERROR} z
{"visit": {"action": "decline"}} | @PAGE | {"action": "decline"}
{"visit": {"action": "accept"}} | @PAGE | {"action": "accept"}
{"visit": {}} | @PAGE | {"action": "decline"}
{"visit": "decline"} | @PAGE | {"action": "decline"}
{"visit": true} | {"mode": "url", "url": "https://example.org\\@evil.example/"} |
    error {INVALID_PARAMS}
{"visit": true} | {"mode": "url", "url": "https://user@example.org/"} | error {INVALID_PARAMS}
{"visit": true} | {"mode": "url", "url": "https://example.org/\u001b[2J"} | error {INVALID_PARAMS}
""",
        )
    )
    .replace("@FORM", FORM)
    .replace("@PAGE", PAGE)
    .replace("@SESSION", SESSION),
    "client",
)


@parametrize(
    "roots, wanted",
    [
        ("/srv/data", ["/srv/data"]),
        (Path("/srv/x/../data"), ["/srv/data"]),
        (["file:///a", {"uri": "file:///b"}], ["/a", "/b"]),
        (lambda params: "/srv/data", ["/srv/data"]),
    ],
)
@needs_posix
def test_client_tells_its_roots(roots, wanted):
    server = mcp.Server("asks")

    @server.tool
    def ask(ctx: Context) -> str:
        return json.dumps(ctx.list_roots())

    with client.connect(server, roots=roots) as one:
        found = [root["uri"] for root in json.loads(said(one, "ask"))]
    assert found == ["file://" + path for path in wanted]


@parametrize("wrong", ["https://example.org/", "file:///a/%2e%2e/b", {"uri": "x:y"}])
def test_client_refuses_roots_that_are_not_files(wrong):
    with pytest.raises(ValueError, match="root"):
        client.connect(mcp.Server("any"), roots=wrong)


def test_client_options_have_names():
    with pytest.raises(TypeError, match="elict"):
        client.connect(mcp.Server("any"), elict=None)
    with pytest.raises(ValueError, match="server.py"):
        client.connect("server.py")
    with pytest.raises(ValueError, match="without a password") as caught:
        client.connect("https://me:s3cret@example.org/?key=s3cret")
    assert "s3cret" not in str(caught.value)


def test_client_warns_of_urls():
    assert client.url_warnings("https://example.org/x", "https://Example.org/mcp") == []
    found = client.url_warnings("http://xn--exmple-cua.org/", "https://example.org/mcp")
    assert "not to" in found[0] and "encr" in found[2]
    assert client.url_warnings("http://localhost:5/") == []
    with pytest.raises(ValueError):
        client.url_warnings("javascript:alert(1)")


@needs_posix
def test_a_timeout_covers_a_server_that_hangs_at_its_start():
    start = time.monotonic()
    hangs = [*PYTHON, "-c", "import time; time.sleep(99)"]
    with pytest.raises(TimeoutError):
        client.connect(hangs, timeout=0.2)
    assert time.monotonic() - start < 60  # it is also ended


@parametrize("connecting, calling", [(PATIENCE, 0.05), (0.05, PATIENCE)])
def test_a_timeout_covers_waiting_for_another_thread_that_connects(connecting, calling):
    gate, starting = threading.Event(), threading.Event()

    class Held(client.MemoryTransport):
        def start(self):
            starting.set()
            gate.wait(PATIENCE)
            super().start()

    gate.set()
    with client.connect(Held(fixture(Stage())), timeout=PATIENCE) as one:
        one.transport.stop()
        gate.clear()
        starting.clear()
        one.timeout = connecting
        first = begin(one.request, "server/discover", timeout=PATIENCE)
        assert starting.wait(PATIENCE)
        with pytest.raises(TimeoutError, match="not connected within 0.05"):
            one.call_tool("add", {"a": 1}, timeout=calling)
        gate.set()
        first.exception(PATIENCE)


def test_a_server_that_is_installed_first_has_time_to_start():
    """By npx or uvx; 3 s were not enough."""
    default = inspect.signature(client.connect).parameters["probe"].default
    assert default == client.PROBE_SECONDS and default >= 10


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is started twice")
def test_a_server_that_cannot_start_is_started_once(tmp_path):
    code = f"open({str(tmp_path / 'starts')!r}, 'a').write('x'); import nothing_at_all"
    said = []
    with pytest.raises(client.Disconnected, match="nothing_at_all") as caught:
        client.connect([*PYTHON, "-c", code], stderr=said.append)
    assert (tmp_path / "starts").read_text() == "x" and caught.value.exit_status == 1
    assert sum("Traceback" in line for line in said) == 1


def test_the_text_of_an_error_is_short():
    after = (
        "sys.stdin.readline(); [print('x' * 500000, file=sys.stderr) for _ in range(9)]"
    )
    with program("", after, stderr=lambda line: None) as one:
        with pytest.raises(client.Disconnected) as caught:
            one.call_tool("x")
    assert 1000 < len(str(caught.value)) < 20_000


def test_a_stream_that_is_reopened_has_time_to_log_in():
    asked = queue.Queue()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb != "GET":
            yield well(text)
        elif len([verb for verb, _, _ in site.asked if verb == "GET"]) == 1:
            yield STREAM + b"retry: 50\n\n"
        else:
            yield http_answer(401, {})

    with answering(answer) as site:
        options = {"authorize": asked.put, "on_log": print, "timeout": PATIENCE}
        with client.connect(site.url, revision=NEWEST_LEGACY, **options):
            assert asked.get(timeout=PATIENCE).seconds > PATIENCE


def test_client_never_logs_in_to_leave():
    asked = []

    def answer(verb: str, headers: dict, method: str, text: str):
        yield http_answer(401, {}) if verb == "DELETE" else well(text)

    with answering(answer) as site:
        client.connect(site.url, revision=NEWEST_LEGACY, authorize=asked.append).close()
        assert [verb for verb, _, _ in site.asked][-1] == "DELETE"
    assert asked == []


def test_client_prints_no_control_characters(capsys):
    """Over HTTP, too: of a tool that it refuses, and of a question."""
    seen = threading.Event()
    schema = {"properties": {"a": {"x-mcp-header": ""}}}
    tool = {"name": "\x1b[2J", "inputSchema": schema}
    question = {"jsonrpc": "2.0", "id": 1, "method": "\x1b[2J"}

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "POST" and method is None:  # the answer to the question
            seen.set()
        body = text.replace('"tools": []', f'"tools": [{json.dumps(tool)}]')
        data = f"data: {json.dumps(question)}\n\ndata: {body}\n\n"
        stream = method == "ping" and verb == "POST"
        yield STREAM + data.encode() if stream else http_answer(200, JSON, body)

    with answering(answer) as site:
        with client.connect(site.url) as one:
            assert one.list_tools() == []
        with client.connect(site.url, revision=NEWEST_LEGACY, timeout=PATIENCE) as one:
            one.ping()
            assert seen.wait(PATIENCE)
    printed = capsys.readouterr().err
    assert "tools/list: ignored" in printed and "Method not found" in printed
    assert "\x1b" not in printed


def test_of_invalid_items_the_first_is_told():
    items = "1, " * 500 + '{"name": "x"}'
    told: list[str] = []

    def answer(verb: str, headers: dict, method: str, text: str):
        yield well(text.replace('"prompts": []', f'"prompts": [{items}]'))

    with answering(answer) as site:
        with client.connect(site.url, stderr=told.append) as one:
            assert [item["name"] for item in one.list_prompts()] == ["x"]
    assert len(told) == 1 and "ignored 500, first 1: " in told[0]


@parametrize("secret", ["Bearer s3cret\n", "Bearer s3cret'\n"])
def test_client_does_not_quote_a_header_that_cannot_be_sent(secret):
    """As one is whose token was read from a file, with the end of its line."""
    with answering(lambda *_: [], Kept) as site:
        with pytest.raises(client.Disconnected, match="Invalid header") as caught:
            client.connect(site.url, headers={"Authorization": secret})
    assert "s3cret" not in str(caught.value) and site.asked == []


def test_closing_does_not_wait_for_a_notification():
    reached, gate = threading.Event(), threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if method == "notifications/x":
            reached.set()
            gate.wait(PATIENCE)
        yield well(text)

    with answering(answer) as site:
        one = client.connect(site.url, timeout=PATIENCE)
        sent = begin(one.notify, "notifications/x")
        assert reached.wait(PATIENCE)
        one.close()
        assert isinstance(sent.exception(PATIENCE), client.Disconnected)
        gate.set()


@parametrize("limit, most", [("MAX_UNREAD", 3), ("MAX_CHANGE", 9)])
def test_changes_that_nobody_reads_are_an_error(limit, most):
    server = fixture(Stage())
    with limits(**{limit: most}), client.connect(server) as one:
        with one.listen("tools") as subscription:
            for _ in range(9):
                server.changed("tools")
            for _ in "12":  # the next iteration raises it, too
                with pytest.raises(client.Malformed, match="not read"):
                    for heard in subscription:
                        assert heard == "tools"
        wait_until(lambda: not server.listeners)  # it is cancelled


def test_a_change_counts_the_memory_that_it_takes():
    server = fixture(Stage())
    with limits(MAX_CHANGE=2000), client.connect(server) as one:
        with one.listen("notifications/x") as subscription:
            for number in range(3):
                server.notify("notifications/x", {"n": number, "x": [[]] * 50})
            wait_until(lambda: len(subscription.inbox) == 3)
            with pytest.raises(client.Malformed, match="too large"):
                list(itertools.islice(subscription, 3))


def test_client_keeps_http_connections(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, http_serving(fixture(Stage())) as httpd:
        with client.connect(httpd.url, record=file, timeout=PATIENCE) as one:
            for _ in range(20):
                assert one.call_tool("add", {"a": 1})
    assert len({line["on"] for line in recorded(tmp_path / "t")}) <= 3


class Kept(Site):
    """An HTTP server that answers with streams, and counts its connections."""

    connections = 0

    def finish_request(self, connection, _):
        self.connections += 1
        with (
            connection.makefile("rb") as file,
            contextlib.suppress(OSError, ValueError),
        ):
            while True:
                for part in self.answer(*self.read(file)):
                    connection.sendall(part)


def chunk(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


CHUNKED = STREAM.replace(b"Connection: close", b"Transfer-Encoding: chunked")


def test_client_keeps_a_connection_whose_stream_has_ended():
    def answer(verb: str, headers: dict, method: str, text: str):
        yield CHUNKED + chunk(f"data: {text}\n\n") + chunk("")

    with answering(answer, Kept) as site, client.connect(site.url) as one:
        for _ in range(5):
            assert one.list_prompts() == []
    assert site.connections <= 2 and len(site.asked) == 6


def test_a_stream_that_does_not_end_after_its_response_keeps_no_thread():
    """Whatever the server then sends, or however slowly."""
    gate = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        yield CHUNKED + chunk(f"data: {text}\n\n")
        while method == "prompts/list" and not gate.wait(0.01):
            yield b"0"  # a digit of the length of the next chunk

    with answering(answer, Kept) as site, client.connect(site.url) as one:
        for _ in range(3):
            assert one.list_prompts() == []
        wait_until(no_post_waits)
        gate.set()


@parametrize("rest", [b"0", b"0\r\n", b"0\r\n\r"])
def test_a_stream_that_has_ended_in_part_keeps_no_connection(rest):
    """`0` may begin a longer number, and more headers may follow a whole line."""
    gate = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        yield CHUNKED + chunk(f"data: {text}\n\n") + rest
        gate.wait(PATIENCE)

    with answering(answer, Kept) as site, client.connect(site.url) as one:
        assert one.list_prompts() == one.list_prompts() == []
        gate.set()
    assert site.connections == len(site.asked) == 3


def keeping(verb: str, headers: dict, method: str, text: str):
    """Answer, and say that the connection stays."""
    head = {**JSON, "Content-Length": len(text)}
    yield http_answer(200, head, text).replace(b"close", b"keep-alive")


def test_a_kept_connection_that_ended_is_replaced():
    with answering(keeping) as site, client.connect(site.url) as one:
        for _ in range(5):
            time.sleep(0.02)  # until it has hung up
            assert one.list_prompts() == []
        assert len(site.asked) == 6


def test_a_read_is_sent_again_if_its_kept_connection_ends():
    """RFC 9110, section 9.2.2: a call that the server may have run is not."""
    kind = functools.partial(Fickle, reads_all=True)
    with answering(keeping, kind) as site, client.connect(site.url) as one:
        with pytest.raises(client.Disconnected):
            one.call_tool("x")
        methods = methods_of(site)
    assert methods == ["server/discover", "tools/list", "tools/list", "tools/call"]


@needs_posix
def test_a_call_is_sent_again_if_it_was_not_sent_whole():
    """It is larger than the buffers of both sides, and nobody reads it."""
    kind = functools.partial(Fickle, reads_all=False)
    with answering(keeping, kind) as site, client.connect(site.url) as one:
        assert one.call_tool("x", {"text": "x" * 12_000_000})
        methods = methods_of(site)
    assert methods == ["server/discover", "tools/list", "tools/call"]


def test_a_closed_client_sends_nothing_again():
    reached = threading.Event()

    class Waiting(Fickle):
        def read(self, file):
            found = super().read(file)
            if found[2]["method"] == "prompts/list":
                reached.set()
                file.read(1)  # until the client hangs up
            return found

    kind = functools.partial(Waiting, reads_all=True)
    with answering(keeping, kind) as site:
        one = client.connect(site.url, timeout=PATIENCE)
        call = begin(one.list_prompts)
        assert reached.wait(PATIENCE)
        one.close()
        assert isinstance(call.exception(PATIENCE), client.Disconnected)
        client.connect(site.url).close()  # takes longer than sending again would
    assert site.connections == 2


def test_an_endpoint_on_another_origin_is_told():
    def answer(verb: str, headers: dict, method: str, text: str):
        elsewhere = STREAM + b"event: endpoint\ndata: http://evil.example/\n\n"
        yield elsewhere if verb == "GET" else http_answer(405, {})

    with answering(answer) as site:
        with pytest.raises(client.Malformed, match="another origin"):
            client.connect(site.url)


def test_fetch_has_an_end_in_seconds():
    gate = threading.Event()

    def answer(verb: str, headers: dict, message):
        yield http_answer(200, {"Content-Length": "9999"}, None)
        while not gate.wait(0.01):
            yield b"x"

    with contextlib.closing(Site(answer)) as site:
        with pytest.raises(client.Disconnected):
            client.fetch("GET", site.url, {}, timeout=0.1)
        gate.set()


def test_the_recipe_for_asyncio():
    """guide.md: a coroutine awaits a call on a thread, and can cancel it."""
    reached = queue.Queue()
    scope: dict = {}
    guide = (HERE / "examples" / "guide.md").read_text("utf-8")
    recipe = re.search(r"(?ms)^async def call\(.*?^        raise\n", guide)[0]
    exec("import asyncio\n" + recipe, scope)

    async def main(one):
        found = await scope["call"](one.call_tool, "add", {"a": 1, "b": 2})
        assert found["content"][0]["text"] == "3"
        task = asyncio.create_task(scope["call"](one.call_tool, "slow", {"gate": "a"}))
        assert await asyncio.to_thread(reached.get, timeout=PATIENCE) == "a"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(reached.get, timeout=PATIENCE) == "a passed"

    with client.connect(fixture(Stage(reached.put))) as one:
        asyncio.run(main(one))


# ---- what else is out there: balancers, proxies, and servers of other people


def test_client_waits_for_a_busy_server():
    """429 and 503 say in Retry-After when to come again, at most until the timeout."""
    busy = [(503, "0"), (429, "0"), (429, "0"), (503, "0")]

    def answer(verb: str, headers: dict, method: str, text: str):
        if busy and method in ("server/discover", "tools/call"):
            status, seconds = busy.pop()
            yield http_answer(status, {"Retry-After": seconds}, "later")
        else:
            yield well(text)

    with limits(RETRY_SECONDS=0.01), answering(answer) as site:
        with client.connect(site.url, timeout=PATIENCE) as one:
            assert one.modern and busy == []
            busy += [(503, "x"), (503, "0")]
            with pytest.raises(mcp.HttpError, match="503"):
                one.call_tool("x")
            for seconds in ("99", "9" * 400, "-1e999", "nan", "Mon, 01 Jan 2024"):
                busy.append((429, seconds))
                with contextlib.suppress(mcp.HttpError):
                    one.call_tool("x", timeout=5)
            assert busy == []
            asked = methods_of(site)
            assert asked[:5] == ["server/discover"] * 5


def probed(answer: str, rest: str, **options):
    """Connect to a program that says a word to stderr before it answers the probe."""
    code = f"""if True:
        import fcntl, json, sys, termios, time
        def answer(**members):
            message = json.loads(sys.stdin.readline())
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **members}}), flush=True)
        print("about discover\\n" * 94, file=sys.stderr, flush=True)
        while any(fcntl.ioctl(2, termios.FIONREAD, bytes(4))):
            time.sleep(0.001)
        time.sleep(0.05)  # it has been read, and is passed on now
        {answer}
        {rest}
        sys.stdin.readline(); print("at work", file=sys.stderr, flush=True); sys.stdin.read()
    """
    options = {"timeout": PATIENCE, **options}
    return client.connect([*PYTHON, "-c", code], **options)


def test_a_call_that_is_given_up_while_it_connects_keeps_no_message(monkeypatch):
    connects, gate, begun = threading.Event(), threading.Event(), []
    connect = http.client.HTTPConnection.connect

    def slow(self):
        connects.set()
        gate.wait(PATIENCE)
        connect(self)

    class Arguments(dict):
        """A dict that may have a weak reference."""

    given = [Arguments(a=1)]
    known = weakref.ref(given[0])
    with answering(plain) as site, client.connect(site.url) as one:
        one.tools = {"x": {}}
        while one.transport.idle:
            one.transport.idle.pop().hang_up(None, close=True)
        monkeypatch.setattr(http.client.HTTPConnection, "connect", slow)

        def call():
            params = {"name": "x", "arguments": given.pop()}
            with contextlib.suppress(client.RequestCancelled):
                one.request("tools/call", params, started=begun.append)

        running = begin(call)
        assert connects.wait(PATIENCE)
        begun[0].cancel()
        running.result(PATIENCE)
        gc.collect()
        assert known() is None
        gate.set()


@needs_posix
def test_a_call_that_was_not_sent_is_taken_back(tmp_path):
    """The server reads nothing meanwhile: one call fills the pipe, 20 wait for it."""
    tracemalloc = pytest.importorskip("tracemalloc")  # which PyPy lacks
    os.mkfifo(tmp_path / "reads")
    code = f"""if True:
        import json, sys
        came, begin = [], ""
        for line in sys.stdin:
            message = json.loads(begin + line)
            begin = ""
            came.append([message["method"], message["params"].get("name")])
            result = {{"supportedVersions": {MODERN}, "capabilities": {{}}}}
            if len(came) > 1:
                result = {{"came": came, "resultType": "complete"}}
            if "id" in message:
                answer = {{"jsonrpc": "2.0", "id": message["id"], "result": result}}
                print(json.dumps(answer), flush=True)
            if len(came) == 1:
                begin = sys.stdin.read(1)
                print("it is sent", file=sys.stderr, flush=True)
                open({str(tmp_path / "reads")!r}).read()
    """
    heard = queue.SimpleQueue()
    with client.connect([*PYTHON, "-c", code], stderr=heard.put) as one:

        def call(name, **options):
            arguments = {"x": "x" * 200_000}
            params = {"name": name, "arguments": arguments}
            options.setdefault("timeout", PATIENCE)
            return one.request("tools/call", params, tag=name, **options)

        first = begin(call, "first")
        assert heard.get(timeout=PATIENCE) == "it is sent"
        tracemalloc.start()
        for _ in range(20):
            with pytest.raises(TimeoutError):
                call("second", timeout=0)
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert kept < 1_000_000 and not one.unanswered
        (tmp_path / "reads").write_text("")
        first.result(PATIENCE)
        names = [name for _, name in call("third")["came"]]
        assert names == [None, "first", "third"]


LEGACY_RESULT = "answer(result={'protocolVersion': '2025-11-25', 'capabilities': {}})"
LEGACY_RESULT += "; sys.stdin.readline()"
MODERN_RESULT = (
    f"answer(result={{'supportedVersions': {MODERN}, 'capabilities': {{}}}})"
)
REFUSES = "answer(error={'code': -32601, 'message': 'no'})"


@needs_posix
@parametrize(
    "answer, rest, probe, noise",
    [
        (REFUSES, LEGACY_RESULT, PATIENCE, 0),
        ("sys.stdin.readline()", LEGACY_RESULT, 0.3, 94),  # it may wait for its user
        (MODERN_RESULT, "", PATIENCE, 94),
    ],
    ids=["refused", "silent", "modern"],
)
def test_what_a_server_writes_about_the_probe_is_held_back(answer, rest, probe, noise):
    said: queue.Queue = queue.Queue()
    with probed(answer, rest, stderr=said.put, probe=probe) as one:
        one.notify("notifications/x")
        lines = list(iter(functools.partial(said.get, timeout=PATIENCE), "at work"))
    assert lines.count("about discover") == noise, lines


@needs_posix
def test_what_a_server_writes_about_the_probe_is_in_the_error():
    said: list[str] = []
    with pytest.raises(client.Disconnected, match="about discover"):
        probed(REFUSES, "sys.exit(5)", stderr=said.append)


def test_a_line_that_is_held_back_is_cut():
    class Noisy(client.MemoryTransport):
        def send(self, message, request):
            self.say("x" * 20_000)
            super().send(message, request)

    said: list[str] = []
    client.connect(Noisy(fixture(Stage())), stderr=said.append).close()
    assert len(said[0]) == 2**14


def test_a_hang_up_at_discovery_is_followed_by_initialize():
    def answer(verb: str, headers: dict, method: str, text: str):
        if method == "server/discover":
            return
        yield well(text)

    with answering(answer) as site, client.connect(site.url, timeout=PATIENCE) as one:
        assert one.version == "2025-11-25" and one.list_prompts() == []


def test_a_server_that_is_not_there_is_asked_once():
    with pytest.raises(client.Disconnected) as caught:
        client.connect(f"http://127.0.0.1:{unused_port()}/mcp", proxy="")
    assert "tried" not in str(caught.value)


@parametrize("opens", [b"", b"id: 1\ndata:\n\n", b": ping\n\n"])
def test_a_stream_that_brings_nothing_is_opened_less_and_less_often(opens):
    times: list[float] = []
    enough = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "GET":
            times.append(time.monotonic())
            if len(times) == 7:
                enough.set()
            data = b'data: {"jsonrpc": "2.0", "method": "notifications/x"}\n\n'
            yield STREAM + (data if len(times) == 5 else opens)
        else:
            yield well(text)

    with limits(RETRY_SECONDS=0.02), answering(answer) as site:
        with client.connect(site.url, revision=NEWEST_LEGACY, on_notification=print):
            assert enough.wait(PATIENCE)
    waits = [later - earlier for earlier, later in zip(times, times[1:])]
    assert all(wait >= least for wait, least in zip(waits, [0.02, 0.04, 0.08, 0.16]))
    assert waits[4] < waits[3]  # one brought a message


def test_cookies_of_a_balancer_are_kept(tmp_path):
    """By name, as they came; a header of one's own is sent instead of them."""
    given = iter([["route=a; Path=/; HttpOnly", "x=1, 2"], ["route=b==; Max-Age=9"]])

    def answer(verb: str, headers: dict, method: str, text: str):
        head = http_answer(200, JSON, text)
        lines = b"".join(
            b"Set-Cookie: " + one.encode() + b"\r\n" for one in next(given, [])
        )
        yield head.replace(b"\r\n", b"\r\n" + lines, 1)

    with open(tmp_path / "t", "ab", 0) as file, answering(answer) as site:
        with client.connect(site.url, record=file) as one:
            for _ in "12":
                one.list_prompts()
        client.connect(site.url, headers={"Cookie": "own"}).close()
    sent = heads(site, "cookie")
    assert sent == [None, "route=a; x=1, 2", "route=b==; x=1, 2", "own"]
    assert "route" not in (tmp_path / "t").read_text()


@parametrize(
    "given, kept",
    [
        (["a=1", "b=2", "c=3", "d=4", "e=5"], "a=1; b=2; c=3; d=4"),
        (["a=1", "b=2222222222222222", "c=3333"], "a=1; c=3333"),
        (["a=1", "a=2", "a=33333333333333333333"], "a=2"),
        (["a=1", "b=2\r\n X-Evil: yes", "c=\t", "d=\x7f"], "a=1"),
    ],
)
@parametrize("lines", [1, 9])
def test_a_server_cannot_fill_a_client_with_cookies(given, kept, lines):
    """Nor make it send a folded line. `lines`: that one response has."""
    left = iter(given)

    def answer(verb: str, headers: dict, method: str, text: str):
        head = "".join(
            f"Set-Cookie: {one}; Path=/\r\n" for one in itertools.islice(left, lines)
        )
        yield well(text).replace(b"\r\n", b"\r\n" + head.encode(), 1)

    with limits(MAX_COOKIE_BYTES=20), answering(answer) as site:
        with client.connect(site.url) as one:
            for _ in given:
                one.list_prompts()
    assert heads(site, "cookie")[-1] == kept


@parametrize("given", ["option", "environment", "bare", "no_proxy", "none"])
def test_client_goes_through_a_proxy(given, monkeypatch):
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)
    with answering(plain) as site, answering(plain) as proxy:
        place = proxy.url[: -len("/mcp")]
        options = {}
        if given == "option":
            options["proxy"] = place + "/"
        else:
            bare = place.replace("http://", "")
            monkeypatch.setenv("http_proxy", bare if given == "bare" else place)
        if given == "no_proxy":
            monkeypatch.setenv("no_proxy", "example.org,127.0.0.1")
        if given == "none":
            options["proxy"] = ""
        with client.connect(site.url, **options) as one:
            one.list_prompts()
        client.fetch("GET", site.url + "?x=1", {})
        assert len(proxy.asked) + len(site.asked) == 3
        if given == "no_proxy":
            assert proxy.asked == []
        elif given in ("environment", "bare"):
            paths = [site.url, site.url, site.url + "?x=1"]
            assert heads(proxy, ":path") == paths
            assert proxy.asked[0][1]["host"] == site.url.split("/")[2]
        else:
            assert len(proxy.asked) == (2 if given == "option" else 1)


@parametrize(
    "wrong", ["socks5://localhost:1", "http://me:s3cret@localhost:1", "http://"]
)
def test_a_proxy_that_cannot_be_used_is_an_error(wrong):
    with pytest.raises(client.Disconnected) as caught:
        client.connect("http://localhost:1/mcp", proxy=wrong)
    assert "s3cret" not in str(caught.value)


def test_an_error_names_the_proxy():
    place = f"http://127.0.0.1:{unused_port()}"
    with pytest.raises(client.Disconnected, match="through the proxy 127.0.0.1"):
        client.connect("https://example.invalid/mcp", proxy=place)


class Tunnel(Site):
    """A proxy that answers CONNECT, and is the server behind it, too."""

    def __init__(self, answer, context):
        super().__init__(answer)
        self.context = context

    def finish_request(self, connection, address):
        with connection.makefile("rb") as file:
            self.read(file)
        connection.sendall(b"HTTP/1.1 200 -\r\n\r\n")
        with contextlib.suppress(OSError):  # the client does not trust us
            with self.context.wrap_socket(connection, server_side=True) as link:
                super().finish_request(link, address)


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_client_tunnels_to_https_through_a_proxy(tmp_path, monkeypatch):
    make_certificate(str(tmp_path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # as strings, for PyPy
    context.load_cert_chain(str(tmp_path / "cert"), str(tmp_path / "key"))
    url = f"https://{HOST}/mcp"
    with answering(plain, functools.partial(Tunnel, context=context)) as proxy:
        place = proxy.url[: -len("/mcp")]
        with client.connect(url, proxy=place, cacert=str(tmp_path / "cert")) as one:
            assert one.list_prompts() == []
        assert {*heads(proxy, ":path")} == {f"{HOST}:443", "/mcp"}
        monkeypatch.setenv("https_proxy", place)
        with pytest.raises(client.Disconnected, match="(?i)certificate"):
            client.connect(url)
    with pytest.raises(OSError, match="nothing"):
        client.connect(url, cacert=str(tmp_path / "nothing"))


@played(select("* memory http"))
def test_client_hears_of_what_has_a_name(version, carrier):
    """Of the names that Server.notify() sends to, with the rest."""
    server, name = fixture(Stage()), "notifications/example.org/moved"
    with connected(version, carrier, server) as one:
        with one.listen(["tools", name]) as subscription:
            assert sorted(subscription.granted) == [name, "tools"]
            for method in ("notifications/other/x", name):
                server.notify(method, {"x": 1})
            server.changed("tools")
            changes = iter(subscription)
            came = [begin(next, changes).result(PATIENCE) for _ in "12"]
            assert came == [name, "tools"]
        with one.listen(name) as subscription:
            server.notify(name)
            assert begin(next, iter(subscription)).result(PATIENCE) == name


def test_an_event_keeps_what_is_known_of_it():
    tracemalloc = pytest.importorskip("tracemalloc")  # which PyPy lacks
    junk = "".join(f"f{n}: {n}\nid: {n}\nevent: {n}\n" for n in range(20_000))

    def answer(verb: str, headers: dict, method: str, text: str):
        data = f"data: {text}\n\n".encode()
        if method == "prompts/list":
            data = junk.encode() + b"event: message\n" + data
        yield STREAM + data

    with answering(answer) as site, client.connect(site.url) as one:
        tracemalloc.start()
        assert one.list_prompts() == []
        assert tracemalloc.get_traced_memory()[1] < 3_000_000  # it was 7
        tracemalloc.stop()


def test_the_default_say_emits_no_control_sequences(capsys):
    transport = client.MemoryTransport(fixture(Stage()))
    transport.say("\x1b[2J\x9b1m \u202ea\u2066 \r\n\u2028 é 漢 \U0001f600\ttail")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "é 漢 \U0001f600" in printed
    assert all(one.isprintable() for one in printed.rstrip("\n"))
    assert all(word in printed for word in ("x1b[2J", "x9b1m", "u202ea", "u2066"))


def test_a_line_that_is_too_long_says_so():
    after = "sys.stdin.readline(); print('x' * 200_000, flush=True); sys.stdin.read()"
    with limits(MAX_MESSAGE_BYTES=100_000):
        with program("", after, stderr=lambda line: None) as one:
            with pytest.raises(TimeoutError, match="larger than 100000 bytes"):
                one.call_tool("x", timeout=0.5)


def test_the_time_of_a_login_is_not_that_of_connecting():
    """A legacy server is asked twice, and its user takes longer than the timeout."""

    def answer(verb: str, headers: dict, method: str, text: str):
        if headers.get("authorization") != "t":
            yield http_answer(401, {})
        elif method == "server/discover":
            yield http_answer(404, {}, "what?")
        else:
            yield well(text)

    def log_in(refusal):
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            time.sleep(0.01)
        return {"Authorization": "t"}

    with answering(answer) as site:
        with client.connect(site.url, authorize=log_in, timeout=1) as one:
            assert not one.modern


@parametrize("beside", [True, False])
def test_a_client_in_a_package_finds_the_module_beside_it(beside, tmp_path):
    vendor = tmp_path / "pkg" / "vendor"
    vendor.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").touch()
    (vendor / "__init__.py").touch()
    for path in (MCP_REF, Path(client.__file__)):
        shutil.copy(path, vendor / path.name)
    if not beside:  # as a module of the application's own
        shutil.move(vendor / "mcp_ref.py", tmp_path / "mcp_ref.py")
    module = "pkg.vendor.mcp_ref" if beside else "mcp_ref"
    code = f"""if True:
        from pkg.vendor.mcp_client import connect
        from {module} import Server
        server = Server("s")
        server.tool(lambda: "hello", name="hi")
        print(connect(server).call_tool("hi")["content"][0]["text"])
    """
    words = [*PYTHON, "-E", "-c", code]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "hello\n", found.stderr


COMMANDS = r"""
list --revision 2025-06-18 --trace URL | 0 | file:///{+path} | "protocolVersion": "2025-06-18"
list URL --trace | 0 | add(a: int, b: int = 2) -> int  Add two numbers. | tools/list
list --header X-Key:wrong URL | 3 | - | 401
call URL echo text=a=b | 0 | a=b | -
call URL echo --text 7 | 0 | 7 | -
call URL echo text= | 0 | - | -
call URL add {"a":2,"b":3} | 0 | 5 | -
call URL add --a=2 --b 3 | 0 | 5 | -
call URL add a=two | 2 | - | a must be int
call URL add a=2 c=3 | 2 | - | no argument 'c'
call URL add a=2 a=3 | 2 | - | 2 times
call URL add a=2 --trace | 2 | - | --trace stands before add
call URL add a=2 --json | 2 | --json stands before add | -
call URL add --help | 0 | --b int  (default: 2) | -
call URL ad | 2 | - | did you mean 'add'
call --json --trace URL add a=2 b=3 | 0 | "structuredContent" | tools/call
call --json URL fail how=own | 4 | "code": 7 | -
call URL fail how=value | 1 | told you | -
call --answer branch=main URL ask | 0 | "branch": "main" | Which branch?
call URL ask | 0 | decline | --answer branch=...
read URL test://text | 0 | hello | -
read URL test://nowhere | 4 | - | not found
prompt --revision 2025-06-18 --timeout 9 --header X-A:b URL greet name=Ada | 0 | Hello, Ada! | -
ping URL | 0 | answered | -
info URL | 0 | Use it gently. | -
request URL tools/list | 0 | "tools": | -
list | 2 | - | TARGET
nothing | 2 | - | verb
--help | 0 | usage: | -
call URL | 2 | - | call
call -- a b | 2 | - | call
list -- /nowhere/at/all | 3 | - | /nowhere/at/all
list --header X-A URL | 2 | - | NAME:VALUE
list nothing.py | 2 | - | nothing.py
list --timeout soon URL | 2 | - | seconds
list --jsn URL | 2 | - | --json
list ftp://localhost/ | 2 | - | http(s)
list --revision 2020-01-01 URL | 2 | - | unknown revision
list --root https://example.org/ URL | 2 | - | root
"""


@parametrize("row", COMMANDS.strip().splitlines())
def test_the_command_line(row, capsys, monkeypatch):
    words, status, *wanted = row.split(" | ")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    keys = mcp.bearer({"right": "me"}, header="X-Key")
    with http_serving(fixture(Stage()), authorize=keys) as httpd:
        verb, *more = words.replace("URL", httpd.url).split()
        found = cli.main([verb, "--header", "X-Key: right", *more])
    printed = capsys.readouterr()
    assert found == int(status), printed
    for word, text in zip(wanted, printed):
        assert word in text or word == "-", printed


# ---- what the client does of its own accord


test_an_optional_message_that_fails_costs_only_itself = scripts(
    each(
        r"""
== logging/setLevel gets @1 | bare | on: pipe http 2025-11-25
    | connect: {"log_level": "info"} | limits: {"COURTESY_SECONDS": @2}
call connect
> server/discover
< error {METHOD_NOT_FOUND} no
> initialize
< {"protocolVersion": "{VERSION}", "capabilities": {"tools": {}, "logging": {}}}
> - notifications/initialized
> 2 logging/setLevel
@3
returns {"modern": false}
call list_tools
tools/list => {"tools": []}
returns []
""",
        """
-32601 | 9 | < 2 error {METHOD_NOT_FOUND} no
-32603 | 9 | < 2 error {INTERNAL_ERROR} no
another shape | 9 | << {"jsonrpc": "2.0", "id": {ID:2}, "result": 3}
no answer | 0.1 | > - notifications/cancelled {"requestId": {ID:2}}
""",
    )
    + r"""
== null is not declared | bare | on: pipe 2025-11-25 | connect: {"log_level": "info"}
call connect
> server/discover
< error {METHOD_NOT_FOUND} no
> initialize
< {"protocolVersion": "{VERSION}", "capabilities": {"logging": null, "prompts": null}}
> - notifications/initialized
returns {"capabilities": {"logging": null, "prompts": null}}
call list_prompts
returns []
""",
    "client",
)


@parametrize("status", [400, 404, 405, 500])
@parametrize("what", ["notifications/initialized", "logging/setLevel", "GET", "all"])
def test_no_status_of_an_optional_message_ends_a_session(what, status):
    """400 and 404 can mean a lost session, so the client must not open others."""
    opened = []

    def answer(verb: str, headers: dict, method: str, text: str):
        text = text.replace('"tools": {}', '"tools": {}, "logging": {}')
        if method == "initialize":
            opened.append(method)
        is_optional = method in ("notifications/initialized", "logging/setLevel")
        if (what == "all" and (is_optional or verb == "GET")) or what in (verb, method):
            yield http_answer(status, {}, "what?")
        elif method == "server/discover" or verb == "GET":
            yield http_answer(405, {})
        else:
            yield well(text)

    said: list[str] = []
    with answering(answer) as site:
        options = {"on_log": print, "stderr": said.append, "timeout": PATIENCE}
        with client.connect(site.url, **options) as one:
            assert one.list_tools() == one.list_tools() == []
    assert len(opened) == 1 and len(said) == (what != "GET") + (what == "all")


@parametrize("way", ["error", "hang-up", "silence"])
def test_a_list_that_fails_does_not_keep_a_call_from_being_sent(way):
    """Over HTTP, the client lists the tools itself: for the headers of a call."""
    over = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if method == "tools/list" and way == "error":
            text = text.replace('"result": ', '"error": {"code": -32603}, "x": ')
        elif method == "tools/list" and way == "hang-up":
            return
        elif method == "tools/list":
            over.wait(PATIENCE)
        yield well(text)

    with answering(answer) as site, client.connect(site.url) as one:
        timeout = 0.5 if way == "silence" else PATIENCE
        assert one.call_tool("x", timeout=timeout)["content"] == []
        over.set()


def test_nothing_in_a_line_that_is_too_long_is_taken_for_an_answer(monkeypatch):
    """A user may choose the middle of a log message."""
    monkeypatch.setattr(client, "MAX_MESSAGE_BYTES", 999)
    run = """
        ident = json.loads(sys.stdin.readline())["id"]
        answer = {"jsonrpc": "2.0", "id": ident, "result": found}
        middle = json.dumps(answer)[:-1] + ', "id": %d}' % ident
        for pieces in range(1, 4):
            head = '{"method": "notifications/message", "params": [' + middle
            print(head.ljust(1000 * pieces) + middle + ']}', flush=True)
        found["content"] = []
        print(json.dumps(answer), flush=True)
        sys.stdin.read()"""
    with program("", run, stderr=lambda line: None) as one:
        assert one.request("tools/call")["content"] == []


def test_a_call_of_a_process_that_ends_is_not_waited_for():
    with program("", "sys.stdin.readline()", stderr=lambda line: None) as one:
        with pytest.raises(client.Disconnected):
            one.request("tools/call", tag="ann")
        assert one.unanswered == {}


def test_a_response_that_comes_as_its_call_is_given_up_leaves_nothing():
    """It comes between the two steps in which the client notes the call."""
    server, gate = mcp.Server("x"), threading.Event()

    class Notes(dict):
        def __setitem__(self, ident, tag):
            super().__setitem__(ident, tag)
            one.receive(mcp.encode({"jsonrpc": "2.0", "id": ident, "result": {}}))

    @server.tool
    def slow():
        gate.wait(PATIENCE)

    with client.connect(server) as one:
        one.unanswered = Notes()
        with pytest.raises(TimeoutError):
            one.call_tool("slow", timeout=0.05, tag="ann")
        assert one.unanswered == {}
        gate.set()


# ---- a call runs once


class Restarting:
    """A server on a balancer: `lost()` makes it forget its sessions. `refusal` has the
    status and body of its refusals; calls of the tool are counted in `ran`."""

    def __init__(self, status: int, body: str):
        self.refusal = http_answer(status, {}, body)
        self.sessions = itertools.count()
        self.known, self.ran, self.opened = "", 0, 0
        self.breaks = False  # true if the stream of the next call breaks

    def lost(self):
        self.known = ""

    def __call__(self, verb: str, headers: dict, method: str, text: str):
        if method == "initialize":
            self.opened += 1
            self.known = f"s{next(self.sessions)}"
            yield http_answer(200, {**JSON, "Mcp-Session-Id": self.known}, text)
        elif verb == "GET" and "last-event-id" not in headers:
            yield http_answer(405, {})
        elif headers.get("mcp-session-id") != self.known:
            yield self.refusal
        elif self.breaks and method == "tools/call":
            self.ran += 1
            self.lost()
            yield STREAM + b"retry: 50\nid: 1\ndata:\n\n"
        else:
            self.ran += method == "tools/call"
            yield well(text)


@contextlib.contextmanager
def restarting(status: int, body: str, **options):
    """Yield a server that restarts, and a client of it."""
    server = Restarting(status, body)
    with answering(server) as site:
        with client.connect(site.url, revision=NEWEST_LEGACY, **options) as one:
            yield server, one


REFUSALS = [
    (404, "gone"),
    (404, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "x"}}'),
    (400, "no session"),
    (400, "Bad Request: Server not initialized"),
    (400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "x"}}'),
]


@parametrize("status, body", REFUSALS)
def test_a_restarted_server_gets_another_session_and_the_call_again(status, body):
    with restarting(status, body) as (server, one):
        for _ in "12":
            server.lost()
            assert one.call_tool("pay")["content"] == []
    assert (server.ran, server.opened) == (2, 3)


@parametrize("status, body", REFUSALS)
def test_a_call_on_its_way_while_another_finds_the_session_lost(status, body):
    """It goes out when the new session is not open yet, and then once more."""
    server = Restarting(status, body)
    opening, arrived = threading.Event(), threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        is_reopening = method == "initialize" and server.opened
        if is_reopening:
            opening.set()
            assert arrived.wait(PATIENCE)
        elif method == "tools/call" and opening.is_set():
            arrived.set()
        yield from server(verb, headers, method, text)

    def trace(way: str, message: dict):
        if message.get("params", {}).get("name") == "late":
            assert opening.wait(PATIENCE)

    with answering(answer) as site:
        with client.connect(site.url, revision=NEWEST_LEGACY, trace=trace) as one:
            server.lost()
            late = begin(one.call_tool, "late", tag="ann")
            assert one.call_tool("first", tag="bob")["content"] == []
            assert late.result(PATIENCE)["content"] == []
            assert one.unanswered == {}
    assert server.opened == 2


@parametrize("status, body", REFUSALS)
def test_a_call_whose_stream_cannot_be_resumed_is_not_sent_again(status, body):
    with restarting(status, body) as (server, one):
        server.breaks = True
        with pytest.raises(client.Disconnected, match="resumed"):
            one.call_tool("pay", tag="ann")
        # The server may still run it, until the client knows that the session is lost.
        assert list(one.unanswered.values()) == ["ann"]
        assert server.ran == 1
        server.breaks = False
        assert one.call_tool("pay")["content"] == []
        assert one.unanswered == {}
    assert (server.ran, server.opened) == (2, 2)


@parametrize("status", [400, 404, 405, 500])
def test_a_subscriber_learns_that_its_session_is_gone(status):
    """... by Disconnected, whatever the server says to the GET."""
    ended = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        text = text.replace('"tools": {}', '"tools": {"listChanged": true}')
        if verb == "GET" and not ended.is_set():
            ended.set()
            yield STREAM + b"retry: 50\nid: 1\ndata:\n\n"
        elif verb == "GET":
            yield http_answer(status, {}, "gone")
        else:
            yield well(text)

    with answering(answer) as site:
        with client.connect(site.url, revision=NEWEST_LEGACY) as one:
            with one.listen("tools") as changes, pytest.raises(client.Disconnected):
                next(iter(changes))


@parametrize("status", [502, 503, 504])
def test_what_only_reads_is_sent_again_while_a_server_restarts(status):
    failing: list[str] = []

    def answer(verb: str, headers: dict, method: str, text: str):
        if method in failing:
            failing.remove(method)
            yield http_answer(status, {}, "starting")
        else:
            yield well(text)

    with limits(RETRY_SECONDS=0.01), answering(answer) as site:
        for version in (NEWEST, NEWEST_LEGACY):
            opens = "server/discover" if version in MODERN else "initialize"
            failing += [opens] * client.MAX_RETRIES
            with client.connect(site.url, revision=version) as one:
                failing += ["tools/list", "tools/list", "server/discover", "ping"]
                assert one.list_tools() == []
                one.ping()
                failing[:] = ["tools/call"]
                with pytest.raises(mcp.HttpError, match=str(status)):
                    one.call_tool("x")
                failing += ["tools/list"] * (client.MAX_RETRIES + 1)
                with pytest.raises(mcp.HttpError, match=str(status)):
                    one.list_tools()
                assert failing == []


@needs_posix
@parametrize("size", [10, 3_000_000])
def test_an_answer_written_before_the_exit_arrives(size):
    """The end of a process is not the end of its stdout."""
    rest = f"""
        for line in sys.stdin:
            ident = json.loads(line)["id"]
            found = {{"resultType": "complete", "content": [], "x": "x" * {size}}}
            print(json.dumps({{"jsonrpc": "2.0", "id": ident, "result": found}}))
            sys.stdout.flush()
            os._exit(0)"""
    slow = threading.Event()
    for _ in range(3):
        trace = lambda way, message: slow.wait(0.03)  # noqa: E731
        with program("", rest.strip(), trace=trace) as one:
            assert one.call_tool("x")["content"] == []


def test_a_server_that_is_gone_does_not_lose_the_next_one(monkeypatch):
    """Several threads notice its end. None of them may still act after a restart."""
    met, restarted, threads = threading.Event(), threading.Event(), []

    class Loss(client.Disconnected):
        def __init__(self, text):
            super().__init__(text)
            if "exit status 3" in text:
                threads.append(threading.current_thread())
                if len(threads) == 1:
                    met.wait(0.05)
                else:
                    met.set()
                    restarted.wait(PATIENCE)

    monkeypatch.setattr(client, "Disconnected", Loss)
    with program("", "sys.stdin.readline(); os._exit(3)") as one:
        with pytest.raises(Loss, match="exit status 3"):
            one.call_tool("x")
        one.open()
        restarted.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert one.transport.up


def test_the_writer_of_a_server_that_is_gone_takes_no_message_of_the_next_one(
    monkeypatch, tmp_path
):
    gate, writers, made = threading.Event(), [], []

    class Noted(client.Client):
        def __init__(self, *target, **options):
            made.append(self)
            super().__init__(*target, **options)

    class Late(threading.Thread):
        def run(self):
            if self.name == "mcp-write":
                writers.append(self)
                if len(writers) == 1:
                    gate.wait(PATIENCE)
                else:
                    gate.set()
                    writers[0].join(0.05)
            super().run()

    monkeypatch.setattr(client, "Thread", Late)
    once = "import os\nif not os.path.exists('flag'): open('flag', 'w'); os._exit(3)\n"
    serve = "import mcp_ref; mcp_ref.Server('s').run([])"
    words = [sys.executable, "-c", once + serve]
    path = {"PYTHONPATH": str(MCP_REF.parent)}
    with pytest.raises(client.Disconnected, match="exit status 3"):
        Noted(words, env=path, cwd=str(tmp_path))
    with made[0] as one:
        one.open()
        assert one.version == NEWEST and len(writers) == 2


# ---- headers, URLs and proxies


class Lines(Site):
    """Keeps the lines of each head."""

    def read(self, file):
        self.lines = []

        def line():
            self.lines.append(file.readline())
            return self.lines[-1]

        spy = types.SimpleNamespace(read=file.read, readline=line)
        return super().read(spy)


def test_headers_are_merged_in_any_spelling():
    def authorize(refusal):
        return {"AUTHORIZATION": "mine"}

    def answer(verb: str, headers: dict, method: str, text: str):
        is_mine = headers.get("authorization") == "mine"
        yield well(text) if is_mine else http_answer(401, {})

    own = {"authorization": "theirs", "user-agent": "me", "COOKIE": "x"}
    with answering(answer, Lines) as site:
        client.connect(site.url, headers=own, authorize=authorize).close()
    names = [line.partition(b":")[0].lower() for line in site.lines]
    assert len(names) == len(set(names))
    assert b"user-agent: me\r\n" in site.lines
    assert b"AUTHORIZATION: mine\r\n" in site.lines
    merged = client.merge_headers({"x-a": "1", "b": "2"}, {"X-A": "3"})
    assert merged == {"X-A": "3", "b": "2"}


@parametrize(
    "name, value",
    [
        ("accept", "text/html"),
        ("Content-type", "text/plain"),
        ("mcp-session-id", "x"),
        ("MCP-Protocol-Version", "x"),
        ("Mcp-Param-x", "x"),
        ("Transfer-Encoding", "chunked"),
        ("x-name", "\u20ac s3cret"),
    ],
)
@parametrize("is_function", [False, True])
def test_a_header_that_cannot_be_sent_is_named(name, value, is_function):
    given = {name: value}
    with answering(plain) as site:
        with pytest.raises(ValueError, match=name) as caught:
            headers = (lambda verb, url: given) if is_function else given
            client.connect(site.url, headers=headers)
    assert "s3cret" not in str(caught.value) and site.asked == []


def test_a_url_may_have_spaces_around_it_and_letters_of_any_kind():
    with answering(plain) as site:
        client.connect(f" {site.url}/m\u00fcll x?q=\u20ac&a=%20 \n").close()
        assert site.asked[0][1][":path"] == "/mcp/m%C3%BCll%20x?q=%E2%82%AC&a=%20"


PASSWORD = "Basic YW5uOnM6Yw=="  # ann, s:c


def guarded(verb: str, headers: dict, method: str, text: str):
    is_known = headers.get("proxy-authorization") == PASSWORD
    yield well(text) if is_known else http_answer(407, {}, "no")


@parametrize("password", ["ann:s%3Ac@", "", "bob:s3cret@"])
def test_a_proxy_gets_its_password(password):
    with answering(guarded) as proxy:
        place = proxy.url.replace("//", f"//{password}").replace("/mcp", "")
        if password.startswith("ann"):
            with client.connect("http://example.invalid/mcp", proxy=place) as one:
                assert one.list_prompts() == []
        else:
            how = "proxy 127.0.0.1" + ("" if password else ", without a password")
            with pytest.raises(mcp.HttpError, match=how) as caught:
                client.connect("http://example.invalid/mcp", proxy=place)
            assert "s3cret" not in str(caught.value)
        assert "authorization" not in proxy.asked[0][1]


def test_a_tunnel_gets_the_password_and_the_server_behind_it_does_not():
    def answer(verb: str, headers: dict, message: dict):
        yield http_answer(200, JSON, "")

    with contextlib.closing(Site(answer)) as proxy:
        place = proxy.url.replace("//", "//ann:s%3Ac@").replace("/mcp", "")
        with pytest.raises(client.Disconnected):  # what follows is not TLS
            client.connect("https://example.invalid/mcp", proxy=place)
    verb, headers, _ = proxy.asked[0]
    assert verb == "CONNECT" and headers["proxy-authorization"] == PASSWORD


def test_a_socks_proxy_is_refused_by_name():
    with pytest.raises(client.Disconnected, match="SOCKS is not supported.*socks5://h"):
        client.connect("http://localhost:1/mcp", proxy="socks5://me:s3cret@h:1")


# ---- answers in unusual places


@parametrize("junk", ["ping", "[DONE]", '{"type": "heartbeat"}', "{}", "null", "{"])
def test_text_that_is_not_a_message_costs_only_itself(junk):
    """In the stream of a call, and in that of a session."""
    heard: queue.Queue = queue.Queue()

    def answer(verb: str, headers: dict, method: str, text: str):
        note = '{"jsonrpc": "2.0", "method": "notifications/x"}'
        data = f"data: {junk}\n\ndata: {note if verb == 'GET' else text}\n\n"
        if verb == "DELETE" or not (text or verb == "GET"):
            yield http_answer(202, JSON)
        else:
            yield STREAM + data.encode()

    with answering(answer) as site:
        options = {"on_notification": heard.put, "stderr": lambda line: None}
        with client.connect(site.url, revision=NEWEST_LEGACY, **options) as one:
            assert heard.get(timeout=PATIENCE)["method"] == "notifications/x"
            assert one.list_prompts() == []


@parametrize("ident", ["{}", '"{}"'])
@parametrize("has_stream", [True, False])
def test_an_answer_on_the_stream_of_the_session_is_taken(ident, has_stream):
    """... after status 202, and with an id that has become a text."""
    answers: queue.Queue = queue.Queue()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "GET" and has_stream:
            yield STREAM + f"data: {answers.get(timeout=PATIENCE)}\n\n".encode()
        elif verb != "POST":
            yield http_answer(405, {})
        elif method == "tools/list":
            message = json.loads(text)
            message["id"] = json.loads(ident.format(message["id"]))
            answers.put(json.dumps(message))
            yield http_answer(202, JSON)
        else:
            yield well(text)

    said: list[str] = []
    options = {"revision": NEWEST_LEGACY, "stderr": said.append}
    with answering(answer) as site:
        with client.connect(site.url, **options) as one:
            if has_stream:
                assert one.list_tools() == []
            else:
                with pytest.raises(mcp.HttpError, match="405"):
                    one.list_tools()
    assert "202" in said[0] and len(said) == (2 if has_stream and '"' in ident else 1)


def test_http_sse_is_used_at_once_if_it_is_said():
    with http_serving(fixture(Stage())) as httpd:
        url = httpd.url.replace("mcp", "sse")
        with client.connect(url, sse=True, timeout=PATIENCE) as one:
            assert one.call_tool("add", {"a": 1, "b": 2})
    with answering(lambda *_: [http_answer(405, {}, "no")]) as site:
        with pytest.raises(mcp.HttpError, match="405"):
            client.connect(site.url, sse=True)
        assert [verb for verb, _, _ in site.asked] == ["GET"]


@parametrize("word", ["oneOf", "anyOf", "enum"])
@parametrize("more", [{"title": "x"}, {"type": "integer"}])
def test_a_form_with_many_choices_is_checked_fast(word, more):
    choices = [{"const": n, **more} for n in range(1500)]
    if word == "enum":
        choices = list(range(1500))
    field = {"type": "array", "items": {word: choices}, "default": [1499] * 10_000}
    form = {"type": "object", "properties": {"f": field}}
    question = {"params": {"message": "?", "requestedSchema": form}}
    question["method"] = "elicitation/create"
    with client.connect(fixture(Stage()), elicit=lambda params: {}) as one:
        began = time.process_time()
        assert one.answer(question)["action"] == "accept"
        assert time.process_time() - began < 4  # it was more


class Refused(mcp.HttpError):
    code = "access_denied"


@parametrize("status", [400, 401, 403, 500, 503])
def test_a_refused_login_is_tried_once(status):
    """... whatever its status, which may be that of another server."""
    asked = []

    def authorize(refusal):
        asked.append(refusal)
        raise Refused(status, "the user said no")

    with answering(lambda *_: [http_answer(401, {})]) as site:
        with pytest.raises(Refused, match="^the user said no$"):
            client.connect(site.url, authorize=authorize)
    assert len(asked) == len(site.asked) == 1
