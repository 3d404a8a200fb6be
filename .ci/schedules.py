#!/usr/bin/env python3
"""Try many orders of the threads that meet: `python3 .ci/schedules.py [SECONDS]`.

A *model* is a function that starts a few real threads, which use the module, and
returns a check for the end. One thread runs at a time. Another may go on at every lock,
wait and sleep, and at every line that uses what changes later; time passes only when
all wait. A *plan*, {step: which other thread}, says where another one goes on. Tried
are the empty plan, each plan with one step, and others at random, while there is time.
A plan that fails is printed: `.ci/schedules.py 0 MODEL PLAN` replays it.

To add a model, write a method of Models. It is a World, `w`: its task() and when() make
threads, and wait() and sleep() let them wait. Then plant bugs that the model must find:
each row of PLANTED, at the end, changes the text of one function of the module. If that
text is gone, the bug "cannot be planted": change the row as the module was changed.

Only the lock, the clock and the start of threads are ours: conditions, events, futures
are the library's, on our locks. Private names of the module are in PLANTED only.
"""

# mypy: disable-error-code=func-returns-value
from __future__ import annotations

import ast
import concurrent.futures._base
import json
import logging
import os
import random
import re
import socket  # noqa: F401
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
Act = Callable[[], Any]
world: World  # the schedule that runs


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
        self.is_choosing = False

    def task(self, act: Act) -> None:
        Thread(act, f"task {len(self.threads)}").start()

    def when(self, test: Act, act: Act) -> None:
        """Have a thread do something once a test holds."""
        self.task(lambda: (wait(test), act()))

    def at_once(self, act: Act) -> None:
        began = self.now
        act()
        if self.now > began:
            self.fail("something waits for a client")

    def fail(self, what: str) -> None:
        self.failure = self.failure or what

    def passed(self) -> float:
        """Return when the last task of the model has ended."""
        return max(one.ended for one in self.threads if one.name[:4] != "mcp-")

    def run(self, check: Act) -> None:
        """Run all threads to their end."""
        self.switch(None)
        if not self.over.wait(20):
            self.fail("the scheduler itself hangs")
        for thread in self.threads:
            thread.turn.release()
            threading.Thread.join(thread, 5)
        if not self.failure and not check():
            self.fail("the condition does not hold in the end")

    def ready(self) -> list[Thread]:
        """Return the threads that can go on, now or as soon as one of them can."""
        self.is_choosing = True  # what a test calls does not wait
        alive = [one for one in self.threads if not one.ended]
        ready = [one for one in alive if one.is_ready()]
        due = min((one.until for one in alive), default=inf)
        if not ready and due < inf:
            self.now = max(self.now, due)
            ready = [one for one in alive if one.is_ready()]
        self.is_choosing = False
        if alive and (not ready or len(self.choices) > 5_000):
            what = "livelock" if ready else "deadlock"
            self.fail(f"{what}: {', '.join(one.name for one in alive)} wait")
            return []
        return ready

    def switch(self, me: Thread | None) -> None:
        """Let the thread go on whose turn it is; `me` is the one that runs."""
        if self.over.is_set():  # in a `finally` of what is being stopped
            raise Stop
        if ready := self.ready():
            chosen = me if me in ready else ready[0]
            others = [one for one in ready if one is not chosen]
            self.choices.append(len(others))
            which = self.plan.get(len(self.choices), 0)
            if which and others:
                chosen = others[(which - 1) % len(others)]
            if chosen is me:
                return
            chosen.turn.release()
        else:
            self.over.set()
        if me and not me.ended:
            me.turn.acquire()
            if self.over.is_set():
                raise Stop


class Thread(threading.Thread):
    """A real thread that runs when its turn has come; the module's threads, too."""

    def __init__(self, target: Act, name: str = "", daemon: bool = True) -> None:
        super().__init__(name=name, daemon=True)
        self.target, self.turn = target, threading.Semaphore(0)
        self.test: Act | None = None  # what it waits for
        self.until = inf  # ... but no longer
        self.ended = 0.0  # when, and a little: so it is never 0

    def start(self) -> None:
        if re.match("mcp-(?!hang-up)", self.name):
            world.starts += 1
            if world.starts in world.refused:
                raise RuntimeError("can't start new thread")
        world.threads.append(self)
        super().start()

    def is_ready(self) -> Any:
        return not self.test or self.until <= world.now or self.test()

    def run(self) -> None:
        self.turn.acquire()
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
    if isinstance(me, Thread) and not world.is_choosing:
        me.test, me.until = test, world.now + seconds
        world.switch(me)
        me.test, me.until = None, inf
    return bool(test())


def sleep(seconds: float = 1 / 1024) -> None:
    """Let all others go on, as far as they can, or for some seconds."""
    wait(lambda: False, seconds)


def trace(frame: Any, kind: str, argument: Any) -> Any:
    """Let another thread go on at a line of the module; see sys.settrace()."""
    if frame.f_code.co_filename != str(SOURCE):
        return None
    if kind == "line" and frame.f_lineno in LINES:
        wait(lambda: True)
    return trace


def changing_lines() -> set[int]:
    """Return the lines that use an attribute which changes outside of __init__()."""
    mutators = "append pop popleft add remove clear update release".split()
    functions = [one for one in ast.walk(TREE) if isinstance(one, ast.FunctionDef)]
    functions = [one for one in functions if one.name != "__init__"]
    nodes: list[Any] = [node for one in functions for node in ast.walk(one)]
    names = set()
    for node in nodes:
        changed = node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = node.func.value if node.func.attr in mutators else None
        elif isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            changed = None
        while isinstance(changed, ast.Subscript):
            changed = changed.value
        if isinstance(changed, ast.Attribute):
            names.add(changed.attr)
    return {one.lineno for one in nodes if getattr(one, "attr", "") in names}


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

    __enter__ = acquire

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
CLOCK: Any = types.SimpleNamespace(**vars(time))
CLOCK.monotonic, CLOCK.sleep = THREADING._time, sleep
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
    """Make one function again, with another text; LookupError: it has changed."""
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
    text = f"from __future__ import annotations{text}"
    exec(compile(text, str(SOURCE), "exec"), vars(module))
    setattr(owner, found.name, vars(module).pop("make")(owner))


# ---- what models are made of
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


def server_with(w: World, act: Any) -> Any:
    def tool(ctx: Any) -> str:
        act(ctx)
        return "x"

    server = w.mcp.Server("s")
    tool.__annotations__["ctx"] = w.mcp.Context
    server.tool(tool)
    return server


class Pair:
    """A server, and a client that is next to it."""

    def __init__(self, w: World, act: Any = bool) -> None:
        self.server = server_with(w, act)
        self.sent: list[Any] = []  # to the client
        self.peer = w.mcp.Peer(self.sent.append)

    def client(self, message: Any) -> None:
        self.server.handle(message, self.sent.append, peer=self.peer)


class Wire:
    """An Exchange: one request over HTTP, and what its client reads. If it `is_slow`,
    all others go on while something is written. The client goes after some writes; then
    they fail. If it `has_left`, they seem to arrive."""

    w: World
    is_slow = has_left = is_over = False
    fails_after = inf
    text, hangs, ends, status = "", 0, 0, 0
    user: Any = None  # the thread that uses it

    def use(self) -> None:
        """Let others go on in the middle of something that one thread does."""
        if self.user or self.ends:
            self.w.fail("two threads use an exchange at once, or one behind the end")
        self.user = threading.current_thread()
        wait(lambda: not self.is_slow, 1 / 1024)
        self.user = None
        if self.is_over:
            self.w.fail("an exchange is used while the next request is read")

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        if self.status:
            self.w.fail("an answer has two heads")
        self.status, self.received = status, headers
        self.write(body or b"")

    def write(self, data: bytes) -> None:
        self.use()
        self.fails_after -= 1
        if self.fails_after < 0:
            self.has_left = True
            raise OSError("hung up")
        self.text += data.decode()

    def ready(self) -> bool:
        return True

    def end(self, hang_up: bool = False) -> None:
        self.write(b"")
        self.ends += 1

    def gone(self) -> bool:
        self.use()
        return self.has_left

    def hang_up(self) -> None:
        self.hangs += 1

    def numbers(self) -> list[int]:
        return [int(one) for one in re.findall(r'"(?:n|progress)":(\d+)', self.text)]


class Web:
    """An endpoint, and its clients, which may have a session."""

    def __init__(self, w: World, act: Any = bool, opens: bool = False) -> None:
        # Sessions expire soon, so that the thread that checks them ends.
        w.mcp.SESSION_SECONDS = w.mcp.ASK_SECONDS = 3
        self.w, self.session, self.server = w, "", server_with(w, act)
        self.endpoint = w.mcp.Endpoint(self.server)
        if opens:
            self.session = self.send(OPENING).received["Mcp-Session-Id"]
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
        self.endpoint.serve(wire)
        wire.is_over = True
        return wire

    def send(self, said: Any) -> Any:
        return self.serve(self.wire("POST", said))

    def call(self, said: Any, **options: Any) -> Any:
        wire = self.wire("POST", said, **options)
        self.w.task(lambda: self.serve(wire))
        return wire

    def delete(self) -> None:
        self.serve(self.wire("DELETE"))

    def is_empty(self) -> bool:
        is_empty: bool = self.endpoint.sessions.is_empty()
        return is_empty and not self.endpoint.answers and not self.server.listeners


class Host:
    """The client of a server on stdio, at both files of a Pipe. It writes `calls`, one
    a line: the tool takes so many BLINK_SECONDS; below 0, they pass before the next
    line; a message is a line as it is. `answered` says when each was answered, and
    `returned` when serve() had; in BLINK_SECONDS. It `reads` an answer for so many."""

    def __init__(self, w: World, calls: Any, threads: int = 2, reads: int = 0) -> None:
        w.mcp.MAX_THREADS, w.mcp.LEAVE_SECONDS = threads, 2
        w.mcp.BLINK_SECONDS = 1 / 64  # exactly, so that things happen at once
        files = {"fdopen": lambda file, *_, **__: file}
        w.mcp.os = types.SimpleNamespace(**{**vars(os), **files})
        self.w, self.threads, self.calls = w, threads, list(enumerate(calls))
        self.reads, self.running, self.is_read = reads, 0, False
        self.answered, self.returned = {}, 0.0  # type: dict[int, float], float
        server = w.mcp.Server("s")
        server.tool(self.do, name="do")
        self.pipe = w.mcp.Pipe(server, self, self)
        w.task(lambda: (self.pipe.serve(), setattr(self, "returned", w.now * 64)))

    def do(self, blinks: float) -> None:
        self.running += 1
        if self.running > self.threads:
            self.w.fail("too many handlers run at once")
        wait(lambda: not blinks, blinks / 64)
        self.running -= 1

    def fileno(self) -> int:
        return -1  # no regular file

    def readline(self, size: int) -> bytes:
        if self.is_read:
            self.w.fail("two threads read")
        self.is_read = True
        wait(lambda: True)
        place, call = self.calls.pop(0) if self.calls else (0, None)
        if isinstance(call, (int, float)):
            sleep(max(0, -call / 64))
            made = modern(self.w, name="do", arguments={"blinks": call})
            call = {**made, "id": place} if call >= 0 else ""
        self.is_read = False
        line = json.dumps(call) if call else ""
        return b"" if call is None else f"{line}\n".encode()

    def write(self, line: bytes) -> int:
        wait(lambda: not self.reads, self.reads / 64)
        ident = json.loads(line).get("id")
        if self.returned or ident in self.answered:
            self.w.fail("an answer comes after the end, or for the second time")
        if ident is not None:
            self.answered[ident] = self.w.now * 64
        return len(line)


class Models(World):
    """Each method is a model; of those in `_` there are several kinds."""

    # ---- answers: their writers, and readers that come back
    def two_writers(w) -> Act:
        """A call emits while comments are due: one thread writes at a time."""
        w.mcp.KEEP_ALIVE_SECONDS, w.mcp.CHECK_SECONDS = -1, 1 / 1024
        web = Web(w, lambda ctx: [ctx.progress(number) for number in range(3)])
        wire = web.call(modern(w), is_slow=True)
        return lambda: wire.numbers() == [0, 1, 2] and '"result"' in wire.text

    def _silent(w, act: Any, opens: bool = False) -> Act:
        """A call is silent until a comment is due. Then it ends, or reports progress:
        it has one head, one response, and one outbox in its session."""
        w.mcp.KEEP_ALIVE_SECONDS = 0.125
        web, made = Web(w, lambda ctx: (sleep(0.25), act(ctx)), opens), []
        for session in web.endpoint.sessions.all():
            make: Any = session.new_outbox
            session.new_outbox = lambda answer: (made.append(1), make(answer))[1]
        wire = web.call(CALL if opens else modern(w))
        return lambda: (
            wire.text.count('"result"') == 1
            and wire.ends == ("event-stream" in str(wire.received))
            and len(made) == opens
            and web.is_empty()
        )

    silence_meets_response = partial(_silent, act=bool)
    silence_meets_progress = partial(
        _silent, act=lambda ctx: ctx.progress(0), opens=True
    )

    def _resuming(w, first: Any, second: Any) -> Act:
        """A call emits to a first connection; its client has seen one event, and
        resumes the stream on a second one: it gets all else, in order, and one end."""

        def act(ctx: Any) -> None:
            for number in range(4):
                ctx.progress(number)
            wait(lambda: two.status, 5)

        def resume() -> None:
            two.headers["last-event-id"] = re.findall("id: (.*)", one.text)[0]
            web.serve(two)

        web = Web(w, act, opens=True)
        one, two = web.call(CALL, **first), web.wire("GET", **second)
        w.when(one.numbers, resume)
        return lambda: w.passed() < 1 and two.numbers() == [1, 2, 3] and two.ends == 1

    reader_is_replaced = partial(_resuming, first={}, second={"is_slow": True})
    reader_leaves = partial(_resuming, first={"fails_after": 3}, second={})

    def changes_meet(w) -> Act:
        """Two threads tell a session of the same change, which is told once; then of
        other news, which wait for nobody, while a slow GET sends them."""
        web, done = Web(w, opens=True), []  # type: Web, list[int]
        first, second = web.wire("GET", is_slow=True), web.wire("GET", is_slow=True)

        def change(number: int) -> None:
            w.at_once(lambda: web.server.notify("notifications/x", {"n": number}))

        def change_tools() -> None:
            w.at_once(lambda: web.server.changed("tools"))
            done.append(1)

        told: Act = lambda: sorted(first.numbers() + second.numbers())  # noqa: E731
        w.task(change_tools)
        w.task(change_tools)
        w.when(lambda: len(done) == 2, lambda: web.serve(first))
        w.when(lambda: "tools" in first.text, lambda: change(0))
        w.when(lambda: 0 in told(), lambda: (sleep(1 / 64), change(1)))  # it waits
        w.when(lambda: {0, 1} <= {*told()}, lambda: web.serve(second))
        w.when(lambda: first.ends, lambda: (change(2), sleep(1 / 64), change(3)))
        w.when(lambda: 3 in told(), web.delete)
        return lambda: (
            told() == [0, 1, 2, 3]
            and (first.text + second.text).count("list_changed") == 1
            and second.ends
            and w.passed() < 1
        )

    def _hanging_up(w, act: Any) -> Act:
        """A hang-up is noticed while a handler runs, or ends: the call is cancelled, or
        answered."""
        told: list[int] = []
        web = Web(w, lambda ctx: (ctx.on_cancel(lambda: told.append(1)), act(ctx)))
        wire = web.call(modern(w), has_left=True)
        return lambda: len(told) + ("result" in wire.text) == 1 and web.is_empty()

    hang_up_meets_end = partial(_hanging_up, act=lambda ctx: sleep(0.25))
    hang_up_meets_call = partial(
        _hanging_up, act=lambda ctx: wait(lambda: ctx.cancelled)
    )

    # ---- subscriptions and sessions: how they begin, how they end
    def listener_meets_close(w) -> Act:
        """A subscription ends while something changes: acknowledged first, one response
        last, and it is no listener any more."""
        web = Web(w)
        wire = web.call(listening(w), is_slow=True)

        change, close = partial(web.server.changed, "tools"), web.endpoint.close
        w.task(change)
        w.when(lambda: web.server.listeners, lambda: (change(), w.at_once(close)))
        order = 'acknowledged.*list_changed.*"result"'
        return lambda: re.search(order, wire.text, re.S) and web.is_empty()

    def opening_meets_close(w) -> Act:
        """An endpoint closes while a session opens and a subscription begins: none is
        left, and each is answered."""
        web = Web(w)
        wires = [web.call(said) for said in (OPENING, listening(w))]
        w.task(web.endpoint.close)
        return lambda: all("result" in one.text for one in wires) and web.is_empty()

    def listener_meets_cancel(w) -> Act:
        """A subscription is cancelled while it begins: it hears nothing afterwards, and
        has no response."""
        pair = Pair(w)
        w.task(lambda: pair.client(listening(w)))
        change = partial(pair.server.changed, "tools")
        w.when(lambda: pair.peer.running, lambda: (pair.client(CANCEL), change()))
        return lambda: (
            not (pair.server.listeners or pair.peer.running)
            and all("acknowledged" in str(one) for one in pair.sent)
        )

    def listener_hears_all(w) -> Act:
        """Something changes when the client has read the acknowledgement, and something
        before: it hears of the former, and of neither before the acknowledgement."""

        pair, heard = Pair(w), []  # type: Pair, list[Any]

        def change() -> None:
            before = len(pair.sent)
            pair.server.changed("tools")
            heard.extend(pair.sent[before:])

        w.task(lambda: pair.client(listening(w)))
        w.task(lambda: pair.server.changed("tools"))
        w.when(lambda: pair.sent, change)
        return lambda: "acknowledged" in str(pair.sent[0]) and heard

    def _opening(w, closes: bool) -> Act:
        """Two requests open a session of one peer: one is left, and listens; but not if
        the client leaves meanwhile."""
        pair = Pair(w)
        for act in [partial(pair.client, OPENING)] * 2 + [pair.peer.close] * closes:
            w.task(act)
        return lambda: [*pair.server.listeners] == [pair.peer.session] * (1 - closes)

    sessions_meet = partial(_opening, closes=False)
    session_meets_close = partial(_opening, closes=True)

    def sessions_make_way(w) -> Act:
        """Sessions open where there is room for one: never two; one that goes is
        closed."""
        w.mcp.MAX_SESSIONS = 1
        web, left = Web(w), []  # type: Web, list[int]
        sessions = web.endpoint.sessions.all
        for _ in "abc":
            w.task(lambda: (web.send(OPENING), left.append(len(sessions()))))
        w.when(lambda: len(left) == 3, lambda: left.append(len(web.server.listeners)))
        return lambda: max(left) == left[-1] == 1 and web.is_empty()

    def sessions_expire(w) -> Act:
        """A session opens when the last one has expired, and mcp-check ends: the
        session expires, too, though no client comes."""
        web = Web(w)
        w.mcp.SESSION_SECONDS = 1
        w.task(lambda: web.send(OPENING))
        w.task(lambda: (sleep(1.25), web.send(OPENING)))  # when mcp-check looks
        return web.is_empty

    def session_meets_its_end(w) -> Act:
        """A session ends while a call of it runs, and while its own stream is listened
        to: the call is answered, both streams end, and nothing is kept for ever."""
        web = Web(w, lambda ctx: (ctx.progress(0), sleep(0.25)), opens=True)
        calls, listens = web.call(CALL), web.wire("GET")
        w.task(lambda: web.serve(listens))
        w.when(calls.numbers, lambda: (sleep(0.25), web.delete()))
        return lambda: (
            w.passed() < 1
            and '"result"' in calls.text
            and (listens.ends or listens.status in (404, 405))
            and web.is_empty()
        )

    def streams_leave_room(w) -> Act:
        """Streams without an end come at once where there is room for one."""
        w.mcp.MAX_CONNECTIONS = 2
        web = Web(w)
        wires = [web.call(listening(w)) for _ in "abc"]
        w.when(lambda: all(one.status for one in wires), web.endpoint.close)
        return lambda: sorted(one.status for one in wires) == [200, 503, 503]

    # ---- requests: how they end, and their questions
    def response_meets_cancel(w) -> Act:
        """A request is cancelled, twice, while it runs and responds: it has a response,
        or its on_cancel() function is called, once."""
        ran, told = [], []  # type: list[int], list[int]
        note = partial(told.append, 1)
        pair = Pair(w, lambda ctx: (ran.append(1), ctx.on_cancel(note)))
        for said in (modern(w), CANCEL, CANCEL):
            w.task(partial(pair.client, said))
        return lambda: len(pair.sent) + len(told) == len(ran) and not pair.peer.running

    def run_meets_cancel(w) -> Act:
        """A call waits for the thread of `run=`, and is cancelled: it runs, or not."""
        ran, jobs = [], []  # type: list[int], list[Act]
        pair = Pair(w, lambda ctx: ran.append(1))
        pair.server.hook.put = jobs.append
        w.task(lambda: pair.client(modern(w)))
        w.when(lambda: jobs, lambda: jobs[0]())
        w.when(lambda: jobs, lambda: pair.client(CANCEL))
        return lambda: len(pair.sent) <= len(ran) <= 1 and not pair.peer.running

    def _question(w, answers: float = inf, cancels: int = 0, closes: int = 0) -> Act:
        """A call asks; its client answers after some seconds, cancels it, or leaves:
        one of these ends the question, and nobody waits for another."""
        w.mcp.ASK_SECONDS = 5
        begun, got = [], []  # type: list[int], list[str]

        def act(ctx: Any) -> None:
            begun.append(1)
            try:
                got.append(str(ctx.list_roots()))
            except w.mcp.AskError as problem:
                got.append(str(problem))

        def gives_up() -> bool:
            return "cancelled" in str([one.get("method") for one in pair.sent])

        def answer() -> None:
            sleep(answers)
            if not gives_up():  # or nobody waits for it
                pair.client(ANSWER)

        pair = Pair(w, act)
        pair.client(OPENING)
        pair.client(READY)
        pair.sent.clear()
        w.task(lambda: pair.client(CALL))
        if answers < inf:
            w.when(lambda: pair.sent or got, answer)
        if cancels:
            w.when(lambda: begun, lambda: pair.client(CANCEL))
        if closes:
            w.when(lambda: begun, pair.peer.close)
        return lambda: (
            (len(got) == 1 or cancels)
            and sum("result" in one for one in pair.sent) in {len(got), 1 - cancels}
            and (w.passed() < 5 or 0 < answers < inf)
            and not (gives_up() and got == ["[]"])
            and not (pair.peer.questions or pair.peer.running)
        )

    question_meets_all = partial(_question, answers=0, cancels=1, closes=1)
    question_meets_cancel = partial(_question, cancels=1)
    question_meets_close = partial(_question, closes=1)
    question_meets_its_limit = partial(_question, answers=5)

    # ---- stdio: the reader, its deputy, and the queue
    def _stdio(w, calls: Any, answered: Any, check: Any = bool, **more: Any) -> Act:
        """A host writes calls; some are answered, once, and stop() comes so often."""
        w.refused, stops = more.pop("refused", ()), more.pop("stops", 0)
        calls = [listening(w) if one == "listen" else one for one in calls]
        host = Host(w, calls, **more)
        for _ in range(stops):
            w.when(lambda: len(host.answered) == len(answered), host.pipe.stop)
        return lambda: sorted(host.answered) == answered and check(host)

    # fmt: off
    deputy_takes_over = partial(_stdio, calls=[1, 60, 0.1, 0, -99, 1, 0], answered=[0, 1, 2, 3, 5, 6], check=lambda host: host.answered[3] < 3, threads=3)  # A handler returns when the deputy takes over: a fast call is answered before slow ones.
    deputy_has_ended = partial(_stdio, calls=[0, -120, 60, 0, -10, 60, 0], answered=[0, 2, 3, 5, 6], check=lambda host: host.answered[3] < 129 and host.answered[6] < 145, threads=3)  # No deputy stands by when a slow call comes; and again, while another one is slow.
    slow_calls_wait = partial(_stdio, calls=[5, -4, 2, 0], answered=[0, 2, 3], threads=1)  # A call comes when the only slow handler returns: it is run, here or there.
    waiting_call_meets_cancel = partial(_stdio, calls=[5, 3, 0, -4, CANCEL], answered=[0, 2], check=lambda host: not host.pipe.running, threads=1)  # A call in the queue is cancelled when its turn comes: those beside it are answered.
    answer_meets_end = partial(_stdio, calls=[9, 2], answered=[0, 1], check=lambda host: host.returned < 14, reads=2)  # The client leaves while handlers run: serve() returns when all is answered.
    answer_meets_stop = partial(_stdio, calls=[1, 2, 60, -99], answered=[0, 1], check=lambda host: host.returned < 20, stops=1)  # stop() comes while handlers run: the others have a little time, or are cancelled.
    stop_meets_stop = partial(_stdio, calls=[-99], answered=[], check=lambda host: host.returned < 1, stops=2)  # stop() comes twice while serve() begins to wait: it returns at once.
    threads_are_refused = partial(_stdio, calls=[5, 60, 0, 60, 0, -99, 5, 0], answered=[0, 1, 2, 3, 4, 6, 7], check=lambda host: host.answered[2] < 9, threads=3, refused={1, 2, 5, 7})  # Now and then no thread can be started: the reader, deputies. The next one is.
    no_thread_starts = partial(_stdio, calls=[3, "listen", 0, 2], answered=[0, 1, 2, 3], refused=range(99))  # None can be started: each request is answered, a subscription at the end.
    # fmt: on


# ---- planted bugs: the model that must find it, and the text that changes:
# MODEL  Class.method: old -> new ;; old -> new
PLANTED = r"""
two_writers               Answer.flush: with self.lock: -> if True:
two_writers               Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.owner: ;; self.lock.release() -> pass
silence_meets_response    Answer.__call__: with self.lock: -> if True:
silence_meets_response    Answer._begin: self.begun = True -> pass
silence_meets_progress    Answer.stream: with self.lock: -> if True:
silence_meets_progress    Answer.stream: self.outbox or self.peer.new_outbox(self) -> self.peer.new_outbox(self)
listener_meets_close      Answer.__call__: if is_last and self.outbox is None: -> if True:
listener_meets_close      Answer.stream: if self.outbox is None: -> if True:
hang_up_meets_end         Answer.check: if not self.lock.acquire(blocking=False): -> if self.lock.owner: ;; self.lock.release() -> pass
reader_is_replaced        Outbox.detach: if self.reader is reader: -> if True:
reader_is_replaced        Outbox.take: self.reader is not reader or -> False or
reader_leaves             Outbox.take: self.place += 1 -> pass
reader_leaves             Outbox.attach: min(after + 1, following) -> following
reader_leaves             Outbox.attach: self.place = place -> self.place = self.first
reader_leaves             Answer._write: exchange.end(outbox.reader is None) -> self.ended = True; exchange.end(outbox.reader is None)
changes_meet              Outbox.attach: self._moved.notify_all() -> pass
changes_meet              Outbox.end: self._moved.notify_all() -> pass
changes_meet              Outbox.is_done: self.reader is not reader or -> False or
changes_meet              Outbox.add: self._moved.notify_all() -> pass
changes_meet              Outbox.add_note: with self._moved: -> if True:
changes_meet              Outbox.add_note: if line not in self.changes: -> if True:
hang_up_meets_call        Answer.check: self._lose_client() -> pass
hang_up_meets_call        Answer._lose_client: self.peer.cancel_all() -> pass
listener_meets_close      Answer.__call__: elif not self.listens: -> elif True:
listener_meets_close      Subscription.end: ctx.server.listeners.pop(self, None) -> pass
opening_meets_close       Subscription.begin: if ctx.peer.closed: -> if False:
opening_meets_close       Endpoint.run_handler: if self.closed and isinstance(answer.peer, PostPeer): -> if False:
opening_meets_close       HttpSession.register: if self.endpoint.closed: -> if False:
listener_meets_cancel     Subscription.begin: ctx._wake_with(self.end) -> pass
listener_hears_all        Subscription.begin: ctx.server.listeners[self] = None -> pass ;; ctx._subscription = self -> ctx._subscription = self; ctx.server.listeners[self] = None
listener_hears_all        Subscription.begin: with ctx._sending: -> if True:
session_meets_close       LegacyContext._initialize: if peer.closed: -> if False:
session_meets_close       Peer.close: self.session.server.listeners.pop(self.session, None) -> pass
sessions_meet             LegacyContext._initialize: with server._lock: -> if True:
sessions_make_way         Sessions.add: with self._lock: -> if True:
sessions_make_way         Sessions.add: if evicted: -> if False:
sessions_expire           Endpoint._check: with self.lock: -> if True:
sessions_expire           Endpoint._check: self._checks = False -> pass
sessions_expire           Sessions.add: self._endpoint.begin_checks() -> pass
session_meets_its_end     HttpSession.close: self.settle() -> pass
session_meets_its_end     HttpSession.end_answer: self.settle() -> pass
response_meets_cancel     Context._become: return steps[state] -> return True
response_meets_cancel     Context._become: with self._ending: -> if True:
response_meets_cancel     Context._wake_with: wake() -> pass
response_meets_cancel     Context._wake_with: with self._ending: -> if True:
run_meets_cancel          RunHook.call: if outcome.done() or not outcome.set_running_or_notify_cancel(): -> if False:
question_meets_all        take_response: peer.questions.pop( -> peer.questions.get(
question_meets_cancel     LegacyContext._asking: self._wake_with(partial(fail_questions, peer, idents, "it was cancelled")) -> pass
question_meets_close      LegacyContext._asking: if peer.closed: -> if False:
question_meets_close      Peer.close: fail_questions(self, list(self.questions), "the session is closing") -> pass
question_meets_its_limit  LegacyContext._asking: peer.questions.pop( -> peer.questions.get(
streams_leave_room        Endpoint.run_handler: with self.lock: -> if True:
deputy_takes_over         Pipe._run: return is_reader -> return True
deputy_takes_over         Pipe._run: if is_reader: -> if False:
deputy_takes_over         Pipe._run: if is_reader: -> if True:
deputy_takes_over         Pipe._run: with self._lock: -> if True:
deputy_takes_over         Pipe._stand_by: with self._lock: -> if True:
deputy_has_ended          Pipe._stand_by: self._has_deputy = False -> pass
slow_calls_wait           Pipe._run: if self._slow >= MAX_THREADS: -> if False:
slow_calls_wait           Pipe._run: with self._lock: -> if True:
slow_calls_wait           Pipe._read: self._empty_queue() -> pass
slow_calls_wait           Pipe._empty_queue: self._slow -= 1 -> pass
slow_calls_wait           Pipe._empty_queue: with self._lock: -> if True:
waiting_call_meets_cancel Context._finish: if not self._become("answered"): -> if False:
answer_meets_end          Pipe._is_busy: bool(self._slow or self._handler) -> bool(self.running)
answer_meets_stop         Pipe._finish: abandon(self) -> pass
stop_meets_stop           Pipe.stop: self._serving.release() -> self._deadline = time.monotonic() + patience ;; self._deadline = min(self._deadline, time.monotonic() + patience) -> with suppress(RuntimeError): self._serving.release() ;; with suppress(RuntimeError):  # -> if True:  #
threads_are_refused       Pipe._run: self._has_deputy = spawn("mcp-deputy", stand_by) -> spawn("mcp-deputy", stand_by); self._has_deputy = True
threads_are_refused       Pipe.serve: while self._deadline == inf: -> while False:
no_thread_starts          Pipe.serve: self._read() -> pass
no_thread_starts          run_aside: work() -> pass
"""


# ---- the runner
def play(module: Any, name: str, plan: dict[int, int]) -> World:
    """Run one schedule of a model."""
    global world
    world = Models(module, plan)
    try:
        world.run(vars(Models)[name](world))
    except Exception as problem:  # a name that the module no longer has, for example
        world.over.set()
        world.fail(f"the model fails: {problem!r:.200}")
    return world


def plans(choices: list[int]) -> Iterator[dict[int, int]]:
    """Make plans: the empty one, those with one step, then others, for ever."""
    yield {}
    ones = [{at + 1: n + 1} for at, count in enumerate(choices) for n in range(count)]
    lot = random.Random(1)
    lot.shuffle(ones)
    yield from ones
    while ones:
        few = lot.sample(ones, min(len(ones), lot.choice((2, 2, 3, 5))))
        yield {step: which for one in few for step, which in one.items()}


def explore(module: Any, name: str, seconds: float) -> tuple[int, str, dict[int, int]]:
    """Try plans until one fails or time is up; return their number, and the failure."""
    end = time.process_time() + seconds
    play(module, name, {})  # what it caches, it does not have to find again
    tried, choices = 0, []  # type: int, list[int]
    for tried, plan in enumerate(plans(choices), 1):
        played = play(module, name, plan)
        if played.failure or time.process_time() > end:
            return tried, played.failure, plan
        choices += played.choices if tried == 1 else []
    return tried, "", {}


def main(words: list[str]) -> int:
    """Explore the models, then show that planted bugs are found."""
    logging.disable()  # of Futures that a planted bug settles twice
    began, bad, missed = time.monotonic(), 0, 0
    seconds = float(words[0]) if words else 90.0
    if words[1:]:
        module, plan = load(), {int(at): n for at, n in json.loads(words[2]).items()}
        print([play(module, words[1], one).failure for one in ({}, plan)][1] or "right")
        return 0
    models = [name for name in vars(Models) if name[0] != "_"]
    for name in models:
        tried, failure, plan = explore(load(), name, seconds * 0.7 / len(models))
        print(f"schedules: {name}: {tried} schedules", flush=True)
        if failure:
            bad += 1
            print(f"    FAILS: {failure}\n    plan: {name} '{json.dumps(plan)}'")
    planted = [row.split(None, 1) for row in PLANTED.strip().split("\n")]
    for name, row in planted:
        try:
            what = "" if explore(load(row), name, seconds / 10)[1] else "not found"
        except LookupError as problem:
            what = f"cannot plant: {problem}"
        if what:
            missed += 1
            print(f"schedules: {what}: {name}: {row}", flush=True)
    found, seconds = len(planted) - missed, time.monotonic() - began
    print(f"schedules: {found} of {len(planted)} planted bugs found; {seconds:.0f} s")
    return 1 if bad or missed else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
