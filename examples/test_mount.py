"""Tests of mount.py: WSGI, CGI, clouds."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from testing.places import command, modern, mount, mounted, mounted_answer
from testing.scripts import (
    HERE,
    MCP_CLIENT,
    MCP_REF,
    ORDER,
    PATIENCE,
    PYTHON,
    Context,
    begin,
    client,
    headers_of,
    limits,
    mcp,
    needs_posix,
    parametrize,
)


@parametrize(
    "how, version",
    [("cgi", "2025-06-18"), *itertools.product(["wsgi", "cloud"], ORDER)],
)
def test_a_client_uses_the_mounted_endpoint(how, version, monkeypatch):
    monkeypatch.setattr(mount.endpoint, "stateless", False)
    with mounted(how) as site:
        with client.connect(site.url, revision=version, timeout=PATIENCE) as found:
            said = found.call_tool("greet", {"name": "Ada"})
        assert said["content"][0]["text"] == "Hello, Ada!"
        # only one process has sessions
        has_session = how == "wsgi" and version in mcp.versions("legacy")
        assert ("mcp-session-id" in site.asked[-1][1]) is has_session


CLOUD_PING = {
    "body": "eyJqc29ucnBjIjoiMi4wIiwiaWQiOjEsIm1ldGhvZCI6InBpbmcifQ==",
    "isBase64Encoded": True,
    "headers": {"Content-Type": "application/json"},
}


def event(path: str, **more) -> dict:
    """Return an event of payload format 1.0."""
    return {**CLOUD_PING, "httpMethod": "POST", "path": path, **more}


def staged(path: str) -> dict:
    """Return an event of payload format 2.0."""
    context = {"stage": "prod", "http": {"method": "POST"}}
    return {**CLOUD_PING, "rawPath": path, "requestContext": context}


EVIL = {"Origin": "http://evil"}
SEVERAL = {"content-type": ["application/json"]}
NOTHING = {"body": None, "headers": None}


@parametrize(
    "event, status",
    [
        (event("/mcp"), 200),
        (event("/mcp", headers=None, multiValueHeaders=SEVERAL), 200),
        (staged("/prod/mcp"), 200),
        # a custom domain with a base path, in both formats
        (event("/tools/v1/mcp"), 200),
        (staged("/prod/tools/mcp/"), 200),
        (event("/tools/mcpx"), 404),
        (event("/mcp/x"), 404),
        ({"httpMethod": "GET", "path": "/mcp", **NOTHING}, 405),
        ({"httpMethod": "POST", "path": "/mcp", "headers": EVIL}, 403),
    ],
)
def test_a_function_in_a_cloud_reads_events_of_every_format(event, status):
    said = mount.handler(event)
    headers = said["multiValueHeaders" if "multiValueHeaders" in event else "headers"]
    assert (
        said["statusCode"] == status and "application/json" in headers["Content-Type"]
    )
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert status != 200 or json.loads(said["body"]) == answer


def test_only_the_carrying_thread_touches_a_wsgi_request():
    users, gone = set(), threading.Event()

    def use(*_):
        users.add(threading.current_thread())
        return use  # it is WSGI's write(), too

    @mount.server.tool
    def helped(ctx: Context):
        ctx.on_cancel(gone.set)
        begin(ctx.progress, 1).result(PATIENCE)
        gone.wait(PATIENCE)

    parts = posted("helped", use)
    assert any(b"progress" in part for part in parts) and users == {
        threading.current_thread()
    }
    parts.close()
    assert gone.wait(PATIENCE)


def posted(name: str, use: Any, application: Any = mount.application) -> Any:
    """Call a tool under WSGI; `use` is called for the engine's two functions."""
    call = modern("tools/call", name=name)
    call["params"]["_meta"]["progressToken"] = 0
    body = mcp.encode(call)
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mcp",
        "CONTENT_LENGTH": str(len(body)),
        **{
            "HTTP_" + name.upper().replace("-", "_"): text
            for name, text in headers_of(call).items()
        },
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input": mock.Mock(read=lambda size: use() and body[:size]),
    }
    return iter(application(environ, use))


def test_a_server_is_no_endpoint():
    with pytest.raises(TypeError, match=r"wsgi\(Endpoint\(server\)\)"):
        mount.wsgi(mcp.Server("s"))


def test_a_silent_call_becomes_a_stream_under_wsgi():
    server, gate, heads = mcp.Server("s"), threading.Event(), []

    @server.tool
    def silent() -> str:
        gate.wait(PATIENCE)
        return "held"

    def use(*head):
        heads.extend(head)
        return use

    with limits(KEEP_ALIVE_SECONDS=0, CHECK_SECONDS=0.001):
        parts = posted("silent", use, mount.wsgi(mcp.Endpoint(server)))
        # the head has no body of its own
        assert [next(parts), next(parts)] == [b"", b": \n\n"]
        gate.set()
        assert b"held" in b"".join(parts)
    assert "200 OK" in heads and "text/event-stream" in str(heads)


@needs_posix
def test_gunicorn_ends_subscriptions_first(tmp_path):
    pytest.importorskip("gunicorn")
    listen = modern("subscriptions/listen", notifications={})
    call = modern("tools/call", name="greet", arguments={"name": "Ada"})

    def send(message):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {**headers_of(message), "Connection": "close"}
        connection.request("POST", "/mcp", mcp.encode(message), headers)
        return connection.getresponse()

    words = "-m gunicorn --bind 127.0.0.1:0 --worker-class gthread --threads 8 "
    words += "--graceful-timeout 600 --config python:mount mount:application"
    with subprocess.Popen(
        [*PYTHON, *words.split()],
        cwd=Path(mount.__file__).parent,
        env={**os.environ, "HOME": str(tmp_path)},  # gunicorn keeps a socket there
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            lines: Any = process.stderr
            port = next(
                int(found[1])
                for line in lines
                if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line))
            )
            begin(lines.read)  # or the pipe would fill up
            streams = [send(listen) for _ in range(8)]
            assert [one.status for one in streams] == [200] * 4 + [503] * 4
            assert all("error" in str(one.read()) for one in streams[4:])
            assert "Hello, Ada!" in str(send(call).read())
            process.terminate()
            assert all("result" in str(one.read()) for one in streams[:4])
            assert process.wait(PATIENCE) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):  # its worker has left, too
                os.killpg(process.pid, signal.SIGKILL)


@parametrize(
    "names", [("X-User", "x-user"), ("Authorization", "AUTHORIZATION"), ("a-b", "a_b")]
)
def test_a_function_in_a_cloud_refuses_a_header_in_two_spellings(names):
    said = mount.handler(event("/mcp", headers=dict(zip(names, ("ann", "bob")))))
    assert said["statusCode"] == 400 and "repeated" in said["body"]


@parametrize("event", [{"key1": "value1"}, {}, {"requestContext": None}])
def test_a_function_in_a_cloud_refuses_what_is_no_request(event):
    """Such as the test event of the console."""
    said = mount.handler(event)
    assert said["statusCode"] == 400 and "httpMethod" in said["body"]


def test_copies_run_beside_the_module(tmp_path, monkeypatch):
    source = Path(mount.__file__).read_text("utf-8")
    app = shutil.copytree(HERE / "examples" / "extensions", tmp_path / "app")
    (tmp_path / "cmd.py").write_text("raise SystemExit('not the standard library')")
    for path in (MCP_REF, MCP_CLIENT):
        shutil.copy(path, app)
    assert source.startswith("#!")
    (app / "mount.py").write_text(
        source.replace("LISTEN_SECONDS = 5", "LISTEN_SECONDS = 0")
    )
    program = (
        "import gateway, mount, oauth_server, skills, tasks, cmd, os\n"
        "ours = [gateway, mount, mount.mcp_ref]\n"
        "print(*{os.path.dirname(os.path.realpath(one.__file__)) for one in ours})"
    )
    copies = command("-c", program, cwd=app, path=tmp_path / "nothing")
    assert (copies.stdout, copies.stderr) == (f"{os.path.realpath(app)}\n", "")
    monkeypatch.setattr(mount, "__file__", str(app / "mount.py"))
    listen = modern("subscriptions/listen", notifications={})
    headers = {name.lower(): text for name, text in headers_of(listen).items()}
    (answer,) = mounted_answer("cgi", "POST", {":path": "/mcp", **headers}, listen)
    assert b"200 OK" in answer and b"acknowledged" in answer
    # A header does not make a stream without an end.
    listen = {":path": "/sse", "host": "localhost", "mcp-method": "x"}
    (answer,) = mounted_answer("cgi", "GET", listen, None)
    assert b"session_id=" in answer
