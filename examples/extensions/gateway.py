#!/usr/bin/env python3
"""A gateway: many MCP servers behind one address, for clients of every revision.

A file lists the *upstream* servers, by command or by URL. It may be the file of a host:
`disabled`, `includeTools`, `cwd`, `timeout`, `${VAR}` and so on mean what they mean
there (see host_files.py). *Profiles* say which servers a client sees and, by patterns,
which of their tools. The default is one profile, "all".

    {"servers": {
        "demo": {"command": ["python3", "mcp_ref.py"], "env": {"A": "b"}, "cwd": "."},
        "web": {"url": "http://127.0.0.1:8001/mcp", "headers": {"X-Api-Key": "${KEY}"},
                "session": "client", "forward": ["X-Tenant"]}},
     "profiles": {
        "all": {"servers": ["demo", "web"]},
        "two": {"servers": ["demo", "web"], "search": true},
        "few": {"servers": {"demo": ["a*"]}, "rename": {"demo": {"add": "plus"}}}},
     "clients": {"header": "X-Gateway-Key", "keys": {"${ANNS_KEY}": "ann"}}}

    python3 examples/extensions/gateway.py gateway.json --http 8000  # /mcp/all ...
    python3 examples/extensions/gateway.py gateway.json --profile few     # on stdio
    python3 examples/extensions/gateway.py http://127.0.0.1:8000/mcp  # without a file

The last form is a bridge, for a host that speaks only stdio. It starts without its
server, tells the host that the tools have changed when the server comes and goes, and a
call meanwhile fails at once. An upstream that wants a login is logged in to with
oauth.py, if that is there: with the tokens that `mcp_cli.py login URL` keeps, at the
terminal, or through the client whose call needs it; there is a tool `NAME__login`, too.
A login is for all clients: where `clients` tells them apart, only the first two.

Further members of a server: `revision` (speak this one), `session` ("shared": one
connection for all clients, the default; "client": one for each), `forward` (headers of
the client's requests that are passed on), `maxBytes` (of one message), `users`.
`clients` are the keys that clients must send, each with the name of its user, the
*principal*.

`users` has credentials for each principal, {"ann": {"headers": {"Authorization":
"Bearer ${ANNS_TOKEN}"}}}, or "env" for a command; others are refused. They are all that
ann's calls have: the entry's own `headers` and `env`, and logins, are for the lists. A
credential that a client sends is never passed on: it was issued for the gateway, and
the server that got it could use it here (basic/authorization/security-considerations
§Access Token Privilege Restriction).

A profile with `search` shows two tools in place of all, find_tools and call_tool, so
that a model reads only the definitions that it needs.

A client sees one server: `add` becomes `demo__add`, `memo://today` becomes
`demo+memo://today`, and `ui://page` becomes `ui://demo+page`; with a URL instead of a
file, names stay as they are. Calls, completions, progress, log messages, cancellation
and questions pass through, even between different revisions. A question says which
server asks.

A call runs on its handler's thread; one of a modern client to a legacy upstream, which
may ask, on its own. The thread also writes progress and log messages to the client: one
that reads slowly delays only its own calls, and log messages that are too many for it
are left out. Each upstream has more threads: `keep-NAME` connects, fetches the lists,
and reconnects when the upstream fails; meanwhile, only its tools are missing.
`hear-NAME` waits for the changes that it announces. `watch-NAME` subscribes to URIs
again, which may take long. Threads share dicts, each of which is changed or replaced in
a single operation.

Clients are kept apart: a question or a log message reaches the client whose call it
belongs to, or is refused. On stdio, nothing says to which call it belongs, so it is
refused while calls of several clients run; but a job that goes on after its call was
answered is taken for the call that runs then. A call that was cancelled, took too long
or failed on the way counts until the server has answered it; further calls of other
principals get a new connection, and those of its own one that is theirs alone. Request
state is signed for its principal, server and request. Without `clients`, there is one
principal: anyone who reaches the gateway may use it, and modern clients over HTTP
(without sessions) share one connection, even with "session": "client".

Known limits: lists are fetched without forwarded headers, and are the same for all
clients; that a server on another machine has gone is noticed after CHECK_SECONDS,
unless it announces changes; of one upstream, a principal can subscribe to MAX_WATCHED
URIs, which are never forgotten; a host that never asks for its tools again must be
started after the application.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]
import mcp_client
from mcp_client import (
    Client,
    Disconnected,
    HttpTransport,
    Malformed,
    RequestCancelled,
    ServerLacks,
    StdioTransport,
    Subscription,
    Transport,
    merge_headers,
)

from mcp_ref import (
    ASK_SECONDS,
    LOG_LEVELS,
    META_CAPABILITIES,
    METHODS,
    AskError,
    Context,
    Endpoint,
    Exchange,
    HttpError,
    NotFound,
    PostPeer,
    RpcError,
    Schema,
    Server,
    bearer,
    decode,
    elicitation,
    log,
    mirrored_arguments,
    rules,
    printable,
    serve_http,
    versions,
)

if TYPE_CHECKING:
    import host_files
try:
    import oauth
except ImportError:  # not copied: upstreams are not logged in to
    oauth = None  # type: ignore[assignment]

Message = dict[str, Any]
# What ends us; Windows has no SIGHUP.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

# ---- time, in seconds
START_SECONDS = 300.0  # for an upstream to start: npx and uvx install it first
WAIT_SECONDS = 10.0  # how long clients' lists wait for upstreams that start
INTRODUCE_SECONDS = 2.0  # ... and their first message, for the instructions
RETRY_SECONDS = 1.0  # pause before an upstream is tried again; it doubles each time
LONGEST_SECONDS = 60.0  # the longest such pause
STABLE_SECONDS = 10.0  # after one that was up for so long, the pause is short again
NEAR_SECONDS = 0.4  # between looks whether a program on this machine has come or gone
LIST_SECONDS = 20.0  # for one list of an upstream, all pages together
CALL_SECONDS = 3600.0  # for a call, unless the file says; clients cancel sooner
CHECK_SECONDS = 30.0  # until an upstream's lists are fetched again in any case
CHANGE_SECONDS = 0.1  # wait for further changes before acting on one
BUSY_SECONDS = 10.0  # the same for an upstream that never rests
CLOSE_SECONDS = 5.0  # how long the end waits for all upstreams
STEP_SECONDS = 0.5  # for an upstream, to end by itself; hosts end us after about 2 s
# ---- size, of what one upstream sends
MAX_BYTES = 2**22  # of a message; "maxBytes" in the file
MAX_PAGES = 1000  # of one list
MAX_LIST_BYTES = 2**20  # of one list; the entries after that are left out
MAX_DEPTH = 48  # of an entry; .NET reads 64 levels, Rust 128, and the list adds some
MAX_LINES = 20  # lines in the log per second, and log messages of a call
MAX_LISTINGS = 20  # of its lists, one after the other, until it counts as busy
MAX_INSTRUCTIONS = 2000  # characters
MAX_PROGRESS = 1000  # characters of a progress message, and of an elicitationId
MAX_FOUND = 10  # tools in the answer of find_tools
MAX_FOUND_BYTES = 2**16  # of that answer, unless one tool has more
MAX_WORDS = 20  # words of a search
MAX_TOKENS = 10  # of logins, the last ones, that are not shown
# ---- of each principal, and of all clients together that have none
MAX_OWN = 32  # connections for single clients
OWN_SECONDS = 3600.0  # how long one is kept that nobody uses
MAX_WATCHED = 200  # URIs that are subscribed to, and never forgotten
MAX_CHANGED = 200  # URIs that have changed, until clients are told
MAX_VISITS = 100  # pages that users were sent to, of one connection
MAX_TALKS = 100  # calls that wait for modern clients to answer
MAX_TALK_BYTES = 2**22  # of their params and questions
MAX_TOLD_BYTES = 2**20  # of log messages that wait for one client, unless one has more
MAX_ASKED = 16  # open questions of a legacy upstream, on one connection
MAX_GIVEN_UP = 1000  # calls that an upstream has not answered; then it starts anew
# Hosts put their own prefix before a name, and accept 64 characters.
MAX_NAME = 56
INVALID, INTERNAL, LEGACY_NOT_FOUND = -32602, -32603, -32002
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# the server is still up
TROUBLE = (RpcError, HttpError, Malformed, ServerLacks, TimeoutError)
# What no client's header may be used for: its credentials are for the gateway
# (basic/authorization/security-considerations §Access Token Privilege Restriction),
# and the rest belongs to the connection.
OURS = re.compile(
    "authorization|proxy-.*|cookie|host|connection|keep-alive|te|trailer|upgrade|"
    "transfer-encoding|expect|content-.*|accept.*|origin|mcp-.*|last-event-id"
)

# A URL; its user and password are refused later.
ADDRESS = re.compile(r"https?://([^/?#]*@)?(\[[^]]*\]|[^/?#@:\[]+)(:\d*)?([/?#]|$)")

TEXT, OBJECT, FLAG = {"type": "string"}, {"type": "object"}, {"type": "boolean"}
TEXTS: Message = {"type": "array", "items": TEXT}
ICON = {"src": TEXT, "mimeType": TEXT, "sizes": TEXTS}
ICONS = {"type": "array", "items": {**OBJECT, "required": ["src"], "properties": ICON}}
SCHEMA = {**OBJECT, "required": ["type"], "properties": {"type": {"const": "object"}}}
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
COMMON = {"title": TEXT, "description": TEXT, "icons": ICONS, "_meta": OBJECT}
ANNOTATIONS = {**OBJECT, "properties": {"title": TEXT, **dict.fromkeys(HINTS, FLAG)}}
FOR = {"audience": TEXTS, "priority": {"type": "number"}, "lastModified": TEXT}


class Kind(NamedTuple):
    """A list that servers have. The schema is that of an entry, as far as a client
    that checks types would refuse the whole list for it."""

    name: str  # in the result
    method: str
    identifier: str  # the member that identifies an entry
    change: str  # what is announced when the list changes
    schema: Schema


def _kind(
    name: str, method: str, identifier: str, needed: str, **members: Any
) -> tuple[str, Kind]:
    properties = {"name": TEXT, identifier: TEXT, **COMMON, **members}
    schema = Schema({**OBJECT, "required": needed.split(), "properties": properties})
    return name, Kind(name, method, identifier, method.partition("/")[0], schema)


ARGUMENT = {"name": TEXT, "title": TEXT, "description": TEXT, "required": FLAG}
SIZE = {"type": "number"}
FILE = {"mimeType": TEXT, "size": SIZE, "annotations": {**OBJECT, "properties": FOR}}
TEMPLATES = "resources/templates/list"
TOOL = {"inputSchema": SCHEMA, "outputSchema": OBJECT, "annotations": ANNOTATIONS}
NAMED = {**OBJECT, "required": ["name"], "properties": ARGUMENT}
ARGUMENTS = {"type": "array", "items": NAMED}
KINDS = dict(
    [
        _kind("tools", "tools/list", "name", "name inputSchema", **TOOL),
        _kind("prompts", "prompts/list", "name", "name", arguments=ARGUMENTS),
        _kind("resources", "resources/list", "uri", "name uri", **FILE),
        _kind(
            "resourceTemplates", TEMPLATES, "uriTemplate", "name uriTemplate", **FILE
        ),
    ]
)
TASKS = "io.modelcontextprotocol/tasks"
LISTS = "tools", "prompts", "resources"  # whose changes we subscribe to
ASKING = [name for name, row in METHODS.items() if row.way == "<"]
QUESTION = {"method": {"enum": ASKING}, "params": OBJECT}
RESULT_USED = {  # what we use in a result
    "_meta": OBJECT,
    "requestState": TEXT,
    "inputRequests": {
        **OBJECT,
        "maxProperties": mcp_client.MAX_QUESTIONS,
        "additionalProperties": {**OBJECT, "properties": QUESTION},
    },
}
RESULT = Schema({"properties": RESULT_USED})
CALLS = {"tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources"}


# ==== 1. Small functions ======================================


def note(line: str) -> None:
    """Log a line. What an upstream says must not control a terminal, or add a line."""
    log(f"gateway: {printable(line)}")  # which waits for nobody


def digest(text: str) -> str:
    """Return a short name for a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def name_of(prefix: str, theirs: str, taken: Iterable[str] = ()) -> str:
    """Return our name for a tool or prompt, one that hosts accept.

    A digest replaces what they would not, and distinguishes what is taken.
    """
    if not prefix:
        return theirs
    name = f"{prefix}__{theirs}"
    is_good = re.fullmatch(r"[A-Za-z0-9_.-]+", name) and len(name) <= MAX_NAME
    if is_good and name not in taken:
        return name
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[: MAX_NAME - 9] + "_" + digest(theirs)


def prefix_of(name: str, taken: Iterable[str]) -> str:
    """Return the prefix for a server's tools: without "__" and "+", and not taken."""
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if re.match("[a-z]", prefix) and len(prefix) <= MAX_NAME // 2:
        if prefix not in taken:
            return prefix
    return f"s{prefix[: MAX_NAME // 2 - 10]}-{digest(name)}"


def bare(url: str) -> str:
    """Return a URL without user, password and query."""
    return re.split("[?#]", re.sub("//[^/]*@", "//", url))[0]


def place_of(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL on this machine."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname in LOOPBACK:
            default = 443 if parts.scheme == "https" else 80
            return parts.hostname, parts.port or default
    return None


def is_open(place: tuple[str, int]) -> bool:
    """Tell whether something listens on a port."""
    try:
        socket.create_connection(place, 1).close()
    except socket.timeout:  # it is there, but busy
        return True
    except OSError:
        return False
    return True


def depth_of(value: Any, limit: int) -> int:
    """Return how deeply a JSON value is nested; more than `limit` is not looked at."""
    if not isinstance(value, (dict, list)) or not limit:
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((depth_of(one, limit - 1) for one in inner), default=0)


def without_nulls(entry: Any) -> Any:
    """Return an entry without members that are null, which some servers write for what
    they leave out, and some clients refuse."""
    if not isinstance(entry, dict):
        return entry
    return {name: value for name, value in entry.items() if value is not None}


def flaw_of(kind: Kind, entry: Any) -> str | None:
    """Return why some client would refuse a whole list for this entry, or None."""
    if depth_of(entry, MAX_DEPTH + 1) > MAX_DEPTH:
        return f"it has more than {MAX_DEPTH} levels"
    try:
        # as some clients read it: neither Infinity nor half of a character
        json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as problem:
        return str(problem)
    return kind.schema.flaw(entry)


def sound(value: Any) -> Any:
    """Return a result as every client can read it.

    Half a character, which a text cut by a JavaScript program has, becomes "?".
    Malformed: it has a number that JSON does not have.
    """
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Malformed(f"its result cannot be passed on: {problem}") from None
    return value


def ask(ctx: Context, questions: dict[str, Message]) -> dict[str, Message]:
    """Ask a legacy client; RpcError if there is no answer."""
    run = secrets.token_urlsafe(8)  # makes keys unique: upstreams may repeat theirs
    try:
        answers = ctx.ask({run + key: question for key, question in questions.items()})
    except AskError as problem:
        code = (problem.error or {}).get("code", INTERNAL)
        raise RpcError(code, str(problem)) from None
    return {key: without_gaps(answers[run + key]) for key in questions}


def without_gaps(answer: Message) -> Message:
    """Return the answer to a form without the fields that were left out, which are None
    for a handler."""
    if "action" not in answer or not isinstance(answer.get("content"), dict):
        return answer
    return {**answer, "content": without_nulls(answer["content"])}


def without_tasks(declared: Message) -> Message:
    """Return a client's capabilities without tasks, which we cannot pass on: the tool
    then waits for its result."""
    extensions = declared.get("extensions")
    if not isinstance(extensions, dict):
        return declared
    kept = {name: one for name, one in extensions.items() if name != TASKS}
    return {**declared, "extensions": kept}


def without_answers(params: Message) -> Message:
    """Return the params of the request that was answered with a question."""
    added = ("inputResponses", "requestState")
    return {name: one for name, one in params.items() if name not in added}


def pages_in(data: Any) -> list[Any]:
    """Return the pages that an error's data asks the user to visit."""
    pages = data.get("elicitations") if isinstance(data, dict) else None
    return pages if isinstance(pages, list) else []


def keys_of(table: Mapping[Any, Any], principal: str) -> list[Any]:
    """Return the keys of a principal's entries, the oldest first."""
    return [key for key, one in list(table.items()) if one.principal == principal]


# What hosts give a server that they start, and the client does not: no secrets.
GIVEN = """
    ALL_PROXY CURL_CA_BUNDLE HTTPS_PROXY HTTP_PROXY LANGUAGE NODE_EXTRA_CA_CERTS NO_PROXY
    REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE VIRTUAL_ENV
""".split()


def environment(own: Message) -> dict[str, str]:
    """Return the variables of a server that we start; `own`: those of the file."""
    given = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in GIVEN or name.startswith(("LC_", "XDG_"))
    }
    return {**given, **own}


class Rate:
    """So many a second, and `most` at once. `lost` counts the others."""

    def __init__(self, each_second: float, most: float) -> None:
        self.each_second, self.most, self.left = each_second, most, most
        self.at, self.lost = time.monotonic(), 0
        self.lock = threading.Lock()  # guards the rest

    def take(self) -> int | None:
        """Return how many were lost before this one; None: this one is lost."""
        with self.lock:
            now = time.monotonic()
            gained = (now - self.at) * self.each_second
            self.left, self.at = min(self.left + gained, self.most), now
            if self.left < 1:
                self.lost += 1
                return None
            self.left -= 1
            lost, self.lost = self.lost, 0
            return lost


class Redactor:
    """Takes an upstream's secrets out of a text.

    They are what its entry in the file says: the query of the URL, headers, variables
    and arguments, even if these are written into the command; and the tokens of logins.
    Short ones are words, such as "-y" or "true".
    """

    def __init__(self, options: Message) -> None:
        command = options.get("command") or []
        first = program = "".join(command[:1])
        hint = ""
        words = [*options.get("env", {}).values(), *command[1:]]
        said = options.get("raw", {}).get("oauth")
        if isinstance(said, dict):
            names = ("client_secret", "clientSecret")
            words += [str(said.get(name, "")) for name in names]
        headers = [*options.get("headers", {}).values()]
        for user in options.get("users", {}).values():
            headers += user.get("headers", {}).values()
            words += user.get("env", {}).values()
        if not os.path.exists(program.replace("\0", "")):
            program, *more = re.split(r"[\s=\0]+", program)
            words += [one for word in more for one in (word, word.partition("=")[2])]
            hint = " (arguments belong in args)" if more else ""
        # An OSError repeats the first word.
        pairs = [(repr(command), repr([program]) + hint)]
        pairs += [(form, program) for form in (first, repr(first)[1:-1])]
        self.command = pairs if command else []
        for value in headers:
            words += [value, value.rpartition(" ")[2]]
        for word in command[1:]:
            words += re.split("[=:]", word, maxsplit=1)[1:]
        url = options.get("url", "")
        words += [*re.split("[?#]", url)[1:], *re.findall("//([^/]*)@", url)]
        for _, value in parse_qsl(urlsplit(url).query) if "[" not in url else []:
            words += [value]
        known = {
            one
            for word in words
            for one in (word, unquote(word), *word.splitlines())  # such as a key's
        }
        secret = [one for one in known if len(one) > 5 and not self._is_plain(one)]
        # the longest first: one may be a part of another
        self.secrets = sorted(secret, key=len, reverse=True)
        self.tokens: list[str] = []

    def learning(self, make: Any) -> Any:
        """Return a function that makes the headers of a login; take its token out."""

        def headers(verb: str, url: str) -> Message:
            made: Message = make(verb, url)
            for value in made.values():
                token = str(value).rpartition(" ")[2]
                others = [one for one in self.tokens if one != token]
                self.tokens = [token, *others][:MAX_TOKENS]
            return made

        return make and headers

    @staticmethod
    def _is_plain(word: str) -> bool:
        is_option = re.fullmatch("--[a-z][a-z0-9-]*", word)
        return bool(is_option) or "?" not in word and os.path.exists(word)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for told, shown in self.command:
            text = text.replace(told, shown)
        for secret in (*self.secrets, *self.tokens):
            for form in (secret, json.dumps(secret)[1:-1]):
                text = text.replace(form, "***")
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets in its texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(one) for name, one in value.items()}
        return value

    def reason(self, problem: BaseException) -> str:
        """Return an exception as one line: the first one, and the last that a program
        wrote to stderr."""
        lines = [one.strip() for one in str(problem).splitlines() if one.strip()]
        said = ": ".join([*lines[:1], *lines[1:][-1:]])
        return self.text(said or type(problem).__name__)[:500]


# ==== 2. One connection to an upstream ========================


class Bounded(Client):
    """A client that takes no message of more than `limit` bytes."""

    def __init__(self, target: Any, limit: int, **options: Any) -> None:
        self.limit = limit
        super().__init__(target, **options)

    def decode(self, data: bytes) -> Any:
        if len(data) > self.limit:
            raise RpcError(INVALID, f"a message of more than {self.limit} bytes")
        return super().decode(data)

    @property
    def stray(self) -> str:
        """Show nobody what came for another; it is logged."""
        return ""

    @stray.setter
    def stray(self, text: str) -> None: ...


class Call:
    """A client's request, for one upstream.

        client, principal  whose it is
        ctx                the request
        sent               the upstream's request
        talk               its Talk, if the client is not asked by a request
        logs               the rate of its log messages
        size               about the bytes that wait in tell()

    After end(), ctx, sent and talk are None. A call that the upstream has not answered
    is still needed, to know whom it asks, so it must not keep the request.
    """

    def __init__(self, ctx: Context, talk: Talk | None = None) -> None:
        self.client = weakref.ref(ctx.peer)
        self.principal = json.dumps(ctx.principal, sort_keys=True)
        self.ctx: Context | None = ctx
        self.sent: Any = None
        self.talk = talk
        self.logs = Rate(MAX_LINES, 2 * MAX_LINES)
        self.size = 0
        self.lock = threading.Lock()  # guards size

    def end(self) -> None:
        """Forget the request."""
        self.ctx = self.sent = self.talk = None

    def cancel(self) -> None:
        """Cancel the upstream's request, unless it has ended."""
        sent = self.sent
        if sent:
            sent.cancel()

    def later(self, act: Any) -> None:
        """Have the thread that waits for the answer call act(ctx). It comes there in
        order, as progress."""
        sent = self.sent
        if sent:
            sent.put({"method": "notifications/progress", "params": {"progress": act}})

    def tell(self, act: Any, size: int) -> None:
        """Do the same to write to the client, which may not read, while others need the
        thread that calls us; what is too much is left out."""

        def told(ctx: Context) -> None:
            with contextlib.suppress(RpcError, ValueError, OSError):
                act(ctx)  # raised here, it would end the call
            with self.lock:
                self.size -= size

        with self.lock:
            if not self.size or self.size + size <= MAX_TOLD_BYTES:
                self.size += size
                self.later(told)


def latest(tags: list[Any]) -> Call:
    """Return the latest of the calls that a message may belong to; RpcError if they are
    of several clients, or none is left."""
    calls: list[Call] = [one for one in tags if one is not None]
    running = [one for one in calls if one.ctx]
    if not running:
        raise RpcError(INTERNAL, "The gateway cannot ask a client: no call is running")
    if any(one.client != running[0].client for one in calls):
        raise RpcError(
            INTERNAL,
            "The gateway cannot tell which client this is for: calls of several "
            "clients run, or were given up",
        )
    return running[-1]


class Connection:
    """A connection to an upstream, for all clients or for one.

        values     forwarded headers
        user       the headers and variables of one user; None: those of the entry
        principal  the first caller's, or, once it is retired, of the one who bars
                   others from it; "" for the upstream's main connection
        before     the thread that ends the one in whose place it is
        client     None until it is up
        calls      those in progress on it
        retired    true once it takes no further calls: one of another principal was
                   given up, and its upstream may still ask something for it
        asked      the principals of open questions
        visits     the calls that sent a user to a page, by elicitationId

    The upstream's lock guards `calls` and `retired`.
    """

    def __init__(
        self,
        upstream: Upstream,
        values: Iterable[tuple[str, str]] = (),
        principal: str = "",
        user: Message | None = None,
        before: threading.Thread | None = None,
    ):
        self.upstream, self.values, self.principal = upstream, dict(values), principal
        self.user, self.before = user, before
        self.calls: list[Call] = []
        self.retired = False
        self.visits: dict[str, Call] = {}
        self.asked: list[str] = []
        self.lock = threading.Lock()  # held while it is opened
        self.used = time.monotonic()
        self.client: Client | None = None
        self.transport: Transport | None = None

    def barred_by(self, call: Call) -> str | None:
        """Return the principal whose calls bar another call, or None."""
        if self.client is None:
            return None
        given_up = [one.principal for one in list(self.client.unanswered.values())]
        if len(given_up) > MAX_GIVEN_UP:
            return call.principal
        if self.client.modern:  # it asks in its answers
            return None
        return next((one for one in given_up if one != call.principal), None)

    def open(self) -> Client:
        """Connect, or return what is connected."""
        with self.lock:
            client = self.client
            if client is None or client.closed or not self.is_up:
                self.client = None
                if client:  # it would start its program again
                    client.close()
                if self.upstream.closed.is_set():
                    raise Disconnected("it is closed")
                client = self.client = self._connect()
                if self.upstream.closed.is_set():  # just now: close() has missed it
                    client.close()
            return client

    def close(self) -> None:
        """End the connection, even while it is opened."""
        client = getattr(self.transport, "client", None)
        if client is not None:
            client.close()

    @property
    def is_up(self) -> bool:
        """A program that has ended is down; a lost session is opened again."""
        transport = self.transport
        is_program = self.client and isinstance(transport, StdioTransport)
        return not is_program or bool(transport and transport.up)

    def _connect(self) -> Client:
        if self.before:  # some servers can run only once
            self.before.join(CLOSE_SECONDS)
        upstream = self.upstream
        options = upstream.options
        self.transport = upstream.transport(self)

        def sample(params: Message, tags: list[Any]) -> Message:
            return self._ask("sampling/createMessage", params, tags)

        def roots(params: Message, tags: list[Any]) -> Any:
            return self._ask("roots/list", params, tags)["roots"]

        client = Bounded(
            self.transport,
            options.get("maxBytes", MAX_BYTES),
            timeout=options.get("startup") or START_SECONDS,
            revision=options.get("revision", ""),
            on_log=self._log,
            on_notification=self._hear,
            log_level="debug",
            elicit=self._elicit,
            visit=self._elicit,
            stderr=upstream.say,
            sample=sample,
            roots=roots,
        )
        client.timeout = LIST_SECONDS
        # call() handles questions
        client.result_types["input_required"] = lambda method, result, tag: result
        return client

    # ---- what an upstream asks and says: on the connection's threads

    def _elicit(self, params: Message, tags: list[Any]) -> Any:
        answer = self._ask("elicitation/create", params, tags)
        if answer["action"] != "accept":
            return answer["action"]
        return params.get("mode") == "url" or answer.get("content") or {}

    def _ask(self, method: str, params: Message, tags: list[Any]) -> Message:
        call = latest(tags)
        # The client drops what is more than its bound.
        is_full = len(self.asked) >= mcp_client.MAX_QUESTIONS - 1
        if is_full or self.asked.count(call.principal) >= MAX_ASKED:
            raise RpcError(INTERNAL, "Too many questions wait for this client")
        question: Message = {"method": method, **({"params": params} if params else {})}
        self.asked.append(call.principal)
        try:
            return self._ask_client(call, question)
        finally:
            self.asked.remove(call.principal)

    def _ask_client(self, call: Call, question: Message) -> Message:
        ctx, talk = call.ctx, call.talk
        if talk:  # Upstream.call() says who asks
            return talk.ask(question)
        if ctx is None or rules(ctx.version).modern:
            raise RpcError(INTERNAL, "The client cannot be asked")
        self._note_visit(question.get("params"), call)
        return ask(ctx, {"": self.upstream.as_asked(question)})[""]

    def _note_visit(self, params: Any, call: Call) -> None:
        """Remember whom to tell that the user has done what a page asked for."""
        ident = params.get("elicitationId") if isinstance(params, dict) else None
        if isinstance(ident, str) and len(ident) <= MAX_PROGRESS:
            for oldest in keys_of(self.visits, call.principal)[: 1 - MAX_VISITS]:
                self.visits.pop(oldest, None)
            self.visits[ident] = call

    def note_visits(self, data: Any, call: Call) -> None:
        """Do the same for an error that names pages."""
        for page in pages_in(data):
            self._note_visit(page, call)

    def _hear(self, message: Message) -> None:
        if message["method"] != "notifications/elicitation/complete":
            return
        params = message.get("params")
        ident = params.get("elicitationId") if isinstance(params, dict) else None
        call = self.visits.pop(str(ident), None)
        if call is None:
            return
        told = {"elicitationId": ident}
        peer = call.client()
        if call.ctx:
            done = message["method"]
            call.tell(lambda ctx: ctx.notify(done, told), len(str(ident)))
        elif peer and peer.session:
            peer.session.tell(message["method"], told)

    def _log(self, params: Message, tags: list[Any]) -> None:
        logger = params.get("logger")
        if not isinstance(logger, (str, type(None))):
            return
        # What is not for certain a client's is left out: raised here, it would end the
        # call.
        with contextlib.suppress(RpcError):
            call = latest(tags)
            if params.get("level") in LOG_LEVELS and call.logs.take() is not None:
                call.tell(lambda ctx: self._pass_on(ctx, params), len(str(params)))

    def _pass_on(self, ctx: Context, params: Message) -> None:
        with contextlib.suppress(Malformed, RecursionError):  # it is not JSON
            data = self.upstream.redactor.value(params.get("data"))
            ctx.log(params["level"], *sound([data, params.get("logger")]))

    # ---- a call: on its handler's thread

    def request(self, call: Call, params: Message) -> Message:
        """Send a request of a client's; return the result."""
        client, ctx = self.open(), call.ctx
        assert ctx is not None
        meta = {
            key: value
            for key, value in ctx.meta.items()
            if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")
        }
        if client.modern:
            meta[META_CAPABILITIES] = without_tasks(ctx.client_capabilities)

        def progress(done: Any, total: Any = None, message: Any = None) -> None:
            if callable(done) and call.ctx:  # from Call.later()
                done(call.ctx)
            if not isinstance(done, (int, float)):
                return
            total = total if isinstance(total, (int, float)) else None
            text = None if message is None else str(message)[:MAX_PROGRESS]
            hearer = call.ctx
            with contextlib.suppress(Malformed):
                if hearer:
                    hearer.progress(*sound([done, total, text]))

        def started(sent: Any) -> None:
            call.sent = sent
            if call.ctx:
                call.ctx.on_cancel(call.cancel)

        result: Message = client.request(
            ctx.method,
            {**params, "_meta": meta},
            timeout=self.upstream.options.get("timeout") or CALL_SECONDS,
            tag=call,
            on_progress=progress,
            started=started,
        )
        for name in RESULT_USED:
            if result.get(name) is None:  # null: some servers write it
                result.pop(name, None)
        if (flaw := RESULT.flaw(result)) is not None:
            raise Malformed(f"its result cannot be passed on: {flaw}")
        return dict(sound(result))


class Talk:
    """A call of a modern client to a legacy upstream, which may ask meanwhile.

        running    the upstream works on it     a handler waits in next()
        asking     the client is to answer      no handler waits; `answer` is to be set
        ended      there is a result or error   the handler has it

    The call runs on a thread of its own, because the client answers a question with
    another request, which is another handler: `call.ctx` is the latest. `token` names
    the call in the client's request state.
    """

    def __init__(self, ctx: Context) -> None:
        self.call = Call(ctx, self)
        self.principal = self.call.principal
        self.params_size = self.size = len(repr(ctx.params))  # about; and the question
        self.token = STATE + secrets.token_urlsafe(24)
        self.events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.question: Message = {}
        self.answer: Any = None  # a Future

    def start(self, upstream: Upstream, params: Message) -> None:
        """Send the request."""

        def run() -> None:
            try:
                self.events.put(("result", upstream.send(self.call, params)))
            except BaseException as problem:  # the handler raises it
                self.events.put(("problem", problem))

        threading.Thread(target=run, daemon=True).start()

    def give_up(self) -> None:
        """End a call whose client does not answer."""
        self.answer.cancel()
        self.call.cancel()

    def ask(self, question: Message) -> Message:
        """Ask the client, on the connection's thread; return its answer."""
        from concurrent.futures import CancelledError, Future, TimeoutError as TooLate

        ctx = self.call.ctx
        if not (ctx and can_ask(ctx, question)):
            raise RpcError(INTERNAL, f"The client did not declare {question['method']}")
        answer: Future[Any] = Future()
        # After the progress that came before it, which the handler passes on.
        event = "question", (question, answer)
        self.call.later(lambda ctx: self.events.put(event))
        try:
            found = answer.result(ASK_SECONDS)
        except (TooLate, CancelledError):
            answer.cancel()
            raise RpcError(INTERNAL, "The client has not answered") from None
        if not isinstance(found, dict):
            raise RpcError(INVALID, "The client's answer is not an object")
        return found

    def next(self, upstream: Upstream) -> Message:
        """Return the result, or a question, for the handler."""
        kind, value = self.events.get()
        if kind == "problem":
            raise value
        if kind == "result":
            return dict(value)
        self.question, self.answer = value
        self.size = self.params_size + len(repr(self.question))
        return self.asked(upstream)

    def asked(self, upstream: Upstream) -> Message:
        """Return the question as a result."""
        talks = upstream.talks
        with upstream.lock:
            for token in [one for one in talks if talks[one].answer.done()]:
                del talks[token]
            own = keys_of(talks, self.principal)
            size = self.size + sum(talks[one].size for one in own)
            while own and (len(own) >= MAX_TALKS or size > MAX_TALK_BYTES):
                oldest = talks.pop(own.pop(0))
                oldest.give_up()
                size -= oldest.size
            talks[self.token] = self
        return {
            "resultType": "input_required",
            "inputRequests": {"question": self.question},
            "requestState": self.token,
        }

    def resume(self, ctx: Context, upstream: Upstream) -> Message:
        """Go on, with the answer in a request."""
        self.call.ctx = ctx
        answers = ctx.params.get("inputResponses", {})
        if "question" not in answers:
            return self.asked(upstream)
        ctx.on_cancel(self.call.cancel)
        self.answer.set_result(answers["question"])
        return self.next(upstream)


def can_ask(ctx: Context, question: Message) -> bool:
    """Tell whether a client has declared what a question needs."""
    declared = ctx.client_capabilities.get(METHODS[question["method"]].capability)
    if not isinstance(declared, dict):
        return False
    is_page = question.get("params", {}).get("mode") == "url"
    return "url" in declared if is_page else declared != {"url": {}}


# ==== 3. An upstream ==========================================


class Upstream:
    """A server behind the gateway, and what it offers.

        starting   the first attempt to connect       `tried` is not set
        up         its lists are offered              `client` is not None
        down       tried again after a pause          `why` says why
        (login)    down, until a user has logged in   `needs_login`
        closed     for ever                           `closed` is set

    Our names and, as part of the scheme, our URIs begin with `prefix`; if it is empty,
    they are theirs. `main` is the connection of the keeper, on which lists are fetched;
    `own` are those for one client each.
    """

    def __init__(self, name: str, options: Message, prefix: str | None = None) -> None:
        self.name, self.options = name, options
        self.prefix = prefix_of(name, ()) if prefix is None else prefix
        self.place = place_of(options.get("url", ""))
        self.redactor = Redactor(options)
        self.lines = Rate(MAX_LINES, 2 * MAX_LINES)
        self.profiles: list[Profile] = []  # the profiles that include it
        self.client: Client | None = None  # None while it is down
        self.why, self.needs_login = "it has not answered yet", False
        self.instructions = ""
        self.listens = True  # something listened on its port when we last looked
        self.said: dict[str, str] = {}  # the last line logged, by subject
        # All upstreams have this time together, because they start together.
        self.started = time.monotonic()
        self.tried = threading.Event()  # set after the first attempt to connect
        self.ready = threading.Event()  # set while it is up, and listed
        self.woken = threading.Event()  # set when its lists may have changed
        self.closed = threading.Event()
        # By kind and by their name: definitions.
        self.items: dict[str, dict[str, Message]] = {kind: {} for kind in KINDS}
        self.watched: dict[str, str] = {}  # URIs, and who asked for them first
        self.watcher = threading.Thread()  # the last one that subscribed to them
        # Subscriptions that it granted, by what they are for; they may have ended.
        self.heard: dict[tuple[str, ...], Subscription] = {}
        self.changed: set[str] = set()  # URIs, which clients are told of soon
        self.main = Connection(self)
        # By client and forwarded headers, the one used last at the end.
        self.own: dict[Any, Connection] = {}
        self.ending: list[threading.Thread] = []  # each ends one of these
        self.talks: dict[str, Talk] = {}  # those that ask, by token
        # guards own, ending, talks, changed and said
        self.lock = threading.Lock()
        self.login = Login(self)
        self.keeper = threading.Thread(
            target=self._keep, name="keep-" + name, daemon=True
        )

    def close(self) -> None:
        """End the connections and, if we started it, the server."""
        close_all([self])

    def leave(self) -> list[threading.Thread]:
        """Let the keeper end, even while it connects, and the connections; return the
        threads that then end."""
        self.closed.set()
        self.woken.set()
        with self.lock:
            connections, ending = [self.main, *self.own.values()], self.ending
        threads = [
            threading.Thread(target=connection.close, daemon=True)
            for connection in connections
        ]
        threads.append(threading.Thread(target=self.login.give_up, daemon=True))
        for thread in threads:
            thread.start()
        return [*threads, *ending, self.keeper]

    def await_first(self, seconds: float = 0) -> None:
        """Wait for the first attempt to connect, but not longer than all may take."""
        end = self.started + (seconds or WAIT_SECONDS)
        self.tried.wait(max(0.0, end - time.monotonic()))

    def note(self, subject: str, line: str) -> None:
        """Log a line, unless it is the last one on this subject."""
        line = self.redactor.text(line)
        with self.lock:
            is_new = self.said.get(subject) != line
            self.said[subject] = line
        if is_new:
            note(f"{self.name}{line}")

    def say(self, line: str) -> None:
        """Log a line of the upstream's stderr, unless there are too many."""
        lost = self.lines.take()
        if lost:
            note(f"{self.name}: {lost} lines were left out")
        if lost is not None:
            note(f"{self.name}: {self.redactor.text(line)[:1000]}")

    def transport(self, connection: Connection) -> Transport:
        """Make the transport of a connection."""
        options, user = self.options, connection.user
        given = options if user is None else user
        if "url" not in options:
            env = environment(given.get("env") or {})
            return StdioTransport(options["command"], env, options.get("cwd"))
        headers, hook = given.get("headers", {}), None
        # A forwarded header replaces one that is for all, but none of its user's.
        if user is None:
            headers = merge_headers(headers, connection.values)
            hook = self.login.hook(headers)
        else:
            headers = merge_headers(connection.values, headers)
        sse = options.get("sse", False)
        return HttpTransport(options["url"], headers, authorize=hook, sse=sse)

    def as_asked(self, question: Any) -> Any:
        """Return a question that says who asks, in words that are not the upstream's
        own."""
        params = question.get("params") if isinstance(question, dict) else None
        if not self.prefix or not isinstance(params, dict) or "message" not in params:
            return question
        message = f'The server "{self.name}" asks: {params["message"]}'
        return {**question, "params": {**params, "message": message}}

    # ---- the keeper's thread

    def _keep(self) -> None:
        pause = RETRY_SECONDS
        while not self.closed.is_set():
            began = time.monotonic()
            try:
                self._look()
                self._follow()
            except Exception as problem:  # an upstream may cause any error
                self.why = self.redactor.reason(problem)
                if not self.closed.is_set():
                    self.note("state", f" is down: {self.why}")
            if self.listens and self.place:
                self.listens = is_open(self.place)
            self.main.close()
            self.tried.set()
            if time.monotonic() - began > STABLE_SECONDS:
                pause = RETRY_SECONDS
            self._rest(pause)
            pause = min(2 * pause, max(LONGEST_SECONDS, RETRY_SECONDS))

    def _look(self) -> None:
        """Note whether a program on this machine listens; Disconnected if not."""
        self.listens = not self.place or is_open(self.place)
        if not self.listens:
            raise Disconnected("nothing listens on its port")

    def _rest(self, seconds: float) -> None:
        """Wait until it is time to try again: soon, if a program on this machine begins
        to listen."""
        end, step = time.monotonic() + seconds, NEAR_SECONDS
        while not self.woken.is_set() and time.monotonic() < end:
            self.woken.wait(max(0.0, min(step, end - time.monotonic())))
            step = min(1.5 * step, max(2.0, NEAR_SECONDS))
            self._close_unused()
            if not self.listens and self.place and is_open(self.place):
                break
        if not self.closed.is_set():
            self.woken.clear()

    def _follow(self) -> None:
        """Offer what the server offers until we close, or raise when it is gone."""
        listings = Rate(1 / BUSY_SECONDS, MAX_LISTINGS)
        try:
            while not self.closed.is_set():
                client = self.main.open()
                try:
                    self._offer(client)
                    self._await_change(client)
                except Exception:
                    if client is self.main.client:
                        raise  # else a call has connected anew
                is_busy = listings.take() is None
                self.closed.wait(BUSY_SECONDS if is_busy else CHANGE_SECONDS)
                if not self.closed.is_set():
                    self.woken.clear()
        finally:
            self.client, self.heard = None, {}
            self.ready.clear()
            for kind in KINDS.values():
                self._publish(kind, {})

    def _offer(self, client: Client) -> None:
        """Offer what the server offers now."""
        if client is not self.client:
            self.client, self.why, self.heard = client, "it has just gone", {}
            self.instructions = str(client.instructions or "")[: 2 * MAX_INSTRUCTIONS]
            self.note("state", " is up")
        # Before they are listed, so that no change is missed.
        self._subscribe(client, [LISTS])
        for kind in KINDS.values():
            self._publish(kind, self._fetch_or_note(client, kind))
        self.tried.set()
        self.ready.set()
        self._watch_again(client)

    def _await_change(self, client: Client) -> None:
        """Wait until the lists may have changed, or a call has connected anew; raise if
        the server is gone.

        The end of a modern subscription tells at once that a server is gone. Without
        one, a server on this machine is asked for a connection.
        """
        end = time.monotonic() + CHECK_SECONDS
        while not self.woken.is_set() and time.monotonic() < end:
            self.woken.wait(NEAR_SECONDS)
            if client is not self.main.client:
                break
            if not self.main.is_up:
                gone: Any = getattr(self.main.transport, "loss", None)
                raise gone or Disconnected("it has ended")
            heard = list(self.heard.values())
            is_heard = any(not one.over.is_set() for one in heard)
            is_told = client.modern and is_heard
            if not is_told:
                self._look()
            self._close_unused()

    def _close_unused(self) -> None:
        """End the connections of clients that have left, or do not call."""
        long_ago = time.monotonic() - OWN_SECONDS
        with self.lock:
            for key, one in list(self.own.items()):
                has_left = one.retired or getattr(key[0], "closed", False)
                if not one.calls and (has_left or one.used < long_ago):
                    self._end(key)

    def _subscribe(self, client: Client, wanted: list[tuple[str, ...]]) -> None:
        """Open the subscriptions that are missing, unless the client is replaced."""
        for one in wanted:
            known = self.heard.get(one)
            if self.client is client and (known is None or known.over.is_set()):
                self.listen(client, one)

    def _watch_again(self, client: Client) -> None:
        """Subscribe to the URIs, on a thread: the lists do not wait for it."""

        def subscribe() -> None:
            with contextlib.suppress(OSError):  # the keeper connects again
                self._subscribe(client, [(uri,) for uri in list(self.watched)])

        if self.watched and not self.watcher.is_alive():
            name = "watch-" + self.name
            self.watcher = threading.Thread(target=subscribe, name=name, daemon=True)
            self.watcher.start()

    def _fetch_or_note(self, client: Client, kind: Kind) -> dict[str, Message]:
        """Return a list, without what clients could not read."""
        found: dict[str, Message] = {}
        bad: list[str] = []
        try:
            for entry in map(without_nulls, self._fetch(client, kind)):
                flaw = flaw_of(kind, entry)
                theirs = entry.get(kind.identifier) if isinstance(entry, dict) else None
                if flaw is None and theirs in found:
                    flaw = "it is there twice"
                if flaw is None:
                    found[str(theirs)] = entry
                elif len(bad) < 5:
                    bad.append(f"{theirs!r:.80}: {flaw:.200}")
        except TROUBLE as problem:
            if self.needs_login:
                raise
            reason = self.redactor.reason(problem)
            self.note(kind.name, f": cannot list all {kind.name}: {reason}")
        if bad:
            self.note(
                f"bad {kind.name}", f": left out of {kind.name}: {'; '.join(bad)}"
            )
        if kind.name == "tools":
            # The client repeats arguments in headers, as these schemas say.
            client.tools = {**found}
        return found

    def _fetch(self, client: Client, kind: Kind) -> Iterator[Any]:
        """Fetch the entries of all pages; Malformed if they do not end."""
        if METHODS[kind.method].capability not in client.capabilities:
            return
        params: Message = {}
        size, cursors = 0, set()
        end = time.monotonic() + LIST_SECONDS
        for _ in range(MAX_PAGES):
            left = max(0.1, end - time.monotonic())
            result = client.request(kind.method, params, timeout=left)
            if not isinstance(result.get(kind.name), list):
                raise Malformed(f"its answer has no list of {kind.name}")
            for entry in result[kind.name]:
                # About; it must not fail, whatever there is.
                size += len(repr(entry))
                if size > MAX_LIST_BYTES:
                    raise Malformed(f"they have more than {MAX_LIST_BYTES} bytes")
                yield entry
            cursor = result.get("nextCursor")
            if cursor is None:
                return
            if repr(cursor) in cursors:
                raise Malformed("its pages do not end")
            cursors.add(repr(cursor))
            params = {"cursor": cursor}
        raise Malformed(f"they have more than {MAX_PAGES} pages")

    def _publish(self, kind: Kind, found: dict[str, Message]) -> None:
        before, self.items = self.items, {**self.items, kind.name: found}
        if before[kind.name] != found:
            self.announce(kind)

    def announce(self, kind: Kind) -> None:
        """Tell clients that a list has changed."""
        for profile in self.profiles:
            profile.refresh(kind)
            profile.changed(kind.change)

    # ---- any thread

    def uri(self, theirs: str) -> str:
        """Return our URI, or template, for one of theirs."""
        if not self.prefix:
            return theirs
        if theirs.startswith("ui://"):  # hosts want this scheme for pages
            return f"ui://{self.prefix}+{theirs[5:]}"
        return f"{self.prefix}+{theirs}"

    def their_uri(self, ours: str) -> str | None:
        """Return their URI for ours, or None if it is not one of this upstream's."""
        for mark, scheme in (
            (f"ui://{self.prefix}+", "ui://"),
            (f"{self.prefix}+", ""),
        ):
            if self.prefix and ours.startswith(mark):
                return scheme + ours[len(mark) :]
        return None if self.prefix else ours

    def listen(self, client: Client, wanted: tuple[str, ...]) -> None:
        """Subscribe to changes, if the server supports it."""
        with contextlib.suppress(*TROUBLE):
            subscription = self.heard[wanted] = client.listen(wanted)
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
                else:
                    self._note_change(change)
        # The server may be gone. The pause is for one that ends them all at once.
        if self.client is not None and not self.closed.wait(RETRY_SECONDS):
            self.woken.set()

    def _note_change(self, uri: str) -> None:
        """Tell clients of a changed resource, soon, and once for many changes."""
        with self.lock:
            is_first = not self.changed
            self.changed.add(uri)
            is_full = len(self.changed) >= MAX_CHANGED
        if is_full:
            self._tell_changes()
        elif is_first:
            timer = threading.Timer(CHANGE_SECONDS, self._tell_changes)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # no threads are left
                self._tell_changes()

    def _tell_changes(self) -> None:
        with self.lock:
            changed, self.changed = self.changed, set()
        for uri in changed:
            for profile in self.profiles:
                with contextlib.suppress(RpcError):  # it is too long for a URI
                    profile.changed(self.uri(uri))

    def call(self, ctx: Context, params: Message) -> Message:
        """Pass on a request.

        A modern server's questions are part of a result: a modern client gets them,
        and repeats the request; a legacy client is asked here.
        """
        is_modern = rules(ctx.version).modern
        if not is_modern:  # a state would not be signed for this principal
            params = without_answers(params)
        asked, state = params, params.get("requestState")
        if state is not None:
            asked = {**params, "requestState": self._opened(ctx, params)}
        rounds = mcp_client.MAX_ROUNDS
        for _ in range(rounds):
            result = self._request(ctx, asked)
            if result.get("resultType") != "input_required":
                return result
            questions = result.get("inputRequests", {})
            named = {key: self.as_asked(one) for key, one in questions.items()}
            if is_modern:
                more: Message = {"inputRequests": named} if named else {}
                if "requestState" in result:
                    state = result["requestState"]
                    more["requestState"] = self._sealed(ctx, params, state)
                return {**result, **more}
            asked = {**params, "inputResponses": ask(ctx, named)}
            if "requestState" in result:
                asked["requestState"] = result["requestState"]
        raise RpcError(
            INTERNAL, f"The server {self.name} asked for input more than {rounds} times"
        )

    def _sealed(self, ctx: Context, params: Message, state: str) -> str:
        """Return the server's request state, signed for this request: the server cannot
        tell our clients apart, nor another server that its client is another's."""
        repeated = {**without_answers(params), "_meta": None}
        server = [self.options.get(name) for name in ("command", "cwd", "url")]
        bound = [self.name, server, ctx.principal, ctx.method, repeated, state]
        text = json.dumps(bound, sort_keys=True).encode()
        return f"{hmac.new(ctx.server.state_key, text, 'sha256').hexdigest()}.{state}"

    def _opened(self, ctx: Context, params: Message) -> str:
        """Return what was sealed; RpcError if it was not, or for another request."""
        state = str(params["requestState"])
        theirs = state.partition(".")[2]
        sealed = self._sealed(ctx, params, theirs)
        # json.dumps() keeps what cannot be encoded.
        pair = [json.dumps(one).encode() for one in (sealed, state)]
        if not hmac.compare_digest(*pair):
            raise RpcError(INVALID, "requestState is not valid here: retry without it")
        return theirs

    def _request(self, ctx: Context, params: Message) -> Message:
        """Send a request. Any failure becomes an RpcError that names the server."""
        data: Message = {"server": self.name}
        client = self.client
        if client is None or not self.main.is_up:
            if self.needs_login:
                raise NeedsLogin(self, f"{self.name}: {self.login.how}")
            raise RpcError(
                INTERNAL,
                f"The server {self.name} is down, and nothing was done: {self.why}",
                data,
            )
        try:
            talk = self._talk_of(ctx, params)
            if talk is not None:
                return talk.resume(ctx, self)
            asks = ctx.client_capabilities.keys() & QUESTIONS
            if client.modern or not rules(ctx.version).modern or not asks:
                return self.send(Call(ctx), params)
            talk = Talk(ctx)
            talk.start(self, params)
            return talk.next(self)
        except RpcError as error:
            raise self._told(error, ctx, data) from None
        except Exception as problem:
            if not isinstance(problem, RequestCancelled):
                self.woken.set()  # check whether it is still up
            if self.needs_login:
                raise NeedsLogin(self, f"{self.name}: {self.login.how}") from None
            reason = self.redactor.reason(problem)
            raise RpcError(
                INTERNAL, f"The server {self.name} failed: {reason}", data
            ) from problem

    def _talk_of(self, ctx: Context, params: Message) -> Talk | None:
        """Return the call that a request brings an answer for."""
        state = params.get("requestState")
        if not (isinstance(state, str) and state.startswith(STATE)):
            return None
        with self.lock:
            talk = self.talks.get(state)
            if talk and not talk.answer.done():
                return self.talks.pop(state)
        raise RpcError(INVALID, "requestState: this question is over, call again")

    def _told(self, error: RpcError, ctx: Context, data: Message) -> RpcError:
        """Return an upstream's error as our client gets it."""
        message, found = sound(self.redactor.text(str(error))), None
        with contextlib.suppress(Malformed, RecursionError):  # else it goes without
            found = self._with_name(sound(self.redactor.value(error.data)))
        original = {"code": error.code, "message": message, "data": found}
        # some hosts read it
        known = found if isinstance(found, dict) else {}
        old = error.code == LEGACY_NOT_FOUND and rules(ctx.version).modern
        code = INVALID if old else error.code
        return RpcError(code, message, {**known, **data, "originalError": original})

    def _with_name(self, data: Any) -> Any:
        """Return an error's data in which pages say who asks for them."""
        asked = [self.as_asked({"params": page})["params"] for page in pages_in(data)]
        return {**data, "elicitations": asked} if asked else data

    def send(self, call: Call, params: Message) -> Message:
        """Send a call on the connection for its client."""
        connection = self._claim(call)
        try:
            return connection.request(call, params)
        except RpcError as error:
            connection.note_visits(error.data, call)
            raise
        finally:
            with self.lock:
                connection.calls.remove(call)
                connection.used = time.monotonic()
            call.end()

    def _claim(self, call: Call) -> Connection:
        """Return the connection for a call, which counts as in progress on it."""
        assert call.ctx is not None
        given, names = call.ctx.headers, self.options.get("forward", [])
        values = tuple(
            (one, given[one.lower()]) for one in names if one.lower() in given
        )
        user, who = self.user_of(call.ctx), None  # type: Any, Any
        if user is not None:
            who = call.principal
        if self.options.get("session") == "client":
            # A client without a session has many peers, and one principal.
            is_brief = isinstance(call.ctx.peer, PostPeer)
            who = call.principal if is_brief else call.ctx.peer
        with self.lock:
            if who is None and self._bars_others(call.principal):
                who = call.principal
            key = who, values
            is_shared = key == (None, ())
            found = self.main if is_shared else self.own.pop(key, None)
            before, barred_by = None, found.barred_by(call) if found else None
            if found and barred_by is not None:
                before = self._retire(found, barred_by)
                found = None
            if is_shared:
                self.main = found = found or Connection(self, before=before)
            else:
                if found is None:
                    self._make_room(call.principal)
                    found = Connection(self, values, call.principal, user, before)
                self.own[key] = found  # behind those that are used less
            found.calls.append(call)
            return found

    def _bars_others(self, principal: str) -> bool:
        """Tell whether a principal has barred others from a shared connection, which
        still is there: with one of their own, they can do so only once."""
        return any(
            one.retired and one.principal == principal for one in self.own.values()
        )

    def _retire(
        self, connection: Connection, principal: str
    ) -> threading.Thread | None:
        """Keep a connection until its calls have ended, as one of the principal that
        barred it; return the thread that ends it, if they have."""
        connection.retired, connection.principal = True, principal
        self.own[connection, ()] = connection
        return None if connection.calls else self._end((connection, ()))

    def _end(self, key: Any) -> threading.Thread:
        """End a connection, on a thread: a program may take seconds to end."""
        thread = threading.Thread(target=self.own.pop(key).close, daemon=True)
        self.ending = [one for one in self.ending if one.is_alive()]
        thread.start()
        self.ending.append(thread)
        return thread

    def user_of(self, ctx: Context) -> Message | None:
        """Return the credentials for a client's user; None if all have the same.
        RpcError: there are none for this user."""
        users = self.options.get("users")
        if users is None:
            return None
        if not isinstance(ctx.principal, str) or ctx.principal not in users:
            raise RpcError(INTERNAL, f"{self.name}: there are no credentials for you")
        found: Message = users[ctx.principal]
        return found

    def _make_room(self, principal: str) -> None:
        """End a principal's connection that was unused longest, if it has too many."""
        own = keys_of(self.own, principal)
        if len(own) < MAX_OWN:
            return
        idle = [key for key in own if not self.own[key].calls]
        if not idle:
            raise RpcError(INTERNAL, "Too many clients use this server: try again")
        self._end(idle[0])

    def with_our_uris(self, result: Message) -> Message:
        """Return a result with our URIs in place of theirs."""
        made = dict(result)
        for member in ("content", "contents", "messages"):
            if isinstance(result.get(member), list):
                made[member] = [self._with_our_uri(one) for one in result[member]]
        return self.with_our_pages(made)

    def _with_our_uri(self, block: Any) -> Any:
        """Return a content block, a message or a resource's contents with our URI."""
        if not isinstance(block, dict):
            return block
        block = dict(block)
        if isinstance(block.get("uri"), str):
            block["uri"] = self.uri(block["uri"])
        for inner in ("resource", "content"):
            if isinstance(block.get(inner), dict):
                block[inner] = self._with_our_uri(block[inner])
            elif isinstance(block.get(inner), list):
                block[inner] = [self._with_our_uri(one) for one in block[inner]]
        return block

    def with_our_pages(self, item: Message) -> Message:
        """Return a definition or result whose `_meta` names the page that shows it."""
        meta = item.get("_meta")
        if not isinstance(meta, dict):
            return item
        meta = dict(meta)
        for name in ("ui/resourceUri", "openai/outputTemplate"):  # older names
            if isinstance(meta.get(name), str):
                meta[name] = self.uri(meta[name])
        page = meta.get("ui")
        if isinstance(page, dict) and isinstance(page.get("resourceUri"), str):
            meta["ui"] = {**page, "resourceUri": self.uri(page["resourceUri"])}
        return {**item, "_meta": meta}


class Login:
    """Logs in to an upstream at a URL, with oauth.py; one login at a time.

        hook() is what its connections call when they are refused: it has a token, or
        renews it, or else says that a login is needed
        page() begins a login, and returns the page for the user
        await_end() waits until the user has logged in there
        give_up() ends it: the user declines, or the upstream is closed

    Tokens are kept where `mcp_cli.py login` keeps them.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.lock = threading.Lock()  # guards the rest
        self.thread: threading.Thread | None = None
        self.was_shown = False  # at the terminal
        self.is_new = False  # the thread's login, until its user has been answered
        self.shown: Any = None  # a Future of the page's URL
        self.browser: Any = None  # what waits for the user's browser
        self.problem = ""

    def hook(self, headers: Message) -> Any:
        """Return what HttpTransport calls after a 401 or 403."""
        if oauth is None or "authorization" in {name.lower() for name in headers}:
            return None
        make = oauth.hook_for(self.settings(), browser=oauth.Nobody(self.how))

        def authorize(refusal: HttpError) -> Any:
            try:
                headers = self.upstream.redactor.learning(make(refusal))
                self._note(False)
                return headers
            except oauth.LoginNeeded:
                self.is_new = self.is_new and self.is_running
                self._note(True)
                if is_terminal() and not self.was_shown:  # a browser opens once
                    self.was_shown = True
                    self.page()
                raise

        return authorize

    def _note(self, is_needed: bool) -> None:
        """Offer the tool that logs in, or take it back."""
        before, self.upstream.needs_login = self.upstream.needs_login, is_needed
        if before != is_needed:
            self.upstream.announce(KINDS["tools"])

    def settings(self) -> dict[str, str]:
        """Return what the file says about logging in."""
        said = self.upstream.options.get("raw", {}).get("oauth")
        return oauth.settings_in(said) if isinstance(said, dict) else {}

    @property
    def how(self) -> str:
        """What says how to log in, where we cannot ask a user."""
        url = bare(self.upstream.options.get("url", ""))
        return f"it needs a login: python3 mcp_cli.py login {url}"

    @property
    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def page(self) -> str:
        """Begin a login, unless one has begun; return the page for the user."""
        from concurrent.futures import Future, TimeoutError as TooLate

        with self.lock:
            # A modern client's call runs twice: the second time, it may have ended.
            if not (self.is_new or self.is_running):
                self.shown, self.problem, self.is_new = Future(), "", True
                self.thread = threading.Thread(target=self._log_in, daemon=True)
                self.thread.start()
            shown = self.shown
        try:
            return str(shown.result(LIST_SECONDS))
        except TooLate:
            raise RpcError(INTERNAL, "The login has not begun in time") from None

    def await_end(self) -> str:
        """Wait for the end of the login; return what went wrong."""
        thread = self.thread
        if thread is not None:
            thread.join(mcp_client.LOGIN_SECONDS)
        self.is_new = False
        return "it takes too long" if self.is_running else self.problem

    def give_up(self) -> None:
        """End a login that the user will not finish; the next one begins anew."""
        thread, browser = self.thread, self.browser
        if thread is not None and browser is not None:
            browser.give_up()
            thread.join(LIST_SECONDS)

    def _log_in(self) -> None:
        shown, options = self.shown, self.upstream.options

        def say(line: str) -> None:
            note(f"{self.upstream.name}: {self.upstream.redactor.text(line)}")

        def show(url: str) -> None:
            if is_terminal():
                oauth.show(url)
            shown.set_result(url)

        # A client that shows pages does it on its user's machine, which is ours.
        here = is_terminal()
        browser = self.browser = oauth.Browser(
            show=show, say=say, opens=here, elsewhere=False, reads=here
        )
        try:
            hook = oauth.hook_for(self.settings(), browser=browser)
            learning = self.upstream.redactor.learning
            transport = HttpTransport(
                options["url"],
                options.get("headers"),
                authorize=lambda refusal: learning(hook(refusal)),
            )
            Client(transport, timeout=LIST_SECONDS).close()
        except Exception as problem:
            self.problem = self.upstream.redactor.reason(problem)
            self.is_new = False
            note(f"{self.upstream.name}: the login failed: {self.problem}")
        if not shown.done():
            why = self.problem or "No login was needed"
            shown.set_exception(RpcError(INTERNAL, why))
        self.upstream.woken.set()  # try it


def is_terminal() -> bool:
    """Tell whether a person sees what we print, and can open a page."""
    return sys.stderr.isatty() and sys.stdin.isatty()


# ==== 4. What a client sees ===================================


class Member(NamedTuple):
    """An upstream in a profile: which of its tools are shown, and as what."""

    upstream: Upstream
    patterns: list[str]
    rename: dict[str, str]

    def shows(self, kind: str, theirs: str) -> bool:
        """Tell whether an item is shown: any but a tool that matches no pattern."""
        if kind != "tools":
            return True
        options = self.upstream.options
        only = options.get("include")
        return (
            any(fnmatch.fnmatchcase(theirs, one) for one in self.patterns)
            and (only is None or theirs in only)
            and theirs not in options.get("exclude", ())
        )


class Item(NamedTuple):
    """A tool, prompt, resource or template as clients see it."""

    upstream: Upstream
    theirs: str
    definition: Message

    @property
    def input_schema(self) -> Any:
        """The schema of a tool's arguments; {} if it cannot be read."""
        schema = self.definition["inputSchema"]
        try:
            mirrored_arguments(schema, {})
        except AttributeError:  # `properties` is not an object
            return {}
        return schema


class Profile(Server):
    """The server that a client sees: upstreams, with the tools that match a pattern.
    `search`: clients see two tools in their place, which find and call them."""

    def __init__(
        self,
        name: str,
        members: list[tuple[Upstream, list[str]]],
        rename: dict[str, dict[str, str]] | None = None,
        search: bool = False,
    ) -> None:
        self.search = search
        self.members = [
            Member(one, patterns, (rename or {}).get(one.name, {}))
            for one, patterns in members
        ]
        # The same for all processes of a gateway.
        state_key = os.environ.get("MCP_STATE_KEY") or None
        super().__init__("gateway-" + name, state_key=state_key)
        self.path = "/mcp/" + name
        self.refreshing = threading.Lock()  # guards the replacement of `items`
        # by kind and by our name
        self.items: dict[str, dict[str, Item]] = {kind: {} for kind in KINDS}
        self.on_watch = self._watch
        for kind in KINDS.values():
            self._serve_list(kind)
        for method, listed in CALLS.items():
            self._serve_call(method, listed)
        self.method("completion/complete")(self._complete)
        for upstream, _ in members:
            upstream.profiles.append(self)
        for kind in KINDS.values():
            self.refresh(kind)

    @property
    def instructions(self) -> str | None:
        """What the upstreams that are up say, each under its name."""
        found = []
        for upstream in [member.upstream for member in self.members]:
            upstream.await_first(INTRODUCE_SECONDS)
            said = sound(upstream.instructions)
            if said and not upstream.prefix:
                return str(said)
            if len(said) > MAX_INSTRUCTIONS:
                said = said[:MAX_INSTRUCTIONS] + " ..."
            if said:
                named = f"# {upstream.name} (tools: {upstream.prefix}__...)"
                found.append(f"{named}\n\n{said}")
        return "\n\n".join(found) or None

    @instructions.setter
    def instructions(self, value: Any) -> None:
        """Ignore what Server sets: there are none of our own."""

    def refresh(self, kind: Kind) -> None:
        """Name all items of a kind again."""
        with self.refreshing:
            found: dict[str, Item] = {}
            for member in self.members:
                self._add_items(found, kind, member)
            self.items = {**self.items, kind.name: found}

    def _add_items(self, found: dict[str, Item], kind: Kind, member: Member) -> None:
        upstream = member.upstream
        for theirs, item in upstream.items[kind.name].items():
            if not member.shows(kind.name, theirs):
                continue
            if kind.identifier != "name":
                ours = upstream.uri(theirs)
            elif kind.name == "tools" and theirs in member.rename:
                ours = member.rename[theirs]
            else:
                ours = name_of(upstream.prefix, theirs, found)
            if ours in found:
                upstream.note("taken", f": {ours!r:.80} is left out: it is there twice")
                continue
            definition = {**upstream.with_our_pages(item), kind.identifier: ours}
            found[ours] = Item(upstream, theirs, definition)

    def _serve_list(self, kind: Kind) -> None:
        """Serve a list from memory, in the order of the file, as one page."""

        @self.method(kind.method)
        def listed(params: Message, ctx: Context) -> Message:
            for member in self.members:
                member.upstream.await_first()
            found = [item.definition for item in self.items[kind.name].values()]
            if kind.name == "tools" and self.search:
                found = search_tools(found)
            if kind.name == "tools" and may_log_in(ctx):
                found += map(login_tool, self._logins())
            return {kind.name: found}

    def offered(self, kind: str, ctx: Context) -> Any:
        """Return our tools: headers must repeat what their schemas mark
        (basic/transports/streamable-http §Server Validation)."""
        with contextlib.suppress(RpcError):  # it waits for the upstream, if need be
            self._find("tools", str(ctx.params.get("name")))
        return self.items.get(kind, {})

    def _logins(self) -> list[Upstream]:
        """Return the upstreams that a user must log in to."""
        return [one.upstream for one in self.members if one.upstream.needs_login]

    def _serve_call(self, method: str, kind: str) -> None:
        @self.method(method)
        def called(params: Message, ctx: Context) -> Message:
            member = METHODS[method].mirrored  # "name" or "uri"
            if kind == "tools" and self.search:
                given = params.get("arguments") or {}
                if params["name"] == "find_tools":
                    tools = [item.definition for item in self.items["tools"].values()]
                    return find_tools(tools, str(given.get("query", "")))
                if params["name"] == "call_tool":
                    params = {**params, **called_tool(given)}
            for upstream in self._logins() if kind == "tools" else []:
                if params[member] == login_tool(upstream)["name"]:
                    return log_in(upstream, ctx)
            try:
                return self._call(kind, member, params, ctx)
            except NeedsLogin as need:
                answer = log_in(need.upstream, ctx)
                if "content" not in answer:
                    return answer
                if answer["isError"]:
                    said = answer["content"][0]["text"]
                    raise RpcError(INTERNAL, said, need.data) from None
                self._await(need.upstream, kind, params[member])
                return self._call(kind, member, params, ctx)

    def _await(self, upstream: Upstream, kind: str, name: str) -> None:
        """Wait until an upstream offers something, after a login."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end and not upstream.closed.wait(CHANGE_SECONDS / 2):
            is_listed = kind == "resources" or name in self.items[kind]
            if upstream.ready.is_set() and is_listed:
                break

    def _call(self, kind: str, member: str, params: Message, ctx: Context) -> Message:
        """Pass on a call, under their name."""
        upstream, theirs = self._find(kind, params[member])
        params = {**params, member: theirs}
        if LOGIN in params.get("inputResponses", {}):  # it is an answer for us
            params.pop("inputResponses")
        return upstream.with_our_uris(upstream.call(ctx, params))

    def _complete(self, params: Message, ctx: Context) -> Message:
        """Pass on a completion, with their name of the prompt or template."""
        ref = params["ref"]
        if ref.get("type") == "ref/prompt":
            upstream, theirs = self._find("prompts", str(ref.get("name")))
            ref = {**ref, "name": theirs}
        else:
            upstream, theirs = self._find("resources", str(ref.get("uri")))
            ref = {**ref, "uri": theirs}
        client = upstream.client
        # The oldest revision has completions, but no capability for them.
        is_told = client and rules(client.version).has("completions capability")
        if client and is_told and "completions" not in client.capabilities:
            return {"completion": {"values": []}}
        return upstream.call(ctx, {**params, "ref": ref})

    def _find(self, kind: str, name: str) -> tuple[Upstream, str]:
        """Return the upstream of a tool, prompt or resource, and its name there."""
        for member in self.members:
            upstream = member.upstream
            mark = f"{upstream.prefix}__" if upstream.prefix else ""
            theirs = upstream.their_uri(name) if kind == "resources" else None
            if theirs is None and not name.startswith(mark):
                continue
            upstream.await_first()
            # Resources are found by their scheme, even if they are not listed.
            if theirs is not None:
                return upstream, theirs
            if upstream.client is None:
                return upstream, ""
        item = self.items[kind].get(name)
        if item is not None:
            return item.upstream, item.theirs
        if kind == "resources":
            raise NotFound
        raise RpcError(INVALID, f"Unknown {kind[:-1]}: {name[:200]}")

    def _watch(self, uri: str, ctx: Context) -> None:
        upstream, theirs = self._find("resources", uri)
        upstream.user_of(ctx)
        who = json.dumps(ctx.principal, sort_keys=True)
        if theirs in upstream.watched:
            return
        if list(upstream.watched.values()).count(who) < MAX_WATCHED:
            upstream.watched[theirs] = who
            if upstream.client is not None:
                upstream.listen(upstream.client, (theirs,))


def search_tools(tools: list[Message]) -> list[Message]:
    """Return the two tools that stand for many, with what they save."""
    size = len(json.dumps(tools))
    about = (
        f"Find tools, by words that their names or descriptions have: there are "
        f"{len(tools)} (their list has {size:,} bytes). Call one with call_tool."
    )
    name, arguments = {"name": TEXT}, {"arguments": OBJECT}
    return [
        {
            "name": "find_tools",
            "description": about,
            "inputSchema": {**OBJECT, "properties": {"query": TEXT}},
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "call_tool",
            "description": "Call a tool that find_tools has found.",
            "inputSchema": {
                **OBJECT,
                "required": ["name"],
                "properties": {**name, **arguments},
            },
        },
    ]


def find_tools(tools: list[Message], query: str) -> Message:
    """Return the definitions of the tools that have most of the words, as a result."""
    words = re.findall(r"\w+", query.lower())[:MAX_WORDS]

    def score(tool: Message) -> int:
        name, properties = tool["name"].lower(), tool["inputSchema"].get("properties")
        named = list(properties) if isinstance(properties, dict) else []
        said = f"{name} {tool.get('title')} {tool.get('description')} {named}".lower()
        return sum((word in said) + 2 * (word in name) for word in words)

    scores = [(score(tool), tool) for tool in tools]
    scores.sort(key=lambda pair: pair[0], reverse=True)
    best = [tool for points, tool in scores if points or not words]
    shown: list[str] = []
    for tool in best[:MAX_FOUND]:
        text = json.dumps(tool)
        if not shown or sum(map(len, shown)) + len(text) <= MAX_FOUND_BYTES:
            shown.append(text)
    head = f"{len(shown)} of {len(best)} tools that fit, of {len(tools)}:"
    return {"content": [{"type": "text", "text": "\n".join([head, *shown])}]}


def called_tool(given: Message) -> Message:
    """Return name and arguments in the arguments of call_tool."""
    name, arguments = given.get("name"), given.get("arguments", {})
    if isinstance(arguments, str):  # models write objects as text
        with contextlib.suppress(RpcError):
            arguments = decode(arguments.encode("utf-8", "replace"))
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise RpcError(INVALID, "call_tool: name must be a string, arguments an object")
    return {"name": name, "arguments": arguments}


LOGIN = "gateway-login"  # the key of our question to the user
STATE = "gateway-talk-"  # how our request state begins
QUESTIONS = {METHODS[name].capability for name in ASKING}  # of a client


class NeedsLogin(RpcError):
    """A user must log in to an upstream first; the message says how."""

    def __init__(self, upstream: Upstream, why: str) -> None:
        super().__init__(INTERNAL, why, {"server": upstream.name})
        self.upstream = upstream


def may_log_in(ctx: Context) -> bool:
    """Tell whether a client may log in to upstreams. The login is for all clients, so
    where they are told apart, it is the operator's."""
    return ctx.principal is None


def login_tool(upstream: Upstream) -> Message:
    """Return the tool that logs a user in to an upstream."""
    return {
        "name": name_of(upstream.prefix, "login"),
        "description": f"Log in to {upstream.name}, whose tools are missing until then.",
        "inputSchema": {"type": "object", "properties": {}},
    }


def log_in(upstream: Upstream, ctx: Context) -> Message:
    """Show the user a page to log in, and wait until they have; return a result of the
    tool, or the question for a modern client. NeedsLogin: it cannot show pages."""
    declared = ctx.client_capabilities.get("elicitation")
    can_visit = isinstance(declared, dict) and "url" in declared
    if not (can_visit and may_log_in(ctx)):
        raise NeedsLogin(upstream, f"{upstream.name}: {upstream.login.how}")
    question = elicitation(f"Log in to {upstream.name}", url=upstream.login.page())
    if not rules(ctx.version).modern:
        question["params"]["elicitationId"] = secrets.token_urlsafe(8)
        answer = ask(ctx, {"": question})[""]
    else:
        answers = ctx.params.get("inputResponses", {})
        if LOGIN not in answers:
            asked = {LOGIN: question}
            return {"resultType": "input_required", "inputRequests": asked}
        answer = answers[LOGIN]
    problem = "declined"
    if isinstance(answer, dict) and answer.get("action") == "accept":
        problem = upstream.login.await_end()
    else:
        upstream.login.give_up()
    said = f"Not logged in: {problem}" if problem else "Logged in"
    block = {"type": "text", "text": f"{said} ({upstream.name})"}
    return {"content": [block], "isError": bool(problem)}


class Paths(Endpoint):
    """The endpoint of the first profile; other paths lead to other profiles."""

    def __init__(
        self, profiles: list[Profile], hosts: tuple[str, ...] | None, **options: Any
    ) -> None:
        first, *others = profiles
        options = {"sse_on_get": True, "hosts": hosts, **options}
        super().__init__(first, first.path, **options)
        self.others = [Endpoint(one, one.path, **options) for one in others]

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


# ==== 5. The file =============================================

NAMED_STRINGS: Message = {**OBJECT, "additionalProperties": TEXT}
USER = {
    **OBJECT,
    "additionalProperties": False,
    "properties": {"headers": NAMED_STRINGS, "env": NAMED_STRINGS},
}
# What is ours in the entry of a server; host_files.py reads the rest.
SERVER = Schema(
    {
        "type": "object",
        "properties": {
            "revision": {"enum": versions()},
            "session": {"enum": ["shared", "client"]},
            "forward": TEXTS,
            "users": {**OBJECT, "additionalProperties": USER},
            "maxBytes": {"type": "integer", "minimum": 1000},
        },
    }
)
PROFILE = {
    "type": "object",
    "required": ["servers"],
    "properties": {
        "servers": {"anyOf": [TEXTS, {**OBJECT, "additionalProperties": TEXTS}]},
        "rename": {**OBJECT, "additionalProperties": NAMED_STRINGS},
        "search": FLAG,
    },
}
CONFIG = Schema(
    {
        "type": "object",
        "properties": {
            "profiles": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "patternProperties": {"^[A-Za-z0-9_-]+$": PROFILE},
            },
            "clients": {
                "type": "object",
                "required": ["keys"],
                "properties": {"keys": NAMED_STRINGS, "header": TEXT},
            },
        },
    }
)


class Setup(NamedTuple):
    """What a file describes; `authorize`: a hook for Endpoint, or None."""

    upstreams: dict[str, Upstream]
    profiles: dict[str, Profile]
    authorize: Any = None


def read_config(target: str) -> Setup:
    """Make the upstreams and profiles in a file, or the only ones for a URL.

    ValueError or OSError: it is invalid. A server that is not described well costs only
    itself, with a line in the log.
    """
    if "://" in target:
        return configure_one(target)
    try:
        import host_files
    except ImportError:
        raise ValueError("to read files, copy host_files.py beside this") from None
    path = Path(target)
    content = host_files.load(path)
    if (flaw := CONFIG.flaw(content)) is not None:
        raise ValueError(flaw)
    clients = content.get("clients", {})
    header = clients.get("header", "Authorization")
    keys = {expanded(key): name for key, name in clients.get("keys", {}).items()}
    servers = {}
    for entry in host_files.entries(content, path, note, host_files.host_of(path)):
        try:
            if entry.enabled and entry.name not in servers:
                servers[entry.name] = options_of(entry, header, {*keys.values()})
        except ValueError as problem:
            note(f"{problem}; it is left out")
    if not servers:
        raise ValueError("it has no usable servers")
    setup = configure(servers, content.get("profiles"), entry_names(content))
    return setup._replace(authorize=bearer(keys, header) if keys else None)


def entry_names(content: Message) -> set[str]:
    """Return the names of all servers in a file, usable or not."""
    tables = [content.get(name) for name in ("servers", "mcpServers", "mcp_servers")]
    return {name for table in tables if isinstance(table, dict) for name in table}


def expanded(text: str) -> str:
    """Return a text with its variables, ${NAME}; ValueError if one is not set."""

    def value(found: re.Match[str]) -> str:
        if not os.environ.get(found[1]):
            raise ValueError(f"the variable {found[1]} is not set")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)


def users_of(entry: host_files.Entry, known: set[str]) -> Message:
    """Return the credentials of each user, expanded; ValueError if one cannot be used.
    `known`: the principals of the clients."""
    users: Message = entry.raw["users"]
    unknown = ", ".join(users.keys() - known)
    if unknown:
        raise ValueError(f"/users: {unknown} must be among the clients")
    kind = "env" if entry.command else "headers"
    found: Message = {}
    for user, given in users.items():
        if given.keys() != {kind}:
            raise ValueError(f"/users/{user} must have {kind}, and nothing else")
        values = {name: expanded(value) for name, value in given[kind].items()}
        found[user] = {kind: values}
    return found


def options_of(entry: host_files.Entry, key_header: str, known: set[str]) -> Message:
    """Return the options of an upstream; ValueError if an entry cannot be used.
    `known`: the principals of the clients."""
    entry = entry.expanded(problem=note)
    where = f"{entry.path}: server {entry.name!r}: "
    if (flaw := SERVER.flaw(entry.raw)) is not None:
        raise ValueError(where + flaw)
    for name in entry.raw.get("forward", []):
        if OURS.fullmatch(name.lower()) or name.lower() == key_header.lower():
            raise ValueError(f"{where}the header {name} is never forwarded")
    ours = ("revision", "session", "forward", "maxBytes")
    options = {name: entry.raw[name] for name in ours if name in entry.raw}
    if "users" in entry.raw:
        try:
            options["users"] = users_of(entry, known)
        except ValueError as problem:
            raise ValueError(f"{where}{problem}") from None
    options.update(raw=entry.raw, env=dict(entry.env), cwd=entry.cwd)
    options.update(include=entry.include, exclude=list(entry.exclude))
    options.update(timeout=entry.timeout, headers=dict(entry.headers))
    # A host's own time for a call counts for the start, too, if it is longer.
    options["startup"] = entry.startup or max(START_SECONDS, entry.timeout or 0)
    if entry.command:
        return {**options, "command": list(entry.command)}
    if not ADDRESS.match(entry.url):
        raise ValueError(f"{where}url must begin with http(s)://HOST[:PORT]")
    return {**options, "url": entry.url, "sse": entry.kind == "sse"}


def configure_one(url: str) -> Setup:
    """Make one upstream, whose names stay as they are."""
    if not ADDRESS.match(url):
        raise ValueError("expected a file or an http(s) URL")
    name = bare(url)
    upstream = Upstream(name, {"url": url}, prefix="")
    return Setup({name: upstream}, {"all": Profile("all", [(upstream, ["*"])])})


def configure(
    servers: dict[str, Message], profiles: Message | None, known: set[str]
) -> Setup:
    """Make the upstreams and profiles of a configuration that fits CONFIG. `known`: the
    names of servers, also of those that are left out."""
    upstreams: dict[str, Upstream] = {}
    for name, options in servers.items():
        taken = [one.prefix for one in upstreams.values()]
        upstreams[name] = Upstream(name, options, prefix_of(name, taken))
    made = {}
    everything: Message = {"all": {"servers": list(upstreams)}}
    for name, one in (profiles or everything).items():
        chosen: Any = one["servers"]
        rename: dict[str, dict[str, str]] = one.get("rename", {})
        if not {*chosen, *rename} <= known:
            raise ValueError(
                f"/profiles/{name}: servers must be among " + ", ".join(sorted(known))
            )
        if not isinstance(chosen, dict):
            chosen = dict.fromkeys(chosen, ["*"])
        for ours in [ours for names in rename.values() for ours in names.values()]:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,%d}" % MAX_NAME, ours):
                raise ValueError(f"/profiles/{name}/rename: {ours!r} is not a name")
        members = [(upstreams[one], chosen[one]) for one in chosen if one in upstreams]
        made[name] = Profile(name, members, rename, one.get("search", False))
    return Setup(upstreams, made)


def close_all(upstreams: Iterable[Upstream]) -> None:
    """End all connections at the same time."""
    threads = [thread for upstream in upstreams for thread in upstream.leave()]
    end = time.monotonic() + CLOSE_SECONDS
    for thread in threads:
        if thread.is_alive():  # a keeper may not have been started
            thread.join(max(0.0, end - time.monotonic()))


# ==== 6. The command line =====================================


def main() -> None:
    """Run the command line."""
    options, parser = parse()
    host, _, port = (options.http or "0").rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        parser.error(f"--http must be [HOST:]PORT, not {options.http!r}")
    shown = bare(str(options.config))
    try:
        setup = read_config(str(options.config))
    except (OSError, ValueError) as problem:
        parser.error(f"{shown}: {problem}")
    profile = setup.profiles.get(options.profile or next(iter(setup.profiles)))
    if profile is None:
        parser.error("--profile must be one of " + ", ".join(setup.profiles))

    mcp_client.CLOSE_STEP_SECONDS = STEP_SECONDS
    # Until mcp_ref takes them, a signal is a KeyboardInterrupt.
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        for upstream in setup.upstreams.values():
            upstream.keeper.start()
        if options.http is None:
            profile.run([])
        else:
            serve(setup, host.strip("[]") or "127.0.0.1", int(port))
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, OverflowError) as problem:
        parser.error(f"--http {options.http}: {problem}")
    finally:
        # A second signal, which hosts send soon, would leave upstreams behind.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        close_all(setup.upstreams.values())


def serve(setup: Setup, host: str, port: int) -> None:
    """Serve all profiles over HTTP."""
    hosts = LOOPBACK if host in LOOPBACK else None
    profiles = list(setup.profiles.values())
    paths = Paths(profiles, hosts, authorize=setup.authorize)
    note("serves " + ", ".join(one.path for one in profiles))
    serve_http(paths.server, host, port, endpoint=paths)


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
