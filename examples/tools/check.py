r"""Play real hosts' first minute against a stdio server: who has trouble, and why.

For authors of servers, with mcp_ref.py or anything else (not on Windows). Give it
FILE.py or a command, started anew for each line; `--timeout S` before it, if it needs
more than 3 seconds to start. The openings were recorded in November 2026. A server that
serves no revision before 2026-07-28 is legal; check.py says which hosts cannot use it.
So are names and schemas that some hosts or models refuse, and misspelt keywords; it
names them as `careful`. The status is 1 if there was trouble. Next: tap.py.

    $ python3 examples/tools/check.py examples/course/lessons/18_by_hand.py
    ok       Claude Code, Python SDK 2: server/discover first, with a string id
    trouble  Codex, SDKs: a session with the id 0 and progress token 0: nobody asked for {...}
    ...
    trouble  a host that dies: nobody reads stdout: BrokenPipeError: ...
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

SECONDS = 3.0  # hosts wait about as long, for answers and for an exit
Message = dict[str, Any]
# what a server can do wrong; nested too deep is a RecursionError
FLAWS = (AssertionError, OSError, ValueError, RecursionError)
MOST_PAGES = 100
MOST_CAREFUL = 20  # lines
DISCOVER: Message = {
    "id": "d-1",
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
OPEN: Message = {
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "check", "version": "1"},
    },
}
READY = {"method": "notifications/initialized"}
TOOLS = {"id": 1, "method": "tools/list", "params": {"_meta": {"progressToken": 0}}}
LISTS = [
    TOOLS,
    {"id": 2, "method": "prompts/list"},
    {"id": 3, "method": "resources/list"},
]
# The keywords of JSON Schema, from draft 7 on. Their values are schemas by name, a
# schema (or a text or a number), or data. Any other word is legal, and ignored.
MAPS = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"]
KEYWORDS = """
    additionalItems additionalProperties allOf anyOf contains contentEncoding
    contentMediaType contentSchema deprecated description else exclusiveMaximum
    exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum
    minContains minItems minLength minProperties minimum multipleOf not oneOf pattern
    prefixItems propertyNames readOnly required then title type unevaluatedItems
    unevaluatedProperties uniqueItems writeOnly
""".split()
DATA = ["const", "default", "dependencies", "dependentRequired", "enum", "examples"]
# To add a host: who and what, messages in bursts, how it ends the server.
HOSTS: tuple[tuple[str, list[list[Message]], str], ...] = (
    (
        "Claude Code, Python SDK 2: server/discover first, with a string id",
        [[DISCOVER]],
        "",
    ),
    (
        "Codex, SDKs: a session with the id 0 and progress token 0",
        [[OPEN], [READY, TOOLS]],
        "",
    ),
    (
        "desktop hosts: discovery, then a session",
        [[DISCOVER], [OPEN], [READY, TOOLS]],
        "",
    ),
    (
        "Claude Code, Gemini CLI: three lists in one burst",
        [[OPEN], [READY, *LISTS]],
        "",
    ),
    ("Claude Code: SIGINT, 100 ms later SIGTERM", [[DISCOVER]], "signals"),
    ("a host that dies: nobody reads stdout", [], "unread"),
)


def read_line(server: Any, end: float) -> str:
    """Read a line; AssertionError if there is none in time."""
    line = b""
    while line[-1:] != b"\n":
        left = max(0.0, end - time.monotonic())
        assert select.select([server.stdout], [], [], left)[0], (
            f"no answer in {SECONDS:g} s"
            + (
                f", but {line.decode(errors='replace')!r} without a line end"
                * bool(line)
            )
        )
        byte = server.stdout.read(1)
        if not byte:
            break
        line += byte
    return line.decode()


def exchange(server: Any, burst: list[Message]) -> list[Message]:
    """Send messages; read until all requests are answered, and return the answers."""
    answers = []
    end = time.monotonic() + SECONDS
    lines = [json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in burst]
    server.stdin.write("".join(lines).encode())
    wanted = [message["id"] for message in burst if "id" in message]
    while wanted:
        line = read_line(server, end)
        assert line.startswith("{"), (
            f"not a message: {line}" if line else "it exited (see its stderr)"
        )
        message = json.loads(line)
        if "method" not in message:  # else it is a notification
            assert message.get("id") in wanted, f"nobody asked for {line}"
            assert message["id"] != 0 or "result" in message, (
                f"there is no session: {line}"
            )
            wanted.remove(message["id"])
            answers.append(message)
    return answers


def start(command: list[str], errors: Any) -> Any:
    """Start the server as hosts do: in some folder, with a bare environment. Its stderr
    goes to the file `errors`, so that it never waits for us."""
    environment = {name: os.environ.get(name, "/") for name in ("HOME", "PATH")}
    return subprocess.Popen(
        command, stdin=-1, stdout=-1, stderr=errors, bufsize=0, cwd="/", env=environment
    )


def play(command: list[str], bursts: list[list[Message]], ending: str) -> str:
    """Be one host; return what is wrong with the server, if anything."""
    with tempfile.TemporaryFile() as errors, start(command, errors) as server:
        try:
            for burst in bursts:
                exchange(server, burst)
            if ending == "signals":
                server.send_signal(signal.SIGINT)
                time.sleep(0.1)
                server.terminate()
            elif ending == "unread":
                server.stdout.close()
                server.stdin.write(
                    json.dumps({"jsonrpc": "2.0", **TOOLS}).encode() + b"\n"
                )
            server.communicate(timeout=SECONDS)
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            return said.split("\n")[-2] if "Traceback" in said else ""
        except (*FLAWS, subprocess.TimeoutExpired) as problem:
            return str(problem).strip()
        finally:
            server.kill()


def opens_session(command: list[str]) -> bool:
    """Tell whether a fresh process answers `initialize`, whatever it says elsewhere."""
    with start(command, subprocess.DEVNULL) as server:
        try:
            (answer,) = exchange(server, [OPEN])
            return "protocolVersion" in (answer.get("result") or {})
        except (*FLAWS, TypeError):
            return False
        finally:
            server.kill()


def is_modern_only(command: list[str]) -> bool:
    """Tell whether a server answers server/discover, but opens no session.

    That it names no older revision there means nothing: SDKs leave them out."""
    if opens_session(command):
        return False
    with start(command, subprocess.DEVNULL) as server:
        try:
            (answer,) = exchange(server, [DISCOVER])
        except FLAWS:
            return False
        finally:
            server.kill()
    return isinstance(answer.get("result"), dict)


# ---- what it offers, and what hosts think of that


def list_tools(command: list[str], is_modern: bool) -> list[Any]:
    """Return a server's tools; what came, if it has trouble with that."""
    found: list[Any] = []
    meta = DISCOVER["params"] if is_modern else {}
    params = meta
    with start(command, subprocess.DEVNULL) as server:
        try:
            if not is_modern:
                exchange(server, [OPEN])
                exchange(server, [READY])
            for page in range(MOST_PAGES):
                request = {"id": page + 1, "method": "tools/list", "params": params}
                (answer,) = exchange(server, [request])
                result = answer["result"]
                found += result["tools"]
                if result.get("nextCursor") is None:
                    break
                params = {**meta, "cursor": result["nextCursor"]}
        except (*FLAWS, KeyError, TypeError, AttributeError):
            pass
        finally:
            server.kill()
    return found


def refused(tools: list[Any]) -> Iterator[str]:
    """Yield what hosts, or the models behind them, refuse, although it is legal."""
    for tool in tools:
        if not isinstance(tool, dict):
            yield "an entry of tools/list is not an object"
            continue
        name, schema = tool.get("name"), tool.get("inputSchema")
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
            yield (
                f"{name!r}: some hosts drop all tools if one has a name that is not 1 to "
                "64 of A-Z a-z 0-9 _ -"
            )
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"{name!r}: its inputSchema must have the type object at the root"
            continue
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                yield f"{name!r}: some models refuse {word} at the root of a schema"
        yield from refused_parts(name, schema)


def refused_parts(name: Any, schema: Message) -> Iterator[str]:
    """Yield what is refused inside a schema."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(place, one) for one in part]
        if not isinstance(part, dict):
            continue
        kinds = part.get("type")
        if "array" in (kinds if isinstance(kinds, list) else [kinds]):
            if not {"items", "prefixItems"} & set(part):
                yield f"{name!r}: some models refuse an array without items: {place!r}"
        for word, inner in part.items():
            if word in MAPS:
                for key, one in inner.items() if isinstance(inner, dict) else ():
                    where = f"{place}/{key}"
                    waiting.append((where, one))
                    if word == "properties" and not re.fullmatch(
                        r"[\w.-]{1,64}", key, re.A
                    ):
                        yield (
                            f"{name!r}: some models refuse a parameter that is not 1 to "
                            f"64 of A-Z a-z 0-9 _ . -: {key!r}"
                        )
            elif word in KEYWORDS:
                waiting.append((place, inner))
            elif word not in DATA and not re.match(r"\$|x-", word):
                yield f"{name!r}: {word!r} at {place!r} is no keyword: it is ignored"


def say(word: str, text: str) -> None:
    """Print a line; control characters and invisible ones become escapes."""
    shown = [one if one.isprintable() else ascii(one)[1:-1] for one in text]
    text = "".join(shown)
    print(f"{word:8} {text[:500]}".rstrip())


def main(words: list[str]) -> int:
    """Play all hosts; print a line for each, and return the exit status."""
    global SECONDS
    parser = argparse.ArgumentParser(
        usage="check.py [--timeout S] FILE.py | COMMAND",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--timeout", type=float, default=SECONDS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    SECONDS, words = options.timeout, options.command
    words = words[words[:1] == ["--"] :]
    if not words:
        parser.error("expected FILE.py or the server's command")
    command = [
        os.path.abspath(word) if os.path.exists(word) else word for word in words
    ]
    command[:0] = [sys.executable] * command[0].endswith(".py")
    if not shutil.which(command[0]):
        sys.exit(f"check.py: {command[0]} is not a program; give the server's command")

    hosts = list(HOSTS)
    only_modern = is_modern_only(command)
    if only_modern:
        hosts = [row for row in HOSTS if [OPEN] not in row[1]]
        print("modern only: these hosts cannot use it")
        for row in HOSTS:
            if row not in hosts:
                print(f"         {row[0]}")
    flaws = [play(command, *row[1:]) for row in hosts]
    for flaw, row in zip(flaws, hosts):
        if flaw:
            say("trouble", f"{row[0]}: {flaw}")
        else:
            say("ok", row[0])

    careful = list(refused(list_tools(command, only_modern)))
    for line in careful[:MOST_CAREFUL]:
        say("careful", line)
    if len(careful) > MOST_CAREFUL:
        say("careful", f"... and {len(careful) - MOST_CAREFUL} more of these")
    return any(flaws)


if __name__ == "__main__":
    # an ignored signal is inherited
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
