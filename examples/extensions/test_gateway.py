"""Tests of gateway.py: every client in front, a modern and a legacy upstream behind."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import itertools
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from unittest import mock

import gateway as gw
import pytest
from testing.places import (
    OPENING,
    called,
    command,
    core_questions,
    is_refused,
    listening,
    modern,
    said,
)
from testing.scripts import (
    COVERAGE,
    MCP_REF,
    NEWEST,
    NEWEST_LEGACY,
    OLDEST,
    PATIENCE,
    PYTHON,
    Site,
    Stage,
    begin,
    client,
    event_of,
    exchange,
    fixture,
    http_answer,
    http_serving,
    mcp,
    needs_posix,
    parametrize,
    request_to,
    scripts,
    wait_until,
)

GATEWAY = [*PYTHON, gw.__file__]
ENDS = []  # ends what gateway() started
STAGES = []  # the last one is the current test's


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a slow machine, upstreams start slowly."""
    monkeypatch.setattr(gw, "WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(gw, "INTRODUCE_SECONDS", PATIENCE / 5)


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
        gw.Upstream("old", {"url": url, "revision": NEWEST_LEGACY}),
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
:old__ask ? question elicitation/create {"message": "The server \"old\" asks: Which branch?"}
    -> {"action": "accept", "content": {"branch": "main"}} =>
    "{\"action\": \"accept\", \"content\": {\"branch\": \"main\"}}"
:old__think => {"isError": true}
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
SECRET = "s3cret-Value"
EACH_ERA = parametrize("version", [NEWEST, NEWEST_LEGACY, OLDEST])


@EACH_ERA
def test_gateway_joins_lists_and_announces_changes(version):
    heard = queue.SimpleQueue()
    server, uris = gateway()[0], ["old+test://text", "up+test://text"]
    with client.connect(gateway()[1], revision=version) as front:
        tools = {tool["name"]: tool for tool in front.list_tools()}
        assert list(tools)[:2] == ["up__add", "up__echo"] and max(map(len, tools)) == 56
        assert ("outputSchema" in tools["up__numbers"]) == front.modern
        assert {one["uri"] for one in front.list_resources()} > set(uris)
        template, *_ = front.list_resource_templates()
        assert template["uriTemplate"] == "up+test://item/{number}/{part}"
        prompts = [one["name"] for one in front.list_prompts()]
        assert prompts == ["up__greet", "old__greet"]
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
                has_grown = "grown" in server.tools
                assert (names >= {"old__grown", "up__grown"}) == has_grown


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


def pid_upstream(folder, **options):
    """Return an upstream that runs pid.py, which configure() writes."""
    return gw.Upstream("pid", {**pid_entry(folder), **options})


def pid_entry(folder) -> dict:
    return {"command": [*PYTHON, "pid.py"], "cwd": str(folder)}


def test_gateway_survives_an_upstream_that_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "RETRY_SECONDS", 0.02)
    heard = queue.SimpleQueue()
    configure(tmp_path, {})
    with fronting(pid_upstream(tmp_path)) as front:
        first = said(front, "pid__pid")
        with front.listen(["tools"], heard.put):
            with pytest.raises(mcp.RpcError) as problem:
                front.call_tool("pid__die")
            error = problem.value
            assert (error.code, error.data) == (-32603, {"server": "pid"})
            assert heard.get(timeout=PATIENCE) == "tools" and front.list_tools() == []
            (tmp_path / "down").unlink()
            assert heard.get(timeout=PATIENCE) == "tools"
            assert said(front, "pid__pid") != first


@EACH_ERA
def test_gateway_serves_each_profile_at_its_path(version):
    up, _, old = gateway()[2]
    few = gw.Profile("few", [(up, ["ad*", "echo"]), (old, [])])
    httpd = mcp.http_server(gw.Paths([gateway()[1], few], gw.LOOPBACK))
    begin(httpd.serve_forever)
    port = httpd.server_port
    if version != OLDEST:
        few_url = f"http://127.0.0.1:{port}/mcp/few/"
        with client.connect(few_url, revision=version) as front:
            assert names_of(front) == ["up__add", "up__echo"]
            with pytest.raises(mcp.RpcError, match="Unknown tool"):
                front.call_tool("up__fail", {"how": "own"})
    for name in "all", "few":
        path, accept = "/mcp/" + name, {"Accept": "text/event-stream"}
        with request_to(port, "GET", path, accept).getresponse() as answer:
            assert event_of(answer)["data"].startswith(name + "/messages?")
        assert exchange(port, "POST", path, {"Host": "x.org"}, b"")[0] == 403
    assert exchange(port, "GET", "/mcp/fewer", {})[0] == 404
    httpd.close()
    httpd.serve_forever()


RENAMING = {"servers": ["a"], "rename": {"a": {"b": "c d"}}}


@parametrize(
    "config, word",
    [
        ("{", "line 1"),
        ([], "object"),
        *((one, "no usable servers") for one in ({}, {"servers": {}})),
        ({"servers": {"a": {}}}, "no usable servers"),
        ({"servers": {"a": X}, "profiles": {"p": {"servers": ["b"]}}}, "among a"),
        ({"servers": {"a": X}, "profiles": {"/": {"servers": ["a"]}}}, "profiles"),
        ({"servers": {"a": X}, "profiles": {"p": RENAMING}}, "c d"),
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
        ({"url": "http://ann:s3cret/part@x/mcp"}, "url must begin"),
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
    assert "'bad'" in printed and word in printed and "s3cret" not in printed


@parametrize(
    "words, keyword",
    [
        ("none.json", "none.json"),
        ("gateway.json --http x", "PORT"),
        ("gateway.json --profile x", "one of all"),
        (f"ftp://ann:{SECRET}@x/mcp?key={SECRET}", "http"),
        (f"http:///x?{SECRET}", "http"),
    ],
)
def test_gateway_names_what_is_wrong_with_its_command_line(words, keyword, tmp_path):
    """It shows no secret of a URL."""
    configure(tmp_path, {"servers": {"x": X}})
    done = called(gw, *words.split(), cwd=tmp_path)
    is_refused(done, keyword)
    assert SECRET not in done.stderr


def test_gateway_says_where_it_cannot_listen(tmp_path):
    configure(tmp_path, {"servers": {"x": X}})
    words = [gw.__file__, "gateway.json", "--http", "192.0.2.1:0"]
    is_refused(command(*words, cwd=tmp_path), "192.")


@needs_posix
def test_gateway_runs_on_stdio_and_over_http(tmp_path):
    script = str(tmp_path / "pid.py")
    pid = {"command": sys.executable, "args": [script], "type": "stdio"}
    config = configure(tmp_path, {"mcpServers": {"pid": pid}})
    with listening(gw.__file__, config) as (process, url):
        for target in [*GATEWAY, config], url:
            with client.connect(target, env=COVERAGE) as front:
                assert front.call_tool("pid__pid")["content"]
        process.terminate()
        process.stdout.read()
        assert process.wait(PATIENCE) == 0


# ---- one application that is not always running, and upstreams that misbehave


def started(*upstreams):
    """Start upstreams; return a profile with all of them."""
    profile = gw.Profile("all", [(upstream, ["*"]) for upstream in upstreams])
    for upstream in upstreams:
        upstream.keeper.start()
    return profile


@contextlib.contextmanager
def fronting(*upstreams, **options):
    """Start upstreams; connect a client to a profile with all of them."""
    profile = started(*upstreams)
    try:
        with client.connect(profile, **options) as front:
            yield front
    finally:
        gw.close_all(upstreams)


@contextlib.contextmanager
def behind(server, name="up", **options):
    """Serve a server; yield an upstream for it, which has not been started."""
    with http_serving(server) as serving:
        yield gw.Upstream(name, {"url": serving.url, **options})


@contextlib.contextmanager
def in_front_of(server, name="up", revision=None, **options):
    """Serve a server behind a gateway; yield a client of that, and the upstream."""
    given = {"revision": revision} if revision else {}
    with behind(server, name, **given) as upstream:
        with fronting(upstream, **options) as front:
            yield front, upstream


def names_of(front) -> list[str]:
    return [tool["name"] for tool in front.list_tools()]


def working(name: str, kind=mcp.Server):
    """Make a server with a tool `work`."""
    server = kind(name)
    server.tool(lambda: "done", name="work")
    return server


@contextlib.contextmanager
def application(port: int = 0):
    """Serve a tool on a port, as an application does; yield the port."""
    server = working("application")
    server.resource("app://state")(lambda: "running")
    httpd = mcp.http_server(mcp.Endpoint(server), port=port)
    serving = begin(httpd.serve_forever)
    try:
        yield httpd.server_port
    finally:
        httpd.close()
        serving.result(PATIENCE)


@parametrize("version", [NEWEST, NEWEST_LEGACY])
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
                    assert said(front, "work") == "done"
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

    server = working("silent", Silent)
    monkeypatch.setattr(
        gw.Upstream, "transport", lambda *_: client.MemoryTransport(server)
    )
    upstream = gw.Upstream("app", {"command": "x", "revision": NEWEST_LEGACY})
    with fronting(upstream) as front:
        assert names_of(front) == ["app__work"]


def test_gateway_cuts_lists_that_are_too_long(monkeypatch, capsys):
    monkeypatch.setattr(gw, "MAX_LIST_BYTES", 10_000)
    server = mcp.Server("long", page_size=2)
    for number in range(20):
        server.tool(lambda: None, name=f"tool{number}", description="x" * 900)
    server.prompt(lambda: "Hello", name="greet")
    with behind(server, "long") as first, behind(working("app"), "app") as second:
        with fronting(first, second) as front:
            assert names_of(front)[::9] == ["long__tool0", "app__work"]
            assert [one["name"] for one in front.list_prompts()] == ["long__greet"]
    assert "cannot list all tools: they have more than 10000" in capsys.readouterr()[1]


@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_gateway_leaves_out_a_malformed_tool(version, capsys):
    server = mcp.Server("bad")
    for name in ("first", "second", "third", "last"):
        server.tool(lambda: "done", name=name)
    server.tools["second"].definition["name"] = ["\x1b[2J"]
    server.tools["third"].definition.pop("inputSchema")
    with in_front_of(server, "bad", version) as (front, _):
        assert names_of(front) == ["bad__first", "bad__last"]
        assert said(front, "bad__last") == "done"
    printed = capsys.readouterr()[1]
    assert printed.count("bad: left out of tools") == 1 and "\x1b" not in printed


def test_gateway_logs_what_an_upstream_says_in_plain(capsys):
    """That it is down, for instance, with what it said then."""

    def answer(verb: str, headers: dict, message):
        yield http_answer(500, {}, "\x1b[2J\ngateway: another line")

    with contextlib.closing(Probed(answer)) as site:
        upstream = gw.Upstream("evil", {"url": site.url})
        with fronting(upstream):
            assert upstream.tried.wait(PATIENCE)
    printed = capsys.readouterr()[1]
    assert "evil is down" in printed and "\x1b" not in printed
    gw.note("a\nb")
    assert capsys.readouterr()[1] == "mcp_ref: gateway: a\\nb\n"


def busy_server(listed):
    """Return a server that announces a change with every list, and calls listed()."""

    class Busy(mcp.Server):
        def handle(self, message, *others, **options):
            super().handle(message, *others, **options)
            if message.get("method") == "tools/list":
                listed(message)
                self.changed("tools")

    return working("busy", Busy)


def test_gateway_collects_changes(monkeypatch):
    """An upstream that announces one with every list does not keep it busy."""
    monkeypatch.setattr(gw, "CHANGE_SECONDS", PATIENCE)
    listed = []
    with in_front_of(busy_server(listed.append)) as (front, upstream):
        assert names_of(front) == ["up__work"]
        assert upstream.woken.wait(PATIENCE)
        time.sleep(0.02)
    assert len(listed) == 1


def test_lists_do_not_wait_for_subscriptions():
    held, gate = threading.Event(), threading.Event()

    class Slow(mcp.Server):
        def handle(self, message, *others, **options):
            if message.get("method") == "resources/subscribe" and held.is_set():
                gate.wait(PATIENCE)
            super().handle(message, *others, **options)

    server, heard = working("slow", Slow), queue.SimpleQueue()
    server.resource("app://{+name}")(lambda name: name)
    with behind(server, revision=NEWEST_LEGACY) as upstream:
        with fronting(upstream) as front:
            assert upstream.ready.wait(PATIENCE)
            with front.listen(["up+app://1"], heard.put):
                held.set()
                before = upstream.client
                before.close()  # as at a restart
                wait_until(lambda: upstream.client not in (None, before))
                assert upstream.ready.wait(PATIENCE) and names_of(front) == ["up__work"]
                gate.set()
                wait_until(lambda: ("app://1",) in upstream.heard)
                server.changed("app://1")
                assert heard.get(timeout=PATIENCE) == "up+app://1"


def test_many_changes_leave_no_other_out(monkeypatch):
    monkeypatch.setattr(gw, "MAX_CHANGED", 3)
    server, heard = mcp.Server("app"), queue.SimpleQueue()
    server.resource("app://{+name}")(lambda name: name)
    uris = [f"app://{number}" for number in range(10)]
    with in_front_of(server, revision=NEWEST) as (front, upstream):
        wait_until(upstream.ready.is_set)
        with front.listen(["up+" + uri for uri in uris], heard.put):
            wait_until(lambda: len(upstream.heard) == 1 + len(uris))
            for uri in uris:
                server.changed(uri)
            came = {heard.get(timeout=PATIENCE) for _ in uris}
    assert came == {"up+" + uri for uri in uris}


def test_an_upstream_that_never_rests_is_listed_seldom(monkeypatch):
    monkeypatch.setattr(gw, "CHANGE_SECONDS", 0.0)
    monkeypatch.setattr(gw, "BUSY_SECONDS", 1000.0)
    monkeypatch.setattr(gw, "MAX_LISTINGS", 3)
    listed = queue.SimpleQueue()
    with in_front_of(busy_server(listed.put)) as (front, _):
        for _ in range(4):
            assert listed.get(timeout=PATIENCE)
        with pytest.raises(queue.Empty):
            listed.get(timeout=0.2)
        assert said(front, "up__work") == "done"


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
    options["revision"] = OLDEST  # else its stderr is held back until it answers
    config = configure(tmp_path, {"servers": {"it": options}})
    number = getattr(signal, name)
    ours = signal.signal(number, signal.SIG_DFL)  # nohup ignores it, as do its children
    try:
        process = subprocess.Popen([*GATEWAY, config], stdin=-1, stderr=-1)
    finally:
        signal.signal(number, ours)
    with process:
        assert any(b"ready" in line for line in process.stderr)
        if name == "SIGTERM":
            process.stdin.close()
            assert any(b"end" in line for line in process.stderr)
        process.send_signal(number)
        assert end.result(PATIENCE) == b""
        assert process.wait(PATIENCE) == 0


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


# ---- what an upstream may send, and what it costs

SCHEMA = '"inputSchema": {"type": "object"}'
DEEP = '{"a":' * 400 + "1" + "}" * 400
# Entries that some client would refuse the whole list for, by kind.
BAD = {
    "tools": [
        '{"name": "a", "inputSchema": {"type": "object", "maximum": 1e999}}',
        '{"name": "a", "description": 5, %s}' % SCHEMA,
        '{"name": "a", "title": [], %s}' % SCHEMA,
        '{"name": "a", "annotations": [], %s}' % SCHEMA,
        '{"name": "a", "annotations": {"readOnlyHint": "yes"}, %s}' % SCHEMA,
        '{"name": "a", "outputSchema": 5, %s}' % SCHEMA,
        '{"name": "a", "icons": [5], %s}' % SCHEMA,
        '{"name": "a", "icons": [{"src": 5}], %s}' % SCHEMA,
        '{"name": "a", "_meta": [], %s}' % SCHEMA,
        '{"name": "a", "inputSchema": {"type": "object", "properties": %s}}' % DEEP,
        '{"name": "a", "description": "\\ud83d", %s}' % SCHEMA,
        '{"name": "a\\udc00", %s}' % SCHEMA,
        '{"name": "a", "inputSchema": {"type": "array"}}',
        '{"name": "a"}',
        "{}",
        "5",
        "null",
        "[]",
    ],
    "prompts": [
        '{"name": "a", "arguments": 5}',
        '{"name": "a", "arguments": [{"description": "b"}]}',
        '{"name": "a", "arguments": [{"name": "b", "required": "yes"}]}',
        '{"name": 5}',
    ],
    "resources": [
        '{"name": "a", "uri": 5}',
        '{"uri": "x://a"}',
        '{"name": "a", "uri": "x://a", "mimeType": 5}',
        '{"name": "a", "uri": "x://a", "size": 1e999}',
        '{"name": "a", "uri": "x://a", "annotations": {"priority": "high"}}',
    ],
    "resourceTemplates": ['{"name": "a", "uriTemplate": null}', "7"],
}
GOOD = {
    "tools": '{"name": "good", %s}' % SCHEMA,
    "prompts": '{"name": "good"}',
    "resources": '{"name": "good", "uri": "x://good"}',
    "resourceTemplates": '{"name": "good", "uriTemplate": "x://{a}"}',
}


class Probed(Site):
    """A site that ignores connections on which nothing comes."""

    def finish_request(self, connection, address):
        if connection.recv(1, socket.MSG_PEEK):
            super().finish_request(connection, address)


@contextlib.contextmanager
def raw_upstream(lists, **options):
    """Serve what it says as text: results by method, each as a text, or a function of
    headers and message, whose bytes are the whole answer."""

    def answer(verb: str, headers: dict, message: dict):
        found = lists.get(message.get("method"))
        if callable(found):
            found = found(headers, message)
        if isinstance(found, bytes):
            yield found
            return
        if message.get("method") == "server/discover":
            body = '"error": {"code": -32601, "message": "no"}'
        elif message.get("method") == "initialize":
            body = (
                '"result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x",'
                ' "version": "1"}, "capabilities": {"tools": {}, "prompts": {},'
                ' "resources": {}}}'
            )
        else:
            body = '"result": ' + (found or "{}")
        if "id" in message:
            text = f'{{"jsonrpc": "2.0", "id": {message["id"]}, {body}}}'
            yield http_answer(200, {"Content-Type": "application/json"}, text)
        else:
            yield http_answer(202, {})

    with contextlib.closing(Probed(answer)) as site:
        yield gw.Upstream("raw", {"url": site.url, **options}), site


def raw_tool(result='{"content": []}', **options):
    """Serve a tool `good`, whose calls have this result."""
    lists = {"tools/list": list_of("tools", GOOD["tools"]), "tools/call": result}
    return raw_upstream(lists, **options)


def list_of(kind: str, *entries: str, cursor: str = "") -> str:
    more = f', "nextCursor": "{cursor}"' if cursor else ""
    return f'{{"{kind}": [{", ".join(entries)}]{more}}}'


METHODS_OF = {kind.name: kind.method for kind in gw.KINDS.values()}
EACH_BAD = [(kind, one) for kind, bad in BAD.items() for one in bad]


@parametrize(
    "kind, bad", EACH_BAD, ids=[f"{kind}{at}" for at, (kind, _) in enumerate(EACH_BAD)]
)
def test_an_entry_that_a_client_would_refuse_costs_itself_only(kind, bad, capsys):
    lists = {METHODS_OF[kind]: list_of(kind, bad, GOOD[kind])}
    with raw_upstream(lists) as (upstream, _), fronting(upstream):
        assert upstream.tried.wait(PATIENCE)
        items = upstream.profiles[0].items[kind].values()
        assert [item.definition["name"][-4:] for item in items] == ["good"]
    assert f"raw: left out of {kind}:" in capsys.readouterr()[1]


def test_a_list_in_which_nothing_is_wrong_passes_whole():
    definition = {
        "name": "raw__full",
        "title": "Full",
        "description": "All of it",
        "inputSchema": {"type": "object", "properties": {"a": {"maximum": 1e300}}},
        "outputSchema": {"type": "object"},
        "annotations": {"title": "T", "readOnlyHint": True, "x": 1},
        "icons": [{"src": "https://x.test/i.png", "sizes": ["48x48"]}],
        "_meta": {"a.b/c": [1]},
    }
    # null stands for what is left out
    entry = json.dumps({**definition, "name": "full", "execution": None})
    with raw_upstream({"tools/list": list_of("tools", entry, entry)}) as (upstream, _):
        with fronting(upstream) as front:
            assert front.list_tools() == [definition]  # once, though it came twice


@parametrize(
    "result, shown",
    [
        ('{"content": [{"type": "text", "text": "cut \\ud83d"}]}', "cut ?"),
        ('{"content": [], "structuredContent": {"a": 1e999}}', "cannot be passed on"),
        ("5", "no valid result"),
    ],
)
def test_a_result_that_clients_cannot_read_costs_that_call_only(result, shown):
    with raw_tool(result) as (upstream, _), fronting(upstream) as front:
        try:
            found = said(front, "raw__good")
        except mcp.RpcError as problem:
            found = str(problem)
        assert shown in found
        assert names_of(front) == ["raw__good"]


@parametrize(
    "name, params, heard",
    [
        ("progress", '{"progress": "half"}', []),
        ("progress", '{"progress": 1e999}', []),
        ("progress", '{"progress": 1, "total": []}', [(1, None, None)]),
        ("progress", '{"total": 1}', []),
        ("progress", '{"progress": 1, "message": "cut \\ud83d"}', [(1, None, "cut ?")]),
        ("message", '{"level": "error", "data": 1e999}', []),
        ("message", '{"level": "error", "data": 1, "logger": 5}', []),
        ("message", '{"level": [], "data": 1}', []),
        ("message", '{"level": "error", "data": "cut \\ud83d"}', ["cut ?"]),
        ("elicitation/complete", "5", []),
        ("elicitation/complete", '{"elicitationId": []}', []),
    ],
)
def test_what_an_upstream_says_during_a_call_does_not_end_it(name, params, heard):
    def answer(headers: dict, message: dict) -> bytes:
        token = message["params"]["_meta"].get("progressToken")
        extra = f'"progressToken": {token}, ' if name == "progress" else ""
        said = params.replace("{", "{" + extra, 1)
        notice = f'"method": "notifications/{name}", "params": {said}'
        result = f'"id": {message["id"]}, "result": {{"content": []}}'
        events = [f'data: {{"jsonrpc": "2.0", {one}}}\n\n' for one in (notice, result)]
        return http_answer(200, {"Content-Type": "text/event-stream"}, "".join(events))

    found = []
    options = {"on_log": lambda params: found.append(params["data"])}
    options["revision"] = NEWEST_LEGACY
    with raw_tool(answer) as (up, _), fronting(up, **options) as front:
        hear = lambda *said: found.append(said)  # noqa: E731
        result = front.call_tool("raw__good", on_progress=hear)
        assert result["content"] == [] and found == heard


@parametrize(
    "data, shown",
    [('{"a": "cut \\ud83d"}', {"a": "cut ?"}), ("1e999", None), (DEEP, "deep")],
    ids=["cut", "infinite", "deep"],
)
def test_an_error_that_clients_cannot_read_costs_that_call_only(data, shown):
    def answer(headers: dict, message: dict) -> bytes:
        error = f'{{"code": 7, "message": "cut \\ud83d", "data": {data}}}'
        text = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "error": {error}}}'
        return http_answer(200, {"Content-Type": "application/json"}, text)

    with raw_tool(answer) as (up, _), fronting(up) as front:
        with pytest.raises(mcp.RpcError) as caught:
            front.call_tool("raw__good")
    assert caught.value.code == 7 and str(caught.value) == "cut ?"
    found = caught.value.data["originalError"]["data"]
    assert found == shown or shown == "deep" and (found is None or "a" in found)


def test_a_change_of_what_is_no_uri_is_passed_over(monkeypatch):
    monkeypatch.setattr(gw, "CHANGE_SECONDS", 0.0)
    server = mcp.Server("odd")
    server.resource("x://a")(lambda: "a")
    heard = queue.SimpleQueue()
    with in_front_of(server) as (front, _), front.listen(["up+x://a"], heard.put):
        for uri in ("x://a/" + "a" * mcp.MAX_URI_LENGTH, "x://a"):
            for listener in list(server.listeners):
                listener.tell(
                    "notifications/resources/updated", {"uri": uri}, *listener.uris
                )
        assert heard.get(timeout=PATIENCE) == "up+x://a"


@parametrize("cursor, most", [(str, 20), (lambda number: "same", 2)])
def test_a_list_that_never_ends_is_cut(monkeypatch, capsys, cursor, most):
    monkeypatch.setattr(gw, "MAX_PAGES", 20)
    pages = []

    def page(headers: dict, message: dict) -> str:
        pages.append(message)
        number = len(pages)
        tool = GOOD["tools"].replace("good", f"good{number}")
        return list_of("tools", tool, cursor=cursor(number))

    with raw_upstream({"tools/list": page}) as (upstream, _):
        with fronting(upstream) as front:
            assert names_of(front)[0] == "raw__good1"
            assert len(pages) == len(names_of(front)) == most
    assert "cannot list all tools" in capsys.readouterr()[1]


def test_a_message_that_is_too_large_costs_one_answer(capsys):
    lists = {
        "tools/list": list_of("tools", GOOD["tools"]),
        "prompts/list": list_of("prompts", *[GOOD["prompts"]] * 999),
        "tools/call": '{"content": [%s]}' % ("0," * 9999 + "0"),
    }
    with raw_upstream(lists, maxBytes=10_000) as (upstream, _):
        with fronting(upstream) as front:
            assert front.list_prompts() == []
            with pytest.raises(mcp.RpcError, match="more than 10000 bytes"):
                front.call_tool("raw__good")
            assert names_of(front) == ["raw__good"]
    assert "more than 10000 bytes" in capsys.readouterr()[1]


def test_text_may_have_many_brackets():
    text = "[1]," * 400_000
    with raw_tool(json.dumps({"content": [mcp.text(text)]})) as (upstream, _):
        with fronting(upstream) as front:
            assert said(front, "raw__good") == text


MANY = {str(number): {"method": "roots/list"} for number in range(65)}


@EACH_ERA
@parametrize(
    "result",
    [
        {"_meta": 5, "content": []},
        {"requestState": 5},
        {"requestState": {"a": 1}},
        {"inputRequests": 5},
        {"inputRequests": {"a": 5}},
        {"inputRequests": {"a": {"method": "none/such"}}},
        {"inputRequests": {"a": {"method": "roots/list", "params": 5}}},
        {"inputRequests": MANY},
    ],
)
def test_a_result_that_cannot_be_used_is_the_servers_error(version, result):
    asks = {} if "content" in result else {"resultType": "input_required"}
    with raw_tool(json.dumps({**asks, **result})) as (upstream, _):
        with fronting(upstream, revision=version, roots="/tmp") as front:
            with pytest.raises(mcp.RpcError, match="raw failed: its result cannot"):
                front.call_tool("raw__good")


@EACH_ERA
def test_a_member_that_is_null_is_none(version):
    result = '{"_meta": null, "requestState": null, "content": []}'
    with raw_tool(result) as (upstream, _):
        with fronting(upstream, revision=version) as front:
            assert front.call_tool("raw__good")["content"] == []


def test_tasks_are_not_declared_for_a_client():
    """We could not pass them on."""
    server = mcp.Server("extended")

    @server.tool
    def extensions(ctx: mcp.Context) -> list:
        return sorted(ctx.client_capabilities["extensions"])

    declare = {"extensions": {"io.modelcontextprotocol/tasks": {}, "x.test/y": {}}}
    with in_front_of(server, revision=NEWEST, declare=declare) as (front, _):
        assert said(front, "up__extensions") == '["x.test/y"]'


@parametrize("sent, status", [("anns", 400), (None, 400), ("bobs", 200)])
def test_headers_must_repeat_the_arguments_that_a_schema_marks(sent, status):
    marked = {"tenant": {"type": "string", "x-mcp-header": "Tenant"}}
    server = mcp.Server("app")
    server.tool(
        lambda tenant: "done",
        name="work",
        input_schema={"type": "object", "properties": marked},
    )
    with behind(server) as upstream, crowd(upstream) as person:
        port = int(person.url.split(":")[2].split("/")[0])
        given = {"tenant": "bobs"}
        message = modern("tools/call", name="up__work", arguments=given)
        headers = {
            "Authorization": "Bearer key-of-bob",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": NEWEST,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "up__work",
        }
        if sent:
            headers["Mcp-Param-Tenant"] = sent
        body = json.dumps(message).encode()
        assert exchange(port, "POST", "/mcp/all", headers, body)[0] == status


def test_a_call_waits_for_no_other_upstream_that_starts(monkeypatch):
    monkeypatch.setattr(gw, "WAIT_SECONDS", 3600.0)
    server, slow = mcp.Server("app"), gw.Upstream("slow", {"command": ["none"]})
    server.tool(lambda: "done", name="work")
    with behind(server) as upstream, crowd(upstream) as person:
        one = person("bob", NEWEST).client
        upstream.profiles[0].members.append(gw.Member(slow, ["*"], {}))
        one.tools = {"up__work": {}}  # else it lists them first
        assert one.call_tool("up__work", timeout=PATIENCE)["content"]


def test_a_schema_whose_headers_cannot_be_read_marks_none():
    schema = {"type": "object", "properties": {"a": {"properties": 5}}}
    assert gw.Item(None, "x", {"inputSchema": schema}).input_schema == {}


@EACH_ERA
def test_a_page_in_an_error_says_which_server_asks(version):
    server = mcp.Server("pages")

    @server.tool
    def refuse() -> str:
        page = {"mode": "url", "message": "Log in", "url": "https://pages.test/"}
        raise mcp.RpcError(-32042, "visit it", {"elicitations": [page]})

    with in_front_of(server, revision=version) as (front, _):
        with pytest.raises(mcp.RpcError, match="visit it") as caught:
            front.call_tool("up__refuse")
    data = caught.value.data
    for one in (data, data["originalError"]["data"]):
        (page,) = one["elicitations"]
        assert page["message"] == 'The server "up" asks: Log in'


@parametrize("order", ["jsonrpc id result", "jsonrpc result id", "result id jsonrpc"])
def test_a_line_that_is_too_large_fails_the_request_that_it_answers(tmp_path, order):
    """On stdio; at once, not by a timeout."""
    code = f"""if True:
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            if message["method"] == "initialize":
                body = {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                        "serverInfo": {{"name": "x", "version": "1"}}}}
            else:
                body = {{"tools": [{{"pad": "x" * 20000}}]}}
            if message["method"] == "server/discover":
                print(json.dumps({{"jsonrpc": "2.0", "id": message["id"],
                    "error": {{"code": -32601, "message": "no"}}}}), flush=True)
            elif "id" in message:
                answer = {{"jsonrpc": "2.0", "id": message["id"], "result": body}}
                ordered = {{name: answer[name] for name in {order.split()}}}
                print(json.dumps(ordered), flush=True)
        """
    options = {"command": [*PYTHON, "-c", code], "maxBytes": 10_000}
    upstream = gw.Upstream("wide", options)
    with fronting(upstream) as front:
        assert upstream.tried.wait(PATIENCE)
        assert upstream.client and names_of(front) == []
        with pytest.raises(client.Malformed, match="10000"):
            upstream.client.request("tools/list", timeout=PATIENCE)


def test_a_flood_of_lines_is_left_out_and_counted(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(gw, "time", mock.Mock(monotonic=lambda: now[0]))
    upstream = gw.Upstream("loud", {"command": ["x"]})
    for _ in range(1000):
        upstream.say("again")
    assert capsys.readouterr()[1].count("again") == 2 * gw.MAX_LINES
    now[0] += 1
    upstream.say("later")
    printed = capsys.readouterr()[1]
    assert f"{1000 - 2 * gw.MAX_LINES} lines were left out" in printed
    assert "later" in printed


def shouting():
    """Make a server with a tool that logs as often as it is told."""
    server = mcp.Server("loud")

    @server.tool
    def shout(ctx: mcp.Context, times: int) -> str:
        for _ in range(times):
            ctx.log("error", "said")
        return "done"

    return server


def test_a_flood_of_log_messages_is_left_out():
    heard = []
    with in_front_of(shouting(), on_log=heard.append) as (front, _):
        assert said(front, "up__shout", arguments={"times": 500}) == "done"
    assert 2 * gw.MAX_LINES <= len(heard) < 400


def test_one_users_flood_of_log_messages_leaves_those_of_others(monkeypatch):
    monkeypatch.setattr(gw, "MAX_LINES", 1)
    with behind(shouting()) as upstream, crowd(upstream) as person:
        ann, bob = person("ann"), person("bob")
        ann.client.call_tool("up__shout", {"times": 100})
        bob.client.call_tool("up__shout", {"times": 1})
        wait_until(lambda: bob.logs == ["said"])
        assert 2 <= len(ann.logs) < 90


def test_many_changes_of_a_resource_are_told_once(monkeypatch):
    monkeypatch.setattr(gw, "CHANGE_SECONDS", 0.02)
    told, server = [], mcp.Server("restless")
    server.resource("x://a")(lambda: "a")
    heard = queue.SimpleQueue()
    hear = lambda one: [told.append(one), heard.put(one)]  # noqa: E731
    with in_front_of(server) as (front, _), front.listen(["up+x://a"], hear):
        for _ in range(300):
            server.changed("x://a")
        assert heard.get(timeout=PATIENCE) == "up+x://a"
    assert len(told) < 100


# ---- slow, dead, and started again


@needs_posix
def test_a_slow_start_is_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(gw, "LIST_SECONDS", 0.05)  # of requests, not of the start
    command = ["sh", "-c", f"read x < gate; exec {sys.executable} pid.py"]
    slow = {"command": command, "cwd": str(tmp_path)}
    setup = gw.read_config(configure(tmp_path, {"servers": {"slow": slow}}))
    os.mkfifo(tmp_path / "gate")
    assert setup.upstreams["slow"].options["startup"] == gw.START_SECONDS > 60
    heard = queue.SimpleQueue()
    setup.upstreams["slow"].keeper.start()
    with client.connect(setup.profiles["all"]) as front:
        with front.listen(["tools"], heard.put):
            assert names_of(front) == []
            # Other requests would have failed long ago.
            assert not setup.upstreams["slow"].tried.wait(0.3)
            monkeypatch.setattr(gw, "LIST_SECONDS", PATIENCE)
            (tmp_path / "gate").write_text("go\n")
            assert heard.get(timeout=PATIENCE) == "tools"
            assert "slow__pid" in names_of(front)
    setup.upstreams["slow"].close()


def test_a_server_gets_what_hosts_give(tmp_path, monkeypatch):
    """Behind a proxy, npx installs nothing without it; and nothing secret."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:1")
    monkeypatch.setenv("MY_TOKEN", "secret")
    code = """if True:
        import os
        from mcp_ref import Server
        server = Server("env")
        server.tool(lambda: dict(os.environ), name="env")
        server.run()
    """
    own = {"PYTHONPATH": str(MCP_REF.parent), "no_proxy": "mine"}
    options = {"command": [*PYTHON, "-c", code], "env": own}
    with fronting(gw.Upstream("it", options)) as front:
        found = json.loads(said(front, "it__env"))
    assert found["HTTPS_PROXY"] == "http://proxy.test:1" and "MY_TOKEN" not in found
    assert found["NO_PROXY" if os.name == "nt" else "no_proxy"] == "mine"


@parametrize(
    "given, startup, timeout",
    [
        ({}, gw.START_SECONDS, None),
        ({"timeout": 600_000}, 600, 600),
        ({"timeout": 60}, gw.START_SECONDS, 60),
        ({"startup_timeout_sec": 5}, 5, None),
    ],
)
def test_the_times_in_a_hosts_file_count(tmp_path, given, startup, timeout):
    setup = gw.read_config(configure(tmp_path, {"mcpServers": {"a": {**X, **given}}}))
    options = setup.upstreams["a"].options
    assert (options["startup"], options["timeout"]) == (startup, timeout)


def test_a_dead_upstream_is_tried_with_a_growing_pause(monkeypatch):
    now, tried = [100.0], []
    monkeypatch.setattr(gw, "time", mock.Mock(monotonic=lambda: now[0]))
    upstream = gw.Upstream("dead", {"command": ["x"]})

    class Woken:
        def wait(self, seconds):
            now[0] += seconds

        def is_set(self):
            return False

        clear = set = is_set

    def transport(values):
        tried.append(now[0])
        if len(tried) == 9:
            upstream.closed.set()
        raise client.Disconnected("no")

    upstream.woken, upstream.transport = Woken(), transport
    upstream.keeper.start()
    upstream.keeper.join(PATIENCE)
    pauses = [round(late - early) for early, late in zip(tried, tried[1:])]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


# ---- names, pages, instructions


def test_names_fit_and_do_not_collide():
    server = mcp.Server("names")
    long = "a" * 60
    for name in ("short", "dir/it", long + "1", long + "2", "dir_it"):
        server.tool(lambda: name, name=name)
    with http_serving(server) as serving:
        upstreams = [
            gw.Upstream("Up", {"url": serving.url}),
            gw.Upstream("u p", {"url": serving.url}, gw.prefix_of("u p", ["u-p"])),
        ]
        with fronting(*upstreams) as front:
            names = names_of(front)
            assert len(names) == len({*names}) == 10
            assert max(map(len, names)) <= gw.MAX_NAME == 56
            assert {"up__short", "up__dir_it"} < {*names}
            for name in names:
                assert front.call_tool(name)["content"]


@parametrize("name", ["日本", "", "--", "a" * 99, "up", "1", "a__b", "a+b"])
def test_each_server_has_a_prefix(name):
    prefix = gw.prefix_of(name, ["up"])
    assert gw.re.fullmatch("[a-z][a-z0-9-]*", prefix) and len(prefix) <= 28
    assert prefix != "up" and prefix == gw.prefix_of(name, ["up"])


def test_a_profile_renames_tools(tmp_path):
    server = mcp.Server("names")
    for name in ("add", "sub", "mul"):
        server.tool(lambda name=name: name, name=name, input_schema={"type": "object"})
    with http_serving(server) as serving:
        entry = {"url": serving.url, "includeTools": ["add", "sub"]}
        config = {
            "servers": {"calc": {**entry, "excludeTools": ["mul"]}},
            "profiles": {
                "all": {"servers": ["calc"], "rename": {"calc": {"add": "plus"}}},
                "few": {"servers": {"calc": ["s*", "m*"]}},
            },
        }
        setup = gw.read_config(configure(tmp_path, config))
        setup.upstreams["calc"].keeper.start()
        with client.connect(setup.profiles["all"]) as front:
            assert names_of(front) == ["plus", "calc__sub"]
            assert said(front, "plus") == "add"
            for name in ("calc__add", "calc__mul"):
                with pytest.raises(mcp.RpcError, match="Unknown"):
                    front.call_tool(name)
        with client.connect(setup.profiles["few"]) as front:
            assert names_of(front) == ["calc__sub"]
        setup.upstreams["calc"].close()


PAGE = "ui://shop/cart.html"


@EACH_ERA
def test_pages_links_and_completions_survive_prefixes(version):
    server = mcp.Server("shop")
    meta = {"ui": {"resourceUri": PAGE, "visibility": ["model"]}}
    meta.update({"ui/resourceUri": PAGE, "openai/outputTemplate": PAGE})
    server.tool(lambda: [mcp.link(PAGE, "cart")], name="cart", _meta=meta)
    server.resource(PAGE)(lambda: "<html>")
    server.resource("item://{name}")(lambda name: name)
    server.prompt(lambda name: f"Hello, {name}", name="greet")
    server.completion("greet", "name")(lambda text: ["Ada", "Alan"])
    server.completion("item://{name}", "name")(lambda text: ["pen"])
    ours = "ui://shop+shop/cart.html"
    with in_front_of(server, "shop", version) as (front, upstream):
        (tool,) = front.list_tools()
        if upstream.client.version > "2025-03-26":
            assert tool["_meta"] == {
                "ui": {"resourceUri": ours, "visibility": ["model"]},
                "ui/resourceUri": ours,
                "openai/outputTemplate": ours,
            }
            link = front.call_tool("shop__cart")["content"][0]
            assert link["uri"] == ours
        assert ours in [one["uri"] for one in front.list_resources()]
        (page,) = front.read_resource(ours)
        assert (page["uri"], page["text"]) == (ours, "<html>")
        assert front.complete("shop__greet", "name", "A") == ["Ada", "Alan"]
        assert front.complete("shop+item://{name}", "name", "") == ["pen"]
        heard = queue.SimpleQueue()
        with front.listen([ours], heard.put):
            server.changed(PAGE)
            assert heard.get(timeout=PATIENCE) == ours


def test_a_server_without_completions_has_none():
    with in_front_of(working("app"), "app") as (front, _):
        assert front.complete("app+app://{x}", "x", "a") == []


def test_instructions_are_joined_and_bounded():
    one = mcp.Server("one", instructions="Use it well.")
    two = mcp.Server("two", instructions="long " * 9999)
    with behind(one, "First") as first, behind(two, "Second") as second:
        with fronting(first, second) as front:
            shown = front.instructions
        start = "# First (tools: first__...)\n\nUse it well.\n\n# Second"
        assert shown.startswith(start) and len(shown) < 2 * gw.MAX_INSTRUCTIONS
        with fronting(gw.Upstream("it", first.options, "")) as front:
            assert front.instructions == "Use it well."


# ---- whose it is: questions, sessions, headers, secrets


def test_a_page_of_a_legacy_upstream_reaches_the_user(monkeypatch):
    server, visited, heard = mcp.Server("pages"), [], queue.SimpleQueue()
    url = "https://pages.test/log-in"
    question = {"mode": "url", "message": "Log in", "url": url, "elicitationId": "e1"}

    @server.tool
    def enter(ctx: mcp.Context) -> str:
        answer = ctx.ask({"a": {"method": "elicitation/create", "params": question}})
        ctx.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
        return answer["a"]["action"]

    @server.tool
    def refuse() -> str:
        raise mcp.RpcError(-32042, "visit it", {"elicitations": [question]})

    def visit(params):
        visited.append((params["url"], params["message"]))
        return True

    def hear(message):
        if message["method"] == "notifications/elicitation/complete":
            heard.put(message["params"]["elicitationId"])

    options = {"visit": visit, "on_notification": hear, "revision": "2025-11-25"}
    with behind(server, "evil", revision="2025-11-25") as upstream:
        with fronting(upstream, **options) as front:
            assert said(front, "evil__enter") == "accept"
            assert visited == [(url, 'The server "evil" asks: Log in')]
            assert heard.get(timeout=PATIENCE) == "e1"
            with pytest.raises(mcp.RpcError, match="visit it"):
                front.call_tool("evil__refuse")
            server.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
            assert heard.get(timeout=PATIENCE) == "e1"


def call_as(who: str, profile, name: str, arguments: dict | None = None, **more):
    """Call a tool as a user who fills in forms; return the result or the error."""
    sent: list = []
    request = modern("tools/call", name=name, arguments=arguments or {}, **more)
    profile.handle(request, sent.append, principal=who)
    return sent[-1].get("result") or sent[-1]["error"]


def asking_server():
    """Return a server whose tools ask."""
    server, gate = mcp.Server("asks"), threading.Event()

    @server.tool
    def twice(ctx: mcp.Context) -> str:
        ctx.progress(1, 3)
        one = ctx.elicit("One?", key="one", n=int)["content"]["n"]
        ctx.progress(2, 3)
        two = ctx.elicit("Two?", key="two", n=int)["content"]["n"]
        ctx.log("error", "nearly")
        return f"{one} {two}"

    @server.tool
    def page(ctx: mcp.Context) -> str:
        return ctx.elicit("Log in", url="https://pages.test/")["action"]

    @server.tool
    def all(ctx: mcp.Context) -> str:
        return f"{ctx.sample('Hi')['content']['text']} {ctx.list_roots()[0]['uri']}"

    @server.tool
    def wait(ctx: mcp.Context) -> str:
        ctx.on_cancel(gate.set)
        ctx.elicit("One?", n=int)
        gate.wait(PATIENCE)
        return "late"

    return server, gate


def test_a_legacy_upstream_asks_a_modern_client(tmp_path):
    asked, numbers, told = [], iter([7, 8]), []
    server, _ = asking_server()

    def elicit(params):
        asked.append(params["message"])
        return {"n": next(numbers)}

    with behind(server, "old", revision="2025-11-25") as upstream:
        profile = started(upstream)
        options = {
            "elicit": elicit,
            "visit": lambda params: True,
            "sample": lambda params: "Hello",
            "roots": tmp_path,
            "on_log": lambda params: told.append(params["data"]),
        }
        with client.connect(profile, revision=NEWEST, **options) as front:
            result = front.call_tool(
                "old__twice", on_progress=lambda *said: told.append(said[0])
            )
            assert result["content"][0]["text"] == "7 8"
            assert asked == [f'The server "old" asks: {one}?' for one in ("One", "Two")]
            assert told == [1, 2, "nearly"]
            assert said(front, "old__page") == "accept"
            assert said(front, "old__all") == f"Hello {tmp_path.as_uri()}"
        with client.connect(profile, revision=NEWEST, roots=tmp_path) as front:
            assert front.call_tool("old__page")["isError"]
            assert front.call_tool("old__twice")["isError"]
        assert not upstream.talks
        upstream.close()


@parametrize("front_version", [NEWEST, NEWEST_LEGACY])
@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_a_field_that_is_left_out_is_left_out(front_version, version):
    server = mcp.Server("form")
    form = {"a": {"type": "string"}, "b": {"type": "boolean"}}
    params = {
        "message": "Both?",
        "requestedSchema": {"type": "object", "properties": form},
    }

    @server.tool
    def fill(ctx: mcp.Context) -> str:
        found = ctx.ask({"a": {"method": "elicitation/create", "params": params}})
        return found["a"]["content"]["a"]

    options = {"elicit": lambda params: {"a": "x"}, "revision": front_version}
    with behind(server, revision=version) as upstream:
        with fronting(upstream, **options) as front:
            assert said(front, "up__fill") == "x"


@parametrize(
    "version, flaw",
    [
        *itertools.product(
            [NEWEST, NEWEST_LEGACY], ["another tool", "another principal", "made up"]
        ),
        (NEWEST_LEGACY, "twice"),
    ],
)
def test_an_answer_reaches_only_the_call_that_asked(version, flaw):
    server, gate = asking_server()
    with behind(server, "old", revision=version) as upstream:
        profile = started(upstream)

        def call(name="old__twice", who="ann", **more):
            return call_as(who, profile, name, **more)

        first = call()
        (key,) = first["inputRequests"]
        answer = {key: {"action": "accept", "content": {"n": 1}}}
        state = first["requestState"]
        given = {"inputResponses": answer, "requestState": state}
        # Without the answer, the question is asked again.
        assert call(requestState=state)["inputRequests"] == first["inputRequests"]
        if flaw == "twice" or version == NEWEST:
            assert "Two?" in json.dumps(call(**given))
        wrong = {
            "another tool": {"name": "old__page"},
            "another principal": {"who": "bob"},
            "twice": {},
            "made up": {"requestState": state + "x"},
        }[flaw]
        if flaw == "twice":
            upstream.talks.clear()
        said = call(**{**given, **wrong})["message"]
        assert ("is over" if flaw == "twice" else "is not valid here") in said
        upstream.close()


@parametrize("flaw", ["", "half a character", "another server"])
def test_a_state_comes_back_as_it_was_to_the_server_that_gave_it(flaw, monkeypatch):
    monkeypatch.setenv("MCP_STATE_KEY", "the same for both profiles")
    server, states = mcp.Server("states"), []
    server.tool(lambda: "", name="buy")

    @server.method("tools/call")
    def call(params: dict, ctx: mcp.Context) -> dict:
        states.append(params.get("requestState"))
        if states[-1] is not None:
            return {"content": []}
        return {"resultType": "input_required", "requestState": "buy?item"}

    with behind(server, "one") as one, behind(server, "two") as two:
        profiles = []
        for upstream in (one, two):
            renamed = {upstream.name: {"buy": "do"}}
            profiles.append(gw.Profile("all", [(upstream, ["*"])], renamed))
            upstream.keeper.start()
            assert upstream.ready.wait(PATIENCE)
        state = call_as("ann", profiles[0], "do")["requestState"]
        if flaw == "half a character":
            state = state.replace("?", "\ud800")
        profile = profiles[flaw == "another server"]
        found = call_as("ann", profile, "do", requestState=state)
        gw.close_all([one, two])
    assert states == ([None] if flaw else [None, "buy?item"])
    assert ("is not valid here" in json.dumps(found)) == bool(flaw)


@parametrize("key, word", [("one key for all workers", "Two?"), ("", "not valid")])
def test_another_worker_takes_an_answer_if_the_key_is_the_same(key, word, monkeypatch):
    monkeypatch.setenv("MCP_STATE_KEY", key)
    server, gate = asking_server()
    with behind(server) as one:
        upstreams = one, gw.Upstream("up", one.options)
        workers = [started(upstream) for upstream in upstreams]
        first = call_as("ann", workers[0], "up__twice")
        answer = {"action": "accept", "content": {"n": 1}}
        given = {"inputResponses": dict.fromkeys(first["inputRequests"], answer)}
        given["requestState"] = first["requestState"]
        assert word in json.dumps(call_as("ann", workers[1], "up__twice", **given))
        gw.close_all(upstreams)


def test_a_cancelled_call_that_has_asked_is_cancelled():
    server, gate = asking_server()
    answered, calls = threading.Event(), []

    def elicit(params):
        answered.set()
        return {"n": 1}

    with behind(server, "old", revision=NEWEST_LEGACY) as upstream:
        with fronting(upstream, revision=NEWEST, elicit=elicit) as front:
            call = begin(front.call_tool, "old__wait", started=calls.append)
            assert answered.wait(PATIENCE)
            wait_until(lambda: len(calls) >= 2)  # the second brings the answer
            calls[-1].cancel()
            with pytest.raises(client.RequestCancelled):
                call.result(PATIENCE)
            assert gate.wait(PATIENCE)


@contextlib.contextmanager
def over_http(profile, **options):
    """Serve a profile; yield its URL."""
    httpd = mcp.http_server(gw.Paths([profile], gw.LOOPBACK, **options))
    serving = begin(httpd.serve_forever)
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/mcp/all"
    finally:
        httpd.close()
        serving.result(PATIENCE)


@needs_posix
@parametrize("version", [NEWEST, NEWEST_LEGACY])
@parametrize("session", ["shared", "client"])
def test_clients_share_an_upstream_only_if_they_may(
    tmp_path, monkeypatch, version, session
):
    config = {
        "servers": {"pid": {**pid_entry(tmp_path), "session": session}},
        "clients": {"keys": {"key-of-ann": "ann", "key-of-bob": "bob"}},
    }
    setup = gw.read_config(configure(tmp_path, config))
    upstream, profile = setup.upstreams["pid"], setup.profiles["all"]
    upstream.keeper.start()
    found = {}
    with over_http(profile, authorize=setup.authorize) as url:
        with pytest.raises(mcp.HttpError, match="401"):
            client.connect(url)
        for name in ("ann", "bob", "ann"):
            headers = {"Authorization": f"Bearer key-of-{name}"}
            with client.connect(url, headers=headers, revision=version) as front:
                pids = {said(front, "pid__pid") for _ in "12"}
                assert len(pids) == 1
                found.setdefault(name, []).extend(pids)
        if session == "shared":
            assert len({*found["ann"], *found["bob"]}) == 1 and not upstream.own
        elif version == NEWEST_LEGACY:  # each session has its own
            assert len({*found["ann"], *found["bob"]}) == 3
        else:  # each principal has its own
            assert len({*found["ann"]}) == 1 and found["ann"][0] not in found["bob"]
            assert len(upstream.own) == 2
    if session == "client" and version == NEWEST_LEGACY:
        wait_until(lambda: not upstream.own)  # they end with the sessions
    upstream.close()


@needs_posix
def test_connections_of_single_clients_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "MAX_OWN", 2)
    configure(tmp_path, {})
    upstream = pid_upstream(tmp_path, session="client")
    profile = started(upstream)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            connected = client.connect(profile, revision=NEWEST_LEGACY)
            stack.enter_context(connected).call_tool("pid__pid")
            assert len(upstream.own) <= 2
    upstream.close()


def calls_of(site) -> list[dict]:
    """Return the headers of the calls that a site has got."""
    calls = [one for one in site.asked if one[2].get("method") == "tools/call"]
    return [headers for _, headers, _ in calls]


@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_only_named_headers_are_passed_on(version):
    secret = {"Authorization": "Bearer a", "Cookie": "b=c", "X-Other": "d"}
    options = {"forward": ["X-Tenant"], "headers": {"X-Own": "e"}}
    with raw_tool(**options) as (upstream, site):
        profile = started(upstream)
        with over_http(profile) as url:
            for tenant in ("one", "two"):
                headers = {**secret, "X-Tenant": tenant}
                with client.connect(url, headers=headers, revision=version) as front:
                    front.call_tool("raw__good")
        upstream.close()
    calls = calls_of(site)
    assert [one["x-tenant"] for one in calls] == ["one", "two"]
    for headers in calls:
        assert headers["x-own"] == "e"
        assert not {"authorization", "cookie", "x-other"} & headers.keys()


TELLS = "import os, sys; sys.exit('bad: ' + os.environ['K'])"
FAIL = "import sys; sys.exit('bad: ' + ' '.join(sys.argv[1:]) + ' of ' + %r)" % "it"


@parametrize(
    "options, word",
    [
        ({"command": [*PYTHON, "-c", FAIL, SECRET]}, "bad: *** of it"),
        ({"command": [*PYTHON, "-c", FAIL, "--key=" + SECRET]}, "bad: ***"),
        ({"command": ["/none/such", SECRET]}, "cannot start ['/none/such']"),
        # Everything in one word.
        ({"command": ["/none/such --key=" + SECRET]}, "arguments belong in args"),
        ({"command": [f"/none/such -k {SECRET}"], "env": {"K": "v"}}, "in args"),
        ({"command": [f"KEY={SECRET} /none/such"]}, "in args"),
        ({"command": [f"/none/such\t{SECRET}"]}, "in args"),
        ({"command": [f"/none/such\u00a0--key:{SECRET}"]}, "in args"),
        ({"command": [f"/none/such -p{SECRET}"]}, "in args"),
        ({"command": ["/none/such --key s3cre"]}, "in args"),
        ({"command": [*PYTHON, "-c", FAIL, "-p" + SECRET]}, "bad: *** of"),
        ({"command": [*PYTHON, "-c", FAIL, "--k:" + SECRET]}, "bad: *** of"),
        ({"command": [*PYTHON, "-c", FAIL, "--verbose"]}, "bad: --verbose of"),
        (
            {
                "command": [
                    *PYTHON,
                    f"{os.path.normpath('/none/such.py')} --key {SECRET}",
                ]
            },
            "exit status",
        ),
        ({"command": [*PYTHON, "a\0b" + SECRET]}, "cannot start"),
        ({"command": ["a\0b" + SECRET]}, "cannot start"),
        ({"url": "http://127.0.0.1:9/m cp?key=" + SECRET}, "down"),
        ({"url": "http://127.0.0.1:9/mcp?a=b&key=" + SECRET + " "}, "down"),
        ({"url": "http://127.0.0.1:9/mcp?key=%s" % SECRET.replace("V", "%56")}, "down"),
        ({"url": "http://none such/mcp?key=" + SECRET}, "down"),
        ({"url": "http://none.invalid/mcp?key=" + SECRET + "\n"}, "down"),
        ({"url": "http://127.0.0.1:x/mcp?key=" + SECRET}, "down"),
        ({"url": f"http://ann:{SECRET}@none such/mcp"}, "down"),
        ({"url": "http://[::1/mcp?key=" + SECRET}, "down"),
        ({"url": "http://127.0.0.1:9/mcp", "headers": {"X": SECRET + "\n"}}, "down"),
        ({"url": "http://127.0.0.1:9/mcp?key=" + SECRET}, "nothing listens"),
        ({"url": f"http://ann:{SECRET}@127.0.0.1:9/mcp"}, "listens"),
        ({"command": [*PYTHON, "-c", TELLS], "env": {"K": SECRET}}, "bad: ***"),
        (
            {
                "command": [*PYTHON, "-c", TELLS],
                "env": {"K": f"a key\n{SECRET}"},
            },
            "exit status 1",
        ),
    ],
)
def test_what_the_file_says_reaches_nobody(options, word, capsys):
    upstream = gw.Upstream("it", options)
    with fronting(upstream) as front:
        assert upstream.tried.wait(PATIENCE)
        with pytest.raises(mcp.RpcError) as caught:
            front.call_tool("it__x")
    said = str(caught.value)
    assert "it is down" in said and word in said
    shown = said + json.dumps(caught.value.data) + capsys.readouterr()[1]
    assert not re.search("s3cre|Value", shown)


@parametrize("place", ["?key=" + SECRET, ""])
def test_what_an_upstream_repeats_of_it_reaches_nobody(place, capsys):
    def answer(headers: dict, message: dict) -> bytes:
        said = f"refused {headers[':path']} {headers.get('x-key')} []"
        body = {"jsonrpc": "2.0", "id": message.get("id")}
        body["error"] = {"code": -1, "message": said, "data": {"at": [said]}}
        return http_answer(200, {"Content-Type": "application/json"}, json.dumps(body))

    with raw_tool(answer) as (_, site):
        options = {"url": site.url + place, "headers": {"X-Key": "Bearer " + SECRET}}
        with fronting(gw.Upstream("it", options)) as front:
            with pytest.raises(mcp.RpcError, match=r"refused /mcp.*\[\]") as caught:
                front.call_tool("it__good")
    data = json.dumps(caught.value.data)
    assert SECRET not in str(caught.value) + data + capsys.readouterr()[1]


def test_the_name_of_a_bridge_has_no_secret():
    upstreams, *_ = gw.read_config(f"http://ann:{SECRET}@127.0.0.1:9/mcp?key={SECRET}")
    (name,) = upstreams
    assert name == "http://127.0.0.1:9/mcp"


# ---- users are kept apart


LATE = """
import json, sys

def out(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def text(ident, value):
    out(id=ident, result={"content": [{"type": "text", "text": json.dumps(value)}]})

late = []
for line in sys.stdin:
    message = json.loads(line)
    ident, method = message.get("id"), message.get("method")
    if method == "initialize":
        declared = {"tools": {}, "logging": {}}
        info = {"name": "late", "version": "1"}
        out(id=ident, result={"protocolVersion": "2025-06-18", "serverInfo": info,
                              "capabilities": declared})
    elif method == "tools/list":
        schema = {"type": "object"}
        names = ["late", "ask", "end"]
        out(id=ident, result={"tools": [{"name": name, "inputSchema": schema}
                                        for name in names]})
    elif method == "tools/call" and message["params"]["name"] == "late":
        late.append(ident)
        print("late", file=sys.stderr, flush=True)
    elif method == "tools/call" and message["params"]["name"] == "ask":
        asking = ident
        out(method="notifications/message", params={"level": "error", "data": "a log"})
        form = {"type": "object", "properties": {"pin": {"type": "string"}}}
        out(id="q", method="elicitation/create",
            params={"message": "Whose?", "requestedSchema": form})
    elif method == "tools/call":
        for one in late:
            text(one, "late")
        text(ident, "ended")
    elif method is None:
        text(asking, message.get("result") or message["error"]["message"])
    elif method == "server/discover":
        out(id=ident, error={"code": -32601, "message": "no"})
    elif ident is not None:
        out(id=ident, result={})
"""


class Person:
    """A client of a gateway over HTTP, who answers every question."""

    def __init__(self, url, name, version=NEWEST_LEGACY):
        self.asked, self.logs = [], []
        self.client = client.connect(
            url,
            headers={"Authorization": "Bearer key-of-" + name},
            revision=version,
            elicit=lambda params: self.asked.append(params["message"]) or {"pin": name},
            on_log=lambda params: self.logs.append(params["data"]),
        )

    def call(self, name, **options):
        return self.client.call_tool(name, **options)["content"][0]["text"]

    def call_late(self, upstream):
        """Begin a call that is not answered; return it when the upstream has it."""
        sent = []
        running = begin(self.client.call_tool, "up__late", started=sent.append)
        assert upstream.came.get(timeout=PATIENCE) == "late"
        return sent[-1], running

    def give_up(self, upstream):
        """Cancel a call that the upstream has, and will not answer."""
        sent, running = self.call_late(upstream)
        sent.cancel()
        with pytest.raises(client.RequestCancelled):
            running.result(PATIENCE)


KEYS = mcp.bearer({f"key-of-{name}": name for name in ("ann", "bob", "eve")})


@contextlib.contextmanager
def crowd(*upstreams, **options):
    """Serve upstreams; yield a function that makes a Person."""
    profile = started(*upstreams)
    with contextlib.ExitStack() as stack:
        stack.callback(gw.close_all, upstreams)
        url = stack.enter_context(over_http(profile, **{"authorize": KEYS, **options}))

        def person(name, version=NEWEST_LEGACY):
            made = Person(url, name, version)
            stack.callback(made.client.close)
            return made

        person.url = url
        yield person


def late_upstream(before=""):
    """Return an upstream that runs LATE; in `came` is a line for each late call."""
    upstream = gw.Upstream("up", {"command": [*PYTHON, "-c", before + LATE]})
    upstream.came = queue.SimpleQueue()
    upstream.say = lambda line: line == "late" and upstream.came.put(line)
    return upstream


@contextlib.contextmanager
def given_up(version, before=""):
    """Yield an upstream, the people before it, and ann, who gave up a call of it."""
    upstream = late_upstream(before)
    with crowd(upstream) as person:
        ann = person("ann", version)
        ann.client.list_tools()  # or it would do so while it calls
        ann.give_up(upstream)
        wait_until(lambda: upstream.main.client.unanswered)
        yield upstream, person, ann


@needs_posix
@parametrize("version", [NEWEST, NEWEST_LEGACY])
@parametrize("other", ["the same session", "another session", "another user"])
def test_a_late_question_goes_to_nobody_else(other, version):
    with given_up(version) as (upstream, person, ann):
        who = ann
        if other == "another session":
            who = person("ann", version)
        elif other == "another user":
            who = person("bob", version)
        said = who.call("up__ask")
        if other == "another session" or (version == NEWEST and who is ann):
            # Each request of a modern client is a client of its own.
            assert "cannot tell which" in said and not who.asked + who.logs
            assert who.call("up__end") and not upstream.own
            said = who.call("up__ask")  # the upstream has answered ann
        assert "accept" in said and len(who.asked) == 1 and who.logs == ["a log"]
        # Another user's call is on another connection; the first one has ended.
        assert "accept" in ann.call("up__ask") and not upstream.own


@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_over_http_a_question_and_a_log_reach_their_client(version):
    """Each comes in the answer to its call, so that others may run meanwhile."""
    server, gate = mcp.Server("app"), threading.Barrier(2)

    @server.tool
    def ask(ctx: mcp.Context, who: str) -> str:
        if "inputResponses" not in ctx.params:  # else it runs again, with the answer
            gate.wait(PATIENCE)
        ctx.log("error", who)
        return ctx.elicit(f"{who}?", pin=str)["content"]["pin"]

    with behind(server, revision=version) as upstream, crowd(upstream) as person:
        people = {name: person(name) for name in ("ann", "bob")}
        calls = {
            name: begin(who.client.call_tool, "up__ask", {"who": name})
            for name, who in people.items()
        }
        for name, who in people.items():
            result = calls[name].result(PATIENCE)
            assert result["content"][0]["text"] == name
            assert {*who.logs} == {name}
            assert who.asked == [f'The server "up" asks: {name}?']


class Silent(client.Transport):
    """[legacy] An upstream in this process, which answers no call."""

    def __init__(self):
        self.calls, self.answers = [], queue.SimpleQueue()
        self.on_call = lambda request: None

    def start(self):
        self.up = True

    def stop(self):
        self.up = False

    def out(self, **message):
        self.client.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send(self, message, request):
        method, ident = message.get("method"), message.get("id")
        if not request.response:
            request.settle({})
        if method == "tools/call":
            self.calls.append(ident)
            self.on_call(request)
        elif method == "initialize":
            declared = {"tools": {}, "logging": {}}
            info = {"name": "silent", "version": "1"}
            result = {"protocolVersion": NEWEST_LEGACY, "serverInfo": info}
            self.out(id=ident, result={**result, "capabilities": declared})
        elif method == "tools/list":
            tool = {"name": "wait", "inputSchema": {"type": "object"}}
            self.out(id=ident, result={"tools": [tool]})
        elif method == "server/discover":
            self.out(id=ident, error={"code": -32601, "message": "no"})
        elif method is None:
            self.answers.put(message)
        elif ident is not None:
            self.out(id=ident, result={})

    def answer(self):
        """Answer the calls."""
        for ident in self.calls:
            self.out(id=ident, result={"content": []})

    def ask(self):
        """Ask, as a call that was given up does; return the answer, or an error if
        there is no connection."""
        level = {"level": "error", "data": "a log"}
        self.out(method="notifications/message", params=level)
        form = {"type": "object", "properties": {"pin": {"type": "string"}}}
        params = {"message": "Whose?", "requestedSchema": form}
        self.out(id="q", method="elicitation/create", params=params)
        wait_until(lambda: not (self.up and self.answers.empty()))
        return {"error": "gone"} if self.answers.empty() else self.answers.get()


class Front:
    """A user before a profile in this process, who accepts every question; `came` has
    what is sent to them."""

    def __init__(self, profile, name):
        self.profile, self.name, self.came = profile, name, []
        self.peer = mcp.Peer(self.take)
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": NEWEST_LEGACY, "clientInfo": info}
        params["capabilities"] = {"elicitation": {}}
        self.send("initialize", params, 0)
        self.send("notifications/initialized", {})

    def send(self, method, params, *ids):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        message.update({"id": ident for ident in ids})
        took = {"peer": self.peer, "principal": self.name}
        self.profile.handle(message, self.take, **took)

    def take(self, message):
        self.came.append(message)
        if message.get("method") == "elicitation/create":
            answer = {"jsonrpc": "2.0", "id": message["id"]}
            answer["result"] = {"action": "accept", "content": {"pin": self.name}}
            begin(self.profile.handle, answer, self.take, peer=self.peer)

    def call(self):
        self.send("tools/call", {"name": "up__wait"}, 1)

    def cancel(self):
        self.send("notifications/cancelled", {"requestId": 1})

    @property
    def was_asked(self):
        wanted = ("elicitation/create", "notifications/message")
        return [one for one in self.came if one.get("method") in wanted]


class Lines:
    """Runs `act` before line `at` that this thread executes in the gateway and its
    client, from start() on. `count`: the lines so far."""

    files = {gw.__file__, client.__file__}

    def __init__(self, at, act):
        self.at, self.act, self.count, self.runs = at, act, 0, False

    def start(self):
        self.runs = True

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line" and self.runs:
            self.count += 1
            if self.count == self.at:
                self.act()
        return self.trace


@contextlib.contextmanager
def silent(**options):
    """Yield ann and bob before an upstream, and the Silents of its connections."""
    made = []

    def transport(connection):
        made.append(Silent())
        return made[-1]

    upstream = gw.Upstream("up", {"command": ["none"], **options})
    upstream.transport = transport
    profile = gw.Profile("all", [(upstream, ["*"])])
    upstream.keeper.start()
    assert upstream.tried.wait(PATIENCE)
    yield Front(profile, "ann"), Front(profile, "bob"), made, upstream
    gw.close_all([upstream])


def play_giving_up(at, who_comes, how):
    """Let ann give up a call, and her tool ask before line `at` of what follows, while
    bob's call runs (which then begins, if `who_comes`); return whether there is one."""
    with silent() as (ann, bob, made, upstream):
        return _play_giving_up(ann, bob, made, upstream, at, who_comes, how)


def _play_giving_up(ann, bob, made, upstream, at, who_comes, how):
    running, told = [], []

    def begin_bob():
        before = sum(len(one.calls) for one in made)
        running.append(begin(bob.call))
        wait_until(lambda: sum(len(one.calls) for one in made) > before)

    def act():
        if not upstream.lock.locked():  # nobody else comes there
            if who_comes:
                begin_bob()
            told.append(made[0].ask())

    def given_up(request):
        made[0].on_call = lambda request: None
        if how == "cancelled":
            ann.cancel()
        else:  # as when a proxy answers
            request.settle(mcp.HttpError(504, "too late"))
        lines.start()

    if not who_comes:
        begin_bob()
    lines, before = Lines(at, act), sys.gettrace()
    made[0].on_call = given_up
    sys.settrace(lines.trace)
    try:
        ann.call()
    finally:
        sys.settrace(before)
        for one in made:
            one.answer()
        for one in running:
            one.result(PATIENCE)
    assert not bob.was_asked, f"before line {at}"
    theirs = {"action": "accept", "content": {"pin": "ann"}}
    assert all("error" in one or one["result"] == theirs for one in told)
    return lines.count >= at


@parametrize("how", ["cancelled", "failed here"])
@parametrize("who_comes", ["", "bob"])
def test_at_no_moment_of_giving_up_a_call_is_another_user_asked(who_comes, how):
    for at in itertools.count(1):
        if not play_giving_up(at, who_comes, how):
            break
    assert at > 20


VISIT = {
    "mode": "url",
    "message": "Log in",
    "url": "https://x.test",
    "elicitationId": "e",
}


@parametrize("kind", ["message", "elicitation/complete"])
def test_a_client_that_does_not_read_delays_nobody_else(kind, monkeypatch):
    """The test is the upstream's reading thread: nothing may be written or searched for
    secrets on it."""
    monkeypatch.setattr(gw, "MAX_TOLD_BYTES", 10_000)
    told, reads, reader = queue.SimpleQueue(), threading.Event(), threading.get_ident()
    method, params = "notifications/" + kind, {"level": "error", "data": "x" * 3000}
    params["elicitationId"] = "e"
    with silent() as (ann, bob, made, upstream):
        take = bob.take

        def search(value):
            told.put(threading.get_ident())
            return value

        def unread(message):
            if message.get("method") == method:
                told.put(threading.get_ident())
                if threading.get_ident() != reader:
                    reads.wait(PATIENCE)
            take(message)

        bob.take, upstream.redactor.value = unread, search
        calls = [begin(bob.call)]
        wait_until(lambda: made[0].calls)
        for number in range(9):
            if kind != "message":
                made[0].out(id=number, method="elicitation/create", params=VISIT)
                made[0].answers.get(timeout=PATIENCE)
            made[0].out(method=method, params=params)
        writers = [told.get(timeout=PATIENCE)]
        calls.append(begin(ann.call))
        wait_until(lambda: len(made[0].calls) == 2)
        made[0].answer()
        calls[1].result(PATIENCE)  # while bob's call waits for him
        reads.set()
        calls[0].result(PATIENCE)
        writers += [told.get_nowait() for _ in range(told.qsize())]
        assert reader not in writers and "result" in bob.came[-1]
        assert len(writers) == (2 * 3 if kind == "message" else 9)


def test_what_comes_before_a_question_reaches_a_modern_client():
    """The question ends the answer, after which nothing more can be sent."""
    came = []
    with silent() as (_, _, made, upstream):
        upstream.redactor.value = lambda value: time.sleep(0.05) or value
        made[0].on_call = lambda request: begin(made[0].ask)
        request = modern("tools/call", name="up__wait", arguments={})
        request["params"]["_meta"][mcp.META_LOG_LEVEL] = "debug"
        upstream.profiles[0].handle(request, came.append)
    methods = [one.get("method") for one in came]
    assert methods == ["notifications/message", None]
    assert came[1]["result"]["resultType"] == "input_required"


def test_progress_comes_before_the_question_that_follows_it(monkeypatch):
    """... to a modern client, whose request ends with the question."""
    came, sound = [], gw.sound

    def slow(value):
        if value == [1, None, None]:  # the progress
            time.sleep(0.05)
        return sound(value)

    def take(message):
        came.append(message.get("method", "the question"))

    monkeypatch.setattr(gw, "sound", slow)
    with silent() as (*_, made, upstream):
        request = modern("tools/call", name="up__wait", arguments={})
        request["params"]["_meta"]["progressToken"] = "t"
        handle = upstream.profiles[0].handle
        running = begin(handle, request, take, principal="ann")
        wait_until(lambda: made[0].calls)
        told = {"progressToken": made[0].calls[0], "progress": 1}
        made[0].out(method="notifications/progress", params=told)
        begin(made[0].ask)
        running.result(PATIENCE)
        assert came == ["notifications/progress", "the question"]


@parametrize("line", ["log", "question"])
def test_a_line_that_is_too_large_is_not_taken_for_an_answer(line):
    with silent(maxBytes=10_000) as (ann, bob, made, _):

        def too_large(request):
            message = {"jsonrpc": "2.0", "method": "notifications/message"}
            message["params"] = {"level": "info", "data": "x" * 10_000}
            if line == "question":
                message.update(method="elicitation/create", id=request.id)
            with contextlib.suppress(client.Malformed):
                made[0].client.receive(mcp.encode(message))

        made[0].on_call = too_large
        calls = [begin(ann.call)]
        wait_until(lambda: made[0].calls)
        assert "result" in made[0].ask()  # her call runs
        made[0].answer()
        calls[0].result(PATIENCE)
        assert len(ann.was_asked) == 2 and "result" in ann.came[-1]


def test_what_came_for_one_user_is_not_in_the_error_of_another():
    with silent(timeout=0.05) as (ann, bob, made, _):

        def stray(request):
            with contextlib.suppress(client.Malformed):
                made[0].client.receive(b"ann's secret")
            made[0].out(id=999, result={"content": "ann's secret"})

        made[0].on_call = stray
        bob.call()
        assert "within 0.05 s" in str(bob.came[-1])
        assert "secret" not in str(bob.came[-1])


@needs_posix
def test_a_connection_that_is_given_up_ends_after_its_calls():
    with given_up(NEWEST_LEGACY) as (upstream, person, ann):
        running = begin(ann.call, "up__late")  # it may share what she has given up
        wait_until(lambda: upstream.main.calls)
        first, bob = upstream.main, person("bob")
        assert "accept" in bob.call("up__ask")
        assert first is not upstream.main and not first.client.closed
        ann.client.close()
        with pytest.raises(client.Disconnected):
            running.result(PATIENCE)
        for call in first.calls:
            call.cancel()
        wait_until(lambda: first.client.closed and not upstream.own)


ALONE = """
import fcntl
lock = open(%r, "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@needs_posix
def test_a_server_that_runs_only_once_is_ended_before_it_starts_again(tmp_path):
    before = ALONE % str(tmp_path / "lock")
    with given_up(NEWEST_LEGACY, before) as (upstream, person, ann):
        bob = person("bob")
        assert "accept" in bob.call("up__ask") and "accept" in ann.call("up__ask")
        # The keeper goes on with the new one.
        wait_until(lambda: upstream.client is upstream.main.client)
        assert len(bob.client.list_tools()) == 3


@needs_posix
def test_a_user_who_gives_up_calls_ends_none_of_another():
    upstream = late_upstream()
    with crowd(upstream) as person:
        ann, bob, eve = map(person, ("ann", "bob", "eve"))
        running = [eve.call_late(upstream)[1]]
        for _ in range(4):
            running.append(bob.call_late(upstream)[1])
            bob.give_up(upstream)
            wait_until(lambda: any(one.unanswered for one in live_clients(upstream)))
            assert "accept" in ann.call("up__ask")
        # the first one, from which he bars others, and his
        assert [one.principal for one in upstream.own.values()] == ['"bob"', '"bob"']
        assert not any(one.done() for one in running)


@needs_posix
def test_a_program_that_ends_is_started_once(tmp_path, monkeypatch):
    """A call starts it, before the keeper knows that it has ended."""
    monkeypatch.setattr(gw, "NEAR_SECONDS", PATIENCE)  # the keeper waits for `woken`
    configure(tmp_path, {})
    upstream = pid_upstream(tmp_path)
    with fronting(upstream) as front:
        assert upstream.ready.wait(PATIENCE)
        first, pid = upstream.main.client, int(said(front, "pid__pid"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not upstream.main.is_up)
        upstream.main.open()
        upstream.woken.set()
        wait_until(lambda: upstream.client is upstream.main.client)
        assert first.closed and int(said(front, "pid__pid")) != pid


def live_clients(upstream):
    """Return the clients of the connections that take calls."""
    connections = [upstream.main, *upstream.own.values()]
    return [one.client for one in connections if one.client and not one.retired]


def test_an_upstream_that_answers_no_cancelled_call_is_connected_anew(monkeypatch):
    monkeypatch.setattr(gw, "MAX_GIVEN_UP", 2)
    upstream = late_upstream()
    with crowd(upstream) as person:
        ann = person("ann")
        for number in range(1, 4):
            ann.give_up(upstream)
            wait_until(lambda: len(upstream.main.client.unanswered) == number)
        first = upstream.main
        assert "accept" in ann.call("up__ask") and first is not upstream.main


def waiting_server():
    """Return a server whose tools wait: for an answer, and for more than that."""
    server = mcp.Server("waits")

    @server.tool
    def ask(ctx: mcp.Context, more: str = "") -> str:
        return ctx.elicit("Which?" + more, pin=str)["content"]["pin"]

    return server


@parametrize("of_all", [False, True])
def test_a_user_who_answers_nothing_does_not_keep_others_from_being_asked(
    monkeypatch, of_all
):
    """... until the client's own bound, beyond which it would drop questions."""
    monkeypatch.setattr(gw, "MAX_ASKED", 1)
    monkeypatch.setattr(client, "MAX_QUESTIONS", 2 if of_all else 64)
    gate = threading.Event()
    with behind(waiting_server(), revision=NEWEST_LEGACY) as upstream:
        with crowd(upstream) as person:
            bob, ann = person("bob"), person("ann")
            asked = threading.Event()
            slow = client.connect(
                person.url,
                headers={"Authorization": "Bearer key-of-bob"},
                revision=NEWEST_LEGACY,
                elicit=lambda _: [asked.set(), gate.wait(PATIENCE), {"pin": "slow"}][2],
            )
            with slow:
                waiting = begin(slow.call_tool, "up__ask")
                assert asked.wait(PATIENCE)
                assert "Too many questions" in bob.call("up__ask")
                said = ann.call("up__ask")
                assert "Too many questions" in said if of_all else said == "ann"
                gate.set()
                assert waiting.result(PATIENCE)["content"][0]["text"] == "slow"
                assert bob.call("up__ask") == "bob"


@parametrize(
    "limit, value, more",
    [("MAX_TALKS", 2, ""), ("MAX_TALK_BYTES", 5000, "x" * 1000)],
)
def test_calls_that_wait_for_one_user_do_not_end_those_of_another(
    monkeypatch, limit, value, more
):
    monkeypatch.setattr(gw, limit, value)
    with behind(waiting_server(), revision=NEWEST_LEGACY) as upstream:
        profile = started(upstream)

        def call(who, **params):
            return call_as(who, profile, "up__ask", {"more": more}, **params)

        def answer(who, asked):
            answers = {"question": {"action": "accept", "content": {"pin": who}}}
            state = asked["requestState"]
            found = call(who, requestState=state, inputResponses=answers)
            return json.dumps(found)

        first = call("ann")
        others = [call("bob") for _ in range(4)]
        assert len(upstream.talks) == 3
        assert "is over" in answer("bob", others[0])
        assert '"text": "bob"' in answer("bob", others[-1])
        assert '"text": "ann"' in answer("ann", first)
        # What was given up ends on the upstream, too.
        wait_until(lambda: len(upstream.main.calls) == len(upstream.talks) == 1)
        upstream.close()


def test_a_legacy_client_has_no_part_in_the_question_of_another():
    """It cannot send a request state: that is signed for a principal only if modern."""
    with behind(waiting_server(), revision=NEWEST_LEGACY) as upstream:
        profile = started(upstream)
        state = call_as("ann", profile, "up__ask")["requestState"]
        answers = {"question": {"action": "accept", "content": {"pin": "bob's"}}}
        stolen = {"requestState": state.partition(".")[2], "inputResponses": answers}
        with client.connect(profile, revision=NEWEST_LEGACY, elicit=None) as bob:
            found = bob.request("tools/call", {"name": "up__ask", **stolen})
        assert found["isError"] and "bob's" not in str(found)
        answers["question"]["content"]["pin"] = "ann's"
        more = {"requestState": state, "inputResponses": answers}
        assert "ann's" in str(call_as("ann", profile, "up__ask", **more))
        upstream.close()


@needs_posix
def test_one_users_connections_do_not_end_those_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr(gw, "MAX_OWN", 2)
    configure(tmp_path, {})
    upstream = pid_upstream(tmp_path, session="client")
    with crowd(upstream) as person:
        ann = person("ann")
        first = ann.call("pid__pid")
        bobs = [person("bob") for _ in range(4)]
        assert len({one.call("pid__pid") for one in bobs}) == 4
        assert len(upstream.own) == 3
        assert ann.call("pid__pid") == first


def test_one_users_subscriptions_leave_room_for_others(monkeypatch):
    monkeypatch.setattr(gw, "MAX_WATCHED", 2)
    server, heard = mcp.Server("app"), queue.SimpleQueue()
    server.resource("app://{+name}")(lambda name: name)
    with behind(server, revision=NEWEST) as upstream, crowd(upstream) as person:
        wait_until(upstream.ready.is_set)
        bob, ann = person("bob"), person("ann")
        uris = [f"up+app://{number}" for number in range(4)]
        with bob.client.listen(uris), ann.client.listen([uris[3]], heard.put):
            assert set(upstream.watched.values()) == {'"bob"', '"ann"'}
            wait_until(lambda: ("app://3",) in upstream.heard)
            server.changed("app://3")
            assert heard.get(timeout=PATIENCE) == uris[3]
        assert len(upstream.watched) == 3


@needs_posix
def test_clients_without_a_session_share_a_process_with_an_end(tmp_path, monkeypatch):
    configure(tmp_path, {})
    upstream = pid_upstream(tmp_path, session="client")
    with crowd(upstream, stateless=True) as person:
        ann, bob = person("ann"), person("bob")
        pids = [who.call("pid__pid") for who in (ann, ann, bob, ann)]
        assert len({*pids}) == 2 and pids[0] == pids[1] == pids[3]
        assert len(upstream.own) == 2
        monkeypatch.setattr(gw, "OWN_SECONDS", 0)
        wait_until(lambda: not upstream.own)


def requests_for(tool):
    """Return the calls of a tool that are kept, with their arguments."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, mcp.Context)]
    return [one for one in found if one.params.get("name") == tool]


@needs_posix
@parametrize("version", [NEWEST, NEWEST_LEGACY])
def test_a_call_that_was_given_up_keeps_no_arguments(version):
    with given_up(version) as (upstream, person, ann):
        wait_until(lambda: not requests_for("up__late"))
        assert upstream.main.client.unanswered


def test_a_page_belongs_to_the_session_that_was_sent_to_it():
    server, heard = mcp.Server("pages"), []
    page = {
        "mode": "url",
        "message": "Log in",
        "url": "https://pages.test/",
        "elicitationId": "e1",
    }

    @server.tool
    def refuse(more: str = "") -> str:
        raise mcp.RpcError(-32042, "visit it", {"elicitations": [page]})

    def visitor(who: str):
        def hear(message):
            heard.append((who, message["method"].rpartition("/")[2]))

        return client.connect(profile, revision="2025-11-25", on_notification=hear)

    with behind(server, revision="2025-11-25") as upstream:
        profile = started(upstream)
        with visitor("bob"), visitor("ann") as ann:  # bob would be told first
            with pytest.raises(mcp.RpcError, match="visit it"):
                ann.call_tool("up__refuse", {"more": "x" * 10000})
            wait_until(lambda: not requests_for("up__refuse"))
            server.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
            wait_until(lambda: ("ann", "complete") in heard)
            profile.changed("tools")
            wait_until(lambda: ("bob", "list_changed") in heard)
            assert ("bob", "complete") not in heard
        upstream.close()


def test_headers_are_passed_on_over_http_sse_and_in_the_files_place():
    options = {"forward": ["X-Tenant"], "headers": {"x-tenant": "nobody", "X-Own": "e"}}
    with raw_tool(**options) as (upstream, site):
        with crowd(upstream) as person:
            port = int(person.url.split(":")[2].split("/")[0])
            headers = {"Authorization": "Bearer key-of-ann", "X-Tenant": "one"}
            accept = {**headers, "Accept": "text/event-stream"}
            with request_to(port, "GET", "/mcp/all", accept).getresponse() as stream:
                path = "/mcp/" + event_of(stream)["data"]
                call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
                call["params"] = {"name": "raw__good", "arguments": {}}
                json_type = {**headers, "Content-Type": "application/json"}
                for message in (OPENING, call):
                    body = json.dumps(message).encode()
                    assert exchange(port, "POST", path, json_type, body)[0] == 202
                    assert json.loads(event_of(stream)["data"])["result"]
    (call,) = calls_of(site)
    assert call["x-tenant"] == "one" and call["x-own"] == "e"


def test_a_forwarded_header_replaces_none_of_its_users():
    users = {"ann": {"headers": {"x-tenant": "of ann"}}}
    with raw_tool(forward=["X-Tenant"], users=users) as (upstream, site):
        with crowd(upstream) as person:
            headers = {"Authorization": "Bearer key-of-ann", "X-Tenant": "other"}
            with client.connect(person.url, headers=headers) as ann:
                ann.call_tool("raw__good")
    (call,) = calls_of(site)
    assert call["x-tenant"] == "of ann"


WHO = """
import os, sys
sys.path.insert(0, %r)
from mcp_ref import Server
server = Server("who")
server.tool(lambda: os.environ.get("TOKEN", "nobody"), name="who")
server.run()"""


@needs_posix
def test_each_user_has_credentials_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANNS_TOKEN", SECRET)
    (tmp_path / "who.py").write_text(WHO % str(MCP_REF.parent))
    with raw_tool() as (_, site):
        web = {
            "url": site.url,
            "headers": {"authorization": "for lists"},
            "users": {
                "ann": {"headers": {"Authorization": "Bearer ${ANNS_TOKEN}"}},
                "bob": {"headers": {"X-Key": "of bob"}},
                "dan": {"headers": {}},
            },
        }
        here = {
            "command": [*PYTHON, "who.py"],
            "cwd": str(tmp_path),
            "env": {"TOKEN": "for lists"},
            "users": {
                "ann": {"env": {"TOKEN": "${ANNS_TOKEN}"}},
                "bob": {"env": {}},
            },
        }
        keys = {f"key-of-{name}": name for name in ("ann", "bob", "dan", "eve")}
        config = {"servers": {"web": web, "here": here}, "clients": {"keys": keys}}
        setup = gw.read_config(configure(tmp_path, config))
        upstreams = list(setup.upstreams.values())
        with crowd(*upstreams, authorize=setup.authorize) as person:
            ann, bob, dan, eve = map(person, ("ann", "bob", "dan", "eve"))
            assert [ann.call("here__who"), bob.call("here__who")] == [SECRET, "nobody"]
            for who in (ann, bob, dan, ann):
                who.client.call_tool("web__good")
            with pytest.raises(mcp.RpcError, match="no credentials"):
                eve.client.listen(["web+x://a"])
            for tool in ("web__good", "here__who"):
                with pytest.raises(mcp.RpcError, match="no credentials"):
                    eve.client.call_tool(tool)
    sent = [
        (message["method"], headers.get("authorization"), headers.get("x-key"))
        for _, headers, message in site.asked
        if message.get("method") in ("tools/call", "tools/list")
    ]
    assert {one for method, one, _ in sent if method == "tools/list"} == {"for lists"}
    own = [given for method, *given in sent if method == "tools/call"]
    anns = [f"Bearer {SECRET}", None]
    assert own == [anns, [None, "of bob"], [None, None], anns]
    assert SECRET not in capsys.readouterr().err


@parametrize(
    "users, word",
    [
        ({"eve": {}}, "eve must be among"),
        ({"ann": {"headers": {"X": "${NONE_SUCH}"}}}, "NONE_SUCH is not set"),
        ({"ann": {"header": {}}}, "header"),
        ({"ann": {"env": {"A": 7}}}, "string"),
        ({"ann": {}}, "ann must have headers"),
        ({"ann": {"env": {"A": "b"}}}, "ann must have headers"),
    ],
)
def test_credentials_that_cannot_be_used_are_said(tmp_path, users, word, capsys):
    servers = {"web": {"url": "http://x.test/mcp", "users": users}, "a": X}
    config = {"servers": servers, "clients": {"keys": {"k": "ann"}}}
    setup = gw.read_config(configure(tmp_path, config))
    assert list(setup.upstreams) == ["a"] and word in capsys.readouterr().err


def test_what_an_entry_says_of_its_transport_is_used(tmp_path):
    entry = {"url": "http://127.0.0.1:9/sse", "type": "sse"}
    config = {"servers": {"old": entry, "new": {**entry, "type": "http"}}}
    setup = gw.read_config(configure(tmp_path, config))
    sse = [one.transport(one.main).only_sse for one in setup.upstreams.values()]
    assert sse == [True, False]


# ---- fewer tools


@EACH_ERA
def test_two_tools_stand_for_many(version):
    with contextlib.ExitStack() as stack:
        upstreams = gateway()[2]
        members = [(upstream, ["*"]) for upstream in upstreams]
        profile = gw.Profile("two", members, search=True)
        stack.callback(lambda: [one.profiles.remove(profile) for one in upstreams])
        connecting = client.connect(profile, revision=version)
        front = stack.enter_context(connecting)
        find, call = front.list_tools()
        assert (find["name"], call["name"]) == ("find_tools", "call_tool")
        many = len(profile.items["tools"])
        assert f"there are {many} (their list has" in find["description"]

        def found(query):
            result = front.call_tool("find_tools", {"query": query})
            head, *tools = result["content"][0]["text"].split("\n")
            return head, [json.loads(tool) for tool in tools]

        head, tools = found("ADD, please")
        assert [tool["name"] for tool in tools] == ["up__add", "old__add"]
        assert "a" in tools[0]["inputSchema"]["properties"]
        assert head == f"2 of 2 tools that fit, of {many}:"
        head, tools = found("")
        assert len(tools) == gw.MAX_FOUND and f"of {many} tools" in head
        assert found("nothing-like-this")[1] == []
        for tool in ("up__add", "old__add"):
            for arguments in ({"a": 1, "b": 2}, '{"a": 1, "b": 2}'):
                given = {"name": tool, "arguments": arguments}
                result = front.call_tool("call_tool", given)
                assert result["content"][0]["text"] == "3"
        for given in ({}, {"name": 7}, {"name": "x", "arguments": []}):
            with pytest.raises(mcp.RpcError, match="must be a string|Unknown tool"):
                front.call_tool("call_tool", given)


def test_the_answer_of_a_search_is_bounded(monkeypatch):
    monkeypatch.setattr(gw, "MAX_FOUND_BYTES", 1000)
    tool = {"name": "t", "inputSchema": {"properties": 7}}
    for size, shown in ((600, 1), (2000, 1), (100, 6)):
        tools = [{**tool, "description": "x" * size}] * 6
        text = gw.find_tools(tools, "x")["content"][0]["text"]
        assert text.startswith(f"{shown} of 6 tools that fit, of 6:")


# ---- logging in


@pytest.fixture(name="guarded")
def guarded_upstream(monkeypatch, tmp_path):
    """An upstream that wants a login, from the issuer in test_oauth.World. `tokens` are
    those that it accepts."""
    import test_oauth
    from test_oauth import ISSUER, TOKEN, guard

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setattr(gw, "NEAR_SECONDS", 0.02)
    world, tokens, metadata = test_oauth.visited(monkeypatch), {"token-1": "ann"}, {}
    # It is not used: the client shows a page.
    world.change("issuer", {"device_authorization_endpoint": ISSUER + "/device"})
    server = mcp.Server("guarded")
    server.tool(lambda: "done", name="work")

    @server.tool
    def echo(ctx: mcp.Context) -> str:
        raise mcp.RpcError(7, f"failed: {ctx.headers['authorization']}")

    authorize = mcp.bearer(tokens)
    with http_serving(server, metadata=metadata, authorize=authorize) as serving:
        metadata.update(guard.resource_metadata(serving.url, [ISSUER]))
        answer = {"token_type": "bearer", "expires_in": 3600}
        world.at[TOKEN] = [
            (200, {**answer, "access_token": name}) for name in ("token-1", "token-2")
        ]
        upstream = gw.Upstream("web", {"url": serving.url})
        upstream.tokens = tokens
        try:
            yield upstream
        finally:
            upstream.close()


def visit(params):
    """Agree to everything on the page, in another program."""
    from urllib.parse import parse_qsl

    page = dict(parse_qsl(params["url"].partition("?")[2]))
    address = f"{page['redirect_uri']}?code=c&state={page['state']}"
    begin(client.fetch, "GET", address, {})
    return True


@contextlib.contextmanager
def in_front(upstream, version):
    """Connect a client that shows pages; yield what it hears, too."""
    profile, heard = started(upstream), queue.SimpleQueue()
    with client.connect(profile, revision=version, visit=visit) as front:
        with front.listen(["tools"], heard.put):
            yield front, heard


def await_names(front, heard, names):
    while names_of(front) != names:
        heard.get(timeout=PATIENCE)


EACH_THAT_VISITS = parametrize("version", [NEWEST, NEWEST_LEGACY])


@EACH_THAT_VISITS
def test_a_user_logs_in_through_the_client(guarded, version):
    with in_front(guarded, version) as (front, heard):
        await_names(front, heard, ["web__login"])
        assert said(front, "web__login") == "Logged in (web)"
        await_names(front, heard, ["web__work", "web__echo"])
        assert said(front, "web__work") == "done"
        with pytest.raises(mcp.RpcError, match=r"failed: Bearer \*\*\*") as caught:
            front.call_tool("web__echo")
        assert "token-1" not in str(caught.value.data)
    guarded.close()
    # The token is kept: another gateway needs no login.
    again = gw.Upstream("web", guarded.options)
    with fronting(again) as front:
        assert names_of(front) == ["web__work", "web__echo"]


@EACH_THAT_VISITS
def test_a_call_that_needs_a_login_begins_it(guarded, version):
    with in_front(guarded, version) as (front, heard):
        assert said(front, "web__work") == "done"
        await_names(front, heard, ["web__work", "web__echo"])
        guarded.tokens.clear()  # nothing renews it
        guarded.tokens["token-2"] = "ann"
        assert said(front, "web__work") == "done"
        await_names(front, heard, ["web__work", "web__echo"])


@EACH_THAT_VISITS
def test_a_user_may_decline_a_login(guarded, version, monkeypatch):
    monkeypatch.setitem(globals(), "visit", lambda params: False)
    with in_front(guarded, version) as (front, _):
        result = front.call_tool("web__login")
        assert result["isError"] and "declined" in result["content"][0]["text"]
        with pytest.raises(mcp.RpcError, match="declined"):
            front.call_tool("web__work")
        # Nobody waits any longer, and no port is open for a browser that never comes.
        assert guarded.login.thread and not guarded.login.thread.is_alive()


def test_without_a_user_the_error_says_how_to_log_in(guarded):
    with fronting(guarded) as front:
        for name in ("web__login", "web__work"):
            with pytest.raises(mcp.RpcError, match=r"mcp_cli\.py login http://127"):
                front.call_tool(name)


def test_one_of_several_clients_does_not_log_in_for_all(guarded):
    profile = started(guarded)
    authorize = mcp.bearer({"key": "ann"})
    with over_http(profile, authorize=authorize) as url:
        headers = {"Authorization": "Bearer key"}
        with client.connect(url, headers=headers, visit=visit) as front:
            assert names_of(front) == []
            for name in ("web__login", "web__work"):
                with pytest.raises(mcp.RpcError, match=r"mcp_cli\.py login"):
                    front.call_tool(name)


def test_a_user_is_not_logged_in_as_another(guarded):
    user = gw.Connection(guarded, (), '"bob"', {"headers": {"X-Key": "of-bob"}})
    assert guarded.transport(user).authorize is None
    assert guarded.transport(guarded.main).authorize


def test_a_header_of_the_file_is_not_replaced_by_a_login(guarded):
    headers = {"authorization": "Bearer token-1"}
    upstream = gw.Upstream("web", {**guarded.options, "headers": headers})
    with fronting(upstream) as front:
        assert names_of(front) == ["web__work", "web__echo"]
        guarded.tokens.clear()
        with pytest.raises(mcp.RpcError, match="401"):
            front.call_tool("web__work")
        assert not upstream.needs_login


@needs_posix
def test_the_end_waits_for_a_connection_that_is_ending(tmp_path, monkeypatch):
    configure(tmp_path, {})
    upstream = pid_upstream(tmp_path, session="client")
    begun, gate, done = [threading.Event() for _ in range(3)]
    with crowd(upstream) as person:
        person("ann", NEWEST).call("pid__pid")
        (connection,) = upstream.own.values()
        close = connection.close
        monkeypatch.setattr(
            connection,
            "close",
            lambda: [begun.set(), gate.wait(PATIENCE), close(), done.set()],
        )
        monkeypatch.setattr(gw, "OWN_SECONDS", 0)
        assert begun.wait(PATIENCE)
        closing = begin(upstream.close)
        wait_until(lambda: not upstream.keeper.is_alive())
        gate.set()
        closing.result(PATIENCE)
        assert done.is_set()


def test_a_call_that_comes_at_the_end_connects_no_more(monkeypatch):
    with silent(timeout=PATIENCE) as (ann, _, made, upstream):
        send = upstream.send

        def late(call, params):
            gw.close_all([upstream])
            return send(call, params)

        monkeypatch.setattr(upstream, "send", late)
        ann.call()
        assert "is closed" in str(ann.came[-1])
    assert len(made) == 1


@needs_posix
def test_the_end_leaves_no_connection_of_a_client_behind(tmp_path):
    os.mkfifo(tmp_path / "held")  # it ends when no process has it open
    end = begin((tmp_path / "held").read_bytes)
    code = """if True:
        import os, runpy, signal
        held = os.open('held', os.O_WRONLY)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        runpy.run_path('pid.py')
        signal.pause()  # it must be ended
    """
    entry = {"command": [*PYTHON, "-c", code], "cwd": str(tmp_path)}
    config = configure(tmp_path, {"servers": {"pid": {**entry, "session": "client"}}})
    options = {"env": COVERAGE, "revision": NEWEST_LEGACY}
    with client.connect([*GATEWAY, config], **options) as front:
        assert front.call_tool("pid__pid")["content"]
    assert end.result(PATIENCE) == b""
