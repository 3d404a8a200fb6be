#!/usr/bin/env python3
# SPDX-License-Identifier: MIT Copyright (c) 2026 the mcp_ref authors
"""Curl for MCP: try a server out from a shell.

    python3 mcp_cli.py list server.py
    python3 mcp_cli.py call server.py add a=2 b=3
    python3 mcp_cli.py call add --a 2 --b 3 -- npx some-server
    python3 mcp_cli.py read https://mcp.example.com/mcp note:///todo

`--help` explains the rest. It needs mcp_client.py and mcp_ref.py beside it; `--login`
needs oauth.py, too. One file of all four, for your `bin`:

    mkdir mcp && cp mcp_ref.py examples/mcp_cl*.py examples/extensions/oauth.py mcp
    python3 -m compileall -qb mcp
    python3 -m zipapp mcp -m mcp_cli:start -p "/usr/bin/env python3" -o ~/bin/mcp

The sections: 1 the command line; 2 where the server is; 3 a tool's arguments, by its
schema; 4 the verbs; 5 what is printed; 6 questions to the user; 7 the exit status.
Nothing that a server sends is printed before clean() has replaced its control
characters.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1)]
import mcp_client
import mcp_ref
from mcp_client import (
    Client,
    Disconnected,
    Malformed,
    ServerLacks,
    StdioTransport,
    connect,
    url_warnings,
)
from mcp_ref import AskError, HttpError, RpcError

Message = dict[str, Any]
# What ends us; Windows has no SIGHUP.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

HELP = """usage: mcp_cli.py VERB [OPTIONS] TARGET [...]
       mcp_cli.py VERB [OPTIONS] [...] -- COMMAND OF THE SERVER

  list TARGET                     what the server offers
  call TARGET TOOL [ARGUMENTS]    call a tool; `call TARGET TOOL --help` explains it
  read TARGET URI                 read a resource
  prompt TARGET NAME [ARGUMENTS]  get a prompt's messages
  complete TARGET NAME ARGUMENT=START [KNOWN=VALUE ...]
                                  complete an argument of a prompt (NAME) or template
  listen TARGET [WHAT ...]        print changes of tools, prompts, resources or URIs
                                  until Ctrl-C (default: whatever the server tells)
  ping TARGET                     does it answer, and how fast
  info TARGET                     revision, name, capabilities, instructions
  request TARGET METHOD [JSON]    send any request; print its result as JSON
  login TARGET                    log in with a browser and keep the token

TARGET is a URL, a FILE.py (it is run; if it then serves nothing, its functions become
tools), an executable file, or a name in the configuration of a host. A server with
another command stands at the end, after `--`, in place of TARGET.

ARGUMENTS: --name VALUE, --name=VALUE or name=VALUE, converted as the tool's schema says.
Repeat it for a list; a list or an object may also be JSON; --flag and --no-flag are
booleans. VALUE may be @FILE (its contents; @@ stands for one @) or - (standard input).
A single {...}, or - for one on standard input, gives arguments as JSON, unchecked.

OPTIONS stand before the tool's name; what follows the name belongs to the tool.
"""

# Each option: the placeholder of its value ("" if it takes none), and what it does.
# Those in REPEATED may be given several times.
OPTIONS = {
    "--config": ("FILE", "look TARGET up in this file (mcpServers)"),
    "--env": ("NAME=VALUE", "set a variable for the server"),
    "--cwd": ("FOLDER", "start the server in this folder"),
    "--header": ("'NAME: VALUE'", "send an HTTP header"),
    "--login": ("", "log in with a browser if the server asks; tokens are kept"),
    "--answer": ("KEY=VALUE", "answer a field of the server's questions"),
    "--sample": ("TEXT", "answer the server's requests for a model's words"),
    "--root": ("FOLDER", "tell the server about a folder"),
    "--revision": ("DATE", "speak this revision of MCP or fail"),
    "--timeout": ("SECONDS", "the longest wait for an answer (60)"),
    "--output": ("FILE", "write images, sounds and blobs there (-: standard output)"),
    "--json": ("", "print one JSON value, whatever happens"),
    "--trace": ("", "show every message on stderr"),
    "--record": ("FILE", "append every message to a file, for picture.py"),
    "--version": ("", "print the version"),
    "--help": ("", "print this"),
}
REPEATED = {"--env", "--header", "--answer", "--root"}

STATUS = """
Exit status: 0; 1 the tool failed; 2 the command line is wrong; 3 no connection, a
timeout, or an HTTP error such as 401; 4 the server answered with an error, or with
something invalid; 130 Ctrl-C or another signal that ends it.
"""

# How many words each verb takes after TARGET, at least and at most (None: any number).
# Those of the verbs in NAMED belong to a tool or prompt from the first one on.
VERBS: dict[str, tuple[int, int | None]] = {
    "list": (0, 0),
    "call": (1, None),
    "read": (1, 1),
    "prompt": (1, None),
    "complete": (2, None),
    "listen": (0, None),
    "ping": (0, 0),
    "info": (0, 0),
    "request": (1, 2),
    "login": (0, 0),
}
NAMED = {"call", "prompt", "complete", "request"}


class UsageError(Exception):
    """The command line is wrong; the message says what would be right."""


class Finished(Exception):
    """There is nothing more to do; the message is to be printed."""


# ==== 1. The command line =====================================


class Given:
    """What the command line says: `verb`, `words` after the target, `options` by name;
    `target` is a word, or the server's command."""

    def __init__(self, arguments: list[str]) -> None:
        self.options: dict[str, Any] = {name: [] for name in REPEATED}
        end = arguments.index("--") if "--" in arguments else len(arguments)
        command = arguments[end + 1 :]

        found = self._words(arguments[:end], has_command=bool(command))
        if not found:
            raise UsageError("expected a verb: " + ", ".join(VERBS))
        self.verb = found.pop(0)

        self.target: str | list[str] = command
        if not command:
            if not found:
                raise UsageError(f"{self.verb}: which server? Expected TARGET")
            self.target = found.pop(0)
        self.words = found

        least, most = VERBS[self.verb]
        if len(found) < least:
            raise UsageError(f"{self.verb}: something is missing; see --help")
        if most is not None and len(found) > most:
            raise UsageError(f"{self.verb}: unexpected {found[most]!r}; see --help")

    def _words(self, arguments: list[str], has_command: bool) -> list[str]:
        """Take the options out; return the verb, the target and what follows."""
        found: list[str] = []
        while arguments:
            word, *arguments = arguments
            if word.startswith("--") or word == "-h":
                arguments = self._option(word, arguments)
                continue

            found.append(word)
            if word not in VERBS and len(found) == 1:
                raise UsageError(
                    f"unknown verb {word!r}; expected one of {', '.join(VERBS)}"
                )
            before_name = 1 if has_command else 2
            if found[0] in NAMED and len(found) > before_name:
                return found + arguments
        return found

    def _option(self, word: str, arguments: list[str]) -> list[str]:
        """Take an option and its value; return the arguments after it."""
        name, equals, value = word.partition("=")
        if name in ("--help", "-h"):
            raise Finished(full_help())
        if name == "--version":
            raise Finished(f"mcp_cli.py {mcp_client.__version__}")
        if name not in OPTIONS:
            raise UsageError(f"unknown option {name}{suggestion(name, OPTIONS)}")

        if not OPTIONS[name][0]:
            if equals:
                raise UsageError(f"{name} takes no value")
            self.options[name] = True
            return arguments

        if not equals:
            if not arguments:
                raise UsageError(f"{name}: expected {OPTIONS[name][0]}")
            value, *arguments = arguments
        if name in REPEATED:
            self.options[name].append(value)
        else:
            self.options[name] = value
        return arguments

    def pairs(self, name: str, mark: str) -> dict[str, str]:
        """Return the names and values of an option such as NAME=VALUE."""
        for word in self.options[name]:
            if mark not in word:
                raise UsageError(f"{name}: expected NAME{mark}VALUE; found {word!r}")
        return {
            key.strip(): value.strip() if mark == ":" else value
            for key, _, value in (word.partition(mark) for word in self.options[name])
        }

    def timeout(self) -> float:
        """Return the timeout in seconds."""
        text = self.options.get("--timeout", mcp_client.CALL_SECONDS)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0
        if not 0 < seconds < 1e6:
            raise UsageError(f"--timeout: expected seconds; found {text!r}")
        return seconds


def full_help() -> str:
    """Return the help, with a line for each option."""
    lines = [
        f"  {name + ' ' + value:23} {what}" for name, (value, what) in OPTIONS.items()
    ]
    return HELP + "\n".join(lines) + "\n" + STATUS.rstrip()


def suggestion(word: str, known: Any) -> str:
    """Return what a misspelt word may have meant, as the end of a sentence."""
    import difflib

    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


# ==== 2. Where the server is ==================================

# Where hosts keep their configuration: the user's own files, then the project's.
PLACES = """
~/.claude.json
~/.config/Claude/claude_desktop_config.json
~/Library/Application Support/Claude/claude_desktop_config.json
~/AppData/Roaming/Claude/claude_desktop_config.json
~/.cursor/mcp.json
~/.codeium/windsurf/mcp_config.json
~/.gemini/settings.json
.mcp.json
.cursor/mcp.json
.vscode/mcp.json
"""


class Server:
    """Where a server is: a `url`, a Python `file`, or a `command`."""

    def __init__(self, url: str = "", file: str = "", command: Any = ()) -> None:
        self.url, self.file, self.command = url, file, list(command)
        self.headers: Message = {}
        self.env: Message = {}
        self.cwd: str | None = None


def open_client(given: Given, terminal: Terminal, stack: ExitStack) -> Client:
    """Connect to the target, as the options say."""
    options = given.options
    server = find_server(given, terminal)
    cwd = options.get("--cwd", server.cwd)
    if cwd and not os.path.isdir(cwd):
        raise UsageError(f"there is no folder {cwd!r}")

    settings: Message = {
        "timeout": given.timeout(),
        "revision": options.get("--revision", ""),
        "env": {**os.environ, **server.env, **given.pairs("--env", "=")},
        "cwd": cwd,
        "headers": {**server.headers, **given.pairs("--header", ":")},
        "stderr": terminal.note,
        "elicit": terminal.elicit,
        "visit": terminal.visit,
        "on_log": terminal.log,
        "info": {"name": "mcp_cli.py", "version": mcp_client.__version__},
    }
    if "--sample" in options:
        settings["sample"] = lambda params: options["--sample"]
    if options["--root"]:
        settings["roots"] = options["--root"]
    if "--trace" in options:
        settings["trace"] = terminal.trace
    if "--record" in options:
        settings["record"] = stack.enter_context(open_record(options["--record"]))
    if "--login" in options or given.verb == "login":
        settings["authorize"] = login_hook()

    terminal.url = server.url
    if server.file:
        return open_file(server.file, settings, stack)
    if server.url:
        return connect(server.url, **settings)
    return start_server(server.command, settings, stack)


def find_server(given: Given, terminal: Terminal) -> Server:
    """Find out what the target is."""
    target = given.target
    if isinstance(target, list):
        return Server(command=target)
    if "--config" not in given.options:
        if "://" in target:
            return Server(url=target)
        if os.path.isfile(target):
            path = os.path.abspath(target)
            if path.endswith(".py"):
                return Server(file=path)
            if os.access(path, os.X_OK):
                return Server(command=[path])
            raise UsageError(f"{target} cannot be run: give a command after `--`")

    entry = configured(target, given.options.get("--config"), terminal)
    command = [entry["command"], *entry.get("args", [])] if "command" in entry else []
    url = str(entry.get("url") or entry.get("serverUrl") or "")
    server = Server(url=url, command=command)
    server.headers, server.env = entry.get("headers", {}), entry.get("env", {})
    server.cwd = entry.get("cwd")
    return server


def configured(name: str, file: str | None, terminal: Terminal) -> Message:
    """Return the entry of a server in the configuration of a host."""
    known: list[str] = []
    for place in [file] if file else PLACES.strip().splitlines():
        path = Path(place).expanduser()
        if not file and not path.is_file():
            continue
        servers = servers_in(path)
        if name in servers:
            terminal.note(f"{name}: found in {path}")
            entry: Message = expanded(servers[name])
            return entry
        known += servers

    where = file or "the configuration of a host"
    raise UsageError(
        f"{name!r} is not a URL or a file, and not in {where}{suggestion(name, known)}"
    )


def servers_in(path: Path) -> Message:
    """Return the entries in a host's configuration, by name."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path}: {problem}") from None
    if not isinstance(content, dict):
        return {}
    # VS Code calls them "servers".
    found = content.get("mcpServers") or content.get("servers")
    if not isinstance(found, dict):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def expanded(value: Any) -> Any:
    """Put environment variables into the text of an entry: ${NAME}, ${env:NAME},
    ${NAME:-default}."""

    def variable(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name not in os.environ and default is None:
            raise UsageError(f"the configuration needs the variable {name}: set it")
        return os.environ.get(name) or default or ""

    if isinstance(value, dict):
        return {name: expanded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [expanded(part) for part in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}", variable, value)
    return value


class ServerProcess(StdioTransport):
    """A server that we run; a signal waits until there is a process to stop()."""

    def start(self) -> None:
        with signals_wait():
            super().start()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Have the signals that end us wait."""
    came: list[int] = []
    ours: list[int] = []
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, lambda number, _: came.append(number))
                ours.append(number)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


def start_server(command: list[str], settings: Message, stack: ExitStack) -> Client:
    """Run a server and connect to it. A signal may come at any moment, also before our
    caller has the client: the stack can end the process as soon as there is one."""
    transport = ServerProcess(command, settings["env"], settings["cwd"])
    stack.callback(transport.stop)
    return connect(transport, **settings)


def open_file(file: str, settings: Message, stack: ExitStack) -> Client:
    """Run a Python file as a server; if it ends without serving, serve its
    functions."""
    try:
        return start_server([sys.executable, file], settings, stack)
    except Disconnected as problem:
        if problem.exit_status != 0:
            raise

    # mcp_ref may be inside a zip archive, from which -m runs it, too.
    folders = [str(Path(mcp_ref.__file__).parent), os.environ.get("PYTHONPATH", "")]
    settings["env"]["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    words = [sys.executable, "-m", "mcp_ref", "serve", file]
    return start_server(words, settings, stack)


def open_record(path: str) -> BinaryIO:
    """Open a file for messages. Like MCP_TRACE, it is private, and begins with a record
    about this run."""
    import inspect
    from datetime import datetime, timezone
    from hashlib import sha256

    file = open(path, "ab", 0, opener=lambda name, flags: os.open(name, flags, 0o600))
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    about: Message = {"time": f"{now[:-6]}Z"}
    about["program"] = f"mcp_client {mcp_client.__version__}"
    about["process"] = os.getpid()
    with suppress(OSError):  # compiled, without its source
        about["sha256"] = sha256(inspect.getsource(mcp_client).encode()).hexdigest()
    file.write(mcp_ref.encode(about))
    return file


def login_hook() -> Any:
    """Return what logs in: oauth.py, with its file of tokens."""
    sys.path.append(str(Path(__file__).resolve().parent / "extensions"))
    try:
        import oauth
    except ImportError:
        raise UsageError("--login needs oauth.py beside mcp_cli.py") from None
    return oauth.OAuth(store=oauth.TokenFile())


# ==== 3. A tool's arguments, by its schema ====================

TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
# In which order the types of a union are tried; text is always possible.
TRIED = ("boolean", "integer", "number", "array", "object")


class Parameters:
    """The arguments that a tool or prompt takes: JSON Schemas by name."""

    def __init__(self, owner: str, schema: Any) -> None:
        self.owner = owner
        self.root: Message = schema if isinstance(schema, dict) else {}
        found = self.root.get("properties")
        self.schemas: Message = found if isinstance(found, dict) else {}
        self.required = self.root.get("required") or []
        # Names that the schema does not have are allowed if it says so itself.
        self.is_open = self.root.get("additionalProperties") not in (None, False)

    def resolved(self, schema: Any) -> Message:
        """Follow references inside the schema."""
        for _ in range(10):
            if not isinstance(schema, dict):
                return {}
            target = schema.get("$ref")
            if not isinstance(target, str) or not target.startswith("#/"):
                return schema
            schema = self.root
            for part in target[2:].split("/"):
                schema = schema.get(part, {}) if isinstance(schema, dict) else {}
        return {}

    def types(self, schema: Any, depth: int = 5) -> list[str]:
        """Return the types that a schema allows; [] if it does not say."""
        schema = self.resolved(schema)
        found = schema.get("type", [])
        names = [found] if isinstance(found, str) else list(found)
        for word in ("anyOf", "oneOf", "allOf"):
            for part in schema.get(word, []) if depth else []:
                names += self.types(part, depth - 1)
        if not names:
            values = [
                *schema.get("enum", []),
                *([schema["const"]] if "const" in schema else []),
            ]
            names = ["string"] if any(isinstance(one, str) for one in values) else []
        return list(dict.fromkeys(names))

    def spelled(self, schema: Any, depth: int = 4) -> str:
        """Return a schema as a type hint."""
        schema = self.resolved(schema)
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return " | ".join(json.dumps(one, ensure_ascii=False) for one in values)
        for word in ("anyOf", "oneOf"):
            if schema.get(word) and depth:
                parts = [self.spelled(part, depth - 1) for part in schema[word]]
                return " | ".join(dict.fromkeys(parts))

        names = self.types(schema)
        if names == ["array"] and "items" in schema and depth:
            return f"list[{self.spelled(schema['items'], depth - 1)}]"
        return " | ".join(TYPES.get(name, name) for name in names) or "any"

    def signature(self) -> str:
        """Return the arguments as in a Python function; `name?` may be left out."""
        parts = []
        for name, schema in self.schemas.items():
            part = self.resolved(schema)
            mark = "" if name in self.required or "default" in part else "?"
            kind = "" if self.root.get("untyped") else f": {self.spelled(part)}"
            default = f" = {value_text(part['default'])}" if "default" in part else ""
            parts.append(name + mark + kind + default)
        return f"{self.owner}({', '.join(parts)})"

    def help(self) -> Iterator[str]:
        """Yield a line for each argument, and its description."""
        for name, schema in self.schemas.items():
            part = self.resolved(schema)
            note = "  (required)" if name in self.required else ""
            if "default" in part:
                note = f"  (default: {value_text(part['default'])})"
            yield f"  --{name} {self.spelled(part)}{note}"
            text = part.get("description") or part.get("title", "")
            yield from wrapped(str(text), "      ")

    def read(self, words: list[str], read_input: Callable[[], str]) -> Message:
        """Return the arguments that the words of the command line give."""
        found: dict[str, list[str]] = {}
        values: Message = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word.startswith("{") or word == "-":
                values.update(json_object(read_input() if word == "-" else word))
                continue
            name, text = self._pair(word, rest)
            found.setdefault(name, []).append(content_of(text, name, read_input))
        for name, texts in found.items():
            values[name] = self._value(name, texts)
        return values

    def _pair(self, word: str, rest: list[str]) -> tuple[str, str]:
        """Return name and value of the argument that begins with `word`."""
        name, equals, text = word.partition("=")
        if name.startswith("--"):
            name = self._name(name[2:])
            if not equals:
                kinds = self.types(self.schemas.get(name, {}))
                if word.startswith("--no-") and word[2:] != name:
                    return name, "false"
                if kinds == ["boolean"] and not (rest and rest[0] in ("true", "false")):
                    return name, "true"
                if not rest:
                    raise UsageError(f"{self.owner}: --{name} needs a value")
                return name, rest.pop(0)
            return name, text
        if not equals:
            raise UsageError(
                f"{self.owner}: expected NAME=VALUE or --NAME VALUE; found {word!r}"
            )
        return self._name(name), text

    def _name(self, name: str) -> str:
        """Return the argument that is meant; UsageError if there is none."""
        if name in self.schemas:
            return name
        for known in self.schemas:
            same = known.replace("_", "-") == name
            if same or (
                f"no-{known}" == name and self.types(self.schemas[known]) == ["boolean"]
            ):
                return known
        if self.is_open:
            return name

        hint = suggestion(name, self.schemas)
        if f"--{name}" in OPTIONS:
            hint = f"; the option --{name} stands before {self.owner}"
        raise UsageError(f"{self.owner} has no argument {name!r}{hint}")

    def _value(self, name: str, texts: list[str]) -> Any:
        """Convert an argument; one that was given several times is a list."""
        schema = self.resolved(self.schemas.get(name, {}))
        kinds = self.types(schema)
        if "array" in kinds and (len(texts) > 1 or not texts[0].startswith("[")):
            items = self._items(schema)
            if len(texts) > 1 or not set(kinds) - {"array", "null"}:
                return [self.convert(items, text, name) for text in texts]
        if len(texts) > 1:
            raise UsageError(f"{self.owner}: {name} was given {len(texts)} times")
        return self.convert(schema, texts[0], name)

    def _items(self, schema: Message) -> Any:
        """Return the schema of the items of a list, also of one in a union."""
        for word in ("anyOf", "oneOf"):
            for part in schema.get(word, []):
                part = self.resolved(part)
                if part.get("type") == "array":
                    return part.get("items", {})
        return schema.get("items", {})

    def convert(self, schema: Any, text: str, name: str) -> Any:
        """Convert text to a value of one of the types that the schema allows."""
        kinds = self.types(schema)
        if kinds and set(kinds) <= {"string", "null"}:
            return text
        if not kinds:  # anything is allowed
            with suppress(ValueError):
                return json.loads(text)
            return text

        if "null" in kinds and text == "null":
            return None
        for kind in TRIED:
            if kind in kinds:
                with suppress(ValueError):
                    return converted(kind, text)
        if "string" in kinds:
            return text
        raise UsageError(
            f"{self.owner}: {name} must be {self.spelled(schema)}; found {text!r}"
        )


def converted(kind: str, text: str) -> Any:
    """Convert text to one type; ValueError if it is something else."""
    value = json.loads(text)
    expected: Message = {
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
    }
    if not isinstance(value, expected[kind]) or (
        isinstance(value, bool) and kind != "boolean"
    ):
        raise ValueError(f"expected {kind}")
    return value


def content_of(text: str, name: str, read_input: Callable[[], str]) -> str:
    """Return a value, which may be @FILE or - for standard input."""
    if text == "-":
        return read_input().removesuffix("\n")
    if text.startswith("@@"):
        return text[1:]
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes().decode("utf-8")
        except (OSError, ValueError) as problem:
            raise UsageError(
                f"{name}: {problem} (for a value that begins with @, write @@)"
            ) from None
    return text


def json_object(text: str) -> Message:
    """Parse a JSON object from the command line."""
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise UsageError(f"expected a JSON object: {problem}") from None
    if not isinstance(value, dict):
        raise UsageError(f"expected a JSON object; found {text:.80}")
    return value


def value_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ==== 4. The verbs ============================================
# Each returns the value that --json prints, and the lines that are printed without.


def list_all(client: Client) -> Iterator[tuple[str, list[Message]]]:
    """Yield what a server offers, by the member's name."""
    yield "tools", client.list_tools()
    yield "prompts", client.list_prompts()
    yield "resources", client.list_resources()
    yield "resourceTemplates", client.list_resource_templates()


def run_list(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    found = dict(list_all(client))
    return found, listed(found)


def run_call(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    name, *words = given.words
    if len(words) == 1 and (words[0] == "-" or words[0].startswith("{")):
        arguments = Parameters(name, {}).read(words, terminal.read_input)
    else:
        tool = find(name, client.list_tools(), "tool")
        parameters = Parameters(name, tool.get("inputSchema"))
        if words == ["--help"] and "help" not in parameters.schemas:
            return tool, tool_help(tool, parameters)
        arguments = parameters.read(words, terminal.read_input)

    result = client.call_tool(
        name, arguments, on_progress=terminal.progress, started=terminal.started
    )
    blocks = result["content"]
    if not blocks and "structuredContent" in result:
        blocks = [result["structuredContent"]]
    return result, all_shown(blocks, terminal)


def run_prompt(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    name, *words = given.words
    prompt = find(name, client.list_prompts(), "prompt")
    parameters = prompt_parameters(prompt)
    if words == ["--help"] and "help" not in parameters.schemas:
        return prompt, tool_help(prompt, parameters)

    arguments = parameters.read(words, terminal.read_input)
    result = client.get_prompt(name, arguments, started=terminal.started)
    return result, (
        f"{message['role']}: {shown(message.get('content'), terminal)}"
        for message in result["messages"]
    )


def run_read(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    contents = client.read_resource(given.words[0])
    return {"contents": contents}, all_shown(contents, terminal)


def run_complete(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    name, *words = given.words
    for word in words:
        if "=" not in word:
            raise UsageError(f"complete: expected ARGUMENT=START; found {word!r}")
    (argument, _, start), *known = (word.partition("=") for word in words)
    values = client.complete(
        name, argument, start, {name: value for name, _, value in known}
    )
    return values, map(str, values)


def run_listen(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    wanted = given.words or ["tools", "prompts", "resources"]
    subscription = client.listen(wanted)
    terminal.note(f"listening to {', '.join(subscription.granted)}; Ctrl-C ends it")

    def changes() -> Iterator[Any]:
        with subscription:
            yield from subscription

    return changes(), changes()


def run_ping(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    start = time.monotonic()
    client.ping()
    taken = round((time.monotonic() - start) * 1000, 1)
    return {"milliseconds": taken}, [f"answered in {taken} ms"]


def run_info(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    found = {
        "server": client.server_info,
        "revision": client.version,
        "era": "modern" if client.modern else "legacy",
        "capabilities": client.capabilities,
        "instructions": client.instructions,
    }
    lines = [
        f"{name}: {value if isinstance(value, str) else value_text(value)}"
        for name, value in found.items()
        if value is not None
    ]
    return found, lines


def run_request(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    method, *more = given.words
    text = more[0] if more else "{}"
    params = json_object(terminal.read_input() if text == "-" else text)
    result = client.request(
        method, params, on_progress=terminal.progress, started=terminal.started
    )
    return result, [json.dumps(result, indent=2)]


def run_login(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    client.ping()
    return {"url": terminal.url}, [f"logged in at {terminal.url}"]


RUN: dict[str, Callable[[Client, Given, Terminal], tuple[Any, Any]]] = {
    "list": run_list,
    "call": run_call,
    "read": run_read,
    "prompt": run_prompt,
    "complete": run_complete,
    "listen": run_listen,
    "ping": run_ping,
    "info": run_info,
    "request": run_request,
    "login": run_login,
}


def find(name: str, offered: list[Message], kind: str) -> Message:
    """Return the tool or prompt of this name."""
    for one in offered:
        if one["name"] == name:
            return one
    names = [one["name"] for one in offered]
    raise UsageError(f"the server has no {kind} {name!r}{suggestion(name, names)}")


def prompt_parameters(prompt: Message) -> Parameters:
    """Return the arguments of a prompt, which are all strings."""
    found = prompt.get("arguments")
    offered = [one for one in found or [] if isinstance(one, dict)]
    schema = {
        "untyped": True,
        "properties": {
            str(one.get("name")): {
                "type": "string",
                "description": one.get("description"),
            }
            for one in offered
        },
        "required": [one.get("name") for one in offered if one.get("required")],
    }
    return Parameters(prompt["name"], schema)


# ==== 5. What is printed ======================================

# C0 but for newline and tab, DEL, C1, and what reverses the direction of text; a
# carriage return is harmless only before a newline.
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    "|\r(?!\n)"
)


def clean(text: str) -> str:
    """Replace control characters by what Python calls them, such as \\x1b."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def wrapped(text: str, indent: str) -> list[str]:
    """Return text in lines of at most 88 columns."""
    import textwrap

    lines = []
    for line in text.strip().splitlines():
        more = textwrap.wrap(line, 88, initial_indent=indent, subsequent_indent=indent)
        lines += more or [""]
    return lines


def entry_lines(head: str, description: Any) -> list[str]:
    """Return a list entry: on one line, if its description is short."""
    text = str(description or "").strip()
    line = f"  {head}  {text}".rstrip()
    if "\n" not in text and len(line) <= 88:
        return [line]
    return [f"  {head}", *wrapped(text, "      ")]


def listed(found: dict[str, list[Message]]) -> Iterator[str]:
    """Yield the lines of `list`, under headings."""
    for member, items in found.items():
        if items:
            words = re.sub("([A-Z])", r" \1", member).lower()
            yield words.capitalize() + ":"
        for item in items:
            yield from entry_lines(heading(member, item), item.get("description"))
    if not any(found.values()):
        yield "The server offers nothing."


def heading(member: str, item: Message) -> str:
    """Return what stands for one tool, prompt, resource or template."""
    if member == "tools":
        return tool_signature(item)
    if member == "prompts":
        return prompt_parameters(item).signature()
    uri = item.get("uri") or item.get("uriTemplate")
    return f"{uri}  {item['name']}"


def tool_signature(tool: Message) -> str:
    """Return a tool as a Python function."""
    line = Parameters(tool["name"], tool.get("inputSchema")).signature()
    output = tool.get("outputSchema")
    if not isinstance(output, dict):
        return line
    returned = Parameters("", output)
    only = list(returned.schemas) == ["result"]  # SDKs wrap what is not an object
    schema = returned.schemas["result"] if only else output
    return f"{line} -> {returned.spelled(schema)}"


def tool_help(item: Message, parameters: Parameters) -> Iterator[str]:
    """Yield the explanation of a tool or prompt."""
    is_tool = "inputSchema" in item
    yield tool_signature(item) if is_tool else parameters.signature()
    if item.get("description"):
        yield ""
        yield from wrapped(str(item["description"]), "  ")
    if parameters.schemas:
        yield ""
        yield from parameters.help()


def all_shown(blocks: list[Any], terminal: Terminal) -> Iterator[str]:
    """Yield content as text; an empty text prints nothing."""
    return filter(None, (shown(one, terminal) for one in blocks))


def shown(block: Any, terminal: Terminal) -> str:
    """Return content as text; save what is not."""
    if not isinstance(block, dict):
        return value_text(block)
    inner = block.get("resource") if block.get("type") == "resource" else block
    if not isinstance(inner, dict):
        return value_text(block)
    if isinstance(inner.get("text"), str):
        return str(inner["text"])
    if inner.get("type") == "resource_link":
        return f"{inner.get('uri')}  {inner.get('name', '')}".rstrip()

    data = inner.get("blob", inner.get("data"))
    if isinstance(data, str) and inner.get("type") in (
        "image",
        "audio",
        None,
        "resource",
    ):
        return terminal.save(data, str(inner.get("mimeType", "data")))
    return value_text(block)


def print_json(value: Any) -> None:
    """Print one JSON value; one that comes in pieces as a list, piece by piece."""
    if not isinstance(value, Iterator):
        print(json.dumps(value, indent=2), flush=True)
        return
    print("[", end="", flush=True)
    separator = "\n"
    try:
        for one in value:
            print(separator + json.dumps(one), end="", flush=True)
            separator = ",\n"
    finally:
        print("\n]", flush=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; a text may end with a newline of its own."""
    for line in lines:
        text = clean(line)
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()


# ==== 6. The user =============================================


class Terminal:
    """The user at the terminal, if there is one: sees notes on stderr, answers
    questions on standard input."""

    def __init__(self, options: Message) -> None:
        self.options = options
        self.url = ""
        self.answers: dict[str, str] = {}
        self.request: Any = None  # the one that waits for an answer
        self.moving = False  # a line of progress is on the screen
        self.saved = 0
        self.one_question = threading.Lock()  # so that no answer gets to another one

    # ---- notes

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        self.end_progress()
        # in one piece, because other threads and processes write, too
        sys.stderr.write(clean(text) + "\n")
        sys.stderr.flush()

    def log(self, params: Message) -> None:
        """Show a log message of the server."""
        data = params.get("data")
        text = data if isinstance(data, str) else value_text(data)
        name = f" {params['logger']}" if params.get("logger") else ""
        self.note(f"[{params.get('level')}]{name}: {text}")

    def trace(self, way: str, message: Any) -> None:
        """Show a message, both ways."""
        self.note(f"{way} {json.dumps(message)}")

    def progress(self, done: Any, total: Any, message: Any) -> None:
        """Show progress as a line that moves; nothing if stderr is not a terminal."""
        if sys.stderr.isatty():
            of = f"/{total}" if total is not None else ""
            line = clean(f"{done}{of} {message or ''}".replace("\n", " "))
            print(f"\r\x1b[K{line[:79]}", end="", file=sys.stderr, flush=True)
            self.moving = True

    def end_progress(self) -> None:
        if self.moving:
            self.moving = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    # ---- files

    def read_input(self) -> str:
        """Read all of standard input."""
        return sys.stdin.buffer.read().decode("utf-8")

    def save(self, data: str, kind: str) -> str:
        """Write content that is not text to --output; return what to print."""
        import base64

        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise Malformed(f"{kind}: the server sent invalid base64") from None
        place = self.options.get("--output")
        if not place:
            return f"[{kind}, {len(content)} bytes: save it with --output FILE]"
        if place == "-":
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            return ""

        # The second one is called name-2.png, and so on.
        self.saved += 1
        path = Path(place)
        if self.saved > 1:
            path = path.with_name(f"{path.stem}-{self.saved}{path.suffix}")
        path.write_bytes(content)
        self.note(f"{kind}, {len(content)} bytes: written to {path}")
        return ""

    # ---- questions

    def started(self, request: Any) -> None:
        """Remember the request that is waiting."""
        self.request = request

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stop the clock of the call while the user thinks: a legacy server asks before
        it answers, and may ask several things at once."""
        request = self.request
        with self.one_question:
            if request:
                request.deadline = float("inf")
            try:
                yield
            finally:
                if request:
                    request.deadline = time.monotonic() + request.timeout

    def ask(self, text: str) -> str | None:
        """Ask for a line; None at the end of input."""
        self.end_progress()
        print(clean(text), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return None
        return line.rstrip("\n")

    def elicit(self, params: Message) -> Any:
        """Fill in a form."""
        with self.asking():
            return self.fill_in(params)

    def fill_in(self, params: Message) -> Any:
        """Fill in a form, field by field."""
        schema = params.get("requestedSchema")
        form = Parameters("the form", schema)
        self.note(f"The server asks: {params.get('message')}")
        if not sys.stdin.isatty():
            return self.prepared(form)

        self.note("(Ctrl-D declines.)")
        if not form.schemas:
            said = self.ask("Agree? [y/N] ")
            return {} if said and said.lower() in ("y", "yes") else "decline"
        while True:
            typed = [name for name in form.schemas if name not in self.answers]
            answer: Message = {}
            for name, part in form.schemas.items():
                given = self.answers.pop(name, None)
                try:
                    value = self.field(form, name, form.resolved(part), given)
                except EOFError:
                    return "decline"
                if value is not None:
                    answer[name] = value

            # client/elicitation: the user can change what an earlier field has
            said = ""
            if len(typed) > 1:
                said = self.ask(f"Send {value_text(answer)}? [Y/n] ")
            if said is None:
                return "decline"
            if not said.lower().startswith("n"):
                return answer

    def prepared(self, form: Parameters) -> Any:
        """Answer a form with --answer only; decline if that does not suffice."""
        names = [name for name in form.schemas if name in self.answers]
        missing = [
            name
            for name in form.schemas
            if name in form.required
            and name not in names
            and "default" not in form.resolved(form.schemas[name])
        ]
        if missing or not names:
            wanted = " ".join(
                f"--answer {name}=..." for name in missing or form.schemas
            )
            self.note(f"There is no terminal to answer at, so it is declined: {wanted}")
            return "decline"
        return {name: form._value(name, [self.answers.pop(name)]) for name in names}

    def field(self, form: Parameters, name: str, part: Message, given: Any) -> Any:
        """Ask for a field until the answer is valid; None if it is left out."""
        title, kind = part.get("title", name), form.spelled(part)
        if part.get("description"):
            self.note(f"  {part['description']}")
        hint = f" [{value_text(part['default'])}]" if "default" in part else ""
        while True:
            text = self.ask(f"  {title} ({kind}){hint}: ") if given is None else given
            given = None
            if text is None:
                raise EOFError
            if not text and (name not in form.required or "default" in part):
                return part.get("default")
            try:
                if "array" in form.types(part) and not text.startswith("["):
                    return form._value(name, [one.strip() for one in text.split(",")])
                return form._value(name, [text])
            except UsageError as problem:
                self.note(f"  {problem}")

    def visit(self, params: Message) -> bool:
        """Open a page in the browser, if the user agrees."""
        with self.asking():
            return self.agree_to_visit(params)

    def agree_to_visit(self, params: Message) -> bool:
        """Show a page's URL, and open it if the user agrees."""
        url = str(params.get("url"))
        self.note(f"The server asks: {params.get('message')}")
        self.note(f"It wants you to open {url}")
        for warning in url_warnings(url, self.url):
            self.note(f"Careful: {warning}.")
        if not sys.stdin.isatty():
            self.note("There is no terminal to agree at, so it is declined.")
            return False
        said = self.ask("Open it? [y/N] ")
        if not said or said.lower() not in ("y", "yes"):
            return False

        import webbrowser

        webbrowser.open(url)
        return True


# ==== 7. The exit status ======================================


def status_of(problem: Exception) -> int:
    """Return the exit status for what went wrong."""
    if isinstance(problem, (UsageError, ValueError)):
        return 2
    if isinstance(problem, (RpcError, Malformed, ServerLacks, AskError)):
        return 4
    return 3


def error_text(problem: Exception) -> str:
    """Return what went wrong, as a line or more."""
    if isinstance(problem, RpcError):
        return f"the server answered with error {problem.code}: {problem}"
    if isinstance(problem, (UsageError, ValueError)):
        return f"mcp_cli.py: {problem}"
    if isinstance(problem, Disconnected) and problem.exit_status is not None:
        # What it wrote to stderr is on the screen already.
        return f"Disconnected: {str(problem).splitlines()[0]}"
    if isinstance(problem, HttpError) and problem.status == 401:
        return f"{problem}\nThe server wants a login: try --login, or --header."
    return f"{type(problem).__name__}: {problem}"


def error_json(problem: Exception) -> Message:
    """Return what went wrong, for --json."""
    found: Message = {"type": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, RpcError):
        found["code"] = problem.code
        if problem.data is not None:
            found["data"] = problem.data
    return {"error": found}


def run(arguments: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    given = Given(arguments)
    terminal = Terminal(given.options)
    terminal.answers = given.pairs("--answer", "=")
    if given.options.get("--output") == "-" and sys.stdout.isatty():
        raise UsageError("--output -: standard output is a terminal")
    stack = ExitStack()
    try:
        with stack:
            client = stack.enter_context(open_client(given, terminal, stack))
            value, lines = RUN[given.verb](client, given, terminal)
            terminal.end_progress()
            if "--json" in given.options:
                print_json(value)
            else:
                print_lines(lines)
    finally:
        stack.close()  # what is left, if a signal came as it began to close
    for name in terminal.answers:
        terminal.note(f"The server did not ask for {name!r}.")
    return 1 if isinstance(value, dict) and value.get("isError") else 0


def report(problem: Exception, as_json: bool) -> None:
    """Print what went wrong, without a traceback."""
    if as_json:
        print_json(error_json(problem))
    else:
        print(clean(error_text(problem)), file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run the command line; print what went wrong; return the exit status."""
    # A stream is None if it was closed before we began.
    sys.stdin = sys.stdin or open(os.devnull)
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    status = 0
    try:
        try:
            status = run(arguments)
        except Finished as end:
            print(end, flush=True)
        except BrokenPipeError:
            raise
        except Exception as problem:
            status = status_of(problem)
            report(problem, "--json" in arguments)
        return status
    except KeyboardInterrupt:
        return 130  # the shell convention for SIGINT
    except OSError as problem:
        # Nobody reads our output, which is no error, or the disk is full.
        if not isinstance(problem, BrokenPipeError):
            status = status_of(problem)
            with suppress(OSError):
                report(problem, as_json=False)
        # Now the flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return status


def start() -> NoReturn:
    """Run as a program; zipapp calls it."""
    # As Ctrl-C does, these end the server that we have started; unless ignored.
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    start()
