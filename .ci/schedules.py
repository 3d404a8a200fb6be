#!/usr/bin/env python3
"""Try the schedules of threads that meet: `python3 .ci/schedules.py [SECONDS]`.

Each *model* is a few real threads that use the module, and a condition that must hold
in the end. One thread runs at a time; the scheduler may switch at every line of the
module and at every lock, condition and sleep. It tries the default order (a thread runs
until it waits), every schedule with one departure from it, then with two, at random, as
long as the time allows. What fails is printed as a plan, which replays it: `python3
.ci/schedules.py 0 MODEL PLAN`.

*Planted* bugs show that the models can fail. Each is planted by what it does: a lock
that is not taken, a call that is left out, a function that does the wrong thing, in a
method that is named. So the module may be written otherwise; if the method or the step
is no longer there, the bug "cannot be planted", and the message says what is missing.

The module's names `threading` and `time` are replaced, and `threading` below
concurrent.futures; nothing else. This is a tool, not a test: it uses private names.
Linux and macOS.
"""

from __future__ import annotations

import ast
import concurrent.futures._base
import copy
import itertools
import json
import logging
import os
import random
import re
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "mcp_ref.py"
TEXT = SOURCE.read_text("utf-8")
MOST_STEPS = 5_000  # of a schedule; more is taken for a livelock


class Stop(BaseException):
    """Ends a thread of a schedule that has ended."""


class Scheduler:
    """Runs tasks one at a time; `plan` says at which step another one goes on."""

    def __init__(self, plan: dict[int, int]) -> None:
        self.plan, self.step, self.now = plan, 0, 0.0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.failure = ""
        self.over = threading.Event()
        self.choices: list[int] = []  # how many tasks could have gone on, by step
        self.starts, self.refused = 0, frozenset()  # type: int, Any  # of threads
        self.functions: Any = None  # at whose lines it may switch; None: all
        self.always: Any = None  # a condition that must hold at every step

    def spawn(self, function: Any, name: str = "") -> Task:
        task = Task(self, function, name or f"task {len(self.tasks)}")
        self.tasks.append(task)
        return task

    def run(self) -> str:
        """Run all tasks to their end; return what went wrong."""
        self.switch(None)
        if not self.over.wait(20):
            self.failure = self.failure or "the scheduler itself hangs"
        for task in self.tasks:
            task.wake.release()
        for task in self.tasks:
            task.thread.join(5)
        return self.failure

    def passed(self) -> float:
        """Return when the last thread of the model has ended; the module's own threads,
        which have names in `mcp-`, may go on for a while."""
        return max(one.ended for one in self.tasks if not one.name.startswith("mcp-"))

    def check_invariant(self) -> None:
        """Check what must hold at every step."""
        try:
            if not self.always():
                self.failure = f"the invariant does not hold at step {self.step}"
        except AttributeError as problem:  # of a name that the module no longer has
            self.failure = f"the invariant cannot be checked: {problem}"

    def switch(self, me: Task | None) -> None:
        """Let the task go on whose turn it is; called by the one that runs."""
        if self.over.is_set():  # in a `finally` of what is being stopped
            raise Stop
        self.step += 1
        if self.always and not self.failure:
            self.check_invariant()
        ready = [task for task in self.tasks if task.is_ready()]
        if not ready:
            due = [task.until for task in self.tasks if task.until is not None]
            if due and any(not task.done for task in self.tasks):
                self.now = max(self.now, min(due))
                ready = [task for task in self.tasks if task.is_ready()]
        if not ready or self.step > MOST_STEPS:
            waiting = [task.name for task in self.tasks if not task.done]
            if waiting:
                what = "livelock" if ready else "deadlock"
                self.failure = self.failure or f"{what}: {', '.join(waiting)} wait"
            self.over.set()
        else:
            chosen = me if me in ready else ready[0]
            others = [task for task in ready if task is not chosen]
            self.choices.append(len(others))
            which = self.plan.get(self.step, 0)
            if which and others:
                chosen = others[(which - 1) % len(others)]
            self.current = chosen
            if chosen is me:
                return
            chosen.wake.release()
        if me is not None and not me.done:
            me.wake.acquire()
            if self.over.is_set():
                raise Stop


class Task:
    """A real thread that runs when the scheduler says so."""

    def __init__(self, scheduler: Scheduler, function: Any, name: str) -> None:
        self.scheduler, self.name, self.function = scheduler, name, function
        self.wake = threading.Semaphore(0)
        self.done, self.ended = False, 0.0
        self.until: float | None = None
        self.test: Any = None  # what it waits for
        self.ident = id(self)
        self.thread = threading.Thread(target=self.main, daemon=True)
        self.thread.start()

    def is_ready(self) -> bool:
        if self.done:
            return False
        if self.test is None or self.test():
            return True
        return self.until is not None and self.scheduler.now >= self.until

    def main(self) -> None:
        self.wake.acquire()
        if self.scheduler.over.is_set():
            return
        running.task = self
        sys.settrace(self.trace)
        try:
            self.function()
        except Stop:
            return
        except BaseException as problem:
            self.scheduler.failure = (
                self.scheduler.failure or f"{self.name} raised {problem!r:.300}"
            )
        finally:
            sys.settrace(None)
        self.done, self.ended = True, self.scheduler.now
        if not self.scheduler.over.is_set():
            self.scheduler.switch(self)

    def trace(self, frame: Any, kind: str, argument: Any) -> Any:
        if frame.f_code.co_filename != str(SOURCE):
            return None
        functions = self.scheduler.functions
        if functions is not None and frame.f_code.co_name not in functions:
            return None
        if kind == "line":
            self.scheduler.switch(self)
        return self.trace

    def join(self, timeout: float | None = None) -> None:
        me().wait(lambda: self.done, timeout)

    def wait(self, test: Any, seconds: float | None = None) -> bool:
        """Wait until a test holds; False if the time has passed."""
        self.test = test
        self.until = None if seconds is None else self.scheduler.now + seconds
        self.scheduler.switch(self)
        self.test = self.until = None
        return bool(test())


running = threading.local()


def me() -> Task:
    return running.task  # type: ignore[no-any-return]


# ---- what the module finds under the names `threading` and `time`
class Lock:
    def __init__(self) -> None:
        self.owner: Any = None
        self.count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = me()
        seconds = None if timeout < 0 else timeout
        if not blocking:
            seconds = 0

        def is_free() -> bool:
            return self.owner is None or self._mine(task)

        if not (is_free() if seconds == 0 else task.wait(is_free, seconds)):
            return False
        self.owner, self.count = task, self.count + 1
        return True

    def _mine(self, task: Task) -> bool:
        return False

    def release(self) -> None:
        if self.owner is None:
            raise RuntimeError("release unlocked lock")
        self.count -= 1
        if not self.count:
            self.owner = None

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


class RLock(Lock):
    def _mine(self, task: Task) -> bool:
        return self.owner is task


class Condition:
    def __init__(self, lock: Any = None) -> None:
        self.lock = lock or RLock()
        self.acquire, self.release = self.lock.acquire, self.lock.release
        self.waiting: list[Any] = []

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        token = [False]
        self.waiting.append(token)
        count, self.lock.count = self.lock.count, 1
        self.release()
        told = me().wait(lambda: token[0], timeout)
        if token in self.waiting:
            self.waiting.remove(token)
        self.acquire()
        self.lock.count = count
        return told

    def wait_for(self, test: Any, timeout: float | None = None) -> Any:
        end = None if timeout is None else me().scheduler.now + timeout
        while not (found := test()):
            left = None if end is None else end - me().scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, count: int = 1) -> None:
        if self.lock.owner is None:
            raise RuntimeError("cannot notify on un-acquired lock")
        for token in self.waiting[:count]:
            token[0] = True
        del self.waiting[:count]

    def notify_all(self) -> None:
        self.notify(len(self.waiting))


class Event:
    def __init__(self) -> None:
        self.flag = False

    def set(self) -> None:
        self.flag = True

    def is_set(self) -> bool:
        return self.flag

    def wait(self, timeout: float | None = None) -> bool:
        return me().wait(self.is_set, timeout)


class Thread:
    ident: Any = None
    owner: Any = None
    task: Any = None

    def __init__(
        self, target: Any, args: Any = (), name: str = "", daemon: bool = True
    ) -> None:
        self.name, self.target = name, lambda: target(*args)

    def start(self) -> None:
        if self.task:
            raise RuntimeError("threads can only be started once")
        scheduler = me().scheduler
        scheduler.starts += 1
        if scheduler.starts in scheduler.refused:
            raise RuntimeError("can't start new thread")
        self.task = scheduler.spawn(self.target, self.name)
        self.task.owner = self.owner
        self.ident = self.task.ident

    def join(self, timeout: float | None = None) -> None:
        self.task.join(timeout)


THREADING = types.SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    Semaphore=threading.Semaphore,
    enumerate=lambda: [task for task in me().scheduler.tasks if not task.done],
    get_ident=lambda: me().ident,
    current_thread=lambda: me(),
    main_thread=lambda: None,
)
TIME = types.SimpleNamespace(
    **{name: getattr(time, name) for name in ("time", "strftime", "gmtime")},
    monotonic=lambda: getattr(running, "task", None) and me().scheduler.now or 0.0,
    sleep=lambda seconds: me().wait(lambda: False, seconds),
)


def switch() -> None:
    """Let another task go on here, if the plan says so."""
    me().scheduler.switch(me())


def pause() -> None:
    """Be so slow that all others go on."""
    me().wait(lambda: False, 1 / 1024)


# ---- planting, in a module that has just been made. An Edit makes a function again
# from its syntax tree, in which it has changed something; a Patch puts another one in
# its place. Both name it as "Class.method", "Class.method.inner" or "function", and
# what they look for in it by a name: never by the text.
class CannotPlant(Exception):
    """The place of a planted bug is gone; its text says what is missing."""


class Edit(NamedTuple):
    """Change each node of a function for which `change` returns something else."""

    path: str
    lacks: str  # what to say if there is no such node
    change: Callable[[Any], Any]

    def apply(self, module: Any) -> None:
        """Make the function again, changed, in the module."""
        path = self.path.split(".")
        found: list[Any] = [TREE]
        for name in path:
            inside = [one for one in found[-1].body if getattr(one, "name", "") == name]
            if not inside:
                raise CannotPlant(f"there is no {self.path}")
            found.append(inside[-1])
        # A function that stands in another one is made with that.
        first = next(i for i, one in enumerate(found) if hasattr(one, "args"))
        function = copy.deepcopy(found[first])
        changed = Changer(self.change)
        place = function
        for name in path[first:]:
            place = next(one for one in place.body if getattr(one, "name", "") == name)
        place.body = changed.visit(place).body
        if not changed.count:
            raise CannotPlant(f"{self.path} {self.lacks}")

        owner = module
        for name in path[: first - 1]:
            owner = getattr(owner, name)
        # super() finds the class under this name.
        maker = ast.parse(
            "from __future__ import annotations\ndef make(__class__): pass"
        )
        maker.body[1].body = [  # type: ignore[attr-defined]
            function,
            ast.Return(ast.Name(function.name, ast.Load())),
        ]
        code = compile(ast.fix_missing_locations(maker), str(SOURCE), "exec")
        exec(code, vars(module))
        setattr(owner, function.name, vars(module).pop("make")(owner))


class Changer(ast.NodeTransformer):
    """Changes nodes from the innermost outwards, and counts those that it changes."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change, self.count = change, 0

    def visit(self, node: Any) -> Any:
        self.generic_visit(node)
        changed = self.change(node)
        if changed is not node:
            self.count += 1
            if isinstance(changed, ast.AST):
                ast.copy_location(changed, node)
        return changed


class Patch(NamedTuple):
    """Call `wrong` in place of a function: it is given the right one first."""

    path: str
    wrong: Callable[..., Any]

    def apply(self, module: Any) -> None:
        """Change the module."""
        *above, name = self.path.split(".")
        owner = module
        for one in above:
            owner = getattr(owner, one, None)
        right = vars(owner).get(name) if owner else None
        if not callable(right):
            raise CannotPlant(f"there is no function {self.path}")
        wrong = self.wrong

        def planted(*arguments: Any, **named: Any) -> Any:
            return wrong(right, *arguments, **named)

        setattr(owner, name, planted)


def mentions(node: Any, name: str) -> bool:
    """Tell whether a name is used in some code: `lock`, `listeners.pop`, "serves"."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and one.value == name:
            return True
        if isinstance(one, (ast.Name, ast.Attribute)):
            if f".{ast.unparse(one)}".endswith(f".{name}"):
                return True
    return False


def edits(kind: Any, lacks: str) -> Callable[[Any], Callable[..., Edit]]:
    """Make a maker of Edits of one function: it is given a node of a kind, a name, and
    what else it needs; it returns what stands there instead, or None: the same node."""

    def decorate(change: Any) -> Callable[..., Edit]:
        def make(path: str, name: str, *more: Any) -> Edit:
            def replace(node: Any) -> Any:
                found = change(node, name, *more) if isinstance(node, kind) else None
                return node if found is None else found

            return Edit(path, lacks.format(name, *more), replace)

        return make

    return decorate


@edits(ast.With, "does not take {}")
def drops_lock(node: Any, name: str) -> Any:
    """Have a function do without a lock what it does with it."""
    kept = [one for one in node.items if not mentions(one, name)]
    if len(kept) < len(node.items):
        return ast.With(items=kept, body=node.body) if kept else node.body
    return None


@edits(ast.Expr, "does not call {}()")
def drops_call(node: Any, name: str) -> Any:
    """Have a function leave out a call whose result it does not use."""
    if isinstance(node.value, ast.Call) and mentions(node.value.func, name):
        return ast.Pass()
    return None


@edits((ast.Assign, ast.AugAssign, ast.AnnAssign), "does not assign {}")
def drops_assignment(node: Any, name: str) -> Any:
    """Have a function leave out what it assigns to a name, or below it."""
    targets = getattr(node, "targets", None) or [node.target]
    return ast.Pass() if any(mentions(one, name) for one in targets) else None


@edits(ast.Assign, "does not assign {}")
def assigns(node: Any, name: str, value: bool) -> Any:
    """Have a function assign something else to a name, once it has found its value."""
    if mentions(node.targets[0], name):
        return [node, ast.Assign(targets=node.targets, value=ast.Constant(value))]
    return None


@edits(ast.BoolOp, "has no condition with {} beside others")
def drops_condition(node: Any, name: str) -> Any:
    """Have a function leave out one of several conditions, with what it calls."""
    kept = [one for one in node.values if not mentions(one, name)]
    if len(kept) in (0, len(node.values)):
        return None
    return kept[0] if len(kept) == 1 else ast.BoolOp(op=node.op, values=kept)


@edits(ast.Try, "handles no exception of {}")
def drops_handler(node: Any, name: str) -> Any:
    """Have a function let exceptions pass that it handles, in a `try` with a name."""
    if mentions(node, name) and node.handlers:
        return [*node.body, *node.orelse, *node.finalbody]
    return None


@edits((ast.If, ast.IfExp), "has no `if` with {}")
def decides(node: Any, name: str, value: bool) -> Any:
    """Have an `if` whose test has a name decide one way, whatever is the case."""
    if not mentions(node.test, name):
        return None
    changed = copy.copy(node)
    changed.test = ast.copy_location(ast.Constant(value), node.test)
    return changed


@edits(ast.Attribute, "does not call {}()")
def calls_instead(node: Any, name: str, other: str) -> Any:
    """Have a function call another method: notify() in place of notify_all()."""
    if node.attr == name:
        return ast.Attribute(value=node.value, attr=other, ctx=node.ctx)
    return None


@edits(ast.AST, "does not have {} before {}")
def delays(node: Any, name: str, behind: str) -> Any:
    """Have a function take one step, which has a name, only after another one."""
    block = getattr(node, "body", None)
    if not isinstance(block, list):
        return None
    first = next((one for one in block if mentions(one, name)), None)
    second = next((one for one in block if mentions(one, behind)), None)
    if not first or not second or block.index(first) >= block.index(second):
        return None
    order = [one for one in block if one is not first]
    order.insert(order.index(second) + 1, first)
    changed = copy.copy(node)
    changed.body = order
    return changed


def load(planted: Any = None) -> Any:
    """Make the module from its text, with our threads and clock in it, and a bug."""
    module: Any = types.ModuleType("mcp_ref")
    module.__file__ = str(SOURCE)
    sys.modules["mcp_ref"] = module
    exec(SOUND, vars(module))
    # Futures are the library's own, and wait as the module does.
    vars(concurrent.futures._base)["threading"] = THREADING
    module.threading = types.SimpleNamespace(**vars(THREADING))
    module.time = TIME
    module.log = lambda line: None
    module.CHECK_SECONDS = 0.25  # exactly, so that things happen at once
    if planted:
        planted.apply(module)
    return module


TREE = ast.parse(TEXT)
FUNCTIONS = {one.name for one in ast.walk(TREE) if isinstance(one, ast.FunctionDef)}
SOUND = compile(TREE, str(SOURCE), "exec")


# ---- the models: each returns a check, which is called in the end
class Wire:
    """Stands for an exchange: who writes, and what."""

    def __init__(self, fails_after: int = 10**9, is_slow: bool = False) -> None:
        self.headers: dict[str, str] = {}
        self.is_slow = is_slow
        self.query = ""
        self.extra: dict[str, str] = {}
        self.said: list[bytes] = []
        self.ends, self.hangs, self.status = 0, 0, 0
        self.writing: Any = None
        self.left, self.name, self.address = fails_after, "wire", ""
        self.principal: Any = None

    def start(self, status: int, headers: Any, body: Any) -> None:
        self.status = status
        self.put(b"" if body is None else body)

    def put(self, data: bytes) -> None:
        assert self.writing is None, "two threads write at once"
        assert not self.ends, "something is written behind the end"
        self.writing = me()
        if self.is_slow:
            pause()
        switch()
        self.writing = None
        self.left -= 1
        if self.left < 0:
            raise OSError("hung up")
        self.said.append(data)

    write = put

    def comment(self) -> None:
        self.put(b": ")

    def end(self, hang_up: bool = False) -> None:
        self.put(b"")
        self.ends += 1

    def leave(self) -> None:
        """Hang up, as the client."""
        self.left = -1

    def gone(self) -> bool:
        return self.left < 0

    def hang_up(self) -> None:
        self.hangs += 1

    def text(self) -> str:
        return b"".join(self.said).decode()


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r'"n":(\d+)', text)]


def note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "n", "params": {"n": number}}


def result(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"n": number}}


def request(mcp: Any, method: str, **params: Any) -> dict[str, Any]:
    """Make a modern request, whose id is 1."""
    meta = {mcp.META_VERSION: mcp.versions()[0], mcp.META_CAPABILITIES: {}}
    params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def cancellation() -> dict[str, Any]:
    params = {"requestId": 1}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def opening(**capabilities: Any) -> dict[str, Any]:
    params = {"protocolVersion": "2025-06-18", "clientInfo": {}}
    whole = {**params, "capabilities": capabilities}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": whole}


def has_tool(mcp: Any, server: Any, function: Any) -> None:
    """Register a function of the Context as the tool `tool`."""
    function.__annotations__ = {"ctx": mcp.Context, "return": str}
    server.tool(function, name="tool")


# ---- ... of answers: their writers, their outbox, and readers that come back
def two_writers(mcp: Any, scheduler: Scheduler) -> Any:
    """A call emits and ends while comments are due: one thread writes at a time, and
    all of it comes once, in order."""
    mcp.KEEP_ALIVE_SECONDS = -1
    wire = Wire(is_slow=True)
    answer = mcp.Answer(wire, mcp.Peer())

    def post() -> None:
        for number in range(3):
            answer(note(number))
        answer(result(3))
        answer.finish()
        assert wire.ends == 1

    def check() -> None:
        for _ in range(9):
            answer.check()
            pause()

    scheduler.spawn(post, "post")
    scheduler.spawn(check, "check")
    return lambda: numbers(wire.text()) == [0, 1, 2, 3]


def cancelled(mcp: Any, scheduler: Scheduler) -> Any:
    """A call that was cancelled after an event ends its stream without a response."""
    wire = Wire()

    def post() -> None:
        answer = mcp.Answer(wire, mcp.Peer())
        answer(note(0))
        answer.finish()

    scheduler.spawn(post, "post")
    return lambda: scheduler.passed() == 0 and numbers(wire.text()) == [0] and wire.ends


def new_session(mcp: Any, endpoint: Any) -> Any:
    """Make a session that can be found, and expires soon."""
    mcp.SESSION_SECONDS = mcp.ASK_SECONDS = 3
    session = mcp.HttpSession(endpoint, Wire())
    endpoint.sessions.add(session)
    return session


def get(session: Any, wire: Wire, last: str = "") -> None:
    """Serve a GET of a session; what is refused has a status."""
    wire.headers["mcp-session-id"] = session.id
    if last:
        wire.headers["last-event-id"] = last
    mcp = sys.modules["mcp_ref"]
    try:
        mcp.serve_session_get(session.endpoint, wire)
    except mcp.HttpError as refusal:
        wire.status = refusal.status


STREAMS = """
    __call__ stream flush _write finish check _has_left _lose_client attach wait take
    is_done detach add add_change end drop_old give_up run_handler listen
    serve_session_get disconnect
""".split()


def resuming(mcp: Any, scheduler: Scheduler, first: Wire, second: Wire) -> Any:
    """Have a call emit to a first connection, while its client has seen one event, and
    resumes on a second one."""
    session = new_session(mcp, mcp.Endpoint(mcp.Server("s")))
    answer = mcp.SessionAnswer(first, session)
    scheduler.functions = STREAMS

    def call() -> None:
        for number in range(4):
            answer(note(number))
        me().wait(lambda: second.said or second.status)
        answer(result(4))
        answer.finish()

    def client() -> None:
        me().wait(lambda: numbers(first.text()))
        get(session, second, f"{answer.outbox.name}-1")

    scheduler.spawn(call, "call")
    scheduler.spawn(client, "client")
    return lambda: (
        scheduler.passed() < 1
        and numbers(second.text()) == [1, 2, 3, 4]
        and second.ends == 1
    )


def reader_replaced(mcp: Any, scheduler: Scheduler) -> Any:
    """A GET resumes a stream while its call still writes to the first connection: its
    client gets everything that it has not seen, in order, and one end."""
    return resuming(mcp, scheduler, Wire(), Wire(is_slow=True))


def reader_leaves(mcp: Any, scheduler: Scheduler) -> Any:
    """... when the first connection breaks."""
    return resuming(mcp, scheduler, Wire(fails_after=3), Wire())


def reader_makes_way(mcp: Any, scheduler: Scheduler) -> Any:
    """A GET takes over: the answer of the other one ends at once."""
    session = new_session(mcp, mcp.Endpoint(mcp.Server("s")))
    first, second = Wire(), Wire()

    def take_over() -> None:
        me().wait(lambda: first.status)
        get(session, second)

    def end() -> None:
        me().wait(lambda: first.ends)
        session.own.end()

    scheduler.spawn(lambda: get(session, first), "first")
    scheduler.spawn(take_over, "second")
    scheduler.spawn(end, "end")
    return lambda: scheduler.passed() == 0 and (first.ends, second.ends) == (1, 1)


def changes_meet(mcp: Any, scheduler: Scheduler) -> Any:
    """Two threads tell a session of the same change, which is told once; then of others,
    while its GET sends them, and wait for nobody."""
    session = new_session(mcp, mcp.Endpoint(mcp.Server("s")))
    wire = Wire(is_slow=True)
    scheduler.functions = STREAMS
    left = [2]

    def changes(number: int) -> None:
        session.push(note(9))
        left[0] -= 1
        me().wait(lambda: number + 8 in [8, *numbers(wire.text())])
        me().wait(lambda: False, number / 64)  # the GET waits
        began = scheduler.now
        session.push(note(number))
        assert scheduler.now == began, "a change waits for a client"

    def listen() -> None:
        me().wait(lambda: not left[0])
        get(session, wire)

    def end() -> None:
        me().wait(lambda: {0, 1} <= set(numbers(wire.text())))
        session.close()

    for number in (0, 1):
        scheduler.spawn(lambda number=number: changes(number), f"change {number}")
    scheduler.spawn(listen, "get")
    scheduler.spawn(end, "end")
    return lambda: (
        sorted(numbers(wire.text())) == [0, 1, 9]
        and wire.ends == 1
        and scheduler.passed() < 1
    )


# ---- ... of subscriptions, and of how requests end
LISTENING = [
    *STREAMS,
    *"begin end tell push prepare close changed notify serve_listen _emit _finish".split(),
    *"_become _cancel _wake_with cancel_all".split(),
]


def listening(mcp: Any, scheduler: Scheduler, server: Any, wire: Wire) -> Any:
    """Have a task POST a subscription; return the endpoint."""
    server.declared.add("tools")
    endpoint = mcp.Endpoint(server)
    scheduler.functions = LISTENING
    message = request(
        mcp, "subscriptions/listen", notifications={"toolsListChanged": True}
    )
    scheduler.spawn(lambda: post(mcp, endpoint, wire, message), "post")
    return endpoint


def post(mcp: Any, endpoint: Any, wire: Wire, message: Any) -> None:
    """Serve a POST as an endpoint does; what it refuses, it says to the wire."""
    if "_meta" in message.get("params", {}):
        wire.headers["mcp-protocol-version"] = mcp.versions()[0]
        wire.headers["mcp-method"] = message["method"]
    endpoint.read_message = lambda exchange: message
    try:
        endpoint.post(wire)
    except mcp.HttpError as refusal:
        wire.start(refusal.status, {}, b"refused")


def listener_ends(mcp: Any, scheduler: Scheduler) -> Any:
    """A subscription ends while something changes: acknowledged first, one response
    last, and it is no listener any more."""
    server, wire = mcp.Server("s"), Wire(is_slow=True)
    endpoint = listening(mcp, scheduler, server, wire)

    def close() -> None:
        me().wait(lambda: bool(server.listeners))
        server.changed("tools")
        began = scheduler.now
        endpoint.close()
        assert scheduler.now == began, "close() waits for a client"

    scheduler.spawn(lambda: server.changed("tools"), "changed")
    scheduler.spawn(close, "close")

    def check() -> bool:
        said = [json.loads(one) for one in re.findall("data: (.*)", wire.text())]
        return (
            "acknowledged" in said[0]["method"]
            and "result" in said[-1]
            and "changed" in said[1].get("method", "")
            and scheduler.passed() < 1
            and not server.listeners
            and wire.ends == 1
        )

    return check


def listener_meets_close(mcp: Any, scheduler: Scheduler) -> Any:
    """A subscription begins while its endpoint closes: it ends, with a response."""
    server, wire = mcp.Server("s"), Wire()
    endpoint = listening(mcp, scheduler, server, wire)

    def close() -> None:
        me().wait(lambda: any(one.peer.running for one in endpoint.answers))
        endpoint.close()

    scheduler.spawn(close, "close")
    return lambda: (
        scheduler.passed() < 1 and '"result"' in wire.text() and not server.listeners
    )


def listener_meets_hang_up(mcp: Any, scheduler: Scheduler) -> Any:
    """The client of a subscription hangs up: the subscription is forgotten."""
    server, wire = mcp.Server("s"), Wire()
    endpoint = listening(mcp, scheduler, server, wire)

    def leave() -> None:
        me().wait(lambda: False, 0.5)  # when mcp-check looks
        wire.leave()

    scheduler.spawn(leave, "client")
    return lambda: scheduler.passed() < 2 and not (server.listeners or endpoint.answers)


def listen_on_a_pipe(
    mcp: Any, scheduler: Scheduler, server: Any, sent: list[Any]
) -> Any:
    """Have a task subscribe where messages keep their order; return the peer."""
    server.declared.add("tools")
    peer = mcp.Peer(sent.append)
    message = request(
        mcp, "subscriptions/listen", notifications={"toolsListChanged": True}
    )
    scheduler.functions = LISTENING
    scheduler.spawn(lambda: server.handle(message, sent.append, peer=peer), "listen")
    return peer


def listener_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A subscription is cancelled while it begins: it hears nothing afterwards, and has
    no response."""
    server, sent = mcp.Server("s"), []  # type: Any, list[Any]
    peer = listen_on_a_pipe(mcp, scheduler, server, sent)

    def cancel() -> None:
        me().wait(lambda: peer.running)
        server.handle(cancellation(), sent.append, peer=peer)
        server.changed("tools")

    scheduler.spawn(cancel, "cancel")
    return lambda: (
        not (server.listeners or peer.running)
        and all("acknowledged" in one.get("method", "") for one in sent)
    )


def listener_hears_all(mcp: Any, scheduler: Scheduler) -> Any:
    """Something changes when the client has read the acknowledgement, and something
    before: it hears of the former, and of neither before the acknowledgement."""
    server, sent = mcp.Server("s"), []  # type: Any, list[Any]
    listen_on_a_pipe(mcp, scheduler, server, sent)

    def client() -> None:
        me().wait(lambda: sent)
        count = len(sent)
        server.changed("tools")
        assert len(sent) > count, "a change after the acknowledgement is lost"

    scheduler.spawn(client, "client")
    scheduler.spawn(lambda: server.changed("tools"), "changed")
    return lambda: "acknowledged" in sent[0]["method"]


def initialize_meets_close(mcp: Any, scheduler: Scheduler) -> Any:
    """A session opens while its peer closes: it is no listener afterwards."""
    server, sent = mcp.Server("s"), []  # type: Any, list[Any]
    peer = mcp.Peer(sent.append)
    scheduler.spawn(lambda: server.handle(opening(), sent.append, peer=peer), "open")
    scheduler.spawn(peer.close, "close")
    return lambda: not server.listeners and len(sent) == 1


def initializes_meet(mcp: Any, scheduler: Scheduler) -> Any:
    """Two requests open a session of one peer: one of the two is left, and listens."""
    server, sent = mcp.Server("s"), []  # type: Any, list[Any]
    peer = mcp.Peer(sent.append)
    for name in ("one", "two"):
        scheduler.spawn(lambda: server.handle(opening(), sent.append, peer=peer), name)
    return lambda: list(server.listeners) == [peer.session] and len(sent) == 2


ENDING = """
    on_cancel _wake_with _cancel _become cancel_all take_notification _finish _emit _perform
    handle
""".split()


def response_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A request is cancelled while it responds: one of the two, and on_cancel once."""
    server, sent, told = mcp.Server("s"), [], []  # type: Any, list[Any], list[int]

    def tool(ctx: Any) -> str:
        ctx.on_cancel(lambda: told.append(1))
        return "x"

    has_tool(mcp, server, tool)
    peer = mcp.Peer()
    call = request(mcp, "tools/call", name="tool")
    scheduler.functions = ENDING
    scheduler.spawn(lambda: server.handle(call, sent.append, peer=peer), "call")
    scheduler.spawn(
        lambda: server.handle(cancellation(), sent.append, peer=peer), "cancel"
    )
    return lambda: (
        (len(sent), len(told)) in ((1, 0), (0, 1), (0, 0)) and not peer.running
    )


def cancel_meets_on_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A request is cancelled while its handler registers a function: it runs once."""
    server, begun, told = mcp.Server("s"), [], []  # type: Any, list[int], list[int]
    peer = mcp.Peer()

    def tool(ctx: Any) -> str:
        begun.append(1)
        ctx.on_cancel(lambda: told.append(1))
        me().wait(lambda: ctx.cancelled)
        return ""

    has_tool(mcp, server, tool)
    scheduler.functions = "on_cancel _wake_with _cancel _become cancel_all".split()

    def cancel() -> None:
        me().wait(lambda: begun)
        peer.cancel_all()

    call = request(mcp, "tools/call", name="tool")
    scheduler.spawn(lambda: server.handle(call, mcp.drop, peer=peer), "call")
    scheduler.spawn(cancel, "cancel")
    scheduler.spawn(cancel, "cancel again")
    return lambda: told == [1] and not peer.running


def run_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """The thread of `run=` comes to a call when it is cancelled, or given up: the call
    runs and is answered, or does not run."""
    jobs, sent, ran = [], [], []  # type: list[Any], list[Any], list[int]
    mcp.RUN_SECONDS = 1
    server, peer = mcp.Server("s", run=jobs.append), mcp.Peer()

    def tool(ctx: Any) -> str:
        ran.append(1)
        return "x"

    has_tool(mcp, server, tool)
    scheduler.functions = [*ENDING, "call", "run_next"]

    def until_given_up() -> None:
        for _ in range(11):  # it is looked at every 0.1 s
            me().wait(lambda: False, 0.1)

    def application() -> None:
        until_given_up()
        for job in jobs:
            job()

    def call() -> None:
        message = request(mcp, "tools/call", name="tool")
        server.handle(message, sent.append, peer=peer)

    def cancel() -> None:
        until_given_up()
        server.handle(cancellation(), sent.append, peer=peer)

    scheduler.spawn(call, "call")
    scheduler.spawn(application, "application")
    scheduler.spawn(cancel, "cancel")

    def check() -> bool:
        has_result = any("result" in one for one in sent)
        return (
            len(ran) <= 1
            and len(sent) <= 1
            and (bool(ran) if has_result else not (sent and ran))
            and not peer.running
        )

    return check


# ---- ... of questions to a session
QUESTIONS = """
    take_response fail_questions _obtain _asking answers_in _become _cancel
    _wake_with cancel_all close take_notification _finish
"""


def server_that_asks(mcp: Any, ask: Any = None) -> tuple[Any, list[str]]:
    """Make a server with a tool that asks for roots, or what else is given; return what
    the tool gets, too."""
    mcp.ASK_SECONDS = 5
    server, got = mcp.Server("s"), []  # type: Any, list[str]

    def tool(ctx: Any) -> str:
        ctx.peer.begun = True
        try:
            got.append(str(ask(ctx) if ask else ctx.list_roots()))
        except mcp.AskError as problem:
            got.append(str(problem))
        return "x"

    has_tool(mcp, server, tool)
    return server, got


def asking(mcp: Any, ask: Any = None) -> tuple[Any, Any, list[Any], list[str]]:
    """Open a session with a tool that asks; return how to send as its client, its peer,
    what is sent to it, and what the tool got."""
    server, got = server_that_asks(mcp, ask)
    sent: list[Any] = []
    peer = mcp.Peer(sent.append)

    def client(message: Any) -> None:
        server.handle(message, sent.append, peer=peer)

    client(opening(roots={}))
    client({"jsonrpc": "2.0", "method": "notifications/initialized"})
    del sent[:]
    return client, peer, sent, got


def question(
    mcp: Any, scheduler: Scheduler, answers: float | None, cancels: bool, closes: bool
) -> Any:
    """Have a tool ask; the client answers after some seconds, cancels, or leaves."""
    client, peer, sent, got = asking(mcp)
    scheduler.functions = QUESTIONS.split()
    message = {"id": 1, "method": "tools/call", "params": {"name": "tool"}}
    scheduler.spawn(lambda: client({"jsonrpc": "2.0", **message}), "call")

    def gives_up() -> bool:
        return any("cancelled" in one.get("method", "") for one in sent)

    def answer() -> None:
        me().wait(lambda: sent or got)  # the question, if it comes to that
        if answers:
            me().wait(lambda: False, answers)
        if not gives_up():  # or nobody waits for it
            client({"jsonrpc": "2.0", "id": 1, "result": {"roots": []}})

    def once_it_runs(act: Any) -> Any:
        def wait_and_act() -> None:
            me().wait(lambda: hasattr(peer, "begun"))
            act()

        return wait_and_act

    if answers is not None:
        scheduler.spawn(answer, "answer")
    if cancels:
        scheduler.spawn(once_it_runs(lambda: client(cancellation())), "cancel")
    if closes:
        scheduler.spawn(once_it_runs(peer.close), "close")

    def check() -> bool:
        responses = len([one for one in sent if "result" in one])
        return (
            len(got) == 1
            and (responses == 1 or (cancels and not responses))
            and (scheduler.passed() < 5 or bool(answers))
            and not (gives_up() and got == ["[]"])
            and not (peer.questions or peer.running)
        )

    return check


def question_meets_all(mcp: Any, scheduler: Scheduler) -> Any:
    """An answer, a cancellation and the end of the session come at once: one of them
    settles the question."""
    return question(mcp, scheduler, 0, cancels=True, closes=True)


def question_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A call is cancelled while it asks: nobody waits for an answer."""
    return question(mcp, scheduler, None, cancels=True, closes=False)


def question_meets_close(mcp: Any, scheduler: Scheduler) -> Any:
    """A session ends while a call asks: nobody waits for an answer."""
    return question(mcp, scheduler, None, cancels=False, closes=True)


def question_meets_its_limit(mcp: Any, scheduler: Scheduler) -> Any:
    """An answer comes when the time for it has passed: it is taken, or given up."""
    return question(mcp, scheduler, 5, cancels=False, closes=False)


def answers_meet(mcp: Any, scheduler: Scheduler) -> Any:
    """A call asks two questions, and both answers come at once: it gets both."""
    both = {"a": mcp.roots(), "b": mcp.roots()}
    client, _, sent, got = asking(mcp, lambda ctx: ctx.ask(both))
    scheduler.functions = QUESTIONS.split()

    def answer(ident: int) -> None:
        me().wait(lambda: len(sent) == 2)
        client({"jsonrpc": "2.0", "id": ident, "result": {"roots": []}})

    message = {"id": 9, "method": "tools/call", "params": {"name": "tool"}}
    scheduler.spawn(lambda: client({"jsonrpc": "2.0", **message}), "call")
    for ident in (1, 2):
        scheduler.spawn(lambda ident=ident: answer(ident), f"answer {ident}")
    wanted = str(dict.fromkeys("ab", {"roots": []}))
    return lambda: got == [wanted] and scheduler.passed() < 5


def question_meets_drain(mcp: Any, scheduler: Scheduler, answers: bool = True) -> Any:
    """An endpoint closes while a call asks: the answer still counts."""
    server, got = server_that_asks(mcp)
    endpoint = mcp.Endpoint(server)
    session = new_session(mcp, endpoint)
    params: Any = {"capabilities": {"roots": {}}}
    mcp.Session(server, session, mcp.versions("legacy")[0], params).open()
    scheduler.functions = ["post", "close", *QUESTIONS.split()]

    def send(wire: Any, message: Any) -> None:
        wire.headers["mcp-session-id"] = session.id
        post(mcp, endpoint, wire, {"jsonrpc": "2.0", **message})

    def close() -> None:
        me().wait(lambda: session.questions)
        endpoint.close()
        if answers:
            send(Wire(), {"id": 1, "result": {"roots": []}})
        me().wait(lambda: got, 1)
        endpoint.close()

    call = {"id": 9, "method": "tools/call", "params": {"name": "tool"}}
    scheduler.spawn(lambda: send(Wire(), call), "call")
    scheduler.spawn(close, "close")

    def check() -> bool:
        is_right = got == ["[]"] if answers else "closing" in got[0]
        return is_right and scheduler.passed() < 5 and not endpoint.sessions.all()

    return check


def question_meets_the_end(mcp: Any, scheduler: Scheduler) -> Any:
    """An endpoint closes twice while a call asks: then nobody waits for an answer."""
    return question_meets_drain(mcp, scheduler, answers=False)


# ---- ... of connections
def connections(mcp: Any, scheduler: Scheduler) -> Any:
    """Connections are accepted, evicted and closed: never too many, and a connection
    that has lost its place knows before it serves. An answer that is not read is cut,
    but not a handler."""
    mcp.MAX_CONNECTIONS, mcp.STALL_SECONDS = 1, 0
    httpd = mcp.HttpServer.__new__(mcp.HttpServer)
    httpd.steps, httpd.lock = {}, mcp.threading.Lock()
    hung: list[str] = []
    mcp.hang_up = hung.append
    served: list[str] = []
    step = mcp.Step

    def connect(name: str) -> None:
        if not httpd.admit(name):
            return
        assert len(httpd.steps) <= 1, "too many connections"
        try:
            httpd.step(name, step.READS, 30)
            httpd.step(name, step.SERVES)
            served.append(name)
            switch()
            assert name not in hung, "a request that is served is cut"
            httpd.step(name, step.SENDS, 30)
            httpd.step(name, step.SERVES)
            httpd.leave(name)
        except OSError:
            assert name in hung, "it has a place"

    for name in "ab":
        scheduler.spawn(lambda name=name: connect(name), name)
    return lambda: not httpd.steps and served


# ---- ... of stdio: the reader, its deputy, and the queue
PIPE = """
    _read _serve _run _stand_by _empty_queue _is_busy serve spawn run_aside _finish
""".split()
NULL = os.open(os.devnull, os.O_RDWR)


class Host:
    """The client of a server on stdio. It writes `calls`, one a line: the tool takes so
    many BLINK_SECONDS. A negative one lets time pass; text is a line as it is.

        answered    when each was answered, in BLINK_SECONDS, by its place in `calls`
        returned    when serve() had returned
        fails       places whose results cannot be sent
        reads       BLINK_SECONDS that it takes to read an answer
    """

    def __init__(
        self, mcp: Any, scheduler: Scheduler, calls: list[Any], threads: int = 2
    ) -> None:
        mcp.MAX_THREADS, mcp.LEAVE_SECONDS = threads, 2
        mcp.BLINK_SECONDS = 1 / 64  # exactly, so that things happen at the same time
        scheduler.now, scheduler.functions = 1.0, PIPE
        self.mcp, self.scheduler, self.threads = mcp, scheduler, threads
        self.calls = list(enumerate(calls))
        self.answered: dict[int, float] = {}
        self.fails: set[int] = set()
        self.reads = 0
        self.returned, self.running, self.reader = 0.0, 0, None  # type: float, int, Any
        server = mcp.Server("s")
        server.tool(self.do, name="do")
        self.pipe = mcp.Pipe(server, NULL, NULL)
        self.pipe._source = types.SimpleNamespace(readline=self.readline)
        self.pipe._await_hang_up = lambda: None
        self.pipe.send = self.send
        scheduler.spawn(self.serve, "serve")

    def now(self) -> float:
        return (self.scheduler.now - 1) * 64

    def serve(self) -> None:
        self.pipe.serve()
        self.returned = self.now()

    def do(self, seconds: float) -> None:
        self.running += 1
        if self.running > self.threads:
            self.scheduler.failure = "too many handlers run at once"
        if seconds:
            self.mcp.time.sleep(seconds / 64)
        self.running -= 1

    def readline(self, size: int) -> bytes:
        assert not self.reader, "two threads read"
        self.reader = me()
        switch()
        place, call = self.calls.pop(0) if self.calls else (0, "")
        if isinstance(call, str):
            line = call.encode()
        elif call < 0:
            self.mcp.time.sleep(-call / 64)
            line = b"\n"
        else:
            arguments = {"seconds": call}
            call = request(self.mcp, "tools/call", name="do", arguments=arguments)
            line = self.mcp.encode({**call, "id": place})
        self.reader = None
        return line

    def send(self, message: Any) -> None:
        me().wait(lambda: not self.reads, self.reads / 64)
        if message.get("id") in self.fails and "result" in message:
            raise ValueError("it cannot be sent")
        if self.returned:
            self.scheduler.failure = "an answer comes after the end"
        if message.get("id") in self.answered:
            self.scheduler.failure = "a request is answered twice"
        if "id" in message:
            self.answered[message["id"]] = self.now()


def deputy_takes_over(mcp: Any, scheduler: Scheduler) -> Any:
    """A handler returns when the deputy takes over: each request is answered once, and
    a fast one before the slow ones."""
    host = Host(mcp, scheduler, [1, 60, 0.1, 0, -99, 1, 0], 3)
    return lambda: sorted(host.answered) == [0, 1, 2, 3, 5, 6] and host.answered[3] < 3


def deputy_has_ended(mcp: Any, scheduler: Scheduler) -> Any:
    """There is no deputy any longer when a slow call comes: the next one is answered
    first. The same while another one is slow."""
    host = Host(mcp, scheduler, [0, -120, 60, 0, -10, 60, 0], 3)
    return lambda: (
        sorted(host.answered) == [0, 2, 3, 5, 6]
        and host.answered[3] < 129
        and host.answered[6] < 145
    )


def handler_fails(mcp: Any, scheduler: Scheduler) -> Any:
    """What a handler sends fails, so that the handler does: its thread reads on, alone,
    or has been replaced."""
    host = Host(mcp, scheduler, [0, 1, -3, 0, 0])
    host.fails = {0, 1}
    return lambda: sorted(host.answered) == [3, 4]


def queued_handler_fails(mcp: Any, scheduler: Scheduler) -> Any:
    """The same of a handler from the queue: the next one is run."""
    host = Host(mcp, scheduler, [5, 1, 0], 1)
    host.fails = {1}
    return lambda: sorted(host.answered) == [0, 2]


def slow_calls_wait(mcp: Any, scheduler: Scheduler) -> Any:
    """A call comes when the only slow handler returns: it is run, here or there."""
    host = Host(mcp, scheduler, [5, -4, 2, 0], 1)
    return lambda: sorted(host.answered) == [0, 2, 3]


def waiting_call_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A call in the queue is cancelled when its turn comes: it is not answered, but the
    one behind it is."""
    line = mcp.encode(cancellation()).decode()
    host = Host(mcp, scheduler, [5, 3, 0, -4, line], 1)
    scheduler.functions = [*PIPE, *"take_notification _perform _become _cancel".split()]
    return lambda: sorted(host.answered) == [0, 2] and not host.pipe.running


def answer_meets_end(mcp: Any, scheduler: Scheduler) -> Any:
    """The client leaves while handlers run: serve() returns when all is answered."""
    host = Host(mcp, scheduler, [9, 2])
    host.reads = 2
    return lambda: sorted(host.answered) == [0, 1] and host.returned < 14


def answer_meets_stop(mcp: Any, scheduler: Scheduler) -> Any:
    """stop() comes while handlers run: what they send in time is sent before serve()
    returns, and the others are cancelled."""
    host = Host(mcp, scheduler, [1, 2, 60, -99])

    def stop() -> None:
        me().wait(lambda: len(host.answered) == 2)
        host.pipe.stop()

    scheduler.spawn(stop, "stop")
    return lambda: sorted(host.answered) == [0, 1] and host.returned < 20


def stop_meets_stop(mcp: Any, scheduler: Scheduler) -> Any:
    """stop() comes twice while serve() begins to wait: it returns at once."""
    host = Host(mcp, scheduler, [-99])
    scheduler.functions = [*PIPE, "stop"]
    scheduler.spawn(host.pipe.stop, "stop")
    scheduler.spawn(host.pipe.stop, "stop again")
    return lambda: host.returned < 1


def threads_are_refused(mcp: Any, scheduler: Scheduler) -> Any:
    """Now and then no thread can be started: the reader, deputies. The next one is."""
    scheduler.refused = {2, 3, 6, 8}
    host = Host(mcp, scheduler, [5, 60, 0, 60, 0, -99, 5, 0], 3)
    return lambda: (
        sorted(host.answered) == [0, 1, 2, 3, 4, 6, 7] and host.answered[2] < 9
    )


def no_thread_starts(mcp: Any, scheduler: Scheduler) -> Any:
    """Not even a reader can be started: each request is answered, a subscription at the
    end."""
    scheduler.refused = range(1, 10**6)
    listen = request(mcp, "subscriptions/listen", notifications={})
    line = mcp.encode(listen).decode()
    host = Host(mcp, scheduler, [3, line, 0, 2])
    return lambda: sorted(host.answered) == [0, 1, 2, 3]


# ---- ... of an endpoint: its end, its sessions, and clients that hang up
def endpoint_closes(mcp: Any, scheduler: Scheduler) -> Any:
    """An endpoint closes while sessions open and a client subscribes: none is left, and
    each is answered."""
    endpoint, one = mcp.Endpoint(mcp.Server("s")), Wire()
    peer = mcp.PostPeer({})
    answer = mcp.Answer(Wire(), peer)
    ended: list[int] = []
    peer.close = lambda: ended.append(1)
    scheduler.functions = (
        "post run_handler register add close handle _admit _initialize".split()
    )

    def wait() -> None:
        me().wait(lambda: ended)
        answer.ended = True

    scheduler.spawn(lambda: post(mcp, endpoint, one, opening()), "initialize")
    scheduler.spawn(lambda: endpoint.run_handler(answer, wait), "subscribe")
    scheduler.spawn(endpoint.close, "close")
    return lambda: one.said and not (endpoint.sessions.all() or endpoint.answers)


def sessions_make_way(mcp: Any, scheduler: Scheduler) -> Any:
    """Sessions open where there is room for one: never two; one that goes is closed."""
    mcp.MAX_SESSIONS = 1
    endpoint = mcp.Endpoint(mcp.Server("s"))
    endpoint.begin_checks = lambda: None  # or it would look for an hour
    opened: list[Any] = []

    def open_one() -> None:
        session = mcp.HttpSession(endpoint, Wire())
        opened.append(session)
        session.register()
        assert len(endpoint.sessions.all()) <= 1, "too many sessions"

    for name in "abc":
        scheduler.spawn(open_one, name)
    return lambda: (
        len(endpoint.sessions.all()) == 1 and sum(not one.closed for one in opened) == 1
    )


def sessions_expire(mcp: Any, scheduler: Scheduler) -> Any:
    """A session opens when the last one has expired, and mcp-check ends: the session
    expires, too, though no client comes."""
    mcp.SESSION_SECONDS = 1
    endpoint = mcp.Endpoint(mcp.Server("s"))
    scheduler.functions = "register add remove close expire begin_checks _check".split()
    opened: list[Any] = []

    def client(seconds: float) -> None:
        me().wait(lambda: False, seconds)
        session = mcp.HttpSession(endpoint, Wire())
        opened.append(session)
        session.register()

    scheduler.spawn(lambda: client(0), "first")
    scheduler.spawn(lambda: client(1.25), "second")  # when mcp-check looks
    return lambda: len(opened) == 2 and endpoint.sessions.is_empty()


def kept_is_forgotten(mcp: Any, scheduler: Scheduler) -> Any:
    """A session ends while one of its calls is answered with events: of these, nothing
    is kept for ever."""
    endpoint, wire = mcp.Endpoint(mcp.Server("s")), Wire()
    session = new_session(mcp, endpoint)
    mcp.ASK_SECONDS = 1
    answer = mcp.SessionAnswer(wire, session)
    scheduler.functions = "close remove keep expire finish begin_checks _check".split()

    def work() -> None:
        answer(note(0))
        me().wait(lambda: False, 0.5)  # when mcp-check looks
        answer(result(1))

    def client() -> None:
        me().wait(lambda: wire.said)
        session.close()

    scheduler.spawn(lambda: endpoint.run_handler(answer, work), "call")
    scheduler.spawn(client, "client")
    return lambda: (
        numbers(wire.text()) == [0, 1]
        and not endpoint.answers
        and endpoint.sessions.is_empty()
    )


def session_ends(mcp: Any, scheduler: Scheduler) -> Any:
    """A session ends while a call of it runs and its own stream is listened to: the
    call is answered, and then the stream ends."""
    server, listens, calls = mcp.Server("s"), Wire(), Wire()
    has_tool(mcp, server, lambda ctx: "x")
    endpoint = mcp.Endpoint(server)
    session = new_session(mcp, endpoint)
    mcp.Session(server, session, mcp.versions("legacy")[0], {}).open()
    calls.headers["mcp-session-id"] = session.id
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message = {**call, "params": {"name": "tool"}}
    scheduler.functions = [*STREAMS, *"close settle _finish find post".split()]

    def close() -> None:
        me().wait(lambda: session.running or calls.said)
        session.close()

    scheduler.spawn(lambda: get(session, listens), "get")
    scheduler.spawn(lambda: post(mcp, endpoint, calls, message), "post")
    scheduler.spawn(close, "delete")
    return lambda: (
        scheduler.passed() < 1
        and '"result"' in calls.text()
        and (listens.ends or listens.status == 404)
    )


def streams_leave_room(mcp: Any, scheduler: Scheduler) -> Any:
    """Streams without an end come at once where there is room for one."""
    mcp.MAX_CONNECTIONS = 2
    endpoint = mcp.Endpoint(mcp.Server("s"))
    scheduler.functions = ["run_handler", "begin_checks", "_check"]
    held: list[int] = []
    left = [3]

    def listen() -> None:
        answer = mcp.Answer(Wire(), mcp.Peer(), True)
        answer.ended = True

        def work() -> None:
            held.append(1)
            left[0] -= 1
            me().wait(lambda: left[0] == 0)

        try:
            endpoint.run_handler(answer, work)
        except mcp.HttpError:
            left[0] -= 1

    for name in "abc":
        scheduler.spawn(listen, name)
    return lambda: len(held) <= 1 and not endpoint.answers


HANGING_UP = [
    *STREAMS,
    *"begin_checks _check cancel_all _cancel _become _finish".split(),
]


def calling(mcp: Any, scheduler: Scheduler, server: Any, wire: Wire) -> Any:
    """Have a task POST a call of `tool`; return the endpoint."""
    endpoint = mcp.Endpoint(server)
    scheduler.functions = HANGING_UP
    message = request(mcp, "tools/call", name="tool")
    message["params"]["_meta"]["progressToken"] = 1
    wire.headers["mcp-name"] = "tool"
    scheduler.spawn(lambda: post(mcp, endpoint, wire, message), "post")
    return endpoint


def hang_up_meets_end(mcp: Any, scheduler: Scheduler) -> Any:
    """mcp-check notices a hang-up when the handler ends: the call is cancelled or
    answered, and no other request is read meanwhile."""
    server, wire, told = mcp.Server("s"), Wire(), []  # type: Any, Any, list[int]
    ended, wrong, looks = [], [], []  # type: list[int], list[int], list[int]

    def tool(ctx: Any) -> str:
        ctx.on_cancel(lambda: told.append(1))
        me().wait(lambda: looks, 5)
        return "x"

    def gone() -> bool:
        if scheduler.now > 0.4:
            looks.append(1)
        pause()
        wrong.extend(ended)  # its thread reads the next request
        return scheduler.now > 0.4

    has_tool(mcp, server, tool)
    endpoint = calling(mcp, scheduler, server, wire)
    wire.gone = gone
    real = endpoint.run_handler

    def run_handler(*given: Any) -> None:
        real(*given)
        ended.append(1)

    endpoint.run_handler = run_handler
    return lambda: (
        len(told) + ('"result"' in wire.text()) == 1
        and not wrong
        and wire.hangs <= 1
        and scheduler.passed() < 1
        and not endpoint.answers
    )


def hang_up_cancels(mcp: Any, scheduler: Scheduler) -> Any:
    """A client hangs up while its call sends events: it is cancelled soon."""
    server, wire = mcp.Server("s"), Wire()

    def tool(ctx: Any) -> str:
        ctx.progress(1)
        me().wait(lambda: ctx.cancelled, 60)
        return "x"

    has_tool(mcp, server, tool)
    endpoint = calling(mcp, scheduler, server, wire)

    def leave() -> None:
        me().wait(lambda: len(wire.said) > 1)
        wire.leave()

    scheduler.spawn(leave, "client")
    return lambda: scheduler.passed() < 1 and wire.hangs == 1 and not endpoint.answers


def hang_up_lets_go(mcp: Any, scheduler: Scheduler) -> Any:
    """A client of a session hangs up and stays away: its reader is let go, and the call
    goes on."""
    endpoint, wire = mcp.Endpoint(mcp.Server("s")), Wire()
    session = new_session(mcp, endpoint)
    answer = mcp.SessionAnswer(wire, session)
    scheduler.functions = HANGING_UP

    def work() -> None:
        answer(note(0))
        me().wait(lambda: answer.outbox.reader is None, 10)
        answer(result(1))

    def client() -> None:
        me().wait(lambda: len(wire.said) > 1)
        wire.leave()

    scheduler.spawn(lambda: endpoint.run_handler(answer, work), "call")
    scheduler.spawn(client, "client")
    return lambda: (
        scheduler.passed() < 2
        and wire.hangs == 1
        and answer.outbox.place == 2
        and not endpoint.answers
    )


def stream_is_closed(mcp: Any, scheduler: Scheduler) -> Any:
    """A call of a session has its client come back for the rest: the connection ends at
    once, and nothing is lost, or told twice."""
    endpoint, first, second = mcp.Endpoint(mcp.Server("s")), Wire(), Wire()
    session = new_session(mcp, endpoint)
    mcp.Session(endpoint.server, session, mcp.versions("legacy")[0], {}).open()
    answer = mcp.SessionAnswer(first, session)
    scheduler.functions = HANGING_UP

    def work() -> None:
        answer(note(0))
        answer.disconnect()
        answer(note(1))
        me().wait(lambda: answer.outbox.reader, 5)
        answer(result(2))

    def client() -> None:
        me().wait(lambda: first.ends)
        get(session, second, f"{answer.outbox.name}-1")

    scheduler.spawn(lambda: endpoint.run_handler(answer, work), "call")
    scheduler.spawn(client, "client")
    return lambda: (
        scheduler.passed() < 2
        and numbers(first.text()) == [0]
        and numbers(second.text()) == [1, 2]
    )


MODELS = [
    two_writers,
    changes_meet,
    reader_replaced,
    reader_makes_way,
    reader_leaves,
    cancelled,
    listener_ends,
    listener_meets_close,
    listener_meets_hang_up,
    listener_meets_cancel,
    listener_hears_all,
    initialize_meets_close,
    initializes_meet,
    response_meets_cancel,
    cancel_meets_on_cancel,
    run_meets_cancel,
    question_meets_all,
    question_meets_cancel,
    question_meets_close,
    question_meets_its_limit,
    answers_meet,
    question_meets_drain,
    question_meets_the_end,
    connections,
    deputy_takes_over,
    deputy_has_ended,
    handler_fails,
    queued_handler_fails,
    slow_calls_wait,
    waiting_call_meets_cancel,
    answer_meets_end,
    answer_meets_stop,
    stop_meets_stop,
    threads_are_refused,
    no_thread_starts,
    endpoint_closes,
    sessions_make_way,
    sessions_expire,
    kept_is_forgotten,
    session_ends,
    streams_leave_room,
    hang_up_meets_end,
    hang_up_cancels,
    stream_is_closed,
    hang_up_lets_go,
]


# ---- what is planted as a function
def run_and_read_on(run: Any, pipe: Any, handler: Any) -> bool:
    """Read on, whoever is the reader."""
    run(pipe, handler)
    return True


def empty_in_two_steps(empty: Any, pipe: Any) -> None:
    """Find nothing under one lock, and count out under the next."""
    while True:
        with pipe._lock:
            handler = pipe._queue.popleft() if pipe._queue else None
        if handler is None:
            pause()
            with pipe._lock:
                pipe._slow -= 1
            return
        handler()


def one_is_woken(condition: Any, *arguments: Any) -> Any:
    """Make a condition whose notify_all() wakes one."""
    made = condition(*arguments)
    made.notify_all = made.notify
    return made


def resume_after(count: Callable[[Any], int]) -> Patch:
    """Resume after another event than the one that was asked for."""

    def wrong(attach: Any, outbox: Any, reader: Any, after: Any = None) -> Any:
        return attach(outbox, reader, None if after is None else count(outbox))

    return Patch("Outbox.attach", wrong)


def check_in_two_steps(check: Any, answer: Any) -> None:
    """Look whether another thread writes, and not lock it out."""
    if not answer.lock.locked():
        pause()
        if not answer.ended and answer._has_left():
            answer.exchange.hang_up()
            answer._lose_client()


# ---- planted bugs: what is wrong, the model that must find it, how it is planted
PLANTED: list[tuple[str, Any, Any]] = [
    ("add() does not wake the reader", changes_meet, drops_call("Outbox.add", "notify_all")),
    ("changes are added without the lock", changes_meet, drops_lock("Outbox.add_change", "_moved")),
    ("a change that waits is added again", changes_meet, decides("Outbox.add_change", "_waiting", True)),
    ("events are sent without the lock", two_writers, drops_lock("Answer.flush", "lock")),
    ("a comment is sent while an event is", two_writers, Patch("Answer.check", check_in_two_steps)),
    ("detach() takes any reader", reader_replaced, decides("Outbox.detach", "reader", True)),
    ("attach() does not wake the other reader", reader_makes_way, drops_call("Outbox.attach", "notify_all")),
    ("end() does not wake", reader_makes_way, drops_call("Outbox.end", "notify_all")),
    ("wait() does not look who reads", reader_makes_way, Patch("Outbox.is_done", lambda right, outbox, reader: outbox.ended and not outbox._waiting())),
    ("take() does not look who reads", reader_replaced, drops_condition("Outbox.take", "reader")),
    ("what was sent is sent again", reader_leaves, drops_assignment("Outbox.take", "place")),
    ("resuming starts too late", reader_leaves, resume_after(lambda outbox: outbox.first + len(outbox.events))),
    ("resuming starts too early", reader_leaves, resume_after(lambda outbox: 0)),
    ("finish() does not end the outbox", cancelled, drops_call("Answer.finish", "outbox.end")),
    ("the thread that ends a subscription writes to its client", listener_ends, decides("Answer.__call__", "listens", True)),
    ("a subscription is not forgotten", listener_ends, drops_call("Subscription.end", "listeners.pop")),
    ("closing is not seen by a new subscription", listener_meets_close, decides("Subscription.begin", "peer.closed", False)),
    ("a subscription does not hear of its cancellation", listener_meets_cancel, drops_call("Subscription.begin", "_wake_with")),
    ("a subscription listens when it has said so", listener_hears_all, delays("Subscription.begin", "listeners", "notify")),
    ("changes do not wait for the acknowledgement", listener_hears_all, drops_lock("Subscription.begin", "_sending")),
    ("a session listens after close()", initialize_meets_close, decides("LegacyContext._initialize", "peer.closed", False)),
    ("close() leaves the session a listener", initialize_meets_close, drops_call("Peer.close", "listeners.pop")),
    ("two sessions of a peer are left", initializes_meet, drops_lock("LegacyContext._initialize", "opening")),
    ("a request ends twice", response_meets_cancel, decides("Context._become", "state", False)),
    ("on_cancel() after the cancellation is lost", cancel_meets_on_cancel, drops_call("Context._wake_with", "wake")),
    ("on_cancel() looks without the lock", cancel_meets_on_cancel, drops_lock("Context._wake_with", "_ending")),
    ("what was cancelled runs all the same", run_meets_cancel, decides("RunHook.run_next", "set_running_or_notify_cancel", False)),
    ("what is given up may still run", run_meets_cancel, drops_condition("RunHook.call", "cancel")),
    ("a response does not take its question", question_meets_all, calls_instead("take_response", "pop", "get")),
    ("a new question does not hear of the cancellation", question_meets_cancel, drops_call("LegacyContext._asking", "_wake_with")),
    ("closing is not seen by a new question", question_meets_close, decides("LegacyContext._asking", "peer.closed", False)),
    ("close() leaves questions open", question_meets_close, drops_call("Peer.close", "fail_questions")),
    ("a question that is given up can be answered", question_meets_its_limit, calls_instead("LegacyContext._asking", "pop", "get")),
    ("the first close() fails a question", question_meets_drain, decides("Endpoint.close", "peer.questions", True)),
    ("the second close() leaves a question", question_meets_the_end, decides("Endpoint.close", "peer.questions", False)),
    ("the table of connections has no lock", connections, drops_lock("HttpServer.admit", "lock")),
    ("an evicted connection goes on", connections, decides("HttpServer.step", "steps", False)),
    ("a request that is served is evicted", connections, decides("HttpServer.admit", "SERVES", False)),
    ("a replaced reader reads on", deputy_takes_over, Patch("Pipe._run", run_and_read_on)),
    ("the deputy may take over from a reader that reads", deputy_takes_over, decides("Pipe._run", "is_reader", False)),
    ("a replaced reader forgets the handler of the new one", deputy_takes_over, decides("Pipe._run", "is_reader", True)),
    ("the deputy takes over without the lock", deputy_takes_over, drops_lock("Pipe._stand_by", "_lock")),
    ("a handler returns without the lock", deputy_takes_over, drops_lock("Pipe._run", "_lock")),
    ("a deputy that has taken over seems to stand by", deputy_takes_over, drops_assignment("Pipe._stand_by", "_has_deputy")),
    ("a deputy that has ended seems to stand by", deputy_has_ended, drops_assignment("Pipe._stand_by", "_has_deputy")),
    ("a deputy that did not start seems to stand by", threads_are_refused, assigns("Pipe._run", "_has_deputy", True)),
    ("a handler that fails ends the reader", handler_fails, drops_handler("attempt", "work")),
    ("a handler that fails ends the thread of the queue", queued_handler_fails, drops_handler("attempt", "work")),
    ("the reader runs more handlers than it may", slow_calls_wait, decides("Pipe._run", "MAX_THREADS", False)),
    ("a replaced reader does not empty the queue", slow_calls_wait, drops_call("Pipe._read", "_empty_queue")),
    ("a replaced reader does not count itself out", slow_calls_wait, drops_assignment("Pipe._empty_queue", "_slow")),
    ("the queue is empty under one lock, and left under the next", slow_calls_wait, Patch("Pipe._empty_queue", empty_in_two_steps)),
    ("a handler is put into the queue when the lock is free again", slow_calls_wait, drops_lock("Pipe._run", "_lock")),
    ("what is cancelled in the queue is answered", waiting_call_meets_cancel, decides("Context._finish", "_become", False)),
    ("serve() returns while an answer is sent", answer_meets_end, Patch("Pipe._is_busy", lambda right, pipe: bool(pipe.running))),
    ("serve() does not wait for slow handlers", answer_meets_end, Patch("Pipe._is_busy", lambda right, pipe: False)),
    ("what is abandoned is not cancelled", answer_meets_stop, drops_call("Pipe._finish", "cancel_all")),
    ("stop() says too late that it has come", stop_meets_stop, delays("Pipe.stop", "_deadline", "_serving.release")),
    ("serve() returns when its thread is replaced", threads_are_refused, drops_call("Pipe.serve", "_serving.acquire")),
    ("without a reader nobody reads", no_thread_starts, drops_call("Pipe.serve", "_read")),
    ("what no thread takes is lost", no_thread_starts, drops_call("run_aside", "work")),
    ("a stream begins while its endpoint closes", endpoint_closes, decides("Endpoint.run_handler", "self.closed", False)),
    ("a session opens after its endpoint has closed", endpoint_closes, decides("HttpSession.register", "closed", False)),
    ("the table of sessions has no lock", sessions_make_way, drops_lock("Sessions.add", "_lock")),
    ("an evicted session stays open", sessions_make_way, decides("Sessions.add", "evicted", False)),
    ("the checks end though a session has come", sessions_expire, drops_lock("Endpoint._check", "lock")),
    ("the checks do not say that they have ended", sessions_expire, drops_assignment("Endpoint._check", "_checks")),
    ("a session that opens is not checked", sessions_expire, drops_call("Sessions.add", "begin_checks")),
    ("events of a call are kept for ever", kept_is_forgotten, drops_call("SessionAnswer.finish", "keep")),
    ("a session that has ended leaves its stream open", session_ends, drops_call("HttpSession.close", "settle")),
    ("a call that ends after its session leaves its stream open", session_ends, drops_call("SessionAnswer.finish", "settle")),
    ("streams are counted without the lock", streams_leave_room, drops_lock("Endpoint.run_handler", "lock")),
    ("a hang-up is looked for while the next request is read", hang_up_meets_end, Patch("Answer.check", check_in_two_steps)),
    ("a hang-up does not cancel", hang_up_cancels, drops_call("Answer._lose_client", "cancel_all")),
    ("a subscription outlives its client", listener_meets_hang_up, drops_call("Answer.check", "_lose_client")),
    ("close_stream() leaves the reader where it is", stream_is_closed, drops_call("SessionAnswer.disconnect", "detach")),
    ("a reader that has gone is not let go", hang_up_lets_go, drops_call("Answer._lose_client", "detach")),
]  # fmt: skip


def play(module: Any, model: Any, plan: dict[int, int]) -> tuple[str, list[int]]:
    """Run one schedule; return what went wrong, and the choices there were."""
    scheduler = Scheduler(plan)
    # What the model itself makes is made by a task that is alone.
    running.task = types.SimpleNamespace(
        wait=lambda test, seconds=None: True, scheduler=scheduler, ident=0
    )
    try:
        check = model(module, scheduler)
    except AttributeError as problem:  # of a name that the module no longer has
        return f"the model cannot be made: {problem}", []
    if missing := set(scheduler.functions or ()) - FUNCTIONS:
        return f"there is no function {' or '.join(sorted(missing))}", []
    failure = scheduler.run()
    if not failure:
        try:
            failure = "" if check() else "the condition does not hold in the end"
        except Exception as problem:
            failure = f"the condition cannot be checked: {problem!r:.200}"
    return failure, scheduler.choices


def explore(module: Any, model: Any, seconds: float) -> tuple[int, str, dict[int, int]]:
    """Try schedules until one fails or time is up; return their number, and the one."""
    end = time.monotonic() + seconds
    failure, choices = play(module, model, {})
    tried = 1
    if failure:
        return tried, failure, {}
    ones = [
        {step: which}
        for step, count in enumerate(choices, 1)
        for which in range(1, count + 1)
    ]
    lot = random.Random(1)
    lot.shuffle(ones)

    def more() -> Any:
        yield from ones
        while ones:
            plan: dict[int, int] = {}
            for one in lot.sample(ones, min(len(ones), lot.choice((2, 2, 3, 5)))):
                plan.update(one)
            yield plan

    for plan in itertools.takewhile(lambda _: time.monotonic() < end, more()):
        failure, _ = play(module, model, plan)
        tried += 1
        if failure:
            return tried, failure, plan
    return tried, "", {}


def check_models(seconds: float) -> list[Any]:
    """Explore each model for so long; return those that fail."""
    bad = []
    for model in MODELS:
        tried, failure, plan = explore(load(), model, seconds)
        print(f"schedules: {model.__name__}: {tried} schedules", flush=True)
        if failure:
            bad.append(model)
            print(
                f"    FAILS: {failure}\n    plan: {model.__name__} '{json.dumps(plan)}'"
            )
    return bad


def check_planted(seconds: float, bad: list[Any]) -> int:
    """Look for each planted bug for so long; return how many are not found. A model
    that fails without it shows nothing."""
    found = 0
    for title, model, planted in PLANTED:
        try:
            module = load(planted)
        except CannotPlant as problem:
            print(f"schedules: cannot plant: {title}: {problem}")
            continue
        if model in bad:
            print(f"schedules: not looked for: {title}: {model.__name__} fails anyway")
            continue
        failure = explore(module, model, seconds)[1]
        if "AttributeError" in failure:  # in what is planted: of a name that is gone
            print(f"schedules: cannot plant: {title}: {failure}")
        elif failure:
            found += 1
        else:
            print(f"schedules: not found: {title}", flush=True)
    print(f"schedules: {found} of {len(PLANTED)} planted bugs found")
    return len(PLANTED) - found


def main(words: list[str]) -> int:
    """Explore the models, then show that planted bugs are found."""
    seconds = float(words[0]) if words else 90.0
    if len(words) == 3:
        model = next(one for one in MODELS if one.__name__ == words[1])
        plan = {int(step): which for step, which in json.loads(words[2]).items()}
        print(play(load(), model, plan)[0] or "nothing goes wrong")
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
