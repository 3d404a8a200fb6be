"""Tests of mcp_cli.py and host_files.py."""

# What has no types here is not checked; the rest must be right.
# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs, implicit-reexport
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-any-generics
# mypy: disable-error-code="union-attr, index, var-annotated, operator, misc"
# mypy: disable-error-code="assignment, return-value, dict-item, no-any-return"

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_mcp_ref import HERE, load, parametrize

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
    found = {
        entry.name: entry.expanded()
        for place in host_files.places()
        if place.path.is_file() and place.path.suffix != ".toml"
        for entry in host_files.read(place.path, said.append, place.host, place.scope)
    }
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
    # the user's before the folder's
    assert [place.scope for place in found] == sorted(
        (place.scope for place in found), reverse=True
    )
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
        ('{"a": "sesame" "b"}', "delimiter: line 1"),
        ("", "Expecting value"),
        ("[]", "object"),
        ("[" * 100_000, "recursion|depth|nest|Expecting"),
        (b"\xff\xfe\xff", "decode"),
        ("/*" * 50_000, "Expecting"),
        ('{"a": ' + "," * 50_000, "Expecting"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, text, line):
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
    (entry,) = host_files.entries({"mcpServers": {"a": raw}}, Path("f.json"))
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
    (entry,) = host_files.entries({"servers": {"a": raw}}, Path("f.json"))
    said = []
    found = entry.expanded(problem=said.append)
    assert found.command == ["1", "12", "3", "${C}", "$A", "own 1", "${1}"]
    assert found.env == {"F": "f g", "G": "", "OWN": "own 1", "A2": "1"}
    assert found.cwd == f"{Path.cwd()}/1"
    assert len(said) == 2 and "C is not set" in said[0]

    remote = {"url": "https://${A}/${B:-}", "headers": {"X": "${A}", "Y": "${C}"}}
    (entry,) = host_files.entries({"servers": {"a": remote}}, Path("f.json"))
    with pytest.raises(host_files.HostFileError, match="variable C: set it"):
        entry.expanded()
    found = entry.expanded({"A": "host", "C": "c"})
    assert (found.url, found.headers) == ("https://host/", {"X": "host", "Y": "c"})
    # Gemini has another spelling, too
    content = {"mcpServers": {"a": {"command": "$A", "args": ["$C"]}}}
    (entry,) = host_files.entries(content, Path("f.json"), host="gemini")
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
