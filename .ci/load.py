#!/usr/bin/env python3
"""Measure a server under load from strangers: `python3 .ci/load.py WHAT [NUMBER]`.

memory      what it keeps of 1,000 sessions that send as much as they may
values      what eight waiting calls hold, each with as many JSON values as it may
            have; and whether more values are refused before they are decoded
unread      what two subscriptions hold that nobody reads, with long ids
uris        what a session holds that subscribes to 2,000 URIs of 2 kB
pipe        what 12 subscriptions on stdio hold, made by requests of 1.2 MB
streams     how long a call takes while 520 subscriptions are asked for
restarts    calls that ten rolling restarts lose, if clients connect to the server
nginx       ... behind nginx, which must be installed
readers     1,000 sessions with a stream each, of which 100 do not read

NUMBER replaces 1,000, eight, two, 2,000, 12, 520 or ten. All listens on free ports of
127.0.0.1.
"""

from __future__ import annotations

import contextlib
import http.client
import json
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
META = "io.modelcontextprotocol/"
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}
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
server.run(["--http", "{port}"])
"""


@contextlib.contextmanager
def serving(port: int = 0, connections: int = 512) -> Iterator[Any]:
    """Start a server; yield its process, which has a `port`."""
    code = SERVER.format(root=str(ROOT), port=port, connections=connections)
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
        params["_meta"] = ENVELOPE
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        headers["Mcp-Name"] = params.get("name", "")
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if method == "notifications/initialized":
        del message["id"]
    body = json.dumps(message)
    headers.update({"Content-Type": "application/json", "Host": "127.0.0.1"})
    headers["Content-Length"] = str(len(body))
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value]
    return f"POST /mcp HTTP/1.1\r\n{''.join(lines)}\r\n{body}".encode()


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


def open_session(link: socket.socket, **client: Any) -> str:
    """Open a session; return its id, or nothing if it is refused."""
    info = {"name": "c", "version": "1", **client}
    opening: Any = {"protocolVersion": "2025-06-18", "capabilities": {}}
    made = ask(link, request("initialize", **opening, clientInfo=info))
    ident = made.getheader("Mcp-Session-Id")
    ask(link, request("notifications/initialized", ident or ""))
    return ident or ""


def resident(server: Any) -> int:
    """Return the memory of a process, in MiB."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s*(\d+)", status)[0]) // 1024


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


LARGE = ["x" * 12_000] * 100  # 1.2 MB


def unread(count: int = 2) -> str:
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
    code = SERVER.format(root=str(ROOT), port="0", connections=1)
    code = code.replace('["--http", "0"]', "[]")
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as server:
        assert server.stdin and server.stdout
        sizes = []
        for number in range(count + 1):
            wanted = {"toolsListChanged": True}
            meta = {**ENVELOPE, "x": LARGE if number else []}
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
