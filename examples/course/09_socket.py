r"""The lines of stdio over another stream: a server and its clients on a Unix socket.

For programs that have another stream: a socket, a serial line, a WebSocket. Read
07_main_thread.py first. The messages are those of lessons 1 to 14. Next:
11_for_a_company.py.

A `Pipe` is a client at two file descriptors: it reads lines, runs handlers and writes
lines, as on stdio. A socket is one descriptor twice. Each connection has a Pipe, and a
thread that serves it. It adds one rule to that of stdio, which has one client only:
changed() must not wait for a client that does not read, so changes go through a queue.
(For another kind of stream, the whole server is `Server.handle(message, send, peer=...,
start=...)`: a message goes in, and `send` is called with each message that comes out.)

The client is that of mcp_client.py, with a Transport for the socket. Without --demo,
give the path of the socket. With it, two clients use the server:

    $ python3 examples/course/09_socket.py --demo
    Hello, Ada!
    Bob heard of: tools

Anyone who can connect can use the server. A Unix socket is protected by the folder that
it is in; on TCP, check first who is there. (basic/transports/index §Custom Transports)
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]
from mcp_client import Disconnected, Malformed, Request, Transport, connect
from mcp_ref import MAX_MESSAGE_BYTES, Pipe, Server, encode

MAX_WAITING = 1000  # changes for a client that does not read

server = Server("socket")


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


def in_thread(work: Callable[..., object], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


# ---- the server's side
class Connection(Pipe):
    """A client on a socket.

    thread     serves it
    waiting    changes, each with the function that sends it; None is the last
    lines      those that wait
    """

    def __init__(self, link: socket.socket) -> None:
        super().__init__(server, link.fileno(), link.fileno())
        self.link = link
        self.thread = threading.current_thread()
        self.waiting: queue.Queue[Any] = queue.Queue(MAX_WAITING)
        self.lines: set[bytes] = set()

    def push(self, message: Any, send: Any) -> None:
        """Send a change without waiting, unless the same one waits already. A client
        that has a thousand others to read is hung up on."""
        line = encode(message)
        if line not in self.lines:
            self.lines.add(line)
            try:
                self.waiting.put_nowait((line, message, send))
            except queue.Full:
                self.stop()

    def send_changes(self) -> None:
        """Send the changes, until the connection ends."""
        for line, message, send in iter(self.waiting.get, None):
            self.lines.discard(line)
            send(message)


connections: list[Connection] = []


def serve(link: socket.socket) -> None:
    """Serve one client until it leaves, or stop() is called."""
    with link:
        connection = Connection(link)
        connections.append(connection)
        in_thread(connection.send_changes)
        connection.serve()
        with contextlib.suppress(OSError):  # the client has hung up
            link.shutdown(socket.SHUT_RDWR)
        connection.waiting.put(None)
        connections.remove(connection)


@contextlib.contextmanager
def listening(path: str) -> Iterator[None]:
    """Serve every client that connects; at the end, say goodbye to all."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        in_thread(accept, listener)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # else accept() would go on
            ending = list(connections)
            for connection in ending:
                connection.stop()
            for connection in ending:
                connection.thread.join()


def accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            in_thread(serve, listener.accept()[0])


# ---- the client's side
class SocketTransport(Transport):
    """Carries the messages of a Client; send() must not wait."""

    def __init__(self, path: str) -> None:
        self.path = path

    def start(self) -> None:
        self.link = socket.socket(socket.AF_UNIX)
        self.waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            self.link.connect(self.path)
        except OSError as problem:
            self.link.close()
            raise Disconnected(f"{self.path}: {problem}") from None
        self.up = True
        in_thread(self.read, self.link, self.waiting)
        in_thread(self.write, self.link, self.waiting)

    def stop(self) -> None:
        if self.up:
            self.up = False
            with contextlib.suppress(OSError):  # the server has hung up
                self.link.shutdown(socket.SHUT_RDWR)

    def send(self, message: Any, request: Request) -> None:
        self.waiting.put((encode(message), request))

    def write(self, link: socket.socket, waiting: Any) -> None:
        with contextlib.suppress(OSError):
            for line, request in iter(waiting.get, None):
                link.sendall(line)
                if not request.response:  # nothing comes back
                    request.settle({})

    def read(self, link: socket.socket, waiting: Any) -> None:
        with link, link.makefile("rb") as stream, contextlib.suppress(OSError):
            while line := stream.readline(MAX_MESSAGE_BYTES + 2):
                with contextlib.suppress(Malformed):  # others are still answered
                    self.client.receive(line)
        waiting.put(None)
        if self.link is link:  # start() may have made another
            self.up = False
            self.client.lost(Disconnected("the server is gone"))


def demo(path: str) -> None:
    """Be two clients: one calls a tool, the other hears that the tools have changed."""
    with connect(SocketTransport(path)) as ada, connect(SocketTransport(path)) as bob:
        print(ada.call_tool("greet", {"name": "Ada"})["content"][0]["text"])
        with bob.listen("tools") as changes:
            server.changed("tools")
            print("Bob heard of:", next(iter(changes)))


if __name__ == "__main__":
    usage = "usage: 09_socket.py PATH | --demo"
    if len(sys.argv) != 2:
        sys.exit(usage)
    if sys.argv[1] in ("-h", "--help"):
        print(usage)
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        is_demo = sys.argv[1] == "--demo"
        path = folder + "/mcp.sock" if is_demo else sys.argv[1]
        with listening(path):
            demo(path) if is_demo else input("Enter ends the server ")
