r"""Tests of mcp_ref.py. Most are scripts: text that shows a conversation, line by line.

    == add adds | on: 2025-06-18.. pipe
    > 1 tools/call {"name": "add", "arguments": {"a": 1, "b": 2}}
    < 1 {"content": [{"text": "3"}]}

`>` is what the client sends, `<` what the server sends. A script with `client` in its head tests
the client, and the runner plays the server; any other tests a server, and the runner plays the
client. It runs as one test in each revision over each carrier: memory; pipe (a process on stdio);
http (loopback, for the client: what a server does over HTTP is shown by examples/vectors). The
runner adds the handshake, `_meta` and HTTP headers; in every test a referee checks every message:
one response per request, none after a cancellation, valid members.

The head: `==`, the title, then any of these, each after a `|`:
    on: WORDS         in which of these revisions (*, modern, legacy, a date, A.., ..B, A..B) over
        which of these carriers; !WORD: not in it; !http-DATE: not this pair; the default is all. A
        script with `>>` runs over memory only if `on:` names it
    server: NAME      a function that makes a server for a Stage; the default is `fixture`
    client            test the client; connect: {"timeout": 1, "elicit": {"x": 1}} are its options
        (here the callbacks elicit, sample and visit are what they return)
    declare: {...}    the capabilities that the runner declares
    bare              no handshake and no `_meta`
    limits: {"MAX_BATCH": 3}    constants of the modules, in capitals, for this script
    endpoint: {"cors": true}    options of the HTTP endpoint; keys: X-Key must be `ann` or `bob`
    line: exchanges   its lines are single HTTP exchanges: the class Exchanges explains them
Messages, in either direction:
    > 1 tools/list {"cursor": "x"}      a request; an id is JSON: 1, "1", -5
    > - notifications/cancelled {...}   a notification
    < 1 {"tools": []}                   the result of request 1
    < 1 error {INVALID_PARAMS} uri {"x": 1}      an error: code, a word of the message, data
    < ? error {PARSE_ERROR}             an error whose id is null or absent, as the revision says
    < #q elicitation/create {...}       a request of the server; q is a label for its id
    > #q {"action": "accept"}           the response to it (a result, or error ...)
    > [{...}, {...}]                    a batch
    >> {"id": 1                         bytes; \xff is a byte
Short forms:
    tools/list {...} => {"tools": []}   request 1 and its answer (or `error ...`): `> 1` and `< 1`
    :add {"a": 1} => "3"                a call of the tool `add`, whose result is that text
    :roots ? q roots/list {} -> {"roots": []} => {}      before its answer the server asks: legacy,
        `< #q` and `> #q`; modern, an input request and a retry (q is then the tool's `key=`, as in
        `server: core`)
In a script for the client the ids are labels for those that the client chose, and may be left out:
a line then answers the last request: `> tools/list`, `< {"tools": []}`. There, `<<` are bytes, and
over HTTP `<< 404 {"Allow": "GET"} x` is a whole response: status, headers and body.
A message may have members that its line does not name. In what is expected, null means absent, "*"
anything, and "..." that the rest of a list does not matter. Over memory and pipes messages come in
the order of the lines. At the end nothing may be left that no line expects.
Other lines (one that starts with four spaces continues the line before; # starts a comment):
    [http modern] < 1 {...}             this line only there (words as in `on:`)
    handshake 2025-06-18                again, with this revision
    wait NAME / open NAME / once NAME   wait until NAME is reported (`slow` reports its gate, then
        `GATE passed`) / open the gate / it was reported once
    changed WHAT                        server.changed(WHAT); like `open`, it may overtake messages
        on a pipe: a `quiet` before it prevents that
    quiet                               the server has sent nothing since
    eof                                 no more input on stdio; at the end the status must be 0
    call NAME 1 {"a": 2} timeout=0.5    start client.NAME(1, {"a": 2}, timeout=0.5), or `connect`
    returns {...} / raises NAME word    the outcome of the first call that is not settled; NAME is
        a class, `word` a part of the code, message and data
    exit TEXT                           the played server's process writes it to stderr, and exits
{VERSION} is the revision, {META} the prefix of reserved keys, {STATE} and {CURSOR} the last request
state and cursor, {ID} and {ID:label} the JSON of an id, {NO} a declined elicitation, and the name
of an error in mcp_ref.ERRORS, as in {INVALID_PARAMS}, its code.
Write `test_this = scripts(r'''...''', "on: modern")`; each head gets the second text, too. In
Python, `with talk("2025-06-18", "pipe", server="fixture") as t: t("> 1 ping")` plays lines.
MCP_REF, MCP_CLIENT: the files under test; MCP_PATIENCE: seconds to wait before a test fails.
"""
from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import dataclasses
import enum
import fnmatch
import functools
import hashlib
import http.client
import importlib.util
import inspect
import io
import itertools
import json
import multiprocessing.connection
import operator
import os
import queue
import random
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tokenize
import typing
import zipfile
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union
from unittest import mock
from urllib.parse import parse_qsl, urlencode

import pytest

# ---- what is tested

HERE = Path(__file__).resolve().parent
PATIENCE = float(os.environ.get("MCP_PATIENCE", "10"))
POSIX, OTHER = os.name == "posix", "Windows has other signals, descriptors and shells"
COVERAGE = {name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")}
parametrize = pytest.mark.parametrize
needs_posix = pytest.mark.skipif(not POSIX, reason=OTHER)
MCP_REF = Path(os.environ.get("MCP_REF", HERE / "mcp_ref.py")).resolve()
MCP_CLIENT = Path(os.environ.get("MCP_CLIENT", HERE / "examples" / "mcp_client.py")).resolve()


def load(name: str, path: Path):
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mcp = load("mcp_ref", MCP_REF)
client = load("mcp_client", MCP_CLIENT)
Context = mcp.Context
ORDER = list(mcp.REVISIONS)  # newest first
LEGACY = mcp.versions("legacy")
MODERN = mcp.versions("modern")
CARRIERS = ["memory", "pipe", "http"]
META = "io.modelcontextprotocol/"
EVERYTHING = HERE / ".ci" / "everything_server.py"
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
CODES = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row.name).upper().replace("URLE", "URL_E"): code
         for code, row in mcp.ERRORS.items()}
MIRRORED = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}
STATUS = {-32700: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


# A function of on_cancel() that raises is reported where an author would look.
pytestmark = pytest.mark.filterwarnings("ignore:Exception in thread mcp-cancel")


@contextlib.contextmanager
def limits(**values):
    """Set limits (never a function or a class) in the modules, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            modules = [one for one in (mcp, client) if hasattr(one, name)]
            assert name.isupper() and modules, f"{name} is not a limit"
            for module in modules:
                patch.setattr(module, name, value)
        yield


def within(version: str, first: str, last: str) -> bool:
    """Tell whether a revision is one of those from the first to the last; "" is no bound."""
    return ORDER.index(last or ORDER[0]) <= ORDER.index(version) <= ORDER.index(first or ORDER[-1])


def exists(row, version: str) -> bool:
    """Tell whether a revision has what a row of the tables describes."""
    return within(version, row.since, row.until)


def begin(function, *arguments, **named):
    """Call a function on a thread of its own; return the Future of its outcome."""
    def run():
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as problem:  # noqa: BLE001
            # Without this frame, which knows the future: a cycle would keep sockets open.
            future.set_exception(problem.with_traceback(problem.__traceback__.tb_next))
    future = Future()
    threading.Thread(target=run, daemon=True).start()
    return future


# ---- the server that most scripts talk to

PNG = b"\x89PNG fake"


class Stage:
    """The gates of a server: a tool stops at one until the script opens it."""
    def __init__(self, report=lambda *words: None):
        self.report = report
        self.gates: dict[str, threading.Event] = {}

    def stop(self, name: str, ctx=None):
        """Report that the gate is reached; wait until it is opened, or `ctx` cancelled."""
        gate = self.gates.setdefault(name, threading.Event())
        if ctx is not None:
            ctx.on_cancel(gate.set)
        self.report(name)
        gate.wait(3 * PATIENCE)

    def act(self, server, verb: str, word: str):
        if verb == "open":
            self.gates.setdefault(word, threading.Event()).set()
        elif verb == "changed":
            server.changed(word)
        else:
            raise ValueError(f"unknown verb {verb}")


def empty(stage: Stage):
    return mcp.Server("empty")


def fixture(stage: Stage, **options):
    """Make a server with some of everything."""
    server = mcp.Server("test", "1.2", "Use it gently.", title="Test",
                        websiteUrl="https://example.org", **options)
    fixture_tools(server, stage)
    fixture_resources(server)
    fixture_more_tools(server, stage)
    part = {name: {"type": kind, "x-mcp-header": name} for name, kind in (
        ("region", ["string", "null"]), ("n", "integer"), ("on", "boolean"), ("deep", "string"))}
    inner = {"type": "object", "properties": {"deep": part.pop("deep")}}
    server.tool(name="place", input_schema={"type": "object", "properties": {
        **part, "inner": inner, "x": True}})(lambda **given: "placed")
    @server.method("example.org/verb", extension="example.org/ext", settings={"level": 3})
    def verb(ctx: Context, params: dict) -> dict:
        got = params["x"] if "x" in params else ctx.elicit("?", x=int)
        return {"got": got, "version": ctx.version}
    return server


def fixture_tools(server, stage: Stage):
    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b
    @server.tool(title="Echo!", annotations={"readOnlyHint": True}, _meta={"k": 1},
                 icons=[{"src": "https://example.org/i.png"}])
    def echo(text: str) -> str:
        return text
    @server.tool
    def fail(how: str) -> str:
        raise {"value": ValueError("told you"), "silent": KeyError(), "missing": mcp.NotFound(),
               "own": mcp.RpcError(7, "seven", [7]), "reserved": mcp.RpcError(-32000, "not ours"),
               "old": mcp.RpcError(CODES["RESOURCE_NOT_FOUND"], "gone"),
               "unsent": mcp.RpcError(7, "its data is not JSON", ...)}[how]
    @server.tool
    def slow(gate: str, ctx: Context) -> str:
        """Report progress, wait at the gate, and report more: not to be sent if cancelled."""
        ctx.progress(1)
        stage.stop(gate, ctx)
        ctx.progress(99)
        stage.report(gate + " passed")
        return "cancelled" if ctx.cancelled else "held"
    @server.tool
    def steps(ctx: Context) -> str:
        for value in (0, 1, 1, 0.5, 2.5):  # what does not grow is not sent
            ctx.progress(value, 3, f"at {value:g}")
        return "done"
    @server.tool
    def talk(ctx: Context) -> str:
        for level in mcp.LOG_LEVELS:
            ctx.log(level, {"says": level}, "talker")
        return "said"
    @server.tool
    def ask(ctx: Context) -> str:
        """Elicit a branch; `except Exception` must not catch the unwinding."""
        try:
            return json.dumps(ctx.elicit("Which branch?", branch=str), sort_keys=True)
        except Exception as problem:  # noqa: BLE001
            return f"failed: {type(problem).__name__}"


def fixture_more_tools(server, stage: Stage):
    """Add tools for notifications, streams and coroutines."""
    @server.tool
    def tell(method: str, ctx: Context) -> str:
        ctx.notify(method, {"x": 1})
        return ctx.version
    @server.tool
    def later(ctx: Context, gates: str = "") -> str:
        for gate in gates or [""]:
            ctx.close_stream()  # hang up, and go on
            if gate:
                stage.stop(gate)
        ctx.notify("notifications/later", {})
        return "later"
    @server.tool
    def quits(ctx: Context) -> str:
        ctx.cancel()
        raise KeyboardInterrupt  # not logged
    @server.tool
    def stops(ctx: Context) -> str:
        def told():
            stage.stop("told")
            stage.report("told passed")
        for function in (sys.exit, lambda: 1 / 0, told):
            ctx.on_cancel(function)
        stage.stop("stops")
        ctx.on_cancel(lambda: stage.report("late"))
    loops = []
    @server.tool
    async def coroutine(ctx: Context, what: str = "") -> str:
        if what == "waits":
            stage.report("waits")
            try:
                await asyncio.Event().wait()
            finally:
                stage.report("unwound")
        if what == "asks":
            return (await asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int))["action"]
        if what == "asks in a group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int))
        if what == "asks at once":
            return ctx.elicit("Which?", x=int)["action"]
        loops.append(asyncio.get_running_loop())  # a session would belong to the first one
        return f"{len(set(loops))} {threading.current_thread().name}"


def fixture_resources(server):
    server.resource("test://text", name="a_text", title="Text", mime_type="text/plain", size=5,
                    annotations={"audience": ["user"], "lastModified": "2025-01-01T00:00:00Z"}
                    )(lambda: "hello")
    server.resource("test://fails", name="fails")(lambda: 1 / 0)
    @server.resource("test://item/{number}/{part}")
    def item(number: int, part: str) -> str:
        if number == 0:
            raise mcp.NotFound()
        return f"{part!r} of {number!r}"
    server.resource("file:///{+path}", name="a_file", mime_type="text/plain")(
        lambda path: "file " + path)
    @server.prompt(title="Greeting")
    def greet(name: str, times: int = 1) -> str:
        """Greet someone."""
        return f"Hello, {name}!" * times
    server.completion("greet", "name")(
        lambda typed: [name for name in ("ada", "alan", "grace") if name.startswith(typed)])


# ---- reading scripts

def rows_of(text: str) -> list[str]:
    """Return the lines of a text, without comments, each with those that continue it."""
    rows = re.sub("\n    +", " ", textwrap.dedent(text)).split("\n")
    return [line for row in rows if row.strip() and not row.startswith("# ")
            for line in exchange_of(row.rstrip())]


def exchange_of(row: str) -> list[str]:
    """Return the lines that `[ON] REQUEST ? KEY QUESTION -> REPLY => ANSWER` stands for."""
    row = re.sub(r"(?<!\S):(\w+)(?: (\{.*?\}))?(?= (?:\?|=>|->)|$)", lambda call: "tools/call "
                 f'{{"name": "{call[1]}", "arguments": {call[2] or "{}"}}}', row)
    start, arrow, answer = row.rpartition(" => ")
    if not arrow:
        return [row]
    on, request = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", start).groups("*")
    request, *questions = request.split(" ? ")
    lines = [f"[{on}] > 1 {request}"]
    for question in questions:
        key, name, params, reply = re.fullmatch(r"(\S+) (\S+) (.*) -> (.*)", question).groups()
        asked = f'{{"{key}": {{"method": "{name}", "params": {params}}}}}'
        retry = f'{request[:-1]}, "requestState": "{{STATE}}", "inputResponses": '
        lines += [f"[{on} !modern] < #{key} {name} {params}",
                  f"[{on} !modern] > #{key} {reply}",
                  f'[{on} !legacy] < 1 {{"inputRequests": {asked}}}',
                  f'[{on} !legacy] > 1 {retry}{{"{key}": {reply}}}}}']
    text = f'{{"content": [{{"text": {answer}}}]}}'
    return [*lines, f"[{on}] < 1 {text if answer[0] == chr(34) else answer}"]


ON = re.compile(r"!?(\*|modern|legacy|memory|pipe|http|(http-)?(@)|(@)?\.\.(@)?)".replace(
    "@", "|".join(ORDER)))
OPTIONS = {"on", "server", "client", "connect", "declare", "bare", "limits", "endpoint", "keys",
           "line"}


def meant(word: str, version: str, carrier: str) -> bool:
    """Tell whether a word of `on:` means this revision, or this carrier."""
    first, dots, last = word.partition("..")
    return within(version, first, last) if dots else word in (
        "*", version, mcp.REVISIONS[version].era, carrier, f"{carrier}-{version}")


def select(words: str, carriers=CARRIERS) -> list[tuple[str, str]]:
    """Return the pairs of revision and carrier that the words of `on:` name."""
    unknown = [word for word in words.split() if not ON.fullmatch(word)]
    assert not unknown, f"unknown words in `on:`: {unknown}"
    on = [word for word in words.split() if word in CARRIERS] or carriers
    nots = [word[1:] for word in words.split() if word[0] == "!"]
    dates = [word for word in words.split() if word not in CARRIERS and word[0] != "!"] or ["*"]
    return [(version, carrier) for version in MODERN + LEGACY for carrier in on
            if (POSIX or carrier != "pipe")
            and any(meant(word, version, carrier) for word in dates)
            and not any(meant(word, version, carrier) for word in nots)]


def scripts(text: str, common: str = ""):
    """Make a test function of a text of scripts, whose heads have `common` options."""
    cases = []
    for script in re.split("(?m)^== ", "\n".join(rows_of(text)))[1:]:
        head, *rows = script.strip().split("\n")
        title, *options = re.split(r" *\| *", f"{head} | {common}".rstrip(" |"))
        given = {name: value_of(value.strip())
                 for name, _, value in (option.partition(":") for option in reversed(options))}
        assert set(given) <= OPTIONS, f"unknown option in {head}"
        raw = any(">> " in row[:30] for row in rows)
        carriers = CARRIERS[raw:3 if "client" in given else 2]
        for pair in select(given.get("on", "*"), carriers):
            cases.append(pytest.param(*pair, given, rows, id="-".join([title, *pair])))
    @parametrize("version, carrier, head, rows", cases)
    def test(version, carrier, head, rows):
        __tracebackhide__ = True  # by pytest: the line that fails says it all
        with talk(version, carrier, **head) as conversation:
            for row in rows:
                conversation.play(row)
    return test


def each(template: str, rows: str) -> str:
    """Return a script for each line of `rows`, of which @1 is the first column."""
    found = ""
    for line in rows.replace("\n    ", " ").strip("\n").splitlines():
        row = [part.strip() for part in line.split(" | ")]
        found += re.sub(r"@(\d)", lambda match, row=row: row[int(match[1]) - 1], template)
    return found


def value_of(text):
    """Return the value that a text is the JSON of, or else the text itself."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


MESSAGE = re.compile(r"""
    (?: (?P<label> [?-] | \#\w+ | -?\d+ | "[^"]*" ) [ ]+ )?
    (?: error [ ] (?P<code> -?\d+ ) [ ]? (?P<word> [^{[]*? ) [ ]? (?P<data> [{[].* )?
      | (?P<method> (?!null) [a-z$][^ ]* ) [ ]? (?P<params> \{.* )?
      | (?P<result> .+ ) )""", re.VERBOSE | re.DOTALL)


def message_of(text: str) -> tuple[str, Any]:
    """Read a line: return the label, and the message, or what is named of it."""
    if text.startswith("["):
        return "", json.loads(text)
    found = MESSAGE.fullmatch(text).groupdict()
    message = {name: json.loads(found[name]) for name in ("params", "result") if found[name]}
    if found["method"]:
        message["method"] = found["method"]
    if found["code"]:
        message["error"] = {"code": int(found["code"]), "message": found["word"]}
        message["error"].update({"data": json.loads(found["data"])} if found["data"] else {})
    return found["label"] or "", message


ABSENT = "(nothing)"


def differences(wanted, came, place: str = "/") -> list[str]:
    """List where `came` lacks what is wanted."""
    if wanted is None and came in (None, ABSENT) or wanted == "*" and came != ABSENT:
        return []
    if isinstance(wanted, list) and isinstance(came, list):
        if wanted[-1:] == ["..."]:
            wanted, came = wanted[:-1], came[:len(wanted) - 1]
        pairs = enumerate(itertools.zip_longest(wanted, came, fillvalue=ABSENT))
    elif isinstance(wanted, dict) and isinstance(came, dict):
        pairs = ((key, (wanted[key], came.get(key, ABSENT))) for key in wanted)
    else:
        same = wanted == came and type(wanted) is type(came)
        return [] if same else [f"{place}: expected {wanted!r:.300}, came {came!r:.600}"]
    return [line for key, pair in pairs for line in differences(*pair, f"{place}{key}/")]


# ---- what must hold of every message

LISTED = {"tools": "tool", "resources": "resource", "prompts": "prompt",
          "resourceTemplates": "template", "content": "*"}


def params_of(message) -> tuple[dict, dict, Any]:
    """Return the params of whatever came, their `_meta`, and the revision that is named there."""
    params = message.get("params") if isinstance(message, dict) else None
    params = params if isinstance(params, dict) else {}
    meta = params["_meta"] if isinstance(params.get("_meta"), dict) else {}
    return params, meta, meta.get(META + "protocolVersion")


class Referee:
    """Watches both directions of a conversation; its keys are `>` or `<` and the JSON of an id."""
    def __init__(self, version: str):
        self.version = version              # of the session, "" as long as there is none
        self.open: dict[str, list] = {}     # requests under way: method, and whether it is modern
        self.seen: set[str] = set()         # requests of the side under test

    def note(self, message, arrow: str):
        """Keep in mind requests until they are answered or cancelled."""
        batches = exists(mcp.FEATURES["batches"], self.version or MODERN[0])
        for one in message if isinstance(message, list) and batches else [message]:
            if not isinstance(one, dict) or {"result", "error"} & set(one):
                continue
            params, _, version = params_of(one)
            if one.get("method") == "notifications/cancelled":
                self.open.pop(arrow + json.dumps(params.get("requestId")), None)
            elif mcp.is_id(one.get("id")):
                asked = self.open.setdefault(arrow + json.dumps(one["id"]), [])
                asked.append((one.get("method"), version is not None))

    def check(self, message, arrow: str):
        """Check what the side under test sends."""
        for one in message if isinstance(message, list) else [message]:
            assert isinstance(one, dict) and one.get("jsonrpc") == "2.0", one
            if "method" not in one:
                self.response(one, "<" if arrow == ">" else ">")
                continue
            params, meta, modern = params_of(one)
            version = modern or self.version
            row = (mcp.METHODS if "id" in one else mcp.NOTIFICATIONS).get(one["method"])
            assert set(one) <= {"jsonrpc", "id", "method", "params"}, one
            assert params == one.get("params", {}), "params must be an object"
            assert not row or arrow in row.way and (not version or exists(row, version)), row
            if "id" in one:
                key = arrow + json.dumps(one["id"])
                assert mcp.is_id(one["id"]) and key not in self.seen, "an id was used twice"
                assert arrow == ">" or not modern and self.version in LEGACY, "must not ask"
                assert not modern or isinstance(meta.get(META + "clientCapabilities"), dict)
                self.seen.add(key)
            self.note(one, arrow)

    def response(self, message: dict, asker: str):
        assert ("result" in message) != ("error" in message), message
        if "error" in message:
            error, row = message["error"], mcp.ERRORS.get(message["error"]["code"])
            assert type(error["code"]) is int and isinstance(error["message"], str), error
            assert set(error) <= {"code", "message", "data"}, error
            assert row or not -32768 <= error["code"] <= -32000, "a reserved code"
            assert not row or not self.version or exists(row, self.version), "not this revision's"
        if message.get("id") is None:
            null = exists(mcp.FEATURES["null id in errors"], self.version or MODERN[0])
            assert "error" in message and ("id" in message) is null, "null, or absent since then"
            return
        key = asker + json.dumps(message["id"])
        assert self.open.get(key), "a response that nobody waits for, or to a cancelled request"
        method, modern = self.open[key].pop()
        if "result" in message and asker == ">":
            self.result(method, modern, message["result"])

    def result(self, method: str, modern: bool, result: dict):
        """Check the result of a server: its members are those of the revision."""
        row, kind = mcp.METHODS.get(method), result.get("resultType")
        hints = len({"ttlMs", "cacheScope"} & set(result))
        assert (kind is not None) == modern, "resultType is of the modern era"
        assert not row or hints == 2 * (row.cacheable and kind == "complete"), "caching hints"
        if kind == "input_required":
            asked = result["inputRequests"].values()
            assert not row or row.asks, "may not ask"
            assert all("<" in mcp.METHODS[one["method"]].way and "id" not in one for one in asked)
        if modern:
            assert isinstance(result["_meta"][META + "serverInfo"]["name"], str), result
        elif method == "initialize":
            self.version = result["protocolVersion"]
        version = MODERN[0] if modern else self.version
        hidden = {name for row in mcp.FEATURES.values() if version and not exists(row, version)
                  for name in row.fields.split()}
        shown = {f"{kind}.{key}" for member, of in LISTED.items() for item in result.get(member, [])
                 for key in item for kind in (of, "*")} | {"result." + key for key in result}
        assert not shown & hidden, (result, shown & hidden)


# ---- playing scripts: a Talk sends what one side says, and expects what the other one should say

GREETING = """
[legacy] initialize {"protocolVersion": "{VERSION}", "capabilities": {DECLARED},
    "clientInfo": {"name": "runner", "version": "1"}} => {"protocolVersion": "{VERSION}"}
[legacy] > - notifications/initialized
"""
PLAYED_GREETING = """
call connect
[modern] server/discover => {"supportedVersions": ["{VERSION}"], "capabilities": {DECLARED}}
[legacy] server/discover => error {METHOD_NOT_FOUND}
[legacy] initialize => {"protocolVersion": "{VERSION}", "capabilities": {DECLARED}}
[legacy] > - notifications/initialized
returns {}
"""
OFFERS = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "logging": {},
          "resources": {"listChanged": True, "subscribe": True}, "completions": {}}


class Talk:
    """One conversation; calling it with a text plays the lines."""
    def __init__(self, version: str, carrier: str, options: dict, stack):
        self.version, self.carrier, self.options, self.stack = version, carrier, options, stack
        self.played, self.bare = "client" in options, "bare" in options
        self.ours, self.theirs = "<>" if self.played else "><"
        self.referee = Referee("" if self.bare and not self.played else version)
        self.changed = threading.Condition()
        self.came = []                              # messages that no line has expected yet
        self.reached: list[str] = []                # what was reported
        self.problems: list[BaseException] = []
        self.calls = []
        self.names = {**{name: str(code) for name, code in CODES.items()}, "META": META,
                      "VERSION": version, "NO": '{"action": "decline"}', "DECLARED": json.dumps(
                          options.get("declare", OFFERS if self.played else {}))}
        self.verbs = {
            self.ours: self.send, self.theirs: self.expect, self.ours * 2: self.send_raw,
            "handshake": self.handshake, "call": self.call, "quiet": self.quiet,
            "returns": self.returns, "raises": self.raises,
            "wait": lambda name: self.until(lambda: name in self.reached, f"the gate {name}"),
            "once": self.once}
        self.line = WIRES[options.get("line", carrier)][self.played](self)

    def __call__(self, text: str):
        for row in rows_of(text):
            self.play(row)

    def play(self, row: str):
        """Play one line; show it if it fails."""
        __tracebackhide__ = True
        try:
            words, line = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", row).groups("")
            if (self.version, self.carrier) in select(words):
                verb, _, rest = re.sub(r"\{(\w+(:[^}]+)?)\}", self.named, line).partition(" ")
                act = self.verbs.get(verb) or functools.partial(self.line.act, verb)
                act(rest.strip())
        except Exception as problem:  # noqa: BLE001
            said = str(problem).partition("\nassert ")[0]  # the rest is about the runner
            raise AssertionError(f"{self.version} over {self.carrier}:\n    {row:.500}\n"
                                 f"{type(problem).__name__}: {said}") from None

    def named(self, name) -> str:
        """Return what {NAME} stands for; other braces stay."""
        assert name[1] in self.names or not name[1].isupper(), f"unknown name {name[0]}"
        return self.names.get(name[1], name[0])

    # ---- what comes, on other threads, and waiting for it

    def put(self, message):
        """Take a message, or a line with one, of the side under test."""
        with self.changed:
            try:
                if isinstance(message, bytes):
                    assert message.endswith(b"\n") and message.isascii(), "not one line of ASCII"
                    message = json.loads(message)
                self.referee.check(message, self.theirs)
            except Exception as problem:  # noqa: BLE001
                self.report(problem=AssertionError(
                    f"{message!r:.500}: {type(problem).__name__}: {problem}"))
            self.came.append(message)
            self.report()

    def report(self, name: str = "", problem=None):
        with self.changed:
            self.reached.append(name)
            self.problems.extend([problem] if problem else [])
            self.changed.notify_all()

    def until(self, test, what: str):
        """Wait until `test` returns something true, and return it."""
        with self.changed:
            found = self.changed.wait_for(lambda: self.problems or test(), PATIENCE)
            if self.problems:
                raise self.problems[0]
            assert found, f"{what} did not come in {PATIENCE:g} s; unread: {self.came!r:.1000}"
            return found

    # ---- messages

    def ident(self, label: str):
        """Return the id that a label stands for; without a label, that of the last request."""
        return value_of(self.names.get(f"ID:{label}" if label else "ID", label.lstrip("#")))

    def name(self, label: str, message: dict):
        """Keep the id of a request under its label."""
        if isinstance(message, dict) and {"id", "method"} <= set(message):
            self.names["ID"] = self.names[f"ID:{label}"] = json.dumps(message["id"])

    def send(self, text: str):
        label, message = message_of(text)
        if isinstance(message, dict):
            ident = {} if label == "-" else {"id": self.ident(label)}
            message = {"jsonrpc": "2.0", **ident, **message}
            self.complete(message)
            self.name(label, message)
        self.referee.note(message, self.ours)
        self.line.send(json.dumps(message).encode(), message)

    def complete(self, message: dict):
        """Add what the modern era requires of each request and each result."""
        asked = self.referee.open.get(">" + json.dumps(message.get("id")))
        modern = self.version in MODERN and not (self.played or self.bare)
        if modern and {"id", "method"} <= set(message):
            params = message.setdefault("params", {})
            params["_meta"] = {
                META + "protocolVersion": self.version,
                META + "clientCapabilities": json.loads(self.names["DECLARED"]),
                META + "clientInfo": {"name": "runner", "version": "1"}, **params.get("_meta", {})}
        elif self.played and asked and asked[-1][1] and isinstance(message.get("result"), dict):
            message["result"] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                                 **message["result"]}

    def send_raw(self, text: str):
        """Send bytes; if they are a message the referee takes note."""
        data = re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
        message = value_of(data)
        self.referee.note(message, self.ours)
        self.line.send(data, message)

    def expect(self, text: str):
        label, wanted = message_of(text)
        head, keyword = ["..."], ""
        if isinstance(wanted, dict):
            ident = "*" if "method" in wanted else self.ident(label)
            wanted = {"id": None if label in ("-", "?") else ident, "method": None, **wanted}
            head = {key: wanted[key] for key in ("id", "method")}
            keyword = wanted.get("error", {}).pop("message", "").lower()
        came = self.until(lambda: [one for one in self.came if self.carrier != "http"
                                   or not differences(head, one)], text)[0]
        self.came.remove(came)
        for name, key in (("STATE", "requestState"), ("CURSOR", "nextCursor")):
            for value in re.findall(rf'"{key}": "(.*?)"', json.dumps(came)):
                self.names[name] = value
        flaws = differences(wanted, {"params": {}, **came} if isinstance(came, dict) else came)
        flaws += [] if keyword in json.dumps(came).lower() else [f"no {keyword!r} in it"]
        assert not flaws, "\n".join([*flaws, f"in {json.dumps(came)[:2000]}"])
        self.name(label, came)

    # ---- other verbs

    def handshake(self, version: str = ""):
        """Open a session, if it is that era; as a client, or as the server of one."""
        self.version = self.referee.version = self.names["VERSION"] = version or self.version
        self(PLAYED_GREETING if self.played else GREETING)

    def call(self, text: str):
        """Start a call of the client on a thread."""
        name, *words = re.findall(r"""[{["].*?[]}"](?= |$)|\S+""", text)
        named = dict(word.split("=") for word in words if re.match(r"\w+=", word))
        words = [value_of(word) for word in words if not re.match(r"\w+=", word)]
        function = self.connect if name == "connect" else getattr(self.client, name)
        self.calls.append(begin(function, *words, **{k: value_of(v) for k, v in named.items()}))
        self.calls[-1].add_done_callback(lambda _: self.report())

    def connect(self, more=()):
        options = {**self.options.get("connect", {}), **dict(more)}
        for key in {"elicit", "sample", "visit"} & set(options):  # what those return
            options[key] = functools.partial(lambda value, *_: value, options[key])
        self.client = self.stack.enter_context(client.connect(self.line.target, **options))
        return self.client

    def outcome(self):
        """Return the result, or the exception, of the first call that is not settled."""
        self.until(self.calls[0].done, "the end of the call")
        call = self.calls.pop(0)
        return call.exception() or call.result()

    def returns(self, text: str):
        value = self.outcome()
        assert not isinstance(value, BaseException), repr(value)
        flaws = differences(json.loads(text), getattr(value, "__dict__", value))
        assert not flaws, "\n".join(flaws)

    def raises(self, text: str):
        value = self.outcome()
        name, _, word = text.partition(" ")
        said = f"{getattr(value, 'code', '')} {value} {getattr(value, 'data', '')}".lower()
        assert name in [kind.__name__ for kind in type(value).__mro__], f"instead: {value!r}"
        assert word.lower() in said, f"no {word!r} in {said}"

    def quiet(self, text: str):
        """Let a request and its response pass: nothing else may have come."""
        self.send('"quiet" ' + ("server/discover" if self.version in MODERN else "ping"))
        self.expect('"quiet" {}')
        assert not self.came, self.came

    def once(self, name: str):
        assert self.reached.count(name) == 1, self.reached

    def finish(self):
        """End the conversation; nothing may be owed, and nothing may have come unexpected."""
        assert not self.calls, "a call was not settled"
        if not self.played:
            for key, asked in list(self.referee.open.items()):
                if ("subscriptions/listen", True) in asked:
                    self.send(f'- notifications/cancelled {{"requestId": {key[1:]}}}')
            self.stack.close()
            owed = [key for key, asked in self.referee.open.items() if key[0] == ">" and asked]
            assert not owed, f"never answered: {owed}"
        assert not self.came, f"unexpected: {json.dumps(self.came)[:1000]}"
        assert not self.problems, self.problems[0]


@contextlib.contextmanager
def talk(version: str, carrier: str, **options):
    """Hold a conversation: with a server, or as one if `client` is among the options."""
    with limits(**options.get("limits", {})), contextlib.ExitStack() as stack:
        conversation = Talk(version, carrier, options, stack)
        if not conversation.bare:
            conversation.handshake()
        yield conversation
        conversation.finish()


# ---- carriers: send(data, message), act(verb, word); what comes goes to Talk.put()

class Memory:
    """Calls `handle`, each message on a thread of its own, which has admitted it when we go on."""
    def __init__(self, talk: Talk):
        self.talk, self.stage, self.running = talk, Stage(talk.report), []
        self.server = globals()[talk.options.get("server", "fixture")](self.stage)
        self.act = functools.partial(self.stage.act, self.server)
        self.deliver = lambda message: talk.put(mcp.encode(message))
        self.peer = mcp.Peer(self.deliver)
        talk.stack.callback(self.close)
        talk.stack.callback(self.peer.close)

    def send(self, data: bytes, message):
        before = len(self.talk.reached)
        future = begin(self.server.handle, mcp.decode(data), self.deliver, peer=self.peer)
        future.add_done_callback(lambda _: self.talk.report(problem=future.exception()))
        self.running.append(future)
        self.talk.until(lambda: len(self.talk.reached) > before or future.done(), "a report")

    def close(self):
        for gate in list(self.stage.gates.values()):
            gate.set()
        if wait(self.running, PATIENCE).not_done:
            self.talk.report(problem=AssertionError("a handler still runs"))


def http_serving(server, **options):
    """Serve over loopback HTTP; return a context, whose value has a `server_port` and a `url`."""
    httpd = mcp.http_server(mcp.Endpoint(server, **options))
    httpd.url = f"http://127.0.0.1:{httpd.server_port}/mcp"
    begin(httpd.serve_forever, 0.01)
    return contextlib.closing(httpd)


def request_to(port: int, verb: str, path: str, headers: dict, body=None):
    """Send a request on a connection of its own, which ends with the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.suppress(OSError):  # a refusal may come before all is sent
        connection.request(verb, path, body, {"Connection": "close", **headers})
    return connection


def exchange(*request):
    """Make one HTTP exchange; return status, headers (lower case) and body, decoded if JSON."""
    with request_to(*request).getresponse() as answer:
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, value_of(answer.read())


def event_of(answer) -> dict[str, str]:
    """Read the next event of a stream: its fields, or none at its end."""
    lines = iter(lambda: answer.readline().decode().rstrip("\n"), "")
    return dict(line.partition(": ")[::2] for line in lines)


def headers_of(message) -> dict[str, str]:
    """Make the headers that belong to a message: those of the modern era repeat its members."""
    (params, _, version), method = params_of(message), str(message.get("method"))
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if version is not None:
        headers.update({"MCP-Protocol-Version": str(version), "Mcp-Method": method})
        name = params.get(MIRRORED.get(method))
        headers.update({"Mcp-Name": mcp.mirror(name)} if isinstance(name, str) else {})
    return headers


# A process that has imported this file, and forks a server in 5 ms.
FORKS = multiprocessing.get_context("forkserver" if POSIX else "spawn")
if POSIX:
    FORKS.set_forkserver_preload([__name__])


def serve_forked(options: dict, source, out, control):
    """Serve on stdio in a process of its own, and obey the commands that come from the test."""
    def obey():
        while True:
            stage.act(server, *control.recv())
            stage.report("acted")
    os.dup2(source.fileno(), 0)
    os.dup2(out.fileno(), 1)
    stage = Stage(control.send)
    server = globals()[options.get("server", "fixture")](stage)
    begin(obey)
    with limits(**options.get("limits", {})):
        server.run([])


class Pipe:
    """Talks to a process that serves stdio; its stderr is ours."""
    def __init__(self, talk: Talk):
        self.talk = talk
        (source, self.stdin), (self.stdout, out) = FORKS.Pipe(False), FORKS.Pipe(False)
        self.control, control = FORKS.Pipe()
        self.process = FORKS.Process(target=serve_forked, daemon=True,
                                     args=(talk.options, source, out, control))
        self.process.start()
        for end in (source, out, control):
            end.close()
        self.readers = [begin(self.hear), begin(self.note)]
        talk.stack.callback(self.close)

    def hear(self):
        with open(self.stdout.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self.talk.put(line)

    def note(self):
        while True:  # until an EOFError
            self.talk.report(self.control.recv())

    def send(self, data: bytes, message):
        os.write(self.stdin.fileno(), data + b"\n")

    def act(self, verb: str, word: str):
        if verb == "eof":
            self.stdin.close()
        else:
            before = self.talk.reached.count("acted")
            self.control.send((verb, word))
            self.talk.until(lambda: self.talk.reached.count("acted") > before, verb)

    def close(self):
        self.stdin.close()
        self.process.join(PATIENCE)
        self.process.kill()
        wait(self.readers, PATIENCE)
        if self.process.exitcode:
            self.talk.report(problem=AssertionError(f"exit status {self.process.exitcode}"))


# ---- the same when the runner plays the server: `target` is for connect()

class PlayedMemory(mcp.Server):
    """A Server whose messages the script answers."""
    def __init__(self, talk: Talk):
        super().__init__("played")
        self.target, self.talk = self, talk

    def handle(self, message, send, *_, **options):
        self.send = lambda data, message: send(message)
        self.talk.put(mcp.encode(message))


class Listener(socketserver.ThreadingMixIn):
    """A server whose finish_request() has a thread for each connection."""
    daemon_threads = True

    def __init__(self, address):
        super().__init__(address, None)
        begin(self.serve_forever, 0.005)

    def close(self):
        self.shutdown()
        self.server_close()


class PlayedPipe(Listener, getattr(socketserver, "UnixStreamServer", socketserver.TCPServer)):
    """A process that hands over its stdin and stdout, and exits at the end of its input."""
    PROGRAM = """if True:
        import os, socket, sys
        link = socket.socket(socket.AF_UNIX)
        link.connect(sys.argv[1])
        socket.send_fds(link, [b"."], [0, 1])
        os.closerange(0, 2)
        sys.exit(link.recv(99).decode() or 0)"""

    def __init__(self, talk: Talk):
        path = multiprocessing.connection.arbitrary_address("AF_UNIX")
        super().__init__(path)
        self.talk, self.target = talk, [sys.executable, "-S", "-E", "-c", self.PROGRAM, path]
        talk.stack.callback(self.close)

    def finish_request(self, link, _):
        source, out = socket.recv_fds(link, 1, 2)[1]
        with open(source, "rb") as lines, open(out, "wb", 0) as self.out:
            self.link = link
            for line in lines:
                self.talk.put(line)

    def act(self, verb: str, word: str):
        self.out.close()  # exit
        self.link.send(word.encode())

    def send(self, data: bytes, message):
        with contextlib.suppress(OSError, ValueError):  # it may have ended
            self.out.write(data + b"\n")


def http_answer(status, headers: dict, body: str | None = "") -> bytes:
    """Return an answer, or the head of a stream: both end with their connection."""
    lines = [f"{name}: {value}\r\n" for name, value in {"Connection": "close", **headers}.items()]
    return f"HTTP/1.1 {status} -\r\n{''.join(lines)}\r\n{body or ''}".encode()


class Site(Listener, socketserver.TCPServer):
    """An HTTP server that sends the bytes which `answer(verb, headers, message)` yields."""
    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0))
        self.answer = answer
        self.asked = []  # verb, headers (lower case) and message
        self.url = self.target = f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def finish_request(self, connection, _):
        with connection.makefile("rb") as file, contextlib.suppress(OSError):
            verb, path = file.readline().decode().split()[:2]
            lines = [line.decode().strip().split(": ", 1) for line in iter(file.readline, b"\r\n")]
            headers = {":path": path, **{name.lower(): value for name, value in lines}}
            message = json.loads(file.read(int(headers.get("content-length", 0))) or "{}")
            self.asked.append((verb, headers, message))
            for part in self.answer(verb, headers, message):
                connection.sendall(part)


class PlayedHttp(Site):
    """An HTTP server whose every POST the script answers."""
    def __init__(self, talk: Talk):
        super().__init__(self.play)
        self.talk = talk
        self.posts = {}  # queues of open requests, by JSON of the id
        talk.stack.callback(self.close)

    def send(self, data: bytes, message):
        """Answer a request; what answers none of them goes on the newest open POST."""
        ident = self.talk.names["ID"]
        if isinstance(message, dict):
            ident = json.dumps(message.get("id"))
        else:
            status, headers, body = re.fullmatch(r"(\d+) (\{.*?\}) ?(.*)", data.decode()).groups()
            message = http_answer(status, json.loads(headers), body)
        self.posts[ident if ident in self.posts else list(self.posts)[-1]].put(message)

    def play(self, verb: str, headers: dict, message: dict):
        said, method = queue.Queue(), message.get("method")
        if {"id", "method"} <= set(message):
            self.posts[json.dumps(message["id"])] = said
        else:
            said.put(http_answer(202 if verb == "POST" else 405, {"Allow": "POST"}))
        if verb == "POST":
            self.talk.put(message)
        one = said.get()
        if isinstance(one, bytes):
            yield one
        elif "method" in one:
            yield http_answer(200, {"Content-Type": "text/event-stream"})
            while one:
                yield f"data: {json.dumps(one)}\n\n".encode()
                one = "method" in one and said.get()
        else:
            modern = self.talk.version in MODERN or method == "server/discover"
            status = STATUS.get(one.get("error", {}).get("code"), 200) if modern else 200
            session = {"Mcp-Session-Id": "s1"} if method == "initialize" else {}
            yield http_answer(status, {"Content-Type": "application/json", **session},
                              json.dumps(one))
        self.posts.pop(method and json.dumps(message.get("id")), None)

    def close(self):
        for said in list(self.posts.values()):
            said.put(b"")
        super().close()


WIRES = {"memory": (Memory, PlayedMemory), "pipe": (Pipe, PlayedPipe), "http": (None, PlayedHttp)}


# ======== Rules of the wire: design.md §7, row by row, in every revision

test_requests = scripts(r'''
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
< "\ud800" {}
== arguments that break the schema are a result since 2025-11-25, and an error before
[2025-11-25..] :add {"a": "x"} => {"isError": true, "content": [{"text": "*"}]}
[2025-11-25..] :add {"a": 1, "nobody": 2} => {"isError": true}
[..2025-06-18] :add {"a": "x"} => error {INVALID_PARAMS} {"field": "a", "reason": "*"}
[..2025-06-18] :add {"a": 1, "nobody": 2} => error {INVALID_PARAMS} {"field": "nobody"}
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
''' + "".join(f'resources/read {{"uri": "{uri}"}} => error {{INVALID_PARAMS}}\n' for uri in (
    "file:///../x", "file:///%2e%2e/b", "file:///a%2f..%2fb", "file:////etc", "file:///C:/x",
    "file:///..%5cx", "file:///a%00b", "file:///%ff", "test://item/1/..", "test://item/1/a%5Cb",
    "test://item/1/a%2Fb")))

# The answer to lines that are not messages.
JUNK = {
    "? error {PARSE_ERROR}": ["{", "[NaN]", "-Infinity", "[" * 20000, r'{"id": 1, "x": "\xff"}'],
    "? error {INVALID_REQUEST}": ["true", '"x"', "null", "{}", "[]"],
    "? error {INVALID_REQUEST} id": [f'{{"jsonrpc": "2.0", "id": {wrong}, "method": "ping"}}'
                                     for wrong in ("null", "true", "1.0", "{}")],
    '"a" error {INVALID_REQUEST} jsonrpc': ['{"id": "a", "method": "ping"}',
                                            '{"jsonrpc": "1.0", "id": "a", "method": "ping"}'],
    "1 error {INVALID_REQUEST} method": [f'{{"jsonrpc": "2.0", "id": 1, {wrong}}}' for wrong in (
        '"method": 7', '"x": 1', '"method": "x", "params": null', '"method": "x", "params": [1]')],
}
test_junk = scripts("== junk, even blank lines or a BOM, stops no stream\n" + "".join(
    f">> {line}\n< {answer}\n" for answer, lines in JUNK.items() for line in lines) + r'''
>> \xef\xbb\xbf{"jsonrpc": "2.0", "method": "notifications/x"}\x0d
[pipe] >> \x0d
[pipe] >> \x20\x09
>> {"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": ""}}
quiet
''')

test_batches = scripts(r'''
== in a batch, only responses share the array, and what cannot be sent fails alone | on: 2025-03-26
> [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "tell", "arguments": {"method": "x"}}}, {"jsonrpc": "2.0", "id": 2, "method":
    "tools/call", "params": {"name": "fail", "arguments": {"how": "unsent"}}}]
< - x
< [{"id": 1, "result": {}}, {"id": 2, "error": {"code": {INTERNAL_ERROR}}}]
== a batch of more members than the limit | on: 2025-03-26 | limits: {"MAX_BATCH": 3}
> [1, 2, 3, 4]
< ? error {INVALID_REQUEST}
''')

# ---- the era of a request, and the handshake: design.md §6

test_eras = scripts(r'''
== an unknown revision gets the newest legacy one; requests wait | on: legacy | bare
ping => {}
[2025-11-25] initialize {"protocolVersion": "1999", "capabilities": {}, "clientInfo": {}} =>
    {"protocolVersion": "2025-11-25"}
initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}} =>
    {"protocolVersion": "{VERSION}", "instructions": "Use it gently."}
tools/list => error {INVALID_PARAMS} initialized
changed tools
quiet
[..2025-06-18] > - notifications/initialized
[2025-11-25] > - initialized
tools/list => {"tools": ["*", "..."], "resultType": null}
''')

# ---- the same rules for a client

test_client_messages = scripts(r'''
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
''', "client")


# ======== The core: what is offered, listed, called and read, in each revision

def core(stage: Stage):
    """Make a server with rarer cases; its questions have keys, so that scripts know them."""
    server = mcp.Server("core", "2", title="Core", description="d")
    kept = []
    watched = []
    server.on_watch = watched.append
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
        return {"a": [ctx.method, ctx.version, ctx.client_info["name"], ctx.principal, *watched]}
    @server.tool
    def contents() -> list:
        return [mcp.text("t", annotations={"priority": 1, "lastModified": "2025-01-01T00:00:00Z"}),
                mcp.image(PNG, "image/png", annotations=None), mcp.audio(b"wav", "audio/wav"),
                mcp.embedded("x://z", b"\0", _meta={"m": 1}), mcp.link("x://y", "why", title="Y")]
    def gives(value):
        return lambda: value
    for name, value in {
            "none": None, "dict": {"a": (1, 2)}, "bad": {"content": [3]}, "big": "x" * 3_000_000,
            "whole": {"content": [mcp.text("w")], "isError": True, "_meta": {"z": 1}},
            "own": {"resultType": "example.org/own", "x": 1}}.items():
        server.tool(name=name)(gives(value))
    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def numbers(good: bool):
        return [1, 2] if good else ["x"]
    server.resource("test://several", ttl_ms=7)(lambda: [
        {"text": "one"}, {"uri": "test://other", "blob": b"two", "_meta": {"q": 1}}])
    server.resource("test://item/{number}/{part}")(lambda number, part: f"{part} of {number}")
    server.completion("test://item/{number}/{part}", "part")(
        lambda typed, known: [f"{typed}{n}" for n in range(120)])
    server.prompt(name="chat")(lambda: ["one", {"role": "assistant", "content": "two"},
                                        mcp.image(PNG, "image/png")])
    return server


def core_questions(server):
    def asks(question: dict):
        def tool(ctx: Context) -> str:
            return "answered" if ctx.ask({"q": question})["q"] else ""
        return tool
    for name, question in {
            "form": mcp.elicitation("Go?", kind={"type": "string", "enum": ["a"], "default": "a"},
                                    sure=(bool, True), age={"type": "integer", "minimum": 0}),
            "page": mcp.elicitation("Sign in", url="https://example.org/in"), "roots": mcp.roots(),
            "think": mcp.sampling("Hi", max_tokens=5, systemPrompt="Be brief."),
            "tools": mcp.sampling([], tools=[{"name": "t", "inputSchema": {"type": "object"}}])
            }.items():
        server.tool(name=name)(asks(question))
    runs = []
    @server.tool
    def rounds(ctx: Context, x: int = 0) -> str:
        runs.append(x)
        one = ctx.elicit("One?", key="one", one=int)["action"]
        return f"{one} {ctx.elicit('Two?', key='two', two=int)['action']} in {len(runs)}"
    @server.tool
    def together(ctx: Context) -> str:
        return json.dumps(sorted(ctx.ask({
            "who": mcp.elicitation("Who?", name=str), "model": mcp.sampling("Hi", max_tokens=9),
            "where": mcp.roots()})))
    @server.tool
    def twice(ctx: Context, key: str = "") -> str:
        try:
            return ctx.elicit("?", key=key)["action"] + ctx.elicit("?", key=key and "b")["action"]
        except ValueError as problem:
            return "refused" if "key" in str(problem) else str(problem)


def paged(stage: Stage):
    """Make a server with pages, whose handlers run where `run` decides."""
    left = []  # the exceptions that are not their callers'
    server = mcp.Server("paged", page_size=2, run=lambda job: left.append(
        type(begin(job).exception()).__name__))
    server.method("completion/complete")(lambda params: {"completion": {
        "values": list(params["argument"])}})
    server.tool(name="a")(lambda: "a")
    @server.tool
    def b(what: str):
        raise {"exit": SystemExit, "key": KeyboardInterrupt, "error": ValueError}[what]("told you")
    server.tool(name="c")(lambda: str(left))
    for name in "abcd":
        server.resource(f"test://{name}/{{x}}", name=name)(lambda x: "")
    return server


test_offers = scripts(r'''
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
:c => "['NoneType', 'SystemExit', 'KeyboardInterrupt', 'NoneType']"
completion/complete {"ref": {}, "argument": {"mine": 1}} => {"completion": {"values": ["mine"]}}
== pages | on: 2025-11-25 modern memory | server: paged
resources/templates/list => {"resourceTemplates": [{"name": "a"}, {"name": "b"}],
    "nextCursor": "*"}
resources/templates/list {"cursor": "{CURSOR}"} =>
    {"resourceTemplates": [{"name": "c"}, {"name": "d"}], "nextCursor": null}
''')

test_core = scripts(r'''
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
    {"role": "assistant", "content": {"text": "two"}}, {"content": {"type": "image"}}]}
completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/{number}/{part}"},
    "argument": {"name": "part", "value": "h"}} =>
    {"completion": {"values": ["h0", "h1"], "total": 120, "hasMore": true}}
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
''' + "".join(f'''tools/call {{"name": "rounds", "requestState": "{{STATE}}", "inputResponses":
    {given}}} => {{"inputRequests": {{"one": {{}}}}}}
''' for given in (
    '{"one": {}}', '{"one": 3}', '{"one": {"action": "maybe"}}', '{"one": {"action": "accept"}}',
    '{"one": {"action": "accept", "content": {"one": "x"}}}')
) + each('''
== the tool @2 cannot ask a client that declares @3 | on: @1 | declare: @3
[legacy] :@2 => {"isError": true}
[modern] :@2 => error {MISSING_REQUIRED_CLIENT_CAPABILITY} {"requiredCapabilities": @4}
''', '''
2025-11-25.. memory | form | {"elicitation": {"url": {}}} | {"elicitation": {"form": {}}}
memory | page | {"elicitation": {}} | {"elicitation": {"url": {}}}
memory | tools | {"sampling": {}} | {"sampling": {"tools": {}}}
'''),
    'server: core | declare: '
    '{"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}')


def modern(method: str, ident=1, **params) -> dict:
    """Return a request of the newest revision."""
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": {**params, "_meta": {
        META + "protocolVersion": MODERN[0], META + "clientCapabilities": {"elicitation": {}}}}}


OPENING = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {}}}
READY = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'


def ask(server, method: str, principal=None, **params):
    """Return the result, or the error, of such a request."""
    sent = []
    server.handle(modern(method, **params), sent.append, principal=principal)
    return sent[-1].get("result") or sent[-1]["error"]


def test_state_is_bound_to_the_principal_and_shared_by_the_key():
    one, two, other = (mcp.Server("s", state_key=key) for key in ("k", b"k", None))
    for server in (one, two, other):
        core_questions(server)
    ann = ["ann", {"sub": 1}]
    state = ask(one, "tools/call", ann, name="rounds")["requestState"]
    for server, principal, good in ((one, ann, True), (two, ["ann", {"sub": 1}], True),
                                    (two, "bob", False), (two, None, False), (other, ann, False)):
        answer = ask(server, "tools/call", principal, name="rounds", requestState=state)
        assert answer.get("code") == (None if good else CODES["INVALID_PARAMS"]), answer
    one.state_key, peer, sent = object(), mcp.Peer(), []  # it cannot sign
    for name in ("rounds", "twice"):
        one.handle(modern("tools/call", name=name), sent.append, peer=peer)
    assert [one["error"]["code"] for one in sent] == [CODES["INTERNAL_ERROR"]] * 2


# Without a state, the key alone has to do: the official suite sends answers before any question.
@parametrize("key, with_state", [("", True), ("", False), ("sure", True)])
def test_an_answer_serves_the_text_of_its_question_only(key, with_state):
    server, files = mcp.Server("s"), [1]
    @server.tool
    def delete(ctx: Context) -> str:
        return ctx.elicit(f"Delete {files[-1]}?", key=key, x=bool)["action"]
    def reply(asked: dict, state=True) -> dict:
        state = {"requestState": asked["requestState"]} if state else {}
        return ask(server, "tools/call", name="delete", **state, inputResponses={
            name: {"action": "decline"} for name in asked["inputRequests"]})
    first = ask(server, "tools/call", name="delete")
    files.append(1000)
    second = reply(first, with_state)
    assert second["inputRequests"] and reply(second)["content"][0]["text"] == "decline"
    assert key or not first["inputRequests"].keys() & second["inputRequests"].keys()
    files.pop()
    assert reply(first)["content"][0]["text"] == "decline"


def test_lists_are_whole_while_another_thread_unregisters():
    server = fixture(Stage())
    add = server.tools["add"]
    server.tools.update({str(number): add for number in range(20000)})
    listing = begin(lambda: [ask(server, "tools/list")["tools"] for _ in range(50)])
    while not listing.done():
        if not server.tools.pop("x", None):
            server.tools["x"] = add
    listing.result()


test_coroutines = scripts(r'''
== coroutines share one loop, run at the same time, and are cancelled
> 2 :coroutine {"what": "waits"}
wait waits
:coroutine => "1 mcp-loop"
:coroutine => "1 mcp-loop"
> - notifications/cancelled {"requestId": 2}
wait unwound
quiet
== a waiting question does not hold up the end | on: 2025-11-25 pipe | declare: {"elicitation": {}}
> 1 :coroutine {"what": "asks"}
< #q elicitation/create
eof
< 1 {"isError": true}
== a coroutine asks from a thread | on: 2025-06-18.. | declare: {"elicitation": {}}
[legacy] :coroutine {"what": "asks"} ? q elicitation/create {} -> {NO} => "decline"
[modern] :coroutine {"what": "asks"} => {"inputRequests": "*"}
:coroutine {"what": "asks at once"} => {"isError": true}
[modern] example.org/verb => error {INTERNAL_ERROR}
''' + ('[modern] :coroutine {"what": "asks in a group"} => {"inputRequests": {"q": {}}}'
       if hasattr(asyncio, "TaskGroup") else ""))


def test_coroutines_run_on_the_authors_loop():
    async def main():
        server = fixture(Stage(), loop=asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="loop"):
            server.run([])
        said = await asyncio.to_thread(ask, server, "tools/call", name="coroutine",
                                       arguments={"what": "asks at once"})
        assert "asyncio.to_thread" in said["content"][0]["text"]
        stopped = asyncio.new_event_loop()
        said = fixture(Stage(), loop=stopped).call("coroutine")
        stopped.close()
        assert said["isError"] and "must run" in said["content"][0]["text"]
        return await asyncio.to_thread(server.call, "coroutine")
    assert asyncio.run(main())["content"][0]["text"] == "1 MainThread"


def test_what_a_copy_lacks_is_named_and_threads_may_run_out(monkeypatch):
    server, ran = mcp.Server("s"), []
    with pytest.raises(mcp.RpcError, match="version"):
        Context(server, mcp.Peer(), mcp.drop, OPENING, {}, None).admit(mcp.drop)
    server.handle({**OPENING, "params": {**OPENING["params"], "capabilities": {"x": DEEP}}},
                  ran.append)
    assert ran.pop()["error"]["code"] == CODES["INVALID_PARAMS"]
    monkeypatch.delattr(mcp, "serve_http")
    with pytest.raises(SystemExit, match="part II"):
        server.run(["--http", "0"])
    with exchanges(server="empty") as site:
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError):
            assert send_http(site, b"") == ""
        assert send_http(site, LAST).startswith("HTTP/1.1 200 ")
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
    mcp.run_aside("x", lambda: ran.append(1) or 1 / 0)
    assert ran


@parametrize("ordered", [True, False])
def test_a_subscription_ends_with_its_peer(ordered):
    server, sent = mcp.Server("s"), queue.Queue()
    peer, listen = mcp.Peer(ordered=ordered), modern("subscriptions/listen", notifications={})
    end = begin(server.handle, listen, sent.put, peer=peer)
    assert "acknowledged" in sent.get(timeout=PATIENCE)["method"]
    for _ in range(2):
        peer.close()
        end.result(PATIENCE)
        assert "result" in [*sent.queue][-1]
        end = begin(server.handle, listen, sent.put, peer=peer)


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


@parametrize("word, mistake", [
    ("twice", lambda s: s.tool(name="twice")(s.tool(name="twice")(lambda: ""))),
    ("x://a", lambda s: s.resource("x://a")(s.resource("x://a")(lambda: ""))),
    ("no-scheme", lambda s: s.resource("no-scheme")(lambda: "")),
    ("{a}", lambda s: s.resource("x://{a}")(lambda: "")),
    ("noprefix", lambda s: s.method("noprefix")(lambda params: {})),
    ('"type"', lambda s: s.tool(input_schema={"type": "string"})(lambda: "")),
    ("endpoint", lambda s: mcp.serve_http(s, endpoint=mcp.Endpoint(s), cors=True)),
    ("function", lambda s: s.tool("name")), ("function", lambda s: s.prompt("name")),
    ("tool", lambda s: s.changed("tool")), ("titel", lambda s: s.tool(titel="x")(lambda: "")),
    ("ftp", lambda s: client.connect("ftp://x")),
    ("1999", lambda s: client.connect(s, revision="1999-01-01")),
    ("issuer", lambda s: guard.local_keys({}, issuer="", resource=MCP)),
    ("folder", lambda s: skills.serve_skills(s, HERE / "nowhere")),
    ("path", lambda s: oauth.OAuth(metadata_url="https://app.test"))])
def test_mistakes_are_refused_at_once(word, mistake):
    with pytest.raises((TypeError, ValueError), match=re.escape(word)):
        mistake(mcp.Server("s"))


# What no other test uses: public names, or the order of parameters.
PUBLIC = """Server(name,version,instructions,page_size,state_key,run,loop,ttl_ms,cache_scope)
    Server.resource(uri,name,mime_type,ttl_ms,cache_scope) Server.completion(reference,argument)
    Server.tool(function) Server.prompt(function) AskError Context.sample(messages,key)
    META_LOG_LEVEL embedded(uri,value,mime_type) event(data,ident)
    serve_http(server,host,port,endpoint) http_server(endpoint,host,port)"""


@parametrize("entry", PUBLIC.split())
def test_public_names_and_parameters(entry):
    name, _, wanted = entry.rstrip(")").partition("(")
    value = functools.reduce(getattr, name.split("."), mcp)
    if wanted:
        given = [one for one in inspect.signature(value).parameters if one != "self"]
        assert given[:wanted.count(",") + 1] == wanted.split(",")


# ======== Schemas: type hints to JSON Schema and back, and which values a schema lets through
# ruff: noqa: UP007, UP045 (Python 3.9 evaluates no X | Y)


Color = enum.Enum("Color", {"RED": "r", "BLUE": "b"})


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclasses.dataclass
class Order:
    """What is ordered; the class computes the total itself."""
    item: str
    color: Color = Color.RED
    points: list[Point] = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False, default=9.5)


INT, STR, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
POINT = {"type": "object", "properties": {"x": INT, "y": INT}, "required": ["x"],
         "additionalProperties": False}
SOME = {"type": "object", "properties": {"a": INT, "b": INT}, "required": ["a"]}


@parametrize("hint, schema", [
    (str, STR), (int, INT), (float, {"type": "number"}), (bool, {"type": "boolean"}), (Any, {}),
    (None, NULL), (dict, {"type": "object"}), *((x, {"type": "array"}) for x in (list, list[Any])),
    *([(int | None, {"anyOf": [INT, NULL]})] if sys.version_info >= (3, 10) else ()),
    *([(TypedDict("Some", {"a": "int", "b": "typing.NotRequired[int]"}), SOME)]
      if hasattr(typing, "NotRequired") else ()),
    *((x, {"type": "array", "items": STR}) for x in (list[str], tuple[str, ...])),
    (tuple[int], {"type": "array", "prefixItems": [INT], "minItems": 1, "items": False}),
    (set[str], {"type": "array", "items": STR, "uniqueItems": True}),
    (dict[str, int], {"type": "object", "additionalProperties": INT}),
    (Union[int, str], {"anyOf": [INT, STR]}), (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal["a"], {**STR, "enum": ["a"]}), (Color, {**STR, "enum": ["r", "b"]}),
    (Annotated[int, "why", {"minimum": 1}, Path()], {**INT, "description": "why", "minimum": 1}),
    (Point, POINT), (list[Point], {"type": "array", "items": POINT})], ids=str)
def test_a_hint_has_a_schema(hint, schema):
    assert mcp.schema_of(hint) == schema


def serve_tool(function, **options) -> tuple[Any, Any]:
    """Register a tool `t`; return its server and its definition."""
    server = mcp.Server("s")
    server.tool(function, name="t", **options)
    return server, ask(server, "tools/list")["tools"][0]


def hinted(hint, result, function):
    def takes(x: Any = "") -> Any:
        return function(x)
    takes.__annotations__ = {"x": hint, "return": result}
    return takes


@parametrize("hint, value, shown", [
    (int, 1.0, "1"), (Any, {"a": [1]}, "{'a': [1]}"), (Optional[Color], None, "None"),
    (Color, "b", "<Color.BLUE: 'b'>"), (Union[int, Color], "r", "<Color.RED: 'r'>"),
    (Union[int, Color], 9, "9"), (Point, {"x": 1.0}, "Point(x=1, y=0)"), (set[int], [1], "{1}"),
    (tuple[int, Color], [5, "r"], "(5, <Color.RED: 'r'>)"), (tuple[str, ...], ["a"], "('a',)"),
    (dict[str, Point], {"k": {"x": 3}}, "{'k': Point(x=3, y=0)}"),
    (TypedDict("Weather", {"degrees": float, "sky": Color}), {"degrees": 1.5, "sky": "r"},
     "{'degrees': 1.5, 'sky': <Color.RED: 'r'>}"), (Annotated[Color, ""], "r", "<Color.RED: 'r'>"),
    (Order, {"item": "i", "points": [{"x": 1}]},
     "Order(item='i', color=<Color.RED: 'r'>, points=[Point(x=1, y=0)], total=9.5)"),
    (int, True, "/x: integer"), (Color, "g", "/x: one of"), (Point, {"x": 1, "z": 1}, "/x/z: "),
    (Order, {"item": "i", "points": [{"x": 1}, {}]}, "/x/points/1/x: required")])
def test_arguments_become_python_values_or_are_refused(hint, value, shown):
    server, _ = serve_tool(hinted(hint, str, repr))
    result = ask(server, "tools/call", name="t", arguments={"x": value})
    text = result["content"][0]["text"]
    if shown[0] == "/":
        place, _, word = shown.partition(": ")
        assert result["isError"] and word in text.partition(place + ": ")[2]
    else:
        assert text == shown


@parametrize("hint, value, structured", [
    (Color, Color.RED, {"result": "r"}), (Optional[int], None, {"result": None}),
    (tuple[int, str], (1, "a"), {"result": [1, "a"]}), (set[int], {1}, {"result": [1]}),
    (Order, Order("i", points=[Point(1)]),
     {"item": "i", "color": "r", "points": [{"x": 1, "y": 0}], "total": 9.5}),
    (TypedDict("Article", {"content": list[str]}), {"content": ["a"]}, {"content": ["a"]}),
    (str, "text", None), (None, None, None), (list[dict[str, Any]], [], None)])
def test_results_become_json(hint, value, structured):
    server, tool = serve_tool(hinted(Any, hint, lambda x: value))
    assert tool.get("outputSchema", {}).get("type") == (structured and "object")
    assert mcp.Schema(tool.get("outputSchema", {})).flaw(structured) is None
    assert ask(server, "tools/call", name="t").get("structuredContent") == structured


class Kinds:
    def method(self, a: int, b: Any = float("inf"), c: Annotated[int, "hint"] = 3, *,
               d: Any = Path, **rest: Any) -> int:
        """Do something.

        Args:
            a: the first
            b (float): the second
            c: not this
        :param d: the last
        """
        return a

    decorated = functools.lru_cache(method)


@parametrize("function", [
    Kinds().method, functools.lru_cache(Kinds().method), Kinds().decorated], ids=range(3))
def test_a_tool_may_be_a_method_and_is_described_by_its_docstring(function):
    server, tool = serve_tool(function)
    assert tool["description"] == "Do something."
    assert tool["inputSchema"] == {  # open, for **rest; JSON has neither infinity nor classes
        "type": "object", "required": ["a"], "properties": {
            "a": {**INT, "description": "the first"}, "b": {"description": "the second"},
            "c": {**INT, "description": "hint", "default": 3}, "d": {"description": "the last"}}}
    answer = ask(server, "tools/call", name="t", arguments={"a": 5, "more": 1})
    assert answer["structuredContent"] == {"result": 5}


@parametrize("signature, word", [
    ("(x: int, /)", ""), ("(*x: int)", ""), ("(x: 'Nowhere')", "Nowhere"), ("(x: Path)", "Path"),
    ("(ctx)", "ctx: Context"), ("(a: Context, b: Context)", "Context"), ("() -> bytes", "bytes"),
    ("(x: dict[int, str])", "int"),
    ("(x: Literal[b''])", "b''"), ("(x: Optional[Path])", "Path")])
def test_a_signature_that_cannot_be_served_is_refused_by_name(signature, word):
    scope = dict(globals())
    exec(f"def wrong{signature}: ...", scope)  # noqa: S102
    with pytest.raises(TypeError, match="wrong.*" + word):
        mcp.Server("s").tool(scope["wrong"])


def test_forms_are_flat():
    asked = mcp.elicitation("?", name=str, age=Annotated[int, "in years", {"minimum": 0}],
                            note=Optional[str], kind=(Literal["a", "b"], "b"),
                            many=list[Literal["a"]], mail={**STR, "format": "email"})
    assert asked["params"]["requestedSchema"] == {
        "type": "object", "required": ["name", "age", "many"], "properties": {
            "name": STR, "age": {**INT, "description": "in years", "minimum": 0}, "note": STR,
            "kind": {**STR, "enum": ["a", "b"], "default": "b"}, "mail": {**STR, "format": "email"},
            "many": {"type": "array", "items": {**STR, "enum": ["a"]}}}}
    for hint in (dict, list[str], Point, Path, Union[int, str]):
        with pytest.raises(TypeError):
            mcp.elicitation("?", x=hint)


DEEP = functools.reduce(lambda value, _: [value], range(5000), None)
# A schema, valid values, invalid ones with the place of the flaw and a word.
VALIDATION = [
    ({"type": ["integer", "null"]}, [1, 1.0, None], [(1.5, "/: integer"), (True, "/: ")]),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [(True, "/: one of")]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [({"a": [True]}, "/: "), ({}, "/: ")]),
    ({"multipleOf": 0.0001}, [0.0075, 3], [(0.00751, "/: multiple")]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [(0, "/: 1"), (3, "/: 3")]),
    ({"exclusiveMinimum": 0, "maximum": 2}, [1, 2], [(0, "/: 0"), (3, "/: 2")]),
    ({"minLength": 2, "maxLength": 2}, ["a\U0001f600", 5], [("a", "/: 2"), ("abc", "/: 2")]),
    ({"pattern": r"^a\d$"}, ["a1", 5], [("a1\n", "/: match"), ("a\u0664", "/: ")]),
    ({"uniqueItems": True, "minItems": 1, "maxItems": 2}, [[1], [1, True]],
     [([], "/: 1"), ([1, 1.0], "/: "), ([1, 2, 3], "/: 2")]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [({}, "/: 1"), ({"a": 1, "b": 1}, "/")]),
    ({"properties": {"a/b~c": {"items": {"minimum": 0}}}, "required": ["a/b~c"]}, [{"a/b~c": [0]}],
     [({"a/b~c": [0, -1]}, "/a~1b~0c/1: 0"), ({}, "/a~1b~0c: required")]),
    ({"patternProperties": {"^x": INT}, "additionalProperties": STR}, [{"xa": 1, "b": "s"}],
     [({"xa": "s"}, "/xa: integer"), ({"b": 1}, "/b: string")]),
    ({"prefixItems": [INT], "items": False}, [[], [1]], [([""], "/0: "), ([1, 2], "/1: ")]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [(3, "/: 2"), (0, "/: 1")]),
    ({"anyOf": [INT, STR]}, [1, "a"], [([], "/: integer")]),
    ({"oneOf": [{"multipleOf": 2}, {"minimum": 6}]}, [2, 7], [(6, "/: one"), (5, "/: ")]),
    ({"not": INT}, ["a"], [(1, "/: match")]),
    ({"if": INT, "then": {"minimum": 5}, "else": STR}, [5, ""], [(4, "/: 5"), ([], "/: ")]),
    ({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": INT}}, [1], [("x", "/: integer")]),
    ({"properties": {"n": {"$ref": "#"}}, "additionalProperties": False}, [{"n": {"n": {}}}],
     [({"n": {"x": 1}}, "/n/x: ")]),
    ({"format": "email", "unknown": {"$ref": "http://x"}}, ["no mail", 1], []),
    ({"$ref": "#"}, [], [(1, "/")]), ({"items": {"$ref": "#"}}, [], [(DEEP, "/")]),
    (True, [1], []), (False, [], [(1, "/: ")]),
]


@parametrize("schema, valid, invalid", VALIDATION)
def test_what_a_schema_lets_through(schema, valid, invalid):
    checked = mcp.Schema(schema)
    assert [checked.flaw(value) for value in valid] == [None] * len(valid)
    for value, shown in invalid:
        place, colon, word = shown.partition(": ")
        flaw = checked.flaw(value)
        assert flaw and flaw.startswith(place + colon) and word in flaw, flaw


@parametrize("schema", [
    3, None, {"type": "thing"}, {"properties": {"a": {"pattern": "("}}}, {"$ref": "#/nowhere"},
    {"items": {"$ref": "http://example.org/s"}}, {"$ref": "other.json#/a"}, {"type": ["thing"]},
    {"$schema": "http://json-schema.org/draft-07/schema#"}, *({"items": {name: {}}} for name in (
        "unevaluatedProperties", "unevaluatedItems"))],
    ids=str)
def test_a_schema_that_cannot_be_checked_is_refused(schema):
    with pytest.raises(ValueError):
        mcp.Schema(schema)


def test_random_schemas_and_values_never_crash():
    dice = random.Random(1)
    keywords = [part for schema, _, _ in VALIDATION[:-4] for part in schema.items()]
    values = [value for _, valid, _ in VALIDATION for value in (*valid, valid)]
    for _ in range(1000):
        schema = {"items": dict(dice.sample(keywords, 2)), **dict(dice.sample(keywords, 3))}
        with contextlib.suppress(ValueError):
            checked = mcp.Schema(schema)
            assert all((checked.flaw(value) or "/")[0] == "/" for value in values)


# ======== stdio and processes: design.md §8, hosts.md, and the command line

test_slow_tools = scripts(r'''
== slow tools delay neither ping nor each other | on: 2025-11-25 modern pipe
''' + "".join(f'> {n} :slow {{"gate": "g{n}"}}\n' for n in range(32)) + "".join(
    f"wait g{n}\n" for n in range(32)) + "quiet\n" + "".join(
    f"open g{n}\n< {n} {{}}\n" for n in reversed(range(32))) + r'''
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
== subscriptions hold no slot of the tools | on: modern pipe
''' + "".join(f'''> {n} subscriptions/listen {{"notifications": {{"toolsListChanged": true}}}}
< - notifications/subscriptions/acknowledged
''' for n in range(2, 202)) + r'''> 0 :slow {"gate": "a"}
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
== what is too large fails alone | on: 2025-11-25 modern pipe | limits: {"MAX_MESSAGE_BYTES": 1200}
tools/list => error {INTERNAL_ERROR}
''' + f">> {'x' * 5000}\n" + '''< ? error {PARSE_ERROR} larger
nobody/knows => error {METHOD_NOT_FOUND}
== so does `initialize` | on: 2025-11-25 pipe | bare | limits: {"MAX_MESSAGE_BYTES": 300}
initialize {"protocolVersion": "", "capabilities": {}, "clientInfo": {}} => error {INTERNAL_ERROR}
ping => {}
''')


# ---- a program, which is this function alone, in a process of its own

def a_program(seconds: float, say=print):
    """Serve tools that misbehave; what comes after run() is the author's."""
    import atexit
    say("printed at import")
    mcp.LEAVE_SECONDS = seconds
    server = mcp.Server("s")
    def forked(generations: int, *opened: int) -> int:
        """Fork; tell whether each child finds open what its parent had opened."""
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            [os.fstat(descriptor) for descriptor in opened]
            os._exit(generations and forked(generations - 1, *os.pipe()))
        finally:
            os._exit(99)
    @server.tool
    def do(what: str) -> str:
        return str({
            "print": lambda: print("dirt \u2603", flush=True), "read": lambda: sys.stdin.read(),
            "write": lambda: os.write(1, b"dirt\n"), "shell": lambda: os.system("echo dirt"),
            "child": lambda: subprocess.call([sys.executable, "-c", "print('dirt')"]),
            "cat": lambda: subprocess.check_output(["cat"], text=True),
            "nap": lambda: threading.Event().wait(0.02), "forks": lambda: forked(1),
            "fork": lambda: os.fork() or os._exit(threading.Event().wait(3))}[what]())
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
            os.kill(os.getpid(), signal.SIGTERM)  # so soon after the first, it is ignored
    finally:
        threading.Event().wait(0.04)
        say("closed")
    sys.exit(7)


class Program(subprocess.Popen):
    """a_program(), started in "/" with next to nothing in its environment."""
    def __init__(self, seconds: float = 60, before: str = "", say: str = "print", log=None,
                 **env: str):
        POSIX or pytest.skip(OTHER)
        source = "import os, signal, subprocess, sys, threading\n" \
            f"sys.path[:0] = [{str(MCP_REF.parent)!r}]\nimport mcp_ref as mcp\n" \
            f"signal.alarm({3 * PATIENCE:g})\n{inspect.getsource(a_program)}\n" \
            f"{before}\na_program({seconds}, {say})"
        self.log = log or tempfile.TemporaryFile()  # noqa: SIM115  (a pipe could fill up)
        super().__init__(
            [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", source],
            0, None, -1, -1, self.log, cwd="/",
            env={"PATH": os.environ["PATH"], **COVERAGE, **env})

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
        return self.log.seekable() and (self.log.seek(0), self.log.read().decode())[1]

    def call(self, tool: str, ident=1, **arguments):
        self.stdin.write(mcp.encode(modern("tools/call", ident, name=tool, arguments=arguments)))
        return self.read()

    def end(self, how: str = "stdin") -> int:
        """Close a stream or send a signal; return the exit status."""
        if how in ("stdin", "stdout"):
            getattr(self, how).close()
        else:
            self.send_signal(getattr(signal, how))
        status = self.wait(PATIENCE)
        assert self.stdout.closed or not self.stdout.read()
        return status


def test_nothing_but_messages_is_on_stdout_and_a_trace_has_them_all(tmp_path):
    (tmp_path / "trace").write_text("before\n")
    with Program(MCP_TRACE=str(tmp_path / "trace")) as program:
        for what, text in (("print", "None"), ("write", "5"), ("shell", "0"), ("read", ""),
                           ("child", "0"), ("cat", ""), ("forks", "0")):
            answer = program.call("do", what, what=what)
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (what, text)
        program.stdin.write(b"junk\n")
        assert program.read()["error"] and program.end() == 7
        assert program.said().startswith("printed at import") and program.said().count("dirt") == 4
    _, *lines = (tmp_path / "trace").read_bytes().decode().splitlines()
    lines = [json.loads(line) for line in lines]
    assert [line["way"] + line["on"] for line in lines] == [">stdio", "<stdio"] * 8
    assert lines[-4]["message"]["id"] == "forks" and lines[-3]["message"] == answer
    assert lines[-2]["text"] == "junk" and re.fullmatch(TIME, lines[-2]["time"])


@parametrize("path", ["/dev/full"] * os.path.exists("/dev/full") + ["/nowhere/trace"])
def test_a_trace_that_cannot_be_written_is_said_once(path):
    with Program(MCP_TRACE=path) as program:
        assert program.call("do", what="write")["result"] and program.end() == 7
        assert "Traceback" not in program.said() and program.said().count("MCP_TRACE") == 1


@parametrize("streams, answers", [
    ("<in", 1), ("<in >out", 1), ("<in >out 2>err", 1), ("<in 2>&-", 1), ("<in >out 2>&-", 1),
    ("</dev/null", 0), ("<&-", 0), ("<in >&-", 0), ("<&- >&- 2>&-", 0),
    ("0>x", 0), ("<in 1<in", 0)])
def test_stdin_stdout_and_stderr_may_be_anything(streams, answers, tmp_path):
    call = modern("tools/call", name="do", arguments={"what": "write"})
    (tmp_path / "in").write_bytes(mcp.encode(call))
    (tmp_path / "out").touch()
    with Program() as program:
        words = program.args
    done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", *words], cwd=tmp_path,
                          env=COVERAGE, capture_output=True, timeout=3 * PATIENCE, check=False)
    out, said = done.stdout + (tmp_path / "out").read_bytes(), done.stderr.decode()
    assert (done.returncode, out.count(b"\n")) == (7, answers) and "Traceback" not in said, said
    assert answers == 0 or json.loads(out)["result"]["content"][0]["text"] == "5"


def test_a_host_that_drains_no_stderr_holds_up_nothing():
    source, out = os.pipe()
    with open(source, "rb"), open(out, "wb") as log, Program(say="str", log=log) as program:
        for _ in range(1000):
            program.stdin.write(b"junk" * 50 + b"\n")
            assert program.read()["error"]
        before = time.monotonic()
        assert program.end() == 7 and time.monotonic() - before < 2


@parametrize("threads", range(5))
def test_without_threads_each_request_is_answered_once(threads):
    before = textwrap.dedent(f"""
        left, start = iter(range({threads})), threading.Thread.start
        def refuse(thread):
            if next(left, None) is None:
                raise RuntimeError("can't start new thread")
            start(thread)
        threading.Thread.start = refuse""")
    with Program(before=before) as program:
        for ident in range(20):
            call = modern("tools/call", ident, name="do", arguments={"what": "nap"})
            program.stdin.write(mcp.encode(call))
        answers = [program.read() for _ in range(20)]
        assert sorted(one["id"] for one in answers if "result" in one) == list(range(20))
        assert program.end() == 7 and "Traceback" not in program.said()


@parametrize("how", ["stdin", "stdout", "SIGINT", "SIGTERM"])
@parametrize("tool, what", [
    ("do", "write"), ("do", "fork"), ("busy", "waiting"), ("busy", "computing")])
def test_run_returns_quickly_and_the_program_goes_on(tool, what, how):
    with Program(0.01 if how == "stdin" else 60) as program:
        for ident in (1, 2):
            program.call(tool, ident, what=what)
        before = time.monotonic()
        # Beside a handler that computes, coverage takes seconds to save its data.
        limit = PATIENCE if COVERAGE and what == "computing" else 2
        assert program.end(how) == 7 and time.monotonic() - before < limit, program.said()
        said = program.said()
        after = "after a signal" if how.startswith("SIG") else "after"
        assert said.endswith(after + "\nclosed\nat exit\n"), said
        assert bool(re.search(r"abandoned.*\b2\b", said)) == (tool == "busy")
        assert "Traceback" not in said and "Fatal" not in said, said


@parametrize("before, status", [
    ("", -signal.SIGTERM),  # a second one, later than LEAVE_SECONDS
    ("signal.raise_signal = sys.exit", signal.SIGTERM),  # so that coverage is saved
    ("signal.signal(signal.SIGINT, lambda *_: sys.exit(5))", 5)])
def test_a_later_signal_ends_the_program(before, status):
    with Program(-1, before) as program:
        program.call("do", what="read")
        assert program.end("SIGINT") == status


def test_the_log_of_a_failure_begins_with_the_authors_frame(capsys):
    server = mcp.Server("s")
    server.tool(lambda text: json.loads(text), name="parse")
    server.prompt(lambda: json.loads("{"), name="parse")
    assert server.call("parse", text="{")["isError"] and ask(server, "prompts/get", name="parse")
    said = capsys.readouterr().err
    frame = re.search(r'File "([^"]+)", line \d+, in (\S+)', said)
    assert said.count("JSONDecodeError:") == 2, said
    assert hasattr(sys, "pypy_version_info") or frame.groups() == (__file__, "<lambda>"), said


# ---- the command line

def command(*words: str, text: str = "", cwd="/", seconds=3 * PATIENCE):
    """Run the module as a program: by -m, which keeps its bytecode."""
    return subprocess.run(
        [sys.executable, "-W", "error", *words], input=text, text=True, capture_output=True,
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)}, timeout=seconds,
        check=False)


@contextlib.contextmanager
def listening(*words):
    """Start a program that serves HTTP; yield its process and its URL."""
    with subprocess.Popen([sys.executable, *words, "--http", "0"], text=True, stdin=-3, stdout=-1,
                          stderr=-2) as process:
        try:
            found = (re.search(r"http://\S+", line) for line in iter(process.stdout.readline, ""))
            yield process, next(filter(None, found))[0]
        finally:
            process.kill()


# Both kinds of file print before anything else.
TOOL = ("import os, sys\nos.system('echo x')\nprint('y')\nfrom mcp_ref import Server\n"
        "server = Server('s')\n@server.tool\ndef a(): 'A.'\n")
FUNCTIONS = ("from beside import *\nfrom os.path import join\nimport asyncio\nprint('y')\n"
             "def g(x: int):\n    'G.'\n    asyncio.run(None)\n"
             "def _h(): 'H.'\nclass C: pass\ni = len\n")
MAIN = "if __name__ == '__main__':\n    "


@parametrize("name, source, status, tools", [
    ("", "", 0, "echo"),
    # A program is run to its end; if it has not served by then, its server is served.
    *[("given.py", TOOL + more, status, "a") for more, status in (
        ("", 0), (MAIN + "server.run()\n    sys.exit(3)", 3), ("def b(): 'Not a tool.'", 0),
        ("assert Server.run.__name__ == 'run' and sys.argv == [__file__]", 0))],
    ("given.py", "from beside import server\nserver.run()", 0, "other"),
    *[("given.py", TOOL + more, status, "") for more, status in (
        ("sys.exit(4)", 4), ("1 / 0", 1), ("def main(): mcp_ref.Endpoint(server)", 2),
        ("def main(): mcp_ref.serve_http(server)", 2),
        ("def main(): server.run(authorize=print)", 2))],  # or else anyone might call
    # Public functions are served; the file is imported, under its own name.
    *[(name, FUNCTIONS + MAIN + "1 / 0", 0, "g") for name in (
        "given.py", "json.py", "time.py", "my.server.py")]])
def test_a_file_is_served_or_else_a_demo(name, source, status, tools, tmp_path):
    (tmp_path / "beside.py").write_text(TOOL.replace("a()", "other()"))
    (tmp_path / (name or "x")).write_text(source)
    words = ["-m", "mcp_ref", "serve", str(tmp_path / name)] if name else [str(MCP_REF)]
    done = command(*words, text=json.dumps(modern("tools/list")))
    assert done.returncode == status and bool(done.stdout) == bool(tools), done.stderr
    assert not tools or sorted(
        tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]) == tools.split()


@needs_posix
@parametrize("number, status", [(signal.SIGINT, 0), (signal.SIGTERM, 3)])
def test_a_served_program_keeps_its_options_and_its_cleanup(number, status, tmp_path):
    (tmp_path / "given.py").write_text(TOOL + MAIN + """
    try:
        server.run(authorize=lambda headers: None)
    finally:
        print("closed", *sys.argv[1:], flush=True)
    """ + "sys.exit(3)" * bool(status))
    with listening(MCP_REF, "serve", tmp_path / "given.py") as (child, url):
        port = int(re.search(r"//127\.0\.0\.1:(\d+)/", url)[1])
        assert exchange(port, "POST", "/mcp", {})[0] == 401
        child.send_signal(number)
        assert child.wait(PATIENCE) == status
        assert child.stdout.read().endswith("closed --http 0\n")


@parametrize("words, keyword", [
    ("nonsense", "nonsense"), ("serve", "missing"),
    ("serve none.py", "none.py"), ("serve text.txt", "text.txt"), ("serve empty.py", "empty.py"),
    ("--http", "PORT"), ("--http 127.0.0.1:99999", "PORT"), ("serve run.py --http x", "PORT"),
    *[("gateway.py " + words, keyword) for words, keyword in (
        ("none.json", "none.json"), ("gateway.json --http x", "PORT"),
        ("gateway.json --profile x", "one of all"), ("gateway.json --http 192.0.2.1:0", "192."))]])
def test_a_wrong_command_line_is_named(words, keyword, tmp_path):
    for name, source in (("empty.py", "_x = len"), ("text.txt", TOOL),
                         ("run.py", "import mcp_ref; server = mcp_ref.Server('s')")):
        (tmp_path / name).write_text(source)
    configure(tmp_path, {"servers": {"x": X}})
    program = GATEWAY[1:] if words.startswith("gateway.py") else ["-m", "mcp_ref"]
    done = command(*program, *words.replace("gateway.py ", "").split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert keyword in done.stderr, done.stderr


def test_help_version_and_tables(tmp_path):
    assert "serve FILE.py" in command("-m", "mcp_ref", "--help").stdout
    ours, other = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (MCP_REF, MCP_CLIENT))
    assert mcp.__version__.endswith(".dev") or ours in README and other in README
    shown = f"mcp_ref {mcp.__version__} sha256:{ours}\n"
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as archive:
        archive.write(MCP_REF, "__main__.py")
    for words in (["-m", "mcp_ref"], [str(tmp_path / "it.zip")]):
        assert command(*words, "--version").stdout == shown
    lines = command("-m", "mcp_ref", "tables").stdout.splitlines()
    head = next(line for line in lines if all(date in line for date in ORDER))
    for table in (mcp.METHODS, mcp.NOTIFICATIONS, mcp.FEATURES, mcp.ERRORS):
        for key, row in table.items():
            (line,) = [one for one in lines if re.match(rf"\s*{re.escape(str(key))}(\s|$)", one)]
            old = getattr(row, "deprecated", "") or "9999"
            assert [line[head.index(date):][:10].strip() for date in ORDER] == [
                "" if not exists(row, date) else "deprecated" if date >= old else "yes"
                for date in ORDER], line


def test_the_import_is_lean_and_nothing_needs_urllib(monkeypatch):
    done = command("-S", "-c", "import sys, mcp_ref; print(*sorted(sys.modules))")
    assert "mcp_ref" in done.stdout and not {*done.stdout.split()} & {
        "http.server", "socket", "subprocess", "asyncio", "logging", "dataclasses", "urllib",
        "inspect"}, done
    assert all(hasattr(mcp, name) for name in mcp.__all__)
    for name in ("urllib", "urllib.parse"):
        monkeypatch.setitem(sys.modules, name, None)
    server = fixture(Stage())
    assert ask(server, "resources/read", uri="test://text")["contents"][0]["text"] == "hello"
    schema = {"$ref": "#/$defs/%C3%A9%25", "$defs": {"\xe9%": INT}}
    assert mcp.Schema(schema).flaw(1) is None and mcp.Schema(schema).flaw("")


# ---- random bytes, and everything at once

def test_random_bytes_never_silence_the_next_line():
    dice = random.Random(20261121)
    good = [mcp.encode(one) for one in (
        modern("ping"), modern("tools/list", "1"), modern("tools/call", name="do", arguments={}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})]
    with Program() as program:
        for number in range(1000):
            line = bytearray(dice.choice(good))
            place = dice.randrange(len(line))
            line[place:place + dice.choice([1, 1, 20, 500])] = dice.choice([
                b"", b"null", b'{"a":', b"[", b'"\\ud800"', b"1e999", b'"', b"}", b"\xe2\x80\xa8",
                bytes(dice.randrange(256) for _ in range(dice.randrange(40)))])
            program.stdin.write(bytes(line).replace(b"\n", b" ") + b"\n" + mcp.encode(
                modern("prompts/list", f"p{number}")))
            assert any(program.read().get("id") == f"p{number}" for _ in range(2)), line
        program.stdin.write(mcp.encode(modern("prompts/list", "last")).rstrip())
        program.stdin.close()  # a last line needs no line end
        assert program.read()["id"] == "last" and program.end() == 7


def test_a_storm_leaves_nothing_behind():
    def counts() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/dev/fd")) if POSIX else 0
    def storm(seed: int):
        dice = random.Random(seed)
        for kind in [dice.random() for _ in range(10)]:
            text = "x" * dice.choice([1, 100, 100000])
            if kind < 0.2:
                with socket.create_connection(("127.0.0.1", httpd.server_port)) as link:
                    link.sendall(GOOD[:dice.randrange(len(GOOD))])
                continue
            target = httpd.url if kind < 0.95 else [sys.executable, "-m", "mcp_ref"]
            with client.connect(target, timeout=PATIENCE, cwd=str(MCP_REF.parent),
                                revision=dice.choice(ORDER[:4])) as one:
                assert one.call_tool("echo", {"text": text})["content"][0]["text"] == text
                if kind < 0.95:
                    with one.listen(["tools"]) as changes:
                        server.changed("tools")
                        assert next(iter(changes)) == "tools"
                if kind < 0.95 and one.modern:  # a session might be cancelled too soon
                    with contextlib.suppress(TimeoutError):
                        one.call_tool("slow", {"gate": str(dice.random())}, timeout=0.02)
    server = fixture(Stage())
    with limits(MAX_SESSIONS=20), http_serving(server) as httpd:
        client.connect(httpd.url).close()
        before = counts()
        for one in [begin(storm, seed) for seed in range(8)]:
            one.result()
        for _ in range(int(50 * PATIENCE)):
            if any(map(operator.gt, counts(), before)):
                threading.Event().wait(0.02)
        assert not any(map(operator.gt, counts(), before)), (counts(), before)


# ======== HTTP: design.md §9

class Exchanges(Memory):
    """Plays lines about single HTTP exchanges, which the scripts of the runner do not show:

        session s 2025-06-18                    open a session; {s} is its id
        POST s ping -> 200 WORDS                a request of it, the status, what the answer has
        POST - Name=1|2 /path {raw} -> 400      of no session, with each value; `modern` for `-`
        a = GET s / a < WORDS / a <* WORDS      open a stream; its next message / one further on
        a event WORDS / a ends / a hangs up     its next event, whatever it is / end / client
        until LINE / name X TEXT / close        repeat until it holds / define {X} / end the server
    A verb, path, header or stream may be several, with `|` between them. WORDS are separated by `&`
    and looked for in headers and body, or in the JSON of an event; `!` stands before one that must
    be absent. `Name=~` takes a header away; %20 is a space in one. {a} is the id of the last event
    of a stream, {endpoint} the data of its `endpoint` event, {id} the id of the last message,
    {session} the last session, {INIT} the params of `initialize`. All have the progress token 0.
    """
    def __init__(self, talk: Talk):
        super().__init__(talk)
        options = dict(talk.options.get("endpoint", {}))
        if "keys" in talk.options:
            options["authorize"] = mcp.bearer({"ann": "ann", "bob": "bob"}, header="X-Key")
        self.httpd = talk.stack.enter_context(http_serving(self.server, **options))
        self.port = self.httpd.server_port
        self.sessions, self.streams = {"-": {}, "modern": {}}, {}
        self.names, self.act = talk.names, self.play
        self.names["INIT"] = json.dumps({"protocolVersion": "2025-06-18", "capabilities": {
            "roots": {}, "elicitation": {}}, "clientInfo": {"name": "c", "version": "1"}})

    def play(self, verb: str, rest: str):
        several = next((word for word in [verb, *rest.split(" ")] if "|" in word), None)
        if several:
            name, values = re.fullmatch("([A-Z][A-Za-z-]+=)?(.*)", several).groups("")
            for value in values.split("|"):
                self.talk.play(f"{verb} {rest}".replace(several, name + value, 1))
        elif verb == "until":
            for _ in range(int(PATIENCE / 0.01)):
                with contextlib.suppress(AssertionError):
                    return self.talk.play(rest)
                threading.Event().wait(0.01)
            self.talk.play(rest)
        elif rest.startswith("= "):
            method, path, headers, body = self.request(*rest[2:].split(" ", 1))
            headers["Connection"] = "keep-alive"  # so that a stream must end by itself
            connection = request_to(self.port, method, path, headers, body)
            self.talk.stack.callback(connection.close)
            answer = connection.getresponse()
            self.streams[verb] = connection, answer
            kind = [answer.getheader(name) for name in ("Content-Type", "X-Accel-Buffering")]
            assert (answer.status, kind) == (200, ["text/event-stream", "no"]), answer.read()
        elif verb in self.streams:
            self.read_event(verb, *rest.partition(" ")[::2])
        elif " -> " in rest:
            request, _, wanted = rest.partition(" -> ")
            code, _, words = wanted.partition(" ")
            status, headers, body = exchange(self.port, *self.request(verb, request))
            self.names["session"] = headers.get("mcp-session-id", self.names.get("session"))
            body = body.decode() if isinstance(body, bytes) else json.dumps(body)
            assert code == str(status), f"expected {code}, came {status}: {body:.900}"
            self.check(words, f"{json.dumps(headers)} {body}")
        elif verb == "session":
            name, version = rest.split(" ")
            initialize = self.names["INIT"].replace("2025-06-18", version)
            self.talk.play(f"POST - initialize {initialize} -> 200 mcp-session-id & {version}")
            ident = self.names[name] = self.names["session"]
            assert re.fullmatch("[!-~]{32,}", ident)
            self.sessions[name] = {"Mcp-Session-Id": ident}
            self.talk.play(f"POST {name} notifications/initialized -> 202 !content-type")
        elif verb == "name":
            self.names.update([rest.split(" ", 1)])
        elif verb == "close":
            self.httpd.close()
        else:
            self.stage.act(self.server, verb, rest)

    def check(self, words: str, text: str):
        for word in words.split(" & "):
            found = not word or word.lstrip("!") in text
            assert found is not word.startswith("!"), f"{word} is not true of {text:.900}"

    def request(self, verb: str, line: str):
        """Return verb, path, headers and body."""
        who, named, path, body = re.fullmatch(
            r"(\S+)((?: [A-Z][\w-]+=\S*)*)(?: (/\S*))?(?: (.*))?", line).groups("")
        message = {}
        if body and body[0] not in "{[":
            method, _, params = body.partition(" ")
            params, meta = json.loads(params or "{}"), modern("")["params"]["_meta"]
            params["_meta"] = {**(meta if who == "modern" else {}), "progressToken": 0,
                               **params.get("_meta", {})}
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
        fields = next((one for one in events if verb == "event" or one.get("data")
                       and (verb != "<*" or words in one["data"])), {})
        assert bool(fields) is (verb != "ends"), f"the stream has {fields or 'ended'}"
        data = fields.get("data", "")
        ident = re.search(r'"id": ?("\w*"|\d+)', data)
        self.names.update({label: fields.get("id", self.names.get(label)), "id": ident and ident[1],
                           fields.get("event", ""): data})
        return self.check(words, json.dumps(fields).replace('\\"', '"'))


WIRES["exchanges"] = Exchanges, None
EXCHANGES = "bare | line: exchanges"


def exchanges(**options):
    """Hold a conversation of such lines."""
    return talk(MODERN[0], "http", bare="", line="exchanges", **options)


test_http = scripts(r'''
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
== connections are limited | limits: {"MAX_CONNECTIONS": 1}
a = POST modern subscriptions/listen {"notifications": {}}
until POST - ping -> 503 "retry-after": "1"
a hangs up
until POST - ping -> 200
''', "on: http modern | " + EXCHANGES)

test_http_sessions = scripts(r'''
== statuses with and without a session; only the answer to `initialize` has an Mcp-Session-Id
session s 2025-06-18
POST - tools/list -> 400 {INVALID_PARAMS} & initialize & "id": 1 & !mcp-session-id
POST - [{INIT}] -> 400 {INVALID_REQUEST} & !mcp-session-id
POST s [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] -> 400 {INVALID_REQUEST}
POST s nobody -> 200 {METHOD_NOT_FOUND} & !mcp-session-id
POST s MCP-Protocol-Version=2026-07-28 ping -> 400 !mcp-session-id
POST - MCP-Protocol-Version=1999 initialize {INIT} -> 400
POST s { -> 400 {PARSE_ERROR} & !"id"
PUT s -> 405 GET, POST, DELETE
POST s :tell {"method": "n/x"} -> 200 n/x & "2025-06-18"
== the longest unused session is forgotten | limits: {"MAX_SESSIONS": 2, "MAX_THREADS": -999}
session a 2025-11-25
session b 2025-11-25
POST a ping -> 200
session c 2025-11-25
POST b ping -> 404
POST - initialize {"protocolVersion": 1} -> 400 {INVALID_PARAMS} & !mcp-session-id
POST a|c ping -> 200
POST a /mcp/messages ping -> 503
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
== without sessions | endpoint: {"stateless": true}
POST - initialize {INIT} -> 200 serverInfo & !mcp-session-id
POST - notifications/initialized -> 202
POST - nobody -> 200 {METHOD_NOT_FOUND}
name tell :tell {"method": "x"}
POST - {tell} -> 200 "2025-03-26"
POST - MCP-Protocol-Version=2025-11-25 {tell} -> 200 "2025-11-25"
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
== the oldest events are forgotten, and changes summed up | limits: {"REPLAY_BYTES": 300}
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
b hangs up
changed tools|tools|tools|tools|tools
c = GET s Last-Event-ID={b}
c <* resources/list_changed
c < test://text
== the answers to a batch may be too large only together | limits: {"MAX_MESSAGE_BYTES": 3000}
session s 2025-03-26
a = POST s [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "steps",
    "_meta": {"progressToken": 1}}}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}]
a <* {INTERNAL_ERROR}
a ends
== HTTP+SSE beside another path | endpoint: {"path": "/a/mcp"} | limits: {"REPLAY_BYTES": 200}
a = GET - /a/sse
a event "data": "mcp/messages?session_id=
GET - /sse -> 404
POST - /a/{endpoint} initialize {INIT} -> 202
POST - /a/{endpoint} :talk -> 202
a <* said
== HTTP+SSE on the endpoint itself; large answers | server: core | endpoint: {"sse_on_get": true}
a = GET -
a event "event": "endpoint" & "mcp/messages?session_id=
POST - /{endpoint} initialize {INIT} -> 202 !content-type
a < serverInfo
POST - /{endpoint} :big -> 202
name other {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "big"}}
POST - /{endpoint} {other} -> 202
a|a < xxxx
POST modern MCP-Protocol-Version=~ /{endpoint} subscriptions/listen {"notifications": {
    "toolsListChanged": true}} -> 202
changed tools
a <* list_changed
a hangs up
until POST - /{endpoint} ping -> 404
GET - MCP-Protocol-Version=2025-11-25 -> 405
''', "on: http 2025-11-25 | " + EXCHANGES)

HTTP_PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GOOD = POST + b"Content-Length: 45\r\n\r\n" + HTTP_PING
LAST = GOOD.replace(b"Host", b"Connection: close\r\nHost")
TALK = GOOD.replace(b"45", b"79").replace(b'ping"', b'tools/call", "params": {"name": "talk"}')
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"2D\r\n" + HTTP_PING + b"\r\n0\r\n\r\n"


def send_http(site: Talk, data: bytes) -> str:
    """Send bytes; return what comes until the server closes."""
    with socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as connection:
        connection.sendall(data)
        return connection.makefile("r").read()


FRAMES = [  # what is sent; the statuses of the answers to it and to LAST behind it
    (GOOD + b"\r\n" + GOOD, "200 200 200"),
    (TALK.replace(b"1.1", b"1.0"), "200"),
    (CHUNKED + b"4;a=b\r\n    \r\n2D\r\n" + HTTP_PING + b"\r\n0\r\nX: y\r\n\r\n", "200 200"),
    (GOOD.replace(b"Host", b"Expect: 100-Continue\r\nHost"), "100 200 200"),
    (POST + b"X: " + b"y" * 60000 + b"\r\nY: " + b"y" * 60000 + b"\r\n\r\n", "431"),
    (GOOD.replace(b"1.1", b"1.0").replace(b"Host", b"Expect: 100-continue\r\nHost"), "200"),
    (GOOD.replace(b"/mcp", b"HTTP://LocalHost/mcp").replace(b"127.0.0.1", b"evil"), "200 200"),
    (GOOD.replace(b"/mcp", b"http://evil/mcp"), "403"),
    (CHUNKED.replace(b"1.1", b"1.0") + CHUNK, "400"),
    *[(CHUNKED.replace(b"chunked", head) + CHUNK, "400") for head in (
        b"gzip, chunked", b"x", b"chunked\r\nTransfer-Encoding: chunked",
        b"chunked\r\nContent-Length: 45")],
    *[(head + b"\r\n\r\n", "400") for head in (
        b"nonsense", b"GET /mcp", b"GET /mcp HTTP/9.9", b"POST /mcp HTTP/1.1")],
    *[(head + b"\r\n\r\n", "431") for head in (
        b"POST /" + b"m" * 70000 + b" HTTP/1.1\r\nHost: 127.0.0.1",
        POST + b"X: y\r\n" * 200, POST + b"X: " + b"y" * 70000)],
    *[(POST + head + b"\r\n\r\n", "400") for head in (
        b"Content-Length: 0\r\nContent-Length: 4", b"Content-Length: 4\r\nContent-Length: 4",
        b"Content-Length: -1", b"Content-Length: 5, 5", b"Content-Length: ", b"Content-Length: 4_5",
        b"Content-Length : 45", b" Content-Length: 45", b"foo\r\nContent-Length: 45",
        b"Content-Length: +5", b"Host: evil",
        b"X\0: a", b"X\xe4: a", b"X: a\0b", b"X: a\rContent-Length: 45", b": a",
        b"Mcp-Method: a\r\nMcp-Method: b", b"Mcp-Session-Id: a\r\nMcp-Session-Id: a",
        b"Authorization: a\r\nAuthorization: b")],
    *[(CHUNKED + body, "400") for body in (
        b"xyz\r\n", b"-5\r\nabc", b"+2d\r\n", b"0x2d\r\n", b"3\r\nabcd\r\n0\r\n\r\n",
        b"5\nabcde\r\n0\r\n\r\n", b"0\r\n" + b"X" * 2000 + b":\r\n\r\n")],
    (CHUNKED + b"ffffffff\r\n", "413"),
    (CHUNKED + b"%x\r\n%b\r\n2\r\n" % (mcp.MAX_MESSAGE_BYTES, b" " * mcp.MAX_MESSAGE_BYTES), "413"),
    # The answer arrives although the body is still being sent.
    (POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n" + b"[" * 2**23, "413"),
]


@parametrize("sent, statuses", FRAMES, ids=range(len(FRAMES)))
def test_no_request_hides_in_another(capfd, sent, statuses):
    with exchanges(endpoint={"stateless": True}) as site:
        found = re.findall(r"HTTP/1.1 (\d{3}) ", send_http(site, sent + LAST))
    assert " ".join(found) == statuses, f"{sent[:300]} (the last answers LAST)"
    assert "Traceback" not in capfd.readouterr().err


def test_http_is_traced_without_tokens_and_a_refusal_is_logged(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MCP_TRACE", str(tmp_path / "trace"))
    secret = TALK.replace(b"Host", b"Authorization: secret\r\nMcp-Name: n\r\nHost")
    with exchanges(endpoint={"stateless": True}) as site:
        send_http(site, secret + LAST.replace(b"127.0.0.1", b"evil.example"))
    sent, head, *events, refusal = map(json.loads, (tmp_path / "trace").read_text().splitlines())
    assert (sent["way"], sent["http"], sent["mcp-name"]) == (">", "POST /mcp", "n")
    assert (sent["message"]["id"], head["status"], "secret" in str(sent)) == (1, 200, False)
    assert {one["on"] for one in events} == {sent["on"]} and "result" in str(events)
    assert refusal["status"] == 403 and " 403 {" in capfd.readouterr().err


def test_a_connection_that_waits_for_a_request_makes_room():
    with exchanges(server="empty", limits={"MAX_CONNECTIONS": 1}) as site, \
            socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link:
        ended = begin(link.recv, 1)
        while not ended.done():
            send_http(site, LAST)
        assert ended.result() == b""


@parametrize("sent, more", [  # then `more`, again and again
    (b"POST /mcp HTTP/1.1\r\nX: ", b"y"), (POST + b"Content-Length: 9999\r\n\r\n", b" "),
    (CHUNKED + b"fff\r\n", b" "), (CHUNKED, b"1\r\n \r\n")])
def test_slow_requests_have_a_time_in_all_and_keep_nobody_out(sent, more):
    limits = {"SEND_SECONDS": 0.2, "MAX_CONNECTIONS": 1}
    with exchanges(server="empty", limits=limits) as site, \
            socket.create_connection(("127.0.0.1", site.line.port)) as link:
        link.sendall(sent)
        with pytest.raises(OSError):  # it is hung up
            for _ in range(int(PATIENCE / 0.02)):
                link.sendall(more)
                threading.Event().wait(0.02)
        assert send_http(site, LAST).startswith("HTTP/1.1 200 ")


LONG = "test://" + "x" * 40000
LISTEN = ('POST modern subscriptions/listen {"notifications": {"promptsListChanged": true, '
          f'"resourceSubscriptions": ["{LONG}"]}}}}')


@parametrize("line, first, what, fewest", [
    ("GET s", b" 200 ", "tools", 20000), (LISTEN, b"acknowledged", LONG, 1)], ids=["GET", "POST"])
def test_a_stream_that_is_read_late_holds_up_nobody_and_loses_nothing(line, first, what, fewest):
    with exchanges(limits={"REPLAY_BYTES": 10**7}) as site, socket.socket() as late:
        site("session s 2025-06-18")
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.connect(("127.0.0.1", site.line.port))
        late.settimeout(PATIENCE)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = late
        verb, path, headers, body = site.line.request(*line.split(" ", 1))
        connection.request(verb, path, body, headers)
        lines, change = late.makefile("rb"), site.line.server.changed
        assert any(first in line for line in lines)
        changes = [what] * max(fewest, 900) + ["prompts"]
        begin(list, map(change, changes)).result(PATIENCE)
        came = itertools.takewhile(lambda line: b"prompts/" not in line and line != b"0\r\n", lines)
        assert sum(b"_changed" in line or b"/updated" in line for line in came) >= fewest


def test_a_client_that_leaves_while_it_is_asked_holds_no_socket():
    with exchanges() as site:
        site("session s 2025-11-25")
        site("a = POST s :ask")
        site("a <* elicitation")
        assert all(one.daemon for one in threading.enumerate() if one.name.startswith("mcp-"))
        site.line.streams["a"][0].sock.shutdown(socket.SHUT_WR)
        with pytest.raises(http.client.IncompleteRead):
            site.line.streams["a"][1].read()


@needs_posix
def test_sigterm_lets_a_running_call_end_and_the_program_go_on():
    code = (f"import os, signal, sys, time; sys.path.insert(0, {str(MCP_REF.parent)!r})\n"
            "import mcp_ref as mcp\n"
            "def nap():\n    for _ in range(20):\n"
            "        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(0.02)\n"
            "server = mcp.Server('s')\nserver.tool(nap)\nserver.run()\nsys.exit(7)")
    with listening("-c", code) as (child, url):
        call, port = modern("tools/call", name="nap"), int(re.search(r":(\d+)", url)[1])
        headers = {**headers_of(call), "Connection": "keep-alive"}
        status, headers, _ = exchange(port, "POST", "/mcp", headers, mcp.encode(call))
        assert (status, headers["connection"], child.wait(PATIENCE)) == (200, "close", 7)


def test_bearer_tokens_and_principals(capfd):
    answers = {"object": object(), "none": None, "false": False, "zero": 0, "empty": "",
               "list": [1], "one": 1, "true": True}
    def hook(headers: dict):
        if headers["x-who"] == "refused":
            raise mcp.HttpError(403, "no", {"X-Why": "a\r\nInjected: b"})
        return answers[headers["x-who"]]
    with exchanges(endpoint={"authorize": hook}) as site:
        site("POST - X-Who=none|false ping -> 401")
        site("POST - X-Who=zero|empty|list ping -> 200")
        site("POST - X-Who=one initialize {INIT} -> 200")
        site("POST - X-Who=true Mcp-Session-Id={session} ping -> 404")
        site('POST - X-Who=refused ping -> 403 x-why & !"injected"')
        site("POST - ping -> 500 {INTERNAL_ERROR} & !x-who")
        site("POST - X-Who=object ping -> 500")
    assert "JSON value" in capfd.readouterr().err
    bearer = mcp.bearer({"good": "ann"}, metadata_url="https://m")
    with exchanges(endpoint={"authorize": bearer}) as site:
        site('POST - ping -> 401 www-authenticate": "Bearer & https://m')
        site("POST - Authorization=Bearer%20bad|Basic%20good|good|Bearer%20 ping -> 401")
        site("POST - Authorization=Bearer%20good|bearer%20good ping -> 200")


def test_a_mounted_endpoint_says_when_to_hang_up():
    with exchanges(limits={"REPLAY_BYTES": 200}) as site:
        def serve(verb, line, body=None, write=None):
            verb, path, headers, data = site.line.request(verb, line)
            headers.update({"Content-Length": str(len(data or "")), "Host": "localhost"})
            one = mcp.Exchange(verb, path, headers.items(), body or io.BytesIO(data))
            one.start, one.write, one.end = mock.Mock(), mock.Mock(side_effect=write), mock.Mock()
            site.line.httpd.endpoint.serve(one)
            return one
        site("session s 2025-11-25")
        one = serve("POST", 's tools/call {"name": "later"}')
        assert one.end.mock_calls == [mock.call(True)] and one.ready() and not one.gone()
        one = serve("POST", "s ping", mock.Mock(**{"read.side_effect": OSError}))
        assert one.start.call_args[0][0] == 408
        site("changed tools")
        left, change = iter([None] * 50), "changed tools|tools|tools|tools"
        one = serve("GET", "s", None, lambda _: next(left) or site(change))
        assert one.end.mock_calls == [mock.call()]
        site("close")
        serve(*LISTEN.split(" ", 1))  # ends at once


def test_http_is_served_on_any_thread_and_at_its_own_addresses():
    endpoint = mcp.Endpoint(mcp.Server("s"))
    endpoint.close()
    begin(mcp.serve_http, endpoint.server, port=0, endpoint=endpoint).result(PATIENCE)
    with pytest.raises(SystemExit, match="192.0.2.1"):
        endpoint.server.run(["--http", "192.0.2.1:0"])


# ======== The client: design.md §10. First: which era the server speaks

SESSION = '''> initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}}
< {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}, "serverInfo": {"name": "s"}}
> - notifications/initialized
returns {"modern": false, "version": "{VERSION}", "server_info": {"name": "s"}}'''


test_client_finds_the_era = scripts((each(r'''
== the probe gets @2 | bare | on: @1 2025-11-25
call connect
> server/discover
@2
@3
''', r'''
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
''') + each(r'''
== revision @1 is wanted, @3 raises @4 | bare | on: memory 2025-11-25
call connect {"revision": "@1"}
@2 => @3
raises @4
''', r'''
2026-07-28 | server/discover | error {METHOD_NOT_FOUND} | Disconnected 2026-07-28
2025-11-25 | initialize | {"protocolVersion": "2025-06-18", "capabilities": {}} | Disconnected 2025
2025-11-25 | initialize | {"protocolVersion": 5, "capabilities": {}} | Malformed protocolVersion
2025-11-25 | initialize | error {INTERNAL_ERROR} broken | RpcError broken
''') + r'''
== a site that knows nothing of MCP | bare | on: http 2025-11-25
call connect {"revision": "{VERSION}"}
> initialize
<< 404 {} no
raises HttpError 404
== `initialize` has a timeout | bare | on: pipe 2025-11-25 | connect: {"timeout": 0.05}
call connect {"revision": "{VERSION}"}
> initialize
raises TimeoutError initialize
== a modern server that refuses its version is asked once more | bare | on: memory http modern
call connect
> server/discover {"_meta": {"{META}protocolVersion": "{VERSION}",
    "{META}clientCapabilities": {}, "{META}clientInfo": {"name": "*", "version": "*"}}}
< error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["{VERSION}"], "requested": "x"}
server/discover => {"supportedVersions": ["1999-01-01", "{VERSION}"],
    "capabilities": {"tools": {}}, "instructions": "Gently.",
    "_meta": {"{META}serverInfo": {"name": "s", "version": "1"}}}
returns {"modern": true, "version": "{VERSION}", "server_info": {"name": "s"},
    "instructions": "Gently.", "capabilities": {"tools": {}}, "closed": false}
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
''' + each(r'''
== after @1 @2, a lost session is opened anew | on: http 2025-11-25
call list_prompts
> prompts/list
<< @1 {} @2
initialize => {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}}
> - notifications/initialized
prompts/list => {"prompts": []}
returns []
''', "404 | gone\n400 | no session") + r'''
== an error of status 400 is no lost session, whatever it says | on: http 2025-11-25
call list_prompts
> prompts/list
<< 400 {} {"jsonrpc": "2.0", "id": "x", "error": {"code": -32602, "message": "session"}}
raises HttpError session
''').replace("@SESSION", SESSION), "client")

# ---- methods: what is sent, and what becomes of the result

test_client_methods = scripts(each(r'''
== call @1 | on: @5
call @1
@2 => @3
returns @4
''', r'''
complete git:commit name a | completion/complete {"argument": {"name": "name", "value": "a"},
    "ref": {"type": "ref/prompt", "name": "git:commit"}, "context": null} |
    {"completion": {"values": ["ada"]}} | ["ada"] | memory http
complete a://{b} b c {"k": "v"} | completion/complete {"context": {"arguments": {"k": "v"}},
    "ref": {"type": "ref/resource", "uri": "a://{b}"}} | {"completion": {"values": []}} | [] |
    memory 2025-06-18..
ping | ping | {} | null | memory http legacy
ping | server/discover | {"supportedVersions": [], "capabilities": {}} | null | memory http modern
''') + each(r'''
== @2 fails its call only | on: @1 modern | connect: {"elicit": {}, "sample": null}
call get_prompt p
> prompts/get
@2
raises @3
call list_prompts
prompts/list => {"prompts": []}
returns []
''', r'''
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
http | << 302 {"Location": "http://localhost:1/mcp"} | HttpError another origin
'''), "client")

WRONG = r'''
list_tools | tools/list | {"tools": {}} | {"tools": [{}]} | {"tools": [], "nextCursor": 5}
list_resources | resources/list | {"resources": "x"} | {"resources": [{"uri": "x:y"}]}
list_resource_templates | resources/templates/list | {"resourceTemplates": [{"name": "n"}]}
call_tool x | tools/call | {"content": "text"} | {"content": {}}
read_resource x:y | resources/read | {"contents": [3]} | {"contents": [{"text": "no uri"}]}
get_prompt x | prompts/get | {"messages": 3}
complete x y z | completion/complete | {"completion": []} | {"completion": {"values": [3]}}
'''
test_client_malformed = scripts("".join(
    f"== a wrong result of {method} | on: memory 2025-11-25 modern\n" + "".join(
        f"call {call}\n> 1 {method}\n< 1 {result}\nraises Malformed\n"
        for result in [*results, "{}", "[]", '"x"', "3", "null"])
    for call, method, *results in (row.split(" | ") for row in WRONG.strip().splitlines())) + r'''
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
<< {"jsonrpc": "2.0", "id": "{ID:3}", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "id": {ID:3}, "result": {"tools": [{"name": "a", "inputSchema": {}}]}}
<< {"jsonrpc": "2.0", "id": {ID:3}, "result": {"tools": 3}}
returns [{"name": "a"}]
''', "client")

# ---- what a server asks, and what it announces

FORM = '{"message": "m", "requestedSchema": {"type": "object", "properties": {' \
    '"x": {"type": "string"}, "y": {"type": "integer", "default": 5}}}}'
PAGE = '{"mode": "url", "message": "m", "url": "https://example.org/", "elicitationId": "e"}'
test_client_answers = scripts((r'''
== questions of one round are answered together | on: memory http modern
    | connect: {"elicit": {"x": "v"}, "visit": true, "sample": "hi", "declare": {"x": {}},
    "roots": ["/a", "x://b", {"uri": "c:d"}]}
call get_prompt p
> prompts/get {"_meta": {"{META}clientCapabilities": {
    "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}, "x": {}}}}
< {"resultType": "input_required", "requestState": "s\u00e9", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM}, "b": {"method": "roots/list"},
    "c": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    "d": {"method": "elicitation/create", "params": @PAGE}}}
> prompts/get {"name": "p", "requestState": "s\u00e9", "inputResponses": {
    "a": {"action": "accept", "content": {"x": "v", "y": 5}},
    "b": {"roots": [{"uri": "@A"}, {"uri": "x://b"}, {"uri": "c:d"}]},
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
== who subscribes to nothing that the server has is told so | on: modern
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
call call_tool x timeout=0.05
> tools/call
< - notifications/message {"level": "info", "data": ""}
> - notifications/cancelled {"requestId": {ID}}
raises TimeoutError
''' + each(r'''
== in a session, the callbacks @1 give @3 | on: memory pipe 2025-11-25 | connect: @1
call list_prompts
prompts/list ? a @2 -> @3 => {"prompts": []}
returns []
''', r'''
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
{} | sampling/createMessage {"messages": [], "maxTokens": 1} | error {METHOD_NOT_FOUND}
{} | ping {} | {}
''')).replace("@FORM", FORM).replace("@PAGE", PAGE).replace("@A", Path("/a").absolute().as_uri()),
                              "client")

# ---- against a real server: callbacks, threads, cancellation, changes

played = functools.partial(parametrize, "version, carrier")


@contextlib.contextmanager
def connected(version: str, carrier: str, server, **options):
    """Connect to a server in this process."""
    with contextlib.ExitStack() as stack:
        if carrier == "http":
            server = stack.enter_context(http_serving(server)).url
            if version == LEGACY[-1]:
                server = server.replace("mcp", "sse")
        yield stack.enter_context(
            client.connect(server, revision=version, timeout=PATIENCE, **options))


@played(select("* memory http"))
def test_client_calls_back(version, carrier):
    server, steps, logs, heard = fixture(Stage()), [], queue.Queue(), queue.Queue()
    async def elicit(params, tag):
        return {"branch": str(tag)}
    with connected(version, carrier, server, elicit=elicit, log_level="emergency",
                   on_log=logs.put, on_notification=heard.put) as one:
        one.call_tool("steps", on_progress=lambda *step: steps.append(step))
        assert [step[:2] for step in steps] == [(0, 3), (1, 3), (2.5, 3)]
        assert steps[0][2] == "at 0"
        for level in ("emergency", "error"):
            one.call_tool("talk")
            assert logs.get(timeout=PATIENCE)["data"] == {"says": level}
            one.set_level("error")
        one.call_tool("tell", {"method": "notifications/x"})
        while heard.get(timeout=PATIENCE)["method"] != "notifications/x":
            pass
        server.changed("tools")
        assert one.modern or heard.get(timeout=PATIENCE)["method"].endswith("list_changed")
        wanted = "main" if exists(mcp.METHODS["elicitation/create"], version) else "failed"
        assert wanted in one.call_tool("ask", tag="main")["content"][0]["text"]


@played(select("memory http 2025-11-25 modern"))
@parametrize("way", ["cancel", "close"])
def test_client_gives_up_a_call(version, carrier, way):
    reached, sent = queue.Queue(), []
    with connected(version, carrier, fixture(Stage(reached.put))) as one:
        call = begin(one.call_tool, "slow", {"gate": "a"}, started=sent.append)
        assert reached.get(timeout=PATIENCE) == "a"
        (sent[0].cancel if way == "cancel" else one.close)()
        wanted = client.RequestCancelled if way == "cancel" else client.Disconnected
        assert isinstance(call.exception(PATIENCE), wanted)
        assert way == "close" or reached.get(timeout=PATIENCE) == "a passed"


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
            assert [begin(next, changes).result(PATIENCE) for _ in "12"] == ["test://text", "tools"]
            assert heard.get(timeout=PATIENCE) == "prompts"
            rest = begin(list, changes)
        assert rest.result(PATIENCE) == []  # its end ends the loop
        assert carrier == "http" or len(server.listeners) == 1


def test_client_answers_no_more_questions_than_its_limit():
    gate = threading.Event()
    with talk("2025-11-25", "http", client="yes", limits={"MAX_QUESTIONS": 1},
              connect={"roots": lambda tag: gate.wait(PATIENCE) and []}) as t:
        t("call list_prompts\n> 1 prompts/list\n< #a roots/list\n< #b roots/list\n"
          "< - notifications/x")
        gate.set()
        t('> #a {"roots": []}\n< 1 {"prompts": []}\nreturns []')


# ---- HTTP

BAD_HEADERS = ['{"name": "bad", "inputSchema": {"properties": {' + one + '}}},' for one in (
    '"a": {"type": "string", "x-mcp-header": ""}', '"a": {"type": "string", "x-mcp-header": "A B"}',
    '"a": {"type": "string", "x-mcp-header": "A\\r\\n"}',
    '"a": {"type": "number", "x-mcp-header": "A"}',
    '"a": {"items": {"type": "string", "x-mcp-header": "A"}}',
    '"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}')]


def test_client_repeats_arguments_in_headers():
    with talk(MODERN[0], "http", client="yes") as t:
        t('''
        call list_tools
        tools/list => {"tools": [''' + "".join(BAD_HEADERS) + '''{"name": "t", "inputSchema": {}}]}
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
        ''')
        assert not differences({
            "mcp-param-a": "=?base64?w7w=?=", "mcp-param-b": "true", "mcp-param-c": None,
            "mcp-method": "tools/call", "mcp-name": "t", "mcp-protocol-version": MODERN[0],
            "content-length": str(len(mcp.encode(t.line.asked[-1][2])) - 1)
            }, t.line.asked[-1][1])


JSON = {"Content-Type": "application/json", "Mcp-Session-Id": "s1"}
STREAM = http_answer(200, {**JSON, "Content-Type": "text/event-stream"}, None)


def answering(answer):
    """Make a Site; `answer` gets verb, headers, method and the text of a good response."""
    def play(verb: str, headers: dict, message):
        found = {"supportedVersions": MODERN, "capabilities": {"tools": {}, "prompts": {}},
                 "protocolVersion": "2025-11-25", "prompts": [], "resultType": "complete"}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}) \
            if "id" in message else ""
        return answer(verb, headers, message.get("method"), text)
    return contextlib.closing(Site(play))


@parametrize("end", ["\n", "\r\n", "\r"])
@parametrize("form", [
    "data: @\n\n", "data:@\n\n", "event: message\nid: 7\ndata: @\n\n", "\ufeffdata: @\n\n",
    ": comment\n\n:\nretry: 5\n\nretry: x\ndata: @\n\n", "what: x\ndatax: y\ndata: @\n\n",
    "event: other\ndata: {}\n\ndata: @\n\n", 'data: {\ndata\ndata: @1\n\n'])
def test_client_reads_events_cut_anywhere(form, end):
    dice, whole = random.Random(form + end), [True]
    def answer(verb: str, headers: dict, method: str, text: str):
        data = form.replace("@1", text[1:]).replace("@", text).replace("\n", end).encode()
        pieces = 1 if method == "prompts/list" else len(data)
        data = data if whole else data[:dice.randrange(len(data) - 1)]
        yield STREAM
        yield from (data[n:n + pieces] for n in range(0, len(data), pieces))
    with answering(answer) as site, client.connect(site.url) as one:
        assert one.list_prompts() == [] and one.modern
        whole.clear()
        for _ in range(40):  # the end of its stream ends the call
            with pytest.raises(client.Disconnected):
                one.list_prompts()


@parametrize("status", [301, 302, 307, 308])
def test_client_follows_redirects_and_resumes_in_time(status):
    later, broke = [], []
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
            yield http_answer(200 if text else 202, JSON, text)
    with limits(RETRY_SECONDS=9 * PATIENCE), answering(answer) as site:
        with client.connect(site.url, revision=LEGACY[0], timeout=PATIENCE) as one:
            assert one.list_prompts() == []
        assert [verb for verb, _, _ in site.asked] == ["POST"] * 4 + ["GET", "DELETE"]
        assert site.asked[4][1]["last-event-id"] == "1"
        assert all(headers["mcp-protocol-version"] == LEGACY[0] for _, headers, _ in site.asked[1:])
        assert all("json" in headers["accept"] and "text/event-stream" in headers["accept"]
                   for verb, headers, _ in site.asked if verb == "POST")
        assert {headers.get("mcp-session-id") for _, headers, _ in site.asked[1:]} == {"s1"}
        with pytest.raises(mcp.HttpError, match=str(status)):
            client.connect(site.url.replace("mcp", "end"))
    assert len(site.asked) == 6 + 8  # for the probe, and for `initialize`


@parametrize("granted, status", [
    ({"Authorization": "t"}, 401), (lambda *_: {"Authorization": "t"}, 403), (None, 401)])
def test_client_asks_authorize(granted, status):
    def answer(verb: str, headers: dict, method: str, text: str):
        yield http_answer(200, JSON, text) if headers.get("authorization") == "t" \
            else http_answer(status, {"WWW-Authenticate": "Bearer"})
    def authorize(refusal):
        assert refusal.status == status and refusal.headers["www-authenticate"] == "Bearer"
        return granted
    outcome = contextlib.nullcontext() if granted else pytest.raises(mcp.HttpError, match="401")
    with answering(answer) as site, outcome, client.connect(site.url, authorize=authorize) as one:
        assert one.list_prompts() == [] and len(site.asked) == 3


def test_client_falls_back_to_http_sse():
    with http_serving(fixture(Stage())) as httpd, \
            client.connect(httpd.url.replace("mcp", "sse"), timeout=PATIENCE) as one:
        assert one.version == "2025-11-25" and one.call_tool("add", {"a": 1})
        with limits(MAX_THREADS=-999), pytest.raises(mcp.HttpError, match="503"):
            one.ping()


# ---- processes, and the command line

def program_of(before: str, after: str) -> list[str]:
    """Make a program that does something, answers the probe (with WORDS) and does more."""
    return [sys.executable, "-I", "-S", "-c", f"""if True:
        import json, os, signal, subprocess, sys
        WORDS = ""
        {before}
        ident = json.loads(sys.stdin.readline())["id"]
        found = {{"resultType": "complete", "supportedVersions": {MODERN},
                 "capabilities": {{"tools": {{}}}}, "instructions": WORDS}}
        print(json.dumps({{"jsonrpc": "2.0", "id": ident, "result": found}}), flush=True)
        {after}"""]


def program(before: str, after: str, **options):
    return client.connect(program_of(before, after), **options)


@needs_posix
@parametrize("before, after, last", [
    ("subprocess.Popen(['sleep', '99'], pass_fds=[held])",
     "sys.stdin.read(); os.write(2, b'end\\n')", "end"),
    ("signal.signal(signal.SIGTERM, lambda *_: os.write(2, b'term\\n'))",
     "while True: signal.pause()", "term")])
def test_client_ends_a_server_and_its_children(before, after, last, tmp_path):
    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end, lines = begin((tmp_path / "held").read_bytes), []
    before = f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY); {before}"
    with limits(CLOSE_STEP_SECONDS=PATIENCE if last == "end" else 0.3), \
            program(before, after, stderr=lines.append):
        pass
    assert end.result(PATIENCE) == b"" and lines[-1] == last


@needs_posix
def test_client_and_processes_of_every_kind(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    with limits(CLOSE_STEP_SECONDS=0.05):
        with program("", "signal.pause()") as one, pytest.raises(TimeoutError):
            one.call_tool("x", {"text": "x" * 500000}, timeout=0.05)
        with program("WORDS = json.dumps([dict(os.environ), os.listdir('/dev/fd')])",
                     "sys.stdin.readline(); os.close(1); sys.stdin.read()", env={"A": "b"}) as one:
            environment, descriptors = json.loads(one.instructions)
            assert environment["PATH"] == os.environ["PATH"] and len(descriptors) == 4
            assert "SOME_TOKEN" not in environment and environment["A"] == "b"
            with pytest.raises(client.Disconnected):
                one.call_tool("x", timeout=PATIENCE)


@parametrize("carrier", ["pipe", "http"])
def test_client_keeps_no_more_than_a_message_may_have(carrier):
    tracemalloc = pytest.importorskip("tracemalloc")  # which PyPy lacks
    def answer(verb: str, headers: dict, method: str, text: str):
        yield STREAM + (b"" if method == "ping" else b"data: " + text.encode() + b"\n\n")
        yield from [b"data: " + b"x" * 50_000 + b"\n"] * 400
    after = "sys.stdin.readline(); [os.write(out, b'x' * 20_000_000) for out in (2, 1)]"
    with limits(MAX_MESSAGE_BYTES=100_000), answering(answer) as site, \
            client.connect(site.url) if carrier == "http" else program("", after) as one:
        tracemalloc.start()
        with pytest.raises((client.Disconnected, client.Malformed)):
            one.request("ping")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()


@needs_posix
def test_client_closed_while_its_server_restarts_ends_it(tmp_path):
    os.mkfifo(tmp_path / "held")  # as above
    gate = threading.Event()

    class Slow(client.StdioTransport):
        def start(self):
            gate.wait(PATIENCE)
            super().start()
    before = f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY)"
    gate.set()
    end = begin((tmp_path / "held").read_bytes)
    one = client.connect(Slow(program_of(before, "sys.stdin.readline()")))
    with pytest.raises(client.Disconnected):  # its first call ends the server
        one.call_tool("x")
    end.result(PATIENCE)
    gate.clear()
    end, call = begin((tmp_path / "held").read_bytes), begin(one.call_tool, "x")
    closing = begin(one.close)
    while not one.closed:
        time.sleep(0.001)
    gate.set()
    assert isinstance(call.exception(PATIENCE), client.Disconnected)
    closing.result(PATIENCE)
    assert end.result(PATIENCE) == b""


def test_client_records_what_passes(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, answering(
            lambda verb, headers, method, text: [http_answer(200, JSON, text)]) as site:
        client.connect(site.url, record=file).close()
    lines = [json.loads(line) for line in (tmp_path / "t").read_bytes().splitlines()]
    assert not differences([
        {"way": ">", "http": "POST /mcp", "headers": {"Mcp-Method": "server/discover"},
         "message": {"method": "server/discover"}, "status": None},
        {"way": "<", "status": 200, "message": {"id": 1}}], lines)
    assert lines[0]["on"] == lines[1]["on"] and re.fullmatch(TIME, lines[0]["time"])


COMMANDS = r'''
list URL --revision 2025-06-18 --trace | 0 | file:///{+path} | "protocolVersion": "2025-06-18"
list URL --header X-Key:wrong | 2 | - | 401
call URL echo text=a=b | 0 | a=b | -
call URL add {"a":2,"b":3} | 0 | 5 | -
call URL add a=2 b=3 --json --trace | 0 | "structuredContent" | tools/call
call URL fail how=value | 1 | - | told you
read URL test://text | 0 | hello | -
read URL test://nowhere | 1 | - | not found
prompt URL greet name=Ada --revision 2025-06-18 --timeout 9 --header X-A:b | 0 | Hello, Ada! | -
list | 2 | - | URL
call URL | 2 | - | call
list -- /nowhere/at/all | 2 | - | /nowhere/at/all
list URL --header X-A | 2 | - | NAME:VALUE
list nothing.py | 2 | - | nothing.py
'''


@parametrize("row", COMMANDS.strip().splitlines())
def test_client_command_line(row, capsys, monkeypatch):
    words, status, *wanted = row.split(" | ")
    monkeypatch.setattr(sys, "path", sys.path[:])
    keys = mcp.bearer({"right": "me"}, header="X-Key")
    with http_serving(fixture(Stage()), authorize=keys) as httpd, pytest.raises(SystemExit) as left:
        words = words.replace("URL", httpd.url)
        monkeypatch.setattr(sys, "argv", ["x", "--header", "X-Key: right", *words.split()])
        code = client.__spec__.loader.get_code(client.__name__)
        exec(code, {"__name__": "__main__", "__file__": str(MCP_CLIENT)})  # noqa: S102
        sys.exit(0)
    printed = capsys.readouterr()
    assert (left.value.code or 0) == int(status), printed
    assert all(word in text or word == "-" for word, text in zip(wanted, printed)), printed


# ---- OAuth: examples/extensions/oauth.py against documents in memory, then both halves over HTTP

oauth = load("oauth", HERE / "examples" / "extensions" / "oauth.py")
guard = load("oauth_server", HERE / "examples" / "extensions" / "oauth_server.py")
real_fetch = oauth.fetch
MCP, ISSUER, CIMD = "https://mcp.test/mcp", "https://issuer.test", "https://app.test/client.json"
NEW, BACK, URN = "https://new.test", "http://127.0.0.1:1/callback", "urn:ietf:params:oauth:"
ROOT = "https://mcp.test/.well-known/oauth-protected-resource"
SERVER, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
RESOURCE, METADATA, TOKEN = ROOT + "/mcp", ISSUER + SERVER, ISSUER + "/token"
PLACES = {"resource": RESOURCE, "issuer": METADATA, "registration": ISSUER + "/register",
          "token": TOKEN, "provider": "https://sso.test/token"}
BASIC = {"Authorization": "Basic aStkOnMlMkI="}  # "i d" and "s+", encoded as in a form
GONE = (400, {"error": "invalid_grant", "error_description": "old"})


class World(oauth.Browser):
    """What is on the web, by URL, and a user at a browser. `asked`: verb, url, headers, form."""
    def __init__(self):
        self.asked = []
        self.page = {}  # parameters of the last login page
        self.issued, self.time, self.refresh = 0, 1000.0, ""
        self.at = {
            "callback": {"code": "the-code"}, TOKEN: {}, ISSUER + "/register": {"client_id": "r"},
            RESOURCE: {"resource": MCP, "authorization_servers": [ISSUER]},
            METADATA: {"issuer": ISSUER, "authorization_endpoint": ISSUER + "/authorize?tenant=1",
                   "token_endpoint": TOKEN, "registration_endpoint": ISSUER + "/register",
                   "code_challenge_methods_supported": ["S256"]},
            PLACES["provider"]: {"access_token": "jag for " + ISSUER,
                                 "issued_token_type": URN + "token-type:id-jag"}}

    def change(self, name: str, changes):
        merges, place = isinstance(changes, dict), PLACES.get(name, name)
        self.at[place] = {**self.at.get(place, {}), **changes} if merges else changes

    def fetch(self, verb: str, url: str, headers: dict, body=None, timeout: int = 9):
        if "//127.0.0.1" in url:
            return real_fetch(verb, url, headers, body, timeout)
        kind = headers.get("Content-Type", "")
        assert kind.endswith(("/json", "-form-urlencoded")) == bool(body)
        form = json.loads(body) if "json" in kind else dict(parse_qsl((body or b"").decode()))
        self.asked.append((verb, url, headers, form))
        answer = self.at.get(url, 404)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer[1:] else answer[0]
        if isinstance(answer, dict):
            answer = 200, self.token(form, headers, answer) if url == TOKEN else answer
        status, document, *more = answer if isinstance(answer, tuple) else (answer, None)
        return status, more[0] if more else {}, json.dumps(document).encode()

    def token(self, form: dict, headers: dict, changes: dict) -> dict:
        if form["grant_type"] == "authorization_code":
            digest = oauth.b64(hashlib.sha256(form["code_verifier"].encode()).digest())
            assert (digest, BACK) == (self.page["code_challenge"], form["redirect_uri"])
        assert form["resource"] == MCP and form.get("refresh_token") in (None, self.refresh)
        self.issued += 1
        made = {"access_token": f"at{self.issued}", "token_type": "DPoP" if "DPoP" in headers else
                "bearer", "expires_in": 3600, "refresh_token": f"rt{self.issued}", **changes}
        self.refresh = made["refresh_token"] or self.refresh
        return made

    @contextlib.contextmanager
    def listen(self, registered: str, state: str):
        yield BACK

    def visit(self, url: str) -> str:
        self.page = dict(parse_qsl(url.partition("?")[2]))
        asked = {"resource": MCP, "code_challenge_method": "S256", "response_type": "code"}
        assert asked.items() <= self.page.items()
        came = {"state": self.page["state"], **self.at["callback"]}
        return BACK + "?" + urlencode({one: came[one] for one in came if came[one] is not None})

    def hook(self, *who: str, **options):
        return oauth.OAuth(*who, **{"grant": oauth.AuthorizationCode(self),
                                    "clock": lambda: self.time, **options})


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(oauth, "fetch", made.fetch)
    monkeypatch.setattr(guard, "fetch", made.fetch)
    return made


def log_in(hook, challenge="", status=401, uses=2, nonce="") -> dict:
    """Call a hook as a client does after a refusal; return the headers of the last request."""
    found = {"www-authenticate": challenge, "dpop-nonce": nonce}
    make = hook(mcp.HttpError(status, "no", found, MCP))
    assert not make or make("POST", "https://other.test/mcp") == {}
    return [make("POST", MCP) for _ in range(uses)][-1] if make else {}


FLAWS = [  # which document, which member (or all of it), what is wrong with it, which error
    ("resource", "resource", ["https://x.test/mcp", MCP[:-1], MCP[:16] + ":4"], "is about"),
    ("resource", "resource", [MCP + "#x", None, 7], "an https URL"),
    ("resource", "authorization_servers", [[], None, ISSUER], "names no authorization server"),
    ("resource", "authorization_servers", [["http://x.test"], ["https://[x"], [7]], "an https URL"),
    ("resource", "authorization_servers", [["http://127.0.0.1:9"]], "is on this machine"),
    ("resource", "", [500], "500: try"), ("issuer", "", [404, (200, [7])], "has no metadata"),
    ("issuer", "issuer", [ISSUER + "/", None], "is about"),
    ("issuer", "authorization_endpoint", ["http://issuer.test/a?hush", None], "an https URL"),
    *(("issuer", name + "_endpoint", ["https://localhost/x", "https://[::1]"], "is on this machine")
      for name in ("authorization", "token", "registration")),
    ("issuer", "registration_endpoint", [None], "by hand"), ("token", "", [GONE], "400 invalid_"),
    ("issuer", "code_challenge_methods_supported", [None, ["plain"], "S256"], "PKCE"),
    ("issuer", "token_endpoint_auth_methods_supported", [["tls"], "none"], "accepts none of none"),
    ("issuer", "authorization_response_iss_parameter_supported", [True], "or of none"),
    ("registration", "", [(400, {"error": "odd", "error_description": "x\ny"})], "400 odd x y$"),
    ("registration", "client_id", [None, 7], ": 2"), ("registration", "client_secret", [7], ": 2"),
    ("callback", "state", ["other", None], "another request"),
    ("callback", "iss", [ISSUER + "/", ""], "another issuer"),
    ("callback", "code", [None, ""], "no code"), ("callback", "error", ["denied"], "d: denied$"),
    ("token", "access_token", [None, 7, "a b"], "no usable Bearer"),
    ("token", "token_type", [None, "mac", "DPoP"], "no usable Bearer"),
    ("token", "error", ["odd"], "refuses: 200 odd")]


@parametrize("document, member, flaw, error", [
    (document, member, flaw, error) for document, member, flaws, error in FLAWS for flaw in flaws])
def test_oauth_refuses_a_flawed_document(world, document, member, flaw, error):
    world.change(document, {member: flaw} if member else flaw)
    with pytest.raises(oauth.OAuthError, match=error) as caught:
        log_in(world.hook())
    assert not re.search("hush|the-code|at1|\n", str(caught.value))
    assert document == "token" or TOKEN not in [url for _, url, _, _ in world.asked]


FLOWS = {  # changes of documents; refusals: status, challenge, what is then posted and sent
    "a refused token is renewed, or else obtained anew": [
        (401, "", "new code at1", 1), (401, "", "!just obtained"), (401, "", "refresh at2"),
        ("token", {"refresh_token": None}), (401, "", "refresh at3"),
        ("token", [(400, {"error": "slow_down"}), GONE, {"refresh_token": None}, {}]),
        (401, "", "!slow_down"), (401, "", "refresh code at4"), (401, "", "code at5")],
    "more scope: what was requested before, and the new one, once": [
        (401, 'Bearer scope="a"', "new code:a at1"), (403, "Bearer", "None"), (403, "", "None"),
        (403, 'Bearer error="insufficient_scope", scope="b a"', "code:a+b at2"),
        (403, 'Bearer error="insufficient_scope", scope=b', "!wants more scope"),
        (401, "Bearer scope=c", "code:a+b+c at3"), (401, "", "refresh at4")],
    "all listed scopes, without what cannot be one": [
        ("resource", {"scopes_supported": [7, "y z", "x", "w"]}), (401, "", "new code:x+w at1")],
    "the challenge goes before the list": [
        (401, 'Bearer resource_metadata="https://new.test"', "!no metadata at https://new"),
        ("resource", {"scopes_supported": ["x"]}), (401,
         'Basic x="Bearer, y", BEARER Scope="\\a", scope=z,Bearer scope=w', "new code:a at1")],
    "offline_access where the issuer has it, and never alone": [
        ("issuer", {"scopes_supported": ["offline_access"]}), (401, "", "new code at1"),
        (401, "Bearer scope=a", "code:a+offline_access at2")],
    "[2025-03-26] without metadata there are fixed paths": [
        ("resource", 404), ("https://mcp.test/register", {"client_id": "old"}),
        ("https://mcp.test/token", {"access_token": "at1", "token_type": "Bearer"}),
        (401, "", "new code at1")],
    "an issuer that forgot us": [
        (401, "", "new code at1"), ("token", [(401, {"error": "invalid_client"}), {}]),
        (401, "", "refresh new code at2")],
    "another issuer gets nothing of the old one": [
        (401, "", "new code at1"), ("resource", {"authorization_servers": [NEW]}),
        (NEW + OPENID, {"issuer": NEW, "authorization_endpoint": NEW, "token_endpoint": TOKEN,
                        "code_challenge_methods_supported": ["S256"],
                        "registration_endpoint": ISSUER + "/register"}),
        ("callback", {"iss": NEW}), (401, "", "new code at2")],
}
POSTS = {"authorization_code": "code", "refresh_token": "refresh", None: "new"}


@parametrize("title", FLOWS)
def test_oauth_flows(world, title):
    hook = world.hook()
    for first, second, *rest in FLOWS[title]:
        start = len(world.asked)
        if isinstance(first, str):
            world.change(first, second)
        elif rest[0].startswith("!"):
            with pytest.raises(oauth.OAuthError, match=rest[0][1:]):
                log_in(hook, second, first)
        else:
            sent = log_in(hook, second, first, *rest[1:]).get("Authorization", "None").split()[-1]
            posts = [POSTS[form.get("grant_type")] for *_, form in world.asked[start:] if form]
            scope = ":" + world.page["scope"].replace(" ", "+") if "scope" in world.page else ""
            assert " ".join([*posts, sent]).replace("code", "code" + scope) == rest[0]


@parametrize("told, issuer, at, asked", [
    ("", ISSUER, RESOURCE, [RESOURCE, METADATA]), (NEW, ISSUER, NEW, [NEW, METADATA]),
    ("", ISSUER, ROOT, [RESOURCE, ROOT, METADATA, ISSUER + OPENID]),
    ("", ISSUER + "/t", ROOT, [RESOURCE, ROOT, METADATA + "/t", ISSUER + OPENID + "/t",
                               ISSUER + "/t" + OPENID]),
    ("", "https://mcp.test", "", [RESOURCE, ROOT, "https://mcp.test" + SERVER])])
def test_oauth_looks_for_metadata_in_order(world, told, issuer, at, asked):
    world.at[at] = {**world.at.pop(RESOURCE), "authorization_servers": [7, issuer]}
    world.at[asked[-1]] = {**world.at.pop(METADATA), "issuer": issuer}
    assert log_in(world.hook(issuer=issuer), f'Basic, Bearer resource_metadata="{told}"')
    assert [url for _, url, _, _ in world.asked] == [*asked, ISSUER + "/register", TOKEN]


@parametrize("who, offered, made, proof", [
    ((), ["tls", "none"], {}, {"client_id": "r"}),
    ((), ["none"], {"client_id": "i d", "client_secret": "s+"}, BASIC),
    ((), None, {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
     {"client_id": "r", "client_secret": "s"}),
    (("i d", "s+"), None, None, BASIC),
    ((), ["client_secret_basic", "client_secret_post"], {"client_secret": "s"},
     {"client_id": "r", "client_secret": "s"}),
    (("us", "s"), ["client_secret_post", "client_secret_basic"], None,
     {"client_id": "us", "client_secret": "s"}),
    (("i d", "s+"), ["client_secret_basic", "client_secret_post"], None, BASIC),
    ((CIMD,), ["tls"], None, {"client_id": CIMD}), (("us",), ["tls"], None, {"client_id": "us"})])
def test_oauth_registers_and_proves_who_it_is(world, who, offered, made, proof):
    world.change("issuer", {"token_endpoint_auth_methods_supported": offered,
                            "client_id_metadata_document_supported": who == (CIMD,)})
    world.change("registration", 404 if made is None else made)
    log_in(world.hook(metadata_url=CIMD) if who in ((CIMD,), ()) else world.hook(*who))
    *_, headers, form = world.asked[-1]
    assert proof.items() <= {**headers, **form}.items()
    assert ("Authorization" in headers) == (proof is BASIC) == ("client_id" not in form)
    assert [one for *_, one in world.asked if "redirect_uris" in one] == [
        {"application_type": "native", "client_name": "mcp_ref", "redirect_uris": [BACK],
         "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
         "token_endpoint_auth_method": (offered or ["none"])[-1]}] * (made is not None)


def test_oauth_grants_without_a_user(world):
    sso = oauth.EnterpriseManaged(PLACES["provider"], lambda: "who", "sso", "x")
    jag = {"grant_type": URN + "grant-type:jwt-bearer", "assertion": "jag for " + ISSUER}
    for grant, form in ((oauth.Workload(lambda issuer: "jag for " + issuer), jag), (sso, jag),
                        (oauth.ClientCredentials(), {"grant_type": "client_credentials"})):
        hook = world.hook("i d", "s+", grant=grant)
        assert log_in(hook, "Bearer scope=a")["Authorization"] == f"Bearer at{world.issued}"
        assert world.asked[-1][3] == {"scope": "a", "resource": MCP, **form}
    assert next(form for *_, form in world.asked if "subject_token" in form) == {
        "grant_type": URN + "grant-type:token-exchange", "audience": ISSUER, "resource": MCP,
        "scope": "a", "subject_token": "who", "subject_token_type": URN + "token-type:id_token",
        "requested_token_type": URN + "token-type:id-jag", "client_id": "sso", "client_secret": "x"}
    world.change("provider", {"issued_token_type": URN})
    for grant, error in ((sso, "no grant"), (oauth.ClientCredentials(), "require")):
        with pytest.raises(oauth.OAuthError, match=error):
            log_in(world.hook("us", grant=grant))
    world.change("resource", {"authorization_servers": [NEW]})
    world.change(NEW + SERVER, {"issuer": NEW})
    with pytest.raises(oauth.OAuthError, match="registered with https://issuer.test"):
        log_in(hook)


def test_oauth_keeps_tokens_in_a_file_for_its_owner(world, tmp_path):
    path = tmp_path / "new" / "tokens.json"
    one, two = (world.hook(store=oauth.TokenFile(path)) for _ in "12")
    assert log_in(one) == log_in(two, uses=1) == {"Authorization": "Bearer at1"}
    modes = [oct(place.stat().st_mode)[-3:] for place in (path, path.parent)]
    assert modes == ["600", "700"] or os.name != "posix"
    assert log_in(two) == log_in(one) == {"Authorization": "Bearer at2"} and world.issued == 2
    for seconds, token in ((3600 - oauth.EARLY_SECONDS, "at2"), (1, "at3")):
        world.time += seconds
        assert log_in(world.hook(store=oauth.TokenFile(path)))["Authorization"] == "Bearer " + token
    for mode, error in ((0o600, "not a token"), (0o640, "others can read" if POSIX else "not")):
        path.write_text("7")
        path.chmod(mode)
        with pytest.raises(oauth.OAuthError, match=error):
            log_in(one)


def test_oauth_signs(world, monkeypatch):
    pytest.importorskip("cryptography")
    key, store = oauth.Key(oauth.new_pem(), "k1"), {}
    world.change("issuer", {"token_endpoint_auth_methods_supported": ["none", "private_key_jwt"]})
    for secret in ("", "s"):
        log_in(world.hook("robot", secret, key=key, grant=oauth.ClientCredentials()))
    world.change("token", [(400, {"error": "use_dpop_nonce"}, {"dpop-nonce": "n1"}), {}])
    sent = [log_in(world.hook(store=store), "DPoP", nonce="r1", uses=1)]
    hook = world.hook(store=store)
    sent += [log_in(hook, 'DPoP error="use_dpop_nonce"', nonce=one) for one in ("r1", "r2", "r2")]
    assert [one["Authorization"] for one in sent] == ["DPoP at3"] * 3 + ["DPoP at4"]
    tokens = [one for *_, headers, form in world.asked
              for one in (headers.get("DPoP"), form.get("client_assertion")) if one]
    bound, came = oauth.Key(store["dpop"]["pem"]).jwk(), []
    for token in tokens + [one["DPoP"] for one in sent]:
        text, _, signature = token.rpartition(".")
        head, claims = (json.loads(guard.unb64(part)) for part in text.split("."))
        assert guard.has_signed(head.get("jwk", key.jwk()), "ES256", text, guard.unb64(signature))
        assert claims.pop("jti") and claims.pop("iat") == 1000 and head.pop("alg") == "ES256"
        assert head == ({"kid": "k1"} if "aud" in claims else {"typ": "dpop+jwt", "jwk": bound})
        came.append(list(claims.values()))
    used, new = (oauth.b64(hashlib.sha256(token).digest()) for token in (b"at3", b"at4"))
    assert came == [["robot", "robot", ISSUER, 1120]] * 2 + [
        ["POST", TOKEN], ["POST", TOKEN, "n1"], ["POST", TOKEN], ["POST", MCP, "r1", used],
        ["POST", MCP, "r1", used], ["POST", MCP, "r2", used], ["POST", MCP, "r2", new]]
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    world.change("callback", None)  # nobody may log in for nothing
    with pytest.raises(oauth.OAuthError, match="pip install cryptography"):
        log_in(world.hook(dpop=True))


@parametrize("status, changes", [
    (0, {}), (0, {"aud": ["x", MCP]}), (401, {"aud": "x"}), (401, {"aud": 0}), (401, {"iss": "x"}),
    (401, {"exp": 9}), (401, {"exp": "never"}), (401, {"nbf": 9e9}), (401, {"sub": ""}),
    (401, {"cnf": {}}), (403, {"scope": "b"}), (0, {"scope": None, "scp": ["a"]}),
    (401, {"head": {"alg": "none"}}), (401, {"head": {"typ": "dpop+jwt"}}),
    (401, {"head": {"crit": []}}), (401, {"head": {"kid": "k2"}}), (401, {"head": {"typ": 3}}),
    (401, {"cut": "AAAA"})])
def test_oauth_servers_check_tokens(world, status, changes):
    claims = {"aud": MCP, "iss": ISSUER, "sub": "ann", "exp": 8e9, "scope": "a b", **changes}
    head, cut = claims.pop("head", {}), claims.pop("cut", "")
    world.at[ISSUER + "/i"] = {"active": not head and not cut, **claims}
    options = {"resource": MCP, "issuer": ISSUER, "scopes": ["a"]}
    hooks = {} if head else {"opaque": guard.introspection(ISSUER + "/i", "i", "s", **options)}
    if importlib.util.find_spec("cryptography"):
        key = oauth.Key(oauth.new_pem())
        token = key.jwt(claims, **head)
        hooks[token[:len(token) - len(cut)] + cut] = guard.local_keys(
            {"keys": [{"kty": "odd"}, key.jwk()]}, **options)
    for token, hook in hooks.items():
        with contextlib.nullcontext() if not status else pytest.raises(mcp.HttpError) as caught:
            made = hook({"authorization": "bearer " + token})
            assert made == [ISSUER, "ann", ""]
        assert not status or caught.value.status == status and RESOURCE in str(caught.value.headers)


def test_oauth_from_end_to_end(world, monkeypatch):
    visits, threads, hooks, metadata = [], [], [], {}
    def browse(url: str):
        page = dict(parse_qsl(url.partition("?")[2]))
        ends = ["x", "?state=x", "?code=c&state=" + page["state"]]
        threads.append(threading.Thread(target=lambda: visits.extend(
            real_fetch("GET", page["redirect_uri"] + end, {})[0] for end in ends)))
        threads[0].start()
    monkeypatch.setattr("webbrowser.open", browse)
    world.change("token", (200, {"access_token": "at1", "token_type": "bearer"}))
    with http_serving(mcp.Server("guarded"), metadata=metadata,
                      authorize=lambda headers: hooks[0](headers)) as httpd:
        url = httpd.url
        metadata.update(guard.resource_metadata(url, [ISSUER], scopes_supported=["a"]))
        hooks.append(guard.introspection(ISSUER + "/i", "i d", "s+", resource=url))
        world.at[ISSUER + "/i"] = {"active": True, "aud": url, "sub": "ann"}
        with client.connect(url, authorize=oauth.OAuth()) as connected:
            connected.ping()
        for answer in (404, (200, [7])):
            world.at[ISSUER + "/i"] = answer
            with pytest.raises(mcp.HttpError, match="retry"):
                hooks[0]({"authorization": "bearer at2"})
        threads[0].join(PATIENCE)
        assert visits == [404, 404, 200] and BASIC.items() <= world.asked[-1][2].items()
    monkeypatch.setattr("webbrowser.open", bool)
    with pytest.raises(oauth.OAuthError, match="within 0 seconds"):
        log_in(world.hook(grant=oauth.AuthorizationCode(oauth.Browser(seconds=0))))
    with http_serving(fixture(Stage())) as httpd:
        assert command(oauth.__file__, httpd.url).stdout.startswith("add\necho\n")


# ---- the gateway: every client in front of it, a modern and a legacy upstream behind it

gw = load("gateway", HERE / "examples" / "extensions" / "gateway.py")
GATEWAY = [sys.executable, str(HERE / "examples" / "extensions" / "gateway.py")]
ENDS = []  # ends what gateway() started
STAGES = []  # the last one is the current test's


@functools.cache
def gateway():
    """Start a gateway in front of one server, reached in the newest and in a legacy revision."""
    stage = type("", (), {"__getattr__": lambda self, name: getattr(STAGES[-1], name)})()
    server = fixture(stage)
    core_questions(server)

    server.tool(lambda: [mcp.link("test://text", "a"), mcp.embedded("test://text", "hello")],
                name="dir/list it")
    server.tool(lambda: "long", name="long" * 20)
    server.tool(lambda: [1, 2], name="numbers", output_schema={"type": "array"})
    serving = http_serving(server)
    url = serving.__enter__().url
    upstreams = [gw.Upstream("up", {"url": url}), gw.Upstream("dead", {"url": url + "x"}),
                 gw.Upstream("old", {"url": url, "revision": LEGACY[0]})]
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    for upstream in upstreams:
        upstream.keeper.start()
    assert all(upstream.tried.wait(PATIENCE) for upstream in upstreams)
    ENDS.extend([lambda: serving.__exit__(None, None, None), *(one.close for one in upstreams)])
    return server, profile, upstreams


@pytest.fixture(scope="module", autouse=True)
def end_gateway():
    yield
    while ENDS:
        ENDS.pop()()


def fronted(stage: Stage):
    STAGES.append(stage)
    return gateway()[1]


test_gateway = scripts(r'''
== calls reach both upstreams, and results come back
:up__add {"a": 1} => {"content": [{"type": "text", "text": "3"}], "isError": null}
:old__fail {"how": "value"} => {"content": [{"text": "told you"}], "isError": true}
:up__fail {"how": "own"} => error 7 seven {"server": "up", "originalError": {
    "code": 7, "message": "seven", "data": [7]}}
:dead__anything => error {INTERNAL_ERROR} down {"server": "dead"}
== names, URIs and results take the client's form | on: 2025-06-18.. memory
:up__dir_list_it_3bbeb852 => {"content": [
    {"type": "resource_link", "uri": "up+test://text", "name": "a"},
    {"type": "resource", "resource": {"uri": "up+test://text", "text": "hello"}}]}
:old__longlonglonglonglonglonglonglonglonglonglonglonglo_5aa1dce7 => "long"
:up__unknown => error {INVALID_PARAMS} unknown tool
[modern] :up__numbers => {"structuredContent": [1, 2], "content": [{"text": "[1, 2]"}]}
[legacy] :up__numbers => {"structuredContent": null, "content": ["*"], "resultType": null}
resources/read {"uri": "up+test://text"} =>
    {"contents": [{"uri": "up+test://text", "text": "hello"}]}
resources/read {"uri": "old+test://item/7/x"} =>
    {"contents": [{"uri": "old+test://item/7/x", "text": "'x' of 7"}]}
prompts/get {"name": "old__greet", "arguments": {"name": "Ada"}} =>
    {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello, Ada!"}}]}
[modern] resources/read {"uri": "test://text"} => error {INVALID_PARAMS} not found
[legacy] resources/read {"uri": "test://text"} => error {RESOURCE_NOT_FOUND} not found
[modern] resources/read {"uri": "old+none://x"} => error {INVALID_PARAMS} not found
    {"server": "old", "originalError": {"code": -32002}}
[legacy] resources/read {"uri": "old+none://x"} => error {RESOURCE_NOT_FOUND} {"server": "old"}
== progress, log messages and cancellations pass through | on: * memory
> 1 tools/call {"name": "old__steps", "_meta": {"progressToken": 0}}
< - notifications/progress {"progressToken": 0, "progress": 0, "total": 3}
< - notifications/progress {"progressToken": 0, "progress": 1}
< - notifications/progress {"progressToken": 0, "progress": 2.5}
< 1 {"content": [{"text": "done"}]}
[legacy] logging/setLevel {"level": "emergency"} => {}
> 2 tools/call {"name": "old__talk", "_meta": {"{META}logLevel": "emergency"}}
< - notifications/message {"data": {"says": "emergency"}, "logger": "talker"}
< 2 {"content": [{"text": "said"}]}
> 3 :up__slow {"gate": "a"}
wait a
> - notifications/cancelled {"requestId": 3}
wait a passed
== a modern client answers a modern upstream | on: modern memory | declare: {"elicitation": {}}
:up__rounds ? one elicitation/create {} -> {"action": "accept", "content": {"one": 1}}
    => {"resultType": "input_required", "inputRequests": "*"}
:up__roots => error {MISSING_REQUIRED_CLIENT_CAPABILITY} roots
    {"requiredCapabilities": {"roots": {}}}
:old__ask => "failed: AskError"
== a legacy client is asked, by both kinds of upstream | on: 2025-06-18..2025-11-25 memory
    | declare: {"elicitation": {}, "sampling": {}, "roots": {}}
:old__ask ? a elicitation/create {"message": "Which branch?", "requestedSchema": {"type": "object"}}
    -> {"action": "accept", "content": {"branch": "main"}} =>
    "{\"action\": \"accept\", \"content\": {\"branch\": \"main\"}}"
:up__rounds ? c elicitation/create {"message": "One?"} ->
    {"action": "accept", "content": {"one": 1}} ? d elicitation/create {"message": "Two?"} ->
    {"action": "accept", "content": {"two": 2}} => {"content": ["*"], "isError": null}
:old__roots ? b roots/list {} -> error -5 never => {"isError": true}
:old__think ? c sampling/createMessage {"maxTokens": 5} ->
    {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}} =>
    {"content": ["*"], "isError": null}
''', "server: fronted")
X = {"command": "x"}
EACH_ERA = parametrize("version", [*MODERN[:1], *LEGACY[:1], *LEGACY[-1:]])


@EACH_ERA
def test_gateway_joins_lists_and_announces_changes(version):
    heard = queue.SimpleQueue()
    server, uris = gateway()[0], ["old+test://text", "up+test://text"]
    with client.connect(gateway()[1], revision=version) as front:
        tools = {tool["name"]: tool for tool in front.list_tools()}
        assert list(tools)[:2] == ["up__add", "up__echo"] and max(map(len, tools)) == 64
        assert ("outputSchema" in tools["up__numbers"]) == front.modern
        assert {one["uri"] for one in front.list_resources()} > set(uris)
        assert front.list_resource_templates()[0]["uriTemplate"] == "up+test://item/{number}/{part}"
        assert [one["name"] for one in front.list_prompts()] == ["up__greet", "old__greet"]
        with front.listen(["tools", *uris, "dead+test://text"], heard.put):
            server.changed("test://text")
            assert sorted(heard.get(timeout=PATIENCE) for _ in uris) == uris
            for change in (lambda: server.tool(mcp.text, name="grown"),
                           lambda: server.tools.pop("grown")):
                change()
                server.changed("tools")
                assert [heard.get(timeout=PATIENCE) for _ in uris] == ["tools", "tools"]
                names = {tool["name"] for tool in front.list_tools()}
                assert (names >= {"old__grown", "up__grown"}) == ("grown" in server.tools)


def configure(folder, config) -> str:
    """Write a configuration, and pid.py, a server that does not start beside a file "down"."""
    (folder / "gateway.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (folder / "pid.py").write_text(textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(MCP_REF.parent)!r})
        from mcp_ref import Server
        os.path.exists("down") and sys.exit("not now")
        server = Server("pid")
        server.tool(lambda: os.getpid(), name="pid")
        server.tool(lambda: [open("down", "w").close(), os._exit(3)], name="die")
        server.run()"""))
    return str(folder / "gateway.json")


def test_gateway_survives_an_upstream_that_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "RETRY_SECONDS", 0.02)
    heard = queue.SimpleQueue()
    upstreams, profiles = gw.read_config(configure(tmp_path, {"servers": {
        "Pid": {"command": sys.executable, "args": ["pid.py"], "cwd": str(tmp_path)}}}))
    upstreams["Pid"].keeper.start()
    with client.connect(profiles["all"]) as front:
        first = front.call_tool("pid__pid")["content"]
        with front.listen(["tools"], heard.put):
            with pytest.raises(mcp.RpcError) as problem:
                front.call_tool("pid__die")
            assert (problem.value.code, problem.value.data) == (-32603, {"server": "Pid"})
            assert heard.get(timeout=PATIENCE) == "tools" and front.list_tools() == []
            (tmp_path / "down").unlink()
            assert heard.get(timeout=PATIENCE) == "tools"
            assert front.call_tool("pid__pid")["content"] != first
    upstreams["Pid"].close()


@EACH_ERA
def test_gateway_serves_each_profile_at_its_path(version):
    up, _, old = gateway()[2]
    few = gw.Profile("few", [(up, ["ad*", "echo"]), (old, [])])
    httpd = mcp.http_server(gw.Paths([gateway()[1], few], gw.LOOPBACK))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    if version != LEGACY[-1]:
        few_url = f"http://127.0.0.1:{httpd.server_port}/mcp/few/"
        with client.connect(few_url, revision=version) as front:
            assert [tool["name"] for tool in front.list_tools()] == ["up__add", "up__echo"]
            with pytest.raises(mcp.RpcError, match="Unknown tool"):
                front.call_tool("up__fail", {"how": "own"})
    for name in "all", "few":
        wanted = httpd.server_port, "GET", "/mcp/" + name, {"Accept": "text/event-stream"}
        with request_to(*wanted).getresponse() as answer:
            assert event_of(answer)["data"].startswith(name + "/messages?")
        assert exchange(httpd.server_port, "POST", "/mcp/" + name, {"Host": "x.org"}, b"")[0] == 403
    assert exchange(httpd.server_port, "GET", "/mcp/fewer", {})[0] == 404
    httpd.close()
    httpd.serve_forever()


@parametrize("config, word", [
    ("{", "line 1"), ([], "object"), ({}, "servers"), ({"servers": {}}, "servers"),
    *(({"servers": {"a": server}}, "/servers/a" + place) for server, place in (
        ({}, ""), ({"command": []}, "/command"), ({**X, "url": "http://x"}, ""),
        ({"url": "ftp://x"}, "/url"), ({**X, "revision": "x"}, "/revision"),
        ({**X, "env": {"A": 1}}, "/env/A"), ({**X, "args": [1]}, "/args/0"))),
    ({"mcpServers": {"1": X}}, "1"), ({"servers": {"a b": X, "A-b": X}}, "differ"),
    ({"servers": {"a": X}, "profiles": {"p": {"servers": ["b"]}}}, "among a"),
    ({"servers": {"a": X}, "profiles": {"/": {"servers": ["a"]}}}, "profiles")])
def test_gateway_names_what_is_wrong_with_a_file(tmp_path, config, word):
    with pytest.raises(ValueError, match=word):
        gw.read_config(configure(tmp_path, config))


@needs_posix
def test_gateway_runs_on_stdio_and_over_http(tmp_path):
    config = configure(tmp_path, {"mcpServers": {
        "pid": {"command": sys.executable, "args": [str(tmp_path / "pid.py")], "type": "stdio"}}})
    with listening(*GATEWAY[1:], config) as (process, url):
        for target in [*GATEWAY, config], url:
            with client.connect(target, env=COVERAGE) as front:
                assert front.call_tool("pid__pid")["content"]
        process.terminate()
        process.stdout.read()
        assert process.wait(PATIENCE) == 0


# ---- the extensions tasks and skills: examples/extensions

tasks, skills = (load(name, HERE / "examples" / "extensions" / (name + ".py"))
                 for name in ("tasks", "skills"))
KNOWS_TASKS = {**tasks.DECLARE, "elicitation": {}}
TASK_ERROR = {"code": 7, "message": "seven", "data": [7]}
WORKS, DONE = {"status": "working"}, {"status": "completed", "result": {"x": 1}}
ASKS = {"status": "input_required", "inputRequests": {"k": "?"}}
LOST, STOP, UPDATES = OSError("lost"), ["get", "cancel"], [("update", {k: "? tag"}) for k in "kl"]
FOLDER = """a a/x~y.md a/p.png a/q.zzz a/in a/.env a/.git/z.md .h b/c big big/1.md link o.md UP many
    many/1.x many/2.x many/3.x many/4.x many/5.x no/SKILL.md no2/SKILL.md/x.md"""
STRANGERS = "a/.env o.md a/../o.md a/%2e%2e/o.md a /etc/passwd link/x many/1.x"
BAD_YAML = (
    "3 a: b\na: c|2 a: b: c|2 a: b:|2 a: [b]|3 x: 1\na: {b: c}|2 a: &b|2 a: *b|2 a: !b|2 a: 'b|"
    '2 a: "b|2 a: "\\x41"|2 a: \'b\' c|2 a: - b|2 a: -|2 a: ? b|2 a: @b|2 a: %b|2 a: `b`|2 - a|'
    "2 a|2 a:b|3 x: 1\na: >\n  b\n   c|2 a: >+\n  b|2 a: b\n  c|2   a: b\nb: c|2 \ta: b|"
    "3 a:\n  b: c\n   d: e|3 a:\n  b:\n    c: d|4 a:\n  b: c\n  - d|4 a:\n  b: 1\n  c: [2]")
DO_IT = "---\nname: %s\ndescription: Do it\n---\n# Body"
LINES = [{"uri": "skill://x/do/" + path, "size": len(raw), "digest": "sha256:" + hashlib.sha256(
    raw).hexdigest()} for path, raw in (("SKILL.md", (DO_IT % "do").encode()), ("a.bin", b"\xff"))]
HEADER = {"name": "do", "description": "Do it"}
ENTRY = {"uri": "skill://x/do/SKILL.md", "frontmatter": HEADER, "resources": LINES}
BAD_ENTRIES = [3, *[{**ENTRY, **change} for change in (
    {"uri": "skill://x/other/SKILL.md"}, {"uri": "skill://x/do/a.bin"}, {"frontmatter": None},
    *[{"frontmatter": {**HEADER, key: value}} for key, value in (
        ("name", "x"), ("description", " "), ("description", "x" * 1025), ("description", None))],
    *[{"resources": lines} for lines in ("dynamic", LINES[1:], [*LINES, LINES[1]], [*LINES, 3])],
    *[{"resources": [LINES[0], {**LINES[1], key: value}]} for key, value in (
        ("size", -1), ("size", "1"), ("size", 2**24), ("digest", "sha256:00"), *[
            ("uri", "skill://x/" + path) for path in (
                "a.bin", "do/../a", "do/%2e%2e/a", "do/b%5C..%5Ca", "do/", "do/a//b")])])]]


class Clock:  # stands in for the module `time`; sleeping moves it
    def __init__(self):
        self.now, self.pauses, self.strftime, self.gmtime = 1.8e9, [], time.strftime, time.gmtime
        self.time = self.monotonic = lambda: self.now

    def sleep(self, seconds: float):
        self.pauses.append(seconds)
        self.now += seconds


class Oven:  # a server whose tools become tasks; calling it sends a request
    def __init__(self, **options):
        self.clock, self.runs, self.server = Clock(), [], mcp.Server("oven")
        self.opened, self.begun, self.ended = (threading.Event() for _ in range(3))
        self.tasks = tasks.Tasks(self.server, clock=self.clock.time, **options)
        self.tasks.tool(self.hold)
        self.tasks.tool(self.ask)
        self.tasks.tool(required=True, name="must", title="Must!")(self.hold)

    def hold(self, ctx: Context, says: str = "") -> str:
        self.runs.append(says)
        if says in ("own", "value"):
            raise mcp.RpcError(**TASK_ERROR) if says == "own" else ValueError("told you")
        ctx.notify("notifications/other")
        ctx.progress(1, 3, says or None)
        ctx.on_cancel(self.opened.set)
        self.begun.set()
        self.opened.wait(9 * PATIENCE)
        self.ended.set()
        return f"baked for {ctx.principal}"

    def ask(self, ctx: Context) -> str:
        self.runs.append("requestState" in ctx.params)
        both = ctx.ask({"a-b": mcp.elicitation("A", n=int), "c": mcp.elicitation("C", n=int)})
        every = (both["a-b"], both["c"], ctx.elicit("D?", key="d", n=int))
        return "".join(str(one["content"]["n"]) for one in every)

    def __call__(self, method: str, knows=KNOWS_TASKS, who="ann", **more):
        out, message = [], modern(method, **more)
        message["params"]["_meta"][mcp.META_CAPABILITIES] = knows
        self.server.handle(message, out.append, principal=who)
        return out[-1]["result"] if "result" in out[-1] else out[-1]["error"]["code"]

    def make(self, name: str, **arguments) -> str:
        return self("tools/call", name=name, arguments=arguments)["taskId"]

    def until(self, task: str, status: str, **wanted):
        wanted, end = {"taskId": task, "status": status, **wanted}, time.monotonic() + PATIENCE
        while differences(wanted, self("tasks/get", taskId=task)):
            assert time.monotonic() < end, differences(wanted, self("tasks/get", taskId=task))
            time.sleep(0.002)
        return self("tasks/get", taskId=task)


def test_a_task_from_start_to_end():
    bake, begin = Oven(), "2027-01-15T08:00:00Z"
    made = bake("tools/call", name="hold", arguments={"says": "in the oven"})
    task = made.pop("taskId")
    assert re.fullmatch("[0-9a-f]{32}", task) and made.pop("_meta") and made == {
        "resultType": "task", "status": "working", "ttlMs": 3_600_000, "pollIntervalMs": 1000,
        "createdAt": begin, "lastUpdatedAt": begin}
    other = bake.make("hold")
    bake.until(other, "working", statusMessage="1")
    bake.until(task, "working", statusMessage="in the oven", result=None)
    bake.clock.now += 61
    assert set(bake("tasks/cancel", taskId=other)) == {"resultType", "_meta"}
    bake.until(other, "cancelled", statusMessage="cancelled by the client", result=None)
    assert bake.ended.wait(PATIENCE)  # both tools wait for the same event
    late = bake.until(task, "completed", createdAt=begin, lastUpdatedAt="2027-01-15T08:01:01Z",
                      statusMessage=None, result={"content": [{"text": "baked for ann"}]})
    assert bake("tasks/cancel", taskId=task) and bake("tasks/get", taskId=task) == late
    bake.until(bake.make("must", says="own"), "failed", error=TASK_ERROR, statusMessage="seven")
    bake.until(bake.make("hold", says="value"), "completed", error=None, result={"isError": True})
    with pytest.raises(TypeError, match="Context"):
        bake.tasks.tool(lambda: "x")
    with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError):
        bake.until(bake.make("must", says="own"), "failed")


@parametrize("declared, who, ident, code", [
    *[(declared, "ann", None, -32021) for declared in (
        {}, {"extensions": []}, {"extensions": {tasks.EXTENSION: 3}}, {"tasks": {}})],
    *[(KNOWS_TASKS, *rest, -32602) for rest in (("bob", None), ("ann", "x"), ("ann", ["x"]))]])
def test_who_has_tasks(declared, who, ident, code):
    bake = Oven()
    task = bake.make("must", says="own")
    for verb in ("get", "cancel", "update"):
        assert bake("tasks/" + verb, declared, who, taskId=ident or task, inputResponses={}) == code
    assert bake("tasks/update", taskId=task, inputResponses=["x"]) == -32602
    if code == -32021:
        bake.opened.set()
        bake.until(task, "failed")
        assert bake("tools/call", declared, name="must") == -32021 and bake.runs == ["own"]
        done = bake("tools/call", declared, name="hold", task={"ttl": 9})
        assert done["resultType"] == "complete" and done["content"][0]["text"] == "baked for ann"
    with client.connect(bake.server, revision=LEGACY[0], declare=tasks.DECLARE) as session, \
            pytest.raises(mcp.RpcError, match="not found"):
        assert session.call_tool("must")["isError"]
        session.request("tasks/get", {"taskId": task})
    assert bake("server/discover")["capabilities"]["extensions"] == tasks.DECLARE["extensions"]


@parametrize("late, runs", [(0, [1, 1, 1]), (1, [0, 1, 0, 1, 0, 1, 1])])
def test_a_task_asks_and_takes_answers_one_by_one(late, runs):
    bake = Oven()
    task = bake.make("ask")
    first = bake.until(task, "input_required", requestState=None, inputRequests={
        "1-a-b": {"params": {"message": "A"}}, "1-c": {"params": {"message": "C"}}})
    for key, n, now_asked in (  # only the first answer counts; a bad one is asked for again
            ("other", 1, first["inputRequests"]), ("1-c", None, {"1-a-b": "*"}),
            ("1-c", 3, {"1-a-b": "*", "1-c": None}), ("1-a-b", 2, {"2-c": {}, "2-a-b": None}),
            ("2-c", 3, {"3-d": {}}), ("3-d", 4, None), ("3-d", 5, None)):
        bake.clock.now += late * tasks.STATE_SECONDS / 2
        given = {key: {"action": "accept", "content": {"n": n}}, "x": 1}
        assert bake("tasks/update", taskId=task, inputResponses=given)["resultType"] == "complete"
        bake.until(task, "input_required" if now_asked else "completed", inputRequests=now_asked)
    bake.until(task, "completed", result={"content": [{"text": "234"}]})
    assert bake.runs == [0, *runs]  # late: each run begins without request state


def test_tasks_expire_and_are_not_too_many():
    bake = Oven(most=2, ttl_ms=60_000, poll_ms=5)
    task, other = bake.make("hold"), bake.make("hold")
    assert "Too many" in bake("tools/call", name="hold")["content"][0]["text"]
    bake.clock.now += 59.9
    bake.until(task, "working", ttlMs=60_000, pollIntervalMs=5)
    assert bake.begun.wait(PATIENCE) and not bake.ended.is_set()
    bake.clock.now += 0.1
    assert bake.make("must", says="own") and bake.ended.wait(PATIENCE)  # it was cancelled
    assert bake("tasks/get", taskId=task) == bake("tasks/get", taskId=other) == -32602


class Played:   # stands in for a client: the answers are a list; an exception is raised
    def __init__(self, answers, closed: bool):
        self.left, self.sent, self.answer, self.closed = [*answers], [], "{} {}".format, closed
        self.result_types, self.mirrored = {}, {}

    def request(self, method: str, params):
        assert params.pop("taskId") == "T" and self.mirrored[method] == "taskId"
        self.sent.append((method[6:], *params.values()) if params else method[6:])
        answer = self.left.pop(0) if self.sent[-1] != "cancel" else {}
        if isinstance(answer, Exception):
            raise answer
        return {"taskId": "T", **answer}


@parametrize("answers, sent, pauses, outcome", [
    ([{**WORKS, "pollIntervalMs": n} for n in (250, 0, 1e9)] + [WORKS, DONE], ["get"] * 5,
     [0.25, 0.02, 60, 1], "x"),
    ([ASKS, {}, {**ASKS, "inputRequests": {"k": "?", "l": "?"}}, {}, {**ASKS, **WORKS}, DONE],
     ["get", UPDATES[0], "get", UPDATES[1], "get", "get"], [1], "x"),
    ([LOST] * 3 + [ASKS, LOST, {}, LOST, LOST, WORKS] + [LOST] * 3 + [DONE],
     ["get"] * 4 + [UPDATES[0]] * 2 + ["get"] * 7, [1] * 10, "x"),
    ([LOST] * 4, ["get"] * 4 + ["cancel"], [1] * 3, "OSError lost"), ([LOST], STOP, [], "OSError"),
    ([{**WORKS, "pollIntervalMs": 40_000}] * 4, ["get"] * 3 + STOP, [40, 40, 0.5], "TimeoutError"),
    ([{"status": "failed", "error": TASK_ERROR}], STOP, [], "RpcError 7 seven"),
    ([{"status": "failed", "error": {"code": "x"}}], STOP, [], "RpcError -32603"),
    ([{"status": "cancelled", "statusMessage": "why"}], STOP, [], "RequestCancelled why"),
    *[([state], STOP, [], "Malformed T") for state in (
        {}, {"status": "done"}, {"status": ["working"]}, {"status": "completed", "result": []},
        {"status": "input_required"}, {**WORKS, "taskId": "U"}, {**WORKS, "pollIntervalMs": "5"})]])
def test_a_client_follows_a_task(monkeypatch, answers, sent, pauses, outcome):
    clock, played, seen = Clock(), Played(answers, outcome == "OSError"), []
    made = {"taskId": "T", "status": "made"}
    monkeypatch.setattr(tasks, "time", clock)
    tasks.ClientTasks(played, longest=80.5, on_state=seen.append)
    try:
        come = "x" * (played.result_types["task"]("tools/call", made, "tag") == {"x": 1})
    except Exception as problem:  # noqa: BLE001
        come = f"{type(problem).__name__} {getattr(problem, 'code', '')} {problem}"
    assert all(word in come for word in outcome.split()), come
    assert (played.sent, clock.pauses, played.left) == (sent, pauses, [])
    assert made in seen
    with pytest.raises(client.Malformed):
        played.result_types["task"]("prompts/get", made, None)


@parametrize("text, value", [
    ("a: b c  # x\n# y\n\nb-c.d_1: http://x/#y", {"a": "b c", "b-c.d_1": "http://x/#y"}),
    ("a: 1\nb: -2.5\nc: True\nd: null\ne:\nf: '1'\ng: yes\ni: # x", {
        "a": 1, "b": -2.5, "c": True, "d": None, "e": None, "f": "1", "g": "yes", "i": None}),
    ("a: 'it''s: #x' # y\nb: \"q\\\"\\n: #\"  # z\nc: a-b, c]", {
        "a": "it's: #x", "b": 'q"\n: #', "c": "a-b, c]"}),
    ("a: |\n  x\n    y\n\n  # z\n\nb: |- # c\n    x\n    y\nc: |\nd: e", {
        "a": "x\n  y\n\n# z\n", "b": "x\ny", "c": "", "d": "e"}),
    ("a: >\n  x\n  y\n\n  z\n\n\n  w\nm: # c\n  a: 1\n  # c\n  b: >-\n    x\n    y\n\n  c: d\nn: o",
     {"a": "x y\nz\n\nw\n", "m": {"a": 1, "b": "x y", "c": "d"}, "n": "o"}),
    *[(case[2:], int(case[0])) for case in BAD_YAML.split("|")]])
def test_frontmatter_is_read_or_refused_with_its_line(text, value):
    for newline in ("\n", "\r\n"):
        raw = f"\ufeff---  \n{text}\n---\nbody\n---\n: x".replace("\n", newline).encode()
        if isinstance(value, dict):
            assert json.dumps(skills.frontmatter(raw)) == json.dumps(value)
            continue
        for bad in (raw, b"a: b", b"---\na: b\n", b"\n" + raw[3:], b"---\n\xff: b\n---\n"):
            with pytest.raises(skills.SkillError, match=f"^line {value if bad == raw else 1}: "):
                skills.frontmatter(bad)


def test_skills_are_served(tmp_path, monkeypatch, capsys):
    for path in FOLDER.split():
        name = path.rpartition("/")[2]
        file = tmp_path / path.replace("~", " ") / ("" if "." in name else "SKILL.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "x" * 99 if "1.md" in path else "text" if "." in name else DO_IT % name
        file.write_bytes(text.encode())
    (tmp_path / "a" / "p.png").write_bytes(b"\xff\x00")
    (tmp_path / "link" / "x").symlink_to(tmp_path / "o.md")
    monkeypatch.setattr(skills, "MAX_FILES", 5)
    monkeypatch.setattr(skills, "MAX_BYTES", 110)
    server = mcp.Server("skills")
    entries = skills.serve_skills(server, tmp_path, tmp_path / "b" / "c", tmp_path / "a")
    assert [one["uri"][8:-9] for one in entries] == ["a", "a/in", "b/c", "c"]
    refused = re.findall(r"(\w+).SKILL.md is not served", capsys.readouterr().err)
    assert " ".join(refused) == "UP big link many no no2 a in"
    assert [one["uri"][10:] for one in entries[0]["resources"]] == [
        "SKILL.md", "in/SKILL.md", "p.png", "q.zzz", "x%20y.md"]
    with client.connect(server) as host:
        assert not differences({"skills": entries, "ttlMs": 0, "cacheScope": "private"},
                               host.request("skills/list"))
        assert host.request("skills/get", {"uri": "skill://a/in/SKILL.md"})["skill"] == entries[1]
        about = {"name": "in", "description": "Do it", "mimeType": "text/markdown"}
        assert not differences([{}, about, {}, {}], host.list_resources())
        for path, kind, member, content in (
                ("x%20y.md", "text/markdown", "text", "text"), ("q.zzz", "*", "text", "text"),
                ("p.png", "image/png", "blob", "/wA="), ("SKILL.md", "*", "text", DO_IT % "a")):
            assert not differences([{"mimeType": kind, member: content}],
                                   host.read_resource("skill://a/" + path))
        for uri in STRANGERS.split():
            for method in ("resources/read", "skills/get"):
                with pytest.raises(mcp.RpcError) as raised:
                    host.request(method, {"uri": "skill://" + uri})
                assert raised.value.code == -32602


def test_a_host_uses_only_what_was_approved_and_verified():
    server, asked, said, text = mcp.Server("played"), [], [True], DO_IT % "do"
    with client.connect(server) as connected, pytest.raises(client.ServerLacks, match="docs"):
        skills.Skills(connected, "docs", said.append).list_skills()
    contents = {"SKILL.md": {"text": text}, "a.bin": {"blob": "/w=="}}
    entries = [ENTRY, *BAD_ENTRIES]
    @server.method("skills/list", extension=skills.EXTENSION)
    def pages(params):
        n = int(params.get("cursor") or 0)
        return {"skills": entries[n:n + 9], "nextCursor": str(n + 9) if entries[n + 9:] else None}
    @server.resource("skill://{+path}")
    def read(path: str, ctx: Context):
        asked.append(path)
        return {"uri": ctx.params["uri"], **contents[path[5:]]}
    with client.connect(server) as connected:
        host = skills.Skills(connected, "docs", lambda skill: said.append(skill.uri) or said[0])
        skill, = host.list_skills()
        assert len(host.refused) == len(BAD_ENTRIES) and not asked
        for path, why in (("a.bin", "not approved"), ("b", "not a file")):
            with pytest.raises(skills.SkillError, match=why):
                host.read(skill, path)
            assert host.load(skill) == text and host.read(skill, "a.bin") == b"\xff"
        assert said == [True, skill.uri]  # asked once
        for path, wrong in (("SKILL.md", {"text": text + "!"}), ("a.bin", {"blob": "/g=="}),
                            ("SKILL.md", {"text": "x" * len(text)}), ("a.bin", {"blob": "/"})):
            with pytest.raises(skills.SkillError), pytest.MonkeyPatch.context() as patch:
                patch.setitem(contents, path, wrong)
                host.read(skill, path)
        for answer, change, why in ((True, {"frontmatter": {**HEADER, "x": 1}}, "frontmatter"),
                                    (False, {"resources": LINES[:1]}, "docs")):
            entries[0], said[0] = {**ENTRY, **change}, answer
            with pytest.raises(skills.SkillError, match=why):
                host.load(*host.list_skills())


# ======== The course, beyond what its docstrings print

COURSE = HERE / "examples"
mount = load("mount", COURSE / "mount.py")


def mounted_answer(how: str, verb: str, headers: dict, message):
    """Answer an HTTP request with mount.py, called in one of three ways."""
    path, body = headers.pop(":path"), json.dumps(message).encode()
    environ = {"HTTP_" * (name[:8] != "content-") + name.upper().replace("-", "_"): text
               for name, text in headers.items()}
    environ.update(REQUEST_METHOD=verb, PATH_INFO=path, SCRIPT_NAME="",
                   QUERY_STRING="", CONTENT_LENGTH=str(len(body)))
    if how == "cloud":  # an event of payload format 2.0
        said = mount.handler({"rawPath": path, "requestContext": {"http": {"method": verb}},
                              "headers": headers, "body": body.decode()})
        yield http_answer(said["statusCode"], said["headers"], said["body"])
    elif how == "cgi":
        done = subprocess.run([sys.executable, mount.__file__], input=body, stdout=subprocess.PIPE,
                              timeout=3 * PATIENCE, check=True,
                              env={**os.environ, **environ, "GATEWAY_INTERFACE": "CGI/1.1",
                                   "HTTP_CONTENT_TYPE": environ.get("CONTENT_TYPE", "")})
        yield done.stdout.replace(b"Status:", b"HTTP/1.1", 1)
    else:
        from wsgiref import handlers, util, validate
        util.setup_testing_defaults(environ)
        handler = handlers.SimpleHandler(io.BytesIO(body), io.BytesIO(), sys.stderr, environ)
        handler.run(validate.validator(mount.application))
        yield handler.stdout.getvalue()


def mounted(how: str):
    return contextlib.closing(Site(functools.partial(mounted_answer, how)))


@parametrize("how, version", [
    ("cgi", "2025-06-18"), *itertools.product(["wsgi", "cloud"], ORDER)])
def test_a_client_uses_the_mounted_endpoint(how, version):
    with mounted(how) as site:
        with client.connect(site.url, revision=version, timeout=PATIENCE) as found:
            said = found.call_tool("greet", {"name": "Ada"})
        assert said["content"][0]["text"] == "Hello, Ada!"
        assert "mcp-session-id" not in site.asked[-1][1]


CLOUD_PING = {"body": "eyJqc29ucnBjIjoiMi4wIiwiaWQiOjEsIm1ldGhvZCI6InBpbmcifQ==",
              "isBase64Encoded": True, "headers": {"Content-Type": "application/json"}}


@parametrize("event, status", [
    ({**CLOUD_PING, "httpMethod": "POST", "path": "/mcp"}, 200),
    ({**CLOUD_PING, "httpMethod": "POST", "path": "/mcp", "headers": None, "multiValueHeaders": {
        "content-type": ["application/json"]}}, 200),
    ({**CLOUD_PING, "rawPath": "/prod/mcp", "requestContext": {
        "stage": "prod", "http": {"method": "POST"}}}, 200),
    ({"httpMethod": "GET", "path": "/mcp", "body": None, "headers": None}, 405),
    ({"httpMethod": "POST", "path": "/mcp", "headers": {"Origin": "http://evil"}}, 403)])
def test_a_function_in_a_cloud_reads_events_of_every_format(event, status):
    said = mount.handler(event)
    headers = said["multiValueHeaders" if "multiValueHeaders" in event else "headers"]
    assert said["statusCode"] == status and "application/json" in headers["Content-Type"]
    assert status != 200 or json.loads(said["body"]) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_only_the_carrying_thread_touches_a_wsgi_request():
    users, gone = set(), threading.Event()
    def use(*_):
        users.add(threading.current_thread())
        return use  # it is WSGI's write(), too
    @mount.server.tool
    def helped(ctx: Context):
        ctx.on_cancel(gone.set)
        begin(ctx.progress, 1).result(PATIENCE)
        gone.wait(PATIENCE)
    call = modern("tools/call", name="helped")
    call["params"]["_meta"]["progressToken"] = 0
    body = mcp.encode(call)
    parts = iter(mount.application({
        "REQUEST_METHOD": "POST", "PATH_INFO": "/mcp", "CONTENT_LENGTH": str(len(body)),
        **{"HTTP_" + name.upper().replace("-", "_"): text
           for name, text in headers_of(call).items()}, "wsgi.run_once": False,
        "wsgi.input": mock.Mock(read=lambda size: use() and body[:size])}, use))
    assert any(b"progress" in part for part in parts) and users == {threading.current_thread()}
    parts.close()
    assert gone.wait(PATIENCE)


def test_copies_run_beside_the_module(tmp_path, monkeypatch):
    source = Path(mount.__file__).read_text("utf-8")
    app = shutil.copytree(COURSE / "extensions", tmp_path / "app")
    (tmp_path / "cmd.py").write_text("raise SystemExit('not the standard library')")
    for path in (MCP_REF, MCP_CLIENT):
        shutil.copy(path, app)
    assert source.startswith("#!")
    (app / "mount.py").write_text(source.replace("LISTEN_SECONDS = 5", "LISTEN_SECONDS = 0"))
    assert not command("-c", "import gateway,mount,oauth_server,skills,tasks,cmd", cwd=app).stderr
    monkeypatch.setattr(mount, "__file__", str(app / "mount.py"))
    listen = modern("subscriptions/listen", notifications={})
    headers = {name.lower(): text for name, text in headers_of(listen).items()}
    answer, = mounted_answer("cgi", "POST", {":path": "/mcp", **headers}, listen)
    assert b"200 OK" in answer and b"acknowledged" in answer


@needs_posix
def test_the_check_finds_no_flaw_in_a_good_server():
    check = load("check", COURSE / "check.py")
    check.SECONDS = 3 * PATIENCE
    hello = [sys.executable, str(COURSE / "01_hello_server.py")]
    assert [check.play(hello, *row[1:]) for row in check.HOSTS] == [""] * len(check.HOSTS)


def test_a_socket_carries_both_eras():
    example = load("socket_example", COURSE / "09_socket.py")
    call = modern("tools/call", name="greet", arguments={"name": "Ada"})
    bare = {**call, "params": {**call["params"], "_meta": {}}}
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("r", newline="\n") as answers:
        example.in_thread(example.serve, theirs)
        ours.settimeout(PATIENCE)
        for sent, word in ((b"junk\n", "-32700"), (mcp.encode(call), "Hello, Ada!"),
                           (mcp.encode(OPENING), "2025-11-25"),
                           (READY + mcp.encode(bare), "Hello, Ada!")):
            ours.sendall(sent)
            assert word in answers.readline()


def test_what_to_paste_starts_the_server(tmp_path):
    output = run_printed("python3 examples/config.py examples/01_hello_server.py hello")
    entry = json.JSONDecoder().raw_decode(output[output.index("{"):])[0]["mcpServers"]["hello"]
    done = subprocess.run([entry["command"], *entry["args"]], cwd="/", stdout=subprocess.PIPE,
                          input=b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}', check=True)
    assert json.loads(done.stdout)["result"] == {}
    for name in ("given.py", "mcp_ref.py"):  # the copy beside a file serves it
        (tmp_path / name).touch()
    output = run_printed(f"python3 examples/config.py {tmp_path / 'given.py'}")
    assert json.dumps([str(tmp_path / "mcp_ref.py"), "serve", str(tmp_path / "given.py")]) in output


# ---- the tap and the picture: traces

def trace(path: Path, text: str) -> Path:
    """Write a trace of lines like `> {...}` and `< not JSON`."""
    records = [{"time": "2026-11-22T09:12:01.123Z", "on": "stdio", "way": line[0],
                "text" if isinstance(value_of(line[2:]), str) else "message": value_of(line[2:])}
               for line in text.splitlines()]
    path.write_text("\n".join(map(json.dumps, records)), "utf-8")
    return path


def draw(path: Path) -> str:
    done = command(str(COURSE / "10_picture.py"), str(path))
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


PING = '> {"id": 1, "method": "ping"}\n'


@parametrize("what, lines", [
    ("Request without an answer", PING), ("Id used twice", PING + PING),
    ("Answer that nobody asked for", PING + '< {"id": "1", "result": {}}'),
    ("Answer to a notification", '> {"method": "x"}\n< {"id": null, "error": {"code": 1}}'),
    ("Line that is not JSON", "< Hello"), ("or not a message", '< {"x": 1}'),
    ("Request before the handshake", '> {"id": 1, "method": "tools/list"}'),
    ("Response after the cancellation", PING + '> {"method": "notifications/cancelled", "params": '
     '{"requestId": 1}}\n< {"id": 1, "result": {}}'),
    ("Nothing.", PING + '< {"id": 1, "result": {}}')])
def test_the_overview_of_a_picture_says_what_is_wrong(what, lines, tmp_path):
    overview = draw(trace(tmp_path / "t", lines)).partition("What took long")[0]
    assert what in overview
    assert what == "Nothing." or re.search(r"lesson \d+\): <a href", overview)


def test_a_picture_shows_whatever_a_trace_has_as_text(tmp_path):
    strange = json.dumps("</pre></style><script>alert(1)</script>\"'><img src=//evil>\u202e\0")
    lines = f'> {{"id": {strange}, "method": {strange}, "params": {{"name": {strange}}}}}\n' \
        f'< {{"id": {strange}, "error": {{"code": 1, "message": {strange}}}}}\n'
    page = draw(trace(tmp_path / "t", lines + "> " + "[" * 5000 + "\n" + PING * 5000))
    style = re.search("(?s)<style>(.*?)</style>", page)[1].encode()
    assert base64.b64encode(hashlib.sha256(style).digest()).decode() in page
    assert not re.search(r"<script|<img|\u202e|\0", page) and page.count("</style>") == 1
    assert 'href="#m1"' in page and int(re.search("([0-9,]+) are left out", page)[1].replace(
        ",", "")) + len(re.findall(r'id="m\d+"', page)) == 5003


# ---- lessons and exercises: every line that is written there is what the server says

replay = load("replay", COURSE / "transcripts" / "replay.py")
LESSONS = {path.stem: path for path in (COURSE / "transcripts").glob("[0-9]*.md")}
EXERCISES = (COURSE / "exercises.md").read_text("utf-8").split("\n## ")[1:]
SLIPS = [  # for each exercise: what a learner gets wrong in the solution, a word of the check
    [('"word"', '"title"', "is required"), ('"id": 1, ', "", "is this a request")],
    [('"uri"', '"url"', "uri is missing"), (', "_meta": <meta>', "", "_meta")],
    [("requestId", "id", "have requestId"), ('{"jsonrpc"', '{"id": 3, "jsonrpc"', "notification")],
    [("<state>", "<state>x", "not valid"), ('"accept"', '"agree"', "input_required")],
    [("Mcp-Name", "Mcp-Tool", "Header mismatch"), ("POST", "GET", "405")],
    [('"2025-11-25"', '"2024-11-05"', "2024-11-05"), ('"id": 1, ', "", "is this a request")],
    [('"ping"', '"pong"', "Method not found"), ('"id"', "id", "not a JSON")],
    [("36", '"36"', "not valid"), ('"id": 1', '"id": 2', "is this a response")]]


@parametrize("name", sorted(LESSONS))
def test_a_lesson_replays_and_one_of_its_lines_answers_its_question(name):
    lesson = LESSONS[name].read_text("utf-8")
    answer, = re.findall(r"<summary>Answer</summary>\n\n```text\n(.*)\n```", lesson)
    conversations = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", lesson))
    assert "**Question**: " in lesson and answer in conversations.splitlines()
    assert not (found := replay.run(LESSONS[name], update=False)), "\n".join(found)


@parametrize("name, line, changed", [
    ("03_call_a_tool", "Invalid arguments", "Wrong arguments"),
    ("10_ask_the_user", "Ada is member number 1", "Ada is member number 9"),
    ("17_http_streams", "200 OK", "201 Created"),
    ("17_http_streams", '"progress":2', '"progress":9')])
def test_a_changed_line_is_reported_and_update_restores_it(tmp_path, name, line, changed):
    lesson, copy = LESSONS[name].read_text("utf-8"), tmp_path / "lesson.md"
    copy.write_text(lesson.replace(line, changed, 1), "utf-8")
    problem, = replay.run(copy, update=True)
    assert re.search(r"line \d+: .*expected .*received ", problem, re.DOTALL)
    assert copy.read_text("utf-8") == lesson


@parametrize("number", range(1, len(EXERCISES) + 1))
def test_an_exercise_accepts_its_solution_and_explains_wrong_attempts(number):
    exercise = EXERCISES[number - 1]
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    assert f"replay.py --check {number} " in exercise and replay.check(number, solution) == ""
    assert "jsonrpc" in replay.check(number, solution.replace('"2.0"', "2.0"))
    for right, wrong, word in SLIPS[number - 1]:
        assert right in solution, right
        assert re.search(word, replay.check(number, solution.replace(right, wrong)), re.DOTALL)


# ======== Documents: printed commands print what they say; cut copies work; budgets are kept

README = (HERE / "README.md").read_text("utf-8")
DOCUMENTS = {"README": "\n".join(re.findall(r"(?ms)^```console\n(.*?)^```", README)), **{
    path.stem: str(ast.get_docstring(ast.parse(path.read_text("utf-8")))) + "\n"
    for path in sorted(COURSE.glob("*.py"))
    if path.stem not in ("benchmark", "mcp_client", "vectors")}}


def run_printed(line: str) -> str:
    """Run a command as it is printed, with this Python; return what it prints."""
    return subprocess.run(
        re.sub(r"\bpython3\b", lambda _: sys.executable, line), shell=True, cwd=HERE, text=True,
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=6 * PATIENCE).stdout


@parametrize("name", DOCUMENTS)
def test_a_document_shows_what_its_commands_print(name):
    POSIX or name in "00_by_hand 09_socket check config mount" and pytest.skip(OTHER)
    # `$ command`, perhaps on several lines, and the output, where `...` stands for anything
    found = re.findall(r"(?m)^( *)\$ ((?:.*\\\n)*.+)\n((?:\1(?!\$ ) *\S.*\n)*)", DOCUMENTS[name])
    assert found, "there is no command"
    came = [begin(run_printed, line) for _, line, _ in found]  # all at the same time
    for (_, line, shown), output in zip(found, [future.result() for future in came]):
        pattern = re.escape(textwrap.dedent(shown).strip()).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{line}\n{shown}\ncame:\n{output}"


def test_the_python_of_the_readme_runs():
    start = f"import sys\nsys.path += {[str(COURSE), str(COURSE / 'extensions')]}\n"
    for block in re.findall(r"(?ms)^```python\n(.*?)^```", README):
        done = command("-c", start + block, cwd=HERE)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def play_vectors(*target, revisions=ORDER, again=True):
    done = command(str(HERE / "examples" / "vectors.py"), "--revisions", ",".join(revisions),
                   *map(str, target), seconds=9 * PATIENCE)
    faults = [one for one in done.stdout.split("\n\n")[2:] if "passes alone" not in one and not
              re.match("[A-Z]+ [a-z-]*(cancel|hang|disconnect)", one)]  # these depend on time
    if again and (done.returncode or faults):  # on a busy machine, calls end before a cancel
        return play_vectors(*target, revisions=revisions, again=False)
    assert done.returncode == 0 and not faults, done.stdout


def test_the_vectors_find_no_fault():
    stdio = begin(play_vectors, sys.executable, EVERYTHING)
    with listening(EVERYTHING) as (_, url):
        play_vectors(url)
    stdio.result()


def test_each_rule_has_a_row_that_names_what_exists():
    """CLAUSES.md says in its last two columns what keeps a rule, and which test shows it."""
    vectors = HERE / "examples" / "vectors"
    modules, shown = (mcp, client, oauth, guard, gw, tasks, skills), set()
    for section in (vectors / "CLAUSES.md").read_text("utf-8").split("\n## ")[2:]:
        rows = re.findall(r"(?m)^\| (?!§)(.*) \|$", section)
        counts = re.findall(r" (\d+)\b", section.split("\n")[0])
        assert sum(map(int, counts)) == len(rows), section[:70]
        for kept, proof in (row.split(" | ")[-2:] for row in rows):
            for name in re.findall(r"`([\w.]+)`", kept):
                assert any(functools.reduce(lambda one, part: getattr(one, part, None),
                                            name.split("."), module) for module in modules), name
            shown.update(re.findall("`(.*?)`", proof))
    tests = {name for name in shown if name.startswith("test_")}
    assert [name for name in tests if not fnmatch.filter(globals(), name)] == []
    assert shown - tests == {one["id"] for path in vectors.glob("*.json")
                             for one in json.loads(path.read_text("utf-8")) if "id" in one}


def test_each_line_for_users_of_fastmcp_runs():
    text = (COURSE / "from_fastmcp.md").read_text("utf-8")
    code = re.search(r"(?ms)^```python\n(.*?)^```", text)[1]
    assert sorted(map(int, re.findall(r"\b(\d+)\. ", code))) == [*range(1, 21)]
    calls = """
    for name, given in (("add", {"a": 2}), ("cheapest", {}), ("sea_weather", {}), ("sold", {})):
        assert "isError" not in server.call(name, **given), name
    with connect(server, elicit=lambda params: "decline", sample=lambda params: "") as client:
        assert client.call_tool("order")["isError"]
        assert "sprat" in str(client.get_prompt("recipe", {"fish": "sprat"}))"""
    start = f"import sys\nsys.path.append({str(COURSE)!r})\n"
    done = command("-c", start + code.replace("    server.run() ", calls), cwd=HERE)
    assert done.returncode == 0, done.stderr


def test_no_revision_is_named_outside_the_tables():
    tree = ast.parse(MCP_REF.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    dates = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant)
             and id(node) not in docstrings and re.search(r"20\d\d-\d\d-\d\d", str(node.value))]
    assert len(dates) == len(mcp.REVISIONS)


# By parts: what design.md cuts from the module.
CUTS = {"I": r"# =+ Part II: .*", "I II": r"# =+ Part III .*\n# =+ The end of part III.*?\n"}


@parametrize("parts", CUTS)
def test_a_cut_copy_is_a_complete_modern_server(parts, tmp_path):
    before, after = re.split("(?ms)^" + CUTS[parts], MCP_REF.read_text("utf-8"))
    kept = re.sub(r"(?m)^.*# \[legacy\] *\n", "", before + after)
    (tmp_path / "mcp_ref.py").write_text(kept, "utf-8")
    shutil.copytree(HERE / "examples", tmp_path / "examples")
    # The extensions tasks and skills need the client, and that needs part II.
    kept = re.sub(r"(?m)^.*\b([Tt]asks|serve_skills)\b.*\n", "", EVERYTHING.read_text("utf-8"))
    everything = tmp_path / "examples" / "everything_server.py"
    everything.write_text(kept, "utf-8")
    if parts == "I":
        play_vectors(sys.executable, everything, revisions=MODERN)
    else:
        with listening(everything) as (_, url):
            play_vectors(url, revisions=MODERN)


# The table of design.md §2: a pattern for paths; most lines, bytes, tokens (0: any) of each file,
# or of all together, if there is a fourth number: how many files there may be.
BUDGETS = {row.split()[0]: [*map(int, row.split()[1:])] for row in re.split("\n|;", """\
mcp_ref.py 3300 168000 25800;                   examples/mcp_client.py 1350 70000 10400
test_mcp_ref.py 4700 240000 0;                  examples/vectors/*.json 0 300000 0 99
examples/vectors/CLAUSES.md 0 90000 0;          examples/vectors/README.md 150 0 0
examples/vectors.py 650 0 0;                    examples/10_picture.py 220 0 0
examples/[0-9][0-9]_*.py 90 0 0;                examples/mount.py 150 0 0
examples/config.py 60 0 0;                      examples/check.py 85 0 0
examples/extensions/oauth.py 750 0 0;           examples/extensions/oauth_server.py 170 0 0
*/tasks.py|*/skills.py 330 0 0;                 examples/extensions/gateway.py 450 0 0
examples/extensions/skills/*|*gateway.json 60 0 0 3;    examples/benchmark.py 260 0 0
examples/transcripts/[0-9][0-9]_*.md 1750 0 0 26;       examples/transcripts/*.py 360 0 0 2
examples/transcripts/README.md 220 0 0;         examples/*.svg|examples/*.png 0 40000 0 1
examples/exercises.md 200 0 0;                  examples/from_fastmcp.md 70 0 0
README.md 270 16500 0;                          .ci/* 950 0 0 99
.github/workflows/test.yml 40 0 0;              LICENSE|.gitignore 30 0 0""")}
FILES = shutil.which("git") and subprocess.run(
    ["git", "ls-files"], cwd=HERE, stdout=-1, text=True, check=False).stdout.split() or []
UNCOUNTED = ["COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"]


def row_of(path: str):
    return next((row for row in BUDGETS if any(
        fnmatch.fnmatch(path, pattern) for pattern in row.split("|"))), None)


def size_of(path: str) -> tuple[int, int, int]:
    """Return lines, bytes and tokens as design.md §2 counts them: up to 3.11, f-strings are one."""
    data = (HERE / path).read_bytes()
    counted = path.endswith(".py") and sys.version_info < (3, 12)
    tokens = tokenize.tokenize(io.BytesIO(data).readline) if counted else ()
    return (data.count(b"\n"), len(data),
            sum(tokenize.tok_name[token.type] not in UNCOUNTED for token in tokens))


@pytest.mark.skipif(not FILES, reason="git or its checkout is missing")
@parametrize("row", BUDGETS)
def test_files_are_within_their_budget(row):
    sizes = [size_of(path) for path in FILES if row_of(path) == row] or [(0, 0, 0)]
    most, files = BUDGETS[row][:3], BUDGETS[row][3:]
    for column, ceiling in zip(zip(*sizes), most):
        assert (sum if files else max)(column) <= ceiling or not ceiling
    assert not files or len(sizes) <= files[0]


def test_each_file_has_a_budget_and_lines_of_100_columns():
    for path in FILES:
        assert row_of(path), path
        assert not path.endswith(".py") or max(
            map(len, (HERE / path).read_text("utf-8").splitlines())) <= 100, path
