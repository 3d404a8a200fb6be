r"""A gateway: many MCP servers behind one, for clients of any revision. A program to use.

A file names the *upstream* servers, by command or by URL, and *profiles*: which servers a client
gets, and of their tools which (patterns as for file names). Hosts' own files will do as well: they
say "mcpServers", and "args" beside "command". Without profiles there is one, "all". A server may
have a "revision", to be spoken with it instead of the newest that it knows.

    {"servers": {"demo": {"command": ["python3", "mcp_ref.py"], "env": {"A": "b"}, "cwd": "."},
                 "web":  {"url": "http://127.0.0.1:8001/mcp", "headers": {"X-Api-Key": "k"}}},
     "profiles": {"all": {"servers": ["demo", "web"]},
                  "few": {"servers": {"demo": ["a*"], "web": ["*"]}}}}

    python3 examples/10_gateway.py gateway.json --http 8000        # http://127.0.0.1:8000/mcp/few
    python3 examples/10_gateway.py gateway.json --profile few      # on stdio

Here our own client is the one in front of it, and starts it:

    $ python3 mcp_ref.py call demo__add a=2 b=3 -- \
          python3 examples/10_gateway.py examples/gateway.json
    5
    $ python3 mcp_ref.py list --revision 2025-06-18 -- \
          python3 examples/10_gateway.py examples/gateway.json --profile few | grep .
    gateway-few 1.0, speaks 2025-06-18
    tools
      demo__add(a: number, b: number)
          Add two numbers.
    resources
      demo+demo://note  demo__note  text/plain
          A note to read.
    prompts
      demo__greet(name)
          Ask for a greeting.

A client sees one server. Names become `demo__add`, URIs `demo+memo://today`. What a tool tells or
asks while it runs goes to the client that called it, and the answer back. Both sides may speak any
revision: a modern client gets at old servers, an old client at modern ones. An upstream that dies
takes its own tools with it, until it is up again; nobody waits for it.

    thread          of each                 does
    keep-NAME       upstream                connects, lists, subscribes, connects again
    relay           call                    waits for the result, however often the client is asked
    (a handler's)   request of a client     all that is sent to that client

No locks: threads share queues, and dicts that are replaced as a whole or changed by one operation.
"""
from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import re
import secrets
import signal
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

sys.path.insert(0, sys.path[0] + "/..")     # where mcp_ref.py is; not needed beside it
from mcp_ref import (  # noqa: I001
    LOG_LEVELS, META_CAPABILITIES, METHODS, AskError, Client, ClientLacks, Context, Disconnected,
    Endpoint, Exchange, HttpError, HttpTransport, Malformed, NotFound, Request, RpcError, Server,
    StdioTransport, Subscription, encode, http_server, rules, text, versions)

Message = dict[str, Any]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0      # seconds, before a dead upstream is started again
PATIENCE = 10.0             # seconds, for upstreams to come up when we start; nobody waits later
LIST_SECONDS = 20.0         # for an upstream to answer anything but a call
CALL_SECONDS = 3600.0       # ... and a call; a client that wants it sooner cancels
FRESH_SECONDS = 10.0        # that a list is good for, if its upstream announces no changes
CHECK_SECONDS = 15.0        # between questions to an upstream at a URL, whether it is there
PARKED_SECONDS = 900.0      # for a modern client to come back with an answer
MAX_PARKED = 1000           # calls that wait for one; beyond, the oldest is cancelled
MAX_UNTOLD = 1000           # progress and log messages of a call that its client has yet to read
MAX_WATCHED = 1000          # URIs of an upstream that clients subscribed to; beyond, none is added
MAX_NAME = 64               # characters: what hosts and models bear
INTERNAL, INVALID, NOT_FOUND, LACKS, VISIT = -32603, -32602, -32002, -32021, -32042
RESERVED = "io.modelcontextprotocol/"       # keys of _meta that are about one connection
RETRY = ("_meta", "inputResponses", "requestState")     # what a request and its retry differ in

LISTS = {"tools": Client.list_tools, "prompts": Client.list_prompts,
         "resources": Client.list_resources, "templates": Client.list_resource_templates}
CHANGES = {"tools": ["tools"], "prompts": ["prompts"], "resources": ["resources", "templates"]}
TROUBLE = (RpcError, HttpError, Malformed, TimeoutError)    # after which an upstream is still there


def note(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"gateway: {line}\n")
    sys.stderr.flush()


def said(problem: BaseException) -> str:
    """Return the first line of what an exception says."""
    return (str(problem) or type(problem).__name__).partition("\n")[0]


# ---- names and URIs

def escaped(name: str) -> str:
    """Write a name in the characters that all hosts accept: what is odd becomes _x2f_, as does an
    underscore that would look like the beginning of such an escape. So it can be undone."""
    return re.sub(r"[^A-Za-z0-9_.-]|_(?=x[0-9a-f]+(?:_|[^A-Za-z0-9_.-]))",
                  lambda found: f"_x{ord(found[0]):x}_", name)


def shortened(name: str, limit: int) -> str:
    """Cut a name, and end it with a digest of the whole."""
    return name[:limit - 9] + "_" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]


def prefix_of(server: str) -> str:
    """Return what a server's names begin with: it has no "__" and no "_" at its end, so that the
    first "__" of a name ends it, and no two servers' names can be alike."""
    prefix = re.sub(r"[^A-Za-z0-9.-]+", lambda found: "_" if found[0] == "_" else "-",
                    server).strip("_-") or "server"
    return prefix if len(prefix) <= MAX_NAME // 2 else shortened(prefix, MAX_NAME // 2)


def scheme_of(server: str) -> str:
    """Return what a server's URIs begin with: part of a scheme, where case does not matter."""
    scheme = prefix_of(server).lower().replace("_", "-")
    return scheme if scheme[0].isalpha() else "s" + scheme


def without_mirrors(schema: Any) -> Any:
    """Return an input schema without x-mcp-header: that is between us and the upstream."""
    if isinstance(schema, list):
        return [without_mirrors(part) for part in schema]
    return schema if not isinstance(schema, dict) else {
        key: without_mirrors(part) for key, part in schema.items()
        if key != "x-mcp-header" or isinstance(part, dict)}     # a property may be called that


# ---- upstream servers

class Connection(Client):
    """A client that tells its upstream at once what a callback would tell it later."""

    def __init__(self, upstream: Upstream) -> None:
        options, self.upstream = upstream.options, upstream
        self.problem: BaseException | None = None       # why it is lost
        super().__init__(
            HttpTransport(options["url"], headers=options.get("headers")) if "url" in options else
            StdioTransport(options["command"], env=options.get("env"), cwd=options.get("cwd"),
                           stderr=lambda line: note(f"{upstream.name}: {line}")),
            revision=options.get("revision", ""), timeout=LIST_SECONDS,
            elicit=upstream.elicit, visit=upstream.elicit,
            sample=lambda params, tags: upstream.ask("sampling/createMessage", params, tags),
            roots=lambda params, tags: upstream.ask("roots/list", params, tags)["roots"],
            info={"name": "gateway", "version": "1.0"},
            declare={"sampling": {"tools": {}, "context": {}}})

    def receive(self, message: Any, request: Request | None = None) -> None:
        """Take what came. A log message is of the call on whose stream it comes, or of the only
        one under way. It is passed on here, in one order with the result, not by on_log."""
        if isinstance(message, dict) and message.get("method") == "notifications/message":
            calls = [request.tag] if request is not None else list(self.upstream.relays)
            if len(calls) == 1 and isinstance(calls[0], Relay):
                calls[0].tell("log", message.get("params"))
        super().receive(message, request)

    def lost(self, problem: BaseException) -> None:
        """Let no more calls begin, for one would start the server again; fail those that wait."""
        self.problem = problem
        if self.upstream.client is self:
            self.upstream.client = None
        super().lost(problem)
        self.upstream.todo.put(("look", None))


class Upstream:
    """A server behind us: one connection, which all clients share, and what it offers."""

    def __init__(self, gateway: Gateway, name: str, options: Message) -> None:
        self.gateway = gateway
        self.name = name
        self.options = options
        self.prefix, self.scheme = prefix_of(name), scheme_of(name)
        self.client: Connection | None = None           # while it is up
        self.why = "it is being started"                # ... and if it is not
        self.tried = threading.Event()                  # it is up, or it was found to be down
        self.lists: dict[str, dict[str, Message]] = {kind: {} for kind in LISTS}    # by our names
        self.names: dict[str, dict[str, str]] = {kind: {} for kind in LISTS}    # ours: theirs
        self.listed = dict.fromkeys(CHANGES, 0.0)       # when, last
        self.watched: dict[str, None] = {}              # URIs, as they are there
        self.relays: dict[Relay, None] = {}             # the calls under way
        self.subscription: Subscription | None = None
        self.todo: SimpleQueue[Any] = SimpleQueue()     # for the keeper: what, and an Event to set
        self.keeper = threading.Thread(target=self._keep, name="keep-" + name, daemon=True)

    # ---- the keeper's

    def _keep(self) -> None:
        pause, closed = FIRST_PAUSE, self.gateway.closed
        while not closed.is_set():
            began, client = time.monotonic(), Connection(self)
            try:
                self._come(client)
                while not closed.is_set():
                    self._look_after(client)
            except Exception as problem:    # noqa: BLE001  whatever a foreign server can cause
                self.why = said(problem)
                if not closed.is_set():
                    note(f"{self.name} is down: {self.why}")
            self._go(client)
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else pause
            closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _come(self, client: Connection) -> None:
        client.open()
        client.problem = None               # a server may die of the first question, and be lost
        if not client.modern and "logging" in client.capabilities:
            client.set_level("debug")       # of this, each client of ours gets what it asked for
        self._listen(client)                # first: so no change is missed
        for change in CHANGES:
            self._list(client, change)
        self.client = client
        self.tried.set()
        note(f"{self.name} is up: " + ", ".join(
            f"{len(found)} {kind}" for kind, found in self.lists.items()))
        self.gateway.announce(self, *self._present())

    def _look_after(self, client: Connection) -> None:
        """Do one thing that there is to do; raise what says that the server is gone."""
        try:
            what, done = self.todo.get(timeout=CHECK_SECONDS)
        except Empty:
            what, done = "look", None
        if client.problem is not None or not client.transport.is_up():
            raise client.problem or Disconnected("the connection is lost")
        if what == "listen":
            self._listen(client)
        elif what in CHANGES:
            if self._list(client, what):
                self.gateway.announce(self, what)
        elif "url" in self.options:         # where only asking tells
            try:
                client.ping()
            except RpcError:
                pass                        # an answer like any other
        if done is not None:
            done.set()
        self.gateway.sweep()

    def _go(self, client: Connection) -> None:
        had, self.client, self.subscription = self._present(), None, None
        self.lists = {kind: {} for kind in LISTS}       # the names stay: whose they are is known
        self.tried.set()
        client.close()
        self.gateway.announce(self, *had)

    def _present(self) -> list[str]:
        return [change for change, kinds in CHANGES.items() if any(map(self.lists.get, kinds))]

    def _list(self, client: Connection, change: str) -> bool:
        """List again what may have changed; tell whether it has."""
        before, self.listed[change] = self.lists, time.monotonic()
        for kind in CHANGES[change]:
            try:
                self._take(kind, LISTS[kind](client))
            except TROUBLE as problem:
                note(f"{self.name}: no {kind}: {said(problem)}")
        return before != self.lists

    def _take(self, kind: str, found: list[Message]) -> None:
        """Give things our names. Two that are alike when cut short differ in their digests."""
        listed: dict[str, Message] = {}
        names: dict[str, str] = {}
        member = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
        for item in found:
            name = self.prefix + "__" + escaped(item["name"])
            if len(name) > MAX_NAME or names.get(name, item["name"]) != item["name"]:
                name = shortened(name, MAX_NAME)
            ours = {**item, "name": name}
            if member != "name":            # there the name is but a label
                ours["name"] = f"{self.prefix}__{item['name']}"
                ours[member] = self.uri(item[member])
            if kind == "tools":
                ours["inputSchema"] = without_mirrors(item.get("inputSchema"))
            names.setdefault(ours[member], item[member])
            listed.setdefault(ours[member], ours)
        self.lists, self.names = {**self.lists, kind: listed}, {**self.names, kind: names}

    def _listen(self, client: Connection) -> None:
        """Have changes announced: of lists, and of the URIs that somebody watches."""
        old, new = self.subscription, None
        while new is None:
            try:
                new = client.listen([*CHANGES, *self.watched], self._hear)
            except TROUBLE as problem:
                note(f"{self.name} announces no changes of {list(self.watched)[-1:] or 'lists'}: "
                     + said(problem))
                if not self.watched:
                    break
                self.watched.popitem()      # it may be to blame
        self.subscription = new
        if old is not None:
            old.close()

    def _hear(self, change: str) -> None:
        if change in CHANGES:
            self.todo.put((change, None))
        else:
            self.gateway.announce(self, change)

    # ---- anybody's

    def uri(self, theirs: str) -> str:
        """Return our URI, or template, for one of theirs."""
        return f"{self.scheme}+{theirs}"

    def have(self, what: str) -> None:
        """Have the keeper do something, and wait for it, but not for long."""
        done = threading.Event()
        self.todo.put((what, done))
        done.wait(2)

    def be_fresh(self, change: str) -> None:
        """Wait until we know what it offers: when we start, and if it announces no changes."""
        self.tried.wait(max(0.0, self.gateway.began + PATIENCE - time.monotonic()))
        announced = self.subscription is not None and change in self.subscription.granted
        if self.client is not None and not announced \
                and time.monotonic() - self.listed[change] > FRESH_SECONDS:
            self.have(change)

    def watch(self, uri: str) -> None:
        """Have a URI of theirs watched, for good."""
        if uri not in self.watched and len(self.watched) < MAX_WATCHED:
            self.watched[uri] = None
            if self.client is not None:
                self.have("listen")

    def down(self) -> RpcError:
        """Return the error for what only a server that is down could do."""
        return RpcError(INTERNAL, f"The server {self.name} is down: {self.why}",
                        {"server": self.name})

    def request(self, method: str, params: Message, **options: Any) -> Message:
        """Send a request; whatever goes wrong becomes an RpcError that names the server."""
        client, told = self.client, {"server": self.name}   # type: Any, Message
        if client is None:
            raise self.down()
        try:
            result: Message = client.request(method, params, timeout=CALL_SECONDS, **options)
            return result
        except RpcError as error:
            told["originalError"] = error.to_json()
            if error.code in (LACKS, VISIT) and isinstance(error.data, dict):
                told = {**error.data, **told}   # of these, data is part of the protocol
            raise RpcError(error.code, str(error), told) from None
        except Exception as problem:        # whatever else
            if isinstance(problem, (OSError, HttpError)):
                self.todo.put(("look", None))       # is it still there?
            raise RpcError(INTERNAL, f"The server {self.name} failed: {said(problem)}",
                           told) from problem

    # ---- its questions: on threads of its connection, or on that of the call

    def elicit(self, params: Message, tags: list[Any]) -> Any:
        """Have a form filled, or a page visited."""
        if "url" in params:                 # modern servers give none, some old clients need one
            params = {"elicitationId": secrets.token_urlsafe(16), **params}
        answer = self.ask("elicitation/create", params, tags)
        return answer.get("content") or {} if answer["action"] == "accept" else answer["action"]

    def ask(self, method: str, params: Message, tags: list[Any]) -> Message:
        """Ask the client whose call it is for. If that cannot be known, ask nobody."""
        calls = [tag for tag in tags if isinstance(tag, Relay)]
        if not calls or any(call.owner != calls[0].owner for call in calls):
            note(f"{self.name}: {method} is refused: it may be for {len(calls)} calls")
            raise RpcError(INTERNAL, "It cannot be told which client this question is for")
        return calls[-1].ask({"method": method, **({"params": params} if params else {})})


# ---- calls

class Question(NamedTuple):
    """What an upstream asks, on its way to a client."""
    key: str            # a modern client brings it back with the answer: nobody can guess it
    body: Message
    answer: Any         # a queue: the answer, or an RpcError


class Relay:
    """One call to an upstream. A modern client that is asked something sends its request again, so
    a call can outlive the request that began it: serve() takes up one request after the other."""

    def __init__(self, upstream: Upstream, ctx: Context, params: Message) -> None:
        self.upstream = upstream
        self.owner = ctx.principal or ctx.peer      # whom we ask; over HTTP, a session or request
        self.bound_to = binding(ctx)
        self.parked = 0.0                           # when
        self.over = threading.Event()
        self._inbox: SimpleQueue[Any] = SimpleQueue()       # (what, value) for serve()
        self._question: Question | None = None              # that the client thinks about
        self._unanswered: list[Question] = []
        self._request: Request | None = None
        self._cancelled = False
        listens = {"on_progress": lambda *progress: self.tell("progress", progress)}
        threading.Thread(target=self._run, name="relay", daemon=True, args=(
            ctx.method, params, listens if "progressToken" in ctx.meta else {})).start()

    def _run(self, method: str, params: Message, options: Message) -> None:
        self.upstream.relays[self] = None
        outcome: Any
        try:
            outcome = self.upstream.request(method, params, tag=self, started=self._started,
                                            **options)
        except Exception as problem:        # noqa: BLE001  raised again by serve()
            outcome = problem
        self.upstream.relays.pop(self, None)
        self.over.set()
        self._fail_questions()
        self._inbox.put(("outcome", outcome))

    def _started(self, request: Request) -> None:
        self._request = request
        if self._cancelled:
            request.cancel()

    def _fail_questions(self) -> None:
        for question in list(self._unanswered):
            question.answer.put(RpcError(INTERNAL, "The call is over"))

    def cancel(self) -> None:
        """Give up: the upstream is told, and whoever waits is woken."""
        self._cancelled = True
        self._fail_questions()
        if self._request is not None:
            self._request.cancel()

    def tell(self, what: str, value: Any) -> None:
        """Have the client told something; by any thread, which never has to wait for the client."""
        if self._inbox.qsize() < MAX_UNTOLD:
            self._inbox.put((what, value))

    def ask(self, body: Message) -> Message:
        """Ask the client, and wait for the answer; RpcError if there is none."""
        question = Question(secrets.token_urlsafe(16), body, SimpleQueue())
        self._unanswered.append(question)
        self._inbox.put(("question", question))
        if self._cancelled or self.over.is_set():   # perhaps too late to be woken
            self._fail_questions()
        answer: Any = question.answer.get()
        self._unanswered.remove(question)
        if isinstance(answer, RpcError):
            raise answer
        found: Message = answer
        return found

    def serve(self, ctx: Context) -> Message:
        """Return the outcome; tell and ask the client what comes before. On a handler's thread."""
        ctx.on_cancel(self.cancel)
        while True:
            what, value = ("question", self._question) if self._question is not None else \
                self._inbox.get()           # type: str, Any
            if what == "question":
                self._question = value
                value.answer.put(self._answer(ctx, value))
                self._question = None
            elif what == "progress":
                ctx.progress(*value)
            elif what == "outcome" and isinstance(value, dict):
                return value
            elif what == "outcome":
                raise value
            elif isinstance(value, dict) and value.get("level") in LOG_LEVELS:
                ctx.log(value["level"], value.get("data"), value.get("logger"))

    def _answer(self, ctx: Context, question: Question) -> Any:
        """Return the client's answer, or an RpcError.

        Here a modern request ends: ask() unwinds it, and the client gets the question as a result.
        Its next request has the answer, under the key that finds this call again; it comes by here,
        and then ask() returns.
        """
        if ctx.rules.modern:
            self.upstream.gateway.park(self, question.key)
        try:
            answer: Any = ctx.ask({question.key: question.body})[question.key]
        except ClientLacks as lack:
            declined = question.body["method"] == "elicitation/create"
            answer = {"action": "decline"} if declined else lack
        except AskError as problem:
            answer = RpcError(INTERNAL, str(problem)) if problem.error is None else RpcError(
                problem.error["code"], str(problem.error.get("message")), problem.error.get("data"))
        self.upstream.gateway.parked.pop(question.key, None)
        return answer


def binding(ctx: Context) -> Any:
    """Return what a request with answers has in common with the one that they were asked for."""
    return [ctx.principal, ctx.method, bare(ctx.params)]


def bare(params: Message) -> Message:
    """Return the params of a request without what its retry has more or otherwise."""
    return {name: value for name, value in params.items() if name not in RETRY}


# ---- what a client sees

class Profile:
    """A server made of upstreams, and of those of their tools that match a pattern."""

    def __init__(self, gateway: Gateway, name: str, members: dict[str, list[str]]) -> None:
        self.gateway = gateway
        self.members = [(gateway.upstreams[one], patterns) for one, patterns in members.items()]
        self.server = Server("gateway-" + name)
        self.server.on_watch = self._watch
        self._serve_list("tools/list", "tools", "tools")
        self._serve_list("prompts/list", "prompts", "prompts")
        self._serve_list("resources/list", "resources", "resources")
        self._serve_list("resources/templates/list", "templates", "resourceTemplates")
        self._serve_call("tools/call", "tools")
        self._serve_call("prompts/get", "prompts")
        self._serve_call("resources/read", "resources")
        self.server.method("completion/complete")(self._complete)

    def _serve_list(self, method: str, kind: str, member: str) -> None:
        """Serve a list, from memory, in the order of the file, on one page."""
        @self.server.method(method)
        def listed(params: Message, ctx: Context) -> Message:
            if params.get("cursor") is not None:
                raise RpcError(INVALID, "Invalid params: there is no page but the first")
            found = []
            for upstream, patterns in self.members:
                upstream.be_fresh(method.partition("/")[0])
                names = upstream.names[kind]
                found += [self._fitted(ctx, kind, item)
                          for name, item in upstream.lists[kind].items()
                          if kind != "tools" or matches(names[name], patterns)]
            return {member: found}

    def _fitted(self, ctx: Context, kind: str, item: Message) -> Message:
        schema = item.get("outputSchema")
        if isinstance(schema, dict) and schema.get("type", "object") != "object" \
                and "any structured content" not in ctx.rules.features:
            item = {key: value for key, value in item.items() if key != "outputSchema"}
        return ctx.rules.fit(kind[:-1], item)

    def _find(self, kind: str, name: str) -> tuple[Upstream, str]:
        """Return whose tool, prompt or resource this is, and what it is called there."""
        by_uri = kind == "resources"
        start, _, rest = name.partition("+" if by_uri else "__")
        for upstream, patterns in self.members:
            if by_uri and rest and upstream.scheme == start.lower():    # listed or not
                return upstream, rest
            if not by_uri and upstream.prefix == start:
                upstream.be_fresh(kind)
                theirs = upstream.names[kind].get(name)
                if theirs is None and upstream.client is None:
                    raise upstream.down()
                if theirs is not None and (kind != "tools" or matches(theirs, patterns)):
                    return upstream, theirs
        if by_uri:
            raise NotFound(name)
        raise RpcError(INVALID, f"Unknown {kind[:-1]}: {name[:200]}")

    def _serve_call(self, method: str, kind: str) -> None:
        """Serve what names one thing: make a call, or go on with the one that answers are for."""
        @self.server.method(method)
        def called(params: Message, ctx: Context) -> Message:
            member = METHODS[method].mirrored           # "name" or "uri"
            upstream, theirs = self._find(kind, params[member])
            answers = params.get("inputResponses") if ctx.rules.modern else None
            relay = self.gateway.unpark(answers, ctx) if answers else Relay(upstream, ctx, {
                **bare(params), member: theirs, "_meta": self._meta(ctx, upstream)})
            try:
                return self._outgoing(ctx, upstream, relay.serve(ctx))
            except RpcError as error:
                if error.code == NOT_FOUND and NOT_FOUND not in ctx.rules.errors:
                    raise RpcError(INVALID, str(error), error.data) from None
                raise

    def _meta(self, ctx: Context, upstream: Upstream) -> Message:
        """Return the _meta of a call: what the client said, and for modern upstreams what it is."""
        meta = {key: value for key, value in ctx.meta.items()
                if key != "progressToken" and not key.startswith(RESERVED)}
        if upstream.client is not None and upstream.client.modern:
            meta[META_CAPABILITIES] = ctx.client_capabilities
            level = ctx.meta.get(RESERVED + "logLevel") if ctx.rules.modern else "debug"
            meta.update({RESERVED + "logLevel": level} if level else {})
        return meta

    def _complete(self, params: Message, ctx: Context) -> Message:
        ref = params["ref"]
        kind, member = ("prompts", "name") if ref.get("type") == "ref/prompt" else (
            "resources", "uri")
        upstream, theirs = self._find(kind, str(ref.get(member)))
        client = upstream.client
        features = rules(client.version).features if client is not None else frozenset()
        if client is not None and "completions capability" in features \
                and "completions" not in client.capabilities:
            return {"completion": {"values": []}}
        known = {"context": params["context"]} \
            if "context" in params and "completion context" in features else {}
        return self._outgoing(ctx, upstream, upstream.request("completion/complete", {
            "ref": {**ref, member: theirs}, "argument": params["argument"], **known}))

    def _watch(self, uri: str) -> None:
        try:
            upstream, theirs = self._find("resources", uri)
            upstream.watch(theirs)
        except NotFound:
            pass                            # it will never change

    def _outgoing(self, ctx: Context, upstream: Upstream, result: Message) -> Message:
        """Return a result as this client has to see it: our URIs, nothing its revision lacks."""
        ours = {key: value for key, value in result.items() if key != "resultType"}
        meta = {key: value for key, value in (ours.pop("_meta", None) or {}).items()
                if key != RESERVED + "serverInfo"}
        ours.update({"_meta": meta} if meta else {})
        if not ctx.rules.modern:
            ours = {key: ours[key] for key in ours if key not in ("ttlMs", "cacheScope")}
        if not isinstance(ours.get("structuredContent", {}), dict) \
                and "any structured content" not in ctx.rules.features:
            del ours["structuredContent"]
        for member, inside in ("content", None), ("messages", "content"), ("contents", None):
            if member in ours:
                ours[member] = [
                    {**part, inside: self._content(ctx, upstream, part.get(inside))} if inside
                    else self._content(ctx, upstream, part) for part in ours[member]]
        return ctx.rules.fit("result", ours)

    def _content(self, ctx: Context, upstream: Upstream, part: Any) -> Any:
        """Return a block of content, or the contents of a resource, likewise."""
        if not isinstance(part, dict):
            return part
        if isinstance(part.get("uri"), str):
            part = {**part, "uri": upstream.uri(part["uri"])}
        if part.get("type") == "resource_link" and "resource links" not in ctx.rules.features:
            return text("{}: {}".format(part.get("name"), part.get("uri")))
        if part.get("type") == "audio" and "audio" not in ctx.rules.features:
            contents = {"mimeType": part.get("mimeType"), "blob": part.get("data")}
            return {"type": "resource", "resource": {"uri": "data:audio", **contents}}
        if part.get("type") == "resource":
            part = {**part, "resource": self._content(ctx, upstream, part.get("resource"))}
        return ctx.rules.fit("content" if "type" in part else "contents", part)


def matches(name: str, patterns: list[str]) -> bool:
    """Tell whether a tool's own name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Gateway:
    """All upstreams, all profiles, and the calls that wait for a modern client to come back."""

    def __init__(self, servers: dict[str, Message],
                 profiles: dict[str, dict[str, list[str]]]) -> None:
        self.closed = threading.Event()
        self.began = time.monotonic()
        self.parked: dict[str, Relay] = {}      # by the key of the question, oldest first
        self.upstreams = {name: Upstream(self, name, options) for name, options in servers.items()}
        self.profiles = {name: Profile(self, name, members) for name, members in profiles.items()}
        for upstream in self.upstreams.values():
            upstream.keeper.start()

    def announce(self, upstream: Upstream, *changes: str) -> None:
        """Tell the clients of an upstream what changed: lists, or a URI."""
        for profile in self.profiles.values():
            if not self.closed.is_set() and any(one is upstream for one, _ in profile.members):
                for change in changes:
                    profile.server.changed(change if change in CHANGES else upstream.uri(change))

    def park(self, relay: Relay, key: str) -> None:
        """Keep a call until its client comes back."""
        relay.parked = time.monotonic()
        self.parked[key] = relay
        self.sweep()

    def unpark(self, answers: Message, ctx: Context) -> Relay:
        """Return the call that answers are for. Whoever is first gets it, and nobody else."""
        for key in answers:
            relay = self.parked.get(key)
            if relay is not None and relay.bound_to == binding(ctx) \
                    and self.parked.pop(key, None) is not None:
                return relay
        raise RpcError(INVALID, "Invalid params: the inputResponses answer nothing that is still "
                                "asked; send the request again without them")

    def sweep(self) -> None:
        """Cancel calls whose clients did not come back, and the oldest if there are too many."""
        parked, late = list(self.parked.items()), time.monotonic() - PARKED_SECONDS
        for left, (key, relay) in zip(range(len(parked), 0, -1), parked):
            if relay.parked < late or left > MAX_PARKED:
                self.parked.pop(key, None)
                relay.cancel()

    def close(self) -> None:
        """End all upstreams."""
        self.closed.set()
        for upstream in self.upstreams.values():
            upstream.todo.put(("look", None))
        for upstream in self.upstreams.values():
            upstream.keeper.join(5)


class Router:
    """Stands where http_server() wants an Endpoint, and passes on to those of the profiles."""

    def __init__(self, gateway: Gateway) -> None:
        self.endpoints = {name: Endpoint(profile.server, "/mcp/" + name, sse_on_get=True)
                          for name, profile in gateway.profiles.items()}
        self.closed = threading.Event()

    @property
    def hosts(self) -> set[str] | None:
        """The names that the Host header may have, as in Endpoint."""
        return next(iter(self.endpoints.values())).hosts

    @hosts.setter
    def hosts(self, names: set[str] | None) -> None:
        for endpoint in self.endpoints.values():
            endpoint.hosts = names

    def serve(self, exchange: Exchange) -> None:
        """Answer one request."""
        _, root, name, *_ = [*exchange.path.split("/"), "", ""]
        if root == "mcp" and name in self.endpoints:
            self.endpoints[name].serve(exchange)
            return
        places = ", ".join(endpoint.path for endpoint in self.endpoints.values())
        error = {"code": -32600, "message": f"Not found; there is {places}"}
        try:
            exchange.start(404, {"Content-Type": "application/json"},
                           encode({"jsonrpc": "2.0", "error": error}))
        except OSError:
            pass                            # the client is gone

    def close(self) -> None:
        """End them all."""
        for endpoint in self.endpoints.values():
            endpoint.close()
        self.closed.set()


# ---- the configuration

def check(condition: Any, problem: str) -> None:
    """Refuse a configuration."""
    if not condition:
        raise ValueError(problem)


def texts(where: str, members: Message, name: str, kind: Any) -> Any:
    """Return a member that is a list or an object of strings, empty if it is not there."""
    value: Any = members.get(name, kind())
    check(isinstance(value, kind) and all(isinstance(one, str) for one in (
        value.values() if isinstance(value, dict) else value)),
        f"{where}: {name} is {'an object' if kind is dict else 'a list'} of strings")
    return value


def server_of(name: str, options: Any) -> Message:
    """Check an entry of "servers"."""
    where = f'server "{name}"'
    check(isinstance(options, dict), f"{where} is no object")
    check(options.get("revision", "") in ("", *versions()),
          f"{where}: revision is one of " + ", ".join(versions()))
    check(("command" in options) != ("url" in options), f"{where} has either a command or a url")
    if "url" in options:
        check(isinstance(options["url"], str), f"{where}: url is a string")
        HttpTransport(options["url"])       # ValueError if it is no URL of http
        return {**options, "headers": texts(where, options, "headers", dict)}
    if isinstance(options["command"], str):
        options = {**options, "command": [options["command"]]}
    command = texts(where, options, "command", list) + texts(where, options, "args", list)
    check(command and command[0], f"{where}: command is empty")
    check(isinstance(options.get("cwd", ""), str), f"{where}: cwd is a string")
    return {**options, "command": command, "env": texts(where, options, "env", dict)}


def members_of(name: str, profile: Any, servers: Message) -> dict[str, list[str]]:
    """Check an entry of "profiles"; return the patterns by server."""
    where = f'profile "{name}"'
    check(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name),
          f"{where}: its name is part of a URL: letters, digits, _, - and .")
    check(isinstance(profile, dict) and isinstance(profile.get("servers"), (list, dict)),
          f'{where} has "servers", a list or an object')
    members = profile["servers"] if isinstance(profile["servers"], dict) else {
        member: ["*"] for member in texts(where, profile, "servers", list)}
    for member in members:
        check(member in servers, f'{where}: there is no server "{member}"')
        texts(where, members, member, list)
    return dict(members)


def read_config(path: str) -> tuple[dict[str, Message], dict[str, dict[str, list[str]]]]:
    """Return servers and profiles; ValueError or OSError for what is wrong."""
    with open(path, encoding="utf-8-sig") as file:
        config = json.load(file)
    check(isinstance(config, dict), "it is no object")
    given = config.get("servers", config.get("mcpServers"))
    check(isinstance(given, dict) and given, 'it has "servers" (or "mcpServers"), an object')
    servers, schemes = {}, {}   # type: dict[str, Message], dict[str, str]
    for name, options in given.items():
        servers[name] = server_of(name, options)
        other = schemes.setdefault(scheme_of(name), name)
        check(other == name, f'servers "{other}" and "{name}" would share a prefix: rename one')
    profiles = config.get("profiles", {"all": {"servers": list(servers)}})
    check(isinstance(profiles, dict) and profiles, '"profiles" is an object, and not empty')
    return servers, {name: members_of(name, profile, servers)
                     for name, profile in profiles.items()}


def serve_http(gateway: Gateway, host: str, port: int) -> None:
    """Serve all profiles, until interrupted."""
    router: Any = Router(gateway)
    httpd = http_server(router, host, port)
    for endpoint in router.endpoints.values():
        note("listens on http://{}:{}{}".format(f"[{host}]" if ":" in host else host,
                                                httpd.server_port, endpoint.path))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        httpd.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        httpd.close()


def main() -> None:
    """Serve what the command line says."""
    parser = argparse.ArgumentParser(description="Many MCP servers behind one.")
    parser.add_argument("config", metavar="CONFIG.json", help="names servers and profiles")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--http", metavar="[HOST:]PORT", help="serve each profile at /mcp/PROFILE")
    way.add_argument("--profile", metavar="NAME", help="serve it on stdio (default: the first)")
    options = parser.parse_args()
    host, _, port = (options.http or "0").rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        parser.error("--http takes [HOST:]PORT")
    try:
        servers, profiles = read_config(options.config)
        chosen = options.profile or next(iter(profiles))
        check(chosen in profiles, f'there is no profile "{chosen}", but ' + ", ".join(profiles))
    except (OSError, ValueError) as problem:
        parser.exit(2, f"gateway: {options.config}: {problem}\n")
    gateway = Gateway(servers, profiles)
    try:
        if options.http is None:
            gateway.profiles[chosen].server.run([])
        else:
            serve_http(gateway, host.strip("[]") or "127.0.0.1", int(port))
    except OSError as problem:
        parser.exit(2, f"gateway: {options.http}: {problem}\n")
    finally:
        gateway.close()


if __name__ == "__main__":
    main()
