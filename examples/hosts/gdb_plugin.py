"""Tools for a program in GDB: look at it, set breakpoints, let it go on.

GDB is started by the host, on stdio:

    {"mcpServers": {"gdb": {"command": "gdb", "args":
        ["-batch", "-nx", "-x", "/path/to/gdb_plugin.py", "-ex", "mcp-stdio",
         "./program"]}}}

Or it is yours, with its prompt, and serves HTTP beside that:

    (gdb) source /path/to/gdb_plugin.py
    (gdb) mcp-http 8000
    (gdb) mcp-stop

Copy mcp_ref.py beside this file. GDB may only be called on its main thread: on stdio,
run_here() keeps that thread; with a prompt, GDB calls what `gdb.post_event` is given.
"""

# The application's own modules have no types.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return"

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any
from pathlib import Path

import gdb

# beside this file, or in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]
from mcp_ref import Context, Endpoint, Server, http_server

# GDB's main thread waits for this signal: it must not arrive on a thread of ours.
# Threads inherit what is blocked where they are started.
FROM_PROGRAM = {signal.SIGCHLD}


def functions(pattern: str = "main") -> str:
    """List the program's functions whose names match a regular expression."""
    return gdb.execute(f"info functions -n {pattern}", to_string=True)


def backtrace(locals: bool = False) -> str:
    """Show where the program is: its frames, with their local variables if wanted."""
    return gdb.execute("backtrace -full" if locals else "backtrace", to_string=True)


def disassemble(function: str) -> str:
    """Show the source and the instructions of a function."""
    return gdb.execute(f"disassemble /s {function}", to_string=True)


def memory(expression: str, count: int = 64) -> str:
    """Dump `count` bytes of memory from the address that a C expression gives."""
    start = int(gdb.parse_and_eval(expression))
    data = bytes(gdb.selected_inferior().read_memory(start, count))
    rows = range(0, count, 16)
    return "\n".join(
        f"{start + row:#x}  {data[row : row + 16].hex(' ')}" for row in rows
    )


def break_at(location: str) -> str:
    """Set a breakpoint at a function or FILE:LINE."""
    point = gdb.Breakpoint(location)
    if point.pending:
        point.delete()
        raise ValueError(f"the program has no {location}")
    return f"Breakpoint {point.number} at {point.location}"


def go_on(ctx: Context) -> str:
    """Start the program, or continue, until it stops; cancel to interrupt it."""
    stopped = threading.Event()

    def resume() -> None:
        for event in (gdb.events.stop, gdb.events.exited):
            event.connect(note_stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FROM_PROGRAM)
        # On stdio this returns when the program stops, with a prompt at once.
        gdb.execute("continue" if gdb.selected_inferior().pid else "run")

    def note_stop(event: gdb.Event) -> None:
        for registry in (gdb.events.stop, gdb.events.exited):
            registry.disconnect(note_stop)
        stopped.set()

    ctx.on_cancel(interrupt)
    ctx.run(resume)
    stopped.wait()
    return ctx.run(where)


def interrupt() -> None:
    pid = gdb.selected_inferior().pid
    if pid:
        os.kill(pid, signal.SIGINT)


def where() -> str:
    if not gdb.selected_inferior().pid:
        return "The program has ended."
    return gdb.execute("frame", to_string=True)


def make_server(**options: Any) -> Server:
    server = Server("gdb", instructions="A program in the debugger GDB.", **options)
    for function in (functions, backtrace, disassemble, memory, break_at):
        server.tool(function)
    # It waits for an event of GDB's, so it must not wait on GDB's thread.
    server.tool(go_on, run=None)
    return server


class Stdio(gdb.Command):
    """Serve MCP on standard input and output, until the host leaves."""

    def invoke(self, argument: str, from_tty: bool) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, FROM_PROGRAM)
        make_server().run_here([])


class Http(gdb.Command):
    """Serve MCP over HTTP beside the prompt: mcp-http [PORT]."""

    # If this file is sourced again, its server still runs.
    httpd = vars(globals().get("Http", object)).get("httpd")

    def invoke(self, argument: str, from_tty: bool) -> None:
        stop()
        endpoint = Endpoint(make_server(run=gdb.post_event))
        Http.httpd = http_server(endpoint, port=int(argument or 8000))
        signal.pthread_sigmask(signal.SIG_BLOCK, FROM_PROGRAM)
        threading.Thread(target=Http.httpd.serve_forever, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FROM_PROGRAM)
        print(f"MCP at http://127.0.0.1:{Http.httpd.server_port}/mcp")


class Stop(gdb.Command):
    """End mcp-http."""

    def invoke(self, argument: str, from_tty: bool) -> None:
        stop()


def stop() -> None:
    if Http.httpd:
        Http.httpd.close()
        Http.httpd = None


Stdio("mcp-stdio", gdb.COMMAND_SUPPORT)
Http("mcp-http", gdb.COMMAND_SUPPORT)
Stop("mcp-stop", gdb.COMMAND_SUPPORT)
