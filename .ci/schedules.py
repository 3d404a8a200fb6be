#!/usr/bin/env python3
"""Try many orders of the threads that meet: `python3 .ci/schedules.py [SECONDS]`.

A *model* is a function that starts a few real threads, which use the module, and returns
a check for the end. One thread runs at a time. Another may go on at every lock, wait and
sleep, and at every line that uses an attribute which changes after __init__(); time
passes only when all wait. A *plan*, {step: number of the thread}, says where another one
goes on. Tried are the empty plan, each plan with one step, and others at random, while
there is time. A plan that fails is printed: `.ci/schedules.py 0 MODEL PLAN` replays it.

To add a model, write a function like those below, under @model. It gets a World, whose
task(), until() and sleep() make threads and let them wait. Then plant a bug that it has
to find, in PLANTED at the end: each row changes the text of one function of the module.
If that text is gone, the bug "cannot be planted": change the row as the module was.

Nothing but the lock, the clock and the start of threads is ours: conditions and events
are the library's, on our locks. Only the planted bugs use private names of the module.
"""

from __future__ import annotations

import __future__
import ast
import concurrent.futures._base
import json
import logging
import os
import random
import re
import socket  # it needs select, which load() takes away
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "mcp_ref.py"
TEXT = SOURCE.read_text("utf-8")
TREE = ast.parse(TEXT)
MOST_STEPS = 5_000  # of a schedule; more is taken for a livelock
Check = Callable[[], Any]


# ---- the scheduler
class Stop(BaseException):
    """Ends a thread whose schedule is over."""


class World:
    """One schedule: a module, the threads that use it, and the time.

    `plan` has the number of another thread that goes on, by step; `choices` will have
    how many there were, by step. `refused` are the threads of the module that cannot be
    started, by number.
    """

    def __init__(self, mcp: Any, plan: dict[int, int]) -> None:
        self.mcp, self.plan = mcp, plan
        self.step, self.starts, self.now = 0, 0, 0.0
        self.threads: list[Thread] = []
        self.choices: list[int] = []
        self.refused: Any = ()
        self.failure = ""
        self.over = threading.Event()

    # ---- for models
    def task(self, function: Callable[[], Any], name: str = "") -> None:
        """Run a function on a thread. It may be used as a decorator."""
        Thread(function, name or function.__name__).begin()

    def until(self, test: Check, seconds: float = inf) -> bool:
        """Wait until a test holds; False: it does not after so many seconds."""
        return wait(test, seconds)

    def sleep(self, seconds: float = 1 / 1024) -> None:
        """Let all others go on, as far as they can."""
        wait(lambda: False, seconds)

    def passed(self) -> float:
        """Return when the last task of the model has ended."""
        return max(one.ended for one in self.threads if one.name[:4] != "mcp-")

    # ---- for the runner
    def run(self, check: Check) -> str:
        """Run all threads to their end; return what went wrong."""
        self.switch(None)
        if not self.over.wait(20):
            self.fail("the scheduler itself hangs")
        for thread in self.threads:
            thread.turn.release()
        for thread in self.threads:
            threading.Thread.join(thread, 5)
        try:
            if not self.failure and not check():
                self.fail("the condition does not hold in the end")
        except Exception as problem:
            self.fail(f"the condition cannot be checked: {problem!r:.200}")
        return self.failure

    def fail(self, what: str) -> None:
        """Note the first thing that goes wrong."""
        self.failure = self.failure or what

    def switch(self, me: Thread | None) -> None:
        """Let the thread go on whose turn it is; `me` is the one that runs."""
        if self.over.is_set():  # in a `finally` of what is being stopped
            raise Stop
        self.step += 1
        ready = [one for one in self.threads if one.is_ready()]
        due = min((one.until for one in self.threads if not one.ended), default=inf)
        if not ready and due < inf:
            self.now = max(self.now, due)
            ready = [one for one in self.threads if one.is_ready()]
        if not ready or self.step > MOST_STEPS:
            waiting = [one.name for one in self.threads if not one.ended]
            if waiting:
                what = "livelock" if ready else "deadlock"
                self.fail(f"{what}: {', '.join(waiting)} wait")
            self.over.set()
        else:
            chosen = me if me in ready else ready[0]
            others = [one for one in ready if one is not chosen]
            self.choices.append(len(others))
            which = self.plan.get(self.step, 0)
            if which and others:
                chosen = others[(which - 1) % len(others)]
            if chosen is me:
                return
            assert chosen
            chosen.turn.release()
        if me is not None and not me.ended:
            me.turn.acquire()
            if self.over.is_set():
                raise Stop


class Thread(threading.Thread):
    """A real thread that runs when its turn has come; the module's threads, too."""

    def __init__(self, target: Any, name: str = "", daemon: bool = True) -> None:
        super().__init__(name=name, daemon=True)
        self.target = target
        self.turn = threading.Semaphore(0)
        self.test: Check | None = None  # what it waits for
        self.until = inf  # ... but no longer
        self.ended = 0.0  # when, and a little, so that it is never 0

    def start(self) -> None:
        world.starts += 1
        if world.starts in world.refused:
            raise RuntimeError("can't start new thread")
        self.begin()

    def begin(self) -> None:
        world.threads.append(self)
        super().start()

    def is_ready(self) -> bool:
        if self.ended:
            return False
        return not self.test or self.until <= world.now or self.test()

    def run(self) -> None:
        self.turn.acquire()
        if world.over.is_set():
            return
        sys.settrace(trace)
        try:
            self.target()
        except Stop:
            return
        except BaseException as problem:
            world.fail(f"{self.name} raised {problem!r:.300}")
        finally:
            sys.settrace(None)
        self.ended = world.now + 1e-6
        if not world.over.is_set():
            world.switch(self)

    def join(self, timeout: float | None = None) -> None:
        wait(lambda: self.ended, inf if timeout is None else timeout)


world: World  # the schedule that runs


def wait(test: Check, seconds: float = inf) -> bool:
    """Have this thread wait until a test holds, or some seconds have passed. What makes
    a model is alone, and never waits."""
    me = threading.current_thread()
    if isinstance(me, Thread):
        me.test, me.until = test, world.now + seconds
        world.switch(me)
        me.test, me.until = None, inf
    return bool(test())


def trace(frame: Any, kind: str, argument: Any) -> Any:
    """Let another thread go on at a line of the module; see sys.settrace()."""
    if frame.f_code.co_filename != str(SOURCE):
        return None
    if kind == "line" and frame.f_lineno in LINES:
        world.switch(threading.current_thread())  # type: ignore[arg-type]
    return trace


def changing_lines() -> set[int]:
    """Return the lines that use an attribute which changes outside of __init__()."""
    mutators = "append appendleft pop popleft add discard remove clear update".split()
    functions = [
        one
        for one in ast.walk(TREE)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        and one.name != "__init__"
    ]
    nodes = [node for one in functions for node in ast.walk(one)]
    changed: list[Any] = []
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            if not isinstance(node.ctx, ast.Load):
                changed.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in mutators:
                changed.append(node.func.value)
    names = set()
    for node in changed:
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
    return {one.lineno for one in nodes if getattr(one, "attr", "") in names}


LINES = changing_lines()


class Lock:
    """What the module finds as threading.Lock."""

    def __init__(self) -> None:
        self.owner: Any = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        seconds = inf if timeout < 0 else timeout
        if self.owner if not blocking else not wait(lambda: not self.owner, seconds):
            return False
        self.owner = threading.current_thread()
        return True

    def release(self) -> None:
        if not self.owner:
            raise RuntimeError("release unlocked lock")
        self.owner = None

    def locked(self) -> bool:
        return bool(self.owner)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


def on_our_locks() -> Any:
    """Make the library's module `threading` again, on our locks, clock and threads."""
    made: Any = types.ModuleType("threading")
    text = Path(str(threading.__file__)).read_text("utf-8")
    exec(compile(text, "threading", "exec"), vars(made))
    made.Lock = made._allocate_lock = Lock
    made._CRLock = None  # so RLock is the one in Python
    made._time = lambda: world.now
    made.Thread = Thread
    made.enumerate = lambda: [one for one in world.threads if not one.ended]
    return made


THREADING = on_our_locks()
TIME = types.SimpleNamespace(
    **{name: getattr(time, name) for name in ("time", "strftime", "gmtime")},
    monotonic=lambda: world.now,
    sleep=lambda seconds: wait(lambda: False, seconds),
)
SOUND = compile(TREE, str(SOURCE), "exec")


# ---- the module, and planting
class CannotPlant(Exception):
    """The place of a planted bug is gone; its text says what is missing."""


def load(row: str = "") -> Any:
    """Make the module, with our threads and clock in it, and the bug of a row."""
    module: Any = types.ModuleType("mcp_ref")
    module.__file__ = str(SOURCE)
    sys.modules["mcp_ref"] = module
    exec(SOUND, vars(module))
    # Futures are the library's own, and wait as the module does.
    vars(concurrent.futures._base)["threading"] = THREADING
    sys.modules["select"] = types.ModuleType("select")  # no poll(), as on Windows
    module.threading, module.time = THREADING, TIME
    module.log = lambda entry: None
    module.CHECK_SECONDS = 0.25  # exactly, so that things happen at once
    if row:
        plant(module, row)
    return module


def plant(module: Any, row: str) -> None:
    """Make one function of the module again, with another text."""
    path, _, changes = row.partition(": ")
    owner, found = module, TREE  # type: Any, Any
    for name in path.split("."):
        inside = [one for one in found.body if getattr(one, "name", "") == name]
        if not inside:
            raise CannotPlant(f"there is no {path}")
        owner, found = found, inside[-1]
    owner = getattr(module, getattr(owner, "name", ""), module)
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    text = "\n".join(TEXT.split("\n")[first - 1 : found.end_lineno])
    for change in changes.split(" ;; "):
        old, _, new = change.partition(" -> ")
        if old not in text:
            raise CannotPlant(f"{path} has no `{old}`")
        text = text.replace(old, new)
    # super() finds the class under the name __class__.
    text = textwrap.indent(textwrap.dedent(text), "    ")
    text = f"def make(__class__):\n{text}\n    return {found.name}"
    whole = "\n" * (first - 2) + text  # so that the lines have their numbers
    flags = __future__.annotations.compiler_flag
    exec(compile(whole, str(SOURCE), "exec", flags), vars(module))
    setattr(owner, found.name, vars(module).pop("make")(owner))


# ---- what models are made of
MODELS: dict[str, Callable[[World], Check]] = {}


def model(make: Callable[..., Check], **options: Any) -> Callable[..., Check]:
    """Register a model: one that has options is registered once for each value."""
    MODELS[make.__name__] = make
    return make


def variant(name: str, make: Callable[..., Check], **options: Any) -> None:
    """Register a model that is another one with options."""
    MODELS[name] = partial(make, **options)


def request(w: World, method: str, **params: Any) -> dict[str, Any]:
    """Make a modern request, whose id is 1."""
    params["_meta"] = {**w.mcp.meta_for(w.mcp.versions()[0]), "progressToken": 1}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def message(method: str, ident: int | None = None, **params: Any) -> dict[str, Any]:
    """Make a legacy message; a request if it has an id."""
    made = {"jsonrpc": "2.0", "method": method, "params": params}
    return made if ident is None else {**made, "id": ident}


def opening(version: str = "2025-06-18") -> dict[str, Any]:
    """Make the first request of a session, whose client can be asked."""
    capabilities = {"roots": {}}
    return message(
        "initialize",
        0,
        protocolVersion=version,
        clientInfo={},
        capabilities=capabilities,
    )


CALL = message("tools/call", 1, name="tool", _meta={"progressToken": 1})
CANCEL = message("notifications/cancelled", requestId=1)
READY = message("notifications/initialized")
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}


def server_with(w: World, tool: Any) -> Any:
    """Make a server with a tool, which is a function of the Context."""
    server = w.mcp.Server("s")
    tool.__annotations__ = {"ctx": w.mcp.Context, "return": str}
    server.tool(tool, name="tool")
    return server


class Pair:
    """A server, and a client that is next to it: what one sends, the other has."""

    def __init__(self, w: World, tool: Any = lambda ctx: "x") -> None:
        self.server = server_with(w, tool)
        self.sent: list[Any] = []  # to the client
        self.peer = w.mcp.Peer(self.sent.append)

    def client(self, *messages: Any) -> None:
        """Send messages to the server."""
        for one in messages:
            self.server.handle(one, self.sent.append, peer=self.peer)

    def has(self, member: str) -> list[Any]:
        """Return what was sent that has a member."""
        return [one for one in self.sent if member in one]


class Wire:
    """An Exchange: the connection of one HTTP request, and what its client reads.

        is_slow      everybody else goes on while something is written
        fails_after  so many writes; then the client has gone
        has_left     the client has gone, but what is written seems to arrive
        hangs        how often the server has hung up
        ends         how often the stream was ended
    """

    w: World
    is_slow = False
    fails_after: float = inf
    has_left = False
    hangs = ends = status = 0
    writer: Any = None
    is_over = False  # its thread reads the next request

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        self.status, self.received = status, headers
        self.write(body or b"")

    def write(self, data: bytes) -> None:
        assert not self.writer, "two threads write at once"
        assert not self.ends, "something is written behind the end"
        assert not self.is_over, "something is written into the next answer"
        self.writer = threading.current_thread()
        if self.is_slow:
            self.w.sleep()
        self.w.until(lambda: True)
        self.writer = None
        self.fails_after -= 1
        if self.fails_after < 0:
            self.has_left = True
            raise OSError("hung up")
        self.text += data.decode()

    def comment(self) -> None:
        self.write(b": \n\n")

    def end(self, hang_up: bool = False) -> None:
        self.write(b"")
        self.ends += 1

    def gone(self) -> bool:
        self.w.until(lambda: True)
        assert not self.is_over, "the client of the next request is looked for"
        return self.has_left

    def hang_up(self) -> None:
        self.hangs += 1

    text = ""

    def numbers(self) -> list[int]:
        """Return the numbers of the events that have come."""
        return [int(one) for one in re.findall(r'"(?:n|progress)":(\d+)', self.text)]


class Web:
    """An endpoint, and its clients."""

    def __init__(self, w: World, tool: Any = lambda ctx: "x") -> None:
        # Sessions expire soon, so that the thread that checks them ends.
        w.mcp.SESSION_SECONDS = w.mcp.ASK_SECONDS = 3
        self.w, self.session = w, ""
        self.server = server_with(w, tool)
        self.endpoint = w.mcp.Endpoint(self.server)

    def wire(self, verb: str = "POST", said: Any = None, **options: Any) -> Any:
        """Make a request over HTTP; `last` is the event that its client has seen."""
        headers = {"content-type": "application/json"}
        if said and "io.modelcontextprotocol/protocolVersion" in str(said):
            headers["mcp-protocol-version"] = self.w.mcp.versions()[0]
            headers["mcp-method"] = said["method"]
            headers["mcp-name"] = said["params"].get("name", "")
        elif self.session:
            headers["mcp-session-id"] = self.session
        if last := options.pop("last", ""):
            headers["last-event-id"] = last
        made = type("OurWire", (Wire, self.w.mcp.Exchange), options)
        wire: Any = made(verb, "/mcp", headers.items(), None)
        wire.w = self.w
        wire.body = lambda: json.dumps(said).encode()
        return wire

    def serve(self, wire: Any) -> Any:
        """Serve a request on this thread; return it."""
        self.endpoint.serve(wire)
        wire.is_over = True
        return wire

    def send(self, said: Any) -> Any:
        """POST a message; return the wire."""
        return self.serve(self.wire("POST", said))

    def open(self, version: str = "2025-06-18") -> None:
        """Open a session, to which all that follows belongs."""
        wire = self.send(opening(version))
        self.session = wire.received["Mcp-Session-Id"]
        self.send(READY)

    def call(self, said: Any = CALL, **options: Any) -> Any:
        """Have a task POST a request; return the wire."""
        wire = self.wire("POST", said, **options)
        self.w.task(lambda: self.serve(wire), "call")
        return wire

    def is_empty(self) -> bool:
        """Tell whether nothing is kept, for nobody."""
        is_empty: bool = self.endpoint.sessions.is_empty()
        return is_empty and not self.endpoint.answers and not self.server.listeners


# ---- models of answers: their writers, and readers that come back
@model
def two_writers(w: World) -> Check:
    """A call emits while comments are due: one thread writes at a time."""
    w.mcp.KEEP_ALIVE_SECONDS = -1

    def tool(ctx: Any) -> str:
        for number in range(3):
            w.sleep(w.mcp.CHECK_SECONDS)
            ctx.progress(number)
        return "x"

    web = Web(w, tool)
    wire = web.call(request(w, "tools/call", name="tool"), is_slow=True)
    return lambda: (
        wire.numbers() == [0, 1, 2] and wire.text.count('"result"') == wire.ends == 1
    )


def resuming(w: World, first: dict[str, Any], second: dict[str, Any]) -> Check:
    """A call emits to a first connection; its client has seen one event, and resumes
    the stream on a second one: it gets everything else, in order, and one end."""

    def tool(ctx: Any) -> str:
        for number in range(4):
            ctx.progress(number)
        w.until(lambda: two.text or two.status)
        return "x"

    web = Web(w, tool)
    web.open()
    one = web.call(**first)
    two = web.wire("GET", **second)

    @w.task
    def client() -> None:
        w.until(one.numbers)
        two.headers["last-event-id"] = re.findall("id: (.*)", one.text)[0]
        web.serve(two)

    return lambda: (
        w.passed() < 1
        and two.numbers() == [1, 2, 3]
        and two.text.count('"result"') == two.ends == 1
    )


variant("reader_is_replaced", resuming, first={}, second={"is_slow": True})
variant("reader_leaves", resuming, first={"fails_after": 3}, second={})


@model
def reader_makes_way(w: World) -> Check:
    """A GET takes over a session's stream: the answer of the other one ends at once."""
    web = Web(w)
    web.open()
    first, second = web.wire("GET"), web.wire("GET")
    w.task(lambda: web.serve(first), "first")

    @w.task
    def take_over() -> None:
        w.until(lambda: first.status)
        web.serve(second)

    @w.task
    def end() -> None:
        w.until(lambda: first.ends)
        web.serve(web.wire("DELETE"))

    return lambda: w.passed() < 0.1 and (first.ends, second.ends) == (1, 1)


@model
def stream_is_closed(w: World) -> Check:
    """A call has its client come back for the rest: its connection ends at once, and
    nothing is lost, or told twice."""

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        ctx.close_stream()
        ctx.progress(1)
        w.until(lambda: second.status, 5)
        return "x"

    web = Web(w, tool)
    web.open("2025-11-25")
    first, second = web.call(), web.wire("GET")

    @w.task
    def client() -> None:
        w.until(lambda: first.ends)
        second.headers["last-event-id"] = re.findall("id: (.*)", first.text)[-1]
        web.serve(second)

    return lambda: (
        w.passed() < 2
        and (first.numbers(), second.numbers()) == ([0], [1])
        and '"result"' in second.text
    )


@model
def changes_meet(w: World) -> Check:
    """Two threads tell a session of the same change, which is told once; then of others,
    while its GET sends them, and wait for nobody."""
    web = Web(w)
    web.open()
    wire = web.wire("GET", is_slow=True)
    left = [2]

    def changes(number: int) -> None:
        web.server.notify("notifications/x", {"n": 9})
        left[0] -= 1
        w.until(lambda: number + 8 in [8, *wire.numbers()])
        w.sleep(number / 64)  # the GET waits
        began = w.now
        web.server.notify("notifications/x", {"n": number})
        assert w.now == began, "a change waits for a client"

    @w.task
    def listen() -> None:
        w.until(lambda: not left[0])
        web.serve(wire)

    @w.task
    def end() -> None:
        w.until(lambda: {0, 1} <= set(wire.numbers()))
        web.serve(web.wire("DELETE"))

    for number in (0, 1):
        w.task(partial(changes, number), f"change {number}")
    return lambda: (
        sorted(wire.numbers()) == [0, 1, 9] and wire.ends == 1 and w.passed() < 1
    )


# ---- ... of clients that hang up
def hanging_up(w: World, said: Any = None) -> Check:
    """A client hangs up while its call sends events, or while it listens: its request
    is cancelled soon."""

    def tool(ctx: Any) -> str:
        ctx.progress(1)
        w.until(lambda: ctx.cancelled, 60)
        return "x"

    web = Web(w, tool)
    wire = web.call(said or request(w, "tools/call", name="tool"))

    @w.task
    def client() -> None:
        w.until(lambda: "data:" in wire.text)
        wire.has_left = True

    return lambda: w.passed() < 2 and wire.hangs == 1 and web.is_empty()


def listening(w: World) -> dict[str, Any]:
    """Make a request that listens for changes of tools."""
    return request(w, "subscriptions/listen", notifications={"toolsListChanged": True})


variant("call_meets_hang_up", hanging_up)


@model
def listener_meets_hang_up(w: World) -> Check:
    """The same of a subscription, which is forgotten."""
    return hanging_up(w, listening(w))


@model
def hang_up_meets_end(w: World) -> Check:
    """A hang-up is noticed when the handler ends: the call is cancelled or answered,
    and nobody looks at a connection that is at the next request."""

    def tool(ctx: Any) -> str:
        ctx.on_cancel(lambda: told.append(1))
        w.sleep(w.mcp.CHECK_SECONDS)
        return "x"

    told: list[int] = []
    web = Web(w, tool)
    wire = web.call(request(w, "tools/call", name="tool"), has_left=True)
    return lambda: (
        len(told) + wire.text.count('"result"') == 1
        and wire.hangs <= 1
        and w.passed() < 1
        and web.is_empty()
    )


@model
def session_meets_hang_up(w: World) -> Check:
    """The client of a session hangs up: the call goes on without a reader."""
    told: list[Any] = []

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        [answer] = web.endpoint.answers
        w.until(lambda: not answer.outbox.reader, 2)
        told.append(answer.outbox.reader)
        return "x"

    web = Web(w, tool)
    web.open()
    wire = web.call()

    @w.task
    def client() -> None:
        w.until(wire.numbers)
        wire.has_left = True

    return lambda: told == [None] and wire.hangs == 1 and web.is_empty()


# ---- ... of subscriptions and sessions, and of how they begin
@model
def listener_meets_close(w: World) -> Check:
    """A subscription ends while something changes: acknowledged first, one response
    last, and it is no listener any more."""
    web = Web(w)
    wire = web.call(listening(w), is_slow=True)
    w.task(lambda: web.server.changed("tools"), "change")

    @w.task
    def close() -> None:
        w.until(lambda: web.server.listeners)
        web.server.changed("tools")
        began = w.now
        web.endpoint.close()
        assert w.now == began, "close() waits for a client"

    def check() -> bool:
        said = re.findall("data: (.*)", wire.text)
        return (
            "acknowledged" in said[0]
            and '"result"' in said[-1]
            and "list_changed" in said[1]
            and w.passed() < 1
            and wire.ends == 1
            and web.is_empty()
        )

    return check


@model
def opening_meets_close(w: World) -> Check:
    """An endpoint closes while a session opens and a subscription begins: none is left,
    and each is answered."""
    web = Web(w)
    opens, listens = web.call(opening()), web.call(listening(w))

    @w.task
    def close() -> None:
        w.until(lambda: web.endpoint.answers)
        web.endpoint.close()

    return lambda: (
        w.passed() < 1
        and '"result"' in opens.text
        and '"result"' in listens.text
        and web.is_empty()
    )


@model
def listener_meets_cancel(w: World) -> Check:
    """A subscription is cancelled while it begins: it hears nothing afterwards, and has
    no response."""
    pair = Pair(w)
    w.task(lambda: pair.client(listening(w)), "listen")

    @w.task
    def cancel() -> None:
        w.until(lambda: pair.peer.running)
        pair.client(CANCEL)
        pair.server.changed("tools")

    return lambda: (
        not (pair.server.listeners or pair.peer.running)
        and all("acknowledged" in one.get("method", "") for one in pair.sent)
    )


@model
def listener_hears_all(w: World) -> Check:
    """Something changes when the client has read the acknowledgement, and something
    before: it hears of the former, and of neither before the acknowledgement."""
    pair = Pair(w)
    w.task(lambda: pair.client(listening(w)), "listen")
    w.task(lambda: pair.server.changed("tools"), "change")

    @w.task
    def client() -> None:
        w.until(lambda: pair.sent)
        count = len(pair.sent)
        pair.server.changed("tools")
        assert len(pair.sent) > count, "a change after the acknowledgement is lost"

    return lambda: "acknowledged" in pair.sent[0]["method"]


@model
def session_meets_close(w: World) -> Check:
    """A session opens while its client leaves: it is no listener afterwards."""
    pair = Pair(w)
    w.task(lambda: pair.client(opening()), "open")
    w.task(pair.peer.close, "close")
    return lambda: not pair.server.listeners and len(pair.sent) == 1


@model
def sessions_meet(w: World) -> Check:
    """Two requests open a session of one peer: one of the two is left, and listens."""
    pair = Pair(w)
    for name in ("one", "two"):
        w.task(lambda: pair.client(opening()), name)
    return lambda: (
        list(pair.server.listeners) == [pair.peer.session] and len(pair.sent) == 2
    )


# ---- ... of requests: how they end, and their questions
@model
def response_meets_cancel(w: World) -> Check:
    """A request is cancelled, twice, while it runs and responds: it has a response, or
    its on_cancel() function is called, once."""
    ran: list[int] = []
    told: list[int] = []

    def tool(ctx: Any) -> str:
        ran.append(1)
        ctx.on_cancel(lambda: told.append(1))
        return "x"

    pair = Pair(w, tool)
    w.task(lambda: pair.client(request(w, "tools/call", name="tool")), "call")
    for name in ("cancel", "cancel again"):
        w.task(lambda: pair.client(CANCEL), name)
    return lambda: (
        len(pair.sent) + len(told) == len(ran) <= 1 and not pair.peer.running
    )


@model
def run_meets_cancel(w: World) -> Check:
    """The thread of `run=` comes to a call when it is cancelled, or given up: the call
    runs and is answered, or does not run."""
    w.mcp.RUN_SECONDS = 1
    ran: list[int] = []
    jobs: list[Any] = []
    pair = Pair(w, lambda ctx: str(ran.append(1)))
    pair.server.hook.put = jobs.append
    w.task(lambda: pair.client(request(w, "tools/call", name="tool")), "call")

    def when_given_up(act: Check) -> None:
        for _ in range(11):  # it is looked at every 0.1 s
            w.sleep(0.1)
        act()

    w.task(lambda: when_given_up(lambda: [job() for job in jobs]), "application")
    w.task(lambda: when_given_up(lambda: pair.client(CANCEL)), "cancel")
    return lambda: (
        len(ran) <= 1
        and len(pair.sent) <= 1
        and (bool(ran) if pair.has("result") else not (pair.sent and ran))
        and not pair.peer.running
    )


def asking(w: World, ask: Any = lambda ctx: ctx.list_roots()) -> tuple[Any, list[str]]:
    """Make a tool that asks; return what it gets, too."""
    got: list[str] = []

    def tool(ctx: Any) -> str:
        try:
            got.append(str(ask(ctx)))
        except w.mcp.AskError as problem:
            got.append(str(problem))
        return "x"

    return tool, got


def question(
    w: World, answers: float = inf, cancels: bool = False, closes: bool = False
) -> Check:
    """A call asks; its client answers after some seconds, cancels it, or leaves: one of
    these ends the question, and nobody waits for another."""
    tool, got = asking(w)
    w.mcp.ASK_SECONDS = 5
    pair = Pair(w, tool)
    pair.client(opening(), READY)
    del pair.sent[:]
    w.task(lambda: pair.client(CALL), "call")

    def gives_up() -> bool:
        return any("cancelled" in one.get("method", "") for one in pair.sent)

    def answer() -> None:
        w.until(lambda: pair.sent or got)  # the question, if it comes to that
        w.sleep(answers)
        if not gives_up():  # or nobody waits for it
            pair.client(ANSWER)

    def once_it_runs(act: Check) -> None:
        w.until(lambda: pair.peer.running or got)
        act()

    if answers < inf:
        w.task(answer)
    if cancels:
        w.task(lambda: once_it_runs(lambda: pair.client(CANCEL)), "cancel")
    if closes:
        w.task(lambda: once_it_runs(pair.peer.close), "close")

    def check() -> bool:
        responses = len(pair.has("result"))
        return (
            len(got) <= 1
            and (responses == len(got) == 1 or (cancels and not responses))
            and (w.passed() < 5 or 0 < answers < inf)
            and not (gives_up() and got == ["[]"])
            and not (pair.peer.questions or pair.peer.running)
        )

    return check


variant("question_meets_all", question, answers=0, cancels=True, closes=True)
variant("question_meets_cancel", question, cancels=True)
variant("question_meets_close", question, closes=True)
variant("question_meets_its_limit", question, answers=5)


@model
def answers_meet(w: World) -> Check:
    """A call asks two questions, and both answers come at once: it gets both."""
    both = {"a": w.mcp.roots(), "b": w.mcp.roots()}
    tool, got = asking(w, lambda ctx: ctx.ask(both))
    w.mcp.ASK_SECONDS = 5
    pair = Pair(w, tool)
    pair.client(opening(), READY)
    del pair.sent[:]
    w.task(lambda: pair.client({**CALL, "id": 9}), "call")

    def answer(ident: int) -> None:
        w.until(lambda: len(pair.sent) == 2)
        pair.client({**ANSWER, "id": ident})

    for ident in (1, 2):
        w.task(partial(answer, ident), f"answer {ident}")
    wanted = str(dict.fromkeys("ab", {"roots": []}))
    return lambda: got == [wanted] and w.passed() < 5


def draining(w: World, answers: bool) -> Check:
    """An endpoint closes while a call asks: an answer still counts, until it closes for
    the second time; then nobody waits for one."""
    tool, got = asking(w)
    web = Web(w, tool)
    w.mcp.ASK_SECONDS = w.mcp.SESSION_SECONDS = 9
    web.open()
    wire = web.call()

    @w.task
    def close() -> None:
        w.until(lambda: "roots/list" in wire.text)
        web.endpoint.close()
        if answers:
            web.send(ANSWER)
        w.until(lambda: got, 1)
        web.endpoint.close()

    def check() -> bool:
        is_right = got == ["[]"] if answers else "closing" in got[0]
        return is_right and w.passed() < 5 and not web.endpoint.sessions.all()

    return check


variant("question_meets_drain", draining, answers=True)
variant("question_meets_the_end", draining, answers=False)


# ---- ... of an endpoint: its sessions, its streams, its connections
@model
def sessions_make_way(w: World) -> Check:
    """Sessions open where there is room for one: never two; one that goes is closed."""
    w.mcp.MAX_SESSIONS = 1
    web = Web(w)

    def open_one() -> None:
        web.send(opening())
        assert len(web.endpoint.sessions.all()) <= 1, "too many sessions"
        left.append(len(web.server.listeners))

    left: list[int] = []
    for name in "abc":
        w.task(open_one, name)
    return lambda: left[-1] == 1 and web.is_empty()


@model
def sessions_expire(w: World) -> Check:
    """A session opens when the last one has expired, and mcp-check ends: the session
    expires, too, though no client comes."""
    web = Web(w)
    w.mcp.SESSION_SECONDS = 1
    w.task(lambda: web.send(opening()), "first")

    @w.task
    def second() -> None:
        w.sleep(1.25)  # when mcp-check looks
        assert web.send(opening()).status == 200

    return web.is_empty


@model
def session_meets_its_end(w: World) -> Check:
    """A session ends while a call of it runs, and its own stream is listened to: the
    call is answered, then the stream ends, and nothing is kept for ever."""

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        w.sleep(0.25)  # when mcp-check looks
        return "x"

    web = Web(w, tool)
    web.open()
    calls, listens = web.call(), web.wire("GET")
    w.task(lambda: web.serve(listens), "get")

    @w.task
    def close() -> None:
        w.until(lambda: calls.text)
        web.serve(web.wire("DELETE"))

    return lambda: (
        w.passed() < 1
        and '"result"' in calls.text
        and (listens.ends or listens.status == 404)
        and web.is_empty()
    )


@model
def session_meets_cancel(w: World) -> Check:
    """A call of a session is cancelled after an event: its stream ends all the same."""

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        w.until(lambda: ctx.cancelled, 1 / 4)
        return "x"

    web = Web(w, tool)
    web.open()
    wire = web.call()

    @w.task
    def cancel() -> None:
        w.until(wire.numbers)
        web.send(CANCEL)

    return lambda: w.passed() < 1 and wire.numbers() == [0] and wire.ends == 1


@model
def streams_leave_room(w: World) -> Check:
    """Streams without an end come at once where there is room for one."""
    w.mcp.MAX_CONNECTIONS = 2
    web = Web(w)
    wires = [web.call(listening(w)) for _ in "abc"]

    @w.task
    def close() -> None:
        w.until(lambda: all(wire.status for wire in wires))
        web.endpoint.close()

    return lambda: (
        sorted(wire.status for wire in wires) == [200, 503, 503] and web.is_empty()
    )


class Sock:
    """A connection's socket, which can be shut down."""

    hung = False

    def shutdown(self, how: int) -> None:
        self.hung = True


@model
def connections(w: World) -> Check:
    """Connections are accepted, evicted and closed: never too many, and a connection
    that has lost its place knows before it serves. An answer that is not read is cut,
    but not a handler."""
    w.mcp.MAX_CONNECTIONS, w.mcp.STALL_SECONDS = 1, 0
    endpoint, step, served = w.mcp.Endpoint(w.mcp.Server("s")), w.mcp.Step, []
    httpd = w.mcp.http_server(endpoint, "127.0.0.1", 0)
    httpd.socket.close()

    def connect() -> None:
        sock = Sock()
        if not httpd.admit(sock):
            return
        assert len(httpd.steps) <= 1, "too many connections"
        try:
            httpd.step(sock, step.READS, 30)
            httpd.step(sock, step.SERVES)
            served.append(1)
            w.until(lambda: True)
            assert not sock.hung, "a request that is served is cut"
            httpd.step(sock, step.SENDS, 30)
            httpd.step(sock, step.SERVES)
            httpd.leave(sock)
        except OSError:
            assert sock.hung, "it has a place"

    for name in "ab":
        w.task(connect, name)
    return lambda: served and not httpd.steps


# ---- ... of stdio: the reader, its deputy, and the queue
class Host:
    """The client of a server on stdio, at both files of a Pipe. It writes `calls`, one a
    line: the tool takes so many BLINK_SECONDS. A negative one lets time pass; a message
    is a line as it is.

        answered    when each was answered, in BLINK_SECONDS, by its place in `calls`
        returned    when serve() had returned
        fails       places whose answers cannot be sent
        reads       BLINK_SECONDS that it takes to read an answer
    """

    def __init__(self, w: World, calls: list[Any], threads: int, reads: int) -> None:
        self.w, self.threads, self.reads = w, threads, reads
        w.mcp.MAX_THREADS, w.mcp.LEAVE_SECONDS = threads, 2
        w.mcp.BLINK_SECONDS = 1 / 64  # exactly, so that things happen at the same time
        w.mcp.os = types.SimpleNamespace(**vars(os))
        w.mcp.os.fdopen = lambda file, *_, **__: file
        self.calls = list(enumerate(calls))
        self.answered: dict[int, float] = {}
        self.fails: set[int] = set()
        self.returned, self.running, self.reader = 0.0, 0, None  # type: float, int, Any
        server = w.mcp.Server("s")
        server.tool(self.do, name="do")
        self.pipe = w.mcp.Pipe(server, self, self)
        w.task(self.serve)

    def serve(self) -> None:
        self.pipe.serve()
        self.returned = self.w.now * 64

    def do(self, blinks: float) -> None:
        self.running += 1
        if self.running > self.threads:
            self.w.fail("too many handlers run at once")
        if blinks:
            self.w.sleep(blinks / 64)
        self.running -= 1

    def readline(self, size: int) -> bytes:
        assert not self.reader, "two threads read"
        self.reader = threading.current_thread()
        self.w.until(lambda: True)
        place, call = self.calls.pop(0) if self.calls else (0, None)
        line = b""
        if isinstance(call, dict):
            line = self.w.mcp.encode(call)
        elif call is not None and call < 0:
            self.w.sleep(-call / 64)
            line = b"\n"
        elif call is not None:
            made = request(self.w, "tools/call", name="do", arguments={"blinks": call})
            line = self.w.mcp.encode({**made, "id": place})
        self.reader = None
        return line

    def write(self, line: bytes) -> int:
        self.w.until(lambda: not self.reads, self.reads / 64)
        ident = json.loads(line).get("id")
        if ident in self.fails:
            raise ValueError("the file is closed")
        if self.returned:
            self.w.fail("an answer comes after the end")
        if ident in self.answered:
            self.w.fail("a request is answered twice")
        if ident is not None:
            self.answered[ident] = self.w.now * 64
        return len(line)


def on_stdio(
    w: World,
    calls: list[Any],
    answered: list[int],
    threads: int = 2,
    fails: Any = (),
    reads: int = 0,
    refused: Any = (),
    stops: int = 0,
    after: int = 0,
    check: Callable[[Host], bool] = lambda host: True,
) -> Check:
    """A host writes calls; those are answered once. stop() comes so often after so many
    answers; `refused` threads cannot be started."""
    calls = [listening(w) | {"id": 1} if one == "listen" else one for one in calls]
    w.refused = refused
    host = Host(w, calls, threads, reads)
    host.fails.update(fails)

    def stop() -> None:
        w.until(lambda: len(host.answered) == after)
        host.pipe.stop()

    for number in range(stops):
        w.task(stop, f"stop {number}")
    return lambda: sorted(host.answered) == answered and check(host)


# A handler returns when the deputy takes over: a fast call is answered before slow ones.
variant(
    "deputy_takes_over",
    on_stdio,
    calls=[1, 60, 0.1, 0, -99, 1, 0],
    answered=[0, 1, 2, 3, 5, 6],
    threads=3,
    check=lambda host: host.answered[3] < 3,
)
# No deputy stands by when a slow call comes; and again, while another one is slow.
variant(
    "deputy_has_ended",
    on_stdio,
    calls=[0, -120, 60, 0, -10, 60, 0],
    answered=[0, 2, 3, 5, 6],
    threads=3,
    check=lambda host: host.answered[3] < 129 and host.answered[6] < 145,
)
# The answers of a fast and a slow handler cannot be sent: their threads go on.
variant("handler_fails", on_stdio, calls=[0, 1, -3, 0, 0], answered=[3, 4], fails={0, 1})
# ... of a handler from the queue: the next one is run.
variant(
    "queued_handler_fails",
    on_stdio,
    calls=[5, 1, 0],
    answered=[0, 2],
    threads=1,
    fails={1},
)
# A call comes when the only slow handler returns: it is run, here or there.
variant("slow_calls_wait", on_stdio, calls=[5, -4, 2, 0], answered=[0, 2, 3], threads=1)
# A call in the queue is cancelled when its turn comes: only those beside it are answered.
variant(
    "waiting_call_meets_cancel",
    on_stdio,
    calls=[5, 3, 0, -4, CANCEL],
    answered=[0, 2],
    threads=1,
    check=lambda host: not host.pipe.running,
)
# The client leaves while handlers run: serve() returns when all is answered.
variant(
    "answer_meets_end",
    on_stdio,
    calls=[9, 2],
    answered=[0, 1],
    reads=2,
    check=lambda host: host.returned < 14,
)
# stop() comes while handlers run: the others have a little time, or are cancelled.
variant(
    "answer_meets_stop",
    on_stdio,
    calls=[1, 2, 60, -99],
    answered=[0, 1],
    stops=1,
    after=2,
    check=lambda host: host.returned < 20,
)
# stop() comes twice while serve() begins to wait: it returns at once.
variant(
    "stop_meets_stop",
    on_stdio,
    calls=[-99],
    answered=[],
    stops=2,
    check=lambda host: host.returned < 1,
)
# Now and then no thread can be started: the reader, deputies. The next one is.
variant(
    "threads_are_refused",
    on_stdio,
    calls=[5, 60, 0, 60, 0, -99, 5, 0],
    answered=[0, 1, 2, 3, 4, 6, 7],
    threads=3,
    refused={2, 3, 6, 8},
    check=lambda host: host.answered[2] < 9,
)
# None can be started: each request is answered, a subscription at the end.
variant(
    "no_thread_starts",
    on_stdio,
    calls=[3, "listen", 0, 2],
    answered=[0, 1, 2, 3],
    refused=range(10**6),
)


# ---- planted bugs: the model that must find them, and the text of a function that is
# changed, `Class.method: old -> new ;; old -> new`
PLANTED = """
two_writers
    Answer.flush: with self.lock: -> if True:
    Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.locked(): ;; self.lock.release() -> pass
reader_is_replaced
    Outbox.detach: if self.reader is reader: -> if True:
    Outbox.take: self.reader is not reader or -> False or
reader_leaves
    Outbox.take: self.place += 1 -> pass
    Outbox.attach: min(after + 1, following) -> following
    Outbox.attach: self.place = place -> self.place = self.first
reader_makes_way
    Outbox.attach: self._moved.notify_all() -> pass
    Outbox.end: self._moved.notify_all() -> pass
    Outbox.is_done: self.reader is not reader or -> False or
stream_is_closed
    SessionAnswer.disconnect: outbox.detach(reader) -> pass
changes_meet
    Outbox.add: self._moved.notify_all() -> pass
    Outbox.add_change: with self._moved: -> if True:
    Outbox.add_change: if line not in self._waiting(): -> if True:
call_meets_hang_up
    Answer._lose_client: self.peer.cancel_all() -> pass
listener_meets_hang_up
    Answer.check: self._lose_client() -> pass
hang_up_meets_end
    Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.locked(): ;; self.lock.release() -> pass
session_meets_hang_up
    Answer._lose_client: self.outbox.detach(self) -> pass
listener_meets_close
    Answer.__call__: elif not self.listens: -> elif True:
    Subscription.end: ctx.server.listeners.pop(self, None) -> pass
opening_meets_close
    Subscription.begin: if ctx.peer.closed: -> if False:
    Endpoint.run_handler: if self.closed and is_post: -> if False:
    HttpSession.register: if self.endpoint.closed: -> if False:
listener_meets_cancel
    Subscription.begin: ctx._wake_with(self.end) -> pass
listener_hears_all
    Subscription.begin: ctx.server.listeners[self] = None -> pass ;; ctx._subscription = self -> ctx._subscription = self; ctx.server.listeners[self] = None
    Subscription.begin: with ctx._sending: -> if True:
session_meets_close
    LegacyContext._initialize: if peer.closed: -> if False:
    Peer.close: self.session.server.listeners.pop(self.session, None) -> pass
sessions_meet
    LegacyContext._initialize: with peer.opening: -> if True:
response_meets_cancel
    Context._become: return steps[state] -> return True
    Context._become: with self._ending: -> if True:
    Context._wake_with: wake() -> pass
    Context._wake_with: with self._ending: -> if True:
run_meets_cancel
    RunHook.run_next: if not outcome.set_running_or_notify_cancel(): -> if False:
    RunHook.call: elif time.monotonic() > deadline and outcome.cancel(): -> elif time.monotonic() > deadline:
question_meets_all
    take_response: peer.questions.pop( -> peer.questions.get(
question_meets_cancel
    LegacyContext._asking: self._wake_with(partial(fail_questions, peer, idents, "it was cancelled")) -> pass
question_meets_close
    LegacyContext._asking: if peer.closed: -> if False:
    Peer.close: fail_questions(self, list(self.questions), "the session is closing") -> pass
question_meets_its_limit
    LegacyContext._asking: peer.questions.pop( -> peer.questions.get(
answers_meet
    LegacyContext._asking: with self._ending: -> if True:
question_meets_drain
    Endpoint.close: if is_second or not peer.questions: -> if True:
question_meets_the_end
    Endpoint.close: if is_second or not peer.questions: -> if not peer.questions:
sessions_make_way
    Sessions.add: with self._lock: -> if True:
    Sessions.add: if evicted: -> if False:
sessions_expire
    Endpoint._check: with self.lock: -> if True:
    Endpoint._check: self._checks = False -> pass
    Sessions.add: self._endpoint.begin_checks() -> pass
session_meets_its_end
    HttpSession.close: self.settle() -> pass
    SessionAnswer.finish: self.peer.settle() -> pass
    SessionAnswer.finish: self.peer.endpoint.sessions.keep(self.outbox, ASK_SECONDS) -> pass
session_meets_cancel
    Answer.finish: outbox.end() -> pass
streams_leave_room
    Endpoint.run_handler: with self.lock: -> if True:
connections
    HttpServer.admit: with self.lock: -> if True:
    HttpServer.admit: step == Step.SERVES or ( -> (
    HttpServer.step: if sock not in self.steps: -> if False:
deputy_takes_over
    Pipe._run: return is_reader -> return True
    Pipe._run: if is_reader: -> if False:
    Pipe._run: if is_reader: -> if True:
    Pipe._run: with self._lock: -> if True:
    Pipe._stand_by: with self._lock: -> if True:
    Pipe._stand_by: self._has_deputy = False -> pass
deputy_has_ended
    Pipe._stand_by: self._has_deputy = False -> pass
handler_fails
    attempt: except Exception as problem: -> except ZeroDivisionError as problem:
queued_handler_fails
    attempt: except Exception as problem: -> except ZeroDivisionError as problem:
slow_calls_wait
    Pipe._run: if self._slow >= MAX_THREADS: -> if False:
    Pipe._run: with self._lock: -> if True:
    Pipe._read: self._empty_queue() -> pass
    Pipe._empty_queue: self._slow -= 1 -> pass
    Pipe._empty_queue: with self._lock: -> if True:
waiting_call_meets_cancel
    Context._finish: if not self._become("answered"): -> if False:
answer_meets_end
    Pipe._is_busy: bool(self._slow or self._handler) -> bool(self.running)
    Pipe._is_busy: bool(self._slow or self._handler) -> False
answer_meets_stop
    Pipe._finish: self.cancel_all() -> pass
stop_meets_stop
    Pipe.stop: self._deadline = min( -> later = min( ;; self._serving.release() -> self._serving.release(); self._deadline = later
threads_are_refused
    Pipe._run: self._has_deputy = spawn("mcp-deputy", stand_by) -> spawn("mcp-deputy", stand_by); self._has_deputy = True
    Pipe.serve: while self._deadline == inf: -> while False:
no_thread_starts
    Pipe.serve: self._read() -> pass
    run_aside: work() -> pass
"""


# ---- the runner
def play(module: Any, name: str, plan: dict[int, int]) -> World:
    """Run one schedule of a model."""
    global world
    world = World(module, plan)
    try:
        check = MODELS[name](world)
    except Exception as problem:  # a name that the module no longer has, for example
        world.over.set()
        world.fail(f"the model cannot be made: {problem!r:.200}")
        check = lambda: False  # noqa: E731
    if not world.failure:
        world.run(check)
    return world


def plans(choices: list[int]) -> Iterator[dict[int, int]]:
    """Make plans: each with one step, then others, with several, for ever."""
    ones = [
        {step: which}
        for step, count in enumerate(choices, 1)
        for which in range(1, count + 1)
    ]
    lot = random.Random(1)
    lot.shuffle(ones)
    yield from ones
    while ones:
        plan: dict[int, int] = {}
        for one in lot.sample(ones, min(len(ones), lot.choice((2, 2, 3, 5)))):
            plan.update(one)
        yield plan


def explore(module: Any, name: str, seconds: float) -> tuple[int, str, dict[int, int]]:
    """Try plans until one fails or time is up; return their number, and the failure."""
    end = time.monotonic() + seconds
    first = play(module, name, {})
    if first.failure:
        return 1, first.failure, {}
    tried = 1
    for plan in plans(first.choices):
        if time.monotonic() > end:
            break
        tried += 1
        if failure := play(module, name, plan).failure:
            return tried, failure, plan
    return tried, "", {}


def check_models(seconds: float) -> set[str]:
    """Explore each model for so long; return those that fail."""
    bad = set()
    for name in MODELS:
        tried, failure, plan = explore(load(), name, seconds)
        print(f"schedules: {name}: {tried} schedules", flush=True)
        if failure:
            bad.add(name)
            print(f"    FAILS: {failure}\n    plan: {name} '{json.dumps(plan)}'")
    return bad


def check_planted(seconds: float, bad: set[str]) -> int:
    """Look for each planted bug for so long; return how many are not found. A model
    that fails without it shows nothing."""
    found, total, name = 0, 0, ""
    for line in PLANTED.strip().split("\n"):
        row = line.strip()
        if line == row:
            name = row
            continue
        total += 1
        try:
            module = load(row)
        except CannotPlant as problem:
            print(f"schedules: cannot plant: {name}: {problem}")
            continue
        tried, failure, _ = explore(module, name, seconds)
        if name in bad or not failure:
            what = "not looked for" if name in bad else "not found"
            print(f"schedules: {what}: {name}: {row}", flush=True)
            continue
        found += 1
        if os.environ.get("SCHEDULES_SHOW"):
            print(f"{name}: {row}: {tried}: {failure}", flush=True)
    print(f"schedules: {found} of {total} planted bugs found")
    return total - found


def main(words: list[str]) -> int:
    """Explore the models, then show that planted bugs are found."""
    seconds = float(words[0]) if words else 90.0
    if len(words) == 3:
        plan = {int(step): which for step, which in json.loads(words[2]).items()}
        print(play(load(), words[1], plan).failure or "nothing goes wrong")
        return 0
    logging.disable()  # of Futures that a planted bug settles twice
    began = time.monotonic()
    bad = check_models(seconds * 0.7 / len(MODELS))
    missed = check_planted(max(seconds / 10, 2), bad)
    print(f"schedules: {time.monotonic() - began:.0f} s")
    return 1 if bad or missed else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
