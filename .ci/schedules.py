#!/usr/bin/env python3
"""Try many orders of the threads that meet: `python3 .ci/schedules.py [SECONDS]`.

A *model* is a function that starts a few real threads, which use the module, and returns
a check for the end. One thread runs at a time. Another may go on at every lock, wait and
sleep, and at every line that uses what changes later; time passes only when all wait. A
*plan*, {step: which other thread}, says where another one goes on. Tried are the empty
plan, each plan with one step, and others at random, while there is time. A plan that
fails is printed: `.ci/schedules.py 0 MODEL PLAN` replays it.

To add a model, write a function like those below, under @model. It gets a World, whose
task() and when() make threads, and until() and sleep() let them wait. Then plant bugs
that it has to find: each row of PLANTED, at the end, changes the text of one function.
If that text is gone, the bug "cannot be planted": change the row as the module was.

Only the lock, the clock and the start of threads are ours: conditions, events, futures
are the library's, on our locks. Private names of the module are in PLANTED only.
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
import socket  # noqa: F401: it needs `select`, which load() takes away
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
Act = Callable[[], Any]


# ---- the scheduler
class Stop(BaseException):
    """Ends a thread whose schedule is over."""


class World:
    """One schedule: a module, the threads that use it, and the time.

    `plan` says which other thread goes on, by step; `choices` how many could, by step.
    `refused` are threads of the module that cannot be started, by number.
    """

    def __init__(self, mcp: Any, plan: dict[int, int]) -> None:
        self.mcp, self.plan, self.choices = mcp, plan, []  # type: Any, Any, list[int]
        self.starts, self.now, self.refused = 0, 0.0, ()  # type: int, float, Any
        self.threads: list[Thread] = []
        self.failure, self.over = "", threading.Event()

    # ---- for models
    def task(self, act: Act) -> None:
        """Have a thread do something."""
        Thread(act, f"task {len(self.threads)}").begin()

    def when(self, test: Act, act: Act) -> None:
        """Have a thread do something once a test holds."""
        self.task(lambda: (wait(test), act()))

    def until(self, test: Act, seconds: float = inf) -> bool:
        """Wait until a test holds; False: it does not after so many seconds."""
        return wait(test, seconds)

    def sleep(self, seconds: float = 1 / 1024) -> None:
        """Let all others go on, as far as they can."""
        wait(lambda: False, seconds)

    def fail(self, what: str) -> None:
        """Note what goes wrong; the first thing counts."""
        self.failure = self.failure or what

    def passed(self) -> float:
        """Return when the last task of the model has ended."""
        return max(one.ended for one in self.threads if one.name[:4] != "mcp-")

    # ---- for the runner
    def run(self, check: Act) -> None:
        """Run all threads to their end."""
        self.switch(None)
        if not self.over.wait(20):
            self.fail("the scheduler itself hangs")
        for thread in self.threads:
            thread.turn.release()
        for thread in self.threads:
            threading.Thread.join(thread, 5)
        if not self.failure and not check():
            self.fail("the condition does not hold in the end")

    def switch(self, me: Thread | None) -> None:
        """Let the thread go on whose turn it is; `me` is the one that runs."""
        if self.over.is_set():  # in a `finally` of what is being stopped
            raise Stop
        alive = [one for one in self.threads if not one.ended]
        ready = [one for one in alive if one.is_ready()]
        due = min((one.until for one in alive), default=inf)
        if not ready and due < inf:
            self.now = max(self.now, due)
            ready = [one for one in alive if one.is_ready()]
        if not ready or len(self.choices) > MOST_STEPS:
            if alive:
                what = "livelock" if ready else "deadlock"
                self.fail(f"{what}: {', '.join(one.name for one in alive)} wait")
            self.over.set()
        else:
            chosen = me if me in ready else ready[0]
            others = [one for one in ready if one is not chosen]
            self.choices.append(len(others))
            which = self.plan.get(len(self.choices), 0)
            if which and others:
                chosen = others[(which - 1) % len(others)]
            if chosen is me:
                return
            assert chosen
            chosen.turn.release()
        if me and not me.ended:
            me.turn.acquire()
            if self.over.is_set():
                raise Stop


world: World  # the schedule that runs


class Thread(threading.Thread):
    """A real thread that runs when its turn has come; the module's threads, too."""

    def __init__(self, target: Any, name: str = "", daemon: bool = True) -> None:
        super().__init__(name=name, daemon=True)
        self.target, self.turn = target, threading.Semaphore(0)
        self.test: Act | None = None  # what it waits for
        self.until = inf  # ... but no longer
        self.ended = 0.0  # when, and a little: so it is never 0

    def start(self) -> None:
        world.starts += 1
        if world.starts in world.refused:
            raise RuntimeError("can't start new thread")
        self.begin()

    def begin(self) -> None:
        world.threads.append(self)
        super().start()

    def is_ready(self) -> Any:
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


def wait(test: Act, seconds: float = inf) -> bool:
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
    """Return the lines that use an attribute which changes outside of __init__(), and
    those of functions in functions, which may share a variable."""
    mutators = "append appendleft pop popleft add discard remove clear update".split()
    functions = [one for one in ast.walk(TREE) if isinstance(one, ast.FunctionDef)]
    nodes: list[Any] = []
    inner: list[Any] = []
    for function in functions:
        inside = list(ast.walk(function))[1:]
        nodes += inside if function.name != "__init__" else []
        inner += [one for one in inside if isinstance(one, ast.FunctionDef)]
    names = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = node.func.value if node.func.attr in mutators else None
        else:
            changed = node if isinstance(getattr(node, "ctx", 0), ast.Store) else None
        while isinstance(changed, ast.Subscript):
            changed = changed.value
        if isinstance(changed, ast.Attribute):
            names.add(changed.attr)
    lines = {one.lineno for one in nodes if getattr(one, "attr", "") in names}
    return lines.union(*(range(one.lineno, one.end_lineno + 1) for one in inner))


LINES = changing_lines()


class Lock:
    """What the module finds as threading.Lock."""

    owner: Any = None

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


# The library's module `threading`, made again on our locks, clock and threads.
THREADING: Any = types.ModuleType("threading")
exec(compile(Path(str(threading.__file__)).read_text(), "", "exec"), vars(THREADING))
THREADING.Lock = THREADING._allocate_lock = Lock
THREADING._CRLock = None  # so RLock is the one in Python
THREADING._time = lambda: world.now
THREADING.Thread = Thread
THREADING.enumerate = lambda: [one for one in world.threads if not one.ended]
CLOCK: Any = types.ModuleType("time")
vars(CLOCK).update(vars(time))
CLOCK.monotonic = THREADING._time
CLOCK.sleep = lambda seconds: wait(lambda: False, seconds)
SOUND = compile(TREE, str(SOURCE), "exec")


# ---- the module, and planting
def load(row: str = "") -> Any:
    """Make the module, with our threads and clock in it, and the bug of a row."""
    module: Any = types.ModuleType("mcp_ref")
    module.__file__ = str(SOURCE)
    sys.modules["mcp_ref"] = module
    exec(SOUND, vars(module))
    # Futures are the library's own, and wait as the module does.
    vars(concurrent.futures._base)["threading"] = THREADING
    sys.modules["select"] = types.ModuleType("select")  # no poll(), as on Windows
    module.threading, module.time = THREADING, CLOCK
    module.log = lambda entry: None
    module.CHECK_SECONDS = 0.25  # exactly, so that things happen at once
    if row:
        plant(module, row)
    return module


def plant(module: Any, row: str) -> None:
    """Make one function again, with another text; LookupError: it is not as expected."""
    path, _, changes = row.partition(": ")
    owner, found = module, TREE  # type: Any, Any
    for name in path.split("."):
        inside = [one for one in found.body if getattr(one, "name", "") == name]
        if not inside:
            raise LookupError(f"there is no {path}")
        owner, found = getattr(module, getattr(found, "name", ""), module), inside[-1]
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    text = "\n".join(TEXT.split("\n")[first - 1 : found.end_lineno])
    for change in changes.split(" ;; "):
        old, _, new = change.partition(" -> ")
        if old not in text:
            raise LookupError(f"{path} has no `{old}`")
        text = text.replace(old, new)
    # super() finds the class under the name __class__; lines keep their numbers.
    text = textwrap.indent(textwrap.dedent(text), "    ")
    text = "\n" * (first - 2) + f"def make(__class__):\n{text}\n    return {found.name}"
    flags = __future__.annotations.compiler_flag
    exec(compile(text, str(SOURCE), "exec", flags), vars(module))
    setattr(owner, found.name, vars(module).pop("make")(owner))


# ---- what models are made of
MODELS: dict[str, Callable[[World], Act]] = {}


def model(make: Callable[..., Act], name: str = "", **options: Any) -> Any:
    """Register a model; one with options has several names."""
    MODELS[name or make.__name__] = partial(make, **options)
    return make


def rpc(method: str, ident: int | None = None, **params: Any) -> dict[str, Any]:
    """Make a legacy message; a request if it has an id."""
    made = {"jsonrpc": "2.0", "method": method, "params": params}
    return made if ident is None else {**made, "id": ident}


def modern(w: World, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    """Make a modern request; a call of the tool if nothing else is given."""
    meta = {**w.mcp.meta_for(w.mcp.versions()[0]), "progressToken": 1}
    return rpc(method, 1, **(params or {"name": "tool"}), _meta=meta)


def listening(w: World) -> dict[str, Any]:
    """Make a request that listens for changes of tools."""
    return modern(w, "subscriptions/listen", notifications={"toolsListChanged": True})


CALL = rpc("tools/call", 1, name="tool", _meta={"progressToken": 1})
CANCEL = rpc("notifications/cancelled", requestId=1)
READY = rpc("notifications/initialized")
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}
OPENING = rpc("initialize", 0, clientInfo={}, capabilities={"roots": {}})
OPENING["params"]["protocolVersion"] = "2025-06-18"


def server_with(w: World, tool: Any) -> Any:
    """Make a server with a tool, which is a function of the Context."""
    server = w.mcp.Server("s")
    tool.__annotations__ = {"ctx": w.mcp.Context, "return": str}
    server.tool(tool, name="tool")
    return server


class Pair:
    """A server, and a client that is next to it; perhaps in a session."""

    def __init__(self, w: World, tool: Any = lambda ctx: "x", opens: bool = False):
        self.server = server_with(w, tool)
        self.sent: list[Any] = []  # to the client
        self.peer = w.mcp.Peer(self.sent.append)
        if opens:
            self.client(OPENING)
            self.client(READY)
            self.sent.clear()

    def client(self, message: Any) -> None:
        """Send a message to the server."""
        self.server.handle(message, self.sent.append, peer=self.peer)


class Wire:
    """An Exchange: one request over HTTP, and what its client reads.

        is_slow      everybody else goes on while something is written
        fails_after  so many writes, the client has gone
        has_left     the client has gone, but what is written seems to arrive
        is_over      its thread reads the next request
    """

    w: World
    is_slow = has_left = is_over = False
    fails_after = inf
    text, hangs, ends, status = "", 0, 0, 0
    user: Any = None

    def use(self) -> None:
        """Let others go on in the middle of something that one thread does."""
        if self.user or self.ends or self.is_over:
            self.w.fail("two use an exchange at once, or it has ended")
        self.user = threading.current_thread()
        self.w.sleep() if self.is_slow else self.w.until(lambda: True)
        self.user = None
        if self.is_over:
            self.w.fail("the connection is used while the next request is read")

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        self.status, self.received = status, headers
        self.write(body or b"")

    def write(self, data: bytes) -> None:
        self.use()
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
        self.use()
        return self.has_left

    def hang_up(self) -> None:
        self.hangs += 1

    def numbers(self) -> list[int]:
        """Return the numbers of the events that have come."""
        return [int(one) for one in re.findall(r'"(?:n|progress)":(\d+)', self.text)]


class Web:
    """An endpoint, and its clients; with a version, they have a session."""

    def __init__(self, w: World, tool: Any = lambda ctx: "x", version: str = ""):
        # Sessions expire soon, so that the thread that checks them ends.
        w.mcp.SESSION_SECONDS = w.mcp.ASK_SECONDS = 3
        self.w, self.session, self.server = w, "", server_with(w, tool)
        self.endpoint = w.mcp.Endpoint(self.server)
        if version:
            params = {**OPENING["params"], "protocolVersion": version}
            wire = self.send({**OPENING, "params": params})
            self.session = wire.received["Mcp-Session-Id"]
            self.send(READY)

    def wire(self, verb: str, said: Any = None, **options: Any) -> Any:
        """Make a request over HTTP; `options` are fields of the Wire."""
        headers = {"content-type": "application/json"}
        if said and "/protocolVersion" in str(said):
            headers["mcp-protocol-version"] = self.w.mcp.versions()[0]
            headers["mcp-method"] = said["method"]
            headers["mcp-name"] = said["params"].get("name", "")
        elif self.session:
            headers["mcp-session-id"] = self.session
        made = type("OurExchange", (Wire, self.w.mcp.Exchange), options)
        wire: Any = made(verb, "/mcp", headers.items(), None)
        wire.w, wire.body = self.w, lambda: json.dumps(said).encode()
        return wire

    def serve(self, wire: Any) -> Any:
        """Serve a request on this thread; return it."""
        self.endpoint.serve(wire)
        wire.is_over = True
        return wire

    def send(self, said: Any) -> Any:
        """POST a message here; return the wire."""
        return self.serve(self.wire("POST", said))

    def call(self, said: Any, **options: Any) -> Any:
        """Have a task POST a message; return the wire."""
        wire = self.wire("POST", said, **options)
        self.w.task(lambda: self.serve(wire))
        return wire

    def delete(self) -> None:
        """End the session."""
        self.serve(self.wire("DELETE"))

    def is_empty(self) -> bool:
        """Tell whether nothing is kept, for nobody."""
        is_empty: bool = self.endpoint.sessions.is_empty()
        return is_empty and not self.endpoint.answers and not self.server.listeners


# ---- models of answers: their writers, and readers that come back
@model
def two_writers(w: World) -> Act:
    """A call emits while comments are due: one thread writes at a time."""
    w.mcp.KEEP_ALIVE_SECONDS, w.mcp.CHECK_SECONDS = -1, 1 / 1024
    web = Web(w, lambda ctx: str([ctx.progress(number) for number in range(3)]))
    wire = web.call(modern(w), is_slow=True)
    return lambda: wire.numbers() == [0, 1, 2] and '"result"' in wire.text


def resuming(w: World, first: Any, second: Any, closes: bool = False) -> Act:
    """A call emits to a first connection; its client has seen one event, and resumes
    the stream on a second one: it gets everything else, in order, and one end."""

    def tool(ctx: Any) -> str:
        for number in range(4):
            ctx.progress(number)
            if closes and not number:
                ctx.close_stream()
        w.until(lambda: two.status, 5)
        return "x"

    def resume() -> None:
        two.headers["last-event-id"] = re.findall("id: (.*)", one.text)[0]
        web.serve(two)

    web = Web(w, tool, "2025-11-25" if closes else "2025-06-18")
    one, two = web.call(CALL, **first), web.wire("GET", **second)
    w.when(lambda: one.ends if closes else one.numbers(), resume)
    # When the stream is closed, the event that was seen has no number.
    seen = [0, 1, 2, 3] if closes else [1, 2, 3]
    return lambda: w.passed() < 1 and two.numbers() == seen and two.ends == 1


model(resuming, "reader_is_replaced", first={}, second={"is_slow": True})
model(resuming, "reader_leaves", first={"fails_after": 3}, second={})
model(resuming, "stream_is_closed", first={}, second={}, closes=True)


@model
def reader_makes_way(w: World) -> Act:
    """A GET takes over a session's stream: the answer of the other one ends at once."""
    web = Web(w, version="2025-06-18")
    first, second = web.wire("GET"), web.wire("GET")
    w.task(lambda: web.serve(first))
    w.when(lambda: first.status, lambda: web.serve(second))
    w.when(lambda: first.ends, web.delete)
    return lambda: w.passed() < 0.1 and (first.ends, second.ends) == (1, 1)


@model
def changes_meet(w: World) -> Act:
    """Two threads tell a session of the same change, which is told once; then of others,
    while its GET sends them, and wait for nobody."""
    web, done = Web(w, version="2025-06-18"), []  # type: Web, list[int]
    wire = web.wire("GET", is_slow=True)

    def change(number: int) -> None:
        began = w.now
        web.server.notify("notifications/x", {"n": number})
        done.append(number)
        if w.now > began:
            w.fail("a change waits for a client")

    for _ in "ab":
        w.task(lambda: change(9))
    w.when(lambda: len(done) == 2, lambda: web.serve(wire))
    w.when(lambda: wire.numbers(), lambda: change(0))
    w.when(lambda: wire.numbers(), lambda: (w.sleep(1 / 64), change(1)))
    w.when(lambda: {0, 1} <= set(wire.numbers()), web.delete)
    return lambda: sorted(wire.numbers()) == [0, 1, 9] and w.passed() < 1


@model
def clients_hang_up(w: World) -> Act:
    """Clients hang up while their calls send events, or while they listen: a modern
    request is cancelled soon; a call of a session goes on without a reader."""

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        w.until(lambda: all(one.hangs for one in wires), 5)
        w.sleep()
        told.append((ctx.cancelled, any(one.outbox.reader for one in answers)))
        return "x"

    def leave(wire: Any) -> None:
        w.until(lambda: "data:" in wire.text)
        wire.has_left = True

    told: list[Any] = []
    web = Web(w, tool, "2025-06-18")
    answers = web.endpoint.answers
    wires = [web.call(said) for said in (CALL, modern(w), listening(w))]
    for wire in wires:
        w.task(partial(leave, wire))
    return lambda: sorted(told) == [(False, False), (True, False)] and web.is_empty()


@model
def hang_up_meets_end(w: World) -> Act:
    """A hang-up is noticed when the handler ends: the call is cancelled or answered."""

    def tool(ctx: Any) -> str:
        ctx.on_cancel(lambda: told.append(1))
        w.sleep(w.mcp.CHECK_SECONDS)
        return "x"

    told: list[int] = []
    web = Web(w, tool)
    wire = web.call(modern(w), has_left=True)
    return lambda: len(told) + ("result" in wire.text) == 1 and web.is_empty()


# ---- ... of subscriptions and sessions: how they begin, how they end
@model
def listener_meets_close(w: World) -> Act:
    """A subscription ends while something changes: acknowledged first, one response
    last, and it is no listener any more."""
    web = Web(w)
    wire = web.call(listening(w), is_slow=True)

    def close() -> None:
        web.server.changed("tools")
        began = w.now
        web.endpoint.close()
        if w.now > began:
            w.fail("close() waits for a client")

    w.task(lambda: web.server.changed("tools"))
    w.when(lambda: web.server.listeners, close)
    order = '(?s).*acknowledged.*list_changed[^\n]*\n.*"result"[^\n]*\n*'
    return lambda: (
        re.fullmatch(order, wire.text) and w.passed() < 1 and web.is_empty()
    )


@model
def opening_meets_close(w: World) -> Act:
    """An endpoint closes while a session opens and a subscription begins: none is left,
    and each is answered."""
    web = Web(w)
    wires = [web.call(said) for said in (OPENING, listening(w))]
    w.task(web.endpoint.close)
    return lambda: all("result" in one.text for one in wires) and web.is_empty()


@model
def listener_meets_cancel(w: World) -> Act:
    """A subscription is cancelled while it begins: it hears nothing afterwards, and has
    no response."""
    pair = Pair(w)
    w.task(lambda: pair.client(listening(w)))
    w.when(
        lambda: pair.peer.running,
        lambda: (pair.client(CANCEL), pair.server.changed("tools")),
    )
    return lambda: (
        not (pair.server.listeners or pair.peer.running)
        and all("acknowledged" in one.get("method", "") for one in pair.sent)
    )


@model
def listener_hears_all(w: World) -> Act:
    """Something changes when the client has read the acknowledgement, and something
    before: it hears of the former, and of neither before the acknowledgement."""
    pair = Pair(w)

    def change() -> None:
        count = len(pair.sent)
        pair.server.changed("tools")
        if len(pair.sent) == count:
            w.fail("a change after the acknowledgement is lost")

    w.task(lambda: pair.client(listening(w)))
    w.task(lambda: pair.server.changed("tools"))
    w.when(lambda: pair.sent, change)
    return lambda: "acknowledged" in pair.sent[0]["method"]


def sessions_open(w: World, closes: bool) -> Act:
    """Two requests open a session of one peer: one is left, and listens; but not if the
    client leaves meanwhile."""
    pair = Pair(w)
    for _ in "ab":
        w.task(lambda: pair.client(OPENING))
    if closes:
        w.task(pair.peer.close)
    return lambda: (
        list(pair.server.listeners) == ([] if closes else [pair.peer.session])
        and len(pair.sent) == 2
    )


model(sessions_open, "sessions_meet", closes=False)
model(sessions_open, "session_meets_close", closes=True)


@model
def sessions_make_way(w: World) -> Act:
    """Sessions open where there is room for one: never two; one that goes is closed."""
    w.mcp.MAX_SESSIONS = 1
    web, left = Web(w), []  # type: Web, list[int]

    def open_one() -> None:
        web.send(OPENING)
        left.append(len(web.server.listeners))
        if len(web.endpoint.sessions.all()) > 1:
            w.fail("too many sessions")

    for _ in "abc":
        w.task(open_one)
    return lambda: left[-1] == 1 and web.is_empty()


@model
def sessions_expire(w: World) -> Act:
    """A session opens when the last one has expired, and mcp-check ends: the session
    expires, too, though no client comes."""
    web = Web(w)
    w.mcp.SESSION_SECONDS = 1
    w.task(lambda: web.send(OPENING))
    w.task(lambda: (w.sleep(1.25), web.send(OPENING)))  # when mcp-check looks
    return web.is_empty


def session_ends(w: World, cancels: bool) -> Act:
    """A session ends while a call of it runs, or is cancelled, and while its own stream
    is listened to: both streams end, and nothing is kept for ever."""

    def tool(ctx: Any) -> str:
        ctx.progress(0)
        w.until(lambda: ctx.cancelled, 0.25)  # when mcp-check looks
        return "x"

    web = Web(w, tool, "2025-06-18")
    calls, listens = web.call(CALL), web.wire("GET")
    w.task(lambda: web.serve(listens))
    w.when(calls.numbers, lambda: (cancels and web.send(CANCEL), web.delete()))
    return lambda: (
        w.passed() < 1
        and (cancels or '"result"' in calls.text)
        and (listens.ends or listens.status == 404)
        and calls.ends == 1
        and web.is_empty()
    )


model(session_ends, "session_meets_its_end", cancels=False)
model(session_ends, "session_meets_cancel", cancels=True)


# ---- ... of requests: how they end, and their questions
@model
def response_meets_cancel(w: World) -> Act:
    """A request is cancelled, twice, while it runs and responds: it has a response, or
    its on_cancel() function is called, once."""
    ran, told = [], []  # type: list[int], list[int]

    def tool(ctx: Any) -> str:
        ran.append(1)
        ctx.on_cancel(lambda: told.append(1))
        return "x"

    pair = Pair(w, tool)
    for said in (modern(w), CANCEL, CANCEL):
        w.task(partial(pair.client, said))
    return lambda: len(pair.sent) + len(told) == len(ran) and not pair.peer.running


@model
def run_meets_cancel(w: World) -> Act:
    """The thread of `run=` comes to a call when it is cancelled, or given up: the call
    runs and is answered, or does not run."""
    w.mcp.RUN_SECONDS = 1
    ran, jobs = [], []  # type: list[int], list[Any]
    pair = Pair(w, lambda ctx: str(ran.append(1)))
    pair.server.hook.put = jobs.append

    def when_given_up(act: Act) -> None:
        for _ in range(11):  # it is looked at every 0.1 s
            w.sleep(0.1)
        act()

    w.task(lambda: pair.client(modern(w)))
    w.task(lambda: when_given_up(lambda: [job() for job in jobs]))
    w.task(lambda: when_given_up(lambda: pair.client(CANCEL)))

    def check() -> bool:
        is_result = any("result" in one for one in pair.sent)
        is_right = bool(ran) if is_result else not (pair.sent and ran)
        return is_right and len(pair.sent) <= 1 and not pair.peer.running

    return check


def asking(w: World, ask: Any = lambda ctx: ctx.list_roots()) -> tuple[Any, list[str]]:
    """Make a tool that asks; return what it gets, too."""
    got: list[str] = []

    def tool(ctx: Any) -> str:
        try:
            got.append(str(ask(ctx)))
        except w.mcp.AskError as problem:
            got.append(str(problem))
        return "x"

    w.mcp.ASK_SECONDS = 5
    return tool, got


def question(
    w: World, answers: float = inf, cancels: bool = False, closes: bool = False
) -> Act:
    """A call asks; its client answers after some seconds, cancels it, or leaves: one of
    these ends the question, and nobody waits for another."""
    tool, got = asking(w)
    pair = Pair(w, tool, opens=True)

    def gives_up() -> bool:
        return any("cancelled" in one.get("method", "") for one in pair.sent)

    def answer() -> None:
        w.sleep(answers)
        if not gives_up():  # or nobody waits for it
            pair.client(ANSWER)

    w.task(lambda: pair.client(CALL))
    if answers < inf:
        w.when(lambda: pair.sent or got, answer)
    if cancels:
        w.when(lambda: pair.peer.running or got, lambda: pair.client(CANCEL))
    if closes:
        w.when(lambda: pair.peer.running or got, pair.peer.close)

    def check() -> bool:
        responses = sum("result" in one for one in pair.sent)
        return (
            (responses == len(got) == 1 or (cancels and not responses))
            and (w.passed() < 5 or 0 < answers < inf)
            and not (gives_up() and got == ["[]"])
            and not (pair.peer.questions or pair.peer.running)
        )

    return check


model(question, "question_meets_all", answers=0, cancels=True, closes=True)
model(question, "question_meets_cancel", cancels=True)
model(question, "question_meets_close", closes=True)
model(question, "question_meets_its_limit", answers=5)


@model
def answers_meet(w: World) -> Act:
    """A call asks two questions, and both answers come at once: it gets both."""
    both = {"a": w.mcp.roots(), "b": w.mcp.roots()}
    tool, got = asking(w, lambda ctx: ctx.ask(both))
    pair = Pair(w, tool, opens=True)
    w.task(lambda: pair.client({**CALL, "id": 9}))
    for ident in (1, 2):
        answer = partial(pair.client, {**ANSWER, "id": ident})
        w.when(lambda: len(pair.sent) == 2, answer)
    return lambda: got[0].count("roots") == 2 and w.passed() < 5


def draining(w: World, answers: bool) -> Act:
    """An endpoint closes while a call asks: an answer still counts, until it closes for
    the second time; then nobody waits for one."""
    tool, got = asking(w)
    web = Web(w, tool, "2025-06-18")
    wire = web.call(CALL)

    def close() -> None:
        web.endpoint.close()
        if answers:
            web.send(ANSWER)
        w.until(lambda: got, 1)
        web.endpoint.close()

    w.when(lambda: "roots/list" in wire.text, close)
    wanted = "[]" if answers else "the session is closing"
    return lambda: got == [wanted] and w.passed() < 2 and web.is_empty()


model(draining, "question_meets_drain", answers=True)
model(draining, "question_meets_the_end", answers=False)


# ---- ... of room: for streams, for connections
@model
def streams_leave_room(w: World) -> Act:
    """Streams without an end come at once where there is room for one."""
    w.mcp.MAX_CONNECTIONS = 2
    web = Web(w)
    wires = [web.call(listening(w)) for _ in "abc"]
    w.when(lambda: all(one.status for one in wires), web.endpoint.close)
    return lambda: sorted(one.status for one in wires) == [200, 503, 503]


class Sock:
    """A connection's socket, which can be shut down."""

    is_shut = False

    def shutdown(self, how: int) -> None:
        self.is_shut = True


@model
def connections(w: World) -> Act:
    """Connections are accepted, evicted and closed: never too many, and a connection
    that has lost its place knows before it serves. An answer that is not read is cut,
    but not a handler."""
    w.mcp.MAX_CONNECTIONS, w.mcp.STALL_SECONDS = 1, 0
    httpd = w.mcp.http_server(w.mcp.Endpoint(w.mcp.Server("s")), "127.0.0.1", 0)
    httpd.socket.close()
    step, served = w.mcp.Step, []  # type: Any, list[int]

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
            assert not sock.is_shut, "a request that is served is cut"
            httpd.step(sock, step.SENDS, 30)
            httpd.step(sock, step.SERVES)
            httpd.leave(sock)
        except OSError:
            assert sock.is_shut, "it has a place"

    for _ in "ab":
        w.task(connect)
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

    def __init__(self, w: World, calls: list[Any], threads: int, **more: Any) -> None:
        w.mcp.MAX_THREADS, w.mcp.LEAVE_SECONDS = threads, 2
        w.mcp.BLINK_SECONDS = 1 / 64  # exactly, so that things happen at once
        w.mcp.os = types.ModuleType("os")
        vars(w.mcp.os).update(vars(os), fdopen=lambda file, *_, **__: file)
        self.w, self.threads, self.calls = w, threads, list(enumerate(calls))
        self.answered: dict[int, float] = {}
        self.fails, self.reads = more.get("fails", ()), more.get("reads", 0)
        self.returned, self.running, self.is_read = 0.0, 0, False
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
        assert not self.is_read, "two threads read"
        self.is_read = True
        self.w.until(lambda: True)
        place, call = self.calls.pop(0) if self.calls else (0, b"")
        if isinstance(call, (int, float)):
            if call < 0:
                self.w.sleep(-call / 64)
                call = b"\n"
            else:
                call = modern(self.w, name="do", arguments={"blinks": call})
                call["id"] = place
        self.is_read = False
        line: bytes = call if isinstance(call, bytes) else self.w.mcp.encode(call)
        return line

    def write(self, line: bytes) -> int:
        self.w.until(lambda: not self.reads, self.reads / 64)
        ident = json.loads(line).get("id")
        if ident in self.fails:
            raise ValueError("the file is closed")
        if self.returned or ident in self.answered:
            self.w.fail("an answer comes after the end, or for the second time")
        if ident is not None:
            self.answered[ident] = self.w.now * 64
        return len(line)


def on_stdio(w: World, calls: Any, answered: Any, check: Any, **more: Any) -> Act:
    """A host writes calls, and some of them are answered, once. stop() comes so often
    after so many answers; `refused` threads cannot be started."""
    w.refused = more.get("refused", ())
    calls = [listening(w) if one == "listen" else one for one in calls]
    host = Host(w, calls, more.pop("threads", 2), **more)
    for _ in range(more.get("stops", 0)):
        w.when(lambda: len(host.answered) == more.get("after", 0), host.pipe.stop)
    return lambda: sorted(host.answered) == answered and check(host)


# fmt: off
def stdio(name: str, calls: Any, answered: Any, check: Any, **more: Any) -> None:
    model(on_stdio, name, calls=calls, answered=answered, check=check, **more)


# A handler returns when the deputy takes over: a fast call is answered before slow ones.
stdio("deputy_takes_over", [1, 60, 0.1, 0, -99, 1, 0], [0, 1, 2, 3, 5, 6], lambda host: host.answered[3] < 3, threads=3)
# No deputy stands by when a slow call comes; and again, while another one is slow.
stdio("deputy_has_ended", [0, -120, 60, 0, -10, 60, 0], [0, 2, 3, 5, 6], lambda host: host.answered[3] < 129 and host.answered[6] < 145, threads=3)
# The answers of a fast and a slow handler, or of one from the queue, cannot be sent.
stdio("handler_fails", [0, 1, -3, 0, 0], [3, 4], bool, fails={0, 1})
stdio("queued_handler_fails", [5, 1, 0], [0, 2], bool, threads=1, fails={1})
# A call comes when the only slow handler returns: it is run, here or there.
stdio("slow_calls_wait", [5, -4, 2, 0], [0, 2, 3], bool, threads=1)
# A call in the queue is cancelled when its turn comes: those beside it are answered.
stdio("waiting_call_meets_cancel", [5, 3, 0, -4, CANCEL], [0, 2], lambda host: not host.pipe.running, threads=1)
# The client leaves while handlers run: serve() returns when all is answered.
stdio("answer_meets_end", [9, 2], [0, 1], lambda host: host.returned < 14, reads=2)
# stop() comes while handlers run: the others have a little time, or are cancelled.
stdio("answer_meets_stop", [1, 2, 60, -99], [0, 1], lambda host: host.returned < 20, stops=1, after=2)
# stop() comes twice while serve() begins to wait: it returns at once.
stdio("stop_meets_stop", [-99], [], lambda host: host.returned < 1, stops=2)
# Now and then no thread can be started: the reader, deputies. The next one is.
stdio("threads_are_refused", [5, 60, 0, 60, 0, -99, 5, 0], [0, 1, 2, 3, 4, 6, 7], lambda host: host.answered[2] < 9, threads=3, refused={2, 3, 6, 8})
# None can be started: each request is answered, a subscription at the end.
stdio("no_thread_starts", [3, "listen", 0, 2], [0, 1, 2, 3], bool, refused=range(99))
# fmt: on


# ---- planted bugs: the model that must find it, and the text of a function that changes:
# MODEL  Class.method: old -> new ;; old -> new
PLANTED = r"""
two_writers               Answer.flush: with self.lock: -> if True:
two_writers               Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.locked(): ;; self.lock.release() -> pass
hang_up_meets_end         Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.locked(): ;; self.lock.release() -> pass
reader_is_replaced        Outbox.detach: if self.reader is reader: -> if True:
reader_is_replaced        Outbox.take: self.reader is not reader or -> False or
reader_leaves             Outbox.take: self.place += 1 -> pass
reader_leaves             Outbox.attach: min(after + 1, following) -> following
reader_leaves             Outbox.attach: self.place = place -> self.place = self.first
stream_is_closed          SessionAnswer.disconnect: outbox.detach(reader) -> pass
reader_makes_way          Outbox.attach: self._moved.notify_all() -> pass
reader_makes_way          Outbox.end: self._moved.notify_all() -> pass
reader_makes_way          Outbox.is_done: self.reader is not reader or -> False or
changes_meet              Outbox.add: self._moved.notify_all() -> pass
changes_meet              Outbox.add_change: with self._moved: -> if True:
changes_meet              Outbox.add_change: if line not in self._waiting(): -> if True:
clients_hang_up           Answer.check: self._lose_client() -> pass
clients_hang_up           Answer._lose_client: self.peer.cancel_all() -> pass
clients_hang_up           Answer._lose_client: self.outbox.detach(self) -> pass
listener_meets_close      Answer.__call__: elif not self.listens: -> elif True:
listener_meets_close      Subscription.end: ctx.server.listeners.pop(self, None) -> pass
opening_meets_close       Subscription.begin: if ctx.peer.closed: -> if False:
opening_meets_close       Endpoint.run_handler: if self.closed and is_post: -> if False:
opening_meets_close       HttpSession.register: if self.endpoint.closed: -> if False:
listener_meets_cancel     Subscription.begin: ctx._wake_with(self.end) -> pass
listener_hears_all        Subscription.begin: ctx.server.listeners[self] = None -> pass ;; ctx._subscription = self -> ctx._subscription = self; ctx.server.listeners[self] = None
listener_hears_all        Subscription.begin: with ctx._sending: -> if True:
session_meets_close       LegacyContext._initialize: if peer.closed: -> if False:
session_meets_close       Peer.close: self.session.server.listeners.pop(self.session, None) -> pass
sessions_meet             LegacyContext._initialize: with peer.opening: -> if True:
sessions_make_way         Sessions.add: with self._lock: -> if True:
sessions_make_way         Sessions.add: if evicted: -> if False:
sessions_expire           Endpoint._check: with self.lock: -> if True:
sessions_expire           Endpoint._check: self._checks = False -> pass
sessions_expire           Sessions.add: self._endpoint.begin_checks() -> pass
session_meets_its_end     HttpSession.close: self.settle() -> pass
session_meets_its_end     SessionAnswer.finish: self.peer.settle() -> pass
session_meets_its_end     SessionAnswer.finish: self.peer.endpoint.sessions.keep(self.outbox, ASK_SECONDS) -> pass
session_meets_cancel      Answer.finish: outbox.end() -> pass
response_meets_cancel     Context._become: return steps[state] -> return True
response_meets_cancel     Context._become: with self._ending: -> if True:
response_meets_cancel     Context._wake_with: wake() -> pass
response_meets_cancel     Context._wake_with: with self._ending: -> if True:
run_meets_cancel          RunHook.run_next: if not outcome.set_running_or_notify_cancel(): -> if False:
run_meets_cancel          RunHook.call: elif time.monotonic() > deadline and outcome.cancel(): -> elif time.monotonic() > deadline:
question_meets_all        take_response: peer.questions.pop( -> peer.questions.get(
question_meets_cancel     LegacyContext._asking: self._wake_with(partial(fail_questions, peer, idents, "it was cancelled")) -> pass
question_meets_close      LegacyContext._asking: if peer.closed: -> if False:
question_meets_close      Peer.close: fail_questions(self, list(self.questions), "the session is closing") -> pass
question_meets_its_limit  LegacyContext._asking: peer.questions.pop( -> peer.questions.get(
answers_meet              LegacyContext._asking: with self._ending: -> if True:
question_meets_drain      Endpoint.close: if is_second or not peer.questions: -> if True:
question_meets_the_end    Endpoint.close: if is_second or not peer.questions: -> if not peer.questions:
streams_leave_room        Endpoint.run_handler: with self.lock: -> if True:
connections               HttpServer.admit: with self.lock: -> if True:
connections               HttpServer.admit: step == Step.SERVES or ( -> (
connections               HttpServer.step: if sock not in self.steps: -> if False:
deputy_takes_over         Pipe._run: return is_reader -> return True
deputy_takes_over         Pipe._run: if is_reader: -> if False:
deputy_takes_over         Pipe._run: if is_reader: -> if True:
deputy_takes_over         Pipe._run: with self._lock: -> if True:
deputy_takes_over         Pipe._stand_by: with self._lock: -> if True:
deputy_takes_over         Pipe._stand_by: self._has_deputy = False -> pass
deputy_has_ended          Pipe._stand_by: self._has_deputy = False -> pass
handler_fails             attempt: except Exception as problem: -> except ZeroDivisionError as problem:
queued_handler_fails      attempt: except Exception as problem: -> except ZeroDivisionError as problem:
slow_calls_wait           Pipe._run: if self._slow >= MAX_THREADS: -> if False:
slow_calls_wait           Pipe._run: with self._lock: -> if True:
slow_calls_wait           Pipe._read: self._empty_queue() -> pass
slow_calls_wait           Pipe._empty_queue: self._slow -= 1 -> pass
slow_calls_wait           Pipe._empty_queue: with self._lock: -> if True:
waiting_call_meets_cancel Context._finish: if not self._become("answered"): -> if False:
answer_meets_end          Pipe._is_busy: bool(self._slow or self._handler) -> bool(self.running)
answer_meets_end          Pipe._is_busy: bool(self._slow or self._handler) -> False
answer_meets_stop         Pipe._finish: self.cancel_all() -> pass
stop_meets_stop           Pipe.stop: self._deadline = min( -> later = min( ;; self._serving.release() -> self._serving.release()\n            self._deadline = later
threads_are_refused       Pipe._run: self._has_deputy = spawn("mcp-deputy", stand_by) -> spawn("mcp-deputy", stand_by); self._has_deputy = True
threads_are_refused       Pipe.serve: while self._deadline == inf: -> while False:
no_thread_starts          Pipe.serve: self._read() -> pass
no_thread_starts          run_aside: work() -> pass
"""


# ---- the runner
def play(module: Any, name: str, plan: dict[int, int]) -> World:
    """Run one schedule of a model."""
    global world
    world = World(module, plan)
    try:
        world.run(MODELS[name](world))
    except Exception as problem:  # a name that the module no longer has, for example
        world.over.set()
        world.fail(f"the model fails: {problem!r:.200}")
    return world


def plans(choices: list[int]) -> Iterator[dict[int, int]]:
    """Make plans: the empty one, those with one step, then others, for ever."""
    yield {}
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
    tried, end, choices = 0, time.monotonic() + seconds, []  # type: int, float, list[int]
    for tried, plan in enumerate(plans(choices), 1):
        played = play(module, name, plan)
        if played.failure:
            return tried, played.failure, plan
        choices += played.choices if tried == 1 else []
        if time.monotonic() > end:
            break
    return tried, "", {}


def check_planted(name: str, row: str, seconds: float) -> bool:
    """Tell whether a model finds a planted bug in so many seconds."""
    try:
        module = load(row)
    except LookupError as problem:
        print(f"schedules: cannot plant: {name}: {problem}", flush=True)
        return False
    failure = explore(module, name, seconds)[1]
    if not failure:
        print(f"schedules: not found: {name}: {row}", flush=True)
    return bool(failure)


def main(words: list[str]) -> int:
    """Explore the models, then show that planted bugs are found."""
    if len(words) == 3:
        plan = {int(step): which for step, which in json.loads(words[2]).items()}
        print(play(load(), words[1], plan).failure or "nothing goes wrong")
        return 0
    logging.disable()  # of Futures that a planted bug settles twice
    began, bad = time.monotonic(), 0
    seconds = float(words[0]) if words else 90.0
    for name in MODELS:
        tried, failure, plan = explore(load(), name, seconds * 0.7 / len(MODELS))
        print(f"schedules: {name}: {tried} schedules", flush=True)
        if failure:
            bad += 1
            print(f"    FAILS: {failure}\n    plan: {name} '{json.dumps(plan)}'")
    rows = [row.replace(r"\n", "\n").split(None, 1) for row in PLANTED.split("\n")]
    planted = [row for row in rows if row]
    found = sum(check_planted(*row, max(seconds / 10, 2)) for row in planted)
    print(f"schedules: {found} of {len(planted)} planted bugs found")
    print(f"schedules: {time.monotonic() - began:.0f} s")
    return 1 if bad or found < len(planted) else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
