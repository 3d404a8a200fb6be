r"""Print what to paste into a host's configuration, so that it starts or finds your server.

For anyone who installs a server. Read 01_hello_server.py or 05_http_server.py first; when it does
not work, use check.py and 08_tap.py.

    python3 examples/config.py FILE.py [NAME]     a server that the host is to start
    python3 examples/config.py URL [NAME]         a server that is running already

Hosts start servers in any directory, with hardly any environment, so all paths are absolute, that
of Python included (the one that runs this). FILE.py has a `server`, or just functions, as for
`mcp_ref.py serve`. Your host's manual says which file to paste into; add yours beside the others.

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
    """Print three forms of the same thing."""
    if "://" in target:
        entry, kind = {"url": target}, {"type": "http"}
    elif Path(target).is_file():
        arguments = [str(MODULE), "serve", str(Path(target).resolve())]
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
