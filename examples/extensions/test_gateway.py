"""Tests of gateway.py: every client in front, a modern and a legacy upstream behind."""

# What has no types here is not checked; the rest must be right.
# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs, implicit-reexport
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-any-generics
# mypy: disable-error-code="union-attr, index, var-annotated, operator, misc"
# mypy: disable-error-code="assignment, return-value, dict-item, no-any-return"

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest import mock

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from test_mcp_ref import (
    COVERAGE,
    LEGACY,
    MCP_REF,
    MODERN,
    PATIENCE,
    Site,
    Stage,
    begin,
    client,
    core_questions,
    event_of,
    exchange,
    fixture,
    http_answer,
    http_serving,
    is_refused,
    listening,
    mcp,
    needs_posix,
    parametrize,
    request_to,
    scripts,
)

import gateway as gw

GATEWAY = [sys.executable, gw.__file__]
ENDS = []  # ends what gateway() started
STAGES = []  # the last one is the current test's


@functools.cache
def gateway():
    """Start a gateway in front of one server, reached in the newest and in a legacy
    revision."""
    stage = type(
        "", (), {"__getattr__": lambda self, name: getattr(STAGES[-1], name)}
    )()
    server = fixture(stage)
    core_questions(server)

    server.tool(
        lambda: [mcp.link("test://text", "a"), mcp.embedded("test://text", "hello")],
        name="dir/list it",
    )
    server.tool(lambda: "long", name="long" * 20)
    server.tool(lambda: [1, 2], name="numbers", output_schema={"type": "array"})
    serving = http_serving(server)
    url = serving.__enter__().url
    upstreams = [
        gw.Upstream("up", {"url": url}),
        gw.Upstream("dead", {"url": url + "x"}),
        gw.Upstream("old", {"url": url, "revision": LEGACY[0]}),
    ]
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    for upstream in upstreams:
        upstream.keeper.start()
    assert all(upstream.tried.wait(PATIENCE) for upstream in upstreams)
    ENDS.extend(
        [lambda: serving.__exit__(None, None, None), *(one.close for one in upstreams)]
    )
    return server, profile, upstreams


@pytest.fixture(scope="module", autouse=True)
def end_gateway():
    yield
    while ENDS:
        ENDS.pop()()


def fronted(stage: Stage):
    STAGES.append(stage)
    return gateway()[1]


test_gateway = scripts(
    r"""
== calls reach both upstreams, and results come back
:up__add {"a": 1} => {"content": [{"type": "text", "text": "3"}], "isError": null}
:old__fail {"how": "value"} => {"content": [{"text": "told you"}], "isError": true}
:up__fail {"how": "own"} => error 7 seven {"server": "up", "originalError": {
    "code": 7, "message": "seven", "data": [7]}}
:dead__anything => error {INTERNAL_ERROR} down {"server": "dead"}
== names, URIs and results take the client's form | on: 2025-06-18.. memory
:up__dir_list_it_3bbeb852 => {"content": [
    {"type": "resource_link", "uri": "up+test://text", "name": "a"},
    {"type": "resource", "resource": {"uri": "up+test://text", "text": "hello"}}]}
:old__longlonglonglonglonglonglonglonglonglonglo_5aa1dce7 => "long"
:up__unknown => error {INVALID_PARAMS} unknown tool
[modern] :up__numbers => {"structuredContent": [1, 2], "content": [{"text": "[1, 2]"}]}
[legacy] :up__numbers => {"structuredContent": null, "content": ["*"], "resultType": null}
resources/read {"uri": "up+test://text"} =>
    {"contents": [{"uri": "up+test://text", "text": "hello"}]}
resources/read {"uri": "old+test://item/7/x"} =>
    {"contents": [{"uri": "old+test://item/7/x", "text": "'x' of 7"}]}
prompts/get {"name": "old__greet", "arguments": {"name": "Ada"}} =>
    {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello, Ada!"}}]}
[modern] resources/read {"uri": "test://text"} => error {INVALID_PARAMS} not found
[legacy] resources/read {"uri": "test://text"} => error {RESOURCE_NOT_FOUND} not found
[modern] resources/read {"uri": "old+none://x"} => error {INVALID_PARAMS} not found
    {"server": "old", "originalError": {"code": -32002}}
[legacy] resources/read {"uri": "old+none://x"} => error {RESOURCE_NOT_FOUND} {"server": "old"}
== progress, log messages and cancellations pass through | on: * memory
> 1 tools/call {"name": "old__steps", "_meta": {"progressToken": 0}}
< - notifications/progress {"progressToken": 0, "progress": 0, "total": 3}
< - notifications/progress {"progressToken": 0, "progress": 1}
< - notifications/progress {"progressToken": 0, "progress": 2.5}
< 1 {"content": [{"text": "done"}]}
[legacy] logging/setLevel {"level": "emergency"} => {}
> 2 tools/call {"name": "old__talk", "_meta": {"{META}logLevel": "emergency"}}
< - notifications/message {"data": {"says": "emergency"}, "logger": "talker"}
< 2 {"content": [{"text": "said"}]}
> 3 :up__slow {"gate": "a"}
wait a
> - notifications/cancelled {"requestId": 3}
wait a passed
== a modern client answers a modern upstream | on: modern memory | declare: {"elicitation": {}}
:up__rounds ? one elicitation/create {} -> {"action": "accept", "content": {"one": 1}}
    => {"resultType": "input_required", "inputRequests": "*"}
:up__roots => error {MISSING_REQUIRED_CLIENT_CAPABILITY} roots
    {"requiredCapabilities": {"roots": {}}}
:old__ask => "failed: AskError"
== a legacy client is asked, by both kinds of upstream | on: 2025-06-18..2025-11-25 memory
    | declare: {"elicitation": {}, "sampling": {}, "roots": {}}
:old__ask ? a elicitation/create {"requestedSchema": {"type": "object"},
    "message": "The server \"old\" asks: Which branch?"}
    -> {"action": "accept", "content": {"branch": "main"}} =>
    "{\"action\": \"accept\", \"content\": {\"branch\": \"main\"}}"
:up__rounds ? c elicitation/create {"message": "The server \"up\" asks: One?"} ->
    {"action": "accept", "content": {"one": 1}} ? d elicitation/create {"message": "The server \"up\" asks: Two?"} ->
    {"action": "accept", "content": {"two": 2}} => {"content": ["*"], "isError": null}
:old__roots ? b roots/list {} -> error -5 never => {"isError": true}
:old__think ? c sampling/createMessage {"maxTokens": 5} ->
    {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}} =>
    {"content": ["*"], "isError": null}
""",
    "server: fronted",
)
X = {"command": "x"}
EACH_ERA = parametrize("version", [*MODERN[:1], *LEGACY[:1], *LEGACY[-1:]])


@EACH_ERA
def test_gateway_joins_lists_and_announces_changes(version):
    heard = queue.SimpleQueue()
    server, uris = gateway()[0], ["old+test://text", "up+test://text"]
    with client.connect(gateway()[1], revision=version) as front:
        tools = {tool["name"]: tool for tool in front.list_tools()}
        assert list(tools)[:2] == ["up__add", "up__echo"] and max(map(len, tools)) == 56
        assert ("outputSchema" in tools["up__numbers"]) == front.modern
        assert {one["uri"] for one in front.list_resources()} > set(uris)
        assert (
            front.list_resource_templates()[0]["uriTemplate"]
            == "up+test://item/{number}/{part}"
        )
        assert [one["name"] for one in front.list_prompts()] == [
            "up__greet",
            "old__greet",
        ]
        with front.listen(["tools", *uris, "dead+test://text"], heard.put):
            server.changed("test://text")
            assert sorted(heard.get(timeout=PATIENCE) for _ in uris) == uris
            for change in (
                lambda: server.tool(mcp.text, name="grown"),
                lambda: server.tools.pop("grown"),
            ):
                change()
                server.changed("tools")
                assert [heard.get(timeout=PATIENCE) for _ in uris] == ["tools", "tools"]
                names = {tool["name"] for tool in front.list_tools()}
                assert (names >= {"old__grown", "up__grown"}) == (
                    "grown" in server.tools
                )


def configure(folder, config) -> str:
    """Write a configuration, and pid.py, a server that does not start beside a file
    "down"."""
    (folder / "gateway.json").write_text(
        config if isinstance(config, str) else json.dumps(config)
    )
    (folder / "pid.py").write_text(
        textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(MCP_REF.parent)!r})
        from mcp_ref import Server
        os.path.exists("down") and sys.exit("not now")
        server = Server("pid")
        server.tool(lambda: os.getpid(), name="pid")
        server.tool(lambda: [open("down", "w").close(), os._exit(3)], name="die")
        server.run()""")
    )
    return str(folder / "gateway.json")


def test_gateway_survives_an_upstream_that_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "RETRY_SECONDS", 0.02)
    heard = queue.SimpleQueue()
    upstreams, profiles, _ = gw.read_config(
        configure(
            tmp_path,
            {
                "servers": {
                    "Pid": {
                        "command": sys.executable,
                        "args": ["pid.py"],
                        "cwd": str(tmp_path),
                    }
                }
            },
        )
    )
    upstreams["Pid"].keeper.start()
    with client.connect(profiles["all"]) as front:
        first = front.call_tool("pid__pid")["content"]
        with front.listen(["tools"], heard.put):
            with pytest.raises(mcp.RpcError) as problem:
                front.call_tool("pid__die")
            assert (problem.value.code, problem.value.data) == (
                -32603,
                {"server": "Pid"},
            )
            assert heard.get(timeout=PATIENCE) == "tools" and front.list_tools() == []
            (tmp_path / "down").unlink()
            assert heard.get(timeout=PATIENCE) == "tools"
            assert front.call_tool("pid__pid")["content"] != first
    upstreams["Pid"].close()


@EACH_ERA
def test_gateway_serves_each_profile_at_its_path(version):
    up, _, old = gateway()[2]
    few = gw.Profile("few", [(up, ["ad*", "echo"]), (old, [])])
    httpd = mcp.http_server(gw.Paths([gateway()[1], few], gw.LOOPBACK))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    if version != LEGACY[-1]:
        few_url = f"http://127.0.0.1:{httpd.server_port}/mcp/few/"
        with client.connect(few_url, revision=version) as front:
            assert [tool["name"] for tool in front.list_tools()] == [
                "up__add",
                "up__echo",
            ]
            with pytest.raises(mcp.RpcError, match="Unknown tool"):
                front.call_tool("up__fail", {"how": "own"})
    for name in "all", "few":
        wanted = (
            httpd.server_port,
            "GET",
            "/mcp/" + name,
            {"Accept": "text/event-stream"},
        )
        with request_to(*wanted).getresponse() as answer:
            assert event_of(answer)["data"].startswith(name + "/messages?")
        assert (
            exchange(httpd.server_port, "POST", "/mcp/" + name, {"Host": "x.org"}, b"")[
                0
            ]
            == 403
        )
    assert exchange(httpd.server_port, "GET", "/mcp/fewer", {})[0] == 404
    httpd.close()
    httpd.serve_forever()


@parametrize(
    "config, word",
    [
        ("{", "line 1"),
        ([], "object"),
        ({}, "no usable servers"),
        ({"servers": {}}, "no usable servers"),
        ({"servers": {"a": {}}}, "no usable servers"),
        ({"servers": {"a": X}, "profiles": {"p": {"servers": ["b"]}}}, "among a"),
        ({"servers": {"a": X}, "profiles": {"/": {"servers": ["a"]}}}, "profiles"),
        (
            {
                "servers": {"a": X},
                "profiles": {"p": {"servers": ["a"], "rename": {"a": {"b": "c d"}}}},
            },
            "c d",
        ),
        ({"servers": {"a": X}, "clients": {"keys": {"${NONE_SUCH}": "a"}}}, "NONE_"),
        ({"servers": {"a": X}, "clients": {}}, "keys"),
    ],
)
def test_gateway_names_what_is_wrong_with_a_file(tmp_path, config, word):
    with pytest.raises(ValueError, match=word):
        gw.read_config(configure(tmp_path, config))


@parametrize(
    "server, word",
    [
        ({}, "command"),
        ({"command": []}, "command"),
        ({"url": "ftp://x"}, "url must begin"),
        ({**X, "revision": "x"}, "revision"),
        ({**X, "session": "mine"}, "session"),
        ({**X, "env": {"A": []}}, "env"),
        ({**X, "args": [[]]}, "args"),
        ({**X, "headers": 5}, "headers"),
        ({"url": "http://x", "headers": {"A": "${NONE_SUCH}"}}, "NONE_SUCH"),
        ({"url": "http://x", "forward": ["authorization"]}, "never forwarded"),
        ({"url": "http://x", "forward": ["X-Key"]}, "never forwarded"),
        ({"url": "http://x", "forward": ["Mcp-Session-Id"]}, "never forwarded"),
    ],
)
def test_gateway_leaves_out_a_server_that_cannot_be_understood(
    tmp_path, capsys, server, word
):
    config = {
        "mcpServers": {"good": X, "bad": server, "off": {**X, "disabled": True}},
        "profiles": {"all": {"servers": ["bad", "good", "off"]}},
        "clients": {"keys": {"key": "ann"}, "header": "x-key"},
    }
    setup = gw.read_config(configure(tmp_path, config))
    assert list(setup.upstreams) == ["good"]
    members = setup.profiles["all"].members
    assert [member.upstream.name for member in members] == ["good"]
    printed = capsys.readouterr()[1]
    assert "'bad'" in printed and word in printed


@parametrize(
    "words, keyword",
    [
        ("none.json", "none.json"),
        ("gateway.json --http x", "PORT"),
        ("gateway.json --profile x", "one of all"),
        ("gateway.json --http 192.0.2.1:0", "192."),
    ],
)
def test_gateway_names_what_is_wrong_with_its_command_line(words, keyword, tmp_path):
    configure(tmp_path, {"servers": {"x": X}})
    is_refused([*GATEWAY[1:], *words.split()], keyword, tmp_path)


@needs_posix
def test_gateway_runs_on_stdio_and_over_http(tmp_path):
    config = configure(
        tmp_path,
        {
            "mcpServers": {
                "pid": {
                    "command": sys.executable,
                    "args": [str(tmp_path / "pid.py")],
                    "type": "stdio",
                }
            }
        },
    )
    with listening(*GATEWAY[1:], config) as (process, url):
        for target in [*GATEWAY, config], url:
            with client.connect(target, env=COVERAGE) as front:
                assert front.call_tool("pid__pid")["content"]
        process.terminate()
        process.stdout.read()
        assert process.wait(PATIENCE) == 0


# ---- one application that is not always running, and upstreams that misbehave


@contextlib.contextmanager
def fronting(*upstreams):
    """Start upstreams; connect a client to a profile with all of them."""
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    for upstream in upstreams:
        upstream.keeper.start()
    try:
        with client.connect(profile) as front:
            yield front
    finally:
        gw.close_all(upstreams)


def names_of(front) -> list[str]:
    return [tool["name"] for tool in front.list_tools()]


@contextlib.contextmanager
def application(port: int = 0):
    """Serve a tool on a port, as an application does; yield the port."""
    server = mcp.Server("application")
    server.tool(lambda: "done", name="work")
    server.resource("app://state")(lambda: "running")
    httpd = mcp.http_server(mcp.Endpoint(server), port=port)
    serving = begin(httpd.serve_forever, 0.01)
    try:
        yield httpd.server_port
    finally:
        httpd.close()
        serving.result(PATIENCE)


@parametrize("version", [MODERN[0], LEGACY[0]])
def test_gateway_notices_at_once_that_an_application_comes_and_goes(
    monkeypatch, version
):
    # So that nothing is noticed by chance:
    monkeypatch.setattr(gw, "RETRY_SECONDS", 1000.0)
    monkeypatch.setattr(gw, "CHECK_SECONDS", 1000.0)
    heard = queue.SimpleQueue()
    with application() as port:
        url = f"http://127.0.0.1:{port}/mcp"
    options = {"url": url, "revision": version}
    with fronting(gw.Upstream(url, options, "")) as front:
        assert names_of(front) == []
        with front.listen(["tools"], heard.put):
            for _ in range(2):
                with pytest.raises(mcp.RpcError, match=f"{url} is down"):
                    front.call_tool("work")
                with application(port):
                    assert heard.get(timeout=PATIENCE) == "tools"
                    assert names_of(front) == ["work"]
                    assert front.call_tool("work")["content"][0]["text"] == "done"
                    found = front.read_resource("app://state")
                    assert found[0]["text"] == "running"
                assert heard.get(timeout=PATIENCE) == "tools"
                assert names_of(front) == []


def test_gateway_takes_a_url_in_place_of_a_file():
    upstreams, profiles, _ = gw.read_config("http://127.0.0.1:9/mcp")
    assert [upstream.prefix for upstream in upstreams.values()] == [""]
    assert [profile.path for profile in profiles.values()] == ["/mcp/all"]
    with pytest.raises(ValueError, match="URL"):
        gw.read_config("ftp://127.0.0.1/mcp")


def test_gateway_waits_for_all_upstreams_together(monkeypatch):
    waits, now = [], [100.0]

    class Never:
        def wait(self, seconds):
            waits.append(seconds)
            now[0] += seconds

    monkeypatch.setattr(gw, "time", mock.Mock(monotonic=lambda: now[0]))
    upstreams = [gw.Upstream(name, {"command": "x"}) for name in "abc"]
    for upstream in upstreams:
        upstream.tried = Never()
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    with client.connect(profile) as front:
        assert names_of(front) == names_of(front) == []
    assert sum(waits) == gw.WAIT_SECONDS


def test_gateway_needs_no_ping(monkeypatch):
    class Silent(mcp.Server):
        def handle(self, message, *others, **options):
            if message.get("method") != "ping":
                super().handle(message, *others, **options)

    server = Silent("silent")
    server.tool(lambda: None, name="work")
    monkeypatch.setattr(
        gw.Upstream, "transport", lambda *_: client.MemoryTransport(server)
    )
    upstream = gw.Upstream("app", {"command": "x", "revision": LEGACY[0]})
    with fronting(upstream) as front:
        assert names_of(front) == ["app__work"]


def test_gateway_cuts_lists_that_are_too_long(monkeypatch, capsys):
    monkeypatch.setattr(gw, "MAX_LIST_BYTES", 10_000)
    server = mcp.Server("long", page_size=2)
    for number in range(20):
        server.tool(lambda: None, name=f"tool{number}", description="x" * 900)
    server.prompt(lambda: "Hello", name="greet")
    with http_serving(server) as serving, application() as port:
        upstreams = [
            gw.Upstream("long", {"url": serving.url}),
            gw.Upstream("app", {"url": f"http://127.0.0.1:{port}/mcp"}),
        ]
        with fronting(*upstreams) as front:
            assert names_of(front)[::9] == ["long__tool0", "app__work"]
            assert [one["name"] for one in front.list_prompts()] == ["long__greet"]
    assert "cannot list all tools: they have more than 10000" in capsys.readouterr()[1]


@parametrize("version", [MODERN[0], LEGACY[0]])
def test_gateway_leaves_out_a_malformed_tool(version, capsys):
    server = mcp.Server("bad")
    for name in ("first", "second", "third", "last"):
        server.tool(lambda: "done", name=name)
    server.tools["second"].definition["name"] = ["\x1b[2J"]
    server.tools["third"].definition.pop("inputSchema")
    with http_serving(server) as serving:
        options = {"url": serving.url, "revision": version}
        with fronting(gw.Upstream("bad", options)) as front:
            assert names_of(front) == ["bad__first", "bad__last"]
            assert front.call_tool("bad__last")["content"][0]["text"] == "done"
    printed = capsys.readouterr()[1]
    assert printed.count("bad: left out of tools") == 1 and "\x1b" not in printed


def test_gateway_logs_what_an_upstream_says_in_plain(capsys):
    """That it is down, for instance, with what it said then."""

    def answer(verb: str, headers: dict, message):
        yield http_answer(500, {}, "\x1b[2J\ngateway: another line")

    with contextlib.closing(Site(answer)) as site:
        upstream = gw.Upstream("evil", {"url": site.url})
        with fronting(upstream):
            assert upstream.tried.wait(PATIENCE)
    printed = capsys.readouterr()[1]
    assert "evil is down" in printed and "\x1b" not in printed
    gw.note("a\nb")
    assert capsys.readouterr()[1] == "mcp_ref: gateway: a\\nb\n"


def test_gateway_collects_changes(monkeypatch):
    """An upstream that announces one with every list does not keep it busy."""
    monkeypatch.setattr(gw, "CHANGE_SECONDS", PATIENCE)
    listed = []

    class Busy(mcp.Server):
        def handle(self, message, *others, **options):
            super().handle(message, *others, **options)
            if message.get("method") == "tools/list":
                listed.append(message)
                self.changed("tools")

    server = Busy("busy")
    server.tool(lambda: "done", name="work")
    with http_serving(server) as serving:
        upstream = gw.Upstream("busy", {"url": serving.url})
        with fronting(upstream) as front:
            assert names_of(front) == ["busy__work"]
            assert upstream.woken.wait(PATIENCE)
            time.sleep(0.02)
    assert len(listed) == 1


@needs_posix
@parametrize("name", ["SIGTERM", "SIGHUP"])
def test_gateway_leaves_no_upstream_behind(tmp_path, name):
    """Hosts end its input and, some time later, send a signal; terminals close."""
    code = """if True:
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = os.open("held", os.O_WRONLY)
        os.write(2, b"ready\\n")
        sys.stdin.read()
        os.write(2, b"end\\n")
        signal.pause()
    """
    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end = begin((tmp_path / "held").read_bytes)
    options = {"command": sys.executable, "args": ["-c", code], "cwd": str(tmp_path)}
    config = configure(tmp_path, {"servers": {"it": options}})
    with subprocess.Popen([*GATEWAY, config], stdin=-1, stderr=-1) as process:
        assert any(b"ready" in line for line in process.stderr)
        if name == "SIGTERM":
            process.stdin.close()
            assert any(b"end" in line for line in process.stderr)
        process.send_signal(getattr(signal, name))
        assert end.result(PATIENCE) == b""
        assert process.wait(PATIENCE) == (0 if name == "SIGTERM" else 130)


@needs_posix
def test_gateway_waits_for_nobody_who_reads_its_log(monkeypatch):
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writes, bytes(4096)):
            pass
    os.set_blocking(writes, True)
    with open(writes, "w", 1) as full, open(reads, "rb") as other_end:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", full)
            noted = begin(gw.note, "nobody reads this")
            done = concurrent.futures.wait([noted], 1).done
            other_end.read(1 << 16)  # whatever waits goes on
        assert done
