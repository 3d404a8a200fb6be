r"""The language of test scripts: text that shows a conversation, line by line.

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

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import http.client
import importlib.util
import itertools
import json
import linecache
import multiprocessing.connection
import os
import queue
import re
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import typing
import warnings
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testing import revisions

# ---- what is tested


HERE = Path(__file__).resolve().parents[2]
PATIENCE = float(os.environ.get("MCP_PATIENCE", "10"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and our servers would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


POSIX, OTHER = os.name == "posix", "Windows has other signals, descriptors and shells"
COVERAGE = {
    name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")
}
# Our programs need no packages, and start in half the time without `site`, which only
# coverage needs; and the next process uses the bytecode of the last one.
PYTHON = [sys.executable] if COVERAGE else [sys.executable, "-S"]
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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


# Tests name revisions by what they mean, never by their place.
ORDER = list(mcp.REVISIONS)  # newest first
LEGACY = mcp.versions("legacy")
MODERN = mcp.versions("modern")
NEWEST = ORDER[0]
NEWEST_LEGACY = LEGACY[0]
OLDEST = ORDER[-1]
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
    ends = range(ORDER.index(last or NEWEST), ORDER.index(first or OLDEST) + 1)
    return ORDER.index(version) in ends


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
    options.update(title="Test", websiteUrl="https://example.org")
    server = mcp.Server("test", "1.2", "Use it gently.", **options)
    fixture_tools(server, stage)
    fixture_speaking_tools(server)
    fixture_waiting_tools(server, stage)
    fixture_coroutines(server, stage)
    fixture_resources(server)
    kinds = {"region": ["string", "null"], "n": "integer", "on": "boolean"}
    kinds["deep"] = "string"
    part = {name: {"type": kinds[name], "x-mcp-header": name} for name in kinds}
    inner = {"type": "object", "properties": {"deep": part.pop("deep")}}
    schema = {"type": "object", "properties": {**part, "inner": inner, "x": True}}
    server.tool(name="place", input_schema=schema)(lambda **given: "placed")

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
            asked = asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int)
            return (await asked)["action"]
        if what == "asks in a group":
            async with asyncio.TaskGroup() as group:
                asked = asyncio.to_thread(ctx.elicit, "Which?", key="q", x=int)
                group.create_task(asked)
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

    names = ("ada", "alan", "grace")
    server.completion("greet", "name")(
        lambda typed: [name for name in names if name.startswith(typed)]
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


CALL = re.compile(r"(?<!\S):(\w+)(?: (\{.*?\}))?(?= (?:\?|=>|->)|$)")


def exchange_of(row: str) -> list[str]:
    """Return the lines that `[ON] REQUEST ? KEY QUESTION -> REPLY => ANSWER` stands
    for."""
    row = CALL.sub(
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


OPTIONS = set("on server client connect declare bare limits endpoint keys line".split())


def meant(word: str, version: str, carrier: str) -> bool:
    """Tell whether a word of `on:` means this revision, or this carrier."""
    first, dots, last = word.partition("..")
    if dots:
        return within(version, first, last)
    names = {"*", version, mcp.REVISIONS[version].era, carrier, f"{carrier}-{version}"}
    return word in names or (word == "newest" and version == NEWEST)


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
        parts = [option.partition(":") for option in reversed(options)]
        given = {name: value_of(value.strip()) for name, _, value in parts}
        assert set(given) <= OPTIONS, f"{place}: unknown option in {head}"
        given.update(module=caller.f_globals["__name__"], place=place, title=title)
        raw = any(">> " in row.text[:30] for row in rows)
        carriers = CARRIERS[raw : 3 if "client" in given else 2]
        slug = given["slug"] = slug_of(title, slugs)
        for pair in select(given.get("on", "*"), carriers):
            if "pipe" in pair and "client" not in given:
                PRELOADED[given["module"]] = None
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
        if wanted == came and type(wanted) is type(came):
            return []
        return [f"{place}: expected {wanted!r:.300}, came {came!r:.600}"]
    return [
        line
        for key, (one, other) in pairs
        for line in differences(one, other, f"{place}{key}/")
    ]


# ---- what must hold of every message


LISTED = {"tools": "tool", "resources": "resource", "prompts": "prompt"}
LISTED.update({"resourceTemplates": "template", "content": "*"})


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
        batches = exists(revisions.OTHERS["batches"], self.version or NEWEST)
        for one in message if isinstance(message, list) and batches else [message]:
            if not isinstance(one, dict) or {"result", "error"} & set(one):
                continue
            params, _, version = params_of(one)
            if one.get("method") == "notifications/cancelled":
                self.open.pop(arrow + json.dumps(params.get("requestId")), None)
            elif mcp.is_id(one.get("id")):
                asked = self.open.setdefault(arrow + json.dumps(one["id"]), [])
                asked.append((one.get("method"), version))

    def check(self, message, arrow: str):
        """Check what the side under test sends."""
        for one in message if isinstance(message, list) else [message]:
            assert isinstance(one, dict) and one.get("jsonrpc") == "2.0", (
                f"not a message of JSON-RPC 2.0: {one}"
            )
            if "method" not in one:
                self.response(one, "<" if arrow == ">" else ">")
                continue
            params, meta, modern = params_of(one)
            version = modern or self.version
            table = revisions.METHODS if "id" in one else revisions.NOTIFICATIONS
            row = table.get(one["method"])
            assert set(one) <= {"jsonrpc", "id", "method", "params"}, (
                f"a message has unknown members: {one}"
            )
            assert params == one.get("params", {}), "params must be an object"
            assert not row or arrow in row.way, (
                f"{one['method']} goes the other way, says revisions.py: {row}"
            )
            assert not row or not version or exists(row, version), (
                f"{version} has no {one['method']}, says revisions.py: {row}"
            )
            if "id" in one:
                key = arrow + json.dumps(one["id"])
                assert mcp.is_id(one["id"]) and key not in self.seen, (
                    "an id was used twice"
                )
                assert arrow == ">" or not modern and self.version in LEGACY, (
                    f"a server must not send {one['method']} in a modern revision"
                )
                assert not modern or isinstance(
                    meta.get(META + "clientCapabilities"), dict
                ), f"_meta lacks clientCapabilities: {one}"
                self.seen.add(key)
            self.note(one, arrow)

    def response(self, message: dict, asker: str):
        assert ("result" in message) != ("error" in message), message
        if "error" in message:
            error = message["error"]
            row = revisions.ERRORS.get(str(error["code"]))
            assert type(error["code"]) is int and isinstance(error["message"], str), (
                f"an error's code is an integer, its message text: {error}"
            )
            assert set(error) <= {"code", "message", "data"}, (
                f"an error has unknown members: {error}"
            )
            assert row or not -32768 <= error["code"] <= -32000, (
                f"{error['code']} is reserved, and not in ERRORS of revisions.py"
            )
            assert not row or not self.version or exists(row, self.version), (
                f"{self.version} has no error {error['code']}, says revisions.py: {row}"
            )
        if message.get("id") is None:
            null = exists(revisions.OTHERS["null-id-in-errors"], self.version or NEWEST)
            assert "error" in message and ("id" in message) is null, (
                f"the id of an unread request is {'null' if null else 'absent'}: {message}"
            )
            return
        key = asker + json.dumps(message["id"])
        assert self.open.get(key), (
            "a response that nobody waits for, or to a cancelled request"
        )
        method, version = self.open[key].pop()
        if "result" in message and asker == ">":
            self.result(method, version, message["result"])

    def result(self, method: str, modern: str | None, result: dict):
        """Check the result of a server: its members are those of the revision.
        `modern`: the revision that the request names."""
        row, kind = revisions.METHODS.get(method), result.get("resultType")
        hints = len({"ttlMs", "cacheScope"} & set(result))
        assert (kind is not None) == (modern is not None), (
            f"a result has resultType if its request is modern: {result}"
        )
        if row:
            cacheable = "cacheable" in row.flags and kind == "complete"
            assert hints == 2 * cacheable, (
                f"{method}: caching hints are {'missing' if cacheable else 'too much'}"
            )
        if kind == "input_required":
            assert not row or "asks" in row.flags, f"{method} must not ask"
            for one in result["inputRequests"].values():
                assert "<" in revisions.METHODS[one["method"]].way and "id" not in one
        if modern is not None:
            info = result.get("_meta", {}).get(META + "serverInfo", {})
            assert isinstance(info.get("name"), str), f"no serverInfo in {result}"
        elif method == "initialize":
            self.version = result["protocolVersion"]
        version = modern or self.version
        hidden = {
            row.name
            for row in revisions.MEMBERS.values()
            if version and not exists(row, version)
        }
        shown = {
            f"{kind}.{key}"
            for member, of in LISTED.items()
            for item in result.get(member, [])
            for key in item
            for kind in (of, "*")
        } | {"result." + key for key in result}
        assert not shown & hidden, (
            f"{version} has no {', '.join(shown & hidden)}, says revisions.py: {result}"
        )


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
        self.version, self.carrier = version, carrier
        self.options, self.stack = options, stack
        self.place = options.get("place", "")
        self.played, self.bare = "client" in options, "bare" in options
        self.ours, self.theirs = "<>" if self.played else "><"
        self.referee = Referee("" if self.bare and not self.played else version)
        self.changed = threading.Condition()
        self.came = []  # messages that no line has expected yet
        self.reached: list[str] = []  # what was reported
        self.problems: list[BaseException] = []
        self.calls = []
        offers = OFFERS if self.played else {}
        self.names = {
            **{name: str(code) for name, code in CODES.items()},
            "META": META,
            "VERSION": version,
            "NEWEST": NEWEST,
            "NO": '{"action": "decline"}',
            "DECLARED": json.dumps(options.get("declare", offers)),
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
            "wait": self.wait,
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
            if not isinstance(problem, AssertionError):
                said = f"{type(problem).__name__}: {said}"
            # The rule that broke comes first: summaries show only the first line.
            rule, _, details = said.partition("\n")
            place = f"{self.place}: " if self.place else ""
            text = f"{place}{rule}\n{self.where(row)}\n{details}"
            raise Flaw(text.rstrip()) from None

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
        return f"{script}    {source}{played}"

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
                rule = str(problem).partition("\nassert ")[0]
                if not isinstance(problem, AssertionError):
                    rule = f"{type(problem).__name__}: {rule}"
                self.report(problem=AssertionError(f"{rule}\nin {message!r:.500}"))
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
            given = {
                mcp.META_CAPABILITIES: json.loads(self.names["DECLARED"]),
                mcp.META_CLIENT: {"name": "runner", "version": "1"},
            }
            meta = mcp.meta_for(self.version, given)
            params["_meta"] = {**meta, **params.get("_meta", {})}
        elif (
            self.played
            and asked
            and asked[-1][1]
            and isinstance(message.get("result"), dict)
        ):
            hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            message["result"] = {**hints, **message["result"]}

    def send_raw(self, text: str):
        """Send bytes; if they are a message the referee takes note."""
        parts = re.split(rb"\\x([0-9a-f]{2})", text.encode())
        parts[1::2] = [bytes.fromhex(part.decode()) for part in parts[1::2]]
        data = b"".join(parts)
        message = value_of(data)
        self.referee.note(message, self.ours)
        self.line.send(data, message)

    def expect(self, text: str):
        label, wanted = message_of(text)
        head: Any = ["..."]
        keyword = ""
        if isinstance(wanted, dict):
            ident = "*" if "method" in wanted else self.ident(label)
            ident = None if label in ("-", "?") else ident
            wanted = {"id": ident, "method": None, **wanted}
            head = {key: wanted[key] for key in ("id", "method")}
            keyword = wanted.get("error", {}).pop("message", "").lower()

        def fitting() -> list:
            is_ordered = self.carrier != "http"
            return [
                one for one in self.came if is_ordered or not differences(head, one)
            ]

        came = self.until(fitting, text)[0]
        self.came.remove(came)
        for name, key in (("STATE", "requestState"), ("CURSOR", "nextCursor")):
            for value in re.findall(rf'"{key}": "(.*?)"', json.dumps(came)):
                self.names[name] = value
        whole = {"params": {}, **came} if isinstance(came, dict) else came
        flaws = differences(wanted, whole)
        if keyword not in json.dumps(came).lower():
            flaws.append(f"no {keyword!r} in it")
        if flaws and isinstance(came, dict) and "error" in came:
            flaws[0] += f"; the error is {came['error'].get('message')!r:.200}"
        assert not flaws, "\n".join([*flaws, f"in {json.dumps(came)[:2000]}"])
        self.name(label, came)

    # ---- other verbs

    def handshake(self, version: str = ""):
        """Open a session, if it is that era; as a client, or as the server of one."""
        version = version or self.version
        self.version = self.referee.version = self.names["VERSION"] = version
        self(PLAYED_GREETING if self.played else GREETING)

    def call(self, text: str):
        """Start a call of the client on a thread."""
        name, *words = re.findall(r"""[{["].*?[]}"](?= |$)|\S+""", text)
        pairs = [word.split("=") for word in words if re.match(r"\w+=", word)]
        named = {key: value_of(value) for key, value in pairs}
        words = [value_of(word) for word in words if not re.match(r"\w+=", word)]
        function = self.connect if name == "connect" else getattr(self.client, name)
        self.calls.append(begin(function, *words, **named))
        self.calls[-1].add_done_callback(lambda _: self.report())

    def connect(self, more=()):
        options = {**self.options.get("connect", {}), **dict(more)}
        for key in {"elicit", "sample", "visit"} & set(options):  # what those return
            options[key] = functools.partial(lambda value, *_: value, options[key])
        connecting = client.connect(self.line.target, **options)
        self.client = self.stack.enter_context(connecting)
        return self.client

    def outcome(self):
        """Return the result, or the exception, of the first call that is not
        settled."""
        self.until(self.calls[0].done, "the end of the call")
        call = self.calls.pop(0)
        return call.exception() or call.result()

    def returns(self, text: str):
        value = self.outcome()
        assert not isinstance(value, BaseException), f"the call raised {value!r}"
        flaws = differences(json.loads(text), getattr(value, "__dict__", value))
        assert not flaws, "\n".join(flaws)

    def raises(self, text: str):
        value = self.outcome()
        name, _, word = text.partition(" ")
        code, data = (getattr(value, key, "") for key in ("code", "data"))
        said = f"{code} {value} {data}".lower()
        assert name in [kind.__name__ for kind in type(value).__mro__], (
            f"expected {text}, the call returned {value!r:.300}"
        )
        assert word.lower() in said, f"no {word!r} in {said}"

    def quiet(self, text: str):
        """Let a request and its response pass: nothing else may have come."""
        method = "server/discover" if self.version in MODERN else "ping"
        self.send(f'"quiet" {method}')
        self.expect('"quiet" {}')
        assert not self.came, self.came

    def ended(self, ident: str):
        """Wait until the server has done with a request, answered or not."""
        peer = getattr(self.line, "peer", None)
        assert peer, "`ended` looks at the peer, which is here over memory only"
        key = json.loads(ident)
        self.until(lambda: key not in peer.running, f"the end of request {ident}")

    def wait(self, name: str):
        self.until(lambda: name in self.reached, f"the gate {name}")

    def once(self, name: str):
        assert self.reached.count(name) == 1, self.reached

    def finish(self):
        """End the conversation; nothing may be owed, and nothing may have come
        unexpected."""
        assert not self.calls, "a call was not settled"
        if not self.played:
            for key, asked in list(self.referee.open.items()):
                if any(method == "subscriptions/listen" for method, _ in asked):
                    self.send(f'- notifications/cancelled {{"requestId": {key[1:]}}}')
            self.stack.close()
            open_ones = self.referee.open.items()
            owed = [key for key, asked in open_ones if key[0] == ">" and asked]
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
        handle, message = self.server.handle, mcp.decode(data)
        future = begin(handle, message, self.deliver, peer=self.peer)
        future.add_done_callback(lambda _: self.talk.report(problem=future.exception()))
        self.running.append(future)
        talk = self.talk
        talk.until(lambda: len(talk.reached) > before or future.done(), "a report")

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
    begin(httpd.serve_forever)
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
    with contextlib.closing(request_to(*request)) as connection:
        with connection.getresponse() as answer:
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


# A process that has imported these modules, and forks a server in 5 ms.
FORKS: Any = multiprocessing.get_context("forkserver" if POSIX else "spawn")
PRELOADED = {__name__: None}  # and the modules of scripts that it serves


ONE_FORK_AT_A_TIME = threading.Lock()


def start_forked(function, *arguments):
    """Call a function in a process of its own; return the process. Its environment is
    that of the first one."""
    process = FORKS.Process(target=function, args=arguments, daemon=True)
    with ONE_FORK_AT_A_TIME, pytest.MonkeyPatch.context() as patch:
        if POSIX:
            FORKS.set_forkserver_preload(list(PRELOADED))
        # The process that forks does not get our `sys.path` otherwise.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        process.start()
    return process


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


def play_command(words: list[str], cwd: str, folder: str):
    """Be mcp_cli.py, in a process of its own, with three files as its streams."""
    for number in range(3):
        flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
        os.dup2(os.open(os.path.join(folder, str(number)), flags), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)
    sys.argv[1:] = words
    os.chdir(cwd)
    warnings.simplefilter("error")
    cli.start()


def forked_command(*words, text="", cwd="/"):
    """Do what command() does with mcp_cli.py, in a tenth of the time."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, str(number)) for number in range(3)]
        for path, content in zip(streams, (text, "", "")):
            path.write_text(content, "utf-8")
        process = start_forked(play_command, words, str(cwd), folder)
        process.join(3 * PATIENCE)
        process.kill()
        _, *found = [path.read_text("utf-8", "replace") for path in streams]
        return subprocess.CompletedProcess(words, process.exitcode, *found)


class Pipe:
    """Talks to a process that serves stdio; its stderr is ours."""

    def __init__(self, talk: Talk):
        self.talk = talk
        (source, self.stdin), (self.stdout, out) = FORKS.Pipe(False), FORKS.Pipe(False)
        self.control, control = FORKS.Pipe()
        self.process = start_forked(serve_forked, talk.options, source, out, control)
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
            problem = AssertionError(f"exit status {self.process.exitcode}")
            self.talk.report(problem=problem)


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
        self.talk = talk
        self.target = [*PYTHON, "-E", "-c", self.PROGRAM, path]
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
    headers = {**headers, "Connection": "close"}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
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
            found = re.fullmatch(r"(\d+) (\{.*?\}) ?(.*)", data.decode())
            status, headers, body = found.groups()
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
            code = one.get("error", {}).get("code")
            headers = {"Content-Type": "application/json"}
            headers.update({"Mcp-Session-Id": "s1"} if method == "initialize" else {})
            status = STATUS.get(code, 200) if modern else 200
            yield http_answer(status, headers, json.dumps(one))
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
