"""Tests of mcp_cli.py and host_files.py."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import queue
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipapp
from pathlib import Path
from unittest import mock

import pytest
from testing.places import (
    JSON,
    answering,
    command,
    listening,
    modern,
    program_of,
    status_of,
)
from testing.scripts import (
    HERE,
    MCP_REF,
    MODERN,
    NEWEST,
    PATIENCE,
    PYTHON,
    Site,
    begin,
    cli,
    client,
    exchange,
    forked_command,
    http_answer,
    http_serving,
    load,
    needs_posix,
    parametrize,
)

# The program: it is imported, because a script is compiled anew each time.
CLI = f"""if True:
    import sys
    sys.path[:0] = [{str(HERE / "examples")!r}]
    from mcp_cli import start
    start()"""
COMMAND = [*PYTHON, "-c", CLI]


@needs_posix
def test_the_command_line_at_a_terminal(monkeypatch, tmp_path):
    """A server's text is shown without control characters; questions are answered."""
    import pty

    (tmp_path / "evil.py").write_text(
        """if True:
        from mcp_ref import Context
        def good(ctx: Context) -> str:
            "\x1b[2J"
            print("\x1b[2Jon stderr")
            found = ctx.elicit("Which \x1b]0;branch?", branch=str)
            ctx.progress(1, 2, "\x1b[31mred")
            return f"\x1b]52;c;AAAA\x07{found['content']['branch']}\x9b2J"
        """
    )
    words = [*COMMAND, "call"]
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*words, "--env", "PYTHONPATH", str(tmp_path / "evil.py"), "good"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
    ) as process:
        os.close(slave)
        said = b""
        with contextlib.suppress(OSError):  # the end of a terminal, on Linux
            while data := os.read(master, 1000):
                said += data
                if b"branch (str)" in said and b"main" not in said:
                    os.write(master, b"main\n")
    os.close(master)
    assert process.returncode == 0 and b"AAAA" in said and b"main\\x9b2J" in said, said
    assert b"\\x1b[2Jon stderr" in said, said
    # the command's own, around the line that moves
    assert b"\x1b" not in said.replace(b"\r\x1b[K", b""), said
    assert b"\x07" not in said and b"\xc2\x9b" not in said, said


@needs_posix
@parametrize("moment", ["waiting", "connected", "started"])
def test_the_command_line_ends_its_server_when_it_is_ended(
    tmp_path, monkeypatch, moment
):
    """By `timeout`, for instance: not every server ends with its input. Also at the
    moments when there is a process, but no connection, and then no request."""

    def interrupted(target, **settings):
        client.connect(target, **settings)
        raise KeyboardInterrupt

    class Started(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGINT)

    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end = begin((tmp_path / "held").read_bytes)
    server = program_of(
        f"held = os.open({str(tmp_path / 'held')!r}, os.O_WRONLY)",
        "os.write(2, b'ready\\n'); signal.pause()",
    )
    if moment == "connected":
        monkeypatch.setattr(cli, "connect", interrupted)
        assert cli.main(["list", "--", *server]) == 130
    elif moment == "started":
        monkeypatch.setattr(subprocess, "Popen", Started)
        assert cli.main(["list", "--", *server]) == 130
    else:
        words = [*COMMAND, "list", "--"]
        with subprocess.Popen([*words, *server], stderr=-1) as process:
            assert process.stderr.readline() == b"ready\n"
            process.terminate()
            assert process.wait(PATIENCE) == 130
    os.close(os.open(tmp_path / "held", os.O_RDWR))  # it may have ended before
    assert end.result(PATIENCE) == b""


@needs_posix
@parametrize(
    "words, stream, end, status",
    [
        ("--help", 1, "closed", 0),
        ("list nothing.py --json", 1, "closed", 2),
        ("list nothing.py", 2, "closed", 2),
        ("list nothing.py", 0, "closed", 2),
        ("--help", 1, "unread", 0),
        ("list nothing.py --json", 1, "unread", 2),
        ("list nothing.py", 2, "unread", 2),
        ("serve nothing.py", 2, "unread", 2),
        ("nonsense", 2, "full", 2),
        ("list examples/course/01_hello_server.py", 1, "full", 3),
        ("--help", 1, "full", 3),
    ],
)
def test_the_command_line_has_a_status_without_a_stream(words, stream, end, status):
    """That it was closed before is something else than that its reader has left."""
    if end == "full" and not Path("/dev/full").exists():
        pytest.skip("only Linux has it")
    reader, unread = os.pipe()
    os.close(reader)
    target = {"closed": "&-", "unread": "&0", "full": "/dev/full"}[end]
    program = [*COMMAND, *words.split()]
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}>{target}', "sh", *program],
        cwd=HERE,
        stdin=unread,
        stdout=-1,
        stderr=-1,
        timeout=PATIENCE,
    )
    os.close(unread)
    assert found.returncode == status and b"Traceback" not in found.stderr


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self):
        return True


def test_a_form_can_be_changed_before_it_is_sent(monkeypatch):
    """client/elicitation: allow users to review and modify their responses."""
    fields = {"a": {"type": "string"}, "b": {"type": "integer"}}
    form = {"message": "m", "requestedSchema": {"properties": fields}}
    for typed, wanted in (
        ("x\n1\n\n", {"a": "x", "b": 1}),
        ("x\n1\nn\ny\n2\ny\n", {"a": "y", "b": 2}),
        ("x\n1\n", "decline"),
        ("x\n", "decline"),
    ):
        monkeypatch.setattr(sys, "stdin", Typed(typed))
        assert cli.Terminal({}).elicit(form) == wanted
    given = cli.Terminal({})
    given.answers = {"a": ["x"], "b": ["1"]}
    assert given.elicit(form) == {"a": "x", "b": 1}


def test_questions_are_asked_one_after_the_other(monkeypatch):
    terminal, asked, gate = cli.Terminal({}), queue.Queue(), threading.Event()

    def ask(text: str):
        asked.put(text)
        gate.wait(PATIENCE)
        return "x"

    monkeypatch.setattr(sys, "stdin", mock.Mock(isatty=lambda: True))
    monkeypatch.setattr(terminal, "ask", ask)
    form = {"message": "m", "requestedSchema": {"properties": {"a": {}}}}
    both = [begin(terminal.elicit, form) for _ in "ab"]
    assert asked.get(timeout=PATIENCE)
    with pytest.raises(queue.Empty):
        asked.get(timeout=0.03)
    gate.set()
    assert [one.result(PATIENCE) for one in both] == [{"a": "x"}] * 2


def test_binary_output_does_not_reach_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["read", "--output", "-", "http://127.0.0.1:1/", "a://b"]) == 2
    assert "terminal" in capsys.readouterr().err


def test_names_and_errors_of_a_server_are_printed_in_plain(capsys):
    def answer(verb: str, headers: dict, method: str, text: str):
        message = json.loads(text)
        if method == "tools/list":
            message["result"]["tools"] = [{"name": "a\x1b[2J", "inputSchema": {}}]
        elif method == "x/y":
            error = {"code": 7, "message": "no \x1b]0;title\x07"}
            message = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        yield http_answer(200, JSON, json.dumps(message))

    with answering(answer) as site:
        assert cli.main(["list", site.url]) == cli.main(["ping", site.url]) == 0
        assert cli.main(["request", site.url, "x/y"]) == 4
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "a\\x1b[2J" in printed.out and "no \\x1b]0;title\\x07" in printed.err


def test_the_command_in_an_archive_serves_a_file(tmp_path):
    """As README makes it; the file is not run with a path inside the archive."""
    (tmp_path / "mcp").mkdir()
    for file in (MCP_REF, Path(client.__file__), Path(cli.__file__)):
        shutil.copy(file, tmp_path / "mcp")
    archive = tmp_path / "mcp.pyz"
    zipapp.create_archive(tmp_path / "mcp", archive, main="mcp_cli:start")
    (tmp_path / "tools.py").write_text("def seven() -> int: return 7\n")
    words = [str(archive), "call", str(tmp_path / "tools.py"), "seven"]
    found = command(*words, path=tmp_path)  # no other copy can be imported
    assert (found.returncode, found.stdout) == (0, "7\n"), found.stderr


def test_the_command_line_finds_servers_and_files(tmp_path, capsys, monkeypatch):
    (tmp_path / "functions.py").write_text(
        "def join(words: list[str], n: int = 1, on: bool = False, x: dict = {}) -> str:\n"
        "    return repr((words, n, on, x))\n"
    )
    server = cli.mcp_ref.Server("s")
    server.tool(load("functions", tmp_path / "functions.py").join)
    (tmp_path / "text").write_text("from a file")
    entry = {"command": PYTHON[0], "args": [*PYTHON[1:], "-m", "mcp_ref"]}
    entry["env"] = {"PYTHONPATH": "${WHERE:-" + str(MCP_REF.parent) + "}"}
    (tmp_path / "c.json").write_text(json.dumps({"mcpServers": {"demo": entry}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))

    with http_serving(server) as httpd:
        for words, wanted in (
            ("--config c.json demo echo text=5", "5"),
            ("functions.py join words=a", "(['a'], 1, False, {})"),
            ("URL join words=a --words b --on n=2", "(['a', 'b'], 2, True, {})"),
            ('URL join words=["a"] x={"y":1}', "(['a'], 1, False, {'y': 1})"),
            ("URL join words=@text --no-on", "(['from a file'], 1, False, {})"),
            ("URL join words=-", "(['secret'], 1, False, {})"),
            ("URL join words=@@x", "(['@x'], 1, False, {})"),
        ):
            status = cli.main(["call", *words.replace("URL", httpd.url).split()])
            printed = capsys.readouterr()
            assert (status, printed.out.strip()) == (0, wanted), printed
    assert cli.main("list --config c.json dem --json".split()) == 2
    assert "'demo'" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_server_that_only_exits_tells_its_status():
    for _ in range(3):  # it may exit before, while and after something is sent
        with pytest.raises(client.Disconnected) as problem:
            client.connect([*PYTHON, "-c", "raise SystemExit(5)"])
        assert problem.value.exit_status == 5


host_files = load("host_files", HERE / "examples" / "host_files.py")


# ======== The files of hosts


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, and a project below it in which we are; on every system."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "home" / "AppData" / "Roaming"))
    (tmp_path / "home" / "project").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "project")
    return tmp_path / "home"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def entry_from(raw: dict, host: str = "", table: str = "servers"):
    """Return the one entry of a file that has it."""
    (entry,) = host_files.entries({table: {"a": raw}}, Path("f.json"), host=host)
    return entry


def all_entries(said: list, **options) -> dict:
    """Return the entries that the hosts' files have, by name."""
    return {
        entry.name: entry
        for place in host_files.places(**options)
        if place.path.is_file() and place.path.suffix != ".toml"
        for entry in host_files.read(place.path, said.append, place.host, place.scope)
    }


def written(home: Path) -> None:
    """Put into the home folder what `mcp add` of real hosts wrote in November 2026."""
    project = home / "project"
    local = {"type": "stdio", "command": "npx", "args": ["-y", "a"], "env": {}}
    claude = {
        "projects": {
            str(project): {"allowedTools": [], "mcpServers": {"local": local}}
        },
        "mcpServers": {"user": {**local, "args": ["b"], "env": {"KEY": "1"}}},
    }
    put(home / ".claude.json", json.dumps(claude))
    url = {"type": "http", "url": "https://x/mcp", "headers": {"X": "y"}}
    put(project / ".mcp.json", json.dumps({"mcpServers": {"shared": url}}))
    put(home / ".gemini" / "settings.json", json.dumps({"mcpServers": {"g": url}}))
    sse = {"mcpServers": {"s": {"url": "https://x/sse", "type": "sse"}}}
    put(project / ".gemini" / "settings.json", json.dumps(sse))
    put(
        home / ".codex" / "config.toml",
        '[mcp_servers.c]\ncommand = "npx"\nargs = ["-y", "c"]\n'
        '\n[mcp_servers.c.env]\nA = "1"\n'
        '\n[mcp_servers.u]\nurl = "https://x/mcp"\nbearer_token_env_var = "TOKEN"\n',
    )


def test_what_hosts_have_written_is_found(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "t")
    written(home)
    said = []
    found = {name: entry.expanded() for name, entry in all_entries(said).items()}
    assert not said
    assert found["local"].command == ["npx", "-y", "a"]
    assert found["local"].scope == "local" and found["user"].scope == "user"
    assert found["user"].env == {"KEY": "1"} and found["user"].kind == "stdio"
    assert found["shared"].scope == "project" and found["shared"].headers == {"X": "y"}
    assert (found["g"].kind, found["s"].kind) == ("http", "sse")


def test_the_toml_of_codex_is_read_where_python_can(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "t")
    written(home)
    path = home / ".codex" / "config.toml"
    if sys.version_info < (3, 11):
        with pytest.raises(host_files.HostFileError, match="3.11"):
            host_files.read(path)
        return
    c, u = (entry.expanded() for entry in host_files.read(path))
    assert (c.command, c.env) == (["npx", "-y", "c"], {"A": "1"})
    assert (u.url, u.headers) == ("https://x/mcp", {"Authorization": "Bearer t"})
    # it expands nothing
    put(path, '[mcp_servers.c]\ncommand = "${TOKEN}"\nenabled = false\n')
    (c,) = (entry.expanded() for entry in host_files.read(path))
    assert c.command == ["${TOKEN}"] and not c.enabled


OTHER_HOSTS = {
    # docs/src/ai/mcp.md and settings_content/src/project.rs of Zed; it expands nothing
    "zed": (
        ".config/zed/settings.json",
        """{"theme": "One", "context_servers": {
            "old": {"command": {"path": "x", "args": ["${A}"], "env": {"B": "1"}}},
            "new": {"source": "custom", "command": "x", "args": ["~/y"], "timeout": 90,
                    "enabled": false},
            "far": {"url": "https://x/mcp ", "headers": {"K": "v"}},
            "extension": {"source": "extension", "settings": {}}}}""",
        {
            "old": (["x", "${A}"], "", {"B": "1"}, {}),
            "new": (["x", "~/y"], "", {}, {}),
            "far": ([], "https://x/mcp", {}, {"K": "v"}),
        },
    ),
    # opencode.ai/docs/mcp-servers and /docs/config; version 2 nests its table
    "opencode": (
        ".config/opencode/opencode.jsonc",
        """{"mcp": {  // version 1
            "here": {"type": "local", "command": ["x", "{env:A}{env:NONE}"],
                     "environment": {"B": "{env:A}", "C": "${A}"}, "timeout": 5000},
            "far": {"type": "remote", "url": "https://x/mcp", "enabled": false,
                    "headers": {"K": "Bearer {file:~/key}", "L": "{file:./near}"}}}}""",
        {
            "here": (["x", "1"], "", {"B": "1", "C": "${A}"}, {}),
            "far": ([], "https://x/mcp", {}, {"K": "Bearer secret", "L": "near"}),
        },
    ),
    "opencode 2": (
        "project/.opencode/opencode.json",
        """{"mcp": {"servers": {
            "here": {"type": "local", "command": ["x"], "disabled": true}}}}""",
        {"here": (["x"], "", {}, {})},
    ),
    # README.md and internal/config/resolve.go of Crush
    "crush": (
        "project/.crush.json",
        """{"mcp": {
            "here": {"type": "stdio", "command": "x", "args": ["$A", "${A}"],
                     "env": {"B": "$(echo $A) b"}, "timeout": 120},
            "far": {"type": "sse", "url": "https://x/sse",
                    "headers": {"K": "$(echo Bearer $A)"}}}}""",
        {
            "here": (["x", "1", "1"], "", {"B": "1 b"}, {}),
            "far": ([], "https://x/sse", {}, {"K": "Bearer 1"}),
        },
    ),
    # ampcode.com/manual
    "amp": (
        ".config/amp/settings.json",
        """{"amp.mcpServers": {
            "here": {"command": "x", "args": ["${A}"], "includeTools": ["t"]},
            "far": {"url": "https://x/mcp", "headers": {"K": "${A}"}}}}""",
        {
            "here": (["x", "1"], "", {}, {}),
            "far": ([], "https://x/mcp", {}, {"K": "1"}),
        },
    ),
    # extHostMcpNode.ts of VS Code expands ~ in command, args and cwd
    "vscode": (
        "project/.vscode/settings.json",
        """{"editor.tabSize": 2, "mcp": {
            "inputs": [{"id": "i", "default": "d"}],
            "servers": {"here": {"command": "~/x", "args": ["~", "~/y", "a~/z"],
                                 "cwd": "~/w", "env": {"B": "${input:i}"}}}}}""",
        {"here": (["HOME/x", "HOME", "HOME/y", "a~/z"], "", {"B": "typed"}, {})},
    ),
}


@parametrize("host", OTHER_HOSTS)
def test_the_files_of_other_hosts_mean_what_they_mean_there(home, host, monkeypatch):
    place, text, wanted = OTHER_HOSTS[host]
    monkeypatch.delenv("NONE", raising=False)
    monkeypatch.setenv("A", "1")
    put(home / place, text)
    put(home / "key", "secret\n")
    put(home / ".config" / "opencode" / "near", "near")
    said = []
    found = all_entries(said, platform="linux")
    assert found.keys() == wanted.keys()
    assert {entry.host for entry in found.values()} == {host.split()[0]}
    for name, entry in found.items():
        full = entry.expanded(ask=lambda definition: "typed")
        command, *more = wanted[name]
        command = [one.replace("HOME", str(home)) for one in command]
        assert [full.command, full.url, full.env, full.headers] == [command, *more]
    assert len(said) == (host == "zed")  # for the extension's server
    # The same if a user names the file.
    (first, *_) = host_files.read(home / place)
    assert first.host == host.split()[0]


def test_what_only_a_host_can_expand_is_named(home):
    for host, value, word in (
        ("crush", "$(cat ~/.key)", "command's output"),
        ("crush", "$NONE_SUCH", "NONE_SUCH"),
        ("opencode", "{file:none}", "file:"),
        ("vscode", "${config:a.b}", "config:a.b.*VS Code"),
        ("vscode", "${command:a.b}", "command:a.b.*VS Code"),
    ):
        entry = entry_from({"url": "https://x/mcp", "headers": {"K": value}}, host)
        with pytest.raises(host_files.HostFileError, match=word):
            entry.expanded()


@parametrize(
    "raw, hint",
    [
        ({"command": "npx -y x"}, "arguments belong in args"),
        ({"command": "x y", "args": ["z"]}, "arguments belong in args"),
        ({"command": "x", "args": ["y z"]}, ""),
    ],
)
def test_a_command_that_cannot_work_has_a_hint(raw, hint):
    said = []
    entry_from(raw, "claude").expanded(problem=said.append)
    assert len(said) == bool(hint) and all(hint in one for one in said)


def test_a_file_of_no_host_needs_a_table():
    said = []
    assert host_files.entries({"tools": {}}, Path("f.json"), said.append) == []
    assert "no table of servers" in said[0]
    found = host_files.entries({"tools": {}}, Path("f.json"), said.append, "vscode")
    assert not found and len(said) == 1  # a host's settings may have none


def test_a_header_counts_once_in_any_spelling(home):
    raw = {
        "url": "https://x/mcp",
        "headers": {"authorization": "a", "X-Key": "b"},
        "http_headers": {"x-key": "c"},
        "bearer_token_env_var": "T",
    }
    found = entry_from(raw).expanded({"T": "t"}).headers
    assert found == {"Authorization": "Bearer t", "x-key": "c"}


@parametrize("platform", ["linux", "darwin", "win32"])
def test_each_system_has_its_places(platform):
    environ = {"HOME": "/h", "USERPROFILE": "/h", "APPDATA": "/h/Roaming"}
    found = host_files.places(Path("/p"), environ, platform)
    desktop = {
        "linux": "/h/.config/Claude",
        "darwin": "/h/Library/Application Support/Claude",
        "win32": "/h/Roaming/Claude",
    }[platform]
    paths = [place.path.as_posix() for place in found]
    assert desktop + "/claude_desktop_config.json" in paths
    assert paths[0] == "/h/.claude.json" and "/p/.vscode/mcp.json" in paths
    scopes = [place.scope for place in found]
    assert scopes == sorted(scopes, reverse=True)  # the user's before the folder's
    moved = {**environ, "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x"}
    places = host_files.places(Path("/h"), moved, platform)
    paths = [place.path.as_posix() for place in places]
    assert paths[0] == "/c/.claude.json" and "/x/config.toml" in paths
    assert len(paths) == len(set(paths))


@parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}}}',
        '\ufeff{"mcpServers": {"a": {"command": "x"}}}',
        '// first\n{"mcpServers": {/* a\n */ "a": {"command": "x",},},} // last',
        '{"servers": {"a": {"command": "x", "args": ["//", "/*", "\\"//", ",]"],}}}',
        '{"servers": {"a": {"command": "x", "args": [1, "," // ,"\n,]}}}',
        '{"mcpServers": {"a": {"command": "x"}}} /* no end',
    ],
)
def test_json_is_read_as_people_write_it(tmp_path, text):
    put(tmp_path / "f.json", text)
    (entry,) = host_files.read(tmp_path / "f.json")
    assert entry.command[0] == "x"
    if '"//"' in text:
        assert entry.command[1:] == ["//", "/*", '"//', ",]"]
    for encoding in ("utf-16", "utf-8-sig"):  # as Windows writes it
        (tmp_path / "f.json").write_bytes(text.encode(encoding))
        if text[0] != "\ufeff":
            assert host_files.read(tmp_path / "f.json")


@parametrize(
    "text, line",
    [
        ('{"a": "sesame" "b"}', "(delimiter|decoding object): line 1"),
        ("", "Expecting value|Unexpected"),
        ("[]", "object"),
        ("[" * 100_000, "recursion|depth|nest|Expecting|Unexpected"),
        (b"\xff\xfe\xff", "decode"),
        ("/*" * 50_000, "Expecting|Unexpected"),
        ('{"a": ' + "," * 50_000, "Expecting|Unexpected"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, text, line):
    """PyPy says it in other words."""
    path = tmp_path / "f.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(host_files.HostFileError, match=line) as problem:
        host_files.read(path)
    assert str(path) in str(problem.value) and "\n" not in str(problem.value)
    assert "sesame" not in str(problem.value)


def test_a_broken_entry_costs_itself(tmp_path):
    bad = {
        "null": None,
        "empty": {},
        "words": {"command": "x", "args": "sesame"},
        "deep": {"command": "x", "args": [["sesame"]]},
        "env": {"command": "x", "env": {"A": {"b": "sesame"}}},
        "list": {"command": "x", "env": ["A=sesame"]},
        "kind": {"type": "websocket", "url": "wss://sesame"},
        "lost": {"type": "http"},
        "url": {"url": ["sesame"]},
        "headers": {"url": "https://x", "headers": "sesame"},
        "cwd": {"command": "x", "cwd": 1},
    }
    good = {
        "a": {"command": "x", "args": [1, 2.5, True], "env": {"N": 1, "no": None}},
        "b": {"command": ["x", "y"], "args": ["z"]},
    }
    put(tmp_path / "f.json", json.dumps({"mcpServers": {**bad, **good}}))
    said = []
    a, b = host_files.read(tmp_path / "f.json", said.append)
    assert a.command == ["x", "1", "2.5", "true"] and a.env == {"N": "1"}
    assert b.command == ["x", "y", "z"]
    assert len(said) == len(bad) and "sesame" not in "".join(said)
    assert all(repr(name) in line for name, line in zip(bad, said))


@parametrize(
    "raw, wanted",
    [
        ({"httpUrl": "https://x"}, ("https://x", "http")),
        ({"serverUrl": "https://x"}, ("https://x", "")),
        ({"url": "https://x", "type": "streamable-http"}, ("https://x", "http")),
        ({"url": "https://x", "transport": "sse"}, ("https://x", "sse")),
        ({"url": "https://x", "command": "y"}, ("", "stdio")),
        ({"url": "https://x", "command": "y", "type": "http"}, ("https://x", "http")),
        ({"httpUrl": "https://x", "url": "https://y"}, ("https://x", "http")),
        ({"command": "y", "type": "local"}, ("", "stdio")),
    ],
)
def test_an_entry_says_how_it_is_reached(raw, wanted):
    entry = entry_from(raw, table="mcpServers")
    assert (entry.url, entry.kind) == wanted
    assert bool(entry.command) == (wanted[1] == "stdio")


def test_what_a_host_hides_is_marked(home):
    project = {"mcpServers": {"l": {"command": "x"}}, "disabledMcpServers": ["l", "m"]}
    content = {
        "projects": {str(home): project, str(home / "other"): project},
        "mcpServers": {
            **{name: {"command": "x"} for name in "amnz"},
            "d": {"command": "x", "disabled": True},
            "e": {"command": "x", "enabled": False},
        },
        "mcp": {"excluded": ["n"], "allowed": ["a", "m", "n", "d", "e", "l"]},
    }
    found = host_files.entries(content, Path("f.json"))
    assert [entry.name for entry in found if entry.enabled] == ["a"]
    assert [entry.name for entry in found] == ["l", *"amnzde"]

    raw = {"command": "x", "includeTools": ["a", "b(c)"], "disabled_tools": ["d"]}
    other = {"command": "x", "tools": ["*"], "timeout": 30000}
    codex = {"command": "x", "tool_timeout_sec": 90, "startup_timeout_ms": 500}
    entries = {"mcpServers": {"r": raw, "o": other, "c": codex}}
    r, o, c = host_files.entries(entries, Path("f.json"))
    assert (r.include, r.exclude, o.include) == (["a", "b"], ["d"], None)
    assert (r.timeout, o.timeout, c.timeout, c.startup) == (None, 30, 90, 0.5)


def test_variables_expand_everywhere_in_an_entry(home, monkeypatch):
    monkeypatch.setenv("A", "1")
    monkeypatch.setenv("EMPTY", "")
    put(home / "vars", "# no\nexport F='f g'\nG=\n\nbad line\n")
    raw = {
        "command": "${A}",
        "args": ["${env:A}${B:-2}", "${EMPTY:-3}", "${C}", "$A", "${OWN}", "${1}"],
        "env": {"OWN": "own ${A}", "A2": "${A}"},
        "envFile": "${userHome}/vars",
        "cwd": "${workspaceFolder}/${A}",
    }
    said = []
    found = entry_from(raw).expanded(problem=said.append)
    assert found.command == ["1", "12", "3", "${C}", "$A", "own 1", "${1}"]
    assert found.env == {"F": "f g", "G": "", "OWN": "own 1", "A2": "1"}
    assert found.cwd == f"{Path.cwd()}/1"
    assert len(said) == 2 and "C is not set" in said[0]

    remote = {"url": "https://${A}/${B:-}", "headers": {"X": "${A}", "Y": "${C}"}}
    entry = entry_from(remote)
    with pytest.raises(host_files.HostFileError, match="variable C: set it"):
        entry.expanded()
    found = entry.expanded({"A": "host", "C": "c"})
    assert (found.url, found.headers) == ("https://host/", {"X": "host", "Y": "c"})
    # Gemini has another spelling, too
    entry = entry_from({"command": "$A", "args": ["$C"]}, "gemini")
    assert entry.expanded().command == ["1", "$C"]


def test_an_input_is_asked_for_once():
    asked = []
    content = {
        "inputs": [{"id": "key", "type": "promptString", "password": True}],
        "servers": {
            "a": {
                "url": "https://x/${input:key}",
                "headers": {"X": "${input:key}", "Y": "${input:other}"},
            }
        },
    }
    (entry,) = host_files.entries(content, Path("f.json"))

    def ask(definition):
        asked.append(definition)
        return "typed"

    found = entry.expanded(ask=ask)
    assert found.url == "https://x/typed" and found.headers["X"] == "typed"
    assert asked == [content["inputs"][0], {"id": "other"}]
    with pytest.raises(host_files.HostFileError, match="input 'key'"):
        entry.expanded()


def test_the_users_entry_comes_before_the_folders(home):
    def entry(word):
        return json.dumps({"mcpServers": {"same": {"command": word}}})

    put(home / "project" / ".mcp.json", entry("folder"))
    assert host_files.look_up("same").command == ["folder"]
    put(home / ".cursor" / "mcp.json", entry("user"))
    assert host_files.look_up("same").command == ["user"]
    local = {"projects": {str(home / "project"): json.loads(entry("local"))}}
    put(home / ".claude.json", json.dumps({**json.loads(entry("all")), **local}))
    assert host_files.look_up("same").command == ["local"]
    # one broken file does not hide the others
    put(home / ".claude.json", "{")
    said = []
    assert host_files.look_up("same", said.append).command == ["user"]
    assert len(said) == 1 and ".claude.json" in said[0]
    with pytest.raises(KeyError) as problem:
        host_files.look_up("other")
    assert problem.value.args == ("same",)


# ======== The command, and servers that are unusual


EVERYTHING = ("tools", "prompts", "resources")


def odd(declares=EVERYTHING, **results):
    """Make a server over HTTP. `results`, by method with _ for /: a result, a function
    of the params that returns one, (code, message) or (code, message, data) for an
    error, an HTTP status, or None: it is silent. What is not named is an empty list."""
    results["server_discover"] = {
        "supportedVersions": MODERN,
        "capabilities": dict.fromkeys(declares, {}),
    }
    gate = contextlib.ExitStack()

    def play(verb, headers, message):
        method = message.get("method", "")
        found = results.get(method.replace("/", "_"), EMPTY.get(method, {}))
        if callable(found):
            found = found(message["params"])
        if found is None:
            quiet.wait(PATIENCE)
        elif isinstance(found, int):
            yield http_answer(found, {}, "no")
        else:
            answer = {"jsonrpc": "2.0", "id": message.get("id")}
            if isinstance(found, tuple):
                answer["error"] = dict(zip(("code", "message", "data"), found))
            else:
                answer["result"] = found
            yield http_answer(200, JSON, json.dumps(answer))

    site = Site(play)
    quiet = client.Event()
    gate.callback(site.close)
    gate.callback(quiet.set)
    gate.url = site.url
    gate.site = site
    return gate


EMPTY = {
    "tools/list": {"tools": []},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
}


def tools(*found):
    return {"tools": [{"name": "t", "inputSchema": {}, **one} for one in found]}


def keeping(asked: list, result: dict | None = None):
    """Make the result of a tool that keeps its arguments."""

    def called(params):
        asked.append(params["arguments"])
        return result or text("x")

    return called


def in_all_lists(*items) -> dict:
    """Return the results of all lists, each with these items."""
    return {
        method.replace("/", "_"): {member: list(items)}
        for method, (member, _) in cli.LISTS.items()
    }


def text(*words):
    return {"content": [{"type": "text", "text": word} for word in words]}


@pytest.fixture
def run(capsys):
    """Run the command; return its status, output and stderr."""

    def play(*words):
        status = cli.main(list(words))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return play


@parametrize(
    "failure, said",
    [
        ((-32601, "unknown"), "-32601"),
        ((7, "own"), "error 7: own"),
        (500, "500"),
        (404, "404"),
        ({"resourceTemplates": 5}, "no valid resourceTemplates"),
        ({}, "no valid resourceTemplates"),
        (None, "no answer"),
    ],
)
def test_each_list_stands_for_itself(run, failure, said):
    with odd(
        tools_list=tools({}),
        prompts_list={"prompts": [{"name": "p"}]},
        resources_templates_list=failure,
    ) as site:
        timeout = PATIENCE if failure is not None else PATIENCE / 30
        words = ["list", "--timeout", str(timeout), site.url]
        status, out, err = run(*words)
        assert status == 0 and "t()" in out and "p()" in out, err
        (line,) = err.splitlines()
        assert line.startswith("resource templates: ") and said in line
        status, out, err = run(*words, "--json")
    found = json.loads(out)
    assert status == 0 and found["tools"][0]["name"] == "t"
    assert said.split(": ")[-1] in str(found["errors"]["resourceTemplates"])


@parametrize("failure, wanted", [((-32601, "no"), 4), (500, 3), (None, 3), ({}, 4)])
def test_if_nothing_can_be_listed_the_first_failure_is_the_status(run, failure, wanted):
    lists = {name.replace("/", "_"): failure for name in EMPTY}
    with odd(**{**lists, "prompts_list": (-1, "second")}) as site:
        timeout = PATIENCE if failure is not None else PATIENCE / 30
        words = ["list", "--timeout", str(timeout), site.url]
        status, out, err = run(*words)
        assert (status, out, len(err.splitlines())) == (wanted, "", 4)
        status, out, err = run(*words, "--json")
    found = json.loads(out)
    assert status == wanted and found["error"] == found["errors"]["tools"]
    assert found["errors"]["prompts"]["code"] == -1


def test_a_page_that_fails_leaves_those_before_it(run):
    def pages(params):
        first = {**tools({}), "nextCursor": "1"}
        return (3, "gone") if "cursor" in params else first

    with odd(tools_list=pages) as site:
        status, out, err = run("list", site.url)
        assert status == 0 and "t()" in out and "gone" in err


@parametrize("limit", ["MAX_PAGES", "MAX_LIST_BYTES", "timeout"])
def test_a_list_without_end_ends_with_what_came(run, monkeypatch, limit):
    count = iter(range(10**9))

    def pages(params):
        return {**tools({"name": f"t{next(count)}"}), "nextCursor": str(next(count))}

    seconds = "60"
    if limit == "timeout":
        seconds = "0.1"
    else:
        monkeypatch.setattr(client, limit, 3 if limit == "MAX_PAGES" else 4000)
    with odd(tools_list=pages) as site:
        status, out, err = run("list", "--timeout", seconds, site.url)
    reason = {"MAX_PAGES": "3 pages", "MAX_LIST_BYTES": "too large"}
    assert status == 0 and "t0()" in out
    assert f"{reason.get(limit, 'goes on for 0.1 s')}; the rest is missing" in err


@parametrize("cursor", ["", "same"])
def test_pages_that_do_not_advance_end_with_what_came(run, cursor):
    asked = []

    def pages(params):
        asked.append(params.get("cursor"))
        return {**tools({}), "nextCursor": cursor}

    with odd(tools_list=pages, prompts_list={"prompts": [{"name": "p"}]}) as site:
        status, out, err = run("list", site.url)
    assert status == 0 and out.count("t()") == 1 and "p()" in out
    assert 3 <= len(asked) <= 5 and len(err.splitlines()) == 1


WRONG = [None, True, 5, 1.5, "x", [], [[1]], [None], {}, {"a": 1}, [{"$ref": "#"}]]


@parametrize("wrong", WRONG, ids=lambda one: json.dumps(one)[:12])
def test_a_schema_of_any_shape_costs_nothing_but_its_types(run, wrong):
    words = "type enum anyOf oneOf allOf const items properties required default title"
    words += " description $ref additionalProperties prefixItems"
    schemas = [wrong, *({word: wrong} for word in words.split())]
    schemas += [{"properties": {"a": one}, "required": wrong} for one in list(schemas)]
    schemas += [{"anyOf": [one, {"type": "array"}]} for one in list(schemas)]
    odd_tools = [
        {"name": f"n{n}", "inputSchema": one, "outputSchema": one, "title": wrong}
        for n, one in enumerate(schemas)
    ]
    odd_tools.append({"name": "hints", "annotations": wrong, "description": wrong})
    prompt = {"name": "p", "arguments": wrong, "description": wrong}
    arguments = [{"name": wrong, "required": wrong, "description": wrong}]
    with odd(
        tools_list={"tools": odd_tools},
        prompts_list={"prompts": [prompt, {"name": "q", "arguments": arguments}]},
        tools_call=text("called"),
    ) as site:
        status, out, err = run("list", site.url)
        assert (status, err) == (0, "")
        assert len(out.splitlines()) >= len(odd_tools) + 4
        for one in odd_tools[len(out) % 19 :: 19]:  # others in each row
            status, out, err = run("call", site.url, one["name"], "--help")
            assert status == 0 and one["name"] in out, err
            status, out, err = run("call", site.url, one["name"], "a=1")
            assert status in (0, 2) and "rror:" not in err, err


@parametrize("bad", [None, 5, "x", [], {}, {"name": 5}, {"title": "x"}])
def test_an_entry_of_the_wrong_shape_costs_a_line(run, bad):
    good = {"uri": "a://b", "uriTemplate": "a://{b}", "name": "good"}
    with odd(**in_all_lists(bad, good)) as site:
        status, out, err = run("list", site.url)
        assert status == 0 and out.count("good") == 4, err
        assert err.count("left out an entry") == 4 == len(err.splitlines())
    # a resource is known by its URI
    with odd(resources_list={"resources": [{"uri": "a://b"}]}) as site:
        assert "a://b" in run("list", site.url)[1]


def doubling(depth, wide=2):
    """A schema that refers to the next one more than once."""
    part = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * wide} for n in range(depth)
    }
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": part}


X = "#/$defs/x"
REFERS = {"properties": {"a": {"$ref": X}}}


@parametrize(
    "tool",
    [
        {"inputSchema": doubling(60)},
        {"inputSchema": {**REFERS, "$defs": {"x": {"anyOf": [{"$ref": X}] * 60}}}},
        {"inputSchema": {"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}},
        {"inputSchema": {"properties": {"a": {"properties": {"b": {"$ref": "#"}}}}}},
        {"inputSchema": {"properties": {"a": {"enum": ["x" * 99] * 4_000}}}},
        {"inputSchema": {"properties": {f"a{n}": {} for n in range(10_000)}}},
        {"inputSchema": {"$ref": "#/" + "a/" * 100_000}},
        {"description": "x" * 2_000_000},
        {"description": "x " * 500_000},
        {"description": "\n" * 1_000_000},
        {"outputSchema": doubling(60, 9)},
        {"name": "n" * 1_000_000},
    ],
)
def test_no_tool_takes_long_to_show(run, tool):
    start = cli.time.process_time()
    with odd(tools_list=tools(tool, {"name": "other"})) as site:
        status, out, err = run("list", site.url)
        assert status == 0 and "other()" in out, err
        name = tool.get("name", "t")
        assert run("call", site.url, name, "--help")[0] == 0
        assert run("call", site.url, "tt", "a=1")[0] == 2
    assert cli.time.process_time() - start < PATIENCE / 2


AN_X = {"type": "text", "text": "x"}


@parametrize(
    "result, shown, said",
    [
        ({"structuredContent": {"a": 1}}, '"a": 1', "no valid content"),
        ({"toolResult": "x"}, '"toolResult": "x"', "no valid content"),
        ({"content": "x"}, "x", "no valid content"),
        ({"content": AN_X}, "x", "no valid content"),
        ({}, "", "no valid content"),
        ({"content": [5, None, {"text": "x"}, {"type": "new", "a": 1}]}, "x", ""),
        ({"content": [{"type": 5, "text": 6}, AN_X]}, "x", ""),
        ({"content": [{"type": "image", "data": "!"}, AN_X]}, "x", "invalid base64"),
    ],
)
def test_a_result_is_shown_as_it_is(run, result, shown, said):
    with odd(tools_list=tools({}), tools_call=result) as site:
        status, out, err = run("call", site.url, "t")
        assert status == 4 * ("base64" in said) and shown in out
        assert said in err and len(err.splitlines()) == bool(said)
        status, out, _ = run("call", "--json", site.url, "t")
        assert json.loads(out) == result

    with odd(prompts_list={"prompts": [{"name": "p"}]}, prompts_get=result) as site:
        status, out, err = run("prompt", site.url, "p")
        assert status == 0 and "no valid messages" in err
    with odd(resources_read=result) as site:
        status, out, err = run("read", site.url, "a://b")
        assert status == 0 and "no valid contents" in err
    with odd(resources_read={"contents": [{"text": "x"}, 5]}) as site:
        assert run("read", site.url, "a://b") == (0, "x\n5\n", "")


@parametrize(
    "structured, texts, is_shown",
    [
        ({"n": 2}, ["found 2"], True),
        ({"n": 2}, ['{"n": 2}'], False),
        ({"n": 2}, ['{\n "n" : 2 }'], False),
        ({"result": 2}, ["2"], False),
        ({"result": "a"}, ["a"], False),
        ({"result": ["a", 2]}, ["a", "2"], False),
        ({"result": ["a", 2]}, ["a", "3"], True),
        ({"result": "a", "n": 1}, ["a"], True),
        ({"a": None}, [], True),
        ([1], ["[1]"], False),
    ],
)
def test_structured_content_is_not_hidden_by_a_summary(
    run, structured, texts, is_shown
):
    result = {**text(*texts), "structuredContent": structured}
    with odd(tools_list=tools({}), tools_call=result) as site:
        status, out, _ = run("call", site.url, "t")
    wanted = "".join(f"{one}\n" for one in texts)
    wanted += (json.dumps(structured, indent=2) + "\n") * is_shown
    assert (status, out) == (0, wanted)


def test_what_is_not_declared_may_be_there(run):
    with odd(
        (),
        prompts_list={"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]},
        prompts_get={"messages": [{"role": "user", "content": {"text": "x"}}]},
        tools_list=tools({}),
        tools_call=text("called"),
        resources_read={"contents": [{"text": "read"}]},
    ) as site:
        assert run("prompt", site.url, "p", "a=1") == (0, "user: x\n", "")
        assert run("call", site.url, "t")[:2] == (0, "called\n")
        assert run("read", site.url, "a://b")[:2] == (0, "read\n")
        assert run("list", site.url)[:2] == (0, "The server offers nothing.\n")


def test_what_cannot_be_listed_can_be_called(run):
    asked = []

    called = keeping(asked, {**text("called"), "messages": []})
    lists = dict.fromkeys(("tools_list", "prompts_list"), (-32603, "broken"))
    with odd(**lists, tools_call=called, prompts_get=called) as site:
        status, out, err = run("call", site.url, "t", "a=1", "b=x", 'c={"d": 2}')
        assert (status, out) == (0, "called\n") and "broken" in err
        assert run("prompt", site.url, "p", "a=1")[0] == 0
    assert asked == [{"a": 1, "b": "x", "c": {"d": 2}}, {"a": "1"}]


def test_a_number_that_is_too_large_stays_json(run):
    tool = tools({"inputSchema": {"maximum": "MAX"}, "description": "Infinity"})
    body = json.dumps(tool).replace('"MAX"', "-1e999")

    def play(verb, headers, message):
        result = body
        if message["method"] == "server/discover":
            found = {"supportedVersions": MODERN, "capabilities": {"tools": {}}}
            result = json.dumps(found)
        answer = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {result}}}'
        yield http_answer(200, JSON, answer)

    with contextlib.closing(Site(play)) as site:
        status, out, _ = run("list", "--json", site.url)
    assert status == 0 and '"maximum": -1.79' in out and '"Infinity"' in out


@parametrize("name", ["x\nPrompts:\n  y", "x\r\ny", "x\ty", "x\u202ey", "x\u2028y"])
def test_a_name_cannot_look_like_a_heading(run, name):
    member = {"name": name, "uri": name, "uriTemplate": name, "description": "short"}
    schema = {"properties": {name: {"default": name, "enum": [name]}}}
    member.update({"inputSchema": schema, "outputSchema": schema})
    with odd(**in_all_lists(member)) as site:
        status, out, err = run("list", site.url)
    heads = [line for line in out.splitlines() if not line.startswith("  ")]
    assert heads == ["Tools:", "Prompts:", "Resources:", "Resource templates:"], out
    assert "\u202e" not in out and "\r" not in out


def test_annotations_are_shown_before_a_call(run):
    both = {"destructiveHint": True, "openWorldHint": True}
    found = tools(
        {"name": "a", "annotations": both},
        {"name": "b", "annotations": {**both, "readOnlyHint": True}},
        {"name": "c", "annotations": {"destructiveHint": False}},
    )
    first = "a()  [destructive, open world]\n"
    with odd(tools_list=found) as site:
        out = run("list", site.url)[1]
        assert run("call", site.url, "a", "--help")[1] == first
    assert out == f"Tools:\n  {first}  b()  [open world]\n  c()\n"


def test_the_members_of_objects_are_explained(run):
    place = {
        "type": "object",
        "description": "Where.",
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "zip": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
    }
    schema = {
        "properties": {
            "place": {"$ref": "#/$defs/place"},
            "more": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "maybe": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
        },
        "$defs": {"place": place},
        "required": ["place"],
    }
    with odd(tools_list=tools({"inputSchema": schema})) as site:
        out = run("call", site.url, "t", "--help")[1]
    inside = """
      Where.
      .city: str  (required)
          Its name.
      .zip: str | None  (default: null)"""
    assert f"  --place dict  (required){inside}" in out
    more = inside.replace("      Where.\n", "").replace("      .", "      [].")
    assert f"  --more list[dict]{more}" in out
    assert "  --maybe dict | None" in out and out.count(".city") == 3


# ======== Where the server is


def server_named(name):
    """Return the command of a server whose one tool returns its environment."""
    code = f"""if True:
        import os, sys
        sys.path.insert(0, {str(MCP_REF.parent)!r})
        from mcp_ref import Server
        server = Server({name!r})
        server.tool(lambda: dict(os.environ), name={name!r})
        server.run()
    """
    return [*PYTHON, "-I", "-c", code]


def configure(path: Path, **servers: dict) -> None:
    put(path, json.dumps({"mcpServers": servers}))


def entry_of(name, **more):
    program, *words = server_named(name)
    return {"command": program, "args": words, **more}


@needs_posix
def test_a_bare_word_is_a_configured_name_first(home, run):
    file = home / "project" / "same"
    put(file, f"#!/bin/sh\nexec {shlex.join(server_named('file'))}\n")
    file.chmod(0o755)
    status, out, err = run("list", "same")
    assert status == 0 and "file()" in out, err

    configure(home / "project" / ".mcp.json", same=entry_of("folder"))
    assert "folder()" in run("list", "same")[1]
    configure(home / ".claude.json", same=entry_of("user"))
    status, out, err = run("list", "same")
    assert "user()" in out and str(home / ".claude.json") in err
    assert "file()" in run("list", "./same")[1]
    assert "file()" in run("list", str(file))[1]
    # what may be configured in a file that cannot be read is not run instead
    (home / "project" / ".mcp.json").unlink()
    put(home / ".claude.json", "{")
    status, out, err = run("list", "same")
    assert status == 2 and "./same" in err and ".claude.json" in err and not out


def test_a_file_with_a_suffix_is_a_program_first(home, run):
    configure(home / ".claude.json", **{"s.py": entry_of("user")})
    assert "user()" in run("list", "s.py")[1]
    put(home / "project" / "s.py", "def file(): pass\n")
    assert "file()" in run("list", "s.py")[1]
    assert "user()" in run("list", "--config", str(home / ".claude.json"), "s.py")[1]


def test_a_configured_server_is_used_as_the_host_would(home, run, monkeypatch):
    monkeypatch.setenv("A_SECRET", "sesame")
    variables = {"MINE": "${A_SECRET}", "N": 5}
    servers = {
        "it": entry_of("it", env=variables, cwd="${workspaceFolder}", disabled=True),
        "typed": {"url": "http://127.0.0.1:1/${input:key}"},
        "unset": {"url": "http://127.0.0.1:1/", "headers": {"X": "${NOT_SET}"}},
    }
    put(home / ".claude.json", "// x\n" + json.dumps({"mcpServers": servers}))
    status, out, err = run("call", "it", "it")
    assert (json.loads(out)["MINE"], json.loads(out)["N"]) == ("sesame", "5")
    assert "disabled" in err
    assert run("list", "typed")[0] == 2
    status, out, err = run("list", "unset")
    assert status == 2 and "NOT_SET: set it" in err
    status, out, err = run("list", "typd")
    assert status == 2 and "did you mean 'typed'" in err


def test_what_is_missing_on_the_command_line_is_named(home, run):
    two = entry_of("x", disabled=True)
    configure(home / ".claude.json", one=entry_of("x"), two=two)
    put(home / ".cursor" / "mcp.json", "{")
    status, out, err = run("list")
    assert status == 2 and err.endswith("hosts have configured one\n")
    for verb in cli.NAMED:
        status, out, err = run(verb, "one")
        assert status == 2 and f"expected: {verb} TARGET " in err and "  " not in err


@parametrize(
    "words, said",
    [
        ("list npx -y x", "unexpected '-y'"),
        ("list python3 t.py", "unexpected 't.py'"),
        ("call -- cat add", "expected: call TOOL [ARGUMENTS] -- COMMAND"),
        ("list git", "the end: -- git"),
    ],
)
def test_a_command_in_the_place_of_a_target_is_told_where_it_stands(
    home, run, words, said, monkeypatch
):
    monkeypatch.setattr(shutil, "which", {"git": "/bin/git"}.get)
    status, _, err = run(*words.split())
    assert status == 2 and said in err and ("`--`" in err or "-- " in err)


def test_an_unknown_argument_is_answered_with_those_that_exist(home, run):
    place = home / "tools.py"
    put(place, "def add(left: int, right: int): return left")
    status, out, err = run("call", str(place), "add", "title=1")
    assert status == 2 and "no argument 'title'; it has left, right" in err


def test_the_timeouts_of_an_entry_count(home, run, monkeypatch):
    times = []

    class Noted(cli.ListingClient):
        def __init__(self, target, **settings):
            times.append((settings["timeout"], settings["probe"]))
            super().__init__(target, **settings)

    monkeypatch.setattr(cli, "connect", Noted)
    entry = entry_of("x", timeout=90_000, startup_timeout_sec=40)
    configure(home / ".claude.json", it=entry)
    assert run("list", "it")[0] == 0
    assert run("list", "--timeout", "9", "it")[0] == 0
    assert times == [(90, 40), (9, 40)]


def test_an_input_is_asked_for_at_the_terminal(monkeypatch):
    terminal = cli.Terminal({})
    monkeypatch.setattr(sys, "stdin", Typed("\n"))
    assert terminal.ask_input({"id": "a", "default": "d"}) == "d"
    monkeypatch.setattr(sys, "stdin", Typed("\n"))
    assert terminal.ask_input({"id": "a", "options": ["x", 1]}) == ""
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"({prompt})")
    asked = {"id": "a", "password": True, "description": "key\x1b"}
    assert terminal.ask_input(asked) == "(key\\x1b: )"
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert terminal.ask_input({"id": "a"}) is None


def test_a_server_gets_the_environment_that_hosts_give(home, run, monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "OTHER", "XDG_DATA_HOME", "LC_TIME"):
        monkeypatch.setenv(name, "mine")
    proxy = "HTTPS_PROXY" if os.name == "nt" else "https_proxy"  # Windows has one case
    for name in (proxy, "SSL_CERT_FILE", "VIRTUAL_ENV", "MCP_TRACE", "LANG"):
        monkeypatch.setenv(name, "mine")
    server = ["--", *server_named("it")]

    def got(*options):
        status, out, err = run("call", *options, "it", *server)
        assert status == 0, err
        return {name for name, one in json.loads(out).items() if one == "mine"}

    usual = {"XDG_DATA_HOME", "LC_TIME", proxy, "SSL_CERT_FILE", "VIRTUAL_ENV"}
    usual |= {"MCP_TRACE", "LANG"}
    assert got() == usual
    assert got("--env", "OTHER", "--env", "NEW=mine") == usual | {"OTHER", "NEW"}
    assert got("--all-env") == usual | {"OTHER", "AWS_SECRET_ACCESS_KEY"}
    assert run("call", "--env", "NO_SUCH", "it", *server)[0] == 2


@parametrize("as_json", [(), ("--json",)])
@parametrize("program", ["/nowhere/program", "no-such-program", "/", "nul\0"])
def test_no_error_contains_the_arguments_of_a_command(run, program, as_json):
    status, out, err = run("list", *as_json, "--", program, "--token", "sesame")
    assert status == 3 and "cannot start" in out + err
    assert "sesame" not in out + err and "token" not in out + err


def test_a_server_that_exits_tells_of_the_environment(run):
    exits = ["--", *PYTHON, "-c", "raise SystemExit(5)"]
    status, out, err = run("list", *exits)
    assert status == 3 and "--env" in err and "exit status 5" in err
    status, out, err = run("list", "--all-env", *exits)
    assert status == 3 and "--env" not in err


def test_a_server_is_reached_through_a_proxy(run):
    # The option changes variables.
    with odd(tools_list=tools({})) as proxy, mock.patch.dict(os.environ):
        target, address = "http://mcp.invalid/mcp", proxy.url[: -len("/mcp")]
        status, out, err = run("list", "--proxy", address, target)
        assert status == 0 and "t()" in out, err
        assert {headers[":path"] for _, headers, _ in proxy.site.asked} == {target}


def test_a_file_of_certificates_is_read_before_anything_is_sent(
    run, tmp_path, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", "")  # it is changed
    put(tmp_path / "bad.pem", "no certificate")
    for name in ("bad.pem", "nothing.pem"):
        words = ["list", "--cacert", str(tmp_path / name), "https://127.0.0.1:1/"]
        status, out, err = run(*words)
        assert status == 2 and "--cacert" in err


# ======== Files, booleans, the shell


def images(count):
    data = base64.b64encode(b"picture").decode()
    return {
        "content": [{"type": "image", "data": data, "mimeType": "image/png"}] * count
    }


def test_output_never_overwrites(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "pic.png", "mine")
    put(tmp_path / "pic-3.png", "mine")
    with odd(tools_list=tools({}), tools_call=images(3)) as site:
        status, out, err = run("call", "--output", "pic.png", site.url, "t")
        assert status == 0, err
        assert run("call", "--output", "new.png", site.url, "t")[0] == 0
    mine = {path.name for path in tmp_path.iterdir() if path.read_text() == "mine"}
    assert mine == {"pic.png", "pic-3.png"}
    written = {path.name for path in tmp_path.iterdir()} - mine
    numbers = {"pic-2.png", "pic-4.png", "pic-5.png", "new-2.png", "new-3.png"}
    assert written == numbers | {"new.png"}
    assert "pic-2.png" in err


def test_one_answer_writes_at_most_a_hundred_files(tmp_path, run):
    with odd(tools_list=tools({}), tools_call=images(150)) as site:
        status, out, err = run("call", "--output", str(tmp_path / "a"), site.url, "t")
    assert len(list(tmp_path.iterdir())) == 100
    assert out.count("not saved") == 50


@needs_posix
def test_a_file_that_cannot_be_written_costs_itself(tmp_path, run):
    result = images(1)
    result["content"].append({"type": "text", "text": "after"})
    called: list = []
    with odd(tools_list=tools({}), tools_call=keeping(called, result)) as site:
        os.symlink("elsewhere", tmp_path / "link")
        place = str(tmp_path / "link")
        assert run("call", "--output", place, site.url, "t")[0] == 0
        assert not (tmp_path / "elsewhere").exists()
        if Path("/dev/full").exists():
            status, out, err = run("call", "--output", "/dev/full", site.url, "t")
            assert status == 3 and out == "after\n" and "space" in err
        called.clear()
        for wrong in (str(tmp_path), str(tmp_path / "no" / "file")):
            assert run("call", "--output", wrong, site.url, "t")[0] == 2
    assert not called  # it is better to know before


@parametrize("word", ["y", "Y", "yes", "true", "True", "1"])
def test_yes_is_one_for_a_boolean(run, monkeypatch, word):
    schema = {"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}
    asked = []
    tool = tools({"inputSchema": schema})
    with odd(tools_list=tool, tools_call=keeping(asked)) as site:
        for words in (["a=" + word], ["--a", word], ["--a=" + word], ["--a"]):
            assert run("call", site.url, "t", *words)[0] == 0
        no = {"y": "n", "yes": "no", "true": "false", "True": "False", "1": "0"}
        assert run("call", site.url, "t", "--a", no.get(word, "N"), "--no-b")[0] == 0
    assert asked == [{"a": True}] * 4 + [{"a": False, "b": False}]

    form = {"message": "m", "requestedSchema": schema}
    terminal = cli.Terminal({})
    terminal.answers = {"a": [word], "b": ["no"]}
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert terminal.elicit(form) == {"a": True, "b": False}
    monkeypatch.setattr(sys, "stdin", Typed(f"{word}\nn\n{word}\n"))
    assert terminal.elicit(form) == {"a": True, "b": False}
    monkeypatch.setattr(sys, "stdin", Typed(word + "\n"))
    assert terminal.elicit({"message": "m", "requestedSchema": {}}) == {}
    # where a number is meant, or a text, it stays one
    for kinds, wanted in ((["boolean", "integer"], 1), (["boolean", "string"], "1")):
        one = cli.Parameters("t", {"properties": {"a": {"type": kinds}}})
        assert one.read(["a=1"], input) == {"a": wanted}


COUNTER = """
from mcp_ref import Context, Server
server = Server("counter")
count = 0

@server.tool
def add(n: int = 1) -> int:
    "Add."
    global count
    count += n
    server.changed("tools")
    return count

@server.tool
def rename(ctx: Context) -> str:
    return str(ctx.elicit("Who?", name=str)["content"]["name"])

server.run()
"""


def shell(tmp_path, lines):
    put(tmp_path / "counter.py", COUNTER)
    words = ["shell", "--env", "PYTHONPATH", str(tmp_path / "counter.py")]
    return forked_command(*words, text=textwrap.dedent(lines))


def test_the_shell_keeps_one_connection(tmp_path):
    found = shell(
        tmp_path,
        """
        help
        call add n=2
        # a comment
        call --json add n=3

        call nothing
        call add n=x
        login
        call 'add
        list --trace
        call --answer name=Ann rename
        list
        listen tools nobody://knows
        call add
        ping
        """,
    )
    out = found.stdout
    assert out.startswith("Each line is a command") and "\n2\n" in out, found
    assert '"result": 5' in out and "\nAnn\n" in out and "add(n: int = 1)" in out
    assert out.index("\nTools:") < out.index("\n6\n") < out.index("answered in")
    errors = [line for line in found.stderr.splitlines() if "mcp_cli.py: " in line]
    words = ["no tool 'nothing'", "must be int", "login", "quotation", "--trace"]
    assert len(errors) == len(words)
    assert all(word in line for word, line in zip(words, errors))
    assert found.returncode == 2
    assert "does not announce changes of nobody://knows" in found.stderr


def test_the_shell_tells_of_changes_when_they_come(tmp_path):
    put(tmp_path / "counter.py", COUNTER)
    with subprocess.Popen(
        [*COMMAND, "shell", "--all-env", str(tmp_path / "counter.py")],
        text=True,
        env={**os.environ, "PYTHONPATH": str(MCP_REF.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        process.stdin.write("listen tools\ncall add\n")
        process.stdin.flush()
        is_told = "changed: tools\n" in process.stderr  # reads up to this line
        timer.cancel()
        process.stdin.close()
    assert is_told and process.returncode == 0


def test_the_shell_ends_with_its_input(tmp_path):
    found = shell(tmp_path, "quit\ncall nothing\n")
    assert (found.returncode, found.stdout) == (0, ""), found
    assert shell(tmp_path, "").returncode == 0


@contextlib.contextmanager
def at_terminal(tmp_path, *words):
    """Run the command at a terminal; yield its process, a function that types, and one
    that waits until words have been said."""
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    said = b""

    def until(*words):
        nonlocal said
        for word in words:
            while word not in said:
                assert select.select([master], [], [], PATIENCE)[0], said
                said += os.read(master, 1000)
            said = said[said.index(word) + len(word) :]

    environment = {"PYTHONPATH": str(MCP_REF.parent), "TERM": "dumb"}
    with subprocess.Popen(
        [*COMMAND, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **environment, "HOME": str(tmp_path)},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(slave)
        try:
            yield process, lambda typed: os.write(master, typed), until
        finally:
            process.kill()
            os.close(master)


@needs_posix
@parametrize("end", ["\x04", "quit\n", "TERM"])
def test_the_shell_at_a_terminal(tmp_path, end):
    """It completes names, asks questions, and survives Ctrl-C."""
    readline = pytest.importorskip("readline")
    if "pyrepl" in (readline.__doc__ or ""):
        pytest.skip(
            "the readline of PyPy is written in Python, and completes otherwise"
        )
    put(tmp_path / "counter.py", COUNTER)
    words = ["shell", "--env", "PYTHONPATH", str(tmp_path / "counter.py")]
    with at_terminal(tmp_path, *words) as (process, type_in, until):
        until(b"Connected to counter", b"mcp> ")
        type_in(b"call ad\tn\t5\n")
        until(b"call add ", b"n=5", b"\n5", b"mcp> ")
        # A signal that comes just before the wait for a line does not end that wait. So
        # a line follows each: after it, Python looks for signals in any case.
        for typed in (b"\x03\n", b"Ann\n"):
            type_in(b"call rename\n")
            until(b"(str): ")
            type_in(typed)
            until(b"\nAnn" if typed == b"Ann\n" else b"mcp> ")
        until(b"mcp> ")
        if end == "TERM":
            process.terminate()
        type_in(b"\n" if end == "TERM" else end.encode())
        assert process.wait(PATIENCE) == (130 if end == "TERM" else 0)
    assert not [path for path in tmp_path.iterdir() if "history" in path.name]


def test_a_question_waits_while_the_shell_waits_for_a_line(monkeypatch, capsys):
    """Or the line would be its answer; and then it is asked before the next line."""
    terminal, asked = cli.Terminal({}), queue.Queue()
    monkeypatch.setattr(sys, "stdin", mock.Mock(isatty=lambda: True))
    monkeypatch.setattr(terminal, "ask", lambda text: asked.put(text) or "x")
    form = {"message": "m", "requestedSchema": {"properties": {"a": {}}}}
    with terminal.prompting():
        question = begin(terminal.elicit, form)
        while "press Enter" not in capsys.readouterr().err:
            pass
        with pytest.raises(queue.Empty):
            asked.get(timeout=0.03)
    with terminal.prompting():
        assert question.result(PATIENCE) == {"a": "x"} and asked.get(timeout=PATIENCE)


# ======== Serving a file's functions

# Both kinds of file print, and read their input, before anything else.
NOISE = "import os, sys\nos.system('echo x')\nprint('y')\nassert not os.read(0, 9)\n"
PROGRAM = NOISE + (
    "from mcp_ref import Server\nserver = Server('s')\n@server.tool\ndef a(): 'A.'\n"
)
FUNCTIONS = NOISE + (
    "from beside import *\nfrom os.path import join\nimport asyncio\n"
    "assert not sys.stdin.read()\n"
    "def g(x: int):\n    'G.'\n    asyncio.run(None)\n"
    "def _h(): 'H.'\ndef main(): server.run()\nclass C: pass\ni = len\n"
    "assert __name__ != '__main__' and sys.argv == [__file__]\n"
)
UNFIT = (
    "from typing import Iterator\ndef rows(x: Iterator[int]): ...\n"
    "def every(*args): ...\n"
)
WRAPPED = "import functools\n@functools.lru_cache\ndef cached(x: int): 'C.'\n"
IS_MAIN = "if __name__ == '__main__':\n    "
OWN = "makes its own server: run it with `python3 "


@parametrize(
    "name, source, status, tools, said",
    [
        # The file is imported, under its own name, and its public functions are served.
        *[
            (name, FUNCTIONS + IS_MAIN + "1 / 0", 0, "g", "")
            for name in ("given.py", "json.py", "__main__.py", "my.server.py")
        ],
        # A file that serves during its import keeps its own options.
        *[
            ("given.py", PROGRAM + more, status, "a", "")
            for more, status in (
                ("server.run()", 0),
                ("server.run(); sys.exit(3)", 3),
                ("server.run_here()", 0),
                ("import mcp_ref; mcp_ref.serve_stdio(server)", 0),
            )
        ],
        ("given.py", "from beside import server\nserver.run()", 0, "other", ""),
        # Any other program is never served.
        *[
            ("given.py", source, 2, "", OWN)
            for source in (
                PROGRAM,
                PROGRAM + IS_MAIN + "server.run()",
                PROGRAM + "def b(): 'Not a tool.'",
                PROGRAM + "def main(): server.run(authorize=print)",
                PROGRAM + "assert server.call('a')",
                "from beside import server\ndef b(): 'Not a tool.'",
                "import mcp_ref\nclass Mine(mcp_ref.Server): pass\nMine('s')",
            )
        ],
        # One that has an endpoint of its own serves it elsewhere.
        ("given.py", PROGRAM + "import mcp_ref; mcp_ref.Endpoint(server)", 0, "", ""),
        ("given.py", "def main(): 'Makes it later.'", 2, "", "no function"),
        ("given.py", PROGRAM + "sys.exit(4)", 4, "", ""),
        ("given.py", PROGRAM + "1 / 0", 1, "", "ZeroDivisionError"),
        ("given.py", "def _f(): 'Private.'", 2, "", "no function"),
        # A function that cannot be a tool is left out; a wrapper of a function is one.
        ("given.py", UNFIT + FUNCTIONS, 0, "g", "rows(): "),
        ("given.py", WRAPPED, 0, "cached", ""),
    ],
)
def test_the_command_serves_a_file(name, source, status, tools, said, tmp_path):
    other = "def other(): 'Imported.'\n" if "g(x" in source else ""
    put(tmp_path / "beside.py", other or PROGRAM.replace("a()", "other()"))
    put(tmp_path / name, source)
    words = ["serve", str(tmp_path / name)]
    done = forked_command(*words, text=json.dumps(modern("tools/list")))
    assert done.returncode == status and bool(done.stdout) == bool(tools), done.stderr
    assert said in done.stderr
    if "print('y')" in source:
        assert "y" in done.stderr.split()
    if tools:
        result = json.loads(done.stdout)["result"]
        assert [tool["name"] for tool in result["tools"]] == [tools]


@needs_posix
@parametrize("number, status", [(signal.SIGINT, 0), (signal.SIGTERM, 3)])
def test_a_program_that_the_command_serves_has_its_cleanup(number, status, tmp_path):
    put(
        tmp_path / "given.py",
        PROGRAM
        + textwrap.dedent("""
            try:
                server.run(authorize=lambda headers: None)
            finally:
                print("closed", *sys.argv[1:], flush=True)
        """)
        + "sys.exit(3)" * bool(status),
    )
    words = ["serve", tmp_path / "given.py", "--help"]  # this is the program's own
    with listening("-c", CLI, *words) as (child, url):
        port = int(re.search(r"//127\.0\.0\.1:(\d+)/", url)[1])
        assert exchange(port, "POST", "/mcp", {})[0] == 401
        child.send_signal(number)
        assert status_of(child, number.name) == status
        assert child.stdout.read().endswith("closed --help --http 0\n")


@needs_posix
@parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_served_functions_end_with_a_signal(number, tmp_path):
    put(tmp_path / "given.py", "def f(): 'F.'")
    with listening("-c", CLI, "serve", tmp_path / "given.py") as (child, _):
        child.send_signal(number)
        assert status_of(child, number.name) == 0


@parametrize(
    "words, keyword",
    [
        ("serve", "missing"),
        ("serve --http 0", "missing"),
        ("serve none.py", "none.py"),
        ("serve text.txt", "text.txt"),
        ("serve empty.py", "empty.py"),
        ("serve run.py --http", "PORT"),
        ("serve run.py --http x", "PORT"),
        ("serve run.py --http 127.0.0.1:99999", "PORT"),
        ("serve own.py --http 0", "python3 own.py"),
    ],
)
def test_a_wrong_line_of_serve_is_named(words, keyword, tmp_path):
    put(tmp_path / "empty.py", "_x = len")
    put(tmp_path / "text.txt", PROGRAM)
    put(tmp_path / "run.py", "def f(): 'F.'")
    put(tmp_path / "own.py", "import mcp_ref; server = mcp_ref.Server('s')")
    done = forked_command(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert keyword in done.stderr


@needs_posix
@parametrize("closed", ["<&-", ">&-", "<&- >&-", "2>&-"])
def test_a_file_is_imported_without_some_descriptors(closed, tmp_path):
    """Some hosts close them. The file's own descriptors then have other numbers."""
    put(
        tmp_path / "given.py",
        "import os\nnull = os.open(os.devnull, os.O_RDWR)\nassert null > 2\n"
        "print('y')\ndef f(): 'F.'\n",
    )
    words = shlex.join([*COMMAND, "serve", str(tmp_path / "given.py")])
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"],
        input=json.dumps(modern("tools/list")).encode(),
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert bool(done.stdout) == (closed == "2>&-") and b"Traceback" not in done.stderr
    assert b"y" not in done.stdout.split()


def test_the_help_names_serve(capsys):
    for words in (["--help"], ["serve", "--help"]):
        assert cli.main(words) == 0
        assert "serve FILE.py" in capsys.readouterr().out


# ---- what comes from a server, and goes to a terminal

# Controls, C1, directions, line separators, and what is invisible.
EVIL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
EVIL += list("\u00ad\u061c\u180e\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d")
EVIL += list("\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\ufff9\U000e0001\U000e0041")
EVIL.remove("\n")
EVIL.remove("\t")
# Invisible, although Python calls them printable: the command escapes them, too.
HIDDEN = list("\u034f\u115f\u1160\u17b4\u180b\u180f\u3164\uffa0\ufe00\ufe0e\ufe0f")
HIDDEN += ["\U000e0100", "\U000e01ef"]


def asks(form):
    """Make a function that asks first, and then has a result."""
    question = {"method": "elicitation/create", "params": form}

    def answer(params):
        if "inputResponses" in params:
            return text(json.dumps(params["inputResponses"]))
        return {"resultType": "input_required", "inputRequests": {"q": question}}

    return answer


@parametrize("verb", "list call read prompt complete info request help".split())
@parametrize("fails", [False, True])
def test_nothing_of_a_server_reaches_the_terminal_as_it_is(run, verb, fails):
    bad = "x" + "".join(EVIL + HIDDEN) + "y"
    member = {"type": "string", "description": bad, "title": bad, "enum": [bad]}
    schema = {"properties": {bad: member}, "required": [bad]}
    tool = {"name": "t", "title": bad, "description": bad, "inputSchema": schema}
    results = {
        "tools_list": {"tools": [tool, {"name": bad}, {"description": bad}]},
        "prompts_list": {
            "prompts": [{"name": "p", "description": bad, "arguments": [{"name": bad}]}]
        },
        "resources_list": {"resources": [{"name": bad, "uri": bad}]},
        "tools_call": text(bad),
        "resources_read": {"contents": [{"uri": bad, "mimeType": bad, "text": bad}]},
        "prompts_get": {"messages": [{"role": bad, "content": {"type": bad}}]},
        "completion_complete": {"completion": {"values": [bad]}},
        "x_y": {bad: bad},
    }
    words = {
        "list": ["list"],
        "call": ["call", "t", "{}"],
        "help": ["call", "t", "--help"],
        "read": ["read", "x:y"],
        "prompt": ["prompt", "p", "{}"],
        "complete": ["complete", "p", "a="],
        "info": ["info"],
        "request": ["request", "x/y"],
    }[verb]
    if fails:
        wrong = (-32603, bad)
        results = dict.fromkeys(results, wrong)
    with odd(**results) as site:
        status, out, err = run(words[0], site.url, *words[1:])
    assert out + err and not set(EVIL + HIDDEN) & set(out + err)
    assert "\\x1b" in out + err or verb == "info" or (verb, fails) == ("request", False)


def test_the_question_of_a_server_is_clean(run, monkeypatch):
    bad = "x" + "".join(EVIL + HIDDEN) + "y"
    fields = {bad: {"type": "string", "title": bad, "description": bad, "default": bad}}

    for form in (
        {"mode": "form", "message": bad, "requestedSchema": {"properties": fields}},
        {"mode": "url", "message": bad, "url": "https://example.org/"},
        {"mode": "url", "message": "x", "url": "https://example.org/" + bad},
    ):
        monkeypatch.setattr(sys, "stdin", Typed("\n\n\n"))
        with odd(tools_list=tools({}), tools_call=asks(form)) as site:
            _, out, err = run("call", site.url, "t", "{}")
        assert out + err and not set(EVIL + HIDDEN) & set(out + err)


HOSTILE = r"""
import json, sys
bad = json.loads(sys.argv[1])
results = {
    "server/discover": {"supportedVersions": ["{NEWEST}"], "capabilities": {bad: {}}},
    "tools/list": {"tools": [{"name": bad, "description": bad}]},
    "tools/call": {"content": [{"type": "text", "text": bad}, {"type": bad}]},
}
for line in sys.stdin:
    message = json.loads(line)
    answer = {"error": {"code": -32000, "message": bad}}
    if message["method"] in results and sys.argv[2:]:
        answer = {"result": {"resultType": "complete", **results[message["method"]]}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
""".replace("{NEWEST}", NEWEST)


PROGRAMS = [["course/00_client_by_hand.py", "t", "{}"], ["extensions/oauth.py"]]
PROGRAMS += [["vectors/run.py", "--revisions", NEWEST, "--only", "tools"]]


@parametrize("program", PROGRAMS, ids=lambda words: words[0])
@parametrize("more", ["", "works"])
def test_nothing_of_a_server_reaches_the_terminal_by_other_programs(program, more):
    bad = "x" + "".join(EVIL) + "y"
    target = [*PYTHON, "-c", HOSTILE, json.dumps(bad), *more.split()]

    def answer(verb: str, headers: dict, method: str, text: str):
        yield http_answer(500 if more else 400, {}, f"<title>{bad}</title>")

    with answering(answer) as site:
        words = [str(HERE / "examples" / program[0]), *program[1:]]
        done = command(*words, *([site.url] if "oauth" in words[0] else target))
    said = done.stdout + done.stderr
    assert "\\u202e" in said and not set(EVIL) & set(said)
    assert "HttpError" not in said


@parametrize("evil", EVIL + HIDDEN)
def test_the_tabulator_completes_plain_names(evil):
    shell = object.__new__(cli.Shell)
    names = [f"a{evil}", "plain"]
    shell.client = mock.Mock(list_tools=lambda: [{"name": name} for name in names])
    shell.names = {}
    assert shell.possible(["call"]) == ["plain"]


def test_the_tabulator_looks_at_each_name_once(monkeypatch):
    """Readline asks for the words one by one."""
    line = mock.Mock(get_line_buffer=lambda: "call ", get_begidx=lambda: 5)
    monkeypatch.setitem(sys.modules, "readline", line)
    looks = mock.Mock(side_effect=cli.clean)
    monkeypatch.setattr(cli, "clean", looks)
    names = [f"tool{number}" for number in range(1000, 1300)]
    shell = object.__new__(cli.Shell)
    shell.client = mock.Mock(list_tools=lambda: [{"name": name} for name in names])
    shell.names = {}
    for _ in range(2):  # it is pressed twice
        words = itertools.takewhile(
            bool, map(shell.complete, itertools.repeat(""), itertools.count())
        )
        assert list(words) == [name + " " for name in names]
    assert len(looks.mock_calls) == len(names)
    assert shell.complete("tool1299", 0) == "tool1299 " and not shell.complete("x", 0)


def test_a_text_is_decoded_within_the_bounds_of_a_message(monkeypatch):
    """Decoded, empty lists take 28 times their text."""
    monkeypatch.setattr(cli.mcp_ref, "MAX_VALUES", 10)
    assert cli.says("[[], [], []]", [[]] * 3)
    assert not cli.says(json.dumps([[]] * 9), [[]] * 9)
    assert not cli.says("\ud800", 1)


def test_text_of_all_scripts_is_printed_as_it_is():
    kept = "\u00e9 \u6f22\u3000\u5b57 \u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f467 a\u00a0b\r\n\tc\n"
    kept += "\u26a0\ufe0f \xa9\ufe0f 1\ufe0f\u20e3 \U0001f3f3\ufe0f"  # emojis
    assert cli.clean(kept) == kept


# ---- answers for questions


def value_of(kind):
    return {"message": "m", "requestedSchema": {"properties": {"value": kind}}}


def test_answers_are_taken_in_the_order_of_the_questions(run):
    forms = iter([value_of({"type": "string"}), value_of({"type": "integer"})])
    got = []

    def answer(params):
        for one in params.get("inputResponses", {}).values():
            got.append(one.get("content", one))
        with contextlib.suppress(StopIteration):
            question = {"method": "elicitation/create", "params": next(forms)}
            return {"resultType": "input_required", "inputRequests": {"q": question}}
        return text("done")

    with odd(tools_list=tools({}), tools_call=answer) as site:
        given = [f"--answer=value={one}" for one in ("a", "2", "left")]
        status, _, err = run("call", *given, site.url, "t")
    assert (status, got) == (0, [{"value": "a"}, {"value": 2}])
    assert "'value': left" in err


def test_a_list_takes_all_answers(run, monkeypatch):
    field = {"type": "array", "items": {"type": "string"}}
    for is_person in (False, True):
        stdin = mock.Mock(isatty=lambda is_person=is_person: is_person)
        monkeypatch.setattr(sys, "stdin", stdin)
        with odd(tools_list=tools({}), tools_call=asks(value_of(field))) as site:
            given = ["--answer=value=a,b", "--answer", "value=c"]
            status, out, err = run("call", *given, site.url, "t", "{}")
        assert json.loads(out)["q"]["content"] == {"value": ["a,b", "c"]}, err


@parametrize("given, action", [(["action=accept"], "accept"), ([], "decline")])
def test_an_empty_form_can_be_accepted_without_a_terminal(run, given, action):
    form = {"message": "m", "requestedSchema": {"properties": {}}}
    with odd(tools_list=tools({}), tools_call=asks(form)) as site:
        words = [f"--answer={one}" for one in given]
        _, out, err = run("call", *words, site.url, "t", "{}")
    assert json.loads(out)["q"]["action"] == action
    assert ("--answer action=accept" in err) == (action == "decline")


# ---- what a user is told, and what is taken


def test_the_data_of_an_error_is_shown(run):
    with odd(x_y=(7, "no", {"reason": "the disk is full"})) as site:
        status, _, err = run("request", site.url, "x/y")
    assert status == 4 and "error 7: no" in err and "the disk is full" in err


@parametrize("way", ["plain", "lines", "unpadded", "for URLs", "data:", "wrong"])
def test_base64_is_saved_as_servers_write_it(tmp_path, run, way):
    content = bytes(range(256)) + b"\xff"
    code = base64.b64encode(content).decode()
    data = {
        "plain": code,
        "lines": re.sub("(.{60})", r"\1\r\n", code) + "\n",
        "unpadded": code.rstrip("="),
        "for URLs": base64.urlsafe_b64encode(content).decode(),
        "data:": f"data:image/png;base64,{code}",
        "wrong": code + "!",
    }[way]
    block = {"type": "image", "data": data, "mimeType": "image/png"}
    place = tmp_path / "x"
    with odd(tools_list=tools({}), tools_call={"content": [block]}) as site:
        status, _, err = run("call", "--output", str(place), site.url, "t")
    if way == "wrong":
        assert status == 4 and "base64" in err and not place.exists()
    else:
        assert status == 0 and place.read_bytes() == content


MEMBER = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
OTHER = {"properties": {"s": {}}}
CLOSED = {"additionalProperties": False}


@parametrize(
    "schema, signature",
    [
        ({"$ref": "#/$defs/A", "$defs": {"A": MEMBER}}, "t(n: int)"),
        ({"allOf": [MEMBER, OTHER], **CLOSED}, "t(n: int, s?: any)"),
        ({"anyOf": [MEMBER, OTHER]}, "t(n?: int, s?: any)"),
        ({"oneOf": [MEMBER, MEMBER]}, "t(n?: int)"),
        ({"patternProperties": {"^x": {}}, **CLOSED}, "t()"),
    ],
)
def test_a_schema_that_combines_others_shows_what_is_known(run, schema, signature):
    asked = []
    with odd(
        tools_list=tools({"inputSchema": {"type": "object", **schema}}),
        tools_call=keeping(asked),
    ) as site:
        assert signature in run("list", site.url)[1]
        assert run("call", site.url, "t", "n=5")[0] == 0
        assert run("call", site.url, "t", '{"n": 5}')[0] == 0
    assert asked == [{"n": 5}] * 2


@parametrize(
    "target, hint",
    [
        ("npx -y some-server", "-- npx -y some-server"),
        ("~/server.py", "home/server.py?"),
        ("localhost:8000/mcp", "http://localhost:8000/mcp"),
        ("--proxy|socks5://h:1|http://localhost:1/mcp", "SOCKS"),
        ("--config|f.json|a", "no table of servers"),
        ("--config|nothing.json|a", "no such file"),
    ],
)
def test_a_target_that_is_none_has_a_hint(home, run, target, hint):
    put(home / "project" / "f.json", '{"something": {"a": {"command": "x"}}}')
    status, _, err = run("list", *target.split("|"))
    assert status == 2 and hint in err


@parametrize("host", ["vscode", "claude", "gemini", ""])
def test_only_vs_code_expands_a_tilde(host, home):
    raw = {"command": "~/x", "args": ["~/y", "a~b", "~"], "cwd": "~/z"}
    said = []
    found = entry_from(raw, host).expanded(problem=said.append)
    if host == "vscode":
        me = os.path.expanduser("~")
        assert found.command == [f"{me}/x", f"{me}/y", "a~b", me]
        assert (found.cwd, said) == (f"{me}/z", [])
    else:
        assert (found.command, found.cwd) == (["~/x", "~/y", "a~b", "~"], "~/z")
        assert len(said) == 3 and "VS Code" in said[0]


def test_an_entry_of_type_sse_is_used_so(home, run):
    asked = []

    def play(verb, headers, message):
        asked.append(verb)
        yield http_answer(405, {}, "no")

    with contextlib.closing(Site(play)) as site:
        entry = {"type": "sse", "url": site.url}
        put(home / "f.json", json.dumps({"mcpServers": {"a": entry}}))
        assert run("list", "--config", str(home / "f.json"), "a")[0] == 3
    assert asked == ["GET"]


def test_headers_of_a_file_and_of_the_command_line_are_merged(home, run):
    seen = []

    def play(verb, headers, message):
        seen.append(headers.get("authorization"))
        yield http_answer(404, {}, "no")

    with contextlib.closing(Site(play)) as site:
        entry = {"url": site.url, "headers": {"authorization": "theirs"}}
        put(home / "f.json", json.dumps({"mcpServers": {"a": entry}}))
        words = ["--config", str(home / "f.json"), "--header", "Authorization: mine"]
        assert run("list", *words, "a")[0] == 3
        assert set(seen) == {"mine"}
        status, _, err = run("list", "--header", "accept: text/html", site.url)
        assert status == 2 and "accept" in err


@parametrize("failure", [500, None])
def test_a_call_needs_no_list(run, monkeypatch, failure):
    monkeypatch.setattr(client, "CALL_SECONDS", 1)
    with odd(tools_list=failure, tools_call=text("done")) as site:
        status, out, _ = run("call", "--timeout", "1", site.url, "t", "a=1")
    assert (status, out) == (0, "done\n")


@parametrize("choices, sent", [([1, 2], 1), ([True], True), ([0.5], 0.5), (["1"], "1")])
def test_a_choice_without_a_type_is_sent_as_what_it_is(run, choices, sent):
    asked = []
    schema = {"properties": {"a": {"anyOf": [{"enum": choices}, {"type": "null"}]}}}
    tool = tools({"inputSchema": schema})
    with odd(tools_list=tool, tools_call=keeping(asked)) as site:
        given = json.dumps(sent).strip('"')
        assert run("call", site.url, "t", f"a={given}")[0] == 0
    assert asked == [{"a": sent}] and type(asked[0]["a"]) is type(sent)


def test_two_json_objects_are_not_merged_in_silence(run):
    with odd(tools_list=tools({}), tools_call=text("x")) as site:
        status, _, err = run("call", site.url, "t", '{"a": 1}', '{"b": 2}')
    assert status == 2 and "one JSON object" in err
