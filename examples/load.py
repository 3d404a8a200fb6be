#!/usr/bin/env python3
"""Load a server over HTTP with clients of every kind at once, and check each answer.

    python3 examples/load.py [SECONDS [CLIENTS]]        20 and 32, if not given

Each client is a thread that does one thing after the other, by chance: calls on a kept connection,
calls whose progress is streamed, calls in a legacy session with its stream of events,
subscriptions, calls that are cancelled by hanging up, requests that break off anywhere. The
server is a process of its own; its memory, threads and descriptors are printed while it works (on
Linux) and after all have left. The exit status is 1 if any answer was wrong, or if anything is left
behind.
"""
from __future__ import annotations

import collections
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
import mcp_ref
from mcp_ref import Context, Endpoint, Server, http_server

MODERN = "2026-07-28"
seen: collections.Counter = collections.Counter()       # what was done, and what went wrong


def serve() -> None:
    """Be the server: print the port, then end with standard input."""
    server = Server("load")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def steps(text: str, ctx: Context) -> str:
        for step in range(1, 4):
            ctx.progress(step, 3, text)
        return text

    @server.tool
    def wait(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.01)
        return "cancelled"

    httpd = http_server(Endpoint(server))
    threading.Thread(target=httpd.serve_forever).start()
    print(httpd.server_port, flush=True)
    for _ in sys.stdin:                     # each line is a question: what is left?
        print(len(httpd.opened) + len(httpd.endpoint.replies) + len(server._listening), flush=True)
    httpd.close()


class Client:
    """One client: a kept connection, and what it may do."""

    def __init__(self, port: int, seed: int) -> None:
        self.port, self.chance, self.count = port, random.Random(seed), 0
        self.connection = self.connect()
        self.doings = [self.call, self.call, self.call, self.stream, self.stream, self.session,
                       self.subscribe, self.hang_up, self.break_off]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def modern(self, method: str, token: str, **params) -> tuple[bytes, dict]:
        """Return body and headers of a request of 2026-07-28; `token` is its id too."""
        meta = {mcp_ref.META_VERSION: MODERN, mcp_ref.META_CAPABILITIES: {},
                "progressToken": token}
        name = {"Mcp-Name": params["name"]} if "name" in params else {}
        return json.dumps({"jsonrpc": "2.0", "id": token, "method": method,
                           "params": {**params, "_meta": meta}}).encode(), {
            "Content-Type": "application/json", "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method, **name}

    def ask(self, verb: str, body: bytes | None, headers: dict) -> tuple[int, dict, bytes]:
        """Send a request on the kept connection; return status, headers and body."""
        self.connection.request(verb, "/mcp", body, headers)
        response = self.connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    def check(self, what: str, right: bool) -> None:
        seen[what if right else what + ", WRONG"] += 1

    def text(self) -> str:
        self.count += 1
        return f"{id(self)}-{self.count}" * self.chance.choice((1, 1, 1, 500))

    def call(self) -> None:
        text = self.text()
        body, headers = self.modern("tools/call", text[:40], name="echo", arguments={"text": text})
        status, _, data = self.ask("POST", body, headers)
        answer = json.loads(data)
        self.check("call", status == 200 and answer["id"] == text[:40]
                   and answer["result"]["content"][0]["text"] == text)

    def stream(self) -> None:
        text = self.text()
        body, headers = self.modern("tools/call", text[:40], name="steps", arguments={"text": text})
        status, _, data = self.ask("POST", body, headers)
        events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: ")]
        self.check("stream", status == 200 and len(events) == 4
                   and [event["params"]["progress"] for event in events[:3]] == [1, 2, 3]
                   and all(event["params"]["progressToken"] == text[:40] for event in events[:3])
                   and events[3]["result"]["content"][0]["text"] == text)

    def session(self) -> None:
        """Open a legacy session and its stream of events, call, and delete it."""
        headers = {"Content-Type": "application/json"}

        def post(**message) -> tuple[int, dict, bytes]:
            return self.ask("POST", json.dumps({"jsonrpc": "2.0", **message}).encode(), headers)
        status, given, _ = post(id=0, method="initialize", params={
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        headers["Mcp-Session-Id"] = given.get("Mcp-Session-Id", "")
        post(method="notifications/initialized")
        listening = self.connect()
        listening.request("GET", "/mcp", headers=headers)
        right = listening.getresponse().status == 200
        for number in range(5):
            text = self.text()
            _, _, data = post(id=number, method="tools/call",
                              params={"name": "echo", "arguments": {"text": text}})
            answer = json.loads(data)
            right = right and answer["id"] == number
            right = right and answer["result"]["content"][0]["text"] == text
        if self.chance.random() < 0.5:
            listening.close()
        right = right and self.ask("DELETE", None, headers)[0] == 200
        right = right and self.ask("DELETE", None, headers)[0] == 404
        listening.close()
        self.check("session", status == 200 and right)

    def subscribe(self) -> None:
        wanted = {"toolsListChanged": True}
        self.begin("subscribe", self.modern(
            "subscriptions/listen", self.text()[:40], notifications=wanted), True)

    def hang_up(self) -> None:
        self.begin("hang up", self.modern("tools/call", self.text()[:40], name="wait"), False)

    def begin(self, what: str, request: tuple[bytes, dict], answered: bool) -> None:
        """Send a request that has no end, perhaps read how it begins, and leave."""
        connection = self.connect()
        connection.request("POST", "/mcp", *request)
        right = True
        if answered:
            response = connection.getresponse()
            right = response.status == 200 and b"acknowledged" in response.readline()
        connection.close()
        self.check(what, right)

    def break_off(self) -> None:
        body, headers = self.modern("tools/call", "t", name="steps", arguments={"text": "t"})
        headers.update({"Host": "localhost", "Content-Length": str(len(body))})
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        data = f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body
        connection = self.connect()
        connection.connect()
        connection.sock.sendall(data[:self.chance.randrange(len(data))])
        connection.close()
        self.check("break off", True)

    def run(self, until: float) -> None:
        while time.monotonic() < until:
            doing = self.chance.choice(self.doings)
            try:
                doing()
            except Exception as problem:    # noqa: BLE001 (whatever it is, it is counted)
                seen[f"{doing.__name__}, WRONG: {problem!r}"] += 1
                self.connection.close()
        self.connection.close()


def state(pid: int) -> str:
    """Return memory, threads and descriptors of a process."""
    process = Path(f"/proc/{pid}")
    if not process.exists():
        return "no /proc here"
    lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return "{:.1f} MB, {} threads, {} descriptors".format(
        int(lines["VmRSS"].split()[0]) / 1000, lines["Threads"].strip(),
        len(os.listdir(process / "fd")))


def main(seconds: float = 20, clients: float = 32) -> int:
    """Run it; return the exit status."""
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert server.stdin and server.stdout
    with server, server.stdin:
        port = int(server.stdout.readline())
        print("before:", state(server.pid), flush=True)
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=Client(port, seed).run, args=(until,))
                   for seed in range(int(clients))]
        for thread in threads:
            thread.start()
        while time.monotonic() + 2 < until:
            time.sleep(2)
            print(f"{until - time.monotonic():4.0f} s left:", state(server.pid), flush=True)
        for thread in threads:
            thread.join(60)
        left = "?"
        for _ in range(100):                # who has left is noticed ten times a second
            server.stdin.write("?\n")
            server.stdin.flush()
            left = server.stdout.readline().strip()
            if left == "0":
                break
            time.sleep(0.05)
        print("after:", state(server.pid))
    for what, count in sorted(seen.items()):
        print(f"{count:8,} {what}")
    print(left, "connections, streams and subscriptions are left")
    return int(left != "0" or any("WRONG" in what for what in seen) or bool(server.returncode))


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main(*map(float, sys.argv[1:])))
