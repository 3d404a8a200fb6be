r"""Print what to paste into a host's configuration, so that it starts or finds your server.

For anyone who installs a server. Read 01 or 05 first. If a host has trouble, use check.py and 08.

    python3 examples/config.py FILE.py [NAME]     a server that the host must start
    python3 examples/config.py URL [NAME]         a server that is already running

Hosts start servers in any directory, with an almost empty environment, so all paths are absolute:
FILE.py, the Python that runs this, and mcp_ref.py (the copy beside FILE.py, if there is one), which
serves FILE.py. Your host's manual says where its configuration is; add yours beside the others.

    $ python3 examples/config.py examples/01_hello_server.py hello
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
    args = [".../mcp_ref.py", "serve", ".../examples/01_hello_server.py"]
"""
from __future__ import annotations

import json
import re
import sys
from pathlib import Path

MODULE = Path(__file__).resolve().parents[1] / "mcp_ref.py"


def main(target: str, name: str = "") -> None:
    """Print an entry in three formats."""
    if "://" in target:
        entry, kind = {"url": target}, {"type": "http"}
    elif Path(target).is_file():
        file, beside = Path(target).resolve(), Path(target).resolve().with_name("mcp_ref.py")
        arguments = [str(beside if beside.is_file() else MODULE), "serve", str(file)]
        entry, kind = {"command": sys.executable, "args": arguments}, {"type": "stdio"}
    else:
        raise SystemExit(f"config.py: {target} is neither a file nor a URL")
    name = name or re.sub("[^A-Za-z0-9_-]+", "-", re.split("://", target)[-1]).strip("-")
    print("# mcpServers: Claude, Cursor, Gemini CLI and most others")
    print(json.dumps({"mcpServers": {name: entry}}, indent=2))
    print("# VS Code: mcp.json")
    print(json.dumps({"servers": {name: {**kind, **entry}}}, indent=2))
    print(f"# Codex: config.toml\n[mcp_servers.{name}]")
    for key, value in entry.items():        # TOML writes strings and lists as JSON does
        print(f"{key} = {json.dumps(value, ensure_ascii=False)}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
