#!/usr/bin/env python3
"""Show that each vector for clients that is a MUST, or about harm, can fail.

    client_mutants.py [NAME ...]

They are played on mutants: our client behind the proxy of examples/vectors/strange.py,
which stands between it and the runner, and changes what it sends or what it hears. What
fails with an idle proxy, too, does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path += [
    str(Path(__file__).resolve().parents[1] / "examples" / "vectors" / folder)
    for folder in ("", "clients")
]

import report
import run_client
import strange
from strange import Change, Json, answer, error

VECTORS = Path(__file__).resolve().parents[1] / "examples" / "vectors"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
OPENING = ("initialize", "server/discover", "notifications/initialized")
# With these vectors, each rule about all messages has messages to check.
EXPOSED = {
    "client-ids-differ",
    "client-unknown-request",
    "client-session-id",
    "client-subscribe-legacy",  # opens a GET stream
}
SHOULD = {"client-shutdown"}  # a bug of real clients that only a SHOULD forbids
JOBS = 4
SECONDS = float(os.environ.get("MCP_PATIENCE", "2"))  # for an answer
DRIVER = [sys.executable, str(VECTORS / "clients" / "driver.py")]


def call(message: Json) -> bool:
    """Say whether a message is a request of a caller, not of the opening."""
    return "id" in message and message.get("method", "x") not in (*OPENING, "x")


class Params(Change):
    """the params of calls lose something"""

    def change(self, params: Json, message: Json) -> None:
        raise NotImplementedError

    def request(self, message: Json, headers: Json) -> Json | None:
        if call(message):
            self.change(message.setdefault("params", {}), message)
        return message


class NoMeta(Params):
    """requests have no _meta"""

    def change(self, params: Json, message: Json) -> None:
        params.pop("_meta", None)


class NoCapabilities(Change):
    """no capabilities are declared"""

    def request(self, message: Json, headers: Json) -> Json | None:
        params = message.get("params") or {}
        if "capabilities" in params:
            params["capabilities"] = {}
        if CAPABILITIES in params.get("_meta", {}):
            params["_meta"][CAPABILITIES] = {}
        return message


class OddMeta(Params):
    """names in _meta are ill-formed"""

    def change(self, params: Json, message: Json) -> None:
        params.setdefault("_meta", {})["-odd-/"] = 1


class NoJsonrpc(Change):
    """messages do not say jsonrpc"""

    def request(self, message: Json, headers: Json) -> Json | None:
        message.pop("jsonrpc", None)
        return message


class NullIds(Change):
    """calls have null for an id"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "tools/call":
            message["id"] = None
        return message


class Puts(Change):
    """calls are sent by PUT"""

    def method(self, verb: str, request: Json) -> str:
        return "PUT" if request.get("method") == "tools/call" else verb


class SameIds(Change):
    """requests have the same id"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") in ("tools/call", "prompts/get", "resources/read"):
            message["id"] = 77
        return message


class NotificationIds(Change):
    """notifications have an id"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if str(message.get("method", "")).startswith("notifications/"):
            message["id"] = 5
        return message


class Arrays(Change):
    """messages are sent in arrays"""

    def text(self, line: bytes) -> bytes | None:
        return b"[" + line + b"]" if b"tools/call" in line else line


class Chatter(Change):
    """answers are sent that nobody asked for"""

    def text(self, line: bytes) -> bytes | None:
        extra = b'{"jsonrpc": "2.0", "id": 999, "result": {}}'
        return line if self.http else line + b"\n" + extra


class Greets(Change):
    """lines that are no messages are written, too"""

    def text(self, line: bytes) -> bytes | None:
        return line if self.http else b"calling the server\n" + line


class NoMessages(Change):
    """errors have no message"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "error" in message:
            message["error"].pop("message", None)
        return message


class ErrorCodes(Change):
    """errors have codes that are strings"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "error" in message:
            message["error"] = {"code": "no", "message": "no"}
        return message


class AnyType(Change):
    """any resultType is taken for complete"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if (
            isinstance(message.get("result"), dict)
            and "resultType" in message["result"]
        ):
            message["result"]["resultType"] = "complete"
        return [message]


class TypeDemanded(Change):
    """a result without a resultType is refused"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "result" in message and "resultType" not in message["result"]:
            message["result"]["resultType"] = "none"
        return [message]


class CodesAssumed(Change):
    """errors of the legacy range are taken for results"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("error", {}).get("code") == -32007:
            return [answer(message, result={"content": [], "resultType": "complete"})]
        return [message]


class Crossed(Change):
    """answers are taken for those of the next request"""

    def message(self, message: Json, request: Json) -> list[Any]:
        content = (message.get("result") or {}).get("content")
        if content:
            content[0]["text"] = "something"
        return [message]


class KeyedFallback(Change):
    """only one error of the probe leads to initialize"""

    legacy = False

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "server/discover":
            self.legacy = message.get("error", {}).get("message") == "Method not found"
        return [message]

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "initialize" and not self.legacy:
            return answer(message, error=error(-32601, "no"))
        return message


class InitializeOdd(Change):
    """initialize has no params, and comes after another request"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "initialize":
            message["params"] = {"protocolVersion": "latest"}
        return message


class FirstList(Change):
    """a request comes before initialize, and initialize is cancelled"""

    def text(self, line: bytes) -> bytes | None:
        if self.http or b'"initialize"' not in line:
            return line
        name = json.loads(line)["id"]
        before = b'{"jsonrpc": "2.0", "id": 998, "method": "tools/list"}\n'
        params = {"requestId": name}
        method = "notifications/cancelled"
        after = {"jsonrpc": "2.0", "method": method, "params": params}
        return before + line + b"\n" + json.dumps(after).encode()


class Uninitialized(Change):
    """notifications/initialized is not sent"""

    def request(self, message: Json, headers: Json) -> Json | None:
        return None if message.get("method") == "notifications/initialized" else message

    def message(self, message: Json, request: Json) -> list[Any]:
        return [message]


class Arguments(Params):
    """arguments are sent in ASCII, without newlines"""

    def change(self, params: Json, message: Json) -> None:
        text = json.dumps(params.get("arguments"), ensure_ascii=False)
        text = text.replace("\\n", " ").encode("ascii", "replace").decode()
        if "arguments" in params:
            params["arguments"] = json.loads(text)


class Headers(Change):
    """a header is changed"""

    name, value = "accept", "application/json"

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") not in OPENING and self.name in headers:
            headers[self.name] = self.value
        return message


class NoVersionHeader(Headers):
    """the version header is that of another revision"""

    name, value = "mcp-protocol-version", "2023-01-01"


class NoVersionAtAll(Change):
    """there is no version header"""

    def request(self, message: Json, headers: Json) -> Json | None:
        headers.pop("mcp-protocol-version", None)
        return message


class MethodHeader(Headers):
    """Mcp-Method is in capitals"""

    name, value = "mcp-method", "TOOLS"


class NameHeader(Headers):
    """Mcp-Name is that of another tool"""

    name, value = "mcp-name", "other"


class SessionHeader(Headers):
    """the session id is another one"""

    name, value = "mcp-session-id", "mine"


class SessionKept(Change):
    """a session id goes with every initialize"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "initialize":
            headers["mcp-session-id"] = "session-1"
        return message


class ParamHeaders(Change):
    """arguments are not mirrored, or all of them, as they are"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "tools/call":
            for name in ("region", "count", "dry", "zone"):
                headers[f"mcp-param-{name}"] = "null"
        return message


class NoRetry(Change):
    """retry is not respected"""

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        return [b"retry: 1\r\n" if one.startswith(b"retry") else one for one in lines]


class GetHeaders(Change):
    """GET accepts JSON"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if not message:
            headers["accept"] = "application/json"
        return message


class AnyTool(Change):
    """tools with ill-formed headers are listed, too"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for tool in (message.get("result") or {}).get("tools", []):
            if tool.get("name") == "bad":
                tool["inputSchema"] = {"type": "object"}
        return [message]


class Deaf(Change):
    """answers over HTTP are lost if they are streams or JSON"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "tools/call" and "result" in message:
            return [answer(message, error=error(-32603, "lost"))]
        return [message]


class NoAnswers(Params):
    """retries have no answers"""

    def change(self, params: Json, message: Json) -> None:
        params.pop("inputResponses", None)


class NoState(Params):
    """the state is trimmed"""

    def change(self, params: Json, message: Json) -> None:
        state = params.get("requestState")
        if isinstance(state, str):
            params["requestState"] = state.strip()[:100] + "!"


class AnyState(Params):
    """the state goes with all requests, once there was one"""

    state = "none"

    def change(self, params: Json, message: Json) -> None:
        self.state = params.get("requestState", self.state)
        params["requestState"] = self.state
        params.setdefault("inputResponses", {})


class RetryIds(Change):
    """the retry has the id of the request"""

    last: Any = None

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "tools/call":
            if "inputResponses" in message["params"]:
                message["id"] = self.last
            self.last = message["id"]
        return message


class NoCancel(Change):
    """cancellations name another request"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "notifications/cancelled":
            message["params"]["requestId"] = "other"
        return message


class Cancels(Change):
    """each call is followed by its cancellation"""

    def text(self, line: bytes) -> bytes | None:
        if self.http or b"tools/call" not in line:
            return line
        params = {"requestId": json.loads(line)["id"]}
        method = "notifications/cancelled"
        extra = {"jsonrpc": "2.0", "method": method, "params": params}
        return line + b"\n" + json.dumps(extra).encode()


class OddAnswers(Change):
    """questions are answered with another id, or another result"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "method" in message or "id" not in message:
            return message
        if "error" in message:
            del message["error"]
            message["result"] = {}
        elif message.get("result") == {}:
            message["result"] = {"pong": True}
        else:
            text = json.dumps(message["result"]).replace("file://", "http://")
            message["result"] = json.loads(text)
        return message


class NumberIds(Change):
    """ids of questions come back as numbers, 0 as null"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "method" not in message and str(message.get("id")).isdigit():
            message["id"] = int(message["id"]) or None
        return message


class NoQuestions(Change):
    """questions are not answered"""

    def message(self, message: Json, request: Json) -> list[Any]:
        return [] if "method" in message and "id" in message else [message]


class NoBatches(Change):
    """batches are ignored"""

    def body(self, text: bytes, stream: bool) -> bytes:
        return b"5" if text[:1] == b"[" else text


class OddCursors(Params):
    """cursors are trimmed"""

    def change(self, params: Json, message: Json) -> None:
        if "cursor" in params:
            params["cursor"] = str(params["cursor"]).strip()


class NullCursors(Params):
    """no cursor is null"""

    def change(self, params: Json, message: Json) -> None:
        if message["method"].endswith("/list"):
            params.setdefault("cursor", None)


class SameCursorEnds(Change):
    """a cursor that comes twice ends the list"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result") or {}
        cursor = (request.get("params") or {}).get("cursor")
        if cursor is not None and result.get("nextCursor") == cursor:
            del result["nextCursor"]
        return [message]


class ResumesOnce(Change):
    """a stream is resumed once; then it begins anew"""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def request(self, message: Json, headers: Json) -> Json | None:
        last = headers.get("last-event-id", "")
        if last in self.seen:
            headers.pop("last-event-id", None)
        self.seen |= {last} - {""}
        return message


class EmptyCursors(Change):
    """a page with an empty cursor is lost"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result") or {}
        if result.get("nextCursor") == "":
            result.update({name: [] for name in strange.MEMBERS.values()})
            del result["nextCursor"]
        return [message]


class LongResults(Change):
    """of a long text, the end is lost"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for one in (message.get("result") or {}).get("content", []):
            if "text" in one:
                one["text"] = one["text"][:60_000]
        return [message]


class EndlessPages(Change):
    """pages are fetched for ever: what has come before looks like something new"""

    page = 0

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result") or {}
        if "nextCursor" in result:
            self.page += 1
            for tool in result.get("tools", []):
                tool["name"] += str(self.page)
            # A client that counts pages has its number after the vector's patience.
            time.sleep(0.1 * SECONDS)
        return [message]


class OddTokens(Params):
    """progress tokens are objects"""

    token: Any = {"a": 1}

    def change(self, params: Json, message: Json) -> None:
        if "progressToken" in params.get("_meta", {}):
            params["_meta"]["progressToken"] = self.token


class SameTokens(OddTokens):
    """progress tokens are the same"""

    token = 5


class UsesAll(Change):
    """what the server has not declared is used"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "capabilities" in (message.get("result") or {}):
            message["result"]["capabilities"] = {"resources": {"subscribe": True}}
        return [message]


class AnySubscription(Change):
    """notifications go to the subscription that came first"""

    first: Any = None

    def message(self, message: Json, request: Json) -> list[Any]:
        meta = (message.get("params") or {}).get("_meta")
        name = "io.modelcontextprotocol/subscriptionId"
        if isinstance(meta, dict) and name in meta:
            self.first = self.first or meta[name]
            if not message["method"].endswith("acknowledged"):
                meta[name] = self.first
        return [message]


class Separators(Change):
    """events end at U+2028 and U+0085, too"""

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        return b"".join(lines).replace("\u2028".encode(), b"\n\n").splitlines(True)


class Latin(Change):
    """messages are in Latin-1"""

    def text(self, line: bytes) -> bytes | None:
        text = json.dumps(json.loads(line), ensure_ascii=False)
        return text.encode("latin-1", "replace")


class Kills(Change):
    """the server is killed, and its stdin not closed"""

    def leave(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()


MUTANTS = {
    re.sub("(?<!^)([A-Z])", r"-\1", name).lower(): kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Change)
    if kind not in (Change, Params) and kind.__module__ == __name__
}


class Nothing(Change):
    """nothing: what fails here, too, has failed because the machine is busy"""


def make(name: str) -> Change:
    """Make a mutant, or what is none."""
    return MUTANTS.get(name, Nothing)()


def drive(name: str) -> None:
    """Pass actions on to our driver, with the proxy in front of each server."""
    child = subprocess.Popen(DRIVER, stdin=subprocess.PIPE, text=True)
    assert child.stdin
    for line in sys.stdin:
        action = json.loads(line)
        if action["do"] == "connect":
            server = action["server"]
            if isinstance(server, str):
                proxy = strange.listen([make(name)], 0, server)
                threading.Thread(target=proxy.serve_forever, daemon=True).start()
                action["server"] = f"http://127.0.0.1:{proxy.server_address[1]}/mcp"
            else:
                action["server"] = [sys.executable, __file__, "proxy", name, *server]
        child.stdin.write(json.dumps(action) + "\n")
        child.stdin.flush()
    child.stdin.close()
    child.wait()


def play(name: str, vectors: list[Json]) -> set[str]:
    """Play vectors on a mutant; return those that are broken."""
    run = run_client.Run([sys.executable, __file__, "drive", name], JOBS)
    places = [
        run_client.Place(carrier, date, SECONDS)
        for carrier, date in (
            ("stdio", "2026-07-28"),
            ("http", "2026-07-28"),
            ("stdio", "2025-11-25"),
            ("http", "2025-11-25"),
        )
    ]
    batches = [one for one in vectors if one["id"] == "client-batch"]
    old = run_client.Place("stdio", "2025-03-26", SECONDS)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        rows = run.play(places, vectors) + run.play([old], batches)
    return {row["id"] for row in rows if row["verdict"] in report.FAILED}


def main() -> int:
    """Play all mutants, or those that are named."""
    if sys.argv[1:2] == ["proxy"]:
        strange.serve_stdio([make(sys.argv[2])], sys.argv[3:])
        return 0
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description="Play mutants of our client.")
    parser.add_argument("names", nargs="*", help="mutants")
    names = parser.parse_args().names or list(MUTANTS)
    vectors = report.read_vectors(VECTORS / "clients", run_client.check_steps)
    must = {
        one["id"]
        for one in vectors
        if one["level"] == "MUST" or "harms" in one or one["id"] in SHOULD
        if "doubtful" not in one
    }
    vectors = [one for one in vectors if one["id"] in must | EXPOSED]
    caught: dict[str, str] = {}
    for name in names:
        began = time.monotonic()
        left = [
            one
            for one in vectors
            if "every" in one or one["id"] in EXPOSED or one["id"] not in caught
        ]
        found = play(name, left) & must
        new = found - set(caught)
        if new:
            some = [one for one in vectors if one["id"] in new | EXPOSED]
            new -= play("nothing", some)
        caught.update(dict.fromkeys(new, name))
        seconds = time.monotonic() - began
        print(
            f"{name:20}{seconds:6.1f} s {len(new):4} new", *sorted(new)[:4], flush=True
        )
    lost = sorted(must - set(caught))
    print(f"{len(names)} mutants; {len(must)} vectors, {len(lost)} never fail")
    print(*lost)
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
