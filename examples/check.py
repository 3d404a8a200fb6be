r"""Play the first minute of real hosts against a stdio server: which would have trouble, and why.

For authors of servers, with mcp_ref.py or anything else (not on Windows). Give it FILE.py or a
command, started anew for each line. The openings were recorded in November 2026. Next: 08_tap.py.

    $ python3 examples/check.py examples/00_by_hand.py
    ok       Claude Code, Python SDK 2: server/discover first, with a string id
    trouble  Codex, SDKs: a session with the id 0 and progress token 0: nobody asked for {...}
    ...
    trouble  a host that dies: nobody reads stdout: BrokenPipeError: ...
"""
import json
import os
import select
import signal
import subprocess
import sys
import time

SECONDS = 3                                 # hosts wait about as long, for answers and for an exit
DISCOVER = {"id": "d-1", "method": "server/discover", "params": {"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {}}}}
OPEN = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}}
READY = {"method": "notifications/initialized"}
TOOLS = {"id": 1, "method": "tools/list", "params": {"_meta": {"progressToken": 0}}}
LISTS = [TOOLS, {"id": 2, "method": "prompts/list"}, {"id": 3, "method": "resources/list"}]
HOSTS = (       # to add one: who and what, messages in bursts, how it ends the server
    ("Claude Code, Python SDK 2: server/discover first, with a string id", [[DISCOVER]], ""),
    ("Codex, SDKs: a session with the id 0 and progress token 0", [[OPEN], [READY, TOOLS]], ""),
    ("desktop hosts: discovery, then a session", [[DISCOVER], [OPEN], [READY, TOOLS]], ""),
    ("Claude Code, Gemini CLI: three lists in one burst", [[OPEN], [READY, *LISTS]], ""),
    ("Claude Code: SIGINT, 100 ms later SIGTERM", [[OPEN]], "signals"),
    ("a host that dies: nobody reads stdout", [], "unread"),
)


def exchange(server: subprocess.Popen, burst: list) -> None:
    """Send messages; read until all requests are answered."""
    lines = [json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in burst]
    server.stdin.write("".join(lines).encode())
    wanted = [message["id"] for message in burst if "id" in message]
    while wanted:
        assert select.select([server.stdout], [], [], SECONDS)[0], f"no answer in {SECONDS} s"
        line = server.stdout.readline().decode()
        assert line.startswith("{"), f"no message: {line}" if line else "it exited (see its stderr)"
        message = json.loads(line)
        if "method" not in message:         # else it is a notification
            assert message.get("id") in wanted, f"nobody asked for {line}"
            assert message["id"] != 0 or "result" in message, f"there is no session: {line}"
            wanted.remove(message["id"])


def play(command: list[str], bursts: list, ending: str) -> str:
    """Be one host; return what is wrong with the server, if anything."""
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, bufsize=0, cwd="/",
                          env={k: os.environ.get(k, "/") for k in ("HOME", "PATH")}) as server:
        try:
            for burst in bursts:
                exchange(server, burst)
            if ending == "signals":
                server.send_signal(signal.SIGINT)
                time.sleep(0.1)
                server.terminate()
            elif ending == "unread":
                server.stdout.close()
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **TOOLS}).encode() + b"\n")
            said = server.communicate(timeout=SECONDS)[1].decode()
            return said.split("\n")[-2] if "Traceback" in said else ""
        except (AssertionError, OSError, ValueError, subprocess.TimeoutExpired) as problem:
            return str(problem).strip()
        finally:
            server.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)        # an ignored signal is inherited
    words = sys.argv[1:] or sys.exit(__doc__)
    command = [os.path.abspath(word) if os.path.exists(word) else word for word in words]
    command[:0] = [sys.executable] * command[0].endswith(".py")
    flaws = [play(command, *row[1:]) for row in HOSTS]
    for flaw, row in zip(flaws, HOSTS):
        print(f"trouble  {row[0]}: {flaw}" if flaw else f"ok       {row[0]}")
    sys.exit(any(flaws))
