# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the mcp_ref authors
"""Read the files in which hosts keep their MCP servers.

For mcp_cli.py and the gateway, so that an entry means to both what it means to its
host. It needs nothing but the standard library; copy it beside them.

    for entry in read(Path(".mcp.json"), print):
        entry = entry.expanded()
        print(entry.name, entry.command or entry.url)

Read are: Claude Code (~/.claude.json, also the entries of one folder, and .mcp.json),
Claude Desktop, Cursor, Windsurf, VS Code, Copilot CLI, Gemini CLI, Zed, opencode,
Crush, Amp, and the TOML of Codex, for which Python needs `tomllib` (3.11). JSON may
have comments, trailing commas and a byte order mark.

A file or an entry that cannot be read costs itself: `problem` is called with one line,
and the others are still found. No such line contains a value, because values are often
secret.

Known limits: the `headersHelper` of Claude Code is not run, nor are commands in values
(`$(...)` in Crush, except echo); servers that are a part of an extension, Codex's
profiles and the files of administrators are not read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

Message = dict[str, Any]
# called with a line for the user
Problem = Callable[[str], None]
# called with VS Code's definition of an input: id, description, password, default,
# options; returns what the user typed, or None
Ask = Optional[Callable[[Message], Optional[str]]]


class HostFileError(ValueError):
    """A file or an entry cannot be used; the message is one line without values."""


def ignore(problem: str) -> None:
    """Take no notice of a problem."""


# ==== 1. Where the files are ==================================


class Place(NamedTuple):
    """A file that a host writes. `scope`: "user", or "project" if it lies in a folder
    that may come from someone else."""

    host: str
    scope: str
    path: Path


# To add a host: its name, and its file below one of the folders that places() knows.
USER_FILES = """
claude          CLAUDE  .claude.json
claude-desktop  CONFIG  Claude/claude_desktop_config.json
cursor          HOME    .cursor/mcp.json
windsurf        HOME    .codeium/windsurf/mcp_config.json
vscode          CONFIG  Code/User/mcp.json
vscode          CONFIG  Code/User/settings.json
copilot         COPILOT mcp-config.json
gemini          HOME    .gemini/settings.json
codex           CODEX   config.toml
zed             ZED     zed/settings.json
opencode        XDG     opencode/opencode.json
opencode        XDG     opencode/opencode.jsonc
crush           CRUSH   crush/crush.json
amp             XDG     amp/settings.json
amp             XDG     amp/settings.jsonc
"""
PROJECT_FILES = """
claude  .mcp.json
cursor  .cursor/mcp.json
vscode  .vscode/mcp.json
vscode  .vscode/settings.json
gemini  .gemini/settings.json
codex   .codex/config.toml
zed     .zed/settings.json
opencode opencode.json
opencode opencode.jsonc
opencode .opencode/opencode.json
opencode .opencode/opencode.jsonc
crush   crush.json
crush   .crush.json
amp     .amp/settings.json
amp     .amp/settings.jsonc
"""


def places(
    folder: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> list[Place]:
    """Return where hosts keep their servers: the user's files first, then those of a
    folder (default: the current one). They need not exist."""
    home = Path(environ.get("HOME") or Path.home())
    if platform == "win32":
        home = Path(environ.get("USERPROFILE") or home)
    xdg = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    is_windows = platform == "win32"
    folders = {
        "HOME": home,
        "XDG": xdg,
        "ZED": config_folder(home, environ, platform) if is_windows else xdg,
        "CRUSH": home / "AppData" / "Local" if is_windows else xdg,
        "CONFIG": config_folder(home, environ, platform),
        "CLAUDE": Path(environ.get("CLAUDE_CONFIG_DIR") or home),
        "COPILOT": Path(environ.get("COPILOT_HOME") or home / ".copilot"),
        "CODEX": Path(environ.get("CODEX_HOME") or home / ".codex"),
    }
    found = []
    for line in USER_FILES.strip().splitlines():
        host, below, path = line.split()
        found.append(Place(host, "user", folders[below] / path))
    for line in PROJECT_FILES.strip().splitlines():
        host, path = line.split()
        below_folder = (folder or Path.cwd()) / path
        # In the home folder, they are the user's own.
        if all(below_folder != place.path for place in found):
            found.append(Place(host, "project", below_folder))
    return found


def config_folder(home: Path, environ: Mapping[str, str], platform: str) -> Path:
    """Return where desktop applications keep their configuration."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def host_of(path: Path) -> str:
    """Return which host writes a file of this name; "" if it could be any."""
    for line in PROJECT_FILES.splitlines() + USER_FILES.splitlines():
        host, *_, name = line.split() or ["", "/"]
        if path.absolute().as_posix().lower().endswith("/" + name.lower()):
            return host
    return "codex" if path.suffix == ".toml" else ""


# ==== 2. The text =============================================

# A string is matched first, so that no comment begins inside one.
_STRING = r'"(?:[^"\\]|\\.)*"?'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])", re.S)


def load(path: Path) -> Message:
    """Return the content of a file; HostFileError if it has none."""
    try:
        data = path.read_bytes()
        text = data.decode(json.detect_encoding(data))
        if path.suffix == ".toml":
            return _toml(text)
        found = json.loads(without_comments(text))
    except HostFileError as problem:
        raise HostFileError(f"{path}: {problem}") from None
    except OSError as problem:
        raise HostFileError(f"{path}: {problem.strerror or problem}") from None
    except (ValueError, RecursionError) as problem:
        raise HostFileError(f"{path}: {problem}") from None
    if not isinstance(found, dict):
        raise HostFileError(f"{path}: expected a JSON object")
    return found


def without_comments(text: str) -> str:
    """Turn JSON with comments and trailing commas into JSON; places stay the same."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found[0] == '"' else re.sub(r"\S", " ", found)

    return _COMMA.sub(blank, _COMMENT.sub(blank, text))


def _toml(text: str) -> Message:
    try:
        import tomllib
    except ImportError:
        raise HostFileError("TOML is read by Python 3.11 and later") from None
    found: Message = tomllib.loads(text)
    return found


# ==== 3. The entries ==========================================


class Entry(NamedTuple):
    """A server in a host's file: `command` (program and arguments) or `url`.

    Variables are not expanded yet: see expanded(). `kind` is "stdio", "http", "sse", or
    "" for a URL of which the file does not say more. `timeout` is for a call, and
    `startup` for the start, in seconds. `include`: the only tools to show (None: all);
    `exclude`: tools to hide. `raw` has all members, as in the file."""

    name: str
    host: str
    scope: str
    path: Path
    raw: Message
    command: list[str]
    url: str = ""
    kind: str = ""
    env: Mapping[str, str] = MappingProxyType({})
    cwd: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    timeout: float | None = None
    startup: float | None = None
    enabled: bool = True
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    inputs: Sequence[Any] = ()  # VS Code's definitions, for ${input:...}

    def expanded(
        self,
        environ: Mapping[str, str] = os.environ,
        ask: Ask = None,
        problem: Problem = ignore,
    ) -> Entry:
        """Return it with all variables expanded; HostFileError if one is not set."""
        return _expanded(self, environ, ask, problem)


def read(
    path: Path,
    problem: Problem = ignore,
    host: str = "",
    scope: str = "user",
    folder: Path | None = None,
) -> list[Entry]:
    """Return the entries of a file, those that are disabled, too.

    `folder`: the project, for a file that has entries by folder, as ~/.claude.json does
    (default: the current one). HostFileError: the file cannot be read at all."""
    return entries(load(path), path, problem, host or host_of(path), scope, folder)


def entries(
    content: Message,
    path: Path,
    problem: Problem = ignore,
    host: str = "",
    scope: str = "user",
    folder: Path | None = None,
) -> list[Entry]:
    """Return the entries in the content of a file; see read()."""
    found: list[Entry] = []
    folder = folder or Path.cwd()
    is_off = _switched_off(content, folder)
    if not host and not {*TABLES, "mcp", "projects"} & content.keys():
        problem(f"{path}: it has no table of servers: {', '.join(TABLES)} or mcp")
    for table, where in _tables(content, folder):
        for name, raw in table.items():
            try:
                entry = _entry(name, raw, path, host, where or scope)
            except HostFileError as flaw:
                problem(f"{path}: server {name!r}: {flaw}")
                continue
            enabled = entry.enabled and not is_off(name)
            inputs = _list({**_table(content, "mcp"), **content}, "inputs")
            found.append(entry._replace(enabled=enabled, inputs=inputs))
    return found


# What hosts call the table of their servers: most of them, VS Code, Codex, Zed, Amp.
TABLES = ("mcpServers", "servers", "mcp_servers", "context_servers", "amp.mcpServers")


def _tables(content: Message, folder: Path) -> Iterator[tuple[Message, str]]:
    """Yield the tables of servers, and their scope if it is not the file's: those for
    one folder, which Claude calls local, come first."""
    for project in _projects(content, folder):
        yield _table(project, "mcpServers"), "local"
    for member in TABLES:
        yield _table(content, member), ""
    # VS Code's settings have {"mcp": {"servers": ...}}, opencode 1 and Crush the table
    # itself at `mcp`, and opencode 2 both. Gemini has other members there.
    inner = _table(content, "mcp")
    yield _table(inner, "servers"), ""
    own = {"servers", "timeout"}  # members of opencode 2
    others = {name: inner[name] for name in inner if name not in own}
    yield {name: one for name, one in others.items() if isinstance(one, dict)}, ""


def _projects(content: Message, folder: Path) -> Iterator[Message]:
    """Yield what ~/.claude.json says about a folder, and about those above it."""
    found = _table(content, "projects")
    for above in (folder, *folder.parents):
        for name in found:
            if Path(name) == above:
                yield _table(found, name)


def _table(content: Any, member: str) -> Message:
    """Return a member that is an object, or an empty one."""
    found = content.get(member) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def _switched_off(content: Message, folder: Path) -> Callable[[str], bool]:
    """Return a function that tells whether a host switches a server off beside its
    entry: Gemini has `mcp: {allowed, excluded}`, Claude a list for a folder."""
    rules = _table(content, "mcp")
    off = _list(rules, "excluded")
    for project in _projects(content, folder):
        off += _list(project, "disabledMcpServers")
    only = _list(rules, "allowed") if "allowed" in rules else None
    return lambda name: name in off or (only is not None and name not in only)


def _list(content: Message, member: str) -> list[Any]:
    """Return a copy of a member that is a list, or an empty one."""
    found = content.get(member)
    return list(found) if isinstance(found, list) else []


# How files name the transports.
KINDS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "remote": "",
}


def _entry(name: str, raw: Any, path: Path, host: str, scope: str) -> Entry:
    """Return an entry in the uniform shape; HostFileError if it is not one."""
    if not isinstance(raw, dict):
        raise HostFileError("expected an object")
    if isinstance(raw.get("command"), dict):  # in older files of Zed
        raw = {**raw, **raw["command"], "command": raw["command"].get("path")}
    said = raw.get("type", raw.get("transport", ""))
    if not isinstance(said, str) or said.lower() not in {"", *KINDS}:
        raise HostFileError("its type must be stdio, http or sse")
    kind = KINDS.get(said.lower(), "")
    url = _first(raw, "httpUrl", "url", "serverUrl").strip()
    if "httpUrl" in raw and not kind:
        kind = "http"

    command = _command(raw)
    if command and kind in ("", "stdio") and "httpUrl" not in raw:
        kind, url = "stdio", ""
    elif url and kind != "stdio":
        command = []
    else:
        raise HostFileError(
            "it has no url" if kind in ("http", "sse") else "it has no command or url"
        )
    return Entry(
        name,
        host,
        scope,
        path,
        raw,
        command,
        url,
        kind,
        env={**_words(raw, "environment"), **_words(raw, "env")},
        cwd=_first(raw, "cwd") or None,
        headers=merged(_words(raw, "headers"), _words(raw, "http_headers")),
        timeout=_seconds(raw, "tool_timeout_sec", "timeout"),
        startup=_seconds(raw, "startup_timeout_sec", "startup_timeout_ms"),
        enabled=raw.get("enabled") is not False and raw.get("disabled") is not True,
        include=_included(raw),
        exclude=_names(raw, "excludeTools", "disabled_tools", "disabledTools") or [],
    )


def _first(raw: Message, *members: str) -> str:
    """Return the first of these members that is there; HostFileError if it is not a
    text."""
    for member in members:
        found = raw.get(member)
        if found is not None:
            if not isinstance(found, str):
                raise HostFileError(f"{member} must be a string")
            return found
    return ""


def _command(raw: Message) -> list[str]:
    """Return program and arguments."""
    program, words = raw.get("command"), raw.get("args")
    if program is None:
        return []
    found = [
        *(program if isinstance(program, list) else [program]),
        *(words if isinstance(words, list) else []),
    ]
    if not isinstance(words, (list, type(None))) or not all(map(_is_plain, found)):
        raise HostFileError("command must be a string, and args a list of strings")
    return [_plain(one) for one in found]


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float))


def _plain(value: Any) -> str:
    """Return a number or a boolean as it is written in JSON, and a text as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def _words(raw: Message, member: str) -> dict[str, str]:
    """Return a member that has texts by name; what is null is left out."""
    found = raw.get(member)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(
        one is None or _is_plain(one) for one in found.values()
    ):
        raise HostFileError(f"{member} must be an object of strings")
    return {name: _plain(one) for name, one in found.items() if one is not None}


def merged(*parts: Mapping[str, str]) -> dict[str, str]:
    """Merge headers: a later one replaces an earlier one, in any spelling."""
    found = {name.lower(): (name, part[name]) for part in parts for name in part}
    return dict(found.values())


def _names(raw: Message, *members: str) -> list[str] | None:
    """Return the first of these members, which are lists of tools."""
    for member in members:
        found = raw.get(member)
        if isinstance(found, list):
            # Gemini also writes "name(arguments)".
            return [str(one).partition("(")[0] for one in found]
    return None


def _included(raw: Message) -> list[str] | None:
    """Return the only tools to show; None if all are."""
    found = _names(raw, "includeTools", "enabled_tools", "tools")
    return None if found is not None and "*" in found else found


def _seconds(raw: Message, *members: str) -> float | None:
    """Return a time in seconds. Claude and Gemini have milliseconds, others seconds:
    nobody means a quarter of an hour with 1000 or less than a second with 999."""
    for member in members:
        found: Any = raw.get(member)
        if type(found) in (int, float) and 0 < found < 1e9:
            if member.endswith("_sec"):
                return float(found)
            is_milli = found >= 1000 or member.endswith("_ms")
            return float(found / 1000 if is_milli else found)
    return None


# ==== 4. Variables ============================================

# ${NAME}, ${env:NAME}, ${NAME:-default}, ${input:id}; Gemini and Crush have $NAME, too,
# and Crush $(command); opencode has {env:NAME} and {file:path}.
_VARIABLE = re.compile(r"\$\{(?:(env|input|config|command):)?([^{}:]+)(?::-([^}]*))?\}")
_BARE = re.compile(r"\$([A-Za-z_]\w*)")
_ECHO = re.compile(r"\$\(echo ([^()`;&|<>]*)\)")
_OPENCODE = re.compile(r"\{(env|file):([^{}]+)\}")


class _Expansion:
    """Expands the variables of one entry; each input is asked for once."""

    def __init__(self, entry: Entry, environ: Mapping[str, str], ask: Ask) -> None:
        self.entry, self.environ, self.ask = entry, environ, ask
        # what the entry sets itself: bridges expand it in their arguments
        self.own: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.missing: list[str] = []
        folder = Path.cwd()
        self.known = {
            "userHome": str(Path.home()),
            "workspaceFolder": str(folder),
            "workspaceFolderBasename": folder.name,
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def text(self, value: str) -> str:
        """Expand a text; the names that are not set are added to `missing`."""
        if self.entry.host in ("codex", "zed"):  # they expand nothing
            return value
        if self.entry.host == "opencode":
            return _OPENCODE.sub(self._opencode, value)
        if self.entry.host == "crush":
            value = _BARE.sub(r"${\1}", _ECHO.sub(r"\1", value))
            if "$(" in value:
                raise HostFileError("it needs a command's output, which is not run")
        if self.entry.host == "gemini":  # what is not set stays
            value = _BARE.sub(lambda match: self.environ.get(match[1], match[0]), value)
        return _VARIABLE.sub(self._variable, value)

    def _opencode(self, match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "env":  # what is not set is empty
            return self.environ.get(name, "")
        try:
            place = self.entry.path.absolute().parent / Path(name).expanduser()
            return place.read_text("utf-8").strip()
        except (OSError, ValueError, RuntimeError):
            raise HostFileError("a {file:...} in it cannot be read") from None

    def path(self, value: str) -> str:
        """Expand a text that may be a path: VS Code expands `~`, too."""
        text = self.text(value)
        return os.path.expanduser(text) if self.entry.host == "vscode" else text

    def _variable(self, match: re.Match[str]) -> str:
        space, name, default = match.groups()
        if space == "input":
            return self._input(name)
        if space in ("config", "command"):
            raise HostFileError(f"{match[0]} is available inside VS Code only")
        # As in a shell, a default also stands for an empty value.
        for values in (self.environ, self.own, self.known):
            if values.get(name) or (name in values and default is None):
                return values[name]
        if default is not None:
            return default
        self.missing.append(name)
        return match[0]

    def _input(self, ident: str) -> str:
        if ident not in self.inputs:
            known = [one for one in self.entry.inputs if isinstance(one, dict)]
            asked = next((one for one in known if one.get("id") == ident), {})
            answer = self.ask({**asked, "id": ident}) if self.ask else None
            if answer is None:
                raise HostFileError(f"it needs the input {ident!r}")
            self.inputs[ident] = answer
        return self.inputs[ident]


def _expanded(
    entry: Entry, environ: Mapping[str, str], ask: Ask, problem: Problem
) -> Entry:
    """See Entry.expanded()."""
    expand = _Expansion(entry, environ, ask)
    where = f"{entry.path}: server {entry.name!r}: "
    try:
        env = {name: expand.text(one) for name, one in entry.env.items()}
        env = {**_env_file(entry, expand), **_forwarded(entry, environ), **env}
        url = expand.text(entry.url)
        headers = {name: expand.text(one) for name, one in entry.headers.items()}
        headers = merged(headers, _named_headers(entry, environ, expand.missing))
        if expand.missing:
            names = ", ".join(dict.fromkeys(expand.missing))
            raise HostFileError(f"it needs the environment variable {names}: set it")

        # A shell or a bridge may expand what is left in its arguments.
        expand.own = env
        command = [expand.path(one) for one in entry.command]
        cwd = expand.path(entry.cwd) if entry.cwd else None
        for hint in _hints(command, cwd):
            problem(where + hint)
        for name in dict.fromkeys(expand.missing):
            problem(f"{where}the variable {name} is not set")
    except HostFileError as flaw:
        raise HostFileError(where + str(flaw)) from None
    return entry._replace(command=command, cwd=cwd, url=url, env=env, headers=headers)


def _hints(command: Sequence[str], cwd: str | None) -> Iterator[str]:
    """Yield what is probably wrong with a command, which is started all the same."""
    for word in [*command, cwd or ""]:
        if word.startswith("~/"):
            yield "only VS Code expands ~: write the whole path"
    program = "".join(command[:1])
    if re.search(r"\s", program) and not os.path.exists(program):
        yield "its command has a space: arguments belong in args"


def _forwarded(entry: Entry, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Codex passes on by name."""
    names = entry.raw.get("env_vars")
    found = {}
    for one in names if isinstance(names, list) else []:
        name = one.get("name") if isinstance(one, dict) else one
        if isinstance(name, str) and name in environ:
            found[name] = environ[name]
    return found


def _named_headers(
    entry: Entry, environ: Mapping[str, str], missing: list[str]
) -> dict[str, str]:
    """Return the headers whose values Codex takes from the environment."""
    wanted = {
        name: (one, "") for name, one in _words(entry.raw, "env_http_headers").items()
    }
    bearer = entry.raw.get("bearer_token_env_var")
    if isinstance(bearer, str):
        wanted["Authorization"] = (bearer, "Bearer ")
    found = {}
    for header, (name, prefix) in wanted.items():
        if environ.get(name):
            found[header] = prefix + environ[name]
        else:
            missing.append(name)
    return found


def _env_file(entry: Entry, expand: _Expansion) -> dict[str, str]:
    """Return the variables in the `envFile` of VS Code and Cursor."""
    name = entry.raw.get("envFile")
    if not isinstance(name, str):
        return {}
    try:
        lines = Path(expand.text(name)).read_text("utf-8-sig").splitlines()
    except (OSError, ValueError):
        raise HostFileError("its envFile cannot be read") from None
    found = {}
    for line in lines:
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*", line)
        if match:
            value = match[2]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            found[match[1]] = value
    return found


# ==== 5. Looking up a name ====================================


def look_up(
    name: str,
    problem: Problem = ignore,
    folder: Path | None = None,
    found_in: list[Place] | None = None,
) -> Entry:
    """Return the entry of this name: the user's own before the folder's, and one for
    this folder before one for all. KeyError, with all names that there are, if there is
    none."""
    known: list[str] = []
    for place in places(folder) if found_in is None else found_in:
        if not place.path.is_file():
            continue
        try:
            found = read(place.path, problem, place.host, place.scope, folder)
        except HostFileError as flaw:
            problem(str(flaw))
            continue
        for entry in found:
            if entry.name == name:
                return entry
            known.append(entry.name)
    raise KeyError(*dict.fromkeys(known))
