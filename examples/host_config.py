#!/usr/bin/env python3
r"""Print what to paste into a host's configuration, so that it starts your server.

    host_config.py FILE [--name NAME] [--host HOST]     a server that the host shall start
    host_config.py --url URL [FILE] ...                 one that runs; FILE only gives the name

FILE may be a program that serves on stdio, or what `mcp_ref.py serve` takes: a `server`, or just
functions. It is read, never imported. Hosts start servers in any directory, with little in the
environment: so all paths are absolute, that of Python too (the one that runs this). With --host the
snippet alone goes to standard output, and where it belongs to standard error; if that file is there
already, put the server beside the others. (Here `sed` shortens the paths.)

    $ python3 examples/host_config.py examples/01_hello_server.py --host codex-cli --name hello | \
          sed 's|"/.*/python[0-9.]*"|"/.../python3"|; s|"/.*/examples/|"/.../examples/|'
    [mcp_servers.hello]
    command = "/.../python3"
    args = ["/.../examples/01_hello_server.py"]
"""
from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

MCP_REF = Path(__file__).resolve().parent.parent / "mcp_ref.py"


class Host(NamedTuple):
    """How a host wants to read of servers."""
    name: str
    key: str            # the object that they are members of, by name
    stdio: str          # the "type" of a server that it starts; "": it needs none
    http: str           # the "type" of one that it connects to
    url: str            # the key of the URL; "": the file cannot have one
    args: str = "args"  # the key of the arguments; "": "command" is an array, with them in it


# As the hosts document it in November 2026; a new one is a row here, and its file below.
# (opencode 2 has "servers" below "mcp", but reads this, too.)
HOSTS = {row.name.lower().replace(" ", "-"): row for row in (
    #    name              key                stdio    http              url
    Host("Claude Desktop", "mcpServers",      "",      "",               ""),
    Host("Claude Code",    "mcpServers",      "stdio", "http",           "url"),
    Host("Cursor",         "mcpServers",      "stdio", "",               "url"),
    Host("VS Code",        "servers",         "stdio", "http",           "url"),
    Host("Copilot CLI",    "mcpServers",      "local", "http",           "url"),
    Host("Codex CLI",      "mcp_servers",     "",      "",               "url"),
    Host("Gemini CLI",     "mcpServers",      "",      "",               "httpUrl"),
    Host("Antigravity",    "mcpServers",      "",      "",               "serverUrl"),
    Host("Zed",            "context_servers", "",      "",               "url"),
    Host("Devin Desktop",  "mcpServers",      "",      "",               "url"),
    Host("Windsurf",       "mcpServers",      "",      "",               "serverUrl"),
    Host("Cline",          "mcpServers",      "",      "streamableHttp", "url"),
    Host("Kiro",           "mcpServers",      "",      "",               "url"),
    Host("LM Studio",      "mcpServers",      "",      "",               "url"),
    Host("opencode",       "mcp",             "local", "remote",         "url", args=""),
)}
ROOTS = {   # Linux and others  macOS                            Windows
    "HOME":   ("~",             "~",                             "%USERPROFILE%"),
    "CONFIG": ("~/.config",     "~/.config",                     "%APPDATA%"),
    "APP":    ("~/.config",     "~/Library/Application Support", "%APPDATA%"),
}
FILES = {   # of all projects at once: our paths are those of one machine
    "Claude Desktop": "APP/Claude/claude_desktop_config.json",
    "Claude Code":    "HOME/.claude.json",
    "Cursor":         "HOME/.cursor/mcp.json",
    "VS Code":        "APP/Code/User/mcp.json",
    "Copilot CLI":    "HOME/.copilot/mcp-config.json",
    "Codex CLI":      "HOME/.codex/config.toml",
    "Gemini CLI":     "HOME/.gemini/settings.json",
    "Antigravity":    "HOME/.gemini/config/mcp_config.json",
    "Zed":            "CONFIG/zed/settings.json",
    "Devin Desktop":  "CONFIG/devin/mcp_config.json",           # what was Windsurf until June 2026
    "Windsurf":       "HOME/.codeium/windsurf/mcp_config.json",
    "Cline":          "HOME/.cline/data/settings/cline_mcp_settings.json",
    "Kiro":           "HOME/.kiro/settings/mcp.json",
    "LM Studio":      "HOME/.lmstudio/mcp.json",
    "opencode":       "HOME/.config/opencode/opencode.json",
}


def place(host: Host, platform: str = sys.platform) -> str:
    """Return where the snippet goes."""
    root, _, rest = FILES[host.name].partition("/")
    path = ROOTS[root][{"darwin": 1, "win32": 2}.get(platform, 0)] + "/" + rest
    return path.replace("/", "\\") if platform == "win32" else path


def snippet(host: Host, name: str, command: list[str], url: str) -> str:
    """Return what goes there: in ASCII, so that no code page on the way can spoil it."""
    kind = host.http if url else host.stdio
    server: dict[str, Any] = {"type": kind} if kind else {}
    server.update({host.url: url} if url else {"command": command} if not host.args else
                  {"command": command[0], host.args: command[1:]})
    if not FILES[host.name].endswith(".toml"):
        return json.dumps({host.key: {name: server}}, indent=2)
    table = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)
    return "\n".join([f"[{host.key}.{table}]", *(f"{key} = {toml(server[key])}" for key in server)])


def toml(value: str | list[str]) -> str:
    """Return a string or an array as TOML: like JSON, but for characters outside of the BMP."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return '"' + "".join(json.dumps(char)[1:-1] if char < "\U00010000" else f"\\U{ord(char):08X}"
                         for char in value) + '"'


def arguments_of(path: str) -> list[str]:
    """Return what makes Python serve a file; SystemExit if nothing does."""
    try:
        tree = ast.parse(Path(path).read_bytes(), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise SystemExit(f"host_config: {path} is not a Python file: {problem}") from None
    nodes = executed(tree.body)
    functions = {node.name: node for node in nodes
                 if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if serves_itself(list(nodes), functions):
        return [path]
    if (not {"server", "*"} & set(map(last_name, nodes))
            and all(name.startswith("_") for name in functions)):
        raise SystemExit(f"host_config: {path} has neither a `server` nor a public function")
    if not path.endswith(".py") or not MCP_REF.is_file():
        raise SystemExit(f"host_config: {path} does not call `server.run()`, so that it has to be "
                         f"named *.py, and {MCP_REF} has to be there")
    return [str(MCP_REF), "serve", path]


def executed(statements: Iterable[ast.AST]) -> list[ast.AST]:
    """Return all that runs when these do: not what is inside of functions and classes."""
    nodes = list(statements)
    for node in nodes:                      # which grows meanwhile
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            nodes.extend(ast.iter_child_nodes(node))
    return nodes


def last_name(node: Any) -> str:
    """Return `c` of `c`, `b.c`, `import b as c`, and of a call: `b.c()`."""
    node = node.func if isinstance(node, ast.Call) else node
    found = (getattr(node, key, "") for key in ("attr", "id", "asname", "name"))
    return next(filter(None, found), "")


def serves_itself(nodes: list[ast.AST], functions: dict[str, Any]) -> bool:
    """Say whether a program comes to `server.run()` or `serve_stdio()`, maybe in its main()."""
    servers, uncalled = {"server", "Server", *functions}, dict(functions)
    for node in nodes:                      # which grows meanwhile
        if isinstance(node, ast.Call) and last_name(node) in uncalled:
            nodes.extend(executed(uncalled.pop(last_name(node)).body))
        if isinstance(node, ast.Assign) and last_name(node.value).endswith("Server"):
            servers.update(map(last_name, node.targets))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return any(last_name(func) == "serve_stdio" or last_name(func) == "run"
               and last_name(getattr(func, "value", None)) in servers for func in calls)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", nargs="?", help="a Python file with a server")
    parser.add_argument("--name", help="what the host calls the server (as FILE, or as in URL)")
    parser.add_argument("--host", metavar="HOST", choices=HOSTS, help="one of " + ", ".join(HOSTS))
    parser.add_argument("--url", default="", help="connect to this, and start nothing")
    options = parser.parse_args(words)
    there = re.fullmatch(r"https?://(?:[^\s/?#]*@)?([^\s/?#@]+)\S*", options.url)
    if not there and (options.url or not options.file):
        parser.error("there has to be a FILE, or --url http(s)://...")
    command = [] if there else [os.path.abspath(sys.executable),
                                *arguments_of(os.path.abspath(options.file))]
    stem = there[1] if there and not options.file else Path(options.file).stem
    name = options.name or re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "server"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        print("note: some hosts want only letters, digits, _ and - in a name", file=sys.stderr)
    for word in (name, options.url, *command):
        if re.search("[\ud800-\udfff]", word):
            raise SystemExit(f"host_config: {word!a} is not Unicode: no configuration can hold it")
        if "$" in word:
            print(f"note: some hosts take the $ in {word!a} for a variable", file=sys.stderr)
    for host in [HOSTS[options.host]] if options.host else HOSTS.values():
        fits = command or host.url
        print(f"# {host.name}:", place(host) if fits else "Settings > Connectors, not a file",
              file=sys.stderr if options.host else sys.stdout)
        if fits:
            print(snippet(host, name, command, options.url))


if __name__ == "__main__":
    main(sys.argv[1:])
