r"""A server inside a program whose data only one thread may touch: a GUI, or an asyncio loop.

For plugins of applications such as Blender, IDA or a Qt program, and for services on asyncio. Read
05_http_server.py first. Lessons 8 and 20 show what clients hear if the program itself changes
something and calls `server.changed()`, which any thread may. Next: 08_tap.py.

The protocol runs on threads of its own. `run=` says how to get a call to the right thread: it takes
a function without arguments and has it called there, once. The result finds its way back.

    a queue that the main thread reads   run=jobs.put
    asyncio                              run=loop.call_soon_threadsafe (for `def` tools)
    Blender                              run=bpy.app.timers.register
    IDA                                  run=lambda call: ida_kernwin.execute_sync(call, MFF_WRITE)

With --demo, a client calls the tool twice, and then the program ends. Without it, the program
serves http://127.0.0.1:8000/mcp until it is interrupted:

    $ python3 examples/07_main_thread.py --demo
    The scene has 3 cubes, says the main thread.
    The scene has 4 cubes, says the main thread.
    The loop went on meanwhile.
    $ python3 examples/07_main_thread.py --demo asyncio
    The scene has 3 cubes, says the main thread.
    The scene has 4 cubes, says the main thread.
    The loop went on meanwhile.

A tool that asks a legacy client blocks that thread until the answer comes. Leave `run=` out for
such a tool, and post only what touches the data. The same goes for work that awaits: in a server
without `run=`, a tool can return `asyncio.run_coroutine_threadsafe(coroutine, loop).result()`.
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


def serve(post, stop, demo: bool) -> None:
    """Serve on other threads; `post` gets a call to the loop, `stop` ends the loop."""
    server = Server("scene", run=post)
    server.tool(add_cube)
    httpd = http_server(Endpoint(server), port=0 if demo else 8000)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    if demo:
        url = f"http://127.0.0.1:{httpd.server_port}/mcp"
        threading.Thread(target=call_twice, args=(url, lambda: post(stop)), daemon=True).start()


def call_twice(url: str, then) -> None:
    """Call the tool as a host in another process would."""
    from mcp_client import connect
    with connect(url) as client:
        for _ in range(2):
            print(client.call_tool("add_cube")["content"][0]["text"], flush=True)
    then()


if __name__ == "__main__":
    demo = "--demo" in sys.argv
    if "asyncio" in sys.argv:
        loop = asyncio.new_event_loop()
        serve(loop.call_soon_threadsafe, loop.stop, demo)
        loop.run_forever()
    else:
        jobs: queue.Queue = queue.Queue()
        serve(jobs.put, None, demo)
        for job in iter(jobs.get, None):    # the program's own loop
            job()
    print("The loop went on meanwhile.")
