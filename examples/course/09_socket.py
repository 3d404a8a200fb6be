r"""The lines of stdio over another stream: a server and its clients on a Unix socket.

For programs that have another stream: a socket, a serial line, a WebSocket. Read
07_main_thread.py first. The messages are those of lessons 1 to 14. Next:
11_for_a_company.py.

The whole server is `Server.handle(message, send, peer=..., start=...)`: a message goes
in, and `send` is called with each message that comes out. A Peer keeps what outlives a
message, so each connection has one. `start` runs a handler; here each handler gets a
thread, so that no request waits for another and a cancellation is read in time.

What a transport of one's own has to see to:

    a client that does not read    holds up its own calls, and nobody else: changed()
                                   only puts a message into a queue
    a line without an end          is refused at MAX_MESSAGE_BYTES
    a client that has left         its calls are cancelled, then its peer is closed
    the end of the server          peers are closed first: subscriptions are answered

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
from mcp_ref import MAX_MESSAGE_BYTES, Peer, RpcError, Server, decode, encode

MAX_WAITING = 1000  # messages for a client that does not read

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
class Connection(Peer):
    """A client on a socket: one thread reads its lines, one writes lines to it, and
    each handler has one of its own.

        waiting    lines for the writer; an empty one is the last
        changes    those of them that tell of a change
        left       true once the client has left, or the server ends: nobody waits for
                   room any longer
    """

    def __init__(self, link: socket.socket) -> None:
        super().__init__(self.put)
        self.link = link
        self.waiting: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
        self.changes: set[bytes] = set()
        self.left = False
        self.writer = in_thread(self.write)

    def put(self, message: object) -> None:
        """Send a message of a call; it waits while its client does not read."""
        line = encode(message)
        has_room = False
        while not has_room:
            is_last_try = self.left
            with contextlib.suppress(queue.Full):
                self.waiting.put(line, timeout=0.05)
                has_room = True
            if is_last_try:
                return

    def push(self, message: Any, send: Any) -> None:
        """Send a change, unless the same one waits already. This waits for nobody: who
        has a thousand others to read is hung up on."""
        line = encode(message)
        if line in self.changes:
            return
        self.changes.add(line)
        try:
            self.waiting.put_nowait(line)
        except queue.Full:
            self.hang_up()

    def write(self) -> None:
        """Write what waits, until the connection ends."""
        with contextlib.suppress(OSError):
            while line := self.waiting.get():
                self.changes.discard(line)
                self.link.sendall(line)
        self.left = True  # the reader may be waiting in put()
        self.hang_up()

    def hang_up(self) -> None:
        """End the connection; the reader and the writer notice."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)

    def lines(self) -> Iterator[bytes]:
        """Read lines; one that is too long is the last."""
        with self.link.makefile("rb") as stream, contextlib.suppress(OSError):
            line = b"\n"
            while line.endswith(b"\n") and not self.left:
                line = stream.readline(MAX_MESSAGE_BYTES + 2)
                if line:
                    yield line

    def serve(self) -> None:
        """Serve the client until it leaves."""
        connections.append(self)
        for line in self.lines():
            try:
                message = decode(line)
            except RpcError as problem:  # there is no id to answer to
                error = {"code": problem.code, "message": str(problem)}
                told = {"jsonrpc": "2.0", "id": None, "error": error}
                if not self.null_ids:  # newer revisions have none
                    del told["id"]
                self.put(told)
            else:
                server.handle(message, self.put, peer=self, start=in_thread)
        self.left = True
        self.cancel_all()
        self.end()

    def end(self) -> None:
        """End subscriptions, which are answered if the client is there; then all."""
        self.left = True
        self.close()
        self.cancel_all()
        with contextlib.suppress(queue.Full, ValueError):
            connections.remove(self)
            self.waiting.put_nowait(b"")
            self.writer.join(1)
        self.hang_up()


connections: list[Connection] = []


def serve(link: socket.socket) -> None:
    """Serve one client until it leaves."""
    with link:
        Connection(link).serve()


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
            ends = [in_thread(one.end) for one in list(connections)]
            for thread in ends:  # all at once: some may not read
                thread.join()


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
