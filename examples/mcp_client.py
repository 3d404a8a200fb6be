# mcp_client.py 2.0.0: an MCP client in one file, on mcp_ref.py.
# Changes, and the SHA-256 of each release: .github/CHANGELOG.md.
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
# For linters
# ruff: noqa: PGH004
# ruff: noqa
# flake8: noqa
# pylint: skip-file
# pyright: basic, reportArgumentType=false, reportCallIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportUnsupportedDunderAll=false
"""A client for Model Context Protocol servers.

It starts a server from a command, or connects to a URL, in every published revision.
It imports mcp_ref.py, so copy both. mcp_cli.py is its command.

    from mcp_client import connect
    with connect(["python3", "server.py"]) as client:  # or a URL, or a Server object
        print([tool["name"] for tool in client.list_tools()])
        print(client.call_tool("add", {"a": 2, "b": 3})["content"][0]["text"])

Since 2026-07-28 (*modern*) each request carries version and capabilities in its
`_meta`; up to 2025-11-25 (*legacy*) `initialize` opens a session.

The path of a call, from its caller to the bytes and back:

    Client.call_tool        the params of a method, and the shape of its result
    Client.request          answers the server's questions, retries
    Client._exchange        one message out, one response back
    Transport.send          returns at once; another thread writes the message
    Client.receive          on the thread that reads: which kind of message, and whose
    Request.settle          into the inbox of its request
    Request.next            the caller's thread, which waits there

Methods of Client block the caller. These threads do the rest:

    mcp-write, mcp-read     all messages to and from a server on stdio
    mcp-stderr, mcp-watch   its stderr; its exit
    mcp-call                one message to a Server in this process
    mcp-post                one POST (or DELETE), and the stream that answers it
    mcp-stream              [legacy] the stream of a session over HTTP
    mcp-answer              [legacy] one question from the server
    mcp-listen              the callback of one subscription

In an asyncio program, await asyncio.to_thread(client.call_tool, ...); guide.md shows
how to cancel. A callback may be a coroutine function: each call has its own loop.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import string
import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import import_module
from itertools import count
from math import inf
from pathlib import Path
from queue import SimpleQueue
from select import select
from threading import Event, Lock, RLock, Thread, Timer
from time import monotonic
from typing import Any, Optional
from urllib.parse import quote, unquote, urljoin, urlsplit

try:
    import mcp_ref  # noqa: F401
except ImportError:
    if __package__:  # vendored in a package
        sys.modules["mcp_ref"] = import_module(".mcp_ref", __package__)
    else:  # in the checkout
        sys.path.append(str(Path(__file__).resolve().parents[1]))
from mcp_ref import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MAX_MESSAGE_BYTES,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_SUBSCRIPTION,
    METHOD_NOT_FOUND,
    METHODS,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    AskError,
    HttpError,
    Peer,
    RpcError,
    Schema,
    Server,
    decode,
    encode,
    is_id,
    kind_of,
    meta_for,
    mirror,
    printable,
    rules,
    versions,
)

__version__ = "2.0.0"
__all__ = """
    CALL_SECONDS CLOSE_STEP_SECONDS COURTESY_SECONDS IDLE_SECONDS LOGIN_SECONDS
    LONGEST_SECONDS MAX_CHANGE MAX_COOKIE_BYTES MAX_FIELDS MAX_IDLE MAX_LAST_TEXT
    MAX_LIST_BYTES MAX_PAGES MAX_QUESTIONS MAX_REDIRECTS MAX_RETRIES MAX_ROUNDS
    MAX_STUCK_PAGES MAX_UNREAD PROBE_SECONDS RETRY_SECONDS Client Disconnected
    HttpTransport Malformed MemoryTransport Request RequestCancelled ServerLacks
    StdioTransport Subscription Transport connect fetch merge_headers url_warnings
""".split()


# ==== 1. Limits and exceptions ================================
# All that a server sends is bounded, and an invalid message fails only its own call.
# RpcError is the server's error; other exceptions are local and carry no code.

# ---- of a request
CALL_SECONDS = 60  # default timeout of a request
LONGEST_SECONDS = 3600  # default limit when progress extends the timeout
MAX_ROUNDS = 10  # rounds of questions in one request
# Questions in one result; of a legacy server, open at a time, and MAX_LIST_BYTES
# together: more are ignored.
MAX_QUESTIONS = 64
MAX_FIELDS = 1000  # of a form
COURTESY_SECONDS = 2.0  # timeout of a message that connecting can do without

# ---- of a list
MAX_PAGES = 1000
MAX_STUCK_PAGES = 3  # one after another, without a new item
MAX_LIST_BYTES = 8 * MAX_MESSAGE_BYTES  # all pages together, decoded

# ---- of a subscription
MAX_UNREAD = 1000  # changes kept for its reader
MAX_CHANGE = 2**14  # bytes of memory of each, unless no other waits

# ---- of a server on stdio
# Until it answers: npx and uvx install it first.
PROBE_SECONDS = 10
# Until it exits, and again after SIGTERM.
CLOSE_STEP_SECONDS = 2.0
MAX_LAST_TEXT = 4000  # characters of its stderr, quoted when it exits

# ---- of HTTP
MAX_REDIRECTS = 3  # of one HTTP request; as many calls of `authorize`
LOGIN_SECONDS = 300  # for a person who logs in, beyond the timeout
MAX_IDLE = 4  # HTTP connections kept
IDLE_SECONDS = 4  # ... this long: many servers close them after 5 s
MAX_COOKIE_BYTES = 2**14  # of all cookies together
# Before a stream is opened again, or a request repeated, unless the server says when.
RETRY_SECONDS = 1.0
MAX_RETRIES = 2  # after 502, 503 or 504, with pauses that double

Message = dict[str, Any]
Hook = Optional[Callable[..., Any]]


class Disconnected(ConnectionError):
    """The server cannot be reached, does not speak MCP, or has disconnected.

    `exit_status`: of a process that has ended, if it is known."""

    exit_status: Any = None


class _SessionLost(Disconnected):
    """[legacy] The server no longer knows our session."""


class Malformed(Exception):
    """The server violated the protocol; its answer cannot be used."""


class ServerLacks(Exception):
    """The server did not declare the capability that this method needs."""


class RequestCancelled(Exception):
    """Someone called cancel() on this request."""


# Failures of a request, except our own.
_FAILURES = (RpcError, HttpError, OSError, Malformed)


# ==== 2. Checks of the server's data ==========================


def _object(value: Any, *names: str) -> Message:
    """Return a value, or its member at any depth, if it is an object, else {}."""
    for name in names:
        value = _object(value).get(name)
    return value if isinstance(value, dict) else {}


def _member(value: Any, name: str, kind: type) -> Any:
    """Return a member of an object; Malformed if it is missing or of another type."""
    if type(_object(value).get(name)) is not kind:  # true is not an int
        raise Malformed(f"the server sent no valid {name}: {value!r:.200}")
    return value[name]


def size_of(value: Message) -> int:
    """Return the bytes of memory that JSON takes, about: each value up to 200."""
    text = str(value)  # encode() refuses some that decode() takes
    return len(text) + 200 * sum(map(text.count, ",[{"))


def _check_texts(value: Any, *names: str) -> None:
    for name in names:
        _member(value, name, str)


def _result(response: Message) -> Any:
    """Return the result of a response, or raise its error."""
    error = response.get("error")
    if error is None:
        return _member(response, "result", dict)
    code = _member(error, "code", int)
    raise RpcError(code, f"{error.get('message', '')!s:.10000}", error.get("data"))


def _answered_id(data: bytes) -> int:
    """Return the id of a response that cannot be decoded; 0 if its ends do not show it.
    A question's id is the server's."""
    response = (
        rb'\{(?:"jsonrpc": ?"2\.0", ?|"id": ?(\d{1,15}), ?)*"(?:result|error)"'
        rb'(?:.*, ?"id": ?(\d{1,15})(?:, ?"jsonrpc": ?"2\.0")?\}\s*$)?'
    )
    found = re.match(response, data[:100] + data[-50:], re.DOTALL)
    return int(found[1] or found[2] or 0) if found else 0


def _thread(name: str, target: Any, *arguments: Any) -> None:
    Thread(target=target, args=arguments, name=name, daemon=True).start()


def _called(function: Any, *arguments: Any) -> Any:
    """Call a callback; it may be async, or take only the first argument."""
    import asyncio
    import inspect

    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind <= one.POSITIONAL_OR_KEYWORD and one.default is one.empty
    ]
    result = function(*arguments[: max(1, len(needed))])
    return asyncio.run(result) if inspect.iscoroutine(result) else result


# ---- forms of elicitations

# The keywords of a form's fields that are checked. A `pattern` may take for ever.
_FIELD = """
    type minLength maxLength minimum maximum enum const items minItems maxItems
""".split()


def _known_keywords(part: Message) -> Message:
    """Return a part of a form without other keywords; choices with titles become an
    `enum`: client/elicitation §Requested Schema."""
    known = {name: part[name] for name in _FIELD if name in part}
    for name in ("oneOf", "anyOf"):
        choices = part.get(name, [{}])
        if all("const" in one for one in choices):
            known["enum"] = [one["const"] for one in choices]
    return known


def _form(form: Message) -> tuple[Message, Schema]:
    """Return the fields of a form, and the schema of its content.

    Any exception: the form is wrong."""
    fields = form["properties"]
    if len(fields) > MAX_FIELDS:
        raise ValueError(f"the form has {len(fields)} fields")
    # Decoding calls the hook for each object, from the innermost outwards.
    known = json.loads(json.dumps(list(fields.values())), object_hook=_known_keywords)
    return fields, Schema(
        {
            "type": "object",
            "properties": dict(zip(fields, known)),
            "additionalProperties": False,
            "required": list(map(str, form.get("required", []))),
        }
    )


def _roots(given: Any) -> Message:
    """Return the result of roots/list; ValueError if a root is wrong (client/roots)."""
    if isinstance(given, (str, Path, dict)):
        given = [given]
    roots = []
    for root in given or []:
        if not isinstance(root, dict):
            uri = str(root)
            if "://" not in uri:
                uri = Path(os.path.abspath(uri)).as_uri()
            root = {"uri": uri}
        uri = str(root["uri"])
        if not uri.startswith("file://") or ".." in unquote(uri).split("/"):
            raise ValueError(
                f"a root must be a folder, or a file: URI without ..: {uri}"
            )
        roots.append(root)
    return {"roots": roots}


# ---- arguments that HTTP repeats in headers


def _marked(schema: Any, value: Any) -> Iterator[Any]:
    """Yield header, type and value of each argument with an x-mcp-header, at any
    depth."""
    for name, part in _object(schema, "properties").items():
        inner = _object(value).get(name)
        if "x-mcp-header" in _object(part):
            yield part["x-mcp-header"], part.get("type"), inner
        yield from _marked(part, inner)


def _mirrors(schema: Any, arguments: Any) -> Message:
    """Return the headers that repeat arguments; Malformed if the schema has an invalid
    one. (basic/transports/streamable-http §Custom Headers from Tool Parameters)"""
    marked = list(_marked(schema, arguments))
    names = {
        name.lower()
        for name, json_type, _ in marked
        if type(name) is str
        and json_type in ("string", "integer", "boolean")
        and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
    }

    # One below `items`, with a wrong type or name, or a name that another has, is in
    # the text but not among the names.
    if len(names) != json.dumps(schema).count('"x-mcp-header":'):
        raise Malformed(
            "each x-mcp-header must be a unique name of a string, integer or boolean"
        )
    return {
        f"Mcp-Param-{name}": mirror(value)
        for name, _, value in marked
        if value is not None
    }


# ---- headers

# The transport depends on these: a user may not set them.
_FIXED_HEADERS = """
    accept accept-encoding connection content-length content-type last-event-id
    transfer-encoding
""".split()


def merge_headers(*parts: Message) -> Message:
    """Merge dicts of headers. A later header replaces an earlier one in any case."""
    found = {name.lower(): (name, part[name]) for part in parts for name in part}
    return dict(found.values())


def _check_headers(headers: Message) -> Message:
    """Return a user's headers; ValueError if one of them cannot be sent."""
    for name, value in headers.items():
        if name.lower() in _FIXED_HEADERS or name.lower().startswith("mcp-"):
            raise ValueError(f"the client itself sets the header {name}")
        if not f"{name}{value}".isascii():
            raise ValueError(f"the header {name!r} must be ASCII")
    return headers


# ---- URLs


def _shown(url: str) -> str:
    """Return a URL for a message: without user, password and query."""
    return re.sub("//[^/]*@", "//", re.split("[?#]", url)[0])[:200]


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an http or https URL; ValueError for others."""
    parts = urlsplit(url)
    ports = {"http": 80, "https": 443}
    if parts.scheme not in ports or not parts.hostname or "@" in parts.netloc:
        raise ValueError(
            "expected an http(s) URL without a password (for a program, a list: "
            f"[sys.executable, 'server.py']); found {_shown(url)}"
        )
    return parts.scheme, parts.hostname, parts.port or ports[parts.scheme]


def _proxy(text: str) -> tuple[Any, Message]:
    """Return address and headers of a proxy; ValueError if it is not an HTTP proxy."""
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            "a proxy must be http://[USER:PASSWORD@]HOST:PORT (SOCKS is not "
            f"supported); found {_shown(url)}"
        )
    headers = {}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        code = b64encode(pair.encode()).decode()
        headers["Proxy-Authorization"] = f"Basic {code}"
    return (parts.hostname, parts.port or 80), headers


def _check_url(url: Any) -> None:
    """ValueError if a URL that a server sends to a user is not plain."""
    if not re.fullmatch(r"https?://[!-\[\]-~]{1,4000}", str(url)):
        raise ValueError("url must be http(s), printable ASCII, without a backslash")
    _origin(url)


def url_warnings(url: str, server_url: str = "") -> list[str]:
    """Return warnings for the user, before a URL from a server is opened."""
    scheme, host, _ = _origin(url)
    warnings = []
    if server_url and host != _origin(server_url)[1]:
        warnings.append(f"it leads to {host}, not to the server's host")
    if "xn--" in host:
        warnings.append(f"{host} has letters that may look like others")
    if scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        warnings.append("your input there is not encrypted")
    return warnings


# ==== 3. A request ============================================
# Progress, the response and exceptions all arrive in the request's inbox. Only the
# caller's thread waits on it, and only in next(), so every wait ends at the deadline.


class Request:
    """A request. Any thread may cancel() it.

    A notification, or an answer to a server's question, has `response=False`: it is
    settled when it is sent.

    state       true once ...                               set by
    settled     its response, or an exception in its        settle(), on the thread
                place, has arrived                          that reads or posts
    ended       the server has answered it, or its          settle()
                connection has ended
    cancelled   it was given up                             cancel(), on any thread
    over        the caller waits no longer; the             Client._finish(), on the
                thread that posts ends                      caller's

    It may be both settled and cancelled: next() checks `cancelled` first. No lock is
    needed: flags are never cleared, and a deque is thread-safe.

    `tag`: see connect(); other options: see Client.request(). `deadline`: the time at
    which next() gives up; progress moves it, until `last`, and so does a login."""

    def __init__(
        self,
        client: Client,
        method: str,
        timeout: Any = None,
        tag: Any = None,
        on_progress: Any = None,
        extend: bool = False,
        longest: float = LONGEST_SECONDS,
        response: bool = True,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            raise TypeError(
                f"{method} has no option {name}=; a tool's or prompt's arguments are a"
                " dict: call_tool('add', {'a': 2})"
            )
        self.client = client
        self.id = next(client.ids)
        self.method = method
        self.tag = tag
        self.response = response
        self.on_progress = on_progress
        self.extend = extend
        self.timeout = client.timeout if timeout is None else timeout
        self.last = monotonic() + longest
        self.deadline = min(monotonic() + self.timeout, self.last)
        # [legacy] True if Client.request() repeats it in another session.
        self.reopens = False
        self.refused = False  # [modern] true if the status of its POST is an error

        self.settled = False
        self.ended = False
        self.cancelled = False
        self.over = Event()
        self.inbox: Any = deque()
        # Free while the inbox may have something new. After a signal handler has called
        # cancel(), a queue may hang.
        self._news = Lock()

        # ---- over HTTP only
        self.message: Any = None  # dropped when it is over: connecting may take long
        self.wire: Any = None
        self.last_id = ""  # of the last event of its stream that had an id
        self.retry = RETRY_SECONDS  # pause before its stream is opened again ...
        self.slower = 1  # ... times this, which doubles while it brings nothing

    def put(self, *items: Any) -> None:
        """Deliver messages, and have next() look up; a signal handler may, too."""
        self.inbox.extend(items)
        # It is free already: next() has yet to see the items before these.
        with suppress(RuntimeError):
            self._news.release()

    def settle(self, outcome: Any, ended: bool = False) -> None:
        """Deliver the response, or an exception in its place."""
        self.ended |= ended
        self.settled = True
        if not self.response:
            self.client.running.pop(self.id, None)
        self.put(outcome)

    def cancel(self) -> None:
        """Cancel: the caller gets RequestCancelled, and the server is notified."""
        self.cancelled = True
        self.put()

    def hang_up(self) -> None:
        """End the request's exchange over HTTP, if it is still its own."""
        wire = self.wire  # another thread may take it away
        if wire:
            wire.hang_up(self)

    def next(self) -> Any:
        """Return the next message, or raise the exception in its place."""
        while True:
            if self.cancelled:
                raise RequestCancelled(f"{self.method} was cancelled")
            left = self.deadline - monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"no answer to {self.method} within {self.timeout:g} s"
                    f"{self.client.stray}"
                )
            if self.inbox:
                item = self.inbox.popleft()
                if isinstance(item, BaseException):
                    raise item
                return item
            # At most a second: the deadline may move, and a signal just before this
            # wait does not end it (Python 3.9).
            self._news.acquire(timeout=min(left, 1))

    def wait(self) -> Any:
        """Return the response; report progress until it comes."""
        while True:
            message = self.next()
            if "method" not in message:
                return message
            if self.extend:  # basic/patterns/cancellation §Timeouts
                self.deadline = min(monotonic() + self.timeout, self.last)
            if self.on_progress and message["method"] == "notifications/progress":
                self.on_progress(
                    *map(message["params"].get, ("progress", "total", "message"))
                )


# ==== 4. Transports: in this process, and stdio ===============


class Transport:
    """The base of transports. Each has start(), to connect or raise Disconnected;
    stop(), which start() may follow; and send(message, request), which does not wait,
    on any thread."""

    client: Client  # set by the client
    up = False  # true while it is started, and not lost since
    # True while the server has served nothing: it was not reached, exited without
    # reading, or wants a login.
    unread = False
    # True if headers repeat parts of the body, and hanging up cancels.
    mirrors = False
    only_sse = False  # [legacy] True if the server speaks HTTP+SSE
    unsent: Any = {}  # lines, by id; Client._finish() takes one back

    def listen(self) -> None:
        """[legacy] Let the server send messages that belong to no request."""

    def say(self, line: str) -> None:
        """Print a line on stderr, without control sequences."""
        print(printable(line), file=sys.stderr)

    def _receive(self, *arguments: Any) -> None:
        """Pass a message to the client; report other text, and callbacks that fail."""
        try:
            self.client.receive(*arguments)
        except Exception as problem:
            self.say(repr(problem))

    def _run(self, name: str, request: Request, work: Any) -> None:
        """Do a request's work on a thread; an exception settles it."""

        def run() -> None:
            try:
                work()
                if not request.response:
                    request.settle({})
            except BaseException as problem:  # raised in the waiting thread
                request.settle(problem)
            self._release(request)

        _thread(name, run)

    def _release(self, request: Request) -> None:
        """Free the connection of a request."""


class MemoryTransport(Transport):
    """A Server in this process. Each message has a thread, so calls can time out."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def start(self) -> None:
        self.peer = Peer(self._deliver)
        self.up = True

    def stop(self) -> None:
        if self.up:
            self.up = False
            self.peer.close()

    def _deliver(self, message: Any) -> None:
        self.client.receive(encode(message))  # a copy, as a real connection makes

    def send(self, message: Message, request: Request) -> None:
        self._run(
            "mcp-call",
            request,
            lambda: self.server.handle(
                decode(encode(message)), self._deliver, peer=self.peer
            ),
        )


# The environment variables that a server inherits: no secrets.
_INHERITED = """
    APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LC_CTYPE LOCALAPPDATA LOGNAME
    PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE SYSTEMROOT TEMP TERM TMP TMPDIR TZ
    USER USERNAME USERPROFILE WINDIR
""".split()


def _lines(file: Any) -> Iterator[bytes]:
    """Yield the lines of a file; one that is too long lacks its middle."""
    most = MAX_MESSAGE_BYTES + 1
    for line in iter(lambda: file.readline(most), b""):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(most)
            line = line[:most] + rest[-50:]
        yield line


def _kill(process: Any, name: str) -> None:
    """Send a signal to a server and its children; on Windows, end the server."""
    with suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


def _left_unread(process: Any) -> bool:
    """Tell whether a process left our message unread (on Linux; elsewhere rarely)."""
    try:
        import fcntl
        import termios

        return any(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))
    except ValueError:  # it is closed: writing to it failed
        return True
    except (ImportError, OSError):
        return False


class StdioTransport(Transport):
    """A server that we start: basic/transports/stdio. `env`: variables in addition to
    _INHERITED.

    state       process   up      ends with
    stopped     None      False   start()
    serving     a Popen   True    _lose(): a pipe broke, or it exited; stop()
    lost        a Popen   False   stop(), which start() calls first

    Each process has: `wrote`, true once it was sent something; `loss`, the exception
    for later calls; `outgoing`, keys of `unsent`; `exited`; `ended` and `silent`, set
    at the end of its stdout and its stderr. Its four threads get it as an argument:
    `process` may be the next. `lock` guards `up`."""

    process: Any = None

    def __init__(
        self, command: Iterable[str], env: Any = None, cwd: Any = None
    ) -> None:
        self.command = list(command)
        self.cwd = cwd
        self.env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self.env.update(env or {})
        self.lock = RLock()

    def start(self) -> None:
        import shutil
        from subprocess import PIPE, Popen

        self.stop()
        self.wrote = False
        self.unread = False
        self.loss = Disconnected("the server is gone")
        self.outgoing: Any = SimpleQueue()
        self.unsent = {}
        self.exited = Event()
        self.ended = Event()
        self.silent = Event()
        self.last_text = ""  # the end of its stderr
        try:
            # On Windows, which() finds npx.cmd.
            path = shutil.which(self.command[0], path=self.env.get("PATH"))
            process = self.process = Popen(
                [path or self.command[0], *self.command[1:]],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as problem:
            raise Disconnected(f"cannot start {self.command}: {problem}") from None
        self.up = True
        _thread("mcp-watch", self._watch, process)
        _thread("mcp-stderr", self._forward, process)
        _thread("mcp-read", self._read, process)
        _thread("mcp-write", self._write, process, self.outgoing)

    def send(self, message: Message, request: Request) -> None:
        self.unsent[request.id] = encode(message)
        self.outgoing.put(request.id)
        if not self.up:  # if it dies after this, lost() finds the request
            raise self.loss

    def _write(self, process: Any, outgoing: Any) -> None:
        """Write lines; a slow server can block this thread."""
        with suppress(OSError), process.stdin as pipe:
            for ident in iter(outgoing.get, None):
                pipe.write(self.unsent.pop(ident, b""))
                pipe.flush()
                self.wrote = True
                request = self.client.running.get(ident)
                if request and not request.response:
                    request.settle({})
        self._lose(process)

    def _read(self, process: Any) -> None:
        """Read lines until the output ends."""
        ended = self.ended
        with process.stdout:
            for line in _lines(process.stdout):
                if line.strip():
                    self._receive(line)
        ended.set()
        self._lose(process)

    def _forward(self, process: Any) -> None:
        """Pass on its stderr."""
        with process.stderr:
            for line in _lines(process.stderr):
                text = line.decode("utf-8", "replace").rstrip()
                self.last_text = f"{self.last_text}{text}\n"[-MAX_LAST_TEXT:]
                self.say(text)
        self.silent.set()

    def _watch(self, process: Any) -> None:
        """Wait for the server to exit."""
        process.wait()
        _kill(process, "SIGKILL")  # its children
        self.exited.set()
        self._lose(process)

    def _lose(self, process: Any) -> None:
        """Fail pending calls, quoting the end of the server's stderr."""
        # Its answers may be read after its end; another process may keep stdout open.
        if self.exited.wait(1):
            self.ended.wait(CLOSE_STEP_SECONDS)
            self.silent.wait(CLOSE_STEP_SECONDS)
        with self.lock:
            if self.up and process is self.process:
                self.unread = not self.wrote or _left_unread(process)
                self.loss = Disconnected(
                    f"the server is gone (exit status {process.poll()})\n"
                    f"{self.last_text.rstrip()}"
                )
                self.loss.exit_status = process.returncode
                self.up = False
                self.client.lost(self.loss)

    def stop(self) -> None:
        """Close stdin, then end the server: basic/transports/stdio §Shutdown."""
        process = self.process
        with self.lock:
            self.up = False
        if process:
            self.outgoing.put(None)
            try:
                for step in ("SIGTERM", "SIGKILL"):
                    if not self.exited.wait(CLOSE_STEP_SECONDS):
                        _kill(process, step)
            except BaseException:  # a second Ctrl-C leaves no process behind
                _kill(process, "SIGKILL")
                raise

            self.process = None
            self.exited.wait(CLOSE_STEP_SECONDS)
            self.silent.wait(CLOSE_STEP_SECONDS)


# ==== 5. Transports: HTTP =====================================
# Each message is a POST on its own thread, which may block; the caller hangs up at the
# deadline. [legacy] A session has a stream, opened by GET; HTTP+SSE has no other.
# It goes through _post(), _open(), _send() and _Wire.exchange().


# Repeated while a server restarts: they only read.
_REPEATED = """
    initialize ping prompts/list resources/list resources/templates/list server/discover
    tools/list
""".split()


_STREAM_END = b"\r\n0\r\n\r\n"  # after the last chunk


class _Wire:
    """An HTTP connection, for one exchange after another.

    state    owner       true while ...
    in use   a Request   that request's thread sends, and reads the response
    kept     None        it waits in HttpTransport.idle for another request
    ended                nothing: it is dropped, and never used again

    `lock` guards `owner`: any thread may call hang_up() for the owner, which must not
    end the next owner's exchange. All else is done by the owner's thread.

    exchange() sets `status`, `headers` (names in lower case), `is_stream`, `body`."""

    owner: Any = None
    place: Message  # Client.record() shows it for the exchange
    since = 0.0  # the time when it was last kept; 0 in its first exchange
    sent = False  # true once all of this exchange's request has been sent
    session = ""  # the session that the request named
    response: Any = None  # http.client's, once the head has come

    def __init__(self, url: str, tls: Any, timeout: float, proxy: Any) -> None:
        from urllib.request import getproxies, proxy_bypass

        scheme, host, port = _origin(url)
        self.host = host  # as errors name it
        self.route = ""  # ... and the proxy
        self.lock = Lock()
        self.prefix = ""  # of a path, for a proxy that must see the whole URL
        self.credentials = {}  # headers for such a proxy
        with self.failing():
            if proxy is None and not proxy_bypass(urlsplit(url).netloc):
                proxy = getproxies().get(scheme)
            address = (host, port)
            if proxy:
                address, credentials = _proxy(proxy)
                how = "" if credentials else ", without a password"
                self.route = f" (through the proxy {address[0]}{how})"

            if scheme == "http":
                self.connection = HTTPConnection(*address, timeout=timeout)
                if proxy:
                    self.prefix = f"http://{urlsplit(url).netloc}"
                    self.credentials = credentials
            else:
                self.connection = HTTPSConnection(
                    *address, timeout=timeout, context=tls
                )
                if proxy:
                    self.connection.set_tunnel(host, port, credentials)
            self.connection.connect()
            self.socket = self.connection.sock

    @contextmanager
    def failing(self, kind: Any = Disconnected) -> Iterator[None]:
        """Raise `kind` for a broken connection or URL."""
        try:
            yield
        except (OSError, HTTPException, ValueError) as problem:
            # http.client quotes the value of an invalid header: a secret.
            text = str(problem).partition(" value b")[0]
            raise kind(
                f"{self.host}{self.route}: {text or type(problem).__name__}"
            ) from None

    def exchange(
        self, verb: str, url: str, headers: Message, body: Any, stream: bool = True
    ) -> None:
        """Send a request, and read the response, except the body of a stream, if it
        may be a `stream`."""
        target = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl()
        target = quote(target.lstrip("/"), safe=string.punctuation)
        self.response = None
        with self.failing():
            self.connection.request(
                verb, f"{self.prefix}/{target}", body, {**self.credentials, **headers}
            )
            self.sent = True
            self.response = self.connection.getresponse()
            fields = self.response.headers
            self.status = self.response.status
            self.is_stream = (
                stream
                and self.status == 200
                and fields.get_content_type() == "text/event-stream"
            )
            self.body = b""
            if "Content-Encoding" in fields:  # http.client asks for "identity"
                raise ValueError(f"compressed, unasked: {fields['Content-Encoding']}")
            if not self.is_stream:
                # One byte more than decode() accepts.
                self.body = self.response.read(MAX_MESSAGE_BYTES + 1)
                if self.response.length and len(self.body) <= MAX_MESSAGE_BYTES:
                    raise ValueError("the body was cut off")
        self.headers = {
            name.lower(): ", ".join(fields.get_all(name)) for name in fields
        }

    def events(self, request: Request) -> Iterator[Any]:
        """Yield (name, data) of each event in a stream (HTML Standard, section 9.2);
        store its id and `retry` in the request."""
        event = {}
        data = []
        size = 0
        with self.failing():
            text = io.TextIOWrapper(self.response, "utf-8-sig", "replace")
            try:
                for line in iter(lambda: text.readline(MAX_MESSAGE_BYTES), ""):
                    field, _, value = line.rstrip("\n").partition(":")
                    value = value.removeprefix(" ")
                    if field == "data":
                        data.append(value)
                    elif field in ("event", "id", "retry"):
                        event[field] = value
                    size += len(line)
                    if size > MAX_MESSAGE_BYTES + 1000:
                        raise Malformed(
                            f"the server sent an event of more than {size} characters"
                        )
                    if line == "\n":
                        request.last_id = event.get("id", request.last_id)
                        # There is none, or it is not a number.
                        with suppress(ValueError, KeyError):
                            request.retry = max(50, int(event["retry"][:9])) / 1000
                        if any(data):  # an event may have only an id
                            request.slower = 1
                            yield event.get("event", "message"), "\n".join(data)
                        event = {}
                        data = []
                        size = 0
            finally:
                text.detach()  # else it would close the response

    def hang_up(self, owner: Any, close: bool = os.name == "nt") -> None:
        """End the owner's exchange, from any thread. `close`: free the socket, too (on
        Windows, nothing else ends a read)."""
        # OSError: the socket is closed already.
        with self.lock, suppress(OSError):
            if self.owner is not owner:
                return
            if close:
                socket.close(self.socket.detach())
            else:  # an SSLSocket's own shutdown() would break its reader
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def free(self) -> bool:
        """Leave the owner; tell whether another may use the connection."""
        with self.lock:
            self.owner = None
            self.since = monotonic()
            self.sent = False
        return self.response and not self.response.will_close

    def is_fresh(self) -> bool:
        """Tell whether a kept connection looks usable: its last answer has ended, and
        it has not."""
        # Any failure means no. (ValueError: a thousand open files.)
        with suppress(OSError, ValueError):
            self.socket.settimeout(0)
            # http.client would take the first digit of a chunk's length for all of it.
            if self.response.isclosed() or self.response.fp.read(7) == _STREAM_END:
                self.response.close()
                return (
                    not select([self.socket], [], [], 0)[0]  # bytes, or its end
                    and monotonic() - self.since < IDLE_SECONDS
                )
        return False


def fetch(
    verb: str,
    url: str,
    headers: Message,
    body: bytes | None = None,
    timeout: float = 30,
) -> tuple[int, dict[str, str], bytes]:
    """Do one HTTP exchange, without redirects; return status, headers (names in lower
    case) and body. `timeout`: seconds to connect to each address of the host, and again
    for the rest."""
    wire = _Wire(url, None, timeout, None)
    timer = Timer(timeout, wire.hang_up, [None])
    timer.daemon = True
    timer.start()
    try:
        wire.exchange(verb, url, headers, body, False)
        if not timer.is_alive():
            raise Disconnected(
                f"{wire.host}{wire.route}: no answer within {timeout:g} s"
            )
        return wire.status, wire.headers, wire.body
    finally:
        timer.cancel()
        wire.hang_up(None, close=True)


class HttpTransport(Transport):
    """A server at a URL: Streamable HTTP or, if it supports nothing newer, HTTP+SSE
    [legacy].

    `headers`: a dict, or a function of (verb, url) that returns one, called for each
    HTTP request. `authorize`: called with the HttpError of a 401 or 403, whose
    `seconds` say how long it may take, without a person; returns `headers` for all
    later requests, or None to give up. `tls`: an ssl.SSLContext; or `cacert`, a PEM
    file of the authorities to trust. `proxy`: such as "http://user:password@host:3128"
    for every host, "" for none; by default, that of the environment (HTTPS_PROXY,
    HTTP_PROXY, NO_PROXY). `sse`: the server speaks HTTP+SSE; by default, the client
    finds out. Redirects and cookies stay within the origin.

    state                     session   sse     post_to   stream
    stopped (`up` is False)   any       any     any       None, or over
    modern                    ""        False   ""        None
    legacy                    "" or id  False   ""        a GET, if the server has one
    HTTP+SSE                  ""        True    a URL     a GET, always

    A thread that posts sets `session`, and clears it, with `up`, when it is lost. The
    stream's thread sets `post_to`. `lock` is only for authorization: a person may take
    minutes under it."""

    mirrors = True
    session = ""
    lost_session = ""  # sent until another is open: the refusal says that it is lost
    sse = False
    post_to = ""  # where messages are posted, if not to `url`
    stream: Any = None  # [legacy] the request that keeps the session's stream open

    def __init__(
        self,
        url: str,
        headers: Any = None,
        tls: Any = None,
        authorize: Any = None,
        proxy: Any = None,
        cacert: str = "",
        sse: bool = False,
    ) -> None:
        self.url = url.strip()
        self.origin = _origin(self.url)
        self.headers = headers or {}
        self.proxy = proxy
        self.tls = tls
        if cacert:
            import ssl

            os.stat(cacert)  # its error names the file
            self.tls = ssl.create_default_context(cafile=cacert)
        self.only_sse = sse
        self.authorize = authorize
        self.authorized: Any = {}  # the headers that `authorize` returned last
        self.lock = Lock()
        self.idle: Any = []
        self.cookies: Message = {}  # "name=value", by name

    def start(self) -> None:
        self.session = ""
        self.sse = self.only_sse
        self.post_to = ""
        self.unread = True  # until there is a connection
        self.up = True

    def stop(self) -> None:
        """Delete the session, and close its stream."""
        if self.up and self.session:
            deletion = Request(
                self.client, "DELETE", CLOSE_STEP_SECONDS, response=False
            )
            self._run("mcp-post", deletion, lambda: self._open(deletion, "DELETE", {}))
            # If it fails, the session expires.
            with suppress(Exception):
                deletion.wait()
        self.up = False
        self._end_stream(Disconnected("the client was closed"))
        while self.idle:
            self.idle.pop().hang_up(None, close=True)

    def send(self, message: Message, request: Request) -> None:
        request.message = message
        self._run("mcp-post", request, lambda: self._post(request))

    # ---- a POST, and its answer

    def _headers_of(self, request: Request) -> Message:
        """Return the headers that repeat the body: .../streamable-http §Request
        Metadata."""
        client = self.client
        method = request.message.get("method", "")
        params = request.message.get("params", {})
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        if client.modern:
            headers["Mcp-Method"] = method
            member = client.mirrored.get(method)
            if isinstance(params.get(member), str):
                headers["Mcp-Name"] = mirror(params[member])
            if method == "tools/call":
                name = params.get("name")
                if name not in client.tools:
                    # Its schema says which arguments become headers. If they are
                    # missing, the server refuses the call.
                    with client._optional("tools/list"):
                        client.list_tools(timeout=(request.deadline - monotonic()) / 2)
                schema = _object(client.tools, name).get("inputSchema")
                headers.update(_mirrors(schema, params.get("arguments")))
        return headers

    def _post(self, request: Request) -> None:
        is_opening = request.method == "initialize"
        if is_opening and self.only_sse:
            self.listen(request.deadline - monotonic())
        wire = self._open(request, "POST", self._headers_of(request))
        status = wire.status
        if self.post_to or not request.response:  # no response is due here
            if status >= 400:
                raise self._refusal(wire)
            return

        if is_opening and status == 200:
            # [2025-11-25] basic/transports §Session Management
            self.session = wire.headers.get("mcp-session-id", "")
            self.lost_session = ""
        # The body of a refusal may be the response, which says more.
        if self.client.modern:
            answers: Any = b'"error"' in wire.body
        else:  # in a session, 404 says that it is lost
            ours = rb'"id": ?%d\b' % request.id
            answers = status != 404 and re.search(ours, wire.body)
        if wire.is_stream:
            self._read_answer(wire, request)
        elif status == 202 and not (self.client.modern or wire.body):
            self.say(f"{request.method}: status 202; the stream should have its answer")
            self._release(request)
            self.listen()
        elif status < 400 or answers:
            request.refused = self.client.modern and status >= 400
            body = wire.body
            place = wire.place
            self._release(request)
            self.client.receive(body, request, place)
            if not request.settled:
                raise Malformed(f"no response to {request.method} in {body!r:.200}")
        elif is_opening and status in (400, 404, 405):
            self.sse = True
            # If the stream fails, the refusal of the POST says more.
            with suppress(HttpError, OSError):
                self.listen(request.deadline - monotonic())
            if not self.post_to:
                raise self._refusal(wire)
            self._post(request)
        elif request.reopens and wire.session and status in (400, 404):
            raise self._session_loss(wire)
        else:
            raise self._refusal(wire)

    def _read_answer(self, wire: _Wire, request: Request) -> None:
        """Read the stream with the response. A legacy one whose events have ids is
        resumed: [2025-11-25] basic/transports §Resumability and Redelivery."""
        while True:
            self._read_stream(wire, request, request)
            if request.settled:
                return
            ended = f"the stream ended without a response to {request.method}"
            if self.client.modern or not request.last_id or request.over.is_set():
                raise Disconnected(ended + self.client.stray)
            self._pause(request)
            try:
                wire = self._get(request)
            except HttpError as refusal:  # the server may have run the request
                raise Disconnected(
                    f"{ended}, and cannot be resumed: {refusal}"
                ) from None

    def _read_stream(self, wire: _Wire, request: Request, owner: Any) -> None:
        """Receive a stream's messages until it ends or breaks, or until its owner has
        the response."""
        with suppress(Disconnected):
            for name, data in wire.events(request):
                if name == "message":
                    self._receive(data.encode(), owner, wire.place)
                elif name == "endpoint" and self.sse:
                    self._take_endpoint(wire, data.strip())
                if owner and owner.settled:
                    return

    def _pause(self, request: Request) -> None:
        """Wait before a stream is opened again: twice as long each time while no
        message comes, up to 16 times `retry`."""
        request.over.wait(request.retry * request.slower)
        request.slower = min(request.slower * 2, 16)

    def _refusal(self, wire: _Wire) -> HttpError:
        """Return the exception for an HTTP response that is not a message."""
        text = wire.body.decode("utf-8", "replace")
        self.client.record("<", wire.place, text=text)
        return HttpError(
            wire.status,
            f"{_shown(self.url)}{wire.route} sent {wire.status} "
            f"{wire.response.reason}: {text:.500}",
            wire.headers,
            self.url,
        )

    def _session_loss(self, wire: _Wire) -> Disconnected:
        """Give up a session that the server no longer knows; return the exception.

        A server must send 404, but many send 400, which has other reasons, too."""
        lost = _SessionLost(f"the session is lost: {self._refusal(wire)}")
        if wire.session == self.session:
            self.lost_session = self.session
            self.session = ""
            self.up = False
            self._end_stream(lost)
        return lost

    # ---- [legacy] the session's stream

    def listen(self, seconds: float = COURTESY_SECONDS) -> None:
        """[legacy] Open the session's stream: [2025-11-25] basic/transports §Listening
        for Messages from the Server."""
        if self.stream is None or self.stream.over.is_set():
            stream = self.stream = Request(self.client, "GET", seconds)
            self._run("mcp-stream", stream, lambda: self._hold_stream(stream))
            stream.next()

    def _end_stream(self, problem: BaseException) -> None:
        if self.stream:
            self.stream.over.set()
            self.stream.hang_up()
            for subscription in self.client.subscriptions:
                subscription.settle(problem)

    def _hold_stream(self, stream: Request) -> None:
        """Read messages until the session ends; runs on mcp-stream."""
        try:
            while not stream.over.is_set():
                wire = self._get(stream)
                if not (self.sse or stream.settled):
                    stream.settle({})
                stream.deadline = inf
                self._read_stream(wire, stream, None)
                if self.sse:
                    raise Disconnected("the server ended its stream")
                self._pause(stream)
        except Exception as problem:
            self._end_stream(Disconnected(f"the session's stream has ended: {problem}"))
            if self.post_to:
                self.up = False
                self.client.lost(problem)
            raise

    def _take_endpoint(self, wire: _Wire, path: str) -> None:
        """Store the URL for messages: [2024-11-05] basic/transports §HTTP with SSE."""
        with wire.failing(Malformed):
            url = urljoin(self.url, path)
            if _origin(url) != self.origin:
                raise ValueError(f"its endpoint is on another origin: {_shown(url)}")
        self.post_to = url
        self.stream.settle({})  # it is open

    def _get(self, request: Request) -> _Wire:
        """Open a stream by GET, or resume it."""
        headers = {"Accept": "text/event-stream"}
        if request.last_id:
            headers["Last-Event-ID"] = request.last_id.encode().decode("latin-1")
        wire = self._open(request, "GET", headers)
        if not wire.is_stream:
            raise self._refusal(wire)
        return wire

    # ---- an exchange

    def _open(self, request: Request, verb: str, headers: Message) -> _Wire:
        """Send an HTTP request; follow redirects, and authorize it. HttpError on 401,
        403 and too many redirects."""
        url = self.url
        if verb == "POST" and self.post_to:
            url = self.post_to
        headers = {"User-Agent": "mcp_ref", **headers}
        if request.method != "initialize":
            headers["MCP-Protocol-Version"] = self.client.version
        for _ in range(MAX_REDIRECTS + 1):
            authorized = self.authorized
            wire = self._send(request, verb, url, headers, authorized)
            if 300 <= wire.status < 400:
                with wire.failing(Malformed):
                    url = urljoin(url, wire.headers.get("location", ""))
                    if _origin(url) != self.origin:
                        raise HttpError(
                            wire.status, f"a redirect to another origin: {_shown(url)}"
                        )
            elif wire.status not in (401, 403):
                return wire
            elif self.authorize and verb != "DELETE":  # leaving begins no login
                self._ask_to_authorize(self._refusal(wire), authorized, request)
            else:
                break
        raise self._refusal(wire)

    def _is_busy(self, wire: _Wire, request: Request) -> bool:
        """Wait if the request should be sent again; tell whether it should."""
        pause = inf
        is_restarting = wire.status in (502, 503, 504) and request.method in _REPEATED
        if is_restarting and request.slower < 2**MAX_RETRIES:
            pause = RETRY_SECONDS * request.slower
            request.slower *= 2
        if wire.status in (429, 503):
            with suppress(KeyError, ValueError):  # not sent, or a date
                pause = max(RETRY_SECONDS, float(wire.headers["retry-after"]))
        if monotonic() + pause >= request.deadline:
            return False
        request.over.wait(pause)
        return True

    def _ask_to_authorize(self, refusal: Any, refused: Any, request: Request) -> None:
        """Replace the headers that were refused, one thread at a time; raise the
        refusal if `authorize` has no others."""
        began = monotonic()
        refusal.seconds = request.deadline - began
        request.deadline += LOGIN_SECONDS
        with self.lock:  # threads that wait here use the same headers
            if self.authorized is refused:
                self.unread = True
                headers = _called(self.authorize, refusal)
                if headers is None:
                    raise refusal
                self.authorized = headers
        # This does not count against the timeouts.
        spent = monotonic() - began
        request.deadline += spent - LOGIN_SECONDS
        self.client.open_until += spent

    def _send(
        self,
        request: Request,
        verb: str,
        url: str,
        headers: Message,
        authorized: Any,
    ) -> _Wire:
        """Send an HTTP request, and read the response; send it again while the server
        is busy."""
        # The path of another URL may name an HTTP+SSE session.
        path = urlsplit(url).path if url == self.url else "..."
        shown: Message = {"http": f"{verb} {path}", "headers": headers}
        while True:
            session = self.session
            if request.reopens:
                session = session or self.lost_session
            secret = {}  # not shown
            if session:
                secret["Mcp-Session-Id"] = session
            if self.cookies:
                secret["Cookie"] = "; ".join(self.cookies.values())
            for more in (self.headers, authorized):
                given = more(verb, url) if callable(more) else more
                secret = merge_headers(secret, _check_headers(given))
            wire = self._take_wire(request)
            wire.session = session
            body = None
            if verb == "POST":
                shown["message"] = request.message
                body = encode(request.message)[:-1]
            if request.over.is_set():
                raise Disconnected("the request has ended")
            self.client.record(">", wire.place, **shown)
            try:
                wire.exchange(verb, url, merge_headers(headers, secret), body)
                wire.place["status"] = wire.status
                for line in wire.response.headers.get_all("Set-Cookie", []):
                    self._keep_cookie(line.partition(";")[0])
                if not self._is_busy(wire, request):
                    return wire
            except Disconnected:
                # A kept connection may end at any time: RFC 9110, section 9.2.2.
                row = METHODS.get(request.method)
                may_repeat = not wire.sent or verb != "POST" or (row and row.cacheable)
                is_over = self.client.closed or request.over.is_set()
                if not wire.since or not may_repeat or is_over:
                    raise

    def _keep_cookie(self, cookie: str) -> None:
        """Keep a cookie, unless it has control characters or is too much."""
        kept = {**self.cookies, cookie.partition("=")[0]: cookie}
        size = len("; ".join(kept.values()))
        if cookie.isprintable() and size <= MAX_COOKIE_BYTES:
            self.cookies = kept

    # ---- connections

    def _take_wire(self, request: Request) -> _Wire:
        self._release(request)
        wire = None
        with suppress(IndexError):
            wire = self.idle.pop()
        if wire and not wire.is_fresh():
            wire.hang_up(None, close=True)
            wire = None
        wire = wire or _Wire(self.url, self.tls, CALL_SECONDS, self.proxy)
        self.unread = False

        # The caller's deadline ends the wait for a response.
        wire.socket.settimeout(None if request.response else request.timeout)
        wire.place = {"on": wire.socket.getsockname()[1]}
        with wire.lock:
            wire.owner = request
        request.wire = wire
        return wire

    def _release(self, request: Request) -> None:
        wire = request.wire
        request.wire = None
        if wire and wire.free() and self.up and len(self.idle) < MAX_IDLE:
            self.idle.append(wire)
        elif wire:
            wire.hang_up(None, close=True)


# ==== 6. Subscriptions ========================================
# Modern: one request, subscriptions/listen, stays open; changes arrive in its inbox.
# Legacy: a session is told of all changed lists, and of URIs given to
# resources/subscribe, until it ends. ([2025-11-25] server/resources §Subscriptions)


class Subscription(Request, AbstractContextManager["Subscription"]):
    """A server's changes: iterate over it, or give listen() a callback; close() it at
    the end.

    Each change is "tools", "prompts", "resources", a URI, or the name of a notification
    that Server.notify() sends, such as "notifications/example.org/x". `granted` lists
    the changes that the server agreed to send. Iteration stops when the server ends the
    subscription, or after close(); it raises Disconnected if the connection is lost."""

    def __init__(self, client: Client, wanted: list[str], timeout: Any) -> None:
        super().__init__(client, "subscriptions/listen", timeout)
        self.granted: list[str] = []
        client.subscriptions.append(self)
        try:
            if client.modern:
                self._open_modern(wanted)
            else:
                self._open_legacy(wanted)
            if not self.granted:
                raise ServerLacks(f"the server does not announce changes of {wanted}")
        except BaseException:
            self.close()
            raise
        self.deadline = inf

    def _open_modern(self, wanted: list[str]) -> None:
        asked: Message = {}
        for name in wanted:
            if ":" in name:
                asked.setdefault("resourceSubscriptions", []).append(name)
            elif "/" in name:
                asked[name] = True
            else:
                asked[name + "ListChanged"] = True
        first = self.client._begin(self, {"notifications": asked}).next()
        # .../subscriptions §Acknowledgment. A server that does not know the method has
        # no changes to tell.
        is_response = "params" not in first
        if is_response and _object(first, "error").get("code") != METHOD_NOT_FOUND:
            _result(first)

        agreed = {
            "resourceSubscriptions": [],
            **_object(first, "params", "notifications"),
        }
        uris = _member(agreed, "resourceSubscriptions", list)
        for name in wanted:
            # Names are not acknowledged: they are not in the specification's filter.
            is_sent = name in asked and not is_response
            if is_sent or name in uris or agreed.get(name + "ListChanged"):
                self.granted.append(name)

    def _open_legacy(self, wanted: list[str]) -> None:
        # The head of the stream may come with its first event: it counts as open.
        with suppress(TimeoutError):
            self.client.transport.listen()
        self.client.running[self.id] = self
        declared = self.client.capabilities
        for name in wanted:
            if ":" in name:
                is_sent = _object(declared, "resources").get("subscribe")
                if is_sent:
                    self.client.request("resources/subscribe", {"uri": name})
            else:
                is_sent = "/" in name or _object(declared, name).get("listChanged")
            if is_sent:
                self.granted.append(name)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                message = self.next()
            except Exception as problem:
                if self.cancelled:
                    return
                self.put(problem)
                raise
            method = message.get("method")
            if method in (None, "notifications/cancelled"):  # the server has ended it
                self.close()
                return
            name = method
            if method not in self.granted:
                name = method.removeprefix("notifications/").removesuffix(
                    "/list_changed"
                )
            if method == "notifications/resources/updated":
                name = str(message["params"].get("uri"))
            # A part of a granted resource lies below its URI.
            if any(
                f"{name}/".startswith(one.rstrip("/") + "/") for one in self.granted
            ):
                yield name

    def close(self) -> None:
        """End the subscription, unless it has ended."""
        with suppress(ValueError):
            self.client.subscriptions.remove(self)
            self.cancel()
            if not self.client.modern:
                self.settled = True  # nothing is open
            self.client._finish(self)


# ==== 7. The client ===========================================


class Client(AbstractContextManager["Client"]):
    """A connection to one server; a context manager. connect() is another name for it.

    `target`: a URL; a command, as a list; a Server, to be called in this process; a
    Transport. `env`, `cwd`: see StdioTransport; `stderr`: called with each line for the
    user, such as those that a server on stdio writes to stderr (not before it refuses
    server/discover); `headers`, `tls`, `authorize`, `proxy`, `cacert`, `sse`: see
    HttpTransport. `revision`: speak this one or fail. `timeout`: seconds for a
    response, and for connecting; `probe`: how long a server on stdio may be silent
    before it counts as legacy.

    `elicit(params)` fills in a form: returns a dict of values, None (declined) or
    "cancel"; or the protocol's {"action": ..., "content": ...}. `visit(params)` shows
    params["url"] in full to the user, with its url_warnings(), and opens it if they
    agree: returns True or False. `sample(params)` asks a model: returns text or a whole
    result, None if the user declines. `roots`: a folder or a list, also as file: URIs,
    or a function that returns them. Each of these four declares its capability, and may
    take a second argument: the tags of the calls that it may belong to, including those
    that were given up and not answered.

    `on_log(params)`, which may take the tags, too, and `on_notification(message)` are
    called on the reading thread. `info`: name and version of this client. `declare`:
    further capabilities, such as {"extensions": {...}}. `log_level`: the least severe
    level for `on_log`.
    `trace(way, message)`: called with each message sent (way ">") or received ("<").
    `record`: a binary file for them, as MCP_TRACE.

    Any thread may use it. `version` is the revision in use, `modern` its era;
    `server_info`, `capabilities` and `instructions` come from the server. Methods
    raise RpcError, TimeoutError, RequestCancelled, Disconnected, Malformed,
    ServerLacks, HttpError and AskError (one of your functions refused to answer). For
    extensions: `result_types[type] = function(method, result, tag)` turns a result of
    that resultType into a complete one; `mirrored[method]` names the param that HTTP
    repeats in Mcp-Name.

    state          transport.up   closed   true while ...
    connecting     False or True  False    one thread is in open() and holds `_opening`
    connected      True           False    requests go out
    disconnected   False          False    the connection was lost; the next request
                                           connects again
    closed         False          True     for ever after close()

    `_opening` guards start() and stop() of the transport, the fields of _speak() and
    _take_over(), and `open_until`, the end of the time for connecting. `running`,
    `subscriptions` and the transport's lists need no lock: each is used by single
    operations, or copied first."""

    def __init__(
        self,
        target: str | Iterable[str] | Server | Transport,
        *,
        env: Any = None,
        cwd: Any = None,
        stderr: Hook = None,
        headers: Any = None,
        tls: Any = None,
        authorize: Hook = None,
        proxy: Any = None,
        cacert: str = "",
        sse: bool = False,
        revision: str = "",
        timeout: float = CALL_SECONDS,
        probe: float = PROBE_SECONDS,
        elicit: Hook = None,
        visit: Hook = None,
        sample: Hook = None,
        roots: Any = None,
        on_log: Hook = None,
        on_notification: Hook = None,
        info: Any = None,
        declare: Any = None,
        log_level: str = "",
        trace: Hook = None,
        record: Any = None,
    ) -> None:
        if isinstance(target, str):
            self.transport: Any = HttpTransport(
                target, headers, tls, authorize, proxy, cacert, sse
            )
        elif isinstance(target, Server):
            self.transport = MemoryTransport(target)
        elif isinstance(target, Transport):
            self.transport = target
        else:
            self.transport = StdioTransport(target, env, cwd)
        if stderr:
            self.transport.say = stderr

        self.timeout = timeout
        self._pinned, self._probe = revision, probe
        self._sample, self._roots = sample, roots
        self._on_log, self._on_notification = on_log, on_notification
        self._info = info or {"name": "mcp_ref", "version": __version__}
        self._further, self.log_level = declare or {}, log_level
        self._trace, self._record_file = trace, record
        self._prepare({"form": elicit, "url": visit})
        self.open()

    def _prepare(self, modes: Message) -> None:
        """Check the options, and make the tables. `modes`: functions, by the protocol's
        names."""
        if self._pinned not in ("", *versions()):
            raise ValueError(
                f"unknown revision {self._pinned!r}; expected one of {versions()}"
            )
        if not callable(self._roots):
            _roots(self._roots)
        if self._on_log and not self.log_level:
            self.log_level = "info"
        self._modes = {mode: ask for mode, ask in modes.items() if ask}
        self.transport.client = self
        self.closed = False
        # A message since the last request that answers none: for its error.
        self.stray = ""
        self.ids = count(1)
        self._opening = RLock()
        # The sizes of a legacy server's questions that are not answered yet.
        self._questions: Any = []
        # By id: requests without a response, and messages not sent yet.
        self.running: Any = {}
        # By id: tags of calls given up and not answered.
        self.unanswered: Any = {}
        self.subscriptions: Any = []
        self.tools: Message = {}  # those listed last, by name
        self.mirrored = {name: row.mirrored for name, row in METHODS.items()}
        self.result_types: Message = {}
        era = "legacy" if self.transport.only_sse else ""
        self._speak(self._pinned or versions(era)[0])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End subscriptions, pending calls, the connection and, on stdio, the
        server."""
        for subscription in list(self.subscriptions):
            subscription.close()
        self.closed = True
        self.lost(Disconnected("the client was closed"))
        with self._opening:  # lost() makes a thread inside open() leave
            self.transport.stop()

    def open(self, timeout: Any = None) -> None:
        """Connect, unless connected; restart a server that has exited."""
        seconds = self.timeout if timeout is None else min(timeout, self.timeout)
        end = monotonic() + seconds
        if not self._opening.acquire(timeout=min(seconds, LONGEST_SECONDS)):
            raise TimeoutError(f"not connected within {seconds:g} s")
        try:
            if self.closed:
                raise Disconnected("the client is closed")
            # up: connected, or this thread is inside open() already
            if not self.transport.up:
                before = self.version
                self.open_until = end
                self.unanswered.clear()
                try:
                    self.transport.start()
                    self._find_era()
                except BaseException:
                    self.transport.stop()
                    self._speak(before)
                    raise
        finally:
            self._opening.release()

    # ---- connecting: the transports' §Backward Compatibility

    def _find_era(self) -> None:
        # `version` may be that of the connection before.
        if not self.modern:
            return self._initialize(self.version)
        try:
            self._discover(self.version)
        except _FAILURES as problem:
            self._fall_back(problem)

    def _fall_back(self, problem: Any) -> None:
        """Go on after server/discover has failed.

        failure                                then
        -32022                                 take a version that it names
        -32020, -32021                         raise it: no legacy server knows these
        401, 403                               raise it: a login was not possible
        not connected; exited without reading  raise it: nothing was served
        any other, or silence                  initialize, unless pinned"""
        code = getattr(problem, "code", getattr(problem, "status", 0))
        if code == UNSUPPORTED_VERSION:
            return self._choose(problem)
        if self._pinned and isinstance(problem, RpcError):
            raise Disconnected(f"the server does not support {self.version}")
        if (
            code in (HEADER_MISMATCH, MISSING_CAPABILITY, 401, 403)
            or self.transport.unread
            or self._pinned
        ):
            raise problem

        if not self.transport.up:
            self.transport.start()
        try:
            self._initialize(versions("legacy")[0])
        except _FAILURES as refusal:
            if getattr(refusal, "code", 0) == UNSUPPORTED_VERSION:
                return self._choose(refusal)  # it is modern, and was slow
            if isinstance(refusal, (RpcError, TimeoutError)):
                refusal.args = (
                    f"{refusal} (tried server/discover, then initialize; if you know "
                    "the server's revision, revision= or --revision names it)",
                )
            raise

    def _discover(self, version: str) -> None:
        """Send server/discover, and agree on this version. RpcError with
        UNSUPPORTED_VERSION if the server supports others."""
        self._speak(version)
        timeout = self.open_until - monotonic()
        if not self._pinned:
            timeout /= 2  # the rest is for initialize
            if not self.transport.mirrors:
                timeout = min(timeout, self._probe)
        # Some servers write pages about an unknown method: stderr is shown after the
        # answer, unless that is an error.
        say = self.transport.say
        held: Any = deque(maxlen=MAX_UNREAD)
        self.transport.say = lambda line: held.append(line[: 2**14])
        try:
            result = self._exchange(Request(self, "server/discover", timeout), {})
        except RpcError:
            held.clear()
            raise
        finally:
            self.transport.say = say
            while held:
                say(held.popleft())

        supported = _member(result, "supportedVersions", list)
        if version not in supported:  # server/discover §Response
            raise RpcError(UNSUPPORTED_VERSION, "", {"supported": supported})
        self._take_over(result, _object(result, "_meta").get(META_SERVER))

    def _choose(self, refusal: Any) -> None:
        """Take one of the versions that a modern server named when it refused ours."""
        supported = _member(refusal.data, "supported", list)
        common = [version for version in versions() if version in supported]
        if self._pinned or not common:
            raise Disconnected(
                f"the server does not support {self.version}; it supports {supported}"
            )
        if rules(common[0]).modern:
            self._discover(common[0])
        else:
            self._initialize(common[0])

    def _initialize(self, version: str) -> None:
        """[legacy] Open a session: [2025-11-25] basic/lifecycle §Initialization."""
        self._speak(version)
        params = {
            "protocolVersion": version,
            "capabilities": self._declared,
            "clientInfo": self._info,
        }
        request = Request(self, "initialize", self.open_until - monotonic())
        result = self._exchange(request, params)

        agreed = _member(result, "protocolVersion", str)
        if agreed not in versions("legacy") or self._pinned not in ("", agreed):
            raise Disconnected(
                f"the server does not support {self.version}; it offers {agreed}"
            )
        self._speak(agreed)
        self._take_over(result, result.get("serverInfo"))
        seconds = min(COURTESY_SECONDS, self.open_until - monotonic())
        with self._optional("notifications/initialized"):
            self._notify("notifications/initialized", timeout=seconds).wait()
        if self._declared or self._on_log or self._on_notification:
            with suppress(Exception):
                self.transport.listen()
        if self.log_level and "logging" in self.capabilities:
            level = Request(self, "logging/setLevel", seconds)
            with self._optional("logging/setLevel"):
                self._exchange(level, {"level": self.log_level})

    @contextmanager
    def _optional(self, method: str) -> Iterator[None]:
        """Report the failure of a message that no caller waits for; raise it if the
        connection is lost."""
        try:
            yield
        except _FAILURES as problem:
            if not self.transport.up:
                raise
            self.transport.say(f"{method} failed: {problem}")

    def _take_over(self, result: Message, info: Any) -> None:
        declared = _member(result, "capabilities", dict)
        # null: not declared
        self.capabilities = {
            name: one for name, one in declared.items() if one is not None
        }
        self.server_info = _object(info)
        self.instructions = result.get("instructions")

    def _speak(self, version: str) -> None:
        """Set the revision, and the capabilities to declare in it."""
        edition = rules(version)
        self.version = version
        self.modern = edition.modern
        declared = {**self._further}
        if self._modes and "elicitation/create" in edition.methods:
            # Before there were URLs, the capability had no members.
            has_modes = "URL elicitation" in edition.features
            declared["elicitation"] = {mode: {} for mode in self._modes if has_modes}
        if self._sample:
            declared.setdefault("sampling", {})
        if self._roots is not None:
            declared["roots"] = {}
        self._declared = declared

    # ---- sending

    def request(
        self,
        method: str,
        params: Message | None = None,
        *,
        started: Any = None,
        **options: Any,
    ) -> Any:
        """Send a request, answer the server's questions, return the result.

        `started`: called with each Request before it is sent; you can cancel() it
        later. `timeout`: seconds for each response; `on_progress`: called with
        progress, total and message, on this thread; `extend`: progress resets the
        timeout, up to `longest` seconds."""
        more: Message = {}
        for attempt in range(MAX_ROUNDS + 1):
            request = Request(self, method, **options)
            if started:
                started(request)
            self.open(request.timeout)
            request.reopens = not (attempt or self.modern)
            try:
                result = self._exchange(request, {**(params or {}), **more})
            except _SessionLost:
                self.unanswered.pop(request.id, None)
                continue
            except RpcError as problem:
                # Our headers do not match, so list the tools again: streamable-http
                # §Client Behavior. Elsewhere, the code may mean anything.
                is_mismatch = request.refused and problem.code == HEADER_MISMATCH
                if attempt or not is_mismatch:
                    raise
                self.tools = {}
                continue

            result_type = str(result.get("resultType", "complete"))
            if result_type == "complete" or not self.modern:
                return result
            if result_type in self.result_types:
                return self.result_types[result_type](method, result, request.tag)
            if result_type != "input_required":
                raise Malformed(f"unknown result of {method}: {result!r:.200}")
            more = self._more_input(method, result, request.tag)
            if request.cancelled:
                raise RequestCancelled(f"{method} was cancelled")
        raise Malformed(f"{method} asked for input more than {MAX_ROUNDS} times")

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification, unless the revision does not define it."""
        self.open()
        if rules(self.version).has_notification(method):
            self._notify(method, params).wait()

    def _notify(self, method: str, params: Any = None, timeout: Any = None) -> Request:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        return self._transmit(message, Request(self, method, timeout, response=False))

    def _exchange(self, request: Request, params: Message) -> Any:
        try:
            return _result(self._begin(request, params).wait())
        finally:
            self._finish(request)

    def _begin(self, request: Request, params: Message) -> Request:
        self.stray = ""
        meta = {META_CLIENT: self._info, META_CAPABILITIES: self._declared}
        if self.log_level:
            meta[META_LOG_LEVEL] = self.log_level
        meta = meta_for(self.version, meta)  # nothing in a session: basic/index §_meta
        if request.on_progress or request.extend:
            meta["progressToken"] = request.id
        meta.update(params.get("_meta", {}))
        if meta:
            params = {**params, "_meta": meta}
        message = {
            "jsonrpc": "2.0",
            "id": request.id,
            "method": request.method,
            "params": params,
        }
        if request.cancelled:
            return request
        return self._transmit(message, request)

    def _transmit(self, message: Message, request: Request) -> Request:
        self.running[request.id] = request
        if self._trace:
            self._trace(">", message)
        if not self.transport.mirrors:  # over HTTP, the transport records it
            self.record(">", message=message)
        try:
            if self.closed:  # lost() may have missed this request
                raise Disconnected("the client is closed")
            self.transport.send(message, request)
        except Exception as problem:
            request.settle(problem, ended=True)
        return request

    def _finish(self, request: Request) -> None:
        """Stop waiting; cancel the request if it has no response:
        basic/patterns/cancellation."""
        # Checked before hang_up(), which settles it, and cancels a modern one.
        hangs_up_to_cancel = self.modern and self.transport.mirrors
        is_over = hangs_up_to_cancel or self.transport.unsent.pop(request.id, None)
        must_cancel = not (request.settled or is_over)
        if request.tag is not None and not (request.ended or is_over):
            self.unanswered[request.id] = request.tag
            if request.ended:  # the response has come just now
                self.unanswered.pop(request.id, None)
        request.over.set()
        request.message = None
        self.running.pop(request.id, None)
        wire = request.wire
        if wire and not request.settled:  # else it may serve another request already
            self.record(">", wire.place, closed=True)
            wire.hang_up(request)
        if must_cancel and request.method not in ("initialize", "server/discover"):
            self._notify("notifications/cancelled", {"requestId": request.id})

    # ---- receiving

    def decode(self, data: bytes) -> Any:
        """Decode a message; RpcError: it is malformed or too large."""
        return decode(data)

    def receive(self, data: bytes, request: Any = None, place: Any = None) -> None:
        """Handle a message, for `request` if known. Malformed: it cannot be decoded.
        Never blocks."""
        try:
            message = self.decode(data)
        except RpcError as problem:
            self.record("<", place, text=data.decode("utf-8", "replace"))
            flaw = f"expected a message ({problem}), found {data[:200]!r}"
            answered = self.running.get(_answered_id(data))
            if not answered:
                self.stray = f"; {flaw}"
                raise Malformed(flaw) from None
            answered.settle(Malformed(flaw), ended=True)
            return

        # An array is a batch: [2025-03-26] basic/index §Batching
        for one in message if isinstance(message, list) else [message]:
            if self._trace:
                self._trace("<", one)
            self.record("<", place, message=one)
            self._take_message(one, request)

    def _take_message(self, message: Any, request: Any) -> None:
        kind = ""
        with suppress(RpcError):
            kind = kind_of(message)
        if kind == "response":
            ident = message.get("id")
            if is_id(ident):
                request = self._running(ident)
            elif "error" not in message:
                request = None
            # An error without an id, over HTTP: our message was unreadable.
            if request:
                request.settle(message, ended=True)
            else:
                self.stray = f"; an answer came to an unknown id: {message!r:.200}"
            if is_id(ident):
                self.unanswered.pop(ident, None)
        elif kind == "notification":
            self._take_notification(message, _object(message, "params"), request)
        # A modern server may not ask: .../stdio §Receiving Messages
        elif kind and not self.modern:
            size = size_of(message)
            self._questions.append(size)  # first: other threads may read, too
            sizes = list(self._questions)
            if len(sizes) > MAX_QUESTIONS or sum(sizes) > MAX_LIST_BYTES:
                self._questions.remove(size)
            else:
                tags = self._tags(request)
                _thread("mcp-answer", self._take_question, message, size, tags)

    def _tags(self, request: Any) -> list[Any]:
        """Return the tags of the calls that a message may belong to: `request`, if it
        came with its answer, or else all that the server may work on."""
        if request:
            return [request.tag]
        tags = [one.tag for one in list(self.running.values()) if one.response]
        return [*tags, *self.unanswered.values()]

    def _running(self, ident: Any) -> Any:
        # Some servers answer 1 with "1".
        for known in list(self.running):
            if ident == str(known):
                self.transport.say(f"the id {known} came back as {ident!r}")
                ident = known
        return self.running.get(ident)

    def _take_notification(
        self, message: Message, params: Message, came_for: Any
    ) -> None:
        name = message["method"]
        meta = _object(params, "_meta")
        # Of progress, of a modern change, of a cancellation.
        ident = params.get(
            "progressToken", meta.get(META_SUBSCRIPTION, params.get("requestId"))
        )
        receivers = [] if self.modern else list(self.subscriptions)
        if is_id(ident) and ident in self.running:
            receivers.append(self.running[ident])
        for request in receivers:
            waiting = len(request.inbox)
            fits = waiting < MAX_UNREAD and size_of(params) < MAX_CHANGE
            if fits or not waiting:
                request.put({"method": name, "params": params})
            elif isinstance(request, Subscription) and waiting <= MAX_UNREAD:
                # Its reader must learn of the gap.
                request.put(Malformed("changes were not read, or too large"))
        if self._on_log and name == "notifications/message":
            _called(self._on_log, params, self._tags(came_for))
        if self._on_notification:
            self._on_notification(message)

    def lost(self, problem: BaseException) -> None:
        """Fail all pending calls."""
        for request in list(self.running.values()):
            request.settle(problem, ended=True)
            request.hang_up()

    def record(self, way: str, place: Any = None, **more: Any) -> None:
        """Record a message sent (">") or received ("<"); `place`: the exchange, over
        HTTP."""
        if self._record_file:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            line = {
                "time": f"{now[:-6]}Z",
                "way": way,
                **(place or {"on": "stdio"}),
                **more,
            }
            # The disk is full, or the line is too long.
            with suppress(OSError, ValueError):
                self._record_file.write(encode(line))

    # ---- answering the server's questions

    def _more_input(self, method: str, result: Message, tag: Any) -> Message:
        """Answer the questions in a modern result; return more params for the retry:
        basic/patterns/mrtr §Client Requirements (Basic Workflow)."""
        more = {}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        if "inputRequests" in result:
            questions = _member(result, "inputRequests", dict)
            if len(questions) > MAX_QUESTIONS:
                raise Malformed(f"{method} asked {len(questions)} questions at once")
            more["inputResponses"] = {
                key: self.answer(question, tag) for key, question in questions.items()
            }
        if not more:
            raise Malformed(f"{method} asked for no input: {result!r:.200}")
        return more

    def answer(self, question: Any, tag: Any = None) -> Message:
        """Answer a modern server's question, {"method", "params"}, or AskError."""
        try:
            return self._answer(_object(question), [tag])
        except RpcError as problem:  # a modern server cannot be sent an error
            kind = AskError if problem.code == -1 else Malformed
            raise kind(f"the server's question was not answered: {problem}") from None

    def _take_question(self, message: Message, size: int, tags: list[Any]) -> None:
        """[legacy] Answer a request from the server; runs on mcp-answer."""
        method = message["method"]
        try:
            answer = {"result": self._answer(message, tags)}
            encode(answer)
        except Exception as problem:
            self.transport.say(f"{method!r:.200} failed: {problem!r}")
            code = problem.code if isinstance(problem, RpcError) else INTERNAL_ERROR
            answer = {"error": {"message": f"{problem}", "code": code}}

        reply = {"jsonrpc": "2.0", "id": message["id"], **answer}
        with suppress(Exception):
            self._transmit(reply, Request(self, method, response=False)).wait()
        self._questions.remove(size)

    def _answer(self, question: Message, tags: Any) -> Message:
        method = question.get("method")
        params = _object(question, "params")
        if method == "ping":
            return {}
        if method == "elicitation/create" and self._modes:
            return self._answer_elicitation(params, tags)
        if method == "roots/list" and self._roots is not None:
            roots = self._roots
            return _roots(_called(roots, params, tags) if callable(roots) else roots)
        if method == "sampling/createMessage" and self._sample:
            return self._answer_sampling(params, tags)
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method!r:.80}")

    def _answer_sampling(self, params: Message, tags: Any) -> Message:
        """Have a model answer: client/sampling."""
        needs_tools = "tools" in params or "toolChoice" in params
        if needs_tools and "tools" not in self._declared["sampling"]:
            raise RpcError(INVALID_PARAMS, "sampling.tools was not declared")
        answer = _called(self._sample, params, tags)
        if answer is None:  # [2025-11-25] client/sampling §Error Handling
            raise RpcError(-1, "User rejected sampling request")
        if isinstance(answer, str):
            answer = {"content": {"type": "text", "text": answer}}
        return {"role": "assistant", "model": "unknown", **answer}

    def _answer_elicitation(self, params: Message, tags: Any) -> Message:
        """Have the user fill in a form, or visit a page: client/elicitation."""
        mode = str(params.get("mode", "form"))
        form: Message = {"properties": {}}
        try:
            function = self._modes[mode]
            if mode == "url":
                _check_url(params.get("url"))
            else:
                form = params["requestedSchema"]
            fields, schema = _form(form)
        except Exception as problem:
            raise RpcError(
                INVALID_PARAMS, f"cannot elicit {params!r:.200}: {problem}"
            ) from None

        answer = _called(function, params, tags)
        action = _object(answer).get("action")
        if action in ("accept", "decline", "cancel") and "action" not in fields:
            answer = answer.get("content", {})
        elif mode == "url":
            action = "accept" if answer is True else "decline"
        elif answer in (None, False, "decline", "cancel"):
            action = answer or "decline"
        else:
            action = "accept"
        if mode == "url" or action != "accept":
            return {"action": action}

        content = {
            name: part["default"]
            for name, part in fields.items()
            if "default" in _object(part)
        }
        content.update(answer)
        flaw = schema.flaw(content)
        if flaw:
            raise ValueError(f"the answer does not match the form: {flaw}")
        return {"action": "accept", "content": content}

    # ---- methods: lists

    def _ask(
        self, method: str, params: Any, member: str, *needed: str, **options: Any
    ) -> Message:
        """Send a request whose result has a list `member` of objects with strings
        `needed`. ServerLacks: the capability is not declared."""
        self.open(options.get("timeout"))
        capability = METHODS[method].capability
        # Some servers have prompts, and declare none.
        if capability not in self.capabilities and method != "prompts/get":
            raise ServerLacks(f"the server does not declare {capability}")
        result: Message = self.request(method, params, **options)
        for item in _member(result, member, list):
            _check_texts(item, *needed)
        return result

    def _list(
        self, method: str, member: str, key: str = "name", **options: Any
    ) -> list[Message]:
        """Fetch all pages of a list: server/utilities/pagination. `key`: the member
        that tells its items apart. A list whose pages bring nothing new goes round in
        circles; cursors do not show that."""
        items: list[Message] = []
        known: set[str] = set()
        params: Message = {}
        size = 0
        stuck = 0
        for _ in range(MAX_PAGES):
            try:
                page = self._ask(method, params, member, **options)
            except ServerLacks:
                return items
            size += size_of(page)
            if size > MAX_LIST_BYTES:
                break
            stuck += 1
            valid = self._valid(
                method, page[member], lambda item: _check_texts(item, "name", key)
            )
            keys = {item[key] for item in valid}
            if keys - known:
                known |= keys
                items += valid
                stuck = 0
            if page.get("nextCursor") is None:  # "" is a valid cursor
                return items
            if stuck == MAX_STUCK_PAGES:
                self.transport.say(f"{method}: {stuck} pages brought nothing new")
                return items
            params = {"cursor": _member(page, "nextCursor", str)}
        raise Malformed(f"{method} has more than {MAX_PAGES} pages, or is too large")

    def _valid(self, method: str, items: list[Any], check: Any) -> list[Message]:
        """Return the items that pass a check; report the first of the others."""
        valid = []
        first = ""
        for item in items:
            try:
                check(item)
                valid.append(item)
            except (Malformed, RecursionError) as problem:
                first = first or f"{item!r:.200}: {problem}"
        if first:
            ignored = len(items) - len(valid)
            self.transport.say(f"{method}: ignored {ignored}, first {first}")
        return valid

    def list_tools(self, **options: Any) -> list[Message]:
        """Return all tools, over HTTP without those with invalid headers: server/tools
        §Tool."""
        tools = self._list("tools/list", "tools", **options)
        self.tools = {tool["name"]: tool for tool in tools}
        if not (self.transport.mirrors and self.modern):
            return tools
        # .../streamable-http §Schema Extension
        return self._valid(
            "tools/list", tools, lambda tool: _mirrors(tool.get("inputSchema"), {})
        )

    def list_resources(self) -> list[Message]:
        """Return all resources: server/resources §Resource."""
        return self._list("resources/list", "resources", "uri")

    def list_resource_templates(self) -> list[Message]:
        """Return all resource templates: server/resources §Resource Templates."""
        return self._list(
            "resources/templates/list", "resourceTemplates", "uriTemplate"
        )

    def list_prompts(self) -> list[Message]:
        """Return all prompts: server/prompts §Prompt."""
        return self._list("prompts/list", "prompts")

    # ---- methods: one thing

    def call_tool(
        self, name: str, arguments: Message | None = None, **options: Any
    ) -> Message:
        """Call a tool: server/tools §Calling Tools. Returns {"content": [...]}, perhaps
        with "structuredContent", and "isError" if it failed. Options: see request()."""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("tools/call", params, "content", "type", **options)

    def read_resource(self, uri: str, **options: Any) -> list[Message]:
        """Read a resource. Returns its contents: [{"uri", "text" or "blob" (base64),
        ...}]."""
        result = self._ask("resources/read", {"uri": uri}, "contents", "uri", **options)
        return list(result["contents"])

    def get_prompt(self, name: str, arguments: Any = None, **options: Any) -> Message:
        """Get a prompt; its arguments are strings. Returns {"messages": [...], ...}."""
        params = {"name": name, "arguments": arguments or {}}
        return self._ask("prompts/get", params, "messages", "role", **options)

    def complete(
        self, reference: str, argument: str, value: str, known: Any = None
    ) -> list[str]:
        """Return completions of `value`, for an argument of a prompt or template:
        server/utilities/completion. `known`: other arguments."""
        ref = {"type": "ref/prompt", "name": reference}
        if "://" in reference or "{" in reference:  # a name may contain a colon
            ref = {"type": "ref/resource", "uri": reference}
        params = {"argument": {"name": argument, "value": value}, "ref": ref}
        if known:
            params["context"] = {"arguments": known}
        result = self.request("completion/complete", params)
        values: list[str] = _member(_object(result, "completion"), "values", list)
        if any(type(one) is not str for one in values):
            raise Malformed(f"completions must be strings: {values!r:.200}")
        return values

    def ping(self) -> None:
        """Check that the server answers: by ping or, in the modern era,
        server/discover."""
        self.request("server/discover" if self.modern else "ping")

    def set_level(self, level: str) -> None:
        """Ask for log messages of this level (mcp_ref.LOG_LEVELS) and above.
        [deprecated]"""
        self.open()
        if not self.modern:
            self.request("logging/setLevel", {"level": level})
        self.log_level = level  # modern: sent with each request

    def listen(
        self, wanted: Iterable[str], callback: Any = None, timeout: Any = None
    ) -> Subscription:
        """Subscribe to changes of "tools", "prompts", "resources" or URIs, and to
        notifications by their names (with a slash, without a colon). See
        Subscription."""
        self.open()
        if isinstance(wanted, str):
            wanted = [wanted]
        subscription = Subscription(self, list(wanted), timeout)
        if callback:

            def forward() -> None:
                with suppress(Disconnected):
                    for change in subscription:
                        callback(change)

            _thread("mcp-listen", forward)
        return subscription


connect = Client
