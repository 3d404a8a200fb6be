r"""A server inside an application whose data only one thread may touch.

For plug-ins, and for services on asyncio. Read 05_http_server.py first; examples/hosts
has complete plug-ins for the applications below. Any thread may call
`server.changed()`; lessons 8 and 20 have what it sends. Next: 09_socket.py.

The protocol runs on threads of its own. `run=` says how to get a call to the right
thread: it takes a function without arguments and has it called there, once. The result
finds its way back. Each row was tried in that application:

    GDB with its prompt           run=gdb.post_event; other threads block SIGCHLD
    FreeCAD, QGIS (Qt)            run=signal.emit, connected with Qt.QueuedConnection
    LibreOffice                   run=a function that gives AsyncCallback an XCallback
    Blender                       run=jobs.put, and a repeating timer, persistent=True
    Vim, WeeChat                  run=jobs.put, and a timer that first sleeps 5 ms
    a loop of your own            run=jobs.put
    without an event loop         server.run_here(): blender -b, freecadcmd, gdb -batch
    asyncio, `async def` tools    loop=asyncio.get_running_loop()
    asyncio, `def` tools          run=loop.call_soon_threadsafe

A timer calls what waits in the queue. (A Blender timer for each call loses calls when a
file is opened; Qt's QTimer.singleShot loses all of them. Vim and WeeChat stop other
threads while they wait for keys: they run while the timer sleeps.) Two rules:

    never call run() on the thread that `run=` posts to   it would wait for itself
    a tool that waits for the application stays off it    run=None, and ctx.run()

A call that has not begun within 60 seconds (RUN_SECONDS) is answered with an error and
never done; one that is cancelled while it waits is never done, either. sys.exit() in a
tool ends that call only.

With --demo a client calls two tools, and the program ends; with `here` it serves on
stdio and keeps the main thread; without either, it serves on port 8000:

    $ python3 examples/course/07_main_thread.py --demo
    The scene has 3 cubes, says the main thread.
    The scene has 5 cubes, says the main thread.
    The loop went on meanwhile.
    $ python3 examples/course/07_main_thread.py --demo asyncio
    The scene has 3 cubes, says the main thread.
    The scene has 5 cubes, says the main thread.
    The loop went on meanwhile.
    $ python3 examples/mcp_cli.py call add_row count=3 -- python3 examples/course/07_main_thread.py here
    The scene has 5 cubes, says the main thread.

A tool that asks a legacy client waits for the answer; with `run=` the application would
wait, too: run=None. A coroutine says `await ctx.elicit("Which color?", color=str)`.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import Context, Endpoint, Server, http_server

scene = ["cube", "cube"]  # for the main thread only


def add_cube() -> str:
    """Add a cube to the scene."""
    scene.append("cube")
    where = "main" if threading.current_thread() is threading.main_thread() else "wrong"
    return f"The scene has {len(scene)} cubes, says the {where} thread."


def add_row(count: int, ctx: Context) -> str:
    """Add several cubes; in between, the application does other things."""
    said = ""
    for number in range(count):
        said = ctx.run(add_cube)
        ctx.progress(number + 1, count)
    return said


async def add_cube_slowly() -> str:
    """Add a cube to the scene."""
    await asyncio.sleep(0.01)  # stands for work that awaits
    return add_cube()


async def add_row_slowly(count: int) -> str:
    """Add several cubes; in between, the loop does other things."""
    said = ""
    for _ in range(count):
        said = await add_cube_slowly()
    return said


def add_tools(server: Server) -> Server:
    server.tool(add_cube)
    server.tool(add_row, run=None)
    return server


def serve(server: Server, stop: Callable[[], object]) -> None:
    """Serve on other threads; `stop` ends the program's loop."""
    demo = "--demo" in sys.argv
    httpd = http_server(Endpoint(server), port=0 if demo else 8000)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    if demo:
        threading.Thread(
            target=call_both, args=(httpd.server_port, stop), daemon=True
        ).start()


def call_both(port: int, stop: Callable[[], object]) -> None:
    """Call the tools as a host in another process would."""
    from mcp_client import connect

    with connect(f"http://127.0.0.1:{port}/mcp") as client:
        for name, arguments in (("add_cube", {}), ("add_row", {"count": 2})):
            result = client.call_tool(name, arguments)
            print(result["content"][0]["text"], flush=True)
    stop()


def main() -> None:
    if "asyncio" in sys.argv:
        loop = asyncio.new_event_loop()
        server = Server("scene", loop=loop)
        server.tool(add_cube_slowly, name="add_cube")
        server.tool(add_row_slowly, name="add_row")
        loop.call_soon(serve, server, lambda: loop.call_soon_threadsafe(loop.stop))
        loop.run_forever()
    elif "here" in sys.argv:
        add_tools(Server("scene")).run_here([])
    else:
        jobs: queue.Queue[Any] = queue.Queue()
        serve(add_tools(Server("scene", run=jobs.put)), lambda: jobs.put(None))
        for job in iter(jobs.get, None):  # the program's own loop
            job()
    if "here" not in sys.argv:
        print("The loop went on meanwhile.")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main()
