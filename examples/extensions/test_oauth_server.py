"""Tests of oauth_server.py: which tokens it accepts."""

# What has no types here is not checked; the rest must be right.
# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs, implicit-reexport
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-any-generics
# mypy: disable-error-code="union-attr, index, var-annotated, operator, misc"
# mypy: disable-error-code="assignment, return-value, dict-item, no-any-return"

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from test_mcp_ref import mcp, parametrize

import oauth
import oauth_server as guard
from test_oauth import ISSUER, MCP, RESOURCE, visited

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
    claims = {
        "aud": MCP,
        "iss": ISSUER,
        "sub": "ann",
        "exp": 8e9,
        "scope": "a b",
        **changes,
    }
    head, cut = claims.pop("head", {}), claims.pop("cut", "")
    world.at[ISSUER + "/i"] = {"active": not head and not cut, **claims}
    options = {"resource": MCP, "issuer": ISSUER, "scopes": ["a"]}
    hooks = (
        {}
        if head
        else {"opaque": guard.introspection(ISSUER + "/i", "i", "s", **options)}
    )
    if importlib.util.find_spec("cryptography"):
        key = oauth.Key(oauth.new_pem())
        token = key.jwt(claims, **head)
        hooks[token[: len(token) - len(cut)] + cut] = guard.local_keys(
            {"keys": [{"kty": "odd"}, key.jwk()]}, **options
        )
    for token, hook in hooks.items():
        with (
            contextlib.nullcontext()
            if not status
            else pytest.raises(mcp.HttpError) as caught
        ):
            made = hook({"authorization": "bearer " + token})
            assert made == [ISSUER, "ann", ""]
        assert (
            not status
            or caught.value.status == status
            and RESOURCE in str(caught.value.headers)
        )


def test_an_oauth_server_names_its_issuer():
    with pytest.raises(ValueError, match="issuer"):
        guard.local_keys({}, issuer="", resource=MCP)
