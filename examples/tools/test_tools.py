"""Tests of config, check, tap, reload and walk.py."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import runpy
import socket
import stat
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import pytest
from testing.places import COURSE, Forked, OPENING, TOOLS, called, command, draw, said
from testing.scripts import (
    NEWEST,
    NEWEST_LEGACY,
    OLDEST,
    PATIENCE,
    POSIX,
    PRELOADED,
    PYTHON,
    Site,
    begin,
    client,
    exchange,
    http_answer,
    http_serving,
    load,
    mcp,
    needs_posix,
    parametrize,
    request_to,
)

config = load("config", TOOLS / "config.py")
check = load("check", TOOLS / "check.py")
reload = load("reload", TOOLS / "reload.py")
tap = load("tap", TOOLS / "tap.py")
walk = load("walk", TOOLS / "walk.py")
walk_page = sys.modules["walk_page"]
PRELOADED[__name__] = None
HELLO = str(COURSE / "01_hello_server.py")


def tool(program, *words, **options):
    """Call a tool; return its status, output and stderr."""
    done = called(program, *words, **options)
    return done.returncode, done.stdout, done.stderr


@parametrize("name", ["config.py", "check.py", "tap.py", "reload.py", "walk.py"])
def test_a_tool_is_a_command_that_explains_itself(name):
    done = command(str(TOOLS / name), "--help")
    assert (done.returncode, done.stderr) == (0, "") and name in done.stdout


# ======== What to paste


def blocks(out):
    """Return the JSON values in what config.py printed, by their text's first line."""
    found = {}
    heads = []
    decoder = json.JSONDecoder()
    lines = out.splitlines(keepends=True)
    while lines:
        line = lines.pop(0)
        if line.startswith("#"):
            heads.append(line)
        elif line.startswith("{"):
            value, end = decoder.raw_decode(text := line + "".join(lines))
            lines = text[end:].splitlines(keepends=True)
            for head in heads:
                found[head[2:].partition(":")[0]] = value
            heads = []
        elif line.startswith("["):
            rest = "".join(lines)
            found["Codex"] = line + rest
            lines = []
    return found


URL = "https://user:pw@mcp.example.com/s/SESAME/mcp?key=SESAME"


def test_a_url_is_written_as_each_host_wants_it():
    status, out, err = tool(config, URL)
    assert status == 0 and out.isascii() and not err
    found = blocks(out)
    name = "mcp-example-com"  # nothing that may be secret
    for host in ("Claude Code", "Cursor", "Gemini CLI"):
        assert found[host] == {"mcpServers": {name: {"type": "http", "url": URL}}}
    assert found["VS Code"] == {"servers": {name: {"type": "http", "url": URL}}}
    assert found["Windsurf"] == {"mcpServers": {name: {"serverUrl": URL}}}
    assert found["Zed"] == {"context_servers": {name: {"url": URL}}}
    assert found["Crush"] == {"mcp": {name: {"type": "http", "url": URL}}}
    assert found["Amp"] == {"amp.mcpServers": {name: {"url": URL}}}
    assert found["opencode"] == {"mcp": {name: {"type": "remote", "url": URL}}}
    bridge = found["Claude Desktop"]["mcpServers"][name]
    assert bridge["args"][-1] == URL and "mcp-remote" in out
    assert found["Codex"].split() == [f"[mcp_servers.{name}]", "url", "=", f'"{URL}"']


def test_a_file_of_functions_is_served_by_the_command(tmp_path):
    (tmp_path / "given.py").write_text("def seven() -> int: return 7\n")
    found = blocks(tool(config, str(tmp_path / "given.py"))[1])
    entry = found["Claude Code"]["mcpServers"]["given"]
    assert Path(entry["args"][0]).name == "mcp_cli.py"
    with client.connect([entry["command"], *entry["args"]]) as one:
        assert one.call_tool("seven")["structuredContent"] == {"result": 7}


def test_each_hosts_file_is_named_on_each_system():
    out = tool(config, HELLO, "hello")[1]
    for path in (
        "~/.claude.json",
        ".mcp.json",
        r"%APPDATA%\Claude\claude_desktop_config.json",
        "~/Library/Application Support/Code/User/mcp.json",
        r"%USERPROFILE%\.codex\config.toml",
        ".gemini/settings.json",
        "~/.config/zed/settings.json",
        r"%APPDATA%\zed\settings.json",
        ".amp/settings.json",
    ):
        assert path in out
    found = blocks(out)
    assert "type" not in found["Claude Code"]["mcpServers"]["hello"]
    assert found["VS Code"]["servers"]["hello"]["type"] == "stdio"
    assert found["Crush"]["mcp"]["hello"]["type"] == "stdio"
    assert found["Zed"]["context_servers"]["hello"]["source"] == "custom"
    words = [sys.executable, HELLO]
    assert found["opencode"]["mcp"]["hello"] == {"type": "local", "command": words}
    assert found["Copilot CLI"]["mcpServers"]["hello"]["tools"] == ["*"]


@parametrize(
    "name", ["my server", 'a"b', "a.b", "a'b", "\u2603", "a\\b", "a]b", "x" * 99]
)
def test_a_name_is_right_in_toml(name):
    text = config.text_of("codex", name, {"command": "a\\b"})
    assert text.isascii()
    if sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads(text) == {"mcp_servers": {name: {"command": "a\\b"}}}


def test_a_name_that_hosts_refuse_is_said():
    status, out, err = tool(config, HELLO, "my server")
    assert status == 0 and "64" in err and '[mcp_servers."my server"]' in out


@parametrize(
    "target, name",
    [
        ("http://127.0.0.1:8000/mcp", "127-0-0-1-8000"),
        ("https://x.example/?token=SESAME", "x-example"),
        ("https://SESAME@x.example/", "x-example"),
        ("http://[::1]:80/", "1-80"),
        ("/a/b c/my tools.py", "my-tools"),
        ("\u2603.py", "server"),
    ],
)
def test_a_name_is_made_of_what_is_not_secret(target, name):
    assert config.name_of(target) == name


@pytest.fixture
def home(tmp_path):
    """The environment of a home folder, in which there is a project."""
    (tmp_path / "project").mkdir()
    names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "XDG_CONFIG_HOME")
    return {
        "HOME": str(tmp_path),
        "USERPROFILE": str(tmp_path),
        "APPDATA": str(tmp_path / "Roaming"),
        **dict.fromkeys(names, ""),
    }


ENTRY_OF = functools.lru_cache(config.entry_of)  # a process imports the file


def write(home, *words):
    folder = Path(home["HOME"]) / "project"
    with mock.patch.object(config, "entry_of", ENTRY_OF):
        return tool(config, "--write", *words, cwd=folder, **home)


def test_an_entry_is_put_beside_the_others_and_the_old_file_is_kept(home, tmp_path):
    path = tmp_path / ".claude.json"
    before = '{\n    "x": [1.0, "\\u2603\u2603"],\n    "mcpServers": {"a": {"command": "b"}}\n}'
    path.write_text(before, "utf-8")
    path.chmod(0o640)
    status, out, err = write(home, "claude", HELLO, "it")
    assert status == 1 and "--yes" in err and '+        "it": {' in out
    assert path.read_text("utf-8") == before
    for _ in "ab":
        assert write(home, "claude", "--yes", HELLO, "it")[0] == 0
    content = json.loads(path.read_text("utf-8"))
    assert list(content["mcpServers"]) == ["a", "it"] and content["x"] == [1.0, "☃☃"]
    assert content["mcpServers"]["it"]["args"] == [HELLO]
    assert '\n    "x"' in path.read_text("utf-8")
    (kept,) = tmp_path.glob("*.bak")
    assert kept.read_text("utf-8") == before
    if os.name == "posix":
        assert {stat.S_IMODE(one.stat().st_mode) for one in (path, kept)} == {0o640}
    # where there is none, one is made
    files = {"vscode": ".vscode/mcp.json", "gemini": ".gemini/settings.json"}
    for host, file in files.items():
        assert write(home, host, "--project", "--yes", URL)[0] == 0
        written = json.loads((tmp_path / "project" / file).read_text())
        assert URL in json.dumps(written)
    assert write(home, "windsurf", "--project", "--yes", URL)[0] == 1


@parametrize(
    "text, said",
    [
        ("{} // a comment", "by hand"),
        ('{"a": 1, "a": 2}', "twice"),
        ("{", "by hand"),
        ("[]", "object"),
        ('{"mcpServers": []}', "object"),
    ],
)
def test_a_file_that_would_lose_something_is_left(home, tmp_path, text, said):
    (tmp_path / ".claude.json").write_text(text)
    status, out, err = write(home, "claude", "--yes", HELLO)
    assert status == 1 and said in err and "Traceback" not in err
    files = [path.name for path in tmp_path.iterdir() if path.is_file()]
    assert files == [".claude.json"]
    assert (tmp_path / ".claude.json").read_text() == text


def test_toml_is_added_at_its_end(home, tmp_path):
    path = tmp_path / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('# mine\n[mcp_servers.a]\ncommand = "b"')
    status, out, err = write(home, "codex", "--yes", HELLO, "my server")
    if sys.version_info < (3, 11):
        assert status == 1 and "3.11" in err
        return
    import tomllib

    assert status == 0 and path.read_text().startswith("# mine\n")
    entry = tomllib.loads(path.read_text())["mcp_servers"]["my server"]
    assert entry["args"] == [HELLO]
    assert "already" in write(home, "codex", "--yes", HELLO, "my server")[1]
    assert write(home, "codex", "--yes", URL, "my server")[0] == 1
    path.write_text("mcp_servers = {}\n")
    assert write(home, "codex", "--yes", HELLO, "x")[0] == 1
    assert path.read_text() == "mcp_servers = {}\n"


def test_what_a_host_has_written_meanwhile_is_left(tmp_path):
    path = tmp_path / "f.json"
    path.write_text("newer")
    with pytest.raises(SystemExit, match="changed"):
        config.replace(path, "older", "ours")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["newer"]


@parametrize("host", config.HOSTS)
def test_what_is_written_for_a_host_is_read_again(home, tmp_path, host):
    if host == "codex" and sys.version_info < (3, 11):
        pytest.skip("to write TOML, Python 3.11 is needed")
    assert write(home, host, "--yes", HELLO, "here")[0] == 0
    assert write(home, host, "--yes", URL, "far")[0] == 0
    folder = tmp_path / "project"
    found = {
        entry.name: entry
        for place in config.host_files.places(folder, home)
        if place.path.is_file()
        for entry in config.host_files.read(place.path, pytest.fail, place.host)
    }
    assert found.keys() == {"here", "far"}
    assert found["here"].host == host
    assert found["here"].command == [sys.executable, HELLO]
    assert URL in (found["far"].url, *found["far"].command)


def test_an_entry_stands_beside_the_table_of_opencode_2(home, tmp_path):
    path = tmp_path / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"mcp": {"timeout": {"catalog": 1}, "servers": {"a": {"type": "remote",'
        ' "url": "https://x/mcp"}}}}'
    )
    assert write(home, "opencode", "--yes", HELLO, "b")[0] == 0
    entries = config.host_files.read(path, pytest.fail)
    assert [entry.name for entry in entries] == ["a", "b"]


@needs_posix
def test_a_link_stays_one(home, tmp_path):
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / ".claude.json").symlink_to(tmp_path / "real.json")
    assert write(home, "claude", "--yes", HELLO)[0] == 0
    assert (tmp_path / ".claude.json").is_symlink()
    assert "mcpServers" in json.loads((tmp_path / "real.json").read_text())


# ======== Playing hosts

# a server of which each test says how it answers
ODD = """
import json, sys
ANSWERS = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        found = ANSWERS.get(message["method"], [])
        found = found.pop(0) if isinstance(found, list) and found else found
        answer = {"result": found} if found != [] else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
SESSION = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
ONLY_NEWEST = {"supportedVersions": [NEWEST], "capabilities": {}}


def odd(**answers):
    """A command for a server; methods are written with _ for /."""
    found = {name.replace("_", "/"): answer for name, answer in answers.items()}
    return [*PYTHON, "-c", ODD, json.dumps(found)]


@needs_posix
@parametrize(
    "answers, wanted",
    [
        # as the official SDK and FastMCP: discovery names the modern revisions only
        ({"server/discover": ONLY_NEWEST, "initialize": SESSION}, False),
        ({"server/discover": ONLY_NEWEST}, True),
        ({"server/discover": {}}, True),
        ({"initialize": SESSION}, False),
        ({}, False),
        ({"server/discover": ONLY_NEWEST, "initialize": {"x": 1}}, True),
    ],
)
def test_initialize_on_a_fresh_process_tells_who_serves_old_hosts(answers, wanted):
    assert check.is_modern_only(odd(**answers)) is wanted


def refused(*tools):
    return list(check.refused(list(tools)))


def test_names_and_schemas_that_hosts_refuse_are_named():
    def one(name="t", **schema):
        return {"name": name, "inputSchema": {"type": "object", **schema}}

    assert refused(one()) == []
    part = {"type": "array", "items": {"type": "string"}}
    good = {"a-b.c_1": {"type": "string"}, "l": part}
    good["d"] = {"default": {"type": "array"}}
    assert refused(one("a_B-9", properties=good)) == []
    for name in ("admin.list", "", "x" * 65, "a b", "\u00e9", 5, None, "a\n"):
        (line,) = refused(one(name))
        assert "name" in line
    for word in ("anyOf", "oneOf", "allOf"):
        assert word in refused(one(**{word: [{}]}))[0]
    for where in (
        {"properties": {"a": {"type": "array"}}},
        {"properties": {"a": {"type": ["array", "null"]}}},
        {"properties": {"a": {"anyOf": [{"type": "array"}]}}},
        {"$defs": {"x": {"items": {"type": "array"}}}},
    ):
        assert "without items" in refused(one(**where))[0]
    for inner in ({"min": 1}, {"not": {"min": 1}}, {"allOf": [{"min": 1}]}):
        for where in ({"a": inner}, {"a": {"dependentSchemas": {"b": inner}}}):
            (line,) = refused(one(properties=where))
            assert "'min' at '/a" in line and "ignored" in line
    data = {
        "const": {"min": 1},
        "x-min": 1,
        "$id": "a:",
        "dependentRequired": {"b": []},
    }
    assert refused(one(properties={"a": data})) == []
    for key in ("a b", "", "$x", "x" * 65, "\u00e9", "a\n"):
        inner = {"properties": {"o": {"properties": {key: {}}}}}
        assert repr(key) in refused(one(**inner))[0]
    for wrong in (5, {"name": "t"}, {"name": "t", "inputSchema": {"type": "string"}}):
        assert len(refused(wrong)) == 1
    deep = {}
    for _ in range(10_000):
        deep = {"items": deep}
    assert refused(one(properties={"a": deep})) == []


@needs_posix
def test_the_check_lists_all_pages_and_prints_nothing_as_it_is():
    evil = {"name": "a\x1b[2J\u202e", "inputSchema": {"type": "object"}}
    rest = [{"name": f"n {n}"} for n in range(30)]
    pages = [{"tools": [evil], "nextCursor": ""}, {"tools": rest}]
    lists = {"tools_list": pages, "prompts_list": {}, "resources_list": {}}
    patient = mock.patch.object(check, "SECONDS", PATIENCE)
    with patient:  # --timeout sets it, too
        words = ["--timeout", str(PATIENCE), "--"]
        status, out, err = tool(check, *words, *odd(initialize=SESSION, **lists))
    careful = [line for line in out.splitlines() if line.startswith("careful")]
    assert "a\\x1b[2J\\u202e" in careful[0] and not {"\x1b", "\u202e"} & {*out}
    assert len(careful) == 21 and "41 more" in careful[-1]


@needs_posix
def test_a_server_cannot_write_to_the_terminal_by_its_flaws():
    script = "input(); print('\\x1b[2J\\u202ex', flush=True); input()"
    status, out, err = tool(check, *PYTHON, "-c", script)
    assert status == 1 and "trouble" in out
    assert "\x1b" not in out + err and "\u202e" not in out + err


# ======== Taps


def records_in(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@contextlib.contextmanager
def tapped(tmp_path, url):
    """Tap a server over HTTP; yield the tap's URL, and what it has recorded so far."""
    with open(tmp_path / "log", "ab") as log, tap.Tap(log.fileno(), 0, url) as one:
        one.daemon_threads = False  # the end waits for what they record
        serving = begin(one.serve_forever, 0.01)
        place = f"http://127.0.0.1:{one.server_address[1]}{one.url.path}"
        try:
            yield place, lambda: records_in(tmp_path / "log")
        finally:
            one.shutdown()
            serving.result(PATIENCE)


@parametrize("version", [NEWEST, NEWEST_LEGACY, OLDEST])
def test_the_tap_records_what_passes_over_http(tmp_path, version):
    heard = []

    def authorize(headers):
        heard.append(headers)
        return "ann"

    server = mcp.Server("tapped")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def steps(ctx: mcp.Context, n: int) -> str:
        for done in range(n):
            ctx.progress(done + 1, n)
        return "done"

    with http_serving(server, authorize=authorize) as httpd:
        with tapped(tmp_path, httpd.url + "?key=sesame") as (url, records):
            secret = {"Authorization": "Bearer sesame", "Cookie": "sesame"}
            options = {"revision": version, "headers": secret, "elicit": lambda _: {}}
            with client.connect(url, **options) as one:
                assert said(one, "add", arguments={"a": 1, "b": 2}) == "3"
                done = []
                one.call_tool("steps", {"n": 2}, on_progress=lambda *_: done.append(_))
                assert len(done) == 2
                with one.listen(["tools"]) as changes:
                    server.changed("tools")
                    assert next(iter(changes)) == "tools"
            found = records()
    assert heard[-1]["authorization"] == "Bearer sesame"
    text = json.dumps(found)
    assert "mcp-session-id" not in text  # whoever has it, has the session
    assert "sesame" not in text and all("on" in one for one in found)
    messages = [one["message"] for one in found if "message" in one]
    calls = [one for one in messages if one.get("method") == "tools/call"]
    answers = {one.get("id") for one in messages if "result" in one}
    assert len(calls) == 2 and {one["id"] for one in calls} <= answers
    assert "What is wrong" in draw(tmp_path / "log")


def test_the_tap_does_not_record_who_has_a_session_of_http_sse(tmp_path):
    with http_serving(mcp.Server("tapped")) as httpd:
        with tapped(tmp_path, httpd.url.replace("mcp", "sse")) as (url, records):
            with open(tmp_path / "own", "ab", 0) as own:
                with client.connect(url, sse=True, record=own) as one:
                    place = one.transport.post_to
            text = json.dumps(records()) + (tmp_path / "own").read_text()
    ident = place.rpartition("=")[2]
    assert len(ident) > 20 and ident not in text and "endpoint" not in text


@parametrize("end", ["\n", "\r\n", "\r"])
@parametrize("place", ["/m/sesame", "/sesame", "/m?id=sesame", "/m?id=sesame\x7f"])
def test_no_session_of_http_sse_is_recorded(tmp_path, place, end):
    """Its path or its query names it, and a line ends in three ways."""
    event = f"data: {place}{end}event: endpoint{end}{end}".encode()

    def answer(verb, headers, message):
        stream = {"Content-Type": "text/event-stream"}
        yield (
            http_answer(202, {})
            if verb == "POST"
            else (http_answer(200, stream, event.decode("latin-1")))
        )

    with contextlib.closing(Site(answer)) as site:
        with tapped(tmp_path, site.url) as (url, records):
            port = urlsplit(url).port
            local = {"Host": "localhost"}
            assert exchange(port, "GET", "/mcp", local, b"")[0] == 200
            with socket.create_connection(("127.0.0.1", port)) as connection:
                head = f"POST {place} HTTP/1.1\r\nHost: localhost\r\n"
                connection.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
                status = connection.makefile("rb").readline()
            assert (b" 502 " if "\x7f" in place else b" 202 ") in status
            found = records()
    assert "sesame" not in json.dumps(found)
    sent = [one["http"] for one in found if one.get("way") == ">" and "http" in one]
    assert sent == ["GET /mcp", "POST ..."]


class Silent(Site):
    """Sends these bytes, and then nothing; `gone` is set when the client has left."""

    def __init__(self, data: bytes):
        super().__init__(None)
        self.data, self.gone = data, threading.Event()

    def finish_request(self, connection, _):
        with connection.makefile("rb") as file:
            self.read(file)
            connection.sendall(self.data)
            assert not file.read(1)
        self.gone.set()


def test_a_client_that_leaves_before_the_answer_is_noticed(tmp_path):
    with contextlib.closing(Silent(b"")) as site:
        with tapped(tmp_path, site.url) as (url, records):
            address = ("127.0.0.1", urlsplit(url).port)
            with socket.create_connection(address) as connection:
                connection.sendall(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
                while not site.asked:
                    client.Event().wait(0.01)
            assert site.gone.wait(PATIENCE)


@parametrize("end", [b"\n", b"\r\n", b"\r"])
@parametrize("piece", [1, 2, 3, 5, 1000])
def test_an_event_is_found_wherever_it_is_cut(end, piece):
    lines = b'id: 1||data: {"a":|data: 2}||: ping||data: 3'
    body = lines.replace(b"|", end)
    events = tap.Events(True, None)
    came = []
    for start in range(0, len(body), piece):
        came += events.feed(body[start : start + piece])
    came += events.end()
    assert came == [{"message": {"a": 2}}, {"message": 3}]


def test_a_long_event_is_searched_once():
    """Each piece was searched with all that had come before: 16 MiB took minutes."""
    events = tap.Events(True, None)
    began = time.thread_time()
    came = [one for _ in range(4100) for one in events.feed(b"data: x\n" * 512)]
    came += events.feed(b"\n\ndata: 1\n\n")
    assert time.thread_time() - began < PATIENCE / 5
    assert "longer than what is kept" in came[0]["text"]
    assert came[1:] == [{"message": 1}]


def test_events_pass_the_tap_as_they_come(tmp_path):
    """And a client that hangs up cancels its call, although the server is silent."""
    data = http_answer(200, {"Content-Type": "text/event-stream"}, None)
    data += b'data: {"n": 1}\n\n: comment\n\ndata: {"n":\ndata: 2}\r\n\r\nid: 7\n'
    with contextlib.closing(Silent(data)) as site:
        with tapped(tmp_path, site.url) as (url, records):
            connection = socket.create_connection(("127.0.0.1", urlsplit(url).port))
            with connection, connection.makefile("rb") as file:
                connection.settimeout(PATIENCE)
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost:1\r\n")
                connection.sendall(b"Content-Length: 2\r\n\r\n{}")
                while b"id: 7" not in (line := file.readline()):
                    assert line, "it ended"
                said = [one for one in records() if one.get("way") == "<"]
                assert [one.get("message", {}).get("n") for one in said] == [None, 1, 2]
                assert not site.gone.is_set()
            assert site.gone.wait(PATIENCE)
            assert [one["way"] for one in records() if one.get("closed")] == [">"]


@parametrize(
    "headers, status",
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": "localhost"}, 202),
        ({"Host": "[::1]:5"}, 202),
        ({"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}, 202),
        ({"Host": "127.0.0.1:1", "Origin": "http://LOCALHOST:6274"}, 202),
        ({"Host": "127.0.0.1:1", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1:1", "Origin": "http://localhost.evil.example:1"}, 403),
        ({"Host": "127.0.0.1:1", "Origin": "null"}, 403),
        ({"Host": "127.0.0.1:1", "Origin": ""}, 403),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "none"}, 202),
    ],
)
def test_the_tap_is_no_way_around_the_servers_checks(tmp_path, headers, status):
    """A page in a browser may reach the tap, which may know a secret query."""

    with contextlib.closing(Site(lambda *_: [http_answer(202, {})])) as site:
        with tapped(tmp_path, site.url) as (url, records):
            answer = exchange(urlsplit(url).port, "POST", "/mcp", headers, b"{}")
            assert answer[0] == status
        if status == 202:
            origin = headers.get("Origin", "").replace("127.0.0.1:1", site.url[7:-4])
            assert site.asked[0][1].get("origin", "") == origin
        else:
            assert not site.asked


def test_the_tap_runs_until_it_is_stopped(tmp_path):
    """A server that is gone is said to the client."""
    log, gone = tmp_path / "log", "http://127.0.0.1:1/mcp"
    words = [*PYTHON, str(TOOLS / "tap.py"), str(log), "--http", "0", gone]
    with subprocess.Popen(words, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            url = process.stderr.readline().split()[1]
            with pytest.raises(Exception, match="502"):
                client.connect(url, timeout=PATIENCE)
        finally:
            process.terminate()
        status = process.wait(PATIENCE)
        assert (os.name == "nt" or status == 0) and not process.stderr.read()
    first, *_, last = records_in(log)
    assert first["program"] == "tap" and "refused" in last["text"].lower()


@parametrize("body", [b"", b"{}", b"[" * 9, b"\xff", b"x" * 100_000])
def test_bodies_pass_the_tap_as_they_are(tmp_path, body):
    def answer(verb, headers, message):
        yield b"HTTP/1.1 200 -\r\nTransfer-Encoding: chunked\r\n\r\n"
        for part in (body[:3], body[3:]):
            yield b"%x\r\n%s\r\n" % (len(part), part) if part else b""
        yield b"0\r\n\r\n"

    with contextlib.closing(Site(answer)) as site:
        with tapped(tmp_path, site.url) as (url, records):
            answer = request_to(
                urlsplit(url).port, "GET", "/mcp", {"Host": "localhost"}
            )
            with contextlib.closing(answer), answer.getresponse() as answered:
                assert answered.read() == body
            said = [one for one in records() if one.get("way") == "<"]
    assert ("message" in said[-1]) == (body == b"{}")


def test_stderr_is_recorded_too(tmp_path):
    log = str(tmp_path / "log")
    script = "import sys; print('\u2603x', file=sys.stderr); print(input())"
    words = ["--stderr", log, *PYTHON, "-X", "utf8", "-c", script]
    done = command("-X", "utf8", str(TOOLS / "tap.py"), *words, text='{"id": 1}\n')
    assert (done.returncode, done.stdout) == (0, '{"id": 1}\n')
    assert done.stderr.strip() == "\u2603x"
    said = [one for one in records_in(tmp_path / "log") if one.get("way") == "!"]
    assert [one["text"] for one in said] == ["\u2603x"]
    assert "What is wrong" in draw(tmp_path / "log")


@parametrize(
    "words",
    [[], ["log"], ["log", "--http"], ["log", "--http", "x", "http://a"], ["--what"]],
)
def test_a_tap_that_is_mistyped_explains_itself(words, tmp_path):
    status, out, err = tool(tap, *words, cwd=tmp_path)
    assert status == 2 and "usage: tap.py" in err and not list(tmp_path.iterdir())


def test_a_command_that_cannot_start_keeps_its_arguments_to_itself(tmp_path):
    status, out, err = tool(tap, "-", "no-such-program", "--token", "sesame")
    assert status == 1 and "no-such-program" in err and "sesame" not in err


# ======== Reloading


RELOADED = """
import time
from mcp_ref import Context, Server
server = Server("reloaded")

@server.tool
def version() -> str:
    return "VERSION"

@server.tool
def slow() -> str:
    time.sleep(60)

@server.tool
def ask(ctx: Context) -> str:
    return str(ctx.elicit("Who?", name=str)["content"]["name"])

server.run()
"""


def saved(path, text):
    """Save a file as an editor does, in one step; the time must be another."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


@contextlib.contextmanager
def reloading(tmp_path, **options):
    """Connect through reload.py to a server that can change; yield the client, and a
    list of the changes that it hears."""
    file, heard = tmp_path / "server.py", client.SimpleQueue()
    saved(file, RELOADED)
    words = [*PYTHON, str(TOOLS / "reload.py"), *PYTHON, str(file)]
    environment = {"PYTHONPATH": str(Path(mcp.__file__).parent)}
    with client.connect(
        words,
        env=environment,
        stderr=lambda line: heard.put(("stderr", line)),
        on_notification=lambda message: heard.put((message["method"], message)),
        timeout=3 * PATIENCE,
        **options,
    ) as one:
        yield one, file, heard


def until(heard, word):
    """Wait for a line or a notification."""
    while True:
        what, said = heard.get(timeout=3 * PATIENCE)
        if word in what or word in str(said):
            return said


@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_a_change_restarts_the_server_and_the_host_does_not_notice(tmp_path, version):
    options = {"revision": version, "elicit": lambda params: {"name": "Ann"}}
    with reloading(tmp_path, **options) as (one, file, heard):
        assert said(one, "version") == "VERSION" and said(one, "ask") == "Ann"
        with one.listen(["tools"]) as changes:
            for word in ("second", "third"):
                saved(file, RELOADED.replace("VERSION", word))
                until(heard, "tools/list_changed")
                assert next(iter(changes)) == "tools"
                assert said(one, "version") == word and said(one, "ask") == "Ann"
            # the server itself is heard, too: the subscription is open
            assert not changes.settled
        if one.modern:
            with one.listen(["tools"]) as changes:  # and a new one is acknowledged
                assert changes.granted == ["tools"]
        else:
            assert one.capabilities["tools"]["listChanged"] is True
        one.ping()


@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_a_server_that_does_not_start_answers_with_its_error(tmp_path, version):
    with reloading(tmp_path, revision=version) as (one, file, heard):
        assert said(one, "version") == "VERSION"
        saved(file, "raise SystemExit('no such \\u2603')")
        until(heard, "no such")
        for _ in "ab":
            with pytest.raises(mcp.RpcError, match="has ended: no such"):
                said(one, "version")
        saved(file, RELOADED.replace("VERSION", "again"))
        until(heard, "a file has changed")
        assert said(one, "version") == "again"


def test_a_call_that_was_running_is_told(tmp_path):
    with reloading(tmp_path) as (one, file, heard):
        running = begin(said, one, "slow")
        one.ping()
        saved(file, RELOADED.replace("VERSION", "new"))
        with pytest.raises(mcp.RpcError, match="restarted"):
            running.result(3 * PATIENCE)
        assert said(one, "version") == "new"


def test_what_belongs_to_another_run_does_not_pass(capsysbinary):
    between, first, second = reload.Reload([], None), mock.Mock(), mock.Mock()
    meta = {"_meta": {reload.SUBSCRIPTION: 2}}
    method = "notifications/subscriptions/acknowledged"
    acknowledged = {"method": method, "params": meta}

    def host(**message):
        between.from_host(reload.line_of(message))

    def server(process, **message):
        between.from_server(process, reload.line_of(message))
        return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    between.process, between.runs = first, 1
    host(id=1, method="initialize")
    (answer,) = server(first, id=1, result={"capabilities": {"tools": {}, "x": {}}})
    changes = {"listChanged": True}
    assert answer["result"]["capabilities"] == {"tools": changes, "x": {}}
    host(id=2, method=reload.LISTEN)
    assert server(first, **acknowledged) == [acknowledged]
    (asked,) = server(first, id=5, method="roots/list")

    between.process, between.runs = second, 2
    host(id=asked["id"], result={})
    assert server(second, **acknowledged) == [] == server(first, id=6, method="late")
    assert not second.send.called
    (asked,) = server(second, id=5, method="roots/list")
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 5}}
    (found,) = server(second, **cancelled)
    assert found["params"]["requestId"] == asked["id"]
    host(id=asked["id"], result={})
    second.send.assert_called_once_with(reload.line_of({"id": 5, "result": {}}))
    host(id=3, method=reload.LISTEN)
    meta["_meta"][reload.SUBSCRIPTION] = 3  # a new one is acknowledged
    assert server(second, **acknowledged) == [acknowledged]


def patient_reload(seconds: float) -> list[str]:
    """Return the options of Python that start reload.py with another patience."""
    program = "import os, reload, sys\n"
    program += f"reload.STEP_SECONDS = {seconds}\nos._exit(reload.main(sys.argv[1:]))"
    return ["-W", "ignore", "-c", program]  # it closes nothing at its end


def test_reload_ends_with_its_input(tmp_path):
    (tmp_path / "s.py").write_text("import sys; print(sys.stdin.read()); sys.exit(7)")
    start = patient_reload(PATIENCE)
    words = [*start, *PYTHON, str(tmp_path / "s.py")]
    done = command(*words, text="{}\n", path=TOOLS)
    assert (done.returncode, done.stdout, done.stderr) == (7, "{}\n\n", "")
    words = [*start, "no-such-program", str(tmp_path / "s.py")]
    assert command(*words, path=TOOLS).returncode == 1


@needs_posix
def test_what_a_server_says_after_sigterm_reaches_the_host(tmp_path):
    late = "lambda *_: (print('{}', flush=True), sys.exit(7))"
    text = f"import signal, sys\nsignal.signal(signal.SIGTERM, {late})\n"
    (tmp_path / "s.py").write_text(text + "print('{}', flush=True)\nsignal.pause()")
    # Its input ends when it is ready.
    words = [*PYTHON, *patient_reload(1), *PYTHON, str(tmp_path / "s.py")]
    environ = {**os.environ, "PYTHONPATH": str(TOOLS)}
    with subprocess.Popen(words, stdin=-1, stdout=-1, env=environ) as process:
        assert process.stdout.readline() == b"{}\n"
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (7, b"{}\n")


@parametrize("words", [[], ["--watch"], ["true"], ["--", "true"], ["--what"]])
def test_a_reload_that_is_mistyped_explains_itself(words):
    status, out, err = tool(reload, *words)
    assert status == 2 and "usage: reload.py" in err


def test_hidden_folders_and_other_files_are_not_watched(tmp_path):
    for name in ("a.py", ".git/b.py", "__pycache__/c.py", "d/e.ts", "d/f.log", "g"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = [Path(name).name for name in reload.source_files([tmp_path])]
    assert sorted(found) == ["a.py", "e.ts"]


# ======== Walks: what the code does with a message


def quick_walk():
    """Return a class of walks whose servers start as quickly as ours do."""

    class QuickWalk(walk.Walk):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.command[:1] = PYTHON

    return QuickWalk


def forked_walks():
    """Return a context in which walks on stdio are those of forked processes."""

    def start(command, **options):
        recorded = functools.partial(walk.main, command[command.index("--record") :])
        return Forked(recorded, options["encoding"])

    processes = mock.Mock(wraps=subprocess)
    processes.Popen = start
    return mock.patch.object(
        walk.replay, "subprocess", processes if POSIX else subprocess
    )


def walked(*words):
    """Return the page of a walk, and its steps' parts by their titles."""
    with mock.patch.object(walk, "Walk", quick_walk()), forked_walks():
        status, page, err = tool(walk, *words)
    assert status == 0, err
    parts = re.split(r'<h2 id="s\w+">\w+\. ', page)
    return page, {part.partition("<")[0]: part for part in parts[1:]}


def named(part):
    """Return the functions that a part of a page shows, in their order."""
    names = re.findall(r"<b>([\w.<>() ]+)</b><small>", part)
    return [name.replace("<wbr>", "") for name in names]


def test_a_walk_leads_from_bytes_through_the_authors_function_to_bytes():
    page, parts = walked(HELLO, "call", "add", "a=2", "b=3")
    ends = "The server starts", "The client closes stdin"
    assert list(parts) == [ends[0], "tools/call add", ends[1]]
    names = named(parts["tools/call add"])
    way = ["Pipe._serve", "decode", "Server.handle", "serve_call_tool", "add"]
    places = [names.index(name) for name in [*way, "Pipe._write"]]
    assert places == sorted(places)
    # The functions on the way are links, above their blocks.
    links = re.findall(r'<a href="#(s\d-\d+)">(\w+)</a>', parts["tools/call add"])
    assert [name for _, name in links if name in ("serve_call_tool", "add")]
    assert {place for place, _ in links} <= {*re.findall(r'id="(\S+?)"', page)}
    # The author's code stands out; its values, the branches and results are there.
    block = r'(?s)class="block author".*?</div></div></div>'
    author = re.search(block, parts["tools/call add"])[0]
    assert "return a + b" in author and "→ 5" in author and "(2, 3)" in author
    assert "is_id(1) → True" in page and "<p>false" in page and "⋯ 1" in page
    assert "thread mcp-reader" in page and "§7 Requests" in page
    assert "Pipe._finish" in named(parts["The client closes stdin"])
    # So does the statement that waits for the bytes; and what came is text, not a tag.
    assert "self._source.readline(" in page
    assert "<pre>&lt; {" in parts["tools/call add"]
    assert f"{walk_page.SPECIFICATION}/{NEWEST}/server/tools#calling-tools" in page
    # It is one page: nothing is loaded, and nothing runs.
    assert not re.search(r"<script|<link|<img|\bsrc=|url\(|@import|\bon\w+=", page)


@needs_posix
def test_the_ends_of_a_walk_are_walked_too():
    part = walked(HELLO, "call", "add", "a=2", "b=3", "--end", "signal")[1]["SIGTERM"]
    assert "signals.handle" in named(part) and "stop(0.05)" in part
    part = walked(HELLO, "tools/list", "--end", "hang-up")[1]["The client hangs up"]
    assert "Pipe._await_hang_up" in named(part)


def test_a_walk_over_http_shows_no_secret():
    file = str(COURSE / "05_http_server.py")
    secret = "Authorization: Bearer sesame"
    page, parts = walked(file, "call", "count", "to=2", "--http", "--header", secret)
    part = parts["POST /mcp tools/call count"]
    names = named(part)
    way = ["HttpServer.serve", "Endpoint.serve", "Server.handle", "count"]
    places = [names.index(name) for name in way]
    assert places == sorted(places) and "***" in part and "ada" in part
    assert "sesame" not in page


@parametrize(
    "said",
    [
        "Authorization: Bearer SESAME\r\nHost: x",
        "Proxy-Authorization: Basic SESAME",
        "{'authorization': 'Bearer SESAME'}",
        '{"cookie": "a=1; sid=SESAME"}',
        "X-Api-Key: SESAME",
        "/mcp?api_key=SESAME&x=1",
        "/mcp?access_token=SESAME",
    ],
)
def test_a_secret_is_hidden_wherever_it_returns(said):
    veil = walk.Veil()
    words = walk.Words(veil)
    assert "SESAME" not in veil.over(said)
    assert "SESAME" not in words.say({"x": ["a SESAME b"]})
    plain = {"progressToken": "t", "name": "n"}
    assert words.say(plain) == str(plain)


def test_no_word_of_the_module_is_taken_for_a_secret(monkeypatch):
    class Played:
        module, steps, veil = walk.mcp_ref.__file__, [], walk.Veil()

    monkeypatch.setattr(walk, "play", lambda *_: Played)
    Played.veil.over("Authorization: Bearer AHEAD_BYTES")
    lines = walk.walk_for([str(HELLO), "tools/list"])[2][0].lines
    text = Path(Played.module).read_text("utf-8")  # which has "bearer event", too
    assert "\n".join(lines[1:]) == text.replace("AHEAD_BYTES", "***")


@parametrize("name", ["api_key", "Authorization", "client_secret", "access_token"])
def test_a_variable_with_the_name_of_a_secret_has_no_value(name):
    words = walk.Words(walk.Veil())
    assert words.named(name, "SESAME") == "***"
    assert words.say(["SESAME"]) == "['***']"


class Loud:
    """A value whose methods must not be called: they might wait."""

    def __repr__(self):
        raise AssertionError

    __len__ = __iter__ = __str__ = __repr__


def test_a_walk_calls_no_method_of_a_value():
    words = walk.Words(walk.Veil())
    shown = words.say({"x": Loud(), "y": "a" * 999})
    assert shown.startswith("{'x': <Loud>, 'y': 'aaa")


PROGRAM = """
def helper(x):
    return x + 1

def work(some):
    total = 0
    count = len(some)
    last = some[-1]
    for one in some:
        if one > 8:
            raise KeyError(one)
        total = helper(one)
    numbers = [helper(one) for one in some]
    if count > 9:
        return None
    return total

def known(some):
    return work(some)
"""


def folded(tmp_path, *calls):
    """Walk through PROGRAM as if it were the module; return the part of each call."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, "utf-8")
    code, scope = compile(PROGRAM, str(path), "exec"), {}
    exec(code, scope)
    source = walk_page.Source(path)
    recorder = walk.Recorder([source], [str(path)], True)
    drawing = walk.drawing_for([source])
    parts = []
    for name, *arguments in calls:
        before = sys.gettrace()
        sys.settrace(recorder.trace)
        with contextlib.suppress(KeyError):
            scope[name](*arguments)
        sys.settrace(before)
        parts.append(drawing.step(1, walk_page.Step(name, "", [], recorder.take())))
    return parts


def test_what_a_walk_folds(tmp_path):
    (part,) = folded(tmp_path, ["work", [1, 2, 3]])
    assert named(part) == ["work"]  # the helper is a line
    assert part.count("helper(1) → 2") == 2 and "3 turns" in part
    assert part.count("total = helper(one)") == 1 and "⋯ 1" in part
    assert "<b>total</b> = 2" in part
    # Since 3.12 a comprehension is a loop of its function, of which a turn is shown.
    assert sys.version_info >= (3, 12) or "<b>numbers</b> = [2, 3, 4]" in part


POLLING = """def poll():
    while not is_set():
        pause()
    return "back"
def is_set():
    return flag
def read():
    line = wait()
    cancel(line)
def cancel(line):
    flag = line
"""


def test_a_walk_shows_the_cause_before_the_effect(tmp_path):
    path = tmp_path / "polling.py"
    path.write_text(POLLING, "utf-8")
    story = walk_page.Story([walk_page.Source(path)])

    def call(visit, name, line, thread, parent=0):
        return ["call", visit, 0, name, line, thread, parent, ""]

    def turn(visit):
        yield ["line", 1, 2, {}]
        yield call(visit, "is_set", 5, "handler", 1)
        yield from (["line", visit, 6, {}], ["return", visit, "", {}, ""])
        yield ["line", 1, 3, {}]

    begin = [call(1, "poll", 1, "handler"), call(2, "read", 7, "reader")]
    story.read([*begin, *turn(3), ["line", 2, 8, {}]])
    cancel = [["line", 2, 9, {}], call(5, "cancel", 10, "reader", 2)]
    effect = [["line", 1, 2, {}], ["line", 1, 4, {}], ["return", 1, "back", {}, ""]]
    visits = story.read([*turn(4), *cancel, ["line", 5, 11, {}], *effect])
    assert [one.thread for one in visits] == ["reader", "handler"]


def test_the_chain_of_a_notification_leads_to_its_effect(tmp_path):
    path = tmp_path / "cancel.py"
    path.write_text("def handle():\n    log()\n    end()\n" + "def end():\n    pass\n")
    story = walk_page.Story([walk_page.Source(path)])
    called = [
        ["call", 1, 0, "handle", 1, "reader", 0, ""],
        ["line", 1, 3, {}],
        ["call", 2, 0, "end", 4, "reader", 1, ""],
    ]
    chain = walk_page.chain_of(story.read(called))
    assert [one.function.short for one in chain] == ["handle", "end"]


def test_a_walk_shows_again_only_what_is_new(tmp_path):
    calls = [["known", [number]] for number in (1, 2, 9)]
    first, second, third = folded(tmp_path, *calls)
    assert named(first)[:2] == ["known", "work"]
    assert not named(second) and "known([2]) → 3" in second
    assert "work" in named(third) and "raise KeyError(one)" in third
    assert "for one in some" not in third and "raises KeyError: 9" in third


def test_what_is_known_is_still_said_at_the_end_of_a_message():
    page, parts = walked("10")
    second = page.partition('<h2 id="s2">')[2].partition("<h2")[0]
    after = second.rpartition("back in <b>Context.")[2]
    assert "_finish(" in after  # which sends the answer


def test_two_walks_side_by_side():
    page, _ = walked("--compare", HELLO, "call", "add", "a=2", "b=3", "--", "--session")
    assert page.count('<div class="two">') == 1 and page.count("<h2 id=") == 3 + 5
    grey = re.findall(r'class="row same">.*?<pre>(.*?)</pre>', page)
    black = re.findall(r'class="row">.*?<pre>(.*?)</pre>', page)
    assert any("decode(line)" in one for one in grey)
    assert any("LegacyContext" in one for one in black)
    assert not any("decode(line)" in one for one in black)


def test_a_recorded_trace_is_walked(tmp_path):
    trace = tmp_path / "t.jsonl"
    records = [
        {"way": ">", "message": OPENING},
        {"way": "<", "message": {"jsonrpc": "2.0", "id": 1, "result": {}}},
        {"way": ">", "message": {"jsonrpc": "2.0", "id": 2, "method": "ping"}},
        {"way": "<", "message": {"jsonrpc": "2.0", "id": 2, "result": {}}},
        {"way": ">", "closed": True},
    ]
    lines = [json.dumps({**one, "on": "stdio"}) + "\n" for one in records]
    trace.write_text("".join(lines))
    page, parts = walked(HELLO, trace)
    assert list(parts)[1:] == ["initialize", "ping", "The client closes stdin"]
    assert "LegacyContext._initialize" in named(parts["initialize"])


@parametrize(
    "words, problem",
    [
        (["99"], "no lesson 99"),
        (["nothing.py", "call", "x"], "cannot read nothing.py"),
        ([HELLO], "a request"),
        ([HELLO, "call", "add", "a"], "name=value"),
        (["--compare", "03"], "--compare WALK -- WALK"),
        ([HELLO, "tools/list", "--end", "never"], "--end is"),
        ([HELLO, "tools/list", "--header"], "--header needs"),
    ],
)
def test_a_wrong_walk_is_said(words, problem):
    status, out, err = tool(walk, *words)
    assert status and not out and problem in err and "Traceback" not in err


# ---- the scenes of CONTRIBUTING.md, which say on which thread what runs

SCENES = """
```mcp
> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait_for",
    "arguments":{"title":"Emma"},"_meta":{"progressToken":7,<revision and capabilities>}}}
< {}
> {"jsonrpc":"2.0","id":2,"method":"tools/call",
    "params":{"name":"search","arguments":{"word":"emma"},"_meta":<meta>}}
< {}
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
```
## A modern cancellation over HTTP
```mcp
1> POST /mcp HTTP/1.1
    MCP-Protocol-Version: 2026-07-28
    Mcp-Method: tools/call
    Mcp-Name: wait_for

    {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait_for",
    "arguments":{"title":"Emma"},"_meta":{"progressToken":7,<revision and capabilities>}}}
1< HTTP/1.1 200 OK
1< data: {}
1> (hangs up)
```
## A question to a session
```mcp
> (a session of 2025-11-25 is open: {"elicitation":{}})
1> POST /mcp HTTP/1.1
    Mcp-Session-Id: <session>

    {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"join","arguments":{}}}
1< HTTP/1.1 200 OK
1< id: <stream>-0
1< id: <stream>-1
1> (hangs up)
3> GET /mcp HTTP/1.1
    MCP-Protocol-Version: 2025-11-25
    Mcp-Session-Id: <session>
    Last-Event-ID: <stream>-1
3< HTTP/1.1 200 OK
4> POST /mcp HTTP/1.1
    Mcp-Session-Id: <session>

    {"jsonrpc":"2.0","id":3,"method":"ping"}
4< HTTP/1.1 200 OK
> (sends SIGTERM)
4> POST /mcp HTTP/1.1
    Mcp-Session-Id: <session>

    {"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ann","age":44}}}
4< HTTP/1.1 202 Accepted
3< id: <stream>-2
3< (the stream ends)
```
"""


# By scene and step: the calls that must have come before the next step begins, because
# what follows depends on them.
ENDS = [
    {
        "tools/call wait_for": {"mcp-deputy Pipe._read"},
        "notifications/cancelled": {"mcp-reader Pipe._empty_queue"},
    },
    {
        "The client hangs up": {
            "mcp-check Context._cancel",
            "connection 1 Answer.finish",
        },
    },
    {
        "The client hangs up": {"mcp-check Outbox.detach"},
        "GET /mcp": {"connection 3 Outbox.wait"},
        "SIGTERM": {"MainThread Endpoint.close"},
        "POST /mcp a response": {
            "connection 2 Answer.finish",
            "MainThread HttpSession.close",
        },
    },
]


source_of = functools.lru_cache(walk.Source)


def calls_in(events, source):
    """Return the calls of the module's functions: the thread, and the name. A second
    deputy goes on where the first one was, so it has the same name."""
    calls = []
    for event in events:
        if event[0] == "call" and event[2] == 0:
            if function := source.function(*event[3:5]):
                on = re.sub(r"^(mcp-\S+) \d+$", r"\1", event[5])
                calls.append(f"{on} {function.name}")
    return calls


def walk_with(ends):
    """Return a class of walks whose steps wait for calls, however long these take."""

    class PatientWalk(quick_walk()):
        def settle(self, least):
            wanted, end = ends.get(self.now[0]), time.monotonic() + PATIENCE
            if not wanted:
                return
            source = source_of(self.module)
            while not wanted.issubset(calls_in(self.rest, source)):
                events = self.ask("take")
                if events is None:
                    return
                assert time.monotonic() < end, f"{self.now[0]}: {wanted}, {self.rest}"
                self.rest += events
                time.sleep(0.01)

    return PatientWalk


@needs_posix
@parametrize("number", [0, 1, 2], ids=["slow", "cancelled", "asked"])
def test_a_scene_of_threads_is_as_it_is_told(number, monkeypatch):
    told = (TOOLS.parents[1] / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    scene = told.split("\n## Three scenes\n")[1].split("\n**")[1 + number]
    rows = re.findall(r"(?m)^\| `([\w -]+)` \| (.*?) \|", scene)
    wanted = [(on, name) for on, names in rows for name in re.findall("`(.*?)`", names)]
    assert len(wanted) > 12
    steps = walk.replay.read("\n## A slow handler\n" + SCENES)[number]
    monkeypatch.setattr(walk, "Walk", walk_with(ENDS[number]))
    played = walk.play(str(walk.replay.SERVER), steps, values=False)
    source = source_of(played.module)
    ran = [call for step in played.steps for call in calls_in(step.events, source)]
    # The rows of a thread come in their order; a row begins after the one before it.
    ends: dict[str, int] = {}
    for on, name in wanted:
        after = ends.get(on, -1) + 1
        assert f"{on} {name}" in ran[after:], f"not then: {on} {name}: {ran[after:]}"
        ends[on] = ran.index(f"{on} {name}", after)


# ======== Which tests run a line

WHICH = str(TOOLS.parents[1] / ".ci" / "which")
CLIENT = COURSE.parent / "mcp_client.py"


def which(tmp_path, place, text, lines):
    """Ask .ci/which, with a record in which the client had this text."""
    folder = tmp_path / "mcp_ref"
    folder.mkdir()
    files = {name: {"text": "", "lines": {}} for name in ("mcp_ref.py", CLI)}
    kept = {"names": ["a test", "vector 1"], "all": ["a test", "another"], **files}
    kept["examples/mcp_client.py"] = {"text": text, "lines": lines}
    kept["recorded"] = ["a test"]
    (folder / "which.json").write_text(json.dumps(kept), "utf-8")
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(tmp_path)):
        return tool(types.SimpleNamespace(**runpy.run_path(WHICH)), place)


CLI = "examples/mcp_cli.py"


def test_which_tests_run_a_line_that_has_moved(tmp_path):
    text = CLIENT.read_text("utf-8")
    number = text[: text.index("\nclass Client")].count("\n") + 2
    lines = {str(number + 2): [0, 1], "1": [0], "2": [1]}
    place = f"{CLIENT}:{number - 1}-{number}"
    status, out, err = which(tmp_path, place, "#\n#\n" + text, lines)
    assert (status, err) == (0, "")
    assert re.findall(r"\d lines  (.*)", out) == ["a test", "vector 1"]
    assert "In no record: 1 of 2 tests and the vectors" in out
    assert re.search("(?m)^Run: .ci/run style_and_types .*vectors.* field$", out)


def test_which_says_that_a_line_is_new(tmp_path):
    place = f"{CLIENT}:1"
    status, out, err = which(tmp_path, place, "nothing", {})
    assert (status, err) == (0, "") and "new since the record: examples/mcp_c" in out


def test_a_partial_record_replaces_its_own_part():
    module = runpy.run_path(WHICH)

    def record(client_text, lines, recorded, known):
        files = {name: {"text": "", "lines": {}} for name in module["FILES"]}
        files["examples/mcp_client.py"] = {"text": client_text, "lines": lines}
        return {"all": known, "recorded": recorded, **files}

    before = {"1": ["a", "b", "gone", "vector 1"], "2": ["a"]}
    old = record("x\ny", before, ["a", "b", "gone", "vector"], ["a", "b", "gone"])
    new = record("\nx\nz", {"3": ["b"]}, ["b"], ["a", "b", "c"])
    module["merge"](old, new)
    assert new["examples/mcp_client.py"]["lines"] == {
        "2": ["a", "vector 1"],
        "3": ["b"],
    }
    assert sorted(new["recorded"]) == ["a", "b", "vector"]
