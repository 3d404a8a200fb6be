#!/usr/bin/env python3
"""Walk through the code: what mcp_ref.py does with each message, as one page.

    python3 examples/tools/walk.py LESSON > walk.html           such as 03
    python3 examples/tools/walk.py FILE.py call add a=2 b=3 > walk.html
    python3 examples/tools/walk.py FILE.py METHOD [name=value ...] > walk.html
    python3 examples/tools/walk.py FILE.py TRACE.jsonl > walk.html

A lesson of the course, one request, or what the client says in a recorded trace is
played to the server in a process of its own, on a real pipe or socket. Each statement
of mcp_ref.py and of FILE.py that runs is recorded, on all threads. The page shows
functions, statements, and what they changed, decided and returned.

    --http              one request goes over HTTP, on a socket
    --session           ... in a session, as older clients do it
    --header 'N: V'     a header of the request; secrets in it are not shown
    --end WAY           what ends the walk of one request: input (the default of stdio),
                        hang-up, signal (the default of HTTP)
    --new LESSON        only what no earlier lesson has passed
    --compare           two walks side by side; the second one follows after `--`:
                        walk.py --compare 03 -- 19
                        walk.py --compare FILE.py call add a=2 b=3 -- --http
    --write             write what is generated at the end of each lesson, and in the
                        README of the lessons; --check tells whether it is true
    --missing           which functions no lesson passes, by section

Known limit: since Python 3.12, what a comprehension is assigned to is not shown.

As a module: `Recorder(files)` records what runs, on all threads or on this one.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import json
import re
import runpy
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "course" / "lessons"))
sys.path.insert(2, str(Path(__file__).resolve().parents[2]))

import mcp_ref
import picture
import replay
import walk_page
from walk_page import Drawing, Event, Source, Step, Visit

LESSONS = Path(replay.__file__).parent
QUIET = 0.06  # seconds without a new statement: the server is done with a message
NOTICED = 0.8  # ... until it has noticed over HTTP that a client has hung up
LONGEST = 2.0  # seconds to wait for that
BLINK = 0.25  # seconds until a handler counts as slow: recorded code is slower
PATIENCE = 60  # seconds for a conversation
MOST = 500_000  # events of a step; what runs then is not recorded


# ---- secrets
class Veil:
    """Hides secrets in what is recorded: values of headers, and wherever they return.

    A value that is hidden once is remembered, and hidden in all that follows.
    """

    NAMES = re.compile(
        r"(?i)(proxy-)?authorization|cookie|secret|passw|api[-_]?key|state_key"
        r"|(access|refresh|id|bearer|api|auth)[-_]?token|^tokens$|credential"
    )
    LINES = re.compile(
        r"(?im)\b((?:proxy-)?authorization|cookie|set-cookie|x-[\w-]*(?:key|token)"
        r"|[\w-]*(?:secret|password|api-key|auth-token)[\w-]*)(['\"]?\s*[:=]\s*(?:b?['\"])?)"
        r"((?:\\['\"]|[^\r\n'\"\\])+)"
    )
    SCHEMES = re.compile(r"(?i)\b(bearer|basic)( +)([\w.~+/=-]{4,})")
    QUERIES = re.compile(
        r"(?i)([?&](?:\w*key|\w*token|code|\w*secret|password))(=)([^&\s'\"#]+)"
    )

    def __init__(self) -> None:
        self.hidden: list[str] = []  # the longest first

    def hide(self, value: str) -> None:
        """Remember a secret, and its words."""
        words = {value, *re.split(r"[\s,;]+", value)}
        for word in {*words, *(word.partition("=")[2] for word in words)}:
            known = word in self.hidden or word.lower() in ("bearer", "basic", "digest")
            if len(word) >= 4 and not known:
                self.hidden.append(word)
        self.hidden.sort(key=len, reverse=True)

    def over(self, text: str) -> str:
        """Return a text without secrets."""

        def cover(found: re.Match[str]) -> str:
            self.hide(found[3])
            return f"{found[1]}{found[2]}***"

        for pattern in (self.LINES, self.SCHEMES, self.QUERIES):
            text = pattern.sub(cover, text)
        return self.over_known(text)

    def over_known(self, text: str) -> str:
        """Return a text without the secrets that are known; it has none of its own."""
        for secret in self.hidden:
            text = text.replace(secret, "***")
        return text


class Words:
    """Says values in a few words. It calls no method of theirs: that might wait."""

    MOST = 80  # characters

    def __init__(self, veil: Veil) -> None:
        self.veil = veil

    def say(self, value: Any, depth: int = 3) -> str:
        """Return a value as a short text."""
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return repr(value)
        if kind in (str, bytes, bytearray):
            return self._text(value)
        if issubclass(kind, BaseException):
            return f"{kind.__name__}: {self.veil.over(str(value))}"[: self.MOST]
        if kind in (dict, list, tuple, set, frozenset) or issubclass(kind, tuple):
            return self._several(value, depth)
        name = getattr(value, "__qualname__", None)
        if type(name) is str:  # a function, a class
            return name.rpartition("<locals>.")[2]
        inner = getattr(value, "func", None) if kind.__name__ == "partial" else None
        if inner is not None:
            return f"partial({self.say(inner)})"
        return f"<{kind.__name__}>"

    def _text(self, value: Any) -> str:
        text = value[: 20 * self.MOST]
        if type(value) is not str:
            text = bytes(text).decode("utf-8", "replace")
        text = repr(self.veil.over(text))
        cut = text if len(text) <= self.MOST else text[: self.MOST] + "..."
        return cut if type(value) is str else "b" + cut

    def _several(self, value: Any, depth: int) -> str:
        if type(value) is dict:
            pairs = itertools.islice(list(value.items()), 6)
            parts = [f"{self.say(k)}: {self._member(k, v, depth)}" for k, v in pairs]
            ends = "{}"
        else:
            some = list(itertools.islice(value, 6))
            parts = [self.say(one, depth - 1) if depth else "..." for one in some]
            brackets: dict[Any, str] = {list: "[]", set: "{}", frozenset: "{}"}
            ends = brackets.get(type(value), "()")
        if len(value) > 6:
            parts.append("...")
        text = ends[0] + ", ".join(parts) + ends[1]
        return text if len(text) <= 2 * self.MOST else text[: 2 * self.MOST] + "..."

    def _member(self, key: Any, value: Any, depth: int) -> str:
        return self.named(key, value, depth - 1) if depth else "..."

    def named(self, name: Any, value: Any, depth: int = 3) -> str:
        """Return the value of a variable or a member, unless its name is that of a
        secret."""
        if type(name) is str and self.veil.NAMES.search(name):
            if type(value) in (str, bytes):
                text = value if type(value) is str else value.decode("latin-1")
                self.veil.hide(text)
                return "***"
            if type(value) is dict:
                return "{***}"
        return self.say(value, depth)


# ---- recording
class Recorder:
    """Records what runs of some files: `trace` is for sys.settrace().

    An event is one of

        ["call", visit, file, name, line, thread, caller's visit, arguments]
        ["line", visit, line, what the line before it has changed]
        ["return", visit, result, what the last line has changed, failure]

    With `values`, results and changes are recorded, too, which takes time.
    """

    def __init__(self, sources: list[Source], paths: list[str], values: bool) -> None:
        self.files = {path: number for number, path in enumerate(paths)}
        self.targets = [one.targets() for one in sources]  # used for values only
        self.values = values
        self.words = Words(Veil())
        self.events: list[Event] = []
        self.seen: set[tuple[Any, int]] = set()  # what has run since the last take()
        self.idents = itertools.count(1)
        self.local = threading.local()
        self.names: Counter[str] = Counter()  # how many threads have had each name

    def trace(self, frame: Any, kind: str, value: Any) -> Any:
        """Begin to record a call, if it is one of these files."""
        code = frame.f_code
        file = self.files.get(code.co_filename)
        if file is None or (code.co_name[0] == "<" and code.co_name != "<module>"):
            return None
        if len(self.events) > MOST:
            return None
        return Call(self, frame, file).trace

    @property
    def stack(self) -> list[int]:
        """The visits of this thread that have not ended."""
        if not hasattr(self.local, "stack"):
            self.local.stack = []
            self.local.name = self._name_thread(threading.current_thread().name)
        stack: list[int] = self.local.stack
        return stack

    def _name_thread(self, name: str) -> str:
        """Return the name of a thread on the page: each has its own."""
        is_connection = name == "mcp-connection"
        if is_connection:
            name = "connection"
        self.names[name] += 1
        count = self.names[name]
        return f"{name} {count}" if is_connection or count > 1 else name

    def take(self) -> list[Event]:
        """Return what has been recorded since the last time."""
        # The list stays: another thread may be about to append to it.
        events = self.events[:]
        del self.events[: len(events)]
        self.seen = set()
        return events


class Call:
    """A call that is recorded: what its variables were at its last line."""

    def __init__(self, recorder: Recorder, frame: Any, file: int) -> None:
        self.recorder = recorder
        self.file = file
        self.ident = next(recorder.idents)
        self.variables: dict[str, str] = {}
        self.line = 0
        self.failure = ""
        code = frame.f_code
        args = ""
        if recorder.values:
            count = code.co_argcount + code.co_kwonlyargcount
            names = code.co_varnames[:count]
            self.variables = self._variables(frame)
            args = ", ".join(
                self.variables.get(name, "") for name in names if name != "self"
            )
        stack = recorder.stack
        recorder.events.append(
            ["call", self.ident, file, code.co_name, code.co_firstlineno]
            + [recorder.local.name, stack[-1] if stack else 0, args]
        )
        stack.append(self.ident)

    def trace(self, frame: Any, kind: str, value: Any) -> Any:
        """Record a line, or the end."""
        recorder = self.recorder
        if len(recorder.events) > MOST and kind != "return":
            return self.trace
        if kind == "line":
            self.failure = ""
            recorder.seen.add((frame.f_code, frame.f_lineno))
            changes = self._changes(frame)
            recorder.events.append(["line", self.ident, frame.f_lineno, changes])
            self.line = frame.f_lineno
        elif kind == "exception":
            if not issubclass(value[0], (StopIteration, GeneratorExit)):
                problem = value[1]
                if not isinstance(problem, BaseException):
                    problem = value[0]()
                self.failure = recorder.words.say(problem)
        elif kind == "return":
            result = None
            if not self.failure:
                result = recorder.words.say(value) if recorder.values else ""
            recorder.events.append(
                ["return", self.ident, result, self._changes(frame), self.failure]
            )
            if self.ident in recorder.stack:
                del recorder.stack[recorder.stack.index(self.ident) :]
        return self.trace

    def _variables(self, frame: Any) -> dict[str, str]:
        named = self.recorder.words.named
        return {name: named(name, value) for name, value in frame.f_locals.items()}

    def _changes(self, frame: Any) -> dict[str, str]:
        """Return what the last line has changed: variables, attributes that it sets."""
        if not self.recorder.values or frame.f_code.co_name == "<module>":
            return {}
        before, self.variables = self.variables, self._variables(frame)
        changes = {
            name: text
            for name, text in self.variables.items()
            if before.get(name) != text
        }
        for name, attribute in self.recorder.targets[self.file].get(self.line, ()):
            holder = getattr(frame.f_locals.get(name), "__dict__", {})
            if attribute in holder:
                said = self.recorder.words.named(attribute, holder[attribute])
                changes[f"{name}.{attribute}"] = said
        return changes


def is_busy() -> bool:
    """Tell whether another thread of this process runs, or would if it had a processor;
    False if that is not known."""
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state = task.read_text("latin-1").rpartition(") ")[2][:1]
            if state in "RD" and task.parent.name != own:
                return True
    return False


def record(port: int, values: bool, target: str, words: list[str]) -> None:
    """Run a program as the child of a walk; tell its parent what has run."""
    sys.path.insert(0, str(Path(target).resolve().parent))
    import mcp_ref

    paths = [mcp_ref.__file__, target]
    sources = [Source(path) for path in paths if values]
    recorder = Recorder(sources, paths, values)
    mcp_ref.BLINK_SECONDS = BLINK
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(json.dumps(mcp_ref.__file__).encode() + b"\n")
    asked = link.makefile("r")
    for secret in json.loads(asked.readline()):
        recorder.words.veil.hide(secret)
    guard = _thread.allocate_lock()

    def tell(kind: str, what: Any) -> None:
        with guard, contextlib.suppress(OSError):  # the parent has left
            link.sendall(json.dumps([kind, what]).encode() + b"\n")

    def answer() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in asked:
                if line == "take\n":
                    tell("take", recorder.take())
                else:
                    tell("news", [len(recorder.seen), is_busy()])

    # A thread that is started so is not recorded.
    _thread.start_new_thread(answer, ())
    sys.argv = [target, *words]
    threading.settrace(recorder.trace)
    sys.settrace(recorder.trace)
    try:
        runpy.run_path(target, run_name="__main__")
    finally:
        sys.settrace(None)
        threading.settrace(lambda *_: None)
        tell("end", recorder.take())
        link.shutdown(socket.SHUT_WR)


# ---- playing: a server in a process of its own, and what is said to it
class Walk:
    """A conversation with a server that is recorded, and its steps so far."""

    def __init__(self, target: str, words: list[str], values: bool = True) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        port = self.listener.getsockname()[1]
        mode = "--values" if values else "--lines"
        self.command = [sys.executable, __file__, "--record", str(port), mode, target]
        self.command += words
        self.steps: list[Step] = []
        self.veil = Veil()
        self.now: tuple[str, str, list[str]] = ("The server starts", "", [])
        self.rest: list[Event] = []

    def connect(self) -> None:
        """Wait for the child, which has been started with `command`."""
        with self.listener:
            self.link, _ = self.listener.accept()
        self.link.settimeout(PATIENCE)
        self.told = self.link.makefile("r")
        self.module = json.loads(self.told.readline())
        self.link.sendall(json.dumps(self.veil.hidden).encode() + b"\n")

    def ask(self, what: str) -> Any:
        """Ask the child; None: it has ended, and what it told then is in `rest`."""
        with contextlib.suppress(OSError):
            self.link.sendall(f"{what}\n".encode())
        with contextlib.suppress(OSError):
            for line in self.told:
                kind, told = json.loads(line)
                if kind == what:
                    return told
                self.rest += told if kind == "end" else []
        return None

    def settle(self, least: int) -> None:
        """Wait until nothing new has run for a moment."""
        seen, since = -1, time.monotonic()
        end = since + LONGEST
        quiet = NOTICED if self.now[0] == ACTIONS["(hangs up)"] else QUIET
        while time.monotonic() < end:
            told = self.ask("news")
            if told is None:
                break
            count, busy = told
            if count != seen or busy:
                seen, since = count, time.monotonic()
            elif seen >= least and time.monotonic() > since + quiet:
                break
            time.sleep(0.01)

    def begin(self, title: str, said: str) -> None:
        """End a step, and begin another one."""
        self.finish()
        self.now = (self.veil.over(title), self.veil.over(said), [])

    def finish(self) -> None:
        """End a step."""
        self.settle(least=0 if self.steps else 1)
        events = self.ask("take") or []
        events, self.rest = self.rest + events, []
        title, said, came = self.now
        self.steps.append(Step(title, said, [*map(self.veil.over, came)], events))

    def close(self) -> None:
        """Leave the child."""
        self.told.close()
        self.link.close()


ACTIONS = {
    "(closes stdin)": "The client closes stdin",
    "(hangs up)": "The client hangs up",
    "(sends SIGTERM)": "SIGTERM",
}


def title_of(said: str) -> str:
    """Return what a message is called on the page."""
    if said in ACTIONS:
        return ACTIONS[said]
    head, _, body = said.partition("\n\n") if "HTTP/" in said else ("", "", said)
    verb = head.partition(" HTTP/")[0]
    try:
        message = json.loads(body.replace("\n", " "))
        message = message if isinstance(message, dict) else {}
    except ValueError:
        message = {}
    name = message.get("params", {})
    name = name.get("name", name.get("uri", "")) if isinstance(name, dict) else ""
    method = message.get("method") or ("a response" if message else "")
    return " ".join(filter(None, (verb, str(method), str(name)))) or "A line"


class PipeWalk(replay.Pipe):
    """A walk on stdio, as a carrier for replay()."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        super().__init__(walk.command, PATIENCE)
        walk.connect()

    def send(self, said: str, _: str = "") -> None:
        self.walk.begin(title_of(said), said)
        super().send(said)

    def receive(self, _: str = "") -> str:
        came = super().receive()
        self.walk.now[2].append(came)
        return came

    def close(self) -> None:
        self.walk.finish()
        super().close()
        self.walk.close()


class Connection:
    """A connection of a client: answers come as in a lesson, part by part."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.sock = socket.create_connection(place)
        self.sock.settimeout(replay.PATIENCE)
        self.stream = self.sock.makefile("rb")
        self.is_free = True  # another request may be sent

    def close(self) -> None:
        self.stream.close()
        self.sock.close()

    def send(self, said: str) -> None:
        first, headers, body = replay.parts_of(said)
        text = "\r\n".join([first, *map(": ".join, headers.items()), "", body])
        self.is_free = False
        self.parts = self._parts()
        with contextlib.suppress(OSError):  # the answer will tell
            self.sock.sendall(text.encode())

    def receive(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return next(self.parts, "(nothing)")
        return "(nothing)"

    def _parts(self) -> Iterator[str]:
        lines = []
        while line := self.stream.readline().decode().strip():
            lines.append(line)
        fields = dict(one.lower().split(": ", 1) for one in lines[1:] if ": " in one)
        head = "\n".join(lines)
        if "transfer-encoding" not in fields:
            body = self.stream.read(int(fields.get("content-length", 0)))
            self.is_free = fields.get("connection") != "close" and bool(lines)
            yield f"{head}\n\n{body.decode()}".strip()
            return
        yield head
        text = ""
        while size := int(self.stream.readline() or b"0", 16):
            text += self.stream.read(size + 2)[:-2].decode()
            *events, text = text.split("\n\n")
            yield from map(str.strip, events)
        self.stream.readline()
        self.is_free = True
        yield "(the stream ends)"


class SocketWalk:
    """A walk over HTTP, on sockets, as a carrier for replay()."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.connections: dict[str, Connection] = {}
        walk.command += ["--http", "127.0.0.1:0"]
        self.server: Any = subprocess.Popen(
            walk.command,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.timer = threading.Timer(PATIENCE, self.server.kill)
        self.timer.start()
        walk.connect()
        stderr: Any = self.server.stderr
        for line in stderr:
            if found := re.search(r"listens on http://([\d.]+):(\d+)", line):
                self.place = (found[1], int(found[2]))
                break
        self.drain = threading.Thread(target=stderr.read, daemon=True)
        self.drain.start()

    def send(self, said: str, connection: str = "") -> None:
        self.walk.begin(title_of(said), said)
        if said == "(hangs up)":
            gone = self.connections.pop(connection)
            gone.sock.shutdown(socket.SHUT_RDWR)
            gone.close()
        elif said == "(sends SIGTERM)":
            self.server.terminate()
        else:
            known = self.connections.get(connection)
            if known is None or not known.is_free:
                if known:
                    known.close()
                known = self.connections[connection] = Connection(self.place)
            known.send(said)

    def receive(self, connection: str = "") -> str:
        known = self.connections.get(connection)
        came = known.receive() if known else "(nothing)"
        self.walk.now[2].append(came)
        return came

    def close(self) -> None:
        self.walk.finish()
        self.walk.close()
        self.server.kill()
        self.timer.cancel()
        self.drain.join()
        self.server.communicate()
        for one in self.connections.values():
            one.close()


def play(target: str, steps: list[replay.Step], values: bool = True) -> Walk:
    """Hold a conversation with a program; return the walk."""
    walk = Walk(target, ["--token"] * replay.wants_token(steps), values)
    for step in steps:
        walk.veil.over(step.said)  # which learns the secrets
    carrier = SocketWalk(walk) if replay.is_http(steps) else PipeWalk(walk)
    for _ in replay.replay(steps, carrier):
        pass
    return walk


def lesson_file(number: str) -> Path:
    """Return the file of a lesson."""
    found = sorted(LESSONS.glob(f"{int(number):02}_*.md")) if number.isdigit() else []
    if not found:
        raise SystemExit(f"walk.py: there is no lesson {number}")
    return found[0]


def joined(walks: Iterable[Walk]) -> list[Step]:
    """Return the steps of several walks, but for the starts of their servers; each
    visit keeps a number of its own."""
    steps = []
    for number, walk in enumerate(walks):
        for step in walk.steps[1:]:
            for event in step.events:
                event[1] += number * 10**7
                if event[0] == "call" and event[6]:
                    event[6] += number * 10**7
            steps.append(step)
    return steps


def play_lesson(number: str, values: bool = True) -> list[Step]:
    """Return the steps of a lesson; "00": the start of its server, and the end."""
    server = str(replay.SERVER)
    if int(number) == 0:
        steps = [replay.Step(">", "(closes stdin)", 0, 0)]
        return play(server, steps, values).steps[:1]
    text = lesson_file(number).read_text("utf-8")
    return joined(play(server, steps, values) for steps in replay.read(text))


# ---- one request, or a recorded trace
def request_of(words: list[str]) -> dict[str, Any]:
    """Return the method and the params that the command line asks for."""
    method, *rest = words
    params: dict[str, Any] = {}
    if method in ("call", "get", "read") and rest:
        name, *rest = rest
        params = {"uri" if method == "read" else "name": name}
        method = {"call": "tools/call", "get": "prompts/get"}.get(method, "")
        method = method or "resources/read"
    values: dict[str, Any] = {}
    for word in rest:
        key, equals, text = word.partition("=")
        if not equals:
            raise SystemExit(f"walk.py: expected name=value, not {word}")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    if "name" in params:
        params["arguments"] = values
    else:
        params.update(values)
    return {"method": method, "params": params}


def conversation_of(words: list[str], options: dict[str, Any]) -> list[replay.Step]:
    """Return the conversation for one request."""
    request = {"jsonrpc": "2.0", "id": 1, **request_of(words)}
    said = []
    if options["session"]:
        revision = mcp_ref.versions("legacy")[0]
        said.append((">", f"(a session of {revision} is open)"))
    else:
        newest = mcp_ref.versions()[0]
        meta = mcp_ref.meta_for(newest)
        request["params"] = {**request["params"], "_meta": meta}
    text = json.dumps(request)
    if options["http"]:
        lines = ["POST /mcp HTTP/1.1", *options["header"]]
        if options["session"]:
            lines.append("Mcp-Session-Id: <session>")
        else:
            lines.append(f"MCP-Protocol-Version: {mcp_ref.versions()[0]}")
            lines.append(f"Mcp-Method: {request['method']}")
            name = request["params"].get("name", request["params"].get("uri"))
            lines += [f"Mcp-Name: {name}"] * (name is not None)
        text = "\n".join([*lines, "", text])
    said += [(">", text), ("<", "<the answer>")]
    ends = {"input": "(closes stdin)", "hang-up": "(hangs up)"}
    said.append((">", ends.get(options["end"], "(sends SIGTERM)")))
    return [replay.Step(way, one, 0, 0) for way, one in said]


def conversation_in(trace: str) -> list[replay.Step]:
    """Return what was said in a recorded trace, as the steps of a lesson.

    Ids of sessions and request state differ from run to run: they become names.
    """
    said: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for record in picture.read_trace(trace):
        way = record.get("way")
        on = "" if record.get("on") == "stdio" else str(record.get("on", ""))
        message = record.get("message")
        text = json.dumps(message, separators=(",", ":")) if message else ""
        if "closed" in record and way == ">":
            text = "(hangs up)" if on else "(closes stdin)"
        elif on and way == ">":
            fields = {name: one for name, one in record.items() if name[:4] == "mcp-"}
            if session := fields.get("mcp-session-id"):
                names[session] = "session"
            head = [f"{record.get('http', 'POST /mcp')} HTTP/1.1"]
            text = "\n".join([*head, *map(": ".join, fields.items()), "", text])
        elif "status" in record:
            opens = picture.part(message, "result", "protocolVersion")
            first = f"HTTP/1.1 {record['status']}"
            first += "\nMcp-Session-Id: <session>" * bool(opens)
            text = f"{first}\n\n{text}"
        elif not text:
            continue
        state = picture.part(message, "result", "requestState")
        if isinstance(state, str):
            names[state] = f"state {chr(97 + len(names) % 26)}"
        said.append((f"{on}{way}", text))
    steps = []
    for way, text in said:
        for value, name in names.items():
            text = text.replace(value, f"<{name}>")
        steps.append(replay.Step(way, text, 0, 0))
    return steps


# ---- what lessons pass: which statements, and the way of their messages
def words_for(way: list[Visit]) -> str:
    """Return a way in words: functions of the file, each new section before its first
    one."""
    words: list[str] = []
    section = ""
    done: set[str] = set()
    for one in way:
        name = one.function.short
        where = one.function.section
        if name in done or not where:
            continue
        done.add(name)
        mark = f"§{where} " if where != section else ""
        section = where
        words.append(f"{mark}`{name}`")
    return ", ".join(words)


class Progress:
    """What each lesson passes, from the first to the last; "00" is the start.

    All are lists of statements or functions by the number of the lesson.
    """

    def __init__(self) -> None:
        self.source = Source(mcp_ref.__file__)
        self.author = Source(replay.SERVER, True)
        self.numbers = ["00", *(path.name[:2] for path in lesson_files())]
        self.new: dict[str, set[tuple[str, int]]] = {}
        self.known: dict[str, set[tuple[str, int]]] = {}  # before the lesson
        self.ways: dict[str, str] = {}  # of the message that passes most that is new
        self.functions: dict[str, set[str]] = {}
        self.all: set[tuple[str, int]] = set()
        with ThreadPoolExecutor(3) as pool:
            played = pool.map(lambda number: play_lesson(number, False), self.numbers)
            for number, steps in zip(self.numbers, played):
                self._read(number, steps)

    def _read(self, number: str, steps: list[Step]) -> None:
        story = walk_page.Story([self.source, self.author])
        self.known[number] = set(self.all)
        self.functions[number] = set()
        most = -1
        for step in steps:
            visits = story.read(step.events)
            every = [one for root in visits for one in root.all()]
            self.functions[number] |= {one.function.short for one in every}
            fresh = walk_page.passed(visits) - self.all
            self.all |= fresh
            if len(fresh) > most:
                most = len(fresh)
                self.ways[number] = words_for(walk_page.way_of(visits))
        self.new[number] = self.all - self.known[number]

    def sections(self, passed: set[tuple[str, int]]) -> dict[str, int]:
        """Return how many of some statements are in each section."""
        found: dict[str, int] = dict.fromkeys(self.source.titles, 0)
        for _, line in passed:
            found[self.source.section_of(line)] += 1
        return found

    def statements(self) -> set[tuple[str, int]]:
        """Return all statements of the functions of the module."""
        return {
            (function.name, one.line)
            for function in self.source.functions.values()
            for one in function.statements.values()
            if one.counts
        }

    def missing(self) -> str:
        """Say which functions no lesson passes, and of which others it leaves most."""
        left = self.statements() - self.all
        lines = []
        for section, title in self.source.titles.items():
            names: Counter[str] = Counter()
            names.update(n for n, at in left if self.source.section_of(at) == section)
            some = ", ".join(f"{name} {count}" for name, count in names.most_common())
            lines.append(f"{section}. {title}: {some or 'nothing'}")
        return "\n".join(lines)


def lesson_files() -> list[Path]:
    """Return the lessons in their order."""
    return sorted(LESSONS.glob("[0-9]*.md"))


# ---- what is generated in the lessons and their README
FOOT = re.compile(r"\n\*In the code:\*(?s:.*)")
COUNT = r"(?m)^New here: about (\d+) statements"


def rounded(count: int) -> int:
    """Return a number that stays true for a while."""
    return 5 * round(count / 5)


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def foot_of(progress: Progress, number: str) -> str:
    """Return the generated end of a lesson."""
    new = progress.new[number]
    counts = progress.sections(new)
    sections = [section for section, count in counts.items() if count > 2]
    said = "New here: next to nothing."
    if rounded(len(new)) and sections:
        plural = "s" * (len(sections) > 1)
        said = (
            f"New here: about {rounded(len(new))} statements, in section{plural} "
            f"{listed(sections)}."
        )
    way = progress.ways[number]
    first = [*progress.ways][[*progress.ways.values()].index(way)]
    if first != number:
        way = f"as in lesson {int(first)}"
    paragraphs = f"*In the code:* {way}.", said
    return (
        "\n"
        + "\n\n".join(
            textwrap.fill(one, 100, break_long_words=False, break_on_hyphens=False)
            for one in paragraphs
        )
        + "\n"
    )


def shares_of(progress: Progress, readme: str) -> str:
    """Return the README of the lessons with the last column of its list."""
    everything = progress.statements()
    sum_ = 0
    for number, new in progress.new.items():
        sum_ += len(new)
        percent = 100 * sum_ // len(everything)
        row = rf"(?m)^(\| \[{int(number)}\. .* \|) .* \|$"
        readme = re.sub(row, rf"\1 {percent} % |", readme)
    return readme


def write(progress: Progress) -> None:
    """Write what is generated."""
    for path in lesson_files():
        text = FOOT.sub("", path.read_text("utf-8")).rstrip("\n") + "\n"
        path.write_text(text + foot_of(progress, path.name[:2]), "utf-8")
    readme = LESSONS / "README.md"
    readme.write_text(shares_of(progress, readme.read_text("utf-8")), "utf-8")


def is_about(stated: str, true: int) -> bool:
    """Tell whether a generated number is still true, more or less."""
    return abs(int(stated) - true) <= max(12, true / 5)


def check(progress: Progress) -> list[str]:
    """Return what is generated and no longer true.

    A function may move and grow a little; names and sections must be right.
    """
    found = []
    where = {one.short: one.section for one in progress.source.functions.values()}
    places = {(one.section, one.short) for one in progress.source.functions.values()}
    for path in lesson_files():
        number, text = path.name[:2], path.read_text("utf-8")
        foot = FOOT.search(text)
        stated = re.search(COUNT, text)
        if not foot or not is_about(
            stated[1] if stated else "0", len(progress.new[number])
        ):
            found.append(f"{path.name}: {len(progress.new[number])} statements are new")
        same = re.search(r"as in lesson \d+", foot[0] if foot else "")
        if same and same[0] not in foot_of(progress, number):
            found.append(f"{path.name}: its way is not as in another lesson")
        section = ""
        for mark, name in re.findall(r"(?:§(\d+)\s)?`(\w+)`", foot[0] if foot else ""):
            section = mark or section
            if name not in progress.functions[number] | {"mcp_ref"}:
                found.append(f"{path.name}: its messages do not pass {name}()")
            elif name in where and (section, name) not in places:
                found.append(f"{path.name}: {name}() is not in section {section}")
    readme = (LESSONS / "README.md").read_text("utf-8")
    for one, other in zip(
        re.findall(r"(\d+) %", readme),
        re.findall(r"(\d+) %", shares_of(progress, readme)),
    ):
        if abs(int(one) - int(other)) > 5:
            found.append(f"README.md: it says {one} %, and it is {other} %")
    return found


# ---- the command line
def option(words: list[str], name: str, value: str = "") -> str:
    """Take an option out of the words; return its value, or its name; "": not there."""
    if name not in words:
        return ""
    at = words.index(name)
    if not value:
        del words[at]
        return name
    if at + 1 == len(words):
        raise SystemExit(f"walk.py: {name} needs {value}")
    _, found = words.pop(at), words.pop(at)
    return found


def walk_for(words: list[str]) -> tuple[str, list[Step], list[Source]]:
    """Play what some words ask for; return its title, steps and files."""
    words = list(words)
    options: dict[str, Any] = {
        "session": option(words, "--session"),
        "http": option(words, "--http"),
        "end": option(words, "--end", "input, hang-up or signal"),
        "header": [],
    }
    while header := option(words, "--header", "'Name: value'"):
        options["header"].append(header)
    if options["end"] not in ("", "input", "hang-up", "signal"):
        raise SystemExit("walk.py: --end is input, hang-up or signal")
    options["end"] = options["end"] or ("signal" if options["http"] else "input")
    target = words[0] if words else ""
    if target.isdigit() and len(words) == 1:
        title = f"Lesson {int(target)}" if int(target) else "The start of a server"
        sources = [Source(mcp_ref.__file__), Source(replay.SERVER, True)]
        return title, play_lesson(target), sources
    if not target.endswith(".py") or len(words) < 2:
        raise SystemExit(
            "walk.py: expected LESSON, or FILE.py and a request; see --help"
        )
    if not Path(target).is_file():
        raise SystemExit(f"walk.py: cannot read {target}")
    if words[1].endswith(".jsonl"):
        steps = conversation_in(Path(words[1]).read_text("utf-8", "replace"))
    else:
        steps = conversation_of(words[1:], options)
    walk = play(target, steps)
    module, author = sources = [Source(walk.module), Source(target, True)]
    # Both may have the secrets of the request. The module says "bearer event", too.
    module.lines = [*map(walk.veil.over_known, module.lines)]
    author.lines = [*map(walk.veil.over, author.lines)]
    return " ".join([Path(target).name, *words[1:]]), walk.steps, sources


def drawing_for(
    sources: list[Source], known: Iterable[tuple[str, int]] = ()
) -> Drawing:
    """Return what draws a walk of these files."""
    return Drawing(sources, known, newest=mcp_ref.versions()[0])


def page_for(words: list[str]) -> str:
    """Return the page that the command line asks for."""
    if option(words, "--compare"):
        at = words.index("--") if "--" in words else len(words)
        first, second = words[:at], words[at + 1 :]
        if not first or not second:
            raise SystemExit("walk.py: --compare WALK -- WALK; see --help")
        if second[0].startswith("-"):  # only other options
            second = first + second
        walks = []
        for one in (first, second):
            _, steps, sources = walk_for(one)
            walks.append((" ".join(one), steps, drawing_for(sources)))
        return walk_page.compare("Two walks", walks)
    if option(words, "--new"):
        if len(words) != 1 or not words[0].isdigit():
            raise SystemExit("walk.py: --new LESSON")
        lesson_file(words[0]) if int(words[0]) else None
        number, progress = f"{int(words[0]):02}", Progress()
        title, steps, sources = walk_for([number])
        drawing = drawing_for(sources, progress.known[number])
        return walk_page.draw(f"{title}: what is new", steps, drawing)
    title, steps, sources = walk_for(words)
    return walk_page.draw(title, steps, drawing_for(sources))


def main(words: list[str]) -> int:
    """Do what the command line asks for; return the status."""
    if not words or {"-h", "--help"} & set(words):
        print(__doc__, file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] == "--record":
        record(int(words[1]), words[2] == "--values", words[3], words[4:])
        return 0
    if words in (["--write"], ["--check"], ["--missing"]):
        progress = Progress()
        if words == ["--missing"]:
            print(progress.missing())
            return 0
        if words == ["--write"]:
            write(progress)
        problems = check(progress)
        print("\n".join(problems) or "as written")
        if problems:
            print("run `python3 examples/tools/walk.py --write`", file=sys.stderr)
        return int(bool(problems))
    page = page_for(list(words))
    sys.stdout.buffer.write(page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
