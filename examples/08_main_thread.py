r"""A server inside a program that allows work on its main thread only, as IDA or Blender do.

The protocol runs on threads of its own. `run=` is called with a callable whenever a handler is to
run, and posts it to the program's own loop; the tool then runs there, and the answer goes back by
itself. In Blender it would be `lambda call: bpy.app.timers.register(call)`, in IDA
`lambda call: ida_kernwin.execute_sync(call, ida_kernwin.MFF_WRITE)`, in Qt a queued signal. It
serves at http://127.0.0.1:8000/mcp until it is interrupted.

A tool that asks (`ctx.elicit`, `ctx.sample`) does so on that thread, too. With a modern client that
is fine: the tool is unwound, and runs again when the answer has come. But a legacy client is waited
for, and the program stands still until its user answers, for up to `mcp_ref.ASK_SECONDS`, which are
300. So ask only where `ctx.version in versions("modern")`, or set that to a few seconds; or do
without `run=`: then the tool asks on a thread of its own, and posts what touches the scene itself.

With --demo a client calls the tool while the program does its work, and then it ends:

    $ python3 examples/08_main_thread.py --demo
    The scene has 3 cubes, says the main thread.
    The scene has 4 cubes, says the main thread.
    The loop went on meanwhile.
"""
from __future__ import annotations

import queue
import sys
import threading

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Endpoint, Server, connect, http_server

jobs: queue.Queue = queue.Queue()           # what the program's loop is to do
server = Server("scene", run=jobs.put)
scene = ["cube", "cube"]                    # not to be touched by any other thread


@server.tool
def add_cube() -> str:
    """Add a cube to the scene."""
    scene.append("cube")
    where = "main" if threading.current_thread() is threading.main_thread() else "wrong"
    return f"The scene has {len(scene)} cubes, says the {where} thread."


def client(url: str) -> None:
    """Call the tool twice, as a host in another process would."""
    with connect(url) as scene_server:
        for _ in range(2):
            print(scene_server.call_tool("add_cube")["content"][0]["text"], flush=True)
    jobs.put(None)


def main(demo: bool) -> None:
    """Serve over HTTP beside the program's own loop: stdin and stdout stay its own."""
    httpd = http_server(Endpoint(server), port=0 if demo else 8000)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    if demo:
        url = f"http://127.0.0.1:{httpd.server_port}/mcp"
        threading.Thread(target=client, args=(url,), daemon=True).start()
    for job in iter(jobs.get, None):        # the program's loop, which has other work, too
        job()
    httpd.close()
    print("The loop went on meanwhile.")


if __name__ == "__main__":
    main(sys.argv[1:] == ["--demo"])
