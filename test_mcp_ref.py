r"""Tests of mcp_ref.py. Most are scripts: text that shows a conversation, line by line.

    == add adds | on: 2025-06-18.. pipe http
    > 1 tools/call {"name": "add", "arguments": {"a": 1, "b": 2}}
    < 1 {"content": [{"text": "3"}]}

`>` is what the client sends and `<` what the server sends. With `client` in its head a script tests
the client, and the runner plays the server; otherwise it tests the server, and the runner plays the
client. Each script runs in each revision and over each carrier (memory; pipe: a process on stdio;
http: loopback) as one test. The runner adds the handshake, `_meta` and HTTP headers. In every test
a referee checks every message: one response per request, none after a cancellation, valid members.

The head: `==`, the title, then any of
    on: WORDS         revisions (*, modern, legacy, a date, A.., ..B, A..B) and carriers; !WORD: not
                      this one; !http-legacy: not over HTTP in the legacy era
    with: FEATURE     only revisions that have this row of FEATURES; without: FEATURE
    server: NAME      a function decorated with @served; the default is `fixture`
    client            test the client; connect: {"timeout": 1, "elicit": {"x": 1}} are its options
    declare: {...}    the capabilities that the runner declares
    bare              no handshake and no `_meta`
    endpoint: {...}   options of Endpoint; limits: {"MAX_BATCH": 3}; patience: SECONDS, to wait
Messages, in either direction:
    > 1 tools/list {"cursor": "x"}      a request; an id is JSON: 1, "1", -5
    > - notifications/cancelled {...}   a notification
    < 1 {"tools": []}                   the result of request 1
    < 1 error {INVALID_PARAMS} uri {"data": 1}   an error: code, one keyword, data; then {} are data
    < ? error {PARSE_ERROR}             an error without id;  null: with the id null
    < #q elicitation/create {...}       a request of the server; q is a label for its id
    > #q {"action": "accept"}           the response to it (a result, or error ...)
    > [{...}, {...}]                    a batch; an expected one may come in any order
    >> {"id": 1                         bytes; \xff is a byte (not over memory).
In a script for the client the ids are ours, labels for those that the client chose, and may be left
out: a line then answers the last request: `> tools/list`, `< {"tools": []}`. `<<` are bytes there;
over HTTP `<< 404 {"Allow": "GET"} x` is a whole response: status, headers and body.
What is expected is part of what comes: members that are not named are not compared, null means
absent, "*" anything, "..." ends a list whose rest does not matter. Over memory and pipes messages
come in the order of the lines; `<*` (`>*`) waits for one anywhere among those that came.
Other lines (a line that starts with four spaces continues the one before; # starts a comment):
    [http modern] < 1 {...}             this line only there (words as in `on:`)
    handshake 2025-06-18 {"roots": {}}  again, with this revision and capabilities; both optional
    wait NAME / open NAME               a tool waits at the gate NAME / let it pass
    changed WHAT / do NAME              server.changed(WHAT) / call the function with @action
    quiet                               the server has sent nothing since
    hang up                             the other end vanishes (a client's not over memory);
    eof                                 no more input on stdio
    ends [STATUS]                       the server's output ends, its process exits with STATUS
    call NAME 1 {"a": 2} timeout=0.5    start client.NAME(1, {"a": 2}, timeout=0.5), or `connect`
    returns {...} / raises NAME word    the outcome of the first call that is not settled; for an
                                        RpcError `raises RpcError -32602 word`
    stderr TEXT / exit STATUS           the played server's process writes to stderr / exits
In any line {VERSION} is the revision, {META} the prefix of reserved keys, {STATE} the last request
state, {ID} and {ID:label} the JSON of an id, {TOKEN} of the last progress token, {LAST:a/0/b} of
a place in the last message, {NAME} the code of an error. Write `test_this = scripts(r'''...''')`.
In Python, `with talk("2025-06-18", "pipe", server="fixture") as t: t("> 1 ping")` plays lines and
`@on("modern http")` parametrizes a function with version and carrier.
MCP_REF and MCP_CLIENT are the files under test; MCP_PARTS ("I II III") which parts they have.
"""
from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import enum
import fnmatch
import functools
import hashlib
import http.client
import http.server
import importlib.util
import inspect
import io
import json
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tokenize
import typing
import webbrowser
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union
from urllib.parse import parse_qsl, urlencode

import pytest

# ---- what is tested: every name of the client, and its command line, is bound here

HERE = Path(__file__).resolve().parent
PATIENCE = float(os.environ.get("MCP_PATIENCE", "10"))      # seconds to wait before a test fails
PARTS = os.environ.get("MCP_PARTS", "I II III").split()
MCP_REF = Path(os.environ.get("MCP_REF", HERE / "mcp_ref.py")).resolve()
MCP_CLIENT = Path(os.environ.get("MCP_CLIENT", HERE / "examples" / "mcp_client.py")).resolve()
MCP_CLIENT = MCP_CLIENT if MCP_CLIENT.exists() else MCP_REF


def load(name: str, path: Path) -> Any:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mcp = load("mcp_ref", MCP_REF)
client = mcp if MCP_CLIENT == MCP_REF else None
if client is None and "II" in PARTS:
    client = load("mcp_client", MCP_CLIENT)
CLIENT_COMMAND = [sys.executable, str(MCP_CLIENT)]
ORDER = list(mcp.REVISIONS)                                 # newest first
LEGACY = mcp.versions("legacy") if "III" in PARTS else []
MODERN = mcp.versions("modern")
CARRIERS = ["memory", "pipe", "http"] if "II" in PARTS else ["memory", "pipe"]
META = "io.modelcontextprotocol/"
CODES = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row.name).upper().replace("URLE", "URL_E"): code
         for code, row in mcp.ERRORS.items()}
LIMITS = {
    "MAX_MESSAGE_BYTES", "MAX_BATCH", "MAX_RUNNING", "MAX_THREADS", "MAX_COMPLETIONS",
    "ASK_SECONDS", "STATE_SECONDS", "BLINK_SECONDS", "LEAVE_SECONDS", "MAX_CONNECTIONS",
    "MAX_HEADERS", "MAX_LINE_BYTES", "SEND_SECONDS", "KEEP_ALIVE_SECONDS", "MAX_SESSIONS",
    "SESSION_SECONDS", "MAX_STREAMS", "REPLAY_BYTES", "RETRY_MS", "CALL_SECONDS",
    "LONGEST_SECONDS", "PROBE_SECONDS", "MAX_ROUNDS", "MAX_PAGES", "CLOSE_STEP_SECONDS",
    "KEEP_CONNECTION_SECONDS", "MAX_KEPT", "MAX_LAST_LINES", "MAX_REDIRECTS", "RETRY_SECONDS"}
MIRRORED = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}
STATUS = {CODES[name]: status for name, status in (
    ("PARSE_ERROR", 400), ("METHOD_NOT_FOUND", 404), ("HEADER_MISMATCH", 400),
    ("MISSING_REQUIRED_CLIENT_CAPABILITY", 400), ("UNSUPPORTED_PROTOCOL_VERSION", 400))}


@contextlib.contextmanager
def limits(**values: Any) -> Any:
    """Set limits of design.md §12 in the modules, for a while."""
    assert set(values) <= LIMITS, values
    before = [(module, name, getattr(module, name)) for name in values
              for module in {mcp, client or mcp} if hasattr(module, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, values[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def exists(row: Any, version: str) -> bool:
    """Tell whether a revision has a row of a table."""
    return ORDER.index(row.until or ORDER[0]) <= ORDER.index(version) <= ORDER.index(row.since)


def has_feature(name: str, version: str) -> bool:
    return exists(mcp.FEATURES[name], version)


# ---- the server that most scripts talk to

Context = mcp.Context
SERVERS: dict[str, Any] = {}
ACTIONS: dict[str, Any] = {}
PNG = b"\x89PNG fake"


def served(function: Any) -> Any:
    """Make a function of a Stage, which returns a Server, available as `server: NAME`."""
    SERVERS[function.__name__] = function
    return function


def action(function: Any) -> Any:
    """Make a function of a Server available as `do NAME`."""
    ACTIONS[function.__name__] = function
    return function


class Stage:
    """The gates of a server: a tool stops at one until the script opens it."""

    def __init__(self, report: Any = lambda *words: None) -> None:
        self.report = report
        self.gates: dict[str, threading.Event] = {}

    def gate(self, name: str) -> threading.Event:
        return self.gates.setdefault(name, threading.Event())

    def stop(self, name: str, ctx: Any = None) -> None:
        """Report that the gate is reached; wait until it is opened, or `ctx` cancelled."""
        if ctx is not None:
            ctx.on_cancel(self.gate(name).set)
        self.report(name)
        self.gate(name).wait(3 * PATIENCE)

    def act(self, server: Any, verb: str, word: str) -> None:
        {"open": lambda: self.gate(word).set(), "changed": lambda: server.changed(word),
         "do": lambda: ACTIONS[word](server)}[verb]()


@served
def fixture(stage: Stage) -> Any:
    """Make a server with some of everything."""
    server = mcp.Server("test", "1.2", "Use it gently.", title="Test",
                        websiteUrl="https://example.org")
    fixture_tools(server, stage)
    fixture_questions(server)
    fixture_resources(server)

    @server.method("example.org/verb", extension="example.org/ext", settings={"level": 3})
    def verb(params: dict, ctx: Context) -> dict:
        return {"got": params.get("x"), "version": ctx.version}
    return server


def fixture_tools(server: Any, stage: Stage) -> None:
    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(title="Echo!", annotations={"readOnlyHint": True}, _meta={"k": 1},
                 icons=[{"src": "https://example.org/i.png"}])
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    def fail(how: str) -> str:
        """Raise an exception."""
        if how == "exit":
            sys.exit(3)
        raise {"value": ValueError("told you"), "silent": KeyError(), "missing": mcp.NotFound(),
               "own": mcp.RpcError(7, "seven", [7]), "reserved": mcp.RpcError(-32001, "not ours"),
               "old": mcp.RpcError(CODES["RESOURCE_NOT_FOUND"], "gone")}[how]

    @server.tool
    def slow(gate: str, ctx: Context) -> str:
        """Wait until the gate is opened, then report progress: not to be sent if cancelled."""
        stage.stop(gate, ctx)
        ctx.progress(99)
        stage.report(gate + " passed")
        return "cancelled" if ctx.cancelled else "held"

    @server.tool
    def steps(ctx: Context) -> str:
        """Report progress; what does not grow is not sent."""
        for value in (0, 1, 1, 0.5, 2.5):
            ctx.progress(value, 3, f"at {value:g}")
        return "done"

    @server.tool
    def talk(ctx: Context) -> str:
        """Log at every level."""
        for level in mcp.LOG_LEVELS:
            ctx.log(level, {"says": level}, "talker")
        return "said"

    @server.tool
    def tell(method: str, ctx: Context) -> str:
        """Send a notification, then report the revision."""
        ctx.notify(method, {"x": 1})
        return ctx.version

    @server.tool
    def later(ctx: Context) -> str:
        """[legacy] Hang up the stream and go on."""
        ctx.close_stream()
        ctx.notify("notifications/later", {})
        return "later"


def fixture_questions(server: Any) -> None:
    runs = Counter()

    @server.tool
    def ask(ctx: Context) -> str:
        """Elicit a branch; `except Exception` must not catch the unwinding."""
        try:
            return json.dumps(ctx.elicit("Which branch?", branch=str), sort_keys=True)
        except Exception as problem:    # noqa: BLE001
            return f"failed: {type(problem).__name__}"

    @server.tool
    def asks(what: str, ctx: Context) -> str:
        """Elicit, or sample, or list roots; count the runs."""
        runs[what] += 1
        if what == "sample":
            answer = ctx.sample("Hi", max_tokens=9)["model"]
        elif what == "roots":
            answer = [root["uri"] for root in ctx.list_roots()]
        elif what == "two":
            first = ctx.elicit("One?", key="one", one=int)["content"]
            answer = [first, ctx.elicit("Two?", two=int)["content"]]
        else:
            answer = ctx.elicit("Sign in", url="https://example.org/in")["action"]
        return json.dumps([answer, runs[what]])

    @server.tool
    def together(ctx: Context) -> str:
        """Ask three questions at once."""
        return json.dumps(sorted(ctx.ask({
            "who": mcp.elicitation("Who?", name=str), "model": mcp.sampling("Hi", max_tokens=9),
            "where": mcp.roots()})))


def fixture_resources(server: Any) -> None:
    @server.resource("test://text", title="Text", mime_type="text/plain", size=5,
                     annotations={"audience": ["user"], "lastModified": "2025-01-01T00:00:00Z"})
    def a_text() -> str:
        return "hello"

    @server.resource("test://blob", mime_type="image/png", ttl_ms=5000, cache_scope="public")
    def a_blob() -> bytes:
        return PNG

    @server.resource("test://fails")
    def fails() -> str:
        raise ValueError("a secret")

    @server.resource("test://gone")
    def gone() -> str:
        raise mcp.NotFound()

    @server.resource("test://item/{number}/{part}")
    def item(number: int, part: str) -> str:
        return f"{part!r} of {number!r}"

    @server.resource("file:///{+path}", mime_type="text/plain")
    def a_file(path: str) -> str:
        return "file " + path

    @server.prompt(title="Greeting")
    def greet(name: str, times: int = 1) -> str:
        """Greet someone."""
        return f"Hello, {name}!" * times

    @server.completion("greet", "name")
    def names(typed: str) -> list:
        return [name for name in ("ada", "alan", "grace") if name.startswith(typed)]


@served
def empty(stage: Stage) -> Any:
    return mcp.Server("empty")


# ---- reading scripts

class Script(NamedTuple):
    """One script: its title, the options of its head, its lines with their numbers."""
    title: str
    head: dict[str, str]
    lines: list[tuple[int, str]]
    where: int


def covers(word: str, version: str) -> bool:
    """Tell whether a revision is meant by a word of `on:`."""
    first, dots, last = word.partition("..")
    if dots:
        place = ORDER.index(version)
        return ORDER.index(last or ORDER[0]) <= place <= ORDER.index(first or ORDER[-1])
    return word in ("*", version, mcp.REVISIONS[version].era)


def select(words: str, carriers: Any = ()) -> list[tuple[str, str]]:
    """Return the pairs of revision and carrier that the words of `on:` name."""
    names = [word for word in words.split() if word[0] != "!"]
    on = [name for name in names if name in ("memory", "pipe", "http")]
    dates = [name for name in names if name not in on] or ["*"]
    nots = [word[1:].split("-", 1) if word[1:5].isalpha() else [word[1:]]
            for word in words.split() if word[0] == "!"]
    return [(version, carrier) for version in MODERN + LEGACY for carrier in CARRIERS
            if carrier in (on or carriers or CARRIERS) and any(covers(d, version) for d in dates)
            and not any(all(part == carrier or covers(part, version) for part in n) for n in nots)]


def parse(text: str, line: int) -> list[Script]:
    """Split a text into scripts; `line` is its first line's number in the file."""
    found: list[Script] = []
    rows: list[list] = []
    for number, row in enumerate(textwrap.dedent(text).split("\n"), line):
        if row.startswith("    ") and rows:
            rows[-1][1] += " " + row.strip()
        elif row.strip() and (row[0] != "#" or row[1:2] != " "):
            rows.append([number, row.rstrip()])
    for number, row in rows:
        if row.startswith("== "):
            title, *options = row[3:].split(" | ")
            pairs = [option.strip().partition(":") for option in options]
            found.append(Script(title.strip(), {k: v.strip() or "yes" for k, _, v in pairs}, [],
                                number))
        else:
            found[-1].lines.append((number, row))
    return found


def parameters(script: Script) -> Any:
    """Yield a pytest parameter for each revision and carrier of a script."""
    head, played = script.head, "client" in script.head
    raw = any(row.lstrip().startswith(">> ") for _, row in script.lines)
    for version, carrier in select(head.get("on", "*"), ["pipe", "http"] if raw else ()):
        if not all(has_feature(head[word], version) is wanted for word, wanted in (
                ("with", True), ("without", False)) if word in head):
            continue
        if played and (client is None or carrier == "http" and "http" not in head.get("on", "")
                       and not has_feature("streamable sessions", version)
                       and version not in MODERN):
            continue
        yield pytest.param(script, version, carrier, id=f"{script.title}-{version}-{carrier}")


def scripts(text: str) -> Any:
    """Make a test function of a text of scripts."""
    cases = [case for script in parse(text, sys._getframe(1).f_lineno)
             for case in parameters(script)]

    @pytest.mark.parametrize("script, version, carrier", cases)
    def test(script: Script, version: str, carrier: str) -> None:
        with talk(version, carrier, script.where, **{
                key: value for key, value in script.head.items()
                if key not in ("on", "with", "without")}) as conversation:
            for number, row in script.lines:
                conversation.play(row, number)
    return test


def on(words: str) -> Any:
    """Parametrize a test function with the versions and carriers that the words name."""
    return pytest.mark.parametrize("version, carrier", select(words))


def pieces(text: str) -> list[Any]:
    """Split a line into words and JSON values."""
    found, text = [], text.strip()
    while text:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
            if text[end:end + 1].strip():
                raise ValueError
        except ValueError:
            value, end = text.split(None, 1)[0], len(text.split(None, 1)[0])
        found.append(value)
        text = text[end:].strip()
    return found


def differences(wanted: Any, came: Any, place: str = "") -> list[str]:
    """List where `came` lacks what is wanted."""
    if wanted == "*" or wanted is None and came is None:
        return []
    if isinstance(wanted, dict) and not isinstance(came, (str, int, list, type(None))):
        came = came if isinstance(came, dict) else vars(came)
        return [line for key, value in wanted.items() if value is not None or came.get(key)
                is not None for line in (differences(value, came[key], place + "/" + key)
                if key in came else [f"{place}/{key} is missing"])]
    if isinstance(wanted, list) and isinstance(came, list):
        open_end = wanted[-1:] == ["..."]
        wanted = wanted[:-1] if open_end else wanted
        if len(came) >= len(wanted) if open_end else len(came) == len(wanted):
            return [line for n, value in enumerate(wanted)
                    for line in differences(value, came[n], f"{place}/{n}")]
    if wanted == came and type(wanted) is type(came):
        return []
    shown = json.dumps(came, default=repr)[:600]
    return [f"{place or '/'}: expected {json.dumps(wanted)[:300]}, came {shown}"]


# ---- what must hold of every message

class Referee:
    """Watches both directions of one conversation, in the order in which messages come."""

    def __init__(self) -> None:
        self.open: dict[str, dict] = {}     # requests under way, by way and JSON of the id
        self.seen: set[str] = set()         # every id of a request, likewise
        self.refusals = 0                   # errors without an id that may still come
        self.progress: dict[str, float] = {}
        self.acknowledged: set[str] = set()
        self.version = ""

    def sent(self, message: Any, other: str = ">") -> None:
        """Note what the played side sends; `other` is its arrow."""
        batch = isinstance(message, list)
        batches = self.version and has_feature("batches", self.version)
        for one in message if batch and batches else [message]:
            if not isinstance(one, dict) or not mcp.is_id(one.get("id")):
                self.refusals += 1
            elif not {"result", "error"} & set(one):
                self.note(one, other)
        self.refusals += batch
        params = message.get("params") if isinstance(message, dict) else None
        if isinstance(params, dict) and message.get("method") == "notifications/cancelled":
            request = self.open.get(other + json.dumps(params.get("requestId")))
            if request is not None:
                request["cancelled"] = True

    def note(self, request: dict, arrow: str) -> None:
        params = request.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        meta = meta if isinstance(meta, dict) else {}
        key = arrow + json.dumps(request["id"])
        self.open.setdefault(key, {"method": request.get("method"), "count": 0, "cancelled": False,
                                   "modern": META + "protocolVersion" in meta})["count"] += 1
        if "progressToken" in meta:
            self.progress[json.dumps(meta["progressToken"])] = float("-inf")

    def received(self, message: Any, arrow: str = "<") -> None:
        """Check what the side under test sends."""
        for one in message if isinstance(message, list) else [message]:
            assert isinstance(one, dict) and one.get("jsonrpc") == "2.0", one
            if "method" in one:
                assert set(one) <= {"jsonrpc", "id", "method", "params"}, one
                assert isinstance(one.get("params", {}), dict), one
                (self.request if "id" in one else self.notification)(one, arrow)
            else:
                self.response(one, ">" if arrow == "<" else "<")

    def request(self, message: dict, arrow: str) -> None:
        row = mcp.METHODS.get(message["method"])
        modern = META + "protocolVersion" in message.get("params", {}).get("_meta", {})
        key = arrow + json.dumps(message["id"])
        assert mcp.is_id(message["id"]) and key not in self.seen, "an id was used twice"
        assert arrow == ">" or not modern and self.version in LEGACY, "modern servers do not ask"
        version = message["params"]["_meta"][META + "protocolVersion"] if modern else self.version
        assert row is None or arrow in row.way and (not version or exists(row, version)), row
        if modern:
            assert isinstance(message["params"]["_meta"].get(META + "clientCapabilities"), dict)
        self.seen.add(key)
        self.note(message, arrow)

    def notification(self, message: dict, arrow: str) -> None:
        row, params = mcp.NOTIFICATIONS.get(message["method"]), message.get("params", {})
        assert row is None or arrow in row.way, "not for this side to send"
        assert row is None or not self.version or exists(row, self.version), "not in this revision"
        token = json.dumps(params.get("progressToken"))
        if message["method"] == "notifications/progress" and arrow == "<":
            assert params["progress"] > self.progress[token], "progress must grow"
            self.progress[token] = params["progress"]
        tag = params.get("_meta", {}).get(META + "subscriptionId")
        if message["method"] == "notifications/subscriptions/acknowledged":
            self.acknowledged.add(json.dumps(tag))
        elif tag is not None and arrow == "<":
            assert json.dumps(tag) in self.acknowledged, "a change before the acknowledgement"
        if message["method"] == "notifications/cancelled" and arrow == ">":
            self.open.get(">" + json.dumps(params["requestId"]), {})["cancelled"] = True

    def response(self, message: dict, asker: str) -> None:
        assert ("result" in message) != ("error" in message), message
        error = message.get("error")
        if error is not None:
            assert type(error["code"]) is int and isinstance(error["message"], str), message
            assert set(error) <= {"code", "message", "data"}, message
            row = mcp.ERRORS.get(error["code"])
            assert row or not -32768 <= error["code"] <= -32000, "a reserved code"
            assert not row or not self.version or exists(row, self.version), "not this revision's"
        if message.get("id") is None:
            assert error is not None and self.refusals > 0, "an answer to nothing"
            self.refusals -= 1
            return
        key = asker + json.dumps(message["id"])
        request = self.open.get(key, {"count": 0})
        assert request["count"] > 0, "a response that nobody waits for"
        assert not request["cancelled"], "a response after the cancellation"
        request["count"] -= 1
        if not request["count"]:
            del self.open[key]
        if error is None and asker == ">":
            self.result(request, message["result"])

    def result(self, request: dict, result: dict) -> None:
        """Check the result of a server."""
        row = mcp.METHODS.get(request["method"])
        kind = result.get("resultType")
        assert (kind is not None) == request["modern"], "resultType is of the modern era"
        hints = {"ttlMs", "cacheScope"} & set(result)
        cacheable = bool(row and row.cacheable and kind == "complete")
        assert not row or len(hints) == 2 * cacheable, f"caching hints: {hints}"
        if kind == "input_required":
            assert row is None or row.asks, "may not ask"
            assert all("<" in mcp.METHODS[one["method"]].way and "id" not in one
                       for one in result["inputRequests"].values()), result
        if request["modern"]:
            assert isinstance(result["_meta"][META + "serverInfo"]["name"], str), result
        elif request["method"] == "initialize":
            self.version = result["protocolVersion"]
        version = MODERN[0] if request["modern"] else self.version
        hidden = {name for row in mcp.FEATURES.values() if version and not exists(row, version)
                  for name in row.fields.split()}
        for member, of in (("tools", "tool"), ("resources", "resource"), ("prompts", "prompt"),
                           ("resourceTemplates", "template"), ("content", "*")):
            for item in result.get(member, []):
                assert not {of + "." + key for key in item} & hidden, (item, hidden)
                assert not {"*." + key for key in item} & hidden, (item, hidden)
        assert not {"result." + key for key in result} & hidden, (result, hidden)

    def finish(self) -> None:
        owed = [key for key, request in self.open.items() if key[0] == ">" and
                not request["cancelled"]]
        assert not owed, f"never answered: {owed}"


class Inbox:
    """What the side under test sent, checked as it comes, and a condition to wait on."""

    def __init__(self, arrow: str) -> None:
        self.referee, self.arrow = Referee(), arrow
        self.items: list[Any] = []          # [message, reply]
        self.reached: set[str] = set()
        self.problems: list[BaseException] = []
        self.count, self.changed = 0, threading.Condition()
        self.patience = PATIENCE

    def put(self, message: Any, reply: Any = None) -> None:
        with self.changed:
            try:
                self.referee.received(message, self.arrow)
            except Exception as problem:        # noqa: BLE001
                self.problems.append(AssertionError(
                    f"{type(problem).__name__} {problem}: {json.dumps(message)[:500]}"))
            self.items.append((message, reply))
            self.count += 1
            self.changed.notify_all()

    def report(self, name: str = "", problem: Any = None) -> None:
        with self.changed:
            self.reached.add(name)
            self.problems.extend([problem] if problem is not None else [])
            self.changed.notify_all()

    def until(self, test: Any, what: str) -> Any:
        """Wait until `test` returns something true, and return it."""
        with self.changed:
            found = self.changed.wait_for(lambda: self.problems or test(), self.patience)
            if self.problems:
                raise self.problems[0]
            assert found, f"{what}: not in {self.patience:g} s; there is {self.items!r:.1000}"
            return found

    def take(self, fits: Any, what: str, anywhere: bool, idle: Any) -> Any:
        """Remove and return the next message, or the first one anywhere that fits."""
        def find() -> Any:
            for item in self.items:
                if not anywhere or fits(item[0]):
                    return [item]
            return ["nothing"] if idle() else None
        (item,) = self.until(find, what)
        assert item != "nothing", f"nothing came, and nothing runs; there is {self.items}"
        with self.changed:
            self.items.remove(item)
        return item


# ---- carriers to a server under test: start, send(bytes, message), act, eof, hang_up, close

class Memory:
    """Calls `handle`, each message on a thread of its own, which has admitted it when we go on."""

    ordered = True

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        self.talk, self.inbox, self.threads = talk, inbox, []
        self.stage = Stage(inbox.report)
        self.server = SERVERS[talk.options["server"]](self.stage)
        self.peer = mcp.Peer(self.deliver)

    def deliver(self, message: Any) -> None:
        self.inbox.put(json.loads(mcp.encode(message)))

    def send(self, data: bytes, message: Any) -> None:
        before = self.inbox.count + len(self.inbox.reached)
        thread = self.spawn(self.handle, mcp.decode(data))
        self.inbox.until(lambda: not thread.is_alive() or thread.name == "done"
                         or self.inbox.count + len(self.inbox.reached) > before, "handle()")

    def spawn(self, function: Any, *arguments: Any) -> Any:
        def run() -> None:
            problem = None
            try:
                function(*arguments)
            except Exception as raised:         # noqa: BLE001
                problem = raised
            threading.current_thread().name = "done"
            self.inbox.report(problem=problem)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads = [*filter(threading.Thread.is_alive, self.threads), thread]
        return thread

    def handle(self, message: Any) -> None:
        self.server.handle(message, self.deliver, peer=self.peer)

    def act(self, verb: str, word: str) -> None:
        self.stage.act(self.server, verb, word)

    def idle(self) -> bool:
        return all(thread.name == "done" for thread in self.threads)

    def eof(self) -> None:
        self.peer.close()

    hang_up = eof

    def close(self) -> None:
        self.eof()
        for gate in list(self.stage.gates.values()):
            gate.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a handler still runs"


def served_by(function: str) -> list[str]:
    """Return a command that imports this file and calls a function of it with the arguments."""
    return [sys.executable, "-c", """if True:
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("test_mcp_ref", sys.argv[1])
        sys.modules["test_mcp_ref"] = tests = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tests)
        getattr(tests, sys.argv[2])(*sys.argv[3:])""", __file__, function]


def serve(name: str = "fixture", *arguments: str) -> None:
    """Run a server as a program of its own: [*served_by("serve"), "fixture", "--http", "0"]."""
    sys.argv = ["server.py", *arguments]
    SERVERS[name](Stage()).run()


class Zygote:
    """A process that has imported this file, and forks servers on stdio: 5 ms instead of 200."""

    @functools.cached_property
    def channel(self) -> Any:
        ours, theirs = socket.socketpair()
        subprocess.Popen([*served_by("zygote"), str(theirs.fileno())],
                         pass_fds=[theirs.fileno()], start_new_session=True).returncode = 0
        theirs.close()
        return ours

    def spawn(self, request: dict, descriptors: list[int]) -> None:
        socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)
        assert self.channel.recv(1) == b"."
        for descriptor in descriptors:
            os.close(descriptor)


ZYGOTE = Zygote()


def zygote(descriptor: str) -> None:
    """Fork a server for each request: its name and limits, stdin, stdout, stderr and control."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel = socket.socket(fileno=int(descriptor))
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 65536, 4)
        if not data:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            run_child(json.loads(data), descriptors)
        for one in descriptors:
            os.close(one)
        channel.send(b".")


def run_child(request: dict, descriptors: list[int]) -> None:
    """Serve on stdio, commanded over a socket, in one more process, whose end this one reports."""
    control = socket.socket(fileno=descriptors[3])
    pid = os.fork()
    if pid:
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        status = os.waitpid(pid, 0)[1]
        status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        control.sendall((json.dumps(["exit", status]) + "\n").encode())
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = [
        open(number, mode, closefd=False) for number, mode in enumerate("rww")]     # noqa: SIM115
    stage = Stage(lambda *words: control.sendall((json.dumps(words) + "\n").encode()))
    server = SERVERS[request["server"]](stage)

    def obey() -> None:
        for number, line in enumerate(control.makefile(), 1):
            stage.act(server, *json.loads(line))
            stage.report(f"act {number}")
    threading.Thread(target=obey, daemon=True).start()
    stage.report("pid", os.getpid())
    sys.argv, status = ["server.py"], 1
    try:
        with limits(**request["limits"]):
            server.run()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


class Pipe:
    """Talks to a process that serves stdio."""

    ordered = True

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        self.talk, self.inbox, self.status = talk, inbox, None
        self.pid, self.acts = 0, 0
        theirs, self.stdin = os.pipe()
        stdout, back = os.pipe()
        stderr, error = os.pipe()
        self.control, control = socket.socketpair()
        self.output = [open(stdout, "rb"), open(stderr, "rb")]      # noqa: SIM115
        self.stderr: list[str] = []
        ZYGOTE.spawn({"server": talk.options["server"], "limits": talk.limits},
                     [theirs, back, error, control.detach()])
        self.threads = [threading.Thread(target=target, daemon=True)
                        for target in (self.pump, self.pump_stderr, self.obey)]
        for thread in self.threads:
            thread.start()

    def pump(self) -> None:
        for line in self.output[0]:
            try:
                assert line.endswith(b"\n") and line.isascii(), "not one line of ASCII"
                self.inbox.put(json.loads(line))
            except Exception as problem:        # noqa: BLE001
                self.inbox.report(problem=AssertionError(f"on stdout: {line!r}: {problem}"))
        self.inbox.report("eof")

    def pump_stderr(self) -> None:
        for line in self.output[1]:
            self.stderr.append(line.decode("utf-8", "replace"))

    def obey(self) -> None:
        with self.control.makefile() as lines:
            for line in lines:
                name, *values = json.loads(line)
                self.pid = values[0] if name == "pid" else self.pid
                self.status = values[0] if name == "exit" else self.status
                self.inbox.report(name)
        self.inbox.report("gone")

    def send(self, data: bytes, message: Any) -> None:
        data += b"\n"
        while data:
            data = data[os.write(self.stdin, data):]

    def act(self, verb: str, word: str) -> None:
        if verb != "open":                      # what was sent before has to arrive before
            self.talk.sync()
        self.acts += 1
        self.control.sendall(json.dumps([verb, word]).encode() + b"\n")
        self.inbox.until(lambda: f"act {self.acts}" in self.inbox.reached, verb)

    def idle(self) -> bool:
        return "eof" in self.inbox.reached

    def eof(self) -> None:
        if self.stdin:
            os.close(self.stdin)
            self.stdin = 0

    hang_up = eof

    def close(self) -> None:
        try:
            self.eof()
            self.inbox.until(lambda: {"eof", "gone"} <= self.inbox.reached, "the server's end")
            assert self.status == 0, f"exit status {self.status}"
        finally:
            if "gone" not in self.inbox.reached and self.pid:
                os.kill(self.pid, signal.SIGKILL)
            for thread in self.threads:
                thread.join(PATIENCE)
            for stream in [*self.output, self.control]:
                stream.close()
            if self.inbox.problems or self.status != 0:
                sys.stderr.write("".join(self.stderr))


def connection_to(port: int) -> Any:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)


def exchange(port: int, verb: str, path: str, headers: dict, body: Any = None) -> Any:
    """Make one HTTP exchange; return status, headers (lower case) and body, decoded if JSON."""
    connection = connection_to(port)
    try:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(verb, path, data, headers)
        answer = connection.getresponse()
        data = answer.read()
        with contextlib.suppress(ValueError):
            data = json.loads(data)
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, data
    finally:
        connection.close()


@contextlib.contextmanager
def http_serving(server: Any, **options: Any) -> Any:
    """Serve a server over loopback HTTP; yield the http.server, which knows its `server_port`."""
    httpd = mcp.http_server(mcp.Endpoint(server, **options))
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield httpd
    finally:
        httpd.close()
        thread.join(PATIENCE)


class Http(Memory):
    """Talks over loopback HTTP, each POST on a connection and a thread of its own."""

    ordered = False

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        super().__init__(talk, inbox)
        self.serving = http_serving(self.server, **json.loads(talk.options.get("endpoint", "{}")))
        self.httpd = self.serving.__enter__()
        self.session: dict[str, str] = {}
        self.posts: dict[str, Any] = {}         # open connections, by JSON of the request id
        self.left = False

    def headers(self, message: Any) -> dict[str, str]:
        """Make the headers of a well-behaved client."""
        headers = {"Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream"}
        one = message if isinstance(message, dict) else {}
        params = one.get("params") if isinstance(one.get("params"), dict) else {}
        version = self.talk.version if self.talk.modern and one else ""
        if self.is_modern(message):
            version = params["_meta"][META + "protocolVersion"]
        if version:
            name = params.get(MIRRORED.get(one.get("method"), ""))
            return {**headers, "MCP-Protocol-Version": str(version),
                    "Mcp-Method": str(one.get("method")),
                    **({"Mcp-Name": mcp.mirror(name)} if isinstance(name, str) else {})}
        return headers if one.get("method") == "initialize" else {**headers, **self.session}

    def send(self, data: bytes, message: Any) -> None:
        one = message if isinstance(message, dict) else {}
        params = one.get("params") or {}
        if self.talk.modern and one.get("method") == "notifications/cancelled" and params:
            self.posts.pop(json.dumps(params["requestId"])).sock.shutdown(2)
            return                              # in the modern era to hang up is to cancel
        sent = threading.Event()
        waits = "method" in one and "id" in one
        thread = self.spawn(self.post, data, message, sent if waits else None)
        self.inbox.until(lambda: sent.is_set() or thread.name == "done", "sending a POST")
        if one.get("method") == "notifications/initialized" and self.session:
            self.spawn(self.listen, sent)
            self.inbox.until(sent.is_set, "the GET stream")

    def post(self, data: bytes, message: Any, sent: Any) -> None:
        connection = connection_to(self.httpd.server_port)
        ident = json.dumps(message.get("id") if isinstance(message, dict) else None)
        try:
            self.posts[ident] = connection
            connection.request("POST", "/mcp", data, self.headers(message))
            if sent is not None:
                sent.set()
                self.inbox.report()
            answer = connection.getresponse()
            self.session = {"Mcp-Session-Id": answer.getheader("Mcp-Session-Id")} \
                if answer.getheader("Mcp-Session-Id") else self.session
            self.read(message, answer)
        except (OSError, AttributeError, ValueError, http.client.HTTPException):
            if self.posts.get(ident) is connection and not self.left:
                raise
        finally:
            self.posts.pop(ident, None)
            connection.close()

    def read(self, message: Any, answer: Any) -> None:
        kind = answer.getheader("Content-Type", "")
        if kind.startswith("text/event-stream"):
            assert answer.status == 200, answer.status
            return self.follow(answer)
        data = answer.read()
        if answer.status == 202:
            assert data == b"" and not kind, (kind, data)
        else:
            assert kind == "application/json" and answer.status in (200, 400, 404), (kind, data)
            came = json.loads(data)
            code = came.get("error", {}).get("code") if isinstance(came, dict) else None
            wanted = answer.status
            if self.is_modern(message):
                wanted = STATUS.get(code, wanted)
            elif self.session and isinstance(message, dict):
                wanted = 200
            assert answer.status == wanted, f"{came}: status {answer.status}"
            self.inbox.put(came)

    def is_modern(self, message: Any) -> bool:
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        return isinstance(meta, dict) and META + "protocolVersion" in meta

    def follow(self, answer: Any) -> None:
        """Take the messages of an event stream; come back for the rest if it was cut."""
        fields, last, answered = {}, "", False
        for line in iter(answer.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                last = value if name == "id" else last
                continue
            if fields.get("data"):
                assert not answered, "a message after the response on one stream"
                message = json.loads(fields["data"])
                answered = "method" not in message
                self.inbox.put(message)
            fields = {}
        if last and not answered and not self.left:
            self.listen(None, {"Last-Event-ID": last})

    def listen(self, ready: Any, headers: Any = None) -> None:
        """[legacy] Open the session's own stream, or resume one."""
        connection = connection_to(self.httpd.server_port)
        try:
            connection.request("GET", "/mcp", None, {"Accept": "text/event-stream", **self.session,
                                                     **(headers or {})})
            answer = connection.getresponse()
            if ready is not None:
                assert answer.status == 200, answer.status
                ready.set()
                self.inbox.report()
            if answer.status == 200:
                self.follow(answer)
        except (OSError, AttributeError, ValueError, http.client.HTTPException):
            if not self.left:
                raise
        finally:
            connection.close()

    def idle(self) -> bool:
        return False

    def eof(self) -> None:
        self.left = True
        for connection in list(self.posts.values()):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)

    hang_up = eof

    def close(self) -> None:
        self.left = True
        for gate in list(self.stage.gates.values()):
            gate.set()
        self.serving.__exit__(None, None, None)
        self.peer.close()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a POST is still open"


# ---- carriers for a client under test: `target` for connect(), say(bytes), push(message), close()

class PlayedMemory(mcp.Server):
    """A Server whose messages the script answers."""

    ordered = True

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        super().__init__("played")
        self.target, self.inbox = self, inbox
        self.push: Any = None

    def handle(self, message: Any, send: Any, peer: Any = None, principal: Any = None,
               **_: Any) -> None:
        self.push = send
        self.inbox.put(json.loads(mcp.encode(message)), send)

    accept = handle             # the client of the first edition calls this

    def close(self) -> None:
        pass

    hang_up = close


class PlayedPipe:
    """A process that relays its stdin to a socket, and what the socket says to stdout or stderr."""

    ordered = True
    RELAY = """if True:
        import os, socket, sys, threading
        relay = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        def forward():
            for data in iter(lambda: os.read(0, 65536), b""):
                relay.sendall(data)
            relay.shutdown(socket.SHUT_WR)
        threading.Thread(target=forward, daemon=True).start()
        for line in relay.makefile("rb"):
            kind, number = line.split()
            data = bytes.fromhex(number.decode()[1:])
            os._exit(int(data)) if kind == b"x" else os.write(1 if kind == b"o" else 2, data)
        os._exit(0)"""

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        self.inbox, self.listener = inbox, socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.target = [sys.executable, "-S", "-E", "-c", self.RELAY,
                       str(self.listener.getsockname()[1])]
        self.relay: Any = None
        self.thread = threading.Thread(target=self.pump, daemon=True)
        self.thread.start()

    def pump(self) -> None:
        """Take the lines of each process that the client starts: a second one after a probe."""
        while True:
            try:
                relay = self.listener.accept()[0]
            except OSError:
                return
            self.relay = relay
            with relay, relay.makefile("rb") as lines:
                for line in lines:
                    self.inbox.put(json.loads(line), self.push)
            self.inbox.report("eof")

    def write(self, kind: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.relay.sendall((f"{kind} x{data.hex()}\n").encode())

    def say(self, data: bytes) -> None:
        self.write("o", data + b"\n")

    def push(self, message: Any) -> None:
        self.say(json.dumps(message).encode())

    def hang_up(self) -> None:
        self.write("x", b"0")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(2)
        self.listener.close()
        self.thread.join(PATIENCE)


class PlayedHttp:
    """An HTTP server whose every POST the script answers."""

    ordered = False

    def __init__(self, talk: Any, inbox: Inbox) -> None:
        self.talk, self.inbox, played = talk, inbox, self
        self.posts: list[Any] = []              # queues of requests that are still open
        self.stream: Any = None                 # that of the GET stream
        self.requests: list[Any] = []           # verb, headers and message of all that came

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                played.post(self)

            def do_GET(self) -> None:
                played.get(self)

            def do_DELETE(self) -> None:
                played.respond(self, 200, {}, b"")

            def log_message(self, *_: Any) -> None:
                pass
        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads, self.httpd.block_on_close = True, False
        self.httpd.handle_error = lambda *_: None
        threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True).start()
        self.target = f"http://127.0.0.1:{self.httpd.server_port}/mcp"

    def respond(self, handler: Any, status: int, headers: dict, body: bytes) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": len(body)}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        handler.wfile.write(body)

    def post(self, handler: Any) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append(("POST", handler.headers, body))
        outgoing: Any = queue.Queue()
        if "method" not in body or "id" not in body:
            self.inbox.put(body, outgoing.put)
            return self.respond(handler, 202, {}, b"")
        self.posts.append(outgoing)
        self.inbox.put(body, outgoing.put)
        self.answer(handler, body, outgoing)
        self.posts.remove(outgoing)

    def answer(self, handler: Any, body: dict, outgoing: Any) -> None:
        """Send what the script says: one JSON body, or a stream that ends with the response."""
        streams = False
        while True:
            said = {} if handler.command == "GET" and not streams else \
                outgoing.get(timeout=3 * PATIENCE)
            if said is None or isinstance(said, tuple):
                handler.close_connection = True
                return self.respond(handler, *said) if said else None
            if said.get("id") == body["id"] and "method" not in said and not streams:
                session = {"Mcp-Session-Id": "s1"} if body["method"] == "initialize" else {}
                code = said.get("error", {}).get("code")
                status = 400 if body["method"] == "server/discover" and code else \
                    STATUS.get(code, 200) if self.talk.modern else 200
                headers = {"Content-Type": "application/json", **session}
                return self.respond(handler, status, headers, json.dumps(said).encode())
            if not streams:
                handler.close_connection = streams = True
                handler.send_response(200)
                handler.send_header("Content-Type", "text/event-stream")
                handler.send_header("Connection", "close")
                handler.end_headers()
            handler.wfile.write(f"data: {json.dumps(said)}\n\n".encode() if said else b": \n\n")
            if said.get("id") == body["id"] and "method" not in said:
                return None

    def get(self, handler: Any) -> None:
        self.requests.append(("GET", handler.headers, None))
        if self.talk.modern or "Mcp-Session-Id" not in handler.headers:
            return self.respond(handler, 405, {"Allow": "POST"}, b"")
        self.stream = queue.Queue()
        self.inbox.report("GET")
        self.answer(handler, {"id": object()}, self.stream)

    def push(self, message: Any) -> None:
        """Send what belongs to no request: on the newest open POST, else on the GET stream."""
        if not self.posts:
            self.inbox.until(lambda: self.stream is not None, "a GET stream")
        (self.posts[-1] if self.posts else self.stream).put(message)

    def hang_up(self) -> None:
        for outgoing in [*self.posts, *filter(None, [self.stream])]:
            outgoing.put(None)

    def close(self) -> None:
        self.hang_up()
        self.httpd.shutdown()
        self.httpd.server_close()


# ---- playing scripts

class Talk:
    """One conversation; calling it with a text plays the lines."""

    def __init__(self, version: str, carrier: str, options: dict) -> None:
        self.version, self.carrier, self.options = version, carrier, options
        self.played = "client" in options           # we play the server
        self.modern = version in MODERN
        self.limits = json.loads(options.get("limits", "{}"))
        self.bare = "bare" in options
        self.capabilities = json.loads(options.get("declare", "{}"))
        self.inbox = Inbox(">" if self.played else "<")
        self.inbox.patience = float(options.get("patience", PATIENCE))
        self.referee = self.inbox.referee
        self.referee.version = "" if self.bare and not self.played else version
        self.ids: dict[str, Any] = {}               # by label
        self.replies: dict[str, Any] = {}           # how to answer a client's request, by JSON id
        self.last: Any = {}
        self.state, self.token, self.ident = "", 0, None
        self.calls: list[Any] = []
        self.client: Any = None
        self.hung_up = False
        kind = {"memory": (Memory, PlayedMemory), "pipe": (Pipe, PlayedPipe),
                "http": (Http, PlayedHttp)}[carrier][self.played]
        self.line = kind(self, self.inbox)

    def __call__(self, text: str) -> Talk:
        for script in parse("== part\n" + textwrap.dedent(text), 0):
            for number, row in script.lines:
                self.play(row, number)
        return self

    def play(self, row: str, number: int) -> None:
        """Play one line; say which it was if it fails."""
        try:
            if row.startswith("["):
                words, _, row = row[1:].partition("] ")
                if (self.version, self.carrier) not in select(words):
                    return
            row = re.sub(r"\{([A-Z][A-Z_]+)(?::([^}]+))?\}", self.substitute, row)
            verb, _, rest = row.strip().partition(" ")
            VERBS[verb](self, rest.strip())
        except Exception as problem:            # noqa: BLE001
            text = str(problem) if isinstance(problem, AssertionError) else repr(problem)
            raise AssertionError(f"line {number}, {self.version} over {self.carrier}:\n"
                                 f"    {row:.500}\n{text}") from None

    def substitute(self, match: Any) -> str:
        name, detail = match.groups()
        if name == "LAST":
            value = self.last
            for key in detail.split("/"):
                value = value[int(key) if isinstance(value, list) else key]
            return json.dumps(value)
        if name == "ID":
            return json.dumps(self.ids[detail] if detail else self.ident)
        values = {**CODES, "VERSION": self.version, "META": META, "STATE": self.state,
                  "TOKEN": json.dumps(self.token)}
        return str(values[name])

    # ---- messages

    def shape(self, arrow: str, rest: str) -> dict:
        """Read a line's message: request, notification, result or error."""
        if rest.startswith("["):
            return {"batch": json.loads(rest)}
        token, _, tail = rest.partition(" ")
        label = token if token == "?" or token[0] in "#-" or (
            is_json(token) and token[0] not in "{[") else None
        tail = rest if label is None else tail
        words = pieces(tail)
        asks = label == "-" or (arrow == ">") != (label or "")[:1].startswith("#")
        if asks:
            return {"label": label, "method": words[0], "params": words[1] if words[1:] else None}
        if words[0] != "error":
            return {"label": label, "result": words[0]}
        data = words[-1] if isinstance(words[-1], (dict, list)) else None
        text = " ".join(str(word) for word in words[2:len(words) - (data is not None)])
        return {"label": label, "code": words[1], "keyword": text, "data": data}

    def name(self, label: Any) -> Any:
        """Return the id that a label stands for in a message that we send."""
        if label in self.ids or label is None:
            return self.ids.get(label, self.ident)
        bare = label.lstrip("#")
        return json.loads(bare) if is_json(bare) else bare

    def send(self, arrow: str, rest: str) -> None:
        shape = self.shape(arrow, rest)
        message: Any = {"jsonrpc": "2.0"}
        if "batch" in shape:
            return self.transmit(shape["batch"])
        if "method" in shape:
            message["method"] = shape["method"]
            params = shape["params"]
            if not self.played and self.modern and not self.bare and shape["label"] != "-":
                params = dict(params or {})
                params["_meta"] = {**self.meta(), **params.get("_meta", {})}
            message.update({} if params is None else {"params": params})
        if shape["label"] != "-":
            message["id"] = self.name(shape["label"])
        if "method" in shape and shape["label"] != "-":
            self.ids[shape["label"]] = message["id"]
            self.ident = message["id"]
        if "code" in shape:
            data = {} if shape["data"] is None else {"data": shape["data"]}
            message["error"] = {"code": shape["code"], "message": shape["keyword"] or "no", **data}
        elif "result" in shape:
            message["result"] = self.fill(message["id"], shape["result"])
        self.transmit(message)

    def meta(self) -> dict:
        return {META + "protocolVersion": self.version, META + "clientCapabilities":
                self.capabilities, META + "clientInfo": {"name": "runner", "version": "1"}}

    def fill(self, ident: Any, result: Any) -> Any:
        """Add to a played server's result what the modern era requires."""
        request = self.referee.open.get(">" + json.dumps(ident))
        if not self.played or request is None or not request["modern"] \
                or not isinstance(result, dict):
            return result
        row = mcp.METHODS.get(request["method"])
        hints = {"ttlMs": 0, "cacheScope": "private"} if row and row.cacheable else {}
        return {key: value for key, value in {"resultType": "complete", **hints, **result}.items()
                if value is not None}

    def transmit(self, message: Any) -> None:
        if not self.played:
            self.referee.sent(message)
            return self.line.send(json.dumps(message).encode(), message)
        self.referee.sent(message, "<")
        if "method" in message or json.dumps(message["id"]) not in self.replies:
            return self.line.push(message)
        request = self.referee.open.pop(">" + json.dumps(message["id"]), None)
        assert request is None or not request["cancelled"], "the script answers a cancelled request"
        self.replies.pop(json.dumps(message["id"]))(message)
        return None

    def receive(self, fits: Any = lambda message: True, what: str = "a message",
                anywhere: bool = False) -> Any:
        """Take the next message from the side under test, or the first that fits."""
        self.last, reply = self.inbox.take(fits, what, anywhere, getattr(
            self.line, "idle", lambda: False))
        message = self.last if isinstance(self.last, dict) else {}
        result, params = message.get("result"), message.get("params")
        if isinstance(result, dict):
            self.state = json.dumps(result["requestState"])[1:-1] if "requestState" in result \
                else self.state
        if self.played and "method" in message and "id" in message:
            self.ident, self.replies[json.dumps(message["id"])] = message["id"], reply
            self.token = ((params or {}).get("_meta") or {}).get("progressToken", self.token)
        return self.last

    def expect(self, arrow: str, rest: str, anywhere: bool) -> None:
        shape = self.shape(arrow, rest)
        label = shape.get("label")
        known = label in self.ids or not self.played

        def fits(message: Any) -> bool:
            if "batch" in shape or isinstance(message, list):
                return "batch" in shape and isinstance(message, list)
            if "method" in shape:
                return message.get("method") == shape["method"] and \
                    ("id" in message) == (label != "-")
            if label in ("?", "null"):
                return "method" not in message and message.get("id") is None
            return "method" not in message and (not known or json.dumps(
                message.get("id")) == json.dumps(self.name(label)))
        message = self.receive(fits, "expected", anywhere or not self.line.ordered)
        assert fits(message), f"expected {shape}, came {json.dumps(message)[:1000]}"
        if "method" in shape and label != "-":
            self.ids[label] = self.ident = message["id"]
        flaws = self.compare(shape, message)
        assert not flaws, "\n".join([*flaws, f"in {json.dumps(message)[:2000]}"])

    def compare(self, shape: dict, message: Any) -> list[str]:
        if "batch" in shape:
            found = [min((differences(one, came) for came in message), key=len, default=["empty"])
                     for one in shape["batch"]]
            return sum(found, [f"length {len(message)}"] * (len(message) != len(found)))
        if shape.get("label") in ("?", "null") and \
                ("id" in message) is not (shape["label"] == "null"):
            return ["the id is {}".format(message.get("id", "absent"))]
        if "method" in shape:
            return differences(shape["params"] or {}, message.get("params", {}), "params")
        if "result" in shape:
            return differences(shape["result"], message["result"], "result") \
                if "result" in message else ["expected a result"]
        error = message.get("error", {})
        words = (shape["keyword"] or "").lower()
        return differences(shape["code"], error.get("code"), "code") + (
            [] if words in json.dumps(error).lower() else [f"no {words!r} in it"]) + (
            differences(shape["data"], error.get("data"), "data") if shape["data"] else [])

    # ---- beginning and end

    def handshake(self, rest: str = "") -> None:
        """Open a session, if it is that era; as a client, or as the server of one."""
        for word in pieces(rest):
            if isinstance(word, dict):
                self.capabilities = word
            else:
                self.version = word
                self.modern = word in MODERN
        if self.played:
            self.start("connect")
            self.welcome()
            return self.settle("returns", "{}")
        if self.modern:
            self.referee.version = self.version
            return None
        self.send(">", '"open" initialize ' + json.dumps({
            "protocolVersion": self.version, "capabilities": self.capabilities,
            "clientInfo": {"name": "runner", "version": "1"}}))
        self.expect("<", f'"open" {{"protocolVersion": "{self.version}"}}', False)
        return self.send(">", "- notifications/initialized")

    def welcome(self) -> None:
        """Play a server's side of the handshake."""
        offers = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "logging": {},
                  "resources": {"listChanged": True, "subscribe": True}, "completions": {}}
        offers = self.capabilities or offers
        info = {"name": "played", "version": "1"}
        message = self.receive(what="a handshake")
        if message["method"] == "server/discover":
            if self.modern:
                return self.send("<", json.dumps({
                    "supportedVersions": [self.version], "capabilities": offers,
                    "_meta": {META + "serverInfo": info}}))
            self.send("<", "error {METHOD_NOT_FOUND}".format(**CODES))
            message = self.receive(what="initialize")
        assert message["method"] == "initialize", message
        self.send("<", json.dumps({"protocolVersion": self.version, "capabilities": offers,
                                   "serverInfo": info}))
        return self.expect(">", "- notifications/initialized", False)

    def start(self, rest: str) -> None:
        """Start a call of the client on a thread."""
        name, *words = pieces(rest)
        named = dict(word.split("=", 1) for word in words
                     if isinstance(word, str) and re.match(r"\w+=", word))
        named = {key: json.loads(value) for key, value in named.items()}
        words = [word for word in words if not (isinstance(word, str) and re.match(r"\w+=", word))]
        if name == "connect":
            options = {**json.loads(self.options.get("connect", "{}")), **(words or [{}])[0]}
            for key in ("elicit", "sample", "visit"):       # what those functions return
                if key in options:
                    options[key] = functools.partial(lambda value, *_: value, options[key])
            function = functools.partial(client.connect, self.line.target, **options)
        else:
            function = functools.partial(getattr(self.client, name), *words, **named)
        call: list[Any] = []

        def run() -> None:
            try:
                call.append(("returns", function()))
            except (AttributeError, TypeError) as problem:
                self.inbox.report(problem=problem)
            except Exception as problem:        # noqa: BLE001
                call.append(("raises", problem))
            if name == "connect" and call and call[0][0] == "returns":
                self.client = call[0][1]
            self.inbox.report()
        self.calls.append(call)
        threading.Thread(target=run, daemon=True).start()

    def settle(self, verb: str, rest: str) -> None:
        call = self.calls[0]
        self.inbox.until(lambda: call, "the end of the call")
        self.calls.pop(0)
        kind, value = call[0]
        assert kind == verb, f"it {kind} {value!r}"
        if verb == "returns":
            flaws = differences(json.loads(rest or "null"), value) if rest else []
            assert not flaws, "\n".join(flaws)
            return
        name, *words = rest.split(" ", 1)
        assert name in [kind.__name__ for kind in type(value).__mro__], repr(value)
        said = "{} {} {}".format(getattr(value, "code", ""), value, getattr(value, "data", ""))
        assert not words or words[0].lower() in said.lower(), said

    def sync(self) -> None:
        self.send(">", '"quiet" server/discover' if self.modern else '"quiet" ping')
        self.expect("<", '"quiet" {}', True)

    def quiet(self, rest: str = "") -> None:
        """A request and its response come and go, and nothing else does."""
        self.sync()
        assert not self.inbox.items, self.inbox.items

    def finish(self) -> None:
        """End the conversation; nothing may be owed, and nothing may have come unexpected."""
        if self.played:
            assert not self.calls, "a call was not settled"
            assert not self.inbox.items, "unexpected: %s" % [item[0] for item in self.inbox.items]
            return
        left = {key for key, request in self.referee.open.items()
                if request["method"] == "subscriptions/listen"}
        self.line.close()
        for message, _ in () if self.hung_up else self.inbox.items:
            ident = message.get("id", message.get("params", {}).get("requestId"))
            assert ">" + json.dumps(ident) in left, f"unexpected: {json.dumps(message)[:1000]}"
        if self.carrier != "http" and not self.hung_up:
            self.referee.finish()
        if self.inbox.problems and not self.hung_up:
            raise self.inbox.problems[0]

    def ends(self, rest: str) -> None:
        self.inbox.until(lambda: {"eof", "gone"} <= self.inbox.reached, "the server's end")
        assert not rest or self.line.status == int(rest), f"exit status {self.line.status}"


def is_json(text: Any) -> bool:
    try:
        json.loads(text)
        return True
    except (ValueError, RecursionError):
        return False


def send_raw(talk: Talk, rest: str) -> None:
    """Send bytes; if they are a message the referee takes note."""
    data = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), rest.encode())
    message = json.loads(data) if is_json(data) else None
    talk.referee.sent(message)
    talk.line.send(data, message)


def say_raw(talk: Talk, rest: str) -> None:
    """As a played server, write bytes; over HTTP: status, headers, body."""
    if talk.carrier == "http":
        status, headers, *body = pieces(rest)
        data = "".join(one if isinstance(one, str) else json.dumps(one) for one in body).encode()
        talk.referee.open.pop(">" + json.dumps(talk.ident), None)
        return talk.replies.pop(json.dumps(talk.ident))((status, headers, data))
    return talk.line.say(re.sub(
        rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), rest.encode()))


def hang_up(talk: Talk, rest: str) -> None:
    talk.line.hang_up()
    if not talk.played:
        talk.referee.open.clear()
        talk.hung_up = True


VERBS: dict[str, Any] = {
    ">": lambda talk, rest: talk.expect(">", rest, False) if talk.played else talk.send(">", rest),
    "<": lambda talk, rest: talk.send("<", rest) if talk.played else talk.expect("<", rest, False),
    "<*": lambda talk, rest: talk.expect("<", rest, True),
    ">*": lambda talk, rest: talk.expect(">", rest, True),
    ">>": send_raw, "<<": say_raw, "hang": hang_up, "handshake": Talk.handshake,
    "quiet": Talk.quiet, "ends": Talk.ends, "eof": lambda talk, rest: talk.line.eof(),
    "wait": lambda talk, name: talk.inbox.until(
        lambda: name in talk.inbox.reached, f"the gate {name}"),
    "call": Talk.start, "returns": lambda talk, rest: talk.settle("returns", rest),
    "raises": lambda talk, rest: talk.settle("raises", rest),
    "stderr": lambda talk, rest: talk.line.write("e", rest.encode() + b"\n"),
    "exit": lambda talk, rest: talk.line.write("x", rest.encode()),
    **{verb: functools.partial(lambda verb, talk, rest: talk.line.act(verb, rest), verb)
       for verb in ("open", "changed", "do")},
}


@contextlib.contextmanager
def talk(version: str, carrier: str, where: int = 0, **options: str) -> Any:
    """Hold a conversation: with a server, or as one if `client` is among the options."""
    options.setdefault("server", "fixture")
    with limits(**json.loads(options.get("limits", "{}"))):
        conversation = Talk(version, carrier, options)
        try:
            if not conversation.bare:
                conversation.handshake()
            yield conversation
            conversation.finish()
        finally:
            if conversation.client is not None:
                conversation.client.close()
            with contextlib.suppress(Exception):
                conversation.line.close()
# ------------------------------------------------------------------------------------------
# Rules of the wire: design.md §7, row by row, in every revision
# ------------------------------------------------------------------------------------------

test_requests = scripts(r'''
== errors have their code in every revision
> 1 nobody/knows
< 1 error {METHOD_NOT_FOUND} nobody/knows
> 2 tools/call {"name": "nobody"}
< 2 error {INVALID_PARAMS} nobody
> 3 prompts/get {"name": "nobody"}
< 3 error {INVALID_PARAMS} nobody
> 4 tools/list {"cursor": "bad"}
< 4 error {INVALID_PARAMS} cursor
> 5 tools/call {"name": "echo", "arguments": [1]}
< 5 error {INVALID_PARAMS} arguments
> 6 tools/call {"arguments": {}}
< 6 error {INVALID_PARAMS} name
> 7 tools/call {"name": "add", "arguments": {"a": 1}}
< 7 {"content": [{"type": "text", "text": "3"}]}

== any string or integer is an id, and comes back as it went
> 0 tools/list
< 0 {}
> "" tools/list
< "" {}
> -5 tools/list
< -5 {}
> 123456789012345678901234567890 tools/list
< 123456789012345678901234567890 {}
> "1" tools/list
< "1" {}
> "é" tools/list
< "é" {}

== 1 and "1" differ, and an id in flight is refused | on: legacy
> 1 tools/call {"name": "slow", "arguments": {"gate": "a"}}
wait a
> "1" ping
< "1" {}
> 1 ping
< 1 error {INVALID_REQUEST} id
open a
< 1 {"content": [{"text": "held"}]}
> 1 ping
< 1 {}

== names that tutorials teach get a hint
> 1 resources/get {"uri": "x"}
< 1 error {METHOD_NOT_FOUND} resources/read
> 2 tools/execute
< 2 error {METHOD_NOT_FOUND} tools/call
> 3 prompts/read
< 3 error {METHOD_NOT_FOUND} prompts/get
> 4 initialized
< 4 error {METHOD_NOT_FOUND} notifications/initialized
> 5 $/cancelRequest
< 5 error {METHOD_NOT_FOUND} notifications/cancelled

== notifications and stray responses are never answered
> - notifications/nobody/knows {"x": 1}
> - notifications/cancelled
> - notifications/roots/list_changed
> - notifications/progress {"progressToken": "t"}
[legacy] > #99 {"x": 1}
[legacy] > #99 error 1 no
quiet

== a resource that does not exist
> 1 resources/read {"uri": "test://nowhere"}
[legacy] < 1 error {RESOURCE_NOT_FOUND} {"uri": "test://nowhere"}
[modern] < 1 error {INVALID_PARAMS} {"uri": "test://nowhere"}
> 2 resources/read {"uri": "test://gone"}
[legacy] < 2 error {RESOURCE_NOT_FOUND} {"uri": "test://gone"}
[modern] < 2 error {INVALID_PARAMS} {"uri": "test://gone"}
> 3 resources/read {"uri": "test://fails"}
< 3 error {INTERNAL_ERROR}

== a template value that would escape its place
> 1 resources/read {"uri": "file:///a/../../etc/passwd"}
< 1 error {INVALID_PARAMS}
> 2 resources/read {"uri": "test://item/1/a%2Fb"}
< 2 error {INVALID_PARAMS}
> 3 resources/read {"uri": "test://item/1/%2e%2e"}
< 3 error {INVALID_PARAMS}
> 4 resources/read {"uri": "test://item/7/head"}
< 4 {"contents": [{"uri": "test://item/7/head", "text": "'head' of 7"}]}

== arguments that break the schema are a result | with: argument errors as results
> 1 tools/call {"name": "add", "arguments": {"a": "x"}}
< 1 {"isError": true, "content": [{"text": "*"}]}
> 2 tools/call {"name": "add", "arguments": {"a": 1, "nobody": 2}}
< 2 {"isError": true}

== ... and an error before | without: argument errors as results
> 1 tools/call {"name": "add", "arguments": {"a": "x"}}
< 1 error {INVALID_PARAMS} {"field": "a", "reason": "*"}
> 2 tools/call {"name": "add", "arguments": {"a": 1, "nobody": 2}}
< 2 error {INVALID_PARAMS} {"field": "nobody"}

== handlers that raise
> 1 tools/call {"name": "fail", "arguments": {"how": "value"}}
< 1 {"isError": true, "content": [{"text": "told you"}]}
> 2 tools/call {"name": "fail", "arguments": {"how": "silent"}}
< 2 {"isError": true}
> 3 tools/call {"name": "fail", "arguments": {"how": "own"}}
< 3 error 7 seven [7]
> 4 tools/call {"name": "fail", "arguments": {"how": "reserved"}}
< 4 error {INTERNAL_ERROR}
> 5 tools/call {"name": "fail", "arguments": {"how": "old"}}
[legacy] < 5 error {RESOURCE_NOT_FOUND}
[modern] < 5 error {INTERNAL_ERROR}
> 6 tools/call {"name": "add", "arguments": {"a": 1}}
< 6 {"content": [{"text": "3"}]}

== a tool that raises NotFound fails as a tool
> 1 tools/call {"name": "fail", "arguments": {"how": "missing"}}
< 1 {"isError": true}

== progress grows
> 1 tools/call {"name": "steps", "_meta": {"progressToken": 0}}
< - notifications/progress {"progressToken": 0, "progress": 0, "total": 3}
< - notifications/progress {"progressToken": 0, "progress": 1}
< - notifications/progress {"progressToken": 0, "progress": 2.5}
< 1 {"content": [{"text": "done"}]}

== a cancelled request is not answered
> 1 tools/call {"name": "slow", "arguments": {"gate": "a"}, "_meta": {"progressToken": "p"}}
wait a
> - notifications/cancelled {"requestId": 1}
wait a passed
quiet

== logging is always declared, and what is not offered is not found | server: empty
> 1 tools/list
< 1 error {METHOD_NOT_FOUND}
> 2 resources/read {"uri": "x:y"}
< 2 error {METHOD_NOT_FOUND}
> 3 prompts/list
< 3 error {METHOD_NOT_FOUND}
[legacy] > 4 logging/setLevel {"level": "info"}
[legacy] < 4 {}
''')

# What comes in and what goes out before there is a session; "next" shows that the stream goes on.
JUNK = [
    ("{", "? error {PARSE_ERROR}"), ("nonsense", "? error {PARSE_ERROR}"),
    ('{"a": NaN}', "? error {PARSE_ERROR}"), ("-Infinity", "? error {PARSE_ERROR}"),
    (r'{"id": 1, "x": "\xff"}', "? error {PARSE_ERROR}"),
    ("[" * 20000, "? error {PARSE_ERROR}"),
    ("true", "? error {INVALID_REQUEST}"), ("17", "? error {INVALID_REQUEST}"),
    ('"x"', "? error {INVALID_REQUEST}"), ("null", "? error {INVALID_REQUEST}"),
    ("{}", "? error {INVALID_REQUEST}"), ("[]", "? error {INVALID_REQUEST}"),
    ('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', "? error {INVALID_REQUEST}"),
    ('{"id": 1, "method": "ping"}', "1 error {INVALID_REQUEST} jsonrpc"),
    ('{"jsonrpc": "1.0", "id": "a", "method": "ping"}', '"a" error {INVALID_REQUEST} jsonrpc'),
    ('{"jsonrpc": "2.0", "id": 1, "method": 7}', "1 error {INVALID_REQUEST} method"),
    ('{"jsonrpc": "2.0", "id": 1, "params": {}}', "1 error {INVALID_REQUEST} method"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', "1 error {INVALID_REQUEST}"),
    ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', "? error {INVALID_REQUEST} id"),
    ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', "? error {INVALID_REQUEST} id"),
    ('{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}', "? error {INVALID_REQUEST} id"),
    ('{"jsonrpc": "2.0", "id": {}, "method": "ping"}', "? error {INVALID_REQUEST} id"),
]
test_junk = scripts("".join(f"""
== junk {number} | on: pipe http {MODERN[0]} | bare
>> {line}
< {answer}
> "next" server/discover {{"_meta": {{"{{META}}protocolVersion": "{MODERN[0]}",
    "{{META}}clientCapabilities": {{}}}}}}
< "next" {{"supportedVersions": ["{MODERN[0]}", "..."]}}
""" for number, (line, answer) in enumerate(JUNK)))

test_lines = scripts(r'''
== an error without a readable id, where it is null | with: null id in errors
>> {
< null error {PARSE_ERROR}
>> 3
< null error {INVALID_REQUEST}

== ... and where it is left out | without: null id in errors
>> {
< ? error {PARSE_ERROR}

== white space, line ends and a byte order mark | on: modern | bare
>> \xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "ping"}\x0d
< 1 {}
[pipe] >> \x0d
[pipe] >> \x20\x09
> 2 ping
< 2 {}
''')

test_batches = scripts(r'''
== a batch | with: batches
> [{"jsonrpc": "2.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "method": "notifications/x"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "b"}}}]
< [{"id": 1, "result": {}}, {"id": 2, "result": {"content": [{"text": "b"}]}}]
> []
< null error {INVALID_REQUEST}
> [1, {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {}}]
< [{"id": null, "error": {"code": {INVALID_REQUEST}}},
    {"id": 4, "error": {"code": {INVALID_REQUEST}}}]
> [{"jsonrpc": "2.0", "method": "notifications/x"}]
quiet

== more members than the limit | with: batches | limits: {"MAX_BATCH": 1}
> [1, 2]
< null error {INVALID_REQUEST}

== no batches elsewhere | without: batches
> [{"jsonrpc": "2.0", "id": 1, "method": "nobody"}]
[..2025-06-18] < null error {INVALID_REQUEST}
[2025-11-25..] < ? error {INVALID_REQUEST}
''')

# ------------------------------------------------------------------------------------------
# The era of a request, and the handshake: design.md §6
# ------------------------------------------------------------------------------------------

test_eras = scripts(r'''
== the handshake | on: legacy memory pipe | bare
> 0 initialize {"protocolVersion": "{VERSION}", "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"}}
< 0 {"protocolVersion": "{VERSION}", "instructions": "Use it gently.",
    "serverInfo": {"name": "test", "version": "1.2"}, "capabilities": {"logging": {}}}
> 1 ping
< 1 {}
> 2 tools/list
< 2 error {INVALID_PARAMS} initialized
> - notifications/initialized
> 3 tools/list
< 3 {"tools": ["*", "..."], "resultType": null}

== over HTTP requests may overtake the handshake | on: legacy http | bare
> 0 initialize {"protocolVersion": "{VERSION}", "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"}}
< 0 {"protocolVersion": "{VERSION}"}
> 1 tools/list
< 1 {}

== an unknown version is answered with the newest legacy one | on: 2025-11-25 | bare
> 0 initialize {"protocolVersion": "1999-01-01", "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"}}
< 0 {"protocolVersion": "2025-11-25"}

== a request of neither era names both ways in | on: modern | bare
> 1 tools/list
< 1 error {INVALID_PARAMS} initialize
> 2 ping
< 2 {}

== a version that is not served | on: modern | bare
> 1 tools/list {"_meta": {"{META}protocolVersion": "1999", "{META}clientCapabilities": {}}}
< 1 error {UNSUPPORTED_PROTOCOL_VERSION} {"requested": "1999", "supported": ["{VERSION}", "..."]}
> 2 tools/list {"_meta": {"{META}protocolVersion": "{VERSION}"}}
< 2 error {INVALID_PARAMS} clientCapabilities

== both eras on one connection | on: 2025-11-25
> 1 tools/list
< 1 {"resultType": null}
handshake 2026-07-28
> 2 tools/list
< 2 {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
> 3 ping
< 3 error {METHOD_NOT_FOUND}
handshake 2025-06-18
> 4 tools/call {"name": "tell", "arguments": {"method": "notifications/none"}}
< - notifications/none {"x": 1}
< 4 {"content": [{"text": "2025-06-18"}]}
''')

test_questions = scripts(r'''
== a question as a request | on: 2025-06-18..2025-11-25 | declare: {"elicitation": {}}
> 1 tools/call {"name": "ask"}
< #q elicitation/create {"message": "Which branch?"}
> #q {"action": "accept", "content": {"branch": "main"}}
< 1 {"content": [{"text": "{\"action\": \"accept\", \"content\": {\"branch\": \"main\"}}"}]}

== a question as a result | on: modern | declare: {"elicitation": {}}
> 1 tools/call {"name": "asks", "arguments": {"what": "two"}}
< 1 {"resultType": "input_required", "requestState": "*"}

== a client that cannot be asked
> 1 tools/call {"name": "asks", "arguments": {"what": "roots"}}
[legacy] < 1 {"isError": true}
[modern] < 1 error {MISSING_REQUIRED_CLIENT_CAPABILITY} {"requiredCapabilities": {"roots": {}}}

== changes reach a subscription | on: modern
> 1 subscriptions/listen {"notifications": {"toolsListChanged": true}}
< - notifications/subscriptions/acknowledged {"_meta": {"{META}subscriptionId": 1}}
changed prompts
changed tools
< - notifications/tools/list_changed {"_meta": {"{META}subscriptionId": 1}}

== changes reach a session | on: legacy
changed tools
< - notifications/tools/list_changed
> 1 resources/subscribe {"uri": "test://text"}
< 1 {}
changed test://blob
changed test://text
< - notifications/resources/updated {"uri": "test://text"}

== input ends while a tool runs | on: pipe modern
> 1 tools/call {"name": "slow", "arguments": {"gate": "a"}}
wait a
eof
open a
< 1 {"content": [{"text": "held"}]}
ends 0
''')

# ------------------------------------------------------------------------------------------
# The same rules from the other side: what a client makes of them
# ------------------------------------------------------------------------------------------

test_client_messages = scripts(r'''
== a call and its result | client
call call_tool add {"a": 1}
[http modern] > tools/list
[http modern] < {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
> tools/call {"name": "add", "arguments": {"a": 1}}
< {"content": [{"type": "text", "text": "3"}]}
returns {"content": [{"text": "3"}]}

== all pages are fetched, and an empty cursor is one | client
call list_prompts
> prompts/list {"cursor": null}
< {"prompts": [{"name": "a"}], "nextCursor": ""}
> prompts/list {"cursor": ""}
< {"prompts": [{"name": "b"}]}
returns [{"name": "a"}, {"name": "b"}]

== a notification, where the revision has it | client | on: memory pipe http
call notify notifications/roots/list_changed
[legacy] > - notifications/roots/list_changed
returns null
call notify notifications/example.org/x {"y": 1}
> - notifications/example.org/x {"y": 1}
returns null

== what the server did not declare is not asked for | client | on: memory
    | declare: {"experimental": {}}
call list_tools
returns []
call call_tool x
raises ServerLacks tools

== rounds without an end | client | on: memory modern | limits: {"MAX_ROUNDS": 1}
call call_tool x
> tools/call
< {"resultType": "input_required", "requestState": "1"}
> tools/call {"requestState": "1"}
< {"resultType": "input_required", "requestState": "2"}
raises Malformed

== a batch of the server | client | on: pipe 2025-03-26
call list_tools
> 1 tools/list
<< [{"jsonrpc": "2.0", "method": "notifications/x"},
    {"jsonrpc": "2.0", "id": {ID:1}, "result": {"tools": []}}]
returns []

== a modern server must not ask by a request | client | on: pipe modern | connect: {"roots": []}
call list_prompts
> 1 prompts/list
< #a roots/list
< 1 {"prompts": []}
returns []

== errors are raised with code and data | client
call read_resource test://x
> resources/read {"uri": "test://x"}
< error {INVALID_PARAMS} gone {"uri": "test://x"}
raises RpcError {INVALID_PARAMS} gone

== two calls are answered in any order | client | on: memory pipe
call list_tools
> 1 tools/list
call list_prompts
> 2 prompts/list
< 2 {"prompts": []}
< 1 {"tools": []}
returns []
returns []

== a question of the server | client | on: 2025-06-18..2025-11-25
    | connect: {"elicit": {"branch": "main"}}
call list_tools
> 1 tools/list
< #5 elicitation/create {"message": "Which?", "requestedSchema": {"type": "object",
    "properties": {"branch": {"type": "string"}}}}
> #5 {"action": "accept", "content": {"branch": "main"}}
< 1 {"tools": []}
returns []

== a server that dies fails the call with its last words | client | on: pipe
call list_tools
> tools/list
stderr out of memory
exit 3
raises Disconnected out of memory

== the handshake, line by line | client | bare | on: legacy pipe
call connect
> server/discover
< error {METHOD_NOT_FOUND} no
> initialize
< {"protocolVersion": "{VERSION}", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
> - notifications/initialized
returns {"version": "{VERSION}", "modern": false}
''')
# ------------------------------------------------------------------------------------------
# The core: what is offered, listed, called and read, in each revision (design.md §4 to §6, §11)
# ------------------------------------------------------------------------------------------

ALL = ' | declare: {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}'


def brief(text: str, head: str = "") -> str:
    """Expand `METHOD {PARAMS} => ANSWER` to a request and what answers it; `:NAME` calls a tool.
    ` ? KEY QUESTION {PARAMS} -> {REPLY}` is a question on the way: a request, or in a result by
    that key. ` + {REPLIES}` adds the last request state. `head` is for each script's head."""
    lines: list[str] = []
    text = re.sub("^==.*", lambda m: m[0] + head, text, flags=re.MULTILINE)
    for line in re.sub(r"\n    +", " ", text).replace("{NO}", '{"action": "decline"}').split("\n"):
        start, arrow, answer = line.rpartition(" => ")
        if not arrow:
            lines.append(line)
            continue
        request, *questions = start.split(" ? ")
        on, method, params, replies = re.fullmatch(
            r"(?:\[(.*?)\] )?(\S+)(?: (\{.*?\}))?(?: \+ (\{.*\}))?", request).groups("")
        on = on or "*"
        if method[0] == ":":
            params = f'{{"name": "{method[1:]}", "arguments": {params or "{}"}}}'
            method = "tools/call"
        retry = f'{method} {params[:-1]}, "requestState": "{{STATE}}", "inputResponses": '
        lines.append(f"[{on}] > 1 " + (retry + replies + "}" if replies else f"{method} {params}"))
        for question in questions:
            key, name, shape, reply = re.fullmatch(r"(\S+) (\S+) (.*) -> (.*)", question).groups()
            asked = f'{{"{key}": {{"method": "{name}", "params": {shape}}}}}'
            lines += [f"[{on} !modern] < #{key} {name} {shape}", f"[{on} !modern] > #{key} {reply}",
                      f'[{on} !legacy] < 1 {{"inputRequests": {asked}}}',
                      f'[{on} !legacy] > 1 {retry}{{"{key}": {reply}}}}}']
        lines.append(f"[{on}] < 1 {answer}")
    return "\n".join(lines)


@served
def core(stage: Stage) -> Any:
    """Make a server with rarer cases; its questions have keys, so that scripts know them."""
    server = mcp.Server("core", "2", title="Core", description="d")
    kept: list[Context] = []
    watched: list[str] = []
    server.on_watch = watched.append
    ACTIONS["late"] = lambda server: (kept[0].progress(9), kept[0].log("error", "late"))
    core_questions(server)

    @server.tool
    def keeps(ctx: Context) -> dict:
        kept.append(ctx)
        return {"a": [ctx.method, ctx.version, ctx.client_info["name"], ctx.principal, *watched]}

    @server.tool
    def contents() -> list:
        return [mcp.text("t", annotations={"priority": 1, "lastModified": "2025-01-01T00:00:00Z"}),
                mcp.image(PNG, "image/png"), mcp.audio(b"wav", "audio/wav"),
                mcp.embedded("x://z", b"\0", _meta={"m": 1}), mcp.link("x://y", "why", title="Y")]

    @server.tool
    def returns(what: str) -> Any:
        return {"none": None, "dict": {"a": (1, 2)},
                "whole": {"content": [mcp.text("w")], "isError": True, "_meta": {"z": 1}},
                "bad": {"content": [3]}, "own": {"resultType": "example.org/own", "x": 1}}[what]

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def numbers(good: bool) -> Any:
        return [1, 2] if good else ["x"]
    server.resource("test://several", ttl_ms=7)(lambda: [
        {"text": "one"}, {"uri": "test://other", "blob": b"two", "_meta": {"q": 1}}])
    server.resource("test://item/{number}/{part}")(lambda number, part: f"{part} of {number}")
    server.completion("test://item/{number}/{part}", "part")(
        lambda typed, known: sorted(known) or [f"{typed}{n}" for n in range(120)])
    server.prompt(name="chat")(lambda: ["one", {"role": "assistant", "content": "two"},
                                        mcp.image(PNG, "image/png")])
    return server


def core_questions(server: Any) -> None:
    runs: list[int] = []
    questions = {
        "form": mcp.elicitation("Go?", kind={"type": "string", "enum": ["a"], "default": "a"},
                                sure=(bool, True), age={"type": "integer", "minimum": 0}),
        "page": mcp.elicitation("Sign in", url="https://example.org/in"), "roots": mcp.roots(),
        "think": mcp.sampling("Hi", max_tokens=5, systemPrompt="Be brief."),
        "tools": mcp.sampling("Hi", tools=[{"name": "t", "inputSchema": {"type": "object"}}])}

    @server.tool
    def put(what: str, ctx: Context) -> str:
        return "answered" if ctx.ask({"q": questions[what]})["q"] else ""

    @server.tool
    def rounds(ctx: Context, x: int = 0) -> str:
        runs.append(x)
        one = ctx.elicit("One?", key="one", one=int)["action"]
        return f"{one} {ctx.elicit('Two?', key='two', two=int)['action']} in {len(runs)}"

    @server.tool
    def twice(ctx: Context, key: str = "") -> str:
        try:
            return ctx.elicit("?", key=key)["action"] + ctx.elicit("?", key=key and "b")["action"]
        except ValueError as problem:
            return "refused" if "key" in str(problem) else str(problem)


@served
def paged(stage: Stage) -> Any:
    """Make a server with three of everything, whose handlers run on a thread of their own."""
    jobs: queue.Queue = queue.Queue()
    threading.Thread(target=lambda: [job() for job in iter(jobs.get, None)], name="main-loop",
                     daemon=True).start()
    server = mcp.Server("paged", page_size=2, run=jobs.put)
    server.method("completion/complete")(lambda params: {"completion": {
        "values": list(params["argument"])}})
    server.tool(name="a")(lambda: threading.current_thread().name)
    server.tool(name="b")(lambda: sys.exit("told you"))
    server.tool(name="c")(lambda: "")
    for name in "abc":
        server.prompt(name=name)(lambda: "")
        server.resource("test://" + name, name=name)(lambda: "")
        server.resource(f"test://{name}/{{x}}", name=name)(lambda x: "")
    return server


test_offers = scripts(brief(r'''
== definitions (the referee looks for members that a revision lacks) | on: * memory
[2025-03-26..] tools/list => {"tools": ["*", {"annotations": {"readOnlyHint": true}}, "..."]}
[2025-06-18..] tools/list => {"tools": [{"outputSchema": {"type": "object", "properties": {
    "result": {"type": "integer"}}}}, {"title": "Echo!", "_meta": {"k": 1}}, "..."]}
[2025-11-25..] tools/list => {"tools": ["*", {"icons": ["*"]}, "..."]}
resources/list => {"resources": [{"uri": "test://text", "name": "a_text", "size": 5}, "..."]}
[..2025-03-26] resources/list => {"resources": [{"annotations": {"lastModified": null}}, "..."]}
[2025-06-18..] resources/list => {"resources": [{"annotations": {"lastModified": "*"}}, "..."]}
resources/templates/list => {"resourceTemplates": ["*", {"uriTemplate": "file:///{+path}",
    "name": "a_file", "mimeType": "text/plain", "uri": null}]}
prompts/list => {"prompts": [{"name": "greet", "description": "Greet someone.", "arguments": [
    {"name": "name", "required": true}, {"name": "times", "required": null}]}]}
prompts/get {"name": "greet", "arguments": {"name": "5", "times": "2"}} => {"description": "*",
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hello, 5!Hello, 5!"}}]}
prompts/get {"name": "greet"} => error {INVALID_PARAMS} name
prompts/get {"name": "greet", "arguments": {"name": 3}} => error {INVALID_PARAMS} string
resources/read {"uri": "test://blob"} => {"contents": [{"blob": "iVBORyBmYWtl", "text": null}]}
resources/read {"uri": "file:///a/b/c"} => {"contents": [{"text": "file a/b/c", "blob": null}]}
resources/read {"uri": "test://item/seven/x"} => error {INVALID_PARAMS} number
[modern] server/discover => {"capabilities": {"extensions": {"example.org/ext": {"level": 3}}}}
example.org/verb {"x": 5} => {"got": 5, "version": "{VERSION}"}
== progress has a message since 2025-03-26
:steps => {"content": [{"text": "done"}]}
> 1 tools/call {"name": "steps", "_meta": {"progressToken": "t"}}
[2024-11-05] < - notifications/progress {"progressToken": "t", "progress": 0, "message": null}
[2025-03-26..] < - notifications/progress {"progressToken": "t", "message": "at 0"}
< - notifications/progress {"progress": 1}
< - notifications/progress {"progress": 2.5}
< 1 {"content": [{"text": "done"}]}
== log levels
[legacy] logging/setLevel {"level": "alert"} => {}
[modern] :talk => {"content": [{"text": "said"}]}
> 1 tools/call {"name": "talk", "_meta": {"{META}logLevel": "alert"}}
< - notifications/message {"level": "alert", "logger": "talker", "data": {"says": "alert"}}
< - notifications/message {"level": "emergency"}
< 1 {"content": [{"text": "said"}]}
== requests run at the same time, and an id in flight is refused | on: memory pipe
> 1 tools/call {"name": "slow", "arguments": {"gate": "a"}}
wait a
> 1 tools/list
< 1 error {INVALID_REQUEST} id
quiet
open a
< 1 {"content": [{"text": "held"}]}
== answers that are invalid or refused | on: 2025-11-25 | declare: {"elicitation": {}}
:ask ? a elicitation/create {} -> {"action": "accept", "content": {"branch": 3}} =>
    {"content": [{"text": "failed: AskError"}]}
:ask ? b elicitation/create {} -> error -1 no => {"content": [{"text": "failed: AskError"}]}
== several at once | on: 2025-06-18.. | declare: {"elicitation": {}, "sampling": {}, "roots": {}}
[modern] :together => {"inputRequests": {"who": {"method": "elicitation/create"}, "model": {}}}
[modern] :together + {"who": {NO}, "where": {"roots": []}} => {"inputRequests": {"who": null}}
[legacy] > 1 tools/call {"name": "together"}
[legacy] <* #a elicitation/create {"message": "Who?"}
[legacy] <* #b sampling/createMessage {"maxTokens": 9}
[legacy] <* #c roots/list
[legacy] > #c {"roots": []}
[legacy] > #b {"role": "assistant", "content": {"type": "text", "text": "h"}, "model": "m"}
[legacy] > #a {"action": "decline"}
[legacy] < 1 {"content": [{"text": "[\"model\", \"where\", \"who\"]"}]}
== a server offers, and grants, what it has | on: modern | server: empty
server/discover => {"capabilities": {"logging": {}, "tools": null, "extensions": null}}
> 2 subscriptions/listen {"notifications": {"toolsListChanged": true, "unknown": true}}
< - notifications/subscriptions/acknowledged {"notifications": {"toolsListChanged": null,
    "unknown": null}, "_meta": {"{META}subscriptionId": 2}}
== a subscription that the server ends is cancelled and answered | on: modern pipe
> "b" subscriptions/listen {"notifications": {"toolsListChanged": true}}
< - notifications/subscriptions/acknowledged
eof
< - notifications/cancelled {"requestId": "b"}
< "b" {"resultType": "complete", "_meta": {"{META}subscriptionId": "b"}}
''') + "".join(brief(f'''
== {uri} escapes its segment | on: 2025-11-25 modern memory
resources/read {{"uri": "{uri}"}} => error {{INVALID_PARAMS}}
''') for uri in (
    "file:///../x", "file:///%2e%2e/b", "file:///a%2f..%2fb", "file:////etc", "file:///C:/x",
    "file:///..%5cx", "file:///a%00b", "file:///%ff", "test://item/1/..", "test://item/1/a%5Cb")
) + "".join(brief(f'''
== pages of {method} | on: 2025-11-25 modern memory | server: paged
{method} => {{"{member}": [{{"name": "a"}}, {{"name": "b"}}], "nextCursor": "*"}}
{method} {{"cursor": {{LAST:result/nextCursor}}}} =>
    {{"{member}": [{{"name": "c"}}], "nextCursor": null}}
{method} {{"cursor": 5}} => error {{INVALID_PARAMS}} cursor
''') for method, member in (
    ("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts"),
    ("resources/templates/list", "resourceTemplates"))) + brief('''
== run= decides where handlers run; an extension takes over a method | server: paged
:a => {"content": [{"text": "main-loop"}]}
:b => {"isError": true, "content": [{"text": "told you"}]}
completion/complete {"ref": {}, "argument": {"mine": 1}} => {"completion": {"values": ["mine"]}}
''', ALL))

test_core = scripts(brief(r'''
== a server introduces itself
[2025-11-25] initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {}} =>
    {"serverInfo": {"title": "Core", "description": "d"}, "instructions": null}
[modern] server/discover => {"supportedVersions": ["{VERSION}", "..."], "capabilities": {
    "tools": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {},
    "resources": {"listChanged": true, "subscribe": true}, "logging": {}},
    "_meta": {"{META}serverInfo": {"name": "core", "version": "2"}}, "instructions": null}
== what a tool may return, and what it may not | on: * memory
[legacy] :numbers {"good": true} => {"content": [{"text": "[1, 2]"}], "structuredContent": null}
[modern] :numbers {"good": true} => {"content": [{"text": "[1, 2]"}], "structuredContent": [1, 2]}
:numbers {"good": false} => {"isError": true, "structuredContent": null, "content": ["*"]}
[2025-06-18..] :returns {"what": "dict"} => {"structuredContent": {"a": [1, 2]}, "content": ["*"]}
[..2025-03-26] :returns {"what": "dict"} => {"content": [{"text": "{\"a\": [1, 2]}"}]}
:returns {"what": "none"} => {"content": [], "structuredContent": null, "isError": null}
:returns {"what": "whole"} => {"content": [{"text": "w"}], "isError": true, "_meta": {"z": 1}}
:returns {"what": "bad"} => {"isError": true}
[modern] :returns {"what": "own"} => {"resultType": "example.org/own", "x": 1, "content": null}
[2025-06-18..] :contents => {"content": [{"annotations": {"priority": 1, "lastModified": "*"}},
    {"type": "image", "data": "iVBORyBmYWtl", "mimeType": "image/png"}, {"type": "audio",
    "data": "d2F2", "mimeType": "audio/wav"}, {"type": "resource", "resource": {"uri": "x://z",
    "blob": "AA=="}, "_meta": {"m": 1}}, {"type": "resource_link", "uri": "x://y", "title": "Y"}]}
[2025-03-26] :contents => {"content": ["*", "*", {"data": "d2F2"}, "*", {"type": "text"}]}
[2024-11-05] :contents => {"content": ["*", "*", {"resource": {"blob": "d2F2"}}, "..."]}
== contents, messages, completion and caching hints | on: * memory | limits: {"MAX_COMPLETIONS": 2}
[2025-06-18..] resources/read {"uri": "test://several"} => {"contents": [
    {"uri": "test://several", "text": "one"}, {"uri": "test://other", "blob": "dHdv", "_meta": {}}]}
[modern] resources/read {"uri": "test://several"} => {"ttlMs": 7, "cacheScope": "private"}
resources/read {"uri": "test://item/7/a%20b%C3%A9"} => {"contents": [{"text": "a bé of 7"}]}
prompts/get {"name": "chat", "arguments": null} => {"messages": [{"role": "user"},
    {"role": "assistant", "content": {"text": "two"}}, {"content": {"type": "image"}}]}
completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/{number}/{part}"},
    "argument": {"name": "part", "value": "h"}} =>
    {"completion": {"values": ["h0", "h1"], "total": 120, "hasMore": true}}
[2025-06-18..] completion/complete {"ref": {"type": "ref/resource", "uri": "test://item/1/x"},
    "argument": {"name": "part", "value": "h"}, "context": {"arguments": {"number": "1"}}} =>
    {"completion": {"values": ["number"], "total": 1, "hasMore": false}}
== nothing follows the response, and the context knows its request
tools/call {"name": "keeps", "_meta": {"progressToken": 1}} => {}
do late
[2025-06-18..] :keeps => {"structuredContent": {"a": ["tools/call", "{VERSION}", "runner", null]}}
== changes in a session, until it is opened again | on: legacy memory pipe
resources/subscribe {"uri": "test://item/1/x"} => {}
resources/subscribe {"uri": "test://nothing"} => error {RESOURCE_NOT_FOUND}
handshake 2025-11-25
changed test://item/1/x
:keeps => {"structuredContent": {"a": ["*", "*", "*", "*", "test://item/1/x"]}}
resources/subscribe {"uri": "test://several"} => {}
resources/unsubscribe {"uri": "test://several"} => {}
changed test://several
quiet
== several subscriptions with tags; an unknown filter is not granted | on: modern
> 0 subscriptions/listen {"notifications": {"toolsListChanged": true, "promptsListChanged": false,
    "resourceSubscriptions": ["test://several"]}}
< - notifications/subscriptions/acknowledged {"notifications": {"toolsListChanged": true,
    "promptsListChanged": null, "resourceSubscriptions": ["test://several"]}}
> "b" subscriptions/listen {"notifications": {"example.org/jobs": ["a", "no"]}}
< - notifications/subscriptions/acknowledged {"notifications": {"example.org/jobs": null}}
changed prompts
changed test://several
< - notifications/resources/updated {"uri": "test://several", "_meta": {"{META}subscriptionId": 0}}
> - notifications/cancelled {"requestId": 0}
changed tools
subscriptions/listen {"notifications": {"resourceSubscriptions": [3]}} => error {INVALID_PARAMS}
== a legacy handler that asks runs once, a modern one again from its first line | on: 2025-06-18..
[legacy] :rounds ? one elicitation/create {"message": "One?", "requestedSchema": {"type": "object",
    "properties": {"one": {"type": "integer"}}, "required": ["one"]}} -> {"action": "accept",
    "content": {"one": 1}} ? two elicitation/create {"message": "Two?"} -> {"action": "cancel"}
    => {"content": [{"text": "accept cancel in 1"}]}
[modern] :rounds ? one elicitation/create {"mode": "form", "message": "One?"} -> {"action":
    "accept", "content": {"one": 1}} ? two elicitation/create {} -> {NO} => {"resultType":
    "complete", "inputRequests": null, "content": [{"text": "accept decline in 3"}]}
:twice {"key": "b"} ? b elicitation/create {} -> {NO} => {"content": [{"text": "refused"}]}
== the same question twice needs keys | on: 2025-11-25 memory
:twice ? a elicitation/create {} -> {NO} => {"content": [{"text": "refused"}]}
== request state is bound to its request | on: modern
:rounds => {"resultType": "input_required", "content": null, "requestState": "*"}
:twice + {} => error {INVALID_PARAMS} requestState
:rounds {"x": 1} + {} => error {INVALID_PARAMS} requestState
tools/call {"name": "rounds", "requestState": "{STATE}x"} => error {INVALID_PARAMS} requestState
tools/call {"name": "rounds", "inputResponses": 3} => error {INVALID_PARAMS} inputResponses
:rounds + {"one": {NO}, "nobody": 3} => {"inputRequests": {"one": null, "two": {}}}
== request state expires | on: modern memory | limits: {"STATE_SECONDS": -2}
:rounds => {"requestState": "*"}
:rounds + {} => error {INVALID_PARAMS} requestState
== questions have the form of their revision | on: * memory
[2025-06-18] :put {"what": "form"} ? q elicitation/create {"mode": null, "requestedSchema": {
    "properties": {"kind": {"type": "string", "enum": ["a"]}, "sure": {"type":
    "boolean", "default": true}, "age": {"minimum": 0}}}} -> {NO} => {"isError": null}
[2025-11-25..] :put {"what": "form"} ? q elicitation/create {"mode": "form", "requestedSchema": {
    "properties": {"kind": {"enum": ["a"], "default": "a"}}}} -> {NO} => {"isError": null}
[2025-11-25] :put {"what": "page"} ? q elicitation/create {"mode": "url", "requestedSchema": null,
    "elicitationId": "*"} -> {"action": "accept"} => {"content": [{"text": "answered"}]}
[modern] :put {"what": "page"} ? q elicitation/create {"url": "https://example.org/in", "message":
    "Sign in", "elicitationId": null} -> {"action": "accept"} => {"isError": null}
[legacy] :put {"what": "think"} ? q sampling/createMessage {"maxTokens": 5, "messages": [
    {"role": "user", "content": {"type": "text", "text": "Hi"}}]} -> {} => {"isError": true}
[2025-11-25..] :put {"what": "tools"} ? q sampling/createMessage {"tools": [{"name": "t"}]}
    -> {"role": "assistant", "content": [], "model": "m"} => {"isError": null}
[legacy] :put {"what": "roots"} ? q roots/list {} -> {"roots": [{"name": "?"}]} => {"isError": true}
''', " | server: core" + ALL) + "".join(brief(f'''
== a modern answer like {answer} is asked for again | on: modern memory
tools/call {{"name": "rounds", "inputResponses": {answer}}} => {{"inputRequests": {{"one": {{}}}}}}
''', " | server: core" + ALL) for answer in (
    '{}', '{"two": {"action": "decline"}}', '{"one": 3}', '{"one": {"action": "maybe"}}',
    '{"one": {"action": "accept"}}', '{"one": {"action": "accept", "content": {"one": "x"}}}')
) + "".join(brief(f'''
== {name} cannot be asked with {declared} | on: {on} memory | server: core | declare: {declared}
[legacy] :put {{"what": "{name}"}} => {{"isError": true, "content": ["*"]}}
[modern] :put {{"what": "{name}"}} => error {{MISSING_REQUIRED_CLIENT_CAPABILITY}}
    {{"requiredCapabilities": {missing}}}
''') for on, name, declared, missing in (
    ("*", "form", '{}', '{"elicitation": {"form": {}}}'),
    ("2025-11-25..", "form", '{"elicitation": {"url": {}}}', '{"elicitation": {"form": {}}}'),
    ("*", "page", '{"elicitation": {}}', '{"elicitation": {"url": {}}}'),
    ("*", "think", '{}', '{"sampling": {}}'), ("*", "roots", '{}', '{"roots": {}}'),
    ("*", "tools", '{"sampling": {}}', '{"sampling": {"tools": {}}}'))))


def responded(server: Any, name: str, principal: Any = None, **params: Any) -> dict:
    """Call a tool in the modern era, and return the response."""
    out: list[dict] = []
    server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": name, **params, "_meta": {META + "protocolVersion": MODERN[0],
                                          META + "clientCapabilities": {"elicitation": {}}}}},
                  out.append, principal=principal)
    return out[0]


def test_state_is_bound_to_the_principal_and_shared_by_the_key() -> None:
    one, two, other = (mcp.Server("s", state_key=key) for key in ("k", b"k", None))
    for server in (one, two, other):
        core_questions(server)
    state = responded(one, "rounds", "ann")["result"]["requestState"]
    for server, principal, good in ((one, "ann", True), (two, "ann", True), (two, "bob", False),
                                    (two, None, False), (other, "ann", False)):
        answer = responded(server, "rounds", principal, requestState=state)
        assert ("result" in answer) is good, answer
        assert good or answer["error"]["code"] == CODES["INVALID_PARAMS"]


def test_a_question_is_named_by_its_digest() -> None:
    server, way = mcp.Server("s"), ["ab"]

    @server.tool
    def delete(ctx: Context) -> str:
        return " ".join(ctx.elicit(f"Delete {one}?", x=bool)["action"] for one in way[0])
    first = responded(server, "delete")["result"]
    way[0] = "ba"       # on the retry the handler takes another branch
    replies = {key: {"action": "decline"} for key in first["inputRequests"]}
    second = responded(server, "delete", inputResponses=replies, requestState=first["requestState"])
    (question,) = second["result"]["inputRequests"].items()
    assert question[0] not in replies and question[1]["params"]["message"] == "Delete b?"


def test_server_call_calls_a_tool() -> None:
    server = fixture(Stage())
    assert server.call("add", a=2, b=3)["structuredContent"] == {"result": 5}
    with pytest.raises(mcp.RpcError, match="seven"):
        server.call("fail", how="own")
    with pytest.raises(mcp.ClientLacks):
        server.call("asks", what="url")


# What raises, a word of the message, a mistake.
MISTAKES = [
    (ValueError, "twice", lambda s: s.tool(name="twice")(s.tool(name="twice")(lambda: ""))),
    (ValueError, "x://a", lambda s: s.resource("x://a")(s.resource("x://a")(lambda: ""))),
    (ValueError, "no-scheme", lambda s: s.resource("no-scheme")(lambda: "")),
    (ValueError, "{a}", lambda s: s.resource("x://{a}")(lambda: "")),
    (ValueError, "noprefix", lambda s: s.method("noprefix")(lambda params: {})),
    (ValueError, "tool", lambda s: s.changed("tool")),
    (TypeError, "titel", lambda s: s.tool(titel="x")(lambda: ""))]


@pytest.mark.parametrize("kind, word, mistake", MISTAKES)
def test_mistakes_are_refused_at_once(kind: Any, word: str, mistake: Any) -> None:
    with pytest.raises(kind, match=re.escape(word)):
        mistake(mcp.Server("s"))


# The public names, by part; parameters in order.
PUBLIC = {"I": """Server(name,version,instructions,page_size,state_key,run,ttl_ms,cache_scope)
    Server.tool(function,name,input_schema,output_schema) Server.prompt(function,name)
    Server.resource(uri,name,mime_type,ttl_ms,cache_scope) Server.completion(reference,argument)
    Server.method(name,extension,settings,mirrored)
    Server.capabilities(version) Server.changed(what) Server.run Server.handle Context
    Context.on_cancel Peer Context.progress(progress,total,message) Context.log(level,data,logger)
    serve_stdio(server) Context.notify(method,params) Context.elicit(message,key)
    Context.sample(messages,key) Context.list_roots(key) Context.ask(questions)
    Context.close_stream() text(value) roots() image(data,mime_type) audio(data,mime_type)
    embedded(uri,value,mime_type) link(uri,name) elicitation(message,url,schema)
    sampling(messages,max_tokens) NotFound AskError ClientLacks RpcError(code,message,data)
    decode(data) encode(message) kind_of(message) is_id(value) Schema schema_of(hint) rules(version)
    versions(era) REVISIONS METHODS NOTIFICATIONS FEATURES ERRORS LOG_LEVELS META_VERSION
    META_CLIENT META_CAPABILITIES META_LOG_LEVEL META_SUBSCRIPTION META_SERVER""",
    "II": """Endpoint(server,path,hosts,origins,metadata,authorize,cors,stateless,sse_on_get)
    Exchange serve_http(server,host,port,endpoint) http_server(endpoint,host,port) HttpError bearer
    mirror(value) unmirror(value) event(data,ident)"""}


@pytest.mark.parametrize("entry", [e for p in PARTS for e in PUBLIC.get(p, "").split()])
def test_public_names_and_parameters(entry: str) -> None:
    import inspect
    name, _, wanted = entry.rstrip(")").partition("(")
    value = functools.reduce(getattr, name.split("."), mcp)
    if wanted:
        given = [one for one in inspect.signature(value).parameters if one != "self"]
        assert given[:wanted.count(",") + 1] == wanted.split(",")
# ------------------------------------------------------------------------------------------
# Schemas: type hints to JSON Schema and back, and which values a schema lets through
# ------------------------------------------------------------------------------------------
# ruff: noqa: UP007, UP045 (Python 3.9 evaluates no X | Y)



class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


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


class Weather(TypedDict):
    degrees: float
    sky: Color


class Plain:
    """A class without a JSON form."""


INT, STR, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
POINT = {"type": "object", "properties": {"x": INT, "y": INT}, "required": ["x"],
         "additionalProperties": False}
SOME = {"type": "object", "properties": {"a": INT, "b": INT}, "required": ["a"]}


@pytest.mark.parametrize("hint, schema", [
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
    (Annotated[int, "why", {"minimum": 1}, Plain()], {**INT, "description": "why", "minimum": 1}),
    (Point, POINT), (list[Point], {"type": "array", "items": POINT})], ids=str)
def test_a_hint_has_a_schema(hint: Any, schema: Any) -> None:
    assert mcp.schema_of(hint) == schema


def ask(server: Any, method: str, **params: Any) -> Any:
    """Return the result of one request of the newest revision."""
    sent: list[dict] = []
    params["_meta"] = {META + "protocolVersion": MODERN[0], META + "clientCapabilities": {}}
    server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, sent.append)
    return sent[-1]["result"]


def serve_tool(function: Any, **options: Any) -> tuple[Any, Any]:
    """Register a tool `t`; return its server and its definition."""
    server = mcp.Server("s")
    server.tool(function, name="t", **options)
    return server, ask(server, "tools/list")["tools"][0]


def hinted(hint: Any, result: Any, function: Any) -> Any:
    def takes(x: Any = "") -> Any:
        return function(x)
    takes.__annotations__ = {"x": hint, "return": result}
    return takes


@pytest.mark.parametrize("hint", [Plain, bytes, dict[int, str], Literal[b"x"], Optional[Plain]])
def test_a_hint_without_a_json_form_is_refused_by_name(hint: Any) -> None:
    with pytest.raises(TypeError, match="Plain|bytes|int|b'x'"):
        mcp.schema_of(hint)
    for function in (hinted(hint, str, repr), hinted(str, hint, repr)):
        with pytest.raises(TypeError, match="takes"):
            mcp.Server("s").tool(function)


@pytest.mark.parametrize("hint, value, shown", [
    (int, 1.0, "1"), (Optional[int], 2.0, "2"), (Optional[Color], None, "None"),
    (Color, "b", "<Color.BLUE: 'b'>"), (Union[int, Color], "r", "<Color.RED: 'r'>"),
    (Union[int, Color], 9, "9"), (Point, {"x": 1.0}, "Point(x=1, y=0)"), (set[int], [1], "{1}"),
    (tuple[int, Color], [5, "r"], "(5, <Color.RED: 'r'>)"), (tuple[str, ...], ["a"], "('a',)"),
    (list[Point], [{"x": 1, "y": 2}], "[Point(x=1, y=2)]"), (Any, {"a": [1]}, "{'a': [1]}"),
    (dict[str, Point], {"k": {"x": 3}}, "{'k': Point(x=3, y=0)}"),
    (Weather, {"degrees": 1.5, "sky": "r"}, "{'degrees': 1.5, 'sky': <Color.RED: 'r'>}"),
    (Annotated[Color, "which"], "r", "<Color.RED: 'r'>"),
    (Order, {"item": "i", "points": [{"x": 1}]},
     "Order(item='i', color=<Color.RED: 'r'>, points=[Point(x=1, y=0)], total=9.5)"),
    (int, True, "/x: integer"), (int, 1.5, "/x: integer"), (Color, "g", "/x: one of"),
    (Point, {"x": "q"}, "/x/x: integer"), (Point, {}, "/x/x: required"),
    (Point, {"x": 1, "z": 1}, "/x/z: "), (tuple[int, str], [1, "a", 2], "/x/2: "),
    (dict[str, int], {"a/b~c": "1"}, "/x/a~1b~0c: integer"), (Optional[int], "a", "/x: integer"),
    (Order, {"item": "i", "points": [{"x": 1}, {}]}, "/x/points/1/x: required")])
def test_arguments_become_python_values_or_are_refused(hint: Any, value: Any, shown: str) -> None:
    server, _ = serve_tool(hinted(hint, str, repr))
    result = ask(server, "tools/call", name="t", arguments={"x": value})
    text = result["content"][0]["text"]
    if shown[0] == "/":
        place, _, word = shown.partition(": ")
        assert result["isError"] and word in text.partition(place + ": ")[2]
    else:
        assert text == shown


@pytest.mark.parametrize("hint, value, structured", [
    (int, 3, {"result": 3}), (list[str], ["a"], {"result": ["a"]}),
    (Color, Color.RED, {"result": "r"}), (Optional[int], None, {"result": None}),
    (tuple[int, str], (1, "a"), {"result": [1, "a"]}), (set[int], {1}, {"result": [1]}),
    (Point, Point(1), {"x": 1, "y": 0}),
    (Order, Order("i"), {"item": "i", "color": "r", "points": [], "total": 9.5}),
    (Weather, {"degrees": 1.0, "sky": Color.BLUE}, {"degrees": 1.0, "sky": "b"}),
    (str, "text", None), (None, None, None), (list[dict[str, Any]], [], None)])
def test_results_become_json(hint: Any, value: Any, structured: Any) -> None:
    server, tool = serve_tool(hinted(Any, hint, lambda x: value))
    assert tool.get("outputSchema", {}).get("type") == (structured and "object")
    assert mcp.Schema(tool.get("outputSchema", {})).flaw(structured) is None
    assert ask(server, "tools/call", name="t").get("structuredContent") == structured


def documented(a: int, b: Any = float("inf"), c: Annotated[int, "hint"] = 3, d: Any = Plain) -> str:
    """Do something.

    Args:
        a: the first
        b (float): the second
        c: not this
    :param d: the last
    """


def test_docstrings_describe_the_tool_and_its_parameters() -> None:
    _, tool = serve_tool(documented)
    assert tool["description"] == "Do something." and tool["inputSchema"]["required"] == ["a"]
    assert tool["inputSchema"]["properties"] == {       # JSON has neither infinity nor classes
        "a": {**INT, "description": "the first"}, "d": {"description": "the last"},
        "b": {"description": "the second"}, "c": {**INT, "description": "hint", "default": 3}}


class Kinds:
    def method(self, a: int, b: str = "x", *, c: bool = True, **rest: Any) -> int:
        return a

    decorated = functools.lru_cache(method)

    @staticmethod
    def static(a: int, b: str = "x", *, c: bool = True, **rest: Any) -> int:
        return a


@pytest.mark.parametrize("function", [
    Kinds().method, functools.lru_cache(Kinds().method), Kinds().decorated, Kinds.static],
    ids=range(4))
def test_functions_and_methods_can_be_tools(function: Any) -> None:
    server, tool = serve_tool(function)
    schema = tool["inputSchema"]
    assert schema["required"] == ["a"] and "additionalProperties" not in schema     # **rest
    assert {name: schema["properties"][name] for name in "abc"} == {
        "a": INT, "b": {**STR, "default": "x"}, "c": {"type": "boolean", "default": True}}
    answer = ask(server, "tools/call", name="t", arguments={"a": 5, "more": 1})
    assert answer["structuredContent"] == {"result": 5}


def test_a_signature_that_cannot_be_served_is_refused() -> None:
    for other in (functools.partial(documented, 1), Kinds, len):
        with pytest.raises(TypeError):
            mcp.Server("s").tool(other)
    for code, word in (("x: int, /", ""), ("*x: int", ""), ("x: 'Nowhere'", "Nowhere"),
                       ("ctx", "ctx: Context"), ("a: Context, b: Context", "Context")):
        scope = {"Context": Context}
        exec(f"def wrong({code}) -> str: ...", scope)           # noqa: S102
        with pytest.raises(TypeError, match="wrong.*" + word):
            mcp.Server("s").tool(scope["wrong"])


def test_forms_are_flat() -> None:
    asked = mcp.elicitation("?", name=str, age=Annotated[int, "in years", {"minimum": 0}],
                            note=Optional[str], kind=(Literal["a", "b"], "b"),
                            many=list[Literal["a"]], mail={**STR, "format": "email"})
    assert asked["params"]["requestedSchema"] == {
        "type": "object", "required": ["name", "age", "many"], "properties": {
            "name": STR, "age": {**INT, "description": "in years", "minimum": 0}, "note": STR,
            "kind": {**STR, "enum": ["a", "b"], "default": "b"}, "mail": {**STR, "format": "email"},
            "many": {"type": "array", "items": {**STR, "enum": ["a"]}}}}
    for hint in (dict, list[str], Point, Plain, Union[int, str]):
        with pytest.raises(TypeError):
            mcp.elicitation("?", x=hint)


DEEP = functools.reduce(lambda value, _: [value], range(5000), None)
VALIDATION = [      # a schema, values that are valid, values that are not: flaw's place and word
    ({"type": ["integer", "null"]}, [1, 1.0, None], [("x", "/: ", "integer"), (True, "/: ", "")]),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [(True, "/: ", "one of")]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [({"a": [True]}, "/: ", ""), ({}, "/: ", "")]),
    ({"multipleOf": 0.0001}, [0.0075, 3], [(0.00751, "/: ", "multiple")]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [(0, "/: ", "1"), (3, "/: ", "3")]),
    ({"minLength": 2, "maxLength": 3}, ["ab", "a\U0001f600", 5], [("a", "/: ", "2")]),
    ({"pattern": r"^a\d$"}, ["a1", 5], [("a1\n", "/: ", "match"), ("a\u0664", "/: ", "")]),
    ({"uniqueItems": True, "minItems": 1}, [[1, True]], [([], "/: ", "1"), ([1, 1.0], "/: ", "")]),
    ({"properties": {"a/b~c": {"items": {"minimum": 0}}}, "required": ["a/b~c"]}, [{"a/b~c": [0]}],
     [({"a/b~c": [0, -1]}, "/a~1b~0c/1: ", "0"), ({}, "/a~1b~0c: ", "required")]),
    ({"patternProperties": {"^x": INT}, "additionalProperties": STR}, [{"xa": 1, "b": "s"}],
     [({"xa": "s"}, "/xa: ", "integer"), ({"b": 1}, "/b: ", "string")]),
    ({"prefixItems": [INT], "items": False}, [[], [1]], [([""], "/0: ", ""), ([1, 2], "/1: ", "")]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [(3, "/: ", "2")]),
    ({"anyOf": [INT, STR]}, [1, "a"], [([], "/: ", "integer")]),
    ({"oneOf": [{"multipleOf": 2}, {"minimum": 6}]}, [2, 7], [(6, "/: ", "one"), (5, "/: ", "")]),
    ({"not": INT}, ["a"], [(1, "/: ", "match")]),
    ({"if": INT, "then": {"minimum": 5}, "else": STR}, [5, ""], [(4, "/: ", "5"), ([], "/: ", "")]),
    ({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": INT}}, [1], [("x", "/: ", "integer")]),
    ({"properties": {"n": {"$ref": "#"}}, "additionalProperties": False}, [{"n": {"n": {}}}],
     [({"n": {"x": 1}}, "/n/x: ", "")]),
    ({"format": "email", "unknown": {"$ref": "http://x"}}, ["no mail", 1], []),
    ({"$ref": "#"}, [], [(1, "/", "")]), ({"items": {"$ref": "#"}}, [], [(DEEP, "/", "")]),
    (True, [1], []), (False, [], [(1, "/: ", "")]),
]


@pytest.mark.parametrize("schema, valid, invalid", VALIDATION)
def test_what_a_schema_lets_through(schema: Any, valid: list, invalid: list) -> None:
    checked = mcp.Schema(schema)
    assert [checked.flaw(value) for value in valid] == [None] * len(valid)
    for value, place, word in invalid:
        flaw = checked.flaw(value)
        assert flaw and flaw.startswith(place) and word in flaw, flaw


@pytest.mark.parametrize("schema", [
    3, None, {"type": "thing"}, {"properties": {"a": {"pattern": "("}}}, {"$ref": "#/nowhere"},
    {"items": {"$ref": "http://example.org/s"}}, {"$ref": "other.json#/a"}, {"type": ["thing"]},
    {"$schema": "http://json-schema.org/draft-07/schema#"}, *({"items": {name: {}}} for name in (
        "contains", "dependentRequired", "dependentSchemas", "unevaluatedItems"))],
    ids=str)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError):
        mcp.Schema(schema)


def test_random_schemas_and_values_never_crash() -> None:
    dice = random.Random(1)
    keywords = [part for schema, _, _ in VALIDATION[:-4] for part in schema.items()]
    values = [value for _, valid, _ in VALIDATION for value in (*valid, valid)]
    for _ in range(500):
        schema = {"items": dict(dice.sample(keywords, 2)), **dict(dice.sample(keywords, 3))}
        with contextlib.suppress(ValueError):
            checked = mcp.Schema(schema)
            assert all((checked.flaw(value) or "/")[0] == "/" for value in values)
# ------------------------------------------------------------------------------------------
# stdio and processes: design.md §8, hosts.md, and the command line
# ------------------------------------------------------------------------------------------


needs_http = pytest.mark.skipif("II" not in PARTS, reason="needs part II")


def modern(method: str, ident: Any = 1, **params: Any) -> dict:
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": {**params, "_meta": {
        META + "protocolVersion": MODERN[0], META + "clientCapabilities": {}}}}


SLOW = 'tools/call {"name": "slow", "arguments": {"gate": "@"}}'
HELD = '{"content": [{"text": "held"}]}'
test_slow_tools = scripts(re.sub(r"SLOW (\w+)", lambda m: SLOW.replace("@", m[1]), (r'''
== slow tools delay neither ping nor each other | on: 2025-11-25 modern pipe
''' + "".join(f"> {n} SLOW g{n}\n" for n in range(32)) + "".join(
    f"wait g{n}\n" for n in range(32)) + "quiet\n" + "".join(
    f"open g{n}\n< {n} HELD\n" for n in reversed(range(32))) + r'''
== while all threads are busy, calls wait, and what needs no handler does not; what came
    before the end of input is finished | on: 2025-11-25 pipe | limits: {"MAX_THREADS": 2}
> 1 SLOW a
wait a
> 2 SLOW b
open c
> 3 SLOW c
> 4 nobody/knows
< 4 error {METHOD_NOT_FOUND}
quiet
eof
open b
open a
<* 1 HELD
<* 2 HELD
<* 3 HELD
ends 0

== a cancellation names its request exactly, and nothing follows it | on: pipe
> 0 SLOW a
wait a
> "0" SLOW b
wait b
> - notifications/cancelled {"requestId": [0]}
> - notifications/cancelled {"requestId": "0", "reason": "enough"}
wait b passed
> - $/cancelRequest {"id": 0}
wait a passed
> - notifications/cancelled {"requestId": 0}
quiet

== the end of input ends subscriptions | on: modern pipe | limits: {"LEAVE_SECONDS": 60}
> 1 subscriptions/listen {"notifications": {"toolsListChanged": true}}
< - notifications/subscriptions/acknowledged
eof
<* - notifications/cancelled {"requestId": 1}
<* 1 {}
ends 0

== the end of input ends questions | on: 2025-06-18..2025-11-25 pipe
    | limits: {"LEAVE_SECONDS": 60} | declare: {"elicitation": {}}
> 1 tools/call {"name": "ask"}
< #q elicitation/create {"message": "Which branch?"}
eof
< 1 {"content": [{"text": "failed: AskError"}]}
ends 0
''').replace("HELD", HELD)))

HOSTS = [       # the id of server/discover; the version of initialize; then one burst
    ("Claude Code", '"d-1"', "2025-11-25", ["tools/list", "prompts/list", "resources/list"]),
    ("Codex CLI", "", "2025-06-18", ['tools/list {"_meta": {"progressToken": 0}}']),
    ("Gemini CLI", "", "2025-06-18", ["prompts/list", "tools/list", "resources/list", "ping"]),
    ("a desktop host", "1", "2025-03-26", ['tools/call {"name": "steps", "arguments": {}}'])]
test_hosts = scripts("".join(f"""
== {name} | on: pipe {version} | bare
{probe and f'> {probe} server/discover ' + json.dumps(modern("")["params"])}
{probe and f'< {probe} {{"supportedVersions": ["{MODERN[0]}", "..."]}}'}
> 0 initialize {{"protocolVersion": "{version}", "capabilities": {{"roots": {{}}}},
    "clientInfo": {{"name": "{name}", "version": "1"}}}}
< 0 {{"protocolVersion": "{version}", "serverInfo": {{"name": "test"}}}}
> - notifications/initialized
""" + "".join(f"> {n} {request}\n" for n, request in enumerate(burst, 2))
    + "".join(f"<* {n} {{}}\n" for n, _ in enumerate(burst, 2))
    for name, probe, version, burst in HOSTS))


# ---- a program, which is this function alone, in a process of its own

def a_program(seconds: float) -> None:
    """Serve tools that misbehave."""
    print("printed at import")
    mcp.LEAVE_SECONDS = seconds
    server = mcp.Server("s")

    @server.tool
    def do(what: str) -> str:
        return str({
            "print": lambda: print("dirt \u2603", flush=True), "read": lambda: sys.stdin.read(),
            "write": lambda: os.write(1, b"dirt\n"), "shell": lambda: os.system("echo dirt"),
            "child": lambda: subprocess.call([sys.executable, "-c", "print('dirt')"]),
            "cat": lambda: subprocess.check_output(["cat"], text=True)}[what]())

    @server.tool
    def busy(compute: bool, ctx: mcp.Context) -> None:
        ctx.notify("example.org/started")
        while compute:
            pass
        threading.Event().wait()

    @server.tool
    def fork(until: int) -> str:
        return "forked" if os.fork() else os._exit(len(os.read(until, 1)))
    server.run()
    print("after", file=sys.stderr)


class Program(subprocess.Popen):
    """a_program(), started in "/" with next to nothing in its environment."""

    def __init__(self, seconds: float = 60, **env: str) -> None:
        source = f"import sys; sys.path[:0] = [{str(MCP_REF.parent)!r}]\nimport mcp_ref as mcp\n" \
            f"import os, subprocess, threading\n{inspect.getsource(a_program)}\n"
        self.log = tempfile.TemporaryFile()          # noqa: SIM115  (a pipe could fill up)
        super().__init__(
            [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c",
             f"{source}a_program({seconds})"], 0, None, -1, -1, self.log, cwd="/",
            env={"PATH": os.environ["PATH"], **env}, close_fds=False)
        self.killer = threading.Timer(3 * PATIENCE, self.kill)
        self.killer.start()

    def __exit__(self, *_: object) -> None:
        self.killer.cancel()
        self.kill()
        super().__exit__(None, None, None)
        self.log.close()

    def send(self, message: Any) -> None:
        self.stdin.write(mcp.encode(message) if isinstance(message, dict) else message)

    def read(self) -> Any:
        """Return the next message: nothing else may be on stdout."""
        line = self.stdout.readline()
        assert line.endswith(b"\n") and line.isascii(), (line, self.log.seek(0), self.log.read())
        assert json.loads(line)["jsonrpc"] == "2.0", line
        return json.loads(line)

    def call(self, tool: str, ident: Any = 1, **arguments: Any) -> Any:
        self.send(modern("tools/call", ident, name=tool, arguments=arguments))
        return self.read()

    def end(self, how: str = "stdin") -> tuple[int, str]:
        """Close streams or send signals; return the exit status and stderr."""
        for one in how.split():
            if one[:3] == "SIG":
                self.send_signal(getattr(signal, one))
            else:
                getattr(self, one).close()
        status = self.wait(PATIENCE)
        assert self.stdout.closed or not self.stdout.read()
        self.log.seek(0)
        return status, self.log.read().decode()


def test_nothing_but_messages_is_on_stdout() -> None:
    with Program() as program:
        for what, text in (("print", "None"), ("write", "5"), ("shell", "0"), ("read", ""),
                           ("child", "0"), ("cat", "")):
            answer = program.call("do", what, what=what)
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (what, text)
        status, said = program.end()
        assert (status, said.count("dirt")) == (0, 4)
        assert "printed at import" in said and said.endswith("after\n")


def test_a_forked_child_does_not_hold_the_pipe() -> None:
    until, go = os.pipe()
    os.set_inheritable(until, True)
    with open(go, "wb"), Program() as program:          # the child lives as long as `go` is open
        assert program.call("fork", until=until)["result"]["content"][0]["text"] == "forked"
        os.close(until)
        assert program.end()[0] == 0


@pytest.mark.parametrize("busy", ["idle", "waiting", "computing"])
@pytest.mark.parametrize("how, statuses", [
    ("stdin", [0]), ("stdout", [0]), ("SIGINT", [-2]), ("SIGTERM", [-15]),
    ("SIGINT SIGTERM", [-2, -15]), ("SIGTERM stdin", [-15])])
def test_it_leaves_quickly_and_quietly(how: str, statuses: list, busy: str) -> None:
    with Program(0.05 if how == "stdin" else 60) as program:
        program.send(modern("server/discover"))
        assert program.read()["result"]
        if busy != "idle":
            program.call("busy", compute=busy == "computing")
        before = time.monotonic()
        status, said = program.end(how)
        assert status in statuses and time.monotonic() - before < 2
        assert how == "stdout" or ("after" in said) == (how == "stdin" and busy == "idle")
        assert "Traceback" not in said and "Fatal" not in said, said


def test_a_trace_has_every_message_and_abandoned_requests_are_counted(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("before\n")
    with Program(0.05, MCP_TRACE=str(tmp_path / "trace")) as program:
        began = [program.call("busy", ident, compute=False) for ident in (1, 3)]
        before, sent, came, *rest = (tmp_path / "trace").read_text().splitlines()
        assert (before, sent[:2], came[:2], len(rest)) == ("before", "> ", "< ", 2)
        assert json.loads(sent[2:])["id"] == 1 and json.loads(came[2:]) == began[0]
        status, said = program.end()
        assert status == 0 and re.search(r"abandon.*\b2\b|\b2\b.*abandon", said), said


def test_the_log_of_a_failure_begins_with_the_authors_frame(capsys: Any) -> None:
    server = mcp.Server("s")

    @server.tool
    def parse(text: str) -> Any:
        return json.loads(text)
    assert ask(server, "tools/call", name="parse", arguments={"text": "{"})["isError"]
    said = capsys.readouterr().err
    frames = re.findall(r'File "([^"]+)", line \d+, in (\w+)', said)
    assert frames[0] == (__file__, "parse") and "JSONDecodeError" in said, said


def test_handlers_run_on_an_event_loop() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop")
    server = mcp.Server("s", run=loop.call_soon_threadsafe)
    server.tool(lambda: threading.current_thread().name, name="where")
    server.tool(lambda: 1 / 0, name="fails")
    thread.start()
    results = [ask(server, "tools/call", name=name) for name in ("where", "fails")]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()
    assert results[0]["content"][0]["text"] == "loop" and results[1]["isError"]


def test_servers_in_one_process_share_nothing_each_in_a_loop_of_its_own() -> None:
    def loop(server: Any, wire: Any) -> None:
        peer = mcp.Peer(lambda message: wire.sendall(mcp.encode(message)))
        with wire, wire.makefile("rb") as lines:
            for line in lines:
                server.handle(mcp.decode(line), peer.send, peer=peer)
    for name in ("a", "b"):
        server, (ours, theirs) = mcp.Server("s"), socket.socketpair()
        server.tool(lambda: "x", name=name)
        thread = threading.Thread(target=loop, args=(server, theirs))
        thread.start()
        with ours, ours.makefile("rb") as lines:
            ours.sendall(mcp.encode(modern("tools/list")))
            assert [t["name"] for t in json.loads(lines.readline())["result"]["tools"]] == [name]
            ours.shutdown(socket.SHUT_WR)
            thread.join(PATIENCE)
            assert not thread.is_alive() and lines.read() == b""


# ---- the command line

def command(*words: str, text: str = "", cwd: Any = "/") -> Any:
    """Run the module as a program: by -m, which keeps its bytecode."""
    return subprocess.run(
        [sys.executable, "-W", "error", *words], input=text, text=True, capture_output=True,
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)}, timeout=3 * PATIENCE,
        check=False)


TOOL = "from mcp_ref import Server\nserver = Server('s')\n@server.tool\ndef a(): 'A.'\n"


@needs_http
@pytest.mark.parametrize("source, names", [
    (TOOL, ["a"]), (TOOL + "server.run()\n", ["a"]), (TOOL + "def b(): 'No tool.'\n", ["a"]),
    (TOOL + "if __name__ == '__main__':\n    1 / 0\n", ["a"]), ("", ["add", "echo"]),
    (("from beside import *\nfrom os.path import join\nprint('x')\ndef g(x: int): 'G.'\n"
     "def _h(): 'H.'\nclass C: pass\ni = len\n"), ["g"])])
def test_a_file_is_served_or_else_a_demo(source: str, names: list, tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(source)
    (tmp_path / "beside.py").write_text("def other(): 'Not defined there.'\n")
    words = ["-m", "mcp_ref", "serve", str(tmp_path / "given.py")] if source else [str(MCP_REF)]
    done = command(*words, text=json.dumps(modern("tools/list")))
    assert done.returncode == 0 and done.stdout, done.stderr
    assert sorted(tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]) == names


@needs_http
@pytest.mark.parametrize("words, keyword", [
    ("nonsense", "nonsense"), ("serve empty.py more", "more"), *(
        row for row in (
            ("serve", "missing"), ("serve none.py", "none.py"), ("serve text.txt", "text.txt"),
            ("serve empty.py", "empty.py"), ("--http", "PORT"),
            ("--http x", "PORT"), ("--http 127.0.0.1:99999", "PORT")))])
def test_a_wrong_command_line_is_named(words: str, keyword: str, tmp_path: Path) -> None:
    for name, source in (("empty.py", "_x = len"), ("text.txt", TOOL)):
        (tmp_path / name).write_text(source)
    done = command("-m", "mcp_ref", *words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert keyword in done.stderr, done.stderr


@needs_http
def test_help_version_and_tables() -> None:
    assert "serve FILE.py" in command("-m", "mcp_ref", "--help").stdout
    digest = hashlib.sha256(MCP_REF.read_bytes()).hexdigest()
    assert command("-m", "mcp_ref", "--version").stdout == f"mcp_ref 0.2.0 sha256:{digest}\n"
    lines = command("-m", "mcp_ref", "tables").stdout.splitlines()
    head = next(line for line in lines if all(date in line for date in ORDER))
    for table in (mcp.METHODS, mcp.NOTIFICATIONS, mcp.FEATURES, mcp.ERRORS):
        for key, row in table.items():
            (line,) = [one for one in lines if re.match(rf"\s*{re.escape(str(key))}(\s|$)", one)]
            old = getattr(row, "deprecated", "") or "9999"
            assert [line[head.index(date):][:10].strip() for date in ORDER] == [
                "" if not exists(row, date) else "deprecated" if date >= old else "yes"
                for date in ORDER], line


def test_the_import_is_lean() -> None:
    done = command("-S", "-c", "import sys, mcp_ref; print(*sorted(sys.modules))")
    assert "mcp_ref" in done.stdout and not {*done.stdout.split()} & {
        "http.server", "socket", "subprocess", "asyncio", "logging", "dataclasses", "urllib",
        "inspect"}, done


# ---- random input with fixed seeds (schemas have theirs above), and everything at once

def test_random_bytes_never_silence_the_next_line() -> None:
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
            program.send(bytes(line).replace(b"\n", b" ") + b"\n" + mcp.encode(
                {"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"}))
            came = [program.read()]
            if came[0].get("id") != f"p{number}":
                came.append(program.read())
            assert (came[-1]["id"], came[-1]["result"]) == (f"p{number}", {}), (line, came)
        program.send(b'{"jsonrpc": "2.0", "id": "last", "method": "ping"}')
        program.stdin.close()               # a last line needs no line end
        assert program.read()["result"] == {} and program.end()[0] == 0


@needs_http
def test_a_storm_leaves_nothing_behind() -> None:
    """Clients of every kind come and go for a second: no thread, session, descriptor stays."""
    def visit(dice: random.Random) -> None:
        if dice.random() < 0.2:
            with socket.create_connection(("127.0.0.1", httpd.server_port)) as link:
                data = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1234567"
                return link.sendall(data[:dice.randrange(len(data))])
        target, text = url, "x" * dice.choice([1, 100, 100000])
        if dice.random() < 0.05:
            target = [sys.executable, "-m", "mcp_ref"]
        with client.connect(target, timeout=PATIENCE, cwd=str(MCP_REF.parent),
                            revision=dice.choice(ORDER[:4])) as one:
            assert one.call_tool("echo", {"text": text})["content"][0]["text"] == text
            if target != url:
                return None
            with one.listen(["tools"]) as changes:
                server.changed("tools")
                assert next(iter(changes)) == "tools"
            with contextlib.suppress(TimeoutError):     # in a session this might cancel too soon
                one.modern and one.call_tool("slow", {"gate": str(dice.random())}, timeout=0.02)

    def storm(seed: int) -> None:
        dice, until = random.Random(seed), time.monotonic() + 1
        try:
            while time.monotonic() < until:
                visit(dice)
        except BaseException as problem:            # noqa: BLE001
            problems.append(problem)
    problems, server = [], SERVERS["fixture"](Stage())
    with limits(MAX_SESSIONS=20), http_serving(server) as httpd:
        url = f"http://127.0.0.1:{httpd.server_port}/mcp"
        client.connect(url).close()         # which starts what stays as long as the server does
        before = threading.active_count(), len(os.listdir("/dev/fd"))
        threads = [threading.Thread(target=storm, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * PATIENCE)
        for _ in range(int(50 * PATIENCE)):
            left = threading.active_count(), len(os.listdir("/dev/fd"))
            if left[0] > before[0] or left[1] > before[1]:
                threading.Event().wait(0.02)
        assert not problems and left[0] <= before[0] and left[1] <= before[1], (problems, left)
# ------------------------------------------------------------------------------------------
# HTTP: design.md §9 and the eighth point of the host contract
# ------------------------------------------------------------------------------------------

@served
def wired(stage: Stage) -> Any:
    """Make the fixture, with tools for streams and for headers that repeat arguments."""
    server = fixture(stage)

    @server.tool
    def early(gate: str, ctx: Context) -> str:
        ctx.progress(1)
        stage.stop(gate, ctx)
        ctx.progress(2)
        return "late"

    part = {name: {"type": kind, "x-mcp-header": name} for name, kind in (
        ("region", ["string", "null"]), ("n", "integer"), ("on", "boolean"), ("deep", "string"))}
    inner = {"type": "object", "properties": {"deep": part.pop("deep")}}

    @server.tool(input_schema={"type": "object", "properties": {**part, "inner": inner}})
    def place(region: Any = None, n: Any = None, on: Any = None, inner: Any = None) -> str:
        return "placed"
    return server


class HttpScript:
    """Plays lines about single HTTP exchanges, which the scripts of the runner do not show:

        session s 2025-06-18                    open a session; {s} is its id
        POST s ping -> 200 WORDS                a request of it, the status, what the answer has
        POST - Name=1|2 /path {raw} -> 400      of no session, with each value; `modern` for `-`
        a = GET s / a < WORDS / a <* WORDS      open a stream; its next message / one further on
        a event WORDS / a ends / a hangs up     its next event, whatever it is / end / client
        until LINE / limit NAME VALUE / close   repeat until it holds / set a limit / the server
    WORDS are separated by `&`, `!` stands before one that must be absent; `Name=~` takes a header
    away. {a} is the id of the last event of a stream, {id} that of the last message, {data} the
    data of the last event. Every tools/call has the progress token 0.
    """

    def __init__(self, stage: Stage, server: Any, httpd: Any, stack: Any) -> None:
        self.stage, self.server, self.httpd, self.stack = stage, server, httpd, stack
        self.sessions: dict[str, dict] = {"-": {}, "modern": {}}
        self.streams: dict[str, Any] = {}
        self.names = {**{name: str(code) for name, code in CODES.items()}, "META": META}
        self.names["INIT"] = json.dumps({"protocolVersion": "2025-06-18", "capabilities": {
            "roots": {}, "elicitation": {}}, "clientInfo": {"name": "c", "version": "1"}})

    def play(self, line: str) -> None:
        line = re.sub(r"\{(\w+)\}", lambda match: self.names[match[1]], line)
        verb, _, rest = line.partition(" ")
        several = next((word for word in line.split(" ") if "|" in word), None)
        if several:
            name, values = re.fullmatch("([A-Z][A-Za-z-]+=)?(.*)", several).groups("")
            for value in values.split("|"):
                self.play(line.replace(several, name + value, 1))
        elif verb == "until":
            for _ in range(int(PATIENCE / 0.01)):
                with contextlib.suppress(AssertionError):
                    return self.play(rest)
                threading.Event().wait(0.01)
            raise AssertionError("it never came true")
        elif rest.startswith("= "):
            self.stream(verb, *self.request(rest[2:]))
        elif verb in self.streams:
            self.read(verb, *rest.partition(" ")[::2])
        elif " -> " in line:
            request, _, answer = line.partition(" -> ")
            body, headers, verb, path = self.request(request)
            status, headers, body = exchange(self.httpd.server_port, verb, path, headers, body)
            self.names["new"] = headers.get("mcp-session-id")
            body = body.decode() if isinstance(body, bytes) else json.dumps(body)
            self.check(answer.replace(" ", " & ", 1), f"{status} {json.dumps(headers)} {body}")
        elif verb == "session":
            name, version = rest.split(" ")
            initialize = self.names["INIT"].replace("2025-06-18", version)
            self.play(f"POST - initialize {initialize} -> 200 {version}")
            assert re.fullmatch("[!-~]{32,}", self.names["new"])
            self.names[name] = self.names["new"]
            self.sessions[name] = {"Mcp-Session-Id": self.names["new"]}
            self.play(f"POST {name} notifications/initialized -> 202 !content-type")
        elif verb == "name":
            self.names.update([rest.split(" ", 1)])
        elif verb == "limit":
            self.stack.enter_context(limits(**{rest.split()[0]: int(rest.split()[1])}))
        elif verb == "close":
            self.httpd.close()
        else:
            self.stage.act(self.server, verb, rest)

    def check(self, words: str, text: str) -> None:
        for word in words.split(" & "):
            assert (word.lstrip("!") in text) is not word.startswith("!"), f"{word} in {text:.900}"

    def request(self, line: str) -> Any:
        """Return body, headers, verb and path."""
        verb, who, *words = line.split(" ")
        headers = {"Content-Type": "application/json", **self.sessions[who]}
        path, named = "/mcp", {}
        while words and re.match("[A-Z][A-Za-z-]+=|/", words[0]):
            path = words[0] if words[0][0] == "/" else path
            named.update([words[0].replace("%20", " ").split("=", 1)] if words[0][0] != "/" else [])
            words = words[1:]
        rest = " ".join(words)
        if rest and rest[0] not in "{[":
            message = self.message(*rest.partition(" ")[::2], who == "modern")
            params, rest = message["params"], json.dumps(message)
            headers.update({} if who != "modern" else {
                "Mcp-Method": message["method"], "Mcp-Name": params.get(MIRRORED.get(
                    message["method"])), "MCP-Protocol-Version": params["_meta"][
                        META + "protocolVersion"]})
        headers = {k: v for k, v in {**headers, **named}.items() if v not in ("~", None)}
        return rest.encode() or None, headers, verb, path

    def message(self, method: str, params: Any, modern: bool) -> dict:
        method, _, ident = method.partition("#")
        params = json.loads(params or "{}")
        meta = {} if not modern else {
            META + "protocolVersion": MODERN[0], META + "clientCapabilities": {}}
        meta.update({"progressToken": 0} if method == "tools/call" else {})
        meta.update(params.get("_meta", {}))
        ident = {} if method.startswith("notifications/") else {"id": int(ident or 1)}
        return {"jsonrpc": "2.0", **ident, "method": method, "params": {**params, **(
            {"_meta": {k: v for k, v in meta.items() if v is not None}} if meta else {})}}

    def raw(self, line: str, ident: Any = 1) -> bytes:
        body, headers, verb, path = self.request(line)
        body = json.dumps({**json.loads(body), "id": ident}).encode()
        headers.update({"Host": "localhost", "Content-Length": str(len(body))})
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def stream(self, label: str, body: Any, headers: dict, verb: str, path: str) -> None:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.httpd.server_port, timeout=PATIENCE)
        connection.connect()
        self.stack.callback(connection.close)
        sock = connection.sock
        connection.request(verb, path, body, headers)
        answer = connection.getresponse()
        kind = [answer.getheader(name) for name in ("Content-Type", "X-Accel-Buffering")]
        assert (answer.status, kind) == (200, ["text/event-stream", "no"]), answer.read()
        self.streams[label] = answer, sock

    def read(self, label: str, verb: str, words: str) -> None:
        answer, sock = self.streams[label]
        if verb == "hangs":
            sock.shutdown(socket.SHUT_RDWR)
            return answer.close()
        while True:
            lines = iter(lambda: answer.readline().decode().rstrip("\n"), "")
            fields = dict(line.partition(": ")[::2] for line in lines)
            if not fields or verb == "event" or fields.get("data") and (
                    verb != "<*" or words in fields["data"]):
                break
        assert bool(fields) is (verb != "ends"), fields
        found = re.search(r'"id": ?("\w*"|\d+)', fields.get("data", ""))
        self.names.update({label: fields.get("id", ""), "data": fields.get("data", ""),
                           "id": found[1] if found else ""})
        return self.check(words, json.dumps(fields).replace('\\"', '"'))


@contextlib.contextmanager
def http_site(server: Any = wired, **options: Any) -> Any:
    stage = Stage()
    made = server(stage)
    with http_serving(made, **options) as httpd, contextlib.ExitStack() as stack:
        try:
            yield HttpScript(stage, made, httpd, stack)
        finally:
            for gate in list(stage.gates.values()):
                gate.set()


def http_scripts(text: str, part: str) -> Any:
    """Make a test of such scripts; options of the endpoint and limits follow a title."""
    cases = []
    for script in re.sub("\n +", " ", text).strip()[3:].split("\n== "):
        title, _, options = script.partition("\n")[0].partition(" | ")
        options = json.loads(options or "{}")
        marks = [pytest.mark.skipif(part not in PARTS, reason=f"needs part {part}")]
        cases.append(pytest.param(script.split("\n")[1:], options, marks=marks, id=title))

    @pytest.mark.parametrize("lines, options", cases)
    def test(lines: list, options: dict) -> None:
        bounds = {name: options[name] for name in options if name.isupper()}
        options = {name: value for name, value in options.items() if name not in bounds}
        if options.pop("keys", False):
            options["authorize"] = mcp.bearer({"ann": "ann", "bob": "bob"}, header="X-Key")
        with limits(**bounds), http_site(**options) as site:
            for line in lines:
                try:
                    site.play(line)
                except Exception as problem:        # noqa: BLE001
                    raise AssertionError(f"{line}\n{problem}") from None
    return test


test_http = http_scripts(r'''
== the ladder: of two faults the first one answers | {"keys": true}
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
POST modern X-Key=ann Mcp-Method=x no {"_meta": {"{META}protocolVersion": "1999"}}
    -> 400 {HEADER_MISMATCH}
POST modern X-Key=ann no {"_meta": {"{META}protocolVersion": "1999"}}
    -> 400 {UNSUPPORTED_PROTOCOL_VERSION}
POST modern X-Key=ann no -> 404 {METHOD_NOT_FOUND} & "id": 1
POST modern X-Key=ann Mcp-Session-Id=ignored tools/list -> 200 "tools" & !mcp-session-id
== paths and verbs
POST - /mcp|/mcp/|/mcp?x=1 ping -> 200 "result" & application/json
POST - /|/mcp/x|/MCP|/messages?session_id=no ping -> 404
GET|DELETE|PUT|HEAD|OPTIONS|PATCH - /mcp|/mcp/ -> 405 "allow": "POST"
== outside the endpoint OAuth clients can read the 404
GET|POST - /|/mcp/x|/.well-known/oauth-protected-resource|/.well-known/openid-configuration
    -> 404 application/json & {"error": "not_found"}
== hosts, origins, types, bodies
POST - Host=evil.example|127.0.0.1.evil.example| ping -> 403 !access-control
POST - Host=localhost|LOCALHOST:99|[::1]:80 ping -> 200
POST - Origin=http://evil.example|null|http://localhost.evil.example|http://user@localhost ping
    -> 403 !access-control
POST - Origin=http://localhost:3000|https://127.0.0.1|~ ping -> 200 !access-control
POST - Accept=text/html|*/*|text/event-stream|application/json|~ ping -> 200
POST - Content-Type=text/plain|~ ping -> 415 "error"
POST - Content-Type=Application/JSON;%20charset=utf-8 ping -> 200
POST - -> 400 {PARSE_ERROR}
POST - {"jsonrpc": "2.0", "id": "né 😀", "method": "ping"} -> 200 "n\u00e9 \ud83d\ude00"
POST - tools/list -> 400 {INVALID_PARAMS} & initialize
POST - notifications/x -> 400
POST modern notifications/x -> 202 !content-type
== headers must agree with the body
POST modern Mcp-Name=%20echo|=?base64?ZWNobw==?= tools/call {"name": "echo",
    "arguments": {"text": "t"}} -> 200
POST modern Mcp-Name=~|add|Echo|=?base64?!!?=|=?BASE64?ZWNobw==?= tools/call {"name": "echo",
    "arguments": {"text": "t"}} -> 400 {HEADER_MISMATCH} & "id": 1
POST modern Mcp-Method=~|tools/call|Tools/List tools/list -> 400 {HEADER_MISMATCH}
POST modern MCP-Protocol-Version=~|2025-11-25 tools/list -> 400 {HEADER_MISMATCH}
== headers must agree with the arguments
POST modern Mcp-Param-Other=forwarded|~ tools/call {"name": "place"} -> 200
POST modern Mcp-Param-Region=evil tools/call {"name": "place"} -> 400 {HEADER_MISMATCH}
name eu {"name": "place", "arguments": {"region": "eu"}}
POST modern Mcp-Param-REGION=eu|%20eu|=?base64?ZXU=?= tools/call {eu} -> 200
POST modern Mcp-Param-region=~|us|EU|=?base64?!?= tools/call {eu} -> 400 {HEADER_MISMATCH}
POST modern tools/call {"name": "place", "arguments": {"region": null}} -> 200
name 42 {"name": "place", "arguments": {"n": 42}}
POST modern Mcp-Param-N=42|42.0 tools/call {42} -> 200
POST modern Mcp-Param-N=~|4_2|x tools/call {42} -> 400 {HEADER_MISMATCH}
name true {"name": "place", "arguments": {"on": true}}
POST modern Mcp-Param-On=~|True|1 tools/call {true} -> 400 {HEADER_MISMATCH}
name deep {"name": "place", "arguments": {"inner": {"deep": "é"}}}
POST modern Mcp-Param-Deep==?base64?w6k=?= tools/call {deep} -> 200
POST modern Mcp-Param-Deep=~|e|é tools/call {deep} -> 400 {HEADER_MISMATCH}
== subscriptions of clients that chose the same id
a = POST modern subscriptions/listen#0 {"notifications": {"toolsListChanged": true}}
b = POST modern subscriptions/listen#0 {"notifications": {"resourceSubscriptions": ["test://x"]}}
a|b < acknowledged & subscriptionId":0
changed tools
changed test://x
a < tools/list_changed & subscriptionId":0
b < resources/updated & test://x
close
a|b <* "result"
== streams are kept alive | {"KEEP_ALIVE_SECONDS": 0}
a = POST modern subscriptions/listen {"notifications": {"toolsListChanged": true}}
a < acknowledged
a event {"": "" & !data
== names of hosts | {"hosts": ["Mcp.example"], "origins": ["https://app.example"]}
POST - Host=mcp.example Origin=~|https://mcp.example|https://app.example ping -> 200
POST - Host=mcp.example Origin=http://localhost|https://app.example.org ping -> 403
POST - Host=localhost ping -> 403
== browsers | {"cors": true, "keys": true}
OPTIONS - Origin=http://localhost:3 Access-Control-Request-Headers=mcp-method
    -> 204 allow-origin": "http://localhost:3" & allow-headers": "mcp-method"
POST - Origin=http://localhost:3 ping -> 401 Mcp-Session-Id & WWW-Authenticate & Protocol-Version
== the metadata document needs no authorization | {"metadata": {"resource": "r"}, "keys": true}
GET - /.well-known/oauth-protected-resource|/.well-known/oauth-protected-resource/mcp
    -> 200 {"resource": "r"}
''', "II")

test_http_sessions = http_scripts(r'''
== statuses in a session
session s 2025-06-18
POST s MCP-Protocol-Version=~|2025-06-18 ping -> 200 !mcp-session-id
POST s nobody -> 200 {METHOD_NOT_FOUND}
POST s { -> 400 {PARSE_ERROR}
POST s MCP-Protocol-Version=1999|2026-07-28 ping -> 400
PUT s -> 405 GET, POST, DELETE
POST s tools/call {"name": "tell", "arguments": {"method": "n/x"}} -> 200 n/x & "2025-06-18"
DELETE s -> 200
POST s ping -> 404
GET|DELETE s -> 404
== sessions that are too many, or idle for too long, are forgotten | {"MAX_SESSIONS": 2}
session a 2025-11-25
session b 2025-11-25
POST a ping -> 200
session c 2025-11-25
POST b ping -> 404
POST a ping -> 200
limit SESSION_SECONDS -1
until POST a ping -> 404
== somebody else's session does not exist | {"keys": true}
POST - X-Key=ann initialize {INIT} -> 200
name s {new}
POST - X-Key=bob Mcp-Session-Id={s} ping -> 404
GET|DELETE - X-Key=bob Mcp-Session-Id={s} -> 404
POST - X-Key=ann Mcp-Session-Id={s} ping -> 200
== without sessions | {"stateless": true}
POST - initialize {INIT} -> 200 serverInfo & !mcp-session-id
POST - notifications/initialized -> 202
name tell {"name": "tell", "arguments": {"method": "x"}}
POST - tools/call {tell} -> 200 "2025-03-26"
POST - MCP-Protocol-Version=2025-11-25 tools/call {tell} -> 200 "2025-11-25"
POST - MCP-Protocol-Version=1999 tools/list -> 400
== each message goes to one stream
session s 2025-06-18
a = GET s
b = GET s
changed tools
b < tools
c = POST s tools/call {"name": "ask"}
c < elicitation/create
POST s {"jsonrpc": "2.0", "id": {id}, "result": {"action": "accept", "content": {"branch": "m"}}}
    -> 202 !content-type
c < "result" & accept
c ends
close
a|b ends
== running and ended streams are resumed, and nothing of others comes with it
session s 2025-03-26
a = POST s tools/call#1 {"name": "early", "arguments": {"gate": "a"}}
a < "progress":1
a hangs up
POST s tools/call#2 {"name": "steps", "_meta": {"progressToken": 1}} -> 200 done
open a
b = GET s Last-Event-ID={a}
b < "progress":2
b < late
b ends
c = GET s Last-Event-ID={a}
c < "progress":2
c < late
== a handler lets its client come back for the rest | {"RETRY_MS": 7}
session s 2025-11-25
a = POST s tools/call {"name": "later"}
a event "retry": "7" & "id": & "data": ""
name first {a}
a ends
b = GET s Last-Event-ID={first}
b < notifications/later
b < "later"
== HTTP+SSE
a = GET - /sse
a event "event": "endpoint" & /messages?session_id=
name post {data}
POST - {post} initialize {INIT} -> 202 !content-type
a < serverInfo
POST - {post} notifications/initialized -> 202
POST - {post} tools/call {"name": "asks", "arguments": {"what": "roots"}} -> 202
a < roots/list
POST - {post} {"jsonrpc": "2.0", "id": {id}, "result": {"roots": []}} -> 202
a < "result"
changed tools
a < tools/list_changed
a hangs up
until POST - {post} ping -> 404
== HTTP+SSE on the endpoint itself | {"sse_on_get": true}
a = GET -
a event "event": "endpoint" & /mcp/messages?session_id=
POST - {data} ping -> 202
a < "id":1
''', "III")

HTTP_PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GOOD = POST + b"Content-Length: 45\r\n\r\n" + HTTP_PING
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def send_http(port: int, data: bytes, cut: bool = True) -> list:
    """Send bytes; return status and text of every answer until the server closes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, \
            connection.makefile("rb") as stream:
        connection.sendall(data)
        if cut:
            connection.shutdown(socket.SHUT_WR)
        parts = re.split(rb"HTTP/1.1 (?=\d{3} )", stream.read())[1:]
    return [(part[:3].decode(), part) for part in parts]


FRAMES = [      # what is sent; the statuses of the answers to it and to a good request behind it
    (GOOD + GOOD, "200 200 200"),
    (CHUNKED + b"4;a=b\r\n    \r\n2D\r\n" + HTTP_PING + b"\r\n0\r\nX: y\r\n\r\n", "200 200"),
    (GOOD.replace(b"Host", b"Expect: 100-continue\r\nHost"), "100 200 200"),
    (GOOD.replace(b"1.1", b"1.0").replace(b"Host", b"Expect: 100-continue\r\nHost"), "200"),
    (POST + b"Host: evil\r\nContent-Length: 0\r\n\r\n", "40[03]"),
    (b"nonsense\r\n\r\n", "400"), (b"GET /mcp HTTP/9.9\r\n\r\n", "400|505"),
    (b"POST /mcp HTTP/1.1\r\n\r\n", "40[03]"), (b"GET /mcp\r\n\r\n", "400"),
    (POST + b"X: y\r\n" * 200 + b"\r\n", "431"), (POST + b"X: " + b"y" * 70000 + b"\r\n", "431"),
    (CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n", "400"),
    *[(POST + head + b"\r\n\r\n", "400") for head in (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Content-Length: +5",
        b"Content-Length: 0\r\nContent-Length: 4", b"Content-Length: 4\r\nContent-Length: 4",
        b"Content-Length: -1", b"Content-Length: 5, 5", b"Content-Length: ", b"Content-Length: 4_5",
        b"Content-Length : 45", b" Content-Length: 45", b"foo\r\nContent-Length: 45",
        b"X\0: a", b"X\xe4: a", b"X: a\0b", b"X: a\rContent-Length: 45", b": a",
        b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: x",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Mcp-Method: a\r\nMcp-Method: b", b"Mcp-Session-Id: a\r\nMcp-Session-Id: a")],
    *[(CHUNKED + body, "400") for body in (
        b"xyz\r\n", b"-5\r\nabc", b"+2d\r\n", b"0x2d\r\n", b"3\r\nabcd\r\n0\r\n\r\n",
        b"5\nabcde\r\n0\r\n\r\n", b"0\r\n" + b"X" * 2000 + b":\r\n\r\n")],
    (CHUNKED + b"ffffffff\r\n", "413"), (POST + b"Content-Length: 9999999999\r\n\r\n", "413"),
    (POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", "413"),
]


@needs_http
@pytest.mark.parametrize("sent, statuses", FRAMES)
def test_no_request_hides_in_another(capfd: Any, sent: bytes, statuses: str) -> None:
    with http_site(empty) as site:
        found = send_http(site.httpd.server_port, sent + GOOD)
    assert re.fullmatch(statuses, " ".join(status for status, _ in found))
    assert "Traceback" not in capfd.readouterr().err


@needs_http
def test_a_refusal_arrives_although_the_body_is_still_being_sent() -> None:
    body = b"[" * (17 * 2**20)
    for options, status in (({}, 413), ({"authorize": mcp.bearer({"a": 1})}, 401)):
        with http_site(empty, **options) as site:
            assert exchange(site.httpd.server_port, "POST", "/mcp", {}, body)[0] == status


@needs_http
def test_connections_and_their_time_are_limited() -> None:
    with limits(SEND_SECONDS=0.05), http_site(empty) as site:
        for sent in (b"", b"POST /mc", POST, POST + b"Content-Length: 50\r\n\r\n{", CHUNKED + b"1"):
            found = send_http(site.httpd.server_port, sent, cut=False)
            assert all(status in ("400", "408") for status, _ in found), found
    with limits(MAX_CONNECTIONS=1), http_site(empty) as site:
        with socket.create_connection(("127.0.0.1", site.httpd.server_port)) as held:
            held.sendall(GOOD)
            assert b"200" in held.recv(999)
            (status, text), = send_http(site.httpd.server_port, b"", cut=False)
            assert status == "503" and b"Retry-After" in text
        site.play("until POST - ping -> 200")


@needs_http
def test_bearer_tokens_and_hooks() -> None:
    def hook(headers: dict) -> Any:
        raise mcp.HttpError(403, headers["x-ok"], {"X-Why": "a\r\nInjected: b"})
    with http_site(authorize=mcp.bearer({"good": "ann"}, metadata_url="https://m")) as site:
        site.play('POST - ping -> 401 www-authenticate": "Bearer & https://m')
        site.play("POST - Authorization=Bearer%20bad|Basic%20good|good|Bearer%20 ping -> 401")
        site.play("POST - Authorization=Bearer%20good|bearer%20good ping -> 200")
    with http_site(authorize=hook) as site:
        site.play('POST - X-Ok=a ping -> 403 x-why & !"injected"')
        site.play("POST - ping -> 500 {INTERNAL_ERROR} & !x-ok")


@needs_http
def test_a_listener_that_reads_nothing_holds_up_nobody() -> None:
    with limits(SEND_SECONDS=10**6), http_site() as site, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", site.httpd.server_port))
        listen = 'subscriptions/listen {"notifications": {"toolsListChanged": true}}'
        deaf.sendall(site.raw("POST modern " + listen, ident="x" * 40000))
        assert deaf.recv(99).startswith(b"HTTP/1.1 200")
        site.play("a = POST modern " + listen)
        telling = threading.Thread(
            target=lambda: [site.server.changed("tools") for _ in range(300)], daemon=True)
        telling.start()
        telling.join(PATIENCE)
        assert not telling.is_alive()
        site.play("a <* tools/list_changed")


@needs_http
def test_an_endpoint_is_mounted_without_sockets() -> None:
    from io import BytesIO
    with http_site() as site:
        for line, count in (("PUT - ping", 1), ("POST - ping", 1),
                            ('POST modern tools/call {"name": "steps"}', 6)):
            body, headers, verb, path = site.request(line)
            headers.update({"Content-Length": str(len(body)), "Host": "localhost"})
            one, sent = mcp.Exchange(verb, path, headers.items(), BytesIO(body)), []
            one.start = lambda *answer, sent=sent: sent.append(answer)
            one.write, one.end = sent.append, lambda *_, sent=sent: sent.append(b"data: end")
            site.httpd.endpoint.serve(one)
            assert len(sent) == count and sent[0][0] == (405 if verb == "PUT" else 200)
            assert (sent[0][2] is None) == (count > 1) and all(b"data: " in d for d in sent[1:])


@needs_http
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_serves_http_leaves_quickly(number: int) -> None:
    child = subprocess.Popen([*served_by("serve"), "wired", "--http", "0"], text=True,
                             stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    with child, socket.socket() as sock:
        try:
            port = int(re.search(r"http://127.0.0.1:(\d+)/mcp", child.stderr.readline())[1])
            sock.connect(("127.0.0.1", port))
            sock.sendall(HttpScript(None, None, None, None).raw(
                'POST modern tools/call {"name": "early", "arguments": {"gate": "a"}}'))
            assert sock.recv(99).startswith(b"HTTP/1.1 200")
            child.send_signal(number)
            assert (child.wait(2), child.stderr.read()) == (0, "")
        finally:
            child.kill()


# ==========================================================================================
# An endpoint without sockets: what is sent, call by call
# ==========================================================================================

class Recorded(mcp.Exchange if "II" in PARTS else object):
    """An exchange that notes what is done to it."""

    def __init__(self, method: str, body: Any = None, **headers: str) -> None:
        data = json.dumps(body).encode()
        given = {"Host": "localhost", "Content-Type": "application/json",
                 "Content-Length": str(len(data)),
                 **{name.replace("_", "-"): value for name, value in headers.items()}}
        super().__init__(method, "/mcp", given.items(), io.BytesIO(data))
        self.done: list[tuple[Any, ...]] = []

    def start(self, status: int, headers: Any, body: bytes | None) -> None:
        self.done.append(("start", status, headers, body))

    def write(self, data: bytes) -> None:
        self.done.append(("write", data))

    def end(self, hang_up: bool = False) -> None:
        self.done.append(("end", hang_up))

    def sent(self) -> bytes:
        return b"".join(row[1] for row in self.done if row[0] == "write")


def opened(endpoint: Any, version: str) -> str:
    """Open a session, and return its id."""
    exchange = Recorded("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": {}}})
    endpoint.serve(exchange)
    return exchange.done[0][2]["Mcp-Session-Id"]


def called(endpoint: Any, session: str, name: str) -> Recorded:
    exchange = Recorded("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": name}}, Mcp_Session_Id=session)
    endpoint.serve(exchange)
    return exchange


def leaver_endpoint() -> Any:
    server = mcp.Server("leaver")

    @server.tool
    def leave(ctx: mcp.Context) -> str:
        ctx.log("info", "before")
        ctx.close_stream()
        ctx.log("info", "after")
        return "done"

    @server.tool
    def cancelled(ctx: mcp.Context) -> str:
        ctx.cancel()
        return "nobody hears this"
    return mcp.Endpoint(server)


@pytest.mark.parametrize("version", LEGACY)
def test_a_stream_is_closed_where_it_can_be_resumed(version: str) -> None:
    endpoint = leaver_endpoint()
    session = opened(endpoint, version)
    exchange = called(endpoint, session, "leave")
    primes = "priming events" in mcp.rules(version).features
    assert (b"after" in exchange.sent()) is not primes
    assert exchange.done[-1] == ("end", primes)
    if primes:
        seen = re.findall(rb"id: (\S+)", exchange.sent())
        again = Recorded("GET", Mcp_Session_Id=session, Last_Event_ID=seen[-1].decode())
        endpoint.serve(again)
        assert b"after" in again.sent() and b"done" in again.sent()
        ids = re.findall(rb"id: (\S+)", again.sent())
        assert len({*seen, *ids}) == len(seen) + len(ids), "an id was used twice"
    endpoint.close()


@pytest.mark.parametrize("version", LEGACY[:1])
def test_a_cancelled_request_is_answered_with_an_empty_stream(version: str) -> None:
    endpoint = leaver_endpoint()
    exchange = called(endpoint, opened(endpoint, version), "cancelled")
    assert exchange.done[0][1] == 200 and exchange.done[0][3] is None
    assert exchange.done[-1][0] == "end" and b"data: {" not in exchange.sent()


@pytest.mark.skipif("II" not in PARTS, reason="there is no HTTP")
@pytest.mark.parametrize("allowed", [True, False])
def test_authorize_may_be_a_coroutine(allowed: bool) -> None:
    async def authorize(headers: Any) -> str:
        if not allowed:
            raise mcp.HttpError(499, "not you")
        return "someone"
    exchange = Recorded("POST", {"jsonrpc": "2.0", "method": "notifications/x"},
                        MCP_Protocol_Version=MODERN[0])
    mcp.Endpoint(mcp.Server("x"), authorize=authorize).serve(exchange)
    assert exchange.done[0][1] == (202 if allowed else 499)


@pytest.mark.skipif(not LEGACY, reason="there are no sessions")
def test_initialized_is_understood_without_its_prefix() -> None:
    said: list[Any] = []
    server, peer = mcp.Server("x"), mcp.Peer()
    server.tool(lambda: "ok", name="t")
    for message in ({"id": 1, "method": "initialize", "params": {
            "protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {}}},
            {"method": "initialized"}, {"id": 2, "method": "tools/list"}):
        server.handle({"jsonrpc": "2.0", **message}, said.append, peer=peer)
    assert said[-1]["result"]["tools"]


class Article(TypedDict):
    content: list[str]


def test_a_declared_result_may_have_a_member_content() -> None:
    server = mcp.Server("x")

    @server.tool
    def article() -> Article:
        return {"content": ["a", "b"]}
    assert server.call("article")["structuredContent"] == {"content": ["a", "b"]}
# ------------------------------------------------------------------------------------------
# The client: design.md §10. First: which era and which revision the server speaks
# ------------------------------------------------------------------------------------------

HELLO = '''< {"protocolVersion": "{VERSION}", "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"}}
> - notifications/initialized'''


def each(template: str, rows: str) -> str:
    """Return a script for each line of `rows`: @1 is its first column, @0 its number."""
    found = ""
    for number, line in enumerate(rows.replace("\n    ", " ").strip("\n").splitlines()):
        row = [str(number), *map(str.strip, line.split(" | "))]
        found += re.sub(r"@(\d)", lambda match, row=row: row[int(match[1])], template)
    return found


test_client_era_of_a_pipe = scripts((each(r'''
== probe @0: anything but a modern answer opens a session | client | bare | on: memory 2025-11-25
call connect
> 1 server/discover {"_meta": {"{META}protocolVersion": "2026-07-28",
    "{META}clientCapabilities": {}, "{META}clientInfo": {"name": "*", "version": "*"}}}
< 1 @1
> initialize {"protocolVersion": "{VERSION}", "capabilities": {}, "clientInfo": {"name": "*"}}
@HELLO
returns {"modern": false, "version": "{VERSION}", "server_info": {"name": "s"}}
''', r'''
error {METHOD_NOT_FOUND}
{"supportedVersions": "2026", "capabilities": {}}
{"supportedVersions": ["2025-11-25"], "capabilities": {}}
error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["2025-11-25"]}
''') + each(r'''
== an answer that ends the handshake, @0 | client | bare | on: memory 2025-11-25
call connect {"revision": "@1"}
> 1 @2
< 1 @3
raises @4
''', r'''
2026-07-28 | server/discover | error {METHOD_NOT_FOUND} | Disconnected 2026-07-28
 | server/discover | error {UNSUPPORTED_PROTOCOL_VERSION} {"supported": ["2099"]} | Exception 2099
 | server/discover | {"supportedVersions": ["2099"], "capabilities": {}} | Exception 2099
 | server/discover | error {HEADER_MISMATCH} | RpcError {HEADER_MISMATCH}
 | server/discover | error {MISSING_REQUIRED_CLIENT_CAPABILITY} | RpcError -32021
2025-11-25 | initialize | {"protocolVersion": "2025-06-18", "capabilities": {}} | Disconnected 2025
2025-11-25 | initialize | {"protocolVersion": 5, "capabilities": {}} | Malformed protocolVersion
2025-11-25 | initialize | error {INTERNAL_ERROR} broken | RpcError broken
''') + r'''
== a modern server, which wants the same version once more | client | bare | on: memory http modern
call connect
> server/discover
< error {UNSUPPORTED_PROTOCOL_VERSION} no {"supported": ["{VERSION}"], "requested": "x"}
> server/discover
< {"supportedVersions": ["1999-01-01", "{VERSION}"], "capabilities": {"tools": {}},
    "instructions": "Gently.", "_meta": {"{META}serverInfo": {"name": "s", "version": "1"}}}
returns {"modern": true, "version": "{VERSION}", "server_info": {"name": "s"},
    "instructions": "Gently.", "capabilities": {"tools": {}}, "closed": false}
== silence means legacy, and a late answer is passed over | client | bare | on: pipe 2025-11-25
    | connect: {"probe": 0.05}
call connect
> 1 server/discover
<< Listening on port 3000
> initialize
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {}}
@HELLO
returns {"modern": false}
== an unknown revision | client | bare | on: memory 2025-11-25
call connect {"revision": "1999-01-01"}
raises ValueError 1999
''').replace("@HELLO", HELLO))

test_client_era_of_a_site = scripts(each(r'''
== refusal @0 of the probe: a site of the legacy era | client | bare | on: http 2025-11-25
call connect
> server/discover
<< @1 {"Connection": "close", "Content-Type": "application/json"} @2
> initialize
@HELLO
returns {"modern": false, "version": "{VERSION}"}
'''.replace("@HELLO", HELLO), r'''
400 | Bad Request: no session
405 | {"error": "not_found"}
404 | {"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "m"}}
400 | {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32022, "message": ""}}
'''))

# ---- methods: what is sent, and what becomes of the result

test_client_methods = scripts(each(r'''
== call @0 | client | on: @5
call @1
> @2
< @3
returns @4
''', r'''
call_tool t {"a": 1} | tools/call {"arguments": {"a": 1}} | {"content": []} | {} | memory
read_resource x:y | resources/read {"uri": "x:y"} | {"contents": [{"uri": "x:y"}]} | [{}] | http
get_prompt p {"a": "b"} | prompts/get {"arguments": {"a": "b"}} | {"messages": []} | {} | http
complete git:commit name a | completion/complete {"argument": {"name": "name", "value": "a"},
    "ref": {"type": "ref/prompt", "name": "git:commit"}, "context": null} |
    {"completion": {"values": ["ada"]}} | ["ada"] | memory http
complete p b a {"k": "v"} | completion/complete {"context": {"arguments": {"k": "v"}}} |
    {"completion": {"values": ["b"]}} | ["b"] | memory 2025-06-18..
ping | ping | {} | null | memory http legacy
ping | server/discover | {"supportedVersions": [], "capabilities": {}} | null | memory http modern
set_level error | logging/setLevel {"level": "error"} | {} | null | memory legacy
request example.org/x {"y": 1} | example.org/x {"y": 1} | {"z": 2} | {"z": 2} | memory http
''') + r'''
''')

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
    f"== a wrong result of {method} | client | on: memory 2025-11-25 modern\n" + "".join(
        f"call {call}\n> 1 {method}\n< 1 {result}\nraises Malformed\n"
        for result in [*results, "{}", "[]", '"x"', "3", "null"])
    for call, method, *results in (row.split(" | ") for row in WRONG.strip().splitlines())) + r'''
== responses that are wrong, late or of nobody | client | on: pipe 2025-11-25 modern
call list_tools
> 1 tools/list
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {"tools": []}, "error": {"code": 1, "message": "m"}}
raises RpcError
call list_tools
> 1 tools/list
<< {"jsonrpc": "2.0", "id": 999, "result": {"tools": []}}
<< {"jsonrpc": "2.0", "id": "{ID:1}", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "result": {"tools": []}}
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {"tools": [{"name": "a", "inputSchema": {}}]}}
<< {"jsonrpc": "2.0", "id": {ID:1}, "result": {"tools": 3}}
returns [{"name": "a"}]
call read_resource x:y timeout=0.05
> 2 resources/read
> - notifications/cancelled {"requestId": {ID:2}}
raises TimeoutError resources/read
<< {"jsonrpc": "2.0", "id": {ID:2}, "result": {"contents": []}}
call list_tools
> 1 tools/list
< - notifications/progress {"progressToken": {}, "progress": 1}
< - notifications/progress {"progressToken": {ID:1}, "progress": "x"}
< - notifications/cancelled {"requestId": []}
< - notifications/resources/updated {"uri": ["x"]}
< - notifications/subscriptions/acknowledged {"notifications": 3}
<< {"jsonrpc": "2.0", "method": "nobody/knows", "params": 7}
<< {"jsonrpc": "2.0", "id": {}, "method": "x"}
<< [[], 3, "x"]
< 1 {"tools": []}
returns []
''')

# ---- what a server asks, and what it announces

FORM = '''{"message": "m", "requestedSchema": {"type": "object", "properties": {
    "x": {"type": "string"}, "y": {"type": "integer", "default": 5}}}}'''
PAGE = '{"mode": "url", "message": "m", "url": "https://example.org/", "elicitationId": "e"}'
CALLBACKS = '{"elicit": {"x": "v"}, "visit": true, "sample": "hi", "roots": ["file:///a"]}'
test_client_answers = scripts((r'''
== questions of one round are answered together | client | on: memory http modern | connect: @ALL
call get_prompt p
> prompts/get {"_meta": {"{META}clientCapabilities": {
    "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}}}
< {"resultType": "input_required", "requestState": "s\u00e9", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM}, "b": {"method": "roots/list"},
    "c": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    "d": {"method": "elicitation/create", "params": @PAGE}}}
> prompts/get {"name": "p", "requestState": "s\u00e9", "inputResponses": {
    "a": {"action": "accept", "content": {"x": "v", "y": 5}},
    "b": {"roots": [{"uri": "file:///a"}]},
    "c": {"role": "assistant", "content": {"text": "hi"}}, "d": {"action": "accept"}}}
< {"resultType": "input_required", "requestState": "2"}
> prompts/get {"requestState": "2", "inputResponses": null}
< {"messages": []}
returns {"messages": []}
== a subscription | client | on: modern
call listen ["tools", "x:y", "prompts"]
> 1 subscriptions/listen {"notifications": {"toolsListChanged": true,
    "promptsListChanged": true, "resourceSubscriptions": ["x:y"]}}
< - notifications/subscriptions/acknowledged {"_meta": {"{META}subscriptionId": {ID:1}},
    "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["x:y"]}}
returns {"granted": ["tools", "x:y"]}
call listen prompts
> 2 subscriptions/listen
< 2 error {METHOD_NOT_FOUND}
raises ServerLacks prompts
''' + each(r'''
== answer @0 to a question of a session | client | on: memory 2025-11-25 | connect: @1
call list_prompts
> 1 prompts/list
< #a @2
> #a @3
< 1 {"prompts": []}
returns []
''', r'''
{"elicit": null} | elicitation/create @FORM | {"action": "decline", "content": null}
{"elicit": "cancel"} | elicitation/create @FORM | {"action": "cancel", "content": null}
{"elicit": {"x": 5}} | elicitation/create @FORM | error {INTERNAL_ERROR}
{"elicit": {"x": 5}} | elicitation/create {} | error {INVALID_PARAMS}
{"elicit": {"x": 5}} | elicitation/create @PAGE | error {INVALID_PARAMS}
{"visit": false} | elicitation/create @PAGE | {"action": "decline"}
{"sample": null} | sampling/createMessage {"messages": [], "maxTokens": 1} | error -1
{} | sampling/createMessage {"messages": [], "maxTokens": 1} | error {METHOD_NOT_FOUND}
{} | ping | {}
''')).replace("@ALL", CALLBACKS).replace("@FORM", FORM.replace("\n   ", "")).replace("@PAGE", PAGE))

# ---- against a real server: callbacks, threads, cancellation, changes


def played(words: str) -> Any:
    """Parametrize as @on does, with nothing where there is no client."""
    return pytest.mark.parametrize("version, carrier", select(words) if client else [])


@contextlib.contextmanager
def connected(version: str, carrier: str, server: Any = None, **options: Any) -> Any:
    """Connect to a server in this process: the fixture, unless another one is given."""
    server = server or fixture(Stage())
    with contextlib.ExitStack() as stack:
        target = server
        if carrier == "http":
            port = stack.enter_context(http_serving(server)).server_port
            target = f"http://127.0.0.1:{port}/mcp"
        options = {"revision": version, "timeout": PATIENCE, **options}
        yield stack.enter_context(client.connect(target, **options))


def aside(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a function on a thread; return a function that waits for the outcome."""
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(1)
    call = pool.submit(function, *arguments, **named)
    pool.shutdown(wait=False)
    return functools.partial(call.result, PATIENCE)


@played("* memory http !http-2024-11-05")
def test_client_reports_progress_logs_and_notifications(version: str, carrier: str) -> None:
    steps, logs, heard = [], queue.Queue(), queue.Queue()
    with connected(version, carrier, on_log=logs.put, on_notification=heard.put,
                   log_level="error") as one:
        one.call_tool("steps", on_progress=lambda *step: steps.append(step))
        assert [step[:2] for step in steps] == [(0, 3), (1, 3), (2.5, 3)]
        one.call_tool("talk")
        assert logs.get(timeout=PATIENCE)["data"] == {"says": "error"}
        one.call_tool("tell", {"method": "notifications/x"})
        while heard.get(timeout=PATIENCE)["method"] != "notifications/x":
            pass


@played("memory http 2025-11-25 modern")
@pytest.mark.parametrize("way", ["cancel", "timeout", "longest", "close"])
def test_client_gives_up_a_call(version: str, carrier: str, way: str) -> None:
    reached, sent = queue.Queue(), []
    with connected(version, carrier, fixture(Stage(reached.put))) as one:
        call = aside(one.call_tool, "slow", {"gate": "a"}, started=sent.append,
                     **{"timeout": {"timeout": 0.2},
                        "longest": {"extend": True, "longest": 0.2}}.get(way, {}))
        assert reached.get(timeout=PATIENCE) == "a"
        {"cancel": lambda: sent[-1].cancel(), "close": one.close}.get(way, bool)()
        with pytest.raises({"cancel": client.RequestCancelled, "close": client.Disconnected}.get(
                way, TimeoutError)):
            call()
        assert way == "close" or reached.get(timeout=PATIENCE) == "a passed"


@played("* memory http !http-2024-11-05")
def test_client_hears_of_changes(version: str, carrier: str) -> None:
    server, heard = fixture(Stage()), queue.Queue()
    with connected(version, carrier, server) as one:
        with one.listen(["tools", "test://text"]) as subscription:
            one.listen("prompts", heard.put)
            for what in ("resources", "test://blob", "test://text", "prompts", "tools"):
                server.changed(what)
            changes = iter(subscription)
            assert aside(next, changes)() == "test://text" and aside(next, changes)() == "tools"
            assert heard.get(timeout=PATIENCE) == "prompts"
        assert aside(list, subscription)() == []


# ---- HTTP: what a script sees, and what takes a site of its own

SESSION = '{"Mcp-Session-Id": "s2", "Content-Type": "application/json", "Connection": "close"}'
test_client_loses_a_session = scripts(r'''
== a session that was lost | client | on: http 2025-11-25
call list_prompts
> prompts/list
<< 404 {"Connection": "close"} gone
> initialize
<< 200 @SESSION {"jsonrpc": "2.0", "id": {ID}, "result": {"protocolVersion": "{VERSION}",
    "capabilities": {"prompts": {}}, "serverInfo": {"name": "s", "version": "1"}}}
> - notifications/initialized
> prompts/list
< {"prompts": []}
returns []
'''.replace("@SESSION", SESSION))


@played("http modern")
def test_client_repeats_arguments_in_headers(version: str, carrier: str) -> None:
    with talk(version, carrier, client="yes") as t:
        t('''
        call call_tool t {"a": "\u00fc", "b": true, "c": null}
        > tools/list
        < {"tools": [{"name": "t", "inputSchema": {}}, {"name": "bad", "inputSchema": {
            "type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}]}
        > tools/call
        < error {HEADER_MISMATCH} mirror
        > tools/list
        < {"tools": [{"name": "t", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "string", "x-mcp-header": "A"}, "c": {"type": "integer",
            "x-mcp-header": "C"}, "b": {"type": "boolean", "x-mcp-header": "B"}}}},
            {"name": "bad", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "string", "x-mcp-header": "A B"}}}}]}
        > tools/call
        < {"content": []}
        returns {}
        call call_tool bad
        raises Malformed
        ''')
        headers = {name.lower(): value for name, value in t.line.requests[-1][1].items()}
    assert headers["mcp-param-a"] == "=?base64?w7w=?=" and headers["mcp-param-b"] == "true"
    assert headers["mcp-method"] == "tools/call" and headers["mcp-name"] == "t"
    assert headers["mcp-protocol-version"] == version and "mcp-param-c" not in headers


class Site:
    """An HTTP server that answers as `answer(verb, headers, message)` says: with bytes."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []        # verb, headers, method
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=self.listener.accept()[:1],
                                 daemon=True).start()

    def serve(self, connection: Any) -> None:
        with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):
            verb, path = file.readline().decode().split()[:2]
            lines = [line.decode().strip().split(": ", 1) for line in iter(file.readline, b"\r\n")]
            headers = {":path": path, **{name.lower(): value for name, value in lines}}
            message = json.loads(file.read(int(headers.get("content-length", 0))) or "{}")
            self.asked.append((verb, headers, message.get("method")))
            found = {"supportedVersions": MODERN, "capabilities": {"tools": {}, "prompts": {}},
                     "protocolVersion": "2025-11-25", "prompts": [], "resultType": "complete"}
            response = {"jsonrpc": "2.0", "id": message.get("id"), "result": found}
            for part in self.answer(verb, headers, message, json.dumps(response)):
                connection.sendall(part)

    def close(self) -> None:
        self.listener.shutdown(2)
        self.listener.close()


def reply(text: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    return (f"HTTP/1.1 {status}\r\nConnection: close\r\nMcp-Session-Id: s1\r\nWWW-Authenticate: "
            f"Bearer\r\nContent-Type: {kind}\r\n\r\n{text}").encode()


STREAM = reply("", kind="text/event-stream")


@played("http modern")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("form", [
    "data: @\n\n", "data:@\n\n", "event: message\nid: 7\ndata: @\n\n", "\ufeffdata: @\n\n",
    ": comment\n\n:\nretry: 5\n\nretry: x\ndata: @\n\n", "what: x\ndatax: y\ndata: @\n\n",
    "event: other\ndata: {}\n\ndata: @\n\n", 'data: {\ndata\ndata: @1\n\n'])
def test_client_reads_events_cut_anywhere(version: str, carrier: str, form: str, end: str) -> None:
    def answer(verb: str, headers: dict, message: Any, text: str) -> Any:
        data = form.replace("@1", text[1:]).replace("@", text).replace("\n", end).encode()
        pieces = 1 if message["method"] == "prompts/list" else len(data)
        yield STREAM
        yield from (data[n:n + pieces] for n in range(0, len(data), pieces))
    with contextlib.closing(Site(answer)) as site, client.connect(site.url) as one:
        assert one.list_prompts() == [] and one.modern


@played("http 2025-11-25")
def test_client_resumes_names_and_deletes_a_session(version: str, carrier: str) -> None:
    later = []

    def answer(verb: str, headers: dict, message: Any, text: str) -> Any:
        if verb == "GET":
            yield STREAM + b"id: 2\ndata: " + later[0].encode() + b"\n\n"
        elif message.get("method") == "prompts/list" and headers[":path"] == "/mcp":
            yield reply("", "307 Moved\r\nLocation: /there?x")
        elif message.get("method") == "prompts/list":
            later.append(text)
            yield STREAM + b"retry: 5\nid: 1\ndata:\n\n"
        else:
            yield reply(text if "id" in message else "", "200 OK" if "id" in message else "202 OK")
    with contextlib.closing(Site(answer)) as site:
        with client.connect(site.url, revision=version) as one:
            assert one.list_prompts() == []
        assert [verb for verb, _, _ in site.asked] == ["POST"] * 4 + ["GET", "DELETE"]
        assert site.asked[4][1]["last-event-id"] == "1"
        assert {headers.get("mcp-session-id") for _, headers, _ in site.asked[1:]} == {"s1"}


@played("http modern")
@pytest.mark.parametrize("granted", [
    {"Authorization": "t"}, lambda *_: {"Authorization": "t"}, None])
def test_client_asks_authorize(version: str, carrier: str, granted: Any) -> None:
    def answer(verb: str, headers: dict, message: Any, text: str) -> Any:
        yield reply(text) if headers.get("authorization") == "t" else reply("who", "401 No")

    def authorize(refusal: Any) -> Any:
        assert refusal.status == 401 and refusal.headers["www-authenticate"] == "Bearer"
        return granted
    with contextlib.closing(Site(answer)) as site:
        if granted is None:
            with pytest.raises(mcp.HttpError, match="401"):
                client.connect(site.url, authorize=authorize)
            return
        with client.connect(site.url, authorize=authorize) as one:
            assert one.list_prompts() == [] and len(site.asked) == 3


# ---- fetch() and the command line

@played("http modern")
def test_client_fetch_follows_no_redirect(version: str, carrier: str) -> None:
    def answer(verb: str, headers: dict, message: Any, text: str) -> Any:
        yield reply(verb + headers["x-a"], "302 Found\r\nLocation: /")
    with contextlib.closing(Site(answer)) as site:
        status, headers, body = client.fetch("POST", site.url, {"X-A": "b"}, b"{}")
    assert (status, headers["location"], body) == (302, "/", b"POSTb")


@played("pipe 2025-11-25")
def test_client_explains_the_probe(version: str, carrier: str, capfd: Any) -> None:
    code = "import sys; sys.stdin.readline(); sys.exit('no')"
    with pytest.raises(client.Disconnected):
        client.connect([sys.executable, "-S", "-c", code])
    assert "trying initialize" in capfd.readouterr().err


@functools.lru_cache(None)
def client_program() -> Any:
    return compile(MCP_CLIENT.read_text("utf-8"), str(MCP_CLIENT), "exec", dont_inherit=True)


COMMANDS = r'''
list URL | 0 | add | -
list URL --json | 0 | "tools" | -
call URL echo text=a=b | 0 | a=b | -
call URL add {"a":2,"b":3} | 0 | 5 | -
call URL add a=2 b=3 --json --trace | 0 | "structuredContent" | tools/call
call URL fail how=value | 1 | - | told you
read URL test://text | 0 | hello | -
read URL test://nowhere | 1 | - | not found
prompt URL greet name=Ada --revision 2025-06-18 --timeout 9 --header X-A:b | 0 | Hello, Ada! | -
--help | 0 | prompt | -
list | 2 | - | URL
call URL | 2 | - | call
frobnicate URL | 2 | - | frobnicate
list URL --nonsense | 2 | - | --nonsense
list URL --revision 1999-01-01 | 2 | - | 2026-07-28
list URL --timeout soon | 2 | - | timeout
list -- /nowhere/at/all | 2 | - | /nowhere/at/all
list nothing.py | 2 | - | nothing.py
'''


@played("http modern")
@pytest.mark.parametrize("row", COMMANDS.strip().splitlines())
def test_client_command_line(version: str, carrier: str, row: str, capsys: Any,
                             monkeypatch: Any) -> None:
    words, status, *wanted = row.split(" | ")
    monkeypatch.setattr(sys, "path", sys.path[:])
    with http_serving(fixture(Stage())) as httpd, pytest.raises(SystemExit) as left:
        url = f"http://127.0.0.1:{httpd.server_port}/mcp"
        monkeypatch.setattr(sys, "argv", ["x", *words.replace("URL", url).split()])
        globals_ = {"__name__": "__main__", "__file__": str(MCP_CLIENT)}
        exec(client_program(), globals_)        # noqa: S102
        sys.exit(0)
    printed = capsys.readouterr()
    assert (left.value.code or 0) == int(status), printed
    assert all(word in text or word == "-" for word, text in zip(wanted, printed)), printed


@needs_http
@pytest.mark.parametrize("key, status", [("right", 0), ("wrong", 2)])
def test_client_command_line_sends_headers(key: str, status: int) -> None:
    keys = mcp.bearer({"right": "me"}, header="X-Key")
    with http_serving(fixture(Stage()), authorize=keys) as httpd:
        done = subprocess.run(
            [*CLIENT_COMMAND, "list", f"http://127.0.0.1:{httpd.server_port}/mcp",
             "--header", f"X-Key: {key}"], capture_output=True, text=True, timeout=3 * PATIENCE,
            check=False)
    assert bool(done.returncode) is bool(status), done.stderr


# ---- more of both: questions, sites, processes

test_client_more = scripts(each(r'''
== question @0 is not one | client | on: memory modern | connect: {"elicit": {}}
call call_tool x
> tools/call
< {"resultType": "input_required", "inputRequests": @1}
raises Malformed
''', r'''
null
{"k": 3}
{"k": {"method": "tools/call"}}
{"k": {"method": "sampling/createMessage", "params": {}}}
{"k": {"method": "elicitation/create", "params": {}}}
''') + each(r'''
== refusal @0 of the probe: raised | client | bare | on: http modern
call connect
> server/discover
<< @1 {"Connection": "close", "Content-Type": "application/json"} @2
raises @3
''', r'''
401 | who | HttpError 401
403 | not you | HttpError 403
400 | {"jsonrpc": "2.0", "id": {ID}, "error": {"code": -32020, "message": "m"}} | RpcError -32020
''') + each(r'''
== answer @0 of a site fails its call only | client | on: http modern
call list_prompts
> prompts/list
<< @1
raises @2
call list_prompts
> prompts/list
< {"prompts": []}
returns []
''', r'''
500 {"Connection": "close"} broken | HttpError 500
200 {"Connection": "close"} <html> | Malformed
200 {"Connection": "close", "Content-Type": "application/json"} [1, 2] | Malformed
307 {"Connection": "close", "Location": "http://localhost:1/mcp"} | HttpError another origin
308 {"Connection": "close", "Location": "https://127.0.0.1/"} | HttpError another origin
'''))


@played("memory http 2025-11-25 modern")
def test_client_callbacks_fail_know_their_call_and_may_be_async(version: str, carrier: str) -> None:
    async def elicit(params: Any, tag: Any) -> Any:
        if "fail" in str(tag):
            raise ValueError("told you")
        return {"branch": str(tag)}
    with connected(version, carrier, elicit=elicit) as one:
        assert "main" in one.call_tool("ask", tag="main")["content"][0]["text"]
        try:
            assert "failed" in one.call_tool("ask", tag="fail")["content"][0]["text"]
        except (ValueError, mcp.AskError):
            assert one.modern


@played("memory modern")
def test_client_hooks(version: str, carrier: str) -> None:
    with talk(version, carrier, client="yes", connect='{"declare": {"x": {}}, "roots": []}') as t:
        t.client.result_types["example.org/t"] = lambda method, result, tag: {
            "content": [], "_meta": {"was": result["was"]}}
        assert t.client.answer({"method": "roots/list"}) == {"roots": []}
        t('''
        call call_tool t
        > tools/call {"_meta": {"{META}clientCapabilities": {"x": {}, "roots": {}}}}
        < {"resultType": "example.org/t", "was": 5}
        returns {"content": [], "_meta": {"was": 5}}
        ''')


# ---- processes

@contextlib.contextmanager
def program(before: str = "", after: str = "sys.stdin.read()", **options: Any) -> Any:
    """Connect to a program that does something, answers the probe (with WORDS) and does more."""
    code = "\n".join(["import json, os, signal, subprocess, sys, threading", "WORDS = ''", before,
                      "asked = json.loads(sys.stdin.readline())['id']",
                      "found = {'resultType': 'complete', 'capabilities': {'tools': {}},",
                      f"    'supportedVersions': {MODERN!r}, 'instructions': WORDS}}",
                      "print(json.dumps({'jsonrpc': '2.0', 'id': asked, 'result': found}))",
                      "sys.stdout.flush()", after])
    with client.connect([sys.executable, "-I", "-S", "-c", code], **options) as one:
        yield one


def gone(pid: Any) -> bool:
    """Tell whether a process has ended (what nobody waits for stays as Z)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


TERM = "signal.signal(signal.SIGTERM, lambda *_: (os.write(2, b'term\\n'), {}))"


@played("pipe modern")
@pytest.mark.parametrize("before, after, last", [
    ("", "sys.stdin.read(); os.write(2, b'end\\n')", "end"),
    (TERM.format("os._exit(0)"), "signal.pause()", "term"),
    (TERM.format("0"), "while True: signal.pause()", "term"),
    ("child = subprocess.Popen(['sleep', '99'])",
     "sys.stdin.read(); os.write(2, b'bye\\n')", "bye")])
def test_client_ends_a_server(version: str, carrier: str, before: str, after: str,
                              last: str) -> None:
    lines: list[str] = []
    words = "\nWORDS = str(child.pid if 'child' in vars() else os.getpid())"
    with limits(CLOSE_STEP_SECONDS=PATIENCE if last in ("end", "bye") else 0.05), \
            program(before + words, after, stderr=lines.append) as one:
        pass
    for _ in range(200):
        if gone(one.instructions):
            break
        threading.Event().wait(0.01)
    assert gone(one.instructions) and lines[-1] == last


@played("pipe modern")
def test_client_and_processes_of_every_kind(version: str, carrier: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    with limits(CLOSE_STEP_SECONDS=0.05):
        with program(after="signal.pause()") as one, pytest.raises(TimeoutError):
            one.call_tool("x", {"text": "x" * 500000}, timeout=0.05)
        with program("WORDS = json.dumps([dict(os.environ), os.listdir('/proc/self/fd')])",
                     "sys.stdin.readline(); os.close(1); sys.stdin.read()") as one:
            environment, descriptors = json.loads(one.instructions)
            assert environment["PATH"] == os.environ["PATH"] and len(descriptors) == 4
            assert "SOME_TOKEN" not in environment
            with pytest.raises(client.Disconnected):
                one.call_tool("x", timeout=PATIENCE)


@played("http 2024-11-05")
def test_client_falls_back_to_http_sse(version: str, carrier: str) -> None:
    sent: Any = queue.Queue()

    def answer(verb: str, headers: dict, message: Any, text: str) -> Any:
        if verb == "GET":
            yield STREAM + b": hello\n\nevent: endpoint\ndata: /post?s=1\n\n"
            yield from (f"data: {one}\n\n".encode() for one in iter(sent.get, ""))
        elif headers[":path"] == "/mcp":
            yield reply("no", "405 No")
        else:
            sent.put(text) if "id" in message else None
            yield reply("", "202 OK")
    with contextlib.closing(Site(answer)) as site:
        with client.connect(site.url) as one:
            assert one.list_prompts() == [] and one.version == "2025-11-25"
        sent.put("")
        assert "DELETE" not in [verb for verb, _, _ in site.asked]
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
BASIC = {"Authorization": "Basic aStkOnMlMkI="}        # "i d" and "s+", encoded as in a form
GONE = (400, {"error": "invalid_grant", "error_description": "old"})


class World(oauth.Browser):
    """What is on the web, by URL, and a user at a browser. `asked`: verb, url, headers, form."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.page: dict = {}            # parameters of the last login page
        self.issued, self.time, self.refresh = 0, 1000.0, ""
        self.at: dict = {
            "callback": {"code": "the-code"}, TOKEN: {}, ISSUER + "/register": {"client_id": "r"},
            RESOURCE: {"resource": MCP, "authorization_servers": [ISSUER]},
            METADATA: {"issuer": ISSUER, "authorization_endpoint": ISSUER + "/authorize?tenant=1",
                   "token_endpoint": TOKEN, "registration_endpoint": ISSUER + "/register",
                   "code_challenge_methods_supported": ["S256"]},
            PLACES["provider"]: {"access_token": "jag for " + ISSUER,
                                 "issued_token_type": URN + "token-type:id-jag"}}

    def change(self, name: str, changes: Any) -> None:
        merges, place = isinstance(changes, dict), PLACES.get(name, name)
        self.at[place] = {**self.at.get(place, {}), **changes} if merges else changes

    def fetch(self, verb: str, url: str, headers: dict, body: Any = None, timeout: int = 9) -> Any:
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
    def listen(self, registered: str, state: str) -> Any:
        yield BACK

    def visit(self, url: str) -> str:
        self.page = dict(parse_qsl(url.partition("?")[2]))
        asked = {"resource": MCP, "code_challenge_method": "S256", "response_type": "code"}
        assert asked.items() <= self.page.items()
        came = {"state": self.page["state"], **self.at["callback"]}
        return BACK + "?" + urlencode({one: came[one] for one in came if came[one] is not None})

    def hook(self, *who: str, **options: Any) -> Any:
        return oauth.OAuth(*who, **{"grant": oauth.AuthorizationCode(self),
                                    "clock": lambda: self.time, **options})


@pytest.fixture
def world(monkeypatch: Any) -> Any:
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


FLAWS = [       # which document, which member (or all of it), what is wrong with it, which error
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


@pytest.mark.parametrize("document, member, flaw, error", [
    (document, member, flaw, error) for document, member, flaws, error in FLAWS for flaw in flaws])
def test_oauth_refuses_a_flawed_document(world, document, member, flaw, error) -> None:
    world.change(document, {member: flaw} if member else flaw)
    with pytest.raises(oauth.OAuthError, match=error) as caught:
        log_in(world.hook())
    assert not re.search("hush|the-code|at1|\n", str(caught.value))
    assert document == "token" or TOKEN not in [url for _, url, _, _ in world.asked]


FLOWS = {       # changes of documents; refusals: status, challenge, what is then posted and sent
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


@pytest.mark.parametrize("title", FLOWS)
def test_oauth_flows(world: Any, title: str) -> None:
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


@pytest.mark.parametrize("told, issuer, at, asked", [
    ("", ISSUER, RESOURCE, [RESOURCE, METADATA]), (NEW, ISSUER, NEW, [NEW, METADATA]),
    ("", ISSUER, ROOT, [RESOURCE, ROOT, METADATA, ISSUER + OPENID]),
    ("", ISSUER + "/t", ROOT, [RESOURCE, ROOT, METADATA + "/t", ISSUER + OPENID + "/t",
                               ISSUER + "/t" + OPENID]),
    ("", "https://mcp.test", "", [RESOURCE, ROOT, "https://mcp.test" + SERVER])])
def test_oauth_looks_for_metadata_in_order(world, told, issuer, at, asked) -> None:
    world.at[at] = {**world.at.pop(RESOURCE), "authorization_servers": [7, issuer]}
    world.at[asked[-1]] = {**world.at.pop(METADATA), "issuer": issuer}
    assert log_in(world.hook(issuer=issuer), f'Basic, Bearer resource_metadata="{told}"')
    assert [url for _, url, _, _ in world.asked] == [*asked, ISSUER + "/register", TOKEN]


@pytest.mark.parametrize("who, offered, made, proof", [
    ((), ["tls", "none"], {}, {"client_id": "r"}),
    ((), ["none"], {"client_id": "i d", "client_secret": "s+"}, BASIC),
    ((), None, {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
     {"client_id": "r", "client_secret": "s"}),
    (("i d", "s+"), None, None, BASIC),
    (("us", "s"), ["client_secret_post"], None, {"client_id": "us", "client_secret": "s"}),
    ((CIMD,), ["tls"], None, {"client_id": CIMD}), (("us",), ["tls"], None, {"client_id": "us"})])
def test_oauth_registers_and_proves_who_it_is(world, who, offered, made, proof) -> None:
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


def test_oauth_grants_without_a_user(world: Any) -> None:
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
    world.change("resource", {"authorization_servers": [NEW]})
    world.change(NEW + SERVER, {"issuer": NEW})
    with pytest.raises(oauth.OAuthError, match="registered with https://issuer.test"):
        log_in(hook)


def test_oauth_keeps_tokens_in_a_file_for_its_owner(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    one, two = (world.hook(store=oauth.TokenFile(path)) for _ in "12")
    assert log_in(one) == log_in(two, uses=1) == {"Authorization": "Bearer at1"}
    modes = [oct(place.stat().st_mode)[-3:] for place in (path, path.parent)]
    assert modes == ["600", "700"] or os.name != "posix"
    assert log_in(two) == log_in(one) == {"Authorization": "Bearer at2"} and world.issued == 2
    for seconds, token in ((3600 - oauth.EARLY_SECONDS, "at2"), (1, "at3")):
        world.time += seconds
        assert log_in(world.hook(store=oauth.TokenFile(path)))["Authorization"] == "Bearer " + token
    for content, mode, error in (("7", 0o600, "not a token"), ("{}", 0o640, "others can read")):
        path.write_text(content)
        path.chmod(mode)
        with pytest.raises(oauth.OAuthError, match=error):
            log_in(one)


def test_oauth_signs(world: Any, monkeypatch: Any) -> None:
    pytest.importorskip("cryptography")
    key, store = oauth.Key(oauth.new_pem(), "k1"), {}       # type: Any, dict
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
    world.change("callback", None)                          # nobody may log in for nothing
    with pytest.raises(oauth.OAuthError, match="pip install cryptography"):
        log_in(world.hook(dpop=True))


@pytest.mark.parametrize("status, changes", [
    (0, {}), (0, {"aud": ["x", MCP]}), (401, {"aud": "x"}), (401, {"aud": 0}), (401, {"iss": "x"}),
    (401, {"exp": 9}), (401, {"exp": "never"}), (401, {"nbf": 9e9}), (401, {"sub": ""}),
    (401, {"cnf": {}}), (403, {"scope": "b"}), (0, {"scope": None, "scp": ["a"]}),
    (401, {"head": {"alg": "none"}}), (401, {"head": {"typ": "dpop+jwt"}}),
    (401, {"head": {"crit": []}}), (401, {"head": {"kid": "k2"}}), (401, {"cut": "AAAA"})])
def test_oauth_servers_check_tokens(world: Any, status: int, changes: dict) -> None:
    claims = {"aud": MCP, "iss": ISSUER, "sub": "ann", "exp": 8e9, "scope": "a b", **changes}
    head, cut = claims.pop("head", {}), claims.pop("cut", "")
    world.at[ISSUER + "/i"] = {"active": not head and not cut, **claims}
    options: dict = {"resource": MCP, "issuer": ISSUER, "scopes": ["a"]}
    hooks = {} if head else {"opaque": guard.introspection(ISSUER + "/i", "i", "s", **options)}
    if importlib.util.find_spec("cryptography"):
        key = oauth.Key(oauth.new_pem())
        token = key.jwt(claims, **head)
        hooks[token[:len(token) - len(cut)] + cut] = guard.local_keys(
            {"keys": [{"kty": "odd"}, key.jwk()]}, **options)
    for token, hook in hooks.items():
        with contextlib.nullcontext() if not status else pytest.raises(mcp.HttpError) as caught:
            made = hook({"authorization": "bearer " + token})
            assert made == guard.Principal(ISSUER, "ann", "", frozenset()) and "a" in made.scopes
        assert not status or caught.value.status == status and RESOURCE in str(caught.value.headers)


def test_oauth_from_end_to_end(world: Any, monkeypatch: Any) -> None:
    visits, threads, hooks, metadata = [], [], [], {}       # type: Any, Any, Any, dict
    def browse(url: str) -> None:
        page = dict(parse_qsl(url.partition("?")[2]))
        ends = ["x", "?state=x", "?code=c&state=" + page["state"]]
        threads.append(threading.Thread(target=lambda: visits.extend(
            real_fetch("GET", page["redirect_uri"] + end, {})[0] for end in ends)))
        threads[0].start()
    monkeypatch.setattr(webbrowser, "open", browse)
    world.change("token", (200, {"access_token": "at1", "token_type": "bearer"}))
    with http_serving(mcp.Server("guarded"), metadata=metadata,
                      authorize=lambda headers: hooks[0](headers)) as httpd:
        url = f"http://127.0.0.1:{httpd.server_port}/mcp"
        metadata.update(guard.resource_metadata(url, [ISSUER], scopes_supported=["a"]))
        hooks.append(guard.introspection(ISSUER + "/i", "i d", "s+", resource=url))
        world.at[ISSUER + "/i"] = {"active": True, "aud": url, "sub": "ann"}
        with client.connect(url, authorize=oauth.OAuth()) as connected:
            connected.ping()
        threads[0].join(PATIENCE)
        assert visits == [404, 404, 200] and BASIC.items() <= world.asked[-1][2].items()


# ---- the gateway: every client in front of it, a modern and a legacy upstream behind it

gw = load("gateway", HERE / "examples" / "extensions" / "gateway.py")
GATEWAY = [sys.executable, str(HERE / "examples" / "extensions" / "gateway.py")]
ENDS: list[Any] = []                        # ends what gateway() started
STAGES: list[Stage] = []                    # the last one is the current test's


@functools.cache
def gateway() -> Any:
    """Start a gateway in front of one server, reached in the newest and in a legacy revision."""
    stage: Any = type("", (), {"__getattr__": lambda self, name: getattr(STAGES[-1], name)})()
    server = fixture(stage)

    @server.tool
    def speak(ctx: Context) -> str:
        ctx.log("info", "one", "me")
        stage.stop("spoken")
        return "spoke"
    server.tool(lambda: [mcp.link("test://text", "a"), mcp.embedded("test://text", "hello")],
                name="dir/list it")
    server.tool(lambda: "long", name="long" * 20)
    server.tool(lambda: [1, 2], name="numbers", output_schema={"type": "array"})
    serving = http_serving(server)
    url = f"http://127.0.0.1:{serving.__enter__().server_port}/mcp"
    upstreams = [gw.Upstream("up", {"url": url}), gw.Upstream("dead", {"url": url + "x"}),
                 gw.Upstream("old", {"url": url, "revision": LEGACY[0]})]
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    for upstream in upstreams:
        upstream.keeper.start()
    assert all(upstream.tried.wait(PATIENCE) for upstream in upstreams)
    ENDS.extend([lambda: serving.__exit__(None, None, None), *(one.close for one in upstreams)])
    return server, profile, upstreams


@pytest.fixture(scope="module", autouse=True)
def end_gateway() -> Any:
    yield
    while ENDS:
        ENDS.pop()()


@served
def fronted(stage: Stage) -> Any:
    STAGES.append(stage)
    return gateway()[1]


test_gateway = scripts(r'''
== calls reach both upstreams, and results come back | server: fronted
> 1 tools/call {"name": "up__add", "arguments": {"a": 1}}
< 1 {"content": [{"type": "text", "text": "3"}], "isError": null}
> 2 tools/call {"name": "old__fail", "arguments": {"how": "value"}}
< 2 {"content": [{"text": "told you"}], "isError": true}
> 3 tools/call {"name": "up__fail", "arguments": {"how": "own"}}
< 3 error 7 seven {"server": "up", "originalError": {"code": 7, "message": "seven", "data": [7]}}
> 4 tools/call {"name": "dead__anything"}
< 4 error {INTERNAL_ERROR} down {"server": "dead"}

== names, URIs and results take the client's form | server: fronted | on: 2025-06-18.. memory
> 1 tools/call {"name": "up__dir_list_it_3bbeb852"}
< 1 {"content": [{"type": "resource_link", "uri": "up+test://text", "name": "a"},
    {"type": "resource", "resource": {"uri": "up+test://text", "text": "hello"}}]}
> 2 tools/call {"name": "old__longlonglonglonglonglonglonglonglonglonglonglonglo_5aa1dce7"}
< 2 {"content": [{"text": "long"}]}
> 3 tools/call {"name": "up__unknown"}
< 3 error {INVALID_PARAMS} unknown tool
> 5 tools/call {"name": "up__numbers"}
[modern] < 5 {"structuredContent": [1, 2], "content": [{"text": "[1, 2]"}]}
[legacy] < 5 {"structuredContent": null, "content": [{"text": "[1, 2]"}], "resultType": null}
> 11 resources/read {"uri": "up+test://text"}
< 11 {"contents": [{"uri": "up+test://text", "text": "hello"}]}
> 12 resources/read {"uri": "old+test://item/7/x"}
< 12 {"contents": [{"uri": "old+test://item/7/x", "text": "'x' of 7"}]}
> 13 prompts/get {"name": "old__greet", "arguments": {"name": "Ada"}}
< 13 {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello, Ada!"}}]}
> 14 resources/read {"uri": "test://text"}
[modern] < 14 error {INVALID_PARAMS} not found
[legacy] < 14 error {RESOURCE_NOT_FOUND} not found
> 15 resources/read {"uri": "old+none://x"}
[modern] < 15 error {INVALID_PARAMS} not found {"server": "old", "originalError": {"code": -32002}}
[legacy] < 15 error {RESOURCE_NOT_FOUND} not found {"server": "old"}

== progress, log messages and cancellations pass through | server: fronted | on: * memory http
> 1 tools/call {"name": "old__steps", "_meta": {"progressToken": 0}}
< - notifications/progress {"progressToken": 0, "progress": 0, "total": 3}
< - notifications/progress {"progressToken": 0, "progress": 1}
< - notifications/progress {"progressToken": 0, "progress": 2.5}
< 1 {"content": [{"text": "done"}]}
> 2 tools/call {"name": "old__speak", "_meta": {"{META}logLevel": "info"}}
wait spoken
< - notifications/message {"level": "info", "data": "one", "logger": "me"}
open spoken
< 2 {"content": [{"text": "spoke"}]}
> 3 tools/call {"name": "up__slow", "arguments": {"gate": "a"}}
wait a
> - notifications/cancelled {"requestId": 3}
wait a passed

== a modern client gets a modern upstream's question, and answers it | server: fronted
    | on: modern memory http | declare: {"elicitation": {}}
> 1 tools/call {"name": "up__asks", "arguments": {"what": "two"}}
< 1 {"resultType": "input_required", "content": null, "inputRequests": {"one": "*"}}
> 2 tools/call {"name": "up__asks", "arguments": {"what": "two"}, "requestState": "{STATE}",
    "inputResponses": {"one": {"action": "accept", "content": {"one": 1}}}}
< 2 {"resultType": "input_required", "inputRequests": "*"}
> 4 tools/call {"name": "up__asks", "arguments": {"what": "roots"}}
< 4 error {MISSING_REQUIRED_CLIENT_CAPABILITY} roots {"requiredCapabilities": {"roots": {}}}
> 5 tools/call {"name": "old__ask"}
< 5 {"content": [{"text": "failed: AskError"}]}

== a legacy client is asked, by both kinds of upstream | server: fronted
    | on: 2025-06-18..2025-11-25 memory http
    | declare: {"elicitation": {}, "sampling": {}, "roots": {}}
> 1 tools/call {"name": "old__ask"}
< #a elicitation/create {"message": "Which branch?", "requestedSchema": {"type": "object"}}
> #a {"action": "accept", "content": {"branch": "main"}}
< 1 {"content": [{"text": "{\"action\": \"accept\", \"content\": {\"branch\": \"main\"}}"}]}
> 3 tools/call {"name": "up__asks", "arguments": {"what": "two"}}
< #c elicitation/create {"message": "One?"}
> #c {"action": "accept", "content": {"one": 1}}
< #d elicitation/create {"message": "Two?"}
> #d {"action": "accept", "content": {"two": 2}}
< 3 {"content": [{"type": "text"}], "isError": null}
> 5 tools/call {"name": "old__asks", "arguments": {"what": "roots"}}
< #b roots/list
> #b error -5 never
< 5 {"isError": true, "content": [{"type": "text"}]}
> 4 tools/call {"name": "old__asks", "arguments": {"what": "sample"}}
< #c sampling/createMessage {"maxTokens": 9}
> #c {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}}
< 4 {"content": [{"type": "text"}], "isError": null}
''')
X = {"command": "x"}
EACH_ERA = pytest.mark.parametrize("version", [*MODERN[:1], *LEGACY[:1], *LEGACY[-1:]])


@EACH_ERA
def test_gateway_joins_lists_and_announces_changes(version: str) -> None:
    heard: Any = queue.SimpleQueue()
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


def test_gateway_knows_when_all_calls_are_of_one_client() -> None:
    one, two = [type("", (), {"peer": name}) for name in ("one", "two")]
    assert [gw.only_client(calls) for calls in (
        [], [one], [one, one], [one, two], [two, one, one])] == [None, one, one, None, None]


def configure(folder: Any, config: Any) -> str:
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


def test_gateway_survives_an_upstream_that_dies(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(gw, "RETRY_SECONDS", 0.02)
    heard: Any = queue.SimpleQueue()
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
def test_gateway_serves_each_profile_at_its_path(version: str) -> None:
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
        connection = connection_to(httpd.server_port)
        connection.request("GET", "/mcp/" + name, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert b"/mcp/%s/messages?" % name.encode() in answer.readline() + answer.readline()
        connection.close()
        assert exchange(httpd.server_port, "POST", "/mcp/" + name, {"Host": "x.org"}, {})[0] == 403
    assert exchange(httpd.server_port, "GET", "/mcp/fewer", {})[0] == 404
    httpd.close()


@pytest.mark.parametrize("config, word", [
    ("{", "Expecting"), ([], "object"), ({}, "servers"), ({"servers": {}}, "servers"),
    *(({"servers": {"a": server}}, "/servers/a" + place) for server, place in (
        ({}, ""), ({"command": []}, "/command"), ({**X, "url": "http://x"}, ""),
        ({"url": "ftp://x"}, "/url"), ({**X, "revision": "x"}, "/revision"),
        ({**X, "env": {"A": 1}}, "/env/A"), ({**X, "args": [1]}, "/args/0"))),
    ({"mcpServers": {"1": X}}, "1"), ({"servers": {"a b": X, "A-b": X}}, "differ"),
    ({"servers": {"a": X}, "profiles": {"p": {"servers": ["b"]}}}, "among a"),
    ({"servers": {"a": X}, "profiles": {"/": {"servers": ["a"]}}}, "profiles")])
def test_gateway_names_what_is_wrong_with_a_file(tmp_path: Any, config: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        gw.read_config(configure(tmp_path, config))


@pytest.mark.parametrize("arguments, status, word", [
    (["--help"], 0, "--http"), (["--http", "x"], 2, "PORT"), (["--http", "99999"], 2, "99999"),
    (["--profile", "none"], 2, "all, few"), (["missing.json"], 2, "missing.json")])
def test_gateway_explains_its_command_line(arguments: Any, status: int, word: str) -> None:
    done = subprocess.run([*GATEWAY, *arguments], capture_output=True, text=True, cwd=HERE,
                          check=False, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode == status and word in done.stdout + done.stderr


def test_gateway_runs_on_stdio_and_over_http(tmp_path: Any) -> None:
    config = configure(tmp_path, {"mcpServers": {
        "pid": {"command": sys.executable, "args": [str(tmp_path / "pid.py")], "type": "stdio"}}})
    with subprocess.Popen([*GATEWAY, config, "--http", "0"], stderr=subprocess.PIPE,
                          text=True) as process:
        url = next(re.search(r"http://\S+", line) for line in process.stderr if "listens" in line)
        for target in [*GATEWAY, config], url[0]:
            with client.connect(target) as front:
                assert front.call_tool("pid__pid")["content"]
        process.terminate()
        process.stderr.read()
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


class Clock:    # stands in for the module `time`; sleeping moves it
    def __init__(self) -> None:
        self.now, self.pauses, self.strftime, self.gmtime = 1.8e9, [], time.strftime, time.gmtime
        self.time = self.monotonic = lambda: self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Oven:     # a server whose tools become tasks; calling it sends a request
    def __init__(self, **options: Any) -> None:
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

    def __call__(self, method: str, knows: Any = KNOWS_TASKS, who: Any = "ann", **more: Any) -> Any:
        out, meta = [], {mcp.META_VERSION: MODERN[0], mcp.META_CAPABILITIES: knows}
        self.server.handle({"jsonrpc": "2.0", "id": 1, "method": method,
                            "params": {**more, "_meta": meta}}, out.append, principal=who)
        return out[-1]["result"] if "result" in out[-1] else out[-1]["error"]["code"]

    def make(self, name: str, **arguments: Any) -> str:
        return self("tools/call", name=name, arguments=arguments)["taskId"]

    def until(self, task: str, status: str, **wanted: Any) -> Any:
        wanted, end = {"taskId": task, "status": status, **wanted}, time.monotonic() + PATIENCE
        while differences(wanted, self("tasks/get", taskId=task)):
            assert time.monotonic() < end, differences(wanted, self("tasks/get", taskId=task))
            time.sleep(0.002)
        return self("tasks/get", taskId=task)


def test_a_task_from_start_to_end() -> None:
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
    assert bake.ended.wait(PATIENCE)                    # both tools wait for the same event
    late = bake.until(task, "completed", createdAt=begin, lastUpdatedAt="2027-01-15T08:01:01Z",
                      statusMessage=None, result={"content": [{"text": "baked for ann"}]})
    assert bake("tasks/cancel", taskId=task) and bake("tasks/get", taskId=task) == late
    bake.until(bake.make("must", says="own"), "failed", error=TASK_ERROR, statusMessage="seven")
    bake.until(bake.make("hold", says="value"), "completed", error=None, result={"isError": True})
    with pytest.raises(TypeError, match="Context"):
        bake.tasks.tool(lambda: "x")


@pytest.mark.parametrize("declared, who, ident, code", [
    *[(declared, "ann", None, -32021) for declared in (
        {}, {"extensions": []}, {"extensions": {tasks.EXTENSION: 3}}, {"tasks": {}})],
    *[(KNOWS_TASKS, *rest, -32602) for rest in (("bob", None), ("ann", "x"), ("ann", ["x"]))]])
def test_who_has_tasks(declared: Any, who: Any, ident: Any, code: int) -> None:
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


@pytest.mark.parametrize("late", [0, 1])
def test_a_task_asks_and_takes_answers_one_by_one(monkeypatch: Any, late: int) -> None:
    bake = Oven()
    monkeypatch.setattr(mcp, "STATE_SECONDS", -10 if late else 900)     # late: always refused
    task = bake.make("ask")
    first = bake.until(task, "input_required", requestState=None, inputRequests={
        "1-a-b": {"params": {"message": "A"}}, "1-c": {"params": {"message": "C"}}})
    for key, n, now_asked in (          # only the first answer counts; a bad one is asked for again
            ("other", 1, first["inputRequests"]), ("1-c", None, {"1-a-b": "*"}),
            ("1-c", 3, {"1-a-b": "*", "1-c": None}), ("1-a-b", 2, {"2-c": {}, "2-a-b": None}),
            ("2-c", 3, {"3-d": {}}), ("3-d", 4, None), ("3-d", 5, None)):
        bake.clock.now += late * tasks.STATE_SECONDS / 2
        given = {key: {"action": "accept", "content": {"n": n}}, "x": 1}
        assert bake("tasks/update", taskId=task, inputResponses=given)["resultType"] == "complete"
        bake.until(task, "input_required" if now_asked else "completed", inputRequests=now_asked)
    bake.until(task, "completed", result={"content": [{"text": "234"}]})
    assert bake.runs == [False, *[not late] * 3]


def test_tasks_expire_and_are_not_too_many() -> None:
    bake = Oven(most=2, ttl_ms=60_000, poll_ms=5)
    task, other = bake.make("hold"), bake.make("hold")
    assert "Too many" in bake("tools/call", name="hold")["content"][0]["text"]
    bake.clock.now += 59.9
    bake.until(task, "working", ttlMs=60_000, pollIntervalMs=5)
    assert bake.begun.wait(PATIENCE) and not bake.ended.is_set()
    bake.clock.now += 0.1
    assert bake.make("must", says="own") and bake.ended.wait(PATIENCE)      # it was cancelled
    assert bake("tasks/get", taskId=task) == bake("tasks/get", taskId=other) == -32602


class Played:   # stands in for a client: the answers are a list; an exception is raised
    def __init__(self, answers: Any, closed: bool) -> None:
        self.left, self.sent, self.answer, self.closed = [*answers], [], "{} {}".format, closed
        self.result_types, self.mirrored = {}, {}

    def request(self, method: str, params: Any) -> Any:
        assert params.pop("taskId") == "T" and self.mirrored[method] == "taskId"
        self.sent.append((method[6:], *params.values()) if params else method[6:])
        answer = self.left.pop(0) if self.sent[-1] != "cancel" else {}
        if isinstance(answer, Exception):
            raise answer
        return {"taskId": "T", **answer}


@pytest.mark.parametrize("answers, sent, pauses, outcome", [
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
def test_a_client_follows_a_task(
        monkeypatch: Any, answers: Any, sent: Any, pauses: Any, outcome: str) -> None:
    clock, played, seen = Clock(), Played(answers, outcome == "OSError"), []
    made = {"taskId": "T", "status": "made"}
    monkeypatch.setattr(tasks, "time", clock)
    tasks.ClientTasks(played, longest=80.5, on_state=seen.append)
    try:
        come = "x" * (played.result_types["task"]("tools/call", made, "tag") == {"x": 1})
    except Exception as problem:        # noqa: BLE001
        come = f"{type(problem).__name__} {getattr(problem, 'code', '')} {problem}"
    assert all(word in come for word in outcome.split()), come
    assert (played.sent, clock.pauses, played.left) == (sent, pauses, [])
    assert made in seen


@pytest.mark.parametrize("text, value", [
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
def test_frontmatter_is_read_or_refused_with_its_line(text: str, value: Any) -> None:
    for newline in ("\n", "\r\n"):
        raw = f"\ufeff---  \n{text}\n---\nbody\n---\n: x".replace("\n", newline).encode()
        if isinstance(value, dict):
            assert json.dumps(skills.frontmatter(raw)) == json.dumps(value)
            continue
        for bad in (raw, b"a: b", b"---\na: b\n", b"\n" + raw[3:], b"---\n\xff: b\n---\n"):
            with pytest.raises(skills.SkillError, match=f"^line {value if bad == raw else 1}: "):
                skills.frontmatter(bad)


def test_skills_are_served(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    for path in FOLDER.split():
        name = path.rpartition("/")[2]
        file = tmp_path / path.replace("~", " ") / ("" if "." in name else "SKILL.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x" * 99 if "1.md" in path else "text" if "." in name else DO_IT % name)
    (tmp_path / "a" / "p.png").write_bytes(b"\xff\x00")
    (tmp_path / "link" / "x").symlink_to(tmp_path / "o.md")
    monkeypatch.setattr(skills, "MAX_FILES", 5)
    monkeypatch.setattr(skills, "MAX_BYTES", 110)
    server = mcp.Server("skills")
    entries = skills.serve_skills(server, tmp_path, tmp_path / "b" / "c", tmp_path / "a")
    assert [one["uri"][8:-9] for one in entries] == ["a", "a/in", "b/c", "c"]
    refused = [line.split("/SKILL.md is")[0] for line in capsys.readouterr().err.split("\n")[:-1]]
    assert " ".join(one.rpartition("/")[2] for one in refused) == "UP big link many no no2 a in"
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


def test_a_host_uses_only_what_was_approved_and_verified() -> None:
    server, asked, said, text = mcp.Server("played"), [], [True], DO_IT % "do"
    contents = {"SKILL.md": {"text": text}, "a.bin": {"blob": "/w=="}}
    entries = [ENTRY, *BAD_ENTRIES]

    @server.method("skills/list", extension=skills.EXTENSION)
    def pages(params: Any) -> Any:
        n = int(params.get("cursor") or 0)
        return {"skills": entries[n:n + 9], "nextCursor": str(n + 9) if entries[n + 9:] else None}

    @server.resource("skill://{+path}")
    def read(path: str, ctx: Context) -> Any:
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
        assert said == [True, skill.uri]        # asked once
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


# ==========================================================================================
# The course: what goes beyond the outputs that its docstrings print
# ==========================================================================================

COURSE = HERE / "examples"
GREET = {"name": "greet", "arguments": {"name": "Ada"}}


def posted(method: str, version: str, params: Any) -> tuple[dict[str, str], str]:
    """Return headers and body of a request."""
    headers = {"content-type": "application/json", "mcp-protocol-version": version}
    if version in MODERN:
        params = {**params, "_meta": {META + "protocolVersion": version,
                                      META + "clientCapabilities": {}}}
        headers.update({"mcp-method": method, "mcp-name": params.get("name", "")})
    return headers, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def opening(version: str) -> dict:
    return {"protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture(scope="module")
def mount() -> Any:
    return load("mount", COURSE / "mount.py")


def invoked(mount: Any, method: str, version: str, params: Any, **more: Any) -> dict:
    """Call the function in a cloud with an event of payload format 2.0."""
    headers, body = posted(method, version, params)
    return mount.handler({"rawPath": "/mcp", "requestContext": {"http": {"method": "POST"}},
                          "headers": headers, "body": body, **more})


@pytest.mark.parametrize("version", ORDER)
def test_a_function_in_a_cloud_serves_every_revision(mount: Any, version: str) -> None:
    if version in LEGACY:
        opened = invoked(mount, "initialize", version, opening(version))
        assert opened["statusCode"] == 200 and "Mcp-Session-Id" not in opened["headers"]
    answer = invoked(mount, "tools/call", version, GREET)
    assert json.loads(answer["body"])["result"]["content"][0]["text"] == "Hello, Ada!"


def test_a_function_in_a_cloud_reads_the_older_format_and_base64(mount: Any) -> None:
    old = {"httpMethod": "POST", "path": "/mcp", "headers": {"Content-Type": "application/json"},
           "body": "eyJqc29ucnBjIjoiMi4wIiwiaWQiOjEsIm1ldGhvZCI6InBpbmcifQ==",
           "isBase64Encoded": True}
    assert json.loads(mount.handler(old)["body"]) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert mount.handler({**old, "path": "/other"})["statusCode"] == 404
    refused = mount.handler({**old, "httpMethod": "GET", "body": None, "headers": None})
    assert refused["statusCode"] == 405 and "POST" in refused["headers"]["Allow"]


def test_a_subscription_in_a_cloud_ends(mount: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(mount, "LISTEN_SECONDS", 0)
    answer = invoked(mount, "subscriptions/listen", "2026-07-28",
                     {"notifications": {"toolsListChanged": True}})
    assert answer["statusCode"] == 200 and "subscriptions/acknowledged" in answer["body"]


@pytest.fixture
def wsgi(mount: Any) -> Any:
    """The URL of the example under wsgiref, with its validator in between."""
    from wsgiref import simple_server, validate

    class Quiet(simple_server.WSGIRequestHandler):
        def log_message(self, *words: Any) -> None:
            pass
    application = validate.validator(mount.application)
    with simple_server.make_server("127.0.0.1", 0, application, handler_class=Quiet) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/mcp"
        httpd.shutdown()
        thread.join(PATIENCE)


@pytest.mark.parametrize("version", ORDER)
def test_a_client_uses_the_endpoint_under_wsgi(wsgi: str, version: str) -> None:
    with client.connect(wsgi, revision=version, timeout=PATIENCE) as found:
        assert found.call_tool("greet", {"name": "Ada"})["content"][0]["text"] == "Hello, Ada!"


@pytest.mark.parametrize("verb, path, body, status, word", [
    ("GET", "", None, 405, b"error"), ("GET", "/other", None, 404, b"not_found"),
    ("POST", "", b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', 202, b""),
    ("POST", "", b"{", 400, b"-32700")])
def test_other_answers_are_valid_wsgi_too(
        wsgi: str, verb: str, path: str, body: Any, status: int, word: bytes) -> None:
    found = client.fetch(verb, wsgi + path, {"Content-Type": "application/json"}, body)
    assert found[0] == status and word in found[2]


def test_a_stream_is_valid_wsgi(wsgi: str, mount: Any) -> None:
    @mount.server.tool
    def count(ctx: Context) -> str:
        ctx.progress(1)
        return "done"
    heard: list = []
    with client.connect(wsgi, timeout=PATIENCE) as found:
        found.call_tool("count", on_progress=lambda *words: heard.append(words))
    assert heard == [(1, None, None)]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
def test_the_endpoint_runs_as_cgi(version: str) -> None:
    headers, body = posted("tools/call", version, GREET)
    environ = {"HTTP_" + name.upper().replace("-", "_"): text for name, text in headers.items()}
    environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE")
    done = subprocess.run(
        [sys.executable, str(COURSE / "mount.py")], input=body.encode(), capture_output=True,
        timeout=3 * PATIENCE, check=False, env={
            **os.environ, **environ, "GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": "POST",
            "PATH_INFO": "/mcp", "QUERY_STRING": "", "CONTENT_LENGTH": str(len(body))})
    assert done.stdout.startswith(b"Status: 200 OK\r\n") and b"Hello, Ada!" in done.stdout


@pytest.mark.parametrize("name, bad", [("01_hello_server.py", 0), ("00_by_hand.py", 5)])
def test_the_check_tells_a_good_server_from_a_bad_one(name: str, bad: int) -> None:
    check = load("check", COURSE / "check.py")
    check.SECONDS = 3 * PATIENCE
    flaws = [check.play([sys.executable, str(COURSE / name)], *row[1:]) for row in check.HOSTS]
    assert sum(map(bool, flaws)) == bad, flaws


@pytest.mark.parametrize("version", ORDER)
def test_a_socket_carries_sessions_of_both_eras(version: str) -> None:
    example = load("socket_example", COURSE / "09_socket.py")
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as answers:
        example.in_thread(example.serve, theirs)
        ours.sendall(b"junk\n")
        assert json.loads(answers.readline())["error"]["code"] == CODES["PARSE_ERROR"]
        if version in LEGACY:
            ours.sendall(posted("initialize", version, opening(version))[1].encode() + b"\n")
            assert json.loads(answers.readline())["result"]["protocolVersion"] == version
            ours.sendall(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        ours.sendall(posted("tools/call", version, GREET)[1].encode() + b"\n")
        assert b"Hello, Ada!" in answers.readline()


def test_what_to_paste_starts_the_server() -> None:
    output = run_printed("python3 examples/config.py examples/01_hello_server.py hello")
    entry = json.JSONDecoder().raw_decode(output[output.index("{"):])[0]["mcpServers"]["hello"]
    done = subprocess.run([entry["command"], *entry["args"]], cwd="/", stdout=subprocess.PIPE,
                          input=b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}', check=True)
    assert json.loads(done.stdout)["result"] == {}


# ==========================================================================================
# Lessons and exercises: every line that is written there is what the server says
# ==========================================================================================

LESSONS = sorted((HERE / "examples" / "transcripts").glob("[0-9]*.md"))
needs_all_parts = pytest.mark.skipif(PARTS != ["I", "II", "III"], reason="lessons need all parts")


def replayer() -> Any:
    return load("replay", HERE / "examples" / "transcripts" / "replay.py")


@needs_all_parts
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_replays(path: Path) -> None:
    assert replayer().run(path, update=False) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_ends_with_a_question_that_one_of_its_lines_answers(path: Path) -> None:
    lesson = path.read_text(encoding="utf-8")
    assert "**Question**: " in lesson
    answer = re.findall(r"<summary>Answer</summary>\n\n```text\n(.*)\n```", lesson)
    conversations = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", lesson))
    assert len(answer) == 1 and answer[0] in conversations.splitlines()


@needs_all_parts
@pytest.mark.parametrize("name, line, changed", [
    ("03_call_a_tool", "Invalid arguments", "Wrong arguments"),
    ("04_handshake_2025-11-25", '"id":3,"result":{}', '"id":4,"result":{}'),
    ("16_http_post", "404 Not Found", "400 Bad Request"),
    ("17_http_streams", '"progress":2', '"progress":9')])
def test_a_changed_line_is_reported_and_update_restores_it(
        tmp_path: Path, name: str, line: str, changed: str) -> None:
    lesson = (HERE / "examples" / "transcripts" / f"{name}.md").read_text(encoding="utf-8")
    assert line in lesson
    copy = tmp_path / "lesson.md"
    copy.write_text(lesson.replace(line, changed, 1), encoding="utf-8")
    problem, = replayer().run(copy, update=True)
    assert re.search(r"line \d+: after \.\.\..* the lesson has .* came", problem, re.DOTALL)
    assert copy.read_text(encoding="utf-8") == lesson


EXERCISES = (HERE / "examples" / "exercises.md").read_text(encoding="utf-8").split("\n## ")[1:] \
    if LESSONS else []
WRONG = [("ping", "pong"), ('"2025-11-25"', '"2024-11-05"'), ('"word"', '"title"'), ("Dune", "Du"),
         ('"news"', '"new"'), ("36", '"36"'), ("<state>", "<state>x"), ("Mcp-Name", "Mcp-Tool")]


@needs_all_parts
@pytest.mark.parametrize("number", range(1, len(EXERCISES) + 1))
def test_an_exercise_accepts_its_solution_and_explains_a_wrong_attempt(number: int) -> None:
    exercise, (right, wrong) = EXERCISES[number - 1], WRONG[number - 1]
    assert f"replay.py --check {number} " in exercise
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    check = replayer().check
    assert check(number, solution) == "" and right in solution
    assert "came" in check(number, solution.replace(right, wrong))
    assert "jsonrpc" in check(number, solution.replace('"2.0"', "2.0"))


# ==========================================================================================
# Documents: every command that is printed somewhere runs and prints what it says; copies that are
# cut as design.md says work; no file is larger than its budget
# ==========================================================================================

def run_printed(command: str, folder: Path = HERE) -> str:
    """Run a command as it is printed, with this Python; return what it prints."""
    command = re.sub(r"\bpython3\b", sys.executable, command)
    done = subprocess.run(
        command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=6 * PATIENCE, check=False)
    return done.stdout


def printed_commands(text: str) -> list[tuple[str, str]]:
    """Find `$ command` lines in a text, each with the output that follows it."""
    found = re.findall(r"(?m)^( *)\$ ((?:.*\\\n)*.+)\n((?:\1(?!\$ ) *\S.*\n)*)", text)
    return [(command, textwrap.dedent(output)) for _, command, output in found]


def agrees(expected: str, output: str) -> bool:
    """Compare an output with what is printed, where `...` stands for anything."""
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


PROGRAMS = sorted([*HERE.glob("examples/[0-9]*.py"), *(
    HERE / "examples" / name for name in ("mount.py", "config.py", "check.py"))])


@pytest.mark.parametrize("path", [path for path in PROGRAMS if path.exists()],
                         ids=lambda path: path.stem)
def test_a_program_prints_what_its_docstring_says(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    commands = printed_commands(docstring + "\n")
    assert commands, "the docstring shows no command"
    for command, expected in commands:
        output = run_printed(command)
        assert agrees(expected, output), f"{command}\nexpected:\n{expected}\ncame:\n{output}"


README = (HERE / "README.md").read_text(encoding="utf-8") if (HERE / "README.md").exists() else ""


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", README)


def test_the_readme_says_the_commands_that_work() -> None:
    for command, expected in printed_commands("\n".join(readme_blocks("console"))):
        output = run_printed(command)
        assert agrees(expected, output), f"{command}\nexpected:\n{expected}\ncame:\n{output}"


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (HERE, HERE / "examples", HERE / "examples" / "extensions")))
    for number, block in enumerate(readme_blocks("python")):
        program = tmp_path / f"block{number}.py"
        program.write_text(block, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program)], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=3 * PATIENCE, check=False, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_no_revision_is_named_outside_the_tables() -> None:
    tree = ast.parse(MCP_REF.read_text(encoding="utf-8"))
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                  and isinstance(node.body[0], ast.Expr)}
    dates = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant)
             and id(node) not in docstrings and re.search(r"20\d\d-\d\d-\d\d", str(node.value))]
    assert len(dates) == len(mcp.REVISIONS)


def cut_copy(parts: str, folder: Path) -> Path:
    """Cut the module as design.md says: to part I, or to parts I and II."""
    lines = MCP_REF.read_text(encoding="utf-8").splitlines(keepends=True)
    banners = {name: next(index for index, line in enumerate(lines)
                          if line.startswith("# ======== " + start))
               for name, start in (("II", "Part II: "), ("III", "Part III "),
                                   ("end", "The end of part III"))}
    lines = lines[:banners["II"]] if parts == "I" else \
        lines[:banners["III"]] + lines[banners["end"] + 1:]
    path = folder / "mcp_ref.py"
    path.write_text("".join(line for line in lines if not line.rstrip().endswith("# [legacy]")),
                    encoding="utf-8")
    return path


@pytest.mark.skipif(PARTS != ["I", "II", "III"], reason="this is such a copy")
@pytest.mark.parametrize("parts", ["I", "I II"])
def test_a_cut_copy_is_a_complete_modern_server(parts: str, tmp_path: Path) -> None:
    copy, tests = cut_copy(parts, tmp_path), tmp_path / "test_cut.py"
    # The extensions need the client. The tests left out send a bare `ping`, which part III answers.
    tests.write_text(Path(__file__).read_text(encoding="utf-8").partition("\n# ---- OAuth")[0],
                     encoding="utf-8")
    left_out = ["client", "test_lines", "test_eras", "silence", "storm", "test_http", "hides",
                "connections", "bearer", "mounted"]
    chosen = "test" + "".join(f" and not {word}" for word in left_out)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests),
         "-k", chosen], env={**os.environ, "MCP_REF": str(copy), "MCP_PARTS": parts,
                             "MCP_CLIENT": str(tmp_path / "none"), "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_part_i_says_what_it_lacks(tmp_path: Path) -> None:
    code = "import mcp_ref; mcp_ref.Server('x').run(['--http', '0'])"
    folder = cut_copy("I", tmp_path).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode and "part II" in done.stderr


# path (a pattern): ceilings for lines, kilobytes (of 1,000 bytes), tokens; 0: no ceiling
BUDGETS = {
    "mcp_ref.py":                          (3144, 159, 24000),     # the aim: 3,000 and 152
    "examples/mcp_client.py":              (1300, 67, 10000),
    "test_mcp_ref.py":                     (5710, 280, 0),         # the aim: 4,700 and 235
    "examples/[0-9][0-9]_*.py":            (85, 0, 0),
    "examples/mount.py":                   (120, 0, 0),
    "examples/config.py":                  (60, 0, 0),
    "examples/check.py":                   (85, 0, 0),
    "examples/benchmark.py":               (250, 0, 0),
    "examples/extensions/oauth.py":        (750, 0, 0),
    "examples/extensions/oauth_server.py": (170, 0, 0),
    "examples/extensions/tasks.py":        (330, 0, 0),
    "examples/extensions/skills.py":       (330, 0, 0),
    "examples/extensions/gateway.py":      (450, 0, 0),
    "examples/exercises.md":               (200, 0, 0),
    "README.md":                           (250, 15, 0),
    ".github/workflows/test.yml":          (40, 0, 0),
    "LICENSE":                             (30, 0, 0),
    ".gitignore":                          (20, 0, 0),
}
# several files together: lines, and how many files there may be
TOGETHER = {
    ".ci/*":                                     (750, 4),
    "examples/transcripts/[0-9][0-9]_*.md":      (1700, 26),
    "examples/transcripts/*.py":                 (350, 2),
    "examples/transcripts/README.md":            (150, 1),
    "examples/extensions/skills/*|*gateway.json": (60, 3),
}


def tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=HERE, capture_output=True, text=True,
                          check=False)
    return done.stdout.split()


def size_of(path: str) -> tuple[int, int, int]:
    """Return lines, kilobytes and tokens; tokens as design.md §2 counts them."""
    data = (HERE / path).read_bytes()
    tokens = 0
    if path.endswith(".py"):
        passed = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                  tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
        tokens = sum(token.type not in passed
                     for token in tokenize.tokenize(io.BytesIO(data).readline))
    return data.count(b"\n"), len(data) // 1000, tokens


@pytest.mark.skipif(not tracked_files(), reason="this is not a git checkout")
@pytest.mark.parametrize("path", tracked_files())
def test_a_file_is_within_its_budget(path: str) -> None:
    together = [row for row in TOGETHER
                if any(fnmatch.fnmatch(path, pattern) for pattern in row.split("|"))]
    rows = [BUDGETS[row] for row in BUDGETS if fnmatch.fnmatch(path, row)]
    assert rows or together, "this file has no row"
    for size, ceiling in zip(size_of(path), rows[0] if rows else ()):
        # CPython 3.12 and later split f-strings into tokens.
        assert size <= ceiling or not ceiling or ceiling > 9000 and sys.version_info > (3, 12)
    if path.endswith(".py"):
        lines = (HERE / path).read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("row", TOGETHER)
def test_files_are_within_their_budget_together(row: str) -> None:
    found = [path for path in tracked_files()
             if any(fnmatch.fnmatch(path, pattern) for pattern in row.split("|"))]
    assert sum(size_of(path)[0] for path in found) <= TOGETHER[row][0]
    assert len(found) <= TOGETHER[row][1]
