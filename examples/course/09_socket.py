r"""The lines of stdio over another stream: a server on a Unix socket.

For programs that have another stream: a socket, a serial line, a WebSocket. Read
07_main_thread.py first. The messages are those of lessons 1 to 14. Next:
11_for_a_company.py.

The whole server is `Server.handle(message, send, peer=..., start=...)`: a message goes
in, and `send` is called with each message that comes out. A Peer keeps what outlives a
message, so each connection has one. `start` runs a handler; here each handler gets a
thread, so that no request waits for another and a cancellation is read in time. Without
--demo, give the path of the socket. With it, a client calls the tool:

    $ python3 examples/course/09_socket.py --demo
    Hello, Ada!

Anyone who can connect can use the server. A Unix socket is protected by the folder that
it is in; on TCP, check first who is there. (basic/transports/index §Custom Transports)
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_ref import (
    META_CAPABILITIES,
    META_VERSION,
    Peer,
    RpcError,
    Server,
    decode,
    encode,
)

server = Server("socket")


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


def serve(connection: socket.socket) -> None:
    """Serve one client until it leaves."""
    writing = threading.Lock()

    def send(message: object) -> None:
        with writing:
            connection.sendall(encode(message))

    peer = Peer(send)
    with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
        for line in lines:
            try:
                server.handle(decode(line), send, peer=peer, start=in_thread)
            except RpcError as problem:
                # this is not JSON, so there is no id to answer to
                send(
                    {
                        "jsonrpc": "2.0",
                        "error": {"code": problem.code, "message": str(problem)},
                    }
                )
    peer.close()  # ends its subscriptions and questions


def in_thread(work: Callable[..., object], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


def accept(listener: socket.socket) -> None:
    """Serve every client that connects, until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            in_thread(serve, listener.accept()[0])


def demo(path: str) -> None:
    """Be a modern client: call the tool, print the answer."""
    meta = {META_VERSION: "2026-07-28", META_CAPABILITIES: {}}
    params = {"name": "greet", "arguments": {"name": "Ada"}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(encode(message))
        print(decode(client.makefile("rb").readline())["result"]["content"][0]["text"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: 09_socket.py PATH | --demo")
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = folder + "/mcp.sock" if sys.argv[1:] == ["--demo"] else sys.argv[1]
        listener.bind(path)
        listener.listen()
        in_thread(accept, listener)
        demo(path) if sys.argv[1:] == ["--demo"] else input("Enter ends the server ")
