r"""Stand between a host and a stdio server in development: a change restarts it.

For authors who would otherwise restart their host after each change. In the host's
configuration, put this program before the server's command:

    "command": "python3",
    "args": ["/path/reload.py", "python3", "/path/server.py"]

When a source file beside the server changes (in the folder of the first file that its
command names, or in those of `--watch FOLDER`), the server is started again. The host
does not notice: `initialize` is said again on its behalf, open subscriptions are opened
again, and it hears that all lists have changed. A tool that was running gets an error
which says so; what only reads is asked again. If the server does not start any more,
its error is on stderr, and calls are answered with its last line, until a file changes.

Known limit: what the server has in memory is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Message = dict[str, Any]
POLL_SECONDS = 0.3
STEP_SECONDS = 1.0  # from one way of stopping the server to the next
MOST_FILES = 5000
SUFFIXES = set(".py .pyi .js .mjs .cjs .ts .json .toml .yaml .yml .go .rb .rs".split())
SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "dist", "build"}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTS = ("tools", "prompts", "resources")
LISTEN = "subscriptions/listen"


def source_files(folders: list[Path]) -> dict[str, int]:
    """Return when each source file was changed; hidden folders are left out."""
    found: dict[str, int] = {}
    for folder in folders:
        for where, below, names in os.walk(folder):
            below[:] = [one for one in below if one[0] != "." and one not in SKIPPED]
            for name in names:
                path = os.path.join(where, name)
                with suppress(OSError):
                    if os.path.splitext(name)[1] in SUFFIXES:
                        found[path] = os.stat(path).st_mtime_ns
            if len(found) > MOST_FILES:
                return found
    return found


class Process:
    """One run of the server; what it says becomes events for the main thread."""

    def __init__(self, command: list[str], events: Any) -> None:
        self.last_line = ""  # of its stderr
        pipe = subprocess.PIPE
        self.popen: Any = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        threading.Thread(target=self.read, args=(events,), daemon=True).start()

    def listen(self) -> None:
        """Pass its stderr on."""
        for line in self.popen.stderr:
            self.last_line = line.decode(errors="replace").strip() or self.last_line
            with suppress(OSError):
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()

    def read(self, events: Any) -> None:
        for line in self.popen.stdout:
            events.put(("server", self, line))
        self.listener.join(STEP_SECONDS)
        events.put(("gone", self, b""))

    def send(self, line: bytes) -> None:
        with suppress(OSError):  # it has gone, and says so by an event
            self.popen.stdin.write(line)
            self.popen.stdin.flush()

    def stop(self) -> None:
        """End it: basic/transports/stdio §Shutdown."""
        with suppress(OSError):
            self.popen.stdin.close()
        for step in (self.popen.terminate, self.popen.kill):
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(STEP_SECONDS)
                return
            step()
        self.popen.wait()


class Reload:
    """The conversation. All of it happens on the main thread, by events.

    process    state       what the host sends
    None       `problem`   requests are answered with the problem
    a Process  `opening`   waits in `held`: the answer to our `initialize` is not here
    a Process  neither     is passed on
    """

    def __init__(self, command: list[str], events: Any) -> None:
        self.command, self.events = command, events
        self.process: Process | None = None
        self.problem = ""
        self.opening = ""  # the id of our own `initialize`
        self.held: list[bytes] = []
        self.runs = 0
        self.initialize: Message = {}  # as the host sent it
        self.initialized = b""
        # requests of the host, by the JSON of their id; those that are subscriptions
        # and have been acknowledged
        self.running: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()
        # requests of the server: the id that the host knows, process and its own id
        self.asked: dict[str, tuple[Process, Any]] = {}
        self.count = 0

    # ---- the server

    def start(self) -> None:
        """Start the server, and bring it to where the last one was."""
        self.runs += 1
        self.problem, self.opening = "", ""
        try:
            self.process = Process(self.command, self.events)
        except OSError as problem:
            return self.fail(f"cannot start {self.command[0]}: {problem.strerror}")
        if self.initialize and self.initialized:
            self.opening = f"reload-{self.runs}"
            self.process.send(line_of({**self.initialize, "id": self.opening}))
        else:
            self.resume()

    def resume(self) -> None:
        """Go on where the last run of the server ended."""
        self.opening = ""
        held, self.held = self.held, []
        for line in self.running.values():  # subscriptions, and what only reads
            self.send(line)
        for line in held:
            self.from_host(line)
        if self.runs == 1:
            return
        if self.initialized:
            for kind in LISTS:
                say({"method": f"notifications/{kind}/list_changed"})
        for line in self.running.values():
            message = json.loads(line)
            if message["method"] == LISTEN:
                announce(message)

    def restart(self) -> None:
        """Stop the server and start it. Of its requests, only calls of tools end."""
        process, self.process = self.process, None
        if process:
            process.stop()
        problem = "the server was restarted, because a file has changed"
        self.end(problem, lambda method: method == "tools/call")
        self.start()

    def fail(self, problem: str) -> None:
        """Answer calls with the problem until a file changes."""
        self.process, self.opening, self.problem = None, "", problem
        self.end(problem, lambda method: method != LISTEN)
        held, self.held = self.held, []
        for line in held:
            self.from_host(line)

    def end(self, problem: str, chosen: Callable[[str], bool]) -> None:
        """Answer requests of these methods with a problem."""
        for key, line in list(self.running.items()):
            if chosen(json.loads(line)["method"]):
                del self.running[key]
                refuse(json.loads(key), problem)

    def send(self, line: bytes) -> None:
        if self.process:
            self.process.send(line)

    # ---- what comes

    def from_host(self, line: bytes) -> None:
        """Pass on what the host says, and remember what the next run has to hear."""
        message = parsed(line)
        method, ident = message.get("method"), message.get("id")
        if self.opening:
            self.held.append(line)
        elif method is None and isinstance(ident, str) and ident in self.asked:
            process, own = self.asked.pop(ident)
            if process is self.process:  # else that run of the server is over
                self.send(line_of({**message, "id": own}))
        elif self.process:
            if method == "initialize":
                self.initialize = message
            elif method == "notifications/initialized":
                self.initialized = line
            if method is not None and "id" in message:
                self.running[json.dumps(ident)] = line
            elif method == "notifications/cancelled":
                key = json.dumps(object_in(message, "params").get("requestId"))
                self.running.pop(key, None)
                self.acknowledged.discard(key)
            self.send(line)
        elif method is not None and "id" in message:
            refuse(ident, self.problem)

    def from_server(self, process: Process, line: bytes) -> None:
        """Pass on what the server says; the host does not hear of our own questions."""
        if process is not self.process:
            return
        message = parsed(line)
        method, ident = message.get("method"), message.get("id")
        if method is None and self.opening and ident == self.opening:
            self.send(self.initialized)
            self.resume()
        elif method is not None and "id" in message:
            self.count += 1
            known = f"reload-{self.count}"
            self.asked[known] = (process, ident)
            say({**message, "id": known})
        elif method is None and json.dumps(ident) in self.running:
            asked = json.loads(self.running.pop(json.dumps(ident)))
            self.acknowledged.discard(json.dumps(ident))
            is_first = asked["method"] == "initialize" and "result" in message
            write(line_of(with_changes(message)) if is_first else line)
        else:
            self.pass_notification(process, message, line)

    def pass_notification(
        self, process: Process, message: Message, line: bytes
    ) -> None:
        """Pass on a notification of the server, unless the host has it already."""
        params = object_in(message, "params")
        if message.get("method") == "notifications/cancelled":
            for known, asked in self.asked.items():
                if asked == (process, params.get("requestId")):
                    return say({**message, "params": {**params, "requestId": known}})
        elif message.get("method") == "notifications/subscriptions/acknowledged":
            key = json.dumps(object_in(params, "_meta").get(SUBSCRIPTION))
            if key in self.acknowledged:
                return None
            self.acknowledged.add(key)
        return write(line)

    def leave(self) -> int:
        """End the server as hosts do; pass on what it still says. Return its status."""
        process = self.process
        if not process:
            return 1
        stopping = threading.Thread(target=process.stop)
        stopping.start()
        end = time.monotonic() + STEP_SECONDS
        while stopping.is_alive() or time.monotonic() < end:
            with suppress(queue.Empty):
                what, sender, line = self.events.get(timeout=0.05)
                if what == "server":
                    self.from_server(sender, line)
                elif what == "gone" and sender is process:
                    break
        self.process = None
        stopping.join()
        return max(0, int(process.popen.returncode))

    def gone(self, process: Process) -> None:
        if process is self.process:
            process.stop()
            said = process.last_line or f"exit status {process.popen.returncode}"
            self.fail(f"the server has ended: {said}")


def announce(listen: Message) -> None:
    """Say to a subscription that what it asked for has changed."""
    asked = object_in(object_in(listen, "params"), "notifications")
    for kind in LISTS:
        if asked.get(f"{kind}ListChanged"):
            params = {"_meta": {SUBSCRIPTION: listen["id"]}}
            say({"method": f"notifications/{kind}/list_changed", "params": params})


def with_changes(message: Message) -> Message:
    """Let a server's answer to `initialize` declare that its lists can change."""
    capabilities = object_in(object_in(message, "result"), "capabilities")
    for kind in LISTS:
        object_in(capabilities, kind)["listChanged"] = True
    return message


def object_in(message: Message, member: str) -> Message:
    """Return a member that is an object, or an empty one."""
    found = message.get(member)
    return found if isinstance(found, dict) else {}


def parsed(line: bytes) -> Message:
    """Return a message; an empty one if the line is something else."""
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def line_of(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def write(line: bytes) -> None:
    with suppress(OSError):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def say(message: Message) -> None:
    write(line_of({"jsonrpc": "2.0", **message}))


def refuse(ident: Any, problem: str) -> None:
    say({"id": ident, "error": {"code": -32603, "message": problem}})


def watch(folders: list[Path], events: Any) -> None:
    """Report when files change, once they have stopped changing."""
    known = source_files(folders)
    while True:
        time.sleep(POLL_SECONDS)
        found, before = source_files(folders), known
        is_new = found != known
        while is_new and found != before:  # an editor may write several
            time.sleep(POLL_SECONDS / 3)
            before, found = found, source_files(folders)
        if is_new:
            known = found
            events.put(("changed", None, b""))


def host_lines(events: Any) -> None:
    for line in sys.stdin.buffer:
        events.put(("host", None, line))
    events.put(("end", None, b""))


def folders_of(command: list[str]) -> Iterator[Path]:
    """Yield the folder of the first file that a command names after its program."""
    for word in command[1:] or command:
        if os.path.isfile(word):
            yield Path(word).resolve().parent
            return


def main(words: list[str]) -> int:
    """Run the command line; return the server's exit status."""
    parser = argparse.ArgumentParser(
        usage="reload.py [--watch FOLDER] COMMAND ...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--watch", action="append", default=[], type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    command = options.command[options.command[:1] == ["--"] :]
    folders = options.watch or list(folders_of(command))
    if not command:
        parser.error("expected the server's command")
    if not folders:
        parser.error("no file to watch in the command: name a folder with --watch")

    events: Any = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: events.put(("end", None, b"")))
    reload = Reload(command, events)
    reload.start()
    threading.Thread(target=watch, args=(folders, events), daemon=True).start()
    threading.Thread(target=host_lines, args=(events,), daemon=True).start()
    while True:
        what, process, line = events.get()
        if what == "host":
            reload.from_host(line)
        elif what == "server":
            reload.from_server(process, line)
        elif what == "gone":
            reload.gone(process)
        elif what == "changed":
            print("reload: a file has changed", file=sys.stderr, flush=True)
            reload.restart()
        else:
            return reload.leave()


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a thread may still be waiting for input
