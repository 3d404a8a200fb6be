r"""Print what to paste into a host's configuration for your server.

For anyone who installs a server. Read 01 or 05 first. If a host has trouble, use
check.py and tap.py.

    python3 examples/tools/config.py FILE.py [NAME]     a server for the host to start
    python3 examples/tools/config.py URL [NAME]         a server that is already running

FILE.py is imported once, in a process of its own, without input and for at most 10
seconds. If it makes a server, the entry runs it: `python3 FILE.py`. If it has only
functions, `mcp_ref.py serve FILE.py` serves them (the copy beside FILE.py, if there is
one). Hosts start servers in any directory, with an almost empty environment, so all
paths are absolute, that of the Python which runs this, too. Your host's manual says
where its configuration is; add yours beside the others.

    $ python3 examples/tools/config.py examples/course/01_hello_server.py hello
    # mcpServers: Claude, Cursor, Gemini CLI and most others
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
"""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

MODULE = Path(__file__).resolve().parents[2] / "mcp_ref.py"
IMPORT_SECONDS = 10
IS_PROGRAM = 3  # the exit status that says so


def main(target: str, name: str = "") -> None:
    """Print an entry in three formats, all in ASCII: it may pass any code page."""
    entry: dict[str, Any]
    if "://" in target:
        entry, kind = {"url": target}, {"type": "http"}
    elif Path(target).is_file():
        entry, kind = entry_of(Path(target).resolve()), {"type": "stdio"}
    else:
        raise SystemExit(f"config.py: {target} is neither a file nor a URL")
    if not name:
        name = re.sub("[^A-Za-z0-9_-]+", "-", target.split("://")[-1]).strip("-")

    print("# mcpServers: Claude, Cursor, Gemini CLI and most others")
    print(json.dumps({"mcpServers": {name: entry}}, indent=2))
    print("# VS Code: mcp.json")
    print(json.dumps({"servers": {name: {**kind, **entry}}}, indent=2))
    print(f"# Codex: config.toml\n[mcp_servers.{name}]")
    for key, value in entry.items():
        print(f"{key} = {toml(value)}")


def toml(value: Any) -> str:
    """Return a string or a list as TOML, which has escapes of its own."""
    source = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08X}", source)


def entry_of(file: Path) -> dict[str, Any]:
    """Return the command that starts a file."""
    if is_program(file):
        return {"command": sys.executable, "args": [str(file)]}
    beside = file.with_name("mcp_ref.py")
    module = beside if beside.is_file() else MODULE
    return {"command": sys.executable, "args": [str(module), "serve", str(file)]}


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
        raise SystemExit(ascii(f"config.py: {file} cannot be imported: {said}")[1:-1])
    return done.returncode == IS_PROGRAM


def import_and_tell(path: str) -> int:
    """Import a file, as `mcp_ref.py serve` does; return IS_PROGRAM or 0.

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
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
