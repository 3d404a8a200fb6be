"""Tests of a server inside an application, whose data one thread may touch."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import queue
import signal
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from testing.places import ask, modern, said, words_of
from testing.scripts import (
    COVERAGE,
    MCP_REF,
    PATIENCE,
    PYTHON,
    Context,
    begin,
    client,
    limits,
    mcp,
    needs_posix,
    next_of,
    parametrize,
    wait_until,
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


def test_what_the_application_does_not_call_is_answered_and_never_done(capsys):
    application = Application()
    with limits(RUN_SECONDS=0.01):
        results = [application.call("act", what="late") for _ in range(2)]
        for result in results:
            assert "has not run this" in words_of(result.result(PATIENCE))
    assert "has not run this" in capsys.readouterr()[1]
    application.start(2).result(PATIENCE)
    assert application.acts == []
    last = application.call("act", what="in time")
    application.start(1).result(PATIENCE)
    assert words_of(last.result(PATIENCE)) == "in time" == application.acts[-1]


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
    looks: queue.Queue = queue.Queue()
    look, patience = Future.exception, [0.01]

    def hurried(future, timeout=None):
        looks.put(patience[0])
        return look(future, *patience)

    monkeypatch.setattr(Future, "exception", hurried)
    second = application.call("act", what="second")
    for _ in range(6):
        assert looks.get(timeout=PATIENCE) == 0.01
    assert not first.done() and not second.done()
    patience[0] = PATIENCE
    wait_until(lambda: looks.get(timeout=PATIENCE) == PATIENCE)
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
        [*PYTHON, str(tmp_path / "program.py")],
        env=environment,
        stderr=lines.append,
    ), lines


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
        [*PYTHON, str(tmp_path / "program.py"), *arguments],
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
    Path(connect.args[0][-1]).write_text(source)
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
