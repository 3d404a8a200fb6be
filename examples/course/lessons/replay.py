"""Replay lessons: send their `>` lines to server.py, compare what comes with `<`.

    $ python3 examples/course/lessons/replay.py examples/course/lessons/01_discover.md
    01_discover.md: as written

Differences are printed; `--update` writes what came, and the code of server.py that a
lesson shows. `--check N 'MESSAGE'` checks an
attempt at exercise N; with `-` for the message, it is read from standard input.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import queue
import re
import subprocess
import sys
import textwrap
import threading
from collections import namedtuple
from http import HTTPStatus
from pathlib import Path
from runpy import run_path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import mcp_ref

SERVER = Path(__file__).resolve().parent / "server.py"
COMMAND = [sys.executable, str(SERVER)]
PATIENCE = 30  # seconds to wait for an answer
NAME = re.compile(r"<([a-z][a-z ]*)>")
KNOWN = {  # what the names stand for, from the lessons that introduce them
    name: re.sub(r"\n +", "", text)
    for path in SERVER.parent.glob("[0-9]*.md")
    for name, text in re.findall(
        r"(?m)^<([a-z ]+)> +(.+(?:\n +.+)*)", path.read_text(encoding="utf-8")
    )
}
HEADERS = {
    "Host": "localhost:8000",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
# The code of server.py that a lesson shows: a name, and how many lines.
CODE = re.compile(r"(?ms)^```python server\.py (\w+)(?: (\d+))?\n(.*?)^```")
OPENED = re.compile(r"\(a session of (\S+) is open(?:: (.*))?\)")
TOKEN = "(the server wants a token)"
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s",'
    '"capabilities":%s,"clientInfo":{"name":"reader","version":"1.0"}}}'
)
HAS = {
    "request": "a new id",
    "notification": "no id",
    "response": "a result and the request's id",
}

# who: ">" the client, "<" the server, after a digit of the connection; start, stop: in
# the lesson
Step = namedtuple("Step", "who said start stop")


def read(lesson: str) -> list[list[Step]]:
    """Return the conversations of a lesson: one for each section."""
    sections: dict[int, list[Step]] = {}
    for block in re.finditer(r"(?ms)^```mcp\n(.*?)^```", lesson):
        steps = sections.setdefault(lesson.count("\n## ", 0, block.start()), [])
        lines = re.compile(r"(?m)^(\d?[<>]) (.*(?:\n(?!\d?[<>] ).*)*)\n")
        for found in lines.finditer(lesson, block.start(1), block.end(1)):
            said = re.sub(r'(?<!\n)\n +(?=["{[<])', "", found[2])  # JSON that continues
            steps.append(
                Step(found[1], re.sub(r"\n +", "\n", said), found.start(), found.end())
            )
    return list(sections.values())


def fill(said: str, known: dict[str, str]) -> str:
    """Replace the names that are known."""
    return NAME.sub(lambda found: known.get(found[1], found[0]), said)


def shorten(came: str, written: str, known: dict[str, str]) -> str:
    """Write names for what they stand for; leave out headers that are not shown."""
    for name, text in sorted(
        known.items(), key=lambda item: f"<{item[0]}>" not in written
    ):
        came = (
            came.replace(text, f"<{name}>")
            if text not in written and len(text) > 8
            else came
        )
    return "\n".join(
        line
        for line in came.split("\n")
        if not re.match(r"[A-Z][\w-]+: ", line) or f"\n{line.split(':')[0]}:" in written
    )


def difference(written: str, came: str, known: dict[str, str]) -> str:
    """Show two texts if they differ; learn what the names in the first stand for."""
    for before, name, after in re.findall(r"(.{4,9})<([a-z ]+)>(.?)", written):
        if found := re.search(
            re.escape(before) + "(.+?)" + (re.escape(after) or "(?m:$)"), came
        ):
            known.setdefault(name, found[1])
    came = shorten(came, written, known)
    if fill(written, known) == fill(came, known):
        return ""

    # Names that stand for short texts are not in `came`: see shorten().
    written = fill(written, {k: text for k, text in known.items() if len(text) <= 8})
    same = [one == other for one, other in zip(written, came)] + [False]
    start = same.index(False)
    if start > 60:
        written, came = "..." + written[start - 40 :], "..." + came[start - 40 :]
    return f"expected {written}\nreceived {came}"


class Pipe:
    """The library as a program, on standard input and output."""

    def __init__(
        self, command: list[str] = COMMAND, patience: float = PATIENCE
    ) -> None:
        self.server: Any = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=1,
        )
        self.timer = threading.Timer(patience, self.server.kill)
        self.timer.start()

    def send(self, said: str, _: str = "") -> None:
        # it has exited, which the next line will tell
        with contextlib.suppress(OSError):
            if said == "(closes stdin)":
                self.server.stdin.close()
            elif said == "(sends SIGTERM)":
                self.server.terminate()
            elif said == "(hangs up)":
                self.server.stdout.close()
            else:
                self.server.stdin.write(said.replace("\n", " ") + "\n")

    def receive(self, _: str = "") -> str:
        line: str = self.server.stdout.readline().strip()
        return line or ("(exits)" if self.server.wait() == 0 else "(nothing)")

    def close(self) -> None:
        with self.server, contextlib.suppress(OSError):
            self.server.stdin.close()
        self.timer.cancel()


def parts_of(said: str) -> tuple[str, dict[str, str], str]:
    """Return the first line of a request, its headers with those that lessons leave
    out, and its body."""
    head, _, body = said.partition("\n\n")
    first, *lines = head.split("\n")
    given = {}
    for line in lines:
        name, _, value = line.partition(":")
        given[name] = value.strip()
    headers = {**HEADERS, **given}
    if not headers.get("Content-Length", "").isdigit():
        headers["Content-Length"] = str(len(body.encode()))
    return first, headers, body


class Request(mcp_ref.Exchange):
    """A request as text; the answer comes as texts: head and body, each event."""

    hosts = {"localhost"}  # as on this machine's own address

    def __init__(self, said: str, endpoint: mcp_ref.Endpoint) -> None:
        first, headers, body = parts_of(said)
        verb, path, *_ = f"{first} /".split()
        super().__init__(verb, path, headers.items(), io.BytesIO(body.encode()))
        self.inbox: queue.Queue[str] = queue.Queue()
        threading.Thread(target=endpoint.serve, args=(self,), daemon=True).start()

    def receive(self) -> str:
        with contextlib.suppress(queue.Empty):
            return self.inbox.get(timeout=PATIENCE)
        return "(nothing)"

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        # RFC 9110 has another name for 413 than Python before 3.13.
        reason = HTTPStatus(status).phrase.replace("Request Entity", "Content")
        head = [
            f"HTTP/1.1 {status} {reason}",
            *map(": ".join, headers.items()),
        ]
        self.inbox.put("\n".join([*head, "", (body or b"").decode()]).strip())

    def write(self, data: bytes) -> None:
        self.inbox.put(data.decode().strip())

    def end(self, hang_up: bool = False) -> None:
        self.inbox.put("(the stream ends)")


class Memory:
    """The library as an endpoint in this process: HTTP without sockets."""

    def __init__(self, protected: bool = False) -> None:
        found = run_path(str(SERVER))
        options = found["protected"] if protected else {}
        self.endpoint = mcp_ref.Endpoint(found["server"], **options)
        self.requests: dict[str, Request] = {}

    def send(self, said: str, connection: str = "") -> None:
        if said == "(hangs up)":
            request: Any = self.requests[connection]
            request.gone = lambda: True
        else:
            self.requests[connection] = Request(said, self.endpoint)

    def receive(self, connection: str = "") -> str:
        return self.requests[connection].receive()

    def close(self) -> None:
        self.endpoint.close()


def is_http(steps: list[Step]) -> bool:
    """Tell whether a conversation is one over HTTP."""
    return any("HTTP/1.1" in step.said for step in steps)


def wants_token(steps: list[Step]) -> bool:
    """Tell whether the server of a conversation wants a token."""
    return any(step.said == TOKEN for step in steps)


def replay(steps: list[Step], carrier: Any = None) -> Any:
    """Hold a conversation; yield what comes for each "<", and how it differs.

    `carrier` carries it: send(text, connection), receive(connection), close().
    """
    http = is_http(steps)
    head = "POST /mcp HTTP/1.1\n" * http
    protected = wants_token(steps)
    carrier = carrier or (Memory(protected) if http else Pipe())
    known = dict(KNOWN)

    with contextlib.closing(carrier):
        for step in steps:
            if opens := OPENED.fullmatch(step.said):
                carrier.send(
                    head + "\n" * http + INITIALIZE % (opens[1], opens[2] or "{}")
                )
                difference("Mcp-Session-Id: <session>", carrier.receive(), known)
                head += f"Mcp-Session-Id: {known.get('session')}\n\n" * http
                carrier.send(
                    head + '{"jsonrpc":"2.0","method":"notifications/initialized"}'
                )
                if http:
                    carrier.receive()  # 202: from here on, changes are told
            elif step.who[-1] == ">" and step.said != TOKEN:
                carrier.send(fill(step.said, known), step.who[:-1])
            elif step.who[-1] == "<":
                came = carrier.receive(step.who[:-1])
                yield step, came, difference(step.said, came, known), known


def lay_out(step: Step, came: str, known: dict[str, str]) -> str:
    """Return what came as lines of a lesson."""
    came = shorten(came, step.said, known)
    came = re.sub(
        r'(?m)^(?=.{93,190}$)(.*?,)(?="(?:params|result|error)":)', "\\1\n", came
    )
    lines: list[str] = []
    for line in came.split("\n"):
        line = re.sub(r'(?<=,)(?=["{[<])', " ", line.replace(" ", "\0"))
        lines += textwrap.wrap(
            line, 96, break_long_words=False, break_on_hyphens=False
        ) or [""]
    lines = [line.replace(" ", "").replace("\0", " ") for line in lines]
    lines[1:] = ["    " * bool(line) + line for line in lines[1:]]
    return f"{step.who} " + "\n".join([*lines, ""])


def code_of(name: str, most: str) -> str:
    """Return what server.py says of a name: all of it, or the first lines."""
    source = SERVER.read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [getattr(one, "id", "") for one in targets]
        if name in (getattr(node, "name", ""), *names):
            decorators = getattr(node, "decorator_list", [])
            first = min(one.lineno for one in [node, *decorators])
            lines = source.splitlines()[first - 1 : node.end_lineno]
            rest = ["    ..."] * (most != "")
            return "\n".join([*lines[: int(most or 99)], *rest, ""])
    return ""


def run(path: Path, update: bool) -> list[str]:
    """Replay a lesson, and rewrite it if that is wanted; return how it differs."""
    lesson, changes = path.read_text(encoding="utf-8"), []
    for found in CODE.finditer(lesson):
        if found[3] != (code := code_of(found[1], found[2] or "")):
            line = lesson.count("\n", 0, found.start(3)) + 1
            problem = f"line {line}: expected {found[3]}\nreceived {code}"
            changes.append((Step("", "", *found.span(3)), problem, code))
    for steps in read(lesson):
        for step, came, problem, known in replay(steps):
            if problem:
                place = f"line {lesson.count(chr(10), 0, step.start) + 1}: "
                changes.append((step, place + problem, lay_out(step, came, known)))
    for step, _, lines in sorted(changes, key=lambda one: -one[0].start):
        lesson = lesson[: step.start] + lines + lesson[step.stop :]
    if update:
        path.write_text(lesson, encoding="utf-8")
    return [problem for _, problem, _ in changes]


def parse(text: str) -> tuple[Any, str]:
    """Return the message in an attempt, and its kind."""
    message = {**json.loads(fill(text.rpartition("\n\n")[2], KNOWN))}
    kind = "request" if "id" in message else "notification"
    return message, "response" if message.keys() & {"result", "error"} else kind


def check(number: int, attempt: str) -> str:
    """Replay an exercise with an attempt as YOUR MESSAGE; return what is wrong."""
    page = (SERVER.parents[1] / "exercises.md").read_text(encoding="utf-8")
    solutions = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", page)
    if not 1 <= number <= len(solutions):
        return f"there are exercises 1 to {len(solutions)}"

    solution, attempt = solutions[number - 1], attempt.replace("\r\n", "\n")
    steps = read(page.replace("YOUR MESSAGE", attempt))[number - 1]
    if problem := check_form(attempt, solution, names_in(steps, attempt)):
        return problem
    problem = next((found[2] for found in replay(steps) if found[2]), "")
    return problem + hint(problem, attempt) if problem else missing(attempt, solution)


def names_in(steps: list[Step], attempt: str) -> set[str]:
    """Return the names that an attempt may use: known ones, and those of its page."""
    shown = "".join(step.said for step in steps if step.said != attempt)
    return {*KNOWN, *NAME.findall(shown)}


def check_form(attempt: str, solution: str, names: set[str]) -> str:
    """Return what is wrong with an attempt before anything is sent."""
    for name in NAME.findall(attempt):
        if name not in names:
            return (
                f"there is no name <{name}>; you may write {', '.join(sorted(names))}"
            )
    try:
        (message, kind), (right, wanted) = parse(attempt), parse(solution)
    except (TypeError, ValueError) as flaw:
        return f"this is not a JSON object: {flaw}"
    if '"jsonrpc":"2.0"' not in re.sub(r"\s", "", attempt):
        return 'every message has "jsonrpc": "2.0"'

    if kind == "response":
        fits = kind == wanted and message.get("id") == right["id"]
    else:  # the ids before that of the solution have been used
        used = range(1, right.get("id", 1))
        fits = kind == wanted and message.get("id") not in used
    if not fits:
        silence = "the server did not answer: " * (kind != "request")
        return f"{silence}is this a {wanted}? A {wanted} has {HAS[wanted]}"
    return ""


def hint(problem: str, attempt: str) -> str:
    """Return what a learner may have missed, if the server's words do not say it."""
    if "requestState is not valid" in problem and "<state>" in attempt:
        return (
            "\nhint: a state belongs to its request: `name` and `arguments` must be the "
            "same as before"
        )
    return ""


def missing(attempt: str, solution: str) -> str:
    """Return what the params of an attempt lack, though the server took them."""
    (message, _), (right, _) = parse(attempt), parse(solution)
    for name, value in right.get("params", {}).items():
        given = message["params"].get(name)
        if given is None or (isinstance(value, str) and given != value):
            return f"the server takes this, but `params` must have {name}: {value}"
    return ""


def main(words: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    if len(words) == 3 and words[0] == "--check" and words[1].isdigit():
        attempt = sys.stdin.read() if words[2] == "-" else words[2]
        problem = check(int(words[1]), attempt.strip())
        print(problem or "right")
        return int(problem != "")

    files = [word for word in words if word != "--update"]
    if words == ["--help"]:
        print(__doc__)
        return 0
    if not files or any(word.startswith("-") for word in files):
        raise SystemExit(__doc__)
    status = 0
    for word in files:
        if not Path(word).is_file():
            raise SystemExit(f"replay.py: cannot read {word}")
        problems = run(Path(word), update=len(files) < len(words))
        print(
            "\n".join(
                [f"{Path(word).name}:" + " as written" * (not problems), *problems]
            )
        )
        status += bool(problems)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
