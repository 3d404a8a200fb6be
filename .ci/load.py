#!/usr/bin/env python3
"""Measure a server under load from strangers: `python3 .ci/load.py WHAT [NUMBER]`.

memory      what it keeps of 1,000 sessions that send as much as they may
values      what eight waiting calls hold, each with as many JSON values as it may
            have; and whether more values are refused before they are decoded
unread      four ways to have answers that nobody reads: how long a call of someone else
            takes, of 50 in 25 s, and the most memory that the server takes
listeners   what two subscriptions hold that nobody reads, with long ids
uris        what a session holds that subscribes to 2,000 URIs of 2 kB
pipe        what 12 subscriptions on stdio hold, made by requests of 1.2 MB
streams     how long a call takes while 520 subscriptions are asked for
restarts    calls that ten rolling restarts lose, if clients connect to the server
nginx       ... behind nginx, which must be installed
readers     1,000 sessions with a stream each, of which 100 do not read

NUMBER replaces 1,000, eight, 50, two, 2,000, 12, 520 or ten. All listens on free ports
of 127.0.0.1. MODULE=FOLDER in the environment measures another mcp_ref.py.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from mcp_ref import meta_for, versions  # noqa: E402

MODULE = os.environ.get("MODULE", str(ROOT))
NEWEST = versions("modern")[0]
LEGACY = versions("legacy")[1]
WITH_BATCHES = "2025-03-26"
SERVER = """
import sys, threading; sys.path.insert(0, {root!r})
import mcp_ref
mcp_ref.MAX_CONNECTIONS = {connections}
server = mcp_ref.Server("load")
ended = threading.Event()
server.tool(lambda a, b: a + b, name="add")
@server.tool
def wait() -> None:
    ended.wait(20)
server.tool(lambda: ended.set(), name="end")
@server.tool
def tell(count: int, tail: int = 0) -> None:
    for number in range(count):
        server.changed(f"x://{{number}}" + "x" * tail)
server.resource("x://{{number}}", name="read")(lambda number: number)
for number in range(80 * {is_wide}):
    server.tool(lambda: None, name=f"tool{{number}}", description="x" * 1000)
server.run(["--http", "{port}"])
"""


@contextlib.contextmanager
def serving(
    port: int = 0, connections: int = 512, is_wide: bool = False
) -> Iterator[Any]:
    """Start a server; yield its process, which has a `port`. The list of a wide one has
    86 kB."""
    code = SERVER.format(
        root=MODULE, port=port, connections=connections, is_wide=is_wide
    )
    made: Any = subprocess.Popen([sys.executable, "-c", code], stderr=-1, text=True)
    with made:
        made.port = int(re.findall(r":(\d+)/", made.stderr.readline())[0])
        threading.Thread(target=made.stderr.read, daemon=True).start()
        try:
            yield made
        finally:
            made.terminate()


def request(method: str, session: str = "", **params: Any) -> bytes:
    """Make a POST of a message: modern, unless it has a session, or opens one."""
    headers = {"Mcp-Session-Id": session}
    if not session and method != "initialize":
        params["_meta"] = meta_for(NEWEST)
        headers = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": method}
        headers["Mcp-Name"] = params.get("name", "")
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if method == "notifications/initialized":
        del message["id"]
    return post(message, **headers)


def post(content: Any, path: str = "/mcp", **headers: str) -> bytes:
    """Make a POST of a message or a batch."""
    body = json.dumps(content)
    headers.update({"Content-Type": "application/json", "Host": "127.0.0.1"})
    headers["Content-Length"] = str(len(body))
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value]
    return f"POST {path} HTTP/1.1\r\n{''.join(lines)}\r\n{body}".encode()


def ask(link: socket.socket, data: bytes) -> http.client.HTTPResponse:
    """Send a request on a connection; return its answer, read unless it is endless."""
    link.sendall(data)
    answer = http.client.HTTPResponse(link, method="POST")
    answer.begin()
    if "event-stream" not in str(answer.getheader("Content-Type")):
        answer.read()
    return answer


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


LISTEN = "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Session-Id: {}\r\n\r\n"
CALL = request("tools/call", name="add", arguments={"a": 1, "b": 2})


def open_session(link: socket.socket, version: str = LEGACY, **client: Any) -> str:
    """Open a session; return its id, or nothing if it is refused."""
    info = {"name": "c", "version": "1", **client}
    opening: Any = {"protocolVersion": version, "capabilities": {}}
    made = ask(link, request("initialize", **opening, clientInfo=info))
    ident = made.getheader("Mcp-Session-Id")
    ask(link, request("notifications/initialized", ident or ""))
    return ident or ""


def resident(server: Any, line: str = "VmRSS") -> int:
    """Return the memory of a process, in MiB; VmHWM is the most that it had."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.findall(line + r":\s*(\d+)", status)[0]) // 1024


def memory(count: int = 1000) -> str:
    """Open sessions with large members, which subscribe to long URIs."""
    with serving() as server, connect(server.port) as link:
        ask(link, CALL)
        before, opened = resident(server), 0
        for _ in range(count):
            ident = open_session(link, icons=["x" * 20_000], more=[{}] * 20_000)
            opened += ident != ""
            for number in range(20):
                uri = f"x://{number}" + "x" * 2000
                ask(link, request("resources/subscribe", ident, uri=uri))
        return f"{opened} sessions: {before} MiB before, {resident(server)} after"


def values(count: int = 8) -> str:
    """Have calls wait whose `_meta` has empty arrays: as many as 4 MiB hold, and as
    many as are let through."""

    def waiting(arrays: int) -> bytes:
        data = request("tools/call", name="wait", arguments={})
        body = data.partition(b"\r\n\r\n")[2]
        large = body.replace(
            b'"_meta": {', b'"_meta": {"x": [%s[]],' % (b"[]," * arrays)
        )
        old, new = (b"Content-Length: %d\r\n" % len(one) for one in (body, large))
        return data.replace(old, new).replace(body, large)

    said = []
    with serving() as server, contextlib.ExitStack() as stack:
        control = stack.enter_context(connect(server.port))
        ask(control, CALL)
        for arrays in (2**20 * 4 // 3 - 1000, 249_000):
            before = resident(server)
            links = [stack.enter_context(connect(server.port)) for _ in range(count)]
            for link in links:
                link.sendall(waiting(arrays))
            time.sleep(3)
            said.append(f"{arrays:,} arrays: {before} to {resident(server)} MiB")
            ask(control, CALL)
        ask(control, request("tools/call", name="end", arguments={}))
    return f"{count} calls, each with {'; '.join(said)}"


# ==== answers that nobody reads ===============================

LIST = request("tools/list")
LISTS = [{"jsonrpc": "2.0", "id": id, "method": "tools/list"} for id in range(100)]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Stranger:
    """Opens connections on which it sends, and never reads. `sent`: bytes."""

    def __init__(self, port: int) -> None:
        self.port, self.sent = port, 0
        self.links: list[socket.socket] = []

    def send(self, data: bytes) -> socket.socket:
        """Send on a connection that has next to no room for answers."""
        link = socket.socket()
        self.links.append(link)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        link.settimeout(5)
        with contextlib.suppress(OSError):  # there is no place
            link.connect(("127.0.0.1", self.port))
            link.sendall(data)
            self.sent += len(data)
        time.sleep(0.02)  # until the server has it
        return link

    def open_stream(self) -> str:
        """Open a stream of HTTP+SSE; return the path of its session, "" if there is no
        place."""
        link = self.send(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        said, part = b"", b"x"
        while part and not re.search(rb"session_id=.*\n\n\r\n", said, re.S):
            with contextlib.suppress(OSError):
                part = b""
                said += (part := link.recv(1000))
        if not part:
            return ""
        path = "/" + str(re.findall(r"data: /?(\S+)", said.decode())[0])
        client = {"name": "c", "version": "1"}
        params: Any = {"protocolVersion": WITH_BATCHES, "capabilities": {}}
        params["clientInfo"] = client
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        self.post(message, path)
        return path

    def post(self, content: Any, path: str) -> None:
        """Send a POST for a stream, which is answered at once."""
        data = post(content, path)
        with connect(self.port) as link, contextlib.suppress(OSError):
            self.sent += len(data)
            ask(link, data)

    def send_batches(self, count: int) -> None:
        with connect(self.port) as link:
            session = open_session(link, WITH_BATCHES)
        for _ in range(count):
            self.send(post(LISTS, **{"Mcp-Session-Id": session}))


def one_stream(stranger: Stranger) -> None:
    """Fill a stream of HTTP+SSE, then ping on each connection."""
    path = stranger.open_stream()
    for _ in range(2):
        stranger.post(LISTS, path)
    time.sleep(1)
    for _ in range(64):
        stranger.send(post(PING, path))


def batches(stranger: Stranger) -> None:
    """Send a session's batches of 100 lists, one on each connection."""
    stranger.send_batches(64)


def pipelined(stranger: Stranger) -> None:
    """Send 40 lists on each connection."""
    for _ in range(64):
        stranger.send(LIST * 40)


def in_memory(stranger: Stranger) -> None:
    """Send 48 batches in a session, and six for each of 40 streams."""
    stranger.send_batches(48)
    for _ in range(40):
        path = stranger.open_stream()
        for _ in range(6 if path else 0):
            stranger.post(LISTS, path)


def unread(count: int = 50) -> str:
    """Have a stranger read nothing, with 32 places, the last time with 512."""
    for attack in (one_stream, batches, pipelined, in_memory):
        places = 512 if attack is in_memory else 32
        with serving(connections=places, is_wide=True) as server:
            with connect(server.port) as link:
                ask(link, CALL)
            before, waits, served = resident(server), [], 0
            stranger = Stranger(server.port)
            attack(stranger)
            for _ in range(count):
                began = time.monotonic()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    with connect(server.port) as link:
                        link.settimeout(5)
                        served += ask(link, CALL).status == 200
                waits.append(time.monotonic() - began)
                time.sleep(0.5)
            most = resident(server, "VmHWM") - before
            for link in stranger.links:
                link.close()
        print(
            f"{attack.__name__}: {stranger.sent // 1000} kB sent, {served} of {count} "
            f"calls served, in at most {max(waits):.2f} s, {most} MiB more at most",
            flush=True,
        )
    return "done"


LARGE = ["x" * 12_000] * 100  # 1.2 MB


def listeners(count: int = 2) -> str:
    """Have subscriptions that nobody reads, with ids as long as they may be and longer,
    while 5,000 changes are told."""
    said = []
    for length in (256, 65_000):
        with serving() as server, contextlib.ExitStack() as stack:
            control = stack.enter_context(connect(server.port))
            ask(control, CALL)
            before, answers = resident(server), []
            wanted = {"resourceSubscriptions": [f"x://{one}" for one in range(1000)]}
            for _ in range(count):
                link = stack.enter_context(connect(server.port))
                listen = request("subscriptions/listen", notifications=wanted)
                head, _, body = listen.partition(b"\r\n\r\n")
                longer = body.replace(b'"id": 1', b'"id": "%s"' % (b"x" * length))
                old, new = (b"th: %d\r" % len(one) for one in (body, longer))
                sent = (head + b"\r\n\r\n").replace(old, new) + longer
                answers.append(ask(link, sent).status)
            began = time.monotonic()
            for _ in range(5):
                told = {"count": 1000}
                ask(control, request("tools/call", name="tell", arguments=told))
            took = time.monotonic() - began
            after = resident(server)
            said.append(
                f"ids of {length}: {answers}, {before} to {after} MiB, {took:.1f} s"
            )
    return f"{count} subscriptions, {'; '.join(said)}"


def uris(count: int = 2000) -> str:
    """Subscribe to URIs of 2 kB in one session."""
    with serving() as server, connect(server.port) as link:
        ask(link, CALL)
        ident = open_session(link)
        before, kept = resident(server), 0
        for number in range(count):
            uri = f"x://{number}" + "x" * 2000
            link.sendall(request("resources/subscribe", ident, uri=uri))
            answer = http.client.HTTPResponse(link, method="POST")
            answer.begin()
            kept += b'"error"' not in answer.read()
        told = {"count": count, "tail": 2000}
        ask(link, request("tools/call", name="tell", arguments=told))
        return f"{kept} of {count} in one session: {before} to {resident(server)} MiB"


def pipe(count: int = 12) -> str:
    """Subscribe on stdio with requests of 1.2 MB."""
    code = SERVER.format(root=MODULE, port="0", connections=1, is_wide=False)
    code = code.replace('["--http", "0"]', "[]")
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as server:
        assert server.stdin and server.stdout
        sizes = []
        for number in range(count + 1):
            wanted = {"toolsListChanged": True}
            meta = meta_for(NEWEST, {"x": LARGE if number else []})
            params = {"notifications": wanted, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": number, "params": params}
            message["method"] = "subscriptions/listen"
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            assert b"acknowledged" in server.stdout.readline()
            sizes.append(resident(server))
        server.stdin.close()
        server.stdout.read()
    return f"{count} subscriptions on stdio: {sizes[0]} to {sizes[-1]} MiB"


def streams(count: int = 520) -> str:
    """Ask for subscriptions; measure calls on connections of their own."""
    listen = request("subscriptions/listen", notifications={"toolsListChanged": True})
    with serving() as server, contextlib.ExitStack() as held:

        def latency() -> str:
            passed = []
            for _ in range(200):
                began = time.perf_counter()
                with connect(server.port) as link:
                    assert ask(link, CALL).status == 200
                passed.append((time.perf_counter() - began) * 1000)
            return f"{sorted(passed)[100]:.1f} ms (at most {max(passed):.0f})"

        before, answers = latency(), Counter[int]()
        for _ in range(count):
            link = held.enter_context(connect(server.port))
            answers[ask(link, listen).status] += 1
        return f"a call takes {before} before, {latency()} beside {dict(answers)}"


class Callers:
    """Eight threads that call, each on a new connection; `counts` says what came."""

    def __init__(self, port: int) -> None:
        self.port, self.counts, self.stop = port, Counter[str](), threading.Event()
        self.threads = [threading.Thread(target=self.call) for _ in range(8)]
        for thread in self.threads:
            thread.start()

    def call(self) -> None:
        while not self.stop.is_set():
            with (
                contextlib.suppress(ConnectionRefusedError),
                connect(self.port) as link,
            ):
                try:
                    self.counts[str(ask(link, CALL).status)] += 1
                except (OSError, http.client.HTTPException) as problem:
                    self.counts[repr(problem)] += 1

    def end(self) -> str:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        return str(dict(self.counts))


def restarts(count: int = 10) -> str:
    """Restart a server on its port, under load; a refused connection loses nothing."""
    with serving() as server:
        callers = Callers(server.port)
        time.sleep(1)
    for _ in range(count):
        with serving(server.port):
            time.sleep(1)
    return f"{count} restarts: {callers.end()}"


NGINX = """
pid {folder}/pid; error_log {folder}/error.log; daemon off; worker_processes 1;
events {{}} http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream servers {{ {servers} }}
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://servers; }} }}
}}
"""


def nginx(count: int = 10) -> str:
    """Restart one of two servers after the other, while nginx divides calls."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]  # it is free
        running = [stack.enter_context(contextlib.ExitStack()) for _ in range(2)]
        ports = [one.enter_context(serving()).port for one in running]
        servers = " ".join(f"server 127.0.0.1:{one} max_fails=0;" for one in ports)
        config = Path(folder, "nginx.conf")  # a refused connection: the other server
        config.write_text(NGINX.format(folder=folder, port=port, servers=servers))
        proxy = stack.enter_context(subprocess.Popen(["nginx", "-c", str(config)]))
        stack.callback(proxy.terminate)
        time.sleep(1)  # until it listens
        callers = Callers(port)
        for number in range(count):
            time.sleep(1)
            running[number % 2].close()
            running[number % 2].enter_context(serving(ports[number % 2]))
        return f"{count} restarts: {callers.end()}"


def readers(count: int = 1000) -> str:
    """Tell all sessions of 50 changes, one after the other; a tenth does not read."""
    changes = 50
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(connections=count * 2))
        control, links = connect(server.port), []
        for _ in range(count):
            ident = open_session(control)
            for number in range(changes):
                ask(control, request("resources/subscribe", ident, uri=f"x://{number}"))
            link = stack.enter_context(connect(server.port))
            link.sendall(LISTEN.format(ident).encode())
            links.append(link)
        right, told = 0, {"count": changes}
        ask(control, request("tools/call", name="tell", arguments=told))
        for link in links[count // 10 :]:  # the others never read
            data = part = link.recv(2**16)
            while part and f"x://{changes - 1}".encode() not in data:
                data += (part := link.recv(2**16))
            found = [int(one) for one in re.findall(rb"x://(\d+)", data)]
            right += found == list(range(changes))
        return f"{right} of {count - count // 10} have {changes} events in order"


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["none"]
    known: Any = {
        one.__name__: one
        for one in (
            memory,
            values,
            unread,
            listeners,
            uris,
            pipe,
            streams,
            restarts,
            nginx,
            readers,
        )
    }
    if what not in known:
        sys.exit(__doc__)
    print(f"{what}: {known[what](*map(int, numbers))}")
