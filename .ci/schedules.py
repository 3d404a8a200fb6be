#!/usr/bin/env python3
"""Try the schedules of threads that meet: `python3 .ci/schedules.py [SECONDS]`.

Each *model* is a few real threads that use the module, and a condition that must hold
in the end. One thread runs at a time; the scheduler may switch at every line of the
module and at every lock, condition and sleep. It tries the default order (a thread runs
until it waits), every schedule with one departure from it, then with two, at random, as
long as the time allows. What fails is printed as a plan, which replays it: `python3
.ci/schedules.py 0 MODEL PLAN`. *Planted* bugs, changes of the module's text, show that
the models can fail. The module's names `threading` and `time` are replaced, nothing
else. This is a tool, not a test: it uses private names. Linux and macOS.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "mcp_ref.py"
TEXT = SOURCE.read_text("utf-8")
MOST_STEPS = 20_000  # of a schedule; more is taken for a livelock


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

    def switch(self, me: Task | None) -> None:
        """Let the task go on whose turn it is; called by the one that runs."""
        self.step += 1
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
        self.done, self.until = False, None  # type: bool, float | None
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
        self.done = True
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
        if not blocking:
            if self.owner is not None and not self._mine(task):
                return False
        else:
            seconds = None if timeout < 0 else timeout
            if not task.wait(lambda: self.owner is None or self._mine(task), seconds):
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
        self.waiting: list[Any] = []

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self.lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        token = [False]
        self.waiting.append(token)
        self.lock.release()
        told = me().wait(lambda: token[0], timeout)
        if token in self.waiting:
            self.waiting.remove(token)
        self.lock.acquire()
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
        return me().wait(lambda: self.flag, timeout)


class Thread:
    ident: Any = None

    def __init__(
        self, target: Any, args: Any = (), name: str = "", daemon: bool = True
    ) -> None:
        self.name, self.task = name, None  # type: str, Any
        self.target = lambda: target(*args)

    def start(self) -> None:
        if self.task:
            raise RuntimeError("threads can only be started once")
        scheduler = me().scheduler
        scheduler.starts += 1
        if scheduler.starts in scheduler.refused:
            raise RuntimeError("can't start new thread")
        self.task = scheduler.spawn(self.target, self.name)
        self.ident = self.task.ident

    def join(self, timeout: float | None = None) -> None:
        me().wait(lambda: self.task.done, timeout)


def load(text: str) -> Any:
    """Make the module from its text, with our threads and clock in it."""
    module: Any = types.ModuleType("mcp_ref")
    module.__file__ = str(SOURCE)
    sys.modules["mcp_ref"] = module
    exec(compile(text, str(SOURCE), "exec"), vars(module))
    module.threading = types.SimpleNamespace(
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
    module.time = types.SimpleNamespace(
        monotonic=lambda: getattr(running, "task", None) and me().scheduler.now or 0.0,
        time=time.time,
        sleep=lambda seconds: me().wait(lambda: False, seconds),
        strftime=time.strftime,
        gmtime=time.gmtime,
    )
    module.log = lambda line: None
    module.KEEP_ALIVE_SECONDS, module.AHEAD_BYTES = 15, 40
    return module


# ---- the models: each returns a check, which is called in the end
class Wire:
    """Stands for an exchange: who writes, and what."""

    def __init__(self, module: Any, fails_after: int = 10**9) -> None:
        self.headers: dict[str, str] = {}
        self.extra: dict[str, str] = {}
        self.said: list[bytes] = []
        self.ends, self.writing = 0, None  # type: int, Any
        self.left, self.name, self.address = fails_after, "wire", ""
        self.principal: Any = None

    def start(self, status: int, headers: Any, body: Any) -> None:
        self.put(b"" if body is None else body)

    def put(self, data: bytes) -> None:
        assert self.writing is None, "two threads write at once"
        assert not self.ends, "something is written behind the end"
        self.writing = me()
        me().scheduler.switch(me())
        self.writing = None
        self.left -= 1
        if self.left < 0:
            raise OSError("hung up")
        self.said.append(data)

    write = put

    def end(self, hang_up: bool = False) -> None:
        self.put(b"")
        self.ends += 1

    def gone(self) -> bool:
        return self.left < 0

    def text(self) -> str:
        return b"".join(self.said).decode()


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r'"n":(\d+)', text)]


def note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "n", "params": {"n": number}}


def stream_is_whole(mcp: Any, scheduler: Scheduler) -> Any:
    """A call emits, and ends; its carrier writes all of it, once, in order."""
    wire = Wire(mcp)

    def post() -> None:
        stream = mcp.Stream(wire)
        stream.started = True
        for number in range(4):
            stream(note(number))
        stream({"jsonrpc": "2.0", "id": 1, "result": {"n": 4}})
        stream.finish()
        assert wire.ends == 1

    scheduler.spawn(post, "post")
    return lambda: scheduler.now == 0 and numbers(wire.text()) == [0, 1, 2, 3, 4]


def two_writers(mcp: Any, scheduler: Scheduler) -> Any:
    """A handler and another thread emit, and wait for a reader that is slow."""
    log, wire = mcp.Log(10**6), Wire(mcp)
    log.open(wire)
    left = [2]

    def writer(first: int) -> None:
        for number in range(first, first + 3):
            log.add(mcp.encode(note(number)))
        left[0] -= 1
        if not left[0]:
            log.add(mcp.encode({"n": 99}), True)

    def reader() -> None:
        while (events := log.copy(wire)) is not None:
            for data in events:
                wire.write(data)

    scheduler.spawn(lambda: writer(0), "writer 0")
    scheduler.spawn(lambda: writer(10), "writer 10")
    scheduler.spawn(reader, "reader")
    return lambda: (
        scheduler.now == 0 and sorted(numbers(wire.text())) == [0, 1, 2, 10, 11, 12, 99]
    )


def reader_replaced(mcp: Any, scheduler: Scheduler) -> Any:
    """A GET takes over where another one reads: each event reaches one of them, or is
    asked for again; the first ends, and its end does not end the second."""
    log, first, second = mcp.Log(10**6), Wire(mcp), Wire(mcp)
    # It is there before the other: the later one of two is the one that goes on.
    log.open(first)

    def carry(wire: Wire) -> None:
        stream = mcp.Stream(wire)
        stream.log = log
        stream.carry(stream.log)

    def write() -> None:
        for number in range(3):
            log.add(mcp.encode(note(number)))
        log.add(mcp.encode({"n": 3}), True)

    def again() -> None:
        seen = numbers(first.text())
        if log.open(second, len(seen)):
            carry(second)

    scheduler.spawn(lambda: carry(first), "first")
    scheduler.spawn(write, "writer")
    scheduler.spawn(again, "second")

    def check() -> bool:
        got = numbers(second.text())
        return (
            scheduler.now == 0
            and got == list(range(4))[4 - len(got) :]
            and (numbers(first.text()) + got).count(3) >= 1
        )

    return check


def reader_makes_way(mcp: Any, scheduler: Scheduler) -> Any:
    """A GET takes over: the answer of the other one ends at once, not when an event or
    a comment is due."""
    log, first, second = mcp.Log(10**6), Wire(mcp), Wire(mcp)

    def get(wire: Wire) -> None:
        stream = mcp.Stream(wire)
        stream.log = log
        log.open(wire)
        stream.carry(stream.log)

    def take_over() -> None:
        me().wait(lambda: log.reader is first)
        get(second)

    def end() -> None:
        me().wait(lambda: first.ends)
        log.end()

    scheduler.spawn(lambda: get(first), "first")
    scheduler.spawn(take_over, "second")
    scheduler.spawn(end, "end")
    return lambda: scheduler.now == 0 and (first.ends, second.ends) == (1, 1)


def reader_leaves(mcp: Any, scheduler: Scheduler) -> Any:
    """A reader hangs up while a handler waits for room; the rest is resumed."""
    log, first, second = mcp.Log(10**6), Wire(mcp, fails_after=2), Wire(mcp)

    def get(wire: Wire, after: int | None) -> None:
        stream = mcp.Stream(wire)
        stream.log = log
        if log.open(wire, after):
            stream.carry(stream.log)

    def write() -> None:
        for number in range(4):
            log.add(mcp.encode(note(number)))
        log.add(mcp.encode({"n": 4}), True)

    def both() -> None:
        get(first, None)
        get(second, len(numbers(first.text())))

    scheduler.spawn(both, "readers")
    scheduler.spawn(write, "writer")
    return lambda: (
        scheduler.now == 0 and numbers(first.text() + second.text()) == [0, 1, 2, 3, 4]
    )


def reader_never_returns(mcp: Any, scheduler: Scheduler) -> Any:
    """A client hangs up: its call ends all the same, and its stream is let go."""
    wire = Wire(mcp, fails_after=2)

    def post() -> None:
        stream = mcp.Stream(wire)
        stream.started = True
        for number in range(5):
            stream(note(number))
        stream.finish()

    scheduler.spawn(post, "post")
    return lambda: scheduler.now == 0 and not wire.ends


def cancelled(mcp: Any, scheduler: Scheduler) -> Any:
    """A call that was cancelled after an event ends its stream without a response."""
    wire = Wire(mcp)

    def post() -> None:
        stream = mcp.Stream(wire)
        stream.started = True
        stream(note(0))
        stream.finish()

    scheduler.spawn(post, "post")
    return lambda: scheduler.now == 0 and numbers(wire.text()) == [0] and wire.ends


def resumes_at_the_edge(mcp: Any, scheduler: Scheduler) -> Any:
    """A GET resumes where old events are being dropped: changes are told again."""
    log, wire = mcp.Log(160), Wire(mcp)
    early = Wire(mcp)

    def changes() -> None:
        for number in range(3):
            log.tell(mcp.encode(note(number)))
            log.open(early)
            log.copy(early)
        log.release(early)
        log.tell(mcp.encode(note(3)))

    def get() -> None:
        stream = mcp.Stream(wire)
        stream.log = log
        stopped.append(1)
        me().wait(lambda: log.count >= 1)
        if log.open(wire, 1):
            scheduler.spawn(end, "end")
            stream.carry(stream.log)

    def end() -> None:
        me().wait(lambda: log.reader is not wire or not log.changes)
        log.release(wire)

    stopped: list[int] = []
    scheduler.spawn(changes, "changes")
    scheduler.spawn(get, "get")

    def check() -> bool:
        later = Wire(mcp)
        kept = b"".join(log.events).decode() + wire.text()
        kept += b"".join(log.changes).decode() + b"".join(log.told).decode()
        return set(range(4)) <= set(numbers(kept)) and not later.said

    return check


def listening(mcp: Any, scheduler: Scheduler, server: Any, wire: Wire) -> list[Any]:
    """Have a task subscribe; return a list that will have its peer."""
    server.declared.add("tools")
    endpoint, peers = mcp.Endpoint(server), []  # type: Any, list[Any]
    meta = {mcp.META_VERSION: mcp.versions()[0], mcp.META_CAPABILITIES: {}}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": True}},
    }

    def post() -> None:
        stream = mcp.Stream(wire)
        peer = mcp.PostPeer(endpoint, stream, message)
        peer.check = lambda ctx: endpoint.hold(stream)
        peers.append(peer)

        def start(work: Any) -> None:
            stream.started = True
            work()

        server.handle(message, stream, peer=peer, start=start)
        stream.finish()

    scheduler.spawn(post, "post")
    return peers


def listener_ends(mcp: Any, scheduler: Scheduler) -> Any:
    """A subscription ends while something changes: acknowledged first, one response
    last, and it is no listener any more."""
    server, wire = mcp.Server("s"), Wire(mcp)
    peers = listening(mcp, scheduler, server, wire)

    def close() -> None:
        me().wait(lambda: bool(server.listeners))
        server.changed("tools")
        peers[0].close()

    scheduler.spawn(lambda: server.changed("tools"), "changed")
    scheduler.spawn(close, "close")

    def check() -> bool:
        said = [json.loads(one) for one in re.findall("data: (.*)", wire.text())]
        return (
            "acknowledged" in said[0]["method"]
            and "result" in said[-1]
            and "changed" in said[1].get("method", "")
            and scheduler.now == 0
            and not server.listeners
            and wire.ends == 1
        )

    return check


def listener_meets_close(mcp: Any, scheduler: Scheduler) -> Any:
    """A subscription begins while its peer closes: it ends, with a response."""
    server, wire = mcp.Server("s"), Wire(mcp)
    peers = listening(mcp, scheduler, server, wire)

    def close() -> None:
        me().wait(lambda: peers and peers[0].running)
        peers[0].close()

    scheduler.spawn(close, "close")
    return lambda: (
        scheduler.now == 0 and '"result"' in wire.text() and not server.listeners
    )


def initialize_meets_close(mcp: Any, scheduler: Scheduler) -> Any:
    """A session opens while its peer closes: it is no listener afterwards."""
    server, sent = mcp.Server("s"), []  # type: Any, list[Any]
    peer = mcp.Peer(sent.append)
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {},
        },
    }
    scheduler.spawn(lambda: server.handle(opening, sent.append, peer=peer), "open")
    scheduler.spawn(peer.close, "close")
    return lambda: not server.listeners and len(sent) == 1


def response_meets_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A request is cancelled while it responds: one of the two, and on_cancel once."""
    server, sent, told = mcp.Server("s"), [], []  # type: Any, list[Any], list[int]

    def tool(ctx: Any) -> str:
        ctx.on_cancel(lambda: told.append(1))
        return "x"

    tool.__annotations__ = {"ctx": mcp.Context, "return": str}
    server.tool(tool)
    meta = {mcp.META_VERSION: mcp.versions()[0], mcp.META_CAPABILITIES: {}}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"_meta": meta, "name": "tool"},
    }
    peer = mcp.Peer()
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1},
    }
    scheduler.spawn(lambda: server.handle(call, sent.append, peer=peer), "call")
    scheduler.spawn(lambda: server.handle(cancel, sent.append, peer=peer), "cancel")
    return lambda: (len(sent), len(told)) in ((1, 0), (0, 1), (0, 0))


def connections(mcp: Any, scheduler: Scheduler) -> Any:
    """Connections are accepted, evicted and closed: never too many, and a connection
    that has lost its place knows before it serves."""
    mcp.MAX_CONNECTIONS = 1
    httpd = object.__new__(mcp._Httpd)
    httpd.lock, httpd.steps = Lock(), {}
    httpd.endpoint = mcp.Endpoint(mcp.Server("s"))
    hung: list[str] = []
    mcp.hang_up = hung.append
    served: list[str] = []

    class Link(str):
        def sendall(self, data: bytes) -> None:
            pass

    def connect(name: str) -> None:
        link = Link(name)
        if not httpd.verify_request(link, (name, 0)):
            return
        assert len(httpd.steps) <= 1, "too many connections"
        try:
            for what in ("idle", "reads", "serves"):
                httpd.step(link, what, 30)
            served.append(name)
            httpd.step(link, "serves", 30)  # it sends its answer
            assert link not in hung
        except OSError:
            assert link in hung and name not in served, "a served request is cut"
        httpd.steps.pop(link, None)

    for name in "abc":
        scheduler.spawn(lambda name=name: connect(name), name)
    return lambda: not httpd.steps and served


WATCHDOG = "_read _start _run _watch _take_over _wake_up serve"
CREW = "_read _start add run spawn run_aside"
NULL = os.open(os.devnull, os.O_RDWR)


def stdio(
    mcp: Any, scheduler: Scheduler, calls: list[int], threads: int = 2
) -> dict[int, float]:
    """Serve calls on stdio. Each takes so many BLINK_SECONDS; a negative one only lets
    time pass. Return, in the end, when each was answered."""
    mcp.MAX_THREADS, mcp.LEAVE_SECONDS = threads, 60
    mcp.BLINK_SECONDS = 1 / 64  # exactly, so that things happen at the same time
    scheduler.now = began = 1.0
    server, answered = mcp.Server("s"), {}  # type: Any, dict[int, float]
    server.tool(
        lambda seconds: mcp.time.sleep(seconds / 64) if seconds else None, name="do"
    )
    pipe = mcp.Pipe(server, NULL, NULL)
    meta = {mcp.META_VERSION: mcp.versions()[0], mcp.META_CAPABILITIES: {}}
    left, readers = list(enumerate(calls)), []  # type: Any, list[Any]

    def readline(size: int) -> bytes:
        assert not readers, "two threads read"
        readers.append(me())
        me().scheduler.switch(me())
        number, seconds = left.pop(0) if left else (0, None)
        if seconds is not None and seconds < 0:
            mcp.time.sleep(-seconds / 64)
        readers.clear()
        if seconds is None or seconds < 0:
            return b"" if seconds is None else b"\n"
        call = {"name": "do", "arguments": {"seconds": seconds}, "_meta": meta}
        return mcp.encode(  # type: ignore[no-any-return]
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
        )

    def send(message: Any) -> None:
        assert "error" not in message, message
        assert message["id"] not in answered, "a request is answered twice"
        answered[message["id"]] = (scheduler.now - began) * 64

    pipe._source = types.SimpleNamespace(readline=readline)
    pipe.send = send
    pipe._await_hang_up = lambda: None
    scheduler.spawn(pipe.serve, "serve")
    return answered


def watchdog_takes_over(mcp: Any, scheduler: Scheduler) -> Any:
    """Handlers end while the watchdog takes over: each request is answered once, and a
    fast one before the slow ones."""
    scheduler.functions = WATCHDOG.split()
    answered = stdio(mcp, scheduler, [3, 60, 0, -120, 0])
    return lambda: sorted(answered) == [0, 1, 2, 4] and answered[2] < 9


def watchdog_wakes_up(mcp: Any, scheduler: Scheduler) -> Any:
    """The watchdog sleeps when a slow call comes: the next one is answered first."""
    scheduler.functions = WATCHDOG.split()
    answered = stdio(mcp, scheduler, [-120, 60, 0])
    return lambda: sorted(answered) == [1, 2] and answered[2] < 129


def slow_calls_wait(mcp: Any, scheduler: Scheduler) -> Any:
    """A call comes when the only thread ends: it waits for it, or has another."""
    scheduler.functions = CREW.split()
    answered = stdio(mcp, scheduler, [5, -3, 2], 1)
    return lambda: sorted(answered) == [0, 2]


def crew_takes_all(mcp: Any, scheduler: Scheduler) -> Any:
    """Work comes when the only thread of a crew ends: it is done all the same."""
    crew, done = mcp.Crew("crew", 1, mcp.threading.Lock()), []  # type: Any, list[int]

    def add() -> None:
        for number in range(3):
            crew.add(lambda number=number: done.append(number))

    scheduler.spawn(add, "add")
    return lambda: done == [0, 1, 2]


def threads_are_refused(mcp: Any, scheduler: Scheduler) -> Any:
    """Now and then no thread can be started; the first and second are there already."""
    scheduler.functions, scheduler.refused = CREW.split(), {3, 4, 6, 7}
    answered = stdio(mcp, scheduler, [5, 1, -60, 0, -60, 0])
    return lambda: sorted(answered) == [0, 1, 3, 5]


def no_thread_is_left(mcp: Any, scheduler: Scheduler) -> Any:
    """There is a reader, and no other thread: each request is answered."""
    scheduler.functions = [*WATCHDOG.split(), "run_aside"]
    scheduler.refused = range(3, 10**6)
    answered = stdio(mcp, scheduler, [3, 0, 2])
    return lambda: sorted(answered) == [0, 1, 2]


def no_thread_starts(mcp: Any, scheduler: Scheduler) -> Any:
    """Not even a reader can be started: each request is answered."""
    scheduler.refused = range(1, 10**6)
    answered = stdio(mcp, scheduler, [3, 0, 2])
    return lambda: sorted(answered) == [0, 1, 2]


def opening(mcp: Any) -> dict[str, Any]:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def post(mcp: Any, endpoint: Any, wire: Wire, message: Any) -> None:
    """Serve a POST as an endpoint does; what it refuses, it says to the wire."""
    endpoint.read_message = lambda exchange: message
    endpoint._reaps = True
    try:
        endpoint.post(wire)
    except mcp.HttpError as refusal:
        wire.start(refusal.status, {}, b"refused")


def endpoint_closes(mcp: Any, scheduler: Scheduler) -> Any:
    """An endpoint closes while sessions open and a client subscribes: none is left, and
    each is answered."""
    server = mcp.Server("s")
    endpoint, one, two = mcp.Endpoint(server), Wire(mcp), Wire(mcp)
    stream = mcp.Stream(two)
    peer = mcp.PostPeer(endpoint, stream, {})
    ended: list[int] = []
    peer.close = lambda: ended.append(1)
    scheduler.functions = "post watch register close handle _admit _initialize".split()
    scheduler.spawn(lambda: post(mcp, endpoint, one, opening(mcp)), "initialize")
    scheduler.spawn(lambda: endpoint.run_handler(stream, peer, wait), "subscribe")
    scheduler.spawn(endpoint.close, "close")
    endpoint._reaps = True

    def wait() -> None:
        me().wait(lambda: ended)
        stream.ended = True

    return lambda: one.said and not (endpoint.sessions or endpoint.streams)


def sessions_make_way(mcp: Any, scheduler: Scheduler) -> Any:
    """Sessions open where there is room for one: never two; one that goes is closed."""
    mcp.MAX_SESSIONS = 1
    endpoint = mcp.Endpoint(mcp.Server("s"))
    endpoint._reaps = True
    opened: list[Any] = []

    def open_one() -> None:
        session = mcp.HttpSession(endpoint, None, {})
        opened.append(session)
        session.register()
        assert len(endpoint.sessions) <= 1, "too many sessions"

    for name in "abc":
        scheduler.spawn(open_one, name)
    return lambda: (
        len(endpoint.sessions) == 1 and sum(not one.closed for one in opened) == 1
    )


def streams_leave_room(mcp: Any, scheduler: Scheduler) -> Any:
    """Streams without an end come at once where there is room for one."""
    mcp.MAX_CONNECTIONS = 2
    endpoint = mcp.Endpoint(mcp.Server("s"))
    endpoint._reaps = True
    held: list[int] = []
    left = [3]

    def listen() -> None:
        stream = mcp.Stream(Wire(mcp))
        stream.lasts = stream.ended = True

        def work() -> None:
            held.append(1)
            left[0] -= 1
            me().wait(lambda: left[0] == 0)

        try:
            endpoint.run_handler(stream, mcp.Peer(), work)
        except mcp.HttpError:
            left[0] -= 1

    for name in "abc":
        scheduler.spawn(listen, name)
    return lambda: len(held) <= 1 and not endpoint.streams


def cancel_meets_on_cancel(mcp: Any, scheduler: Scheduler) -> Any:
    """A request is cancelled while its handler registers a function: it runs once."""
    server, told = mcp.Server("s"), []  # type: Any, list[int]
    meta = {mcp.META_VERSION: mcp.versions()[0], mcp.META_CAPABILITIES: {}}
    params = {"_meta": meta, "name": "tool"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    peer = mcp.Peer()

    def tool(ctx: Any) -> None:
        ctx.on_cancel(lambda: told.append(1))
        me().wait(lambda: ctx.cancelled)

    tool.__annotations__ = {"ctx": mcp.Context, "return": None}
    server.tool(tool)
    scheduler.functions = "on_cancel _wake_with _cancel _end cancel_all".split()

    def cancel() -> None:
        me().wait(lambda: peer.running or told)
        peer.cancel_all()

    send = mcp.drop
    scheduler.spawn(lambda: server.handle(call, send, peer=peer), "call")
    scheduler.spawn(cancel, "cancel")
    scheduler.spawn(cancel, "cancel again")
    return lambda: told == [1] and not peer.running


MODELS = [
    stream_is_whole,
    two_writers,
    reader_replaced,
    reader_makes_way,
    reader_leaves,
    reader_never_returns,
    cancelled,
    resumes_at_the_edge,
    listener_ends,
    listener_meets_close,
    initialize_meets_close,
    response_meets_cancel,
    connections,
    watchdog_takes_over,
    watchdog_wakes_up,
    slow_calls_wait,
    crew_takes_all,
    threads_are_refused,
    no_thread_is_left,
    no_thread_starts,
    endpoint_closes,
    sessions_make_way,
    streams_leave_room,
    cancel_meets_on_cancel,
]

# ---- planted bugs: the model that must find it, what is replaced, and by what
PLANTED = [
    ("add() does not wake the reader", stream_is_whole, "                self._forget()\n                self._moved.notify_all()\n\n    def tell", "                self._forget()\n\n    def tell"),
    ("copy() does not wake writers", stream_is_whole, "            self._forget()\n            self._moved.notify_all()\n            return events", "            self._forget()\n            return events"),
    ("release() takes any reader", reader_replaced, "            if self.reader is reader:\n                self.reader = None", "            if True:\n                self.reader = None"),
    ("release() does not wake", reader_never_returns, "                self.reader = None\n                self._moved.notify_all()", "                self.reader = None"),
    ("end() does not wake", reader_makes_way, "            self.ended = True\n            self._moved.notify_all()", "            self.ended = True"),
    ("open() does not wake the other reader", reader_makes_way, "            self.reader = reader\n            self._moved.notify_all()", "            self.reader = reader"),
    ("one waiter is woken instead of all", two_writers, "self._moved.notify_all()", "self._moved.notify()"),
    ("copy() does not look who reads", reader_makes_way, "            if self.reader is not reader:\n                return None\n", ""),
    ("what was sent is sent again", stream_is_whole, "            self.sent, self.ahead = self.count, 0", "            self.ahead = 0"),
    ("room is never made", stream_is_whole, "            self.sent, self.ahead = self.count, 0", "            self.sent = self.count"),
    ("changes are forgotten", resumes_at_the_edge, "                self.changes[line] = None", "                pass"),
    ("events are dropped before they are copied", stream_is_whole, "until = self.sent if self.reader else", "until = self.count if self.reader else"),
    ("resuming starts too late", reader_leaves, "self.sent = min(max(after, dropped), self.count)", "self.sent = self.count"),
    ("resuming starts too early", reader_leaves, "self.sent = min(max(after, dropped), self.count)", "self.sent = dropped"),
    ("finish() does not wait for the carrier", stream_is_whole, "                self._carrier.join()", "                pass"),
    ("finish() does not end the log", cancelled, "            if not self.endless:", "            if False:"),
    ("a subscription is not forgotten", listener_ends, "        self.server.listeners.pop(self, None)\n        if self.peer.running", "        if self.peer.running"),
    ("the last changes are not told", listener_ends, "                if last:\n                    self._append_changes()\n", ""),
    ("a change goes before the acknowledgement", listener_ends, "                if last:\n                    self._append_changes()\n", "                self._append_changes()\n"),
    ("closing is not seen by a new subscription", listener_meets_close, "        if self.closed:\n            ctx.end_subscription()", "        if False:\n            ctx.end_subscription()"),
    ("a session registers after close()", initialize_meets_close, "        if peer.closed:  # close() may", "        if False:  # close() may"),
    ("close() leaves the session a listener", initialize_meets_close, "            self.session.server.listeners.pop(self.session, None)  # [legacy]", "            pass  # [legacy]"),
    ("a request ends twice", response_meets_cancel, "            if self._ended:\n                return False\n", ""),
    ("the table of connections has no lock", connections, "        with self.lock:\n            streams = ", "        if True:\n            streams = "),
    ("an evicted connection goes on", connections, "            if link not in self.steps:\n", "            if False:\n"),
    ("a request that is served is evicted", connections, 'self.steps[oldest][0] == "serves"', "False"),
    ("two threads read after a take-over", watchdog_takes_over, "while self._reader == number and not self._left:", "while not self._left:"),
    ("the watchdog is not woken", watchdog_wakes_up, "        if asleep:\n            self._wake_up()", ""),
    ("a reader that was replaced runs nothing", slow_calls_wait, "        if self._reader != number:\n            self._calls.run()\n", ""),
    ("a thread ends between two locks", slow_calls_wait, "                if not self.waiting:\n                    self.busy -= 1\n                    return\n                work", "                done = not self.waiting\n            if done:\n                with self.lock:\n                    self.busy -= 1\n                return\n            with self.lock:\n                work"),
    ("work is queued when the lock is free again", crew_takes_all, "        self.waiting.append(work)\n        with self.lock:\n            if self.busy >= self.most:\n                return\n            self.busy += 1\n        run_aside(self.name, self.run)", "        with self.lock:\n            is_full = self.busy >= self.most\n            self.busy += not is_full\n        self.waiting.append(work)\n        if not is_full:\n            run_aside(self.name, self.run)"),
    ("a reader that did not start has the turn", no_thread_is_left, "                self._reader -= 1", "                pass"),
    ("what no thread takes is lost", threads_are_refused, "    if not spawn(name, work):\n        with", "    if not spawn(name, work) and False:\n        with"),
    ("a thread that did not start counts as busy", threads_are_refused, "                self._calls.busy -= 1", "                pass"),
    ("without a reader nobody reads", no_thread_starts, "                self._read(0)  # without", "                pass  # without"),
    ("a stream begins while its endpoint closes", endpoint_closes, "        self.start_reaper(peer)", "        pass"),
    ("a session opens after its endpoint has closed", endpoint_closes, "        endpoint.start_reaper(self)", "        pass"),
    ("the table of sessions has no lock", sessions_make_way, "        with endpoint.lock:\n            if len(sessions)", "        if True:\n            if len(sessions)"),
    ("streams are counted without the lock", streams_leave_room, "        with self.lock:\n            held =", "        if True:\n            held ="),
    ("a stream is counted before it can be seen", streams_leave_room, "        with self.lock:\n            self.streams[stream] = peer\n        self.start_reaper(peer)\n        try:\n            if stream.lasts:\n                self.hold(stream)\n", "        if stream.lasts:\n            self.hold(stream)\n        with self.lock:\n            self.streams[stream] = peer\n        self.start_reaper(peer)\n        try:\n"),
    ("on_cancel() after the cancellation is lost", cancel_meets_on_cancel, "                return self._wakes.append(wake)\n        wake()", "                return self._wakes.append(wake)"),
    ("on_cancel() looks without the lock", cancel_meets_on_cancel, "        with self._ending:\n            if not self.cancelled:\n                return self", "        if True:\n            if not self.cancelled:\n                return self"),
]  # fmt: skip


def play(text: str, model: Any, plan: dict[int, int]) -> tuple[str, list[int]]:
    """Run one schedule; return what went wrong, and the choices there were."""
    module = modules.setdefault(text, None) or load(text)
    modules[text] = module
    scheduler = Scheduler(plan)
    # what the model itself makes is made by a task that is alone
    checks: list[Any] = []
    running.task = types.SimpleNamespace(
        wait=lambda test, seconds=None: True, scheduler=scheduler, ident=0
    )
    checks.append(model(module, scheduler))
    failure = scheduler.run()
    if not failure:
        try:
            failure = "" if checks[0]() else "the condition does not hold in the end"
        except Exception as problem:
            failure = f"the condition cannot be checked: {problem!r:.200}"
    return failure, scheduler.choices


modules: dict[str, Any] = {}


def explore(text: str, model: Any, seconds: float) -> tuple[int, str, dict[int, int]]:
    """Try schedules until one fails or time is up; return their number, and the one."""
    end = time.monotonic() + seconds
    failure, choices = play(text, model, {})
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
        failure, _ = play(text, model, plan)
        tried += 1
        if failure:
            return tried, failure, plan
    return tried, "", {}


def main(words: list[str]) -> int:
    """Explore the models, then show that planted bugs are found."""
    seconds = float(words[0]) if words else 90.0
    if len(words) == 3:
        model = next(one for one in MODELS if one.__name__ == words[1])
        plan = {int(step): which for step, which in json.loads(words[2]).items()}
        print(play(TEXT, model, plan)[0] or "nothing goes wrong")
        return 0
    bad, began = 0, time.monotonic()
    for model in MODELS:
        tried, failure, plan = explore(TEXT, model, seconds * 0.5 / len(MODELS))
        print(f"schedules: {model.__name__}: {tried} schedules", flush=True)
        if failure:
            bad += 1
            print(
                f"    FAILS: {failure}\n    plan: {model.__name__} '{json.dumps(plan)}'"
            )
    found = 0
    for title, model, old, new in PLANTED:
        changed = TEXT.replace(old, new)
        if old not in TEXT:
            bad += 1
            print(f"schedules: cannot plant: {title}")
        elif explore(changed, model, max(seconds / 10, 2))[1]:
            found += 1
        else:
            bad += 1
            print(f"schedules: not found: {title}")
        modules.pop(changed, None)
    passed = time.monotonic() - began
    print(f"schedules: {found} of {len(PLANTED)} planted bugs found, {passed:.0f} s")
    return min(bad, 1)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
