#!/usr/bin/env python3
"""Fuzz what takes a stranger's bytes: `python3 .ci/fuzz.py lines|http|schemas|traces
SECONDS`.

It begins with what the vectors send. atheris lets coverage steer it; without that
package, changes are random, with a fixed seed. If an input raises, takes too long or
breaks the rule of its target (the docstring), it is printed, and the exit status is not
0.
"""

import contextlib
import html.parser
import importlib
import itertools
import json
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP / "examples" / "tools"), str(TOP / "examples"), str(TOP)]
try:
    atheris: Any = importlib.import_module("atheris")
except ImportError:
    atheris = None
with (
    atheris.instrument_imports(["mcp_ref", "picture"]) if atheris else mock.MagicMock()
):
    mcp: Any = importlib.import_module("mcp_ref")
    drawing: Any = importlib.import_module("picture")
    everything: Any = importlib.import_module("everything_server")

LIMIT, MOST = 10, 100_000  # seconds and bytes of an input
FOLDER = Path(tempfile.mkdtemp())
for waits in ("slow_compute", "confirm_delete", "multi_input", "test_tool_with_task"):
    del everything.server.tools[waits]
# fails if the user refuses
del everything.server.prompts["test_input_required_result_prompt"]
everything.time = mock.MagicMock()  # sleep() returns at once
failures: list[Any] = []  # on other threads
threading.excepthook = failures.append
mcp.log = lambda line: (
    failures.append(line) if re.match("(?!tool ).*failed\n", line) else None
)
mcp.MAX_SESSIONS, mcp.ASK_SECONDS = 20, 0.02
httpd = mcp.http_server(
    mcp.Endpoint(everything.server, cors=True, metadata={"resource": "x"})
)

# ---- inputs; over HTTP, their words in capitals are replaced by what belongs there
NEWEST = mcp.versions()[0]
META = mcp.meta_for(NEWEST, {mcp.META_CAPABILITIES: {"elicitation": {}}})
OPENING = (
    '{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": '
    '"2025-03-26", "capabilities": {"elicitation": {}}, "clientInfo": {}}}\n'
    '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
)
TRACE = (
    '{"way": ">", "on": 1, "time": "2026-11-22T09:12:01.123Z", "message": %s}\n'
    '{"way": "<", "on": 1, "message": {"id": 1, "result": {}}}'
)
HEAD = " /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LEGACY = f"POST{HEAD}Mcp-Session-Id: SESSION\r\nContent-Length: LENGTH\r\n\r\n"
MODERN = (
    f"POST{HEAD}MCP-Protocol-Version: {NEWEST}\r\nMcp-Method: METHOD\r\nMcp-Name: NAME\r\n"
    "Content-Length: LENGTH\r\n\r\n"
)
TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?[0-9.]+|true|null|\{\}|\[\]|\n')
WORDS = " ".join([*mcp._LIMITS, *mcp._RULES]).split()  # keywords of JSON Schema
VALUES = b"null true -1 0.5 1e400 [] {}".split()
VALUES += [b"9" * 5000, b'""', b'"\\ud800\\0"', b'"<script>"', b'"\'{0}&"']
VALUES += [b'[{"a": 1}, {}]', b"[" * 3000 + b"]" * 3000]
PIECES = [b"", b"\0", b"\xff", b"\r\n", b"\n", b" ", *b": , [ { DELETE /sse".split()]
PIECES += [
    b"A" * 70_000,
    b"HTTP/1.0",
    b"Content-Length: 2\r\n",
    b"Connection: close\r\n",
]
ENDS = "", ': {}, "a"', ': ["a"], "b"'
NEW = [VALUES, PIECES, [f'"{word}"{end}'.encode() for word in WORDS for end in ENDS]]
TAGS = "html meta title style h1 h2 p ul ol li a br i b span div details summary small pre u wbr"
ATTRIBUTES = set("lang charset name content http-equiv class id title href".split())


def said_by_vectors() -> Any:
    """Yield each message of the vectors as JSON, a request without and with `_meta`."""
    for path in sorted(TOP.glob("examples/vectors/[!s]*.json")):
        vectors = json.loads(path.read_bytes())["vectors"]
        for step in itertools.chain(*(one.get("steps", ()) for one in vectors)):
            method = step.get("request", step.get("notify"))
            params = step.get("params", {})
            if method and isinstance(params, dict):
                request = {"jsonrpc": "2.0", "id": 1, "method": method}
                for meta in ({}, {"_meta": META}):
                    yield json.dumps({**request, "params": {**params, **meta}})
            if "send" in step:
                yield json.dumps(step["send"])


def seeds() -> dict[str, list[str]]:
    """Return the inputs to begin with, by target."""
    said = dict.fromkeys(said_by_vectors())
    files = sorted(TOP.glob("examples/course/lessons/*.md"))
    return {
        "lines": [one if "_meta" in one else OPENING + one for one in said],
        "http": [(MODERN if "_meta" in one else LEGACY) + one for one in said]
        + [
            f"GET{HEAD}Mcp-Session-Id: SESSION\r\n\r\n",
            f"OPTIONS{HEAD}Origin: http://x\r\n\r\n",
            f"POST{HEAD}Transfer-Encoding: chunked\r\n\r\n2;x\r\n[]\r\n0\r\nA: b\r\n\r\n",
        ],
        "schemas": [f'{{"{keyword}": 2}}\n4\n{{}}' for keyword in mcp._LIMITS]
        + [
            json.dumps(tool.definition["inputSchema"]) + '\n{"name": "x"}'
            for tool in everything.server.tools.values()
        ],
        "traces": [TRACE % one for one in said]
        + [one.read_text("utf-8") for one in files],
    }


def change(data: bytes, most: int, seed: int) -> bytes:
    """Change one or two tokens or pieces of an input."""
    lot = random.Random(seed)
    for _ in range(lot.randrange(1, 3)):
        start = lot.randrange(len(data) + 1)
        found = TOKEN.search(data, start) if lot.random() < 0.7 else None
        piece = start, start + lot.choice((0, 0, 1, 5, 999))
        start, end = found.span() if found else piece
        new = lot.choice(lot.choice([*NEW, [data[start:end] * 2]]))
        data = data[:start] + new + data[end:]
    if atheris and lot.random() < 0.2:
        data = atheris.Mutate(data, most)
    return data[:most]


# ---- the targets
def lines(data: bytes) -> None:
    """Server.handle(): a message that is due one has an answer, and not an internal
    error."""
    due: Counter[Any] = Counter()

    def hear(message: Any) -> None:
        assert b'"code":-32603' not in mcp.encode(message), message
        for one in message if isinstance(message, list) else [message]:
            if "method" not in one:
                due[one.get("id")] -= 1
            elif "id" in one:  # a question
                said = {"id": one["id"], "result": {"action": "accept", "content": {}}}
                everything.server.handle(said, hear, peer=peer)

    peer, sure = mcp.Peer(hear), b"ancel" not in data
    for line in data.split(b"\n"):
        with contextlib.suppress(mcp.RpcError):  # it is not JSON
            message = mcp.decode(line)
            everything.server.handle(message, hear, peer=peer)
            sure = sure and isinstance(message, dict)  # not a batch
            ident = message.get("id") if sure and mcp.is_id(message.get("id")) else None
            due[ident] += 1
            if mcp.kind_of(message) != "request":
                due[ident] -= 1
    peer.close()
    assert not any(due.values()) or not sure, due


def schemas(data: bytes) -> None:
    """Schema(): ValueError, or each value has a flaw with a place, or none."""
    try:
        first, *values = map(mcp.decode, data.split(b"\n"))
        schema = mcp.Schema(first)
    except (mcp.RpcError, ValueError):
        return
    for flaw in map(schema.flaw, values):
        assert flaw is None or flaw.startswith("/"), flaw


class Page(html.parser.HTMLParser):
    """A page; it fails at markup that picture.py does not write."""

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        is_ours = tag in TAGS.split() and dict(attributes).keys() <= ATTRIBUTES
        assert is_ours, (tag, attributes)


def traces(data: bytes) -> None:
    """picture.py: a page, without markup of the trace."""
    path = FOLDER / ("t.md" if b"```mcp" in data else "t")
    path.write_bytes(data)
    page = re.sub(drawing.HIDDEN, "\ufffd", drawing.page(str(path)))
    Page().feed(page.encode().decode())


def ask(data: bytes) -> bytes:
    """Send bytes on a connection of their own; return what comes."""
    data = re.sub(
        rb"LENGTH((?:\r\n[^\r\n]+)*\r\n\r\n)(.*)",
        lambda found: b"%d%s%s" % (len(found[2]), found[1], found[2]),
        data,
    )
    said = b""
    with socket.create_connection(("127.0.0.1", httpd.server_port), LIMIT / 2) as link:
        link.sendall(data)
        select.select([link], [], [], 0.01)
        link.shutdown(socket.SHUT_WR)  # the input may be incomplete
        try:
            for part in iter(lambda: link.recv(2**16), b""):
                said += part
                if b"text/event-stream" in said:  # it need not end
                    link.settimeout(0.02)
        except TimeoutError:
            assert b"text/event-stream" in said, f"then it hangs: {said!r}"
    return said


def http(data: bytes) -> None:
    """The HTTP server: an answer, and none that is a 500 or an internal error."""
    if b"SESSION" in data:
        opening = LEGACY + OPENING.split("\n")[0]
        opened = ask(opening.replace("Mcp-Session-Id", "X").encode())
        data = data.replace(b"SESSION", re.findall(rb"Session-Id: (\w+)", opened)[0])
    for word, member in (b"METHOD", b"method"), (b"NAME", b"(?:name|uri)"):
        found = re.search(rb'"%s": "([^"]*)"' % member, data)
        data = data.replace(word, found[1] if found else b"x")
    said = ask(data)
    # What begins like TLS is hung up without an answer.
    is_http = re.match(rb"[\r!-~]", data) and data.strip(b"\r\n")
    assert said or not is_http, "no answer"
    assert not re.search(rb'HTTP/1.1 500|"code":-32603', said), said


def main(name: str, seconds: str) -> None:
    """Fuzz one target."""
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    inputs = [text.encode() for text in seeds()[name]]
    end, runs = time.monotonic() + float(seconds), itertools.count(1)

    def attempt(data: bytes) -> None:
        try:
            globals()[name](data)
            assert not failures, failures
        except BaseException:
            print(f"fuzz: {name} fails with {data!r:.3000}", flush=True)
            raise
        number = next(runs)
        if time.monotonic() > end:
            how = "with atheris" if atheris else "at random"
            print(f"fuzz: {name}: {number} inputs in {seconds} s, {how}", flush=True)
            os._exit(0)

    if atheris:
        for number, data in enumerate(inputs):
            (FOLDER / str(number)).write_bytes(data)
        words = f"-seed=1 -max_len={MOST} -rss_limit_mb=0 -verbosity=0 -timeout={LIMIT}"
        words += f" -artifact_prefix={FOLDER}/ {FOLDER}"
        atheris.Setup(["", *words.split()], attempt, custom_mutator=change)
        atheris.Fuzz()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for number in itertools.count():
        signal.alarm(LIMIT)
        seed = inputs[number % len(inputs)]
        attempt(seed if number < len(inputs) else change(seed, MOST, number))


if __name__ == "__main__":
    main(*sys.argv[1:])
