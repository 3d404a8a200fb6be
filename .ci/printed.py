#!/usr/bin/env python3
"""Run the commands that README and the other pages print, as a newcomer would.

    python3 .ci/printed.py [WORD]       only the commands that contain WORD

In an empty folder it makes a fresh clone of this checkout, with the first program of
README as server.py, another HOME, and no variables of ours. Each block `sh`, `bash` or
`console`, and each command in a line of text that begins with `python3`, must have a
row in ROWS, which says what it takes to run it, or why it is not run. The output of a
`console` block must be what the page shows. The status is 1 if a command fails, if one
has no row, if a row has no command, or if planted faults are not found.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

from implementations import free_port

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300  # for each command
# What a script leaves in the background is ended, and must end, when the script does.
ENDING = "trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT"
CLI = "python3 examples/mcp_cli.py"
GATEWAY = "python3 examples/extensions/gateway.py http://127.0.0.1"
CALL = f"{CLI} call add a=2 b=3 -- "


class Row(NamedTuple):
    """How a printed command is run. PORT, in any text, is a port that is free."""

    start: str  # the command; with * at its end, how it begins
    skip: str = ""  # why it is not run
    before: str = ""  # commands for what the page takes for granted
    change: tuple[str, str] = ("", "")  # a word, and what takes its place
    shows: str = ""  # a pattern that must occur in its output
    after: str = ""  # a command that must succeed then
    # It runs until it is ended; `after` is tried until it succeeds.
    serves: bool = False


# To add a row: the command as it is printed; then what must be there, and what shows
# that it worked.
ROWS = [
    # README
    Row(f"$ {CLI} call examples/*"),
    Row(
        "python3 -m venv .venv && *",
        # `.ci/run` begins with all tests; here it matters that they can be found.
        before="export PYTEST_ADDOPTS='-k changes_have_this_version'",
        shows=r"2 passed, \d+ deselected",
    ),
    Row("python3 -m pytest -q test_mcp_ref.py", skip="`.ci/run` begins with it"),
    Row("python3 examples/tools/reference.py --api --write", after="git diff --quiet"),
    Row("python3 -m pytest -q -k add_adds", skip="its test is in the page"),
    Row(
        "python3 examples/tools/picture.py trace.jsonl > trace.html",
        before=f"{CLI} call --record trace.jsonl server.py add a=2 b=3",
        after="grep -q tools/call trace.html",
    ),
    Row("python3 mcp_ref.py --version", shows="[0-9a-f]{64}"),
    Row("python3 examples/tools/reference.py --tables", shows="tools/call"),
    Row(
        "python3 FILE.py",
        before="cp server.py FILE.py",
        change=("", CALL),
        shows="(?m)^5$",
    ),
    Row(
        "python3 examples/mcp_cli.py serve FILE.py",
        before="echo 'def seven() -> int: return 7' > FILE.py",
        change=("", f"{CLI} call seven -- "),
        shows="(?m)^7$",
    ),
    Row(
        "python3 examples/tools/config.py FILE.py",
        before="cp server.py FILE.py",
        shows="mcpServers",
    ),
    Row("python3 examples/tools/check.py python3 server.py", shows="(?m)^ok "),
    Row(
        "python3 server.py --http 8000",
        change=("8000", "PORT"),
        after=f"{CLI} call http://127.0.0.1:PORT/mcp add a=2 b=3",
        serves=True,
    ),
    # guide.md
    Row("mkdir -p mcp ~/bin && *", after="~/bin/mcp list server.py"),
    Row(
        "python3 examples/extensions/gateway.py http://127.0.0.1:8000/mcp",
        before="python3 server.py --http PORT & "
        f"until {CLI} ping http://127.0.0.1:PORT/mcp; do sleep 0.1; done",
        change=(f"{GATEWAY}:8000/mcp", f"{CLI} list -- {GATEWAY}:PORT/mcp"),
        shows="Add two numbers",
    ),
    Row(
        "python3 examples/tools/picture.py /tmp/trace.jsonl > trace.html",
        before=f"MCP_TRACE=$PWD/host.jsonl {CLI} list server.py",
        change=("/tmp/trace.jsonl", "host.jsonl"),
        after="grep -q tools/list trace.html",
    ),
    Row("python3 examples/tools/config.py server.py", shows="mcpServers"),
    Row(f"{CLI} call", skip="it is half a command: what follows depends on the server"),
    Row("python3 server.py", change=("", CALL), shows="(?m)^5$"),
    Row(
        "python3 examples/tools/reload.py --watch . python3 server.py",
        change=("", CALL),
        shows="(?m)^5$",
    ),
    # the course
    Row("$ python3 examples/course/lessons/replay.py --check 1 *"),
    Row(
        "python3 examples/course/lessons/replay.py --check *",
        skip="the reader writes the message; test_an_exercise_* plays the solutions",
    ),
    Row(
        "python3 examples/vectors/run.py --revisions 2026-07-28 python3 my_server.py*",
        before="cp server.py my_server.py",
        shows="passed",
    ),
    Row("python3 examples/course/lessons/replay.py examples/*"),
    Row(
        "python3 -m http.server 8000 --bind 127.0.0.1",
        change=("8000", "PORT"),
        after="python3 -c 'from urllib.request import urlopen; urlopen("
        """"http://127.0.0.1:PORT/examples/course/playground.html")'""",
        serves=True,
    ),
    Row(
        "python3 examples/tools/walk.py 03 > walk.html",
        after="grep -q tools/call walk.html",
    ),
    Row("python3 examples/tools/reference.py", shows="tools/call"),
    # the skill: a reader has the files in one folder
    Row(
        "python3 mcp_cli.py list --trace -- COMMAND",
        before="cd examples",
        change=("COMMAND", "python3 ../server.py"),
        shows="Add two numbers",
    ),
    Row(
        "python3 mcp_cli.py call TOOL KEY=VALUE -- COMMAND",
        before="cd examples",
        change=("TOOL KEY=VALUE -- COMMAND", "add a=2 b=3 -- python3 ../server.py"),
        shows="(?m)^5$",
    ),
    Row(
        "python3 suite/checks.py", before="cd examples/vectors", shows="(?m)^ping: ping"
    ),
    Row(
        "python3 suite/checks.py stdio",
        before="cd examples/vectors",
        shows="(?m)^stdio-id-zero: id-zero",
    ),
    Row("python3 suite/checks.py 2575 *", skip="SPEC is the specification"),
    # operate.md: most of it is for root on a machine of its own
    Row("useradd --system *", skip="it makes a user, and files in /opt and /etc"),
    Row(
        "curl -fsS http://127.0.0.1:8001/health*",
        skip="it asks the page's server behind its nginx; test_the_operators_* do",
    ),
    Row(
        f"{CLI} shell --env MCP_STATE_KEY server.py *",
        skip="its first line is a session for a person; test_the_shell_* have some",
    ),
    Row(
        "MCP_STATE_KEY=$(cat /etc/mcp.key) gunicorn *",
        skip="it needs gunicorn and somebody's gateway.json",
    ),
    Row("rm -rf /opt/tools.new && *", skip="it restarts units of systemd"),
    Row("python3 .ci/load.py", skip="it measures memory, for a minute"),
    Row("python3 --version", shows="Python 3"),
]


class Command(NamedTuple):
    """A command as a page prints it."""

    page: str
    kind: str  # sh, bash, console, or "text" inside a line
    text: str


def commands_of(page: str, text: str) -> list[Command]:
    """Find the commands of a page."""
    blocks = re.findall(r"(?ms)^```(sh|bash|console)\n(.*?)^```", text)
    found = [Command(page, kind, block) for kind, block in blocks]
    prose = re.sub(r"(?ms)^```.*?^```", "", text)
    for words in re.findall(r"`(python3 [^`]+)`", prose):
        found.append(Command(page, "text", " ".join(words.split())))
    return found


def row_of(command: Command, rows: list[Row]) -> Row | None:
    """Find the first row that says how the command begins."""
    text = command.text.rstrip()
    for row in rows:
        start = row.start.rstrip("*")
        if text == start or (row.start.endswith("*") and text.startswith(start)):
            return row
    return None


class Newcomer:
    """A fresh clone in an empty folder, and a shell there."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "empty" / "mcp_ref"
        (folder / "bin").mkdir()
        (folder / "home").mkdir()
        # Not a link: a Python finds its library beside its own file.
        python = folder / "bin" / "python3"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        ours = ("PYTHON", "MCP_", "CI_", "COVERAGE", "PYTEST")
        kept = [name for name in os.environ if not name.startswith(ours)]
        self.environment = {name: os.environ[name] for name in kept}
        self.environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment["HOME"] = str(folder / "home")
        settings = Path.home() / ".config" / "pip" / "pip.conf"
        if settings.exists():
            self.environment.setdefault("PIP_CONFIG_FILE", str(settings))
        subprocess.run(["git", "clone", "-q", ROOT, self.clone], check=True)

    def run(self, script: str) -> tuple[int, str]:
        """Run a script; end what it has started; return its status and output."""
        with tempfile.TemporaryFile() as output:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", f"{ENDING}\n{script}"],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so it has a process group of its own
            )
            try:
                status = shell.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                status = shell.wait()
            output.seek(0)
            return status, output.read().decode("utf-8", "replace")


def script_of(text: str, row: Row) -> str:
    """Put what the row says around a command."""
    old, new = row.change
    changed = text.replace(old, new) if old else new + text
    after = row.after
    if row.serves:
        changed = changed.rstrip() + " &"
        after = f"until {after}; do sleep 0.1; done"
    parts = [row.before, changed, after]
    return "\n".join(part for part in parts if part).replace("PORT", str(free_port()))


def fault_of(newcomer: Newcomer, command: Command, row: Row) -> str:
    """Run a command as its row says; return what is wrong, or nothing."""
    if command.kind != "console":
        status, output = newcomer.run(script_of(command.text, row))
        if status == 0 and re.search(row.shows, output):
            return ""
        return f"status {status}, expected 0 and {row.shows!r} in:\n{output}"
    for line, shown in re.findall(r"(?m)^\$ (.+)\n((?:(?!\$ ).*\n)*)", command.text):
        _, output = newcomer.run(script_of(line, row))
        pattern = re.escape(shown.strip()).replace(re.escape("..."), ".*")
        if not re.fullmatch(pattern, output.strip(), re.DOTALL):
            return f"the page shows:\n{shown}\nbut it prints:\n{output}"
    return ""


def try_all(newcomer: Newcomer, commands: list[Command], rows: list[Row]) -> list[str]:
    """Run the commands that have a row; return what is wrong."""
    faults, used, done = [], set(), set()
    for command in commands:
        row = row_of(command, rows)
        title = f"{command.page}: {textwrap.shorten(command.text, 70)}"
        if row is None:
            faults.append(f"{title}\nhas no row in ROWS of .ci/printed.py")
            continue
        used.add(row.start)
        if row.skip:
            print(f"not run: {title}: {row.skip}", flush=True)
        elif command.text not in done:  # several pages may print it
            done.add(command.text)
            fault = fault_of(newcomer, command, row)
            print("failed:" if fault else "ran:", title, flush=True)
            if fault:
                faults.append(f"{title}\n{textwrap.indent(fault, '    ')}")
    for row in rows:
        if row.start not in used:
            faults.append(f"{row.start}\nhas a row, but no page prints it")
    return faults


# A page with four faults, to see that each is found: a command that fails, one that
# prints something else, one without a row, and a row without a command.
PLANTED = """
```sh
false
```
```console
$ echo 5
6
```
and `python3 nowhere.py`
"""
PLANTED_ROWS = [Row("false"), Row("$ echo 5*"), Row("nowhere")]


def main(words: list[str]) -> int:
    """Run all commands, or those with the word; return the exit status."""
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    pages = [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]
    commands = []
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        commands += commands_of(name, page.read_text("utf-8"))
    rows = ROWS
    if words:
        commands = [one for one in commands if words[0] in one.text]
        rows = [row for one in commands if (row := row_of(one, ROWS))]
    with tempfile.TemporaryDirectory() as folder:
        newcomer = Newcomer(Path(folder))
        program = re.search(r"(?ms)^```python\n(.*?)^```", pages[0].read_text("utf-8"))
        assert program
        (newcomer.clone / "server.py").write_text(program[1])
        faults = try_all(newcomer, commands, rows)
        print("A page with four planted faults:")
        planted = try_all(newcomer, commands_of("planted", PLANTED), PLANTED_ROWS)
    if len(planted) != 4:
        faults.append(f"of four planted faults, {len(planted)} were found: {planted}")
    print(*faults, sep="\n\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
