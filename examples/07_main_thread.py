r"""A server inside a program whose data only one thread may touch: a GUI, or an asyncio loop.

For plugins of Blender, IDA or a Qt program, and for services on asyncio. Read 05_http_server.py
first. Any thread may call `server.changed()`; lessons 8 and 20 have what it sends. Next: 08_tap.py.

The protocol runs on threads of its own. `run=` says how to get a call to the right thread: it takes
a function without arguments and has it called there, once. The result finds its way back. `async
def` tools run on an event loop: one on a thread of its own, or yours.

    a queue that the main thread reads   run=jobs.put
    Blender                              run=bpy.app.timers.register
    IDA                                  run=lambda call: ida_kernwin.execute_sync(call, MFF_WRITE)
    asyncio, `async def` tools           loop=asyncio.get_running_loop()
    asyncio, `def` tools                 run=loop.call_soon_threadsafe

With --demo a client calls the tool twice, and the program ends; without, it serves on port 8000:

    $ python3 examples/07_main_thread.py --demo
    The scene has 3 cubes, says the main thread.
    The scene has 4 cubes, says the main thread.
    The loop went on meanwhile.
    $ python3 examples/07_main_thread.py --demo asyncio
    The scene has 3 cubes, says the main thread.
    The scene has 4 cubes, says the main thread.
    The loop went on meanwhile.

A tool that asks a legacy client waits for the answer. With `run=` it would block that thread: leave
`run=` out then, and post only what touches the data. An `async def` tool asks from another thread:
`await asyncio.to_thread(ctx.elicit, "Which color?", color=str)`.
"""
from __future__ import annotations

import asyncio
import queue
import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]       # where mcp_ref.py is
from mcp_ref import Endpoint, Server, http_server

scene = ["cube", "cube"]                    # for the main thread only


def add_cube() -> str:
    """Add a cube to the scene."""
    scene.append("cube")
    where = "main" if threading.current_thread() is threading.main_thread() else "wrong"
    return f"The scene has {len(scene)} cubes, says the {where} thread."


async def add_cube_slowly() -> str:
    """Add a cube to the scene."""
    await asyncio.sleep(0.01)               # stands for work that awaits
    return add_cube()


def serve(server: Server, stop) -> None:
    """Serve on other threads; `stop` ends the program's loop."""
    demo = "--demo" in sys.argv
    httpd = http_server(Endpoint(server), port=0 if demo else 8000)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    if demo:
        threading.Thread(target=call_twice, args=(httpd.server_port, stop), daemon=True).start()


def call_twice(port: int, stop) -> None:
    """Call the tool as a host in another process would."""
    from mcp_client import connect
    with connect(f"http://127.0.0.1:{port}/mcp") as client:
        for _ in range(2):
            print(client.call_tool("add_cube")["content"][0]["text"], flush=True)
    stop()


if __name__ == "__main__":
    if "asyncio" in sys.argv:
        loop = asyncio.new_event_loop()
        server = Server("scene", loop=loop)
        server.tool(add_cube_slowly, name="add_cube")
        loop.call_soon(serve, server, lambda: loop.call_soon_threadsafe(loop.stop))
        loop.run_forever()
    else:
        jobs: queue.Queue = queue.Queue()
        server = Server("scene", run=jobs.put)
        server.tool(add_cube)
        serve(server, lambda: jobs.put(None))
        for job in iter(jobs.get, None):    # the program's own loop
            job()
    print("The loop went on meanwhile.")
