"""Links: the ways to a server, over stdio, Streamable HTTP and HTTP+SSE.

A link only carries: it sends what it is given and puts what comes into its inbox, as
(number of the HTTP exchange or 0, what, data). What is "message" (data is that of
read_json()), "http" (a part of the response) or "left" (the other end has
closed). All waiting is in the reader of the inbox, so a link can never hang a runner.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from patterns import LIMIT, Json

FLOOD = 20_000  # messages in one conversation
PAUSE = 0.02  # seconds between two pieces of a line, so that they are read apart
STDERR_LINES = 100  # the last ones are kept, to find the cause when a process ends


def start(work: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Run a function on a thread of its own."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)


def read_number(text: str) -> float:
    """Read a number with a point; 1.0 is an integer."""
    number = float(text)
    return int(number) if number.is_integer() else number


def read_json(text: bytes) -> Any:
    """Read JSON; what is not JSON stays text, and an object that is not UTF-8 stays
    bytes."""
    hooks: Any = {"parse_constant": refuse_constant, "parse_float": read_number}
    try:
        return json.loads(text.decode(), **hooks)
    except UnicodeDecodeError:
        if isinstance(read_json(text.decode("latin-1").encode()), dict):
            return text[:1000]
    except (ValueError, RecursionError):
        pass
    return text[:1000].decode(errors="replace")


def rubbish(value: Any) -> Json:
    """Say what came in the place of a message: `utf8` is there, and false, if it is one
    in another encoding."""
    if isinstance(value, bytes):
        return {"rubbish": value.decode(errors="replace"), "utf8": False}
    return {"rubbish": value}


def is_message(value: Any) -> bool:
    """Say whether what a refusal brings is a message of JSON-RPC, or a batch."""
    members = value if isinstance(value, list) and value else [value]
    return all(isinstance(one, dict) and "jsonrpc" in one for one in members)


# Lines of stderr that are not the cause: frames of Python and Node, and what stands
# around them.
FRAME = re.compile(r"\s|Traceback \(|Node\.js v|node:|\}?$")


def cause_of(lines: Iterable[bytes]) -> str:
    """Find the cause in the last lines that a process has written to stderr."""
    texts = [line.decode(errors="replace").rstrip() for line in lines]
    plain = [text for text in texts if not FRAME.match(text)]
    errors = [
        text for text in plain if re.search(r"\w*(Error|Exception|panic)\b", text)
    ]
    return " | ".join((errors or plain or texts)[-2:])


def launch(command: list[str], errors: int) -> subprocess.Popen[bytes]:
    """Start a process, in a group of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=os.name == "posix",
    )


def listen(errors: Any, said: collections.deque[bytes]) -> None:
    """Keep what a process writes to stderr."""
    with errors:
        said.extend(iter(lambda: errors.readline(1000), b""))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has no groups
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


class Link:
    """What all carriers have."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[int, str, Any]] = queue.Queue(FLOOD)
        self.numbers = itertools.count(1)
        # The HTTP responses so far, by the numbers of their exchanges.
        self.exchanges: dict[int, Json] = collections.defaultdict(dict)
        # Ids, as JSON, of what was sent, of whatever kind, by the numbers of exchanges.
        self.named: dict[int, set[str]] = collections.defaultdict(set)
        self.waiting: set[str] = set()  # ids, as JSON, of requests without an answer
        self.used: set[str] = set()  # all ids of requests
        self.methods: dict[str, str] = {}  # of requests, by their ids
        self.ended = ""  # the last words of a server that has ended
        self.dropped: set[str] = (
            set()
        )  # ids of what a vector left, which may be answered
        self.session = ""
        self.spoke = False  # a first message has come: the process has started
        self.initialized: Json = {}  # the result of a handshake

    def send(
        self, number: int, body: bytes, verb: str, headers: Json, pieces: int = 1
    ) -> None:
        """Send a body, over HTTP as an exchange of this number, on stdio in pieces."""
        raise NotImplementedError

    def hang_up(self, number: int) -> None:
        """Close the HTTP response of an exchange."""

    def close(self, seconds: float = 2) -> str:
        """Close everything; say what became of the process."""
        raise NotImplementedError


RUNNING: set[subprocess.Popen[bytes]] = set()  # processes that serve stdio


def kill_all() -> None:
    """Kill what is still running, when the run is interrupted."""
    for process in list(RUNNING):
        kill(process)


class Stdio(Link):
    """A process that serves stdio."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self.process = launch(command, subprocess.PIPE)
        RUNNING.add(self.process)
        self.outbox: queue.Queue[bytes | None] = queue.Queue()
        start(self._write, self.process.stdin)
        start(self._read, self.process.stdout, self.process.stderr)

    def send(
        self, number: int, body: bytes, verb: str, headers: Json, pieces: int = 1
    ) -> None:
        line = body + b"\n"
        size = -(-len(line) // pieces)
        for place in range(0, len(line), size):
            self.outbox.put(line[place : place + size])

    def _write(self, pipe: Any) -> None:
        with contextlib.suppress(OSError, ValueError), pipe:
            for part in iter(self.outbox.get, None):
                pipe.write(part)
                pipe.flush()
                if not part.endswith(b"\n"):
                    time.sleep(PAUSE)

    def _read(self, pipe: Any, errors: Any) -> None:
        said: collections.deque[bytes] = collections.deque(maxlen=STDERR_LINES)
        listener = start(listen, errors, said)
        with pipe:
            for line in iter(lambda: pipe.readline(LIMIT), b""):
                self.inbox.put((0, "message", read_json(line)))
        listener.join(0.5)
        self.inbox.put((0, "left", cause_of(list(said)) or "without a word on stderr"))

    def close(self, seconds: float = 2) -> str:
        """Close stdin; say whether the process has left in time, or was killed."""
        self.outbox.put(None)
        RUNNING.discard(self.process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            return "left"
        kill(self.process)
        return "killed"


class Http(Link):
    """Streamable HTTP, or HTTP+SSE, which has one stream for all answers.

    Each exchange has a connection of its own, so that none waits for another.
    """

    def __init__(self, url: str, sse: bool, credentials: Json, seconds: float) -> None:
        super().__init__()
        self.credentials = credentials  # headers that no report shows
        self.sse = sse
        self.url = urllib.parse.urlsplit(url)
        self.page = self.url._replace(scheme="", netloc="", fragment="").geturl()
        self.target = self.page  # of POSTs; HTTP+SSE names another
        self.sockets: dict[int, Any] = {}
        self.ready = threading.Event()
        if sse:
            self.send(0, b"", "GET", {"accept": "text/event-stream"})
            if not self.ready.wait(seconds):
                raise OSError(f"no endpoint event came from {url}")

    def send(
        self, number: int, body: bytes, verb: str, headers: Json, pieces: int = 1
    ) -> None:
        start(self._exchange, number, body, verb, {**self.credentials, **headers})

    def _exchange(self, number: int, body: bytes, verb: str, headers: Json) -> None:
        """Make a request and deliver its response, on a thread of its own."""
        secure = self.url.scheme == "https"
        kind: Any = http.client.HTTPConnection
        if secure:
            kind = http.client.HTTPSConnection
        connection = kind(self.url.hostname, self.url.port, timeout=30)
        text, what = b"", "http" if number else "left"
        try:
            target = self.target if verb == "POST" else self.page
            connection.request(verb, target or "/", body or None, headers)
            self.sockets[number] = connection.sock
            with connection.getresponse() as answer:  # it may outlive the connection
                text = self._deliver(number, verb, answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = repr(error).encode()
            what = what if number in self.sockets else "left"
        connection.close()
        self.inbox.put((number, what, {"body": text.decode(errors="replace")}))

    def _deliver(
        self, number: int, verb: str, answer: http.client.HTTPResponse
    ) -> bytes:
        """Deliver a response as it comes; return its body, unless it is a stream."""
        headers = {name.lower(): value for name, value in answer.getheaders()}
        part = {"status": answer.status, "headers": headers}
        self.inbox.put((number, "http", part))
        if answer.headers.get_content_type() == "text/event-stream":
            self.sockets[number].settimeout(None)
            self._follow(number, answer)
            return b""
        text = answer.read(LIMIT)
        sent = verb == "POST" and not self.sse  # what a GET brings answers no message
        if answer.headers.get_content_subtype() == "json" and text and sent:
            # What a refusal brings is a page about it, if it is not a message.
            value = read_json(text)
            if answer.status == 200 or is_message(value):
                self.inbox.put((number, "message", value))
        return text

    def _follow(self, number: int, answer: http.client.HTTPResponse) -> None:
        """Deliver the events of a stream."""
        events: list[Json] = []
        event: Json = {}
        for line in iter(lambda: answer.readline(LIMIT), b""):
            text = line.decode(errors="surrogateescape").rstrip("\r\n")
            name, _, value = text.partition(":")
            value = value[value.startswith(" ") :]
            if name == "data" and "data" in event:
                event["data"] += "\n" + value
            elif name:
                event[name] = value
            elif event and not line.strip():
                events = [*events, event]
                self.inbox.put((number, "http", {"events": events}))
                self._take_event(number, event)
                event = {}

    def _take_event(self, number: int, event: Json) -> None:
        """Deliver the message of an event; learn where HTTP+SSE wants its POSTs."""
        data = event.get("data", "")
        if event.get("event") == "endpoint" and not number:
            self.target = urllib.parse.urljoin(self.target, data)
            self.ready.set()
        elif data and event.get("event", "message") == "message":
            source = 0 if self.sse else number
            message = read_json(data.encode(errors="surrogateescape"))
            self.inbox.put((source, "message", message))

    def hang_up(self, number: int) -> None:
        with contextlib.suppress(OSError, AttributeError, KeyError):
            self.sockets[number].shutdown(2)

    def close(self, seconds: float = 2) -> str:
        """Close the responses of all exchanges."""
        for number in list(self.sockets):
            self.hang_up(number)
        return "left"
