#!/usr/bin/env python3
"""A gateway: many MCP servers behind one address, for clients of every revision.

A JSON file lists the *upstream* servers, by command or by URL, and *profiles*: which
servers a client sees and, by patterns, which of their tools. The default is one
profile, "all". A host's "mcpServers" file works, too. "revision" sets the revision to
speak with an upstream.

    {"servers": {
        "demo": {"command": ["python3", "mcp_ref.py"], "env": {"A": "b"}, "cwd": "."},
        "web": {"url": "http://127.0.0.1:8001/mcp", "headers": {"X-Api-Key": "k"}}},
     "profiles": {
        "all": {"servers": ["demo", "web"]},
        "few": {"servers": {"demo": ["a*"]}}}}

    python3 examples/extensions/gateway.py gateway.json --http 8000  # /mcp/all ...
    python3 examples/extensions/gateway.py gateway.json --profile few     # on stdio
    python3 examples/extensions/gateway.py http://127.0.0.1:8000/mcp  # without a file

The last form is for a host that speaks only stdio and an application that serves HTTP
but is not always running. It starts without the application, tells the host that the
tools have changed when the application comes and goes, and a call meanwhile fails at
once.

A client sees one server: `add` becomes `demo__add`, `memo://today` becomes
`demo+memo://today`; with a URL instead of a file, names stay as they are. Calls,
progress, log messages, cancellation and questions pass through, even between different
revisions. A call runs on its handler's thread. Each upstream has two more threads:
`keep-NAME` connects, fetches the lists, and reconnects when the upstream fails;
meanwhile, only its tools are missing. `hear-NAME` waits for the changes that it
announces. Threads share dicts, each of which is changed or replaced in a single
operation.

Known limits: no completion; a legacy upstream cannot ask a modern client and gets an
error; log messages, and questions on stdio, pass only while all calls to the upstream
are from one client; that a server on another machine has gone is noticed after
CHECK_SECONDS, unless it announces changes; of one upstream, clients can subscribe to
MAX_WATCHED URIs, which are never forgotten; a host that never asks for its tools again
must be started after the application. Clients are not authorized: do not serve others
than this machine without a proxy that does it.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]
import mcp_client
from mcp_client import (
    Client,
    HttpTransport,
    Malformed,
    ServerLacks,
    StdioTransport,
    Subscription,
    Transport,
    connect,
)

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
    log,
    rules,
    serve_http,
    versions,
)

Message = dict[str, Any]
# What ends us; Windows has no SIGHUP.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

RETRY_SECONDS = 5.0  # wait before reconnecting to a failed upstream
NEAR_SECONDS = 0.4  # the same for a URL on this machine, which is checked as often
START_SECONDS = 10.0  # how long clients wait for upstreams when the gateway starts
LIST_SECONDS = 20.0  # timeout of upstream requests other than calls
CALL_SECONDS = 3600.0  # timeout of calls; clients cancel sooner
CHECK_SECONDS = 30.0  # wait before an upstream's lists are fetched again in any case
CHANGE_SECONDS = 0.1  # wait for further changes, before lists are fetched again
CLOSE_SECONDS = 5.0  # how long the end waits for all upstreams
STEP_SECONDS = 0.5  # for an upstream, to end by itself; hosts end us after about 2 s
MAX_PAGES = 1000  # of one list
MAX_WATCHED = 200  # URIs of one upstream that clients can subscribe to
MAX_LIST_BYTES = 2**20  # of one list of one upstream; a larger one is left out
MAX_NAME = 64  # longest name that hosts accept
INVALID, INTERNAL, LEGACY_NOT_FOUND = -32602, -32603, -32002
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# the server is still up
TROUBLE = (RpcError, HttpError, Malformed, ServerLacks, TimeoutError)

# An upstream's lists, by the name in the result: the method, and the members that an
# item must have, with their types. The first one identifies it. The first part of the
# method is the change that covers the list.
KINDS: dict[str, tuple[str, dict[str, type]]] = {
    "tools": ("tools/list", {"name": str, "inputSchema": dict}),
    "prompts": ("prompts/list", {"name": str}),
    "resources": ("resources/list", {"uri": str, "name": str}),
    "resourceTemplates": (
        "resources/templates/list",
        {"uriTemplate": str, "name": str},
    ),
}
CALLS = {"tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources"}


def note(line: str) -> None:
    """Log a line. What an upstream says must not control a terminal, or add a line."""
    plain = (one if one.isprintable() else ascii(one)[1:-1] for one in line)
    log(f"gateway: {''.join(plain)}")  # which waits for nobody


def name_of(prefix: str, theirs: str) -> str:
    """Return our name for a tool or prompt, one that hosts accept.

    A digest replaces what they would not.
    """
    name = f"{prefix}__{theirs}" if prefix else theirs
    if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(theirs.encode("utf-8", "replace")).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[: MAX_NAME - 9] + "_" + digest


def place_of(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL on this machine."""
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        return None
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def ask(ctx: Context, questions: dict[str, Message]) -> dict[str, Message]:
    """Ask a legacy client; RpcError if there is no answer."""
    run = secrets.token_urlsafe(8)  # makes keys unique: upstreams may repeat theirs
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
    """A server behind the gateway: one connection for all clients, and what it offers.

    Our names and, as part of the scheme, our URIs begin with `prefix`, which has no
    "__" and no "+"; if it is empty, they are theirs.
    """

    def __init__(self, name: str, options: Message, prefix: str | None = None) -> None:
        self.name, self.options = name, options
        if prefix is None:
            prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())[: MAX_NAME // 2]
        self.prefix = prefix
        self.place = place_of(options.get("url", ""))
        self.profiles: list[Profile] = []  # the profiles that include it
        self.client: Client | None = None  # None while it is down
        self.transport: Transport | None = None  # of the latest connection
        self.why = "it has not answered yet"
        self.said: dict[str, str] = {}  # the last line logged, by subject
        # All upstreams have this time together, because they start together.
        self.patience_ends = time.monotonic() + START_SECONDS
        self.tried = threading.Event()  # set after the first attempt to connect
        self.woken = threading.Event()  # set when its lists may have changed
        self.closed = threading.Event()
        # By kind and by our name: their name, and the definition as our clients see it.
        self.items: dict[str, dict[str, tuple[str, Message]]] = {
            kind: {} for kind in KINDS
        }
        # subscriptions to open: these, and URIs
        self.wanted = [["tools", "prompts", "resources"]]
        # subscriptions that it granted
        self.heard: list[tuple[list[str], Subscription]] = []
        self.calls: dict[Context, None] = {}  # calls in progress
        self.keeper = threading.Thread(
            target=self._keep, name="keep-" + name, daemon=True
        )

    def close(self) -> None:
        """End the connection and, if we started it, the server."""
        close_all([self])

    def leave(self) -> None:
        """Let the keeper end, even while it connects."""
        self.closed.set()
        self.woken.set()
        client = getattr(self.transport, "client", None)
        if client is not None:
            threading.Thread(target=client.close, daemon=True).start()

    def await_first(self) -> None:
        """Wait for the first attempt to connect, but not longer than all may take."""
        self.tried.wait(max(0.0, self.patience_ends - time.monotonic()))

    def note(self, subject: str, line: str) -> None:
        """Log a line, unless it is the last one on this subject."""
        if self.said.get(subject) != line:
            self.said[subject] = line
            note(f"{self.name}{line}")

    # ---- the keeper's thread

    def _keep(self) -> None:
        while not self.closed.is_set():
            try:
                with self._connect() as client:
                    self._follow(client)
            except Exception as problem:  # an upstream may cause any error
                self.why = str(problem).partition("\n")[0] or type(problem).__name__
                if not self.closed.is_set():
                    self.note("state", f" is down: {self.why}")
            self.tried.set()
            self.closed.wait(
                min(NEAR_SECONDS, RETRY_SECONDS) if self.place else RETRY_SECONDS
            )

    def _connect(self) -> Client:
        options, command = self.options, self.options.get("command", [])
        command = [command] if isinstance(command, str) else command
        if "url" in options:
            self.transport = HttpTransport(options["url"], options.get("headers"))
        else:
            command = [*command, *options.get("args", [])]
            self.transport = StdioTransport(
                command, options.get("env"), options.get("cwd")
            )

        def sample(params: Message, tags: list[Any]) -> Message:
            return self._ask("sampling/createMessage", params, tags)

        def roots(params: Message, tags: list[Any]) -> Any:
            return self._ask("roots/list", params, tags)["roots"]

        client = connect(
            self.transport,
            timeout=LIST_SECONDS,
            revision=options.get("revision", ""),
            on_log=self._log,
            log_level="debug",
            elicit=self._elicit,
            visit=self._elicit,
            stderr=lambda line: note(f"{self.name}: {line}"),
            sample=sample,
            roots=roots,
        )
        # call() handles questions. The client checks results, so this must look like
        # one.
        client.result_types["input_required"] = lambda method, result, tag: {
            "content": [],
            "contents": [],
            "messages": [],
            "question": result,
        }
        return client

    def _follow(self, client: Client) -> None:
        """Offer what the server offers until we close, or raise when it is gone."""
        self.client, self.why = client, "it has just gone"
        self.note("state", " is up")
        try:
            while not self.closed.is_set():
                self._subscribe(client)
                for kind in KINDS:
                    self._publish(kind, self._fetch_or_note(client, kind))
                self.tried.set()
                self._wait(client)
        finally:
            self.client = None
            for kind in KINDS:
                self._publish(kind, {})

    def _wait(self, client: Client) -> None:
        """Wait until the lists may have changed; raise if the server is gone.

        The end of a modern subscription tells at once that a server is gone. Without
        one, a server on this machine is asked for a connection.
        """
        end = time.monotonic() + CHECK_SECONDS
        while not self.woken.is_set() and time.monotonic() < end:
            self.woken.wait(NEAR_SECONDS if self.place else CHECK_SECONDS)
            is_heard = any(not one.over.is_set() for _, one in self.heard)
            if self.place and not (client.modern and is_heard):
                with contextlib.suppress(socket.timeout):  # it is there, but busy
                    socket.create_connection(self.place, 1).close()
        self.closed.wait(CHANGE_SECONDS)
        self.woken.clear()

    def _subscribe(self, client: Client) -> None:
        """Open the subscriptions that are wanted and missing.

        This comes before listing, so that no change is missed.
        """
        self.heard = [
            (wanted, one) for wanted, one in self.heard if not one.over.is_set()
        ]
        for wanted in list(self.wanted):
            if wanted not in [what for what, _ in self.heard]:
                self.listen(client, wanted)

    def _fetch_or_note(
        self, client: Client, kind: str
    ) -> dict[str, tuple[str, Message]]:
        """Return a list as our clients see it; an empty one if it cannot be used."""
        found: dict[str, tuple[str, Message]] = {}
        identifier = next(iter(KINDS[kind][1]))
        try:
            items = self._fetch(client, kind)
            for item in items:
                theirs = item[identifier]
                ours = (
                    name_of(self.prefix, theirs)
                    if identifier == "name"
                    else self.uri(theirs)
                )
                found[ours] = theirs, {**item, identifier: ours}
            if kind == "tools":
                # The client repeats arguments in headers, as these schemas say.
                client.tools = {item["name"]: item for item in items}
        except TROUBLE as problem:
            self.note(kind, f": cannot list {kind}: {problem}")
        return found

    def _fetch(self, client: Client, kind: str) -> list[Message]:
        """Fetch all pages of a list; a malformed item is left out."""
        method, members = KINDS[kind]
        if METHODS[method].capability not in client.capabilities:
            return []
        found: list[Message] = []
        bad: list[Any] = []
        params: Message = {}
        size = 0
        for _ in range(MAX_PAGES):
            result = client.request(method, params)
            size += len(json.dumps(result))
            if size > MAX_LIST_BYTES:
                raise Malformed(f"they have more than {MAX_LIST_BYTES} bytes")
            if not isinstance(result.get(kind), list):
                raise Malformed(f"its answer has no list of {kind}")
            for item in result[kind]:
                if isinstance(item, dict) and all(
                    isinstance(item.get(name), type_) for name, type_ in members.items()
                ):
                    found.append(item)
                else:
                    bad.append(item)
            if bad:
                self.note(f"bad {kind}", f": left out of {kind}: {bad!r:.200}")
            if result.get("nextCursor") is None:
                return found
            params = {"cursor": result["nextCursor"]}
        raise Malformed(f"they have more than {MAX_PAGES} pages")

    def _publish(self, kind: str, found: dict[str, tuple[str, Message]]) -> None:
        before, self.items = self.items, {**self.items, kind: found}
        for profile in self.profiles if before[kind] != found else ():
            profile.changed(KINDS[kind][0].partition("/")[0])

    # ---- any thread

    def uri(self, theirs: str) -> str:
        """Return our URI, or template, for one of theirs."""
        return f"{self.prefix}+{theirs}" if self.prefix else theirs

    def listen(self, client: Client, wanted: list[str]) -> None:
        """Subscribe to changes, if the server supports it."""
        with contextlib.suppress(*TROUBLE):
            subscription = client.listen(wanted)
            self.heard.append((wanted, subscription))
            threading.Thread(
                target=self._hear,
                args=(subscription,),
                name="hear-" + self.name,
                daemon=True,
            ).start()

    def _hear(self, subscription: Subscription) -> None:
        """Act on changes until the subscription ends."""
        with subscription, contextlib.suppress(*TROUBLE, OSError):
            for change in subscription:
                if ":" not in change:
                    self.woken.set()
                    continue
                for profile in self.profiles:
                    profile.changed(self.uri(change))
        # The server may be gone. The pause is for one that ends them all at once.
        if not self.closed.wait(RETRY_SECONDS):
            self.woken.set()

    def call(self, ctx: Context, params: Message) -> Message:
        """Pass on a request.

        A modern server's questions are part of a result: a modern client gets them
        unchanged, and repeats the request; a legacy client is asked here.
        """
        asked = params
        for _ in range(10):  # rounds of questions
            result = self._request(ctx, asked)
            if (
                result.get("resultType") != "input_required"
                or rules(ctx.version).modern
            ):
                return result
            asked = {
                **params,
                "inputResponses": ask(ctx, result.get("inputRequests") or {}),
            }
            if "requestState" in result:
                asked["requestState"] = result["requestState"]
        raise RpcError(
            INTERNAL, f"The server {self.name} asked for input more than 10 times"
        )

    def _request(self, ctx: Context, params: Message) -> Message:
        """Send a request. Any failure becomes an RpcError that names the server."""
        client: Client | None = self.client
        data: Message = {"server": self.name}
        if client is None:
            raise RpcError(
                INTERNAL,
                f"The server {self.name} is down, and nothing was done: {self.why}",
                data,
            )
        meta = {
            key: value
            for key, value in ctx.meta.items()
            if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")
        }
        if client.modern:
            meta[META_CAPABILITIES] = ctx.client_capabilities
        self.calls[ctx] = None
        try:
            result = client.request(
                ctx.method,
                {**params, "_meta": meta},
                timeout=CALL_SECONDS,
                tag=ctx,
                on_progress=ctx.progress,
                started=lambda sent: ctx.on_cancel(sent.cancel),
            )
            return dict(result.get("question", result))
        except RpcError as error:
            original = {"code": error.code, "message": str(error), "data": error.data}
            # some hosts read it
            known = error.data if isinstance(error.data, dict) else {}
            old = error.code == LEGACY_NOT_FOUND and rules(ctx.version).modern
            raise RpcError(
                INVALID if old else error.code,
                str(error),
                {**known, **data, "originalError": original},
            ) from None
        except Exception as problem:
            self.woken.set()  # check whether it is still up
            raise RpcError(
                INTERNAL, f"The server {self.name} failed: {problem}", data
            ) from problem
        finally:
            self.calls.pop(ctx, None)

    def with_our_uris(self, key: str, value: Any) -> Any:
        """Return a member of a result with our URIs in place of theirs."""
        if key in ("content", "contents", "messages", "resource") and isinstance(
            value, dict
        ):
            return {name: self.with_our_uris(name, one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.with_our_uris(key, one) for one in value]
        return self.uri(value) if key == "uri" and isinstance(value, str) else value

    # ---- a legacy server's questions, any server's log messages: on the connection's
    # threads

    def _elicit(self, params: Message, tags: list[Any]) -> Any:
        answer = self._ask("elicitation/create", params, tags)
        return (
            answer.get("content") or {}
            if answer["action"] == "accept"
            else answer["action"]
        )

    def _ask(self, method: str, params: Message, tags: list[Any]) -> Message:
        ctx = only_client([tag for tag in tags if tag is not None])
        if ctx is None:
            raise RpcError(
                INTERNAL, "The gateway cannot tell which client this question is for"
            )
        if rules(ctx.version).modern:
            raise RpcError(INTERNAL, "A legacy server cannot ask a modern client")
        return ask(
            ctx, {"": {"method": method, **({"params": params} if params else {})}}
        )[""]

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
        for kind, (method, _) in KINDS.items():
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
                upstream.await_first()
            return {
                kind: [
                    item
                    for upstream, patterns in self.members
                    for theirs, item in upstream.items[kind].values()
                    if is_shown(kind, theirs, patterns)
                ]
            }

    def _serve_call(self, method: str, kind: str) -> None:
        @self.method(method)
        def called(params: Message, ctx: Context) -> Message:
            member = METHODS[method].mirrored  # "name" or "uri"
            upstream, theirs = self._find(kind, params[member])
            result = upstream.call(ctx, {**params, member: theirs})
            return {
                key: upstream.with_our_uris(key, value) for key, value in result.items()
            }

    def _find(self, kind: str, name: str) -> tuple[Upstream, str]:
        """Return the upstream of a tool, prompt or resource, and its name there."""
        by_uri = kind == "resources"  # found by its scheme, even if not listed
        for upstream, patterns in self.members:
            mark = upstream.prefix and upstream.prefix + ("+" if by_uri else "__")
            if not name.startswith(mark):
                continue
            upstream.await_first()
            theirs = name[len(mark) :]
            if not by_uri:
                theirs = upstream.items[kind].get(name, ("", {}))[0]
            is_offered = theirs and is_shown(kind, theirs, patterns)
            if is_offered or upstream.client is None:
                return upstream, theirs
        if by_uri:
            raise NotFound
        raise RpcError(INVALID, f"Unknown {kind[:-1]}: {name[:200]}")

    def _watch(self, uri: str, ctx: Context) -> None:
        upstream, theirs = self._find("resources", uri)
        if [theirs] not in upstream.wanted and len(upstream.wanted) < MAX_WATCHED:
            upstream.wanted.append([theirs])
            if upstream.client is not None:
                upstream.listen(upstream.client, [theirs])


def is_shown(kind: str, theirs: str, patterns: list[str]) -> bool:
    """Tell whether a profile shows an item: any but a tool that matches no pattern."""
    return kind != "tools" or any(fnmatch.fnmatchcase(theirs, one) for one in patterns)


class Paths(Endpoint):
    """The endpoint of the first profile; other paths lead to other profiles."""

    def __init__(self, profiles: list[Profile], hosts: tuple[str, ...] | None) -> None:
        first, *others = profiles
        super().__init__(first, first.path, sse_on_get=True, hosts=hosts)
        self.others = [
            Endpoint(one, one.path, sse_on_get=True, hosts=hosts) for one in others
        ]

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
CONFIG = Schema(
    {
        "type": "object",
        "required": ["servers"],
        "properties": {
            "servers": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "patternProperties": {
                    "^[A-Za-z]": {
                        "type": "object",
                        "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
                        "properties": {
                            "command": {
                                "anyOf": [
                                    {"type": "string"},
                                    {**STRINGS, "minItems": 1},
                                ]
                            },
                            "args": STRINGS,
                            "cwd": {"type": "string"},
                            "env": NAMED_STRINGS,
                            "headers": NAMED_STRINGS,
                            "revision": {"enum": versions()},
                            "url": {"type": "string", "pattern": "^https?://[^/]"},
                        },
                    }
                },
            },
            "profiles": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "patternProperties": {
                    "^[A-Za-z0-9_-]+$": {
                        "type": "object",
                        "required": ["servers"],
                        "properties": {
                            "servers": {
                                "anyOf": [
                                    STRINGS,
                                    {"type": "object", "additionalProperties": STRINGS},
                                ]
                            }
                        },
                    }
                },
            },
        },
    }
)


def close_all(upstreams: Iterable[Upstream]) -> None:
    """End all connections at the same time."""
    upstreams = list(upstreams)
    for upstream in upstreams:
        upstream.leave()
    end = time.monotonic() + CLOSE_SECONDS
    for upstream in upstreams:
        upstream.keeper.join(max(0.0, end - time.monotonic()))


Setup = tuple[dict[str, Upstream], dict[str, "Profile"]]


def read_config(target: str) -> Setup:
    """Make the upstreams and profiles in a file, or the only ones for a URL.

    ValueError or OSError: it is invalid.
    """
    if "://" in target:
        return configure_one(target)
    config = json.loads(Path(target).read_text("utf-8-sig"))
    if isinstance(config, dict) and "mcpServers" in config:
        config = {"servers": config["mcpServers"], **config}
    if (flaw := CONFIG.flaw(config)) is not None:
        raise ValueError(flaw)
    return configure(config)


def configure_one(url: str) -> Setup:
    """Make one upstream, whose names stay as they are."""
    if CONFIG.flaw({"servers": {"it": {"url": url}}}) is not None:
        raise ValueError("expected a file or an http(s) URL")
    upstream = Upstream(url, {"url": url}, prefix="")
    return {url: upstream}, {"all": Profile("all", [(upstream, ["*"])])}


def configure(config: Message) -> Setup:
    """Make the upstreams and profiles of a configuration that fits CONFIG."""
    upstreams = {name: Upstream(name, one) for name, one in config["servers"].items()}
    if len({one.prefix for one in upstreams.values()}) < len(upstreams):
        raise ValueError(
            "/servers: names must differ in more than case and punctuation"
        )
    everything = {"all": {"servers": list(upstreams)}}
    profiles = {}
    for name, one in config.get("profiles", everything).items():
        chosen = one["servers"]
        if not set(chosen) <= set(upstreams):
            raise ValueError(
                f"/profiles/{name}: servers must be among " + ", ".join(upstreams)
            )
        if not isinstance(chosen, dict):
            chosen = dict.fromkeys(chosen, ["*"])
        members = [(upstreams[member], chosen[member]) for member in chosen]
        profiles[name] = Profile(name, members)
    return upstreams, profiles


def main() -> None:
    """Run the command line."""
    options, parser = parse()
    host, _, port = (options.http or "0").rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        parser.error(f"--http must be [HOST:]PORT, not {options.http!r}")
    try:
        upstreams, profiles = read_config(str(options.config))
    except (OSError, ValueError) as problem:
        parser.error(f"{options.config}: {problem}")
    profile = profiles.get(options.profile or next(iter(profiles)))
    if profile is None:
        parser.error("--profile must be one of " + ", ".join(profiles))

    mcp_client.CLOSE_STEP_SECONDS = STEP_SECONDS
    # Later mcp_ref takes SIGINT and SIGTERM, but not SIGHUP.
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        for upstream in upstreams.values():
            upstream.keeper.start()
        if options.http is None:
            profile.run([])
        else:
            host = host.strip("[]") or "127.0.0.1"
            hosts = LOOPBACK if host in LOOPBACK else None
            paths = Paths(list(profiles.values()), hosts)
            note("serves " + ", ".join(one.path for one in profiles.values()))
            serve_http(paths.server, host, int(port), endpoint=paths)
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, OverflowError) as problem:
        parser.error(f"--http {options.http}: {problem}")
    finally:
        # A second signal, which hosts send soon, would leave upstreams behind.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        close_all(upstreams.values())


def parse() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """Read the command line; the parser reports what is wrong later, too."""
    parser = argparse.ArgumentParser(description="Many MCP servers behind one address.")
    parser.add_argument(
        "config",
        metavar="CONFIG.json | URL",
        nargs="?",
        help="a file (default: gateway.json), or the only server behind the gateway",
        default=Path(__file__).with_name("gateway.json"),
    )
    parser.add_argument(
        "--http", metavar="[HOST:]PORT", help="serve profiles at /mcp/PROFILE"
    )
    parser.add_argument(
        "--profile", help="on stdio, serve this one (default: the first)"
    )
    return parser.parse_args(), parser


if __name__ == "__main__":
    main()
