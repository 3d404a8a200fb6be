#!/usr/bin/env python3
"""A gateway: many MCP servers behind one address, for clients of every revision.

A JSON file lists the *upstream* servers, by command or by URL, and *profiles*: which servers a
client sees and, by patterns, which of their tools. The default is one profile, "all". A host's
"mcpServers" file works, too. "revision" sets the revision to speak with an upstream.

    {"servers": {"demo": {"command": ["python3", "mcp_ref.py"], "env": {"A": "b"}, "cwd": "."},
                 "web":  {"url": "http://127.0.0.1:8001/mcp", "headers": {"X-Api-Key": "k"}}},
     "profiles": {"all": {"servers": ["demo", "web"]}, "few": {"servers": {"demo": ["a*"]}}}}

    python3 examples/extensions/gateway.py gateway.json --http 8000       # /mcp/all and /mcp/few
    python3 examples/extensions/gateway.py gateway.json --profile few     # on stdio

A client sees one server: `add` becomes `demo__add`, `memo://today` becomes `demo+memo://today`.
Calls, progress, log messages, cancellation and questions pass through, even between different
revisions. A call runs on its handler's thread. Each upstream has one more thread, `keep-NAME`,
which connects, fetches the lists, and reconnects when the upstream fails; meanwhile, only its tools
are missing. Threads share dicts, each of which is changed or replaced in a single operation.

Known limits: no completion; a legacy upstream cannot ask a modern client and gets an error; log
messages, and questions on stdio, pass only while all calls to the upstream are from one client.
"""
from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import re
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]    # in a checkout
from mcp_client import Client, Malformed, ServerLacks, Subscription, connect

from mcp_ref import (
    LOG_LEVELS,
    META_CAPABILITIES,
    METHODS,
    AskError,
    Context,
    Endpoint,
    Exchange,
    HttpError,
    NotFound,
    RpcError,
    Schema,
    Server,
    rules,
    serve_http,
    versions,
)

Message = dict[str, Any]

RETRY_SECONDS = 5.0         # wait before reconnecting to a failed upstream
START_SECONDS = 10.0        # how long clients wait for upstreams when the gateway starts
LIST_SECONDS = 20.0         # timeout of upstream requests other than calls
CALL_SECONDS = 3600.0       # timeout of calls; clients cancel sooner
CHECK_SECONDS = 30.0        # wait between checks of an upstream that announces no changes
MAX_WATCHED = 200           # URIs of one upstream that clients can subscribe to
MAX_NAME = 64               # longest name that hosts accept
INVALID, INTERNAL, LEGACY_NOT_FOUND = -32602, -32603, -32002
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TROUBLE = (RpcError, HttpError, Malformed, ServerLacks, TimeoutError)   # the server is still up

# An upstream's lists, by the name in the result: the method, the member that identifies an item,
# and the client's function. The first part of the method is the change that covers the list.
KINDS: dict[str, tuple[str, str, Callable[[Client], list[Message]]]] = {
    "tools":             ("tools/list", "name", Client.list_tools),
    "prompts":           ("prompts/list", "name", Client.list_prompts),
    "resources":         ("resources/list", "uri", Client.list_resources),
    "resourceTemplates": ("resources/templates/list", "uriTemplate",
                          Client.list_resource_templates)}
CALLS = {"tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources"}


def note(line: str) -> None:
    print("gateway:", line, file=sys.stderr)


def name_of(prefix: str, theirs: str) -> str:
    """Return our name for a tool or prompt; a digest replaces what hosts would not accept."""
    name = f"{prefix}__{theirs}"
    if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(theirs.encode("utf-8", "replace")).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:MAX_NAME - 9] + "_" + digest


def ask(ctx: Context, questions: dict[str, Message]) -> dict[str, Message]:
    """Ask a legacy client; RpcError if there is no answer."""
    run = secrets.token_urlsafe(8)      # makes keys unique: upstreams may repeat theirs
    try:
        answers = ctx.ask({run + key: question for key, question in questions.items()})
    except AskError as problem:
        code = (problem.error or {}).get("code", INTERNAL)
        raise RpcError(code, str(problem)) from None
    return {key: answers[run + key] for key in questions}


def only_client(calls: list[Context]) -> Context | None:
    """Return the latest call, if all belong to the same client."""
    return calls[-1] if len({id(ctx.peer) for ctx in calls}) == 1 else None


class Upstream:
    """A server behind the gateway: one connection that all clients share, and what it offers."""

    def __init__(self, name: str, options: Message) -> None:
        self.name, self.options = name, options
        # Our names and, as part of the scheme, our URIs begin with it; it has no "__" and no "+".
        self.prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())[:MAX_NAME // 2]
        self.profiles: list[Profile] = []           # the profiles that include it
        self.client: Client | None = None           # None while it is down
        self.why = "it has not answered yet"
        self.tried = threading.Event()              # set after the first attempt to connect
        self.woken = threading.Event()              # set when its lists may have changed
        self.closed = threading.Event()
        # By kind and by our name: their name, and the definition as our clients see it.
        self.items: dict[str, dict[str, tuple[str, Message]]] = {kind: {} for kind in KINDS}
        self.wanted = [["tools", "prompts", "resources"]]   # subscriptions to open: these, and URIs
        self.heard: list[tuple[list[str], Subscription]] = []   # subscriptions that it granted
        self.calls: dict[Context, None] = {}        # calls in progress
        self.keeper = threading.Thread(target=self._keep, name="keep-" + name, daemon=True)

    def close(self) -> None:
        """End the connection and, if we started it, the server."""
        self.closed.set()
        self.woken.set()
        self.keeper.join(5)

    # ---- the keeper's thread

    def _keep(self) -> None:
        while not self.closed.is_set():
            try:
                with self._connect() as client:
                    self.client = client
                    note(f"{self.name} is up")
                    while not self.closed.is_set():
                        self._look_at(client)
            except Exception as problem:    # noqa: BLE001  an upstream may cause any error
                self.why = str(problem).partition("\n")[0] or type(problem).__name__
                note(f"{self.name} is down: {self.why}")
            self.client = None
            self.tried.set()
            for kind in KINDS:
                self._publish(kind, {})
            self.closed.wait(RETRY_SECONDS)

    def _connect(self) -> Client:
        options, command = self.options, self.options.get("command", [])
        command = [command] if isinstance(command, str) else command
        client = connect(
            options.get("url") or [*command, *options.get("args", [])], timeout=LIST_SECONDS,
            **{key: options[key] for key in {"env", "cwd", "headers", "revision"} & options.keys()},
            on_log=self._log, log_level="debug", elicit=self._elicit, visit=self._elicit,
            stderr=lambda line: note(f"{self.name}: {line}"),
            sample=lambda params, tags: self._ask("sampling/createMessage", params, tags),
            roots=lambda params, tags: self._ask("roots/list", params, tags)["roots"])
        # call() handles questions. The client checks results, so this must look like one.
        client.result_types["input_required"] = lambda method, result, tag: {
            "content": [], "contents": [], "messages": [], "question": result}
        return client

    def _changed(self, change: str) -> None:
        if ":" not in change:
            self.woken.set()
        else:
            for profile in self.profiles:
                profile.changed(self.uri(change))

    def _look_at(self, client: Client) -> None:
        """Fetch the server's lists, then wait for changes; raise if the server is gone."""
        client.ping()
        self.heard = [(wanted, one) for wanted, one in self.heard if not one.over.is_set()]
        for wanted in list(self.wanted):
            if wanted not in [what for what, _ in self.heard]:
                self.listen(client, wanted)     # before listing, so that no change is missed
        for kind, (_, member, fetch) in KINDS.items():
            found = {}
            try:
                for item in fetch(client):
                    theirs = item[member]
                    ours = name_of(self.prefix, theirs) if member == "name" else self.uri(theirs)
                    found[ours] = theirs, {**item, member: ours}
            except TROUBLE as problem:
                note(f"{self.name}: cannot list {kind}: {problem}")
            self._publish(kind, found)
        self.tried.set()
        self.woken.wait(CHECK_SECONDS)
        self.woken.clear()

    def _publish(self, kind: str, found: dict[str, tuple[str, Message]]) -> None:
        before, self.items = self.items, {**self.items, kind: found}
        for profile in self.profiles if before[kind] != found else ():
            profile.changed(KINDS[kind][0].partition("/")[0])

    # ---- any thread

    def uri(self, theirs: str) -> str:
        """Return our URI, or template, for one of theirs."""
        return f"{self.prefix}+{theirs}"

    def listen(self, client: Client, wanted: list[str]) -> None:
        """Subscribe to changes, if the server supports it."""
        with contextlib.suppress(*TROUBLE):
            self.heard.append((wanted, client.listen(wanted, self._changed)))

    def call(self, ctx: Context, params: Message) -> Message:
        """Pass on a request. A modern server's questions are part of a result: a modern client gets
        them unchanged, and repeats the request; a legacy client is asked here."""
        asked = params
        for _ in range(10):                 # rounds of questions
            result = self._request(ctx, asked)
            if result.get("resultType") != "input_required" or rules(ctx.version).modern:
                return result
            asked = {**params, "inputResponses": ask(ctx, result.get("inputRequests") or {})}
            if "requestState" in result:
                asked["requestState"] = result["requestState"]
        raise RpcError(INTERNAL, f"The server {self.name} asked for input more than 10 times")

    def _request(self, ctx: Context, params: Message) -> Message:
        """Send a request. Any failure becomes an RpcError that names the server."""
        client, data = self.client, {"server": self.name}   # type: Client | None, Message
        if client is None:
            raise RpcError(INTERNAL, f"The server {self.name} is down: {self.why}", data)
        meta = {key: value for key, value in ctx.meta.items()
                if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")}
        if client.modern:
            meta[META_CAPABILITIES] = ctx.client_capabilities
        self.calls[ctx] = None
        try:
            result = client.request(
                ctx.method, {**params, "_meta": meta}, timeout=CALL_SECONDS, tag=ctx,
                on_progress=ctx.progress, started=lambda sent: ctx.on_cancel(sent.cancel))
            return dict(result.get("question", result))
        except RpcError as error:
            original = {"code": error.code, "message": str(error), "data": error.data}
            known = error.data if isinstance(error.data, dict) else {}      # some hosts read it
            old = error.code == LEGACY_NOT_FOUND and rules(ctx.version).modern
            raise RpcError(INVALID if old else error.code, str(error),
                           {**known, **data, "originalError": original}) from None
        except Exception as problem:
            self.woken.set()                # check whether it is still up
            raise RpcError(INTERNAL, f"The server {self.name} failed: {problem}", data) from problem
        finally:
            self.calls.pop(ctx, None)

    def with_our_uris(self, key: str, value: Any) -> Any:
        """Replace the URIs in a member of a result with ours; return the new member."""
        if key in ("content", "contents", "messages", "resource") and isinstance(value, dict):
            return {name: self.with_our_uris(name, one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.with_our_uris(key, one) for one in value]
        return self.uri(value) if key == "uri" and isinstance(value, str) else value

    # ---- a legacy server's questions, any server's log messages: on the connection's threads

    def _elicit(self, params: Message, tags: list[Any]) -> Any:
        answer = self._ask("elicitation/create", params, tags)
        return answer.get("content") or {} if answer["action"] == "accept" else answer["action"]

    def _ask(self, method: str, params: Message, tags: list[Any]) -> Message:
        ctx = only_client([tag for tag in tags if tag is not None])
        if ctx is None:
            raise RpcError(INTERNAL, "The gateway cannot tell which client this question is for")
        if rules(ctx.version).modern:
            raise RpcError(INTERNAL, "A legacy server cannot ask a modern client")
        return ask(ctx, {"": {"method": method, **({"params": params} if params else {})}})[""]

    def _log(self, params: Message) -> None:
        ctx = only_client(list(self.calls))
        if ctx is not None and params.get("level") in LOG_LEVELS:
            ctx.log(params["level"], params.get("data"), params.get("logger"))


class Profile(Server):
    """The server that a client sees: upstreams, with the tools that match a pattern."""

    def __init__(self, name: str, members: list[tuple[Upstream, list[str]]]) -> None:
        super().__init__("gateway-" + name)
        self.path, self.members = "/mcp/" + name, members
        self.on_watch = self._watch
        for kind, (method, _, _) in KINDS.items():
            self._serve_list(method, kind)
        for method, kind in CALLS.items():
            self._serve_call(method, kind)
        for upstream, _ in members:
            upstream.profiles.append(self)

    def _serve_list(self, method: str, kind: str) -> None:
        """Serve a list from memory, in the order of the file, as one page."""
        @self.method(method)
        def listed(params: Message, ctx: Context) -> Message:
            for upstream, _ in self.members:
                upstream.tried.wait(START_SECONDS)
            return {kind: [item for upstream, patterns in self.members
                           for theirs, item in upstream.items[kind].values()
                           if is_shown(kind, theirs, patterns)]}

    def _serve_call(self, method: str, kind: str) -> None:
        @self.method(method)
        def called(params: Message, ctx: Context) -> Message:
            member = METHODS[method].mirrored           # "name" or "uri"
            upstream, theirs = self._find(kind, params[member])
            result = upstream.call(ctx, {**params, member: theirs})
            return {key: upstream.with_our_uris(key, value) for key, value in result.items()}

    def _find(self, kind: str, name: str) -> tuple[Upstream, str]:
        """Return the upstream of a tool, prompt or resource, and its name or URI there."""
        by_uri = kind == "resources"        # found by its scheme, even if not listed
        prefix, _, rest = name.partition("+" if by_uri else "__")
        for upstream, patterns in self.members:
            if prefix == upstream.prefix:
                upstream.tried.wait(START_SECONDS)
                theirs = rest if by_uri else upstream.items[kind].get(name, ("", {}))[0]
                if upstream.client is None or theirs and is_shown(kind, theirs, patterns):
                    return upstream, theirs
        raise NotFound(name) if by_uri else RpcError(INVALID, f"Unknown {kind[:-1]}: {name[:200]}")

    def _watch(self, uri: str) -> None:
        upstream, theirs = self._find("resources", uri)
        if [theirs] not in upstream.wanted and len(upstream.wanted) < MAX_WATCHED:
            upstream.wanted.append([theirs])
            if upstream.client is not None:
                upstream.listen(upstream.client, [theirs])


def is_shown(kind: str, theirs: str, patterns: list[str]) -> bool:
    """Tell whether a profile shows an item: any but a tool whose name matches no pattern."""
    return kind != "tools" or any(fnmatch.fnmatchcase(theirs, one) for one in patterns)


class Paths(Endpoint):
    """The endpoint of the first profile; it passes requests for other paths to other profiles."""

    def __init__(self, profiles: list[Profile], hosts: tuple[str, ...] | None) -> None:
        first, *others = profiles
        super().__init__(first, first.path, sse_on_get=True, hosts=hosts)
        self.others = [Endpoint(one, one.path, sse_on_get=True, hosts=hosts) for one in others]

    def serve(self, exchange: Exchange) -> None:
        for other in self.others:
            if (exchange.path + "/").startswith(other.path + "/"):
                other.serve(exchange)
                return
        super().serve(exchange)

    def close(self) -> None:
        for endpoint in self.others:
            endpoint.close()
        super().close()


STRINGS: Message = {"type": "array", "items": {"type": "string"}}
NAMED_STRINGS: Message = {"type": "object", "additionalProperties": {"type": "string"}}
CONFIG = Schema({"type": "object", "required": ["servers"], "properties": {
    "servers": {
        "type": "object", "minProperties": 1, "additionalProperties": False,
        "patternProperties": {"^[A-Za-z]": {
            "type": "object", "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
            "properties": {
                "command": {"anyOf": [{"type": "string"}, {**STRINGS, "minItems": 1}]},
                "args": STRINGS, "cwd": {"type": "string"}, "env": NAMED_STRINGS,
                "headers": NAMED_STRINGS, "revision": {"enum": versions()},
                "url": {"type": "string", "pattern": "^https?://[^/]"}}}}},
    "profiles": {
        "type": "object", "minProperties": 1, "additionalProperties": False,
        "patternProperties": {"^[A-Za-z0-9_-]+$": {
            "type": "object", "required": ["servers"], "properties": {"servers": {"anyOf": [
                STRINGS, {"type": "object", "additionalProperties": STRINGS}]}}}}}}})


def read_config(path: str) -> tuple[dict[str, Upstream], dict[str, Profile]]:
    """Make the upstreams and profiles in a file; ValueError or OSError if it is invalid."""
    config = json.loads(Path(path).read_text("utf-8-sig"))
    if isinstance(config, dict) and "mcpServers" in config:
        config = {"servers": config["mcpServers"], **config}
    if (flaw := CONFIG.flaw(config)) is not None:
        raise ValueError(flaw)
    upstreams = {name: Upstream(name, one) for name, one in config["servers"].items()}
    if len({one.prefix for one in upstreams.values()}) < len(upstreams):
        raise ValueError("/servers: names must differ in more than case and punctuation")
    profiles = {}
    for name, one in config.get("profiles", {"all": {"servers": list(upstreams)}}).items():
        chosen = one["servers"]
        if not set(chosen) <= set(upstreams):
            raise ValueError(f"/profiles/{name}: servers must be among " + ", ".join(upstreams))
        profiles[name] = Profile(name, [
            (upstreams[member], chosen[member] if isinstance(chosen, dict) else ["*"])
            for member in chosen])
    return upstreams, profiles


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Many MCP servers behind one address.")
    parser.add_argument("config", metavar="CONFIG.json", nargs="?", help="default: gateway.json",
                        default=Path(__file__).with_name("gateway.json"))
    parser.add_argument("--http", metavar="[HOST:]PORT", help="serve profiles at /mcp/PROFILE")
    parser.add_argument("--profile", help="on stdio, serve this one (default: the first)")
    options = parser.parse_args()
    host, _, port = (options.http or "0").rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        parser.error(f"--http must be [HOST:]PORT, not {options.http!r}")
    try:
        upstreams, profiles = read_config(options.config)
    except (OSError, ValueError) as problem:
        parser.error(f"{options.config}: {problem}")
    profile = profiles.get(options.profile or next(iter(profiles)))
    if profile is None:
        parser.error("--profile must be one of " + ", ".join(profiles))
    for upstream in upstreams.values():
        upstream.keeper.start()
    try:
        if options.http is None:
            profile.run([])
        else:
            host = host.strip("[]") or "127.0.0.1"
            paths = Paths(list(profiles.values()), LOOPBACK if host in LOOPBACK else None)
            note("serves " + ", ".join(one.path for one in profiles.values()))
            serve_http(paths.server, host, int(port), endpoint=paths)
    except (OSError, OverflowError) as problem:
        parser.error(f"--http {options.http}: {problem}")
    finally:
        for upstream in upstreams.values():
            upstream.close()


if __name__ == "__main__":
    main()
