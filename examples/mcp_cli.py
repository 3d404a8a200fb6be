#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""Curl for MCP: try a server out from a shell.

    python3 mcp_cli.py list server.py
    python3 mcp_cli.py call server.py add a=2 b=3
    python3 mcp_cli.py call add --a 2 --b 3 -- npx some-server
    python3 mcp_cli.py read https://mcp.example.com/mcp note:///todo
    python3 mcp_cli.py serve functions.py

`--help` explains the rest. It needs mcp_client.py and mcp_ref.py beside it. To find a
server by its name in a host's configuration, it needs host_files.py, and for `--login`
oauth.py. One file of all five, for your `bin`:

    mkdir mcp && cp mcp_ref.py examples/{mcp_cl*,host_files,extensions/oauth}.py mcp
    python3 -m compileall -qb mcp
    python3 -m zipapp mcp -m mcp_cli:start -p "/usr/bin/env python3" -o ~/bin/mcp

The sections: 1 the command line; 2 where the server is; 3 a tool's arguments, by its
schema; 4 lists; 5 the verbs; 6 what is printed; 7 questions to the user; 8 the shell;
9 serving a file's functions; 10 the exit status. Nothing that a server sends is printed
before clean() has replaced its control characters. What one part of an answer does
wrong costs one line on stderr; the rest is shown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1)]
import mcp_client
import mcp_ref
from mcp_client import (
    Client,
    Disconnected,
    Malformed,
    StdioTransport,
    Subscription,
    url_warnings,
)
from mcp_ref import HttpError, RpcError

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
  logout TARGET                   remove what was kept, and revoke it where that is
                                  possible
  shell TARGET                    many of these lines on one connection
  serve FILE.py [--http [HOST:]PORT] [WORDS ...]
                                  be a server: the file's public functions are its
                                  tools; `serve` stands first and takes no OPTIONS

TARGET is a URL, a FILE.py (it is run; if it then serves nothing, its functions become
tools), a name in the configuration of a host, or an executable file (./NAME: a bare
word is looked up in the configuration first). A server with another command stands at
the end, after `--`, in place of TARGET. A server that is started gets the variables
that hosts give (HOME, PATH, the locale, proxies, certificates), and no others of yours
unless you name them: --env.

ARGUMENTS: --name VALUE, --name=VALUE or name=VALUE, converted as the tool's schema says.
Repeat it for a list; a list or an object may also be JSON; --flag and --no-flag are
booleans, and so are yes, y, true, 1 and no, n, false, 0. VALUE may be @FILE (its
contents; @@ stands for one @) or - (standard input). A single {...}, or - for one on
standard input, gives arguments as JSON, unchecked.

OPTIONS stand before the tool's name; what follows the name belongs to the tool.
"""

# Each option: the placeholder of its value ("" if it takes none), and what it does.
# Those in REPEATED may be given several times.
OPTIONS = {
    "--config": ("FILE", "look TARGET up in this file (mcpServers)"),
    "--env": ("NAME[=VALUE]", "set a variable for the server, or pass on yours"),
    "--all-env": ("", "pass on all variables, secrets, too"),
    "--cwd": ("FOLDER", "start the server in this folder"),
    "--header": ("'NAME: VALUE'", "send an HTTP header"),
    "--proxy": (
        "URL",
        "connect through http://[USER:PASSWORD@]HOST:PORT (default: "
        "HTTPS_PROXY, NO_PROXY and so on)",
    ),
    "--cacert": ("FILE", "trust the certificate authorities in this PEM file"),
    "--login": ("", "log in with a browser if the server asks; tokens are kept"),
    "--no-browser": ("", "... without opening one: show the page, or a code"),
    "--oauth": ("NAME=VALUE", "... with a client_id, a scope and so on; see below"),
    "--answer": (
        "KEY=VALUE",
        "answer a field of the server's questions, in their order",
    ),
    "--sample": ("TEXT", "answer the server's requests for a model's words"),
    "--root": ("FOLDER", "tell the server about a folder"),
    "--revision": ("DATE", "speak this revision of MCP or fail"),
    "--timeout": ("SECONDS", "the longest wait for an answer (60)"),
    "--output": ("FILE", "write images, sounds and blobs to new files (-: stdout)"),
    "--json": ("", "print one JSON value, whatever happens"),
    "--trace": ("", "show every message on stderr"),
    "--record": ("FILE", "append every message to a file, for picture.py"),
    "--version": ("", "print the version"),
    "--help": ("", "print this"),
}
REPEATED = {"--env", "--header", "--answer", "--root", "--oauth"}

LOGIN_HELP = """
For --oauth, which implies --login; also as MCP_OAUTH_NAME=VALUE in the environment, and
in the member `oauth` of a server in a host's configuration:
  client_id, client_secret        a client that was registered by hand
  scope                           scopes to ask for, with spaces between them
  redirect_port, redirect_uri     where the browser returns to, if that was registered
  audience                        what the issuer calls the server
  resource=no                     do not send `resource`, which one provider refuses
  issuer                          the issuer that the client is registered with
  authorization_url, token_url    the issuer's endpoints, if its metadata is wrong
  grant=client_credentials        log in as a program
"""

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
    "logout": (0, 0),
    "shell": (0, 0),
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

    def __init__(self, arguments: list[str], connected: bool = False) -> None:
        """`connected`: it is a line of the shell, which has its target already."""
        self.options: dict[str, Any] = {name: [] for name in REPEATED}
        end = len(arguments)
        if "--" in arguments and not connected:
            end = arguments.index("--")
        command = arguments[end + 1 :]

        found = self._words(arguments[:end], has_command=connected or bool(command))
        if not found:
            raise UsageError("expected a verb: " + ", ".join(VERBS))
        self.verb = found.pop(0)

        self.target: str | list[str] = command
        if not command and not connected:
            if not found:
                names = ", ".join(configured_names())
                more = f"; hosts have configured {names}" if names else ""
                raise UsageError(f"{self.verb}: which server? Expected TARGET{more}")
            self.target = found.pop(0)
        self.words = found

        least, most = VERBS[self.verb]
        if len(found) < least:
            usage = re.search(rf"(?m)^  ({self.verb} .*?)(?:  |$)", HELP)
            shown = usage[1] if usage else self.verb
            if command:
                shown = shown.replace(" TARGET", "") + " -- COMMAND OF THE SERVER"
            raise UsageError(f"expected: {shown}")
        if most is not None and len(found) > most:
            raise UsageError(
                f"{self.verb}: unexpected {found[most]!r}; see --help (the command of a "
                "server stands at the end, after `--`)"
            )

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

    def answers(self) -> dict[str, list[str]]:
        """Return the values that --answer gives, in order, by the field's name."""
        found: dict[str, list[str]] = {}
        for word in self.options["--answer"]:
            name, equals, value = word.partition("=")
            if not equals:
                raise UsageError(f"--answer: expected KEY=VALUE; found {word!r}")
            found.setdefault(name, []).append(value)
        return found

    def variables(self) -> dict[str, str]:
        """Return the variables that --env sets, or passes on."""
        found = {}
        for word in self.options["--env"]:
            name, equals, value = word.partition("=")
            if not equals and name not in os.environ:
                raise UsageError(f"--env {name}: there is no such variable")
            found[name] = value if equals else os.environ[name]
        return found

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
    return HELP + "\n".join(lines) + "\n" + LOGIN_HELP + STATUS.rstrip()


def suggestion(word: str, known: Any) -> str:
    """Return what a misspelt word may have meant, as the end of a sentence."""
    import difflib

    some = [name for name in known if len(name) <= 100][:1000]
    near = difflib.get_close_matches(word, some, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


# ==== 2. Where the server is ==================================

# What hosts give a server that they start: no secrets. The client adds what the system
# needs, such as HOME and PATH.
GIVEN = """
    ALL_PROXY CURL_CA_BUNDLE HTTPS_PROXY HTTP_PROXY LANGUAGE MCP_TRACE
    NODE_EXTRA_CA_CERTS NO_PROXY REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE
    VIRTUAL_ENV
""".split()


def inherited(environ: Any) -> dict[str, str]:
    """Return the variables that a server gets from ours."""
    return {
        name: value
        for name, value in environ.items()
        if name.upper() in GIVEN or name.startswith(("LC_", "XDG_"))
    }


class Server:
    """Where a server is: a `url`, a Python `file`, or a `command`."""

    def __init__(self, url: str = "", file: str = "", command: Any = ()) -> None:
        self.url, self.file, self.command = url, file, list(command)
        self.headers: Message = {}
        self.env: Message = {}
        self.cwd: str | None = None
        self.sse = False  # a host's entry says that it speaks HTTP+SSE
        self.oauth: Message = {}  # what a host's file says about logging in
        # seconds that a host's entry gives for a call, and for the start
        self.timeout: float | None = None
        self.startup: float | None = None


def open_client(given: Given, terminal: Terminal, stack: ExitStack) -> Client:
    """Connect to the target, as the options say."""
    options = given.options
    server = find_server(given, terminal)
    cwd = options.get("--cwd", server.cwd)
    if cwd and not os.path.isdir(cwd):
        raise UsageError(f"there is no folder {cwd!r}")

    if server.timeout:
        options.setdefault("--timeout", f"{min(server.timeout, 86400):g}")
    settings: Message = {
        "timeout": given.timeout(),
        "probe": max(mcp_client.PROBE_SECONDS, server.startup or 0),
        "revision": options.get("--revision", ""),
        "env": {**environment(given), **server.env, **given.variables()},
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
    if given.verb == "login" and not server.url:
        raise UsageError("login: expected a URL; a server that we start wants no login")
    if server.url and wants_login(given):
        terminal.login = settings["authorize"] = login_hook(given, server, terminal)

    terminal.url = server.url
    if server.file:
        return open_file(server.file, settings, stack)
    if server.url:
        settings["sse"] = server.sse
        return started(server.url, {**settings, **network(options)})
    return start_server(server.command, settings, stack)


def network(options: Message) -> Message:
    """Return how to reach a URL."""
    found: Message = {}
    if "--proxy" in options:
        found["proxy"] = proxy = str(options["--proxy"])
        if not re.match(r"https?://|[^:/]+(:\d+)?$|$", proxy):
            raise UsageError(
                "--proxy: expected http://[USER:PASSWORD@]HOST:PORT (SOCKS is not "
                "supported)"
            )
        # oauth.py reads it there
        os.environ.update(dict.fromkeys(("http_proxy", "https_proxy"), proxy))
    if "--cacert" in options:
        import ssl

        found["cacert"] = os.environ["SSL_CERT_FILE"] = options["--cacert"]
        try:
            ssl.create_default_context(cafile=found["cacert"])
        except OSError as problem:
            raise UsageError(f"--cacert {found['cacert']}: {problem}") from None
    return found


def started(target: Any, settings: Message) -> Client:
    """Connect; what the client says of its arguments is about the command line."""
    try:
        return connect(target, **settings)
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def environment(given: Given) -> dict[str, str]:
    """Return what a server gets of our environment."""
    if "--all-env" in given.options:
        return dict(os.environ)
    return inherited(os.environ)


def find_server(given: Given, terminal: Terminal) -> Server:
    """Find out what the target is."""
    target = given.target
    if isinstance(target, list):
        return Server(command=target)
    target = target.strip()
    file = given.options.get("--config")
    if file is None and "://" in target:
        return Server(url=target)

    # A file that lies here under the name of a configured server is not run instead.
    is_file = file is None and os.path.isfile(target)
    is_name = not os.path.dirname(target) and not os.path.splitext(target)[1]
    if is_file and not is_name:
        return program(target)
    try:
        return configured(target, file, terminal, may_be_file=is_file)
    except UnknownName:
        return program(target)


def program(path: str) -> Server:
    """Return the server that is a file."""
    path = os.path.abspath(path)
    if path.endswith(".py"):
        return Server(file=path)
    if os.access(path, os.X_OK):
        return Server(command=[path])
    raise UsageError(f"{path} cannot be run: give a command after `--`")


def configured_names() -> list[str]:
    """Return the names that hosts have configured, those that are not disabled."""
    try:
        import host_files
    except ImportError:
        return []
    found: list[str] = []
    for place in host_files.places():
        with suppress(host_files.HostFileError):
            if place.path.is_file():
                entries = host_files.read(place.path, host=place.host)
                found += [entry.name for entry in entries if entry.enabled]
    return list(dict.fromkeys(found))


class UnknownName(Exception):
    """No host's configuration has the name."""


def server_of(entry: Any) -> Server:
    """Return the server that an entry of a host's configuration describes."""
    server = Server(url=entry.url, command=entry.command)
    server.timeout, server.startup = entry.timeout, entry.startup
    server.headers, server.env = dict(entry.headers), dict(entry.env)
    server.oauth = as_object(entry.raw.get("oauth"))
    server.cwd = entry.cwd
    server.sse = entry.kind == "sse"
    return server


def configured(
    name: str, file: str | None, terminal: Terminal, may_be_file: bool
) -> Server:
    """Return the server of this name in the configuration of a host. If there is none,
    UnknownName if it may be a file, else UsageError."""
    try:
        import host_files
    except ImportError:
        if may_be_file:
            raise UnknownName from None
        raise UsageError(
            f"{name!r} is not a URL or a file; to find it in the configuration of a "
            "host, host_files.py must be beside mcp_cli.py"
        ) from None

    problems: list[str] = []

    def note(problem: str) -> None:
        problems.append(problem)
        terminal.note(problem)

    try:
        place = host_files.Place("", "user", Path(file)) if file else None
        if place and not place.path.is_file():
            raise UsageError(f"{file}: there is no such file")
        entry = host_files.look_up(name, note, found_in=[place] if place else None)
        terminal.note(f"{name}: found in {entry.path}")
        if not entry.enabled:
            terminal.note(f"{name}: it is disabled there")
        entry = entry.expanded(ask=terminal.ask_input, problem=terminal.note)
    except KeyError as known:
        # A file that could not be read may have the name.
        if may_be_file and not problems:
            raise UnknownName from None
        where = file or "the configuration of a host"
        hint = suggestion(name, known.args)
        if file and not known.args:
            hint = f", which has no table of servers ({', '.join(host_files.TABLES)})"
        elif may_be_file:
            hint += f"; to run the file here: ./{name}"
        raise UsageError(
            f"{name!r} is not a URL or a file, and not in {where}{hint or meant(name)}"
        ) from None
    except host_files.HostFileError as problem:
        raise UsageError(str(problem)) from None

    return server_of(entry)


def meant(target: str) -> str:
    """Return what a target that is none may have meant, as the end of a sentence."""
    if " " in target.strip() or shutil.which(target):
        return f"; a command stands at the end: -- {target}"
    if target.startswith("~/"):
        return f"; did you mean {os.path.expanduser(target)}?"
    if re.match(r"[\w.-]+:\d+(/|$)", target):
        return f"; did you mean http://{target}?"
    return ""


class ServerProcess(StdioTransport):
    """A server that we run; a signal waits until there is a process to stop()."""

    def start(self) -> None:
        with signals_wait():
            try:
                super().start()
            except Disconnected as problem:
                # Arguments may be secret.
                reason = problem.__context__
                text = getattr(reason, "strerror", None) or type(reason).__name__
                raise Disconnected(
                    f"cannot start {self.command[0]!r}: {text}"
                ) from None


@contextmanager
def signals_wait() -> Iterator[None]:
    """Have the signals that end us wait."""
    came: list[int] = []
    ours: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler: Any = signal.getsignal(number)
            if handler in (signal.default_int_handler, end):
                signal.signal(number, lambda number, _: came.append(number))
                ours[number] = handler
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if came:
            ours[came[0]](came[0], None)


def start_server(command: list[str], settings: Message, stack: ExitStack) -> Client:
    """Run a server and connect to it. A signal may come at any moment, also before our
    caller has the client: the stack can end the process as soon as there is one."""
    transport = ServerProcess(command, settings["env"], settings["cwd"])
    stack.callback(transport.stop)
    return started(transport, settings)


def open_file(file: str, settings: Message, stack: ExitStack) -> Client:
    """Run a Python file as a server; if it ends without serving, serve its
    functions."""
    try:
        return start_server([sys.executable, file], settings, stack)
    except Disconnected as problem:
        if problem.exit_status != 0:
            raise

    # This file may be inside a zip archive, from which -m runs it, too.
    more = settings["env"].get("PYTHONPATH", "")
    folders = [str(Path(__file__).resolve().parent), more]
    settings["env"]["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    words = [sys.executable, "-m", "mcp_cli", "serve", file]
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


def wants_login(given: Given) -> bool:
    """Tell whether the command line says something about logging in."""
    options = given.options
    said = "--login" in options or "--no-browser" in options or options["--oauth"]
    return bool(said) or given.verb == "login"


def login_hook(given: Given, server: Server, terminal: Terminal) -> Any:
    """Return what logs in: oauth.py, with its file of tokens."""
    oauth = import_oauth()
    browser = oauth.Browser(
        show=lambda url: terminal.note(f"Open this page to log in: {url}"),
        say=terminal.note,
        opens="--no-browser" not in given.options,
    )
    try:
        settings = {
            **oauth.settings_in(server.oauth),
            **oauth.settings_from(os.environ),
            **given.pairs("--oauth", "="),
        }
        return oauth.hook_for(settings, browser=browser, asked=given.verb == "login")
    except ValueError as problem:
        raise UsageError(f"--oauth: {problem}") from None


def import_oauth() -> Any:
    sys.path.append(str(Path(__file__).resolve().parent / "extensions"))
    try:
        import oauth
    except ImportError:
        raise UsageError("a login needs oauth.py beside mcp_cli.py") from None
    return oauth


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
# ... of an `enum` that does not say its type
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
# In which order the types of a union are tried; text is always possible.
TRIED = ("boolean", "integer", "number", "array", "object")
# what people type for a boolean
WORDS = {
    **dict.fromkeys(("true", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "no", "n", "0"), False),
}
# Of one schema, this much is shown: a server may send one that refers to itself.
MOST_PARTS = 500
DEEPEST = 4


def as_object(value: Any) -> Message:
    """Return an object as it is, and anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return value if isinstance(value, list) else []


def names_in(value: Any, member: str) -> set[str]:
    """Return the texts in a member that is a list."""
    return {one for one in as_list(as_object(value).get(member)) if type(one) is str}


class Parameters:
    """The arguments that a tool or prompt takes: JSON Schemas by name.

    A server may send anything as a schema; a member of the wrong type counts as
    missing."""

    def __init__(self, owner: str, schema: Any) -> None:
        self.owner = owner
        self.root = as_object(schema)
        self.schemas: Message = {}
        self.required: set[str] = set()
        is_open = False
        for part in self.parts(self.root):
            for name, member in as_object(part.get("properties")).items():
                self.schemas.setdefault(name, member)
            is_open = is_open or "patternProperties" in part
        for part in self.parts(self.root, ("allOf",)):
            self.required |= names_in(part, "required")
        # Names that the schema does not have are allowed if it says so itself.
        self.others = self.root.get("additionalProperties")
        self.is_open = is_open or self.others not in (None, False)
        self.left = MOST_PARTS  # parts of schemas that may still be shown

    def resolved(self, schema: Any) -> Message:
        """Follow references inside the schema."""
        for _ in range(10):
            target = as_object(schema).get("$ref")
            if not isinstance(target, str) or not target.startswith("#/"):
                return as_object(schema)
            schema = self.root
            for part in target[2:].split("/", 20):
                name = part.replace("~1", "/").replace("~0", "~")
                schema = as_object(schema).get(name, {})
        return {}

    def parts(
        self, schema: Any, words: tuple[str, ...] = ("allOf", "oneOf", "anyOf")
    ) -> list[Message]:
        """Return a schema and those that it combines, at any depth; each once."""
        found: dict[int, Message] = {}
        waiting = [self.resolved(schema)]
        while waiting and len(found) < MOST_PARTS:
            part = waiting.pop()
            if id(part) not in found:
                found[id(part)] = part
                for word in words:
                    more = as_list(part.get(word))[:MOST_PARTS]
                    waiting += map(self.resolved, reversed(more))
        return list(found.values())

    def types(self, schema: Any) -> list[str]:
        """Return the types that a schema allows; [] if it does not say."""
        names: list[str] = []
        for part in self.parts(schema):
            said = part.get("type")
            named = [one for one in [said, *as_list(said)] if isinstance(one, str)]
            values = [*as_list(part.get("enum")), part.get("const")]
            found = [JSON_TYPES[type(one)] for one in values if type(one) in JSON_TYPES]
            names += named or found
        return list(dict.fromkeys(names))

    def spelled(self, schema: Any, depth: int = DEEPEST) -> str:
        """Return a schema as a type hint; "..." for what is too large."""
        self.left -= 1
        if depth < 0 or self.left < 0:
            return "..."
        schema = self.resolved(schema)
        values = as_list(schema.get("enum"))
        if "const" in schema:
            values = [schema["const"]]
        if values:
            self.left -= len(values)
            return " | ".join(map(value_text, values))
        for word in ("anyOf", "oneOf"):
            some = as_list(schema.get(word))[:MOST_PARTS]
            if some:
                texts = [self.spelled(part, depth - 1) for part in some]
                return " | ".join(dict.fromkeys(texts))

        names = self.types(schema)
        if names == ["array"] and as_object(schema.get("items")):
            return f"list[{self.spelled(schema['items'], depth - 1)}]"
        return " | ".join(TYPES.get(name, name) for name in names) or "any"

    def signature(self) -> str:
        """Return the arguments as in a Python function; `name?` may be left out."""
        parts = []
        self.left = MOST_PARTS
        for name, schema in self.schemas.items():
            part = self.resolved(schema)
            mark = "" if name in self.required or "default" in part else "?"
            kind = "" if self.root.get("untyped") else f": {self.spelled(part)}"
            default = f" = {value_text(part['default'])}" if "default" in part else ""
            parts.append(name + mark + kind + default)
        return one_line(f"{self.owner}({', '.join(parts)})")

    def help(self) -> Iterator[str]:
        """Yield a line for each argument, its description, and what it has inside."""
        self.left = MOST_PARTS
        for name, schema in self.schemas.items():
            yield from self.explained(f"  --{name} ", schema, name in self.required)

    def explained(self, head: str, schema: Any, is_required: bool) -> Iterator[str]:
        """Yield a line for a value, its description, and lines for its members."""
        part = self.resolved(schema)
        note = "  (required)" if is_required else ""
        if "default" in part:
            note = f"  (default: {value_text(part['default'])})"
        indent = " " * (len(head) - len(head.lstrip()) + 4)
        yield one_line(head + self.spelled(part)) + one_line(note)
        yield from wrapped(
            str(part.get("description") or part.get("title", "")), indent
        )

        if len(indent) > 4 * DEEPEST or self.left < 0:
            return
        for inner in self.parts(part):
            items = self.resolved(inner.get("items"))
            mark = "[]." if as_object(items.get("properties")) else "."
            owner = items if mark == "[]." else inner
            needed = names_in(owner, "required")
            for name, member in as_object(owner.get("properties")).items():
                head = f"{indent}{mark}{name}: "
                yield from self.explained(head, member, name in needed)

    def read(self, words: list[str], read_input: Callable[[], str]) -> Message:
        """Return the arguments that the words of the command line give."""
        found: dict[str, list[str]] = {}
        values: Message = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word.startswith("{") or word == "-":
                if values:
                    raise UsageError(f"{self.owner}: expected one JSON object")
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
                has_value = rest and rest[0].lower() in WORDS
                if kinds == ["boolean"] and not has_value:
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
        if not hint and self.schemas:
            hint = f"; it has {', '.join(list(self.schemas)[:20])}"
        if f"--{name}" in OPTIONS:
            hint = f"; the option --{name} stands before {self.owner}"
        raise UsageError(f"{self.owner} has no argument {name!r}{hint}")

    def _value(self, name: str, texts: list[str]) -> Any:
        """Convert an argument; one that was given several times is a list."""
        schema = self.resolved(self.schemas.get(name, self.others))
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
        for part in self.parts(schema):
            if "items" in part:
                return part["items"]
        return {}

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
        # where nothing else is meant: 1 may be a number, and no a text
        if set(kinds) <= {"boolean", "null"} and text.lower() in WORDS:
            return WORDS[text.lower()]
        for kind in TRIED:
            if kind in kinds:
                with suppress(ValueError):
                    return converted(kind, text)
        if "string" in kinds:
            return text
        self.left = MOST_PARTS
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


# ==== 4. Lists ================================================
# Each list stands for itself, and so does each entry: what came is shown, and what did
# not costs a line.

# method, member of its result, the texts that an entry must have
LISTS = {
    "tools/list": ("tools", ("name",)),
    "prompts/list": ("prompts", ("name",)),
    "resources/list": ("resources", ("name", "uri")),
    "resources/templates/list": ("resourceTemplates", ("name", "uriTemplate")),
}


class ListingClient(Client):
    """A client whose lists leave out what is wrong with them, and say so."""

    def __init__(self, target: Any, **settings: Any) -> None:
        self.say = settings["stderr"]
        # of the list that is being fetched
        self.began, self.pages, self.size = 0.0, 0, 0
        super().__init__(target, **settings)

    def request(
        self, method: str, params: Message | None = None, **options: Any
    ) -> Any:
        """Send a request; sift the page if it is one of a list."""
        if method not in LISTS:
            return super().request(method, params, **options)
        member, needed = LISTS[method]
        if "cursor" not in (params or {}):
            self.began, self.pages = time.monotonic(), 0
            self.size = mcp_client.size_of({member: []})  # the page of cut_off()
            page = super().request(method, params, **options)
        elif time.monotonic() > self.began + self.timeout:
            return self.cut_off(method, f"it goes on for {self.timeout:g} s")
        else:
            try:
                page = super().request(method, params, **options)
            except Exception as problem:  # what came before it is shown all the same
                return self.cut_off(method, error_text(problem))

        self.pages += 1
        self.size += mcp_client.size_of(page)
        if self.size > mcp_client.MAX_LIST_BYTES:
            return self.cut_off(method, "it is too large")
        if self.pages == mcp_client.MAX_PAGES and "nextCursor" in page:
            self.cut_off(method, f"it has more than {self.pages} pages")
            page = {name: one for name, one in page.items() if name != "nextCursor"}
        return {**page, member: self.sifted(method, page.get(member), needed)}

    def cut_off(self, method: str, reason: str) -> Message:
        """Say why the rest of a list is missing; return a last page without entries."""
        self.say(f"{method}: {reason}; the rest is missing")
        return {LISTS[method][0]: []}

    def sifted(self, method: str, items: Any, needed: tuple[str, ...]) -> Any:
        """Return the entries that can be used; what is not a list as it is."""
        if not isinstance(items, list):
            return items
        found: list[Message] = []
        bad: list[Any] = []
        for item in items:
            if needed[-1] != "name" and as_object(item).get("name") is None:
                item = {**item, "name": ""} if isinstance(item, dict) else item
            texts = [as_object(item).get(name) for name in needed]
            (found if all(isinstance(one, str) for one in texts) else bad).append(item)
        for item in bad[:3]:
            names = " and ".join(needed)
            text = one_line(value_text(item))[:100]
            self.say(f"{method}: left out an entry without a valid {names}: {text}")
        if len(bad) > 3:
            self.say(f"{method}: left out {len(bad) - 3} more")
        return found


connect = ListingClient


def list_all(client: Client) -> tuple[dict[str, list[Message]], Message]:
    """Return what a server offers, by the member's name, and why a list is missing."""
    fetch = {
        "tools": client.list_tools,
        "prompts": client.list_prompts,
        "resources": client.list_resources,
        "resourceTemplates": client.list_resource_templates,
    }
    found: dict[str, list[Message]] = {}
    problems: Message = {}
    for member, function in fetch.items():
        try:
            found[member] = function()
        except Exception as problem:  # any error, silence, an answer of another shape
            problems[member] = problem
    return found, problems


def offered(client: Client, kind: str, terminal: Terminal) -> list[Message] | None:
    """Return the tools or prompts of a server; None if they cannot be listed.

    A server that does not declare them may have some all the same."""
    try:
        if kind in client.capabilities:
            return client.list_tools() if kind == "tools" else client.list_prompts()
        found = client.request(f"{kind}/list")[kind]
        return found if isinstance(found, list) else None
    except (RpcError, Malformed, HttpError, TimeoutError) as problem:
        terminal.note(f"{kind}: {error_text(problem)}")
        terminal.note(f"{kind} cannot be listed, so arguments are sent as they are")
        return None


# ==== 5. The verbs ============================================
# Each returns the value that --json prints, and the lines that are printed without.


def run_list(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    found, problems = list_all(client)
    value: Message = dict(found)
    if problems:
        value["errors"] = {
            member: error_json(problem)["error"] for member, problem in problems.items()
        }
    for member, problem in problems.items():
        terminal.note(f"{words_of(member)}: {error_text(problem)}")
    if problems and not any(found.values()):
        terminal.failure = next(iter(problems.values()))
        return {**error_json(terminal.failure), **value}, []
    return value, listed(found, terminal, time.monotonic() + given.timeout())


def run_call(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    name, *words = given.words
    parameters = Parameters(name, {"additionalProperties": True})
    if len(words) != 1 or not (words[0] == "-" or words[0].startswith("{")):
        tools = offered(client, "tools", terminal)
        if tools is None:
            client.tools[name] = {}  # or the client lists them for its headers
        else:
            tool = find(name, tools, "tool")
            parameters = Parameters(name, tool.get("inputSchema"))
            if words == ["--help"] and "help" not in parameters.schemas:
                return tool, tool_help(tool, parameters)

    params = {"name": name, "arguments": parameters.read(words, terminal.read_input)}
    result = client.request(
        "tools/call", params, on_progress=terminal.progress, started=terminal.started
    )
    blocks = parts_of(result, "content", terminal)
    return result, chain(all_shown(blocks, terminal), structured_lines(result, blocks))


def parts_of(result: Message, member: str, terminal: Terminal) -> list[Any]:
    """Return the list in a result. If it is not there, show what is, and say so."""
    found = result.get(member)
    if isinstance(found, list):
        return found
    terminal.note(f"The server sent no valid {member}, which a result must have.")
    if found is not None:
        return [found]
    # what is the protocol's own, or shown anyway
    own = ("structuredContent", "isError", "resultType", "_meta", "ttlMs", "cacheScope")
    rest = {name: value for name, value in result.items() if name not in own}
    return [rest] if rest else []


def structured_lines(result: Message, blocks: list[Any]) -> Iterator[str]:
    """Yield the structured content, unless the text says the same."""
    if "structuredContent" in result:
        value = result["structuredContent"]
        if not says_all(value, blocks):
            yield json_text(value, indent=2)


def says_all(value: Any, blocks: list[Any]) -> bool:
    """Tell whether blocks of text are a value, as servers write it: as JSON, a text as
    it is, or a list in a block for each item. SDKs wrap what is not an object."""
    texts = [one.get("text") for one in blocks if isinstance(one, dict)]
    candidates = [value]
    if isinstance(value, dict) and list(value) == ["result"]:
        candidates.append(value["result"])
    for one in candidates:
        if any(says(text, one) for text in texts):
            return True
        if (
            isinstance(one, list)
            and len(one) == len(texts)
            and all(map(says, texts, one))
        ):
            return True
    return False


def says(text: Any, value: Any) -> bool:
    """Tell whether a text is a value, or its JSON."""
    if not isinstance(text, str):
        return False
    if text == value:
        return True
    with suppress(ValueError, RpcError):
        return bool(mcp_ref.decode(text.encode()) == value)
    return False


def run_prompt(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    name, *words = given.words
    parameters = Parameters(name, {"additionalProperties": {"type": "string"}})
    prompts = offered(client, "prompts", terminal)
    if prompts is not None:
        prompt = find(name, prompts, "prompt")
        parameters = prompt_parameters(prompt)
        if words == ["--help"] and "help" not in parameters.schemas:
            return prompt, tool_help(prompt, parameters)

    arguments = parameters.read(words, terminal.read_input)
    params = {"name": name, "arguments": arguments}
    result = client.request("prompts/get", params, started=terminal.started)
    messages = parts_of(result, "messages", terminal)
    return result, (
        f"{as_object(one).get('role')}: "
        f"{shown(as_object(one).get('content', one), terminal)}"
        for one in messages
    )


def run_read(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    params = {"uri": given.words[0]}
    result = client.request("resources/read", params, started=terminal.started)
    contents = parts_of(result, "contents", terminal)
    return result, all_shown(contents, terminal)


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


def listen(
    client: Client, given: Given, terminal: Terminal, callback: Any
) -> Subscription:
    """Subscribe; say what the server agreed to, and what not."""
    wanted = given.words or ["tools", "prompts", "resources"]
    subscription = client.listen(wanted, callback)
    terminal.note(f"listening to {', '.join(subscription.granted)}")
    refused = [one for one in given.words if one not in subscription.granted]
    if refused:
        terminal.note(f"the server does not announce changes of {', '.join(refused)}")
    return subscription


def run_listen(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    subscription = listen(client, given, terminal, None)
    terminal.note("Ctrl-C ends it")

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
    return result, [json_text(result, indent=2)]


def run_login(client: Client, given: Given, terminal: Terminal) -> tuple[Any, Any]:
    client.ping()
    outcome = terminal.login.outcome or "none"
    said = LOGINS.get(outcome, "logged in already at")
    return {"url": terminal.url, "login": outcome}, [
        f"{said} {short_url(terminal.url)}"
    ]


LOGINS = {"none": "no login was needed at", "new": "logged in at"}


def short_url(url: str) -> str:
    """Return a URL without what may be secret."""
    return re.split("[?#]", re.sub("//[^/]*@", "//", url))[0]


def log_out(given: Given, terminal: Terminal) -> int:
    """Remove what is kept of logins to a server; it is not connected to."""
    server = find_server(given, terminal)
    if not server.url:
        raise UsageError("logout: expected a URL; a server that we start has no login")
    network(given.options)
    done = import_oauth().logout(server.url)
    if "--json" in given.options:
        print_json({"url": server.url, "done": done})
    else:
        print_lines(done or [f"nothing is kept for {short_url(server.url)}"])
    return 0


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
    offered = [one for one in as_list(prompt.get("arguments")) if isinstance(one, dict)]
    schema = {
        "untyped": True,
        "properties": {
            str(one.get("name")): {
                "type": "string",
                "description": one.get("description"),
            }
            for one in offered
        },
        "required": [str(one.get("name")) for one in offered if one.get("required")],
    }
    return Parameters(prompt["name"], schema)


# ==== 6. What is printed ======================================

MOST_TEXT = 10_000  # characters of a description

# Kept in texts: line ends, tabs, and the spaces and joiners of various scripts.
KEPT = "\n\t\xa0\u202f\u3000\u200c\u200d"
# Invisible, although Python calls them printable: fillers, and what selects a variant
# of a character, except U+FE0F in an emoji.
FILLERS = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0]"
SELECTORS = "[\ufe00-\ufe0e\U000e0100-\U000e01ef]"
BARE = "(?<![\xa9\xae\u2000-\u3299\U0001f000-\U0001faff])\ufe0f(?!\u20e3)"
INVISIBLE = re.compile(f"{FILLERS}|{SELECTORS}|{BARE}")


def clean(text: str) -> str:
    """Replace control characters and those that are invisible, or reverse the direction
    of text, by what Python calls them, such as \\x1b."""
    lines = text.split("\r\n")
    shown = "\r\n".join(mcp_ref.printable(line, KEPT) for line in lines)
    return INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], shown)


def one_line(text: str) -> str:
    """Replace what begins a line: a name cannot look like a heading."""
    return re.sub(r"[\t\n\r]", lambda found: ascii(found[0])[1:-1], text)


def wrapped(text: str, indent: str) -> list[str]:
    """Return text in lines of at most 88 columns; the end of a very long one is left
    out."""
    import textwrap

    if len(text) > MOST_TEXT:
        left = len(text) - MOST_TEXT
        text = f"{text[:MOST_TEXT]}\n({left} more characters: --json shows them)"
    lines: list[str] = []
    for line in text.strip().splitlines():
        more = textwrap.wrap(line, 88, initial_indent=indent, subsequent_indent=indent)
        lines += more or [""]
    return lines


def entry_lines(head: str, description: Any) -> list[str]:
    """Return a list entry: on one line, if its description is short."""
    text = str(description or "").strip()
    line = f"  {one_line(head)}  {text}".rstrip()
    if len(line) <= 88 and len(text.splitlines()) <= 1:
        return [line]
    return [f"  {one_line(head)}", *wrapped(text, "      ")]


def words_of(member: str) -> str:
    """Return the words in the name of a member."""
    return re.sub("([A-Z])", r" \1", member).lower()


def listed(
    found: dict[str, list[Message]], terminal: Terminal, end: float
) -> Iterator[str]:
    """Yield the lines of `list`, under headings; after `end` only names, since schemas
    can be made to take long."""
    for member, items in found.items():
        if items:
            yield words_of(member).capitalize() + ":"
        for item in items:
            if time.monotonic() > end:
                yield f"  {one_line(item['name'])}"
                continue
            try:
                lines = entry_lines(heading(member, item), item.get("description"))
            except Exception as problem:  # whatever a server thinks of
                name = f"{item['name']!r:.200}"
                terminal.note(f"{words_of(member)}: {name}: {problem!r:.200}")
                lines = [f"  {one_line(item['name'])}"]
            yield from lines
    if not any(found.values()):
        yield "The server offers nothing."


def heading(member: str, item: Message) -> str:
    """Return what stands for one tool, prompt, resource or template."""
    if member == "tools":
        return tool_signature(item)
    if member == "prompts":
        return prompt_parameters(item).signature()
    uri = item.get("uri") or item.get("uriTemplate")
    return f"{uri}  {item['name']}".rstrip()


def tool_signature(tool: Message) -> str:
    """Return a tool as a Python function, and what to know before calling it."""
    line = Parameters(tool["name"], tool.get("inputSchema")).signature()
    output = tool.get("outputSchema")
    if isinstance(output, dict):
        returned = Parameters("", output)
        only = list(returned.schemas) == ["result"]  # SDKs wrap what is not an object
        schema = returned.schemas["result"] if only else output
        line += f" -> {one_line(returned.spelled(schema))}"
    warnings = hints(tool)
    return line + (f"  [{', '.join(warnings)}]" if warnings else "")


def hints(tool: Message) -> list[str]:
    """Return what its annotations say that a person should know before a call. What
    they do not say is left open, although it counts as destructive in an open world."""
    said = as_object(tool.get("annotations"))
    found = []
    if said.get("destructiveHint") is True and said.get("readOnlyHint") is not True:
        found.append("destructive")
    if said.get("openWorldHint") is True:
        found.append("open world")
    return found


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

    data = inner.get("blob") or inner.get("data")
    if isinstance(data, str) and inner.get("type") in (
        "image",
        "audio",
        None,
        "resource",
    ):
        return terminal.save(data, str(inner.get("mimeType", "data")))
    return value_text(block)


def finite(value: Any) -> Any:
    """Return a value from JSON without infinities, which Python makes of 1e999."""
    largest = sys.float_info.max
    return json.loads(
        json.dumps(value),
        parse_constant=lambda name: -largest if name[0] == "-" else largest,
    )


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), indent=indent)


def print_json(value: Any) -> None:
    """Print one JSON value; one that comes in pieces as a list, piece by piece."""
    if not isinstance(value, Iterator):
        print(json_text(value, indent=2), flush=True)
        return
    print("[", end="", flush=True)
    separator = "\n"
    try:
        for one in value:
            print(separator + json_text(one), end="", flush=True)
            separator = ",\n"
    finally:
        print("\n]", flush=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; a text may end with a newline of its own."""
    for line in lines:
        text = clean(line)
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()


# ==== 7. The user =============================================


MOST_FILES = 100  # that one answer may write


def new_file(path: Path, number: int) -> BinaryIO:
    """Open a file that was not there: the second one of pic.png is called pic-2.png,
    and so on, also if pic.png is there already. A device is written to."""
    if path.exists() and not path.is_file():
        return open(path, "wb")
    for more in range(number, number + 10_000):
        name = f"{path.stem}-{more}{path.suffix}" if more > 1 else path.name
        with suppress(FileExistsError):
            return open(path.with_name(name), "xb")
    raise FileExistsError(f"{path} and 10000 numbered names exist")


def from_base64(text: str) -> bytes:
    """Decode base64; also with line ends, without padding, with the letters of URLs, or
    as a `data:` URI. ValueError if it is something else."""
    import base64

    text = "".join(re.sub(r"^data:[^,]*,", "", text).split()).rstrip("=")
    text = text.replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


class Terminal:
    """The user at the terminal, if there is one: sees notes on stderr, answers
    questions on standard input."""

    def __init__(self, options: Message) -> None:
        self.options = options
        self.url = ""
        self.login: Any = None  # what has logged in
        # Those of --answer that no question has used yet.
        self.answers: dict[str, list[str]] = {}
        self.request: Any = None  # the one that waits for an answer
        self.moving = False  # a line of progress is on the screen
        self.saved = 0  # files for this answer
        self.failure: Exception | None = None  # of a part; the rest is shown
        self.one_question = threading.Lock()  # so that no answer gets to another one
        # `turn` guards these: questions that wait for the user, or are asked; whether
        # the shell waits for a line, which no question must get
        self.turn = threading.Condition()
        self.pending, self.at_prompt = 0, False

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
        try:
            return sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as problem:
            raise UsageError(f"standard input: {problem}") from None

    def fail(self, problem: Exception) -> None:
        """Say what went wrong with a part of an answer; the first one is the status."""
        self.failure = self.failure or problem
        self.note(error_text(problem))

    def save(self, data: str, kind: str) -> str:
        """Write content that is not text to --output; return what to print."""
        try:
            content = from_base64(data)
        except ValueError:
            self.fail(Malformed(f"{kind}: the server sent invalid base64"))
            return ""
        place = self.options.get("--output")
        if not place:
            return f"[{kind}, {len(content)} bytes: save it with --output FILE]"
        if place == "-":
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            return ""
        if self.saved == MOST_FILES:
            return (
                f"[{kind}, {len(content)} bytes: not saved, after {MOST_FILES} files]"
            )

        self.saved += 1
        try:
            with new_file(Path(place), self.saved) as file:
                file.write(content)
        except OSError as problem:
            self.fail(problem)
        else:
            self.note(f"{kind}, {len(content)} bytes: written to {file.name}")
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
        with self.waiting(), self.one_question:
            if request:
                request.deadline = float("inf")
            try:
                yield
            finally:
                if request:
                    request.deadline = time.monotonic() + request.timeout

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait until the shell does not wait for a line."""
        with self.turn:
            self.pending += 1
            if self.at_prompt:
                self.note("The server has a question: press Enter to see it.")
            self.turn.wait_for(lambda: not self.at_prompt)
        try:
            yield
        finally:
            with self.turn:
                self.pending -= 1
                self.turn.notify_all()

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Have questions wait while the shell waits for a line."""
        with self.turn:
            self.turn.wait_for(lambda: not self.pending)
            self.at_prompt = True
        try:
            yield
        finally:
            with self.turn:
                self.at_prompt = False
                self.turn.notify_all()

    def ask(self, text: str) -> str | None:
        """Ask for a line; None at the end of input."""
        self.end_progress()
        print(clean(text), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return None
        return line.rstrip("\n")

    def ask_input(self, definition: Message) -> str | None:
        """Ask for an ${input:...} of a host's file; None if nobody is there."""
        if not sys.stdin.isatty():
            return None
        options = as_list(definition.get("options"))
        text = str(definition.get("description") or definition["id"])
        if options:
            text += f" ({', '.join(map(str, options))})"
        default = definition.get("default")
        if default is not None:
            text += f" [{default}]"
        if definition.get("password") is True:
            import getpass

            answer: str | None = getpass.getpass(clean(text) + ": ")
        else:
            answer = self.ask(text + ": ")
        return str(default) if answer == "" and default is not None else answer

    def agrees(self, question: str) -> bool:
        """Ask a question whose answer is no unless the user says yes."""
        said = self.ask(question + " [y/N] ")
        return WORDS.get((said or "").strip().lower()) is True

    def elicit(self, params: Message) -> Any:
        """Fill in a form."""
        with self.asking():
            return self.fill_in(params)

    def take_answer(self, form: Parameters, name: str) -> list[str]:
        """Take what --answer gives for a field: a list gets all of it, other fields one
        each, in the order of the questions."""
        texts = self.answers.get(name, [])
        is_list = "array" in form.types(form.schemas.get(name, {}))
        taken = texts[: len(texts) if is_list else 1]
        del texts[: len(taken)]
        return taken

    def say_unused(self) -> None:
        """Say which answers no question has used."""
        for name, texts in self.answers.items():
            for text in texts:
                self.note(f"The server did not ask for {name!r}: {text:.80}")

    def fill_in(self, params: Message) -> Any:
        """Fill in a form, field by field."""
        schema = params.get("requestedSchema")
        form = Parameters("the form", schema)
        self.note(f"The server asks: {params.get('message')}")
        if not sys.stdin.isatty():
            return self.prepared(form)

        self.note("(Ctrl-D declines.)")
        if not form.schemas:
            return {} if self.agrees("Agree?") else "decline"
        while True:
            typed = [name for name in form.schemas if not self.answers.get(name)]
            answer: Message = {}
            for name, part in form.schemas.items():
                given = self.take_answer(form, name)
                try:
                    value = self.field(form, name, form.resolved(part), given)
                except EOFError:
                    return "decline"
                if value is not None:
                    answer[name] = value

            # client/elicitation: the user can change what an earlier field has
            said: str | None = ""
            if len(typed) > 1:
                said = self.ask(f"Send {value_text(answer)}? [Y/n] ")
            if said is None:
                return "decline"
            if WORDS.get(said.strip().lower()) is not False:
                return answer

    def prepared(self, form: Parameters) -> Any:
        """Answer a form with --answer only; decline if that does not suffice."""
        if not form.schemas and self.take_answer(form, "action") == ["accept"]:
            return {}
        names = [name for name in form.schemas if self.answers.get(name)]
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
            wanted = wanted or "--answer action=accept"
            self.note(f"There is no terminal to answer at, so it is declined: {wanted}")
            return "decline"
        return {name: form._value(name, self.take_answer(form, name)) for name in names}

    def field(
        self, form: Parameters, name: str, part: Message, given: list[str]
    ) -> Any:
        """Ask for a field until the answer is valid; None if it is left out. `given`:
        what --answer says."""
        title, kind = part.get("title", name), form.spelled(part)
        if part.get("description"):
            self.note(f"  {part['description']}")
        hint = f" [{value_text(part['default'])}]" if "default" in part else ""
        while True:
            if given:
                texts = given
                given = []
            else:
                text = self.ask(f"  {title} ({kind}){hint}: ")
                if text is None:
                    raise EOFError
                texts = [text]
                if "array" in form.types(part) and not text.startswith("["):
                    texts = [one.strip() for one in text.split(",")]
            if texts == [""] and (name not in form.required or "default" in part):
                return part.get("default")
            try:
                return form._value(name, texts)
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
        if not self.agrees("Open it?"):
            return False

        import webbrowser

        webbrowser.open(url)
        return True


# ==== 8. The shell ============================================

SHELL_HELP = """Each line is a command without its TARGET, such as:
  list
  call TOOL [ARGUMENTS]      call TOOL --help explains it
  listen [WHAT ...]          print changes as they come, until you leave
  help, quit
Ctrl-C ends a call, Ctrl-D leaves. The tabulator completes names. Nothing that you type
is kept.
"""
# the options that a line may have
OF_A_LINE = {"--json", "--output", "--answer", "--timeout"}
NOT_IN_SHELL = {"login", "logout", "shell"}


class Shell:
    """Many commands on one connection, so that state, subscriptions and questions can
    be tried."""

    def __init__(self, client: Client, given: Given, terminal: Terminal) -> None:
        self.client, self.given, self.terminal = client, given, terminal
        self.is_person = sys.stdin.isatty() and sys.stdout.isatty()
        self.names: dict[str, list[str]] = {}  # what the tabulator completes, by verb
        self.completions: list[str] = []  # of the line, when Tab was pressed
        self.status = 0  # of the first line that failed

    def run(self) -> int:
        """Run lines until the end of input; return the exit status."""
        if self.is_person:
            self.prepare_terminal()
            name = self.client.server_info.get("name")
            self.terminal.note(f"Connected to {name}. Type help, or Ctrl-D to leave.")
        while True:
            try:
                line = self.read_line()
                if line is None or line.split() in (["quit"], ["exit"]):
                    break
                self.run_line(line)
            except KeyboardInterrupt as signal_came:
                if not self.is_person or isinstance(signal_came, Ended):
                    raise
                self.terminal.note("")
        return 0 if self.is_person else self.status

    def read_line(self) -> str | None:
        """Return a line; None at the end of input."""
        with self.terminal.prompting():
            if not self.is_person:
                return sys.stdin.readline() or None
            try:
                return input("mcp> ")
            except EOFError:
                print()
                return None

    def run_line(self, line: str) -> None:
        """Run a line, and print what went wrong: the next one can be right."""
        import shlex

        as_json = "--json" in self.given.options
        try:
            words = shlex.split(line, comments=True)
            if not words:
                return
            if words == ["help"]:
                print(SHELL_HELP, end="", flush=True)
                return
            given = self.given_in(words)
            as_json = "--json" in given.options
            status = self.do(given)
        except Finished as end:
            print(end, flush=True)
            return
        except BrokenPipeError:
            raise
        except Exception as problem:
            if isinstance(problem, ValueError):  # of shlex
                problem = UsageError(str(problem))
            status = status_of(problem)
            report(problem, as_json)
        self.status = self.status or status

    def given_in(self, words: list[str]) -> Given:
        """Return what a line says; the options of the shell are its defaults."""
        if words[0] in NOT_IN_SHELL:
            raise UsageError(f"{words[0]}: not in the shell")
        given = Given(words, connected=True)
        wrong = [
            name for name, one in given.options.items() if one and name not in OF_A_LINE
        ]
        if wrong:
            raise UsageError(f"{wrong[0]} stands where the shell is started")
        check_output(given.options.get("--output"))
        own = {name: one for name, one in given.options.items() if one}
        given.options = {**self.given.options, **own}
        return given

    def do(self, given: Given) -> int:
        """Run a verb on our connection."""
        terminal, client = self.terminal, self.client
        terminal.options, terminal.answers = given.options, given.answers()
        if given.verb == "listen":
            # It goes on while other lines run.
            listen(
                client, given, terminal, lambda one: terminal.note(f"changed: {one}")
            )
            return 0
        if given.verb == "list":
            self.names.clear()
        before, client.timeout = client.timeout, given.timeout()
        try:
            return do(client, given, terminal)
        finally:
            client.timeout = before
            terminal.say_unused()

    # ---- the tabulator

    def prepare_terminal(self) -> None:
        """Have the tabulator complete names, where Python can."""
        with suppress(ImportError):
            import readline

            readline.set_completer(self.complete)
            readline.set_completer_delims(" \t")
            # the second is that of libedit, on macOS
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind("bind ^I rl_complete")

    def complete(self, start: str, number: int) -> str | None:
        """Return one of the words that begin so; readline asks for 0, 1, 2 ..."""
        import readline

        if number == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()].split()
            self.completions = [
                word if word.endswith("=") else word + " "
                for word in self.possible(before)
                if word.startswith(start)
            ]
        return self.completions[number] if number < len(self.completions) else None

    def possible(self, before: list[str]) -> list[str]:
        """Return the words that can follow these. Readline prints them as they are, so
        those that clean() would change, and those with spaces, are left out."""
        words = [word for word in before if not word.startswith("-")]
        if not words:
            verbs = [name for name in VERBS if name not in NOT_IN_SHELL]
            return [*verbs, "help", "quit"]
        key = " ".join(words[:2]) if len(words) > 1 else words[0]
        if key not in self.names:
            try:
                self.names[key] = [
                    name
                    for name in sorted(self.fetch(*words[:2]))
                    if name == clean(name) and re.fullmatch(r"\S+", name)
                ]
            except Exception:  # a line that follows will say it
                return []
        return self.names[key]

    def fetch(self, verb: str, name: str = "") -> list[str]:
        """Return the names that a verb takes, or the arguments of what it names."""
        client = self.client
        if verb == "call":
            tools = {one["name"]: one for one in client.list_tools()}
            schema = tools.get(name, {}).get("inputSchema")
            return (
                list(tools) if not name else [f"{one}=" for one in properties(schema)]
            )
        if verb in ("prompt", "complete"):
            prompts = {one["name"]: one for one in client.list_prompts()}
            if name in prompts:
                return [f"{one}=" for one in prompt_parameters(prompts[name]).schemas]
            if verb == "complete" and not name:
                templates = client.list_resource_templates()
                return [*prompts, *(one["uriTemplate"] for one in templates)]
            return [] if name else list(prompts)
        if verb in ("read", "listen") and not name:
            uris = [one["uri"] for one in client.list_resources()]
            return uris + (["tools", "prompts", "resources"] * (verb == "listen"))
        return []


def properties(schema: Any) -> list[str]:
    """Return the names of a schema's members."""
    return list(Parameters("", schema).schemas)


class Ended(KeyboardInterrupt):
    """A signal other than Ctrl-C, which ends the shell, too."""


def end(number: int, frame: Any) -> None:
    """Handle a signal that ends us."""
    raise Ended


# ==== 9. Serving a file's functions ===========================


class Serving:
    """A file that is imported, and then served.

        made      true once the file has made a server
        served    true once it has served a server, on stdio or over HTTP
        kept      the client's descriptors 0 and 1, until a server serves on stdio

    While `kept` holds them, the file prints to stderr, and reads the end of its input:
    the client's messages are for the server.
    """

    def __init__(self, on_stdio: bool) -> None:
        self.made = self.served = False
        self.kept: list[int] = []
        if on_stdio:
            null = 0
            while null < 3:  # a descriptor that was closed leads to the null device
                null = os.open(os.devnull, os.O_RDWR)
            self.kept = [os.dup(0), os.dup(1)]
            os.dup2(null, 0)
            os.dup2(2, 1)

    def give_back(self) -> None:
        """Give the client's descriptors to a server."""
        if self.kept:
            sys.stdout.flush()
        while self.kept:
            descriptor = self.kept.pop()
            os.dup2(descriptor, len(self.kept))
            os.close(descriptor)

    def watch(self) -> None:
        """Replace the names by which a file makes and serves a server."""
        noted = self
        serve_stdio = mcp_ref.serve_stdio

        class Server(mcp_ref.Server):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                noted.made = True
                super().__init__(*arguments, **options)

        class Endpoint(mcp_ref.Endpoint):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                noted.served = True
                super().__init__(*arguments, **options)

        def serve_here(server: mcp_ref.Server) -> None:
            noted.served = True
            noted.give_back()
            serve_stdio(server)

        vars(mcp_ref).update(Server=Server, Endpoint=Endpoint, serve_stdio=serve_here)


def import_file(path: str, name: str) -> dict[str, Any]:
    """Import a file under this name; return its names and their values."""
    import importlib.util

    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # never replace a library
    spec.loader.exec_module(module)
    return vars(module)


def serve(words: list[str]) -> int:
    """Import FILE and serve its public functions: those that the file defines itself,
    except `main` and names that begin with `_`.

    A file that makes a server of its own is a program. If it has served by the end of
    its import, there is nothing to do. Otherwise it is refused, because the options of
    its run(), such as `authorize`, are not known here.
    """
    import types

    if words[:1] in (["-h"], ["--help"]):
        raise Finished(full_help())
    if not words or words[0].startswith("-"):
        raise UsageError("serve: missing FILE.py")
    path, *rest = words
    name, suffix = os.path.splitext(os.path.basename(path))
    if suffix != ".py" or not os.path.isfile(path):
        raise UsageError(f"serve: {path} is not a Python file")

    serving = Serving(on_stdio="--http" not in " ".join(rest))
    serving.watch()
    sys.argv = words
    name = "main" if name == "__main__" else name
    found = import_file(path, name)
    if serving.served:
        return 0
    if serving.made:
        raise UsageError(f"{path} makes its own server: run it with `python3 {path}`")
    server = mcp_ref.Server(name)
    for key, value in found.items():
        is_function = isinstance(value, types.FunctionType)
        if is_function or hasattr(value, "__wrapped__"):
            if key != "main" and key[0] != "_" and value.__module__ == name:
                try:
                    server.tool(value)
                except (TypeError, ValueError) as problem:
                    mcp_ref.log(f"not a tool: {problem}")
    if not server.tools:
        raise UsageError(f"{path} has no function that can be a tool")
    server.run(rest)
    return 0


# ==== 10. The exit status =====================================


def status_of(problem: Exception) -> int:
    """Return the exit status for what went wrong."""
    if isinstance(problem, UsageError):
        return 2
    if isinstance(problem, (OSError, HttpError)):
        return 3
    return 4  # the server's error, or something invalid


def error_text(problem: Exception) -> str:
    """Return what went wrong, as a line or more."""
    if isinstance(problem, RpcError):
        data = "" if problem.data is None else f" ({value_text(problem.data):.2000})"
        return f"the server answered with error {problem.code}: {problem}{data}"
    if isinstance(problem, UsageError):
        return f"mcp_cli.py: {problem}"
    if isinstance(problem, Disconnected) and problem.exit_status is not None:
        # What it wrote to stderr is on the screen already.
        return f"Disconnected: {str(problem).splitlines()[0]}"
    if isinstance(problem, HttpError) and problem.status == 401:
        return f"{problem}\nThe server wants a login: try --login or --header, before the target."
    return f"{type(problem).__name__}: {problem}"


def error_json(problem: Exception) -> Message:
    """Return what went wrong, for --json."""
    found: Message = {"type": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, RpcError):
        found["code"] = problem.code
        if problem.data is not None:
            found["data"] = problem.data
    return {"error": found}


FEW_VARIABLES = (
    "(It got few of our variables: --env NAME passes one on, and --all-env all.)"
)


def run(arguments: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    given = Given(arguments)
    terminal = Terminal(given.options)
    terminal.answers = given.answers()
    check_output(given.options.get("--output"))
    if given.verb == "logout":
        return log_out(given, terminal)
    stack = ExitStack()
    try:
        with stack:
            client = stack.enter_context(open_client(given, terminal, stack))
            if given.verb == "shell":
                return Shell(client, given, terminal).run()
            status = do(client, given, terminal)
    except Disconnected as problem:
        if problem.exit_status and "--all-env" not in given.options:
            terminal.note(FEW_VARIABLES)
        raise
    finally:
        stack.close()  # what is left, if a signal came as it began to close
    terminal.say_unused()
    return status


def do(client: Client, given: Given, terminal: Terminal) -> int:
    """Run a verb, and print what it yields; return the exit status."""
    terminal.saved, terminal.failure = 0, None
    value, lines = RUN[given.verb](client, given, terminal)
    terminal.end_progress()
    if "--json" in given.options:
        print_json(value)
    else:
        print_lines(lines)
    if terminal.failure:
        return status_of(terminal.failure)
    return 1 if isinstance(value, dict) and value.get("isError") else 0


def check_output(place: str | None) -> None:
    """UsageError if nothing can be written there: better before a call than after."""
    if place == "-" and sys.stdout.isatty():
        raise UsageError("--output -: standard output is a terminal")
    if place and place != "-":
        path = Path(place)
        if path.is_dir() or not path.name:
            raise UsageError(f"--output: {place} is a folder; expected a file")
        if not path.parent.is_dir():
            raise UsageError(f"--output: there is no folder {str(path.parent)!r}")


def report(problem: Exception, as_json: bool) -> None:
    """Print what went wrong, without a traceback."""
    if as_json:
        print_json(error_json(problem))
    else:
        print(clean(error_text(problem)), file=sys.stderr)


def run_serve(words: list[str]) -> int:
    """Run `serve`. An exception of the file ends the program, with its traceback."""
    try:
        return serve(words)
    except Finished as end:
        print(end, flush=True)
        return 0
    except UsageError as problem:
        with suppress(OSError):
            report(problem, as_json=False)
        return 2


def main(arguments: list[str]) -> int:
    """Run the command line; print what went wrong; return the exit status."""
    # A stream is None if it was closed before we began.
    sys.stdin = sys.stdin or open(os.devnull)
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if arguments[:1] == ["serve"]:
        return run_serve(arguments[1:])
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
            status = status or status_of(problem)
            with suppress(OSError):
                report(problem, as_json=False)
        return status


def start() -> NoReturn:
    """Run as a program; zipapp calls it."""
    # As Ctrl-C does, these end the server that we have started; unless ignored. Where
    # we are the server, Server.run() sets handlers of its own.
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL and sys.argv[1:2] != ["serve"]:
            signal.signal(number, end)
    status = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # or the flush at exit would fail, and make the status 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


if __name__ == "__main__":
    start()
