"""Tests of oauth_server.py: which tokens it accepts."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
import types
from urllib.parse import parse_qs

import oauth
import oauth_server as guard
import pytest
from test_oauth import ISSUER, MCP, RESOURCE, visited
from testing.scripts import PATIENCE, begin, client, mcp, parametrize

world = pytest.fixture(visited, name="world")


@parametrize(
    "status, changes",
    [
        (0, {}),
        (0, {"aud": ["x", MCP]}),
        (401, {"aud": "x"}),
        (401, {"aud": 0}),
        (401, {"iss": "x"}),
        (401, {"exp": 9}),
        (401, {"exp": "never"}),
        (401, {"nbf": 9e9}),
        (401, {"sub": ""}),
        (401, {"cnf": {}}),
        (403, {"scope": "b"}),
        (0, {"scope": None, "scp": ["a"]}),
        (401, {"head": {"alg": "none"}}),
        (401, {"head": {"typ": "dpop+jwt"}}),
        (401, {"head": {"crit": []}}),
        (401, {"head": {"kid": "k2"}}),
        (401, {"head": {"typ": 3}}),
        (401, {"cut": "AAAA"}),
    ],
)
def test_oauth_servers_check_tokens(world, status, changes):
    claims = {"aud": MCP, "iss": ISSUER, "sub": "ann", "exp": 8e9, "scope": "a b"}
    claims.update(changes)
    head, cut = claims.pop("head", {}), claims.pop("cut", "")
    world.at[ISSUER + "/i"] = {"active": not head and not cut, **claims}
    options = {"resource": MCP, "issuer": ISSUER, "scopes": ["a"]}
    hooks = {}
    if not head:
        hooks["opaque"] = guard.introspection(ISSUER + "/i", "i", "s", **options)
    if importlib.util.find_spec("cryptography"):
        key = oauth.Key(oauth.new_pem())
        token = key.jwt(claims, **head)
        hooks[token[: len(token) - len(cut)] + cut] = guard.local_keys(
            {"keys": [{"kty": "odd"}, key.jwk()]}, **options
        )
    for token, hook in hooks.items():
        given = {"authorization": "bearer " + token}
        if not status:
            assert hook(given) == [ISSUER, "ann", ""]
            continue
        with pytest.raises(mcp.HttpError) as caught:
            hook(given)
        assert caught.value.status == status
        assert RESOURCE in str(caught.value.headers)


def test_an_oauth_server_names_its_issuer():
    with pytest.raises(ValueError, match="issuer"):
        guard.local_keys({}, issuer="", resource=MCP)


class Issuer:
    """An issuer to which "right..." are tokens of this server, and "400..." one that it
    answers with that status. `asked`: those it was asked about; it answers while `gate`
    is open, unless it is down. The hook's clock stands still at `now`."""

    def __init__(self, monkeypatch):
        self.asked, self.timeouts = [], []
        self.down, self.now, self.inside = False, 100.0, 0
        self.gate, self.moved = threading.Event(), threading.Condition()
        self.gate.set()
        clock = types.SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        monkeypatch.setattr(guard, "time", clock)
        monkeypatch.setattr(guard, "fetch", self.fetch)
        self.hook = guard.introspection(ISSUER + "/i", "i", "s", resource=MCP)

    def fetch(self, verb: str, url: str, headers: dict, body: bytes, timeout=30):
        token = parse_qs(body.decode())["token"][0]
        with self.moved:
            self.asked.append(token)
            self.timeouts.append(timeout)
            self.inside += 1
            self.moved.notify_all()
        assert self.gate.wait(PATIENCE)
        with self.moved:
            self.inside -= 1
        if self.down:
            raise OSError("down")
        if token[:3].isdigit():
            return int(token[:3]), {}, b"[]"
        active = token.startswith("right")
        claims = {"active": active, "aud": MCP, "iss": ISSUER, "sub": token}
        return 200, {}, json.dumps(claims).encode()

    def status(self, token: str) -> int:
        """Return 200 if the hook accepts a token, or the status of its refusal."""
        try:
            self.hook({"authorization": "Bearer " + token})
        except mcp.HttpError as refusal:
            assert refusal.status != 503 or int(refusal.headers["Retry-After"]) > 0
            return refusal.status
        return 200

    def wait_for(self, inside: int) -> None:
        with self.moved:
            assert self.moved.wait_for(lambda: self.inside == inside, PATIENCE)


@pytest.fixture
def issuer(monkeypatch):
    made = Issuer(monkeypatch)
    yield made
    made.gate.set()


def test_an_issuer_is_asked_eight_questions_at_a_time(issuer, monkeypatch):
    right = ["right0", "right1", "right2"]
    assert [issuer.status(token) for token in right] == [200] * 3
    issuer.now += 11  # what it said is too old now
    issuer.gate.clear()
    calls = [begin(issuer.status, f"wrong{number}") for number in range(6)]
    issuer.wait_for(6)
    monkeypatch.setattr(guard, "PLACE_SECONDS", 0)
    assert issuer.status("wrong6") == 503
    # There is room for those who were right before.
    calls += [begin(issuer.status, token) for token in right[:2]]
    issuer.wait_for(8)
    assert issuer.status("wrong6") == issuer.status("right2") == 503
    issuer.gate.set()
    assert [call.result(PATIENCE) for call in calls] == [401] * 6 + [200] * 2
    assert len(issuer.asked) == 3 + 8


def test_one_question_answers_those_who_wait_for_it(issuer, monkeypatch):
    monkeypatch.setattr(guard, "PLACE_SECONDS", PATIENCE)
    assert issuer.status("right") == 200
    issuer.now += 11
    issuer.gate.clear()
    calls = [begin(issuer.status, "right") for _ in range(9)]
    issuer.wait_for(2)
    issuer.gate.set()
    assert [call.result(PATIENCE) for call in calls] == [200] * 9
    assert len(issuer.asked) == 3


def test_the_failure_of_an_issuer_is_remembered(issuer):
    assert issuer.status("right") == 200
    issuer.down = True
    assert [issuer.status(f"wrong{number}") for number in range(9)] == [503] * 9
    assert issuer.asked == ["right", "wrong0"]
    assert issuer.status("right") == 200  # it is remembered
    issuer.down = False
    issuer.now += 9
    assert issuer.status("wrong0") == 401


@parametrize("token", ["400x", "403x", "413x", "429x", "200x"])
def test_the_failure_for_one_token_is_not_that_of_others(issuer, token):
    assert issuer.status(token) == 503
    assert issuer.status("right") == 200
    issuer.now += 11  # what it said is too old now
    assert [issuer.status(token), issuer.status("right")] == [503, 200]


def test_an_issuer_that_answers_500_has_failed(issuer):
    """But it is still asked about tokens that were right."""
    assert issuer.status("right") == 200
    issuer.now += 11  # what it said is too old now
    tokens = ["500x", "right1", "right"]
    assert [issuer.status(token) for token in tokens] == [503, 503, 200]
    assert issuer.asked == ["right", "500x", "right"]


def test_wrong_tokens_are_remembered_apart(issuer, monkeypatch):
    monkeypatch.setattr(guard, "MAX_KNOWN", 3)
    tokens = ["right", *[f"wrong{number}" for number in range(9)], "right", "wrong8"]
    assert [issuer.status(token) for token in tokens] == [200, *[401] * 9, 200, 401]
    assert len(issuer.asked) == 10
    assert issuer.status("wrong0") == 401  # the oldest were forgotten
    assert len(issuer.asked) == 11


@parametrize("token", ["a b", "x" * 9000, "\xe9"], ids=["space", "long", "accent"])
def test_an_issuer_is_not_asked_about_what_is_no_token(issuer, token):
    assert issuer.status(token) == 401
    assert not issuer.asked


def test_a_silent_issuer_holds_a_request_for_seconds(issuer, monkeypatch):
    assert issuer.status("right") == 200
    assert issuer.timeouts == [guard.ISSUER_SECONDS]
    assert guard.ISSUER_SECONDS + guard.PLACE_SECONDS <= 5
    monkeypatch.setattr(guard, "fetch", client.fetch)
    monkeypatch.setattr(guard, "ISSUER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/i"
        issuer.hook = guard.introspection(url, "i", "s", resource=MCP)
        assert begin(issuer.status, "right").result(PATIENCE) == 503


GUID = "5f3d2c1a-0000-4000-8000-00000000abcd"
TOKENS = {  # as the documents of four providers show them
    "entra, a user": {"aud": GUID, "sub": "ann", "scp": "a b", "azp": "app"},
    "entra, a program": {"aud": GUID, "sub": "app-id", "roles": ["a"], "azp": "app"},
    "auth0": {"aud": [MCP, "x"], "sub": "auth0|1", "permissions": ["a"], "azp": "c"},
    "cognito": {"sub": "ann", "client_id": "app", "scope": "a", "token_use": "access"},
    "keycloak, light": {"aud": MCP, "client_id": "app", "scope": "a"},
}
OPTIONS = {
    "entra, a user": {"audience": GUID},
    "entra, a program": {"audience": [GUID, "api://x"], "scope_claims": ["roles"]},
    "auth0": {"scope_claims": ["scope", "permissions"]},
    "cognito": {"without_audience": True},
    "keycloak, light": {"subject_claims": ["sub", "client_id"]},
}


def hook_that_finds(world, claims, **options):
    world.at[ISSUER + "/i"] = {"active": True, "iss": ISSUER, "exp": 8e9, **claims}
    options = {"resource": MCP, "issuer": ISSUER, "scopes": ["a"], **options}
    return guard.introspection(ISSUER + "/i", "i", "s", **options)


@parametrize("name", TOKENS)
def test_tokens_of_providers_are_accepted_if_the_operator_says_so(world, name, capsys):
    who = {"authorization": "Bearer t"}
    claims = TOKENS[name]
    found = hook_that_finds(world, claims, **OPTIONS[name])(who)
    subject = claims.get("sub") or claims["client_id"]
    assert found == [ISSUER, subject, claims.get("client_id") or claims["azp"]]
    # Nothing of that is the default; and nothing else is let through.
    with pytest.raises(mcp.HttpError):
        hook_that_finds(world, claims)(who)
    strange = {**claims, "aud": "https://other.test"}
    with pytest.raises(mcp.HttpError):
        hook_that_finds(world, strange, **OPTIONS[name])(who)
    printed = capsys.readouterr()[1]
    assert printed.count("oauth: a token is refused: ") == 2
    assert "its aud is https://other.test, not" in printed


@parametrize(
    "claims, reason",
    [
        ({"active": False}, "the issuer says that it is not valid"),
        ({"aud": "x\x1b"}, f"its aud is x, not {MCP}"),
        ({"aud": None}, "its aud is None, not"),
        ({"iss": "y"}, f"its iss is y, not {ISSUER}"),
        ({"exp": 9}, "it has expired"),
        ({"exp": "z"}, "not a number"),
        ({"nbf": 9e9}, "not valid before"),
        ({"sub": ""}, "who calls (in sub)"),
        ({"cnf": {}}, "cnf"),
        ({"scope": "b"}, "it lacks a; it has b (in scope, scp)"),
    ],
)
def test_each_refusal_has_its_reason_in_the_log(world, claims, reason, capsys):
    claims = {"aud": MCP, "sub": "ann", "scope": "a", **claims}
    with pytest.raises(mcp.HttpError) as caught:
        hook_that_finds(world, claims)({"authorization": "Bearer secret-token"})
    printed = capsys.readouterr()[1]
    assert reason in printed and "secret-token" not in printed and "\x1b" not in printed
    assert reason not in str(caught.value)  # strangers are told less


def test_a_jwt_that_nobody_signed_has_its_reason_in_the_log(capsys):
    pytest.importorskip("cryptography")
    hook = guard.local_keys({"keys": []}, issuer=ISSUER, resource=MCP)
    with pytest.raises(mcp.HttpError):
        hook({"authorization": "Bearer a.b.c"})
    assert "one of the keys has signed" in capsys.readouterr()[1]


@parametrize("name", ["scopes", "scope_claims", "subject_claims"])
def test_a_list_that_is_a_text_is_refused(name):
    with pytest.raises(TypeError, match="list"):
        guard.introspection("x", "i", "s", resource=MCP, **{name: "abc"})
