#!/usr/bin/env python3
"""Show that the vectors are fair and that they are strict.

    mutants.py strange        # no vector accuses a strange but conforming server
    mutants.py mutants        # each vector for a MUST, or for harm, fails for a mutant

With --quick, `strange` plays most flags together, and `mutants` only those that have
been chosen when all were played, each with the vectors that it was chosen for
(mutants.json, which a run without --quick writes; with names it writes of these only).

A mutant is our server behind the proxy of examples/vectors/strange.py, with a change
that no page allows. Both play over HTTP, and on stdio what only stdio has.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1] / "examples" / "vectors")]

import report
import run
import strange
from play import REVISIONS, VERSION, check_steps
from pool import Pool
from strange import Change, Json, answer

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = str(ROOT / ".ci" / "everything_server.py")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
# Mutants that break all vectors together, each with the vectors to play on it.
NOTES = ROOT / ".ci" / "mutants.json"
JOBS = int(os.environ.get("MCP_JOBS", "4"))  # at a time: they wait more than they work
LATE = " in time; what came last"
SECONDS = os.environ.get("MCP_PATIENCE", "2")  # for an answer
SLOW = ["slow-by-seconds", "slow-calls"]  # flags of half a second
os.environ["STRANGE_SECONDS"] = "0.5"
WATCHED = "test://watched-resource"
USERS = "token-1", "token-2"  # of our server over HTTP
ALL: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}


# ---- the mutants


def later(request: Json) -> bool:
    """Say whether a request comes after what the runner asks to know the server."""
    opening = request.get("method") in ("initialize", "server/discover")
    first = opening and request.get("id") == 1
    return bool(request) and not first and request.get("method") not in strange.MEMBERS


class Mutant(Change):
    """A change that no page allows; the first line says which."""

    only = ""  # carriers, if it makes sense on one only


class IdsAreStrings(Mutant):
    """ids come back as strings"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if later(request) and "id" in message:
            message["id"] = str(message["id"])
        return [message]


class IdsAreNumbers(Mutant):
    """ids that look like numbers come back as numbers"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request and str(message.get("id")).isdigit():
            message["id"] = int(message["id"])
        return [message]


class IdsAreCut(Mutant):
    """ids lose their last digits, zero, and what is not ASCII"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = message.get("id")
        if request and isinstance(name, int):
            message["id"] = abs(name) % 100_000 or None
        elif request and isinstance(name, str):
            message["id"] = name.encode("ascii", "ignore").decode()
        return [message]


class NoVersion(Mutant):
    """messages do not say jsonrpc"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if later(request) or not request:
            message.pop("jsonrpc", None)
        return [message]


class NoCode(Mutant):
    """errors have a code that is a string"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "error" in message:
            message["error"]["code"] = str(message["error"]["code"])
        return [message]


class OddCodes(Mutant):
    """errors have codes that MCP reserves and does not define"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "error" in message:
            message["error"]["code"] = -32050
        return [message]


class NoErrors(Mutant):
    """what is wrong is served: errors are empty results"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "error" in message and request:
            empty: Json = {"contents": [], "content": [], "messages": []}
            return [answer(message, result={"resultType": "complete", **empty})]
        return [message]

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        return (200 if status in (400, 404) and "id" in request else status), headers


class AllErrors(Mutant):
    """what is right is refused, but for server/discover, initialize and lists"""

    def message(self, message: Json, request: Json) -> list[Any]:
        method = request.get("method", "")
        if "result" in message and method not in strange.MEMBERS:
            if method not in ("initialize", "server/discover"):
                return [answer(message, error=strange.error(-32603, "no"))]
        return [message]


class SecondRefused(Mutant):
    """initialize and server/discover are refused unless they have the id 1"""

    def message(self, message: Json, request: Json) -> list[Any]:
        method = request.get("method", "")
        if method in ("initialize", "server/discover") and message.get("id") != 1:
            return [answer(message, error=strange.error(-32603, "no"))]
        return [message]


class DiscoverLess(Mutant):
    """only the first server/discover tells the capabilities"""

    only = "http"
    told = False

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "server/discover" and "result" in message:
            if self.told:
                del message["result"]["capabilities"]
            self.told = True
        return [message]


class ListsRefused(Mutant):
    """lists are refused in the middle of a conversation"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") in strange.MEMBERS and message.get("id") != 2:
            if not self.http or message.get("id", 9) not in (2, 3, 4, 5, 6, 7, 8, 9):
                return [answer(message, error=strange.error(-32603, "no"))]
        return [message]


class NoResultType(Mutant):
    """results do not say of what type they are"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if isinstance(message.get("result"), dict):
            message["result"].pop("resultType", None)
        return [message]


class NoCacheHints(Mutant):
    """results have no caching hints"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if isinstance(message.get("result"), dict):
            message["result"].pop("ttlMs", None)
        return [message]


class ScopesDiffer(Mutant):
    """the pages of a list have different scopes"""

    def __init__(self) -> None:
        super().__init__()
        self.pages = strange.Pages()

    def request(self, message: Json, headers: Json) -> Json | None:
        return self.pages.request(message, headers)

    def message(self, message: Json, request: Json) -> list[Any]:
        found = self.pages.message(message, request)
        result = message.get("result", {})
        if request.get("method") in strange.MEMBERS and "cacheScope" in result:
            result["cacheScope"] = "public" if "nextCursor" in result else "private"
        return found


class NotificationsAnswered(Mutant):
    """notifications are answered"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "method" in message and "id" not in message:
            refused = strange.error(-32600, "no")
            return {"jsonrpc": "2.0", "id": None, "error": refused}
        return message


class ResponsesAnswered(Mutant):
    """responses that nobody asked for are answered"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "method" not in message and message.get("id") in (987654, "nobody", 987):
            return answer(message, error=strange.error(-32600, "no"))
        return message


class NotificationIds(Mutant):
    """notifications have an id"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if str(message.get("method", "")).startswith("notifications/"):
            message["id"] = 5
        return [message]


class QuestionIds(Mutant):
    """questions have the same id, or null"""

    value: Any = "question"
    original: Any = None

    def message(self, message: Json, request: Json) -> list[Any]:
        if "method" in message and "id" in message:
            self.original, message["id"] = message["id"], self.value
        return [message]

    def request(self, message: Json, headers: Json) -> Json | None:
        if message and "method" not in message and message.get("id") == self.value:
            message["id"] = self.original
        return message


class QuestionNull(QuestionIds):
    """questions have null for an id"""

    value = None


class SecondNames(Mutant):
    """names in _meta are ill-formed"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if isinstance(message.get("result"), dict):
            meta = message["result"].setdefault("_meta", {})
            meta["-odd"] = 1
        return [message]


class OddTraces(Mutant):
    """trace context is ill-formed"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if isinstance(message.get("result"), dict):
            message["result"].setdefault("_meta", {})["traceparent"] = "00-xyz"
        return [message]


class TwoAnswers(Mutant):
    """requests are answered twice"""

    def message(self, message: Json, request: Json) -> list[Any]:
        return [message, message] if later(request) else [message]


class AnyVersion(Mutant):
    """any version is served"""

    def request(self, message: Json, headers: Json) -> Json | None:
        meta = (message.get("params") or {}).get("_meta")
        if isinstance(meta, dict) and VERSION in meta:
            meta[VERSION] = headers["mcp-protocol-version"] = "2026-07-28"
        return message


class WrongVersions(Mutant):
    """the error for a version lists that version, and no other"""

    def message(self, message: Json, request: Json) -> list[Any]:
        data = message.get("error", {}).get("data")
        if isinstance(data, dict) and "supported" in data:
            data["supported"] = [data["requested"]]
        return [message]


class RememberMeta(Mutant):
    """what one request says in _meta holds for the next"""

    meta: Json = {}

    def request(self, message: Json, headers: Json) -> Json | None:
        params = message.get("params")
        if "id" in message and "method" in message:
            params = params if isinstance(params, dict) else {}
            message["params"] = params
            given = params.get("_meta") or {}
            if not self.http and message["method"] == "initialize":
                return message
            if VERSION in given or VERSION in self.meta:
                kept = {
                    **self.meta.get(CAPABILITIES, {}),
                    **given.get(CAPABILITIES, {}),
                }
                self.meta = {**self.meta, **given, CAPABILITIES: kept}
                params["_meta"] = dict(self.meta)
                headers["mcp-protocol-version"] = "2026-07-28"
        return message


class Bindings(Mutant):
    """nothing but server/discover may be first on a connection"""

    def request(self, message: Json, headers: Json) -> Json | None:
        first = message.get("id") == 1 and message.get("method") in strange.MEMBERS
        if first and VERSION in str(message):
            return answer(message, error=strange.error(-32600, "discover first"))
        return message


class NoHeaders(Mutant):
    """headers are not compared with the body"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if VERSION in str(message.get("params")) and "method" in message:
            params = message["params"]
            headers["mcp-protocol-version"] = params["_meta"].get(VERSION) or ""
            headers["mcp-method"] = message["method"]
            name = params.get("name", params.get("uri"))
            if isinstance(name, str):
                headers["mcp-name"] = name
            arguments = params.get("arguments") or {}
            if isinstance(arguments, dict) and arguments.get("region"):
                headers["mcp-param-region"] = "us-west1"
                arguments["region"] = "us-west1"
        return message


class HeadersMissing(Mutant):
    """headers are demanded that nobody needs, and never decoded"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if VERSION not in str(message.get("params")):
            return message
        name = headers.get("mcp-name", "")
        arguments = message["params"].get("arguments") or {}
        tool = message["params"].get("name") == "test_x_mcp_header"
        encoded = "=?base64?" in name + headers.get("mcp-param-region", "")
        if encoded or tool and not arguments.get("region"):
            refused = answer(message, error=strange.error(-32020, "no"))
            return {**refused, "_status": 400}
        return message


class ContentTypes(Mutant):
    """JSON is sent as text/html"""

    surveyed = False

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        discovers = request.get("method") == "server/discover"
        wrong = later(request) or (discovers and self.surveyed)
        self.surveyed |= discovers
        if wrong and headers.get("content-type") == "application/json":
            headers = {**headers, "content-type": "text/html"}
        return status, headers


class Extensions(Mutant):
    """an extension that nobody knows is used"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "com.example/unknown" in str(request) and "result" in message:
            message["result"] = {"resultType": "com.example/unknown"}
        return [message]


class ResourcesRefused(Mutant):
    """resources are declared, and not listed"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "resources/list":
            return [answer(message, error=strange.error(-32603, "no"))]
        return [message]


class NoEndpoint(Mutant):
    """HTTP+SSE begins with another event, but for the first connection"""

    streams = 0

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        if not request and headers.get("content-type", "").startswith("text/event"):
            self.streams += 1
            if self.streams > 8:
                headers = {**headers, "content-type": "text/html"}
        return status, headers


class HeaderTwins(Mutant):
    """two arguments have the same header"""

    more: Json = {}

    def message(self, message: Json, request: Json) -> list[Any]:
        for tool in (message.get("result") or {}).get("tools", []):
            part = {"type": "string", "x-mcp-header": "A"}
            twin = {"type": "string", "x-mcp-header": "a"}
            properties = {"one": part, "two": twin} if not self.more else {}
            schema = {"type": "object", "properties": properties, **self.more}
            tool["inputSchema"] = schema
        return [message]


class HeaderDeep(HeaderTwins):
    """an argument within oneOf has a header"""

    more = {"oneOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]}


class ParamsRefused(Mutant):
    """an argument with its header is refused"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if headers.get("mcp-param-region"):
            refused = answer(message, error=strange.error(-32602, "no"))
            return {**refused, "_status": 400}
        return message


class Statuses(Mutant):
    """errors have the status 200, and what was accepted has a body"""

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        return 200, headers


class Bodies(Mutant):
    """what was accepted has a body"""

    def body(self, text: bytes, stream: bool) -> bytes:
        return text or b"accepted"


class EveryOrigin(Mutant):
    """Origin is not checked"""

    def request(self, message: Json, headers: Json) -> Json | None:
        headers.pop("origin", None)
        return message


class Get200(Mutant):
    """GET answers with a page"""

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        if not request and headers.get("content-type", "").startswith("text/event"):
            headers = {**headers, "content-type": "text/html"}
        return status, headers


class OddSessions(Mutant):
    """session ids have spaces, and sessions never end"""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        if name := headers.get("mcp-session-id"):
            headers = {**headers, "mcp-session-id": f"my {name}"}
        return status, headers

    def request(self, message: Json, headers: Json) -> Json | None:
        if name := headers.get("mcp-session-id"):
            headers["mcp-session-id"] = name.replace("my ", "")
        return message


class Undying(Mutant):
    """sessions go on after DELETE, whatever the version"""

    def verb(self, verb: str) -> int:
        return 200 if verb == "DELETE" else 0

    def request(self, message: Json, headers: Json) -> Json | None:
        if headers.get("mcp-protocol-version", "2") not in REVISIONS:
            headers["mcp-protocol-version"] = "2025-06-18"
        return message


class EventIds(Mutant):
    """events have the same id; answers come on the stream of a GET, too"""

    def body(self, text: bytes, stream: bool) -> bytes:
        if stream and b'"method"' in text:
            return text + b'\r\nid: 7\r\n\r\nid: 7\r\ndata: {"jsonrpc":"2.0"}'
        return text


class ProgressWrong(Mutant):
    """progress does not rise"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("method") == "notifications/progress":
            message["params"]["progress"] = 5
        return [message]


class ProgressTokens(Mutant):
    """progress is for another token"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("method") == "notifications/progress":
            token = message["params"]["progressToken"]
            message["params"]["progressToken"] = f"{token}x"
        return [message]


class ProgressAlways(Mutant):
    """progress comes without a token, and after the answer"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") != "tools/call":
            return [message]
        meta = (request.get("params") or {}).get("_meta") or {}
        token = meta.get("progressToken", 0)
        params = {"progressToken": token, "progress": 1000}
        late = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        return [message, late] if "progressToken" in meta else [late, message]


class AsksInModern(Mutant):
    """a server of the newest revision sends requests"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if VERSION in str(request) and request.get("method") == "tools/call":
            # Of these, a body of JSON is the last one.
            return [message, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}]
        return [message]


class AsksAnyway(Mutant):
    """the client is asked whatever it declared"""

    def request(self, message: Json, headers: Json) -> Json | None:
        params = message.get("params")
        if isinstance(params, dict):
            meta = params.get("_meta")
            if isinstance(meta, dict) and CAPABILITIES in meta:
                meta[CAPABILITIES] = ALL
            if message.get("method") == "initialize" and "capabilities" in params:
                params["capabilities"] = ALL
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        inputs = (message.get("result") or {}).get("inputRequests", {})
        for one in inputs.values():
            extra = {"mode": "url", "tools": [{"name": "a", "inputSchema": {}}]}
            one.setdefault("params", {}).update(extra)
        if message.get("method") == "elicitation/create":
            message["params"]["mode"] = "url"
        if message.get("method") == "sampling/createMessage":
            message["params"]["tools"] = [{"name": "a", "inputSchema": {}}]
        return [message]


class FormsForPages(Mutant):
    """a client that declared pages only is asked to fill in a form"""

    def request(self, message: Json, headers: Json) -> Json | None:
        pages: Json = {"elicitation": {"url": {}}}
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and meta.get(CAPABILITIES) == pages:
            meta[CAPABILITIES] = ALL
        if isinstance(params, dict) and params.get("capabilities") == pages:
            params["capabilities"] = ALL
        return message


class DeclaredVersion(Mutant):
    """a session that was refused the newest version gets its results"""

    only = "stdio"

    def __init__(self) -> None:
        super().__init__()
        self.wanted, self.call = "", None

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "initialize":
            self.wanted = str(message.get("params", {}).get("protocolVersion"))
        if message.get("method") == "tools/call":
            self.call = message.get("id")
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        if (
            message.get("method") == "elicitation/create"
            and self.wanted == REVISIONS[-1]
        ):
            return [answer({"id": self.call}, result={"resultType": "input_required"})]
        return [message]


class SessionsOpen(Mutant):
    """who knows the id of a session is taken for its user"""

    only = "http"

    def request(self, message: Json, headers: Json) -> Json | None:
        if "mcp-session-id" in headers:
            headers["authorization"] = f"Bearer {USERS[0]}"
        return message


class StreamsEndSessions(Mutant):
    """a session ends with the stream of a GET"""

    only = "http"

    def __init__(self) -> None:
        super().__init__()
        self.ended: set[str] = set()

    def request(self, message: Json, headers: Json) -> Json | None:
        session = headers.get("mcp-session-id")
        if session and not message:
            self.ended.add(session)
        if message.get("method") == "ping" and session in self.ended:
            error = strange.error(-32600, "the session is gone")
            return answer(message, error=error, _status=404)
        return message


class RootsAnyway(Mutant):
    """a client without roots is asked for them"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "tools/call" and VERSION not in str(request):
            return [{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, message]
        return [message]


class OddInputs(Mutant):
    """what is asked is of another kind, or nothing at all"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result", {})
        if result.get("resultType") == "input_required":
            result.pop("requestState", None)
            for one in result.get("inputRequests", {}).values():
                one["method"] = "user/ask"
            if len(result.get("inputRequests", {})) == 1:
                del result["inputRequests"]
        return [message]


class InputsEverywhere(Mutant):
    """all that a client with capabilities asks for asks for input"""

    def message(self, message: Json, request: Json) -> list[Any]:
        meta = strange.params_of(request).get("_meta")
        able = isinstance(meta, dict) and meta.get(CAPABILITIES)
        if able and "result" in message:
            message["result"]["resultType"] = "input_required"
        return [message]


class AnyState(Mutant):
    """any state is accepted"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "requestState" in (message.get("params") or {}):
            done = {"resultType": "complete", "content": []}
            return answer(message, result=done)
        return message


class Stuck(Mutant):
    """a question keeps the next one waiting"""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def message(self, message: Json, request: Json) -> list[Any]:
        name = (request.get("params") or {}).get("name", "")
        if name == "test_input_required_result_elicitation":
            if self.asked and "inputResponses" not in request["params"]:
                return []
            self.asked = True
        return [message]


class Logs(Mutant):
    """log messages come whatever the level, and on other streams"""

    def request(self, message: Json, headers: Json) -> Json | None:
        meta = (message.get("params") or {}).get("_meta")
        if isinstance(meta, dict) and VERSION in meta:
            meta["io.modelcontextprotocol/logLevel"] = "debug"
        return message


class NoCapabilities(Mutant):
    """nothing is declared, and everything is there"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "capabilities" in message.get("result", {}):
            message["result"]["capabilities"] = {}
        return [message]


class Subscriptions(Mutant):
    """every change comes to everybody, untagged"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "subscriptions/listen":
            kinds = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
            message["params"]["notifications"] = dict.fromkeys(kinds, True)
        return message


class Untagged(Mutant):
    """notifications of a subscription do not carry its id"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if "method" in message and "params" in message:
            message["params"].pop("_meta", None)
        return [message]


class UnaskedChanges(strange.Events, Mutant):
    """changes come on the stream of any request"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") != "tools/call":
            return [message]
        notes: list[Json] = [
            {"method": "notifications/cancelled", "params": {"requestId": "x"}},
            {"method": "notifications/prompts/list_changed"},
            {"method": "notifications/tools/list_changed"},
        ]
        return [*({"jsonrpc": "2.0", **one} for one in notes), message]


class Content(Mutant):
    """content is not what it says: raw bytes, no URI, names that are numbers"""

    def message(self, message: Json, request: Json) -> list[Any]:
        def spoil(value: Any) -> Any:
            if isinstance(value, list):
                return [spoil(item) for item in value]
            if not isinstance(value, dict):
                return value
            value = {name: spoil(item) for name, item in value.items()}
            for name, item in {"data": "?", "blob": "?", "uri": "no scheme"}.items():
                if isinstance(value.get(name), str):
                    value[name] = item
            return value

        return [spoil(message)]


class NullMembers(Mutant):
    """blocks have null members, completions too many values, resources no contents"""

    def message(self, message: Json, request: Json) -> list[Any]:
        result = message.get("result") or {}
        blocks = [one["content"] for one in result.get("messages", [])]
        for block in [*blocks, *result.get("content", [])]:
            block.update(annotations=None, _meta=None)
        if "completion" in result:
            result["completion"]["values"] *= 101
        result.pop("contents", None)
        return [message]


class PromptAudio(Mutant):
    """a prompt has audio that is not base64"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for one in (message.get("result") or {}).get("messages", []):
            one["content"] = {"type": "audio", "data": "raw!", "mimeType": "audio/wav"}
        return [message]


class Schemas(Mutant):
    """schemas are null, structured content does not fit, x-mcp-header is nothing"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for tool in (message.get("result") or {}).get("tools", []):
            tool["inputSchema"] = {"type": "object", "properties": {"a": 5}}
        return [message]


class HeaderSchemas(Mutant):
    """x-mcp-header is on an array"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for tool in (message.get("result") or {}).get("tools", []):
            bad = {"type": "array", "x-mcp-header": "a b"}
            tool["inputSchema"] = {"type": "object", "properties": {"a": bad}}
        return [message]


class Unstructured(Mutant):
    """structured results do not fit the outputSchema"""

    structured: Any = {"count": "many"}

    def message(self, message: Json, request: Json) -> list[Any]:
        if "structuredContent" in (message.get("result") or {}):
            message["result"]["structuredContent"] = self.structured
            if self.structured is None:
                del message["result"]["structuredContent"]
        return [message]


class ParamsArrays(Mutant):
    """a change has an array as its params"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if str(message.get("method")).endswith("list_changed"):
            message["params"] = []
        return [message]


class NothingStructured(Unstructured):
    """a tool with an outputSchema has no structured result"""

    structured = None


class Wander(Mutant):
    """lists change with other requests"""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def message(self, message: Json, request: Json) -> list[Any]:
        self.calls += request.get("method") in (
            "tools/call",
            "prompts/get",
            "resources/read",
        )
        name = strange.MEMBERS.get(request.get("method", ""), "")
        if name and "result" in message:
            items = message["result"].get(name, [])
            message["result"][name] = items[self.calls % 7 :]
        return [message]


class AnyArguments(Mutant):
    """arguments are not checked: they reach the tool"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
            return [answer(message, result={**result, "resultType": "complete"})]
        return [message]


class AnyFile(Mutant):
    """resources/read reads any file"""

    def message(self, message: Json, request: Json) -> list[Any]:
        uri = str((request.get("params") or {}).get("uri", ""))
        if request.get("method") == "resources/read" and "error" in message:
            contents = [{"uri": uri, "text": "root:x:0:0"}]
            return [answer(message, result={"contents": contents})]
        return [message]


class Rubbish(Mutant):
    """there are greetings, and newlines in messages"""

    def message(self, message: Json, request: Json) -> list[Any]:
        return ["Hello!", message] if later(request) else [message]


class Newlines(Mutant):
    """messages have newlines in them, of each kind"""

    only = "stdio"

    def body(self, text: bytes, stream: bool) -> bytes:
        if b"one" not in text and "ü".encode() not in text:
            return text
        text = text.decode().replace("\u2028", "\\n").replace("\u0085", "\\n").encode()
        return text.replace(b"\\n", b"\n").replace("ü".encode(), b"\xfc")


class Latin(Mutant):
    """text is in Latin-1"""

    def body(self, text: bytes, stream: bool) -> bytes:
        return text.decode().encode("latin-1", "replace")


class Ascii(Mutant):
    """letters that are not ASCII become question marks"""

    def body(self, text: bytes, stream: bool) -> bytes:
        return text.decode().encode("ascii", "replace")


class Pong(Mutant):
    """a ping is answered with something"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "ping":
            message["result"] = {"pong": True}
        return [message]


class OneAtATime(Mutant):
    """nothing is answered while a question is open"""

    def __init__(self) -> None:
        super().__init__()
        self.open = False

    def message(self, message: Json, request: Json) -> list[Any]:
        if "method" in message and "id" in message:
            self.open = True
        if request.get("method") == "ping" and self.open:
            return []
        return [message]


class Unbatched(Mutant):
    """batches are refused, those of one, too, and notifications in them answered"""

    def text(self, line: bytes) -> bytes | None:
        whole = line if b"}, {" in line else b"[]"
        return whole[1:-1] if line[:1] == b"[" else line


class BatchesOfTwo(Mutant):
    """a batch of one is not one"""

    def text(self, line: bytes) -> bytes | None:
        return b"[]" if line[:1] == b"[" and b"}, {" not in line else line


class BatchTwins(Mutant):
    """in a batch, ids are strings"""

    def text(self, line: bytes) -> bytes | None:
        return (
            re.sub(rb'"id": (\d+)', rb'"id": "\1"', line) if line[:1] == b"[" else line
        )


class BatchNotes(Mutant):
    """notifications in a batch are answered"""

    def text(self, line: bytes) -> bytes | None:
        if line[:1] == b"[" and b"notifications/" in line:
            return line.replace(b'"method"', b'"id": 5, "method"', 1)
        return line


class Cancels(Mutant):
    """a cancellation is answered, and what it names goes on"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "notifications/cancelled":
            return {"jsonrpc": "2.0", "id": None, "error": strange.error(1, "late")}
        return message


class UnknownParams(Mutant):
    """an unknown method with params has wrong params"""

    def message(self, message: Json, request: Json) -> list[Any]:
        params = request.get("params") or {}
        if request.get("method") == "no/such/method" and "error" in message:
            if set(params) - {"_meta"}:
                message["error"]["code"] = -32602
        return [message]


class VersionWords(Mutant):
    """a version in the header that is no date is not looked at"""

    def request(self, message: Json, headers: Json) -> Json | None:
        version = headers.get("mcp-protocol-version", "2")
        if not version[:1].isdigit():
            headers["mcp-protocol-version"] = "2025-06-18"
        return message


class EndpointSecond(Mutant):
    """HTTP+SSE begins with another event, and then with the endpoint"""

    only = "http"

    def begin(self, exchange: strange.Handler) -> None:
        if exchange.command == "GET" and exchange.path.endswith("/sse"):
            exchange.write([b"event: hello\r\n", b"data: world\r\n", b"\r\n"])


class Elsewhere(Mutant):
    """logs and progress come on the stream of a subscription, too"""

    only = "http"

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[strange.Handler] = []

    def begin(self, exchange: strange.Handler) -> None:
        if exchange.asked.get("method") == "subscriptions/listen":
            self.streams.append(exchange)

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        text = b"".join(lines)
        if b"notifications/message" in text or b"notifications/progress" in text:
            for other in self.streams:
                with contextlib.suppress(OSError, ValueError):  # it has gone
                    other.write(lines)
        return lines


class InitializeOdd(Mutant):
    """initialize answers without what it must have, in any version that is asked for"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") == "initialize" and message.get("id") != 1:
            asked = (request.get("params") or {}).get("protocolVersion")
            message["result"] = {"protocolVersion": f"{asked}-beta"}
        return [message]


class SseOdd(Mutant):
    """HTTP+SSE does not say where to POST; responses of the client are refused"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "method" not in message and ("result" in message or "error" in message):
            return None if self.http else message
        return message


class GetAnswers(Mutant):
    """every stream repeats an answer"""

    def verb(self, verb: str) -> int:
        return 0

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        return (201 if status == 202 else status), headers


class InitializeEchoes(Mutant):
    """initialize echoes any version"""

    def message(self, message: Json, request: Json) -> list[Any]:
        asked = (request.get("params") or {}).get("protocolVersion")
        if request.get("method") == "initialize" and "result" in message and asked:
            message["result"]["protocolVersion"] = asked
        return [message]


class QuestionsLose(Mutant):
    """messages of sampling have no role"""

    asked = "sampling/createMessage"

    def spoil(self, params: Json) -> None:
        for one in params["messages"]:
            del one["role"]

    def message(self, message: Json, request: Json) -> list[Any]:
        inputs = (message.get("result") or {}).get("inputRequests", {})
        for one in [message, *inputs.values()]:
            if one.get("method") == self.asked:
                self.spoil(one["params"])
        return [message]


class FormsLose(QuestionsLose):
    """forms have no message"""

    asked = "elicitation/create"

    def spoil(self, params: Json) -> None:
        del params["message"]


class FormsOdd(QuestionsLose):
    """forms have fields that are objects"""

    asked = "elicitation/create"

    def spoil(self, params: Json) -> None:
        fields = params.get("requestedSchema", {}).setdefault("properties", {})
        fields["odd"] = {"type": "object"}


class OddBlocks(Mutant):
    """an image that a tool returns is none"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = (request.get("params") or {}).get("name")
        if name == "test_tool_with_progress" and "result" in message:
            message["result"]["content"] = [{"type": "image", "data": "?"}]
        return [message]


class OddBlobs(Mutant):
    """blobs are not base64"""

    def message(self, message: Json, request: Json) -> list[Any]:
        for one in (message.get("result") or {}).get("contents", []):
            if "blob" in one:
                one["blob"] = "raw!"
        return [message]


class SubscriptionIds(Mutant):
    """ids of subscriptions that are strings come as numbers"""

    def message(self, message: Json, request: Json) -> list[Any]:
        meta = (message.get("params") or {}).get("_meta") or {}
        name = "io.modelcontextprotocol/subscriptionId"
        if isinstance(meta.get(name), str):
            meta[name] = 5
        return [message]


SHARED = 77  # the id that several clients use at once


class AnswersCross(Mutant):
    """of two sessions that use one id, both get the answer for the first"""

    def __init__(self) -> None:
        super().__init__()
        self.first: Json = {}

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("id") == SHARED and "sampling" in str(request):
            self.first = self.first or message["result"]
            message["result"] = self.first
        return [message]


class ProgressCrosses(Mutant):
    """of two clients that use one id, each hears of the other's progress"""

    def message(self, message: Json, request: Json) -> list[Any]:
        params = message.get("params") or {}
        if params.get("progressToken") in ("alpha", "beta"):
            both = {"alpha": "beta", "beta": "alpha"}
            params["progressToken"] = both[params["progressToken"]]
        return [message]


class CancelsOthers(Mutant):
    """a session cancels the requests of another one"""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = False

    def request(self, message: Json, headers: Json) -> Json | None:
        target = (message.get("params") or {}).get("requestId")
        if message.get("method") == "notifications/cancelled" and target == SHARED:
            self.cancelled = True
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("id") == SHARED and "result" in message and self.cancelled:
            return []
        return [message]


class OneLevel(strange.Events, Mutant):
    """the log level that a session sets is that of all"""

    only = "http"
    level = ""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "logging/setLevel":
            self.level = message["params"].get("level")
        return message

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") != "tools/call" or self.level != "debug":
            return [message]
        params = {"level": "info", "data": "for all"}
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
        return [note, message]


class UpdatesForAll(strange.Events, Mutant):
    """a session that has not subscribed hears that a resource changed"""

    only = "http"
    changed: Json | None = None

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("method") == "notifications/resources/updated":
            self.changed = message
        if request.get("method") != "ping" or not self.changed:
            return [message]
        note, self.changed = self.changed, None
        return [note, message]


class OneUser(Mutant):
    """whoever has a token calls tools as the same user"""

    only = "http"

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "tools/call" and "authorization" in headers:
            headers["authorization"] = f"Bearer {USERS[0]}"
        return message


class FiltersAdd(Mutant):
    """subscriptions with the same id get what any of them asked for"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "subscriptions/listen":
            if message.get("id") == SHARED:
                kinds = ("toolsListChanged", "promptsListChanged")
                message["params"]["notifications"] = dict.fromkeys(kinds, True)
        return message


class EventsRestart(Mutant):
    """the ids of events begin anew in each stream"""

    only = "http"

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}  # by the stream

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        self.counts[id(exchange)] = count = self.counts.get(id(exchange), 0) + 1
        number = b"id: %d\r\n" % count
        return [number if line.startswith(b"id:") else line for line in lines]


class ReplaysAll(Mutant):
    """a stream that is resumed brings events of another one, too"""

    only = "http"

    def __init__(self) -> None:
        super().__init__()
        self.other: list[bytes] = []  # the last event about progress

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        if exchange.command == "POST" and b'"other"' in b"".join(lines):
            self.other = lines
        return lines

    def begin(self, exchange: strange.Handler) -> None:
        if exchange.command == "GET" and exchange.headers.get("last-event-id"):
            exchange.write(self.other)


class Broadcasts(Mutant):
    """changes that a session is told come twice"""

    only = "http"

    def event(self, lines: list[bytes], exchange: strange.Handler) -> list[bytes]:
        twice = exchange.command == "GET" and b"list_changed" in b"".join(lines)
        again = [line for line in lines if not line.startswith(b"id:")]
        return lines + again if twice else lines


class OriginPrefix(Mutant):
    """an Origin is of this machine if it begins so"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if headers.get("origin", "").startswith("http://localhost"):
            del headers["origin"]
        return message


class OriginOfPosts(Mutant):
    """Origin is checked in POSTs only"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if not message:
            headers.pop("origin", None)
        return message


class EveryHost(Mutant):
    """Host is not checked, and an Origin may be what is in Host"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if headers.get("host") == "evil.example.com":
            headers["host"] = "localhost"
            headers.pop("origin", None)
        return message


class LongLines(Mutant):
    """of a long line, the middle is decoded badly"""

    only = "stdio"

    def body(self, text: bytes, stream: bool) -> bytes:
        half = len(text) // 2
        if len(text) > 65536:
            text = text[:half] + text[half + 6 :]
        return text


class Pieces(Mutant):
    """what is read at once is decoded at once"""

    only = "stdio"

    def lines(self, source: Any) -> Iterator[bytes]:
        text = ""
        for part in iter(lambda: source.read1(65536), b""):
            text += part.decode(errors="replace")
            *whole, text = text.split("\n")
            yield from (line.encode() for line in whole)


class Surrogates(Mutant):
    """half of a surrogate pair makes the server write a line that is no message"""

    only = "stdio"
    half = False

    def request(self, message: Json, headers: Json) -> Json | None:
        self.half |= "\\ud" in repr(message)
        return message

    def body(self, text: bytes, stream: bool) -> bytes:
        half, self.half = self.half, False
        return b"UnicodeEncodeError\n" + text if half else text


class Oversteps(Mutant):
    """questions use a mode, and tools for the model, that the client did not declare"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if message.get("method") == "elicitation/create":
            message["params"]["mode"] = "url"
        if message.get("method") == "sampling/createMessage":
            message["params"]["tools"] = [{"name": "a", "inputSchema": {}}]
        return [message]


class ProbeEnds(Mutant):
    """a server/discover in front of initialize ends an old server"""

    only = "stdio"
    opened = False

    def request(self, message: Json, headers: Json) -> Json | None:
        self.opened |= message.get("method") == "initialize"
        if message.get("id") == "probe" and not self.opened:
            os._exit(1)
        return message


class UpdatesAnyway(Mutant):
    """who listens hears of resources, too"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if message.get("method") == "subscriptions/listen":
            wanted = message["params"].get("notifications") or {}
            if wanted.get("resourceSubscriptions") == []:
                wanted["resourceSubscriptions"] = [WATCHED]
        return message


class UpdatesGoOn(Mutant):
    """who has stopped listening to a resource, or unsubscribed, still hears of it"""

    def __init__(self) -> None:
        super().__init__()
        self.watches: set[Any] = set()

    def request(self, message: Json, headers: Json) -> Json | None:
        params = message.get("params") or {}
        if message.get("method") == "subscriptions/listen" and WATCHED in str(params):
            self.watches.add(str(message.get("id")))
        if message.get("method") == "resources/unsubscribe":
            return answer(message, result={})
        ended = message.get("method") == "notifications/cancelled"
        if ended and str(params.get("requestId")) in self.watches:
            return None
        return message


class NoUpdates(Mutant):
    """nobody hears that a resource changed"""

    def message(self, message: Json, request: Json) -> list[Any]:
        updated = message.get("method") == "notifications/resources/updated"
        return [] if updated else [message]


class UpdatesUnasked(Mutant):
    """who has not subscribed hears that a resource changed"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = (request.get("params") or {}).get("name")
        if name != "test_trigger_resource_update" or VERSION in str(request):
            return [message]
        method, params = "notifications/resources/updated", {"uri": WATCHED}
        return [{"jsonrpc": "2.0", "method": method, "params": params}, message]

    def response(self, status: int, headers: Json, request: Json) -> tuple[int, Json]:
        return strange.Events().response(status, headers, request)


class HeaderDeeper(HeaderTwins):
    """an argument within an array within an object has a header"""

    more = {
        "properties": {
            "a": {
                "type": "object",
                "properties": {
                    "b": {
                        "type": "array",
                        "items": {
                            "type": "array",
                            "items": {"type": "string", "x-mcp-header": "A"},
                        },
                    }
                },
            }
        }
    }


class PagesOverlap(strange.Pages, Mutant):
    """each page begins with the last item of the one before"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = strange.MEMBERS.get(request.get("method", ""), "")
        items = list((message.get("result") or {}).get(name, []))
        found = super().message(message, request)
        result = message.get("result") or {}
        if name and result.get(name):
            place = items.index(result[name][0])
            result[name] = items[max(place - 1, 0) : place + 1]
        return found


class PagesLose(Mutant):
    """a list lacks every second item"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = strange.MEMBERS.get(request.get("method", ""), "")
        if name and isinstance((message.get("result") or {}).get(name), list):
            message["result"][name] = message["result"][name][1::2]
        return [message]


class NullCursors(Mutant):
    """the last page has the cursor null"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if request.get("method") in strange.MEMBERS and "result" in message:
            message["result"].setdefault("nextCursor", None)
        return [message]


class OddTypes(Mutant):
    """annotations and titles have other types"""

    def message(self, message: Json, request: Json) -> list[Any]:
        name = strange.MEMBERS.get(request.get("method", ""), "")
        for one in (message.get("result") or {}).get(name, []):
            one.update(title=5, annotations={"readOnlyHint": "yes", "priority": "1"})
            one["icons"] = [{"src": 5}]
        return [message]


class ToolsFail(Mutant):
    """a tool that fails answers with an error"""

    def message(self, message: Json, request: Json) -> list[Any]:
        if (message.get("result") or {}).get("isError"):
            return [answer(message, error=strange.error(-32603, "failed"))]
        return [message]


class AnyForm(Mutant):
    """what comes back from a form is not checked"""

    def request(self, message: Json, headers: Json) -> Json | None:
        if "{'not': 'a string'}" in str(message):
            text = json.dumps(message).replace('{"not": "a string"}', '"a string"')
            message = json.loads(text.replace('"email": 7', '"email": "a@b.c"'))
        return message


class Unchanged(Mutant):
    """nobody hears that a list changed, and it has"""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def message(self, message: Json, request: Json) -> list[Any]:
        if str(message.get("method")).endswith("list_changed"):
            self.calls += 1
            return []
        name = strange.MEMBERS.get(request.get("method", ""), "")
        if name and self.calls % 2 and "result" in message:
            message["result"][name] = message["result"][name][1:]
        return [message]


MUTANTS = {
    re.sub("(?<!^)([A-Z])", r"-\1", name).lower(): kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Mutant) and kind is not Mutant
}
EVERY_MUTANT = set(MUTANTS)


# ---- playing


@contextlib.contextmanager
def serving() -> Any:
    """Start our server; yield its URL."""
    command = [sys.executable, EVERYTHING, "--http", "0"]
    child = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MCP_USERS": " ".join(USERS)},
    )
    assert child.stderr
    try:
        for line in child.stderr:
            if found := re.search(r"http://[\w.]+:\d+/mcp", line):
                threading.Thread(target=child.stderr.read, daemon=True).start()
                yield found[0]
                return
        raise RuntimeError("the server did not start")
    finally:
        child.terminate()
        child.wait()


Caught = dict[str, Json]  # rows of vectors that are broken, by their ids


def tell(*words: Any) -> None:
    """Print; what the runs themselves say is not printed."""
    print(*words, file=sys.__stdout__, flush=True)


def side_by_side(
    items: Sequence[str], work: Callable[[str, str], Any]
) -> Iterator[tuple[str, float, Any]]:
    """Call work(item, URL) for each, some at a time; yield item, seconds and result.

    Those that run at the same time have a server each.
    """
    free: queue.Queue[str] = queue.Queue()

    def work_on(item: str, put: Callable[[Any], None]) -> None:
        url, began = free.get(), time.monotonic()
        result = work(item, url)
        free.put(url)
        put((item, time.monotonic() - began, result))

    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nothing))
        for _ in range(JOBS):
            free.put(stack.enter_context(serving()))
        yield from Pool(JOBS).each(items, work_on)


def play(arguments: list[str], vectors: list[Json]) -> list[Json]:
    """Play vectors against a target; return the rows."""
    options = run.parse(["--quiet", *arguments])
    return run.Run(options, report.Recorder(options)).play(vectors)


def play_http(
    kinds: Sequence[type[Change]],
    url: str,
    vectors: list[Json],
    seconds: str = SECONDS,
) -> list[Json]:
    """Play over HTTP, with changes."""
    proxy = strange.listen([kind() for kind in kinds], 0, url)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    port = proxy.server_address[1]
    try:
        # The vectors for this machine do not hold for a public server.
        host = "0.0.0.0" if strange.AnyOrigin in kinds else "127.0.0.1"
        one, other = (f"authorization: Bearer {token}" for token in USERS)
        who = ["--header", one, "--other", other, "--timeout", seconds]
        rows = play([*who, f"http://{host}:{port}/mcp"], vectors)
        if proxy.failed:  # what is broken then says nothing about the vectors
            raise RuntimeError("a change raised; its traceback is above")
        return rows
    finally:
        proxy.shutdown()
        proxy.server_close()


def play_stdio(
    script: str, name: str, vectors: list[Json], seconds: str = SECONDS
) -> list[Json]:
    """Play on stdio, with changes."""
    command = [sys.executable, script, name, sys.executable, EVERYTHING]
    return play(["--timeout", seconds, *command], vectors)


def found(rows: list[Json]) -> dict[str, Json]:
    """Find the rows of vectors that are broken, and of any level that find harm."""
    bad = [row for row in rows if row["verdict"] in report.FAILED]
    bad = [row for row in bad if row["verdict"] == "broken" or "harms" in row]
    return {row["id"]: row for row in bad}


def accused(rows: list[Json]) -> set[str]:
    """Name the vectors that are found when they are played alone, too."""
    return {name for name, row in found(rows).items() if "order" not in row}


def accused_twice(
    play: Callable[[list[Json]], list[Json]], vectors: list[Json]
) -> set[str]:
    """Name the vectors that accuse, and accuse again: a busy machine is neither."""
    rows = play(vectors)
    if sum(row["verdict"] == "passed" for row in rows) < 99:
        return {"hardly anything was played"}
    names = accused(rows)
    some = [one for one in vectors if one["id"] in names]
    if any("every" in one for one in some):  # it needs the others to look at
        some = vectors
    return names and names & accused(play(some))


def check_strange(vectors: list[Json], quick: bool) -> int:
    """Play all flags: together, over HTTP and on stdio, and each alone over HTTP."""
    script = str(ROOT / "examples" / "vectors" / "strange.py")
    alone = {"any-origin", "limits", "no-sessions", "open-streams", "serial", *SLOW}
    missing = {
        name
        for name, kind in strange.FLAGS.items()
        if issubclass(kind, strange.Without)
    }
    apart = {"late", "slow-exit", "pages", "noise", "batches", "asks-nothing"}
    apart |= {"no-changes", "plain"}
    others = set(strange.FLAGS) - alone - apart - missing - {"bare", "bare-empty"}
    plays: list[str] = []
    apart |= {"cannot-ask", "idle-triggers", "unread"}
    groups = (others - apart, apart, missing, {"bare"}, {"bare-empty"}, {"serial"})
    for group in (*groups, *({name} for name in SLOW)):
        if names := ",".join(sorted(group & set(strange.FLAGS))):
            plays += [f"stdio {names}", f"http {names}"]
    plays += [f"http {one}" for one in strange.FLAGS if one in alone or not quick]
    plays += [f"stdio {one}" for one in missing if not quick]

    def work(place: str, url: str) -> set[str]:
        carrier, flags = place.split()
        played = functools.partial(play_stdio, script, flags)
        if carrier == "http":
            kinds = [strange.FLAGS[name] for name in flags.split(",")]
            played = functools.partial(play_http, kinds, url)
        if flags not in SLOW:
            return accused_twice(played, vectors)
        # The runner does not wait for these; a sample shows it. Whether a revision is
        # spoken at all depends on how fast the server starts.
        some = [one for one in vectors if one["page"] in ("basic", "tools", "stdio")]
        return accused(played(some, seconds="0.3")) - {"half-spoken"}

    bad = 0
    for place, seconds, wrong in side_by_side([*dict.fromkeys(plays)], work):
        tell(f"{seconds:5.1f} s {place}", *sorted(wrong))
        bad += bool(wrong)
    return bad


def break_some(place: str, url: str, vectors: list[Json]) -> Caught:
    """Find the vectors that a mutant breaks, and their rows; a late answer counts if it
    is late twice."""
    name, carrier = place.split()
    played = functools.partial(play_stdio, __file__, name)
    if carrier == "http":
        played = functools.partial(play_http, [MUTANTS[name]], url)
    rows = played(vectors)
    sure = found([row for row in rows if LATE not in row.get("why", "")])
    late = [one for one in vectors if one["id"] in set(found(rows)) - set(sure)]
    if late:
        sure.update(found(played(late)))
    known = {one["id"] for one in vectors}  # what is half spoken has others
    return {name: row for name, row in sure.items() if name in known}


def plan(vectors: list[Json]) -> dict[str, list[Json]]:
    """Say which vectors to play on which mutant: on stdio what only stdio has."""
    on_stdio = [one for one in vectors if "http" not in one["carriers"]]
    places = {}
    for name, kind in MUTANTS.items():
        if kind.only != "stdio":
            places[f"{name} http"] = vectors
        if kind.only != "http":
            places[f"{name} stdio"] = on_stdio
    return places


def subset(vectors: list[Json], names: Iterable[str]) -> list[Json]:
    """Find vectors by their ids."""
    return [one for one in vectors if one["id"] in set(names)]


def check_mutants(vectors: list[Json], quick: bool) -> int:
    """Play all mutants, or those that are noted; say which MUST vector none breaks."""
    vectors = [
        one
        for one in vectors
        if (one["level"] == "MUST" or "harms" in one) and "doubtful" not in one
    ]
    left = {one["id"] for one in vectors}
    notes: dict[str, list[str]] = json.loads(NOTES.read_text("utf-8"))
    plays = plan(vectors)
    if quick:
        plays = {place: subset(vectors, names) for place, names in notes.items()}

    def work(place: str, url: str) -> Caught:
        some = plays[place]
        if place.endswith("stdio") and not quick:  # a process for each takes its time
            some = subset(some, left)
        return break_some(place, url, some) if some else {}

    caught: dict[str, Caught] = {}
    for place, seconds, rows in side_by_side([*plays], work):
        caught[place] = rows
        new = sorted(set(rows) & left)
        left.difference_update(rows)
        counts = f"{len(rows):4} broken, {len(new)} new:"
        tell(f"{place:24}{seconds:5.1f} s {counts}", *new[:4])
    for place in [one for one in notes if quick and left.intersection(notes[one])]:
        plays[place] = vectors  # once more, as when it was chosen
        for _, seconds, rows in side_by_side([place], work):
            left.difference_update(rows)
            tell(f"{place:24}{seconds:5.1f} s again, with all vectors")
    tell(f"{len(plays)} plays; {len(vectors)} vectors, {len(left)} never fail")
    tell(*sorted(left))
    if not quick:
        kept = {
            place: names
            for place, names in notes.items()
            if place not in plays and place.split()[0] in EVERY_MUTANT
        }
        for names in kept.values():
            for rows in caught.values():
                for name in set(rows).intersection(names):
                    del rows[name]
        notes = {**kept, **choose(caught, vectors)}
        lines = [
            f" {json.dumps(one)}: {json.dumps(notes[one])}" for one in sorted(notes)
        ]
        NOTES.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return len(left)


def cover(caught: dict[str, Caught]) -> dict[str, set[str]]:
    """Choose mutants that break all vectors together: few, but rather more of them than
    such as are found by waiting."""
    chosen: dict[str, set[str]] = {}
    for limit in (0.5, float("inf")):
        some = {
            place: {name for name in rows if rows[name].get("seconds", 0) < limit}
            for place, rows in caught.items()
        }
        left = set().union(*some.values()).difference(*chosen.values())
        while left:
            best = max(some, key=lambda place: len(some[place] & left))
            chosen.setdefault(best, set()).update(some[best] & left)
            left -= some[best]
    return chosen


def choose(caught: dict[str, Caught], vectors: list[Json]) -> dict[str, list[str]]:
    """Choose mutants, and the vectors to play on each; they have to break again when no
    others are played."""
    sure: dict[str, set[str]] = {place: set() for place in caught}
    needed: dict[str, list[str]] = {}
    first = {name: place for place in caught for name in caught[place]}

    def work(place: str, url: str) -> Caught:
        return break_some(place, url, subset(vectors, needed[place]))

    while True:
        chosen = cover(caught)
        for place, names in chosen.items():
            # A rule for every message is broken "in" another vector.
            whys = [caught[place][name]["why"].partition("in ") for name in names]
            needed[place] = sorted({*names, *(why[2] for why in whys if not why[0])})
        unsure = [place for place in chosen if not chosen[place] <= sure[place]]
        if not unsure:
            break
        for place, _, rows in side_by_side(unsure, work):
            sure[place] |= set(rows)
            for name in chosen[place] - set(rows):
                del caught[place][name]  # it depends on others, or on who is faster
    for name in set(first).difference(*chosen.values()):
        tell(f"{name} needs all vectors before it: {first[name]}")
        chosen[first[name]] = set()
        needed[first[name]] = [one["id"] for one in vectors]
    return {place: needed[place] for place in chosen}


def main() -> int:
    """Read the command line."""
    mode, *names = sys.argv[1:] or ["mutants"]
    if mode in MUTANTS:
        strange.serve_stdio([MUTANTS[mode]()], names)
        return 0
    quick = "--quick" in names
    names = [name for name in names if name != "--quick"]
    vectors = report.read_vectors(run.FOLDER, check_steps)
    for table in (MUTANTS, strange.FLAGS):
        for name in set(table) - set(names) if names else ():
            del table[name]
    check = check_strange if mode == "strange" else check_mutants
    return int(check(vectors, quick) > 0)


if __name__ == "__main__":
    sys.exit(main())
