r"""Print what to paste into a host's configuration for your server, and where.

For anyone who installs a server. Read 01 or 05 first. If a host has trouble, use
check.py and tap.py.

    python3 examples/tools/config.py FILE.py [NAME]     a server for the host to start
    python3 examples/tools/config.py URL [NAME]         a server that is already running
    python3 examples/tools/config.py --write HOST ...   put it into the host's file

FILE.py is imported once, in a process of its own, without input and for at most 10
seconds. If it makes a server, the entry runs it: `python3 FILE.py`. If it has only
functions, `mcp_cli.py serve FILE.py` serves them (the copy beside FILE.py, if there is
one). Hosts start servers in any directory, with an almost empty environment, so all
paths are absolute, that of the Python which runs this, too.

    $ python3 examples/tools/config.py examples/course/01_hello_server.py hello
    # Claude Code: a project: .mcp.json; ~/.claude.json; Windows: %USERPROFILE%...
    ...
    {
      "mcpServers": {
        "hello": {
          "command": "...",
          "args": [...]
        }
      }
    }
    ...
    [mcp_servers.hello]
    command = "..."
    args = [".../examples/course/01_hello_server.py"]

--write shows the difference first, asks (--yes: does not), and keeps the old file
beside the new one. HOST is claude, claude-desktop, cursor, windsurf, vscode, copilot,
gemini, codex, zed, crush, amp or opencode; with --project, the file of this folder. A
file with comments is not written, because they would be lost. It needs host_files.py.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1)]
import host_files

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "mcp_ref.py"
GATEWAY = ROOT / "examples" / "extensions" / "gateway.py"
IMPORT_SECONDS = 10
IS_PROGRAM = 3  # the exit status that says so
# what all hosts take as a name
NAME = r"[A-Za-z0-9_-]{1,64}"
Entry = dict[str, Any]


class Host(NamedTuple):
    """A host: how it calls itself, the table of its servers, how an entry has a URL."""

    title: str
    table: str
    url: str  # the member; "" if it takes none
    more: Entry  # further members of an entry with a URL
    local: Entry = {}  # ... and of one with a command
    is_joined: bool = False  # `command` is a list, which has the arguments, too


# To add a host: a row here, and its files in host_files.py.
HOSTS = {
    "claude": Host("Claude Code", "mcpServers", "url", {"type": "http"}),
    "cursor": Host("Cursor", "mcpServers", "url", {"type": "http"}),
    "gemini": Host("Gemini CLI", "mcpServers", "url", {"type": "http"}),
    "claude-desktop": Host("Claude Desktop", "mcpServers", "", {}),
    "windsurf": Host("Windsurf", "mcpServers", "serverUrl", {}),
    "copilot": Host(
        "Copilot CLI",
        "mcpServers",
        "url",
        {"type": "http", "tools": ["*"]},
        {"tools": ["*"]},
    ),
    "vscode": Host("VS Code", "servers", "url", {"type": "http"}, {"type": "stdio"}),
    "zed": Host("Zed", "context_servers", "url", {}, {"source": "custom"}),
    "crush": Host("Crush", "mcp", "url", {"type": "http"}, {"type": "stdio"}),
    "amp": Host("Amp", "amp.mcpServers", "url", {}),
    # Version 2 also reads what version 1 does (packages/core/src/config/normalize.ts).
    "opencode": Host(
        "opencode", "mcp", "url", {"type": "remote"}, {"type": "local"}, is_joined=True
    ),
    "codex": Host("Codex", "mcp_servers", "url", {}),
}


def stop(problem: str) -> NoReturn:
    """End with a message, in ASCII: it may pass any code page."""
    raise SystemExit(ascii(f"config.py: {problem}")[1:-1])


def main(words: list[str]) -> int:
    """Print or write entries; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", metavar="FILE.py|URL")
    parser.add_argument("name", metavar="NAME", nargs="?", default="")
    parser.add_argument("--write", metavar="HOST", choices=HOSTS, default="")
    parser.add_argument("--project", action="store_true")
    parser.add_argument("--yes", action="store_true")
    options = parser.parse_args(words)

    target, name = options.target, options.name
    if "://" not in target and not Path(target).is_file():
        stop(f"{target} is neither a file nor a URL")
    name = name or name_of(target)
    if not re.fullmatch(NAME, name):
        note = "some hosts take only 1 to 64 letters, digits, - and _ as a name"
        print(f"config.py: {note}", file=sys.stderr)

    command = {} if "://" in target else entry_of(Path(target).resolve())
    entries = {key: entry_for(host, target, command) for key, host in HOSTS.items()}
    if options.write:
        place = place_of(options.write, options.project)
        return write(options.write, place, name, entries[options.write], options.yes)
    for keys in alike(entries):
        show(keys, name, entries[keys[0]])
    return 0


def name_of(target: str) -> str:
    """Return a name for a server: that of its file or host. The path and the query of a
    URL may be secret."""
    if "://" not in target:
        found = Path(target).stem
    else:
        try:
            url = urlsplit(target)
            found = f"{url.hostname}-{url.port}" if url.port else url.hostname or ""
        except ValueError:
            stop("this is not a URL")
    return re.sub("[^A-Za-z0-9_-]+", "-", found).strip("-")[:64] or "server"


def entry_for(host: Host, target: str, command: Entry) -> Entry:
    """Return a server as a host wants it."""
    if command and host.is_joined:
        return {**host.local, "command": [command["command"], *command["args"]]}
    if command:
        return {**host.local, **command}
    if host.url:
        return {**host.more, host.url: target}
    # It starts a bridge, which connects to the URL.
    return {"command": sys.executable, "args": [str(GATEWAY), target]}


def alike(entries: dict[str, Entry]) -> list[list[str]]:
    """Return the hosts in groups that take the same text."""
    groups: dict[str, list[str]] = {}
    for key, entry in entries.items():
        text = json.dumps([HOSTS[key].table, entry], sort_keys=True)
        groups.setdefault(text, []).append(key)
    return list(groups.values())


def show(keys: list[str], name: str, entry: Entry) -> None:
    """Print an entry, and the files in which it belongs, in ASCII."""
    for key in keys:
        print(f"# {HOSTS[key].title}: {files_of(key)}")
    if "claude-desktop" in keys and str(GATEWAY) in entry["args"]:
        print("# It takes no URL here, so a bridge connects to it. Another one is")
        print("# `npx -y mcp-remote URL`; or add the URL in Settings > Connectors.")
    if "claude" in keys and "url" not in entry:
        print("# Most other hosts take the same.")
    print(text_of(keys[0], name, entry))
    print()


def files_of(key: str) -> str:
    """Return where a host keeps its servers, on each system."""
    environ = {"HOME": "~", "USERPROFILE": "%USERPROFILE%", "APPDATA": "%APPDATA%"}
    found: dict[str, str] = {}
    for platform, system in (("linux", ""), ("darwin", "macOS"), ("win32", "Windows")):
        # The first of a host's files is the one for its servers.
        for place in reversed(host_files.places(Path("."), environ, platform)):
            text = place.path.as_posix()
            if place.host == key and place.scope == "project":
                found["a project"] = text
            elif place.host == key and text != found.get(""):
                is_windows = platform == "win32"
                found[system] = text.replace("/", "\\") if is_windows else text
    return "; ".join(
        f"{name}: {path}" if name else path for name, path in found.items()
    )


def text_of(key: str, name: str, entry: Entry) -> str:
    """Return an entry as the text of a host's file."""
    table = HOSTS[key].table
    if key != "codex":
        return json.dumps({table: {name: entry}}, indent=2)
    lines = [f"[{table}.{name if re.fullmatch(NAME, name) else toml(name)}]"]
    return "\n".join(lines + [f"{one} = {toml(value)}" for one, value in entry.items()])


def toml(value: Any) -> str:
    """Return a string or a list as TOML, which has escapes of its own."""
    source = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08X}", source)


# ==== Writing a host's file ===================================


def place_of(key: str, for_project: bool) -> Path:
    """Return the file of a host."""
    scope = "project" if for_project else "user"
    for place in host_files.places():
        if (place.host, place.scope) == (key, scope):
            return Path(os.path.realpath(place.path))
    stop(f"{HOSTS[key].title} has no file for one project")


def write(key: str, path: Path, name: str, entry: Entry, is_agreed: bool) -> int:
    """Put an entry into a host's file, if the user agrees; return the exit status."""
    before = read_text(path)
    after = added(key, path, before, name, entry)
    old, new = before.splitlines(), after.splitlines()
    names = (str(path), "with the entry")
    for line in difflib.unified_diff(old, new, *names, n=1, lineterm=""):
        print(re.sub(r"[^ -~]", lambda found: ascii(found[0])[1:-1], line))
    if before == after:
        print("It is there already.")
        return 0
    if not is_agreed:
        if not sys.stdin.isatty():
            stop("nobody can agree here, so nothing is written; --yes writes it")
        if input("Write it? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    replace(path, before, after)
    print(f"{HOSTS[key].title} reads it when it starts.")
    return 0


def read_text(path: Path) -> str:
    """Return the text of a file; "" if there is none."""
    try:
        data = path.read_bytes()
        return data.decode(json.detect_encoding(data)).replace("\r\n", "\n")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as problem:
        stop(f"{path}: {problem}")


def added(key: str, path: Path, text: str, name: str, entry: Entry) -> str:
    """Return the text of a file with an entry added."""
    table = HOSTS[key].table
    if key == "codex":
        return added_toml(path, text, name, entry)
    try:
        content = json.loads(text or "{}", object_pairs_hook=once)
        servers = content.setdefault(table, {})
        servers[name] = entry
    except ValueError as problem:
        stop(f"{path}: {problem}; paste the entry by hand, so that nothing is lost")
    except (AttributeError, TypeError):
        stop(f"{path}: {table} must be an object; it is left as it is")
    indent = re.search(r"\n([ \t]+)\"", text)
    return (
        json.dumps(content, indent=indent[1] if indent else 2, ensure_ascii=False)
        + "\n"
    )


def once(pairs: list[tuple[str, Any]]) -> Entry:
    """Make an object; ValueError if a name stands twice, because one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def added_toml(path: Path, text: str, name: str, entry: Entry) -> str:
    """Return TOML with a table added at its end."""
    try:
        import tomllib
    except ImportError:
        stop("to write TOML, Python 3.11 is needed; paste the entry by hand")
    try:
        servers = tomllib.loads(text).get("mcp_servers", {})
        if name in servers:
            if all(servers[name].get(one) == value for one, value in entry.items()):
                return text
            stop(f"{path}: it has a server {name!r}: take it out, or choose a NAME")
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        after = f"{text}{gap}{text_of('codex', name, entry)}\n"
        tomllib.loads(after)
    except (ValueError, AttributeError, TypeError) as problem:
        stop(f"{path}: {problem}; it is left as it is")
    return after


def replace(path: Path, before: str, after: str) -> None:
    """Replace a file in one step, and keep the old one."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        create(new, after.encode(), mode)
        if read_text(path) != before:
            new.unlink()
            stop(f"{path} has just been changed by its host; try again")
        if path.exists():
            print(f"The old file is kept as {keep(path, mode)}")
        os.replace(new, path)
    except OSError as problem:
        stop(f"{path}: {problem}")


def keep(path: Path, mode: int) -> Path:
    """Copy a file; return the copy, whose name was not there."""
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 1
    while True:
        kept = path.with_name(f"{path.name}.{stamp}-{number}.bak")
        try:
            create(kept, path.read_bytes(), mode)
            return kept
        except FileExistsError:
            number += 1


def create(path: Path, data: bytes, mode: int) -> None:
    """Write a new file, as private as the old one."""
    number = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode
    )
    with open(number, "wb") as file:
        file.write(data)


# ==== What starts a file ======================================


def entry_of(file: Path) -> dict[str, Any]:
    """Return the command that starts a file."""
    if is_program(file):
        return {"command": sys.executable, "args": [str(file)]}
    beside = file.with_name("mcp_cli.py")
    program = beside if beside.is_file() else ROOT / "examples" / "mcp_cli.py"
    return {"command": sys.executable, "args": [str(program), "serve", str(file)]}


def is_program(file: Path) -> bool:
    """Import a file in a process of its own; tell whether it is a program."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--import", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        print(f"config.py: {file} runs for long when imported", file=sys.stderr)
        return True
    if done.returncode not in (0, IS_PROGRAM):
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        stop(f"{file} cannot be imported: {said}")
    return done.returncode == IS_PROGRAM


def import_and_tell(path: str) -> int:
    """Import a file, as `mcp_cli.py serve` does; return IS_PROGRAM or 0.

    It is a program if it makes a server, exits, or has no function to serve.
    """
    file = Path(path)
    # The module is found even if no copy stands beside the file.
    sys.path[0], sys.argv = str(file.parent), [path]
    sys.path.append(str(MODULE.parent))
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        return IS_PROGRAM
    library = sys.modules.get("mcp_ref")
    if library and any(
        issubclass(type(one), library.Server) for one in gc.get_objects()
    ):
        return IS_PROGRAM
    functions = [
        name
        for name, value in vars(module).items()
        if type(value) is types.FunctionType and value.__module__ == file.stem
    ]
    is_served = any(name[0] != "_" and name != "main" for name in functions)
    return 0 if is_served else IS_PROGRAM


if __name__ == "__main__":
    if sys.argv[1:2] == ["--import"]:
        raise SystemExit(import_and_tell(sys.argv[2]))
    raise SystemExit(main(sys.argv[1:]))
