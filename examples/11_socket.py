r"""The lines of stdio over another stream: a server on a Unix socket, or on TCP.

The specification has two transports, and leaves others to us (basic/transports/index §Custom
Transports). A Pipe serves whatever can be read line by line and written to: each connection gets
one. Whoever may connect may use the server: a Unix socket lies in a folder of yours, and TCP should
not be reachable from elsewhere. With --demo a client says what is on its two lines, and leaves:

    $ python3 examples/11_socket.py --demo
    {"jsonrpc":"2.0","id":1,"result":{}}
    {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: neither a session nor a version. Send `initialize` first, or put io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities into each request's _meta"}}
"""
from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import Pipe, Server

server = Server("socket")


@server.tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


def serve(listener: socket.socket) -> None:
    """Serve every client that connects, until stop(listener)."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def stop(listener: socket.socket) -> None:
    """Let no more clients in. Those that are connected stay until they leave."""
    try:
        listener.shutdown(socket.SHUT_RDWR)     # ends accept(); on Linux close() would not, and
    except OSError:                             # one more client would get in
        pass                                    # macOS and Windows refuse this: there, close() does
    listener.close()


def serve_one(connection: socket.socket) -> None:
    """Serve one client: the same steps as in serve_stdio()."""
    over = threading.Event()
    with connection, connection.makefile("rb") as lines:
        pipe = Pipe(server, lines.readline, connection.sendall, over.set)
        pipe.start()
        over.wait()
        pipe.leave(1)


def main(demo: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        unix = hasattr(socket, "AF_UNIX")
        place = os.path.join(folder, "mcp.sock") if unix else ("127.0.0.1", 0)
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as listener:
            listener.bind(place)
            listener.listen()
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
            if not demo:
                input(f"listening at {listener.getsockname()}; Enter ends it ")
                stop(listener)
                return
            with socket.socket(listener.family) as client:
                client.connect(listener.getsockname())
                client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
                               b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
                client.shutdown(socket.SHUT_WR)
                print(client.makefile().read(), end="")


if __name__ == "__main__":
    main(sys.argv[1:] == ["--demo"])
