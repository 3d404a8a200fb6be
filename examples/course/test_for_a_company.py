"""Tests of 11_for_a_company.py, over HTTP, as its people would call it."""

# What has no types here is not checked; the rest must be right.
# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-any-generics
# mypy: disable-error-code="union-attr, index, var-annotated, operator, misc"

from __future__ import annotations

import contextlib
import re
import threading
from pathlib import Path

import pytest
from testing.places import command
from testing.scripts import (
    CODES,
    NEWEST,
    NEWEST_LEGACY,
    client,
    load,
    mcp,
    parametrize,
)

HERE = Path(__file__).resolve().parent
company = load("company", HERE / "11_for_a_company.py")


@contextlib.contextmanager
def serving(calls: int = 30):
    """Serve the company; yield a function that connects as the owner of a key."""
    with company.on_a_loop(company.open_ledger()) as (loop, ledger):
        server = company.make_server(company.PEOPLE, ledger, calls, loop=loop)
        endpoint = company.endpoint_of(server, company.PEOPLE)
        with contextlib.closing(mcp.http_server(endpoint)) as httpd:
            threading.Thread(target=httpd.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{httpd.server_port}/mcp"
            yield lambda key, **options: client.connect(
                url, headers={"X-API-Key": key}, **options
            )


@parametrize("revision", [NEWEST, NEWEST_LEGACY])
def test_a_hidden_tool_is_unknown_whatever_is_sent(revision):
    with serving() as connect:
        with connect("key-of-bob", revision=revision) as bob:
            assert [tool["name"] for tool in bob.list_tools()] == ["balance"]
            for name in ("transfer", "nothing"):
                for arguments in ({}, {"to": 5}, {"to": "ann", "amount": 1}):
                    with pytest.raises(mcp.RpcError) as refused:
                        bob.call_tool(name, arguments)
                    assert refused.value.code == CODES["INVALID_PARAMS"]
                    assert str(refused.value) == f"Unknown tool: {name}"
        with connect("key-of-ann", revision=revision) as ann:
            assert len(ann.list_tools()) == 2
            assert ann.call_tool("transfer", {"to": 5})["isError"]


def test_a_wrong_key_sees_nothing_but_health():
    with serving() as connect:
        with pytest.raises(mcp.HttpError) as refused:
            connect("key-of-eve")
        assert refused.value.status == 401
        health = refused.value.url.replace("/mcp", "/health")
        assert client.fetch("GET", health, {})[::2] == (200, b"healthy")


def test_calls_are_limited_for_each_person_and_logged(capfd):
    with serving(calls=2) as connect:
        with connect("key-of-ann") as ann, connect("key-of-bob") as bob:
            for _ in range(2):
                assert ann.call_tool("balance")["structuredContent"] == {"result": 100}
            for _ in range(2):
                with pytest.raises(mcp.RpcError, match="calls allowed in .*: 2"):
                    ann.call_tool("balance")
            assert not bob.call_tool("balance").get("isError")
    logged = re.findall(
        r"(\w+): tools/call balance: (\w+), \d+ ms", capfd.readouterr().err
    )
    assert logged == [("ann", "ok")] * 2 + [("ann", "refused")] * 2 + [("bob", "ok")]


def test_a_batch_is_no_way_around_the_limit():
    people, sent, peer = company.PEOPLE, [], mcp.Peer()
    server = company.make_server(people, {"ann": 1}, calls=2)
    version = mcp.FEATURES["batches"].since
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
    messages = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        [
            {
                "jsonrpc": "2.0",
                "id": n,
                "method": "tools/call",
                "params": {"name": "balance"},
            }
            for n in range(1, 6)
        ],
    ]
    for message in messages:
        if isinstance(message, dict):
            message["jsonrpc"] = "2.0"
        server.handle(message, sent.append, peer=peer, principal="ann")
    answers = sent[-1]
    assert ["error" in answer for answer in answers] == [False] * 2 + [True] * 3


def test_the_session_is_opened_before_and_closed_after(tmp_path):
    done = command(str(HERE / "11_for_a_company.py"), "--demo", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("The ledger is open.", "The ledger is closed.")
