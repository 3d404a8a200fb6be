"""What several test files use: processes, HTTP by hand, played servers."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testing.scripts import (
    FORKS,
    HERE,
    MCP_REF,
    MODERN,
    NEWEST,
    ORDER,
    PATIENCE,
    PYTHON,
    Context,
    Site,
    http_answer,
    load,
    mcp,
    start_forked,
)


def core_questions(server):
    """Add tools that ask, each question in one form."""

    def asks(question: dict):
        def tool(ctx: Context) -> str:
            return "answered" if ctx.ask({"q": question})["q"] else ""

        return tool

    for name, question in {
        "form": mcp.elicitation(
            "Go?",
            kind={"type": "string", "enum": ["a"], "default": "a"},
            sure=(bool, True),
            age={"type": "integer", "minimum": 0},
        ),
        "page": mcp.elicitation("Sign in", url="https://example.org/in"),
        "roots": mcp.roots(),
        "think": mcp.sampling("Hi", max_tokens=5, systemPrompt="Be brief."),
        "tools": mcp.sampling(
            [], tools=[{"name": "t", "inputSchema": {"type": "object"}}]
        ),
    }.items():
        server.tool(name=name)(asks(question))
    core_rounds(server)


def core_rounds(server):
    """Add tools that ask several questions."""
    runs = []

    @server.tool
    def rounds(ctx: Context, x: int = 0) -> str:
        runs.append(x)
        one = ctx.elicit("One?", key="one", one=int)["action"]
        return (
            f"{one} {ctx.elicit('Two?', key='two', two=int)['action']} in {len(runs)}"
        )

    @server.tool
    def together(ctx: Context) -> str:
        return json.dumps(
            sorted(
                ctx.ask(
                    {
                        "who": mcp.elicitation("Who?", name=str),
                        "model": mcp.sampling("Hi", max_tokens=9),
                        "where": mcp.roots(),
                    }
                )
            )
        )

    @server.tool
    def twice(ctx: Context, key: str = "") -> str:
        try:
            return (
                ctx.elicit("?", key=key)["action"]
                + ctx.elicit("?", key=key and "b")["action"]
            )
        except ValueError as problem:
            return "refused" if "key" in str(problem) else str(problem)


def modern(method: str, ident=1, **params) -> dict:
    """Return a request of the newest modern revision that has the method."""
    last = mcp.METHODS[method].until if method in mcp.METHODS else ""
    version = last if last in MODERN else NEWEST
    meta = mcp.meta_for(version, {mcp.META_CAPABILITIES: {"elicitation": {}}})
    params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}


OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {},
    },
}


READY = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'


def ask(server, method: str, principal=None, **params):
    """Return the result, or the error, of such a request."""
    sent = []
    server.handle(modern(method, **params), sent.append, principal=principal)
    return sent[-1].get("result") or sent[-1]["error"]


class Point(NamedTuple):
    x: int
    y: int = 0


INT, STR, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


def serve_tool(function, **options) -> tuple[Any, Any]:
    """Register a tool `t`; return its server and its definition."""
    server = mcp.Server("s")
    server.tool(function, name="t", **options)
    return server, ask(server, "tools/list")["tools"][0]


DEEP: Any = None
for _ in range(5000):
    DEEP = [DEEP]


def command(
    *words: str, text="", stdin=None, cwd="/", seconds=3 * PATIENCE, path=MCP_REF.parent
):
    """Run the module as a program: by -m, which keeps its bytecode. `path`: the folder
    of another copy."""
    given: dict[str, Any] = {"stdin": stdin} if stdin else {"input": text}
    return subprocess.run(
        [*PYTHON, "-W", "error", *words],
        **given,
        encoding="utf-8",
        errors="replace",
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path)},
        timeout=seconds,
        check=False,
    )


@contextlib.contextmanager
def listening(*words):
    """Start a program that serves HTTP; yield its process and its URL."""
    with subprocess.Popen(
        [*PYTHON, *words, "--http", "0"],
        text=True,
        stdin=-3,
        stdout=-1,
        stderr=-2,
    ) as process:
        try:
            said = ""
            while not (url := re.search(r"http://\S+", said)):
                line = process.stdout.readline()
                assert line, f"it ended instead of listening: {said}"
                said += line
            yield process, url[0]
        finally:
            process.kill()


def is_refused(done, keyword: str):
    """Check that a command that is wrong has said so in one sentence."""
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert keyword in done.stderr, done.stderr


POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
JSON = {"Content-Type": "application/json", "Mcp-Session-Id": "s1"}


def answering(answer, kind=Site):
    """Make a Site; `answer` gets verb, headers, method and the text of a good
    response."""

    def play(verb: str, headers: dict, message):
        found = {
            "supportedVersions": MODERN,
            "capabilities": {"tools": {}, "prompts": {}},
            "protocolVersion": "2025-11-25",
            "prompts": [],
            "tools": [],
            "content": [],
            "resultType": "complete",
        }
        text = (
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found})
            if "id" in message
            else ""
        )
        return answer(verb, headers, message.get("method"), text)

    return contextlib.closing(kind(play))


def program_of(before: str, after: str) -> list[str]:
    """Make a program that does something, answers the probe (with WORDS) and does
    more."""
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"""if True:
        import json, os, signal, subprocess, sys
        WORDS = ""
        {before}
        ident = json.loads(sys.stdin.readline())["id"]
        found = {{"resultType": "complete", "supportedVersions": {MODERN},
                 "capabilities": {{"tools": {{}}}}, "instructions": WORDS}}
        print(json.dumps({{"jsonrpc": "2.0", "id": ident, "result": found}}), flush=True)
        {after}""",
    ]


def words_of(result: dict) -> str:
    """Return the first text of a result, or the message of an error."""
    return result.get("message") or result["content"][0]["text"]


def said(one, name: str, **options) -> str:
    """Call a tool; return the first text of its result."""
    return words_of(one.call_tool(name, **options))


COURSE = HERE / "examples" / "course"
TOOLS = HERE / "examples" / "tools"
mount = load("mount", HERE / "examples" / "mount.py")


def mounted_answer(how: str, verb: str, headers: dict, message):
    """Answer an HTTP request with mount.py, called in one of three ways."""
    path, body = headers.pop(":path"), json.dumps(message).encode()
    environ = {
        "HTTP_" * (name[:8] != "content-") + name.upper().replace("-", "_"): text
        for name, text in headers.items()
    }
    environ.update(REQUEST_METHOD=verb, PATH_INFO=path, SCRIPT_NAME="", QUERY_STRING="")
    environ["CONTENT_LENGTH"] = str(len(body))
    if how == "cloud":  # an event of payload format 2.0
        event = {"rawPath": path, "headers": headers, "body": body.decode()}
        event["requestContext"] = {"http": {"method": verb}}
        said = mount.handler(event)
        yield http_answer(said["statusCode"], said["headers"], said["body"])
    elif how == "cgi":
        environ["GATEWAY_INTERFACE"] = "CGI/1.1"
        environ["HTTP_CONTENT_TYPE"] = environ.get("CONTENT_TYPE", "")
        printed = subprocess.check_output(
            [*PYTHON, mount.__file__],
            input=body,
            timeout=3 * PATIENCE,
            env={**os.environ, **environ},
        )
        answer = printed.replace(b"Status:", b"HTTP/1.1", 1)
        # The site closes, and must say so, or the client uses the connection again.
        yield answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    else:
        from wsgiref import handlers, util, validate

        util.setup_testing_defaults(environ)
        handler = handlers.SimpleHandler(
            io.BytesIO(body), io.BytesIO(), sys.stderr, environ
        )
        handler.run(validate.validator(mount.application))
        yield handler.stdout.getvalue()  # type: ignore[attr-defined]


def mounted(how: str):
    return contextlib.closing(Site(functools.partial(mounted_answer, how)))


picture = load("picture", TOOLS / "picture.py")


def draw(path: Path) -> str:
    return picture.page(str(path))


def overview(page: str) -> str:
    """Return the overview of a picture, up to the legend, as text without tags."""
    shown = page.partition("<h1>")[2].partition('<p class="legend">')[0]
    return re.sub("<[^>]+>", "", re.sub("<(p|ul)>", "\n", shown))


LESSONS = {path.stem: path for path in (COURSE / "lessons").glob("[0-9]*.md")}
EXERCISES = (COURSE / "exercises.md").read_text("utf-8").split("\n## ")[1:]


def run_printed(line: str) -> str:
    """Run a command as it is printed, with this Python; return what it prints."""
    return subprocess.run(
        re.sub(r"\bpython3\b", lambda _: sys.executable, line),
        shell=True,
        cwd=HERE,
        encoding="utf-8",
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=6 * PATIENCE,
    ).stdout


HOST = "tools.example.com"


def make_certificate(folder: str) -> None:
    words = (
        f"req -x509 -newkey ec -nodes -days 2 -keyout {folder}/key -out {folder}/cert"
    )
    words += " -pkeyopt ec_paramgen_curve:prime256v1"
    words += f" -subj /CN={HOST} -addext subjectAltName=DNS:{HOST}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)


def vectors_runner():
    """Import the runner of vectors for servers; its modules stand alone."""
    folder = HERE / "examples" / "vectors"
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return load("run", folder / "run.py")


DEPENDS_ON_TIME = re.compile("[A-Z]+ [a-z-]*(cancel|hang|disconnect)")


def play_vectors(*target, revisions=ORDER, again=True, path=MCP_REF.parent):
    options = ["--revisions", ",".join(revisions)]
    done = called(vectors_runner(), *options, *target, PYTHONPATH=str(path))
    faults = [
        one
        for one in re.findall(r"(?ms)^[A-Z]{5,} [a-z].*?(?=\n\n)", done.stdout)
        if "passes alone" not in one and not DEPENDS_ON_TIME.match(one)
    ]
    # on a busy machine, calls end before a cancel
    if again and (done.returncode or faults):
        return play_vectors(*target, revisions=revisions, again=False, path=path)
    assert done.returncode == 0 and not faults, done.stdout


def asked(method: str, expect: dict, *steps: dict, **members) -> dict:
    return {"steps": [{"request": method, "expect": expect}, *steps], **members}


def unused_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]


def status_of(process, cause: str) -> int:
    """Wait for the exit status of a process, which something should have ended."""
    __tracebackhide__ = True
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE)
    pytest.fail(f"the process still runs, {PATIENCE:g} s after its end by {cause}")


def called(program, *words, text="", cwd=HERE, **environ):
    """Call the main() of a program that is imported, as its command does; return what
    became of it. A process of its own would cost as much as ten of its tests."""
    words = [*map(str, words)]
    texts = {"stdin": text, "stdout": "", "stderr": ""}
    streams = {
        name: io.TextIOWrapper(io.BytesIO(one.encode()), "utf-8", newline="\n")
        for name, one in texts.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [program.__file__, *words])
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        for name, value in environ.items():
            patch.setenv(name, value)
        try:
            takes = program.main.__code__.co_argcount
            status = program.main(words) if takes else program.main()
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):  # as Python does
                print(status, file=sys.stderr)
                status = 1
    printed = []
    for name in ("stdout", "stderr"):
        streams[name].flush()
        printed.append(streams[name].buffer.getvalue().decode("utf-8", "replace"))
    return subprocess.CompletedProcess(words, status or 0, *printed)


def on_streams(function, *streams):
    """Call a function with other standard streams."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    function()


class Forked:
    """What Popen() makes, of a process that calls a function. It is forked, and has
    imported all: that takes a tenth of the time. On POSIX only."""

    def __init__(self, function, encoding=None):
        pipes = [FORKS.Pipe(False) for _ in range(3)]
        ours = [pipe[number == 0] for number, pipe in enumerate(pipes)]
        theirs = [pipe[number > 0] for number, pipe in enumerate(pipes)]
        self.process = start_forked(on_streams, function, *theirs)
        self.pid, self.kill = self.process.pid, self.process.kill
        self.terminate = self.process.terminate
        kind, buffering = ("", 1) if encoding else ("b", -1)
        self.stdin, self.stdout, self.stderr = (
            open(os.dup(one.fileno()), way + kind, buffering, encoding)
            for one, way in zip(ours, "wrr")
        )
        for one in (*ours, *theirs):
            one.close()

    def wait(self, seconds=None):
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", seconds)
        return self.process.exitcode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self.wait()
