r"""Tests of mcp_ref.py. Most are scripts: text that shows a conversation, line by line.

    == add adds | on: 2025-06-18.. pipe
    > 1 tools/call {"name": "add", "arguments": {"a": 1, "b": 2}}
    < 1 {"content": [{"text": "3"}]}

`>` is what the client sends, `<` what the server sends. A script with `client` in its
head tests the client, and the runner plays the server; any other tests a server, and
the runner plays the client. It runs as one test in each revision over each carrier:
memory; pipe (a process on stdio); http (loopback, for the client: what a server does
over HTTP is shown by examples/vectors). The runner adds the handshake, `_meta` and HTTP
headers; in every test a referee checks every message: one response per request, none
after a cancellation, valid members.

The id of a test is the first words of its title, revision and carrier, for `-k`: as in
`-k "second_line_fails and 2025-06-18 and pipe"`. A line that fails is shown with the
file and the number of the line where its author wrote it.

The head: `==`, the title, then any of these, each after a `|`:
    on: WORDS       in which of these revisions (*, modern, legacy, newest, a date,
        A.., ..B, A..B) over which of these carriers; !WORD: not in it; !http-DATE: not
        this pair; the default is all. Words of one kind add up: `legacy modern pipe`
        is every revision over pipes, and so is `..2025-06-18 2025-03-26.. pipe`.
        A script with `>>` runs over memory only if `on:` names it
    server: NAME    a function that makes a server for a Stage, here or in the module of
        the script; the default is `fixture`
    client          test the client; connect: {"timeout": 1, "elicit": {"x": 1}} are its
        options (here the callbacks elicit, sample and visit are what they return)
    declare: {...}  the capabilities that the runner declares
    bare            no handshake and no `_meta`
    limits: {"MAX_BATCH": 3}    constants of the modules, in capitals, for this script
    endpoint: {"cors": true}    options of the endpoint; keys: X-Key is `ann` or `bob`
    line: exchanges the lines are single HTTP exchanges: see the class Exchanges
Messages, in either direction:
    > 1 tools/list {"cursor": "x"}      a request; an id is JSON: 1, "1", -5
    > - notifications/cancelled {...}   a notification
    < 1 {"tools": []}                   the result of request 1
    < 1 error {INVALID_PARAMS} uri {"x": 1}     error: code, a word of the message, data
    < ? error {PARSE_ERROR}             an error whose id is null or absent, by revision
    < #q elicitation/create {...}       a request of the server; q is a label for its id
    > #q {"action": "accept"}           the response to it (a result, or error ...)
    > [{...}, {...}]                    a batch
    >> {"id": 1                         bytes; \xff is a byte
Short forms:
    tools/list {...} => {"tools": []}   request 1 and its answer: `> 1` and `< 1`
    :add {"a": 1} => "3"                a call of the tool `add`, and its text
    :roots ? q roots/list {} -> {"roots": []} => {}     before its answer the server
        asks: legacy, `< #q` and `> #q`; modern, an input request and a retry (q is then
        the tool's `key=`, as in `server: core`)
In a script for the client the ids are labels for those that the client chose, and may
be left out: a line then answers the last request: `> tools/list`, `< {"tools": []}`.
There, `<<` are bytes, and over HTTP `<< 404 {"Allow": "GET"} x` is a whole response:
status, headers and body. A message may have members that its line does not name. In
what is expected, null means absent, "*" anything, and "..." that the rest of a list
does not matter. Over memory and pipes messages come in the order of the lines. At the
end nothing may be left that no line expects. Other lines (one that starts with four
spaces continues the line before; # starts a comment):
    [http modern] < 1 {...}             this line only there (words as in `on:`)
    handshake 2025-06-18                again, with this revision
    wait NAME / open NAME / once NAME   wait until NAME is reported (`slow` reports its
        gate, then `GATE passed`) / open the gate / it has been reported once until now:
        `once` does not wait, so a `wait` or an answer comes before it
    ended N                             wait until the server has done with request N,
        which a cancelled one does not tell; over memory only
    changed WHAT / notify METHOD {}     server.changed(WHAT) / notify(METHOD, {}); like
        `open`, they may come before messages on a pipe: a `quiet` first prevents that
    quiet                               the server has sent nothing since
    eof                                 no more input on stdio; the status must be 0
    call NAME 1 {"a": 2} timeout=0.5    start client.NAME(1, {"a": 2}, timeout=0.5), or
        `connect`
    returns {...} / raises NAME word    the outcome of the first call that is not
        settled; NAME is a class, `word` a part of the code, message and data
    exit TEXT                           the played server writes it to stderr, and exits
{VERSION} is the revision, {NEWEST} the newest one, {META} the prefix of reserved keys,
{STATE} and {CURSOR} the last request state and cursor, {ID} and {ID:label} the JSON of
an id, {NO} a declined elicitation, and the name of an error in mcp_ref.ERRORS, as in
{INVALID_PARAMS}, its code. Write `test_this = scripts(r'''...''', "on: modern")`; each
head gets the second text, too. In Python, `with talk("2025-06-18", "pipe",
server="fixture") as t: t("> 1 ping")` plays lines. MCP_REF, MCP_CLIENT: the files under
test; MCP_PATIENCE: seconds to wait before a test fails.
"""

# What has no types here is not checked; the rest must be right.
# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs, implicit-reexport
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-any-generics
# mypy: disable-error-code="union-attr, index, var-annotated, operator, misc"
# mypy: disable-error-code="assignment, return-value, dict-item, no-any-return"

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fnmatch
import functools
import gc
import hashlib
import http.client
import importlib.util
import inspect
import io
import itertools
import json
import linecache
import multiprocessing.connection
import operator
import os
import pickle
import queue
import random
import re
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tokenize
import types
import typing
import uuid
import weakref
import xml.etree.ElementTree as ElementTree
import zipapp
import zipfile
from collections import deque
from collections.abc import (
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union
from unittest import mock

import pytest

# ---- what is tested

HERE = Path(__file__).resolve().parent
PATIENCE = float(os.environ.get("MCP_PATIENCE", "10"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and our servers would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
POSIX, OTHER = os.name == "posix", "Windows has other signals, descriptors and shells"
COVERAGE = {
    name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")
}
parametrize = pytest.mark.parametrize
needs_posix = pytest.mark.skipif(not POSIX, reason=OTHER)
MCP_REF = Path(os.environ.get("MCP_REF", HERE / "mcp_ref.py")).resolve()
MCP_CLIENT = Path(
    os.environ.get("MCP_CLIENT", HERE / "examples" / "mcp_client.py")
).resolve()


def load(name: str, path: Path):
    """Import a file under a name, once."""
    if name in sys.modules and getattr(sys.modules[name], "__file__", "") == str(path):
        return sys.modules[name]
    spec: Any = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if typing.TYPE_CHECKING:
    import mcp_cli as cli
    import mcp_client as client
    import mcp_ref as mcp
    from mcp_ref import Context
else:
    mcp = load("mcp_ref", MCP_REF)
    client = load("mcp_client", MCP_CLIENT)
    cli = load("mcp_cli", HERE / "examples" / "mcp_cli.py")
    Context = mcp.Context

ORDER = list(mcp.REVISIONS)  # newest first
LEGACY = mcp.versions("legacy")
MODERN = mcp.versions("modern")
CARRIERS = ["memory", "pipe", "http"]
META = "io.modelcontextprotocol/"
EVERYTHING = HERE / ".ci" / "everything_server.py"
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
CODES = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row.name).upper().replace("URLE", "URL_E"): code
    for code, row in mcp.ERRORS.items()
}
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
    """Tell whether a revision is one of those from the first to the last; "" is no
    bound."""
    return (
        ORDER.index(last or ORDER[0])
        <= ORDER.index(version)
        <= ORDER.index(first or ORDER[-1])
    )


def exists(row, version: str) -> bool:
    """Tell whether a revision has what a row of the tables describes."""
    return within(version, row.since, row.until)


def begin(function, *arguments, **named):
    """Call a function on a thread of its own; return the Future of its outcome."""

    def run():
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as problem:
            # Without this frame, which knows the future: a cycle would keep sockets
            # open.
            future.set_exception(problem.with_traceback(problem.__traceback__.tb_next))

    future = Future()
    threading.Thread(target=run, daemon=True).start()
    return future


def wait_until(test):
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not test():
        assert time.monotonic() < end
        time.sleep(0.001)


def next_of(came: queue.Queue):
    """Take what comes next out of a queue."""
    __tracebackhide__ = True
    with contextlib.suppress(queue.Empty):
        return came.get(timeout=PATIENCE)
    pytest.fail(f"nothing came within {PATIENCE:g} s")


# ---- the server that most scripts talk to

PNG = b"\x89PNG fake"


class Stage:
    """The gates of a server: a tool stops at one until the script opens it."""

    def __init__(self, report=lambda *words: None):
        self.report = report
        self.gates: dict[str, threading.Event] = {}

    def stop(self, name: str, ctx=None):
        """Report that the gate is reached; wait until it is opened, or `ctx`
        cancelled."""
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
        elif verb == "notify":
            method, _, params = word.partition(" ")
            server.notify(method, json.loads(params))
        else:
            raise ValueError(f"unknown verb {verb}")


def empty(stage: Stage):
    return mcp.Server("empty")


def fixture(stage: Stage, **options):
    """Make a server with some of everything."""
    server = mcp.Server(
        "test",
        "1.2",
        "Use it gently.",
        title="Test",
        websiteUrl="https://example.org",
        **options,
    )
    fixture_tools(server, stage)
    fixture_speaking_tools(server)
    fixture_waiting_tools(server, stage)
    fixture_coroutines(server, stage)
    fixture_resources(server)
    part = {
        name: {"type": kind, "x-mcp-header": name}
        for name, kind in (
            ("region", ["string", "null"]),
            ("n", "integer"),
            ("on", "boolean"),
            ("deep", "string"),
        )
    }
    inner = {"type": "object", "properties": {"deep": part.pop("deep")}}
    server.tool(
        name="place",
        input_schema={
            "type": "object",
            "properties": {**part, "inner": inner, "x": True},
        },
    )(lambda **given: "placed")

    @server.method(
        "example.org/verb", extension="example.org/ext", settings={"level": 3}
    )
    def verb(ctx: Context, params: dict) -> dict:
        got = params["x"] if "x" in params else ctx.elicit("?", x=int)
        return {"got": got, "version": ctx.version}

    return server


def fixture_tools(server, stage: Stage):
    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(
        title="Echo!",
        annotations={"title": "Echoes", "readOnlyHint": True},
        _meta={"k": 1},
        icons=[{"src": "https://example.org/i.png"}],
    )
    def echo(text: str) -> str:
        return text

    @server.tool
    def fail(how: str) -> str:
        raise {
            "value": ValueError("told you"),
            "silent": KeyError(),
            "missing": mcp.NotFound(),
            "own": mcp.RpcError(7, "seven", [7]),
            "reserved": mcp.RpcError(-32000, "not ours"),
            "old": mcp.RpcError(CODES["RESOURCE_NOT_FOUND"], "gone"),
            "unsent": mcp.RpcError(7, "its data is not JSON", ...),
        }[how]

    @server.tool
    def slow(gate: str, ctx: Context) -> str:
        """Report progress, wait at the gate, and report more: not to be sent if
        cancelled."""
        ctx.progress(1)
        stage.stop(gate, ctx)
        ctx.progress(99)
        stage.report(gate + " passed")
        return "cancelled" if ctx.cancelled else "held"


def fixture_speaking_tools(server):
    """Add tools for progress, log messages, questions and notifications."""

    @server.tool
    def steps(ctx: Context) -> str:
        for value in (0, 1, 1, 0.5, 2.5):  # only an increase is sent
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
        except Exception as problem:
            return f"failed: {type(problem).__name__}"

    @server.tool
    def threads() -> str:
        return "few" if threading.active_count() < 20 else "many"

    @server.tool
    def tell(method: str, ctx: Context) -> str:
        ctx.notify(method, {"x": 1})
        return ctx.version


def fixture_waiting_tools(server, stage: Stage):
    """Add tools for streams and ends."""

    @server.tool
    def later(ctx: Context, gates: str = "") -> str:
        for gate in gates or [""]:
            ctx.close_stream()  # hang up, and go on
            if gate:
                stage.stop(gate)
        ctx.notify("notifications/later", {})
        return "later"

    @server.tool
    def quits(ctx: Context, asks: bool = False) -> str:
        if asks:
            ctx.elicit("Quit?")
        params = {"requestId": ctx.id}
        message = {"method": "notifications/cancelled", "params": params}
        ctx.server.handle(message, print, peer=ctx.peer)
        raise KeyboardInterrupt  # not logged

    @server.tool
    def stops(ctx: Context) -> None:
        def told():
            stage.stop("told")
            stage.report("told passed")

        for function in (sys.exit, lambda: 1 / 0, told):
            ctx.on_cancel(function)
        stage.stop("stops")
        ctx.on_cancel(lambda: stage.report("late"))


def fixture_coroutines(server, stage: Stage):
    """Add a tool that is a coroutine."""
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
            return (await asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int))[
                "action"
            ]
        if what == "asks in a group":
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int)
                )
        if what == "awaits":
            asked = ctx.elicit("Which?", key="q", x=int)
            return (await asyncio.wait_for(asked, PATIENCE))["action"]
        # a session would belong to the first loop
        loops.append(asyncio.get_running_loop())
        return f"{len(set(loops))} {threading.current_thread().name}"


def fixture_resources(server):
    server.resource(
        "test://text",
        name="a_text",
        title="Text",
        mime_type="text/plain",
        size=5,
        annotations={"audience": ["user"], "lastModified": "2025-01-01T00:00:00Z"},
    )(lambda: "hello")
    server.resource("test://fails", name="fails")(lambda: 1 / 0)

    @server.resource("test://item/{number}/{part}")
    def item(number: int, part: str) -> str:
        if number == 0:
            raise mcp.NotFound()
        return f"{part!r} of {number!r}"

    server.resource("file:///{+path}", name="a_file", mime_type="text/plain")(
        lambda path: "file " + path
    )

    @server.prompt(title="Greeting")
    def greet(name: str, times: int = 1) -> str:
        """Greet someone."""
        return f"Hello, {name}!" * times

    server.completion("greet", "name")(
        lambda typed: [
            name for name in ("ada", "alan", "grace") if name.startswith(typed)
        ]
    )


# ---- reading scripts


MARK = "\x1f"  # separates the place of a line from the line


class Row(NamedTuple):
    """A line of a script, and where its author finds it: path and number."""

    text: str
    place: str


@functools.cache
def statements(path: str) -> list[tuple[int, int]]:
    """Return the first and the last line of each statement of a file."""
    tree = ast.parse("".join(linecache.getlines(path)))
    return [(node.lineno, node.end_lineno or 0) for node in tree.body]


@functools.cache
def source_of(path: str) -> list[str]:
    """Return the lines of a file, without the quotes around a text."""
    return [
        re.sub(r'^[^"]*"""|"""[^"]*$', "", line.rstrip())
        for line in linecache.getlines(path)
    ]


def marked(text: str, path: str, at: int) -> str:
    """Put before each line of a script its place in the file; look for it from `at` on.

    A head may stand anywhere. Any other line stands behind the line before it, in the
    same statement; in a script, before the next head.
    """
    source = source_of(path)
    name = os.path.relpath(path, HERE) if path.startswith(str(HERE)) else path
    marks, has_heads = [], "== " in text

    for line in text.split("\n"):
        known = re.match(rf"{re.escape(name)}:(\d+){MARK}", line)
        if known:
            at = int(known[1]) - 1
        elif line.strip() and not line.startswith(("    ", "# ")):
            if line.startswith("== "):
                places = [*range(at, len(source)), *range(at)]
            else:
                ends = (
                    end for start, end in statements(path) if start <= at + 1 <= end
                )
                end = next(ends, len(source))
                heads = (n for n in range(at + 1, end) if source[n].startswith("== "))
                places = [*range(at, next(heads, end) if has_heads else end)]
            at = next((n for n in places if source[n] == line.rstrip()), at)
            line = f"{name}:{at + 1}{MARK}{line}"
        marks.append(line)
    return "\n".join(marks)


def rows_of(text: str) -> list[Row]:
    """Return the lines of a text, without comments, each with those that continue
    it."""
    found = []
    for row in re.sub("\n    +", " ", textwrap.dedent(text)).split("\n"):
        place, _, line = row.rpartition(MARK)
        if line.strip() and not line.startswith("# "):
            found += [Row(one, place) for one in exchange_of(line.rstrip())]
    return found


def exchange_of(row: str) -> list[str]:
    """Return the lines that `[ON] REQUEST ? KEY QUESTION -> REPLY => ANSWER` stands
    for."""
    row = re.sub(
        r"(?<!\S):(\w+)(?: (\{.*?\}))?(?= (?:\?|=>|->)|$)",
        lambda call: (
            f'tools/call {{"name": "{call[1]}", "arguments": {call[2] or "{}"}}}'
        ),
        row,
    )
    start, arrow, answer = row.rpartition(" => ")
    if not arrow:
        return [row]
    on, request = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", start).groups("*")
    request, *questions = request.split(" ? ")
    lines = [f"[{on}] > 1 {request}"]
    for question in questions:
        key, name, params, reply = re.fullmatch(
            r"(\S+) (\S+) (.*) -> (.*)", question
        ).groups()
        asked = f'{{"{key}": {{"method": "{name}", "params": {params}}}}}'
        retry = f'{request[:-1]}, "requestState": "{{STATE}}", "inputResponses": '
        lines += [
            f"[{on} !modern] < #{key} {name} {params}",
            f"[{on} !modern] > #{key} {reply}",
            f'[{on} !legacy] < 1 {{"inputRequests": {asked}}}',
            f'[{on} !legacy] > 1 {retry}{{"{key}": {reply}}}}}',
        ]
    text = f'{{"content": [{{"text": {answer}}}]}}'
    return [*lines, f"[{on}] < 1 {text if answer[0] == chr(34) else answer}"]


ON = re.compile(
    r"!?(\*|modern|legacy|newest|memory|pipe|http|(http-)?(@)|(@)?\.\.(@)?)".replace(
        "@", "|".join(ORDER)
    )
)
OPTIONS = {
    "on",
    "server",
    "client",
    "connect",
    "declare",
    "bare",
    "limits",
    "endpoint",
    "keys",
    "line",
}


def meant(word: str, version: str, carrier: str) -> bool:
    """Tell whether a word of `on:` means this revision, or this carrier."""
    first, dots, last = word.partition("..")
    return (
        within(version, first, last)
        if dots
        else word
        in ("*", version, mcp.REVISIONS[version].era, carrier, f"{carrier}-{version}")
        or (word == "newest" and version == ORDER[0])
    )


def select(words: str, carriers=CARRIERS) -> list[tuple[str, str]]:
    """Return the pairs of revision and carrier that the words of `on:` name."""
    unknown = [word for word in words.split() if not ON.fullmatch(word)]
    assert not unknown, f"unknown words in `on:`: {unknown}"
    on = [word for word in words.split() if word in CARRIERS] or carriers
    nots = [word[1:] for word in words.split() if word[0] == "!"]
    dates = [
        word for word in words.split() if word not in CARRIERS and word[0] != "!"
    ] or ["*"]
    return [
        (version, carrier)
        for version in MODERN + LEGACY
        for carrier in on
        if (POSIX or carrier != "pipe")
        and any(meant(word, version, carrier) for word in dates)
        and not any(meant(word, version, carrier) for word in nots)
    ]


def scripts(text: str, common: str = ""):
    """Make a test function of a text of scripts, whose heads have `common` options."""
    caller = sys._getframe(1)
    text = marked(text, caller.f_code.co_filename, caller.f_lineno - 1)
    found: list[tuple[Row, list[Row]]] = []
    for row in rows_of(text):
        if row.text.startswith("== "):
            found.append((row, []))
        else:
            found[-1][1].append(row)

    cases, slugs = [], set[tuple[str, int]]()
    for (head, place), rows in found:
        title, *options = re.split(r" *\| *", f"{head[3:]} | {common}".rstrip(" |"))
        given = {
            name: value_of(value.strip())
            for name, _, value in (
                option.partition(":") for option in reversed(options)
            )
        }
        assert set(given) <= OPTIONS, f"{place}: unknown option in {head}"
        given.update(module=caller.f_globals["__name__"], place=place, title=title)
        raw = any(">> " in row.text[:30] for row in rows)
        carriers = CARRIERS[raw : 3 if "client" in given else 2]
        slug = given["slug"] = slug_of(title, slugs)
        for pair in select(given.get("on", "*"), carriers):
            cases.append(pytest.param(*pair, given, rows, id="-".join([slug, *pair])))

    @parametrize("version, carrier, head, rows", cases)
    def test(version, carrier, head, rows):
        __tracebackhide__ = True  # by pytest: the line that fails says it all
        with talk(version, carrier, **head) as conversation:
            for row in rows:
                conversation.play(*row)

    return test


def slug_of(title: str, taken: set[tuple[str, int]]) -> str:
    """Return the first words of a title, for `-k`; a number makes it another."""
    words = re.findall("[a-z0-9]+", re.sub("(?<=[a-z])'(?=[a-z])", "", title.lower()))
    words = [word for word in words if word not in SMALL][:4] or words
    slug = "_".join(words)[:48]
    number = next(n for n in itertools.count(1) if (slug, n) not in taken)
    taken.add((slug, number))
    return slug if number == 1 else f"{slug}_{number}"


SMALL = set(
    "a an and are as at by for has have in is its not of on or that the to".split()
)


def each(template: str, rows: str) -> str:
    """Return a script for each line of `rows`, of which @1 is the first column.

    Its head stands where that line does, its other lines where the template has them.
    """
    caller, found = sys._getframe(1), ""
    path = caller.f_code.co_filename
    template = marked(template, path, caller.f_lineno - 1)
    first = re.search(rf":(\d+){MARK}", template)
    rows = marked(rows, path, int(first[1]) if first else caller.f_lineno)
    for line in re.sub("\n    +", " ", rows).strip("\n").splitlines():
        place, _, values = line.rpartition(MARK)
        columns = [part.strip() for part in values.split(" | ")]
        script = re.sub(r"@(\d)", lambda match: columns[int(match[1]) - 1], template)
        place = place.replace("\\", r"\\")  # of Windows, in a template
        found += re.sub(rf"(?m)^.*{MARK}(?=== )", place + MARK, script)
    return found


def value_of(text):
    """Return the value that a text encodes as JSON, or the text itself."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


MESSAGE = re.compile(
    r"""
    (?: (?P<label> [?-] | \#\w+ | -?\d+ | "[^"]*" ) [ ]+ )?
    (?: error [ ] (?P<code> -?\d+ ) [ ]? (?P<word> [^{[]*? ) [ ]? (?P<data> [{[].* )?
      | (?P<method> (?!null) [a-z$][^ ]* ) [ ]? (?P<params> \{.* )?
      | (?P<result> .+ ) )""",
    re.VERBOSE | re.DOTALL,
)


def message_of(text: str) -> tuple[str, Any]:
    """Read a line: return the label, and the message, or what is named of it."""
    if text.startswith("["):
        return "", json.loads(text)
    found = MESSAGE.fullmatch(text).groupdict()
    message = {
        name: json.loads(found[name]) for name in ("params", "result") if found[name]
    }
    if found["method"]:
        message["method"] = found["method"]
    if found["code"]:
        message["error"] = {"code": int(found["code"]), "message": found["word"]}
        message["error"].update(
            {"data": json.loads(found["data"])} if found["data"] else {}
        )
    return found["label"] or "", message


ABSENT = "(nothing)"


def differences(wanted, came, place: str = "/") -> list[str]:
    """List where `came` lacks what is wanted."""
    if wanted is None and came in (None, ABSENT) or wanted == "*" and came != ABSENT:
        return []
    if isinstance(wanted, list) and isinstance(came, list):
        if wanted[-1:] == ["..."]:
            wanted, came = wanted[:-1], came[: len(wanted) - 1]
        pairs: Any = enumerate(itertools.zip_longest(wanted, came, fillvalue=ABSENT))
    elif isinstance(wanted, dict) and isinstance(came, dict):
        pairs = ((key, (wanted[key], came.get(key, ABSENT))) for key in wanted)
    else:
        same = wanted == came and type(wanted) is type(came)
        return (
            [] if same else [f"{place}: expected {wanted!r:.300}, came {came!r:.600}"]
        )
    return [
        line
        for key, (one, other) in pairs
        for line in differences(one, other, f"{place}{key}/")
    ]


# ---- what must hold of every message

LISTED = {
    "tools": "tool",
    "resources": "resource",
    "prompts": "prompt",
    "resourceTemplates": "template",
    "content": "*",
}


def params_of(message) -> tuple[dict, dict, Any]:
    """Return the params of whatever came, their `_meta`, and the revision that is named
    there."""
    params = message.get("params") if isinstance(message, dict) else None
    params = params if isinstance(params, dict) else {}
    meta = params["_meta"] if isinstance(params.get("_meta"), dict) else {}
    return params, meta, meta.get(META + "protocolVersion")


class Referee:
    """Watches both directions of a conversation; its keys are `>` or `<` and the JSON
    of an id."""

    def __init__(self, version: str):
        self.version = version  # of the session, "" as long as there is none
        # requests under way: method, and whether it is modern
        self.open: dict[str, list] = {}
        self.seen: set[str] = set()  # requests of the side under test

    def note(self, message, arrow: str):
        """Remember requests until they are answered or cancelled."""
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
            assert (
                not row or arrow in row.way and (not version or exists(row, version))
            ), row
            if "id" in one:
                key = arrow + json.dumps(one["id"])
                assert mcp.is_id(one["id"]) and key not in self.seen, (
                    "an id was used twice"
                )
                assert arrow == ">" or not modern and self.version in LEGACY, (
                    "must not ask"
                )
                assert not modern or isinstance(
                    meta.get(META + "clientCapabilities"), dict
                )
                self.seen.add(key)
            self.note(one, arrow)

    def response(self, message: dict, asker: str):
        assert ("result" in message) != ("error" in message), message
        if "error" in message:
            error, row = message["error"], mcp.ERRORS.get(message["error"]["code"])
            assert type(error["code"]) is int and isinstance(error["message"], str), (
                error
            )
            assert set(error) <= {"code", "message", "data"}, error
            assert row or not -32768 <= error["code"] <= -32000, "a reserved code"
            assert not row or not self.version or exists(row, self.version), (
                "not this revision's"
            )
        if message.get("id") is None:
            null = exists(mcp.FEATURES["null id in errors"], self.version or MODERN[0])
            assert "error" in message and ("id" in message) is null, (
                "null, or absent since then"
            )
            return
        key = asker + json.dumps(message["id"])
        assert self.open.get(key), (
            "a response that nobody waits for, or to a cancelled request"
        )
        method, modern = self.open[key].pop()
        if "result" in message and asker == ">":
            self.result(method, modern, message["result"])

    def result(self, method: str, modern: bool, result: dict):
        """Check the result of a server: its members are those of the revision."""
        row, kind = mcp.METHODS.get(method), result.get("resultType")
        hints = len({"ttlMs", "cacheScope"} & set(result))
        assert (kind is not None) == modern, "resultType is of the modern era"
        assert not row or hints == 2 * (row.cacheable and kind == "complete"), (
            "caching hints"
        )
        if kind == "input_required":
            asked = result["inputRequests"].values()
            assert not row or row.asks, "may not ask"
            assert all(
                "<" in mcp.METHODS[one["method"]].way and "id" not in one
                for one in asked
            )
        if modern:
            assert isinstance(result["_meta"][META + "serverInfo"]["name"], str), result
        elif method == "initialize":
            self.version = result["protocolVersion"]
        version = MODERN[0] if modern else self.version
        hidden = {
            name
            for row in mcp.FEATURES.values()
            if version and not exists(row, version)
            for name in row.fields.split()
        }
        shown = {
            f"{kind}.{key}"
            for member, of in LISTED.items()
            for item in result.get(member, [])
            for key in item
            for kind in (of, "*")
        } | {"result." + key for key in result}
        assert not shown & hidden, (result, shown & hidden)


# ---- playing scripts: a Talk sends what one side says, and expects what the other one
# should say

GREETING = """
[legacy] initialize {"protocolVersion": "{VERSION}", "capabilities": {DECLARED},
    "clientInfo": {"name": "runner", "version": "1"}} => {"protocolVersion": "{VERSION}"}
[legacy] > - notifications/initialized
"""
PLAYED_GREETING = """
call connect
[modern !newest] server/discover => error {UNSUPPORTED_PROTOCOL_VERSION} no
    {"supported": ["{VERSION}"], "requested": "{NEWEST}"}
[modern] server/discover => {"supportedVersions": ["{VERSION}"], "capabilities": {DECLARED}}
[legacy] server/discover => error {METHOD_NOT_FOUND}
[legacy] initialize => {"protocolVersion": "{VERSION}", "capabilities": {DECLARED}}
[legacy] > - notifications/initialized
returns {}
"""
OFFERS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}


class Flaw(AssertionError):
    """A line of a script failed; the text says which one."""


class Talk:
    """One conversation; calling it with a text plays the lines."""

    def __init__(self, version: str, carrier: str, options: dict, stack):
        self.version, self.carrier, self.options, self.stack = (
            version,
            carrier,
            options,
            stack,
        )
        self.place = options.get("place", "")
        self.played, self.bare = "client" in options, "bare" in options
        self.ours, self.theirs = "<>" if self.played else "><"
        self.referee = Referee("" if self.bare and not self.played else version)
        self.changed = threading.Condition()
        self.came = []  # messages that no line has expected yet
        self.reached: list[str] = []  # what was reported
        self.problems: list[BaseException] = []
        self.calls = []
        self.names = {
            **{name: str(code) for name, code in CODES.items()},
            "META": META,
            "VERSION": version,
            "NEWEST": ORDER[0],
            "NO": '{"action": "decline"}',
            "DECLARED": json.dumps(
                options.get("declare", OFFERS if self.played else {})
            ),
        }
        self.verbs: dict[str, Any] = {
            self.ours: self.send,
            self.theirs: self.expect,
            self.ours * 2: self.send_raw,
            "handshake": self.handshake,
            "call": self.call,
            "quiet": self.quiet,
            "returns": self.returns,
            "raises": self.raises,
            "wait": lambda name: self.until(
                lambda: name in self.reached, f"the gate {name}"
            ),
            "once": self.once,
            "ended": self.ended,
            "finish": lambda _: self.finish(),
        }
        self.line = WIRES[options.get("line", carrier)][self.played](self)

    def __call__(self, text: str):
        for row in rows_of(text):
            self.play(*row)

    def play(self, row: str, place: str = ""):
        """Play one line; if it fails, show it and its place."""
        __tracebackhide__ = True
        self.place = place or self.place
        try:
            words, line = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", row).groups("")
            if (self.version, self.carrier) in select(words):
                verb, _, rest = re.sub(
                    r"\{(\w+(:[^}]+)?)\}", self.named, line
                ).partition(" ")
                act = self.verbs.get(verb) or functools.partial(self.line.act, verb)
                act(rest.strip())
        except Flaw:
            raise
        except Exception as problem:
            # The rest is about the runner.
            said = str(problem).partition("\nassert ")[0]
            raise Flaw(f"{self.where(row)}\n{type(problem).__name__}: {said}") from None

    def where(self, row: str) -> str:
        """Say which line of which script is played, as it is written and as it is
        played."""
        head, over = self.options.get("place"), f"{self.version} over {self.carrier}"
        if not head:
            return f"{over}:\n    {row:.500}"
        path, _, number = self.place.rpartition(":")
        source = linecache.getline(str(HERE / path), int(number)).strip()
        played = f"\n    played as {row:.500}" if row != source else ""
        ident = "-".join([self.options["slug"], self.version, self.carrier])
        title = f"    == {self.options['title']}   [{ident}]\n"
        script = f"in the script at {head}, {over}:\n{title}"
        return f"{self.place}: {script}    {source}{played}"

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
                    assert message.endswith(b"\n") and message.isascii(), (
                        "not one line of ASCII"
                    )
                    message = json.loads(message)
                self.referee.check(message, self.theirs)
            except Exception as problem:
                self.report(
                    problem=AssertionError(
                        f"{message!r:.500}: {type(problem).__name__}: {problem}"
                    )
                )
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
            assert found, (
                f"{what} did not come in {PATIENCE:g} s; unread: {self.came!r:.1000}"
            )
            return found

    # ---- messages

    def ident(self, label: str):
        """Return the id that a label stands for; without a label, that of the last
        request."""
        return value_of(
            self.names.get(f"ID:{label}" if label else "ID", label.lstrip("#"))
        )

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
                META + "clientInfo": {"name": "runner", "version": "1"},
                **params.get("_meta", {}),
            }
        elif (
            self.played
            and asked
            and asked[-1][1]
            and isinstance(message.get("result"), dict)
        ):
            message["result"] = {
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                **message["result"],
            }

    def send_raw(self, text: str):
        """Send bytes; if they are a message the referee takes note."""
        data = re.sub(
            rb"\\x([0-9a-f]{2})",
            lambda match: bytes([int(match[1], 16)]),
            text.encode(),
        )
        message = value_of(data)
        self.referee.note(message, self.ours)
        self.line.send(data, message)

    def expect(self, text: str):
        label, wanted = message_of(text)
        head: Any = ["..."]
        keyword = ""
        if isinstance(wanted, dict):
            ident = "*" if "method" in wanted else self.ident(label)
            wanted = {
                "id": None if label in ("-", "?") else ident,
                "method": None,
                **wanted,
            }
            head = {key: wanted[key] for key in ("id", "method")}
            keyword = wanted.get("error", {}).pop("message", "").lower()
        came = self.until(
            lambda: [
                one
                for one in self.came
                if self.carrier != "http" or not differences(head, one)
            ],
            text,
        )[0]
        self.came.remove(came)
        for name, key in (("STATE", "requestState"), ("CURSOR", "nextCursor")):
            for value in re.findall(rf'"{key}": "(.*?)"', json.dumps(came)):
                self.names[name] = value
        flaws = differences(
            wanted, {"params": {}, **came} if isinstance(came, dict) else came
        )
        flaws += (
            [] if keyword in json.dumps(came).lower() else [f"no {keyword!r} in it"]
        )
        assert not flaws, "\n".join([*flaws, f"in {json.dumps(came)[:2000]}"])
        self.name(label, came)

    # ---- other verbs

    def handshake(self, version: str = ""):
        """Open a session, if it is that era; as a client, or as the server of one."""
        self.version = self.referee.version = self.names["VERSION"] = (
            version or self.version
        )
        self(PLAYED_GREETING if self.played else GREETING)

    def call(self, text: str):
        """Start a call of the client on a thread."""
        name, *words = re.findall(r"""[{["].*?[]}"](?= |$)|\S+""", text)
        named = dict(word.split("=") for word in words if re.match(r"\w+=", word))
        words = [value_of(word) for word in words if not re.match(r"\w+=", word)]
        function = self.connect if name == "connect" else getattr(self.client, name)
        self.calls.append(
            begin(function, *words, **{k: value_of(v) for k, v in named.items()})
        )
        self.calls[-1].add_done_callback(lambda _: self.report())

    def connect(self, more=()):
        options = {**self.options.get("connect", {}), **dict(more)}
        for key in {"elicit", "sample", "visit"} & set(options):  # what those return
            options[key] = functools.partial(lambda value, *_: value, options[key])
        self.client = self.stack.enter_context(
            client.connect(self.line.target, **options)
        )
        return self.client

    def outcome(self):
        """Return the result, or the exception, of the first call that is not
        settled."""
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
        said = (
            f"{getattr(value, 'code', '')} {value} {getattr(value, 'data', '')}".lower()
        )
        assert name in [kind.__name__ for kind in type(value).__mro__], (
            f"instead: {value!r}"
        )
        assert word.lower() in said, f"no {word!r} in {said}"

    def quiet(self, text: str):
        """Let a request and its response pass: nothing else may have come."""
        self.send(
            '"quiet" ' + ("server/discover" if self.version in MODERN else "ping")
        )
        self.expect('"quiet" {}')
        assert not self.came, self.came

    def ended(self, ident: str):
        """Wait until the server has done with a request, answered or not."""
        peer = getattr(self.line, "peer", None)
        assert peer, "`ended` looks at the peer, which is here over memory only"
        key = json.loads(ident)
        self.until(lambda: key not in peer.running, f"the end of request {ident}")

    def once(self, name: str):
        assert self.reached.count(name) == 1, self.reached

    def finish(self):
        """End the conversation; nothing may be owed, and nothing may have come
        unexpected."""
        assert not self.calls, "a call was not settled"
        if not self.played:
            for key, asked in list(self.referee.open.items()):
                if ("subscriptions/listen", True) in asked:
                    self.send(f'- notifications/cancelled {{"requestId": {key[1:]}}}')
            self.stack.close()
            owed = [
                key
                for key, asked in self.referee.open.items()
                if key[0] == ">" and asked
            ]
            assert not owed, f"never answered: {owed}"
        assert not self.came, f"unexpected: {json.dumps(self.came)[:1000]}"
        assert not self.problems, self.problems[0]


def make_server(options: dict, stage: Stage):
    """Call the function that `server:` names, here or in the module of the script."""
    module = importlib.import_module(options.get("module", __name__))
    name = options.get("server", "fixture")
    return (getattr(module, name, None) or globals()[name])(stage)


@contextlib.contextmanager
def talk(version: str, carrier: str, **options):
    """Hold a conversation: with a server, or as one if `client` is among the
    options."""
    with limits(**options.get("limits", {})), contextlib.ExitStack() as stack:
        conversation = Talk(version, carrier, options, stack)
        if not conversation.bare:
            conversation.handshake()
        yield conversation
        conversation.play("finish", options.get("place", ""))


# ---- carriers: send(data, message), act(verb, word); what comes goes to Talk.put()


class Memory:
    """Calls `handle`, each message on a thread of its own, which has admitted it when
    we go on."""

    def __init__(self, talk: Talk):
        self.talk, self.stage, self.running = talk, Stage(talk.report), []
        self.server = make_server(talk.options, self.stage)
        self.act = functools.partial(self.stage.act, self.server)
        self.deliver = lambda message: talk.put(mcp.encode(message))
        self.peer = mcp.Peer(self.deliver)
        talk.stack.callback(self.close)
        talk.stack.callback(self.peer.close)

    def send(self, data: bytes, message):
        before = len(self.talk.reached)
        future = begin(
            self.server.handle, mcp.decode(data), self.deliver, peer=self.peer
        )
        future.add_done_callback(lambda _: self.talk.report(problem=future.exception()))
        self.running.append(future)
        self.talk.until(
            lambda: len(self.talk.reached) > before or future.done(), "a report"
        )

    def close(self):
        for gate in list(self.stage.gates.values()):
            gate.set()
        if wait(self.running, PATIENCE).not_done:
            self.talk.report(problem=AssertionError("a handler still runs"))


def http_serving(server, **options):
    """Serve over loopback HTTP; return a context, whose value has a `server_port` and a
    `url`."""
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
    """Make one HTTP exchange; return status, headers (lower case) and body, decoded if
    JSON."""
    with request_to(*request).getresponse() as answer:
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, value_of(answer.read())


def event_of(answer) -> dict[str, str]:
    """Read the next event of a stream: its fields, or none at its end."""
    lines = iter(lambda: answer.readline().decode().rstrip("\n"), "")
    with contextlib.suppress(socket.timeout):
        return dict(line.partition(": ")[::2] for line in lines)
    raise AssertionError(f"neither an event nor the end came within {PATIENCE:g} s")


def headers_of(message) -> dict[str, str]:
    """Make the headers that belong to a message: those of the modern era repeat its
    members."""
    (params, _, version), method = params_of(message), str(message.get("method"))
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if version is not None:
        headers.update({"MCP-Protocol-Version": str(version), "Mcp-Method": method})
        name = params.get(MIRRORED.get(method))
        headers.update({"Mcp-Name": mcp.mirror(name)} if isinstance(name, str) else {})
    return headers


# A process that has imported this file, and forks a server in 5 ms.
FORKS: Any = multiprocessing.get_context("forkserver" if POSIX else "spawn")
if POSIX:
    FORKS.set_forkserver_preload([__name__])


def serve_forked(options: dict, source, out, control):
    """Serve on stdio in a process of its own, and obey the commands that come from the
    test."""

    def obey():
        while True:
            stage.act(server, *control.recv())
            stage.report("acted")

    os.dup2(source.fileno(), 0)
    os.dup2(out.fileno(), 1)
    stage = Stage(control.send)
    server = make_server(options, stage)
    begin(obey)
    with limits(**options.get("limits", {})):
        server.run([])


class Pipe:
    """Talks to a process that serves stdio; its stderr is ours."""

    def __init__(self, talk: Talk):
        self.talk = talk
        (source, self.stdin), (self.stdout, out) = FORKS.Pipe(False), FORKS.Pipe(False)
        self.control, control = FORKS.Pipe()
        self.process = FORKS.Process(
            target=serve_forked, daemon=True, args=(talk.options, source, out, control)
        )
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
            self.talk.report(
                problem=AssertionError(f"exit status {self.process.exitcode}")
            )


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


class PlayedPipe(
    Listener, getattr(socketserver, "UnixStreamServer", socketserver.TCPServer)
):
    """A process that hands over its stdin and stdout, and exits at the end of its
    input."""

    PROGRAM = """if True:
        import os, socket, sys
        link = socket.socket(socket.AF_UNIX)
        link.connect(sys.argv[1])
        socket.send_fds(link, [b"."], [0, 1])
        os.closerange(0, 2)
        sys.exit(link.recv(99).decode() or 0)"""

    def __init__(self, talk: Talk):
        pipes: Any = multiprocessing.connection
        path = pipes.arbitrary_address("AF_UNIX")
        super().__init__(path)
        self.talk, self.target = (
            talk,
            [sys.executable, "-S", "-E", "-c", self.PROGRAM, path],
        )
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
    lines = [
        f"{name}: {value}\r\n"
        for name, value in {**headers, "Connection": "close"}.items()
    ]
    return f"HTTP/1.1 {status} -\r\n{''.join(lines)}\r\n{body or ''}".encode()


class Site(Listener, socketserver.TCPServer):
    """An HTTP server that sends the bytes which `answer(verb, headers, message)`
    yields."""

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0))
        self.answer = answer
        self.asked = []  # verb, headers (lower case) and message
        self.url = self.target = f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def finish_request(self, connection, _):
        with connection.makefile("rb") as file, contextlib.suppress(OSError):
            for part in self.answer(*self.read(file)):
                connection.sendall(part)

    def read(self, file):
        """Read a request."""
        verb, path = file.readline().decode().split()[:2]
        lines = [
            line.decode().strip().split(": ", 1)
            for line in iter(file.readline, b"\r\n")
        ]
        headers = {":path": path, **{name.lower(): value for name, value in lines}}
        message = json.loads(file.read(int(headers.get("content-length", 0))) or "{}")
        self.asked.append((verb, headers, message))
        return self.asked[-1]


class Fickle(Site):
    """An HTTP server that keeps a connection until its second request has come: all of
    it, or its first byte."""

    def __init__(self, answer, reads_all: bool):
        super().__init__(answer)
        self.reads_all = reads_all
        self.connections = 0

    def finish_request(self, connection, address):
        self.connections += 1
        super().finish_request(connection, address)
        with connection.makefile("rb") as file:
            with contextlib.suppress(OSError, ValueError):  # none comes
                self.read(file) if self.reads_all else file.read(1)


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
            status, headers, body = re.fullmatch(
                r"(\d+) (\{.*?\}) ?(.*)", data.decode()
            ).groups()
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
            status = (
                STATUS.get(one.get("error", {}).get("code"), 200) if modern else 200
            )
            session = {"Mcp-Session-Id": "s1"} if method == "initialize" else {}
            yield http_answer(
                status, {"Content-Type": "application/json", **session}, json.dumps(one)
            )
        self.posts.pop(method and json.dumps(message.get("id")), None)

    def close(self):
        for said in list(self.posts.values()):
            said.put(b"")
        super().close()


WIRES: dict[str, tuple[Any, Any]] = {
    "memory": (Memory, PlayedMemory),
    "pipe": (Pipe, PlayedPipe),
    "http": (None, PlayedHttp),
}


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

# The answer to lines that are not messages.
JUNK = {
    "? error {PARSE_ERROR}": [
        "{",
        "[NaN]",
        "-Infinity",
        "[" * 20000,
        r'{"id": 1, "x": "\xff"}',
    ],
    "? error {INVALID_REQUEST}": ["true", '"x"', "null", "{}", "[]"],
    "? error {INVALID_REQUEST} id": [
        f'{{"jsonrpc": "2.0", "id": {wrong}, "method": "ping"}}'
        for wrong in ("null", "true", "1.0", "{}")
    ],
    '"a" error {INVALID_REQUEST} jsonrpc': [
        '{"id": "a", "method": "ping"}',
        '{"jsonrpc": "1.0", "id": "a", "method": "ping"}',
    ],
    "1 error {INVALID_REQUEST} method": [
        f'{{"jsonrpc": "2.0", "id": 1, {wrong}}}'
        for wrong in (
            '"method": 7',
            '"x": 1',
            '"method": "x", "params": [1]',
        )
    ],
}
test_junk = scripts(
    "== junk, even blank lines or a BOM, stops no stream\n"
    + "".join(
        f">> {line}\n< {answer}\n" for answer, lines in JUNK.items() for line in lines
    )
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


# ======== The core: what is offered, listed, called and read, in each revision


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
        return {
            "a": [
                ctx.method,
                ctx.version,
                ctx.client_info["name"],
                ctx.principal,
                *watched,
            ]
        }

    core_results(server)
    core_resources(server)
    return server


def core_results(server):
    """Add tools by what they return."""

    @server.tool
    def contents() -> list:
        return [
            mcp.text(
                "t", annotations={"priority": 1, "lastModified": "2025-01-01T00:00:00Z"}
            ),
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


def core_questions(server):
    """Add tools that ask, each question in one form."""

    def asks(question: dict):
        def tool(ctx: Context) -> str:
            return "answered" if ctx.ask({"q": question})["q"] else ""

        return tool

    for name, question in {
        "form": mcp.elicitation(
            "Go?",
            kind={"type": "string", "enum": ["a"], "default": "a"},
            sure=(bool, True),
            age={"type": "integer", "minimum": 0},
        ),
        "page": mcp.elicitation("Sign in", url="https://example.org/in"),
        "roots": mcp.roots(),
        "think": mcp.sampling("Hi", max_tokens=5, systemPrompt="Be brief."),
        "tools": mcp.sampling(
            [], tools=[{"name": "t", "inputSchema": {"type": "object"}}]
        ),
    }.items():
        server.tool(name=name)(asks(question))
    core_rounds(server)


def core_rounds(server):
    """Add tools that ask several questions."""
    runs = []

    @server.tool
    def rounds(ctx: Context, x: int = 0) -> str:
        runs.append(x)
        one = ctx.elicit("One?", key="one", one=int)["action"]
        return (
            f"{one} {ctx.elicit('Two?', key='two', two=int)['action']} in {len(runs)}"
        )

    @server.tool
    def together(ctx: Context) -> str:
        return json.dumps(
            sorted(
                ctx.ask(
                    {
                        "who": mcp.elicitation("Who?", name=str),
                        "model": mcp.sampling("Hi", max_tokens=9),
                        "where": mcp.roots(),
                    }
                )
            )
        )

    @server.tool
    def twice(ctx: Context, key: str = "") -> str:
        try:
            return (
                ctx.elicit("?", key=key)["action"]
                + ctx.elicit("?", key=key and "b")["action"]
            )
        except ValueError as problem:
            return "refused" if "key" in str(problem) else str(problem)


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
[modern] > 2 subscriptions/listen {"notifications": {"example.org/news": true}}
[modern] < - notifications/subscriptions/acknowledged {"notifications": {}}
[modern] > 3 subscriptions/listen {"notifications": {"toolsListChanged": true}}
[modern] < - notifications/subscriptions/acknowledged
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


def modern(method: str, ident=1, **params) -> dict:
    """Return a request of the newest revision."""
    return {
        "jsonrpc": "2.0",
        "id": ident,
        "method": method,
        "params": {
            **params,
            "_meta": {
                META + "protocolVersion": MODERN[0],
                META + "clientCapabilities": {"elicitation": {}},
            },
        },
    }


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
[modern] :guests => {"inputRequests": {"a": {}, "b": null}}
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


def test_each_key_has_an_answer_of_its_own_in_the_modern_era():
    server, state, given = questions(Stage()), None, {}
    for key, name in (("a", "Ann"), ("b", "Bob"), ("c", "Cay")):
        retry = {"requestState": state, "inputResponses": given} if state else {}
        asked = ask(server, "tools/call", name="guests", **retry)
        assert key in asked["inputRequests"]
        state = asked["requestState"]
        given = {key: {"action": "accept", "content": {"name": name}}}
    given["d"] = {"action": "accept", "content": {"name": "Dan"}}
    said = ask(
        server, "tools/call", name="guests", requestState=state, inputResponses=given
    )
    assert said["content"][0]["text"] == "Ann Bob Cay Dan"


OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {},
    },
}
READY = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'


def ask(server, method: str, principal=None, **params):
    """Return the result, or the error, of such a request."""
    sent = []
    server.handle(modern(method, **params), sent.append, principal=principal)
    return sent[-1].get("result") or sent[-1]["error"]


def test_state_is_bound_to_the_principal_and_shared_by_the_key():
    one, two, other = (
        mcp.Server("s", state_key=key) for key in ("k" * 16, b"k" * 16, None)
    )
    for server in (one, two, other):
        core_questions(server)
    ann = ["ann", {"sub": 1}]
    state = ask(one, "tools/call", ann, name="rounds")["requestState"]
    for server, principal, good in (
        (one, ann, True),
        (two, ["ann", {"sub": 1}], True),
        (two, "bob", False),
        (two, None, False),
        (other, ann, False),
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

    peer = mcp.Peer(sent.put)
    for message in (OPENING, json.loads(READY)):
        server.handle(message, lambda _: None, peer=peer)
    params = {"name": "asks", "arguments": {}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    begin(server.handle, call, sent.put, peer=peer)
    assert next_of(sent)["method"] == "elicitation/create"
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    server.handle({"jsonrpc": "2.0", **cancel}, sent.put, peer=peer)
    assert "cancelled" in next_of(ended)
    peer.close()
    # With an id of its own: that of the first call is in use until its handler returns.
    begin(server.handle, {**call, "id": 3}, sent.put, peer=peer)
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
        return ask(
            server,
            "tools/call",
            name="delete",
            **state,
            inputResponses={
                name: {"action": "decline"} for name in asked["inputRequests"]
            },
        )

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
    server, sent = mcp.Server("s"), []

    @server.tool
    def asks(ctx: Context) -> str:
        return str(ctx.elicit("?", schema={"properties": {"a": {"type": "string"}}}))

    peer, hello = mcp.Peer(sent.append), {"capabilities": {"elicitation": {}}}
    hello = {**hello, "protocolVersion": LEGACY[0], "clientInfo": {}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    server.handle(first, sent.append, peer=peer)
    server.handle(json.loads(READY), sent.append, peer=peer)
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    call["params"] = {"name": "asks"}
    called = begin(server.handle, call, sent.append, peer=peer)
    wait_until(lambda: sent[-1].get("method") == "elicitation/create")
    result = {"action": "accept", "content": [1]}
    response = {"jsonrpc": "2.0", "id": sent[-1]["id"], "result": result}
    server.handle(response, sent.append, peer=peer)
    called.result(PATIENCE)
    assert "not valid" in sent[-1]["result"]["content"][0]["text"]


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
        said = await asyncio.to_thread(
            ask,
            server,
            "tools/call",
            name="coroutine",
            arguments={"what": "awaits"},
        )
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
    server = subprocess.Popen(
        [sys.executable, "-c", MEETING % (2 * PATIENCE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=MCP_REF.parent,
    )
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
    with monkeypatch.context() as without:
        without.setattr(mcp, "LegacyContext", Context)
        server.handle(OPENING, ran.append)
    assert ran.pop()["error"]["code"] == CODES["UNSUPPORTED_PROTOCOL_VERSION"]
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
            assert send_http(site, b"") == ""
        assert send_http(site, LAST).startswith("HTTP/1.1 200 ")
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
    mcp.run_aside("x", lambda: ran.append(1) or 1 / 0)
    assert ran


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


def session_that_is_asked(server, sent):
    """Open a legacy session whose client fills in forms; what it hears is in `sent`.

    Returns a function that begins to serve a message from it, given by its members.
    """
    peer = mcp.Peer()

    def serve(**message) -> Future:
        return begin(server.handle, {"jsonrpc": "2.0", **message}, sent.put, peer=peer)

    hello = {**OPENING["params"], "capabilities": {"elicitation": {}}}
    serve(id=1, method="initialize", params=hello).result(PATIENCE)
    serve(method="notifications/initialized").result(PATIENCE)
    assert "result" in next_of(sent)
    return serve


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


def test_one_answer_that_is_not_valid_ends_the_wait_for_all():
    server, sent = mcp.Server("s"), queue.Queue()

    @server.tool
    def asks(ctx: Context) -> str:
        one, two = mcp.elicitation("A?", x=int), mcp.elicitation("B?", x=int)
        return str(ctx.ask({"a": one, "b": two}))

    serve = session_that_is_asked(server, sent)
    call = serve(id=2, method="tools/call", params={"name": "asks"})
    next_of(sent)
    ident = next_of(sent)["id"]
    serve(id=ident, result={"action": "perhaps"}).result(PATIENCE)
    call.result(PATIENCE)
    assert next_of(sent)["method"] == "notifications/cancelled"
    assert "not valid" in words_of(next_of(sent)["result"])


def test_a_change_is_told_only_to_those_who_asked_for_it_in_their_filter():
    server, sent = mcp.Server("s"), []
    wanted = {"notifications/tools/list_changed": True, "example.org/news": True}
    server.handle(modern("subscriptions/listen", notifications=wanted), sent.append)
    server.tool(lambda: None, name="new")
    server.changed("tools")
    server.notify("example.org/news")
    assert [one["method"] for one in sent[1:]] == ["example.org/news"]
    with pytest.raises(ValueError, match="expected"):
        server.changed("roots")


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


def test_a_result_that_cannot_be_shaped_is_an_error_for_the_client(capfd):
    server, sent = mcp.Server("s"), []
    server.tool(lambda: mcp.Result({"_meta": 7}), name="odd")
    server.handle(modern("tools/call", name="odd"), sent.append)
    assert sent[0]["error"]["code"] == CODES["INTERNAL_ERROR"]
    assert "tools/call failed" in capfd.readouterr().err


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
        ("changed()", lambda s: s.notify("notifications/tools/list_changed")),
        ("clients", lambda s: s.notify("notifications/initialized")),
        ("JSON", lambda s: s.notify("example.org/x", {"x": ...})),
        ("titel", lambda s: s.tool(titel="x")(lambda: "")),
        ("resource(", lambda s: s.resource(lambda: "")),
        ("x://{a}/{a}", lambda s: s.resource("x://{a}/{a}")),
        ("readonlyHint", lambda s: s.tool(annotations={"readonlyHint": 1})(lambda: "")),
        (
            "lastmodified",
            lambda s: s.resource("x:", annotations={"lastmodified": 1})(lambda: ""),
        ),
        ("x:{a}{b}", lambda s: s.resource("x:{a}{b}")(lambda a, b: "")),
        ("ftp", lambda s: client.connect("ftp://x")),
        ("1999", lambda s: client.connect(s, revision="1999-01-01")),
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


def test_a_hidden_tool_is_not_given_away_by_its_headers():
    class Hiding(mcp.Server):
        def offered(self, kind, ctx):
            return super().offered(kind, ctx) if ctx.principal == "ann" else {}

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


def test_what_a_caller_may_not_use_is_unknown_to_them():
    class Hiding(mcp.Server):
        def offered(self, kind, ctx):
            entries = super().offered(kind, ctx)
            return entries if ctx.principal == "ann" else {}

    server = Hiding("s")
    server.tool(name="t")(lambda x: "")
    server.prompt(name="p")(lambda x: "")
    server.resource("x://r")(lambda: "")
    server.resource("x://{x}")(lambda x: "")
    server.completion("p", "x")(lambda typed: [])
    for method, params in (
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("tools/call", {"name": "t", "arguments": {}}),  # the required x is missing
        ("prompts/get", {"name": "p", "arguments": {"x": ""}}),
        ("resources/read", {"uri": "x://r"}),
        ("resources/read", {"uri": "x://y"}),
        (
            "completion/complete",
            {"ref": {"name": "p"}, "argument": {"name": "x", "value": ""}},
        ),
        (
            "completion/complete",
            {"ref": {"uri": "x://{x}"}, "argument": {"name": "x", "value": ""}},
        ),
    ):
        if "ref" in params:
            kind = "prompt" if "name" in params["ref"] else "resource"
            params["ref"]["type"] = "ref/" + kind
        known = ask(server, method, "ann", **params)
        unknown = ask(server, method, "bob", **params)
        assert "code" not in known, known
        if method.endswith("/list"):
            (items,) = (value for value in unknown.values() if isinstance(value, list))
            assert items == []
        else:
            assert unknown["code"] == CODES["INVALID_PARAMS"]
            assert re.match(
                "Unknown (tool|prompt)|Resource not found", unknown["message"]
            )


def test_a_string_from_a_completer_is_the_failure_of_the_call(capsys):
    server = mcp.Server("s")
    server.prompt(name="p")(lambda x: x)
    server.completion("p", "x")(lambda typed: "a string")
    ref, argument = {"type": "ref/prompt", "name": "p"}, {"name": "x", "value": ""}
    answer = ask(server, "completion/complete", ref=ref, argument=argument)
    assert answer["code"] == CODES["INTERNAL_ERROR"]
    assert "list of str" in capsys.readouterr().err


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


@dataclasses.dataclass
class Nest:
    inside: Optional[Nest] = None


INT, STR, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
POINT = {
    "type": "object",
    "properties": {"x": INT, "y": {**INT, "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}
SOME = {"type": "object", "properties": {"a": INT, "b": INT}, "required": ["a"]}


@parametrize(
    "hint, schema",
    [
        (str, STR),
        (int, INT),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (None, NULL),
        (dict, {"type": "object"}),
        *(
            [(int | None, {"anyOf": [INT, NULL]})]
            if sys.version_info >= (3, 10)
            else ()
        ),
        *(
            [
                (TypedDict("Some", {"a": "int", "b": "typing.NotRequired[int]"}), SOME),
                (
                    TypedDict(
                        "Few", {"a": "typing.Required[int]", "b": "int"}, total=False
                    ),
                    SOME,
                ),
            ]
            if hasattr(typing, "NotRequired")
            else ()
        ),
        *((x, {"type": "array", "items": STR}) for x in (list[str], tuple[str, ...])),
        # Some hosts drop a tool with an array that does not say what its items are.
        *((x, {"type": "array", "items": {}}) for x in (list, list[Any], tuple)),
        (typing.List, {"type": "array", "items": {}}),
        (set, {"type": "array", "items": {}, "uniqueItems": True}),
        (
            dict[str, list],
            {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
        ),
        # For a validator of draft 7, which ignores prefixItems, `items` are all items.
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [INT, STR],
                "minItems": 2,
                "maxItems": 2,
                "items": {},
            },
        ),
        (set[str], {"type": "array", "items": STR, "uniqueItems": True}),
        (dict[str, int], {"type": "object", "additionalProperties": INT}),
        (Union[int, str], {"anyOf": [INT, STR]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Literal["a"], {**STR, "enum": ["a"]}),
        (Color, {**STR, "enum": ["r", "b"]}),
        (
            Annotated[int, "why", {"minimum": 1}, Path()],
            {**INT, "description": "why", "minimum": 1},
        ),
        (Point, POINT),
        (list[Point], {"type": "array", "items": POINT}),
        *((x, {"type": "array", "items": INT}) for x in (Sequence[int], deque[int])),
        *((x[int], {"type": "array", "items": INT}) for x in (Iterable, Collection)),
        (Collection, {"type": "array", "items": {}}),
        (AbstractSet[str], {"type": "array", "items": STR, "uniqueItems": True}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INT}),
        (typing.NewType("Name", str), STR),
        (datetime.date, {**STR, "format": "date"}),
        (datetime.datetime, STR),
        (datetime.time, STR),
        (uuid.UUID, {**STR, "format": "uuid"}),
        (decimal.Decimal, {"type": ["string", "number"]}),
        *((kind, STR) for kind in (Path, PurePath, PurePosixPath)),
    ],
    ids=str,
)
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


@parametrize(
    "hint, value, shown",
    [
        (int, 1.0, "1"),
        (Any, {"a": [1]}, "{'a': [1]}"),
        (Optional[Color], None, "None"),
        (Color, "b", "<Color.BLUE: 'b'>"),
        (Union[int, Color], "r", "<Color.RED: 'r'>"),
        (Union[int, Color], 9, "9"),
        (Point, {"x": 1.0}, "Point(x=1, y=0)"),
        (set[int], [1], "{1}"),
        (tuple[int, Color], [5, "r"], "(5, <Color.RED: 'r'>)"),
        (tuple[str, ...], ["a"], "('a',)"),
        (dict[str, Point], {"k": {"x": 3}}, "{'k': Point(x=3, y=0)}"),
        (
            TypedDict("Weather", {"degrees": float, "sky": Color}),
            {"degrees": 1.5, "sky": "r"},
            "{'degrees': 1.5, 'sky': <Color.RED: 'r'>}",
        ),
        (Annotated[Color, ""], "r", "<Color.RED: 'r'>"),
        (
            Order,
            {"item": "i", "points": [{"x": 1}]},
            "Order(item='i', color=<Color.RED: 'r'>, points=[Point(x=1, y=0)], total=9.5)",
        ),
        (int, True, "/x: integer"),
        (Color, "g", "/x: one of"),
        (Point, {"x": 1, "z": 1}, "/x/z: "),
        (Order, {"item": "i", "points": [{"x": 1}, {}]}, "/x/points/1/x: required"),
    ],
)
def test_arguments_become_python_values_or_are_refused(hint, value, shown):
    server, _ = serve_tool(hinted(hint, str, repr))
    result = ask(server, "tools/call", name="t", arguments={"x": value})
    text = result["content"][0]["text"]
    if shown[0] == "/":
        place, _, word = shown.partition(": ")
        assert result["isError"] and word in text.partition(place + ": ")[2]
    else:
        assert text == shown


@parametrize(
    "hint, value, structured",
    [
        (Color, Color.RED, {"result": "r"}),
        (Optional[int], None, {"result": None}),
        (tuple[int, str], (1, "a"), {"result": [1, "a"]}),
        (set[int], {1}, {"result": [1]}),
        (
            Order,
            Order("i", points=[Point(1)]),
            {"item": "i", "color": "r", "points": [{"x": 1, "y": 0}], "total": 9.5},
        ),
        (
            TypedDict("Article", {"content": list[str]}),
            {"content": ["a"]},
            {"content": ["a"]},
        ),
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


class Kinds:
    def method(
        self,
        a: int,
        b: Any = float("inf"),
        c: Annotated[int, "hint"] = 3,
        *,
        d: Any = Path,
        **rest: Any,
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
    assert tool["inputSchema"] == {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {**INT, "description": "the first"},
            "b": {"description": "the second"},
            "c": {**INT, "description": "hint", "default": 3},
            "d": {"description": "the last"},
        },
    }
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
        ("(x: set[dict])", "x: .*set"),
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


def test_a_message_is_from_the_user_or_the_assistant():
    server = mcp.Server("s")
    message = {"role": "system", "content": "Be brief."}
    server.prompt(name="p")(lambda: [message])
    assert ask(server, "prompts/get", name="p")["code"] == mcp.INTERNAL_ERROR
    message["role"] = "assistant"
    (sent,) = ask(server, "prompts/get", name="p")["messages"]
    assert sent == {"role": "assistant", "content": mcp.text("Be brief.")}


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
    assert tool["inputSchema"]["properties"] == {
        "a": {"anyOf": [INT, NULL], "default": None},
        "b": {"default": None},
        "c": {"default": None},
    }
    assert "required" not in tool["inputSchema"]
    assert server.call("t", a=None)["content"] == [mcp.text("(None, None, None)")]
    assert server.call("t", a="x")["isError"]


@parametrize(
    "value, place, word",
    [
        ([{"price": 1.5}, {"price": float("nan")}], "/1/price", "None"),
        ({"rows": {"a/b": float("-inf")}}, "/rows/a~1b", "None"),
        ({"a": [threading.Lock()]}, "/a/0", "lock"),
        (b"raw", "/", "image\\("),
        ({"x": (i for i in ())}, "/x", "list"),
    ],
)
def test_a_result_without_a_json_form_names_the_place_and_the_remedy(
    value, place, word
):
    server, _ = serve_tool(lambda: value)
    result = server.call("t")
    text = result["content"][0]["text"]
    assert result["isError"] and text.startswith(place + ": ")
    assert re.search(word, text)
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


@parametrize(
    "hint, value, result",
    [
        (datetime.date, "1969-07-20", datetime.date(1969, 7, 20)),
        (datetime.datetime, "1969-07-20T20:17:40Z", DUE),
        (datetime.datetime, "1969-07-20 20:17:40.000+00:00", DUE),
        (datetime.time, "20:17", datetime.time(20, 17)),
        (uuid.UUID, str(SOME_ID), SOME_ID),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (decimal.Decimal, 1.5, decimal.Decimal("1.5")),
        (Path, "a/b.Z", Path("a/b.Z")),
        (PurePosixPath, "a", PurePosixPath("a")),
        (Sequence[datetime.date], ["1969-07-20"], [datetime.date(1969, 7, 20)]),
        (deque[int], [1.0], deque([1])),
        (Mapping[str, Path], {"a": "b"}, {"a": Path("b")}),
        (AbstractSet[int], [1], {1}),
        (
            typing.NewType("Day", datetime.date),
            "1969-07-20",
            datetime.date(1969, 7, 20),
        ),
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
    ],
    ids=str,
)
def test_types_that_people_use_come_as_objects(hint, value, result):
    got = []
    server, _ = serve_tool(hinted(hint, None, got.append))
    answer = ask(server, "tools/call", name="t", arguments={"x": value})
    if isinstance(result, str) and result.startswith("/x"):
        assert answer["isError"] and result in answer["content"][0]["text"]
    else:
        assert got == [result] and type(got[0]) is type(result)


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
        (
            Annotated[int, {"minimum": 1, "maximum": 9}],
            None,
            {"anyOf": [LIMITED, NULL]},
        ),
        (Annotated[int, ONE_TO_NINE], None, {"anyOf": [LIMITED, NULL]}),
        (Optional[Annotated[int, ONE_TO_NINE]], ..., {"anyOf": [LIMITED, NULL]}),
        (list[Annotated[int, ONE_TO_NINE]], ..., {"type": "array", "items": LIMITED}),
        (
            Annotated[Optional[str], "text"],
            None,
            {"anyOf": [STR, NULL], "description": "text"},
        ),
        (Annotated[str, "text"], None, {"anyOf": [STR, NULL], "description": "text"}),
        (
            Optional[Annotated[str, "text"]],
            ...,
            {"anyOf": [STR, NULL], "description": "text"},
        ),
        (Any, None, {}),
        (Optional[int], None, {"anyOf": [INT, NULL]}),
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
    assert server.call("t")["structuredContent"] == {"day": "1969-07-20"}


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
@dataclasses.dataclass
class Cat:
    kind: Literal["cat"]
    lives: int


@dataclasses.dataclass
class Dog:
    kind: Literal["dog"]
    name: str


@parametrize(
    "hint, value, flaw",
    [
        (Optional[Cat], {"kind": "cat"}, "/x/lives: is required"),
        (Optional[Cat], {"kind": "cat", "lives": "9"}, "/x/lives: must be of type int"),
        (Optional[int], "5", "/x: must be of type integer"),
        (Union[int, Cat], {"kind": "cat"}, "/x/lives: is required"),
        (Union[list[int], str], [1, "x"], "/x/1: must be of type integer"),
        (Union[Cat, Dog], {"kind": "cat", "lives": "9"}, "/x/lives: must be of type"),
        (Union[Cat, Dog, None], {"kind": "dog", "name": 5}, "/x/name: must be of type"),
        (Union[int, str], [], "/x: must match at least one of"),
    ],
    ids=str,
)
def test_the_flaw_of_an_optional_argument_is_the_flaw(hint, value, flaw):
    server, _ = serve_tool(hinted(hint, None, repr))
    assert flaw in server.call("t", x=value)["content"][0]["text"]


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
        ({"number": "5"}, "/number"),
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
        (
            mcp.link("x://y", "y", size=3, title="Y"),
            [mcp.link("x://y", "y", size=3, title="Y")],
        ),
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
        (
            [{"id": 71, "text": "Buy milk"}],
            [{"text": '[{"id": 71, "text": "Buy milk"}]'}],
        ),
        ({"text": None}, [{"text": '{"text": null}'}]),
        ({"text": 5}, [{"text": '{"text": 5}'}]),
        ([{"text": "a"}, {"blob": b"b"}], [{"text": "a"}, {"blob": "Yg=="}]),
        ({"text": "a", "uri": "x://z", "_meta": {}}, [{"text": "a", "uri": "x://z"}]),
        ([], [{"text": "[]"}]),
        (DUE, [{"text": "1969-07-20T20:17:40+00:00"}]),
    ],
    ids=str,
)
def test_contents_are_whole_or_data(value, contents):
    server = mcp.Server("s")
    server.resource("x://y")(lambda: value)
    found = ask(server, "resources/read", uri="x://y")["contents"]
    assert len(found) == len(contents)
    for one, expected in zip(found, contents):
        assert {**one, **expected} == one


def test_completions_are_strings():
    server = mcp.Server("s")
    server.prompt(lambda n: n, name="p")
    server.completion("p", "n")(lambda typed: [1, Color.RED, "x"])
    reference = {"type": "ref/prompt", "name": "p"}
    argument = {"name": "n", "value": ""}
    answer = ask(server, "completion/complete", ref=reference, argument=argument)
    assert answer["completion"]["values"] == ["1", "r", "x"]

    def wrong(typed) -> str:
        return typed

    with pytest.raises(TypeError, match="wrong.*list of str"):
        server.completion("p", "n")(wrong)


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
    "members, word",
    [
        ({"version": 1.2}, "version"),
        ({"instructions": 5}, "instructions"),
        ({"title": 5}, "title"),
        ({"ttl_ms": -1}, "ttlMs"),
        ({"cache_scope": "all"}, "cacheScope"),
        ({"page_size": -1}, "pageSize"),
        ({"websiteUrl": []}, "websiteUrl"),
        ({"icons": ["a.png"]}, "icons/0"),
        ({"icons": [{"url": "a.png"}]}, "icons/0/src"),
        ({"desc": "x"}, "desc.*title"),
    ],
    ids=str,
)
def test_options_that_would_break_clients_are_refused_where_they_are_written(
    members, word
):
    with pytest.raises(TypeError, match=word):
        mcp.Server("s", **members)
    if word in ("title", "icons/0", "icons/0/src", "desc.*title"):
        server = mcp.Server("s")
        for register in (
            server.tool,
            server.prompt,
            partial_of(server.resource, "x://y"),
        ):
            with pytest.raises(TypeError, match=word):
                register(**members)(lambda: "")


def partial_of(function, *arguments):
    return lambda **members: function(*arguments, **members)


@parametrize(
    "members, word",
    [
        ({"description": 5}, "description"),
        ({"annotations": {"readOnlyHint": "yes"}}, "annotations/readOnlyHint"),
        ({"annotations": {"readonly": True}}, "annotations/readonly"),
        ({"annotations": {"priority": 2}}, "annotations/priority"),
        ({"annotations": {"audience": ["me"]}}, "annotations/audience/0"),
        ({"annotations": []}, "annotations"),
        ({"_meta": 5}, "_meta"),
    ],
    ids=str,
)
def test_options_of_a_tool_or_resource_have_their_types(members, word):
    server = mcp.Server("s")
    for register in (server.tool, partial_of(server.resource, "x://y")):
        with pytest.raises(TypeError, match=word):
            register(**members)(lambda: "")
    for wrong in ({"size": -1}, {"mime_type": 5}, {"ttl_ms": 1.5}, {"cache_scope": ""}):
        with pytest.raises(TypeError):
            server.resource("x://y", **wrong)(lambda: "")
    assert not server.tools and not server.resources


def test_names_that_hosts_refuse_are_logged_and_work(capsys):
    server = mcp.Server("s")
    server.tool(hinted(int, None, repr), name="fine-name_1")
    assert capsys.readouterr().err == ""
    server.tool(lambda: "", name="admin.tools")
    by_hand = {"type": "object", "properties": {"a b": {}}}
    server.tool(lambda **others: "", name="p", input_schema=by_hand)
    lines = capsys.readouterr().err.splitlines()
    for line, word in zip(lines, ("'admin.tools'", "'a b'")):
        assert f"refuse [{word}]" in line
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


@parametrize("version", ["2024-11-05", "2025-06-18", "2026-07-28"])
def test_a_handler_sees_the_headers_of_its_request(version):
    server = mcp.Server("s")

    @server.tool
    def tenant(ctx: Context) -> str:
        return str(ctx.headers.get("x-tenant"))

    endpoint = mcp.http_server(mcp.Endpoint(server))
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    url = "http://{}:{}/mcp".format(*endpoint.server_address[:2])
    if version == "2024-11-05":
        url = url.replace("/mcp", "/sse")
    try:
        for name in ("acme", "apex"):
            headers = {"X-Tenant": name}
            with client.connect(url, revision=version, headers=headers) as one:
                assert one.call_tool("tenant")["content"][0]["text"] == name
    finally:
        endpoint.close()
    with client.connect(server, revision=version) as one:
        assert one.call_tool("tenant")["content"][0]["text"] == "None"


# ---- the page of hints: its table, and its programs
class Rainbow(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Spot:
    """A point."""

    x: int
    y: int = 0


class Pair(NamedTuple):
    a: int
    b: int


class Options(TypedDict, total=False):
    deep: bool


HINTS_PAGE = (HERE / "examples" / "hints.md").read_text("utf-8")
HINT_NAMES = {
    "AbstractSet": AbstractSet,
    "Annotated": Annotated,
    "Any": Any,
    "Collection": Collection,
    "Color": Rainbow,
    "Decimal": decimal.Decimal,
    "Iterable": Iterable,
    "Literal": Literal,
    "Mapping": Mapping,
    "Optional": Optional,
    "Options": Options,
    "Pair": Pair,
    "Path": Path,
    "Point": Spot,
    "PurePath": PurePath,
    "Sequence": Sequence,
    "UUID": uuid.UUID,
    "Union": Union,
    "UserId": typing.NewType("UserId", int),
    "date": datetime.date,
    "datetime": datetime.datetime,
    "deque": deque,
    "keywords": mcp.keywords,
    "time": datetime.time,
    "timezone": datetime.timezone,
}


def hint_rows():
    """Yield the rows of the table: each hint, and the other cells."""
    for line in HINTS_PAGE.splitlines():
        if line.startswith("| `"):
            cells = re.findall(r"`([^`]+)`", line)
            for hint in cells[:-4]:
                yield (hint, *cells[-4:])


@parametrize("hint, schema, sent, got, returned", [*hint_rows()])
def test_the_page_of_hints_is_true(hint, schema, sent, got, returned):
    kind, value = eval(hint, HINT_NAMES), eval(got, HINT_NAMES)
    assert mcp.schema_of(kind) == json.loads(schema)
    seen = []

    def takes(x):
        seen.append(x)
        return value

    takes.__annotations__ = {"x": kind, "return": kind}
    server, tool = serve_tool(takes)
    result = ask(server, "tools/call", name="t", arguments={"x": json.loads(sent)})
    assert seen == [value], result
    shown = result["content"]
    text = shown[0]["text"] if shown else "null"
    if os.name == "nt":  # a Path has the separators of its platform
        text = text.replace("\\", "/")
    assert returned in (text, json.dumps(text))
    if "outputSchema" in tool:
        structured = result["structuredContent"]
        assert mcp.Schema(tool["outputSchema"]).flaw(structured) is None


def programs_of(page: str) -> list[str]:
    text = (HERE / "examples" / page).read_text("utf-8")
    return re.findall("(?s)```python\n(.*?)```", text)


@parametrize("source", programs_of("hints.md") + programs_of("howto.md"))
def test_the_programs_of_the_pages_run(source):
    exec(source, {"__name__": "page"})


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


DEEP: Any = None
for _ in range(5000):
    DEEP = [DEEP]
# A schema, valid values, invalid ones with the place of the flaw and a word.
VALIDATION = [
    (
        {"type": ["integer", "null"]},
        [1, 1.0, None],
        [(1.5, "/: integer"), (True, "/: ")],
    ),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [(True, "/: one of")]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [({"a": [True]}, "/: "), ({}, "/: ")]),
    ({"multipleOf": 0.0001}, [0.0075, 3], [(0.00751, "/: multiple")]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [(0, "/: 1"), (3, "/: 3")]),
    ({"exclusiveMinimum": 0, "maximum": 2}, [1, 2], [(0, "/: 0"), (3, "/: 2")]),
    (
        {"minLength": 2, "maxLength": 2},
        ["a\U0001f600", 5],
        [("a", "/: 2"), ("abc", "/: 2")],
    ),
    ({"pattern": r"^a\d$"}, ["a1", 5], [("a1\n", "/: match"), ("a\u0664", "/: ")]),
    (
        {"uniqueItems": True, "minItems": 1, "maxItems": 2},
        [[1], [1, True]],
        [([], "/: 1"), ([1, 1.0], "/: "), ([1, 2, 3], "/: 2")],
    ),
    (
        {"minProperties": 1, "maxProperties": 1},
        [{"a": 1}],
        [({}, "/: 1"), ({"a": 1, "b": 1}, "/")],
    ),
    (
        {"properties": {"a/b~c": {"items": {"minimum": 0}}}, "required": ["a/b~c"]},
        [{"a/b~c": [0]}],
        [({"a/b~c": [0, -1]}, "/a~1b~0c/1: 0"), ({}, "/a~1b~0c: required")],
    ),
    (
        {"patternProperties": {"^x": INT, "_id$": INT}, "additionalProperties": STR},
        [{"xa": 1, "b": "s", "an_id": 2}],
        [({"xa": "s"}, "/xa: integer"), ({"b": 1}, "/b: string")],
    ),
    (
        {"prefixItems": [INT], "items": False},
        [[], [1]],
        [([""], "/0: "), ([1, 2], "/1: ")],
    ),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [(3, "/: 2"), (0, "/: 1")]),
    ({"anyOf": [INT, STR]}, [1, "a"], [([], "/: integer")]),
    (
        {"oneOf": [{"multipleOf": 2}, {"minimum": 6}]},
        [2, 7],
        [(6, "/: one"), (5, "/: ")],
    ),
    ({"not": INT}, ["a"], [(1, "/: match")]),
    (
        {"if": INT, "then": {"minimum": 5}, "else": STR},
        [5, ""],
        [(4, "/: 5"), ([], "/: ")],
    ),
    ({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": INT}}, [1], [("x", "/: integer")]),
    ({"$ref": "#/$defs/%C3%A9", "$defs": {"\xe9": INT}}, [1], [("x", "/: integer")]),
    (
        {"properties": {"n": {"$ref": "#"}}, "additionalProperties": False},
        [{"n": {"n": {}}}],
        [({"n": {"x": 1}}, "/n/x: ")],
    ),
    (
        {"contains": INT, "maxContains": 2},
        [[1], ["a", 1, 2], "x"],
        [([], "/: contain"), (["a"], "/: contain"), ([1, 2, 3], "/: 2")],
    ),
    ({"contains": INT, "minContains": 0}, [[], [""]], []),
    ({"minContains": 2, "maxContains": 0}, [[], [1]], []),
    (
        {"propertyNames": {"pattern": "^a", "maxLength": 2}},
        [{"a": 1}, {}, ["b"]],
        [({"b": 1}, "/b: name"), ({"abc": 1}, "/abc: name")],
    ),
    (
        {"dependentRequired": {"a": ["b/c"]}},
        [{"b/c": 1}, {"a": 1, "b/c": 2}, ["a"]],
        [({"a": 1}, "/b~1c: required")],
    ),
    (
        {"dependentSchemas": {"a": {"properties": {"b": INT}}, "c": False}},
        [{"b": ""}, {"a": 1, "b": 2}, ["a"]],
        [({"a": 1, "b": ""}, "/b: integer"), ({"c": 1}, "/: ")],
    ),
    ({"format": "email", "unknown": {"$ref": "http://x"}}, ["no mail", 1], []),
    ({"$ref": "#"}, [], [(1, "/")]),
    ({"items": {"$ref": "#"}}, [], [(DEEP, "/")]),
    (True, [1], []),
    (False, [], [(1, "/: ")]),
]


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
        *(
            {"items": {name: {}}}
            for name in ("unevaluatedProperties", "unevaluatedItems")
        ),
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


def test_random_schemas_and_values_never_crash():
    dice = random.Random(1)
    keywords = [part for schema, _, _ in VALIDATION[:-4] for part in schema.items()]
    values = [value for _, valid, _ in VALIDATION for value in (*valid, valid)]
    for _ in range(1000):
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
                    [sys.executable, "-c", "print('dirt')"]
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


def status_of(process, cause: str) -> int:
    """Wait for the exit status of a process, which something should have ended."""
    __tracebackhide__ = True
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE)
    pytest.fail(f"the process still runs, {PATIENCE:g} s after its end by {cause}")


class Program(subprocess.Popen):
    """a_program(), started in "/" with next to nothing in its environment."""

    def __init__(
        self,
        seconds: float = 60,
        before: str = "",
        say: str = "print",
        log=None,
        **env: str,
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
        super().__init__(
            [
                sys.executable,
                "-W",
                "error",
                "-W",
                "ignore::DeprecationWarning",
                "-c",
                source,
            ],
            0,
            None,
            -1,
            -1,
            self.log,
            cwd="/",
            env={"PATH": os.environ["PATH"], **COVERAGE, **env},
        )

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
        for what, text in (
            ("print", "None"),
            ("write", "5"),
            ("shell", "0"),
            ("read", ""),
            ("child", "0"),
            ("cat", ""),
            ("forks", "0"),
        ):
            answer = program.call("do", what, what=what)
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (
                what,
                text,
            )
        program.stdin.write(b"junk\n")
        assert program.read()["error"] and program.end() == 7
        assert (
            program.said().startswith("printed at import")
            and program.said().count("dirt") == 4
        )
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
    with (
        open(source, "rb"),
        open(out, "wb") as log,
        Program(say="str", log=log) as program,
    ):
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
        assert sorted(one["id"] for one in answers if "result" in one) == list(
            range(20)
        )
        assert program.end() == 7 and "Traceback" not in program.said()


@parametrize("how", ["stdin", "stdout", "SIGINT", "SIGTERM"])
@parametrize(
    "tool, what",
    [("do", "write"), ("do", "fork"), ("busy", "waiting"), ("busy", "computing")],
)
def test_run_returns_quickly_and_the_program_goes_on(tool, what, how):
    with Program(0.01 if how == "stdin" else 60) as program:
        for ident in (1, 2):
            program.call(tool, ident, what=what)
        before = time.monotonic()
        # While a handler computes, coverage takes seconds to save its data.
        limit = PATIENCE if COVERAGE and what == "computing" else 2
        assert program.end(how) == 7 and time.monotonic() - before < limit, (
            program.said()
        )
        said = program.said()
        after = "after a signal" if how.startswith("SIG") else "after"
        assert said.endswith(after + "\nclosed\nat exit\n"), said
        assert bool(re.search(r"abandoned.*\b2\b", said)) == (tool == "busy")
        assert "Traceback" not in said and "Fatal" not in said, said


def test_end_of_input_does_not_prolong_the_end_by_a_signal():
    with Program() as program:  # some hosts do both at once
        program.call("busy", what="waiting")
        listen = modern("subscriptions/listen", 2, notifications={})
        program.stdin.write(mcp.encode(listen))
        assert "acknowledged" in program.read()["method"]
        before = time.monotonic()
        program.send_signal(signal.SIGTERM)
        while "result" not in program.read():
            pass  # then it has seen the signal
        assert program.end() == 7 and time.monotonic() - before < 2, program.said()


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
    "arguments, options, problem",
    [
        ([], {"autorize": print}, "autorize"),
        ([], {"transport": "http"}, "transport"),
        (["--http", "0"], {"autorize": print}, "autorize"),
    ],
)
def test_run_refuses_what_it_does_not_know(arguments, options, problem):
    with pytest.raises(TypeError, match=problem):
        mcp.Server("s").run(arguments, **options)


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
    with Program(0.01 if how == "stdin" else 60, before) as program:
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


def test_a_reader_without_memory_ends_the_program():
    before = textwrap.dedent("""
        open_file = os.fdopen
        class Source:
            def readline(self, size):
                raise MemoryError
        def fdopen(descriptor, mode, *more, **options):
            if "r" in mode:
                return Source()
            return open_file(descriptor, mode, *more, **options)
        os.fdopen = fdopen""")
    with Program(0.01, before) as program:
        assert program.wait(PATIENCE) == 7


def test_the_arguments_of_run_are_a_list(monkeypatch):
    monkeypatch.setattr(mcp, "serve_stdio", lambda server: None)
    with pytest.raises(TypeError, match="list"):
        mcp.Server("s").run("--http 0")


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
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
            stdin=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
            timeout=3 * PATIENCE,
            check=False,
        )
    said = re.sub("mcp_ref: s listens on .*\n", "", done.stderr)
    assert (done.returncode, said) == (
        0,
        "before\na thread\na signal\na signal of the loop\n",
    )


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


@parametrize("how", ["run", "loop", "group"])
def test_a_log_begins_with_the_authors_frame_wherever_it_ran(how, capsys):
    def on_a_thread(function):
        threading.Thread(target=function).start()

    server = mcp.Server("s", run=on_a_thread)

    async def in_a_loop():
        return json.loads("{")

    async def in_a_group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(in_a_loop())

    if how == "group" and not hasattr(asyncio, "TaskGroup"):
        pytest.skip("Python 3.11 has it")
    tools = {"run": lambda: json.loads("{"), "loop": in_a_loop, "group": in_a_group}
    server.tool(tools[how], name="fails")
    # Not "unhandled errors in a TaskGroup": that is nothing a model can act on.
    words = (
        "Key name" if hasattr(sys, "pypy_version_info") else "Expecting property name"
    )
    assert words_of(server.call("fails")).startswith(words)
    frame = re.search(r'File "([^"]+)", line', capsys.readouterr().err)
    assert hasattr(sys, "pypy_version_info") or frame[1] == __file__


def test_a_principal_that_is_not_json_is_named(capsys):
    site = mcp.Endpoint(mcp.Server("s"), authorize=lambda headers: object())
    exchange = mcp.Exchange("POST", "/mcp", [], io.BytesIO())
    answers = []
    exchange.start = lambda *answer: answers.append(answer)
    site.serve(exchange)
    assert answers[0][0] == 500
    assert "must be a JSON value" in capsys.readouterr().err


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


def test_the_log_of_a_failure_begins_with_the_authors_frame(capsys):
    server = mcp.Server("s")
    server.tool(lambda text: json.loads(text), name="parse")
    server.prompt(lambda: json.loads("{"), name="parse")
    assert server.call("parse", text="{")["isError"] and ask(
        server, "prompts/get", name="parse"
    )
    said = capsys.readouterr().err
    frame = re.search(r'File "([^"]+)", line \d+, in (\S+)', said)
    assert said.count("JSONDecodeError:") == 2, said
    assert hasattr(sys, "pypy_version_info") or frame.groups() == (
        __file__,
        "<lambda>",
    ), said


# ---- the command line


def command(*words: str, text: str = "", cwd="/", seconds=3 * PATIENCE):
    """Run the module as a program: by -m, which keeps its bytecode."""
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        input=text,
        encoding="utf-8",
        errors="replace",
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
        timeout=seconds,
        check=False,
    )


@contextlib.contextmanager
def listening(*words):
    """Start a program that serves HTTP; yield its process and its URL."""
    with subprocess.Popen(
        [sys.executable, *words, "--http", "0"],
        text=True,
        stdin=-3,
        stdout=-1,
        stderr=-2,
    ) as process:
        try:
            said = ""
            while not (url := re.search(r"http://\S+", said)):
                line = process.stdout.readline()
                assert line, f"it ended instead of listening: {said}"
                said += line
            yield process, url[0]
        finally:
            process.kill()


# Both kinds of file print before anything else.
TOOL = (
    "import os, sys\nos.system('echo x')\nprint('y')\nfrom mcp_ref import Server\n"
    "server = Server('s')\n@server.tool\ndef a(): 'A.'\n"
)
FUNCTIONS = (
    "from beside import *\nfrom os.path import join\nimport asyncio, sys\nprint('y')\n"
    "def g(x: int):\n    'G.'\n    asyncio.run(None)\n"
    "def _h(): 'H.'\ndef main(): server.run()\nclass C: pass\ni = len\n"
    "assert __name__ != '__main__' and sys.argv == [__file__]\n"
)
UNFIT = (
    "from typing import Iterator\ndef rows(x: Iterator[int]): ...\n"
    "def every(*args): ...\n"
)
WRAPPED = "import functools\n@functools.lru_cache\ndef cached(x: int): 'C.'\n"
MAIN = "if __name__ == '__main__':\n    "
OWN = "makes its own server: run it with `python3 "


@parametrize(
    "name, source, status, tools, said",
    [
        ("", "", 0, "echo", ""),
        # The file is imported, under its own name, and its public functions are served.
        *[
            (name, FUNCTIONS + MAIN + "1 / 0", 0, "g", "")
            for name in ("given.py", "json.py", "__main__.py", "my.server.py")
        ],
        # One that serves meanwhile is finished then; its own options hold.
        *[
            ("given.py", TOOL + more, status, "a", "")
            for more, status in (("server.run()", 0), ("server.run(); sys.exit(3)", 3))
        ],
        ("given.py", "from beside import server\nserver.run()", 0, "other", ""),
        # Any other program is never served, whatever it looks like.
        *[
            ("given.py", source, 2, "", OWN)
            for source in (
                TOOL,
                TOOL + MAIN + "server.run()",
                TOOL + "def b(): 'Not a tool.'",
                TOOL + "def main(): server.run(authorize=print)",
                "from beside import server\ndef b(): 'Not a tool.'",
            )
        ],
        ("given.py", "def main(): 'Makes it later.'", 2, "", "no function"),
        ("given.py", TOOL + "sys.exit(4)", 4, "", ""),
        ("given.py", TOOL + "1 / 0", 1, "", "ZeroDivisionError"),
        ("given.py", "def _f(): 'Private.'", 2, "", "no function"),
        # What cannot be a tool is left out; what wraps a function of the file is one.
        ("given.py", UNFIT + FUNCTIONS, 0, "g", "rows(): "),
        ("given.py", WRAPPED, 0, "cached", ""),
    ],
)
def test_a_file_is_served_or_else_a_demo(name, source, status, tools, said, tmp_path):
    own = "def other(): 'Imported.'\n" if "g(x" in source else ""
    (tmp_path / "beside.py").write_text(own or TOOL.replace("a()", "other()"))
    (tmp_path / (name or "x")).write_text(source)
    words = ["-m", "mcp_ref", "serve", str(tmp_path / name)] if name else [str(MCP_REF)]
    done = command(*words, text=json.dumps(modern("tools/list")))
    assert done.returncode == status and bool(done.stdout) == bool(tools), done.stderr
    assert said in done.stderr
    assert (
        not tools
        or sorted(tool["name"] for tool in json.loads(done.stdout)["result"]["tools"])
        == tools.split()
    )


@needs_posix
@parametrize("number, status", [(signal.SIGINT, 0), (signal.SIGTERM, 3)])
def test_a_served_program_keeps_its_options_and_its_cleanup(number, status, tmp_path):
    (tmp_path / "given.py").write_text(
        TOOL
        + """
try:
    server.run(authorize=lambda headers: None)
finally:
    print("closed", *sys.argv[1:], flush=True)
"""
        + "sys.exit(3)" * bool(status)
    )
    words = "serve", tmp_path / "given.py", "--help"  # this is the program's own
    with listening(MCP_REF, *words) as (child, url):
        port = int(re.search(r"//127\.0\.0\.1:(\d+)/", url)[1])
        assert exchange(port, "POST", "/mcp", {})[0] == 401
        child.send_signal(number)
        assert status_of(child, number.name) == status
        assert child.stdout.read().endswith("closed --help --http 0\n")


def is_refused(words: list[str], keyword: str, folder: Path):
    """Run a command that is wrong, and check that it says so in one sentence."""
    done = command(*words, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert keyword in done.stderr, done.stderr


@parametrize(
    "words, keyword",
    [
        ("nonsense", "nonsense"),
        ("serve", "missing"),
        ("serve none.py", "none.py"),
        ("serve text.txt", "text.txt"),
        ("serve empty.py", "empty.py"),
        ("--http", "PORT"),
        ("--http 127.0.0.1:99999", "PORT"),
        ("serve run.py --http x", "PORT"),
        ("serve own.py --http 0", "python3 own.py"),
    ],
)
def test_a_wrong_command_line_is_named(words, keyword, tmp_path):
    for name, source in (
        ("empty.py", "_x = len"),
        ("text.txt", TOOL),
        ("run.py", "def f(): 'F.'"),
        ("own.py", "import mcp_ref; server = mcp_ref.Server('s')"),
    ):
        (tmp_path / name).write_text(source)
    is_refused(["-m", "mcp_ref", *words.split()], keyword, tmp_path)


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
    assert "serve FILE.py" in command("-m", "mcp_ref", "--help").stdout
    ours = hashlib.sha256(MCP_REF.read_bytes()).hexdigest()
    shown = f"mcp_ref {mcp.__version__} sha256:{ours}\n"
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as archive:
        archive.write(MCP_REF, "__main__.py")
    for words in (["-m", "mcp_ref"], [str(tmp_path / "it.zip")]):
        assert command(*words, "--version").stdout == shown
    page = HERE / "examples" / "tools" / "reference.py"
    lines = command(str(page), "--tables").stdout.splitlines()
    head = next(line for line in lines if all(date in line for date in ORDER))
    for table in (mcp.METHODS, mcp.NOTIFICATIONS, mcp.FEATURES, mcp.ERRORS):
        for key, row in table.items():
            (line,) = [
                one
                for one in lines
                if re.match(rf"\s*{re.escape(str(key))}(\s|$)", one)
            ]
            old = getattr(row, "deprecated", "") or "9999"
            assert [line[head.index(date) :][:10].strip() for date in ORDER] == [
                "" if not exists(row, date) else "deprecated" if date >= old else "yes"
                for date in ORDER
            ], line


def test_the_import_is_lean():
    done = command("-S", "-c", "import sys, mcp_ref; print(*sorted(sys.modules))")
    assert "mcp_ref" in done.stdout and not {*done.stdout.split()} & {
        "http.server",
        "socket",
        "subprocess",
        "asyncio",
        "logging",
        "dataclasses",
        "urllib",
        "inspect",
    }, done
    assert all(hasattr(mcp, name) for name in mcp.__all__)
    for module in (mcp, client):  # a user's program may set the limits
        limits = re.findall(r"(?m)^([A-Z][A-Z_]*) = [\d.]", inspect.getsource(module))
        assert len(limits) > 10 and not set(limits) - set(module.__all__)


# ---- random bytes, and everything at once


def test_random_bytes_never_silence_the_next_line():
    dice = random.Random(20261121)
    good = [
        mcp.encode(one)
        for one in (
            modern("ping"),
            modern("tools/list", "1"),
            modern("tools/call", name="do", arguments={}),
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 1},
            },
        )
    ]
    with Program() as program:
        for number in range(1000):
            line = bytearray(dice.choice(good))
            place = dice.randrange(len(line))
            line[place : place + dice.choice([1, 1, 20, 500])] = dice.choice(
                [
                    b"",
                    b"null",
                    b'{"a":',
                    b"[",
                    b'"\\ud800"',
                    b"1e999",
                    b'"',
                    b"}",
                    b"\xe2\x80\xa8",
                    bytes(dice.randrange(256) for _ in range(dice.randrange(40))),
                ]
            )
            program.stdin.write(
                bytes(line).replace(b"\n", b" ")
                + b"\n"
                + mcp.encode(modern("prompts/list", f"p{number}"))
            )
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
                    link.sendall(GOOD[: dice.randrange(len(GOOD))])
                continue
            target = httpd.url if kind < 0.95 else [sys.executable, "-m", "mcp_ref"]
            with client.connect(
                target,
                timeout=PATIENCE,
                cwd=str(MCP_REF.parent),
                revision=dice.choice(ORDER[:4]),
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


@pytest.mark.skipif(
    hasattr(sys, "pypy_version_info"), reason="PyPy does not count references"
)
def test_a_post_is_freed_as_soon_as_it_is_answered():
    server = mcp.Server("s")
    server.tool(lambda: "x", name="x")
    site = mcp.Endpoint(server)
    site.watch.leave = lambda post, look: None  # its thread looks at what is served

    def post(method: str, params: dict, headers: dict):
        """Serve a request; return its answer's headers, and what is left of it."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        data = json.dumps(body).encode()
        fields = {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **headers,
        }
        exchange = mcp.Exchange("POST", "/mcp", fields.items(), io.BytesIO(data))
        answers: list = []
        exchange.start = lambda *answer: answers.append(answer)
        site.serve(exchange)
        assert answers[0][0] == 200
        return answers[0][1], weakref.ref(exchange)

    call = {"name": "x"}
    meta = {META + "protocolVersion": MODERN[0], META + "clientCapabilities": {}}
    mirrored = {
        "MCP-Protocol-Version": MODERN[0],
        "Mcp-Method": "tools/call",
        "Mcp-Name": "x",
    }
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    gc.disable()
    try:
        _, left = post("tools/call", {**call, "_meta": meta}, mirrored)
        assert left() is None
        opened, left = post("initialize", hello, {})
        assert left() is None
        session = {"Mcp-Session-Id": opened["Mcp-Session-Id"]}
        _, left = post("tools/call", call, session)
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
        self.names["INIT"] = json.dumps(
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {"roots": {}, "elicitation": {}},
                "clientInfo": {"name": "c", "version": "1"},
            }
        )

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
            self.names["session"] = headers.get(
                "mcp-session-id", self.names.get("session")
            )
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
        kind = [
            answer.getheader(name) for name in ("Content-Type", "X-Accel-Buffering")
        ]
        assert (answer.status, kind) == (200, ["text/event-stream", "no"]), (
            answer.read()
        )

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
            params["_meta"] = {
                **(meta if who == "modern" else {}),
                "progressToken": 0,
                **params.get("_meta", {}),
            }
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
        fields = next(
            (
                one
                for one in events
                if verb == "event"
                or one.get("data")
                and (verb != "<*" or words in one["data"])
            ),
            {},
        )
        assert bool(fields) is (verb != "ends"), f"the stream has {fields or 'ended'}"
        data = fields.get("data", "")
        ident = re.search(r'"id": ?("\w*"|\d+)', data)
        self.names.update(
            {
                label: fields.get("id", self.names.get(label)),
                "id": ident and ident[1],
                fields.get("event", ""): data,
            }
        )
        return self.check(words, json.dumps(fields).replace('\\"', '"'))


WIRES["exchanges"] = Exchanges, None
EXCHANGES = "bare | line: exchanges"


def exchanges(**options):
    """Hold a conversation of such lines."""
    return talk(MODERN[0], "http", bare="", line="exchanges", **options)


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
c = POST modern subscriptions/listen {"notifications": {}}
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
until GET s Last-Event-ID={a} -> 200 {INTERNAL_ERROR} & no longer kept & "id":1
GET s Last-Event-ID=00{a} -> 405
POST s ping -> 200
== calls that ask their users leave room for others | limits: {"MAX_CONNECTIONS": 4}
session s 2025-11-25
session t 2025-11-25
session u 2025-11-25
session v 2025-11-25
a = POST s :ask
b = POST t :ask
c = POST u :ask
a|b|c <* elicitation
POST v :ask -> 200 failed
until POST v ping -> 200
# Those who have hung up hold no connection, though their handlers wait on.
a|b|c hangs up
until d = POST modern :slow {"gate": "g"}
until e = POST modern :slow {"gate": "h"}
until POST v ping -> 200
open g
open h
== those of a batch, too | server: core | limits: {"MAX_CONNECTIONS": 4}
name asking [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "roots"}}]
session s 2025-03-26
session t 2025-03-26
session u 2025-03-26
session v 2025-03-26
a = POST s {asking}
b = POST t {asking}
c = POST u {asking}
a|b|c <* roots/list
POST v {asking} -> 200 too many streams
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
POST - initialize {INIT} -> 200 "tools": {} & !mcp-session-id & !listChanged & !subscribe
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
== the oldest events are forgotten, and changes told again | limits: {"REPLAY_BYTES": 37}
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
# A change that waits is not appended twice.
c = GET s Last-Event-ID={b}
c < tools
changed prompts
c < prompts
changed test://text
c < test://text
c hangs up
# The first of these events are not kept any longer: they are told again.
d = GET s Last-Event-ID={b}
d <* tools/list_changed
d < prompts
== the answers to a batch may be too large only together | limits: {"MAX_MESSAGE_BYTES": 3000}
session s 2025-03-26
a = POST s [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "steps",
    "_meta": {"progressToken": 1}}}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}]
a <* {INTERNAL_ERROR}
a ends
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
POST - /{endpoint} {two} -> 202
a|a <* elicitation
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
POST modern MCP-Protocol-Version=~ /{endpoint} subscriptions/listen {"notifications": {
    "toolsListChanged": true}} -> 202
a <* acknowledged
changed tools
a <* list_changed
a hangs up
until POST - /{endpoint} ping -> 404
GET - MCP-Protocol-Version=2025-11-25 -> 405
""",
    "on: http 2025-11-25 | " + EXCHANGES,
)

HTTP_PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GOOD = POST + b"Content-Length: 45\r\n\r\n" + HTTP_PING
LAST = GOOD.replace(b"Host", b"Connection: close\r\nHost")
TALK = GOOD.replace(b"45", b"79").replace(
    b'ping"', b'tools/call", "params": {"name": "talk"}'
)
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"2D\r\n" + HTTP_PING + b"\r\n0\r\n\r\n"


def send_http(site: Talk, data: bytes) -> str:
    """Send bytes; return what comes until the server closes."""
    with socket.create_connection(
        ("127.0.0.1", site.line.port), PATIENCE
    ) as connection:
        connection.sendall(data)
        with connection.makefile("r") as answers:
            return answers.read()


FRAMES = [  # what is sent; the statuses of the answers to it and to LAST behind it
    (GOOD + b"\r\n" + GOOD, "200 200 200"),
    (GOOD.replace(b"Host", b"Connection: Close\r\nHost"), "200"),
    (TALK.replace(b"1.1", b"1.0"), "200"),
    (
        CHUNKED + b"4;a=b\r\n    \r\n2D\r\n" + HTTP_PING + b"\r\n0\r\nX: y\r\n\r\n",
        "200 200",
    ),
    (GOOD.replace(b"Host", b"Expect: 100-Continue\r\nHost"), "100 200 200"),
    (POST + b"X: " + b"y" * 60000 + b"\r\nY: " + b"y" * 60000 + b"\r\n\r\n", "431"),
    (
        GOOD.replace(b"1.1", b"1.0").replace(b"Host", b"Expect: 100-continue\r\nHost"),
        "200",
    ),
    (
        GOOD.replace(b"/mcp", b"HTTP://LocalHost/mcp").replace(b"127.0.0.1", b"evil"),
        "200 200",
    ),
    (GOOD.replace(b"/mcp", b"http://evil/mcp"), "403"),
    (GOOD.replace(b"1.1", b"1.0").replace(b"Host: 127.0.0.1\r\n", b""), "403"),
    (GOOD.replace(b"POST", b"GET").replace(b"45", b"0")[: -len(HTTP_PING)], "405 200"),
    (CHUNKED.replace(b"1.1", b"1.0") + CHUNK, "400"),
    *[
        (CHUNKED.replace(b"chunked", head) + CHUNK, "400")
        for head in (
            b"gzip, chunked",
            b"x",
            b"chunked\r\nTransfer-Encoding: chunked",
            b"chunked\r\nContent-Length: 45",
        )
    ],
    *[
        (head + b"\r\n\r\n", "400")
        for head in (
            b"nonsense",
            b"GET /mcp",
            b"GET /mcp HTTP/9.9",
            b"POST /mcp HTTP/1.1",
        )
    ],
    *[
        (head + b"\r\n\r\n", "431")
        for head in (
            b"POST /" + b"m" * 70000 + b" HTTP/1.1\r\nHost: 127.0.0.1",
            POST + b"X: y\r\n" * 200,
            POST + b"X: " + b"y" * 70000,
        )
    ],
    *[
        (POST + head + b"\r\n\r\n", "400")
        for head in (
            b"Content-Length: 0\r\nContent-Length: 4",
            b"Content-Length: 4\r\nContent-Length: 4",
            b"Content-Length: -1",
            b"Content-Length: 5, 5",
            b"Content-Length: ",
            b"Content-Length: 4_5",
            b"Content-Length : 45",
            b" Content-Length: 45",
            b"foo\r\nContent-Length: 45",
            b"Content-Length: +5",
            b"Host: evil",
            b"X\0: a",
            b"X\xe4: a",
            b"X: a\0b",
            b"X: a\rContent-Length: 45",
            b": a",
            b"Mcp-Method: a\r\nMcp-Method: b",
            b"Mcp-Session-Id: a\r\nMcp-Session-Id: a",
            b"Authorization: a\r\nAuthorization: b",
        )
    ],
    *[
        (CHUNKED + body, "400")
        for body in (
            b"xyz\r\n",
            b"-5\r\nabc",
            b"+2d\r\n",
            b"0x2d\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"5\nabcde\r\n0\r\n\r\n",
            b"0\r\n" + b"X" * 2000 + b":\r\n\r\n",
        )
    ],
    (CHUNKED + b"ffffffff\r\n", "413"),
    (CHUNKED + (b"1;" + b"x" * 900 + b"\r\n \r\n") * 5000, "413"),
    (
        CHUNKED
        + b"%x\r\n%b\r\n2\r\n" % (mcp.MAX_MESSAGE_BYTES, b" " * mcp.MAX_MESSAGE_BYTES),
        "413",
    ),
    # The answer arrives although the body is still being sent.
    (
        POST
        + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
        + b"[" * 2**23,
        "413",
    ),
]


@parametrize("sent, statuses", FRAMES, ids=range(len(FRAMES)))
def test_no_request_hides_in_another(capfd, sent, statuses):
    with exchanges(endpoint={"stateless": True}) as site:
        found = re.findall(r"HTTP/1.1 (\d{3}) ", send_http(site, sent + LAST))
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
    assert (sent["message"]["id"], head["status"], "secret" in str(sent)) == (
        1,
        200,
        False,
    )
    assert {one["on"] for one in events} == {sent["on"]} and "result" in str(events)
    assert refusal["status"] == 403 and " 403 {" in capfd.readouterr().err


def test_a_call_that_is_cancelled_by_hanging_up_is_traced_so(tmp_path, monkeypatch):
    path, server = tmp_path / "trace", mcp.Server("x")
    begun, gone = threading.Event(), threading.Event()
    monkeypatch.setenv("MCP_TRACE", str(path))

    @server.tool
    def slow(ctx: Context):
        ctx.on_cancel(gone.set)
        begun.set()
        gone.wait(PATIENCE)

    call = modern("tools/call", name="slow")
    headers = {**headers_of(call), "Content-Length": len(mcp.encode(call))}
    head = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    httpd = mcp.http_server(mcp.Endpoint(server))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    with contextlib.closing(httpd):
        with socket.create_connection(("127.0.0.1", httpd.server_port)) as link:
            request = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode()
            link.sendall(request + mcp.encode(call))
            assert begun.wait(PATIENCE)
        assert gone.wait(PATIENCE)
    _, sent, closed, *_ = map(json.loads, path.read_text().splitlines())
    assert (closed["way"], closed["on"], closed["closed"]) == (">", sent["on"], True)
    assert "What is wrong\nNothing." in overview(draw(path))


def test_a_connection_that_waits_for_a_request_makes_room():
    with (
        exchanges(server="empty", limits={"MAX_CONNECTIONS": 1}) as site,
        socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link,
    ):
        ended = begin(link.recv, 1)
        while not ended.done():
            send_http(site, LAST)
        assert ended.result() == b""


def test_the_connection_that_waits_for_longest_makes_room():
    served, idle, new = (mock.Mock(name=name) for name in ("served", "idle", "new"))
    with (
        limits(MAX_CONNECTIONS=2),
        contextlib.closing(mcp.http_server(mcp.Endpoint(mcp.Server("s")))) as httpd,
    ):
        for link in (served, idle):
            assert httpd.verify_request(link, ("host", 1))
        for what in ("serves", "idle"):
            httpd.step(served, what, mcp.SEND_SECONDS)
        assert httpd.verify_request(new, ("host", 1))
        assert list(httpd.steps) == [served, new]
        with pytest.raises(OSError):
            httpd.step(idle, "reads")


def test_a_request_that_arrives_slowly_makes_room_but_not_one_that_is_served():
    slow, served, new = (mock.Mock(name=name) for name in ("slow", "served", "new"))
    with (
        limits(MAX_CONNECTIONS=2),
        contextlib.closing(mcp.http_server(mcp.Endpoint(mcp.Server("s")))) as httpd,
    ):
        for link, what in ((served, "serves"), (slow, "reads")):
            assert httpd.verify_request(link, ("host", 1))
            httpd.step(link, what, PATIENCE)
        assert httpd.verify_request(new, ("host", 1))
        assert list(httpd.steps) == [served, new]
        httpd.step(new, "serves")
        assert not httpd.verify_request(slow, ("host", 1))


@parametrize("how", ["shutdown_request", "handle_error"])
def test_a_connection_may_end_while_another_is_accepted(how):
    reading, gate = threading.Event(), threading.Event()

    class Steps(dict):
        def __getitem__(self, link):
            gate.set()
            wait([ending], 0.02)
            return super().__getitem__(link)

    def end():
        arguments = [link] if how == "shutdown_request" else [link, ("host", 1)]
        if how == "handle_error":
            link.recv(1)
        getattr(httpd, how)(*arguments)

    def recv(size: int) -> bytes:
        reading.set()
        gate.wait(PATIENCE)
        return b""

    link, others = mock.Mock(recv=recv), [mock.Mock(), mock.Mock()]
    with (
        limits(MAX_CONNECTIONS=2),
        contextlib.closing(mcp.http_server(mcp.Endpoint(mcp.Server("s")))) as httpd,
    ):
        for one in (link, others[0]):
            assert httpd.verify_request(one, ("host", 1))
        httpd.steps = Steps(httpd.steps)
        ending = begin(end)
        assert reading.wait(PATIENCE)
        assert httpd.verify_request(others[1], ("host", 1))
        ending.result(PATIENCE)
        assert set(httpd.steps) == set(others)


@parametrize(
    "sent, answer",
    [
        (b"\x16", "HTTP/1.1 400 "),  # TLS
        (b"GET /mcp\r\n", "HTTP/1.1 400 "),  # HTTP/0.9
        (b"PRI * HTTP/2.0\r\n", "HTTP/1.1 400 "),
        (b"POST /mcp HTTP/1.1\nHost: 127.0.0.1\n", "HTTP/1.1 400 "),
    ],
)
def test_what_is_not_http_is_refused_at_once(sent, answer, capfd):
    with (
        exchanges(server="empty", limits={"SEND_SECONDS": 3 * PATIENCE}) as site,
        socket.create_connection(("127.0.0.1", site.line.port), PATIENCE) as link,
    ):
        link.sendall(sent)
        with link.makefile("r") as answers:
            assert answers.readline()[:13] == answer
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
    limits = {"SEND_SECONDS": 0.2, "KEEP_ALIVE_SECONDS": 0.01}
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
            came = itertools.takewhile(
                lambda line: b"prompts/" not in line and line != b"0\r\n", lines
            )
            news = [one for one in came if b"_changed" in one or b"/updated" in one]
        assert len(news) >= fewest


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
        site("until GET s Last-Event-ID={a} -> 200 no longer kept")
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
    body = mcp.encode(call)
    lines = {**headers_of(call), "Host": "127.0.0.1", "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with http_serving(server) as httpd:
        httpd.patience = 1.2 * PATIENCE
        port = httpd.server_port
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as link:
            link.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            assert called.wait(PATIENCE)
            # It waits for the client, but only for a fifth of its patience.
            begin(httpd.close).result(PATIENCE)


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


def test_without_a_thread_for_its_stream_a_call_is_answered(monkeypatch):
    server, start = mcp.Server("s"), threading.Thread.start

    @server.tool
    def careful(ctx: Context) -> str:
        for step in range(2 * mcp.AHEAD_BYTES // 100):
            with contextlib.suppress(RuntimeError):
                ctx.progress(step, message="x" * 100)
        return "done"

    def start_some(thread):
        if thread.name == "mcp-stream":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    call = modern("tools/call", name="careful")
    call["params"]["_meta"]["progressToken"] = 0
    with http_serving(server) as httpd:
        status, _, answer = exchange(
            httpd.server_port, "POST", "/mcp", headers_of(call), mcp.encode(call)
        )
    assert status == 200 and answer["result"]["content"] == [mcp.text("done")]


@parametrize(
    "words, status",
    [
        (["--http", "0", "--verbose"], None),
        (["--http=0", "x"], None),
        (["--title=see --http 1234"], 0),
        (["--title", "see --http 1234"], 0),
        (["--http", "x"], 2),
        (["--http"], 2),
    ],
    ids=str,
)
def test_the_port_is_one_word_and_the_rest_is_the_programs(words, status):
    source = "import mcp_ref; mcp_ref.Server('s').run()"
    if status is None:
        with listening("-c", source, *words) as (_, url):
            assert url
        return
    assert command("-c", source, *words).returncode == status


def test_an_option_that_only_begins_like_http_is_no_server():
    done = command(str(MCP_REF), "--https", "8000")
    assert done.returncode == 2 and "--https" in done.stderr


def test_a_level_that_does_not_exist_is_answered_with_those_that_do():
    server = mcp.Server("s")

    def tool(ctx: Context) -> None:
        ctx.log("warn", "x")

    tool.__annotations__ = {"ctx": Context}
    server.tool(tool, name="t")
    text = server.call("t")["content"][0]["text"]
    assert "'warn'" in text and "warning" in text


def test_params_that_are_null_are_absent():
    server, sent = mcp.Server("s"), []
    server.tool(lambda: "", name="t")
    peer = mcp.Peer(sent.append)
    server.handle(OPENING, sent.append, peer=peer)
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": None}
    server.handle(call, sent.append, peer=peer)
    assert sent[-1]["result"]["tools"][0]["name"] == "t"
    server.handle({**call, "id": 8}, sent.append)
    assert sent[-1]["error"]["code"] == CODES["INVALID_PARAMS"]
    params = {"name": "t", "_meta": None}
    call.update(id=9, method="tools/call", params=params)
    server.handle(call, sent.append, peer=peer)
    assert sent[-1]["result"]["content"] == [mcp.text("")]
    for meta in (0, "", [], False):  # which are no objects, and not absent
        params = {**params, "_meta": meta}
        server.handle({**call, "params": params}, sent.append, peer=peer)
        assert sent[-1]["error"]["code"] == CODES["INVALID_PARAMS"]


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


def test_a_principal_is_the_same_in_another_order_and_never_by_equality():
    server = mcp.Server("s", state_key="k" * 16)
    core_questions(server)
    first = {"sub": "ann", "of": 1}
    state = ask(server, "tools/call", first, name="rounds")["requestState"]
    for principal, good in (
        ({"of": 1, "sub": "ann"}, True),
        ({"of": 1.0, "sub": "ann"}, False),
        ({"of": True, "sub": "ann"}, False),
    ):
        answer = ask(server, "tools/call", principal, name="rounds", requestState=state)
        assert ("resultType" in answer) == good
    other = mcp.Server("t", state_key="k" * 16)
    core_questions(other)
    answer = ask(other, "tools/call", first, name="rounds", requestState=state)
    assert "requestState" in answer["message"]


def test_a_session_belongs_to_its_principal_in_any_order_of_members():
    principals = {
        "a": {"x": 1, "y": 2},
        "b": {"y": 2, "x": 1},
        "c": {"x": 1, "y": True},
    }
    endpoint = mcp.Endpoint(mcp.Server("s"), authorize=mcp.bearer(principals))
    httpd = mcp.http_server(endpoint)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        statuses = {}
        ident = ""
        for key in "abc":
            message = OPENING if key == "a" else {**OPENING, "method": "ping", "id": 9}
            headers = {**headers_of(message), "Authorization": f"Bearer {key}"}
            headers.update({"Mcp-Session-Id": ident} if ident else {})
            body = json.dumps(message)
            port = httpd.server_port
            statuses[key], found, _ = exchange(port, "POST", "/mcp", headers, body)
            ident = ident or found["mcp-session-id"]
        assert statuses == {"a": 200, "b": 200, "c": 404}
    finally:
        httpd.close()


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
        [sys.executable, "-c", source], stdin=-1, stdout=-1, stderr=-1, cwd=HERE
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
        serving = contextlib.nullcontext((None, [sys.executable, *words]))
    environ = {"PYTHONPATH": str(HERE)}
    with mock.patch.dict(os.environ, environ), serving as (_, target):
        options = {"env": environ} if over == "stdio" else {}
        with client.connect(target, timeout=PATIENCE, **options) as one:
            for kind in ("fork", "forkserver"):
                result = one.call_tool("child", {"kind": kind})
                assert result["content"][0]["text"] in ("15", "-15"), result
            assert one.call_tool("pool")["structuredContent"] == {"result": [1, 2]}
            # Nothing is blocked any longer, here and there.
            assert said(one, "signals") == "0 0"


def test_who_may_not_see_a_resource_may_not_watch_it():
    class Hiding(mcp.Server):
        def offered(self, kind, ctx):
            assert ctx.version  # all of the context may be read
            found = super().offered(kind, ctx)
            return found if ctx.principal == "ann" else {}

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


def test_who_is_too_far_behind_is_told_that_something_is_missing():
    """No change is dropped in silence: a stream, or a session, ends."""
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
        for number in range(2 * mcp.MAX_URIS + 9):
            server.notify("x/news", {"number": number})
        gate.set()
        serving.result(PATIENCE)  # though nobody has ended it

    with exchanges(server="empty") as site:
        site("session s 2025-11-25")
        site("POST s notifications/initialized -> 202")
        for number in range(2 * mcp.MAX_URIS + 9):
            site.line.server.notify("x/news", {"number": number})
        site("POST s ping -> 404")


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
    with asked_over_http(0.5) as (_, _, next_event, process):
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
    assert "requests abandoned: 1" in capfd.readouterr().err


@needs_posix
def test_connections_follow_the_limit_of_descriptors(monkeypatch):
    import resource

    listen = 'POST modern subscriptions/listen {"notifications": {}}'
    monkeypatch.setattr(resource, "getrlimit", lambda which: (36, 36))
    with exchanges() as site:  # two connections, and one may last
        site(f"a = {listen}")
        site(f"until {listen} -> 503 too many streams")
        site("until POST - ping -> 200")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))
    with exchanges() as site:
        site(f"a = {listen}")
        site(f"b = {listen}")


def test_one_exception_does_not_end_the_watch(capfd):
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

    call = modern("tools/call", name="waits")
    body = mcp.encode(call)
    headers = {**headers_of(call), "Content-Length": str(len(body))}
    wire = Wire("POST", "/mcp", headers.items(), io.BytesIO(body))
    with contextlib.closing(mcp.Endpoint(server)) as endpoint:
        begin(endpoint.serve, wire).result(2 * PATIENCE)
    assert cancelled.is_set() and "no socket" in capfd.readouterr().err


def test_a_client_that_has_left_does_not_keep_changes_from_others(capfd):
    server, told = mcp.Server("s"), []

    def fail(message):
        raise OSError("broken pipe")

    server.tool(lambda: None, name="new")
    peers = [mcp.Peer(fail), mcp.Peer(told.append)]
    hello = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {}}
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


def test_the_rule_for_hosts_looks_at_the_address_and_not_at_its_spelling():
    httpd = mcp.http_server(mcp.Endpoint(mcp.Server("s")), "LocalHost")
    with contextlib.closing(httpd):
        begin(httpd.serve_forever, 0.01)
        headers = {"Host": "evil.example", "Content-Type": "application/json"}
        answer = exchange(httpd.server_port, "POST", "/mcp", headers, HTTP_PING)
        assert answer[0] == 403


def test_calls_over_http_sse_are_taken_while_a_thread_for_them_is_only_starting(
    monkeypatch,
):
    """A call that waits for its thread is no sign that there are too many."""
    gate, help_out = threading.Event(), mcp.Crew.help

    def help_later(crew):
        gate.wait(3 * PATIENCE)
        help_out(crew)

    monkeypatch.setattr(mcp.Crew, "help", help_later)
    with exchanges() as site:
        site("a = GET - /sse")
        site("a event endpoint")
        site("POST - /{endpoint} initialize {INIT} -> 202")
        site("POST - /{endpoint} notifications/initialized -> 202")
        for _ in range(2):
            site("POST - /{endpoint} tools/list -> 202")
        gate.set()


@pytest.mark.skipif(sys.platform != "linux", reason="others have no 127.0.0.2")
def test_the_rule_for_hosts_holds_at_each_loopback_address():
    httpd = mcp.http_server(mcp.Endpoint(mcp.Server("s")), "127.0.0.2")
    with contextlib.closing(httpd):
        begin(httpd.serve_forever, 0.01)
        statuses = []
        for host in ("127.0.0.2", "localhost", "evil.example"):
            link = http.client.HTTPConnection(
                "127.0.0.2", httpd.server_port, timeout=PATIENCE
            )
            headers = {"Host": host, "Content-Type": "application/json"}
            link.request("POST", "/mcp", HTTP_PING, {**headers, "Connection": "close"})
            with link.getresponse() as answer:  # it outlives its connection
                statuses.append(answer.status)
    assert statuses == [200, 200, 403]


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
        place = 'resource_metadata=\\"https://m\\"'
        site(f'POST - ping -> 401 www-authenticate": "Bearer {place} & !error=')
        site("POST - Authorization=Basic%20good|good|Bearer%20 ping -> 401 !error=")
        flaw = 'error=\\"invalid_token\\"'
        site(f"POST - Authorization=Bearer%20bad ping -> 401 Bearer {flaw}, {place}")
        site("POST - Authorization=Bearer%20good|bearer%20good ping -> 200")


def test_a_mounted_endpoint_says_when_to_hang_up():
    with exchanges(limits={"REPLAY_BYTES": 25}) as site:

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


def test_a_subscription_whose_client_has_left_is_forgotten_without_a_watch():
    with exchanges() as site:

        def write(data):
            site.line.server.changed("prompts")
            if b"list_changed" in data:
                raise OSError

        site.line.httpd.endpoint.watch.leave = lambda post, look: None
        serve_mounted(site, *LISTEN.split(" ", 1), write)
        assert not site.line.server.listeners


def test_a_handler_does_not_wait_for_a_client_that_has_left():
    left = mock.Mock(side_effect=OSError)
    with exchanges(limits={"AHEAD_BYTES": 0}) as site:
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
<< 400 {} {"jsonrpc": "2.0", "id": "x", "error": {"code": -32602, "message": "session"}}
raises HttpError session
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
http | << 302 {"Location": "http://localhost:1/mcp"} | HttpError another origin
""",
    ),
    "client",
)

WRONG = r"""
list_tools | tools/list | {"tools": {}} | {"tools": [{}]} | {"tools": [], "nextCursor": 5}
list_resources | resources/list | {"resources": "x"} | {"resources": [{"uri": "x:y"}]}
list_resource_templates | resources/templates/list | {"resourceTemplates": [{"name": "n"}]}
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
<< {"jsonrpc": "2.0", "id": "{ID:3}", "result": {"tools": []}}
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
            client.connect(server, revision=version, timeout=PATIENCE, **options)
        )


@played(select("* memory http"))
def test_client_calls_back(version, carrier):
    server, steps, logs, heard = fixture(Stage()), [], queue.Queue(), queue.Queue()

    async def elicit(params, tag):
        return {"branch": str(tag)}

    with connected(
        version,
        carrier,
        server,
        elicit=elicit,
        log_level="emergency",
        on_log=logs.put,
        on_notification=heard.put,
    ) as one:
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
        wanted = (
            "main" if exists(mcp.METHODS["elicitation/create"], version) else "failed"
        )
        assert wanted in one.call_tool("ask", tag="main")["content"][0]["text"]


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
            assert [begin(next, changes).result(PATIENCE) for _ in "12"] == [
                "test://text",
                "tools",
            ]
            assert next_of(heard) == "prompts"
            rest = begin(list, changes)
        assert rest.result(PATIENCE) == []  # its end ends the loop
        # The server may hear of it a moment later.
        wait_until(lambda: carrier == "http" or len(server.listeners) == 1)


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
    started = client.StdioTransport([sys.executable, "-c", code])
    options = {"revision": "2025-11-25", "timeout": PATIENCE}
    options["on_notification"] = lambda message: sent.set()
    with limits(MAX_QUESTIONS=2), client.connect(started, **options) as one:
        assert sent.wait(PATIENCE)
        found = begin(one.request, "count")
        os.kill(started.process.pid, signal.SIGUSR1)
        assert found.result(PATIENCE)["read"] < 9


def test_client_answers_no_more_questions_than_its_limit():
    gate = threading.Event()
    with talk(
        "2025-11-25",
        "http",
        client="yes",
        limits={"MAX_QUESTIONS": 1},
        connect={"roots": lambda tag: gate.wait(PATIENCE) and []},
    ) as t:
        t(
            "call list_prompts\n> 1 prompts/list\n< #a roots/list\n< #b roots/list\n"
            "< - notifications/x"
        )
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
    with talk(MODERN[0], "http", client="yes") as t:
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
        assert not differences(
            {
                "mcp-param-a": "=?base64?w7w=?=",
                "mcp-param-b": "true",
                "mcp-param-c": None,
                "mcp-method": "tools/call",
                "mcp-name": "t",
                "mcp-protocol-version": MODERN[0],
                "content-length": str(len(mcp.encode(t.line.asked[-1][2])) - 1),
            },
            t.line.asked[-1][1],
        )


JSON = {"Content-Type": "application/json", "Mcp-Session-Id": "s1"}
STREAM = http_answer(200, {**JSON, "Content-Type": "text/event-stream"}, None)


def answering(answer, kind=Site):
    """Make a Site; `answer` gets verb, headers, method and the text of a good
    response."""

    def play(verb: str, headers: dict, message):
        found = {
            "supportedVersions": MODERN,
            "capabilities": {"tools": {}, "prompts": {}},
            "protocolVersion": "2025-11-25",
            "prompts": [],
            "tools": [],
            "content": [],
            "resultType": "complete",
        }
        text = (
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found})
            if "id" in message
            else ""
        )
        return answer(verb, headers, message.get("method"), text)

    return contextlib.closing(kind(play))


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
        data = (
            form.replace("@1", text[1:]).replace("@", text).replace("\n", end).encode()
        )
        pieces = 1 if method == "prompts/list" else len(data)
        data = data if whole else data[: dice.randrange(len(data) - 1)]
        yield STREAM
        yield from (data[n : n + pieces] for n in range(0, len(data), pieces))

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
        assert all(
            headers["mcp-protocol-version"] == LEGACY[0]
            for _, headers, _ in site.asked[1:]
        )
        assert all(
            "json" in headers["accept"] and "text/event-stream" in headers["accept"]
            for verb, headers, _ in site.asked
            if verb == "POST"
        )
        assert {headers.get("mcp-session-id") for _, headers, _ in site.asked[1:]} == {
            "s1"
        }
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
        yield (
            http_answer(200, JSON, text)
            if headers.get("authorization") == "t"
            else http_answer(status, {"WWW-Authenticate": "Bearer"})
        )

    def authorize(refusal):
        assert (
            refusal.status == status and refusal.headers["www-authenticate"] == "Bearer"
        )
        return granted

    outcome = (
        contextlib.nullcontext()
        if granted
        else pytest.raises(mcp.HttpError, match="401")
    )
    with (
        answering(answer) as site,
        outcome,
        client.connect(site.url, authorize=authorize) as one,
    ):
        assert one.list_prompts() == [] and len(site.asked) == 3


def test_client_falls_back_to_http_sse():
    with (
        http_serving(fixture(Stage())) as httpd,
        client.connect(httpd.url.replace("mcp", "sse"), timeout=PATIENCE) as one,
    ):
        assert one.version == "2025-11-25" and one.call_tool("add", {"a": 1})
        with limits(MAX_THREADS=-9999), pytest.raises(mcp.HttpError, match="503"):
            one.ping()


def test_client_leaves_no_thread_to_a_server_that_does_not_answer():
    """What needs no response waits no longer than the caller does."""
    over = threading.Event()

    def answer(verb: str, headers: dict, method: str, text: str):
        if verb == "DELETE":
            assert over.wait(3 * PATIENCE)
        headers = {**JSON, "Mcp-Session-Id": "s"}
        yield http_answer(200 if text else 202, headers, text)

    with answering(answer) as site, limits(CLOSE_STEP_SECONDS=0.05):
        client.connect(site.url, revision="2025-11-25").close()
        wait_until(lambda: "mcp-post" not in [t.name for t in threading.enumerate()])
        over.set()
        assert site.asked[-1][0] == "DELETE"


# ---- processes, and the command line


def program_of(before: str, after: str) -> list[str]:
    """Make a program that does something, answers the probe (with WORDS) and does
    more."""
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"""if True:
        import json, os, signal, subprocess, sys
        WORDS = ""
        {before}
        ident = json.loads(sys.stdin.readline())["id"]
        found = {{"resultType": "complete", "supportedVersions": {MODERN},
                 "capabilities": {{"tools": {{}}}}, "instructions": WORDS}}
        print(json.dumps({{"jsonrpc": "2.0", "id": ident, "result": found}}), flush=True)
        {after}""",
    ]


def program(before: str, after: str, **options):
    return client.connect(program_of(before, after), **options)


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
def test_client_ends_a_server_and_its_children(before, after, last, tmp_path):
    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end, lines = begin((tmp_path / "held").read_bytes), []
    before = f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY); {before}"
    with (
        limits(CLOSE_STEP_SECONDS=PATIENCE if last == "end" else 0.3),
        program(before, after, stderr=lines.append),
    ):
        pass
    assert end.result(PATIENCE) == b"" and lines[-1] == last


@needs_posix
def test_client_ends_a_server_although_its_closing_is_interrupted(tmp_path):
    """By a second Ctrl-C, while the server takes its time."""
    os.mkfifo(tmp_path / "held")
    main, end = threading.main_thread().ident, begin((tmp_path / "held").read_bytes)
    before = f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY)"
    one = program(
        before + "; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
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
    with contextlib.suppress(OSError):  # it may have ended before it opened it
        os.close(os.open(tmp_path / "held", os.O_WRONLY | os.O_NONBLOCK))
    assert end.result(PATIENCE) == b""


def test_client_records_what_passes(tmp_path):
    with (
        open(tmp_path / "t", "ab", 0) as file,
        answering(
            lambda verb, headers, method, text: [http_answer(200, JSON, text)]
        ) as site,
    ):
        client.connect(site.url, record=file).close()
    lines = [json.loads(line) for line in (tmp_path / "t").read_bytes().splitlines()]
    assert not differences(
        [
            {
                "way": ">",
                "http": "POST /mcp",
                "headers": {"Mcp-Method": "server/discover"},
                "message": {"method": "server/discover"},
                "status": None,
            },
            {"way": "<", "status": 200, "message": {"id": 1}},
        ],
        lines,
    )
    assert lines[0]["on"] == lines[1]["on"] and re.fullmatch(TIME, lines[0]["time"])


def test_client_records_that_it_hangs_up(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, http_serving(fixture(Stage())) as httpd:
        with client.connect(httpd.url, record=file) as one:
            with one.listen("tools"):
                pass
    lines = [json.loads(line) for line in (tmp_path / "t").read_bytes().splitlines()]
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
call connect
> server/discover
@2
> initialize
@3
raises @4
""",
            r"""
1 |  |  | TimeoutError s (tried server/discover, then initialize; if
9 | << 502 {} starting | << 503 {} still | HttpError : still (tried server/discover, then initialize; if
9 | << 429 {} slowly | << 429 {"Retry-After": "soon"} x | HttpError revision= or --revision
9 | << 429 {"Retry-After": "999"} x | << 404 {} none | HttpError : none (tried server/discover
9 | << 200 {} <html> | << 200 {} <html> | Malformed (tried server/discover
9 | << 500 {} x | < error {INTERNAL_ERROR} broken | RpcError broken (tried server/discover
""",
        )
        + each(
            r"""
== after @1, the session is opened all the same | bare | on: http 2025-11-25
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
raises HttpError 400
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
<< {"jsonrpc": "2.0", "id": "{ID:1}", "result": {"contents": []}}
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
== a session that is lost twice is a lost connection | on: http 2025-11-25
call list_prompts
> prompts/list
<< 404 {} gone
initialize => {"protocolVersion": "{VERSION}", "capabilities": {"prompts": {}}}
> - notifications/initialized
> prompts/list
<< 404 {} gone
raises Disconnected session
== too many questions are not answered | on: memory modern | limits: {"MAX_QUESTIONS": 1}
    | connect: {"elicit": {"x": "v"}}
call get_prompt p
prompts/get => {"resultType": "input_required", "inputRequests": {
    "a": {"method": "elicitation/create", "params": @FORM},
    "b": {"method": "elicitation/create", "params": @FORM}}}
raises Malformed 2 questions
== a list has an end, in bytes | on: memory 2025-11-25 | limits: {"MAX_LIST_BYTES": 100}
call list_prompts
prompts/list => {"prompts": [{"name": "xxxxxxxxxxxxxxxxxxxxxxxxxxx"}], "nextCursor": "2"}
prompts/list => {"prompts": [{"name": "xxxxxxxxxxxxxxxxxxxxxxxxxxx"}], "nextCursor": "3"}
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
        found = one.call_tool("ask")["content"][0]["text"]
    assert [root["uri"] for root in json.loads(found)] == [
        "file://" + path for path in wanted
    ]


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
    assert [word in line for word, line in zip(("not to", "alike", "encr"), found)] == [
        True,
        "alike" in found[1],
        True,
    ]
    assert client.url_warnings("http://localhost:5/") == []
    with pytest.raises(ValueError):
        client.url_warnings("javascript:alert(1)")


@needs_posix
def test_a_timeout_covers_a_server_that_hangs_at_its_start():
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        client.connect(
            [sys.executable, "-c", "import time; time.sleep(99)"], timeout=0.2
        )
    assert time.monotonic() - start < 5  # it is also ended


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
        client.connect([sys.executable, "-c", code], stderr=said.append)
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
            yield http_answer(200 if text else 202, JSON, text)
        elif len([verb for verb, _, _ in site.asked if verb == "GET"]) == 1:
            yield STREAM + b"retry: 50\n\n"
        else:
            yield http_answer(401, {})

    with answering(answer) as site:
        options = {"authorize": asked.put, "on_log": print, "timeout": PATIENCE}
        with client.connect(site.url, revision=LEGACY[0], **options):
            assert asked.get(timeout=PATIENCE).seconds > PATIENCE


def test_client_never_logs_in_to_leave():
    asked = []

    def answer(verb: str, headers: dict, method: str, text: str):
        status = 401 if verb == "DELETE" else 200 if text else 202
        yield http_answer(status, JSON, text)

    with answering(answer) as site:
        client.connect(site.url, revision=LEGACY[0], authorize=asked.append).close()
        assert [verb for verb, _, _ in site.asked][-1] == "DELETE"
    assert asked == []


def test_client_prints_no_control_characters(capsys):
    """Over HTTP, too: of a tool that it refuses, and of a question."""
    seen = threading.Event()
    tool = {
        "name": "\x1b[2J",
        "inputSchema": {"properties": {"a": {"x-mcp-header": ""}}},
    }
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
        with client.connect(site.url, revision=LEGACY[0], timeout=PATIENCE) as one:
            one.ping()
            assert seen.wait(PATIENCE)
    printed = capsys.readouterr().err
    assert "ignored the tool" in printed and "Method not found" in printed
    assert "\x1b" not in printed


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
        yield http_answer(200 if text else 202, JSON, text)

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
        end = time.monotonic() + PATIENCE
        while server.listeners:  # it is cancelled
            assert time.monotonic() < end
            time.sleep(0.001)


def test_client_keeps_http_connections(tmp_path):
    with open(tmp_path / "t", "ab", 0) as file, http_serving(fixture(Stage())) as httpd:
        with client.connect(httpd.url, record=file, timeout=PATIENCE) as one:
            for _ in range(20):
                assert one.call_tool("add", {"a": 1})
    lines = map(json.loads, (tmp_path / "t").read_bytes().splitlines())
    assert len({line["on"] for line in lines if "on" in line}) <= 3


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
        end = time.monotonic() + PATIENCE
        for _ in range(3):
            assert one.list_prompts() == []
        while "mcp-post" in [thread.name for thread in threading.enumerate()]:
            assert time.monotonic() < end
            time.sleep(0.01)
        gate.set()


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
        methods = [message["method"] for _, _, message in site.asked]
    assert methods == ["server/discover", "tools/list", "tools/list", "tools/call"]


@needs_posix
def test_a_call_is_sent_again_if_it_was_not_sent_whole():
    """It is larger than the buffers of both sides, and nobody reads it."""
    kind = functools.partial(Fickle, reads_all=False)
    with answering(keeping, kind) as site, client.connect(site.url) as one:
        assert one.call_tool("x", {"text": "x" * 12_000_000})
        methods = [message["method"] for _, _, message in site.asked]
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


def test_a_modern_server_may_say_so_first_to_initialize():
    refused = iter([True])
    error = {"code": -32022, "message": "old", "data": {"supported": MODERN}}

    def answer(verb: str, headers: dict, method: str, text: str):
        if method == "server/discover" and next(refused, False):
            yield http_answer(404, {}, "not yet")
        elif method == "initialize":
            ident = json.loads(text)["id"]
            body = {"jsonrpc": "2.0", "id": ident, "error": error}
            yield http_answer(400, JSON, json.dumps(body))
        else:
            yield http_answer(200, JSON, text)

    with answering(answer) as site, client.connect(site.url) as one:
        assert one.modern


def test_a_body_that_is_cut_off_is_a_lost_connection():
    def answer(verb: str, headers: dict, method: str, text: str):
        yield http_answer(200, {**JSON, "Content-Length": "9999"}, text)

    with answering(answer) as site, pytest.raises(client.Disconnected, match="cut off"):
        client.connect(site.url)


def test_an_endpoint_on_another_origin_is_told():
    def answer(verb: str, headers: dict, method: str, text: str):
        yield (
            STREAM + b"event: endpoint\ndata: http://evil.example/\n\n"
            if (verb == "GET")
            else http_answer(405, {})
        )

    with (
        answering(answer) as site,
        pytest.raises(client.Malformed, match="another origin"),
    ):
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
    recipe = re.search(
        r"(?ms)^async def call\(.*?^        raise\n",
        (HERE / "examples" / "guide.md").read_text("utf-8"),
    )[0]
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
            yield http_answer(200, JSON, text)

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
            asked = [message["method"] for _, _, message in site.asked]
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
    return client.connect([sys.executable, "-c", code], **options)


LEGACY_RESULT = "answer(result={'protocolVersion': '2025-11-25', 'capabilities': {}})"
LEGACY_RESULT += "; sys.stdin.readline()"
MODERN_RESULT = (
    f"answer(result={{'supportedVersions': {MODERN}, 'capabilities': {{}}}})"
)


@needs_posix
@parametrize(
    "answer, rest, probe, noise",
    [
        ("answer(error={'code': -32601, 'message': 'no'})", LEGACY_RESULT, PATIENCE, 0),
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
    refuses = "answer(error={'code': -32601, 'message': 'no'})"
    with pytest.raises(client.Disconnected, match="about discover"):
        probed(refuses, "sys.exit(5)", stderr=said.append)


def test_a_hang_up_at_discovery_is_followed_by_initialize():
    def answer(verb: str, headers: dict, method: str, text: str):
        if method == "server/discover":
            return
        yield http_answer(200 if text else 202, JSON, text)

    with answering(answer) as site, client.connect(site.url, timeout=PATIENCE) as one:
        assert one.version == "2025-11-25" and one.list_prompts() == []


def test_a_server_that_is_not_there_is_asked_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(client.Disconnected) as caught:
            client.connect(f"http://127.0.0.1:{free.getsockname()[1]}/mcp", proxy="")
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
            yield http_answer(200 if text else 202, JSON, text)

    with limits(RETRY_SECONDS=0.02), answering(answer) as site:
        with client.connect(site.url, revision=LEGACY[0], on_notification=print):
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
    sent = [headers.get("cookie") for _, headers, _ in site.asked]
    assert sent == [None, "route=a; x=1, 2", "route=b==; x=1, 2", "own"]
    assert "route" not in (tmp_path / "t").read_text()


def test_a_server_cannot_fill_a_client_with_cookies():
    numbers = itertools.count()

    def answer(verb: str, headers: dict, method: str, text: str):
        lines = b"".join(b"Set-Cookie: %d=x\r\n" % next(numbers) for _ in range(9))
        yield http_answer(200, JSON, text).replace(b"\r\n", b"\r\n" + lines, 1)

    with limits(MAX_COOKIES=3), answering(answer) as site:
        with client.connect(site.url) as one:
            for _ in "123":
                one.list_prompts()
    assert [headers.get("cookie", "").count("=") for _, headers, _ in site.asked] == [
        0,
        9,
        9,
        9,
    ]


def plain(verb: str, headers: dict, method: str, text: str):
    yield http_answer(200, JSON, text)


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
            monkeypatch.setenv(
                "http_proxy", place.replace("http://", "") if given == "bare" else place
            )
        if given == "no_proxy":
            monkeypatch.setenv("no_proxy", "example.org,127.0.0.1")
        if given == "none":
            options["proxy"] = ""
        with client.connect(site.url, **options) as one:
            one.list_prompts()
        client.fetch("GET", site.url + "?x=1", {})
        assert len(proxy.asked) + len(site.asked) == 3
        if given in ("no_proxy",):
            assert proxy.asked == []
        elif given in ("environment", "bare"):
            assert [headers[":path"] for _, headers, _ in proxy.asked] == [
                site.url,
                site.url,
                site.url + "?x=1",
            ]
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{free.getsockname()[1]}"
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
        targets = {headers[":path"] for _, headers, _ in proxy.asked}
        assert targets == {f"{HOST}:443", "/mcp"}
        monkeypatch.setenv("https_proxy", place)
        with pytest.raises(client.Disconnected, match="(?i)certificate"):
            client.connect(url)
    with pytest.raises(OSError, match="nothing"):
        client.connect(url, cacert=str(tmp_path / "nothing"))


def test_a_compressed_answer_is_named():
    def answer(verb: str, headers: dict, method: str, text: str):
        yield http_answer(200, {**JSON, "Content-Encoding": "gzip"}, text)

    with answering(answer) as site:
        with pytest.raises(client.Disconnected, match="compressed.*gzip"):
            client.connect(site.url)


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
            assert [begin(next, changes).result(PATIENCE) for _ in "12"] == [
                name,
                "tools",
            ]
        with one.listen(name) as subscription:
            server.notify(name)
            assert begin(next, iter(subscription)).result(PATIENCE) == name


def test_a_server_without_subscriptions_grants_no_names():
    with talk(MODERN[0], "memory", client="yes") as t:
        t(
            """
        call listen notifications/x/y
        subscriptions/listen => error {METHOD_NOT_FOUND}
        raises ServerLacks notifications/x/y
        """
        )


def test_an_event_keeps_what_is_known_of_it():
    tracemalloc = pytest.importorskip("tracemalloc")  # which PyPy lacks
    junk = "".join(f"f{n}: {n}\nid: {n}\nevent: {n}\n" for n in range(60_000))

    def answer(verb: str, headers: dict, method: str, text: str):
        data = f"data: {text}\n\n".encode()
        if method == "prompts/list":
            data = junk.encode() + b"event: message\n" + data
        yield STREAM + data

    with answering(answer) as site, client.connect(site.url) as one:
        tracemalloc.start()
        assert one.list_prompts() == []
        assert tracemalloc.get_traced_memory()[1] < 9_000_000  # it was 21
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
            yield http_answer(200 if text else 202, JSON, text)

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
    words = [sys.executable, "-S", "-E", "-c", code]
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
    assert all(word in text or word == "-" for word, text in zip(wanted, printed)), (
        printed
    )


# ======== Inside an application, whose data only one of its threads may touch


class Application:
    """An application: its thread calls what waits, one function after the other."""

    def __init__(self):
        self.waiting = queue.SimpleQueue()
        self.server = mcp.Server("application", run=self.waiting.put)
        self.server.tool(self.where, name="where")
        self.server.tool(self.act, name="act")
        self.acts = []
        self.gate = threading.Event()

    def where(self) -> str:
        return threading.current_thread().name

    def act(self, what: str) -> str:
        self.acts.append(what)
        return what

    def start(self, count: int):
        """Call `count` waiting functions on a thread; return the Future of that."""

        def loop():
            threading.current_thread().name = "application"
            for _ in range(count):
                next_of(self.waiting)()

        return begin(loop)

    def call(self, name: str, **arguments) -> Future:
        """Call a tool; the Future has the result, or the error."""
        return begin(ask, self.server, "tools/call", name=name, arguments=arguments)

    def acting(self, what: str):
        """Call a tool whose call can be cancelled: return that, and its outcome."""
        request = modern("tools/call", what, name="act", arguments={"what": what})
        peer, sent = mcp.Peer(), []
        calling = begin(self.server.handle, request, sent.append, peer=peer)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        cancelled["params"] = {"requestId": what}
        return lambda: self.server.handle(cancelled, print, peer=peer), calling, sent


def words_of(result: dict) -> str:
    return result.get("message") or result["content"][0]["text"]


def test_what_the_application_does_not_call_is_answered_and_never_done(capsys):
    application = Application()
    with limits(RUN_SECONDS=0.01):
        results = [application.call("act", what="late") for _ in range(2)]
        for result in results:
            assert "has not run this" in words_of(result.result(PATIENCE))
    log = capsys.readouterr()[1]
    assert log.count("run=") == 1 and "Traceback" not in log
    application.start(2).result(PATIENCE)
    assert application.acts == []
    last = application.call("act", what="in time")
    application.start(1).result(PATIENCE)
    assert words_of(last.result(PATIENCE)) == "in time" == application.acts[-1]


class Clock:
    """The module's time, which a test can move on."""

    def __init__(self, monkeypatch):
        self.ahead, self.looks = 0.0, threading.Semaphore(0)
        monkeypatch.setattr(mcp, "time", self)

    def __getattr__(self, name):
        return getattr(time, name)

    def monotonic(self):
        self.looks.release()
        return time.monotonic() + self.ahead

    def jump(self, seconds: float):
        """Move on; return when the module has looked a few times."""
        self.ahead += seconds
        for _ in range(20):
            self.looks.acquire(timeout=0)
        for _ in range(6):
            assert self.looks.acquire(timeout=PATIENCE)


@parametrize("how", ["at once", "later"])
def test_what_is_cancelled_before_it_begins_does_not_begin_there(how):
    jobs: queue.Queue = queue.Queue()
    put = jobs.put if how == "later" else (lambda job: job())
    server, began, outcome = mcp.Server("s", run=put), [], []

    @server.tool(run=None)
    def cancels(ctx: Context) -> None:
        message = {"method": "notifications/cancelled", "params": {"requestId": ctx.id}}
        ctx.server.handle({"jsonrpc": "2.0", **message}, print, peer=ctx.peer)
        try:
            ctx.run(began.append, 1)
        except BaseException as problem:
            outcome.append(type(problem).__name__)

    call = modern("tools/call", name="cancels")
    server.handle(call, print, peer=mcp.Peer())
    assert not began and outcome == ["CancelledError"]


def test_it_is_no_failure_to_wait_behind_a_long_call_or_to_take_long(monkeypatch):
    application, gate = Application(), threading.Event()
    begun = threading.Event()

    def render() -> str:
        begun.set()
        return str(gate.wait(3 * PATIENCE))

    application.server.tool(render)
    running = application.start(2)
    first = application.call("render")
    assert begun.wait(PATIENCE)
    second = application.call("act", what="second")
    clock = Clock(monkeypatch)
    clock.jump(2 * mcp.RUN_SECONDS)
    clock.jump(2 * mcp.RUN_SECONDS)
    assert not first.done() and not second.done()
    gate.set()
    assert words_of(first.result(PATIENCE)) == "True"
    assert words_of(second.result(PATIENCE)) == "second"
    running.result(PATIENCE)


def test_what_is_cancelled_while_it_waits_is_never_done():
    application = Application()
    (cancel, calling, sent), other = application.acting("pay"), application.acting("x")
    wait_until(lambda: application.waiting.qsize() == 2)
    cancel()
    application.start(2).result(PATIENCE)
    calling.result(PATIENCE)
    other[1].result(PATIENCE)
    assert application.acts == ["x"] and sent == []


def test_a_cancelled_call_does_not_hold_its_thread_until_the_application_calls():
    application = Application()
    cancel, calling, sent = application.acting("pay")
    wait_until(lambda: application.waiting.qsize() == 1)
    cancel()
    calling.result(PATIENCE)
    assert sent == [] == application.acts


def test_a_tool_may_stay_off_run_and_call_functions_there():
    application = Application()
    server = application.server

    @server.tool(run=None)
    def both(ctx: Context) -> list:
        return [application.where(), ctx.run(application.where), ctx.run(pow, 2, 5)]

    @server.tool(run=None)
    def fails(ctx: Context) -> str:
        return ctx.run(int, "x")

    @server.tool
    def nested(ctx: Context) -> str:
        return ctx.run(application.where)

    running = application.start(4)
    caller, called, power = json.loads(words_of(application.call("both").result()))
    assert (called, power) == ("application", 32) and caller != "application"
    assert "invalid literal" in words_of(application.call("fails").result(PATIENCE))
    assert words_of(application.call("nested").result(PATIENCE)) == "application"
    running.result(PATIENCE)

    plain = mcp.Server("plain")  # has no run=
    plain.tool(both)
    here = threading.current_thread().name
    assert json.loads(words_of(plain.call("both"))) == [here, here, 32]

    with pytest.raises(TypeError, match="None"):
        server.tool(application.where, run=print)


def test_a_coroutine_must_not_wait_for_the_application():
    application = Application()

    @application.server.tool
    async def wrong(ctx: Context) -> str:
        return ctx.run(application.where)

    @application.server.tool
    async def right(ctx: Context) -> str:
        return await asyncio.to_thread(ctx.run, application.where)

    running = application.start(1)
    assert "to_thread" in words_of(application.call("wrong").result(PATIENCE))
    assert words_of(application.call("right").result(PATIENCE)) == "application"
    running.result(PATIENCE)


HERE_PROGRAM = """
import sys, threading, time
import mcp_ref
mcp_ref.LEAVE_SECONDS = 0.05
server = mcp_ref.Server("application")

@server.tool
def where() -> str:
    return threading.current_thread().name

@server.tool
async def on_loop() -> str:
    return threading.current_thread().name

@server.tool
def leave():
    sys.exit("bye")

@server.tool
def interrupt():
    raise KeyboardInterrupt

@server.tool
def hold(ctx: mcp_ref.Context):
    ctx.progress(1)
    while not ctx.cancelled:
        time.sleep(0.001)
    print("held until the end")

try:
    server.run_here()
    print("after, on", where())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def here_program(tmp_path):
    """Write a program that runs here; return a function to connect, and its stderr."""
    (tmp_path / "program.py").write_text(HERE_PROGRAM)
    environment = {**COVERAGE, "PYTHONPATH": str(MCP_REF.parent)}
    lines = []
    return functools.partial(
        client.connect,
        [sys.executable, str(tmp_path / "program.py")],
        env=environment,
        stderr=lines.append,
    ), lines


def said(one, name: str, **options) -> str:
    return one.call_tool(name, **options)["content"][0]["text"]


def test_run_here_calls_handlers_on_its_thread_and_a_tool_cannot_end_it(here_program):
    connect, lines = here_program
    with connect() as one:
        assert said(one, "where") == "MainThread"
        assert said(one, "on_loop") == "mcp-loop"
        assert one.call_tool("leave")["isError"] and said(one, "leave") == "bye"
        assert said(one, "where") == "MainThread"
    assert lines[-1] == "after, on MainThread"


def test_run_here_returns_once_no_handler_runs_there(here_program):
    connect, lines = here_program
    reached = threading.Event()
    with connect() as one:
        options = {"on_progress": lambda *_: reached.set()}
        holding = begin(one.call_tool, "hold", **options)
        assert reached.wait(PATIENCE)
    holding.exception(PATIENCE)
    assert lines[-2:] == ["held until the end", "after, on MainThread"]


def test_run_here_leaves_a_keyboard_interrupt_to_its_thread(here_program):
    connect, lines = here_program
    with connect() as one, pytest.raises((mcp.RpcError, client.Disconnected)):
        one.call_tool("interrupt")
        one.call_tool("where")
    assert lines[-1] == "interrupted"


@needs_posix
@parametrize("number", [signal.SIGTERM, signal.SIGINT])
@parametrize("arguments", [[], ["--http", "0"]])
def test_a_signal_ends_run_here_while_it_waits(number, arguments, tmp_path):
    (tmp_path / "program.py").write_text(HERE_PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
        text=True,
        stdin=-1,
        stdout=-1,
        stderr=-2,
    ) as process:
        if not arguments:
            process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.stdout.read() == "after, on MainThread\n"
        assert process.wait(PATIENCE) == 0


@needs_posix
def test_a_slow_signal_handler_does_not_hold_run_here(here_program):
    """SimpleQueue.get() waits for ever if its time ends while a signal is handled."""
    connect, lines = here_program
    slow = "import signal; signal.signal(signal.SIGUSR1, lambda *_: time.sleep(0.11))"
    source = HERE_PROGRAM.replace("import mcp_ref", "import mcp_ref\n" + slow, 1)
    Path(connect.args[0][1]).write_text(source)
    with connect() as one:
        assert said(one, "where") == "MainThread"
        process = one.transport.process
        process.send_signal(signal.SIGUSR1)
    assert process.returncode == 0 and lines[-1] == "after, on MainThread"


def test_run_here_decides_where_handlers_run():
    with pytest.raises(TypeError, match="run="):
        mcp.Server("s", run=print).run_here()


def test_a_port_can_be_opened_again_as_soon_as_it_is_closed():
    """As does whoever switches an add-on off and on."""
    server, port = mcp.Server("s"), 0
    for _ in range(4):
        httpd = mcp.http_server(mcp.Endpoint(server), port=port)
        port, serving = httpd.server_port, begin(httpd.serve_forever)
        with client.connect(f"http://127.0.0.1:{port}/mcp") as one:
            one.ping()  # so that serve_forever() has begun
        httpd.close()
    serving.result(PATIENCE)


@needs_posix
def test_the_command_line_at_a_terminal(monkeypatch, tmp_path):
    """A server's text is shown without control characters; questions are answered."""
    import pty

    (tmp_path / "evil.py").write_text(
        """if True:
        from mcp_ref import Context
        def good(ctx: Context) -> str:
            "\x1b[2J"
            print("\x1b[2Jon stderr")
            found = ctx.elicit("Which \x1b]0;branch?", branch=str)
            ctx.progress(1, 2, "\x1b[31mred")
            return f"\x1b]52;c;AAAA\x07{found['content']['branch']}\x9b2J"
        """
    )
    words = [sys.executable, str(HERE / "examples" / "mcp_cli.py"), "call"]
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*words, "--env", "PYTHONPATH", str(tmp_path / "evil.py"), "good"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
    ) as process:
        os.close(slave)
        said = b""
        with contextlib.suppress(OSError):  # the end of a terminal, on Linux
            while data := os.read(master, 1000):
                said += data
                if b"branch (str)" in said and b"main" not in said:
                    os.write(master, b"main\n")
    os.close(master)
    assert process.returncode == 0 and b"AAAA" in said and b"main\\x9b2J" in said, said
    assert b"\\x1b[2Jon stderr" in said, said
    # the command's own, around the line that moves
    assert b"\x1b" not in said.replace(b"\r\x1b[K", b""), said
    assert b"\x07" not in said and b"\xc2\x9b" not in said, said


@needs_posix
@parametrize("moment", ["waiting", "connected", "started"])
def test_the_command_line_ends_its_server_when_it_is_ended(
    tmp_path, monkeypatch, moment
):
    """By `timeout`, for instance: not every server ends with its input. Also at the
    moments when there is a process, but no connection, and then no request."""

    def interrupted(target, **settings):
        client.connect(target, **settings)
        raise KeyboardInterrupt

    class Started(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGINT)

    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end = begin((tmp_path / "held").read_bytes)
    server = program_of(
        f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY)",
        "os.write(2, b'ready\\n'); signal.pause()",
    )
    if moment == "connected":
        monkeypatch.setattr(cli, "connect", interrupted)
        assert cli.main(["list", "--", *server]) == 130
    elif moment == "started":
        monkeypatch.setattr(subprocess, "Popen", Started)
        assert cli.main(["list", "--", *server]) == 130
    else:
        words = [sys.executable, str(HERE / "examples" / "mcp_cli.py"), "list", "--"]
        with subprocess.Popen([*words, *server], stderr=-1) as process:
            assert process.stderr.readline() == b"ready\n"
            process.terminate()
            assert process.wait(PATIENCE) == 130
    os.close(os.open(tmp_path / "held", os.O_RDWR))  # it may have ended before
    assert end.result(PATIENCE) == b""


@needs_posix
@parametrize(
    "words, stream, end, status",
    [
        ("--help", 1, "closed", 0),
        ("list nothing.py --json", 1, "closed", 2),
        ("list nothing.py", 2, "closed", 2),
        ("list nothing.py", 0, "closed", 2),
        ("--help", 1, "unread", 0),
        ("list nothing.py --json", 1, "unread", 2),
        ("list nothing.py", 2, "unread", 2),
        ("--help", 1, "full", 3),
    ],
)
def test_the_command_line_has_a_status_without_a_stream(words, stream, end, status):
    """That it was closed before is something else than that its reader has left."""
    if end == "full" and not Path("/dev/full").exists():
        pytest.skip("only Linux has it")
    reader, unread = os.pipe()
    os.close(reader)
    target = {"closed": "&-", "unread": "&0", "full": "/dev/full"}[end]
    program = [sys.executable, str(HERE / "examples" / "mcp_cli.py"), *words.split()]
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}>{target}', "sh", *program],
        stdin=unread,
        stdout=-1,
        stderr=-1,
        timeout=PATIENCE,
    )
    os.close(unread)
    assert found.returncode == status and b"Traceback" not in found.stderr


def test_a_form_can_be_changed_before_it_is_sent(monkeypatch):
    """client/elicitation: allow users to review and modify their responses."""

    class Typed(io.StringIO):
        def isatty(self):
            return True

    fields = {"a": {"type": "string"}, "b": {"type": "integer"}}
    form = {"message": "m", "requestedSchema": {"properties": fields}}
    for typed, wanted in (
        ("x\n1\n\n", {"a": "x", "b": 1}),
        ("x\n1\nn\ny\n2\ny\n", {"a": "y", "b": 2}),
        ("x\n1\n", "decline"),
        ("x\n", "decline"),
    ):
        monkeypatch.setattr(sys, "stdin", Typed(typed))
        assert cli.Terminal({}).elicit(form) == wanted
    given = cli.Terminal({})
    given.answers = {"a": "x", "b": "1"}
    assert given.elicit(form) == {"a": "x", "b": 1}


def test_questions_are_asked_one_after_the_other(monkeypatch):
    terminal, asked, gate = cli.Terminal({}), queue.Queue(), threading.Event()

    def ask(text: str):
        asked.put(text)
        gate.wait(PATIENCE)
        return "x"

    monkeypatch.setattr(sys, "stdin", mock.Mock(isatty=lambda: True))
    monkeypatch.setattr(terminal, "ask", ask)
    form = {"message": "m", "requestedSchema": {"properties": {"a": {}}}}
    both = [begin(terminal.elicit, form) for _ in "ab"]
    assert asked.get(timeout=PATIENCE)
    with pytest.raises(queue.Empty):
        asked.get(timeout=0.03)
    gate.set()
    assert [one.result(PATIENCE) for one in both] == [{"a": "x"}] * 2


def test_binary_output_does_not_reach_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["read", "--output", "-", "http://127.0.0.1:1/", "a://b"]) == 2
    assert "terminal" in capsys.readouterr().err


def test_names_and_errors_of_a_server_are_printed_in_plain(capsys):
    def answer(verb: str, headers: dict, method: str, text: str):
        message = json.loads(text)
        if method == "tools/list":
            message["result"]["tools"] = [{"name": "a\x1b[2J", "inputSchema": {}}]
        elif method == "x/y":
            error = {"code": 7, "message": "no \x1b]0;title\x07"}
            message = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        yield http_answer(200, JSON, json.dumps(message))

    with answering(answer) as site:
        assert [cli.main([*words, site.url]) for words in (["list"], ["ping"])] == [
            0,
            0,
        ]
        assert cli.main(["request", site.url, "x/y"]) == 4
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "a\\x1b[2J" in printed.out and "no \\x1b]0;title\\x07" in printed.err


def test_the_command_in_an_archive_serves_a_file(tmp_path):
    """As README makes it; the file is not run with a path inside the archive."""
    (tmp_path / "mcp").mkdir()
    for file in (MCP_REF, Path(client.__file__), Path(cli.__file__)):
        shutil.copy(file, tmp_path / "mcp")
    archive = tmp_path / "mcp.pyz"
    zipapp.create_archive(tmp_path / "mcp", archive, main="mcp_cli:start")
    (tmp_path / "tools.py").write_text("def seven() -> int: return 7\n")
    found = command(str(archive), "call", str(tmp_path / "tools.py"), "seven")
    assert (found.returncode, found.stdout) == (0, "7\n"), found.stderr


def test_the_command_line_finds_servers_and_files(tmp_path, capsys, monkeypatch):
    (tmp_path / "functions.py").write_text(
        "def join(words: list[str], n: int = 1, on: bool = False, x: dict = {}) -> str:\n"
        "    return repr((words, n, on, x))\n"
    )
    (tmp_path / "text").write_text("from a file")
    entry = {"command": sys.executable, "args": ["-m", "mcp_ref"]}
    entry["env"] = {"PYTHONPATH": "${WHERE:-" + str(MCP_REF.parent) + "}"}
    (tmp_path / "c.json").write_text(json.dumps({"mcpServers": {"demo": entry}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))

    for words, wanted in (
        ("call --config c.json demo echo text=5", "5"),
        (
            "call functions.py join words=a --words b --on n=2",
            "(['a', 'b'], 2, True, {})",
        ),
        ('call functions.py join words=["a"] x={"y":1}', "(['a'], 1, False, {'y': 1})"),
        (
            "call functions.py join words=@text --no-on",
            "(['from a file'], 1, False, {})",
        ),
        ("call functions.py join words=-", "(['secret'], 1, False, {})"),
        ("call functions.py join words=@@x", "(['@x'], 1, False, {})"),
    ):
        status = cli.main(words.split())
        printed = capsys.readouterr()
        assert (status, printed.out.strip()) == (0, wanted), printed
    assert cli.main("list --config c.json dem --json".split()) == 2
    assert "'demo'" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_server_that_only_exits_tells_its_status():
    for _ in range(3):  # it may exit before, while and after something is sent
        with pytest.raises(client.Disconnected) as problem:
            client.connect([sys.executable, "-c", "raise SystemExit(5)"])
        assert problem.value.exit_status == 5


# ======== The course, beyond what its docstrings print

COURSE = HERE / "examples" / "course"
TOOLS = HERE / "examples" / "tools"
mount = load("mount", HERE / "examples" / "mount.py")


def mounted_answer(how: str, verb: str, headers: dict, message):
    """Answer an HTTP request with mount.py, called in one of three ways."""
    path, body = headers.pop(":path"), json.dumps(message).encode()
    environ = {
        "HTTP_" * (name[:8] != "content-") + name.upper().replace("-", "_"): text
        for name, text in headers.items()
    }
    environ.update(
        REQUEST_METHOD=verb,
        PATH_INFO=path,
        SCRIPT_NAME="",
        QUERY_STRING="",
        CONTENT_LENGTH=str(len(body)),
    )
    if how == "cloud":  # an event of payload format 2.0
        said = mount.handler(
            {
                "rawPath": path,
                "requestContext": {"http": {"method": verb}},
                "headers": headers,
                "body": body.decode(),
            }
        )
        yield http_answer(said["statusCode"], said["headers"], said["body"])
    elif how == "cgi":
        done = subprocess.run(
            [sys.executable, mount.__file__],
            input=body,
            stdout=subprocess.PIPE,
            timeout=3 * PATIENCE,
            check=True,
            env={
                **os.environ,
                **environ,
                "GATEWAY_INTERFACE": "CGI/1.1",
                "HTTP_CONTENT_TYPE": environ.get("CONTENT_TYPE", ""),
            },
        )
        answer = done.stdout.replace(b"Status:", b"HTTP/1.1", 1)
        # The site closes, and must say so, or the client uses the connection again.
        yield answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    else:
        from wsgiref import handlers, util, validate

        util.setup_testing_defaults(environ)
        handler = handlers.SimpleHandler(
            io.BytesIO(body), io.BytesIO(), sys.stderr, environ
        )
        handler.run(validate.validator(mount.application))
        yield handler.stdout.getvalue()  # type: ignore[attr-defined]


def mounted(how: str):
    return contextlib.closing(Site(functools.partial(mounted_answer, how)))


@parametrize(
    "how, version",
    [("cgi", "2025-06-18"), *itertools.product(["wsgi", "cloud"], ORDER)],
)
def test_a_client_uses_the_mounted_endpoint(how, version):
    with mounted(how) as site:
        with client.connect(site.url, revision=version, timeout=PATIENCE) as found:
            said = found.call_tool("greet", {"name": "Ada"})
        assert said["content"][0]["text"] == "Hello, Ada!"
        assert "mcp-session-id" not in site.asked[-1][1]


CLOUD_PING = {
    "body": "eyJqc29ucnBjIjoiMi4wIiwiaWQiOjEsIm1ldGhvZCI6InBpbmcifQ==",
    "isBase64Encoded": True,
    "headers": {"Content-Type": "application/json"},
}


@parametrize(
    "event, status",
    [
        ({**CLOUD_PING, "httpMethod": "POST", "path": "/mcp"}, 200),
        (
            {
                **CLOUD_PING,
                "httpMethod": "POST",
                "path": "/mcp",
                "headers": None,
                "multiValueHeaders": {"content-type": ["application/json"]},
            },
            200,
        ),
        (
            {
                **CLOUD_PING,
                "rawPath": "/prod/mcp",
                "requestContext": {"stage": "prod", "http": {"method": "POST"}},
            },
            200,
        ),
        # a custom domain with a base path, in both formats
        ({**CLOUD_PING, "httpMethod": "POST", "path": "/tools/v1/mcp"}, 200),
        (
            {
                **CLOUD_PING,
                "rawPath": "/prod/tools/mcp/",
                "requestContext": {"stage": "prod", "http": {"method": "POST"}},
            },
            200,
        ),
        ({**CLOUD_PING, "httpMethod": "POST", "path": "/tools/mcpx"}, 404),
        ({**CLOUD_PING, "httpMethod": "POST", "path": "/mcp/x"}, 404),
        ({"httpMethod": "GET", "path": "/mcp", "body": None, "headers": None}, 405),
        (
            {
                "httpMethod": "POST",
                "path": "/mcp",
                "headers": {"Origin": "http://evil"},
            },
            403,
        ),
    ],
)
def test_a_function_in_a_cloud_reads_events_of_every_format(event, status):
    said = mount.handler(event)
    headers = said["multiValueHeaders" if "multiValueHeaders" in event else "headers"]
    assert (
        said["statusCode"] == status and "application/json" in headers["Content-Type"]
    )
    assert status != 200 or json.loads(said["body"]) == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {},
    }


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
    parts = iter(
        mount.application(
            {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": "/mcp",
                "CONTENT_LENGTH": str(len(body)),
                **{
                    "HTTP_" + name.upper().replace("-", "_"): text
                    for name, text in headers_of(call).items()
                },
                "wsgi.run_once": False,
                "wsgi.input": mock.Mock(read=lambda size: use() and body[:size]),
            },
            use,
        )
    )
    assert any(b"progress" in part for part in parts) and users == {
        threading.current_thread()
    }
    parts.close()
    assert gone.wait(PATIENCE)


@needs_posix
def test_gunicorn_ends_subscriptions_first(tmp_path):
    pytest.importorskip("gunicorn")
    listen = modern("subscriptions/listen", notifications={})
    call = modern("tools/call", name="greet", arguments={"name": "Ada"})

    def send(message):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {**headers_of(message), "Connection": "close"}
        connection.request("POST", "/mcp", mcp.encode(message), headers)
        return connection.getresponse()

    words = "-m gunicorn --bind 127.0.0.1:0 --worker-class gthread --threads 8 "
    words += "--graceful-timeout 600 --config python:mount mount:application"
    with subprocess.Popen(
        [sys.executable, *words.split()],
        cwd=Path(mount.__file__).parent,
        env={**os.environ, "HOME": str(tmp_path)},  # gunicorn keeps a socket there
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            lines: Any = process.stderr
            port = next(
                int(found[1])
                for line in lines
                if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line))
            )
            begin(lines.read)  # or the pipe would fill up
            streams = [send(listen) for _ in range(8)]
            assert [one.status for one in streams] == [200] * 6 + [503] * 2
            assert all("error" in str(one.read()) for one in streams[6:])
            assert "Hello, Ada!" in str(send(call).read())
            process.terminate()
            assert all("result" in str(one.read()) for one in streams[:6])
            assert process.wait(PATIENCE) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):  # its worker has left, too
                os.killpg(process.pid, signal.SIGKILL)


def test_copies_run_beside_the_module(tmp_path, monkeypatch):
    source = Path(mount.__file__).read_text("utf-8")
    app = shutil.copytree(HERE / "examples" / "extensions", tmp_path / "app")
    (tmp_path / "cmd.py").write_text("raise SystemExit('not the standard library')")
    for path in (MCP_REF, MCP_CLIENT):
        shutil.copy(path, app)
    assert source.startswith("#!")
    (app / "mount.py").write_text(
        source.replace("LISTEN_SECONDS = 5", "LISTEN_SECONDS = 0")
    )
    assert not command(
        "-c", "import gateway,mount,oauth_server,skills,tasks,cmd", cwd=app
    ).stderr
    monkeypatch.setattr(mount, "__file__", str(app / "mount.py"))
    listen = modern("subscriptions/listen", notifications={})
    headers = {name.lower(): text for name, text in headers_of(listen).items()}
    (answer,) = mounted_answer("cgi", "POST", {":path": "/mcp", **headers}, listen)
    assert b"200 OK" in answer and b"acknowledged" in answer


@needs_posix
def test_the_check_finds_no_flaw_in_a_good_server():
    check = load("check", TOOLS / "check.py")
    check.SECONDS = 3 * PATIENCE
    hello = [sys.executable, str(COURSE / "01_hello_server.py")]
    assert [check.play(hello, *row[1:]) for row in check.HOSTS] == [""] * len(
        check.HOSTS
    )


@needs_posix
@parametrize(
    "flaw, said",
    [
        ("sys.stderr.write('x' * 200_000)", ""),  # nobody needs to have read it
        ("print('> ', end='', flush=True); sys.stdin.close()", "'> ' without"),
    ],
)
def test_the_check_waits_for_no_reader_and_for_no_line_end(flaw, said, tmp_path):
    check = load("check", TOOLS / "check.py")
    check.SECONDS = 1.0 if said else 3 * PATIENCE
    (tmp_path / "s.py").write_text(f"import sys, time; {flaw}\n{ONLY_MODERN}")
    if said:
        (tmp_path / "s.py").write_text(f"import sys, time; {flaw}; time.sleep(60)")
    found = check.play([sys.executable, str(tmp_path / "s.py")], *check.HOSTS[0][1:])
    assert said in found and bool(said) == bool(found), found


# A modern server that knows no other method.
ONLY_MODERN = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "server/discover":
        answer = {"result": {"supportedVersions": ["2026-07-28"]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@needs_posix
def test_the_check_says_which_hosts_cannot_use_a_modern_server(tmp_path):
    (tmp_path / "only.py").write_text(ONLY_MODERN)
    check = str(TOOLS / "check.py")
    done = command(check, "--timeout", f"{PATIENCE}", str(tmp_path / "only.py"))
    first, *lines = done.stdout.splitlines()
    assert first == "modern only: these hosts cannot use it"
    assert [line.split(" ", 1)[0] for line in lines[:4]] == ["", "", "", "ok"]
    assert "no session" not in done.stdout


@needs_posix
def test_a_socket_carries_both_eras():
    example = load("socket_example", COURSE / "09_socket.py")
    call = modern("tools/call", name="greet", arguments={"name": "Ada"})
    bare = {**call, "params": {**call["params"], "_meta": {}}}
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("r", newline="\n") as answers:
        example.in_thread(example.serve, theirs)
        ours.settimeout(PATIENCE)
        for sent, word in (
            (b"junk\n", "-32700"),
            (mcp.encode(call), "Hello, Ada!"),
            (mcp.encode(OPENING), "2025-11-25"),
            (READY + mcp.encode(bare), "Hello, Ada!"),
        ):
            ours.sendall(sent)
            assert word in answers.readline()


@needs_posix
def test_a_socket_survives_its_clients(tmp_path):
    """One leaves, one does not read, one sends a line without end, one is right."""
    example = load("socket_example", COURSE / "09_socket.py")
    example.MAX_MESSAGE_BYTES = 100_000
    cancelled = threading.Event()
    began = threading.Event()

    def waits(ctx: Context) -> str:
        ctx.on_cancel(cancelled.set)
        began.set()
        return str(cancelled.wait(PATIENCE))

    waits.__annotations__ = {"ctx": mcp.Context, "return": str}
    example.server.tool(waits)
    path = str(tmp_path / "s")
    with example.listening(path):
        leaver, silent, endless = (socket.socket(socket.AF_UNIX) for _ in range(3))
        for link in (leaver, silent, endless):
            link.settimeout(PATIENCE)
            link.connect(path)
        leaver.sendall(mcp.encode(modern("tools/call", name="waits")))
        assert began.wait(PATIENCE)
        leaver.close()
        assert cancelled.wait(PATIENCE)

        wanted = {"toolsListChanged": True}
        silent.sendall(mcp.encode(modern("subscriptions/listen", notifications=wanted)))
        with client.connect(example.SocketTransport(path), timeout=PATIENCE) as bob:
            with bob.listen("tools") as changes:
                seen = iter(changes)
                for _ in range(9000):  # more than the kernel takes for one
                    example.server.changed("tools")
                assert next(seen) == "tools"
            with contextlib.suppress(OSError):
                endless.sendall(b"x" * 200_000)
            assert b"-32700" in endless.makefile("rb").readline()
            assert bob.list_tools()
            silent.close()
            endless.close()
    with pytest.raises(client.Disconnected):
        client.connect(example.SocketTransport(path)).open()


RUN = [
    path
    for path in sorted((HERE / "examples").rglob("*.py"))
    if '\nif __name__ == "__main__":' in path.read_text("utf-8")
    or path.name == "00_client_by_hand.py"
    if path.parent.name != "hosts"  # they run inside an application
]


@needs_posix
@parametrize("path", RUN, ids=lambda path: path.stem)
def test_every_example_that_is_run_answers_help(path):
    """A server takes the words for its program's, and ends with its input."""
    done = command(str(path), "--help")
    assert done.returncode == 0, done.stderr


@needs_posix
def test_nobody_waits_for_a_client_of_a_socket_that_never_reads(tmp_path):
    """It asks more than the kernel and the queue can hold; then it leaves, or the
    server ends."""
    example = load("socket_example", COURSE / "09_socket.py")
    example.MAX_WAITING = 3
    path = str(tmp_path / "s")

    def fill() -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        link.settimeout(0.05)
        wanted = {"toolsListChanged": True}
        link.sendall(mcp.encode(modern("subscriptions/listen", notifications=wanted)))
        with contextlib.suppress(OSError):  # until the reader waits for room
            while True:
                link.sendall(b"junk\n" * 1000)
        return link

    with example.listening(path):
        with fill():
            assert len(example.connections) == 1
        wait_until(lambda: not example.connections)
        silent = [fill() for _ in range(3)]
        assert len(example.connections) == 3
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE and not example.connections
    for link in silent:
        link.close()


@needs_posix
def test_the_client_of_a_socket_survives_a_line_that_is_no_json(tmp_path):
    example = load("socket_example", COURSE / "09_socket.py")
    path = str(tmp_path / "s")
    with example.listening(path):
        transport = example.SocketTransport(path)
        with client.connect(transport, timeout=PATIENCE) as ada:
            assert ada.list_tools()
            example.connections[0].waiting.put(b"no json\n")
            assert ada.list_tools()
            transport.stop()
            assert ada.list_tools()  # it connects anew


def test_what_to_paste_starts_the_server(tmp_path):
    output = run_printed(
        "python3 examples/tools/config.py examples/course/01_hello_server.py hello"
    )
    entry = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]["mcpServers"][
        "hello"
    ]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd="/",
        stdout=subprocess.PIPE,
        input=b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}',
        check=True,
    )
    assert json.loads(done.stdout)["result"] == {}


@parametrize(
    "source, words",
    [
        ("def f(): pass", ["{folder}{slash}mcp_ref.py", "serve"]),
        ("from mcp_ref import Server\ns = Server('s')\ndef f(): pass", []),
        ("import sys\ndef f(): pass\nsys.exit('usage')", []),
        ("assert not __import__('sys').stdin.read()\ndef main(): pass", []),
        ("import nope", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_to_paste_is_found_out_by_importing_the_file(tmp_path, source, words):
    # A name that no code page has; the copy beside a file serves it.
    file = tmp_path / "given\u2603\U0001f600.py"
    file.write_text(source)
    shutil.copy(MCP_REF, tmp_path / "mcp_ref.py")
    done = command(str(TOOLS / "config.py"), str(file), "it")
    if isinstance(words, str):
        assert done.returncode == 1 and words in done.stderr
        return
    assert done.returncode == 0 and done.stdout.isascii()
    entry = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])[0]
    words = [word.format(folder=tmp_path, slash=os.sep) for word in words]
    expected = [*words, str(file)]
    assert entry["mcpServers"]["it"]["args"] == expected
    assert "given\\U00002603\\U0001F600.py" in done.stdout  # TOML


# ---- the tap and the picture: traces


def trace(path: Path, text: str) -> Path:
    """Write a trace of lines like `> {...}` and `< not JSON`."""
    records = [
        {
            "time": "2026-11-22T09:12:01.123Z",
            "on": "stdio",
            "way": line[0],
            "text" if isinstance(value_of(line[2:]), str) else "message": value_of(
                line[2:]
            ),
        }
        for line in text.splitlines()
    ]
    path.write_text("\n".join(map(json.dumps, records)), "utf-8")
    return path


picture = load("picture", TOOLS / "picture.py")


def draw(path: Path) -> str:
    return picture.page(str(path))


PING = '> {"id": 1, "method": "ping"}\n'
ERROR = '< {"id": null, "error": {"code": -32601}}'


def overview(page: str) -> str:
    """Return the overview of a picture, up to the legend, as text without tags."""
    shown = page.partition("<h1>")[2].partition('<p class="legend">')[0]
    return re.sub("<[^>]+>", "", re.sub("<(p|ul)>", "\n", shown))


@parametrize(
    "what, lines",
    [
        ("Request without an answer", PING),
        ("Id used twice", PING + PING),
        ("Answer that nobody asked for", PING + '< {"id": "1", "result": {}}'),
        (
            "Answer to a notification",
            '> {"method": "x"}\n< {"id": null, "error": {"code": 1}}',
        ),
        ("Line that is not JSON", "< Hello"),
        ("or not a message", '< {"x": 1}'),
        ("Request before the handshake", '> {"id": 1, "method": "tools/list"}'),
        (
            "Response after the cancellation",
            PING + '> {"method": "notifications/cancelled", "params": '
            '{"requestId": 1}}\n< {"id": 1, "result": {}}',
        ),
        ("Nothing.", PING + '< {"id": 1, "result": {}}'),
    ],
)
def test_the_overview_of_a_picture_says_what_is_wrong(what, lines, tmp_path):
    overview = draw(trace(tmp_path / "t", lines)).partition("What took long")[0]
    assert what in overview
    assert what == "Nothing." or re.search(r"lesson \d+\): <a href", overview)


@parametrize("first", ["notification", "request"])
def test_a_picture_blames_an_error_without_an_id_on_the_notification(first, tmp_path):
    sent = ['> {"method": "notifications/initialized"}\n', PING]
    lines = "".join(sent if first == "notification" else sent[::-1])
    page = draw(trace(tmp_path / "t", lines + ERROR + '\n< {"id": 1, "result": {}}'))
    assert "Answer to a notification (lesson 26): error\n" in overview(page)
    assert "asked for" not in page and "without an answer" not in page
    # Number 2 is the error, drawn beside the notification.
    (wrong,) = re.findall('(?s)id="m2".*?</summary>', page)
    assert f'to <a href="#m{int(first == "request")}">' in wrong


def test_a_picture_blames_what_could_not_be_read_and_not_a_notification(tmp_path):
    lines = (
        '> {"method": "notifications/initialized"}\n> not JSON\n'
        '< {"error": {"code": -32700}}\n> [{"id": 1, "method": "ping"}, '
        '{"id": 2, "method": "ping"}]\n< {"error": {"code": -32600}}\n'
    )
    text = overview(draw(trace(tmp_path / "t", lines)))
    assert (
        "What is wrong\nLine that is not JSON, or not a message (lesson 4): text"
        in text
    )
    assert "notification" not in text and "without an answer" not in text


MODERN_CALL = {
    "id": 1,
    "method": "tools/call",
    "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}},
}
RESULT = {"way": "<", "on": "stdio", "message": {"id": 1, "result": {}}}


@parametrize(
    "records",
    [
        # A call over HTTP is cancelled by hanging up, and the port is used again.
        [
            {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
            {"way": ">", "on": 5, "closed": True},
            {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
            {**RESULT, "on": 5, "status": 200, "http": "POST /mcp"},
        ],
        # A probe for HTTP+SSE is refused. (A server may not have written the GET.)
        [
            {"way": ">", "on": 5, "http": "GET /mcp"},
            {
                "way": "<",
                "on": 5,
                "http": "GET /mcp",
                "status": 405,
                "message": {"error": {"code": -32600}},
            },
        ],
        [{"way": "<", "on": 5, "status": 405, "message": {"error": {"code": -32600}}}],
        # Two runs in one file.
        [
            {"program": "mcp_ref 1.0", "process": 7},
            {"way": ">", "on": "stdio", "message": {"id": 1, "method": "ping"}},
            RESULT,
        ]
        * 2,
        # A notification is refused over HTTP, which answers everything.
        [
            {"way": ">", "on": 5, "http": "POST /mcp", "message": {"method": "x"}},
            {"way": "<", "on": 5, "status": 400, "message": {"error": {"code": 1}}},
        ],
    ],
    ids=["hang-up", "405", "405 alone", "two runs", "refused notification"],
)
def test_a_picture_raises_no_false_alarm(records, tmp_path):
    (tmp_path / "t").write_text("\n".join(map(json.dumps, records)), "utf-8")
    assert "What is wrong\nNothing." in overview(draw(tmp_path / "t"))


def test_a_server_that_closes_a_connection_still_owes_an_answer(tmp_path):
    records = [
        {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
        {"way": "<", "on": 5, "closed": True},
    ]
    (tmp_path / "t").write_text("\n".join(map(json.dumps, records)), "utf-8")
    assert "Request without an answer (lesson 5)" in overview(draw(tmp_path / "t"))


def test_a_picture_says_the_revision_the_progress_and_what_took_long(tmp_path):
    lessons = COURSE / "lessons"
    assert "Revision: 2026-07-28." in draw(lessons / "03_call_a_tool.md")
    page = draw(lessons / "20_changes_in_a_session.md")
    assert "Revision: 2025-11-25." in page and "No times were recorded." in page
    page = draw(lessons / "05_progress_and_cancel.md")
    assert "</b> 1/3 Dune" in page and "</b> 0 Ulysses" in page

    path = trace(tmp_path / "t", PING + '< {"id": 1, "result": {}}')
    assert "Every answer came within" in draw(path)
    path.write_text(
        path.read_text("utf-8")[::-1].replace("321", "329", 1)[::-1], "utf-8"
    )
    assert "What took long\nping 0.800 s\n" in overview(draw(path))


def test_a_picture_that_cannot_be_drawn_is_said_in_a_sentence(tmp_path):
    for words in ([], ["--what"], ["a", "b"], [str(tmp_path / "nothing")]):
        done = command(str(TOOLS / "picture.py"), *words)
        assert done.returncode and not done.stdout and "Traceback" not in done.stderr
        assert (
            "cannot read" if words[-1:] == [str(tmp_path / "nothing")] else "FILE"
        ) in (done.stderr)


@needs_posix
@parametrize(
    "words, keyword",
    [
        ("tools/check.py nothing", "command"),
        ("tools/tap.py - nothing", "cannot start"),
        ("tools/config.py nothing", "neither"),
        ("course/lessons/replay.py nothing.md", "cannot read"),
        ("course/04_ask_the_user.py --demo", "--demo REVISION"),
        ("course/09_socket.py", "--demo"),
    ],
)
def test_what_is_mistyped_is_said_in_a_sentence(words, keyword, tmp_path):
    path, *rest = words.split()
    done = command(str(HERE / "examples" / path), *rest, cwd=tmp_path)
    assert done.returncode and not done.stdout and keyword in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tap_writes_when_a_run_begins_and_who_hangs_up(tmp_path):
    tap = [sys.executable, str(TOOLS / "tap.py"), str(tmp_path / "log")]
    for _ in range(2):
        done = subprocess.run(
            [*tap, sys.executable, str(COURSE / "01_hello_server.py")],
            input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
            stdout=subprocess.PIPE,
            check=True,
        )
        assert json.loads(done.stdout)["id"] == 1
    records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [one for one in records if "program" in one][0]["program"] == "tap"
    closed = [one["way"] for one in records if one.get("closed")]
    assert sorted(closed) == ["<", "<", ">", ">"] and closed.index(">") < 2
    assert "What is wrong\nNothing." in overview(draw(tmp_path / "log"))


def test_a_picture_shows_whatever_a_trace_has_as_text(tmp_path):
    strange = json.dumps(
        "</pre></style><script>alert(1)</script>\"'><img src=//evil>\u202e\0"
    )
    lines = (
        f'> {{"id": {strange}, "method": {strange}, "params": {{"name": {strange}}}}}\n'
        f'< {{"id": {strange}, "error": {{"code": 1, "message": {strange}}}}}\n'
    )
    page = draw(trace(tmp_path / "t", lines + "> " + "[" * 5000 + "\n" + PING * 5000))
    style = re.search("(?s)<style>(.*?)</style>", page)[1].encode()
    assert base64.b64encode(hashlib.sha256(style).digest()).decode() in page
    assert (
        not re.search(r"<script|<img|\u202e|\0", page) and page.count("</style>") == 1
    )
    assert (
        'href="#m1"' in page
        and int(re.search("([0-9,]+) are left out", page)[1].replace(",", ""))
        + len(re.findall(r'id="m\d+"', page))
        == 5003
    )


# ---- lessons and exercises: every line that is written there is what the server says

replay = load("replay", COURSE / "lessons" / "replay.py")
LESSONS = {path.stem: path for path in (COURSE / "lessons").glob("[0-9]*.md")}
EXERCISES = (COURSE / "exercises.md").read_text("utf-8").split("\n## ")[1:]
# for each exercise: what a learner gets wrong in the solution, a word of the check
SLIPS = [
    [('"word"', '"title"', "is required"), ('"id": 1, ', "", "is this a request")],
    [('"uri"', '"url"', "uri is missing"), (', "_meta": <meta>', "", "_meta")],
    [
        ("requestId", "id", "have requestId"),
        ('{"jsonrpc"', '{"id": 3, "jsonrpc"', "notification"),
    ],
    [("<state>", "<state>x", "not valid"), ('"accept"', '"agree"', "input_required")],
    [("Mcp-Name", "Mcp-Tool", "Header mismatch"), ("POST", "GET", "405")],
    [
        ('"2025-11-25"', '"2024-11-05"', "2024-11-05"),
        ('"id": 1, ', "", "is this a request"),
    ],
    [('"ping"', '"pong"', "Method not found"), ('"id"', "id", "not a JSON")],
    [("36", '"36"', "not valid"), ('"id": 1', '"id": 2', "is this a response")],
]


@parametrize("name", sorted(LESSONS))
def test_a_lesson_replays_and_its_task_has_an_answer(name):
    lesson = LESSONS[name].read_text("utf-8")
    conversations = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", lesson))
    task = r"(?ms)^\*\*(Question|Predict|Write|Find the fault\.)\*\*(.*?)</summary>\n\n(.*?)</details>"
    ((kind, asked, answer),) = re.findall(task, lesson)
    ((language, said),) = re.findall(r"(?ms)^```(\w+)\n(.*?)^```", answer)
    if kind == "Question":  # the answer is a line of the lesson
        assert language == "text" and said.strip("\n") in conversations.splitlines()
    else:  # the answer is the end of the conversation, and is replayed with it
        assert language == "mcp" and re.match("> (?s:.*)\n< ", said)
    if kind in ("Predict", "Find the fault."):
        (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```", asked)
        assert said.startswith(shown)
    assert not (found := replay.run(LESSONS[name], update=False)), "\n".join(found)


def test_lessons_and_files_are_in_one_order():
    index = (COURSE / "lessons" / "README.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| \[(.*?)\]\((\w+)\.md\) \| (.*) \|$", index)
    assert [name for _, name, _ in rows] == sorted(LESSONS)
    following = [f"Next: [{title}]({name}.md)." for title, name, _ in rows[1:]]
    for (title, name, files), link in zip(rows, [*following, "the last lesson"]):
        lesson = LESSONS[name].read_text("utf-8")
        assert lesson.startswith(f"# {title}\n")
        head, foot = (
            lesson.partition("*In Python:")[2].partition("Specification:")[0],
            lesson.split("</details>")[-1],
        )
        assert link in " ".join(foot.split())
        # The table and the lesson name the same files, each by its number.
        numbers = re.findall(r"\b\d\d\b(?!_)|\b18_by_hand(?=\])", files)
        assert numbers == re.findall(r"\[(18_by_hand|\d\d)[\w.]*\]", head), name
        done = re.findall(r"exercise (\d+)\]\(\.\./exercises\.md#\1-", foot)
        number = str(int(name[:2]))
        assert done == [
            one.partition(".")[0]
            for one in EXERCISES
            if re.search(rf"\[Lesson\s+{number}\]", one)
        ]
    # Today's lessons come with the files in the order of their numbers.
    today = [
        int(files.strip("[")[:2])
        for _, name, files in rows
        if name < "18" and name[:2] != "14"
    ]
    assert today == sorted(today)

    names = sorted(path.name for path in COURSE.glob("[0-9]*.py"))
    for name, after in zip(names, names[1:]):
        text = " ".join((COURSE / name).read_text("utf-8").split())
        assert f"Next: {after}." in text, name


def test_the_page_to_print_is_what_the_tables_say():
    done = command(str(TOOLS / "reference.py"))
    path = COURSE / "reference.md"
    assert not done.stderr and done.stdout == path.read_text("utf-8"), (
        f"run `python3 examples/tools/reference.py > {path.relative_to(HERE)}`"
    )
    named = [*mcp.METHODS, *mcp.NOTIFICATIONS, *map(str, mcp.ERRORS), *mcp.FEATURES]
    assert [name for name in named if name not in done.stdout] == []


def test_the_playground_serves_on_one_thread(tmp_path):
    """Its Python runs here as in a browser, where no thread can be started."""
    shutil.copytree(HERE / "examples", tmp_path / "examples")
    shutil.copy(MCP_REF, tmp_path / "mcp_ref.py")
    page = (COURSE / "playground.html").read_text("utf-8")
    driver = re.search(r'(?s)<script type="text/x-python".*?>(.*?)</script>', page)[1]
    source = (COURSE / "lessons" / "server.py").read_text("utf-8")
    said = """
import threading
threading.Thread.start = lambda thread: (_ for _ in ()).throw(RuntimeError("no thread"))
boot(SOURCE_OF_SERVER)
for name in ("10_ask_the_user.md", "16_http_headers.md"):
    for line in json.loads(steps(name)):
        print(say(line))
print(drawing().count('class="row request'))
try:
    boot("async def late(): ...")
except SystemExit as refused:
    print(refused)
""".replace("SOURCE_OF_SERVER", repr(source))
    done = command("-c", driver.replace("/repo", tmp_path.as_posix()) + said)
    for part in ("input_required", "member number 1", "Mcp-Name is", "Refused by "):
        assert part in done.stdout, done.stderr + done.stdout
    *_, requests, refusal = done.stdout.splitlines()
    assert requests == "9" and refusal.startswith("line 1: `async def`")


@parametrize("event", [{"key1": "value1"}, {}, {"requestContext": None}])
def test_a_function_in_a_cloud_refuses_what_is_no_request(event):
    """Such as the test event of the console."""
    said = mount.handler(event)
    assert said["statusCode"] == 400 and "httpMethod" in said["body"]


@parametrize(
    "to, amount, word",
    [
        ("bob", 40, ""),
        ("bob", -40, "amount"),
        ("bob", 0, "amount"),
        ("bob", 101, "amount"),
        ("ann", 1, "yourself"),
        ("eve", 1, "one of"),
    ],
)
def test_a_company_transfers_only_what_one_has(to, amount, word):
    company = load("company", COURSE / "11_for_a_company.py")
    ledger = {"ann": 100, "bob": 0}
    with company.on_a_loop(company.open_ledger()) as (loop, _):
        server = company.make_server(company.PEOPLE, ledger, loop=loop)
        out: list[Any] = []
        call = modern(
            "tools/call", name="transfer", arguments={"to": to, "amount": amount}
        )
        server.handle(call, out.append, principal="ann")
        wait_until(lambda: out)
    result = out[0]["result"]
    assert bool(result.get("isError")) == bool(word)
    assert word in result["content"][0]["text"]
    assert ledger == ({"ann": 100, "bob": 0} if word else {"ann": 60, "bob": 40})


def test_a_company_counts_a_call_that_asks_once(capsys):
    company = load("company", COURSE / "11_for_a_company.py")
    server = company.CompanyServer({"k": {"name": "ann", "may": ["sure"]}}, 1, 60)

    @server.tool
    def sure(ctx: Context) -> str:
        return ctx.elicit("Sure?", yes=bool)["action"]

    def call(**more):
        out: list[Any] = []
        request = modern("tools/call", name="sure", arguments={}, **more)
        request["params"]["_meta"][mcp.META_CAPABILITIES] = {"elicitation": {}}
        server.handle(request, out.append, principal="ann")
        return out[0].get("result") or out[0]["error"]

    asked = call()
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"yes": True}}}
    state = asked["requestState"]
    done = call(inputResponses=answers, requestState=state)
    assert done["content"][0]["text"] == "accept"
    assert call()["code"] == 429
    said = re.findall(r"sure: (\w+)", capsys.readouterr()[1])
    assert said == ["asks", "ok", "refused"]


@parametrize("version", ORDER)
def test_a_tool_with_a_page_has_a_text_for_other_hosts(version):
    app = load("app", COURSE / "12_app.py")
    known = {"extensions": {app.UI: {"mimeTypes": [app.HTML]}}}
    for declared, word in (({}, "tools/call conversation"), (known, "a picture of")):
        with client.connect(app.server, revision=version, declare=declared) as host:
            text = host.call_tool("conversation")["content"][0]["text"]
            assert word in text
            assert "tools/call" in host.call_tool("picture")["_meta"]["page"]
            tools = {tool["name"]: tool for tool in host.list_tools()}
            if "_meta everywhere" in mcp.rules(version).features:
                uri = tools["conversation"]["_meta"]["ui"]["resourceUri"]
                (page,) = host.read_resource(uri)
                assert page["mimeType"] == app.HTML and "ui/initialize" in page["text"]


def test_every_method_and_notification_appears_in_a_lesson():
    said = "".join(path.read_text("utf-8") for path in LESSONS.values())
    names = {*mcp.METHODS, *mcp.NOTIFICATIONS}
    assert [name for name in names if f'"method":"{name}"' not in said] == []


@parametrize(
    "name, line, changed",
    [
        ("03_call_a_tool", "Invalid arguments", "Wrong arguments"),
        ("03_call_a_tool", "lent.append(title)", "lent.add(title)"),
        ("10_ask_the_user", "Ada is member number 1", "Ada is member number 9"),
        ("17_http_streams", "200 OK", "201 Created"),
        ("17_http_streams", '"progress":2', '"progress":9'),
    ],
)
def test_a_changed_line_is_reported_and_update_restores_it(
    tmp_path, name, line, changed
):
    lesson, copy = LESSONS[name].read_text("utf-8"), tmp_path / "lesson.md"
    copy.write_text(lesson.replace(line, changed, 1), "utf-8")
    (problem,) = replay.run(copy, update=True)
    assert re.search(r"line \d+: .*expected .*received ", problem, re.DOTALL)
    assert copy.read_text("utf-8") == lesson


@parametrize(
    "number, right, wrong, word",
    [
        (5, ": ", ":", "^$"),
        (5, "\n", "\r\n", "^$"),
        (
            1,
            '"_meta": {',
            '"_meta": <metta>, "x": {',
            "no name <metta>; .*meta with forms",
        ),
        (4, '"arguments": {}', '"arguments": {"x": 1}', "hint: .*the same as before"),
        (1, '"emma"', '"u"', r"expected \.\.\..{30,50}Emma"),
    ],
    ids=["no space", "CRLF", "unknown name", "state", "long lines"],
)
def test_an_exercise_helps_with_what_is_easily_overlooked(number, right, wrong, word):
    exercise = EXERCISES[number - 1]
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    head, empty, body = solution.rpartition("\n\n")
    attempt = head.replace(right, wrong) + empty + body if head else ""
    attempt = attempt or solution.replace(right, wrong)
    assert attempt != solution
    assert re.search(word, replay.check(number, attempt), re.DOTALL)


@parametrize("words", ["--update COPY", "COPY --update", "COPY"])
def test_the_option_to_update_may_stand_anywhere(words, tmp_path, capsys):
    lesson, copy = LESSONS["01_discover"].read_text("utf-8"), tmp_path / "copy.md"
    said = '"instructions":"Search first'
    copy.write_text(lesson.replace(said, said[:-5] + "last", 1), "utf-8")
    assert replay.main(words.replace("COPY", str(copy)).split()) == 1
    assert "line 18: expected" in capsys.readouterr().out
    assert (copy.read_text("utf-8") == lesson) == ("--update" in words)


def test_an_exercise_can_be_read_from_standard_input():
    path = str(COURSE / "lessons" / "replay.py")
    done = command(
        path, "--check", "7", "-", text='{"jsonrpc":"2.0","id":9,"method":"ping"}'
    )
    assert (done.returncode, done.stdout) == (0, "right\n")


@parametrize("number", range(1, len(EXERCISES) + 1))
def test_an_exercise_accepts_its_solution_and_explains_wrong_attempts(number):
    exercise = EXERCISES[number - 1]
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    assert (
        f"replay.py --check {number} " in exercise
        and replay.check(number, solution) == ""
    )
    assert "jsonrpc" in replay.check(number, solution.replace('"2.0"', "2.0"))
    for right, wrong, word in SLIPS[number - 1]:
        assert right in solution, right
        assert re.search(
            word, replay.check(number, solution.replace(right, wrong)), re.DOTALL
        )


# ======== Documents: printed commands print what they say; cut copies work; figures

README = (HERE / "README.md").read_text("utf-8")
DOCUMENTS = {
    "README": "\n".join(re.findall(r"(?ms)^```console\n(.*?)^```", README)),
    **{
        path.stem: str(ast.get_docstring(ast.parse(path.read_text("utf-8")))) + "\n"
        for path in sorted((HERE / "examples").rglob("*.py"))
        if "\n    $ "
        in str(ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False))
        and path != MCP_CLIENT
    },
}


def run_printed(line: str) -> str:
    """Run a command as it is printed, with this Python; return what it prints."""
    return subprocess.run(
        re.sub(r"\bpython3\b", lambda _: sys.executable, line),
        shell=True,
        cwd=HERE,
        encoding="utf-8",
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=6 * PATIENCE,
    ).stdout


@parametrize("name", DOCUMENTS)
def test_a_document_shows_what_its_commands_print(name):
    # Under Wine, a server may take longer to start than 02_long_work waits.
    others = "02_long_work 09_socket check config mount server tap".split()
    if ("by_hand" in name or name in others) and not POSIX:
        pytest.skip(OTHER)
    # `$ command`, perhaps on several lines, and the output, where `...` stands for
    # anything
    found = re.findall(
        r"(?m)^( *)\$ ((?:.*\\\n)*.+)\n((?:\1(?!\$ ) *\S.*\n)*)", DOCUMENTS[name]
    )
    assert found, "there is no command"
    came = [begin(run_printed, line) for _, line, _ in found]  # all at the same time
    for (_, line, shown), output in zip(found, [future.result() for future in came]):
        pattern = re.escape(textwrap.dedent(shown).strip()).replace(
            re.escape("..."), ".*"
        )
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), (
            f"{line}\n{shown}\ncame:\n{output}"
        )


def test_the_python_of_the_readme_runs():
    start = f"import sys\nsys.path += {[str(HERE / 'examples'), str(HERE / 'examples' / 'extensions')]}\n"
    guide = (HERE / "examples" / "guide.md").read_text("utf-8")
    for block in re.findall(r"(?ms)^```python\n(.*?)^```", README + guide):
        done = command("-c", start + block, cwd=HERE)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


# The page for operators: its server and its nginx, together.
OPERATE = (HERE / "examples" / "operate.md").read_text("utf-8")
HOST = "tools.example.com"


def block_of(language: str) -> str:
    return re.search(rf"(?ms)^```{language}\n(.*?)^```", OPERATE)[1]


@pytest.fixture
def operated(tmp_path, monkeypatch):
    """Let the page's server be started, with the key "k"; return its path."""
    (tmp_path / "keys.json").write_text('{"k": "ann"}')
    for name, value in (
        ("MCP_KEYS", str(tmp_path / "keys.json")),
        ("MCP_STATE_KEY", "s" * 32),
        ("PYTHONPATH", str(MCP_REF.parent)),
    ):
        monkeypatch.setenv(name, value)
    (tmp_path / "server.py").write_text(block_of("python"))
    return tmp_path / "server.py"


def call_whoami(key: str, host: str = HOST) -> tuple[dict, str]:
    message = modern("tools/call", name="whoami", arguments={})
    headers = {**headers_of(message), "Host": host, "Authorization": f"Bearer {key}"}
    return headers, json.dumps(message)


def test_the_operators_server_tells_its_health_and_takes_new_keys(operated):
    with listening(str(operated)) as (process, url):
        port = int(url.split(":")[2].partition("/")[0])
        health = exchange(port, "GET", "/health", {"Host": "10.0.0.1"})
        assert (health[0], health[2]) == (200, b"ok\n")

        def status(*who):
            headers, body = call_whoami(*who)
            return exchange(port, "POST", "/mcp", headers, body)[0]

        assert [status("k"), status("new")] == [200, 401]
        (operated.parent / "keys.json").write_text('{"new": "ann"}')
        assert [status("k"), status("new"), status("new", "x")] == [401, 200, 403]
        process.terminate()
        assert process.wait(PATIENCE) == 0 or not POSIX
        log = process.stdout.read()
        assert re.findall("POST /mcp: (...) ", log) == ["401", "401", "403"], log
        assert "health" not in log


def make_certificate(folder: str) -> None:
    words = (
        f"req -x509 -newkey ec -nodes -days 2 -keyout {folder}/key -out {folder}/cert"
    )
    words += " -pkeyopt ec_paramgen_curve:prime256v1"
    words += f" -subj /CN={HOST} -addext subjectAltName=DNS:{HOST}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)


def configure_nginx(folder: str, ports: list[str]) -> list[str]:
    """Write the page's block, with other places in it; return the command."""
    block = block_of("nginx")
    for old, new in (
        ("/etc/tools/key.pem", f"{folder}/key"),
        ("/etc/tools/cert.pem", f"{folder}/cert"),
        ("listen 443 ", f"listen unix:{folder}/front "),
        ("127.0.0.1:8001", ports[0]),
        ("127.0.0.1:8002", ports[1]),
    ):
        assert block.count(old) == 1, old
        block = block.replace(old, new)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    Path(folder, "conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{block}}}\n"
    )
    return ["nginx", "-e", f"{folder}/log", "-c", f"{folder}/conf"]


def ask_nginx(folder: str) -> bytes:
    headers, body = call_whoami("k")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    plain = socket.socket(socket.AF_UNIX)
    plain.settimeout(PATIENCE)
    plain.connect(f"{folder}/front")
    context = ssl.create_default_context(cafile=f"{folder}/cert")
    with context.wrap_socket(plain, server_hostname=HOST) as link:
        link.sendall(
            f"POST /tools/mcp HTTP/1.1\r\n{head}Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        with link.makefile("rb") as answer:
            return answer.read()


@needs_posix
@pytest.mark.skipif(not shutil.which("nginx"), reason="there is no nginx")
@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
@parametrize("gone", [0, 1])
def test_the_operators_nginx_finds_the_process_that_is_left(gone, operated):
    folder = tempfile.mkdtemp()  # the path of a Unix socket must be short

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as link:
            return link.connect_ex(f"{folder}/front") == 0

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        make_certificate(folder)
        started = [stack.enter_context(listening(str(operated))) for _ in "ab"]
        words = configure_nginx(folder, [url.split("/")[2] for _, url in started])
        subprocess.run([*words, "-t"], check=True, capture_output=True)
        nginx = stack.enter_context(subprocess.Popen(words))
        stack.callback(nginx.kill)
        wait_until(listens)
        assert b'"text":"ann"' in ask_nginx(folder)
        started[gone][0].kill()
        started[gone][0].wait(PATIENCE)
        assert b'"text":"ann"' in ask_nginx(folder)


def test_the_operators_page_has_the_true_limits():
    source = MCP_REF.read_text("utf-8")  # the tests set some of them
    found = dict(re.findall(r"(?m)^([A-Z_]+) = ([\d.* ]*\d)", source))
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([\d.]+)( [KM]iB)? \|", OPERATE)
    assert len(rows) > 9
    for name, value, unit in rows:
        size = {"": 1, " KiB": 2**10, " MiB": 2**20}[unit]
        assert float(eval(found[name])) == float(value) * size, name


def play_vectors(*target, revisions=ORDER, again=True):
    done = command(
        str(HERE / "examples" / "vectors" / "run.py"),
        "--revisions",
        ",".join(revisions),
        *map(str, target),
        seconds=9 * PATIENCE,
    )
    faults = [
        one
        for one in re.findall(r"(?ms)^[A-Z]{5,} [a-z].*?(?=\n\n)", done.stdout)
        if "passes alone" not in one
        and not
        # these depend on time
        re.match("[A-Z]+ [a-z-]*(cancel|hang|disconnect)", one)
    ]
    # on a busy machine, calls end before a cancel
    if again and (done.returncode or faults):
        return play_vectors(*target, revisions=revisions, again=False)
    assert done.returncode == 0 and not faults, done.stdout


def test_the_vectors_find_no_fault():
    stdio = begin(play_vectors, sys.executable, EVERYTHING)
    with listening(EVERYTHING) as (_, url):
        play_vectors(url)
    stdio.result()


@pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="each client is a process that PyPy warms"
)
def test_the_vectors_find_no_fault_in_the_client():
    clients = HERE / "examples" / "vectors" / "clients"
    # With more patience, those that a client should leave unanswered take as long.
    options = ["--revisions", ORDER[0], "--timeout", "10"]
    done = command(
        str(clients / "run_client.py"),
        *options,
        sys.executable,
        str(clients / "driver.py"),
        seconds=9 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout


def test_the_vectors_find_a_fault_in_a_client():
    """A client that retries under the old id is broken, and the exit status says so."""
    done = command(
        str(HERE / "examples" / "vectors" / "clients" / "run_client.py"),
        *("--revisions", ORDER[0], "--carriers", "stdio", "--timeout", str(PATIENCE)),
        *("--only", "client-retry-id", "--only", "client-error-told"),
        sys.executable,
        str(HERE / ".ci" / "client_mutants.py"),
        *("drive", "retry-ids"),
        seconds=9 * PATIENCE,
    )
    assert done.returncode == 1 and "BROKEN client-retry-id" in done.stdout, done.stdout
    assert done.stdout.count("BROKEN client") == 1


def test_the_vectors_are_in_their_format(tmp_path):
    """Both schemas are closed; a runner refuses what it does not know."""
    vectors = HERE / "examples" / "vectors"
    for folder in (vectors, vectors / "clients"):
        schema = mcp.Schema(json.loads((folder / "schema.json").read_text("utf-8")))
        for path in set(folder.glob("*.json")) - {folder / "schema.json"}:
            assert schema.flaw(json.loads(path.read_text("utf-8"))) is None, path.name
    for path in vectors.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
    ping = (vectors / "ping.json").read_text("utf-8")
    for old, new in (
        ('"format": 3', '"format": 4'),
        ('"format": 3', '"format": 2'),
        ('"format": 3', '"format": 3, "com.example": 1'),
        ('"since": "2024-11-05"', '"since": "2024-11-06"'),
        ('"level":', '"com.example": 1, "level":'),
        ('"steps": [{', '"steps": [{"com.example": 1, '),
        ('"expect": {', '"expect": {"$example": 1, '),
    ):
        assert old in ping
        (tmp_path / "ping.json").write_text(ping.replace(old, new, 1), "utf-8")
        done = command(str(tmp_path / "run.py"), "true")
        assert done.returncode and "BadVector" in done.stderr, (new, done.stdout)


def test_the_runner_reads_the_format_before(tmp_path):
    """Format 2 lists all revisions of a vector; since format 3 it says the first and
    the last."""
    some = {
        2: {"revisions": [ORDER[-1], ORDER[1]]},
        3: {"since": ORDER[-2], "until": ORDER[1]},
    }
    head = {"id": "it", "level": "MUST", "steps": []}
    found = {}
    for form, dates in some.items():
        path = tmp_path / f"{form}.json"
        path.write_text(
            json.dumps({"format": form, "vectors": [{**head, **dates}]}), "utf-8"
        )
        program = f"import report, pathlib as p; print(report.read_file(p.Path({str(path)!r})))"
        done = command("-c", program, cwd=VECTORS)
        found[form] = ast.literal_eval(done.stdout)[0]["revisions"]
    assert found == {2: [ORDER[-1], ORDER[1]], 3: ORDER[-2:0:-1]}


def test_the_runner_writes_what_machines_read(tmp_path):
    """A known failure is none; a line of the baseline that passes is stale."""
    runner = str(HERE / "examples" / "vectors" / "run.py")
    mutant = [sys.executable, str(HERE / ".ci" / "mutants.py"), "pong", sys.executable]
    known = tmp_path / "known"
    options = ["--revisions", ORDER[1], "--timeout", str(PATIENCE)]
    options += ["--only", "ping-empty-result", "--only", "id-integer"]
    for kind in ("json", "junit", "tap"):
        options += [f"--{kind}", str(tmp_path / kind)]
    listed = ["--baseline", str(known)]
    done = command(runner, *options, *mutant, EVERYTHING, seconds=9 * PATIENCE)
    rows = json.loads((tmp_path / "json").read_text("utf-8"))
    broken = {row["id"]: row for row in rows if row["verdict"] == "broken"}
    assert done.returncode == 1 and "ping-empty-result" in broken, done.stdout
    assert {"sent", "received"} <= set().union(
        *broken["ping-empty-result"]["transcript"]
    )
    assert (tmp_path / "junit").read_text("utf-8").count("<failure") == len(broken)
    assert "not ok" in (tmp_path / "tap").read_text("utf-8")
    known.write_text("".join(f"{name}  # known\n" for name in broken), "utf-8")

    done = command(runner, *listed, *options, *mutant, EVERYTHING, seconds=9 * PATIENCE)
    assert done.returncode == 0 and "BROKEN" not in done.stdout, done.stdout
    assert "<failure" not in (tmp_path / "junit").read_text("utf-8")
    assert "# TODO known" in (tmp_path / "tap").read_text("utf-8")

    with listening(EVERYTHING) as (_, url):  # options after a URL count
        done = command(runner, url, *options, *listed, seconds=9 * PATIENCE)
    assert done.returncode == 1 and "STALE ping-empty-result" in done.stdout


VECTORS = HERE / "examples" / "vectors"


def play_copy(folder: Path, vectors: dict, *words: str, revision=ORDER[0]) -> Any:
    """Play vectors of one revision with a copy of the runner; return what became of
    the command, and write all reports."""
    head = {"level": "MUST", "clause": "basic/index", "rule": "as it says"}
    head |= {"since": revision, "carriers": ["stdio", "http"]}
    for path in VECTORS.glob("*.py"):
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    some = [{"id": name, **head, **vector} for name, vector in vectors.items()]
    file = {"format": 3, "vectors": some}
    (folder / "some.json").write_text(json.dumps(file), "utf-8")
    options = ["--revisions", revision]
    for kind in ("json", "junit", "tap"):
        options += [f"--{kind}", str(folder / f"{kind}.rows")]
    return command(str(folder / "run.py"), *options, *words, seconds=9 * PATIENCE)


def played_rows(folder: Path) -> dict[str, dict]:
    """Read the rows that play_copy() has written, by the ids of the vectors."""
    rows = json.loads((folder / "json.rows").read_text("utf-8"))
    return {row["id"]: row for row in rows}


def verdicts(folder: Path, vectors: dict, *target: str) -> dict[str, dict]:
    """Play vectors of the newest revision with a copy of the runner; return their
    rows."""
    play_copy(folder, vectors, *target)
    return played_rows(folder)


DISCOVERED = {"supportedVersions": ORDER[:1], "capabilities": {}}
STRAY = {"unasked": {"$not": {"$absent": True}}}


def answer_badly(verb, headers, message):
    """Answer as the name of the method says, for a runner that must notice it."""
    method, answer = message.get("method"), {"jsonrpc": "2.0", "id": message.get("id")}
    fault = {"code": -32601, "message": "unknown"}
    status, said = 200, [{**answer, "result": {}}]
    if verb == "GET":
        page = {"Content-Type": "application/json"}
        yield http_answer(405, page, '{"detail": "Method Not Allowed"}')
        return
    if method == "server/discover":
        said = [{**answer, "result": DISCOVERED}]
    elif method == "gone":
        return
    elif method == "html":
        yield http_answer(500, {"Content-Type": "text/html"}, "<html>")
        return
    elif method in ("null", "bare", "notifications/bare", "refused"):
        status = 400 if method == "refused" else 200
        content = {"result": {}} if method == "null" else {"error": fault}
        said = [{"jsonrpc": "2.0", "id": None, **content}]
    elif method == "neither":
        said = [answer]
    elif method == "words":
        said = [{**answer, "id": str(message["id"]), "result": {}}]
    elif method == "floats":
        said = [{**answer, "id": float(message["id"]), "result": {"n": 2.0}}]
    elif method == "behind":
        said += [{"jsonrpc": "2.0", "method": "notifications/late"}]
    elif method.endswith("/list"):
        status, said = 404, [{**answer, "error": fault}]
    if len(said) > 1:
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in said)
        yield http_answer(200, {"Content-Type": "text/event-stream"}, events)
    else:
        kind = {"Content-Type": "application/json"}
        yield http_answer(status, kind, json.dumps(said[0]))


def asked(method: str, expect: dict, *steps: dict, **members) -> dict:
    return {"steps": [{"request": method, "expect": expect}, *steps], **members}


def test_the_runner_notices_what_is_no_answer_over_http(tmp_path):
    """It judges messages, not responses, and reads what comes behind an answer."""
    strays = {"heard": {"$some": STRAY}}
    none = {"heard": {"$where": [STRAY, []]}}
    waits = [{"request": "refused", "label": "it", "later": True}]
    waits += [{"await": {"id": {"$use": "it"}, "result": {}}}]
    ended = {"body": {"$not": {"$absent": True}}}
    note = {"notify": "notifications/bare", "http": ended}
    vectors = {
        "no-message": asked("html", {}),
        "no-response": asked("gone", {}),
        "no-content": asked("neither", {}),
        "another-id": asked("words", {}),
        "another-id-awaited": {"steps": waits},
        "late": asked("behind", {}, never=[{"method": "notifications/late"}]),
        "null": asked("null", {"result": {}}, strays),
        "bare": asked("bare", {"error": {}}, strays),
        "bare-to-send": {"steps": [{"send": {"id": 1, "method": "bare"}}, none]},
        "bare-to-a-notification": {"steps": [note, {"barrier": True}, strays]},
        "refused": asked("refused", {"error": {}}, none),
        "floats": asked("floats", {"result": {"n": {"$type": "integer"}}}, none),
        "a-page-about-a-get": {"steps": [{"verb": "GET"}, {"heard": []}]},
    }
    site = Site(answer_badly)
    try:
        rows = verdicts(tmp_path, vectors, site.url)
    finally:
        site.close()
    broken = {name for name, row in rows.items() if row["verdict"] == "broken"}
    assert broken == set(list(vectors)[:6]), rows
    for name in list(vectors)[:5]:
        assert "in time" not in rows[name]["why"], rows[name]
    assert "no answer" in rows["another-id"]["why"]


TALKATIVE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print("INFO a line for the log")
    print(json.dumps({"jsonrpc": "2.0", "id": "nobody", "result": {}}))
    result = DISCOVERED
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    sys.stdout.flush()
"""


def test_the_runner_waits_for_a_message_in_spite_of_others(tmp_path):
    program = TALKATIVE.replace("DISCOVERED", repr(DISCOVERED))
    waits = {"await": {"id": {"$use": "it"}, "result": {}}}
    steps = [{"request": "wait", "label": "it", "later": True}, waits]
    rows = verdicts(tmp_path, {"it": {"steps": steps}}, sys.executable, "-c", program)
    assert rows["it"]["verdict"] == "passed", rows["it"]


A_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method == "die":
        raise LookupError("no database")
    if method == "initialize" and message["params"]["capabilities"]:
        break
    if method == "server/discover":
        result = DISCOVERED
    elif method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"]}
    elif method == "pages":
        place = int(message["params"].get("cursor", 1))
        result = {"items": [{"n": place}, {"n": place + 1}], "nextCursor": str(place % 3 + 1)}
    elif method == "echo":
        result = {"text": message["params"]["text"]}
    if "id" in message and method != "silence":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
""".replace("DISCOVERED", repr(DISCOVERED))
SERVE = [sys.executable, "-c", A_SERVER]


def unused_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]


def test_a_premise_that_does_not_come_about_skips_a_vector(tmp_path):
    """What excuses a step is tried after it has failed; a doubtful vector is never
    more than a remark, and does not decide the exit status."""
    waits = {"await": {"method": "notifications/none"}, "given": "change"}
    empty = {"request": "x", "expect": {"result": {"$size": [0, 0]}}}
    other = {"request": "x", "expect": {"error": {}}}
    wrong = [{"request": "x", "expect": {"error": {}}}]
    late = [{"request": "x", "label": "x", "later": True}, waits]
    vectors = {
        "excused": {"steps": [*late[:1], {**waits, "excuse": [empty]}]},
        "premise": {"steps": [{**wrong[0], "given": "error"}]},
        "doubtful": {"steps": wrong, "doubtful": "pages disagree"},
        "alike": {"steps": wrong, "level": "SHOULD", "harms": "it hurts"},
    }
    done = play_copy(tmp_path, vectors, *SERVE)
    found = {name: row["verdict"] for name, row in played_rows(tmp_path).items()}
    said = ["skipped", "skipped", "remark", "unwise"]
    assert found == dict(zip(vectors, said)), done.stdout
    assert done.returncode == 0 and "every client is harmed:" in done.stdout
    assert played_rows(tmp_path)["alike"]["alike"] == "doubtful"
    not_excused = {"guilty": {"steps": [*late[:1], {**waits, "excuse": [other]}]}}
    done = play_copy(tmp_path, not_excused, *SERVE)
    assert done.returncode == 1 and "BROKEN guilty" in done.stdout


def test_a_remark_that_depends_on_the_order_harms_nobody(tmp_path):
    """What fails behind other vectors only is never broken; that every client is harmed
    is said of a MUST."""
    echo = 'elif method == "echo":'
    counted = 'elif method == "late":\n        result = {"n": message["id"]}\n    '
    program = A_SERVER.replace(echo, counted + echo)
    warm = {"steps": [{"request": "x"}] * 3}
    late = asked("late", {"result": {"n": {"$range": [1, 3]}}})
    vectors = {
        "one": warm,
        "must": late,
        "two": warm,
        "text": {**late, "level": "text"},
    }
    done = play_copy(tmp_path, vectors, sys.executable, "-c", program)
    rows = played_rows(tmp_path)
    assert {rows[name]["order"] for name in ("must", "text")} == {"passes alone"}, rows
    assert "harms" in rows["must"] and "harms" not in rows["text"]
    assert done.returncode == 0 and "harmed:\n  basic/index: must (" in done.stdout


def test_a_set_up_that_fails_is_charged_to_no_vector(tmp_path):
    client = {"client": {"roots": {}}, "until": ORDER[1]}
    vectors = {"one": asked("x", {}, **client), "two": asked("y", {}, **client)}
    done = play_copy(tmp_path, vectors, *SERVE, revision=ORDER[1])
    assert {row["verdict"] for row in played_rows(tmp_path).values()} == {"not set up"}
    assert done.returncode == 1 and "BROKEN" not in done.stdout
    assert done.stdout.count("NOT SET UP, so not judged: 2 outcomes") == 1
    assert 'errors="2"' in (tmp_path / "junit.rows").read_text("utf-8")


def test_a_run_that_is_stopped_leaves_whole_reports(tmp_path):
    vectors = {"good": asked("x", {}), "slow": asked("silence", {})}
    done = play_copy(tmp_path, vectors, "--limit", "0.5", "--timeout", "60", *SERVE)
    assert done.returncode == 1 and "STOPPED: the time limit is over" in done.stdout
    assert list(played_rows(tmp_path)) == ["good"]
    suite = ElementTree.parse(tmp_path / "junit.rows").getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors")}
    assert counts == {"tests": "2", "failures": "0", "errors": "1"}
    assert "Bail out!" in (tmp_path / "tap.rows").read_text("utf-8")


def test_a_runner_says_at_once_what_cannot_be_played(tmp_path):
    baseline = tmp_path / "known"
    baseline.write_text("id-integr stdio\n", "utf-8")
    for words, said in (
        (["--only", "pnig", "true"], "did you mean ping?"),
        (["--baseline", str(baseline), "true"], "did you mean id-integer?"),
        (["--revisions", "1999-01-01", "true"], "is not one of"),
        (["no-such-command-here"], "no such command"),
        ([f"http://127.0.0.1:{unused_port()}/mcp"], "cannot be reached"),
    ):
        done = command(str(VECTORS / "run.py"), *words)
        assert done.returncode == 1 and said in done.stderr, (words, done.stderr)
    driver = [sys.executable, "-c", "raise LookupError('no client')"]
    done = command(str(VECTORS / "clients" / "run_client.py"), *driver)
    assert done.returncode == 1 and "LookupError: no client" in done.stdout


def test_the_cause_of_a_dead_server_is_told(tmp_path):
    done = play_copy(tmp_path, {"it": asked("die", {})}, *SERVE)
    assert "the other end has left: LookupError: no database" in done.stdout


def test_a_baseline_can_be_written(tmp_path):
    known = str(tmp_path / "known")
    vectors = {"it": asked("x", {"error": {}}), "other": asked("x", {"result": {}})}
    assert play_copy(tmp_path, vectors, "--write-baseline", known, *SERVE).returncode
    assert Path(known).read_text("utf-8").startswith(f"it stdio {ORDER[0]}  # broken")
    done = play_copy(tmp_path, vectors, "--baseline", known, *SERVE)
    assert done.returncode == 0, done.stdout


def test_the_runner_sends_and_reads_as_a_vector_says(tmp_path):
    """Texts that are made, pieces of lines, second clients, pages, new operators."""
    echo = {"request": "echo", "params": {"text": {"$repeat": ["\u00fc", 3000]}}}
    echo["expect"] = {"result": {"text": {"$match": "^\u00fc{3000}$"}}}
    half = {"request": "echo", "params": {"text": {"$unit": 0xD83D}}}
    half["expect"] = {"result": {"text": {"$size": [1, 1]}}}
    own = [{"request": "x", "as": "b", "id": 9}, {"heard": [], "label": "none"}]
    own += [{"heard": [{"id": 9}], "as": "b"}]
    pages = {"request": "pages", "expect": {"result": {"items": {"$save": "first"}}}}
    next_page = {"request": "pages", "params": {"cursor": "2"}}
    apart = {"result": {"items": {"$not": {"$apart": ["first", "n"]}}}}
    deep = {"result": {"$all": [{"$nowhere": "cursor"}, {"$not": {"$nowhere": "n"}}]}}
    some = {"result": {"$some": {"$match": "^2$"}}}
    vectors = {
        "made": {"steps": [{**echo, "pieces": 7}, half]},
        "second-client": {"steps": own},
        "apart": {"steps": [pages, {**next_page, "expect": apart}]},
        "deep": {"steps": [{"request": "pages", "expect": deep}]},
        "some": {"steps": [{"request": "pages", "params": {}, "expect": some}]},
        "pages-that-lead-back": {"steps": [{"pages": "pages"}]},
    }
    rows = verdicts(tmp_path, vectors, *SERVE)
    broken = [name for name, row in rows.items() if row["verdict"] != "passed"]
    assert broken == ["pages-that-lead-back"], rows
    assert "leads back to itself" in rows["pages-that-lead-back"]["why"]


A_SESSION = """
import json, sys
kind, lists = sys.argv[1], ("tools/list", "resources/list", "resources/templates/list")
unknown = {"error": {"code": -32601, "message": "unknown"}}
cancelled = False
for line in sys.stdin:
    message = json.loads(line)
    method, content = message.get("method"), unknown
    cancelled |= method == "notifications/cancelled"
    if method == "initialize" and (message["id"] != "open" or kind == "good"):
        version = message["params"]["protocolVersion"]
        content = {"result": {"protocolVersion": version, "capabilities": {}}}
    elif method == "server/discover" and kind in DISCOVERED:
        content = {"result": {"supportedVersions": DISCOVERED[kind], "capabilities": {}}}
    elif method == "prompts/list" and kind == "lists":
        content = {"result": {"prompts": [{"name": "hidden"}]}}
    elif method == "no/such/method" and kind == "served":
        content = {"error": {"code": -32602, "message": "no such method"}}
    elif method == "subscriptions/listen" and kind == "served":
        content = {"result": {}}
    elif method in (*lists, "ping") and not (cancelled and kind == "ended"):
        content = {"result": {}}
    if "id" in message and not (kind == "silent" and content is unknown):
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **content}), flush=True)
""".replace("DISCOVERED", repr({"modern": ORDER[:1], "both": ORDER}))


@parametrize(
    "kind, name, verdict",
    [
        ("good", "prompts-undeclared", "passed"),
        ("lists", "prompts-undeclared", "broken"),
        ("silent", "prompts-undeclared", "skipped"),
        ("silent", "unknown-method", "broken"),
        ("silent", "modern-method-in-session", "skipped"),
        ("served", "modern-method-in-session", "remark"),
        ("good", "discover-before-initialize", "passed"),
        ("old", "discover-before-initialize", "remark"),
        ("both", "discover-before-initialize", "remark"),
        ("modern", "discover-before-initialize", "skipped"),
        ("good", "cancel-late", "passed"),
        ("ended", "cancel-late", "broken"),
    ],
)
def test_a_vector_is_charged_with_its_own_fault_only(tmp_path, kind, name, verdict):
    """Who is silent on what it does not know has not listed anything; who answers a
    server/discover needs no initialize; who is broken by a cancellation is found."""
    words = ["--revisions", ORDER[1], "--only", name, "--json", str(tmp_path / "rows")]
    patience = "0.5" if kind == "silent" else str(PATIENCE)
    words += ["--timeout", patience, sys.executable, "-c", A_SESSION, kind]
    done = command(str(VECTORS / "run.py"), *words, seconds=9 * PATIENCE)
    [row] = json.loads((tmp_path / "rows").read_text("utf-8"))
    assert row["verdict"] == verdict, done.stdout


def test_what_is_forbidden_is_judged_where_it_is_there():
    """No `never` fits an answer that says nothing: `$not` holds on absent members."""
    bare: list[Any] = [{"content": [], "isError": True}, {"resultType": "complete"}, {}]
    answers = [{"jsonrpc": "2.0", "id": 1, "result": result} for result in bare]
    answers += [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": ""}}]
    program = f"""if True:
        import json, pathlib, report
        from patterns import fits
        paths = [*pathlib.Path().glob("*.json"), *pathlib.Path("clients").glob("*.json")]
        for path in paths:
            for vector in report.read_file(path) if path.stem != "schema" else []:
                for pattern in vector.get("never", []):
                    if any(fits(pattern, one, {{}}) for one in {answers!r}):
                        print(vector["id"])"""
    done = command("-c", program, cwd=VECTORS)
    assert done.stdout == "" and done.returncode == 0, done.stderr


def test_a_process_that_has_said_nothing_has_more_time_to_exit():
    program = """if True:
        import links, play
        link = links.Link()
        link.close = lambda seconds: print(seconds) or "left"
        talk = play.Talk(play.Scene(), link, {})
        talk.leave({"exit": 1})
        link.spoke = True
        talk.leave({"exit": 1})"""
    done = command("-c", program, cwd=VECTORS)
    assert done.stdout.split() == ["20.0", "5.0"], done.stderr


def test_the_runner_writes_its_report_whoever_reads_it(tmp_path):
    """A file that cannot be written is refused at once; `| head` ends nothing."""
    runner, to = str(VECTORS / "run.py"), str(tmp_path / "none" / "rows")
    done = command(runner, "--json", to, "true")
    assert done.returncode == 2 and to in done.stderr, done.stderr
    options = [
        "--only",
        "ping",
        "--revisions",
        ORDER[0],
        "--json",
        str(tmp_path / "rows"),
    ]
    words = [sys.executable, runner, *options, sys.executable, "-c", "pass"]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert json.loads((tmp_path / "rows").read_text("utf-8")) == []


def test_each_rule_has_a_row_that_names_what_exists():
    """CLAUSES.md says in its last two columns which public name keeps a rule, and which
    test shows it. So it stays true when private names change."""
    vectors = HERE / "examples" / "vectors"
    extensions = sorted((HERE / "examples" / "extensions").glob("*.py"))
    shown = set()
    public = {name: vars(one)[name] for one in (mcp, client) for name in one.__all__}
    for one in extensions:
        if not one.stem.startswith("test_"):
            public |= vars(load(one.stem, one))
    for section in (vectors / "CLAUSES.md").read_text("utf-8").split("\n## ")[2:]:
        rows = re.findall(r"(?m)^\| (?!§)(.*) \|$", section)
        counts = re.findall(r" (\d+)\b", section.split("\n")[0])
        assert sum(map(int, counts)) == len(rows), section[:70]
        for kept, proof in (row.split(" | ")[-2:] for row in rows):
            for name in re.findall(r"`([\w.]+)`", kept):
                assert not re.search(r"(^|\.)_", name), f"{name} is private"
                first, *parts = name.split(".")
                functools.reduce(getattr, parts, public[first])
            shown.update(re.findall("`(.*?)`", proof))
    tests = {name for name in shown if name.startswith("test_")}
    texts = "".join(one.read_text("utf-8") for one in [Path(__file__), *extensions])
    known = re.findall(r"(?m)^(?:def )?(test_\w+)(?: =|\()", texts)
    assert [name for name in tests if not fnmatch.filter(known, name)] == []
    assert shown - tests == {
        one["id"]
        for path in vectors.rglob("*.json")
        for one in json.loads(path.read_text("utf-8")).get("vectors", [])
    }


def test_the_fixtures_of_the_vectors_are_all_that_they_need():
    """suite/fixtures.json is what a server has to offer; ours for tests offers it."""
    table = json.loads((VECTORS / "suite" / "fixtures.json").read_text("utf-8"))
    kinds = {"tools": "tool", "prompts": "prompt", "resources": "resource"}
    kinds["templates"] = "template"
    listed = {f"{kinds[kind]} {one['name']}" for kind in kinds for one in table[kind]}
    used = {
        need
        for path in VECTORS.glob("*.json")
        for vector in json.loads(path.read_text("utf-8")).get("vectors", [])
        for need in vector.get("needs", [])
        if need.split()[0] in kinds.values()
    }
    assert used | {"tool test_structured_content"} == listed
    server = load("everything_server", EVERYTHING).server
    names = {"tools": "name", "prompts": "name", "resources": "uri"}
    names["templates"] = "uriTemplate"
    with client.connect(server) as one:
        offered = {
            "tools": one.list_tools(),
            "prompts": one.list_prompts(),
            "resources": one.list_resources(),
            "templates": one.list_resource_templates(),
        }
        capabilities = one.capabilities
    for kind, items in offered.items():
        there = {item[names[kind]]: item for item in items}
        for row in table[kind]:
            item = there[row["name"]]
            if kind == "tools":
                schema = mcp.Schema(item["inputSchema"])
                assert schema.flaw(row["arguments"]) is None, row
            elif kind == "prompts":
                required = {
                    o["name"] for o in item.get("arguments", ()) if o.get("required")
                }
                assert required == set(row["arguments"]), row
    for path in table["capabilities"]:
        assert functools.reduce(
            lambda one, part: one[part], path.split("."), capabilities
        ) in (True, {})


def test_each_check_of_the_official_suite_is_on_its_page():
    """A vector names the checks that it corresponds to; the page lists them all."""
    named: dict[str, set[str]] = {}
    for path in VECTORS.rglob("*.json"):
        for one in json.loads(path.read_text("utf-8")).get("vectors", []):
            for check in one.get("checks", ()):
                named.setdefault(check, set()).add(one["id"])
    page = (VECTORS / "suite" / "README.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(.*?)` \| (.*) \|$", page)
    assert {name: set(re.findall("`(.*?)`", ids)) for name, ids in rows} == named
    total = len(set().union(*named.values()))
    assert f"{len(named)} checks and {total} vectors" in page.replace("\n", " ")
    # The version of the set is said in three places.
    version = re.search(r'(?m)^SET = "(.*?)"', (VECTORS / "report.py").read_text())[1]
    assert f"\n## {version} " in (VECTORS / "CHANGES.md").read_text("utf-8")
    assert f'"version": "{version}"' in (VECTORS / "suite/fixtures.json").read_text()


def test_each_line_for_users_of_fastmcp_runs():
    text = (HERE / "examples" / "from_fastmcp.md").read_text("utf-8")
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


A_FILE_OF_SCRIPTS = """from test_mcp_ref import each, scripts

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
    assert works == f"this_works-{MODERN[0]}-memory" and fails.startswith("second_line")
    assert said[works] is None and said[added] is None
    place = re.escape(str(tmp_path / "given.py"))
    assert re.match(rf"{place}:10: in the script at {place}:8, ", said[fails])
    assert re.match(rf"{place}:16: in the script at {place}:21, ", said[again])
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


# A revision after the newest one, which exists only here: a row or a word for each kind
# of difference, as CONTRIBUTING says. What each row stands before, and the row.
NEXT = "2027-03-15"
NEXT_ROWS = {
    "2026-07-28  modern": f"{NEXT}  modern",
    "tools/list  ": "things/list  >  R6  -  -  no  no  -  -",
    "message  ": "things/changed  <  R6  -  -  -  -",
    "caching hints  ": "fancy tools  R6  -  -  tool.fancy",
}
RETIRED = r"(roots/list +< +R1 +)-", r"\1R5"


def next_module():
    """Make a module that knows one revision more, in which roots/list is gone."""
    source = re.sub(*RETIRED, MCP_REF.read_text("utf-8"))
    for place, row in NEXT_ROWS.items():
        source, count = re.subn(f"\n    {place}", f"\n    {row}\\g<0>", source)
        assert count == 1, place
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
    return server


def test_two_modern_revisions_may_differ_and_each_difference_is_a_row():
    module = next_module()
    server = next_server(module)

    def said(version: str, method: str, **params) -> list:
        sent: list = []
        request = modern(method, **params)
        request["params"]["_meta"] = {
            module.META_VERSION: version,
            module.META_CAPABILITIES: {"roots": {}},
        }
        server.handle(request, sent.append)
        return sent

    def listener(version: str) -> list:
        wanted = {"notifications/things/changed": True, "toolsListChanged": True}
        return said(version, "subscriptions/listen", notifications=wanted)

    newest = MODERN[0]
    assert module.versions("modern") == [NEXT, *MODERN]
    (new,), (old,) = said(NEXT, "things/list"), said(newest, "things/list")
    assert new["result"]["things"] == []
    assert old["error"]["code"] == CODES["METHOD_NOT_FOUND"]

    (new,), (old,) = said(NEXT, "tools/list"), said(newest, "tools/list")
    assert new["result"]["tools"][0]["fancy"] == {"x": 1}
    assert "fancy" not in old["result"]["tools"][0]

    new, old = (
        said(NEXT, "tools/call", name="where"),
        said(newest, "tools/call", name="where"),
    )
    assert [one.get("method") for one in new] == ["notifications/things/changed", None]
    assert new[-1]["error"]["code"] == CODES["MISSING_REQUIRED_CLIENT_CAPABILITY"]
    assert [one["result"]["resultType"] for one in old] == ["input_required"]

    hears, hears_not = listener(NEXT), listener(newest)
    server.notify("notifications/things/changed")
    server.changed("tools")
    assert [one["method"] for one in hears[1:]] == [
        "notifications/things/changed",
        "notifications/tools/list_changed",
    ]
    assert [one["method"] for one in hears_not[1:]] == [
        "notifications/tools/list_changed"
    ]


def test_a_copy_without_part_ii_is_a_complete_server_on_stdio(tmp_path):
    kept, _ = re.split("(?m)^# =+ Part II: ", MCP_REF.read_text("utf-8"))
    (tmp_path / "mcp_ref.py").write_text(kept, "utf-8")
    shutil.copytree(HERE / "examples", tmp_path / "examples")
    # The extensions tasks and skills need the client, and that needs part II.
    kept = re.sub(
        r"(?m)^.*\b([Tt]asks|serve_skills)\b.*\n", "", EVERYTHING.read_text("utf-8")
    )
    everything = tmp_path / "examples" / "everything_server.py"
    everything.write_text(kept, "utf-8")
    play_vectors(sys.executable, everything)


# ---- the layout of the repository's Python

FILES = sorted(
    path
    for folder in (HERE, HERE / ".ci", HERE / "examples")
    for path in (folder.glob("*.py") if folder == HERE else folder.rglob("*.py"))
)
MOST_LINES, MOST_COLUMNS = 50, 88  # of a function; of a comment or docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose_of(source: str) -> set[int]:
    """Return the numbers of the lines with comments and docstrings.

    But for commands with what they print, `# mypy:` lines, and what `# fmt: off` leaves
    as it is.
    """
    lines, found = ["", *source.split("\n")], set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            shown = False
            for number in range(node.body[0].lineno, node.body[0].end_lineno + 1):
                line = lines[number].strip()
                shown = bool(line) and (shown or line.startswith("$ "))
                found.update(() if shown else [number])
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# mypy:"):
            found.add(token.start[0])
    off = 0
    for number, line in enumerate(lines):
        if line.strip() in ("# fmt: off", "# fmt: on"):
            off = number if "off" in line else 0
        found.difference_update([number] if off else ())
    return found


@parametrize("path", FILES, ids=lambda path: path.relative_to(HERE).as_posix())
def test_functions_are_short_and_prose_is_narrow(path):
    source = path.read_text("utf-8")
    lines = source.split("\n")
    long = [
        f"{path}:{node.lineno}: {node.name} has more than {MOST_LINES} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno >= MOST_LINES
    ]
    wide = [
        f"{path}:{number}: more than {MOST_COLUMNS} columns: {lines[number - 1]}"
        for number in sorted(prose_of(source))
        if len(lines[number - 1]) > MOST_COLUMNS
    ]
    assert not long + wide, "\n".join(long + wide)


# The one wall: tokens, as `tokenize` yields them, without those of layout.
MOST_TOKENS = {"mcp_ref.py": 32100, "examples/mcp_client.py": 11950}
LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}


def count_tokens(path: str) -> int:
    with open(HERE / path, "rb") as file:
        return sum(
            tokenize.tok_name[token.type] not in LAYOUT
            for token in tokenize.tokenize(file.readline)
        )


old_tokens = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="an f-string is many tokens there"
)


@parametrize("path", MOST_TOKENS)
@old_tokens
def test_a_file_to_copy_is_within_its_tokens(path):
    count = count_tokens(path)
    assert count <= MOST_TOKENS[path], (
        f"{path} has {count} tokens, {MOST_TOKENS[path]} are allowed: simplify it, or leave a "
        "feature out and say so. Lines, comments and layout do not count."
    )


def is_about(stated: str, true: int) -> bool:
    """Tell whether a figure of the README is true, to 10 %."""
    return abs(int(stated.replace(",", "")) - true) <= true / 10


@old_tokens
def test_the_sizes_in_the_readme_are_true():
    said = re.search(
        r"one file of ([\d,]+) lines \(([\d,]+) tokens\), the client another of "
        r"([\d,]+) \(([\d,]+)\)",
        README,
    )
    files = ["mcp_ref.py", "examples/mcp_client.py"]
    lines = [len((HERE / one).read_bytes().splitlines()) for one in files]
    tokens = [count_tokens(one) for one in files]
    assert is_about(said[1], lines[0]) and is_about(said[2], tokens[0])
    assert is_about(said[3], lines[1]) and is_about(said[4], tokens[1])
    together = re.search(r"lines of Python, including dependencies \| ([\d,]+)", README)
    assert is_about(together[1], sum(lines))
    vectors = sum(
        len(json.loads(path.read_text("utf-8")).get("vectors", ()))
        for path in (HERE / "examples" / "vectors").rglob("*.json")
    )
    said = re.search(r"beside (\d+) recorded conversations", README)
    assert int(said[1]) == len(LESSONS) and len(EXERCISES) == 8  # "eight"
    least = int(re.search(r"more than (\d+) \[test vectors\]", README)[1])
    assert least < vectors <= least + 150


# ---- references: no file of the repository mentions one that it does not contain

TEXTS = sorted(
    path
    for folder in (HERE, HERE / ".github", HERE / ".ci", HERE / "examples")
    for path in (folder.glob("*") if folder == HERE else folder.rglob("*"))
    if path.suffix in (".md", ".py", ".yml") or path.parent.name == ".ci"
    if path.is_file() and "__pycache__" not in path.parts
)


@parametrize("path", TEXTS, ids=lambda path: path.relative_to(HERE).as_posix())
def test_what_a_file_refers_to_exists(path):
    text = path.read_text("utf-8")
    names = {one.name for one in TEXTS} | {"SKILL.md", "NN_name.md", "t.md"}
    missing = []
    if path.suffix == ".md":
        links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
        missing += [one for one in links if not (path.parent / one).exists()]
    if not path.name.startswith("test_"):
        pages = re.findall(r"(?<![\w/*.-])((?:\w+/)*\w+\.md)\b", text)
        missing += [one for one in pages if one.rpartition("/")[2] not in names]
    paths = re.findall(
        r"(?<![\w/.-])((?:examples|\.ci|\.github)/[\w/.-]*\w\.(?:py|md|json|html))",
        text,
    )
    missing += [one for one in paths if not (HERE / one).exists() and "NN_" not in one]
    assert not missing, missing
